//! A consumer's search (RFC 4533) of a database in a shared engine. To consumers, all nodes are one provider: they have one server id, one
//! change log and one contextCSN.
//!
//! *Invariant:* **no node contradicts what another node has sent to a consumer.** Slices read afresh, however the node
//! reads otherwise, so a node that has not heard of a commit asks before it judges a cookie that covers it. Where it cannot ask,
//! the search ends with `unavailable`, and the consumer comes again with its last cookie.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larix_engine::Database;
use larix_engine::controls::ContentSync;
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_kv::take_read_fault;
use larix_proto::{ControlBuf, LdapResult};
use larix_replication::provider::{SliceOutcome, Start, SyncSearch};
use larix_store::Store;

use super::mailbox::{MailboxContent, SharedMailbox};
use super::search::{OwnedSearch, SLICE_CANDIDATES, SLICE_NANOS};
use super::{ClusteredBackend, SharedDatabase, too_late};
use crate::access_log::Gate;
use crate::backends::consumer_search::{self, ConsumerSearch};
use crate::cluster::{Node, SharedStore, Turn, check_logged};
use larix_backend::{Context, Cursor, Effort, End, OUTPUT_HIGH, Search, StepOutcome};

/// What goes to a thread and comes back.
struct Work {
    handle: SharedDatabase,
    search_request: OwnedSearch,
    consumer: ConsumerSearch,
    signal: Arc<ChangeSignal>,
    /// Begun in the first slice.
    search: Option<SyncSearch<SharedStore>>,
}

/// Whether there may be something new since the last slice began.
struct ChangeSignal {
    news: AtomicBool,
    /// Of the change log, and of the queue for refreshes.
    follower: Arc<Follower>,
}

/// A slice that a thread has finished.
struct FinishedSlice {
    work: Box<Work>,
    out: Vec<u8>,
    step: SliceOutcome,
}

/// A consumer's search under way.
struct ClusteredSync {
    /// Of an access log: what is to be there before it begins.
    gate: Option<Gate<Arc<Node>>>,
    mailbox: SharedMailbox<FinishedSlice>,
    /// Here while no thread has it.
    work: Option<Box<Work>>,
    is_out: bool,
    signal: Arc<ChangeSignal>,
    /// There is nothing to do before something is heard.
    rests: bool,
    /// The client does not take its answers: to be passed on when the work is back.
    pauses: bool,
    /// What a slice has answered and the client has not taken yet.
    out: Vec<u8>,
    end: Option<End>,
    effort: Effort,
}

impl fmt::Debug for ClusteredSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusteredSync").field("effort", &self.effort).finish_non_exhaustive()
    }
}

/// Begins it.
pub(super) fn start(
    clustered: &ClusteredBackend,
    context: &Context<'_>,
    search: Search<'_>,
    control: &ContentSync,
    gate: Option<Gate<Arc<Node>>>,
) -> Result<Box<dyn Cursor>, Box<End>> {
    let ended = |result: LdapResult| Box::new((result, Vec::new()));
    let handle = clustered.handle().map_err(ended)?;
    let search = consumer_search::prepared(search).map_err(ended)?;
    if search.controls.value_conflicts {
        return Err(ended(consumer_search::another_mode(true)));
    }
    let consumer = ConsumerSearch::new(&handle.common.services, context, &search, control);
    let search_request = OwnedSearch::new(clustered.limits.clone(), context, search);
    let mailbox = SharedMailbox::default();
    let signal = change_signal(&mailbox);
    let work = Work { handle, search_request, consumer, signal: Arc::clone(&signal), search: None };
    Ok(Box::new(ClusteredSync {
        gate,
        mailbox,
        work: Some(Box::new(work)),
        is_out: false,
        signal,
        rests: false,
        pauses: false,
        out: Vec::new(),
        end: None,
        effort: Effort::default(),
    }))
}

fn change_signal(mailbox: &SharedMailbox<FinishedSlice>) -> Arc<ChangeSignal> {
    let waker = mailbox.waker();
    Arc::new_cyclic(|signal: &std::sync::Weak<ChangeSignal>| {
        let signal = signal.clone();
        let follower = Follower::new(Box::new(move || {
            if let Some(signal) = signal.upgrade() {
                signal.news.store(true, Ordering::SeqCst);
                waker.wake();
            }
        }));
        ChangeSignal { news: AtomicBool::new(false), follower }
    })
}

impl ClusteredSync {
    /// Has a thread run the next slice.
    fn send_out(&mut self) -> Result<(), LdapResult> {
        let Some(work) = self.work.take() else { return Err(LdapResult::internal_error()) };
        let node = Arc::clone(&work.handle.node);
        self.mailbox.send_out(&node.pool, move |turn| match turn {
            Turn::Go => work.slice(),
            Turn::Late => {
                FinishedSlice { work, out: Vec::new(), step: SliceOutcome::Done(too_late(), Vec::new()) }
            }
        })?;
        self.is_out = true;
        Ok(())
    }

    fn take_in(&mut self, slice: FinishedSlice) {
        let FinishedSlice { mut work, out, step } = slice;
        (self.is_out, self.rests) = (false, false);
        if let Some(search) = &mut work.search {
            let (entries, candidates) = search.effort();
            self.effort = Effort { entries, candidates };
            if std::mem::take(&mut self.pauses) {
                search.pause();
            }
        }
        self.out = out;
        self.work = Some(work);
        match step {
            SliceOutcome::More => {}
            SliceOutcome::Waiting | SliceOutcome::Elsewhere => self.rests = true,
            SliceOutcome::Done(result, controls) => self.end = Some((result, controls)),
        }
    }
}

impl Cursor for ClusteredSync {
    fn step(&mut self, _: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        if let Some(answer) = Gate::closed(&mut self.gate) {
            return answer;
        }
        self.mailbox.looks();
        if self.is_out {
            match self.mailbox.take() {
                MailboxContent::Nothing => return StepOutcome::Waiting,
                MailboxContent::Lost => {
                    self.is_out = false;
                    return StepOutcome::Done(LdapResult::internal_error(), Vec::new());
                }
                MailboxContent::Slice(slice) => self.take_in(*slice),
            }
        }
        out.append(&mut self.out);
        if let Some((result, controls)) = self.end.take() {
            return StepOutcome::Done(result, controls);
        }
        if self.rests && !self.signal.news.load(Ordering::SeqCst) {
            return StepOutcome::Waiting;
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

    fn waits_for_changes(&self) -> bool {
        !self.is_out && self.gate.is_none()
    }

    fn follow(&mut self, follower: Arc<Follower>) {
        if let Some(gate) = &mut self.gate {
            gate.follow(Arc::clone(&follower));
        }
        self.mailbox.follow(follower);
    }

    fn pause(&mut self) {
        match self.work.as_mut().and_then(|work| work.search.as_mut()) {
            Some(search) => search.pause(),
            None => self.pauses = self.is_out,
        }
    }
}

impl Drop for ClusteredSync {
    fn drop(&mut self) {
        self.mailbox.give_up();
    }
}

impl Work {
    /// Runs a slice on this thread, which may wait for the engine.
    fn slice(mut self: Box<Self>) -> FinishedSlice {
        // What is heard from here on may not be seen by this slice.
        self.signal.news.store(false, Ordering::SeqCst);
        let mut out = Vec::new();
        let database = Arc::clone(self.handle.served().database());
        take_read_fault();
        let step = database.store().afresh(|| self.try_slice(&database, &mut out));
        let step = match take_read_fault() {
            None => step,
            // Something between may have taken what could not be read for what is not there.
            Some(fault) => {
                out.clear();
                SliceOutcome::Done(self.handle.trouble(fault), Vec::new())
            }
        };
        FinishedSlice { work: self, out, step }
    }

    fn try_slice(&mut self, database: &Database<SharedStore>, out: &mut Vec<u8>) -> SliceOutcome {
        let ended = |(result, controls): (LdapResult, Vec<ControlBuf>)| SliceOutcome::Done(result, controls);
        if self.search.is_none() {
            match self.begin(database) {
                Ok(search) => self.search = Some(search),
                Err(end) => return ended(end),
            }
        }
        let Some(search) = &mut self.search else { return ended((LdapResult::internal_error(), Vec::new())) };
        let refreshes = !search.persists();
        let clock = &*self.handle.common.services.clock;
        let budget = Budget { candidates: SLICE_CANDIDATES, nanos: SLICE_NANOS, bytes: OUTPUT_HIGH, clock };
        let stepped = search.step(budget, out);
        self.consumer.peer.reached(search);
        // From then on, the search sees by the log's history that another one is kept.
        let goes_on = match &stepped {
            SliceOutcome::More => true,
            SliceOutcome::Waiting | SliceOutcome::Elsewhere => false,
            SliceOutcome::Done(result, _) => result.is_success(),
        };
        if refreshes
            && goes_on
            && let Err(refused) = check(database)
        {
            out.clear();
            return SliceOutcome::Done(refused, Vec::new());
        }
        stepped
    }

    fn begin(&self, database: &Database<SharedStore>) -> Result<SyncSearch<SharedStore>, End> {
        let failed = |_| (LdapResult::internal_error(), Vec::new());
        check(database).map_err(|refused| (refused, Vec::new()))?;
        let snapshot = database.store().snapshot().map_err(|error| failed(error.into()))?;
        let view = database.view(&snapshot).map_err(failed)?;
        let task = self.search_request.begin(&self.handle, &view).map_err(failed)??;
        let mut search = SyncSearch::new(Start {
            asked: self.consumer.request.clone(),
            parts: vec![(Arc::clone(self.handle.served()), task)],
            any_entry: self.consumer.any_entry,
            values: false,
            states: self.search_request.controls().states,
            elsewhere: false,
            queue: self.consumer.queue.clone(),
        });
        search.follow(Arc::clone(&self.signal.follower));
        Ok(search)
    }
}

/// # Errors
/// The log that this node would read is not the one that the node that writes keeps.
fn check(database: &Database<SharedStore>) -> Result<(), LdapResult> {
    let checked = database.store().snapshot().and_then(|now| check_logged(&now, database.server_id()));
    // The thread has a note of what could not be read.
    checked.unwrap_or_else(|_| Err(LdapResult::internal_error()))
}
