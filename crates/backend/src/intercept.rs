//! The hooks of overlays that see requests before a backend does.
//!
//! A hook passes a request on, alters it, answers or refuses it, or answers it later. What must be atomic with a change runs in the writer
//! instead ([`larix_engine::overlay`]).

mod intercepted;
mod stack;

use std::fmt::Debug;
use std::sync::Arc;

use larix_engine::Fault;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::controls::{OverlayControl, RequestControls};
use larix_engine::log::LastChange;
use larix_engine::overlay::internal_search::{InternalSearch, Visit};
use larix_engine::write::Completion;
use larix_proto::ControlBuf;
use larix_schema::NormalDn;

use crate::backend::{Backend, Context};
use crate::change_teller::ChangeTeller;
use crate::cursor::{Cursor, End};
use crate::operation::{
    Bind, Changes, Compare, ExtendedAnswer, ExtendedOperation, Later, OverlayOperation, PasswordChange,
    PasswordChangeOutcome, PendingAnswer, Reply, Search, Secret, Verdict,
};
use crate::replica_progress::ReplicaProgress;
use crate::shared_content::SharedContent;

pub use intercepted::{Behind, InterceptedBackend};
pub use stack::Stack;

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

    /// These kinds and those of `other`.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the kind is one of these.
    pub const fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }
}

/// The hooks of one overlay, in front of a database or of all of them. Only operations in [`Self::requests`] call it.
pub trait Interceptor: Debug + Send + Sync {
    /// The kinds of requests that it sees, always the same.
    fn requests(&self) -> Operations {
        Operations::NONE
    }

    /// Whether it wants to see this search. Other searches take the shortest way to the backend.
    fn sees(&self, _search: &Search<'_>) -> bool {
        true
    }

    /// Begins a search: with the cursor of `next`, one around it, or one of its own.
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

    fn update(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        changes: Changes,
        completion: Completion,
    ) -> PendingAnswer {
        next.update(context, changes, completion)
    }

    fn modify_password(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        next.modify_password(context, change, later)
    }

    fn extended(
        &self,
        next: Next<'_>,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        next.extended(context, request, later)
    }

    /// The extended operations that it carries out.
    fn operations(&self) -> &'static [OverlayOperation] {
        &[]
    }

    /// The request controls that it heeds.
    fn controls(&self) -> &'static [OverlayControl] {
        &[]
    }

    /// Controls for the answer of a successful bind, anonymous and SASL ones included, whose request had controls of overlays. Called only
    /// for overlays in front of all databases.
    fn bound(&self, _bound: &BoundSession<'_>) -> Vec<ControlBuf> {
        Vec::new()
    }

    /// Whether entries behind it have other names or attributes. The access rules of a database whose entries are in another server or
    /// database are about those in front.
    fn maps_names(&self) -> bool {
        false
    }

    /// Whether it counts what is answered. The access rules in front of a database's other overlays are behind it: what they hide is not
    /// counted.
    fn counts_answers(&self) -> bool {
        false
    }

    /// The teller that it tells passing changes to.
    fn change_teller(&self) -> Option<&Arc<ChangeTeller>> {
        None
    }

    /// Whether it alters no request and no answer.
    fn only_listens(&self) -> bool {
        false
    }

    /// Gives it what is behind it once it is mounted in front of a database, so that requests can go on later. The last call counts.
    fn stands_before(&self, _behind: Behind) {}
}

/// A session that has just been bound.
#[derive(Debug)]
pub struct BoundSession<'a> {
    /// The controls of the bind request; of a SASL bind in several steps the last ones sent.
    pub controls: &'a RequestControls,
    pub subject: &'a Subject,
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

    /// As [`Backend::shared_content`].
    pub fn shared_content(self, dn: &NormalDn) -> Option<Arc<dyn SharedContent>> {
        self.backend.shared_content(dn)
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
        let at = self.interceptors.iter().position(|interceptor| interceptor.requests().has(kind))?;
        let (interceptor, rest) = self.interceptors.get(at..)?.split_first()?;
        Some((&**interceptor, Self { interceptors: rest, ..self }))
    }

    pub fn open(self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        match self.interceptor(Operations::SEARCH) {
            Some((interceptor, next)) => interceptor.open(next, context, search),
            None => self.backend.open(context, search),
        }
    }

    pub fn compare(self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        match self.interceptor(Operations::COMPARE) {
            Some((interceptor, next)) => interceptor.compare(next, context, compare, later),
            None => self.backend.compare(context, compare, later),
        }
    }

    pub fn bind(self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        match self.interceptor(Operations::BIND) {
            Some((interceptor, next)) => interceptor.bind(next, context, bind, later),
            None => self.backend.bind(context, bind, later),
        }
    }

    pub fn update(self, context: &Context<'_>, changes: Changes, completion: Completion) -> PendingAnswer {
        match self.interceptor(Operations::UPDATE) {
            Some((interceptor, next)) => interceptor.update(next, context, changes, completion),
            None => self.backend.update(context, changes, completion),
        }
    }

    pub fn modify_password(
        self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        match self.interceptor(Operations::PASSWORD) {
            Some((interceptor, next)) => interceptor.modify_password(next, context, change, later),
            None => self.backend.modify_password(context, change, later),
        }
    }

    pub fn extended(
        self,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        match self.interceptor(Operations::EXTENDED) {
            Some((interceptor, next)) => interceptor.extended(next, context, request, later),
            None => self.backend.extended(context, request, later),
        }
    }
}
