//! Why a load failed.

use std::fmt;
use std::io;

use larix_proto::ldif::LdifError;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::DnError;
use larix_store::{CommitError, OpenError, ReadError};
use uuid::Uuid;

use crate::database::DatabaseOpenError;
use crate::fault::Fault;

/// Why a load failed.
#[derive(Debug)]
pub enum LoadError {
    /// A record that cannot be stored.
    Record(RecordError),
    /// The store could not be opened, or another process has it.
    Open(OpenError),
    Database(DatabaseOpenError),
    Commit(CommitError),
    /// The database could not be read.
    Fault(Fault),
    /// A temporary file.
    Io(io::Error),
    /// Putting the new file in its place.
    Publish(io::Error),
    /// The schema lacks what no directory can do without.
    Schema(&'static str),
    /// Another thread ended the load.
    Stopped(&'static str),
}

/// A record of the LDIF that cannot be stored.
#[derive(Debug)]
pub struct RecordError {
    /// The line that the record begins on; 0 for one that is not of a file.
    pub line: u64,
    /// As it stands in the LDIF; empty if there is none.
    pub dn: String,
    pub fault: RecordFault,
}

/// What is wrong with a record.
#[derive(Debug)]
pub enum RecordFault {
    /// Not LDIF.
    Ldif(LdifError),
    /// A change, where entries are wanted.
    NotAnEntry,
    Dn(DnError),
    /// No database suffix is at or above the entry.
    OutsideSuffixes,
    /// The superior is neither in the database nor among the records.
    NoSuperior,
    /// The superior has not come yet, and the records that wait for theirs take all the memory they may.
    TooManyWait,
    /// An entry of this name is in the database, or was before this record.
    Exists,
    /// Another entry has its entryUUID: that in the line, counted from 1; 0 for one of the database.
    SameUuid {
        uuid: Uuid,
        line: u64,
    },
    /// Its syntax, its schema, or its attributes: what an add would be answered.
    Refused(LdapResult),
}

/// The bundled schema that defines the class or attribute that a refusal is about.
fn lacking_schema(result: &LdapResult) -> Option<&'static str> {
    let text = result.diagnostic.as_str();
    match result.code {
        ResultCode::OBJECT_CLASS_VIOLATION => {
            let class = text.strip_prefix("unrecognized objectClass '")?.strip_suffix('\'')?;
            larix_schema::bundle_with_class(class)
        }
        ResultCode::UNDEFINED_ATTRIBUTE_TYPE => {
            larix_schema::bundle_with(text.strip_suffix(": attribute type undefined")?)
        }
        _ => None,
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let RecordFault::Ldif(error) = &self.fault {
            return error.fmt(f);
        }
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        // A bulk load finds these when the names have gone by.
        let is_nameless = self.dn.is_empty() && matches!(self.fault, RecordFault::SameUuid { .. });
        if !is_nameless {
            write!(f, "\"{}\": ", self.dn)?;
        }
        match &self.fault {
            RecordFault::Ldif(error) => error.fmt(f),
            RecordFault::NotAnEntry => f.write_str(
                "a change record, where entries are loaded: ldapmodify or slapmodify carries it out",
            ),
            RecordFault::Dn(error) => error.fmt(f),
            RecordFault::OutsideSuffixes => f.write_str("not below any suffix of the database"),
            RecordFault::NoSuperior => f.write_str("the superior entry does not exist"),
            RecordFault::TooManyWait => {
                f.write_str("the superior entry has not come yet, and too many records wait for theirs")
            }
            RecordFault::Exists => f.write_str("the entry exists already"),
            RecordFault::SameUuid { uuid, line } => {
                write!(f, "another entry has the entryUUID {uuid}")?;
                if *line > 0 {
                    write!(f, ", that of line {line}")?;
                }
                f.write_str(": leave it out, and the entry gets one of its own")
            }
            RecordFault::Refused(result) if result.diagnostic.is_empty() => write!(f, "{}", result.code),
            RecordFault::Refused(result) => {
                write!(f, "{}: {}", result.code, result.diagnostic)?;
                match result.code {
                    ResultCode::OBJECT_CLASS_MODS_PROHIBITED => {
                        f.write_str("; without its structuralObjectClass the entry gets the right one")
                    }
                    _ => match lacking_schema(result) {
                        Some(bundle) => write!(f, "; `schema {bundle}` in the configuration defines it"),
                        None => Ok(()),
                    },
                }
            }
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Database(error) => error.fmt(f),
            Self::Commit(error) => error.fmt(f),
            Self::Fault(error) => error.fmt(f),
            Self::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
                f.write_str("the disk has no room for the load's temporary files: nothing was changed")
            }
            Self::Io(error) | Self::Publish(error) => error.fmt(f),
            Self::Schema(element) => write!(f, "the schema does not define {element}"),
            Self::Stopped(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for LoadError {}
impl std::error::Error for RecordError {}

impl From<RecordError> for LoadError {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl From<OpenError> for LoadError {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<DatabaseOpenError> for LoadError {
    fn from(error: DatabaseOpenError) -> Self {
        Self::Database(error)
    }
}

impl From<CommitError> for LoadError {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<ReadError> for LoadError {
    fn from(error: ReadError) -> Self {
        Self::Fault(error.into())
    }
}

impl From<Fault> for LoadError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_is_not_loaded_is_named() {
        for (code, text, expected) in [
            (
                ResultCode::OBJECT_CLASS_VIOLATION,
                "unrecognized objectClass 'domain'",
                "; `schema cosine` in the configuration defines it",
            ),
            (
                ResultCode::UNDEFINED_ATTRIBUTE_TYPE,
                "sambaSID: attribute type undefined",
                "; `schema samba` in the configuration defines it",
            ),
            (ResultCode::OBJECT_CLASS_VIOLATION, "unrecognized objectClass 'nosuch'", ""),
            (ResultCode::OBJECT_CLASS_VIOLATION, "attribute 'uid' not allowed", ""),
        ] {
            let fault = RecordFault::Refused(LdapResult::with(code, text));
            let error = RecordError { line: 3, dn: "dc=x".to_owned(), fault };
            assert_eq!(error.to_string(), format!("line 3: \"dc=x\": {code}: {text}{expected}"));
        }
    }
}
