//! Operations as values, and what is answered to them.

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
    /// The message that entries answer.
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
    /// The name was found by a SASL mechanism: one that leads to no account is answered as a wrong password is.
    pub by_mechanism: bool,
    /// The password policy control was sent.
    pub policy_control: bool,
    pub controls: &'a RequestControls,
}

/// The credentials of a bind.
#[derive(Copy, Clone)]
pub enum Proof<'a> {
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
pub struct Verdict {
    pub result: LdapResult,
    pub controls: Vec<ControlBuf>,
    /// Until the password is changed the session may do nothing else.
    pub must_change_password: bool,
    /// The name as the directory shows it, if it knows better than the client.
    pub shown: Option<String>,
    /// Who was bound, where that is another name than the one that the client gave.
    pub identity: Option<NormalDn>,
    /// What the provider of a shadow is to hear, until an overlay in front hands it on (`overlay chain`).
    pub forward: Option<Box<Forward>>,
}

impl Verdict {
    /// The same at its end: what the bind needed to be handed on and was not makes it fail.
    #[must_use]
    pub fn settled(mut self) -> Self {
        if self.forward.take().is_some_and(|forward| !forward.needed.is_empty()) {
            self.fail();
        }
        self
    }

    /// A bind that seemed right is none: it is answered as a wrong password is.
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
    /// The same as the request has it.
    pub target: String,
    /// The old one, if that is to be right.
    pub old: Option<Secret>,
    /// None: one is made up.
    pub new: Option<Secret>,
    /// The password policy control was sent.
    pub policy_control: bool,
    /// How many proxies the request has come through, as they say.
    pub hops: u8,
    /// To be asked before an old password is compared: wrong ones are counted.
    pub proof_begins: &'a dyn Fn() -> Result<(), LdapResult>,
}

/// Passwords stay out of logs.
impl Debug for PasswordChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordChange").field("dn", &self.dn).finish_non_exhaustive()
    }
}

/// What became of it.
pub struct PasswordChangeOutcome {
    pub result: LdapResult,
    pub controls: Vec<ControlBuf>,
    /// The password that was made up.
    pub generated: Option<Secret>,
    /// Whether an old password that was compared was right. None: none was, and nothing is known about it.
    pub proof: Option<bool>,
    /// What the writer said, if it came so far.
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
        // Which of the entries above exist is not told here.
        let result = LdapResult { matched_dn: String::new(), ..outcome.result.clone() };
        Self { controls: outcome.controls.clone(), written: Some(outcome), ..Self::from(result) }
    }
}

/// An extended operation that is about a database.
#[derive(Debug)]
pub struct Extended<'a> {
    pub oid: &'a str,
    pub controls: &'a RequestControls,
    /// What it is about.
    pub dn: &'a NormalDn,
    pub value: Option<&'a [u8]>,
}

/// An extended operation that an overlay brings.
#[derive(Debug)]
pub struct OverlayOperation {
    pub oid: &'static str,
    /// The name that a request is about, by which the router picks the database; empty: none of them.
    ///
    /// # Errors
    /// A value that cannot be decoded.
    pub target: fn(Option<&[u8]>) -> Result<String, LdapResult>,
}

impl Extended<'_> {
    /// The answer of who does not know the operation.
    pub fn unsupported() -> LdapResult {
        LdapResult::with(ResultCode::PROTOCOL_ERROR, "unsupported extended operation")
    }

    /// The answer where no database with such operations has the name.
    pub fn not_served() -> LdapResult {
        LdapResult::with(ResultCode::NO_SUCH_OBJECT, "no database serves this name")
    }
}

/// What is answered to it.
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

/// What is overwritten when it is dropped.
pub type Secret = Zeroizing<Vec<u8>>;

/// Called once with the answer to an operation, on any thread. It must not block.
pub type Done<T> = Box<dyn FnOnce(T) + Send>;

/// Makes that, for an operation that is certain to be answered later; to be called once then, and not otherwise.
pub type Later<'a, T> = &'a mut dyn FnMut() -> Done<T>;

/// The answer to an operation, or none yet.
#[derive(Debug)]
pub enum Reply<T> {
    Now(T),
    /// What [`Later`] has made is called.
    Later(Pending),
}

/// An operation that is answered later, as far as it can be given up before. A stored database carries out what it was given.
#[derive(Default)]
pub struct Pending {
    /// When it is given up for the time it takes.
    pub deadline: Option<Monotonic>,
    /// Gives it up: no client waits for its answer. The operation may have been carried out.
    pub give_up: Option<Box<dyn FnOnce() + Send>>,
}

impl Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Has `ask` answered by `completion`, now or later.
pub fn answered_by<T: 'static>(completion: Done<T>, ask: impl FnOnce(Later<'_, T>) -> Reply<T>) -> Pending {
    let mut completion = Some(completion);
    let reply = ask(&mut || completion.take().unwrap_or_else(|| Box::new(drop)));
    match (reply, completion) {
        (Reply::Now(answer), Some(completion)) => completion(answer),
        (Reply::Now(_), None) => {}
        (Reply::Later(pending), _) => return pending,
    }
    Pending::default()
}

/// A search for an identity.
#[derive(Debug)]
pub struct Identities<'a> {
    pub base: &'a NormalDn,
    pub scope: Scope,
    pub filter: &'a BoundFilter,
    pub limit: u32,
    /// What the search is charged to; it finds nothing where the steps do not last. `None`: the configuration asks for it.
    pub meter: Option<&'a Meter>,
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

/// Changes that are made together, all or none: usually one.
#[derive(Debug)]
pub enum Changes {
    /// With its target, if that could be parsed.
    One(WriteRequest, Option<NormalDn>),
    /// Those of a transaction (RFC 5805).
    Together(Vec<WriteRequest>),
}
