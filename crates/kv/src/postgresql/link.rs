//! Connections to PostgreSQL, in a pool.

use std::future::{Future, poll_fn};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Client};

use super::address::Address;
use super::statements::Statements;
use crate::engine::Limits;
use crate::error::Fault;
use crate::runtime::{AbortOnDrop, GRACE, Runtime, call};

/// A connection with its prepared statements.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) statements: Statements,
    connection: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Without this a connection to an engine that hangs would stay.
        self.connection.abort();
    }
}

#[derive(Debug)]
pub(crate) struct Pool {
    runtime: Runtime,
    address: Address,
    schema: String,
    limits: Limits,
    state: Mutex<State>,
    given_back: Condvar,
    trips: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Arc<Link>>,
    taken: usize,
}

impl Pool {
    pub(crate) fn new(address: Address, schema: &str, limits: Limits) -> io::Result<Self> {
        Ok(Self {
            runtime: Runtime::start()?,
            address,
            schema: schema.to_owned(),
            limits,
            state: Mutex::default(),
            given_back: Condvar::new(),
            trips: Arc::default(),
        })
    }

    /// Round trips so far that somebody has waited for, without those of connecting.
    pub(crate) fn trips(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }

    /// The schema of the engine's database that holds the store.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connecting may try several hosts, each with a time of its own.
    fn connect_deadline(&self) -> Duration {
        let hosts = self.address.config.get_hosts().len().max(self.address.config.get_hostaddrs().len());
        self.limits.deadline * u32::try_from(hosts.max(1)).unwrap_or(u32::MAX)
    }

    /// A connection that stays as long as it is held. Waits up to the deadline for one.
    pub(crate) fn lease(&self) -> Result<Lease<'_>, Fault> {
        let mut state = self.lock();
        if state.taken >= self.limits.connections {
            let full = |state: &mut State| state.taken >= self.limits.connections;
            let (waited, late) = self
                .given_back
                .wait_timeout_while(state, self.limits.deadline, full)
                .unwrap_or_else(PoisonError::into_inner);
            if late.timed_out() {
                return Err(Fault::Busy {
                    connections: self.limits.connections,
                    waited: self.limits.deadline,
                });
            }
            state = waited;
        }
        state.taken += 1;
        let idle = std::iter::from_fn(|| state.idle.pop()).find(|link| !link.client.is_closed());
        drop(state);
        let mut lease = Lease { pool: self, link: idle, transaction: false };
        if lease.link.is_none() {
            lease.link = Some(self.connect()?);
        }
        Ok(lease)
    }

    fn connect(&self) -> Result<Arc<Link>, Fault> {
        let (address, schema, deadline) = (self.address.clone(), self.schema.clone(), self.limits.deadline);
        let (client, connection) = self.runtime.call(self.connect_deadline(), async move {
            let (client, connection) = address.connect().await?;
            let connection = tokio::spawn(async move {
                // The next request sees its end.
                let _end = connection.await;
            });
            Ok((client, connection.abort_handle()))
        })?;
        let abort = AbortOnDrop(Some(connection));
        self.runtime.call(deadline, async move {
            let mut abort = abort;
            let statements = Statements::prepare(&client, &schema, deadline).await?;
            let connection = abort.0.take().ok_or(Fault::Ended)?;
            Ok(Arc::new(Link { client, statements, connection }))
        })
    }

    /// A connection without prepared statements: to make what they speak of.
    pub(crate) fn bare<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Client) -> F + Send + 'static,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let address = self.address.clone();
        self.runtime.call(self.connect_deadline(), async move {
            let (client, connection) = address.connect().await?;
            let connection = tokio::spawn(connection);
            let _abort = AbortOnDrop(Some(connection.abort_handle()));
            work(client).await
        })
    }
}

/// A connection of its own that hears notifications.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) client: Arc<Client>,
    heard: Arc<Notify>,
    _connection: AbortOnDrop,
    handle: Handle,
    deadline: Duration,
    trips: Arc<AtomicU64>,
    /// What it began with.
    listen: String,
}

impl Listener {
    /// As if a notification had come.
    pub(crate) fn wake(&self) {
        self.heard.notify_one();
    }

    /// Waits for a notification, up to `time`; whether there was one.
    pub(crate) fn hear(&self, time: Duration) -> Result<bool, Fault> {
        let heard = Arc::clone(&self.heard);
        call(&self.handle, time + GRACE, async move {
            Ok(tokio::time::timeout(time, heard.notified()).await.is_ok())
        })
    }

    /// Whether the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.client.is_closed()
    }

    /// Looks whether the engine still answers on it. No answer to a client waits for that, so it is no round trip that counts.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let (client, listen) = (Arc::clone(&self.client), self.listen.clone());
        call(&self.handle, self.deadline, async move { Ok(client.batch_execute(&listen).await?) })
    }

    /// A question on this connection.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        self.trips.fetch_add(1, Ordering::Relaxed);
        call(&self.handle, self.deadline, work)
    }
}

impl Pool {
    /// What a connection beside the pool is made with, and what it runs on.
    pub(crate) fn beside(&self) -> (Address, Handle, Duration) {
        (self.address.clone(), self.runtime.handle.clone(), self.connect_deadline())
    }

    /// Hears the notifications of a channel from now on.
    pub(crate) fn listen(&self, channel: &str) -> Result<Listener, Fault> {
        let (address, text) = (self.address.clone(), format!("LISTEN {channel}"));
        let (handle, deadline, trips) =
            (self.runtime.handle.clone(), self.limits.deadline, Arc::clone(&self.trips));
        self.runtime.call(self.connect_deadline(), async move {
            let (client, mut connection) = address.connect().await?;
            let heard = Arc::new(Notify::new());
            let told = Arc::clone(&heard);
            let task = tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    if let AsyncMessage::Notification(_) = message {
                        told.notify_one();
                    }
                }
                // Whoever is told sees the connection's end.
                drop(connection);
                told.notify_one();
            });
            let connection = AbortOnDrop(Some(task.abort_handle()));
            client.batch_execute(&text).await?;
            let client = Arc::new(client);
            Ok(Listener { client, heard, _connection: connection, handle, deadline, trips, listen: text })
        })
    }
}

/// A connection out of the pool, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease<'p> {
    pool: &'p Pool,
    /// None once it is of no use.
    link: Option<Arc<Link>>,
    /// Whether a transaction may be open on it.
    transaction: bool,
}

impl Lease<'_> {
    /// One round trip, or several that are sent together.
    pub(crate) fn call<T: Send + 'static, F>(&mut self, work: impl FnOnce(Arc<Link>) -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        self.call_within(self.pool.limits.deadline, work)
    }

    /// The same with a deadline of its own.
    pub(crate) fn call_within<T: Send + 'static, F>(
        &mut self,
        deadline: Duration,
        work: impl FnOnce(Arc<Link>) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let link = self.link.clone().ok_or(Fault::Ended)?;
        self.pool.trips.fetch_add(1, Ordering::Relaxed);
        let result = self.pool.runtime.call(deadline, work(link));
        if let Err(fault) = &result
            && fault.ends_connection()
        {
            self.link = None;
        }
        result
    }

    /// What is done next is in a transaction until it is given back.
    pub(crate) fn in_transaction(&mut self) {
        self.transaction = true;
    }

    /// The transaction has ended.
    pub(crate) fn transaction_ended(&mut self) {
        self.transaction = false;
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take().filter(|link| !link.client.is_closed()) {
            if self.transaction {
                // Sent before whatever is sent next on it. Nobody waits for the answer; a connection that ends instead is
                // found closed.
                let ended = Arc::clone(&link);
                self.pool.runtime.handle.spawn(async move {
                    let _answer = ended.client.batch_execute("ROLLBACK").await;
                });
            }
            let mut state = self.pool.lock();
            state.idle.push(link);
            state.taken -= 1;
        } else {
            self.pool.lock().taken -= 1;
        }
        self.pool.given_back.notify_one();
    }
}
