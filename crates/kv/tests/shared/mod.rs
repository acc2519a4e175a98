//! What holds over any engine, written once: each engine's tests run all of it by [`over`].

pub(crate) mod wanted;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larix_kv::{Address, Freshness, Holding, KvOptions, KvStore, OpenError};
use larix_store::contract::{self, INTEGER, ORDERED, POSTINGS, TABLES};
use larix_store::{
    CommitError, CommitId, Direction, Durability, KeyRange, ReadError, Snapshot, Store, Transaction, WriteSet,
};
use larix_testkit::SetAtEnd;
// `in_time` waits for what a busy machine need not do at once.
pub(crate) use larix_testkit::{until, until_some as in_time};

/// Where a store is.
#[derive(Clone, Debug)]
pub(crate) struct StoreAddress {
    pub(crate) address: String,
    pub(crate) schema: String,
}

/// An engine that has room for stores.
pub(crate) trait TestEngine {
    /// Round trips for a path of three steps, of which nothing is known.
    const PATH_TRIPS: u64;

    /// A place with no store so far.
    fn place(&self) -> StoreAddress;

    /// One where commits of some rows are carried out in parts, if the engine has such.
    fn narrow(&self) -> StoreAddress {
        self.place()
    }
}

/// The usual options, but for a deadline that an engine on a busy machine keeps, too: for what is not about deadlines.
pub(crate) fn unhurried() -> KvOptions {
    KvOptions { deadline: Duration::from_secs(60), ..KvOptions::default() }
}

pub(crate) fn open(place: &StoreAddress, options: &KvOptions) -> Result<KvStore, OpenError> {
    let options = KvOptions { schema: place.schema.clone(), ..options.clone() };
    KvStore::open(&Address::parse(&place.address).expect("an address"), &TABLES, &options)
}

fn fresh(engine: &impl TestEngine) -> (KvStore, StoreAddress) {
    let place = engine.place();
    (open(&place, &unhurried()).expect("open"), place)
}

pub(crate) fn put(key: &[u8], value: &[u8]) -> WriteSet {
    let mut set = WriteSet::new();
    set.put(ORDERED, key, value);
    set
}

pub(crate) fn commit(store: &KvStore, set: &WriteSet) -> Result<CommitId, CommitError> {
    store.transaction()?.commit(set, Durability::Sync)
}

pub(crate) fn get(store: &KvStore, key: &[u8]) -> Option<Vec<u8>> {
    let snapshot = store.snapshot().expect("snapshot");
    snapshot.get(ORDERED, key).expect("get").map(|value| value.into_owned())
}

pub(crate) fn keeps_the_contract(engine: &impl TestEngine) {
    contract::run(|| (fresh(engine).0, ()));
    // A cache that holds next to nothing changes no answer.
    let small = KvOptions { cache_bytes: 2000, ..unhurried() };
    contract::run(|| (open(&engine.place(), &small).expect("open"), ()));
}

pub(crate) fn handles_keep_the_contract(engine: &impl TestEngine) {
    for is_narrow in [false, true] {
        let last = RefCell::new(engine.place());
        let handle = || open(&last.borrow(), &unhurried()).expect("open");
        contract::run_shared(
            || {
                last.replace(if is_narrow { engine.narrow() } else { engine.place() });
                (handle(), handle(), ())
            },
            |_| {
                let leader = handle();
                leader.take_over().expect("take over");
                leader
            },
        );
    }
}

/// What two handles and one without a cache show stays the same whoever commits.
pub(crate) fn caches_follow_the_commits_of_others(engine: &impl TestEngine) {
    let place = engine.narrow();
    let one = open(&place, &unhurried()).expect("open");
    let two = open(&place, &unhurried()).expect("open");
    let plain = open(&place, &KvOptions { cache_bytes: 0, ..unhurried() }).expect("open");
    let mut number = 7u64;
    let mut below = |limit: u64| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % limit
    };
    for round in 0..150 {
        let mut set = WriteSet::new();
        for _ in 0..=below(4) {
            let key = [b'a' + u8::try_from(below(12)).expect("small")];
            match below(5) {
                0 => set.delete(ORDERED, &key),
                1 => set.put(ORDERED, &key, below(1000).to_be_bytes()),
                2 => (0..below(900)).for_each(|id| set.add_posting(POSTINGS, &[key[0], 0], id * 37)),
                3 => (0..below(900)).for_each(|id| set.remove_posting(POSTINGS, &[key[0], 0], id * 74)),
                _ => (0..below(60)).for_each(|id| set.put(INTEGER, &id.to_be_bytes(), key)),
            }
        }
        commit(if below(2) == 0 { &one } else { &two }, &set).expect("commit");
        // Not every cache is asked each time.
        let shown: Vec<_> = [&one, &two, &plain]
            .into_iter()
            .filter_map(|store| {
                let direction = if below(2) == 0 { Direction::Forward } else { Direction::Backward };
                (below(3) != 0).then(|| all(store, direction))
            })
            .collect();
        assert!(shown.windows(2).all(|pair| pair[0] == pair[1]), "round {round}: {shown:?}");
    }
    assert!(one.figures().cache_bytes > 0 && plain.figures().cache_bytes == 0);
}

type Shown = (Vec<(Vec<u8>, Vec<u8>)>, Vec<(Vec<u8>, Vec<u64>)>);

fn all(store: &KvStore, direction: Direction) -> Shown {
    let snapshot = store.snapshot().expect("snapshot");
    let mut records = Vec::new();
    for table in [ORDERED, INTEGER] {
        let rows = snapshot.scan(table, KeyRange::all(), direction).expect("scan");
        records.extend(
            rows.map(|row| row.map(|(key, value)| (key.into_owned(), value.into_owned())).expect("a row")),
        );
    }
    records.sort();
    let mut lists = Vec::new();
    for key in b'a'..b'a' + 12 {
        let set = snapshot.posting_set(POSTINGS, &[key, 0]).expect("ids");
        lists.push((vec![key], set.iter().collect()));
    }
    (records, lists)
}

pub(crate) fn what_is_wanted_comes_at_once<P: TestEngine>(engine: &P) {
    let (writer, place) = fresh(engine);
    let reader = open(&place, &unhurried()).expect("open");
    wanted::comes_at_once(&writer, &reader, P::PATH_TRIPS);
}

pub(crate) fn paths_are_guessed_by_lists<P: TestEngine>(engine: &P) {
    let (writer, place) = fresh(engine);
    wanted::is_guessed(&writer, &|| open(&place, &unhurried()).expect("open"), P::PATH_TRIPS);
}

pub(crate) fn round_trips_are_few(engine: &impl TestEngine) {
    let (store, place) = fresh(engine);
    let mut set = WriteSet::new();
    for id in 0u64..2000 {
        set.put(INTEGER, &id.to_be_bytes(), vec![7; 50]);
        set.add_posting(POSTINGS, &[b"k", &(id % 50).to_be_bytes()[..]].concat(), id);
    }
    commit(&store, &set).expect("commit");
    let other = open(&place, &unhurried()).expect("open");
    let session = KvOptions { freshness: Freshness::Session, ..unhurried() };
    let session = open(&place, &session).expect("open");
    let trips = |store: &KvStore, what: &dyn Fn(&KvStore)| {
        let before = store.figures().trips;
        what(store);
        store.figures().trips - before
    };
    let read = |store: &KvStore| {
        let snapshot = store.snapshot().expect("snapshot");
        assert!(snapshot.get(INTEGER, &5u64.to_be_bytes()).expect("get").is_some());
    };
    let many = |store: &KvStore| {
        let keys: Vec<_> = (100u64..164).map(u64::to_be_bytes).collect();
        let snapshot = store.snapshot().expect("snapshot");
        let got = snapshot.get_many(INTEGER, &keys).expect("get");
        assert!(got.iter().all(Option::is_some));
    };
    let scan = |store: &KvStore| {
        let snapshot = store.snapshot().expect("snapshot");
        assert_eq!(snapshot.scan(INTEGER, KeyRange::all(), Direction::Forward).expect("scan").count(), 2000);
    };
    let change = |store: &KvStore| {
        let mut set = WriteSet::new();
        for list in 0u64..50 {
            set.add_posting(
                POSTINGS,
                &[b"k", &list.to_be_bytes()[..]].concat(),
                5000 + store.commit_counter(),
            );
        }
        commit(store, &set).expect("commit");
    };
    // The moment of the view is one trip where everything acknowledged anywhere is to be seen, and none in a session.
    for (what, store, expected) in [
        ("strict, cold and warm", &other, [2, 1, 2, 1, 8, 1, 3, 2]),
        ("session, cold and warm", &session, [1, 0, 1, 0, 7, 0, 3, 1]),
    ] {
        let steps: [&dyn Fn(&KvStore); 8] = [&read, &read, &many, &many, &scan, &scan, &change, &change];
        let got: Vec<u64> = steps.into_iter().map(|step| trips(store, step)).collect();
        assert_eq!(got, expected, "{what}");
    }
    // The one that alone writes leaves it to the fence whether it has missed anything.
    other.take_over().expect("take over");
    let got = [trips(&other, &change), trips(&other, &change), trips(&other, &change)];
    // The lists were changed by the other one meanwhile.
    assert_eq!(got, [3, 1, 1], "strict, behind taking over");
}

/// Who alone writes does not ask before a transaction. If it changes nothing, what was read is looked at in the end.
pub(crate) fn a_transaction_without_changes_says_what_holds(engine: &impl TestEngine) {
    for freshness in [Freshness::Strict, Freshness::Session, Freshness::Bounded(Duration::from_secs(3600))] {
        without_changes(engine, freshness);
    }
}

fn without_changes(engine: &impl TestEngine, freshness: Freshness) {
    let (place, options) = (engine.place(), KvOptions { freshness, ..unhurried() });
    let (old, new) = (open(&place, &options).expect("open"), open(&place, &options).expect("open"));
    old.take_over().expect("take over");
    commit(&old, &put(b"a", b"1")).expect("commit");
    let transaction = |store: &KvStore| -> Result<(), CommitError> {
        let transaction = store.transaction()?;
        assert_eq!(transaction.get(ORDERED, b"a").expect("get").as_deref(), Some(&b"1"[..]));
        transaction.confirm()
    };
    transaction(&old).expect("it holds");
    let before = old.figures().trips;
    transaction(&old).expect("it holds");
    assert_eq!(old.figures().trips - before, 1, "one question with {freshness:?}");
    let empty = old.transaction().expect("transaction").commit(&WriteSet::new(), Durability::Sync);
    assert!(empty.is_ok(), "{empty:?}");
    new.take_over().expect("take over");
    commit(&new, &put(b"a", b"2")).expect("commit");
    // It does not know yet that another one writes.
    let refused = transaction(&old);
    assert!(
        matches!(refused, Err(CommitError::Conflict | CommitError::Fenced)),
        "{freshness:?}: {refused:?}"
    );
    assert!(matches!(old.transaction(), Err(CommitError::Fenced)));
    assert_eq!(get(&old, b"a").as_deref(), Some(&b"2"[..]));
}

pub(crate) fn a_session_sees_its_own_and_never_a_mixture(engine: &impl TestEngine) {
    let (leader, place) = fresh(engine);
    let options = KvOptions { freshness: Freshness::Session, ..unhurried() };
    let node = open(&place, &options).expect("open");
    commit(&leader, &put(b"a", b"1")).expect("commit");
    commit(&leader, &put(b"b", b"1")).expect("commit");
    // Nothing is known: the first question brings the newest commit.
    assert_eq!(get(&node, b"a").as_deref(), Some(&b"1"[..]));
    let snapshot = node.snapshot().expect("snapshot");
    assert_eq!(snapshot.get(ORDERED, b"a").expect("get").as_deref(), Some(&b"1"[..]));
    commit(&leader, &put(b"a", b"2")).expect("commit");
    // It has read an a that is no more.
    assert!(matches!(snapshot.get(ORDERED, b"b"), Err(ReadError::Stale)));
    assert!(matches!(snapshot.get(ORDERED, b"c"), Err(ReadError::Unavailable(_))), "and stays of no use");
    drop(snapshot);
    assert_eq!(get(&node, b"a").as_deref(), Some(&b"2"[..]), "the question brought what had changed");
    // What is not concerned goes on with the newest commit.
    let snapshot = node.snapshot().expect("snapshot");
    assert_eq!(snapshot.get(ORDERED, b"a").expect("get").as_deref(), Some(&b"2"[..]));
    let done = commit(&leader, &put(b"b", b"3")).expect("commit");
    assert_eq!(snapshot.get(ORDERED, b"b").expect("get").as_deref(), Some(&b"3"[..]));
    assert_eq!(snapshot.commit_counter(), done.0);
    drop(snapshot);
    let own = commit(&node, &put(b"c", b"4")).expect("commit");
    assert_eq!(own.0, done.0 + 1);
    assert_eq!(get(&node, b"c").as_deref(), Some(&b"4"[..]));
    // A view that has asked shows its moment, whatever is committed later.
    let snapshot = leader.snapshot().expect("snapshot");
    assert_eq!(snapshot.get(ORDERED, b"x").expect("get"), None);
    commit(&leader, &put(b"b", b"late")).expect("commit");
    assert_eq!(snapshot.get(ORDERED, b"b").expect("get").as_deref(), Some(&b"3"[..]));
    drop(snapshot);
    // More commits than are told at once.
    for number in 0..300u32 {
        commit(&leader, &put(b"c", &number.to_be_bytes())).expect("commit");
    }
    // It finds out by its commit that others were first, and continues the newest from then on.
    assert!(matches!(commit(&node, &put(b"d", b"4")), Err(CommitError::Conflict)));
    commit(&node, &put(b"d", b"4")).expect("commit");
    assert_eq!(get(&node, b"c").as_deref(), Some(&299u32.to_be_bytes()[..]));
}

/// A thread that does not wait reads what is known of one commit, or nothing.
pub(crate) fn what_is_at_hand_is_of_one_commit(engine: &impl TestEngine) {
    let (leader, place) = fresh(engine);
    commit(&leader, &put(b"a", b"1")).expect("commit");
    commit(&leader, &put(b"b", b"1")).expect("commit");
    let node = |freshness| open(&place, &KvOptions { freshness, ..unhurried() }).expect("open");
    let session = node(Freshness::Session);
    let at_hand = |store: &KvStore, key: &[u8]| store.at_hand(|| get(store, key));
    let before = session.figures();
    // Even where something between takes what was not read for what is not there.
    let swallowed = session.at_hand(|| session.snapshot().expect("snapshot").get(ORDERED, b"a").is_ok());
    assert_eq!(swallowed, None);
    assert_eq!((session.figures().trips, session.figures().misses), (before.trips, before.misses));
    assert_eq!(get(&session, b"a").as_deref(), Some(&b"1"[..]));
    assert_eq!(at_hand(&session, b"a"), Some(Some(b"1".to_vec())));
    assert_eq!(session.at_hand(|| session.snapshot().expect("snapshot").get(ORDERED, b"b").is_ok()), None);
    // The next commit is known where it was made, and elsewhere with the next question.
    commit(&leader, &put(b"a", b"2")).expect("commit");
    assert_eq!(at_hand(&session, b"a"), Some(Some(b"1".to_vec())));
    let mixed = session.at_hand(|| {
        let snapshot = session.snapshot().expect("snapshot");
        // Somebody asks meanwhile: what has changed is not known of the moment of this view any more.
        assert_eq!(
            thread::scope(|scope| scope.spawn(|| get(&session, b"b")).join()).expect("read").as_deref(),
            Some(&b"1"[..])
        );
        [&b"b"[..], b"a"].map(|key| snapshot.get(ORDERED, key).is_ok())
    });
    assert_eq!(mixed, None);
    assert_eq!(get(&session, b"a").as_deref(), Some(&b"2"[..]));
    assert_eq!(at_hand(&session, b"a"), Some(Some(b"2".to_vec())));
    // Who promises what is newest asks.
    for freshness in [Freshness::Strict, Freshness::Bounded(Duration::ZERO)] {
        let store = node(freshness);
        assert_eq!(get(&store, b"a").as_deref(), Some(&b"2"[..]));
        thread::sleep(Duration::from_millis(2));
        assert_eq!(at_hand(&store, b"a"), None, "{freshness:?}");
    }
    let patient = node(Freshness::Bounded(Duration::from_secs(3600)));
    assert_eq!(get(&patient, b"a").as_deref(), Some(&b"2"[..]));
    assert_eq!(at_hand(&patient, b"a"), Some(Some(b"2".to_vec())));
    // What is known can be read all the same, and says what it is as of.
    let strict = node(Freshness::Strict);
    let is_known = || {
        let read = || strict.snapshot().expect("snapshot").get(ORDERED, b"a").is_ok();
        strict.as_known(read).is_some()
    };
    assert!(!is_known(), "nothing was read yet");
    assert_eq!(get(&strict, b"a").as_deref(), Some(&b"2"[..]));
    let trips = strict.figures().trips;
    let (as_of, known) = strict.as_known(|| get(&strict, b"a")).expect("known");
    assert_eq!((known.as_deref(), strict.figures().trips), (Some(&b"2"[..]), trips));
    assert_eq!(strict.hear().expect("an answer"), as_of, "nothing has changed");
    assert_eq!(strict.figures().trips, trips + 1);
    commit(&leader, &put(b"a", b"3")).expect("commit");
    assert_eq!(strict.as_known(|| get(&strict, b"a")), Some((as_of, Some(b"2".to_vec()))));
    let newest = strict.hear().expect("an answer");
    assert_eq!(newest, as_of + 1, "that is not confirmed");
    assert!(!is_known(), "it has changed");
    assert_eq!(get(&strict, b"a").as_deref(), Some(&b"3"[..]));
    assert_eq!(strict.as_known(|| get(&strict, b"a")), Some((newest, Some(b"3".to_vec()))));
}

/// What was acknowledged longer ago than the bound is seen, and within the bound no question is asked.
pub(crate) fn a_bounded_view_asks_when_its_time_is_over(engine: &impl TestEngine) {
    let (leader, place) = fresh(engine);
    let node = |freshness| open(&place, &KvOptions { freshness, ..unhurried() }).expect("open");
    // More than a commit takes on a busy machine.
    let bound = Duration::from_millis(1500);
    let (bounded, session) = (node(Freshness::Bounded(bound)), node(Freshness::Session));
    let patient = node(Freshness::Bounded(Duration::from_secs(3600)));
    commit(&leader, &put(b"a", b"0")).expect("commit");
    for store in [&bounded, &session, &patient] {
        assert_eq!(get(store, b"a").as_deref(), Some(&b"0"[..]));
    }
    let mut within = 0;
    for round in 1..=3u8 {
        commit(&leader, &put(b"a", &[b'0' + round])).expect("commit");
        let acknowledged = Instant::now();
        loop {
            let opened = Instant::now();
            let before = bounded.figures().trips;
            let seen = get(&bounded, b"a");
            let trips = bounded.figures().trips - before;
            let is_new = seen.as_deref() == Some(&[b'0' + round][..]);
            assert!(is_new || opened.duration_since(acknowledged) <= bound, "it is older than the bound");
            if is_new {
                assert!(trips > 0, "news come with a question");
                break;
            }
            assert_eq!(trips, 0, "within the bound the cache answers");
            within += 1;
            thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(within > 0, "the bound is more than nothing");
    for store in [&session, &patient] {
        assert_eq!(get(store, b"a").as_deref(), Some(&b"0"[..]), "they have not asked");
        assert_eq!(store.afresh(|| get(store, b"a")).as_deref(), Some(&b"3"[..]), "they ask if they are to");
        assert_eq!(store.afresh(|| store.at_hand(|| ())), None, "who asks waits");
    }
}

pub(crate) fn a_transaction_of_before_is_fenced_off(engine: &impl TestEngine) {
    let (old, place) = fresh(engine);
    let began = old.transaction().expect("transaction");
    let follower = KvOptions { writes: false, ..unhurried() };
    let new = open(&place, &follower).expect("open");
    assert!(new.is_read_only() && matches!(new.transaction(), Err(CommitError::ReadOnly { .. })));
    new.take_over().expect("take over");
    let refused = began.commit(&put(b"a", b"old"), Durability::Sync);
    assert!(matches!(refused, Err(CommitError::Conflict)), "{refused:?}");
    assert!(matches!(old.transaction(), Err(CommitError::Fenced)) && old.is_read_only());
    // With the version right, the epoch alone keeps it out.
    commit(&new, &put(b"a", b"new")).expect("commit");
    assert_eq!(get(&old, b"a").as_deref(), Some(&b"new"[..]));
    assert!(matches!(old.transaction(), Err(CommitError::Fenced)));
    old.take_over().expect("take over");
    commit(&old, &put(b"a", b"again")).expect("commit");
    // It asks nothing before it commits: the first attempt finds that another one was there, and the next one, whose.
    assert!(matches!(commit(&new, &put(b"a", b"late")), Err(CommitError::Conflict)));
    assert!(matches!(commit(&new, &put(b"a", b"late")), Err(CommitError::Fenced)));
    assert_eq!(get(&new, b"a").as_deref(), Some(&b"again"[..]));
}

/// Several threads commit over one handle. What it knows stays known, whichever of them was first.
pub(crate) fn what_threads_write_at_once_stays_known(engine: &impl TestEngine) {
    const THREADS: u8 = 3;
    const ROUNDS: u32 = 100;
    let (store, _) = fresh(engine);
    store.take_over().expect("take over");
    commit(&store, &put(b"kept", b"first")).expect("commit");
    let before = store.figures().misses;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let set = put(&[thread], &round.to_be_bytes());
                    until("it is first", || match commit(store, &set) {
                        Ok(_) => true,
                        Err(CommitError::Conflict | CommitError::Read(ReadError::Stale)) => false,
                        Err(error) => panic!("{error}"),
                    });
                }
            });
        }
    });
    assert_eq!(get(&store, b"kept").as_deref(), Some(&b"first"[..]));
    for thread in 0..THREADS {
        assert_eq!(get(&store, &[thread]).as_deref(), Some(&(ROUNDS - 1).to_be_bytes()[..]));
    }
    assert_eq!(store.figures().misses - before, 0);
}

/// A transaction of before is refused, and the right that its own handle has taken since stays.
pub(crate) fn who_takes_over_again_keeps_the_right(engine: &impl TestEngine) {
    let (store, _) = fresh(engine);
    store.take_over().expect("take over");
    commit(&store, &put(b"a", b"1")).expect("commit");
    let began = store.transaction().expect("transaction");
    store.take_over().expect("take over");
    // With this question it comes to the commit that has raised the epoch.
    assert_eq!(began.get(ORDERED, b"b").expect("get"), None);
    let refused = began.commit(&put(b"a", b"2"), Durability::Sync);
    assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
    assert!(store.leads());
    commit(&store, &put(b"a", b"3")).expect("commit");
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"3"[..]));
}

/// Who commits through a handle that is about to take over waits for that, and the fence decides as ever.
pub(crate) fn changes_wait_for_one_that_is_about_to_take_over(engine: &impl TestEngine) {
    const HOUR: Duration = Duration::from_secs(3600);
    let (one, place) = fresh(engine);
    one.take_over().expect("take over");
    let next = open(&place, &KvOptions { writes: false, ..unhurried() }).expect("open");
    assert!(matches!(next.transaction(), Err(CommitError::ReadOnly { .. })));
    assert!(!next.awaits_right());
    next.expect_take_over(HOUR);
    assert!(next.expects_take_over() && next.awaits_right() && next.is_read_only());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| commit(&next, &put(b"b", b"next")));
        commit(&one, &put(b"a", b"one")).expect("the other one has the right until then");
        next.take_over().expect("take over");
        waiting.join().expect("an answer").expect("commit");
    });
    assert!(!next.expects_take_over() && !next.awaits_right());
    assert_eq!(get(&next, b"a").as_deref(), Some(&b"one"[..]));
    // Where it has not heard of the other one, it learns first that another commit has come before.
    let late = || commit(&one, &put(b"a", b"late"));
    let refused = match late() {
        Err(CommitError::Conflict) => late(),
        refused => refused,
    };
    assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
    // One that has the right expects nothing.
    next.expect_take_over(HOUR);
    assert!(!next.expects_take_over());

    // In vain: the time is over, or another one was first.
    one.expect_take_over(Duration::ZERO);
    assert!(!one.expects_take_over());
    let refused = one.transaction().map(drop);
    assert!(matches!(refused, Err(CommitError::Unavailable(_))), "{refused:?}");
    one.expect_take_over(HOUR);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| commit(&one, &put(b"a", b"late")));
        one.expect_no_take_over();
        let refused = waiting.join().expect("an answer");
        assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
    });
    assert_eq!(get(&one, b"a").as_deref(), Some(&b"one"[..]));
}

/// A node that asks nothing by itself hears that another one has committed.
pub(crate) fn nodes_hear_of_commits(engine: &impl TestEngine) {
    let (leader, place) = fresh(engine);
    let session = KvOptions { freshness: Freshness::Session, ..unhurried() };
    let node = open(&place, &session).expect("open");
    assert_eq!(get(&node, b"a"), None);
    let feed = node.commit_feed().expect("a feed");
    for round in 0..5u8 {
        commit(&leader, &put(b"a", &[round])).expect("commit");
        until("it hears of it", || {
            if feed.wait(Duration::from_secs(1)).expect("a feed") {
                node.hear().expect("an answer");
            }
            get(&node, b"a").as_deref() == Some(&[round][..])
        });
    }
    feed.check().expect("it still hears");
    feed.wake();
    assert!(feed.wait(Duration::from_secs(3600)).expect("a feed"), "it does not wait");
}

/// What a node says of itself is shown to all until it says something else, or ends.
pub(crate) fn nodes_say_what_they_are(engine: &impl TestEngine) {
    let place = engine.place();
    let node = |name: &str| {
        let options = KvOptions { name: format!("{name} larix"), writes: false, ..unhurried() };
        open(&place, &options).expect("open")
    };
    let (one, two) = (node("ldap://one"), node("ldap://two"));
    assert_eq!(one.said().expect("said"), []);
    let shows = |expected: &[(&str, &[u8])]| {
        let said = one.said().expect("said");
        let said: Vec<_> = said.iter().map(|said| (said.node.as_str(), said.words.as_slice())).collect();
        said == expected
    };
    two.say("ldap://two", b"line\n\0line").expect("said");
    one.say("ldap://one", b"first").expect("said");
    until("both are heard", || shows(&[("ldap://one", b"first"), ("ldap://two", b"line\n\0line")]));
    two.say("ldap://two", b"").expect("said");
    until("the last word counts", || shows(&[("ldap://one", b"first"), ("ldap://two", b"")]));
    one.unsay("ldap://one").expect("taken back");
    until("it is taken back", || shows(&[("ldap://two", b"")]));
    let tool = open(&place, &KvOptions { make: false, writes: false, ..unhurried() }).expect("open");
    assert_eq!(tool.said().expect("said").len(), 1);
}

/// Readers of the handle that commits hear of its commits before the answer comes, too. What it wrote stays known.
pub(crate) fn what_was_written_stays_known(engine: &impl TestEngine) {
    const ROUNDS: u32 = 200;
    let (store, _) = fresh(engine);
    store.take_over().expect("take over");
    commit(&store, &put(b"a", b"first")).expect("commit");
    assert_eq!(get(&store, b"a").as_deref(), Some(&b"first"[..]));
    let before = store.figures().misses;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetAtEnd(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    drop(store.snapshot().expect("snapshot"));
                }
            });
        }
        for round in 0..ROUNDS {
            let value = round.to_be_bytes();
            commit(&store, &put(b"a", &value)).expect("commit");
            assert_eq!(get(&store, b"a").as_deref(), Some(&value[..]));
        }
    });
    assert_eq!(store.figures().misses - before, 0, "of {ROUNDS} rounds");
}

/// Runs the tests above over an engine: `over!(Engine::start())`.
macro_rules! over {
    ($engine:expr) => {
        over!(
            $engine,
            keeps_the_contract,
            handles_keep_the_contract,
            caches_follow_the_commits_of_others,
            what_is_wanted_comes_at_once,
            paths_are_guessed_by_lists,
            round_trips_are_few,
            a_transaction_without_changes_says_what_holds,
            a_session_sees_its_own_and_never_a_mixture,
            what_is_at_hand_is_of_one_commit,
            a_bounded_view_asks_when_its_time_is_over,
            a_transaction_of_before_is_fenced_off,
            changes_wait_for_one_that_is_about_to_take_over,
            nodes_hear_of_commits,
            nodes_say_what_they_are,
            what_was_written_stays_known,
            what_threads_write_at_once_stays_known,
            who_takes_over_again_keeps_the_right,
        );
    };
    ($engine:expr, $($test:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                let Some(engine) = $engine else { return };
                shared::$test(&engine);
            }
        )*
    };
}

/// `one` has the lease. A handle that gets it back learns that another one may have had it meanwhile.
pub(crate) fn a_lost_lease_comes_anew(one: &KvStore, other: &KvStore) {
    let holds =
        |store: &KvStore, node: &str| store.renew_lease(node, Duration::from_secs(600)).expect("lease");
    assert_eq!(holds(one, "ldap://one"), Holding::Still);
    assert_eq!(holds(other, "ldap://other"), Holding::Others);
    one.release_lease().expect("released");
    assert_eq!(holds(other, "ldap://other"), Holding::Anew);
    assert_eq!(holds(other, "ldap://other"), Holding::Still);
    other.release_lease().expect("released");
    assert_eq!(holds(one, "ldap://one"), Holding::Anew);
}
