//! A search that a program answers or lets go on, or whose answers it receives.

use std::sync::Arc;

use larix_backend::{Cursor, Effort, End, KeptSearch, StepOutcome, lowered};
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::{LdapResult, ResultCode};

use super::super::search::SocketSearch;
use super::{Continuation, Notifier};

/// How far a search has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// The program answers.
    Program { search: Box<SocketSearch>, then: Box<(Continuation, KeptSearch)> },
    /// The database behind it does.
    Database(Box<dyn Cursor>),
}

#[derive(Debug)]
pub(super) struct FrontSearch {
    stage: Stage,
    notifier: Option<Notifier>,
    follower: Option<Arc<Follower>>,
    /// What the program has sent.
    before: u64,
    limit: Option<u32>,
    page: Option<u32>,
}

impl FrontSearch {
    pub(super) const fn new(stage: Stage, notifier: Option<Notifier>) -> Self {
        Self { stage, notifier, follower: None, before: 0, limit: None, page: None }
    }

    fn cursor(&self) -> &dyn Cursor {
        match &self.stage {
            Stage::Program { search, .. } => &**search,
            Stage::Database(cursor) => &**cursor,
        }
    }

    fn cursor_mut(&mut self) -> &mut dyn Cursor {
        match &mut self.stage {
            Stage::Program { search, .. } => &mut **search,
            Stage::Database(cursor) => &mut **cursor,
        }
    }

    /// Begins the search behind the program.
    fn go_on(&mut self) -> Result<(), Box<End>> {
        let Stage::Program { search, then } = &self.stage else { return Ok(()) };
        self.before = search.sent();
        let (continuation, kept_search) = &**then;
        let opened = continuation.with(|next, context| match kept_search.search() {
            Some(search) => next.open(context, search),
            None => Err(Box::new((LdapResult::new(ResultCode::OTHER), Vec::new()))),
        });
        let mut cursor = opened.map_err(|gone| Box::new((gone, Vec::new())))??;
        if let Some(page) = self.page {
            cursor.limit_page(page);
        }
        let own = cursor.size_limit();
        let limit = self.limit.map_or(own, |limit| lowered(own, limit));
        if let Some(limit) = limit {
            let before = u32::try_from(self.before).unwrap_or(u32::MAX);
            cursor.limit_size(limit.saturating_sub(before));
        }
        if cursor.waits()
            && let Some(follower) = &self.follower
        {
            cursor.follow(Arc::clone(follower));
        }
        self.stage = Stage::Database(cursor);
        Ok(())
    }

    fn finish(&self, (result, controls): End) -> StepOutcome {
        if let Some(notifier) = &self.notifier {
            notifier.result(&result);
        }
        StepOutcome::Done(result, controls)
    }
}

impl Cursor for FrontSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if let Stage::Program { search, .. } = &mut self.stage {
            match search.step(budget, out) {
                StepOutcome::Done(..) if search.goes_on() => {}
                // What the program itself answers it is not told.
                slice => return slice,
            }
            if let Err(end) = self.go_on() {
                return self.finish(*end);
            }
        }
        if let (Some(notifier), Some(follower)) = (&self.notifier, &self.follower)
            && notifier.entry.is_some()
            && notifier.notices.delays(follower)
        {
            return StepOutcome::Waiting;
        }
        let before = out.len();
        let slice = self.cursor_mut().step(budget, out);
        if let Some(notifier) = &self.notifier {
            notifier.entries(out.get(before..).unwrap_or_default());
        }
        match slice {
            StepOutcome::Done(result, controls) => self.finish((result, controls)),
            slice => slice,
        }
    }

    fn effort(&self) -> Effort {
        let before = Effort { entries: self.before, candidates: self.before };
        before.plus(self.cursor().effort())
    }

    fn waits(&self) -> bool {
        let tells_entries = self.notifier.as_ref().is_some_and(|notifier| notifier.entry.is_some());
        tells_entries || self.cursor().waits()
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        let cursor = self.cursor_mut();
        if cursor.waits() {
            cursor.follow(Arc::clone(&follower));
        }
        self.follower = Some(follower);
    }

    fn waits_for_changes(&self) -> bool {
        self.cursor().waits_for_changes()
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.cursor().deadline()
    }

    fn pause(&mut self) {
        self.cursor_mut().pause();
    }

    fn is_dear(&self) -> bool {
        self.cursor().is_dear()
    }

    fn size_limit(&self) -> Option<u32> {
        self.cursor().size_limit()
    }

    fn limit_size(&mut self, entries: u32) {
        self.limit = lowered(self.limit, entries);
        self.cursor_mut().limit_size(entries);
    }

    fn limit_page(&mut self, entries: u32) {
        self.page = Some(entries);
        self.cursor_mut().limit_page(entries);
    }
}
