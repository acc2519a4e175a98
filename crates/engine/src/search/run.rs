//! The slices of a search go through its candidates.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use larix_proto::{ControlBuf, LdapResult, ResultCode, Scope, encode};
use larix_schema::NormalDn;
use larix_store::{Direction, KeyRange, Snapshot};
use smallvec::SmallVec;

use super::answer::Answer;
use super::computed::{HolderIndex, Sight};
use super::dereference;
use super::entry::GuardedEntry;
use super::gate::Gate;
use super::pace::Pace;
use super::pages::Pages;
use super::referral;
use super::scope::{self, Area};
use super::task::{Budget, End, SearchTask, Step};
use super::view_entries::ViewEntries;
use crate::access::Privilege;
use crate::budget::Meter;
use crate::database::View;
use crate::database::kept_lists::Matches;
use crate::entry::record::RecordFlags;
use crate::entry::{EntryId, EntryView};
use crate::fault::Fault;
use crate::filter::Filter;
use crate::overlay::{AnsweredEntry, Interests};
use crate::plan::{Candidates, Exactness, IdSet, Plan};
use crate::tables::ENTRIES;
use crate::tree::{self, Superior};

/// Below this many candidates the scope is not looked at first.
const FEW: u64 = 16;
/// Entries of a subtree listed in the hope that they are fewer than the candidates.
const SUBTREE_LIMIT: u64 = 1024;
/// Children that a worker lists, in some 0.4 ms: more are left to a thread for which no client waits.
const CHILDREN_HERE: u64 = 8 << 10;
/// Children that are listed at all, eight bytes each: where there are more, all entries are gone through.
const CHILDREN_LIMIT: u64 = 4 << 20;
/// Ids read at once.
const CHUNK: usize = 64;

/// A longer name's memory is given back to the allocator.
const NAME_BYTES: usize = 4096;

thread_local! {
    /// Memory for the name of the entry that is answered, for all searches of this thread.
    static NAME: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Appends an entry, with the thread's memory for its name; false when the subject may not read it.
pub(super) fn append<N: Snapshot>(
    answer: &Answer,
    seen: &GuardedEntry<'_, N>,
    out: &mut Vec<u8>,
    controls: &[ControlBuf],
) -> Result<bool, Fault> {
    append_with(answer, (seen, None), out, controls)
}

/// The same with what is known of its superior.
pub(super) fn append_below<N: Snapshot>(
    answer: &Answer,
    seen: &GuardedEntry<'_, N>,
    superior: Option<&Superior>,
    out: &mut Vec<u8>,
) -> Result<bool, Fault> {
    append_with(answer, (seen, superior), out, &[])
}

#[inline]
fn append_with<N: Snapshot>(
    answer: &Answer,
    (seen, superior): (&GuardedEntry<'_, N>, Option<&Superior>),
    out: &mut Vec<u8>,
    controls: &[ControlBuf],
) -> Result<bool, Fault> {
    let mut dn = NAME.take();
    dn.clear();
    let named = seen.view.names.append_octets(&seen.reader.view, superior, &mut dn);
    let sent = named.and_then(|()| answer.append(seen, &dn, out, controls));
    if dn.capacity() <= NAME_BYTES {
        NAME.set(dn);
    }
    sent
}

/// What is known of a candidate before its record is looked at.
#[derive(Copy, Clone, Debug)]
pub(super) enum IndexProof {
    Nothing,
    /// This term of the filter, an AND, holds.
    Term(usize),
    /// The filter matches.
    All,
}

impl IndexProof {
    /// Whether the filter matches the entry, as far as the entry is known.
    #[inline]
    pub(super) fn matches<N: Snapshot>(
        self,
        filter: &Filter,
        seen: &GuardedEntry<'_, N>,
    ) -> Result<bool, Fault> {
        Ok(match self {
            Self::All => true,
            Self::Term(term) => filter.matches_without(term, seen, seen.source())?.is_true(),
            Self::Nothing => filter.matches(seen, seen.source())?.is_true(),
        })
    }
}

/// Where a search is.
#[derive(Debug)]
pub(super) enum State {
    Fresh,
    Running(Progress),
    /// All matches by sort key, and which of them are still to be answered.
    Sorted {
        matches: Arc<Matches>,
        places: Range<usize>,
        /// Matches may have gone elsewhere since they were found.
        area: Area,
    },
}

#[derive(Debug)]
pub(super) struct Progress {
    pub(super) area: Area,
    pub(super) candidates: Candidates,
    /// The commit that the candidates are of.
    pub(super) commit: u64,
    /// The last candidate looked at.
    pub(super) last: EntryId,
    /// Matches so far, with their sort keys, when the search is sorted.
    pub(super) sorted: Matches,
    /// Bytes of these.
    pub(super) sorted_bytes: usize,
    /// References were found among them.
    pub(super) has_references: bool,
    /// What the indexes have proved of the candidates, for the view of this slice.
    proved: IndexProof,
}

/// Called with each match or reference. A step ends the slice.
pub(super) type OnFound<'f, N> =
    dyn FnMut(&mut SearchTask, &MatchOrReference<'_, '_, N>, &mut Progress) -> Result<Option<Step>, End> + 'f;

/// What a check found of a candidate.
pub(super) enum CandidateOutcome {
    PassedOver,
    /// A referral object, to be answered as a reference.
    Reference,
    Match,
}

impl SearchTask {
    pub(super) fn run<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        gate: &Gate<'_>,
        out: &mut Vec<u8>,
        budget: Budget<'_>,
    ) -> Result<Step, End> {
        let mut pace = Pace::new(budget, self.deadline, !matches!(self.state, State::Fresh))?;
        let mut progress = self.take_progress(view, gate)?;
        let step = self.go_on(view, gate, &mut progress, &mut pace, &mut |task, seen, progress| {
            task.answer_match(seen, progress, out, budget)
        });
        match step {
            Ok(Some(step)) => {
                self.state = State::Running(progress);
                Ok(step)
            }
            Ok(None) => {
                if self.pages.is_some() {
                    self.response_controls.push(Pages::end());
                }
                Err(ResultCode::SUCCESS.into())
            }
            Err(end) => {
                // The last candidate may be checked again, with a larger budget.
                if end.is_for_steps() {
                    self.state = State::Running(progress);
                }
                Err(end)
            }
        }
    }

    /// Where the search is, or its beginning.
    pub(super) fn take_progress<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        gate: &Gate<'_>,
    ) -> Result<Progress, End> {
        if let State::Running(progress) = std::mem::replace(&mut self.state, State::Fresh) {
            return Ok(progress);
        }
        let area = self.searched_area(view, gate)?;
        let candidates = self.candidates(view, gate, &area)?;
        self.check_unchecked(view, &candidates)?;
        let mut last = EntryId::ROOT;
        if self.order.is_none()
            && let Some((_, id)) = self.pages.as_ref().and_then(Pages::last)
        {
            last = id;
        }
        Ok(Progress {
            area,
            candidates,
            commit: view.snapshot.commit_counter(),
            last,
            sorted: Vec::new(),
            sorted_bytes: 0,
            has_references: false,
            proved: IndexProof::Nothing,
        })
    }

    /// The scope, after the base was found.
    pub(super) fn searched_area<N: Snapshot>(
        &self,
        view: &View<'_, N>,
        gate: &Gate<'_>,
    ) -> Result<Area, Fault> {
        let base = self.base_id.unwrap_or(EntryId::ROOT);
        Area::new(view, base, self.scope, self.deref, Some(&Meter::new(gate.steps)))
    }

    /// The plan for the filter, and for the references in scope.
    fn plan<N: Snapshot>(&self, view: &View<'_, N>, gate: &Gate<'_>) -> Result<Plan, Fault> {
        let plan = plan(view, gate, &self.filter)?;
        let references = !self.controls.manage_dsa_it
            && self.controls.subentries != Some(true)
            && view.facts.is_none_or(|facts| facts.referrals);
        if !references || plan.estimate().is_none() {
            return Ok(plan);
        }
        Ok(match scope::of_class(view, scope::REFERRAL_CLASS)? {
            Some(referrals) => plan.or(referrals),
            None => plan,
        })
    }

    fn candidates<N: Snapshot>(
        &self,
        view: &View<'_, N>,
        gate: &Gate<'_>,
        area: &Area,
    ) -> Result<Candidates, Fault> {
        if self.scope == Scope::Base {
            return Ok(Candidates::new(IdSet::List(vec![area.base.0]), Exactness::All));
        }
        let plan = self.plan(view, gate)?;
        if area.added.is_empty()
            && let Some(ids) = small_scope(view, area, plan.estimate(), !self.is_dear())?
        {
            return Ok(Candidates::new(IdSet::List(ids), Exactness::All));
        }
        count_uses(view, &plan, &self.filter, &self.base);
        plan.into_candidates(view.snapshot)
    }

    /// Refuses a search with too many candidates (`size.unchecked`).
    fn check_unchecked<N: Snapshot>(&self, view: &View<'_, N>, candidates: &Candidates) -> Result<(), End> {
        let Some(most) = self.limits.unchecked else { return Ok(()) };
        let count = match candidates.len() {
            Some(count) => count,
            None => {
                let rows =
                    view.snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward).map_err(Fault::from)?;
                rows.take(most as usize + 1).count() as u64
            }
        };
        if count > u64::from(most) { Err(ResultCode::ADMIN_LIMIT_EXCEEDED.into()) } else { Ok(()) }
    }

    /// Checks candidates and passes matches to `answer`. `None`: there are no more.
    pub(super) fn go_on<'v, N: Snapshot>(
        &mut self,
        view: &'v View<'v, N>,
        gate: &Gate<'v>,
        progress: &mut Progress,
        pace: &mut Pace<'_>,
        answer: &mut OnFound<'_, N>,
    ) -> Result<Option<Step>, End> {
        // Indexes prove something only about the snapshot that they were read from.
        progress.proved = match progress.commit == view.snapshot.commit_counter() {
            true => index_proof(view, gate, &self.filter, &progress.candidates),
            false => IndexProof::Nothing,
        };
        if matches!(progress.candidates.ids, IdSet::Everything) {
            let start = progress.last.0.saturating_add(1).to_be_bytes();
            let rows = view.snapshot.scan(ENTRIES, KeyRange::at_least(&start), Direction::Forward);
            for row in rows.map_err(Fault::from)? {
                let (key, stored) = row.map_err(Fault::from)?;
                let id = EntryId::from_prefix(&key).ok_or(Fault::Damaged { what: "an entry id" })?;
                if let Some(step) = pace.next()? {
                    return Ok(Some(step));
                }
                if let Some(step) = self.check_candidate(view, gate, progress, pace, (id, &stored), answer)? {
                    return Ok(Some(step));
                }
                progress.last = id;
            }
            return Ok(None);
        }
        let mut ids: SmallVec<[EntryId; CHUNK]> = SmallVec::new();
        loop {
            ids.clear();
            progress.candidates.ids.read_after(progress.last, CHUNK, &mut ids);
            if ids.is_empty() {
                return Ok(None);
            }
            let mut records = view.stored_many(&ids)?;
            for id in ids.iter().copied() {
                if let Some(step) = pace.next()? {
                    return Ok(Some(step));
                }
                if let Some(stored) = records.next().transpose()?.flatten()
                    && let Some(step) =
                        self.check_candidate(view, gate, progress, pace, (id, &stored), answer)?
                {
                    return Ok(Some(step));
                }
                progress.last = id;
            }
        }
    }

    /// Passes a candidate to `answer` if it is in scope and matches, or is a reference.
    fn check_candidate<'v, N: Snapshot>(
        &mut self,
        view: &'v View<'v, N>,
        gate: &Gate<'v>,
        progress: &mut Progress,
        pace: &mut Pace<'_>,
        (id, stored): (EntryId, &[u8]),
        answer: &mut OnFound<'_, N>,
    ) -> Result<Option<Step>, End> {
        self.looked += 1;
        let entry = EntryView::parse(id, stored).map_err(Fault::from)?;
        if !progress.area.contains(view, &entry)? {
            return Ok(None);
        }
        let record = view.unpacked_behind(&entry, stored)?;
        let seen = GuardedEntry::new(view, view.reader_of(entry, stored, &record), gate.clone());
        let step = match self.look(&seen, progress.area.base, progress.proved)? {
            CandidateOutcome::PassedOver => Ok(None),
            CandidateOutcome::Reference => answer(self, &MatchOrReference::Reference(&seen), progress),
            CandidateOutcome::Match => answer(self, &MatchOrReference::Match(&seen), progress),
        };
        pace.spend(seen.steps());
        step
    }

    /// Whether a candidate in scope is passed over, a reference or a match.
    pub(super) fn look<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        base: EntryId,
        proved: IndexProof,
    ) -> Result<CandidateOutcome, Fault> {
        let flags = seen.reader.view.flags();
        let is_base = seen.reader.view.id() == base;
        let passed = match self.controls.subentries {
            Some(true) => !flags.has(RecordFlags::SUBENTRY),
            Some(false) => flags.has(RecordFlags::SUBENTRY),
            // A consumer has no other way to them: the control leaves out all but subentries.
            None => {
                flags.has(RecordFlags::SUBENTRY) && self.scope != Scope::Base && !self.answer.for_consumer
            }
        };
        let followed = flags.has(RecordFlags::ALIAS)
            && scope::searches(self.deref)
            && (scope::finds(self.deref) || !is_base);
        if passed || followed || (flags.has(RecordFlags::GLUE) && !self.controls.manage_dsa_it) {
            return Ok(CandidateOutcome::PassedOver);
        }
        if flags.has(RecordFlags::REFERRAL) && !self.controls.manage_dsa_it && self.scope != Scope::Base {
            let shown = !self.controls.domain_scope;
            return Ok(if shown { CandidateOutcome::Reference } else { CandidateOutcome::PassedOver });
        }
        let matches = proved.matches(&self.filter, seen)?;
        Ok(if matches { CandidateOutcome::Match } else { CandidateOutcome::PassedOver })
    }

    /// Answers a match of a search that is not sorted.
    fn answer_match<N: Snapshot>(
        &mut self,
        found: &MatchOrReference<'_, '_, N>,
        progress: &Progress,
        out: &mut Vec<u8>,
        budget: Budget<'_>,
    ) -> Result<Option<Step>, End> {
        if out.len() >= budget.bytes {
            return Ok(Some(Step::Blocked));
        }
        let seen = match found {
            MatchOrReference::Match(seen) => *seen,
            MatchOrReference::Reference(seen) => {
                self.reference(seen, out)?;
                return Ok(None);
            }
        };
        // The next page begins with this match: it looks at no candidate before it again, and sends no reference again.
        let candidates = || progress.candidates.len().filter(|_| seen.finds_freely(&self.filter));
        if let Some(control) = self.page_is_full(progress.last, Vec::new(), candidates) {
            self.response_controls.push(control);
            return Err(ResultCode::SUCCESS.into());
        }
        self.send(seen, out)?;
        Ok(None)
    }

    /// The control that ends a full page. The next page begins behind `last`. `estimate`: how many entries all pages may have, as far as
    /// the client may know it.
    pub(super) fn page_is_full(
        &self,
        last: EntryId,
        sort_key: Vec<u8>,
        estimate: impl FnOnce() -> Option<u64>,
    ) -> Option<ControlBuf> {
        let pages = self.pages.as_ref().filter(|pages| self.entries >= pages.size())?;
        let estimate = if self.limits.no_estimate { 0 } else { estimate().unwrap_or(0) };
        Some(pages.more(self.entries, last, sort_key, u32::try_from(estimate).unwrap_or(u32::MAX)))
    }

    /// Sends an entry. False: the subject may not read it.
    ///
    /// # Errors
    /// sizeLimitExceeded in place of the first entry above the limit.
    pub(super) fn send<N: Snapshot>(
        &mut self,
        seen: &GuardedEntry<'_, N>,
        out: &mut Vec<u8>,
    ) -> Result<bool, End> {
        let controls = if self.refresh.is_some() {
            let Some(controls) = self.refreshed(seen, out)? else { return Ok(false) };
            controls
        } else if self.controls.account_usability || self.deref_specs.is_some() {
            self.entry_controls(seen)?
        } else {
            Vec::new()
        };
        if let Some(found_entries) = &mut self.found_entries
            && !found_entries.note(seen)?
        {
            return Ok(false);
        }
        let before = out.len();
        if !append(&self.answer, seen, out, &controls)? {
            return Ok(false);
        }
        if self.limits.size.is_some_and(|most| self.entries >= most) {
            out.truncate(before);
            return Err(ResultCode::SIZE_LIMIT_EXCEEDED.into());
        }
        self.entries += 1;
        Ok(true)
    }

    /// The controls of an answered entry: those of overlays, and the dereferenced entries.
    fn entry_controls<N: Snapshot>(&self, seen: &GuardedEntry<'_, N>) -> Result<Vec<ControlBuf>, End> {
        let mut controls = self.overlay_controls(seen)?;
        if let Some(specs) = &self.deref_specs
            && seen.is_shown()?
        {
            controls.extend(specs.control(seen).map_err(|failure| match failure {
                dereference::Failure::Fault(fault) => End::Fault(fault),
                dereference::Failure::Exceeded(exceeded) => End::Result(exceeded.into()),
                dereference::Failure::TooMany => {
                    let most = dereference::DEREFERENCED_MAX;
                    let text = format!("dereference control: an entry names more than {most} others");
                    End::Result(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text))
                }
            })?);
        }
        Ok(controls)
    }

    fn overlay_controls<N: Snapshot>(&self, seen: &GuardedEntry<'_, N>) -> Result<Vec<ControlBuf>, End> {
        let overlays = seen.view.settings.overlays.at(Interests::ANSWER);
        let overlays = overlays.filter_map(|overlay| overlay.answering());
        let mut overlays = overlays.filter(|overlay| overlay.wants(&self.controls)).peekable();
        if overlays.peek().is_none() {
            return Ok(Vec::new());
        }
        let entry = seen.reader.to_owned(seen.view.dn(&seen.reader.view)?, false)?;
        let entries = ViewEntries::of(seen.view);
        let answered = AnsweredEntry {
            dn: seen.name()?,
            entry: &entry,
            subject: seen.subject(),
            schema: &seen.view.schema,
            entries: &entries,
            now: self.answer.now,
        };
        let mut controls = Vec::new();
        for overlay in overlays {
            let added = overlay.controls(&answered);
            controls.extend(added.map_err(|failure| End::Result(failure.into_result()))?);
        }
        Ok(controls)
    }

    /// Answers a continuation reference (RFC 3296 section 5.2).
    pub(super) fn reference<N: Snapshot>(
        &mut self,
        seen: &GuardedEntry<'_, N>,
        out: &mut Vec<u8>,
    ) -> Result<(), End> {
        if self.refresh.is_some() {
            return self.refer_refreshed(seen, out);
        }
        if self.found_entries.as_ref().is_some_and(|found_entries| found_entries.silent) {
            return Ok(());
        }
        self.refer_to(seen, &[], out)
    }

    pub(super) fn refer_to<N: Snapshot>(
        &mut self,
        seen: &GuardedEntry<'_, N>,
        controls: &[ControlBuf],
        out: &mut Vec<u8>,
    ) -> Result<(), End> {
        let description = seen.view.schema.describe("ref").ok();
        let readable = match &description {
            Some(description) => {
                seen.allows_entry(Privilege::Read)? && seen.allows(description, None, Privilege::Read)?
            }
            None => false,
        };
        if !readable {
            return Ok(());
        }
        let dn = seen.view.dn(&seen.reader.view)?;
        let scope = if self.scope == Scope::OneLevel { Scope::Base } else { Scope::Subtree };
        let urls = referral::urls(&seen.reader)?;
        let urls = referral::rewrite(&seen.view.schema, &urls, Some(&dn), None, Some(scope));
        if !urls.is_empty() {
            encode::search_reference(out, self.answer.message, &urls, controls);
            self.references += 1;
        }
        Ok(())
    }

    pub(super) fn done(&mut self, result: LdapResult) -> Step {
        Step::Done(result, std::mem::take(&mut self.response_controls))
    }
}

/// A candidate that is answered.
pub(super) enum MatchOrReference<'s, 'a, N> {
    Match(&'s GuardedEntry<'a, N>),
    Reference(&'s GuardedEntry<'a, N>),
}

/// The plan for a filter.
pub(super) fn plan<N: Snapshot>(view: &View<'_, N>, gate: &Gate<'_>, filter: &Filter) -> Result<Plan, Fault> {
    if gate.computed.is_empty() {
        return Plan::of(view.snapshot, &view.catalog, filter);
    }
    // For the plan, overlays may take as many steps as for one entry.
    let meter = Meter::new(gate.steps);
    let Gate { policy, computed, requester, .. } = *gate;
    let sight = Sight { policy, computed, requester, meter: Some(&meter) };
    Plan::with_computed(view.snapshot, &view.catalog, filter, &HolderIndex { view, sight })
}

/// What the indexes have proved about candidates from this view, as far as the subject may search for it.
pub(super) fn index_proof<N: Snapshot>(
    view: &View<'_, N>,
    gate: &Gate<'_>,
    filter: &Filter,
    candidates: &Candidates,
) -> IndexProof {
    if candidates.exactness == Exactness::Exact && gate.searches_freely(&view.schema, filter) {
        return IndexProof::All;
    }
    let free =
        |term: &usize| filter.term(*term).is_some_and(|filter| gate.searches_freely(&view.schema, filter));
    candidates.proved.filter(free).map_or(IndexProof::Nothing, IndexProof::Term)
}

/// Counts the index keys that the plan reads, or that no index serves it.
pub(super) fn count_uses<N: Snapshot>(view: &View<'_, N>, plan: &Plan, filter: &Filter, base: &NormalDn) {
    let Some((instance, uses)) = view.uses else { return };
    match plan.estimate() {
        Some(_) => uses.count(instance, |put| plan.visit_keys(put)),
        None => uses.count_not_indexed(instance, &view.schema, filter, base.as_str()),
    }
}

/// The ids in scope, ascending, if they are fewer than the candidates. `here`: on an event loop, where other clients wait.
///
/// # Errors
/// A store that cannot be read; [`Fault::StepsSpent`] if there are too many to be listed here.
pub(super) fn small_scope<N: Snapshot>(
    view: &View<'_, N>,
    area: &Area,
    estimate: Option<u64>,
    here: bool,
) -> Result<Option<Vec<u64>>, Fault> {
    let mut ids = Vec::new();
    match area.scope {
        Scope::OneLevel => {
            let limit = estimate.unwrap_or(u64::MAX);
            if limit <= FEW {
                return Ok(None);
            }
            let most = if here { CHILDREN_HERE } else { CHILDREN_LIMIT };
            tree::visit_children(view.snapshot, area.base, |id| {
                ids.push(id.0);
                (ids.len() as u64) < limit.min(most)
            })?;
            let listed = ids.len() as u64;
            if here && listed >= most && listed < limit {
                return Err(Fault::StepsSpent);
            }
            if listed >= limit.min(most) {
                return Ok(None);
            }
        }
        Scope::Subtree | Scope::Children if !area.whole => {
            let limit = estimate.unwrap_or(u64::MAX).min(SUBTREE_LIMIT);
            if limit <= FEW {
                return Ok(None);
            }
            let listed = tree::subtree(view.snapshot, area.base, limit as usize)?;
            if listed.len() as u64 >= limit {
                return Ok(None);
            }
            ids.extend(listed.into_iter().map(|id| id.0));
        }
        _ => return Ok(None),
    }
    ids.sort_unstable();
    Ok(Some(ids))
}
