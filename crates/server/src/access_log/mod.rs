//! Access logs: operations on one database and their results, as entries of another (`overlay accesslog`).
//!
//! Changes are derived from the database's change log, in its order, by a thread for each log database, which keeps in the
//! same commit how far it has come: no change is lost, none is recorded twice, and no answer waits for it. What only the
//! connection knows of a request is handed over beside it, as is everything of operations that change nothing; of that a
//! crash loses what was not committed yet (`docs/adr/0027-the-access-log-follows-the-change-log.md`).

mod configuration;
mod follower;
mod purge;
mod recorded;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use larix_configuration::{AccessLogSettings, Config};
use larix_engine::Served;
use larix_engine::audit::{AuditFacts, Operation, Request};
use larix_engine::log::{Follower, Hold, LogKey, LogReader};
use larix_engine::time::{Clock, Monotonic};
use larix_engine::write::WriteOutcome;
use larix_proto::LdapResult;
use larix_schema::NormalDn;
use larix_store::lmdb::LmdbStore;

use crate::clock::SystemClock;
use crate::log::Log;

use configuration::ConfigChanges;
use follower::LogWriter;
pub(crate) use recorded::RecordedRequest;

/// A search of a log waits so long at most for what was done before it to be recorded.
const PATIENCE_NANOS: u64 = 2_000_000_000;

/// A database whose operations are recorded.
#[derive(Debug)]
struct Source {
    origin: SourceKind,
    /// By what it is known in the log's database: its suffix.
    name: String,
    /// Where its change log ended when recording was asked for: changes behind that are recorded.
    began: LogKey,
    /// Up to here the records of its change log are in the access log, or not wanted there.
    reached: AtomicU64,
}

/// Where the changes of a source are read.
#[derive(Clone, Debug)]
enum SourceKind {
    /// By its change log, which drops no record before it was read.
    Database(Arc<Served<LmdbStore>>, Arc<LogReader>),
    /// cn=config: from the thread that changes it.
    Configuration(Arc<ConfigChanges>),
}

/// What one database has recorded, and where.
#[derive(Debug)]
pub(crate) struct Recorder {
    settings: AccessLogSettings,
    source: Arc<Source>,
    log: Arc<LogWriter>,
}

/// A log database's thread.
#[derive(Debug)]
struct Following {
    writer: Arc<LogWriter>,
    thread: Option<JoinHandle<()>>,
}

/// An access log with the database that is recorded (`None`: cn=config) and the one that takes the records.
pub(crate) type Recorded = (AccessLogSettings, Option<Arc<Served<LmdbStore>>>, Arc<Served<LmdbStore>>);

/// All access logs of the server.
#[derive(Debug, Default)]
pub(crate) struct AccessLogs {
    recorders: ArcSwap<Vec<Arc<Recorder>>>,
    any: AtomicBool,
    threads: Mutex<Vec<Following>>,
}

impl AccessLogs {
    /// Whether anything is recorded at all.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Records what a configuration wants recorded.
    ///
    /// # Errors
    /// No thread to be had.
    pub(crate) fn follow(
        &self,
        (config, recorded): (&Arc<Config>, Vec<Recorded>),
        (clock, log): (&Arc<SystemClock>, &Log),
    ) -> io::Result<()> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = self.recorders.load_full();
        let mut recorders = Vec::new();
        for (settings, source, target) in recorded {
            let known = |f: &&Following| Arc::ptr_eq(f.writer.served(), &target);
            let writer = match threads.iter().find(known) {
                Some(following) => Arc::clone(&following.writer),
                None => {
                    let writer = Arc::new(LogWriter::new(Arc::clone(&target), clock.clone(), log.clone()));
                    let own = Arc::clone(&writer);
                    let thread =
                        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || own.run())?;
                    threads.push(Following { writer: Arc::clone(&writer), thread: Some(thread) });
                    writer
                }
            };
            let same = |r: &&Arc<Recorder>| r.source.is(source.as_ref()) && Arc::ptr_eq(&r.log, &writer);
            let source = match (earlier.iter().find(same), source) {
                (Some(recorder), _) => Arc::clone(&recorder.source),
                (None, Some(served)) => new_source(served, &writer),
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
            .partition(|following| recorders.iter().any(|r| Arc::ptr_eq(&r.log, &following.writer)));
        *threads = stay;
        for following in threads.iter() {
            let own = recorders.iter().filter(|r| Arc::ptr_eq(&r.log, &following.writer));
            following.writer.set_recorders(own.cloned().collect());
        }
        end.into_iter().for_each(Following::finish);
        Ok(())
    }

    /// Records what is left, and ends the threads. To be called when no more requests come.
    pub(crate) fn finish(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        threads.into_iter().for_each(Following::finish);
    }

    /// The recorder of an operation on this name in this database; none when no log wants it.
    pub(crate) fn recorder(
        &self,
        served: &Arc<Served<LmdbStore>>,
        operation: Operation,
        dn: Option<&NormalDn>,
    ) -> Option<Arc<Recorder>> {
        let recorders = self.recorders.load();
        let recorder = recorders.iter().find(|recorder| recorder.source.is(Some(served)))?;
        recorder.settings.wants(operation, dn).then(|| Arc::clone(recorder))
    }

    /// Who records an operation on this name below cn=config.
    pub(crate) fn recorder_of_configuration(
        &self,
        operation: Operation,
        dn: Option<&NormalDn>,
    ) -> Option<Arc<Recorder>> {
        let recorders = self.recorders.load();
        let recorder = recorders.iter().find(|recorder| recorder.source.is(None))?;
        recorder.settings.wants(operation, dn).then(|| Arc::clone(recorder))
    }

    /// cn=config was changed, and the change is in force. Answers the sequences of its records. Once the requester
    /// has its answer, the caller must call [`wake_configuration`](Self::wake_configuration).
    pub(crate) fn configuration_changed(&self, before: &Config, after: &Config) -> Range<u64> {
        let recorders = self.recorders.load();
        let source = recorders.iter().find_map(|recorder| match &recorder.source.origin {
            SourceKind::Configuration(changes) => Some(changes),
            SourceKind::Database(..) => None,
        });
        source.map_or(0..0, |changes| changes.changed(before, after))
    }

    /// Has recorded what was changed of cn=config.
    pub(crate) fn wake_configuration(&self) {
        let recorders = self.recorders.load();
        for recorder in recorders.iter() {
            if let SourceKind::Configuration(changes) = &recorder.source.origin {
                changes.answered();
                recorder.log.wake();
            }
        }
    }

    /// All that record this kind of operation somewhere.
    pub(crate) fn recorders_of(&self, operation: Operation) -> Vec<Arc<Recorder>> {
        let recorders = self.recorders.load();
        recorders.iter().filter(|recorder| recorder.settings.wants(operation, None)).cloned().collect()
    }

    /// What a search of this database has to wait for, so that it sees all that was answered before it began; none when
    /// nothing is to come.
    pub(crate) fn gate(&self, served: &Arc<Served<LmdbStore>>, clock: &SystemClock) -> Option<Gate> {
        if !self.any() {
            return None;
        }
        let recorders = self.recorders.load();
        let own = recorders.iter().filter(|recorder| Arc::ptr_eq(recorder.log.served(), served));
        let sources: Vec<_> = own
            .map(|recorder| (Arc::clone(&recorder.source), recorder.source.committed()))
            .filter(|(source, committed)| source.reached.load(Ordering::Acquire) < *committed)
            .collect();
        let log = recorders.iter().find(|recorder| Arc::ptr_eq(recorder.log.served(), served))?;
        let log = Arc::clone(&log.log);
        let handed_over = log.handed_over();
        if sources.is_empty() && log.handled() >= handed_over {
            return None;
        }
        let until = clock.monotonic().0.saturating_add(PATIENCE_NANOS);
        let sources = sources.iter().map(|(source, committed)| (Arc::downgrade(source), *committed));
        let (sources, log) = (sources.collect(), Arc::downgrade(&log));
        Some(Gate { sources, log, handed_over, until: Monotonic(until), follower: None })
    }
}

impl Following {
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

impl Source {
    fn configuration(config: &Arc<Config>) -> Self {
        Self {
            origin: SourceKind::Configuration(Arc::new(ConfigChanges::new(config))),
            name: configuration::NAME.to_owned(),
            began: LogKey { server_id: 0, sequence: 0 },
            reached: AtomicU64::new(0),
        }
    }

    /// Whether it is this database; `None`: cn=config.
    fn is(&self, other: Option<&Arc<Served<LmdbStore>>>) -> bool {
        match (&self.origin, other) {
            (SourceKind::Database(served, _), Some(other)) => Arc::ptr_eq(served, other),
            (SourceKind::Configuration(_), None) => true,
            _ => false,
        }
    }

    /// The last change that any client may have received.
    fn committed(&self) -> u64 {
        match &self.origin {
            SourceKind::Database(served, _) => served.database().writes().log_last(),
            SourceKind::Configuration(changes) => changes.committed(),
        }
    }

    /// No thread follows it any longer.
    fn leave(&self) {
        match &self.origin {
            SourceKind::Database(_, reader) => reader.leave(),
            SourceKind::Configuration(changes) => changes.end(),
        }
    }

    /// Whether nothing more is to come.
    fn has_ended(&self) -> bool {
        match &self.origin {
            SourceKind::Database(served, _) => served.is_retired(),
            SourceKind::Configuration(changes) => changes.has_ended(),
        }
    }

    /// By what facts about its changes are found.
    fn instance(&self) -> u64 {
        match &self.origin {
            SourceKind::Database(served, _) => served.database().instance(),
            SourceKind::Configuration(_) => CONFIGURATION,
        }
    }
}

/// What a search of a log waits for. It keeps no database open, and what is gone is not waited for.
#[derive(Debug)]
pub(crate) struct Gate {
    sources: Vec<(Weak<Source>, u64)>,
    log: Weak<LogWriter>,
    handed_over: u64,
    until: Monotonic,
    /// Who waits.
    follower: Option<Arc<Follower>>,
}

impl Gate {
    /// Whom to tell when it may be open.
    pub(crate) fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(log) = self.log.upgrade() {
            log.watch().follow(&follower);
        }
        self.follower = Some(follower);
    }

    /// Whether a follower will be notified, so that it need not ask before.
    pub(crate) fn tells(&self) -> bool {
        self.follower.is_some()
    }

    /// Whether all of it is recorded, or it has taken too long.
    pub(crate) fn is_open(&self, clock: &SystemClock) -> bool {
        self.follower.iter().for_each(|follower| follower.looks());
        let reached = |(source, committed): &(Weak<Source>, u64)| {
            let has_reached = |source: Arc<Source>| {
                source.reached.load(Ordering::Acquire) >= *committed || source.has_ended()
            };
            source.upgrade().is_none_or(has_reached)
        };
        let has_handled = |log: Arc<LogWriter>| log.handled() >= self.handed_over;
        (self.sources.iter().all(reached) && self.log.upgrade().is_none_or(has_handled))
            || clock.monotonic() >= self.until
    }
}

impl Recorder {
    /// Whether only operations that succeed are recorded.
    pub(crate) fn is_success_only(&self) -> bool {
        self.settings.success_only
    }

    /// The database whose operations are recorded; `None`: cn=config.
    pub(crate) fn database(&self) -> Option<&Arc<Served<LmdbStore>>> {
        match &self.source.origin {
            SourceKind::Database(served, _) => Some(served),
            SourceKind::Configuration(_) => None,
        }
    }

    /// Where its requests go when they have ended.
    pub(crate) fn records(&self) -> Records {
        Records {
            success_only: self.settings.success_only,
            database: self.source.instance(),
            log: Arc::downgrade(&self.log),
        }
    }
}

/// Where requests go that are under way. It keeps no database open: a client that does not read its answers must not hold up a restore.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    success_only: bool,
    /// The instance whose operations are recorded.
    database: u64,
    log: Weak<LogWriter>,
}

impl Records {
    /// An operation that changed nothing has ended.
    pub(crate) fn ended(&self, request: Request, facts: AuditFacts) {
        const COMPARE_FALSE: u32 = 5;
        const COMPARE_TRUE: u32 = 6;
        if self.success_only && !matches!(facts.result, 0 | COMPARE_FALSE | COMPARE_TRUE) {
            return;
        }
        // A log that was retired meanwhile takes no records.
        if let Some(log) = self.log.upgrade() {
            log.hand_over(request, facts);
        }
    }

    /// A change has ended: called before its requester is answered, and before the change log's follower is woken.
    pub(crate) fn changed(&self, request: Request, facts: AuditFacts, outcome: &WriteOutcome) {
        let facts =
            AuditFacts { response_controls: outcome.controls.clone(), ..facts }.with_result(&outcome.result);
        if outcome.result.is_success() {
            // cn=config says itself under what name it took an entry.
            let dn = facts.dn.clone().filter(|_| self.database != CONFIGURATION);
            let facts = AuditFacts { dn, ..facts };
            if let Some(log) = self.log.upgrade() {
                log.keep_facts(self.database, outcome.logged.clone(), facts);
            }
        } else {
            self.ended(request, facts);
        }
    }
}

/// Facts about results.
trait WithResult {
    fn with_result(self, result: &LdapResult) -> Self;
}

impl WithResult for AuditFacts {
    fn with_result(mut self, result: &LdapResult) -> Self {
        self.result = result.code.0;
        self.message.clone_from(&result.diagnostic);
        self.referrals.clone_from(&result.referrals);
        self
    }
}

fn new_source(served: Arc<Served<LmdbStore>>, writer: &Arc<LogWriter>) -> Arc<Source> {
    let suffixes = &served.database().settings().suffixes;
    let name = suffixes.first().map(|suffix| suffix.normal.as_str().to_owned()).unwrap_or_default();
    let woken = Arc::downgrade(writer);
    let wake = move || {
        if let Some(writer) = woken.upgrade() {
            writer.wake();
        }
    };
    // Nothing is trimmed before it is known what was read.
    let following = served.database().following();
    let reader = following.join(Arc::new(wake), 0, Hold::Unbounded);
    let began = following.answered();
    Arc::new(Source { origin: SourceKind::Database(served, reader), name, began, reached: AtomicU64::new(0) })
}
