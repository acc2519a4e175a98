//! Users on the admin page: made, locked and put out, and what is said when only a part of it is done.

use std::io::Write as _;
use std::net::TcpStream;

use base64::Engine as _;
use larix_testkit::until;

use super::http::{ADMIN, ENTRIES, FORM, Fixture, Http, escape, start_with};

const ANN: &str = "uid=ann,ou=people,dc=example,dc=com";
/// Ann looks after the people, and a password policy binds her and them. It locks nobody out.
const RULES: &str = "overlay ppolicy\nppolicy_default cn=policy,dc=example,dc=com\n\
    access to dn.subtree=ou=people,dc=example,dc=com by dn.exact=uid=ann,ou=people,dc=example,dc=com write by * break";
const POLICY: &str = "\ndn: cn=policy,dc=example,dc=com\nobjectClass: applicationProcess\nobjectClass: pwdPolicy\n\
    cn: policy\npwdAttribute: userPassword\npwdMinLength: 8\npwdCheckQuality: 2\n\n\
    dn: uid=eve,ou=people,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: eve\ncn: Eve\nsn: Example\n\
    userPassword: evespassword\n";
const EVE: &str = "uid=eve,ou=people,dc=example,dc=com";

fn start() -> Fixture {
    start_with("", RULES, &format!("{ENTRIES}{POLICY}"))
}

#[test]
fn a_user_whose_first_password_is_refused_gets_another_one() {
    let fixture = start();
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in(ANN, "annpass").status, 303);
    let fields = [("sn", "Way"), ("uid", "half"), ("password", "own"), ("new", "short")];
    let made = http.post("/people/new", &fields);
    let half = "uid=half,ou=people,dc=example,dc=com";
    let one = format!("/people/one?dn={}", escape(half));
    assert_eq!((made.status, made.header("location")), (303, one.as_str()), "{}", made.body);
    let page = http.get(&one).body;
    assert!(page.contains("Way is a user now.") && page.contains("The password is not set."), "{page}");
    assert_eq!(http.post("/people/password", &[("dn", half), ("new", "long enough")]).status, 303);
    assert_eq!(Http::new(fixture.http).log_in("half", "long enough").status, 303);
    assert!(fixture.server.stop());
}

/// Without `pwdLockout: TRUE` a lock keeps nobody out (draft-behera-ldap-password-policy-10 section 5.2.11).
#[test]
fn a_lock_that_keeps_nobody_out_is_not_called_one() {
    let fixture = start();
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    assert_eq!(admin.post("/people/lock", &[("dn", EVE), ("action", "lock")]).status, 303);
    let page = admin.get(&format!("/people/one?dn={}", escape(EVE))).body;
    assert!(page.contains("The lock is written.") && page.contains("can log in all the same"), "{page}");
    assert!(!page.contains("nobody can log in"), "{page}");
    assert_eq!(Http::new(fixture.http).log_in("eve", "evespassword").status, 303);
    assert!(fixture.server.stop());
}

#[test]
fn sessions_end_with_the_password_and_with_the_account() {
    let fixture = start();
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    let eve = |password: &str| {
        let mut http = Http::new(fixture.http);
        assert_eq!(http.log_in("eve", password).status, 303, "{password}");
        http
    };
    let goes_on = |http: &mut Http| http.get("/account").status == 200;

    // Somebody else sets the password.
    let (mut one, mut other) = (eve("evespassword"), eve("evespassword"));
    assert!(goes_on(&mut one) && goes_on(&mut other));
    assert_eq!(admin.post("/people/password", &[("dn", EVE), ("new", "second one")]).status, 303);
    assert!(!goes_on(&mut one) && !goes_on(&mut other) && goes_on(&mut admin));

    // The root DN has no entry whose password it could change: the page says where its password is.
    let fields = [("old", "secret"), ("new", "another one"), ("again", "another one")];
    let refused = admin.post("/password", &fields).body;
    assert!(refused.contains("is not changed") && refused.contains("<code>olcRootPW</code>"), "{refused}");

    // Eve does: the session in which she does it goes on.
    let (mut one, mut other) = (eve("second one"), eve("second one"));
    one.get("/password");
    let fields = [("old", "second one"), ("new", "third one"), ("again", "third one")];
    assert_eq!(one.post("/password", &fields).status, 303);
    assert!(goes_on(&mut one) && !goes_on(&mut other));

    // Her account is locked, and later deleted. The name may be spelt in another way.
    let spelt = "UID=eve, ou=People,dc=example,dc=com";
    assert_eq!(admin.post("/people/lock", &[("dn", spelt), ("action", "lock")]).status, 303);
    assert!(!goes_on(&mut one));
    assert_eq!(admin.post("/people/lock", &[("dn", EVE), ("action", "unlock")]).status, 303);
    let mut one = eve("third one");
    assert_eq!(admin.post("/entries/delete", &[("dn", EVE), ("step", "run")]).status, 303);
    assert!(!goes_on(&mut one) && goes_on(&mut admin));
    assert!(fixture.server.stop());
}

/// The page lists 200 members.
#[test]
fn a_member_that_a_large_group_does_not_list_is_removed_by_name() {
    let fixture = start();
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    let (names, logins) = ("cn=names,dc=example,dc=com", "cn=logins,dc=example,dc=com");
    let mut text = format!("dn: {names}\nobjectClass: groupOfNames\ncn: names\n");
    (0..220).for_each(|n| text += &format!("member: uid=gone{n},dc=example,dc=com\n"));
    text += &format!("member: {EVE}\n\ndn: {logins}\nobjectClass: posixGroup\ncn: logins\ngidNumber: 500\n");
    (0..220).for_each(|n| text += &format!("memberUid: gone{n}\n"));
    let done = admin.post("/import", &[("format", "ldif"), ("text", &text), ("step", "run")]);
    assert!(done.body.contains("All 2 records were imported."), "{}", done.body);
    for (group, who, left) in
        [(names, "eve", 220), (names, "uid=gone219,dc=example,dc=com", 219), (logins, "gone219", 219)]
    {
        let address = format!("/groups/one?dn={}", escape(group));
        let page = admin.get(&address).body;
        assert!(page.contains("name=\"action\" value=\"remove\">Remove from the group"), "{page}");
        let fields = [("dn", group), ("who", who), ("action", "remove"), ("back", "group")];
        let removed = admin.post("/groups/member", &fields);
        assert_eq!((removed.status, removed.header("location")), (303, address.as_str()), "{}", removed.body);
        let page = admin.get(&address).body;
        assert!(page.contains(&format!("{left} members")), "{page}");
    }
    assert!(fixture.server.stop());
}

#[test]
fn groups_for_linux_machines_take_the_next_free_number() {
    let fixture = start();
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    for (name, typed, number) in [("one", "", "10000"), ("two", "12000", "12000"), ("three", "", "12001")] {
        let made = admin.post("/groups/new", &[("cn", name), ("kind", "posixGroup"), ("gidNumber", typed)]);
        assert_eq!(made.status, 303, "{name}: {}", made.body);
        let page = admin.get(made.header("location")).body;
        assert!(page.contains(&format!("<dd>{number}</dd>")), "{name}: {page}");
    }
    // A class that is none is named before anything is filled in.
    let path = "/entry/new?parent=dc%3Dexample%2Cdc%3Dcom&class=person&auxiliary=posixAccount+nonsense";
    let refused = admin.get(path);
    let says = refused.body.contains("There is no object class nonsense in the schema.");
    assert!(refused.status == 400 && says, "{}", refused.body);
    assert!(fixture.server.stop());
}

/// A form holds 500 values of an attribute, and 2.5 MiB.
#[test]
fn what_a_form_does_not_hold_it_does_not_take_away() {
    let fixture = start();
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    let (names, logins) = ("cn=names,dc=example,dc=com", "cn=logins,dc=example,dc=com");
    let mut text = format!("dn: {names}\nobjectClass: groupOfNames\ncn: names\n");
    (0..501).for_each(|n| text += &format!("member: uid=m{n},dc=example,dc=com\n"));
    text += &format!("\ndn: {logins}\nobjectClass: posixGroup\ncn: logins\ngidNumber: 500\n");
    (0..501).for_each(|n| text += &format!("memberUid: m{n}\n"));
    let done = admin.post("/import", &[("format", "ldif"), ("text", &text), ("step", "run")]);
    assert!(done.body.contains("All 2 records were imported."), "{}", done.body);
    for (group, attribute) in [(names, "member"), (logins, "memberUid")] {
        let form = admin.get(&format!("/entry/edit?dn={}&add={attribute}", escape(group))).body;
        let left = format!("Too long for a form, and left as they are: {attribute}.");
        assert!(form.contains(&left) && !form.contains(&format!("name=\"v:{attribute}\"")), "{form}");
        let copy = admin.get(&format!("/entry/copy?dn={}", escape(group))).body;
        assert!(copy.contains(&format!("left out: {attribute}.")) && !copy.contains("m499"), "{copy}");
        // Also if a form sends one value.
        let field = format!("v:{attribute}");
        let one = admin.post(
            "/entry/edit",
            &[("dn", group), (field.as_str(), "uid=m1,dc=example,dc=com"), ("step", "save")],
        );
        assert!(
            one.status == 422 && one.body.contains("is too long for a form: it has more than 500 values"),
            "{}",
            one.body
        );
        let fields = [("dn", group), (field.as_str(), ""), ("v:description", "Many"), ("step", "save")];
        assert_eq!(admin.post("/entry/edit", &fields).status, 303, "{group}");
        let page = admin.get(&format!("/groups/one?dn={}", escape(group))).body;
        assert!(page.contains("501 members") && page.contains("<dd>Many</dd>"), "{page}");
    }
    // A picture that no form could send back does not keep the rest from being changed.
    let photo: Vec<u8> = [0xff, 0xd8].into_iter().chain(std::iter::repeat_n(0, 2_700_000)).collect();
    let photo = base64::engine::general_purpose::STANDARD.encode(photo);
    let text = format!("dn: {EVE}\nchangetype: modify\nadd: jpegPhoto\njpegPhoto:: {photo}\n");
    let done = admin.post("/import", &[("format", "ldif"), ("text", &text), ("step", "run")]);
    assert!(done.body.contains("The record was imported."), "{}", done.body);
    let form = admin.get(&format!("/entry/edit?dn={}", escape(EVE))).body;
    assert!(form.contains("left as they are: jpegPhoto.") && form.len() < 100_000, "{} bytes", form.len());
    assert!(fixture.server.stop());
}

#[test]
fn a_review_shows_no_secret() {
    let fixture = start();
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    let database = "olcDatabase={2}mdb,cn=config";
    let fields =
        [("dn", database), ("v:olcRootPW", "another one"), ("v:olcReadOnly", "FALSE"), ("step", "review")];
    let review = admin.post("/entry/edit", &fields).body;
    assert!(
        review.contains("− olcRootPW: (hidden here)") && review.contains("+ olcRootPW: (hidden here)"),
        "{review}"
    );
    assert!(!review.contains("olcRootPW: secret") && !review.contains("olcRootPW: another one"), "{review}");
    assert!(review.contains("olcRootPW: (hidden here)\n"), "as LDIF: {review}");
    let review = admin.post("/entry/edit", &[("dn", EVE), ("v:userPassword", ""), ("step", "review")]).body;
    assert!(review.contains("− userPassword: (hidden here)") && !review.contains("evespassword"), "{review}");
    assert!(fixture.server.stop());
}

#[test]
fn users_go_to_the_naming_context_that_was_chosen() {
    let other = format!("database mdb\nsuffix o=other\nrootdn {ADMIN}\ndirectory @DATA@/other");
    let fixture = start_with(&other, "", ENTRIES);
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in(ADMIN, "secret").status, 303);
    // The first one is empty; the list leads to the other one.
    let page = admin.get("/people").body;
    assert!(
        page.contains("Nobody is here yet") && page.contains("<option value=\"dc=example,dc=com\">"),
        "{page}"
    );
    for (base, parent) in
        [("dc=example,dc=com", "ou=people,dc=example,dc=com"), ("o=other", "ou=people,o=other")]
    {
        let new = format!("/people/new?base={}", escape(base));
        let page = admin.get(&format!("/people?base={}", escape(base))).body;
        assert!(page.contains(&format!("href=\"{new}\"")), "{page}");
        let page = admin.get(&new).body;
        assert!(page.contains(&format!("name=\"parent\" value=\"{parent}\"")), "{page}");
        let fields = [("uid", "new"), ("sn", "New"), ("password", "none"), ("parent", parent)];
        let made = admin.post("/people/new", &fields);
        let one = format!("/people/one?dn={}", escape(&format!("uid=new,{parent}")));
        assert_eq!((made.status, made.header("location")), (303, one.as_str()), "{}", made.body);
        let fields = [("cn", "news"), ("who", "new"), ("parent", parent)];
        let made = admin.post("/groups/new", &fields);
        assert_eq!(made.status, 303, "{}", made.body);
        let page = admin.get(made.header("location")).body;
        assert!(page.contains(&format!("uid=new,{parent}")), "{page}");
    }
    assert!(fixture.server.stop());
}

#[test]
fn a_replica_says_where_changes_go() {
    let replica = "syncrepl rid=001 provider=ldap://127.0.0.1:1/ searchbase=dc=example,dc=com bindmethod=simple \
                   retry=\"60 +\"\nupdateref ldap://provider.example.com/";
    let fixture = start_with("", replica, ENTRIES);
    let mut admin = Http::new(fixture.http);
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    let refused = admin.post("/entry/edit", &[("dn", ANN), ("v:title", "Chief"), ("step", "save")]);
    assert_eq!(refused.status, 422);
    let says = refused.body.contains("another server does.");
    assert!(says && refused.body.contains("<code>ldap://provider.example.com/"), "{}", refused.body);
    assert!(fixture.server.stop());
}

#[test]
fn a_change_is_carried_out_though_its_browser_leaves() {
    let fixture = start();
    let (mut admin, mut other) = (Http::new(fixture.http), Http::new(fixture.http));
    assert_eq!(admin.log_in("admin", "secret").status, 303);
    assert_eq!(other.log_in("admin", "secret").status, 303);
    let name = |number: usize| format!("cn=number {number},ou=people,dc=example,dc=com");
    let mut text = String::new();
    (0..1_500).for_each(|n| text += &format!("dn: {}\nobjectClass: device\ncn: number {n}\n\n", name(n)));
    let body = format!("csrf={}&format=ldif&step=run&text={}", admin.csrf, escape(&text));
    let cookies: Vec<String> = admin.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let request = format!(
        "POST /import HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n{FORM}Content-Length: {}\r\n\r\n{body}",
        fixture.http,
        cookies.join("; "),
        body.len()
    );
    let mut is_there = |number: usize| {
        let page = other.get(&format!("/browse?dn={}", escape(&name(number)))).body;
        !page.contains("Nothing to see here")
    };
    let mut browser = TcpStream::connect(fixture.http).expect("a connection");
    browser.write_all(request.as_bytes()).expect("a request");
    until("the first record", || is_there(0));
    drop(browser);
    until("the last record", || is_there(1_499));
    assert!(fixture.server.stop());
}
