//! One search, in slices (RFC 4511 section 4.5).
//!
//! Each slice has a view of its own and finds the base anew; between slices the task knows what it answered last by its
//! id (or sort key and id), so that no snapshot is held while a client reads. Candidates are exact for the view that
//! they were made from and are verified in later ones.

use std::sync::Arc;

use larix_proto::{
    ControlBuf, DerefAliases, FilterBuf, LdapResult, MessageId, ResultCode, Scope, SearchRequest,
};
use larix_schema::{NormalDn, Schema};
use larix_store::Snapshot;
use smallvec::SmallVec;

use super::answer::Answer;
use super::chain::{self, CHAINS_MAX, Walk};
use super::cookie::Binding;
use super::dereference::DerefSpecs;
use super::entry::GuardedEntry;
use super::found_entries::FoundEntries;
use super::gate::Gate;
use super::limits::{self, Effective};
use super::pace::{Pace, STEPS_HERE};
use super::pages::Pages;
use super::rights::Rights;
use super::run::{CandidateOutcome, IndexProof, State};
use super::scope::{self, Base, FollowedAlias};
use super::selection::Selection;
use super::sort::Order;
use super::synchronised::Refresh;
use super::{hidden, referral, shown, sorted, window};
use crate::access::{Privilege, Subject};
use crate::budget::{LimitExceeded, RequestLimit};
use crate::controls::RequestControls;
use crate::database::kept_lists::ListKey;
use crate::database::{COOKIE_SECRET_LENGTH, Limits, View};
use crate::entry::EntryId;
use crate::entry::record::RecordFlags;
use crate::fault::Fault;
use crate::filter::Filter;
use crate::overlay::Interests;
use crate::overlay::shown::ShownEntries;
use crate::replica_state::EntryPlaces;
use crate::time::{Clock, Monotonic, Timestamp};

/// A longer base as the client wrote it is kept on the heap.
const BASE_BYTES: usize = 80;

/// A search with more bytes of filters is planned and evaluated off its worker from the start.
const FILTER_BYTES_HERE: usize = 8 << 10;

/// How far one slice may go.
#[derive(Copy, Clone, Debug)]
pub struct Budget<'a> {
    /// Candidates looked at.
    pub candidates: u32,
    /// After so many nanoseconds the slice ends, some candidates later.
    pub nanos: u64,
    /// Bytes of output after which the task waits for the client to read.
    pub bytes: usize,
    pub clock: &'a dyn Clock,
}

/// How a slice ended.
#[derive(Debug)]
pub enum Step {
    /// The budget is used up. Other searches run, then this one goes on.
    More,
    /// The output is full. The search goes on when it has been sent.
    Blocked,
    /// The content of SearchResultDone.
    Done(LdapResult, Vec<ControlBuf>),
}

/// The input of a search.
#[derive(Debug)]
pub struct SearchInput<'r> {
    pub message: MessageId,
    pub request: SearchRequest<'r>,
    /// The request's base, or the suffix of a subordinate database below it.
    pub base: NormalDn,
    pub controls: RequestControls,
    pub subject: Arc<Subject>,
    /// `None` for the root DN.
    pub limits: Option<Limits>,
    /// The referrals to answer if not even the suffix is here.
    pub default_referrals: Option<Arc<[String]>>,
    pub cookie_secret: [u8; COOKIE_SECRET_LENGTH],
    pub now: Monotonic,
}

/// A search that is under way.
#[derive(Debug)]
pub struct SearchTask {
    pub(super) base: NormalDn,
    /// The base as the client wrote it.
    requested_base: SmallVec<[u8; BASE_BYTES]>,
    pub(super) scope: Scope,
    pub(super) deref: DerefAliases,
    pub(super) filter: Filter,
    pub(super) answer: Answer,
    pub(super) order: Option<Order>,
    pub(super) pages: Option<Pages>,
    /// What a list of its matches is good for, where the client may ask for another part of it.
    pub(super) list_key: Option<Arc<ListKey>>,
    pub(super) controls: RequestControls,
    /// A candidate or the filter is too much work for an event loop. The next slices run elsewhere, with the whole budget of a request.
    dear: bool,
    /// The event loop does not even begin it.
    put_off: bool,
    /// The requester; taken while a slice runs.
    pub(super) subject: Option<Arc<Subject>>,
    default_referrals: Option<Arc<[String]>>,
    pub(super) limits: Effective,
    pub(super) deadline: Option<Monotonic>,
    pub(super) state: State,
    pub(super) base_id: Option<EntryId>,
    /// How many rows of the catalog filter, selection and order know.
    numbers: usize,
    pub(super) entries: u32,
    /// Entries looked at.
    pub(super) looked: u64,
    pub(super) references: u32,
    pub(super) response_controls: Vec<ControlBuf>,
    pub(super) scratch: String,
    /// The filter has chains of names. They are followed first, one at a time.
    chained: bool,
    pub(super) walk: Option<Box<Walk>>,
    pub(super) deref_specs: Option<Box<DerefSpecs>>,
    /// Of a consumer's search: the refresh.
    pub(super) refresh: Option<Box<Refresh>>,
    /// Of a persistent search: the entries that it has found.
    pub(super) found_entries: Option<Box<FoundEntries>>,
    /// For a consumer that is Larix, too: the places of entries in the tree, which go with them.
    pub(super) places: Option<Box<EntryPlaces>>,
}

/// Why a search ends early.
#[derive(Debug)]
pub(super) enum End {
    Result(LdapResult),
    Fault(Fault),
}

impl End {
    /// Whether the work on one candidate used up its budget.
    pub(super) fn is_for_steps(&self) -> bool {
        matches!(self, Self::Fault(Fault::StepsSpent))
    }
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<LdapResult> for End {
    fn from(result: LdapResult) -> Self {
        Self::Result(result)
    }
}

impl From<ResultCode> for End {
    fn from(code: ResultCode) -> Self {
        Self::Result(LdapResult::new(code))
    }
}

impl SearchTask {
    /// Binds the request to the database.
    ///
    /// # Errors
    /// The result of a search that ends before its first slice, and its controls: a limit is exceeded, a cookie is wrong, a critical sort
    /// key cannot be used.
    pub fn new<N: Snapshot>(
        view: &View<'_, N>,
        input: SearchInput<'_>,
    ) -> Result<Self, (LdapResult, Vec<ControlBuf>)> {
        let schema: &Schema = &view.schema;
        let fail = |result: LdapResult| (result, Vec::new());
        view.settings.request_limits.check_search(&input.request, &input.controls).map_err(fail)?;
        let mut response_controls = Vec::new();
        let order = order(view, &input.controls, &mut response_controls)
            .map_err(|result| (result, std::mem::take(&mut response_controls)))?;
        window::check(&input.controls, order.as_ref()).map_err(|refused| {
            let (result, control) = *refused;
            response_controls.push(control);
            (result, std::mem::take(&mut response_controls))
        })?;
        let (limits, pages) = limits_and_page(view, &input).map_err(fail)?;
        let answer = answer(view, &input).map_err(fail)?;
        let list_key = (order.is_some() && (pages.is_some() || input.controls.vlv.is_some())).then(|| {
            let SearchInput { request, base, controls, subject, .. } = &input;
            let search = binding(base, request, controls, subject, view).digest();
            Arc::new(ListKey::new(search, controls, subject))
        });
        let SearchInput { request, controls, .. } = input;
        let filter_bytes =
            request.filter.as_ber().len() + controls.matched_values.as_deref().map_or(0, bytes_of);
        let put_off = filter_bytes > FILTER_BYTES_HERE;
        let deref_specs = controls.deref.as_ref().map(|control| DerefSpecs::new(schema, control));
        let deref_specs = deref_specs.transpose().map_err(fail)?.flatten().map(Box::new);
        let filter = bounded_filter(view, &request).map_err(fail)?;
        let nanos = limits.time.map(|seconds| u64::from(seconds) * 1_000_000_000);
        Ok(Self {
            requested_base: SmallVec::from_slice(request.base.as_bytes()),
            base: input.base,
            scope: request.scope,
            deref: request.deref,
            chained: filter.chains() > 0,
            walk: None,
            deref_specs,
            filter,
            answer,
            order,
            pages,
            list_key,
            controls,
            dear: put_off,
            put_off,
            subject: Some(input.subject),
            default_referrals: input.default_referrals,
            deadline: nanos.map(|nanos| Monotonic(input.now.0.saturating_add(nanos))),
            limits,
            state: State::Fresh,
            base_id: None,
            numbers: view.catalog.rows().len(),
            entries: 0,
            looked: 0,
            references: 0,
            response_controls,
            scratch: String::new(),
            refresh: None,
            found_entries: None,
            places: None,
        })
    }

    fn requested_base(&self) -> &str {
        std::str::from_utf8(&self.requested_base).unwrap_or_default()
    }

    /// Entries answered so far.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Entries looked at so far.
    pub fn looked_at(&self) -> u64 {
        self.looked
    }

    /// The most entries that this search may answer, by its client and the limits.
    pub fn size_limit(&self) -> Option<u32> {
        self.limits.size
    }

    /// Whether it must not run on an event loop, where other clients wait.
    pub fn is_dear(&self) -> bool {
        self.dear
    }

    /// Lowers the size limit to what is left of it in a search over several databases.
    pub fn limit_size(&mut self, entries: u32) {
        self.limits.size = Some(self.limits.size.map_or(entries, |limit| limit.min(entries)));
    }

    /// Lowers the page size to what is left of the page in a search over several databases.
    pub fn limit_page(&mut self, entries: u32) {
        if let Some(pages) = &mut self.pages {
            pages.limit(entries);
        }
    }

    /// References answered so far.
    pub fn references(&self) -> u32 {
        self.references
    }

    /// Runs one slice on a view of the database that the task was made for, under the view's access rules; appends complete messages
    /// to `out`.
    pub fn step<N: Snapshot>(&mut self, view: &View<'_, N>, out: &mut Vec<u8>, budget: Budget<'_>) -> Step {
        if std::mem::take(&mut self.put_off) {
            return Step::More;
        }
        let began = out.len();
        match self.slice(view, out, budget) {
            Ok(step) => step,
            Err(End::Fault(Fault::StepsSpent)) if !self.dear => {
                self.dear = true;
                if matches!(self.state, State::Fresh) {
                    // The first slice begins again.
                    out.truncate(began);
                }
                Step::More
            }
            Err(End::Fault(Fault::StepsSpent)) => {
                let most = view.settings.request_limits.most(RequestLimit::Steps);
                Step::Done(LimitExceeded { limit: RequestLimit::Steps, most }.into(), Vec::new())
            }
            Err(End::Result(result)) => {
                let controls = std::mem::take(&mut self.response_controls);
                // If the base may not be searched, nothing was sorted.
                let sends_controls = self.order.is_none() || self.base_id.is_some();
                Step::Done(result, if sends_controls { controls } else { Vec::new() })
            }
            Err(End::Fault(fault)) => Step::Done(storage_failure(&fault), Vec::new()),
        }
    }

    fn slice<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        out: &mut Vec<u8>,
        budget: Budget<'_>,
    ) -> Result<Step, End> {
        self.renumber(view);
        if self.controls.account_usability || view.settings.overlays.want(Interests::SHOW) {
            self.answer.now = budget.clock.now();
        }
        // It is missing only after a panic in a slice.
        let Some(subject) = self.subject.take() else { return Err(ResultCode::OTHER.into()) };
        let step = self.slice_for(&subject, view, out, budget);
        self.subject = Some(subject);
        step
    }

    fn slice_for<N: Snapshot>(
        &mut self,
        subject: &Subject,
        view: &View<'_, N>,
        out: &mut Vec<u8>,
        budget: Budget<'_>,
    ) -> Result<Step, End> {
        let mut gate = Gate::new(&view.policy, subject);
        let most = view.settings.request_limits.most(RequestLimit::Steps);
        gate.steps = if self.dear { most } else { most.min(STEPS_HERE) };
        // Searches with manageDsaIT and those of consumers see only stored attributes.
        if !self.controls.manage_dsa_it && self.refresh.is_none() {
            gate.computed = &view.computed;
        }
        let shown = self.shown_by(view);
        gate.shown = &shown;
        if self.is_plain_read() {
            return self.read_base(view, &gate, out);
        }
        let found = self.find_base(view, &gate)?;
        match self.base_id {
            None => self.base_id = Some(found),
            Some(before) if before == found => {}
            Some(_) => return Err(LdapResult::with(ResultCode::BUSY, "search base has moved").into()),
        }
        if self.chained {
            let mut pace = Pace::new(budget, self.deadline, self.walk.is_some())?;
            let (walk, filter, looked) = (&mut self.walk, &mut self.filter, &mut self.looked);
            if let Some(step) = chain::follow(walk, filter, looked, view, &gate, &mut pace)? {
                return Ok(step);
            }
            self.chained = false;
        }
        if let Some(pages) = &self.pages
            && pages.is_abandoned()
        {
            let done = LdapResult::with(ResultCode::SUCCESS, "search abandoned by pagedResult size=0");
            return Err(done.into());
        }
        if self.order.is_some() {
            sorted::run(self, view, &gate, out, budget)
        } else {
            self.run(view, &gate, out, budget)
        }
    }

    /// The overlays that alter answered entries.
    pub(super) fn shown_by<'v, N>(&self, view: &'v View<'_, N>) -> SmallVec<[&'v dyn ShownEntries; 2]> {
        if self.refresh.is_some() { SmallVec::new() } else { shown::by(view, &self.answer, &self.controls) }
    }

    pub(super) fn renumber<N: Snapshot>(&mut self, view: &View<'_, N>) {
        let numbers = view.catalog.rows().len();
        if self.numbers != numbers {
            self.numbers = numbers;
            self.filter.renumber(&view.schema, &view.catalog);
            self.answer.selection.renumber(&view.schema, &view.catalog);
            if let Some(order) = &mut self.order {
                order.renumber(&view.schema, &view.catalog);
            }
        }
    }

    /// Whether the search reads only its base, and so ends with its first slice.
    fn is_plain_read(&self) -> bool {
        self.scope == Scope::Base
            && self.base_id.is_none()
            && !self.chained
            && self.order.is_none()
            && self.pages.is_none()
            && self.limits.unchecked.is_none()
            && self.refresh.is_none()
            && self.found_entries.is_none()
            && !self.base.is_root()
    }

    /// Answers the base, whose record is looked up once.
    fn read_base<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        gate: &Gate<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Step, End> {
        let (id, followed) = self.locate(view, gate)?;
        let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        let seen = GuardedEntry::new(view, view.reader(id, &record)?, gate.clone());
        if matches!(self.deref, DerefAliases::Never | DerefAliases::InSearching) {
            // Nothing was dereferenced on the way: it is the entry that was asked for.
            seen.name_is(&self.base);
        }
        self.check_base(&seen, gate, &followed)?;
        self.looked = 1;
        if matches!(self.look(&seen, id, IndexProof::Nothing)?, CandidateOutcome::Match) {
            self.send(&seen, out)?;
        }
        Err(ResultCode::SUCCESS.into())
    }

    /// Finds the base and checks, the first time, that it may be searched.
    pub(super) fn find_base<N: Snapshot>(&self, view: &View<'_, N>, gate: &Gate<'_>) -> Result<EntryId, End> {
        if let Some(id) = self.known_base(view, gate) {
            return Ok(id);
        }
        let (id, followed) = self.locate(view, gate)?;
        if self.base_id.is_some() || id == EntryId::ROOT {
            return Ok(id);
        }
        let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        let seen = GuardedEntry::new(view, view.reader(id, &record)?, gate.clone());
        self.check_base(&seen, gate, &followed)?;
        if let Some(facts) = view.facts.filter(|_| !scope::finds(self.deref)) {
            facts.remember_base(&self.base, id, seen.reader.view.flags());
        }
        Ok(id)
    }

    /// The base, if it was found since the last commit and nothing has to be asked of its record.
    fn known_base<N: Snapshot>(&self, view: &View<'_, N>, gate: &Gate<'_>) -> Option<EntryId> {
        let facts = view.facts.filter(|_| !scope::finds(self.deref))?;
        let (id, flags) = facts.base(&self.base)?;
        let is_checked = self.base_id.is_some()
            || (gate.enters_freely()
                && self.controls.assertion.is_none()
                && (self.controls.manage_dsa_it || !flags.has(RecordFlags::REFERRAL)));
        is_checked.then_some(id)
    }

    /// The base's id, and the aliases on the way to it.
    fn locate<N: Snapshot>(
        &self,
        view: &View<'_, N>,
        gate: &Gate<'_>,
    ) -> Result<(EntryId, Vec<FollowedAlias>), End> {
        let mut followed = Vec::new();
        match scope::find_base(view, &self.base, self.deref, &mut followed)? {
            Base::Found(id) => Ok((id, followed)),
            _ if self.base_id.is_some() => {
                Err(LdapResult::with(ResultCode::BUSY, "search base is gone").into())
            }
            Base::Missing(nearest) => Err(self.missing(view, gate, nearest, &followed)?.into()),
            Base::AliasProblem(problem, None) => Err(problem.into()),
            // One that the requester may not know of is answered as one that is not there.
            Base::AliasProblem(problem, Some(alias)) => Err(match hidden::disclosed(view, gate, alias)? {
                Some(dn) => problem.matched(dn).into(),
                None => hidden::missing(view, gate, (alias, &self.base), &followed)?.into(),
            }),
        }
    }

    /// Whether the base may be searched. `followed`: the aliases on the way to it.
    fn check_base<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        gate: &Gate<'_>,
        followed: &[FollowedAlias],
    ) -> Result<(), End> {
        let view = seen.view;
        if !seen.granted(seen.allows_entry(Privilege::Search))? {
            if seen.granted(seen.discloses_refusal())? {
                return Err(ResultCode::INSUFFICIENT_ACCESS_RIGHTS.into());
            }
            let hidden = (seen.reader.view.id(), &self.base);
            return Err(hidden::missing(view, gate, hidden, followed)?.into());
        }
        if !self.controls.manage_dsa_it && seen.reader.view.flags().has(RecordFlags::REFERRAL) {
            return Err(self.refer(seen)?.into());
        }
        if let Some(assertion) = &self.controls.assertion {
            let bound = view.schema.bind_filter(assertion.as_filter());
            let filter = Filter::new(&view.schema, &view.catalog, bound);
            if !filter.matches(seen, seen.source())?.is_true() {
                return Err(ResultCode::ASSERTION_FAILED.into());
            }
        }
        Ok(())
    }

    /// What is answered when the base does not exist.
    fn missing<N: Snapshot>(
        &self,
        view: &View<'_, N>,
        gate: &Gate<'_>,
        nearest: Option<EntryId>,
        followed: &[FollowedAlias],
    ) -> Result<LdapResult, Fault> {
        let Some(id) = nearest else {
            let are_asked_for = |urls: &&Arc<[String]>| !urls.is_empty() && !self.controls.domain_scope;
            let Some(urls) = self.default_referrals.as_ref().filter(are_asked_for) else {
                return Ok(LdapResult::new(ResultCode::NO_SUCH_OBJECT));
            };
            let target = pretty(&view.schema, self.requested_base());
            let target = Some(target.as_str());
            let urls = referral::rewrite(&view.schema, urls, None, target, Some(self.scope));
            return Ok(LdapResult { referrals: urls, ..LdapResult::new(ResultCode::REFERRAL) });
        };
        let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        let seen = GuardedEntry::new(view, view.reader(id, &record)?, gate.clone());
        if !seen.granted(seen.allows_entry(Privilege::Disclose))? {
            return hidden::missing(view, gate, (id, &self.base), followed);
        }
        if seen.reader.view.flags().has(RecordFlags::REFERRAL) {
            return self.refer(&seen);
        }
        let answer = LdapResult::new(ResultCode::NO_SUCH_OBJECT).matched(view.dn(&seen.reader.view)?);
        hidden::unless_hidden_by_name(view, gate, (id, &self.base), answer)
    }

    /// The referral that an entry at or above the base stands for.
    fn refer<N: Snapshot>(&self, seen: &GuardedEntry<'_, N>) -> Result<LdapResult, Fault> {
        let dn = seen.view.dn(&seen.reader.view)?;
        if self.controls.domain_scope {
            return Ok(LdapResult::new(ResultCode::NO_SUCH_OBJECT).matched(dn));
        }
        let urls = referral::urls(&seen.reader)?;
        let target = pretty(&seen.view.schema, self.requested_base());
        let target = Some(target.as_str());
        let urls = referral::rewrite(&seen.view.schema, &urls, Some(&dn), target, Some(self.scope));
        Ok(referral::answer(urls, dn))
    }
}

/// The answer to a client whose request met a storage fault; the fault itself is for the log.
pub fn storage_failure(fault: &Fault) -> LdapResult {
    match fault.code() {
        ResultCode::OTHER => LdapResult::internal_error(),
        code => LdapResult::with(code, fault.to_string()),
    }
}

fn bytes_of(filters: &[FilterBuf]) -> usize {
    filters.iter().map(|filter| filter.as_filter().as_ber().len()).sum()
}

fn pretty(schema: &Schema, dn: &str) -> String {
    larix_proto::Dn::parse(dn).ok().and_then(|dn| schema.pretty_dn(&dn).ok()).unwrap_or_else(|| dn.to_owned())
}

fn order<N: Snapshot>(
    view: &View<'_, N>,
    controls: &RequestControls,
    response: &mut Vec<ControlBuf>,
) -> Result<Option<Order>, LdapResult> {
    let Some(sort) = &controls.sort else { return Ok(None) };
    match Order::new(&view.schema, &view.catalog, &sort.keys) {
        Ok(order) => {
            response.push(sorted::response_control(ResultCode::SUCCESS, None));
            Ok(Some(order))
        }
        Err(fault) => {
            response.push(sorted::response_control(fault.code, Some(&fault.attribute)));
            if sort.critical {
                let text = "serverSort control: the order is not available";
                return Err(LdapResult::with(ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, text));
            }
            Ok(None)
        }
    }
}

/// What the search may take, and where it goes on if its client reads pages.
fn limits_and_page<N: Snapshot>(
    view: &View<'_, N>,
    input: &SearchInput<'_>,
) -> Result<(Effective, Option<Pages>), LdapResult> {
    let (request, controls) = (&input.request, &input.controls);
    if controls.vlv.is_some() && controls.paged.is_some() {
        let text = "VLV incompatible with PagedResults";
        return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
    }
    let requested =
        limits::RequestedLimits { size: request.size_limit, time: request.time_limit, page: None };
    let Some(paged) = &controls.paged else {
        return Ok((limits::effective(input.limits.as_ref(), requested)?, None));
    };
    // What is not allowed at all is said before a cookie is looked at.
    let first = limits::RequestedLimits { page: Some((paged.size, 0)), ..requested };
    limits::effective(input.limits.as_ref(), first)?;
    let binding = binding(&input.base, request, controls, &input.subject, view);
    let pages = Pages::new(binding, input.cookie_secret, paged)?;
    let requested = limits::RequestedLimits { page: Some((pages.size(), pages.before())), ..requested };
    Ok((limits::effective(input.limits.as_ref(), requested)?, Some(pages)))
}

/// What is answered of each entry.
fn answer<N: Snapshot>(view: &View<'_, N>, input: &SearchInput<'_>) -> Result<Answer, LdapResult> {
    let schema: &Schema = &view.schema;
    let (request, controls) = (&input.request, &input.controls);
    let matched = controls.matched_values.as_ref();
    let control = controls.effective_rights.as_ref();
    let rights = control.map(|control| Rights::new(schema, &input.subject, control)).transpose()?;
    Ok(Answer {
        message: input.message,
        types_only: request.types_only,
        selection: Selection::new(schema, &view.catalog, request.attributes),
        matched_values: matched
            .map(|filters| filters.iter().map(|f| schema.bind_filter(f.as_filter())).collect()),
        rights: rights.map(Box::new),
        for_consumer: false,
        states: false,
        now: Timestamp::default(),
    })
}

/// The request's filter in the database's terms, if it is within the limits of one request.
fn bounded_filter<N: Snapshot>(
    view: &View<'_, N>,
    request: &SearchRequest<'_>,
) -> Result<Filter, LdapResult> {
    let bound = view.schema.bind_filter(request.filter);
    let filter = Filter::within(&view.settings.request_limits, &view.schema, &view.catalog, bound)?;
    if filter.chains() > CHAINS_MAX {
        let text = format!("in-chain matching: more than {CHAINS_MAX} chains in one filter");
        return Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text));
    }
    Ok(filter)
}

/// What a cookie of this search is good for.
fn binding<N: Snapshot>(
    base: &NormalDn,
    request: &SearchRequest<'_>,
    controls: &RequestControls,
    subject: &Subject,
    view: &View<'_, N>,
) -> Binding {
    let mut binding = Binding::new();
    binding.add(base.as_str().as_bytes());
    binding.add(&[request.scope as u8, request.deref as u8]);
    binding.add(request.filter.as_ber());
    binding.add(subject.dn.as_ref().map_or("", |dn| dn.as_str()).as_bytes());
    for suffix in &view.settings.suffixes {
        binding.add(suffix.normal.as_str().as_bytes());
    }
    for key in controls.sort.iter().flat_map(|sort| &sort.keys) {
        binding.add(key.attribute.as_bytes());
        binding.add(key.rule.as_deref().unwrap_or_default().as_bytes());
        binding.add(&[u8::from(key.reverse)]);
    }
    binding
}
