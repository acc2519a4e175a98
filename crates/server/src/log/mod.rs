//! The server's log: lines in OpenLDAP's format or as JSON, written by one thread of its own. Those about operations are
//! formatted there, too, from what a loop keeps of a request ([`operation`]); all others by the thread that logs them.
//! A loop gathers what it has to say and hands it over when it has nothing else to do. It waits for a disk, for syslog or for the
//! journal only where too much is under way already, as OpenLDAP does for each line.

mod datagram;
mod file;
mod journal;
pub mod json;
mod operation;
mod recent;
mod settings;
mod syslog;
mod writer;

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use file::LogFileError;
pub use larix_configuration::values::LogLevel;
pub(crate) use operation::{OperationLine, Response, Seconds, What};
pub use settings::{LogCall, LogSettings};
pub use syslog::syslog_facility;

use larix_configuration::Note;
use larix_configuration::values::LogFormat;
use larix_schema::Schema;

use crate::panics;
use recent::Recent;
use writer::Outputs;

/// Bytes of lines that may wait for the log's thread.
pub(crate) const QUEUE_BYTES: usize = 16 * 1024 * 1024;
/// Batches that may wait for it.
const QUEUE_BATCHES: usize = 16_384;
/// A loop hands over what it has gathered when it is so many bytes, though it has other work.
const GATHERED_BYTES: usize = 16 * 1024;
/// How long a thread waits for the log's to take something where too much waits. A disk that hangs for longer must not hang
/// the server: lines are counted and dropped from then on, until something is taken.
const QUEUE_PATIENCE: Duration = Duration::from_secs(1);
/// Room that a batch has from the start: the lines of a few operations.
const BATCH_BYTES: usize = 1024;
const BATCH_LINES: usize = 8;
/// How long the server's end waits for a disk that does not take the last lines.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// How grave a line is, by syslog's numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Severity {
    Warning = 4,
    Notice = 5,
    Info = 6,
    Debug = 7,
}

/// What a line's bytes are.
#[derive(Copy, Clone, Debug)]
enum Kind {
    Text,
    /// Members of a JSON object, without its braces.
    Members,
    /// Texts of a line that is still to be made.
    Operation(OperationLine),
}

#[derive(Debug)]
struct Line {
    level: u32,
    severity: Severity,
    kind: Kind,
    at: Duration,
    thread: u64,
    /// Where its bytes end in the batch.
    end: usize,
}

/// Lines of one thread, in their order.
#[derive(Debug)]
struct Batch {
    bytes: Vec<u8>,
    lines: Vec<Line>,
    /// What names in it are shown by.
    schema: Option<Arc<Schema>>,
}

impl Batch {
    fn new() -> Self {
        let (bytes, lines) = (Vec::with_capacity(BATCH_BYTES), Vec::with_capacity(BATCH_LINES));
        Self { bytes, lines, schema: None }
    }

    fn add(&mut self, about: (u32, Severity, Kind), text: fmt::Arguments<'_>) {
        // Writing into a list fails only where a value refuses to be shown; what it said so far stays.
        let _ = self.bytes.write_fmt(text);
        self.end_line(about);
    }

    fn end_line(&mut self, (level, severity, kind): (u32, Severity, Kind)) {
        let end = self.bytes.len();
        self.lines.push(Line { level, severity, kind, at: time_of_day(), thread: thread_number(), end });
    }

    /// Bytes of memory that it takes while it waits.
    fn size(&self) -> usize {
        self.bytes.len() + self.lines.len() * size_of::<Line>()
    }

    /// Each line with its bytes.
    fn iter(&self) -> impl Iterator<Item = (&Line, &[u8])> {
        let mut begin = 0;
        self.lines.iter().map(move |line| {
            let bytes = self.bytes.get(begin..line.end).unwrap_or_default();
            begin = line.end;
            (line, bytes)
        })
    }
}

/// A message to the log's thread.
#[derive(Debug)]
enum Order {
    Lines(Batch),
    /// Other outputs from here on.
    Outputs(Box<Outputs>),
    /// The levels of syslog and journal, and of the file.
    Levels(u32, u32),
    /// The log file was moved away.
    Reopen,
    /// The server ends: write what is queued and return.
    End,
}

/// Orders that found no room in the queue, as while a disk hangs: a thread that changes settings does not wait for it.
#[derive(Debug, Default)]
struct LateOrders {
    outputs: Option<Box<Outputs>>,
    /// For these outputs.
    levels: Option<(u32, u32)>,
}

/// The name of the thread that writes lines out.
const THREAD: &str = "log";

/// What is shared by those who write lines and the thread that writes them out.
#[derive(Debug)]
struct Shared {
    /// What any output wants.
    levels: AtomicU32,
    json: AtomicBool,
    /// Operations that take longer, in nanoseconds, are logged; `u64::MAX`: none.
    slow: AtomicU64,
    /// Bytes of lines that wait.
    waiting: AtomicUsize,
    /// Lines dropped because too much waited.
    lost: AtomicU64,
    /// Lines that a file did not take.
    unwritten: AtomicU64,
    /// Lines that syslog or the journal did not take.
    unsent: AtomicU64,
    /// The last lines that went anywhere.
    recent: Mutex<Recent>,
    queue: SyncSender<Order>,
    late: Mutex<LateOrders>,
    room: Mutex<Room>,
    /// Something was taken while a sender waited for room.
    taken: Condvar,
    /// [`QUEUE_PATIENCE`], but in tests.
    patience: Duration,
}

/// Who waits until the log's thread has taken something.
#[derive(Debug, Default)]
struct Room {
    /// Batches taken so far.
    taken: u64,
    waiting: u32,
    /// It was waited for in vain, and has taken nothing since.
    hangs: bool,
}

/// The handle everyone logs through. Cheap to ask, so that a line that has no destination is never formatted.
#[derive(Clone, Debug)]
pub struct Log {
    shared: Arc<Shared>,
    /// What outputs there are, to find the levels that are wanted.
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    call: LogCall,
    configured: u32,
    has_file: bool,
    /// syslog or the journal.
    has_others: bool,
    file_only: bool,
}

impl State {
    /// Levels of standard error, of syslog and journal, and of the file.
    fn levels(&self) -> (u32, u32, u32) {
        let levels = self.call.syslog_levels.unwrap_or(self.configured);
        let others = |levels| if self.file_only && self.has_file { 0 } else { levels };
        let file = if self.has_file { self.call.debug | levels } else { 0 };
        // Lines without a destination are not formatted.
        (others(self.call.debug), if self.has_others { others(levels) } else { 0 }, file)
    }
}

/// The log's thread. [`finish`](Self::finish) writes out what is queued.
#[derive(Debug)]
pub struct LogThread {
    ended: Receiver<()>,
    queue: SyncSender<Order>,
}

impl Log {
    /// Starts the log's thread.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn start(settings: LogSettings, call: LogCall) -> io::Result<(Self, LogThread)> {
        let (queue, orders) = sync_channel(QUEUE_BATCHES);
        let shared = Arc::new(Shared::new(queue.clone(), QUEUE_PATIENCE));
        let state = State { call, configured: 0, has_file: false, has_others: false, file_only: false };
        let log = Self { shared: shared.clone(), state: Arc::new(Mutex::new(state)) };
        let outputs = log.outputs(settings);
        let (done, ended) = sync_channel(1);
        let run = move || {
            writer::run(outputs, &orders, &shared);
            // No thread waits if the server does not end in order.
            let _ = done.send(());
        };
        std::thread::Builder::new().name(THREAD.to_owned()).spawn(run)?;
        Ok((log, LogThread { ended, queue }))
    }

    /// The last lines that went anywhere, the newest last.
    pub fn recent(&self) -> Vec<String> {
        let recent = self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.shown()
    }

    /// Whether any output wants one of these levels.
    #[inline]
    pub fn wants(&self, levels: u32) -> bool {
        self.shared.levels.load(Ordering::Relaxed) & levels != 0
    }

    /// Whether to log operations in OpenLDAP's lines, several for each.
    #[inline]
    pub(crate) fn wants_stats_lines(&self) -> bool {
        self.wants(LogLevel::STATS) && !self.shared.json.load(Ordering::Relaxed)
    }

    /// Whether to log operations in one JSON object each.
    #[inline]
    pub(crate) fn wants_records(&self) -> bool {
        self.shared.json.load(Ordering::Relaxed) && self.wants(LogLevel::STATS)
    }

    /// Whether what an operation asked may be needed at its end.
    #[inline]
    pub(crate) fn keeps_requests(&self) -> bool {
        self.shared.slow.load(Ordering::Relaxed) != u64::MAX || self.wants_records()
    }

    /// Whether to log an operation that took so many nanoseconds as slow.
    #[inline]
    pub(crate) fn is_slow(&self, nanoseconds: u64) -> bool {
        nanoseconds >= self.shared.slow.load(Ordering::Relaxed)
    }

    /// Whether lines are JSON objects.
    pub(crate) fn is_json(&self) -> bool {
        self.shared.json.load(Ordering::Relaxed)
    }

    /// Logs one line, if any output wants its level.
    pub fn line(&self, level: u32, text: fmt::Arguments<'_>) {
        let severity = match level {
            LogLevel::ANY => Severity::Notice,
            LogLevel::STATS => Severity::Info,
            _ => Severity::Debug,
        };
        self.add((level, severity, Kind::Text), text);
    }

    /// What an administrator must know whatever the levels: on standard error in the foreground, in syslog otherwise.
    pub fn notice(&self, text: fmt::Arguments<'_>) {
        self.line(LogLevel::ANY, text);
    }

    /// The same for what is wrong, or about to be.
    pub fn warning(&self, text: fmt::Arguments<'_>) {
        self.add((LogLevel::ANY, Severity::Warning, Kind::Text), text);
    }

    /// What there is to say about the configuration.
    pub(crate) fn configuration_note(&self, note: &Note) {
        match note.is_warning {
            true => self.warning(format_args!("{note}")),
            false => self.line(LogLevel::CONFIG, format_args!("{note}")),
        }
    }

    /// Logs each panic of any thread from now on. For the first server of the process.
    pub(crate) fn watch_panics(&self) {
        let shared = Arc::clone(&self.shared);
        panics::watch(move |panic| {
            // A panic of the log's own thread is not logged: to log it might panic again.
            if panic.thread == Some(THREAD) || shared.levels.load(Ordering::Relaxed) & LogLevel::ANY == 0 {
                return;
            }
            let mut batch = Batch::new();
            batch.add(
                (LogLevel::ANY, Severity::Warning, Kind::Text),
                format_args!(
                    "a bug: the thread {} panicked at {}: {}; the server goes on",
                    panic.thread.unwrap_or_default(),
                    panic.location,
                    printable(panic.message)
                ),
            );
            // Not through this thread's own batch, which the panic may have left half written.
            shared.queue(batch);
        });
    }

    /// Logs the members of a JSON object that tells of an operation.
    pub(crate) fn record(&self, level: u32, severity: Severity, members: fmt::Arguments<'_>) {
        self.add((level, severity, Kind::Members), members);
    }

    /// Lines dropped because too much waited for the disk, syslog or the journal.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Lines that the log file, syslog or the journal did not take, as on a full disk or while a program hangs.
    pub fn unwritten(&self) -> u64 {
        let shared = &self.shared;
        shared.unwritten.load(Ordering::Relaxed).wrapping_add(shared.unsent.load(Ordering::Relaxed))
    }

    /// Bytes of lines that wait for the log's thread.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// The levels that were configured last.
    pub(crate) fn configured_levels(&self) -> u32 {
        self.state().configured
    }

    /// Changes the levels at once (`loglevel`). What `-s` and `-d` said on the command line stays.
    pub fn set_levels(&self, configured: u32) {
        let (_, others, file) = self.note(|state| state.configured = configured);
        self.send(Order::Levels(others, file));
    }

    /// Changes all that the configuration says about the log. The file was opened when the settings were made, so that
    /// nothing can fail here.
    pub fn publish(&self, settings: LogSettings) {
        let outputs = self.outputs(settings);
        self.send(Order::Outputs(Box::new(outputs)));
    }

    /// Opens the log file anew: it was moved away. The log's thread finds that by itself within a second, too.
    pub fn reopen(&self) {
        self.send(Order::Reopen);
    }

    /// Has this thread gather its lines: [`hand_over`] is called when it has nothing else to do.
    pub fn gather(&self) {
        GATHERED.set(Some(Gathered { shared: self.shared.clone(), batch: Batch::new() }));
    }

    fn outputs(&self, settings: LogSettings) -> Outputs {
        let (json, slow) = (settings.format == LogFormat::Json, settings.slow_nanoseconds());
        let (levels, file_only) = (settings.levels, settings.file_only);
        let mut outputs = Outputs::new(settings, &self.state().call);
        outputs.set_levels(self.note(|state| {
            state.configured = levels;
            state.has_file = outputs.has_file();
            state.has_others = outputs.has_others();
            state.file_only = file_only;
        }));
        self.shared.json.store(json, Ordering::Relaxed);
        self.shared.slow.store(slow, Ordering::Relaxed);
        outputs
    }

    /// Changes what is known of the outputs, and with it what lines are wanted.
    fn note(&self, change: impl FnOnce(&mut State)) -> (u32, u32, u32) {
        let mut state = self.state();
        change(&mut state);
        let levels = state.levels();
        self.shared.levels.store(levels.0 | levels.1 | levels.2, Ordering::Relaxed);
        levels
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Plain values are whole after any panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a line about an operation, of level `stats`. `texts` appends what belongs to it, which costs no more than copies:
    /// the log's thread makes the line. Names are shown by this schema.
    pub(crate) fn operation(
        &self,
        line: OperationLine,
        schema: Option<&Arc<Schema>>,
        texts: impl FnOnce(&mut Vec<u8>),
    ) {
        if !self.wants(LogLevel::STATS) {
            return;
        }
        self.with_batch(|batch| {
            if batch.schema.is_none() {
                batch.schema = schema.cloned();
            }
            texts(&mut batch.bytes);
            batch.end_line((LogLevel::STATS, Severity::Info, Kind::Operation(line)));
        });
    }

    fn add(&self, about: (u32, Severity, Kind), text: fmt::Arguments<'_>) {
        if self.wants(about.0) {
            self.with_batch(|batch| batch.add(about, text));
        }
    }

    /// Adds to what this thread has gathered, or hands over what is added at once.
    fn with_batch(&self, add: impl FnOnce(&mut Batch)) {
        GATHERED.with_borrow_mut(|gathered| match gathered {
            Some(gathered) if Arc::ptr_eq(&gathered.shared, &self.shared) => {
                add(&mut gathered.batch);
                if gathered.batch.size() >= GATHERED_BYTES {
                    gathered.hand_over();
                }
            }
            _ => {
                let mut batch = Batch::new();
                add(&mut batch);
                self.shared.queue(batch);
            }
        });
    }

    /// For orders that are rare. One that finds no room is carried out before what fills the queue.
    fn send(&self, order: Order) {
        let mut late = self.shared.late();
        // None overtakes an earlier one.
        let order = match (&late.outputs, late.levels) {
            (None, None) => match self.shared.queue.try_send(order) {
                Err(TrySendError::Full(order)) => order,
                // Without its thread the log is over.
                _ => return,
            },
            _ => order,
        };
        match order {
            Order::Outputs(outputs) => *late = LateOrders { outputs: Some(outputs), levels: None },
            Order::Levels(others, file) => late.levels = Some((others, file)),
            // The log's thread notices by itself that its file was moved; nothing else comes this way.
            Order::Reopen | Order::Lines(_) | Order::End => {}
        }
    }
}

impl Shared {
    fn new(queue: SyncSender<Order>, patience: Duration) -> Self {
        Self {
            levels: AtomicU32::new(0),
            json: AtomicBool::new(false),
            slow: AtomicU64::new(u64::MAX),
            waiting: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            recent: Mutex::default(),
            queue,
            late: Mutex::default(),
            room: Mutex::default(),
            taken: Condvar::new(),
            patience,
        }
    }

    /// Hands lines to the log's thread. Where too much waits for it already, so does the caller.
    fn queue(&self, batch: Batch) {
        let lines = batch.lines.len() as u64;
        let Err(batch) = self.try_queue(batch) else { return };
        if !self.queue_patiently(batch) {
            self.lost.fetch_add(lines, Ordering::Relaxed);
        }
    }

    /// Answers the batch where there is no room for it.
    fn try_queue(&self, batch: Batch) -> Result<(), Batch> {
        let bytes = batch.size();
        let waiting = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let refused = if waiting.saturating_add(bytes) > QUEUE_BYTES {
            batch
        } else {
            match self.queue.try_send(Order::Lines(batch)) {
                Err(
                    TrySendError::Full(Order::Lines(batch)) | TrySendError::Disconnected(Order::Lines(batch)),
                ) => batch,
                _ => return Ok(()),
            }
        };
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        Err(refused)
    }

    /// Whether there was room for the batch in the end.
    fn queue_patiently(&self, mut batch: Batch) -> bool {
        if batch.size() > QUEUE_BYTES {
            return false;
        }
        loop {
            // Before it is tried: what is taken from now on is not missed.
            let mut room = self.room();
            if room.hangs {
                return self.try_queue(batch).is_ok();
            }
            match self.try_queue(batch) {
                Ok(()) => return true,
                Err(refused) => batch = refused,
            }
            let seen = room.taken;
            room.waiting += 1;
            let waited = self.taken.wait_timeout_while(room, self.patience, |room| room.taken == seen);
            let (mut room, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            room.waiting -= 1;
            room.hangs |= waited.timed_out();
        }
    }

    /// The log's thread has taken a batch of so many bytes.
    fn took(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        let mut room = self.room();
        room.taken = room.taken.wrapping_add(1);
        room.hangs = false;
        if room.waiting > 0 {
            self.taken.notify_all();
        }
    }

    fn late(&self) -> MutexGuard<'_, LateOrders> {
        // Each of its two values is whole after any panic.
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        // Plain values are whole after any panic.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a loop has to say and has not handed over.
struct Gathered {
    shared: Arc<Shared>,
    batch: Batch,
}

impl Gathered {
    fn hand_over(&mut self) {
        if !self.batch.lines.is_empty() {
            self.shared.queue(std::mem::replace(&mut self.batch, Batch::new()));
        }
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.hand_over();
    }
}

thread_local! {
    static GATHERED: RefCell<Option<Gathered>> = const { RefCell::new(None) };
}

/// Hands over what this thread has gathered. Costs next to nothing when that is nothing.
pub(crate) fn hand_over() {
    GATHERED.with_borrow_mut(|gathered| gathered.iter_mut().for_each(Gathered::hand_over));
}

impl LogThread {
    /// Writes out what is queued and ends the thread. A disk that takes nothing is not waited for long.
    pub fn finish(self) {
        hand_over();
        // A full queue means the thread lives and takes from it; one that hangs must not hang the server's end.
        if self.queue.try_send(Order::End).is_ok() {
            // What is not written by then is lost with the disk that hangs.
            let _ = self.ended.recv_timeout(END_PATIENCE);
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
mod tests;
