//! Connections to PostgreSQL, in a pool. Each has an event loop of its own, which the thread runs that has asked something over it.

use std::future::{Future, poll_fn};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client};

use super::address::{Address, NewConnection, OWN_PATH};
use super::statements::Statements;
use crate::engine::Limits;
use crate::error::Fault;
use crate::runtime::{AbortOnDrop, GRACE, OwnLoop, Runtime, call};

/// The function of PostgreSQL that warns where it no longer waits for the standby. [`Statements::prepare`] has warnings sent.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";

/// An engine that has refused a connection is not asked for another one so soon, while others are to come back: each attempt takes it more than
/// most questions do, and a line of its log.
const FULL: Duration = Duration::from_secs(1);

/// A connection with its prepared statements.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) statements: Statements,
    /// Whether a commit did not wait for the standby.
    cut_short: Arc<AtomicBool>,
    /// It has other settings than it began with, and is not used again.
    is_spent: AtomicBool,
}

impl Link {
    /// Nobody uses the connection behind the one that has it now.
    pub(crate) fn spend(&self) {
        self.is_spent.store(true, Ordering::Release);
    }

    fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.is_spent.load(Ordering::Acquire)
    }
}

/// A connection, and the loop that moves its bytes.
#[derive(Debug)]
struct Wire {
    link: Arc<Link>,
    own_loop: OwnLoop,
    /// The place of its server in the address.
    server: usize,
}

impl Wire {
    /// Whether the other side has not ended it, as far as has come here.
    fn is_open(&self) -> bool {
        self.own_loop.look().is_ok() && !self.link.client.is_closed()
    }
}

#[expect(clippy::disallowed_methods, reason = "how long this process waits is its own affair")]
fn now() -> Instant {
    Instant::now()
}

#[derive(Debug)]
pub(crate) struct Pool {
    runtime: Runtime,
    address: Address,
    schema: String,
    /// Stands in its own notifications of commits, which its own listeners pass over.
    sign: String,
    limits: Limits,
    state: Mutex<State>,
    given_back: Condvar,
    trips: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Wire>,
    leased: usize,
    /// Leases without a connection that wait for one to be given back.
    lacking: usize,
    /// The engine has refused one more connection, and is not asked for one before.
    full_until: Option<Instant>,
    /// Threads that wait for a connection: only these are woken, which is a system call.
    waiting: usize,
    /// The one for the lease, and whether somebody has it.
    reserved: Option<Wire>,
    is_reserved_leased: bool,
}

impl State {
    fn is_full(&self) -> bool {
        self.full_until.is_some_and(|until| now() < until)
    }
}

impl Pool {
    pub(crate) fn new(address: Address, schema: &str, limits: Limits) -> io::Result<Self> {
        let mut sign = [0; 8];
        #[expect(clippy::disallowed_methods, reason = "it only has to differ from that of every other node")]
        getrandom::fill(&mut sign).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self {
            runtime: Runtime::start()?,
            address: address.within(limits.deadline),
            schema: schema.to_owned(),
            sign: format!("{:016x}", u64::from_be_bytes(sign)),
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

    /// What its notifications of commits carry.
    pub(crate) fn sign(&self) -> &str {
        &self.sign
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connecting may try several servers, each with a time of its own. It is those that are to end first: then it is known that
    /// nothing was sent.
    fn connect_deadline(&self) -> Duration {
        self.limits.deadline * u32::try_from(self.address.servers()).unwrap_or(u32::MAX) + GRACE
    }

    /// A server does not answer, or lacks what was acknowledged: the idle connections lead there, too. The next one begins with
    /// another server.
    fn leave(&self, server: usize) {
        self.address.doubt(server);
        let mut state = self.lock();
        let idle = std::mem::take(&mut state.idle);
        let reserved = state.reserved.take();
        drop(state);
        // Closed behind the lock.
        drop((idle, reserved));
    }

    /// How long one answer may take.
    pub(crate) fn deadline(&self) -> Duration {
        self.limits.deadline
    }

    /// A connection that stays as long as it is held. Waits up to the deadline for one.
    pub(crate) fn lease(&self) -> Result<Lease<'_>, Fault> {
        let mut state = self.lock();
        if state.leased >= self.limits.connections {
            let full = |state: &mut State| state.leased >= self.limits.connections;
            state.waiting += 1;
            let (mut waited, late) = self
                .given_back
                .wait_timeout_while(state, self.limits.deadline, full)
                .unwrap_or_else(PoisonError::into_inner);
            waited.waiting -= 1;
            if late.timed_out() {
                return Err(Fault::Busy {
                    connections: self.limits.connections,
                    waited: self.limits.deadline,
                });
            }
            state = waited;
        }
        state.leased += 1;
        drop(state);
        self.wired(Lease::of(self, false))
    }

    /// The lease with a connection: one that is open and idle, or a new one. Where the engine lets nobody else in, one that is given back.
    fn wired<'p>(&'p self, mut lease: Lease<'p>) -> Result<Lease<'p>, Fault> {
        let mut until = None;
        loop {
            let wire = match self.idle(&lease, &mut until) {
                // One that has ended meanwhile is of no use.
                Some(wire) if !wire.is_open() => continue,
                Some(wire) => wire,
                None => match self.connect() {
                    Err(fault) if fault.is_of_too_many() && until.is_none() => {
                        self.lock().full_until = Some(now() + FULL);
                        continue;
                    }
                    wire => wire?,
                },
            };
            lease.wire = Some(wire);
            return Ok(lease);
        }
    }

    /// An idle connection. While the engine lets nobody else in, one that somebody gives back, up to the deadline, which begins with the first
    /// wait; none where nobody has one.
    fn idle(&self, lease: &Lease<'_>, until: &mut Option<Instant>) -> Option<Wire> {
        let mut state = self.lock();
        let own = if lease.is_reserved { state.reserved.take() } else { None };
        // To connect takes long: a node that has just begun has an idle one, and is to know soon who writes.
        let idle = own.or_else(|| state.idle.pop());
        if idle.is_some() || until.is_none() && !state.is_full() {
            return idle;
        }
        let until = *until.get_or_insert_with(|| now() + self.limits.deadline);
        let is_leased = usize::from(!lease.is_reserved);
        state.lacking += is_leased;
        if state.leased <= state.lacking {
            // Nobody has one, and the others that wait are to know.
            self.given_back.notify_all();
        }
        state.waiting += 1;
        let none = |state: &mut State| state.idle.is_empty() && state.leased > state.lacking;
        let time = until.saturating_duration_since(now());
        let (mut state, _) =
            self.given_back.wait_timeout_while(state, time, none).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state.lacking -= is_leased;
        // Taken before anybody else that was woken looks.
        state.idle.pop()
    }

    /// The connection for who must not wait until others give one back: who holds the right to write loses it otherwise. One beyond the most
    /// that there may be; if it is in use, one like all others.
    pub(crate) fn lease_reserved(&self) -> Result<Lease<'_>, Fault> {
        if std::mem::replace(&mut self.lock().is_reserved_leased, true) {
            return self.lease();
        }
        self.wired(Lease::of(self, true))
    }

    fn connect(&self) -> Result<Wire, Fault> {
        let deadline = self.limits.deadline;
        let own_loop = OwnLoop::new().map_err(Fault::NoLoop)?;
        let cut_short = Arc::<AtomicBool>::default();
        let flag = Arc::clone(&cut_short);
        let (client, server) = own_loop.call(self.connect_deadline(), async {
            let NewConnection { client, mut connection, server } = self.address.connect().await?;
            tokio::spawn(async move {
                // The next request sees its end.
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    if let AsyncMessage::Notice(notice) = message
                        && notice.routine() == Some(WAIT_FOR_STANDBY)
                    {
                        flag.store(true, Ordering::Release);
                    }
                }
            });
            Ok((client, server))
        })?;
        let statements = own_loop.call(deadline, Statements::prepare(&client, &self.schema, deadline))?;
        Ok(Wire {
            link: Arc::new(Link { client, statements, cut_short, is_spent: AtomicBool::new(false) }),
            own_loop,
            server,
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
        let (address, deadline) = (self.address.clone(), self.connect_deadline());
        self.runtime.call(deadline, async move {
            let NewConnection { client, connection, .. } = address.connect().await?;
            let connection = tokio::spawn(connection);
            let _abort = AbortOnDrop(Some(connection.abort_handle()));
            // A time of the role may be too short to make tables in. Without any, the engine would wait on for a lock that nobody here
            // waits for any more, and for another one with each try.
            let time = deadline.as_millis();
            let settings = format!("{OWN_PATH}; SET statement_timeout = {time}; SET lock_timeout = {time}");
            client.batch_execute(&settings).await?;
            work(client).await
        })
    }
}

/// A connection of its own that hears notifications.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) client: Arc<Client>,
    notify: Arc<Notify>,
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
        self.notify.notify_one();
    }

    /// Waits for a notification, up to `time`; whether there was one.
    pub(crate) fn hear(&self, time: Duration) -> Result<bool, Fault> {
        let notify = Arc::clone(&self.notify);
        call(&self.handle, time + GRACE, async move {
            Ok(tokio::time::timeout(time, notify.notified()).await.is_ok())
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

    /// Hears the notifications of a channel from now on, without those that carry the own [sign](Self::sign).
    pub(crate) fn listen(&self, channel: &str) -> Result<Listener, Fault> {
        let (address, text, sign) = (self.address.clone(), format!("LISTEN {channel}"), self.sign.clone());
        let (handle, deadline, trips) =
            (self.runtime.handle.clone(), self.limits.deadline, Arc::clone(&self.trips));
        self.runtime.call(self.connect_deadline(), async move {
            let NewConnection { client, mut connection, .. } = address.connect().await?;
            let notify = Arc::new(Notify::new());
            let notifier = Arc::clone(&notify);
            let task = tokio::spawn(async move {
                while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                    if let AsyncMessage::Notification(notification) = message
                        && notification.payload() != sign
                    {
                        notifier.notify_one();
                    }
                }
                // A task that is woken sees the connection's end.
                drop(connection);
                notifier.notify_one();
            });
            let connection = AbortOnDrop(Some(task.abort_handle()));
            client.batch_execute(&format!("{OWN_PATH}; {text}")).await?;
            let client = Arc::new(client);
            Ok(Listener { client, notify, _connection: connection, handle, deadline, trips, listen: text })
        })
    }
}

/// A connection out of the pool, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease<'p> {
    pool: &'p Pool,
    /// None once it is of no use.
    wire: Option<Wire>,
    /// Whether a transaction may be open on it.
    transaction: bool,
    is_reserved: bool,
}

impl<'p> Lease<'p> {
    /// One without a connection so far.
    fn of(pool: &'p Pool, is_reserved: bool) -> Self {
        Self { pool, wire: None, transaction: false, is_reserved }
    }
}

impl Lease<'_> {
    /// One round trip, or several that are sent together.
    pub(crate) fn call<T: Send, F>(&mut self, work: impl FnOnce(Arc<Link>) -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        self.call_within(self.pool.limits.deadline, work)
    }

    /// The same with a deadline of its own.
    pub(crate) fn call_within<T: Send, F>(
        &mut self,
        deadline: Duration,
        work: impl FnOnce(Arc<Link>) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let wire = self.wire.as_ref().ok_or(Fault::Ended)?;
        self.pool.trips.fetch_add(1, Ordering::Relaxed);
        let result = wire.own_loop.call(deadline, work(Arc::clone(&wire.link)));
        if let Err(fault) = &result
            && fault.ends_connection()
        {
            let server = wire.server;
            self.wire = None;
            // Shorter times are of questions that somebody else may hold up.
            if matches!(fault, Fault::Late(_)) && deadline >= self.pool.limits.deadline {
                self.pool.leave(server);
            }
        }
        result
    }

    /// Its server is not to be used any more.
    pub(crate) fn leave(mut self) {
        let server = self.wire.take().map(|wire| wire.server);
        server.into_iter().for_each(|server| self.pool.leave(server));
    }

    /// Whether the engine no longer waits for its standby since this was asked last, because somebody cancelled that: what was committed is
    /// there, and may be lost when the standby takes its place. It says so before it answers.
    pub(crate) fn was_cut_short(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.link.cut_short.swap(false, Ordering::AcqRel))
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
        let wire = self.wire.take().filter(|wire| wire.link.is_usable());
        // Sent before whatever is sent next on it. Nobody waits for the answer; a connection that ends instead is found closed.
        let wire = wire.filter(|wire| {
            !self.transaction || wire.own_loop.begin(wire.link.client.batch_execute("ROLLBACK")).is_ok()
        });
        let mut state = self.pool.lock();
        if self.is_reserved {
            state.reserved = wire;
            state.is_reserved_leased = false;
            return;
        }
        state.idle.extend(wire);
        state.leased -= 1;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            // They wait for different things.
            self.pool.given_back.notify_all();
        }
    }
}
