//! A search of many changes, in slices: each has a snapshot of its own and begins behind the number that the one before ended with.

use std::sync::Arc;

use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::entry::{Entry, EntryId};
use larix_engine::log::{self, LogRecord};
use larix_engine::search::cookie::Binding;
use larix_engine::search::limits::Effective;
use larix_engine::search::pages::Pages;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_engine::{Database, DatabaseHandle, Fault};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::Schema;
use larix_store::Store;
use larix_store::lmdb::LmdbStore;

use super::change::ChangeView;
use super::numbers::of_filter;
use super::{Changelog, DAMAGED, NAME};
use crate::backends::Tree;
use crate::backends::engine_database::failure;
use crate::services::Services;
use larix_backend::memory_tree::{MemoryTree, OneByOne};
use larix_backend::{Context, Cursor, Effort, End, Search, StepOutcome, lowered};

/// A search below cn=changelog.
#[derive(Debug)]
pub(super) struct ChangeSearch {
    served: DatabaseHandle<LmdbStore>,
    schema: Arc<Schema>,
    policy: Arc<AccessPolicy>,
    subject: Arc<Subject>,
    subschema_dn: String,
    services: Arc<Services>,
    search: OneByOne,
    /// The entry above the changes, if it is looked at first.
    top: Option<Entry>,
    /// The number to go on with, and the last one.
    next: u64,
    to: u64,
    limits: Effective,
    pages: Option<Pages>,
    deadline: Option<Monotonic>,
    entries: u32,
    looked: u64,
    /// The number of the change that was sent last; 0: the entry above.
    last: u64,
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
    let has_top = search.request.scope == Scope::Subtree && resumed.is_none();
    let found = OneByOne::new(
        schema,
        &common.config.global.request_limits,
        &search.request,
        &search.controls,
        search.message,
    );
    let nothing = search.controls.subentries == Some(true);
    Ok(Box::new(ChangeSearch {
        served: DatabaseHandle::new(served),
        schema: Arc::clone(schema),
        policy: Arc::clone(&tree.policy),
        subject: Arc::clone(context.subject),
        subschema_dn: common.subschema_dn.clone(),
        services: Arc::clone(&common.services),
        search: found?,
        top: tree.tree(context).entries.pop().filter(|_| has_top && !nothing),
        next: from.max(resumed.map_or(0, |last| last.saturating_add(1))),
        to: if nothing { 0 } else { to },
        deadline: limits.time.map(|seconds| context.began.plus_seconds(seconds)),
        limits,
        pages,
        entries: 0,
        looked: 0,
        last: resumed.unwrap_or(0),
    }))
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

impl ChangeSearch {
    /// Why the search ends before another entry is sent.
    fn is_full(&self) -> Option<End> {
        if self.limits.size.is_some_and(|most| self.entries >= most) {
            return Some((LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED), Vec::new()));
        }
        let pages = self.pages.as_ref().filter(|pages| self.entries >= pages.size())?;
        let control = pages.more(self.entries, EntryId(self.last), Vec::new(), 0);
        Some((LdapResult::success(), vec![control]))
    }

    /// Sends the entry if the search finds it. Answers how the search ends, if it does.
    fn answer(
        &mut self,
        tree: &MemoryTree<'_>,
        (number, entry): (u64, &Entry),
        out: &mut Vec<u8>,
    ) -> Result<Option<End>, Fault> {
        self.looked += 1;
        let Ok(dn) = tree.schema.parse_dn(&entry.dn) else { return Ok(None) };
        if !self.search.finds(tree, &dn, entry)? {
            return Ok(None);
        }
        let full = self.is_full();
        if full.is_none() {
            self.search.write(tree, &dn, entry, out);
            self.entries += 1;
            self.last = number;
        }
        Ok(full)
    }

    fn slice(
        &mut self,
        database: &Database<LmdbStore>,
        budget: Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<End>, Fault> {
        let began = budget.clock.monotonic();
        if self.deadline.is_some_and(|deadline| began >= deadline) {
            return Ok(Some((LdapResult::new(ResultCode::TIME_LIMIT_EXCEEDED), Vec::new())));
        }
        let (schema, policy, subject) =
            (Arc::clone(&self.schema), Arc::clone(&self.policy), Arc::clone(&self.subject));
        let subschema_dn = std::mem::take(&mut self.subschema_dn);
        let source = database.policy();
        let mut tree = MemoryTree::empty(&schema, &policy, &subject);
        let snapshot = database.store().snapshot()?;
        let mut ended = None;
        if let Some(top) = self.top.take() {
            // It has subordinates if there are changes.
            let child = format!("changeNumber={},{NAME}", self.to);
            tree.entries.extend((log::last_number(&snapshot)? > 0).then(|| Entry::new(child)));
            ended = self.answer(&tree, (0, &top), out)?;
            tree.entries.clear();
        }
        let change_view = ChangeView { tree: &tree, source: &source, subschema_dn: &subschema_dn };
        let (mut candidates, mut has_more, mut fault) = (0, false, None);
        let from = self.next;
        if ended.is_none() && from <= self.to {
            log::visit_numbered(&snapshot, from, &mut |number, bytes| {
                if number > self.to {
                    return false;
                }
                let late = || budget.clock.monotonic().0.saturating_sub(began.0) > budget.nanos;
                if candidates >= budget.candidates || out.len() >= budget.bytes || (candidates > 0 && late())
                {
                    has_more = true;
                    return false;
                }
                candidates += 1;
                let answered = match LogRecord::decode(bytes) {
                    Ok(record) => {
                        let entry = change_view.entry(number, &record);
                        self.answer(&tree, (number, &entry), out)
                    }
                    Err(_) => Err(DAMAGED),
                };
                self.next = number.saturating_add(1);
                match answered {
                    Ok(end) => ended = end,
                    Err(error) => fault = Some(error),
                }
                ended.is_none() && fault.is_none()
            })?;
        }
        self.subschema_dn = subschema_dn;
        if let Some(fault) = fault {
            return Err(fault);
        }
        let end = || (LdapResult::success(), self.pages.iter().map(|_| Pages::end()).collect());
        Ok(ended.or_else(|| (!has_more).then(end)))
    }
}

impl Cursor for ChangeSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        let database = match self.served.database() {
            Ok(database) => database,
            Err(result) => return StepOutcome::Done(result, Vec::new()),
        };
        match self.slice(&database, budget, out) {
            Ok(None) => StepOutcome::More,
            Ok(Some((result, controls))) => StepOutcome::Done(result, controls),
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

    fn limit_page(&mut self, entries: u32) {
        if let Some(pages) = &mut self.pages {
            pages.limit(entries);
        }
    }
}
