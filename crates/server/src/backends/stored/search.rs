//! A search of one stored database.

use std::sync::Arc;

use larix_engine::log::Follower;
use larix_engine::search::task::{Budget, SearchTask, Step};
use larix_engine::{DatabaseHandle, Fault};
use larix_proto::LdapResult;
use larix_store::Store;
use larix_store::lmdb::LmdbStore;

use super::{StoredBackend, persistent, sync};
use crate::access_log::Gate;
use crate::backends::engine_database::failure;
use crate::backends::engine_search::{self, FirstSlice, effort};
use crate::backends::search_limits;
use crate::services::Services;
use larix_backend::{Context, Cursor, Effort, End, First, Search, StepOutcome};

/// A search under way.
#[derive(Debug)]
struct StoredSearch {
    served: DatabaseHandle<LmdbStore>,
    task: SearchTask,
    /// Of an access log: what is to be there before it begins.
    gate: Option<Gate>,
    services: Arc<Services>,
}

impl StoredSearch {
    fn slice(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Step {
        let database = match self.served.database() {
            Ok(database) => database,
            Err(result) => return Step::Done(result, Vec::new()),
        };
        let mut slice = || -> Result<Step, Fault> {
            let snapshot = database.store().snapshot()?;
            let view = database.view(&snapshot)?;
            Ok(self.task.step(&view, out, budget))
        };
        slice().unwrap_or_else(|fault| Step::Done(failure(&self.services, &fault), Vec::new()))
    }
}

impl Cursor for StoredSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if let Some(answer) = Gate::closed(&mut self.gate) {
            return answer;
        }
        match self.slice(budget, out) {
            Step::Done(result, controls) => StepOutcome::Done(result, controls),
            Step::More | Step::Blocked => StepOutcome::More,
        }
    }

    fn effort(&self) -> Effort {
        effort(&self.task)
    }

    fn waits(&self) -> bool {
        self.gate.is_some()
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(gate) = &mut self.gate {
            gate.follow(follower);
        }
    }

    fn is_dear(&self) -> bool {
        self.task.is_dear()
    }

    fn size_limit(&self) -> Option<u32> {
        self.task.size_limit()
    }

    fn limit_size(&mut self, entries: u32) {
        self.task.limit_size(entries);
    }

    fn limit_page(&mut self, entries: u32) {
        self.task.limit_page(entries);
    }
}

impl StoredBackend {
    /// Begins a search that goes on later.
    pub(super) fn open_search(
        &self,
        context: &Context<'_>,
        mut search: Search<'_>,
    ) -> Result<Box<dyn Cursor>, Box<End>> {
        let gate = || self.common.services.access_logs.gate(&self.served, &self.common.services.clock);
        if let Some(control) = search.controls.values_mut().and_then(|values| values.sync.take()) {
            return sync::start(self, context, search, &control, gate());
        }
        if let Some(control) = search.controls.values_mut().and_then(|values| values.persistent.take()) {
            return persistent::start(self, context, search, control.asked);
        }
        let gate = gate();
        let task = self.task_later(context, search)?;
        Ok(self.cursor(task, gate))
    }

    /// The usual case: no more to do after one slice.
    pub(super) fn first_slice(
        &self,
        context: &Context<'_>,
        search: Search<'_>,
        out: &mut Vec<u8>,
    ) -> Result<First, Box<End>> {
        let has_gate =
            || self.common.services.access_logs.gate(&self.served, &self.common.services.clock).is_some();
        if search.controls.sync.is_some() || search.controls.persistent.is_some() || has_gate() {
            return Ok(First::Running(self.open_search(context, search)?));
        }
        let fail = |fault: Fault| Box::new((self.failure(&fault), Vec::new()));
        let database = self.served.database();
        let snapshot = database.store().snapshot().map_err(|error| fail(error.into()))?;
        let view = database.view(&snapshot).map_err(fail)?;
        let limits =
            search_limits::of_search(&view, &self.limits, context.subject, search.base).map_err(fail)?;
        if let Some(effort) = engine_search::at_once(&view, context, &search, limits.as_ref(), out) {
            return Ok(First::Done { result: LdapResult::success(), controls: Vec::new(), effort });
        }
        let own = (&*self.common, database);
        Ok(match engine_search::first_slice(own, &view, context, search, limits, out)? {
            FirstSlice::Done { result, controls, effort } => First::Done { result, controls, effort },
            FirstSlice::Running(task) => First::Running(self.cursor(*task, None)),
        })
    }

    fn cursor(&self, task: SearchTask, gate: Option<Gate>) -> Box<dyn Cursor> {
        let (served, services) = (DatabaseHandle::new(&self.served), Arc::clone(&self.common.services));
        Box::new(StoredSearch { served, task, gate, services })
    }

    /// A task whose first slice comes later.
    pub(super) fn task_later(
        &self,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Result<SearchTask, Box<End>> {
        let fail = |fault: Fault| Box::new((self.failure(&fault), Vec::new()));
        let snapshot = self.served.database().store().snapshot().map_err(|error| fail(error.into()))?;
        let view = self.served.database().view(&snapshot).map_err(fail)?;
        let limits =
            search_limits::of_search(&view, &self.limits, context.subject, search.base).map_err(fail)?;
        let own = (&*self.common, self.served.database());
        engine_search::task(own, &view, (context.subject, context.began), search, limits)
    }
}
