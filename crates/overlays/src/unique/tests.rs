//! Values that one entry at most may have.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::{Arc, mpsc};

use larix_engine::index::IndexConfig;
use larix_engine::replica::{ReplicatedBatch, ReplicatedChange};
use larix_engine::write::AttributeValues;
use larix_store::memory::MemoryStore;
use uuid::Uuid;

use super::{Unique, UniqueDirectives};
use crate::testing::{self as common, Fixture, Followed, SUFFIX, TREE, memory, operation, records};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn fixture(uris: &[&str], indexed: bool) -> Fixture<MemoryStore> {
    let schema = common::schema("");
    let mut settings = common::settings(&schema);
    let suffix = schema.parse_dn(SUFFIX).unwrap();
    let directives =
        UniqueDirectives { uris: uris.iter().map(|uri| words(uri)).collect(), ..UniqueDirectives::default() };
    let unique = directives.settings(&schema, std::slice::from_ref(&suffix)).unwrap();
    settings.overlays.push(Arc::new(Unique::new(unique, suffix).receiving(true)));
    settings.index = IndexConfig::default();
    settings.index.add_line(&schema, "objectClass", Some("eq")).unwrap();
    if indexed {
        settings.index.add_line(&schema, "mail,employeeNumber,description,uid", Some("eq")).unwrap();
    }
    settings.policy = Some(common::policy(
        &schema,
        &["to dn.subtree=ou=Groups,dc=example,dc=com by users manage", "to * by users write"],
    ));
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    fixture
}

fn person(rdn: &str, place: &str, lines: &str) -> String {
    let (_, value) = rdn.split_once('=').unwrap();
    format!(
        "dn: {rdn},{place}{SUFFIX}\nchangetype: add\nobjectClass: inetOrgPerson\ncn: {value}\nsn: {value}\n{lines}"
    )
}

fn modify(rdn: &str, lines: &str) -> String {
    format!("dn: {rdn},ou=People,{SUFFIX}\nchangetype: modify\n{lines}")
}

const PEOPLE: &str = "ou=People,";
const GROUPS: &str = "ou=Groups,";

/// The answer to the last of some changes, with an index and without.
#[track_caller]
fn check(uris: &[&str], changes: &[String], expected: &str) {
    for indexed in [true, false] {
        let fixture = fixture(uris, indexed);
        let (last, before) = changes.split_last().unwrap();
        before.iter().for_each(|change| fixture.apply(change));
        assert_eq!(fixture.change(last), expected, "{last}, indexed: {indexed}");
    }
}

#[test]
fn a_value_is_one_entrys() {
    const MAIL: &[&str] = &["ldap:///?mail?sub"];
    let one = || person("cn=one", PEOPLE, "mail: a@x\n");
    let two = || person("cn=two", PEOPLE, "mail: b@x\n");
    let taken = "19 non-unique attributes found with (|(mail=A@x))";
    check(MAIL, &[one(), person("cn=three", GROUPS, "mail: A@x\n")], taken);
    check(MAIL, &[one(), person("cn=three", GROUPS, "description: a@x\n")], "0");
    check(MAIL, &[one(), two(), modify("cn=two", "add: mail\nmail: A@x\n")], taken);
    check(MAIL, &[one(), two(), modify("cn=two", "replace: mail\nmail: A@x\n")], taken);
    // Its own value an entry may have, and again.
    check(MAIL, &[one(), two(), modify("cn=two", "replace: mail\nmail: b@x\nmail: c@x\n")], "0");
    // What is taken away is free; what is there already is no matter of the change.
    check(
        MAIL,
        &[one(), two(), modify("cn=one", "delete: mail\n"), modify("cn=two", "add: mail\nmail: a@x\n")],
        "0",
    );
    check(MAIL, &[one(), modify("cn=one", "add: description\ndescription: a\n")], "0");
    check(MAIL, &[one(), two(), modify("cn=two", "add: mail\nmail: d@x\nmail: (\n")], "0");
    let escaped =
        "19 non-unique attributes found with (|(mail=\\28*)(mail=d@x))".replace("\\28*", "\\28\\2A");
    check(
        MAIL,
        &[
            one(),
            two(),
            modify("cn=one", "add: mail\nmail: (*\n"),
            modify("cn=two", "add: mail\nmail: (*\nmail: d@x\n"),
        ],
        &escaped,
    );
}

#[test]
fn many_values_are_all_compared() {
    let some: String = (0..100).map(|n| format!("mail: {n}@z\n")).collect();
    let many = |last: &str| {
        let lines: String = (0..30_000).map(|n| format!("mail: {n}@y\n")).collect();
        person("cn=three", PEOPLE, &format!("{lines}mail: {last}\n"))
    };
    for indexed in [true, false] {
        let fixture = fixture(&["ldap:///?mail?sub"], indexed);
        // Each of the values with each of these would be more steps than an entry may take.
        fixture.apply(&person("cn=one", PEOPLE, &some));
        fixture.apply(&person("cn=two", PEOPLE, "mail: taken@x\n"));
        let answer = fixture.change(&many("TAKEN@x"));
        assert!(answer.starts_with("19 non-unique attributes found with (|(mail=0@y)"), "{answer}");
        assert_eq!(fixture.change(&many("free@x")), "0", "indexed: {indexed}");
    }
}

#[test]
fn an_entry_brings_values_that_it_has_left_in_the_store() {
    let mails: String = (0..1_000).map(|n| format!("mail: {n}@y\n")).collect();
    let taken = "19 non-unique attributes found with (&(description=in)(|(mail=";
    for indexed in [true, false] {
        let fixture = fixture(&["ldap:///?mail?sub?(description=in)"], indexed);
        fixture.apply(&person("cn=one", PEOPLE, "mail: 700@y\ndescription: in\n"));
        fixture.apply(&person("cn=two", PEOPLE, &mails));
        let answer = fixture.change(&modify("cn=two", "add: description\ndescription: in\n"));
        assert!(answer.starts_with(taken), "{answer}");
        // Whether an entry is in the domain may be a matter of many values, too.
        let descriptions: String = (0..1_000).map(|n| format!("description: {n}\n")).collect();
        fixture.apply(&person("cn=three", PEOPLE, &format!("description: in\n{descriptions}")));
        let answer = fixture.change(&modify("cn=three", "add: mail\nmail: 700@Y\n"));
        assert!(answer.starts_with("19 non-unique attributes found"), "{answer}");
    }
}

#[test]
fn renames_and_moves_are_judged() {
    const CN: &[&str] = &["ldap:///?cn?sub"];
    let rename = |to: &str, more: &str| {
        format!("dn: cn=two,ou=People,{SUFFIX}\nchangetype: modrdn\nnewrdn: cn={to}\ndeleteoldrdn: 1\n{more}")
    };
    let both = || [person("cn=one", GROUPS, ""), person("cn=two", PEOPLE, "")];
    let with = |last: String| [both().as_slice(), &[last]].concat();
    check(CN, &with(rename("ONE", "")), "19 non-unique attributes found with (|(cn=ONE))");
    check(CN, &with(rename("TWO", "")), "0");
    check(CN, &with(rename("three", "")), "0");
    // An entry that is moved into the area brings its values along.
    let area = &["ldap:///ou=Groups,dc=example,dc=com?description?sub"][..];
    let described =
        [person("cn=one", GROUPS, "description: x\n"), person("cn=two", PEOPLE, "description: X\n")];
    let moved = rename("two", "newsuperior: ou=Groups,dc=example,dc=com\n");
    check(
        area,
        &[described.as_slice(), &[moved]].concat(),
        "19 non-unique attributes found with (|(description=X))",
    );
}

#[test]
fn keywords_filters_and_scopes() {
    let numbered = |name: &str, number: &str, more: &str| {
        person(&format!("cn={name}"), PEOPLE, &format!("employeeNumber: {number}\n{more}"))
    };
    let filtered = &["ldap:///?employeeNumber?sub?(title=boss)"][..];
    check(filtered, &[numbered("a", "1", ""), numbered("b", "1", "")], "0");
    check(filtered, &[numbered("a", "1", "title: boss\n"), numbered("b", "1", "")], "0");
    let taken = "19 non-unique attributes found with (&(title=boss)(|(employeeNumber=1)))";
    check(filtered, &[numbered("a", "1", "title: boss\n"), numbered("b", "1", "title: boss\n")], taken);
    // A change that makes the filter match is a change of its number, too.
    check(
        filtered,
        &[
            numbered("a", "1", "title: boss\n"),
            numbered("b", "1", ""),
            modify("cn=b", "add: title\ntitle: boss\n"),
        ],
        taken,
    );
    // All but some.
    let ignore = &["ignore ldap:///?objectClass,sn,cn?sub"][..];
    check(ignore, &[numbered("a", "1", ""), numbered("b", "2", "")], "0");
    check(
        ignore,
        &[numbered("a", "1", ""), numbered("b", "1", "")],
        "19 non-unique attributes found with (|(employeeNumber=1))",
    );
    // Strict: one entry may be without.
    let empty = |name: &str| modify(&format!("cn={name}"), "replace: employeeNumber\n");
    let strict = &["strict ldap:///?employeeNumber?sub"][..];
    check(
        strict,
        &[numbered("a", "1", ""), numbered("b", "2", ""), empty("b")],
        "19 non-unique attributes found with (|(employeeNumber=*))",
    );
    check(
        &["ldap:///?employeeNumber?sub"],
        &[numbered("a", "1", ""), numbered("b", "2", ""), empty("b")],
        "0",
    );
    // Two domains; several URIs in one.
    let two = &["ldap:///?description?one", "serialize ldap:///?mail?sub ldap:///?employeeNumber?sub"][..];
    check(
        two,
        &[numbered("a", "1", ""), numbered("b", "1", "")],
        "19 non-unique attributes found with (|(employeeNumber=1))",
    );
    check(two, &[numbered("a", "1", "description: x\n"), numbered("b", "2", "description: x\n")], "0");
}

#[test]
fn relax_is_for_who_manages_the_entry() {
    for (place, expected) in [(PEOPLE, "19 non-unique attributes found with (|(mail=a@x))"), (GROUPS, "0")] {
        let mut fixture = fixture(&["ldap:///?mail?sub"], true);
        fixture.apply(&person("cn=one", PEOPLE, "mail: a@x\n"));
        fixture.bind("cn=one,ou=People,dc=example,dc=com");
        let relaxed = person("cn=two", place, "mail: a@x\n")
            .replace("changetype: add", "control: 1.3.6.1.4.1.4203.666.5.12 true\nchangetype: add");
        assert_eq!(fixture.change(&relaxed), expected, "{place}");
    }
}

#[test]
fn of_many_at_once_one_passes() {
    const CLIENTS: usize = 16;
    let fixture = fixture(&["ldap:///?mail?sub"], true);
    for round in 0..60 {
        let (sender, answers) = mpsc::channel();
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (fixture, sender) = (&fixture, sender.clone());
                scope.spawn(move || {
                    let text =
                        person(&format!("cn=r{round}c{client}"), PEOPLE, &format!("mail: m{round}@x\n"));
                    let (operation, controls) = operation(records(&text).remove(0));
                    let request = fixture.request(operation, &controls);
                    let done = Box::new(move |outcome: larix_engine::write::WriteOutcome| {
                        sender.send(outcome.result.code.0).unwrap();
                    });
                    fixture.directory.submit(request, done);
                });
            }
        });
        drop(sender);
        let mut codes: Vec<_> = answers.iter().collect();
        codes.sort_unstable();
        assert_eq!((codes.first(), codes.get(1), codes.len()), (Some(&0), Some(&19), CLIENTS), "{codes:?}");
    }
}

#[test]
fn directives_that_mean_nothing_are_refused() {
    let schema = common::schema("");
    let suffix = schema.parse_dn(SUFFIX).unwrap();
    let uri = |text: &str| UniqueDirectives { uris: vec![words(text)], ..UniqueDirectives::default() };
    let table = [
        (uri("ldap:///?mail?base"), "scope base"),
        (uri("ldap:///?mail"), "has no scope: write sub or one"),
        (uri("strict"), "no URI"),
        (uri("ldap:///dc=other?mail?sub"), "not within this database"),
        (uri("ldap:///?nonsense?sub"), "<nonsense>"),
        (uri("ldap://host/?mail?sub"), "names a server"),
        (uri("ldap:///?mail?sub?(mail="), "unique_uri \"ldap:///?mail?sub?(mail=\""),
        (uri("http:///?mail?sub"), "http"),
        (UniqueDirectives { strict: true, ..uri("ldap:///?mail?sub") }, "cannot stand beside"),
        (
            UniqueDirectives {
                attributes: words("mail"),
                ignore: words("cn"),
                ..UniqueDirectives::default()
            },
            "exclude each other",
        ),
        (
            UniqueDirectives { base: Some("cn=config".to_owned()), ..UniqueDirectives::default() },
            "unique_base \"cn=config\": not within this database",
        ),
    ];
    for (directives, expected) in table {
        let error = directives.settings(&schema, std::slice::from_ref(&suffix)).unwrap_err();
        assert!(error.contains(expected), "{error} lacks {expected}");
    }
}

/// Puts an entry here as another server has it.
fn replicate(fixture: &Fixture<MemoryStore>, number: u128, rdn: &str, mail: &str) {
    let (uuid, csn) = (Uuid::from_u128(number), format!("20270101000000.000000Z#00000{number}#005#000000"));
    let (_, cn) = rdn.split_once('=').unwrap();
    let text = uuid.to_string();
    let attributes = [
        ("objectClass", "inetOrgPerson"),
        ("cn", cn),
        ("sn", cn),
        ("mail", mail),
        ("entryUUID", &text),
        ("entryCSN", &csn),
    ];
    let attributes = attributes.map(|(name, value)| AttributeValues {
        description: name.to_owned(),
        values: vec![value.as_bytes().to_vec()],
    });
    let change = ReplicatedChange::Put {
        entry_uuid: uuid,
        dn: format!("{rdn},ou=People,{SUFFIX}"),
        attributes: attributes.to_vec(),
        state: None,
        place: None,
    };
    let (sender, receiver) = mpsc::channel();
    let batch = ReplicatedBatch { changes: vec![change], ..Default::default() };
    fixture.directory.databases()[0].replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
    assert!(receiver.recv().unwrap().result.is_success());
}

/// What two servers gave at the same time stays, and is told once.
#[test]
fn a_value_that_another_server_gave_as_well_is_told() {
    let fixture = fixture(&["ldap:///?mail?sub"], true);
    fixture.apply(&person("cn=Here", PEOPLE, "mail: a@b\nmail: own@b\n"));
    let mut follower = Followed::new(&fixture, "unique");
    replicate(&fixture, 7, "cn=There", "other@b");
    assert_eq!(follower.catch_up(None), [""; 0]);
    replicate(&fixture, 8, "cn=Twice", "A@B");
    let (here, twice) = (format!("cn=Here,ou=People,{SUFFIX}"), format!("cn=Twice,ou=People,{SUFFIX}"));
    let told = format!("a value of mail is in \"{twice}\", which another server changed, and in \"{here}\"");
    assert_eq!(follower.catch_up(None), [told]);
    // Both keep it, nobody else gets it, and what a client changes is no matter of this.
    for dn in [&here, &twice] {
        assert!(fixture.value(dn, "mail").unwrap().eq_ignore_ascii_case("a@b"));
    }
    let again = fixture.change(&person("cn=More", PEOPLE, "mail: a@b\n"));
    assert!(again.starts_with("19 "), "{again}");
    fixture.apply(&modify("cn=Here", "replace: title\ntitle: boss\n"));
    assert_eq!(follower.catch_up(None), [""; 0]);
}
