//! redb: a B-tree with copy on write, in Rust, with a page cache of its own.

use std::path::Path;

use ::redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use anyhow::Context;

use super::{Durability, Engine, OpenOptions, Record, Touched};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

pub(super) struct Redb {
    database: Database,
}

impl Redb {
    pub(super) fn open(folder: &Path, options: &OpenOptions) -> anyhow::Result<Self> {
        let cache = usize::try_from(options.cache_bytes)?;
        let database = Builder::new().set_cache_size(cache).create(folder.join("data.redb"))?;
        Ok(Self { database })
    }
}

impl Engine for Redb {
    fn put(&mut self, records: Vec<Record>, durability: Durability) -> anyhow::Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(match durability {
            Durability::Synced => ::redb::Durability::Immediate,
            Durability::Unsynced => ::redb::Durability::None,
        })?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in &records {
                table.insert(key.as_slice(), value.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn get(&self, keys: &[Vec<u8>], touched: &mut Touched) -> anyhow::Result<()> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        for key in keys {
            touched.touch(table.get(key.as_slice())?.context("a key is lost")?.value());
        }
        Ok(())
    }

    fn scan(&self, limit: u64, touched: &mut Touched) -> anyhow::Result<()> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        for record in table.iter()?.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            touched.touch(record?.1.value());
        }
        Ok(())
    }

    fn sync(&mut self) -> anyhow::Result<()> {
        // What was not made durable becomes so with the next transaction that is.
        self.put(Vec::new(), Durability::Synced)
    }
}
