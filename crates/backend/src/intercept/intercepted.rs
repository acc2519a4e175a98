//! A backend with overlays in front of it is a backend, too.

use std::sync::{Arc, Weak};

use larix_engine::Fault;
use larix_engine::access::AccessPolicy;
use larix_engine::log::LastChange;
use larix_engine::overlay::internal_search::{InternalSearch, Visit};
use larix_engine::write::Completion;
use larix_proto::LdapResult;
use larix_schema::NormalDn;

use super::{Next, Stack};
use crate::backend::{Announcement, Backend, Context};
use crate::change_teller::ChangeTeller;
use crate::cursor::{Cursor, End, First};
use crate::figures::DatabaseFigures;
use crate::operation::{
    Bind, Changes, Compare, ExtendedAnswer, ExtendedOperation, Identities, Later, PasswordChange,
    PasswordChangeOutcome, PendingAnswer, Reply, Search, Secret, Verdict,
};
use crate::replica_progress::ReplicaProgress;
use crate::shared_content::SharedContent;

/// A backend with overlays in front of it.
#[derive(Debug)]
pub struct InterceptedBackend {
    interceptors: Stack,
    backend: Arc<dyn Backend>,
}

impl InterceptedBackend {
    /// The backend itself, where there are no overlays.
    pub fn with(interceptors: Stack, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        if interceptors.interceptors.is_empty() {
            return backend;
        }
        let all = Arc::new(Self { interceptors, backend });
        for (number, interceptor) in all.interceptors.interceptors.iter().enumerate() {
            interceptor.stands_before(Behind { all: Arc::downgrade(&all), first: number + 1 });
        }
        all
    }
}

/// What comes behind an overlay of a database, as long as the database is mounted.
#[derive(Clone, Debug)]
pub struct Behind {
    all: Weak<InterceptedBackend>,
    first: usize,
}

impl Behind {
    /// Goes on there; none: the database is mounted no more.
    pub fn with<T>(&self, then: impl FnOnce(Next<'_>) -> T) -> Option<T> {
        let all = self.all.upgrade()?;
        let interceptors = all.interceptors.interceptors.get(self.first..)?;
        Some(then(Next { interceptors, backend: &*all.backend }))
    }
}

impl Backend for InterceptedBackend {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        self.interceptors.open(&*self.backend, context, search)
    }

    fn search(&self, context: &Context<'_>, search: Search<'_>, out: &mut Vec<u8>) -> First {
        self.interceptors.search(&*self.backend, context, search, out)
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        self.interceptors.compare(&*self.backend, context, compare, later)
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        self.interceptors.bind(&*self.backend, context, bind, later)
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        self.interceptors.modify_password(&*self.backend, context, change, later)
    }

    fn extended(
        &self,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        self.interceptors.extended(&*self.backend, context, request, later)
    }

    fn secrets(&self, context: &Context<'_>, dn: &NormalDn) -> Vec<Secret> {
        self.backend.secrets(context, dn)
    }

    fn authentication_values(&self, context: &Context<'_>, dn: &NormalDn, attribute: &str) -> Vec<Vec<u8>> {
        self.backend.authentication_values(context, dn, attribute)
    }

    fn identities(&self, context: &Context<'_>, request: &Identities<'_>, found: &mut Vec<NormalDn>) -> bool {
        self.backend.identities(context, request, found)
    }

    fn update(&self, context: &Context<'_>, changes: Changes, completion: Completion) -> PendingAnswer {
        self.interceptors.update(&*self.backend, context, changes, completion)
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        self.backend.stands_apart()
    }

    fn provides_content(&self) -> bool {
        self.backend.provides_content()
    }

    fn tells_changes(&self) -> bool {
        self.backend.tells_changes()
    }

    fn policy(&self, dn: &NormalDn) -> Option<Arc<AccessPolicy>> {
        self.backend.policy(dn)
    }

    fn find(
        &self,
        context: &Context<'_>,
        query: &InternalSearch<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        self.backend.find(context, query, visit)
    }

    fn last_change(&self) -> Result<Option<LastChange>, Fault> {
        self.backend.last_change()
    }

    fn refers(&self, dn: &NormalDn, changes: bool) -> bool {
        self.backend.refers(dn, changes)
    }

    fn replica_progress(&self, dn: &NormalDn) -> Option<Arc<dyn ReplicaProgress>> {
        self.backend.replica_progress(dn)
    }

    fn shared_content(&self, dn: &NormalDn) -> Option<Arc<dyn SharedContent>> {
        self.backend.shared_content(dn)
    }

    fn heeds(&self, control: &str) -> bool {
        self.interceptors.heeds(control) || self.backend.heeds(control)
    }

    fn behind(&self) -> Option<&dyn Backend> {
        match self.interceptors.interceptors.iter().all(|interceptor| interceptor.only_listens()) {
            true => self.backend.behind(),
            false => Some(&*self.backend),
        }
    }

    fn change_teller(&self) -> Option<&Arc<ChangeTeller>> {
        self.interceptors.interceptors.iter().find_map(|interceptor| interceptor.change_teller())
    }

    fn announce(&self, announced: &mut Announcement) {
        self.backend.announce(announced);
        self.interceptors.announce(announced);
    }

    fn set_read_only(&self, value: bool) -> LdapResult {
        self.backend.set_read_only(value)
    }

    fn figures(&self) -> Option<DatabaseFigures> {
        self.backend.figures()
    }
}
