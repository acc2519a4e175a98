//! What answers requests: a [`Backend`] for each database, chosen by the [`Router`].
//!
//! Operations are values. A backend answers now or later; what comes later goes through a completion, or wakes a follower. Nothing here
//! names a socket, a connection or a configuration.

mod figures;
mod glue;
mod glued_pages;
mod router;

use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::{Clock, Monotonic};
use larix_engine::write::{Completion, WriteOutcome, WriteRequest};
use larix_proto::{CompareRequest, ControlBuf, LdapResult, MessageId, ResultCode, Scope, SearchRequest};
use larix_schema::{BoundFilter, NormalDn};

pub(crate) use figures::{DatabaseFigures, StoreFigures};
pub(crate) use router::{Mount, Router, Special};

use zeroize::Zeroizing;

use crate::clock::SystemRandom;
use crate::connection::OUTPUT_HIGH;
use crate::generated_password::generate_password;

/// Candidates that one slice looks at, which others may have to wait for. A new slice costs less than one candidate:
/// searches of many candidates are as fast with 32 as with 128 (two indexed substrings: 14,560/s and 14,668/s).
const SLICE_CANDIDATES: u32 = 128;
/// And after so long it ends where candidates are dear: a small search takes a tenth of it.
const SLICE_NANOS: u64 = 100_000;

/// How far one slice of a search may go.
pub(crate) fn slice(clock: &dyn Clock) -> Budget<'_> {
    Budget { candidates: SLICE_CANDIDATES, nanos: SLICE_NANOS, bytes: OUTPUT_HIGH, clock }
}

/// A database as requests see it.
///
/// Implementations are shared by all threads. What takes long, and what waits for others, is answered later: no call blocks, but for
/// what a call of a stored database does.
pub(crate) trait Backend: Any + Debug + Send + Sync {
    /// Begins a search. Nothing is answered before its first slice.
    ///
    /// # Errors
    /// What is answered without looking: a control or a limit that refuses it.
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>>;

    /// Begins a search and runs its first slice, which ends nearly all of them.
    fn search(&self, context: &Context<'_>, search: Search<'_>, out: &mut Vec<u8>) -> First {
        match self.open(context, search) {
            Ok(cursor) => First::slice_of(cursor, context, out),
            Err(end) => First::ended(*end),
        }
    }

    /// Compares a value with those of an entry.
    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End>;

    /// Judges a bind by its proof. What takes long, or has to be durable before the answer, comes later.
    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict>;

    /// Replaces a password (RFC 3062).
    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Reply<PasswordChanged>;

    /// Values that the proof of a SASL mechanism can be verified by: passwords in the clear, SCRAM verifiers. None where only a password
    /// can be judged.
    fn secrets(&self, _context: &Context<'_>, _dn: &NormalDn) -> Vec<Secret> {
        Vec::new()
    }

    /// Values of an attribute that the requester may use to authenticate.
    fn authentication_values(
        &self,
        _context: &Context<'_>,
        _dn: &NormalDn,
        _attribute: &str,
    ) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Appends the entries that a filter finds with the `auth` privilege, at most so many: who somebody is. Whether the search may go on
    /// in the databases glued below.
    fn identities(
        &self,
        _context: &Context<'_>,
        _asked: &Identities<'_>,
        _found: &mut Vec<NormalDn>,
    ) -> bool {
        true
    }

    /// Carries out changes. `done` is called once, here or on another thread.
    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> Pending;

    /// Why its changes cannot be made together with those of another backend; none if it sees to that itself.
    fn stands_apart(&self) -> Option<LdapResult> {
        let text = "transaction affects multiple databases";
        Some(LdapResult::with(ResultCode::AFFECTS_MULTIPLE_DSAS, text))
    }

    /// Whether consumers can have its content (RFC 4533). Others are given no search with that control.
    fn provides_content(&self) -> bool {
        false
    }

    /// Adds what the root DSE says of this database.
    fn announce(&self, announced: &mut Announced);

    /// Makes it read-only, or writable again, until the configuration says otherwise.
    fn set_read_only(&self, _value: bool) -> LdapResult {
        let text = "only a database that stores entries can be made read-only";
        LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
    }

    /// What it tells the monitor and the metrics; none of a database that stores nothing.
    fn figures(&self) -> Option<DatabaseFigures> {
        None
    }
}

/// What a request is carried out under.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Context<'a> {
    /// Who asks.
    pub(crate) subject: &'a Arc<Subject>,
    /// The databases that there were when the request began: those of its generation.
    pub(crate) router: &'a Router,
    pub(crate) clock: &'a dyn Clock,
    /// When the request began, from which its time is counted.
    pub(crate) began: Monotonic,
}

/// A search.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pub(crate) request: SearchRequest<'a>,
    /// The base, or the suffix of a subordinate database below it.
    pub(crate) base: &'a NormalDn,
    pub(crate) controls: RequestControls,
    /// The message that entries answer.
    pub(crate) message: MessageId,
}

/// A compare.
#[derive(Debug)]
pub(crate) struct Compare<'a> {
    pub(crate) request: &'a CompareRequest<'a>,
    pub(crate) dn: &'a NormalDn,
    pub(crate) controls: &'a RequestControls,
}

/// A bind.
#[derive(Debug)]
pub(crate) struct Bind<'a> {
    pub(crate) dn: &'a NormalDn,
    pub(crate) proof: Proof<'a>,
    /// The name was found by a SASL mechanism: one that leads to no account is answered as a wrong password is.
    pub(crate) by_mechanism: bool,
    /// The password policy control was sent.
    pub(crate) policy_control: bool,
}

/// What somebody shows to be who he says.
#[derive(Copy, Clone)]
pub(crate) enum Proof<'a> {
    Password(&'a [u8]),
    /// A mechanism has judged it: whether it was right.
    Judged(bool),
}

/// Passwords stay out of logs.
impl Debug for Proof<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password(_) => f.write_str("Password"),
            Self::Judged(matched) => f.debug_tuple("Judged").field(matched).finish(),
        }
    }
}

/// How a bind ended.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) result: LdapResult,
    pub(crate) controls: Vec<ControlBuf>,
    /// Until the password is changed the session may do nothing else.
    pub(crate) must_change_password: bool,
    /// The name as the directory shows it, if it knows better than the client.
    pub(crate) shown: Option<String>,
}

impl From<LdapResult> for Verdict {
    fn from(result: LdapResult) -> Self {
        Self { result, controls: Vec::new(), must_change_password: false, shown: None }
    }
}

/// A password that is to be replaced.
pub(crate) struct PasswordChange<'a> {
    pub(crate) dn: &'a NormalDn,
    /// The same as the request has it.
    pub(crate) target: String,
    /// The old one, if that is to be right.
    pub(crate) old: Option<Secret>,
    /// None: one is made up.
    pub(crate) new: Option<Secret>,
    /// The password policy control was sent.
    pub(crate) policy_control: bool,
    /// To be asked before an old password is compared: wrong ones are counted.
    pub(crate) proof_begins: &'a dyn Fn() -> Result<(), LdapResult>,
}

/// Passwords stay out of logs.
impl Debug for PasswordChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordChange").field("dn", &self.dn).finish_non_exhaustive()
    }
}

impl PasswordChange<'_> {
    /// The new password, and it once more if it was made up.
    pub(crate) fn new_password(&self) -> (Secret, Option<Secret>) {
        match &self.new {
            Some(new) => (new.clone(), None),
            None => {
                let made = generate_password(&SystemRandom);
                (made.clone(), Some(made))
            }
        }
    }
}

/// What became of it.
pub(crate) struct PasswordChanged {
    pub(crate) result: LdapResult,
    pub(crate) controls: Vec<ControlBuf>,
    /// The password that was made up.
    pub(crate) generated: Option<Secret>,
    /// Whether an old password that was compared was right.
    pub(crate) proof: Option<bool>,
    /// What the writer said, if it came so far.
    pub(crate) written: Option<WriteOutcome>,
}

/// Passwords stay out of logs.
impl Debug for PasswordChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordChanged").field("result", &self.result).finish_non_exhaustive()
    }
}

impl From<LdapResult> for PasswordChanged {
    fn from(result: LdapResult) -> Self {
        Self { result, controls: Vec::new(), generated: None, proof: None, written: None }
    }
}

impl From<WriteOutcome> for PasswordChanged {
    fn from(outcome: WriteOutcome) -> Self {
        // Which of the entries above exist is not told here.
        let result = LdapResult { matched_dn: String::new(), ..outcome.result.clone() };
        Self { controls: outcome.controls.clone(), written: Some(outcome), ..Self::from(result) }
    }
}

/// What is overwritten when it is dropped.
pub(crate) type Secret = Zeroizing<Vec<u8>>;

/// Called once with the answer to an operation, on any thread. It must not block.
pub(crate) type Done<T> = Box<dyn FnOnce(T) + Send>;

/// Makes that, for an operation that is certain to be answered later; to be called once then, and not otherwise.
pub(crate) type Later<'a, T> = &'a mut dyn FnMut() -> Done<T>;

/// The answer to an operation, or none yet.
#[derive(Debug)]
pub(crate) enum Reply<T> {
    Now(T),
    /// What [`Later`] has made is called.
    Later(Pending),
}

/// An operation that is answered later, as far as it can be given up before. A stored database carries out what it was given.
#[derive(Default)]
pub(crate) struct Pending {
    /// When it is given up for the time it takes.
    pub(crate) deadline: Option<Monotonic>,
    /// Gives it up: nobody waits for its answer. The operation may have been carried out.
    pub(crate) give_up: Option<Box<dyn FnOnce() + Send>>,
}

impl Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// A search for somebody's identity.
#[derive(Debug)]
pub(crate) struct Identities<'a> {
    pub(crate) base: &'a NormalDn,
    pub(crate) scope: Scope,
    pub(crate) filter: &'a BoundFilter,
    pub(crate) limit: u32,
}

/// Changes that are made together, all or none: usually one.
#[derive(Debug)]
pub(crate) enum Changes {
    /// With its target, if that could be parsed.
    One(WriteRequest, Option<NormalDn>),
    /// Those of a transaction (RFC 5805).
    Together(Vec<WriteRequest>),
}

/// A result with its controls.
pub(crate) type End = (LdapResult, Vec<ControlBuf>);

/// What became of a search in its first slice.
#[derive(Debug)]
pub(crate) enum First {
    Done {
        result: LdapResult,
        controls: Vec<ControlBuf>,
        effort: Effort,
    },
    /// It goes on with [`Cursor::step`].
    Running(Box<dyn Cursor>),
}

impl First {
    pub(crate) fn ended(end: End) -> Self {
        Self::Done { result: end.0, controls: end.1, effort: Effort::default() }
    }

    /// Of a search that was only begun.
    fn slice_of(mut cursor: Box<dyn Cursor>, context: &Context<'_>, out: &mut Vec<u8>) -> Self {
        // Whoever waits needs to be followed first.
        if cursor.waits() {
            return Self::Running(cursor);
        }
        match cursor.step(slice(context.clock), out) {
            Slice::Done(result, controls) => Self::Done { result, controls, effort: cursor.effort() },
            Slice::More | Slice::Waiting => Self::Running(cursor),
        }
    }
}

/// How a slice of a search ended.
#[derive(Debug)]
pub(crate) enum Slice {
    /// The budget is used up, or the output is full.
    More,
    /// Nothing is to be done until its follower is told.
    Waiting,
    Done(LdapResult, Vec<ControlBuf>),
}

/// What a search took.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Entries answered.
    pub(crate) entries: u64,
    /// Entries looked at.
    pub(crate) candidates: u64,
}

impl Effort {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            candidates: self.candidates.saturating_add(other.candidates),
        }
    }
}

/// A search under way. Dropped, it ends.
pub(crate) trait Cursor: Debug + Send {
    /// Goes on for one slice: appends complete messages, until the budget is used up. Between slices it holds nothing that others wait
    /// for.
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Slice;

    /// What it has taken so far.
    fn effort(&self) -> Effort;

    /// Whether it may have to wait: then [`Self::follow`] is called before its first slice. All other searches only compute, and their
    /// slices can run on any thread.
    fn waits(&self) -> bool {
        false
    }

    /// Whom to tell when it may go on after it waited.
    fn follow(&mut self, _follower: Arc<Follower>) {}

    /// Whether it waits for changes, not for an answer: nothing is owed to its client then.
    fn waits_for_changes(&self) -> bool {
        false
    }

    /// When it ends with timeLimitExceeded although it waits.
    fn deadline(&self) -> Option<Monotonic> {
        None
    }

    /// The client does not take its answers: it holds nothing that other searches wait for.
    fn pause(&mut self) {}

    /// Whether its next slice is more work than others should wait for.
    fn is_dear(&self) -> bool {
        false
    }

    /// The most entries that it may answer, as the client and the limits have it.
    fn size_limit(&self) -> Option<u32> {
        None
    }

    /// Lets it answer at most this many entries: what is left for it of a search over several databases.
    fn limit_size(&mut self, _entries: u32) {}

    /// Makes the page of a paged search smaller: what is left of it for one of several databases.
    fn limit_page(&mut self, _entries: u32) {}
}

/// What the root DSE says of the databases.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    pub(crate) naming_contexts: Vec<String>,
    pub(crate) monitor_context: Option<String>,
    pub(crate) config_context: Option<String>,
    /// A database has the password policy overlay.
    pub(crate) password_policy: bool,
    /// A database has its content provided (RFC 4533).
    pub(crate) provides_content: bool,
}

/// A search whose answers were made when it was opened.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) messages: Vec<u8>,
    pub(crate) result: LdapResult,
    pub(crate) entries: u64,
}

impl Cursor for Answered {
    fn step(&mut self, _: Budget<'_>, out: &mut Vec<u8>) -> Slice {
        out.append(&mut self.messages);
        Slice::Done(std::mem::replace(&mut self.result, LdapResult::success()), Vec::new())
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.entries, candidates: self.entries }
    }
}

/// The scope that a search has in a subordinate database with this suffix; none if it does not get there.
pub(crate) fn scope_below(scope: Scope, base: &NormalDn, suffix: &NormalDn) -> Option<Scope> {
    let within = match scope {
        Scope::Base => None,
        Scope::OneLevel if suffix.parent().is_some_and(|parent| parent == *base) => Some(Scope::Base),
        Scope::OneLevel => None,
        Scope::Subtree | Scope::Children => Some(Scope::Subtree),
    };
    within.filter(|_| suffix.is_descendant_of(base))
}

#[cfg(test)]
mod tests;
