//! Bulk load: one transaction of the engine, so that what ends it leaves nothing.

use std::time::Duration;

use larix_store::ordered::{check_key, check_posting_key};
use larix_store::posting::BlockBuilder;
use larix_store::{CommitError, CommitId, Loader, TableId, TableKind};

use crate::cache::Commit;
use crate::commit::VALUE_BYTES_MAX;
use crate::error::{Fault, Verdict};
use crate::link::Lease;
use crate::store::KvStore;

/// Rows are sent when they come to this many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// What a row counts beside its key and value.
const ROW_BYTES: usize = 32;
/// How long one statement of a load may take: to empty a table is one.
const DEADLINE: Duration = Duration::from_secs(3600);

/// A bulk load. Dropped unfinished it leaves no trace.
#[derive(Debug)]
pub struct KvLoader<'s> {
    store: &'s KvStore,
    lease: Lease<'s>,
    epoch: i64,
    version: u64,
    builders: Vec<BlockBuilder>,
    rows: Rows,
}

/// What is not sent yet, and where each table ends.
#[derive(Debug)]
struct Rows {
    tables: Vec<i16>,
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    bytes: usize,
    /// By the table's position.
    last: Vec<Option<Vec<u8>>>,
}

impl<'s> KvLoader<'s> {
    pub(crate) fn begin(store: &'s KvStore) -> Result<Self, CommitError> {
        let own = store.epoch()?;
        let epoch = i64::try_from(own).map_err(|_| CommitError::Fenced)?;
        let mut lease = store.pool.lease().map_err(Fault::into_commit)?;
        lease.in_transaction();
        let specs = store.catalog.specs().iter();
        let numbers: Vec<i16> =
            specs.map(|spec| store.number(spec.id).map(i16::from)).collect::<Result<_, _>>()?;
        let asked = numbers.clone();
        let (newest, ends) = lease
            .call_within(DEADLINE, |link| async move {
                link.client.batch_execute("BEGIN; SET LOCAL statement_timeout = 0").await?;
                let newest = link.client.query_one(&link.statements.outlook, &[]).await?;
                let ends = link.client.query(&link.statements.ends, &[&asked]).await?;
                Ok((newest, ends))
            })
            .map_err(Fault::into_commit)?;
        let fault = |error| Fault::Engine(error).into_commit();
        let version = u64::try_from(newest.try_get::<_, i64>(0).map_err(fault)?).unwrap_or(0);
        if newest.try_get::<_, i64>(1).map_err(fault)? > epoch {
            return Err(CommitError::Fenced);
        }
        let mut last = vec![None; numbers.len()];
        for row in &ends {
            let number: i16 = row.try_get(0).map_err(fault)?;
            let place = numbers.iter().position(|own| *own == number);
            if let Some(slot) = place.and_then(|place| last.get_mut(place)) {
                *slot = Some(row.try_get(1).map_err(fault)?);
            }
        }
        let builders = numbers.iter().map(|_| BlockBuilder::default()).collect();
        let rows = Rows { tables: Vec::new(), keys: Vec::new(), values: Vec::new(), bytes: 0, last };
        Ok(Self { store, lease, epoch, version, builders, rows })
    }

    fn position(&self, table: TableId) -> Result<usize, CommitError> {
        self.store.catalog.position(table).ok_or(CommitError::WrongTable(table))
    }

    fn send(&mut self) -> Result<(), CommitError> {
        let (tables, keys, values) = self.rows.take();
        if tables.is_empty() {
            return Ok(());
        }
        self.lease
            .call_within(DEADLINE, |link| async move {
                link.client.execute(&link.statements.append, &[&tables, &keys, &values]).await?;
                Ok(())
            })
            .map_err(Fault::into_commit)
    }

    fn send_if_many(&mut self) -> Result<(), CommitError> {
        if self.rows.bytes >= BATCH_BYTES { self.send() } else { Ok(()) }
    }
}

impl Rows {
    fn take(&mut self) -> (Vec<i16>, Vec<Vec<u8>>, Vec<Vec<u8>>) {
        self.bytes = 0;
        (std::mem::take(&mut self.tables), std::mem::take(&mut self.keys), std::mem::take(&mut self.values))
    }

    fn push(
        &mut self,
        table: TableId,
        number: u8,
        position: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), CommitError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(CommitError::ValueLength { table, bytes: value.len() });
        }
        let Some(last) = self.last.get_mut(position) else { return Err(CommitError::WrongTable(table)) };
        if last.as_deref().is_some_and(|last| last >= key) {
            return Err(CommitError::Unordered { table });
        }
        *last = Some(key.to_vec());
        self.tables.push(i16::from(number));
        self.keys.push(key.to_vec());
        self.values.push(value.to_vec());
        self.bytes += ROW_BYTES + key.len() + value.len();
        Ok(())
    }
}

impl Loader for KvLoader<'_> {
    fn clear(&mut self, table: TableId) -> Result<(), CommitError> {
        let position = self.position(table)?;
        let number = i16::from(self.store.number(table)?);
        self.lease
            .call_within(DEADLINE, |link| async move {
                link.client.execute(&link.statements.clear, &[&number]).await?;
                Ok(())
            })
            .map_err(Fault::into_commit)?;
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
        let Self { store, mut lease, epoch, version, .. } = self;
        let attempt = store.new_attempt();
        let (sent, continued) = (attempt.clone(), i64::try_from(version).unwrap_or(i64::MAX));
        let row = lease.call_within(DEADLINE, |link| async move {
            Ok(link.client.query_opt(&link.statements.loaded, &[&continued, &epoch, &sent]).await?)
        });
        match row {
            Ok(Some(_)) => {}
            Ok(None) => return Err(CommitError::Fenced),
            Err(fault) if matches!(fault.verdict(), Verdict::Conflict) => return Err(store.conflict()),
            Err(fault) => return Err(fault.into_commit()),
        }
        let made =
            lease.call_within(DEADLINE, |link| async move { Ok(link.client.batch_execute("COMMIT").await?) });
        match made {
            Ok(()) => {
                lease.transaction_ended();
                let done: Commit = (version + 1, None);
                store.committed(version + 1, &attempt, |cache| cache.advance(vec![done]));
                // Where others committed before the load began, the next view hears of all of it.
                store.doubt();
                Ok(CommitId(version + 1))
            }
            Err(fault) => match fault.verdict() {
                Verdict::Conflict => Err(store.conflict()),
                Verdict::Full => Err(CommitError::Full),
                Verdict::Failed | Verdict::Unknown => Err(store.unanswered(version + 1, attempt)),
            },
        }
    }
}
