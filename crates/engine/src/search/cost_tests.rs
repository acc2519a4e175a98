//! What one search may cost: limits, and work that grows with the request and no faster.

use std::sync::Arc;

use larix_proto::{ControlBuf, DerefAliases, FilterBuf, ResultCode, Scope, oid};
use larix_schema::AttributeDescription;
use larix_store::Store as _;
use larix_store::memory::MemoryStore;
use larix_store::shared::SharedStore;

use super::Step;
use super::cookie::SORT_KEY_LIMIT;
use super::pace::STEPS_HERE;
use super::run::State;
use super::selection::Selection;
use super::view_entries::ViewEntries;
use crate::access::{EntrySet, Privilege, Subject};
use crate::budget::{RequestLimit, RequestLimits};
use crate::catalog::{Catalog, CatalogEdit, Covered};
use crate::controls::{ControlValues, Dereference, RequestControls, SortKey, SortRequest};
use crate::database::DatabaseSettings;
use crate::fixture::{Answered, Fixture, SUFFIX, SearchSpec, schema};
use crate::index::Kinds;
use crate::overlay::Entries as _;
use crate::tables::TABLES;

/// People p0 to p(n-1) and a group of them all.
fn people(count: usize) -> Fixture<MemoryStore> {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
    for i in 0..count {
        let description = "x".repeat(2_000);
        ldif.push_str(&format!(
            "\ndn: cn=p{i},{SUFFIX}\nobjectClass: person\ncn: p{i}\nsn: s{i}\ndescription: {description}{i}\n"
        ));
    }
    ldif.push_str(&format!("\ndn: cn=all,{SUFFIX}\nobjectClass: groupOfNames\ncn: all\n"));
    (0..count).for_each(|i| ldif.push_str(&format!("member: cn=p{i},{SUFFIX}\n")));
    Fixture::memory(&[("cn", "eq")], &ldif)
}

fn limit(fixture: &Fixture<MemoryStore>, limit: RequestLimit, most: u64) {
    let settings = DatabaseSettings::clone(&fixture.database.settings());
    let request_limits = RequestLimits::default().with(limit, most);
    fixture.reconfigure(DatabaseSettings { request_limits, ..settings });
}

fn outcome(answered: &Answered) -> (ResultCode, &str, usize) {
    (answered.result.code, answered.result.diagnostic.as_str(), answered.entries.len())
}

#[test]
fn selectors_are_taken_once_and_limited() {
    let catalog = Catalog::default();
    let names: Vec<String> = (0..20_000).map(|i| format!("cn;lang-x{}", i % 5_000)).collect();
    let all = names.iter().map(String::as_str).chain(["@person", "@person", "sn", "sn"]);
    let selection = Selection::from_names(&schema(), &catalog, all);
    let person = Selection::from_names(&schema(), &catalog, ["@person", "sn"].into_iter());
    // Each once: what was there before is not looked for by going through the list.
    assert_eq!(selection.count(), 5_000 + person.count());
    let wanted = |name: &str| schema().describe(name).expect(name);
    assert!(
        selection.has_description(&wanted("cn;lang-x4999"))
            && selection.has_description(&wanted("telephoneNumber"))
    );
    assert!(
        !selection.has_description(&wanted("cn;lang-x5000")) && !selection.has_description(&wanted("mail"))
    );

    let fixture = people(1);
    let ask = |count: usize| {
        let attributes = vec!["sn"; count];
        fixture.search(&SearchSpec { filter: "(cn=p0)", attributes: &attributes, ..SearchSpec::default() })
    };
    let answered = ask(4_096);
    assert_eq!(outcome(&answered), (ResultCode::SUCCESS, "", 1));
    assert_eq!(answered.entries[0].1, [("sn".to_owned(), vec!["s0".to_owned()])]);
    let text = "more than 4096 attribute selectors in one request (request-limits selectors=)";
    assert_eq!(outcome(&ask(4_097)), (ResultCode::ADMIN_LIMIT_EXCEEDED, text, 0));
}

#[test]
fn many_selectors_answer_as_few_do() {
    let fixture = people(2);
    let classes = ["@inetOrgPerson", "@groupOfNames", "@domain", "@posixAccount"];
    let many = fixture.search(&SearchSpec { attributes: &classes, ..SearchSpec::default() });
    let few = fixture.search(&SearchSpec { attributes: &["*"], ..SearchSpec::default() });
    assert_eq!(many.entries, few.entries);
}

fn sorted_by(attribute: &str, keys: usize) -> RequestControls {
    let key = SortKey { attribute: attribute.to_owned(), rule: None, reverse: false };
    let sort = Some(SortRequest { critical: true, keys: vec![key; keys] });
    RequestControls::from(ControlValues { sort, ..ControlValues::default() })
}

#[test]
fn sort_keys_are_few_and_short() {
    let fixture = people(3);
    let ask = |keys| SearchSpec {
        filter: "(sn=*)",
        controls: sorted_by("description", keys),
        ..SearchSpec::default()
    };
    assert_eq!(outcome(&fixture.search(&ask(5))), (ResultCode::SUCCESS, "", 3));
    // As slapd says it.
    let refused = (ResultCode::UNWILLING_TO_PERFORM, "Too many sort keys", 0);
    assert_eq!(outcome(&fixture.search(&ask(6))), refused);
    limit(&fixture, RequestLimit::SortKeys, 2);
    assert_eq!(outcome(&fixture.search(&ask(3))), refused);

    // What is kept of a match is what its key needs, not what it was made from.
    let mut task = fixture.begin(&SearchSpec { slice: 2, ..ask(2) }).expect("a search");
    assert!(matches!(fixture.step(&mut task, &mut Vec::new(), 3), Step::More));
    let State::Running(progress) = &task.state else { panic!("it is at its end already") };
    assert!(!progress.sorted.is_empty());
    for (key, _) in &progress.sorted {
        assert!(key.len() == SORT_KEY_LIMIT && key.capacity() < 2 * SORT_KEY_LIMIT, "{}", key.capacity());
    }
}

fn dereferencing(wanted: &[&str]) -> RequestControls {
    let wanted = wanted.iter().map(|name| (*name).to_owned()).collect();
    let specs = vec![("member".to_owned(), wanted)];
    let deref = Some(Box::new(Dereference { critical: true, specs }));
    RequestControls::from(ControlValues { deref, ..ControlValues::default() })
}

#[test]
fn dereferenced_attributes_come_once_and_their_bytes_are_limited() {
    let fixture = people(20);
    let ask = |fixture: &Fixture<MemoryStore>, wanted: &[&str]| {
        let controls = dereferencing(wanted);
        let mut task = fixture
            .begin(&SearchSpec { filter: "(cn=all)", controls, ..SearchSpec::default() })
            .expect("a search");
        let mut out = Vec::new();
        let end = loop {
            if let Step::Done(result, _) = fixture.step(&mut task, &mut out, 100) {
                break result;
            }
        };
        (end.code, end.diagnostic, out.len())
    };
    let once = ask(&fixture, &["description", "sn"]);
    assert_eq!((once.0, once.2 > 40_000), (ResultCode::SUCCESS, true));
    let mut repeated = vec!["description"; 1_000];
    repeated.push("sn");
    assert_eq!(ask(&fixture, &repeated), once);
    limit(&fixture, RequestLimit::ControlBytes, 30_000);
    let text = "more than 30000 bytes of one control in an answer (request-limits control.bytes=)";
    assert_eq!(ask(&fixture, &["description"]), (ResultCode::ADMIN_LIMIT_EXCEEDED, text.to_owned(), 0));
    assert_eq!(ask(&fixture, &["sn"]).0, ResultCode::SUCCESS);
}

/// `(|(sn=x0)(sn=x1)...)`
fn or_of(terms: usize, term: impl Fn(usize) -> String) -> String {
    format!("(|{})", (0..terms).map(term).collect::<String>())
}

#[test]
fn filters_have_so_many_terms() {
    let fixture = people(2);
    limit(&fixture, RequestLimit::FilterTerms, 100);
    let text = "more than 100 filter terms in one request (request-limits filter.terms=)";
    let check = |filter: &str, controls: RequestControls, refused: bool| {
        let answered = fixture.search(&SearchSpec { filter, controls, ..SearchSpec::default() });
        match refused {
            true => assert_eq!(outcome(&answered), (ResultCode::ADMIN_LIMIT_EXCEEDED, text, 0)),
            false => assert_eq!(answered.result.code, ResultCode::SUCCESS),
        }
    };
    let sn = |i| format!("(sn=a long enough value number {i})");
    check(&or_of(99, sn), RequestControls::default(), false);
    check(&or_of(100, sn), RequestControls::default(), true);
    check(&format!("(sn={})", "*some".repeat(120)), RequestControls::default(), true);
    check(&format!("(&{})", "(&)".repeat(100)), RequestControls::default(), true);
    let filters = |count: usize| (0..count).map(|i| FilterBuf::parse(&sn(i)).expect("a filter")).collect();
    let matching = |count| {
        RequestControls::from(ControlValues {
            matched_values: Some(filters(count)),
            ..ControlValues::default()
        })
    };
    check("(sn=*)", matching(99), false);
    check("(sn=*)", matching(100), true);
    let assertion = Some(FilterBuf::parse(&or_of(100, sn)).expect("a filter"));
    check("(sn=*)", RequestControls::from(ControlValues { assertion, ..ControlValues::default() }), true);
}

/// Slices until the search is done, and what it answered.
fn slices(fixture: &Fixture<MemoryStore>, spec: &SearchSpec<'_>) -> (usize, bool, Answered) {
    let mut task = fixture.begin(spec).expect("a search");
    let (mut out, mut count) = (Vec::new(), 0);
    loop {
        count += 1;
        if let Step::Done(result, controls) = fixture.step(&mut task, &mut out, 1_000) {
            return (count, task.is_dear(), Answered { result, controls, ..crate::fixture::decode(&out) });
        }
    }
}

#[test]
fn a_candidate_that_is_too_much_work_is_left_to_others_or_ends_the_search() {
    let members = 2_000;
    let fixture = people(members);
    // Fifty tests of each of 2,000 values of one entry; none is true.
    // An equality filter finds a member of a large group at once.
    let filter = or_of(50, |i| format!("(member:distinguishedNameMatch:=cn=none{i})"));
    let (count, dear, answered) =
        slices(&fixture, &SearchSpec { filter: "(sn=s1)", ..SearchSpec::default() });
    assert_eq!((dear, answered.entries.len()), (false, 1), "{count}");
    let steps = 50 * members as u64;
    assert!(steps > STEPS_HERE);
    let spec = SearchSpec { filter: &filter, ..SearchSpec::default() };
    let (_, dear, answered) = slices(&fixture, &spec);
    assert_eq!((dear, outcome(&answered)), (true, (ResultCode::SUCCESS, "", 0)));
    // It goes on where it was: what was answered before comes once.
    let with_people = format!("(|(sn=*){filter})");
    let (_, dear, answered) = slices(&fixture, &SearchSpec { filter: &with_people, ..SearchSpec::default() });
    assert_eq!((dear, outcome(&answered)), (true, (ResultCode::SUCCESS, "", members)));
    let controls = sorted_by("sn", 1);
    let (_, dear, answered) =
        slices(&fixture, &SearchSpec { filter: &with_people, controls, ..SearchSpec::default() });
    assert_eq!((dear, answered.entries.len()), (true, members));
    limit(&fixture, RequestLimit::Steps, steps / 2);
    let text = format!("more than {} steps of work on one entry (request-limits steps=)", steps / 2);
    let (_, _, answered) = slices(&fixture, &spec);
    assert_eq!(outcome(&answered), (ResultCode::ADMIN_LIMIT_EXCEEDED, text.as_str(), 0));
}

#[test]
fn what_access_rules_look_at_is_charged() {
    let fixture = people(2_000);
    // Of the group every member's entry is looked at. It is not read where there are no members.
    fixture.restrict(&["to * by set=\"this/member/cn & [none]\" none by * read"]);
    let spec = |filter| SearchSpec { filter, ..SearchSpec::default() };
    let (_, dear, answered) = slices(&fixture, &spec("(cn=p1)"));
    assert_eq!((dear, answered.entries.len()), (false, 1));
    let (_, dear, answered) = slices(&fixture, &spec("(cn=all)"));
    assert_eq!((dear, answered.entries.len()), (true, 1));
    limit(&fixture, RequestLimit::Steps, 10_000);
    let (_, _, answered) = slices(&fixture, &spec("(cn=all)"));
    let text = "more than 10000 steps of work on one entry (request-limits steps=)";
    assert_eq!(outcome(&answered), (ResultCode::ADMIN_LIMIT_EXCEEDED, text, 0));
}

/// A first try on the loop must not answer in place of the whole, and what the whole lacks steps for tells of no entry.
#[test]
fn rules_about_the_base_that_take_too_much_deny() {
    let fixture = people(300);
    let base = format!("cn=all,{SUFFIX}");
    let rule = format!("to dn.base=\"{base}\" by set=\"this/member/cn & [none]\" read by * disclose");
    fixture.restrict(&[&rule, "to * by * read"]);
    let spec = SearchSpec { base: &base, ..SearchSpec::default() };
    // The set takes some 3,300 steps, and is evaluated twice: may the base be searched, may it be known?
    for (steps, code) in
        [(100_000, ResultCode::INSUFFICIENT_ACCESS_RIGHTS), (1_000, ResultCode::NO_SUCH_OBJECT)]
    {
        limit(&fixture, RequestLimit::Steps, steps);
        let (_, _, answered) = slices(&fixture, &spec);
        assert_eq!(outcome(&answered), (code, "", 0), "{steps}");
    }
}

/// For a search that waits for changes.
#[test]
fn a_look_at_a_changed_entry_has_so_many_steps() {
    let fixture = people(2_000);
    limit(&fixture, RequestLimit::Steps, 10_000);
    let filter = or_of(50, |i| format!("(member:distinguishedNameMatch:=cn=none{i})"));
    let spec = SearchSpec { filter: &filter, ..SearchSpec::default() };
    let mut task = fixture.begin(&spec).expect("a search");
    let snapshot = fixture.database.store().snapshot().expect("a snapshot");
    let view = fixture.database.view(&snapshot).expect("a view");
    let mut look = |name: &str| {
        let dn = schema().parse_dn(&format!("{name},{SUFFIX}")).expect("a name");
        let id = view.resolve(&dn).expect("a store").and_then(|resolved| resolved.id).expect("an entry");
        let fate = task.single(&view, id, &mut Vec::new(), &mut |_| None);
        fate.map(|_| ()).map_err(|result| result.code)
    };
    assert_eq!(look("cn=p1"), Ok(()));
    assert_eq!(look("cn=all"), Err(ResultCode::ADMIN_LIMIT_EXCEEDED));
}

/// Where no request pays for it, as in the writer.
#[test]
fn what_overlays_ask_of_rules_and_sets_has_a_limit() {
    let fixture = people(2_000);
    let set = format!("[cn=all,{SUFFIX}]/member/cn");
    let rule = format!("to attrs=sn by set=\"{set} & [none]\" none by * read");
    fixture.restrict(&[&rule, "to * by * read"]);
    let set = EntrySet::parse(&schema(), &set).expect("a set");
    let too_much = Err(ResultCode::ADMIN_LIMIT_EXCEEDED);
    for (steps, has_any, allowed) in [(10_000, None, too_much), (100_000, Some(true), Ok(true))] {
        limit(&fixture, RequestLimit::Steps, steps);
        let snapshot = fixture.database.store().snapshot().expect("a snapshot");
        let view = fixture.database.view(&snapshot).expect("a view");
        let (entries, subject) = (ViewEntries::of(&view), Subject::default());
        let dn = schema().parse_dn(&format!("cn=p1,{SUFFIX}")).expect("a name");
        let entry = entries.entry(&dn).expect("a store").expect("an entry");
        assert_eq!(entries.has_any(&set, &subject, &dn, &entry).expect("a store"), has_any, "{steps}");
        let sn = schema().describe("sn").expect("an attribute");
        let allows = entries.allows(&subject, &dn, &entry, &sn, Privilege::Read);
        assert_eq!(allows.map_err(|failure| failure.into_result().code), allowed, "{steps}");
    }
}

/// So many aliases below ou=aliases that stand for ou=s0. Below each of ou=s0, ou=s1 and ou=s2 there is one for the next, beside so many
/// others; below ou=s3 there is cn=end, and an alias that leads back.
fn aliases(count: usize, others: usize) -> Fixture<MemoryStore> {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
    for name in ["aliases", "s0", "s1", "s2", "s3"] {
        ldif.push_str(&format!("\ndn: ou={name},{SUFFIX}\nobjectClass: organizationalUnit\nou: {name}\n"));
    }
    let person = |cn: &str, ou: &str| {
        format!("\ndn: cn={cn},ou={ou},{SUFFIX}\nobjectClass: person\ncn: {cn}\nsn: {cn}\n")
    };
    let alias = |cn: &str, ou: &str, target: &str| {
        let classes = "objectClass: alias\nobjectClass: extensibleObject";
        let target = format!("aliasedObjectName: ou={target},{SUFFIX}");
        format!("\ndn: cn={cn},ou={ou},{SUFFIX}\n{classes}\ncn: {cn}\n{target}\n")
    };
    // Those that lead on stand before those that lead to them.
    for (ou, target) in [("s2", "s3"), ("s1", "s2"), ("s0", "s1"), ("s3", "aliases")] {
        ldif.push_str(&alias("on", ou, target));
        (0..others).for_each(|i| ldif.push_str(&person(&format!("p{i}"), ou)));
    }
    ldif.push_str(&person("end", "s3"));
    (0..count).for_each(|i| ldif.push_str(&alias(&format!("a{i}"), "aliases", "s0")));
    Fixture::memory(&[("cn", "eq")], &ldif)
}

#[test]
fn all_aliases_are_followed_and_each_is_charged() {
    // Of the last ones there are more than a list of ids holds.
    for (count, others) in [(1, 0), (1, 300), (300, 0), (4_200, 300)] {
        let fixture = aliases(count, others);
        let case = format!("{count} aliases, {others} others");
        let (base, deref) = (&format!("ou=aliases,{SUFFIX}"), DerefAliases::InSearching);
        let ask = |scope, filter| SearchSpec { base, scope, deref, filter, ..SearchSpec::default() };
        let (_, dear, answered) = slices(&fixture, &ask(Scope::Subtree, "(cn=end)"));
        assert_eq!((outcome(&answered), dear), ((ResultCode::SUCCESS, "", 1), count > 1), "{case}");
        let (_, _, answered) = slices(&fixture, &ask(Scope::OneLevel, "(ou=*)"));
        assert_eq!(answered.names(), ["s0"], "{case}");
        // All that could be added is in scope already.
        let whole = SearchSpec { base: SUFFIX, ..ask(Scope::Subtree, "(cn=end)") };
        let (_, dear, answered) = slices(&fixture, &whole);
        assert_eq!((outcome(&answered), dear), ((ResultCode::SUCCESS, "", 1), false), "{case}");
        let most = (2 * count as u64).max(40);
        limit(&fixture, RequestLimit::Steps, most);
        let text = format!("more than {most} steps of work on one entry (request-limits steps=)");
        let (_, _, answered) = slices(&fixture, &ask(Scope::Subtree, "(cn=end)"));
        assert_eq!(outcome(&answered), (ResultCode::ADMIN_LIMIT_EXCEEDED, text.as_str(), 0), "{case}");
    }
}

/// As after an upgrade that makes keys otherwise: all indexes are built anew, the one of object classes, too.
#[test]
fn aliases_are_followed_while_indexes_are_built() {
    for (count, others) in [(1, 0), (300, 300)] {
        let fixture = aliases(count, others);
        let mut catalog = Catalog::clone(&fixture.database.catalog());
        let number = catalog.object_class().expect("a number");
        catalog.set_built(number, Kinds::NONE);
        fixture.database.publish_catalog(Arc::new(catalog));
        let (base, deref) = (&format!("ou=aliases,{SUFFIX}"), DerefAliases::InSearching);
        let spec = |scope, filter| SearchSpec { base, scope, deref, filter, ..SearchSpec::default() };
        let (_, _, answered) = slices(&fixture, &spec(Scope::Subtree, "(cn=end)"));
        assert_eq!(outcome(&answered), (ResultCode::SUCCESS, "", 1), "{count} aliases, {others} others");
        let (_, _, answered) = slices(&fixture, &spec(Scope::OneLevel, "(ou=*)"));
        assert_eq!(answered.names(), ["s0"], "{count} aliases, {others} others");
    }
}

#[test]
fn very_many_children_are_not_listed_where_others_wait() {
    for (count, far) in [(1_000, false), (9_000, true)] {
        let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
        for i in 0..count {
            ldif.push_str(&format!("\ndn: cn=p{i},{SUFFIX}\nobjectClass: person\ncn: p{i}\nsn: s{i}\n"));
        }
        let fixture = Fixture::memory(&[("cn", "eq")], &ldif);
        for (filter, dear) in [("(sn=s7)", far), ("(cn=p7)", false)] {
            let spec = SearchSpec { scope: Scope::OneLevel, filter, ..SearchSpec::default() };
            let (_, is_dear, answered) = slices(&fixture, &spec);
            assert_eq!(
                (is_dear, outcome(&answered)),
                (dear, (ResultCode::SUCCESS, "", 1)),
                "{count} {filter}"
            );
        }
    }
}

#[test]
fn matched_values_are_charged_by_filter_and_value() {
    let fixture = people(600);
    let filters = (0..100).map(|i| FilterBuf::parse(&format!("(member=cn=none{i})")).expect("a filter"));
    let matched_values = Some(filters.collect());
    let controls = RequestControls::from(ControlValues { matched_values, ..ControlValues::default() });
    let spec = SearchSpec { filter: "(cn=all)", attributes: &["member"], controls, ..SearchSpec::default() };
    let (_, dear, answered) = slices(&fixture, &spec);
    assert_eq!((dear, outcome(&answered)), (true, (ResultCode::SUCCESS, "", 1)));
    limit(&fixture, RequestLimit::Steps, 10_000);
    let (_, _, answered) = slices(&fixture, &spec);
    assert_eq!(answered.result.code, ResultCode::ADMIN_LIMIT_EXCEEDED);
    assert_eq!(answered.entries.len(), 0);
}

#[test]
fn a_long_filter_is_not_begun_where_others_wait() {
    let fixture = people(1);
    let filter = or_of(1_000, |i| format!("(cn=nobody{i})"));
    let mut task = fixture.begin(&SearchSpec { filter: &filter, ..SearchSpec::default() }).expect("a search");
    assert!(matches!(fixture.step(&mut task, &mut Vec::new(), 1_000), Step::More));
    assert_eq!((task.looked_at(), task.is_dear()), (0, true));
    assert!(matches!(fixture.step(&mut task, &mut Vec::new(), 1_000), Step::Done(..)));
}

#[test]
fn terms_share_what_their_attribute_covers() {
    let schema = schema();
    let mut edit = CatalogEdit::new(Catalog::default().into());
    let tagged = |i: usize| schema.describe(&format!("cn;lang-x-{i}")).expect("a description");
    (0..3_000).for_each(|i| {
        edit.number(&schema, &tagged(i));
    });
    let catalog = edit.catalog();
    let bind = |filter: &str, limits: &RequestLimits| {
        let filter = FilterBuf::parse(filter).expect("a filter");
        crate::filter::Filter::within(limits, &schema, catalog, schema.bind_filter(filter.as_filter()))
    };
    let limits = RequestLimits::default().with(RequestLimit::Steps, 10_000);
    // The same attribute a thousand times: its 3,000 descriptions are gone through once, and listed once.
    let crate::filter::Filter::Or(terms) =
        bind(&or_of(1_000, |i| format!("(cn=x{i})")), &limits).expect("few rows")
    else {
        panic!("no OR")
    };
    let lists = terms.iter().map(|term| match term {
        crate::filter::Filter::Test(test) => match &test.target.numbers {
            Covered::Many(numbers) => (numbers.as_ptr(), numbers.len()),
            Covered::Few(_) => panic!("few"),
        },
        _ => panic!("no test"),
    });
    let lists: std::collections::HashSet<_> = lists.collect();
    assert_eq!(lists.into_iter().map(|(_, length)| length).collect::<Vec<_>>(), [3_000]);
    // Each another description of it: found by its option.
    bind(&or_of(1_000, |i| format!("(cn;lang-x-{i}=a)")), &limits).expect("few rows");
    // Two ranges of options that all of them are in.
    let ranges = ["cn;lang-", "cn;lang-x-"].map(|name| schema.describe(name).expect("a range"));
    let limits = limits.with(RequestLimit::Steps, 5_000);
    let refused = bind("(|(cn;lang-=a)(cn;lang-x-=a))", &limits).map(|_| ()).expect_err("a limit");
    assert_eq!(refused.limit, RequestLimit::Steps);
    let covered = |description: &AttributeDescription| catalog.covered(&schema, description).as_slice().len();
    assert_eq!(ranges.map(|range| covered(&range)), [3_000; 2]);
    assert_eq!([covered(&tagged(7)), covered(&schema.describe("sn;lang-x-7").expect("a name"))], [1, 0]);
    assert_eq!(covered(&schema.describe("name;lang-x-7").expect("a name")), 1);
    let plain = AttributeDescription::plain(tagged(0).attribute);
    assert_eq!(catalog.covered(&schema, &plain).as_slice().len(), 3_000);
}

#[test]
fn chains_in_a_filter_are_limited() {
    let fixture = people(1);
    let chain = |i| format!("(member:1.2.840.113556.1.4.1941:=cn=p{i},{SUFFIX})");
    let answered = fixture.search(&SearchSpec { filter: &or_of(65, chain), ..SearchSpec::default() });
    let text = "in-chain matching: more than 64 chains in one filter";
    assert_eq!(outcome(&answered), (ResultCode::ADMIN_LIMIT_EXCEEDED, text, 0));
}

#[test]
fn a_refused_sort_has_no_response_control() {
    let fixture = people(1);
    let answered = fixture.search(&SearchSpec { controls: sorted_by("cn", 9), ..SearchSpec::default() });
    assert_eq!(outcome(&answered), (ResultCode::UNWILLING_TO_PERFORM, "Too many sort keys", 0));
    let sorted = |control: &&ControlBuf| control.oid == oid::SORT_RESPONSE;
    assert_eq!(answered.controls.iter().find(sorted), None);
}

/// Of a store that is a round trip away, records are asked for many at once.
#[test]
fn candidates_of_a_distant_store_come_together() {
    const ENTRIES: usize = 300;
    // The tree, indexes and what a database keeps to itself.
    const OTHER_TRIPS: u64 = 24;
    let store = SharedStore::new(&TABLES).expect("a store");
    let counted = store.another();
    let fixture = Fixture::new(store, SUFFIX, &[("objectClass", "eq"), ("sn", "eq")]);
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
    for i in 0..ENTRIES {
        let sn = if i % 3 == 0 { "other" } else { "s" };
        ldif.push_str(&format!("\ndn: cn=p{i},{SUFFIX}\nobjectClass: person\ncn: p{i}\nsn: {sn}\n"));
    }
    fixture.load(&ldif);
    let before = counted.trips();
    let answered = fixture.search(&SearchSpec { filter: "(sn=s)", ..SearchSpec::default() });
    let (trips, found) = (counted.trips() - before, answered.entries.len());
    assert_eq!(found, ENTRIES / 3 * 2);
    assert!(trips <= OTHER_TRIPS + found as u64 / 64 + 1, "{trips} round trips for {found} entries");
}
