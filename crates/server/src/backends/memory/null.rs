//! `database null`: it holds nothing; every search finds nothing, and every change succeeds (slapd-null(5)).

use std::sync::Arc;

use larix_engine::access::{AccessPolicy, Item, Privilege};
use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{Dn, LdapResult, ResultCode};
use larix_schema::NormalDn;

use super::{Common, Content, Tree};
use crate::virtual_entries::Builder;
use larix_backend::memory_tree::OneByOne;
use larix_backend::{
    Announced, Answered, Backend, Bind, Changes, Compare, Context, Cursor, End, Later, PasswordChange,
    PasswordChanged, Pending, Reply, Search, Secret, Verdict,
};

#[derive(Debug)]
pub(crate) struct Null {
    pub(crate) bind_allowed: bool,
}

impl Content for Null {
    fn entries(&self, _: &Common, _: &Context<'_>) -> Vec<Entry> {
        Vec::new()
    }

    fn update(&self, _: &Tree<Self>, _: &Context<'_>, _: Vec<WriteRequest>, done: Completion) {
        done(LdapResult::success().into());
    }

    fn grants_binds(&self) -> bool {
        self.bind_allowed
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        Some(LdapResult::success())
    }
}

/// The database: every search answers with the entry of its suffix if `dosearch` is on.
#[derive(Debug)]
pub(crate) struct NullDatabase {
    pub(crate) tree: Tree<Null>,
    /// Normal and as it is shown; none: searches find nothing.
    pub(crate) answer: Option<(NormalDn, String)>,
    pub(crate) naming_contexts: Vec<String>,
}

impl NullDatabase {
    /// Appends the entry of the suffix, whatever the search asks for, if the requester may read it.
    fn answer(
        &self,
        context: &Context<'_>,
        search: &Search<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, LdapResult> {
        let config = &self.tree.common.config;
        config.global.request_limits.check_search(&search.request, &search.controls)?;
        let Some((dn, shown)) = &self.answer else { return Ok(0) };
        let schema = &config.schema;
        let mut built = Builder::new(schema, shown.clone());
        if let Ok(name) = Dn::parse(shown)
            && let Some(rdn) = name.rdns().first()
        {
            for ava in rdn.avas() {
                built = built.one(ava.attribute, ava.value.to_vec());
            }
        }
        let entry = built.one("objectClass", "extensibleObject").build();
        let limits = &config.global.request_limits;
        let writer = OneByOne::new(schema, limits, &search.request, &search.controls, search.message)?;
        let tree = self.tree.tree(context);
        let may_read = tree.allows(dn, &entry, Item::Entry, Privilege::Read);
        if may_read {
            writer.write(&tree, dn, &entry, out);
        }
        Ok(may_read.into())
    }
}

impl Backend for NullDatabase {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let mut messages = Vec::new();
        let answered = self.answer(context, &search, &mut messages);
        let entries = answered.map_err(|refused| Box::new((refused, Vec::new())))?;
        Ok(Box::new(Answered { messages, result: LdapResult::success(), entries }))
    }

    fn compare(&self, _: &Context<'_>, _: &Compare<'_>, _: Later<'_, End>) -> Reply<End> {
        Reply::Now((LdapResult::new(ResultCode::COMPARE_FALSE), Vec::new()))
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

    fn policy(&self, dn: &NormalDn) -> Option<Arc<AccessPolicy>> {
        self.tree.policy(dn)
    }

    fn refers(&self, _: &NormalDn, _: bool) -> bool {
        false
    }

    fn announce(&self, announced: &mut Announced) {
        announced.naming_contexts.extend_from_slice(&self.naming_contexts);
    }
}
