//! Searches: answered from the cache, or by the remote server with the answer kept.

use std::sync::Arc;

use larix_backend::{Cursor, Effort, StepOutcome, lowered};
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::{Clock, Monotonic};
use larix_proto::{LdapResult, Response, ResultCode, SearchResultEntry, frames, limits};

use super::containment::Region;
use super::flights::Leading;
use super::projection::Projection;
use super::store::{Answer, Cache, CachedEntry, Query, Times};
use super::template::Settings;

/// A search that the cache answers.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) entries: Arc<[CachedEntry]>,
    pub(super) region: Region,
    pub(super) projection: Arc<Projection>,
    pub(super) size_limit: Option<u32>,
    next: usize,
    sent: u64,
}

impl Answering {
    pub(super) fn new(
        entries: Arc<[CachedEntry]>,
        region: Region,
        projection: Arc<Projection>,
        size_limit: Option<u32>,
    ) -> Self {
        Self { entries, region, projection, size_limit, next: 0, sent: 0 }
    }

    /// Whether any requester finds something: then the base is there, if it is another one than that of the cached search.
    pub(super) fn finds_any(&self) -> bool {
        self.entries.iter().any(|entry| {
            self.has(entry)
                && decoded(&entry.message, |found| {
                    self.projection
                        .entry_of(found)
                        .is_some_and(|known| self.projection.is_found(&entry.dn, &known))
                })
                .unwrap_or(false)
        })
    }

    fn has(&self, entry: &CachedEntry) -> bool {
        // Entries that aliases have led to are elsewhere, and are an answer to the same search alone.
        self.region.deref != larix_proto::DerefAliases::Never
            || entry.dn.is_in_scope(&self.region.base, self.region.scope)
    }

    /// Appends one entry, if it is found.
    ///
    /// # Errors
    /// What the search ends with.
    fn pass(&mut self, number: usize, out: &mut Vec<u8>) -> Result<(), LdapResult> {
        let Some(entry) = self.entries.get(number).filter(|entry| self.has(entry)) else { return Ok(()) };
        let Ok(message) = Response::decode_message(&entry.message) else { return Ok(()) };
        let Response::Entry(found) = &message.response else { return Ok(()) };
        let Some(known) = self.projection.entry_of(found) else { return Ok(()) };
        if !self.projection.may_find(&entry.dn, &known)? {
            return Ok(());
        }
        if self.size_limit.is_some_and(|limit| self.sent >= u64::from(limit)) {
            return Err(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED));
        }
        self.projection.write(found, out);
        self.sent += 1;
        Ok(())
    }
}

fn decoded<T>(message: &[u8], look: impl FnOnce(&SearchResultEntry<'_>) -> T) -> Option<T> {
    match Response::decode_message(message).ok()?.response {
        Response::Entry(found) => Some(look(&found)),
        _ => None,
    }
}

impl Cursor for Answering {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        for _ in 0..budget.candidates.max(1) {
            if self.next >= self.entries.len() {
                return StepOutcome::Done(LdapResult::success(), Vec::new());
            }
            if out.len() >= budget.bytes {
                break;
            }
            self.next += 1;
            if let Err(result) = self.pass(self.next - 1, out) {
                self.next = self.entries.len();
                return StepOutcome::Done(result, Vec::new());
            }
        }
        StepOutcome::More
    }

    fn effort(&self) -> Effort {
        Effort { entries: self.sent, candidates: self.next as u64 }
    }

    fn size_limit(&self) -> Option<u32> {
        self.size_limit
    }

    fn limit_size(&mut self, entries: u32) {
        self.size_limit = lowered(self.size_limit, entries);
    }
}

/// What it takes to keep an answer.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) cache: Arc<Cache>,
    pub(super) settings: Arc<Settings>,
    pub(super) query: Query,
    /// Changes that had gone through when it was begun.
    pub(super) changes: u64,
    pub(super) clock: Arc<dyn Clock>,
    /// Others wait for it; none: nobody does.
    pub(super) leading: Option<Leading>,
}

/// A search that the remote server answers, and whose answer is kept if it is whole.
#[derive(Debug)]
pub(super) struct Reading {
    inner: Box<dyn Cursor>,
    projection: Arc<Projection>,
    /// None: the answer is not kept.
    keeping: Option<Keeping>,
    collected: Vec<CachedEntry>,
    /// Room that is taken for them.
    reserved: usize,
    region: Region,
    /// What was known before, for when the remote server does not answer: entries wait until it has ended then.
    before: Option<Arc<[CachedEntry]>>,
    buffered: Vec<u8>,
    answering: Option<Box<Answering>>,
    size_limit: Option<u32>,
    /// There are more entries than the client wants.
    is_exceeded: bool,
    sent: u64,
    looked: u64,
    buffer: Vec<u8>,
}

impl Reading {
    pub(super) fn new(
        inner: Box<dyn Cursor>,
        projection: Arc<Projection>,
        keeping: Keeping,
        before: Option<Arc<[CachedEntry]>>,
        size_limit: Option<u32>,
    ) -> Self {
        Self {
            inner,
            projection,
            region: keeping.query.region.clone(),
            keeping: Some(keeping),
            collected: Vec::new(),
            reserved: 0,
            before,
            buffered: Vec::new(),
            answering: None,
            size_limit,
            is_exceeded: false,
            sent: 0,
            looked: 0,
            buffer: Vec::new(),
        }
    }

    /// The answer is not kept.
    fn give_up(&mut self, out: &mut Vec<u8>) {
        if let Some(keeping) = self.keeping.take() {
            keeping.cache.release(self.reserved);
            self.reserved = 0;
        }
        self.collected = Vec::new();
        self.before = None;
        out.append(&mut self.buffered);
    }

    /// Whether one more entry can be kept.
    fn collect(&mut self, entry: CachedEntry) -> bool {
        let Some(keeping) = &self.keeping else { return false };
        let (settings, bytes) = (&keeping.settings, entry.bytes());
        // An answer takes an eighth of the whole at most.
        if self.collected.len() >= settings.answer_entries_max as usize
            || self.reserved + bytes > settings.bytes_max / 8
            || !keeping.cache.reserve(bytes, settings)
        {
            return false;
        }
        self.reserved += bytes;
        self.collected.push(entry);
        true
    }

    /// Passes one message on.
    ///
    /// # Errors
    /// What the search ends with.
    fn pass(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), LdapResult> {
        let decoded = Response::decode_message(message).ok();
        let Some((Response::Entry(found), controls)) =
            decoded.as_ref().map(|decoded| (&decoded.response, &decoded.controls))
        else {
            // A reference: what is behind it is not known here.
            self.give_up(out);
            out.extend_from_slice(message);
            return Ok(());
        };
        self.looked += 1;
        let known = self.projection.schema.parse_dn(found.dn).ok().zip(self.projection.entry_of(found));
        // What is not found here by the same filter cannot be answered from here.
        let known = known.filter(|(dn, entry)| self.projection.is_found(dn, entry));
        let is_shown = match &known {
            Some((dn, entry)) => self.projection.may_find(dn, entry)?,
            None => true,
        };
        let is_kept = known.is_some_and(|(dn, _)| {
            controls.iter().next().is_none() && self.collect(CachedEntry { dn, message: message.into() })
        });
        if !is_kept {
            self.give_up(out);
        }
        if !is_shown {
            return Ok(());
        }
        if self.size_limit.is_some_and(|limit| self.sent >= u64::from(limit)) {
            self.is_exceeded = true;
            return Ok(());
        }
        let buffered = if self.before.is_some() { &mut self.buffered } else { out };
        self.projection.write(found, buffered);
        self.sent += 1;
        Ok(())
    }

    fn end(
        &mut self,
        result: LdapResult,
        controls: Vec<larix_proto::ControlBuf>,
        out: &mut Vec<u8>,
    ) -> StepOutcome {
        let is_gone = matches!(result.code, ResultCode::UNAVAILABLE | ResultCode::BUSY);
        if let Some(before) = self.before.take().filter(|_| is_gone) {
            // Until it expires, what was known stands.
            self.buffered = Vec::new();
            self.give_up(out);
            return self.answer(before);
        }
        out.append(&mut self.buffered);
        if controls.is_empty() {
            self.keep(&result);
        }
        self.give_up(out);
        let is_cut = self.is_exceeded && result.code == ResultCode::SUCCESS;
        let result = if is_cut { LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED) } else { result };
        StepOutcome::Done(result, controls)
    }

    fn answer(&mut self, entries: Arc<[CachedEntry]>) -> StepOutcome {
        let projection = Arc::clone(&self.projection);
        let answering = Answering::new(entries, self.region.clone(), projection, self.size_limit);
        self.answering = Some(Box::new(answering));
        (self.sent, self.looked) = (0, 0);
        StepOutcome::More
    }

    /// Keeps the answer, if it is one that may be kept.
    fn keep(&mut self, result: &LdapResult) {
        let Some(keeping) = self.keeping.take() else { return };
        let entries = std::mem::take(&mut self.collected);
        keeping.cache.release(std::mem::take(&mut self.reserved));
        // Others look into the cache when the answer is there.
        let Keeping { cache, settings, query, changes, clock, leading: _leading } = keeping;
        let Some(template) = settings.templates.get(query.template) else { return };
        let (answer, ttl) = match result.code {
            ResultCode::SUCCESS if entries.is_empty() => {
                (Answer::Entries(entries.into()), template.negative_ttl)
            }
            ResultCode::SUCCESS => (Answer::Entries(entries.into()), template.ttl),
            ResultCode::SIZE_LIMIT_EXCEEDED if !entries.is_empty() => (Answer::TooMany, template.limit_ttl),
            ResultCode::NO_SUCH_OBJECT => return cache.forget_answer(&query),
            _ => return,
        };
        if ttl.is_zero() {
            return cache.forget_answer(&query);
        }
        let refresh = template.refresh.filter(|_| matches!(answer, Answer::Entries(_)));
        cache.insert(query, answer, Times { ttl, refresh }, (&settings, clock.monotonic(), changes));
    }

    fn finish(&mut self, result: LdapResult, out: &mut Vec<u8>) -> StepOutcome {
        self.give_up(out);
        StepOutcome::Done(result, Vec::new())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(keeping) = &self.keeping {
            keeping.cache.release(self.reserved);
        }
    }
}

impl Cursor for Reading {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if let Some(answering) = &mut self.answering {
            return answering.step(budget, out);
        }
        let room = budget.bytes.saturating_sub(out.len());
        let mut buffer = std::mem::take(&mut self.buffer);
        let slice = self.inner.step(Budget { bytes: room, ..budget }, &mut buffer);
        let passed = frames(&buffer, limits::PDU_CEILING).try_for_each(|message| self.pass(message, out));
        buffer.clear();
        self.buffer = buffer;
        match (passed, slice) {
            (Err(result), _) => self.finish(result, out),
            (Ok(()), StepOutcome::Done(result, controls)) => self.end(result, controls, out),
            // Nobody needs the rest.
            (Ok(()), _) if self.is_exceeded && self.keeping.is_none() => {
                self.finish(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED), out)
            }
            (Ok(()), slice) => slice,
        }
    }

    fn effort(&self) -> Effort {
        match &self.answering {
            Some(answering) => answering.effort(),
            None => Effort { entries: self.sent, candidates: self.looked },
        }
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        self.inner.follow(follower);
    }

    fn pause(&mut self) {
        // Others need not wait for a client that does not read.
        if let Some(keeping) = &mut self.keeping {
            keeping.leading = None;
        }
        self.inner.pause();
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.inner.deadline()
    }

    fn size_limit(&self) -> Option<u32> {
        self.size_limit
    }

    fn limit_size(&mut self, entries: u32) {
        self.size_limit = lowered(self.size_limit, entries);
    }
}
