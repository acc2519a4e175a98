//! Lists and groups by URLs, and which groups an entry is in.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_engine::tables::TABLES;
use larix_store::memory::MemoryStore;
use larix_store::shared::SharedStore;

use super::DESCRIPTOR;
use crate::testing::{Fixture, SUFFIX, TREE, build, compared, found, ruled, schema, settings};

const MORE: &str = "
    dn: cn=with mail,ou=Groups,dc=example,dc=com
    objectClass: groupOfURLs
    cn: with mail
    memberURL: ldap:///ou=People,dc=example,dc=com??sub?(mail=*)

    dn: cn=all,ou=Groups,dc=example,dc=com
    objectClass: groupOfURLs
    cn: all
    memberURL: ldap:///ou=Groups,dc=example,dc=com??one?(cn=with mail)
    memberURL: ldap:///ou=People,dc=example,dc=com??one?(sn=bo)

    dn: cn=static,ou=Groups,dc=example,dc=com
    objectClass: groupOfNames
    cn: static
    member: cn=Bo,ou=People,dc=example,dc=com
    member: cn=with mail,ou=Groups,dc=example,dc=com
    member: cn=round,ou=Groups,dc=example,dc=com

    dn: cn=round,ou=Groups,dc=example,dc=com
    objectClass: groupOfNames
    cn: round
    member: cn=static,ou=Groups,dc=example,dc=com

    dn: cn=list,ou=Groups,dc=example,dc=com
    objectClass: groupOfURLs
    cn: list
    memberURL: ldap:///ou=People,dc=example,dc=com?mail,sn?sub?(objectClass=inetOrgPerson)
";

const GROUP: &str = "dynlist-attrset groupOfURLs memberURL member";
const MEMBER_OF: &str = "dynlist-attrset groupOfURLs memberURL member+memberOf@groupOfNames";
const NESTED: &str = "dynlist-attrset groupOfURLs memberURL member+memberOf@groupOfNames*";
const OPEN: &[&str] = &["to * by * read"];

fn directory(lines: &str, rules: &[&str]) -> Fixture<MemoryStore> {
    let mut fixture = ruled(&[(&DESCRIPTOR, lines)], rules);
    fixture.apply(TREE);
    fixture.apply(MORE);
    fixture.bind("");
    fixture
}

fn check(fixture: &Fixture<MemoryStore>, cases: &[(&str, &[&str], &str)]) {
    for (filter, attributes, expected) in cases {
        assert_eq!(found(fixture, filter, attributes), *expected, "{filter} {attributes:?}");
    }
}

#[test]
fn groups_have_what_their_urls_find() {
    for lines in [GROUP, "dynlist-attrpair member memberURL", "attrpair member memberURL"] {
        have_what_their_urls_find(&directory(lines, OPEN));
    }
}

fn have_what_their_urls_find(fixture: &Fixture<MemoryStore>) {
    check(
        fixture,
        &[
            ("(cn=with mail)", &["member"], "with mail: member=Ann Lee"),
            ("(cn=all)", &["member"], "all: member=Bo|with mail"),
            ("(member=cn=ann lee,ou=people,dc=example,dc=com)", &["1.1"], "with mail"),
            ("(member=cn=bo,ou=people,dc=example,dc=com)", &["1.1"], "all; static"),
            ("(&(member=cn=bo,ou=people,dc=example,dc=com)(cn=all))", &["1.1"], "all"),
            ("(&(objectClass=groupOfURLs)(!(member=*)))", &["1.1"], "list"),
            ("(cn=ann lee)", &["memberOf"], "Ann Lee"),
            // A URL with attributes is a list's.
            ("(cn=list)", &["member"], "list"),
        ],
    );
}

#[test]
fn entries_tell_their_groups() {
    check(
        &directory(MEMBER_OF, OPEN),
        &[
            ("(cn=ann lee)", &["memberOf"], "Ann Lee: memberOf=with mail"),
            ("(cn=bo)", &["memberOf"], "Bo: memberOf=all|static"),
            ("(cn=with mail)", &["memberOf"], "with mail: memberOf=all|static"),
            ("(memberOf=cn=static,ou=groups,dc=example,dc=com)", &["1.1"], "Bo; round; with mail"),
            ("(memberOf=cn=all,ou=groups,dc=example,dc=com)", &["1.1"], "Bo; with mail"),
            ("(memberOf=cn=nothing,ou=groups,dc=example,dc=com)", &["1.1"], ""),
            ("(&(cn=bo)(memberOf=cn=with mail,ou=groups,dc=example,dc=com))", &["1.1"], ""),
            ("(&(sn=*)(memberOf=cn=with mail,ou=groups,dc=example,dc=com))", &["1.1"], "Ann Lee"),
            ("(&(sn=*)(!(memberOf=cn=all,ou=groups,dc=example,dc=com)))", &["1.1"], "Ann Lee"),
            ("(memberOf=*)", &["1.1"], "Ann Lee; Bo; round; static; with mail"),
        ],
    );
}

#[test]
fn groups_of_groups_are_followed() {
    check(
        &directory(NESTED, OPEN),
        &[
            ("(cn=ann lee)", &["memberOf"], "Ann Lee: memberOf=all|round|static|with mail"),
            ("(cn=bo)", &["memberOf"], "Bo: memberOf=all|round|static"),
            ("(cn=static)", &["memberOf"], "static: memberOf=round|static"),
            ("(cn=all)", &["member"], "all: member=Ann Lee|Bo|with mail"),
            ("(cn=round)", &["member"], "round: member=Ann Lee|Bo|round|static|with mail"),
            ("(member=cn=ann lee,ou=people,dc=example,dc=com)", &["1.1"], "all; round; static; with mail"),
            (
                "(memberOf=cn=round,ou=groups,dc=example,dc=com)",
                &["1.1"],
                "Ann Lee; Bo; round; static; with mail",
            ),
            ("(memberOf=cn=all,ou=groups,dc=example,dc=com)", &["1.1"], "Ann Lee; Bo; with mail"),
        ],
    );
}

#[test]
fn lists_take_attributes_over() {
    check(
        &directory("dynlist-attrset groupOfURLs memberURL", OPEN),
        &[
            ("(cn=list)", &["mail", "sn"], "list: mail=ann@example.com, sn=Bo|Lee"),
            ("(cn=list)", &["mail"], "list: mail=ann@example.com"),
            // Filters see what is mapped, and nothing else.
            ("(&(cn=list)(mail=*))", &["mail"], ""),
        ],
    );
    check(
        &directory("dynlist-attrset groupOfURLs memberURL mail:mail description:sn", OPEN),
        &[
            ("(cn=list)", &["mail", "sn", "description"], "list: description=Bo|Lee, mail=ann@example.com"),
            ("(&(objectClass=groupOfURLs)(mail=ann@example.com))", &["1.1"], "list; with mail"),
            ("(&(objectClass=groupOfURLs)(description=lee))", &["1.1"], "list; with mail"),
        ],
    );
    check(
        &directory("dynlist-attrset groupOfURLs memberURL mail:mail\ndynlist-simple", OPEN),
        &[
            ("(cn=list)", &["mail"], "list: mail=ann@example.com"),
            ("(&(objectClass=groupOfURLs)(mail=ann@example.com))", &["1.1"], ""),
        ],
    );
}

#[test]
fn a_set_may_be_restricted() {
    let lines =
        "dynlist-attrset groupOfURLs ldap:///ou=Groups,dc=example,dc=com??one?(cn=all) memberURL member";
    check(
        &directory(lines, OPEN),
        &[
            ("(cn=all)", &["member"], "all: member=Bo|with mail"),
            ("(cn=with mail)", &["member"], "with mail"),
            ("(member=cn=ann lee,ou=people,dc=example,dc=com)", &["1.1"], ""),
        ],
    );
}

#[test]
fn requesters_find_what_they_may_search() {
    let hidden = &["to attrs=mail by * none", "to * by * read"];
    check(
        &directory(MEMBER_OF, hidden),
        &[
            ("(cn=with mail)", &["member"], "with mail"),
            ("(cn=ann lee)", &["memberOf"], "Ann Lee"),
            ("(memberOf=cn=with mail,ou=groups,dc=example,dc=com)", &["1.1"], ""),
            ("(member=cn=ann lee,ou=people,dc=example,dc=com)", &["1.1"], ""),
        ],
    );
    let hidden = &["to attrs=memberOf by * none", "to * by * read"];
    check(
        &directory(MEMBER_OF, hidden),
        &[
            ("(cn=bo)", &["memberOf"], "Bo"),
            ("(memberOf=cn=static,ou=groups,dc=example,dc=com)", &["1.1"], ""),
        ],
    );
    let hidden = &["to dn.base=cn=static,ou=Groups,dc=example,dc=com by * none", "to * by * read"];
    check(
        &directory(NESTED, hidden),
        &[
            ("(cn=bo)", &["memberOf"], "Bo: memberOf=all"),
            ("(cn=round)", &["member"], "round: member=static"),
            ("(memberOf=cn=static,ou=groups,dc=example,dc=com)", &["1.1"], ""),
            ("(memberOf=cn=round,ou=groups,dc=example,dc=com)", &["1.1"], ""),
            ("(&(sn=bo)(memberOf=cn=static,ou=groups,dc=example,dc=com))", &["1.1"], ""),
        ],
    );
    // A rule that asks for groups is asked by them.
    let asking = &[
        "to attrs=mail by set=\"this/memberOf & [cn=with mail,ou=groups,dc=example,dc=com]\" read",
        "to * by * read",
    ];
    check(
        &directory(MEMBER_OF, asking),
        &[("(cn=ann lee)", &["memberOf", "mail"], "Ann Lee: mail=ann@example.com, memberOf=with mail")],
    );
}

const IDENTITY: &str = "
    dn: cn=as ann,ou=Groups,dc=example,dc=com
    objectClass: groupOfURLs
    objectClass: dgIdentityAux
    cn: as ann
    memberURL: ldap:///ou=People,dc=example,dc=com??sub?(mail=*)
    dgIdentity: cn=Ann Lee,ou=People,dc=example,dc=com

    dn: cn=for bo,ou=Groups,dc=example,dc=com
    objectClass: groupOfURLs
    objectClass: dgIdentityAux
    cn: for bo
    memberURL: ldap:///ou=People,dc=example,dc=com??sub?(mail=*)
    dgIdentity: cn=Ann Lee,ou=People,dc=example,dc=com
    dgAuthz: dn:cn=Bo,ou=People,dc=example,dc=com
";

#[test]
fn groups_may_be_found_as_somebody_else() {
    let rules =
        &["to attrs=mail by dn.base=\"cn=Ann Lee,ou=People,dc=example,dc=com\" read", "to * by * read"];
    let by_pattern = IDENTITY.replace("dn:cn=Bo,", "dn.regex:^cn=[bo\\]+,");
    let for_users = IDENTITY.replace("dn:cn=Bo,ou=People,dc=example,dc=com", "*");
    for (who, identity, as_ann, for_bo) in [
        ("", IDENTITY, "as ann: member=Ann Lee", "for bo"),
        ("cn=Bo,ou=People,dc=example,dc=com", IDENTITY, "as ann: member=Ann Lee", "for bo: member=Ann Lee"),
        ("", &by_pattern, "as ann: member=Ann Lee", "for bo"),
        (
            "cn=Bo,ou=People,dc=example,dc=com",
            &by_pattern,
            "as ann: member=Ann Lee",
            "for bo: member=Ann Lee",
        ),
        ("", &for_users, "as ann: member=Ann Lee", "for bo"),
        ("cn=Bo,ou=People,dc=example,dc=com", &for_users, "as ann: member=Ann Lee", "for bo: member=Ann Lee"),
    ] {
        let mut fixture = ruled(&[(&DESCRIPTOR, GROUP)], rules);
        fixture.apply(TREE);
        fixture.apply(identity);
        fixture.bind(who);
        assert_eq!(found(&fixture, "(cn=as ann)", &["member"]), as_ann, "{who}");
        assert_eq!(found(&fixture, "(cn=for bo)", &["member"]), for_bo, "{who}");
    }
}

/// Each pattern is compiled, and one that repeats a part costs 10,000 steps. A compare has 100,000.
#[test]
fn authorizations_cost_the_request_steps() {
    for (patterns, code) in [(2, 6), (15, 11)] {
        let mut fixture = ruled(&[(&DESCRIPTOR, GROUP)], &["to * by * read"]);
        fixture.apply(TREE);
        fixture.apply(IDENTITY);
        let group = format!("cn=as ann,ou=Groups,{SUFFIX}");
        let values: String = (0..patterns).map(|n| format!("dgAuthz: dn.regex:^cn=x{{1,9}}{n}\n")).collect();
        let (ann, bo) = (format!("cn=Ann Lee,ou=People,{SUFFIX}"), format!("cn=Bo,ou=People,{SUFFIX}"));
        fixture
            .apply(&format!("dn: {group}\nchangetype: modify\nadd: dgAuthz\n{values}dgAuthz: dn:{bo}\n-\n"));
        fixture.bind(&bo);
        assert_eq!(compared(&fixture, &group, "member", &ann), code, "{patterns} patterns");
    }
}

/// Values of dgAuthz are in an order (X-ORDERED 'VALUES').
#[test]
fn authorizations_are_numbered() {
    let fixture = ruled(&[(&DESCRIPTOR, GROUP)], &[]);
    fixture.apply(TREE);
    fixture.apply(IDENTITY);
    let group = format!("cn=for bo,ou=Groups,{SUFFIX}");
    let values = |fixture: &Fixture<MemoryStore>| {
        let shown = fixture.show(&group);
        let values: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("dgAuthz: ")).collect();
        values.join(" ").replace(",ou=People,dc=example,dc=com", "")
    };
    assert_eq!(values(&fixture), "{0}dn:cn=Bo");
    for (change, expected) in [
        ("add: dgAuthz\ndgAuthz: dn:cn=x\ndgAuthz: dn:cn=y", "{0}dn:cn=Bo {1}dn:cn=x {2}dn:cn=y"),
        ("delete: dgAuthz\ndgAuthz: dn:cn=x", "{0}dn:cn=Bo {2}dn:cn=y"),
        ("add: dgAuthz\ndgAuthz: {7}dn:cn=z", "{0}dn:cn=Bo {2}dn:cn=y {3}dn:cn=z"),
        ("delete: dgAuthz\n-\nadd: dgAuthz\ndgAuthz: dn:cn=x", "{0}dn:cn=x"),
        ("replace: dgAuthz\ndgAuthz: dn:cn=y\ndgAuthz: dn:cn=x", "{0}dn:cn=y {1}dn:cn=x"),
        ("replace: description\ndescription: x", "{0}dn:cn=y {1}dn:cn=x"),
    ] {
        fixture.apply(&format!("dn: {group}\nchangetype: modify\n{change}\n"));
        assert_eq!(values(&fixture), expected, "{change}");
    }
}

#[test]
fn compares_are_answered_by_urls() {
    let ann = format!("cn=Ann Lee,ou=People,{SUFFIX}");
    for lines in [GROUP, MEMBER_OF, NESTED, "dynlist-attrset groupOfURLs memberURL member\ndynlist-simple"] {
        let fixture = directory(lines, OPEN);
        let group = |name: &str| format!("cn={name},ou=Groups,{SUFFIX}");
        assert_eq!(compared(&fixture, &group("with mail"), "member", &ann), 6, "{lines}");
        assert_eq!(compared(&fixture, &group("with mail"), "member", "cn=x,dc=example,dc=com"), 5, "{lines}");
        assert_eq!(compared(&fixture, &group("list"), "member", &ann), 5, "{lines}");
        let tells = lines.contains("memberOf");
        let code = if tells { 6 } else { 16 };
        assert_eq!(compared(&fixture, &ann, "memberOf", &group("with mail")), code, "{lines}");
    }
}

/// What is remembered of groups is that of the latest commit.
#[test]
fn changes_of_groups_are_seen_at_once() {
    let mut fixture = directory(MEMBER_OF, &[]);
    let is_in = |fixture: &Fixture<MemoryStore>| found(fixture, "(cn=ann lee)", &["memberOf"]);
    assert_eq!(is_in(&fixture), "Ann Lee: memberOf=with mail");
    fixture.bind("cn=Manager,dc=example,dc=com");
    for (change, expected) in [
        (
            "cn=static\nchangetype: modify\nadd: member\nmember: cn=Ann Lee,ou=People,dc=example,dc=com",
            "static|with mail",
        ),
        ("cn=with mail\nchangetype: delete", "static"),
        (
            "cn=all\nchangetype: modify\nreplace: memberURL\nmemberURL: ldap:///ou=People,dc=example,dc=com??sub?(sn=lee)",
            "all|static",
        ),
        ("cn=all\nchangetype: modrdn\nnewrdn: cn=every\ndeleteoldrdn: 1", "every|static"),
    ] {
        let change = change.replacen('\n', ",ou=Groups,dc=example,dc=com\n", 1);
        fixture.apply(&format!("dn: {change}\n"));
        assert_eq!(is_in(&fixture), format!("Ann Lee: memberOf={expected}"), "{change}");
    }
}

#[test]
fn members_stored_in_a_group_by_url_are_in_no_member_of() {
    for lines in ["dynlist-attrset groupOfURLs memberURL member+memberOf", MEMBER_OF, NESTED] {
        let mut fixture = directory(lines, OPEN);
        fixture.bind("cn=Manager,dc=example,dc=com");
        fixture.apply(&format!(
            "dn: cn=with mail,ou=Groups,{SUFFIX}\nchangetype: modify\nadd: objectClass\nobjectClass: extensibleObject\n-\n\
             add: member\nmember: cn=Bo,ou=People,{SUFFIX}\n"
        ));
        let asked = "(memberOf=cn=with mail,ou=groups,dc=example,dc=com)";
        // The same, looked at in each entry.
        let looked_at = format!("(&(cn=*)(|(memberOf=x)(!(!{asked}))))");
        check(
            &fixture,
            &[
                ("(cn=with mail)", &["member"], "with mail: member=Ann Lee|Bo"),
                (asked, &["1.1"], "Ann Lee"),
                (looked_at.as_str(), &["1.1"], "Ann Lee"),
            ],
        );
    }
}

/// Reads of the store for a filter behind a change, with so many groups that have nothing to do with it.
fn reads_beside(groups: usize) -> u64 {
    let schema = schema(larix_schema::bundled("dyngroup").unwrap());
    let mut settings = settings(&schema);
    let overlay = build(&DESCRIPTOR, &schema, NESTED).unwrap();
    for (attribute, kinds) in overlay.indexes() {
        settings.index.also(attribute, kinds);
    }
    settings.overlays.push(overlay);
    let store = SharedStore::new(&TABLES).unwrap();
    let fixture = Fixture::of(schema, vec![(store.another(), settings)]);
    fixture.apply(TREE);
    let group = |name: &str, member: &str| {
        format!(
            "dn: cn={name},ou=Groups,{SUFFIX}\nchangetype: add\nobjectClass: groupOfNames\ncn: {name}\nmember: {member},{SUFFIX}\n"
        )
    };
    for number in 0..groups {
        fixture.apply(&group(&format!("o{number}"), "cn=Ann Lee,ou=People"));
    }
    fixture.apply(&group("inner", "cn=Bo,ou=People"));
    fixture.apply(&group("outer", "cn=inner,ou=Groups"));
    let filter = format!("(memberOf=cn=outer,ou=groups,{SUFFIX})");
    assert_eq!(found(&fixture, &filter, &["1.1"]), "Bo; inner");
    let change =
        format!("dn: cn=inner,ou=Groups,{SUFFIX}\nchangetype: modify\nadd: member\nmember: {SUFFIX}\n");
    fixture.apply(&change);
    let before = store.trips();
    assert_eq!(found(&fixture, &filter, &["1.1"]), "Bo; inner; suffix");
    store.trips() - before
}

#[test]
fn nested_groups_are_walked_from_the_one_asked_for() {
    let (few, many) = (reads_beside(2), reads_beside(300));
    assert!(many <= few + 2, "{few} reads beside 2 groups, {many} beside 300");
}

#[test]
fn mistakes_are_named() {
    let schema = schema(larix_schema::bundled("dyngroup").unwrap());
    for (lines, fault) in [
        ("dynlist-attrset nothing memberURL", "the object class \"nothing\" is unknown; include the schema"),
        ("dynlist-attrset groupOfURLs", "the attribute of the URLs is missing"),
        ("dynlist-attrset groupOfURLs cn", "the attribute \"cn\" is no subtype of labeledURI"),
        ("dynlist-attrset groupOfURLs memberURL member+memberOf uniqueMember+memberOf", "only a group says"),
        ("dynlist-attrset groupOfURLs memberURL uniqueMember:member+memberOf", "only a group says"),
        (
            "dynlist-attrset groupOfURLs ldap:///?cn memberURL",
            "it names attributes; leave that out: ldap:///",
        ),
        ("dynlist-attrset groupOfURLs ldap://h/ memberURL", "it names a server"),
        ("dynlist-attrset groupOfURLs ldap:///nobody memberURL", "not a DN"),
        ("dynlist-attrset groupOfURLs ldap:///??sub?(cn memberURL", "\"ldap:///??sub?(cn\":"),
        ("dynlist-attrset groupOfURLs memberURL nothing", "attribute \"nothing\""),
        ("dynlist-attrset groupOfURLs memberURL member+nothing", "attribute \"nothing\""),
        ("dynlist-attrset groupOfURLs memberURL member+memberOf@nothing", "the object class \"nothing\""),
        ("dynlist-attrset groupOfURLs memberURL nothing:member", "attribute \"nothing\""),
    ] {
        let error = build(&DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(fault) && error.contains("dynlist-attrset"), "{lines}: {error}");
    }
    // Without dyngroup.schema there is no set to begin with.
    let error = build(&DESCRIPTOR, &crate::testing::schema(""), "").map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("the object class \"groupOfURLs\" is unknown"), "{error}");
}

/// What is remembered of a group holds for one commit alone.
#[test]
fn members_that_were_asked_for_before_follow_changes() {
    let fixture = ruled(&[(&DESCRIPTOR, NESTED)], &[]);
    fixture.apply(TREE);
    let (people, groups) = (format!("ou=People,{SUFFIX}"), format!("ou=Groups,{SUFFIX}"));
    fixture.apply(&format!(
        "dn: cn=inner,{groups}\nchangetype: add\nobjectClass: groupOfNames\ncn: inner\nmember: cn=Bo,{people}\n\n\
         dn: cn=outer,{groups}\nchangetype: add\nobjectClass: groupOfNames\ncn: outer\nmember: cn=inner,{groups}\n"
    ));
    let of = |group: &str| found(&fixture, &format!("(memberOf=cn={group},{groups})"), &["1.1"]);
    for (change, expected) in [
        (String::new(), ("Bo", "Bo; inner")),
        (
            format!("dn: cn=inner,{groups}\nchangetype: modify\nadd: member\nmember: cn=New,{people}\n"),
            ("Bo", "Bo; inner"),
        ),
        // A member whose entry comes later, one that goes, and one that is called otherwise.
        (
            format!("dn: cn=New,{people}\nchangetype: add\nobjectClass: person\ncn: New\nsn: n\n"),
            ("Bo; New", "Bo; New; inner"),
        ),
        (format!("dn: cn=Bo,{people}\nchangetype: delete\n"), ("New", "New; inner")),
        (
            format!("dn: cn=New,{people}\nchangetype: modrdn\nnewrdn: cn=Old\ndeleteoldrdn: 1\n"),
            ("", "inner"),
        ),
        (
            format!("dn: cn=outer,{groups}\nchangetype: modify\nreplace: member\nmember: cn=Old,{people}\n"),
            ("", "Old"),
        ),
    ] {
        if !change.is_empty() {
            fixture.apply(&change);
        }
        for _ in 0..2 {
            assert_eq!((of("inner").as_str(), of("outer").as_str()), expected, "{change}");
        }
    }
}

/// As before, where no group is in another one: only the group that is asked for is looked at.
#[test]
fn one_group_is_asked_about_alone() {
    let fixture = ruled(&[(&DESCRIPTOR, MEMBER_OF)], &[]);
    fixture.apply(TREE);
    let (people, groups) = (format!("ou=People,{SUFFIX}"), format!("ou=Groups,{SUFFIX}"));
    let stored = |name: &str, member: &str| {
        format!(
            "dn: cn={name},{groups}\nchangetype: add\nobjectClass: groupOfNames\ncn: {name}\nmember: {member}\n\n"
        )
    };
    fixture.apply(&(stored("a", &format!("cn=Bo,{people}")) + &stored("b", &format!("cn=a,{groups}"))));
    let of = |group: &str| {
        let asked = format!("(memberOf=cn={group},{groups})");
        let by_index = found(&fixture, &asked, &["1.1"]);
        // The same, looked at in each entry.
        assert_eq!(found(&fixture, &format!("(&(cn=*)(|(memberOf=x)(!(!{asked}))))"), &["1.1"]), by_index);
        by_index
    };
    let modify = |name: &str, lines: &str| format!("dn: cn={name},{groups}\nchangetype: modify\n{lines}\n");
    for (change, expected) in [
        (String::new(), ["Bo", "a", "", ""]),
        (modify("a", &format!("add: member\nmember: cn=New,{people}")), ["Bo", "a", "", ""]),
        (
            format!("dn: cn=New,{people}\nchangetype: add\nobjectClass: person\ncn: New\nsn: n\n"),
            ["Bo; New", "a", "", ""],
        ),
        (
            format!(
                "dn: cn=c,{groups}\nchangetype: add\nobjectClass: groupOfURLs\ncn: c\n\
                 memberURL: ldap:///{people}??sub?(sn=n)\n"
            ),
            ["Bo; New", "a", "New", ""],
        ),
        (
            modify("c", &format!("replace: memberURL\nmemberURL: ldap:///{people}??one?(cn=Bo)")),
            ["Bo; New", "a", "Bo", ""],
        ),
        (
            format!("dn: cn=Bo,{people}\nchangetype: modify\nreplace: sn\nsn: other\n"),
            ["Bo; New", "a", "Bo", ""],
        ),
        (format!("dn: cn=Bo,{people}\nchangetype: delete\n"), ["New", "a", "", ""]),
        (
            format!("dn: cn=a,{groups}\nchangetype: modrdn\nnewrdn: cn=d\ndeleteoldrdn: 1\n"),
            ["", "", "", "New"],
        ),
        (
            format!("dn: cn=New,{people}\nchangetype: modrdn\nnewrdn: cn=Old\ndeleteoldrdn: 1\n"),
            ["", "", "", ""],
        ),
        (modify("b", &format!("add: member\nmember: cn=Old,{people}")), ["", "Old", "", ""]),
        (format!("dn: cn=b,{groups}\nchangetype: delete\n"), ["", "", "", ""]),
        (stored("b", &format!("cn=c,{groups}")), ["", "c", "", ""]),
    ] {
        if !change.is_empty() {
            fixture.apply(&change);
        }
        for _ in 0..2 {
            assert_eq!(["a", "b", "c", "d"].map(of), expected, "{change}");
        }
    }
}
