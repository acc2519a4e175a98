//! How much memory is left for the data: this decides whether the kernel reads ahead on the map.
//!
//! A directory reads single pages in no order. While the data fit the memory, reading ahead warms them up in fewer
//! requests to the disk; past the memory every page read ahead drives out one that is needed. On data twice the memory
//! LMDB made 241 random reads a second with it and 24,568 without (one run of `cargo xtask engines`).

use std::path::{Path, PathBuf};

/// Whether reading ahead serves a database of `size` bytes: it does while the data take at most half of `memory`.
pub(super) fn reads_ahead(size: u64, memory: Option<u64>) -> bool {
    memory.is_none_or(|memory| size <= memory / 2)
}

/// Bytes of memory that this process may use: the machine's, or less where a control group says so. None where the
/// system does not tell.
pub(super) fn available() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| machine_total(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|file| read(&file)?.trim().parse().ok());
    machine.into_iter().chain(limits).min()
}

/// The line `MemTotal:  24000000 kB`.
fn machine_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The files that hold the memory limits of the process's control group and of those above it, versions 1 and 2.
/// A line of `groups` is `number:controllers:path`; version 2 names no controllers.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut group = Some(Path::new(path.trim_start_matches('/')));
        while let Some(path) = group {
            files.push(Path::new(root).join(path).join(file));
            group = path.parent();
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_in_every_group_above() {
        let files = |groups: &str| -> Vec<String> {
            limit_files(groups).iter().map(|file| file.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(
            files("0::/system.slice/larix.service\n"),
            [
                "/sys/fs/cgroup/system.slice/larix.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            files("8:pids:/\n4:memory:/one\n"),
            [
                "/sys/fs/cgroup/memory/one/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        assert!(files("nonsense\n").is_empty());
    }

    #[test]
    fn the_machine_s_memory_is_read() {
        let cases = [
            ("MemTotal:       24000 kB\nMemFree: 1 kB\n", Some(24_576_000)),
            ("MemFree: 1 kB\n", None),
            ("MemTotal: many kB\n", None),
        ];
        for (text, expected) in cases {
            assert_eq!(machine_total(text), expected, "{text}");
        }
    }

    #[test]
    fn reading_ahead_stops_at_half_of_the_memory() {
        for (size, memory, expected) in
            [(50, Some(100), true), (51, Some(100), false), (u64::MAX, None, true), (0, Some(0), true)]
        {
            assert_eq!(reads_ahead(size, memory), expected, "{size} {memory:?}");
        }
    }
}
