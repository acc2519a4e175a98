//! Changes of cn=config while the server serves: one thread makes them, one after another.
//!
//! A change is judged ([`Config::changed`](larix_configuration::Config::changed)), everything it needs is made ready beside what
//! is in force, it becomes durable, and then it is published, which cannot fail. Whatever fails before leaves everything
//! as it was. A change is answered when it is in force: a client that has the answer sees the change.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use larix_configuration::slapd_d::{Keeper, Stamp};
use larix_configuration::values::{AdminAddress, BackupSchedule};
use larix_configuration::{
    Changed, Config, ConfigChange, ConfigRefusal, Global, Present, Replicated, Requester,
};
#[cfg(feature = "kv")]
use larix_configuration::{Followed, SharedLines};
use larix_engine::replica::{Applied, ReplicatedBatch, ReplicatedOutcome};
use larix_engine::time::{Clock, Monotonic};
use larix_engine::write::{Retiring, WriteOutcome, WriteRequest};
use larix_engine::{Served, injected};
use larix_proto::{LdapResult, ResultCode};
use larix_store::lmdb::{LmdbOptions, LmdbStore};
use tokio::sync::mpsc::UnboundedSender;

use crate::admin::{self, AdminChange, AdminListener};
use crate::balancer::{self, ServerTls};
use crate::clock::SystemRandom;
use crate::configuration_queue::{ConfigurationRequest, QUEUE_LIMIT};
#[cfg(feature = "kv")]
use crate::configuration_queue::{FollowedConfiguration, NewestConfiguration};
use crate::databases::{Databases, OpenError, PreparedDatabases};
use crate::generation::Generation;
use crate::http::{HttpChange, HttpListener};
use crate::log::LogLevel;
use crate::log::LogSettings;
use crate::low_priority::LowPriority;
use crate::panics;
use crate::processor_time::take_long_slices;
use crate::replication;
use crate::server::Server;
use crate::tls::{Loaded, TlsState};
use crate::tool_socket::ToolSockets;

/// So long after the last change the files of slapd.d are made safe, and the journal that has been until then goes.
const AT_REST: Duration = Duration::from_millis(200);
/// So long files that are to be exchanged may stay open for requests that were under way.
const CLOSED_WITHIN: Duration = Duration::from_secs(30);
/// How often it is looked whether they are closed.
const CLOSED_LOOK: Duration = Duration::from_millis(2);
/// Earlier generations, kept until they are unused, so that no request has to free one.
const EARLIER_MAX: usize = 8;

/// The thread that changes the configuration.
pub(crate) struct ConfigurationThread {
    queue: SyncSender<ConfigurationRequest>,
    thread: JoinHandle<()>,
    listeners: Arc<ListenerChanges>,
}

/// The listeners and sockets that follow the configuration.
#[derive(Debug, Default)]
struct Endpoints {
    listeners: Arc<ListenerChanges>,
    tools: Arc<ToolSockets>,
}

/// Where listeners are opened and closed while the server serves.
#[derive(Debug, Default)]
struct ListenerChanges {
    http: OnceLock<UnboundedSender<HttpChange>>,
    admin: OnceLock<UnboundedSender<AdminChange>>,
}

impl ConfigurationThread {
    /// # Errors
    /// No thread to be had.
    pub(crate) fn start(server: &Arc<Server>, tools: &Arc<ToolSockets>) -> io::Result<Self> {
        let (queue, receiver) = sync_channel(QUEUE_LIMIT);
        let (changed, own) = (queue.clone(), server.clone());
        let judge = LowPriority::start("judge")?;
        let thread = std::thread::Builder::new().name("configuration".to_owned());
        let listeners = Arc::<ListenerChanges>::default();
        let endpoints = Endpoints { listeners: Arc::clone(&listeners), tools: Arc::clone(tools) };
        let thread = thread.spawn(move || run(&own, &endpoints, &receiver, judge))?;
        server.configuration.set(changed);
        Ok(Self { queue, thread, listeners })
    }

    /// Where listeners for HTTP are opened and closed.
    pub(crate) fn set_http(&self, changes: UnboundedSender<HttpChange>) {
        // Set once, when the server starts.
        let _ = self.listeners.http.set(changes);
    }

    /// Where listeners for the admin page are opened and closed.
    pub(crate) fn set_admin(&self, changes: UnboundedSender<AdminChange>) {
        // Set once, when the server starts.
        let _ = self.listeners.admin.set(changes);
    }

    /// Makes the changes that wait, and ends.
    pub(crate) fn finish(self) {
        if self.queue.send(ConfigurationRequest::End).is_ok() {
            // A panic was reported by the thread itself.
            let _ = self.thread.join();
        }
    }
}

fn run(
    server: &Arc<Server>,
    endpoints: &Endpoints,
    receiver: &Receiver<ConfigurationRequest>,
    judge: LowPriority,
) {
    // What is judged gives way; what is left is short, but no request waits a whole slice of the kernel's for it either.
    take_long_slices();
    let mut configurator = Configurator {
        server,
        endpoints,
        judge,
        keeper: Keeper::default(),
        settle: false,
        earlier: Vec::new(),
        out_of_service: Vec::new(),
    };
    while let Some(request) = configurator.next(receiver) {
        // A change that is a bug's end must not be the end of all changes: nothing is published before all is ready.
        match request {
            ConfigurationRequest::Change(requests, done) => {
                let outcome = panics::contained(|| {
                    injected::panic_at("configuration");
                    configurator.change(requests)
                });
                done(outcome.unwrap_or_else(|_| configurator.internal_error().into()));
            }
            ConfigurationRequest::Replicate(batch, present, done) => {
                let outcome = panics::contained(|| configurator.replicate(*batch, present));
                let outcome = outcome.unwrap_or_else(|_| Err(configurator.internal_error()));
                let (changes, absent, result) = match outcome {
                    Ok((changes, absent)) => (changes, absent, LdapResult::success()),
                    Err(result) => (Vec::new(), 0, result),
                };
                done(ReplicatedOutcome { changes, result }, absent);
            }
            ConfigurationRequest::OutOfService(directories, answer) => {
                let taken = panics::contained(|| configurator.take_out_of_service(directories));
                let taken = taken.unwrap_or_else(|_| Err("internal error".to_owned()));
                // Who asks waits.
                let _ = answer.send(taken);
            }
            #[cfg(feature = "kv")]
            ConfigurationRequest::Follow(FollowedConfiguration { suffix, newest }) => {
                if let Ok(Some(NewestConfiguration { lines, done })) = panics::contained(newest) {
                    let outcome = panics::contained(|| configurator.follow(&suffix, lines));
                    done(outcome.unwrap_or_else(|_| Err(configurator.internal_error().diagnostic)));
                }
            }
            ConfigurationRequest::RenewBalancer => {
                // What was in use stays if it cannot be.
                let _ = panics::contained(|| configurator.renew_balancer());
            }
            ConfigurationRequest::End => break,
        }
        server.access_logs.wake_configuration();
    }
    configurator.settle();
}

/// What the thread has beside the requests.
struct Configurator<'s> {
    server: &'s Arc<Server>,
    endpoints: &'s Endpoints,
    /// Where a change is judged: some milliseconds that are not taken from who answers.
    judge: LowPriority,
    /// The journal of slapd.d.
    keeper: Keeper,
    /// Whether something was changed since the files were last made safe, or could not be.
    settle: bool,
    earlier: Vec<Arc<Generation>>,
    /// The directories of databases whose files are being exchanged.
    out_of_service: Vec<PathBuf>,
}

impl Configurator<'_> {
    /// What is asked next. `None`: there is nothing left to ask.
    fn next(&mut self, receiver: &Receiver<ConfigurationRequest>) -> Option<ConfigurationRequest> {
        if self.settle {
            match receiver.recv_timeout(AT_REST) {
                Ok(request) => return Some(request),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    if panics::contained(|| self.settle()).is_err() {
                        self.keeper = Keeper::default();
                    }
                }
            }
        }
        receiver.recv().ok()
    }

    /// Behind a panic: the journal is taken up again as it stands on the disk.
    fn internal_error(&mut self) -> LdapResult {
        self.keeper = Keeper::default();
        refusal(ResultCode::OTHER, "internal error")
    }

    /// Makes safe in the files what is so in the journal.
    fn settle(&mut self) {
        self.settle = false;
        injected::panic_at("settle");
        self.judge.free(std::mem::take(&mut self.earlier));
        if let Err(error) = self.keeper.settle() {
            // It is safe in the journal, and tried again behind the next change.
            self.server.log.warning(format_args!("slapd.d: {}", ConfigRefusal::from(error)));
        }
    }

    /// Whatever has this generation still, is not the one to free it.
    fn let_go(&mut self, earlier: Arc<Generation>) {
        self.earlier.push(earlier);
        self.free_unused();
        if self.earlier.len() > EARLIER_MAX {
            let oldest = self.earlier.remove(0);
            self.judge.free(oldest);
        }
    }

    /// Frees unused generations before a change is checked, because it may need a directory that is still open there.
    fn free_unused(&mut self) {
        let free = self.earlier.extract_if(.., |generation| Arc::strong_count(generation) == 1);
        let free: Vec<Arc<Generation>> = free.collect();
        self.judge.free(free);
    }

    fn change(&mut self, requests: Vec<WriteRequest>) -> WriteOutcome {
        self.free_unused();
        let earlier = self.server.generation_in_force();
        let Some(policy) = earlier.databases.configuration_policy() else {
            return refusal(ResultCode::UNWILLING_TO_PERFORM, "there is no database config").into();
        };
        let change = |WriteRequest { operation, subject, controls, .. }| {
            let policy = Arc::clone(&policy);
            ConfigChange { operation, controls, requester: Requester::Client { subject, policy } }
        };
        let changes: Vec<ConfigChange> = requests.into_iter().map(change).collect();
        let (clock, config) = (Arc::clone(&self.server.clock), Arc::clone(&earlier.config));
        let judged = self.judge.run(move || {
            let stamp = Stamp { clock: &*clock, random: &SystemRandom };
            config.changed_together(&changes, &stamp)
        });
        let changed = match judged {
            Ok(changed) => changed,
            Err((number, refused)) => return WriteOutcome { refused: Some(number), ..refused.into() },
        };
        let nothing = changed.before.is_none() && changed.after.is_none();
        if changed.no_op || nothing {
            return changed.outcome();
        }
        // What a provider sends is taken all the same: the directory may be another server's.
        let schedule = &changed.config.global.backup_schedule;
        if *schedule != earlier.config.global.backup_schedule
            && let Some(Err(why)) = schedule.as_ref().map(BackupSchedule::check_directory)
        {
            return refusal(ResultCode::UNWILLING_TO_PERFORM, why).into();
        }
        match self.carry_out(&earlier, &changed, Maker::Client) {
            Ok(logged) => {
                let outcome = WriteOutcome { logged, ..changed.outcome() };
                self.judge.free(changed);
                self.let_go(earlier);
                outcome
            }
            Err(refused) => refused.into(),
        }
    }

    /// Takes these databases out of service, and all others back into it. Answers the moment from which on requests found it so.
    ///
    /// # Errors
    /// What cannot be opened, or is not closed in time.
    fn take_out_of_service(&mut self, directories: Vec<PathBuf>) -> Result<Monotonic, String> {
        self.free_unused();
        let earlier = self.server.generation_in_force();
        let closing: Vec<_> = directories
            .iter()
            .filter_map(|directory| earlier.databases.served_in(directory))
            .map(|served| Arc::downgrade(served.database()))
            .collect();
        let config = earlier.config.as_ref().clone();
        let ready = Transition::prepare((self.server, self.endpoints), &earlier, config, &directories)
            .map_err(|refused| refused.diagnostic)?;
        let began = self.server.clock.monotonic();
        ready.publish();
        self.out_of_service = directories;
        self.let_go(earlier);
        while closing.iter().any(|database| database.strong_count() > 0) {
            let waited = Duration::from_nanos(self.server.clock.monotonic().0.saturating_sub(began.0));
            if waited > CLOSED_WITHIN {
                return Err(format!(
                    "requests still use the database after {} seconds",
                    CLOSED_WITHIN.as_secs()
                ));
            }
            std::thread::park_timeout(CLOSED_LOOK);
            self.free_unused();
        }
        Ok(began)
    }

    /// The balancer goes on with the certificates that the files have now.
    fn renew_balancer(&self) {
        let config = self.server.config();
        let Some(own) = &config.global.balancer else { return };
        let around = (&self.server.log, self.server.now());
        let tls = ServerTls { settings: &config.global.tls, state: self.server.tls.current() };
        match self.server.balancer.prepare((Some(own), Some(own)), tls, around) {
            Ok(prepared) => self.server.balancer.publish(prepared),
            Err(error) => self.server.log.notice(format_args!("what was in use stays: {error}")),
        }
    }

    /// Changes the configuration to what a provider has, as far as the provider sent it.
    fn replicate(
        &mut self,
        batch: ReplicatedBatch,
        present: Option<Present>,
    ) -> Result<(Vec<Applied>, u64), LdapResult> {
        self.free_unused();
        let earlier = self.server.generation_in_force();
        let (clock, config) = (Arc::clone(&self.server.clock), Arc::clone(&earlier.config));
        let judged = self.judge.run(move || {
            let stamp = Stamp { clock: &*clock, random: &SystemRandom };
            config.replicated(&batch.changes, present.as_ref(), &batch.context_csns, &stamp)
        });
        let Replicated { changed, applied, absent } = judged.map_err(|refused| refused.0)?;
        if let Some(changed) = changed {
            self.carry_out(&earlier, &changed, Maker::Server)?;
            self.let_go(earlier);
        }
        Ok((applied, absent))
    }

    /// Changes the configuration to what the nodes of a database in a shared engine have in common. What has changed, for people.
    ///
    /// # Errors
    /// Why it cannot be: then nothing has changed.
    #[cfg(feature = "kv")]
    fn follow(&mut self, suffix: &str, lines: SharedLines) -> Result<Option<String>, String> {
        self.free_unused();
        let earlier = self.server.generation_in_force();
        let (clock, config) = (Arc::clone(&self.server.clock), Arc::clone(&earlier.config));
        let suffix = suffix.to_owned();
        let judged = self.judge.run(move || {
            let stamp = Stamp { clock: &*clock, random: &SystemRandom };
            config.with_shared_lines(&suffix, &lines, &stamp)
        });
        let Some(Followed { changed, difference }) = judged.map_err(|refused| refused.0.diagnostic)? else {
            return Ok(None);
        };
        self.carry_out(&earlier, &changed, Maker::Server).map_err(|refused| refused.diagnostic)?;
        self.judge.free(changed);
        self.let_go(earlier);
        Ok(Some(difference.to_string()))
    }

    fn carry_out(
        &mut self,
        earlier: &Generation,
        changed: &Changed,
        maker: Maker,
    ) -> Result<Range<u64>, LdapResult> {
        self.settle = true;
        let around = (self.server, self.endpoints);
        let mut config = changed.config.clone();
        config.global.listener_urls.clone_from(&earlier.config.global.listener_urls);
        let has_other_ids = config.global.server_ids != earlier.config.global.server_ids;
        let without_id = if has_other_ids { config.no_server_id() } else { None };
        let ready = Transition::prepare(around, earlier, config.clone(), &self.out_of_service).or_else(
            |refused| {
                if self.earlier.is_empty() {
                    return Err(refused);
                }
                // A request may hold a generation in which a directory that is wanted now is still open: its last holder
                // closes it.
                self.free_unused();
                self.earlier.clear();
                self.judge.run(|| ());
                Transition::prepare(around, earlier, config, &self.out_of_service)
            },
        )?;
        let done = ready.carry_out(changed, &mut self.keeper, maker);
        if let (Ok(_), Some(why)) = (&done, without_id) {
            self.server.log.notice(format_args!("{why}; until then its changes have the ID 0"));
        }
        done
    }
}

fn refusal(code: ResultCode, text: impl Into<String>) -> LdapResult {
    LdapResult::with(code, text)
}

fn failed(error: impl fmt::Display) -> LdapResult {
    refusal(ResultCode::OTHER, error.to_string())
}

/// A fault of the configuration reads here as one that is found before: on one line.
fn not_opened(error: OpenError) -> LdapResult {
    match error {
        OpenError::Config(error) => ConfigRefusal::from(error).0,
        error => failed(error),
    }
}

/// Whose change it is.
#[derive(Copy, Clone, Debug)]
enum Maker {
    Client,
    /// It was made elsewhere.
    Server,
}

/// All that the next configuration needs, ready beside what is in force. Dropping it takes back what was made.
struct Transition<'s> {
    server: &'s Arc<Server>,
    endpoints: &'s Endpoints,
    earlier: &'s Generation,
    config: Arc<Config>,
    databases: PreparedDatabases,
    tls: Option<Loaded>,
    log: Option<LogSettings>,
    http: Vec<(SocketAddr, HttpListener)>,
    admin: Vec<(AdminAddress, AdminListener)>,
    balancer: balancer::Prepared,
}

impl<'s> Transition<'s> {
    /// # Errors
    /// What cannot be had: a file, an address, a database.
    fn prepare(
        (server, endpoints): (&'s Arc<Server>, &'s Endpoints),
        earlier: &'s Generation,
        config: Config,
        out_of_service: &[PathBuf],
    ) -> Result<Self, LdapResult> {
        let config = Arc::new(config);
        let (before, after) = (&earlier.config.global, &config.global);
        let tls = if before.tls == after.tls {
            None
        } else {
            Some(TlsState::load(&after.tls, server.clock.now()).map_err(failed)?)
        };
        let log = match logs_alike(before, after) {
            true => None,
            false => Some(LogSettings::open(&after.log_directives()).map_err(failed)?),
        };
        let new = after.http_listeners.iter().filter(|address| !before.http_listeners.contains(address));
        let http = new
            .map(|address| Ok((*address, HttpListener::bind(*address).map_err(failed)?)))
            .collect::<Result<_, LdapResult>>()?;
        let new = after.admin_listeners.iter().filter(|address| !before.admin_listeners.contains(address));
        let admin = new
            .map(|address| Ok((address.clone(), AdminListener::bind(address).map_err(failed)?)))
            .collect::<Result<_, LdapResult>>()?;
        let has_tls = match &tls {
            Some(loaded) => loaded.state.is_some(),
            None => server.tls.is_available(),
        };
        if !has_tls && after.admin_listeners.iter().any(|address| address.tls) {
            return Err(refusal(ResultCode::UNWILLING_TO_PERFORM, admin::NEEDS_TLS));
        }
        let state = match &tls {
            Some(loaded) => loaded.state.clone(),
            None => server.tls.current(),
        };
        let next_tls = ServerTls { settings: &after.tls, state };
        let is_shared = tls.is_some() && after.balancer.as_ref().is_some_and(|own| own.shares_tls);
        let balancer = if before.balancer == after.balancer && !is_shared {
            balancer::Prepared::default()
        } else {
            let balancers = (before.balancer.as_ref(), after.balancer.as_ref());
            server.balancer.prepare(balancers, next_tls, (&server.log, server.now())).map_err(failed)?
        };
        let databases =
            Databases::prepare(&config, server.services(), Some(&earlier.databases), out_of_service)
                .map_err(not_opened)?;
        Ok(Self { server, endpoints, earlier, config, databases, tls, log, http, admin, balancer })
    }

    /// Answers the sequences of its records for the access log.
    ///
    /// # Errors
    /// What cannot be written, or what entries still use: then nothing has changed.
    fn carry_out(
        self,
        changed: &Changed,
        keeper: &mut Keeper,
        maker: Maker,
    ) -> Result<Range<u64>, LdapResult> {
        self.free_schema()
            .and_then(|()| self.forget_indexes())
            .and_then(|()| self.set_file_modes(&self.config))
            .and_then(|()| self.publish_to_nodes(maker))
            .and_then(|()| changed.commit_by(keeper).map_err(|error| ConfigRefusal::from(error).0))
            .inspect_err(|_| {
                self.keep_schema();
                // As it was: what could be changed can be changed back.
                let _ = self.set_file_modes(&self.earlier.config);
            })?;
        let (server, before, after) =
            (Arc::clone(self.server), Arc::clone(&self.earlier.config), Arc::clone(&self.config));
        // What takes the log away is recorded still, what brings it is not.
        let logged = server.access_logs.configuration_changed(&before, &after);
        self.publish();
        Ok(logged)
    }

    /// Other nodes of databases in shared engines get to know what a client changes before it is so here: what has been published stays, and
    /// this node follows it.
    #[cfg(feature = "kv")]
    fn publish_to_nodes(&self, maker: Maker) -> Result<(), LdapResult> {
        match maker {
            // The nodes that have been until now: a change may make others.
            Maker::Client => {
                let (earlier, next) = (&self.earlier.config, &self.config);
                let mut nodes =
                    earlier.databases.iter().filter_map(|own| self.earlier.databases.node_of(own));
                nodes.try_for_each(|node| node.publish_change(earlier, next))
            }
            Maker::Server => Ok(()),
        }
    }

    #[cfg(not(feature = "kv"))]
    fn publish_to_nodes(&self, _: Maker) -> Result<(), LdapResult> {
        Ok(())
    }

    fn staying_databases(&self) -> impl Iterator<Item = &Arc<Served<LmdbStore>>> {
        self.databases.staying().map(|(served, _)| served)
    }

    /// Whether no entry uses what leaves the schema. From here on no change brings it into one.
    fn free_schema(&self) -> Result<(), LdapResult> {
        let (earlier, next) = (&self.earlier.config.schema, &self.config.schema);
        if Arc::ptr_eq(earlier, next) {
            return Ok(());
        }
        let (attributes, classes) = next.broken_since(earlier);
        let retiring = Retiring { attributes, classes };
        if retiring.is_empty() {
            return Ok(());
        }
        for served in self.staying_databases() {
            served.retire_elements(retiring.clone());
            if let Some(found) = served.database().schema_use(&retiring).map_err(failed)? {
                let text = format!(
                    "\"{}\" is in use: the entry \"{}\" has it, and would not do without it or with what it becomes",
                    found.element, found.dn
                );
                return Err(refusal(ResultCode::UNWILLING_TO_PERFORM, text));
            }
        }
        Ok(())
    }

    /// Gives files of databases that stay open the mode that this one of the two configurations wants, where they differ.
    fn set_file_modes(&self, wanted: &Config) -> Result<(), LdapResult> {
        for served in self.staying_databases() {
            let store = served.database().store();
            let mode = |config: &Config| {
                let mut kinds = config.databases.iter().map(|database| &database.kind);
                kinds.find_map(|kind| {
                    kind.mdb().filter(|mdb| mdb.directory == store.path()).map(|mdb| mdb.mode)
                })
            };
            if mode(&self.earlier.config) != mode(&self.config) {
                let bits = mode(wanted).flatten().unwrap_or_else(|| LmdbOptions::default().file_mode);
                store.set_file_mode(bits).map_err(|error| failed(format_args!("olcDbMode: {error}")))?;
            }
        }
        Ok(())
    }

    fn keep_schema(&self) {
        self.staying_databases().for_each(|served| served.retire_elements(Retiring::default()));
    }

    fn forget_indexes(&self) -> Result<(), LdapResult> {
        for (served, next) in self.databases.staying() {
            served.forget_indexes(next.schema.clone(), next.settings.index.clone()).map_err(failed)?;
        }
        Ok(())
    }

    fn publish(self) {
        let Self { server, endpoints, earlier, config, databases, tls, log, http, admin, balancer } = self;
        let (databases, left) = databases.publish();
        let before = &earlier.config.global;
        server.publish(Generation { config: config.clone(), databases });
        if let Err(error) = server.follow_access_logs() {
            server.log.warning(format_args!("access log: no thread to be had, nothing is recorded: {error}"));
        }
        if let Err(error) = server.follow_overlays() {
            server.log.warning(format_args!("overlays: no thread to be had for one of them: {error}"));
        }
        server.traces.follow(config.global.trace_export.as_ref(), &server.log);
        server.admission.set_limits(config.global.client_limits.clone());
        if let Some(Loaded { state, notes }) = tls {
            server.tls.replace(state);
            notes.iter().for_each(|note| server.log.notice(format_args!("TLS: {note}")));
        }
        if let Some(log) = log {
            server.log.publish(log);
        }
        server.balancer.publish(balancer);
        if let Some(changes) = endpoints.listeners.http.get() {
            let gone = before.http_listeners.iter().filter(|a| !config.global.http_listeners.contains(a));
            let opened = http.into_iter().map(|(address, listener)| HttpChange::Open(address, listener));
            for change in opened.chain(gone.map(|address| HttpChange::Close(*address))) {
                // The loop that has them ends with the server.
                let _ = changes.send(change);
            }
        }
        if let Some(changes) = endpoints.listeners.admin.get() {
            let gone = before.admin_listeners.iter().filter(|a| !config.global.admin_listeners.contains(a));
            let opened = admin.into_iter().map(|(address, listener)| AdminChange::Open(address, listener));
            for change in opened.chain(gone.cloned().map(AdminChange::Close)) {
                // The thread that has them ends with the server.
                let _ = changes.send(change);
            }
        }
        for setting in at_next_start(&earlier.config, &config) {
            server.log.notice(format_args!("{setting} was changed: that takes effect at the next start"));
        }
        for note in config.notes.iter().filter(|note| !earlier.config.notes.iter().any(|n| n == *note)) {
            server.log.line(LogLevel::CONFIG, format_args!("{note}"));
        }
        replication::follow(server);
        endpoints.tools.follow(server, &server.generation_in_force());
        // Their searches end at the next slice; their changes that wait are carried out.
        left.iter().for_each(|served| served.retire());
    }
}

/// Settings that differ and are looked at only when the server starts.
fn at_next_start(before: &Config, after: &Config) -> Vec<String> {
    let (old, new) = (&before.global, &after.global);
    let global = [
        ("olcPidFile", old.pid_file != new.pid_file),
        ("olcArgsFile", old.args_file != new.args_file),
        ("olcLarixCoreDumps", old.core_dumps != new.core_dumps),
        ("olcTCPBuffer", old.tcp_buffers != new.tcp_buffers),
    ];
    let mut settings: Vec<String> =
        global.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.to_owned()).collect();
    for database in &after.databases {
        let Some(new) = database.kind.mdb() else { continue };
        let mut earlier = before.databases.iter().filter_map(|other| other.kind.mdb());
        let same = earlier.find(|old| old.directory == new.directory);
        if same.is_some_and(|old| old.env_flags != new.env_flags) {
            settings.push(format!("olcDbEnvFlags of {}", new.directory.display()));
        }
    }
    settings
}

/// Whether two configurations say the same of the log.
fn logs_alike(a: &Global, b: &Global) -> bool {
    a.log_level.0 == b.log_level.0
        && (a.log_rotation, a.log_format, a.log_prefix) == (b.log_rotation, b.log_format, b.log_prefix)
        && (&a.log_file, a.log_file_only) == (&b.log_file, b.log_file_only)
        && (a.log_journal, a.slow_operation) == (b.log_journal, b.slow_operation)
}
