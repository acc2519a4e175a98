//! fjall: a log-structured merge tree in Rust; large values apart from the keys.

use std::path::Path;

use anyhow::Context;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, PersistMode, Readable};

use super::{Durability, Engine, OpenOptions, Record, Touched};

pub(super) struct Fjall {
    database: Database,
    records: Keyspace,
}

impl Fjall {
    pub(super) fn open(folder: &Path, options: &OpenOptions) -> anyhow::Result<Self> {
        let database = Database::builder(folder.join("fjall")).cache_size(options.cache_bytes).open()?;
        let large = options.large_values;
        let records = database.keyspace("records", || {
            KeyspaceCreateOptions::default().with_kv_separation(large.then(KvSeparationOptions::default))
        })?;
        Ok(Self { database, records })
    }
}

impl Engine for Fjall {
    fn put(&mut self, records: Vec<Record>, durability: Durability) -> anyhow::Result<()> {
        let mode = match durability {
            Durability::Synced => PersistMode::SyncAll,
            Durability::Unsynced => PersistMode::Buffer,
        };
        let mut batch = self.database.batch().durability(Some(mode));
        for (key, value) in records {
            batch.insert(&self.records, key, value);
        }
        Ok(batch.commit()?)
    }

    fn get(&self, keys: &[Vec<u8>], touched: &mut Touched) -> anyhow::Result<()> {
        let snapshot = self.database.snapshot();
        for key in keys {
            touched.touch(&snapshot.get(&self.records, key)?.context("a key is lost")?);
        }
        Ok(())
    }

    fn scan(&self, limit: u64, touched: &mut Touched) -> anyhow::Result<()> {
        let snapshot = self.database.snapshot();
        for record in snapshot.iter(&self.records).take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            touched.touch(&record.value()?);
        }
        Ok(())
    }

    fn sync(&mut self) -> anyhow::Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        // Or the journal would be read into memory at the next open.
        self.records.rotate_memtable_and_wait()?;
        self.sync()
    }
}
