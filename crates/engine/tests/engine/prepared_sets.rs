//! Values that are too many for a record are made a large set before the writer has the change. It must come out as it does of
//! values that the writer goes through itself: those of a change that an overlay has altered.

use std::sync::Arc;

use larix_engine::overlay::{Additions, Interests, Overlay, PendingChange, Refusal};
use larix_engine::time::SeededRandom;
use larix_store::memory::MemoryStore;

use crate::common::{self, Fixture, TREE, assert_sound, describe, logged, memory, records, schema, settings};

const NAMES: [&str; 3] = [
    "cn=a,ou=Groups,dc=example,dc=com",
    "cn=b,ou=Groups,dc=example,dc=com",
    "cn=c,ou=Groups,dc=example,dc=com",
];

/// Gives each change another form, the same.
#[derive(Debug)]
struct Altering;

impl Overlay for Altering {
    fn name(&self) -> &'static str {
        "altering"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        Ok(Additions { altered: Some(change.operation.clone()), ..Additions::default() })
    }
}

struct Chooser(SeededRandom);

impl Chooser {
    /// Lines with many values of the attribute, or few.
    fn values(&self, name: &str) -> String {
        let (from, count) = (self.0.below(40), [1, 3, 30, 255, 257, 300][self.0.below(6)]);
        let line = |number: usize| match name {
            "member" => format!("member: cn=Number {number}\n"),
            // Some are equal under the rule, and some are cut in a key.
            "description" if number.is_multiple_of(50) => {
                format!("description: {}{number}\n", "much ".repeat(50))
            }
            _ => format!("{name}: Number {number}\n"),
        };
        (from..from + count).map(line).collect()
    }

    fn change(&self) -> String {
        let name = self.0.one_of(&NAMES);
        if self.0.below(5) == 0 {
            return format!("dn: {name}\nchangetype: delete\n");
        }
        if self.0.below(3) == 0 {
            let mut text = format!("dn: {name}\nchangetype: add\nobjectClass: groupOfNames\n");
            for name in ["member", "description", "cn"] {
                text += &self.values(name);
            }
            return text;
        }
        let mut text = format!("dn: {name}\nchangetype: modify\n");
        for _ in 0..=self.0.below(5) {
            let name = self.0.one_of(&["member", "member", "description", "cn"]);
            let kind = self.0.one_of(&["add", "delete", "replace", "increment"]);
            text += &format!(
                "{kind}: {name}\n{}-\n",
                if kind == "increment" { String::new() } else { self.values(name) }
            );
        }
        text
    }
}

fn fixture(is_altered: bool) -> Fixture<MemoryStore> {
    let schema = schema("");
    let mut settings = settings(&schema);
    for (attribute, kinds) in [("cn", "eq,sub,pres"), ("member", "eq,pres"), ("objectClass", "eq")] {
        settings.index.add_line(&schema, attribute, Some(kinds)).unwrap();
    }
    if is_altered {
        settings.overlays.push(Arc::new(Altering));
    }
    let fixture = Fixture::of(schema, vec![(memory(), settings)]);
    fixture.apply(TREE);
    fixture
}

/// The entry with its values in one order: those of a set have none.
fn sorted(fixture: &Fixture<MemoryStore>, name: &str) -> String {
    let mut entry = fixture.entry(name);
    entry.iter_mut().flat_map(|entry| &mut entry.attributes).for_each(|attribute| attribute.values.sort());
    format!("{entry:?}")
}

#[test]
fn prepared_sets_are_those_of_the_writer() {
    for seed in 0..4 {
        let (prepared, altered) = (fixture(false), fixture(true));
        let chooser = Chooser(SeededRandom::new(seed));
        let mut done = 0;
        for _ in 0..150 {
            let ldif = chooser.change();
            let record = records(&ldif).remove(0);
            let (operation, _) = common::operation(record);
            let permissive = chooser.0.below(3) == 0;
            let mut request = prepared.request(operation, &[]);
            request.controls = request.controls.with(|values| values.permissive_modify = permissive);
            let answers = [&prepared, &altered].map(|fixture| describe(&fixture.submit(request.clone())));
            assert_eq!(answers[0], answers[1], "seed {seed}:\n{ldif}");
            done += usize::from(answers[0] == "0");
            for name in NAMES {
                assert_eq!(sorted(&prepared, name), sorted(&altered, name), "seed {seed}:\n{ldif}");
            }
        }
        assert!(done > 30, "only {done} were carried out");
        assert_eq!(logged(&prepared), logged(&altered), "seed {seed}");
        for fixture in [&prepared, &altered] {
            assert_sound(fixture.database(), &format!("seed {seed}"));
        }
    }
}
