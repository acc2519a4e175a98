//! The traits of a store, implemented by the handle.

use larix_store::{
    Attempt, CommitError, CommitId, ReadError, Statistics, Store, TableSpec, TableStatistics, Wanted,
};

use crate::commit::KvTransaction;
use crate::error::Fault;
use crate::load::KvLoader;
use crate::store::KvStore;
use crate::view::{KvSnapshot, View};

impl Store for KvStore {
    type Snapshot<'s> = KvSnapshot<'s>;
    type Transaction<'s> = KvTransaction<'s>;
    type Loader<'s> = KvLoader<'s>;

    const SHARED: bool = true;

    fn tables(&self) -> &[TableSpec] {
        self.catalog.specs()
    }

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, ReadError> {
        self.snapshot_with(&[])
    }

    fn snapshot_with(&self, wanted: &[Wanted]) -> Result<Self::Snapshot<'_>, ReadError> {
        let view = View::open_with(self, self.asks_first(), wanted).map_err(Fault::into_read)?;
        Ok(KvSnapshot { view })
    }

    fn transaction(&self) -> Result<Self::Transaction<'_>, CommitError> {
        self.transaction_with(&[])
    }

    fn transaction_with(&self, wanted: &[Wanted]) -> Result<Self::Transaction<'_>, CommitError> {
        self.epoch_in_time()?;
        let asks = self.transaction_asks_first();
        let view = View::open_with(self, asks, wanted).map_err(|fault| {
            self.doubt();
            match fault.into_read() {
                ReadError::Unavailable(error) => CommitError::Unavailable(error),
                error => CommitError::Read(error),
            }
        })?;
        Ok(KvTransaction { epoch: self.epoch()?, view })
    }

    fn commit_counter(&self) -> u64 {
        self.newest()
    }

    fn unbroken_since(&self) -> u64 {
        self.unbroken()
    }

    fn outcome(&self, attempt: Attempt) -> Result<Option<CommitId>, ReadError> {
        match self.became(attempt) {
            Some(settled) => settled.map_err(Fault::into_unread),
            None => Err(ReadError::Unavailable(std::io::Error::other("the store knows of no such commit"))),
        }
    }

    fn statistics(&self) -> Result<Statistics, ReadError> {
        let counts = self.engine.counts().map_err(Fault::into_read)?;
        let counted =
            |number: u8| counts.iter().find(|(table, _)| *table == number).map_or(0, |(_, count)| *count);
        let tables = self.catalog.specs().iter().zip(self.numbers());
        Ok(Statistics {
            tables: tables
                .map(|(spec, number)| TableStatistics {
                    name: spec.name,
                    records: counted(*number),
                    ..TableStatistics::default()
                })
                .collect(),
            commit_counter: self.commit_counter(),
            ..Statistics::default()
        })
    }

    /// Every commit is durable as soon as the engine has answered.
    fn sync(&self) -> Result<(), CommitError> {
        Ok(())
    }

    fn loader(&self) -> Result<Self::Loader<'_>, CommitError> {
        KvLoader::begin(self)
    }

    fn is_read_only(&self) -> bool {
        self.epoch().is_err()
    }

    fn awaits_right(&self) -> bool {
        self.expects_take_over() && self.epoch().is_err()
    }

    fn await_right(&self) {
        // If it does not come, the transaction says so.
        let _late = self.epoch_in_time();
    }

    fn value_bytes_max(&self) -> usize {
        self.sizes.value_bytes_max
    }

    fn value_limit_text(&self) -> String {
        self.sizes.why.clone()
    }
}
