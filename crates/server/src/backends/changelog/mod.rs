//! cn=changelog: the change log of a stored database as entries (`database changelog`,
//! [ADR 0077](../../../../../docs/adr/0077-cn-changelog-is-a-view-of-the-change-log.md)). Nothing is stored for it.

mod change;
mod numbers;
mod search;

use std::sync::Arc;

use larix_configuration::values::LimitRule;
use larix_engine::entry::Entry;
use larix_engine::log::{self, LogRecord};
use larix_engine::search::limits::{self, Effective, RequestedLimits};
use larix_engine::write::{Completion, WriteRequest};
use larix_engine::{Fault, Limits, Served};
use larix_proto::{Dn, LdapResult, ResultCode, Scope};
use larix_schema::NormalDn;
use larix_store::Store;
use larix_store::lmdb::LmdbStore;

use super::stored::{failure, is_named};
use super::{Common, Content, Tree};
use crate::virtual_entries::Builder;
use larix_backend::memory_tree::{Found, MemoryTree};
use larix_backend::{
    Announced, Answered, Backend, Bind, Changes, Compare, Context, Cursor, End, Later, PasswordChange,
    PasswordChanged, Pending, Reply, Search, Secret, Verdict,
};

use change::Shown;

/// The entry above the changes.
pub(super) const NAME: &str = "cn=changelog";

/// `database changelog`.
#[derive(Debug)]
pub(crate) struct Changelog {
    pub(crate) tree: Tree<Container>,
    /// The database whose changes are shown.
    pub(crate) served: Arc<Served<LmdbStore>>,
    pub(crate) rules: Vec<LimitRule>,
    pub(crate) limits: Limits,
}

/// The entry above the changes alone.
#[derive(Debug)]
pub(crate) struct Container;

impl Content for Container {
    fn entries(&self, common: &Common, _: &Context<'_>) -> Vec<Entry> {
        let built = Builder::new(&common.config.schema, NAME)
            .add("objectClass", ["top", "extensibleObject"])
            .one("cn", "changelog")
            .one("entryDN", NAME)
            .one("subschemaSubentry", common.subschema_dn.clone());
        vec![built.build()]
    }

    fn update(&self, _: &Tree<Self>, _: &Context<'_>, _: Vec<WriteRequest>, done: Completion) {
        let text = "cn=changelog shows changes of another database and cannot be changed";
        done(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
    }
}

impl Changelog {
    fn failure(&self, fault: &Fault) -> LdapResult {
        failure(&self.tree.common.services, fault)
    }

    /// The limits of a search; none for the root DN.
    fn held(&self, context: &Context<'_>, base: &NormalDn) -> Option<Limits> {
        if self.tree.policy.is_root(context.subject) {
            return None;
        }
        let rule = self.rules.iter().find(|rule| is_named(&rule.subject, context.subject, base));
        Some(rule.map_or(self.limits, |rule| rule.limits.into()))
    }

    /// The entry above the changes, and the one change that a name may mean.
    fn named<'a>(
        &'a self,
        context: &Context<'a>,
        name: &str,
        dn: &NormalDn,
    ) -> Result<MemoryTree<'a>, Fault> {
        let mut tree = self.tree.tree(context);
        let snapshot = self.served.database().store().snapshot()?;
        let Some(number) = number_in(name) else {
            // The entry above the changes has subordinates if there are any.
            let first = log::first_number(&snapshot)?;
            tree.entries.extend((first > 0).then(|| Entry::new(format!("changeNumber={first},{NAME}"))));
            return Ok(tree);
        };
        let mut found = None;
        log::visit_numbered(&snapshot, number, &mut |kept, record| {
            found = (kept == number).then(|| LogRecord::decode(record).map_err(|_| DAMAGED));
            false
        })?;
        let Some(record) = found.transpose()? else { return Ok(tree) };
        let policy = self.served.database().current_policy();
        let shown = Shown { tree: &tree, source: &policy, subschema_dn: &self.tree.common.subschema_dn };
        let entry = shown.entry(number, &record);
        // A name below that of a change means none.
        if tree.schema.parse_dn(&entry.dn).is_ok_and(|own| dn.is_within(&own)) {
            tree.entries.push(entry);
        }
        Ok(tree)
    }

    fn effective(
        &self,
        context: &Context<'_>,
        search: &Search<'_>,
        before: u32,
    ) -> Result<Effective, LdapResult> {
        let held = self.held(context, search.base);
        let page = search.controls.paged.as_ref().map(|page| (page.size, before));
        let asked =
            RequestedLimits { size: search.request.size_limit, time: search.request.time_limit, page };
        limits::effective(held.as_ref(), asked)
    }
}

const DAMAGED: Fault = Fault::Damaged { what: "a record of the change log" };

/// The number that the first RDN of a name has: `changeNumber=7,cn=changelog`.
fn number_in(name: &str) -> Option<u64> {
    let dn = Dn::parse(name).ok()?;
    let [.., rdn, _] = dn.rdns() else { return None };
    let [ava] = rdn.avas() else { return None };
    std::str::from_utf8(&ava.value).ok()?.parse().ok()
}

impl Backend for Changelog {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let refused = |result| Box::new((result, Vec::new()));
        self.tree
            .common
            .config
            .global
            .request_limits
            .check_search(&search.request, &search.controls)
            .map_err(refused)?;
        if search.controls.sort.as_ref().is_some_and(|asked| asked.critical) {
            let text = "changes come in the order of their numbers, and cannot be sorted otherwise";
            return Err(refused(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text)));
        }
        let is_top = search.base.as_str() == NAME;
        let tree = self
            .named(context, search.request.base, search.base)
            .map_err(|fault| refused(self.failure(&fault)))?;
        tree.check_base(search.base, &search.controls).map_err(refused)?;
        if is_top && search.request.scope != Scope::Base {
            return search::begin(self, context, search);
        }
        let mut messages = Vec::new();
        let Found { result, entries } =
            tree.search(search.base, &search.request, &search.controls, search.message, &mut messages);
        Ok(Box::new(Answered { messages, result, entries }))
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, _: Later<'_, End>) -> Reply<End> {
        let result = match self.named(context, compare.request.entry, compare.dn) {
            Ok(tree) => tree.compare(compare.dn, compare.request, compare.controls),
            Err(fault) => self.failure(&fault),
        };
        Reply::Now((result, Vec::new()))
    }

    fn bind(&self, context: &Context<'_>, bind: &Bind<'_>, later: Later<'_, Verdict>) -> Reply<Verdict> {
        self.tree.bind(context, bind, later)
    }

    fn modify_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Reply<PasswordChanged> {
        self.tree.modify_password(context, change, later)
    }

    fn secrets(&self, context: &Context<'_>, dn: &NormalDn) -> Vec<Secret> {
        self.tree.secrets(context, dn)
    }

    fn update(&self, context: &Context<'_>, changes: Changes, done: Completion) -> Pending {
        self.tree.update(context, changes, done)
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        self.tree.stands_apart()
    }

    fn policy(&self, dn: &NormalDn) -> Option<Arc<larix_engine::access::AccessPolicy>> {
        self.tree.policy(dn)
    }

    fn refers(&self, _: &NormalDn, _: bool) -> bool {
        false
    }

    fn announce(&self, announced: &mut Announced) {
        let numbers = || -> Result<(u64, u64), Fault> {
            let snapshot = self.served.database().store().snapshot()?;
            Ok((log::first_number(&snapshot)?, log::last_number(&snapshot)?))
        };
        // A store that cannot be read says so where it is searched.
        announced.changelog = numbers().ok().map(|(first, last)| (NAME, first, last));
    }
}
