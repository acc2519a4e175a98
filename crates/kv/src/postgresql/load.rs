//! Bulk load: one transaction, so that what ends it leaves nothing.

use std::time::Duration;

use super::link::Lease;
use crate::engine::{Load, LoadFault, LoadedRow};
use crate::error::Fault;

/// How long one statement of a load may take: to empty a table is one.
const DEADLINE: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Loading<'p> {
    lease: Lease<'p>,
    /// Has others hear of it.
    telling: String,
    epoch: i64,
    version: u64,
    /// Number of a table, and its last key.
    last: Vec<(u8, Vec<u8>)>,
}

impl<'p> Loading<'p> {
    /// None where the newest commit is of a later epoch.
    pub(super) fn begin(
        (mut lease, telling): (Lease<'p>, String),
        epoch: i64,
        tables: &[u8],
    ) -> Result<Option<Self>, Fault> {
        lease.in_transaction();
        let numbers: Vec<i16> = tables.iter().copied().map(i16::from).collect();
        let (newest, ends) = lease.call_within(DEADLINE, |link| async move {
            link.client.batch_execute("BEGIN; SET LOCAL statement_timeout = 0").await?;
            let newest = link.client.query_one(&link.statements.outlook, &[]).await?;
            let ends = link.client.query(&link.statements.ends, &[&numbers]).await?;
            Ok((newest, ends))
        })?;
        let version = u64::try_from(newest.try_get::<_, i64>(0)?).unwrap_or(0);
        if newest.try_get::<_, i64>(1)? > epoch {
            return Ok(None);
        }
        let mut last = Vec::with_capacity(ends.len());
        for row in &ends {
            let table = u8::try_from(row.try_get::<_, i16>(0)?).unwrap_or(u8::MAX);
            last.push((table, row.try_get(1)?));
        }
        Ok(Some(Self { lease, telling, epoch, version, last }))
    }
}

impl Load for Loading<'_> {
    fn version(&self) -> u64 {
        self.version
    }

    fn last(&self, table: u8) -> Option<&[u8]> {
        self.last.iter().find(|(number, _)| *number == table).map(|(_, key)| &**key)
    }

    fn clear(&mut self, table: u8) -> Result<(), Fault> {
        let number = i16::from(table);
        self.lease.call_within(DEADLINE, |link| async move {
            link.client.execute(&link.statements.clear, &[&number]).await?;
            Ok(())
        })
    }

    fn append(&mut self, rows: Vec<LoadedRow>) -> Result<(), Fault> {
        let (mut tables, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (table, key, value) in rows {
            tables.push(i16::from(table));
            keys.push(key);
            values.push(value);
        }
        self.lease.call_within(DEADLINE, |link| async move {
            link.client.execute(&link.statements.append, &[&tables, &keys, &values]).await?;
            Ok(())
        })
    }

    fn finish(self: Box<Self>, attempt: &[u8]) -> Result<(), LoadFault> {
        let Self { mut lease, telling, epoch, version, .. } = *self;
        let (attempt, continued) = (attempt.to_vec(), i64::try_from(version).unwrap_or(i64::MAX));
        let row = lease.call_within(DEADLINE, |link| async move {
            Ok(link.client.query_opt(&link.statements.loaded, &[&continued, &epoch, &attempt]).await?)
        });
        if row.map_err(LoadFault::Before)?.is_none() {
            return Err(LoadFault::Fenced);
        }
        lease
            .call_within(DEADLINE, |link| async move {
                Ok(link.client.batch_execute(&format!("{telling}; COMMIT")).await?)
            })
            .map_err(LoadFault::Within)?;
        lease.transaction_ended();
        if lease.was_cut_short() { Err(LoadFault::Within(Fault::Unreplicated)) } else { Ok(()) }
    }
}
