//! A request on its way to a target, and where its answers go.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use larix_backend::{Done, End};
use larix_client::Credentials;
use larix_engine::log::Follower;
use larix_proto::ber::{Reader, Tag, write};
use larix_proto::{ControlBuf, LdapResult, MessageId, ResultCode, limits};
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use crate::cookie::Page;
use crate::settings::Kind;

/// Bytes of answers to one search that wait for its client: above it nothing more is read for it, where it is alone on its connection.
pub(crate) const FEED_HIGH: usize = 256 * 1024;
/// Bytes above which a search ends whose client does not take its answers while others wait on the same connection.
pub(crate) const FEED_MAX: usize = 8 * 1024 * 1024;

/// The thread ends a request so long after its client was answered that it takes too long.
pub(crate) const LATER: Duration = Duration::from_secs(2);

/// Bodies are encoded with this id, which is left out of them.
pub(crate) const ANY: MessageId = MessageId(1);

/// How often a request is sent elsewhere.
const TRIES_MAX: u8 = 3;

/// Whose connection a request takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Anonymous,
    /// Of `idassert-bind`.
    Assertion,
    /// Of `acl-bind`.
    Root,
    /// Somebody who has bound through the proxy.
    User(NormalDn),
    /// Nobody's: for binds.
    Spare,
    /// Nobody's: for the health checks of this target.
    Check(usize),
}

/// How a search is to be sorted (RFC 2891).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sorting {
    None,
    Whole,
    /// A part is asked for (VLV): a server may keep the whole with the connection.
    Part,
}

/// A request and its number.
pub(crate) type Numbered = (u64, Box<Job>);

/// A request.
pub(crate) struct Job {
    pub(crate) owner: Owner,
    /// What a connection of this owner is bound with, where it can be opened without the client.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) kind: Kind,
    /// The operation and its controls, without the envelope.
    pub(crate) body: Zeroizing<Vec<u8>>,
    /// When it is given up, whatever comes.
    pub(crate) deadline: Option<Duration>,
    /// Nobody waits for it any more; what becomes of it is waited for until then.
    pub(crate) alone_until: Option<Duration>,
    /// How long a search may be without an answer.
    pub(crate) patience: Option<Duration>,
    pub(crate) entries_max: Option<u32>,
    /// It changes nothing: it may be sent once more where the connection is lost.
    pub(crate) is_repeatable: bool,
    /// The client's message id, which the answers to a search get.
    pub(crate) message: MessageId,
    /// Of a search that asks for a page.
    pub(crate) page: Option<Page>,
    pub(crate) sorting: Sorting,
    /// When a target was last sent it.
    pub(crate) sent_at: Duration,
    /// Of a bind: who is bound by it.
    pub(crate) binds: Option<Binds>,
    /// How often it was sent elsewhere.
    pub(crate) tries: u8,
    pub(crate) sink: Sink,
}

impl Job {
    /// One without a limit, which is sent once.
    pub(crate) fn new(owner: Owner, kind: Kind, body: Zeroizing<Vec<u8>>, sink: Sink) -> Self {
        Self {
            owner,
            credentials: None,
            kind,
            body,
            deadline: None,
            alone_until: None,
            patience: None,
            entries_max: None,
            is_repeatable: false,
            message: ANY,
            page: None,
            sorting: Sorting::None,
            sent_at: Duration::ZERO,
            binds: None,
            tries: 0,
            sink,
        }
    }

    /// Whether the target is another one afterwards, or may be.
    pub(crate) const fn is_change(&self) -> bool {
        self.kind.is_change() && !self.is_repeatable
    }

    /// Whether it is larger than servers take it by default, and others may use its connection: a server ends that for it.
    pub(crate) fn is_too_large_to_share(&self) -> bool {
        let limit = match (&self.owner, &self.credentials) {
            (Owner::Anonymous, _) | (Owner::Assertion | Owner::Root, None) => limits::PDU_ANONYMOUS,
            (Owner::Assertion | Owner::Root, Some(_)) => limits::PDU_AUTHENTICATED,
            (Owner::User(_) | Owner::Spare | Owner::Check(_), _) => return false,
        };
        self.body.len() + limits::MESSAGE_ID > limit
    }

    /// The same request with another body, whose answers go elsewhere.
    pub(crate) fn with(&self, body: Zeroizing<Vec<u8>>, sink: Sink) -> Self {
        Self {
            credentials: self.credentials.clone(),
            deadline: self.deadline,
            patience: self.patience,
            entries_max: self.entries_max,
            is_repeatable: self.is_repeatable,
            message: self.message,
            page: self.page,
            sorting: self.sorting,
            ..Self::new(self.owner.clone(), self.kind, body, sink)
        }
    }

    /// Counts one more attempt; whether there may be one.
    pub(crate) const fn tries_left(&mut self) -> bool {
        self.tries += 1;
        self.tries <= TRIES_MAX
    }
}

/// Who is bound when a bind succeeds.
pub(crate) struct Binds {
    pub(crate) dn: NormalDn,
    pub(crate) client: Option<Weak<dyn Any + Send + Sync>>,
    /// To bind again with (`rebind-as-user`).
    pub(crate) password: Option<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Job {
    /// Without its body: there may be a password in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("owner", &self.owner).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Where answers go.
pub(crate) enum Sink {
    /// One answer.
    Once(Done<Outcome>),
    Feed(FeedEnd),
}

/// The end of a feed where answers go in. A search whose request is dropped without a result, by a panic, ends.
#[derive(Debug, Default)]
pub(crate) struct FeedEnd(pub(crate) Arc<Feed>);

impl Deref for FeedEnd {
    type Target = Feed;

    fn deref(&self) -> &Feed {
        &self.0
    }
}

impl Drop for FeedEnd {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            self.0.end((lost(), Vec::new()));
        }
    }
}

/// The result of a request that a panic took.
pub(crate) fn lost() -> LdapResult {
    LdapResult::with(
        ResultCode::UNAVAILABLE,
        "internal error: the request was lost, and the log has the panic",
    )
}

impl Sink {
    pub(crate) fn end(self, result: LdapResult) {
        self.finish(result, false);
    }

    /// Ends what no target has had.
    pub(crate) fn end_unsent(self, result: LdapResult) {
        self.finish(result, true);
    }

    fn finish(self, result: LdapResult, is_unsent: bool) {
        match self {
            Self::Once(done) => done(Outcome { is_unsent, ..result.into() }),
            Self::Feed(feed) => feed.end((result, Vec::new())),
        }
    }
}

/// The one answer to an operation.
pub(crate) struct Outcome {
    pub(crate) result: LdapResult,
    pub(crate) controls: Vec<ControlBuf>,
    /// Of an extended operation.
    pub(crate) value: Option<Vec<u8>>,
    /// No target has had it.
    pub(crate) is_unsent: bool,
    /// The result is a target's own.
    pub(crate) is_of_target: bool,
}

impl From<LdapResult> for Outcome {
    fn from(result: LdapResult) -> Self {
        Self { result, controls: Vec::new(), value: None, is_unsent: false, is_of_target: false }
    }
}

/// Answers to a search, between the thread that reads them and the worker that sends them on.
#[derive(Debug, Default)]
pub(crate) struct Feed(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Whole messages, with the client's message id.
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    end: Option<End>,
    has_ended: bool,
    follower: Option<Arc<Follower>>,
    /// The thread reads no more until it is woken.
    is_full: bool,
    /// Something has come.
    has_begun: bool,
    /// The connection that messages last came over.
    connection: u64,
}

/// What a feed has.
#[derive(Debug)]
pub(crate) enum FeedItem {
    Message(Vec<u8>),
    Nothing,
    End(End),
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A panic of another thread leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds messages that came over a connection; how many bytes wait then.
    pub(crate) fn add_from(&self, connection: u64, messages: Vec<u8>) -> usize {
        self.lock().connection = connection;
        self.add(messages)
    }

    /// Adds messages; how many bytes wait then.
    pub(crate) fn add(&self, messages: Vec<u8>) -> usize {
        let mut waiting = self.lock();
        waiting.bytes += messages.len();
        waiting.has_begun = true;
        waiting.messages.push_back(messages);
        waiting.is_full = waiting.bytes >= FEED_HIGH;
        waiting.bytes
    }

    /// The connection that messages last came over.
    pub(crate) fn connection(&self) -> u64 {
        self.lock().connection
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Whether nothing has come for it yet.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.lock().has_begun
    }

    pub(crate) fn tell(&self) {
        let follower = self.lock().follower.clone();
        follower.into_iter().for_each(|follower| follower.tell());
    }

    pub(crate) fn is_full(&self) -> bool {
        self.lock().is_full
    }

    pub(crate) fn end(&self, end: End) {
        let mut waiting = self.lock();
        waiting.has_ended = true;
        waiting.end.get_or_insert(end);
        drop(waiting);
        self.tell();
    }

    fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Takes what comes next; also whether the thread is to be told that there is room again.
    pub(crate) fn take(&self) -> (FeedItem, bool) {
        let mut waiting = self.lock();
        if let Some(follower) = &waiting.follower {
            follower.looks();
        }
        let item = match waiting.messages.pop_front() {
            Some(messages) => {
                waiting.bytes -= messages.len();
                FeedItem::Message(messages)
            }
            None => match waiting.end.take() {
                Some(end) => FeedItem::End(end),
                None => FeedItem::Nothing,
            },
        };
        let has_room = waiting.is_full && waiting.bytes < FEED_HIGH / 2;
        if has_room {
            waiting.is_full = false;
        }
        (item, has_room)
    }

    pub(crate) fn follow(&self, follower: Arc<Follower>) {
        self.lock().follower = Some(follower);
    }
}

/// The operation and the controls of an encoded message: what stands behind its message id.
pub(crate) fn body(message: &[u8]) -> &[u8] {
    let behind_id = || {
        let mut reader = Reader::new(message).sequence("LDAPMessage").ok()?;
        reader.unsigned("messageID").ok()?;
        let mut rest = reader;
        let first = rest.raw("protocolOp").ok()?;
        // Both are parts of the message.
        let start = first.as_ptr() as usize - message.as_ptr() as usize;
        message.get(start..)
    };
    behind_id().unwrap_or_default()
}

/// Puts the envelope around a body.
pub(crate) fn envelope(out: &mut Vec<u8>, id: MessageId, body: &[u8]) {
    write::constructed(out, Tag::SEQUENCE, |out| {
        write::integer(out, Tag::INTEGER, i64::from(id.0));
        out.extend_from_slice(body);
    });
}
