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
mod tests {
    use super::*;

    const ONE_SECOND: u64 = 1_000_000_000;

    #[derive(Debug, PartialEq, Eq)]
    struct Item {
        name: u32,
        weight: usize,
        identity: Option<Arc<str>>,
        is_barrier: bool,
    }

    impl Waits for Item {
        fn weight(&self) -> usize {
            self.weight
        }

        fn identity(&self) -> Option<&Arc<str>> {
            self.identity.as_ref()
        }

        fn is_barrier(&self) -> bool {
            self.is_barrier
        }
    }

    fn change(name: u32, identity: &str, weight: usize) -> Item {
        Item { name, weight, identity: Some(identity.into()), is_barrier: false }
    }

    fn barrier(name: u32) -> Item {
        Item { name, weight: 1, identity: None, is_barrier: true }
    }

    /// The groups in which the items are handed out.
    fn groups(items: Vec<Item>) -> Vec<Vec<u32>> {
        let mut lanes = Lanes::default();
        let all = items.len();
        for item in items {
            lanes.push(item);
        }
        assert_eq!((lanes.len(), lanes.iter().count()), (all, all));
        let mut groups = Vec::new();
        while let First::Item(first) = lanes.first(Monotonic::default()) {
            let mut group = vec![first.name];
            group.extend(std::iter::from_fn(|| lanes.another()).map(|item| item.name));
            groups.push(group);
        }
        assert!(lanes.is_empty() && lanes.large_counts.is_empty());
        groups
    }

    #[test]
    fn small_changes_of_others_do_not_wait_for_all_large_ones() {
        let mut items: Vec<Item> = (0..4).map(|name| change(name, "attacker", LARGE_GROUP)).collect();
        items.extend((10..13).map(|name| change(name, "user", 1)));
        assert_eq!(groups(items), [vec![10, 11, 12], vec![0], vec![1], vec![2], vec![3]]);
    }

    #[test]
    fn lanes_take_turns() {
        let mut lanes = Lanes::default();
        let next = |lanes: &mut Lanes<Item>, name| {
            lanes.push(change(name, "user", 1));
            lanes.push(change(100 + name, "other", LARGE_GROUP));
            // Nothing takes time here but the pauses.
            let First::Item(first) = lanes.first(Monotonic(u64::from(name) * ONE_SECOND)) else {
                return None;
            };
            while lanes.another().is_some() {}
            Some(first.name)
        };
        let firsts: Vec<_> = (0..6).map(|name| next(&mut lanes, name)).collect();
        let ordinary = firsts.iter().filter(|first| first.is_some_and(|name| name < 100)).count();
        assert_eq!(ordinary, 3, "{firsts:?}");
    }

    /// Hands out a large change, which takes `took`, with another one behind it if `more`, and says how long the next one waits.
    fn pause_behind(took: u64, more: bool, other: &str) -> Option<Duration> {
        let mut lanes = Lanes::default();
        lanes.push(change(0, "loader", LARGE_GROUP));
        assert_eq!(lanes.first(Monotonic(7)), First::Item(change(0, "loader", LARGE_GROUP)));
        assert_eq!(lanes.another(), None);
        if more {
            lanes.push(change(1, "loader", LARGE_GROUP));
        }
        if !other.is_empty() {
            lanes.push(change(2, other, 1));
        }
        let first = lanes.first(Monotonic(7 + took));
        if !more {
            lanes.push(change(1, "loader", LARGE_GROUP));
        }
        if let First::Item(Item { name: 2, .. }) = first {
            return match lanes.first(Monotonic(7 + took)) {
                First::Later(pause) => {
                    let nanos = u64::try_from(pause.as_nanos()).unwrap();
                    let end = lanes.first(Monotonic(7 + took + nanos));
                    assert_eq!(end, First::Item(change(1, "loader", LARGE_GROUP)));
                    Some(pause)
                }
                other => panic!("{other:?}"),
            };
        }
        None
    }

    #[test]
    fn large_changes_leave_others_four_fifths_of_the_time() {
        const MS: u64 = 1_000_000;
        assert_eq!(pause_behind(5 * MS, false, "user"), Some(Duration::from_millis(20)));
        assert_eq!(pause_behind(5 * MS, true, "user"), Some(LEAST_PAUSE));
        assert_eq!(pause_behind(30 * MS, true, "user"), Some(Duration::from_millis(120)));
        assert_eq!(pause_behind(60 * ONE_SECOND, true, "user"), Some(LONGEST_PAUSE));
        // Nobody else writes.
        assert_eq!(pause_behind(30 * MS, true, ""), None);
    }

    #[test]
    fn a_small_change_of_the_same_identity_makes_no_pause() {
        let mut lanes = Lanes::default();
        lanes.push(change(0, "loader", LARGE));
        assert_eq!(lanes.first(Monotonic(0)), First::Item(change(0, "loader", LARGE)));
        lanes.push(change(1, "loader", 1));
        lanes.push(change(2, "loader", LARGE));
        assert_eq!(lanes.first(Monotonic(ONE_SECOND)), First::Item(change(1, "loader", 1)));
        assert_eq!(lanes.first(Monotonic(ONE_SECOND)), First::Item(change(2, "loader", LARGE)));
    }

    #[test]
    fn one_that_keeps_its_place_waits_for_no_pause() {
        let mut lanes = Lanes::default();
        lanes.push(change(0, "loader", LARGE));
        assert_eq!(lanes.first(Monotonic(0)), First::Item(change(0, "loader", LARGE)));
        lanes.push(change(1, "loader", LARGE));
        lanes.push(change(2, "user", 1));
        assert_eq!(lanes.first(Monotonic(ONE_SECOND)), First::Item(change(2, "user", 1)));
        assert!(matches!(lanes.first(Monotonic(ONE_SECOND)), First::Later(_)));
        lanes.push(barrier(3));
        assert_eq!(lanes.first(Monotonic(ONE_SECOND)), First::Item(change(1, "loader", LARGE)));
        assert_eq!(lanes.first(Monotonic(ONE_SECOND)), First::Item(barrier(3)));
    }

    #[test]
    fn one_identity_keeps_its_order() {
        let items = vec![
            change(0, "loader", LARGE),
            change(1, "loader", 1),
            change(2, "user", 1),
            change(3, "loader", LARGE),
            change(4, "loader", 1),
        ];
        assert_eq!(groups(items), [vec![2], vec![0, 1, 3, 4]]);
    }

    #[test]
    fn a_barrier_keeps_its_place() {
        let items = vec![
            change(0, "a", LARGE_GROUP),
            change(1, "b", 1),
            barrier(2),
            change(3, "c", 1),
            change(4, "a", LARGE_GROUP),
            barrier(5),
        ];
        assert_eq!(groups(items).concat(), [1, 0, 2, 3, 4, 5]);
        assert_eq!(groups(vec![change(0, "a", LARGE), barrier(1), barrier(2)]).concat(), [0, 1, 2]);
    }

    #[test]
    fn any_mixture_is_handed_out_once_and_in_order() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..500 {
            let count = random(40);
            let kinds: Vec<u64> = (0..count).map(|_| random(20)).collect();
            let items = kinds.iter().zip(0..).map(|(kind, name)| match kind {
                0 => barrier(name),
                1 => Item { identity: None, ..change(name, "", 0) },
                2..=5 => change(name, ["a", "b", "c", "d"][usize::try_from(kind - 2).unwrap()], LARGE * 3),
                _ => change(name, ["a", "b", "c"][usize::try_from(kind % 3).unwrap()], 1),
            });
            let items: Vec<Item> = items.collect();
            let who: Vec<_> = items.iter().map(|item| (item.identity.clone(), item.is_barrier)).collect();
            let order = groups(items).concat();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.iter().copied().eq(0..u32::try_from(count).unwrap()), "{kinds:?}: {order:?}");
            for (at, &earlier) in order.iter().enumerate() {
                for &later in order.iter().skip(at + 1).filter(|&&later| later < earlier) {
                    let (one, other) = (&who[earlier as usize], &who[later as usize]);
                    let may_swap = !one.1 && !other.1 && (one.0 != other.0 || one.0.is_none());
                    assert!(may_swap, "{kinds:?}: {later} behind {earlier}");
                }
            }
        }
    }
}
