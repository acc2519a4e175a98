//! LDIF (RFC 2849): entries and changes as text, read with line numbers and written as OpenLDAP's tools write it.

mod chunks;
mod error;
mod lines;
mod reader;
mod writer;

use crate::control::ControlBuf;
use crate::list::ModifyOperation;

pub use chunks::{Chunk, Chunks};
pub use error::{LdifError, LdifFault};
pub use lines::{Files, LocalFiles};
pub use reader::Reader;
pub use writer::Writer;

/// One record. `N` is what names of attributes are: a text of its own, or one that records share
/// ([`Reader::read_sharing`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<N = String> {
    /// The line of the input that the record starts on, from 1.
    pub line: u64,
    pub dn: String,
    pub body: Body<N>,
}

/// What a record says of the entry with its DN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<N = String> {
    /// An entry as it is.
    Content(Vec<LdifAttribute<N>>),
    /// Something to do, with `changetype:`.
    Change { controls: Vec<ControlBuf>, change: Change },
}

/// An attribute with all its values, wherever in the record they stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LdifAttribute<N = String> {
    /// As it is first written.
    pub description: N,
    pub values: Vec<Vec<u8>>,
}

/// A change of an entry, by its `changetype:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Add(Vec<LdifAttribute>),
    Delete,
    Modify(Vec<Modification>),
    ModifyDn { new_rdn: String, delete_old_rdn: bool, new_superior: Option<String> },
}

/// One step of a modify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modification {
    pub operation: ModifyOperation,
    pub description: String,
    pub values: Vec<Vec<u8>>,
}

#[cfg(test)]
mod tests;
