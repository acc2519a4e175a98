//! What overlays find by internal searches while a group of changes is prepared.

use std::sync::{Arc, Mutex, mpsc};

use larix_engine::index::IndexConfig;
use larix_engine::overlay::internal_search::{InternalSearch, SearchEnd, SearchOutcome};
use larix_engine::overlay::{
    Additions, Interests, Overlay, Overlays, PendingChange, PreparedChange, Refusal,
};
use larix_engine::write::WriteOutcome;
use larix_engine::{DatabaseSettings, Entry};
use larix_proto::{FilterBuf, LdapResult, ResultCode, Scope};
use larix_schema::{BoundFilter, NormalDn};
use larix_store::memory::MemoryStore;

use crate::common::{self, Fixture, SUFFIX, TREE, describe, memory, operation, records};

/// Refuses an add with a mail address that is there.
#[derive(Debug, Default)]
struct OneMail {
    /// How each search went.
    searched: Mutex<Vec<(bool, SearchEnd)>>,
}

fn filter(schema: &larix_schema::Schema, text: &str) -> BoundFilter {
    schema.bind_filter(FilterBuf::parse(text).unwrap().as_filter())
}

impl Overlay for OneMail {
    fn name(&self) -> &'static str {
        "onemail"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let PreparedChange::Add { entry, .. } = change.operation else { return Ok(Additions::default()) };
        let entry: &Entry = entry;
        let mail = change.schema.attribute_type("mail").unwrap().id;
        let base = change.schema.parse_dn(SUFFIX).unwrap();
        for value in entry.values(mail) {
            let filter = filter(change.schema, &format!("(mail={})", String::from_utf8_lossy(value)));
            let query = InternalSearch::new(&base, Scope::Subtree, &filter);
            let SearchOutcome { entries, ended, indexed, .. } = change.entries.finds_any(&query)?;
            self.searched.lock().unwrap().push((indexed, ended));
            if entries > 0 {
                return Err(LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, "some mail").into());
            }
        }
        Ok(Additions::default())
    }
}

fn fixture(index: &str) -> (Fixture<MemoryStore>, Arc<OneMail>) {
    let schema = common::schema("");
    let overlay = Arc::new(OneMail::default());
    let mut settings = common::settings(&schema);
    settings.overlays = vec![Arc::clone(&overlay) as Arc<dyn Overlay>].into();
    settings.index = IndexConfig::default();
    settings.index.add_line(&schema, "objectClass", Some("eq")).unwrap();
    if !index.is_empty() {
        settings.index.add_line(&schema, index, Some("eq")).unwrap();
    }
    let other = DatabaseSettings {
        suffixes: vec![common::suffix(&schema, "dc=example,dc=net")],
        overlays: Overlays::default(),
        ..settings.clone()
    };
    (Fixture::of(schema, vec![(memory(), settings), (memory(), other)]), overlay)
}

fn person(name: &str, mail: &str) -> String {
    format!(
        "dn: cn={name},ou=People,{SUFFIX}\nchangetype: add\nobjectClass: inetOrgPerson\ncn: {name}\nsn: s\nmail: {mail}\n\n"
    )
}

/// What became of changes that belong together.
fn unit(fixture: &Fixture<MemoryStore>, ldif: &str) -> String {
    let requests = records(ldif).into_iter().map(|record| {
        let (operation, controls) = operation(record);
        fixture.request(operation, &controls)
    });
    let (sender, receiver) = mpsc::channel::<WriteOutcome>();
    let done = Box::new(move |outcome| sender.send(outcome).unwrap());
    fixture.directory.submit_all(requests.collect(), done);
    describe(&receiver.recv().unwrap())
}

#[test]
fn what_is_not_committed_is_found_by_its_index() {
    for (index, indexed) in [("mail", true), ("", false)] {
        let (fixture, overlay) = fixture(index);
        fixture.apply(TREE);
        assert_eq!(fixture.change(&person("cy", "ann@example.com")), "19 some mail");
        // The second finds what the first has added in the same unit.
        assert_eq!(unit(&fixture, &(person("dee", "d@x") + &person("eve", "D@X"))), "19 some mail");
        assert_eq!(unit(&fixture, &(person("dee", "d@x") + &person("eve", "e@x"))), "0");
        // What a unit takes away is no longer found in it.
        let gone = format!("dn: cn=dee,ou=People,{SUFFIX}\nchangetype: delete\n\n");
        assert_eq!(unit(&fixture, &(gone + &person("fay", "d@x"))), "0");
        // The first finds that no entry has the attribute.
        let searched = overlay.searched.lock().unwrap().split_off(1);
        assert!(searched.iter().all(|(by_index, _)| *by_index == indexed), "{index}: {searched:?}");
    }
}

/// Adds of the same address by many threads: one of each comes in, whatever groups they are in.
#[test]
fn of_adds_at_once_one_comes_in() {
    let (fixture, _) = fixture("mail");
    fixture.apply(TREE);
    let (sender, receiver) = mpsc::channel::<WriteOutcome>();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (fixture, sender) = (&fixture, sender.clone());
            scope.spawn(move || {
                for number in 0..50 {
                    let add = person(&format!("u{thread}-{number}"), &format!("m{number}@example.com"));
                    let (operation, controls) = operation(records(&add).remove(0));
                    let sender = sender.clone();
                    let done = Box::new(move |outcome| sender.send(outcome).unwrap());
                    fixture.directory.submit(fixture.request(operation, &controls), done);
                }
            });
        }
    });
    drop(sender);
    let answers: Vec<String> = receiver.iter().map(|outcome| describe(&outcome)).collect();
    let count = |wanted: &str| answers.iter().filter(|answer| *answer == wanted).count();
    assert_eq!((count("0"), count("19 some mail")), (50, 150));
}

/// Refuses adds unless an internal search of another database finds something.
#[derive(Debug)]
struct Elsewhere(NormalDn);

impl Overlay for Elsewhere {
    fn name(&self) -> &'static str {
        "elsewhere"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        let filter = filter(change.schema, "(dc=example)");
        let searched = change.entries.finds_any(&InternalSearch::new(&self.0, Scope::Base, &filter))?;
        let text = format!("{:?} {}", searched.ended, searched.entries);
        Err(LdapResult::with(ResultCode::OTHER, text).into())
    }
}

#[test]
fn another_database_is_searched_as_it_is_committed() {
    let (fixture, _) = fixture("mail");
    let base = fixture.schema.parse_dn("dc=example,dc=net").unwrap();
    let mut settings = DatabaseSettings::clone(&fixture.database().settings());
    settings.overlays.push(Arc::new(Elsewhere(base)));
    fixture.reconfigure(settings);
    assert_eq!(fixture.change(TREE), "80 NoBase 0");
    fixture.apply("dn: dc=example,dc=net\nobjectClass: domain\ndc: example\n");
    assert_eq!(fixture.change(TREE), "80 Stopped 1");
}
