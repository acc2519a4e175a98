//! Panics, which are bugs: each is counted and logged, in whatever thread it happens, and what it happened in ends alone.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use crate::log::{self, Log, printable};

/// In all threads since the start.
static COUNT: AtomicU64 = AtomicU64::new(0);
static LOG: OnceLock<Log> = OnceLock::new();

/// Panics since the start.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// From now on panics of all threads are counted, and told to this log beside where they were told before. For the first
/// server of the process.
pub(crate) fn watch(log: &Log) {
    if LOG.set(log.clone()).is_err() {
        return;
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        COUNT.fetch_add(1, Ordering::Relaxed);
        before(panic);
        let thread = std::thread::current();
        let said = panic.payload_as_str().unwrap_or_default();
        let at = panic.location().map(ToString::to_string).unwrap_or_default();
        // The log's own is not told to itself: it might panic for that.
        if let Some(log) = LOG.get().filter(|_| thread.name() != Some(log::THREAD)) {
            log.warning_amid(format_args!(
                "a bug: the thread {} panicked at {at}: {}; the server goes on",
                thread.name().unwrap_or_default(),
                printable(said)
            ));
        }
    }));
}

/// What was to be done ended by a panic, which was reported.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("internal error: a panic, which the log has")
    }
}

/// Does something whose panic is not to be its thread's end. What it shares with others must be whole wherever it ends.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

/// The same for a part of an event loop's task.
pub(crate) async fn contained_part<T>(part: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut part = pin!(part);
    poll_fn(|context| match contained(|| part.as_mut().poll(context)) {
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}
