//! The overlays in front of one backend, or of all of them, and what a request costs where none of them sees it: the test of a bit.

use std::sync::Arc;

use larix_engine::search::task::Budget;
use larix_engine::write::{Completion, WriteOutcome};
use larix_proto::{ControlBuf, LdapResult};

use super::{Bound, Ended, Interceptor, Next, Operations};
use crate::backend::{Announced, Backend, Context};
use crate::cursor::{Cursor, CursorAround, End, First, Slice};
use crate::operation::{
    Bind, Changes, Compare, Done, Extended, ExtendedAnswer, Later, OverlayOperation, PasswordChange,
    PasswordChanged, Pending, Reply, Search, Verdict,
};

/// The overlays in front of a backend, the outermost first.
#[derive(Clone, Debug)]
pub struct Stack {
    pub(super) interceptors: Arc<[Arc<dyn Interceptor>]>,
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
