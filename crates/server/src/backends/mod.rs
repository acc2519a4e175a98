//! The backends that there are: one for each kind of database that is served, and those of names that no database holds.

mod memory;
mod stored;

pub(crate) use memory::{Configuration, Content, MonitorTree, Null, RootDseTree, SubschemaTree, Tree};
pub(crate) use stored::{Nowhere, Stored, figures, has_failed_sync, suffix_of};
