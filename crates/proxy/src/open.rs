//! The connections of a proxy that are open, as the monitor shows them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::job::Owner;

/// A connection to a target that is ready for requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenConnection {
    /// The target's URL.
    pub url: String,
    /// The DN that it is bound as; none where it is anonymous, or SASL gave it another kind of name.
    pub bound: Option<String>,
    /// Whose it is, in the words of slapd-ldap(5)'s monitor: `bound`, `anonymous`, `privileged`, `idassert`, `TLS`; `cached` is one
    /// that clients share.
    pub flags: Vec<&'static str>,
    /// The address that it leads to; none for a socket of this machine.
    pub peer: Option<String>,
    /// Its place among the connections of its identity, from 0.
    pub place: u32,
    /// When it could take requests, by the monotonic clock, as are the next two.
    pub established: Duration,
    /// When it last took one.
    pub used: Option<Duration>,
    /// When something last came.
    pub answered: Option<Duration>,
    /// Requests on it, and those that wait for it.
    pub under_way: usize,
    /// It takes no more, and ends with the last answer.
    pub is_closing: bool,
}

impl OpenConnection {
    pub(crate) fn flags_of(owner: &Owner, has_credentials: bool, is_secure: bool) -> Vec<&'static str> {
        let whose: &[&'static str] = match owner {
            Owner::Anonymous => &["anonymous", "cached"],
            Owner::Assertion if has_credentials => &["bound", "idassert", "cached"],
            Owner::Root if has_credentials => &["bound", "privileged", "cached"],
            Owner::User(_) => &["bound", "cached"],
            Owner::Assertion | Owner::Root | Owner::Spare | Owner::Check(_) => &["anonymous"],
        };
        whose.iter().copied().chain(is_secure.then_some("TLS")).collect()
    }
}

/// What changes while a connection is open. The times are nanoseconds of the monotonic clock, 0 for never.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    used: AtomicU64,
    answered: AtomicU64,
    under_way: AtomicUsize,
    is_closing: AtomicBool,
}

impl Activity {
    pub(crate) fn sends(&self, now: Duration) {
        self.used.store(nanos(now), Ordering::Relaxed);
    }

    pub(crate) fn receives(&self, now: Duration) {
        self.answered.store(nanos(now), Ordering::Relaxed);
    }

    pub(crate) fn note(&self, under_way: usize, is_closing: bool) {
        self.under_way.store(under_way, Ordering::Relaxed);
        self.is_closing.store(is_closing, Ordering::Relaxed);
    }
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A moment that was kept as a number; none for 0.
pub(crate) fn moment(stored: &AtomicU64) -> Option<Duration> {
    let nanos = stored.load(Ordering::Relaxed);
    (nanos > 0).then_some(Duration::from_nanos(nanos))
}

/// Those of one proxy, by number.
#[derive(Debug, Default)]
pub(crate) struct Open(Mutex<BTreeMap<u64, (OpenConnection, Arc<Activity>)>>);

impl Open {
    pub(crate) fn show(&self, number: u64, connection: OpenConnection, activity: Arc<Activity>) {
        self.open().insert(number, (connection, activity));
    }

    pub(crate) fn hide(&self, number: u64) {
        self.open().remove(&number);
    }

    pub(crate) fn all(&self) -> BTreeMap<u64, OpenConnection> {
        let now = |(number, (connection, activity)): (&u64, &(OpenConnection, Arc<Activity>))| {
            let shown = OpenConnection {
                used: moment(&activity.used),
                answered: moment(&activity.answered),
                under_way: activity.under_way.load(Ordering::Relaxed),
                is_closing: activity.is_closing.load(Ordering::Relaxed),
                ..connection.clone()
            };
            (*number, shown)
        };
        self.open().iter().map(now).collect()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, (OpenConnection, Arc<Activity>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
