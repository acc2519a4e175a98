//! Codes as passwords: what an app shows lets somebody in once.

use larix_testkit::{Kind, Server, Site, packages};
use larix_tests::one_time;
use larix_tests::raw::{Raw, bind};

const SUFFIX: &str = "dc=example,dc=com";

fn site(overlay: &str) -> Site {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "moduleload pw-totp\ndatabase mdb\nsuffix {SUFFIX}\nrootdn cn=root,{SUFFIX}\nrootpw secret\ndirectory @DATA@\n{overlay}\n"
        ),
    );
    let ann = "{TOTP1}GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
    site.load(&format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: cn=ann,{SUFFIX}\nobjectClass: person\ncn: ann\nsn: a\nuserPassword: {ann}\n\n\
         dn: cn=bob,{SUFFIX}\nobjectClass: person\ncn: bob\nsn: b\nuserPassword: {{SSHA}}5en6G6MezRroT3XKqkdPOmY/BfQ=\n\
         userPassword: {{TOTP256ANDPW}}GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ|bobpw\n\n\
         dn: cn=cat,{SUFFIX}\nobjectClass: person\ncn: cat\nsn: c\nuserPassword: catpw\nuserPassword: {ann}\n\n\
         dn: cn=root,{SUFFIX}\nobjectClass: person\ncn: root\nsn: r\nuserPassword: {ann}\n"
    ));
    site
}

/// What an app shows now.
pub(crate) fn code(hash: &str) -> String {
    one_time::code(hash, b"12345678901234567890", one_time::step_now())
}

fn ask(server: &Server, name: &str, password: &str) -> u32 {
    let mut connection = Raw::connect(server.address).unwrap();
    connection.ask(&bind(1, &format!("cn={name},{SUFFIX}"), password)).unwrap().code
}

#[test]
fn codes_let_in_once() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    let site = site("overlay totp");
    let server = site.start().unwrap();
    let (sha1, sha256) = (code("-sha1"), code("-sha256"));
    for (name, password, expected) in [
        ("ann", "", 53),
        ("ann", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", 49),
        ("ann", &format!("x{sha1}"), 49),
        ("ann", &sha1, 0),
        ("ann", &sha1, 49),
        ("bob", &sha256, 49),
        ("bob", &format!("wrong{sha256}"), 49),
        ("bob", "bobpw", 49),
        ("bob", &format!("bobpw{sha256}"), 0),
        ("bob", &format!("bobpw{sha256}"), 49),
        // Either value lets her in; a login by the other uses the time step up, too.
        ("cat", "catpw", 0),
        ("cat", &sha1, 49),
        ("cat", "catpw", 0),
        ("root", &sha1, 49),
        ("root", "secret", 0),
        ("nobody", &sha1, 49),
    ] {
        assert_eq!(ask(&server, name, password), expected, "{name} {password}");
    }
}

#[test]
fn without_the_overlay_no_code_is_taken() {
    if packages::OPENSSL.is_lacking() {
        return;
    }
    for overlay in ["", "overlay ppolicy", "overlay otp"] {
        let site = site(overlay);
        let server = site.start().unwrap();
        assert_eq!(ask(&server, "ann", &code("-sha1")), 49, "{overlay}");
        assert_eq!(ask(&server, "cat", "catpw"), 0, "{overlay}");
    }
}
