//! Databases that follow a provider: a thread for each `syncrepl` line, with blocking I/O.
//!
//! What a session means is [`larix_replication::consumer`]'s to say; here is the connection, the clock and the database.

mod connect;
mod runner;
mod status;
mod terms;

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use larix_client::Stop;
use larix_engine::Served;
use larix_store::lmdb::LmdbStore;

pub use status::{ConsumerCounts, ConsumerPhase, ConsumerStatus};

use crate::config::values::{SyncReplication, TlsSettings};
use crate::config::{Config, Database, DatabaseKind};
use crate::server::{Generation, Server};
use status::Status;

/// How long the end of the server waits for a thread: one that asks for a name's address cannot be called off.
const PATIENCE: Duration = Duration::from_secs(5);

/// The consumers that run.
#[derive(Default)]
pub struct Consumers(Mutex<Vec<Running>>);

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.statuses()).finish()
    }
}

struct Running {
    task: Task,
    stop: Stop,
    status: Arc<Status>,
    thread: Option<JoinHandle<()>>,
    ended: Receiver<()>,
}

/// What one consumer does. One that changes is ended, and begun anew.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) line: SyncReplication,
    /// Of the database.
    pub(crate) suffix: String,
    directory: PathBuf,
    /// None: cn=config.
    pub(crate) served: Option<Arc<Served<LmdbStore>>>,
    /// Ours, where it is told to the provider.
    pub(crate) sid: Option<u16>,
    /// What the line does not say of TLS.
    pub(crate) tls: TlsSettings,
}

impl PartialEq for Task {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.served, &other.served) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same && (&self.line, &self.suffix, &self.directory) == (&other.line, &other.suffix, &other.directory)
            && (self.sid, &self.tls) == (other.sid, &other.tls)
    }
}

impl Consumers {
    /// Has those run that the configuration in force wants, and no others.
    pub(crate) fn follow(&self, server: &Arc<Server>) {
        let wanted = tasks(&server.generation_in_force());
        let mut running = self.lock();
        let (kept, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut *running).into_iter().partition(|running| wanted.contains(&running.task));
        *running = kept;
        let mut before = Vec::new();
        for mut gone in left {
            gone.stop.stop();
            before.extend(gone.thread.take());
        }
        // Whoever comes waits until those that go are gone: no two write at once what one provider sends.
        let before = Arc::new(Mutex::new(before));
        for task in wanted {
            if running.iter().any(|running| running.task == task) {
                continue;
            }
            let rid = task.line.rid;
            match start(server, task, Arc::clone(&before)) {
                Ok(started) => running.push(started),
                Err(error) => {
                    server.log.warning(format_args!("syncrepl rid={rid:03}: no thread to be had: {error}"));
                }
            }
        }
    }

    /// Ends them all.
    pub(crate) fn finish(&self) {
        let mut running = std::mem::take(&mut *self.lock());
        running.iter().for_each(|running| running.stop.stop());
        for running in &mut running {
            let ended = running.ended.recv_timeout(PATIENCE);
            if let (Err(RecvTimeoutError::Disconnected) | Ok(()), Some(thread)) =
                (ended, running.thread.take())
            {
                // A panic was reported by the thread itself.
                let _ = thread.join();
            }
        }
    }

    /// How each stands, in the order of the configuration as far as it has not changed.
    pub fn statuses(&self) -> Vec<ConsumerStatus> {
        self.lock().iter().map(|running| running.status.get()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Running>> {
        // Every change of it is whole: nothing is left half done by who panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a configuration wants to run.
fn tasks(generation: &Generation) -> Vec<Task> {
    let config = &generation.config;
    let mut tasks = Vec::new();
    for database in config.databases.iter().filter(|database| !database.disabled) {
        let (served, directory) = match database.kind.directory() {
            Some(directory) => match generation.databases.served_in(directory) {
                Some(served) => (Some(Arc::clone(served)), directory.to_owned()),
                None => continue,
            },
            None if matches!(database.kind, DatabaseKind::Config) => (None, PathBuf::new()),
            None => continue,
        };
        let suffix = match &served {
            Some(_) => database.suffixes.first().map(|suffix| suffix.text.clone()).unwrap_or_default(),
            None => "cn=config".to_owned(),
        };
        for line in database.sync_replication.iter().filter(|line| !config.names_itself(line)) {
            tasks.push(Task {
                line: line.clone(),
                suffix: suffix.clone(),
                directory: directory.clone(),
                served: served.clone(),
                sid: sent_id(config, database),
                tls: config.global.tls.clone(),
            });
        }
    }
    tasks
}

/// Where several servers take changes the provider is told who asks, so that it does not send what came from here.
fn sent_id(config: &Config, database: &Database) -> Option<u16> {
    (database.multi_provider || database.subordinate.is_some()).then(|| config.server_id())
}

fn start(
    server: &Arc<Server>,
    task: Task,
    before: Arc<Mutex<Vec<JoinHandle<()>>>>,
) -> std::io::Result<Running> {
    let (stop, status) = (Stop::default(), Arc::new(Status::new(&task)));
    let (ending, ended): (Sender<()>, _) = channel();
    let runner = runner::Runner::new(server, task.clone(), stop.clone(), Arc::clone(&status));
    let name = format!("syncrepl {:03}", task.line.rid);
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let gone = std::mem::take(&mut *before.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in gone {
            let _ = thread.join();
        }
        runner.run();
        drop(ending);
    })?;
    Ok(Running { task, stop, status, thread: Some(thread), ended })
}
