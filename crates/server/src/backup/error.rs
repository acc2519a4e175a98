//! Why a backup or a restore failed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Names the fault, and the remedy if there is one.
#[derive(Debug)]
pub enum BackupError {
    Io {
        /// `read`, `write`...
        what: &'static str,
        path: PathBuf,
        error: io::Error,
    },
    /// A file is not what the manifest says.
    Damaged {
        path: PathBuf,
        what: String,
    },
    NotABackup {
        path: PathBuf,
    },
    /// There is nothing that an increment could follow.
    NoFull {
        path: PathBuf,
    },
    Exists {
        path: PathBuf,
        mend: &'static str,
    },
    /// A store or a database.
    Database {
        path: PathBuf,
        message: String,
    },
    /// No increment can follow what the chain has of this database.
    NoIncrement {
        suffix: String,
        why: String,
    },
    /// The moment is not one that the chain leads to.
    Unreachable {
        what: String,
    },
    /// Another backup or restore is at work there.
    Busy {
        path: PathBuf,
    },
    Stream {
        what: String,
    },
    /// The server ends.
    Stopped,
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { what, path, error } if is_full(error) => {
                write!(f, "cannot {what} {}: the disk is full ({error})", path.display())
            }
            Self::Io { what: "make", path, error }
                if error.kind() == io::ErrorKind::NotFound
                    && path.parent().is_some_and(|above| !above.exists()) =>
            {
                let above = path.parent().unwrap_or(path).display();
                write!(
                    f,
                    "cannot make {}: there is no directory {above}: make that one first",
                    path.display()
                )
            }
            Self::Io { what, path, error } => write!(f, "cannot {what} {}: {error}", path.display()),
            Self::Damaged { path, what } => write!(f, "{} {what}", path.display()),
            Self::NotABackup { path } => {
                write!(
                    f,
                    "{} is no backup: it has no {}, which is written last",
                    path.display(),
                    super::MANIFEST
                )
            }
            Self::NoFull { path } => write!(
                f,
                "{} has no backup that an increment could follow: make a full backup first, without --incremental",
                path.display()
            ),
            Self::Exists { path, mend } => write!(f, "{} exists: {mend}", path.display()),
            Self::Database { path, message } => write!(f, "{}: {message}", path.display()),
            Self::NoIncrement { suffix, why } => {
                write!(f, "no increment of {suffix:?} is possible: {why}; make a full backup")
            }
            Self::Unreachable { what } => f.write_str(what),
            Self::Busy { path } => {
                write!(f, "{}: another backup is being made there", path.display())
            }
            Self::Stream { what } => write!(f, "the stream {what}"),
            Self::Stopped => f.write_str("the server is ending"),
        }
    }
}

impl std::error::Error for BackupError {}

impl BackupError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Io { what, path, error }
    }

    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn database(path: &Path, error: impl fmt::Display) -> Self {
        Self::Database { path: path.to_owned(), message: error.to_string() }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
