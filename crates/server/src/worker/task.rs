//! The task that serves one connection: it takes input and events, gives the connection its turn, and sends the answers.
//!
//! It waits in one place ([`Task::wait`]), and hands over before what it has deferred for others.

mod large;
mod protected;

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use larix_engine::time::Clock;
use larix_engine::writer;
use larix_proto::{LdapResult, ResultCode};
use tokio::io::ReadBuf;
use tokio::sync::mpsc::UnboundedReceiver;

use super::deadlines::Handle;
use super::{ConnectionEvent, Core, READ_BYTES};
use crate::connection::{Connection, Turn};
use crate::dispatch::Dispatcher;
use crate::input::overwrite;
use crate::layers::Layers;
use crate::statistics::add;
use crate::stream::{Stream, Writer};
use large::TaskConnection;

/// How long a client may take to read its last answers once this side closes the connection.
const LINGER: Duration = Duration::from_secs(5);

/// How many changes of a client that does not wait for its answers go to other threads, so that its next requests do not wait for commits.
const UNAWAITED_CHANGES: u32 = 1_000;

/// Why a connection's task ends before its turn says so.
enum TaskEnd {
    /// The client is gone.
    Lost,
    /// The server ends it, for this reason.
    Because(&'static str),
}

impl TaskEnd {
    /// As the log says it.
    fn reason(self) -> &'static str {
        match self {
            Self::Lost => "connection lost",
            Self::Because(reason) => reason,
        }
    }
}

/// What ended a task's wait.
enum TaskEvent {
    Event(Option<ConnectionEvent>),
    /// So many bytes are in the worker's buffer.
    Read(usize),
    Writable,
    Lost,
}

/// The task that serves one connection.
pub(super) struct Task<'c> {
    core: &'c Core,
    stream: Stream,
    /// TLS and SASL layers between socket and connection; most connections have none.
    layers: Option<Box<Layers>>,
    /// The deadline of a handshake.
    handshake_until: Option<Instant>,
    connection: TaskConnection,
    events: UnboundedReceiver<ConnectionEvent>,
    handle: Rc<Handle>,
    /// The next so many changes do not make the thread leave its loop.
    unawaited: u32,
}

/// The turn after a search was woken. Many searches may wait for the same change, and other connections have their turns between theirs.
fn before_the_next_woken(turn: Turn) -> Turn {
    if turn == Turn::Idle { Turn::More } else { turn }
}

impl<'c> Task<'c> {
    pub(super) fn new(
        core: &'c Core,
        stream: Stream,
        dispatcher: Dispatcher,
        events: UnboundedReceiver<ConnectionEvent>,
        handle: Rc<Handle>,
    ) -> Self {
        let connection = TaskConnection::new(Connection::new(dispatcher));
        Self { core, stream, layers: None, handshake_until: None, connection, events, handle, unawaited: 0 }
    }

    /// Serves until the end. Answers its reason for the log, empty after an unbind. `tls`: from the first byte on.
    pub(super) async fn serve(mut self, tls: bool) -> &'static str {
        if tls && let Err(ended) = self.start_tls() {
            return ended.reason();
        }
        let reason = self.serve_to_the_end().await;
        writer::hand_over_deferred();
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
                    Turn::More | Turn::Idle if self.connection.has_large_next() => self.start_large().await,
                    Turn::More => self.go_on().await,
                    // The output was full when the turn ended, and all of it has just been sent.
                    Turn::Idle if self.connection.has_work() => self.go_on().await,
                    Turn::Close | Turn::Idle => self.wait(turn).await,
                },
            };
            match next {
                Ok(next) => turn = next,
                Err(ended) => return ended.reason(),
            }
        }
        if let Some(layers) = &mut self.layers {
            layers.close();
            // The end of TLS (close_notify), unless the socket is full.
            let _ = layers.flush(&mut Writer(&self.stream));
        }
        self.connection.service().close_reason()
    }

    /// Lets other connections have their turn, then takes what came meanwhile or goes on.
    async fn go_on(&mut self) -> Result<Turn, TaskEnd> {
        writer::hand_over_deferred();
        writer::may_defer(false);
        tokio::task::yield_now().await;
        let mut turn = None;
        while let Ok(event) = self.events.try_recv() {
            let woken = matches!(event, ConnectionEvent::Woken(_));
            turn = Some(self.take_event(event)?);
            if woken {
                turn = turn.map(before_the_next_woken);
                break;
            }
        }
        if self.connection.wants_input() {
            // Without waiting: what comes later wakes the task.
            let input = std::future::poll_fn(|context| Poll::Ready(self.poll_input(context))).await;
            if let Poll::Ready(read) = input {
                self.lend();
                return self.take_input(read?).await;
            }
        }
        Ok(turn.unwrap_or_else(|| {
            self.lend();
            self.connection.resume()
        }))
    }

    /// Waits for input, an event, or room to write.
    async fn wait(&mut self, turn: Turn) -> Result<Turn, TaskEnd> {
        if let Some(buffer) = self.connection.return_output() {
            self.core.return_buffer(buffer);
        }
        self.handle.note_pending(self.connection.pending());
        let deadline = self.connection.deadline();
        self.handle.note_deadline(deadline);
        self.core.note_deadline(deadline);
        self.note_unfinished();
        let core = self.core;
        core.carry_out_deferred(|| self.waits_for_answer());
        let reads = turn == Turn::Idle && self.connection.wants_input();
        let writes = self.owes_output();
        let handshake_until = self.handshake_until;
        let half_closed = self.connection.is_half_closed();
        let happened = std::future::poll_fn(|context| self.poll(context, reads, writes));
        let happened = match turn {
            // The client has a while to read its last answers. One that has only closed its side may read as slowly as any other.
            Turn::Close if !half_closed => match tokio::time::timeout(LINGER, happened).await {
                Ok(happened) => happened,
                Err(_) => return Err(TaskEnd::Because("slow client")),
            },
            _ => match handshake_until {
                None => happened.await,
                Some(until) => match tokio::time::timeout_at(until.into(), happened).await {
                    Ok(happened) => happened,
                    Err(_) => return Err(TaskEnd::Because("TLS handshake timeout")),
                },
            },
        };
        match happened {
            TaskEvent::Event(Some(event)) => {
                let woken = matches!(event, ConnectionEvent::Woken(_));
                let next = self.take_event(event)?;
                let next = if woken { before_the_next_woken(next) } else { next };
                Ok(if turn == Turn::Close { turn } else { next })
            }
            TaskEvent::Event(None) | TaskEvent::Lost => Err(TaskEnd::Lost),
            TaskEvent::Read(count) => {
                self.lend();
                self.take_input(count).await
            }
            // Only the rest of the output matters now; the flush comes next.
            TaskEvent::Writable if turn == Turn::Close => Ok(turn),
            TaskEvent::Writable => {
                self.flush()?;
                self.lend();
                Ok(self.connection.resume())
            }
        }
    }

    /// The first of the awaited events. Input is then in the worker's buffer.
    fn poll(&mut self, context: &mut Context<'_>, reads: bool, writes: bool) -> Poll<TaskEvent> {
        if let Poll::Ready(event) = self.events.poll_recv(context) {
            return Poll::Ready(TaskEvent::Event(event));
        }
        if reads {
            match self.poll_input(context) {
                Poll::Ready(Ok(count)) => return Poll::Ready(TaskEvent::Read(count)),
                Poll::Ready(Err(_)) => return Poll::Ready(TaskEvent::Lost),
                Poll::Pending => {}
            }
        }
        if writes {
            match self.stream.poll_write_ready(context) {
                Poll::Ready(Ok(())) => return Poll::Ready(TaskEvent::Writable),
                Poll::Ready(Err(_)) => return Poll::Ready(TaskEvent::Lost),
                Poll::Pending => {}
            }
        }
        Poll::Pending
    }

    /// Whether the client waits for one change, and for nothing else. Earlier answers must be sent, for nothing could be sent meanwhile.
    fn waits_for_answer(&mut self) -> bool {
        if self.unawaited > 0 {
            self.unawaited -= 1;
            return false;
        }
        self.connection.pending() == 1 && !self.owes_output()
    }

    /// Notes a client that sent something before it had the answer to a change for which the thread left its loop.
    fn note_unawaited(&mut self) {
        if self.core.was_left.take() && self.stream.has_input() {
            self.unawaited = UNAWAITED_CHANGES;
        }
    }

    /// Notes since when a request is incomplete. An authenticated client may take its time.
    fn note_unfinished(&self) {
        let unfinished = self.connection.unfinished_request();
        self.handle
            .note_unfinished(unfinished.filter(|_| !self.connection.service().session.is_authenticated()));
    }

    fn take_event(&mut self, event: ConnectionEvent) -> Result<Turn, TaskEnd> {
        self.lend();
        match event {
            ConnectionEvent::Completed(serial, completion) => {
                self.note_unawaited();
                Ok(self.connection.complete(serial, *completion))
            }
            ConnectionEvent::Returned(serial, returned) => Ok(self.connection.returned(serial, *returned)),
            ConnectionEvent::Woken(serial) => Ok(self.connection.wake(serial)),
            ConnectionEvent::Expired => Ok(self.connection.expire(self.core.server.clock.monotonic())),
            ConnectionEvent::TimedOut(reason) => Err(TaskEnd::Because(reason)),
            ConnectionEvent::Message(message) => Ok(self.connection.add_message(&message)),
            ConnectionEvent::HangUp => {
                self.connection.service_mut().close_because("closed by an overlay");
                Ok(Turn::Close)
            }
            ConnectionEvent::Stop => {
                self.connection.service_mut().close_because("slapd shutdown");
                let result = LdapResult::with(ResultCode::UNAVAILABLE, "the server is shutting down");
                Ok(self.connection.stop(result))
            }
        }
    }

    /// Reads once into the worker's buffer; how many bytes. A read that does not fill the buffer counts as the last one until the
    /// loop hears of more, which saves a system call for each request.
    fn poll_input(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, TaskEnd>> {
        let mut buffer = self.core.read_buffer.borrow_mut();
        let mut buffer = ReadBuf::new(&mut buffer);
        let read = self.stream.poll_read(context, &mut buffer);
        read.map(|read| read.map(|()| buffer.filled().len()).map_err(|_| TaskEnd::Lost))
    }

    /// Takes the first `count` bytes of the worker's buffer; 0 is the end of the input. After a full buffer, other connections have their
    /// turn before the rest is read.
    async fn take_input(&mut self, count: usize) -> Result<Turn, TaskEnd> {
        let turn = self.take_bytes(count).await?;
        Ok(if turn == Turn::Idle && count == READ_BYTES { Turn::More } else { turn })
    }

    async fn take_bytes(&mut self, count: usize) -> Result<Turn, TaskEnd> {
        if count == 0 {
            self.connection.service_mut().close_because("connection lost");
            return Ok(self.connection.input_ended());
        }
        self.connection.service_mut().bytes_arrived();
        self.handle.note_activity(self.connection.service().last_activity());
        match &self.layers {
            None => {
                let mut buffer = self.core.read_buffer.borrow_mut();
                let bytes = buffer.get_mut(..count).unwrap_or(&mut []);
                let turn = self.connection.receive(bytes);
                if self.connection.take_had_secrets() {
                    overwrite(bytes);
                }
                Ok(turn)
            }
            Some(layers) if layers.is_handshaking() => self.take_handshake(count).await,
            Some(_) => self.take_protected(count),
        }
    }

    /// Whether answers are not sent yet.
    fn owes_output(&self) -> bool {
        match &self.layers {
            None => !self.connection.output().is_empty(),
            // Answers cannot go before the handshake is done.
            Some(layers) => {
                layers.wants_write() || !(layers.is_handshaking() || self.connection.output().is_empty())
            }
        }
    }

    /// Sends what the socket takes without waiting.
    fn flush(&mut self) -> Result<(), TaskEnd> {
        if self.layers.is_some() {
            return self.flush_layers();
        }
        while !self.connection.output().is_empty() {
            match self.stream.try_write(self.connection.output()) {
                Ok(count) => {
                    add(&self.core.counters.bytes_sent, count as u64);
                    self.connection.sent(count);
                    self.handle.note_taken();
                }
                Err(error) => return self.not_written(&error),
            }
        }
        Ok(())
    }

    fn not_written(&self, error: &io::Error) -> Result<(), TaskEnd> {
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(TaskEnd::Lost);
        }
        self.handle.note_blocked(self.core.server.clock.monotonic());
        Ok(())
    }

    fn lend(&mut self) {
        if self.connection.needs_output() {
            self.connection.lend_output(self.core.take_buffer());
        }
    }
}
