//! Entries that are kept in step with others.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_store::memory::MemoryStore;

use super::DESCRIPTOR;
use crate::testing::{Fixture, SUFFIX, TREE, build, directory, found, ruled, schema};

const DEFINITION: &str = "mep-definition groups ou=People,dc=example,dc=com (objectClass=posixAccount) \
                          ou=Groups,dc=example,dc=com cn=template,dc=example,dc=com";

const TEMPLATE: &str = "dn: cn=template,dc=example,dc=com\nchangetype: add\nobjectClass: device\nobjectClass: mepTemplateEntry\n\
                        cn: template\nmepRDNAttr: cn\nmepStaticAttr: objectClass: posixGroup\n\
                        mepMappedAttr: cn: $uid\nmepMappedAttr: gidNumber: $gidNumber\n\
                        mepMappedAttr: description: Private group of ${uid} ($$5)\n";

fn fill(fixture: &Fixture<MemoryStore>) {
    fixture.apply(TREE);
    fixture.apply(TEMPLATE);
    fixture.apply(&format!(
        "dn: ou=Elsewhere,{SUFFIX}\nchangetype: add\nobjectClass: organizationalUnit\nou: Elsewhere\n"
    ));
}

fn start() -> Fixture<MemoryStore> {
    let fixture = directory(&[(&DESCRIPTOR, DEFINITION)]);
    fill(&fixture);
    fixture
}

fn user(name: &str, below: &str) -> String {
    format!(
        "dn: uid={name},{below},{SUFFIX}\nchangetype: add\nobjectClass: account\nobjectClass: posixAccount\nuid: {name}\n\
         cn: {name}\nuidNumber: 7\ngidNumber: 7\nhomeDirectory: /home/{name}\n"
    )
}

fn people(name: &str) -> String {
    format!("uid={name},ou=People,{SUFFIX}")
}

fn modify(dn: &str, change: &str) -> String {
    format!("dn: {dn}\nchangetype: modify\n{change}\n")
}

fn groups(fixture: &Fixture<MemoryStore>) -> String {
    found(fixture, "(objectClass=posixGroup)", &["cn", "gidNumber", "mepManagedBy"])
}

fn origins(fixture: &Fixture<MemoryStore>) -> String {
    found(fixture, "(objectClass=posixAccount)", &["mepManagedEntry"])
}

#[test]
fn a_managed_entry_follows_its_origin() {
    let fixture = start();
    fixture.apply(&user("ann", "ou=People"));
    assert_eq!(groups(&fixture), "ann: cn=ann, gidNumber=7, mepManagedBy=ann");
    assert_eq!(origins(&fixture), "ann: mepManagedEntry=ann");
    assert_eq!(found(&fixture, "(description=Private group of ann \\28$5\\29)", &["1.1"]), "ann");
    fixture.apply(&modify(&people("ann"), "replace: gidNumber\ngidNumber: 8"));
    assert_eq!(groups(&fixture), "ann: cn=ann, gidNumber=8, mepManagedBy=ann");
    // What the template does not map is the group's own.
    let group = format!("cn=ann,ou=Groups,{SUFFIX}");
    fixture.apply(&modify(&group, "add: memberUid\nmemberUid: x"));
    fixture.apply(&format!("dn: {}\nchangetype: modrdn\nnewrdn: uid=eve\ndeleteoldrdn: 1\n", people("ann")));
    assert_eq!(groups(&fixture), "eve: cn=eve, gidNumber=8, mepManagedBy=eve");
    assert_eq!(origins(&fixture), "eve: mepManagedEntry=eve");
    assert_eq!(found(&fixture, "(memberUid=x)", &["1.1"]), "eve");
    assert_eq!(found(&fixture, "(description=*of eve*)", &["1.1"]), "eve");
    fixture.apply(&format!("dn: {}\nchangetype: delete\n", people("eve")));
    assert_eq!((groups(&fixture), origins(&fixture)), (String::new(), String::new()));
}

#[test]
fn a_template_may_call_attributes_by_their_other_names() {
    let fixture = directory(&[(&DESCRIPTOR, DEFINITION)]);
    fixture.apply(TREE);
    let template = TEMPLATE.replace("mepRDNAttr: cn", "mepRDNAttr: 2.5.4.3");
    let template = template.replace("mepMappedAttr: cn:", "mepMappedAttr: commonName:");
    fixture.apply(&template.replace("gidNumber: $", "1.3.6.1.1.1.1.1: $"));
    fixture.apply(&user("ann", "ou=People"));
    assert_eq!(groups(&fixture), "ann: cn=ann, gidNumber=7, mepManagedBy=ann");
    let group = format!("cn=ann,ou=Groups,{SUFFIX}");
    for change in ["replace: gidNumber\ngidNumber: 9", "add: cn\ncn: eve"] {
        let answer = fixture.change(&modify(&group, change));
        assert!(
            answer.starts_with("53 Modifying a mapped attribute in a managed entry"),
            "{change}: {answer}"
        );
    }
}

#[test]
fn a_managed_entry_is_no_origin() {
    let definition = "mep-definition groups dc=example,dc=com (|(objectClass=posixAccount)(objectClass=posixGroup)) \
                      ou=Groups,dc=example,dc=com cn=template,dc=example,dc=com";
    let fixture = directory(&[(&DESCRIPTOR, definition)]);
    fixture.apply(TREE);
    fixture.apply(&TEMPLATE.replace("cn: $uid", "cn: of $cn").replace("Private group of ${uid}", "$dn"));
    fixture.apply(&user("ann", "ou=People"));
    assert_eq!(groups(&fixture), "of ann: cn=of ann, gidNumber=7, mepManagedBy=ann");
    let group = format!("cn=of ann,ou=Groups,{SUFFIX}");
    fixture.apply(&modify(&group, "add: memberUid\nmemberUid: x"));
    assert_eq!(groups(&fixture), "of ann: cn=of ann, gidNumber=7, mepManagedBy=ann");
}

#[test]
fn filter_and_scope_say_what_is_an_origin() {
    let fixture = start();
    fixture.apply(&user("ann", "ou=Elsewhere"));
    assert_eq!(groups(&fixture), "");
    let ann = format!("uid=ann,ou=Elsewhere,{SUFFIX}");
    let moved = |dn: &str, to: &str| {
        format!(
            "dn: {dn}\nchangetype: modrdn\nnewrdn: uid=ann\ndeleteoldrdn: 1\nnewsuperior: {to},{SUFFIX}\n"
        )
    };
    fixture.apply(&moved(&ann, "ou=People"));
    assert_eq!(groups(&fixture), "ann: cn=ann, gidNumber=7, mepManagedBy=ann");
    fixture.apply(&moved(&people("ann"), "ou=Elsewhere"));
    assert_eq!((groups(&fixture), origins(&fixture)), (String::new(), "ann".to_owned()));
    fixture.apply(&moved(&ann, "ou=People"));
    let classes = "delete: objectClass\nobjectClass: posixAccount\n-\ndelete: uidNumber\n-\ndelete: gidNumber\n-\n\
                   delete: homeDirectory\n-\ndelete: cn";
    fixture.apply(&modify(&people("ann"), classes));
    assert_eq!(groups(&fixture), "");
    assert_eq!(found(&fixture, "(mepManagedEntry=*)", &["1.1"]), "");
    assert_eq!(found(&fixture, "(objectClass=mepOriginEntry)", &["1.1"]), "");
    let classes = "add: objectClass\nobjectClass: posixAccount\n-\nadd: uidNumber\nuidNumber: 1\n-\nadd: gidNumber\n\
                   gidNumber: 2\n-\nadd: homeDirectory\nhomeDirectory: /\n-\nadd: cn\ncn: a";
    fixture.apply(&modify(&people("ann"), classes));
    assert_eq!(groups(&fixture), "ann: cn=ann, gidNumber=2, mepManagedBy=ann");
}

#[test]
fn trees_move_and_go_with_their_managed_entries() {
    let fixture = start();
    fixture.apply(&format!(
        "dn: ou=a,ou=People,{SUFFIX}\nchangetype: add\nobjectClass: organizationalUnit\nou: a\n"
    ));
    fixture.apply(&user("ann", "ou=a,ou=People"));
    fixture.apply(&user("bo", "ou=a,ou=People"));
    fixture
        .apply(&format!("dn: ou=a,ou=People,{SUFFIX}\nchangetype: modrdn\nnewrdn: ou=b\ndeleteoldrdn: 1\n"));
    let by =
        |name: &str| found(&fixture, &format!("(mepManagedBy=uid={name},ou=b,ou=People,{SUFFIX})"), &["1.1"]);
    assert_eq!((by("ann"), by("bo")), ("ann".to_owned(), "bo".to_owned()));
    const TREE_DELETE: &str = "control: 1.2.840.113556.1.4.805 true\n";
    fixture.apply(&format!("dn: ou=b,ou=People,{SUFFIX}\n{TREE_DELETE}changetype: delete\n"));
    assert_eq!((groups(&fixture), origins(&fixture)), (String::new(), String::new()));
}

#[test]
fn what_cannot_be_done_to_both_is_done_to_neither() {
    let fixture = start();
    let taken = "dn: cn=ann,ou=Groups,dc=example,dc=com\nchangetype: add\nobjectClass: posixGroup\ncn: ann\ngidNumber: 1\n";
    fixture.apply(taken);
    fixture.apply(&user("bo", "ou=People"));
    let before = (groups(&fixture), origins(&fixture));
    let rename = format!("dn: {}\nchangetype: modrdn\nnewrdn: uid=ann\ndeleteoldrdn: 1\n", people("bo"));
    for (change, expected) in [
        (
            user("ann", "ou=People"),
            "53 managed entries: \"cn=ann,ou=Groups,dc=example,dc=com\", the managed entry of",
        ),
        (rename, "53 managed entries: \"cn=ann,ou=Groups,dc=example,dc=com\""),
        (
            user("eve", "ou=People")
                .replace("gidNumber: 7\n", "")
                .replace("posixAccount", "extensibleObject\nobjectClass: posixAccount"),
            "65 ",
        ),
        (
            format!("dn: cn=template,{SUFFIX}\nchangetype: delete\n"),
            "53 Deleting an active managed entries template",
        ),
        (
            format!("dn: cn=template,{SUFFIX}\nchangetype: modrdn\nnewrdn: cn=t\ndeleteoldrdn: 0\n"),
            "53 Renaming an active managed entries template",
        ),
        (
            modify(&format!("cn=bo,ou=Groups,{SUFFIX}"), "replace: gidNumber\ngidNumber: 9"),
            "53 Modifying a mapped attribute in a managed entry is not allowed. The \"gidNumber\" attribute is mapped",
        ),
    ] {
        let answer = fixture.change(&change);
        assert!(answer.starts_with(expected), "{change}: {answer}");
        assert_eq!((groups(&fixture), origins(&fixture)), before, "{change}");
    }
    // Templates that are none are said where they are used.
    let template = format!("cn=template,{SUFFIX}");
    for (change, expected) in [
        ("replace: mepMappedAttr\nmepMappedAttr: gidNumber: $gidNumber", "no mepMappedAttr is about \"cn\""),
        (
            "replace: mepMappedAttr\nmepMappedAttr: cn: $",
            "write an attribute of the origin behind the dollar sign",
        ),
        ("replace: mepMappedAttr\nmepMappedAttr: cn: ${uid", "a brace is not closed"),
        ("replace: mepMappedAttr\nmepMappedAttr: cn: all", "it names no attribute of the origin"),
        ("replace: mepMappedAttr\nmepMappedAttr: cn: $nosuch", "\"nosuch\""),
        (
            "replace: mepMappedAttr\nmepMappedAttr: cn: $uid\nmepMappedAttr: gidNumber: $gecos",
            "it needs \"gecos\"",
        ),
        // Not what the schema takes: the group's add is refused, and the user's with it.
        ("replace: mepMappedAttr\nmepMappedAttr: cn: $uid", "65 "),
        ("delete: mepRDNAttr", "mepRDNAttr is missing"),
    ] {
        fixture.apply(&modify(&template, change));
        let answer = fixture.change(&user("eve", "ou=People"));
        assert!(answer.contains(expected) || answer.starts_with(expected), "{change}: {answer}");
        assert_eq!((groups(&fixture), origins(&fixture)), before, "{change}");
    }
}

#[test]
fn rules_about_values_hold_for_managed_entries() {
    let unique = "unique_uri ldap:///?gidNumber?sub?(objectClass=posixGroup)\nunique_uri ldap:///?cn?sub";
    let constraint = "constraint_attribute description negregex of.eve\n\
                      constraint_attribute objectClass negregex mep(Origin|Managed)Entry";
    let fixture = directory(&[
        (&DESCRIPTOR, DEFINITION),
        (&crate::unique::DESCRIPTOR, unique),
        (&crate::constraint::DESCRIPTOR, constraint),
    ]);
    fill(&fixture);
    fixture.apply(&format!(
        "dn: cn=all,ou=Groups,{SUFFIX}\nchangetype: add\nobjectClass: posixGroup\ncn: all\ngidNumber: 9\n"
    ));
    // It may have values of its origin, and the overlay's classes.
    fixture.apply(&user("ann", "ou=People"));
    let before = (groups(&fixture), origins(&fixture));
    assert_eq!(before.0, "all: cn=all, gidNumber=9; ann: cn=ann, gidNumber=7, mepManagedBy=ann");
    let shared = |number: u32| {
        format!("19 non-unique attributes found with (&(objectClass=posixGroup)(|(gidNumber={number})))")
    };
    let rename = format!("dn: {}\nchangetype: modrdn\nnewrdn: uid=eve\ndeleteoldrdn: 1\n", people("ann"));
    for (change, expected) in [
        (user("joe", "ou=People"), shared(7)),
        (modify(&people("ann"), "replace: gidNumber\ngidNumber: 9"), shared(9)),
        (user("eve", "ou=People"), "19 add breaks constraint on description".to_owned()),
        (rename, "19 modify breaks constraint on description".to_owned()),
    ] {
        assert_eq!(fixture.change(&change), expected, "{change}");
        assert_eq!((groups(&fixture), origins(&fixture)), before, "{change}");
    }
    // Who may manage both is exempt in both.
    let relaxed = "control: 1.3.6.1.4.1.4203.666.5.12 true\nchangetype: add";
    fixture.apply(&user("joe", "ou=People").replace("changetype: add", relaxed));
    assert_eq!(found(&fixture, "(gidNumber=7)", &["1.1"]), "ann; ann; joe; joe");
}

#[test]
fn rights_are_those_to_the_origin() {
    let rules = ["to dn.subtree=ou=People,dc=example,dc=com by users write", "to * by users read"];
    let mut fixture = ruled(&[(&DESCRIPTOR, DEFINITION)], &rules);
    fill(&fixture);
    fixture.bind(&format!("cn=Bo,ou=People,{SUFFIX}"));
    fixture.apply(&user("ann", "ou=People"));
    assert_eq!(groups(&fixture), "ann: cn=ann, gidNumber=7, mepManagedBy=ann");
    let group = format!("cn=ann,ou=Groups,{SUFFIX}");
    let answer = fixture.change(&modify(&group, "add: memberUid\nmemberUid: x"));
    assert!(answer.starts_with("50"), "{answer}");
    fixture.apply(&modify(&people("ann"), "replace: gidNumber\ngidNumber: 8"));
    fixture.apply(&format!("dn: {}\nchangetype: modrdn\nnewrdn: uid=eve\ndeleteoldrdn: 1\n", people("ann")));
    assert_eq!(groups(&fixture), "eve: cn=eve, gidNumber=8, mepManagedBy=eve");
    fixture.apply(&format!("dn: {}\nchangetype: delete\n", people("eve")));
    assert_eq!(groups(&fixture), "");
}

#[test]
fn only_the_root_dn_takes_managed_entries_away() {
    let mut fixture = ruled(&[(&DESCRIPTOR, DEFINITION)], &["to * by users write"]);
    fill(&fixture);
    fixture.apply(&user("ann", "ou=People"));
    let root = crate::testing::ROOT.to_owned();
    fixture.bind(&format!("cn=Bo,ou=People,{SUFFIX}"));
    let group = format!("cn=ann,ou=Groups,{SUFFIX}");
    for (change, expected) in [
        (format!("dn: {group}\nchangetype: delete\n"), "53 Deleting a managed entry is not allowed."),
        (
            format!("dn: {group}\nchangetype: modrdn\nnewrdn: cn=x\ndeleteoldrdn: 0\n"),
            "53 Renaming a managed entry is not allowed.",
        ),
        (
            format!("dn: ou=Groups,{SUFFIX}\ncontrol: 1.2.840.113556.1.4.805 true\nchangetype: delete\n"),
            "53 Deleting a managed entry is not allowed.",
        ),
    ] {
        let answer = fixture.change(&change);
        assert!(answer.starts_with(expected), "{change}: {answer}");
    }
    fixture.bind(&root);
    fixture.apply(&format!("dn: {group}\nchangetype: delete\n"));
    // The next change of the origin makes it anew.
    fixture.apply(&modify(&people("ann"), "replace: gidNumber\ngidNumber: 9"));
    assert_eq!(groups(&fixture), "ann: cn=ann, gidNumber=9, mepManagedBy=ann");
}

#[test]
fn settings_that_cannot_be_honoured_are_refused() {
    let schema = schema(DESCRIPTOR.schema);
    for (lines, fault) in [
        (DEFINITION.to_owned(), None),
        (String::new(), None),
        (format!("{DEFINITION}\n{DEFINITION}"), Some("there are two of the name \"groups\"")),
        (DEFINITION.replace("ou=People,dc=example,dc=com", "dc=elsewhere"), Some("is not in this database")),
        (DEFINITION.replace("ou=Groups,dc=example,dc=com", "dc=elsewhere"), Some("is not in this database")),
        (DEFINITION.replace("(objectClass=posixAccount)", "(objectClass"), Some("is not a filter")),
        (DEFINITION.replace("cn=template,dc=example,dc=com", "template"), Some("\"template\" is not a DN")),
    ] {
        match (build(&DESCRIPTOR, &schema, &lines), fault) {
            (Ok(_), None) => {}
            (Err(error), Some(fault)) => assert!(error.to_string().contains(fault), "{lines}: {error}"),
            (built, _) => panic!("{lines}: {built:?}"),
        }
    }
}
