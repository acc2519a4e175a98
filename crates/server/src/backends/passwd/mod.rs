//! `database passwd`: the accounts of the machine, or of another file in the form of passwd(5), as entries that can be read
//! (slapd-passwd(5)). Nothing is kept but what was read of the file.

mod accounts;
mod search;

use std::io;
use std::path::Path;
use std::sync::Arc;

use larix_configuration::values::LimitRule;
use larix_engine::Limits;
use larix_engine::access::AccessPolicy;
use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{Dn, LdapResult, ResultCode, Scope};
use larix_schema::NormalDn;

use super::{Common, Content, Tree};
use crate::virtual_entries::Builder;
use larix_backend::memory_tree::{Found, MemoryTree};
use larix_backend::{
    Announced, Answered, Backend, Bind, Changes, Compare, Context, Cursor, End, Later, PasswordChange,
    PasswordChanged, Pending, Reply, Search, Secret, Verdict,
};

use accounts::{AccountFile, Accounts, Names};

/// `database passwd`.
#[derive(Debug)]
pub(crate) struct Passwd {
    tree: Tree<SuffixEntry>,
    file: AccountFile,
    suffix: NormalDn,
    rules: Vec<LimitRule>,
    limits: Limits,
    naming_contexts: Vec<String>,
}

/// The entry above the accounts alone.
#[derive(Debug)]
pub(crate) struct SuffixEntry {
    name: String,
}

impl Content for SuffixEntry {
    fn entries(&self, common: &Common, _: &Context<'_>) -> Vec<Entry> {
        let schema = &common.config.schema;
        let mut built = Builder::new(schema, self.name.clone()).classes(&["organizationalUnit"]);
        if let Ok(dn) = Dn::parse(&self.name)
            && let Some(rdn) = dn.rdns().first()
        {
            for ava in rdn.avas() {
                built = built.one(ava.attribute, ava.value.to_vec());
            }
        }
        let built = built
            .computed("entryDN", self.name.clone())
            .computed("subschemaSubentry", common.subschema_dn.clone());
        vec![built.build()]
    }

    fn update(&self, _: &Tree<Self>, _: &Context<'_>, _: Vec<WriteRequest>, done: Completion) {
        let text = "the accounts of `database passwd` are changed in their file, and by no client";
        done(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
    }
}

impl Passwd {
    /// `suffix`: normal, as it is shown, and as the root DSE lists it.
    pub(crate) fn new(
        (common, policy): (&Arc<Common>, Arc<AccessPolicy>),
        file: &Path,
        (suffix, name, naming_contexts): (NormalDn, String, Vec<String>),
        (root_dn, root_password): (Option<NormalDn>, Option<Secret>),
        (rules, limits): (Vec<LimitRule>, Limits),
    ) -> Self {
        let common = Arc::clone(common);
        let tree = Tree { content: SuffixEntry { name }, common, policy, root_dn, root_password };
        Self { tree, file: AccountFile::new(file), suffix, rules, limits, naming_contexts }
    }

    fn accounts(&self) -> Result<Arc<Accounts>, LdapResult> {
        let common = &self.tree.common;
        let names = Names {
            schema: &common.config.schema,
            suffix: &self.tree.content.name,
            subschema_dn: &common.subschema_dn,
        };
        self.file.accounts(&names).map_err(|error| self.unreadable(&error))
    }

    /// The log names the file; clients do not learn its name.
    fn unreadable(&self, error: &io::Error) -> LdapResult {
        let path = self.file.path().display();
        self.tree.common.services.log.notice(format_args!("database passwd: file \"{path}\": {error}"));
        LdapResult::with(ResultCode::UNAVAILABLE, "the file of accounts cannot be read")
    }

    /// The entry above the accounts, and the account of this name, if there is one; for the suffix itself the first one.
    fn named<'a>(&'a self, context: &Context<'a>, dn: &NormalDn) -> Result<MemoryTree<'a>, LdapResult> {
        let accounts = self.accounts()?;
        let mut tree = self.tree.tree(context);
        let account = match *dn == self.suffix {
            true => accounts.at(0).map(|(_, entry)| entry),
            false => accounts.named(dn),
        };
        tree.entries.extend(account.cloned());
        Ok(tree)
    }
}

impl Backend for Passwd {
    fn open(&self, context: &Context<'_>, search: Search<'_>) -> Result<Box<dyn Cursor>, Box<End>> {
        let refused = |result| Box::new((result, Vec::new()));
        let common = &self.tree.common;
        let limits = &common.config.global.request_limits;
        limits.check_search(&search.request, &search.controls).map_err(refused)?;
        let tree = self.named(context, search.base).map_err(refused)?;
        if *search.base == self.suffix && search.request.scope != Scope::Base {
            tree.check_base(search.base, &search.controls).map_err(refused)?;
            return search::begin(self, context, search);
        }
        let mut messages = Vec::new();
        let Found { result, entries } =
            tree.search(search.base, &search.request, &search.controls, search.message, &mut messages);
        Ok(Box::new(Answered { messages, result, entries }))
    }

    fn compare(&self, context: &Context<'_>, compare: &Compare<'_>, _: Later<'_, End>) -> Reply<End> {
        let result = match self.named(context, compare.dn) {
            Ok(tree) => tree.compare(compare.dn, compare.request, compare.controls),
            Err(refused) => refused,
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
