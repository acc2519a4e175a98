//! Members by rules.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_engine::overlay::Descriptor;
use larix_store::memory::MemoryStore;

use super::DESCRIPTOR;
use crate::refint;
use crate::testing::{Fixture, SUFFIX, TREE, build, directory, found, schema};

const DEFINITION: &str = "automember-definition hosts ou=People,dc=example,dc=com (objectClass=person) member:dn \
                          cn=others,dc=example,dc=com";

fn start(lines: &str, more: bool) -> Fixture<MemoryStore> {
    let mut overlays = vec![(&DESCRIPTOR, lines)];
    if more {
        overlays.push((&refint::DESCRIPTOR, "refint_attributes member"));
    }
    start_with(&overlays)
}

fn start_with(overlays: &[(&Descriptor, &str)]) -> Fixture<MemoryStore> {
    let fixture = directory(overlays);
    fixture.apply(TREE);
    for name in ["others", "web", "mail"] {
        fixture.apply(&format!(
            "dn: cn={name},{SUFFIX}\nchangetype: add\nobjectClass: groupOfNames\nobjectClass: extensibleObject\ncn: {name}\nmember: {SUFFIX}\n"
        ));
    }
    fixture
}

/// An entry, and what is in groups once it is added.
fn add(fixture: &Fixture<MemoryStore>, name: &str, more: &str) {
    fixture.apply(&format!(
        "dn: cn={name},ou=People,{SUFFIX}\nchangetype: add\nobjectClass: person\nobjectClass: uidObject\n\
         uid: {name}\ncn: {name}\nsn: x\n{more}"
    ));
}

fn members(fixture: &Fixture<MemoryStore>) -> String {
    found(fixture, "(objectClass=groupOfNames)", &["member", "memberUid"])
        .replace("suffix|", "")
        .replace("|suffix", "")
        .replace("member=", "")
}

const RULES: &str = "automember-rule hosts cn=web,dc=example,dc=com include cn=^web\n\
                     automember-rule hosts cn=web,dc=example,dc=com include description=^web\n\
                     automember-rule hosts cn=web,dc=example,dc=com exclude description=^old\n\
                     automember-rule hosts cn=mail,dc=example,dc=com include cn=mail|mx";

#[test]
fn new_entries_are_put_into_groups() {
    let fixture = start(&format!("{DEFINITION}\n{RULES}"), false);
    add(&fixture, "web1", "");
    add(&fixture, "web2", "description: old\n");
    add(&fixture, "x", "description: none\ndescription: website\n");
    add(&fixture, "webmail", "");
    assert_eq!(members(&fixture), "mail: webmail; others: web2; web: web1|webmail|x");
    // Neither class nor place.
    fixture.apply(&format!(
        "dn: ou=web,ou=People,{SUFFIX}\nchangetype: add\nobjectClass: organizationalUnit\nou: web\n"
    ));
    fixture.apply(&format!("dn: cn=web9,{SUFFIX}\nchangetype: add\nobjectClass: person\ncn: web9\nsn: x\n"));
    assert_eq!(members(&fixture), "mail: webmail; others: web2; web: web1|webmail|x");
}

#[test]
fn a_change_moves_members_and_leaves_others_alone() {
    for with_refint in [false, true] {
        let fixture = start(&format!("{DEFINITION}\n{RULES}"), with_refint);
        add(&fixture, "a", "");
        add(&fixture, "web1", "");
        assert_eq!(members(&fixture), "mail: suffix; others: a; web: web1");
        let dn = |name: &str| format!("cn={name},ou=People,{SUFFIX}");
        fixture.apply(&format!("dn: {}\nchangetype: modify\nadd: description\ndescription: web\n", dn("a")));
        assert_eq!(members(&fixture), "mail: suffix; others: suffix; web: a|web1");
        // Taken out by hand, it stays out as long as nothing is different for the rules.
        fixture.apply(&format!(
            "dn: cn=web,{SUFFIX}\nchangetype: modify\ndelete: member\nmember: {}\n",
            dn("a")
        ));
        fixture.apply(&format!("dn: {}\nchangetype: modify\nreplace: sn\nsn: y\n", dn("a")));
        assert_eq!(members(&fixture), "mail: suffix; others: suffix; web: web1");
        fixture.apply(&format!("dn: {}\nchangetype: modrdn\nnewrdn: cn=mx1\ndeleteoldrdn: 1\n", dn("web1")));
        assert_eq!(members(&fixture), "mail: mx1; others: suffix; web: suffix");
    }
}

#[test]
fn an_entry_leaves_groups_under_its_new_name_too() {
    let lines = format!("{DEFINITION}\n{RULES}");
    let (own, other) =
        ((&DESCRIPTOR, lines.as_str()), (&refint::DESCRIPTOR, "refint_attributes member owner"));
    for overlays in [[own, other], [other, own]] {
        let fixture = start_with(&overlays);
        add(&fixture, "web1", "");
        fixture.apply(&format!(
            "dn: cn=web,{SUFFIX}\nchangetype: modify\nadd: owner\nowner: cn=web1,ou=People,{SUFFIX}\n"
        ));
        fixture.apply(&format!(
            "dn: cn=web1,ou=People,{SUFFIX}\nchangetype: modrdn\nnewrdn: cn=mx1\ndeleteoldrdn: 1\n"
        ));
        assert_eq!(members(&fixture), "mail: mx1; others: suffix; web: suffix", "{overlays:?}");
        assert_eq!(found(&fixture, "(owner=*)", &["owner"]), "web: owner=mx1", "{overlays:?}");
    }
}

/// An entry moves from the base of one definition to that of another, and both have the group.
#[test]
fn an_entry_stays_in_a_group_of_another_definition() {
    let other = "automember-definition more ou=Groups,dc=example,dc=com (objectClass=person) member:dn \
                 cn=others,dc=example,dc=com";
    for lines in [format!("{DEFINITION}\n{other}"), format!("{other}\n{DEFINITION}")] {
        let fixture = start(&lines, true);
        add(&fixture, "x", "");
        fixture.apply(&format!(
            "dn: cn=x,ou=People,{SUFFIX}\nchangetype: modrdn\nnewrdn: cn=x\ndeleteoldrdn: 0\n\
             newsuperior: ou=Groups,{SUFFIX}\n"
        ));
        assert_eq!(members(&fixture), "mail: suffix; others: x; web: suffix", "{lines}");
    }
}

/// The new value of an entry that leaves a group is there by right of another entry.
#[test]
fn a_value_that_another_entry_has_stays() {
    let lines = format!(
        "automember-definition people ou=People,dc=example,dc=com (objectClass=uidObject) memberUid:uid\n{}",
        RULES.replace("hosts", "people")
    );
    let fixture = start(&lines, false);
    add(&fixture, "web1", "");
    add(&fixture, "web2", "");
    fixture.apply(&format!(
        "dn: cn=web1,ou=People,{SUFFIX}\nchangetype: modify\nreplace: uid\nuid: web2\n-\n\
         add: description\ndescription: old\n"
    ));
    assert!(members(&fixture).ends_with("web: suffix, memberUid=web2"), "{}", members(&fixture));
}

#[test]
fn members_that_follow_make_no_others() {
    let lines = "automember-definition own dc=example,dc=com (&(cn=others)(!(member=cn=others,dc=example,dc=com))) \
                 member:dn cn=others,dc=example,dc=com";
    let (own, numbers) = ((&DESCRIPTOR, lines), (&crate::usn::DESCRIPTOR, ""));
    for overlays in [[own, numbers], [numbers, own]] {
        let fixture = start_with(&overlays);
        // Where members made others, it would be one and none in turns.
        assert_eq!(
            found(&fixture, "(cn=others)", &["member"]),
            "others: member=others|suffix",
            "{overlays:?}"
        );
    }
}

#[test]
fn a_dot_matches_a_line_end() {
    let rule = "automember-rule hosts cn=web,dc=example,dc=com include description=^a.b$";
    let fixture = start(&format!("{DEFINITION}\n{rule}"), false);
    add(&fixture, "x", "description:: YQpi\n");
    assert_eq!(members(&fixture), "mail: suffix; others: suffix; web: x");
}

#[test]
fn groups_may_have_values_of_entries() {
    let lines = "automember-definition people ou=People,dc=example,dc=com (objectClass=uidObject) memberUid:uid\n\
                 automember-rule people cn=web,dc=example,dc=com include uid=.";
    let fixture = start(lines, false);
    add(&fixture, "b", "");
    fixture.apply(&format!("dn: cn=b,ou=People,{SUFFIX}\nchangetype: modify\nreplace: uid\nuid: c\n"));
    assert!(members(&fixture).ends_with("web: suffix, memberUid=c"), "{}", members(&fixture));
    // A group that is not there keeps nobody from being added.
    let fixture = start(&lines.replace("cn=web,", "cn=nowhere,"), false);
    add(&fixture, "b", "");
}

#[test]
fn settings_that_cannot_be_honoured_are_refused() {
    let schema = schema("");
    for (lines, fault) in [
        (DEFINITION.to_owned(), None),
        (format!("{DEFINITION}\n{RULES}"), None),
        (format!("{DEFINITION}\n{DEFINITION}"), Some("there are two of the name \"hosts\"")),
        ("automember-definition a dc=elsewhere (cn=*) member:dn".to_owned(), Some("is not in this database")),
        ("automember-definition a dc=example,dc=com (cn=* member:dn".to_owned(), Some("is not a filter")),
        (
            "automember-definition a dc=example,dc=com (cn=*) member".to_owned(),
            Some("is not an attribute, a colon"),
        ),
        ("automember-definition a dc=example,dc=com (cn=*) nosuch:dn".to_owned(), Some("<nosuch>")),
        (RULES.to_owned(), Some("there is no definition \"hosts\"")),
        (
            format!("{DEFINITION}\nautomember-rule hosts cn=a,dc=b take cn=x"),
            Some("neither include nor exclude"),
        ),
        (
            format!("{DEFINITION}\nautomember-rule hosts cn=a,dc=b include x"),
            Some("is not an attribute, `=`"),
        ),
        (
            format!("{DEFINITION}\nautomember-rule hosts cn=a,dc=b include cn=("),
            Some("is not a regular expression"),
        ),
    ] {
        match (build(&DESCRIPTOR, &schema, &lines), fault) {
            (Ok(_), None) => {}
            (Err(error), Some(fault)) => assert!(error.to_string().contains(fault), "{lines}: {error}"),
            (built, _) => panic!("{lines}: {built:?}"),
        }
    }
}
