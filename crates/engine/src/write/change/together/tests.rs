//! Modifications one by one and together come to the same.

use super::*;
use crate::change::prepare::check_change;
use crate::entry::EntryAttribute;
use crate::time::SeededRandom;
use crate::write::AttributeValues;
use crate::write::change::NoLargeSets;

fn schema() -> Schema {
    let mut builder = larix_schema::SchemaBuilder::system();
    for name in ["core", "cosine", "nis"] {
        builder.add_bundled(name).unwrap();
    }
    builder.build()
}

fn change(schema: &Schema, kind: ChangeKind, name: &str, values: &[&str]) -> Change {
    let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    check_change(schema, kind, AttributeValues { description: name.to_owned(), values }).unwrap()
}

fn entry(schema: &Schema, name: &str, values: &[&str]) -> Entry {
    let mut entry = Entry::new("cn=x".to_owned());
    let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    entry.attributes.push(EntryAttribute::new(schema.describe(name).unwrap(), values));
    entry
}

/// With the order in which clients see attributes and values.
fn content(entry: Entry) -> Vec<(AttributeDescription, Vec<Vec<u8>>)> {
    entry.attributes.into_iter().map(|attribute| (attribute.description, attribute.values)).collect()
}

#[test]
fn together_is_as_one_by_one() {
    let schema = schema();
    let random = SeededRandom::new(7);
    let pick = |below: usize| random.below(below);
    let (mut fine, mut refused) = (0, 0);
    for round in 0..4_000 {
        let values = ["1", "2", "3", "4", "5", "6"];
        let names = ["uidNumber", "description", "cn", "telephoneNumber"];
        let mut start = entry(&schema, names[1 + round % 3], &values[..pick(5) + 1]);
        start.attributes.push(EntryAttribute::new(schema.describe("sn").unwrap(), vec![b"last".to_vec()]));
        let changes: Vec<Change> = (0..pick(9) + 1)
            .map(|_| {
                let name = names[pick(names.len())];
                let at = pick(values.len());
                let few = &values[at..(at + pick(3)).min(values.len())];
                match pick(if name == "uidNumber" { 5 } else { 4 }) {
                    0 if name == "uidNumber" => change(&schema, ChangeKind::SoftAdd, name, &values[at..=at]),
                    0 | 1 => change(&schema, ChangeKind::Add, name, &values[at..=at]),
                    2 => change(&schema, ChangeKind::Delete, name, few),
                    3 => change(
                        &schema,
                        ChangeKind::Replace,
                        name,
                        if name == "uidNumber" { &[] } else { few },
                    ),
                    _ => change(&schema, ChangeKind::Increment, name, &values[at..=at]),
                }
            })
            .collect();
        let changes: Vec<&Change> = changes.iter().collect();
        let permissive = round % 2 == 0;
        let mut one_by_one = start.clone();
        let expected = changes
            .iter()
            .try_for_each(|change| apply(&schema, &mut one_by_one, change, permissive, &NoLargeSets));
        let expected = expected.map_err(Failure::into_result);
        let limits = RequestLimits::default();
        for looked_up in [false, true] {
            let (mut entry, positions) = (start.clone(), AttributePositions { looked_up, known: None });
            let done =
                together((&schema, &NoLargeSets, &limits), &mut entry, &changes, permissive, positions);
            match (&expected, done) {
                (Ok(()), Ok(())) => {
                    fine += 1;
                    assert_eq!(content(entry), content(one_by_one.clone()), "{start:?} {changes:?}");
                }
                (Err(expected), Err(done)) => {
                    refused += 1;
                    assert_eq!(done.into_result(), *expected, "{start:?} {changes:?}");
                }
                (expected, done) => panic!("{expected:?}, together {done:?}: {start:?} {changes:?}"),
            }
        }
    }
    assert!(fine > 1_000 && refused > 1_000, "{fine} {refused}");
}

/// The values looked at grow with what the request names, and not with what the attribute holds for each modification.
#[test]
fn many_modifications_of_a_large_attribute_stay_within_their_budget() {
    let schema = schema();
    let values: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let mut start = entry(&schema, "description", &values);
    let changes: Vec<Change> = (0..5_000)
        .map(|n| match n % 2 {
            0 => change(&schema, ChangeKind::Delete, "description", &values[n..=n]),
            _ => change(&schema, ChangeKind::Add, "description", &[format!("new {n}").as_str()]),
        })
        .collect();
    let changes: Vec<&Change> = changes.iter().collect();
    let limits = RequestLimits::default().with(RequestLimit::Steps, 25_000);
    let mut done = start.clone();
    apply_all(&schema, &mut done, &changes, false, &NoLargeSets, &limits).unwrap();
    assert_eq!(done.attributes[0].values.len(), 20_000);
    let limits = limits.with(RequestLimit::Steps, 24_999);
    let refused = apply_all(&schema, &mut start, &changes, false, &NoLargeSets, &limits);
    let text = refused.unwrap_err().into_result().diagnostic;
    assert_eq!(text, "more than 24999 steps of work on one entry (request-limits steps=)");
}
