//! Which of several targets with the same suffix has an entry, as searches found it (`dncache-ttl`).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larix_engine::search::task::Budget;
use larix_engine::time::Clock;
use larix_proto::{Response, frames, limits};
use larix_schema::{NormalDn, Schema};

use crate::cursor::{Cursor, CursorAround, StepOutcome};

/// What is known at most: an entry found by an identity counts once. Beyond that the oldest goes.
const CACHED_MAX: usize = 16_384;
/// Bytes of a name that is remembered.
const NAME_BYTES_MAX: usize = 1_024;
/// Identities that one entry is known for.
const REQUESTERS_MAX: usize = 16;

/// How long it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameLifetime {
    Forever,
    For(Duration),
}

/// Names and their targets. Each identity learns from its own searches alone: an answer must not tell it what others have found.
#[derive(Debug)]
pub struct KnownNames {
    lifetime: NameLifetime,
    clock: Arc<dyn Clock>,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    by_name: HashMap<NormalDn, Vec<CachedTarget>>,
    /// In the order in which they came; some of them may be gone.
    order: VecDeque<(NormalDn, u64)>,
    /// Of the next one.
    number: u64,
}

#[derive(Debug)]
struct CachedTarget {
    requester: Option<NormalDn>,
    target: usize,
    /// By the monotonic clock.
    until: Option<Duration>,
    number: u64,
}

/// For whom a target is looked up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lookup<'a> {
    /// Somebody, none: anonymous, about an entry.
    By(Option<&'a NormalDn>),
    /// The entry itself, which binds: the answer is the same wherever it is.
    Bind,
    /// Somebody about an entry that is not there yet.
    New,
}

impl KnownNames {
    pub fn new(lifetime: NameLifetime, clock: Arc<dyn Clock>) -> Self {
        Self { lifetime, clock, names: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        // Every change of it is whole.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.monotonic().0)
    }

    /// The target of an entry.
    pub(super) fn target(&self, name: &NormalDn, lookup: Lookup<'_>) -> Option<usize> {
        let now = self.now();
        let names = self.lock();
        let cached =
            names.by_name.get(name)?.iter().filter(|cached| cached.until.is_none_or(|until| now < until));
        match lookup {
            Lookup::By(requester) => cached.rev().find(|cached| cached.requester.as_ref() == requester),
            Lookup::Bind => cached.max_by_key(|cached| cached.number),
            Lookup::New => None,
        }
        .map(|cached| cached.target)
    }

    fn note(&self, name: NormalDn, requester: Option<&NormalDn>, target: usize) {
        if name.as_str().len() > NAME_BYTES_MAX {
            return;
        }
        let until = match self.lifetime {
            NameLifetime::Forever => None,
            NameLifetime::For(time) => Some(self.now().saturating_add(time)),
        };
        let mut names = self.lock();
        let names = &mut *names;
        let all = names.by_name.entry(name.clone()).or_default();
        if let Some(cached) = all.iter_mut().find(|cached| cached.requester.as_ref() == requester) {
            (cached.target, cached.until) = (target, until);
            return;
        }
        if all.len() >= REQUESTERS_MAX {
            all.remove(0);
        }
        names.number += 1;
        let number = names.number;
        all.push(CachedTarget { requester: requester.cloned(), target, until, number });
        names.order.push_back((name, number));
        if names.order.len() > CACHED_MAX
            && let Some((oldest, number)) = names.order.pop_front()
        {
            names.remove(&oldest, |cached| cached.number == number);
        }
    }

    /// An entry has gone from its name.
    pub(super) fn forget(&self, name: &NormalDn) {
        self.lock().remove(name, |_| true);
    }
}

impl Names {
    fn remove(&mut self, name: &NormalDn, is_it: impl Fn(&CachedTarget) -> bool) {
        if let Some(all) = self.by_name.get_mut(name) {
            all.retain(|cached| !is_it(cached));
            if all.is_empty() {
                self.by_name.remove(name);
            }
        }
    }
}

/// A search in one target, whose entries are noted.
#[derive(Debug)]
pub(super) struct NotingSearch {
    pub(super) inner: Box<dyn Cursor>,
    pub(super) known: Arc<KnownNames>,
    pub(super) schema: Arc<Schema>,
    pub(super) requester: Option<NormalDn>,
    /// The number of the target.
    pub(super) target: usize,
}

impl NotingSearch {
    fn note(&self, messages: &[u8]) {
        for message in frames(messages, limits::PDU_CEILING) {
            let name = Response::entry_name(message).and_then(|name| self.schema.parse_dn(name).ok());
            if let Some(name) = name {
                self.known.note(name, self.requester.as_ref(), self.target);
            }
        }
    }
}

impl CursorAround for NotingSearch {
    fn inner(&self) -> &dyn Cursor {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Cursor {
        &mut *self.inner
    }

    fn step_around(&mut self, budget: Budget<'_>, out: &mut Vec<u8>) -> StepOutcome {
        let before = out.len();
        let slice = self.inner.step(budget, out);
        self.note(out.get(before..).unwrap_or_default());
        slice
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::time::{ManualClock, Timestamp};

    use super::*;

    fn dn(text: &str) -> NormalDn {
        NormalDn::from_normal(text)
    }

    #[test]
    fn who_has_found_an_entry_knows_its_target_for_a_while() {
        let clock = Arc::new(ManualClock::new(Timestamp(0)));
        let lifetime = NameLifetime::For(Duration::from_secs(60));
        let known = KnownNames::new(lifetime, Arc::clone(&clock) as _);
        let (ann, ben, entry) = (dn("cn=ann"), dn("cn=ben"), dn("cn=entry"));
        known.note(entry.clone(), Some(&ann), 2);
        let lookups =
            [Lookup::By(Some(&ann)), Lookup::By(Some(&ben)), Lookup::By(None), Lookup::Bind, Lookup::New];
        let all = |name: &NormalDn| lookups.map(|lookup| known.target(name, lookup));
        assert_eq!(all(&entry), [Some(2), None, None, Some(2), None]);
        assert_eq!(all(&ann), [None; 5]);
        // It may have moved.
        known.note(entry.clone(), None, 1);
        assert_eq!(all(&entry), [Some(2), None, Some(1), Some(1), None]);
        known.note(entry.clone(), Some(&ann), 1);
        assert_eq!(all(&entry), [Some(1), None, Some(1), Some(1), None]);
        clock.advance_micros(59_000_000);
        assert_eq!(all(&entry), [Some(1), None, Some(1), Some(1), None]);
        clock.advance_micros(1_000_000);
        assert_eq!(all(&entry), [None; 5]);
        let forever = KnownNames::new(NameLifetime::Forever, clock);
        forever.note(entry.clone(), None, 1);
        assert_eq!(forever.target(&entry, Lookup::By(None)), Some(1));
        forever.forget(&entry);
        assert_eq!(forever.target(&entry, Lookup::By(None)), None);
    }

    #[test]
    fn not_more_is_remembered_than_may_be() {
        let clock = Arc::new(ManualClock::new(Timestamp(0)));
        let known = KnownNames::new(NameLifetime::Forever, clock);
        let name = |number: usize| dn(&format!("cn={number}"));
        for number in 0..=CACHED_MAX {
            known.note(name(number), None, number);
        }
        let has = |number| known.target(&name(number), Lookup::Bind).is_some();
        assert_eq!((has(0), has(1), has(CACHED_MAX)), (false, true, true));
        for number in 0..=REQUESTERS_MAX {
            known.note(name(1), Some(&name(number)), number);
        }
        assert_eq!(known.lock().by_name[&name(1)].len(), REQUESTERS_MAX);
        known.note(dn(&format!("cn={}", "a".repeat(NAME_BYTES_MAX))), None, 1);
        let names = known.lock();
        assert!(names.order.len() <= CACHED_MAX && names.by_name.len() <= CACHED_MAX);
        assert!(names.by_name.keys().all(|name| name.as_str().len() <= NAME_BYTES_MAX));
    }
}
