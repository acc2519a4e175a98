//! The one thread of a database that reads from its targets and looks after what is late: it never waits for one of them.
//!
//! A request goes out on the thread that brings it, if nobody else is at the [`Exchange`] just then, so that it does not wait
//! for this one to wake up (`docs/adr/0092-a-request-goes-out-on-its-own-thread.md`).

mod ends;
mod health;
mod opening;
mod placing;
mod traffic;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use larix_client::dial::{HostLookUp, look_up_beside};
use larix_client::{Ambient, PeerFault, TlsClient};
use larix_engine::time::Clock;
use rustix::event::epoll;
use rustix::event::{Timespec, epoll::EventFlags};

use self::ends::unanswered;
use self::health::Check;
use self::opening::TlsFiles;
use crate::connection::{Connection, Stage};
use crate::job::{FEED_HIGH, FEED_MAX, Numbered, Owner};
use crate::settings::ProxySettings;
use crate::shared::{Command, RequestCarrier, Shared, closed};
use crate::targets::{Refusals, Targets};

/// Requests under way on each connection of a pool before another is opened.
const CONNECTION_BUSY: usize = 32;
/// Requests under way on one connection.
const CONNECTION_OPERATIONS: usize = 4096;
/// Requests that a target has not taken, bytes.
const CONNECTION_OUTPUT: usize = 4 << 20;
/// Binds under way at once; others wait.
const BINDS_MAX: usize = 64;
/// Connections of one identity, with those that clients have for themselves who read slowly.
const POOL_CEILING: usize = 512;
const READ_BYTES: usize = 64 * 1024;
/// Reads of one connection before others have their turn.
const READS_IN_TURN: usize = 4;
const EVENTS: usize = 256;
const SWEEP: Duration = Duration::from_secs(1);
/// The event of who hands requests over.
const WAKE: u64 = u64::MAX;

/// What the thread is given.
pub(crate) struct ThreadContext {
    pub(crate) settings: Arc<ProxySettings>,
    pub(crate) tls: Option<TlsClient>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ambient: Ambient,
    /// Says something to the log.
    pub(crate) tell: Box<dyn Fn(&str) + Send>,
}

/// Starts it.
///
/// # Errors
/// No descriptor or no thread is left.
pub(crate) fn start(context: ThreadContext) -> io::Result<()> {
    let poll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
    epoll::add(&poll, &context.shared.wake, epoll::EventData::new_u64(WAKE), EventFlags::IN)?;
    let shared = Arc::clone(&context.shared);
    let resolver = look_up_beside("proxy-names", move |connection, found| {
        shared.command(Command::Resolved(connection, found));
        true
    })?;
    let shared = Arc::clone(&context.shared);
    let exchange = Exchange::new(context, Arc::clone(&poll), resolver, (0, 0));
    shared.begin(Box::new(exchange));
    let served = Arc::clone(&shared);
    let begun = thread::Builder::new().name("proxy".to_owned()).spawn(move || serve(&served, &poll));
    begun.map(|_| ()).inspect_err(|_| shared.end())
}

/// Until the database is closed.
fn serve(shared: &Shared, poll: &OwnedFd) {
    let _ends = EndsExchange(shared);
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    let mut buffer = vec![0; READ_BYTES];
    let mut has_panicked = false;
    while !shared.is_stopped() {
        let pause = match catch_unwind(AssertUnwindSafe(|| shared.turn(&events, &mut buffer))) {
            Ok(pause) => {
                has_panicked = false;
                pause
            }
            Err(_) => {
                let is_again = std::mem::replace(&mut has_panicked, true);
                shared.begin_anew();
                // What has come meanwhile waits for the next turn.
                Some(if is_again { SWEEP } else { Duration::ZERO })
            }
        };
        let timeout = pause.map(|pause| Timespec {
            tv_sec: i64::try_from(pause.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: pause.subsec_nanos().into(),
        });
        events.clear();
        if epoll::wait(poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()).is_err() {
            // Interrupted: what is there is there the next time.
            events.clear();
        }
    }
}

/// However the thread ends, nobody waits for it any more.
struct EndsExchange<'s>(&'s Shared);

impl Drop for EndsExchange<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What a database has under way with its targets: requests, connections, checks.
pub(crate) struct Exchange {
    context: ThreadContext,
    poll: Arc<OwnedFd>,
    resolver: Sender<HostLookUp>,
    targets: Targets,
    /// Of the proxy's own binds.
    refusals: Refusals,
    connections: HashMap<u64, Connection>,
    pools: HashMap<Owner, Vec<u64>>,
    /// The connection of each request.
    places: HashMap<u64, u64>,
    /// Binds that wait for a connection.
    binds: VecDeque<Numbered>,
    next: u64,
    swept: Duration,
    /// Before then nothing is late.
    alarm: Duration,
    /// By target.
    checks: Vec<Check>,
    /// Of the last check.
    check_number: u64,
    /// When the thread looks by itself; before it has ever slept, at once.
    sleeps_until: Duration,
    /// When a connection last ended by its age, where they do not end all at once.
    last_reset: Duration,
    /// As they were when they were last read; empty: at the start.
    tls_files: TlsFiles,
}

impl Exchange {
    /// Without connections. `numbers`: the last ones of a connection and of a check.
    fn new(
        context: ThreadContext,
        poll: Arc<OwnedFd>,
        resolver: Sender<HostLookUp>,
        (next, check_number): (u64, u64),
    ) -> Self {
        let targets = Targets::new(context.settings.targets.len(), context.settings.quarantine.clone());
        let last_reset = Duration::from_nanos(context.clock.monotonic().0);
        let checks = vec![Check::at_once(); context.settings.targets.len()];
        Self {
            context,
            poll,
            resolver,
            targets,
            refusals: Refusals::default(),
            connections: HashMap::new(),
            pools: HashMap::new(),
            places: HashMap::new(),
            binds: VecDeque::new(),
            next,
            swept: Duration::ZERO,
            alarm: Duration::ZERO,
            checks,
            check_number,
            sleeps_until: Duration::ZERO,
            last_reset,
            tls_files: TlsFiles::new(),
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.context.clock.monotonic().0)
    }

    /// When something happens by itself; none: never.
    fn next_time(&self) -> Option<Duration> {
        let is_idle = self.connections.is_empty() && self.binds.is_empty();
        (!is_idle).then_some(self.alarm).into_iter().chain(self.next_check()).min()
    }

    /// When the first thing is late that is not done by then: all connections are looked at.
    fn first_deadline(&self) -> Duration {
        let deadlines = self.connections.values().filter_map(|connection| match &connection.stage {
            Stage::Open(channel) if channel.is_ready() => channel.next_deadline(),
            _ => Some(connection.opening_until),
        });
        deadlines.chain([self.swept + SWEEP]).min().unwrap_or_default()
    }

    fn carry_out_alone(&mut self, command: Command) {
        match command {
            Command::Submit(number, job) => self.place(number, job),
            Command::GiveUp(number) => self.give_up(number, None),
            Command::Look(id) => self.flush(id),
            Command::HasRoom(number) => {
                if let Some(id) = self.places.get(&number).copied() {
                    self.set_interest(id);
                }
            }
            Command::Resolved(id, Ok(addresses)) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.addresses.extend(addresses);
                    self.connect_next(id, "the name has no address".to_owned());
                }
            }
            Command::Resolved(id, Err(error)) => self.unreachable(id, &error.to_string()),
            Command::Lied(id) => {
                let fault = PeerFault::Socket("an entry outside the base that was searched".to_owned());
                self.lost(id, &fault, true);
            }
        }
    }
}

impl RequestCarrier for Exchange {
    fn carry_out(&mut self, commands: Vec<Command>) {
        let now = self.now();
        let mut touched = Vec::new();
        for command in commands {
            match self.put_if_ready(command, now) {
                Ok(id) => touched.push(id),
                Err(command) => self.carry_out_alone(command),
            }
        }
        each_once(touched).for_each(|id| self.flush(id));
    }

    fn send_at_once(&mut self, commands: Vec<Command>) -> Vec<Command> {
        self.send_ready(commands)
    }

    fn happened(&mut self, events: &[epoll::Event], buffer: &mut [u8]) {
        for event in events {
            let number = event.data.u64();
            if number != WAKE {
                self.socket_has(number, event.flags, buffer);
            }
        }
        self.expire();
        self.check_targets();
    }

    fn falls_asleep(&mut self) -> Option<Duration> {
        let next = self.next_time();
        self.sleeps_until = next.unwrap_or(Duration::MAX);
        next.map(|at| at.saturating_sub(self.now()).max(Duration::from_millis(1)))
    }

    fn is_due_earlier(&mut self) -> bool {
        let next = self.next_time().unwrap_or(Duration::MAX);
        let is_earlier = next < self.sleeps_until;
        self.sleeps_until = self.sleeps_until.min(next);
        is_earlier
    }

    fn give_all_up(mut self: Box<Self>) {
        for (_, mut connection) in std::mem::take(&mut self.connections) {
            connection.waiting.drain(..).for_each(|(_, job)| job.sink.end(closed()));
            for (_, (_, job)) in connection.sent.drain() {
                let result = unanswered(&job, closed());
                job.sink.end(result);
            }
        }
        self.binds.drain(..).for_each(|(_, job)| job.sink.end(closed()));
    }

    fn begin_anew(self: Box<Self>) -> (Box<dyn RequestCarrier>, Vec<Numbered>) {
        let Self { context, poll, resolver, connections, binds, next, check_number, .. } = *self;
        let mut unanswered: Vec<Numbered> = binds.into();
        for (id, mut connection) in connections {
            context.shared.open.hide(id);
            unanswered.extend(connection.waiting.drain(..));
            unanswered.extend(connection.sent.drain().map(|(_, job)| job));
        }
        // Numbers are not given out twice: a name that is being looked up may still come for a connection of before.
        let anew = Self::new(context, poll, resolver, (next, check_number));
        (Box::new(anew), unanswered)
    }
}

/// Each number once.
fn each_once(mut numbers: Vec<u64>) -> impl Iterator<Item = u64> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter()
}

fn leave(pools: &mut HashMap<Owner, Vec<u64>>, owner: &Owner, id: u64) {
    if let Some(pool) = pools.get_mut(owner) {
        pool.retain(|other| *other != id);
        if pool.is_empty() {
            pools.remove(owner);
        }
    }
}

const _: () = assert!(FEED_HIGH < FEED_MAX);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{Receiver, RecvError, channel};

    use larix_proto::{LdapResult, ResultCode};

    use super::*;
    use crate::job::{Job, Outcome, Sink};
    use crate::shared::tests::job;

    /// Carries out requests; or panics with the first, on its own thread or on the one that brings it.
    struct Toy {
        panics: bool,
        panics_at_once: bool,
    }

    const SOUND: Toy = Toy { panics: false, panics_at_once: false };

    impl RequestCarrier for Toy {
        fn carry_out(&mut self, commands: Vec<Command>) {
            for command in commands {
                assert!(!self.panics, "a bug");
                if let Command::Submit(_, job) = command {
                    job.sink.end(LdapResult::success());
                }
            }
        }

        fn send_at_once(&mut self, commands: Vec<Command>) -> Vec<Command> {
            assert!(!self.panics_at_once, "a bug");
            commands
        }

        fn happened(&mut self, _: &[epoll::Event], _: &mut [u8]) {}

        fn falls_asleep(&mut self) -> Option<Duration> {
            None
        }

        fn is_due_earlier(&mut self) -> bool {
            false
        }

        fn give_all_up(self: Box<Self>) {}

        fn begin_anew(self: Box<Self>) -> (Box<dyn RequestCarrier>, Vec<Numbered>) {
            (Box::new(SOUND), Vec::new())
        }
    }

    fn submitted(shared: &Arc<Shared>) -> Receiver<ResultCode> {
        let (done, result) = channel();
        let done = move |outcome: Outcome| done.send(outcome.result.code).unwrap();
        let _ = shared.submit(Job { sink: Sink::Once(Box::new(done)), ..job() });
        result
    }

    #[test]
    fn a_panic_ends_requests_and_not_the_thread() {
        let shared = Arc::new(Shared::new(&[]).unwrap());
        shared.begin(Box::new(Toy { panics: true, ..SOUND }));
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&poll, &shared.wake, epoll::EventData::new_u64(WAKE), EventFlags::IN).unwrap();
        let results = thread::scope(|scope| {
            scope.spawn(|| serve(&shared, &poll));
            let results = [submitted(&shared).recv(), submitted(&shared).recv()];
            shared.stop();
            results
        });
        // The first is lost, so that nobody waits for it.
        assert_eq!(results, [Err(RecvError), Ok(ResultCode::SUCCESS)]);
        assert_eq!(shared.jobs.load(Ordering::Relaxed), 1, "the toy counts none that has ended");
        assert!(shared.submit(job()).is_err());
    }

    /// The thread that brings a request sends it itself.
    #[test]
    fn a_panic_of_the_thread_that_brings_a_request_takes_no_other() {
        let shared = Arc::new(Shared::new(&[]).unwrap());
        shared.begin(Box::new(Toy { panics_at_once: true, ..SOUND }));
        let brings = Arc::clone(&shared);
        assert!(thread::spawn(move || submitted(&brings)).join().is_err());
        let result = submitted(&shared);
        shared.turn(&[], &mut []);
        assert_eq!(result.try_recv(), Ok(ResultCode::SUCCESS));
        assert_eq!(shared.jobs.load(Ordering::Relaxed), 1, "the toy counts none that has ended");
    }
}
