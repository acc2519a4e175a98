//! Databases that follow a provider: a thread for each `syncrepl` line, with blocking I/O, and whether they are ready for clients.
//!
//! What a session means is [`larix_replication::consumer`]'s to say; here is the connection, the clock and the database.

mod connect;
pub(crate) mod health;
mod pushed;
mod runner;
mod terms;

use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use larix_client::Stop;
use larix_configuration::values::SyncReplication;
use larix_configuration::{Config, Database};
use larix_replication::consumer::Status;

use crate::backends::connections;
use crate::consumer_database::ConsumerDatabase;
use crate::consumers::{RunningConsumer, Task};
use crate::generation::Generation;
use crate::server::Server;

pub(crate) use connect::tls_options;

/// Starts the consumers that the configuration in force wants, and ends the others.
pub(crate) fn follow(server: &Arc<Server>) {
    let wanted = tasks(server, &server.generation_in_force());
    let mut running = server.consumers.lock();
    let (kept, left): (Vec<_>, Vec<_>) =
        std::mem::take(&mut *running).into_iter().partition(|running| wanted.contains(&running.task));
    *running = kept;
    let mut before = Vec::new();
    for mut gone in left {
        gone.stop.stop();
        before.extend(gone.thread.take());
    }
    // New consumers wait until the old ones have ended: no two write at once what one provider sends.
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

/// What a configuration wants to run.
fn tasks(server: &Server, generation: &Generation) -> Vec<Task> {
    let config = &generation.config;
    let mut tasks = Vec::new();
    for database in config.databases.iter().filter(|database| !database.disabled) {
        if database.sync_replication.is_empty() {
            continue;
        }
        let mut target = None;
        let (own, directory) = match database.kind.directory() {
            Some(directory) => match generation.databases.served_in(directory) {
                Some(served) => (Some(ConsumerDatabase::Stored(Arc::clone(served))), directory.to_owned()),
                None => continue,
            },
            None if database.kind.is_config() => (None, PathBuf::new()),
            None if shared(generation, database).is_some() => (shared(generation, database), PathBuf::new()),
            None => match connections(server.services(), database) {
                Ok(Some(proxy)) => {
                    target = Some(proxy);
                    (None, PathBuf::new())
                }
                // Without them the generation was not made.
                Ok(None) | Err(_) => continue,
            },
        };
        let suffix = match database.kind.is_config() {
            true => "cn=config".to_owned(),
            false => database.suffixes.first().map(|suffix| suffix.text.clone()).unwrap_or_default(),
        };
        // What is pushed to another server may be this server's own.
        let follows = |line: &&SyncReplication| target.is_some() || !config.names_itself(line);
        let lines: Vec<&SyncReplication> = database.sync_replication.iter().filter(follows).collect();
        let is_part = are_parts(&lines);
        for line in lines {
            tasks.push(Task {
                line: line.clone(),
                suffix: suffix.clone(),
                directory: directory.clone(),
                database: own.clone(),
                target: target.clone(),
                server_id: config.server_id_of(database),
                sid: sent_id(config, database),
                is_part,
                tls: config.global.tls.clone(),
            });
        }
    }
    tasks
}

/// Whether lines bring different parts of a database.
fn are_parts(lines: &[&SyncReplication]) -> bool {
    let differ = |pair: &[&SyncReplication]| {
        let [one, other] = pair else { return false };
        let same_base = one.local_base().normal == other.local_base().normal;
        !same_base || one.scope != other.scope || one.filter != other.filter
    };
    lines.windows(2).any(differ)
}

/// A database in a shared engine.
#[cfg(feature = "kv")]
fn shared(generation: &Generation, database: &Database) -> Option<ConsumerDatabase> {
    generation.databases.node_of(database).map(ConsumerDatabase::Shared)
}

#[cfg(not(feature = "kv"))]
fn shared(_: &Generation, _: &Database) -> Option<ConsumerDatabase> {
    None
}

/// Where several servers take changes the consumer sends its server id, so that the provider does not send what came from here.
fn sent_id(config: &Config, database: &Database) -> Option<u16> {
    (database.multi_provider || database.subordinate.is_some()).then(|| config.server_id_of(database))
}

fn start(
    server: &Arc<Server>,
    task: Task,
    before: Arc<Mutex<Vec<JoinHandle<()>>>>,
) -> std::io::Result<RunningConsumer> {
    let providers = task.line.providers.iter().map(ToString::to_string).collect();
    let status = Arc::new(Status::new(task.line.rid, task.suffix.clone(), providers));
    let stop = Stop::default();
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
    Ok(RunningConsumer { task, stop, status, thread: Some(thread), ended })
}
