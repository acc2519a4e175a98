//! Ordered key-value stores with snapshots, postings and write sets.
//!
//! The directory asks for little: tables of byte strings in key order, posting lists (a set of ids for each key),
//! snapshots to read from, and a commit of a [`WriteSet`]. [`lmdb`] is the engine that serves, [`memory`] the one for
//! tests and throw-away directories, [`shared`] one in memory with many writers, for tests, and [`fault`] wraps any of
//! them and fails where a test wants it to. The suite in [`contract`] is run over every one of them.
//!
//! This crate knows nothing of directories.

pub mod ahead;
pub mod contract;
pub mod error;
pub mod fault;
pub mod layered;
#[allow(unsafe_code)]
pub mod lmdb;
pub mod memory;
pub mod ordered;
pub mod posting;
pub mod shared;
pub mod snapshot;
pub mod store;
pub mod table;
pub mod write_set;

pub use ahead::{Path, StepLists, Wanted};
pub use error::{Attempt, CommitError, OpenError, ReadError};
pub use layered::Layered;
pub use store::{
    CommitId, Durability, KeyCount, KeyValue, Loader, PostingCursor, Snapshot, Statistics, Store,
    TableStatistics, Transaction,
};
pub use table::{
    Direction, KEY_BYTES_MAX, KeyRange, POSTING_ID_MAX, POSTING_KEY_BYTES_MAX, TABLES_MAX, TableId,
    TableKind, TableSpec, VALUE_BYTES_MAX, prefix_end,
};
pub use write_set::{PostingEdits, SortedRows, WriteSet};
