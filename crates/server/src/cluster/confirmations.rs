//! Reads that a node has answered out of its cache, and that nobody may be shown before the engine has said that nothing newer is there. All
//! that wait when the question is sent share it; who comes while it is under way waits for the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larix_kv::{KvStore, ReadFault, take_read_fault};

use super::pool::{EnginePool, Turn, WAITING_MAX};

/// Why a read is not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unconfirmed {
    Fault(ReadFault),
    /// It has waited too long for a thread.
    Late,
    /// Too many operations wait already.
    TooMany,
}

/// The newest commit that the engine knew when it was asked.
pub(crate) type Confirmed = Result<u64, Unconfirmed>;

/// Called once with the answer, on a thread of the node, where it must not wait, or at once; dropped without it if the node ends.
pub(crate) type Waiter = Box<dyn FnOnce(Confirmed) + Send>;

/// The reads of one database that wait.
#[derive(Default)]
pub(crate) struct Confirmations(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: Vec<Waiter>,
    /// A thread asks, or is about to.
    is_asking: bool,
}

impl Confirmations {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Waiters are called outside the lock, so that a panic of one leaves the state whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads that wait for the next question.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Has `ask` called on a thread later than this, unless another one's call begins later than this, and `waiter` with what it says.
    pub(crate) fn join(
        self: &Arc<Self>,
        pool: &EnginePool,
        ask: impl Fn() -> Confirmed + Send + 'static,
        waiter: Waiter,
    ) {
        let mut state = self.lock();
        if state.waiting.len() >= WAITING_MAX {
            drop(state);
            return waiter(Err(Unconfirmed::TooMany));
        }
        if state.is_asking {
            return state.waiting.push(waiter);
        }
        let Some(permit) = pool.permit() else {
            drop(state);
            return waiter(Err(Unconfirmed::TooMany));
        };
        state.waiting.push(waiter);
        state.is_asking = true;
        drop(state);
        let asking = Asking { confirmations: Arc::clone(self), waiting: Vec::new(), is_over: false };
        permit.take(move |turn| asking.run(turn, &ask));
    }
}

/// Asks for those that wait, as long as there are any. Where that ends otherwise, they are dropped.
struct Asking {
    confirmations: Arc<Confirmations>,
    /// Those for whom it asks now.
    waiting: Vec<Waiter>,
    is_over: bool,
}

impl Asking {
    fn run(mut self, turn: Turn, ask: &impl Fn() -> Confirmed) {
        let mut first = Some(turn);
        while self.next() {
            let confirmed = match first.take() {
                Some(Turn::Late) => Err(Unconfirmed::Late),
                Some(Turn::Go) | None => ask(),
            };
            let mut waiting = std::mem::take(&mut self.waiting);
            if confirmed.is_err() {
                // Who has come meanwhile would wait as long for the same.
                waiting.append(&mut self.confirmations.lock().waiting);
            }
            waiting.into_iter().for_each(|waiter| waiter(confirmed));
        }
    }

    /// Takes those that wait now; whether anybody does. If nobody does, it is over.
    fn next(&mut self) -> bool {
        let mut state = self.confirmations.lock();
        self.waiting = std::mem::take(&mut state.waiting);
        if self.waiting.is_empty() {
            state.is_asking = false;
            self.is_over = true;
        }
        !self.is_over
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.confirmations.lock();
        state.is_asking = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Clients hear of it when their waiters are dropped: only now, so that one that comes back at once has another thread ask.
        drop((waiting, std::mem::take(&mut self.waiting)));
    }
}

/// Asks the engine for the newest commit.
pub(super) fn ask(store: &KvStore) -> Confirmed {
    take_read_fault();
    let newest = store.hear();
    match (newest, take_read_fault()) {
        (Ok(newest), None) => Ok(newest),
        (_, fault) => Err(Unconfirmed::Fault(fault.unwrap_or(ReadFault::Unavailable))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::clock::SystemClock;

    fn pool() -> EnginePool {
        EnginePool::start(Arc::new(SystemClock)).expect("threads")
    }

    /// An engine that says that it is asked, and answers when it is let.
    struct Engine {
        asked: Receiver<()>,
        answers: Sender<Confirmed>,
    }

    fn engine() -> (Engine, impl Fn() -> Confirmed + Clone + Send + 'static) {
        let ((asks, asked), (answers, answered)) = (channel(), channel());
        let answered = Arc::new(Mutex::new(answered));
        let ask = move || {
            asks.send(()).expect("somebody looks");
            answered.lock().expect("whole").recv().expect("an answer")
        };
        (Engine { asked, answers }, ask)
    }

    #[test]
    fn who_comes_while_the_engine_is_asked_waits_for_the_next_question() {
        let (pool, confirmations) = (pool(), Arc::<Confirmations>::default());
        let (engine, ask) = engine();
        let (said, says) = channel();
        let join = |number: u32| {
            let said = said.clone();
            let waiter = Box::new(move |confirmed| said.send((number, confirmed)).expect("somebody looks"));
            confirmations.join(&pool, ask.clone(), waiter);
        };
        join(0);
        engine.asked.recv().expect("the first question");
        (1..=5).for_each(join);
        engine.answers.send(Ok(7)).expect("sent");
        assert_eq!(says.recv(), Ok((0, Ok(7))));
        engine.asked.recv().expect("the second question");
        assert!(says.try_recv().is_err(), "an answer to an earlier question is none to them");
        engine.answers.send(Ok(8)).expect("sent");
        let mut shared: Vec<_> = (1..=5).map(|_| says.recv().expect("told")).collect();
        shared.sort_unstable_by_key(|(number, _)| *number);
        assert_eq!(shared, (1..=5).map(|number| (number, Ok(8))).collect::<Vec<_>>());
        // Later ones begin anew.
        join(6);
        engine.asked.recv().expect("the third question");
        engine.answers.send(Ok(9)).expect("sent");
        assert_eq!(says.recv(), Ok((6, Ok(9))));
    }

    #[test]
    fn an_engine_that_is_away_is_not_asked_again_for_who_has_waited() {
        let (pool, confirmations) = (pool(), Arc::<Confirmations>::default());
        let (engine, ask) = engine();
        let (said, says) = channel();
        let join = || {
            let said = said.clone();
            let waiter = Box::new(move |confirmed| said.send(confirmed).expect("somebody looks"));
            confirmations.join(&pool, ask.clone(), waiter);
        };
        join();
        engine.asked.recv().expect("a question");
        join();
        let away = Err(Unconfirmed::Fault(ReadFault::Unavailable));
        engine.answers.send(away).expect("sent");
        assert_eq!((says.recv(), says.recv()), (Ok(away), Ok(away)));
        assert!(engine.asked.try_recv().is_err());
    }

    #[test]
    fn who_waits_for_a_thread_that_panics_hears_of_it() {
        let (pool, confirmations) = (pool(), Arc::<Confirmations>::default());
        let (said, says) = channel::<Confirmed>();
        let waiter = |said: Sender<Confirmed>| -> Waiter {
            Box::new(move |confirmed| said.send(confirmed).expect("somebody looks"))
        };
        confirmations.join(&pool, || panic!("a bug"), waiter(said));
        assert!(says.recv().is_err(), "it is dropped");
        let (said, says) = channel();
        confirmations.join(&pool, || Ok(1), waiter(said));
        assert_eq!(says.recv(), Ok(Ok(1)));
    }

    #[test]
    fn those_that_wait_are_bounded() {
        let (pool, confirmations) = (pool(), Arc::<Confirmations>::default());
        let (engine, ask) = engine();
        let join = || confirmations.join(&pool, ask.clone(), Box::new(|_| {}));
        join();
        engine.asked.recv().expect("a question");
        (0..WAITING_MAX).for_each(|_| join());
        let (said, says) = channel();
        let waiter = Box::new(move |confirmed| said.send(confirmed).expect("somebody looks"));
        confirmations.join(&pool, ask.clone(), waiter);
        assert_eq!(says.recv(), Ok(Err(Unconfirmed::TooMany)));
        (0..2).for_each(|_| engine.answers.send(Ok(1)).expect("sent"));
    }
}
