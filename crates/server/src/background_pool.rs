//! A few threads of low priority that share long work in turns: no job waits for the end of another one.

use larix_engine::injected;
use larix_store::lmdb;

use crate::panics;
use crate::processor_time::{LOW, give_way};
use crate::thread_pool::{ThreadPool, Threads};

/// Work that is done in turns.
pub(crate) trait Turns: Send {
    /// Has a turn, which is to take some milliseconds, on the thread of this number. Itself, if it wants another.
    fn turn(self: Box<Self>, thread: usize) -> Option<Box<dyn Turns>>;
}

/// The threads. They start when they are first needed.
pub(crate) type BackgroundPool = ThreadPool<Box<dyn Turns>>;

impl BackgroundPool {
    /// Up to `most` threads.
    pub(crate) fn with_threads(most: usize) -> Self {
        Self::new(Threads {
            name: "long-searches",
            max: most,
            stack_bytes: Some(larix_proto::limits::FILTER_STACK),
            first: || {
                give_way(LOW);
                lmdb::keep_snapshots();
            },
            work: one_turn,
        })
    }
}

fn one_turn(work: Box<dyn Turns>, thread: usize) -> Option<Box<dyn Turns>> {
    let again = panics::contained(|| {
        injected::panic_at("long");
        work.turn(thread)
    });
    // Whose turn comes next may be in another database, for as long as it likes.
    lmdb::release_snapshots();
    again.ok().flatten()
}
