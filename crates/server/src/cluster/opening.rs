//! Opening the database of a node, also after the server has started: its engine may be away until then.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use larix_configuration::{Consistency, KvSettings};
use larix_engine::database::{DatabaseOpenError, DatabaseSettings, READ_FIRST};
use larix_engine::tables::TABLES;
use larix_engine::time::{Clock, RandomSource};
use larix_engine::write::WriterEnvironment;
use larix_engine::writer::Reconfiguration;
use larix_engine::{Database, ServedDatabase};
use larix_kv::{Freshness, KvOptions, KvStore, OpenError, ReadFault, take_read_fault};
use larix_schema::Schema;
use larix_store::CommitError;

use super::foreign_content::why_foreign;
use super::logged::{self, Logging};
use super::{CONNECTIONS_BESIDE, DEADLINE, NodeConfiguration, SharedStore, THREADS};
use crate::clock::{SystemClock, SystemRandom};

/// How long a node that starts waits for another one that makes the database.
const MAKING_SECONDS: u64 = 30;
const MAKING_PAUSE: Duration = Duration::from_millis(100);
/// How often the database is opened again because what was read had been changed meanwhile.
const AGAIN_MAX: usize = 16;
/// The first pause before an engine is tried again, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_LONGEST: Duration = Duration::from_secs(10);

/// What a database is opened with.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) settings: KvSettings,
    pub(super) schema: Arc<Schema>,
    pub(super) database: Arc<DatabaseSettings>,
    pub(super) environment: WriterEnvironment,
}

/// Why it could not be opened.
#[derive(Debug)]
pub(super) enum Failure {
    /// The engine is away: this passes without a change of the configuration.
    Away(String),
    /// Somebody committed meanwhile: to be tried again at once.
    Overtaken(String),
    /// Somebody has to mend it.
    Refused(String),
}

impl Failure {
    pub(super) fn text(self) -> String {
        match self {
            Self::Away(why) | Self::Overtaken(why) | Self::Refused(why) => why,
        }
    }
}

impl Plan {
    /// Connects to the engine, makes the database there if it is new, and starts its writer.
    pub(super) fn open(&self, clock: &SystemClock) -> Result<Arc<ServedDatabase<SharedStore>>, Failure> {
        let mut opened = self.open_once(clock);
        for _ in 1..AGAIN_MAX {
            match opened {
                Err(Failure::Overtaken(_)) => opened = self.open_once(clock),
                opened => return opened,
            }
        }
        opened.map_err(|failure| Failure::Away(failure.text()))
    }

    fn open_once(&self, clock: &SystemClock) -> Result<Arc<ServedDatabase<SharedStore>>, Failure> {
        let settings = &self.settings;
        let engine =
            settings.engine.as_ref().ok_or_else(|| Failure::Refused("there is no engine".to_owned()))?;
        let options = KvOptions {
            schema: settings.schema.clone(),
            make: true,
            writes: false,
            freshness: match settings.consistency {
                Consistency::Strict => Freshness::Strict,
                Consistency::Session => Freshness::Session,
                Consistency::Bounded(bound) => Freshness::Bounded(bound),
            },
            cache_bytes: usize::try_from(settings.cache_megabytes << 20).unwrap_or(usize::MAX),
            connections: THREADS + CONNECTIONS_BESIDE,
            deadline: DEADLINE,
            name: settings.connection_name(&settings.node),
            beginnings: &READ_FIRST,
        };
        let failure = |passes: bool, error: &dyn fmt::Display| {
            let text = format!("{}: {error}", engine.address);
            match take_read_fault() {
                Some(ReadFault::Stale) => Failure::Overtaken(text),
                Some(ReadFault::Unavailable) => Failure::Away(text),
                _ if passes => Failure::Away(text),
                _ => Failure::Refused(text),
            }
        };
        take_read_fault();
        let store = KvStore::open(&engine.address, &TABLES, &options)
            .map_err(|error| failure(matches!(error, OpenError::Unavailable(_)), &error))?;
        let store = Arc::new(store);
        let opened = self.database(&store, clock);
        let opened = opened.map_err(|error| failure(passes(&error), &error))?;
        if let Some(why) = why_foreign(&opened).map_err(|fault| failure(false, &fault))? {
            return Err(failure(false, &why));
        }
        let served = ServedDatabase::start(Arc::new(opened), self.environment.clone());
        let served = served.map_err(|error| failure(false, &error))?;
        Ok(Arc::new(served))
    }

    /// Opens the database as it is, or makes it where this node holds the lease.
    fn database(
        &self,
        store: &SharedStore,
        clock: &SystemClock,
    ) -> Result<Database<SharedStore>, DatabaseOpenError> {
        let began = clock.monotonic();
        let open = || {
            let (schema, settings) = (Arc::clone(&self.schema), (*self.database).clone());
            Database::open(Arc::clone(store), schema, settings, &SystemRandom)
        };
        // What was not there a moment ago may be there now, also where reads do not ask.
        let opened = || store.afresh(open);
        loop {
            match opened() {
                Err(DatabaseOpenError::Empty) => {}
                opened => return opened,
            }
            if store.hold_lease(&self.settings.node, self.settings.lease)? {
                store.take_over()?;
                let opened = opened()?;
                let logging = Logging::of(&self.database, self.environment.order.server_id());
                logged::settle(store, logging.as_ref(), &SystemRandom)?;
                return Ok(opened);
            }
            // Another node makes it just now.
            let waited = clock.monotonic().0.saturating_sub(began.0);
            if waited > MAKING_SECONDS * 1_000_000_000 {
                return Err(DatabaseOpenError::Empty);
            }
            std::thread::park_timeout(MAKING_PAUSE);
        }
    }
}

/// Whether a fault in opening the database passes by itself: the engine went away, or another node came in between.
fn passes(error: &DatabaseOpenError) -> bool {
    matches!(
        error,
        DatabaseOpenError::Empty
            | DatabaseOpenError::Commit(
                CommitError::Conflict
                    | CommitError::Fenced
                    | CommitError::OutcomeUnknown(_)
                    | CommitError::Unavailable(_)
            )
    )
}

/// The database of a node: to be opened, or open.
pub(super) struct Opening {
    served: OnceLock<Arc<ServedDatabase<SharedStore>>>,
    /// What it is opened with, and how often that was replaced.
    plan: Mutex<(Plan, u64)>,
    shared: Mutex<Arc<NodeConfiguration>>,
}

impl Opening {
    pub(super) fn new(plan: Plan, shared: NodeConfiguration) -> Self {
        Self { served: OnceLock::new(), plan: Mutex::new((plan, 0)), shared: Mutex::new(Arc::new(shared)) }
    }

    /// What other nodes need of the configuration.
    pub(super) fn shared(&self) -> Arc<NodeConfiguration> {
        Arc::clone(&self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn share(&self, shared: NodeConfiguration) {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(shared);
    }

    fn lock(&self) -> MutexGuard<'_, (Plan, u64)> {
        // Each change of it is whole before anything can panic.
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database, once it is open.
    pub(super) fn served(&self) -> Option<&Arc<ServedDatabase<SharedStore>>> {
        self.served.get()
    }

    /// The settings of the database, whether it is open or not.
    pub(super) fn settings(&self) -> Arc<DatabaseSettings> {
        match self.served() {
            Some(served) => served.database().settings(),
            None => Arc::clone(&self.lock().0.database),
        }
    }

    /// Tries to open it.
    pub(super) fn open(&self, clock: &SystemClock) -> Result<(), Failure> {
        let (plan, number) = self.lock().clone();
        let served = plan.open(clock)?;
        // Under the lock, so that no reconfiguration comes between.
        let latest = self.lock();
        if latest.1 != number {
            let Plan { schema, database, environment, .. } = latest.0.clone();
            // The right to write is taken again, with what goes before it.
            served.database().store().resign();
            served.reconfigure(Reconfiguration { schema, settings: (*database).clone(), environment });
        }
        // It is opened by one thread.
        let _set = self.served.set(served);
        Ok(())
    }

    /// Has the database follow another configuration, unless it is open already; what is to be done then.
    pub(super) fn reconfigure(&self, next: Reconfiguration) -> Option<Reconfiguration> {
        let mut plan = self.lock();
        if self.served.get().is_some() {
            return Some(next);
        }
        plan.0.schema = next.schema;
        plan.0.database = Arc::new(next.settings);
        plan.0.environment = next.environment;
        plan.1 += 1;
        None
    }
}

/// How long to wait before an engine is tried again after so many failures: twice as long each time up to a limit, and between half
/// of that and all of it, so that not all nodes come at once.
pub(super) fn pause(failures: u32, random: &dyn RandomSource) -> Duration {
    let longest = PAUSE_FIRST.saturating_mul(1 << failures.min(10)).min(PAUSE_LONGEST);
    let mut bytes = [0; 2];
    random.fill(&mut bytes);
    longest / 2 + (longest / 2) * u32::from(u16::from_be_bytes(bytes)) / u32::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use larix_engine::time::SeededRandom;

    use super::*;

    #[test]
    fn pauses_grow_and_differ() {
        let random = SeededRandom::new(7);
        let mut seen = Vec::new();
        for failures in [0, 1, 2, 3, 4, 5, 6, 40, u32::MAX] {
            let longest = PAUSE_LONGEST.min(PAUSE_FIRST.saturating_mul(1 << failures.min(10)));
            for _ in 0..20 {
                let pause = pause(failures, &random);
                assert!(pause >= longest / 2 && pause <= longest, "{failures}: {pause:?}");
                seen.push(pause);
            }
        }
        seen.dedup();
        assert!(seen.len() > 150, "{}", seen.len());
    }
}
