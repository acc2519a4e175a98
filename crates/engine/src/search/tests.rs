//! Searches by table, on every engine, with indexes and without.

use larix_proto::{DerefAliases, FilterBuf, ResultCode, Scope};
use larix_store::Store;
use proptest::prelude::*;

use crate::controls::{ControlValues, PagedResults, RequestControls, SortKey, SortRequest};
use crate::database::{HardLimit, Limits, PagedTotal};
use crate::fixture::{Answered, Checks, Fixture, SUFFIX, SearchSpec, on_every_store};

const INDEXES: &[(&str, &str)] = &[
    ("cn,sn,mail", "pres,eq,sub,approx"),
    ("title", "pres,eq"),
    ("uid", "eq"),
    ("uidNumber", "eq"),
    ("member", "eq"),
    ("telephoneNumber", "subinitial,subfinal"),
    ("description", "subany"),
];

const PEOPLE: &str = "\
dn: dc=example,dc=com
objectClass: domain
dc: example

dn: ou=People,dc=example,dc=com
objectClass: organizationalUnit
ou: People

dn: cn=Ann Smith,ou=People,dc=example,dc=com
objectClass: inetOrgPerson
objectClass: posixAccount
cn: Ann Smith
cn;lang-de: Anna Schmied
sn: Smith
uid: ann
uidNumber: 9
gidNumber: 1
homeDirectory: /home/ann
mail: ann@example.com
telephoneNumber: +1 555 1234
description: likes gardens and trees

dn: cn=Bob Jones,ou=People,dc=example,dc=com
objectClass: inetOrgPerson
objectClass: posixAccount
cn: Bob Jones
sn: Jones
uid: bob
uidNumber: 10
gidNumber: 1
homeDirectory: /home/bob
mail: BOB@Example.com
mail: robert@example.org
telephoneNumber: +1 555 9876

dn: cn=Zoe,ou=People,dc=example,dc=com
objectClass: person
cn: Zoe
sn: Zander

dn: ou=Groups,dc=example,dc=com
objectClass: organizationalUnit
ou: Groups

dn: cn=staff,ou=Groups,dc=example,dc=com
objectClass: groupOfNames
cn: staff
member: cn=Ann Smith,ou=People,dc=example,dc=com
member: CN=Bob  Jones, OU=people, dc=example, dc=com

dn: cn=boss,ou=Groups,dc=example,dc=com
objectClass: alias
objectClass: extensibleObject
cn: boss
aliasedObjectName: cn=Zoe,ou=People,dc=example,dc=com

dn: ou=Elsewhere,dc=example,dc=com
objectClass: referral
objectClass: extensibleObject
ou: Elsewhere
ref: ldap://other.example.com/ou=Elsewhere,dc=example,dc=com
";

/// A check without captured state.
struct Table(Cases);

type Search<'s> = dyn Fn(&SearchSpec<'_>) -> Answered + 's;
type Cases = fn(&Search<'_>);

impl Checks for Table {
    fn run<S: Store>(&self, fixture: &mut Fixture<S>) {
        (self.0)(&|spec| fixture.search(spec));
    }
}

/// Runs a table with and without indexes, in one slice and in many.
fn everywhere(table: Cases) {
    on_every_store(INDEXES, PEOPLE, &Table(table));
    on_every_store(&[], PEOPLE, &Table(table));
}

fn sliced(search: &Search<'_>, spec: &SearchSpec<'_>) -> Answered {
    let whole = search(spec);
    let mut slices = search(&SearchSpec { slice: 1, ..spec.clone() });
    if spec.controls.sort.is_none() {
        assert_eq!(whole.dns(), slices.dns(), "in slices: {}", spec.filter);
    }
    slices.controls.clear();
    whole
}

#[test]
fn filters_find_what_matches_with_and_without_indexes() {
    everywhere(|search| {
        for (filter, expected) in [
            ("(uid=ann)", "Ann Smith"),
            ("(UID=ANN)", "Ann Smith"),
            ("(uid=nobody)", ""),
            ("(cn=zoe)", "Zoe"),
            ("(name=smith)", "Ann Smith"),
            ("(cn=anna schmied)", "Ann Smith"),
            ("(cn;lang-de=anna schmied)", "Ann Smith"),
            ("(cn;lang-de=ann smith)", ""),
            ("(cn;lang-fr=*)", ""),
            ("(mail=bob@example.COM)", "Bob Jones"),
            ("(mail=*@example.org)", "Bob Jones"),
            ("(mail=*example*)", "Ann Smith,Bob Jones"),
            ("(cn=*o*)", "Bob Jones,Zoe,boss"),
            ("(cn=a*s*h)", "Ann Smith"),
            ("(cn=b*s)", "Bob Jones,boss"),
            ("(cn=*nes)", "Bob Jones"),
            ("(cn=bob *)", "Bob Jones"),
            ("(cn=bob  * jones)", "Bob Jones"),
            ("(cn=bob jo *)", ""),
            ("(cn=jones *)", ""),
            ("(cn=* bob*)", "Bob Jones"),
            ("(cn=*jones *)", "Bob Jones"),
            ("(cn=* jones *)", "Bob Jones"),
            ("(cn=* jone *)", ""),
            ("(cn=* jones)", "Bob Jones"),
            ("(cn=* ones)", ""),
            ("(cn=* *)", "Ann Smith,Bob Jones"),
            ("(cn=* * *)", ""),
            ("(cn=* * jones)", ""),
            ("(cn=*bob* *jones *)", "Bob Jones"),
            ("(mail=bob@example.com *)", "Bob Jones"),
            ("(mail=bob@ *)", ""),
            ("(description=*gardens and*)", "Ann Smith"),
            ("(telephoneNumber=+1 555*)", "Ann Smith,Bob Jones"),
            ("(telephoneNumber=*5 98 76)", "Bob Jones"),
            ("(uidNumber>=10)", "Bob Jones"),
            ("(uidNumber<=9)", "Ann Smith"),
            ("(uidNumber>=9)", "Ann Smith,Bob Jones"),
            ("(uidNumber>=x)", ""),
            ("(!(uidNumber=9))", "example,People,Bob Jones,Zoe,Groups,staff,boss"),
            ("(!(nonsense=9))", ""),
            ("(|(nonsense=9)(uid=bob))", "Bob Jones"),
            ("(&(nonsense=9)(uid=bob))", ""),
            ("(!(&(nonsense=9)(uid=bob)))", "example,People,Ann Smith,Zoe,Groups,staff,boss"),
            ("(&)", "example,People,Ann Smith,Bob Jones,Zoe,Groups,staff,boss"),
            ("(|)", ""),
            ("(objectClass=person)", "Ann Smith,Bob Jones,Zoe"),
            ("(objectClass=inetOrgPerson)", "Ann Smith,Bob Jones"),
            ("(objectClass=2.5.6.6)", "Ann Smith,Bob Jones,Zoe"),
            ("(&(objectClass=person)(!(mail=*)))", "Zoe"),
            ("(member=cn=bob jones,ou=people,dc=example,dc=com)", "staff"),
            ("(sn~=smyth)", "Ann Smith"),
            ("(sn~=jonas)", "Bob Jones"),
            ("(sn~=black)", ""),
            ("(cn:caseExactMatch:=Zoe)", "Zoe"),
            ("(cn:caseExactMatch:=zoe)", ""),
            ("(uidNumber:1.2.840.113556.1.4.803:=8)", "Ann Smith,Bob Jones"),
            ("(uidNumber:1.2.840.113556.1.4.804:=3)", "Ann Smith,Bob Jones"),
            ("(ou:dn:=people)", "People,Ann Smith,Bob Jones,Zoe"),
            ("(entryDN=CN=zoe,ou=people,dc=example,dc=com)", "Zoe"),
            ("(entryDN~=CN=zoe,ou=people,dc=example,dc=com)", "Zoe"),
            ("(entryDN:=CN=zoe,ou=people,dc=example,dc=com)", "Zoe"),
            ("(entryDN:distinguishedNameMatch:=CN=zoe,ou=people,dc=example,dc=com)", "Zoe"),
            ("(entryDN:dn:=CN=zoe,ou=people,dc=example,dc=com)", "Zoe"),
            ("(entryDN:dnOneLevelMatch:=ou=people,dc=example,dc=com)", "Ann Smith,Bob Jones,Zoe"),
            ("(hasSubordinates=TRUE)", "example,People,Groups"),
            ("(hasSubordinates~=TRUE)", "example,People,Groups"),
            ("(hasSubordinates:=TRUE)", "example,People,Groups"),
            ("(hasSubordinates:dn:booleanMatch:=TRUE)", "example,People,Groups"),
            ("(&(objectClass=person)(hasSubordinates=FALSE)(sn=*z*))", "Zoe"),
            ("(&(uid=*)(cn=*)(|(sn=smith)(sn=zander)))", "Ann Smith"),
        ] {
            let answered = sliced(search, &SearchSpec { filter, ..SearchSpec::default() });
            assert_eq!(answered.result.code, ResultCode::SUCCESS, "{filter}");
            assert_eq!(answered.names().join(","), expected, "{filter}");
        }
    });
}

#[test]
fn scopes_and_bases() {
    everywhere(|search| {
        for (base, scope, expected) in [
            ("ou=people,DC=EXAMPLE,dc=com", Scope::Base, "People"),
            ("ou=People,dc=example,dc=com", Scope::OneLevel, "Ann Smith,Bob Jones,Zoe"),
            ("ou=People,dc=example,dc=com", Scope::Subtree, "People,Ann Smith,Bob Jones,Zoe"),
            ("ou=People,dc=example,dc=com", Scope::Children, "Ann Smith,Bob Jones,Zoe"),
            ("cn=zoe,ou=People,dc=example,dc=com", Scope::Subtree, "Zoe"),
            ("cn=zoe,ou=People,dc=example,dc=com", Scope::OneLevel, ""),
            (SUFFIX, Scope::OneLevel, "People,Groups"),
            (SUFFIX, Scope::Children, "People,Ann Smith,Bob Jones,Zoe,Groups,staff,boss"),
        ] {
            let answered = sliced(search, &SearchSpec { base, scope, ..SearchSpec::default() });
            assert_eq!(answered.names().join(","), expected, "{base} {scope:?}");
        }
        for (base, code, matched) in [
            ("cn=no,ou=People,dc=example,dc=com", ResultCode::NO_SUCH_OBJECT, "ou=People,dc=example,dc=com"),
            ("cn=a,cn=b,dc=example,dc=com", ResultCode::NO_SUCH_OBJECT, "dc=example,dc=com"),
            ("dc=org", ResultCode::NO_SUCH_OBJECT, ""),
            ("cn=x,ou=elsewhere,dc=example,dc=com", ResultCode::REFERRAL, "ou=Elsewhere,dc=example,dc=com"),
        ] {
            let answered = search(&SearchSpec { base, ..SearchSpec::default() });
            assert_eq!(
                (answered.result.code, answered.result.matched_dn.as_str()),
                (code, matched),
                "{base}"
            );
        }
    });
}

#[test]
fn attributes_answered() {
    everywhere(|search| {
        for (attributes, expected) in [
            (&["cn"][..], "cn=Ann Smith|cn;lang-de=Anna Schmied"),
            (&["cn;lang-de"], "cn;lang-de=Anna Schmied"),
            (&["SN", "uid", "nonsense"], "sn=Smith|uid=ann"),
            (&["name"], "cn=Ann Smith|cn;lang-de=Anna Schmied|sn=Smith"),
            (&["1.1"], ""),
            (&["1.1", "uid"], "uid=ann"),
            (&["@uidObject"], "objectClass=inetOrgPerson,posixAccount|uid=ann"),
            (
                &["+"],
                "entryDN=cn=Ann Smith,ou=People,dc=example,dc=com|subschemaSubentry=cn=Subschema|hasSubordinates=FALSE",
            ),
            (&["numSubordinates"], "numSubordinates=0"),
        ] {
            let answered = search(&SearchSpec { filter: "(uid=ann)", attributes, ..SearchSpec::default() });
            let shown: Vec<String> = answered.entries[0]
                .1
                .iter()
                .map(|(name, values)| format!("{name}={}", values.join(",")))
                .collect();
            assert_eq!(shown.join("|"), expected, "{attributes:?}");
        }
        let spec = SearchSpec {
            filter: "(uid=ann)",
            attributes: &["uid"],
            types_only: true,
            ..SearchSpec::default()
        };
        assert_eq!(search(&spec).entries[0].1, [("uid".to_owned(), vec![])]);
        assert_eq!(
            search(&SearchSpec { filter: "(uid=ann)", ..SearchSpec::default() }).entries[0].1.len(),
            11
        );
    });
}

#[test]
fn aliases_and_referrals() {
    everywhere(|search| {
        let boss = "cn=boss,ou=Groups,dc=example,dc=com";
        let groups = "ou=Groups,dc=example,dc=com";
        for (base, scope, deref, expected) in [
            (boss, Scope::Base, DerefAliases::Never, "boss"),
            (boss, Scope::Base, DerefAliases::FindingBase, "Zoe"),
            // Not followed to find the base, and so answered; only aliases below the base are followed to search.
            (boss, Scope::Subtree, DerefAliases::InSearching, "boss"),
            (groups, Scope::Subtree, DerefAliases::Never, "Groups,staff,boss"),
            (groups, Scope::Subtree, DerefAliases::Always, "Zoe,Groups,staff"),
            (groups, Scope::OneLevel, DerefAliases::InSearching, "Zoe,staff"),
        ] {
            let answered = sliced(search, &SearchSpec { base, scope, deref, ..SearchSpec::default() });
            assert_eq!(answered.names().join(","), expected, "{base} {scope:?} {deref:?}");
        }
        let manage = RequestControls::from(ControlValues { manage_dsa_it: true, ..ControlValues::default() });
        let domain = RequestControls::from(ControlValues { domain_scope: true, ..ControlValues::default() });
        let url = "ldap://other.example.com/ou=Elsewhere,dc=example,dc=com";
        for (scope, filter, controls, names, references) in [
            (
                Scope::OneLevel,
                "(ou=people)",
                &RequestControls::default(),
                "People",
                vec![format!("{url}??base")],
            ),
            (
                Scope::Subtree,
                "(uid=ann)",
                &RequestControls::default(),
                "Ann Smith",
                vec![format!("{url}??sub")],
            ),
            (Scope::OneLevel, "(ou=*)", &manage, "People,Groups,Elsewhere", vec![]),
            (Scope::OneLevel, "(ou=*)", &domain, "People,Groups", vec![]),
        ] {
            let spec = SearchSpec { scope, filter, controls: controls.clone(), ..SearchSpec::default() };
            let answered = sliced(search, &spec);
            assert_eq!(answered.names().join(","), names, "{filter}");
            assert_eq!(answered.references.concat(), references, "{filter}");
        }
        let answered =
            search(&SearchSpec { base: "ou=Elsewhere,dc=example,dc=com", ..SearchSpec::default() });
        assert_eq!(answered.result.code, ResultCode::REFERRAL);
        assert_eq!(answered.result.referrals, [format!("{url}??sub")]);
    });
}

#[test]
fn matched_values() {
    everywhere(|search| {
        let filters = ["(mail=*.org)", "(objectClass=posixAccount)"].map(|f| FilterBuf::parse(f).unwrap());
        let controls = RequestControls::from(ControlValues {
            matched_values: Some(filters.into()),
            ..ControlValues::default()
        });
        let answered = search(&SearchSpec { filter: "(uid=bob)", controls, ..SearchSpec::default() });
        let expected = [("objectClass", "posixAccount"), ("mail", "robert@example.org")];
        assert_eq!(
            answered.entries[0].1,
            expected.map(|(name, value)| (name.to_owned(), vec![value.to_owned()]))
        );
    });
}

fn many(count: usize) -> String {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
    for i in 0..count {
        let sn = (i * 7) % count;
        ldif.push_str(&format!(
            "\ndn: cn=p{i:03},{SUFFIX}\nobjectClass: person\ncn: p{i:03}\nsn: s{sn:03}\n"
        ));
    }
    ldif
}

fn sort(keys: &[(&str, bool)]) -> Option<SortRequest> {
    let key = |(attribute, reverse): &(&str, bool)| SortKey {
        attribute: (*attribute).to_owned(),
        rule: None,
        reverse: *reverse,
    };
    Some(SortRequest { critical: true, keys: keys.iter().map(key).collect() })
}

/// All pages of a search.
fn each_page<S: Store>(fixture: &Fixture<S>, spec: &SearchSpec<'_>, size: u32) -> Vec<Answered> {
    let (mut pages, mut cookie) = (Vec::new(), Vec::new());
    loop {
        let paged = Some(PagedResults { critical: true, size, cookie });
        let controls = spec.controls.with(|values| values.paged = paged);
        let answered = fixture.search(&SearchSpec { controls, ..spec.clone() });
        assert!(answered.entries.len() <= size as usize);
        let control = answered.controls.iter().find(|c| c.oid == larix_proto::oid::PAGED_RESULTS);
        cookie = control.and_then(|c| c.value.as_deref()).map(cookie_of).unwrap_or_default();
        pages.push(answered);
        if cookie.is_empty() {
            return pages;
        }
    }
}

/// What all pages of a search answer, how many there were, and how the last one ended.
fn all_pages<S: Store>(
    fixture: &Fixture<S>,
    spec: &SearchSpec<'_>,
    size: u32,
) -> (Vec<String>, u32, ResultCode) {
    let pages = each_page(fixture, spec, size);
    let names = pages.iter().flat_map(Answered::names).map(str::to_owned).collect();
    (names, pages.len() as u32, pages.last().expect("a page").result.code)
}

fn cookie_of(value: &[u8]) -> Vec<u8> {
    use larix_proto::ber::{Reader, Tag};
    let mut outer = Reader::new(value);
    let mut inner = Reader::new(outer.expect(Tag::SEQUENCE, "control").unwrap());
    inner.expect(Tag::INTEGER, "size").unwrap();
    inner.expect(Tag::OCTET_STRING, "cookie").unwrap().to_vec()
}

#[test]
fn pages_cover_everything_once() {
    let mut fixture = Fixture::memory(&[("cn", "eq,sub")], &many(25));
    let whole: Vec<String> = (0..25).map(|i| format!("p{i:03}")).collect();
    let spec = SearchSpec { filter: "(cn=p*)", slice: 3, ..SearchSpec::default() };
    for (size, pages) in [(10, 3), (25, 1), (1, 25), (5, 5), (100, 1)] {
        assert_eq!(all_pages(&fixture, &spec, size), (whole.clone(), pages, ResultCode::SUCCESS), "{size}");
    }
    let mut sorted: Vec<String> = whole;
    sorted.sort_by_key(|name| (name[1..].parse::<usize>().unwrap() * 7) % 25);
    let by_sn = SearchSpec {
        controls: RequestControls::from(ControlValues {
            sort: sort(&[("sn", false)]),
            ..ControlValues::default()
        }),
        ..spec.clone()
    };
    for size in [10, 25, 4] {
        assert_eq!(all_pages(&fixture, &by_sn, size).0, sorted, "{size}");
    }
    // A page of no entries, and then no more of them.
    for spec in [&spec, &by_sn] {
        assert_eq!(all_pages(&fixture, spec, 0), (Vec::new(), 2, ResultCode::SUCCESS));
    }
    fixture.limits = Some(Limits { size_total: PagedTotal::Count(12), ..Limits::default() });
    let (names, pages, code) = all_pages(&fixture, &spec, 5);
    assert_eq!((names.len(), pages, code), (12, 3, ResultCode::SIZE_LIMIT_EXCEEDED));
}

#[test]
fn the_estimate_beside_a_page_tells_nothing_of_what_is_hidden() {
    use larix_proto::control::ControlValue as _;
    let fixture = Fixture::memory(INDEXES, PEOPLE);
    let estimate = |filter: &str| {
        let pages = each_page(&fixture, &SearchSpec { filter, ..SearchSpec::default() }, 1);
        let control = pages[0].controls.iter().find(|c| c.oid == larix_proto::oid::PAGED_RESULTS);
        let value = control.and_then(|control| control.value.as_deref());
        larix_proto::control::PagedResults::decode(value).expect("the control").size
    };
    let found = "(|(uid=ann)(uid=bob))";
    assert_ne!(estimate(found), 0);
    fixture.restrict(&["to attrs=mail by * none", "to * by * read"]);
    assert_ne!(estimate(found), 0);
    for mail in ["bob@example.com", "nobody@example.com"] {
        assert_eq!(estimate(&format!("(|(uid=ann)(uid=bob)(mail={mail}))")), 0, "{mail}");
    }
    fixture.restrict(&["to dn.base=\"cn=zoe,ou=people,dc=example,dc=com\" by * none", "to * by * read"]);
    assert_eq!(estimate("(|(uid=ann)(uid=bob)(sn=zander))"), 0);
}

#[test]
fn references_come_with_one_page() {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
    for i in 0..4 {
        ldif.push_str(&format!("\ndn: cn=p{i},{SUFFIX}\nobjectClass: person\ncn: p{i}\nsn: p{i}\n"));
        let classes = "objectClass: referral\nobjectClass: extensibleObject";
        let url = format!("ldap://other.example.com/ou=r{i},{SUFFIX}");
        ldif.push_str(&format!("\ndn: ou=r{i},{SUFFIX}\n{classes}\nou: r{i}\nref: {url}\n"));
    }
    let fixture = Fixture::memory(&[("cn", "eq,sub")], &ldif);
    for order in [None, sort(&[("cn", true)])] {
        for (filter, size) in [("(cn=p*)", 1), ("(cn=p*)", 3), ("(cn=p*)", 9), ("(sn=*)", 1), ("(sn=*)", 2)] {
            let values = ControlValues { sort: order.clone(), ..ControlValues::default() };
            let controls = RequestControls::from(values);
            let spec = SearchSpec { filter, controls, slice: 2, ..SearchSpec::default() };
            let pages = each_page(&fixture, &spec, size);
            let mut urls: Vec<&str> =
                pages.iter().flat_map(|page| &page.references).flatten().map(String::as_str).collect();
            urls.sort_unstable();
            let expected = (0..4).map(|i| format!("ldap://other.example.com/ou=r{i},{SUFFIX}??sub"));
            assert_eq!(urls, expected.collect::<Vec<_>>(), "{filter} {size} {order:?}");
            let mut names: Vec<&str> = pages.iter().flat_map(Answered::names).collect();
            names.sort_unstable();
            assert_eq!(names, ["p0", "p1", "p2", "p3"], "{filter} {size} {order:?}");
        }
    }
}

#[test]
fn a_forged_cookie_is_refused() {
    let fixture = Fixture::memory(&[], &many(3));
    let paged = Some(PagedResults { critical: true, size: 1, cookie: vec![1; 29] });
    let controls = RequestControls::from(ControlValues { paged, ..ControlValues::default() });
    let answered = fixture.search(&SearchSpec { controls, ..SearchSpec::default() });
    assert_eq!(answered.result.code, ResultCode::PROTOCOL_ERROR);
}

#[test]
fn answers_come_in_the_order_of_the_keys() {
    everywhere(|search| {
        for (keys, expected) in [
            (&[("cn", false)][..], "Ann Smith,Bob Jones,boss,staff,Zoe"),
            (&[("cn", true)], "Zoe,staff,boss,Bob Jones,Ann Smith"),
            (&[("uidNumber", false), ("cn", true)], "Ann Smith,Bob Jones,Zoe,staff,boss"),
            (&[("uidNumber", true), ("cn", false)], "boss,staff,Zoe,Bob Jones,Ann Smith"),
        ] {
            let controls =
                RequestControls::from(ControlValues { sort: sort(keys), ..ControlValues::default() });
            let answered = search(&SearchSpec { filter: "(cn=*)", controls, ..SearchSpec::default() });
            assert_eq!(answered.names().join(","), expected, "{keys:?}");
            assert_eq!(answered.controls[0].value.as_deref(), Some(b"\x30\x03\x0a\x01\x00".as_slice()));
        }
        // No such type; no rule that orders; computed, and so in no entry.
        for (attribute, code) in [
            ("nonsense", ResultCode::NO_SUCH_ATTRIBUTE),
            ("jpegPhoto", ResultCode::INAPPROPRIATE_MATCHING),
            ("entryDN", ResultCode::INAPPROPRIATE_MATCHING),
            ("hasSubordinates", ResultCode::INAPPROPRIATE_MATCHING),
            ("subschemaSubentry", ResultCode::INAPPROPRIATE_MATCHING),
        ] {
            let sort = sort(&[("cn", false), (attribute, false)]);
            let controls = RequestControls::from(ControlValues { sort, ..ControlValues::default() });
            let answered = search(&SearchSpec { controls, ..SearchSpec::default() });
            assert_eq!(answered.result.code, ResultCode::UNAVAILABLE_CRITICAL_EXTENSION, "{attribute}");
            let expected = super::sorted::response_control(code, Some(attribute)).value;
            assert_eq!(answered.controls[0].value, expected, "{attribute}");
        }
    });
}

#[test]
fn a_search_ends_at_its_limits() {
    let mut fixture = Fixture::memory(&[], &many(20));
    let count = |fixture: &Fixture<_>, size_limit| {
        let answered = fixture.search(&SearchSpec { size_limit, slice: 7, ..SearchSpec::default() });
        (answered.entries.len(), answered.result.code)
    };
    assert_eq!(count(&fixture, 0), (21, ResultCode::SUCCESS));
    assert_eq!(count(&fixture, 21), (21, ResultCode::SUCCESS));
    assert_eq!(count(&fixture, 5), (5, ResultCode::SIZE_LIMIT_EXCEEDED));
    fixture.limits =
        Some(Limits { size_soft: Some(10), size_hard: HardLimit::Count(15), ..Limits::default() });
    assert_eq!(count(&fixture, 0), (10, ResultCode::SIZE_LIMIT_EXCEEDED));
    assert_eq!(count(&fixture, 15), (15, ResultCode::SIZE_LIMIT_EXCEEDED));
    assert_eq!(count(&fixture, 16), (15, ResultCode::SIZE_LIMIT_EXCEEDED));
    fixture.limits = Some(Limits { size_unchecked: Some(20), ..Limits::UNLIMITED });
    assert_eq!(count(&fixture, 0), (0, ResultCode::ADMIN_LIMIT_EXCEEDED));
    fixture.limits = Some(Limits { size_unchecked: Some(21), ..Limits::UNLIMITED });
    assert_eq!(count(&fixture, 0), (21, ResultCode::SUCCESS));
}

#[test]
fn between_slices() {
    use crate::search::Step;
    let check_with = |filter: &str, change: &dyn Fn(&Fixture<_>), expected: (usize, ResultCode)| {
        let fixture = Fixture::memory(&[("cn", "eq,sub")], &many(10));
        let base = format!("cn=p000,{SUFFIX}");
        fixture.load(&format!("dn: cn=a,{base}\nobjectClass: person\ncn: a\nsn: a\n\ndn: cn=b,{base}\nobjectClass: person\ncn: b\nsn: b\n"));
        let spec = SearchSpec { base: &base, filter, time_limit: 60, ..SearchSpec::default() };
        let mut task = fixture.begin(&spec).unwrap();
        let mut out = Vec::new();
        let mut changed = false;
        let result = loop {
            if let Step::Done(result, _) = fixture.step(&mut task, &mut out, 1) {
                break result;
            }
            if !changed {
                change(&fixture);
                changed = true;
            }
        };
        assert_eq!((crate::fixture::decode(&out).entries.len(), result.code), expected, "{filter}");
    };
    let check = |change: &dyn Fn(&Fixture<_>), expected: (usize, ResultCode)| {
        check_with("(|(cn=a)(cn=b))", change, expected);
        // The indexes prove its first term.
        check_with("(&(|(cn=a)(cn=b))(!(sn=x)))", change, expected);
    };
    let base = format!("cn=p000,{SUFFIX}");
    check(&|_| (), (2, ResultCode::SUCCESS));
    check(&|fixture| fixture.delete(&format!("cn=b,{base}")), (1, ResultCode::SUCCESS));
    check(
        &|fixture| {
            fixture.delete(&format!("cn=b,{base}"));
            fixture.delete(&format!("cn=a,{base}"));
            fixture.delete(&base);
        },
        (1, ResultCode::BUSY),
    );
    check(
        &|fixture| {
            let mut entry = fixture.get(&format!("cn=b,{base}")).unwrap();
            let cn = crate::fixture::schema().describe("cn").unwrap();
            entry.attribute_mut(&cn).unwrap().values = vec![b"c".to_vec()];
            fixture.put(&entry);
        },
        (1, ResultCode::SUCCESS),
    );
    check(&|fixture| fixture.clock.advance_micros(61_000_000), (1, ResultCode::TIME_LIMIT_EXCEEDED));
}

#[test]
fn what_an_index_was_not_asked_is_verified() {
    let mut ldif = many(40).replace("objectClass: person\n", "objectClass: inetOrgPerson\ntitle: crew\n");
    ldif.push_str(&format!("\ndn: cn=x,{SUFFIX}\nobjectClass: inetOrgPerson\ncn: x\nsn: x\ntitle: guest\n"));
    let referral = format!(
        "dn: ou=far,{SUFFIX}\nobjectClass: referral\nobjectClass: extensibleObject\nou: far\nref: ldap://far/\n"
    );
    for lines in [&[("cn", "eq"), ("title", "eq"), ("objectClass", "eq")][..], &[]] {
        let fixture = Fixture::memory(lines, &ldif);
        let check = |cases: &[(&str, &str)]| {
            for &(filter, expected) in cases {
                let answered = fixture.search(&SearchSpec { filter, ..SearchSpec::default() });
                assert_eq!(answered.names().join(","), expected, "{filter} {lines:?}");
            }
        };
        // The list of the first term is long, that of the second short.
        check(&[
            ("(&(title=crew)(cn=x))", ""),
            ("(|(&(title=crew)(cn=x))(cn=p001))", "p001"),
            ("(&(|(&(title=crew)(cn=x))(cn=p001))(sn=*))", "p001"),
            ("(&(&(title=crew)(cn=x))(!(sn=none)))", ""),
            ("(&(title=crew)(|(cn=x)(cn=p001)))", "p001"),
        ]);
        // References are candidates, too.
        fixture.load(&referral);
        check(&[("(&(title=crew)(cn=x))", ""), ("(&(title=crew)(|(cn=x)(cn=p001)))", "p001")]);
    }
}

#[test]
fn access_rules() {
    let fixture = Fixture::memory(INDEXES, PEOPLE);
    fixture.restrict(&[
        "to dn.base=\"cn=zoe,ou=people,dc=example,dc=com\" by * none",
        "to attrs=uid by * compare",
        "to attrs=mail by * search",
        "to attrs=objectClass val=posixAccount by * none",
        "to * by * read",
    ]);
    for (filter, expected) in [
        ("(sn=zander)", ""),
        ("(uid=ann)", ""),
        ("(!(uid=ann))", ""),
        ("(mail=ann@example.com)", "Ann Smith"),
        ("(objectClass=person)", "Ann Smith,Bob Jones"),
        // What an index proves counts for those alone who may search for it.
        ("(&(uid=ann)(sn=smith))", ""),
        ("(&(mail=ann@example.com)(uid=ann))", ""),
        ("(&(mail=ann@example.com)(objectClass=posixAccount))", ""),
        ("(&(objectClass=posixAccount)(mail=ann@example.com))", ""),
        ("(&(mail=ann@example.com)(sn=smith))", "Ann Smith"),
    ] {
        let answered = fixture.search(&SearchSpec { filter, ..SearchSpec::default() });
        assert_eq!(answered.names().join(","), expected, "{filter}");
    }
    let answered = fixture.search(&SearchSpec { filter: "(sn=smith)", ..SearchSpec::default() });
    let names: Vec<&str> = answered.entries[0].1.iter().map(|(name, _)| name.as_str()).collect();
    assert!(!names.contains(&"mail") && !names.contains(&"uid") && names.contains(&"sn"), "{names:?}");
    assert_eq!(answered.entries[0].1[0].1, ["inetOrgPerson"]);
    let zoe = "cn=zoe,ou=people,dc=example,dc=com";
    assert_eq!(
        fixture.search(&SearchSpec { base: zoe, ..SearchSpec::default() }).result.code,
        ResultCode::NO_SUCH_OBJECT
    );
}

#[test]
fn values_that_rules_hide_are_not_found_by_their_parts() {
    for indexes in [INDEXES, &[][..]] {
        let fixture = Fixture::memory(indexes, PEOPLE);
        fixture.restrict(&[
            "to attrs=mail val.regex=\"^robert\" by * none",
            "to attrs=description val.regex=\"gardens\" by * none",
            "to attrs=uidNumber val=10 by * none",
            "to * by * read",
        ]);
        for (filter, expected) in [
            ("(mail=*example*)", "Ann Smith,Bob Jones"),
            ("(mail=rob*)", ""),
            ("(mail=*ert@*)", ""),
            // As if the value were not there.
            ("(&(objectClass=person)(!(mail=*ert@*)))", "Ann Smith,Bob Jones,Zoe"),
            ("(description=*)", ""),
            ("(description=*trees*)", ""),
            ("(uidNumber>=9)", "Ann Smith"),
            ("(uidNumber<=12)", "Ann Smith"),
            ("(uidNumber:1.2.840.113556.1.4.803:=2)", ""),
        ] {
            let answered = fixture.search(&SearchSpec { filter, ..SearchSpec::default() });
            assert_eq!(answered.names().join(","), expected, "{filter}");
        }
    }
}

fn leaf() -> impl Strategy<Value = String> {
    let attribute = prop_oneof![
        Just("cn"),
        Just("sn"),
        Just("mail"),
        Just("description"),
        Just("telephoneNumber"),
        Just("name"),
        Just("title"),
        Just("uidNumber")
    ];
    let piece =
        prop_oneof![Just("a"), Just("ab"), Just("abc"), Just("bca"), Just("1"), Just("12"), Just("abcabc")];
    (attribute, piece.clone(), piece, 0..8u8).prop_map(|(attribute, a, b, shape)| match shape {
        0 => format!("({attribute}=*)"),
        1 => format!("({attribute}={a})"),
        2 => format!("({attribute}={a}*)"),
        3 => format!("({attribute}=*{a})"),
        4 => format!("({attribute}=*{a}*{b}*)"),
        5 => format!("({attribute}={a}*{b})"),
        6 => format!("({attribute}>={a})"),
        _ => format!("({attribute}<={a})"),
    })
}

fn filter() -> impl Strategy<Value = String> {
    leaf().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|list| format!("(&{})", list.concat())),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|list| format!("(|{})", list.concat())),
            inner.prop_map(|filter| format!("(!{filter})")),
        ]
    })
}

fn directory() -> impl Strategy<Value = String> {
    let value = "[abc]{1,7}";
    let entry = (value, prop::option::of(value), prop::option::of("[123]{1,4}"), prop::option::of(0..30u32));
    // Most have the same title: its list is longer than what is verified without reading on.
    prop::collection::vec((entry, 0..5u8), 1..40).prop_map(|entries| {
        let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
        for (at, ((sn, description, phone, number), title)) in entries.into_iter().enumerate() {
            ldif.push_str(&format!(
                "\ndn: cn=e{at},{SUFFIX}\nobjectClass: inetOrgPerson\nobjectClass: extensibleObject\ncn: e{at}\ncn: {sn}a\nsn: {sn}\nmail: {sn}@abc\n"
            ));
            ldif.push_str(if title == 0 { "title: ab\n" } else { "title: a\n" });
            description.into_iter().for_each(|d| ldif.push_str(&format!("description: {d}\n")));
            phone.into_iter().for_each(|p| ldif.push_str(&format!("telephoneNumber: {p}\n")));
            number.into_iter().for_each(|n| ldif.push_str(&format!("uidNumber: {n}\n")));
        }
        ldif
    })
}

proptest! {
    #![proptest_config(ProptestConfig::default())]
    #[test]
    fn indexes_change_no_answer(ldif in directory(), filters in prop::collection::vec(filter(), 8)) {
        let (with, without) = (Fixture::memory(INDEXES, &ldif), Fixture::memory(&[], &ldif));
        for filter in &filters {
            let spec = SearchSpec { filter, ..SearchSpec::default() };
            let (indexed, scanned) = (with.search(&spec), without.search(&spec));
            prop_assert_eq!(indexed.dns(), scanned.dns(), "{}", filter);
        }
    }
}
