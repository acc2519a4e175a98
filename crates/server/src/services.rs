//! What all connections and databases share, whatever the configuration.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use larix_configuration::Config;
use larix_engine::ServedDatabase;
use larix_engine::access::AccessPolicy;
use larix_engine::log::{LogKey, LogWatch};
use larix_engine::time::{Clock, Monotonic, Timestamp};
use larix_replication::provider::{Behind, RefreshQueue, SyncPeerFigures, SyncPeers};
use larix_store::Store;
use larix_store::lmdb::LmdbStore;

use crate::access_log::AccessLogs;
use crate::admission::Admission;
use crate::background_pool::BackgroundPool;
use crate::backup::Backups;
use crate::balancer::BalancerThread;
use crate::clock::SystemClock;
#[cfg(feature = "kv")]
use crate::cluster::Nodes;
use crate::configuration_queue::ConfigurationQueue;
use crate::consumers::Consumers;
use crate::decoy::Decoy;
use crate::log::Log;
use crate::loops::Loops;
use crate::overlay_threads::OverlayThreads;
use crate::password_pool::PasswordPool;
use crate::proxies::{Caches, ChangeTellers, Proxies};
use crate::resolver::Resolver;
use crate::statistics::{ListenerInfo, Statistics};
use crate::tls::TlsContext;
use crate::traces::Traces;

/// Clocks, counters, pools, queues and the log of one server.
#[derive(Debug)]
pub(crate) struct Services {
    pub log: Log,
    pub statistics: Statistics,
    /// The event loops, which may be left for a commit in a shared engine.
    pub(crate) loops: Loops,
    pub passwords: PasswordPool,
    /// Where binds wait for another program's word; its threads wait rather than compute.
    pub askers: PasswordPool,
    /// Where searches go that have become long.
    pub(crate) long_searches: BackgroundPool,
    /// Requests that look up identities in databases of other machines.
    pub(crate) lookups: BackgroundPool,
    pub decoy: Decoy,
    pub tls: TlsContext,
    pub clock: Arc<SystemClock>,
    /// The limit of open files.
    pub descriptors: u64,
    pub admission: Admission,
    /// Consumers that are brought up to date take turns.
    pub(crate) refreshes: RefreshQueue,
    /// The consumers that are connected.
    pub(crate) sync_peers: Arc<SyncPeers>,
    /// How scheduled backups stand.
    pub backups: Backups,
    /// Databases that follow a provider.
    pub consumers: Consumers,
    pub(crate) configuration: Arc<ConfigurationQueue>,
    /// Notifies the followers of cn=config.
    pub(crate) configuration_watch: LogWatch,
    /// What they are sent.
    pub(crate) configuration_in_force: ArcSwapOption<ConfigurationInForce>,
    pub(crate) access_logs: AccessLogs,
    /// Of databases that other servers have.
    pub(crate) proxies: Proxies,
    /// Of those among them whose entries consumers are sent.
    pub(crate) change_tellers: ChangeTellers,
    /// What was cached of them.
    pub(crate) caches: Caches,
    /// Who serves domains (`database dnssrv`).
    pub(crate) resolver: Resolver,
    /// Of databases in engines that several servers share.
    #[cfg(feature = "kv")]
    pub(crate) nodes: Nodes,
    /// Overlays that see committed changes or have ticks.
    pub(crate) overlay_threads: OverlayThreads,
    /// `backend lload`.
    pub(crate) balancer: BalancerThread,
    /// What is sent to an OpenTelemetry collector.
    pub(crate) traces: Traces,
}

/// cn=config as it is now.
#[derive(Debug)]
pub(crate) struct ConfigurationInForce {
    pub(crate) config: Arc<Config>,
    /// Its access rules.
    pub(crate) policy: Arc<AccessPolicy>,
    /// The subschema subentry's DN as it is shown.
    pub(crate) subschema_dn: String,
}

impl Services {
    pub(crate) fn new(
        config: &Config,
        log: Log,
        clock: Arc<SystemClock>,
        listeners: Vec<Arc<ListenerInfo>>,
        workers: usize,
    ) -> Self {
        let descriptors = raise_descriptor_limit();
        Self {
            backups: Backups::default(),
            consumers: Consumers::default(),
            configuration: Arc::default(),
            configuration_watch: LogWatch::default(),
            configuration_in_force: ArcSwapOption::empty(),
            access_logs: AccessLogs::default(),
            proxies: Proxies::default(),
            change_tellers: ChangeTellers::default(),
            caches: Caches::default(),
            resolver: Resolver::new(Arc::clone(&clock) as _),
            #[cfg(feature = "kv")]
            nodes: Nodes::default(),
            overlay_threads: OverlayThreads::default(),
            balancer: BalancerThread::default(),
            traces: Traces::default(),
            refreshes: RefreshQueue::default(),
            sync_peers: Arc::default(),
            admission: Admission::new(config.global.client_limits.clone(), descriptors),
            decoy: Decoy::new(&config.hasher()),
            log,
            statistics: Statistics::new(clock.now(), listeners, workers),
            loops: Loops::new(workers),
            passwords: PasswordPool::for_cores(cores()),
            askers: PasswordPool::new(crate::saslauthd::QUESTIONS_AT_ONCE),
            long_searches: BackgroundPool::with_threads(workers),
            lookups: BackgroundPool::with_threads(crate::statistics::LOOKUP_THREADS),
            tls: TlsContext::default(),
            clock,
            descriptors,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How the consumers stand that are connected, of these stored databases and of those in shared engines.
    pub(crate) fn sync_peer_figures<'d>(
        &self,
        stored: impl Iterator<Item = &'d Arc<ServedDatabase<LmdbStore>>> + Clone,
    ) -> Vec<SyncPeerFigures> {
        let behind = |instance, sequence| {
            let Some(served) = stored.clone().find(|served| served.database().instance() == instance) else {
                #[cfg(feature = "kv")]
                return self.nodes.behind(instance, sequence);
                #[cfg(not(feature = "kv"))]
                return None;
            };
            let database = served.database();
            let at = LogKey { server_id: database.server_id(), sequence };
            Behind::of(&database.store().snapshot().ok()?, at).ok()
        };
        self.sync_peers.figures(behind, self.now())
    }

    /// The time of day, and the same moment by the clock that never jumps.
    pub(crate) fn both_clocks(&self) -> (Timestamp, Monotonic) {
        (self.clock.now(), self.clock.monotonic())
    }
}

/// The processors that the process may use; at least 1.
pub fn cores() -> usize {
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
