//! Databases in an engine that several servers share (`database kv`): this server's part in them as a node.
//!
//! One node at a time writes. A [lease](role) in the engine says who tries to; the fence in each commit is what makes it safe.

mod bind_messages;
mod commit_feed;
mod confirmations;
mod following;
mod foreign_content;
mod generation;
mod lags;
mod lease_thread;
mod logged;
mod node_report;
mod opening;
mod other_databases;
mod pending_binds;
mod pool;
mod publication;
mod published_configuration;
mod reasons;
mod report;
mod role;
mod tool;
mod tool_writer;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use larix_configuration::{Config, Consistency, KvSettings};
use larix_engine::ServedDatabase;
use larix_engine::database::{DatabaseOpenError, DatabaseSettings};
use larix_engine::overlay::BindAttempt;
use larix_engine::time::Clock;
use larix_engine::write::WriterEnvironment;
use larix_engine::writer::{Preparation, Reconfiguration};
use larix_kv::{Figures, KvStore};
use larix_proto::{LdapResult, ResultCode};
use larix_replication::provider::SyncPeers;
use larix_schema::Schema;
use larix_store::CommitError;

use crate::clock::SystemClock;
use crate::configuration_queue::ConfigurationQueue;
use crate::log::Log;
use commit_feed::{FeedReader, Listening};
use confirmations::Confirmations;
use following::{ConfigurationState, Follower, Following};
use lags::{Lags, Looks};
use opening::{Failure, Opening, Plan};
use pending_binds::{BindAnswered, MessageReceiver, PendingBinds, not_judged};

pub(crate) use confirmations::{Confirmed, Unconfirmed, Waiter};
pub(crate) use following::NodeConfiguration;
pub(crate) use generation::{Cluster, Clusters, Joining, Nodes, Turnover};
pub(crate) use logged::check as check_logged;
pub(crate) use pool::{EnginePool, Permit, THREADS, Turn};
pub use published_configuration::PublishedConfiguration;
pub use report::{CheckedContent, EngineClient, KnownNode, NodeReport, RemovedNode, Status};
pub(crate) use role::{DAMAGED, Role};
pub use tool::{
    ToolStore, check, check_joined, check_kept, check_node, configuration_of_node, open_to_read, published,
    remove, status, step_down, whole,
};
pub use tool_writer::ToolWriter;

/// How long one answer of the engine may take.
const DEADLINE: Duration = Duration::from_secs(3);
/// How often a change of the configuration looks whether some node writes.
const SETTLING_LOOK: Duration = Duration::from_millis(5);
/// How long changes wait for a database that is opened anew and has not the right to write yet.
const TURNOVER: Duration = Duration::from_secs(10);
/// The writer, the thread of the lease and what tools ask take connections beside the threads for reads.
const CONNECTIONS_BESIDE: usize = 4;

/// Whether this thread could not read something in an engine since this was asked last: it must not pass for what is not there.
pub(crate) fn take_missed_read() -> bool {
    larix_kv::take_read_fault().is_some()
}

/// The store of a node: the thread of the lease has it, too.
pub(crate) type SharedStore = Arc<KvStore>;

/// This server as a node of one database.
pub(crate) struct Node {
    settings: KvSettings,
    /// The normal form of the first suffix.
    suffix: String,
    opening: Arc<Opening>,
    pub(crate) pool: Arc<EnginePool>,
    confirmations: Arc<Confirmations>,
    role: Arc<role::Watch>,
    pending_binds: Arc<PendingBinds>,
    listening: Arc<Listening>,
    following: Arc<Following>,
    /// Of the consumers that are served here.
    lags: Arc<Lags>,
    sync_peers: Arc<SyncPeers>,
    clock: Arc<SystemClock>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    /// Another node of this server has taken its place.
    is_succeeded: AtomicBool,
}

/// Numbers of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeFigures {
    pub(crate) suffix: String,
    /// The URL of this server.
    pub(crate) node: String,
    pub(crate) leader: Option<String>,
    pub(crate) role: Role,
    /// Whether the configuration, or cn=Monitor, lets nobody change it.
    pub(crate) read_only: bool,
    /// Operations that wait for a thread or for the question that confirms them, and changes that wait for the writer.
    pub(crate) waiting: u64,
    pub(crate) changes_waiting: u64,
    pub(crate) configuration: ConfigurationState,
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
pub(crate) struct NodeParameters<'a> {
    pub(crate) suffix: String,
    pub(crate) settings: &'a KvSettings,
    pub(crate) schema: Arc<Schema>,
    pub(crate) database: DatabaseSettings,
    pub(crate) environment: WriterEnvironment,
    /// What other nodes need of the configuration.
    pub(crate) shared: NodeConfiguration,
    /// Where changes of this server's configuration go.
    pub(crate) configuration: Arc<ConfigurationQueue>,
    /// The consumers that are connected to this server.
    pub(crate) sync_peers: Arc<SyncPeers>,
    pub(crate) clock: Arc<SystemClock>,
    pub(crate) log: Log,
    /// Whether the engine may be away for now: it is tried again then.
    pub(crate) may_be_away: bool,
}

/// Opens the database. Where the engine is away and may be, the node begins cut off, and its thread tries again.
///
/// # Errors
/// As [`Node::start`].
fn open_or_try_later(
    opening: &Opening,
    role: &role::Watch,
    (suffix, may_be_away): (&str, bool),
    clock: &SystemClock,
    log: &Log,
) -> Result<(), String> {
    match opening.open(clock) {
        Ok(()) => Ok(()),
        Err(Failure::Away(why)) if may_be_away => {
            log.warning(format_args!("\"{suffix}\": {why}; it is tried again until the engine answers"));
            role.begin_cut_off();
            Ok(())
        }
        Err(failure) => Err(failure.text()),
    }
}

impl Node {
    /// Connects to the engine, makes the database there if it is new, and takes part in it. Where the engine is away and may be,
    /// a thread does that later.
    ///
    /// # Errors
    /// The engine cannot be reached, refuses, or holds something else.
    fn start(parameters: NodeParameters<'_>) -> Result<Self, String> {
        let NodeParameters {
            suffix,
            settings,
            schema,
            database,
            environment,
            shared,
            clock,
            log,
            may_be_away,
            ..
        } = parameters;
        // Strict reads ask themselves; consumers are to hear of changes.
        let listens = settings.consistency != Consistency::Strict || database.provider.is_some();
        let plan = Plan { settings: settings.clone(), schema, database: Arc::new(database), environment };
        let opening = Arc::new(Opening::new(plan, shared));
        let role = Arc::new(role::Watch::default());
        open_or_try_later(&opening, &role, (&suffix, may_be_away), &clock, &log)?;
        let pool = Arc::new(EnginePool::start(Arc::clone(&clock)).map_err(|error| error.to_string())?);
        let pending_binds = Arc::new(PendingBinds::default());
        let receiver = MessageReceiver {
            pending_binds: Arc::clone(&pending_binds),
            opening: Arc::clone(&opening),
            pool: Arc::clone(&pool),
            clock: Arc::clone(&clock),
            log: log.clone(),
        };
        let listening = Arc::new(Listening::default());
        let own_clock = Arc::clone(&clock);
        let following = Arc::<Following>::default();
        let follower = Follower {
            suffix: suffix.clone(),
            following: Arc::clone(&following),
            configuration: parameters.configuration,
            log: log.clone(),
        };
        let holder = lease_thread::Holder {
            follower,
            watch: Arc::clone(&role),
            opening: Arc::clone(&opening),
            node: settings.node.clone(),
            lease: settings.lease,
            suffix: suffix.clone(),
            clock,
            log,
        };
        holder.begin();
        let thread = std::thread::Builder::new().name("lease".to_owned()).spawn(move || holder.run());
        let thread = Mutex::new(Some(thread.map_err(|error| error.to_string())?));
        let (settings, clock) = (settings.clone(), own_clock);
        let node = Self {
            settings,
            suffix,
            opening,
            pool,
            confirmations: Arc::default(),
            role,
            pending_binds,
            listening,
            following,
            lags: Arc::default(),
            sync_peers: parameters.sync_peers,
            clock,
            thread,
            is_succeeded: AtomicBool::new(false),
        };
        let receiver =
            std::thread::Builder::new().name("node-messages".to_owned()).spawn(move || receiver.run());
        receiver.map_err(|error| error.to_string())?;
        if listens {
            node.listen().map_err(|error| error.to_string())?;
        }
        Ok(node)
    }

    /// Hears of commits from now on, if it does not yet.
    fn listen(&self) -> std::io::Result<()> {
        if !self.listening.starts() {
            return Ok(());
        }
        let (listening, opening) = (Arc::clone(&self.listening), Arc::clone(&self.opening));
        let looks = Looks {
            lags: Arc::clone(&self.lags),
            peers: Arc::clone(&self.sync_peers),
            clock: Arc::clone(&self.clock),
            last: None,
        };
        let reader = FeedReader { listening, opening, looks };
        std::thread::Builder::new().name("node-commits".to_owned()).spawn(move || reader.run()).map(drop)
    }

    /// The database; none while the engine has not answered since the server started.
    pub(crate) fn served(&self) -> Option<&Arc<ServedDatabase<SharedStore>>> {
        self.opening.served()
    }

    /// The settings of the database, whether it is open or not.
    pub(crate) fn database_settings(&self) -> Arc<DatabaseSettings> {
        self.opening.settings()
    }

    /// Whether reads may show what was there before another node's last change.
    pub(crate) fn may_read_what_was_before(&self) -> bool {
        self.settings.consistency != Consistency::Strict
    }

    /// Whether the engine had no room for a change.
    pub(crate) fn lacks_room(&self) -> bool {
        self.store().is_some_and(KvStore::lacks_room)
    }

    /// Has `waiter` called with the newest commit that the engine knows, later than this.
    pub(crate) fn confirm(&self, store: &SharedStore, waiter: Waiter) {
        let store = Arc::clone(store);
        self.confirmations.join(&self.pool, move || confirmations::ask(&store), waiter);
    }

    fn store(&self) -> Option<&KvStore> {
        Some(self.served()?.database().store())
    }

    pub(crate) fn role(&self) -> Role {
        self.role.role()
    }

    /// Why nobody takes changes while this node is cut off.
    pub(crate) fn why_cut_off(&self) -> &'static str {
        self.role.why_cut_off()
    }

    /// The normal form of the first suffix of its database.
    pub(crate) fn suffix(&self) -> &str {
        &self.suffix
    }

    /// In which epoch this node writes; none while another one does, or nobody.
    pub(crate) fn writes_in(&self) -> Option<u64> {
        (self.role() == Role::Leader).then(|| self.store()?.held_epoch())?
    }

    /// Whether the writer takes changes although this node does not write: the database is being opened anew. What comes to the node that
    /// was goes to the next one's writer, and that waits for the right to write.
    pub(crate) fn is_being_reopened(&self) -> bool {
        self.is_succeeded.load(Ordering::Acquire) || self.store().is_some_and(KvStore::expects_take_over)
    }

    /// Whether the writer takes changes, whatever the role says yet: it is set once the configuration has been published.
    pub(crate) fn takes_changes(&self) -> bool {
        self.is_being_reopened() || self.store().is_some_and(KvStore::leads)
    }

    /// Has this called after each change of the role, until it answers that nobody listens any more. It must not block.
    pub(crate) fn on_role_change(&self, listener: Box<dyn Fn() -> bool + Send>) {
        self.role.listen(listener);
    }

    /// Has this node write the database only while it writes another one, too: an access log is written by the node that writes what it
    /// records. `None`: whatever it does with others.
    pub(crate) fn write_beside(&self, other: Option<&Self>) {
        self.role.write_beside(other.map(|other| &other.role));
    }

    /// Has the node that writes judge a bind whose password was compared; `done` is called once, on some thread. It may wait for the
    /// engine.
    pub(crate) fn judge_bind(&self, attempt: BindAttempt, done: BindAnswered) {
        let Some(served) = self.served() else {
            return done(not_judged("the engine of this database has not let this server in"));
        };
        match self.role() {
            Role::Leader => served.judge_bind(attempt, done),
            _ if self.takes_changes() => served.judge_bind(attempt, done),
            Role::Follower(_) => {
                self.pending_binds.ask(served.database().store(), &attempt, self.clock.monotonic(), done);
            }
            Role::Vacant => done(not_judged("no node of this database writes just now")),
            Role::CutOff => done(not_judged(self.why_cut_off())),
        }
    }

    /// What it tells the monitor and the metrics.
    pub(crate) fn figures(&self) -> NodeFigures {
        let (store, role) = (self.store().map(KvStore::figures).unwrap_or_default(), self.role());
        NodeFigures {
            suffix: self.suffix.clone(),
            node: self.settings.node.clone(),
            leader: match &role {
                Role::Leader => Some(self.settings.node.clone()),
                Role::Follower(leader) => Some(leader.clone()),
                Role::Vacant | Role::CutOff => None,
            },
            role,
            read_only: self.database_settings().read_only,
            waiting: (self.pool.waiting() + self.confirmations.waiting()) as u64,
            changes_waiting: self.served().map_or(0, |served| served.waiting_writes() as u64),
            configuration: self.following.state(),
            store,
        }
    }

    /// Publishes what all nodes are to have in common, before this node has it. Does nothing where nothing of that changes.
    ///
    /// # Errors
    /// This node does not write, or does not have what the others have; it cannot be written now.
    pub(crate) fn publish_change(&self, before: &Config, after: &Config) -> Result<(), LdapResult> {
        let shares = |config: &'_ Config| {
            let database = config.in_engine(&self.suffix)?;
            let settings = database.kind.settings::<KvSettings>()?;
            settings.shares_configuration.then(|| config.shared_lines(database))
        };
        let (Some(before), Some(after)) = (shares(before), shares(after)) else { return Ok(()) };
        if before == after {
            return Ok(());
        }
        let refused = |code, why: String| Err(LdapResult::with(code, format!("\"{}\": {why}", self.suffix)));
        let Some(served) = self.served() else {
            return refused(ResultCode::UNAVAILABLE, "the engine has not let this server in".to_owned());
        };
        let began = self.clock.monotonic();
        // Behind a change of its configuration the node takes the right to write again.
        while (self.role() == Role::Vacant || self.is_being_reopened())
            && Duration::from_nanos(self.clock.monotonic().0.saturating_sub(began.0)) < DEADLINE
        {
            std::thread::park_timeout(SETTLING_LOOK);
        }
        match self.role() {
            Role::Leader => {}
            Role::Follower(leader) => {
                return refused(
                    ResultCode::UNWILLING_TO_PERFORM,
                    format!(
                        "all nodes have this setting in common: change it at {leader}, which writes, and this node follows"
                    ),
                );
            }
            Role::Vacant => {
                let why = "all nodes have this setting in common, and none writes just now: try again";
                return refused(ResultCode::UNAVAILABLE, why.to_owned());
            }
            Role::CutOff => {
                let why = format!("all nodes have this setting in common, and {}", self.why_cut_off());
                return refused(ResultCode::UNAVAILABLE, why);
            }
        }
        let store = served.database().store();
        match published_configuration::publish_change(
            store,
            &self.settings.node,
            (&before, &after),
            &self.following.state(),
        ) {
            Ok(_) => Ok(()),
            Err((code, why)) => refused(code, why),
        }
    }

    /// Has the database follow another configuration. The node that writes goes on writing: what indexes are kept and how changes are
    /// logged is settled in the engine between two groups of changes. If it cannot settle that, it takes the right to write again.
    pub(crate) fn reconfigure(&self, next: Reconfiguration) {
        if next.settings.provider.is_some() {
            // Without a thread, consumers hear of changes with the looks at the lease.
            let _no_thread = self.listen();
        }
        let Some(next) = self.opening.reconfigure(next) else { return };
        let Some(served) = self.served() else { return };
        // The writer may wait for the right to write, and this for the writer, with the turn that taking the right needs.
        while served.database().store().expects_take_over() {
            std::thread::park_timeout(SETTLING_LOOK);
        }
        let turn = self.role.turn();
        let store = served.database().store();
        let preparation = store.leads().then(|| settling(store, &next));
        if preparation.is_none() {
            store.resign();
        }
        served.reconfigure_behind(preparation, next);
        drop(turn);
        if store.leads() {
            // What nodes that join get may be another.
            self.role.hurry();
        } else {
            self.role.settle_again();
        }
    }

    /// What other nodes need of the configuration from now on: published with the next look at the lease, if this node writes.
    pub(crate) fn share(&self, shared: NodeConfiguration) {
        self.opening.share(shared);
    }

    /// Gives up the lease and takes no more changes.
    pub(crate) fn close(&self) {
        self.pending_binds.end();
        self.listening.end();
        self.role.end();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It waits for the engine no longer than its deadlines; a panic was reported already.
            let _ended = thread.join();
        }
    }

    /// The database has left the configuration, or `next` has it from now on, opened otherwise. Where this node writes, that one is about to:
    /// changes wait for it.
    pub(crate) fn retire(&self, next: Option<&Self>) {
        let writes = self.role() == Role::Leader || self.takes_changes();
        match (self.served(), next.and_then(Self::served)) {
            (Some(served), Some(next)) if writes => {
                let expect = || next.database().store().expect_take_over(TURNOVER);
                expect();
                self.is_succeeded.store(true, Ordering::Release);
                served.retire_for(next);
                // What waited here has taken its time.
                expect();
            }
            (served, _) => served.into_iter().for_each(|served| served.retire()),
        }
        self.pending_binds.end();
        self.listening.end();
        self.role.end();
    }
}

/// Settles in the engine what another configuration says, while the node has the right to write; without success it gives that up.
fn settling(store: &SharedStore, next: &Reconfiguration) -> Preparation {
    let (store, schema, settings) = (Arc::clone(store), Arc::clone(&next.schema), next.settings.clone());
    let server_id = next.environment.order.server_id();
    Preparation::new(move || {
        let settle = || lease_thread::settle(&store, &schema, &settings, server_id);
        let settled = match settle() {
            // The thread of the lease has committed meanwhile.
            Err(DatabaseOpenError::Commit(CommitError::Conflict)) => settle(),
            settled => settled,
        };
        if settled.is_err() {
            store.resign();
        }
    })
}

impl Drop for Node {
    fn drop(&mut self) {
        // Not waited for: it may be an event loop that lets the last generation go.
        self.pending_binds.end();
        self.listening.end();
        self.role.end();
    }
}
