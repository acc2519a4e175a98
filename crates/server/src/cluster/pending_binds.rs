//! Who judges binds that may change an account: the node that writes. Others ask it by a message in the engine, and it answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larix_engine::ServedDatabase;
use larix_engine::overlay::{BindAttempt, BindConclusion, Interests};
use larix_engine::time::{Clock, Monotonic};
use larix_kv::{Mailbox, Message, Recipient};
use larix_proto::{LdapResult, ResultCode};

use super::bind_messages::{read_attempt, read_conclusion, write_attempt, write_conclusion};
use super::opening::Opening;
use super::pool::EnginePool;
use super::{DEADLINE, SharedStore};
use crate::clock::SystemClock;
use crate::log::Log;
use crate::panics;

/// How long a pause is while somebody waits for an answer, or the engine is away.
const SHORT: Duration = Duration::from_millis(200);
/// How long one is otherwise: a notification ends it.
const LONG: Duration = Duration::from_secs(1);
/// Messages are looked for that often though no notification has come.
const LOOKS_EVERY: u64 = 5_000_000_000;
/// Binds that wait for the node that writes.
const WAITING_MAX: usize = 4_096;

pub(crate) type BindAnswered = Box<dyn FnOnce(BindConclusion) + Send>;

/// Binds of this node that wait for the answer of the one that writes.
#[derive(Default)]
pub(super) struct PendingBinds(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: HashMap<u64, (Monotonic, BindAnswered)>,
    last: u64,
    mailbox: Option<Arc<Mailbox>>,
    ended: bool,
}

/// The answer to a bind that only the node that writes may judge, where that cannot be asked.
pub(crate) fn not_judged(why: &str) -> BindConclusion {
    let text = format!("the bind cannot be judged: {why}: try again");
    BindConclusion {
        result: LdapResult::with(ResultCode::UNAVAILABLE, text),
        ..BindConclusion::outright(false)
    }
}

impl PendingBinds {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of it is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the node that writes. It may wait for the engine. The answer lies there until it is taken: where the connection that
    /// hears of it has just been lost, the bind waits for the next one.
    pub(super) fn ask(&self, store: &SharedStore, attempt: &BindAttempt, now: Monotonic, done: BindAnswered) {
        let mut state = self.lock();
        if state.ended || state.waiting.len() >= WAITING_MAX {
            let why = if state.ended { "this node is being stopped" } else { "too many binds wait" };
            drop(state);
            return done(not_judged(why));
        }
        state.last += 1;
        let number = state.last;
        state.waiting.insert(number, (now, done));
        drop(state);
        if store.send_message(Recipient::Leader, number, write_attempt(attempt)).is_err() {
            // It may have been sent: the first answer counts.
            self.answer(number, not_judged("the engine of this database cannot be reached"));
        }
    }

    fn answer(&self, number: u64, conclusion: BindConclusion) {
        let waiting = self.lock().waiting.remove(&number);
        if let Some((_, done)) = waiting {
            done(conclusion);
        }
    }

    /// Whether anybody waits for an answer. Those that have waited too long are answered.
    fn is_awaited(&self, now: Monotonic) -> bool {
        let mut state = self.lock();
        let is_over = |since: Monotonic| u128::from(now.0.saturating_sub(since.0)) > DEADLINE.as_nanos();
        let overdue: Vec<u64> = state
            .waiting
            .iter()
            .filter(|(_, (since, _))| is_over(*since))
            .map(|(number, _)| *number)
            .collect();
        let overdue: Vec<_> = overdue.iter().filter_map(|number| state.waiting.remove(number)).collect();
        let is_awaited = !state.waiting.is_empty();
        drop(state);
        for (_, done) in overdue {
            done(not_judged("the node that writes has not answered"));
        }
        is_awaited
    }

    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        if let Some(mailbox) = state.mailbox.take() {
            mailbox.wake();
        }
    }

    fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// Where messages come in from now on; not after the end.
    fn set_mailbox(&self, mailbox: Option<Arc<Mailbox>>) {
        let mut state = self.lock();
        if !state.ended {
            state.mailbox = mailbox;
        }
    }
}

/// The thread that takes messages.
pub(super) struct MessageReceiver {
    pub(super) pending_binds: Arc<PendingBinds>,
    pub(super) opening: Arc<Opening>,
    pub(super) pool: Arc<EnginePool>,
    pub(super) clock: Arc<SystemClock>,
    pub(super) log: Log,
}

/// When messages were taken last.
struct LastTake {
    at: Monotonic,
    led: bool,
}

impl MessageReceiver {
    pub(super) fn run(self) {
        while !self.pending_binds.has_ended() {
            // Only overlays that judge binds ask.
            let judging = self
                .opening
                .served()
                .filter(|served| served.database().current_settings().overlays.want(Interests::BIND));
            if let Some(served) = judging {
                self.receive_while_served(served);
                self.pending_binds.set_mailbox(None);
            }
            let is_awaited = self.pending_binds.is_awaited(self.clock.monotonic());
            std::thread::park_timeout(if is_awaited { SHORT } else { LONG });
        }
        // Nobody answers any more.
        let waiting = std::mem::take(&mut self.pending_binds.lock().waiting);
        for (_, done) in waiting.into_values() {
            done(not_judged("this node is being stopped"));
        }
    }

    /// Takes messages as long as the engine answers and somebody may ask.
    fn receive_while_served(&self, served: &Arc<ServedDatabase<SharedStore>>) {
        let store = served.database().store();
        let Ok(mailbox) = store.mailbox() else { return };
        let mailbox = Arc::new(mailbox);
        self.pending_binds.set_mailbox(Some(Arc::clone(&mailbox)));
        let mut last: Option<LastTake> = None;
        let mut has_messages = true;
        while !self.pending_binds.has_ended() {
            let (now, leads) = (self.clock.monotonic(), store.leads());
            let is_awaited = self.pending_binds.is_awaited(now);
            let is_due = last
                .as_ref()
                .is_none_or(|last| last.led != leads || now.0.saturating_sub(last.at.0) > LOOKS_EVERY);
            if has_messages || is_awaited || is_due {
                let Ok(messages) = store.take_messages(&mailbox, leads) else { return };
                last = Some(LastTake { at: now, led: leads });
                messages.into_iter().for_each(|message| self.receive(served, message));
            }
            if !served.database().current_settings().overlays.want(Interests::BIND) {
                return;
            }
            let pause = if self.pending_binds.is_awaited(self.clock.monotonic()) { SHORT } else { LONG };
            let Ok(waited) = store.wait_for_messages(&mailbox, pause) else { return };
            has_messages = waited;
        }
    }

    fn receive(&self, served: &Arc<ServedDatabase<SharedStore>>, message: Message) {
        // A panic of an overlay ends one bind, not the thread.
        let _reported = panics::contained(|| {
            let Message { to_leader, sender, number, body } = message;
            if !to_leader {
                let conclusion = read_conclusion(&body)
                    .unwrap_or_else(|| not_judged("the node that writes is of another version"));
                return self.pending_binds.answer(number, conclusion);
            }
            let Some(attempt) = read_attempt(&body) else {
                self.log
                    .warning(format_args!("another node has asked what this version does not understand"));
                return;
            };
            let (pool, store) = (Arc::clone(&self.pool), Arc::clone(served.database().store()));
            let answer = move |conclusion: BindConclusion| {
                // Where too many wait, the other node's patience ends.
                let Some(permit) = pool.permit() else { return };
                let body = write_conclusion(&conclusion);
                permit.take(move |_| {
                    // An engine that does not take it ends the other node's patience, too.
                    let _gone = store.send_message(Recipient::Node(&sender), number, body);
                });
            };
            served.judge_bind(attempt, Box::new(answer));
        });
    }
}
