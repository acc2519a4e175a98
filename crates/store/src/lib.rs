//! Ordered key-value stores with snapshots, postings and write sets.
//!
//! The directory asks for little: tables of byte strings in key order, posting lists (a set of ids for each key),
//! snapshots to read from, and a commit of a [`WriteSet`]. [`lmdb`] is the engine that serves, [`memory`] the one for
//! tests and throw-away directories, [`fault`] wraps either and fails where a test wants it to. The suite in
//! [`contract`] is run over every one of them.
//!
//! This crate knows nothing of directories.

pub mod contract;
pub mod error;
pub mod fault;
#[allow(unsafe_code)]
pub mod lmdb;
pub mod memory;
pub mod ordered;
pub mod overlay;
pub mod posting;
pub mod store;
pub mod table;
pub mod write_set;

pub use error::{CommitError, OpenError, ReadError};
pub use overlay::Overlay;
pub use store::{
    CommitId, Durability, KeyCount, KeyValue, Loader, PostingCursor, Snapshot, Statistics, Store,
    TableStatistics, Transaction,
};
pub use table::{
    Direction, KEY_BYTES_MAX, KeyRange, POSTING_ID_MAX, POSTING_KEY_BYTES_MAX, TABLES_MAX, TableId,
    TableKind, TableSpec, VALUE_BYTES_MAX, prefix_end,
};
pub use write_set::{PostingEdits, WriteSet};
