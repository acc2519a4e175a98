//! The trait of what answers requests, and the context of a request.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use larix_engine::Fault;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::controls::OverlayControl;
use larix_engine::log::LastChange;
use larix_engine::overlay::internal_search::{InternalSearch, Visit};
use larix_engine::time::{Clock, Monotonic};
use larix_engine::write::Completion;
use larix_proto::{LdapResult, MessageId, ResultCode, Scope};
use larix_schema::NormalDn;

use crate::change_teller::ChangeTeller;
use crate::cursor::{Cursor, End, First};
use crate::figures::DatabaseFigures;
use crate::operation::{
    Bind, Changes, Compare, ExtendedAnswer, ExtendedOperation, Identities, Later, OverlayOperation,
    PasswordChange, PasswordChangeOutcome, PendingAnswer, Reply, Search, Secret, Verdict,
};
use crate::replica_progress::ReplicaProgress;
use crate::shared_content::SharedContent;

/// A database as requests see it.
///
/// All threads share an implementation. No call blocks, except on a stored database's own files: what takes long, or waits for another
/// server or thread, is answered later.
pub trait Backend: Any + Debug + Send + Sync {
    /// Begins a search. Its first slice gives the first answers.
    ///
    /// # Errors
    /// The result of a search that ends before its first slice: a control or a limit refuses it.
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>>;

    /// Begins a search and runs its first slice, which ends nearly all of them.
    fn search(&self, context: &Context<'_>, search: Search<'_>, out: &mut Vec<u8>) -> First {
        match self.open(context, search) {
            Ok(cursor) => First::slice_of(cursor, context.clock, out),
            Err(end) => First::ended(*end),
        }
    }

    /// Compares a value with those of an entry.
    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End>;

    /// Judges a bind by its proof: later, if that takes long or has to be durable before the answer.
    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict>;

    /// Replaces a password (RFC 3062).
    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome>;

    /// Carries out an extended operation that is a database's own.
    fn extended(
        &self,
        _context: &Context<'_>,
        _operation: &ExtendedOperation<'_>,
        _later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        Reply::Now(ExtendedOperation::not_served().into())
    }

    /// Values by which a SASL mechanism can verify its proof: passwords in the clear, SCRAM verifiers. Empty if the backend can judge
    /// passwords only.
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

    /// Appends the entries that a filter finds with the `auth` privilege, up to the request's limit: the candidates for an identity. Answers
    /// whether the search may go on in the databases glued below.
    fn identities(
        &self,
        _context: &Context<'_>,
        _request: &Identities<'_>,
        _found: &mut Vec<NormalDn>,
    ) -> bool {
        true
    }

    /// Carries out changes. `completion` is called once, here or on another thread.
    fn update(&self, context: &Context<'_>, changes: Changes, completion: Completion) -> PendingAnswer;

    /// Why its changes cannot be part of a transaction with those of another backend. `None`: [`Self::update`] checks that.
    fn stands_apart(&self) -> Option<LdapResult> {
        let text = "transaction affects multiple databases";
        Some(LdapResult::with(ResultCode::AFFECTS_MULTIPLE_DSAS, text))
    }

    /// Whether it provides its content to consumers (RFC 4533). If not, the router passes it no search with that control.
    fn provides_content(&self) -> bool {
        false
    }

    /// Whether it takes persistent searches (draft-ietf-ldapext-psearch-03). If not, the router passes it no search with that control.
    fn tells_changes(&self) -> bool {
        false
    }

    /// The access rules in force at this name. `None`: the backend evaluates no rules.
    fn policy(&self, _dn: &NormalDn) -> Option<Arc<AccessPolicy>> {
        None
    }

    /// An internal search, for overlays in front: passes entries to `visit` until that answers false. A backend that stores nothing finds
    /// nothing.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn find(
        &self,
        _context: &Context<'_>,
        _query: &InternalSearch<'_>,
        _visit: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// The newest change in its change log; `None` without a change log.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn last_change(&self) -> Result<Option<LastChange>, Fault> {
        Ok(None)
    }

    /// Whether an operation on this name, or a search below it, may be answered with a referral or with references. `changes`: it is a
    /// change. Overlays that follow referrals ask, and keep a copy of the request only then.
    fn refers(&self, _dn: &NormalDn, _changes: bool) -> bool {
        true
    }

    /// How far it has come with the changes of its provider, if it is a shadow that keeps a contextCSN.
    fn replica_progress(&self, _dn: &NormalDn) -> Option<Arc<dyn ReplicaProgress>> {
        None
    }

    /// Its content, if other servers change it in place and this server may remember what was there before. Who has had another server
    /// change an entry lets it catch up before the answer.
    fn shared_content(&self, _dn: &NormalDn) -> Option<Arc<dyn SharedContent>> {
        None
    }

    /// Whether an overlay in front of it heeds the control with this OID.
    fn heeds(&self, _control: &str) -> bool {
        false
    }

    /// The backend behind the overlays; `None` if there are none in front.
    fn behind(&self) -> Option<&dyn Backend> {
        None
    }

    /// Tells of the changes that are made through it, for consumers of the database above that it is glued to. `None`: they get nothing of
    /// its entries, or its change log tells them.
    fn change_teller(&self) -> Option<&Arc<ChangeTeller>> {
        None
    }

    /// Adds what the root DSE says of this database.
    fn announce(&self, announced: &mut Announcement);

    /// Makes it read-only, or writable again, until the configuration says otherwise.
    fn set_read_only(&self, _value: bool) -> LdapResult {
        let text = "only a database that stores entries can be made read-only";
        LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
    }

    /// Its figures for the monitor and the metrics; `None` if it stores nothing.
    fn figures(&self) -> Option<DatabaseFigures> {
        None
    }
}

/// The circumstances of a request.
#[derive(Copy, Clone, Debug)]
pub struct Context<'a> {
    /// The requester.
    pub subject: &'a Arc<Subject>,
    /// The databases of the request's generation.
    pub router: &'a dyn Routing,
    /// The connection that it came by.
    pub client: &'a dyn Client,
    pub clock: &'a dyn Clock,
    /// When the request began. Its time limit counts from here.
    pub began: Monotonic,
}

/// The connection of a request that goes on later, on another thread.
pub trait KeptClient: Client + Send + Sync {
    fn as_client(&self) -> &dyn Client;

    /// Calls `then` with the databases of the request's generation, unless they are gone.
    fn with_databases(&self, then: &mut dyn FnMut(&dyn Routing));
}

/// The connection of a request.
pub trait Client: Debug {
    /// A handle for later.
    fn handle(&self) -> Box<dyn ClientHandle>;

    /// The number of the connection and the id of the request's message; `None` for a request from inside the server.
    fn request(&self) -> Option<(u64, MessageId)> {
        None
    }

    /// Lives as long as the connection, for those who keep something for it; `None` for a request from inside the server.
    fn lifetime(&self) -> Option<Weak<dyn Any + Send + Sync>> {
        None
    }

    /// The connection for a request that goes on later, on another thread; `None` for a request from inside the server.
    fn keep(&self) -> Option<Box<dyn KeptClient>> {
        None
    }
}

/// A connection, which may be gone.
pub trait ClientHandle: Send {
    /// Sends a message beside the answers to requests (RFC 4511 section 4.4).
    fn send(&self, message: Vec<u8>);

    /// Closes the connection behind the earlier answers.
    fn hang_up(&self);
}

/// A backend and the names that it holds.
#[derive(Debug)]
pub struct Mount {
    pub suffixes: Vec<NormalDn>,
    /// Glued to the database above it: searches go on in it.
    pub subordinate: bool,
    /// No client's name leads to it (`hidden`).
    pub hidden: bool,
    pub backend: Arc<dyn Backend>,
}

impl Mount {
    /// The same names with this backend.
    pub(crate) fn with(&self, backend: Arc<dyn Backend>) -> Self {
        Self { suffixes: self.suffixes.clone(), subordinate: self.subordinate, hidden: self.hidden, backend }
    }
}

/// All databases of a generation, for a backend or overlay that needs the others.
pub trait Routing: Debug + Send + Sync {
    /// All of them, in the order of the configuration.
    fn mounts(&self) -> &[Mount];

    /// The backend that holds this DN.
    fn backend(&self, dn: &NormalDn) -> Option<&dyn Backend>;

    /// The backends that a search of this base goes on in, each with its suffix and the scope it has there.
    fn glued_below(&self, base: &NormalDn, scope: Scope) -> Vec<Below<'_>>;

    /// What the root DSE says of all of them.
    fn announced(&self) -> Announcement;
}

/// A backend that a search goes on in, its suffix, and the scope that the search has there.
pub type Below<'a> = (&'a dyn Backend, &'a NormalDn, Scope);

/// What the root DSE says of the databases.
#[derive(Debug, Default)]
pub struct Announcement {
    pub naming_contexts: Vec<String>,
    pub monitor_context: Option<String>,
    /// The entry above the changes of a change log, and the numbers of the first and the last one; 0 of an empty log.
    pub changelog: Option<(&'static str, u64, u64)>,
    pub config_context: Option<String>,
    /// Controls that the root DSE lists for overlays that are part of databases.
    pub database_controls: Vec<&'static str>,
    /// A database has its content provided (RFC 4533).
    pub provides_content: bool,
    /// A database has searches go on with changes (draft-ietf-ldapext-psearch-03).
    pub tells_changes: bool,
    /// Suffixes below which entries may be dynamic (RFC 2589).
    pub dynamic_subtrees: Vec<String>,
    /// Extended operations that overlays bring.
    pub operations: Vec<&'static OverlayOperation>,
    /// Controls that overlays bring.
    pub controls: Vec<&'static OverlayControl>,
}
