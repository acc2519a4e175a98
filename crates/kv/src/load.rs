//! Bulk load: what ends it leaves nothing.

use std::collections::BTreeMap;

use larix_store::ordered::{check_key, check_posting_key};
use larix_store::posting::BlockBuilder;
use larix_store::{CommitError, CommitId, Loader, TableId, TableKind};

use crate::cache::Commit;
use crate::engine::{Load, LoadFault, LoadedRow, Sizes};
use crate::error::{Fault, Verdict};
use crate::store::KvStore;

/// Rows are sent when they come to this many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// What a row counts beside its key and value.
const ROW_BYTES: usize = 32;

/// A bulk load. Dropped unfinished it leaves no trace.
#[derive(Debug)]
pub struct KvLoader<'s> {
    store: &'s KvStore,
    load: Box<dyn Load + 's>,
    builders: Vec<BlockBuilder>,
    rows: Rows,
    /// What is put together with the end.
    last: BTreeMap<(u8, Vec<u8>), Vec<u8>>,
}

/// What is not sent yet, and where each table ends.
#[derive(Debug)]
struct Rows {
    waiting: Vec<LoadedRow>,
    bytes: usize,
    sizes: Sizes,
    /// By the table's position.
    last: Vec<Option<Vec<u8>>>,
}

impl<'s> KvLoader<'s> {
    pub(crate) fn begin(store: &'s KvStore) -> Result<Self, CommitError> {
        let epoch = store.epoch()?;
        let specs = store.catalog.specs().iter();
        let numbers: Vec<u8> = specs.map(|spec| store.number(spec.id)).collect::<Result<_, _>>()?;
        let load = store.engine.load(epoch, &numbers).map_err(Fault::into_commit)?;
        let load = load.ok_or(CommitError::Fenced)?;
        let last = numbers.iter().map(|number| load.last(*number).map(<[u8]>::to_vec)).collect();
        let builders = numbers.iter().map(|_| BlockBuilder::default()).collect();
        let rows = Rows { waiting: Vec::new(), bytes: 0, sizes: store.sizes.clone(), last };
        Ok(Self { store, load, builders, rows, last: BTreeMap::new() })
    }

    fn position(&self, table: TableId) -> Result<usize, CommitError> {
        self.store.catalog.position(table).ok_or(CommitError::WrongTable(table))
    }

    fn send(&mut self) -> Result<(), CommitError> {
        self.rows.bytes = 0;
        let rows = std::mem::take(&mut self.rows.waiting);
        if rows.is_empty() {
            return Ok(());
        }
        self.load.append(rows).map_err(Fault::into_commit)
    }

    fn send_if_many(&mut self) -> Result<(), CommitError> {
        if self.rows.bytes >= BATCH_BYTES { self.send() } else { Ok(()) }
    }
}

impl Rows {
    fn push(
        &mut self,
        table: TableId,
        number: u8,
        position: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), CommitError> {
        self.sizes.check(value)?;
        let Some(last) = self.last.get_mut(position) else { return Err(CommitError::WrongTable(table)) };
        if last.as_deref().is_some_and(|last| last >= key) {
            return Err(CommitError::Unordered { table });
        }
        *last = Some(key.to_vec());
        self.waiting.push((number, key.to_vec(), value.to_vec()));
        self.bytes += ROW_BYTES + key.len() + value.len();
        Ok(())
    }
}

impl Loader for KvLoader<'_> {
    fn clear(&mut self, table: TableId) -> Result<(), CommitError> {
        let position = self.position(table)?;
        // What was appended before it goes with it.
        self.send()?;
        self.load.clear(self.store.number(table)?).map_err(Fault::into_commit)?;
        if let Some(last) = self.rows.last.get_mut(position) {
            *last = None;
        }
        Ok(())
    }

    fn append(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        check_key(&self.store.catalog, table, key)?;
        let (position, number) = (self.position(table)?, self.store.number(table)?);
        self.rows.push(table, number, position, key, value)?;
        self.send_if_many()
    }

    fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Result<(), CommitError> {
        check_key(&self.store.catalog, table, key)?;
        self.rows.sizes.check(value)?;
        self.last.insert((self.store.number(table)?, key.to_vec()), value.to_vec());
        Ok(())
    }

    fn append_posting(&mut self, table: TableId, key: &[u8], id: u64) -> Result<(), CommitError> {
        check_posting_key(&self.store.catalog, table, key)?;
        let (position, number) = (self.position(table)?, self.store.number(table)?);
        let Some(builder) = self.builders.get_mut(position) else {
            return Err(CommitError::WrongTable(table));
        };
        let rows = &mut self.rows;
        let mut emit = |key: &[u8], value: &[u8]| rows.push(table, number, position, key, value);
        if !builder.push(key, id, &mut emit)? {
            return Err(CommitError::Unordered { table });
        }
        self.send_if_many()
    }

    fn finish(mut self) -> Result<CommitId, CommitError> {
        for (position, spec) in self.store.catalog.specs().iter().enumerate() {
            if spec.kind != TableKind::Postings {
                continue;
            }
            let number = self.store.number(spec.id)?;
            let Some(builder) = self.builders.get_mut(position) else { continue };
            let rows = &mut self.rows;
            builder
                .finish(&mut |key: &[u8], value: &[u8]| rows.push(spec.id, number, position, key, value))?;
            self.send_if_many()?;
        }
        self.send()?;
        let last = std::mem::take(&mut self.last);
        self.rows.waiting = last.into_iter().map(|((table, key), value)| (table, key, value)).collect();
        self.send()?;
        let Self { store, load, .. } = self;
        let (attempt, version) = (store.new_attempt(), load.version());
        match load.finish(&attempt) {
            Ok(()) => {
                let done: Commit = (version + 1, None);
                store.committed(version + 1, &attempt, |cache| cache.advance(vec![done]));
                // Where others committed before the load began, the next view hears of all of it.
                store.doubt();
                Ok(CommitId(version + 1))
            }
            Err(LoadFault::Fenced) => Err(CommitError::Fenced),
            #[cfg(feature = "postgresql")]
            Err(LoadFault::Before(fault)) if matches!(fault.verdict(), Verdict::Conflict) => {
                Err(store.conflict())
            }
            #[cfg(feature = "postgresql")]
            Err(LoadFault::Before(fault)) => Err(fault.into_commit()),
            Err(LoadFault::Within(fault)) => match fault.verdict() {
                Verdict::Conflict => Err(store.conflict()),
                Verdict::Full => Err(CommitError::Full),
                Verdict::Failed | Verdict::Unknown => Err(store.unanswered(version + 1, attempt)),
            },
        }
    }
}
