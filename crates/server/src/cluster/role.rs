//! What this node is to its database, and who hears of it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Why a node is cut off.
pub(super) const OUT_OF_REACH: &str = "the engine of this database cannot be reached";
pub(super) const WITHOUT_ROOM: &str = "the engine of this database has no room, not even for the right to write (this server's log says what to do)";
pub(crate) const DAMAGED: &str = "what the engine holds of this database is damaged or gone (this server's log says what): restore it there";

/// What this node is to its database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It writes.
    Leader,
    /// The node with this URL does.
    Follower(String),
    /// Nobody does now: the lease has ended, or is being taken.
    Vacant,
    /// The engine cannot be reached, or does not hold the database whole, and nobody knows.
    CutOff,
}

impl Role {
    /// As the monitor and `larix cluster` call it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower(_) => "follower",
            Self::Vacant => "vacant",
            Self::CutOff => "cut off",
        }
    }
}

/// Where the thread says what this node is.
#[derive(Debug)]
pub(crate) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
    /// A thread holds it while it takes the right to write, or changes what that right stands on.
    turn: Mutex<()>,
    listeners: Listeners,
}

/// Whom to notify when the role changes.
#[derive(Default)]
struct Listeners(Mutex<Vec<Box<dyn Fn() -> bool + Send>>>);

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").finish_non_exhaustive()
    }
}

impl Listeners {
    fn lock(&self) -> MutexGuard<'_, Vec<Box<dyn Fn() -> bool + Send>>> {
        // The list is whole at every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.lock().retain(|listener| listener());
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) role: Role,
    /// Why it is cut off, if it is.
    pub(super) why_cut_off: &'static str,
    ended: bool,
    /// The thread has given the lease up, and does not take it again.
    has_left: bool,
    /// The thread is to look at once.
    pub(super) hurries: bool,
    /// This node writes only while it writes that other database, too.
    beside: Option<Weak<Watch>>,
    /// Whose place this one takes.
    predecessor: Option<Weak<Watch>>,
}

impl Default for Watch {
    fn default() -> Self {
        let state = State {
            role: Role::Vacant,
            why_cut_off: OUT_OF_REACH,
            ended: false,
            has_left: false,
            hurries: false,
            beside: None,
            predecessor: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            turn: Mutex::default(),
            listeners: Listeners::default(),
        }
    }
}

impl Watch {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of it is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until it is dropped, nobody else takes the right to write.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn role(&self) -> Role {
        self.lock().role.clone()
    }

    /// Why nobody takes changes while this node is cut off.
    pub(super) fn why_cut_off(&self) -> &'static str {
        self.lock().why_cut_off
    }

    /// Has this called after each change of the role, until it answers that nobody listens any more. It must not block.
    pub(crate) fn listen(&self, listener: Box<dyn Fn() -> bool + Send>) {
        self.listeners.lock().push(listener);
    }

    /// Has everybody who listens look at the role.
    pub(super) fn notify(&self) {
        self.listeners.notify();
    }

    /// The engine is away from the beginning.
    pub(super) fn begin_cut_off(&self) {
        self.lock().role = Role::CutOff;
    }

    /// What the right to write stands on is to be settled again.
    pub(crate) fn settle_again(&self) {
        let mut state = self.lock();
        if state.role == Role::Leader {
            state.role = Role::Vacant;
        }
        state.hurries = true;
        drop(state);
        self.changed.notify_all();
        self.listeners.notify();
    }

    /// Has this node write only while it writes another database, too; `None`: whatever others do.
    pub(crate) fn write_beside(self: &Arc<Self>, other: Option<&Arc<Self>>) {
        let mut state = self.lock();
        let is_known = match (&state.beside, other) {
            (Some(known), Some(other)) => std::ptr::eq(known.as_ptr(), Arc::as_ptr(other)),
            (None, None) => true,
            _ => false,
        };
        if is_known {
            return;
        }
        state.beside = other.map(Arc::downgrade);
        drop(state);
        if let Some(other) = other {
            let watched = Arc::downgrade(other);
            self.hurry_with(other, move |own| own.is_beside(&watched));
        }
        self.hurry();
    }

    /// Has this node look as soon as another one gives its lease up, whose place it takes: the same database, opened otherwise.
    pub(super) fn succeed(self: &Arc<Self>, other: &Arc<Self>) {
        self.lock().predecessor = Some(Arc::downgrade(other));
        self.hurry_with(other, |_| true);
    }

    /// Whether the one whose place this one takes may still have the lease.
    pub(super) fn has_predecessor(&self) -> bool {
        let predecessor = self.lock().predecessor.clone();
        let predecessor = predecessor.and_then(|predecessor| predecessor.upgrade());
        predecessor.is_some_and(|predecessor| !predecessor.lock().has_left)
    }

    /// The thread has given the lease up for good.
    pub(super) fn leave(&self) {
        self.lock().has_left = true;
        self.listeners.notify();
    }

    /// Has the thread look at once with each change of another role, as long as `still` says so.
    fn hurry_with(self: &Arc<Self>, other: &Self, still: impl Fn(&Self) -> bool + Send + 'static) {
        let own = Arc::downgrade(self);
        other.listen(Box::new(move || {
            let own = own.upgrade().filter(|own| still(own));
            own.iter().for_each(|own| own.hurry());
            own.is_some()
        }));
    }

    fn is_beside(&self, other: &Weak<Self>) -> bool {
        self.lock().beside.as_ref().is_some_and(|beside| beside.ptr_eq(other))
    }

    /// Whether this node writes where nobody else does.
    pub(super) fn takes_turns(&self) -> bool {
        let beside = self.lock().beside.clone();
        beside.is_none_or(|other| other.upgrade().is_some_and(|other| other.role() == Role::Leader))
    }

    /// Has the thread look at once.
    pub(super) fn hurry(&self) {
        self.lock().hurries = true;
        self.changed.notify_all();
    }

    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// Waits, unless it is to hurry. Whether it goes on.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let idle = |state: &mut State| !state.ended && !state.hurries;
        let (mut state, _) =
            self.changed.wait_timeout_while(self.lock(), time, idle).unwrap_or_else(PoisonError::into_inner);
        state.hurries = false;
        !state.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_log_is_written_where_the_database_is() {
        let set = |watch: &Watch, role: Role| {
            watch.lock().role = role;
            watch.listeners.notify();
        };
        let (database, log) = (Arc::new(Watch::default()), Arc::new(Watch::default()));
        assert!(log.takes_turns());
        log.write_beside(Some(&database));
        assert!(log.wait(Duration::from_secs(3600)), "it looks at once");
        assert!(!log.takes_turns());
        set(&database, Role::Leader);
        assert!(log.wait(Duration::from_secs(3600)), "it looks at once");
        assert!(log.takes_turns());
        set(&database, Role::Follower("ldap://n2".to_owned()));
        assert!(log.wait(Duration::from_secs(3600)) && !log.takes_turns());
        // The same again is nothing new, and another one takes its place.
        log.write_beside(Some(&database));
        assert!(!log.lock().hurries);
        let other = Arc::new(Watch::default());
        set(&other, Role::Leader);
        log.write_beside(Some(&other));
        assert!(log.wait(Duration::from_secs(3600)) && log.takes_turns());
        set(&database, Role::Leader);
        assert!(!log.lock().hurries, "it no longer listens there");
        // One that has left the configuration writes nothing.
        drop(other);
        assert!(!log.takes_turns());
        log.write_beside(None);
        assert!(log.takes_turns());
    }

    #[test]
    fn one_that_takes_the_place_of_another_looks_when_that_one_is_over() {
        let (before, next) = (Arc::new(Watch::default()), Arc::new(Watch::default()));
        assert!(!next.has_predecessor());
        next.succeed(&before);
        assert!(!next.lock().hurries && next.has_predecessor());
        before.listeners.notify();
        assert!(next.wait(Duration::from_secs(3600)) && next.has_predecessor());
        before.leave();
        assert!(next.wait(Duration::from_secs(3600)) && !next.has_predecessor());
    }

    #[test]
    fn a_thread_that_is_hurried_does_not_wait() {
        let watch = Watch::default();
        watch.settle_again();
        assert!(watch.wait(Duration::from_secs(3600)), "it goes on");
        watch.end();
        assert!(!watch.wait(Duration::from_secs(3600)), "it ends");
    }
}
