//! Which searches are answered at once, and that nothing of an earlier one is answered then. [`Fixture::search`] compares each with
//! the answer of a task, in all tests of this crate.

use std::sync::Arc;

use larix_proto::{DerefAliases, Scope};
use larix_schema::{Schema, SchemaBuilder};
use larix_store::Store;
use larix_store::memory::MemoryStore;

use crate::access::Subject;
use crate::database::{DatabaseSettings, HardLimit, Limits};
use crate::fixture::{Attributes, Fixture, SUFFIX, SearchSpec, schema};

const INDEXES: &[(&str, &str)] = &[("uid,mail,sn,objectClass", "eq")];

const PEOPLE: &str = "\
dn: dc=example,dc=com
objectClass: domain
dc: example

dn: ou=People,dc=example,dc=com
objectClass: organizationalUnit
ou: People

dn: uid=ann,ou=People,dc=example,dc=com
objectClass: inetOrgPerson
uid: ann
cn: Ann
sn: Smith
mail: ann@example.com
mail: smith@example.com
description: here
employeeType: chief

dn: uid=bob,dc=example,dc=com
objectClass: inetOrgPerson
uid: bob
cn: Bob
cn;lang-de: Robert
sn: Smith
mail: bob@example.com
";

const REFERRAL: &str = "\
dn: ou=Elsewhere,dc=example,dc=com
objectClass: referral
objectClass: extensibleObject
ou: Elsewhere
uid: elsewhere
ref: ldap://other.example.com/
";

/// How many entries a search is answered with at once; `None`: it is none of that kind. It is asked twice, for a base is known then.
fn direct(fixture: &Fixture<MemoryStore>, spec: &SearchSpec<'_>) -> Option<u32> {
    fixture.search(spec);
    fixture.direct(spec).map(|(_, entries)| entries)
}

fn below(filter: &str) -> SearchSpec<'_> {
    SearchSpec { filter, ..SearchSpec::default() }
}

#[test]
fn usual_searches_are_answered_at_once() {
    let fixture = Fixture::memory(INDEXES, PEOPLE);
    for (filter, want) in [
        ("(uid=ANN)", Some(1)),
        ("(&(uid=ann)(description=here))", Some(1)),
        ("(&(description=here)(uid=ann))", Some(1)),
        ("(&(uid=ann)(description=there))", Some(0)),
        ("(&(uid=ann)(telephoneNumber=1))", None),
        ("(&(uid=ann)(mail=smith@example.com)(objectClass=person)(sn=*))", Some(1)),
        ("(uid=nobody)", Some(0)),
        ("(sn=smith)", Some(2)),
        // No index, several descriptions, values that are none, other tests.
        ("(description=here)", None),
        ("(cn=ann)", None),
        ("(name=ann)", None),
        ("(uid=)", None),
        ("(uid=a*)", None),
        ("(|(uid=ann)(uid=bob))", None),
        ("(!(uid=ann))", None),
        ("(nothing=ann)", None),
        ("(&)", None),
        ("(&(uid=ann)(sn=*)(mail=*)(uid=*)(description=*))", None),
    ] {
        assert_eq!(direct(&fixture, &below(filter)), want, "{filter}");
    }
    let people = SearchSpec { base: "OU=people,dc=example,dc=com", ..below("(sn=smith)") };
    assert_eq!(direct(&fixture, &people), Some(1));
    let one = SearchSpec { scope: Scope::OneLevel, ..below("(uid=bob)") };
    assert_eq!(direct(&fixture, &one), None);
    let aliases = SearchSpec { deref: DerefAliases::Always, ..below("(uid=bob)") };
    assert_eq!(direct(&fixture, &aliases), None);
    assert_eq!(direct(&fixture, &SearchSpec { size_limit: 1, ..below("(sn=smith)") }), None);
    assert_eq!(direct(&fixture, &SearchSpec { size_limit: 2, ..below("(sn=smith)") }), Some(2));
    assert_eq!(direct(&fixture, &SearchSpec { types_only: true, ..below("(uid=bob)") }), Some(1));
    let some = SearchSpec { attributes: &["mail", "entryDN", "+"], ..below("(uid=ann)") };
    assert_eq!(direct(&fixture, &some), Some(1));
}

#[test]
fn own_entries_are_told_from_others() {
    let namesake = "dn: uid=ann,dc=example,dc=com\nobjectClass: account\nuid: ann\n";
    let mut fixture = Fixture::memory(INDEXES, &format!("{PEOPLE}\n{namesake}"));
    let names = fixture.search(&SearchSpec::default()).entries.into_iter().map(|(dn, _)| dn);
    let names: Vec<String> = names.collect();
    assert_eq!(names.len(), 5);
    let bound_as = |dn: &str| Subject::default().bound_as(schema().parse_dn(dn).expect(dn), dn);
    let all = below("(objectClass=*)");
    for own in &names {
        for (who, subject) in [
            ("self", bound_as(own)),
            ("realself", bound_as(own).acting_as(schema().parse_dn("cn=other").expect("a DN"), "cn=other")),
        ] {
            fixture.restrict(&[&format!("to attrs=objectClass by {who} read by * search"), "to * by * read"]);
            fixture.subject = Arc::new(subject);
            let read = names.iter().map(|base| SearchSpec { base, scope: Scope::Base, ..all.clone() });
            for spec in read.chain([all.clone(), below("(uid=ann)")]) {
                for (dn, attributes) in fixture.search(&spec).entries {
                    let shows = attributes.iter().any(|(name, _)| name == "objectClass");
                    assert_eq!(shows, dn == *own, "{dn} for {who} as {own}");
                    assert!(attributes.len() > usize::from(shows), "{dn} for {who} as {own}");
                }
            }
        }
    }
}

#[test]
fn who_was_searched_for_is_found_by_name() {
    let fixture = Fixture::memory(INDEXES, PEOPLE);
    let is_known = |dn: &str| {
        let snapshot = fixture.database.store().snapshot().expect("a snapshot");
        let view = fixture.database.view(&snapshot).expect("a view");
        let located = view.locate(&schema().parse_dn(dn).expect(dn)).expect("no fault").expect("a suffix");
        assert!(located.resolved.id.is_some(), "{dn}");
        located.stored.is_some()
    };
    // From then on the superior of both is known.
    assert!(!is_known("ou=People,dc=example,dc=com"));
    assert_eq!(direct(&fixture, &below("(uid=bob)")), Some(1));
    assert!(is_known("uid=bob,dc=example,dc=com"));
}

#[test]
fn a_superior_that_was_asked_for_last_is_forgotten_with_the_others() {
    const X: &str = "uid=x,ou=Rooms,dc=example,dc=com";
    const ROOMS: &str = "ou=Rooms,dc=example,dc=com";
    let fixture = Fixture::memory(INDEXES, PEOPLE);
    let load = || {
        fixture.load(&format!("dn: {ROOMS}\nobjectClass: organizationalUnit\nou: Rooms\n"));
        fixture.load(&format!("dn: {X}\nobjectClass: account\nuid: x\n"));
    };
    let snapshot = || fixture.database.store().snapshot().expect("a snapshot");
    let found = |snapshot: &_, dn: &str| {
        let view = fixture.database.view(snapshot).expect("a view");
        let located = view.locate(&schema().parse_dn(dn).expect(dn)).expect("no fault").expect("a suffix");
        located.resolved.id.map(|id| id.0)
    };
    let before_all = snapshot();
    load();
    let before = snapshot();
    let first = found(&before, X);
    for _ in 0..3 {
        assert!(first.is_some() && found(&before, X) == first, "the last one");
        assert!(found(&before, "uid=ann,ou=People,dc=example,dc=com").is_some(), "another one in between");
        assert_eq!(found(&before_all, X), None, "what is older has no such superior");
    }
    fixture.delete(X);
    fixture.delete(ROOMS);
    let between = snapshot();
    load();
    let after = snapshot();
    for _ in 0..3 {
        assert!(found(&after, X) > first);
        assert_eq!(found(&between, X), None);
        assert_eq!(found(&before, X), first);
    }
}

#[test]
fn an_entry_is_read_at_once() {
    let fixture = Fixture::memory(INDEXES, PEOPLE);
    let base = |base, filter| SearchSpec { base, scope: Scope::Base, ..below(filter) };
    for (name, filter, want) in [
        ("uid=ann,ou=People,dc=example,dc=com", "(objectClass=*)", Some(1)),
        ("UID=Ann, ou=people,dc=example,dc=com", "(OBJECTCLASS=*)", Some(1)),
        ("uid=ann,ou=People,dc=example,dc=com", "(&(objectClass=person)(sn=smith))", Some(1)),
        ("uid=ann,ou=People,dc=example,dc=com", "(sn=jones)", Some(0)),
        ("uid=ann,ou=People,dc=example,dc=com", "(sn>=jones)", None),
        (SUFFIX, "(objectClass=*)", Some(1)),
        ("uid=nobody,dc=example,dc=com", "(objectClass=*)", None),
        ("", "(objectClass=*)", None),
    ] {
        assert_eq!(direct(&fixture, &base(name, filter)), want, "{name} {filter}");
    }
}

/// They are answered beside what the filter finds, and stand for what is below them.
#[test]
fn referrals_are_left_to_a_task() {
    let fixture = Fixture::memory(INDEXES, PEOPLE);
    let base = |base| SearchSpec { base, scope: Scope::Base, ..SearchSpec::default() };
    assert_eq!(direct(&fixture, &below("(uid=ann)")), Some(1));
    fixture.load(REFERRAL);
    assert_eq!(direct(&fixture, &below("(uid=ann)")), None);
    assert_eq!(direct(&fixture, &base("uid=ann,ou=People,dc=example,dc=com")), Some(1));
    assert_eq!(direct(&fixture, &base("ou=Elsewhere,dc=example,dc=com")), None);
    assert_eq!(direct(&fixture, &base("uid=x,ou=Elsewhere,dc=example,dc=com")), None);
}

#[test]
fn many_candidates_are_left_to_a_task() {
    let people = |count: usize| {
        let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
        for i in 0..count {
            ldif.push_str(&format!(
                "\ndn: uid=p{i},{SUFFIX}\nobjectClass: inetOrgPerson\nuid: p{i}\ncn: p\nsn: s\n"
            ));
        }
        Fixture::memory(INDEXES, &ldif)
    };
    assert_eq!(direct(&people(8), &below("(sn=s)")), Some(8));
    assert_eq!(direct(&people(9), &below("(sn=s)")), None);
    assert_eq!(direct(&people(9), &below("(&(sn=s)(uid=p3))")), Some(1));
}

#[test]
fn rights_that_differ_between_entries_are_left_to_a_task() {
    let mut fixture = Fixture::memory(INDEXES, PEOPLE);
    let ann = below("(&(uid=ann)(sn=smith))");
    assert_eq!(direct(&fixture, &ann), Some(1));
    // The same request under other rules, one after the other.
    for (rules, want) in [
        (&["to attrs=sn by * none", "to * by * read"][..], None),
        (&["to * by * read"], Some(1)),
        (&["to attrs=mail by * none", "to * by * read"], Some(1)),
        (&["to dn.exact=\"uid=ann,ou=People,dc=example,dc=com\" attrs=sn by * none", "to * by * read"], None),
        // It is found, and not shown.
        (&["to attrs=entry by * search", "to * by * read"], Some(0)),
        (&["to attrs=entry by * none", "to * by * read"], None),
        (&["to * by * none"], None),
    ] {
        fixture.restrict(rules);
        // What the rules say to a subject is kept there; one that was asked for under other rules is asked about entry by entry.
        assert!(direct(&fixture, &ann).is_none_or(|found| Some(found) == want), "{rules:?}");
        fixture.subject = Arc::default();
        assert_eq!(direct(&fixture, &ann), want, "{rules:?}");
    }
}

/// Short attributes are copied in steps, and what the step has beside the value, or what stands near the end of a record, is no
/// attribute's.
#[test]
fn attributes_of_all_lengths_are_answered_as_they_are_stored() {
    let fixture = Fixture::memory(INDEXES, PEOPLE);
    let mut want: Vec<(String, Attributes)> = Vec::new();
    for length in (0..140).chain([200, 254, 255, 256, 300, 1_100]) {
        let uid = format!("v{length}");
        let value = |fill: char| std::iter::repeat_n(fill, length + 1).collect::<String>();
        let mut attributes = vec![
            ("objectClass", vec!["inetOrgPerson".to_owned()]),
            ("uid", vec![uid.clone()]),
            ("description", vec![value('d'), "short".to_owned()]),
            ("cn", vec![value('c')]),
            ("cn;lang-de", vec![value('e')]),
            ("sn", vec!["S".to_owned()]),
            ("employeeNumber", (0..length % 50).map(|number| format!("{number}")).collect()),
            ("title", vec![value('t')]),
        ];
        // Another one is the last each time.
        let behind = length % 5;
        attributes.get_mut(2..).expect("attributes").rotate_left(behind);
        attributes.retain(|(_, values)| !values.is_empty());
        let dn = format!("uid={uid},{SUFFIX}");
        let lines = attributes
            .iter()
            .flat_map(|(name, values)| values.iter().map(move |value| format!("{name}: {value}\n")));
        fixture.load(&format!("dn: {dn}\n{}", lines.collect::<String>()));
        want.push((dn, attributes.into_iter().map(|(name, values)| (name.to_owned(), values)).collect()));
    }
    for rules in [
        &[][..],
        &["to attrs=sn,title by * none", "to attrs=description val.regex=d by * none", "to * by * read"],
    ] {
        if !rules.is_empty() {
            fixture.restrict(rules);
        }
        for (dn, attributes) in &want {
            let mut attributes = attributes.clone();
            if !rules.is_empty() {
                attributes.retain(|(name, _)| name != "sn" && name != "title");
                let descriptions = attributes.iter_mut().filter(|(name, _)| name == "description");
                descriptions.for_each(|(_, values)| values.retain(|value| !value.contains('d')));
            }
            let read = SearchSpec { base: dn, scope: Scope::Base, ..SearchSpec::default() };
            let by_uid = format!("({})", dn.split(',').next().expect("an RDN"));
            for spec in [read, below(&by_uid)] {
                let some = SearchSpec { attributes: &["cn", "employeeNumber"], ..spec.clone() };
                let answered = [fixture.search(&spec), fixture.search(&some)];
                assert_eq!(answered[0].entries, [(dn.clone(), attributes.clone())]);
                let is_asked =
                    |(name, _): &&(String, Vec<String>)| name.starts_with("cn") || name == "employeeNumber";
                let some: Attributes = attributes.iter().filter(is_asked).cloned().collect();
                assert_eq!(answered[1].entries, [(dn.clone(), some)]);
            }
        }
    }
}

#[test]
fn limits_hold() {
    let mut fixture = Fixture::memory(INDEXES, PEOPLE);
    let plain = Limits { size_soft: Some(500), size_hard: HardLimit::Soft, ..Limits::default() };
    fixture.limits = Some(plain);
    assert_eq!(direct(&fixture, &below("(sn=smith)")), Some(2));
    for limits in [
        Limits { size_soft: Some(1), ..plain },
        Limits { size_unchecked: Some(1), ..plain },
        Limits { size_unchecked: Some(0), ..plain },
    ] {
        fixture.limits = Some(limits);
        assert_eq!(direct(&fixture, &below("(sn=smith)")), None, "{limits:?}");
    }
}

#[test]
fn an_equal_request_sees_what_has_changed() {
    let fixture = Fixture::memory(INDEXES, PEOPLE);
    let spec = below("(&(uid=ann)(description=here))");
    assert_eq!(direct(&fixture, &spec), Some(1));
    let name = "uid=ann,ou=People,dc=example,dc=com";
    let mut ann = fixture.get(name).expect("ann");
    let description = schema().describe("description").expect("a type");
    ann.attribute_or_insert(&description).values = vec![b"there".to_vec()];
    fixture.put(&ann);
    assert_eq!(direct(&fixture, &spec), Some(0));
    let read = SearchSpec { base: name, scope: Scope::Base, ..below("(description=there)") };
    assert_eq!(direct(&fixture, &read), Some(1));
    // Its type gets another rule, which tells case apart.
    let capital = SearchSpec { filter: "(employeeType=CHIEF)", ..read.clone() };
    assert_eq!(direct(&fixture, &capital), Some(1));
    let settings = DatabaseSettings::clone(&fixture.database.settings());
    fixture.reconfigure_with(Arc::new(telling_case()), settings);
    assert_eq!(direct(&fixture, &capital), Some(0));
    assert_eq!(direct(&fixture, &SearchSpec { filter: "(employeeType=chief)", ..read.clone() }), Some(1));
    fixture.delete(name);
    assert_eq!(direct(&fixture, &read), None);
    assert_eq!(direct(&fixture, &below("(uid=ann)")), Some(0));
}

/// The fixture's schema, but that employeeType is compared with its case.
fn telling_case() -> Schema {
    let mut builder = SchemaBuilder::following(&schema());
    for name in ["core", "cosine", "inetorgperson", "nis", "dyngroup"] {
        let text = larix_schema::bundled(name).expect(name);
        let (before, rest) = text.split_once("NAME 'employeeType'").unwrap_or((text, ""));
        let text = match rest {
            "" => text.to_owned(),
            rest => {
                let rest = rest.replacen("caseIgnoreMatch", "caseExactMatch", 1);
                format!("{before}NAME 'employeeType'{rest}")
            }
        };
        builder.add_schema_text(&text, name).expect(name);
    }
    builder.build()
}
