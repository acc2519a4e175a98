//! A search of all accounts.

use std::sync::Arc;

use larix_engine::entry::Entry;
use larix_engine::search::limits::{self, RequestedLimits};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::NormalDn;

use super::Passwd;
use super::accounts::Accounts;
use crate::backends::sliced::{EntrySource, Slice, SlicedSearch, SourceError};
use crate::backends::{Tree, search_limits};
use larix_backend::{Context, Cursor, Search};

/// The entries below the suffix.
#[derive(Debug)]
struct AccountSource {
    accounts: Arc<Accounts>,
    /// The entry above the accounts, if it is still to be looked at.
    top: Option<(NormalDn, Entry)>,
    /// The place of the account to go on with.
    next: usize,
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
    let nothing = search.controls.subentries == Some(true);
    let has_top = search.request.scope == Scope::Subtree && !nothing;
    let top = tree.tree(context).entries.pop().filter(|_| has_top);
    let accounts = if nothing { Arc::default() } else { passwd.accounts(common)? };
    let top = top.map(|entry| (passwd.suffix.clone(), entry));
    let source = AccountSource { accounts, top, next: 0 };
    Ok(Box::new(SlicedSearch::new(tree, context, search, (limits, None), source)?))
}

impl EntrySource for AccountSource {
    fn show(&mut self, slice: &mut Slice<'_>) -> Result<bool, SourceError> {
        if slice.goes_on()
            && let Some((dn, entry)) = self.top.take()
        {
            // It has subordinates if there are accounts.
            let child = self.accounts.at(0).map(|(_, account)| Entry::new(account.dn.clone()));
            slice.look_above(child, &dn, &entry)?;
        }
        while slice.goes_on() {
            let Some((dn, entry)) = self.accounts.at(self.next) else { return Ok(false) };
            self.next += 1;
            // No page begins behind an account.
            slice.look(0, dn, entry)?;
        }
        Ok(true)
    }
}
