//! The stored directory as a backend: a database of the engine with its writer.

mod glued_content;
mod password_modify;
mod persistent;
mod progress;
mod replica;
mod search;
mod sent_names;
mod sync;

use std::any::Any;
use std::sync::Arc;

use larix_configuration::values::LimitRule;
use larix_engine::access::AccessPolicy;
use larix_engine::log::{self, LastChange};
use larix_engine::overlay::internal_search::{InternalSearch, Visit};
use larix_engine::search::internal;
use larix_engine::write::Completion;
use larix_engine::{ChosenDatabase, DnLocation, Fault, ServedDatabase};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::lmdb::LmdbStore;
use larix_store::{CommitError, Statistics, Store};
use zeroize::Zeroizing;

use super::bind_judge::{self, Judge};
use super::engine_database::{self, EngineDatabase};
use super::password_replacement::replace_unstored;
use super::passwords::AccountPasswords;
use super::{Common, identities};
use crate::statistics::latency::in_database;
use larix_backend::{
    Announcement, Backend, Bind, Changes, Compare, Context, Cursor, DatabaseFigures, End, ExtendedAnswer,
    ExtendedOperation, First, Identities, Later, PasswordChange, PasswordChangeOutcome, PendingAnswer, Proof,
    ReplicaProgress, Reply, Search, Secret, StoreFigures, Verdict,
};

/// A stored database.
#[derive(Debug)]
pub(crate) struct StoredBackend {
    pub(crate) served: Arc<ServedDatabase<LmdbStore>>,
    pub(crate) common: Arc<Common>,
    pub(crate) limits: Vec<LimitRule>,
}

impl StoredBackend {
    /// The database of a backend, if it is a stored one.
    pub(crate) fn of(backend: &dyn Backend) -> Option<&Self> {
        let own: &dyn Any = backend;
        own.downcast_ref().or_else(|| Self::of(backend.behind()?))
    }

    /// Operations are counted by their database.
    fn note(&self) {
        in_database(self.served.database().instance());
    }

    fn failure(&self, fault: &Fault) -> LdapResult {
        engine_database::failure(&self.common.services, fault)
    }
}

impl StoredBackend {
    /// What came of it, as far as the entry alone decides; and whether an overlay may say that the value is a code.
    fn compared(&self, context: &Context<'_>, compare: &Compare<'_>) -> (LdapResult, bool) {
        let database = self.served.database();
        let Compare { request, dn, controls } = *compare;
        let whose = (&**context.subject, controls);
        let compared =
            engine_database::compare(database, whose, &self.common.default_referrals, (dn, request));
        compared.unwrap_or_else(|fault| (self.failure(&fault), false))
    }

    /// A compare with a token asks whether the value is a code of it, which is used up then (slapo-otp). A compare of a password
    /// that asks for the policy's word is judged as a bind is: what is wrong counts (slapo-ppolicy).
    fn judge_compare(&self, compare: &Compare<'_>, result: LdapResult, later: Later<'_, End>) -> Reply<End> {
        let (chosen, about) = (self.chosen(), (compare.dn, compare.request));
        let Some(attempt) = bind_judge::compared_attempt(chosen, &result, about, compare.controls) else {
            return Reply::Now((result, Vec::new()));
        };
        let done = later();
        chosen.conclude_bind(attempt, Box::new(move |verdict| done(bind_judge::compared(verdict))));
        Reply::Later(PendingAnswer::default())
    }

    pub(super) fn database(&self) -> EngineDatabase<LmdbStore> {
        EngineDatabase { directory: Arc::clone(&self.common.directory), served: Arc::clone(&self.served) }
    }

    fn chosen(&self) -> ChosenDatabase<'_, LmdbStore> {
        self.common.directory.at(&self.served)
    }

    /// Where a name is, for the router.
    fn locate(&self, context: &Context<'_>, dn: &NormalDn) -> DnLocation {
        let is_own = |other: &Self| Arc::ptr_eq(&other.served, &self.served);
        engine_database::locate(context, dn, |backend| Self::of(backend).is_some_and(is_own))
    }

    /// With `rehash` the entry's own password may be stored anew, so the entry is looked up.
    fn root_password(&self, bind: &Bind<'_>) -> Option<AccountPasswords> {
        if self.common.config.frontend.password_costs.rehash {
            return None;
        }
        AccountPasswords::of_root(&self.served.database().current_settings(), bind)
    }
}

impl Backend for StoredBackend {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        self.note();
        self.open_search(context, search)
    }

    fn search(&self, context: &Context<'_>, search: Search<'_>, out: &mut Vec<u8>) -> First {
        self.note();
        self.first_slice(context, search, out).unwrap_or_else(|end| First::ended(*end))
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        self.note();
        let (result, has_codes) = self.compared(context, compare);
        if !has_codes && !compare.controls.password_policy {
            return Reply::Now((result, Vec::new()));
        }
        self.judge_compare(compare, result, later)
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        self.note();
        let judge = Judge::of(&self.common, &self.served);
        let Proof::Password(sent) = bind.proof else {
            return self.common.bind(judge, context, bind, AccountPasswords::none(), later);
        };
        let look_up = || AccountPasswords::of(self.chosen(), (bind.dn, context.subject), sent);
        match self.root_password(bind).map_or_else(look_up, Ok) {
            Ok(stored) => self.common.bind(judge, context, bind, stored, later),
            Err(_) if bind.by_mechanism => {
                self.common.bind(judge, context, bind, AccountPasswords::none(), later)
            }
            Err(result) => Reply::Now(result.into()),
        }
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        self.change_password(context, change, later).unwrap_or_else(|refused| Reply::Now(refused.into()))
    }

    fn extended(
        &self,
        context: &Context<'_>,
        operation: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        let reply = self.replica_operation(context, operation, later);
        reply.unwrap_or_else(|refused| Reply::Now(refused.into()))
    }

    fn secrets(&self, context: &Context<'_>, dn: &NormalDn) -> Vec<Secret> {
        self.note();
        let found = self.chosen().bind_lookup(dn, context.subject);
        found.map(|found| found.secrets.into_iter().map(Zeroizing::new).collect()).unwrap_or_default()
    }

    fn authentication_values(&self, context: &Context<'_>, dn: &NormalDn, attribute: &str) -> Vec<Vec<u8>> {
        let values = self.chosen().authentication_values(dn, attribute, context.subject);
        // What cannot be read is not there: a damaged entry must not grant a login.
        values.unwrap_or_default()
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> PendingAnswer {
        self.note();
        self.database().change(&self.common, changes, &|dn| self.locate(context, dn), done);
        PendingAnswer::default()
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        None
    }

    fn provides_content(&self) -> bool {
        self.served.database().current_settings().provider.is_some()
    }

    fn tells_changes(&self) -> bool {
        self.served.database().current_settings().tells_changes
    }

    fn announce(&self, announced: &mut Announcement) {
        engine_database::announce(&self.served.database().settings(), announced);
    }

    fn identities(&self, context: &Context<'_>, request: &Identities<'_>, found: &mut Vec<NormalDn>) -> bool {
        match identities::find(self.served.database(), &self.limits, context.subject, request) {
            Ok((own, are_all)) => {
                found.extend(own);
                are_all
            }
            Err(fault) => {
                self.failure(&fault);
                false
            }
        }
    }

    fn refers(&self, _: &NormalDn, changes: bool) -> bool {
        let database = self.served.database();
        (changes && database.settings().shadow) || database.has_referrals().unwrap_or(true)
    }

    fn replica_progress(&self, _: &NormalDn) -> Option<Arc<dyn ReplicaProgress>> {
        progress::of(&self.served)
    }

    fn policy(&self, _: &NormalDn) -> Option<Arc<AccessPolicy>> {
        Some(self.served.database().policy())
    }

    fn find(&self, _: &Context<'_>, query: &InternalSearch<'_>, visit: &mut Visit<'_>) -> Result<(), Fault> {
        let database = self.served.database();
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        internal::search(&view, query, visit).map(|_| ())
    }

    fn last_change(&self) -> Result<Option<LastChange>, Fault> {
        log::last_change(&self.served.database().store().snapshot()?)
    }

    fn set_read_only(&self, value: bool) -> LdapResult {
        self.served.database().set_read_only(value);
        LdapResult::success()
    }

    fn figures(&self) -> Option<DatabaseFigures> {
        figures(&self.served)
    }
}

/// The backend of names that no database here holds. It answers with the default referrals, if there are any.
#[derive(Debug)]
pub(crate) struct Nowhere {
    pub(crate) common: Arc<Common>,
}

impl Backend for Nowhere {
    fn open(&self, _: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let missing = LdapResult::new(ResultCode::NO_SUCH_OBJECT);
        let (base, scope) = (search.request.base, Some(search.request.scope));
        Err(Box::new((self.common.directory.elsewhere(base, scope, missing), Vec::new())))
    }

    fn compare(&self, _: &Context<'_>, compare: &Compare<'_>, _: Later<'_, End>) -> Reply<End> {
        let missing = LdapResult::new(ResultCode::NO_SUCH_OBJECT);
        Reply::Now((self.common.directory.elsewhere(compare.request.entry, None, missing), Vec::new()))
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        if bind.by_mechanism {
            return self.common.bind_without_database(context, bind, Vec::new(), later);
        }
        // No referral: the client would take its password there.
        Reply::Now(LdapResult::new(ResultCode::INVALID_CREDENTIALS).into())
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        replace_unstored(self, context, change, later)
    }

    /// Faults of the change itself come first, then the refusal or the default referrals.
    fn update(&self, _: &Context<'_>, changes: Changes, done: Completion) -> PendingAnswer {
        match changes {
            Changes::One(request, target) => self.common.directory.submit_at(request, target, done),
            Changes::Together(requests) => self.common.directory.submit_all(requests, done),
        }
        PendingAnswer::default()
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        None
    }

    fn announce(&self, _: &mut Announcement) {}
}

/// None of a store that cannot be read.
pub(crate) fn figures(served: &ServedDatabase<LmdbStore>) -> Option<DatabaseFigures> {
    let database = served.database();
    let statistics = database.store().statistics().ok()?;
    let log_times = database.store().snapshot().ok().and_then(|it| log::times(&it).ok())?;
    Some(DatabaseFigures {
        suffix: suffix_of(served),
        instance: database.instance(),
        store: store_figures(&statistics),
        read_only: database.current_settings().read_only,
        writes_waiting: served.waiting_writes() as u64,
        sync_failed: refusal(served).is_some(),
        full: database.store().is_full(),
        writes: database.writes().figures(),
        log_times,
        indexes: served.index_status(),
        not_indexed: served.not_indexed_total(),
        not_indexed_shapes: served.not_indexed(),
    })
}

/// A store's statistics in cn=Monitor's terms.
fn store_figures(store: &Statistics) -> StoreFigures {
    let entries = store.tables.iter().find(|table| table.name == "entries").map_or(0, |table| table.records);
    StoreFigures {
        pages_max: store.map_bytes.checked_div(store.page_bytes).unwrap_or(0),
        pages_used: store.pages_used,
        pages_free: store.pages_free,
        readers_max: store.max_readers.into(),
        readers_used: store.readers.into(),
        oldest_read: store.oldest_read,
        entries,
    }
}

pub(crate) fn suffix_of(served: &ServedDatabase<LmdbStore>) -> String {
    served.database().settings().suffixes.first().map(|suffix| suffix.text.clone()).unwrap_or_default()
}

/// Why the database takes no changes until the server is started again; `None` while it takes them.
pub(crate) fn refusal(served: &ServedDatabase<LmdbStore>) -> Option<CommitError> {
    let store = served.database().store();
    // Without changes nobody else looks at the file.
    store.look_after_file().err().or_else(|| store.refusal())
}
