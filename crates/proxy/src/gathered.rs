//! Requests that a thread brings in one turn of its event loop go to their targets together: what goes over one connection is one
//! write.

use std::cell::RefCell;
use std::ptr;
use std::sync::Arc;

/// So many requests wait at most: a loop with more clients has longer turns.
const GATHERED_MAX: usize = 32;

thread_local! {
    /// None: the thread has no loop that sends what it gathers.
    static GATHERED: RefCell<Option<Gathered>> = const { RefCell::new(None) };
}

/// Sends requests that wait.
pub(crate) trait Sends {
    /// Sends what waits, if anything does.
    fn send(&self);
}

/// What waits on one thread.
struct Gathered {
    waiting: Vec<Arc<dyn Sends>>,
    requests: usize,
    tell: Box<dyn Fn()>,
}

/// From now on requests to the targets of proxied databases that this thread brings wait until it calls [`send_gathered`], or there are
/// 32 of them. `tell` is called when the first one waits; it must not block and brings no request.
pub fn gather_requests(tell: Box<dyn Fn()>) {
    GATHERED.set(Some(Gathered { waiting: Vec::new(), requests: 0, tell }));
}

/// Sends what this thread has gathered.
pub fn send_gathered() {
    while let Some(sends) = next() {
        sends.send();
    }
}

/// Those that are to send next: while they do, the thread may bring requests.
fn next() -> Option<Arc<dyn Sends>> {
    GATHERED.with_borrow_mut(|gathered| {
        let gathered = gathered.as_mut()?;
        gathered.requests = 0;
        gathered.waiting.pop()
    })
}

/// Notes that a request waits; false: it does not, and is to be sent now.
pub(crate) fn waits<S: Sends + 'static>(sends: &Arc<S>) -> bool {
    GATHERED.with_borrow_mut(|gathered| {
        let Some(gathered) = gathered else { return false };
        if gathered.requests >= GATHERED_MAX {
            gathered.requests = 0;
            return false;
        }
        gathered.requests += 1;
        if gathered.waiting.is_empty() {
            (gathered.tell)();
        }
        if !gathered.waiting.iter().any(|known| ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(sends))) {
            gathered.waiting.push(Arc::<S>::clone(sends));
        }
        true
    })
}
