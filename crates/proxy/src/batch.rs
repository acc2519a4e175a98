//! Requests that a thread brings in one turn of its event loop go to their targets together: what goes over one connection is one
//! write.

use std::cell::RefCell;
use std::ptr;
use std::sync::Arc;

/// So many requests wait at most: a loop with more clients has longer turns.
const BATCH_MAX: usize = 32;

thread_local! {
    /// None: the thread has no loop that sends what it gathers.
    static BATCH: RefCell<Option<Batch>> = const { RefCell::new(None) };
}

/// Sends requests that wait.
pub(crate) trait RequestSender {
    /// Sends what waits, if anything does.
    fn send(&self);
}

/// The requests that wait on one thread.
struct Batch {
    waiting: Vec<Arc<dyn RequestSender>>,
    requests: usize,
    tell: Box<dyn Fn()>,
}

/// From now on requests to the targets of proxied databases that this thread brings wait until it calls [`send_gathered`], or there are
/// 32 of them. `tell` is called when the first one waits; it must not block and brings no request.
pub fn gather_requests(tell: Box<dyn Fn()>) {
    BATCH.set(Some(Batch { waiting: Vec::new(), requests: 0, tell }));
}

/// Sends what this thread has gathered.
pub fn send_gathered() {
    while let Some(sends) = next() {
        sends.send();
    }
}

/// Those that are to send next: while they do, the thread may bring requests.
fn next() -> Option<Arc<dyn RequestSender>> {
    BATCH.with_borrow_mut(|batch| {
        let batch = batch.as_mut()?;
        batch.requests = 0;
        batch.waiting.pop()
    })
}

/// Notes that a request waits; false: it does not, and is to be sent now.
pub(crate) fn waits<S: RequestSender + 'static>(sends: &Arc<S>) -> bool {
    BATCH.with_borrow_mut(|batch| {
        let Some(batch) = batch else { return false };
        if batch.requests >= BATCH_MAX {
            batch.requests = 0;
            return false;
        }
        batch.requests += 1;
        if batch.waiting.is_empty() {
            (batch.tell)();
        }
        if !batch.waiting.iter().any(|known| ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(sends))) {
            batch.waiting.push(Arc::<S>::clone(sends));
        }
        true
    })
}
