//! A search over the directory: over one stored database, over several glued ones, or over a tree that nobody stores.

use std::sync::Arc;

use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::controls::RequestControls;
use larix_engine::log::Follower;
use larix_engine::plugins::internal_search::{Ended, InternalLimits, InternalSearch};
use larix_engine::search::internal;
use larix_engine::search::limits::{Asked, effective};
use larix_engine::search::task::{Budget, SearchInput, SearchTask, Step};
use larix_engine::time::Monotonic;
use larix_engine::write::writer::REMOVED;
use larix_engine::{Fault, Limits, Served, View};
use larix_proto::url::LdapUrl;
use larix_proto::{ControlBuf, LdapResult, MessageId, ResultCode, Scope, SearchRequest};
use larix_schema::{BoundFilter, NormalDn};
use larix_store::lmdb::LmdbStore;
use larix_store::{Snapshot, Store};

use super::glued_pages::{GluedPages, Next};
use super::limits;
use super::sync::{self, Slice, Synchronised};
use crate::access_log::Gate;
use crate::connection::OUTPUT_HIGH;
use crate::databases::Databases;
use crate::memory_tree::Found;
use crate::server::Server;
use crate::statistics::latency::in_database;

/// Candidates that one slice looks at, which others may have to wait for. A new slice costs less than one candidate:
/// searches of many candidates are as fast with 32 as with 128 (two indexed substrings: 14,560/s and 14,668/s).
const SLICE_CANDIDATES: u32 = 128;
/// And after so long it ends where candidates are dear: a small search takes a tenth of it.
const SLICE_NANOS: u64 = 100_000;

/// A result with its controls.
pub(super) type End = (LdapResult, Vec<ControlBuf>);

/// A search under way.
#[derive(Debug)]
pub struct Search {
    /// The database that is searched now.
    part: Option<Box<Part>>,
    /// Subordinate databases that come after it, the next one last.
    later: Vec<Part>,
    /// With paged results over several databases.
    pages: Option<GluedPages>,
    /// Of parts that are done.
    done: Effort,
    end: Option<End>,
    /// Of an access log: what is to be there before it begins.
    gate: Option<Gate>,
    /// In the place of all that: a consumer's (RFC 4533).
    sync: Option<Box<Synchronised>>,
}

/// What a search took.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Entries answered.
    pub entries: u64,
    /// Entries looked at.
    pub candidates: u64,
}

impl Effort {
    fn of(task: &SearchTask) -> Self {
        Self { entries: task.entries().into(), candidates: task.looked_at() }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            candidates: self.candidates.saturating_add(other.candidates),
        }
    }
}

/// What became of a search in its first slice.
#[derive(Debug)]
pub enum First {
    Done {
        result: LdapResult,
        controls: Vec<ControlBuf>,
        effort: Effort,
    },
    /// It goes on with [`Search::step`].
    Running(Search),
}

impl First {
    fn ended(end: End) -> Self {
        Self::Done { result: end.0, controls: end.1, effort: Effort::default() }
    }
}

/// The search in one stored database.
#[derive(Debug)]
struct Part {
    served: Arc<Served<LmdbStore>>,
    task: SearchTask,
}

impl Search {
    /// A consumer's search.
    pub(super) fn synchronising(sync: Synchronised) -> Self {
        Self {
            part: None,
            later: Vec::new(),
            pages: None,
            done: Effort::default(),
            end: None,
            gate: None,
            sync: Some(Box::new(sync)),
        }
    }

    /// Whether it may wait for changes.
    pub fn follows(&self) -> bool {
        self.sync.is_some() || self.gate.is_some()
    }

    /// Whom to tell when it may go on after it waited.
    pub fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(sync) = &mut self.sync {
            sync.follow(follower);
        } else if let Some(gate) = &mut self.gate {
            gate.follow(follower);
        }
    }

    /// It holds nothing that other searches wait for until its next slice.
    pub fn pause(&mut self) {
        if let Some(sync) = &mut self.sync {
            sync.pause();
        }
    }

    /// What it has taken so far.
    pub fn effort(&self) -> Effort {
        if let Some(sync) = &self.sync {
            let (entries, candidates) = sync.effort();
            return Effort { entries, candidates };
        }
        self.part.as_ref().map_or(self.done, |part| self.done.plus(Effort::of(&part.task)))
    }

    /// Whether it goes over what is stored, and waits for nothing.
    pub fn is_of_stored(&self) -> bool {
        self.sync.is_none() && self.gate.is_none()
    }

    /// Whether its next candidate is more work than others should wait for.
    pub fn is_dear(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.task.is_dear())
    }

    /// One slice of such a search, on any thread; the result when it is done.
    pub(crate) fn slice_of_stored(&mut self, server: &Server, out: &mut Vec<u8>) -> Option<End> {
        self.step_parts(server, out)
    }

    /// Goes on for one slice.
    pub fn step(&mut self, server: &Server, out: &mut Vec<u8>) -> Slice {
        if let Some(sync) = &mut self.sync {
            return sync.step(server, out);
        }
        if let Some(gate) = &self.gate {
            if !gate.is_open(&server.clock) {
                return if gate.tells() { Slice::Waiting } else { Slice::More };
            }
            self.gate = None;
        }
        match self.step_parts(server, out) {
            Some((result, controls)) => Slice::Done(result, controls),
            None => Slice::More,
        }
    }

    /// The result when the search is done.
    fn step_parts(&mut self, server: &Server, out: &mut Vec<u8>) -> Option<End> {
        while let Some(part) = &mut self.part {
            let (result, controls) = match part.step(server, out) {
                Step::More | Step::Blocked => return None,
                Step::Done(result, controls) => (result, controls),
            };
            let (answered, limit) = (part.task.entries(), part.task.size_limit());
            self.done = self.done.plus(Effort::of(&part.task));
            self.part = self.later.pop().map(Box::new);
            if let (Some(limit), Some(next)) = (limit, &mut self.part) {
                next.task.limit_size(limit.saturating_sub(answered));
            }
            if let Some(pages) = &mut self.pages {
                match (pages.ended(result, controls, answered, self.part.is_some()), &mut self.part) {
                    (Next::GoOn(left), Some(next)) => next.task.limit_page(left),
                    (Next::GoOn(_), None) => break,
                    (Next::Answer(result, controls), _) => {
                        self.end = Some((result, controls));
                        break;
                    }
                }
                continue;
            }
            // What the first database says holds: those glued below only add entries, and may have none yet. Any other
            // error ends the search.
            let empty = self.end.is_some() && result.code == ResultCode::NO_SUCH_OBJECT;
            if self.end.is_none() || !(result.is_success() || empty) {
                let failed = !result.is_success();
                self.end = Some((result, controls));
                if failed {
                    break;
                }
            }
        }
        self.part = None;
        Some(self.end.take().unwrap_or_else(|| (LdapResult::success(), Vec::new())))
    }
}

impl Part {
    fn step(&mut self, server: &Server, out: &mut Vec<u8>) -> Step {
        if self.served.is_retired() {
            return Step::Done(LdapResult::with(ResultCode::UNAVAILABLE, REMOVED), Vec::new());
        }
        let budget = budget(server);
        let database = self.served.database();
        self.task.follow(database.current_policy());
        let mut slice = || -> Result<Step, Fault> {
            let snapshot = database.store().snapshot()?;
            let view = database.view(&snapshot)?;
            Ok(self.task.step(&view, out, budget))
        };
        slice().unwrap_or_else(|fault| Step::Done(failure(server, &fault), Vec::new()))
    }
}

pub(super) fn budget(server: &Server) -> Budget<'_> {
    let (candidates, nanos) = (SLICE_CANDIDATES, SLICE_NANOS);
    Budget { candidates, nanos, bytes: OUTPUT_HIGH, clock: &*server.clock }
}

pub(super) fn failure(server: &Server, fault: &Fault) -> LdapResult {
    server.log.notice(format_args!("search failed: {fault}"));
    LdapResult::with(ResultCode::OTHER, "internal error")
}

pub(super) fn start(
    databases: &Databases,
    server: &Server,
    subject: &Arc<Subject>,
    controls: RequestControls,
    request: &SearchRequest<'_>,
    at: (MessageId, Monotonic),
    out: &mut Vec<u8>,
) -> First {
    let Ok(mut base) = databases.schema().parse_dn(request.base) else {
        return First::ended((LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "invalid DN"), Vec::new()));
    };
    let mut request = *request;
    let mut controls = controls;
    // RFC 2696 section 3: what fits one page needs no pages.
    if let Some(values) = controls.values_mut() {
        let needed = |size| request.size_limit == 0 || size < request.size_limit;
        values.paged.take_if(|paged| !needed(paged.size));
    }
    let frontend = databases.directory().frontend();
    if base.is_root()
        && request.scope != Scope::Base
        && let Some((normal, text)) = &frontend.default_search_base
    {
        base = normal.clone();
        request.base = text;
    }
    let asked = controls.values_mut().and_then(|values| values.sync.take());
    let new = New { databases, server, subject, request: &request, at };
    if let Some(asked) = &asked
        && let Some(first) = sync::start_in_config(new, asked, &base)
    {
        return first;
    }
    if let Some(tree) = databases.tree(server, subject, &base, request.scope == Scope::Base) {
        if let Some(refused) = sync::refused(databases, asked.as_ref()) {
            return First::ended((refused, Vec::new()));
        }
        if let Err(refused) = server.config().global.request_limits.check_search(&request, &controls) {
            return First::ended((refused, Vec::new()));
        }
        let Found { result, entries } = tree.search(&base, &request, &controls, at.0, out);
        let effort = Effort { entries, candidates: entries };
        return First::Done { result, controls: Vec::new(), effort };
    }
    if let Some(asked) = asked {
        match sync::start(new, &asked, &controls, &base) {
            Ok(Some(first)) => return first,
            Ok(None) => {}
            Err(end) => return First::ended(*end),
        }
    }
    new.first_slice(controls, &base, out).unwrap_or_else(|end| First::ended(*end))
}

/// What the tasks of one search are made from.
#[derive(Copy, Clone)]
pub(super) struct New<'a> {
    pub(super) databases: &'a Databases,
    pub(super) server: &'a Server,
    pub(super) subject: &'a Arc<Subject>,
    pub(super) request: &'a SearchRequest<'a>,
    /// The message and when it came.
    at: (MessageId, Monotonic),
}

impl New<'_> {
    pub(super) fn message(&self) -> MessageId {
        self.at.0
    }

    fn first_slice(
        self,
        controls: RequestControls,
        base: &NormalDn,
        out: &mut Vec<u8>,
    ) -> Result<First, Box<End>> {
        let Self { databases, server, request, .. } = self;
        let directory = databases.directory();
        let Some(served) = directory.select(base) else {
            let missing = LdapResult::new(ResultCode::NO_SUCH_OBJECT);
            let elsewhere = directory.elsewhere(request.base, Some(request.scope), missing);
            return Err(Box::new((elsewhere, Vec::new())));
        };
        in_database(served.database().instance());
        let glued = glued(databases, request.scope, base);
        if !glued.is_empty() {
            let mut search = self.over_several(served, glued, controls, base)?;
            return Ok(match search.step_parts(server, out) {
                Some((result, controls)) => First::Done { result, controls, effort: search.effort() },
                None => First::Running(search),
            });
        }
        let gate = server.access_logs.gate(served, &server.clock);
        if let Some(gate) = gate {
            let part = Some(Box::new(self.part(served, controls, request.scope, base)?));
            let (later, done, gate) = (Vec::new(), Effort::default(), Some(gate));
            return Ok(First::Running(Search {
                part,
                later,
                pages: None,
                done,
                end: None,
                gate,
                sync: None,
            }));
        }
        // The usual case: one database, and no more to do after one slice.
        let fail = |fault: Fault| Box::new((failure(server, &fault), Vec::new()));
        let database = served.database();
        let snapshot = database.store().snapshot().map_err(|error| fail(error.into()))?;
        let view = database.view(&snapshot).map_err(fail)?;
        let mut task = self.task(served, &view, controls, request.scope, base)?;
        Ok(match task.step(&view, out, budget(server)) {
            Step::Done(result, controls) => First::Done { result, controls, effort: Effort::of(&task) },
            Step::More | Step::Blocked => {
                let part = Some(Box::new(Part { served: served.clone(), task }));
                First::Running(Search {
                    part,
                    later: Vec::new(),
                    pages: None,
                    done: Effort::default(),
                    end: None,
                    gate: None,
                    sync: None,
                })
            }
        })
    }

    fn over_several(
        self,
        served: &Arc<Served<LmdbStore>>,
        glued: Vec<(&Arc<Served<LmdbStore>>, NormalDn, Scope)>,
        controls: RequestControls,
        base: &NormalDn,
    ) -> Result<Search, Box<End>> {
        if controls.vlv.is_some() {
            let text = "VLV does not go over several databases";
            return Err(Box::new((LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text), Vec::new())));
        }
        let pages = controls.paged.as_ref().map(|asked| GluedPages::new(asked, glued.len() + 1));
        let pages = pages.transpose().map_err(|result| Box::new((result, Vec::new())))?;
        let begin = pages.as_ref().map_or(0, GluedPages::at);
        let paged = |number| pages.as_ref().map(|pages| pages.control(number));
        let mut later = Vec::new();
        for (at, (served, suffix, scope)) in glued.iter().enumerate().rev().filter(|(at, _)| *at + 1 >= begin)
        {
            // Sorting is the first database's: sorted answers cannot be merged here.
            let controls = controls.with(|values| (values.paged, values.sort) = (paged(at + 1), None));
            later.push(self.part(served, controls, *scope, suffix)?);
        }
        if begin == 0 {
            let paged = paged(0).or_else(|| controls.paged.clone());
            let controls = controls.with(|values| values.paged = paged);
            later.push(self.part(served, controls, self.request.scope, base)?);
        }
        let first = later.pop().map(Box::new);
        Ok(Search { part: first, later, pages, done: Effort::default(), end: None, gate: None, sync: None })
    }

    fn part(
        self,
        served: &Arc<Served<LmdbStore>>,
        controls: RequestControls,
        scope: Scope,
        base: &NormalDn,
    ) -> Result<Part, Box<End>> {
        Ok(Part { served: served.clone(), task: self.task_in(served, controls, scope, base)? })
    }

    pub(super) fn task_in(
        self,
        served: &Served<LmdbStore>,
        controls: RequestControls,
        scope: Scope,
        base: &NormalDn,
    ) -> Result<SearchTask, Box<End>> {
        let fail = |fault: Fault| Box::new((failure(self.server, &fault), Vec::new()));
        let snapshot = served.database().store().snapshot().map_err(|error| fail(error.into()))?;
        let view = served.database().view(&snapshot).map_err(fail)?;
        self.task(served, &view, controls, scope, base)
    }

    fn task<N: Snapshot>(
        self,
        served: &Served<LmdbStore>,
        view: &View<'_, N>,
        controls: RequestControls,
        scope: Scope,
        base: &NormalDn,
    ) -> Result<SearchTask, Box<End>> {
        let Self { databases, server, subject, .. } = self;
        let database = served.database();
        let fail = |fault: Fault| Box::new((failure(server, &fault), Vec::new()));
        let policy = database.current_policy();
        let own_limits = own_limits(databases, &policy, view, subject, base).map_err(fail)?;
        let referrals = &databases.default_referrals;
        let input = SearchInput {
            message: self.at.0,
            request: SearchRequest { scope, ..*self.request },
            base: base.clone(),
            controls,
            limits: own_limits,
            subject: subject.clone(),
            policy,
            default_referrals: (!referrals.is_empty()).then(|| referrals.clone()),
            cookie_secret: *database.cookie_secret(),
            now: self.at.1,
        };
        SearchTask::new(view, input).map_err(Box::new)
    }
}

/// The subordinate databases that a search goes on in, each with its suffix and the scope it has there.
pub(super) fn glued<'d>(
    databases: &'d Databases,
    scope: Scope,
    base: &NormalDn,
) -> Vec<(&'d Arc<Served<LmdbStore>>, NormalDn, Scope)> {
    let mut found = Vec::new();
    for served in databases.directory().glued_below(base) {
        for suffix in &served.database().current_settings().suffixes {
            let within = match scope {
                Scope::Base => None,
                Scope::OneLevel if suffix.normal.parent().is_some_and(|p| p == *base) => Some(Scope::Base),
                Scope::OneLevel => None,
                Scope::Subtree | Scope::Children => Some(Scope::Subtree),
            };
            if let Some(within) = within.filter(|_| suffix.normal.is_descendant_of(base)) {
                found.push((served, suffix.normal.clone(), within));
            }
        }
    }
    found
}

/// Runs the search of an LDAP URL to its end: who it finds, up to `limit`.
pub(super) fn identities(
    databases: &Databases,
    server: &Server,
    subject: &Subject,
    url: &LdapUrl,
    limit: u32,
) -> Vec<NormalDn> {
    let schema = databases.schema();
    let Ok(base) = schema.parse_dn(&url.dn) else { return Vec::new() };
    let scope = url.scope.unwrap_or(Scope::Base);
    let filter = url.filter.as_ref();
    let filter = filter.map_or(BoundFilter::True, |filter| schema.bind_filter(filter.as_filter()));
    let Some(served) = databases.directory().select(&base) else { return Vec::new() };
    let mut found = Vec::new();
    for (served, base, scope) in
        std::iter::once((served, base.clone(), scope)).chain(glued(databases, scope, &base))
    {
        let left = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        let query = InternalSearch::for_identity(&base, scope, &filter, subject);
        match identities_in(databases, served, subject, &query, left, &mut found) {
            Ok(Ended::Complete | Ended::NoBase) => {}
            Ok(_) => break,
            Err(fault) => {
                failure(server, &fault);
                break;
            }
        }
    }
    found
}

/// The same in one database, within the limits that are the subject's there.
fn identities_in(
    databases: &Databases,
    served: &Served<LmdbStore>,
    subject: &Subject,
    query: &InternalSearch<'_>,
    limit: u32,
    found: &mut Vec<NormalDn>,
) -> Result<Ended, Fault> {
    let database = served.database();
    let snapshot = database.store().snapshot()?;
    let view = database.view(&snapshot)?;
    let policy = database.current_policy();
    let limits = own_limits(databases, &policy, &view, subject, query.base)?;
    let asked = Asked { size: limit, ..Asked::default() };
    let Ok(limits) = effective(limits.as_ref(), asked) else { return Ok(Ended::TooMuchWork) };
    let limits = InternalLimits {
        entries: limits.size.map_or(u64::MAX, u64::from),
        unchecked: limits.unchecked,
        ..InternalLimits::default()
    };
    let searched = internal::search(&view, &policy, &query.within(limits), &mut |entry| {
        found.push(entry.dn()?.clone());
        Ok(true)
    })?;
    Ok(searched.ended)
}

/// The limits of a search of this base; `None` for the root DN.
fn own_limits<N: Snapshot>(
    databases: &Databases,
    policy: &AccessPolicy,
    view: &View<'_, N>,
    subject: &Subject,
    base: &NormalDn,
) -> Result<Option<Limits>, Fault> {
    if policy.is_root(subject) {
        return Ok(None);
    }
    let rules = databases.section(base).map_or(&[][..], |section| &section.limits);
    limits::of_subject(rules, view.settings.limits, subject, base, view).map(Some)
}
