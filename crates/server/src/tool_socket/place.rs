//! Where the socket is: in the database's directory, which only the database's owner may write.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The socket's name in the directory.
pub const SOCKET_NAME: &str = "tools.sock";

/// Longest path that the system takes for a socket, in bytes.
const PATH_BYTES_MAX: usize = 107;

/// A path by which the socket can be bound and reached, however long the directory's own is.
#[derive(Debug)]
pub(super) struct SocketPath {
    path: PathBuf,
    /// Open while the path is used that goes through it.
    _directory: Option<File>,
}

impl SocketPath {
    /// # Errors
    /// A directory with a long path that cannot be opened.
    pub(super) fn of(directory: &Path) -> io::Result<Self> {
        let path = directory.join(SOCKET_NAME);
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path, _directory: None });
        }
        let opened = File::open(directory)?;
        let path = format!("/proc/self/fd/{}/{SOCKET_NAME}", opened.as_raw_fd());
        Ok(Self { path: path.into(), _directory: Some(opened) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
