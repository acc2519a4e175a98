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
