//! The directory: entries, tree, indexes, planner, operations. No sockets, no ambient clock, no async runtime.

pub mod audit;
pub mod budget;
mod catalog;
mod change;
pub mod check;
#[cfg(test)]
mod check_tests;
mod codec;
pub mod compare;
#[cfg(test)]
mod compare_tests;
pub mod controls;
pub mod csn;
pub mod database;
mod directory;
pub mod entry;
mod failure;
mod fault;
mod figures;
mod filter;
#[cfg(test)]
pub(crate) mod fixture;
pub mod histogram;
mod ids;
pub mod index;
mod index_config;
pub mod injected;
mod key;
pub mod load;
pub mod log;
pub mod mirror;
mod neighbours;
pub mod order;
pub mod overlay;
pub mod plan;
pub mod record;
pub mod replica;
mod replica_state;
mod schema_use;
pub mod search;
pub mod tables;
pub mod time;
pub mod tree;
pub mod write;
pub mod writer;

pub use larix_acl as access;
pub use larix_passwords as password;

pub use catalog::{Catalog, CatalogEdit};
pub use database::{Database, DatabaseSettings, Limits, Suffix, View};
pub use directory::{
    BindLookup, ChosenDatabase, CommittedFollower, DatabaseHandle, Directory, DnLocation, Frontend,
    ServedDatabase, Writers, begin_followers, other_entries,
};
pub use entry::{AttributeNumber, Entry, EntryAttribute, EntryId, EntryReader, EntrySource, EntryView};
pub use fault::{Fault, UnknownFormat};
