//! Changes that are made through a backend, for running searches that go on with them: of an entry that another server keeps, nobody else
//! here hears.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use larix_engine::log::Follower;
use larix_schema::NormalDn;

/// Changes that wait for one search, at most. With more, the search has to begin anew.
pub const HEARD_MAX: usize = 8_192;

/// An entry that was changed, or may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedEntry {
    /// What it was called before.
    pub dn: NormalDn,
    /// What it is called now, where it was renamed.
    pub renamed: Option<NormalDn>,
    /// Whether it may have been deleted with all that is below it.
    pub is_tree: bool,
    /// Whether the change was made. It is not known of one that nobody has answered.
    pub is_certain: bool,
}

/// Tells the searches that listen. It knows them only as long as they listen.
#[derive(Debug, Default)]
pub struct ChangeTeller(Mutex<Vec<Weak<HeardChanges>>>);

/// The queue of one search: changes that it has not looked at yet.
#[derive(Debug, Default)]
pub struct HeardChanges(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    changes: VecDeque<ChangedEntry>,
    /// Why not all changes are there.
    incomplete: Option<&'static str>,
    follower: Option<Arc<Follower>>,
}

impl ChangeTeller {
    /// The queue of a new search: every change from now on.
    pub fn listen(&self) -> Arc<HeardChanges> {
        let queue = Arc::<HeardChanges>::default();
        let mut listeners = self.lock();
        listeners.retain(|known| known.strong_count() > 0);
        listeners.push(Arc::downgrade(&queue));
        queue
    }

    /// Tells all of a change.
    pub fn tell(&self, changed: &ChangedEntry) {
        self.each(|queue| queue.add(changed));
    }

    /// Tells all that not everything can be told any more.
    pub fn end(&self, why: &'static str) {
        self.each(|queue| queue.mark_incomplete(why));
    }

    fn each(&self, what: impl Fn(&HeardChanges)) {
        // Outside of the lock: a search that hears of it may look at once.
        let listeners: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        listeners.iter().for_each(|queue| what(queue));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<HeardChanges>>> {
        // A panic of another thread leaves the list whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeardChanges {
    /// Whom to tell when there is something to look at.
    pub fn follow(&self, follower: Arc<Follower>) {
        self.lock().follower = Some(follower);
    }

    /// All changes that wait, in their order: nothing waits any more.
    ///
    /// # Errors
    /// Why not everything was heard: the search has to begin anew.
    pub fn take(&self) -> Result<VecDeque<ChangedEntry>, &'static str> {
        let mut queue = self.lock();
        match queue.incomplete {
            Some(why) => Err(why),
            None => Ok(std::mem::take(&mut queue.changes)),
        }
    }

    fn add(&self, changed: &ChangedEntry) {
        let mut queue = self.lock();
        if queue.changes.len() >= HEARD_MAX {
            queue.forget("too many changes waited to be sent: search again");
        } else if queue.incomplete.is_none() && queue.changes.back() != Some(changed) {
            // Who looks sees the entry as it is then: once is enough.
            queue.changes.push_back(changed.clone());
        }
        Self::tell(queue);
    }

    fn mark_incomplete(&self, why: &'static str) {
        let mut queue = self.lock();
        queue.forget(why);
        Self::tell(queue);
    }

    fn tell(queue: MutexGuard<'_, Queue>) {
        let follower = queue.follower.clone();
        drop(queue);
        follower.into_iter().for_each(|follower| follower.tell());
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn forget(&mut self, why: &'static str) {
        self.incomplete.get_or_insert(why);
        self.changes = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(dn: &str) -> ChangedEntry {
        ChangedEntry { dn: NormalDn::from_normal(dn), renamed: None, is_tree: false, is_certain: true }
    }

    #[test]
    fn each_change_is_heard_in_order_and_one_that_waits_already_once() {
        let teller = ChangeTeller::default();
        teller.tell(&changed("cn=before"));
        let queue = teller.listen();
        for dn in ["cn=a", "cn=a", "cn=b", "cn=a"] {
            teller.tell(&changed(dn));
        }
        let all: Vec<_> = queue.take().unwrap().into_iter().map(|one| one.dn.to_string()).collect();
        assert_eq!(all, ["cn=a", "cn=b", "cn=a"]);
        assert_eq!(queue.take(), Ok(VecDeque::new()));
    }

    #[test]
    fn more_than_may_wait_are_not_lost_silently() {
        let teller = ChangeTeller::default();
        let (slow, quick) = (teller.listen(), teller.listen());
        for number in 0..=HEARD_MAX {
            teller.tell(&changed(&format!("cn={number}")));
            assert_eq!(quick.take().unwrap().len(), 1);
        }
        assert_eq!(slow.take(), Err("too many changes waited to be sent: search again"));
        teller.end("over");
        assert_eq!(quick.take(), Err("over"));
        drop((slow, quick));
        assert_eq!(teller.listen().take(), Ok(VecDeque::new()));
        assert_eq!(teller.lock().len(), 1);
    }
}
