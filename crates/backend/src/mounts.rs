//! Backends under their suffixes, and which of them a name belongs to.

use std::cmp::Reverse;

use larix_proto::Scope;
use larix_schema::{NearestSuffix, NormalDn};

use crate::backend::{Backend, Below, Mount};
use crate::glue;

/// Some mounts: all of a server, or those of one tree of glued databases.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    /// In the order of the configuration.
    all: Vec<Mount>,
    /// Suffixes and the numbers of their mounts, the longest first, and of equals the first of the configuration.
    table: Vec<(NormalDn, usize)>,
    /// Whether any is glued below another.
    has_subordinate: bool,
}

impl Mounts {
    pub(crate) fn new(all: Vec<Mount>) -> Self {
        let mut mounts = Self::default();
        all.into_iter().for_each(|mount| mounts.push(mount));
        mounts
    }

    /// One more, as the last.
    pub(crate) fn push(&mut self, mount: Mount) {
        if !mount.hidden {
            let number = self.all.len();
            self.table.extend(mount.suffixes.iter().map(|suffix| (suffix.clone(), number)));
            self.table.sort_by_key(|(suffix, _)| Reverse(suffix.depth()));
        }
        self.has_subordinate |= mount.subordinate && !mount.hidden;
        self.all.push(mount);
    }

    pub(crate) fn all(&self) -> &[Mount] {
        &self.all
    }

    /// The number of the mount that holds a name: of those whose suffix is at or above it, the one with the longest. Hidden ones hold
    /// nothing.
    pub(crate) fn number(&self, dn: &NormalDn) -> Option<usize> {
        self.table.iter().find(|(suffix, _)| dn.is_within(suffix)).map(|(_, number)| *number)
    }

    pub(crate) fn backend(&self, dn: &NormalDn) -> Option<&dyn Backend> {
        self.number(dn).and_then(|number| self.all.get(number)).map(|mount| &*mount.backend)
    }

    /// Where a search goes on, in the order of the configuration.
    pub(crate) fn glued_below(&self, base: &NormalDn, scope: Scope) -> Vec<Below<'_>> {
        let mut found = Vec::new();
        if !self.has_subordinate {
            return found;
        }
        for mount in self.all.iter().filter(|mount| mount.subordinate && !mount.hidden) {
            for suffix in &mount.suffixes {
                if let Some(within) = glue::scope_below(scope, base, suffix) {
                    found.push((&*mount.backend, suffix, within));
                }
            }
        }
        found
    }

    /// Whether requests at this name may be answered with referrals: by its `holder`, or, for a search, by a database glued below it.
    pub(crate) fn refer(&self, holder: &dyn Backend, dn: &NormalDn, changes: bool) -> bool {
        let below = || {
            let parts = self.glued_below(dn, Scope::Subtree);
            parts.iter().any(|(one, ..)| one.refers(dn, changes))
        };
        holder.refers(dn, changes) || (!changes && below())
    }

    /// The database that a subordinate one is glued to in the end: of those that are not subordinate, the nearest above it.
    pub(crate) fn uppermost(&self, part: &Mount) -> Option<usize> {
        let own = part.suffixes.first().filter(|_| part.subordinate && !part.hidden)?;
        let superiors = self.all.iter().enumerate().filter(|(_, mount)| !mount.subordinate && !mount.hidden);
        let nearest =
            NearestSuffix::above(own).among(superiors, |nearest, (_, mount)| nearest.depth(&mount.suffixes));
        nearest.map(|(_, (number, _))| number)
    }
}
