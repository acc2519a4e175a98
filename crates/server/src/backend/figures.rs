//! What databases tell the monitor and the metrics.

use std::time::Duration;

use larix_engine::index::{IndexStatus, NotIndexed};
use larix_engine::time::Timestamp;
use larix_engine::write::WriteFigures;
use larix_store::Statistics;

/// What is known of a database's store.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct StoreFigures {
    pub(crate) pages_max: u64,
    pub(crate) pages_used: u64,
    pub(crate) pages_free: u64,
    pub(crate) readers_max: u64,
    pub(crate) readers_used: u64,
    pub(crate) entries: u64,
    /// How long the oldest read transaction has been open.
    pub(crate) oldest_read: Option<Duration>,
}

impl StoreFigures {
    /// A store's statistics in cn=Monitor's terms.
    pub(crate) fn of(store: &Statistics) -> Self {
        let entries =
            store.tables.iter().find(|table| table.name == "entries").map_or(0, |table| table.records);
        Self {
            pages_max: store.map_bytes.checked_div(store.page_bytes).unwrap_or(0),
            pages_used: store.pages_used,
            pages_free: store.pages_free,
            readers_max: store.max_readers.into(),
            readers_used: store.readers.into(),
            oldest_read: store.oldest_read,
            entries,
        }
    }
}

/// What a database that stores entries says of itself.
#[derive(Debug)]
pub(crate) struct DatabaseFigures {
    /// The first.
    pub(crate) suffix: String,
    /// What its operations are counted by.
    pub(crate) instance: u64,
    pub(crate) store: StoreFigures,
    pub(crate) read_only: bool,
    /// Changes that wait for the writer.
    pub(crate) writes_waiting: u64,
    pub(crate) sync_failed: bool,
    pub(crate) writes: WriteFigures,
    /// The times of the oldest and the newest record of the change log.
    pub(crate) log_times: Option<(Timestamp, Timestamp)>,
    pub(crate) indexes: Vec<IndexStatus>,
    /// Searches that no index could serve, and their shapes.
    pub(crate) not_indexed: u64,
    pub(crate) not_indexed_shapes: Vec<NotIndexed>,
}
