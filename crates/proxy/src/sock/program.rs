//! A program behind a local socket, as a database or an overlay asks it: who may ask what, and the text of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use larix_backend::memory_tree::{MemoryTree, OneByOne};
use larix_backend::{Compare, Context, Done, PasswordChange, Search};
use larix_engine::access::{AccessPolicy, Item, Privilege};
use larix_engine::budget::RequestLimits;
use larix_engine::entry::Entry;
use larix_engine::time::Clock;
use larix_engine::write::WriteOperation;
use larix_proto::extended::{ExtendedValue as _, PasswordModify};
use larix_proto::{LdapResult, ResultCode, oid};
use larix_schema::{NormalDn, Schema};
use zeroize::Zeroizing;

use super::SocketSettings;
use super::answer_filter::AnswerFilter;
use super::calls::{Call, CallState, Calls, PATIENCE, ProgramAnswer, Sink, Tell};
use super::search::{PendingSearch, SocketSearch};
use super::text::{self, RequestHeader, Text};

/// A thread that is late with its own answer gets this much longer.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// What requests to a program are judged and made with.
pub struct ProgramContext {
    pub schema: Arc<Schema>,
    pub policy: Arc<AccessPolicy>,
    pub limits: RequestLimits,
    /// As they are shown.
    pub suffixes: Vec<String>,
    pub clock: Arc<dyn Clock>,
    pub tell: Tell,
}

impl fmt::Debug for ProgramContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramContext").field("suffixes", &self.suffixes).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Program {
    calls: Arc<Calls>,
    settings: SocketSettings,
    schema: Arc<Schema>,
    policy: Arc<AccessPolicy>,
    limits: RequestLimits,
    suffixes: Vec<String>,
}

impl Program {
    /// `may_continue`: operations may go on behind it.
    pub(super) fn new(settings: &SocketSettings, context: ProgramContext, may_continue: bool) -> Self {
        let ProgramContext { schema, policy, limits, suffixes, clock, tell } = context;
        let calls = Arc::new(Calls::new((&settings.path, may_continue), clock, tell, PATIENCE));
        Self { calls, settings: settings.clone(), schema, policy, limits, suffixes }
    }

    pub(super) const fn policy(&self) -> &Arc<AccessPolicy> {
        &self.policy
    }

    pub(super) const fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub(super) fn header<'a>(&'a self, context: &'a Context<'_>) -> RequestHeader<'a> {
        let (subject, request) = (context.subject, context.client.request());
        RequestHeader {
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
        let tree = MemoryTree::empty(&self.schema, &self.policy, context.subject);
        match tree.allows(dn, &Entry::new(dn.as_str()), Item::Entry, privilege) {
            true => Ok(()),
            false => Err(LdapResult::new(ResultCode::INSUFFICIENT_ACCESS_RIGHTS)),
        }
    }

    /// Hands a request over that has one answer; what is returned gives it up.
    pub(super) fn ask(
        &self,
        context: &Context<'_>,
        text: Zeroizing<Vec<u8>>,
        done: Done<ProgramAnswer>,
    ) -> Arc<CallState> {
        let state = Arc::<CallState>::default();
        let call = Call { text, began: context.began, sink: Sink::Once(done), state: Arc::clone(&state) };
        self.calls.submit(call);
        state
    }

    /// The text of a compare, a bind or a change.
    fn begin(&self, context: &Context<'_>, command: &str, dn: &str) -> Text {
        let mut text = Text::begin(command, &self.header(context));
        text.line("dn", dn);
        text
    }

    /// The search of a client. The program is asked with its first slice.
    ///
    /// # Errors
    /// A filter that costs more steps than one request may.
    pub(super) fn search(
        &self,
        context: &Context<'_>,
        search: &Search<'_>,
    ) -> Result<SocketSearch, LdapResult> {
        let request = &search.request;
        // Below a database that this one is glued to, the base is not what the request says.
        let is_own = self.schema.parse_dn(request.base).is_ok_and(|dn| dn == *search.base);
        let base = if is_own { request.base } else { search.base.as_str() };
        let writer = OneByOne::new(&self.schema, &self.limits, request, &search.controls, search.message)?;
        let filter = AnswerFilter {
            schema: Arc::clone(&self.schema),
            policy: Arc::clone(&self.policy),
            subject: Arc::clone(context.subject),
            search: writer,
            base: search.base.clone(),
            scope: request.scope,
            deref: request.deref,
            remaining: (request.size_limit > 0).then_some(request.size_limit),
        };
        let mut header = self.header(context);
        header.message = Some(search.message.0);
        let text = text::search(&header, base, request);
        let deadline = context.began.with_limit(request.time_limit);
        Ok(SocketSearch::new(&self.calls, PendingSearch { text, filter, began: context.began }, deadline))
    }

    /// # Errors
    /// The requester may not compare; an attribute that the schema does not know.
    pub(super) fn compare(
        &self,
        context: &Context<'_>,
        compare: &Compare<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, LdapResult> {
        self.may(context, compare.dn, Privilege::Compare)?;
        let described = self.schema.describe(compare.request.attribute);
        described.map_err(|_| LdapResult::new(ResultCode::UNDEFINED_ATTRIBUTE_TYPE))?;
        let mut text = self.begin(context, "COMPARE", compare.request.entry);
        text.values(compare.request.attribute, &[compare.request.value.to_vec()]);
        Ok(text.end())
    }

    /// # Errors
    /// The name may not be bound by; a password that is no line.
    pub(super) fn bind(
        &self,
        context: &Context<'_>,
        dn: &NormalDn,
        password: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, LdapResult> {
        self.may(context, dn, Privilege::Auth)?;
        if !is_one_line(password) {
            return Err(LdapResult::new(ResultCode::INVALID_CREDENTIALS));
        }
        let mut text = self.begin(context, "BIND", dn.as_str());
        // LDAP_AUTH_SIMPLE
        text.line("method", "128");
        text.line("credlen", &password.len().to_string());
        text.raw_line("cred", password);
        Ok(text.end())
    }

    pub(super) fn password(&self, context: &Context<'_>, change: &PasswordChange<'_>) -> Zeroizing<Vec<u8>> {
        let request = PasswordModify {
            user: Some(change.target.as_bytes()),
            old: change.old.as_ref().map(|old| old.as_slice()),
            new: change.new.as_ref().map(|new| new.as_slice()),
        };
        let value = Zeroizing::new(request.encode().unwrap_or_default());
        self.extended(context, oid::PASSWORD_MODIFY, Some(&value))
    }

    /// # Errors
    /// The requester may not change the entry; an attribute that the schema does not know.
    pub(super) fn change(
        &self,
        context: &Context<'_>,
        operation: &WriteOperation,
    ) -> Result<Zeroizing<Vec<u8>>, LdapResult> {
        self.may_change(context, operation)?;
        Ok(text::change(&self.header(context), operation))
    }

    /// As slapd-sock(5) has it: rights on the entry alone, of which nothing but the name is known.
    fn may_change(&self, context: &Context<'_>, operation: &WriteOperation) -> Result<(), LdapResult> {
        let privilege = match operation {
            WriteOperation::Add { .. } => Privilege::Add,
            WriteOperation::Delete { .. } => Privilege::Delete,
            WriteOperation::ModifyDn { new_superior: Some(_), .. } => Privilege::Delete,
            WriteOperation::Modify { .. } | WriteOperation::ModifyDn { .. } => Privilege::Write,
        };
        let dn = self.schema.parse_dn(operation.target()).map_err(|_| LdapResult::invalid_dn())?;
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

    pub(super) fn extended(
        &self,
        context: &Context<'_>,
        oid: &str,
        value: Option<&[u8]>,
    ) -> Zeroizing<Vec<u8>> {
        let mut text = Text::begin("EXTENDED", &self.header(context));
        text.line("oid", oid);
        if let Some(value) = value {
            text.base64_line("value", value);
        }
        text.end()
    }
}

/// Whether a password is one line: another could say lines of its own to a program.
fn is_one_line(password: &[u8]) -> bool {
    !password.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0))
}
