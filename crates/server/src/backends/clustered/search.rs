//! A search of a database in a shared engine. Its first slice runs where it was asked, out of the cache. If that lacks anything,
//! and for all further slices, it goes to a thread of the node, and the cursor waits for it. Where this node is to read what is newest, an
//! answer out of the cache is [held back](HeldAnswer) until the engine confirms it.

use std::fmt;
use std::sync::Arc;

use larix_configuration::values::LimitRule;
use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::log::Follower;
use larix_engine::search::ahead::snapshot_for_search;
use larix_engine::search::task::{Budget, SearchTask, Step};
use larix_engine::time::Monotonic;
use larix_engine::{Database, Fault, View};
use larix_kv::{KvSnapshot, ReadFault, take_read_fault};
use larix_proto::{ControlBuf, Frame, LdapResult, Response, ResultCode, frame};
use larix_store::{ReadError, Snapshot, Store};

use super::held::{Answer, HeldAnswer, Outcome};
use super::mailbox::{MailboxContent, SharedMailbox};
use super::{AGAIN_MAX, ClusteredBackend, SharedDatabase, note, too_late};
use crate::access_log::Gate;
use crate::backends::engine_search::{self, FirstSlice};
use crate::backends::search_limits;
use crate::cluster::{Node, SharedStore, Turn};
use larix_backend::{
    Context, Cursor, Effort, End, First, KeptSearch, OUTPUT_HIGH, Search, StepOutcome, lowered,
};

/// How far a slice on a thread may go: nobody but its client waits for it.
pub(super) const SLICE_CANDIDATES: u32 = 8_192;
pub(super) const SLICE_NANOS: u64 = 20_000_000;

/// The search as it was asked.
pub(super) struct OwnedSearch {
    kept: KeptSearch,
    subject: Arc<Subject>,
    rules: Vec<LimitRule>,
    began: Monotonic,
    size_limit: Option<u32>,
    page_limit: Option<u32>,
}

/// What goes to a thread and comes back.
struct Work {
    handle: SharedDatabase,
    search_request: OwnedSearch,
    task: Option<Box<SearchTask>>,
    /// Whether the client was sent anything.
    has_answered: bool,
    again: usize,
}

/// A slice that a thread has finished.
struct FinishedSlice {
    work: Box<Work>,
    out: Vec<u8>,
    step: Step,
}

/// A search under way.
pub(super) struct ClusteredSearch {
    /// Of an access log: what is to be there before it begins.
    gate: Option<Gate<Arc<Node>>>,
    /// The whole answer, which the engine has to confirm.
    held: Option<Box<HeldAnswer>>,
    mailbox: SharedMailbox<FinishedSlice>,
    /// Here while no thread has it.
    work: Option<Box<Work>>,
    is_out: bool,
    /// What a slice has answered and the client has not taken yet.
    out: Vec<u8>,
    end: Option<(LdapResult, Vec<ControlBuf>)>,
    effort: Effort,
    size_limit: Option<u32>,
    /// What others have lowered that to, which a slice on a thread may not know yet.
    lowered: Option<u32>,
}

impl fmt::Debug for ClusteredSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusteredSearch").field("effort", &self.effort).finish_non_exhaustive()
    }
}

impl ClusteredBackend {
    /// The first slice of a search, out of the cache; none where the engine has to be asked.
    pub(super) fn search_at_hand(
        &self,
        context: &Context<'_>,
        search: &Search<'_>,
        out: &mut Vec<u8>,
    ) -> Option<First> {
        let began = out.len();
        let served = self.node().served()?;
        note(served);
        let database = served.database();
        let slice = database.store().at_hand(|| self.first_slice(database, context, search, out));
        // A thread meets the same fault, and says so.
        let Some(Ok(slice)) = slice else {
            out.truncate(began);
            return None;
        };
        Some(match slice {
            Err(end) => First::ended(*end),
            Ok(FirstSlice::Done { result, controls, effort }) => First::Done { result, controls, effort },
            Ok(FirstSlice::Running(task)) => {
                let mut search = self.begun(context, search)?;
                search.goes_on(task, out.len() > began);
                First::Running(Box::new(search))
            }
        })
    }

    /// The same where the engine has to be asked for nothing but whether that is still right, if no more slices follow.
    pub(super) fn search_as_known(
        &self,
        context: &Context<'_>,
        search: &Search<'_>,
        out: &mut Vec<u8>,
    ) -> Option<First> {
        let began = out.len();
        let served = self.node().served()?;
        note(served);
        let database = served.database();
        let slice = database.store().as_known(|| self.first_slice(database, context, search, out));
        let answer = out.split_off(began);
        let (as_of, Ok(slice)) = slice? else { return None };
        let (end, effort) = match slice {
            Err(end) => (*end, Effort::default()),
            Ok(FirstSlice::Done { result, controls, effort }) => ((result, controls), effort),
            Ok(FirstSlice::Running(_)) => return None,
        };
        let mut search = self.begun(context, search)?;
        let held = HeldAnswer::new(as_of, Answer { out: answer, end, effort });
        self.node().confirm(database.store(), held.waiter());
        search.held = Some(Box::new(held));
        Some(First::Running(Box::new(search)))
    }

    fn first_slice(
        &self,
        database: &Arc<Database<SharedStore>>,
        context: &Context<'_>,
        search: &Search<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Result<FirstSlice, Box<End>>, Fault> {
        let snapshot = database.store().snapshot()?;
        let view = database.view(&snapshot)?;
        let limits = search_limits::of_search(&view, &self.limits, context.subject, search.base)?;
        if let Some(effort) = engine_search::at_once(&view, context, search, limits.as_ref(), out) {
            let (result, controls) = (LdapResult::success(), Vec::new());
            return Ok(Ok(FirstSlice::Done { result, controls, effort }));
        }
        let own = (&*self.common, database);
        let copy = Search { controls: search.controls.clone(), ..*search };
        Ok(engine_search::first_slice(own, &view, context, copy, limits, out))
    }

    /// A search that outlives its request.
    fn begun(&self, context: &Context<'_>, search: &Search<'_>) -> Option<ClusteredSearch> {
        let handle = SharedDatabase::of(&self.cluster, &self.common).ok()?;
        let copy = Search { controls: search.controls.clone(), ..*search };
        Some(ClusteredSearch::new(handle, self.limits.clone(), context, copy))
    }
}

impl ClusteredSearch {
    pub(super) fn new(
        handle: SharedDatabase,
        rules: Vec<LimitRule>,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Self {
        let size_limit = (search.request.size_limit > 0).then_some(search.request.size_limit);
        let search_request = OwnedSearch::new(rules, context, search);
        let work = Work { handle, search_request, task: None, has_answered: false, again: 0 };
        Self {
            gate: None,
            held: None,
            mailbox: SharedMailbox::default(),
            work: Some(Box::new(work)),
            is_out: false,
            out: Vec::new(),
            end: None,
            effort: Effort::default(),
            size_limit,
            lowered: None,
        }
    }

    pub(super) fn waits_for(&mut self, gate: Option<Gate<Arc<Node>>>) {
        self.gate = gate;
    }

    /// Takes over a search that has been begun.
    fn goes_on(&mut self, task: Box<SearchTask>, has_answered: bool) {
        self.effort = engine_search::effort(&task);
        self.size_limit = task.size_limit();
        if let Some(work) = &mut self.work {
            work.task = Some(task);
            work.has_answered = has_answered;
        }
    }

    /// What has become of the answer that is held back; none where a thread is to make another one.
    fn look_at_held(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Option<StepOutcome> {
        match (*self.held.take()?).look() {
            Outcome::Waits(held) => {
                self.held = Some(Box::new(held));
                Some(StepOutcome::Waiting)
            }
            Outcome::Confirmed(Answer { out: mut answer, end: (result, controls), effort }) => {
                self.effort = effort;
                out.append(&mut answer);
                Some(StepOutcome::Done(result, controls))
            }
            Outcome::Overtaken => self.answer_anew(budget, out),
            Outcome::Refused(why) => {
                let result = self.work.as_ref().map(|work| work.handle.unconfirmed(why));
                Some(StepOutcome::Done(result.unwrap_or_else(LdapResult::internal_error), Vec::new()))
            }
        }
    }

    /// Answers out of the cache once more, now that the engine has told what is newest.
    fn answer_anew(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Option<StepOutcome> {
        let work = self.work.as_mut()?;
        let store = Arc::clone(work.handle.store());
        let began = out.len();
        let Some((_, Ok(step))) = store.as_known(|| work.try_slice(budget, out)) else {
            out.truncate(began);
            work.task = None;
            return None;
        };
        work.has_answered = out.len() > began;
        if let Some(task) = &work.task {
            self.effort = engine_search::effort(task);
            self.size_limit = task.size_limit();
        }
        Some(match step {
            Step::Done(result, controls) => StepOutcome::Done(result, controls),
            Step::More | Step::Blocked => StepOutcome::More,
        })
    }

    /// Has a thread run the next slice.
    fn send_out(&mut self) -> Result<(), LdapResult> {
        let Some(work) = self.work.take() else { return Err(LdapResult::new(ResultCode::OTHER)) };
        let node = Arc::clone(&work.handle.node);
        self.mailbox.send_out(&node.pool, move |turn| match turn {
            Turn::Go => work.slice(),
            Turn::Late => FinishedSlice { work, out: Vec::new(), step: Step::Done(too_late(), Vec::new()) },
        })?;
        self.is_out = true;
        Ok(())
    }

    /// Takes in what a thread has done; whether there is anything.
    fn take_in(&mut self) -> Option<Result<(), LdapResult>> {
        self.mailbox.looks();
        let slice = match self.mailbox.take() {
            MailboxContent::Slice(slice) => slice,
            MailboxContent::Nothing => return None,
            MailboxContent::Lost => return Some(Err(LdapResult::internal_error())),
        };
        self.is_out = false;
        let FinishedSlice { mut work, mut out, mut step } = *slice;
        let before = self.effort.entries;
        if let Some(task) = &work.task {
            self.effort = engine_search::effort(task);
        }
        if let Some(entries) = self.lowered {
            // The slice may have run under a higher limit.
            work.limit_size(entries);
            let left = u64::from(entries).saturating_sub(before);
            if self.effort.entries > u64::from(entries) && cut(&mut out, left) {
                self.effort.entries = before + left;
                step = Step::Done(LdapResult::new(ResultCode::SIZE_LIMIT_EXCEEDED), Vec::new());
            }
        }
        if let Some(task) = &work.task {
            self.size_limit = task.size_limit();
        }
        self.out = out;
        self.work = Some(work);
        if let Step::Done(result, controls) = step {
            self.end = Some((result, controls));
        }
        Some(Ok(()))
    }
}

impl Cursor for ClusteredSearch {
    fn step(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if let Some(answer) = Gate::closed(&mut self.gate).or_else(|| self.look_at_held(budget, out)) {
            return answer;
        }
        if self.is_out {
            match self.take_in() {
                None => return StepOutcome::Waiting,
                Some(Err(lost)) => {
                    self.is_out = false;
                    return StepOutcome::Done(lost, Vec::new());
                }
                Some(Ok(())) => {}
            }
        }
        out.append(&mut self.out);
        if let Some((result, controls)) = self.end.take() {
            return StepOutcome::Done(result, controls);
        }
        // Behind this the connection sends what there is before it asks for more.
        match self.send_out() {
            Ok(()) => StepOutcome::Waiting,
            Err(result) => StepOutcome::Done(result, Vec::new()),
        }
    }

    fn effort(&self) -> Effort {
        self.effort
    }

    fn waits(&self) -> bool {
        true
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(gate) = &mut self.gate {
            gate.follow(Arc::clone(&follower));
        }
        if let Some(held) = &self.held {
            held.follow(Arc::clone(&follower));
        }
        self.mailbox.follow(follower);
    }

    fn size_limit(&self) -> Option<u32> {
        self.size_limit
    }

    fn limit_size(&mut self, entries: u32) {
        // That was made without the limit.
        self.held = None;
        self.size_limit = lowered(self.size_limit, entries);
        self.lowered = lowered(self.lowered, entries);
        // Of what a thread has: when it comes back.
        if let Some(work) = &mut self.work {
            work.limit_size(entries);
        }
    }

    fn limit_page(&mut self, entries: u32) {
        self.held = None;
        if let Some(work) = &mut self.work {
            work.search_request.page_limit = Some(entries);
        }
    }
}

impl Drop for ClusteredSearch {
    fn drop(&mut self) {
        self.mailbox.give_up();
    }
}

/// Takes away the first entry that is one too many, and all behind it. False: there are no more than so many entries.
fn cut(out: &mut Vec<u8>, mut entries: u64) -> bool {
    let mut at = 0;
    loop {
        let rest = out.get(at..).unwrap_or_default();
        let Ok(Frame::Complete { len }) = frame(rest, usize::MAX / 2) else { return false };
        let message = rest.get(..len).and_then(|pdu| Response::decode_message(pdu).ok());
        // A reference to another server is no entry.
        if message.is_some_and(|message| matches!(message.response, Response::Entry(_))) {
            let Some(left) = entries.checked_sub(1) else {
                out.truncate(at);
                return true;
            };
            entries = left;
        }
        at += len;
    }
}

impl Work {
    /// At most so many entries, with those that were sent.
    fn limit_size(&mut self, entries: u32) {
        self.search_request.size_limit = lowered(self.search_request.size_limit, entries);
        if let Some(task) = &mut self.task {
            task.limit_size(entries);
        }
    }

    /// Runs a slice on this thread, which may wait for the engine.
    fn slice(mut self: Box<Self>) -> FinishedSlice {
        let mut out = Vec::new();
        loop {
            out.clear();
            take_read_fault();
            let clock = Arc::clone(&self.handle.common.services.clock);
            let budget = Budget {
                candidates: SLICE_CANDIDATES,
                nanos: SLICE_NANOS,
                bytes: OUTPUT_HIGH,
                clock: &*clock,
            };
            let step = self.try_slice(budget, &mut out);
            let trouble = match take_read_fault() {
                None => {
                    let step =
                        step.unwrap_or_else(|fault| Step::Done(self.handle.failure(&fault), Vec::new()));
                    self.has_answered |= !out.is_empty();
                    return FinishedSlice { work: self, out, step };
                }
                // From the beginning, as if it had not been begun.
                Some(ReadFault::Stale) if !self.has_answered && self.again < AGAIN_MAX => {
                    self.again += 1;
                    self.task = None;
                    continue;
                }
                Some(fault) => self.handle.trouble(fault),
            };
            // Something between may have taken what could not be read for what is not there.
            out.clear();
            return FinishedSlice { work: self, out, step: Step::Done(trouble, Vec::new()) };
        }
    }

    fn try_slice(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> Result<Step, Fault> {
        let Self { handle, search_request, task, .. } = self;
        let database = handle.served().database();
        let snapshot = match task {
            Some(_) => database.snapshot_for(&[search_request.kept.base()])?,
            None => search_request.snapshot(database)?,
        };
        let view = database.view(&snapshot)?;
        let task = match task {
            Some(task) => task,
            None => match search_request.begin(handle, &view)? {
                Ok(search_task) => task.insert(Box::new(search_task)),
                Err((result, controls)) => return Ok(Step::Done(result, controls)),
            },
        };
        Ok(task.step(&view, out, budget))
    }
}

/// A search, or what is answered without looking.
pub(super) type TaskOrEnd = Result<SearchTask, (LdapResult, Vec<ControlBuf>)>;

impl OwnedSearch {
    pub(super) fn new(rules: Vec<LimitRule>, context: &Context<'_>, search: Search<'_>) -> Self {
        Self {
            kept: KeptSearch::new(search),
            subject: Arc::clone(context.subject),
            rules,
            began: context.began,
            size_limit: None,
            page_limit: None,
        }
    }

    pub(super) fn controls(&self) -> &RequestControls {
        self.kept.controls()
    }

    /// A snapshot for the first slice, with what that is going to read.
    fn snapshot<'d>(&self, database: &'d Database<SharedStore>) -> Result<KvSnapshot<'d>, ReadError> {
        match self.kept.request() {
            Some(request) => snapshot_for_search(database, &request, self.kept.base()),
            None => database.store().snapshot(),
        }
    }

    pub(super) fn begin<N: Snapshot>(
        &self,
        handle: &SharedDatabase,
        view: &View<'_, N>,
    ) -> Result<TaskOrEnd, Fault> {
        let database = handle.served().database();
        let limits = search_limits::of_search(view, &self.rules, &self.subject, self.kept.base())?;
        let Some(search) = self.kept.search() else {
            return Ok(Err((LdapResult::internal_error(), Vec::new())));
        };
        let own = (&*handle.common, database);
        let task_or_end = engine_search::task(own, view, (&self.subject, self.began), search, limits);
        Ok(task_or_end.map_err(|end| *end).map(|mut task| {
            self.size_limit.into_iter().for_each(|entries| task.limit_size(entries));
            self.page_limit.into_iter().for_each(|entries| task.limit_page(entries));
            task
        }))
    }
}

#[cfg(test)]
mod tests {
    use larix_proto::{MessageId, encode};

    use super::*;

    #[test]
    fn entries_beyond_a_lowered_limit_are_taken_away() {
        let slice = || {
            let mut out = Vec::new();
            encode::EntryEncoder::begin(&mut out, MessageId(7), "cn=a").finish(&[]);
            encode::search_reference(&mut out, MessageId(7), &["ldap://b.example".into()], &[]);
            let first = out.len();
            encode::EntryEncoder::begin(&mut out, MessageId(7), "cn=c").finish(&[]);
            (out, first)
        };
        for (entries, is_cut) in [(0, true), (1, true), (2, false), (3, false)] {
            let (mut out, first) = slice();
            let all = out.len();
            assert_eq!(cut(&mut out, entries), is_cut, "{entries}");
            let expected = match entries {
                0 => 0,
                1 => first,
                _ => all,
            };
            assert_eq!(out.len(), expected, "{entries}");
        }
    }
}
