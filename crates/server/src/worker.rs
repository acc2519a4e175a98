//! One event loop a core. A worker owns its connections: it reads, gives each connection its turn and writes the answers, all on one
//! thread.
//!
//! This module has the loop and what its connections share; a [`task`] serves each of them. The thread leaves its loop to carry out the
//! change of its only client in a shared engine, and nothing in the loop moves meanwhile ([`Core::carry_out_outside`]).

mod deadlines;
mod task;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larix_engine::time::{Clock, Monotonic};
use larix_engine::{injected, writer};
use larix_store::lmdb;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Interval, MissedTickBehavior};

use crate::aside::Aside;
use crate::dispatch::{ConnectionEvent, Dispatcher};
use crate::host_names;
use crate::log::{self, LogLevel};
use crate::panics;
use crate::server::Server;
use crate::session::Peer;
use crate::statistics::{ConnectionRecord, Counters};
use crate::stream::{AcceptedStream, Stream};
use crate::tls::TlsFacts;
use deadlines::{Handle, Patience};
use task::Task;

/// Bytes read at once, into a buffer that all connections of a worker share.
const READ_BYTES: usize = 64 * 1024;
/// Empty output buffers kept for the next connection that answers.
const SPARE_BUFFERS: usize = 16;
/// A spare buffer larger than this is given back to the allocator.
const SPARE_BUFFER_BYTES: usize = 64 * 1024;
/// How often idle and blocked connections are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Every so many sweeps look for unfinished requests, whose limit is minutes.
const SWEEPS_FOR_REQUESTS: u32 = 5;
/// How long connections may take to get their last answers when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// How long read transactions are kept for the next requests.
const SNAPSHOTS_KEPT: Duration = Duration::from_millis(20);
/// Threads beside each loop that compute handshakes: a signature takes as long as many searches.
const HANDSHAKE_THREADS: usize = 1;
/// Nanoseconds after which a loop that was left gets no connections: its thread may wait for seconds.
const LEFT_LONG: u64 = 50_000_000;
/// In place of the time since which a loop is left.
const NOT_LEFT: u64 = u64::MAX;

/// A connection just accepted, on its way to a worker.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) stream: AcceptedStream,
    pub(crate) record: Arc<ConnectionRecord>,
    pub(crate) peer: Peer,
    /// The TLS through which the connection came before, if any.
    pub(crate) secured: Option<TlsFacts>,
}

#[derive(Debug)]
pub(crate) enum Command {
    Serve(Box<AcceptedConnection>),
    /// Asks whether the loop has its turns.
    Answer(oneshot::Sender<()>),
    Stop,
}

impl Command {
    /// Answers who asked.
    pub(crate) fn answer(self) {
        if let Self::Answer(answer) = self {
            // Nobody may wait any more.
            let _ = answer.send(());
        }
    }
}

/// Why a loop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopEnd {
    Stopped,
    /// The thread carries out a change, and goes on with the loop behind it.
    Left,
}

/// A worker as the acceptor sees it.
#[derive(Debug)]
pub(crate) struct Worker {
    handle: WorkerHandle,
    thread: JoinHandle<()>,
}

/// Gives connections to a worker, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct WorkerHandle {
    commands: UnboundedSender<Command>,
    connections: Arc<AtomicUsize>,
    /// Since when the thread is outside its loop, by the server's clock.
    left_at: Arc<AtomicU64>,
}

impl Worker {
    /// Starts the worker's thread.
    pub(crate) fn start(index: usize, server: Arc<Server>) -> io::Result<Self> {
        let (commands, mut orders) = unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let left_at = Arc::new(AtomicU64::new(NOT_LEFT));
        let left = Arc::clone(&left_at);
        let kept = Arc::new(Notify::new());
        let rests = Arc::clone(&kept);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            // All that was ready is served, and a batch is over.
            .on_thread_park(move || {
                writer::hand_over_deferred();
                if lmdb::rest_snapshots() {
                    rests.notify_one();
                }
                log::hand_over();
            })
            .build()?;
        let builder = std::thread::Builder::new().name(format!("worker-{index}"));
        let thread = builder.stack_size(larix_proto::limits::FILTER_STACK).spawn(move || {
            lmdb::keep_snapshots();
            server.log.gather();
            let counters = server.statistics.worker(index);
            let core = Rc::new(Core {
                server,
                counters,
                open: RefCell::default(),
                sweeps: Cell::default(),
                first_deadline: Cell::default(),
                count,
                left_at: left,
                leaves: Notify::new(),
                stops: Cell::default(),
                was_left: Cell::default(),
                read_buffer: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
                plain: RefCell::default(),
                spare: RefCell::default(),
                handshakes: Aside::new("handshakes", HANDSHAKE_THREADS),
            });
            let tasks = tokio::task::LocalSet::new();
            tasks.spawn_local(release_snapshots(kept));
            tasks.spawn_local(send_requests());
            let mut sweeps = {
                let _within = runtime.enter();
                sweep_interval()
            };
            loop {
                // A panic of the loop itself is not the end of its connections, which are tasks beside it.
                let run = || tasks.block_on(&runtime, core.clone().run(&mut orders, &mut sweeps));
                match panics::contained(run) {
                    Ok(LoopEnd::Stopped) => break,
                    Ok(LoopEnd::Left) => {
                        let _ = panics::contained(|| core.carry_out_outside());
                    }
                    Err(_) => {}
                }
            }
            drop(tasks);
            log::hand_over();
        })?;
        Ok(Self { handle: WorkerHandle { commands, connections, left_at }, thread })
    }

    pub(crate) fn handle(&self) -> &WorkerHandle {
        &self.handle
    }

    /// Lets it answer what was asked and close its connections; [`join`](Self::join) waits for that.
    pub(crate) fn stop(&self) {
        let _ = self.handle.commands.send(Command::Stop);
    }

    pub(crate) fn join(self) {
        drop(self.handle);
        // A worker that panicked has printed why; the others still end in order.
        let _ = self.thread.join();
    }
}

impl WorkerHandle {
    /// Connections it serves now; more than any other has where its loop was left a while ago.
    pub(crate) fn load(&self, now: Monotonic) -> usize {
        let is_left = now.0.saturating_sub(self.left_at.load(Ordering::Relaxed)) > LEFT_LONG;
        if is_left { usize::MAX } else { self.connections.load(Ordering::Relaxed) }
    }

    /// Asks it for an answer, which comes with the next turn of its loop. An error in its place: it has ended.
    pub(crate) fn ask(&self) -> oneshot::Receiver<()> {
        let (answer, answered) = oneshot::channel();
        // With the command, the sender is dropped.
        let _ = self.commands.send(Command::Answer(answer));
        answered
    }

    /// Without a worker: the owner of the other end reads its commands.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> (Self, UnboundedReceiver<Command>) {
        let (commands, orders) = unbounded_channel();
        (Self { commands, connections: Arc::default(), left_at: Arc::new(AtomicU64::new(NOT_LEFT)) }, orders)
    }

    /// Gives it a connection. A worker that has stopped takes none: the connection is closed by being dropped.
    #[must_use = "a connection that is not served is not open"]
    pub(crate) fn serve(&self, accepted: AcceptedConnection) -> bool {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let taken = self.commands.send(Command::Serve(Box::new(accepted))).is_ok();
        if !taken {
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }
}

/// What the connections of one worker share.
struct Core {
    server: Arc<Server>,
    counters: Arc<Counters>,
    open: RefCell<HashMap<u64, Rc<Handle>>>,
    sweeps: Cell<u32>,
    /// Before then no request has waited for too long.
    first_deadline: Cell<Option<Monotonic>>,
    count: Arc<AtomicUsize>,
    left_at: Arc<AtomicU64>,
    /// Ends the loop for a moment: this thread has a deferred change, which it carries out outside.
    leaves: Notify,
    /// The loop ends, and is not left any more.
    stops: Cell<bool>,
    /// A change was carried out outside, and no connection has looked at what came meanwhile.
    was_left: Cell<bool>,
    read_buffer: RefCell<Box<[u8]>>,
    /// Input without its layers.
    plain: RefCell<Vec<u8>>,
    spare: RefCell<Vec<Vec<u8>>>,
    handshakes: Aside,
}

/// A connection that is open, and counted, until this is dropped: at its end, or by a panic of its task.
struct OpenConnection {
    core: Rc<Core>,
    record: Arc<ConnectionRecord>,
    reason: Option<&'static str>,
}

impl OpenConnection {
    fn close(mut self, reason: &'static str) {
        self.reason = Some(reason);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let otherwise = if std::thread::panicking() { "internal error" } else { "the server stops" };
        self.core.closed(&self.record, self.reason.unwrap_or(otherwise));
    }
}

#[expect(clippy::disallowed_methods, reason = "the server is where the ambient clock enters")]
fn now() -> Instant {
    Instant::now()
}

/// When idle and blocked connections are looked for. To be called within the runtime.
fn sweep_interval() -> Interval {
    let first = tokio::time::Instant::now() + SWEEP_INTERVAL;
    let mut sweeps = tokio::time::interval_at(first, SWEEP_INTERVAL);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    sweeps
}

/// Ends read transactions a while after the loop first waited with them: an idle worker keeps no page from being reused, and a busy
/// one no page for longer than that.
async fn release_snapshots(kept: Arc<Notify>) {
    loop {
        kept.notified().await;
        tokio::time::sleep(SNAPSHOTS_KEPT).await;
        lmdb::release_snapshots();
    }
}

/// Sends the requests to targets of proxied databases that connections have brought, when all that were ready have had their turn.
async fn send_requests() {
    let gathered = Rc::new(Notify::new());
    let first = Rc::clone(&gathered);
    larix_proxy::gather_requests(Box::new(move || first.notify_one()));
    loop {
        gathered.notified().await;
        while panics::contained(larix_proxy::send_gathered).is_err() {}
    }
}

impl Core {
    async fn run(self: Rc<Self>, orders: &mut UnboundedReceiver<Command>, sweeps: &mut Interval) -> LoopEnd {
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Command::Serve(accepted)) => self.open(*accepted),
                    Some(asked @ Command::Answer(_)) => asked.answer(),
                    Some(Command::Stop) | None => break,
                },
                _ = sweeps.tick() => self.sweep(),
                () = self.leaves.notified() => return LoopEnd::Left,
            }
        }
        self.stops.set(true);
        self.stop().await;
        LoopEnd::Stopped
    }

    fn open(self: &Rc<Self>, accepted: AcceptedConnection) {
        let record = accepted.record.clone();
        let open = OpenConnection { core: self.clone(), record: record.clone(), reason: None };
        injected::panic_at("accepted");
        let stream = match Stream::register(accepted.stream) {
            Ok(stream) => stream,
            Err(error) => {
                self.server.log.notice(format_args!("conn={} not served: {error}", record.number));
                return open.close("not served");
            }
        };
        let (sender, events) = unbounded_channel();
        let handle = Rc::new(Handle::new(sender.clone(), self.server.clock.monotonic()));
        self.open.borrow_mut().insert(record.number, handle.clone());
        let mut dispatcher = Dispatcher::new(
            self.server.clone(),
            self.counters.clone(),
            record.clone(),
            accepted.peer,
            sender,
        );
        accepted.secured.into_iter().for_each(|facts| dispatcher.tls_established(facts));
        let core = self.clone();
        tokio::task::spawn_local(async move {
            host_names::look_up(&core.server, dispatcher.peer_names()).await;
            let task = Task::new(&core, stream, dispatcher, events, handle);
            open.close(task.serve(record.listener.is_tls()).await);
        });
    }

    fn closed(&self, record: &ConnectionRecord, reason: &str) {
        // It is not borrowed while a task runs.
        if let Ok(mut open) = self.open.try_borrow_mut() {
            open.remove(&record.number);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.server.statistics.closed(record.number);
        let (number, descriptor) = (record.number, record.descriptor);
        if reason.is_empty() {
            self.server.log.line(LogLevel::STATS, format_args!("conn={number} fd={descriptor} closed"));
        } else {
            self.server
                .log
                .line(LogLevel::STATS, format_args!("conn={number} fd={descriptor} closed ({reason})"));
        }
    }

    fn sweep(&self) {
        injected::panic_at("worker");
        // A loop that never rests still tells what it did.
        log::hand_over();
        self.expire();
        let config = self.server.config();
        let patience = Patience {
            idle: config.global.idle_timeout,
            write: config.global.write_timeout,
            request: config.global.client_limits.request_seconds,
        };
        let turn = self.sweeps.get().wrapping_add(1);
        self.sweeps.set(turn);
        let looks_at_requests = patience.request > 0 && turn.is_multiple_of(SWEEPS_FOR_REQUESTS);
        if patience.idle == 0 && patience.write == 0 && !looks_at_requests {
            return;
        }
        let now = self.server.clock.monotonic();
        for handle in self.open.borrow().values() {
            if let Some(reason) = handle.overdue(now, patience) {
                handle.tell(ConnectionEvent::TimedOut(reason));
            }
        }
    }

    fn note_deadline(&self, deadline: Option<Monotonic>) {
        if let Some(deadline) = deadline {
            let first = self.first_deadline.get().map_or(deadline, |first| first.min(deadline));
            self.first_deadline.set(Some(first));
        }
    }

    /// Tells connections that have requests which have waited for too long.
    fn expire(&self) {
        let now = self.server.clock.monotonic();
        if self.first_deadline.get().is_none_or(|first| first > now) {
            return;
        }
        self.first_deadline.set(None);
        for handle in self.open.borrow().values() {
            match handle.deadline() {
                Some(deadline) if deadline <= now => handle.tell(ConnectionEvent::Expired),
                later => self.note_deadline(later),
            }
        }
    }

    async fn stop(&self) {
        for handle in self.open.borrow().values() {
            handle.tell(ConnectionEvent::Stop);
        }
        let deadline = now() + STOP_GRACE;
        while !self.open.borrow().is_empty() && now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// If the worker serves a single client, this thread carries out a change, and only that client waits for its commit.
    /// A client that connects meanwhile waits, too, once. For a change in a shared engine the thread leaves its loop, if the client
    /// `waits` for each answer: that may take long.
    fn carry_out_deferred(&self, waits: impl FnOnce() -> bool) {
        let alone = self.count.load(Ordering::Relaxed) == 1;
        if writer::has_deferred() {
            let leaves = writer::has_deferred_shared();
            if alone && (!leaves || !self.stops.get() && waits()) {
                larix_proxy::send_gathered();
                lmdb::release_snapshots();
                match leaves {
                    // Before the loop rests: there the change would go to the writer's thread.
                    true => self.leaves.notify_one(),
                    false => writer::carry_out_deferred(),
                }
            } else {
                writer::hand_over_deferred();
            }
        }
        writer::may_defer(alone);
    }

    /// Carries out the change for which this thread has left its loop. It may wait for the engine here: it serves no client but the one that
    /// waits for the change, and if that takes longer, it gets no other one. A thread in its loop could not run the
    /// connection to the engine either.
    fn carry_out_outside(&self) {
        if !writer::has_deferred() {
            return;
        }
        let left = self.server.loops.leave();
        // One that was accepted since is counted before it is served.
        if left.is_some() && self.count.load(Ordering::Relaxed) == 1 {
            self.left_at.store(self.server.clock.monotonic().0, Ordering::Relaxed);
            // The loop did not rest. Where the engine hangs, the log shows what waits for it.
            log::hand_over();
            if panics::contained(writer::carry_out_deferred).is_err() {
                // Nobody answers what was asked.
                for handle in self.open.borrow().values() {
                    handle.tell(ConnectionEvent::TimedOut("internal error"));
                }
            }
            self.left_at.store(NOT_LEFT, Ordering::Relaxed);
            self.was_left.set(true);
        } else {
            writer::hand_over_deferred();
        }
        drop(left);
    }

    fn take_buffer(&self) -> Vec<u8> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(4096))
    }

    fn return_buffer(&self, buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_BUFFERS && buffer.capacity() <= SPARE_BUFFER_BYTES {
            spare.push(buffer);
        }
    }
}
