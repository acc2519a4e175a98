//! A search that a target answers. If neither rules nor the schema can change an entry, its bytes go on as they came.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larix_backend::{Cursor, Effort, ReadRights, StepOutcome, lowered};
use larix_engine::access::AccessPolicy;
use larix_engine::controls::RequestControls;
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::{
    ControlBuf, DerefAliases, Filter, FilterBuf, LdapResult, MessageId, Response, ResultCode, Scope, client,
    frames, limits, oid,
};
use larix_schema::{NormalDn, Schema};

use crate::absolute;
use crate::cookie;
use crate::identity::Asker;
use crate::job::{ANY, Feed, FeedEnd, FeedItem, Job, Sink, Sorting};
use crate::pages::Pages;
use crate::proxy::Proxy;
use crate::request::{RequestContext, encoded};
use crate::settings::Kind;
use crate::shared::Command;

/// A search as a target is to be asked.
pub(crate) struct OutgoingSearch<'a> {
    pub(crate) base: &'a str,
    pub(crate) normal: &'a NormalDn,
    pub(crate) scope: Scope,
    pub(crate) deref: DerefAliases,
    /// Entries; 0: no limit.
    pub(crate) size_limit: u32,
    /// Seconds; 0: no limit.
    pub(crate) time_limit: u32,
    pub(crate) types_only: bool,
    pub(crate) filter: Filter<'a>,
    pub(crate) attributes: &'a [&'a str],
    pub(crate) controls: &'a RequestControls,
    /// The message that entries answer.
    pub(crate) message: MessageId,
}

impl<'a> OutgoingSearch<'a> {
    /// A search of this server's own for one entry, without limits.
    pub(crate) fn own(
        (base, normal): (&'a str, &'a NormalDn),
        filter: Filter<'a>,
        attributes: &'a [&'a str],
        controls: &'a RequestControls,
    ) -> Self {
        Self {
            base,
            normal,
            scope: Scope::Base,
            deref: DerefAliases::Never,
            size_limit: 0,
            time_limit: 0,
            types_only: false,
            filter,
            attributes,
            controls,
            message: MessageId(1),
        }
    }
}

/// Looks at entries before they go on.
#[derive(Debug)]
pub(crate) struct Judge {
    rights: ReadRights,
    /// Where entries may be; none where aliases lead elsewhere.
    within: Option<(NormalDn, Scope)>,
    /// The rules or the schema have a say in what is shown.
    filters: bool,
}

impl Judge {
    pub(crate) fn new(
        proxy: &Proxy,
        (schema, policy): (&Arc<Schema>, &Arc<AccessPolicy>),
        asker: &Asker,
        outgoing: &OutgoingSearch<'_>,
    ) -> Self {
        let rights = ReadRights {
            schema: Arc::clone(schema),
            policy: Arc::clone(policy),
            subject: Arc::clone(&asker.subject),
            types_only: outgoing.types_only,
        };
        Self {
            filters: proxy.settings.omit_unknown_schema || !rights.are_all(),
            rights,
            within: (outgoing.deref == DerefAliases::Never)
                .then(|| (outgoing.normal.clone(), outgoing.scope)),
        }
    }

    /// Appends a message, or what may be seen of it; whether an entry was added.
    ///
    /// # Errors
    /// An entry outside the base.
    fn pass(&self, message: &[u8], out: &mut Vec<u8>) -> Result<bool, ()> {
        let Some(dn) = Response::entry_name(message) else {
            out.extend_from_slice(message);
            return Ok(false);
        };
        if let Some((base, scope)) = &self.within
            && !is_in_scope_as_written(dn, base.as_str(), *scope)
            && self.rights.schema.parse_dn(dn).is_ok_and(|dn| !dn.is_in_scope(base, *scope))
        {
            return Err(());
        }
        if !self.filters {
            out.extend_from_slice(message);
            return Ok(true);
        }
        Ok(self.rights.filter(message, out).is_some())
    }
}

/// Whether a name is in a scope by its text alone: most names end as the base is written, and have not to be understood.
fn is_in_scope_as_written(dn: &str, base: &str, scope: Scope) -> bool {
    let is_base = matches!(scope, Scope::Base | Scope::Subtree) && dn == base;
    let above = || dn.strip_suffix(base).and_then(|above| above.strip_suffix(','));
    // A comma behind a backslash is part of a value.
    is_base || scope == Scope::Subtree && above().is_some_and(|above| !above.ends_with('\\'))
}

/// A search under way.
#[derive(Debug)]
pub(crate) struct TargetCursor {
    proxy: Arc<Proxy>,
    feed: Arc<Feed>,
    judge: Judge,
    deadline: Option<Monotonic>,
    stage: Stage,
    sent: u64,
    size_limit: Option<u32>,
    /// The answer is read page by page, which the client does not see.
    pages: Option<Box<Pages>>,
    follower: Option<Arc<Follower>>,
}

#[derive(Debug)]
enum Stage {
    /// Not asked yet: limits may still be lowered.
    Prepared(Box<Job>),
    /// Asked, by this number.
    Sent(u64),
    Ended,
}

impl TargetCursor {
    /// Nothing is sent before its first slice.
    ///
    /// # Errors
    /// A request that has come through too many proxies; somebody who may not be asserted.
    pub(crate) fn new(
        proxy: &Arc<Proxy>,
        asker: &Asker,
        outgoing: &OutgoingSearch<'_>,
        judge: Judge,
    ) -> Result<Self, LdapResult> {
        let request_context = proxy.request_context(asker, outgoing.controls.hops, Kind::Search)?;
        let controls = proxy.controls(&request_context, outgoing.controls);
        let written_out =
            if proxy.settings.absolute_filters { None } else { absolute::written_out(outgoing.filter) };
        let search = client::Search {
            base: outgoing.base,
            scope: outgoing.scope,
            deref: outgoing.deref,
            size_limit: outgoing.size_limit,
            time_limit: outgoing.time_limit,
            types_only: outgoing.types_only,
            filter: written_out.as_ref().map_or(outgoing.filter, FilterBuf::as_filter),
            attributes: outgoing.attributes,
        };
        let pages = Pages::new((proxy.settings.paging, outgoing.scope), outgoing.controls, &controls, || {
            encoded(|out| client::search(out, ANY, &search, &[]))
        });
        let body = match &pages {
            Some(pages) => pages.first(),
            None => encoded(|out| client::search(out, ANY, &search, &controls)),
        };
        let deadline = asker.began.with_limit(outgoing.time_limit);
        let patience =
            request_context.until.map(|until| Duration::from_nanos(until.0.saturating_sub(asker.began.0)));
        let feed = Arc::<Feed>::default();
        let request_context = RequestContext { until: deadline, ..request_context };
        let mut job = request_context.job(body.into(), true, Sink::Feed(FeedEnd(Arc::clone(&feed))));
        job.patience = patience;
        job.message = outgoing.message;
        job.entries_max = (outgoing.size_limit > 0).then_some(outgoing.size_limit);
        job.page = match (&outgoing.controls.paged, &pages) {
            (Some(paged), _) => Some(cookie::split(&paged.cookie).0),
            (None, Some(pages)) => pages.first_page(),
            (None, None) => None,
        };
        job.sorting = match (&outgoing.controls.vlv, &outgoing.controls.sort) {
            (Some(_), _) => Sorting::Part,
            (None, Some(_)) => Sorting::Whole,
            (None, None) => Sorting::None,
        };
        let size_limit = job.entries_max;
        let (proxy, stage) = (Arc::clone(proxy), Stage::Prepared(Box::new(job)));
        Ok(Self { proxy, feed, judge, deadline, stage, sent: 0, size_limit, pages, follower: None })
    }

    /// Lets the target be silent for so long, unless its settings say how long it may.
    pub(crate) fn be_patient_at_most(&mut self, time: Duration) {
        if let Stage::Prepared(job) = &mut self.stage {
            job.patience.get_or_insert(time);
        }
    }

    /// Has the thread of the connections end it by this moment of the monotonic clock.
    pub(crate) fn end_by(&mut self, deadline: Duration) {
        if let Stage::Prepared(job) = &mut self.stage {
            job.deadline = Some(job.deadline.map_or(deadline, |own| own.min(deadline)));
        }
    }

    fn finish(&mut self, result: LdapResult) -> StepOutcome {
        self.stage = Stage::Ended;
        StepOutcome::Done(result, Vec::new())
    }

    /// Sends a request; a slice where the search ends here.
    fn ask(&mut self, job: Job) -> Option<StepOutcome> {
        match self.proxy.shared.submit(job) {
            Ok(number) => {
                self.stage = Stage::Sent(number);
                None
            }
            Err(not_taken) => Some(self.finish(not_taken.result)),
        }
    }

    /// The request for the page behind one that ended so, if there is one.
    fn next_page(&mut self, result: &LdapResult, controls: &[ControlBuf]) -> Result<Option<Job>, LdapResult> {
        let Some(pages) = &mut self.pages else { return Ok(None) };
        if result.code != ResultCode::SUCCESS {
            return Ok(None);
        }
        let feed = Arc::<Feed>::default();
        let job = pages.next(controls, self.sent, &feed)?;
        if job.is_some() {
            self.follower.iter().for_each(|follower| feed.follow(Arc::clone(follower)));
            self.feed = feed;
        }
        Ok(job)
    }

    /// Whether as many entries were sent as may be.
    fn is_full(&self) -> bool {
        self.size_limit.is_some_and(|limit| self.sent >= u64::from(limit))
    }

    /// Sends messages on; a result where the search ends here.
    fn pass(&mut self, messages: &[u8], out: &mut Vec<u8>) -> Option<LdapResult> {
        for message in frames(messages, limits::PDU_CEILING) {
            let before = out.len();
            match self.judge.pass(message, out) {
                Ok(true) if self.is_full() => {
                    out.truncate(before);
                    return Some(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED));
                }
                Ok(true) => self.sent += 1,
                Ok(false) => {}
                Err(()) => {
                    self.proxy.shared.counts.strays.fetch_add(1, Ordering::Relaxed);
                    // The answer may have ended already: what is known is the connection.
                    self.proxy.shared.command(Command::Lied(self.feed.connection()));
                    let text = "the target answered with an entry outside the base";
                    return Some(LdapResult::with(ResultCode::OTHER, text));
                }
            }
        }
        None
    }
}

impl Cursor for TargetCursor {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Prepared(job) => {
                self.pages.iter_mut().for_each(|pages| pages.begin(&job));
                if let Some(end) = self.ask(*job) {
                    return end;
                }
            }
            stage => self.stage = stage,
        }
        while out.len() < budget.bytes {
            let (item, has_room) = self.feed.take();
            if let (true, Stage::Sent(number)) = (has_room, &self.stage) {
                self.proxy.shared.command(Command::HasRoom(*number));
            }
            match item {
                FeedItem::Message(messages) => {
                    if let Some(result) = self.pass(&messages, out) {
                        if let Stage::Sent(number) = self.stage {
                            self.proxy.shared.command(Command::GiveUp(number));
                        }
                        return self.finish(result);
                    }
                }
                FeedItem::Nothing => return StepOutcome::Waiting,
                FeedItem::End((result, mut controls)) => {
                    self.stage = Stage::Ended;
                    match self.next_page(&result, &controls) {
                        Ok(Some(job)) => match self.ask(job) {
                            Some(end) => return end,
                            None => continue,
                        },
                        Ok(None) => {}
                        Err(result) => return self.finish(result),
                    }
                    if self.pages.is_some() {
                        controls.retain(|control| control.oid != oid::PAGED_RESULTS);
                    }
                    // A server that passes requests on learns of no hops.
                    let controls = controls.into_iter().filter(|control| control.oid != oid::PROXY_HOPS);
                    return StepOutcome::Done(result, controls.collect());
                }
            }
        }
        StepOutcome::More
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.sent, candidates: self.sent }
    }

    fn waits(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        self.follower = Some(Arc::clone(&follower));
        self.feed.follow(follower);
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.deadline
    }

    fn size_limit(&self) -> Option<u32> {
        self.size_limit
    }

    fn limit_size(&mut self, entries: u32) {
        self.size_limit = lowered(self.size_limit, entries);
    }
}

impl Drop for TargetCursor {
    fn drop(&mut self) {
        if let Stage::Sent(number) = self.stage {
            self.proxy.shared.command(Command::GiveUp(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_in_scope_as_they_are_written() {
        let base = "dc=example,dc=com";
        for (dn, scopes) in [
            (base, vec![Scope::Base, Scope::Subtree]),
            ("cn=a,dc=example,dc=com", vec![Scope::Subtree]),
            ("cn=a\\2C,ou=b,dc=example,dc=com", vec![Scope::Subtree]),
            ("cn=a\\,dc=example,dc=com", vec![]),
            ("cn=adc=example,dc=com", vec![]),
            ("dc=Example,dc=com", vec![]),
            ("dc=com", vec![]),
            ("", vec![]),
        ] {
            let all = [Scope::Base, Scope::OneLevel, Scope::Subtree];
            let found: Vec<Scope> =
                all.into_iter().filter(|scope| is_in_scope_as_written(dn, base, *scope)).collect();
            assert_eq!(found, scopes, "{dn}");
        }
    }
}
