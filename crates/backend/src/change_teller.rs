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

/// What one search has heard and not looked at yet.
#[derive(Debug, Default)]
pub struct HeardChanges(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    waiting: VecDeque<ChangedEntry>,
    /// Why not all of them are there.
    lost: Option<&'static str>,
    follower: Option<Arc<Follower>>,
}

impl ChangeTeller {
    /// From now on every change is heard.
    pub fn listen(&self) -> Arc<HeardChanges> {
        let heard = Arc::<HeardChanges>::default();
        let mut listeners = self.lock();
        listeners.retain(|known| known.strong_count() > 0);
        listeners.push(Arc::downgrade(&heard));
        heard
    }

    /// Tells all of a change.
    pub fn tell(&self, changed: &ChangedEntry) {
        self.each(|heard| heard.add(changed));
    }

    /// Tells all that not everything can be told any more.
    pub fn end(&self, why: &'static str) {
        self.each(|heard| heard.lose(why));
    }

    fn each(&self, what: impl Fn(&HeardChanges)) {
        // Outside of the lock: a search that hears of it may look at once.
        let listeners: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        listeners.iter().for_each(|heard| what(heard));
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
        let mut heard = self.lock();
        match heard.lost {
            Some(why) => Err(why),
            None => Ok(std::mem::take(&mut heard.waiting)),
        }
    }

    fn add(&self, changed: &ChangedEntry) {
        let mut heard = self.lock();
        if heard.waiting.len() >= HEARD_MAX {
            heard.forget("too many changes waited to be sent: search again");
        } else if heard.lost.is_none() && heard.waiting.back() != Some(changed) {
            // Who looks sees the entry as it is then: once is enough.
            heard.waiting.push_back(changed.clone());
        }
        Self::tell(heard);
    }

    fn lose(&self, why: &'static str) {
        let mut heard = self.lock();
        heard.forget(why);
        Self::tell(heard);
    }

    fn tell(heard: MutexGuard<'_, Heard>) {
        let follower = heard.follower.clone();
        drop(heard);
        follower.into_iter().for_each(|follower| follower.tell());
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    fn forget(&mut self, why: &'static str) {
        self.lost.get_or_insert(why);
        self.waiting = VecDeque::new();
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
        let heard = teller.listen();
        for dn in ["cn=a", "cn=a", "cn=b", "cn=a"] {
            teller.tell(&changed(dn));
        }
        let all: Vec<_> = heard.take().unwrap().into_iter().map(|one| one.dn.to_string()).collect();
        assert_eq!(all, ["cn=a", "cn=b", "cn=a"]);
        assert_eq!(heard.take(), Ok(VecDeque::new()));
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
