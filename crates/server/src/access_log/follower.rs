//! The thread that writes one log database: it follows the change logs of the databases that are recorded there, and
//! takes what connections hand over.

mod extent;
mod reading;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larix_engine::Fault;
use larix_engine::Served;
use larix_engine::audit::{AuditFacts, Request};
use larix_engine::injected;
use larix_engine::log::{LogKey, LogWatch};
use larix_engine::time::{Clock, Timestamp};
use larix_engine::write::{NewRecord, Recording, WriteOutcome};
use larix_proto::LdapResult;
use larix_store::lmdb::LmdbStore;
use uuid::Uuid;

use super::configuration::Held;
use super::purge::Purging;
use super::{Recorder, Source, SourceKind};
use crate::clock::SystemClock;
use crate::log::Log;
use crate::panics;
use extent::{Context, Extent};
use reading::merged;

/// Operations that wait to be recorded; what comes then is counted and left out. The change log itself waits without limit.
const REQUESTS: usize = 65_536;
/// Changes whose requests are remembered until they are recorded; for others there is only the change log.
const FACTS: usize = 65_536;
/// Records in one commit, from each source and from what was handed over.
const GROUP: usize = 1_024;
/// After a failure, until the next try.
const RETRY: Duration = Duration::from_secs(1);
/// How long the thread sleeps at most.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);

/// What the thread shares with connections and writers.
#[derive(Debug)]
pub(super) struct LogWriter {
    served: Arc<Served<LmdbStore>>,
    clock: Arc<SystemClock>,
    log: Log,
    state: Mutex<State>,
    wake: Condvar,
    /// Searches of the log that wait for what is not there yet.
    watch: LogWatch,
    handed_over: AtomicU64,
    handled: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    recorders: Vec<Arc<Recorder>>,
    requests: VecDeque<(Request, AuditFacts)>,
    /// By the database's instance and the sequence in its change log.
    facts: HashMap<(u64, u64), Arc<AuditFacts>>,
    /// Something has happened since the last round.
    awake: bool,
    ended: bool,
    lost: u64,
}

/// What the thread alone knows.
#[derive(Debug, Default)]
struct Known {
    /// From where on the log has changes; `None` before it was read.
    extent: Option<Extent>,
    /// How far sources had come at some time, by their names, where the log has not come as far yet.
    contexts: HashMap<String, Context>,
    /// Where the change logs were read up to, by the sources' names.
    positions: HashMap<String, Position>,
    /// How the entries of cn=config were when they were recorded last; `None` before that was read.
    configuration: Option<Arc<Held>>,
    /// The last change's.
    last_start: Timestamp,
    purging: Purging,
    failing: bool,
}

/// Up to where a change log was read. It may begin another history while it is read: the first content of a database is not in it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Position {
    history: Uuid,
    key: LogKey,
}

/// One commit's worth, and what holds once it is done.
struct Round {
    recording: Recording,
    positions: Vec<(Arc<Source>, Position)>,
    configuration: Option<Arc<Held>>,
    /// How many of what was handed over are in it.
    requests: usize,
    extent: Extent,
    contexts: HashMap<String, Context>,
    /// There is more already.
    more: bool,
}

impl LogWriter {
    pub(super) fn new(served: Arc<Served<LmdbStore>>, clock: Arc<SystemClock>, log: Log) -> Self {
        Self {
            served,
            clock,
            log,
            state: Mutex::default(),
            wake: Condvar::new(),
            watch: LogWatch::default(),
            handed_over: AtomicU64::new(0),
            handled: AtomicU64::new(0),
        }
    }

    /// The database that takes the records.
    pub(super) fn served(&self) -> &Arc<Served<LmdbStore>> {
        &self.served
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

    pub(super) fn set_recorders(&self, recorders: Vec<Arc<Recorder>>) {
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

    /// Takes an operation that changed nothing.
    pub(super) fn hand_over(&self, request: Request, facts: AuditFacts) {
        let mut state = self.lock();
        if state.requests.len() >= REQUESTS {
            state.lost += 1;
            return;
        }
        state.requests.push_back((request, facts));
        self.handed_over.fetch_add(1, Ordering::AcqRel);
        self.wake.notify_one();
    }

    /// Keeps what is known of the request behind these records of a database's change log.
    pub(super) fn keep_facts(&self, database: u64, sequences: Range<u64>, facts: AuditFacts) {
        let mut state = self.lock();
        let facts = Arc::new(facts);
        for sequence in sequences {
            if state.facts.len() >= FACTS {
                break;
            }
            state.facts.insert((database, sequence), Arc::clone(&facts));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of it is whole: nothing is left half done by who panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    pub(super) fn run(&self) {
        let mut known = Known::default();
        loop {
            let ended = self.sleep(&known);
            let mut more = true;
            while more && !self.served.is_retired() {
                let round = panics::contained(|| {
                    injected::panic_at("access-log");
                    self.round(&mut known)
                });
                let round = round.unwrap_or_else(|panicked| {
                    known = Known::default();
                    Err(panicked.to_string())
                });
                match round {
                    Ok(again) => {
                        more = again;
                        if std::mem::replace(&mut known.failing, false) {
                            self.log.notice(format_args!("access log: recording goes on"));
                        }
                    }
                    Err(why) => {
                        if !std::mem::replace(&mut known.failing, true) {
                            self.log.warning(format_args!("access log: cannot be written: {why}"));
                        }
                        more = false;
                    }
                }
                self.watch.tell();
            }
            self.watch.tell();
            if ended || self.served.is_retired() {
                break;
            }
        }
    }

    /// Waits until there is something to do; whether it is the end.
    fn sleep(&self, known: &Known) -> bool {
        let mut state = self.lock();
        let patience = match known.failing {
            true => RETRY,
            false => known.purging.patience(self.clock.now(), &state.recorders).unwrap_or(LOOK_EVERY),
        };
        let busy = |state: &State| state.awake || !state.requests.is_empty();
        if !state.ended && (known.failing || !busy(&state)) && !patience.is_zero() {
            let still = |state: &mut State| !state.ended && (known.failing || !busy(state));
            state = self
                .wake
                .wait_timeout_while(state, patience, still)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.awake = false;
        let lost = std::mem::take(&mut state.lost);
        let ended = state.ended;
        drop(state);
        if lost > 0 {
            self.log.warning(format_args!(
                "access log: {lost} operations are not recorded, {REQUESTS} were waiting already"
            ));
        }
        ended
    }

    /// Records a group; whether there is more.
    fn round(&self, known: &mut Known) -> Result<bool, String> {
        let (recorders, requests) = {
            let state = self.lock();
            let requests: Vec<_> = state.requests.iter().take(GROUP).cloned().collect();
            (state.recorders.clone(), requests)
        };
        let mut round = self.gather(known, &recorders, requests).map_err(|fault| fault.to_string())?;
        let purges = known
            .purging
            .slice(&self.served, self.clock.now(), &recorders, &mut round.recording.removed)
            .map_err(|fault| fault.to_string())?;
        if let Some(purged) = purges {
            round.more |= purged.more;
            round.extent.lacks(purged.csns);
        }
        let retired = self.retired(&recorders).map_err(|fault| fault.to_string())?;
        round.recording.retired = retired;
        round.extent.record(known.extent.as_ref(), &mut round.recording);
        if !round.recording.is_empty() {
            self.commit(round.recording)?;
        }
        (known.extent, known.contexts) = (Some(round.extent), round.contexts);
        known.configuration = round.configuration;
        self.settle(known, round.positions, round.requests);
        Ok(round.more)
    }

    /// What the change logs and connections have to tell.
    fn gather(
        &self,
        known: &mut Known,
        recorders: &[Arc<Recorder>],
        requests: Vec<(Request, AuditFacts)>,
    ) -> Result<Round, Fault> {
        let database = self.served.database();
        let schema = database.schema();
        let suffix = database.settings().suffixes.first().cloned();
        let missing = Fault::Damaged { what: "the suffix of the access log's database" };
        let suffix = suffix.ok_or(missing)?;
        let mut recording = Recording::new(suffix.normal, suffix.text);
        let mut extent = match &known.extent {
            Some(extent) => extent.clone(),
            None => self.open(recorders, &mut recording)?,
        };
        let mut positions = Vec::new();
        let mut contexts = HashMap::new();
        let mut more = requests.len() == GROUP;
        let mut changes: Vec<(Timestamp, NewRecord)> = Vec::new();
        let mut configuration = known.configuration.clone();
        for recorder in recorders {
            let read = match &recorder.source.origin {
                SourceKind::Database(served, _) => {
                    self.changes_of(known, (recorder, served), &schema, &mut changes, &mut recording)?
                }
                SourceKind::Configuration(source) => {
                    let held = &mut configuration;
                    self.changes_of_configuration(
                        held,
                        (recorder, source),
                        &schema,
                        &mut changes,
                        &mut recording,
                    )?
                }
            };
            more |= !read.ended;
            extent.lacks(read.missed);
            contexts.extend(read.context.map(|context| (recorder.source.name.clone(), context)));
            positions.push((Arc::clone(&recorder.source), read.reached));
        }
        for (_, record) in &mut changes {
            record.start = record.start.max(Timestamp(known.last_start.0.saturating_add(1)));
            known.last_start = record.start;
            record.csn.into_iter().for_each(|csn| extent.note(csn));
        }
        let count = requests.len();
        recording.records = merged(&schema, changes, requests);
        Ok(Round { recording, positions, configuration, requests: count, extent, contexts, more })
    }

    fn commit(&self, recording: Recording) -> Result<(), String> {
        let (done, ended) = sync_channel::<LdapResult>(1);
        let tell = move |outcome: WriteOutcome| {
            // The receiver still waits.
            let _ = done.send(outcome.result);
        };
        self.served.record(recording, Box::new(tell));
        match ended.recv() {
            Ok(result) if result.is_success() => Ok(()),
            Ok(result) => Err(result.to_string()),
            Err(_) => Err("the writer has ended".to_owned()),
        }
    }

    /// What was committed need not be kept any longer.
    fn settle(&self, known: &mut Known, positions: Vec<(Arc<Source>, Position)>, requests: usize) {
        let mut state = self.lock();
        state.requests.drain(..requests);
        for (source, position) in positions {
            let before = known.positions.insert(source.name.clone(), position);
            let key = position.key;
            if before.is_none_or(|before| before.key != key) {
                let instance = source.instance();
                state.facts.retain(|(other, sequence), _| *other != instance || *sequence > key.sequence);
            }
            match &source.origin {
                SourceKind::Database(_, reader) => reader.needs_from(key.sequence + 1),
                SourceKind::Configuration(changes) => changes.forget(key.sequence),
            }
            source.reached.store(key.sequence, Ordering::Release);
        }
        drop(state);
        self.handled.fetch_add(requests as u64, Ordering::AcqRel);
    }
}
