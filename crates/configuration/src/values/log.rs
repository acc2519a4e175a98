//! The directives about the log: which lines, how they are written and where.

use std::path::Path;
use std::time::Duration;

use crate::line::c_integer;

/// `loglevel` and `-d`: OpenLDAP's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevel(pub u32);

impl LogLevel {
    pub const TRACE: u32 = 0x1;
    pub const PACKETS: u32 = 0x2;
    pub const ARGS: u32 = 0x4;
    pub const CONNS: u32 = 0x8;
    pub const BER: u32 = 0x10;
    pub const FILTER: u32 = 0x20;
    pub const CONFIG: u32 = 0x40;
    pub const ACL: u32 = 0x80;
    pub const STATS: u32 = 0x100;
    pub const STATS2: u32 = 0x200;
    pub const SHELL: u32 = 0x400;
    pub const PARSE: u32 = 0x800;
    pub const SYNC: u32 = 0x4000;
    pub const NONE: u32 = 0x8000;
    /// What `overlay pcache` does: OpenLDAP has the name as soon as the overlay is there.
    pub const PCACHE: u32 = 0x1_0000;
    pub const ANY: u32 = u32::MAX;

    /// Every named level with its bits, in OpenLDAP's order.
    pub const NAMES: [(&'static str, u32); 15] = [
        ("Any", Self::ANY),
        ("Trace", Self::TRACE),
        ("Packets", Self::PACKETS),
        ("Args", Self::ARGS),
        ("Conns", Self::CONNS),
        ("BER", Self::BER),
        ("Filter", Self::FILTER),
        ("Config", Self::CONFIG),
        ("ACL", Self::ACL),
        ("Stats", Self::STATS),
        ("Stats2", Self::STATS2),
        ("Shell", Self::SHELL),
        ("Parse", Self::PARSE),
        ("Sync", Self::SYNC),
        ("None", Self::NONE),
    ];

    /// The levels at which the server writes lines.
    const WRITTEN: u32 = Self::CONNS | Self::CONFIG | Self::STATS | Self::SYNC | Self::NONE | Self::PCACHE;

    /// Whether there are levels, and none of them has lines.
    pub fn is_silent(self) -> bool {
        self.0 != 0 && !self.has(Self::WRITTEN)
    }

    /// Whether any of `bits` is on.
    pub fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    /// One word: a name, or bits as C writes a number (`-1` is all).
    pub fn parse_word(word: &str) -> Option<Self> {
        if let Some((_, bits)) = Self::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
            return Some(Self(*bits));
        }
        if word.eq_ignore_ascii_case("pcache") {
            return Some(Self(Self::PCACHE));
        }
        let number = c_integer(word)?;
        // Negative numbers are two's complement, as C reads them.
        u32::try_from(number).ok().or_else(|| i32::try_from(number).ok().map(i32::cast_unsigned)).map(Self)
    }
}

impl Default for LogLevel {
    /// OpenLDAP logs `stats` by default.
    fn default() -> Self {
        Self(Self::STATS)
    }
}

/// How lines are written (`log-format`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// OpenLDAP's lines.
    #[default]
    Stats,
    /// One JSON object a line, and one line an operation.
    Json,
}

/// What stands before a line in the log file (`logfile-format`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum LinePrefix {
    /// Seconds and nanoseconds in hexadecimal, and the thread.
    #[default]
    Debug,
    /// RFC 3339 in UTC, host, program and process, as syslog writes them.
    Syslog,
}

/// When the log file is put aside (`logfile-rotate`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LogRotation {
    /// Old files kept, 1 to 99.
    pub keep: u8,
    /// A file gets no larger; `None`: its size does not matter.
    pub bytes: Option<u64>,
    /// A file gets no older; `None`: its age does not matter.
    pub age: Option<Duration>,
}

impl LogRotation {
    /// `logfile-rotate <files> <megabytes> <hours>`; what is wrong with them and where.
    pub(crate) fn new(files: u32, megabytes: u32, hours: u32) -> Result<Self, (usize, &'static str)> {
        const MEGABYTE: u64 = 1024 * 1024;
        const HOUR: u64 = 3600;
        let keep = u8::try_from(files).ok().filter(|files| (1..=99).contains(files));
        let keep = keep.ok_or((0, "1 to 99 old files can be kept"))?;
        if megabytes == 0 && hours == 0 {
            return Err((1, "a size or an age is needed: without either the file is never put aside"));
        }
        let bytes = (megabytes > 0).then(|| u64::from(megabytes) * MEGABYTE);
        let age = (hours > 0).then(|| Duration::from_secs(u64::from(hours) * HOUR));
        Ok(Self { keep, bytes, age })
    }
}

/// The directives about the log, as the configuration has them.
#[derive(Copy, Clone, Debug)]
pub struct LogDirectives<'a> {
    /// `loglevel`.
    pub level: LogLevel,
    /// `log-format`.
    pub format: LogFormat,
    /// `logfile-format`.
    pub prefix: LinePrefix,
    /// `logfile`.
    pub file: Option<&'a Path>,
    /// `logfile-rotate`.
    pub rotation: Option<LogRotation>,
    /// `logfile-only`: nothing goes to standard error or syslog once the log file is open.
    pub file_only: bool,
    /// `log-journal`: lines go to journald by its own protocol instead of syslog's.
    pub journal: bool,
    /// `slow-operation`: operations that take longer are logged.
    pub slow_operation: Option<Duration>,
}
