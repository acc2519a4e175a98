//! When the writer works on indexes, and for how long: [`crate::index::build`] does the work.
//!
//! While no change waits, slices follow each other with pauses as long as they took; beside groups of changes a slice is
//! shorter, goes into the group's commit, and leaves most of the time to the changes. So a build takes half of the writer's
//! time at most, and a change waits for one slice at most.

use std::sync::Arc;
use std::time::Duration;

use larix_schema::Schema;
use larix_store::{CommitId, Snapshot, Store};

use crate::catalog::Catalog;
use crate::database::{Database, DatabaseSettings};
use crate::entry::AttributeNumber;
use crate::fault::Fault;
use crate::index::Kinds;
use crate::index::build::{Builder, Slice, SliceLimits};
use crate::index::status::{WorkPhase, WorkStatus};
use crate::time::{Clock, Monotonic};

/// The length of a slice of work while no change waits, in nanoseconds: committing it takes about as long again.
const IDLE_NANOS_MAX: u64 = 10_000_000;
const IDLE_NANOS_MIN: u64 = 500_000;
/// A slice with its commit takes about so long at most: it is made shorter when it took longer.
const WHOLE_NANOS: u64 = 25_000_000;
/// What is made beside a group.
const BESIDE_NANOS: u64 = 1_000_000;
/// Beside groups, one part in so many of the time is the build's, about.
const BESIDE_SHARE: u64 = 8;
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// After a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);
/// Between two notices of progress.
const NOTICE_NANOS: u64 = 30_000_000_000;
const SLICE_ENTRIES: usize = 8_192;
const SLICE_BYTES: usize = 8 << 20;

/// What becomes of work on indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexNotice {
    /// It begins, or goes on where an earlier process left it.
    Begun {
        indexes: String,
        entries: u64,
        resumed: bool,
    },
    Progress {
        done: u64,
        total: u64,
        per_second: u64,
        seconds_left: Option<u64>,
    },
    /// Searches use the indexes from now on.
    Complete {
        indexes: String,
        entries: u64,
        seconds: u64,
    },
    /// What was left of indexes that are no longer wanted is gone.
    Cleared {
        indexes: String,
    },
    /// All entries were gone through, and back links of so many of them were not right.
    BackLinks {
        /// The back links, a comma between them.
        attributes: String,
        entries: u64,
        changed: u64,
    },
    /// It is tried again in a while.
    Failed {
        message: String,
    },
}

/// An observer of work on indexes. The writer does such work only if there is one.
pub trait IndexWatch: Send + Sync + std::fmt::Debug {
    /// Called on the writer's thread: to be quick.
    fn notice(&self, notice: IndexNotice);
}

/// The work on the indexes of the writer's database.
#[derive(Debug)]
pub(crate) struct IndexWork {
    builder: Builder,
    /// `None`: this process leaves the indexes alone.
    watch: Option<Arc<dyn IndexWatch>>,
    clock: Arc<dyn Clock>,
    /// What the builder looked at.
    followed: Option<(Arc<Schema>, Arc<DatabaseSettings>)>,
    /// No slice before.
    next: Monotonic,
    idle_nanos: u64,
    status: WorkStatus,
    began: Monotonic,
    noticed: Monotonic,
    /// The work that was spoken of.
    named: Vec<(AttributeNumber, Kinds)>,
}

impl IndexWork {
    pub(crate) fn new(watch: Option<Arc<dyn IndexWatch>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            builder: Builder::default(),
            watch,
            clock,
            followed: None,
            next: Monotonic::default(),
            idle_nanos: IDLE_NANOS_MAX / 2,
            status: WorkStatus::default(),
            began: Monotonic::default(),
            noticed: Monotonic::default(),
            named: Vec::new(),
        }
    }

    /// Sets the observer.
    pub(crate) fn set_watch(&mut self, watch: Option<Arc<dyn IndexWatch>>) {
        self.watch = watch;
    }

    /// Learns what is to be done when schema or settings are others than before.
    pub(crate) fn follow<S: Store>(&mut self, database: &Database<S>) {
        if self.watch.is_none() || database.store().is_read_only() {
            return;
        }
        let known = self.followed.as_ref().is_some_and(|(schema, settings)| {
            let now = database.state();
            Arc::ptr_eq(settings, &now.settings) && Arc::ptr_eq(schema, &now.schema)
        });
        let waits = self.status.failure.is_some() && self.clock.monotonic() < self.next;
        if known || waits {
            return;
        }
        self.followed = Some((database.schema(), database.settings()));
        let looked = database.store().snapshot().map_err(Fault::from).and_then(|snapshot| {
            // One that is older than what is stored would have complete indexes made anew.
            database.follow_catalog(&snapshot)?;
            self.builder.look(&snapshot, &database.catalog())
        });
        let catalog = database.catalog();
        match looked {
            Ok(()) => self.begin(database, &catalog),
            Err(fault) => self.failed(database, &fault.to_string()),
        }
    }

    /// How long the writer waits for changes before it works on indexes; none when there is no work.
    pub(crate) fn patience(&self) -> Option<Duration> {
        if self.builder.state().is_none() && self.status.failure.is_none() {
            return None;
        }
        let wait = self.next.0.saturating_sub(self.clock.monotonic().0);
        Some(Duration::from_nanos(wait))
    }

    /// A slice to be committed with a group of changes, when it is time for one.
    pub(crate) fn next_slice<S: Store, V: Snapshot>(
        &mut self,
        database: &Database<S>,
        view: &V,
        catalog: &Catalog,
    ) -> Option<Slice> {
        self.builder.state()?;
        let now = self.clock.monotonic();
        if now < self.next {
            return None;
        }
        let limits = self.limits(now, BESIDE_NANOS);
        match self.builder.slice(view, &database.schema(), catalog, &limits) {
            Ok(slice) => {
                let made = self.clock.monotonic().0.saturating_sub(now.0);
                // Committing it takes about as long again.
                self.pause(Duration::from_nanos(2 * made * BESIDE_SHARE));
                slice
            }
            // The changes have nothing to do with it.
            Err(fault) => {
                self.failed(database, &fault.to_string());
                None
            }
        }
    }

    /// A slice for a commit of its own.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn alone<S: Store, V: Snapshot>(
        &self,
        database: &Database<S>,
        view: &V,
    ) -> Result<Option<Slice>, Fault> {
        let (schema, catalog) = (database.schema(), database.catalog());
        let limits = self.limits(self.clock.monotonic(), self.idle_nanos);
        self.builder.slice(view, &schema, &catalog, &limits)
    }

    /// A slice of [`Self::alone`] that began then is committed: sets the length of the next one by the time that this one took.
    pub(crate) fn took_alone(&mut self, begun: Monotonic) {
        let took = self.clock.monotonic().0.saturating_sub(begun.0);
        let fitting = if took > WHOLE_NANOS { self.idle_nanos / 2 } else { self.idle_nanos * 5 / 4 };
        self.idle_nanos = fitting.clamp(IDLE_NANOS_MIN, IDLE_NANOS_MAX);
        self.pause(Duration::from_nanos(took));
    }

    /// The slice was committed. Answers whether rows of pending keys were changed.
    pub(crate) fn committed<S: Store>(
        &mut self,
        database: &Database<S>,
        slice: &Slice,
        commit: CommitId,
    ) -> bool {
        let done = self.builder.state().map_or(0, |state| state.done) + slice.entries;
        self.builder.committed(slice);
        self.status.since += slice.entries;
        self.status.nanos = self.clock.monotonic().0.saturating_sub(self.began.0);
        if !slice.completed.is_empty() {
            // Readers of older commits go on without: see `Catalog::for_commit`.
            let catalog = Catalog::with_completed(&database.catalog(), &slice.completed, commit.0);
            database.publish_committed(commit.0, Some(Arc::new(catalog)));
        }
        match self.builder.state() {
            Some(_) => self.show(database),
            None => self.end(database, (!slice.completed.is_empty()).then_some(done)),
        }
        slice.purged
    }

    /// Another part of the writer has changed which indexes are complete: finds out at once what is to be done.
    pub(crate) fn begin_anew(&mut self) {
        self.followed = None;
        self.status.failure = None;
        self.next = Monotonic::default();
    }

    /// What is stored may be another state than is known here.
    pub(crate) fn look_again(&mut self) {
        self.followed = None;
    }

    /// A group with a slice was not committed: what the builder knows may be wrong.
    pub(crate) fn forget(&mut self) {
        self.followed = None;
        self.pause(PAUSE_MAX);
    }

    fn limits(&self, now: Monotonic, nanos: u64) -> SliceLimits<'_> {
        let until = Monotonic(now.0.saturating_add(nanos));
        SliceLimits { clock: &*self.clock, until, entries: SLICE_ENTRIES, bytes: SLICE_BYTES }
    }

    fn pause(&mut self, pause: Duration) {
        self.wait(pause.clamp(PAUSE_MIN, PAUSE_MAX));
    }

    fn wait(&mut self, pause: Duration) {
        let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.next = Monotonic(self.clock.monotonic().0.saturating_add(nanos));
    }

    fn begin<S: Store>(&mut self, database: &Database<S>, catalog: &Catalog) {
        let Some(state) = self.builder.state() else {
            self.named.clear();
            return database.index_work().set(None);
        };
        let named: Vec<_> = state.parts.iter().map(|part| (part.number, part.kinds)).collect();
        let total = entries(database);
        let begun = self.named != named;
        self.status = WorkStatus { total, ..WorkStatus::default() };
        self.began = self.clock.monotonic();
        self.noticed = self.began;
        if begun {
            let indexes = names(catalog, &named);
            let resumed = self.builder.is_resumed();
            self.tell(IndexNotice::Begun { indexes, entries: total, resumed });
        }
        self.named = named;
        self.show(database);
    }

    fn show<S: Store>(&mut self, database: &Database<S>) {
        let Some(state) = self.builder.state() else { return };
        let entered = self.status.phase != state.phase;
        self.status.phase = state.phase;
        self.status.parts = state.parts.iter().map(|part| (part.number, part.kinds)).collect();
        self.status.done = state.done;
        self.status.total = self.status.total.max(state.done);
        self.status.failure = None;
        if entered && state.phase == WorkPhase::Filling {
            // Only now entries are gone through.
            (self.began, self.status.nanos, self.status.since) = (self.clock.monotonic(), 0, 0);
        }
        database.index_work().set(Some(self.status.clone()));
        let now = self.clock.monotonic();
        if now.0.saturating_sub(self.noticed.0) >= NOTICE_NANOS {
            self.noticed = now;
            let WorkStatus { done, total, .. } = self.status;
            let (per_second, seconds_left) = (self.status.per_second(), self.status.seconds_left());
            self.tell(IndexNotice::Progress { done, total, per_second, seconds_left });
        }
    }

    fn end<S: Store>(&mut self, database: &Database<S>, filled: Option<u64>) {
        let indexes = names(&database.catalog(), &std::mem::take(&mut self.named));
        let seconds = self.status.nanos / 1_000_000_000;
        let notice = match filled {
            Some(entries) => IndexNotice::Complete { indexes, entries, seconds },
            None => IndexNotice::Cleared { indexes },
        };
        self.status.failure = None;
        database.index_work().set(None);
        self.tell(notice);
        // There may be more that came up meanwhile.
        self.followed = None;
    }

    pub(crate) fn failed<S: Store>(&mut self, database: &Database<S>, message: &str) {
        if self.status.failure.as_deref() != Some(message) {
            self.tell(IndexNotice::Failed { message: message.to_owned() });
        }
        self.status.failure = Some(message.to_owned());
        self.followed = None;
        database.index_work().set(Some(self.status.clone()));
        self.wait(FAILURE_PAUSE);
    }

    fn tell(&self, notice: IndexNotice) {
        if let Some(watch) = &self.watch {
            watch.notice(notice);
        }
    }
}

/// `cn eq,sub; mail pres`.
fn names(catalog: &Catalog, parts: &[(AttributeNumber, Kinds)]) -> String {
    let name = |(number, kinds): &(AttributeNumber, Kinds)| format!("{} {kinds}", catalog.text(*number));
    parts.iter().map(name).collect::<Vec<_>>().join("; ")
}

/// How many entries there are; 0 when that cannot be had.
fn entries<S: Store>(database: &Database<S>) -> u64 {
    let name = crate::tables::TABLES.iter().find(|table| table.id == crate::tables::ENTRIES);
    let statistics = database.store().statistics();
    let tables = statistics.map(|statistics| statistics.tables).unwrap_or_default();
    tables.iter().find(|table| name.is_some_and(|name| name.name == table.name)).map_or(0, |t| t.records)
}
