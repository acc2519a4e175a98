//! A search of all accounts, in slices.

use std::sync::Arc;

use larix_engine::Fault;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::entry::Entry;
use larix_engine::search::limits::{self, Effective, RequestedLimits};
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::{NormalDn, Schema};

use super::Passwd;
use super::accounts::Accounts;
use crate::backends::engine_database::failure;
use crate::backends::{Tree, search_limits};
use crate::services::Services;
use larix_backend::memory_tree::{MemoryTree, OneByOne};
use larix_backend::{Context, Cursor, Effort, Search, StepOutcome, lowered};

/// A search below the suffix.
#[derive(Debug)]
struct AccountSearch {
    accounts: Arc<Accounts>,
    schema: Arc<Schema>,
    policy: Arc<AccessPolicy>,
    subject: Arc<Subject>,
    services: Arc<Services>,
    search: OneByOne,
    /// The entry above the accounts, if it is still to be looked at.
    top: Option<(NormalDn, Entry)>,
    /// The place of the account to go on with.
    next: usize,
    limits: Effective,
    deadline: Option<Monotonic>,
    entries: u32,
    looked: u64,
}

/// Begins a search of the accounts, and of the entry above them if the scope has it.
pub(super) fn begin(
    tree: &Tree<Passwd>,
    context: &Context<'_>,
    search: &Search<'_>,
) -> Result<Box<dyn Cursor>, LdapResult> {
    let (passwd, common) = (&tree.content, &tree.common);
    if search.controls.sort.as_ref().is_some_and(|sort| sort.critical) {
        let text = "accounts come in the order of their file, and cannot be sorted otherwise";
        return Err(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text));
    }
    let subject_limits = (!tree.policy.is_root(context.subject))
        .then(|| search_limits::by_name(&passwd.rules, passwd.limits, context.subject, search.base));
    let requested =
        RequestedLimits { size: search.request.size_limit, time: search.request.time_limit, page: None };
    let limits = limits::effective(subject_limits.as_ref(), requested)?;
    let schema = &common.config.schema;
    let found = OneByOne::new(
        schema,
        &common.config.global.request_limits,
        &search.request,
        &search.controls,
        search.message,
    );
    let has_top = search.request.scope == Scope::Subtree;
    let top = tree.tree(context).entries.pop().filter(|_| has_top);
    let accounts = match search.controls.subentries {
        Some(true) => Arc::default(),
        _ => passwd.accounts(common)?,
    };
    Ok(Box::new(AccountSearch {
        top: top
            .map(|entry| (passwd.suffix.clone(), entry))
            .filter(|_| search.controls.subentries != Some(true)),
        accounts,
        schema: Arc::clone(schema),
        policy: Arc::clone(&tree.policy),
        subject: Arc::clone(context.subject),
        services: Arc::clone(&common.services),
        search: found?,
        next: 0,
        deadline: limits.time.map(|seconds| context.began.plus_seconds(seconds)),
        limits,
        entries: 0,
        looked: 0,
    }))
}

impl AccountSearch {
    /// Sends the entry if the search finds it. Answers how the search ends, if it does.
    fn answer(
        &self,
        tree: &MemoryTree<'_>,
        (dn, entry): (&NormalDn, &Entry),
        out: &mut Vec<u8>,
    ) -> Result<Answer, Fault> {
        if !self.search.finds(tree, dn, entry)? {
            return Ok(Answer::Passed);
        }
        if self.limits.size.is_some_and(|most| self.entries >= most) {
            return Ok(Answer::Full);
        }
        self.search.write(tree, dn, entry, out);
        Ok(Answer::Sent)
    }

    fn slice(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<Option<LdapResult>, Fault> {
        let began = budget.clock.monotonic();
        if self.deadline.is_some_and(|deadline| began >= deadline) {
            return Ok(Some(LdapResult::new(ResultCode::TIME_LIMIT_EXCEEDED)));
        }
        let (schema, policy, subject) =
            (Arc::clone(&self.schema), Arc::clone(&self.policy), Arc::clone(&self.subject));
        let accounts = Arc::clone(&self.accounts);
        let mut tree = MemoryTree::empty(&schema, &policy, &subject);
        let mut candidates = 0;
        loop {
            let late = || budget.clock.monotonic().0.saturating_sub(began.0) > budget.nanos;
            if candidates >= budget.candidates || out.len() >= budget.bytes || (candidates > 0 && late()) {
                return Ok(None);
            }
            candidates += 1;
            let answer = if let Some((dn, entry)) = self.top.take() {
                // It has subordinates if there are accounts.
                tree.entries.extend(accounts.at(0).map(|(_, account)| Entry::new(account.dn.clone())));
                let answer = self.answer(&tree, (&dn, &entry), out)?;
                tree.entries.clear();
                answer
            } else {
                let Some((dn, entry)) = accounts.at(self.next) else {
                    return Ok(Some(LdapResult::success()));
                };
                self.next += 1;
                self.answer(&tree, (dn, entry), out)?
            };
            self.looked += 1;
            match answer {
                Answer::Passed => {}
                Answer::Sent => self.entries += 1,
                Answer::Full => return Ok(Some(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED))),
            }
        }
    }
}

/// What became of an entry.
enum Answer {
    Passed,
    Sent,
    /// The search has sent as many as it may.
    Full,
}

impl Cursor for AccountSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        match self.slice(budget, out) {
            Ok(None) => StepOutcome::More,
            Ok(Some(result)) => StepOutcome::Done(result, Vec::new()),
            Err(fault) => StepOutcome::Done(failure(&self.services, &fault), Vec::new()),
        }
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.entries.into(), candidates: self.looked }
    }

    fn size_limit(&self) -> Option<u32> {
        self.limits.size
    }

    fn limit_size(&mut self, entries: u32) {
        self.limits.size = lowered(self.limits.size, entries);
    }
}
