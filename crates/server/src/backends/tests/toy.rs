//! A backend for tests: it answers when the test says so, from another thread, or never.
//!
//! The first word of a name says what becomes of requests: `stream` is answered with entries without end, `fail` with an error,
//! `lose` with nothing at all, as after a panic. Everything else waits until the test takes it by [`Toy::next`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_engine::write::Completion;
use larix_proto::encode::EntryEncoder;
use larix_proto::{LdapResult, MessageId, ResultCode};
use larix_schema::NormalDn;

use larix_backend::{
    Announcement, Backend, Bind, Changes, Compare, Context, Cursor, Done, Effort, End, Later, PasswordChange,
    PasswordChangeOutcome, PendingAnswer, Reply, Search, StepOutcome, Verdict,
};

/// Entries of a stream.
pub(super) const STREAM: u64 = 10_000_000;

/// What is counted, and what waits.
#[derive(Debug)]
pub(super) struct Toy {
    pub(super) counts: Arc<Counts>,
    sender: Mutex<Sender<PendingRequest>>,
    waiting: Mutex<Receiver<PendingRequest>>,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Entries that were made.
    pub(super) made: AtomicU64,
    /// Searches that have ended, however.
    pub(super) ended: AtomicUsize,
    /// Other requests that were given up.
    pub(super) given_up: AtomicUsize,
}

/// A request that waits for its answer.
pub(super) enum PendingRequest {
    Search(Arc<Feed>),
    Compare(Done<End>),
    Update(Completion),
    Bind(Done<Verdict>),
}

impl std::fmt::Debug for PendingRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PendingRequest")
    }
}

/// What a search is answered with.
#[derive(Debug, Default)]
pub(super) struct Feed {
    entries: Mutex<VecDeque<String>>,
    end: Mutex<Option<LdapResult>>,
    follower: Mutex<Option<Arc<Follower>>>,
}

impl Feed {
    pub(super) fn entry(&self, dn: &str) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push_back(dn.to_owned());
        self.tell();
    }

    pub(super) fn end(&self, code: ResultCode) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(LdapResult::new(code));
        self.tell();
    }

    fn tell(&self) {
        let follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner).clone();
        follower.into_iter().for_each(|follower| follower.tell());
    }
}

impl Toy {
    pub(super) fn new() -> Arc<Self> {
        let (sender, waiting) = channel();
        Arc::new(Self { counts: Arc::default(), sender: Mutex::new(sender), waiting: Mutex::new(waiting) })
    }

    /// The next request that waits.
    pub(super) fn next(&self) -> PendingRequest {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.try_recv().expect("a request that waits")
    }

    /// The same, if there is one.
    pub(super) fn waiting(&self) -> Option<PendingRequest> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()
    }

    fn wait(&self, request: PendingRequest) {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.send(request).expect("the receiver is beside it");
    }

    /// Of requests that are no searches, which never wait longer than a second.
    fn pending(&self, context: &Context<'_>) -> PendingAnswer {
        let counts = Arc::clone(&self.counts);
        let give_up = move || {
            counts.given_up.fetch_add(1, Ordering::SeqCst);
        };
        PendingAnswer { deadline: Some(seconds(context, 1)), give_up: Some(Box::new(give_up)) }
    }
}

pub(super) fn seconds(context: &Context<'_>, seconds: u64) -> Monotonic {
    Monotonic(context.began.0 + seconds * 1_000_000_000)
}

/// `cn=stream,o=toy` is `stream`.
fn word(dn: &NormalDn) -> &str {
    dn.as_str().split(['=', ',']).nth(1).unwrap_or_default()
}

fn failure() -> LdapResult {
    LdapResult::with(ResultCode::UNAVAILABLE, "the toy is broken")
}

impl Backend for Toy {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let (counts, message) = (Arc::clone(&self.counts), search.message);
        match word(search.base) {
            "fail" => Err(Box::new((failure(), Vec::new()))),
            "stream" => Ok(Box::new(Stream { next: 0, message, counts })),
            _ => {
                let feed = Arc::<Feed>::default();
                self.wait(PendingRequest::Search(Arc::clone(&feed)));
                let limit = search.request.time_limit;
                let deadline = (limit > 0).then(|| seconds(context, limit.into()));
                Ok(Box::new(Fed { feed, sent: 0, message, deadline, counts }))
            }
        }
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        match word(compare.dn) {
            "fail" => Reply::Now((failure(), Vec::new())),
            "lose" => {
                drop(later());
                Reply::Later(PendingAnswer::default())
            }
            _ => {
                self.wait(PendingRequest::Compare(later()));
                Reply::Later(self.pending(context))
            }
        }
    }

    fn bind(&self, context: &Context<'_>, _: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        self.wait(PendingRequest::Bind(later()));
        Reply::Later(self.pending(context))
    }

    fn modify_password(
        &self,
        _: &Context<'_>,
        _: PasswordChange<'_>,
        _: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        Reply::Now(failure().into())
    }

    fn update(&self, context: &Context<'_>, _: Changes, done: Completion) -> PendingAnswer {
        self.wait(PendingRequest::Update(done));
        self.pending(context)
    }

    fn announce(&self, announced: &mut Announcement) {
        announced.naming_contexts.push("o=toy".to_owned());
    }
}

/// A search that is answered with what comes.
#[derive(Debug)]
struct Fed {
    feed: Arc<Feed>,
    sent: u64,
    message: MessageId,
    deadline: Option<Monotonic>,
    counts: Arc<Counts>,
}

impl Cursor for Fed {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        let follower = self.feed.follower.lock().unwrap_or_else(PoisonError::into_inner).clone();
        follower.iter().for_each(|follower| follower.looks());
        let mut entries = self.feed.entries.lock().unwrap_or_else(PoisonError::into_inner);
        while out.len() < budget.bytes {
            let Some(dn) = entries.pop_front() else {
                let mut end = self.feed.end.lock().unwrap_or_else(PoisonError::into_inner);
                return match end.take() {
                    Some(result) => StepOutcome::Done(result, Vec::new()),
                    None => StepOutcome::Waiting,
                };
            };
            EntryEncoder::begin(out, self.message, &dn).finish(&[]);
            self.sent += 1;
        }
        StepOutcome::More
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.sent, candidates: self.sent }
    }

    fn waits(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        *self.feed.follower.lock().unwrap_or_else(PoisonError::into_inner) = Some(follower);
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.deadline
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        self.counts.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// A search with ten million entries, which are made when they are asked for.
#[derive(Debug)]
struct Stream {
    next: u64,
    message: MessageId,
    counts: Arc<Counts>,
}

impl Cursor for Stream {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        for _ in 0..budget.candidates {
            if self.next == STREAM {
                return StepOutcome::Done(LdapResult::success(), Vec::new());
            }
            if out.len() >= budget.bytes {
                break;
            }
            EntryEncoder::begin(out, self.message, &format!("cn=e{},cn=stream,o=toy", self.next)).finish(&[]);
            self.next += 1;
            self.counts.made.fetch_add(1, Ordering::SeqCst);
        }
        StepOutcome::More
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.next, candidates: self.next }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.counts.ended.fetch_add(1, Ordering::SeqCst);
    }
}
