//! The settings of the log: its directives with the file open, and what the command line says.

use std::time::Duration;

use larix_configuration::values::{LinePrefix, LogDirectives, LogFormat};

use super::file::{LogFile, LogFileError};

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

/// The directives about the log with the log file open.
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
