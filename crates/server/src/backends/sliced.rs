//! A search, in slices, of entries that are made one by one because all of them together would be too many: the accounts of a file, the
//! changes of a log. A source makes the entries in their order; the search has the limits, the page and the counts.

use std::fmt::Debug;
use std::sync::Arc;

use larix_engine::Fault;
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::entry::{Entry, EntryId};
use larix_engine::search::limits::Effective;
use larix_engine::search::pages::Pages;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{NormalDn, Schema};

use super::Tree;
use super::engine_database::failure;
use crate::services::Services;
use larix_backend::memory_tree::{MemoryTree, OneByOne};
use larix_backend::{Context, Cursor, Effort, End, Search, StepOutcome, lowered};

/// Makes the entries of a search.
pub(super) trait EntrySource: Debug + Send {
    /// Shows entries to the slice, from the next one on, for as long as it [goes on](Slice::goes_on). Answers whether there are more.
    ///
    /// # Errors
    /// How the search ends in place of an answer.
    fn show(&mut self, slice: &mut Slice<'_>) -> Result<bool, SourceError>;
}

/// Why a source cannot go on.
pub(super) enum SourceError {
    Refused(LdapResult),
    Fault(Fault),
}

impl From<LdapResult> for SourceError {
    fn from(result: LdapResult) -> Self {
        Self::Refused(result)
    }
}

impl From<Fault> for SourceError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What a search has sent, and how much it may send.
#[derive(Debug)]
struct Progress {
    search: OneByOne,
    limits: Effective,
    pages: Option<Pages>,
    entries: u32,
    looked: u64,
    /// The number of the entry that was sent last; 0: none, or the one above all others.
    last: u64,
}

impl Progress {
    /// Why the search ends before another entry is sent.
    fn is_full(&self) -> Option<End> {
        if self.limits.size.is_some_and(|most| self.entries >= most) {
            return Some((LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED), Vec::new()));
        }
        let pages = self.pages.as_ref().filter(|pages| self.entries >= pages.size())?;
        let control = pages.more(self.entries, EntryId(self.last), Vec::new(), 0);
        Some((LdapResult::success(), vec![control]))
    }
}

/// One slice of a search.
pub(super) struct Slice<'s> {
    tree: MemoryTree<'s>,
    progress: &'s mut Progress,
    budget: Budget<'s>,
    began: Monotonic,
    candidates: u32,
    out: &'s mut Vec<u8>,
    end: Option<End>,
}

impl<'s> Slice<'s> {
    /// Who sees the entries, by which rules and schema.
    pub(super) fn tree(&self) -> &MemoryTree<'s> {
        &self.tree
    }

    /// Whether another entry may be shown: the search has not ended, and the budget is not used up.
    pub(super) fn goes_on(&self) -> bool {
        let is_late = || self.budget.clock.monotonic().0.saturating_sub(self.began.0) > self.budget.nanos;
        self.end.is_none()
            && self.candidates < self.budget.candidates
            && self.out.len() < self.budget.bytes
            && (self.candidates == 0 || !is_late())
    }

    /// Sends the entry if the search finds it. With `number` a page goes on behind it.
    pub(super) fn look(&mut self, number: u64, dn: &NormalDn, entry: &Entry) -> Result<(), Fault> {
        self.candidates += 1;
        self.progress.looked += 1;
        if !self.progress.search.finds(&self.tree, dn, entry)? {
            return Ok(());
        }
        self.end = self.progress.is_full();
        if self.end.is_none() {
            self.progress.search.write(&self.tree, dn, entry, self.out);
            self.progress.entries += 1;
            self.progress.last = number;
        }
        Ok(())
    }

    /// The same for the entry above all others, which has `child` as a subordinate.
    pub(super) fn look_above(
        &mut self,
        child: Option<Entry>,
        dn: &NormalDn,
        entry: &Entry,
    ) -> Result<(), Fault> {
        self.tree.entries.extend(child);
        let looked = self.look(0, dn, entry);
        self.tree.entries.clear();
        looked
    }
}

/// A search of the entries of a source.
#[derive(Debug)]
pub(super) struct SlicedSearch<S> {
    source: S,
    schema: Arc<Schema>,
    policy: Arc<AccessPolicy>,
    subject: Arc<Subject>,
    services: Arc<Services>,
    deadline: Option<Monotonic>,
    progress: Progress,
}

impl<S: EntrySource> SlicedSearch<S> {
    /// # Errors
    /// A filter that costs more steps than one request may.
    pub(super) fn new<C>(
        tree: &Tree<C>,
        context: &Context<'_>,
        search: &Search<'_>,
        (limits, pages): (Effective, Option<Pages>),
        source: S,
    ) -> Result<Self, LdapResult> {
        let config = &tree.common.config;
        let one_by_one = OneByOne::new(
            &config.schema,
            &config.global.request_limits,
            &search.request,
            &search.controls,
            search.message,
        )?;
        let last = pages.as_ref().and_then(Pages::last).map_or(0, |(_, last)| last.0);
        Ok(Self {
            source,
            schema: Arc::clone(&config.schema),
            policy: Arc::clone(&tree.policy),
            subject: Arc::clone(context.subject),
            services: Arc::clone(&tree.common.services),
            deadline: limits.time.map(|seconds| context.began.plus_seconds(seconds)),
            progress: Progress { search: one_by_one, limits, pages, entries: 0, looked: 0, last },
        })
    }

    fn slice(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<Option<End>, SourceError> {
        let began = budget.clock.monotonic();
        if self.deadline.is_some_and(|deadline| began >= deadline) {
            return Ok(Some((LdapResult::new(ResultCode::TIME_LIMIT_EXCEEDED), Vec::new())));
        }
        let (has_more, ended) = {
            let tree = MemoryTree::empty(&self.schema, &self.policy, &self.subject);
            let progress = &mut self.progress;
            let mut slice = Slice { tree, progress, budget, began, candidates: 0, out, end: None };
            (self.source.show(&mut slice)?, slice.end)
        };
        if ended.is_some() || has_more {
            return Ok(ended);
        }
        let controls = self.progress.pages.iter().map(|_| Pages::end()).collect();
        Ok(Some((LdapResult::success(), controls)))
    }
}

impl<S: EntrySource> Cursor for SlicedSearch<S> {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        match self.slice(budget, out) {
            Ok(None) => StepOutcome::More,
            Ok(Some((result, controls))) => StepOutcome::Done(result, controls),
            Err(SourceError::Refused(result)) => StepOutcome::Done(result, Vec::new()),
            Err(SourceError::Fault(fault)) => StepOutcome::Done(failure(&self.services, &fault), Vec::new()),
        }
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.progress.entries.into(), candidates: self.progress.looked }
    }

    fn size_limit(&self) -> Option<u32> {
        self.progress.limits.size
    }

    fn limit_size(&mut self, entries: u32) {
        self.progress.limits.size = lowered(self.progress.limits.size, entries);
    }

    fn limit_page(&mut self, entries: u32) {
        if let Some(pages) = &mut self.progress.pages {
            pages.limit(entries);
        }
    }
}
