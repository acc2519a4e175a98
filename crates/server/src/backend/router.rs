//! Which backend a name belongs to: the one with the longest suffix, those glued below it, or nobody here.

use std::fmt;
use std::sync::Arc;

use larix_engine::Frontend;
use larix_engine::controls::RequestControls;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{CompareRequest, LdapResult, MessageId, ResultCode, Scope, SearchRequest};
use larix_schema::{NormalDn, Schema};

use super::{
    Announced, Backend, Bind, Changes, Compare, Context, End, First, Later, PasswordChange, PasswordChanged,
    Pending, Reply, Search, Verdict, glue, scope_below,
};

/// A backend and the names that it holds.
#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) suffixes: Vec<NormalDn>,
    /// Glued to the database above it: searches go on in it.
    pub(crate) subordinate: bool,
    /// It holds nothing for clients.
    pub(crate) hidden: bool,
    pub(crate) backend: Arc<dyn Backend>,
}

/// Names that no database holds as such.
#[derive(Debug)]
pub(crate) struct Special {
    /// The root DSE, for those who ask for the entry with the empty name itself.
    pub(crate) root_dse: Arc<dyn Backend>,
    /// The subschema subentry.
    pub(crate) subschema: Arc<dyn Backend>,
    /// What nobody here holds: it knows the default referrals.
    pub(crate) nowhere: Arc<dyn Backend>,
}

/// All backends of one generation. Nothing else chooses one.
pub(crate) struct Router {
    frontend: Frontend,
    /// In the order of the configuration.
    mounts: Vec<Mount>,
    special: Special,
    /// Suffixes and the numbers of their mounts, the longest first, and of equals the first of the configuration.
    table: Vec<(NormalDn, usize)>,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("table", &self.table).finish_non_exhaustive()
    }
}

impl Router {
    pub(crate) fn new(frontend: Frontend, mounts: Vec<Mount>, special: Special) -> Self {
        let served = mounts.iter().enumerate().filter(|(_, mount)| !mount.hidden);
        let mut table: Vec<(NormalDn, usize)> = served
            .flat_map(|(number, mount)| mount.suffixes.iter().map(move |suffix| (suffix.clone(), number)))
            .collect();
        table.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.depth()));
        Self { frontend, mounts, special, table }
    }

    /// One more, as the last of the configuration.
    #[cfg(test)]
    pub(crate) fn add(&mut self, mount: Mount) {
        let number = self.mounts.len();
        self.table.extend(mount.suffixes.iter().map(|suffix| (suffix.clone(), number)));
        self.table.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.depth()));
        self.mounts.push(mount);
    }

    pub(crate) fn schema(&self) -> &Arc<Schema> {
        &self.frontend.schema
    }

    pub(crate) fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The number of the mount that holds this DN: of those whose suffix is at or above it, the one with the longest.
    pub(crate) fn select(&self, dn: &NormalDn) -> Option<usize> {
        self.table.iter().find(|(suffix, _)| dn.is_within(suffix)).map(|(_, number)| *number)
    }

    /// The backend that holds this DN.
    pub(crate) fn backend(&self, dn: &NormalDn) -> Option<&dyn Backend> {
        self.select(dn).and_then(|number| self.mounts.get(number)).map(|mount| &*mount.backend)
    }

    /// What the root DSE says of all of them.
    pub(crate) fn announced(&self) -> Announced {
        let mut announced = Announced { provides_content: self.provides_content(), ..Announced::default() };
        self.mounts.iter().for_each(|mount| mount.backend.announce(&mut announced));
        announced
    }

    /// The backends that a search of this base goes on in, each with its suffix and the scope it has there.
    pub(crate) fn glued_below(&self, base: &NormalDn, scope: Scope) -> Vec<(&dyn Backend, &NormalDn, Scope)> {
        let mut found = Vec::new();
        for mount in self.mounts.iter().filter(|mount| mount.subordinate && !mount.hidden) {
            for suffix in &mount.suffixes {
                if let Some(within) = scope_below(scope, base, suffix) {
                    found.push((&*mount.backend, suffix, within));
                }
            }
        }
        found
    }

    /// Begins a search and runs its first slice.
    pub(crate) fn search(
        &self,
        context: &Context<'_>,
        request: &SearchRequest<'_>,
        mut controls: RequestControls,
        message: MessageId,
        out: &mut Vec<u8>,
    ) -> First {
        let Ok(mut base) = self.schema().parse_dn(request.base) else {
            return First::ended((invalid_dn(), Vec::new()));
        };
        let mut request = *request;
        // RFC 2696 section 3: what fits one page needs no pages.
        if let Some(values) = controls.values_mut() {
            let needed = |size| request.size_limit == 0 || size < request.size_limit;
            values.paged.take_if(|paged| !needed(paged.size));
        }
        if base.is_root()
            && request.scope != Scope::Base
            && let Some((normal, text)) = &self.frontend.default_search_base
        {
            base = normal.clone();
            request.base = text;
        }
        let special = if request.scope == Scope::Base { self.special(&base) } else { None };
        let backend = special.or_else(|| self.backend(&base)).unwrap_or(&*self.special.nowhere);
        if let Some(asked) = &controls.sync
            && !backend.provides_content()
        {
            if asked.critical {
                return First::ended((self.no_content_there(), Vec::new()));
            }
            controls.values_mut().into_iter().for_each(|values| values.sync = None);
        }
        // A provider's content is one, whatever it consists of.
        let is_whole = special.is_some() || controls.sync.is_some();
        let glued = if is_whole { Vec::new() } else { self.glued_below(&base, request.scope) };
        let search = Search { request, base: &base, controls, message };
        match glued.is_empty() {
            true => backend.search(context, search, out),
            false => glue::search(backend, &glued, context, search, out),
        }
    }

    /// Compares a value with those of an entry.
    pub(crate) fn compare(
        &self,
        context: &Context<'_>,
        request: &CompareRequest<'_>,
        controls: &RequestControls,
        later: Later<'_, End>,
    ) -> Reply<End> {
        let Ok(dn) = self.schema().parse_dn(request.entry) else {
            return Reply::Now((invalid_dn(), Vec::new()));
        };
        let backend = self.special(&dn).or_else(|| self.backend(&dn)).unwrap_or(&*self.special.nowhere);
        backend.compare(context, &Compare { request, dn: &dn, controls }, later)
    }

    /// Judges a bind.
    pub(crate) fn bind(
        &self,
        context: &Context<'_>,
        bind: &Bind<'_>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        self.backend(bind.dn).unwrap_or(&*self.special.nowhere).bind(context, bind, later)
    }

    /// Replaces a password.
    pub(crate) fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Reply<PasswordChanged> {
        let backend = self.backend(change.dn).unwrap_or(&*self.special.nowhere);
        backend.modify_password(context, change, later)
    }

    /// Has a change carried out. `done` is called once, here or on another thread.
    pub(crate) fn update(&self, context: &Context<'_>, request: WriteRequest, done: Completion) -> Pending {
        let target = self.schema().parse_dn(request.operation.target()).ok();
        let backend = target.as_ref().and_then(|dn| self.backend(dn)).unwrap_or(&*self.special.nowhere);
        backend.update(context, Changes::One(request, target), done)
    }

    /// Has changes carried out together, all or none.
    pub(crate) fn update_together(
        &self,
        context: &Context<'_>,
        requests: Vec<WriteRequest>,
        done: Completion,
    ) -> Pending {
        let targets = requests.iter().map(|request| self.schema().parse_dn(request.operation.target()));
        let backends: Vec<&dyn Backend> = targets
            .map(|dn| dn.ok().and_then(|dn| self.backend(&dn)).unwrap_or(&*self.special.nowhere))
            .collect();
        let first = backends.first().copied().unwrap_or(&*self.special.nowhere);
        let is_first = |other: &&dyn Backend| std::ptr::addr_eq(*other, first);
        let apart = match backends.iter().all(is_first) {
            true => None,
            false => backends.iter().find_map(|backend| backend.stands_apart()),
        };
        match apart {
            Some(refused) => {
                done(refused.into());
                Pending::default()
            }
            None => first.update(context, Changes::Together(requests), done),
        }
    }

    /// The entry with a name that no database holds.
    fn special(&self, dn: &NormalDn) -> Option<&dyn Backend> {
        if dn.is_root() {
            return Some(&*self.special.root_dse);
        }
        (*dn == self.frontend.subschema).then(|| &*self.special.subschema)
    }

    /// The answer to a consumer whose base has no content that is provided.
    fn no_content_there(&self) -> LdapResult {
        let text = match self.provides_content() {
            true => "critical control unavailable in context",
            false => "critical extension is not recognized",
        };
        LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text)
    }

    /// Whether any of them has its content provided (RFC 4533).
    pub(crate) fn provides_content(&self) -> bool {
        self.mounts.iter().any(|mount| mount.backend.provides_content())
    }
}

fn invalid_dn() -> LdapResult {
    LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "invalid DN")
}
