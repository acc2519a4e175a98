//! Forgotten passwords: a helper makes a code, the user sets another password with it, and nobody else gets anywhere.

use super::http::{Answer, Fixture, Http, escape, start, start_under};

const BOB: &str = "uid=bob,ou=people,dc=example,dc=com";
const ANN: &str = "uid=ann,ou=people,dc=example,dc=com";
const WRONG: &str = "Login or code is wrong, or the code has expired.";
/// Ann may set everybody's password, as a helper. The policy is the overlay's default one.
const RULES: &str = "overlay ppolicy\nppolicy_default cn=policy,dc=example,dc=com\n\
    access to attrs=userPassword by dn.exact=uid=ann,ou=people,dc=example,dc=com write by self =xw by anonymous auth by * none";
const POLICY: &str = "dn: cn=policy,dc=example,dc=com\nobjectClass: pwdPolicy\nobjectClass: device\ncn: policy\n\
    pwdAttribute: userPassword\npwdMinLength: 8\npwdCheckQuality: 2\n";

/// Ann's page of Bob, and a code from it.
fn code_of(helper: &mut Http) -> String {
    helper.get(&format!("/people/one?dn={}", escape(BOB)));
    let answer = helper.post("/people/code", &[("dn", BOB)]);
    assert_eq!(answer.status, 303, "{}", answer.body);
    let page = helper.get(&format!("/people/one?dn={}", escape(BOB))).body;
    let code = page.split_once("id=\"secret\">").and_then(|(_, rest)| rest.split('<').next());
    let code = code.unwrap_or_else(|| panic!("no code: {page}")).to_owned();
    assert_eq!(code.len(), 11, "{code}");
    assert!(!helper.get(&format!("/people/one?dn={}", escape(BOB))).body.contains(&code), "shown once");
    code
}

fn reset(user: &mut Http, name: &str, code: &str, new: &str) -> Answer {
    user.get("/reset");
    user.post("/reset", &[("name", name), ("code", code), ("new", new), ("again", new)])
}

/// A page without what differs each time.
fn without_token(answer: &Answer, name: &str) -> String {
    let (before, rest) = answer.body.split_once("name=\"csrf\" value=\"").unwrap();
    format!("{before}{}", &rest[64..]).replace(&format!("value=\"{name}\""), "")
}

fn logs_in(fixture: &Fixture, password: &str) -> bool {
    Http::new(fixture.http).log_in("bob", password).status == 303
}

#[test]
fn a_code_sets_a_forgotten_password_once() {
    let fixture = start_under("admin-password-reset code lifetime=10m\nlogfile @DATA@/log", RULES);
    let mut admin = Http::new(fixture.http);
    admin.log_in("admin", "secret");
    let done = admin.post("/import", &[("format", "ldif"), ("text", POLICY), ("step", "run")]);
    assert_eq!(done.status, 200, "{}", done.body);
    let mut helper = Http::new(fixture.http);
    helper.log_in("ann", "annpass");
    let code = code_of(&mut helper);
    let mut user = Http::new(fixture.http);
    assert!(user.get("/login").body.contains("href=\"/reset\""));

    // Without the form's token, and with passwords that differ, nothing is counted.
    user.get("/reset");
    user.csrf = "0".repeat(64);
    assert_eq!(user.post("/reset", &[("name", "bob"), ("code", &code)]).status, 403);
    user.get("/reset");
    let fields =
        [("name", "bob"), ("code", code.as_str()), ("new", "one long word"), ("again", "another word")];
    assert!(user.post("/reset", &fields).body.contains("The two new passwords differ."));

    // The same answer for nobody, for somebody without a code, and for a wrong code.
    let nobody = reset(&mut user, "nobody", &code, "one long word");
    let without = reset(&mut user, "ann", &code, "one long word");
    let wrong = reset(&mut user, "bob", "AAAAA-AAAAA", "one long word");
    for (answer, name) in [(&nobody, "nobody"), (&without, "ann"), (&wrong, "bob")] {
        assert_eq!(answer.status, 401, "{name}");
        assert!(answer.body.contains(WRONG), "{}", answer.body);
        assert_eq!(without_token(answer, name), without_token(&nobody, "nobody"), "{name}");
    }

    // The policy holds; then the same code sets a longer one, written as it was read out.
    let short = reset(&mut user, "bob", &code, "short");
    assert_eq!(short.status, 422, "{}", short.body);
    assert!(short.body.contains("A rule of this directory forbids this value."), "{}", short.body);
    // The helper has gone home.
    helper.get("/about");
    assert_eq!(helper.post("/logout", &[]).status, 303);
    let spoken = code.to_lowercase().replace('-', " ");
    let answer = reset(&mut user, "bob", &spoken, "one long word");
    assert!(answer.status == 200 && answer.body.contains("Your password is set"), "{}", answer.body);
    assert!(logs_in(&fixture, "one long word"));
    let again = reset(&mut user, "bob", &code, "another long word");
    assert!(again.status == 401 && again.body.contains(WRONG), "{}", again.body);
    assert!(!logs_in(&fixture, "another long word"));

    // The log has who helped whom, and no code or password.
    for part in [
        format!("a code to set the password of \"{BOB}\" was made by \"{ANN}\""),
        "a wrong code or name to set a password, from IP=127.0.0.1".to_owned(),
    ] {
        fixture.log_with(&part);
    }
    let log = fixture.log_with(&format!(
        "the password of \"{BOB}\" was set with a code made by \"{ANN}\", from IP=127.0.0.1"
    ));
    assert!(!log.contains(&code) && !log.contains(&code.replace('-', "")) && !log.contains("one long word"));

    // One more wrong try, and this address has to wait, also with a code that is right.
    helper.log_in("ann", "annpass");
    let code = code_of(&mut helper);
    assert_eq!(reset(&mut user, "nobody", "x", "one long word").status, 401);
    let late = reset(&mut user, "bob", &code, "a third long word");
    assert_eq!(late.status, 429, "{}", late.body);
    assert!(late.body.contains("Try again in 15 minutes."), "{}", late.body);
    assert!(!logs_in(&fixture, "a third long word"));
    assert!(fixture.server.stop());
}

#[test]
fn codes_are_off_and_for_helpers_alone() {
    // Nothing of it is there without the directive.
    let fixture = start("");
    let mut http = Http::new(fixture.http);
    assert!(!http.get("/login").body.contains("/reset"));
    assert_eq!(http.get("/reset").header("location"), "/login?next=%2Freset");
    assert_eq!(http.post("/reset", &[("name", "bob")]).header("location"), "/login");
    http.log_in("admin", "secret");
    assert!(!http.get(&format!("/people/one?dn={}", escape(BOB))).body.contains("Make a code"));
    let answer = http.post("/people/code", &[("dn", BOB)]);
    assert!(answer.status == 400 && answer.body.contains("Codes are off"), "{}", answer.body);

    // A change of the configuration allows it at once, and ends it with what is open.
    let change = |http: &mut Http, value: &str| {
        let body = http.get("/entry/edit?dn=cn%3Dconfig&add=olcLarixAdminPasswordReset").body;
        let csn = body.split_once("name=\"csn\" value=\"").and_then(|(_, rest)| rest.split('"').next());
        let fields = [
            ("dn", "cn=config"),
            ("csn", csn.unwrap_or("")),
            ("v:olcLarixAdminPasswordReset", value),
            ("step", "save"),
        ];
        let answer = http.post("/entry/edit", &fields);
        assert_eq!(answer.status, 303, "{}", answer.body);
    };
    change(&mut http, "code");
    let code = code_of(&mut http);
    // Ann has no right to Bob's password.
    let mut ann = Http::new(fixture.http);
    ann.log_in("ann", "annpass");
    ann.get(&format!("/people/one?dn={}", escape(BOB)));
    for (dn, why) in [
        (BOB, "You may not set the password of bob"),
        ("uid=none,dc=example,dc=com", "You may not set the password of none"),
        ("nonsense", "is no DN"),
    ] {
        let answer = ann.post("/people/code", &[("dn", dn)]);
        assert!(answer.status == 400 && answer.body.contains(why), "{dn}: {}", answer.body);
        ann.get("/about");
    }
    http.get("/about");
    change(&mut http, "off");
    assert_eq!(http.get("/reset").status, 404);
    http.get("/about");
    let late = http.post("/reset", &[("name", "bob"), ("code", &code), ("new", "a"), ("again", "a")]);
    assert_eq!(late.status, 404);
    assert!(fixture.server.stop());
}
