//! Trees in memory: cn=config, cn=Monitor, the root DSE, the subschema subentry, and `database null`, which is empty.
//!
//! Their entries are made when somebody asks, from what the server knows at that moment; a search is one pass over them. A tree with
//! more entries than that makes those which a request names, and has searches of its own (`database passwd`, `database changelog`).

mod config;
mod config_sync;
mod monitor;
mod null;
mod root_dse;
mod subschema;

use std::fmt::Debug;
use std::sync::Arc;

use larix_engine::access::AccessPolicy;
use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;

use super::Common;
use super::password_replacement::replace_unstored;
use larix_backend::memory_tree::{Bases, Counted, MemoryTree, TreeSearchOutcome};
use larix_backend::{
    Announcement, AnsweredSearch, Backend, Bind, Changes, Compare, Context, Cursor, Effort, End, First,
    Later, PasswordChange, PasswordChangeOutcome, PendingAnswer, Proof, Reply, Search, Secret, Verdict,
};

pub(crate) use config::Configuration;
pub use config::config_entries_matching;
pub(crate) use monitor::MonitorTree;
pub(crate) use null::Null;
pub(crate) use root_dse::RootDseTree;
pub(crate) use subschema::SubschemaTree;

/// What a tree consists of, and what becomes of changes.
pub(crate) trait Content: Debug + Send + Sync + 'static {
    /// Entries that count what a search sends.
    const COUNTED: Option<Counted> = None;
    const BASES: Bases = Bases::Judged;

    /// The entries, superiors first; of a tree with [`Self::begin`] those that every request may need.
    fn entries(&self, common: &Common, context: &Context<'_>) -> Vec<Entry>;

    /// The tree for a request about one name, which is given as it was sent and as it is compared.
    ///
    /// # Errors
    /// What to answer where entries cannot be had.
    fn named<'a>(
        &'a self,
        tree: &'a Tree<Self>,
        context: &Context<'a>,
        _name: (&str, &NormalDn),
    ) -> Result<MemoryTree<'a>, LdapResult>
    where
        Self: Sized,
    {
        Ok(tree.tree(context))
    }

    /// Begins a search that is more than one pass over the entries of [`Self::named`].
    ///
    /// # Errors
    /// What is answered without entries.
    fn begin(
        &self,
        _tree: &Tree<Self>,
        _context: &Context<'_>,
        _search: &Search<'_>,
    ) -> Result<Option<Box<dyn Cursor>>, LdapResult>
    where
        Self: Sized,
    {
        Ok(None)
    }

    fn compare(&self, tree: &Tree<Self>, context: &Context<'_>, compare: &Compare<'_>) -> LdapResult
    where
        Self: Sized,
    {
        match self.named(tree, context, (compare.request.entry, compare.dn)) {
            Ok(named) => named.compare(compare.dn, compare.request, compare.controls),
            Err(refused) => refused,
        }
    }

    /// Begins a search that asks for the content as a consumer (RFC 4533); only where [`Self::provides_content`] says so.
    fn synchronise(
        &self,
        _common: &Common,
        _context: &Context<'_>,
        _search: Search<'_>,
    ) -> Option<Box<dyn Cursor>> {
        None
    }

    /// Carries out changes that belong together. `done` is called once, here or on another thread.
    fn update(&self, tree: &Tree<Self>, context: &Context<'_>, requests: Vec<WriteRequest>, done: Completion)
    where
        Self: Sized;

    fn stands_apart(&self) -> Option<LdapResult> {
        Some(not_supported())
    }

    /// Whether any bind below it succeeds.
    fn grants_binds(&self) -> bool {
        false
    }

    fn provides_content(&self, _common: &Common) -> bool {
        false
    }

    fn announce(&self, _announced: &mut Announcement) {}
}

/// A tree in memory as a backend.
#[derive(Debug)]
pub(crate) struct Tree<C> {
    pub(crate) content: C,
    pub(crate) common: Arc<Common>,
    pub(crate) policy: Arc<AccessPolicy>,
    /// The root DN, and its password if one is configured.
    pub(crate) root_dn: Option<NormalDn>,
    pub(crate) root_password: Option<Secret>,
}

impl<C: Content> Tree<C> {
    /// The tree as the requester sees it.
    pub(crate) fn tree<'a>(&'a self, context: &Context<'a>) -> MemoryTree<'a> {
        MemoryTree {
            schema: &self.common.config.schema,
            policy: &self.policy,
            subject: context.subject,
            entries: self.content.entries(&self.common, context),
            counted: C::COUNTED,
        }
    }

    fn begin(
        &self,
        context: &Context<'_>,
        search: &Search<'_>,
    ) -> Result<Option<Box<dyn Cursor>>, LdapResult> {
        self.common.config.global.request_limits.check_search(&search.request, &search.controls)?;
        self.content.begin(self, context, search)
    }

    fn find(
        &self,
        context: &Context<'_>,
        search: &Search<'_>,
        out: &mut Vec<u8>,
    ) -> Result<TreeSearchOutcome, LdapResult> {
        let tree = self.content.named(self, context, (search.request.base, search.base))?;
        Ok(tree.search(C::BASES, search, out))
    }
}

impl<C: Content> Backend for Tree<C> {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let refused = |refused| Box::new((refused, Vec::new()));
        if search.controls.sync.is_some() {
            let cursor = self.content.synchronise(&self.common, context, search);
            return cursor.ok_or_else(|| refused(LdapResult::new(ResultCode::NO_SUCH_OBJECT)));
        }
        if let Some(cursor) = self.begin(context, &search).map_err(refused)? {
            return Ok(cursor);
        }
        let mut messages = Vec::new();
        let TreeSearchOutcome { result, entries } =
            self.find(context, &search, &mut messages).map_err(refused)?;
        Ok(Box::new(AnsweredSearch { messages, result, entries }))
    }

    fn search(&self, context: &Context<'_>, search: Search<'_>, out: &mut Vec<u8>) -> First {
        if search.controls.sync.is_some() {
            return match self.open(context, search) {
                Ok(cursor) => First::Running(cursor),
                Err(end) => First::ended(*end),
            };
        }
        match self.begin(context, &search) {
            Ok(Some(cursor)) => return First::slice_of(cursor, context.clock, out),
            Ok(None) => {}
            Err(refused) => return First::ended((refused, Vec::new())),
        }
        match self.find(context, &search, out) {
            Ok(TreeSearchOutcome { result, entries }) => {
                let effort = Effort { entries, candidates: entries };
                First::Done { result, controls: Vec::new(), effort }
            }
            Err(refused) => First::ended((refused, Vec::new())),
        }
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, _: Later<'_, End>) -> Reply<End> {
        Reply::Now((self.content.compare(self, context, compare), Vec::new()))
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        if self.content.grants_binds() && matches!(bind.proof, Proof::Password(_)) {
            return Reply::Now(LdapResult::success().into());
        }
        let passwords = self.secrets(context, bind.dn);
        self.common.bind_without_database(context, bind, passwords, later)
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Reply<PasswordChangeOutcome> {
        replace_unstored(self, context, change, later)
    }

    fn secrets(&self, _: &Context<'_>, dn: &NormalDn) -> Vec<Secret> {
        let is_root = self.root_dn.as_ref() == Some(dn) && !self.content.grants_binds();
        self.root_password.clone().filter(|_| is_root).into_iter().collect()
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> PendingAnswer {
        let requests = match changes {
            Changes::One(request, _) => vec![request],
            Changes::Together(requests) => requests,
        };
        self.content.update(self, context, requests, done);
        PendingAnswer::default()
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        self.content.stands_apart()
    }

    fn policy(&self, _: &NormalDn) -> Option<Arc<AccessPolicy>> {
        Some(Arc::clone(&self.policy))
    }

    fn provides_content(&self) -> bool {
        self.content.provides_content(&self.common)
    }

    fn refers(&self, _: &NormalDn, _: bool) -> bool {
        false
    }

    fn announce(&self, announced: &mut Announcement) {
        self.content.announce(announced);
    }
}

fn not_supported() -> LdapResult {
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "operation not supported within namingContext")
}
