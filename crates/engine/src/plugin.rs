//! Hooks on changes: what overlays are made of.
//!
//! A plugin sees each change before it is carried out, on the writer's thread and in the order of the configuration, and
//! may refuse it or have others carried out with it. What it adds is committed together with the change or not at all.

use std::fmt::Debug;

use larix_proto::LdapResult;
use larix_schema::Schema;

use crate::access::Subject;
use crate::controls::RequestControls;
use crate::entry::Entry;
use crate::write::prepare::Prepared;
use crate::write::{Failure, WriteOperation};

/// Changes that one change may lead to, those of these included: a bound against plugins that answer each other.
pub const DERIVED_LIMIT: usize = 10_000;

/// A change that is about to be carried out.
#[derive(Debug)]
pub struct PendingChange<'a> {
    pub operation: &'a Prepared,
    pub subject: &'a Subject,
    pub controls: &'a RequestControls,
    pub schema: &'a Schema,
    /// Whether a plugin asked for it.
    pub derived: bool,
    /// The directory as the changes before this one leave it.
    pub entries: &'a dyn Entries,
}

/// Entries of the database, by name.
pub trait Entries: Debug {
    /// The entry of this DN, large sets left in the store; `None` when there is none.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn entry(&self, dn: &larix_schema::NormalDn) -> Result<Option<Entry>, Failure>;
}

/// A hook on changes.
pub trait Plugin: Debug + Send + Sync {
    /// The overlay's name, as in the configuration.
    fn name(&self) -> &str;

    /// Looks at a change before it is carried out. What it answers is carried out after it, in order, in its name.
    ///
    /// # Errors
    /// A refusal, with which the change and all that belongs to it end.
    fn before(&self, change: &PendingChange<'_>) -> Result<Vec<WriteOperation>, LdapResult>;
}
