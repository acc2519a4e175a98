//! What keeps servers apart that write one access log by turns: a row of the log's database that each commit of records counts up.
//!
//! A commit is made from what the thread has read, and may be carried out late: behind records of another server, which had the right to
//! write in between. It would record some changes twice, and take back what is said of gaps. So each commit names the row that it
//! continues, and is refused where that is another one.

use larix_engine::Fault;
use larix_engine::tables::{META, meta};
use larix_engine::time::Timestamp;
use larix_engine::write::Recording;
use larix_store::Snapshot;

/// The commits of records that a log has, and what the next one continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// How many there are.
    number: u64,
    /// The name of the last record of a change: servers have clocks of their own, and these names rise all the same.
    pub(super) last_start: Timestamp,
    /// As it is stored; `None`: nothing was recorded yet.
    row: Option<Vec<u8>>,
}

impl Turn {
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn read<N: Snapshot>(snapshot: &N) -> Result<Self, Fault> {
        let row = snapshot.get(META, meta::ACCESS_LOG_TURN)?.map(std::borrow::Cow::into_owned);
        let fields = || {
            let (number, start) = row.as_ref()?.split_first_chunk::<8>()?;
            Some((u64::from_be_bytes(*number), i64::from_be_bytes(start.try_into().ok()?)))
        };
        // One that cannot be read is written anew: it is compared as it is.
        let (number, start) = fields().unwrap_or_default();
        Ok(Self { number, last_start: Timestamp(start), row })
    }

    /// Has a commit continue this one. Answers what the next one is to continue.
    pub(super) fn take(&self, recording: &mut Recording, last_start: Timestamp) -> Self {
        let number = self.number.wrapping_add(1);
        let row = [number.to_be_bytes(), last_start.0.to_be_bytes()].concat();
        recording.expected = Some((meta::ACCESS_LOG_TURN.to_vec(), self.row.clone()));
        recording.marks.push((meta::ACCESS_LOG_TURN.to_vec(), row.clone()));
        Self { number, last_start, row: Some(row) }
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::tables::TABLES;
    use larix_store::memory::MemoryStore;
    use larix_store::{Durability, Store, Transaction, WriteSet};

    use super::*;

    fn recording() -> Recording {
        let schema = larix_schema::SchemaBuilder::system().build();
        Recording::new(schema.parse_dn("cn=log").unwrap(), "cn=log".to_owned())
    }

    #[test]
    fn a_commit_continues_the_one_that_was_read() {
        let store = MemoryStore::new(&TABLES).unwrap();
        let read = || Turn::read(&store.snapshot().unwrap()).unwrap();
        let write = |recording: &Recording| {
            let mut set = WriteSet::new();
            recording.marks.iter().for_each(|(key, value)| set.put(META, key, value.clone()));
            store.transaction().unwrap().commit(&set, Durability::Sync).unwrap();
        };
        assert_eq!(read(), Turn::default());
        let (mut one, mut late) = (recording(), recording());
        let next = read().take(&mut one, Timestamp(7));
        // Made from the same, it would continue what is no longer there.
        let _ = read().take(&mut late, Timestamp(6));
        assert_eq!(one.expected, Some((meta::ACCESS_LOG_TURN.to_vec(), None)));
        write(&one);
        assert_eq!(read(), next);
        assert_eq!((next.number, next.last_start), (1, Timestamp(7)));
        assert_ne!(late.expected.unwrap().1, next.row);
        // One that takes no record away from another, as of a purge, is another one all the same.
        let mut two = recording();
        let behind = next.take(&mut two, Timestamp(7));
        assert_eq!(two.expected, Some((meta::ACCESS_LOG_TURN.to_vec(), next.row.clone())));
        assert_ne!(behind.row, next.row);
        // A row that is damaged holds nobody up.
        let mut set = WriteSet::new();
        set.put(META, meta::ACCESS_LOG_TURN, b"x".to_vec());
        store.transaction().unwrap().commit(&set, Durability::Sync).unwrap();
        let mut three = recording();
        assert_eq!(read().take(&mut three, Timestamp(9)).last_start, Timestamp(9));
        assert_eq!(three.expected, Some((meta::ACCESS_LOG_TURN.to_vec(), Some(b"x".to_vec()))));
    }
}
