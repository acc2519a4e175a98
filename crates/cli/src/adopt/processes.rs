//! Processes that have a database open, from /proc: a pid file may be old, this is what is so.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to stop or to start: one with a large database and many clients takes its time.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) id: i32,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) arguments: Vec<String>,
}

impl Process {
    fn of(id: i32) -> Option<Self> {
        let folder = PathBuf::from(format!("/proc/{id}"));
        let about = fs::metadata(&folder).ok()?;
        let line = fs::read(folder.join("cmdline")).ok()?;
        let arguments = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        Some(Self { id, user: about.uid(), group: about.gid(), arguments: arguments.collect() })
    }

    /// Whether it is a server, not one of slapd's tools.
    pub(super) fn is_slapd(&self) -> bool {
        let program = self.arguments.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        program == "slapd" && !self.arguments.iter().any(|argument| argument.starts_with("-T"))
    }

    fn is_server(&self) -> bool {
        self.is_slapd() || self.arguments.get(1).is_some_and(|command| command == "serve")
    }

    /// What stands behind a flag of one letter: `-h URLS` or `-hURLS`.
    pub(super) fn flag(&self, flag: &str) -> Option<&str> {
        let at = self.arguments.iter().skip(1).position(|argument| argument.starts_with(flag))? + 1;
        match self.arguments.get(at)?.strip_prefix(flag)? {
            "" => self.arguments.get(at + 1).map(String::as_str),
            attached => Some(attached),
        }
    }

    pub(super) fn describe(&self) -> String {
        format!("process {} ({})", self.id, self.arguments.join(" ").trim_end())
    }
}

/// Processes that have a file below the directory open.
pub(super) fn with_files_in(directory: &Path) -> Vec<Process> {
    let Ok(directory) = directory.canonicalize() else { return Vec::new() };
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |id: &i32| {
        let Ok(files) = fs::read_dir(format!("/proc/{id}/fd")) else { return false };
        files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|path| path.starts_with(&directory)))
    };
    ids.filter(has).filter_map(Process::of).collect()
}

/// Waits until a condition holds, for [`PATIENCE`].
pub(super) fn wait_until(holds: impl FnMut() -> bool) -> bool {
    wait_for(PATIENCE, holds)
}

/// Waits until a condition holds; false when the time is over.
pub(super) fn wait_for(time: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = now() + time;
    while !holds() {
        if now() > end {
            return false;
        }
        std::thread::park_timeout(LOOK);
    }
    true
}

/// Asks servers that have files in the directory to end, and waits until no process has any: a backup may end by itself.
pub(super) fn end_servers(directory: &Path) -> anyhow::Result<()> {
    for process in with_files_in(directory).into_iter().filter(Process::is_server) {
        // It may have ended by itself.
        let _ = Pid::from_raw(process.id).map(|id| kill_process(id, Signal::TERM));
    }
    demand_none(directory)
}

/// Waits until no process has files in the directory open.
pub(super) fn demand_none(directory: &Path) -> anyhow::Result<()> {
    if wait_until(|| with_files_in(directory).is_empty()) {
        return Ok(());
    }
    let still: Vec<String> = with_files_in(directory).iter().map(Process::describe).collect();
    bail!(
        "{} is still open after {} s in {}: end it, then run this again",
        directory.display(),
        PATIENCE.as_secs(),
        still.join(", ")
    )
}

#[allow(clippy::disallowed_methods, reason = "the pause is about this machine's time")]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_where_slapd_finds_them() {
        let process = |line: &str| Process {
            id: 1,
            user: 0,
            group: 0,
            arguments: line.split(' ').map(str::to_owned).collect(),
        };
        for (line, flag, value) in [
            ("/usr/sbin/slapd -h ldap:/// -F /etc", "-h", Some("ldap:///")),
            ("slapd -Fdir", "-F", Some("dir")),
            ("slapd -F dir", "-h", None),
            ("slapd -h", "-h", None),
        ] {
            assert_eq!(process(line).flag(flag), value, "{line}");
        }
        assert!(process("/usr/sbin/slapd -F x").is_slapd());
        assert!(
            !process("/usr/sbin/slapd -Tcat").is_slapd() && !process("/usr/sbin/slapcat -F x").is_slapd()
        );
    }

    #[test]
    fn this_process_is_seen_by_its_files() {
        let folder = tempfile::tempdir().unwrap();
        assert!(with_files_in(folder.path()).is_empty());
        let _file = fs::File::create(folder.path().join("data.mdb")).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(with_files_in(folder.path()).iter().any(|process| process.id == own));
    }
}
