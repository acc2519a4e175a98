//! Indexes: which there are ([`config`]), how a key looks ([`key`]), and which keys an entry has ([`keys`]).

pub mod config;
pub mod key;
pub mod keys;
pub mod substrings;

pub use config::{IndexConfig, IndexConfigError, Kinds};
pub use key::KeyKind;
pub use keys::IndexChanges;
