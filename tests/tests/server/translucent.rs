//! `overlay translucent`: values of this server over the entries of another, beside slapd's overlay in front of the same server.

use std::net::SocketAddr;

use larix_testkit::Kind;
use larix_tests::client::{codes_alone, run};
use larix_tests::relay::{Passage, Relay};
use larix_tests::running::Running;
use larix_tests::scenario;

/// The remote server.
fn remote() -> Running {
    let body = "database mdb\nsuffix o=x\nrootdn cn=admin,o=x\nrootpw secret\ndirectory @DATA@\nindex uid eq\n\
                access to attrs=userPassword by anonymous auth by * none\n\
                access to attrs=mobile by dn.exact=uid=ann,ou=users,o=x read by dn.exact=cn=admin,o=x read by * none\n\
                access to * by * read\n";
    let person = |uid: &str, kind: &str| {
        format!(
            "dn: uid={uid},ou=users,o=x\nobjectClass: inetOrgPerson\nuid: {uid}\ncn: {uid}\nsn: {uid}son\n\
             employeeType: {kind}\ncarLicense: {uid}-1\nmobile: 1\ninitials: {uid}\nuserPassword: {uid}pw\n\n"
        )
    };
    let top = "dn: o=x\nobjectClass: organization\no: x\n\ndn: ou=users,o=x\nobjectClass: organizationalUnit\nou: users\n\n";
    let people: String =
        [("ann", "staff"), ("bob", "staff"), ("eve", "guest")].map(|(uid, kind)| person(uid, kind)).concat();
    Running::start(Kind::Larix, body, &format!("{top}{people}"))
}

/// The lines of the server in front.
fn in_front(kind: Kind, remote: SocketAddr, lines: &str) -> String {
    let modules = if kind == Kind::Slapd { "moduleload back_ldap\nmoduleload translucent\n" } else { "" };
    format!(
        "{modules}database mdb\nsuffix o=x\nrootdn cn=root,o=x\nrootpw secret\ndirectory @DATA@\n\
         overlay translucent\n{lines}\nuri ldap://{remote}\n\
         acl-bind bindmethod=simple binddn=cn=admin,o=x credentials=secret\nchase-referrals no\nlastmod off\n"
    )
}

/// Runs requests in front of a fresh remote server.
fn answers(kind: Kind, lines: &str, requests: &str) -> Vec<String> {
    let remote = remote();
    let front = Running::start(kind, &in_front(kind, remote.server.address, lines), "");
    let mut client = front.client();
    let steps = scenario::parse(requests);
    steps.iter().map(|step| format!("{}\n{}", step.request, client.run(step))).collect()
}

/// The same answers as those of slapd's overlay, but for texts beside codes and those that `is_known` knows.
fn as_slapd(lines: &str, requests: &str, is_known: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let ours = answers(Kind::Larix, lines, requests);
    if Kind::Slapd.is_lacking_module("translucent") {
        return ours;
    }
    let theirs = answers(Kind::Slapd, lines, requests);
    let differences = ours.iter().zip(&theirs).filter(|(one, other)| codes_alone(one) != codes_alone(other));
    let differences: Vec<_> = differences.filter(|(one, other)| !is_known(one, other)).collect();
    assert!(differences.is_empty(), "{lines}: {differences:#?}");
    ours
}

fn has(answers: &[String], request: &str, expected: &[&str]) {
    let found: Vec<&String> = answers.iter().filter(|answer| answer.starts_with(request)).collect();
    assert!(!found.is_empty(), "{request}");
    let last = found.last().unwrap();
    expected.iter().for_each(|text| assert!(last.contains(text), "{last} lacks {text}"));
}

/// Adds, modifies, renames and deletes of what is stored here, and what clients see of the whole.
const CHANGES: &str = "search o=x sub (uid=*)
as uid=ann,ou=users,o=x annpw
add uid=bob,ou=users,o=x
  sn: stolen
modify uid=nobody,ou=users,o=x
  replace sn: x
as cn=root,o=x secret
modify uid=nobody,ou=users,o=x
  replace sn: x
modify uid=ann,ou=users,o=x
  replace roomNumber: 12
search uid=ann,ou=users,o=x base (objectClass=*)
add uid=bob,ou=users,o=x
  objectClass: inetOrgPerson
  uid: bob
  cn: robert
  sn: local
  employeeType: special
  roomNumber: 13
search uid=bob,ou=users,o=x base (objectClass=*)
modify uid=ann,ou=users,o=x
  add employeeType: consultant
  add roomNumber: 14
  replace carLicense: LIVID
search ou=users,o=x sub (uid=ann)
search ou=users,o=x sub (uid=ann) roomNumber sn
search ou=users,o=x sub (uid=ann) 1.1
search ou=users,o=x sub (employeeType=staff)
search ou=users,o=x sub (employeeType=consultant) uid
search ou=users,o=x sub (!(employeeType=staff)) uid
search ou=users,o=x one (objectClass=*) 1.1
search ou=nowhere,o=x sub (objectClass=*) 1.1
modify uid=ann,ou=users,o=x
  delete carLicense
modify uid=ann,ou=users,o=x
  delete initials
modify uid=ann,ou=users,o=x
  delete preferredLanguage
modify uid=eve,ou=users,o=x
  delete nobody-knows-it
modify uid=eve,ou=users,o=x
  delete createTimestamp
modify uid=eve,ou=users,o=x
  delete seeAlso: no name
modify uid=eve,ou=users,o=x
  delete initials
search uid=eve,ou=users,o=x base (objectClass=*)
modify uid=eve,ou=users,o=x
  delete initials
  replace employeeType: visitor
search uid=eve,ou=users,o=x base (objectClass=*)
modify uid=ann,ou=users,o=x
  replace nobody-knows-it: x
modify uid=ann,ou=users,o=x
  add uidNumber: none
compare uid=ann,ou=users,o=x roomNumber:12
compare uid=ann,ou=users,o=x roomNumber:99
compare uid=ann,ou=users,o=x sn:annson
compare uid=bob,ou=users,o=x sn:bobson
compare uid=bob,ou=users,o=x initials:bob
compare uid=bob,ou=users,o=x initials:x
compare uid=nobody,ou=users,o=x initials:x
modrdn uid=bob,ou=users,o=x uid=robert keep
search ou=users,o=x sub (objectClass=*) uid sn
delete uid=robert,ou=users,o=x
delete uid=robert,ou=users,o=x
delete uid=ann,ou=users,o=x
search o=x sub (uid=ann)
add uid=deep,ou=one,ou=two,ou=users,o=x
  cn: deep
search ou=two,ou=users,o=x sub (objectClass=*) 1.1
anonymous
modify uid=ann,ou=users,o=x
  replace sn: stolen
delete uid=eve,ou=users,o=x
modrdn uid=eve,ou=users,o=x uid=adam keep
as uid=ann,ou=users,o=x wrong
as uid=ann,ou=users,o=x annpw
whoami
search uid=ann,ou=users,o=x base (objectClass=*) mobile
as uid=bob,ou=users,o=x bobpw
search uid=ann,ou=users,o=x base (objectClass=*) mobile
";

#[test]
fn stored_values_lie_over_remote_ones() {
    let answers = as_slapd("", CHANGES, |ours, theirs| {
        // slapd lets others than its root modify where the rules of the database do, and looks for the entry first.
        ours.starts_with("modify uid=nobody") && ours.contains("=> 50") && theirs.contains("=> 32")
    });
    has(
        &answers,
        "search uid=bob,ou=users,o=x base (objectClass=*)",
        &["cn: robert", "sn: local", "initials: bob", "roomNumber: 13"],
    );
    has(
        &answers,
        "search ou=users,o=x sub (uid=ann)\n",
        &["employeeType: consultant", "carLicense: LIVID", "sn: annson"],
    );
    has(&answers, "search ou=users,o=x sub (employeeType=consultant) uid", &["=> 0"]);
    for (removed, expected) in
        [("nobody-knows-it", "=> 17"), ("createTimestamp", "=> 19"), ("seeAlso", "=> 21")]
    {
        has(&answers, &format!("modify uid=eve,ou=users,o=x\n  delete {removed}"), &[expected]);
    }
}

/// Changes that would take something of the remote server away, and superiors that nobody makes.
#[test]
fn strict_and_without_glue() {
    let requests = "as cn=root,o=x secret
add uid=bob,ou=users,o=x
  sn: local
modrdn uid=bob,ou=users,o=x uid=robert keep
modify uid=ann,ou=users,o=x
  delete initials
modify uid=ann,ou=users,o=x
  delete initials
  replace sn: local
search uid=ann,ou=users,o=x base (objectClass=*) sn
modify uid=ann,ou=users,o=x
  replace sn: local
modify uid=ann,ou=users,o=x
  delete initials
modify uid=ann,ou=users,o=x
  delete preferredLanguage
modify uid=ann,ou=users,o=x
  delete sn
search uid=ann,ou=users,o=x base (objectClass=*) sn
add uid=bob,ou=users,o=x
  sn: local
";
    let answers = as_slapd("translucent_strict\ntranslucent_no_glue on", requests, |_, _| false);
    has(&answers, "modify uid=ann,ou=users,o=x\n  delete initials\n", &["=> 19"]);
}

/// An assertion in a modify is about the entry as clients see it, also where nothing is stored here yet and where nothing is to be done.
#[test]
fn an_assertion_is_about_the_whole_entry() {
    let requests = "as cn=root,o=x secret
modify uid=ann,ou=users,o=x with !assert=(!(sn=annson))
  replace roomNumber: 1
modify uid=ann,ou=users,o=x with !assert=(sn=other)
  delete initials
modify uid=ann,ou=users,o=x with !assert=(sn=annson)
  replace roomNumber: 2
modify uid=ann,ou=users,o=x with !assert=(&(sn=annson)(roomNumber=2))
  replace roomNumber: 3
modify uid=ann,ou=users,o=x with !assert=(|(sn=other)(roomNumber=2))
  replace roomNumber: 4
modify uid=ann,ou=users,o=x with !assert=(!(sn=annson))
  replace roomNumber: 5
search uid=ann,ou=users,o=x base (objectClass=*) roomNumber
";
    let answers = answers(Kind::Larix, "", requests);
    let ends = answers.iter().filter_map(|answer| answer.rsplit_once("=> "));
    let codes: Vec<&str> = ends.filter_map(|(_, end)| end.split_whitespace().next()).collect();
    assert_eq!(codes, ["0", "122", "122", "0", "0", "122", "122", "0"], "{answers:#?}");
    has(&answers, "search uid=ann,ou=users,o=x base", &["roomNumber: 3"]);
}

/// Filters about attributes that are looked for here, at the remote server, or at both.
#[test]
fn filters_look_in_both_places() {
    let requests = "as cn=root,o=x secret
modify uid=ann,ou=users,o=x
  replace employeeType: consultant
  replace roomNumber: 12
modify uid=bob,ou=users,o=x
  replace roomNumber: 13
add uid=gone,ou=users,o=x
  employeeType: consultant
anonymous
search o=x sub (employeeType=consultant) uid
search o=x sub (employeeType=consult*)
search o=x sub (employeeType=staff)
search o=x sub (roomNumber=13) uid
search o=x sub (roomNumber=13) uid roomNumber
search o=x sub (uid=eve) uid
search o=x sub (carLicense=eve-1) cn
search o=x sub (|(employeeType=consultant)(carLicense=eve-1))
search o=x sub (|(employeeType=nothing)(carLicense=eve-1))
search o=x sub (&(employeeType=consultant)(carLicense=ann-1))
search o=x sub (&(employeeType=consultant)(carLicense=eve-1))
search o=x sub (&(employeeType=consultant)(uid=ann))
search o=x sub (&(employeeType=consultant)(uid=eve))
search uid=ann,ou=users,o=x base (employeeType=consultant)
search uid=eve,ou=users,o=x base (employeeType=consultant) cn
search ou=users,o=x one (roomNumber=*) roomNumber
";
    for lines in [
        "translucent_local employeeType,roomNumber",
        "translucent_local employeeType\ntranslucent_local roomNumber\ntranslucent_remote carLicense\ntranslucent_remote uid",
        "translucent_remote carLicense",
        "translucent_local employeeType,roomNumber\ntranslucent_remote employeeType,carLicense",
    ] {
        let answers = as_slapd(lines, requests, |ours, theirs| {
            // What slapd finds here it reads there as acl-bind: clients see what they may not. It knows no base of which nothing is stored.
            let hidden =
                |line: &&str| !line.starts_with("   mobile:") && !line.starts_with("   userPassword:");
            let shown: Vec<&str> = theirs.lines().filter(hidden).collect();
            shown == ours.lines().collect::<Vec<_>>()
                || (ours.starts_with("search uid=eve,ou=users,o=x base") && theirs.contains("=> 32"))
        });
        if lines.contains("translucent_local") {
            has(&answers, "search o=x sub (employeeType=consultant) uid", &["uid=ann"]);
            has(&answers, "search o=x sub (roomNumber=13) uid\n", &["uid=bob"]);
        }
        if lines.contains("translucent_remote") {
            let request = "search o=x sub (|(employeeType=nothing)(carLicense=eve-1))";
            has(&answers, request, &["cn: eve"]);
        }
    }
}

/// Passwords that are stored here, beside those of the remote server, and while it is gone.
#[test]
fn binds_and_passwords_here() {
    let remote = remote();
    let relay = Relay::start();
    relay.lead_to(remote.server.address);
    let lines = "translucent_bind_local on\ntranslucent_pwmod_local on\n\
                 access to attrs=userPassword by self =xw by anonymous auth by * none\naccess to * by * read";
    let front = Running::start(Kind::Larix, &in_front(Kind::Larix, relay.address, lines), "");
    let mut client = front.client();
    for (request, expected) in [
        ("as uid=ann,ou=users,o=x wrong", "=> 49"),
        ("as uid=ann,ou=users,o=x annpw", "=> 0"),
        // The own password, of an entry of which nothing was stored; nobody else's.
        ("passwd uid=bob,ou=users,o=x new=stolen", "=> 50"),
        ("passwd uid=ann,ou=users,o=x old=annpw new=local", "=> 53"),
        ("passwd uid=ann,ou=users,o=x new=local", "=> 0"),
        ("passwd uid=nobody,ou=users,o=x new=local", "=> 50"),
        // Both let her in.
        ("as uid=ann,ou=users,o=x local", "=> 0"),
        ("as uid=ann,ou=users,o=x annpw", "=> 0"),
        ("as uid=ann,ou=users,o=x other", "=> 49"),
        ("as uid=bob,ou=users,o=x local", "=> 49"),
        ("as uid=nobody,ou=users,o=x local", "=> 49"),
        ("as cn=root,o=x wrong", "=> 49"),
        ("as cn=root,o=x secret", "=> 0"),
        ("passwd uid=nobody,ou=users,o=x new=local", "=> 32"),
        ("passwd uid=bob,ou=users,o=x new=bobs", "=> 0"),
        ("search uid=ann,ou=users,o=x base (uid=ann) cn", "cn: ann"),
        ("as uid=ann,ou=users,o=x local", "=> 0"),
        ("search o=x sub (userPassword=*) userPassword", "=> 0"),
    ] {
        let answer = run(&mut client, request);
        assert!(answer.contains(expected), "{request}: {answer}");
    }
    let shown = run(&mut client, "search o=x sub (objectClass=*) userPassword");
    assert!(!shown.contains("userPassword:"), "{shown}");
    relay.set(Passage::Cut);
    let mut client = front.client();
    for (request, expected) in [
        ("as uid=ann,ou=users,o=x local", "=> 0"),
        ("as uid=bob,ou=users,o=x bobs", "=> 0"),
        ("as uid=eve,ou=users,o=x evepw", "=> 49"),
        ("search o=x sub (objectClass=*) cn", "=> 52"),
        ("compare uid=ann,ou=users,o=x sn:annson", "=> 52"),
        ("as cn=root,o=x secret", "=> 0"),
        ("modify uid=ann,ou=users,o=x\n  replace sn: x", "=> 52"),
        ("delete uid=ann,ou=users,o=x", "=> 0"),
    ] {
        let answer = run(&mut client, request);
        assert!(answer.contains(expected), "{request}: {answer}");
    }
}

/// Limits count what is answered; what cannot be done with local attributes is refused; ManageDsaIT shows what is stored.
#[test]
fn limits_pages_and_what_is_stored() {
    let remote = remote();
    let lines = "translucent_local roomNumber\ntranslucent_remote carLicense\nsizelimit 2";
    let front = Running::start(Kind::Larix, &in_front(Kind::Larix, remote.server.address, lines), "");
    let mut client = front.client();
    assert!(run(&mut client, "as cn=root,o=x secret").contains("=> 0"));
    for uid in ["ann", "bob", "eve"] {
        let answer = run(
            &mut client,
            &format!("modify uid={uid},ou=users,o=x\n  replace roomNumber: 1\n  replace sn: x"),
        );
        assert!(answer.starts_with("=> 0"), "{answer}");
    }
    assert!(run(&mut client, "anonymous").contains("=> 0"));
    let count = |answer: &str| answer.matches("-> ").count();
    for (request, entries, code) in [
        ("search o=x sub (uid=*) 1.1", 2, "=> 4"),
        ("search o=x sub (roomNumber=1) 1.1", 2, "=> 4"),
        ("search o=x sub (roomNumber=1) 1.1 size=1", 1, "=> 4"),
        ("search o=x sub (&(roomNumber=1)(uid=ann)) 1.1", 1, "=> 0"),
        ("search o=x sub (|(roomNumber=1)(carLicense=ann-1)) 1.1", 2, "=> 4"),
        ("search o=x sub (roomNumber=2) 1.1", 0, "=> 0"),
        // The remote server finds them by its own value.
        ("search o=x sub (sn=annson) 1.1", 0, "=> 0"),
        ("search o=x sub (roomNumber=1) 1.1 with !page=1", 0, "=> 12"),
        ("search o=x sub (roomNumber=1) 1.1 with !sort=uid", 0, "=> 12"),
        // The remote server is not asked, and nobody else judges them.
        ("search o=x sub (roomNumber=1) 1.1 with !assert=(o=nobody)", 0, "=> 12 "),
        ("search o=x sub (roomNumber=1) 1.1 with assert=(o=nobody)", 2, "=> 4"),
        ("search o=x sub (roomNumber=1) 1.1 with !subentries=true", 0, "=> 12"),
        ("search o=x sub (|(roomNumber=1)(carLicense=ann-1)) 1.1 with !assert=(o=nobody)", 0, "=> 122"),
        ("search o=x sub (roomNumber=1) roomNumber with !mv=(roomNumber=1)", 2, "=> 4"),
        // A base that neither has.
        ("search ou=nowhere,o=x sub (roomNumber=1) 1.1", 0, "=> 32"),
        ("search uid=nobody,ou=users,o=x base (roomNumber=1) 1.1", 0, "=> 32"),
        ("search o=x sub (uid=*) uid with page=2", 2, "=> 0"),
        ("search o=x sub (uid=*) uid with next=2", 1, "=> 0"),
        ("search uid=ann,ou=users,o=x base (objectClass=*) uid sn", 1, "=> 0"),
    ] {
        let answer = run(&mut client, request);
        assert!(count(&answer) == entries && answer.contains(code), "{request}: {answer}");
    }
    // What the filter alone asks for is judged, and goes no further (slapd 2.5 does not judge it).
    let judged = run(&mut client, "search o=x sub (|(roomNumber=9)(carLicense=eve-1)) cn");
    assert!(judged.contains("cn: eve") && !judged.contains("carLicense"), "{judged}");
    let names = run(&mut client, "search o=x sub (&(roomNumber=1)(uid=ann)) roomNumber typesonly");
    assert!(names.contains("roomNumber:\n") && !names.contains("carLicense"), "{names}");
    let stored = run(&mut client, "search uid=ann,ou=users,o=x base (objectClass=*) with manageDSAit");
    assert!(!stored.contains("initials"), "{stored}");
}

/// A filter about values here is judged on whole entries, whatever values of them the client asks for (RFC 3876).
#[test]
fn matched_values_do_not_hide_entries() {
    let lines = "translucent_local employeeType,roomNumber\ntranslucent_remote employeeType";
    let requests = "as cn=root,o=x secret
modify uid=ann,ou=users,o=x
  replace roomNumber: 12
search o=x sub (roomNumber=12) with !mv=(uid=*)
search o=x sub (employeeType=guest) with !mv=(uid=*)
";
    let answers = answers(Kind::Larix, lines, requests);
    has(&answers, "search o=x sub (roomNumber=12)", &["-> uid=ann,ou=users,o=x", "uid: ann", "=> 0"]);
    has(&answers, "search o=x sub (employeeType=guest)", &["-> uid=eve,ou=users,o=x", "uid: eve", "=> 0"]);
    assert!(answers.iter().all(|answer| !answer.contains("sn: ")), "{answers:?}");
}
