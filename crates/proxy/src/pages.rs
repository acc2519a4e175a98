//! An answer that is read page by page where the client asks for no pages (RFC 2696; `client-pr` of slapd-meta(5)): for targets that
//! answer a limited number of entries at once.

use std::sync::Arc;

use larix_engine::controls::RequestControls;
use larix_proto::control::{self, ControlValue};
use larix_proto::{ControlBuf, LdapResult, ResultCode, Scope, client, oid};

use crate::cookie::{self, Page};
use crate::job::{ANY, Feed, FeedEnd, Job, Sink};
use crate::request::encoded;
use crate::settings::Paging;

/// Entries of a page behind a cookie that nobody asked for.
const UNSOLICITED_SIZE: u32 = 1000;
/// Pages without an entry, one after the other: a target that sends more has no end.
const EMPTY_MAX: u32 = 64;

/// The pages of one answer.
#[derive(Debug)]
pub(crate) struct Pages {
    paging: Paging,
    /// The search without controls.
    operation: Vec<u8>,
    controls: Vec<ControlBuf>,
    /// What the requests for all pages have alike.
    pattern: Option<Job>,
    /// Entries before the page that is being read.
    before: u64,
    empty: u32,
}

impl Pages {
    /// `None` if the answer is one piece: as the settings say, the client has pages of its own, or the search has no end.
    pub(crate) fn new(
        (paging, scope): (Paging, Scope),
        requested: &RequestControls,
        controls: &[ControlBuf],
        operation: impl FnOnce() -> Vec<u8>,
    ) -> Option<Box<Self>> {
        let is_whole = requested.paged.is_some()
            || requested.vlv.is_some()
            || requested.sync.is_some()
            || requested.persistent.is_some()
            || scope == Scope::Base;
        if is_whole || paging == Paging::Never {
            return None;
        }
        let (operation, controls) = (operation(), controls.to_vec());
        Some(Box::new(Self { paging, operation, controls, pattern: None, before: 0, empty: 0 }))
    }

    /// The request for the first page.
    pub(crate) fn first(&self) -> Vec<u8> {
        match self.paging {
            Paging::Never | Paging::Unsolicited => self.body(None),
            Paging::Pages(size) => self.body(Some((size.get(), &[]))),
        }
    }

    pub(crate) fn first_page(&self) -> Option<Page> {
        matches!(self.paging, Paging::Pages(_)).then_some(Page::First)
    }

    fn body(&self, page: Option<(u32, &[u8])>) -> Vec<u8> {
        let mut controls = self.controls.clone();
        // A target without pages answers all at once.
        controls.extend(page.map(|(size, cookie)| control::PagedResults { size, cookie }.to_control(false)));
        encoded(|out| client::encoded(out, ANY, &self.operation, &controls))
    }

    /// The requests for later pages are like `job`.
    pub(crate) fn begin(&mut self, job: &Job) {
        self.pattern = Some(job.with(Vec::new().into(), Sink::Feed(FeedEnd::default())));
    }

    /// The request for the page behind one that ended with `controls`, its answers to `feed`; `sent`: how many entries there were.
    /// `None` if that was the last one.
    ///
    /// # Errors
    /// One page after the other without an entry.
    pub(crate) fn next(
        &mut self,
        controls: &[ControlBuf],
        sent: u64,
        feed: &Arc<Feed>,
    ) -> Result<Option<Job>, LdapResult> {
        let answer = controls.iter().find(|control| control.oid == oid::PAGED_RESULTS);
        let page = answer.and_then(|answer| control::PagedResults::decode(answer.value.as_deref()).ok());
        let Some(cookie) = page.map(|page| page.cookie).filter(|cookie| !cookie.is_empty()) else {
            return Ok(None);
        };
        let Some(pattern) = &self.pattern else { return Ok(None) };
        let empty = if sent == self.before { self.empty + 1 } else { 0 };
        if empty > EMPTY_MAX {
            let text = format!("the target sent more than {EMPTY_MAX} pages without an entry");
            return Err(LdapResult::with(ResultCode::OTHER, text));
        }
        let size = match self.paging {
            Paging::Pages(size) => size.get(),
            Paging::Never | Paging::Unsolicited => UNSOLICITED_SIZE,
        };
        let (page, cookie) = cookie::split(cookie);
        let body = self.body(Some((size, cookie)));
        let mut job = pattern.with(body.into(), Sink::Feed(FeedEnd(Arc::clone(feed))));
        job.page = Some(page);
        (self.before, self.empty) = (sent, empty);
        Ok(Some(job))
    }
}
