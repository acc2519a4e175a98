//! What a refresh from the log has put off: when more has changed than it keeps in mind, it goes over the log several times,
//! and each time tells what has changed up to a CSN. All of it together goes out in the order of CSNs, as in one pass.

use larix_engine::csn::Csn;
use larix_engine::entry::EntryId;
use larix_engine::search::synchronised::EntryIds;

use super::refresh::Changed;

/// Entries that a refresh from the log keeps in mind at once, in each database: some 240 bytes each. With more it goes over
/// the log again.
pub const ENTRIES_MAX: usize = 1 << 18;

/// Entries of a moved subtree, with its top, from which on a consumer of a part of the tree is not sent them one by one: it goes through
/// the content.
pub(super) const MOVED_MAX: usize = 1_000_000;

/// The entries of one database, a bit each.
#[derive(Debug, Default)]
pub(super) struct PassProgress {
    /// What was sent to the consumer.
    done: EntryIds,
    /// What is left for a later pass.
    deferred: EntryIds,
    /// What came into being or was renamed, of that: what is below needs it.
    named: EntryIds,
}

impl PassProgress {
    /// The next pass begins.
    pub(super) fn again(&mut self) {
        (self.deferred, self.named) = (EntryIds::default(), EntryIds::default());
    }

    pub(super) fn is_done(&self, id: EntryId) -> bool {
        self.done.contains(id)
    }

    pub(super) fn is_deferred(&self, id: EntryId) -> bool {
        self.deferred.contains(id)
    }

    /// Whether it is put off, and what is below may need it.
    pub(super) fn is_named(&self, id: EntryId) -> bool {
        self.named.contains(id)
    }

    pub(super) fn defer(&mut self, id: EntryId, is_named: bool) {
        self.deferred.insert(id);
        if is_named {
            self.named.insert(id);
        }
    }

    pub(super) fn done(&mut self, id: EntryId) {
        self.done.insert(id);
        self.deferred.remove(id);
        self.named.remove(id);
    }

    /// It was asked for before its turn, and is not there: what became of it is sent when its turn comes.
    pub(super) fn not_needed(&mut self, id: EntryId) {
        self.named.remove(id);
    }

    /// Puts off what has changed since; gives the names that entries have left of it.
    pub(super) fn defer_later(&mut self, changed: &mut Changed, high: Csn) -> Vec<(String, EntryId)> {
        let mut names = Vec::new();
        changed.retain(|id, change| {
            let stays = change.csn <= high;
            if !stays {
                self.defer(*id, change.named);
                names.extend(change.old_name.take().filter(|_| !change.deleted).map(|name| (name, *id)));
            }
            stays
        });
        names
    }
}

/// Up to which CSN `wanted` of these have changed.
pub(super) fn bound(mut csns: Vec<Csn>, wanted: usize) -> Option<Csn> {
    let at = wanted.max(1).min(csns.len()).checked_sub(1)?;
    Some(*csns.select_nth_unstable(at).1)
}

#[cfg(test)]
mod tests {
    use larix_engine::time::Timestamp;

    use super::*;

    #[test]
    fn so_many_fit_below_the_bound() {
        let csn = |time| Csn { time: Timestamp(time), count: 0, server_id: 1, modification: 0 };
        let check = |times: &[i64], wanted, expected: Option<i64>| {
            assert_eq!(bound(times.iter().map(|time| csn(*time)).collect(), wanted), expected.map(csn));
        };
        check(&[], 3, None);
        check(&[5], 3, Some(5));
        check(&[9, 1, 7, 3], 2, Some(3));
        check(&[9, 1, 7, 3], 0, Some(1));
        check(&[4, 4, 4, 9], 2, Some(4));
    }
}
