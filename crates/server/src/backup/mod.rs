//! Backups: copies of databases, increments from their change logs, and the way back.
//!
//! A backup is a directory with a full copy of each database, the configuration, and `backup.json`, which is written last
//! and says what belongs to it. Increments are added below it, each with what was changed since the one before and a
//! manifest that names its predecessor by checksum: together they are a chain. A restore puts the copy back and carries
//! out the changes of the chain up to a moment.

mod chain;
mod changes;
mod copy_file;
mod error;
mod manifest;
mod pace;
mod restore;
mod restored;
pub(crate) mod schedule_directory;
mod status;
mod stream;
mod take;
mod until;

pub use chain::{Chain, Increment, Loaded};
pub use error::BackupError;
pub use manifest::{DatabaseBackup, Manifest, StoredFile};
pub use pace::{Pace, Progress};
pub(crate) use restore::Rebuilt;
pub use restore::{Restored, Target, restore};
pub use restored::RestoreNote;
pub(crate) use status::{BackupRequest, MICROS, PutBack, RestoreRequest};
pub use status::{BackupStatus, Backups, Verified};
pub use stream::{StreamSummary, unpack};
pub(crate) use take::remove_left;
pub use take::{Source, take_full, take_increment, take_stream};
pub use until::Until;

pub use crate::processor_time::{LOW, give_way};

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The manifest's name in a backup.
pub(crate) const MANIFEST: &str = "backup.json";
/// An increment's.
const INCREMENT_MANIFEST: &str = "increment.json";
/// The configuration's.
pub const CONFIGURATION: &str = "config.ldif";

/// Files of a backup have what only the server may read.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options
}

fn make_directory(path: &Path) -> Result<(), BackupError> {
    fs::DirBuilder::new().mode(0o700).create(path).map_err(BackupError::io("make", path))
}

/// Makes what was written to a directory and the names in it survive a loss of power.
fn sync_directory(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(BackupError::io("sync", path))
}

/// Writes a new file, durably.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    let write = |mut file: File| io::Write::write_all(&mut file, bytes).and_then(|()| file.sync_all());
    private().open(path).and_then(write).map_err(BackupError::io("write", path))
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing into a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
