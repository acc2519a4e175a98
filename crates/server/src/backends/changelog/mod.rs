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
use larix_engine::{Fault, Limits, ServedDatabase};
use larix_proto::{Dn, LdapResult, ResultCode, Scope};
use larix_schema::NormalDn;
use larix_store::Store;
use larix_store::lmdb::LmdbStore;

use super::engine_database::failure;
use super::{Common, Content, Tree, search_limits};
use crate::virtual_entries::Builder;
use larix_backend::memory_tree::MemoryTree;
use larix_backend::{Announcement, Context, Cursor, Search};

use change::ChangeView;

/// The entry above the changes.
pub(super) const NAME: &str = "cn=changelog";

/// `database changelog`: the entry above the changes is one of the tree, a change where it is named.
#[derive(Debug)]
pub(crate) struct Changelog {
    /// The database whose changes are shown.
    pub(crate) served: Arc<ServedDatabase<LmdbStore>>,
    pub(crate) rules: Vec<LimitRule>,
    pub(crate) limits: Limits,
}

impl Changelog {
    /// The limits of a search; none for the root DN.
    fn subject_limits(&self, tree: &Tree<Self>, context: &Context<'_>, base: &NormalDn) -> Option<Limits> {
        if tree.policy.is_root(context.subject) {
            return None;
        }
        Some(search_limits::by_name(&self.rules, self.limits, context.subject, base))
    }

    /// Adds the one change that a name may mean.
    fn add_named(
        &self,
        tree: &mut MemoryTree<'_>,
        subschema_dn: &str,
        (name, dn): (&str, &NormalDn),
    ) -> Result<(), Fault> {
        let snapshot = self.served.database().store().snapshot()?;
        let Some(number) = number_in(name) else {
            // The entry above the changes has subordinates if there are any.
            let first = log::first_number(&snapshot)?;
            tree.entries.extend((first > 0).then(|| Entry::new(format!("changeNumber={first},{NAME}"))));
            return Ok(());
        };
        let mut found = None;
        log::visit_numbered(&snapshot, number, &mut |kept, record| {
            found = (kept == number).then(|| LogRecord::decode(record).map_err(|_| DAMAGED));
            false
        })?;
        let Some(record) = found.transpose()? else { return Ok(()) };
        let policy = self.served.database().policy();
        let change_view = ChangeView { tree, source: &policy, subschema_dn };
        let entry = change_view.entry(number, &record);
        // A name below that of a change means none.
        if tree.schema.parse_dn(&entry.dn).is_ok_and(|own| dn.is_within(&own)) {
            tree.entries.push(entry);
        }
        Ok(())
    }

    fn effective(
        &self,
        tree: &Tree<Self>,
        context: &Context<'_>,
        search: &Search<'_>,
        before: u32,
    ) -> Result<Effective, LdapResult> {
        let subject_limits = self.subject_limits(tree, context, search.base);
        let page = search.controls.paged.as_ref().map(|page| (page.size, before));
        let requested =
            RequestedLimits { size: search.request.size_limit, time: search.request.time_limit, page };
        limits::effective(subject_limits.as_ref(), requested)
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

impl Content for Changelog {
    fn entries(&self, common: &Common, _: &Context<'_>) -> Vec<Entry> {
        let built = Builder::new(&common.config.schema, NAME)
            .add("objectClass", ["top", "extensibleObject"])
            .named()
            .one("entryDN", NAME)
            .one("subschemaSubentry", common.subschema_dn.clone());
        vec![built.build()]
    }

    /// The entry above the changes, and the one change that a name may mean.
    fn named<'a>(
        &'a self,
        tree: &'a Tree<Self>,
        context: &Context<'a>,
        name: (&str, &NormalDn),
    ) -> Result<MemoryTree<'a>, LdapResult> {
        let common = &tree.common;
        let mut named = tree.tree(context);
        self.add_named(&mut named, &common.subschema_dn, name)
            .map_err(|fault| failure(&common.services, &fault))?;
        Ok(named)
    }

    fn begin(
        &self,
        tree: &Tree<Self>,
        context: &Context<'_>,
        search: &Search<'_>,
    ) -> Result<Option<Box<dyn Cursor>>, LdapResult> {
        if search.controls.sort.as_ref().is_some_and(|sort| sort.critical) {
            let text = "changes come in the order of their numbers, and cannot be sorted otherwise";
            return Err(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text));
        }
        if search.base.as_str() != NAME || search.request.scope == Scope::Base {
            return Ok(None);
        }
        let named = self.named(tree, context, (search.request.base, search.base))?;
        named.check_base(search.base, &search.controls)?;
        search::begin(tree, context, search).map(Some)
    }

    fn update(&self, _: &Tree<Self>, _: &Context<'_>, _: Vec<WriteRequest>, done: Completion) {
        let text = "cn=changelog shows changes of another database and cannot be changed";
        done(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
    }

    fn announce(&self, announced: &mut Announcement) {
        let numbers = || -> Result<(u64, u64), Fault> {
            let snapshot = self.served.database().store().snapshot()?;
            Ok((log::first_number(&snapshot)?, log::last_number(&snapshot)?))
        };
        // A store that cannot be read says so where it is searched.
        announced.changelog = numbers().ok().map(|(first, last)| (NAME, first, last));
    }
}
