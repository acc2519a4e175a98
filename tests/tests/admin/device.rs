//! A second factor from the admin page: shown once, stored when a code proves it, and asked for at the next login.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use larix_testkit::packages;
use larix_tests::raw::{Raw, bind};

use super::http::{Answer, Fixture, Http, escape, start_under};

const ANN: &str = "uid=ann,ou=people,dc=example,dc=com";
const BOB: &str = "uid=bob,ou=people,dc=example,dc=com";
/// Ann may enrol herself, and nobody else.
const RULES: &str = "overlay otp\n\
    access to attrs=oathSecret by dn.exact=cn=nobody,dc=example,dc=com read by * none\n\
    access to attrs=objectClass,oathTOTPToken by self write by users read\n\
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

/// The time step of now.
#[expect(clippy::disallowed_methods, reason = "codes are of the present time")]
pub(crate) fn step_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 30
}

/// The code of a time step, by another program's HMAC.
pub(crate) fn code(secret: &str, step: u64) -> String {
    let (mut bits, mut held, mut key) = (0_u64, 0, String::new());
    for letter in secret.bytes() {
        let value = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|known| *known == letter).unwrap();
        bits = (bits << 5 | value as u64) & 0xfff;
        held += 5;
        if held >= 8 {
            held -= 8;
            key += &format!("{:02x}", bits >> held & 0xff);
        }
    }
    let mut child = Command::new("openssl")
        .args(["dgst", "-sha1", "-mac", "HMAC", "-macopt", &format!("hexkey:{key}"), "-binary"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&step.to_be_bytes()).unwrap();
    let mac = child.wait_with_output().unwrap().stdout;
    let at = usize::from(mac.last().unwrap() & 0xf);
    let number = u32::from_be_bytes(mac[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
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
    let log = std::fs::read_to_string(fixture.site.path().join("data/log")).unwrap();
    assert!(log.contains("has a second factor from") && !log.contains(&secret), "{log}");

    // And away again.
    let gone = http.post("/people/device", &[("dn", ANN), ("step", "remove")]);
    assert_eq!(gone.status, 303, "{}", gone.body);
    assert!(logs_in(&fixture, ANN, "annpass"));
    let token = http.get(&format!("/browse?dn={}", escape("cn=ann phone,ou=tokens,dc=example,dc=com")));
    assert!(!token.body.contains("oathTOTPLastTimeStep"), "{}", token.body);
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
