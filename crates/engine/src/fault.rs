//! What can go wrong while a database is read.

use std::fmt;

use larix_proto::ResultCode;
use larix_store::{CommitError, ReadError};

use crate::catalog::CatalogError;
use crate::entry::{EntryId, RecordError};

/// A storage error or damage; never the client's fault.
#[derive(Debug)]
pub enum Fault {
    Store(ReadError),
    Record(RecordError),
    Catalog(CatalogError),
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
            Self::Store(ReadError::Unavailable(_)) => ResultCode::UNAVAILABLE,
            _ => ResultCode::OTHER,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Record(error) => error.fmt(f),
            Self::Catalog(error) => error.fmt(f),
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

/// A fault of a transaction, as an error of its commit.
pub(crate) fn commit_fault(fault: Fault) -> CommitError {
    match fault {
        Fault::Store(error) => error.into(),
        fault => CommitError::Io(std::io::Error::other(fault.to_string())),
    }
}
