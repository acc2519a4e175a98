//! The overlays in front of one backend, or of all of them, and what a request costs where none of them sees it: the test of a bit.

use std::sync::Arc;

use larix_engine::write::Completion;
use larix_proto::ControlBuf;

use super::{BoundSession, Interceptor, Next, Operations};
use crate::backend::{Announcement, Backend, Context};
use crate::cursor::{Cursor, End, First};
use crate::operation::{
    Bind, Changes, Compare, ExtendedAnswer, ExtendedOperation, Later, OverlayOperation, PasswordChange,
    PasswordChangeOutcome, PendingAnswer, Reply, Search, Verdict,
};

/// The overlays in front of a backend, the outermost first.
#[derive(Clone, Debug)]
pub struct Stack {
    pub(super) interceptors: Arc<[Arc<dyn Interceptor>]>,
    requests: Operations,
}

impl Default for Stack {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Stack {
    pub fn new(interceptors: Vec<Arc<dyn Interceptor>>) -> Self {
        let requests =
            interceptors.iter().fold(Operations::NONE, |all, interceptor| all.and(interceptor.requests()));
        Self { interceptors: interceptors.into(), requests }
    }

    /// Whether entries have other names behind any of them.
    pub fn maps_names(&self) -> bool {
        self.interceptors.iter().any(|interceptor| interceptor.maps_names())
    }

    /// The same with interceptor more, in front of all.
    #[must_use]
    pub fn behind(&self, outermost: Arc<dyn Interceptor>) -> Self {
        Self::new(std::iter::once(outermost).chain(self.interceptors.iter().cloned()).collect())
    }

    /// The same with access rules in front of all but what counts answers.
    #[must_use]
    pub fn behind_rules(&self, rules: Arc<dyn Interceptor>) -> Self {
        let (counting, others): (Vec<_>, Vec<_>) =
            self.interceptors.iter().cloned().partition(|interceptor| interceptor.counts_answers());
        Self::new(counting.into_iter().chain(std::iter::once(rules)).chain(others).collect())
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
        match self.requests.has(Operations::SEARCH) {
            true => self.before(backend).open(context, search),
            false => backend.open(context, search),
        }
    }

    pub fn search(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        search: Search<'_>,
        out: &mut Vec<u8>,
    ) -> First {
        let sees = |interceptor: &Arc<dyn Interceptor>| {
            interceptor.requests().has(Operations::SEARCH) && interceptor.sees(&search)
        };
        if self.requests.has(Operations::SEARCH) && self.interceptors.iter().any(sees) {
            return match self.open(backend, context, search) {
                Ok(cursor) => First::slice_of(cursor, context.clock, out),
                Err(end) => First::ended(*end),
            };
        }
        backend.search(context, search, out)
    }

    pub fn compare(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        compare: &Compare<'_>,
        later: Later<'_, End>,
    ) -> Reply<End> {
        match self.requests.has(Operations::COMPARE) {
            true => self.before(backend).compare(context, compare, later),
            false => backend.compare(context, compare, later),
        }
    }

    pub fn bind(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        match self.requests.has(Operations::BIND) {
            true => self.before(backend).bind(context, bind, later),
            false => backend.bind(context, bind, later),
        }
    }

    pub fn update(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        changes: Changes,
        completion: Completion,
    ) -> PendingAnswer {
        match self.requests.has(Operations::UPDATE) {
            true => self.before(backend).update(context, changes, completion),
            false => backend.update(context, changes, completion),
        }
    }

    pub fn modify_password(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        match self.requests.has(Operations::PASSWORD) {
            true => self.before(backend).modify_password(context, change, later),
            false => backend.modify_password(context, change, later),
        }
    }

    pub fn extended(
        &self,
        backend: &dyn Backend,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        match self.requests.has(Operations::EXTENDED) {
            true => self.before(backend).extended(context, request, later),
            false => backend.extended(context, request, later),
        }
    }

    /// What they add to the answer of a bind.
    pub(crate) fn bound(&self, bound: &BoundSession<'_>) -> Vec<ControlBuf> {
        self.interceptors.iter().flat_map(|interceptor| interceptor.bound(bound)).collect()
    }

    /// Whether any of them heeds the control with this OID.
    pub(crate) fn heeds(&self, control: &str) -> bool {
        self.interceptors
            .iter()
            .any(|interceptor| interceptor.controls().iter().any(|known| known.oid == control))
    }

    /// Adds the operations and controls that they bring.
    pub(crate) fn announce(&self, announced: &mut Announcement) {
        for interceptor in self.interceptors.iter() {
            let is_new = |operation: &&OverlayOperation| {
                announced.operations.iter().all(|known| known.oid != operation.oid)
            };
            let operations: Vec<_> = interceptor.operations().iter().filter(is_new).collect();
            announced.operations.extend(operations);
            let controls: Vec<_> = interceptor
                .controls()
                .iter()
                .filter(|control| !announced.controls.contains(control))
                .collect();
            announced.controls.extend(controls);
        }
    }
}
