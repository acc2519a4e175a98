//! One event loop a core. A worker owns its connections: it reads what has come, lets the connection have its turn and
//! writes what came of it, all on one thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larix_engine::time::{Clock, Monotonic};
use larix_engine::write;
use larix_proto::{LdapResult, ResultCode};
use larix_store::lmdb;
use tokio::io::ReadBuf;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use zeroize::Zeroize;

use crate::config::values::LogLevel;
use crate::connection::{Connection, Turn};
use crate::dispatch::{Completion, Dispatcher, LayerChange, Returned};
use crate::host_names;
use crate::layers::{Layers, LayersError};
use crate::log;
use crate::server::Server;
use crate::session::Peer;
use crate::statistics::{ConnectionRecord, Counters, add};
use crate::stream::{AcceptedStream, Stream, Writer};
use crate::tls::{TlsFacts, TlsSession};

/// Bytes read at once, into a buffer that all connections of a worker share.
const READ_BYTES: usize = 64 * 1024;
/// Empty output buffers kept for the next connection that answers.
const SPARE_BUFFERS: usize = 16;
/// A spare buffer larger than this is given back to the allocator.
const SPARE_BUFFER_BYTES: usize = 64 * 1024;
/// How often idle and blocked connections are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Unfinished requests are looked for in every so many sweeps: what takes minutes needs no second's precision.
const SWEEPS_FOR_REQUESTS: u32 = 5;
/// How long connections may take to get their last answers when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// How long a client may take for a TLS handshake, from its beginning to its end.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// Threads beside each loop that compute handshakes: a signature takes as long as many searches.
const HANDSHAKE_THREADS: usize = 1;
/// A buffer for decrypted input larger than this is given back to the allocator.
const PLAIN_BUFFER_BYTES: usize = 128 * 1024;
/// How long a client may take to read its last answers when the connection is being closed.
const LINGER: Duration = Duration::from_secs(5);
const NANOS_A_SECOND: u64 = 1_000_000_000;
/// A client asks for TLS where none is configured, or where it cannot be agreed on.
const NO_TLS: &str = "TLS negotiation failure";

/// A connection just accepted, on its way to a worker.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: AcceptedStream,
    pub(crate) record: Arc<ConnectionRecord>,
    pub(crate) peer: Peer,
    /// What carries the bytes to this process was secured before they came here.
    pub(crate) secured: Option<TlsFacts>,
}

/// What the rest of the server tells a connection.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// A request that waited is done. Boxed: every connection's queue has room for a few dozen events.
    Completed(u64, Box<Completion>),
    /// A search that was elsewhere is back, with what it has answered.
    Returned(u64, Box<Returned>),
    /// A search that waits for changes may go on.
    Changed(u64),
    /// `idletimeout` or `writetimeout` has passed.
    TimedOut(&'static str),
    /// The server stops.
    Stop,
}

#[derive(Debug)]
enum Command {
    Serve(Box<Accepted>),
    Stop,
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
}

impl Worker {
    /// Starts the worker's thread.
    pub(crate) fn start(index: usize, server: Arc<Server>) -> io::Result<Self> {
        let (commands, orders) = unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(HANDSHAKE_THREADS)
            // All that was ready is served: a batch is over, and nothing may keep its pages while the loop waits.
            .on_thread_park(|| {
                write::hand_over_kept();
                lmdb::release_snapshots();
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
                count,
                read_buffer: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
                plain: RefCell::default(),
                spare: RefCell::default(),
            });
            tokio::task::LocalSet::new().block_on(&runtime, core.run(orders));
            log::hand_over();
        })?;
        Ok(Self { handle: WorkerHandle { commands, connections }, thread })
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
    /// Connections it serves now.
    pub(crate) fn load(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Gives it a connection.
    pub(crate) fn serve(&self, accepted: Accepted) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        // Fails when the worker has stopped: the connection is closed by being dropped.
        let _ = self.commands.send(Command::Serve(Box::new(accepted)));
    }
}

/// What the connections of one worker share.
struct Core {
    server: Arc<Server>,
    counters: Arc<Counters>,
    open: RefCell<HashMap<u64, Rc<Handle>>>,
    sweeps: Cell<u32>,
    count: Arc<AtomicUsize>,
    read_buffer: RefCell<Box<[u8]>>,
    /// Input without its layers.
    plain: RefCell<Vec<u8>>,
    spare: RefCell<Vec<Vec<u8>>>,
}

/// What the worker knows of a connection beside the task that serves it.
struct Handle {
    events: UnboundedSender<ConnectionEvent>,
    last_activity: Cell<Monotonic>,
    /// Since when the client has not taken anything of an answer.
    blocked_since: Cell<Option<Monotonic>>,
    pending: Cell<usize>,
    /// Since when an anonymous client owes the rest of a request, and that request's number.
    unfinished: Cell<Option<(Monotonic, u64)>>,
}

#[expect(clippy::disallowed_methods, reason = "the server is where the ambient clock enters")]
fn now() -> Instant {
    Instant::now()
}

impl Core {
    async fn run(self: Rc<Self>, mut orders: UnboundedReceiver<Command>) {
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Command::Serve(accepted)) => self.open(*accepted),
                    Some(Command::Stop) | None => break,
                },
                _ = sweep.tick() => self.sweep(),
            }
        }
        self.stop().await;
    }

    fn open(self: &Rc<Self>, accepted: Accepted) {
        let record = accepted.record.clone();
        let stream = match Stream::register(accepted.stream) {
            Ok(stream) => stream,
            Err(error) => {
                self.server.log.notice(format_args!("conn={} not served: {error}", record.number));
                self.count.fetch_sub(1, Ordering::Relaxed);
                self.server.statistics.closed(record.number);
                return;
            }
        };
        let (sender, events) = unbounded_channel();
        let handle = Rc::new(Handle {
            events: sender.clone(),
            last_activity: Cell::new(self.server.clock.monotonic()),
            blocked_since: Cell::new(None),
            pending: Cell::new(0),
            unfinished: Cell::new(None),
        });
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
            let connection = Connection::new(dispatcher);
            let mut task =
                Task { core: &core, stream, layers: None, handshake_until: None, connection, events, handle };
            let reason = match record.listener.is_tls() && task.start_tls().is_err() {
                true => NO_TLS,
                false => task.serve().await,
            };
            core.closed(&record, reason);
        });
    }

    fn closed(&self, record: &ConnectionRecord, reason: &str) {
        self.open.borrow_mut().remove(&record.number);
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
        // A loop that never rests still tells what it did.
        log::hand_over();
        let config = self.server.config();
        let (idle, write) = (config.global.idle_timeout, config.global.write_timeout);
        let request = config.global.client_limits.request_seconds;
        let turn = self.sweeps.get().wrapping_add(1);
        self.sweeps.set(turn);
        if idle == 0 && write == 0 && (request == 0 || !turn.is_multiple_of(SWEEPS_FOR_REQUESTS)) {
            return;
        }
        let now = self.server.clock.monotonic();
        let passed = |since: Monotonic, limit: u32| {
            limit > 0 && now.0.saturating_sub(since.0) / NANOS_A_SECOND >= limit.into()
        };
        for handle in self.open.borrow().values() {
            let reason = match handle.blocked_since.get() {
                Some(since) if passed(since, write) => "writetimeout",
                _ if handle.unfinished.get().is_some_and(|(since, _)| passed(since, request)) => {
                    "unfinished request"
                }
                None if handle.pending.get() == 0 && passed(handle.last_activity.get(), idle) => {
                    "idletimeout"
                }
                _ => continue,
            };
            // A connection that just closed by itself needs no event.
            let _ = handle.events.send(ConnectionEvent::TimedOut(reason));
        }
    }

    async fn stop(&self) {
        for handle in self.open.borrow().values() {
            let _ = handle.events.send(ConnectionEvent::Stop);
        }
        let deadline = now() + STOP_GRACE;
        while !self.open.borrow().is_empty() && now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Where the worker serves one client alone, a change is carried out on this thread, and nobody waits for its commit but
    /// who asked for it. A client that comes meanwhile does, once.
    fn carry_out_kept(&self) {
        let alone = self.count.load(Ordering::Relaxed) == 1;
        if write::is_keeping() {
            if alone {
                lmdb::release_snapshots();
                write::carry_out_kept();
            } else {
                write::hand_over_kept();
            }
        }
        write::may_keep(alone);
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

/// Why a connection's task ends before its turn says so.
enum Ended {
    /// The other side is gone.
    Lost,
    /// We end it, for this reason.
    Because(&'static str),
}

/// What a connection's task waited for.
enum Happened {
    Event(Option<ConnectionEvent>),
    /// So many bytes are in the worker's buffer.
    Read(usize),
    Writable,
    Lost,
}

/// The task that serves one connection.
struct Task<'c> {
    core: &'c Core,
    stream: Stream,
    /// What stands between the socket and the connection; nothing on most.
    layers: Option<Box<Layers>>,
    /// When patience with a handshake ends.
    handshake_until: Option<Instant>,
    connection: Connection<Dispatcher>,
    events: UnboundedReceiver<ConnectionEvent>,
    handle: Rc<Handle>,
}

impl Task<'_> {
    /// Serves until the end; the reason for the log, empty when the client ended it as it should.
    async fn serve(self) -> &'static str {
        let reason = self.serve_to_the_end().await;
        write::hand_over_kept();
        reason
    }

    async fn serve_to_the_end(mut self) -> &'static str {
        let mut turn = Turn::Idle;
        loop {
            let ready = match self.connection.is_changing_layers() {
                true => self.change_layers().and_then(|()| self.flush()),
                false => self.flush(),
            };
            let next = match ready {
                Err(ended) => Err(ended),
                Ok(()) => match turn {
                    Turn::Close if !self.owes_output() => break,
                    Turn::More => self.go_on().await,
                    // The output was full when the turn ended, and all of it has just been sent.
                    Turn::Idle if self.connection.has_work() => self.go_on().await,
                    Turn::Close | Turn::Idle => self.wait(turn).await,
                },
            };
            match next {
                Ok(next) => turn = next,
                Err(Ended::Lost) => return "connection lost",
                Err(Ended::Because(reason)) => return reason,
            }
        }
        if let Some(layers) = &mut self.layers {
            layers.close();
            // The last word of TLS; a socket that takes nothing now does not get it.
            let _ = layers.flush(&mut Writer(&self.stream));
        }
        self.connection.service().close_reason()
    }

    /// Others have their turn; then what came meanwhile, or just another one.
    async fn go_on(&mut self) -> Result<Turn, Ended> {
        write::hand_over_kept();
        write::may_keep(false);
        tokio::task::yield_now().await;
        let mut turn = None;
        while let Ok(event) = self.events.try_recv() {
            turn = Some(self.take_event(event)?);
        }
        if self.connection.wants_input()
            && let Some(count) = self.read()?
        {
            return self.take_input(count).await;
        }
        Ok(turn.unwrap_or_else(|| {
            self.lend();
            self.connection.resume()
        }))
    }

    /// Waits for input, an event, or room to write.
    async fn wait(&mut self, turn: Turn) -> Result<Turn, Ended> {
        if let Some(buffer) = self.connection.return_output() {
            self.core.return_buffer(buffer);
        }
        self.handle.pending.set(self.connection.pending());
        self.note_unfinished();
        self.core.carry_out_kept();
        let reads = turn == Turn::Idle && self.connection.wants_input();
        let writes = self.owes_output();
        let handshake_until = self.handshake_until;
        let happened = std::future::poll_fn(|context| self.poll(context, reads, writes));
        let happened = match turn {
            // With nothing to wait for but the client's reading of its last answers, patience ends.
            Turn::Close => match tokio::time::timeout(LINGER, happened).await {
                Ok(happened) => happened,
                Err(_) => return Err(Ended::Because("slow client")),
            },
            _ => match handshake_until {
                None => happened.await,
                Some(until) => match tokio::time::timeout_at(until.into(), happened).await {
                    Ok(happened) => happened,
                    Err(_) => return Err(Ended::Because("TLS handshake timeout")),
                },
            },
        };
        match happened {
            Happened::Event(Some(event)) => {
                let next = self.take_event(event)?;
                Ok(if turn == Turn::Close { turn } else { next })
            }
            Happened::Event(None) | Happened::Lost => Err(Ended::Lost),
            Happened::Read(count) => {
                self.lend();
                self.take_input(count).await
            }
            // Only what is left to send matters now; the flush comes next.
            Happened::Writable if turn == Turn::Close => Ok(turn),
            Happened::Writable => {
                self.flush()?;
                self.lend();
                Ok(self.connection.resume())
            }
        }
    }

    /// What comes first of what is waited for. Input is in the worker's buffer then.
    fn poll(&mut self, context: &mut Context<'_>, reads: bool, writes: bool) -> Poll<Happened> {
        if let Poll::Ready(event) = self.events.poll_recv(context) {
            return Poll::Ready(Happened::Event(event));
        }
        if reads {
            let mut buffer = self.core.read_buffer.borrow_mut();
            let mut buffer = ReadBuf::new(&mut buffer);
            // Unlike reading until nothing is there, this takes a read that does not fill the buffer for the last one:
            // a system call less for each request.
            match self.stream.poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) => return Poll::Ready(Happened::Read(buffer.filled().len())),
                Poll::Ready(Err(_)) => return Poll::Ready(Happened::Lost),
                Poll::Pending => {}
            }
        }
        if writes {
            match self.stream.poll_write_ready(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(Happened::Writable),
                Poll::Ready(Err(_)) => return Poll::Ready(Happened::Lost),
                Poll::Pending => {}
            }
        }
        Poll::Pending
    }

    /// Notes since when the client owes the rest of a request. Once it is authenticated it may take its time.
    fn note_unfinished(&self) {
        let unfinished = self.connection.unfinished_request();
        let unfinished = unfinished.filter(|_| !self.connection.service().session.is_authenticated());
        self.handle.unfinished.set(unfinished.map(|number| match self.handle.unfinished.get() {
            Some(before) if before.1 == number => before,
            _ => (self.handle.last_activity.get(), number),
        }));
    }

    fn take_event(&mut self, event: ConnectionEvent) -> Result<Turn, Ended> {
        self.lend();
        match event {
            ConnectionEvent::Completed(serial, completion) => {
                Ok(self.connection.complete(serial, *completion))
            }
            ConnectionEvent::Returned(serial, returned) => Ok(self.connection.returned(serial, *returned)),
            ConnectionEvent::Changed(serial) => Ok(self.connection.wake(serial)),
            ConnectionEvent::TimedOut(reason) => Err(Ended::Because(reason)),
            ConnectionEvent::Stop => {
                self.connection.service_mut().close_because("slapd shutdown");
                let result = LdapResult::with(ResultCode::UNAVAILABLE, "the server is shutting down");
                Ok(self.connection.stop(result))
            }
        }
    }

    /// Reads once. `None`: nothing is there.
    fn read(&mut self) -> Result<Option<usize>, Ended> {
        self.lend();
        let read = self.stream.try_read(&mut self.core.read_buffer.borrow_mut());
        match read {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(_) => Err(Ended::Lost),
        }
    }

    /// Hands over the first `count` bytes of the worker's buffer; none is the end of the input.
    async fn take_input(&mut self, count: usize) -> Result<Turn, Ended> {
        if count == 0 {
            self.connection.service_mut().close_because("connection lost");
            return Ok(self.connection.input_ended());
        }
        self.connection.service_mut().bytes_arrived();
        self.handle.last_activity.set(self.connection.service().last_activity());
        match &self.layers {
            None => {
                let mut buffer = self.core.read_buffer.borrow_mut();
                let bytes = buffer.get_mut(..count).unwrap_or(&mut []);
                let turn = self.connection.receive(bytes);
                if self.connection.take_had_secrets() {
                    bytes.zeroize();
                }
                Ok(turn)
            }
            Some(layers) if layers.is_handshaking() => self.take_handshake(count).await,
            Some(_) => self.take_protected(count),
        }
    }

    fn take_protected(&mut self, count: usize) -> Result<Turn, Ended> {
        let Some(layers) = &mut self.layers else { return Err(Ended::Lost) };
        let mut plain = self.core.plain.take();
        let received = layers.receive(self.core.read_buffer.borrow().get(..count).unwrap_or(&[]), &mut plain);
        let turn = received.map_err(|error| self.broken(&error)).map(|received| {
            let turn = match plain.is_empty() {
                true => self.connection.resume(),
                false => self.connection.receive(&plain),
            };
            if received.closed { self.input_closed() } else { turn }
        });
        if self.connection.take_had_secrets() {
            plain.zeroize();
        }
        plain.clear();
        if plain.capacity() <= PLAIN_BUFFER_BYTES {
            self.core.plain.replace(plain);
        }
        turn
    }

    /// A handshake's next step, on another thread: a loop has other clients to serve meanwhile.
    async fn take_handshake(&mut self, count: usize) -> Result<Turn, Ended> {
        let Some(mut layers) = self.layers.take() else { return Err(Ended::Lost) };
        let bytes = self.core.read_buffer.borrow().get(..count).unwrap_or(&[]).to_vec();
        let step = tokio::task::spawn_blocking(move || {
            let mut plain = Vec::new();
            let received = layers.receive(&bytes, &mut plain);
            (layers, plain, received)
        });
        let Ok((layers, mut plain, received)) = step.await else { return Err(Ended::Lost) };
        self.layers = Some(layers);
        let received = received.map_err(|error| {
            self.core.server.tls.count(None);
            self.broken(&error)
        })?;
        if let Some(facts) = received.established {
            self.handshake_until = None;
            self.core.server.tls.count(Some(&facts));
            self.connection.service_mut().tls_established(facts);
        }
        let turn = match plain.is_empty() {
            true => self.connection.resume(),
            false => self.connection.receive(&plain),
        };
        if self.connection.take_had_secrets() {
            plain.zeroize();
        }
        Ok(if received.closed { self.input_closed() } else { turn })
    }

    /// The client said in TLS that it sends no more.
    fn input_closed(&mut self) -> Turn {
        self.connection.service_mut().close_because("connection lost");
        self.connection.input_ended()
    }

    /// What came cannot be trusted. The other side is told what TLS has to say about it.
    fn broken(&mut self, error: &LayersError) -> Ended {
        self.connection.service().log_broken_layer(error);
        if let Some(layers) = &mut self.layers {
            let _ = layers.flush(&mut Writer(&self.stream));
        }
        Ended::Because(error.reason())
    }

    /// What is in the output goes out as until now; what comes after it in the new way.
    fn change_layers(&mut self) -> Result<(), Ended> {
        let change = self.connection.service_mut().layer_change.take();
        let layers = self.layers.get_or_insert_default();
        let before = self.connection.output();
        let count = before.len();
        match change {
            Some(LayerChange::Tls) => return self.start_tls(),
            Some(LayerChange::Sasl(layer)) => {
                if let Err(error) = layers.install(layer, before) {
                    return Err(self.broken(&error));
                }
            }
            None => {
                if let Err(error) = layers.send(before) {
                    return Err(self.broken(&error));
                }
            }
        }
        add(&self.core.counters.bytes_sent, count as u64);
        self.connection.sent(count);
        self.connection.layers_changed();
        Ok(())
    }

    /// TLS begins: what is in the output still goes out in the clear.
    fn start_tls(&mut self) -> Result<(), Ended> {
        let Some(state) = self.core.server.tls.current() else { return Err(Ended::Because(NO_TLS)) };
        let before = self.connection.output();
        let count = before.len();
        self.layers.get_or_insert_default().start_tls(TlsSession::new(state), before);
        self.handshake_until = Some(now() + HANDSHAKE_TIMEOUT);
        add(&self.core.counters.bytes_sent, count as u64);
        self.connection.sent(count);
        self.connection.layers_changed();
        Ok(())
    }

    /// Whether the client has not got all of its answers.
    fn owes_output(&self) -> bool {
        match &self.layers {
            None => !self.connection.output().is_empty(),
            // What is to go through a handshake that is not done cannot go.
            Some(layers) => {
                layers.wants_write() || !(layers.is_handshaking() || self.connection.output().is_empty())
            }
        }
    }

    /// Sends what can be sent without waiting.
    fn flush(&mut self) -> Result<(), Ended> {
        if self.layers.is_some() {
            return self.flush_layers();
        }
        while !self.connection.output().is_empty() {
            match self.stream.try_write(self.connection.output()) {
                Ok(count) => {
                    add(&self.core.counters.bytes_sent, count as u64);
                    self.connection.sent(count);
                    self.handle.blocked_since.set(None);
                }
                Err(error) => return self.not_written(&error),
            }
        }
        Ok(())
    }

    /// The same through the layers. They are given more only when all they had is sent: what they hold is bounded by
    /// what a connection's output holds.
    fn flush_layers(&mut self) -> Result<(), Ended> {
        let Some(layers) = &mut self.layers else { return Ok(()) };
        loop {
            if layers.wants_write() {
                match layers.flush(&mut Writer(&self.stream)) {
                    Ok(()) => self.handle.blocked_since.set(None),
                    Err(error) => return self.not_written(&error),
                }
            }
            let output = self.connection.output();
            let count = output.len();
            if count == 0 || layers.is_handshaking() {
                return Ok(());
            }
            if let Err(error) = layers.send(output) {
                return Err(self.broken(&error));
            }
            add(&self.core.counters.bytes_sent, count as u64);
            self.connection.sent(count);
        }
    }

    fn not_written(&self, error: &io::Error) -> Result<(), Ended> {
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(Ended::Lost);
        }
        if self.handle.blocked_since.get().is_none() {
            self.handle.blocked_since.set(Some(self.core.server.clock.monotonic()));
        }
        Ok(())
    }

    fn lend(&mut self) {
        if self.connection.needs_output() {
            self.connection.lend_output(self.core.take_buffer());
        }
    }
}
