//! Which plan a filter gets.

use larix_proto::FilterBuf;
use larix_store::Store;

use super::{Exactness, Plan};
use crate::filter::Filter;
use crate::fixture::{Fixture, SUFFIX, schema};

fn directory() -> String {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
    for i in 0..200 {
        let title = if i % 2 == 0 { "even" } else { "odd" };
        ldif.push_str(&format!(
            "\ndn: cn=p{i},{SUFFIX}\nobjectClass: inetOrgPerson\ncn: p{i}\nsn: s{i}\ntitle: {title}\n"
        ));
    }
    ldif
}

#[test]
fn a_plan_says_what_it_reads_and_what_is_to_verify() {
    let lines = [("cn", "eq,sub"), ("title", "pres,eq"), ("sn", "eq")];
    let fixture = Fixture::memory(&lines, &directory());
    let snapshot = fixture.database.store().snapshot().unwrap();
    let catalog = fixture.database.catalog();
    for (filter, expected, exactness, read) in [
        ("(title=even)", "index title eq \"even\": about 100 entries, exact", Exactness::Exact, Some(100)),
        ("(title=*)", "index title pres: about 200 entries, exact", Exactness::Exact, Some(200)),
        ("(sn=s7)", "index sn eq \"s7\": about 1 entry, exact", Exactness::Exact, Some(1)),
        ("(givenName=x)", "nothing can match: about 0 entries, exact", Exactness::Exact, Some(0)),
        ("(!(sn=s7))", "scan: all entries, the filter is tested on each", Exactness::All, None),
        ("(ou=x)", "nothing can match: about 0 entries, exact", Exactness::Exact, Some(0)),
        // The second term is not even looked up.
        (
            "(&(sn=s7)(title=odd))",
            "index sn eq \"s7\": about 1 entry, to verify",
            Exactness::Partial,
            Some(1),
        ),
        (
            "(&(title=odd)(!(sn=s7)))",
            "index title eq \"odd\": about 100 entries, to verify",
            Exactness::Partial,
            Some(100),
        ),
        (
            "(|(sn=s7)(sn=s8))",
            "any of: about 2 entries, exact\n  index sn eq \"s7\": about 1 entry, exact\n  index sn eq \"s8\": about 1 entry, exact",
            Exactness::Exact,
            Some(2),
        ),
        ("(|(sn=s7)(dc=x))", "scan: all entries, the filter is tested on each", Exactness::All, None),
        ("(cn=p19*)", "index cn subany \"p19\": about 11 entries, to verify", Exactness::Partial, Some(11)),
        (
            "(cn=p1*)",
            "index range of cn subinitial: about 111 entries, to verify",
            Exactness::Partial,
            Some(111),
        ),
        ("(cn=*199*)", "index cn subany \"199\": about 1 entry, to verify", Exactness::Partial, Some(1)),
        ("(cn=*99)", "index range of cn subfinal: about 2 entries, to verify", Exactness::Partial, Some(2)),
    ] {
        let text = FilterBuf::parse(filter).unwrap();
        let bound = Filter::new(&schema(), &catalog, schema().bind_filter(text.as_filter()));
        let plan = Plan::of(&snapshot, &catalog, &bound).unwrap();
        assert_eq!(plan.explain(&catalog).to_string(), expected, "{filter}");
        let candidates = plan.read(&snapshot).unwrap();
        assert_eq!((candidates.exactness, candidates.len()), (exactness, read), "{filter}");
    }
}

#[test]
fn what_an_index_proves() {
    let lines = [("cn", "eq,sub"), ("title", "pres,eq"), ("sn", "eq")];
    let fixture = Fixture::memory(&lines, &directory());
    let snapshot = fixture.database.store().snapshot().unwrap();
    let catalog = fixture.database.catalog();
    for (filter, expected) in [
        ("(&(sn=s7)(title=odd))", Some(0)),
        // The shorter list is read first.
        ("(&(title=odd)(sn=s7))", Some(1)),
        // Equality comes first wherever it stands.
        ("(&(cn=p1*)(title=odd))", Some(1)),
        ("(&(dc=x)(!(cn=p1))(sn=s7))", Some(2)),
        ("(&(title=*)(title=odd))", Some(1)),
        // What is only likely, or holds of an inner AND, or of one of several, is no term that holds.
        ("(&(cn=p1*)(cn=*9))", None),
        ("(&(|(sn=s7)(cn=p1*))(title=*))", None),
        ("(&(|(sn=s7)(sn=s8))(!(title=*)))", Some(0)),
        ("(|(&(sn=s7)(title=odd))(cn=p1*))", None),
        ("(|(&(sn=s7)(title=odd))(givenName=x))", None),
        ("(sn=s7)", None),
    ] {
        let text = FilterBuf::parse(filter).unwrap();
        let bound = Filter::new(&schema(), &catalog, schema().bind_filter(text.as_filter()));
        let plan = Plan::of(&snapshot, &catalog, &bound).unwrap();
        assert_eq!(plan.read(&snapshot).unwrap().proved, expected, "{filter}");
        assert_eq!(plan.into_candidates(&snapshot).unwrap().proved, expected, "{filter}");
    }
}

#[test]
fn a_list_that_is_left_out_proves_nothing() {
    let lines = [("cn", "eq,sub"), ("title", "pres,eq"), ("sn", "eq")];
    let fixture = Fixture::memory(&lines, &directory());
    let snapshot = fixture.database.store().snapshot().unwrap();
    let catalog = fixture.database.catalog();
    // Of `(&(title=odd)(sn=s8))`, which no entry is, the list of the title is long and is not read.
    for (filter, exactness, proved, read) in [
        ("(&(title=odd)(sn=s8))", Exactness::Partial, Some(1), 1),
        ("(|(&(title=odd)(sn=s8))(sn=s7))", Exactness::Partial, None, 2),
        ("(&(|(&(title=odd)(sn=s8))(sn=s7))(title=*))", Exactness::Partial, None, 2),
        ("(&(|(&(title=odd)(sn=s8))(cn=p1))(!(sn=x)))", Exactness::Partial, None, 2),
        ("(&(&(title=odd)(sn=s8))(!(sn=x)))", Exactness::Partial, None, 1),
        ("(&(title=*)(&(title=odd)(sn=s8)))", Exactness::Partial, None, 1),
        ("(&(title=*)(|(&(title=odd)(sn=s8))(title=odd)))", Exactness::Partial, None, 101),
        // Both lists are read.
        ("(&(title=*)(title=odd))", Exactness::Exact, Some(1), 100),
        ("(&(&(title=*)(title=odd))(!(sn=x)))", Exactness::Partial, Some(0), 100),
        ("(|(&(title=*)(title=odd))(sn=s8))", Exactness::Exact, None, 101),
    ] {
        let text = FilterBuf::parse(filter).unwrap();
        let bound = Filter::new(&schema(), &catalog, schema().bind_filter(text.as_filter()));
        let candidates = Plan::of(&snapshot, &catalog, &bound).unwrap().into_candidates(&snapshot).unwrap();
        let found = (candidates.exactness, candidates.proved, candidates.len());
        assert_eq!(found, (exactness, proved, Some(read)), "{filter}");
    }
}
