//! Bulk load: gathered here, and then one large commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::commits::Change;
use super::wire::{Op, Range, Txn};
use super::{COMMIT_BYTES_MAX, Etcd};
use crate::engine::{Load, LoadFault, LoadedRow, Proposal, RowKey};
use crate::error::Fault;

#[derive(Debug)]
pub(super) struct Loading<'e> {
    etcd: &'e Etcd,
    epoch: u64,
    version: u64,
    /// Number of a table, and its last key.
    last: Vec<(u8, Vec<u8>)>,
    clears: Vec<u8>,
    rows: BTreeMap<RowKey, Arc<[u8]>>,
    bytes: usize,
}

impl<'e> Loading<'e> {
    /// None where the newest commit is of a later epoch.
    pub(super) fn begin(etcd: &'e Etcd, epoch: u64, tables: &[u8]) -> Result<Option<Self>, Fault> {
        let head = etcd.settled_head()?;
        if head.epoch > epoch {
            return Ok(None);
        }
        let (shared, tables) = (Arc::clone(&etcd.shared), tables.to_vec());
        let last = etcd.run(async move {
            let last = |table: &u8| {
                let (key, end) = shared.keys.table(*table);
                Op::Range(Range { key, end, limit: 1, backward: true, keys_only: true, ..Range::default() })
            };
            shared.client.trip();
            let done = shared.client.txn(&Txn::of(tables.iter().map(last).collect())).await?.done;
            let mut ends = Vec::new();
            for (table, done) in tables.into_iter().zip(done) {
                if let Some(found) = done.found().into_iter().next() {
                    ends.push((table, shared.keys.row_of(found.key)?));
                }
            }
            Ok(ends)
        })?;
        let (clears, rows) = (Vec::new(), BTreeMap::new());
        Ok(Some(Self { etcd, epoch, version: head.version, last, clears, rows, bytes: 0 }))
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
        self.rows.retain(|(own, _), _| *own != table);
        if !self.clears.contains(&table) {
            self.clears.push(table);
        }
        Ok(())
    }

    fn append(&mut self, rows: Vec<LoadedRow>) -> Result<(), Fault> {
        for (table, key, value) in rows {
            self.bytes += key.len() + value.len();
            self.rows.insert((table, key.into()), value.into());
        }
        if self.bytes > COMMIT_BYTES_MAX {
            let most = COMMIT_BYTES_MAX >> 20;
            return Err(Fault::TooLarge(format!(
                "a load of more than the {most} MB that one commit in etcd may have"
            )));
        }
        Ok(())
    }

    fn finish(self: Box<Self>, attempt: &[u8]) -> Result<(), LoadFault> {
        let Self { etcd, epoch, version, clears, rows, bytes, .. } = *self;
        let deadline = etcd.deadline_for(rows.len(), bytes);
        let proposal = Proposal {
            version,
            continues: None,
            epoch,
            attempt: attempt.to_vec(),
            // It changes too much to list.
            keys: None,
            deletes: Vec::new(),
            puts: rows.into_iter().collect(),
            trimmed: 0,
        };
        let shared = Arc::clone(&etcd.shared);
        let done = etcd.run_within(deadline, async move { shared.commit(Change { proposal, clears }).await });
        match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(LoadFault::Fenced),
            Err(fault) => Err(LoadFault::Within(fault)),
        }
    }
}
