//! Overlays behind commits, and ticks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larix_engine::log::{self, LogRetention};
use larix_engine::overlay::committed::{
    ChangeOrigin, Committed, CommittedBatch, Gap, NoOtherWriters, NotTaken, Tick, TickChange, TickChanges,
    Turn,
};
use larix_engine::overlay::{Failure, Interests, Overlay};
use larix_engine::tables::TABLES;
use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_engine::{CommittedFollower, DatabaseSettings, ServedDatabase, begin_followers};
use larix_proto::ModifyOperation;
use larix_store::memory::MemoryStore;
use larix_store::shared::SharedStore;
use larix_store::{CommitError, Durability, Store as _, Transaction as _, WriteSet};

use crate::common::{Fixture, TREE, memory, schema, settings};

/// Writes down what it is shown.
#[derive(Debug, Default)]
struct Witness {
    seen: Mutex<Vec<String>>,
    /// What the next batches come to: `again`, `never`, `panic`.
    faults: Mutex<Vec<&'static str>>,
}

impl Witness {
    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Overlay for Witness {
    fn name(&self) -> &str {
        "witness"
    }

    fn interests(&self) -> Interests {
        Interests::COMMITTED
    }

    fn committed(&self) -> Option<&dyn Committed> {
        Some(self)
    }
}

impl Committed for Witness {
    fn take(&self, batch: &CommittedBatch<'_>) -> Result<(), NotTaken> {
        let fault = self.faults.lock().unwrap().pop();
        match fault {
            Some("again") => return Err(NotTaken::yet("not now")),
            Some("never") => return Err(NotTaken::ever("never")),
            Some(other) => panic!("{other}"),
            None => {}
        }
        let mut seen = self.seen.lock().unwrap();
        seen.extend(batch.gap.map(|gap| gap.to_string()));
        for change in batch.changes {
            let origin = change.origin.as_ref().map_or(0, |origin| origin.connection);
            seen.push(format!("{} {origin}", change.record.dn));
        }
        Ok(())
    }
}

/// A database and a witness of its changes.
struct Scene {
    fixture: Fixture<MemoryStore>,
    witness: Witness,
    follower: CommittedFollower<MemoryStore>,
    woken: Receiver<()>,
}

fn join(served: &Arc<ServedDatabase<MemoryStore>>) -> (CommittedFollower<MemoryStore>, Receiver<()>) {
    let (wake, woken) = mpsc::channel();
    let wake = Arc::new(move || wake.send(()).unwrap_or_default());
    (CommittedFollower::join(served, "witness", wake).unwrap(), woken)
}

impl Scene {
    fn new(retention: LogRetention) -> Self {
        let schema = schema("");
        let settings = DatabaseSettings { log_retention: retention, ..settings(&schema) };
        let fixture = Fixture::of(Arc::clone(&schema), vec![(memory(), settings)]);
        fixture.apply(TREE);
        let (follower, woken) = join(&fixture.directory.databases()[0]);
        let mut scene = Self { fixture, witness: Witness::default(), follower, woken };
        // It may have begun before the last of these: requesters hear first.
        assert_eq!(scene.round(), None);
        scene.witness.seen();
        scene
    }

    fn change(&self, value: &str) {
        self.fixture.apply(&format!(
            "dn: ou=People,dc=example,dc=com\nchangetype: modify\nreplace: description\ndescription: {value}\n-\n"
        ));
    }

    /// Waits until the last change may be read: requesters hear first.
    fn settle(&self) {
        let last = self.fixture.database().writes().log_last();
        while self.fixture.database().following().answered().sequence < last {
            self.woken.recv().unwrap();
        }
    }

    fn round(&mut self) -> Option<NotTaken> {
        self.settle();
        let origin =
            |sequence| Some(Arc::new(ChangeOrigin { connection: sequence, ..ChangeOrigin::default() }));
        self.follower.round(&self.witness, &origin, &NoOtherWriters).unwrap().not_taken
    }

    fn last(&self) -> u64 {
        self.fixture.database().writes().log_last()
    }
}

const PEOPLE: &str = "ou=People,dc=example,dc=com";

#[test]
fn changes_come_once_in_their_order_and_again_only_where_that_is_asked_for() {
    let mut scene = Scene::new(LogRetention::default());
    scene.change("a");
    scene.change("b");
    let last = scene.last();
    let line = |sequence: u64| format!("{PEOPLE} {sequence}");
    scene.witness.faults.lock().unwrap().push("again");
    assert_eq!(scene.round(), Some(NotTaken::yet("not now")));
    assert_eq!(scene.follower.behind(), 2);
    assert_eq!(scene.round(), None);
    assert_eq!(scene.witness.seen(), [line(last - 1), line(last)]);
    assert_eq!((scene.round(), scene.witness.seen()), (None, Vec::new()));
    // What is left out is said with what comes next.
    scene.change("c");
    scene.witness.faults.lock().unwrap().push("never");
    assert_eq!(scene.round(), Some(NotTaken::ever("never")));
    scene.change("d");
    assert_eq!(scene.round(), None);
    assert_eq!(scene.witness.seen(), ["1 changes".to_owned(), line(last + 2)]);
}

#[test]
fn a_panic_leaves_out_what_was_in_hand_and_nothing_else() {
    let mut scene = Scene::new(LogRetention::default());
    scene.change("a");
    scene.change("b");
    scene.settle();
    scene.witness.faults.lock().unwrap().push("a panic on purpose");
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scene.round()));
    assert!(caught.is_err());
    assert_eq!(scene.follower.leave_out(), 2);
    scene.change("c");
    assert_eq!(scene.round(), None);
    assert_eq!(scene.witness.seen(), ["2 changes".to_owned(), format!("{PEOPLE} {}", scene.last())]);
    assert_eq!(scene.follower.leave_out(), 0);
}

#[test]
fn an_overlay_goes_on_where_it_was_left() {
    let mut scene = Scene::new(LogRetention::default());
    let served = Arc::clone(&scene.fixture.directory.databases()[0]);
    scene.change("a");
    assert_eq!(scene.round(), None);
    scene.follower.keep_position().unwrap();
    scene.change("b");
    assert_eq!(scene.round(), None);
    assert_eq!(scene.witness.seen().len(), 2);
    // As after a crash: what was seen behind the kept position comes again, and what was made meanwhile.
    let last = scene.last();
    scene.change("c");
    (scene.follower, scene.woken) = join(&served);
    assert_eq!(scene.round(), None);
    assert_eq!(scene.witness.seen(), [format!("{PEOPLE} {last}"), format!("{PEOPLE} {}", last + 1)]);
    assert_eq!(served.follower_names().unwrap(), ["witness"]);
    // The configuration no longer has it: who comes later begins anew.
    let (follower, woken) = join(&served);
    std::mem::replace(&mut scene.follower, follower).forget().unwrap();
    assert_eq!(served.follower_names().unwrap(), [""; 0]);
    scene.change("d");
    scene.woken = woken;
    scene.settle();
    (scene.follower, scene.woken) = join(&served);
    assert_eq!((scene.round(), scene.witness.seen()), (None, Vec::new()));
}

#[test]
fn what_left_the_log_unread_is_a_gap() {
    let mut scene = Scene::new(LogRetention { age: Some(10), size: None });
    let first = |fixture: &Fixture<MemoryStore>| {
        let snapshot = fixture.database().store().snapshot().unwrap();
        log::first_sequence(&snapshot, 1).unwrap()
    };
    let grow = |scene: &Scene| {
        for number in 0..60 {
            scene.fixture.clock.advance_micros(1_000_000);
            scene.change(&number.to_string());
        }
    };
    grow(&scene);
    let reached = scene.follower.reached();
    assert!(first(&scene.fixture) <= reached + 1, "it stays for the follower");
    scene.follower.keep_position().unwrap();
    // The server is down, as far as the overlay is concerned: what is old goes.
    let served = Arc::clone(&scene.fixture.directory.databases()[0]);
    scene.follower.leave();
    grow(&scene);
    let oldest = first(&scene.fixture);
    assert!(oldest > reached + 1);
    (scene.follower, scene.woken) = join(&served);
    assert_eq!(scene.round(), None);
    let seen = scene.witness.seen();
    assert_eq!(seen.first(), Some(&format!("{} changes", oldest - reached - 1)));
    assert_eq!(seen.len() as u64, scene.last() - oldest + 2);
    assert_eq!(Gap::Records(3).and(Gap::Records(4)), Gap::Records(7));
    assert_eq!(Gap::Records(3).and(Gap::Unknown), Gap::Unknown);
}

/// Sequences go on under the next server ID.
#[test]
fn changes_under_several_server_ids_come_once_in_their_order() {
    let mut scene = Scene::new(LogRetention::default());
    let reached = scene.follower.reached();
    for (server_id, value) in [(2, "under the other id"), (1, "under the old one again")] {
        scene.fixture.change_server_id(server_id);
        scene.change(value);
    }
    assert_eq!(scene.round(), None);
    assert_eq!(scene.witness.seen(), [1, 2].map(|more| format!("{PEOPLE} {}", reached + more)));
}

/// Asks for a change in each turn.
#[derive(Debug, Default)]
struct Clockwork {
    turns: AtomicU64,
}

impl Tick for Clockwork {
    fn interval(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn tick(&self, turn: &Turn<'_>) -> Result<TickChanges, Failure> {
        let people = turn.schema.parse_dn(PEOPLE).unwrap();
        assert!(turn.entries.exists(&people)?);
        let number = self.turns.fetch_add(1, Ordering::Relaxed);
        let replace = |object: &str| WriteOperation::Modify {
            object: object.to_owned(),
            changes: vec![Modification {
                operation: ModifyOperation::Replace,
                attribute: AttributeValues {
                    description: "description".to_owned(),
                    values: vec![number.to_string().into_bytes()],
                },
            }],
        };
        Ok(TickChanges {
            changes: vec![
                replace(PEOPLE).into(),
                replace("ou=Nobody,dc=example,dc=com").into(),
                TickChange {
                    operation: replace("cn=Bo,ou=People,dc=example,dc=com"),
                    only_if: Some("(cn=Ann)".parse().unwrap()),
                },
            ],
            more: number == 0,
        })
    }
}

#[test]
fn a_turn_brings_changes_in_the_name_of_the_root() {
    let check = |shadow: bool, read_only: bool, ticks: bool| {
        let schema = schema("");
        let fixture = Fixture::of(Arc::clone(&schema), vec![(memory(), settings(&schema))]);
        fixture.apply(TREE);
        let served = &fixture.directory.databases()[0];
        let settings = DatabaseSettings { shadow, read_only, ..settings(&schema) };
        fixture.reconfigure(settings);
        let outcome = served.tick(&Clockwork::default()).unwrap();
        assert_eq!(outcome.is_some(), ticks);
        let Some(outcome) = outcome else { return };
        assert_eq!((outcome.done, outcome.refused.len(), outcome.more), (1, 1, true));
        assert_eq!(fixture.value(PEOPLE, "description").as_deref(), Some("0"));
        // What is no longer as the turn has seen it is left alone, and is no refusal.
        assert_eq!(fixture.value("cn=Bo,ou=People,dc=example,dc=com", "description"), None);
        assert_eq!(fixture.value(PEOPLE, "modifiersName").as_deref(), Some("cn=Manager,dc=example,dc=com"));
    };
    check(false, false, true);
    check(true, false, false);
    check(false, true, false);
}

/// One of several servers on one store, with the overlay.
struct OneOfSeveral {
    fixture: Fixture<SharedStore>,
    witness: Witness,
    follower: Option<CommittedFollower<SharedStore>>,
}

impl OneOfSeveral {
    fn new(store: SharedStore) -> Self {
        let schema = schema("");
        let fixture = Fixture::of(Arc::clone(&schema), vec![(store, settings(&schema))]);
        Self { fixture, witness: Witness::default(), follower: None }
    }

    fn served(&self) -> &Arc<ServedDatabase<SharedStore>> {
        &self.fixture.directory.databases()[0]
    }

    fn change(&self, value: &str) {
        self.fixture.apply(&format!("dn: cn={value},{PEOPLE}\nobjectClass: person\ncn: {value}\nsn: x\n"));
        // Behind it everything is answered.
        self.served().follow_store().unwrap();
    }

    /// It is this server's turn to write: its overlay goes on.
    fn begin(&mut self) {
        self.served().follow_store().unwrap();
        match &mut self.follower {
            Some(follower) => follower.resume().unwrap(),
            None => {
                let held = CommittedFollower::hold(self.served(), Arc::new(|| {}));
                let joined = CommittedFollower::join_with(self.served(), "witness", held);
                self.follower = Some(joined.unwrap());
            }
        }
    }

    /// What the overlay is shown.
    fn seen(&mut self) -> Vec<String> {
        let follower = self.follower.as_mut().unwrap();
        let round = follower.round(&self.witness, &|_| None, &NoOtherWriters).unwrap();
        assert_eq!((round.not_taken, round.more), (None, false));
        let name = |line: String| line.split(',').next().unwrap_or_default().to_owned();
        self.witness.seen().into_iter().map(name).collect()
    }

    fn keep(&mut self) -> Result<(), CommitError> {
        self.follower.as_mut().unwrap().keep_position()
    }
}

#[test]
fn the_next_server_that_writes_goes_on_where_the_one_before_was() {
    let store = SharedStore::new(&TABLES).unwrap();
    let mut one = OneOfSeveral::new(store.another());
    one.fixture.apply(TREE);
    one.served().follow_store().unwrap();
    // As the server does when it begins to write: from then on nothing is missed.
    let place = |one: &OneOfSeveral| {
        let snapshot = one.fixture.database().store().snapshot().unwrap();
        let history = log::history(&snapshot).unwrap().unwrap();
        let mut set = WriteSet::new();
        let end = (history, log::end(&snapshot).unwrap().unwrap());
        begin_followers(&snapshot, &mut set, &["witness".to_owned()], end).unwrap();
        set
    };
    let set = place(&one);
    store.transaction().unwrap().commit(&set, Durability::Sync).unwrap();
    one.change("a");
    assert!(place(&one).is_empty(), "a place that is there stays");
    one.begin();
    assert_eq!(one.seen(), ["cn=a"]);
    one.keep().unwrap();
    one.change("b");
    assert_eq!(one.seen(), ["cn=b"]);

    // It ends without a word: each change comes at least once.
    let mut two = OneOfSeveral::new(store.another());
    two.change("c");
    two.begin();
    assert_eq!(two.seen(), ["cn=b", "cn=c"]);
    // The first one's again, and nobody has said more: what it has seen itself does not come again.
    one.change("d");
    one.begin();
    assert_eq!(one.seen(), ["cn=c", "cn=d"]);
    // The other has remembered how far it has come.
    two.begin();
    assert_eq!(two.seen(), ["cn=d"]);
    two.change("e");
    assert_eq!(two.seen(), ["cn=e"]);
    two.keep().unwrap();
    one.change("f");
    one.begin();
    assert_eq!(one.seen(), ["cn=f"]);

    // A server that writes no longer remembers nothing.
    let mut three = OneOfSeveral::new(store.take_over().unwrap());
    assert!(matches!(one.keep(), Err(CommitError::Fenced)), "{:?}", one.keep());
    assert!(one.served().follow_store().is_err());
    three.change("g");
    three.begin();
    assert_eq!(three.seen(), ["cn=f", "cn=g"]);
}

#[test]
fn the_log_stays_whole_until_it_is_known_where_an_overlay_is() {
    let mut scene = Scene::new(LogRetention { age: Some(10), size: None });
    let served = Arc::clone(&scene.fixture.directory.databases()[0]);
    scene.follower.keep_position().unwrap();
    scene.follower.leave();
    let held = CommittedFollower::hold(&served, Arc::new(|| {}));
    let before = scene.last();
    for number in 0..60 {
        scene.fixture.clock.advance_micros(1_000_000);
        scene.change(&number.to_string());
    }
    served.follow_store().unwrap();
    let mut follower = CommittedFollower::join_with(&served, "witness", held).unwrap();
    let round = follower.round(&scene.witness, &|_| None, &NoOtherWriters).unwrap();
    assert_eq!((round.gap, round.taken), (None, scene.last() - before));
}
