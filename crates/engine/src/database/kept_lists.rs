//! Sorted lists of matches that a database keeps, so that a client that goes on to another page or view need not wait for another sort
//! (`docs/adr/0126-sorted-lists-are-kept-for-who-goes-on.md`).
//!
//! A list says only where an entry stands. Each entry that is answered is looked at anew: whether it is still in the scope and matches,
//! and what the requester may see of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Configured;
use crate::access::Subject;
use crate::controls::RequestControls;
use crate::entry::EntryId;
use crate::time::Monotonic;

/// Shorter lists are sorted again: that takes less than a millisecond.
pub(crate) const KEPT_MATCHES_MIN: usize = 256;
/// Lists that a database keeps. The one that was asked for longest ago makes room.
pub(crate) const KEPT_LISTS_MAX: usize = 16;
/// Bytes that the lists of a database take together; a longer list is not kept.
pub(crate) const KEPT_BYTES_MAX: usize = 64 << 20;
/// A list that nobody asked for in so many seconds is dropped, and each list that is so old.
pub(crate) const KEPT_IDLE_SECONDS: u32 = 60;
pub(crate) const KEPT_AGE_SECONDS: u32 = 600;

/// The matches of a search by sort key and id.
pub(crate) type Matches = Vec<(Vec<u8>, EntryId)>;

/// What a list is good for: a search that is the same in all of this.
#[derive(Debug)]
pub(crate) struct ListKey {
    /// Base, scope, filter, sort keys and the identity.
    search: [u8; 32],
    /// Without those that say which part is wanted.
    controls: RequestControls,
    subject: Arc<Subject>,
}

/// What a list was made with: with anything else the same search may find other entries.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct MadeWith {
    /// Schema, rules and settings.
    pub(crate) configured: Configured,
    /// The entry that had the name of the base; another one may have it now.
    pub(crate) base: EntryId,
}

/// A list that was found.
#[derive(Debug)]
pub(crate) struct KeptList {
    pub(crate) matches: Arc<Matches>,
    /// What a client may ask for it by: the contextID of a virtual list view.
    pub(crate) number: u64,
}

/// The lists of one database.
#[derive(Debug, Default)]
pub(crate) struct KeptLists(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    lists: Vec<Entry>,
    last_number: u64,
}

#[derive(Debug)]
struct Entry {
    key: Arc<ListKey>,
    list: Arc<Matches>,
    number: u64,
    bytes: usize,
    made_with: MadeWith,
    made: Monotonic,
    used: Monotonic,
}

impl ListKey {
    /// `search`: a digest of base, scope, filter, sort keys and identity.
    pub(crate) fn new(search: [u8; 32], controls: &RequestControls, subject: &Arc<Subject>) -> Self {
        let controls = controls.with(|values| {
            values.paged = None;
            values.vlv = None;
            values.session_tracking = None;
            // They say all that once more.
            values.sent.clear();
        });
        Self { search, controls, subject: Arc::clone(subject) }
    }

    /// Whether both searches find the same in the same content. Two connections are never the same requester: rules may ask for addresses.
    fn is_as(&self, other: &Self) -> bool {
        let (own, others) = (&self.subject, &other.subject);
        self.search == other.search
            && Arc::ptr_eq(&own.peer, &others.peer)
            && (&own.dn, &own.real_dn, &own.outer_dn) == (&others.dn, &others.real_dn, &others.outer_dn)
            && (own.strength, &own.request) == (others.strength, &others.request)
            && self.controls == other.controls
    }
}

impl Entry {
    fn is_over(&self, now: Monotonic) -> bool {
        self.used.plus_seconds(KEPT_IDLE_SECONDS) <= now || self.made.plus_seconds(KEPT_AGE_SECONDS) <= now
    }
}

impl KeptLists {
    /// The list of a search that a client goes on with, whatever has changed in the entries below the base. `number`: how a virtual list
    /// view names it; pages of one search have one list.
    pub(crate) fn find(
        &self,
        key: &ListKey,
        made_with: MadeWith,
        number: Option<u64>,
        now: Monotonic,
    ) -> Option<KeptList> {
        let mut lists = self.lists();
        let is_it = |kept: &&mut Entry| {
            !kept.is_over(now)
                && number.is_none_or(|number| kept.number == number)
                && kept.made_with == made_with
                && kept.key.is_as(key)
        };
        let kept = lists.lists.iter_mut().find(is_it)?;
        kept.used = now;
        Some(KeptList { matches: Arc::clone(&kept.list), number: kept.number })
    }

    /// Keeps a list, if it is neither short nor too long; its number then.
    pub(crate) fn keep(
        &self,
        key: &Arc<ListKey>,
        made_with: MadeWith,
        (matches, bytes): (&Arc<Matches>, usize),
        now: Monotonic,
    ) -> Option<u64> {
        // They end outside the lock: a long one takes a while.
        let mut gone = Vec::new();
        let mut lists = self.lists();
        // What goes on from now on goes on with this one.
        gone.extend(lists.lists.extract_if(.., |kept| kept.is_over(now) || kept.key.is_as(key)));
        if matches.len() < KEPT_MATCHES_MIN || bytes > KEPT_BYTES_MAX {
            return None;
        }
        while lists.lists.len() >= KEPT_LISTS_MAX || lists.bytes() + bytes > KEPT_BYTES_MAX {
            let oldest = lists.lists.iter().enumerate().min_by_key(|(_, kept)| kept.used)?.0;
            gone.push(lists.lists.remove(oldest));
        }
        lists.last_number += 1;
        let number = lists.last_number;
        let (key, list) = (Arc::clone(key), Arc::clone(matches));
        lists.lists.push(Entry { key, list, number, bytes, made_with, made: now, used: now });
        Some(number)
    }

    /// Gives back the memory of lists that nobody asks for any more.
    pub(crate) fn drop_old(&self, now: Monotonic) {
        let gone: Vec<Entry> = self.lists().lists.extract_if(.., |kept| kept.is_over(now)).collect();
        drop(gone);
    }

    // A panic of another thread leaves whole lists.
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lists {
    fn bytes(&self) -> usize {
        self.lists.iter().map(|kept| kept.bytes).sum()
    }
}
