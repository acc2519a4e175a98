//! SQLite: one table with a binary key, write-ahead log, statements prepared once.

use std::path::Path;

use rusqlite::{Connection, params};

use super::{Durability, Engine, OpenOptions, Record, Touched};

pub(super) struct Sqlite {
    connection: Connection,
    synced: Durability,
}

impl Sqlite {
    pub(super) fn open(folder: &Path, options: &OpenOptions) -> anyhow::Result<Self> {
        let connection = Connection::open(folder.join("data.sqlite"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // A negative size is in KiB.
        connection.pragma_update(None, "cache_size", -i64::try_from(options.cache_bytes / 1024)?)?;
        // Rows in the key's own tree save a look-up, but SQLite's manual advises against it for rows above 200 bytes.
        let form = if options.large_values { "" } else { "WITHOUT ROWID" };
        let create =
            format!("CREATE TABLE IF NOT EXISTS records (k BLOB PRIMARY KEY, v BLOB NOT NULL) {form}");
        connection.execute(&create, ())?;
        Ok(Self { connection, synced: Durability::Synced })
    }
}

impl Engine for Sqlite {
    fn put(&mut self, records: Vec<Record>, durability: Durability) -> anyhow::Result<()> {
        if durability != self.synced {
            let level = if durability == Durability::Synced { "FULL" } else { "OFF" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.synced = durability;
        }
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached("INSERT OR REPLACE INTO records VALUES (?1, ?2)")?;
            for (key, value) in &records {
                insert.execute(params![key, value])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn get(&self, keys: &[Vec<u8>], touched: &mut Touched) -> anyhow::Result<()> {
        let snapshot = self.connection.unchecked_transaction()?;
        let mut select = snapshot.prepare_cached("SELECT v FROM records WHERE k = ?1")?;
        for key in keys {
            select.query_row(params![key], |row| {
                touched.touch(row.get_ref(0)?.as_blob()?);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn scan(&self, limit: u64, touched: &mut Touched) -> anyhow::Result<()> {
        let mut select = self.connection.prepare_cached("SELECT v FROM records ORDER BY k LIMIT ?1")?;
        let mut rows = select.query(params![i64::try_from(limit).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            touched.touch(row.get_ref(0)?.as_blob()?);
        }
        Ok(())
    }

    fn sync(&mut self) -> anyhow::Result<()> {
        // Moves the log into the database, synced.
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        self.synced = Durability::Synced;
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        Ok(())
    }
}
