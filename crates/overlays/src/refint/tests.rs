//! References to entries that are deleted or renamed.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

mod other_databases;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use larix_engine::access::{EntrySet, GroupQuery, Privilege, Subject};
use larix_engine::check::check as check_database;
use larix_engine::index::IndexConfig;
use larix_engine::overlay::internal_search::{InternalSearch, SearchOutcome, Visit};
use larix_engine::overlay::{
    Additions, AroundChange, Consequence, Entries, Failure, FollowUp, Interests, Overlay, PendingChange,
    ReferenceTarget, Referrer, Refusal,
};
use larix_engine::replica::{ReplicatedBatch, ReplicatedChange};
use larix_engine::{Entry, EntryId};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};
use larix_store::Store;
use larix_store::memory::MemoryStore;
use uuid::Uuid;

use super::{ReferentialIntegrity, ReferentialIntegritySettings};
use crate::testing::{self as common, Fixture, TREE, memory, schema, settings};

const ANN: &str = "cn=Ann Lee,ou=People,dc=example,dc=com";
const BO: &str = "cn=Bo,ou=People,dc=example,dc=com";

const GROUPS: &str = "
    dn: cn=both,ou=Groups,dc=example,dc=com
    objectClass: groupOfNames
    cn: both
    member: cn=Bo,ou=People,dc=example,dc=com
    member: cn=Ann Lee,ou=People,dc=example,dc=com
    seeAlso: CN=ann  lee, OU=people,dc=example,dc=com

    dn: cn=ann,ou=Groups,dc=example,dc=com
    objectClass: groupOfNames
    cn: ann
    owner: cn=Ann Lee,ou=People,dc=example,dc=com
    member: cn=Ann Lee,ou=People,dc=example,dc=com
";

fn fixture(indexed: bool, nothing: Option<&str>) -> Fixture<MemoryStore> {
    fixture_with(indexed, nothing, |refint| Arc::new(refint))
}

fn fixture_with(
    indexed: bool,
    nothing: Option<&str>,
    overlay: impl FnOnce(ReferentialIntegrity) -> Arc<dyn Overlay>,
) -> Fixture<MemoryStore> {
    let schema = schema("");
    let mut settings = settings(&schema);
    if indexed {
        let mut index = IndexConfig::default();
        index.add_line(&schema, "member,seeAlso", Some("eq")).unwrap();
        settings.index = index;
    }
    settings.overlays.push(overlay(ReferentialIntegrity::new(ReferentialIntegritySettings {
        attributes: ["member", "seeAlso"].map(|name| schema.describe(name).unwrap()).to_vec(),
        nothing: nothing.map(str::to_owned),
        modifier: Some("cn=keeper".to_owned()),
        others: Vec::new(),
    })));
    settings.policy = Some(common::policy(
        &schema,
        &["to dn.subtree=ou=People,dc=example,dc=com by users write", "to * by * read"],
    ));
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    fixture.apply(GROUPS);
    fixture
}

#[test]
fn what_another_overlay_has_changed_keeps_no_other_attribute_from_following() {
    let (own, other) = (
        (&super::DESCRIPTOR, "refint_attributes member owner seeAlso\nrefint_nothing cn=nobody"),
        (&crate::memberof::DESCRIPTOR, "memberof-refint TRUE"),
    );
    for overlays in [[own, other], [other, own]] {
        let fixture = common::directory(&overlays);
        fixture.apply(TREE);
        let group = "cn=all,ou=Groups,dc=example,dc=com";
        fixture.apply(&format!(
            "dn: {group}\nobjectClass: groupOfNames\ncn: all\nmember: {ANN}\nmember: {BO}\nowner: {BO}\nseeAlso: {ANN}\n"
        ));
        let values = || ["owner", "seeAlso"].map(|name| fixture.value(group, name).unwrap_or_default());
        let bob = "cn=Bob,ou=People,dc=example,dc=com";
        fixture.apply(&format!("dn: {BO}\nchangetype: modrdn\nnewrdn: cn=Bob\ndeleteoldrdn: 1\n"));
        assert_eq!(values(), [bob, ANN], "{overlays:?}");
        fixture.apply(&format!("dn: {ANN}\nchangetype: delete\n"));
        assert_eq!(values(), [bob, "cn=nobody"], "{overlays:?}");
        let found = common::found(&fixture, "(member=*)", &["member"]);
        assert_eq!(found, "all: member=Bob", "{overlays:?}");
    }
}

/// Values of member, seeAlso and owner, the last components of the names alone.
fn references(fixture: &Fixture<MemoryStore>) -> String {
    let mut out = String::new();
    for group in ["both", "ann"] {
        let entry = fixture.entry(&format!("cn={group},ou=Groups,dc=example,dc=com")).unwrap();
        write!(out, "{group}:").unwrap();
        for name in ["member", "seeAlso", "owner"] {
            let values = entry.values(fixture.schema.attribute_type(name).unwrap().id);
            for value in values {
                let value = String::from_utf8_lossy(value);
                write!(out, " {}", value.strip_suffix(",dc=example,dc=com").unwrap_or(&value)).unwrap();
            }
        }
        out.push('\n');
    }
    out
}

/// What becomes of the references, with an index and without.
fn check(nothing: Option<&str>, change: &str, answer: &str, expected: &str) {
    for indexed in [true, false] {
        let fixture = fixture(indexed, nothing);
        assert_eq!(fixture.change(change), answer, "{change}");
        assert_eq!(references(&fixture), expected, "{change}, indexed: {indexed}");
        let snapshot = fixture.database().store().snapshot().unwrap();
        let view = fixture.database().view(&snapshot).unwrap();
        check_database(&view, &mut |finding| panic!("{finding}")).unwrap();
    }
}

const UNCHANGED: &str = "both: cn=Bo,ou=People cn=Ann Lee,ou=People cn=ann  lee,ou=people\n\
                         ann: cn=Ann Lee,ou=People cn=Ann Lee,ou=People\n";

#[test]
fn a_rename_is_followed() {
    let rename = |to: &str| format!("dn: {ANN}\nchangetype: modrdn\nnewrdn: cn={to}\ndeleteoldrdn: 1\n");
    check(
        None,
        &rename("Anna"),
        "0",
        "both: cn=Bo,ou=People cn=Anna,ou=People cn=Anna,ou=People\n\
         ann: cn=Anna,ou=People cn=Ann Lee,ou=People\n",
    );
    // Only the spelling changes.
    check(
        None,
        &rename("ANN LEE"),
        "0",
        "both: cn=Bo,ou=People cn=ANN LEE,ou=People cn=ANN LEE,ou=People\n\
         ann: cn=ANN LEE,ou=People cn=Ann Lee,ou=People\n",
    );
    check(None, &rename("Bo"), "68", UNCHANGED);
}

#[test]
fn a_rename_to_a_name_that_is_there_leaves_it_once() {
    let fixture = fixture(true, None);
    fixture.apply(&format!(
        "dn: cn=ann,ou=Groups,dc=example,dc=com\nchangetype: modify\nadd: member\nmember: cn=Anna,ou=People,dc=example,dc=com\n\n\
         dn: {ANN}\nchangetype: modrdn\nnewrdn: cn=Anna\ndeleteoldrdn: 1\n"
    ));
    assert!(references(&fixture).ends_with("ann: cn=Anna,ou=People cn=Ann Lee,ou=People\n"));
}

#[test]
fn a_subtree_is_followed() {
    check(
        None,
        "dn: ou=People,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=Staff\ndeleteoldrdn: 1\n\
         newsuperior: ou=Groups,dc=example,dc=com\n",
        "0",
        // What stands before the renamed entry's name stays as it was written there.
        "both: cn=Bo,ou=Staff,ou=Groups cn=Ann Lee,ou=Staff,ou=Groups cn=ann  lee,ou=Staff,ou=Groups\n\
         ann: cn=Ann Lee,ou=Staff,ou=Groups cn=Ann Lee,ou=People\n",
    );
    check(
        Some("cn=nothing"),
        "dn: ou=People,dc=example,dc=com\ncontrol: 1.2.840.113556.1.4.805 true\nchangetype: delete\n",
        "0",
        "both: cn=nothing cn=nothing\nann: cn=nothing cn=Ann Lee,ou=People\n",
    );
}

#[test]
fn references_to_deleted_entries_go() {
    let delete = format!("dn: {ANN}\nchangetype: delete\n");
    // The last value of a required attribute stays, and what would have gone with it.
    check(None, &delete, "0", "both: cn=Bo,ou=People\nann: cn=Ann Lee,ou=People cn=Ann Lee,ou=People\n");
    check(
        Some("cn=nothing,dc=example,dc=com"),
        &delete,
        "0",
        "both: cn=Bo,ou=People cn=nothing\nann: cn=nothing cn=Ann Lee,ou=People\n",
    );
    check(
        None,
        "dn: ou=People,dc=example,dc=com\nchangetype: delete\n",
        "66 subordinate objects must be deleted first",
        UNCHANGED,
    );
    // What is only tried changes nothing.
    check(
        None,
        &format!("dn: {ANN}\ncontrol: 1.3.6.1.4.1.4203.666.5.2 true\nchangetype: delete\n"),
        "16654",
        UNCHANGED,
    );
}

#[test]
fn who_may_delete_an_entry_need_not_be_able_to_change_who_refers() {
    let mut fixture = fixture(true, None);
    fixture.bind("cn=somebody");
    let answer = fixture.change(&format!("dn: {BO}\nchangetype: delete\n"));
    assert_eq!(answer, "0");
    assert!(references(&fixture).starts_with("both: cn=Ann Lee,ou=People"));
    let group = "cn=both,ou=Groups,dc=example,dc=com";
    assert_eq!(fixture.value(group, "modifiersName").unwrap(), "cn=keeper");
    let answer = fixture.change("dn: cn=ann,ou=Groups,dc=example,dc=com\nchangetype: delete\n");
    assert!(answer.starts_with("50"), "{answer}");
}

#[test]
fn who_refers_has_a_csn_of_its_own() {
    let fixture = fixture(true, None);
    let group = "cn=both,ou=Groups,dc=example,dc=com";
    let before = fixture.value(group, "entryCSN").unwrap();
    fixture.apply(&format!("dn: {ANN}\nchangetype: modrdn\nnewrdn: cn=Anna\ndeleteoldrdn: 0\n"));
    let renamed = fixture.value("cn=Anna,ou=People,dc=example,dc=com", "entryCSN").unwrap();
    let after = fixture.value(group, "entryCSN").unwrap();
    assert!(before < renamed && renamed < after, "{before} {renamed} {after}");
}

#[test]
fn a_replicated_delete_brings_nothing_with_it() {
    let fixture = fixture(true, None);
    let uuid = Uuid::try_parse(&fixture.value(ANN, "entryUUID").unwrap()).unwrap();
    let change = ReplicatedChange::Delete { entry_uuid: uuid, csn: None };
    let (sender, receiver) = mpsc::channel();
    let batch = ReplicatedBatch { changes: vec![change], ..Default::default() };
    fixture.directory.databases()[0].replicate(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
    assert!(receiver.recv().unwrap().result.is_success());
    assert!(fixture.entry(ANN).is_none());
    assert_eq!(references(&fixture), UNCHANGED);
}

/// Changes that happen together or not at all (RFC 5805); the result.
fn together(fixture: &Fixture<MemoryStore>, changes: &[&str]) -> u32 {
    let operations = changes.iter().flat_map(|change| common::records(change)).map(common::operation);
    let requests = operations.map(|(operation, controls)| fixture.request(operation, &controls)).collect();
    let (sender, receiver) = mpsc::channel();
    fixture.directory.submit_all(requests, Box::new(move |outcome| sender.send(outcome).unwrap()));
    receiver.recv().unwrap().result.code.0
}

#[test]
fn within_a_transaction_references_follow_at_once() {
    let fixture = fixture(true, None);
    let delete = format!("dn: {ANN}\nchangetype: delete\n");
    let rename = format!("dn: {BO}\nchangetype: modrdn\nnewrdn: cn=Bob\ndeleteoldrdn: 1\n");
    let group = "dn: cn=both,ou=Groups,dc=example,dc=com\nchangetype: modify\n";
    let gone = format!("{group}delete: member\nmember: {ANN}\n");
    assert_eq!(together(&fixture, &[&delete, &rename, &gone]), 16);
    assert_eq!(references(&fixture), UNCHANGED);
    let renamed = format!(
        "{group}delete: member\nmember: cn=Bob,ou=People,dc=example,dc=com\n-\nadd: member\nmember: {ANN}\n"
    );
    assert_eq!(together(&fixture, &[&delete, &rename, &renamed]), 0);
    assert!(references(&fixture).starts_with("both: cn=Ann Lee,ou=People\n"));
}

/// So many members are no longer kept within the record.
const MANY: usize = 3_000;

#[test]
fn large_groups_are_followed() {
    for indexed in [true, false] {
        let fixture = fixture(indexed, None);
        let mut group =
            "dn: cn=many,ou=Groups,dc=example,dc=com\nobjectClass: groupOfNames\ncn: many\n".to_owned();
        for number in 0..MANY {
            writeln!(group, "member: cn={number},ou=People,dc=example,dc=com").unwrap();
        }
        writeln!(group, "member: {ANN}\nmember: {BO}").unwrap();
        fixture.apply(&group);
        let members = |fixture: &Fixture<MemoryStore>| {
            let entry = fixture.entry("cn=many,ou=Groups,dc=example,dc=com").unwrap();
            let values = entry.values(fixture.schema.attribute_type("member").unwrap().id);
            let named = values.iter().map(|value| String::from_utf8_lossy(value).into_owned());
            let mut named: Vec<String> = named
                .filter(|name| !name.starts_with(|c: char| c == 'c' && name.as_bytes()[3].is_ascii_digit()))
                .collect();
            named.sort_unstable();
            (values.len(), named)
        };
        fixture.apply(&format!("dn: {BO}\nchangetype: delete\n"));
        assert_eq!(members(&fixture), (MANY + 1, vec![ANN.to_owned()]));
        fixture.apply(
            "dn: ou=People,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=Staff\ndeleteoldrdn: 1\n",
        );
        assert_eq!(members(&fixture), (MANY + 1, vec!["cn=Ann Lee,ou=Staff,dc=example,dc=com".to_owned()]));
    }
}

/// Longer than what a key of the index holds of a value.
const LONG: usize = 200;

/// Names of which there is no entry, below ou=People but for the last two.
fn names_of_nobody() -> Vec<String> {
    let below = ["cn=Former", "cn=Deep,ou=gone", r"cn=Comma\2C within", "cn=a+ou=b"];
    let mut names: Vec<String> =
        below.iter().map(|name| format!("{name},ou=People,dc=example,dc=com")).collect();
    names.push(format!("cn={},OU=people,DC=example,dc=com", "x".repeat(LONG)));
    names.push("cn=a+ou=People,dc=example,dc=com".to_owned());
    names.push(format!("cn={},ou=Others,dc=example,dc=com", "x".repeat(LONG)));
    names
}

/// Members of a group whose names begin so, by their order.
fn members_of(fixture: &Fixture<MemoryStore>, group: &str) -> Vec<String> {
    let entry = fixture.entry(&format!("cn={group},ou=Groups,dc=example,dc=com")).unwrap();
    let values = entry.values(fixture.schema.attribute_type("member").unwrap().id);
    let names = values.iter().map(|value| String::from_utf8_lossy(value).into_owned());
    names.filter(|name| !name.starts_with("cn=other")).collect()
}

#[test]
fn names_below_a_renamed_entry_follow_without_entries() {
    let rename = "dn: ou=People,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=Staff\ndeleteoldrdn: 1\n";
    let delete =
        "dn: ou=People,dc=example,dc=com\ncontrol: 1.2.840.113556.1.4.805 true\nchangetype: delete\n";
    for (indexed, others) in [(true, 0), (false, 0), (true, MANY), (false, MANY)] {
        for change in [rename, delete] {
            let fixture = fixture(indexed, None);
            let names = names_of_nobody();
            let mut group =
                "dn: cn=dangling,ou=Groups,dc=example,dc=com\nobjectClass: groupOfNames\ncn: dangling\n"
                    .to_owned();
            let others = (0..others).map(|number| format!("cn=other {number},dc=example,dc=com"));
            for name in names.iter().cloned().chain(others) {
                writeln!(group, "member: {name}").unwrap();
            }
            fixture.apply(&group);
            assert_eq!(fixture.change(change), "0");
            let mut expected: Vec<String> = names[names.len() - 2..].to_vec();
            if change == rename {
                let renamed = |name: &String| {
                    let (rdn, _) =
                        name.to_lowercase().find(",ou=people").map(|at| name.split_at(at)).unwrap();
                    format!("{rdn},ou=Staff,dc=example,dc=com")
                };
                expected.extend(names[..names.len() - 2].iter().map(renamed));
            }
            let mut found = members_of(&fixture, "dangling");
            // A large set is in no order.
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{change}, indexed: {indexed}");
        }
    }
}

/// Where nothing is below the entry, no name but its own is looked for.
#[test]
fn below_an_entry_without_subordinates_names_stay() {
    for indexed in [true, false] {
        let fixture = fixture(indexed, None);
        let below = format!("cn=pet,{BO}");
        fixture.apply(&format!(
            "dn: cn=ann,ou=Groups,dc=example,dc=com\nchangetype: modify\nadd: member\nmember: {BO}\nmember: {below}\n\n\
             dn: {BO}\nchangetype: modrdn\nnewrdn: cn=Bob\ndeleteoldrdn: 1\n"
        ));
        let bob = "cn=Bob,ou=People,dc=example,dc=com".to_owned();
        assert_eq!(members_of(&fixture, "ann"), [ANN.to_owned(), below, bob], "indexed: {indexed}");
    }
}

/// The overlay, with a count of the times that it asked for entries below or looked for references.
#[derive(Debug)]
struct Counted {
    refint: ReferentialIntegrity,
    looks: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct CountedFollowUp {
    inner: Box<dyn FollowUp>,
    looks: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct CountedEntries<'a> {
    inner: &'a dyn Entries,
    looks: &'a AtomicUsize,
}

impl Overlay for Counted {
    fn name(&self) -> &str {
        self.refint.name()
    }

    fn interests(&self) -> Interests {
        self.refint.interests()
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let entries = CountedEntries { inner: change.entries, looks: &self.looks };
        let mut additions = self.refint.prepare(&PendingChange { entries: &entries, ..*change })?;
        if let Some(inner) = additions.follow_up.take() {
            additions.follow_up = Some(Box::new(CountedFollowUp { inner, looks: Arc::clone(&self.looks) }));
        }
        Ok(additions)
    }
}

impl FollowUp for CountedFollowUp {
    fn consequences(
        self: Box<Self>,
        around: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let counted = |inner| CountedEntries { inner, looks: &self.looks };
        let (before, after) = (counted(around.before), counted(around.after));
        self.inner.consequences(&AroundChange { before: &before, after: &after }, schema)
    }
}

impl Entries for CountedEntries<'_> {
    fn entry(&self, dn: &NormalDn) -> Result<Option<Entry>, Failure> {
        self.inner.entry(dn)
    }

    fn allows(
        &self,
        subject: &Subject,
        dn: &NormalDn,
        entry: &Entry,
        attribute: &AttributeDescription,
        privilege: Privilege,
    ) -> Result<bool, Failure> {
        self.inner.allows(subject, dn, entry, attribute, privilege)
    }

    fn manages(&self, subject: &Subject, dn: &NormalDn, entry: &Entry) -> Result<bool, Failure> {
        self.inner.manages(subject, dn, entry)
    }

    fn has_any(
        &self,
        set: &EntrySet,
        subject: &Subject,
        dn: &NormalDn,
        entry: &Entry,
    ) -> Result<Option<bool>, Failure> {
        self.inner.has_any(set, subject, dn, entry)
    }

    fn matches(&self, dn: &NormalDn, entry: &Entry, filter: &BoundFilter) -> Result<bool, Failure> {
        self.inner.matches(dn, entry, filter)
    }

    fn search(&self, query: &InternalSearch<'_>, visit: &mut Visit<'_>) -> Result<SearchOutcome, Failure> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.search(query, visit)
    }

    fn is_member(&self, group: &GroupQuery<'_>, member: &NormalDn) -> Result<bool, Failure> {
        self.inner.is_member(group, member)
    }

    fn id_of(&self, dn: &NormalDn) -> Result<Option<EntryId>, Failure> {
        self.inner.id_of(dn)
    }

    fn is_root(&self, subject: &Subject) -> bool {
        self.inner.is_root(subject)
    }

    fn commit(&self) -> Option<u64> {
        self.inner.commit()
    }

    fn has_subordinates(&self, dn: &NormalDn) -> Result<bool, Failure> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.has_subordinates(dn)
    }

    fn referrers(
        &self,
        attributes: &[AttributeDescription],
        sought: ReferenceTarget<'_>,
    ) -> Result<Vec<Referrer>, Failure> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.referrers(attributes, sought)
    }
}

/// Neither entries below nor those that refer to them are looked for on behalf of somebody who is refused.
#[test]
fn a_change_that_is_refused_costs_nothing_more() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = |refint| Arc::new(Counted { refint, looks: Arc::clone(&looks) }) as Arc<dyn Overlay>;
    let mut fixture = fixture_with(true, None, counted);
    let people = "ou=People,dc=example,dc=com";
    let tree_delete = format!("dn: {people}\ncontrol: 1.2.840.113556.1.4.805 true\nchangetype: delete\n");
    let rename = |to: &str| format!("dn: {people}\nchangetype: modrdn\nnewrdn: ou={to}\ndeleteoldrdn: 1\n");
    let check = |fixture: &Fixture<MemoryStore>, change: &str, code: &str, expected: usize| {
        let answer = fixture.change(change);
        assert_eq!(answer.split(' ').next(), Some(code), "{change}{answer}");
        assert_eq!(looks.swap(0, Ordering::Relaxed), expected, "{change}");
    };
    fixture.bind("cn=somebody");
    for change in [tree_delete.as_str(), &rename("Staff")] {
        check(&fixture, change, "50", 0);
    }
    fixture.bind(common::ROOT);
    check(&fixture, &rename("Groups"), "68", 0);
    check(&fixture, &format!("dn: {people}\nchangetype: delete\n"), "66", 0);
    // What is allowed is followed: whether there is anything below, and who names it.
    check(&fixture, &rename("Staff"), "0", 2);
    check(&fixture, &tree_delete.replace("People", "Staff"), "0", 2);
    check(&fixture, "dn: cn=ann,ou=Groups,dc=example,dc=com\nchangetype: delete\n", "0", 1);
}
