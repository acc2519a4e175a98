//! Searches whose answer is sorted: all matches are found first, by sort key and id, then answered in that order. Another part of
//! the same list, the next page or view, is answered from the list that was kept ([`kept_lists`](crate::database::kept_lists)).

use std::ops::Range;
use std::sync::Arc;

use larix_proto::{ControlBuf, LdapResult, ResultCode, oid};
use larix_store::Snapshot;

use super::entry::GuardedEntry;
use super::gate::Gate;
use super::pace::Pace;
use super::pages::Pages;
use super::run::{CandidateOutcome, IndexProof, MatchOrReference, Progress, State};
use super::scope::Area;
use super::task::{Budget, End, SearchTask, Step};
use super::window;
use crate::database::View;
use crate::database::kept_lists::{KeptList, KeptLists, ListKey, MadeWith, Matches};
use crate::entry::EntryId;

/// Most matches that are sorted; more are adminLimitExceeded.
pub(crate) const SORT_LIMIT: usize = 1_000_000;
/// Bytes that their keys may take together, each counted with what it takes besides; more are adminLimitExceeded.
pub(crate) const SORT_BYTES: usize = 256 << 20;
/// What a match takes besides the bytes of its key: a vector and an id.
const MATCH_BYTES: usize = size_of::<(Vec<u8>, EntryId)>();

/// Runs one slice.
pub(super) fn run<N: Snapshot>(
    task: &mut SearchTask,
    view: &View<'_, N>,
    gate: &Gate<'_>,
    out: &mut Vec<u8>,
    budget: Budget<'_>,
) -> Result<Step, End> {
    let mut pace = Pace::new(budget, task.deadline, !matches!(task.state, State::Fresh))?;
    if matches!(task.state, State::Fresh)
        && let Some(kept) = kept_list(task, view, budget)
    {
        let area = task.searched_area(view, gate)?;
        begin(task, view, (kept.matches, area), Some(kept.number))?;
    }
    if !matches!(task.state, State::Sorted { .. })
        && let Some(step) = sort(task, view, gate, out, &mut pace, budget)?
    {
        return Ok(step);
    }
    let State::Sorted { matches, mut places, area } = std::mem::replace(&mut task.state, State::Fresh) else {
        return Ok(Step::More);
    };
    let end = answer(task, view, gate, (&matches, &area), &mut places, out, &mut pace);
    task.state = State::Sorted { matches, places, area };
    end
}

/// Finds all matches and sorts them. A step: more of them are to be found.
fn sort<N: Snapshot>(
    task: &mut SearchTask,
    view: &View<'_, N>,
    gate: &Gate<'_>,
    out: &mut Vec<u8>,
    pace: &mut Pace<'_>,
    budget: Budget<'_>,
) -> Result<Option<Step>, End> {
    let mut progress = task.take_progress(view, gate)?;
    let is_first_page = task.pages.as_ref().is_none_or(|pages| pages.last().is_none());
    let step = task.go_on(view, gate, &mut progress, pace, &mut |task, found, progress| {
        match found {
            MatchOrReference::Reference(seen) => {
                progress.has_references = true;
                if is_first_page {
                    task.reference(seen, out)?;
                }
            }
            MatchOrReference::Match(seen) => {
                let Some(order) = &task.order else { return Ok(None) };
                // What is not shown is not counted either.
                if !seen.is_shown()? {
                    return Ok(None);
                }
                let key = order.key(&view.schema, seen)?;
                progress.sorted_bytes += key.capacity() + MATCH_BYTES;
                if progress.sorted.len() >= SORT_LIMIT || progress.sorted_bytes > SORT_BYTES {
                    return Err(too_many().into());
                }
                progress.sorted.push((key, seen.reader.view.id()));
            }
        }
        Ok(None)
    });
    match step {
        Ok(None) => {}
        Ok(Some(step)) => {
            task.state = State::Running(progress);
            return Ok(Some(step));
        }
        Err(end) => {
            if end.is_for_steps() {
                task.state = State::Running(progress);
            }
            return Err(end);
        }
    }
    let Progress { mut sorted, sorted_bytes, has_references, area, .. } = progress;
    sorted.sort_unstable();
    sorted.shrink_to_fit();
    let matches = Arc::new(sorted);
    // References are to be found again each time.
    let number = if has_references { None } else { keep(task, view, (&matches, sorted_bytes), budget) };
    begin(task, view, (matches, area), number).map(|()| None)
}

/// The list that the client goes on with, if it is kept.
fn kept_list<N: Snapshot>(task: &SearchTask, view: &View<'_, N>, budget: Budget<'_>) -> Option<KeptList> {
    let (lists, key, made_with) = list_of(task, view)?;
    let number = match (&task.controls.vlv, &task.pages) {
        (Some(vlv), _) => Some(vlv.context?),
        (None, Some(pages)) if pages.last().is_some() => None,
        (None, _) => return None,
    };
    lists.find(key, made_with, number, budget.clock.monotonic())
}

/// Keeps the list of this search for another part of it; its number then.
fn keep<N: Snapshot>(
    task: &SearchTask,
    view: &View<'_, N>,
    list: (&Arc<Matches>, usize),
    budget: Budget<'_>,
) -> Option<u64> {
    let (lists, key, made_with) = list_of(task, view)?;
    lists.keep(key, made_with, list, budget.clock.monotonic())
}

/// Where a list of this search is kept, and what it is good for.
fn list_of<'t, N: Snapshot>(
    task: &'t SearchTask,
    view: &'t View<'_, N>,
) -> Option<(&'t KeptLists, &'t Arc<ListKey>, MadeWith)> {
    let (key, lists, facts) = (task.list_key.as_ref()?, view.kept_lists?, view.facts?);
    Some((lists, key, MadeWith { configured: facts.made_with, base: task.base_id? }))
}

/// Begins to answer the part that is wanted.
fn begin<N: Snapshot>(
    task: &mut SearchTask,
    view: &View<'_, N>,
    (matches, area): (Arc<Matches>, Area),
    number: Option<u64>,
) -> Result<(), End> {
    let mut places = 0..matches.len();
    if let (Some(control), Some(order)) = (&task.controls.vlv, &task.order) {
        match window::window(&view.schema, order, control, &matches) {
            Ok(shown) => {
                let response = window::response(ResultCode::SUCCESS, shown.target, matches.len(), number);
                task.response_controls.push(response);
                places = shown.places;
            }
            Err(code) => {
                task.response_controls.push(window::response(code, 0, matches.len(), number));
                return Err(ResultCode::VLV_ERROR.into());
            }
        }
    }
    if let Some((key, id)) = task.pages.as_ref().and_then(Pages::last) {
        places.start = matches.partition_point(|(k, i)| (k.as_slice(), *i) <= (key, id));
    }
    task.state = State::Sorted { matches, places, area };
    Ok(())
}

fn answer<N: Snapshot>(
    task: &mut SearchTask,
    view: &View<'_, N>,
    gate: &Gate<'_>,
    (matches, area): (&Matches, &Area),
    places: &mut Range<usize>,
    out: &mut Vec<u8>,
    pace: &mut Pace<'_>,
) -> Result<Step, End> {
    while let Some((_, id)) = matches.get(places.start).filter(|_| places.start < places.end) {
        if out.len() >= pace.bytes() {
            return Ok(Step::Blocked);
        }
        if let Some(step) = pace.next()? {
            return Ok(step);
        }
        if task.pages.is_some() {
            // Nothing is before the first: a page of no entries ends there.
            let previous = places.start.checked_sub(1).and_then(|at| matches.get(at));
            let (key, last) = previous.map_or((Vec::new(), EntryId::ROOT), |(key, id)| (key.clone(), *id));
            if let Some(control) = task.page_is_full(last, key, || Some(matches.len() as u64)) {
                task.response_controls.push(control);
                return Ok(task.done(LdapResult::success()));
            }
        }
        // It may be gone or elsewhere, or match no longer, since it was sorted; if its key has changed it keeps its place here.
        if let Some(record) = view.record(*id)? {
            let seen = GuardedEntry::new(view, view.reader(*id, &record)?, gate.clone());
            if area.contains(view, &seen.reader.view)?
                && matches!(task.look(&seen, area.base, IndexProof::Nothing)?, CandidateOutcome::Match)
            {
                task.send(&seen, out)?;
            }
            pace.spend(seen.steps());
        }
        places.start += 1;
    }
    if task.pages.is_some() {
        task.response_controls.push(Pages::end());
    }
    Ok(task.done(LdapResult::success()))
}

fn too_many() -> LdapResult {
    let text = "too many matches to be sorted: narrow the filter or the base";
    LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text)
}

/// The response control (RFC 2891 section 1.2).
pub(super) fn response_control(code: ResultCode, attribute: Option<&str>) -> ControlBuf {
    use larix_proto::ber::{Tag, write};
    let mut value = Vec::new();
    write::constructed(&mut value, Tag::SEQUENCE, |out| {
        write::integer(out, Tag::ENUMERATED, i64::from(code.0));
        if let Some(attribute) = attribute {
            write::octets(out, Tag::context(0), attribute.as_bytes());
        }
    });
    ControlBuf { oid: oid::SORT_RESPONSE.into(), critical: false, value: Some(value) }
}
