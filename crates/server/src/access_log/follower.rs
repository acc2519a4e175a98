//! The thread that writes one log database: it follows the change logs of the databases that are recorded there, and
//! takes what connections hand over.

mod extent;
mod fitting;
mod reading;
mod sharing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use larix_engine::Fault;
use larix_engine::ServedDatabase;
use larix_engine::audit::{AuditFacts, Request};
use larix_engine::injected;
use larix_engine::log::{LogKey, LogWatch};
use larix_engine::time::{Clock, Timestamp};
use larix_engine::write::{Recording, WriteOutcome};
use larix_proto::LdapResult;
use larix_store::{ReadError, Store};
use uuid::Uuid;

use super::configuration::EntryVersions;
use super::purge::Purging;
use super::request_queue::{REQUEST_BYTES, REQUESTS, RequestQueue, Requests};
use super::turn::Turn;
use super::{Recorder, Source, SourceKind, TakeOperations};
use crate::clock::SystemClock;
use crate::log::Log;
use crate::overlay_threads::OverlayHost;
use crate::panics;
use extent::{Context, Extent};
use reading::{GROUP_BYTES, merged};
use sharing::Share;

/// Changes whose requests are remembered until they are recorded; for others there is only the change log.
const FACTS: usize = 65_536;
/// Records in one commit, from each source and from what was handed over.
const GROUP: usize = 1_024;
/// The same where several servers share the store: the engine has to carry it out within its deadline.
const GROUP_SHARED: usize = 256;
/// Where several servers share the store: after each failure a commit has half as many records, down to this part (as a power of two),
/// so that one which takes an engine too long is not tried for ever.
const SHRUNK_MAX: u32 = 8;
/// After so many commits that went well it has twice as many again.
const GROWS_AFTER: u32 = 16;
/// After a failure, until the next try.
const RETRY: Duration = Duration::from_secs(1);
/// How long the thread sleeps at most.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);
/// While another server records, how often the thread looks whether this one does: it is notified as well.
const TERM_EVERY: Duration = Duration::from_secs(10);

/// What the thread shares with connections and writers.
#[derive(Debug)]
pub(super) struct LogWriter<H: OverlayHost> {
    /// The database that takes the records.
    host: H,
    clock: Arc<SystemClock>,
    log: Log,
    state: Mutex<State<H>>,
    wake: Condvar,
    /// Searches of the log that wait for what is not there yet.
    watch: LogWatch,
    handed_over: AtomicU64,
    handled: AtomicU64,
    /// By which sources find the thread.
    own: Weak<Self>,
}

#[derive(Debug)]
struct State<H: OverlayHost> {
    recorders: Vec<Arc<Recorder<H>>>,
    requests: RequestQueue,
    /// By the database's instance and the sequence in its change log.
    facts: HashMap<(u64, u64), Arc<AuditFacts>>,
    /// Something has happened since the last round.
    awake: bool,
    ended: bool,
}

impl<H: OverlayHost> Default for State<H> {
    fn default() -> Self {
        Self {
            recorders: Vec::new(),
            requests: RequestQueue::default(),
            facts: HashMap::new(),
            awake: false,
            ended: false,
        }
    }
}

/// The terms in which this server writes the log's database and those that are recorded.
type Term = (u64, u64);

/// What the thread alone knows.
#[derive(Debug, Default)]
struct Progress {
    /// The term in which it knows that; none while another server records, or where it is to be read anew.
    term: Option<Term>,
    /// What the next commit continues, where several servers share the store.
    turn: Option<Turn>,
    /// From where on the log has changes; `None` before it was read.
    extent: Option<Extent>,
    /// How far sources had come at some time, by their names, where the log has not come as far yet.
    contexts: HashMap<String, Context>,
    /// Where the change logs were read up to, by the sources' names.
    positions: HashMap<String, Position>,
    /// How the entries of cn=config were when they were recorded last; `None` before that was read.
    configuration: Option<Arc<EntryVersions>>,
    /// The last change's.
    last_start: Timestamp,
    purging: Purging,
    failing: bool,
    /// How often the number of records in one commit was halved, and the rounds that went well since.
    shrunk: u32,
    went_well: u32,
}

impl Progress {
    /// So much of a number of records or bytes goes into one commit.
    fn share(&self, whole: usize) -> usize {
        (whole >> self.shrunk).max(1)
    }

    /// Notes how a round ended.
    fn adapt(&mut self, is_done: bool) {
        if !is_done {
            self.shrunk = (self.shrunk + 1).min(SHRUNK_MAX);
            self.went_well = 0;
        } else if self.shrunk > 0 {
            self.went_well += 1;
            if self.went_well == GROWS_AFTER {
                self.shrunk -= 1;
                self.went_well = 0;
            }
        }
    }
}

/// Up to where a change log was read. It may begin another history while it is read: the first content of a database is not in it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Position {
    history: Uuid,
    key: LogKey,
}

/// One commit's worth, and what holds once it is done.
struct Round<H: OverlayHost> {
    recording: Recording,
    positions: Vec<(Arc<Source<H>>, Position)>,
    configuration: Option<Arc<EntryVersions>>,
    /// How many of what was handed over are in it.
    requests: usize,
    extent: Extent,
    contexts: HashMap<String, Context>,
    /// Sources of which the log has gone past changes.
    late: Vec<String>,
    /// There is more already.
    more: bool,
}

impl<H: OverlayHost> LogWriter<H> {
    pub(super) fn new(host: H, clock: Arc<SystemClock>, log: Log) -> Arc<Self> {
        let writer = Arc::new_cyclic(|own| Self {
            host,
            clock,
            log,
            state: Mutex::default(),
            wake: Condvar::new(),
            watch: LogWatch::default(),
            handed_over: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            own: Weak::clone(own),
        });
        let own = Arc::downgrade(&writer);
        writer.host.on_change(Box::new(move || {
            let own = own.upgrade();
            own.iter().for_each(|own| own.wake());
            own.is_some()
        }));
        writer
    }

    /// The database that takes the records.
    pub(super) fn host(&self) -> &H {
        &self.host
    }

    /// The same where it is open, as it is in each [term](Self::term).
    ///
    /// # Errors
    /// It is not.
    fn served(&self) -> Result<&Arc<ServedDatabase<H::Store>>, Fault> {
        let closed = || ReadError::Unavailable(io::Error::other("the access log's database is not open"));
        self.host.served().ok_or_else(|| closed().into())
    }

    /// Records in one commit.
    const fn group() -> usize {
        if <H::Store as Store>::SHARED { GROUP_SHARED } else { GROUP }
    }

    fn is_retired(&self) -> bool {
        self.host.served().is_some_and(|served| served.is_retired())
    }

    /// In which term this server writes the log, and what is recorded there; none while it does not.
    fn term(&self, recorders: &[Arc<Recorder<H>>]) -> Option<Term> {
        let own = self.host.term().filter(|_| self.host.served().is_some())?;
        let mut of_sources = 0;
        for recorder in recorders {
            of_sources = recorder.source.term()?.max(of_sources);
        }
        Some((own, of_sources))
    }

    pub(super) fn watch(&self) -> &LogWatch {
        &self.watch
    }

    pub(super) fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Acquire)
    }

    pub(super) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Acquire)
    }

    pub(super) fn set_recorders(&self, recorders: Vec<Arc<Recorder<H>>>) {
        let mut state = self.lock();
        state.recorders = recorders;
        state.awake = true;
        self.wake.notify_one();
    }

    /// There are changes to be recorded.
    pub(super) fn wake(&self) {
        self.lock().awake = true;
        self.wake.notify_one();
    }

    /// Lets the thread record what is there, and end.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<H>> {
        // Every change of it is whole: nothing is left half done by who panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    pub(super) fn run(&self) {
        let mut progress = Progress::default();
        loop {
            let ended = self.sleep(&progress);
            let mut more = true;
            while more && !self.is_retired() {
                let round = panics::contained(|| {
                    injected::panic_at("access-log");
                    self.round(&mut progress)
                });
                let round = round.unwrap_or_else(|panicked| {
                    progress = Progress::default();
                    Err(panicked.to_string())
                });
                match round {
                    Ok(again) => {
                        more = again;
                        if std::mem::replace(&mut progress.failing, false) {
                            self.log.notice(format_args!("access log: recording goes on"));
                        }
                    }
                    Err(why) => {
                        if !std::mem::replace(&mut progress.failing, true) {
                            self.log.warning(format_args!("access log: cannot be written: {why}"));
                        }
                        more = false;
                    }
                }
                self.watch.tell();
            }
            self.watch.tell();
            if ended || self.is_retired() {
                break;
            }
        }
    }

    /// How long there is nothing to do but what comes.
    fn patience(&self, progress: &Progress, state: &State<H>) -> Duration {
        if progress.failing {
            return RETRY;
        }
        if <H::Store as Store>::SHARED && progress.term.is_none() {
            return TERM_EVERY;
        }
        progress.purging.patience(self.clock.monotonic(), &state.recorders).unwrap_or(LOOK_EVERY)
    }

    /// Waits until there is something to do; whether it is the end.
    fn sleep(&self, progress: &Progress) -> bool {
        let mut state = self.lock();
        let patience = self.patience(progress, &state);
        let busy = |state: &State<H>| state.awake || !state.requests.is_empty();
        if !state.ended && (progress.failing || !busy(&state)) && !patience.is_zero() {
            let still = |state: &mut State<H>| !state.ended && (progress.failing || !busy(state));
            state = self
                .wake
                .wait_timeout_while(state, patience, still)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.awake = false;
        let lost = state.requests.take_lost();
        let ended = state.ended;
        drop(state);
        if lost > 0 {
            self.log.warning(format_args!(
                "access log: {lost} operations are not recorded: {REQUESTS} were waiting already, or {} MiB of them",
                REQUEST_BYTES >> 20
            ));
        }
        ended
    }

    /// Records a group; whether there is more. Where several servers share the store, only the one that writes does.
    fn round(&self, progress: &mut Progress) -> Result<bool, String> {
        let (recorders, (requests, left)) = {
            let state = self.lock();
            (state.recorders.clone(), state.requests.first(GROUP, GROUP_BYTES))
        };
        for recorder in &recorders {
            // Of a database that was opened late, nothing is to go from now on.
            recorder.source.joined(&self.own);
        }
        let term = self.term(&recorders);
        let Some(now) = term else {
            *progress = Progress::default();
            return Ok(false);
        };
        let recorded = self.record(progress, now, (&recorders, requests)).map(|more| more || left);
        if !<H::Store as Store>::SHARED {
            return recorded;
        }
        progress.adapt(recorded.is_ok());
        if recorded.is_ok() {
            return recorded;
        }
        // What became of it, and what others have recorded, is read anew.
        *progress = Progress { failing: progress.failing, shrunk: progress.shrunk, ..Progress::default() };
        if self.term(&recorders) == term {
            return recorded;
        }
        // Another server has taken over amid it.
        self.wake();
        Ok(false)
    }

    /// The same in a term.
    fn record(
        &self,
        progress: &mut Progress,
        term: Term,
        (recorders, requests): (&[Arc<Recorder<H>>], Requests),
    ) -> Result<bool, String> {
        let text = |fault: Fault| fault.to_string();
        if <H::Store as Store>::SHARED && progress.term != Some(term) {
            self.begin_term(progress, term, recorders)?;
        }
        // One that comes back begins where its last record in the log is, and the log may have gone past what was changed since.
        progress.positions.retain(|name, _| recorders.iter().any(|recorder| recorder.source.name == *name));
        let served = self.served().map_err(text)?;
        let shrunk = progress.shrunk;
        let mut round = self.gather(progress, recorders, requests).map_err(text)?;
        let times = (self.clock.now(), self.clock.monotonic());
        let purges = progress
            .purging
            .slice(served, times, (recorders, shrunk), &mut round.recording.removed)
            .map_err(text)?;
        if let Some(purged) = purges {
            round.more |= purged.more;
            round.extent.lacks(purged.csns);
        }
        round.recording.retired = self.retired(recorders).map_err(text)?;
        round.extent.record(progress.extent.as_ref(), &mut round.recording);
        if progress.extent.as_ref().is_none_or(|known| known.lacks != round.extent.lacks) {
            self.raise_sources(recorders, (&round.extent.lacks, &round.late)).map_err(text)?;
        }
        if !round.recording.is_empty() {
            let next =
                progress.turn.as_ref().map(|turn| turn.take(&mut round.recording, progress.last_start));
            self.commit(round.recording)?;
            progress.turn = next;
        }
        (progress.extent, progress.contexts) = (Some(round.extent), round.contexts);
        progress.configuration = round.configuration;
        self.settle(progress, round.positions, round.requests);
        Ok(round.more)
    }

    /// This server writes from now on, and others may have until now: reads what they have left.
    fn begin_term(
        &self,
        progress: &mut Progress,
        term: Term,
        recorders: &[Arc<Recorder<H>>],
    ) -> Result<(), String> {
        for recorder in recorders {
            if let Some((served, _)) = recorder.source.joined(&self.own) {
                served.follow_store().map_err(|error| error.to_string())?;
            }
        }
        let read = || -> Result<Turn, Fault> { Turn::read(&self.served()?.database().store().snapshot()?) };
        let turn = read().map_err(|fault| fault.to_string())?;
        *progress = Progress {
            term: Some(term),
            last_start: turn.last_start,
            turn: Some(turn),
            failing: progress.failing,
            shrunk: progress.shrunk,
            went_well: progress.went_well,
            ..Progress::default()
        };
        Ok(())
    }

    /// What the change logs and connections have to tell.
    fn gather(
        &self,
        progress: &mut Progress,
        recorders: &[Arc<Recorder<H>>],
        requests: Requests,
    ) -> Result<Round<H>, Fault> {
        let database = self.served()?.database();
        let schema = database.schema();
        let suffix = database.settings().suffixes.first().cloned();
        let missing = Fault::Damaged { what: "the suffix of the access log's database" };
        let suffix = suffix.ok_or(missing)?;
        let mut recording = Recording::new(suffix.normal, suffix.text);
        let mut extent = match &progress.extent {
            Some(extent) => extent.clone(),
            None => self.open(recorders, &mut recording)?,
        };
        let mut positions = Vec::new();
        let mut contexts = HashMap::new();
        let mut more = false;
        let mut of_sources = Vec::new();
        let mut configuration = progress.configuration.clone();
        let shares = self.shares(progress, recorders)?;
        let own_id = shares.values().next().map(|share| share.start.target.server_id);
        let is_late = |(name, share): (&String, &Share)| share.start.late.map(|_| name.clone());
        let late = shares.iter().filter_map(is_late).collect();
        for recorder in recorders {
            let mut changes = Vec::new();
            let read = match &recorder.source.origin {
                SourceKind::Database(..) => {
                    let open = recorder.source.joined(&self.own).zip(shares.get(&recorder.source.name));
                    let Some((joined, share)) = open else { continue };
                    let source = (recorder, joined, share);
                    self.changes_of(progress, source, &schema, &mut changes, &mut recording)?
                }
                SourceKind::Configuration(source) => {
                    let versions = &mut configuration;
                    self.changes_of_configuration(
                        versions,
                        (recorder, source),
                        &schema,
                        &mut changes,
                        &mut recording,
                    )?
                }
            };
            more |= read.more;
            extent.lacks(read.missed);
            extent.leaves_out(read.left_out);
            contexts.extend(read.context.map(|context| (recorder.source.name.clone(), context)));
            positions.push((Arc::clone(&recorder.source), read.reached));
            of_sources.push(changes);
        }
        let mut changes = sharing::in_one_order(of_sources, own_id);
        for (_, record) in &mut changes {
            record.start = record.start.max(Timestamp(progress.last_start.0.saturating_add(1)));
            progress.last_start = record.start;
            record.csn.into_iter().for_each(|csn| extent.note(csn));
        }
        let count = requests.len();
        recording.records = merged(&schema, changes, requests);
        Ok(Round { recording, positions, configuration, requests: count, extent, contexts, late, more })
    }

    fn commit(&self, recording: Recording) -> Result<(), String> {
        let (done, ended) = sync_channel::<LdapResult>(1);
        let tell = move |outcome: WriteOutcome| {
            // The receiver still waits.
            let _ = done.send(outcome.result);
        };
        self.served().map_err(|fault| fault.to_string())?.record(recording, Box::new(tell));
        match ended.recv() {
            Ok(result) if result.is_success() => Ok(()),
            Ok(result) => Err(result.to_string()),
            Err(_) => Err("the writer has ended".to_owned()),
        }
    }

    /// What was committed need not be kept any longer.
    fn settle(&self, progress: &mut Progress, positions: Vec<(Arc<Source<H>>, Position)>, requests: usize) {
        let mut state = self.lock();
        state.requests.done(requests);
        for (source, position) in positions {
            let before = progress.positions.insert(source.name.clone(), position);
            let key = position.key;
            if before.is_none_or(|before| before.key != key) {
                let instance = source.instance();
                state
                    .facts
                    .retain(|(other, sequence), _| Some(*other) != instance || *sequence > key.sequence);
            }
            match &source.origin {
                SourceKind::Database(_, joined) => {
                    joined.get().into_iter().for_each(|joined| joined.reader.needs_from(key.sequence + 1));
                }
                SourceKind::Configuration(changes) => changes.forget(key.sequence),
            }
            source.reached.store(key.sequence, Ordering::Release);
        }
        drop(state);
        self.handled.fetch_add(requests as u64, Ordering::AcqRel);
    }
}

impl<H: OverlayHost> TakeOperations for LogWriter<H> {
    fn hand_over(&self, request: Request, facts: AuditFacts) {
        if <H::Store as Store>::SHARED {
            // Each server would record its own part.
            return;
        }
        let mut state = self.lock();
        if !state.requests.push(request, facts) {
            return;
        }
        self.handed_over.fetch_add(1, Ordering::AcqRel);
        self.wake.notify_one();
    }

    fn keep_facts(&self, database: u64, sequences: Range<u64>, facts: AuditFacts) {
        let mut state = self.lock();
        let facts = Arc::new(facts);
        for sequence in sequences {
            if state.facts.len() >= FACTS {
                break;
            }
            state.facts.insert((database, sequence), Arc::clone(&facts));
        }
    }
}
