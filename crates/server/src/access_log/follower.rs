//! The thread that writes one log database: it follows the change logs of the databases that are recorded there, and
//! takes what connections hand over.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larix_engine::Fault;
use larix_engine::Served;
use larix_engine::audit::{self, Facts, Request};
use larix_engine::csn::Csn;
use larix_engine::log::{self, CsnVector, LogKey, LogWatch, LoggedChange};
use larix_engine::tables::META;
use larix_engine::time::{Clock, Timestamp};
use larix_engine::write::{NewRecord, Recording, WriteOutcome};
use larix_proto::LdapResult;
use larix_store::lmdb::LmdbStore;
use larix_store::{Snapshot, Store};
use uuid::Uuid;

use super::configuration::{ConfigChanges, Held};
use super::purge::Purging;
use super::{Recorder, Source, SourceKind};
use crate::clock::SystemClock;
use crate::log::Log;

/// Operations that wait to be recorded; what comes then is counted and left out. The change log itself waits without limit.
const REQUESTS: usize = 65_536;
/// Changes of which the request is remembered until they are recorded; of more there is what the change log says.
const FACTS: usize = 65_536;
/// Records in one commit, from each source and from what was handed over.
const GROUP: usize = 1_024;
/// Bytes of a change log that one commit takes, about.
const GROUP_BYTES: usize = 8 << 20;
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
    requests: VecDeque<(Request, Facts)>,
    /// By the database's instance and the sequence in its change log.
    facts: HashMap<(u64, u64), Arc<Facts>>,
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
    positions: HashMap<String, LogKey>,
    /// How the entries of cn=config were when they were recorded last; `None` before that was read.
    configuration: Option<Arc<Held>>,
    /// The last change's.
    last_start: Timestamp,
    purging: Purging,
    failing: bool,
}

/// How far a source had come when its change log was so long. The access log has come as far once it has all of that: other
/// servers' changes come in any order while a refresh comes in.
#[derive(Clone, Debug)]
struct Context {
    csns: Vec<Csn>,
    /// What of it came with entries as they are.
    whole: Vec<Csn>,
    sequence: u64,
}

impl Context {
    fn now<N: Snapshot>(snapshot: &N, server_id: u16) -> Result<Self, Fault> {
        let sequence = log::last_sequence(snapshot, server_id)?;
        Ok(Self { csns: log::context_csns(snapshot)?, whole: log::whole_csns(snapshot)?, sequence })
    }
}

/// From where on a log has changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Extent {
    /// Of the log's first entry: of each server of which there are records.
    min_csns: CsnVector,
    /// See [`audit::lacks`].
    lacks: CsnVector,
}

impl Extent {
    /// What was made up to here is not in the log.
    fn lacks(&mut self, csns: impl IntoIterator<Item = Csn>) {
        for csn in csns {
            self.min_csns.note(csn);
            self.lacks.note(csn);
        }
    }
}

/// One commit's worth, and what holds once it is done.
struct Round {
    recording: Recording,
    positions: Vec<(Arc<Source>, LogKey)>,
    configuration: Option<Arc<Held>>,
    /// How many of what was handed over are in it.
    requests: usize,
    extent: Extent,
    contexts: HashMap<String, Context>,
    /// There is more already.
    more: bool,
}

/// What a change log was read for.
struct Read {
    reached: LogKey,
    /// It ends there.
    ended: bool,
    /// What the access log has not come to.
    context: Option<Context>,
    /// Changes up to here are missing for ever.
    missed: Vec<Csn>,
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
    pub(super) fn hand_over(&self, request: Request, facts: Facts) {
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
    pub(super) fn keep_facts(&self, database: u64, sequences: Range<u64>, facts: Facts) {
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
                match self.round(&mut known) {
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
        if known.extent.as_ref() != Some(&round.extent) {
            round.recording.marks.push(audit::lacks_row(&round.extent.lacks));
            let min_csns = round.extent.min_csns.as_slice();
            round.recording.min_csns = (!min_csns.is_empty()).then(|| min_csns.to_vec());
        }
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
        requests: Vec<(Request, Facts)>,
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
        let mut round_positions = Vec::new();
        let mut contexts = HashMap::new();
        let mut more = requests.len() == GROUP;
        let mut changes: Vec<(Timestamp, NewRecord)> = Vec::new();
        let mut configuration = known.configuration.clone();
        for recorder in recorders {
            let read = match &recorder.source.origin {
                SourceKind::Database(served) => {
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
            round_positions.push((Arc::clone(&recorder.source), read.reached));
        }
        for (_, record) in &mut changes {
            record.start = record.start.max(Timestamp(known.last_start.0 + 1));
            known.last_start = record.start;
            let Some(csn) = record.csn else { continue };
            if extent.min_csns.of(csn.server_id).is_none() {
                extent.min_csns.note(csn);
            }
        }
        let count = requests.len();
        recording.records = merged(&schema, changes, requests);
        let positions = round_positions;
        Ok(Round { recording, positions, configuration, requests: count, extent, contexts, more })
    }

    /// The records of one change log behind what was read of it, up to the group's limit.
    fn changes_of(
        &self,
        known: &Known,
        (recorder, served): (&Arc<Recorder>, &Served<LmdbStore>),
        schema: &Arc<larix_schema::Schema>,
        changes: &mut Vec<(Timestamp, NewRecord)>,
        recording: &mut Recording,
    ) -> Result<Read, Fault> {
        let source = &recorder.source;
        let mut missed = Vec::new();
        let database = served.database();
        let target = database.following().answered();
        let snapshot = database.store().snapshot()?;
        let history = log::history(&snapshot)?.unwrap_or_default();
        let from = match known.positions.get(&source.name) {
            Some(position) if position.server_id == target.server_id => *position,
            _ => match self.begin(source, history, target)? {
                Some(position) => position,
                None => {
                    missed = log::context_csns(&snapshot)?;
                    target
                }
            },
        };
        let first = log::first_sequence(&snapshot, target.server_id)?;
        if first > from.sequence + 1 && target.sequence > from.sequence {
            let (count, name) = (first - from.sequence - 1, &source.name);
            self.log.warning(format_args!(
                "access log: {count} changes of \"{name}\" are no longer in its change log and stay unrecorded"
            ));
            missed = log::context_csns(&snapshot)?;
        }
        let before = known.contexts.get(&source.name).cloned();
        let contexts = before.into_iter().chain([Context::now(&snapshot, target.server_id)?]);
        let (mut reached, mut count, mut bytes, mut ended) = (target, 0, 0, true);
        let suffix =
            database.settings().suffixes.first().map(|suffix| suffix.text.clone()).unwrap_or_default();
        log::visit_stored_after(&snapshot, from, &mut |key, mut record, stored| {
            if key.sequence > target.sequence {
                return false;
            }
            if count == GROUP || bytes > GROUP_BYTES {
                ended = false;
                return false;
            }
            count += 1;
            bytes += stored.len();
            reached = key;
            if record.dn.is_empty() && record.absent {
                // Of an entry that was never here nothing but its identity is known; a record has a name.
                record.dn = format!("entryUUID={},{suffix}", record.entry_uuid);
            }
            let dn = schema.parse_dn(&record.dn).ok();
            // What only says whose changes a merge brought (`conflict-mode value`) changes nothing by itself.
            let is_empty = matches!(&record.change, LoggedChange::Modify(changes) if changes.is_empty());
            if record.local
                || is_empty
                || !recorder.settings.wants(audit::operation_of(&record.change), dn.as_ref())
            {
                return true;
            }
            let facts = self.facts_of(database.instance(), key.sequence);
            let change = audit::of_change(schema, &record, facts.as_deref());
            changes.push((facts.map_or(record.csn.time, |facts| facts.end), change));
            true
        })?;
        if ended {
            reached = target;
        }
        if reached != from || !known.positions.contains_key(&source.name) {
            recording.marks.push(mark(&source.name, history, reached));
        }
        // While changes go on, the change log may always be longer than what was read of it: the earlier state is kept.
        let mut waits = None;
        for context in contexts {
            if reached.sequence >= context.sequence {
                recording.context_csns.extend_from_slice(&context.csns);
                missed.extend_from_slice(&context.whole);
            } else {
                waits = waits.or(Some(context));
            }
        }
        Ok(Read { reached, ended, context: waits, missed })
    }

    /// The same of cn=config, whose changes are told by whoever makes them.
    fn changes_of_configuration(
        &self,
        held: &mut Option<Arc<Held>>,
        (recorder, source): (&Arc<Recorder>, &ConfigChanges),
        schema: &Arc<larix_schema::Schema>,
        changes: &mut Vec<(Timestamp, NewRecord)>,
        recording: &mut Recording,
    ) -> Result<Read, Fault> {
        let name = &recorder.source.name;
        let key = |sequence| LogKey { server_id: 0, sequence };
        let wanted = |record: &log::LogRecord| {
            let dn = schema.parse_dn(&record.dn).ok();
            recorder.settings.wants(audit::operation_of(&record.change), dn.as_ref())
        };
        let known = match held {
            Some(known) => Arc::clone(known),
            None => {
                let snapshot = self.served.database().store().snapshot()?;
                let stored = snapshot.get(META, &mark_key(name))?.and_then(|row| Held::from_bytes(&row));
                let missed = stored.as_ref().map_or_else(Vec::new, |stored| source.missed_since(stored));
                let of = |record: &log::LogRecord| (record.csn.time, audit::of_change(schema, record, None));
                changes.extend(missed.iter().filter(|record| wanted(record)).map(of));
                let began = source.began();
                recording.marks.push((mark_key(name), began.to_bytes()));
                began
            }
        };
        let reached = recorder.source.reached.load(Ordering::Acquire);
        let told = source.after(reached, &known, GROUP);
        for (sequence, record) in told.records.iter().filter(|(_, record)| wanted(record)) {
            recording.context_csns.push(record.csn);
            let facts = self.facts_of(super::CONFIGURATION, *sequence);
            let change = audit::of_change(schema, record, facts.as_deref());
            changes.push((facts.map_or(record.csn.time, |facts| facts.end), change));
        }
        if told.reached != reached {
            recording.marks.push((mark_key(name), told.held.to_bytes()));
        }
        *held = Some(told.held);
        let (context, missed) = (None, Vec::new());
        Ok(Read { reached: key(told.reached), ended: !told.more, context, missed })
    }

    fn facts_of(&self, database: u64, sequence: u64) -> Option<Arc<Facts>> {
        self.lock().facts.get(&(database, sequence)).cloned()
    }

    /// Where to begin in a change log: where it was left, or where it ended when recording was asked for; `None`: it is not
    /// known.
    fn begin(&self, source: &Source, history: Uuid, target: LogKey) -> Result<Option<LogKey>, Fault> {
        let snapshot = self.served.database().store().snapshot()?;
        let Some(stored) = snapshot.get(META, &mark_key(&source.name))? else {
            return Ok(Some(source.began).filter(|began| began.server_id == target.server_id));
        };
        let stored = stored.split_at_checked(16).and_then(|(was, key)| {
            let key = LogKey::from_bytes(key)?;
            (was == history.as_bytes() && key.server_id == target.server_id).then_some(key)
        });
        if stored.is_none() {
            let name = &source.name;
            self.log.warning(format_args!(
                "access log: \"{name}\" has another history or server ID than when it was recorded last; changes made \
                 in between are not in the log"
            ));
        }
        Ok(stored)
    }

    /// Looks at from where on the log has changes, or what it is to be made with.
    fn open(&self, recorders: &[Arc<Recorder>], recording: &mut Recording) -> Result<Extent, Fault> {
        let database = self.served.database();
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        if let Some((min_csns, lacks)) = audit::min_csns(&view)?.zip(audit::lacks(&view)?) {
            let mut extent = Extent { min_csns: min_csns.into_iter().collect(), lacks };
            if extent.min_csns.is_empty() {
                extent.min_csns = log::context_csns(&snapshot)?.into_iter().collect();
            }
            return Ok(extent);
        }
        let mut csns: Vec<Csn> = Vec::new();
        if let Some(recorder) = recorders.first() {
            csns = match &recorder.source.origin {
                SourceKind::Database(served) => log::context_csns(&served.database().store().snapshot()?)?,
                SourceKind::Configuration(source) => source.context_csns(),
            };
        }
        recording.container = Some(audit::container(&view.schema, &recording.suffix_text, &csns));
        recording.context_csns.clone_from(&csns);
        let mut extent = Extent::default();
        extent.lacks(csns);
        Ok(extent)
    }

    fn commit(&self, recording: Recording) -> Result<(), String> {
        let (done, ended) = sync_channel::<LdapResult>(1);
        let tell = move |outcome: WriteOutcome| {
            // Whoever waits is there.
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
    fn settle(&self, known: &mut Known, positions: Vec<(Arc<Source>, LogKey)>, requests: usize) {
        let mut state = self.lock();
        state.requests.drain(..requests);
        for (source, key) in positions {
            let before = known.positions.insert(source.name.clone(), key);
            if before != Some(key) {
                let instance = source.instance();
                state.facts.retain(|(other, sequence), _| *other != instance || *sequence > key.sequence);
            }
            match &source.origin {
                SourceKind::Database(served) => {
                    served.database().following().needs_from(key.sequence + 1);
                }
                SourceKind::Configuration(changes) => changes.forget(key.sequence),
            }
            source.reached.store(key.sequence, Ordering::Release);
        }
        drop(state);
        self.handled.fetch_add(requests as u64, Ordering::AcqRel);
    }
}

/// In the order in which they ended; changes keep theirs.
fn merged(
    schema: &larix_schema::Schema,
    changes: Vec<(Timestamp, NewRecord)>,
    mut requests: Vec<(Request, Facts)>,
) -> Vec<NewRecord> {
    requests.sort_by_key(|(_, facts)| facts.end);
    let mut requests = requests.into_iter().peekable();
    let mut all = Vec::with_capacity(changes.len() + requests.len());
    for (end, change) in changes {
        while let Some((request, facts)) = requests.next_if(|(_, facts)| facts.end < end) {
            all.push(audit::of_request(schema, &request, &facts));
        }
        all.push(change);
    }
    all.extend(requests.map(|(request, facts)| audit::of_request(schema, &request, &facts)));
    all
}

const MARK: &[u8] = b"access-log/";

fn mark_key(name: &str) -> Vec<u8> {
    [MARK, name.as_bytes()].concat()
}

/// The row that tells how far a change log was read: its history, then the key of its record.
fn mark(name: &str, history: Uuid, key: LogKey) -> (Vec<u8>, Vec<u8>) {
    (mark_key(name), [history.as_bytes().as_slice(), &key.to_bytes()].concat())
}

/// So that a deadline can be told from a time of day.
pub(super) fn seconds_until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(then.0.saturating_sub(now.0)).unwrap_or(0))
}
