//! What waits in a writer's queue, in two lanes: large changes wait apart, so that another identity's small change waits for one
//! group of them at most, however many there are.
//!
//! **What one identity asks for is carried out in the order in which it came**: a large change overtakes nothing, and behind one
//! that waits the small ones of its identity wait in the same lane. A barrier is overtaken by nothing and overtakes nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The weight from which a change waits in the lane of large ones: some 1.5 ms of work on an ordinary processor.
pub(super) const LARGE: usize = 1_024;
/// The weight after which a group of large changes takes no more of them.
pub(super) const LARGE_GROUP: usize = 4_096;

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
    held: HashMap<Arc<str>, usize>,
    next: u64,
    group: Group,
    /// The last group was one of small changes.
    large_is_due: bool,
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
            held: HashMap::new(),
            next: 0,
            group: Group::Ordinary,
            large_is_due: false,
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
            let follows = !self.held.is_empty() && self.held.contains_key(identity);
            if follows || item.weight() >= LARGE {
                *self.held.entry(Arc::clone(identity)).or_default() += 1;
                self.large.push_back((number, item));
                return;
            }
        }
        self.ordinary.push_back((number, item));
    }

    /// The first item of another group, if any waits: groups of the two lanes take turns.
    pub(super) fn first(&mut self) -> Option<T> {
        if self.large_may_come() && (self.large_is_due || !self.ordinary_may_come()) {
            (self.group, self.large_is_due) = (Group::Large(LARGE_GROUP), false);
            return self.take_large();
        }
        (self.group, self.large_is_due) = (Group::Ordinary, true);
        self.take_ordinary()
    }

    /// The next item of the group that [`Self::first`] began.
    pub(super) fn another(&mut self) -> Option<T> {
        match self.group {
            Group::Ordinary if self.ordinary_may_come() => self.take_ordinary(),
            Group::Large(left) if left > 0 && self.large_may_come() => self.take_large(),
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
        if let Some(identity) = item.identity()
            && let Some(count) = self.held.get_mut(identity)
        {
            *count -= 1;
            if *count == 0 {
                self.held.remove(identity);
            }
        }
        if let Group::Large(left) = &mut self.group {
            *left = left.saturating_sub(item.weight());
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        while let Some(first) = lanes.first() {
            let mut group = vec![first.name];
            group.extend(std::iter::from_fn(|| lanes.another()).map(|item| item.name));
            groups.push(group);
        }
        assert!(lanes.is_empty() && lanes.held.is_empty());
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
            let first = lanes.first().map(|item| item.name);
            while lanes.another().is_some() {}
            first
        };
        let firsts: Vec<_> = (0..6).map(|name| next(&mut lanes, name)).collect();
        let ordinary = firsts.iter().filter(|first| first.is_some_and(|name| name < 100)).count();
        assert_eq!(ordinary, 3, "{firsts:?}");
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
