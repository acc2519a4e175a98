//! A search of the remote server that is read to its end, for what goes on when that is known.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use larix_backend::{Cursor, End, OUTPUT_HIGH, PendingAnswer, StepOutcome, slice};
use larix_engine::log::Follower;
use larix_engine::search::task::Budget;
use larix_engine::time::Clock;
use larix_proto::{LdapResult, ResultCode};

/// Bytes of one entry that is read for a request.
pub(crate) const ENTRY_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(crate) fn too_large() -> LdapResult {
    LdapResult::with(ResultCode::OTHER, "the remote server's answer to a search of one entry is too large")
}

/// What was found: the messages with the entry, none if there is no such entry.
pub(crate) type LookupResult = Result<Option<Vec<u8>>, LdapResult>;

/// Called once with it.
pub(crate) type Then = Box<dyn FnOnce(LookupResult) + Send>;

struct Reading {
    cursor: Option<Box<dyn Cursor>>,
    messages: Vec<u8>,
    then: Option<Then>,
}

struct Lookup {
    reading: Mutex<Reading>,
    /// Something came while it was being looked at.
    again: AtomicBool,
    clock: Arc<dyn Clock>,
}

/// Reads what a search finds, usually one entry. `then` is called once, here or on the thread of the connections, unless the request is given up.
pub(crate) fn read(cursor: Box<dyn Cursor>, clock: Arc<dyn Clock>, then: Then) -> PendingAnswer {
    let deadline = cursor.deadline();
    let reading = Mutex::new(Reading { cursor: None, messages: Vec::new(), then: Some(then) });
    let lookup = Arc::new(Lookup { reading, again: AtomicBool::new(false), clock });
    lookup.begin(cursor);
    // It keeps itself until the cursor is gone: the follower is the cursor's.
    let give_up = move || lookup.give_up();
    PendingAnswer { deadline, give_up: Some(Box::new(give_up)) }
}

impl Lookup {
    fn begin(self: &Arc<Self>, mut cursor: Box<dyn Cursor>) {
        let followed = Arc::clone(self);
        cursor.follow(Follower::new(Box::new(move || followed.go_on())));
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).cursor = Some(cursor);
        self.go_on();
    }

    fn go_on(&self) {
        self.again.store(true, Ordering::SeqCst);
        let mut ended = None;
        while ended.is_none() && self.again.load(Ordering::SeqCst) {
            // The thread that has it looks once more.
            let mut reading = match self.reading.try_lock() {
                Ok(reading) => reading,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            self.again.store(false, Ordering::SeqCst);
            ended = reading.step(&*self.clock);
        }
        if let Some((then, found)) = ended {
            then(found);
        }
    }

    fn give_up(&self) {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let (cursor, then) = (reading.cursor.take(), reading.then.take());
        drop(reading);
        drop((cursor, then));
    }
}

impl Reading {
    fn step(&mut self, clock: &dyn Clock) -> Option<(Then, LookupResult)> {
        loop {
            let cursor = self.cursor.as_mut()?;
            let bytes = self.messages.len() + OUTPUT_HIGH;
            let found = match cursor.step(Budget { bytes, ..slice(clock) }, &mut self.messages) {
                StepOutcome::Waiting => return None,
                StepOutcome::More if self.messages.len() <= ENTRY_BYTES_MAX => continue,
                StepOutcome::More => Err(too_large()),
                StepOutcome::Done(result, controls) => {
                    outcome((result, controls), std::mem::take(&mut self.messages))
                }
            };
            self.cursor = None;
            return self.then.take().map(|then| (then, found));
        }
    }
}

/// What a search of one entry says about it.
pub(crate) fn outcome((result, _): End, messages: Vec<u8>) -> LookupResult {
    match result.code {
        ResultCode::SUCCESS => Ok((!messages.is_empty()).then_some(messages)),
        // Referrals lead away from this server: as far as it knows there is no such entry.
        ResultCode::NO_SUCH_OBJECT | ResultCode::INSUFFICIENT_ACCESS_RIGHTS | ResultCode::REFERRAL => {
            Ok(None)
        }
        _ => Err(result),
    }
}
