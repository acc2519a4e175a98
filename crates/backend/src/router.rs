//! Which backend a name belongs to: the one with the longest suffix, those glued below it, or none here.

use std::fmt;
use std::sync::Arc;

use larix_engine::access::AccessPolicy;
use larix_engine::controls::{ControlValues, OverlayControl, RequestControls};
use larix_engine::overlay::internal_search::{InternalSearch, Visit};
use larix_engine::write::{Completion, WriteOutcome, WriteRequest};
use larix_engine::{Fault, Frontend};
use larix_proto::{CompareRequest, ControlBuf, LdapResult, MessageId, ResultCode, Scope, SearchRequest, oid};
use larix_schema::{NormalDn, Schema};

use crate::backend::{Announcement, Backend, Below, Context, Mount, Routing};
use crate::cursor::{AnswerFilter as _, Cursor, End, FilteredSearch, First};
use crate::domain_scope::WithoutReferrals;
use crate::glue;
use crate::intercept::{BoundSession, Stack};
use crate::mounts::Mounts;
use crate::operation::{
    Bind, Changes, Compare, ExtendedAnswer, ExtendedOperation, Later, OverlayOperation, PasswordChange,
    PasswordChangeOutcome, PendingAnswer, Reply, Search, Verdict, answer_now,
};
use crate::over_glue::{GluedTree, OverGlue};
use crate::replica_progress::ReplicaProgress;
use crate::shared_content::SharedContent;

/// Names that no database holds as such.
#[derive(Debug)]
pub struct Special {
    /// The root DSE, for those who ask for the entry with the empty name itself.
    pub root_dse: Arc<dyn Backend>,
    /// The subschema subentry.
    pub subschema: Arc<dyn Backend>,
    /// The backend for names that no database here holds: it knows the default referrals.
    pub nowhere: Arc<dyn Backend>,
}

/// All backends of one generation, behind the overlays that are in front of all of them. Nothing else chooses one.
#[derive(Debug)]
pub struct Router {
    routes: Routes,
    interceptors: Stack,
    /// Extended operations that overlays bring, wherever they stand.
    operations: Vec<&'static OverlayOperation>,
    /// The same of controls.
    controls: Vec<&'static OverlayControl>,
}

/// The backend of all names: it hands on to the one that a name belongs to.
struct Routes {
    frontend: Frontend,
    mounts: Mounts,
    special: Special,
    /// Overlays of databases, by the numbers of their mounts, that are also in front of those glued below.
    over_glue: Vec<(usize, OverGlue)>,
    /// Databases with such overlays, and those glued below them.
    trees: Vec<GluedTree>,
    /// The tree that each mount is part of, if any.
    tree_of: Vec<Option<usize>>,
    /// Controls that overlays in front of all databases heed.
    heeded: Vec<&'static OverlayControl>,
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").field("mounts", &self.mounts).finish_non_exhaustive()
    }
}

impl Router {
    /// `mounts`: in the order of the configuration. `interceptors`: the overlays in front of all of them.
    pub fn new(frontend: Frontend, mounts: Vec<Mount>, special: Special, interceptors: Stack) -> Self {
        let mounts = Mounts::new(mounts);
        let (over_glue, trees, tree_of) = (Vec::new(), Vec::new(), Vec::new());
        let routes = Routes { frontend, mounts, special, over_glue, trees, tree_of, heeded: Vec::new() };
        let (operations, controls) = (Vec::new(), Vec::new());
        let mut router = Self { routes, interceptors, operations, controls };
        router.gather();
        router
    }

    /// Notes what overlays bring.
    fn gather(&mut self) {
        let mut announced = Announcement::default();
        self.interceptors.announce(&mut announced);
        self.routes.heeded = announced.controls.clone();
        self.routes.announce(&mut announced);
        (self.operations, self.controls) = (announced.operations, announced.controls);
    }

    /// One more, as the last of the configuration: for tests, whose backends are of no kind that a configuration has.
    pub fn add(&mut self, mount: Mount) {
        self.routes.mounts.push(mount);
        self.routes.plant();
        self.gather();
    }

    /// Puts overlays of databases, by the numbers of their mounts, in front of those glued below, too.
    pub fn put_over_glue(&mut self, over_glue: Vec<(usize, OverGlue)>) {
        self.routes.over_glue = over_glue;
        self.routes.plant();
    }

    /// Puts overlays in front of all, in the place of those given to [`Self::new`]: for tests, as [`Self::add`].
    pub fn put_in_front(&mut self, interceptors: Stack) {
        self.interceptors = interceptors;
        self.gather();
    }

    /// The extended operation with this OID, if an overlay brings it.
    pub fn overlay_operation(&self, oid: &str) -> Option<&'static OverlayOperation> {
        self.operations.iter().find(|operation| operation.oid == oid).copied()
    }

    /// The control with this OID, if an overlay brings it.
    pub fn overlay_control(&self, oid: &str) -> Option<&'static OverlayControl> {
        self.controls.iter().find(|control| control.oid == oid).copied()
    }

    /// The schema by which names are compared.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.routes.frontend.schema
    }

    /// The number of the mount that holds this DN: of those whose suffix is at or above it, the one with the longest.
    pub fn select(&self, dn: &NormalDn) -> Option<usize> {
        self.routes.mounts.number(dn)
    }

    /// Whether any of them has its content provided (RFC 4533).
    pub fn provides_content(&self) -> bool {
        self.routes.provides_content()
    }

    /// Begins a search and runs its first slice.
    pub fn search(
        &self,
        context: &Context<'_>,
        request: &SearchRequest<'_>,
        mut controls: RequestControls,
        message: MessageId,
        out: &mut Vec<u8>,
    ) -> First {
        let Ok(mut base) = self.schema().parse_dn(request.base) else {
            return First::ended((LdapResult::invalid_dn(), Vec::new()));
        };
        let mut request = *request;
        // RFC 2696 section 3: what fits one page needs no pages.
        if let Some(values) = controls.values_mut() {
            let needed = |size| request.size_limit == 0 || size < request.size_limit;
            values.paged.take_if(|paged| !needed(paged.size));
        }
        if base.is_root()
            && request.scope != Scope::Base
            && let Some((normal, text)) = &self.routes.frontend.default_search_base
        {
            base = normal.clone();
            request.base = text;
        }
        let is_within_domain = controls.domain_scope;
        let search = Search { request, base: &base, controls, message };
        if is_within_domain {
            return match self.interceptors.open(&self.routes, context, search) {
                Ok(cursor) => {
                    let cursor = Box::new(FilteredSearch::new(cursor, WithoutReferrals));
                    First::slice_of(cursor, context.clock, out)
                }
                Err(end) => First::ended(WithoutReferrals.end(*end)),
            };
        }
        self.interceptors.search(&self.routes, context, search, out)
    }

    /// Compares a value with those of an entry.
    pub fn compare(
        &self,
        context: &Context<'_>,
        request: &CompareRequest<'_>,
        controls: &RequestControls,
        later: Later<'_, End>,
    ) -> Reply<End> {
        let Ok(dn) = self.schema().parse_dn(request.entry) else {
            return Reply::Now((LdapResult::invalid_dn(), Vec::new()));
        };
        let compare = Compare { request, dn: &dn, controls };
        self.interceptors.compare(&self.routes, context, &compare, later)
    }

    /// Judges a bind.
    pub fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        self.interceptors.bind(&self.routes, context, bind, later)
    }

    /// What overlays in front of all databases add to the answer of a bind that has succeeded.
    pub fn bound(&self, bound: &BoundSession<'_>) -> Vec<ControlBuf> {
        self.interceptors.bound(bound)
    }

    /// Replaces a password.
    pub fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        self.interceptors.modify_password(&self.routes, context, change, later)
    }

    /// Carries out an extended operation that is a database's own.
    pub fn extended(
        &self,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        self.interceptors.extended(&self.routes, context, request, later)
    }

    /// Has a change carried out. `completion` is called once, here or on another thread.
    pub fn update(
        &self,
        context: &Context<'_>,
        request: WriteRequest,
        completion: Completion,
    ) -> PendingAnswer {
        let target = self.schema().parse_dn(request.operation.target()).ok();
        self.interceptors.update(&self.routes, context, Changes::One(request, target), completion)
    }

    /// Has changes carried out together, all or none.
    pub fn update_together(
        &self,
        context: &Context<'_>,
        requests: Vec<WriteRequest>,
        completion: Completion,
    ) -> PendingAnswer {
        self.interceptors.update(&self.routes, context, Changes::Together(requests), completion)
    }
}

impl Routing for Router {
    fn mounts(&self) -> &[Mount] {
        self.routes.mounts.all()
    }

    fn backend(&self, dn: &NormalDn) -> Option<&dyn Backend> {
        self.routes.mounts.backend(dn)
    }

    fn glued_below(&self, base: &NormalDn, scope: Scope) -> Vec<Below<'_>> {
        self.routes.mounts.glued_below(base, scope)
    }

    fn announced(&self) -> Announcement {
        let (provides_content, tells_changes) = (self.provides_content(), self.routes.tells_changes());
        let mut announced = Announcement { provides_content, tells_changes, ..Announcement::default() };
        self.interceptors.announce(&mut announced);
        self.routes.announce(&mut announced);
        announced
    }
}

impl Routes {
    /// Finds the trees of glued databases anew.
    fn plant(&mut self) {
        (self.trees, self.tree_of) = GluedTree::all(&self.frontend.schema, &self.mounts, &self.over_glue);
    }

    /// The backend that holds a name, or what knows the default referrals.
    fn holder(&self, dn: &NormalDn) -> &dyn Backend {
        self.mounts.backend(dn).unwrap_or(&*self.special.nowhere)
    }

    /// Whether an overlay or this backend handles the critical controls of a request. The others are passed over there.
    ///
    /// # Errors
    /// unavailableCriticalExtension.
    fn check_heeded(
        &self,
        (backend, tree): (&dyn Backend, Option<&GluedTree>),
        controls: &RequestControls,
    ) -> Result<(), LdapResult> {
        let mut critical = controls.overlays.iter().filter(|sent| sent.critical).map(|sent| sent.control);
        let in_front = |oid: &str| tree.is_some_and(|tree| tree.stack.heeds(oid));
        let is_heeded = |control: &'static OverlayControl| {
            self.heeded.contains(&control) || backend.heeds(control.oid) || in_front(control.oid)
        };
        match critical.all(is_heeded) {
            true => Ok(()),
            false => Err(not_heeded()),
        }
    }

    /// The tree of glued databases whose overlays stand in front of the database that is glued below and holds this name. What is the
    /// uppermost database's has them in front of it anyway.
    fn tree_above(&self, dn: &NormalDn) -> Option<&GluedTree> {
        if self.trees.is_empty() {
            return None;
        }
        let number = self.mounts.number(dn)?;
        let tree = self.trees.get((*self.tree_of.get(number)?)?)?;
        (tree.superior != number).then_some(tree)
    }

    /// The same for a search, which may go on from the uppermost database in those below it.
    fn tree_searched(&self, base: &NormalDn, goes_on: bool) -> Option<&GluedTree> {
        if self.trees.is_empty() {
            return None;
        }
        let number = self.mounts.number(base)?;
        let tree = self.trees.get((*self.tree_of.get(number)?)?)?;
        (goes_on || tree.superior != number).then_some(tree)
    }

    /// The entry with a name that no database holds.
    fn special(&self, dn: &NormalDn) -> Option<&dyn Backend> {
        if dn.is_root() {
            return Some(&*self.special.root_dse);
        }
        (*dn == self.frontend.subschema).then(|| &*self.special.subschema)
    }

    /// The backend that a search begins in, and those that it goes on in.
    ///
    /// # Errors
    /// The answer to a consumer whose base has no content that is provided.
    fn searched(&self, search: &mut Search<'_>) -> Result<(&dyn Backend, Vec<Below<'_>>), LdapResult> {
        let Search { request, base, controls, .. } = search;
        let special = if request.scope == Scope::Base { self.special(base) } else { None };
        let backend = special.unwrap_or_else(|| self.holder(base));
        let tree = if special.is_some() { None } else { self.tree_above(base) };
        self.check_heeded((backend, tree), controls)?;
        // Another server's content is that server's to provide, and so are its changes. What overlays make of them is not.
        let is_passed_on = |control| backend.behind().is_none() && backend.heeds(control);
        if let Some(control) = &controls.sync
            && !is_passed_on(oid::SYNC_REQUEST)
        {
            if backend.provides_content() {
                // A content comes in no order that a client could choose.
                if orders(controls) {
                    return Err(not_heeded());
                }
            } else if control.critical {
                return Err(unavailable(self.provides_content()));
            } else {
                controls.values_mut().into_iter().for_each(ControlValues::pass_sync_over);
            }
        }
        if let Some(control) = &controls.persistent
            && !backend.tells_changes()
            && !is_passed_on(oid::PERSISTENT_SEARCH)
        {
            if control.critical {
                return Err(unavailable(self.tells_changes()));
            }
            controls.values_mut().into_iter().for_each(ControlValues::pass_persistent_over);
        }
        // A provider's content is one, whatever it consists of; and so are changes.
        let is_whole = special.is_some() || controls.sync.is_some() || controls.persistent.is_some();
        let below = if is_whole { Vec::new() } else { self.mounts.glued_below(base, request.scope) };
        Ok((backend, below))
    }

    fn update_together(
        &self,
        context: &Context<'_>,
        requests: Vec<WriteRequest>,
        completion: Completion,
    ) -> PendingAnswer {
        let targets: Vec<Option<NormalDn>> = requests
            .iter()
            .map(|request| self.frontend.schema.parse_dn(request.operation.target()).ok())
            .collect();
        let holder = |dn: &Option<NormalDn>| dn.as_ref().map_or(&*self.special.nowhere, |dn| self.holder(dn));
        let tree = |dn: &Option<NormalDn>| dn.as_ref().and_then(|dn| self.tree_above(dn));
        let backends: Vec<&dyn Backend> = targets.iter().map(holder).collect();
        let first = backends.first().copied().unwrap_or(&*self.special.nowhere);
        let is_first = |other: &&dyn Backend| std::ptr::addr_eq(*other, first);
        let unheeded = backends.iter().zip(&targets).zip(&requests).position(|((backend, dn), request)| {
            self.check_heeded((*backend, tree(dn)), &request.controls).is_err()
        });
        if unheeded.is_some() {
            return answer_now(completion, WriteOutcome { refused: unheeded, ..not_heeded().into() });
        }
        let apart = match backends.iter().all(is_first) {
            true => None,
            false => backends.iter().find_map(|backend| backend.stands_apart()),
        };
        match apart {
            Some(refused) => answer_now(completion, refused),
            None => match targets.first().and_then(tree) {
                Some(tree) => {
                    tree.stack.update(&tree.parts, context, Changes::Together(requests), completion)
                }
                None => first.update(context, Changes::Together(requests), completion),
            },
        }
    }
}

impl Backend for Routes {
    fn open(&self, context: &Context<'_>, mut search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let searched = self.searched(&mut search);
        if let Ok((_, below)) = &searched
            && let Some(tree) = self.tree_searched(search.base, !below.is_empty())
        {
            return tree.stack.open(&tree.parts, context, search);
        }
        match searched {
            Ok((backend, below)) if below.is_empty() => backend.open(context, search),
            Ok((backend, below)) => glue::open(backend, &below, context, search),
            Err(refused) => Err(Box::new((refused, Vec::new()))),
        }
    }

    fn search(&self, context: &Context<'_>, mut search: Search<'_>, out: &mut Vec<u8>) -> First {
        let searched = self.searched(&mut search);
        if let Ok((_, below)) = &searched
            && let Some(tree) = self.tree_searched(search.base, !below.is_empty())
        {
            return tree.stack.search(&tree.parts, context, search, out);
        }
        match searched {
            Ok((backend, below)) if below.is_empty() => backend.search(context, search, out),
            Ok((backend, below)) => match glue::open(backend, &below, context, search) {
                Ok(cursor) => First::slice_of(cursor, context.clock, out),
                Err(end) => First::ended(*end),
            },
            Err(refused) => First::ended((refused, Vec::new())),
        }
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, later: Later<'_, End>) -> Reply<End> {
        let backend = self.special(compare.dn).unwrap_or_else(|| self.holder(compare.dn));
        if let Err(refused) = self.check_heeded((backend, None), compare.controls) {
            return Reply::Now((refused, Vec::new()));
        }
        backend.compare(context, compare, later)
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        let backend = self.holder(bind.dn);
        match self.check_heeded((backend, None), bind.controls) {
            Ok(()) => backend.bind(context, bind, later),
            Err(refused) => Reply::Now(refused.into()),
        }
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        match self.tree_above(change.dn) {
            Some(tree) => tree.stack.modify_password(&tree.parts, context, change, later),
            None => self.holder(change.dn).modify_password(context, change, later),
        }
    }

    fn extended(
        &self,
        context: &Context<'_>,
        request: &ExtendedOperation<'_>,
        later: Later<'_, ExtendedAnswer>,
    ) -> Reply<ExtendedAnswer> {
        let backend = self.holder(request.dn);
        let tree = self.tree_above(request.dn);
        match (self.check_heeded((backend, tree), request.controls), tree) {
            (Ok(()), Some(tree)) => tree.stack.extended(&tree.parts, context, request, later),
            (Ok(()), None) => backend.extended(context, request, later),
            (Err(refused), _) => Reply::Now(refused.into()),
        }
    }

    fn update(&self, context: &Context<'_>, changes: Changes, completion: Completion) -> PendingAnswer {
        match changes {
            Changes::One(request, target) => {
                let backend = target.as_ref().map_or(&*self.special.nowhere, |dn| self.holder(dn));
                let tree = target.as_ref().and_then(|dn| self.tree_above(dn));
                match (self.check_heeded((backend, tree), &request.controls), tree) {
                    (Ok(()), Some(tree)) => {
                        tree.stack.update(&tree.parts, context, Changes::One(request, target), completion)
                    }
                    (Ok(()), None) => backend.update(context, Changes::One(request, target), completion),
                    (Err(refused), _) => answer_now(completion, refused),
                }
            }
            Changes::Together(requests) => self.update_together(context, requests, completion),
        }
    }

    fn policy(&self, dn: &NormalDn) -> Option<Arc<AccessPolicy>> {
        self.holder(dn).policy(dn)
    }

    fn find(
        &self,
        context: &Context<'_>,
        query: &InternalSearch<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<(), Fault> {
        self.holder(query.base).find(context, query, visit)
    }

    fn refers(&self, dn: &NormalDn, changes: bool) -> bool {
        self.special(dn).is_none() && self.mounts.refer(self.holder(dn), dn, changes)
    }

    fn replica_progress(&self, dn: &NormalDn) -> Option<Arc<dyn ReplicaProgress>> {
        self.holder(dn).replica_progress(dn)
    }

    fn shared_content(&self, dn: &NormalDn) -> Option<Arc<dyn SharedContent>> {
        self.holder(dn).shared_content(dn)
    }

    fn provides_content(&self) -> bool {
        self.mounts.all().iter().any(|mount| mount.backend.provides_content())
    }

    fn tells_changes(&self) -> bool {
        self.mounts.all().iter().any(|mount| mount.backend.tells_changes())
    }

    fn announce(&self, announced: &mut Announcement) {
        self.mounts.all().iter().for_each(|mount| mount.backend.announce(announced));
    }
}

/// Whether a search insists on an order.
fn orders(controls: &RequestControls) -> bool {
    controls.sort.as_ref().is_some_and(|sort| sort.critical)
        || controls.vlv.as_ref().is_some_and(|view| view.critical)
}

fn not_heeded() -> LdapResult {
    unavailable(true)
}

/// The answer to a critical control that the backend does not heed. `elsewhere`: whether another one does.
fn unavailable(elsewhere: bool) -> LdapResult {
    let text = match elsewhere {
        true => "critical control unavailable in context",
        false => "critical extension is not recognized",
    };
    LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text)
}
