//! The settings of the log, from the configuration and from the command line.

use std::path::Path;
use std::time::Duration;

use super::file::{LogFile, LogFileError};
use super::level::LogLevel;

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

/// What the command line says about the log.
#[derive(Clone, Debug, Default)]
pub struct LogCall {
    /// `-d`: levels written to standard error.
    pub debug: u32,
    /// `-s`: levels instead of the configuration's.
    pub syslog_levels: Option<u32>,
    /// `-n`, default `slapd`.
    pub program: String,
    /// The facility's number (LOCAL4 is 20).
    pub facility: u32,
    /// Nothing goes to syslog or the journal.
    pub no_syslog: bool,
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

/// The same with the log file open.
#[derive(Debug)]
pub struct LogSettings {
    pub(super) levels: u32,
    pub(super) format: LogFormat,
    pub(super) prefix: LinePrefix,
    pub(super) file: Option<LogFile>,
    pub(super) file_only: bool,
    /// Lines go to journald by its own protocol instead of syslog's.
    pub(super) journal: bool,
    /// Operations that take longer are logged.
    pub(super) slow: Option<Duration>,
}

impl LogSettings {
    /// Opens the log file, if there is one.
    ///
    /// # Errors
    /// The log file cannot be opened.
    pub fn open(directives: &LogDirectives<'_>) -> Result<Self, LogFileError> {
        let rotation = directives.rotation;
        let file = directives.file.map(|path| LogFile::open(path, rotation)).transpose()?;
        Ok(Self {
            levels: directives.level.0,
            format: directives.format,
            prefix: directives.prefix,
            file,
            file_only: directives.file_only,
            journal: directives.journal,
            slow: directives.slow_operation,
        })
    }

    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        Self {
            levels: 0,
            format: LogFormat::Stats,
            prefix: LinePrefix::Debug,
            file: None,
            file_only: true,
            journal: false,
            slow: None,
        }
    }

    pub(super) fn slow_nanoseconds(&self) -> u64 {
        self.slow.map_or(u64::MAX, |slow| u64::try_from(slow.as_nanos()).unwrap_or(u64::MAX))
    }
}
