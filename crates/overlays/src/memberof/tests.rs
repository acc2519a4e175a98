//! Which groups an entry is in: always what the groups say, whatever the way.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

mod other_databases;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, mpsc};

use larix_engine::check::check as check_database;
use larix_engine::csn::Csn;
use larix_engine::entry::EntryId;
use larix_engine::index::{IndexConfig, Kinds};
use larix_engine::log::{LogKey, LogRecord};
use larix_engine::overlay::BackLinkRule;
use larix_engine::replica::{ReplicatedBatch, ReplicatedChange};
use larix_engine::tables::{ENTRIES, LOG};
use larix_engine::time::{SeededRandom, Timestamp};
use larix_engine::write::{AttributeValues, BACK_LINKS_LIMIT};
use larix_engine::{DatabaseSettings, Entry};
use larix_proto::ResultCode;
use larix_schema::Schema;
use larix_store::memory::MemoryStore;
use larix_store::{Direction, KeyRange, Snapshot, Store};
use uuid::Uuid;

use super::{Dangling, Membership, MembershipSettings};
use crate::refint::{ReferentialIntegrity, ReferentialIntegritySettings};
use crate::testing::{self as common, Fixture, TREE, memory, schema, settings};

type Memory = Fixture<MemoryStore>;

const ANN: &str = "cn=Ann Lee,ou=People,dc=example,dc=com";
const BO: &str = "cn=Bo,ou=People,dc=example,dc=com";

/// Two rules with one attribute of members.
const RULES: [(&str, &str); 2] = [("groupOfNames", "member"), ("groupOfUniqueNames", "uniqueMember")];

fn rule(schema: &Schema, (class, member): (&str, &str), member_of: &str) -> BackLinkRule {
    BackLinkRule {
        class: schema.object_class_id(class).unwrap(),
        forward: schema.describe(member).unwrap(),
        back: schema.describe(member_of).unwrap(),
        at_once: BACK_LINKS_LIMIT,
    }
}

#[derive(Clone, Copy, Default)]
struct Options {
    dangling: Dangling,
    integrity: bool,
    /// With overlay refint for both attributes.
    refint: bool,
    /// Members that change at once.
    at_once: Option<usize>,
    /// Groups are told by seeAlso, which clients may write, not by memberOf.
    writable: bool,
}

fn indexed(schema: &Schema) -> DatabaseSettings {
    let mut settings = settings(schema);
    let mut index = IndexConfig::default();
    for (_, member) in RULES {
        index.also(schema.describe(member).unwrap(), Kinds::EQUALITY);
    }
    index.add_line(schema, "memberOf", Some("eq")).unwrap();
    settings.index = index;
    settings
}

fn with_overlays(schema: &Schema, options: Options) -> DatabaseSettings {
    let mut settings = indexed(schema);
    let member_of = if options.writable { "seeAlso" } else { "memberOf" };
    for of in RULES {
        settings.overlays.push(Arc::new(Membership::new(MembershipSettings {
            rule: BackLinkRule {
                at_once: options.at_once.unwrap_or(BACK_LINKS_LIMIT),
                ..rule(schema, of, member_of)
            },
            dangling: options.dangling,
            integrity: options.integrity,
            modifier: Some("cn=keeper".to_owned()),
            others: Vec::new(),
        })));
    }
    if options.refint {
        settings.overlays.push(Arc::new(ReferentialIntegrity::new(ReferentialIntegritySettings {
            attributes: RULES.map(|(_, member)| schema.describe(member).unwrap()).to_vec(),
            nothing: Some("cn=nothing".to_owned()),
            modifier: None,
            others: Vec::new(),
        })));
    }
    settings
}

fn fixture(options: Options) -> Memory {
    let schema = schema("");
    let settings = with_overlays(&schema, options);
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    fixture
}

fn all(fixture: &Memory) -> Vec<Entry> {
    let snapshot = fixture.database().store().snapshot().unwrap();
    let view = fixture.database().view(&snapshot).unwrap();
    let mut all = Vec::new();
    for row in snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward).unwrap() {
        let id = EntryId::from_prefix(&row.unwrap().0).unwrap();
        let record = view.record(id).unwrap().unwrap();
        let reader = view.reader(id, &record).unwrap();
        all.push(reader.to_owned(view.dn(&reader.view).unwrap(), true).unwrap());
    }
    all
}

fn texts<'e>(schema: &Schema, entry: &'e Entry, name: &str) -> impl Iterator<Item = &'e str> {
    let values = entry.values(schema.attribute_type(name).unwrap().id);
    values.iter().map(|value| std::str::from_utf8(value).unwrap())
}

/// What an entry says, by whichever attribute.
fn told<'e>(schema: &Schema, entry: &'e Entry) -> impl Iterator<Item = &'e str> {
    texts(schema, entry, "memberOf").chain(texts(schema, entry, "seeAlso"))
}

type Groups = BTreeMap<String, BTreeSet<String>>;

/// What entries say, and what they should.
fn groups(fixture: &Memory) -> (Groups, Groups) {
    let (schema, all) = (&*fixture.schema, all(fixture));
    let normal = |dn: &str| schema.parse_dn(dn).unwrap();
    let by_name: BTreeMap<_, _> = all.iter().map(|entry| (normal(&entry.dn), entry)).collect();
    let (mut said, mut wanted) = (Groups::new(), Groups::new());
    for entry in &all {
        let groups: BTreeSet<String> = told(schema, entry).map(str::to_owned).collect();
        if !groups.is_empty() {
            said.insert(entry.dn.clone(), groups);
        }
        for (class, member) in RULES {
            if texts(schema, entry, "objectClass").any(|own| own == class) {
                for member in texts(schema, entry, member) {
                    if let Some(member) = by_name.get(&normal(member)) {
                        wanted.entry(member.dn.clone()).or_default().insert(entry.dn.clone());
                    }
                }
            }
        }
    }
    (said, wanted)
}

/// Every entry says what it should, and the database is whole.
fn check(fixture: &Memory, after: &str) {
    let (said, wanted) = groups(fixture);
    assert_eq!(said, wanted, "after {after}");
    let snapshot = fixture.database().store().snapshot().unwrap();
    let view = fixture.database().view(&snapshot).unwrap();
    check_database(&view, &mut |finding| panic!("{finding} after {after}")).unwrap();
}

fn memberships(fixture: &Memory, dn: &str) -> Vec<String> {
    let entry = fixture.entry(dn).unwrap();
    told(&fixture.schema, &entry).map(str::to_owned).collect()
}

fn group(name: &str, members: &[&str]) -> String {
    let members: String = members.iter().map(|member| format!("member: {member}\n")).collect();
    format!("dn: cn={name},ou=Groups,dc=example,dc=com\nobjectClass: groupOfNames\ncn: {name}\n{members}\n")
}

/// An attribute that is kept by the server does not wander about in the entry when a group changes its name.
#[test]
fn the_attribute_keeps_its_place() {
    let fixture = fixture(Options::default());
    fixture.apply(&group("one", &[BO]));
    let changed = |change: &str| {
        fixture.apply(change);
        let entry = fixture.entry(BO).unwrap();
        let names = entry.attributes.iter().map(|attribute| attribute.description.to_text(&fixture.schema));
        names.filter(|name| ["sn", "memberOf", "description"].contains(&name.as_str())).collect::<Vec<_>>()
    };
    let order = ["sn", "memberOf", "description"];
    assert_eq!(changed(&format!("dn: {BO}\nchangetype: modify\nadd: description\ndescription: d\n")), order);
    let named = |from: &str, to: &str| {
        format!(
            "dn: cn={from},ou=Groups,dc=example,dc=com\nchangetype: modrdn\nnewrdn: cn={to}\ndeleteoldrdn: 1\n"
        )
    };
    for (from, to) in [("one", "two"), ("two", "TWO")] {
        assert_eq!(changed(&named(from, to)), order, "{from} is called {to}");
        assert_eq!(memberships(&fixture, BO), [format!("cn={to},ou=Groups,dc=example,dc=com")]);
    }
    // Another that does not stay leaves no gap.
    let leave = |name: &str| format!("dn: cn={name},ou=Groups,dc=example,dc=com\nchangetype: delete\n");
    assert_eq!(changed(&leave("TWO")), ["sn", "description"]);
}

#[test]
fn entries_say_what_groups_say() {
    let steps = [
        group("one", &["CN=ann  lee,ou=people,dc=example,dc=com", BO, "cn=nobody,dc=example,dc=com"]),
        group("two", &[ANN, "cn=one,ou=Groups,dc=example,dc=com"]),
        format!("dn: cn=one,ou=Groups,dc=example,dc=com\nchangetype: modify\ndelete: member\nmember: {BO}\n"),
        format!(
            "dn: cn=one,ou=Groups,dc=example,dc=com\nchangetype: modify\nreplace: member\nmember: {BO}\n\
             member: cn=one,ou=Groups,dc=example,dc=com\n"
        ),
        // Of both classes, by both attributes.
        format!(
            "dn: cn=three,ou=Groups,dc=example,dc=com\nobjectClass: groupOfUniqueNames\ncn: three\n\
             uniqueMember: {ANN}\nuniqueMember: {BO}#'01'B\n"
        ),
        format!(
            "dn: cn=three,ou=Groups,dc=example,dc=com\nchangetype: modify\nadd: uniqueMember\nuniqueMember: {BO}\n"
        ),
        "dn: cn=three,ou=Groups,dc=example,dc=com\nchangetype: modrdn\nnewrdn: cn=THREE\ndeleteoldrdn: 1\n"
            .to_owned(),
        "dn: cn=two,ou=Groups,dc=example,dc=com\nchangetype: modrdn\nnewrdn: cn=zwei\ndeleteoldrdn: 1\n\
         newsuperior: ou=People,dc=example,dc=com\n"
            .to_owned(),
        // The containers of groups and of members.
        "dn: ou=Groups,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=Teams\ndeleteoldrdn: 1\n".to_owned(),
        "dn: ou=People,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=Staff\ndeleteoldrdn: 1\n".to_owned(),
        "dn: ou=Staff,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=People\ndeleteoldrdn: 1\n".to_owned(),
        // A member goes and comes again; others take its name.
        format!("dn: {BO}\nchangetype: delete\n"),
        format!("dn: {ANN}\nchangetype: modrdn\nnewrdn: cn=Bo\ndeleteoldrdn: 0\n"),
        format!("dn: {BO}\nchangetype: modrdn\nnewrdn: cn=Ann Lee\ndeleteoldrdn: 0\n"),
        format!("dn: {BO}\nobjectClass: person\ncn: Bo\nsn: B\n"),
        "dn: ou=Teams,dc=example,dc=com\ncontrol: 1.2.840.113556.1.4.805 true\nchangetype: delete\n"
            .to_owned(),
        "dn: ou=People,dc=example,dc=com\ncontrol: 1.2.840.113556.1.4.805 true\nchangetype: delete\n"
            .to_owned(),
    ];
    let fixture = fixture(Options::default());
    for step in &steps {
        fixture.apply(step);
        check(&fixture, step);
    }
    assert!(groups(&fixture).0.is_empty());
}

/// As two overlays of which one's class is above the other's have it.
#[test]
fn a_group_by_two_rules_counts_once() {
    let schema = schema("");
    let mut settings = with_overlays(&schema, Options::default());
    let again = settings.overlays[0].clone();
    settings.overlays.push(again);
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    fixture.apply(&group("one", &[ANN, BO]));
    assert_eq!(memberships(&fixture, ANN), ["cn=one,ou=Groups,dc=example,dc=com"]);
    fixture.apply(
        "dn: cn=one,ou=Groups,dc=example,dc=com\nchangetype: modrdn\nnewrdn: cn=uno\ndeleteoldrdn: 1\n",
    );
    assert_eq!(memberships(&fixture, ANN), ["cn=uno,ou=Groups,dc=example,dc=com"]);
    fixture.apply(&format!(
        "dn: cn=uno,ou=Groups,dc=example,dc=com\nchangetype: modify\ndelete: member\nmember: {ANN}\n"
    ));
    assert_eq!(memberships(&fixture, ANN), [""; 0]);
    check(&fixture, "all");
}

#[test]
fn what_refint_changes_counts() {
    for options in [
        Options { integrity: true, ..Options::default() },
        Options { refint: true, ..Options::default() },
        Options { integrity: true, refint: true, ..Options::default() },
    ] {
        let fixture = fixture(options);
        fixture.apply(&group("one", &[ANN, BO]));
        fixture.apply(&format!("dn: {ANN}\nchangetype: modrdn\nnewrdn: cn=Anna\ndeleteoldrdn: 1\n"));
        check(&fixture, "a rename");
        let anna = "cn=Anna,ou=People,dc=example,dc=com";
        assert_eq!(memberships(&fixture, anna), ["cn=one,ou=Groups,dc=example,dc=com"]);
        fixture.apply(&format!("dn: {BO}\nchangetype: delete\n"));
        check(&fixture, "a delete");
        let one = fixture.show("cn=one,ou=Groups,dc=example,dc=com");
        assert!(one.ends_with(&format!("member: {anna}\n")), "{one}");
    }
}

#[test]
fn members_keep_their_operational_attributes() {
    let fixture = fixture(Options::default());
    let names = ["modifiersName", "modifyTimestamp", "entryCSN"];
    let stamps = || names.map(|name| fixture.value(ANN, name).unwrap());
    let before = stamps();
    fixture.clock.advance_micros(5_000_000);
    fixture.apply(&group("one", &[ANN]));
    assert_eq!(stamps(), before);
    // What replicas are sent has nothing of it.
    let snapshot = fixture.database().store().snapshot().unwrap();
    let rows = snapshot.scan(LOG, KeyRange::all(), Direction::Backward).unwrap();
    let records = rows.filter_map(|row| {
        let (key, value) = row.unwrap();
        LogKey::from_bytes(&key).and_then(|_| LogRecord::decode(&value).ok())
    });
    let last: Vec<LogRecord> = records.take(2).collect();
    assert_eq!(last.iter().map(|record| record.local).collect::<Vec<_>>(), [true, false]);
    assert_eq!(last[0].csn, last[1].csn);
    assert_eq!(last[0].dn, ANN);
}

#[test]
fn what_is_refused_or_only_tried_changes_nothing() {
    let fixture = fixture(Options::default());
    fixture.apply(&group("one", &[ANN]));
    for (change, answer) in [
        (
            "dn: cn=one,ou=Groups,dc=example,dc=com\nchangetype: modify\ndelete: member\n".to_owned(),
            "65 object class 'groupOfNames' requires attribute 'member'",
        ),
        (
            format!("dn: {BO}\nchangetype: modify\nadd: memberOf\nmemberOf: cn=one,ou=Groups,dc=example,dc=com\n"),
            "19 memberOf: no user modification allowed",
        ),
        (
            format!(
                "dn: {BO}\ncontrol: 1.3.6.1.4.1.4203.666.5.12 true\nchangetype: modify\nadd: memberOf\nmemberOf: cn=false\n"
            ),
            "19 memberOf: no-user-modification attribute not manageable",
        ),
        (
            "dn: cn=one,ou=Groups,dc=example,dc=com\ncontrol: 1.3.6.1.4.1.4203.666.5.2 true\nchangetype: delete\n"
                .to_owned(),
            "16654",
        ),
    ] {
        assert_eq!(fixture.change(&change), answer, "{change}");
        check(&fixture, &change);
        assert_eq!(memberships(&fixture, ANN).len(), 1);
    }
}

#[test]
fn members_that_are_not_there() {
    let nobody = "cn=nobody,ou=People,dc=example,dc=com";
    let add = |name: &str, members: &[&str]| group(name, members);
    let modify = |member: &str| {
        format!("dn: cn=one,ou=Groups,dc=example,dc=com\nchangetype: modify\nadd: member\nmember: {member}\n")
    };
    let members = |fixture: &Memory| {
        let entry = fixture.entry("cn=one,ou=Groups,dc=example,dc=com").unwrap();
        texts(&fixture.schema, &entry, "member").map(str::to_owned).collect::<Vec<_>>()
    };
    let error = "32 adding non-existing object as group member";
    let fixture_of = |dangling| fixture(Options { dangling, ..Options::default() });

    let refusing = fixture_of(Dangling::Error(ResultCode::NO_SUCH_OBJECT));
    assert_eq!(refusing.change(&add("one", &[ANN, nobody])), error);
    assert_eq!(refusing.change(&add("one", &[ANN, "cn=one,ou=Groups,dc=example,dc=com"])), "0");
    assert_eq!(refusing.change(&modify(nobody)), error);
    assert_eq!(refusing.change(&modify(BO)), "0");
    check(&refusing, "errors");

    let dropping = fixture_of(Dangling::Drop);
    assert_eq!(dropping.change(&add("one", &[nobody, ANN])), "0");
    assert_eq!(dropping.change(&modify(nobody)), "0");
    assert_eq!(members(&dropping), [ANN]);
    let refused = dropping.change(&add("none", &[nobody]));
    assert!(refused.starts_with("65"), "{refused}");
    check(&dropping, "drops");
}

#[test]
fn what_overlays_before_made_of_a_new_group_stays() {
    let fixture = common::directory(&[
        (&super::DESCRIPTOR, "memberof-dangling drop"),
        (&crate::dna::DESCRIPTOR, "dna-range gidNumber 100-199 dc=example,dc=com (objectClass=groupOfNames)"),
        (&crate::ppolicy::DESCRIPTOR, "ppolicy_hash_cleartext"),
    ]);
    fixture.apply(TREE);
    let group = "cn=one,ou=Groups,dc=example,dc=com";
    let added = fixture.change(&format!(
        "dn: {group}\nobjectClass: groupOfNames\nobjectClass: simpleSecurityObject\nobjectClass: extensibleObject\n\
         cn: one\nuserPassword: secret\nmember: {ANN}\nmember: cn=nobody,dc=example,dc=com\n"
    ));
    assert_eq!(added, "0");
    let value = |name| fixture.value(group, name).unwrap_or_default();
    assert!(value("userPassword").starts_with("{SSHA}"), "{}", value("userPassword"));
    assert_eq!(value("gidNumber"), "100");
    let entry = fixture.entry(group).unwrap();
    assert_eq!(texts(&fixture.schema, &entry, "member").collect::<Vec<_>>(), [ANN]);
}

#[test]
fn a_transaction_counts_as_a_whole() {
    let fixture = fixture(Options::default());
    let changes = [
        group("one", &[ANN, "cn=New,ou=People,dc=example,dc=com"]),
        "dn: cn=New,ou=People,dc=example,dc=com\nobjectClass: person\ncn: New\nsn: N\n".to_owned(),
        format!(
            "dn: cn=one,ou=Groups,dc=example,dc=com\nchangetype: modify\ndelete: member\nmember: {ANN}\n"
        ),
        "dn: cn=one,ou=Groups,dc=example,dc=com\nchangetype: modrdn\nnewrdn: cn=uno\ndeleteoldrdn: 1\n"
            .to_owned(),
    ];
    let operations = changes.iter().flat_map(|change| common::records(change)).map(common::operation);
    let requests = operations.map(|(operation, controls)| fixture.request(operation, &controls)).collect();
    let (sender, receiver) = mpsc::channel();
    fixture.directory.submit_all(requests, Box::new(move |outcome| sender.send(outcome).unwrap()));
    assert!(receiver.recv().unwrap().result.is_success());
    check(&fixture, "a transaction");
    assert_eq!(
        memberships(&fixture, "cn=New,ou=People,dc=example,dc=com"),
        ["cn=uno,ou=Groups,dc=example,dc=com"]
    );
}

/// So many members are no longer kept within the record.
const MANY: usize = 600;

#[test]
fn large_groups_and_many_groups() {
    let fixture = fixture(Options::default());
    let person = |number: usize| format!("cn=p{number},ou=People,dc=example,dc=com");
    let mut people = String::new();
    for number in 0..MANY {
        writeln!(people, "dn: {}\nobjectClass: person\ncn: p{number}\nsn: P\n", person(number)).unwrap();
    }
    fixture.apply(&people);
    let names: Vec<String> = (0..MANY).map(person).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fixture.apply(&group("many", &names));
    check(&fixture, "many members");
    let change = |how: &str| format!("dn: cn=many,ou=Groups,dc=example,dc=com\nchangetype: modify\n{how}");
    for how in [
        format!("delete: member\nmember: {}\n-\nadd: member\nmember: {ANN}\n", names[7]),
        // Some of them come again.
        format!("replace: member\nmember: {}\nmember: {}\n", names[3], names[7]),
        names.iter().fold("replace: member\n".to_owned(), |all, name| all + "member: " + name + "\n"),
    ] {
        fixture.apply(&change(&how));
        check(&fixture, &how);
    }
    fixture.apply("dn: ou=Groups,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=Teams\ndeleteoldrdn: 1\n");
    check(&fixture, "a renamed container");
    // One entry in many groups.
    for number in 0..MANY {
        fixture.apply(&group(&format!("g{number}"), &[BO]).replace("ou=Groups", "ou=Teams"));
    }
    assert_eq!(memberships(&fixture, BO).len(), MANY);
    fixture.apply(
        &group("g0", &[])
            .replace("ou=Groups", "ou=Teams")
            .lines()
            .next()
            .map_or_else(String::new, |dn| format!("{dn}\nchangetype: delete\n")),
    );
    check(&fixture, "many groups");
}

/// Changes without regard to what there is: many are refused.
#[test]
fn whatever_happens_entries_say_what_groups_say() {
    for seed in 0..24 {
        let dice = SeededRandom::new(seed);
        let options = Options {
            dangling: if seed % 4 == 3 { Dangling::Drop } else { Dangling::Ignore },
            integrity: seed % 3 == 1,
            refint: seed % 3 == 2,
            at_once: (seed % 5 == 4).then_some(2),
            writable: seed % 2 == 1,
        };
        let fixture = fixture(options);
        let place = |dice: &SeededRandom| dice.one_of(&["ou=People", "ou=Groups", "ou=Extra,ou=People"]);
        let name = |dice: &SeededRandom| format!("cn=e{},{},dc=example,dc=com", dice.below(6), place(dice));
        fixture
            .apply("dn: ou=Extra,ou=People,dc=example,dc=com\nobjectClass: organizationalUnit\nou: Extra\n");
        for step in 0..120 {
            let dn = name(&dice);
            let (class, attribute) = dice.one_of(&RULES);
            let members: String =
                (0..1 + dice.below(4)).map(|_| format!("{attribute}: {}\n", name(&dice))).collect();
            let change = match dice.below(9) {
                0 | 1 => {
                    let cn = dn.split(['=', ',']).nth(1).unwrap();
                    format!("dn: {dn}\nobjectClass: {class}\ncn: {cn}\n{members}")
                }
                2 | 3 => {
                    let how = dice.one_of(&["add", "delete", "replace"]);
                    format!("dn: {dn}\nchangetype: modify\n{how}: {attribute}\n{members}")
                }
                4 | 5 => format!(
                    "dn: {dn}\nchangetype: modrdn\nnewrdn: {}=e{}\ndeleteoldrdn: 1\nnewsuperior: {},dc=example,dc=com\n",
                    dice.one_of(&["cn", "CN"]),
                    dice.below(6),
                    place(&dice),
                ),
                6 => format!("dn: {dn}\nchangetype: delete\n"),
                7 => {
                    let ou = place(&dice).split(['=', ',']).nth(1).unwrap();
                    format!(
                        "dn: ou={ou},dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou={}\ndeleteoldrdn: 1\n",
                        dice.one_of(&["People", "Groups", "Extra"]),
                    )
                }
                _ => {
                    let cn = dn.split(['=', ',']).nth(1).unwrap();
                    format!("dn: {dn}\nobjectClass: person\ncn: {cn}\nsn: P\n")
                }
            };
            fixture.change(&change);
            if options.at_once.is_some() {
                touch(&fixture);
            }
            check(&fixture, &format!("step {step} of seed {seed}: {change}"));
        }
    }
}

/// The commit of the next change takes the walk along, unless that was over before.
fn touch(fixture: &Memory) {
    fixture.apply("dn: dc=example,dc=com\nchangetype: modify\nreplace: description\ndescription: here\n");
}

fn csn(number: i64) -> Csn {
    Csn { time: Timestamp(common::START.0 + number * 1_000_000), count: 0, server_id: 2, modification: 0 }
}

fn put(number: u128, dn: &str, at: i64, more: &[(&str, &str)]) -> ReplicatedChange {
    let (uuid, at) = (Uuid::from_u128(number), csn(at).to_string());
    let text = uuid.to_string();
    let mut attributes: Vec<AttributeValues> = Vec::new();
    for (name, value) in [("entryUUID", text.as_str()), ("entryCSN", &at)].iter().chain(more) {
        let value = value.as_bytes().to_vec();
        match attributes.iter_mut().find(|a| a.description == *name) {
            Some(attribute) => attribute.values.push(value),
            None => attributes.push(AttributeValues { description: (*name).to_owned(), values: vec![value] }),
        }
    }
    ReplicatedChange::Put { entry_uuid: uuid, dn: dn.to_owned(), attributes, state: None, place: None }
}

fn replicate(fixture: &Memory, change: ReplicatedChange) {
    let (sender, receiver) = mpsc::channel();
    let batch = ReplicatedBatch { changes: vec![change], ..Default::default() };
    fixture.directory.databases()[0].replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
    let outcome = receiver.recv().unwrap();
    assert!(outcome.result.is_success(), "{outcome:?}");
}

#[test]
fn changes_of_other_servers_count_whatever_their_order() {
    let fixture = fixture(Options { dangling: Dangling::Drop, ..Options::default() });
    let team = "cn=team,ou=Groups,dc=example,dc=com";
    let cid = "cn=Cid,ou=People,dc=example,dc=com";
    let group = |number, at, dn: &str, members: &[&str]| {
        let mut more = vec![("objectClass", "groupOfNames"), ("cn", "team")];
        more.extend(members.iter().map(|member| ("member", *member)));
        put(number, dn, at, &more)
    };
    let person = |at, more: &[(&str, &str)]| {
        put(8, cid, at, &[&[("objectClass", "person"), ("cn", "Cid"), ("sn", "C")][..], more].concat())
    };
    // The group comes before a member.
    replicate(&fixture, group(7, 1, team, &[ANN, cid]));
    check(&fixture, "a group");
    // What the provider says of the member's groups is its own business.
    replicate(&fixture, person(2, &[("memberOf", "cn=elsewhere,dc=example,dc=com")]));
    check(&fixture, "a member");
    assert_eq!(memberships(&fixture, cid), [team]);
    replicate(&fixture, person(3, &[("description", "without")]));
    check(&fixture, "a member without");
    assert_eq!(memberships(&fixture, cid), [team]);
    replicate(&fixture, group(7, 4, team, &[cid, BO]));
    check(&fixture, "a member more, one less");
    replicate(&fixture, group(7, 5, "cn=crew,ou=People,dc=example,dc=com", &[cid, BO]));
    check(&fixture, "a rename");
    replicate(&fixture, ReplicatedChange::Delete { entry_uuid: Uuid::from_u128(7), csn: Some(csn(6)) });
    check(&fixture, "a delete");
    assert!(groups(&fixture).0.is_empty());
}
