//! What went wrong, in words for the administrator.

use std::io;
use std::path::{Path, PathBuf};

use heed::MdbError;
use rustix::io::Errno;

use super::{into_io, is_full};
use crate::error::OpenError;

/// What to do about a file that is not ours.
pub(super) const NOT_OURS: &str =
    "an LMDB file of another program; name an empty directory and load LDIF into it";

pub(super) fn corrupt(path: &Path, what: String) -> OpenError {
    OpenError::Corrupt { path: path.to_owned(), what }
}

pub(super) fn lmdb_error(path: &Path, error: heed::Error) -> OpenError {
    let path = path.to_owned();
    match error {
        heed::Error::EnvAlreadyOpened => OpenError::AlreadyOpen { path },
        heed::Error::Io(error) if is_no_memory(&error) && address_space().is_some() => {
            let limit = address_space().unwrap_or_default();
            let what = format!(
                "{error}: the limit of {limit} bytes on the address space (ulimit -v, LimitAS=) leaves no room for this database; raise \
                 it, or take it away"
            );
            OpenError::Io { path, error: io::Error::other(what) }
        }
        heed::Error::Io(error) => os_error(&path, error),
        heed::Error::Mdb(MdbError::MapFull) => OpenError::Full { path },
        // So it ends, too, while a program with another LMDB, such as slapd, uses the directory.
        heed::Error::Mdb(MdbError::VersionMismatch) => OpenError::Corrupt { path, what: NOT_OURS.to_owned() },
        heed::Error::Mdb(error @ MdbError::Invalid) => {
            let what =
                format!("{error}; put a backup back, or name an empty directory and load LDIF into it");
            OpenError::Corrupt { path, what }
        }
        error => OpenError::Corrupt { path, what: error.to_string() },
    }
}

/// What the system said of a store's directory.
pub(super) fn os_error(directory: &Path, error: io::Error) -> OpenError {
    system_error(directory.to_owned(), directory, error)
}

/// What the system said of a file in it.
pub(super) fn file_error(directory: &Path, name: &str, error: io::Error) -> OpenError {
    system_error(directory.join(name), directory, error)
}

fn system_error(path: PathBuf, directory: &Path, error: io::Error) -> OpenError {
    match error.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            OpenError::Permission { path, directory: directory.to_owned(), error }
        }
        _ if is_full(&error) => OpenError::Full { path },
        _ => OpenError::Io { path, error: into_io(heed::Error::Io(error)) },
    }
}

/// The limit on the address space of the process, if there is one.
pub(super) fn address_space() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::As).current
}

pub(super) fn is_no_memory(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| {
        let code = Errno::from_raw_os_error(code);
        // valgrind answers EINVAL to a map beyond what it can keep track of.
        code == Errno::NOMEM || code == Errno::OVERFLOW || code == Errno::INVAL
    })
}
