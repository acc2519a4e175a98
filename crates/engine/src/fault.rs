//! What can go wrong while a database is read.

use std::fmt;

use larix_proto::{LdapResult, ResultCode};
use larix_store::{CommitError, ReadError};

use crate::ids::EntryId;
use crate::tables::FORMAT_OLDEST;

/// Of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A storage error or damage; never the client's fault.
#[derive(Debug)]
pub enum Fault {
    Store(ReadError),
    Record(RecordError),
    Catalog(CatalogError),
    Format(Box<UnknownFormat>),
    /// The tree, an index or a reference names something that is not there.
    Missing {
        entry: EntryId,
        what: &'static str,
    },
    /// Work on behalf of the configuration that went beyond its limit.
    TooMuch(&'static str),
    /// The request's work on one entry went beyond its budget ([`crate::budget`]).
    StepsSpent,
    /// A stored item has the wrong length or content.
    Damaged {
        what: &'static str,
    },
}

impl Fault {
    /// The answer to a request that met it: whether it pays to try again, and of a fault of ours no more than that.
    pub fn code(&self) -> ResultCode {
        match self {
            Self::Store(ReadError::Stale) => ResultCode::BUSY,
            Self::Store(ReadError::Unavailable(_) | ReadError::Unusable { .. }) => ResultCode::UNAVAILABLE,
            _ => ResultCode::OTHER,
        }
    }

    /// The answer to a request that met it, with what it says.
    pub fn to_result(&self) -> LdapResult {
        LdapResult::with(self.code(), format!("internal error: {self}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Record(error) => error.fmt(f),
            Self::Catalog(error) => error.fmt(f),
            Self::Format(error) => error.fmt(f),
            Self::Missing { entry, what } => write!(f, "{what} of entry {entry} is missing"),
            Self::TooMuch(what) => write!(f, "{what} met its limit"),
            Self::StepsSpent => f.write_str("the work on one entry met its limit"),
            Self::Damaged { what } => write!(f, "{what} is damaged"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self::Store(error)
    }
}

impl From<RecordError> for Fault {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl From<CatalogError> for Fault {
    fn from(error: CatalogError) -> Self {
        Self::Catalog(error)
    }
}

impl From<UnknownFormat> for Fault {
    fn from(error: UnknownFormat) -> Self {
        Self::Format(Box::new(error))
    }
}

/// A database of a disk format that this version does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat {
    pub(crate) found: Vec<u8>,
    /// The version that wrote it, where it says so.
    pub(crate) written_by: Option<String>,
    /// The newest format that this version reads in such a store.
    pub(crate) newest: u32,
}

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, written_by, newest } = self;
        match found.as_slice().try_into().map(u32::from_be_bytes) {
            Ok(number) => write!(f, "disk format {number}")?,
            Err(_) => write!(f, "disk format {found:?}")?,
        }
        if let Some(version) = written_by {
            write!(f, ", written by Larix {version},")?;
        }
        let mend = "use that version, or load what its `larix cat` writes";
        write!(
            f,
            " is not one of those that Larix {VERSION} reads (from {FORMAT_OLDEST} to {newest}): {mend}"
        )
    }
}

impl std::error::Error for UnknownFormat {}

/// A record that cannot be read: the database is damaged or was written by a newer version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    Truncated {
        entry: EntryId,
    },
    UnknownCodec {
        entry: EntryId,
        codec: u8,
    },
    NotUtf8 {
        entry: EntryId,
    },
    BadForm {
        entry: EntryId,
        form: u64,
    },
    BadValue {
        entry: EntryId,
    },
    /// What is packed cannot be unpacked.
    BadPacking {
        entry: EntryId,
    },
    UnknownDictionary {
        entry: EntryId,
        number: u32,
    },
    /// A packed record was not unpacked before its attributes were asked for: a bug here.
    Packed {
        entry: EntryId,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { entry } => write!(f, "record of entry {entry} is truncated"),
            Self::UnknownCodec { entry, codec } => {
                write!(f, "record of entry {entry} has the unknown codec {codec}")
            }
            Self::NotUtf8 { entry } => write!(f, "RDN of entry {entry} is not UTF-8"),
            Self::BadForm { entry, form } => write!(f, "record of entry {entry} has the unknown form {form}"),
            Self::BadValue { entry } => write!(f, "a value of entry {entry} is not an octet string"),
            Self::BadPacking { entry } => write!(f, "the compressed record of entry {entry} is damaged"),
            Self::UnknownDictionary { entry, number } => {
                write!(f, "record of entry {entry} is compressed with dictionary {number}, which is missing")
            }
            Self::Packed { entry } => write!(f, "record of entry {entry} was read before it was unpacked"),
        }
    }
}

impl std::error::Error for RecordError {}

/// The stored dictionaries cannot be read.
#[derive(Debug)]
pub enum DictionaryError {
    Read(ReadError),
    Damaged { key: Vec<u8> },
}

impl fmt::Display for DictionaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Damaged { key } => write!(f, "dictionary {:?} is damaged", String::from_utf8_lossy(key)),
        }
    }
}

impl std::error::Error for DictionaryError {}

impl From<ReadError> for DictionaryError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// The stored catalog cannot be read.
#[derive(Debug)]
pub enum CatalogError {
    Read(ReadError),
    Damaged { key: Vec<u8> },
    Dictionary(DictionaryError),
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Damaged { key } => write!(f, "catalog row {key:?} is damaged"),
            Self::Dictionary(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CatalogError {}

impl From<ReadError> for CatalogError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<DictionaryError> for CatalogError {
    fn from(error: DictionaryError) -> Self {
        Self::Dictionary(error)
    }
}

/// A fault of a transaction, as an error of its commit.
pub(crate) fn commit_fault(fault: Fault) -> CommitError {
    match fault {
        Fault::Store(error) => error.into(),
        fault => CommitError::Io(std::io::Error::other(fault.to_string())),
    }
}
