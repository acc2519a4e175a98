//! `database sock`: a program behind a local socket answers requests in a text of lines (slapd-sock(5)). One connection a request, which
//! the program closes behind its answer.

mod calls;
mod found;
mod search;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use larix_backend::memory_tree::{MemoryTree, OneByOne};
use larix_backend::{
    Announced, Backend, Bind, Changes, Compare, Context, Cursor, Done, End, Extended, ExtendedAnswer, Later,
    PasswordChange, PasswordChanged, Pending, Proof, Reply, Search, Verdict,
};
use larix_engine::access::{AccessPolicy, Item, Privilege};
use larix_engine::budget::RequestLimits;
use larix_engine::controls::RequestControls;
use larix_engine::entry::Entry;
use larix_engine::time::{Clock, Monotonic};
use larix_engine::write::{Completion, WriteOperation, WriteOutcome};
use larix_proto::extended::{ExtendedValue as _, PasswordModify};
use larix_proto::{LdapResult, ResultCode, oid};
use larix_schema::{NormalDn, Schema};
use zeroize::Zeroizing;

use calls::{Call, CallState, Calls, PATIENCE, Sink};
use found::Found;
use search::{Made, SocketSearch};
use text::{Asking, Text};

pub use calls::Tell;

/// Bytes of the path of a local socket (unix(7)).
pub const PATH_BYTES_MAX: usize = 107;

/// What is said of a connection with each request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    BindDn,
    Peer,
    Strength,
    Connection,
}

impl Extension {
    /// In the order in which requests have them.
    pub const ALL: [Self; 4] = [Self::BindDn, Self::Peer, Self::Strength, Self::Connection];

    /// As in the configuration, and in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BindDn => "binddn",
            Self::Peer => "peername",
            Self::Strength => "ssf",
            Self::Connection => "connid",
        }
    }
}

/// What such a database is configured with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketSettings {
    pub path: PathBuf,
    pub extensions: Vec<Extension>,
}

/// A database that a program has.
#[derive(Debug)]
pub struct SocketBackend {
    calls: Arc<Calls>,
    settings: SocketSettings,
    schema: Arc<Schema>,
    policy: Arc<AccessPolicy>,
    limits: RequestLimits,
    suffixes: Vec<String>,
    naming_contexts: Vec<String>,
}

impl SocketBackend {
    /// `suffixes` as they are shown, and as the root DSE lists them.
    pub fn new(
        settings: &SocketSettings,
        (schema, policy, limits): (Arc<Schema>, Arc<AccessPolicy>, RequestLimits),
        (suffixes, naming_contexts): (Vec<String>, Vec<String>),
        (clock, tell): (Arc<dyn Clock>, Tell),
    ) -> Self {
        let calls = Arc::new(Calls::new(&settings.path, clock, tell, PATIENCE));
        Self { calls, settings: settings.clone(), schema, policy, limits, suffixes, naming_contexts }
    }

    fn asking<'a>(&'a self, context: &'a Context<'_>) -> Asking<'a> {
        let (subject, request) = (context.subject, context.client.request());
        Asking {
            message: request.map(|(_, message)| message.0),
            connection: request.map(|(connection, _)| connection),
            bound: subject.real_dn.as_ref().map_or_else(|| subject.shown_dn(), |dn| dn.as_str()),
            peer: &subject.peer.peer_name,
            strength: subject.strength.overall,
            extensions: &self.settings.extensions,
            suffixes: &self.suffixes,
        }
    }

    /// Whether the requester has a privilege on the entry of this name, of which nothing but the name is known.
    ///
    /// # Errors
    /// The requester does not have it.
    fn may(&self, context: &Context<'_>, dn: &NormalDn, privilege: Privilege) -> Result<(), LdapResult> {
        let tree = MemoryTree {
            schema: &self.schema,
            policy: &self.policy,
            subject: context.subject,
            entries: Vec::new(),
            counted: None,
        };
        match tree.allows(dn, &Entry::new(dn.as_str()), Item::Entry, privilege) {
            true => Ok(()),
            false => Err(LdapResult::new(ResultCode::INSUFFICIENT_ACCESS_RIGHTS)),
        }
    }

    /// Hands a request over that has one answer.
    fn ask(&self, context: &Context<'_>, text: Zeroizing<Vec<u8>>, done: Done<LdapResult>) -> Pending {
        let state = Arc::<CallState>::default();
        let call = Call { text, began: context.began, sink: Sink::Once(done), state: Arc::clone(&state) };
        self.calls.submit(call);
        let patience = u64::try_from((PATIENCE + GRACE).as_nanos()).unwrap_or(u64::MAX);
        let deadline = Some(Monotonic(context.began.0.saturating_add(patience)));
        Pending { deadline, give_up: Some(Box::new(move || state.give_up())) }
    }

    /// The text of a compare, a bind or a change.
    fn begin(&self, context: &Context<'_>, command: &str, dn: &str) -> Text {
        let mut text = Text::begin(command, &self.asking(context));
        text.line("dn", dn);
        text
    }
}

/// A thread that is late with its own answer gets this much longer.
const GRACE: Duration = Duration::from_secs(2);

/// Refuses controls that the program would have to heed, because the text has no place for them.
///
/// # Errors
/// A control that would have to be heeded.
fn heeded(controls: &RequestControls) -> Result<(), LdapResult> {
    let is_critical = [
        controls.assertion.is_some(),
        controls.no_op,
        controls.tree_delete,
        controls.pre_read.as_ref().is_some_and(|asked| asked.critical),
        controls.post_read.as_ref().is_some_and(|asked| asked.critical),
        controls.paged.as_ref().is_some_and(|asked| asked.critical),
        controls.sort.as_ref().is_some_and(|asked| asked.critical),
        controls.vlv.as_ref().is_some_and(|asked| asked.critical),
        controls.deref.as_ref().is_some_and(|asked| asked.critical),
        controls.effective_rights.as_ref().is_some_and(|asked| asked.critical),
    ];
    match is_critical.contains(&true) {
        true => {
            let text = "the program behind the socket does not receive this control";
            Err(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text))
        }
        false => Ok(()),
    }
}

/// Whether a password is one line: another could say lines of its own to a program.
fn is_one_line(password: &[u8]) -> bool {
    !password.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0))
}

impl Backend for SocketBackend {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let refused = |result| Box::new((result, Vec::new()));
        heeded(&search.controls).map_err(refused)?;
        let request = &search.request;
        // Below a database that this one is glued to, the base is not what the request says.
        let is_own = self.schema.parse_dn(request.base).is_ok_and(|dn| dn == *search.base);
        let base = if is_own { request.base } else { search.base.as_str() };
        let writer = OneByOne::new(&self.schema, &self.limits, request, &search.controls, search.message);
        let found = Found {
            schema: Arc::clone(&self.schema),
            policy: Arc::clone(&self.policy),
            subject: Arc::clone(context.subject),
            search: writer.map_err(refused)?,
            base: search.base.clone(),
            scope: request.scope,
            deref: request.deref,
            left: (request.size_limit > 0).then_some(request.size_limit),
        };
        let mut asking = self.asking(context);
        asking.message = Some(search.message.0);
        let text = text::search(&asking, base, request);
        let deadline = context.began.with_limit(request.time_limit);
        let made = Made { text, found, began: context.began };
        Ok(Box::new(SocketSearch::new(&self.calls, made, deadline)))
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        let checked = heeded(compare.controls).and_then(|()| {
            self.may(context, compare.dn, Privilege::Compare)?;
            let described = self.schema.describe(compare.request.attribute);
            described.map_err(|_| LdapResult::new(ResultCode::UNDEFINED_ATTRIBUTE_TYPE))
        });
        if let Err(result) = checked {
            return Reply::Now((result, Vec::new()));
        }
        let mut text = self.begin(context, "COMPARE", compare.request.entry);
        text.values(compare.request.attribute, &[compare.request.value.to_vec()]);
        let done = later();
        let pending = self.ask(context, text.end(), Box::new(move |result| done((result, Vec::new()))));
        Reply::Later(pending)
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        let password = match bind.proof {
            Proof::Password(password) => password,
            Proof::Judged(true) => return Reply::Now(LdapResult::success().into()),
            Proof::Judged(false) => {
                return Reply::Now(LdapResult::new(ResultCode::INVALID_CREDENTIALS).into());
            }
        };
        if let Err(refused) = self.may(context, bind.dn, Privilege::Auth) {
            return Reply::Now(refused.into());
        }
        if !is_one_line(password) {
            return Reply::Now(LdapResult::new(ResultCode::INVALID_CREDENTIALS).into());
        }
        let mut text = self.begin(context, "BIND", bind.dn.as_str());
        // LDAP_AUTH_SIMPLE
        text.line("method", "128");
        text.line("credlen", &password.len().to_string());
        text.raw_line("cred", password);
        let done = later();
        Reply::Later(self.ask(context, text.end(), Box::new(move |result| done(result.into()))))
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Reply<PasswordChanged> {
        let request = PasswordModify {
            user: Some(change.target.as_bytes()),
            old: change.old.as_ref().map(|old| old.as_slice()),
            new: change.new.as_ref().map(|new| new.as_slice()),
        };
        let value = Zeroizing::new(request.encode().unwrap_or_default());
        let text = self.extended_text(context, oid::PASSWORD_MODIFY, Some(&value));
        let done = later();
        Reply::Later(self.ask(context, text, Box::new(move |result| done(result.into()))))
    }

    fn extended(
        &self,
        context: &Context<'_>,
        asked: &Extended<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        let text = self.extended_text(context, asked.oid, asked.value);
        let done = later();
        Reply::Later(self.ask(context, text, Box::new(move |result| done(result.into()))))
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> Pending {
        let request = match changes {
            Changes::One(request, _) => request,
            Changes::Together(_) => {
                let text = "a program behind a socket makes no changes together";
                done(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
                return Pending::default();
            }
        };
        let operation = &request.operation;
        let checked = heeded(&request.controls).and_then(|()| self.may_change(context, operation));
        if let Err(refused) = checked {
            done(refused.into());
            return Pending::default();
        }
        let text = text::change(&self.asking(context), operation);
        self.ask(context, text, Box::new(move |result| done(WriteOutcome::from(result))))
    }

    fn policy(&self, _: &NormalDn) -> Option<Arc<AccessPolicy>> {
        Some(Arc::clone(&self.policy))
    }

    fn announce(&self, announced: &mut Announced) {
        announced.naming_contexts.extend_from_slice(&self.naming_contexts);
    }
}

impl SocketBackend {
    /// As slapd-sock(5) has it: rights on the entry alone, of which nothing but the name is known.
    fn may_change(&self, context: &Context<'_>, operation: &WriteOperation) -> Result<(), LdapResult> {
        let privilege = match operation {
            WriteOperation::Add { .. } => Privilege::Add,
            WriteOperation::Delete { .. } => Privilege::Delete,
            WriteOperation::ModifyDn { new_superior: Some(_), .. } => Privilege::Delete,
            WriteOperation::Modify { .. } | WriteOperation::ModifyDn { .. } => Privilege::Write,
        };
        let invalid = |_| LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "invalid DN");
        let dn = self.schema.parse_dn(operation.target()).map_err(invalid)?;
        self.may(context, &dn, privilege)?;
        // A name that is none could say lines of its own to a program.
        let known = |name: &str| {
            let described = self.schema.describe(name);
            described.map(|_| ()).map_err(|_| {
                LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, "attribute type undefined")
            })
        };
        match operation {
            WriteOperation::Add { attributes, .. } => {
                attributes.iter().try_for_each(|attribute| known(&attribute.description))
            }
            WriteOperation::Modify { changes, .. } => {
                changes.iter().try_for_each(|change| known(&change.attribute.description))
            }
            _ => Ok(()),
        }
    }

    fn extended_text(&self, context: &Context<'_>, oid: &str, value: Option<&[u8]>) -> Zeroizing<Vec<u8>> {
        let mut text = Text::begin("EXTENDED", &self.asking(context));
        text.line("oid", oid);
        if let Some(value) = value {
            text.base64_line("value", value);
        }
        text.end()
    }
}
