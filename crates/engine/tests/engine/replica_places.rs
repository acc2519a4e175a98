//! Places that the superior's entryUUID names: where entries go, what is remembered, and who decides.

use larix_engine::DatabaseSettings;
use larix_engine::csn::Csn;
use larix_engine::log::{
    self, LogKey, LogRetention, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification,
};
use larix_engine::replica::{
    EntryPlace, EntryPlaces, ReplicaRules, ReplicatedBatch, ReplicatedChange, conflicts, entry_of,
};
use larix_engine::tables::REPLICA;
use larix_store::{Direction, KeyRange, Snapshot as _, Store as _};
use uuid::Uuid;

use crate::common::{Fixture, SUFFIX, memory, schema, settings};
use crate::replica_records::{content, member_keeping};
use crate::replicated::{
    Memory, apply, batch, csn, delete, filled, find_nothing, orders, put, raise, uuid, word,
};

/// A put with its place.
fn with_place(change: ReplicatedChange, superior: Uuid, name: &str) -> ReplicatedChange {
    let ReplicatedChange::Put { entry_uuid, dn, attributes, state, .. } = change else { panic!("no put") };
    let place = Some(EntryPlace { superior, name: name.to_owned() });
    ReplicatedChange::Put { entry_uuid, dn, attributes, state, place }
}

/// The place of an entry as other servers receive it: the superior's entryUUID, and the name below that.
fn place(f: &Memory, number: u128) -> (Uuid, String) {
    let snapshot = f.database().store().snapshot().unwrap();
    let view = f.database().view(&snapshot).unwrap();
    let id = entry_of(&view, &uuid(number)).unwrap().unwrap();
    let record = view.record(id).unwrap().unwrap();
    let place = EntryPlaces::default().place_of(&view, &view.reader(id, &record).unwrap()).unwrap().unwrap();
    (place.superior, place.name)
}

/// Entries that are remembered to stand elsewhere than their versions say.
fn elsewhere(f: &Memory) -> usize {
    let snapshot = f.database().store().snapshot().unwrap();
    snapshot.scan(REPLICA, KeyRange::prefix(b"e"), Direction::Forward).unwrap().count()
}

fn csn_of(f: &Memory, dn: &str) -> Csn {
    f.value(dn, "entryCSN").unwrap_or_else(|| panic!("{dn} is not there")).parse().unwrap()
}

fn suffix_uuid(f: &Memory) -> Uuid {
    f.value(SUFFIX, "entryUUID").unwrap().parse().unwrap()
}

/// The batch is complete; nothing is open behind that.
fn complete(f: &Memory) {
    raise(f, &[csn(2, 1_000), csn(3, 1_000)]);
    assert_eq!(elsewhere(f), 0);
    find_nothing(f);
}

const OLD: &str = "ou=u,dc=example,dc=com";
const NEW: &str = "ou=v,dc=example,dc=com";
const BELOW_OLD: &str = "cn=a,ou=u,dc=example,dc=com";
const BELOW_NEW: &str = "cn=a,ou=v,dc=example,dc=com";

#[test]
fn an_entry_goes_to_its_superior_whatever_that_is_called() {
    let f = filled();
    assert_eq!(apply(&f, [put(2, NEW, csn(2, 1), &[])]), "done");
    assert_eq!(apply(&f, [with_place(put(1, BELOW_OLD, csn(3, 2), &[]), uuid(2), "cn=a")]), "done");
    assert!(f.entry(BELOW_NEW).is_some() && f.entry(OLD).is_none());
    assert_eq!((place(&f, 1), elsewhere(&f)), ((uuid(2), "cn=a".to_owned()), 0));
    // What is here already stays there, whatever it is called elsewhere.
    let changed = put(1, BELOW_OLD, csn(3, 3), &[("description", "changed")]);
    assert_eq!(apply(&f, [with_place(changed, uuid(2), "CN=A")]), "done");
    assert_eq!(f.value(BELOW_NEW, "description").as_deref(), Some("changed"));
    // Glue between belongs to the name.
    let deep = with_place(put(3, "cn=b,ou=w,ou=u,dc=example,dc=com", csn(3, 4), &[]), uuid(2), "cn=b,ou=w");
    assert_eq!(apply(&f, [deep]), "done");
    assert_eq!(place(&f, 3), (uuid(2), "cn=b,ou=w".to_owned()));
    complete(&f);
    assert_eq!(csn_of(&f, BELOW_NEW), csn(3, 3));
    assert_eq!(csn_of(&f, "cn=b,ou=w,ou=v,dc=example,dc=com"), csn(3, 4));
}

#[test]
fn a_superior_that_comes_later_gets_what_waited_for_it() {
    // With places and without: what comes before its superior is not changed by that.
    for has_place in [true, false] {
        let f = filled();
        let with_place =
            |change, superior, name| if has_place { with_place(change, superior, name) } else { change };
        let below = with_place(put(1, BELOW_OLD, csn(2, 2), &[]), uuid(2), "cn=a");
        assert_eq!(apply(&f, [below]), "done");
        assert_eq!(elsewhere(&f), usize::from(has_place));
        let superior = with_place(put(2, OLD, csn(2, 1), &[]), suffix_uuid(&f), "ou=u");
        assert_eq!(apply(&f, [superior]), "done");
        complete(&f);
        assert_eq!(csn_of(&f, BELOW_OLD), csn(2, 2), "{has_place}");
        assert_eq!(place(&f, 1), (uuid(2), "cn=a".to_owned()));
    }
    // Under another name than the one that the entry came with.
    let f = filled();
    assert_eq!(apply(&f, [with_place(put(1, BELOW_OLD, csn(2, 2), &[]), uuid(2), "cn=a")]), "done");
    // Meanwhile a consumer receives the place that the entry will have.
    assert_eq!(place(&f, 1), (uuid(2), "cn=a".to_owned()));
    assert_eq!(apply(&f, [with_place(put(2, NEW, csn(2, 3), &[]), suffix_uuid(&f), "ou=v")]), "done");
    complete(&f);
    assert_eq!(csn_of(&f, BELOW_NEW), csn(2, 2));
    assert!(f.entry(OLD).is_none());
}

#[test]
fn what_stands_on_glue_beneath_glue_waits_too() {
    let f = filled();
    let (unit, leaf) = ("ou=w,ou=u,dc=example,dc=com", "cn=a,ou=w,ou=u,dc=example,dc=com");
    assert_eq!(apply(&f, [put(1, leaf, csn(2, 3), &[]), put(2, OLD, csn(2, 1), &[])]), "done, done");
    assert_eq!(apply(&f, [put(3, unit, csn(2, 2), &[])]), "done");
    complete(&f);
    assert_eq!((csn_of(&f, leaf), csn_of(&f, unit)), (csn(2, 3), csn(2, 2)));
}

/// Who takes changes tells the place that an entry has as a change of its own; who takes none leaves that to its provider.
#[test]
fn what_cannot_stand_where_it_is_to_stand_is_decided() {
    let check = |multi_provider: bool, changes: &dyn Fn(&Memory) -> Vec<ReplicatedChange>| {
        let f = filled();
        let rules = ReplicaRules { multi_provider, ..ReplicaRules::default() };
        let changes = changes(&f);
        let context_csns = vec![csn(2, 1_000)];
        let outcome = batch(&f, ReplicatedBatch { changes, context_csns, rules });
        assert!(outcome.changes.iter().all(|applied| word(applied) == "done"), "{outcome:?}");
        assert_eq!(elsewhere(&f), 0);
        find_nothing(&f);
        assert_eq!(csn_of(&f, BELOW_OLD).server_id, if multi_provider { 1 } else { 2 });
        assert_eq!(place(&f, 1), (suffix_uuid(&f), "cn=a,ou=u".to_owned()));
    };
    for multi_provider in [true, false] {
        // A superior that never comes.
        check(multi_provider, &|_| vec![with_place(put(1, BELOW_OLD, csn(2, 2), &[]), uuid(2), "cn=a")]);
        // One that is deleted while others fill it.
        check(multi_provider, &|f| {
            vec![
                with_place(put(2, OLD, csn(2, 1), &[]), suffix_uuid(f), "ou=u"),
                with_place(put(1, BELOW_OLD, csn(2, 2), &[]), uuid(2), "cn=a"),
                delete(2, csn(2, 3)),
            ]
        });
    }
}

#[test]
fn a_decision_overrules_what_was_changed_elsewhere_before_it() {
    let f = filled();
    assert_eq!(apply(&f, [with_place(put(1, BELOW_OLD, csn(2, 2), &[]), uuid(2), "cn=a")]), "done");
    f.clock.advance_micros(10_000_000);
    raise(&f, &[csn(3, 1)]);
    assert_eq!(elsewhere(&f), 0);
    let late = put(1, BELOW_OLD, csn(2, 3), &[("description", "late")]);
    assert_eq!(apply(&f, [with_place(late, uuid(2), "cn=a")]), "modify ours");
    assert_eq!(csn_of(&f, BELOW_OLD).server_id, 1);
    let lost = conflicts(&f.database().store().snapshot().unwrap(), 0, 100).unwrap();
    assert!(lost.last().unwrap().note.lost.iter().any(|a| a.values == [b"late"]), "{lost:?}");
}

#[test]
fn the_entry_of_a_suffix_stands_on_nothing() {
    let f = filled();
    // At the provider there is something above it.
    let own = suffix_uuid(&f);
    let change = put(own.as_u128(), SUFFIX, csn(2, 5), &[]);
    assert_eq!(apply(&f, [with_place(change, uuid(77), "dc=example")]), "done");
    complete(&f);
    assert_eq!(csn_of(&f, SUFFIX), csn(2, 5));
}

#[test]
fn of_entries_below_each_other_the_older_move_is_taken_back() {
    let check = |x_moved: i64, y_moved: i64, expected: &str, decided: &str| {
        let f = filled();
        let (x, y) = ("ou=x,dc=example,dc=com", "ou=y,dc=example,dc=com");
        assert_eq!(apply(&f, [put(1, x, csn(2, 1), &[]), put(2, y, csn(2, 2), &[])]), "done, done");
        apply(&f, [with_place(put(1, "ou=x,ou=y,dc=example,dc=com", csn(2, x_moved), &[]), uuid(2), "ou=x")]);
        apply(&f, [with_place(put(2, "ou=y,ou=x,dc=example,dc=com", csn(3, y_moved), &[]), uuid(1), "ou=y")]);
        complete(&f);
        assert!(f.entry(expected).is_some(), "{x_moved} {y_moved}");
        assert_eq!(csn_of(&f, decided).server_id, 1);
    };
    check(5, 6, "ou=y,ou=x,dc=example,dc=com", "ou=x,dc=example,dc=com");
    check(6, 5, "ou=x,ou=y,dc=example,dc=com", "ou=y,dc=example,dc=com");
}

/// A version of an entry: its number, its name and its CSN, and its place.
type PlacedVersion<'t> = (u128, &'t str, i64, (u128, &'t str));

/// Containers that exchange names and places: whatever comes first, all end as their provider has them, and nobody decides anything.
#[test]
fn who_waits_for_others_to_go_is_not_set_aside() {
    let (b, k, z) =
        ("ou=b,dc=example,dc=com", "ou=k,ou=b,dc=example,dc=com", "ou=z,ou=k,ou=b,dc=example,dc=com");
    let x = "ou=x,dc=example,dc=com";
    let cases: [(&[PlacedVersion<'_>], [PlacedVersion<'_>; 3]); 2] = [
        // It stands below one that was below it, and a new one has its first name.
        (
            &[(2, b, 1, (0, "ou=b")), (3, k, 2, (2, "ou=k"))],
            [(2, z, 12, (3, "ou=z")), (3, k, 14, (4, "ou=k")), (4, b, 13, (0, "ou=b"))],
        ),
        // One of before has its first name, by an older change than that of its name now.
        (
            &[(2, b, 1, (0, "ou=b")), (3, k, 2, (2, "ou=k")), (4, x, 3, (0, "ou=x"))],
            [(2, z, 14, (3, "ou=z")), (3, k, 11, (4, "ou=k")), (4, b, 13, (0, "ou=b"))],
        ),
    ];
    for (first, now) in cases {
        for order in orders(3) {
            for multi_provider in [true, false] {
                let f = filled();
                let suffix = suffix_uuid(&f);
                let placed = |(number, dn, time, (superior, name)): PlacedVersion<'_>| {
                    let superior = if superior == 0 { suffix } else { uuid(superior) };
                    with_place(put(number, dn, csn(2, time), &[]), superior, name)
                };
                first.iter().for_each(|entry| assert_eq!(apply(&f, [placed(*entry)]), "done"));
                let changes = order.iter().map(|at| placed(now[*at])).collect();
                let rules = ReplicaRules { multi_provider, drop_covered: false, ..ReplicaRules::default() };
                batch(&f, ReplicatedBatch { changes, context_csns: vec![csn(2, 14)], rules });
                for (number, dn, time, _) in now {
                    let found = (f.value(dn, "entryUUID"), f.value(dn, "entryCSN"));
                    let expected = (Some(uuid(number).to_string()), Some(csn(2, time).to_string()));
                    assert_eq!(found, expected, "{dn}: {multi_provider} {order:?}");
                }
                complete(&f);
            }
        }
    }
}

/// Whose older move is taken back is called what it was called before, by a decision: it has the value of that name, too,
/// and keeps that of the other one.
#[test]
fn a_name_that_a_server_gives_brings_its_value() {
    for f in [filled(), member_keeping(1, LogRetention::default())] {
        let (x, y) = ("ou=x,dc=example,dc=com", "ou=y,dc=example,dc=com");
        assert_eq!(apply(&f, [put(1, x, csn(2, 1), &[]), put(2, y, csn(3, 2), &[])]), "done, done");
        assert_eq!(apply(&f, [put(1, "ou=p,ou=y,dc=example,dc=com", csn(2, 5), &[])]), "done");
        assert_eq!(apply(&f, [put(2, "ou=q,ou=x,dc=example,dc=com", csn(3, 6), &[])]), "done");
        complete(&f);
        let (dn, content) = content(&f);
        assert_eq!((dn.as_str(), &content["ou"][..]), (x, &["p".to_owned(), "x".to_owned()][..]));
        assert_eq!(csn_of(&f, x).server_id, 1);
    }
}

/// A record of an access log is made later than the change: what the entry stood on may be gone by then.
#[test]
fn a_decision_tells_the_place_that_was_decided() {
    let f = member_keeping(1, LogRetention::default());
    assert_eq!(apply(&f, [with_place(put(1, BELOW_OLD, csn(2, 2), &[]), uuid(2), "cn=a")]), "done");
    complete(&f);
    assert_eq!(csn_of(&f, BELOW_OLD).server_id, 1);
    // An entry fills the glue in.
    assert_eq!(apply(&f, [put(3, OLD, csn(3, 1_001), &[])]), "done");
    let snapshot = f.database().store().snapshot().unwrap();
    let view = f.database().view(&snapshot).unwrap();
    let (mut places, mut decided) = (EntryPlaces::default(), None);
    let from = LogKey { server_id: 1, sequence: 0 };
    log::visit_stored_after(&snapshot, from, &mut |_, record, _| {
        let is_decision = record.entry_uuid == uuid(1) && record.csn.server_id == 1 && !record.local;
        if is_decision {
            decided = places.of_record(&view, &record).unwrap();
        }
        true
    })
    .unwrap();
    assert_eq!(decided, Some(EntryPlace { superior: suffix_uuid(&f), name: "cn=a,ou=u".to_owned() }));
}

#[test]
fn what_is_below_an_entry_that_loses_its_name_goes_with_it() {
    for has_place in [true, false] {
        let f = filled();
        assert_eq!(apply(&f, [put(2, OLD, csn(2, 1), &[]), put(1, BELOW_OLD, csn(2, 2), &[])]), "done, done");
        let other = put(3, OLD, csn(3, 5), &[]);
        let other = if has_place { with_place(other, suffix_uuid(&f), "ou=u") } else { other };
        assert_eq!(apply(&f, [other]), "name theirs");
        complete(&f);
        let aside = format!("entryUUID={},{SUFFIX}", uuid(2));
        assert_eq!(csn_of(&f, &aside).server_id, 1);
        assert_eq!(csn_of(&f, &format!("cn=a,{aside}")), csn(2, 2));
        assert!(f.entry(BELOW_OLD).is_none());
        assert_eq!(f.value(OLD, "entryUUID"), Some(uuid(3).to_string()));
    }
}

/// A log of changes tells names alone.
#[test]
fn a_logged_move_onto_glue_changes_nothing_that_stands_there() {
    let f = filled();
    assert_eq!(apply(&f, [put(1, BELOW_OLD, csn(2, 2), &[]), put(2, NEW, csn(2, 1), &[])]), "done, done");
    let stamp = LoggedModification {
        kind: LoggedKind::Replace,
        attribute: LoggedAttribute {
            description: "entryCSN".to_owned(),
            values: vec![csn(2, 3).text().into_bytes()],
        },
    };
    let change = LoggedChange::ModifyDn {
        new_rdn: "ou=u".to_owned(),
        delete_old_rdn: true,
        new_superior: None,
        modifications: vec![stamp],
    };
    let delta = ReplicatedChange::Delta {
        entry_uuid: Some(uuid(2)),
        dn: NEW.to_owned(),
        csn: csn(2, 3),
        change,
        place: None,
        whole: false,
    };
    assert_eq!(apply(&f, [delta]), "done");
    complete(&f);
    assert_eq!((csn_of(&f, BELOW_OLD), csn_of(&f, OLD)), (csn(2, 2), csn(2, 3)));
}

#[test]
fn a_shadow_leaves_an_entry_where_it_gave_its_name_back() {
    let f = filled();
    let take = |changes: Vec<ReplicatedChange>, context_csns: Vec<Csn>| {
        let rules = ReplicaRules { multi_provider: false, drop_covered: false, ..ReplicaRules::default() };
        batch(&f, ReplicatedBatch { changes, context_csns, rules });
    };
    let one = |number, csn| with_place(put(number, BELOW_OLD, csn, &[]), uuid(3), "cn=a");
    // Both have one name, until the newer one is gone: the provider has decided nothing meanwhile.
    take(vec![put(3, OLD, csn(2, 1), &[]), one(1, csn(2, 10)), one(2, csn(3, 5))], vec![csn(2, 10)]);
    assert_eq!(f.value(BELOW_OLD, "entryUUID"), Some(uuid(1).to_string()));
    take(vec![delete(1, csn(2, 20))], vec![csn(2, 20), csn(3, 5)]);
    assert_eq!(f.value(BELOW_OLD, "entryUUID"), Some(uuid(2).to_string()));
    take(Vec::new(), vec![csn(2, 30)]);
    assert_eq!((f.value(BELOW_OLD, "entryUUID"), elsewhere(&f)), (Some(uuid(2).to_string()), 0));
    find_nothing(&f);
}

/// The entry that has the name here may stand elsewhere at the provider, below a superior outside the replicated part.
#[test]
fn a_shadow_of_a_part_takes_names_as_they_are_told() {
    let named = |shadow: bool, places: bool| {
        let schema = schema("");
        let settings = DatabaseSettings { shadow, ..settings(&schema) };
        let f = Fixture::of(schema, vec![(memory(), settings)]);
        let rules = ReplicaRules { multi_provider: false, places, ..ReplicaRules::default() };
        let take = |number, dn: &str, csn: Csn| {
            let (changes, rules) = (vec![put(number, dn, csn, &[])], rules.clone());
            batch(&f, ReplicatedBatch { changes, rules, ..Default::default() });
            find_nothing(&f);
            let uuid = f.value(BELOW_OLD, "entryUUID");
            uuid.map(|uuid| uuid.parse::<Uuid>().unwrap().as_u128())
        };
        let beside = "cn=b,ou=u,dc=example,dc=com";
        take(1, BELOW_OLD, csn(2, 9));
        // One that is new, and one that is renamed; both are older. Then they go, one after the other.
        let comes = take(2, BELOW_OLD, csn(3, 4));
        take(3, beside, csn(3, 5));
        let is_renamed = take(3, BELOW_OLD, csn(3, 6));
        take(2, NEW, csn(3, 7));
        [comes, is_renamed, take(3, beside, csn(3, 8))]
    };
    assert_eq!(named(true, false), [Some(2), Some(3), Some(1)]);
    // A consumer that receives all superiors, or takes changes of others, too, goes by the changes.
    for (shadow, places) in [(true, true), (false, false)] {
        assert_eq!(named(shadow, places), [Some(1); 3], "{shadow} {places}");
    }
}
