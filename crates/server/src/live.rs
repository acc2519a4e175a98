//! Changes of cn=config while the server serves: one thread makes them, one after another.
//!
//! A change is judged ([`Config::changed`](larix_configuration::Config::changed)), everything it needs is made ready beside what
//! is in force, it becomes durable, and then it is published, which cannot fail. Whatever fails before leaves everything
//! as it was. A change is answered when it is in force: a client that has the answer sees the change.

#[cfg(test)]
mod tests;
mod transition;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use larix_configuration::slapd_d::{Keeper, Stamp};
use larix_configuration::values::BackupSchedule;
use larix_configuration::{ChangedConfig, ConfigChange, ConfigRefusal, Present, ReplicatedConfig, Requester};
#[cfg(feature = "kv")]
use larix_configuration::{FollowedConfig, SharedLines};
use larix_engine::injected;
use larix_engine::replica::{ApplyOutcome, ReplicatedBatch, ReplicatedOutcome};
use larix_engine::time::{Clock, Monotonic};
use larix_engine::write::{WriteOutcome, WriteRequest};
use larix_proto::{LdapResult, ResultCode};
use tokio::sync::mpsc::UnboundedSender;

use crate::admin::AdminChange;
use crate::balancer::ServerTls;
use crate::clock::SystemRandom;
use crate::configuration_queue::{ConfigurationRequest, QUEUE_LIMIT};
#[cfg(feature = "kv")]
use crate::configuration_queue::{FollowedConfiguration, NewestConfiguration};
use crate::databases::OpenError;
use crate::generation::Generation;
use crate::http::HttpChange;
use crate::low_priority::LowPriority;
use crate::panics;
use crate::processor_time::take_long_slices;
use crate::server::Server;
use crate::tool_socket::ToolSockets;
use transition::Transition;

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
                // The caller waits for the answer.
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

/// The state of the thread that changes the configuration.
struct Configurator<'s> {
    server: &'s Arc<Server>,
    endpoints: &'s Endpoints,
    /// The thread of low priority that judges changes: that takes milliseconds, which answers to clients come before.
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
    /// Waits for the next request. `None`: no more will come.
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

    /// The answer after a panic. The journal is read again from the disk, for nobody knows how far it was written.
    fn internal_error(&mut self) -> LdapResult {
        self.keeper = Keeper::default();
        LdapResult::internal_error()
    }

    /// Brings the files of slapd.d up to the journal, which is then empty.
    fn settle(&mut self) {
        self.settle = false;
        injected::panic_at("settle");
        self.judge.free(std::mem::take(&mut self.earlier));
        if let Err(error) = self.keeper.settle() {
            // The journal still has it; the next change tries again.
            self.server.log.warning(format_args!("slapd.d: {}", ConfigRefusal::from(error)));
        }
    }

    /// Keeps an earlier generation until nobody uses it, so that this thread frees it and no request does.
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
            return LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "there is no database config").into();
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
            return LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, why).into();
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
    ) -> Result<(Vec<ApplyOutcome>, u64), LdapResult> {
        self.free_unused();
        let earlier = self.server.generation_in_force();
        let (clock, config) = (Arc::clone(&self.server.clock), Arc::clone(&earlier.config));
        let judged = self.judge.run(move || {
            let stamp = Stamp { clock: &*clock, random: &SystemRandom };
            config.replicated(&batch.changes, present.as_ref(), &batch.context_csns, &stamp)
        });
        let ReplicatedConfig { changed, applied, absent } = judged.map_err(|refused| refused.0)?;
        if let Some(changed) = changed {
            self.carry_out(&earlier, &changed, Maker::Server)?;
            self.let_go(earlier);
        }
        Ok((applied, absent))
    }

    /// Takes over the configuration that the nodes of a database in a shared engine have in common. Answers the difference as text for the
    /// log; `None` if there was none.
    ///
    /// # Errors
    /// Why the configuration cannot be taken over. It is as it was then.
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
        let Some(FollowedConfig { changed, difference }) = judged.map_err(|refused| refused.0.diagnostic)?
        else {
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
        changed: &ChangedConfig,
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

fn failed(error: impl fmt::Display) -> LdapResult {
    LdapResult::with(ResultCode::OTHER, error.to_string())
}

/// A fault of the configuration becomes the one-line text that a refused change has.
fn not_opened(error: OpenError) -> LdapResult {
    match error {
        OpenError::Config(error) => ConfigRefusal::from(error).0,
        error => failed(error),
    }
}

/// Who made a change.
#[derive(Copy, Clone, Debug)]
enum Maker {
    Client,
    /// It was made elsewhere.
    Server,
}
