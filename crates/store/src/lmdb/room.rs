//! Room at the end of the data file, written before it is needed.
//!
//! The sync of a commit that makes the file longer waits for the file system's journal, too. On ext4 the two flushes of a
//! commit of ten pages took 238 us where all pages stood in the file, 298 us where one made it longer, and 252 us where
//! that one stood in zeros written before (medians of 400, four runs). Room that is only reserved (`fallocate`) gains
//! nothing: the journal hears of its first use.
//!
//! Nothing reads what stands behind the last page that a commit knows, and only the holder of the writer's lock, between
//! its transactions, writes there: so it is never more than zeros that LMDB overwrites.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::directory::lock_as_writer;

/// How long the room is when it is made.
const ROOM_BYTES: u64 = 512 << 10;
/// Room is made when less than this is left: a usual commit needs less.
const ROOM_LEFT_MIN: u64 = 128 << 10;

const _: () = assert!(ROOM_LEFT_MIN < ROOM_BYTES);

/// The data file of a store that is open for writing. It is locked for as long: the lock file can be removed alone, this one cannot.
#[derive(Debug)]
pub(super) struct Room {
    file: File,
    /// Where the file ends, or before where nothing is tried again.
    end: u64,
}

impl Drop for Room {
    /// As for the lock file: children between fork and exec have the same open file.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Room {
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: another store has it open for writing.
    pub(super) fn open(data: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(data)?;
        lock_as_writer(&file)?;
        let end = file.metadata()?.len();
        Ok(Self { file, end })
    }

    /// The data file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Sees to it that there is room behind the first `used` bytes of the file. It only makes the next commits cheaper:
    /// where it fails, on a full disk, they find out for themselves.
    pub(super) fn make(&mut self, used: u64) {
        if self.end >= used.saturating_add(ROOM_LEFT_MIN) {
            return;
        }
        let wanted = used.saturating_add(ROOM_BYTES);
        let from = self.end.max(used);
        let zeros = vec![0; usize::try_from(wanted - from).unwrap_or_default()];
        // After an error another try waits until the file has grown by so much without it.
        if self.file.write_all_at(&zeros, from).is_err() {
            self.reach(used);
        }
        self.end = wanted;
    }
}

impl Room {
    /// LMDB does not write free pages at the end. The file reaches them all the same, so that one that was cut is known; that takes no
    /// room on the disk.
    fn reach(&self, used: u64) {
        if self.file.metadata().is_ok_and(|file| file.len() < used) {
            // Without it the file is as LMDB leaves it.
            let _ = self.file.set_len(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_behind_what_is_used_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, [7; 8192]).unwrap();
        let mut room = Room::open(&path).unwrap();
        for (used, end) in [
            (8192, 8192 + ROOM_BYTES),
            (8192 + ROOM_BYTES - ROOM_LEFT_MIN, 8192 + ROOM_BYTES),
            (8192 + ROOM_BYTES - ROOM_LEFT_MIN + 4096, 8192 + 2 * ROOM_BYTES - ROOM_LEFT_MIN + 4096),
            // Another process has extended the file; its bytes are not overwritten.
            (4 * ROOM_BYTES, 5 * ROOM_BYTES),
        ] {
            room.make(used);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), end, "{used}");
        }
        room.reach(8192);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 5 * ROOM_BYTES, "it is not cut");
        room.reach(6 * ROOM_BYTES);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 6 * ROOM_BYTES);
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[..8192].iter().all(|byte| *byte == 7) && bytes[8192..].iter().all(|byte| *byte == 0));
    }
}
