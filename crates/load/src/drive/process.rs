//! What a server's process used, from `/proc`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Address;

/// CPU time and memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time of all its threads, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory, mapped files included, in bytes.
    pub resident: u64,
}

impl Usage {
    /// Reads the usage of `process`.
    ///
    /// # Errors
    /// No such process, or a `/proc` that says it otherwise than proc(5).
    pub fn of(process: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{process}/stat");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        // The second field is the name in parentheses and may hold spaces: count from the last parenthesis.
        let fields: Vec<&str> = text.rsplit(") ").next().unwrap_or("").split_whitespace().collect();
        let field = |index: usize| -> anyhow::Result<u64> {
            let text = fields.get(index).with_context(|| format!("{path} has no field {index}"))?;
            text.parse().with_context(|| format!("{path}: field {index} is {text:?}"))
        };
        let ticks = rustix::param::clock_ticks_per_second();
        let pages = rustix::param::page_size() as u64;
        Ok(Self {
            cpu_seconds: (field(11)? + field(12)?) as f64 / ticks as f64,
            resident: field(21)? * pages,
        })
    }
}

/// CPU time of one thread, and how long it waited for a core.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadUsage {
    pub(super) cpu_seconds: f64,
    pub(super) waited_seconds: f64,
}

impl ThreadUsage {
    /// Of the calling thread, since its start; nothing where the kernel keeps no scheduler statistics.
    pub(super) fn now() -> Self {
        // Nanoseconds on a core and waiting for one, then how often (the kernel's sched-stats.rst).
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut seconds =
            statistics.split_whitespace().map(|text| text.parse().map_or(0.0, |nanos: f64| nanos / 1e9));
        let mut next = || seconds.next().unwrap_or(0.0);
        Self { cpu_seconds: next(), waited_seconds: next() }
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            waited_seconds: self.waited_seconds - before.waited_seconds,
        }
    }
}

/// Bytes that files, and all files below directories, take on the disk; a sparse file counts by its blocks.
///
/// # Errors
/// A path that cannot be read. A file that goes away meanwhile counts nothing.
pub fn disk_bytes(paths: &[PathBuf]) -> anyhow::Result<u64> {
    let mut sum = 0;
    for path in paths {
        let metadata = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        sum += metadata.blocks() * 512;
        if metadata.is_dir() {
            let mut waiting = vec![path.clone()];
            while let Some(directory) = waiting.pop() {
                sum += below(&directory, &mut waiting)
                    .with_context(|| format!("cannot read {}", directory.display()))?;
            }
        }
    }
    Ok(sum)
}

/// Bytes of a directory's own files; its directories are appended to `waiting`.
fn below(directory: &Path, waiting: &mut Vec<PathBuf>) -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(metadata) = entry.metadata() else { continue };
        sum += metadata.blocks() * 512;
        if metadata.is_dir() {
            waiting.push(entry.path());
        }
    }
    Ok(sum)
}

/// The process that listens on an address of this machine; none if there is none that this user may look into.
pub fn listening_process(address: &Address) -> Option<u32> {
    let inode = match address {
        Address::Tcp(address) => tcp_inode(address.port())?,
        Address::Unix(path) => unix_inode(path)?,
    };
    let socket = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes.find(|process| {
        let Ok(files) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
        files
            .flatten()
            .any(|file| std::fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == &*socket))
    })
}

/// The inode of the socket that listens on `port`: state 0A in `/proc/net/tcp` (proc(5)).
fn tcp_inode(port: u16) -> Option<String> {
    let suffix = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|path| {
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let listens = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == "0A";
            listens.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
        })
    })
}

fn unix_inode(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string("/proc/net/unix").ok()?;
    text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (Path::new(fields.get(7)?) == path).then(|| fields.get(6).map(|inode| (*inode).to_owned()))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.resident > 0, "{usage:?}");
        assert!(Usage::of(u32::MAX).is_err());
    }

    #[test]
    fn listeners_are_found() {
        // A child that another test starts has the listener, too, until it runs its program.
        let listens = |address: &Address, process: Option<u32>| {
            std::iter::repeat_with(|| listening_process(address)).take(1_000).any(|found| found == process)
        };
        let own = Some(std::process::id());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(listens(&Address::Tcp(address), own));
        drop(listener);
        assert!(listens(&Address::Tcp(address), None));
        let path = std::env::temp_dir().join(format!("larix-load-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(listens(&Address::Unix(path.clone()), own));
        drop(listener);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn disk_usage_is_in_blocks() {
        let path = std::env::temp_dir().join(format!("larix-load-disk-{}", std::process::id()));
        std::fs::create_dir_all(path.join("below")).unwrap();
        let empty = disk_bytes(std::slice::from_ref(&path)).unwrap();
        std::fs::write(path.join("below/file"), vec![1; 100_000]).unwrap();
        let full = disk_bytes(std::slice::from_ref(&path)).unwrap();
        assert!(full >= empty, "{empty} {full}");
        std::fs::remove_dir_all(&path).unwrap();
        let error = disk_bytes(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}
