//! Hashes and times that go with a password, under a clock that stands still.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::overlay::{PasswordWork, Purpose};
use larix_engine::password::{Hasher, Scheme};
use larix_engine::time::{Clock as _, SeededRandom};
use larix_store::memory::MemoryStore;
use zeroize::Zeroizing;

use super::kerberos::{stash, version_of};
use super::{DESCRIPTOR, nt_hash};
use crate::ppolicy;
use crate::testing::{
    Fixture, ROOT, SUFFIX, build, describe, operation, records, ruled_with, schema, settings_of,
};

const USER: &str = "cn=user,dc=example,dc=com";
const SAMBA: &str = "objectClass: sambaSamAccount\nuid: user\nsambaSID: S-1-5-21-1-2-3-1000";
/// The clock's day.
const TODAY: i64 = 1_767_225_600 / 86_400;

/// A directory with one user, whose entry has these lines.
fn fixture(
    overlays: &[(&'static larix_engine::overlay::Descriptor, &str)],
    lines: &str,
) -> Fixture<MemoryStore> {
    fixture_with(larix_schema::bundled("samba").unwrap(), overlays, lines)
}

fn fixture_with(
    definitions: &str,
    overlays: &[(&'static larix_engine::overlay::Descriptor, &str)],
    lines: &str,
) -> Fixture<MemoryStore> {
    let rules = ["to attrs=userPassword by self write by * auth", "to * by * read"];
    let mut fixture = ruled_with(definitions, overlays, &rules);
    fixture.bind(ROOT);
    fixture.apply(&format!(
        "dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n\n\
         dn: {USER}\nobjectClass: inetOrgPerson\ncn: user\nsn: u\n{lines}\n"
    ));
    fixture
}

/// What the user has: the hash, and the times from now on.
fn state(fixture: &Fixture<MemoryStore>) -> String {
    let relative = |name: &str, from: i64| {
        let value = fixture.value(USER, name)?;
        Some(format!(" {name}{:+}", value.parse::<i64>().unwrap() - from))
    };
    let now = fixture.clock.now().seconds();
    let mut text = fixture.value(USER, "sambaNTPassword").unwrap_or_default();
    for (name, from) in [
        ("sambaPwdLastSet", now),
        ("sambaPwdMustChange", now),
        ("sambaPwdCanChange", now),
        ("shadowLastChange", TODAY),
    ] {
        text += &relative(name, from).unwrap_or_default();
    }
    text
}

fn modify(lines: &str) -> String {
    format!("dn: {USER}\nchangetype: modify\n{lines}\n")
}

/// A password modify request as the server makes it: the value's hash in the change, the password beside it.
fn password_modify(fixture: &Fixture<MemoryStore>, password: &[u8]) -> String {
    let work = PasswordWork::of(Purpose::PasswordModify, None, Some(Zeroizing::new(password.to_vec())));
    let hash = work.hash(&Hasher::new(Scheme::SSHA), password, &SeededRandom::new(1)).unwrap();
    let hash = String::from_utf8(hash.to_vec()).unwrap();
    let record = records(&modify(&format!("replace: userPassword\nuserPassword: {hash}"))).remove(0);
    let (operation, controls) = operation(record);
    let mut request = fixture.request(operation, &controls);
    request.passwords = Some(Arc::new(work));
    describe(&fixture.submit(request))
}

#[test]
fn hashes_are_those_of_windows() {
    let long = "ab".repeat(200);
    for (password, expected) in [
        ("", "31d6cfe0d16ae931b73c59d7e0c089c0"),
        ("password", "8846f7eaee8fb117ad06bdd830b7586c"),
        ("SecREt01", "cd06ca7c7e10c99b1d33b7485a2ed808"),
        // A character above U+FFFF is two units.
        ("p\u{e4}ss\u{1f511}", "01c04b94d4eaa1b54b5c1701a3bad5b8"),
        (&long, "1f40a5ce8a055002d44d072ca164e828"),
    ] {
        assert_eq!(nt_hash(password.as_bytes()).unwrap(), expected, "{password}");
    }
}

#[test]
fn every_way_to_change_a_password() {
    let new = "89963f5042e5041a59c249282387a622 sambaPwdLastSet+0 sambaPwdMustChange+60 sambaPwdCanChange+5 shadowLastChange+0";
    let other = "1d6569543d9c01d25a9cf7f841d1b258 sambaPwdLastSet+0 sambaPwdMustChange+60 sambaPwdCanChange+5 shadowLastChange+0";
    let lines = format!("{SAMBA}\nobjectClass: shadowAccount\nuserPassword: new");
    let hashing = (&ppolicy::DESCRIPTOR, "ppolicy_hash_cleartext on");
    let plain = (&DESCRIPTOR, "smbk5pwd-must-change 60\nsmbk5pwd-can-change 5");
    for overlays in [&[plain][..], &[plain, hashing], &[hashing, plain]] {
        let fixture = fixture(overlays, &lines);
        assert_eq!(state(&fixture), new, "an add");
        for (change, expected) in [
            ("replace: userPassword\nuserPassword: other", other),
            ("delete: userPassword\n-\nadd: userPassword\nuserPassword: {CLEARTEXT}new", new),
            ("add: userPassword\nuserPassword: other\n-\nreplace: sn\nsn: x", other),
        ] {
            fixture.clock.advance_micros(7_000_000);
            fixture.apply(&modify(change));
            assert_eq!(state(&fixture), expected, "{change}");
        }
        fixture.clock.advance_micros(7_000_000);
        assert_eq!(password_modify(&fixture, b"new"), "0");
        assert_eq!(state(&fixture), new);
    }
}

#[test]
fn what_is_left_alone() {
    let fixture = fixture(&[(&DESCRIPTOR, "")], &format!("{SAMBA}\nuserPassword: new"));
    let new = state(&fixture);
    assert_eq!(new, "89963f5042e5041a59c249282387a622 sambaPwdLastSet+0");
    fixture.clock.advance_micros(7_000_000);
    let old = "89963f5042e5041a59c249282387a622 sambaPwdLastSet-7";
    for change in [
        "replace: sn\nsn: y",
        "delete: userPassword",
        // Whoever sends a hash alone has not told the password.
        "replace: userPassword\nuserPassword: {SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
    ] {
        fixture.apply(&modify(change));
        assert_eq!(state(&fixture), old, "{change}");
    }
    // What the change itself says holds.
    let both = "replace: userPassword\nuserPassword: other\n-\nreplace: sambaPwdLastSet\nsambaPwdLastSet: 0";
    fixture.apply(&modify(both));
    assert_eq!(fixture.value(USER, "sambaPwdLastSet").unwrap(), "0");
    assert_eq!(fixture.value(USER, "sambaNTPassword").unwrap(), "1d6569543d9c01d25a9cf7f841d1b258");
}

#[test]
fn the_classes_after_the_change_count() {
    let fixture = fixture(&[(&DESCRIPTOR, "")], "userPassword: new");
    fixture.apply(&modify("replace: userPassword\nuserPassword: new"));
    assert_eq!(state(&fixture), "", "neither Samba's nor of shadow(5)");
    let lines = "add: objectClass\nobjectClass: sambaSamAccount\nobjectClass: shadowAccount\n-\nadd: uid\nuid: user\n-\n\
                 add: sambaSID\nsambaSID: S-1-5-21-1-2-3-1000\n-\nreplace: userPassword\nuserPassword: other";
    fixture.apply(&modify(lines));
    assert_eq!(state(&fixture), "1d6569543d9c01d25a9cf7f841d1b258 sambaPwdLastSet+0 shadowLastChange+0");
    // A hash says that the password is another one, though not which.
    fixture.apply(&modify("replace: shadowLastChange\nshadowLastChange: 1"));
    fixture.apply(&modify("replace: userPassword\nuserPassword: {SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ="));
    assert_eq!(fixture.value(USER, "shadowLastChange").unwrap(), TODAY.to_string());
    let lines = "delete: objectClass\nobjectClass: shadowAccount\n-\ndelete: shadowLastChange\n-\n\
                 replace: userPassword\nuserPassword: new";
    fixture.apply(&modify(lines));
    assert_eq!(state(&fixture), "89963f5042e5041a59c249282387a622 sambaPwdLastSet+0");
}

#[test]
fn modules_by_name() {
    let lines = format!("{SAMBA}\nobjectClass: shadowAccount\nuserPassword: new");
    for (settings, expected) in [
        ("smbk5pwd-enable shadow", " shadowLastChange+0"),
        ("smbk5pwd-enable samba", "89963f5042e5041a59c249282387a622 sambaPwdLastSet+0"),
        (
            "smbk5pwd-enable samba shadow",
            "89963f5042e5041a59c249282387a622 sambaPwdLastSet+0 shadowLastChange+0",
        ),
    ] {
        assert_eq!(state(&fixture(&[(&DESCRIPTOR, settings)], &lines)), expected, "{settings}");
    }
    let schema = schema("");
    let overlay = build(&DESCRIPTOR, &schema, "smbk5pwd-enable shadow\nsmbk5pwd-must-change 60").unwrap();
    let notes = overlay.notes(&schema);
    assert_eq!(notes, ["smbk5pwd-must-change has no effect: `smbk5pwd-enable` leaves samba out"]);
}

#[test]
fn users_need_no_right_to_the_hash_and_get_none() {
    let mut fixture = fixture(&[(&DESCRIPTOR, "")], &format!("{SAMBA}\nuserPassword: new"));
    fixture.bind(USER);
    assert_eq!(fixture.change(&modify("replace: sambaNTPassword\nsambaNTPassword: x")), "50");
    fixture.apply(&modify("replace: userPassword\nuserPassword: other"));
    assert_eq!(state(&fixture), "1d6569543d9c01d25a9cf7f841d1b258 sambaPwdLastSet+0");
    // Nobody else's password.
    fixture.bind(&format!("cn=x,{SUFFIX}"));
    assert_eq!(fixture.change(&modify("replace: userPassword\nuserPassword: new")), "50");
    assert_eq!(state(&fixture), "1d6569543d9c01d25a9cf7f841d1b258 sambaPwdLastSet+0");
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let fixture = fixture(&[(&DESCRIPTOR, "")], SAMBA);
    let answer = password_modify(&fixture, b"\xff\xfe");
    assert!(answer.starts_with("19 the password is not UTF-8"), "{answer}");
    assert_eq!(state(&fixture), "");
}

#[test]
fn wrong_settings_name_the_mend() {
    let full = schema(larix_schema::bundled("samba").unwrap());
    for (lines, expected) in [
        ("smbk5pwd-enable krb5", "<krbPrincipalKey>: attribute type undefined; write `schema kerberos`"),
        (
            "smbk5pwd-krb5-enctypes arcfour-hmac",
            "\"arcfour-hmac\": Larix makes no keys of this encryption type",
        ),
        ("smbk5pwd-enable samba kerberos", "\"kerberos\" is no module of smbk5pwd"),
        ("smbk5pwd-must-change soon", "smbk5pwd-must-change \"soon\": not a number; write seconds"),
        ("smbk5pwd-can-change -1", "smbk5pwd-can-change \"-1\": not a number; write seconds"),
    ] {
        let error = build(&DESCRIPTOR, &full, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{lines}: {error}");
    }
    let error = build(&DESCRIPTOR, &schema(""), "").map(|_| ()).unwrap_err();
    assert!(error.awaits_schema && error.to_string().contains("write `schema samba` before it"), "{error}");
    // One value for each module, as slapd shows them.
    assert_eq!(
        settings_of(&DESCRIPTOR, "smbk5pwd-enable samba shadow").values("olcSmbK5PwdEnable").count(),
        2
    );
}

/// A stash on disk, and the lines that name it.
fn with_stash() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stash");
    std::fs::write(&path, stash(&[(&["K", "M", "EXAMPLE.COM"], 1, 18, &[7; 32])])).unwrap();
    let lines = format!("smbk5pwd-enable krb5\nsmbk5pwd-krb5-stash {}", path.display());
    (folder, lines)
}

/// What the KDC is told about the user: the version of its keys, how many sets of them there are, and the rest from now on.
fn principal(fixture: &Fixture<MemoryStore>) -> String {
    let entry = fixture.entry(USER).unwrap();
    let keys = entry.values(fixture.schema.attribute_type("krbPrincipalKey").unwrap().id).to_vec();
    let versions: Vec<_> = keys.iter().map(|set| version_of(set).unwrap_or(0)).collect();
    let now = larix_engine::time::Timestamp::from_seconds(fixture.clock.now().seconds()).generalized();
    let mut text = format!("{versions:?}");
    for name in ["krbLastPwdChange", "krbPasswordExpiration", "krbTicketFlags", "krbLoginFailedCount"] {
        if let Some(value) = fixture.value(USER, name) {
            text += &format!(" {}", if value == now { "now" } else { &value });
        }
    }
    text
}

#[test]
fn keys_of_a_principal_change_with_the_password() {
    let (_folder, lines) = with_stash();
    let account = "objectClass: krbPrincipalAux\nobjectClass: krbTicketPolicyAux\nkrbPrincipalName: user@EXAMPLE.COM\nuserPassword: new";
    let hashing = (&ppolicy::DESCRIPTOR, "ppolicy_hash_cleartext on");
    let plain = (&DESCRIPTOR, lines.as_str());
    for overlays in [&[plain][..], &[plain, hashing], &[hashing, plain]] {
        let fixture = fixture_with(larix_schema::bundled("kerberos").unwrap(), overlays, account);
        assert_eq!(principal(&fixture), "[1] now", "an add");
        let keys = |fixture: &Fixture<MemoryStore>| {
            fixture
                .entry(USER)
                .unwrap()
                .values(fixture.schema.attribute_type("krbPrincipalKey").unwrap().id)
                .to_vec()
        };
        let before = keys(&fixture);
        fixture.clock.advance_micros(7_000_000);
        assert_eq!(password_modify(&fixture, b"other"), "0");
        assert_eq!(principal(&fixture), "[2] now");
        assert_ne!(keys(&fixture), before);
        let policy = format!("cn=policy,{SUFFIX}");
        fixture
            .apply(&format!("dn: {policy}\nobjectClass: krbPwdPolicy\ncn: policy\nkrbMaxPwdLife: 86400\n"));
        let flags = "replace: krbTicketFlags\nkrbTicketFlags: 640\n-\nreplace: krbLoginFailedCount\nkrbLoginFailedCount: 3\n-\n\
                     replace: krbPasswordExpiration\nkrbPasswordExpiration: 20200101000000Z";
        let expired = "20200101000000Z 640 3";
        for (change, expected) in [
            (flags.to_owned(), format!("[2] now {expired}")),
            // What is expired is so no longer, and nothing says until when.
            ("replace: userPassword\nuserPassword: third".to_owned(), "[3] now 128 0".to_owned()),
            (
                format!(
                    "add: krbPwdPolicyReference\nkrbPwdPolicyReference: {policy}\n-\nreplace: userPassword\nuserPassword: x"
                ),
                "[4] now 20260102000021Z 128 0".to_owned(),
            ),
            // A hash does not tell the password.
            (
                "replace: userPassword\nuserPassword: {SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=".to_owned(),
                "[4] 20260101000021Z 20260102000021Z 128 0".to_owned(),
            ),
            ("delete: userPassword".to_owned(), "[4] 20260101000021Z 20260102000021Z 128 0".to_owned()),
            // kadmin keeps old keys where it is told to.
            (
                "add: krbPrincipalKey\nkrbPrincipalKey:: MBSgAwIBAaEDAgEBogMCAQmkAzABAA==".to_owned(),
                "[4, 9] 20260101000021Z 20260102000021Z 128 0".to_owned(),
            ),
            ("add: userPassword\nuserPassword: y".to_owned(), "[10] now 20260102000049Z 128 0".to_owned()),
            // What the request says holds.
            (
                "replace: userPassword\nuserPassword: z\n-\nreplace: krbPrincipalKey".to_owned(),
                "[] now 20260102000056Z 128 0".to_owned(),
            ),
        ] {
            fixture.clock.advance_micros(if change.starts_with("replace: krbT") { 0 } else { 7_000_000 });
            fixture.apply(&modify(&change));
            assert_eq!(principal(&fixture), expected, "{change}");
        }
    }
}

#[test]
fn only_principals_of_the_realm_have_keys() {
    let (_folder, lines) = with_stash();
    let overlays = [(&DESCRIPTOR, lines.as_str())];
    for (account, expected) in [
        ("userPassword: new", "[]"),
        ("objectClass: krbPrincipalAux\nuserPassword: new", "[]"),
        ("objectClass: krbPrincipalAux\nkrbPrincipalName: user@OTHER.ORG\nuserPassword: new", "[]"),
        ("objectClass: krbPrincipalAux\nkrbPrincipalName: user\nuserPassword: new", "[]"),
        (
            "objectClass: krbPrincipalAux\nkrbPrincipalName: user@OTHER.ORG\nkrbPrincipalName: u@EXAMPLE.COM\nuserPassword: new",
            "[1] now",
        ),
    ] {
        assert_eq!(
            principal(&fixture_with(larix_schema::bundled("kerberos").unwrap(), &overlays, account)),
            expected,
            "{account}"
        );
    }
}

#[test]
fn a_stash_that_cannot_be_used_is_named() {
    let (folder, _) = with_stash();
    let schema = schema(larix_schema::bundled("kerberos").unwrap());
    let path = folder.path().display();
    std::fs::write(folder.path().join("other"), "x").unwrap();
    for (lines, expected) in [
        (
            "smbk5pwd-enable krb5".to_owned(),
            "where the stash of the KDC's master key is, is not said".to_owned(),
        ),
        (
            format!("smbk5pwd-enable krb5\nsmbk5pwd-krb5-stash {path}/gone"),
            format!("smbk5pwd-krb5-stash \"{path}/gone\": No such file"),
        ),
        (
            format!("smbk5pwd-enable krb5\nsmbk5pwd-krb5-stash {path}/other"),
            format!("smbk5pwd-krb5-stash \"{path}/other\": it is no key table"),
        ),
        (
            format!("smbk5pwd-enable krb5\nsmbk5pwd-heimdal-mkey {path}/stash"),
            "<krb5Key>: attribute type undefined; write `include` with the path of hdb.schema".to_owned(),
        ),
    ] {
        let error = build(&DESCRIPTOR, &schema, &lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(&expected), "{lines}: {error}");
    }
    let overlay =
        build(&DESCRIPTOR, &schema, &format!("smbk5pwd-enable krb5\nsmbk5pwd-krb5-stash {path}/stash"))
            .unwrap();
    assert!(overlay.works_on_passwords() && !format!("{overlay:?}").contains("7, 7"));
}

/// The values of an attribute of octets, by the numbers that `number` finds in them.
fn numbers(fixture: &Fixture<MemoryStore>, name: &str) -> Vec<u32> {
    let entry = fixture.entry(USER).unwrap();
    let values = entry.values(fixture.schema.attribute_type(name).unwrap().id).to_vec();
    let mut numbers: Vec<u32> = values.iter().map(|set| version_of(set).unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn keys_of_the_passwords_before_are_remembered() {
    let (_folder, lines) = with_stash();
    let account = "objectClass: krbPrincipalAux\nkrbPrincipalName: user@EXAMPLE.COM\nuserPassword: 1";
    let overlays = [(&DESCRIPTOR, lines.as_str())];
    let fixture = fixture_with(larix_schema::bundled("kerberos").unwrap(), &overlays, account);
    let policy = format!("cn=policy,{SUFFIX}");
    fixture.apply(&format!("dn: {policy}\nobjectClass: krbPwdPolicy\ncn: policy\nkrbPwdHistoryLength: 3\n"));
    fixture.apply(&modify(&format!("add: krbPwdPolicyReference\nkrbPwdPolicyReference: {policy}")));
    let set = |password: &str, expected: &[u32]| {
        fixture.apply(&modify(&format!("replace: userPassword\nuserPassword: {password}")));
        assert_eq!(numbers(&fixture, "krbPwdHistory"), expected, "{password}");
    };
    let length = |number: u32| {
        let text = format!(
            "dn: {policy}\nchangetype: modify\nreplace: krbPwdHistoryLength\nkrbPwdHistoryLength: {number}\n"
        );
        fixture.apply(&text);
    };
    // There is no key to encrypt them in.
    set("2", &[]);
    let history = format!("cn=history,{SUFFIX}");
    let principal = |version: u32| {
        let lines = format!(
            "dn: {history}\nobjectClass: inetOrgPerson\nobjectClass: krbPrincipalAux\ncn: history\nsn: h\n\
             krbPrincipalName: kadmin/history@EXAMPLE.COM\nuserPassword: x\n"
        );
        if version == 1 {
            lines
        } else {
            format!("dn: {history}\nchangetype: modify\nreplace: userPassword\nuserPassword: y\n")
        }
    };
    fixture.apply(&principal(1));
    set("3", &[2]);
    set("4", &[2, 3]);
    set("5", &[3, 4]);
    // The keys are those of the passwords, in another key than they were.
    length(2);
    set("6", &[5]);
    length(10);
    set("7", &[5, 6]);
    set("8", &[5, 6, 7]);
    // With another key of kadmin/history the ones before can be read no longer.
    fixture.apply(&principal(2));
    set("9", &[8]);
    for number in [1, 0] {
        length(number);
        set("10", &[8]);
    }
    // What the request says holds.
    length(5);
    fixture.apply(&modify("replace: userPassword\nuserPassword: 11\n-\nreplace: krbPwdHistory"));
    assert_eq!(numbers(&fixture, "krbPwdHistory"), [0u32; 0]);
    let overlay = build(&DESCRIPTOR, &fixture.schema, &lines).unwrap();
    assert_eq!(overlay.indexes().len(), 1);
}

/// What Heimdal's hdb.schema has, as far as the overlay is concerned.
const HEIMDAL: &str = "
attributetype ( 1.3.6.1.4.1.5322.10.1.1 NAME 'krb5PrincipalName' EQUALITY caseExactIA5Match SINGLE-VALUE
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.26 )
attributetype ( 1.3.6.1.4.1.5322.10.1.2 NAME 'krb5KeyVersionNumber' EQUALITY integerMatch SINGLE-VALUE
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 )
attributetype ( 1.3.6.1.4.1.5322.10.1.5 NAME 'krb5KDCFlags' EQUALITY integerMatch SINGLE-VALUE
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 )
attributetype ( 1.3.6.1.4.1.5322.10.1.8 NAME 'krb5ValidEnd' EQUALITY generalizedTimeMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.24 SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.5322.10.1.9 NAME 'krb5PasswordEnd' EQUALITY generalizedTimeMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.24 SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.5322.10.1.10 NAME 'krb5Key' SYNTAX 1.3.6.1.4.1.1466.115.121.1.5 )
objectclass ( 1.3.6.1.4.1.5322.10.2.1 NAME 'krb5Principal' SUP top AUXILIARY MUST krb5PrincipalName )
objectclass ( 1.3.6.1.4.1.5322.10.2.2 NAME 'krb5KDCEntry' SUP krb5Principal AUXILIARY MUST krb5KeyVersionNumber
  MAY ( krb5ValidEnd $ krb5PasswordEnd $ krb5KDCFlags $ krb5Key ) )
";

#[test]
fn keys_of_heimdals_principals_change_with_the_password() {
    let (folder, stash) = with_stash();
    let file = folder.path().join("stash");
    let sealed = format!("smbk5pwd-enable krb5\nsmbk5pwd-heimdal-mkey {}", file.display());
    let both = format!("{stash}\nsmbk5pwd-heimdal-mkey {}", file.display());
    let schema = format!("{}{HEIMDAL}", larix_schema::bundled("kerberos").unwrap());
    let account = "objectClass: krb5KDCEntry\nkrb5PrincipalName: user@EXAMPLE.COM\nkrb5KeyVersionNumber: 4\nuserPassword: new";
    for (lines, length) in [("smbk5pwd-enable krb5", 75), (sealed.as_str(), 108), (both.as_str(), 108)] {
        let fixture = fixture_with(&schema, &[(&DESCRIPTOR, lines)], account);
        let state = |fixture: &Fixture<MemoryStore>| {
            let entry = fixture.entry(USER).unwrap();
            let keys = entry.values(fixture.schema.attribute_type("krb5Key").unwrap().id);
            let lengths: Vec<usize> = keys.iter().map(Vec::len).collect();
            let mut text = format!("{lengths:?}");
            for name in ["krb5KeyVersionNumber", "krb5PasswordEnd", "krb5KDCFlags", "krbPrincipalKey"] {
                text += &fixture.value(USER, name).map_or_else(String::new, |value| format!(" {value}"));
            }
            text
        };
        let keys = format!("[{length}, {}]", length - 16);
        // An add brings the version itself.
        assert_eq!(state(&fixture), format!("{keys} 4"), "{lines}");
        for (change, expected) in [
            ("replace: userPassword\nuserPassword: other", "5"),
            (
                "add: krb5KDCFlags\nkrb5KDCFlags: 262270\n-\nadd: krb5PasswordEnd\nkrb5PasswordEnd: 20250101000000Z",
                "5 20250101000000Z 262270",
            ),
            // What is expired is so no longer.
            ("replace: userPassword\nuserPassword: third", "6 126"),
            (
                "add: krb5PasswordEnd\nkrb5PasswordEnd: 20990101000000Z\n-\nreplace: userPassword\nuserPassword: x",
                "7 20990101000000Z 126",
            ),
            // A hash does not tell the password.
            (
                "replace: userPassword\nuserPassword: {SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
                "7 20990101000000Z 126",
            ),
        ] {
            fixture.apply(&modify(change));
            assert_eq!(state(&fixture), format!("{keys} {expected}"), "{lines} {change}");
        }
        assert_eq!(password_modify(&fixture, b"fourth"), "0");
        assert_eq!(state(&fixture), format!("{keys} 8 20990101000000Z 126"));
    }
    let other = fixture_with(&schema, &[(&DESCRIPTOR, &sealed)], "userPassword: new");
    other.apply(&modify("replace: userPassword\nuserPassword: x"));
    assert!(other.value(USER, "krb5Key").is_none());
}

#[test]
fn a_principals_key_is_the_password_where_the_entry_says_so() {
    let account = "objectClass: krb5KDCEntry\nkrb5PrincipalName: user@EXAMPLE.COM\nkrb5KeyVersionNumber: 4\nuserPassword: new";
    let fixture = fixture_with(HEIMDAL, &[(&DESCRIPTOR, "smbk5pwd-enable krb5")], account);
    let name = fixture.schema.parse_dn(USER).unwrap();
    let key_matches = || {
        let found = fixture.directory.bind_lookup(&name, &Subject::default()).unwrap();
        found.key.map(|key| (key.is_of(b"new"), key.is_of(b"other"), key.is_of(b"{K5KEY}")))
    };
    let new = Some((true, false, false));
    assert_eq!(key_matches(), None, "another password");
    for (change, expected) in [
        ("replace: userPassword\nuserPassword: {K5KEY}", new),
        ("add: userPassword\nuserPassword: {SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", new),
        ("replace: userPassword\nuserPassword: {k5key}ignored", new),
        // It is derived all the same: a bind takes as long.
        ("replace: krb5ValidEnd\nkrb5ValidEnd: 20250101000000Z", Some((false, false, false))),
        ("replace: krb5ValidEnd\nkrb5ValidEnd: 20990101000000Z", new),
        ("replace: krb5PrincipalName\nkrb5PrincipalName: renamed@EXAMPLE.COM", new),
        ("replace: krb5Key\nkrb5Key: damaged", None),
        // A new password takes the place of the scheme, and makes keys.
        ("replace: userPassword\nuserPassword: other", None),
        ("replace: userPassword\nuserPassword: {K5KEY}", Some((false, true, false))),
        ("delete: krb5Key", None),
    ] {
        fixture.apply(&modify(change));
        assert_eq!(key_matches(), expected, "{change}");
    }
}
