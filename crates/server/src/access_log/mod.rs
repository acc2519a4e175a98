//! Access logs: operations on one database and their results, as entries of another (`overlay accesslog`).
//!
//! Changes are derived from the database's change log, in its order, by a thread for each log database, which keeps in the
//! same commit how far it has come: no change is lost, none is recorded twice, and no answer waits for it. What only the
//! connection knows of a request is handed over beside it, as is everything of operations that change nothing; of that a
//! crash loses what was not committed yet (`docs/adr/0027-the-access-log-follows-the-change-log.md`).
//!
//! In an engine that several servers share, each server has the thread, and that of the one that writes both databases works. It begins
//! where the log's database says that the one before was, and nothing is recorded twice
//! (`docs/adr/0107-an-access-log-in-a-shared-engine.md`).

mod configuration;
mod follower;
mod gate;
mod operation_recorder;
mod purge;
mod recorded;
mod request_queue;
mod turn;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use larix_configuration::{AccessLogSettings, Config};
use larix_engine::ServedDatabase;
use larix_engine::audit::Operation;
use larix_engine::csn::Csn;
use larix_engine::log::{self, Hold, LogKey, LogReader};
use larix_engine::time::{Clock, Monotonic};
use larix_schema::NormalDn;
use larix_store::Store as _;
use larix_store::lmdb::LmdbStore;

use crate::clock::SystemClock;
#[cfg(feature = "kv")]
use crate::cluster::Node;
use crate::log::Log;
use crate::overlay_threads::OverlayHost;

use configuration::ConfigChanges;
use follower::LogWriter;
pub(crate) use gate::Gate;
pub(crate) use operation_recorder::{OperationRecorder, Records};
use operation_recorder::{TakeOperations, WithResult};
pub(crate) use recorded::RecordedRequest;

/// A search of a log waits so long at most for what was done before it to be recorded.
const PATIENCE_NANOS: u64 = 2_000_000_000;

/// A database of this server alone.
type StoredDatabase = Arc<ServedDatabase<LmdbStore>>;

/// A database whose operations are recorded.
#[derive(Debug)]
struct Source<H: OverlayHost> {
    origin: SourceKind<H>,
    /// By what it is known in the log's database: its suffix.
    name: String,
    /// Up to here the records of its change log are in the access log, or not wanted there.
    reached: AtomicU64,
}

/// Where the changes of a source are read.
#[derive(Debug)]
enum SourceKind<H: OverlayHost> {
    /// By its change log, which drops no record before it was read. The reader is there from when the database is open.
    Database(H, OnceLock<JoinedLog>),
    /// cn=config: from the thread that changes it.
    Configuration(Arc<ConfigChanges>),
}

/// A change log that is followed.
#[derive(Debug)]
struct JoinedLog {
    /// Where it ended when recording was asked for: changes behind that are recorded.
    began: LogKey,
    /// The contextCSN then: changes up to it are not. `None`: it could not be read.
    earlier: Option<Vec<Csn>>,
    reader: Arc<LogReader>,
}

/// A database that is open, and how its change log is followed.
type Open<'a, H> = (&'a Arc<ServedDatabase<<H as OverlayHost>::Store>>, &'a JoinedLog);

/// What one database has recorded, and where.
#[derive(Debug)]
struct Recorder<H: OverlayHost> {
    settings: AccessLogSettings,
    source: Arc<Source<H>>,
    log: Arc<LogWriter<H>>,
}

/// A log database's thread.
#[derive(Debug)]
struct WriterThread<H: OverlayHost> {
    writer: Arc<LogWriter<H>>,
    thread: Option<JoinHandle<()>>,
}

/// An access log with the database that is recorded (`None`: cn=config) and the one that takes the records.
pub(crate) type Recorded<H> = (AccessLogSettings, Option<H>, H);

/// All access logs of the server.
#[derive(Debug, Default)]
pub(crate) struct AccessLogs {
    stored: Logs<StoredDatabase>,
    /// Of databases in engines that several servers share.
    #[cfg(feature = "kv")]
    shared: Logs<Arc<Node>>,
}

impl AccessLogs {
    /// Whether anything is recorded at all.
    pub(crate) fn any(&self) -> bool {
        #[cfg(feature = "kv")]
        if self.shared.any() {
            return true;
        }
        self.stored.any()
    }

    /// Records what a configuration wants recorded.
    ///
    /// # Errors
    /// No thread to be had.
    pub(crate) fn follow(
        &self,
        (config, recorded): (&Arc<Config>, Vec<Recorded<StoredDatabase>>),
        (clock, log): (&Arc<SystemClock>, &Log),
    ) -> io::Result<()> {
        self.stored.follow((config, recorded), (clock, log))
    }

    /// The same for databases in engines that several servers share.
    ///
    /// # Errors
    /// No thread to be had.
    #[cfg(feature = "kv")]
    pub(crate) fn follow_shared(
        &self,
        (config, recorded): (&Arc<Config>, Vec<Recorded<Arc<Node>>>),
        (clock, log): (&Arc<SystemClock>, &Log),
    ) -> io::Result<()> {
        self.shared.follow((config, recorded), (clock, log))
    }

    /// Records what is left, and ends the threads. To be called when no more requests come.
    pub(crate) fn finish(&self) {
        self.stored.finish();
        #[cfg(feature = "kv")]
        self.shared.finish();
    }

    /// What records an operation on this name in this database; none when no log wants it.
    pub(crate) fn recorder(
        &self,
        served: &StoredDatabase,
        operation: Operation,
        dn: Option<&NormalDn>,
    ) -> Option<OperationRecorder> {
        let recorder = self.stored.wanting(operation, dn, |source| source.is(Some(served)))?;
        Some(OperationRecorder { records: recorder.records()?, database: Some(Arc::clone(served)) })
    }

    /// The same for a database in an engine that several servers share, by its [instance](larix_engine::Database::instance).
    #[cfg(feature = "kv")]
    pub(crate) fn recorder_of_shared(
        &self,
        instance: u64,
        operation: Operation,
        dn: Option<&NormalDn>,
    ) -> Option<OperationRecorder> {
        let is_it = |source: &Source<Arc<Node>>| source.instance() == Some(instance);
        let recorder = self.shared.wanting(operation, dn, is_it)?;
        Some(OperationRecorder { records: recorder.records()?, database: None })
    }

    /// What records an operation on this name below cn=config.
    pub(crate) fn recorder_of_configuration(
        &self,
        operation: Operation,
        dn: Option<&NormalDn>,
    ) -> Option<OperationRecorder> {
        let recorder = self.stored.wanting(operation, dn, |source| source.is(None))?;
        Some(OperationRecorder { records: recorder.records()?, database: None })
    }

    /// cn=config was changed, and the change is in force. Answers the sequences of its records. Once the requester
    /// has its answer, the caller must call [`wake_configuration`](Self::wake_configuration).
    pub(crate) fn configuration_changed(&self, before: &Config, after: &Config) -> Range<u64> {
        let recorders = self.stored.recorders.load();
        let source = recorders.iter().find_map(|recorder| match &recorder.source.origin {
            SourceKind::Configuration(changes) => Some(changes),
            SourceKind::Database(..) => None,
        });
        source.map_or(0..0, |changes| changes.changed(before, after))
    }

    /// Has recorded what was changed of cn=config.
    pub(crate) fn wake_configuration(&self) {
        let recorders = self.stored.recorders.load();
        for recorder in recorders.iter() {
            if let SourceKind::Configuration(changes) = &recorder.source.origin {
                changes.answered();
                recorder.log.wake();
            }
        }
    }

    /// All that record this kind of operation somewhere.
    pub(crate) fn recorders_of(&self, operation: Operation) -> Vec<Records> {
        let all = self.stored.records_of(operation);
        #[cfg(feature = "kv")]
        let all = all.into_iter().chain(self.shared.records_of(operation)).collect();
        all
    }

    /// What a search of this database has to wait for, so that it sees all that was answered before it began; none when
    /// nothing is to come.
    pub(crate) fn gate(&self, served: &StoredDatabase, clock: &Arc<SystemClock>) -> Option<Gate> {
        self.stored.gate(served, clock)
    }

    /// The same for a database in an engine that several servers share, at the server that writes it: others do not know what is to come.
    #[cfg(feature = "kv")]
    pub(crate) fn gate_of_shared(
        &self,
        node: &Arc<Node>,
        clock: &Arc<SystemClock>,
    ) -> Option<Gate<Arc<Node>>> {
        self.shared.gate(node, clock)
    }
}

/// Access logs of databases of one kind.
#[derive(Debug)]
struct Logs<H: OverlayHost> {
    recorders: ArcSwap<Vec<Arc<Recorder<H>>>>,
    any: AtomicBool,
    threads: Mutex<Vec<WriterThread<H>>>,
}

impl<H: OverlayHost> Default for Logs<H> {
    fn default() -> Self {
        Self { recorders: ArcSwap::default(), any: AtomicBool::new(false), threads: Mutex::default() }
    }
}

impl<H: OverlayHost> Logs<H> {
    fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    fn follow(
        &self,
        (config, recorded): (&Arc<Config>, Vec<Recorded<H>>),
        (clock, log): (&Arc<SystemClock>, &Log),
    ) -> io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = self.recorders.load_full();
        let mut recorders: Vec<Arc<Recorder<H>>> = Vec::new();
        for (settings, source, target) in recorded {
            let known = |f: &&WriterThread<H>| f.writer.host().is(&target);
            let writer = match threads.iter().find(known) {
                Some(writer_thread) => Arc::clone(&writer_thread.writer),
                None => {
                    let writer = LogWriter::new(target, clock.clone(), log.clone());
                    let own = Arc::clone(&writer);
                    let thread =
                        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || own.run())?;
                    threads.push(WriterThread { writer: Arc::clone(&writer), thread: Some(thread) });
                    writer
                }
            };
            let same = |r: &&Arc<Recorder<H>>| r.source.is(source.as_ref()) && Arc::ptr_eq(&r.log, &writer);
            let source = match (earlier.iter().find(same), source) {
                (Some(recorder), _) => Arc::clone(&recorder.source),
                (None, Some(host)) => new_source(host, &writer),
                (None, None) => Arc::new(Source::configuration(config)),
            };
            recorders.push(Arc::new(Recorder { settings, source, log: writer }));
        }
        for gone in earlier.iter().filter(|e| !recorders.iter().any(|r| Arc::ptr_eq(&r.source, &e.source))) {
            gone.source.leave();
        }
        self.any.store(!recorders.is_empty(), Ordering::Relaxed);
        self.recorders.store(Arc::new(recorders.clone()));
        let (stay, end): (Vec<_>, Vec<_>) = threads
            .drain(..)
            .partition(|writer_thread| recorders.iter().any(|r| Arc::ptr_eq(&r.log, &writer_thread.writer)));
        *threads = stay;
        for writer_thread in threads.iter() {
            let own = recorders.iter().filter(|r| Arc::ptr_eq(&r.log, &writer_thread.writer));
            writer_thread.writer.set_recorders(own.cloned().collect());
        }
        end.into_iter().for_each(WriterThread::finish);
        Ok(())
    }

    fn gate(&self, host: &H, clock: &Arc<SystemClock>) -> Option<Gate<H>> {
        if !self.any() {
            return None;
        }
        let recorders = self.recorders.load();
        let is_own = |recorder: &&Arc<Recorder<H>>| recorder.log.host().is(host);
        let log = &recorders.iter().find(is_own)?.log;
        host.term()?;
        let sources: Vec<_> = recorders
            .iter()
            .filter(is_own)
            .map(|recorder| (Arc::downgrade(&recorder.source), recorder.source.committed()))
            .filter(|(source, committed)| {
                source.upgrade().is_some_and(|source| !source.has_recorded(*committed))
            })
            .collect();
        let handed_over = log.handed_over();
        if sources.is_empty() && log.handled() >= handed_over {
            return None;
        }
        let until = Monotonic(clock.monotonic().0.saturating_add(PATIENCE_NANOS));
        let (log, clock) = (Arc::downgrade(log), Arc::clone(clock));
        Some(Gate { sources, log, handed_over, until, clock, follower: None })
    }

    fn finish(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        threads.into_iter().for_each(WriterThread::finish);
    }

    /// The recorder of such a source, if it wants this operation on this name.
    fn wanting(
        &self,
        operation: Operation,
        dn: Option<&NormalDn>,
        is_it: impl Fn(&Source<H>) -> bool,
    ) -> Option<Arc<Recorder<H>>> {
        let recorders = self.recorders.load();
        let recorder = recorders.iter().find(|recorder| is_it(&recorder.source))?;
        recorder.settings.wants(operation, dn).then(|| Arc::clone(recorder))
    }

    fn records_of(&self, operation: Operation) -> Vec<Records> {
        let recorders = self.recorders.load();
        let wanting = recorders.iter().filter(|recorder| recorder.settings.wants(operation, None));
        wanting.filter_map(|recorder| recorder.records()).collect()
    }
}

impl<H: OverlayHost> WriterThread<H> {
    fn finish(mut self) {
        self.writer.end();
        if let Some(thread) = self.thread.take() {
            // A panic was reported already.
            let _ = thread.join();
        }
    }
}

/// Of cn=config among the instances of databases, which count from 1.
const CONFIGURATION: u64 = u64::MAX;

impl<H: OverlayHost> Source<H> {
    fn configuration(config: &Arc<Config>) -> Self {
        Self {
            origin: SourceKind::Configuration(Arc::new(ConfigChanges::new(config))),
            name: configuration::NAME.to_owned(),
            reached: AtomicU64::new(0),
        }
    }

    /// Whether it is this database; `None`: cn=config.
    fn is(&self, other: Option<&H>) -> bool {
        match (&self.origin, other) {
            (SourceKind::Database(host, _), Some(other)) => host.is(other),
            (SourceKind::Configuration(_), None) => true,
            _ => false,
        }
    }

    /// The database, and how its change log is followed; none while it is not open, and of cn=config. `writer`: is woken by changes.
    fn joined(&self, writer: &Weak<LogWriter<H>>) -> Option<Open<'_, H>> {
        let SourceKind::Database(host, joined) = &self.origin else { return None };
        let served = host.served()?;
        let join = || {
            let woken = Weak::clone(writer);
            let wake = move || {
                if let Some(writer) = woken.upgrade() {
                    writer.wake();
                }
            };
            // Nothing is trimmed before it is known what was read.
            let following = served.database().following();
            let reader = following.join(Arc::new(wake), 0, Hold::Unbounded);
            let began = following.answered();
            // Read behind that: it leaves out none of them.
            let snapshot = served.database().store().snapshot();
            let earlier = snapshot.ok().and_then(|snapshot| log::context_csns(&snapshot).ok());
            JoinedLog { began, earlier, reader }
        };
        Some((served, joined.get_or_init(join)))
    }

    /// The last change that any client may have received.
    fn committed(&self) -> u64 {
        match &self.origin {
            SourceKind::Database(host, _) => {
                host.served().map_or(0, |served| served.database().writes().log_last())
            }
            SourceKind::Configuration(changes) => changes.committed(),
        }
    }

    /// Whether what it has up to this change is recorded, or nothing more is recorded here.
    fn has_recorded(&self, committed: u64) -> bool {
        self.reached.load(Ordering::Acquire) >= committed || self.has_ended() || self.term().is_none()
    }

    /// No thread follows it any longer.
    fn leave(&self) {
        match &self.origin {
            SourceKind::Database(_, joined) => {
                joined.get().into_iter().for_each(|joined| joined.reader.leave())
            }
            SourceKind::Configuration(changes) => changes.end(),
        }
    }

    /// Whether nothing more is to come.
    fn has_ended(&self) -> bool {
        match &self.origin {
            SourceKind::Database(host, _) => host.served().is_some_and(|served| served.is_retired()),
            SourceKind::Configuration(changes) => changes.has_ended(),
        }
    }

    /// By what facts about its changes are found; none while it is not open.
    fn instance(&self) -> Option<u64> {
        match &self.origin {
            SourceKind::Database(host, _) => host.served().map(|served| served.database().instance()),
            SourceKind::Configuration(_) => Some(CONFIGURATION),
        }
    }

    /// The term in which this server writes it, if that is a matter of turns; none while another server does.
    fn term(&self) -> Option<u64> {
        match &self.origin {
            SourceKind::Database(host, _) => host.term(),
            SourceKind::Configuration(_) => Some(0),
        }
    }
}

impl<H: OverlayHost> Recorder<H> {
    /// Where its requests go when they have ended; none while the database is not open.
    fn records(&self) -> Option<Records> {
        let log: Weak<LogWriter<H>> = Arc::downgrade(&self.log);
        Some(Records { success_only: self.settings.success_only, database: self.source.instance()?, log })
    }
}

fn new_source<H: OverlayHost>(host: H, writer: &Arc<LogWriter<H>>) -> Arc<Source<H>> {
    let settings = host.settings();
    let name = settings.suffixes.first().map(|suffix| suffix.normal.as_str().to_owned()).unwrap_or_default();
    let writer = Arc::downgrade(writer);
    let woken = Weak::clone(&writer);
    host.on_change(Box::new(move || {
        let woken = woken.upgrade();
        woken.iter().for_each(|writer| writer.wake());
        woken.is_some()
    }));
    let source =
        Source { origin: SourceKind::Database(host, OnceLock::new()), name, reached: AtomicU64::new(0) };
    source.joined(&writer);
    Arc::new(source)
}
