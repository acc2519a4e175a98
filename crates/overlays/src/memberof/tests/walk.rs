//! What does not follow in the commit itself: all entries are gone through afterwards, or once the index is built.

use std::sync::Arc;

use larix_engine::DatabaseSettings;
use larix_engine::index::IndexConfig;
use larix_engine::time::SeededRandom;
use larix_engine::write::{IndexNotice, IndexWatch, WriterEnvironment};
use larix_engine::writer::Reconfiguration;

use super::{
    ANN, BO, MANY, Memory, Options, check, fixture, group, groups, indexed, memberships, put, replicate,
    touch, with_overlays,
};
use crate::memberof::Dangling;
use crate::testing::{Fixture, TREE, environment, memory, schema};

fn reconfigure(fixture: &Memory, settings: DatabaseSettings) {
    reconfigure_with(fixture, settings, None);
}

fn reconfigure_with(fixture: &Memory, settings: DatabaseSettings, index_watch: Option<Arc<dyn IndexWatch>>) {
    fixture.directory.databases()[0].reconfigure(Reconfiguration {
        schema: Arc::clone(&fixture.schema),
        settings,
        environment: WriterEnvironment {
            index_watch,
            ..environment(Arc::clone(&fixture.clock) as _, Arc::new(SeededRandom::new(9)), 1)
        },
    });
}

#[test]
fn what_is_too_much_at_once_follows() {
    let fixture = fixture(Options { at_once: Some(2), ..Options::default() });
    fixture.apply(&group("one", &[ANN, BO, "ou=People,dc=example,dc=com"]));
    touch(&fixture);
    check(&fixture, "three members");
    assert_eq!(memberships(&fixture, BO).len(), 1);
    fixture.apply("dn: ou=People,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=Staff\ndeleteoldrdn: 1\n");
    touch(&fixture);
    check(&fixture, "a container with three entries");
    fixture.apply(&group("two", &["cn=Bo,ou=Staff,dc=example,dc=com"]));
    check(&fixture, "a member");
}

#[test]
fn groups_from_before_the_overlay_are_found() {
    let schema = schema("");
    let fixture = Fixture::of(Arc::clone(&schema), vec![(memory(), indexed(&schema))]);
    fixture.apply(TREE);
    fixture.apply(&group("one", &[ANN, BO]));
    assert!(groups(&fixture).0.is_empty());
    reconfigure(&fixture, with_overlays(&schema, Options::default()));
    touch(&fixture);
    check(&fixture, "the overlay came");
    // Without it nothing follows; with it again everything does.
    reconfigure(&fixture, indexed(&schema));
    fixture.apply("dn: cn=one,ou=Groups,dc=example,dc=com\nchangetype: delete\n");
    assert_eq!(memberships(&fixture, ANN).len(), 1);
    reconfigure(&fixture, with_overlays(&schema, Options::default()));
    touch(&fixture);
    check(&fixture, "the overlay came again");
    assert!(groups(&fixture).0.is_empty());
}

/// Lets the writer work on indexes.
#[derive(Debug)]
struct Allowed;

impl IndexWatch for Allowed {
    fn notice(&self, _notice: IndexNotice) {}
}

/// Commits, of which each takes a slice of a build along.
const BUILD_COMMITS: usize = 10_000;

/// Has the indexes that the settings want built, and then all entries gone through.
fn build(fixture: &Memory, settings: DatabaseSettings) {
    reconfigure_with(fixture, settings, Some(Arc::new(Allowed)));
    let is_complete = || fixture.database().catalog().stale().next().is_none();
    for _ in 0..BUILD_COMMITS {
        if is_complete() {
            break;
        }
        fixture.clock.advance_micros(1_000_000);
        touch(fixture);
    }
    assert!(is_complete(), "the indexes are not built");
    fixture.clock.advance_micros(1_000_000);
    touch(fixture);
}

const WRITABLE: Options =
    Options { dangling: Dangling::Ignore, integrity: false, refint: false, at_once: None, writable: true };

/// What a change is called in messages, and the change.
type NamedChange<'c> = (&'c str, &'c dyn Fn(&Memory));

/// While the index of members is built nobody can tell which groups name an entry: those that come, are renamed, or have
/// their groups told by somebody else say so when it can be told.
#[test]
fn what_happens_while_the_index_is_built_counts_behind_it() {
    let team = "cn=team,ou=Groups,dc=example,dc=com";
    let [new, cid, bob] = ["New", "Cid", "Bob"].map(|name| format!("cn={name},ou=People,dc=example,dc=com"));
    let person = |dn: &str| format!("dn: {dn}\nobjectClass: person\ncn: {}\nsn: S\n", &dn[3..6]);
    let replicated = |dn: &str, member_of: &str| {
        let more = [("objectClass", "person"), ("cn", "Cid"), ("sn", "C"), ("seeAlso", member_of)];
        put(8, dn, 2, &more)
    };
    let changes: [NamedChange<'_>; 5] = [
        ("added", &|fixture| fixture.apply(&person(&new))),
        ("renamed", &|fixture| {
            fixture.apply(&format!("dn: {BO}\nchangetype: modrdn\nnewrdn: cn=Bob\ndeleteoldrdn: 1\n"));
        }),
        ("written", &|fixture| {
            fixture.apply(&format!("dn: {ANN}\nchangetype: modify\nreplace: seeAlso\nseeAlso: cn=false\n"));
        }),
        ("replicated", &|fixture| replicate(fixture, replicated(&cid, "cn=elsewhere,dc=example,dc=com"))),
        ("below a renamed container", &|fixture| {
            fixture.apply(
                "dn: ou=People,dc=example,dc=com\nchangetype: modrdn\nnewrdn: ou=Staff\ndeleteoldrdn: 1\n",
            );
        }),
    ];
    for (name, change) in changes {
        let fixture = fixture(WRITABLE);
        let schema = &fixture.schema;
        fixture.apply(&group("team", &[ANN, BO, &new, &cid, &bob, "cn=Ann Lee,ou=Staff,dc=example,dc=com"]));
        // All entries were gone through. Then the index goes, and is wanted again.
        touch(&fixture);
        check(&fixture, "a group");
        let without = DatabaseSettings { index: IndexConfig::default(), ..with_overlays(schema, WRITABLE) };
        reconfigure(&fixture, without);
        touch(&fixture);
        reconfigure(&fixture, with_overlays(schema, WRITABLE));
        change(&fixture);
        // What a group itself says needs no index.
        fixture.apply(&format!(
            "dn: {team}\nchangetype: modify\nadd: member\nmember: ou=Groups,dc=example,dc=com\n"
        ));
        assert_eq!(memberships(&fixture, "ou=Groups,dc=example,dc=com"), [team], "{name}");
        build(&fixture, with_overlays(schema, WRITABLE));
        check(&fixture, name);
    }
}

/// So many groups of an entry are no longer kept within its record: only the rows tell what changed.
#[test]
fn whoever_writes_many_groups_writes_what_the_groups_say() {
    let fixture = fixture(WRITABLE);
    for number in 0..MANY {
        fixture.apply(&group(&format!("g{number}"), &[BO]));
    }
    let one = |number: usize| format!("cn=g{number},ou=Groups,dc=example,dc=com");
    let all = (0..MANY).fold("replace: seeAlso\n".to_owned(), |all, number| {
        all + "seeAlso: cn=false" + &number.to_string() + "\n"
    });
    for how in [
        format!("delete: seeAlso\nseeAlso: {}\n-\nadd: seeAlso\nseeAlso: cn=false\n", one(5)),
        format!("delete: seeAlso\nseeAlso: {}\n", one(7)),
        "add: seeAlso\nseeAlso: cn=false\n".to_owned(),
        // As many others.
        all,
        "replace: seeAlso\nseeAlso: cn=false\n".to_owned(),
        "delete: seeAlso\n".to_owned(),
    ] {
        fixture.apply(&format!("dn: {BO}\nchangetype: modify\n{how}"));
        assert_eq!(memberships(&fixture, BO).len(), MANY);
        check(&fixture, &how);
    }
}
