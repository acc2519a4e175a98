//! Panics, which are bugs: each is counted and logged in any thread, and only the work that panicked ends.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// In all threads since the start.
static COUNT: AtomicU64 = AtomicU64::new(0);
static WATCHED: Once = Once::new();

/// Panics since the start.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// One panic, as the hook sees it.
#[derive(Debug)]
pub(crate) struct PanicReport<'a> {
    /// The thread's name.
    pub(crate) thread: Option<&'a str>,
    /// The panic's text.
    pub(crate) message: &'a str,
    /// File, line and column.
    pub(crate) location: String,
}

/// Counts panics in all threads from now on, and reports each to `report`, which runs in the thread that panics. What printed
/// panics before still does. Only the first call in a process has an effect.
pub(crate) fn watch(report: impl Fn(&PanicReport<'_>) + Send + Sync + 'static) {
    WATCHED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            COUNT.fetch_add(1, Ordering::Relaxed);
            before(panic);
            let thread = std::thread::current();
            report(&PanicReport {
                thread: thread.name(),
                message: panic.payload_as_str().unwrap_or_default(),
                location: panic.location().map(ToString::to_string).unwrap_or_default(),
            });
        }));
    });
}

/// The work ended by a panic, which was reported.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("internal error: a panic, which the log has")
    }
}

/// Does some work whose panic does not end the thread. What the work shares with others must be valid wherever it stops.
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
