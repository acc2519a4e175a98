//! Notifies the followers of the change log when it has grown.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A follower of the log. It is notified once of something new, and again only after it has looked.
pub struct Follower {
    notified: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("notified", &self.notified).finish_non_exhaustive()
    }
}

impl Follower {
    /// `wake` is called on a writer's thread: it must neither block nor take long.
    pub fn new(wake: Box<dyn Fn() + Send + Sync>) -> Arc<Self> {
        Arc::new(Self { notified: AtomicBool::new(false), wake })
    }

    /// Must be called before looking: the follower is notified of everything that comes from now on.
    pub fn looks(&self) {
        self.notified.store(false, Ordering::SeqCst);
    }

    /// Tells of news, unless that was done already.
    pub fn tell(&self) {
        if !self.notified.swap(true, Ordering::SeqCst) {
            (self.wake)();
        }
    }
}

/// The followers of one database. They are forgotten when they are dropped.
#[derive(Debug, Default)]
pub struct LogWatch {
    any: AtomicBool,
    followers: Mutex<Vec<Weak<Follower>>>,
}

impl LogWatch {
    /// From now on, notifies the follower of commits.
    pub fn follow(&self, follower: &Arc<Follower>) {
        // A panic of another thread leaves the list consistent.
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|known| known.strong_count() > 0);
        followers.push(Arc::downgrade(follower));
        self.any.store(true, Ordering::SeqCst);
    }

    /// Notifies all followers: after a commit, or when the database's settings have changed.
    pub fn tell(&self) {
        if !self.any.load(Ordering::SeqCst) {
            return;
        }
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|known| {
            known.upgrade().is_some_and(|follower| {
                follower.tell();
                true
            })
        });
        self.any.store(!followers.is_empty(), Ordering::SeqCst);
    }

    /// How many follow.
    pub fn count(&self) -> usize {
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.iter().filter(|known| known.strong_count() > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn news_are_told_once_until_somebody_looks() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let watch = LogWatch::default();
        let follower = Follower::new(Box::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        watch.follow(&follower);
        watch.tell();
        watch.tell();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        follower.looks();
        watch.tell();
        assert_eq!((count.load(Ordering::SeqCst), watch.count()), (2, 1));
        drop(follower);
        watch.tell();
        assert_eq!((count.load(Ordering::SeqCst), watch.count()), (2, 0));
    }
}
