//! The note that a restore leaves beside the restored database, for the administrator.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use larix_engine::time::Timestamp;
use larix_store::lmdb::give_to_owner;
use serde_json::{Value, json};

use super::{BackupError, Restored, sync_directory};

const NAME: &str = "restored.json";

/// The last restore of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreNote {
    /// When it was complete.
    pub at: Timestamp,
    /// The backup's directory.
    pub backup: String,
    pub entries: u64,
    /// Carried out on the copy, to come to the moment that was asked for.
    pub changes: u64,
    /// When the last change was made that is in it.
    pub last: Option<Timestamp>,
}

impl RestoreNote {
    pub(super) fn new(at: Timestamp, backup: &Path, restored: &Restored) -> Self {
        Self {
            at,
            backup: backup.display().to_string(),
            entries: restored.entries,
            changes: restored.changes,
            last: restored.last.map(|csn| csn.time),
        }
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), BackupError> {
        let Self { at, backup, entries, changes, last } = self;
        let text = json!({
            "at": at.0, "backup": backup, "entries": entries, "changes": changes, "last": last.map(|time| time.0)
        });
        let path = directory.join(NAME);
        let write = || {
            let mut file = fs::File::create(&path)?;
            writeln!(file, "{text}")?;
            file.sync_all()
        };
        write().map_err(BackupError::io("write", &path))?;
        give_to_owner(directory, &[NAME]);
        sync_directory(directory)
    }

    /// That of a database's directory; `None`: it was not restored, or what says so cannot be read.
    pub fn read(directory: &Path) -> Option<Self> {
        let value: Value = serde_json::from_slice(&fs::read(directory.join(NAME)).ok()?).ok()?;
        Some(Self {
            at: Timestamp(value.get("at")?.as_i64()?),
            backup: value.get("backup")?.as_str()?.to_owned(),
            entries: value.get("entries")?.as_u64()?,
            changes: value.get("changes")?.as_u64()?,
            last: value.get("last")?.as_i64().map(Timestamp),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
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
            note.write(directory.path()).unwrap();
            assert_eq!(RestoreNote::read(directory.path()), Some(note.clone()));
        }
        fs::write(directory.path().join(NAME), "{").unwrap();
        assert_eq!(RestoreNote::read(directory.path()), None);
    }
}
