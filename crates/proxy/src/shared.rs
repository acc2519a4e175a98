//! What workers and the thread of a database share.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use larix_client::{Credentials, PeerFault};
use larix_proto::url::LdapUrl;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use rustix::event::{EventfdFlags, epoll, eventfd};
use zeroize::Zeroizing;

use crate::batch::{RequestSender, waits};
use crate::job::{Job, Numbered, lost};
use crate::open::Open;

/// Requests of one database under way or waiting; more are answered `busy`.
pub(crate) const JOBS_MAX: usize = 20_000;
/// How often a thread that has sent what waited sends what others have brought meanwhile, before it leaves that to the proxy's own.
const SENDS_IN_TURN: usize = 4;

/// What the thread is asked for.
pub(crate) enum Command {
    Submit(u64, Box<Job>),
    /// Nobody waits for it any more.
    GiveUp(u64),
    /// The client of a search has taken answers.
    HasRoom(u64),
    /// The addresses of the server that a connection is to.
    Resolved(u64, io::Result<Vec<SocketAddr>>),
    /// A server lied in an answer that a worker looked at, over this connection.
    Lied(u64),
    /// A connection could not be written to, or takes no more requests.
    Look(u64),
}

/// What has the connections, and sends over them what is asked for.
pub(crate) trait RequestCarrier: Send {
    /// On the proxy's own thread: requests may end by it.
    fn carry_out(&mut self, commands: Vec<Command>);
    /// Sends requests where connections are ready for them, on whatever thread this is; what is left for the proxy's own. No request
    /// ends by it: the thread that brings one may hold a lock that the end of another needs.
    fn send_at_once(&mut self, commands: Vec<Command>) -> Vec<Command>;
    /// What sockets have, and what is late.
    fn happened(&mut self, events: &[epoll::Event], buffer: &mut [u8]);
    /// The thread waits now; how long at most.
    fn falls_asleep(&mut self) -> Option<Duration>;
    /// Whether something is due before the thread looks by itself: then it is woken, once.
    fn is_due_earlier(&mut self) -> bool;
    /// The database is closed.
    fn give_all_up(self: Box<Self>);
    /// A thread has panicked here: one without connections and requests, and the requests that were under way.
    fn begin_anew(self: Box<Self>) -> (Box<dyn RequestCarrier>, Vec<Numbered>);
}

/// A request that nobody sends, and its result.
#[derive(Debug)]
pub(crate) struct NotTaken {
    pub(crate) job: Box<Job>,
    pub(crate) result: LdapResult,
}

impl NotTaken {
    /// Ends it. The caller holds no lock that its end takes.
    pub(crate) fn end(self) {
        self.job.sink.end_unsent(self.result);
    }
}

/// Requests in, answers out.
pub(crate) struct Shared {
    commands: Mutex<Vec<Command>>,
    /// A thread has found the exchange taken: the one that has it sends what waits. A thread that gathers requests does not ask.
    is_asked: AtomicBool,
    /// None before the thread begins, and once it has ended.
    exchange: Mutex<Option<Box<dyn RequestCarrier>>>,
    pub(crate) wake: OwnedFd,
    is_woken: AtomicBool,
    stopped: AtomicBool,
    /// Nobody carries requests out any more.
    has_ended: AtomicBool,
    next: AtomicU64,
    /// Requests under way, and those that wait in `commands`: more while `commands` is locked, fewer while `exchange` is.
    pub(crate) jobs: AtomicUsize,
    bound: Mutex<Bound>,
    pub(crate) counts: Counts,
    /// The connections that are ready.
    pub(crate) open: Open,
    /// The place whose turn is next.
    pub(crate) turn: AtomicU32,
    targets: Mutex<Vec<TargetState>>,
}

/// A target, as far as the proxy has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetState {
    pub url: String,
    /// It has not failed since it last answered, or was never asked.
    pub is_up: bool,
    /// Health checks that were answered.
    pub answered: u64,
    /// Health checks that were not.
    pub missed: u64,
    /// How long the last answer took.
    pub took: Duration,
}

/// Who is bound to the target.
#[derive(Default)]
struct Bound {
    /// By where the record of a client's connection is.
    clients: HashMap<usize, KnownCredentials>,
    /// How many of the clients are bound by a name, as of the last sweep and the binds since then.
    names: HashMap<NormalDn, usize>,
}

/// Somebody who is bound to the target through a connection of his.
struct KnownCredentials {
    dn: NormalDn,
    password: Option<Zeroizing<Vec<u8>>>,
    client: Weak<dyn Any + Send + Sync>,
}

/// What has happened since the database was opened.
#[derive(Debug, Default)]
pub struct Counts {
    pub requests: AtomicU64,
    pub connections_opened: AtomicU64,
    /// By the names of [`PeerFault::NAMES`].
    pub faults: [AtomicU64; PeerFault::NAMES.len()],
    /// Entries outside the base that was searched.
    pub strays: AtomicU64,
    /// Requests that were not answered in time.
    pub late: AtomicU64,
    /// When a connection last ended: nanoseconds of the monotonic clock, 0 for never.
    pub(crate) last_end: AtomicU64,
}

impl TargetState {
    fn new(url: &LdapUrl) -> Self {
        Self { url: url.to_string(), is_up: true, answered: 0, missed: 0, took: Duration::ZERO }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(targets: &[LdapUrl]) -> io::Result<Self> {
        Ok(Self {
            commands: Mutex::default(),
            is_asked: AtomicBool::new(false),
            exchange: Mutex::default(),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            is_woken: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            next: AtomicU64::new(1),
            jobs: AtomicUsize::new(0),
            bound: Mutex::default(),
            counts: Counts::default(),
            open: Open::default(),
            turn: AtomicU32::new(0),
            targets: Mutex::new(targets.iter().map(TargetState::new).collect()),
        })
    }

    /// Hands a request over; its number. It does not end before this returns: the caller may hold a lock that its end takes.
    ///
    /// # Errors
    /// Too many requests are under way, or the thread has ended. The caller ends the request.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Result<u64, NotTaken> {
        let job = Box::new(job);
        let mut commands = self.commands();
        if self.jobs.load(Ordering::Relaxed) >= JOBS_MAX {
            drop(commands);
            return Err(NotTaken { job, result: busy() });
        }
        self.jobs.fetch_add(1, Ordering::Relaxed);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        commands.push(Command::Submit(number, job));
        drop(commands);
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        if !waits(self) {
            self.send();
        }
        // Behind the push: what it does not see here, the end of the thread sees there.
        let left = if self.has_ended.load(Ordering::SeqCst) { self.take_back(number) } else { None };
        match left {
            Some(job) => {
                self.jobs.fetch_sub(1, Ordering::Relaxed);
                Err(NotTaken { job, result: closed() })
            }
            None => Ok(number),
        }
    }

    /// A request that nobody has taken yet.
    fn take_back(&self, number: u64) -> Option<Box<Job>> {
        let mut commands = self.commands();
        let at = commands
            .iter()
            .position(|command| matches!(command, Command::Submit(own, _) if *own == number))?;
        match commands.remove(at) {
            Command::Submit(_, job) => Some(job),
            _ => None,
        }
    }

    /// Asks the thread for something.
    pub(crate) fn command(&self, command: Command) {
        self.commands().push(command);
        self.wake_up();
    }

    /// Sends requests from this thread once; whether more may have come meanwhile.
    fn send_once(&self) -> bool {
        // Either this thread sees that the exchange is free, or the one that leaves it sees that it is asked.
        self.is_asked.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut slot = match self.exchange.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => {
                drop(slot);
                // Its thread begins anew first.
                self.wake_up();
                return false;
            }
            Err(TryLockError::WouldBlock) => return false,
        };
        // Those that bring requests take them back themselves.
        let Some(exchange) = slot.as_mut() else { return false };
        let remaining = exchange.send_at_once(self.take());
        let is_left = !remaining.is_empty();
        if is_left {
            // In front of what has come meanwhile, and before another thread takes that.
            self.commands().splice(0..0, remaining);
        }
        let is_due = exchange.is_due_earlier();
        drop(slot);
        if is_due || is_left {
            self.wake_up();
        }
        // Who is woken sends the rest as well.
        !is_left && self.is_asked()
    }

    /// Whether somebody wants something to be sent, for who has just left the exchange.
    fn is_asked(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_asked.load(Ordering::SeqCst)
    }

    /// A turn of the thread: what is asked for, and what has happened. Answers how long it may sleep then; none: until it is woken.
    pub(crate) fn turn(&self, events: &[epoll::Event], buffer: &mut [u8]) -> Option<Duration> {
        if self.is_woken.load(Ordering::SeqCst) {
            // In this order: a command that comes between the two is taken below, and one that comes later wakes anew.
            let mut drained = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut drained);
            self.is_woken.store(false, Ordering::SeqCst);
        }
        let mut slot = self.exchange();
        if self.exchange.is_poisoned() {
            // A thread that brings requests has panicked amid them.
            drop(slot);
            self.begin_anew();
            slot = self.exchange();
        }
        let exchange = slot.as_mut()?;
        exchange.carry_out(self.take());
        exchange.happened(events, buffer);
        let pause = exchange.falls_asleep();
        drop(slot);
        if self.is_asked() { Some(Duration::ZERO) } else { pause }
    }

    fn wake_up(&self) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            // A counter that is full wakes as well.
            let _ = rustix::io::write(&self.wake, &1u64.to_le_bytes());
        }
    }

    /// The thread is about to begin.
    pub(crate) fn begin(&self, exchange: Box<dyn RequestCarrier>) {
        *self.exchange() = Some(exchange);
    }

    /// A thread has panicked with the exchange, which is a bug: requests that were under way end, and later ones are carried out again.
    pub(crate) fn begin_anew(&self) {
        let mut slot = self.exchange();
        let Some((exchange, unanswered)) = slot.take().map(RequestCarrier::begin_anew) else { return };
        *slot = Some(exchange);
        // Those that the panic took have ended, too.
        let commands = self.commands();
        let waiting = commands.iter().filter(|command| matches!(command, Command::Submit(..))).count();
        self.jobs.store(waiting, Ordering::Relaxed);
        drop(commands);
        self.exchange.clear_poison();
        drop(slot);
        for (_, job) in unanswered {
            // One whose end panics keeps no other waiting.
            let _ = catch_unwind(AssertUnwindSafe(|| job.sink.end(lost())));
        }
    }

    /// The thread is at its end: what is under way ends with it, and what comes later is refused.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        let exchange = self.exchange().take();
        exchange.into_iter().for_each(RequestCarrier::give_all_up);
        self.refuse();
    }

    fn refuse(&self) {
        for command in self.take() {
            if let Command::Submit(_, job) = command {
                self.jobs.fetch_sub(1, Ordering::Relaxed);
                job.sink.end_unsent(closed());
            }
        }
    }

    fn take(&self) -> Vec<Command> {
        // Before it looks: what was put there before somebody asked is seen.
        self.is_asked.swap(false, Ordering::SeqCst);
        std::mem::take(&mut *self.commands())
    }

    // A panic of another thread leaves both whole.
    fn commands(&self) -> MutexGuard<'_, Vec<Command>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exchange(&self) -> MutexGuard<'_, Option<Box<dyn RequestCarrier>>> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake_up();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    pub(crate) fn count_fault(&self, fault: &PeerFault) {
        if let Some(count) = self.counts.faults.get(fault.number()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn targets(&self) -> Vec<TargetState> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes whether a target is used; whether that is new.
    pub(crate) fn show_target(&self, number: usize, is_up: bool) -> bool {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.get_mut(number).is_some_and(|target| std::mem::replace(&mut target.is_up, is_up) != is_up)
    }

    /// Counts a health check.
    pub(crate) fn note_check(&self, number: usize, is_answered: bool, took: Duration) {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(target) = targets.get_mut(number) else { return };
        if is_answered {
            target.answered += 1;
            target.took = took;
        } else {
            target.missed += 1;
        }
    }

    /// A client has bound through the proxy. Answers how many are bound by its name now; those that went since the last sweep count, too.
    pub(crate) fn note_bound(
        &self,
        client: Weak<dyn Any + Send + Sync>,
        dn: NormalDn,
        password: Option<Zeroizing<Vec<u8>>>,
    ) -> usize {
        let mut bound = self.bound();
        let Bound { clients, names } = &mut *bound;
        let known = KnownCredentials { dn: dn.clone(), password, client };
        if let Some(before) = clients.insert(key(&known.client), known)
            && let Some(count) = names.get_mut(&before.dn)
        {
            *count = count.saturating_sub(1);
        }
        let count = names.entry(dn).or_default();
        *count += 1;
        *count
    }

    /// Whether this client has bound through the proxy as this name, and with what he can be bound again.
    pub(crate) fn is_bound(
        &self,
        client: &Weak<dyn Any + Send + Sync>,
        dn: &NormalDn,
    ) -> Option<Option<Credentials>> {
        let bound = self.bound();
        let found = bound.clients.get(&key(client)).filter(|bound| bound.dn == *dn)?;
        let simple = |password: &Zeroizing<Vec<u8>>| Credentials::Simple {
            dn: dn.as_str().to_owned(),
            password: password.clone(),
        };
        Some(found.password.as_ref().map(simple))
    }

    /// The target does not take this password any more: nobody is bound with it again by itself.
    pub(crate) fn forget_password(&self, dn: &NormalDn, refused: &Zeroizing<Vec<u8>>) {
        let mut bound = self.bound();
        let with_it =
            bound.clients.values_mut().filter(|b| b.dn == *dn && b.password.as_ref() == Some(refused));
        with_it.for_each(|bound| bound.password = None);
    }

    /// The target has a new password of this name: who is bound as that is bound with it again.
    pub(crate) fn note_password(&self, dn: &NormalDn, new: &Zeroizing<Vec<u8>>) {
        let mut bound = self.bound();
        let with_one = bound.clients.values_mut().filter(|bound| bound.dn == *dn && bound.password.is_some());
        with_one.for_each(|bound| bound.password = Some(new.clone()));
    }

    /// Forgets clients that are gone, and says how many are still there by each name.
    pub(crate) fn sweep_bound(&self) -> HashMap<NormalDn, usize> {
        let mut bound = self.bound();
        let Bound { clients, names } = &mut *bound;
        clients.retain(|_, bound| bound.client.strong_count() > 0);
        names.clear();
        for bound in clients.values() {
            *names.entry(bound.dn.clone()).or_default() += 1;
        }
        names.clone()
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestSender for Shared {
    /// Sends requests from this thread, unless another one is at the exchange: that one looks again when it leaves it.
    /// What is more than to send is left to the proxy's own thread.
    fn send(&self) {
        for _ in 0..SENDS_IN_TURN {
            let waiting = self.commands().len();
            if waiting == 0 || !self.send_once() {
                return;
            }
        }
        self.wake_up();
    }
}

/// The answer where too much is under way.
fn busy() -> LdapResult {
    LdapResult::with(ResultCode::BUSY, "too many requests wait for the target")
}

/// The answer where nobody asks the targets any more.
pub(crate) fn closed() -> LdapResult {
    LdapResult::with(ResultCode::UNAVAILABLE, "the connections to the targets have ended")
}

/// Where the connection's record is: as long as a weak pointer to it is kept, nothing else is there.
fn key(client: &Weak<dyn Any + Send + Sync>) -> usize {
    client.as_ptr().cast::<()>() as usize
}

#[cfg(test)]
#[path = "shared_tests.rs"]
pub(crate) mod tests;
