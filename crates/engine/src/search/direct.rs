//! Searches that are answered at once: an entry by its name, and an AND of equalities of which an index answers one.
//!
//! Most requests are of these two kinds. Nothing of such a search outlives the request, so it needs no task, no plan and no list: its terms
//! are on the stack. Anything unusual (a control, a term that overlays compute values for, an alias, a referral, an error, rights that
//! differ from entry to entry, many candidates) is left to a [`SearchTask`](super::task::SearchTask) before anything is answered.

use std::cell::Cell;

use larix_proto::{DerefAliases, Filter, MessageId, Scope, SearchRequest};
use larix_schema::{BoundAssertion, NormalDn, Scratch};
use larix_store::Snapshot;
use smallvec::SmallVec;

use super::answer::Answer;
use super::entry::GuardedEntry;
use super::gate::Gate;
use super::limits::{self, RequestedLimits};
use super::pace::STEPS_HERE;
use super::run;
use super::selection::Selection;
use super::shown;
use crate::access::{Privilege, Subject};
use crate::budget::RequestLimit;
use crate::catalog::CatalogRow;
use crate::controls::RequestControls;
use crate::database::{Limits, View};
use crate::entry::{EntryId, EntryView};
use crate::fault::Fault;
use crate::filter::{charge, value_steps};
use crate::index::{KeyKind, Kinds, key};
use crate::overlay::Interests;
use crate::overlay::computed::ComputedAttribute;
use crate::record::{Form, RecordFlags, StoredValue};
use crate::tables::INDEX;
use crate::time::{Clock, Timestamp};

/// Most candidates of a direct search. A task looks at the clock after so many.
const CANDIDATES_MAX: u64 = 8;
/// Most terms of its filter.
const TERMS_MAX: usize = 4;
/// Most bytes of its filter.
const FILTER_BYTES_MAX: usize = 512;
/// A key buffer of more bytes goes back to the allocator.
const KEY_BYTES_MAX: usize = 1024;

/// The input of a direct search.
#[derive(Debug)]
pub struct DirectInput<'r> {
    pub message: MessageId,
    pub request: &'r SearchRequest<'r>,
    /// The request's base.
    pub base: &'r NormalDn,
    pub controls: &'r RequestControls,
    pub subject: &'r Subject,
    /// `None` for the root DN.
    pub limits: Option<&'r Limits>,
    /// Bytes of unsent output above which a search waits for the client.
    pub bytes: usize,
    /// Read only if an overlay alters answered entries.
    pub clock: &'r dyn Clock,
}

/// The outcome of a direct search. Its result is success.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DirectAnswer {
    pub entries: u32,
    /// Entries looked at.
    pub looked: u64,
}

/// One term of the filter. It covers a single attribute here, and the subject may search all values of that.
struct Term<'v> {
    row: &'v CatalogRow,
    /// `None`: a presence term.
    equality: Option<BoundAssertion>,
}

type Terms<'v> = SmallVec<[Term<'v>; TERMS_MAX]>;

/// Memory for an index key and its ids, shared by all searches of a thread.
#[derive(Default)]
struct Room {
    key: Vec<u8>,
    ids: Vec<u64>,
}

thread_local! {
    static ROOM: Cell<Room> = const { Cell::new(Room { key: Vec::new(), ids: Vec::new() }) };
}

/// Appends the answers to `out`, without the result. `None`, with `out` as it was: the search is not of these kinds.
pub fn answer<N: Snapshot>(
    view: &View<'_, N>,
    input: &DirectInput<'_>,
    out: &mut Vec<u8>,
) -> Option<DirectAnswer> {
    let request = input.request;
    let is_usual = input.controls.is_none()
        && request.deref == DerefAliases::Never
        && matches!(request.scope, Scope::Base | Scope::Subtree)
        && !input.base.is_root()
        && request.filter.as_ber().len() <= FILTER_BYTES_MAX
        && out.len() < input.bytes;
    if !is_usual || view.settings.request_limits.check_search(request, input.controls).is_err() {
        return None;
    }
    let requested = RequestedLimits { size: request.size_limit, time: request.time_limit, page: None };
    let limits = limits::effective(input.limits, requested).ok()?;
    if limits.unchecked.is_some() {
        return None;
    }
    let mut gate = Gate::new(&view.policy, input.subject);
    gate.steps = view.settings.request_limits.most(RequestLimit::Steps).min(STEPS_HERE);
    gate.computed = &view.computed;
    let mut terms = Terms::new();
    add_terms(view, &gate, request.filter, &mut terms)?;
    let looks = view.settings.overlays.want(Interests::SHOW);
    let answer = Answer {
        message: input.message,
        types_only: request.types_only,
        selection: Selection::new(&view.schema, &view.catalog, request.attributes),
        matched_values: None,
        rights: None,
        for_consumer: false,
        states: false,
        now: if looks { input.clock.now() } else { Timestamp::default() },
    };
    let shown = shown::by(view, &answer, input.controls);
    gate.shown = &shown;
    let search = Direct {
        view,
        terms: &terms,
        gate: &gate,
        base: input.base,
        answer: &answer,
        most: limits.size.unwrap_or(u32::MAX),
        bytes: input.bytes,
    };
    let began = out.len();
    let answered = match request.scope {
        Scope::Base => search.read(out),
        _ => search.find(out),
    };
    // A task meets the same fault, and answers it.
    let answered = answered.ok().flatten();
    if answered.is_none() {
        out.truncate(began);
    }
    answered
}

/// Adds the filter's terms; `None` unless all are of the usual kinds.
fn add_terms<'v, N: Snapshot>(
    view: &'v View<'_, N>,
    gate: &Gate<'_>,
    filter: Filter<'_>,
    terms: &mut Terms<'v>,
) -> Option<()> {
    match filter.conjunction() {
        Some(set) => {
            for part in set.iter() {
                if terms.len() == TERMS_MAX {
                    return None;
                }
                terms.push(term(view, gate, part)?);
            }
        }
        None => terms.push(term(view, gate, filter)?),
    }
    (!terms.is_empty()).then_some(())
}

#[inline]
fn term<'v, N: Snapshot>(view: &'v View<'_, N>, gate: &Gate<'_>, filter: Filter<'_>) -> Option<Term<'v>> {
    let (name, value) = filter.term()?;
    let description = view.schema.describe_octets(name).ok()?;
    let row = view.catalog.only(&view.schema, &description)?;
    let computes = |own: &ComputedAttribute| own.description.is_subdescription_of(&view.schema, &description);
    if !gate.searches_all_of(&description) || gate.computed.iter().any(computes) {
        return None;
    }
    let equality = match value {
        None => None,
        Some(value) => Some(view.schema.bind_equality(&description, value).ok()?),
    };
    Some(Term { row, equality })
}

struct Direct<'v, 's, N> {
    view: &'v View<'s, N>,
    gate: &'v Gate<'v>,
    terms: &'v [Term<'v>],
    base: &'v NormalDn,
    answer: &'v Answer,
    /// Most entries to answer.
    most: u32,
    bytes: usize,
}

impl<N: Snapshot> Direct<'_, '_, N> {
    /// The base alone.
    fn read(&self, out: &mut Vec<u8>) -> Result<Option<DirectAnswer>, Fault> {
        let view = self.view;
        let Some(located) = view.locate(self.base)? else { return Ok(None) };
        let Some(id) = located.resolved.id else { return Ok(None) };
        let stored = view.located_stored(located)?;
        let head = EntryView::parse(id, &stored)?;
        if head.flags().has(RecordFlags::OF_CLASSES) || self.most == 0 {
            return Ok(None);
        }
        let record = view.unpacked_behind(&head, &stored)?;
        let seen = GuardedEntry::new(view, view.reader_of(head, &stored, &record), self.gate.clone());
        seen.name_is(self.base);
        if !seen.allows_entry(Privilege::Search)? {
            return Ok(None);
        }
        let Some(matches) = self.matches(&seen, None)? else { return Ok(None) };
        let sent = matches && run::append(self.answer, &seen, out, &[])?;
        Ok(Some(DirectAnswer { entries: u32::from(sent), looked: 1 }))
    }

    /// The base and all below it.
    fn find(&self, out: &mut Vec<u8>) -> Result<Option<DirectAnswer>, Fault> {
        // Referral objects in scope are answered beside what the filter finds.
        let Some(facts) = self.view.facts.as_ref().filter(|facts| !facts.referrals) else {
            return Ok(None);
        };
        // Only a base that was searched since the last commit: the facts have it, and nothing of it has to be read.
        let Some((base, flags)) = facts.base(self.base) else { return Ok(None) };
        if flags.has(RecordFlags::OF_CLASSES) || !self.gate.enters_freely() {
            return Ok(None);
        }
        let whole = facts.only_suffix == Some(base);
        let mut room = ROOM.take();
        let found = self.find_within((base, whole), &mut room, out);
        if room.key.capacity() <= KEY_BYTES_MAX {
            ROOM.set(room);
        }
        found
    }

    fn find_within(
        &self,
        (base, whole): (EntryId, bool),
        Room { key, ids }: &mut Room,
        out: &mut Vec<u8>,
    ) -> Result<Option<DirectAnswer>, Fault> {
        let view = self.view;
        let mut answered = DirectAnswer { entries: 0, looked: 0 };
        let Some((proved, count)) = self.smallest(key, ids)? else { return Ok(None) };
        // All of it in one go: the steps are of the search, not of each entry.
        let mut steps = self.gate.steps;
        for id in ids.iter().take(count).copied().map(EntryId) {
            let Some(stored) = view.stored(id)? else { continue };
            answered.looked += 1;
            let head = EntryView::parse(id, &stored)?;
            if head.flags().has(RecordFlags::OF_CLASSES) || out.len() >= self.bytes {
                return Ok(None);
            }
            let mut superior = None;
            if !(whole || id == base) {
                superior = view.names.superior(head.parent())?;
                // An entry in scope that is not the base has a superior within the base.
                if !superior.as_ref().is_some_and(|superior| superior.normal.is_within(self.base)) {
                    continue;
                }
            }
            let record = view.unpacked_behind(&head, &stored)?;
            let mut gate = self.gate.clone();
            gate.steps = steps;
            let seen = GuardedEntry::new(view, view.reader_of(head, &stored, &record), gate);
            let Some(matches) = self.matches(&seen, Some(proved))? else { return Ok(None) };
            if matches && run::append_below(self.answer, &seen, superior.as_deref(), out)? {
                if answered.entries >= self.most {
                    return Ok(None);
                }
                answered.entries += 1;
                // Who has searched for an entry often goes on with its name.
                view.names.note_found(&head, &view.found);
            }
            steps -= seen.steps();
        }
        Ok(Some(answered))
    }

    /// Reads the ids of the first term that has few. Answers the term, and how many ids.
    fn smallest(&self, key: &mut Vec<u8>, ids: &mut Vec<u64>) -> Result<Option<(usize, usize)>, Fault> {
        let (view, mut sized) = (self.view, SmallVec::<[_; TERMS_MAX]>::new());
        for (term, Term { row, equality }) in self.terms.iter().enumerate() {
            let Some(equality) = equality else { continue };
            let has_keys = row.usable().has(Kinds::EQUALITY)
                && equality.rule.indexable_equality()
                && row.equality.is_some_and(|rule| rule.shares_keys_with(equality.rule));
            if !has_keys {
                continue;
            }
            key.clear();
            ids.clear();
            key::put(key, row.number, KeyKind::Equality, equality.value.key());
            let estimate = view.snapshot.posting_head(INDEX, key, CANDIDATES_MAX, ids)?;
            sized.push((row.number, estimate));
            if estimate == ids.len() as u64 {
                if estimate > 0
                    && let Some((instance, uses)) = view.uses
                {
                    uses.count(instance, |put| {
                        sized.iter().for_each(|(number, count)| put(*number, KeyKind::Equality, *count));
                    });
                }
                return Ok(Some((term, ids.len())));
            }
        }
        Ok(None)
    }

    /// Whether the entry satisfies all terms but the one that is proved; `None`: it takes more to tell that.
    fn matches(&self, seen: &GuardedEntry<'_, N>, proved: Option<usize>) -> Result<Option<bool>, Fault> {
        let schema = &self.view.schema;
        for (at, Term { row, equality }) in self.terms.iter().enumerate() {
            if proved == Some(at) {
                continue;
            }
            charge(Some(seen.meter()), 1)?;
            let Some(values) = seen.reader.view.get(row.number)? else { return Ok(Some(false)) };
            let Some(assertion) = equality else {
                if values.is_empty() {
                    return Ok(Some(false));
                }
                continue;
            };
            if values.form() != Form::Inline {
                return Ok(None);
            }
            let (mut scratch, mut found) = (Scratch::default(), false);
            for value in values.iter() {
                let StoredValue::Inline(value) = value? else { return Ok(None) };
                charge(Some(seen.meter()), value_steps(value))?;
                found = assertion.matches(schema, value, &mut scratch).is_true();
                if found {
                    break;
                }
            }
            if !found {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }
}
