//! `larix check` names entries that break rules of overlays; the server serves them all the same.

use larix_testkit::{Kind, Site};
use larix_tests::client::Client;
use larix_tests::scenario::Step;

/// What of it breaks a rule is loaded offline, where no overlay looks.
const TREE: &str = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\ndescription: one\ndescription: two\n\n\
    dn: ou=people,dc=example,dc=com\nobjectClass: organizationalUnit\nou: people\n\n\
    dn: cn=Ann,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\ncn: Ann\nsn: A\nmail: ann@x.org\nuid: a\n\
    employeeNumber: 1\ntitle: people\n\n\
    dn: cn=Bob,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\ncn: Bob\nsn: B\nmail: ANN@x.org\nmail: b@x.org\n\
    uid: b\nemployeeNumber: 1\ntitle: nobody\n\n\
    dn: cn=Cid,dc=example,dc=com\nobjectClass: inetOrgPerson\ncn: Cid\nsn: C\nmail: b@x.org\nuid: c\nemployeeNumber: 1\n\
    telephoneNumber: +1 2 3\n\n";

/// The lines of the overlays, and the findings.
const CASES: &[(&str, &[&str])] = &[
    ("overlay unique\nunique_uri ldap:///?uid?sub", &[]),
    (
        "overlay unique\nunique_uri ldap:///?mail?sub",
        &[
            "\"cn=Ann,ou=people,dc=example,dc=com\": unique: a value of mail is also in \"cn=Bob,ou=people,dc=example,dc=com\"",
            "\"cn=Bob,ou=people,dc=example,dc=com\": unique: a value of mail is also in \"cn=Cid,dc=example,dc=com\"",
        ],
    ),
    (
        "overlay unique\nunique_uri ldap:///ou=people,dc=example,dc=com?employeeNumber?one",
        &[
            "\"cn=Ann,ou=people,dc=example,dc=com\": unique: a value of employeeNumber is also in \"cn=Bob,ou=people,dc=example,dc=com\"",
        ],
    ),
    ("overlay unique\nunique_uri ldap:///?employeeNumber?sub?(uid=b)", &[]),
    (
        "overlay constraint\nconstraint_attribute mail regex ^[a-z@.]+$\nconstraint_attribute uid size 1\n\
         constraint_attribute description count 1",
        &[
            "\"dc=example,dc=com\": constraint: description breaks `constraint_attribute description count 1`",
            "\"cn=Bob,ou=people,dc=example,dc=com\": constraint: mail breaks `constraint_attribute mail regex ^[a-z@.]+$`",
        ],
    ),
    (
        "overlay constraint\nconstraint_attribute title uri ldap:///dc=example,dc=com?ou?sub\n\
         constraint_attribute cn set \"this/uid & [b]\" restrict=\"ldap:///ou=people,dc=example,dc=com??one\"\n\
         constraint_attribute sn set \"user/sn & this/sn\"",
        &[
            "\"cn=Ann,ou=people,dc=example,dc=com\": constraint: cn breaks `constraint_attribute cn set this/uid & [b] \
             restrict=ldap:///ou=people,dc=example,dc=com??one`",
            "\"cn=Bob,ou=people,dc=example,dc=com\": constraint: title breaks `constraint_attribute title uri \
             ldap:///dc=example,dc=com?ou?sub`",
        ],
    ),
];

#[test]
fn entries_that_break_rules_are_named_and_served() {
    for (lines, expected) in CASES {
        check(lines, expected);
    }
}

fn check(lines: &str, expected: &[&str]) {
    let site = Site::new(
        Kind::Larix,
        &format!("database mdb\nsuffix dc=example,dc=com\ndirectory @DATA@\nindex mail,uid eq\n{lines}\n"),
    );
    site.load(TREE);
    let output =
        Kind::Larix.tool("check").arg("-f").arg(site.configuration()).output().expect("the tool starts");
    let notes = String::from_utf8_lossy(&output.stderr);
    let mut notes: Vec<&str> = notes.lines().filter(|line| line.starts_with('"')).collect();
    let mut expected = expected.to_vec();
    notes.sort_unstable();
    expected.sort_unstable();
    assert_eq!(notes, expected, "{lines}");
    assert_eq!(output.status.code(), Some(if expected.is_empty() { 0 } else { 3 }), "{lines}");

    let server = site.start().unwrap_or_else(|error| panic!("{lines}: {error}"));
    let request = "search dc=example,dc=com sub (uid=a) 1.1\n".to_owned();
    let answer = Client::connect(server.address).run(&Step { request, ..Step::default() });
    assert_eq!(answer, "-> cn=Ann,ou=people,dc=example,dc=com\n=> 0\n", "{lines}");
}

/// Without -b and -n. A database that is not there does not hide the others, and is no success.
#[test]
fn every_database_is_checked() {
    let site = Site::new(
        Kind::Larix,
        "database mdb\nsuffix dc=example,dc=org\ndirectory @DATA@/first\n\
         database mdb\nsuffix dc=example,dc=com\ndirectory @DATA@/second\n\
         overlay constraint\nconstraint_attribute description count 1\n",
    );
    site.load_into(Some("dc=example,dc=com"), TREE);
    let check = |arguments: &[&str]| {
        let mut tool = Kind::Larix.tool("check");
        let output = tool.arg("-f").arg(site.configuration()).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, checked, errors) = check(&[]);
    assert!(checked.starts_with("\"dc=example,dc=com\": 5 entries"), "{checked}{errors}");
    assert!(errors.contains("first: no store in this directory"), "{errors}");
    assert_eq!(status, Some(2));

    site.load_into(Some("dc=example,dc=org"), "dn: dc=example,dc=org\nobjectClass: domain\ndc: example\n");
    let (status, checked, errors) = check(&[]);
    assert_eq!((status, checked.lines().count()), (Some(3), 2), "{checked}{errors}");
    let (status, checked, errors) = check(&["-n", "1"]);
    assert_eq!((status, checked.lines().count()), (Some(0), 1), "{checked}{errors}");
}

/// Nobody looks whether another value of a large set has the substrings of one that goes: they stay in the index, also when the set or the
/// entry goes.
#[test]
fn what_a_large_set_leaves_in_an_index_is_no_damage() {
    let site = Site::new(
        Kind::Larix,
        "database mdb\nsuffix dc=example,dc=com\nrootdn cn=admin,dc=example,dc=com\nrootpw secret\n\
         directory @DATA@\nindex objectClass eq\nindex description eq,sub\n",
    );
    let values: String =
        (0..5_000).map(|number| format!("description: value number {number} of many\n")).collect();
    let dn = |name: &str| format!("dn: cn={name},dc=example,dc=com\n");
    let person = |name: &str| format!("{}objectClass: person\ncn: {name}\nsn: x\n{values}\n", dn(name));
    let top = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n";
    site.load(&format!("{top}{}{}", person("smaller"), person("gone")));
    let one = "changetype: modify\ndelete: description\ndescription: value number 77 of many\n\n";
    let all = "changetype: modify\nreplace: description\ndescription: one\n\n";
    let (smaller, gone) = (dn("smaller"), dn("gone"));
    let changes = site.path().join("changes.ldif");
    std::fs::write(&changes, format!("{smaller}{one}{smaller}{all}{gone}{one}{gone}changetype: delete\n"))
        .unwrap();
    let run = |tool: &str, arguments: &[&str]| {
        let mut command = Kind::Larix.tool(tool);
        let output = command.arg("-f").arg(site.configuration()).args(arguments).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&text));
    };
    run("offline-modify", &["-l", changes.to_str().unwrap()]);
    run("check", &[]);
    run("index", &[]);
    run("check", &[]);
}
