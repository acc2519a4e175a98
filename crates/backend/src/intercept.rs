//! What stands in front of a backend: the hooks of overlays that see requests on their way in and results on their way out.
//!
//! A hook that sees a request passes it on, alters it, answers or refuses it, or answers it later. What must be atomic with a change
//! is no business of these: that runs in the writer ([`larix_engine::overlay`]).

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use larix_engine::Fault;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::controls::{OverlayControl, RequestControls};
use larix_engine::log::LastChange;
use larix_engine::overlay::internal_search::{InternalSearch, Visit};
use larix_engine::search::task::Budget;
use larix_engine::write::{Completion, WriteOutcome};
use larix_proto::{ControlBuf, LdapResult};
use larix_schema::NormalDn;

use crate::backend::{Announced, Backend, Context};
use crate::change_teller::ChangeTeller;
use crate::cursor::{Cursor, CursorAround, End, First, Slice};
use crate::figures::DatabaseFigures;
use crate::operation::{
    Bind, Changes, Compare, Done, Extended, ExtendedAnswer, Identities, Later, OverlayOperation,
    PasswordChange, PasswordChanged, Pending, Reply, Search, Secret, Verdict,
};
use crate::replica_progress::ReplicaProgress;

/// A set of kinds of operations.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Operations(u8);

impl Operations {
    pub const NONE: Self = Self(0);
    pub const SEARCH: Self = Self(1);
    pub const COMPARE: Self = Self(2);
    pub const BIND: Self = Self(4);
    pub const UPDATE: Self = Self(8);
    /// Password modify (RFC 3062).
    pub const PASSWORD: Self = Self(16);
    /// Other extended operations that are a database's own.
    pub const EXTENDED: Self = Self(32);

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }
}

/// The hooks of one overlay, in front of a database or of all of them. One that does not care for an operation is not called for it.
pub trait Interceptor: Debug + Send + Sync {
    /// The kinds of requests that it sees. They do not change.
    fn requests(&self) -> Operations {
        Operations::NONE
    }

    /// The kinds of operations whose results it sees. They do not change.
    fn results(&self) -> Operations {
        Operations::NONE
    }

    /// Whether it does anything about this search. Others take the shortest way to the backend.
    fn sees(&self, _search: &Search<'_>) -> bool {
        true
    }

    /// A search begins. A cursor of its own may stand in the place of what `next` gives, or around it.
    ///
    /// # Errors
    /// What is answered without entries.
    fn open(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        next.open(context, search)
    }

    fn compare(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        next.compare(context, compare, later)
    }

    fn bind(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        next.bind(context, bind, later)
    }

    fn update(&self, next: Next<'_>, context: &Context<'_>, changes: Changes, done: Completion) -> Pending {
        next.update(context, changes, done)
    }

    fn modify_password(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Reply<PasswordChanged> {
        next.modify_password(context, change, later)
    }

    fn extended(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        asked: &Extended<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        next.extended(context, asked, later)
    }

    /// The extended operations that it carries out.
    fn operations(&self) -> &'static [OverlayOperation] {
        &[]
    }

    /// The request controls that it heeds.
    fn controls(&self) -> &'static [OverlayControl] {
        &[]
    }

    /// A bind whose request has controls of overlays has succeeded, be it anonymous or by a SASL mechanism: controls for its answer.
    /// Only what stands in front of all databases is asked.
    fn bound(&self, _bound: &Bound<'_>) -> Vec<ControlBuf> {
        Vec::new()
    }

    /// Whether entries behind it have other names or attributes: access rules of a database that another server or another
    /// database has are about those in front of it.
    fn maps_names(&self) -> bool {
        false
    }

    /// What it tells changes to that pass it.
    fn change_teller(&self) -> Option<&Arc<ChangeTeller>> {
        None
    }

    /// Whether all that passes it is the same behind it.
    fn only_listens(&self) -> bool {
        false
    }

    /// It is mounted in front of a database: what comes behind it, for one that lets requests go on later. Of several calls the last
    /// one counts.
    fn stands_before(&self, _behind: Behind) {}

    /// Alters a result, or adds controls to it, on any thread.
    fn result(&self, _ended: Ended<'_>) {}
}

/// A session that has just been bound.
#[derive(Debug)]
pub struct Bound<'a> {
    /// Of the bind request; of a SASL bind in several steps the last ones that were sent.
    pub controls: &'a RequestControls,
    pub subject: &'a Subject,
}

/// A result on its way out.
#[derive(Debug)]
pub struct Ended<'a> {
    /// One kind.
    pub kind: Operations,
    pub result: &'a mut LdapResult,
    pub controls: &'a mut Vec<ControlBuf>,
}

/// The overlays in front of a backend, the outermost first.
#[derive(Clone, Debug)]
pub struct Stack {
    interceptors: Arc<[Arc<dyn Interceptor>]>,
    requests: Operations,
    results: Operations,
}

impl Default for Stack {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Stack {
    pub fn new(interceptors: Vec<Arc<dyn Interceptor>>) -> Self {
        let all = |kinds: fn(&dyn Interceptor) -> Operations| {
            interceptors.iter().fold(Operations::NONE, |all, one| all.and(kinds(&**one)))
        };
        let (requests, results) = (all(|one| one.requests()), all(|one| one.results()));
        Self { interceptors: interceptors.into(), requests, results }
    }

    /// Whether entries have other names behind any of them.
    pub fn maps_names(&self) -> bool {
        self.interceptors.iter().any(|one| one.maps_names())
    }

    /// The same with one more, in front of all.
    #[must_use]
    pub fn behind(&self, outermost: Arc<dyn Interceptor>) -> Self {
        Self::new(std::iter::once(outermost).chain(self.interceptors.iter().cloned()).collect())
    }

    fn before<'a>(&'a self, backend: &'a dyn Backend) -> Next<'a> {
        Next { interceptors: &self.interceptors, backend }
    }

    pub fn open(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        let opened = match self.requests.has(Operations::SEARCH) {
            true => self.before(backend).open(context, search),
            false => backend.open(context, search),
        };
        if !self.results.has(Operations::SEARCH) {
            return opened;
        }
        opened.map(|cursor| self.around(cursor)).map_err(|mut end| {
            self.end(Operations::SEARCH, &mut end.0, &mut end.1);
            end
        })
    }

    pub fn search(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        search: Search<'_>,
        out: &mut Vec<u8>,
    ) -> First {
        let sees = |one: &Arc<dyn Interceptor>| one.requests().has(Operations::SEARCH) && one.sees(&search);
        if self.requests.has(Operations::SEARCH) && self.interceptors.iter().any(sees) {
            return match self.open(backend, context, search) {
                Ok(cursor) => First::slice_of(cursor, context.clock, out),
                Err(end) => First::ended(*end),
            };
        }
        let first = backend.search(context, search, out);
        if !self.results.has(Operations::SEARCH) {
            return first;
        }
        match first {
            First::Done { mut result, mut controls, effort } => {
                self.end(Operations::SEARCH, &mut result, &mut controls);
                First::Done { result, controls, effort }
            }
            First::Running(cursor) => First::Running(self.around(cursor)),
        }
    }

    pub fn compare(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        let kind = Operations::COMPARE;
        if !self.cares(kind) {
            return backend.compare(context, compare, later);
        }
        let stack = self.clone();
        let mut later = || -> Done<End> {
            let (stack, done) = (stack.clone(), later());
            Box::new(move |(mut result, mut controls)| {
                stack.end(kind, &mut result, &mut controls);
                done((result, controls));
            })
        };
        match self.before(backend).compare(context, compare, &mut later) {
            Reply::Now((mut result, mut controls)) => {
                self.end(kind, &mut result, &mut controls);
                Reply::Now((result, controls))
            }
            pending @ Reply::Later(_) => pending,
        }
    }

    pub fn bind(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        let kind = Operations::BIND;
        if !self.cares(kind) {
            return backend.bind(context, bind, later);
        }
        let stack = self.clone();
        let mut later = || -> Done<Verdict> {
            let (stack, done) = (stack.clone(), later());
            Box::new(move |mut verdict| {
                stack.end(kind, &mut verdict.result, &mut verdict.controls);
                done(verdict);
            })
        };
        match self.before(backend).bind(context, bind, &mut later) {
            Reply::Now(mut verdict) => {
                self.end(kind, &mut verdict.result, &mut verdict.controls);
                Reply::Now(verdict)
            }
            pending @ Reply::Later(_) => pending,
        }
    }

    pub fn update(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        changes: Changes,
        done: Completion,
    ) -> Pending {
        let kind = Operations::UPDATE;
        if !self.cares(kind) {
            return backend.update(context, changes, done);
        }
        let done: Completion = match self.results.has(kind) {
            true => {
                let stack = self.clone();
                Box::new(move |mut outcome: WriteOutcome| {
                    stack.end(kind, &mut outcome.result, &mut outcome.controls);
                    done(outcome);
                })
            }
            false => done,
        };
        self.before(backend).update(context, changes, done)
    }

    pub fn modify_password(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Reply<PasswordChanged> {
        let kind = Operations::PASSWORD;
        if !self.cares(kind) {
            return backend.modify_password(context, change, later);
        }
        let stack = self.clone();
        let mut later = || -> Done<PasswordChanged> {
            let (stack, done) = (stack.clone(), later());
            Box::new(move |mut changed| {
                stack.end(kind, &mut changed.result, &mut changed.controls);
                done(changed);
            })
        };
        match self.before(backend).modify_password(context, change, &mut later) {
            Reply::Now(mut changed) => {
                self.end(kind, &mut changed.result, &mut changed.controls);
                Reply::Now(changed)
            }
            pending @ Reply::Later(_) => pending,
        }
    }

    pub fn extended(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        asked: &Extended<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        let kind = Operations::EXTENDED;
        if !self.cares(kind) {
            return backend.extended(context, asked, later);
        }
        let stack = self.clone();
        let mut later = || -> Done<ExtendedAnswer> {
            let (stack, done) = (stack.clone(), later());
            Box::new(move |mut answer| {
                stack.end(kind, &mut answer.result, &mut answer.controls);
                done(answer);
            })
        };
        match self.before(backend).extended(context, asked, &mut later) {
            Reply::Now(mut answer) => {
                self.end(kind, &mut answer.result, &mut answer.controls);
                Reply::Now(answer)
            }
            pending @ Reply::Later(_) => pending,
        }
    }

    /// Whether any of them sees operations of this kind.
    fn cares(&self, kind: Operations) -> bool {
        self.requests.and(self.results).has(kind)
    }

    /// Shows a result to those that see it, the innermost first.
    fn end(&self, kind: Operations, result: &mut LdapResult, controls: &mut Vec<ControlBuf>) {
        for one in self.interceptors.iter().rev().filter(|one| one.results().has(kind)) {
            one.result(Ended { kind, result, controls });
        }
    }

    /// What they add to the answer of a bind.
    pub(crate) fn bound(&self, bound: &Bound<'_>) -> Vec<ControlBuf> {
        self.interceptors.iter().flat_map(|one| one.bound(bound)).collect()
    }

    /// Whether any of them heeds the control with this OID.
    pub(crate) fn heeds(&self, control: &str) -> bool {
        self.interceptors.iter().any(|one| one.controls().iter().any(|known| known.oid == control))
    }

    /// Adds the operations and controls that they bring.
    pub(crate) fn announce(&self, announced: &mut Announced) {
        for one in self.interceptors.iter() {
            let is_new = |operation: &&OverlayOperation| {
                announced.operations.iter().all(|known| known.oid != operation.oid)
            };
            let operations: Vec<_> = one.operations().iter().filter(is_new).collect();
            announced.operations.extend(operations);
            let controls: Vec<_> =
                one.controls().iter().filter(|control| !announced.controls.contains(control)).collect();
            announced.controls.extend(controls);
        }
    }

    fn around(&self, inner: Box<dyn Cursor>) -> Box<dyn Cursor> {
        Box::new(ResultSeen { inner, stack: self.clone() })
    }
}

/// What comes behind an overlay: the next ones, then the backend.
#[derive(Copy, Clone, Debug)]
pub struct Next<'a> {
    interceptors: &'a [Arc<dyn Interceptor>],
    backend: &'a dyn Backend,
}

impl<'a> Next<'a> {
    /// As [`Backend::policy`].
    pub fn policy(self, dn: &NormalDn) -> Option<Arc<AccessPolicy>> {
        self.backend.policy(dn)
    }

    /// As [`Backend::secrets`].
    pub fn secrets(self, context: &Context<'_>, dn: &NormalDn) -> Vec<Secret> {
        self.backend.secrets(context, dn)
    }

    /// As [`Backend::last_change`].
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn last_change(self) -> Result<Option<LastChange>, Fault> {
        self.backend.last_change()
    }

    /// As [`Backend::refers`].
    pub fn refers(self, dn: &NormalDn, changes: bool) -> bool {
        self.backend.refers(dn, changes)
    }

    /// As [`Backend::replica_progress`].
    pub fn replica_progress(self, dn: &NormalDn) -> Option<Arc<dyn ReplicaProgress>> {
        self.backend.replica_progress(dn)
    }

    /// As [`Backend::find`].
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn find(
        self,
        context: &Context<'_>,
        query: &InternalSearch<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        self.backend.find(context, query, visit)
    }

    /// The next overlay that sees such requests, and what comes behind it.
    fn interceptor(self, kind: Operations) -> Option<(&'a dyn Interceptor, Self)> {
        let at = self.interceptors.iter().position(|one| one.requests().has(kind))?;
        let (one, rest) = self.interceptors.get(at..)?.split_first()?;
        Some((&**one, Self { interceptors: rest, ..self }))
    }

    pub fn open(self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        match self.interceptor(Operations::SEARCH) {
            Some((one, next)) => one.open(next, context, search),
            None => self.backend.open(context, search),
        }
    }

    pub fn compare(self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        match self.interceptor(Operations::COMPARE) {
            Some((one, next)) => one.compare(next, context, compare, later),
            None => self.backend.compare(context, compare, later),
        }
    }

    pub fn bind(self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        match self.interceptor(Operations::BIND) {
            Some((one, next)) => one.bind(next, context, bind, later),
            None => self.backend.bind(context, bind, later),
        }
    }

    pub fn update(self, context: &Context<'_>, changes: Changes, done: Completion) -> Pending {
        match self.interceptor(Operations::UPDATE) {
            Some((one, next)) => one.update(next, context, changes, done),
            None => self.backend.update(context, changes, done),
        }
    }

    pub fn modify_password(
        self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Reply<PasswordChanged> {
        match self.interceptor(Operations::PASSWORD) {
            Some((one, next)) => one.modify_password(next, context, change, later),
            None => self.backend.modify_password(context, change, later),
        }
    }

    pub fn extended(
        self,
        context: &Context<'_>,
        asked: &Extended<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        match self.interceptor(Operations::EXTENDED) {
            Some((one, next)) => one.extended(next, context, asked, later),
            None => self.backend.extended(context, asked, later),
        }
    }
}

/// A backend with overlays in front of it.
#[derive(Debug)]
pub struct Intercepted {
    interceptors: Stack,
    backend: Arc<dyn Backend>,
}

impl Intercepted {
    /// The backend itself, where there are no overlays.
    pub fn with(interceptors: Stack, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        if interceptors.interceptors.is_empty() {
            return backend;
        }
        let all = Arc::new(Self { interceptors, backend });
        for (number, one) in all.interceptors.interceptors.iter().enumerate() {
            one.stands_before(Behind { all: Arc::downgrade(&all), first: number + 1 });
        }
        all
    }
}

/// What comes behind an overlay of a database, as long as the database is mounted.
#[derive(Clone, Debug)]
pub struct Behind {
    all: Weak<Intercepted>,
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

impl Backend for Intercepted {
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
        later: Later<'_, PasswordChanged>,
    ) -> Reply<PasswordChanged> {
        self.interceptors.modify_password(&*self.backend, context, change, later)
    }

    fn extended(
        &self,
        context: &Context<'_>,
        asked: &Extended<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        self.interceptors.extended(&*self.backend, context, asked, later)
    }

    fn secrets(&self, context: &Context<'_>, dn: &NormalDn) -> Vec<Secret> {
        self.backend.secrets(context, dn)
    }

    fn authentication_values(&self, context: &Context<'_>, dn: &NormalDn, attribute: &str) -> Vec<Vec<u8>> {
        self.backend.authentication_values(context, dn, attribute)
    }

    fn identities(&self, context: &Context<'_>, asked: &Identities<'_>, found: &mut Vec<NormalDn>) -> bool {
        self.backend.identities(context, asked, found)
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> Pending {
        self.interceptors.update(&*self.backend, context, changes, done)
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

    fn heeds(&self, control: &str) -> bool {
        self.interceptors.heeds(control) || self.backend.heeds(control)
    }

    fn behind(&self) -> Option<&dyn Backend> {
        match self.interceptors.interceptors.iter().all(|one| one.only_listens()) {
            true => self.backend.behind(),
            false => Some(&*self.backend),
        }
    }

    fn change_teller(&self) -> Option<&Arc<ChangeTeller>> {
        self.interceptors.interceptors.iter().find_map(|one| one.change_teller())
    }

    fn announce(&self, announced: &mut Announced) {
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

/// A search whose result is seen.
#[derive(Debug)]
struct ResultSeen {
    inner: Box<dyn Cursor>,
    stack: Stack,
}

impl CursorAround for ResultSeen {
    fn inner(&self) -> &dyn Cursor {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Cursor {
        &mut *self.inner
    }

    fn step_around(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Slice {
        match self.inner.step(budget, out) {
            Slice::Done(mut result, mut controls) => {
                self.stack.end(Operations::SEARCH, &mut result, &mut controls);
                Slice::Done(result, controls)
            }
            goes_on => goes_on,
        }
    }
}
