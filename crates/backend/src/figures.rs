//! What databases tell the monitor and the metrics.

use std::time::Duration;

use larix_engine::index::{IndexStatus, NotIndexed};
use larix_engine::time::Timestamp;
use larix_engine::write::WriteFigures;

/// What is known of a database's store.
#[derive(Copy, Clone, Debug, Default)]
pub struct StoreFigures {
    pub pages_max: u64,
    pub pages_used: u64,
    pub pages_free: u64,
    pub readers_max: u64,
    pub readers_used: u64,
    pub entries: u64,
    /// How long the oldest read transaction has been open.
    pub oldest_read: Option<Duration>,
}

/// What a database that stores entries says of itself.
#[derive(Debug)]
pub struct DatabaseFigures {
    /// The first.
    pub suffix: String,
    /// What its operations are counted by.
    pub instance: u64,
    pub store: StoreFigures,
    pub read_only: bool,
    /// Changes that wait for the writer.
    pub writes_waiting: u64,
    pub sync_failed: bool,
    /// The disk had no room for the last change.
    pub full: bool,
    pub writes: WriteFigures,
    /// The times of the oldest and the newest record of the change log.
    pub log_times: Option<(Timestamp, Timestamp)>,
    pub indexes: Vec<IndexStatus>,
    /// Searches that no index could serve, and their shapes.
    pub not_indexed: u64,
    pub not_indexed_shapes: Vec<NotIndexed>,
}
