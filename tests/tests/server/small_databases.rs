//! `database passwd`: accounts of a file as entries, beside slapd's.

use std::fmt::Write as _;
use std::fs;

use larix_testkit::{Kind, Site};
use larix_tests::client::{Client, run};
use larix_tests::running::Running;

/// `database null` says of everything that it is done; with `bind` it lets everybody in, and with `dosearch` it has an entry of its name.
#[test]
fn nothing_is_kept_and_all_succeeds() {
    let body = "database null\nsuffix cn=quiet\ndatabase null\nsuffix cn=null\nbind on\ndosearch on\n";
    let server = Running::start(Kind::Larix, body, "");
    let mut client = server.client();
    for (request, expected) in [
        ("search cn=quiet sub (objectClass=*)", "=> 0\n"),
        ("as cn=x,cn=quiet pw", "=> 49\n"),
        (
            "search cn=x,cn=null sub (cn=y)",
            "-> cn=null\n   cn: null\n   objectClass: extensibleObject\n=> 0\n",
        ),
        ("as cn=x,cn=null whatever", "=> 0\n"),
        ("add cn=y,cn=null\n  objectClass: device\n  cn: y", "=> 0\n"),
        ("compare cn=y,cn=null cn:y", "=> 5\n"),
        ("delete cn=y,cn=quiet", "=> 0\n"),
    ] {
        assert_eq!(run(&mut client, request), expected, "{request}");
    }
}

/// As in slapd: nothing reaches such a database, and the others are served.
#[test]
fn accounts_without_a_suffix_are_no_reason_not_to_start() {
    let server = Running::start(Kind::Larix, "database passwd\ndatabase null\nsuffix cn=quiet\n", "");
    assert_eq!(run(&mut server.client(), "search cn=quiet sub (objectClass=*)"), "=> 0\n");
}

const LINES: &str = "database passwd\nsuffix \"ou=hosts,dc=example\"\nrootdn \"cn=root,ou=hosts,dc=example\"\nrootpw secret\n";

#[test]
fn accounts_of_a_file() {
    let site = Site::new(Kind::Larix, &format!("{LINES}file @DATA@/accounts\nlimits anonymous size=1000\n"));
    let file = site.path().join("data/accounts");
    let mut lines =
        "# a comment\nann:x:1000:1000:Ann Archer,Room 1:/home/ann:/bin/sh\nbob:x:1001:1001:& Brewer:/:\n\
                     ann:x:1:1:twice:/:\n+::::::\nbroken\n"
            .to_owned();
    fs::write(&file, &lines).unwrap();
    let server = Running::of(site);
    let mut client = server.client();
    for (request, expected) in [
        (
            "search uid=ann,ou=hosts,dc=example base (objectClass=*)",
            &[
                "objectClass: person",
                "cn: Ann Archer",
                "sn: Archer",
                "description: Ann Archer,Room 1",
                "=> 0",
            ][..],
        ),
        ("search ou=hosts,dc=example one (sn=brewer) uid", &["uid: bob", "=> 0"]),
        ("search ou=hosts,dc=example base (&(ou=hosts)(hasSubordinates=TRUE)) ou", &["ou: hosts", "=> 0"]),
        ("search ou=hosts,dc=example sub (hasSubordinates=FALSE) uid", &["uid: ann", "uid: bob"]),
        ("search uid=eve,ou=hosts,dc=example base (objectClass=*)", &["=> 32", "ou=hosts,dc=example"]),
        ("search uid=ann,ou=hosts,dc=example one (objectClass=*)", &["=> 0"]),
        ("search \"\" base (objectClass=*) namingContexts", &["namingContexts: ou=hosts,dc=example"]),
        ("compare uid=ann,ou=hosts,dc=example sn:archer", &["=> 6"]),
        ("as cn=root,ou=hosts,dc=example secret", &["=> 0"]),
        ("delete uid=ann,ou=hosts,dc=example", &["=> 53", "in their file"]),
        ("as uid=ann,ou=hosts,dc=example x", &["=> 49"]),
    ] {
        let answer = run(&mut client, request);
        expected.iter().for_each(|text| assert!(answer.contains(text), "{request}: {answer} lacks {text}"));
    }
    let found = |client: &mut Client| {
        run(client, "search ou=hosts,dc=example sub (uid=*) uid").matches("uid: ").count()
    };
    assert_eq!(found(&mut client), 2);

    // What is written to the file is seen by the next search, and a long file is read in slices.
    for number in 0..3_000 {
        writeln!(lines, "user{number}:x:1:1::/:").unwrap();
    }
    fs::write(&file, &lines).unwrap();
    let mut client = server.client();
    let limited = run(&mut client, "search ou=hosts,dc=example sub (uid=*) uid");
    assert!(limited.contains("=> 4") && limited.matches("uid: ").count() == 1_000, "{limited}");
    run(&mut client, "as cn=root,ou=hosts,dc=example secret");
    assert_eq!(found(&mut client), 3_002);

    // A file that is too long, or gone, says so.
    fs::write(&file, vec![b'x'; (4 << 20) + 1]).unwrap();
    let answer = run(&mut client, "search ou=hosts,dc=example sub (uid=*)");
    assert!(answer.contains("=> 52"), "{answer}");
    fs::remove_file(&file).unwrap();
    let answer = run(&mut client, "search ou=hosts,dc=example sub (uid=*)");
    assert!(answer.contains("=> 52"), "{answer}");
}

/// The machine's own accounts, with what may be left out of entries: who has them, and in what order their values come.
#[test]
fn the_machine_has_the_accounts_that_slapd_shows() {
    if Kind::Slapd.is_lacking_module("back_passwd") {
        return;
    }
    let shown = |kind: Kind| {
        let module = if kind == Kind::Slapd { "moduleload back_passwd\n" } else { "" };
        let server = Running::start(kind, &format!("{module}{LINES}"), "");
        let answer = run(&mut server.client(), "search ou=hosts,dc=example sub (objectClass=*)");
        let mut lines: Vec<String> = answer.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (ours, theirs) = (shown(Kind::Larix), shown(Kind::Slapd));
    assert!(ours.len() > 20, "{ours:?}");
    assert_eq!(ours, theirs);
}
