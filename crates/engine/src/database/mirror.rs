//! What the store of a database may be the image of: [`mirror`](crate::mirror) says what it is shown.

use std::fmt::Debug;

use larix_proto::ldif::LdifAttribute;
use larix_schema::NormalDn;

/// What became of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mirrored {
    /// There is no entry of this name any more.
    Gone(NormalDn),
    /// The entry is so now.
    Put(MirroredEntry),
}

/// An entry as it is now, operational attributes included; the suffix entry has contextCSN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirroredEntry {
    pub name: NormalDn,
    /// The RDN as it is shown.
    pub rdn: String,
    pub attributes: Vec<LdifAttribute>,
}

/// Keeps what the store is the image of.
pub trait Mirror: Debug + Send + Sync {
    /// Makes changes durable, all of them or none. Names that are gone come before those that are there.
    ///
    /// # Errors
    /// What could not be written and why; then nothing has changed.
    fn write(&self, changes: &[Mirrored]) -> Result<(), String>;
}
