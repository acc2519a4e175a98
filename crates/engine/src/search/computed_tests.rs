//! What an overlay computes is answered as if it were stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use larix_proto::{CompareRequest, FilterBuf, ResultCode, Scope};
use larix_schema::{AttributeDescription, Schema};
use larix_store::Store;
use larix_store::memory::MemoryStore;

use crate::budget::RequestLimit;
use crate::compare::{CompareContext, compare};
use crate::controls::{ControlValues, RequestControls, SortKey, SortRequest};
use crate::database::DatabaseSettings;
use crate::failure::Failure;
use crate::fixture::{Answered, Attributes, Fixture, SUFFIX, SearchSpec, schema};
use crate::overlay::computed::{ComputedAttributes, ComputedIn, ComputedOf, Holders};
use crate::overlay::internal_search::InternalSearch;
use crate::overlay::{Interests, Overlay};

const LINES: &[(&str, &str)] = &[("objectClass", "eq"), ("cn,sn,title", "pres,eq,sub")];

/// Computes of an entry with a surname its title, and who made it.
#[derive(Debug, Default)]
struct Titles {
    calls: AtomicUsize,
    indexed: bool,
}

/// A surname's title, and the surname of a title.
fn title(sn: &str) -> String {
    format!("t-{sn}")
}

fn maker(sn: &str) -> String {
    format!("cn={sn},{SUFFIX}")
}

fn describe(name: &str) -> AttributeDescription {
    schema().describe(name).expect(name)
}

impl Overlay for Titles {
    fn name(&self) -> &'static str {
        "titles"
    }

    fn interests(&self) -> Interests {
        Interests::COMPUTE
    }

    fn computed(&self) -> Option<&dyn ComputedAttributes> {
        Some(self)
    }
}

impl ComputedAttributes for Titles {
    fn attributes(&self, schema: &Schema) -> Vec<AttributeDescription> {
        ["title", "creatorsName"].iter().filter_map(|name| schema.describe(name).ok()).collect()
    }

    fn visit(
        &self,
        of: &ComputedOf<'_>,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let by = if *attribute == describe("title") { title } else { maker };
        of.entry
            .source()
            .visit_exact(&describe("sn"), &mut |sn| visit(by(&String::from_utf8_lossy(sn)).as_bytes()))?;
        Ok(())
    }

    fn holders(
        &self,
        within: &ComputedIn<'_>,
        attribute: &AttributeDescription,
        normal: &[u8],
    ) -> Result<Option<Holders>, Failure> {
        let ComputedIn { schema, entries, .. } = *within;
        let normal = String::from_utf8_lossy(normal);
        let Some(sn) = normal.strip_prefix("t-").filter(|_| self.indexed && *attribute == describe("title"))
        else {
            return Ok(if self.indexed && *attribute == describe("title") {
                Some(Holders::default())
            } else {
                None
            });
        };
        let filter =
            schema.bind_filter(FilterBuf::parse(&format!("(sn={sn})")).expect("a filter").as_filter());
        let base = schema.parse_dn("").expect("the root");
        let mut holders = Holders { ids: Vec::new(), exact: true };
        entries.search(&InternalSearch::new(&base, Scope::Subtree, &filter), &mut |found| {
            holders.ids.push(found.id().0);
            Ok(true)
        })?;
        Ok(Some(holders))
    }
}

/// The same directory twice: what one computes the other has stored.
fn both(indexed: bool) -> (Fixture<MemoryStore>, Fixture<MemoryStore>, Arc<Titles>) {
    let (mut stored, mut bare) = (String::new(), String::new());
    for text in [&mut stored, &mut bare] {
        text.push_str(&format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n"));
    }
    for number in 0..40 {
        let sn = format!("s{}", number % 7);
        let mut entry =
            format!("\ndn: cn=e{number},{SUFFIX}\nobjectClass: inetOrgPerson\ncn: e{number}\nsn: {sn}\n");
        // Some have a title of their own.
        let own = if number % 5 == 0 { format!("title: own{number}\n") } else { String::new() };
        entry.push_str(&own);
        bare.push_str(&entry);
        stored.push_str(&format!("{entry}title: {}\ncreatorsName: {}\n", title(&sn), maker(&sn)));
    }
    let overlay = Arc::new(Titles { indexed, ..Titles::default() });
    let computing = Fixture::memory(LINES, &bare);
    let mut settings = DatabaseSettings::clone(&computing.database.settings());
    settings.overlays.push(Arc::clone(&overlay) as Arc<dyn Overlay>);
    computing.reconfigure(settings);
    (computing, Fixture::memory(LINES, &stored), overlay)
}

/// Entries with attributes and values in a fixed order, for comparison.
fn sorted(answered: &Answered) -> Vec<(String, Attributes)> {
    let mut entries = answered.entries.clone();
    for (_, attributes) in &mut entries {
        attributes.iter_mut().for_each(|(_, values)| values.sort());
        attributes.sort();
    }
    entries
}

fn check(computing: &Fixture<impl Store>, stored: &Fixture<impl Store>, spec: &SearchSpec<'_>) {
    let (found, expected) = (computing.search(spec), stored.search(spec));
    assert_eq!(found.result, expected.result, "{spec:?}");
    assert_eq!(found.dns(), expected.dns(), "{spec:?}");
    assert_eq!(sorted(&found), sorted(&expected), "{spec:?}");
}

const FILTERS: &[&str] = &[
    "(title=t-s3)",
    "(title=T-S3)",
    "(title=own5)",
    "(title=nobody)",
    "(title=*)",
    "(title=t-*)",
    "(!(title=t-s3))",
    "(&(title=t-s3)(cn=e3))",
    "(|(title=t-s3)(title=own5)(cn=e1))",
    "(&(title=t-s1)(title=own15))",
    "(name=t-s3)",
    "(title:caseExactMatch:=t-s3)",
    "(:caseExactMatch:=t-s3)",
    "(title~=t-s3)",
    "(creatorsName=cn=S3,dc=example,dc=com)",
    "(creatorsName=*)",
    "(title;lang-en=t-s3)",
];

#[test]
fn searches_answer_alike() {
    for indexed in [false, true] {
        let (computing, stored, _) = both(indexed);
        for rules in [
            &["to * by * read"][..],
            &["to attrs=title by * search", "to * by * read"],
            &["to attrs=title val.regex=\"^t-s3$\" by * none", "to * by * read"],
            &["to filter=(title=t-s3) by * none", "to * by * read"],
            &["to * by set=\"this/title & [t-s3]\" read by * none"],
            &["to attrs=title,creatorsName by * none", "to * by * read"],
        ] {
            computing.restrict(rules);
            stored.restrict(rules);
            for filter in FILTERS {
                for attributes in
                    [&["*"][..], &["*", "+"], &["title"], &["creatorsName", "cn"], &["name"], &["1.1"]]
                {
                    for types_only in [false, true] {
                        check(
                            &computing,
                            &stored,
                            &SearchSpec { filter, attributes, types_only, ..SearchSpec::default() },
                        );
                    }
                }
            }
        }
    }
}

fn controls(values: ControlValues) -> RequestControls {
    RequestControls::from(values)
}

#[test]
fn controls_answer_alike() {
    let (computing, stored, _) = both(true);
    let key = |attribute: &str, reverse| SortKey { attribute: attribute.into(), rule: None, reverse };
    let sort = |keys| Some(SortRequest { keys, critical: true });
    let filter = |text: &str| FilterBuf::parse(text).expect(text);
    for values in [
        ControlValues { sort: sort(vec![key("title", false)]), ..ControlValues::default() },
        ControlValues { sort: sort(vec![key("title", true), key("cn", false)]), ..ControlValues::default() },
        ControlValues { matched_values: Some(vec![filter("(title=t-*)")]), ..ControlValues::default() },
        ControlValues {
            matched_values: Some(vec![filter("(title=own*)"), filter("(sn=*)")]),
            ..ControlValues::default()
        },
        ControlValues { assertion: Some(filter("(title=t-s0)")), ..ControlValues::default() },
    ] {
        let base = if values.assertion.is_some() { "cn=e0,dc=example,dc=com" } else { SUFFIX };
        check(&computing, &stored, &SearchSpec { base, controls: controls(values), ..SearchSpec::default() });
    }
}

#[test]
fn compares_answer_alike() {
    let (computing, stored, _) = both(false);
    let ask = |fixture: &Fixture<MemoryStore>, controls: &RequestControls, name: &str, value: &str| {
        let snapshot = fixture.database.store().snapshot().expect("a snapshot");
        let view = fixture.database.view(&snapshot).expect("a view");
        let context = CompareContext { controls, subject: &fixture.subject, default_referrals: &[] };
        let entry = "cn=e5,dc=example,dc=com";
        let request = CompareRequest { entry, attribute: name, value: value.as_bytes() };
        compare(&view, &context, &schema().parse_dn(entry).expect("a DN"), &request).code
    };
    for rules in [
        &["to * by * read"][..],
        &["to attrs=title by * none", "to * by * read"],
        &["to filter=(title=t-s5) by * none", "to * by * read"],
    ] {
        computing.restrict(rules);
        stored.restrict(rules);
        for (name, value) in [
            ("title", "T-s5"),
            ("title", "own5"),
            ("title", "x"),
            ("name", "t-s5"),
            ("creatorsName", "cn=s5, dc=example, dc=com"),
            ("creatorsName", "cn=s6,dc=example,dc=com"),
            ("description", "x"),
        ] {
            for assertion in [None, Some("(title=t-s5)"), Some("(title=x)")] {
                let values = ControlValues {
                    assertion: assertion.map(|text| FilterBuf::parse(text).expect(text)),
                    ..ControlValues::default()
                };
                let controls = controls(values);
                let (found, expected) =
                    (ask(&computing, &controls, name, value), ask(&stored, &controls, name, value));
                assert_eq!(found, expected, "{rules:?} {name} {value} {assertion:?}");
            }
        }
    }
}

#[test]
fn managers_of_what_is_stored_see_that_alone() {
    let (computing, ..) = both(true);
    let manage = || controls(ControlValues { manage_dsa_it: true, ..ControlValues::default() });
    let find = |filter| {
        computing.search(&SearchSpec { filter, controls: manage(), ..SearchSpec::default() }).entries
    };
    assert_eq!(find("(title=t-s3)").len(), 0);
    assert_eq!(find("(title=*)").len(), 8);
    assert!(find("(cn=e1)")[0].1.iter().all(|(name, _)| name != "title"));
}

/// Entries whose filter the overlay's candidates prove are asked nothing, and others nothing at all.
#[test]
fn equality_is_answered_by_candidates() {
    let count = |indexed, filter, attributes: &[&str]| {
        let (computing, _, overlay) = both(indexed);
        let spec = SearchSpec { filter, attributes, ..SearchSpec::default() };
        let found = computing.search(&spec).entries.len();
        (found, overlay.calls.load(Ordering::Relaxed))
    };
    assert_eq!(count(true, "(title=t-s3)", &["cn"]), (6, 0));
    assert_eq!(count(true, "(&(title=t-s3)(cn=e3))", &["cn"]).0, 1);
    assert_eq!(count(true, "(title=t-s3)", &["title"]), (6, 6));
    assert_eq!(count(false, "(title=t-s3)", &["cn"]).0, 6);
    assert!(count(false, "(title=t-s3)", &["cn"]).1 >= 40);
    assert_eq!(count(false, "(sn=s3)", &["cn"]), (6, 0));
}

/// What an overlay looks at costs the search steps.
#[test]
fn what_overlays_look_at_is_charged() {
    let (computing, ..) = both(true);
    let limit = |steps| {
        let mut settings = DatabaseSettings::clone(&computing.database.settings());
        settings.request_limits = settings.request_limits.with(RequestLimit::Steps, steps);
        computing.reconfigure(settings);
    };
    let ask = |filter| {
        let found = computing.search(&SearchSpec { filter, attributes: &["1.1"], ..SearchSpec::default() });
        (found.result.code, found.entries.len())
    };
    limit(40);
    assert_eq!(ask("(sn=s3)"), (ResultCode::SUCCESS, 6));
    assert_eq!(ask("(title=t-s3)"), (ResultCode::ADMIN_LIMIT_EXCEEDED, 0));
    // Beside an index that leaves few candidates the overlay is not asked for its own.
    assert_eq!(ask("(&(title=t-s3)(cn=e3))"), (ResultCode::SUCCESS, 1));
    limit(100);
    assert_eq!(ask("(title=t-s3)"), (ResultCode::SUCCESS, 6));
}

/// An overlay does not send every search the long way: only those that ask for what it computes.
#[test]
fn searches_by_what_is_stored_are_answered_at_once() {
    let (mut computing, _, overlay) = both(true);
    let direct = |fixture: &Fixture<MemoryStore>, spec: &SearchSpec<'_>| {
        // It is asked twice, for a base is known then.
        fixture.search(spec);
        fixture.direct(spec).map(|(_, entries)| entries)
    };
    for (filter, want) in [
        ("(cn=e3)", Some(1)),
        ("(&(cn=e3)(sn=s3))", Some(1)),
        ("(title=own5)", None),
        ("(&(cn=e5)(title=own5))", None),
        ("(&(cn=e5)(title=*))", None),
        ("(creatorsName=*)", None),
    ] {
        for attributes in [&["*"][..], &["*", "+"], &["title"], &["1.1"]] {
            let spec = SearchSpec { filter, attributes, ..SearchSpec::default() };
            assert_eq!(direct(&computing, &spec), want, "{filter} {attributes:?}");
        }
    }
    let read = SearchSpec { base: "cn=e5,dc=example,dc=com", scope: Scope::Base, ..SearchSpec::default() };
    assert_eq!(direct(&computing, &read), Some(1));
    assert_eq!(direct(&computing, &SearchSpec { filter: "(title=*)", ..read.clone() }), None);
    // The overlay is asked as it is on the long way, and not at all where nobody wants what it computes.
    let before = overlay.calls.load(Ordering::Relaxed);
    assert_eq!(
        computing.direct(&SearchSpec { attributes: &["cn"], ..read }).map(|(_, found)| found),
        Some(1)
    );
    assert_eq!(overlay.calls.load(Ordering::Relaxed), before);
    // Rules that ask for what is computed have the same answer there.
    computing.restrict(&["to filter=(title=t-s3) by * none", "to * by * read"]);
    computing.subject = Arc::default();
    for (filter, want) in [("(cn=e3)", 0), ("(cn=e4)", 1)] {
        assert_eq!(computing.search(&SearchSpec { filter, ..SearchSpec::default() }).entries.len(), want);
    }
}

/// Candidates that are looked at in one go share one search's steps.
#[test]
fn what_overlays_look_at_leaves_the_short_way() {
    let (computing, ..) = both(true);
    let spec = SearchSpec { filter: "(sn=s3)", attributes: &["title"], ..SearchSpec::default() };
    computing.search(&spec);
    assert_eq!(computing.direct(&spec).map(|(_, entries)| entries), Some(6));
    let mut settings = DatabaseSettings::clone(&computing.database.settings());
    settings.request_limits = settings.request_limits.with(RequestLimit::Steps, 8);
    computing.reconfigure(settings);
    assert!(computing.direct(&spec).is_none(), "one entry's steps are not enough for six");
}
