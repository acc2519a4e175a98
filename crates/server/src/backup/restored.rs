//! The note that a restore leaves beside the restored database, for the administrator.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use larix_engine::time::Timestamp;
use larix_store::lmdb::{DATA_FILE, UNPACKING, give_to_owner};
use serde_json::{Value, json};

use super::{BackupError, Restored, sync_directory};

const NAME: &str = "restored.json";

/// The last restore of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreNote {
    /// When it was complete.
    pub at: Timestamp,
    /// The backup's directory; `-`: a stream.
    pub backup: String,
    pub entries: u64,
    /// Carried out on the copy, to come to the moment that was asked for.
    pub changes: u64,
    /// When the last change was made that is in it.
    pub last: Option<Timestamp>,
}

impl RestoreNote {
    pub(super) fn new(at: Timestamp, backup: &Path, restored: &Restored) -> Self {
        // The directory of a stream goes when the restore ends.
        let is_stream = backup.file_name().is_some_and(|name| name == UNPACKING);
        Self {
            at,
            backup: if is_stream { "-".to_owned() } else { backup.display().to_string() },
            entries: restored.entries,
            changes: restored.changes,
            last: restored.last.map(|csn| csn.time),
        }
    }

    /// Writes it into a database's directory. `data` is the file that was restored; it may not have its name yet.
    pub(super) fn write(&self, directory: &Path, data: &Path) -> Result<(), BackupError> {
        let Self { at, backup, entries, changes, last } = self;
        let path = directory.join(NAME);
        let write = || {
            let text = json!({
                "at": at.0, "backup": backup, "entries": entries, "changes": changes,
                "last": last.map(|time| time.0), "file": identity(data)?
            });
            let mut file = fs::File::create(&path)?;
            writeln!(file, "{text}")?;
            file.sync_all()
        };
        write().map_err(BackupError::io("write", &path))?;
        give_to_owner(directory, &[NAME]);
        sync_directory(directory)
    }

    /// That of a database's directory; `None`: the database that is there was not restored, or what says so cannot be read.
    pub fn read(directory: &Path) -> Option<Self> {
        let value: Value = serde_json::from_slice(&fs::read(directory.join(NAME)).ok()?).ok()?;
        if value.get("file")?.as_str()? != identity(&directory.join(DATA_FILE)).ok()? {
            return None;
        }
        Some(Self {
            at: Timestamp(value.get("at")?.as_i64()?),
            backup: value.get("backup")?.as_str()?.to_owned(),
            entries: value.get("entries")?.as_u64()?,
            changes: value.get("changes")?.as_u64()?,
            last: value.get("last")?.as_i64().map(Timestamp),
        })
    }
}

/// Which file it is, whatever its name: inode and time of birth. A database that took the place of a restored one has another file.
fn identity(file: &Path) -> io::Result<String> {
    let metadata = fs::metadata(file)?;
    // Inodes are used again; not every file system has the time.
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    Ok(format!("{}-{}", metadata.ino(), born.map_or(0, |born| born.as_nanos())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join(DATA_FILE);
        fs::write(&data, "a").unwrap();
        assert_eq!(RestoreNote::read(directory.path()), None);
        let mut note = RestoreNote {
            at: Timestamp(5),
            backup: "/var/\"backup\"".to_owned(),
            entries: 7,
            changes: 0,
            last: Some(Timestamp(3)),
        };
        for last in [Some(Timestamp(3)), None] {
            note.last = last;
            note.write(directory.path(), &data).unwrap();
            assert_eq!(RestoreNote::read(directory.path()), Some(note.clone()));
        }
        // Another database in its place; the file of before is there, so that its inode is not free.
        fs::rename(&data, directory.path().join("before")).unwrap();
        assert_eq!(RestoreNote::read(directory.path()), None);
        fs::write(&data, "a").unwrap();
        assert_eq!(RestoreNote::read(directory.path()), None);
        fs::rename(directory.path().join("before"), &data).unwrap();
        assert_eq!(RestoreNote::read(directory.path()), Some(note));
        fs::write(directory.path().join(NAME), "{").unwrap();
        assert_eq!(RestoreNote::read(directory.path()), None);
    }

    #[test]
    fn a_stream_has_no_directory() {
        let restored = Restored { entries: 1, changes: 0, last: None };
        for (from, backup) in [("/db/restore.stream", "-"), ("/backup/monday", "/backup/monday")] {
            assert_eq!(RestoreNote::new(Timestamp(5), Path::new(from), &restored).backup, backup);
        }
    }
}
