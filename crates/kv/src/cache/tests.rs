use std::collections::BTreeMap;

use super::*;

type Engine = BTreeMap<Vec<u8>, Vec<u8>>;

/// A generator of the same numbers in each run (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn key(&mut self) -> Vec<u8> {
        let length = 1 + self.below(2);
        (0..length).map(|_| u8::try_from(self.below(6)).expect("small")).collect()
    }
}

fn range_of(numbers: &mut Numbers) -> Range {
    let from = if numbers.below(6) == 0 { Vec::new() } else { numbers.key() };
    let to = (numbers.below(5) != 0).then(|| numbers.key()).filter(|to| *to > from);
    Range { table: 1, from, to }
}

fn within<'a>(engine: &'a Engine, range: &Range) -> Vec<(&'a Vec<u8>, &'a Vec<u8>)> {
    engine.iter().filter(|(key, _)| range.contains(1, key)).collect()
}

fn plain(record: Record) -> (Vec<u8>, Vec<u8>) {
    (record.0.to_vec(), record.1.to_vec())
}

/// Whatever the cache says is what the engine held at that commit, with commits of this node and of others, views of older
/// commits, late fills, and room for little.
#[test]
fn what_is_known_is_true() {
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let mut states: Vec<Engine> = vec![Engine::new()];
        let room = if seed % 2 == 0 { 1 << 20 } else { 1500 };
        let mut cache = Cache::new(2, room, 0);
        let mut known = 0u32;
        for _ in 0..3000 {
            let newest = states.len() as u64 - 1;
            let as_of = newest - numbers.below(newest.min(3) + 1);
            let state = states[usize::try_from(as_of).expect("small")].clone();
            match numbers.below(10) {
                0 => {
                    commit(&mut numbers, &mut states, &mut cache);
                    cache.tables.iter().for_each(Table::check);
                }
                1..5 => {
                    let range = range_of(&mut numbers);
                    let records: Vec<Record> = within(&state, &range)
                        .into_iter()
                        .map(|(key, value)| (key.as_slice().into(), value.as_slice().into()))
                        .collect();
                    cache.fill(&range, &records, as_of);
                    cache.tables.iter().for_each(Table::check);
                    assert!(cache.bytes() <= room, "{} bytes", cache.bytes());
                }
                5 | 6 => match cache.first(&range_of_same(&mut numbers), as_of) {
                    CacheLookup::Unknown => {}
                    found => check(&mut known, found, &numbers, &state, false),
                },
                7 | 8 => match cache.last(&range_of_same(&mut numbers), as_of) {
                    CacheLookup::Unknown => {}
                    found => check(&mut known, found, &numbers, &state, true),
                },
                _ => {
                    let key = numbers.key();
                    let want = state.get(&key).cloned();
                    match cache.get(1, &key, as_of) {
                        CacheLookup::Unknown => {}
                        CacheLookup::Nothing => assert_eq!(want, None, "seed {seed}: {key:?}"),
                        CacheLookup::Some(value) => {
                            assert_eq!(Some(value.to_vec()), want, "seed {seed}: {key:?}")
                        }
                    }
                }
            }
        }
        assert!(known > 50, "seed {seed}: only {known} answers were known");
    }
}

thread_local! {
    static ASKED: std::cell::RefCell<Option<Range>> = const { std::cell::RefCell::new(None) };
}

fn range_of_same(numbers: &mut Numbers) -> Range {
    let range = range_of(numbers);
    ASKED.with(|asked| *asked.borrow_mut() = Some(range.clone()));
    range
}

fn check(known: &mut u32, found: CacheLookup<Record>, _: &Numbers, state: &Engine, backward: bool) {
    *known += 1;
    let range = ASKED.with(|asked| asked.borrow().clone()).expect("asked");
    let all = within(state, &range);
    let want = if backward { all.last() } else { all.first() };
    let want = want.map(|(key, value)| ((*key).clone(), (*value).clone()));
    let got = match found {
        CacheLookup::Some(record) => Some(plain(record)),
        CacheLookup::Nothing | CacheLookup::Unknown => None,
    };
    assert_eq!(got, want, "{range:?} backward: {backward}");
}

fn commit(numbers: &mut Numbers, states: &mut Vec<Engine>, cache: &mut Cache) {
    let mut next = states.last().expect("a state").clone();
    let mut rows: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
    for _ in 0..=numbers.below(3) {
        let value = (numbers.below(3) != 0).then(|| numbers.key());
        rows.insert(numbers.key(), value);
    }
    for (key, value) in &rows {
        match value {
            Some(value) => next.insert(key.clone(), value.clone()),
            None => next.remove(key),
        };
    }
    states.push(next);
    let version = states.len() as u64 - 1;
    let keys: Keys = rows.keys().map(|key| (1, key.as_slice().into())).collect();
    match numbers.below(8) {
        0 => cache.advance(vec![(version, None)]),
        1 => cache.forget(version),
        2..5 => cache.advance(vec![(version - 1, Some(Keys::new())), (version, Some(keys))]),
        _ => {
            let mut rows = rows.into_iter().map(|(key, value)| (1, key.into(), value.map(Into::into)));
            cache.committed(version, Some(keys), &mut rows);
        }
    }
}

#[test]
fn what_is_used_stays_and_the_rest_makes_room() {
    let mut cache = Cache::new(2, 100_000, 0);
    let record = |key: u64| -> Record { ((&key.to_be_bytes()[..]).into(), [7; 200][..].into()) };
    let range = |key: u64| Range::key(1, &key.to_be_bytes());
    for key in 0..10_000 {
        cache.fill(&range(key * 2), &[record(key * 2)], 0);
        assert!(cache.bytes() <= 100_000);
        assert!(
            matches!(cache.get(1, &0u64.to_be_bytes(), 0), CacheLookup::Some(_)),
            "it is used all the time"
        );
    }
}

#[test]
fn a_gap_in_the_commits_empties_it() {
    let mut cache = Cache::new(2, 100_000, 5);
    cache.fill(&Range { table: 1, from: Vec::new(), to: None }, &[], 5);
    assert_eq!(cache.get(1, b"a", 5), CacheLookup::Nothing);
    cache.advance(vec![(7, Some(Keys::new()))]);
    assert_eq!((cache.version(), cache.get(1, b"a", 7)), (7, CacheLookup::Unknown));
    assert!(cache.changed(&Range::key(1, b"a"), 5), "nobody knows what the one between changed");
}

const MANY: u64 = 4_000;

fn record(key: u64) -> Record {
    ((&key.to_be_bytes()[..]).into(), [7; 20][..].into())
}

/// From one number's key to before another's.
fn from_to(from: u64, to: u64) -> Range {
    Range { table: 1, from: from.to_be_bytes().to_vec(), to: Some(to.to_be_bytes().to_vec()) }
}

fn steps<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = table::STEPS.get();
    let done = work();
    (table::STEPS.get() - before, done)
}

/// Commits rows, each in one of its own, and what a read of everything then looks at.
fn read_behind(cache: &mut Cache, rows: impl Iterator<Item = (u64, bool)>, together: bool) -> usize {
    let all = Range { table: 1, from: Vec::new(), to: None };
    let mut looked = 0;
    let row = |(key, stays): (u64, bool)| -> Row {
        (1, key.to_be_bytes().into(), stays.then(|| [7; 20][..].into()))
    };
    let commits: Vec<Vec<Row>> = match together {
        true => vec![rows.map(row).collect()],
        false => rows.map(|one| vec![row(one)]).collect(),
    };
    for rows in commits {
        let version = cache.version() + 1;
        cache.committed(version, Some(Keys::new()), &mut rows.into_iter());
        let (first, _) = steps(|| cache.first(&all, version));
        let (last, _) = steps(|| cache.last(&all, version));
        looked += first.max(last);
    }
    looked
}

/// What is read or filled takes as long as what it brings, whatever was known or removed there before.
#[test]
fn no_read_and_no_fill_goes_through_what_it_does_not_bring() {
    let all = || Range { table: 1, from: Vec::new(), to: None };
    let one = usize::try_from(MANY).expect("small");
    let keys = || 0..MANY;
    // Keys of posting lists that are new, each asked for the first block from there on: all find the record behind the last.
    type Order = fn() -> Box<dyn Iterator<Item = u64>>;
    let orders: [(&str, Order); 3] = [
        ("ascending", || Box::new(0..MANY)),
        ("descending", || Box::new((0..MANY).rev())),
        ("from both ends", || Box::new((0..MANY).map(|at| if at % 2 == 0 { at } else { MANY - at }))),
    ];
    for (order, keys) in orders {
        let mut cache = Cache::new(2, 1 << 30, 0);
        let (looked, ()) = steps(|| {
            for key in keys() {
                cache.fill(&from_to(key, MANY + 2), &[record(MANY + 1)], 0);
                cache.fill(&Range { from: vec![0], ..from_to(0, key + 1) }, &[], 0);
            }
        });
        assert!(looked < 8 * one, "first blocks, {order}: {looked} entries for {one} lists");
        let (looked, found) = steps(|| cache.first(&Range { from: vec![0], ..all() }, 0));
        assert!(looked < 4 && found == CacheLookup::Some(record(MANY + 1)), "{order}: {looked}");
        cache.tables.iter().for_each(Table::check);
    }
    // A queue that is worked off, from its beginning and all at once, and one that grows meanwhile.
    for (what, removed, together) in [
        ("one after the other", keys().map(|key| (key, false)).collect::<Vec<_>>(), false),
        ("from the end", keys().rev().map(|key| (key, false)).collect(), false),
        ("at once", keys().map(|key| (key, false)).collect(), true),
        ("while it grows", keys().flat_map(|key| [(MANY + key, true), (key, false)]).collect(), false),
    ] {
        let mut cache = Cache::new(2, 1 << 30, 0);
        cache.fill(&all(), &keys().map(record).collect::<Vec<_>>(), 0);
        let commits = if together { 1 } else { removed.len() };
        let looked = read_behind(&mut cache, removed.into_iter(), together);
        assert!(looked <= 3 * commits, "{what}: {looked} entries for {commits} reads");
        let version = cache.version();
        let stays: Vec<Record> = if what == "while it grows" {
            keys().map(|key| record(MANY + key)).collect()
        } else {
            Vec::new()
        };
        let (looked, ()) = steps(|| cache.fill(&all(), &stays, version));
        let stays = stays.len();
        assert!(looked <= 2 * stays + 3, "{what}: {looked} entries for a range with {stays} records");
        cache.tables.iter().for_each(Table::check);
    }
}
