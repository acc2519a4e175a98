//! Where tests keep their files: in memory, where the machine has a file system for that. The servers that they start commit
//! often, and each commit would wait for the disk. The tests without packages, and the load generator's scenarios, use the disk.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder of temporary files. Where it is set, it is kept.
const VARIABLE: &str = "TMPDIR";
/// Linux has a file system in memory there (shm_overview(7)).
const MEMORY: &str = "/dev/shm";
/// How its name begins; the number of the process follows.
const NAME: &str = "larix-tests-";
/// Free bytes that it must have. All tests together took 0.9 GB.
const LEAST_BYTES: u64 = 4 << 30;

/// A folder in memory that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct MemoryFolder(PathBuf);

impl MemoryFolder {
    /// None if the caller names a folder, if there is not enough memory for one, or if no program may be started from there.
    pub(crate) fn make() -> Option<Self> {
        let memory = Path::new(MEMORY);
        if std::env::var_os(VARIABLE).is_some() {
            return None;
        }
        remove_left(memory);
        if free_bytes(memory)? < LEAST_BYTES {
            return None;
        }
        Self::make_in(memory)
    }

    fn make_in(memory: &Path) -> Option<Self> {
        let path = memory.join(format!("{NAME}{}", std::process::id()));
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

/// Removes folders of processes that have ended without doing so, by Ctrl-C for instance.
fn remove_left(memory: &Path) {
    for entry in std::fs::read_dir(memory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u32>().ok());
        if number.is_some_and(|number| !Path::new("/proc").join(number.to_string()).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Those of the file system, and of the memory that it is in, whichever is less. None if no program may be started from there, as where
/// it is mounted `noexec`.
fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    if disk.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC) {
        return None;
    }
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
    fn what_a_killed_process_left_is_removed() {
        let memory = tempfile::tempdir().expect("a folder");
        let own = format!("{NAME}{}", std::process::id());
        // No process has this number.
        for name in [&*format!("{NAME}{}", u32::MAX), &own, "larix-tests-other"] {
            std::fs::create_dir_all(memory.path().join(name).join("data")).expect("a folder in it");
        }
        remove_left(memory.path());
        let left = std::fs::read_dir(memory.path()).expect("it can be read");
        let mut left: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
        left.sort();
        let mut expected = [own, "larix-tests-other".to_owned()];
        expected.sort();
        assert_eq!(left, expected.map(std::ffi::OsString::from));
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
