//! Indexes: which there are (`index_config`), how a key looks (`key`), which keys an entry has
//! ([`keys`], `new_entry`), how substring keys come late ([`pending`], [`merge`]), how an index is built while changes go on (`build`),
//! and what indexes are used for ([`uses`]).

pub(crate) mod build;
pub mod keys;
pub mod merge;
#[cfg(test)]
mod merge_tests;
pub(crate) mod new_entry;
pub mod pending;
pub mod status;
pub mod substrings;
pub mod uses;

pub use crate::index_config::{IndexConfig, IndexConfigError, Kinds};
pub(crate) use crate::key;
pub use crate::key::{KeyKind, parse_head};
pub use keys::IndexChanges;
pub use status::{IndexStatus, WorkPhase, WorkStatus};
pub use uses::{IndexUse, NotIndexed};
