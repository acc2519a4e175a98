//! `database null`: it holds nothing; every search finds nothing, and every change succeeds (slapd-null(5)).

use larix_engine::access::{Item, Privilege};
use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;

use super::{Common, Content, Tree};
use crate::virtual_entries::Builder;
use larix_backend::memory_tree::OneByOne;
use larix_backend::{Announcement, AnsweredSearch, Compare, Context, Cursor, Search};

#[derive(Debug)]
pub(crate) struct Null {
    pub(crate) bind_allowed: bool,
    /// The suffix, normal and as it is shown, whose entry every search answers (`dosearch`); none: searches find nothing.
    pub(crate) answer: Option<(NormalDn, String)>,
    pub(crate) naming_contexts: Vec<String>,
}

impl Null {
    /// Appends the entry of the suffix, whatever the search asks for, if the requester may read it.
    fn answer(
        &self,
        tree: &Tree<Self>,
        context: &Context<'_>,
        search: &Search<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u64, LdapResult> {
        let Some((dn, shown)) = &self.answer else { return Ok(0) };
        let config = &tree.common.config;
        let (schema, limits) = (&config.schema, &config.global.request_limits);
        let entry =
            Builder::new(schema, shown.clone()).named().one("objectClass", "extensibleObject").build();
        let writer = OneByOne::new(schema, limits, &search.request, &search.controls, search.message)?;
        let seen = tree.tree(context);
        let may_read = seen.allows(dn, &entry, Item::Entry, Privilege::Read);
        if may_read {
            writer.write(&seen, dn, &entry, out);
        }
        Ok(may_read.into())
    }
}

impl Content for Null {
    fn entries(&self, _: &Common, _: &Context<'_>) -> Vec<Entry> {
        Vec::new()
    }

    fn begin(
        &self,
        tree: &Tree<Self>,
        context: &Context<'_>,
        search: &Search<'_>,
    ) -> Result<Option<Box<dyn Cursor>>, LdapResult> {
        let mut messages = Vec::new();
        let entries = self.answer(tree, context, search, &mut messages)?;
        Ok(Some(Box::new(AnsweredSearch { messages, result: LdapResult::success(), entries })))
    }

    fn compare(&self, _: &Tree<Self>, _: &Context<'_>, _: &Compare<'_>) -> LdapResult {
        LdapResult::new(ResultCode::COMPARE_FALSE)
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

    fn announce(&self, announced: &mut Announcement) {
        announced.naming_contexts.extend_from_slice(&self.naming_contexts);
    }
}
