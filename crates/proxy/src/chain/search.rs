//! A search whose references are followed: the entries of other servers stand among those of the backend.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use larix_backend::{Cursor, Effort, End, Search, StepOutcome, lowered};
use larix_engine::access::AccessPolicy;
use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::ber::Reader;
use larix_proto::url::LdapUrl;
use larix_proto::{
    DerefAliases, FilterBuf, Frame, LdapResult, MessageId, Response, ResultCode, Scope, encode, frame, limits,
};

use super::behavior::{Behavior, Wish, cannot_chain};
use super::links::Links;
use super::{TRIES_MAX, is_referral};
use crate::identity::Asker;
use crate::request::referred;
use crate::search::{Judge, OutgoingSearch, TargetCursor};

/// The tag of a search reference (RFC 4511 section 4.5.3).
const REFERENCE: u8 = 0x73;
/// References that wait to be followed; what comes beyond goes to the client.
const WAITING_MAX: usize = 1024;
/// How long a server may say nothing, unless its settings say how long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the client has asked for.
#[derive(Debug)]
struct ClientSearch {
    base: String,
    scope: Scope,
    deref: DerefAliases,
    time_limit: u32,
    types_only: bool,
    filter: FilterBuf,
    attributes: Vec<String>,
    controls: RequestControls,
    message: MessageId,
}

/// A search under way.
#[derive(Debug)]
pub(super) struct Chained {
    links: Arc<Links>,
    asker: Asker,
    client_search: ClientSearch,
    behavior: Behavior,
    policy: Arc<AccessPolicy>,
    /// Until it has ended.
    inner: Option<Box<dyn Cursor>>,
    /// What the backend's part took.
    inner_effort: Effort,
    /// The server that is asked now.
    remote: Option<Remote>,
    waiting: VecDeque<Reference>,
    /// How the backend's part ended, until that is answered.
    end: Option<End>,
    follower: Option<Arc<Follower>>,
    /// Entries of other servers.
    remote_entries: u64,
    size_limit: Option<u32>,
}

/// Where a referral came from.
#[derive(Debug)]
enum Origin {
    /// It was the result.
    Result(Box<End>),
    /// It stood among the entries.
    Continuation(Vec<String>),
}

/// A referral that is to be followed.
#[derive(Debug)]
struct Reference {
    urls: VecDeque<String>,
    origin: Origin,
    /// Referrals that have led here, with this one.
    depth: u32,
    tries: usize,
    /// What went wrong first.
    failure: Option<LdapResult>,
}

#[derive(Debug)]
struct Remote {
    cursor: TargetCursor,
    reference: Reference,
}

impl Reference {
    fn to(urls: &[String], origin: Origin, depth: u32) -> Self {
        Self { urls: urls.iter().cloned().collect(), origin, depth, tries: 0, failure: None }
    }
}

impl Chained {
    pub(super) fn new(
        links: Arc<Links>,
        asker: Asker,
        search: &Search<'_>,
        behavior: Behavior,
        policy: Option<Arc<AccessPolicy>>,
    ) -> Self {
        let request = &search.request;
        let client_search = ClientSearch {
            base: request.base.to_owned(),
            scope: request.scope,
            deref: request.deref,
            time_limit: request.time_limit,
            types_only: request.types_only,
            filter: request.filter.to_owned(),
            attributes: request.attributes.iter().map(str::to_owned).collect(),
            controls: search.controls.clone(),
            message: search.message,
        };
        let policy = policy.unwrap_or_else(|| Arc::clone(&links.open_policy));
        Self {
            links,
            asker,
            client_search,
            behavior,
            policy,
            inner: None,
            inner_effort: Effort::default(),
            remote: None,
            waiting: VecDeque::new(),
            end: None,
            follower: None,
            remote_entries: 0,
            size_limit: (request.size_limit > 0).then_some(request.size_limit),
        }
    }

    /// What the backend answers, with what its references lead to.
    pub(super) fn around(mut self, inner: Box<dyn Cursor>) -> Self {
        self.size_limit = inner.size_limit().or(self.size_limit);
        self.inner = Some(inner);
        self
    }

    /// What is answered where the backend has answered with a referral alone.
    pub(super) fn instead_of(mut self, end: End) -> Self {
        self.inner_ended(end);
        self
    }

    fn inner_ended(&mut self, end: End) {
        if self.behavior.resolve.follows() && is_referral(&end.0) {
            let urls = end.0.referrals.clone();
            self.waiting.push_back(Reference::to(&urls, Origin::Result(Box::new(end)), 1));
        } else {
            self.end = Some(end);
        }
    }

    /// Whether references among entries are followed: a sorted answer or a part of one is no longer that with other entries in it.
    fn continues(&self) -> bool {
        let controls = &self.client_search.controls;
        self.behavior.continuation.follows() && controls.sort.is_none() && controls.vlv.is_none()
    }

    /// Takes the references that are to be followed out of what was answered from `start` on.
    fn take_references(&mut self, out: &mut Vec<u8>, start: usize, depth: u32) {
        if depth > self.links.depth_max || !self.continues() {
            return;
        }
        let (mut kept, mut at) = (start, start);
        while let Some(Ok(Frame::Complete { len })) =
            out.get(at..).map(|rest| frame(rest, limits::PDU_CEILING))
        {
            let urls = out.get(at..at + len).and_then(urls_of);
            match urls.filter(|_| self.waiting.len() < WAITING_MAX) {
                Some(urls) => {
                    let origin = Origin::Continuation(urls.clone());
                    self.waiting.push_back(Reference::to(&urls, origin, depth));
                }
                None => {
                    if kept != at {
                        out.copy_within(at..at + len, kept);
                    }
                    kept += len;
                }
            }
            at += len;
        }
        if kept != at {
            out.truncate(kept);
        }
    }

    /// Asks the next server that a reference names, or gives it up.
    fn follow(&mut self, mut reference: Reference, out: &mut Vec<u8>) -> Option<StepOutcome> {
        while let Some(text) = reference.urls.pop_front() {
            if reference.tries >= TRIES_MAX {
                break;
            }
            reference.tries += 1;
            match self.open(&text, &reference) {
                Ok(cursor) => {
                    self.inner.iter_mut().for_each(|inner| inner.pause());
                    self.remote = Some(Remote { cursor, reference });
                    return None;
                }
                Err(why) if self.is_loop(&why) => return Some(self.finish(why)),
                Err(why) => {
                    reference.failure.get_or_insert(why);
                }
            }
        }
        self.give_up(reference, out)
    }

    fn open(&self, text: &str, reference: &Reference) -> Result<TargetCursor, LdapResult> {
        let other = |why: String| LdapResult::with(ResultCode::OTHER, why);
        let url = LdapUrl::parse(text).map_err(|_| other(format!("`{text}` is no URL to follow")))?;
        let proxy = self.links.to(&url).map_err(|why| LdapResult::with(ResultCode::UNAVAILABLE, why))?;
        let client_search = &self.client_search;
        let base = if url.dn.is_empty() { client_search.base.as_str() } else { &url.dn };
        let normal = self.links.schema.parse_dn(base).map_err(|_| other(format!("`{base}` is no DN")))?;
        // RFC 4511 section 4.5.3: what is below one level of a search of one level is the entry itself.
        let own_scope = match (&reference.origin, client_search.scope) {
            (Origin::Continuation(_), Scope::OneLevel) => Scope::Base,
            (_, scope) => scope,
        };
        let filter = url.filter.as_ref().filter(|filter| **filter != FilterBuf::every_entry());
        let attributes: Vec<&str> = client_search.attributes.iter().map(String::as_str).collect();
        let remaining = self.size_limit.map(|limit| u64::from(limit).saturating_sub(self.entries()));
        let remaining = remaining.map(|remaining| u32::try_from(remaining).unwrap_or(u32::MAX));
        // What is asserted of the base was judged where that is.
        let controls = &client_search.controls;
        let is_judged = controls.assertion.is_some() && matches!(reference.origin, Origin::Continuation(_));
        let hops = referred(controls.hops, reference.depth);
        let changed = (is_judged || hops != controls.hops).then(|| {
            controls.with(|values: &mut ControlValues| {
                values.hops = hops;
                if is_judged {
                    values.leave_assertion_out();
                }
            })
        });
        let outgoing = OutgoingSearch {
            base,
            normal: &normal,
            scope: url.scope.unwrap_or(own_scope),
            deref: client_search.deref,
            // One more than none tells whether there would be more.
            size_limit: remaining.map_or(0, |remaining| remaining.max(1)),
            time_limit: client_search.time_limit,
            types_only: client_search.types_only,
            filter: filter.unwrap_or(&client_search.filter).as_filter(),
            attributes: &attributes,
            controls: changed.as_ref().unwrap_or(controls),
            message: client_search.message,
        };
        let judge = Judge::new(&proxy, (&self.links.schema, &self.policy), &self.asker, &outgoing);
        let mut cursor = TargetCursor::new(&proxy, &self.asker, &outgoing, judge)?;
        cursor.be_patient_at_most(PATIENCE);
        remaining.into_iter().for_each(|remaining| cursor.limit_size(remaining));
        if let Some(follower) = &self.follower {
            cursor.follow(Arc::clone(follower));
        }
        Ok(cursor)
    }

    /// No server that a reference names could be asked: the client has it. A slice where the search ends with it.
    fn give_up(&mut self, reference: Reference, out: &mut Vec<u8>) -> Option<StepOutcome> {
        match reference.origin {
            Origin::Continuation(_) if self.behavior.continuation == Wish::ChainingRequired => {
                Some(self.finish(cannot_chain()))
            }
            Origin::Continuation(urls) => {
                encode::search_reference(out, self.client_search.message, &urls, &[]);
                None
            }
            Origin::Result(_) if self.behavior.resolve == Wish::ChainingRequired => {
                Some(self.finish(cannot_chain()))
            }
            Origin::Result(end) => {
                let failure = reference.failure.filter(|_| self.links.return_error);
                self.end = Some(failure.map_or(*end, |failure| (failure, Vec::new())));
                None
            }
        }
    }

    /// Whether proxies ask each other in a loop, and one of them has asked for this search: it would follow a reference that it gets
    /// back once more, as would each before it.
    fn is_loop(&self, result: &LdapResult) -> bool {
        result.code == ResultCode::LOOP_DETECT && self.client_search.controls.hops > 0
    }

    fn finish(&mut self, result: LdapResult) -> StepOutcome {
        self.drop_inner();
        self.waiting.clear();
        StepOutcome::Done(result, Vec::new())
    }

    fn drop_inner(&mut self) {
        if let Some(inner) = self.inner.take() {
            self.inner_effort = inner.effort();
        }
    }

    /// A server has answered.
    fn remote_ended(&mut self, (result, controls): End, out: &mut Vec<u8>) -> Option<StepOutcome> {
        let Remote { cursor, mut reference } = self.remote.take()?;
        let sent = cursor.effort().entries;
        self.remote_entries += sent;
        drop(cursor);
        let is_full = self.size_limit.is_some_and(|limit| self.entries() >= u64::from(limit));
        if (result.code == ResultCode::SIZE_LIMIT_EXCEEDED && is_full) || self.is_loop(&result) {
            return Some(self.finish(result));
        }
        // The limit holds for all of them together.
        if let (Some(inner), Some(limit)) = (&mut self.inner, self.size_limit) {
            let remote = u32::try_from(self.remote_entries).unwrap_or(u32::MAX);
            inner.limit_size(limit.saturating_sub(remote));
        }
        if is_referral(&result) && reference.depth < self.links.depth_max {
            reference.depth += 1;
            reference.urls = result.referrals.into();
            self.waiting.push_front(reference);
            return None;
        }
        let is_good = result.code == ResultCode::SUCCESS;
        match &reference.origin {
            Origin::Continuation(_) if is_good => None,
            Origin::Result(_) if is_good || result.code == ResultCode::REFERRAL => {
                self.end = Some((result, controls));
                None
            }
            _ => {
                // Another server would answer the same entries once more.
                let may_go_on = sent == 0
                    && matches!(
                        result.code,
                        ResultCode::UNAVAILABLE | ResultCode::BUSY | ResultCode::ADMIN_LIMIT_EXCEEDED
                    );
                reference.failure.get_or_insert(result);
                if may_go_on && !reference.urls.is_empty() {
                    self.waiting.push_front(reference);
                    return None;
                }
                self.give_up(reference, out)
            }
        }
    }

    fn entries(&self) -> u64 {
        self.effort().entries
    }
}

/// The URLs of a search reference; none of another message.
fn urls_of(message: &[u8]) -> Option<Vec<String>> {
    let mut reader = Reader::new(message).sequence("LDAPMessage").ok()?;
    reader.unsigned("messageID").ok()?;
    let (tag, _) = reader.element("protocolOp").ok()?;
    if tag.0 != REFERENCE {
        return None;
    }
    match Response::decode_message(message).ok()?.response {
        Response::Reference(urls) => Some(urls.iter().map(str::to_owned).collect()),
        _ => None,
    }
}

impl Cursor for Chained {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        while out.len() < budget.bytes {
            if let Some(remote) = &mut self.remote {
                let start = out.len();
                let depth = remote.reference.depth + 1;
                let slice = remote.cursor.step(budget, out);
                self.take_references(out, start, depth);
                match slice {
                    StepOutcome::Done(result, controls) => {
                        if let Some(slice) = self.remote_ended((result, controls), out) {
                            return slice;
                        }
                    }
                    goes_on => return goes_on,
                }
            } else if let Some(reference) = self.waiting.pop_front() {
                if let Some(slice) = self.follow(reference, out) {
                    return slice;
                }
            } else if let Some((result, controls)) = self.end.take() {
                return StepOutcome::Done(result, controls);
            } else if let Some(inner) = &mut self.inner {
                let start = out.len();
                let slice = inner.step(budget, out);
                self.take_references(out, start, 1);
                match slice {
                    StepOutcome::Done(result, controls) => {
                        self.drop_inner();
                        self.inner_ended((result, controls));
                    }
                    goes_on if self.waiting.is_empty() => return goes_on,
                    _ => {}
                }
            } else {
                return StepOutcome::Done(LdapResult::success(), Vec::new());
            }
        }
        StepOutcome::More
    }

    fn effort(&self) -> Effort {
        let inner = self.inner.as_ref().map_or(self.inner_effort, |inner| inner.effort());
        let entries = self.remote_entries + self.remote.as_ref().map_or(0, |r| r.cursor.effort().entries);
        inner.plus(Effort { entries, candidates: entries })
    }

    fn waits(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(inner) = self.inner.as_mut().filter(|inner| inner.waits()) {
            inner.follow(Arc::clone(&follower));
        }
        self.follower = Some(follower);
    }

    fn deadline(&self) -> Option<Monotonic> {
        let own = self.asker.began.with_limit(self.client_search.time_limit);
        own.into_iter().chain(self.inner.as_ref().and_then(|inner| inner.deadline())).min()
    }

    fn pause(&mut self) {
        self.inner.iter_mut().for_each(|inner| inner.pause());
    }

    fn size_limit(&self) -> Option<u32> {
        self.size_limit
    }

    fn limit_size(&mut self, entries: u32) {
        self.size_limit = lowered(self.size_limit, entries);
        self.inner.iter_mut().for_each(|inner| inner.limit_size(entries));
    }

    fn limit_page(&mut self, entries: u32) {
        self.inner.iter_mut().for_each(|inner| inner.limit_page(entries));
    }
}
