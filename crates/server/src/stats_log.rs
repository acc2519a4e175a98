//! The server's log: lines in OpenLDAP's format, formatted by whoever has something to say, written by one thread of
//! its own. A loop never waits for a disk or for syslog; when the queue is full, lines are counted and dropped.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::config::values::LogLevel;

/// Lines that may wait for the log's thread.
pub const QUEUE_LINES: usize = 65_536;
/// Bytes gathered for one write.
const BATCH_BYTES: usize = 64 * 1024;
const SYSLOG_SOCKET: &str = "/dev/log";
/// Severity "debug", which OpenLDAP's lines have.
const SYSLOG_DEBUG: u32 = 7;

/// Where lines go, and which.
#[derive(Debug, Default)]
pub struct LogTargets {
    /// `-d`: levels written to standard error.
    pub stderr: u32,
    /// `loglevel` or `-s`: levels written to syslog, with the program's name.
    pub syslog: Option<SyslogTarget>,
    /// `logfile`: the levels of either of the two, appended here.
    pub file: Option<File>,
    /// Levels for the file.
    pub file_levels: u32,
}

/// syslog, by its local socket.
#[derive(Debug)]
pub struct SyslogTarget {
    pub levels: u32,
    /// `-n`, default `slapd`.
    pub program: String,
    /// The facility's number (LOCAL4 is 20).
    pub facility: u32,
    pub socket: UnixDatagram,
}

impl SyslogTarget {
    /// Connects to the machine's syslog; `None` where there is none.
    pub fn connect(levels: u32, program: &str, facility: u32) -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(SYSLOG_SOCKET).ok()?;
        // A syslog that hangs must not hang us: what does not fit is lost, as with any datagram.
        socket.set_nonblocking(true).ok()?;
        Some(Self { levels, program: program.to_owned(), facility, socket })
    }
}

/// The number of a facility that `-l` names: `LOCAL4`, `DAEMON`, `USER`.
pub fn syslog_facility(name: &str) -> Option<u32> {
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("LOG_").unwrap_or(&name);
    match name {
        "USER" => Some(1),
        "DAEMON" => Some(3),
        _ => name.strip_prefix("LOCAL")?.parse().ok().filter(|n| *n < 8).map(|n: u32| 16 + n),
    }
}

/// Opens a log file for appending.
pub fn open_log_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The handle everyone logs through. Cheap to ask, so that a line that nobody wants is never formatted.
#[derive(Debug)]
pub struct Log {
    levels: AtomicU32,
    lost: AtomicU64,
    queue: SyncSender<Entry>,
}

#[derive(Debug)]
enum Entry {
    Line {
        level: u32,
        at: Duration,
        thread: u64,
        text: String,
    },
    /// The server ends: write what is queued and return.
    End,
}

/// The log's thread. [`finish`](Self::finish) writes out what is queued.
#[derive(Debug)]
pub struct LogThread {
    handle: Option<JoinHandle<()>>,
    queue: SyncSender<Entry>,
}

impl Log {
    /// Starts the log's thread.
    pub fn start(targets: LogTargets) -> io::Result<(Self, LogThread)> {
        let (queue, entries) = sync_channel(QUEUE_LINES);
        let syslog_levels = targets.syslog.as_ref().map_or(0, |s| s.levels);
        let file_levels = if targets.file.is_some() { targets.file_levels } else { 0 };
        let levels = targets.stderr | syslog_levels | file_levels;
        let handle =
            std::thread::Builder::new().name("log".to_owned()).spawn(move || write_out(targets, &entries))?;
        let log = Self { levels: AtomicU32::new(levels), lost: AtomicU64::new(0), queue: queue.clone() };
        Ok((log, LogThread { handle: Some(handle), queue }))
    }

    /// Whether any target wants one of these levels.
    #[inline]
    pub fn wants(&self, levels: u32) -> bool {
        self.levels.load(Ordering::Relaxed) & levels != 0
    }

    /// Queues one line, if any target wants its level.
    pub fn line(&self, level: u32, text: fmt::Arguments<'_>) {
        if !self.wants(level) {
            return;
        }
        let entry = Entry::Line { level, at: time_of_day(), thread: thread_number(), text: text.to_string() };
        if self.queue.try_send(entry).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What an administrator must know whatever the levels: on standard error in the foreground, in syslog otherwise.
    pub fn notice(&self, text: fmt::Arguments<'_>) {
        self.line(LogLevel::ANY, text);
    }

    /// Lines dropped because the queue was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl LogThread {
    /// Writes out what is queued and ends the thread.
    pub fn finish(mut self) {
        // A full queue means the thread lives and takes from it: waiting is right here, at the server's end.
        if self.queue.send(Entry::End).is_ok()
            && let Some(handle) = self.handle.take()
        {
            // A panic of the log's thread was printed already; nothing is left to do about it.
            let _ = handle.join();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the server is where the ambient clock enters")]
fn time_of_day() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A small number for each thread that logs; OpenLDAP prints an address there.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

fn write_out(mut targets: LogTargets, entries: &Receiver<Entry>) {
    let mut to_stderr = Vec::new();
    let mut to_file = Vec::new();
    'lines: while let Ok(first) = entries.recv() {
        let mut next = Some(first);
        let mut ended = false;
        while let Some(entry) = next {
            match entry {
                Entry::End => {
                    ended = true;
                    break;
                }
                Entry::Line { level, at, thread, text } => {
                    let prefix = (at, thread);
                    if level & targets.stderr != 0 {
                        format_line(&mut to_stderr, prefix, &text);
                    }
                    if level & targets.file_levels != 0 && targets.file.is_some() {
                        format_line(&mut to_file, prefix, &text);
                    }
                    if let Some(syslog) = targets.syslog.as_ref().filter(|s| s.levels & level != 0) {
                        send_to_syslog(syslog, &text);
                    }
                }
            }
            if to_stderr.len() + to_file.len() >= BATCH_BYTES {
                break;
            }
            next = entries.try_recv().ok();
        }
        // The log cannot report that the log failed; what was not written is lost.
        let _ = io::stderr().write_all(&to_stderr);
        if let Some(file) = &mut targets.file {
            let _ = file.write_all(&to_file);
        }
        to_stderr.clear();
        to_file.clear();
        if ended {
            break 'lines;
        }
    }
}

/// `seconds.nanoseconds thread text`, the first two in hexadecimal, as OpenLDAP's debug lines begin.
fn format_line(out: &mut Vec<u8>, (at, thread): (Duration, u64), text: &str) {
    // Writing to a Vec cannot fail.
    let _ =
        writeln!(out, "{:08x}.{:08x} 0x{thread:012x} {}", at.as_secs(), at.subsec_nanos(), text.trim_end());
}

fn send_to_syslog(syslog: &SyslogTarget, text: &str) {
    let priority = syslog.facility * 8 + SYSLOG_DEBUG;
    let line = format!("<{priority}>{}[{}]: {}", syslog.program, std::process::id(), text.trim_end());
    // A datagram to a syslog that is away or slow is lost by design.
    let _ = syslog.socket.send(line.as_bytes());
}

/// Text for a log line: control characters and bytes that are no UTF-8 become `#HH`, so that a client cannot write
/// lines of its own into the log.
pub fn printable(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if character.is_control() {
            safe.push_str(&format!("#{:02X}", u32::from(character)));
        } else {
            safe.push(character);
        }
    }
    safe.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_reach_the_file_in_order_and_only_those_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let targets = LogTargets {
            file: Some(open_log_file(&path).unwrap()),
            file_levels: LogLevel::STATS,
            ..LogTargets::default()
        };
        let (log, thread) = Log::start(targets).unwrap();
        for n in 0..3 {
            log.line(LogLevel::STATS, format_args!("conn={n} fd=1 closed"));
            log.line(LogLevel::STATS2, format_args!("not wanted"));
        }
        thread.finish();
        let written = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = written.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap()).collect();
        assert_eq!(lines, ["conn=0 fd=1 closed", "conn=1 fd=1 closed", "conn=2 fd=1 closed"]);
    }

    #[test]
    fn facilities() {
        for (name, expected) in [
            ("LOCAL4", Some(20)),
            ("local0", Some(16)),
            ("DAEMON", Some(3)),
            ("LOCAL8", None),
            ("MAIL", None),
        ] {
            assert_eq!(syslog_facility(name), expected, "{name}");
        }
    }

    #[test]
    fn a_client_cannot_write_lines() {
        assert_eq!(printable("cn=a\nconn=1 fd=2 closed"), "cn=a#0Aconn=1 fd=2 closed");
    }
}
