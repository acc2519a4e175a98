//! The entries of the server's other databases, for access rules and overlays.

use std::sync::{Arc, Weak};

use larix_schema::{AttributeDescription, NearestSuffix, NormalDn};
use larix_store::{Snapshot, Store};

use crate::access::{AccessTarget, EntryFacts, EntrySearch, GroupQuery, OtherEntries, Reach, Unreadable};
use crate::budget::Meter;
use crate::database::{Database, View};
use crate::entry::{Entry, OwnedSource};
use crate::fault::Fault;
use crate::overlay::internal_search::{InternalSearch, OtherDatabases, SearchOutcome, Visit};
use crate::search::computed::Sight;
use crate::search::internal;
use crate::search::rule_facts::{RuleFacts, search, with_entry};

/// All databases of a directory, as far as they are open.
#[derive(Debug)]
pub(crate) struct Neighbours<S: Store>(pub(crate) Vec<Weak<Database<S>>>);

impl<S: Store> Neighbours<S> {
    /// The database whose suffix is the nearest at or above the name, if that suffix has more RDNs than `own_depth`.
    fn select(&self, dn: &NormalDn, own_depth: usize) -> Option<Arc<Database<S>>> {
        let open = self.0.iter().filter_map(Weak::upgrade);
        let depth = |nearest: &NearestSuffix<'_>, database: &Arc<Database<S>>| {
            database.current_settings().depth_of(nearest)
        };
        NearestSuffix::of(dn).beyond(own_depth).among(open, depth).map(|(_, database)| database)
    }

    fn read_entry(
        &self,
        dn: &NormalDn,
        own_depth: usize,
        read: &mut dyn FnMut(&dyn EntryFacts),
    ) -> Result<bool, Fault> {
        let Some(database) = self.select(dn, own_depth) else { return Ok(false) };
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        Ok(with_entry(&view, Sight::of(&view), dn, read)? == Reach::Found)
    }

    fn read_found(
        &self,
        request: &EntrySearch<'_>,
        own_depth: usize,
        visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Result<bool, Fault> {
        let Some(database) = self.select(request.base, own_depth) else { return Ok(false) };
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        let meter = Meter::new(request.steps.get());
        let sight = Sight { meter: Some(&meter), ..Sight::of(&view) };
        let reach = search(&view, sight, request, visit);
        let is_spent = matches!(reach, Err(Fault::StepsSpent));
        request.steps.set(if is_spent { 0 } else { meter.remaining() });
        Ok(reach? == Reach::Found)
    }
}

impl<S: Store> OtherEntries for Neighbours<S> {
    fn with_entry(
        &self,
        dn: &NormalDn,
        own_depth: usize,
        read: &mut dyn FnMut(&dyn EntryFacts),
    ) -> Result<bool, Unreadable> {
        self.read_entry(dn, own_depth, read).map_err(|_| Unreadable)
    }

    fn search(
        &self,
        request: &EntrySearch<'_>,
        own_depth: usize,
        visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Result<bool, Unreadable> {
        self.read_found(request, own_depth, visit).map_err(|_| Unreadable)
    }
}

impl<S: Store> OtherDatabases for Neighbours<S> {
    fn entry(&self, dn: &NormalDn, own_depth: usize) -> Result<Option<Entry>, Fault> {
        let Some(database) = self.select(dn, own_depth) else { return Ok(None) };
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        let Some(id) = view.resolve(dn)?.and_then(|resolved| resolved.id) else { return Ok(None) };
        let Some(record) = view.record(id)? else { return Ok(None) };
        let reader = view.reader(id, &record)?;
        Ok(Some(reader.to_owned(view.dn(&reader.view)?, false)?))
    }

    fn search(
        &self,
        query: &InternalSearch<'_>,
        own_depth: usize,
        visit: &mut Visit<'_>,
    ) -> Result<Option<SearchOutcome>, Fault> {
        let Some(database) = self.select(query.base, own_depth) else { return Ok(None) };
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        internal::search(&view, query, visit).map(Some)
    }
}

impl<V: Snapshot> View<'_, V> {
    /// Whether the member is in the group, which may be in any database of the server. `None`: unknown.
    pub fn is_member(&self, group: &GroupQuery<'_>, member: &NormalDn) -> Option<bool> {
        self.is_member_seen(Sight::of(self), group, member)
    }

    pub(crate) fn is_member_seen(
        &self,
        sight: Sight<'_>,
        group: &GroupQuery<'_>,
        member: &NormalDn,
    ) -> Option<bool> {
        let entry = Entry::default();
        let source = OwnedSource { schema: &self.schema, entry: &entry };
        let nobody = NormalDn::root();
        let facts = RuleFacts::new(self, sight, &nobody, &source);
        sight.policy.is_member(&AccessTarget { dn: &nobody, entry: &facts }, group, member)
    }
}
