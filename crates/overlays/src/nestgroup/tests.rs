//! Members and groups through groups.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_store::memory::MemoryStore;

use super::DESCRIPTOR;
use crate::memberof;
use crate::testing::{Fixture, ROOT, TREE, build, found, ruled, schema};

/// Three groups in a circle, and one elsewhere that names one of them.
const GROUPS: &str = "
    dn: cn=top,ou=Groups,dc=example,dc=com
    objectClass: groupOfNames
    cn: top
    member: cn=mid,ou=Groups,dc=example,dc=com
    member: cn=Bo,ou=People,dc=example,dc=com

    dn: cn=mid,ou=Groups,dc=example,dc=com
    objectClass: groupOfNames
    cn: mid
    member: cn=low,ou=Groups,dc=example,dc=com

    dn: cn=low,ou=Groups,dc=example,dc=com
    objectClass: groupOfNames
    cn: low
    member: cn=Ann Lee,ou=People,dc=example,dc=com
    member: cn=top,ou=Groups,dc=example,dc=com

    dn: cn=far,ou=People,dc=example,dc=com
    objectClass: groupOfNames
    cn: far
    member: cn=mid,ou=Groups,dc=example,dc=com
";

const ALL: &str = "nestgroup-base ou=Groups,dc=example,dc=com
    nestgroup-flags member-filter member-values
    nestgroup-flags memberof-filter memberof-values";

fn directory(lines: &str, rules: &[&str]) -> Fixture<MemoryStore> {
    let mut fixture = ruled(&[(&memberof::DESCRIPTOR, ""), (&DESCRIPTOR, lines)], rules);
    fixture.apply(TREE);
    fixture.apply(GROUPS);
    fixture.bind("");
    fixture
}

const ANN: &str = "(member=cn=ann lee,ou=people,dc=example,dc=com)";
const IN_TOP: &str = "(memberOf=cn=top,ou=groups,dc=example,dc=com)";
const OPEN: &[&str] = &["to * by * read"];

#[test]
fn groups_are_followed_and_circles_end() {
    let fixture = directory(ALL, OPEN);
    for (filter, attributes, expected) in [
        (ANN, &["1.1"][..], "far; low; mid; top"),
        (IN_TOP, &["1.1"], "Ann Lee; Bo; low; mid; top"),
        ("(memberOf=cn=far,ou=people,dc=example,dc=com)", &["1.1"], "mid"),
        ("(cn=top)", &["member"], "top: member=Ann Lee|Bo|low|mid|top"),
        ("(cn=low)", &["member"], "low: member=Ann Lee|Bo|low|mid|top"),
        ("(cn=ann lee)", &["memberOf"], "Ann Lee: memberOf=low|mid|top"),
        ("(cn=bo)", &["memberOf"], "Bo: memberOf=low|mid|top"),
        ("(&(cn=bo)(memberOf=cn=low,ou=groups,dc=example,dc=com))", &["1.1"], "Bo"),
        ("(&(cn=*)(!(memberOf=cn=low,ou=groups,dc=example,dc=com)))", &["1.1"], "far"),
        // Who has no such attribute gets none.
        ("(ou=people)", &["memberOf", "member"], "People"),
    ] {
        assert_eq!(found(&fixture, filter, attributes), expected, "{filter}");
    }
}

#[test]
fn flags_say_where_it_is_seen() {
    const BASE: &str = "nestgroup-base ou=Groups,dc=example,dc=com";
    for (flags, ann, in_top, values) in [
        ("", "low", "Bo; mid", "Ann Lee: memberOf=low; low: member=Ann Lee|top"),
        (
            "nestgroup-flags member-filter",
            "far; low; mid; top",
            "Bo; mid",
            "Ann Lee: memberOf=low; low: member=Ann Lee|top",
        ),
        (
            "nestgroup-flags member-values",
            "low",
            "Bo; mid",
            "Ann Lee: memberOf=low; low: member=Ann Lee|Bo|low|mid|top",
        ),
        (
            "nestgroup-flags memberof-filter",
            "low",
            "Ann Lee; Bo; low; mid; top",
            "Ann Lee: memberOf=low; low: member=Ann Lee|top",
        ),
        (
            "nestgroup-flags memberof-values",
            "low",
            "Bo; mid",
            "Ann Lee: memberOf=low|mid|top; low: member=Ann Lee|top",
        ),
    ] {
        let fixture = directory(&format!("{BASE}\n{flags}"), OPEN);
        assert_eq!(found(&fixture, ANN, &["1.1"]), ann, "{flags}");
        assert_eq!(found(&fixture, IN_TOP, &["1.1"]), in_top, "{flags}");
        let both = found(&fixture, "(|(cn=ann lee)(cn=low))", &["member", "memberOf"]);
        let both = both.replace(", memberOf=mid", "").replace(", memberOf=low|mid|top", "");
        assert_eq!(both, values, "{flags}");
    }
    // Without a base nothing is followed.
    let fixture = directory("nestgroup-flags member-filter member-values", OPEN);
    assert_eq!(found(&fixture, ANN, &["1.1"]), "low");
}

#[test]
fn hidden_groups_lead_nowhere() {
    let hidden = &["to dn.base=cn=mid,ou=Groups,dc=example,dc=com attrs=member by * none", "to * by * read"];
    let fixture = directory(ALL, hidden);
    for (filter, attributes, expected) in [
        (ANN, &["1.1"][..], "low"),
        (IN_TOP, &["1.1"], "Bo; low; mid"),
        ("(cn=top)", &["member"], "top: member=Bo|mid"),
        ("(cn=ann lee)", &["memberOf"], "Ann Lee: memberOf=low"),
    ] {
        assert_eq!(found(&fixture, filter, attributes), expected, "{filter}");
    }
}

#[test]
fn hidden_values_lead_nowhere() {
    let hidden =
        &["to attrs=memberOf val.exact=cn=low,ou=Groups,dc=example,dc=com by * none", "to * by * read"];
    let fixture = directory(ALL, hidden);
    for (filter, attributes, expected) in [
        ("(memberOf=cn=mid,ou=groups,dc=example,dc=com)", &["1.1"][..], "Bo; low; mid"),
        ("(cn=ann lee)", &["memberOf"], "Ann Lee"),
    ] {
        assert_eq!(found(&fixture, filter, attributes), expected, "{filter}");
    }
    let hidden =
        &["to attrs=member val.exact=cn=mid,ou=Groups,dc=example,dc=com by * none", "to * by * read"];
    let fixture = directory(ALL, hidden);
    for (filter, attributes, expected) in
        [(ANN, &["1.1"][..], "low; mid"), ("(cn=top)", &["member"], "top: member=Bo")]
    {
        assert_eq!(found(&fixture, filter, attributes), expected, "{filter}");
    }
}

#[test]
fn mistakes_are_named() {
    let schema = schema("");
    for (lines, fault) in [
        ("nestgroup-member nothing", "nestgroup-member \"nothing\": attribute \"nothing\""),
        ("nestgroup-memberof cn", "the values of \"cn\" are no names"),
        ("nestgroup-base nobody", "nestgroup-base \"nobody\": \"nobody\" is not a DN"),
        ("nestgroup-flags member-filter all", "the flag \"all\" is unknown; one of member-filter"),
    ] {
        let error = build(&DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(fault), "{lines}: {error}");
    }
}

fn modify(fixture: &Fixture<MemoryStore>, name: &str, rest: &str) {
    fixture.apply(&format!("dn: {name},dc=example,dc=com\nchangetype: {rest}\n"));
}

#[test]
fn what_is_remembered_ends_with_the_change_that_ends_it() {
    let mut fixture = directory(ALL, OPEN);
    let in_top = |fixture: &Fixture<MemoryStore>| found(fixture, IN_TOP, &["1.1"]);
    const LOW: &str = "cn=low,ou=Groups";
    for _ in 0..3 {
        assert_eq!(in_top(&fixture), "Ann Lee; Bo; low; mid; top");
        // Such changes end nothing.
        fixture.bind(ROOT);
        modify(&fixture, "cn=Bo,ou=People", "modify\nreplace: description\ndescription: x");
        modify(&fixture, LOW, "modify\nreplace: description\ndescription: y");
        fixture.bind("");
    }
    for (name, change, expected) in [
        (LOW, "modify\ndelete: member\nmember: cn=Ann Lee,ou=People,dc=example,dc=com", "Bo; low; mid; top"),
        (
            LOW,
            "modify\nadd: member\nmember: cn=Ann Lee,ou=People,dc=example,dc=com",
            "Ann Lee; Bo; low; mid; top",
        ),
        (LOW, "modrdn\nnewrdn: cn=lower\ndeleteoldrdn: 1", "Bo; mid"),
        (
            "cn=mid,ou=Groups",
            "modify\nadd: member\nmember: cn=lower,ou=Groups,dc=example,dc=com",
            "Ann Lee; Bo; lower; mid; top",
        ),
        ("cn=lower,ou=Groups", "delete", "Bo; mid"),
    ] {
        fixture.bind(ROOT);
        modify(&fixture, name, change);
        fixture.bind("");
        assert_eq!(in_top(&fixture), expected, "{name} {change}");
    }
}
