//! The log's thread: takes lines from the queue and writes them where they belong.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use larix_configuration::values::{LinePrefix, LogFormat, LogLevel};
use larix_engine::injected;
use larix_engine::time::Timestamp;

use super::file::LogFile;
use super::journal::Journal;
use super::settings::{LogCall, LogSettings};
use super::syslog::Syslog;
use super::{Batch, Kind, LateOrders, Line, Order, Severity, Shared, json, thread_number, time_of_day};
use crate::panics;

/// How long the thread sleeps after it has written: to be woken for each batch of a busy server would cost more than the lines.
/// It does not sleep while standard error takes lines (`-d`): people and scripts look there right after an answer.
const LINGER: Duration = Duration::from_millis(2);
/// Bytes gathered for one write.
const BATCH_BYTES: usize = 64 * 1024;

/// Where lines go, and which.
#[derive(Debug)]
pub(super) struct Outputs {
    format: LogFormat,
    prefix: LinePrefix,
    stderr_levels: u32,
    /// Of syslog and journal.
    levels: u32,
    file_levels: u32,
    syslog: Option<Syslog>,
    journal: Option<Journal>,
    file: Option<LogFile>,
    /// `host program[process]: `.
    origin: String,
}

impl Outputs {
    /// For no levels yet.
    pub(super) fn new(settings: LogSettings, call: &LogCall) -> Self {
        let only_file = call.no_syslog || (settings.file_only && settings.file.is_some());
        let (program, facility) = (call.program.as_str(), call.facility);
        let journal = (settings.journal && !only_file).then(|| Journal::connect(program, facility)).flatten();
        let syslog = (journal.is_none() && !only_file).then(|| Syslog::connect(program, facility)).flatten();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let origin = format!("{host} {program}[{}]: ", std::process::id());
        let LogSettings { format, prefix, file, .. } = settings;
        let (stderr_levels, levels, file_levels) = (0, 0, 0);
        Self { format, prefix, stderr_levels, levels, file_levels, syslog, journal, file, origin }
    }

    /// Of standard error, of syslog and the journal, and of the file.
    pub(super) fn set_levels(&mut self, levels: (u32, u32, u32)) {
        (self.stderr_levels, self.levels, self.file_levels) = levels;
    }

    pub(super) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn has_others(&self) -> bool {
        self.syslog.is_some() || self.journal.is_some()
    }
}

/// What was formatted and is not written.
#[derive(Debug, Default)]
struct Formatted {
    stderr: Vec<u8>,
    file: Vec<u8>,
    file_lines: u64,
    /// Lines that syslog or the journal took, and those that it did not.
    sent: u64,
    unsent: u64,
    line: String,
    /// The text of the line about an operation that was made last.
    made: String,
}

/// What the log has reported of lost lines.
#[derive(Debug, Default)]
struct ReportedLoss {
    lost: u64,
    /// While the file takes nothing: what had been lost before.
    broken: Option<u64>,
    /// Lines that syslog or the journal has not taken since it last took all.
    unsent: u64,
}

/// Writes until the end is ordered, or no sender is left.
pub(super) fn run(mut outputs: Outputs, orders: &Receiver<Order>, shared: &Shared) {
    let mut formatted = Formatted::default();
    let mut reported = ReportedLoss::default();
    let mut next = orders.recv().ok();
    while let Some(first) = next {
        // A panic costs the lines of this time.
        let ended = panics::contained(|| {
            injected::panic_at("log");
            outputs.take(first, (orders, shared), &mut formatted, &mut reported)
        });
        let after = match ended {
            Ok(After::End) => return,
            Ok(after) => after,
            Err(_) => {
                formatted = Formatted::default();
                After::Nothing
            }
        };
        next = orders.try_recv().ok();
        if next.is_none() || after == After::Nothing {
            // Senders wake a thread that waits in `recv`, but not one that is parked: a busy loop then only puts its lines into the
            // queue.
            if outputs.stderr_levels == 0 {
                std::thread::park_timeout(LINGER);
            }
            next = next.or_else(|| orders.try_recv().ok()).or_else(|| orders.recv().ok());
        }
    }
}

/// What follows what was carried out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum After {
    /// More may wait already.
    More,
    /// Nothing waited.
    Nothing,
    End,
}

impl Outputs {
    /// Carries out an order and those that wait behind it, up to a batch.
    fn take(
        &mut self,
        first: Order,
        (orders, shared): (&Receiver<Order>, &Shared),
        formatted: &mut Formatted,
        reported: &mut ReportedLoss,
    ) -> After {
        let mut next = Some(first);
        let mut after = After::Nothing;
        while let Some(order) = next {
            self.take_late(formatted, shared, reported);
            match order {
                Order::Lines(batch) => {
                    shared.took(batch.size());
                    self.format(&batch, formatted, shared);
                }
                Order::Levels(others, file) => (self.levels, self.file_levels) = (others, file),
                Order::Outputs(others) => self.give_way(*others, formatted, shared, reported),
                Order::Reopen => {
                    self.write(formatted, shared, reported);
                    self.file.iter_mut().for_each(LogFile::follow);
                }
                Order::End => after = After::End,
            }
            if after == After::End {
                break;
            }
            if formatted.stderr.len() + formatted.file.len() >= BATCH_BYTES {
                after = After::More;
                break;
            }
            next = orders.try_recv().ok();
        }
        self.report_losses(formatted, shared, reported);
        self.write(formatted, shared, reported);
        after
    }

    /// Carries out what found no room in the queue.
    fn take_late(&mut self, formatted: &mut Formatted, shared: &Shared, reported: &mut ReportedLoss) {
        let LateOrders { outputs, levels } = std::mem::take(&mut *shared.late());
        if let Some(others) = outputs {
            self.give_way(*others, formatted, shared, reported);
        }
        if let Some(levels) = levels {
            (self.levels, self.file_levels) = levels;
        }
    }

    /// What comes from here on goes to others.
    fn give_way(
        &mut self,
        others: Self,
        formatted: &mut Formatted,
        shared: &Shared,
        reported: &mut ReportedLoss,
    ) {
        self.write(formatted, shared, reported);
        *self = others;
    }

    /// Formats lines for where they go, and keeps those that go anywhere for who asks what happened last.
    fn format(&mut self, batch: &Batch, out: &mut Formatted, shared: &Shared) {
        let file_levels = if self.file.is_some() { self.file_levels } else { 0 };
        let wanted = self.stderr_levels | self.levels | file_levels;
        let mut made = std::mem::take(&mut out.made);
        for (line, bytes) in batch.iter().filter(|(line, _)| line.level & wanted != 0) {
            let text = match line.kind {
                Kind::Operation(operation) => {
                    made.clear();
                    // Writing to a String cannot fail.
                    let _ = operation.render(&mut made, bytes, batch.schema.as_ref());
                    &made
                }
                // It was written as text.
                Kind::Text | Kind::Members => std::str::from_utf8(bytes).unwrap_or_default(),
            };
            let text = text.trim_end();
            self.format_line(line, text, out);
            remember(shared, line.at, text);
        }
        out.made = made;
    }

    fn format_line(&mut self, line: &Line, text: &str, out: &mut Formatted) {
        let wants = |levels: u32| line.level & levels != 0;
        let shown = match (self.format, line.kind) {
            (LogFormat::Stats, Kind::Text | Kind::Operation(_)) => text,
            (_, kind) => {
                out.line.clear();
                let is_members = matches!(kind, Kind::Members);
                json::line(&mut out.line, line.at, line.severity, is_members, text);
                &out.line
            }
        };
        let plain = self.format == LogFormat::Json;
        if wants(self.stderr_levels) {
            self.prefixed(&mut out.stderr, line, plain, LinePrefix::Debug, shown);
        }
        if wants(self.file_levels) && self.file.is_some() {
            self.prefixed(&mut out.file, line, plain, self.prefix, shown);
            out.file_lines += 1;
        }
        if wants(self.levels) && self.has_others() {
            let by_syslog = self.syslog.as_mut().is_none_or(|syslog| syslog.send(shown));
            let by_journal = self.journal.as_mut().is_none_or(|journal| journal.send(line.severity, shown));
            match by_syslog && by_journal {
                true => out.sent += 1,
                false => out.unsent += 1,
            }
        }
    }

    /// JSON tells the time itself.
    fn prefixed(&self, out: &mut Vec<u8>, line: &Line, plain: bool, prefix: LinePrefix, text: &str) {
        let (seconds, nanoseconds) = (line.at.as_secs(), line.at.subsec_nanos());
        // Writing to a Vec cannot fail.
        let _ = match prefix {
            _ if plain => writeln!(out, "{text}"),
            LinePrefix::Debug => {
                writeln!(out, "{seconds:08x}.{nanoseconds:08x} 0x{:012x} {text}", line.thread)
            }
            LinePrefix::Syslog => {
                let mut time = String::with_capacity(32);
                push_time(&mut time, line.at);
                writeln!(out, "{time} {}{text}", self.origin)
            }
        };
    }

    fn write(&mut self, out: &mut Formatted, shared: &Shared, reported: &mut ReportedLoss) {
        // The log cannot report on standard error that standard error failed.
        let _ = io::stderr().write_all(&out.stderr);
        out.stderr.clear();
        if let Some(file) = &mut self.file
            && !out.file.is_empty()
        {
            match file.append(&out.file) {
                Ok(()) => {
                    if let Some(before) = reported.broken {
                        let lost = shared.unwritten.load(Ordering::Relaxed).wrapping_sub(before);
                        let path = file.path().display().to_string();
                        let text = format!("log: {path} takes lines again; {lost} before this one are lost");
                        // A file with room for the lines and none for the report gets it behind later ones, and so do the
                        // others: they would get it with each batch.
                        if self.report_to_file(&text).is_ok() {
                            reported.broken = None;
                            self.report_to_others(&text, shared);
                        }
                    }
                }
                Err(error) => {
                    let before = shared.unwritten.fetch_add(out.file_lines, Ordering::Relaxed);
                    if reported.broken.is_none() {
                        reported.broken = Some(before);
                        let path = file.path().display().to_string();
                        let text = format!(
                            "log: {path} takes no lines ({error}); they are lost until it does, and the server goes on"
                        );
                        self.report_to_others(&text, shared);
                    }
                }
            }
        }
        out.file.clear();
        out.file_lines = 0;
        if let Some(text) = self.file.as_mut().and_then(LogFile::take_trouble) {
            self.report_trouble(&text, shared);
        }
        self.report_unsent(out, shared, reported);
    }

    /// Says how many lines syslog or the journal has lost, as soon as it takes lines again.
    fn report_unsent(&mut self, out: &mut Formatted, shared: &Shared, reported: &mut ReportedLoss) {
        let (sent, unsent) = (std::mem::take(&mut out.sent), std::mem::take(&mut out.unsent));
        shared.unsent.fetch_add(unsent, Ordering::Relaxed);
        reported.unsent += unsent;
        if unsent == 0 && sent > 0 && reported.unsent > 0 {
            let lost = std::mem::take(&mut reported.unsent);
            let name = if self.journal.is_some() { "the journal" } else { "syslog" };
            self.report_trouble(&format!("log: {name} takes lines again; {lost} are lost"), shared);
        }
    }

    fn report_losses(&mut self, out: &mut Formatted, shared: &Shared, reported: &mut ReportedLoss) {
        let lost = shared.lost.load(Ordering::Relaxed);
        if lost != reported.lost {
            let more = lost.wrapping_sub(reported.lost);
            reported.lost = lost;
            let text = format!("log: {more} lines dropped, too many waited to be written");
            self.own_line(&text, out);
            remember(shared, time_of_day(), &text);
        }
    }

    fn own_line(&mut self, text: &str, out: &mut Formatted) {
        let line = Line {
            level: LogLevel::ANY,
            severity: Severity::Warning,
            kind: Kind::Text,
            at: time_of_day(),
            thread: thread_number(),
            end: text.len(),
        };
        self.format_line(&line, text, out);
    }

    /// On all outputs.
    fn report_trouble(&mut self, text: &str, shared: &Shared) {
        // A file that takes nothing is reported with the next lines.
        let _ = self.report_to_file(text);
        self.report_to_others(text, shared);
    }

    /// # Errors
    /// The file does not take the report.
    fn report_to_file(&mut self, text: &str) -> io::Result<()> {
        let others = (std::mem::take(&mut self.stderr_levels), std::mem::take(&mut self.levels));
        let mut out = Formatted::default();
        self.own_line(text, &mut out);
        (self.stderr_levels, self.levels) = others;
        self.file.as_mut().map_or(Ok(()), |file| file.append(&out.file))
    }

    /// On all outputs but the file, and to who asks what happened last.
    fn report_to_others(&mut self, text: &str, shared: &Shared) {
        let mut out = Formatted::default();
        self.own_line(text, &mut out);
        let _ = io::stderr().write_all(&out.stderr);
        remember(shared, time_of_day(), text);
    }
}

/// Keeps a line for who asks what happened last.
fn remember(shared: &Shared, at: Duration, text: &str) {
    shared.recent.lock().unwrap_or_else(PoisonError::into_inner).add(at, text);
}

/// RFC 3339 in UTC, to the microsecond.
pub(super) fn push_time(out: &mut String, at: Duration) {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    let t = Timestamp(micros).civil();
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        t.year, t.month, t.day, t.hour, t.minute, t.second, t.micros
    );
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::sync::mpsc::sync_channel;
    use std::sync::{Arc, Mutex};

    use super::super::tests::{Pipe, settings, texts};
    use super::super::{Log, State};
    use super::*;

    /// Outputs with a journal, and all that writing takes.
    struct LogWriter {
        outputs: Outputs,
        shared: Shared,
        reported: ReportedLoss,
    }

    impl LogWriter {
        fn new(journal: &Path, file: Option<LogFile>) -> Self {
            let call = LogCall { no_syslog: true, ..LogCall::default() };
            let mut outputs = Outputs::new(LogSettings { file, ..LogSettings::silent() }, &call);
            outputs.journal = Journal::connect_to(journal.to_str().unwrap(), "slapd", 16);
            outputs.set_levels((0, LogLevel::ANY, LogLevel::ANY));
            let shared = Shared::new(sync_channel(1).0, Duration::ZERO);
            Self { outputs, shared, reported: ReportedLoss::default() }
        }

        fn line(&mut self, text: &str) {
            let mut formatted = Formatted::default();
            self.outputs.own_line(text, &mut formatted);
            self.outputs.write(&mut formatted, &self.shared, &mut self.reported);
        }

        /// To the file alone.
        fn bytes(&mut self, bytes: &str) {
            let mut formatted = Formatted { file: bytes.into(), file_lines: 1, ..Formatted::default() };
            self.outputs.write(&mut formatted, &self.shared, &mut self.reported);
        }
    }

    fn listen(path: &Path) -> UnixDatagram {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    /// The messages that wait to be read.
    fn messages(journal: &UnixDatagram) -> Vec<String> {
        let mut all = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(length) = journal.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            all.push(text.rsplit_once("MESSAGE=").unwrap().1.trim_end().to_owned());
        }
        all
    }

    #[test]
    fn what_the_file_has_no_room_to_say_is_not_said_elsewhere_with_each_batch() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let journal = listen(&path);
        let mut pipe = Pipe::new();
        let mut writer = LogWriter::new(&path, Some(LogFile::open(&pipe.path, None).unwrap()));
        pipe.fill_but(80);
        writer.bytes(&"x".repeat(1_000));
        let told = messages(&journal);
        assert!(told.len() == 1 && told[0].contains("takes no lines"), "{told:?}");
        for _ in 0..3 {
            writer.bytes("x\n");
            assert_eq!(messages(&journal), Vec::<String>::new());
        }
        pipe.take();
        writer.bytes("x\n");
        let text = format!("log: {} takes lines again; 1 before this one are lost", pipe.path.display());
        assert_eq!(messages(&journal), [text.as_str()]);
        assert!(pipe.take().contains(&text));
    }

    /// As while a disk hangs: nobody takes anything from the queue.
    #[test]
    fn settings_do_not_wait_for_room_in_the_queue() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("first"), directory.path().join("second"));
        let (queue, orders) = sync_channel(1);
        let shared = Arc::new(Shared::new(queue, Duration::ZERO));
        let call = LogCall { no_syslog: true, ..LogCall::default() };
        let state = State { call, configured: 0, has_file: false, has_others: false, file_only: false };
        let log = Log { shared: shared.clone(), state: Arc::new(Mutex::new(state)) };
        let mut outputs = log.outputs(settings(&first, LogLevel::STATS));
        log.line(LogLevel::STATS, format_args!("one"));
        log.reopen();
        log.publish(settings(&second, LogLevel::STATS));
        log.set_levels(LogLevel::CONFIG);
        let mut take = || {
            let order = orders.try_recv().unwrap();
            let (mut formatted, mut reported) = (Formatted::default(), ReportedLoss::default());
            outputs.take(order, (&orders, &*shared), &mut formatted, &mut reported);
        };
        take();
        log.line(LogLevel::CONFIG, format_args!("two"));
        take();
        assert_eq!((texts(&first), texts(&second)), (vec![], vec!["two".to_owned()]));
    }

    #[test]
    fn lines_that_the_journal_does_not_take_are_counted_and_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let journal = listen(&path);
        let mut writer = LogWriter::new(&path, None);
        writer.line("one");
        assert_eq!(messages(&journal), ["one"]);
        drop(journal);
        std::fs::remove_file(&path).unwrap();
        writer.line("two");
        writer.line("three");
        assert_eq!(writer.shared.unsent.load(Ordering::Relaxed), 2);
        let journal = listen(&path);
        writer.line("four");
        writer.line("five");
        assert_eq!(messages(&journal), ["four", "log: the journal takes lines again; 2 are lost", "five"]);
    }
}
