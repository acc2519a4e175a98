//! Databases in an engine that several servers share (`database kv`): this server's part in them as a node.
//!
//! One node at a time writes. A [lease](role) in the engine says who tries to; the fence in each commit is what makes it safe.

mod generation;
mod pool;
mod report;
mod role;
mod tool;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use larix_configuration::KvSettings;
use larix_engine::database::{DatabaseOpenError, DatabaseSettings};
use larix_engine::tables::TABLES;
use larix_engine::time::Clock;
use larix_engine::write::{Reconfiguration, WriterEnvironment};
use larix_engine::{Database, Served};
use larix_kv::{Figures, Freshness, KvOptions, KvStore};
use larix_schema::Schema;

use crate::clock::{SystemClock, SystemRandom};
use crate::log::Log;

pub(crate) use generation::{Cluster, Clusters, Joining, Nodes, Turnover};
pub(crate) use pool::{EnginePool, Place, THREADS, Turn};
pub use report::{Checked, Connected, Status};
pub(crate) use role::Role;
pub use tool::{check, status, step_down};

/// How long one answer of the engine may take.
const DEADLINE: Duration = Duration::from_secs(3);
/// The writer, the thread of the lease and what tools ask take connections beside the threads for reads.
const CONNECTIONS_BESIDE: usize = 4;
/// How long a node that starts waits for another one that makes the database.
const MAKING_SECONDS: u64 = 30;
const MAKING_PAUSE: Duration = Duration::from_millis(100);

/// The store of a node: the thread of the lease has it, too.
pub(crate) type SharedStore = Arc<KvStore>;

/// This server as a node of one database.
pub(crate) struct Node {
    settings: KvSettings,
    /// The normal form of the first suffix.
    suffix: String,
    served: Arc<Served<SharedStore>>,
    pub(crate) pool: EnginePool,
    role: Arc<role::Watch>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// Numbers of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeFigures {
    pub(crate) suffix: String,
    /// The URL of this server.
    pub(crate) node: String,
    pub(crate) leader: Option<String>,
    pub(crate) role: Role,
    /// Operations that wait for a thread, and changes that wait for the writer.
    pub(crate) waiting: u64,
    pub(crate) changes_waiting: u64,
    pub(crate) store: Figures,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("suffix", &self.suffix)
            .field("role", &self.role())
            .finish_non_exhaustive()
    }
}

/// What a node is made from.
pub(crate) struct Making<'a> {
    pub(crate) suffix: String,
    pub(crate) settings: &'a KvSettings,
    pub(crate) schema: Arc<Schema>,
    pub(crate) database: DatabaseSettings,
    pub(crate) environment: WriterEnvironment,
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) log: Log,
}

impl Node {
    /// Connects to the engine, makes the database there if it is new, and takes part in it.
    ///
    /// # Errors
    /// The engine cannot be reached, refuses, or holds something else.
    fn start(making: Making<'_>) -> Result<Self, String> {
        let Making { suffix, settings, schema, database, environment, clock, log } = making;
        let engine = settings.engine.as_ref().ok_or("there is no engine")?;
        let options = KvOptions {
            schema: settings.schema.clone(),
            make: true,
            writes: false,
            freshness: if settings.strict { Freshness::Strict } else { Freshness::Session },
            cache_bytes: usize::try_from(settings.cache_megabytes << 20).unwrap_or(usize::MAX),
            connections: THREADS + CONNECTIONS_BESIDE,
            deadline: DEADLINE,
            name: format!("{} {}", settings.node, settings.schema),
        };
        let text = |error: &dyn fmt::Display| format!("{}: {error}", engine.address);
        let store = KvStore::open(&engine.address, &TABLES, &options).map_err(|error| text(&error))?;
        let store = Arc::new(store);
        let opened = open(&store, settings, &schema, &database, &clock).map_err(|error| text(&error))?;
        let served = Served::start(Arc::new(opened), environment).map_err(|error| text(&error))?;
        let served = Arc::new(served);
        let pool = EnginePool::start(Arc::clone(&clock)).map_err(|error| error.to_string())?;
        let role = Arc::new(role::Watch::default());
        let holder = role::Holder {
            watch: Arc::clone(&role),
            served: Arc::clone(&served),
            node: settings.node.clone(),
            lease: settings.lease,
            suffix: suffix.clone(),
            clock,
            log,
        };
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(move || holder.run());
        let thread = Mutex::new(Some(thread.map_err(|error| error.to_string())?));
        Ok(Self { settings: settings.clone(), suffix, served, pool, role, thread })
    }

    pub(crate) fn served(&self) -> &Arc<Served<SharedStore>> {
        &self.served
    }

    pub(crate) fn store(&self) -> &KvStore {
        self.served.database().store()
    }

    pub(crate) fn role(&self) -> Role {
        self.role.role()
    }

    /// What it tells the monitor and the metrics.
    pub(crate) fn figures(&self) -> NodeFigures {
        let (store, role) = (self.store().figures(), self.role());
        NodeFigures {
            suffix: self.suffix.clone(),
            node: self.settings.node.clone(),
            leader: match &role {
                Role::Leader => Some(self.settings.node.clone()),
                Role::Follower(leader) => Some(leader.clone()),
                Role::Vacant | Role::CutOff => None,
            },
            role,
            waiting: self.pool.waiting() as u64,
            changes_waiting: self.served.waiting_writes() as u64,
            store,
        }
    }

    /// Has the database follow another configuration. It takes the right to write again behind that, so that what indexes are
    /// kept is settled in the engine first.
    pub(crate) fn reconfigure(&self, next: Reconfiguration) {
        let turn = self.role.turn();
        self.store().resign();
        self.served.reconfigure(next);
        drop(turn);
        self.role.settle_again();
    }

    /// Gives up the lease and takes no more changes.
    pub(crate) fn close(&self) {
        self.role.end();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It waits for the engine no longer than its deadlines; a panic was reported already.
            let _ended = thread.join();
        }
    }

    /// The database has left the configuration.
    pub(crate) fn retire(&self) {
        self.served.retire();
        self.role.end();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Not waited for: it may be an event loop that lets the last generation go.
        self.role.end();
    }
}

/// Opens the database: as it is, or makes it where this node holds the lease.
fn open(
    store: &SharedStore,
    settings: &KvSettings,
    schema: &Arc<Schema>,
    database: &DatabaseSettings,
    clock: &SystemClock,
) -> Result<Database<SharedStore>, DatabaseOpenError> {
    let began = clock.monotonic();
    let opened = || Database::open(Arc::clone(store), Arc::clone(schema), database.clone(), &SystemRandom);
    loop {
        match opened() {
            Err(DatabaseOpenError::Empty) => {}
            opened => return opened,
        }
        if store.hold_lease(&settings.node, settings.lease)? {
            store.take_over()?;
            return opened();
        }
        // Another node makes it just now.
        let waited = clock.monotonic().0.saturating_sub(began.0);
        if waited > MAKING_SECONDS * 1_000_000_000 {
            return Err(DatabaseOpenError::Empty);
        }
        std::thread::park_timeout(MAKING_PAUSE);
    }
}
