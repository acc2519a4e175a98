//! The way to the one thread that changes the configuration: requests wait here for their turn.

use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use larix_configuration::Present;
#[cfg(feature = "kv")]
use larix_configuration::SharedLines;
use larix_engine::replica::{ReplicatedBatch, ReplicatedOutcome};
use larix_engine::time::Monotonic;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{LdapResult, ResultCode};

/// Changes that wait for their turn; more are answered busy.
pub(crate) const QUEUE_LIMIT: usize = 1_024;

/// The way to the thread that changes the configuration.
#[derive(Default)]
pub(crate) struct ConfigurationQueue {
    queue: OnceLock<SyncSender<ConfigurationRequest>>,
}

impl fmt::Debug for ConfigurationQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigurationQueue").finish_non_exhaustive()
    }
}

/// Work for the thread that changes the configuration.
pub(crate) enum ConfigurationRequest {
    /// Changes that are made together: one, or those of a transaction.
    Change(Vec<WriteRequest>, Completion),
    /// What a provider of cn=config has done. With the entries that it has, the others are deleted here.
    Replicate(Box<ReplicatedBatch>, Option<Present>, ConfigReplicated),
    /// Takes the databases in these directories out of service, closes their files, and puts all others back into service.
    OutOfService(Vec<PathBuf>, SyncSender<Result<Monotonic, String>>),
    /// Another node of a database in a shared engine has published what all have in common.
    #[cfg(feature = "kv")]
    Follow(FollowedConfiguration),
    /// Files of certificates have changed that the balancer may have.
    RenewBalancer,
    /// No more changes are made.
    End,
}

/// What all nodes of a database in a shared engine are to have in common.
#[cfg(feature = "kv")]
pub(crate) struct FollowedConfiguration {
    /// The first suffix of the database, in its normal form.
    pub(crate) suffix: String,
    /// Reads it when its turn has come: a change of this node's own, which waited before it, may have been published since. None: it
    /// cannot be read, and is asked for again.
    pub(crate) newest: Box<dyn FnOnce() -> Option<NewestConfiguration> + Send>,
}

/// What has been published last.
#[cfg(feature = "kv")]
pub(crate) struct NewestConfiguration {
    pub(crate) lines: SharedLines,
    /// Called with the difference as text for the log, `None` if there was none, or with the reason of a failure.
    pub(crate) done: Box<dyn FnOnce(Result<Option<String>, String>) + Send>,
}

/// Called once with what became of the changes, and how many entries went because they are absent there.
pub(crate) type ConfigReplicated = Box<dyn FnOnce(ReplicatedOutcome, u64) + Send>;

impl ConfigurationQueue {
    /// Submits the changes that a provider of cn=config has sent. `done` is called once, here or on the configuration's thread.
    pub(crate) fn replicate(&self, batch: ReplicatedBatch, present: Option<Present>, done: ConfigReplicated) {
        let refused = |done: ConfigReplicated| {
            let result = LdapResult::with(ResultCode::UNAVAILABLE, "the configuration cannot be changed now");
            done(ReplicatedOutcome { changes: Vec::new(), result }, 0);
        };
        let Some(queue) = self.queue.get() else { return refused(done) };
        let sent = queue.try_send(ConfigurationRequest::Replicate(Box::new(batch), present, done));
        if let Err(
            TrySendError::Full(ConfigurationRequest::Replicate(_, _, done))
            | TrySendError::Disconnected(ConfigurationRequest::Replicate(_, _, done)),
        ) = sent
        {
            refused(done);
        }
    }

    /// Submits changes that are made together or not at all. `done` is called once, here or on the configuration's thread.
    pub(crate) fn submit(&self, requests: Vec<WriteRequest>, done: Completion) {
        let Some(queue) = self.queue.get() else {
            return done(
                LdapResult::with(ResultCode::UNAVAILABLE, "the configuration cannot be changed now").into(),
            );
        };
        match queue.try_send(ConfigurationRequest::Change(requests, done)) {
            Err(TrySendError::Full(ConfigurationRequest::Change(_, done))) => {
                done(
                    LdapResult::with(ResultCode::BUSY, "too many changes of the configuration are waiting")
                        .into(),
                );
            }
            Err(TrySendError::Disconnected(ConfigurationRequest::Change(_, done))) => {
                done(LdapResult::with(ResultCode::UNAVAILABLE, "the server is shutting down").into());
            }
            _ => {}
        }
    }

    /// Takes the databases in these directories out of service, and no others. Returns when their files are closed: the moment from which
    /// on requests found it so.
    ///
    /// # Errors
    /// Why it cannot be done. What was in service before is so still, or comes back with the next call.
    pub(crate) fn take_out_of_service(&self, directories: Vec<PathBuf>) -> Result<Monotonic, String> {
        let ends = || "the server is shutting down".to_owned();
        let (answer, answered) = sync_channel(1);
        let queue = self.queue.get().ok_or_else(ends)?;
        queue.send(ConfigurationRequest::OutOfService(directories, answer)).map_err(|_| ends())?;
        answered.recv().map_err(|_| ends())?
    }

    /// Asks the thread to take over what other nodes have. False: the queue is full or ended, and the caller asks again later.
    #[cfg(feature = "kv")]
    pub(crate) fn follow(&self, request: FollowedConfiguration) -> bool {
        self.queue.get().is_some_and(|queue| queue.try_send(ConfigurationRequest::Follow(request)).is_ok())
    }

    /// Has the balancer read its certificates anew.
    pub(crate) fn renew_balancer(&self) {
        if let Some(queue) = self.queue.get() {
            // If the queue is full, the next change of the files asks again.
            let _ = queue.try_send(ConfigurationRequest::RenewBalancer);
        }
    }

    /// Gives the sender of the thread that makes the changes. Only the first call counts.
    pub(crate) fn set(&self, queue: SyncSender<ConfigurationRequest>) {
        let _ = self.queue.set(queue);
    }
}
