//! The stored directory as a backend: a database of the engine with its writer.

mod identities;
mod limits;
mod search;
mod sync;

use std::any::Any;
use std::sync::Arc;

use larix_engine::compare::{self, CompareContext};
use larix_engine::overlay::internal_search::Ended;
use larix_engine::write::Completion;
use larix_engine::{Directory, Fault, Served};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::Store;
use larix_store::lmdb::LmdbStore;

use crate::backend::{
    Announced, Backend, Changes, Compare, Context, Cursor, DatabaseFigures, End, First, Identities, Search,
    StoreFigures,
};
use crate::config::values::LimitRule;
use crate::services::Services;
use crate::statistics::latency::in_database;

/// A stored database.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) served: Arc<Served<LmdbStore>>,
    /// All stored databases of the generation.
    pub(crate) directory: Arc<Directory<LmdbStore>>,
    pub(crate) services: Arc<Services>,
    pub(crate) limits: Vec<LimitRule>,
    /// URLs of the `referral` directive.
    pub(crate) default_referrals: Arc<[String]>,
}

impl Stored {
    /// The database of a backend, if it is a stored one.
    pub(crate) fn of(backend: &dyn Backend) -> Option<&Self> {
        let backend: &dyn Any = backend;
        backend.downcast_ref()
    }

    /// Operations are counted by their database.
    fn note(&self) {
        in_database(self.served.database().instance());
    }

    fn failure(&self, fault: &Fault) -> LdapResult {
        failure(&self.services, fault)
    }
}

fn failure(services: &Services, fault: &Fault) -> LdapResult {
    services.log.notice(format_args!("search failed: {fault}"));
    LdapResult::with(ResultCode::OTHER, "internal error")
}

impl Backend for Stored {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        self.note();
        self.open_search(context, search)
    }

    fn search(&self, context: &Context<'_>, search: Search<'_>, out: &mut Vec<u8>) -> First {
        self.note();
        self.first_slice(context, search, out).unwrap_or_else(|end| First::ended(*end))
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>) -> LdapResult {
        self.note();
        let database = self.served.database();
        let Compare { request, dn, controls } = *compare;
        let (policy, subject) = (database.current_policy(), &**context.subject);
        let default_referrals = &self.default_referrals;
        let context = CompareContext { controls, subject, policy: &policy, default_referrals };
        let compared = || -> Result<LdapResult, Fault> {
            let snapshot = database.store().snapshot()?;
            let view = database.view(&snapshot)?;
            Ok(compare::compare(&view, &context, dn, request))
        };
        compared().unwrap_or_else(|fault| self.failure(&fault))
    }

    fn update(&self, _: &Context<'_>, changes: Changes, done: Completion) {
        self.note();
        match changes {
            Changes::One(request, target) => self.directory.submit_at(request, target, done),
            Changes::Together(requests) => self.directory.submit_all(requests, done),
        }
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        None
    }

    fn provides_content(&self) -> bool {
        self.served.database().current_settings().provider.is_some()
    }

    fn announce(&self, announced: &mut Announced) {
        let settings = self.served.database().settings();
        if !settings.hidden && !settings.subordinate {
            let suffixes = settings.suffixes.iter().map(|suffix| suffix.text.clone());
            announced.naming_contexts.extend(suffixes);
        }
        announced.password_policy |= settings.overlays.iter().any(|overlay| overlay.name() == "ppolicy");
    }

    fn identities(&self, context: &Context<'_>, asked: &Identities<'_>, found: &mut Vec<NormalDn>) -> bool {
        match self.find_identities(context, asked, found) {
            Ok(ended) => matches!(ended, Ended::Complete | Ended::NoBase),
            Err(fault) => {
                self.failure(&fault);
                false
            }
        }
    }

    fn set_read_only(&self, value: bool) -> LdapResult {
        self.served.database().set_read_only(value);
        LdapResult::success()
    }

    fn figures(&self) -> Option<DatabaseFigures> {
        figures(&self.served)
    }
}

/// What no database here holds: it is elsewhere, if the default referrals say where.
#[derive(Debug)]
pub(crate) struct Nowhere {
    pub(crate) directory: Arc<Directory<LmdbStore>>,
}

impl Backend for Nowhere {
    fn open(&self, _: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let missing = LdapResult::new(ResultCode::NO_SUCH_OBJECT);
        let (base, scope) = (search.request.base, Some(search.request.scope));
        Err(Box::new((self.directory.elsewhere(base, scope, missing), Vec::new())))
    }

    fn compare(&self, _: &Context<'_>, compare: &Compare<'_>) -> LdapResult {
        let missing = LdapResult::new(ResultCode::NO_SUCH_OBJECT);
        self.directory.elsewhere(compare.request.entry, None, missing)
    }

    fn update(&self, _: &Context<'_>, changes: Changes, done: Completion) {
        match changes {
            Changes::One(request, target) => self.directory.submit_at(request, target, done),
            Changes::Together(requests) => self.directory.submit_all(requests, done),
        }
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        None
    }

    fn announce(&self, _: &mut Announced) {}
}

/// None of a store that cannot be read.
pub(crate) fn figures(served: &Served<LmdbStore>) -> Option<DatabaseFigures> {
    let database = served.database();
    let statistics = database.store().statistics().ok()?;
    let log_times = database.store().snapshot().ok().and_then(|it| larix_engine::log::times(&it).ok())?;
    Some(DatabaseFigures {
        suffix: suffix_of(served),
        instance: database.instance(),
        store: StoreFigures::of(&statistics),
        read_only: database.current_settings().read_only,
        writes_waiting: served.waiting_writes() as u64,
        sync_failed: has_failed_sync(served),
        writes: database.writes().figures(),
        log_times,
        indexes: served.index_status(),
        not_indexed: served.not_indexed_total(),
        not_indexed_shapes: served.not_indexed(),
    })
}

pub(crate) fn suffix_of(served: &Served<LmdbStore>) -> String {
    served.database().settings().suffixes.first().map(|suffix| suffix.text.clone()).unwrap_or_default()
}

pub(crate) fn has_failed_sync(served: &Served<LmdbStore>) -> bool {
    // The server opens every store for writing.
    served.database().store().is_read_only()
}
