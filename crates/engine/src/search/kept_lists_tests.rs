//! Sorted lists that are kept: what they save, and that nobody sees by them what a search would not find.

use std::sync::Arc;

use larix_proto::control::{ControlValue, PagedResults as PagedResponse, VlvResponse};
use larix_proto::{DerefAliases, ResultCode, oid};
use larix_store::memory::MemoryStore;

use super::task::Step;
use crate::access::Subject;
use crate::controls::{
    ControlValues, PagedResults, RequestControls, SortKey, SortRequest, ViewTarget, VirtualListView,
};
use crate::database::kept_lists::{KEPT_AGE_SECONDS, KEPT_IDLE_SECONDS, KEPT_LISTS_MAX};
use crate::entry::Entry;
use crate::fixture::{Answered, Fixture, SUFFIX, SearchSpec, decode, schema};

const PEOPLE: usize = 1_000;
const INDEXES: &[(&str, &str)] = &[("cn", "eq")];

/// People p0000 to p0999, whose order by sn is another one.
fn people() -> Fixture<MemoryStore> {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
    for i in 0..PEOPLE {
        let sn = (i * 7) % PEOPLE;
        ldif += &format!("\ndn: cn=p{i:04},{SUFFIX}\nobjectClass: person\ncn: p{i:04}\nsn: s{sn:04}\n");
    }
    Fixture::memory(INDEXES, &ldif)
}

/// The person with this place in the order by sn.
fn person(place: usize) -> String {
    format!("p{:04}", (0..PEOPLE).find(|i| i * 7 % PEOPLE == place).unwrap())
}

fn sorted_by(attribute: &str) -> Option<SortRequest> {
    let key = SortKey { attribute: attribute.to_owned(), rule: None, reverse: false };
    Some(SortRequest { critical: true, keys: vec![key] })
}

/// An answer, and how many entries were looked at for it.
fn asked(fixture: &Fixture<MemoryStore>, controls: RequestControls) -> (Answered, u64) {
    asked_below(fixture, SUFFIX, controls)
}

fn asked_below(fixture: &Fixture<MemoryStore>, base: &str, controls: RequestControls) -> (Answered, u64) {
    let (filter, deref) = ("(objectClass=person)", DerefAliases::Always);
    let spec = SearchSpec { base, deref, filter, controls, ..SearchSpec::default() };
    let mut task = fixture.begin(&spec).expect("a search");
    let mut out = Vec::new();
    loop {
        if let Step::Done(result, controls) = fixture.step(&mut task, &mut out, 100) {
            return (Answered { result, controls, ..decode(&out) }, task.looked_at());
        }
    }
}

/// The view of some entries from a place on, by position or as the list of `context`.
fn view(fixture: &Fixture<MemoryStore>, place: usize, context: Option<u64>) -> (Answered, u64) {
    let target = ViewTarget::Offset { offset: place as u32 + 1, content_count: 0 };
    let vlv = VirtualListView { critical: true, before_count: 0, after_count: 4, target, context };
    asked(
        fixture,
        RequestControls::from(ControlValues {
            sort: sorted_by("sn"),
            vlv: Some(Box::new(vlv)),
            // As the client sent them: they differ from view to view.
            sent: place.to_string().into_bytes(),
            ..ControlValues::default()
        }),
    )
}

fn names_from(place: usize) -> Vec<String> {
    (place..place + 5).map(person).collect()
}

/// What the response control says: how many entries there are, and the list's number.
fn content_and_context(answered: &Answered) -> (u32, Option<u64>) {
    let control =
        answered.controls.iter().find(|control| control.oid == oid::VLV_RESPONSE).expect("a control");
    let response = VlvResponse::decode(control.value.as_deref()).expect("a response");
    let context = response.context_id.map(|id| u64::from_be_bytes(id.try_into().expect("8 octets")));
    (response.content_count, context)
}

#[test]
fn another_view_of_the_same_list_looks_at_what_it_shows_alone() {
    let fixture = people();
    let (first, looked) = view(&fixture, 0, None);
    assert_eq!((first.names(), looked), (names_from(0).iter().map(String::as_str).collect(), PEOPLE as u64));
    let (_, context) = content_and_context(&first);
    for place in [500, 0, 995] {
        let (next, looked) = view(&fixture, place, context);
        assert_eq!(next.names(), names_from(place));
        assert_eq!(content_and_context(&next), content_and_context(&first));
        assert!(looked <= 5, "{looked}");
    }
    // Another order is another list.
    let other = RequestControls::from(ControlValues {
        sort: sorted_by("cn"),
        vlv: Some(Box::new(VirtualListView {
            critical: true,
            before_count: 0,
            after_count: 0,
            target: ViewTarget::GreaterOrEqual(b"p0007".to_vec()),
            context,
        })),
        ..ControlValues::default()
    });
    let (answered, looked) = asked(&fixture, other);
    assert_eq!((answered.names(), looked), (vec!["p0007"], PEOPLE as u64));
}

#[test]
fn a_change_is_seen_by_who_does_not_name_the_list() {
    let fixture = people();
    let (first, _) = view(&fixture, 0, None);
    let (_, context) = content_and_context(&first);
    fixture.delete(&format!("cn={},{SUFFIX}", person(1)));
    fixture.load(&format!("dn: cn=new,{SUFFIX}\nobjectClass: person\ncn: new\nsn: s\n"));
    // The view goes on in the list that its client knows; what is gone is not shown.
    let (same, looked) = view(&fixture, 0, context);
    let shown = [0, 2, 3, 4].map(person);
    assert_eq!((same.names(), looked <= 5), (shown.iter().map(String::as_str).collect(), true));
    assert_eq!(content_and_context(&same), (PEOPLE as u32, context));
    // A client that names no list begins anew.
    let (anew, _) = view(&fixture, 0, None);
    let shown = ["new".to_owned(), person(0), person(2), person(3), person(4)];
    assert_eq!(anew.names(), shown);
    let (content, newer) = content_and_context(&anew);
    assert_eq!((content, newer != context), (PEOPLE as u32, true));
    // A list has gone when another one of the same search has come; its number is no error.
    let (last, _) = view(&fixture, 0, context);
    assert_eq!(last.names(), anew.names());
}

#[test]
fn a_list_shows_nothing_that_its_requester_may_not_see_now() {
    let mut fixture = people();
    let (first, _) = view(&fixture, 0, None);
    let (_, context) = content_and_context(&first);
    // Rules that are changed end all lists.
    fixture.restrict(&[&format!("to dn.base=\"cn={},{SUFFIX}\" by * none", person(0)), "to * by * read"]);
    let (ruled, looked) = view(&fixture, 0, context);
    assert_eq!((ruled.names(), looked), (names_from(1).iter().map(String::as_str).collect(), PEOPLE as u64));
    let (_, context) = content_and_context(&ruled);
    // Another connection and another identity have lists of their own.
    let peer = Arc::new((*fixture.subject.peer).clone());
    let dn = schema().parse_dn(&format!("cn=p0001,{SUFFIX}")).unwrap();
    let manager = schema().parse_dn(&format!("cn=p0002,{SUFFIX}")).unwrap();
    for other in [
        Subject { peer, ..Subject::default() },
        fixture.subject.bound_as(dn.clone(), "cn=p0001"),
        fixture.subject.bound_as(manager, "cn=p0002").acting_as(dn, "cn=p0001"),
    ] {
        let before = std::mem::replace(&mut fixture.subject, Arc::new(other));
        let (_, looked) = view(&fixture, 0, context);
        assert_eq!(looked, PEOPLE as u64);
        fixture.subject = before;
    }
    let (_, looked) = view(&fixture, 0, context);
    assert!(looked <= 5, "{looked}");
}

/// All pages of the people in the order of their sn; `between` is called between two of them. Entries, and how many were looked at.
fn pages(fixture: &Fixture<MemoryStore>, mut between: impl FnMut(usize)) -> (Vec<String>, u64) {
    let (mut names, mut looked, mut cookie) = (Vec::new(), 0, Vec::new());
    for number in 0.. {
        let paged = Some(PagedResults { critical: true, size: 100, cookie });
        let values = ControlValues { sort: sorted_by("sn"), paged, ..ControlValues::default() };
        let (page, looked_at) = asked(fixture, RequestControls::from(values));
        assert_eq!(page.result.code, ResultCode::SUCCESS);
        names.extend(page.names().into_iter().map(str::to_owned));
        looked += looked_at;
        let control = page.controls.iter().find(|control| control.oid == oid::PAGED_RESULTS).expect("a page");
        cookie = PagedResponse::decode(control.value.as_deref()).expect("a cookie").cookie.to_vec();
        if cookie.is_empty() {
            break;
        }
        between(number);
    }
    (names, looked)
}

#[test]
fn pages_of_a_sorted_search_are_sorted_once() {
    let fixture = people();
    let all: Vec<String> = (0..PEOPLE).map(person).collect();
    let (names, looked) = pages(&fixture, |_| {});
    assert_eq!(names, all);
    assert!(looked <= 2 * PEOPLE as u64 + 10, "{looked}");
    // Changes between pages neither repeat an entry nor leave out one that stayed.
    let (names, looked) = pages(&fixture, |number| {
        let (gone, moved) = (900 + number, 100 + number);
        fixture.delete(&format!("cn={},{SUFFIX}", person(gone)));
        let mut entry: Entry = fixture.get(&format!("cn={},{SUFFIX}", person(moved))).expect("an entry");
        entry.attribute_or_insert(&schema().describe("sn").unwrap()).values = vec![b"zzz".to_vec()];
        fixture.put(&entry);
    });
    assert!(looked <= 2 * PEOPLE as u64 + 10, "{looked}");
    let stayed: Vec<&String> =
        all.iter().filter(|name| !(900..909).any(|gone| **name == person(gone))).collect();
    assert_eq!(names.iter().collect::<Vec<_>>(), stayed);
}

#[test]
fn a_list_shows_nothing_that_has_left_the_scope() {
    let fixture = people();
    for ou in ["here", "there"] {
        fixture.load(&format!("dn: ou={ou},{SUFFIX}\nobjectClass: organizationalUnit\nou: {ou}\n"));
        for i in 0..300 {
            let dn = format!("cn={ou}{i:03},ou={ou},{SUFFIX}");
            fixture.load(&format!("dn: {dn}\nobjectClass: person\ncn: {ou}{i:03}\nsn: {i:03}{ou}\n"));
        }
    }
    let alias = |name: &str, target: &str| {
        let target = format!("aliasedObjectName: ou={target},{SUFFIX}\n");
        let named = name.split(',').next().unwrap().replace('=', ": ");
        format!("dn: {name},{SUFFIX}\nobjectClass: alias\nobjectClass: extensibleObject\n{named}\n{target}")
    };
    let view = |base: &str, context| {
        let target = ViewTarget::Offset { offset: 1, content_count: 0 };
        let vlv = VirtualListView { critical: true, before_count: 0, after_count: 3, target, context };
        let vlv = Some(Box::new(vlv));
        let values = ControlValues { sort: sorted_by("sn"), vlv, ..ControlValues::default() };
        let (answered, _) = asked_below(&fixture, &format!("{base},{SUFFIX}"), values.into());
        let names: Vec<String> = answered.names().into_iter().map(str::to_owned).collect();
        (names, content_and_context(&answered))
    };
    // An alias below the base stands for another subtree, then for none.
    fixture.load(&alias("cn=other,ou=here", "there"));
    let (names, (count, context)) = view("ou=here", None);
    assert_eq!((names.join(" ").as_str(), count), ("here000 there000 here001 there001", 600));
    fixture.delete(&format!("cn=other,ou=here,{SUFFIX}"));
    let (names, same) = view("ou=here", context);
    assert_eq!((names.join(" ").as_str(), same), ("here000 here001", (600, context)));
    // The base stands for one subtree, then for another.
    fixture.load(&alias("ou=any", "here"));
    let (names, (count, context)) = view("ou=any", None);
    assert_eq!((names.join(" ").as_str(), count), ("here000 here001 here002 here003", 300));
    fixture.delete(&format!("ou=any,{SUFFIX}"));
    fixture.load(&alias("ou=any", "there"));
    let (names, (_, newer)) = view("ou=any", context);
    assert_eq!(names.join(" "), "there000 there001 there002 there003");
    assert_ne!(newer, context);
}

#[test]
fn lists_do_not_stay_for_ever_and_are_not_many() {
    let fixture = people();
    // A view of the list that is kept, or of a new one, and whether it was kept.
    let mut context = None;
    let mut is_kept = |fixture: &Fixture<MemoryStore>| {
        let (answered, looked) = view(fixture, 0, context);
        context = content_and_context(&answered).1;
        looked <= 5
    };
    assert!(!is_kept(&fixture));
    let seconds = |count: u32| (0..count).for_each(|_| fixture.clock.advance_micros(1_000_000));
    seconds(KEPT_IDLE_SECONDS - 1);
    assert!(is_kept(&fixture));
    seconds(KEPT_IDLE_SECONDS);
    assert!(!is_kept(&fixture));
    for _ in 0..KEPT_AGE_SECONDS / 30 - 1 {
        seconds(30);
        assert!(is_kept(&fixture));
    }
    seconds(30);
    assert!(!is_kept(&fixture));
    // As many other lists push it out.
    for n in 0..KEPT_LISTS_MAX {
        let values = ControlValues {
            sort: sorted_by("cn"),
            paged: Some(PagedResults { critical: true, size: 1, cookie: Vec::new() }),
            ..ControlValues::default()
        };
        let filter = format!("(!(cn={n}))");
        let controls = RequestControls::from(values);
        fixture.search(&SearchSpec { filter: &filter, controls, ..SearchSpec::default() });
    }
    assert!(!is_kept(&fixture));
    seconds(KEPT_IDLE_SECONDS);
    fixture.database.drop_old_lists(crate::time::Clock::monotonic(&fixture.clock));
    assert!(!is_kept(&fixture));
}
