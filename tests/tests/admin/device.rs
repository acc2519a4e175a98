//! A second factor from the admin page: shown once, stored when a code proves it, and asked for at the next login.

use larix_testkit::packages;
use larix_tests::one_time::{self, step_now};
use larix_tests::raw::{Raw, bind};

use super::http::{Answer, Fixture, Http, escape, start_under};

const ANN: &str = "uid=ann,ou=people,dc=example,dc=com";
const BOB: &str = "uid=bob,ou=people,dc=example,dc=com";
/// Ann may enrol herself, and nobody else.
const RULES: &str = "overlay otp\n\
    access to attrs=oathSecret by dn.exact=cn=nobody,dc=example,dc=com read by users =cw by * none\n\
    access to attrs=objectClass,oathTOTPToken,oathHOTPToken by self write by users read\n\
    access to dn.subtree=ou=tokens,dc=example,dc=com by users write\n\
    access to dn.base=dc=example,dc=com attrs=children by users write by * read\n";

/// Opens the page first, for its token.
fn page(http: &mut Http, dn: &str) -> Answer {
    http.get(&format!("/people/device?dn={}", escape(dn)))
}

fn show(http: &mut Http, dn: &str, name: &str) -> Answer {
    page(http, dn);
    http.post("/people/device", &[("dn", dn), ("step", "show"), ("name", name)])
}

fn confirm(http: &mut Http, dn: &str, code: &str) -> Answer {
    http.post("/people/device", &[("dn", dn), ("step", "confirm"), ("code", code)])
}

fn secret_of(answer: &Answer) -> String {
    let secret = answer.body.split_once("id=\"secret\">").and_then(|(_, rest)| rest.split('<').next());
    secret.unwrap_or_else(|| panic!("no secret: {}", answer.body)).to_owned()
}

/// The code of a counter or time step.
pub(crate) fn code(secret: &str, moving: u64) -> String {
    one_time::code("-sha1", &one_time::key_of(secret), moving)
}

fn logs_in(fixture: &Fixture, dn: &str, password: &str) -> bool {
    let mut connection = Raw::connect(fixture.server.address).unwrap();
    connection.ask(&bind(1, dn, password)).unwrap().code == 0
}

#[test]
fn a_device_is_active_when_its_code_was_right() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    let fixture = start_under("logfile @DATA@/log", RULES);
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("ann", "annpass").status, 303);
    assert!(http.get("/account").body.contains("/people/device?dn="));
    assert!(page(&mut http, ANN).body.contains("There is no device now"));

    let shown = show(&mut http, ANN, "phone");
    assert_eq!(shown.status, 200, "{}", shown.body);
    assert!(shown.body.contains("<svg class=\"qr\"") && shown.body.contains("nothing is stored yet"));
    let secret = secret_of(&shown);
    assert_eq!(secret.len(), 32, "{secret}");
    // It is nowhere again, and the password alone is enough.
    assert!(!page(&mut http, ANN).body.contains(&secret));
    assert!(logs_in(&fixture, ANN, "annpass"));

    let wrong = confirm(&mut http, ANN, "12345");
    assert_eq!(wrong.status, 422, "{}", wrong.body);
    assert!(wrong.body.contains("This is not the code") && !wrong.body.contains(&secret));
    assert!(logs_in(&fixture, ANN, "annpass"), "nothing was stored");

    let step = step_now();
    let done = confirm(&mut http, ANN, &code(&secret, step));
    assert_eq!(done.status, 303, "{}", done.body);
    let person = http.get(&format!("/people/one?dn={}", escape(ANN))).body;
    assert!(person.contains("a code behind it from now on"), "{person}");
    assert!(page(&mut http, ANN).body.contains("ann phone"));
    assert!(!logs_in(&fixture, ANN, "annpass"), "a code is needed");
    assert!(!logs_in(&fixture, ANN, &format!("annpass{}", code(&secret, step))), "used up");
    assert!(logs_in(&fixture, ANN, &format!("annpass{}", code(&secret, step + 1))));
    let log = fixture.log_with("has a second factor from");
    assert!(!log.contains(&secret), "{log}");

    // And away again.
    let gone = http.post("/people/device", &[("dn", ANN), ("step", "remove")]);
    assert_eq!(gone.status, 303, "{}", gone.body);
    assert!(logs_in(&fixture, ANN, "annpass"));
    let token = http.get(&format!("/browse?dn={}", escape("cn=ann phone,ou=tokens,dc=example,dc=com")));
    assert!(!token.body.contains("oathTOTPLastTimeStep"), "{}", token.body);
    assert!(fixture.server.stop());
}

#[test]
fn a_device_that_counts_is_enrolled_and_brought_back_in_step() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    let fixture = start_under("logfile @DATA@/log", RULES);
    let mut http = Http::new(fixture.http);
    assert_eq!(http.log_in("ann", "annpass").status, 303);
    assert!(page(&mut http, ANN).body.contains("counted (HOTP)"));
    let form = [("dn", ANN), ("step", "show"), ("name", "key fob"), ("parameters", "oathHOTPToken")];
    let shown = http.post("/people/device", &form);
    assert_eq!(shown.status, 200, "{}", shown.body);
    let secret = secret_of(&shown);
    let wrong = confirm(&mut http, ANN, &code(&secret, 11));
    assert!(wrong.status == 422 && wrong.body.contains("too many codes already"), "{}", wrong.body);
    assert!(logs_in(&fixture, ANN, "annpass"), "nothing was stored");
    let done = confirm(&mut http, ANN, &code(&secret, 1));
    assert_eq!(done.status, 303, "{}", done.body);
    assert!(page(&mut http, ANN).body.contains("with codes counted (HOTP)"));
    let with = |counter| format!("annpass{}", code(&secret, counter));
    for (password, expected) in [
        ("annpass".to_owned(), false),
        (with(1), false),
        (with(0), false),
        (with(12), true),
        (with(300), false),
    ] {
        assert_eq!(logs_in(&fixture, ANN, &password), expected, "{password}");
    }

    let resynchronise = |http: &mut Http, first: &str, second: &str| {
        let form = [
            ("dn", ANN),
            ("kind", "oathHOTPToken"),
            ("step", "resynchronise"),
            ("first", first),
            ("second", second),
        ];
        http.post("/people/device", &form)
    };
    for (first, second) in [(300, 302), (301, 300), (12, 13), (1013, 1014)] {
        let answer = resynchronise(&mut http, &code(&secret, first), &code(&secret, second));
        assert!(answer.body.contains("These are not two codes"), "{first} {second}: {}", answer.body);
        assert!(!answer.body.contains(&secret));
    }
    assert!(!logs_in(&fixture, ANN, &with(302)));
    let answer = resynchronise(&mut http, &code(&secret, 300), &format!(" {}", code(&secret, 301)));
    assert_eq!(answer.status, 303, "{}", answer.body);
    assert!(page(&mut http, ANN).body.contains("is in step again"));
    assert!(!logs_in(&fixture, ANN, &with(301)), "used up");
    assert!(logs_in(&fixture, ANN, &with(302)));
    let log = fixture.log_with("back in step");
    assert!(!log.contains(&secret), "{log}");

    // A second one beside it, which takes its codes from the time.
    let shown = show(&mut http, ANN, "phone");
    let other = secret_of(&shown);
    assert_eq!(confirm(&mut http, ANN, &code(&other, step_now())).status, 303);
    let both = page(&mut http, ANN).body;
    assert!(both.contains("ann key fob") && both.contains("ann phone"), "{both}");
    assert!(logs_in(&fixture, ANN, &with(303)));
    assert!(logs_in(&fixture, ANN, &format!("annpass{}", code(&other, step_now() + 1))));
    for (kind, password, expected) in
        [("oathHOTPToken", with(304), false), ("oathTOTPToken", "annpass".to_owned(), true)]
    {
        let gone = http.post("/people/device", &[("dn", ANN), ("kind", kind), ("step", "remove")]);
        assert_eq!(gone.status, 303, "{}", gone.body);
        assert_eq!(logs_in(&fixture, ANN, &password), expected, "{kind}");
    }
    assert!(fixture.server.stop());
}

#[test]
fn others_see_no_secret() {
    let fixture = start_under("", RULES);
    let mut http = Http::new(fixture.http);
    http.log_in("ann", "annpass");
    for answer in [page(&mut http, BOB), show(&mut http, BOB, "phone"), confirm(&mut http, BOB, "123456")] {
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert!(answer.body.contains("You may not change the second factor"), "{}", answer.body);
        assert!(!answer.body.contains("id=\"secret\""));
    }
    page(&mut http, ANN);
    let answer = http.post("/people/device", &[("dn", BOB), ("step", "remove")]);
    assert_eq!(answer.status, 400, "{}", answer.body);
    // A secret that was shown for one account proves nothing for another, and after too many codes nothing at all.
    show(&mut http, ANN, "phone");
    for tries in 1..=6 {
        let answer = confirm(&mut http, ANN, "12345");
        let expected = if tries < 5 {
            "This is not the code"
        } else if tries == 5 {
            "There is no device now"
        } else {
            "Nothing is stored"
        };
        assert!(answer.body.contains(expected), "{tries}: {}", answer.body);
    }
    assert!(fixture.server.stop());
}

#[test]
fn without_the_overlay_there_is_no_page() {
    let fixture = start_under("", "");
    let mut http = Http::new(fixture.http);
    http.log_in("admin", "secret");
    assert_eq!(page(&mut http, ANN).status, 404);
    assert!(!http.get(&format!("/people/one?dn={}", escape(ANN))).body.contains("/people/device"));
    assert!(fixture.server.stop());
}
