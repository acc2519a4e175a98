//! What a check reports, and how it reads.

use std::fmt;

use uuid::Uuid;

use crate::catalog::Catalog;
use crate::entry::{AttributeNumber, EntryId};
use crate::index::key;
use crate::log::LogKey;

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Record {
        entry: EntryId,
        fault: String,
    },
    /// The tree has no row for the entry, or another entry there.
    NotInTree {
        entry: EntryId,
    },
    /// The entry's RDN has another normal form by the present schema, or none: a request that names it does not find it.
    Name {
        entry: EntryId,
        rdn: String,
    },
    /// A row of the tree whose entry does not exist or stands elsewhere.
    StrayTreeRow {
        key: Vec<u8>,
        entry: EntryId,
    },
    Orphan {
        entry: EntryId,
        parent: EntryId,
    },
    /// The entry is below itself, or below one that is: nothing leads to it from the top of the tree.
    Ring {
        entry: EntryId,
    },
    MissingPosting {
        entry: EntryId,
        key: Vec<u8>,
    },
    /// A posting list says that it has another number of ids than it has.
    PostingCount {
        key: Vec<u8>,
        recorded: u64,
        found: u64,
    },
    StrayPosting {
        entry: EntryId,
        key: Vec<u8>,
    },
    /// Two entries have one entryUUID: replication takes them for one.
    SameUuid {
        dns: [String; 2],
        uuid: Uuid,
    },
    /// Values or blobs outside of the record are missing, too many, or not those that the record counts.
    Outside {
        entry: EntryId,
        what: &'static str,
    },
    /// Rows outside of the records of an entry that does not exist.
    StrayRow {
        entry: EntryId,
        what: &'static str,
    },
    UnknownAttribute {
        entry: EntryId,
        number: AttributeNumber,
    },
    /// An entry id above the highest that was ever given.
    IdAboveLast {
        entry: EntryId,
    },
    /// A row of what replication remembers.
    Replica {
        fault: String,
    },
    /// A record of the change log.
    Log {
        key: LogKey,
        fault: String,
    },
}

impl Finding {
    /// Whether it goes away with an index that is made anew.
    pub fn is_of_index(&self) -> bool {
        matches!(self, Self::MissingPosting { .. } | Self::PostingCount { .. } | Self::StrayPosting { .. })
    }

    /// In words, with attributes by the names that the catalog has for their numbers.
    pub fn named(&self, catalog: &Catalog) -> String {
        Named { finding: self, catalog: Some(catalog) }.to_string()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Named { finding: self, catalog: None }, f)
    }
}

struct Named<'f> {
    finding: &'f Finding,
    catalog: Option<&'f Catalog>,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |key| Key { key, catalog: self.catalog };
        match self.finding {
            Finding::Record { entry, fault } => write!(f, "entry {entry}: {fault}"),
            Finding::NotInTree { entry } => write!(f, "entry {entry} is not in the tree"),
            Finding::Name { entry, rdn } => {
                write!(f, "entry {entry} is not found by its name {rdn:?}: the schema reads it otherwise")
            }
            Finding::StrayTreeRow { key, entry } => {
                let rdn = String::from_utf8_lossy(key.get(8..).unwrap_or_default()).into_owned();
                write!(f, "the tree has \"{rdn}\" as entry {entry}, which stands elsewhere or does not exist")
            }
            Finding::Orphan { entry, parent } => {
                write!(f, "entry {entry} is below {parent}, which does not exist")
            }
            Finding::Ring { entry } => {
                write!(f, "entry {entry} is below itself: nothing leads to it from the top of the tree")
            }
            Finding::PostingCount { key, recorded, found } => {
                write!(f, "the index has {found} entries under {}, and says {recorded}", shown(key))
            }
            Finding::MissingPosting { entry, key } => {
                write!(f, "entry {entry} is missing in the index under {}", shown(key))
            }
            Finding::StrayPosting { entry, key } => {
                write!(f, "entry {entry} is in the index under {}, which it does not have", shown(key))
            }
            Finding::SameUuid { dns: [first, second], uuid } => write!(
                f,
                "{first:?} and {second:?} have the same entryUUID {uuid}: delete one of them, and add it again without it"
            ),
            Finding::Outside { entry, what } => write!(f, "entry {entry}: {what}"),
            Finding::StrayRow { entry, what } => {
                write!(f, "there is {what} of entry {entry}, which does not exist")
            }
            Finding::UnknownAttribute { entry, number } => {
                write!(f, "entry {entry} has attribute number {number}, which the catalog does not have")
            }
            Finding::IdAboveLast { entry } => write!(f, "entry {entry} is above the last id given"),
            Finding::Replica { fault } => write!(f, "what replication remembers: {fault}"),
            Finding::Log { key: LogKey { server_id, sequence }, fault } => {
                write!(f, "change {sequence} of server {server_id} in the change log: {fault}")
            }
        }
    }
}

struct Key<'k> {
    key: &'k [u8],
    catalog: Option<&'k Catalog>,
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match key::parse_head(self.key) {
            Some((number, kind)) => match self.catalog.and_then(|catalog| catalog.row(number)) {
                Some(row) => write!(f, "attribute {}, {kind:?}", row.text)?,
                None => write!(f, "attribute {number}, {kind:?}")?,
            },
            None => f.write_str("a damaged key")?,
        }
        match key::parse_value(self.key) {
            Some(value) => write!(f, " \"{}\"", value.escape_ascii()),
            None => Ok(()),
        }
    }
}
