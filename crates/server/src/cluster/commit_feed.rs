//! The thread of a node that hears of other nodes' commits as they are made, so that reads which do not ask the engine see them soon, and
//! consumers receive them. Where it hears nothing, the [look at the lease](super::role) still asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larix_engine::Database;
use larix_kv::CommitFeed;

use super::SharedStore;
use super::lags::{LOOK_PAUSE, Looks};
use super::opening::Opening;

/// The shortest time between two questions for new commits.
const PAUSE: Duration = Duration::from_millis(10);
/// Where nothing was heard for so long, the connection is looked at.
const SILENCE: Duration = Duration::from_secs(5);
/// How long it waits before it connects again.
const AGAIN: Duration = Duration::from_secs(1);

/// Where the thread listens, and whether it is to end.
#[derive(Debug, Default)]
pub(super) struct Listening(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    started: bool,
    feed: Option<Arc<CommitFeed>>,
    ended: bool,
}

impl Listening {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of it is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has not been started before.
    pub(super) fn starts(&self) -> bool {
        !std::mem::replace(&mut self.lock().started, true)
    }

    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.feed.take().iter().for_each(|feed| feed.wake());
    }

    fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// Whether it goes on with this feed.
    fn begin(&self, feed: &Arc<CommitFeed>) -> bool {
        let mut state = self.lock();
        if !state.ended {
            state.feed = Some(Arc::clone(feed));
        }
        !state.ended
    }
}

/// The thread's own.
pub(super) struct FeedReader {
    pub(super) listening: Arc<Listening>,
    pub(super) opening: Arc<Opening>,
    pub(super) looks: Looks,
}

impl FeedReader {
    pub(super) fn run(mut self) {
        while !self.listening.has_ended() {
            if let Some(served) = self.opening.served().cloned() {
                self.follow(served.database());
                self.looks.forget();
            }
            if !self.listening.has_ended() {
                std::thread::park_timeout(AGAIN);
            }
        }
    }

    /// Asks for new commits whenever there may be some, as long as the engine answers.
    fn follow(&mut self, database: &Database<SharedStore>) {
        let store = database.store();
        let Ok(feed) = store.commit_feed() else { return };
        let feed = Arc::new(feed);
        if !self.listening.begin(&feed) {
            return;
        }
        // Some may have been made while nobody listened.
        let mut has_news = true;
        let mut silence = Duration::ZERO;
        while !self.listening.has_ended() {
            if has_news {
                // The node that writes knows its own.
                if !store.leads() {
                    if store.hear().is_err() {
                        return;
                    }
                    // Its consumers do not: the log has grown elsewhere.
                    database.log_watch().tell();
                }
                std::thread::park_timeout(PAUSE);
            }
            // Consumers that are behind come closer without anything to be heard.
            let pause = if self.looks.look(database) { LOOK_PAUSE } else { SILENCE };
            let Ok(more) = feed.wait(pause) else { return };
            silence = if more { Duration::ZERO } else { silence + pause };
            if silence >= SILENCE {
                silence = Duration::ZERO;
                if feed.check().is_err() {
                    return;
                }
            }
            has_news = more;
        }
    }
}
