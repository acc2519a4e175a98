//! How a search of one of the engine's databases begins, wherever its store is.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::search::direct::{self, DirectAnswer, DirectInput};
use larix_engine::search::task::{SearchInput, SearchTask, Step};
use larix_engine::time::Monotonic;
use larix_engine::{Database, Limits, View};
use larix_proto::{ControlBuf, LdapResult};
use larix_store::{Snapshot, Store};

use super::Common;
use larix_backend::{Context, Effort, End, Search, slice};

/// What became of a search in its first slice.
pub(super) enum FirstSlice {
    Done {
        result: LdapResult,
        controls: Vec<ControlBuf>,
        effort: Effort,
    },
    /// It goes on with the next slice.
    Running(Box<SearchTask>),
}

pub(super) fn effort(task: &SearchTask) -> Effort {
    Effort { entries: task.entries().into(), candidates: task.looked_at() }
}

/// Answers a search of the usual kinds: its result is success then. `None`, with nothing answered: it is another one.
pub(super) fn at_once<N: Snapshot>(
    view: &View<'_, N>,
    context: &Context<'_>,
    search: &Search<'_>,
    limits: Option<&Limits>,
    out: &mut Vec<u8>,
) -> Option<Effort> {
    let input = DirectInput {
        message: search.message,
        request: &search.request,
        base: search.base,
        controls: &search.controls,
        subject: context.subject,
        limits,
        bytes: slice(context.clock).bytes,
        clock: context.clock,
    };
    let DirectAnswer { entries, looked } = direct::answer(view, &input, out)?;
    Some(Effort { entries: entries.into(), candidates: looked })
}

/// The first slice of a search that is not [answered at once](at_once). Most have no more to do after it.
pub(super) fn first_slice<S: Store, N: Snapshot>(
    (common, database): (&Common, &Arc<Database<S>>),
    view: &View<'_, N>,
    context: &Context<'_>,
    search: Search<'_>,
    limits: Option<Limits>,
    out: &mut Vec<u8>,
) -> Result<FirstSlice, Box<End>> {
    let budget = slice(context.clock);
    let whose = (context.subject, context.began);
    let mut task = task((common, database), view, whose, search, limits)?;
    Ok(match task.step(view, out, budget) {
        Step::Done(result, controls) => FirstSlice::Done { result, controls, effort: effort(&task) },
        Step::More | Step::Blocked => FirstSlice::Running(Box::new(task)),
    })
}

/// A search that has not begun.
pub(super) fn task<S: Store, N: Snapshot>(
    (common, database): (&Common, &Arc<Database<S>>),
    view: &View<'_, N>,
    (subject, began): (&Arc<Subject>, Monotonic),
    search: Search<'_>,
    limits: Option<Limits>,
) -> Result<SearchTask, Box<End>> {
    let Search { request, base, controls, message } = search;
    let referrals = &common.default_referrals;
    let input = SearchInput {
        message,
        request,
        base: base.clone(),
        controls,
        limits,
        subject: Arc::clone(subject),
        default_referrals: (!referrals.is_empty()).then(|| referrals.clone()),
        cookie_secret: *database.cookie_secret(),
        now: began,
    };
    SearchTask::new(view, input).map_err(Box::new)
}
