//! Searches whose answer is sorted: all matches are found first, by sort key and id, then answered in that order.

use larix_proto::{ControlBuf, LdapResult, ResultCode, oid};
use larix_store::Snapshot;

use super::entry::GuardedEntry;
use super::gate::Gate;
use super::pace::Pace;
use super::pages::Pages;
use super::run::{CandidateOutcome, IndexProof, MatchOrReference, State};
use super::task::{Budget, End, SearchTask, Step};
use super::window;
use crate::database::View;
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
    if !matches!(task.state, State::Sorted { .. }) {
        let mut progress = task.take_progress(view, gate)?;
        let is_first_page = task.pages.as_ref().is_none_or(|pages| pages.last().is_none());
        let step = task.go_on(view, gate, &mut progress, &mut pace, &mut |task, found, progress| {
            match found {
                MatchOrReference::Reference(seen) if is_first_page => task.reference(seen, out)?,
                MatchOrReference::Reference(_) => {}
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
                return Ok(step);
            }
            Err(end) => {
                if end.is_for_steps() {
                    task.state = State::Running(progress);
                }
                return Err(end);
            }
        }
        let mut matches = progress.sorted;
        matches.sort_unstable();
        look_through(task, view, &mut matches)?;
        let done = match task.pages.as_ref().and_then(Pages::last) {
            Some((key, id)) => matches.partition_point(|(k, i)| (k.as_slice(), *i) <= (key, id)),
            None => 0,
        };
        task.state = State::Sorted { matches, done };
    }
    let State::Sorted { matches, mut done } = std::mem::replace(&mut task.state, State::Fresh) else {
        return Ok(Step::More);
    };
    let end = answer(task, view, gate, &matches, &mut done, out, &mut pace);
    task.state = State::Sorted { matches, done };
    end
}

fn answer<N: Snapshot>(
    task: &mut SearchTask,
    view: &View<'_, N>,
    gate: &Gate<'_>,
    matches: &[(Vec<u8>, EntryId)],
    done: &mut usize,
    out: &mut Vec<u8>,
    pace: &mut Pace<'_>,
) -> Result<Step, End> {
    let base = task.base_id.unwrap_or(EntryId::ROOT);
    while let Some((_, id)) = matches.get(*done) {
        if out.len() >= pace.bytes() {
            return Ok(Step::Blocked);
        }
        if let Some(step) = pace.next()? {
            return Ok(step);
        }
        if task.pages.is_some() {
            // Nothing is before the first: a page of no entries ends there.
            let previous = done.checked_sub(1).and_then(|at| matches.get(at));
            let (key, last) = previous.map_or((Vec::new(), EntryId::ROOT), |(key, id)| (key.clone(), *id));
            if let Some(control) = task.page_is_full(last, key, || Some(matches.len() as u64)) {
                task.response_controls.push(control);
                return Ok(task.done(LdapResult::success()));
            }
        }
        // It may be gone, or match no longer, since it was sorted; if its key has changed it keeps its place here.
        if let Some(record) = view.record(*id)? {
            let seen = GuardedEntry::new(view, view.reader(*id, &record)?, gate.clone());
            if matches!(task.look(&seen, base, IndexProof::Nothing)?, CandidateOutcome::Match) {
                task.send(&seen, out)?;
            }
            pace.spend(seen.steps());
        }
        *done += 1;
    }
    if task.pages.is_some() {
        task.response_controls.push(Pages::end());
    }
    Ok(task.done(LdapResult::success()))
}

/// Leaves of the matches what a virtual list view shows.
fn look_through<N: Snapshot>(
    task: &mut SearchTask,
    view: &View<'_, N>,
    matches: &mut Vec<(Vec<u8>, EntryId)>,
) -> Result<(), End> {
    let (Some(control), Some(order)) = (&task.controls.vlv, &task.order) else { return Ok(()) };
    let count = matches.len();
    match window::window(&view.schema, order, control, matches) {
        Ok(shown) => {
            task.response_controls.push(window::response(ResultCode::SUCCESS, shown.target, count));
            *matches = matches.drain(shown.places).collect();
            Ok(())
        }
        Err(code) => {
            task.response_controls.push(window::response(code, 0, count));
            Err(ResultCode::VLV_ERROR.into())
        }
    }
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
