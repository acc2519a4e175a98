//! When the writer makes a dictionary for new records: each time that a database has doubled, a part of the work with each group of
//! changes.

use std::sync::Arc;
use std::task::Poll;

use larix_store::Snapshot;

use crate::codec::{Dictionaries, Dictionary, SAMPLE_RECORDS, Sample, Training};
use crate::entry::EntryId;
use crate::fault::Fault;
use crate::tables::{ENTRIES, META, meta};

/// Records that a running server makes a dictionary of: half as many as a load takes.
const SAMPLE_SERVING: usize = SAMPLE_RECORDS / 2;

/// Entry ids at which the first dictionary is made.
const FIRST: u64 = 2_048;

/// Bytes of records that are gone through for a change, and for all changes of a group at most: a third of a millisecond and a whole
/// one, about. Each record is gone through some five times.
const CHANGE_BYTES: usize = 32 << 10;
const GROUP_BYTES: usize = 4 * CHANGE_BYTES;
/// What a look-up of an entry counts as, beside its record.
const LOOK_UP_BYTES: usize = 256;

/// Which dictionary a writer makes, and how far it is.
#[derive(Debug)]
pub(crate) struct Trainer {
    /// The entry id from which on records are looked at for a new dictionary.
    next: u64,
    /// What [`sampled`] answers.
    sampled: u64,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Resting,
    Gathering(SampleReader),
    Making(Training),
    /// Until it is stored, or until a group was committed where nothing came of it.
    Made(Option<Arc<Dictionary>>),
}

impl Trainer {
    /// `last_entry_id` is the last id that the database has given out. `sampled` is what [`sampled`] answers for the database: until
    /// the ids have doubled from there, the newer half of the entries is mostly the same.
    pub(crate) fn new(has_dictionary: bool, last_entry_id: u64, sampled: u64) -> Self {
        let next = match has_dictionary {
            true => next_after(last_entry_id, sampled),
            false => FIRST,
        };
        Self { next, sampled, work: Work::Resting }
    }

    /// The number that [`Self::new`] got.
    pub(crate) fn sampled(&self) -> u64 {
        self.sampled
    }

    /// Whether a dictionary is in the making.
    pub(crate) fn is_working(&self) -> bool {
        matches!(self.work, Work::Gathering(_) | Work::Making(_))
    }

    /// Does a part of the work, in proportion to a group of so many changes. Answers a dictionary that the group has to store, again if
    /// the commit of the group before it failed.
    ///
    /// # Errors
    /// A record that cannot be read.
    pub(crate) fn along<V: Snapshot>(
        &mut self,
        snapshot: &V,
        dictionaries: &Dictionaries,
        last_entry_id: u64,
        changes: usize,
    ) -> Result<Option<Arc<Dictionary>>, Fault> {
        if last_entry_id < self.next {
            return Ok(None);
        }
        let bytes = CHANGE_BYTES.saturating_mul(changes.max(1)).min(GROUP_BYTES);
        match &mut self.work {
            Work::Resting => self.work = Work::Gathering(SampleReader::new(last_entry_id)),
            Work::Gathering(gathering) => {
                if let Some(sample) = gathering.go_on(snapshot, dictionaries, bytes)? {
                    let training = Training::new(sample, dictionaries.last().cloned());
                    self.work = training.map_or(Work::Made(None), Work::Making);
                }
            }
            Work::Making(training) => {
                if let Poll::Ready(dictionary) = training.step(bytes) {
                    self.work = Work::Made(dictionary.map(Arc::new));
                }
            }
            Work::Made(_) => {}
        }
        Ok(match &self.work {
            Work::Made(dictionary) => dictionary.clone(),
            _ => None,
        })
    }

    /// A group was committed, with a dictionary if one was made.
    pub(crate) fn committed(&mut self, last_entry_id: u64) {
        if matches!(self.work, Work::Made(_)) {
            *self = Self::new(true, last_entry_id, self.sampled);
        }
    }
}

/// Reads a sample of the newer half of the entries.
#[derive(Debug)]
struct SampleReader {
    next: u64,
    last: u64,
    step: u64,
    sample: Sample,
}

impl SampleReader {
    fn new(last_entry_id: u64) -> Self {
        let first = last_entry_id / 2 + 1;
        let step = ((last_entry_id - first + 1) / SAMPLE_SERVING as u64).max(1);
        Self { next: first, last: last_entry_id, step, sample: Sample::default() }
    }

    /// Reads about so many bytes of records. Answers the sample when it is whole.
    fn go_on<V: Snapshot>(
        &mut self,
        snapshot: &V,
        dictionaries: &Dictionaries,
        bytes: usize,
    ) -> Result<Option<Sample>, Fault> {
        let mut left = bytes;
        while left > 0 {
            if self.next > self.last {
                return Ok(Some(std::mem::take(&mut self.sample)));
            }
            let id = EntryId(self.next);
            self.next = self.next.saturating_add(self.step);
            let mut taken = LOOK_UP_BYTES;
            if let Some(stored) = snapshot.get(ENTRIES, &id.to_bytes())? {
                let record = dictionaries.unpacked(snapshot, id, stored)?;
                self.sample.add(&record);
                taken += record.len();
            }
            left = left.saturating_sub(taken);
        }
        Ok(None)
    }
}

/// The last of the entries that a load made the database's dictionary of; 0 if it made none.
///
/// # Errors
/// A store that cannot be read, or a damaged row.
pub(crate) fn sampled<V: Snapshot>(snapshot: &V) -> Result<u64, Fault> {
    let Some(row) = snapshot.get(META, meta::DICTIONARY_SAMPLED)? else { return Ok(0) };
    let damaged = Fault::Damaged { what: "the number of entries that a dictionary was made of" };
    EntryId::from_prefix(&row).map(|id| id.0).ok_or(damaged)
}

/// The entry id at which a dictionary is to be made next, after this one: the ids double from the sample of a load on, and from
/// [`FIRST`] on where no load made a dictionary (0).
fn next_after(last_entry_id: u64, sampled: u64) -> u64 {
    let mut next = if sampled == 0 { FIRST } else { sampled };
    while next <= last_entry_id || next < FIRST {
        next = next.saturating_mul(2);
    }
    next
}

#[cfg(test)]
mod tests {
    use larix_store::Store;
    use larix_store::memory::MemoryStore;

    use super::*;
    use crate::tables::TABLES;

    #[test]
    fn training_comes_with_each_doubling() {
        for (last, next) in [(0, 2_048), (2_047, 2_048), (2_048, 4_096), (200_000, 262_144)] {
            assert_eq!(next_after(last, 0), next, "{last}");
        }
        assert_eq!(next_after(u64::MAX - 1, 0), u64::MAX);
    }

    /// A load makes its dictionary of all that a small database has: there is nothing new to learn before that has doubled.
    #[test]
    fn the_sample_of_a_load_has_to_double_first() {
        let store = MemoryStore::new(&TABLES).unwrap();
        let snapshot = store.snapshot().unwrap();
        for (has_dictionary, last, sampled, begins) in [
            (true, 2_004, 0, 2_048),
            (true, 2_004, 2_004, 4_008),
            (true, 4_007, 2_004, 4_008),
            // No second one at 4,096, of the same half: neither a running server makes it, nor one that was started anew.
            (true, 4_050, 2_004, 8_016),
            (true, 8_100, 2_004, 16_032),
            (true, 300, 300, 2_400),
            // Most of it came behind the sample.
            (true, 200_000, 4_096, 262_144),
            (false, 100, 0, 2_048),
        ] {
            let mut trainer = Trainer::new(has_dictionary, last, sampled);
            for (at, works) in [(begins - 1, false), (begins, true)] {
                let made = trainer.along(&snapshot, &Dictionaries::default(), at, 1).unwrap();
                let found = (made.is_some(), trainer.is_working());
                assert_eq!(found, (false, works), "{last} {sampled} at {at}");
            }
        }
    }
}
