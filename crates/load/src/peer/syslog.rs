//! What the servers log while they are measured, and who takes the lines.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};

use super::Guard;

/// Where syslog(3) sends lines.
const SOCKET: &str = "/dev/log";
/// How long the thread that takes lines waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is looked whether lines still come, before the count is taken as it is.
const REST_LOOKS: u32 = 100;
/// So many looks in a row find no new line when all have come.
const QUIET_LOOKS: u32 = 3;
/// Lines for which a new socket has room, and what they are set to while ours is made: what systemd sets them to. With room for
/// the kernel's 10, every tenth line would wait for a switch of threads.
const ROOM: (&str, &str) = ("/proc/sys/net/unix/max_dgram_qlen", "512");
/// Syslog daemons cut longer lines; so does this one.
const LINE_BYTES: usize = 8 << 10;
/// The priority, a time, the name and the number of a process take no more.
const HEAD_BYTES: usize = 64;

/// What every server logs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogLevel {
    #[default]
    Nothing,
    /// A line for each connection, operation and result, sent to syslog.
    Stats,
}

impl LogLevel {
    /// Both, in the order in which reports name them.
    pub(crate) const ALL: [Self; 2] = [Self::Nothing, Self::Stats];

    /// The value of `loglevel` in slapd.conf. Without that line slapd logs `stats`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "0",
            Self::Stats => "stats",
        }
    }
}

/// How many lines came of each process, by the number that it gives with them.
type LineCounts = BTreeMap<u32, u64>;

/// Takes the lines that servers send to syslog, counts and drops them: other programs of the machine send theirs, too. Gone when dropped.
#[derive(Debug)]
pub(crate) struct SyslogSink {
    line_counts: Arc<Mutex<LineCounts>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    guard: Guard,
}

impl SyslogSink {
    /// Makes the socket that syslog(3) sends to.
    ///
    /// # Errors
    /// A syslog daemon has it: what that costs would be measured, too. It cannot be made: only root may.
    pub(crate) fn open(guard: &Guard) -> anyhow::Result<Self> {
        Self::open_at(Path::new(SOCKET), guard)
    }

    fn open_at(path: &Path, guard: &Guard) -> anyhow::Result<Self> {
        let probe = UnixDatagram::unbound().context("no socket")?;
        match probe.connect(path) {
            Ok(()) => bail!(
                "a syslog daemon listens at {}: its work would be measured with the servers'. Stop it, or compare in a \
                 container without one",
                path.display()
            ),
            // From a process that has ended.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
            Err(_) => {}
        }
        let socket = with_room(|| UnixDatagram::bind(path)).with_context(|| {
            format!("cannot make {}, to which the servers send their lines: root may", path.display())
        })?;
        guard.add_file(path);
        // syslog(3) of another user writes there, too.
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
        socket.set_read_timeout(Some(LOOK))?;
        let (line_counts, ends) = (Arc::<Mutex<LineCounts>>::default(), Arc::<AtomicBool>::default());
        let (counts, is_over) = (Arc::clone(&line_counts), Arc::clone(&ends));
        let take = move || {
            let mut line = [0; LINE_BYTES];
            while !is_over.load(Ordering::Relaxed) {
                let taken = socket.recv(&mut line).ok().and_then(|length| line.get(..length));
                if let Some(process) = taken.and_then(sender) {
                    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                    *counts.entry(process).or_default() += 1;
                }
            }
        };
        let thread = std::thread::Builder::new().name("syslog".to_owned()).spawn(take)?;
        Ok(Self { line_counts, ends, thread: Some(thread), guard: guard.clone() })
    }

    /// Lines of a process when none came for a moment: a server may send its lines behind its answers.
    pub(crate) fn line_count_at_rest(&self, process: u32) -> u64 {
        let (mut line_count, mut quiet) = (self.line_count(process), 0);
        for _ in 0..REST_LOOKS {
            std::thread::park_timeout(LOOK);
            let now = self.line_count(process);
            quiet = if now == line_count { quiet + 1 } else { 0 };
            if quiet == QUIET_LOOKS {
                break;
            }
            line_count = now;
        }
        line_count
    }

    /// Lines of a process so far.
    pub(crate) fn line_count(&self, process: u32) -> u64 {
        let counts = self.line_counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&process).copied().unwrap_or_default()
    }
}

/// The process that a line is of: `<167>slapd[4711]: conn=1 op=1 SRCH`, perhaps with a time before the name.
fn sender(line: &[u8]) -> Option<u32> {
    let begin = line.iter().take(HEAD_BYTES).position(|byte| *byte == b'[')? + 1;
    let rest = line.get(begin..)?;
    let end = rest.iter().position(|byte| *byte == b']')?;
    std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
}

/// Makes a socket while the system has room for more lines in new ones. Where that cannot be set, it has the room that there is.
fn with_room<T>(make: impl FnOnce() -> T) -> T {
    let (setting, lines) = ROOM;
    let before = std::fs::read_to_string(setting).ok();
    let is_less = before.as_ref().is_some_and(|before| {
        before
            .trim()
            .parse::<u64>()
            .ok()
            .zip(lines.parse().ok())
            .is_some_and(|(before, lines)| before < lines)
    });
    let changed = is_less && std::fs::write(setting, lines).is_ok();
    let socket = make();
    if let Some(before) = before.filter(|_| changed) {
        // It was written a moment ago.
        let _ = std::fs::write(setting, before);
    }
    socket
}

impl Drop for SyslogSink {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.guard.remove_files();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_and_the_socket_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let guard = Guard::default();
        // One that was left behind.
        drop(UnixDatagram::bind(&path).unwrap());
        let sink = SyslogSink::open_at(&path, &guard).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        for _ in 0..100 {
            for line in [
                "<167>slapd[1]: conn=1 op=1 SRCH",
                "<167>Nov 30 01:47:14 slapd[7]: conn=[1]",
                "<13>root: of nobody",
            ] {
                sender.send_to(line.as_bytes(), &path).unwrap();
            }
        }
        sender.send_to(b"<167>slapd[9]: the last", &path).unwrap();
        while sink.line_count(9) == 0 {
            std::thread::yield_now();
        }
        // What other processes send counts for them.
        assert_eq!([1, 7, 13].map(|process| sink.line_count(process)), [100, 100, 0]);
        let error = SyslogSink::open_at(&path, &guard).unwrap_err().to_string();
        assert!(error.contains("a syslog daemon listens at"), "{error}");
        drop(sink);
        assert!(!path.exists());
    }
}
