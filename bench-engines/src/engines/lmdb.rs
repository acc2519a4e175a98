//! LMDB as Larix uses it: through its own store, with the seam's cost.

use std::path::Path;

use anyhow::Context;
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use larix_store::{
    Direction, KeyRange, Snapshot, Store, TableId, TableKind, TableSpec, Transaction, WriteSet,
};

use super::{Durability, Engine, Record, Touched};

const TABLE: TableId = TableId(0);
const TABLES: [TableSpec; 1] = [TableSpec::new(TABLE, "records", TableKind::Ordered)];

pub(super) struct Lmdb {
    store: LmdbStore,
}

impl Lmdb {
    pub(super) fn open(folder: &Path, read_ahead: bool) -> anyhow::Result<Self> {
        let options = LmdbOptions { read_ahead, ..LmdbOptions::default() };
        Ok(Self { store: LmdbStore::open(folder, &TABLES, &options)? })
    }
}

impl Engine for Lmdb {
    fn put(&mut self, records: Vec<Record>, durability: Durability) -> anyhow::Result<()> {
        let mut changes = WriteSet::new();
        for (key, value) in records {
            changes.put(TABLE, &key, value);
        }
        let durability = match durability {
            Durability::Synced => larix_store::Durability::Sync,
            Durability::Unsynced => larix_store::Durability::NoSync,
        };
        self.store.transaction()?.commit(&changes, durability)?;
        Ok(())
    }

    fn get(&self, keys: &[Vec<u8>], touched: &mut Touched) -> anyhow::Result<()> {
        let snapshot = self.store.snapshot()?;
        for key in keys {
            touched.touch(&snapshot.get(TABLE, key)?.context("a key is lost")?);
        }
        Ok(())
    }

    fn scan(&self, limit: u64, touched: &mut Touched) -> anyhow::Result<()> {
        let snapshot = self.store.snapshot()?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        for record in snapshot.scan(TABLE, KeyRange::all(), Direction::Forward)?.take(limit) {
            touched.touch(&record?.1);
        }
        Ok(())
    }

    fn sync(&mut self) -> anyhow::Result<()> {
        Ok(self.store.sync()?)
    }
}
