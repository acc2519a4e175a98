//! What a request is answered with, when, and what becomes of the connection.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use larix_backend::{
    ClientHandle, Context, Cursor, Delayed, Delays, Done, Effort, Later, PendingAnswer, Reply, StepOutcome,
};
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Monotonic;
use larix_proto::{LdapResult, MessageId, ResponseOp, ResultCode, encode};

/// What an item, or an entry of the directory, says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) code: ResultCode,
    pub(super) text: String,
    pub(super) matched: String,
    /// URLs as configured.
    pub(super) referrals: Vec<String>,
    pub(super) sleep: Duration,
    pub(super) unsolicited: Option<Unsolicited>,
    pub(super) disconnect: Disconnect,
}

impl From<ResultCode> for Response {
    fn from(code: ResultCode) -> Self {
        Self {
            code,
            text: String::new(),
            matched: String::new(),
            referrals: Vec::new(),
            sleep: Duration::ZERO,
            unsolicited: None,
            disconnect: Disconnect::No,
        }
    }
}

/// A message with the number 0 that is sent in the place of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unsolicited {
    /// `0`: the usual result.
    pub(super) oid: String,
    pub(super) data: Option<Vec<u8>>,
}

/// Whether the connection is closed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Disconnect {
    #[default]
    No,
    /// Without an answer.
    Before,
    /// Behind the answer.
    After,
}

/// A response on its way to a client: after its time it does what else it has to do, and gives the result.
pub(super) struct Planned {
    response: Response,
    result: LdapResult,
    kind: ResponseOp,
    client: Box<dyn ClientHandle>,
}

impl Planned {
    pub(super) fn new(
        response: Response,
        result: LdapResult,
        kind: ResponseOp,
        context: &Context<'_>,
    ) -> Self {
        Self { response, result, kind, client: context.client.handle() }
    }

    /// The time that it takes.
    pub(super) fn sleep(&self) -> Duration {
        self.response.sleep
    }

    /// Sends what goes before the answer; the result, and who closes the connection behind it.
    fn carry_out(self) -> (LdapResult, Option<Box<dyn ClientHandle>>) {
        let Self { response, result, kind, client } = self;
        if response.disconnect == Disconnect::Before {
            return (LdapResult::new(ResultCode::UNANSWERED), Some(client));
        }
        let result = match &response.unsolicited {
            Some(Unsolicited { oid, data }) => {
                let mut message = Vec::new();
                match oid.as_str() {
                    "0" => encode::result(&mut message, MessageId(0), kind, &result, &[]),
                    _ => encode::extended_result(
                        &mut message,
                        MessageId(0),
                        &result,
                        Some(oid),
                        data.as_deref(),
                        &[],
                    ),
                }
                client.send(message);
                LdapResult::new(ResultCode::UNANSWERED)
            }
            None => result,
        };
        (result, (response.disconnect == Disconnect::After).then_some(client))
    }

    /// Answers now, or after the time that it takes.
    pub(super) fn reply<T: 'static>(
        self,
        delays: &Arc<Delays>,
        later: Later<'_, T>,
        make: fn(LdapResult) -> T,
    ) -> Reply<T> {
        if self.response.sleep.is_zero() && self.response.disconnect == Disconnect::No {
            return Reply::Now(make(self.carry_out().0));
        }
        Reply::Later(self.answer(delays, later(), make))
    }

    /// Calls `done` after the time that it takes.
    pub(super) fn answer<T: 'static>(
        self,
        delays: &Arc<Delays>,
        done: Done<T>,
        make: fn(LdapResult) -> T,
    ) -> PendingAnswer {
        let sleep = self.response.sleep;
        let work = move || {
            let (result, closing) = self.carry_out();
            done(make(result));
            // The connection answers first, then closes.
            if let Some(client) = closing {
                client.hang_up();
            }
        };
        wait(delays, sleep, Box::new(work))
    }
}

/// Does something after a time, which can be given up before; at once where too much waits.
pub(super) fn wait(delays: &Arc<Delays>, time: Duration, work: Box<dyn FnOnce() + Send>) -> PendingAnswer {
    if time.is_zero() {
        work();
        return PendingAnswer::default();
    }
    match delays.after(time, work) {
        Ok(delayed) => PendingAnswer { deadline: None, give_up: Some(Box::new(move || delayed.give_up())) },
        Err(work) => {
            work();
            PendingAnswer::default()
        }
    }
}

/// A search that waits, then goes on as another one, if there is one, and may be answered otherwise in the end.
pub(super) struct PlannedSearch {
    wait: Option<Wait>,
    inner: Option<Box<dyn Cursor>>,
    planned: Option<Planned>,
}

/// Until it is over.
struct Wait {
    delays: Arc<Delays>,
    time: Duration,
    is_over: Arc<AtomicBool>,
    delayed: Mutex<Option<Delayed>>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        let delayed = self.delayed.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(delayed) = delayed {
            delayed.give_up();
        }
    }
}

impl fmt::Debug for PlannedSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedSearch").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl PlannedSearch {
    /// The search `inner`, after a time; `planned` answers it if it succeeds, or if there is none.
    pub(super) fn cursor(
        delays: &Arc<Delays>,
        time: Duration,
        inner: Option<Box<dyn Cursor>>,
        planned: Option<Planned>,
    ) -> Box<dyn Cursor> {
        let wait = (!time.is_zero()).then(|| Wait {
            delays: Arc::clone(delays),
            time,
            is_over: Arc::default(),
            delayed: Mutex::new(None),
        });
        Box::new(Self { wait, inner, planned })
    }

    fn planned(&mut self) -> Option<LdapResult> {
        let (result, closing) = self.planned.take()?.carry_out();
        // The result is in the output when the connection hears of it.
        if let Some(client) = closing {
            client.hang_up();
        }
        Some(result)
    }
}

impl Cursor for PlannedSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if self.wait.as_ref().is_some_and(|wait| !wait.is_over.load(Ordering::Acquire)) {
            return StepOutcome::Waiting;
        }
        let Some(inner) = &mut self.inner else {
            return StepOutcome::Done(self.planned().unwrap_or_else(LdapResult::success), Vec::new());
        };
        match inner.step(budget, out) {
            StepOutcome::Done(result, controls) if result.is_success() => {
                StepOutcome::Done(self.planned().unwrap_or(result), controls)
            }
            goes_on => goes_on,
        }
    }

    fn effort(&self) -> Effort {
        self.inner.as_ref().map_or_else(Effort::default, |inner| inner.effort())
    }

    fn waits(&self) -> bool {
        self.wait.is_some() || self.inner.as_ref().is_some_and(|inner| inner.waits())
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(inner) = &mut self.inner {
            inner.follow(Arc::clone(&follower));
        }
        if let Some(wait) = &self.wait {
            let is_over = Arc::clone(&wait.is_over);
            let work = move || {
                is_over.store(true, Ordering::Release);
                follower.looks();
                follower.tell();
            };
            let delayed = wait.delays.after(wait.time, Box::new(work));
            let mut slot = wait.delayed.lock().unwrap_or_else(PoisonError::into_inner);
            match delayed {
                Ok(delayed) => *slot = Some(delayed),
                Err(work) => work(),
            }
        }
    }

    fn waits_for_changes(&self) -> bool {
        let is_over = self.wait.as_ref().is_none_or(|wait| wait.is_over.load(Ordering::Acquire));
        is_over && self.inner.as_ref().is_some_and(|inner| inner.waits_for_changes())
    }

    fn deadline(&self) -> Option<Monotonic> {
        self.inner.as_ref().and_then(|inner| inner.deadline())
    }

    fn pause(&mut self) {
        self.inner.iter_mut().for_each(|inner| inner.pause());
    }

    fn is_dear(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_dear())
    }

    fn size_limit(&self) -> Option<u32> {
        self.inner.as_ref().and_then(|inner| inner.size_limit())
    }

    fn limit_size(&mut self, entries: u32) {
        self.inner.iter_mut().for_each(|inner| inner.limit_size(entries));
    }

    fn limit_page(&mut self, entries: u32) {
        self.inner.iter_mut().for_each(|inner| inner.limit_page(entries));
    }
}
