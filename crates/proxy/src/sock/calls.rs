//! Requests on their way to the program: a few threads for each database, each with one connection at a time. A program that hangs
//! costs a request its deadline, and other databases nothing.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larix_backend::Done;
use larix_engine::time::{Clock, Monotonic};
use larix_proto::{LdapResult, ResultCode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use zeroize::Zeroizing;

use super::answer_filter::AnswerFilter;
use super::text::{Answer, AnswerFault, SocketResponse};
use crate::job::Feed;

/// Requests that are with the program at a time: as many as a slapd has threads.
const THREADS_MAX: usize = 16;
/// Requests that wait for one of them.
const WAITING_MAX: usize = 1_000;
/// The text of all of these together, bytes. A longer request waits where no other does.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// A thread without a request ends after this time.
const IDLE: Duration = Duration::from_secs(10);
/// How long the program may take for an operation that is no search; of a search, for its next entry.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take no entries while more wait.
const SLOW_CLIENT: Duration = Duration::from_secs(30);

/// Says something to the log.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// A request.
pub(super) struct Call {
    pub(super) text: Zeroizing<Vec<u8>>,
    /// When it began.
    pub(super) began: Monotonic,
    pub(super) sink: Sink,
    pub(super) state: Arc<CallState>,
}

/// Where the answer goes.
pub(super) enum Sink {
    Once(Done<ProgramAnswer>),
    /// Entries of a search.
    Entries(Box<AnswerFilter>, FeedEnd),
}

/// What the program answers to an operation that is no search.
#[derive(Debug)]
pub(super) enum ProgramAnswer {
    Result(LdapResult),
    /// It has had the operation, and no answer that can be used came: what the client gets.
    Lost(LdapResult),
    /// The operation is to go on behind it.
    Continue,
}

/// A feed that ends with an error if nothing else ends it.
#[derive(Debug)]
pub(super) struct FeedEnd(pub(super) Arc<Feed>);

impl Drop for FeedEnd {
    fn drop(&mut self) {
        self.0.end((LdapResult::internal_error(), Vec::new()));
    }
}

impl fmt::Debug for Call {
    /// Without its text: there may be a password in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("began", &self.began).finish_non_exhaustive()
    }
}

/// A request that may be given up.
#[derive(Debug, Default)]
pub(super) struct CallState {
    given_up: AtomicBool,
    /// The program lets the search go on behind it.
    goes_on: AtomicBool,
    stream: Mutex<Option<UnixStream>>,
    /// Notified when a feed has room again, and when the request is given up.
    room: (Mutex<()>, Condvar),
}

impl CallState {
    /// Nobody waits for the answer: the connection closes.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        if let Some(stream) = self.stream.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            // One that is closed already needs no end.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.has_room();
    }

    /// The client has taken entries.
    pub(super) fn has_room(&self) {
        drop(self.room.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.room.1.notify_all();
    }

    /// Whether the program has let the search go on behind it.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on.load(Ordering::Acquire)
    }

    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Waits until the feed has room.
    fn wait_for_room(&self, feed: &Feed) -> Result<(), LdapResult> {
        let mut lock = self.room.0.lock().unwrap_or_else(PoisonError::into_inner);
        while feed.is_full() && !self.is_given_up() {
            let waited = self.room.1.wait_timeout(lock, SLOW_CLIENT);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            lock = next;
            if timeout.timed_out() && feed.is_full() {
                let text = "the client did not take the entries that wait for it";
                return Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text));
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Queue {
    calls: VecDeque<Call>,
    /// The text of all that wait.
    bytes: usize,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl Queue {
    fn has_room(&self, call: &Call) -> bool {
        let bytes = self.bytes.saturating_add(call.text.len());
        self.calls.is_empty() || (self.calls.len() < WAITING_MAX && bytes <= WAITING_BYTES_MAX)
    }

    fn push(&mut self, call: Call) {
        self.bytes += call.text.len();
        self.calls.push_back(call);
    }

    fn pop(&mut self) -> Option<Call> {
        let call = self.calls.pop_front()?;
        self.bytes -= call.text.len();
        Some(call)
    }
}

struct Shared {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    tell: Tell,
    /// [`PATIENCE`], but in tests.
    patience: Duration,
    /// Something stands behind the program where operations may go on.
    may_continue: bool,
    /// The program could not be reached the last time: said once.
    is_away: AtomicBool,
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// The threads of one database.
pub(super) struct Calls(Arc<Shared>);

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.wake.notify_all();
    }
}

impl Calls {
    pub(super) fn new(
        (path, may_continue): (&Path, bool),
        clock: Arc<dyn Clock>,
        tell: Tell,
        patience: Duration,
    ) -> Self {
        Self(Arc::new(Shared {
            path: path.to_owned(),
            clock,
            tell,
            patience,
            may_continue,
            is_away: AtomicBool::new(false),
            queue: Mutex::default(),
            wake: Condvar::new(),
        }))
    }

    /// Hands a request over; one that there is no room for is answered at once.
    pub(super) fn submit(&self, call: Call) {
        let mut queue = self.0.lock();
        let needs_thread = queue.idle <= queue.calls.len() && queue.threads < THREADS_MAX;
        if needs_thread {
            let shared = Arc::clone(&self.0);
            match std::thread::Builder::new().name("sock".to_owned()).spawn(move || shared.serve()) {
                Ok(_) => queue.threads += 1,
                // Another one takes it, if there is one.
                Err(_) if queue.threads > 0 => {}
                Err(_) => {
                    drop(queue);
                    return call.sink.end(busy());
                }
            }
        }
        if !queue.has_room(&call) {
            drop(queue);
            return call.sink.end(busy());
        }
        queue.push(call);
        drop(queue);
        self.0.wake.notify_one();
    }
}

fn busy() -> LdapResult {
    LdapResult::with(ResultCode::BUSY, "too many requests wait for the program behind the socket")
}

impl Sink {
    fn end(self, result: LdapResult) {
        match self {
            Self::Once(done) => done(ProgramAnswer::Result(result)),
            Self::Entries(_, feed) => feed.0.end((result, Vec::new())),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Every change of it is whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread does.
    fn serve(&self) {
        while let Some(call) = self.next() {
            // A panic ends one request: its sink is dropped, and that answers it.
            let _ = catch_unwind(AssertUnwindSafe(|| self.carry_out(call)));
        }
    }

    /// The next request; none: the thread ends.
    fn next(&self) -> Option<Call> {
        let mut queue = self.lock();
        loop {
            if let Some(call) = queue.pop() {
                return Some(call);
            }
            if queue.is_closed {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            let (waited, timeout) =
                self.wake.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = waited;
            queue.idle -= 1;
            if timeout.timed_out() && queue.calls.is_empty() {
                queue.threads -= 1;
                return None;
            }
        }
    }

    /// How long the program may still take for what began then; none: no longer.
    fn remaining(&self, began: Monotonic) -> Option<Duration> {
        let passed = Duration::from_nanos(self.clock.monotonic().0.saturating_sub(began.0));
        self.patience.checked_sub(passed).filter(|remaining| !remaining.is_zero())
    }

    fn carry_out(&self, call: Call) {
        let Call { text, began, sink, state } = call;
        if state.is_given_up() {
            return sink.end(LdapResult::new(ResultCode::CANCELED));
        }
        match self.ask(&text, began, &state) {
            Ok(stream) => match sink {
                Sink::Once(done) => done(self.one_result(&stream, began)),
                Sink::Entries(filter, feed) => {
                    let result = self.entries(&stream, *filter, &feed.0, &state);
                    feed.0.end((result, Vec::new()));
                }
            },
            Err(result) => sink.end(result),
        }
        // What stays behind in the state is closed.
        state.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Connects, and writes the request.
    fn ask(&self, text: &[u8], began: Monotonic, state: &CallState) -> Result<UnixStream, LdapResult> {
        let Some(remaining) = self.remaining(began) else { return Err(late()) };
        let connected = connect(&self.path, remaining).and_then(|mut stream| {
            *state.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream.try_clone()?);
            stream.write_all(text).map(|()| stream)
        });
        let was_away = self.is_away.swap(connected.is_err(), Ordering::Relaxed);
        match connected {
            Ok(stream) => {
                if was_away {
                    (self.tell)(&format!("socketpath \"{}\": answers again", self.path.display()));
                }
                Ok(stream)
            }
            Err(_) if state.is_given_up() => Err(LdapResult::new(ResultCode::CANCELED)),
            Err(error) => {
                if !was_away {
                    (self.tell)(&format!("socketpath \"{}\": {error}", self.path.display()));
                }
                let text = "the program behind the socket cannot be reached";
                Err(LdapResult::with(ResultCode::UNAVAILABLE, text))
            }
        }
    }

    fn one_result(&self, stream: &UnixStream, began: Monotonic) -> ProgramAnswer {
        let remaining = || self.remaining(began).ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut));
        let mut answer = Answer::new(BufReader::new(Patient { stream, remaining }));
        ProgramAnswer::Lost(match answer.next() {
            Ok(SocketResponse::Result(result)) => return ProgramAnswer::Result(result),
            Ok(SocketResponse::Continue) if self.may_continue => return ProgramAnswer::Continue,
            Ok(SocketResponse::Continue) => self.lie(&nothing_behind()),
            Ok(SocketResponse::Entry(dn, _)) => {
                self.lie(&AnswerFault::Text(format!("it has the entry \"{dn}\", and was asked for none")))
            }
            Err(fault) => self.lie(&fault),
        })
    }

    /// Passes entries on, and answers how the search ends.
    fn entries(
        &self,
        stream: &UnixStream,
        mut filter: AnswerFilter,
        feed: &Feed,
        state: &CallState,
    ) -> LdapResult {
        let remaining = || Ok(self.patience);
        let mut answer = Answer::new(BufReader::new(Patient { stream, remaining }));
        loop {
            if state.is_given_up() {
                return LdapResult::new(ResultCode::CANCELED);
            }
            match answer.next() {
                Ok(SocketResponse::Entry(dn, attributes)) => match filter.message(&dn, attributes) {
                    Ok(Some(message)) => {
                        feed.add(message);
                        feed.tell();
                        if let Err(slow) = state.wait_for_room(feed) {
                            return slow;
                        }
                    }
                    Ok(None) => {}
                    Err(ended) => return ended,
                },
                Ok(SocketResponse::Result(result)) => return result,
                Ok(SocketResponse::Continue) if self.may_continue => {
                    state.goes_on.store(true, Ordering::Release);
                    return LdapResult::success();
                }
                Ok(SocketResponse::Continue) => return self.lie(&nothing_behind()),
                Err(fault) => return self.lie(&fault),
            }
        }
    }

    /// The answer where the program's is none. The log says what was wrong.
    fn lie(&self, fault: &AnswerFault) -> LdapResult {
        let path = self.path.display();
        let is_late =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        match fault {
            AnswerFault::Io(error) if is_late(error) => {
                (self.tell)(&format!("socketpath \"{path}\": no answer within {:?}", self.patience));
                late()
            }
            AnswerFault::Io(error) => {
                (self.tell)(&format!("socketpath \"{path}\": the answer cannot be read: {error}"));
                broken()
            }
            AnswerFault::Text(text) => {
                (self.tell)(&format!("socketpath \"{path}\": no answer of slapd-sock(5): {text}"));
                broken()
            }
        }
    }
}

fn nothing_behind() -> AnswerFault {
    let text = "it says CONTINUE, and nothing stands behind a database that would go on";
    AnswerFault::Text(text.to_owned())
}

fn late() -> LdapResult {
    LdapResult::with(ResultCode::UNAVAILABLE, "the program behind the socket does not answer")
}

fn broken() -> LdapResult {
    LdapResult::with(ResultCode::OTHER, "the answer of the program behind the socket cannot be used")
}

/// Connects within a time, which counts for writing, too.
pub(super) fn connect(path: &Path, remaining: Duration) -> io::Result<UnixStream> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    // A program that takes no connections lets this one wait as long as for writing.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(remaining))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// A connection that is read as long as time is left.
#[derive(Debug)]
struct Patient<'a, F> {
    stream: &'a UnixStream,
    remaining: F,
}

impl<F: Fn() -> io::Result<Duration>> Read for Patient<'_, F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some((self.remaining)()?))?;
        let mut stream = self.stream;
        stream.read(bytes)
    }
}
