//! Where tests keep their files: in memory, where the machine has a file system for that. The servers that they start make some hundred
//! thousand commits, and each would wait for the disk. The tests without packages, and the load generator's scenarios, use the disk.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder of temporary files. Where it is set, it is kept.
const VARIABLE: &str = "TMPDIR";
/// Linux has a file system in memory there (shm_overview(7)).
const MEMORY: &str = "/dev/shm";
/// Free bytes that it must have. All tests together take a quarter.
const LEAST_BYTES: u64 = 4 << 30;

/// A folder in memory that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryFolder(PathBuf);

impl MemoryFolder {
    /// None if the caller names a folder, or if there is not enough memory for one.
    pub(crate) fn make() -> Option<Self> {
        if std::env::var_os(VARIABLE).is_some() || free_bytes(Path::new(MEMORY))? < LEAST_BYTES {
            return None;
        }
        Self::make_in(Path::new(MEMORY))
    }

    fn make_in(memory: &Path) -> Option<Self> {
        let path = memory.join(format!("larix-tests-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let folder = Self(path);
        // As with /tmp: engines that tests start as other users have files there.
        std::fs::set_permissions(&folder.0, Permissions::from_mode(0o1777)).ok()?;
        Some(folder)
    }

    /// Has what the command starts keep its temporary files there.
    pub(crate) fn give(&self, command: &mut Command) {
        command.env(VARIABLE, &self.0);
    }
}

impl Drop for MemoryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Those of the file system, and of the memory that it is in, whichever is less.
fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    let memory = available(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize).min(memory))
}

/// The memory that is available, in bytes, as proc_meminfo(5) has it.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_with_all_that_is_in_it() {
        let memory = tempfile::tempdir().expect("a folder");
        let folder = MemoryFolder::make_in(memory.path()).expect("made");
        let mode = std::fs::metadata(&folder.0).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o1777);
        assert!(MemoryFolder::make_in(memory.path()).is_none(), "nobody else's folder is taken");
        std::fs::create_dir(folder.0.join("data")).expect("a folder in it");
        drop(folder);
        assert_eq!(std::fs::read_dir(memory.path()).expect("it can be read").count(), 0);
    }

    #[test]
    fn memory_is_read_as_the_kernel_writes_it() {
        assert_eq!(
            available("MemTotal:  10 kB\nMemAvailable:   24106 kB\nSwapFree: 0 kB\n"),
            Some(24106 << 10)
        );
        assert_eq!(available("MemTotal:  10 kB\n"), None);
        assert_eq!(available("MemAvailable: many kB\n"), None);
    }
}
