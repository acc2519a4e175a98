use larix_store::Store;

use super::*;
use crate::fixture::{Checks, Fixture, SUFFIX, TWO_BRANCHES, on_every_store, schema};

/// The name of an entry as it is shown, found by a name within the suffix.
fn name<S: Store>(fixture: &Fixture<S>, rdns: &str) -> String {
    let snapshot = fixture.database.store().snapshot().expect("a snapshot");
    let view = fixture.database.view(&snapshot).expect("a view");
    let dn = schema().parse_dn(&format!("{rdns},{SUFFIX}")).expect(rdns);
    let located = view.locate(&dn).expect("no fault").expect("a suffix");
    let id = located.resolved.id.expect(rdns);
    let record = view.located_record(located).expect("a record");
    view.dn(&view.reader(id, &record).expect("a record").view).expect("a name")
}

struct SuperiorsInTurn;

impl Checks for SuperiorsInTurn {
    fn run<S: Store>(&self, fixture: &mut Fixture<S>) {
        for _ in 0..3 {
            for rdns in ["cn=x,ou=a", "cn=x,ou=b", "cn=x,ou=b", "ou=a"] {
                assert_eq!(name(fixture, rdns), format!("{rdns},{SUFFIX}"));
            }
        }
        // The superior is shown otherwise, which takes effect when the tree has changed.
        let mut superior = fixture.get(&format!("ou=a,{SUFFIX}")).expect("ou=a");
        superior.dn = format!("ou=A,{SUFFIX}");
        // It is the one that was asked for last.
        assert_eq!(name(fixture, "cn=x,ou=a"), format!("cn=x,ou=a,{SUFFIX}"));
        fixture.put(&superior);
        fixture.delete(&format!("cn=x,ou=b,{SUFFIX}"));
        for _ in 0..3 {
            assert_eq!(name(fixture, "cn=x,ou=a"), format!("cn=x,ou=A,{SUFFIX}"));
        }
    }
}

#[test]
fn superiors_are_those_of_the_tree_as_it_is() {
    on_every_store(&[], TWO_BRANCHES, &SuperiorsInTurn);
}

#[test]
fn superiors_of_many_databases_are_kept_apart() {
    // The same ids have other names in each.
    let tree = |number: usize| {
        TWO_BRANCHES.replace("ou=a", &format!("ou=a{number}")).replace("ou: a", &format!("ou: a{number}"))
    };
    let fixtures: Vec<_> = (0..DATABASES_MAX + 3).map(|number| Fixture::memory(&[], &tree(number))).collect();
    for _ in 0..2 {
        for (number, fixture) in fixtures.iter().enumerate() {
            for rdns in [format!("cn=x,ou=a{number}"), "cn=x,ou=b".to_owned()] {
                assert_eq!(name(fixture, &rdns), format!("{rdns},{SUFFIX}"));
            }
        }
    }
    for _ in 0..3 {
        for number in [1, 0] {
            let rdns = format!("cn=x,ou=a{number}");
            assert_eq!(name(&fixtures[number], &rdns), format!("{rdns},{SUFFIX}"));
        }
    }
    assert!(CACHES.with_borrow(Vec::len) <= DATABASES_MAX);
}
