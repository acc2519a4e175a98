//! References in other databases.

use larix_engine::DatabaseSettings;
use larix_engine::overlay::FollowUpElsewhere;
use larix_engine::overlay::committed::{Committed, CommittedBatch, CommittedChange, NotTaken, OtherWriters};
use larix_engine::{CommittedFollower, Writers};

use super::*;
use crate::refint::OtherDatabase;
use crate::testing::{Followed, SUFFIX, suffix};

const TEAMS: &str = "dc=teams";

/// The tree of the tests, and a database of groups; one overlay for both.
fn beside(receives: bool, nothing: Option<&str>) -> Fixture<MemoryStore> {
    let schema = schema("");
    let suffixes = [suffix(&schema, SUFFIX), suffix(&schema, TEAMS)];
    let of = |own: usize| {
        let mut settings = DatabaseSettings { suffixes: vec![suffixes[own].clone()], ..settings(&schema) };
        let mut index = IndexConfig::default();
        index.add_line(&schema, "member", Some("eq")).unwrap();
        settings.index = index;
        settings.overlays.push(Arc::new(ReferentialIntegrity::new(ReferentialIntegritySettings {
            attributes: ["member", "seeAlso"].map(|name| schema.describe(name).unwrap()).to_vec(),
            nothing: nothing.map(str::to_owned),
            modifier: Some("cn=keeper".to_owned()),
            others: vec![OtherDatabase {
                suffix: suffixes[1 - own].normal.clone(),
                modifier: Some("cn=keeper elsewhere".to_owned()),
                receives,
            }],
        })));
        settings
    };
    let fixture = Fixture::of(Arc::clone(&schema), vec![(memory(), of(0)), (memory(), of(1))]);
    fixture.apply(TREE);
    fixture.apply("dn: dc=teams\nobjectClass: domain\ndc: teams\n");
    fixture
}

fn team(name: &str, members: &[&str]) -> String {
    let mut group = format!("dn: cn={name},{TEAMS}\nobjectClass: groupOfNames\ncn: {name}\n");
    members.iter().for_each(|member| writeln!(group, "member: {member}").unwrap());
    group
}

fn members(fixture: &Fixture<MemoryStore>, name: &str) -> String {
    let entry = fixture.entry(&format!("cn={name},{TEAMS}")).unwrap();
    let values = entry.values(fixture.schema.attribute_type("member").unwrap().id);
    let names = values.iter().map(|value| String::from_utf8_lossy(value).replace(&format!(",{SUFFIX}"), ""));
    names.collect::<Vec<_>>().join(" ")
}

fn renamed(dn: &str, to: &str) -> String {
    format!("dn: {dn}\nchangetype: modrdn\nnewrdn: {to}\ndeleteoldrdn: 1\n")
}

#[test]
fn references_in_another_database_follow_behind_the_commit() {
    let fixture = beside(false, None);
    fixture.apply(&team("red", &[ANN, BO, "cn=Former,ou=People,dc=example,dc=com"]));
    fixture.apply(&team("blue", &[BO]));
    let mut follower = Followed::of_database(&fixture, 0, "refint");
    fixture.apply(&renamed(ANN, "cn=Anna"));
    // Not with the commit.
    assert!(members(&fixture, "red").starts_with("cn=Ann Lee,ou=People "));
    follower.catch_up(None);
    assert_eq!(members(&fixture, "red"), "cn=Bo,ou=People cn=Former,ou=People cn=Anna,ou=People");
    let red = format!("cn=red,{TEAMS}");
    assert_eq!(fixture.value(&red, "modifiersName").as_deref(), Some("cn=keeper elsewhere"));
    // A container, with names that nobody has.
    fixture.apply(&renamed("ou=People,dc=example,dc=com", "ou=Staff"));
    follower.catch_up(None);
    assert_eq!(members(&fixture, "red"), "cn=Bo,ou=Staff cn=Former,ou=Staff cn=Anna,ou=Staff");
    fixture.apply("dn: cn=Bo,ou=Staff,dc=example,dc=com\nchangetype: delete\n");
    follower.catch_up(None);
    assert_eq!(members(&fixture, "red"), "cn=Former,ou=Staff cn=Anna,ou=Staff");
    // The last member of a group stays, as in one database.
    assert_eq!(members(&fixture, "blue"), "cn=Bo,ou=Staff");
    // Several changes of one name, taken together.
    fixture.apply(&renamed("cn=Anna,ou=Staff,dc=example,dc=com", "cn=Annie"));
    fixture.apply(&renamed("cn=Annie,ou=Staff,dc=example,dc=com", "cn=Nan"));
    follower.catch_up(None);
    assert_eq!(members(&fixture, "red"), "cn=Former,ou=Staff cn=Nan,ou=Staff");
}

#[test]
fn the_last_value_is_replaced() {
    let fixture = beside(false, Some("cn=nobody"));
    fixture.apply(&team("blue", &[BO]));
    let mut follower = Followed::of_database(&fixture, 0, "refint");
    fixture
        .apply("dn: ou=People,dc=example,dc=com\ncontrol: 1.2.840.113556.1.4.805 true\nchangetype: delete\n");
    follower.catch_up(None);
    assert_eq!(members(&fixture, "blue"), "cn=nobody");
}

/// What was told before a crash comes again: names that entries have by then stay.
#[test]
fn what_is_told_twice_is_done_once() {
    let fixture = beside(false, None);
    fixture.apply(&team("red", &[ANN, BO]));
    let mut follower = Followed::of_database(&fixture, 0, "refint");
    let mut late = Followed::of_database(&fixture, 0, "refint");
    fixture.apply(&renamed(ANN, "cn=Anna"));
    fixture.apply(&format!("dn: {BO}\nchangetype: delete\n"));
    follower.catch_up(None);
    assert_eq!(members(&fixture, "red"), "cn=Anna,ou=People");
    // Both names are there again, and members by a client's wish.
    for (dn, cn) in [(ANN, "Ann Lee"), (BO, "Bo")] {
        fixture.apply(&format!("dn: {dn}\nobjectClass: person\ncn: {cn}\nsn: S\n"));
        fixture.apply(&format!("dn: cn=red,{TEAMS}\nchangetype: modify\nadd: member\nmember: {dn}\n"));
    }
    let expected = "cn=Anna,ou=People cn=Ann Lee,ou=People cn=Bo,ou=People";
    assert_eq!(members(&fixture, "red"), expected);
    late.catch_up(None);
    assert_eq!(members(&fixture, "red"), expected);
}

/// What another server changed is followed by that server, unless it does not have the other database.
#[test]
fn replicated_changes() {
    for (receives, expected) in [(true, "cn=Ann Lee,ou=People cn=Bo,ou=People"), (false, "cn=Bo,ou=People")] {
        let fixture = beside(receives, None);
        fixture.apply(&team("red", &[ANN, BO]));
        let mut follower = Followed::of_database(&fixture, 0, "refint");
        let uuid = Uuid::try_parse(&fixture.value(ANN, "entryUUID").unwrap()).unwrap();
        let csn = "20270101000000.000000Z#000000#005#000000".parse().unwrap();
        let change = ReplicatedChange::Delete { entry_uuid: uuid, csn: Some(csn) };
        let (sender, receiver) = mpsc::channel();
        let batch = ReplicatedBatch { changes: vec![change], ..Default::default() };
        let served = &fixture.directory.databases()[0];
        served.replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
        assert!(receiver.recv().unwrap().result.is_success());
        follower.catch_up(None);
        assert_eq!(members(&fixture, "red"), expected, "receives: {receives}");
    }
}

/// The other database's writer says for now that it cannot.
#[derive(Debug)]
struct Reluctant(AtomicUsize);

impl OtherWriters for Reluctant {
    fn follow(&self, _: &NormalDn, _: Vec<Arc<dyn FollowUpElsewhere>>) -> Result<(), NotTaken> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(NotTaken::yet("not now"))
    }
}

/// Remembers what it is handed.
#[derive(Debug, Default)]
struct Witness(std::sync::Mutex<Vec<CommittedChange>>);

impl Committed for Witness {
    fn take(&self, batch: &CommittedBatch<'_>) -> Result<(), NotTaken> {
        self.0.lock().unwrap().extend_from_slice(batch.changes);
        Ok(())
    }
}

#[test]
fn what_cannot_be_done_comes_again_and_what_concerns_nobody_is_not_asked() {
    let fixture = beside(false, None);
    fixture.apply(&team("red", &[ANN, BO]));
    let served = &fixture.directory.databases()[0];
    let overlay = Arc::clone(served.database().settings().overlays.first().unwrap());
    let (wake, woken) = mpsc::channel();
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || wake.send(()).unwrap_or_default());
    let mut follower = CommittedFollower::join(served, "refint", wake).unwrap();
    let reluctant = Reluctant(AtomicUsize::new(0));
    let last = |fixture: &Fixture<MemoryStore>| fixture.database().writes().log_last();
    let wait = || {
        while served.database().following().answered().sequence < last(&fixture) {
            woken.recv().unwrap();
        }
    };
    fixture.apply(&format!("dn: {ANN}\nchangetype: modify\nadd: description\ndescription: here\n"));
    wait();
    let round = follower.round(overlay.committed().unwrap(), &|_| None, &reluctant).unwrap();
    assert_eq!((round.not_taken, reluctant.0.load(Ordering::Relaxed)), (None, 0));
    fixture.apply(&format!("dn: {ANN}\nchangetype: delete\n"));
    wait();
    for times in 1..3 {
        let round = follower.round(overlay.committed().unwrap(), &|_| None, &reluctant).unwrap();
        assert_eq!(round.not_taken, Some(NotTaken::yet("not now")));
        assert_eq!(reluctant.0.load(Ordering::Relaxed), times);
    }
    let writers = Writers::of(fixture.directory.databases());
    let round = follower.round(overlay.committed().unwrap(), &|_| None, &writers).unwrap();
    assert_eq!((round.taken, round.not_taken), (1, None));
    assert_eq!(members(&fixture, "red"), "cn=Bo,ou=People");
    // What changed nowhere is in no log of the other database.
    let witness = Witness::default();
    let mut teams =
        CommittedFollower::join(&fixture.directory.databases()[1], "witness", Arc::new(|| {})).unwrap();
    follower.round(overlay.committed().unwrap(), &|_| None, &writers).unwrap();
    teams.round(&witness, &|_| None, &writers).unwrap();
    assert!(witness.0.lock().unwrap().is_empty());
}
