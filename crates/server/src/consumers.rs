//! The consumers of this server: what each follows, and how it stands. Their threads are [`replication`](crate::replication)'s.

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use larix_client::Stop;
use larix_configuration::values::{SyncReplication, TlsSettings};
use larix_proxy::Proxy;
use larix_replication::consumer::{ConsumerStatus, Status};

use crate::consumer_database::ConsumerDatabase;

/// How long the end of the server waits for a thread: one that asks for a name's address cannot be called off.
const PATIENCE: Duration = Duration::from_secs(5);

/// The consumers that run.
#[derive(Default)]
pub(crate) struct Consumers(Mutex<Vec<RunningConsumer>>);

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.statuses()).finish()
    }
}

/// A consumer that runs.
pub(crate) struct RunningConsumer {
    pub(crate) task: Task,
    pub(crate) stop: Stop,
    pub(crate) status: Arc<Status>,
    pub(crate) thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread has ended.
    pub(crate) ended: Receiver<()>,
}

/// What one consumer does. One that changes is ended, and begun anew.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) line: SyncReplication,
    /// Of the database.
    pub(crate) suffix: String,
    pub(crate) directory: PathBuf,
    /// None: another server's, or cn=config.
    pub(crate) database: Option<ConsumerDatabase>,
    /// The connections to the server that what comes is written to (`database ldap`).
    pub(crate) target: Option<Arc<Proxy>>,
    /// Under which our own changes of the database are numbered.
    pub(crate) server_id: u16,
    /// The same, where the provider receives it.
    pub(crate) sid: Option<u16>,
    /// Other lines of the database bring other parts of it.
    pub(crate) is_part: bool,
    /// What the line does not say of TLS.
    pub(crate) tls: TlsSettings,
}

impl PartialEq for Task {
    fn eq(&self, other: &Self) -> bool {
        let same = self.database == other.database;
        let same_target = match (&self.target, &other.target) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same && same_target
            && (&self.line, &self.suffix, &self.directory) == (&other.line, &other.suffix, &other.directory)
            && (self.server_id, self.sid, self.is_part) == (other.server_id, other.sid, other.is_part)
            && self.tls == other.tls
    }
}

impl Consumers {
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
    pub(crate) fn statuses(&self) -> Vec<ConsumerStatus> {
        self.lock().iter().map(|running| running.status.get()).collect()
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, Vec<RunningConsumer>> {
        // Every change of it is whole: nothing is left half done by who panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
