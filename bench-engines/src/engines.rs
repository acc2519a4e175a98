//! What is asked of every engine, and the engines.

mod lmdb;
mod lsm;
mod redb;
mod sqlite;

use std::path::Path;

/// A key and its value.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

/// What a read touched: records, and a sum over their bytes that cannot be had without reading them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Touched {
    pub(crate) records: u64,
    pub(crate) sum: u64,
}

impl Touched {
    /// Reads one byte of every cache line: an engine that hands out a pointer pays for the bytes behind it.
    pub(crate) fn touch(&mut self, value: &[u8]) {
        self.records += 1;
        for byte in value.iter().step_by(64) {
            self.sum = self.sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
        }
    }
}

/// Whether a commit is on the disk when it returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Durability {
    /// Synced: it survives a crash of the machine.
    Synced,
    /// It survives at most a crash of the process.
    Unsynced,
}

/// An engine, open. One thread uses it.
pub(crate) trait Engine {
    /// Puts all records in one transaction.
    fn put(&mut self, records: Vec<Record>, durability: Durability) -> anyhow::Result<()>;

    /// Reads each key in one snapshot; the keys are there.
    fn get(&self, keys: &[Vec<u8>], touched: &mut Touched) -> anyhow::Result<()>;

    /// Reads records in key order from the first on, at most `limit`.
    fn scan(&self, limit: u64, touched: &mut Touched) -> anyhow::Result<()>;

    /// Makes everything durable.
    fn sync(&mut self) -> anyhow::Result<()>;

    /// Brings the data into the form that they have when nothing was written for long, durably.
    fn settle(&mut self) -> anyhow::Result<()> {
        self.sync()
    }
}

/// How an engine is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenOptions {
    /// Bytes for the engine's own cache, where it has one.
    pub(crate) cache_bytes: u64,
    /// Values are tens of kilobytes: engines that want to be told are told.
    pub(crate) large_values: bool,
}

/// The engines, in the order of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Lmdb,
    /// The same file without the kernel's reading ahead.
    LmdbNoReadAhead,
    Redb,
    Sqlite,
    Fjall,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Lmdb, Self::LmdbNoReadAhead, Self::Redb, Self::Sqlite, Self::Fjall];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lmdb => "lmdb",
            Self::LmdbNoReadAhead => "lmdb-no-read-ahead",
            Self::Redb => "redb",
            Self::Sqlite => "sqlite",
            Self::Fjall => "fjall",
        }
    }

    pub(crate) fn from_name(name: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.into_iter().map(Self::name).collect();
            anyhow::anyhow!("no engine is called {name:?}: one of {}", names.join(", "))
        })
    }

    /// Opens or creates the engine's files in `folder`.
    pub(crate) fn open(self, folder: &Path, options: &OpenOptions) -> anyhow::Result<Box<dyn Engine>> {
        Ok(match self {
            Self::Lmdb => Box::new(lmdb::Lmdb::open(folder, true)?),
            Self::LmdbNoReadAhead => Box::new(lmdb::Lmdb::open(folder, false)?),
            Self::Redb => Box::new(redb::Redb::open(folder, options)?),
            Self::Sqlite => Box::new(sqlite::Sqlite::open(folder, options)?),
            Self::Fjall => Box::new(lsm::Fjall::open(folder, options)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every engine gives back what was put, in order, also after it was opened again.
    #[test]
    fn engines_agree() {
        let record = |number: u32, byte: u8| (format!("{number:016}").into_bytes(), vec![byte; 100]);
        let mut expected: Option<(Touched, Touched)> = None;
        for kind in Kind::ALL {
            for large_values in [false, true] {
                let folder = tempfile::tempdir().unwrap();
                let options = OpenOptions { cache_bytes: 8 << 20, large_values };
                let mut engine = kind.open(folder.path(), &options).unwrap();
                engine.put((0..500).map(|n| record(n, n as u8)).collect(), Durability::Unsynced).unwrap();
                engine.put(vec![record(7, 1), record(900, 2)], Durability::Synced).unwrap();
                engine.sync().unwrap();
                drop(engine);
                let engine = kind.open(folder.path(), &options).unwrap();
                let (mut read, mut scanned) = (Touched::default(), Touched::default());
                engine.get(&[record(7, 0).0, record(499, 0).0], &mut read).unwrap();
                engine.scan(u64::MAX, &mut scanned).unwrap();
                assert_eq!((read.records, scanned.records), (2, 501), "{kind:?}");
                assert_eq!(*expected.get_or_insert((read, scanned)), (read, scanned), "{kind:?}");
                let mut some = Touched::default();
                engine.scan(3, &mut some).unwrap();
                assert_eq!(some.records, 3, "{kind:?}");
                assert!(engine.get(&[b"absent".to_vec()], &mut some).is_err(), "{kind:?}");
            }
        }
    }

    #[test]
    fn an_unknown_engine_is_named() {
        let error = Kind::from_name("bdb").unwrap_err().to_string();
        assert!(error.contains("bdb") && error.contains("redb"), "{error}");
    }
}
