//! `database passwd`: the accounts of the machine, or of another file in the form of passwd(5), as entries that can be read
//! (slapd-passwd(5)). Nothing is kept but what was read of the file.

mod accounts;
mod search;

use std::io;
use std::path::Path;
use std::sync::Arc;

use larix_configuration::values::LimitRule;
use larix_engine::Limits;
use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::NormalDn;

use super::{Common, Content, Tree};
use crate::virtual_entries::Builder;
use larix_backend::memory_tree::MemoryTree;
use larix_backend::{Announcement, Context, Cursor, Search};

use accounts::{AccountFile, Accounts, Names};

/// `database passwd`: the entry above the accounts is one of the tree, an account where it is named.
#[derive(Debug)]
pub(crate) struct Passwd {
    file: AccountFile,
    suffix: NormalDn,
    /// The suffix as it is shown.
    name: String,
    rules: Vec<LimitRule>,
    limits: Limits,
    naming_contexts: Vec<String>,
}

impl Passwd {
    /// `suffix`: normal, as it is shown, and as the root DSE lists it.
    pub(crate) fn new(
        file: &Path,
        (suffix, name, naming_contexts): (NormalDn, String, Vec<String>),
        (rules, limits): (Vec<LimitRule>, Limits),
    ) -> Self {
        Self { file: AccountFile::new(file), suffix, name, rules, limits, naming_contexts }
    }

    fn accounts(&self, common: &Common) -> Result<Arc<Accounts>, LdapResult> {
        let names =
            Names { schema: &common.config.schema, suffix: &self.name, subschema_dn: &common.subschema_dn };
        self.file.accounts(&names).map_err(|error| self.unreadable(common, &error))
    }

    /// The log names the file; clients do not learn its name.
    fn unreadable(&self, common: &Common, error: &io::Error) -> LdapResult {
        let path = self.file.path().display();
        common.services.log.notice(format_args!("database passwd: file \"{path}\": {error}"));
        LdapResult::with(ResultCode::UNAVAILABLE, "the file of accounts cannot be read")
    }
}

impl Content for Passwd {
    fn entries(&self, common: &Common, _: &Context<'_>) -> Vec<Entry> {
        let built = Builder::new(&common.config.schema, self.name.clone())
            .classes(&["organizationalUnit"])
            .named()
            .computed("entryDN", self.name.clone())
            .computed("subschemaSubentry", common.subschema_dn.clone());
        vec![built.build()]
    }

    /// The entry above the accounts, and the account of this name, if there is one; for the suffix itself the first one.
    fn named<'a>(
        &'a self,
        tree: &'a Tree<Self>,
        context: &Context<'a>,
        (_, dn): (&str, &NormalDn),
    ) -> Result<MemoryTree<'a>, LdapResult> {
        let accounts = self.accounts(&tree.common)?;
        let mut named = tree.tree(context);
        let account = match *dn == self.suffix {
            true => accounts.at(0).map(|(_, entry)| entry),
            false => accounts.named(dn),
        };
        named.entries.extend(account.cloned());
        Ok(named)
    }

    fn begin(
        &self,
        tree: &Tree<Self>,
        context: &Context<'_>,
        search: &Search<'_>,
    ) -> Result<Option<Box<dyn Cursor>>, LdapResult> {
        if *search.base != self.suffix || search.request.scope == Scope::Base {
            return Ok(None);
        }
        let named = self.named(tree, context, (search.request.base, search.base))?;
        named.check_base(search.base, &search.controls)?;
        search::begin(tree, context, search).map(Some)
    }

    fn update(&self, _: &Tree<Self>, _: &Context<'_>, _: Vec<WriteRequest>, done: Completion) {
        let text = "the accounts of `database passwd` are changed in their file, and by no client";
        done(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
    }

    fn announce(&self, announced: &mut Announcement) {
        announced.naming_contexts.extend_from_slice(&self.naming_contexts);
    }
}
