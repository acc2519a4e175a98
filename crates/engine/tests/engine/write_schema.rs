//! Schema rules beyond the everyday ones: content rules, obsolete and abstract elements, types without equality.

use std::sync::Arc;

use crate::common::{self, Fixture, SUFFIX, TREE, assert_sound, memory, settings};

const SCHEMA: &str = "
attributetype ( 1.1.1.1 NAME 'tOld' OBSOLETE EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )
attributetype ( 1.1.1.2 NAME 'tNoEq' SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )
attributetype ( 1.1.1.3 NAME 'tCase' EQUALITY caseExactMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 )
attributetype ( 1.1.1.4 NAME 'tNumber' EQUALITY integerMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 )
objectclass ( 1.1.2.1 NAME 'tAbstract' SUP top ABSTRACT MAY tCase )
objectclass ( 1.1.2.2 NAME 'tBased' SUP tAbstract AUXILIARY MAY tCase )
objectclass ( 1.1.2.3 NAME 'tOldClass' SUP top AUXILIARY OBSOLETE )
objectclass ( 1.1.2.4 NAME 'tThing' SUP top STRUCTURAL MUST cn MAY ( description $ tOld $ tNoEq $ tCase $ tNumber $ sn $ mail ) )
objectclass ( 1.1.2.5 NAME 'tRuled' SUP top STRUCTURAL MUST cn MAY ( description $ sn ) )
objectclass ( 1.1.2.6 NAME 'tExtra' SUP top AUXILIARY MAY mail )
ditcontentrule ( 1.1.2.5 NAME 'tRule' AUX uidObject MUST sn MAY title NOT description )
";

fn fixture() -> Fixture<larix_store::memory::MemoryStore> {
    let schema = common::schema(SCHEMA);
    let settings = settings(&schema);
    let fixture = Fixture::of(Arc::clone(&schema), vec![(memory(), settings)]);
    fixture.apply(TREE);
    fixture
}

#[test]
fn adds() {
    let fixture = fixture();
    let check = |attributes: &str, expected: &str| {
        let ldif = format!("dn: cn=x,{SUFFIX}\nchangetype: add\ncn: x\n{attributes}\n");
        assert_eq!(fixture.change(&ldif), expected, "{attributes}");
        fixture.change(&format!("dn: cn=x,{SUFFIX}\nchangetype: delete\n"));
    };
    check("objectClass: tThing", "0");
    check("objectClass: tThing\ntOld: a", "19 tOld: attribute is obsolete");
    check("objectClass: tThing\nobjectClass: tOldClass", "65 objectClass 'tOldClass' is OBSOLETE");
    check(
        "objectClass: tThing\nobjectClass: tAbstract",
        "65 instantiation of abstract objectClass 'tAbstract' not allowed",
    );
    check("objectClass: tThing\nobjectClass: tAbstract\nobjectClass: tBased", "0");
    check("objectClass: tThing\ntNoEq: a\ntNoEq: b", "0");
    check("objectClass: tThing\ntNoEq: a\ntNoEq: a", "20 tNoEq: value #0 provided more than once");
    check("objectClass: tThing\ntNumber: 01", "21 tNumber: value #0 invalid per syntax");
    check("objectClass: tThing\ntCase: a\ntCase: A", "0");
    check("objectClass: tThing\nobjectClass: TTHING", "20 objectClass: value #0 provided more than once");
    check("objectClass: tRuled\nsn: s", "0");
    check("objectClass: tRuled\nsn: s\ntitle: t", "0");
    check("objectClass: tRuled", "65 content rule 'tRule' requires attribute 'sn'");
    check(
        "objectClass: tRuled\nsn: s\ndescription: d",
        "65 content rule 'tRule' precluded attribute 'description'",
    );
    check(
        "objectClass: tRuled\nsn: s\nobjectClass: tExtra",
        "65 class 'tExtra' not allowed by content rule 'tRule'",
    );
    check("objectClass: tRuled\nsn: s\nobjectClass: uidObject\nuid: u", "0");
    check("objectClass: tRuled\nsn: s\nmail: m", "65 attribute 'mail' not allowed");
    check("objectClass: subentry\nsubtreeSpecification: {}", "0");
    check(
        "objectClass: tThing\nsubtreeSpecification: {}",
        "65 attribute \"subtreeSpecification\" only allowed in the subentry",
    );
    check(
        "objectClass: tThing\nobjectClass: extensibleObject\nnamingContexts: dc=x",
        "65 attribute \"namingContexts\" only allowed in the root DSE",
    );
    check(
        "objectClass: tThing\nobjectClass: extensibleObject\naliasedObjectName: dc=x",
        "65 attribute \"aliasedObjectName\" only allowed in the alias",
    );
    check("objectClass: alias\nobjectClass: extensibleObject\naliasedObjectName: dc=x", "0");
    check(
        "objectClass: tThing\nobjectClass: extensibleObject\nadministrativeRole: 2.5.23.1",
        "65 attribute \"administrativeRole\" not supported!",
    );
}

#[test]
fn a_name_brings_no_object_class() {
    let fixture = fixture();
    let check = |rdn: &str, classes: &str, expected: &str| {
        let ldif = format!("dn: {rdn},{SUFFIX}\nchangetype: add\ncn: x\n{classes}\n");
        assert_eq!(fixture.change(&ldif), expected, "{rdn}");
    };
    let missing = "64 value of naming attribute 'objectClass' is not present in entry";
    check("objectClass=tRuled", "objectClass: tThing", missing);
    check("cn=x+objectClass=uidObject", "objectClass: tThing", missing);
    check("objectClass=tThing", "objectClass: tThing", "0");
    check(
        "objectClass=uidObject",
        "objectClass: tThing\nobjectClass: uidObject",
        "65 object class 'uidObject' requires attribute 'uid'",
    );
}

#[test]
fn modifications() {
    let fixture = fixture();
    let dn = format!("cn=x,{SUFFIX}");
    let check = |changes: &str, expected: &str| {
        fixture
            .apply(&format!("dn: {dn}\nchangetype: add\nobjectClass: tThing\ncn: x\ntNoEq: a\ntNumber: 5\n"));
        let ldif = format!("dn: {dn}\nchangetype: modify\n{changes}\n-\n");
        assert_eq!(fixture.change(&ldif), expected, "{changes}");
        fixture.apply(&format!("dn: {dn}\nchangetype: delete\n"));
    };
    check("add: tNoEq\ntNoEq: b", "18 modify/add: tNoEq: no equality matching rule");
    check("delete: tNoEq\ntNoEq: a", "18 modify/delete: tNoEq: no equality matching rule");
    check("replace: tNoEq\ntNoEq: b", "0");
    check("delete: tNoEq", "0");
    check("replace: tOld", "0");
    check("replace: tOld\ntOld: x", "19 tOld: attribute is obsolete");
    check("increment: tNumber\ntNumber: 3", "0");
    check("increment: tNumber\ntNumber: x", "21 tNumber: value #0 invalid per syntax");
    check(
        "increment: description\ndescription: 1",
        "19 description: attribute syntax inappropriate for increment",
    );
    check("delete: objectClass", "65 no objectClass attribute");
    check("add: objectClass\nobjectClass: nobody", "21 objectClass: value #0 invalid per syntax");
    check(
        "add: objectClass\nobjectClass: tRuled",
        "65 invalid structural object class chain (tThing/tRuled)",
    );
    check(
        "replace: structuralObjectClass\nstructuralObjectClass: tRuled",
        "19 structuralObjectClass: no user modification allowed",
    );
}

#[test]
fn nothing_is_added_below_aliases_and_subentries() {
    let fixture = fixture();
    let check = |parent: &str, expected: &str| {
        fixture.apply(&format!("dn: cn=x,{SUFFIX}\ncn: x\n{parent}\n"));
        let child = format!("dn: cn=y,cn=x,{SUFFIX}\nchangetype: add\nobjectClass: tThing\ncn: y\n");
        assert_eq!(fixture.change(&child), expected, "{parent}");
        fixture.apply(&format!("dn: cn=x,{SUFFIX}\nchangetype: delete\n"));
    };
    check("objectClass: subentry\nsubtreeSpecification: {}", "65 parent is a subentry");
    check(
        "objectClass: alias\nobjectClass: extensibleObject\naliasedObjectName: dc=x",
        "33 parent is an alias",
    );
}

#[test]
fn without_lastmod_an_entry_has_its_structural_class_alone() {
    let schema = common::schema("");
    let mut settings = settings(&schema);
    settings.last_modified = false;
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    let value = |name| fixture.value("cn=Bo,ou=People,dc=example,dc=com", name);
    assert_eq!(value("structuralObjectClass").as_deref(), Some("inetOrgPerson"));
    assert_eq!((value("entryUUID"), value("entryCSN"), value("modifiersName")), (None, None, None));
}

/// The superiors of such a class are not known any more, and the entry is in the index of each.
#[test]
fn entries_leave_the_index_of_classes_that_the_schema_has_lost() {
    let classes = "objectclass ( 1.1.3.1 NAME 'tBase' SUP top AUXILIARY )\n\
                   objectclass ( 1.1.3.2 NAME 'tSub' SUP tBase AUXILIARY )\n";
    let store = Arc::new(memory());
    let open = |schema: Arc<larix_schema::Schema>| {
        let settings = settings(&schema);
        Fixture::of(schema, vec![(Arc::clone(&store), settings)])
    };
    let name = |name: &str| format!("dn: cn={name},{SUFFIX}\nchangetype: ");
    let fixture = open(common::schema(classes));
    fixture.apply(TREE);
    for entry in ["x", "y"] {
        fixture.apply(&format!("{}add\nobjectClass: device\nobjectClass: tSub\ncn: {entry}\n", name(entry)));
    }
    drop(fixture);
    let fixture = open(common::schema(""));
    fixture.apply(&format!("{}modify\nreplace: objectClass\nobjectClass: device\n", name("x")));
    fixture.apply(&format!("{}delete\n", name("y")));
    assert_sound(fixture.database(), "without a class of the entries");
}

/// What an offline tool stores with `-s`.
#[test]
fn unchecked_entries_need_not_obey_the_schema() {
    let fixture = fixture();
    let dn = format!("cn=x,{SUFFIX}");
    let unchecked = |ldif: &str| {
        let mut last = String::new();
        for record in common::records(ldif) {
            let (operation, _) = common::operation(record);
            let mut request = fixture.request(operation, &[]);
            request.controls = request.controls.with(|values| values.schema_unchecked = true);
            last = common::describe(&fixture.submit(request));
        }
        last
    };
    let structural = || fixture.value(&dn, "structuralObjectClass");
    let add = format!("dn: {dn}\nchangetype: add\nobjectClass: tRuled\ncn: x\ntCase: a\n");
    assert_eq!(fixture.change(&add), "65 content rule 'tRule' requires attribute 'sn'");
    assert_eq!(unchecked(&add), "0");
    assert_eq!(structural().as_deref(), Some("tRuled"));
    let mail = format!("dn: {dn}\nchangetype: modify\nadd: mail\nmail: m\n-\n");
    assert!(fixture.change(&mail).starts_with("65 "));
    assert_eq!(unchecked(&mail), "0");
    assert_eq!(fixture.value(&dn, "mail").as_deref(), Some("m"));
    // Another structural class is recorded: checked changes go on from there.
    let class = format!("dn: {dn}\nchangetype: modify\nreplace: objectClass\nobjectClass: tThing\n-\n");
    assert!(fixture.change(&class).starts_with("69 "));
    assert_eq!(unchecked(&class), "0");
    assert_eq!(structural().as_deref(), Some("tThing"));
    assert_eq!(fixture.change(&format!("dn: {dn}\nchangetype: modify\nadd: sn\nsn: s\n-\n")), "0");
}
