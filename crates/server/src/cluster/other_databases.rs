//! The entries of the server's other databases, for the access rules of one in a shared engine: groups may be there.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use larix_engine::access::{EntryFacts, EntrySearch, OtherEntries, Unreadable};
use larix_engine::other_entries;
use larix_schema::{AttributeDescription, NearestSuffix, NormalDn};

use super::Node;

/// All databases of a generation. Threads of nodes ask, and those that check rules for operations: they may wait.
#[derive(Default)]
pub(super) struct AllDatabases {
    stored: OnceLock<Arc<dyn OtherEntries>>,
    nodes: OnceLock<Vec<Weak<Node>>>,
}

impl fmt::Debug for AllDatabases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllDatabases").field("stored", &self.stored).finish_non_exhaustive()
    }
}

impl AllDatabases {
    pub(super) fn set_stored(&self, stored: Arc<dyn OtherEntries>) {
        // It is set once, where the generation is made.
        let _set = self.stored.set(stored);
    }

    pub(super) fn set_nodes<'n>(&self, nodes: impl Iterator<Item = &'n Arc<Node>>) {
        let _set = self.nodes.set(nodes.map(Arc::downgrade).collect());
    }

    /// The database in a shared engine whose suffix is the nearest at or above the name, and how many RDNs that has.
    fn shared(&self, dn: &NormalDn, beyond: usize) -> Option<(usize, Arc<Node>)> {
        let nodes = self.nodes.get().into_iter().flatten().filter_map(Weak::upgrade);
        let depth =
            |nearest: &NearestSuffix<'_>, node: &Arc<Node>| node.database_settings().depth_of(nearest);
        NearestSuffix::of(dn).beyond(beyond).among(nodes, depth)
    }

    /// Asks the stored database that holds the name, unless one in a shared engine is nearer, then that one.
    fn ask(
        &self,
        dn: &NormalDn,
        beyond: usize,
        ask: &mut dyn FnMut(&dyn OtherEntries, usize) -> Result<bool, Unreadable>,
    ) -> Result<bool, Unreadable> {
        let shared = self.shared(dn, beyond);
        let nearer = shared.as_ref().map_or(beyond, |(depth, _)| *depth);
        if let Some(stored) = self.stored.get()
            && ask(&**stored, nearer)?
        {
            return Ok(true);
        }
        let Some((_, node)) = shared else { return Ok(false) };
        let served = node.served().ok_or(Unreadable)?;
        ask(&*other_entries(std::slice::from_ref(served)), beyond)
    }
}

impl OtherEntries for AllDatabases {
    fn with_entry(
        &self,
        dn: &NormalDn,
        beyond: usize,
        read: &mut dyn FnMut(&dyn EntryFacts),
    ) -> Result<bool, Unreadable> {
        self.ask(dn, beyond, &mut |others, beyond| others.with_entry(dn, beyond, read))
    }

    fn search(
        &self,
        search: &EntrySearch<'_>,
        beyond: usize,
        visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Result<bool, Unreadable> {
        self.ask(search.base, beyond, &mut |others, beyond| others.search(search, beyond, visit))
    }
}
