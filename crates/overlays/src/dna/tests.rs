#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_store::memory::MemoryStore;

use super::DESCRIPTOR;
use crate::testing::{Fixture, TREE, build, directory, schema};

const PEOPLE: &str = "ou=People,dc=example,dc=com";

#[test]
fn settings_that_cannot_be_honoured_are_refused() {
    let schema = schema("");
    let base = PEOPLE;
    for (line, fault) in [
        (format!("uidNumber 1-9 {base} (objectClass=*)"), None),
        (format!("uidNumber,gidNumber 1-9 {base} (objectClass=*) -1"), None),
        (format!("uidNumber 9-1 {base} (objectClass=*)"), Some("not a range such as")),
        (format!("uidNumber 1 {base} (objectClass=*)"), Some("not a range such as")),
        (format!("nosuch 1-9 {base} (objectClass=*)"), Some("<nosuch>")),
        (format!("objectClass 1-9 {base} (objectClass=*)"), Some("takes no numbers")),
        ("uidNumber 1-9 dc=elsewhere (objectClass=*)".to_owned(), Some("not in this database")),
        (format!("uidNumber 1-9 {base} (objectClass"), Some("not a filter")),
        (format!("uidNumber 1-9 {base} (objectClass=*) magic"), Some("nobody can ask by it")),
        (format!("uidNumber,gidNumber 1-9 {base} (objectClass=*)"), Some("need a value that asks")),
        (
            format!("uidNumber 1-9 {base} (objectClass=*)\ndna-range uidNumber 9-12 {base} (objectClass=*)"),
            Some("overlaps with uidNumber 1-9"),
        ),
    ] {
        match (build(&DESCRIPTOR, &schema, &format!("dna-range {line}")), fault) {
            (Ok(_), None) => {}
            (Err(error), Some(fault)) => assert!(error.to_string().contains(fault), "{line}: {error}"),
            (built, _) => panic!("{line}: {built:?}"),
        }
    }
}

fn start(ranges: &str) -> Fixture<MemoryStore> {
    let directory = directory(&[(&DESCRIPTOR, ranges)]);
    directory.apply(TREE);
    directory
}

/// An account; `more`: lines.
fn account(name: &str, more: &str) -> String {
    format!(
        "dn: uid={name},{PEOPLE}\nchangetype: add\nobjectClass: account\nobjectClass: posixAccount\nuid: {name}\n\
         cn: {name}\nhomeDirectory: /\n{more}"
    )
}

fn number(directory: &Fixture<MemoryStore>, name: &str, attribute: &str) -> Option<String> {
    directory.value(&format!("uid={name},{PEOPLE}"), attribute)
}

/// Whichever of the two overlays is asked first.
#[test]
fn a_number_that_is_in_use_elsewhere_is_not_unique() {
    let ranges = format!("dna-range uidNumber 1000-1003 {PEOPLE} (objectClass=posixAccount) -1");
    let own = (&DESCRIPTOR, ranges.as_str());
    let unique = (&crate::unique::DESCRIPTOR, "unique_uri ldap:///?uidNumber?sub");
    for overlays in [[own, unique], [unique, own]] {
        let directory = directory(&overlays);
        directory.apply(TREE);
        let elsewhere =
            account("x", "gidNumber: 1\nuidNumber: 1000\n").replace(PEOPLE, "ou=Groups,dc=example,dc=com");
        directory.apply(&elsewhere);
        let taken = "19 non-unique attributes found with (|(uidNumber=1000))";
        assert_eq!(directory.change(&account("a", "gidNumber: 1\nuidNumber: -1\n")), taken);
        directory.apply("dn: uid=x,ou=Groups,dc=example,dc=com\nchangetype: delete\n");
        directory.apply(&account("a", "gidNumber: 1\nuidNumber: -1\n"));
        assert_eq!(number(&directory, "a", "uidNumber").as_deref(), Some("1000"));
    }
}

#[test]
fn an_entry_without_a_number_gets_the_next_one() {
    let directory = start(&format!("dna-range uidNumber 1000-1003 {PEOPLE} (objectClass=posixAccount)"));
    directory.apply(&account("a", "gidNumber: 1\n"));
    directory.apply(&account("b", "gidNumber: 1\nuidNumber: 1001\n"));
    directory.apply(&account("c", "gidNumber: 1\n"));
    let numbers = |names: &[&str]| -> Vec<Option<String>> {
        names.iter().map(|name| number(&directory, name, "uidNumber")).collect()
    };
    let some = |number: &str| Some(number.to_owned());
    // What is in use already is passed over.
    assert_eq!(numbers(&["a", "b", "c"]), [some("1000"), some("1001"), some("1002")]);
    assert_eq!(directory.value(PEOPLE, "larixNumberNext"), some("uidNumber 1000-1003 1003"));
    // One that is refused takes none, one that is gone gives none back.
    assert!(directory.change(&account("a", "gidNumber: 1\n")).starts_with("68"));
    directory.apply(&format!("dn: uid=c,{PEOPLE}\nchangetype: delete\n"));
    directory.apply(&account("d", "gidNumber: 1\n"));
    assert_eq!(numbers(&["d"]), [some("1003")]);
    assert!(directory.change(&account("e", "gidNumber: 1\n")).starts_with("1 Allocation of a new value"));
    // Who does not match needs none.
    directory.apply(&format!("dn: cn=x,{PEOPLE}\nchangetype: add\nobjectClass: person\nsn: x\n"));
    assert_eq!(directory.value(&format!("cn=x,{PEOPLE}"), "uidNumber"), None);
}

#[test]
fn a_number_is_asked_for_by_its_value_and_shared_by_attributes() {
    let directory =
        start(&format!("dna-range uidNumber,gidNumber 7-9 {PEOPLE} (objectClass=posixAccount) -1"));
    directory.apply(&account("a", "uidNumber: -1\ngidNumber: -1\n"));
    directory.apply(&account("b", "uidNumber: -1\ngidNumber: 100\n"));
    let both =
        |name: &str| ["uidNumber", "gidNumber"].map(|attribute| number(&directory, name, attribute).unwrap());
    assert_eq!(both("a"), ["7", "7"]);
    assert_eq!(both("b"), ["8", "100"]);
    directory
        .apply(&format!("dn: uid=b,{PEOPLE}\nchangetype: modify\nreplace: gidNumber\ngidNumber: -1\n-\n"));
    assert_eq!(both("b"), ["8", "9"]);
    // One less, not the next number more.
    directory
        .apply(&format!("dn: uid=b,{PEOPLE}\nchangetype: modify\nincrement: gidNumber\ngidNumber: -1\n-\n"));
    assert_eq!(both("b"), ["8", "8"]);
}

#[test]
fn changes_that_wait_together_get_a_number_each() {
    let directory = start(&format!("dna-range uidNumber 1-1000 {PEOPLE} (objectClass=posixAccount)"));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let directory = &directory;
            scope.spawn(move || {
                (0..25).for_each(|n| directory.apply(&account(&format!("{thread}.{n}"), "gidNumber: 1\n")));
            });
        }
    });
    let mut numbers: Vec<u64> = (0..4)
        .flat_map(|thread| (0..25).map(move |n| format!("{thread}.{n}")))
        .map(|name| number(&directory, &name, "uidNumber").unwrap().parse().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
}

#[test]
fn numbers_that_are_older_than_the_range_are_passed_over_however_many_they_are() {
    let directory = start(&format!("dna-range description 1-12000 {PEOPLE} (objectClass=person)"));
    let person =
        |name: &str| format!("dn: cn={name},{PEOPLE}\nchangetype: add\nobjectClass: person\nsn: x\n");
    let used =
        (1..=11_000).filter(|number| *number != 10_500).map(|number| format!("description: {number}\n"));
    directory.apply(&(person("old") + &used.collect::<String>()));
    let numbers = ["a", "b"].map(|name| {
        directory.apply(&person(name));
        directory.value(&format!("cn={name},{PEOPLE}"), "description").unwrap()
    });
    assert_eq!(numbers, ["10500", "11001"]);
}
