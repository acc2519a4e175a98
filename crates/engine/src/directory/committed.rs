//! Overlays behind commits: what is handed to those that stand there, how far each has come, and what ticks bring.

use std::cell::RefCell;
use std::sync::{Arc, Weak, mpsc};

use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::{CommitError, Direction, Store, WriteSet};
use uuid::Uuid;

use super::ServedDatabase;
use crate::change::prepare::{Latitude, prepare_at};
use crate::controls::{ControlValues, RequestControls};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::log::{self, Hold, LogKey, LogReader, LogRecord, LoggedChange, NumberedRows};
use crate::overlay::committed::{
    ChangeOrigin, Committed, CommittedBatch, CommittedChange, CommittedEntries, Gap, NotTaken, OtherWriters,
    TICK_CHANGES_MAX, Tick, TickChange, Turn,
};
use crate::overlay::{Entries, FollowUpElsewhere};
use crate::search::view_entries::ViewEntries;
use crate::tables::{META, meta};
use crate::write::WriteOutcome;
use crate::write::task::Task;
use crate::writer::WriterTask;

/// Changes that an overlay is handed at once.
const BATCH_RECORDS: usize = 1_024;
/// Bytes of the change log that it is handed at once, about.
const BATCH_BYTES: usize = 8 << 20;

/// Up to where an overlay has come in the change log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Position {
    history: Uuid,
    key: LogKey,
}

impl Position {
    fn to_bytes(self) -> Vec<u8> {
        [self.history.as_bytes().as_slice(), &self.key.to_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (history, key) = bytes.split_first_chunk::<16>()?;
        Some(Self { history: Uuid::from_bytes(*history), key: LogKey::from_bytes(key)? })
    }
}

fn row(overlay: &str) -> Vec<u8> {
    [meta::FOLLOWER, overlay.as_bytes()].concat()
}

/// An overlay that follows the changes of a database.
#[derive(Debug)]
pub struct CommittedFollower<S: Store> {
    served: Arc<ServedDatabase<S>>,
    /// The overlay's name.
    name: String,
    reader: Arc<LogReader>,
    position: Position,
    stored_position: Option<Position>,
    gap: Option<Gap>,
    /// What the overlay has in hand: where it ends, and how many changes.
    in_hand: Option<(Position, u64)>,
}

/// What a round came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Changes that the overlay took.
    pub taken: u64,
    /// The gap that was reported to it.
    pub gap: Option<Gap>,
    /// There is more already.
    pub more: bool,
    /// Why nothing was taken.
    pub not_taken: Option<NotTaken>,
    /// What the overlay has the log tell.
    pub reports: Vec<String>,
}

impl<S: Store> CommittedFollower<S> {
    /// Goes on where the overlay of this name was left, or begins with the next change. `wake` is called on the writer's
    /// thread when there is something new.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn join(
        served: &Arc<ServedDatabase<S>>,
        name: &str,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, Fault> {
        Self::join_with(served, name, Self::hold(served, wake))
    }

    /// Keeps the records of the change log from going until it is known how far an overlay has come. Where several servers share the
    /// store, that is known once this one writes.
    pub fn hold(served: &ServedDatabase<S>, wake: Arc<dyn Fn() + Send + Sync>) -> Arc<LogReader> {
        served.database().following().join(wake, 0, Hold::Bounded)
    }

    /// As [`Self::join`], with what was [held](Self::hold) before.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn join_with(
        served: &Arc<ServedDatabase<S>>,
        name: &str,
        reader: Arc<LogReader>,
    ) -> Result<Self, Fault> {
        let start = Position { history: Uuid::nil(), key: LogKey { server_id: 0, sequence: 0 } };
        let mut follower = Self {
            served: Arc::clone(served),
            name: name.to_owned(),
            reader,
            position: start,
            stored_position: None,
            gap: None,
            in_hand: None,
        };
        follower.settle_position(None)?;
        Ok(follower)
    }

    /// This server writes again, and others may have written until now: goes on behind what the overlay has taken here or elsewhere.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn resume(&mut self) -> Result<(), Fault> {
        self.settle_position(Some(self.position))
    }

    /// Begins behind what the overlay has taken here, behind the place that is remembered, or with the next change.
    fn settle_position(&mut self, taken_here: Option<Position>) -> Result<(), Fault> {
        let database = Arc::clone(self.served.database());
        let answered = database.following().answered();
        let snapshot = database.store().snapshot()?;
        let history = log::history(&snapshot)?.unwrap_or_default();
        self.stored_position = snapshot.get_position(&self.name)?;
        let now = Position { history, key: answered };
        let known = [self.stored_position, taken_here].into_iter().flatten();
        let last = known.max_by_key(|known| (known.history == history, known.key.sequence));
        let position = last.filter(|last| last.key.sequence <= answered.sequence);
        if last.is_some() && position.is_none() {
            self.miss(Gap::Unknown);
        }
        self.reach(position.unwrap_or(now));
        Ok(())
    }

    fn miss(&mut self, gap: Gap) {
        self.gap = Some(self.gap.map_or(gap, |known| known.and(gap)));
    }

    /// The last record that was read.
    pub fn reached(&self) -> u64 {
        self.position.key.sequence
    }

    /// How many records it has still to read.
    pub fn behind(&self) -> u64 {
        let answered = self.served.database().following().answered();
        answered.sequence.saturating_sub(self.position.key.sequence)
    }

    /// Shows the overlay what is committed, before it is handed the first changes.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn begin(&self, overlay: &dyn Committed) -> Result<(), Failure> {
        overlay.begin(&self.served.database().schema(), &*self.served)
    }

    /// Hands the overlay what comes next, if anything. `origin`: who sent the change of this sequence.
    ///
    /// A panic of the overlay passes through: [`Self::leave_out`] then goes on behind what it had in hand.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn round(
        &mut self,
        overlay: &dyn Committed,
        origin: &dyn Fn(u64) -> Option<Arc<ChangeOrigin>>,
        others: &dyn OtherWriters,
    ) -> Result<Round, Fault> {
        let Batch { changes, end, more } = self.read(origin)?;
        let gap = self.gap;
        if changes.is_empty() && gap.is_none() {
            self.reach(end);
            return Ok(Round { more, ..Round::default() });
        }
        self.in_hand = Some((end, changes.len() as u64));
        let reports = RefCell::default();
        let schema = self.served.database().schema();
        let settings = self.served.database().settings();
        let suffix = settings.suffixes.first().map(|suffix| suffix.text.as_str()).unwrap_or_default();
        let batch = CommittedBatch {
            changes: &changes,
            gap,
            schema: &schema,
            suffix,
            others,
            committed: Some(&*self.served),
            reports: &reports,
        };
        let taken = overlay.take(&batch);
        self.in_hand = None;
        let reports = reports.into_inner();
        match taken {
            Ok(()) => {
                self.gap = None;
                self.reach(end);
                Ok(Round { taken: changes.len() as u64, gap, more, not_taken: None, reports })
            }
            Err(not_taken) if not_taken.again => Ok(Round { not_taken: Some(not_taken), ..Round::default() }),
            Err(not_taken) => {
                self.reach(end);
                self.miss(Gap::Records(changes.len() as u64));
                Ok(Round { more, not_taken: Some(not_taken), reports, ..Round::default() })
            }
        }
    }

    /// Goes on behind the changes that the overlay handled when it panicked, and reports them to it later as a gap. Answers how
    /// many changes there were.
    pub fn leave_out(&mut self) -> u64 {
        let Some((end, count)) = self.in_hand.take() else { return 0 };
        self.reach(end);
        self.miss(Gap::Records(count));
        count
    }

    fn reach(&mut self, position: Position) {
        self.position = position;
        self.reader.needs_from(position.key.sequence + 1);
    }

    fn read(&mut self, origin: &dyn Fn(u64) -> Option<Arc<ChangeOrigin>>) -> Result<Batch, Fault> {
        let database = Arc::clone(self.served.database());
        let target = database.following().answered();
        let snapshot = database.store().snapshot()?;
        let history = log::history(&snapshot)?.unwrap_or_default();
        if history != self.position.history {
            self.position.history = history;
            self.miss(Gap::Unknown);
        }
        let mut reached = self.position.key;
        let (mut changes, mut count, mut bytes, mut more) = (Vec::new(), 0, 0, false);
        for row in NumberedRows::after(&snapshot, reached.sequence, Direction::Forward)? {
            let (key, stored) = row?;
            // Sequences have no gaps: what is not met has gone.
            let next = reached.sequence + 1;
            if key.sequence > next && next <= target.sequence {
                if count > 0 {
                    more = true;
                    break;
                }
                self.miss(Gap::Records(key.sequence - next));
                reached = LogKey { sequence: key.sequence - 1, ..key };
                self.position.key = reached;
            }
            if key.sequence > target.sequence {
                break;
            }
            if count == BATCH_RECORDS || bytes > BATCH_BYTES {
                more = true;
                break;
            }
            let damaged = Fault::Damaged { what: "a record of the change log" };
            let record = LogRecord::decode(&stored).map_err(|_| damaged)?;
            count += 1;
            bytes += stored.len();
            reached = key;
            if changed_something(&record) {
                changes.push(CommittedChange { key, record, origin: origin(key.sequence) });
            }
        }
        if !more {
            reached = LogKey { sequence: reached.sequence.max(target.sequence), ..target };
        }
        Ok(Batch { changes, end: Position { history, key: reached }, more })
    }

    /// Makes durable how far the overlay has come, where that is not remembered yet. Waits for the writer.
    ///
    /// # Errors
    /// A commit that failed.
    pub fn keep_position(&mut self) -> Result<(), CommitError> {
        if self.stored_position != Some(self.position) {
            self.served.keep_follower(&self.name, Some(self.position.to_bytes()))?;
            self.stored_position = Some(self.position);
        }
        Ok(())
    }

    /// Follows no more: nothing stays in the log for it.
    pub fn leave(&self) {
        self.reader.leave();
    }

    /// Follows no more, and forgets how far the overlay has come.
    ///
    /// # Errors
    /// A commit that failed.
    pub fn forget(self) -> Result<(), CommitError> {
        self.leave();
        self.served.keep_follower(&self.name, None)
    }
}

/// The databases of a server, for the effects that changes in one have in another.
#[derive(Debug)]
pub struct Writers<S: Store>(Vec<Weak<ServedDatabase<S>>>);

impl<S: Store> Writers<S> {
    pub fn of(databases: &[Arc<ServedDatabase<S>>]) -> Self {
        Self(databases.iter().map(Arc::downgrade).collect())
    }

    fn with_suffix(&self, suffix: &NormalDn) -> Option<Arc<ServedDatabase<S>>> {
        self.0.iter().filter_map(Weak::upgrade).find(|served| {
            let settings = served.database().current_settings();
            !settings.hidden && settings.suffixes.iter().any(|own| own.normal == *suffix)
        })
    }
}

impl<S: Store> OtherWriters for Writers<S> {
    fn follow(&self, suffix: &NormalDn, follow_ups: Vec<Arc<dyn FollowUpElsewhere>>) -> Result<(), NotTaken> {
        let Some(served) = self.with_suffix(suffix).filter(|served| !served.is_retired()) else {
            return Ok(());
        };
        if served.database().is_filling() {
            return Err(NotTaken::yet(format!("{}: its first content is coming", suffix.as_str())));
        }
        if !served.ticks() {
            return Ok(());
        }
        let (done, ended) = mpsc::channel::<LdapResult>();
        for follow_up in follow_ups {
            let done = done.clone();
            // Only this thread waits for it.
            let tell = move |outcome: WriteOutcome| drop(done.send(outcome.result));
            served.submit_follow_up(follow_up, Box::new(tell));
        }
        drop(done);
        let refused = ended.iter().find(|result| !result.is_success());
        let Some(result) = refused else { return Ok(()) };
        let why = format!("{}: {result}", suffix.as_str());
        Err(match result.code {
            ResultCode::ADMIN_LIMIT_EXCEEDED => NotTaken::ever(why),
            // What was done already is not there to be done once more.
            _ => NotTaken::yet(why),
        })
    }
}

impl<S: Store> CommittedEntries for ServedDatabase<S> {
    fn look(&self, look: &mut dyn FnMut(&dyn Entries) -> Result<(), Failure>) -> Result<(), Failure> {
        let database = self.database();
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        look(&ViewEntries::of(&view))
    }
}

/// What is read of the log at once.
struct Batch {
    changes: Vec<CommittedChange>,
    end: Position,
    more: bool,
}

/// Whether the record tells of a change here: not of a delete of what was not here, nor only of whose changes a merge brought.
fn changed_something(record: &LogRecord) -> bool {
    !record.absent && !matches!(&record.change, LoggedChange::Modify(changes) if changes.is_empty())
}

/// Positions of overlays.
trait Positions {
    fn get_position(&self, overlay: &str) -> Result<Option<Position>, Fault>;
}

impl<N: larix_store::Snapshot> Positions for N {
    fn get_position(&self, overlay: &str) -> Result<Option<Position>, Fault> {
        Ok(self.get(META, &row(overlay))?.and_then(|bytes| Position::from_bytes(&bytes)))
    }
}

/// Remembers where these overlays begin that have no place in the change log yet, so that they miss none of the changes behind this
/// commit. `history`, `end`: those of the log.
///
/// # Errors
/// A store that cannot be read.
pub fn begin_followers<N: larix_store::Snapshot>(
    snapshot: &N,
    set: &mut WriteSet,
    overlays: &[String],
    (history, end): (Uuid, LogKey),
) -> Result<(), Fault> {
    for overlay in overlays {
        if snapshot.get_position(overlay)?.is_none() {
            set.put(META, &row(overlay), Position { history, key: end }.to_bytes());
        }
    }
    Ok(())
}

/// What came of a tick.
#[derive(Debug, Default)]
pub struct TickOutcome {
    /// Changes that were carried out.
    pub done: u64,
    /// How others were refused.
    pub refused: Vec<LdapResult>,
    /// There is more to do at once.
    pub more: bool,
}

impl<S: Store> ServedDatabase<S> {
    fn keep_follower(&self, overlay: &str, position: Option<Vec<u8>>) -> Result<(), CommitError> {
        let key = row(overlay);
        self.writer.send(|reply| WriterTask::KeepRow(key, position, reply)).unwrap_or(Ok(()))
    }

    /// The overlays for which a position in the change log is kept.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn follower_names(&self) -> Result<Vec<String>, Fault> {
        use larix_store::{Direction, KeyRange, Snapshot as _};
        let snapshot = self.database().store().snapshot()?;
        let mut names = Vec::new();
        for found in snapshot.scan(META, KeyRange::prefix(meta::FOLLOWER), Direction::Forward)? {
            let (key, _) = found?;
            let name = key.get(meta::FOLLOWER.len()..).unwrap_or_default();
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(names)
    }

    /// Forgets how far the overlay of this name has come: it has left the configuration.
    ///
    /// # Errors
    /// A commit that failed.
    pub fn forget_follower(&self, overlay: &str) -> Result<(), CommitError> {
        self.keep_follower(overlay, None)
    }

    /// Has the writer learn what the store holds now, and followers of the change log how far it goes: another server may have
    /// written until now. Waits for the writer.
    ///
    /// # Errors
    /// The store cannot be read, or another server writes.
    pub fn follow_store(&self) -> Result<(), CommitError> {
        self.writer.send(WriterTask::FollowStore).unwrap_or(Ok(()))
    }

    /// Whether ticks of overlays are carried out here: clients' changes would be.
    fn ticks(&self) -> bool {
        let (database, settings) = (self.database(), self.database().current_settings());
        let changes_are_refused = settings.shadow || settings.read_only || database.store().is_read_only();
        let is_coming_or_gone = self.is_retired() || database.is_filling();
        !changes_are_refused && !is_coming_or_gone
    }

    /// Gives an overlay its turn, and has carried out what it asks for. Waits for the writer: not to be called on its thread, nor
    /// on an event loop. `None`: the database has no ticks now.
    ///
    /// # Errors
    /// The overlay's, or a store that cannot be read.
    pub fn tick(&self, overlay: &dyn Tick) -> Result<Option<TickOutcome>, Failure> {
        if !self.ticks() {
            return Ok(None);
        }
        let (schema, ticked) = {
            let database = self.database();
            let snapshot = database.store().snapshot()?;
            let view = database.view(&snapshot)?;
            let entries = ViewEntries::of(&view);
            let schema = Arc::clone(&view.schema);
            let suffixes: Vec<NormalDn> =
                view.settings.suffixes.iter().map(|suffix| suffix.normal.clone()).collect();
            let turn =
                Turn { entries: &entries, schema: &schema, suffixes: &suffixes, now: self.clock.now() };
            let ticked = overlay.tick(&turn)?;
            (schema, ticked)
        };
        let mut outcome = TickOutcome { more: ticked.more, ..TickOutcome::default() };
        let (done, ended) = mpsc::channel::<LdapResult>();
        for TickChange { operation, only_if } in ticked.changes.into_iter().take(TICK_CHANGES_MAX) {
            let controls =
                RequestControls::from(ControlValues { assertion: only_if, ..ControlValues::default() });
            let target = operation.target().to_owned();
            let latitude = Latitude { internal: true, ..Latitude::default() };
            match prepare_at(&schema, operation, None, &NormalDn::root(), latitude) {
                Err(refused) => outcome.refused.push(refused),
                Ok(prepared) => {
                    let done = done.clone();
                    // Only this thread waits for it.
                    let tell = move |outcome: WriteOutcome| drop(done.send(outcome.result));
                    let task = Task::new(prepared, target, self.root_subject(), controls);
                    self.submit(vec![task], Box::new(tell));
                }
            }
        }
        drop(done);
        for result in ended {
            match result.code {
                ResultCode::SUCCESS => outcome.done += 1,
                // It is another entry by now.
                ResultCode::ASSERTION_FAILED => {}
                _ => outcome.refused.push(result),
            }
        }
        Ok(Some(outcome))
    }
}
