//! How an [internal search](crate::overlay::internal_search) is carried out.

use larix_proto::{DerefAliases, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn};
use larix_store::{Direction, KeyRange, Snapshot};
use smallvec::SmallVec;

use super::chain;
use super::computed::{LOOK_STEPS, Sight};
use super::entry::GuardedEntry;
use super::gate::Gate;
use super::pace::Pace;
use super::run::{self, IndexProof};
use super::scope::{self, Area, Base};
use super::task::{Budget, End};
use crate::access::{Privilege, Subject};
use crate::budget::{Meter, RequestLimit};
use crate::database::View;
use crate::entry::record::RecordFlags;
use crate::entry::{Entry, EntryId, EntrySource, EntryView};
use crate::fault::Fault;
use crate::filter::{Filter, charge};
use crate::overlay::internal_search::{FoundEntry, InternalSearch, SearchEnd, SearchOutcome, Visit, Whose};
use crate::plan::{Candidates, Exactness, IdSet};
use crate::tables::ENTRIES;
use crate::time::{Clock, Monotonic, Timestamp};

/// Ids read at once.
const CHUNK: usize = 64;

impl<N: Snapshot> FoundEntry for GuardedEntry<'_, N> {
    fn id(&self) -> EntryId {
        self.reader.view.id()
    }

    fn dn(&self) -> Result<&NormalDn, Fault> {
        self.name()
    }

    fn shown_dn(&self) -> Result<String, Fault> {
        self.view.dn(&self.reader.view)
    }

    fn source(&self) -> &dyn EntrySource {
        self.source()
    }

    fn visit_readable(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        self.visit_readable_exact(description, visit)
    }

    fn owned(&self) -> Result<Entry, Fault> {
        self.reader.to_owned(self.view.dn(&self.reader.view)?, false)
    }
}

/// Hands the entries that match to `visit`, in the order of their ids.
///
/// # Errors
/// A store that cannot be read, or what `visit` answers.
pub fn search<N: Snapshot>(
    view: &View<'_, N>,
    query: &InternalSearch<'_>,
    visit: &mut Visit<'_>,
) -> Result<SearchOutcome, Fault> {
    search_in(view, Sight::of(view), query, visit)
}

/// The same on behalf of a request, from whose steps it takes what it costs.
///
/// # Errors
/// Those of [`search`]; [`Fault::StepsSpent`] where the steps do not last.
pub fn search_charged<N: Snapshot>(
    view: &View<'_, N>,
    meter: &Meter,
    query: &InternalSearch<'_>,
    visit: &mut Visit<'_>,
) -> Result<SearchOutcome, Fault> {
    search_in(view, Sight { meter: Some(meter), ..Sight::of(view) }, query, visit)
}

/// The same where not all that overlays compute is seen.
pub(crate) fn search_in<N: Snapshot>(
    view: &View<'_, N>,
    sight: Sight<'_>,
    query: &InternalSearch<'_>,
    visit: &mut Visit<'_>,
) -> Result<SearchOutcome, Fault> {
    let nobody = Subject::default();
    let mut gate = match query.whose {
        Whose::Server | Whose::Root => Gate::unrestricted(sight.policy, &nobody),
        Whose::Requester(subject) | Whose::Identity(subject) => Gate::new(sight.policy, subject),
    };
    gate.computed = if query.stored_alone { &[] } else { sight.computed };
    if matches!(query.whose, Whose::Server | Whose::Root) {
        gate.requester = None;
    }
    gate.identity = matches!(query.whose, Whose::Identity(_));
    gate.steps = view.settings.request_limits.most(RequestLimit::Steps);
    if let Some(meter) = sight.meter {
        gate.steps = gate.steps.min(meter.remaining());
    }
    let nothing = SearchOutcome { ended: SearchEnd::NoBase, entries: 0, looked: 0, indexed: true };
    let Some(base) = find_base(view, &gate, query, sight.meter)? else { return Ok(nothing) };
    let filter = Filter::new(&view.schema, &view.catalog, query.filter.clone());
    Walk { view, gate, query, meter: sight.meter, filter, searched: nothing }.run(base, visit)
}

/// The ids of the entries that match, where indexes alone tell.
pub(crate) fn indexed_ids<N: Snapshot>(
    view: &View<'_, N>,
    sight: Sight<'_>,
    filter: &BoundFilter,
) -> Result<Option<Vec<u64>>, Fault> {
    let nobody = Subject::default();
    let mut gate = Gate::unrestricted(sight.policy, &nobody);
    gate.computed = sight.computed;
    gate.requester = None;
    gate.steps = view.settings.request_limits.most(RequestLimit::Steps);
    let filter = Filter::new(&view.schema, &view.catalog, filter.clone());
    let candidates = run::plan(view, &gate, &filter)?.into_candidates(view.snapshot)?;
    Ok(match (candidates.exactness, candidates.ids) {
        (Exactness::Exact, IdSet::List(ids)) => Some(ids),
        (Exactness::Exact, IdSet::Set(ids)) => Some(ids.iter().collect()),
        _ => None,
    })
}

/// The base, if it exists and may be searched.
fn find_base<N: Snapshot>(
    view: &View<'_, N>,
    gate: &Gate<'_>,
    query: &InternalSearch<'_>,
    meter: Option<&Meter>,
) -> Result<Option<EntryId>, Fault> {
    if query.base.is_root() && query.scope != Scope::Base {
        return Ok(Some(EntryId::ROOT));
    }
    let found = scope::find_base(view, query.base, DerefAliases::Never, &mut Vec::new())?;
    let Base::Found(id) = found else { return Ok(None) };
    if id == EntryId::ROOT || (gate.search_all && query.manage_dsa_it) {
        return Ok(Some(id));
    }
    let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
    let seen = GuardedEntry::new(view, view.reader(id, &record)?, gate.clone());
    let refers = seen.reader.view.flags().has(RecordFlags::REFERRAL) && !query.manage_dsa_it;
    let may = !refers && seen.allows_entry(Privilege::Search)?;
    charge(meter, seen.steps())?;
    Ok(may.then_some(id))
}

/// A search under way.
struct Walk<'a, N> {
    view: &'a View<'a, N>,
    gate: Gate<'a>,
    query: &'a InternalSearch<'a>,
    /// What each candidate is charged to.
    meter: Option<&'a Meter>,
    filter: Filter,
    searched: SearchOutcome,
}

impl<'a, N: Snapshot> Walk<'a, N> {
    fn run(mut self, base: EntryId, visit: &mut Visit<'_>) -> Result<SearchOutcome, Fault> {
        let ended = match self.ended(base, visit) {
            // A request that pays for it ends itself.
            Err(Fault::StepsSpent) if self.meter.is_none() => SearchEnd::TooMuchWork,
            other => other?,
        };
        Ok(SearchOutcome { ended, ..self.searched })
    }

    fn ended(&mut self, base: EntryId, visit: &mut Visit<'_>) -> Result<SearchEnd, Fault> {
        let (view, limits) = (self.view, self.query.limits);
        let budget = Budget {
            candidates: limits.candidates,
            nanos: u64::MAX,
            bytes: usize::MAX,
            clock: &StoppedClock,
        };
        let Ok(mut pace) = Pace::new(budget, None, false) else { return Ok(SearchEnd::TooMuchWork) };
        if self.filter.chains() > 0 {
            let mut walk = None;
            let looked = &mut self.searched.looked;
            match chain::follow(&mut walk, &mut self.filter, looked, view, &self.gate, &mut pace) {
                Ok(None) => {}
                // A chain that is too long, or has no index to be followed by.
                Ok(Some(_)) | Err(End::Result(_)) => return Ok(SearchEnd::TooMuchWork),
                Err(End::Fault(fault)) => return Err(fault),
            }
        }
        let area = Area::new(view, base, self.query.scope, DerefAliases::Never, None)?;
        let candidates = self.candidates(&area)?;
        if limits.unchecked.is_some_and(|most| candidates.len().is_none_or(|count| count > u64::from(most))) {
            return Ok(SearchEnd::TooMuchWork);
        }
        let proved = run::index_proof(view, &self.gate, &self.filter, &candidates);
        let mut one = |walk: &mut Self, id: EntryId, stored: &[u8]| -> Result<Option<SearchEnd>, Fault> {
            if !matches!(pace.next(), Ok(None)) {
                return Ok(Some(SearchEnd::TooMuchWork));
            }
            walk.one(&area, (id, stored), proved, visit)
        };
        if matches!(candidates.ids, IdSet::Everything) {
            for row in view.snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward)? {
                let (key, stored) = row?;
                let id = EntryId::from_prefix(&key).ok_or(Fault::Damaged { what: "an entry id" })?;
                if let Some(ended) = one(self, id, &stored)? {
                    return Ok(ended);
                }
            }
            return Ok(SearchEnd::Complete);
        }
        let mut last = EntryId::ROOT;
        let mut ids: SmallVec<[EntryId; CHUNK]> = SmallVec::new();
        loop {
            ids.clear();
            candidates.ids.read_after(last, CHUNK, &mut ids);
            let Some(end) = ids.last().copied() else { return Ok(SearchEnd::Complete) };
            last = end;
            let mut records = view.stored_many(&ids)?;
            for id in ids.iter().copied() {
                if let Some(stored) = records.next().transpose()?.flatten()
                    && let Some(ended) = one(self, id, &stored)?
                {
                    return Ok(ended);
                }
            }
        }
    }

    fn candidates(&mut self, area: &Area) -> Result<Candidates, Fault> {
        if self.query.scope == Scope::Base {
            return Ok(Candidates::new(IdSet::List(vec![area.base.0]), Exactness::All));
        }
        let plan = run::plan(self.view, &self.gate, &self.filter)?;
        if let Some(ids) = run::small_scope(self.view, area, plan.estimate(), false)? {
            return Ok(Candidates::new(IdSet::List(ids), Exactness::All));
        }
        run::count_uses(self.view, &plan, &self.filter, self.query.base);
        let candidates = plan.into_candidates(self.view.snapshot)?;
        self.searched.indexed = !matches!(candidates.ids, IdSet::Everything);
        Ok(candidates)
    }

    /// Looks at a candidate.
    fn one(
        &mut self,
        area: &Area,
        (id, stored): (EntryId, &[u8]),
        proved: IndexProof,
        visit: &mut Visit<'_>,
    ) -> Result<Option<SearchEnd>, Fault> {
        self.searched.looked += 1;
        charge(self.meter, LOOK_STEPS)?;
        let view = self.view;
        let entry = EntryView::parse(id, stored)?;
        if !area.contains(view, &entry)? || self.passes_over(entry.flags()) {
            return Ok(None);
        }
        let record = view.unpacked(id, stored)?;
        let seen = GuardedEntry::new(view, view.reader(id, &record)?, self.gate.clone());
        let matches = proved.matches(&self.filter, &seen)? && seen.is_shown()?;
        charge(self.meter, seen.steps())?;
        if !matches {
            return Ok(None);
        }
        if self.searched.entries >= self.query.limits.entries {
            return Ok(Some(SearchEnd::TooManyEntries));
        }
        self.searched.entries += 1;
        Ok(if visit(&seen)? { None } else { Some(SearchEnd::Stopped) })
    }

    fn passes_over(&self, flags: RecordFlags) -> bool {
        let managed = self.query.manage_dsa_it;
        let hidden = flags.has(RecordFlags::SUBENTRY) && !self.query.subentries;
        (hidden && self.query.scope != Scope::Base)
            || (flags.has(RecordFlags::GLUE) && !managed)
            || (flags.has(RecordFlags::REFERRAL) && !managed)
    }
}

/// Internal searches have no time limit: their candidates are counted.
#[derive(Debug)]
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(0)
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic(0)
    }
}
