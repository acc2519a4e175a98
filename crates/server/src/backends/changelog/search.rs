//! A search of many changes: each slice has a snapshot, and begins behind the number that the one before ended with.

use larix_engine::entry::Entry;
use larix_engine::log::{self, LogRecord};
use larix_engine::search::cookie::Binding;
use larix_engine::search::pages::Pages;
use larix_engine::{DatabaseHandle, Fault};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_store::Store;
use larix_store::lmdb::LmdbStore;

use super::change::ChangeView;
use super::numbers::of_filter;
use super::{Changelog, DAMAGED, NAME};
use crate::backends::Tree;
use crate::backends::engine_database::failure;
use crate::backends::sliced::{EntrySource, Slice, SlicedSearch, SourceError};
use larix_backend::{Context, Cursor, Search};

/// The entries below cn=changelog.
#[derive(Debug)]
struct ChangeSource {
    served: DatabaseHandle<LmdbStore>,
    subschema_dn: String,
    /// The entry above the changes, if it is looked at first.
    top: Option<Entry>,
    /// The number to go on with, and the last one.
    next: u64,
    to: u64,
}

/// Begins a search of the changes, and of the entry above them if the scope has it.
pub(super) fn begin(
    tree: &Tree<Changelog>,
    context: &Context<'_>,
    search: &Search<'_>,
) -> Result<Box<dyn Cursor>, LdapResult> {
    let (log, common) = (&tree.content, &tree.common);
    let (served, schema) = (&log.served, &common.config.schema);
    let first = log.effective(tree, context, search, 0)?;
    let pages =
        search.controls.paged.as_ref().map(|paged| {
            Pages::new(binding(log, context, search), *served.database().cookie_secret(), paged)
        });
    let pages = pages.transpose()?;
    let limits = match &pages {
        Some(pages) => log.effective(tree, context, search, pages.before())?,
        None => first,
    };
    if pages.as_ref().is_some_and(Pages::is_abandoned) {
        let text = "search abandoned by pagedResult size=0";
        return Err(LdapResult::with(ResultCode::SUCCESS, text));
    }
    let Ok(number) = schema.describe("changeNumber") else {
        return Err(LdapResult::with(ResultCode::OTHER, "the schema has no changeNumber"));
    };
    let (from, to) = of_filter(&schema.bind_filter(search.request.filter), number.attribute);
    let kept = || -> Result<(u64, u64), Fault> {
        let snapshot = served.database().store().snapshot()?;
        Ok((log::first_number(&snapshot)?, log::last_number(&snapshot)?))
    };
    let (oldest, newest) = kept().map_err(|fault| failure(&common.services, &fault))?;
    // What is changed while the search goes on is not part of it: it ends.
    let (from, to) = (from.max(oldest), to.min(newest));
    let candidates = if from > to { 0 } else { to - from + 1 };
    if limits.unchecked.is_some_and(|most| candidates > most.into()) {
        return Err(LdapResult::new(ResultCode::ADMIN_LIMIT_EXCEEDED));
    }
    let resumed = pages.as_ref().and_then(Pages::last).map(|(_, last)| last.0);
    let nothing = search.controls.subentries == Some(true);
    let has_top = search.request.scope == Scope::Subtree && resumed.is_none() && !nothing;
    let source = ChangeSource {
        served: DatabaseHandle::new(served),
        subschema_dn: common.subschema_dn.clone(),
        top: tree.tree(context).entries.pop().filter(|_| has_top),
        next: from.max(resumed.map_or(0, |last| last.saturating_add(1))),
        to: if nothing { 0 } else { to },
    };
    Ok(Box::new(SlicedSearch::new(tree, context, search, (limits, pages), source)?))
}

/// What a cookie is good for.
fn binding(log: &Changelog, context: &Context<'_>, search: &Search<'_>) -> Binding {
    let mut binding = Binding::new();
    binding.add(NAME.as_bytes());
    binding.add(&[search.request.scope as u8]);
    binding.add(search.request.filter.as_ber());
    binding.add(context.subject.dn.as_ref().map_or("", |dn| dn.as_str()).as_bytes());
    for suffix in &log.served.database().settings().suffixes {
        binding.add(suffix.normal.as_str().as_bytes());
    }
    binding
}

impl EntrySource for ChangeSource {
    fn show(&mut self, slice: &mut Slice<'_>) -> Result<bool, SourceError> {
        let database = self.served.database()?;
        let policy = database.policy();
        let snapshot = database.store().snapshot().map_err(Fault::from)?;
        if slice.goes_on()
            && let Some(top) = self.top.take()
            && let Ok(dn) = slice.tree().schema.parse_dn(&top.dn)
        {
            // It has subordinates if there are changes.
            let has_changes = log::last_number(&snapshot)? > 0;
            let child = has_changes.then(|| Entry::new(format!("changeNumber={},{NAME}", self.to)));
            slice.look_above(child, &dn, &top)?;
        }
        if self.next > self.to {
            return Ok(false);
        }
        let (mut has_more, mut fault) = (false, None);
        log::visit_numbered(&snapshot, self.next, &mut |number, bytes| {
            if number > self.to {
                return false;
            }
            has_more = !slice.goes_on();
            if has_more {
                return false;
            }
            self.next = number.saturating_add(1);
            let entry = LogRecord::decode(bytes).map(|record| {
                let subschema_dn = &self.subschema_dn;
                ChangeView { tree: slice.tree(), source: &policy, subschema_dn }.entry(number, &record)
            });
            let looked = match entry {
                Ok(entry) => look(slice, number, &entry),
                Err(_) => Err(DAMAGED),
            };
            fault = looked.err();
            fault.is_none()
        })?;
        fault.map_or(Ok(has_more), |fault| Err(fault.into()))
    }
}

/// Shows a change to the slice.
fn look(slice: &mut Slice<'_>, number: u64, entry: &Entry) -> Result<(), Fault> {
    match slice.tree().schema.parse_dn(&entry.dn) {
        Ok(dn) => slice.look(number, &dn, entry),
        Err(_) => Ok(()),
    }
}
