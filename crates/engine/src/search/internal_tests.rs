//! Internal searches find what clients' searches find, on what is committed and on what is about to be.

use larix_proto::{FilterBuf, Scope};
use larix_schema::BoundFilter;
use larix_store::{Snapshot, Store};

use super::internal;
use crate::access::Subject;
use crate::controls::{ControlValues, RequestControls};
use crate::database::View;
use crate::entry::Entry;
use crate::fixture::{Checks, Fixture, SUFFIX, SearchSpec, on_every_store, schema};
use crate::overlay::internal_search::{InternalLimits, InternalSearch, SearchEnd, SearchOutcome, Whose};
use crate::time::SeededRandom;

const LINES: &[(&str, &str)] = &[("objectClass", "eq"), ("cn,sn", "pres,eq,sub"), ("title,member", "eq")];

const TOP: &str = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n
dn: ou=a,dc=example,dc=com\nobjectClass: organizationalUnit\nou: a\n
dn: ou=b,dc=example,dc=com\nobjectClass: organizationalUnit\nou: b\n";

/// Makes entries and filters.
struct Dice(SeededRandom);

impl Dice {
    fn entry(&self, number: usize) -> Entry {
        let place = self.0.one_of(&["ou=a,", "ou=b,", ""]);
        let mut entry = Entry::new(format!("cn=e{number},{place}{SUFFIX}"));
        let mut add = |name: &str, value: String| {
            let description = schema().describe(name).expect(name);
            let values = &mut entry.attribute_or_insert(&description).values;
            if !values.contains(&value.clone().into_bytes()) {
                values.push(value.into_bytes());
            }
        };
        add("objectClass", "inetOrgPerson".to_owned());
        add("cn", format!("e{number}"));
        add("sn", format!("s{}", self.0.below(6)));
        for _ in 0..self.0.below(3) {
            add("title", format!("t{}", self.0.below(4)));
        }
        if self.0.below(3) == 0 {
            add("description", format!("d{}", self.0.below(3)));
        }
        if self.0.below(4) == 0 {
            add("objectClass", "referral".to_owned());
        }
        entry
    }

    fn filter(&self, depth: u32) -> String {
        let value = self.0.below(6);
        match self.0.below(if depth == 0 { 6 } else { 9 }) {
            0 => format!("(sn=s{value})"),
            1 => format!("(title=t{value})"),
            2 => format!("(description=d{value})"),
            3 => format!("(cn=e{value}*)"),
            4 => "(title=*)".to_owned(),
            5 => format!("(cn=*{value})"),
            6 => format!("(!{})", self.filter(depth - 1)),
            7 => format!("(&{}{})", self.filter(depth - 1), self.filter(depth - 1)),
            _ => format!("(|{}{})", self.filter(depth - 1), self.filter(depth - 1)),
        }
    }
}

fn bound(filter: &str) -> BoundFilter {
    schema().bind_filter(FilterBuf::parse(filter).expect(filter).as_filter())
}

/// What a search finds in a view, as DNs.
fn found<N: Snapshot>(view: &View<'_, N>, query: &InternalSearch<'_>) -> (SearchOutcome, Vec<String>) {
    let mut dns = Vec::new();
    let searched = internal::search(view, query, &mut |entry| {
        dns.push(entry.shown_dn()?);
        Ok(true)
    });
    (searched.expect("no fault"), dns)
}

/// A question and what was found.
type Answers = Vec<(&'static str, Scope, String, Vec<String>)>;

fn ask<N: Snapshot>(view: &View<'_, N>, subject: &Subject, dice: &Dice) -> Answers {
    let mut answers = Answers::new();
    for _ in 0..60 {
        let base = dice.0.one_of(&[SUFFIX, "ou=a,dc=example,dc=com", "cn=e1,ou=a,dc=example,dc=com"]);
        let scope = dice.0.one_of(&[Scope::Base, Scope::OneLevel, Scope::Subtree, Scope::Children]);
        let filter = dice.filter(2);
        let (dn, bound) = (schema().parse_dn(base).expect(base), bound(&filter));
        let query = InternalSearch::new(&dn, scope, &bound).of(Whose::Requester(subject));
        answers.push((base, scope, filter, found(view, &query).1));
    }
    answers
}

fn check_answers<S: Store>(fixture: &Fixture<S>, answers: &Answers) {
    for (base, scope, filter, found) in answers {
        let controls =
            RequestControls::from(ControlValues { manage_dsa_it: true, ..ControlValues::default() });
        let spec = SearchSpec { base, scope: *scope, filter, controls, ..SearchSpec::default() };
        assert_eq!(fixture.search(&spec).dns(), *found, "{base} {scope:?} {filter}");
    }
}

/// With so many entries committed before so many others are about to be.
struct Random(u64);

impl Checks for Random {
    fn run<S: Store>(&self, fixture: &mut Fixture<S>) {
        let dice = Dice(SeededRandom::new(self.0));
        for rules in [
            &["to * by * read"][..],
            &[
                "to attrs=title by * search",
                "to dn.subtree=\"ou=b,dc=example,dc=com\" filter=(sn=s1) by * none",
                "to attrs=sn val.regex=\"s[12]\" by * none",
                "to * by * read",
            ],
        ] {
            fixture.restrict(rules);
            let subject = fixture.subject.clone();
            for round in 0..6 {
                // Some are new, some are there in another form.
                let entries: Vec<Entry> = (0..12)
                    .map(|_| {
                        let number = dice.0.below(40);
                        dice.entry(number)
                    })
                    .collect();
                let entries: Vec<&Entry> = entries.iter().collect();
                let mut answers = Answers::new();
                fixture.put_together(&entries, &mut |view| answers = ask(view, &subject, &dice));
                assert!(round < 3 || answers.iter().any(|(.., found)| found.len() > 2));
                check_answers(fixture, &answers);
                let answers = {
                    let snapshot = fixture.database.store().snapshot().expect("a snapshot");
                    let view = fixture.database.view(&snapshot).expect("a view");
                    ask(&view, &subject, &dice)
                };
                check_answers(fixture, &answers);
            }
        }
    }
}

#[test]
fn internal_searches_find_what_clients_find() {
    for seed in 0..4 {
        on_every_store(LINES, TOP, &Random(seed));
        on_every_store(&[("objectClass", "eq")], TOP, &Random(seed));
    }
}

#[test]
fn limits_and_how_it_ends() {
    let mut ldif = TOP.to_owned();
    for number in 0..200 {
        let title = if number % 2 == 0 { "even" } else { "odd" };
        ldif.push_str(&format!(
            "\ndn: cn=e{number},ou=a,{SUFFIX}\nobjectClass: inetOrgPerson\ncn: e{number}\nsn: s\ntitle: {title}\n"
        ));
    }
    ldif.push_str(&format!("\ndn: ou=c,ou=b,{SUFFIX}\nobjectClass: organizationalUnit\nobjectClass: referral\nou: c\nref: ldap://h/\n"));
    let fixture = Fixture::memory(&[("objectClass", "eq"), ("title", "eq")], &ldif);
    let snapshot = fixture.database.store().snapshot().expect("a snapshot");
    let view = fixture.database.view(&snapshot).expect("a view");
    let none = InternalLimits::default();
    let check = |base: &str, filter: &str, limits, expected: (SearchEnd, u64, bool)| {
        let (dn, bound) = (schema().parse_dn(base).expect(base), bound(filter));
        let query = InternalSearch::new(&dn, Scope::Subtree, &bound).within(limits);
        let (searched, dns) = found(&view, &query);
        assert_eq!(searched.entries, dns.len() as u64);
        assert_eq!(
            (searched.ended, searched.entries, searched.indexed),
            expected,
            "{base} {filter} {limits:?}"
        );
        searched.looked
    };
    assert_eq!(check(SUFFIX, "(title=even)", none, (SearchEnd::Complete, 100, true)), 100);
    assert_eq!(check("", "(title=even)", none, (SearchEnd::Complete, 100, true)), 100);
    assert_eq!(check(SUFFIX, "(sn=s)", none, (SearchEnd::Complete, 200, false)), 204);
    assert_eq!(check("ou=b,dc=example,dc=com", "(!(sn=s))", none, (SearchEnd::Complete, 2, true)), 2);
    check("ou=x,dc=example,dc=com", "(sn=s)", none, (SearchEnd::NoBase, 0, true));
    check("dc=org", "(sn=s)", none, (SearchEnd::NoBase, 0, true));
    let few = InternalLimits { entries: 100, ..none };
    check(SUFFIX, "(title=even)", few, (SearchEnd::Complete, 100, true));
    check(SUFFIX, "(sn=s)", few, (SearchEnd::TooManyEntries, 100, false));
    let little = InternalLimits { candidates: 50, ..none };
    assert_eq!(check(SUFFIX, "(title=even)", little, (SearchEnd::TooMuchWork, 50, true)), 50);
    let unchecked = InternalLimits { unchecked: Some(100), ..none };
    check(SUFFIX, "(title=even)", unchecked, (SearchEnd::Complete, 100, true));
    assert_eq!(check(SUFFIX, "(sn=s)", unchecked, (SearchEnd::TooMuchWork, 0, false)), 0);

    let (dn, any) = (schema().parse_dn("ou=b,dc=example,dc=com").expect("a DN"), BoundFilter::True);
    let query = InternalSearch::new(&dn, Scope::Children, &any);
    assert_eq!(found(&view, &query).1.len(), 1);
    let query = InternalSearch { manage_dsa_it: false, ..query };
    assert_eq!(found(&view, &query).1.len(), 0, "a referral object is passed over");
    let (suffix, even) = (schema().parse_dn(SUFFIX).expect("a DN"), bound("(title=even)"));
    let query = InternalSearch::new(&suffix, Scope::Subtree, &even);
    let searched = internal::search(&view, &query, &mut |_| Ok(false)).expect("no fault");
    assert_eq!((searched.ended, searched.looked), (SearchEnd::Stopped, 1));
}

#[test]
fn requesters_find_what_they_may() {
    let ldif = format!("{TOP}\ndn: cn=e,ou=a,{SUFFIX}\nobjectClass: inetOrgPerson\ncn: e\nsn: s\ntitle: t\n");
    let check = |rules: &[&str],
                 whose: fn(&Subject) -> Whose<'_>,
                 filter: &str,
                 expected: (SearchEnd, &[&str], usize)| {
        let fixture = Fixture::memory(LINES, &ldif);
        fixture.restrict(rules);
        let snapshot = fixture.database.store().snapshot().expect("a snapshot");
        let view = fixture.database.view(&snapshot).expect("a view");
        let (dn, bound) = (schema().parse_dn("ou=a,dc=example,dc=com").expect("a DN"), bound(filter));
        let query = InternalSearch::new(&dn, Scope::Subtree, &bound).of(whose(&fixture.subject));
        let (mut titles, mut dns) = (0, Vec::new());
        let title = schema().describe("title").expect("title");
        let searched = internal::search(&view, &query, &mut |entry| {
            dns.push(entry.dn()?.as_str().to_owned());
            entry.visit_readable(&title, &mut |_| {
                titles += 1;
                true
            })?;
            Ok(true)
        })
        .expect("no fault");
        let dns: Vec<&str> = dns.iter().map(String::as_str).collect();
        assert_eq!((searched.ended, dns.as_slice(), titles), expected, "{rules:?} {filter}");
    };
    let (e, nothing): (&[&str], &[&str]) = (&["cn=e,ou=a,dc=example,dc=com"], &[]);
    let requester: fn(&Subject) -> Whose<'_> = |subject| Whose::Requester(subject);
    let identity: fn(&Subject) -> Whose<'_> = |subject| Whose::Identity(subject);
    let server: fn(&Subject) -> Whose<'_> = |_| Whose::Server;
    let hidden = &["to attrs=title by * none", "to * by * read"][..];
    check(hidden, server, "(title=t)", (SearchEnd::Complete, e, 1));
    check(hidden, requester, "(title=t)", (SearchEnd::Complete, nothing, 0));
    check(hidden, requester, "(sn=s)", (SearchEnd::Complete, e, 0));
    check(hidden, identity, "(title=t)", (SearchEnd::Complete, nothing, 0));
    let closed = &["to dn.base=\"ou=a,dc=example,dc=com\" by * disclose", "to * by * read"][..];
    check(closed, requester, "(sn=s)", (SearchEnd::NoBase, nothing, 0));
    check(closed, server, "(sn=s)", (SearchEnd::Complete, e, 1));
    let auth = &["to * by * auth"][..];
    check(auth, requester, "(sn=s)", (SearchEnd::NoBase, nothing, 0));
    check(auth, identity, "(sn=s)", (SearchEnd::Complete, e, 0));
    let unread =
        &["to dn.base=\"cn=e,ou=a,dc=example,dc=com\" attrs=entry by * search", "to * by * read"][..];
    check(unread, requester, "(sn=s)", (SearchEnd::Complete, nothing, 0));
}
