//! What all connections of the server share.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use larix_engine::log::LogWatch;
use larix_engine::time::{Clock, Monotonic, RandomSource, Timestamp};
use larix_replication::provider::RefreshQueue;

use crate::access_log::AccessLogs;
use crate::admission::Admission;
use crate::backup::Backups;
use crate::clock::{SystemClock, SystemRandom};
use crate::config::Config;
use crate::configuration_queue::ConfigurationQueue;
use crate::consumers::Consumers;
use crate::databases::Databases;
use crate::decoy::Decoy;
use crate::generation::Generation;
use crate::log::Log;
use crate::low_turns::LowTurns;
use crate::password_pool::PasswordPool;
use crate::statistics::{ListenerInfo, Statistics};
use crate::sync_peers::SyncPeers;
use crate::tls::TlsContext;
use crate::traces::Traces;

/// A part of the generation in force when it was asked for. Not to be kept beyond one request.
pub struct Current<T> {
    generation: Guard<Arc<Generation>>,
    part: fn(&Generation) -> &T,
}

impl<T> fmt::Debug for Current<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").finish_non_exhaustive()
    }
}

impl<T> Deref for Current<T> {
    type Target = T;

    fn deref(&self) -> &T {
        (self.part)(&self.generation)
    }
}

/// What all connections share.
#[derive(Debug)]
pub struct Server {
    generation: ArcSwap<Generation>,
    pub log: Log,
    pub statistics: Statistics,
    pub passwords: PasswordPool,
    /// Where binds wait for another program's word; its threads wait rather than compute.
    pub askers: PasswordPool,
    /// Where searches go that have become long.
    pub(crate) long_searches: LowTurns,
    pub decoy: Decoy,
    pub tls: TlsContext,
    pub clock: Arc<SystemClock>,
    /// The limit of open files.
    pub descriptors: u64,
    pub admission: Admission,
    /// Consumers that are brought up to date take turns.
    pub(crate) refreshes: RefreshQueue,
    /// The consumers that are connected.
    pub(crate) sync_peers: SyncPeers,
    /// How scheduled backups stand.
    pub backups: Backups,
    /// Databases that follow a provider.
    pub consumers: Consumers,
    pub(crate) configuration: ConfigurationQueue,
    /// Who follows cn=config.
    pub(crate) configuration_watch: Arc<LogWatch>,
    pub(crate) access_logs: AccessLogs,
    /// What an OpenTelemetry collector is told.
    pub(crate) traces: Traces,
    /// For what SASL says of users who do not exist: it must be the same each time.
    pub(crate) sasl_secret: [u8; 32],
}

impl Server {
    pub(crate) fn new(
        databases: Databases,
        log: Log,
        clock: Arc<SystemClock>,
        listeners: Vec<Arc<ListenerInfo>>,
        workers: usize,
    ) -> Self {
        let config = Arc::clone(databases.config());
        let descriptors = raise_descriptor_limit();
        let sasl_secret = databases.secret().unwrap_or_else(|| {
            let mut secret = [0; 32];
            SystemRandom.fill(&mut secret);
            secret
        });
        Self {
            sasl_secret,
            backups: Backups::default(),
            consumers: Consumers::default(),
            configuration: ConfigurationQueue::default(),
            configuration_watch: Arc::default(),
            access_logs: AccessLogs::default(),
            traces: Traces::default(),
            refreshes: RefreshQueue::default(),
            sync_peers: SyncPeers::default(),
            admission: Admission::new(config.global.client_limits.clone(), descriptors),
            decoy: Decoy::new(&config.hasher()),
            generation: ArcSwap::from_pointee(Generation { config, databases }),
            log,
            statistics: Statistics::new(clock.now(), listeners, workers),
            passwords: PasswordPool::for_cores(cores()),
            askers: PasswordPool::new(crate::saslauthd::QUESTIONS_AT_ONCE),
            long_searches: LowTurns::new(workers),
            tls: TlsContext::default(),
            clock,
            descriptors,
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> Current<Config> {
        Current { generation: self.generation(), part: |generation| &generation.config }
    }

    /// The databases in force.
    pub fn databases(&self) -> Current<Databases> {
        Current { generation: self.generation(), part: |generation| &generation.databases }
    }

    /// Configuration and databases that belong together: what one request takes once and sees throughout.
    pub fn generation(&self) -> Guard<Arc<Generation>> {
        self.generation.load()
    }

    /// The same to be kept.
    pub(crate) fn generation_in_force(&self) -> Arc<Generation> {
        self.generation.load_full()
    }

    /// Requests that begin from now on see this.
    pub(crate) fn publish(&self, generation: Generation) {
        self.generation.store(Arc::new(generation));
        self.configuration_watch.tell();
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time of day, and the same moment by the clock that never jumps.
    pub(crate) fn both_clocks(&self) -> (Timestamp, Monotonic) {
        (self.clock.now(), self.clock.monotonic())
    }
}

/// The processors that the process may use; at least 1.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Lets the process have as many open files as it may; how many that is.
fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum;
    limit.current = maximum;
    // Refused only where the hard limit changed meanwhile: then the soft one stays.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
