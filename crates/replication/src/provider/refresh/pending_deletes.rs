//! Deletes that a refresh has to send: in the order of CSNs, or earlier if an entry that is sent has taken the name.
//!
//! **Only names of deletes that have not been sent yet are kept.**

use std::collections::BTreeMap;

use larix_engine::csn::Csn;
use uuid::Uuid;

/// One delete: its time and its entry.
pub(super) type Tombstone = (Csn, Uuid);

/// The deletes that have not been sent yet.
#[derive(Debug, Default)]
pub(super) struct PendingDeletes {
    /// With the entry's former name, if another entry may have it now.
    tombstones: BTreeMap<Tombstone, Option<String>>,
    names: BTreeMap<String, Tombstone>,
}

impl PendingDeletes {
    pub(super) fn insert(&mut self, tombstone: Tombstone, name: Option<String>) {
        if let Some(name) = &name {
            self.names.insert(name.clone(), tombstone);
        }
        self.tombstones.insert(tombstone, name);
    }

    /// The first, if it came before this; `None`: whenever it came.
    pub(super) fn first(&self, before: Option<Csn>) -> Option<Tombstone> {
        let (&tombstone, _) = self.tombstones.first_key_value()?;
        before.is_none_or(|before| tombstone.0 < before).then_some(tombstone)
    }

    /// The delete of the entry that had this name.
    pub(super) fn named(&self, name: &str) -> Option<Tombstone> {
        self.names.get(name).copied()
    }

    pub(super) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// The delete has been sent.
    pub(super) fn note_sent(&mut self, tombstone: Tombstone) {
        if let Some(name) = self.tombstones.remove(&tombstone).flatten() {
            self.names.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::time::Timestamp;

    use super::*;

    fn tombstone(time: i64, uuid: u128) -> Tombstone {
        (Csn { time: Timestamp(time), count: 0, server_id: 1, modification: 0 }, Uuid::from_u128(uuid))
    }

    #[test]
    fn tombstones_are_sent_in_order_and_names_go_with_them() {
        let mut deletes = PendingDeletes::default();
        let (early, late) = (tombstone(1, 9), tombstone(5, 2));
        deletes.insert(late, Some("cn=late".to_owned()));
        deletes.insert(early, None);
        for (before, first) in [
            (None, Some(early)),
            (Some(0), None),
            (Some(1), None),
            (Some(2), Some(early)),
            (Some(9), Some(early)),
        ] {
            assert_eq!(deletes.first(before.map(|time| tombstone(time, 0).0)), first, "before {before:?}");
        }
        assert_eq!((deletes.named("cn=late"), deletes.named("cn=early")), (Some(late), None));
        deletes.note_sent(early);
        assert!(deletes.has_names());
        assert_eq!((deletes.first(None), deletes.first(Some(late.0))), (Some(late), None));
        deletes.note_sent(late);
        assert_eq!((deletes.first(None), deletes.named("cn=late"), deletes.has_names()), (None, None, false));
    }
}
