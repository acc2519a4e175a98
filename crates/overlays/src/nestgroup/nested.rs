//! Which groups are members of which, remembered from one commit to the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use larix_engine::overlay::computed::ComputedIn;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::{Dependencies, Entries, Failure};
use larix_proto::Scope;
use larix_schema::{BoundFilter, NormalDn};

use super::{NestGroup, name};

/// What is remembered may take so many bytes; beyond that it is begun anew.
const BYTES_MAX: usize = 16 << 20;
/// Beside the names.
const BYTES_EACH: usize = 96;

/// Members of a group that are within the bases, without regard to access.
pub(super) type Inner = Arc<[NormalDn]>;

/// What was found in the latest state that was looked at.
#[derive(Debug, Default)]
pub(super) struct Nested(ArcSwapOption<CachedGroups>);

/// What holds in the state of one commit.
#[derive(Debug)]
struct CachedGroups {
    commit: u64,
    groups: Mutex<Groups>,
}

#[derive(Debug, Default)]
struct Groups {
    inner: HashMap<NormalDn, Inner>,
    bytes: usize,
}

impl CachedGroups {
    fn get(&self, group: &NormalDn) -> Option<Inner> {
        // A panic of another thread leaves a whole map.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).inner.get(group).cloned()
    }

    fn keep(&self, group: &NormalDn, inner: &Inner) {
        let names = std::iter::once(group).chain(inner.iter());
        let bytes: usize = names.map(|name| name.as_str().len() + BYTES_EACH).sum();
        if bytes > BYTES_MAX {
            return;
        }
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if groups.bytes + bytes > BYTES_MAX {
            *groups = Groups::default();
        }
        if groups.inner.insert(group.clone(), Arc::clone(inner)).is_none() {
            groups.bytes += bytes;
        }
    }
}

impl Nested {
    /// What holds in this state; none in one that changes are laid over, or in an older one that somebody still reads.
    fn at(&self, entries: &dyn Entries, dependencies: &Dependencies<'_>) -> Option<Arc<CachedGroups>> {
        let commit = entries.commit()?;
        if let Some(cached) = self.0.load_full() {
            if cached.commit == commit
                || cached.commit < commit && entries.is_as_at(cached.commit, dependencies)
            {
                return Some(cached);
            }
            if cached.commit > commit {
                return None;
            }
        }
        let cached = Arc::new(CachedGroups { commit, groups: Mutex::default() });
        self.0.store(Some(Arc::clone(&cached)));
        Some(cached)
    }
}

impl NestGroup {
    /// The members of a group that are within the bases, without regard to access: usually none, and then nothing leads anywhere.
    pub(super) fn inner(&self, within: &ComputedIn<'_>, group: &NormalDn) -> Result<Inner, Failure> {
        let dependencies =
            Dependencies { attributes: std::slice::from_ref(&self.member), entries: false, names: true };
        let cached = self.nested.at(within.entries, &dependencies);
        if let Some(inner) = cached.as_ref().and_then(|cached| cached.get(group)) {
            return Ok(inner);
        }
        let (mut is_there, mut inner) = (false, Vec::new());
        let query = InternalSearch::new(group, Scope::Base, &BoundFilter::True);
        within.entries.search(&query, &mut |found| {
            is_there = true;
            found.source().visit_exact(&self.member, &mut |value| {
                let member = name(within.schema, value).map(|(dn, _)| dn);
                inner.extend(member.filter(|dn| self.is_within_base(dn)));
                true
            })?;
            Ok(false)
        })?;
        let inner = Inner::from(inner);
        // Names that nobody has are not kept: anybody may ask for them, and an entry may be added.
        if let Some(cached) = cached.filter(|_| is_there) {
            cached.keep(group, &inner);
        }
        Ok(inner)
    }
}
