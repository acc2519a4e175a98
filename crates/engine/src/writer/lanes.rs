//! What waits in a writer's queue, in two lanes: large changes wait apart, so that another identity's small change waits for one
//! group of them at most, however many there are.
//!
//! **While others write, large changes have a fifth of the writer's time**: after a group of them the writer does not begin
//! another one for four times as long as that one took. So a client that makes one small change after another seldom meets one.
//! If nobody else writes, large changes follow each other without a pause.
//!
//! **What one identity asks for is carried out in the order in which it came**: a large change overtakes nothing, and behind one
//! that waits the small ones of its identity wait in the same lane. A barrier is overtaken by nothing and overtakes nothing.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::time::Monotonic;

/// The weight from which a change waits in the lane of large ones: some 0.3 ms of work on an ordinary processor.
pub(super) const LARGE: usize = 256;
/// The weight after which a group of large changes takes no more of them.
pub(super) const LARGE_GROUP: usize = 4_096;
/// How much longer than a group of large changes the pause behind it is.
const PAUSE_FACTOR: u32 = 4;
/// The least pause behind a group if more large changes wait already.
const LEAST_PAUSE: Duration = Duration::from_millis(50);
/// No large change waits longer than this behind another one: a disk that stalls must not stall them for minutes.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What the lanes ask of an item.
pub(super) trait Waits {
    /// The work that it is, in values.
    fn weight(&self) -> usize;
    /// The identity of the requester; `None`: its changes need no order among large and small ones.
    fn identity(&self) -> Option<&Arc<str>>;
    /// Whether it keeps its place among all others.
    fn is_barrier(&self) -> bool;
}

/// The items that wait, each with a number that rises in the order in which they came.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    ordinary: VecDeque<(u64, T)>,
    large: VecDeque<(u64, T)>,
    /// How many items each identity has in the lane of large ones.
    large_counts: HashMap<Arc<str>, usize>,
    next: u64,
    group: Group,
    /// The last group was one of small changes.
    large_is_due: bool,
    /// When the group of large changes began that is being carried out.
    large_since: Option<Monotonic>,
    /// Until when no group of large changes begins, if others write.
    pause_until: Monotonic,
    /// For whom that group, or the last one, changes something.
    large_for: HashSet<Arc<str>>,
    /// A change of somebody else came into the ordinary lane since that group began.
    others_write: bool,
}

/// What the lanes answer to a writer that is ready for another group.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum First<T> {
    Item(T),
    /// Only large changes wait, and the first of them may come after this time.
    Later(Duration),
    Nothing,
}

/// The group that is being handed out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Group {
    Ordinary,
    /// Takes this much more.
    Large(usize),
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Self {
            ordinary: VecDeque::new(),
            large: VecDeque::new(),
            large_counts: HashMap::new(),
            next: 0,
            group: Group::Ordinary,
            large_is_due: false,
            large_since: None,
            pause_until: Monotonic::default(),
            large_for: HashSet::new(),
            others_write: false,
        }
    }
}

impl<T: Waits> Lanes<T> {
    pub(super) fn len(&self) -> usize {
        self.ordinary.len() + self.large.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ordinary.is_empty() && self.large.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.ordinary.iter().chain(&self.large).map(|(_, item)| item)
    }

    /// Puts an item at the end of its lane.
    pub(super) fn push(&mut self, item: T) {
        let number = self.next;
        self.next += 1;
        if let Some(identity) = item.identity() {
            // Most of the time nothing large waits, and nobody is looked up.
            let follows = !self.large_counts.is_empty() && self.large_counts.contains_key(identity);
            if follows || item.weight() >= LARGE {
                *self.large_counts.entry(Arc::clone(identity)).or_default() += 1;
                self.large.push_back((number, item));
                return;
            }
        }
        if !self.others_write && !item.is_barrier() {
            self.others_write = item.identity().is_none_or(|identity| !self.large_for.contains(identity));
        }
        self.ordinary.push_back((number, item));
    }

    /// The first item of another group, if any waits: groups of the two lanes take turns, and large ones make pauses. To be
    /// called when the last group is done: `now` tells how long it took.
    pub(super) fn first(&mut self, now: Monotonic) -> First<T> {
        self.note_end(now);
        let pause = self.pause(now);
        let may_come = self.large_may_come() && (pause.is_none() || self.has_to_come());
        if may_come && (self.large_is_due || !self.ordinary_may_come()) {
            (self.group, self.large_is_due) = (Group::Large(LARGE_GROUP), false);
            (self.large_since, self.others_write) = (Some(now), false);
            self.large_for.clear();
            return self.take_large().map_or(First::Nothing, First::Item);
        }
        match (self.ordinary.is_empty(), pause) {
            (true, Some(pause)) if !self.large.is_empty() => First::Later(pause),
            (true, _) => First::Nothing,
            (false, _) => self.any_ordinary(),
        }
    }

    /// The first item whose turn it is, without a pause: for a queue that is closed.
    pub(super) fn first_at_once(&mut self) -> Option<T> {
        self.large_since = None;
        self.end_pause();
        match self.first(Monotonic::default()) {
            First::Item(item) => Some(item),
            First::Later(_) | First::Nothing => None,
        }
    }

    /// Large changes may come again.
    pub(super) fn end_pause(&mut self) {
        self.pause_until = Monotonic::default();
    }

    fn any_ordinary(&mut self) -> First<T> {
        (self.group, self.large_is_due) = (Group::Ordinary, true);
        self.take_ordinary().map_or(First::Nothing, First::Item)
    }

    /// If a group of large changes has just ended, says until when the next one waits.
    fn note_end(&mut self, now: Monotonic) {
        let Some(since) = self.large_since.take() else { return };
        let took = Duration::from_nanos(now.0.saturating_sub(since.0));
        let least = if self.large.is_empty() { Duration::ZERO } else { LEAST_PAUSE };
        let pause = took.saturating_mul(PAUSE_FACTOR).max(least).min(LONGEST_PAUSE);
        let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.pause_until = Monotonic(now.0.saturating_add(nanos));
    }

    /// How much longer large changes wait so that others can write.
    fn pause(&self, now: Monotonic) -> Option<Duration> {
        let remaining = self.pause_until.0.saturating_sub(now.0);
        (self.others_write && remaining > 0).then(|| Duration::from_nanos(remaining))
    }

    /// Whether something that keeps its place waits behind a large change.
    fn has_to_come(&self) -> bool {
        self.ordinary.front().is_some_and(|(_, item)| item.is_barrier())
    }

    /// The next item of the group that [`Self::first`] began.
    pub(super) fn another(&mut self) -> Option<T> {
        match self.group {
            Group::Ordinary if self.ordinary_may_come() => self.take_ordinary(),
            Group::Large(remaining) if remaining > 0 && self.large_may_come() => self.take_large(),
            _ => None,
        }
    }

    /// Whether the lane of large ones has an item that came before all in the other lane.
    fn large_may_come(&self) -> bool {
        let Some((number, _)) = self.large.front() else { return false };
        self.ordinary.front().is_none_or(|(first, _)| number < first)
    }

    /// Whether the ordinary lane has an item in front that may overtake large ones.
    fn ordinary_may_come(&self) -> bool {
        self.ordinary.front().is_some_and(|(_, item)| !item.is_barrier()) || !self.large_may_come()
    }

    fn take_ordinary(&mut self) -> Option<T> {
        self.ordinary.pop_front().map(|(_, item)| item)
    }

    fn take_large(&mut self) -> Option<T> {
        let (_, item) = self.large.pop_front()?;
        if let Some(identity) = item.identity() {
            self.large_for.insert(Arc::clone(identity));
            if let Some(count) = self.large_counts.get_mut(identity) {
                *count -= 1;
                if *count == 0 {
                    self.large_counts.remove(identity);
                }
            }
        }
        if let Group::Large(remaining) = &mut self.group {
            *remaining = remaining.saturating_sub(item.weight());
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests;
