//! Changes through the directory: what they do, and what is answered to those that are refused.

use crate::common::{Fixture, TREE};

fn tree() -> Fixture<larix_store::memory::MemoryStore> {
    let fixture = Fixture::new();
    fixture.apply(TREE);
    fixture
}

#[test]
fn an_entry_is_stored_with_operational_attributes() {
    let fixture = tree();
    assert_eq!(
        fixture.show("CN=ann  lee, ou=people,DC=example,dc=com"),
        "dn: cn=Ann Lee,ou=People,dc=example,dc=com\nobjectClass: inetOrgPerson\ncn: Ann Lee\nsn: Lee\nmail: ann@example.com\n"
    );
    let value = |name| fixture.value("cn=Bo,ou=People,dc=example,dc=com", name).unwrap();
    assert_eq!(value("structuralObjectClass"), "inetOrgPerson");
    assert_eq!(value("creatorsName"), "cn=Manager,dc=example,dc=com");
    assert_eq!(value("createTimestamp"), "20260101000000Z");
    assert_eq!(value("entryCSN"), "20260101000000.000000Z#000004#001#000000");
    assert_eq!(value("entryUUID").len(), 36);
}

#[test]
fn adds_that_are_refused() {
    let fixture = tree();
    let check = |dn: &str, attributes: &str, expected: &str| {
        assert_eq!(
            fixture.change(&format!("dn: {dn}\nchangetype: add\n{attributes}\n")),
            expected,
            "{dn} {attributes}"
        );
    };
    let person = "objectClass: inetOrgPerson\ncn: X\nsn: X";
    let at = |rdn: &str| format!("{rdn},ou=People,dc=example,dc=com");
    check("cn=Bo,ou=People,dc=example,dc=com", person, "68");
    check("cn=X,cn=Y,ou=People,dc=example,dc=com", person, "32 <ou=People,dc=example,dc=com>");
    check("cn=X,dc=other", person, "53 no global superior knowledge");
    check("no dn", person, "34 invalid DN");
    check("", person, "68 root DSE already exists");
    check("cn=Subschema", person, "68 subschema subentry already exists");
    check(&at("cn=X"), "cn: X\nsn: X", "65 no objectClass attribute");
    check(&at("cn=X"), "objectClass: nobody\ncn: X", "21 objectClass: value #0 invalid per syntax");
    check(
        &at("cn=X"),
        "objectClass: inetOrgPerson\ncn: X",
        "65 object class 'inetOrgPerson' requires attribute 'sn'",
    );
    check(&at("cn=X"), "objectClass: top\ncn: X", "65 no structural object class provided");
    check(
        &at("cn=X"),
        "objectClass: inetOrgPerson\nobjectClass: organizationalUnit\ncn: X\nsn: X\nou: X",
        "65 invalid structural object class chain (inetOrgPerson/organizationalUnit)",
    );
    check(&at("cn=X"), &format!("{person}\nou: a\no: b\ndc: c"), "65 attribute 'dc' not allowed");
    check(&at("cn=X"), &format!("{person}\ngibberish: c"), "17 gibberish: attribute type undefined");
    check(&at("cn=X"), &format!("{person}\nmail: a\nmail: A"), "20 mail: value #0 provided more than once");
    check(&at("cn=X"), &format!("{person}\nmanager: nobody"), "21 manager: value #0 invalid per syntax");
    check(
        &at("cn=X"),
        &format!("{person}\nemployeeNumber: 1\nemployeeNumber: 2"),
        "19 employeeNumber: multiple values provided",
    );
    check(&at("cn=X"), &format!("{person}\nentryUUID: 0"), "21 entryUUID: value #0 invalid per syntax");
    check(
        &at("cn=X"),
        &format!("{person}\ncreateTimestamp: 20200101000000Z"),
        "19 createTimestamp: no user modification allowed",
    );
    check(
        &at("cn=X"),
        &format!("{person}\nuserCertificate: x"),
        "17 userCertificate: requires ;binary transfer",
    );
    check(
        &at("cn=X"),
        &format!("{person}\ndescription;lang-: x"),
        "17 description;lang-: inappropriate use of tag range option",
    );
    check(
        &at("cn=X"),
        &format!("{person}\ndescription;x-bad: x"),
        "17 description;x-bad: unrecognized option",
    );
    check(
        &at("cn=X"),
        &format!("{person}\nref: ldap://x"),
        "65 attribute \"ref\" only allowed in the referral",
    );
    check(
        &at("employeeNumber=7"),
        &format!("{person}\nemployeeNumber: 8"),
        "64 value of single-valued naming attribute 'employeeNumber' conflicts with value present in entry",
    );
    check(&at("modifiersName=cn\\3dx"), person, "64 naming attribute 'modifiersName' is operational");
    check(&at("cn=X"), "objectClass: subschema\ncn: X", "65 no structural object class provided");
    check(
        &at("cn=X"),
        &format!("{person}\nobjectClass: dynamicObject"),
        "65 objectClass \"1.3.6.1.4.1.1466.101.119.2\" not supported in context",
    );
    assert!(fixture.entry(&at("cn=X")).is_none());
}

#[test]
fn an_add_supplies_naming_values() {
    let fixture = tree();
    fixture.apply("dn: cn=New+sn=Y,ou=People,dc=example,dc=com\nobjectClass: person\nsn: X\n");
    assert_eq!(
        fixture.show("sn=y+cn=new,ou=People,dc=example,dc=com"),
        "dn: cn=New+sn=Y,ou=People,dc=example,dc=com\nobjectClass: person\nsn: X\nsn: Y\ncn: New\n"
    );
}

/// Modifies cn=Bo of a fresh tree; the answer, and the entry without its first three lines.
fn check_modify(changes: &str, expected: &str, after: &str) {
    let fixture = tree();
    let dn = "cn=Bo,ou=People,dc=example,dc=com";
    let answer = fixture.change(&format!("dn: {dn}\nchangetype: modify\n{changes}\n"));
    assert_eq!(answer, expected, "{changes}");
    let shown = fixture.show(dn);
    let rest: String = shown
        .lines()
        .skip(1)
        .filter(|l| *l != "objectClass: inetOrgPerson")
        .map(|l| format!("{l}|"))
        .collect();
    assert_eq!(rest, after, "{changes}");
}

#[test]
fn modifications_apply_in_order_or_not_at_all() {
    let same = "cn: Bo|sn: Bo|";
    check_modify("add: mail\nmail: a\nmail: b\n-", "0", "cn: Bo|sn: Bo|mail: a|mail: b|");
    check_modify("add: sn\nsn: b\n-\ndelete: sn\nsn: BO\n-", "0", "cn: Bo|sn: b|");
    check_modify("add: sn\nsn: bo\n-", "20 modify/add: sn: value #0 already exists", same);
    check_modify(
        "add: mail\nmail: a\n-\nadd: mail\nmail: b\nmail: A\n-",
        "20 modify/add: mail: value #1 already exists",
        same,
    );
    check_modify("delete: mail\n-", "16 modify/delete: mail: no such attribute", same);
    check_modify("delete: mail\nmail: x\n-", "16 modify/delete: mail: no such attribute", same);
    check_modify("delete: sn\nsn: x\n-", "16 modify/delete: sn: no such value", same);
    check_modify("delete: sn\n-", "65 object class 'inetOrgPerson' requires attribute 'sn'", same);
    check_modify(
        "delete: cn\ncn: Bo\n-\nadd: cn\ncn: Other\n-",
        "64 value of naming attribute 'cn' is not present in entry",
        same,
    );
    check_modify("replace: sn\nsn: one\nsn: two\n-", "0", "cn: Bo|sn: one|sn: two|");
    check_modify("replace: mail\n-", "0", same);
    check_modify("replace: description\ndescription: x\n-", "0", "cn: Bo|sn: Bo|description: x|");
    check_modify(
        "replace: objectClass\nobjectClass: person\n-",
        "69 structural object class modification from 'inetOrgPerson' to 'person' not allowed",
        same,
    );
    check_modify(
        "add: objectClass\nobjectClass: posixAccount\n-",
        "65 object class 'posixAccount' requires attribute 'uid'",
        same,
    );
    check_modify(
        "add: uid\nuid: bo\n-\nadd: objectClass\nobjectClass: uidObject\n-",
        "0",
        "objectClass: uidObject|cn: Bo|sn: Bo|uid: bo|",
    );
    check_modify("add: dc\ndc: x\n-", "65 attribute 'dc' not allowed", same);
    check_modify(
        "add: objectClass\nobjectClass: extensibleObject\n-\nadd: dc\ndc: x\n-",
        "0",
        "objectClass: extensibleObject|cn: Bo|sn: Bo|dc: x|",
    );
    check_modify(
        "add: employeeNumber\nemployeeNumber: 1\n-\nadd: employeeNumber\nemployeeNumber: 2\n-",
        "19 attribute 'employeeNumber' cannot have multiple values",
        same,
    );
    check_modify("add: gibberish\ngibberish: 1\n-", "17 gibberish: attribute type undefined", same);
    check_modify(
        "replace: entryUUID\nentryUUID: 00000000-0000-0000-0000-000000000000\n-",
        "19 entryUUID: no user modification allowed",
        same,
    );
    check_modify("replace: mail\nmail: a\nmail: a\n-", "20 mail: value #0 provided more than once", same);
    check_modify("delete: mail\nmail: x\nmail: x\n-", "16 modify/delete: mail: no such attribute", same);
    check_modify("increment: cn\ncn: 1\n-", "19 cn: attribute syntax inappropriate for increment", same);
    check_modify(
        "increment: uidNumber\nuidNumber: 1\n-",
        "16 modify/increment: uidNumber: no such attribute",
        same,
    );
    check_modify("add: seeAlso\nseeAlso: not a dn\n-", "21 seeAlso: value #0 invalid per syntax", same);
}

#[test]
fn increments_add_to_integers() {
    let fixture = tree();
    let dn = "uid=u,ou=People,dc=example,dc=com";
    fixture.apply(&format!(
        "dn: {dn}\nobjectClass: account\nobjectClass: posixAccount\nuid: u\ncn: u\nuidNumber: 10\ngidNumber: 1\nhomeDirectory: /\n"
    ));
    fixture.apply(&format!("dn: {dn}\nchangetype: modify\nincrement: uidNumber\nuidNumber: -3\n-\n"));
    assert_eq!(fixture.value(dn, "uidNumber").as_deref(), Some("7"));
}

#[test]
fn a_modify_renews_operational_attributes() {
    let fixture = tree();
    let dn = "cn=Bo,ou=People,dc=example,dc=com";
    fixture.clock.advance_micros(1_500_000);
    fixture.apply(&format!("dn: {dn}\nchangetype: modify\nreplace: sn\nsn: x\n-\n"));
    assert_eq!(fixture.value(dn, "modifyTimestamp").as_deref(), Some("20260101000001Z"));
    assert_eq!(fixture.value(dn, "entryCSN").as_deref(), Some("20260101000001.500000Z#000000#001#000000"));
    assert_eq!(fixture.value(dn, "createTimestamp").as_deref(), Some("20260101000000Z"));
}

#[test]
fn only_leaves_are_deleted_without_the_control() {
    let fixture = tree();
    let check = |dn: &str, controls: &str, expected: &str| {
        assert_eq!(fixture.change(&format!("dn: {dn}\n{controls}changetype: delete\n")), expected, "{dn}");
    };
    check("cn=Nobody,ou=People,dc=example,dc=com", "", "32 <ou=People,dc=example,dc=com>");
    check("ou=People,dc=example,dc=com", "", "66 subordinate objects must be deleted first");
    check("", "", "53 cannot delete the root DSE");
    check("cn=Bo,ou=People,dc=example,dc=com", "", "0");
    check("cn=Bo,ou=People,dc=example,dc=com", "", "32 <ou=People,dc=example,dc=com>");
    check("ou=People,dc=example,dc=com", "control: 1.2.840.113556.1.4.805 true\n", "0");
    check("cn=Ann Lee,ou=People,dc=example,dc=com", "", "32 <dc=example,dc=com>");
    check("dc=example,dc=com", "control: 1.2.840.113556.1.4.805 true\n", "0");
    check("dc=example,dc=com", "", "32");
    fixture.apply(TREE);
}

fn check_rename(dn: &str, new: &str, expected: &str) {
    let fixture = tree();
    let at = |dn: &str| if dn.ends_with("com") { dn.to_owned() } else { format!("{dn},dc=example,dc=com") };
    assert_eq!(
        fixture.change(&format!("dn: {}\nchangetype: modrdn\n{new}\n", at(dn))),
        expected,
        "{dn} {new}"
    );
}

#[test]
fn renames_that_are_refused() {
    check_rename("cn=Bo,ou=People", "newrdn: cn=Ann Lee\ndeleteoldrdn: 1", "68");
    check_rename("cn=No,ou=People", "newrdn: cn=X\ndeleteoldrdn: 1", "32 <ou=People,dc=example,dc=com>");
    check_rename("cn=Bo,ou=People", "newrdn: X\ndeleteoldrdn: 1", "34 invalid new RDN");
    check_rename("cn=Bo,ou=People", "newrdn: cn=X,cn=Y\ndeleteoldrdn: 1", "34 invalid new RDN");
    check_rename(
        "cn=Bo,ou=People",
        "newrdn: ou=X\ndeleteoldrdn: 1",
        "65 object class 'inetOrgPerson' requires attribute 'cn'",
    );
    check_rename("cn=Bo,ou=People", "newrdn: dc=X\ndeleteoldrdn: 0", "65 attribute 'dc' not allowed");
    check_rename("dc=example,dc=com", "newrdn: dc=other\ndeleteoldrdn: 1", "71 cannot rename between DSAs");
    check_rename("dc=example,dc=com", "newrdn: dc=EXAMPLE\ndeleteoldrdn: 1", "64 cannot rename suffix entry");
    check_rename(
        "cn=Bo,ou=People",
        "newrdn: cn=Bo\ndeleteoldrdn: 1\nnewsuperior: ou=No,dc=example,dc=com",
        "32 new superior not found",
    );
    check_rename(
        "cn=Bo,ou=People",
        "newrdn: cn=Bo\ndeleteoldrdn: 1\nnewsuperior: dc=org",
        "71 cannot rename between DSAs",
    );
    check_rename(
        "ou=People",
        "newrdn: ou=People\ndeleteoldrdn: 1\nnewsuperior: cn=Bo,ou=People,dc=example,dc=com",
        "53 cannot place an entry below itself",
    );
    check_rename(
        "cn=Bo,ou=People",
        "newrdn: modifiersName=cn\\3dx\ndeleteoldrdn: 0",
        "19 attribute 'modifiersName' cannot have multiple values",
    );
}

/// A subordinate whose name no request can have could not be read, renamed or deleted any more.
#[test]
fn a_rename_makes_no_name_that_is_too_long() {
    let fixture = tree();
    let (rdn, top) = (|name: &str| format!("ou={name}{}", "x".repeat(3_000)), "dc=example,dc=com");
    let at = |names: &[&str]| names.iter().rev().map(|name| rdn(name) + ",").collect::<String>() + top;
    for names in [&["a"][..], &["a", "b"], &["c"]] {
        let ou = rdn(names[names.len() - 1]);
        let ou = ou.trim_start_matches("ou=");
        fixture.apply(&format!(
            "dn: {}\nchangetype: add\nobjectClass: organizationalUnit\nou: {ou}\n",
            at(names)
        ));
    }
    let moved = |names: &[&str], rdn: &str, below: &[&str]| {
        fixture.change(&format!(
            "dn: {}\nchangetype: modrdn\nnewrdn: {rdn}\ndeleteoldrdn: 1\nnewsuperior: {}\n",
            at(names),
            at(below)
        ))
    };
    let refused = "53 the new name, or that of a subordinate, would be longer than 8192 bytes";
    assert_eq!(moved(&["a"], &rdn("a"), &["c"]), refused);
    assert_eq!(moved(&["a", "b"], &rdn("b"), &["c"]), "0");
    assert_eq!(moved(&["a"], &format!("ou={}", "y".repeat(8_175)), &[]), refused, "its own name");
    assert_eq!(moved(&["c"], &rdn("c"), &["a"]), refused);
    assert_eq!(moved(&["c"], "ou=c", &["a"]), "0", "short enough");
}

/// It could not be read, renamed or deleted any more, and nothing could be added below it.
#[test]
fn an_add_makes_no_name_that_is_too_long() {
    let fixture = tree();
    let top = "dc=example,dc=com";
    let add =
        |dn: &str| fixture.change(&format!("dn: {dn}\nchangetype: add\nobjectClass: organizationalUnit\n"));
    let fill = |length: usize| format!("ou={}", "x".repeat(length));
    let longest = 8_192 - "ou=,".len() - top.len();
    assert_eq!(add(&format!("{},{top}", fill(longest + 1))), "34 invalid DN");
    assert_eq!(add(&format!("{},{top}", fill(60_000))), "34 invalid DN");
    assert_eq!(add(&format!("{},{top}", fill(longest))), "0");
    assert_eq!(
        fixture.change(&format!("dn: {},{top}\nchangetype: delete\n", fill(longest))),
        "0",
        "there is a request for it"
    );
    let refused = "53 the name would be longer than 8192 bytes";
    assert_eq!(add(&format!("ou={},{top}", r"\,".repeat(4_000))), refused, "escapes are shown as \\2C");
    // The superior keeps its spaces, and a request may name it with one.
    assert_eq!(add(&format!("ou=a{}b,{top}", " ".repeat(7_000))), "0");
    assert_eq!(add(&format!("ou=c{}d,ou=a b,{top}", " ".repeat(7_000))), refused);
    assert_eq!(add(&format!("ou=c d,ou=a b,{top}")), "0");
}

#[test]
fn a_rename_keeps_or_drops_the_old_value() {
    let fixture = tree();
    fixture
        .apply("dn: cn=Bo,ou=People,dc=example,dc=com\nchangetype: modrdn\nnewrdn: CN=BO\ndeleteoldrdn: 1\n");
    assert_eq!(
        fixture.show("cn=bo,ou=People,dc=example,dc=com"),
        "dn: cn=BO,ou=People,dc=example,dc=com\nobjectClass: inetOrgPerson\nsn: Bo\ncn: BO\n"
    );
    fixture.apply(
        "dn: cn=bo,ou=People,dc=example,dc=com\nchangetype: modrdn\nnewrdn: cn=Bob\ndeleteoldrdn: 0\n",
    );
    assert_eq!(
        fixture.show("cn=bob,ou=People,dc=example,dc=com"),
        "dn: cn=Bob,ou=People,dc=example,dc=com\nobjectClass: inetOrgPerson\nsn: Bo\ncn: BO\ncn: Bob\n"
    );
    assert_eq!(fixture.show("cn=bo,ou=People,dc=example,dc=com"), "none");
}

#[test]
fn a_subtree_moves_whole() {
    let fixture = tree();
    fixture.apply(
        "dn: ou=People,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=Folk\ndeleteoldrdn: 1\nnewsuperior: ou=Groups,dc=example,dc=com\n",
    );
    assert_eq!(
        fixture.show("cn=Bo,ou=Folk,ou=Groups,dc=example,dc=com"),
        "dn: cn=Bo,ou=Folk,ou=Groups,dc=example,dc=com\nobjectClass: inetOrgPerson\ncn: Bo\nsn: Bo\n"
    );
    assert_eq!(fixture.show("ou=People,dc=example,dc=com"), "none");
    assert_eq!(
        fixture.change("dn: ou=Groups,dc=example,dc=com\nchangetype: delete\n"),
        "66 subordinate objects must be deleted first"
    );
}
