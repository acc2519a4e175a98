//! Operations as values, and their answers.

use std::fmt::{self, Debug};

use larix_engine::budget::Meter;
use larix_engine::controls::RequestControls;
use larix_engine::time::Monotonic;
use larix_engine::write::{Forward, WriteOperation, WriteOutcome, WriteRequest};
use larix_proto::{CompareRequest, ControlBuf, LdapResult, MessageId, ResultCode, Scope, SearchRequest};
use larix_schema::{BoundFilter, NormalDn};
use zeroize::Zeroizing;

/// A search.
#[derive(Debug)]
pub struct Search<'a> {
    pub request: SearchRequest<'a>,
    /// The base, or the suffix of a subordinate database below it.
    pub base: &'a NormalDn,
    pub controls: RequestControls,
    /// The id of the request's message, which the answers have.
    pub message: MessageId,
}

/// A compare.
#[derive(Debug)]
pub struct Compare<'a> {
    pub request: &'a CompareRequest<'a>,
    pub dn: &'a NormalDn,
    pub controls: &'a RequestControls,
}

/// A bind.
#[derive(Debug)]
pub struct Bind<'a> {
    pub dn: &'a NormalDn,
    pub proof: Proof<'a>,
    /// A SASL mechanism found the name. If there is no such account, the answer is that of a wrong password.
    pub by_mechanism: bool,
    /// The password policy control was sent.
    pub policy_control: bool,
    pub controls: &'a RequestControls,
}

/// The credentials of a bind.
#[derive(Copy, Clone)]
pub enum Proof<'a> {
    Password(&'a [u8]),
    /// A mechanism has judged the credentials: whether they were right.
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
pub struct Verdict {
    pub result: LdapResult,
    pub controls: Vec<ControlBuf>,
    /// The session may do nothing but change its password.
    pub must_change_password: bool,
    /// The name as the directory shows it, if it knows better than the client.
    pub shown: Option<String>,
    /// The identity of the session, if it is not the name that the client gave.
    pub identity: Option<NormalDn>,
    /// What a shadow has to pass on to its provider. An overlay in front takes it and does that (`overlay chain`).
    pub forward: Option<Box<Forward>>,
}

impl Verdict {
    /// The final verdict: a bind fails if something that had to be passed on was not.
    #[must_use]
    pub fn settled(mut self) -> Self {
        if self.forward.take().is_some_and(|forward| !forward.needed.is_empty()) {
            self.fail();
        }
        self
    }

    /// Makes a successful bind fail, with the answer of a wrong password.
    pub fn fail(&mut self) {
        if self.result.is_success() {
            self.result = LdapResult::new(ResultCode::INVALID_CREDENTIALS);
            self.must_change_password = false;
        }
    }
}

impl From<LdapResult> for Verdict {
    fn from(result: LdapResult) -> Self {
        Self {
            result,
            controls: Vec::new(),
            must_change_password: false,
            shown: None,
            identity: None,
            forward: None,
        }
    }
}

/// A password to replace.
pub struct PasswordChange<'a> {
    pub dn: &'a NormalDn,
    /// The DN as the request has it.
    pub target: String,
    /// The old password, if it has to be verified.
    pub old: Option<Secret>,
    /// `None`: the server generates one.
    pub new: Option<Secret>,
    /// The password policy control was sent.
    pub policy_control: bool,
    /// How many proxies have passed the request on, by their own count.
    pub hops: u8,
    /// Called before an old password is compared, because wrong ones are counted. An error refuses the request.
    pub proof_begins: &'a dyn Fn() -> Result<(), LdapResult>,
}

/// Passwords stay out of logs.
impl Debug for PasswordChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordChange").field("dn", &self.dn).finish_non_exhaustive()
    }
}

/// The outcome of a [`PasswordChange`].
pub struct PasswordChangeOutcome {
    pub result: LdapResult,
    pub controls: Vec<ControlBuf>,
    /// The generated password.
    pub generated: Option<Secret>,
    /// Whether the old password was right. `None`: it was not compared.
    pub proof: Option<bool>,
    /// The writer's outcome, if the change came so far.
    pub written: Option<WriteOutcome>,
}

/// Passwords stay out of logs.
impl Debug for PasswordChangeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordChangeOutcome").field("result", &self.result).finish_non_exhaustive()
    }
}

impl From<LdapResult> for PasswordChangeOutcome {
    fn from(result: LdapResult) -> Self {
        Self { result, controls: Vec::new(), generated: None, proof: None, written: None }
    }
}

impl From<WriteOutcome> for PasswordChangeOutcome {
    fn from(outcome: WriteOutcome) -> Self {
        // matchedDN would disclose which superiors exist.
        let result = LdapResult { matched_dn: String::new(), ..outcome.result.clone() };
        Self { controls: outcome.controls.clone(), written: Some(outcome), ..Self::from(result) }
    }
}

/// An extended operation of a database.
#[derive(Debug)]
pub struct ExtendedOperation<'a> {
    pub oid: &'a str,
    pub controls: &'a RequestControls,
    /// The entry that the operation is about.
    pub dn: &'a NormalDn,
    pub value: Option<&'a [u8]>,
}

/// An extended operation that an overlay brings.
#[derive(Debug)]
pub struct OverlayOperation {
    pub oid: &'static str,
    /// Reads from the value the name by which the router chooses the database. Empty: it chooses none.
    ///
    /// # Errors
    /// A value that cannot be decoded.
    pub target: fn(Option<&[u8]>) -> Result<String, LdapResult>,
}

impl ExtendedOperation<'_> {
    /// The answer to an unknown operation.
    pub fn unsupported() -> LdapResult {
        LdapResult::with(ResultCode::PROTOCOL_ERROR, "unsupported extended operation")
    }

    /// The answer if no database with such operations has the name.
    pub fn not_served() -> LdapResult {
        LdapResult::with(ResultCode::NO_SUCH_OBJECT, "no database serves this name")
    }
}

/// The answer to an extended operation.
#[derive(Debug)]
pub struct ExtendedAnswer {
    pub result: LdapResult,
    pub value: Option<Vec<u8>>,
    pub controls: Vec<ControlBuf>,
}

impl From<LdapResult> for ExtendedAnswer {
    fn from(result: LdapResult) -> Self {
        Self { result, value: None, controls: Vec::new() }
    }
}

/// Bytes that are overwritten when they are dropped.
pub type Secret = Zeroizing<Vec<u8>>;

/// Called once with the answer to an operation, on any thread. It must not block.
pub type Done<T> = Box<dyn FnOnce(T) + Send>;

/// Makes the [`Done`] of an operation that will be answered later. Called once for such an operation, and never for others.
pub type Later<'a, T> = &'a mut dyn FnMut() -> Done<T>;

/// The answer to an operation, now or later.
#[derive(Debug)]
pub enum Reply<T> {
    Now(T),
    /// The [`Done`] that [`Later`] made gets the answer.
    Later(PendingAnswer),
}

/// How an operation that is answered later can be given up before. A stored database gives nothing up.
#[derive(Default)]
pub struct PendingAnswer {
    /// When the operation has taken too long and is given up.
    pub deadline: Option<Monotonic>,
    /// Gives the operation up, because nobody waits for its answer. It may take effect all the same.
    pub give_up: Option<Box<dyn FnOnce() + Send>>,
}

impl Debug for PendingAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingAnswer").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Calls `completion` with an answer that is there already.
pub fn answer_now<T>(completion: Done<T>, answer: impl Into<T>) -> PendingAnswer {
    completion(answer.into());
    PendingAnswer::default()
}

/// Calls `completion` with the answer to `ask`, now or later.
pub fn answered_by<T: 'static>(
    completion: Done<T>,
    ask: impl FnOnce(Later<'_, T>) -> Reply<T>,
) -> PendingAnswer {
    let mut completion = Some(completion);
    let reply = ask(&mut || completion.take().unwrap_or_else(|| Box::new(drop)));
    match (reply, completion) {
        (Reply::Now(answer), Some(completion)) => completion(answer),
        (Reply::Now(_), None) => {}
        (Reply::Later(pending), _) => return pending,
    }
    PendingAnswer::default()
}

/// A search for an identity.
#[derive(Debug)]
pub struct Identities<'a> {
    pub base: &'a NormalDn,
    pub scope: Scope,
    pub filter: &'a BoundFilter,
    pub limit: u32,
    /// The meter of the request that the search is part of. If its steps are used up, the search finds nothing. `None`: the configuration
    /// asks.
    pub meter: Option<&'a Meter>,
}

/// Changes that are made together, all or none: usually one.
#[derive(Debug)]
pub enum Changes {
    /// With its target, if that could be parsed.
    One(WriteRequest, Option<NormalDn>),
    /// Those of a transaction (RFC 5805).
    Together(Vec<WriteRequest>),
}

impl Changes {
    /// The changes, in order.
    pub fn requests(&self) -> &[WriteRequest] {
        match self {
            Self::One(request, _) => std::slice::from_ref(request),
            Self::Together(requests) => requests,
        }
    }

    /// What they do, in order.
    pub fn operations(&self) -> impl Iterator<Item = &WriteOperation> {
        self.requests().iter().map(|request| &request.operation)
    }
}
