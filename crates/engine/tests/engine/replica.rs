//! What a consumer writes, rule by rule.

use std::sync::mpsc;

use larix_engine::DatabaseSettings;
use larix_engine::csn::Csn;
use larix_engine::log::{self, LogKey, LoggedAttribute, LoggedChange, LoggedKind, LoggedModification};
use larix_engine::replica::{
    ConflictKind, DeleteLimit, DeleteOutcome, KeptSide, ReplicaRules, ReplicatedBatch, ReplicatedChange,
    ReplicatedPart, Share, UuidSet, conflicts,
};
use larix_proto::Scope;
use larix_store::Store;

use crate::common;
use crate::replicated::{
    self, apply, batch, csn, delete, filled, find_nothing, orders, put, raise, uuid, word,
};

const A: &str = "cn=a,ou=People,dc=example,dc=com";
const B: &str = "cn=b,ou=Groups,dc=example,dc=com";

#[test]
fn a_put_makes_the_entry_exactly_that() {
    let f = filled();
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[("description", "one")])]), "done");
    for (name, value) in [
        ("entryUUID", uuid(1).to_string()),
        ("entryCSN", csn(2, 1).to_string()),
        ("creatorsName", "cn=somebody".to_owned()),
        ("modifyTimestamp", "20200101000000Z".to_owned()),
        ("description", "one".to_owned()),
    ] {
        assert_eq!(f.value(A, name).as_deref(), Some(value.as_str()), "{name}");
    }
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[])]), "older");
    assert_eq!(apply(&f, [put(1, A, csn(2, 2), &[("l", "there")])]), "done");
    assert_eq!((f.value(A, "description"), f.value(A, "l").as_deref()), (None, Some("there")));
    assert_eq!(apply(&f, [put(1, B, csn(2, 3), &[("cn", "b")])]), "done");
    assert!(f.entry(A).is_none() && f.entry(B).is_some());
    find_nothing(&f);
}

#[test]
fn many_values_without_an_equality_rule_become_those_of_the_provider() {
    let f = filled();
    let person = |number: i64, photos: &[String]| {
        let mut more =
            vec![("objectClass", "inetOrgPerson"), ("structuralObjectClass", "inetOrgPerson"), ("sn", "a")];
        more.extend(photos.iter().map(|photo| ("jpegPhoto", photo.as_str())));
        apply(&f, [put(1, A, csn(2, number), &more)])
    };
    let photos = |numbers: std::ops::Range<usize>| -> Vec<String> {
        numbers.map(|number| format!("photo {number}")).collect()
    };
    let stored = || {
        let attribute = f.schema.attribute_type("jpegPhoto").unwrap().id;
        let values = f.entry(A).unwrap().values(attribute).to_vec();
        values.into_iter().map(|value| String::from_utf8(value).unwrap()).collect::<Vec<_>>()
    };
    // More than an attribute is replaced with, more than a record has of one with an equality rule, and few.
    for (number, wanted) in
        (1..).zip([photos(0..70), photos(5..75), photos(0..300), photos(7..300), photos(8..9)])
    {
        assert_eq!(person(number, &wanted), "done", "change {number}");
        assert_eq!(stored(), wanted, "change {number}");
    }
    find_nothing(&f);
}

#[test]
fn what_is_replicated_is_logged_in_local_order_and_raises_its_own_csn() {
    let f = filled();
    let snapshot = f.database().store().snapshot().unwrap();
    let before = log::last_sequence(&snapshot, 1).unwrap();
    assert_eq!(apply(&f, [put(2, B, csn(3, 9), &[]), put(1, A, csn(2, 1), &[])]), "done, done");
    raise(&f, &[csn(2, 1), csn(3, 9)]);
    f.apply("dn: cn=Bo,ou=People,dc=example,dc=com\nchangetype: delete\n");
    let snapshot = f.database().store().snapshot().unwrap();
    let mut logged_csns = Vec::new();
    log::visit_stored_after(&snapshot, LogKey { server_id: 1, sequence: before }, &mut |_, record, _| {
        logged_csns.push(record.csn);
        true
    })
    .unwrap();
    assert_eq!(logged_csns[..2], [csn(3, 9), csn(2, 1)]);
    // What comes next here comes after all that was seen.
    assert!(logged_csns[2] > csn(3, 9) && logged_csns[2].server_id == 1, "{logged_csns:?}");
    assert_eq!(log::context_csns(&snapshot).unwrap(), [logged_csns[2], csn(2, 1), csn(3, 9)]);
    raise(&f, &[csn(2, 0)]);
    assert_eq!(log::context_csns(&f.database().store().snapshot().unwrap()).unwrap()[1], csn(2, 1));
    assert_eq!(apply(&f, [put(4, "cn=c,dc=example,dc=com", csn(2, 1), &[])]), "older");
    find_nothing(&f);
}

#[test]
fn a_refused_change_keeps_the_context_csn_back() {
    let f = filled();
    let changes = vec![put(1, A, csn(2, 1), &[("nonsense", "x")]), put(2, B, csn(2, 2), &[])];
    let context_csns = vec![csn(2, 2)];
    let rules = ReplicaRules { drop_unknown: true, ..ReplicaRules::default() };
    let first = ReplicatedBatch {
        changes: changes.clone(),
        context_csns: context_csns.clone(),
        ..Default::default()
    };
    let outcome = batch(&f, first);
    assert!(word(&outcome.changes[0]).starts_with("17 nonsense"), "{outcome:?}");
    assert_eq!(word(&outcome.changes[1]), "done");
    let known = || log::context_csns(&f.database().store().snapshot().unwrap()).unwrap().len();
    assert_eq!(known(), 1);
    let outcome = batch(&f, ReplicatedBatch { changes, context_csns, rules });
    assert_eq!(outcome.changes.iter().map(word).collect::<Vec<_>>(), ["done", "older"]);
    assert_eq!(known(), 2);
}

/// What a server says that follows one with more schema.
#[test]
fn a_class_that_is_not_known_is_named() {
    let f = filled();
    let said = apply(&f, [put(1, A, csn(2, 1), &[("objectClass", "sambaSamAccount")])]);
    let expected = "\"sambaSamAccount\": the schema has no class of this name; `schema samba`";
    assert!(said.starts_with("21 objectClass: value #0") && said.contains(expected), "{said}");
}

/// A member that has lost its content takes a change before all has come back: its contextCSN covers what it changed in its former
/// life, which other servers would not send to it then.
#[test]
fn a_consumer_has_nothing_until_the_first_content_is_complete() {
    let f = replicated::Memory::new();
    let known = || log::consumer_csns(&f.database().store().snapshot().unwrap()).unwrap();
    let dc = [("objectClass", "domain"), ("dc", "example")];
    assert_eq!(apply(&f, [put(1, common::SUFFIX, csn(1, -5), &dc)]), "done");
    f.apply("dn: cn=own,dc=example,dc=com\nobjectClass: device\ncn: own\n");
    assert_eq!(
        (known(), log::context_csns(&f.database().store().snapshot().unwrap()).unwrap().len()),
        (Vec::new(), 1)
    );
    raise(&f, &[csn(2, 3)]);
    let servers: Vec<u16> = known().iter().map(|csn| csn.server_id).collect();
    assert_eq!(servers, [1, 2]);
}

#[test]
fn superiors_that_are_missing_are_glue_until_they_come() {
    let f = filled();
    let (unit, leaf) = ("ou=u,dc=example,dc=com", "cn=a,ou=u,dc=example,dc=com");
    assert_eq!(apply(&f, [put(1, leaf, csn(2, 2), &[])]), "done");
    assert_eq!(f.value(unit, "structuralObjectClass").as_deref(), Some("glue"));
    assert_eq!(apply(&f, [put(2, unit, csn(2, 1), &[])]), "done");
    assert_eq!(f.value(unit, "entryUUID"), Some(uuid(2).to_string()));
    assert_eq!(f.value(leaf, "entryUUID"), Some(uuid(1).to_string()));
    find_nothing(&f);
    // With something below it a deleted entry becomes glue, which goes with the last of it.
    assert_eq!(apply(&f, [delete(2, csn(2, 3))]), "done");
    assert_eq!(f.value(unit, "entryUUID"), None);
    assert!(f.entry(leaf).is_some());
    find_nothing(&f);
    assert_eq!(apply(&f, [delete(1, csn(2, 4))]), "done");
    assert!(f.entry(unit).is_none());
    find_nothing(&f);
}

/// Other servers remove such glue when they hear of the change.
#[test]
fn glue_goes_with_the_last_that_a_client_takes_away() {
    let below = "cn=a,ou=v,ou=u,dc=example,dc=com";
    let glue = ["ou=v,ou=u,dc=example,dc=com", "ou=u,dc=example,dc=com"];
    let rename = "changetype: modrdn\nnewrdn: cn=b\ndeleteoldrdn: 1\n";
    for (change, left) in [
        ("changetype: delete\n".to_owned(), [false, false]),
        ("control: 1.2.840.113556.1.4.805 true\nchangetype: delete\n".to_owned(), [false, false]),
        (format!("{rename}newsuperior: ou=Groups,dc=example,dc=com\n"), [false, false]),
        (format!("{rename}newsuperior: ou=u,dc=example,dc=com\n"), [false, true]),
        (rename.to_owned(), [true, true]),
    ] {
        let f = filled();
        assert_eq!(apply(&f, [put(1, below, csn(2, 1), &[])]), "done");
        f.apply(&format!("dn: {below}\n{change}"));
        assert_eq!(glue.map(|dn| f.entry(dn).is_some()), left, "{change}");
        find_nothing(&f);
    }
    // Something else stands on it.
    let f = filled();
    let other = "cn=b,ou=v,ou=u,dc=example,dc=com";
    assert_eq!(apply(&f, [put(1, below, csn(2, 1), &[]), put(2, other, csn(2, 2), &[])]), "done, done");
    f.apply(&format!("dn: {below}\nchangetype: delete\n"));
    assert!(f.entry(other).is_some());
    find_nothing(&f);
}

/// Two lines bring two parts of a database. An entry that is moved from one to the other leaves the first and comes into the second by
/// one change, in any order; a refresh tells the delete under a later CSN. Neither line says how far the other one has come.
#[test]
fn an_entry_goes_from_one_part_to_another() {
    let moved = A.replace("People", "Groups");
    for (order, delete_time) in orders(2).into_iter().flat_map(|order| [(order.clone(), 5), (order, 9)]) {
        let f = filled();
        let line = |name: &str, unit: &str| {
            let base = f.schema.parse_dn(&format!("ou={unit},dc=example,dc=com")).unwrap();
            ReplicaRules {
                part: Some(ReplicatedPart { name: name.to_owned(), base, scope: Scope::Subtree }),
                multi_provider: false,
                places: false,
                drop_covered: false,
                ..ReplicaRules::default()
            }
        };
        let run = |change, context_csns, rules| {
            batch(&f, ReplicatedBatch { changes: vec![change], context_csns, rules });
        };
        run(put(1, A, csn(2, 1), &[]), vec![csn(2, 1)], line("001-a", "People"));
        let snapshot = f.database().store().snapshot().unwrap();
        let known = |name| log::part_csns(&snapshot, name).unwrap().as_slice().to_vec();
        assert_eq!((known("001-a"), known("001-b")), (vec![csn(2, 1)], Vec::new()));
        for step in &order {
            match step {
                0 => run(delete(1, csn(2, delete_time)), Vec::new(), line("001-a", "People")),
                _ => run(put(1, &moved, csn(2, 5), &[]), Vec::new(), line("001-b", "Groups")),
            }
        }
        let there = [f.entry(A).is_some(), f.entry(&moved).is_some()];
        assert_eq!(there, [false, true], "{order:?}, a delete of {delete_time}");
        find_nothing(&f);
        // A delete of the part that it is in now takes it away.
        run(delete(1, csn(2, 10)), Vec::new(), line("001-b", "Groups"));
        assert!(f.entry(&moved).is_none(), "{order:?}, a delete of {delete_time}");
    }
}

/// On a member a delete wins over a newer change, also where another line brings a part.
#[test]
fn a_member_with_parts_deletes_what_is_newer() {
    let f = filled();
    let base = f.schema.parse_dn("dc=example,dc=com").unwrap();
    let part = Some(ReplicatedPart { name: "001-a".to_owned(), base, scope: Scope::Subtree });
    let rules = || ReplicaRules { part: part.clone(), ..ReplicaRules::default() };
    let changes = vec![put(1, A, csn(2, 9), &[]), delete(1, csn(3, 8))];
    let outcome = batch(&f, ReplicatedBatch { changes, context_csns: Vec::new(), rules: rules() });
    assert_eq!(outcome.changes.iter().map(word).collect::<Vec<_>>(), ["done", "delete theirs"]);
    assert!(f.entry(A).is_none());
}

#[test]
fn what_was_deleted_does_not_come_back() {
    let f = filled();
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[]), delete(1, csn(3, 2))]), "done, done");
    let newer = put(1, A, csn(2, 5), &[]);
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[]), newer]), "older, delete ours");
    assert!(f.entry(A).is_none());
    // Of an entry that is not here yet, too.
    assert_eq!(apply(&f, [delete(7, csn(3, 3)), put(7, B, csn(2, 4), &[])]), "done, delete ours");
    // Another life begins after the delete.
    let born = put(1, A, csn(2, 6), &[("createTimestamp", "20270101000000Z")]);
    assert_eq!(apply(&f, [born]), "done");
    assert_eq!(apply(&f, [delete(1, csn(3, 2))]), "older");
    // A consumer of a part sees entries leave and come back.
    let rules = ReplicaRules { multi_provider: false, ..ReplicaRules::default() };
    let changes = vec![delete(8, csn(3, 3)), put(8, B, csn(2, 4), &[])];
    let back = ReplicatedBatch { changes, rules, ..Default::default() };
    assert_eq!(word(&batch(&f, back).changes[1]), "done");
    // A newer modification does not save an entry from a delete; what it was is in the conflict log.
    assert_eq!(
        apply(&f, [put(9, "cn=n,dc=example,dc=com", csn(2, 9), &[]), delete(9, csn(3, 8))]),
        "done, delete theirs"
    );
    let snapshot = f.database().store().snapshot().unwrap();
    let log = conflicts(&snapshot, 0, 100).unwrap();
    let last = &log.last().unwrap().note;
    assert_eq!(
        (last.kind, last.kept, last.loser_csn),
        (ConflictKind::Delete, KeptSide::Theirs, Some(csn(2, 9)))
    );
    assert!(last.lost.iter().any(|a| a.description == "cn" && a.values == [b"n"]));
    find_nothing(&f);
}

/// A member that was put back to an earlier state is sent what it changed since, in the order in which its provider has the entries.
#[test]
fn own_changes_come_back_to_a_restored_member_in_any_order() {
    let schema = common::schema("");
    let settings = DatabaseSettings { multi_provider: true, ..common::settings(&schema) };
    let f = common::Fixture::of(schema, vec![(common::memory(), settings)]);
    f.apply(common::TREE);
    let changes = vec![put(1, A, csn(1, 20), &[]), put(2, B, csn(1, 10), &[])];
    batch(&f, ReplicatedBatch { changes, ..ReplicatedBatch::default() });
    assert!(f.entry(A).is_some() && f.entry(B).is_some());
    find_nothing(&f);
    raise(&f, &[csn(1, 20)]);
    find_nothing(&f);
}

/// As when the server gets another ID, or the database is recorded in one log with others. The second clock is too far ahead to be followed.
#[test]
fn in_another_order_changes_come_after_what_others_changed() {
    for ahead in [10, 172_800] {
        let mut f = filled();
        assert_eq!(apply(&f, [put(1, A, csn(2, ahead), &[])]), "done");
        raise(&f, &[csn(2, ahead)]);
        f.change_server_id(3);
        f.apply(&format!("dn: {A}\nchangetype: modify\nreplace: description\ndescription: here\n-\n"));
        let own: Csn = f.value(A, "entryCSN").unwrap().parse().unwrap();
        assert!(own.server_id == 3 && own > csn(2, ahead), "{own}");
    }
}

/// A client may add an entry again under the entryUUID of a deleted one: where several servers take changes, the others are to
/// take it for another life of the entry, whatever createTimestamp the client sets.
#[test]
fn what_a_client_adds_again_begins_behind_the_delete() {
    for (multi_provider, begun, there) in
        [(false, "20200101000000Z", "delete ours"), (true, "20260101000003Z", "done")]
    {
        let schema = common::schema("");
        let settings = DatabaseSettings { multi_provider, ..common::settings(&schema) };
        let f = common::Fixture::of(schema, vec![(common::memory(), settings)]);
        let other = filled();
        f.apply(common::TREE);
        for member in [&f, &other] {
            assert_eq!(apply(member, [put(1, A, csn(2, 1), &[]), delete(1, csn(3, 2))]), "done, done");
        }
        f.apply(&format!(
            "dn: {A}\ncontrol: 1.3.6.1.4.1.4203.666.5.12 true\nchangetype: add\nobjectClass: device\ncn: a\n\
             entryUUID: {}\ncreateTimestamp: 20200101000000Z\n",
            uuid(1)
        ));
        assert_eq!(f.value(A, "createTimestamp").as_deref(), Some(begun));
        let sent = put(1, A, csn(4, 3), &[("createTimestamp", begun)]);
        assert_eq!(apply(&other, [sent]), there, "several: {multi_provider}");
    }
}

#[test]
fn two_entries_of_one_name_both_stay() {
    let f = filled();
    let aside = |number| format!("entryUUID={},ou=People,dc=example,dc=com", uuid(number));
    assert_eq!(apply(&f, [put(1, A, csn(2, 5), &[]), put(2, A, csn(3, 4), &[])]), "done, name ours");
    assert_eq!(f.value(A, "entryUUID"), Some(uuid(1).to_string()));
    assert_eq!(f.value(&aside(2), "entryCSN"), Some(csn(3, 4).to_string()));
    assert_eq!(apply(&f, [put(3, A, csn(3, 6), &[])]), "name theirs");
    assert_eq!(f.value(A, "entryUUID"), Some(uuid(3).to_string()));
    assert_eq!(f.value(&aside(1), "entryCSN"), Some(csn(2, 5).to_string()));
    // The name that one of them has in the end comes later in the same refresh.
    assert_eq!(apply(&f, [put(1, B, csn(2, 6), &[("cn", "b")])]), "done");
    raise(&f, &[csn(2, 6), csn(3, 6)]);
    // What is aside still is so for everybody, by a change of this server.
    let csn_of = |dn: &str| f.value(dn, "entryCSN").unwrap().parse::<Csn>().unwrap();
    assert_eq!(csn_of(&aside(2)).server_id, 1);
    assert_eq!(csn_of(B), csn(2, 6));
    find_nothing(&f);
    // Somebody gives it a name: it keeps its entryUUID.
    f.apply(&format!("dn: {}\nchangetype: modrdn\nnewrdn: cn=found\ndeleteoldrdn: 1\n", aside(2)));
    let found = "cn=found,ou=People,dc=example,dc=com";
    assert_eq!(f.value(found, "entryUUID"), Some(uuid(2).to_string()));
    find_nothing(&f);
}

#[test]
fn names_that_are_swapped_are_swapped() {
    let f = filled();
    let (x, y) = ("cn=x,ou=People,dc=example,dc=com", "cn=y,ou=People,dc=example,dc=com");
    assert_eq!(apply(&f, [put(1, x, csn(2, 1), &[]), put(2, y, csn(2, 2), &[])]), "done, done");
    assert_eq!(
        apply(&f, [put(1, y, csn(2, 5), &[("cn", "y")]), put(2, x, csn(2, 4), &[("cn", "x")])]),
        "name theirs, done"
    );
    raise(&f, &[csn(2, 5)]);
    assert_eq!(f.value(y, "entryUUID"), Some(uuid(1).to_string()));
    assert_eq!(f.value(x, "entryUUID"), Some(uuid(2).to_string()));
    find_nothing(&f);
}

#[test]
fn what_was_added_below_a_renamed_superior_follows_it() {
    let f = filled();
    let (old, new) = ("ou=u,dc=example,dc=com", "ou=v,dc=example,dc=com");
    assert_eq!(
        apply(&f, [put(1, old, csn(2, 1), &[]), put(1, new, csn(2, 3), &[("ou", "v")])]),
        "done, done"
    );
    assert_eq!(apply(&f, [put(2, "cn=a,ou=u,dc=example,dc=com", csn(3, 2), &[])]), "done");
    raise(&f, &[csn(2, 3), csn(3, 2)]);
    assert!(f.entry("cn=a,ou=v,dc=example,dc=com").is_some());
    assert!(f.entry(old).is_none());
    find_nothing(&f);
}

#[test]
fn entries_moved_below_each_other_keep_the_later_move() {
    let check = |x_moved: i64, y_moved: i64, expected: &str| {
        let f = filled();
        let (x, y) = ("ou=x,dc=example,dc=com", "ou=y,dc=example,dc=com");
        assert_eq!(apply(&f, [put(1, x, csn(2, 1), &[]), put(2, y, csn(2, 2), &[])]), "done, done");
        apply(&f, [put(1, "ou=x,ou=y,dc=example,dc=com", csn(2, x_moved), &[])]);
        apply(&f, [put(2, "ou=y,ou=x,dc=example,dc=com", csn(3, y_moved), &[])]);
        raise(&f, &[csn(2, 9), csn(3, 9)]);
        assert!(f.entry(expected).is_some(), "{x_moved} {y_moved}");
        find_nothing(&f);
    };
    check(5, 6, "ou=y,ou=x,dc=example,dc=com");
    check(6, 5, "ou=x,ou=y,dc=example,dc=com");
}

fn modification(kind: LoggedKind, name: &str, values: &[&str]) -> LoggedModification {
    let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    LoggedModification { kind, attribute: LoggedAttribute { description: name.to_owned(), values } }
}

#[test]
fn logged_changes_are_carried_out_or_refused() {
    let f = filled();
    let delta = |number: u128, csn: Csn, change: LoggedChange| ReplicatedChange::Delta {
        entry_uuid: Some(uuid(number)),
        dn: A.to_owned(),
        csn,
        change,
        place: None,
        whole: false,
    };
    let modify = |csn: Csn, mods: &[LoggedModification]| {
        let mut mods = mods.to_vec();
        mods.push(modification(LoggedKind::Replace, "entryCSN", &[&csn.to_string()]));
        delta(1, csn, LoggedChange::Modify(mods))
    };
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[("description", "p")])]), "done");
    let newer = modify(csn(2, 6), &[modification(LoggedKind::Add, "description", &["new"])]);
    assert_eq!(apply(&f, [newer.clone(), newer]), "done, older");
    // Older than what is here: what the newer one left of it.
    let older = modify(
        csn(3, 5),
        &[
            modification(LoggedKind::Replace, "description", &["old"]),
            modification(LoggedKind::Add, "l", &["place"]),
        ],
    );
    assert_eq!(apply(&f, [older]), "modify ours");
    assert_eq!(f.value(A, "l").as_deref(), Some("place"));
    assert_eq!(f.value(A, "entryCSN"), Some(csn(2, 6).to_string()));
    let description = f.schema.attribute_type("description").unwrap().id;
    let mut values = f.entry(A).unwrap().values(description).to_vec();
    values.sort();
    assert_eq!(values, [b"new".to_vec(), b"old".to_vec()]);
    let rename = LoggedChange::ModifyDn {
        new_rdn: "cn=z".to_owned(),
        delete_old_rdn: true,
        new_superior: None,
        modifications: vec![modification(LoggedKind::Replace, "entryCSN", &[&csn(2, 7).to_string()])],
    };
    assert_eq!(apply(&f, [delta(1, csn(2, 7), rename)]), "done");
    let z = "cn=z,ou=People,dc=example,dc=com";
    assert_eq!(f.value(z, "cn").as_deref(), Some("z"));
    assert!(apply(&f, [delta(5, csn(2, 8), LoggedChange::Modify(Vec::new()))]).starts_with("32 "));
    assert_eq!(apply(&f, [delta(1, csn(2, 9), LoggedChange::Delete)]), "done");
    assert!(f.entry(z).is_none());
    find_nothing(&f);
}

/// A record that tells of modifications of the entry 1 at [`A`].
fn delta(csn: Csn, mods: &[LoggedModification]) -> ReplicatedChange {
    let mut mods = mods.to_vec();
    mods.push(modification(LoggedKind::Replace, "entryCSN", &[&csn.to_string()]));
    let change = LoggedChange::Modify(mods);
    ReplicatedChange::Delta {
        entry_uuid: Some(uuid(1)),
        dn: A.to_owned(),
        csn,
        change,
        place: None,
        whole: false,
    }
}

#[test]
fn a_record_that_takes_all_classes_away_is_refused() {
    let f = filled();
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[])]), "done");
    for kind in [LoggedKind::Delete, LoggedKind::Replace] {
        let outcome = apply(&f, [delta(csn(2, 6), &[modification(kind, "objectClass", &[])])]);
        assert_eq!(outcome, format!("65 \"{A}\": no objectClass attribute"));
    }
    assert_eq!(f.value(A, "entryCSN"), Some(csn(2, 1).to_string()));
    find_nothing(&f);
}

#[test]
fn a_record_that_gives_another_identity_is_refused() {
    let f = filled();
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[])]), "done");
    let record = |number, kind| {
        let named = modification(kind, "entryUUID", &[&uuid(number).to_string()]);
        delta(csn(2, 6), &[named, modification(LoggedKind::Replace, "description", &["x"])])
    };
    for kind in [LoggedKind::Add, LoggedKind::Replace] {
        assert_eq!(apply(&f, [record(9, kind)]), format!("19 \"{A}\" has another entryUUID now"));
    }
    assert_eq!(apply(&f, [record(1, LoggedKind::Replace)]), "done");
    assert_eq!(f.value(A, "entryUUID"), Some(uuid(1).to_string()));
    find_nothing(&f);
}

fn descriptions(fixture: &replicated::Memory) -> Vec<String> {
    let id = fixture.schema.attribute_type("description").unwrap().id;
    let entry = fixture.entry(A).unwrap();
    let text = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
    let mut values: Vec<String> = entry.values(id).iter().map(text).collect();
    values.sort();
    values
}

#[test]
fn logged_changes_end_alike_in_any_order() {
    use LoggedKind::{Add, Delete, Replace};
    // Each is made at another server, later than the one before; there is a "p" before all.
    let check = |changes: &[(LoggedKind, &[&str])], expected: &[&str]| {
        for order in orders(changes.len()) {
            let f = filled();
            apply(&f, [put(1, A, csn(2, 1), &[("description", "p")])]);
            for number in &order {
                let (kind, values) = changes[*number];
                let csn = csn(3 + *number as u16, 10 * (*number as i64 + 1));
                let outcome = apply(&f, [delta(csn, &[modification(kind, "description", values)])]);
                assert!(["done", "modify ours"].contains(&outcome.as_str()), "{outcome}");
            }
            assert_eq!(descriptions(&f), expected, "{changes:?} in the order {order:?}");
            find_nothing(&f);
        }
    };
    check(&[(Add, &["q"]), (Replace, &["a"]), (Add, &["b"])], &["a", "b"]);
    check(&[(Replace, &["a"]), (Delete, &[]), (Add, &["b"])], &["b"]);
    check(&[(Replace, &["a"]), (Replace, &["b"]), (Delete, &["b"])], &[]);
    check(&[(Replace, &["a"]), (Delete, &["p"]), (Add, &["p"])], &["a", "p"]);
    check(&[(Add, &["q"]), (Replace, &["a", "c"]), (Add, &["b"]), (Delete, &["c"])], &["a", "b"]);
}

/// Two members that follow each other's logs tell each other what they have merged.
#[test]
fn a_late_change_is_merged_and_told_once() {
    let f = filled();
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[("description", "p")])]), "done");
    let newest = delta(csn(3, 30), &[modification(LoggedKind::Add, "description", &["new"])]);
    assert_eq!(apply(&f, [newest]), "done");
    let late = || delta(csn(4, 20), &[modification(LoggedKind::Add, "description", &["late"])]);
    let last = || log::last_sequence(&f.database().store().snapshot().unwrap(), 1).unwrap();
    assert_eq!(apply(&f, [late()]), "modify ours");
    let told_up_to = last();
    assert_eq!(apply(&f, [late()]), "older");
    assert_eq!(last(), told_up_to);
    assert_eq!(descriptions(&f), ["late", "new", "p"]);
}

/// A log may record several databases.
#[test]
fn a_record_of_another_database_is_passed_over() {
    const OTHER: &str = "cn=a,dc=other";
    let f = filled();
    let rename = |new_superior: Option<&str>| LoggedChange::ModifyDn {
        new_rdn: "cn=b".to_owned(),
        delete_old_rdn: true,
        new_superior: new_superior.map(str::to_owned),
        modifications: Vec::new(),
    };
    let check = |dn: &str, change: LoggedChange, expected: &str| {
        let (dn, csn) = (dn.to_owned(), csn(2, 1));
        let entry_uuid = Some(uuid(9));
        let change = ReplicatedChange::Delta { entry_uuid, dn, csn, change, place: None, whole: false };
        assert_eq!(apply(&f, [change]), expected);
    };
    let modify = || LoggedChange::Modify(vec![modification(LoggedKind::Replace, "description", &["new"])]);
    for change in [LoggedChange::Delete, modify(), rename(None), rename(Some("ou=x,dc=other"))] {
        check(OTHER, change, "older");
    }
    let missing = |dn: &str| format!("32 \"{dn}\" is not here");
    check(A, modify(), &missing(&A.to_lowercase()));
    // The record does not have what the entry is.
    check(OTHER, rename(Some("ou=People,dc=example,dc=com")), &missing(OTHER));
}

/// The log of this server goes on when its ID changes.
#[test]
fn a_late_change_is_judged_by_what_was_logged_under_another_server_id() {
    let mut f = filled();
    let replace = |csn, value| delta(csn, &[modification(LoggedKind::Replace, "description", &[value])]);
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[]), replace(csn(3, 30), "new")]), "done, done");
    f.change_server_id(9);
    assert_eq!(apply(&f, [replace(csn(4, 20), "late")]), "modify ours");
    assert_eq!(descriptions(&f), ["new"]);
}

/// A server that decides something by itself writes the entryCSN alone: when and by whom the entry was changed last others say.
#[test]
fn who_changed_an_entry_last_does_not_depend_on_the_order() {
    let change = |at: i64, by: &str| {
        let by =
            modification(LoggedKind::Replace, "modifiersName", &[&format!("cn={by},{}", common::SUFFIX)]);
        delta(csn(2 + at as u16, 10 * at), &[by])
    };
    for order in orders(3) {
        let f = filled();
        assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[])]), "done");
        for number in &order {
            let change = [change(1, "one"), change(2, "two"), delta(csn(5, 30), &[])][*number].clone();
            let outcome = apply(&f, [change]);
            assert!(["done", "modify ours"].contains(&outcome.as_str()), "{outcome}");
        }
        let id = f.schema.attribute_type("modifiersName").unwrap().id;
        let modifier = String::from_utf8_lossy(&f.entry(A).unwrap().values(id)[0]).into_owned();
        assert_eq!(modifier, format!("cn=two,{}", common::SUFFIX), "{order:?}");
    }
}

#[test]
fn an_older_rename_does_not_undo_one_to_the_name_that_the_entry_has() {
    let renamed = |csn: Csn, rdn: &str| {
        let mods = vec![modification(LoggedKind::Replace, "entryCSN", &[&csn.to_string()])];
        let change = LoggedChange::ModifyDn {
            new_rdn: rdn.to_owned(),
            delete_old_rdn: false,
            new_superior: None,
            modifications: mods,
        };
        ReplicatedChange::Delta {
            entry_uuid: Some(uuid(1)),
            dn: A.to_owned(),
            csn,
            change,
            place: None,
            whole: false,
        }
    };
    for order in orders(2) {
        let f = filled();
        assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[])]), "done");
        let changes = [renamed(csn(3, 20), "cn=z"), renamed(csn(4, 30), "cn=a")];
        for number in &order {
            let outcome = apply(&f, [changes[*number].clone()]);
            assert!(["done", "modify ours"].contains(&outcome.as_str()), "{outcome}");
        }
        assert!(f.entry(A).is_some(), "{order:?}");
        find_nothing(&f);
    }
}

#[test]
fn what_a_refresh_brings_counts_as_a_whole() {
    let f = filled();
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[])]), "done");
    let snapshot = f.database().store().snapshot().unwrap();
    let before = log::last_sequence(&snapshot, 1).unwrap();
    assert_eq!(apply(&f, [put(1, A, csn(2, 30), &[("description", "whole")])]), "done");
    // Others may have a value that was never here.
    let snapshot = f.database().store().snapshot().unwrap();
    let mut kinds = Vec::new();
    log::visit_stored_after(&snapshot, LogKey { server_id: 1, sequence: before }, &mut |_, record, _| {
        let LoggedChange::Modify(mods) = record.change else { panic!("no modification") };
        kinds.extend(mods.iter().filter(|m| m.attribute.description == "description").map(|m| m.kind));
        true
    })
    .unwrap();
    assert_eq!(kinds, [LoggedKind::Replace]);
    let older = delta(csn(3, 20), &[modification(LoggedKind::Replace, "description", &["old"])]);
    assert_eq!(apply(&f, [older]), "modify ours");
    assert_eq!(descriptions(&f), ["whole"]);
}

#[test]
fn an_entry_that_came_whole_has_what_its_server_did_before() {
    let f = filled();
    assert_eq!(apply(&f, [put(1, A, csn(2, 30), &[("description", "two")])]), "done");
    let first = delta(csn(2, 20), &[modification(LoggedKind::Replace, "description", &["one"])]);
    assert_eq!(apply(&f, [first]), "modify ours");
    assert_eq!(descriptions(&f), ["two"]);
}

#[test]
fn a_retired_server_does_not_come_back_with_a_cookie() {
    let fixture = filled();
    let served = &fixture.directory.databases()[0];
    let known = || -> Vec<Csn> {
        let snapshot = served.database().store().snapshot().unwrap();
        log::context_csns(&snapshot).unwrap().into_iter().filter(|csn| csn.server_id == 7).collect()
    };
    raise(&fixture, &[csn(7, 5)]);
    assert!(served.retire_server_id(7).is_success());
    assert_eq!(known(), []);
    assert_eq!(served.retire_server_id(7).code.0, 16);
    // What it had come to says nothing any longer, its entries are as good as others.
    for number in [4, 5] {
        raise(&fixture, &[csn(7, number)]);
        assert_eq!(known(), []);
    }
    assert_eq!(apply(&fixture, [put(70, "cn=late,dc=example,dc=com", csn(7, 5), &[])]), "done");
    // Another server that got the id is another one.
    raise(&fixture, &[csn(7, 6)]);
    assert_eq!(known(), [csn(7, 6)]);
}

#[test]
fn what_a_provider_does_not_name_goes_within_a_limit() {
    let f = filled();
    for number in 1..=6 {
        let dn = format!("cn=d{number},ou=Groups,dc=example,dc=com");
        apply(&f, [put(number, &dn, csn(2, number as i64), &[])]);
    }
    let run = |present: &[u128], limit: DeleteLimit, seen: &[Csn]| {
        let share = Share {
            whole: false,
            subentries: true,
            base: "ou=Groups,dc=example,dc=com".to_owned(),
            scope: Scope::OneLevel,
            filter: None,
            seen: seen.to_vec(),
        };
        let present: UuidSet = present.iter().map(|number| uuid(*number)).collect();
        let (sender, receiver) = mpsc::channel();
        f.directory.databases()[0].delete_absent(
            &share,
            &present,
            limit,
            Box::new(move |outcome| sender.send(outcome).unwrap()),
        );
        receiver.recv().unwrap()
    };
    let seen = [csn(2, 5)];
    let strict = DeleteLimit { percent: 50, entries: 0 };
    assert_eq!(run(&[1], strict, &seen), DeleteOutcome::TooMany { absent: 4, entries: 6 });
    assert_eq!(run(&[1], DeleteLimit::default(), &seen), DeleteOutcome::Deleted(4));
    // The last one is newer than what the provider has seen.
    for (number, is_there) in [(1, true), (2, false), (5, false), (6, true)] {
        let dn = format!("cn=d{number},ou=Groups,dc=example,dc=com");
        assert_eq!(f.entry(&dn).is_some(), is_there, "{number}");
    }
    find_nothing(&f);
}

/// A slapd's pass over its content names none.
#[test]
fn subentries_go_where_the_provider_names_them() {
    let dn = "cn=s,ou=Groups,dc=example,dc=com";
    let more =
        [("objectClass", "subentry"), ("structuralObjectClass", "subentry"), ("subtreeSpecification", "{}")];
    for subentries in [false, true] {
        let f = filled();
        assert_eq!(apply(&f, [put(70, dn, csn(2, 1), &more)]), "done");
        let share = Share {
            whole: false,
            subentries,
            base: "ou=Groups,dc=example,dc=com".to_owned(),
            scope: Scope::OneLevel,
            filter: None,
            seen: vec![csn(2, 9)],
        };
        let (sender, receiver) = mpsc::channel();
        let done = Box::new(move |outcome| sender.send(outcome).unwrap());
        f.directory.databases()[0].delete_absent(&share, &UuidSet::new(), DeleteLimit::default(), done);
        assert_eq!(receiver.recv().unwrap(), DeleteOutcome::Deleted(subentries.into()));
        assert_eq!(f.entry(dn).is_none(), subentries);
        find_nothing(&f);
    }
}

/// Entries that another server than the provider keeps: no CSN of the provider says anything of them.
#[test]
fn entries_of_another_server_are_judged_by_no_csn() {
    let f = filled();
    raise(&f, &[csn(2, 9)]);
    let apply = |rules: &ReplicaRules, change: ReplicatedChange| {
        let rules = rules.clone();
        batch(&f, ReplicatedBatch { changes: vec![change], rules, ..Default::default() });
    };
    let usual = ReplicaRules { multi_provider: false, ..ReplicaRules::default() };
    let elsewhere = ReplicaRules { elsewhere: true, ..usual.clone() };
    let dn = "cn=far,ou=Groups,dc=example,dc=com";
    let far = |number, text: &str| put(70, dn, csn(2, number), &[("description", text)]);
    let gone = || ReplicatedChange::Delete { entry_uuid: uuid(70), csn: Some(csn(2, 9)) };
    apply(&usual, far(5, "covered"));
    assert!(f.entry(dn).is_none());
    apply(&elsewhere, far(5, "covered"));
    assert_eq!(f.value(dn, "description").as_deref(), Some("covered"));
    // The other server was put back.
    apply(&elsewhere, far(4, "older"));
    assert_eq!(f.value(dn, "description").as_deref(), Some("older"));
    apply(&elsewhere, far(20, "newer than all that the provider has seen"));
    apply(&usual, gone());
    assert!(f.entry(dn).is_some());
    apply(&elsewhere, gone());
    assert!(f.entry(dn).is_none());
    // It is seen again as it was.
    apply(&elsewhere, far(20, "again"));
    assert_eq!(f.value(dn, "description").as_deref(), Some("again"));
    let share = Share {
        whole: true,
        subentries: true,
        base: "ou=Groups,dc=example,dc=com".to_owned(),
        scope: Scope::OneLevel,
        filter: None,
        seen: vec![csn(2, 9)],
    };
    let (sender, receiver) = mpsc::channel();
    let done = Box::new(move |outcome| sender.send(outcome).unwrap());
    f.directory.databases()[0].delete_absent(&share, &UuidSet::new(), DeleteLimit::default(), done);
    assert_eq!(receiver.recv().unwrap(), DeleteOutcome::Deleted(1));
    assert!(f.entry(dn).is_none());
    find_nothing(&f);
}

/// A slapd's own change that meets another server's may give way to the older one.
#[test]
fn a_provider_that_lost_its_own_change_is_put_right() {
    let check = |rules: ReplicaRules, theirs: Csn, mended: bool| {
        let f = filled();
        assert_eq!(apply(&f, [put(1, A, csn(3, 5), &[("description", "newer")])]), "done");
        let (provider, multi) = (rules.provider, rules.multi_provider);
        let changes = vec![put(1, A, theirs, &[("description", "older")])];
        batch(&f, ReplicatedBatch { changes, rules, ..Default::default() });
        let now: Csn = f.value(A, "entryCSN").unwrap().parse().unwrap();
        let is_mended = now.server_id == 1 && now > csn(3, 5);
        assert_eq!(is_mended, mended, "{provider:?}, {multi}, {theirs}: {now}");
        assert!(is_mended || now == csn(3, 5), "{now}");
        assert_eq!(f.value(A, "description").as_deref(), Some("newer"));
        find_nothing(&f);
    };
    let rules_of = |provider| ReplicaRules { provider, ..ReplicaRules::default() };
    check(rules_of(Some(csn(3, 5))), csn(2, 4), true);
    check(rules_of(Some(csn(3, 9))), csn(3, 2), true);
    // It may have made its change since.
    check(rules_of(Some(csn(3, 4))), csn(2, 4), false);
    check(rules_of(None), csn(2, 4), false);
    // Somebody else's change is another matter.
    check(rules_of(Some(csn(2, 9))), csn(2, 4), false);
    check(rules_of(Some(csn(3, 9))), csn(3, 5), false);
    check(ReplicaRules { multi_provider: false, ..rules_of(Some(csn(3, 5))) }, csn(2, 4), false);
}

#[test]
fn what_the_context_csn_came_to_by_content_is_remembered() {
    let f = filled();
    let raise_by_content = |csns: &[Csn]| {
        let rules = ReplicaRules { by_content: true, ..ReplicaRules::default() };
        batch(&f, ReplicatedBatch { context_csns: csns.to_vec(), rules, ..Default::default() });
    };
    let known = || {
        let csns = log::content_csns(&f.database().store().snapshot().unwrap()).unwrap();
        csns.as_slice().to_vec()
    };
    raise(&f, &[csn(2, 3), csn(3, 3)]);
    assert_eq!(known(), []);
    raise_by_content(&[csn(2, 3), csn(3, 5)]);
    assert_eq!(known(), [csn(3, 5)]);
    raise(&f, &[csn(2, 9), csn(3, 9)]);
    raise_by_content(&[csn(2, 8), csn(3, 9)]);
    assert_eq!(known(), [csn(3, 5)]);
    raise_by_content(&[csn(2, 10)]);
    assert_eq!(known(), [csn(2, 10), csn(3, 5)]);
}

/// Of records that come late nothing says that a batch is complete, and a shadow decides nothing by itself.
#[test]
fn a_shadow_gives_a_name_back_with_any_batch() {
    let names = |multi_provider: bool| {
        let f = filled();
        let rules = ReplicaRules { multi_provider, ..ReplicaRules::default() };
        let take = |change| {
            batch(&f, ReplicatedBatch { changes: vec![change], rules: rules.clone(), ..Default::default() })
        };
        take(put(1, A, csn(2, 5), &[]));
        // The older of the two stands aside.
        take(put(2, A, csn(3, 4), &[]));
        assert_eq!(f.value(A, "entryUUID"), Some(uuid(1).to_string()));
        take(put(1, "cn=z,ou=People,dc=example,dc=com", csn(2, 6), &[("cn", "a"), ("cn", "z")]));
        find_nothing(&f);
        f.value(A, "entryUUID")
    };
    assert_eq!(names(false), Some(uuid(2).to_string()));
    // Who takes changes waits for what may come still.
    assert_eq!(names(true), None);
}

/// Two servers have made the entry of the suffix, each its own. The newer one stays, and the other one stands below it with all that it
/// has: beside it nothing could be found, sent or deleted.
#[test]
fn the_entry_of_a_suffix_that_gives_way_goes_below_the_other() {
    let dc = [("objectClass", "domain"), ("dc", "example")];
    for (is_newer, places) in [(true, true), (true, false), (false, true)] {
        let f = filled();
        let own = f.value(common::SUFFIX, "entryUUID").unwrap();
        let theirs = csn(2, if is_newer { 1_000_000 } else { -1_000_000 });
        let run = |change| {
            let rules = ReplicaRules { multi_provider: false, places, ..ReplicaRules::default() };
            word(
                &batch(&f, ReplicatedBatch { changes: vec![change], rules, ..Default::default() }).changes[0],
            )
        };
        let expected = if is_newer { "name theirs" } else { "name ours" };
        assert_eq!(run(put(1, common::SUFFIX, theirs, &dc)), expected);
        find_nothing(&f);
        let (stays, goes) = if is_newer { (uuid(1).to_string(), own) } else { (own, uuid(1).to_string()) };
        let aside = format!("entryUUID={goes},{}", common::SUFFIX);
        let uuid_of = |dn: &str| f.value(dn, "entryUUID");
        assert_eq!((uuid_of(common::SUFFIX), uuid_of(&aside)), (Some(stays), Some(goes)));
        // What was below the old one is there, and what comes finds the new one.
        let people = if is_newer && places { format!("ou=People,{aside}") } else { A[5..].to_owned() };
        assert!(f.entry(&people).is_some(), "{people}");
        assert_eq!(run(put(2, "cn=new,dc=example,dc=com", csn(2, 2_000_000), &[])), "done");
        find_nothing(&f);
    }
}

#[test]
fn no_other_entry_becomes_a_suffix_and_no_suffix_another_entry() {
    let f = filled();
    let suffix: u128 = f.value(common::SUFFIX, "entryUUID").unwrap().parse::<uuid::Uuid>().unwrap().as_u128();
    let dc = [("objectClass", "domain"), ("dc", "example")];
    assert_eq!(apply(&f, [put(1, A, csn(2, 1), &[])]), "done");
    let late = csn(2, 1_000_000);
    for moved in [put(1, common::SUFFIX, late, &dc), put(suffix, "cn=b,dc=example,dc=com", late, &[])] {
        let outcome = apply(&f, [moved]);
        assert!(outcome.contains("a suffix cannot be renamed"), "{outcome}");
    }
    assert_eq!(f.value(common::SUFFIX, "entryUUID").unwrap().parse(), Ok(uuid(suffix)));
    find_nothing(&f);
}

/// A slapd sends what it has put in the place of missing superiors, too, as entries with entryUUIDs of its own.
#[test]
fn glue_of_a_provider_is_no_entry() {
    let f = filled();
    let unit = "ou=lost,dc=example,dc=com";
    let classes = [("objectClass", "top"), ("objectClass", "glue"), ("structuralObjectClass", "glue")];
    assert_eq!(apply(&f, [put(1, unit, csn(3, 5), &classes)]), "older");
    assert!(f.entry(unit).is_none());
    assert_eq!(apply(&f, [put(2, "cn=below,ou=lost,dc=example,dc=com", csn(3, 4), &[])]), "done");
    let shown = (f.value(unit, "structuralObjectClass"), f.value(unit, "entryUUID"));
    assert_eq!(shown, (Some("glue".to_owned()), None));
    assert_eq!(apply(&f, [put(3, unit, csn(2, 3), &[])]), "done");
    assert_eq!(f.value(unit, "entryUUID"), Some(uuid(3).to_string()));
    find_nothing(&f);
}
