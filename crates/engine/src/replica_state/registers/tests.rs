//! Histories of several servers that merge in any order, against the laws of merging and the written rules.

use std::collections::BTreeSet;

use super::*;
use crate::fixture::{change, schema};
use crate::time::{SeededRandom, Timestamp};

fn csn(time: i64, server_id: u16) -> Csn {
    Csn { time: Timestamp(time), count: 0, server_id, modification: 0 }
}

fn rule(description: &AttributeDescription) -> Rule {
    let schema = schema();
    let kind = schema.attribute(description.attribute);
    if kind.name() == "entryCSN" {
        return Rule::Newest;
    }
    if kind.single_value || kind.equality.is_none() { Rule::Whole } else { Rule::Values }
}

impl Version {
    fn of(entry_csn: Csn, attributes: &[&str]) -> Self {
        let mut version = Self { state: EntryState::begin(Some(entry_csn)), content: Content::new() };
        attributes.iter().for_each(|text| version.set_content(&change(text)));
        version.stamp(entry_csn);
        version
    }

    fn stamp(&mut self, csn: Csn) {
        let text = csn.text().into_bytes();
        let value = Value { normal: text.clone(), value: text };
        self.content.insert(schema().describe("entryCSN").unwrap(), vec![value]);
    }

    fn set_content(&mut self, change: &Change) {
        let values = self.content.entry(change.description.clone()).or_default();
        match change.kind {
            ChangeKind::Delete if change.values.is_empty() => values.clear(),
            ChangeKind::Delete => values.retain(|value| !change.keys.contains(&value.normal)),
            kind => {
                if kind == ChangeKind::Replace {
                    values.clear();
                }
                for (value, normal) in change.values.iter().zip(&change.keys) {
                    if !values.iter().any(|value| value.normal == *normal) {
                        values.push(Value { normal: normal.clone(), value: value.clone() });
                    }
                }
            }
        }
        if values.is_empty() {
            self.content.remove(&change.description);
        }
    }

    /// A request: several modifications under one CSN.
    fn request(&mut self, csn: Csn, changes: &[Change]) {
        let mut done: BTreeMap<AttributeDescription, AttributeChange> = BTreeMap::new();
        for change in changes {
            self.set_content(change);
            done.entry(change.description.clone()).or_default().take(rule(&change.description), change);
        }
        for (description, change) in done {
            let attribute = self.state.attributes.entry(description).or_default();
            if change.whole {
                *attribute = AttributeState { cleared: Some(csn), values: BTreeMap::new() };
            }
            attribute.values.extend(change.registers(csn));
        }
        self.state.seen.note(csn);
        self.stamp(csn);
    }

    /// Without the order of values, which has no meaning.
    fn shown(&self) -> (EntryState, BTreeMap<String, BTreeSet<String>>) {
        let content = self.content.iter().map(|(description, values)| {
            let values = values.iter().map(|value| String::from_utf8_lossy(&value.value).into_owned());
            (description.to_text(&schema()), values.collect())
        });
        let mut state = self.state.clone();
        state.attributes.retain(|_, attribute| *attribute != AttributeState::default());
        (state, content.collect())
    }
}

fn merged(ours: &Version, theirs: &Version) -> Version {
    merge(&rule, ours, theirs).version
}

/// A request that this version allows.
fn some_request(random: &SeededRandom, version: &Version) -> Vec<Change> {
    let mut scratch = version.clone();
    let mut changes = Vec::new();
    for _ in 0..1 + random.below(3) {
        let name = ["cn", "description", "telephoneNumber", "displayName"][random.below(4)];
        let value = ["1", "2", "3", "4"][random.below(4)];
        let has = scratch.content.get(&schema().describe(name).unwrap());
        let has_value = has.is_some_and(|values| values.iter().any(|held| held.value == value.as_bytes()));
        let text = match random.below(7) {
            0 => format!("replace {name} {value}"),
            1 if name != "displayName" => format!("replace {name} {value} 5"),
            2 if has.is_some() => format!("delete {name}"),
            3 | 4 if has_value => format!("delete {name} {value}"),
            _ if !has_value && (name != "displayName" || has.is_none()) => format!("add {name} {value}"),
            _ => continue,
        };
        let change = change(&text);
        scratch.set_content(&change);
        changes.push(change);
    }
    changes
}

/// Some servers change an entry and hear of each other at random; some versions on the way are kept.
fn history(random: &SeededRandom) -> Vec<Version> {
    let first = Version::of(csn(1, 1), &["add cn 1 2", "add description 3", "add displayName 1"]);
    let mut servers = vec![first; 3];
    let mut kept = Vec::new();
    let mut time = 1;
    for _ in 0..4 + random.below(14) {
        let at = random.below(servers.len());
        if random.below(3) == 0 {
            let from = random.below(servers.len());
            servers[at] = merged(&servers[at], &servers[from]);
        } else {
            // Clocks differ; a server's own only goes on, and over what it has heard.
            time += 1;
            let ahead = i64::try_from(random.below(3) * 10).unwrap();
            let number = u16::try_from(at + 1).unwrap();
            let newest = servers[at].state.newest().unwrap().time.0;
            let changes = some_request(random, &servers[at]);
            servers[at].request(csn((time + ahead).max(newest + 1), number), &changes);
        }
        if random.below(3) == 0 {
            kept.push(servers[at].clone());
        }
    }
    kept.extend(servers);
    kept
}

#[test]
fn merging_does_not_depend_on_the_order() {
    for seed in 0..4_000 {
        let random = &SeededRandom::new(seed);
        let versions = history(random);
        let pick = || versions[random.below(versions.len())].clone();
        let (a, b, c) = (pick(), pick(), pick());
        let same = |left: &Version, right: &Version, law: &str| {
            assert_eq!(left.shown(), right.shown(), "seed {seed}: {law}");
        };
        same(&merged(&a, &b), &merged(&b, &a), "a+b = b+a");
        same(&merged(&a, &a), &a, "a+a = a");
        same(&merged(&merged(&a, &b), &c), &merged(&a, &merged(&b, &c)), "(a+b)+c = a+(b+c)");
        same(&merged(&merged(&a, &b), &b), &merged(&a, &b), "(a+b)+b = a+b");
        if a.state.has_all_of(&b.state) {
            same(&merged(&a, &b), &a, "a has all of b");
        }
        let mut forwards = versions[0].clone();
        versions.iter().for_each(|version| forwards = merged(&forwards, version));
        let mut backwards = versions[versions.len() - 1].clone();
        versions.iter().rev().for_each(|version| backwards = merged(version, &backwards));
        same(&forwards, &backwards, "all, from both ends");
    }
}

#[test]
fn changes_of_different_things_both_stay() {
    for seed in 0..2_000 {
        let random = &SeededRandom::new(seed);
        let first = Version::of(csn(1, 1), &["add cn a", "add description b", "add telephoneNumber 1"]);
        let (mut one, mut other) = (first.clone(), first);
        let names = ["cn", "description"];
        for time in 2..6 {
            let value = random.below(9);
            one.request(csn(time, 1), &[change(&format!("replace {} {value}", names[0]))]);
            let value = random.below(9);
            other.request(
                csn(time + 2 * i64::from(random.below(2) == 0), 2),
                &[change(&format!("replace {} {value}", names[1]))],
            );
        }
        let both = merge(&rule, &one, &other);
        let (cn, description) = (schema().describe("cn").unwrap(), schema().describe("description").unwrap());
        assert_eq!(both.version.content[&cn], one.content[&cn]);
        assert_eq!(both.version.content[&description], other.content[&description]);
        assert!(both.lost_ours.is_empty() && both.lost_theirs.is_empty());
    }
}

/// What two servers do at the same time, each some requests at the times that stand before them; what is left, and what is
/// said to be lost of the first and of the second.
#[test]
fn each_rule_of_attributes_and_values() {
    let check = |first: &str, second: &str, expected: &str, lost: (&str, &str)| {
        let begin = Version::of(csn(1, 1), &["add cn a b", "add displayName x", "add jpegPhoto p"]);
        let mut sides = [begin.clone(), begin];
        for ((side, text), server) in sides.iter_mut().zip([first, second]).zip(1..) {
            for request in text.split("; ").filter(|request| !request.is_empty()) {
                let (time, changes) = request.split_once(' ').unwrap();
                let changes: Vec<Change> = changes.split(", ").map(change).collect();
                side.request(csn(time.parse().unwrap(), server), &changes);
            }
        }
        let text = |content: &Content| {
            let values = content.iter().filter(|(description, _)| rule(description) != Rule::Newest);
            let mut all: Vec<String> = values
                .flat_map(|(description, values)| {
                    let name = description.to_text(&schema());
                    let shown =
                        move |value: &Value| format!("{name}={}", String::from_utf8_lossy(&value.value));
                    values.iter().map(shown).collect::<Vec<_>>()
                })
                .collect();
            all.sort_unstable();
            all.join(" ")
        };
        let [ours, theirs] = &sides;
        for (ours, theirs, lost) in [(ours, theirs, lost), (theirs, ours, (lost.1, lost.0))] {
            let done = merge(&rule, ours, theirs);
            let case = format!("{first} | {second}");
            assert_eq!(text(&done.version.content), expected, "{case}");
            assert_eq!((text(&done.lost_ours).as_str(), text(&done.lost_theirs).as_str()), lost, "{case}");
        }
    };
    let rest = "displayName=x jpegPhoto=p";
    let with = |cn: &str| format!("{cn} {rest}").trim().to_owned();
    // Different values of one attribute.
    check("2 add cn c", "3 add cn d", &with("cn=a cn=b cn=c cn=d"), ("", ""));
    check("2 add cn c", "3 add cn c", &with("cn=a cn=b cn=c"), ("", ""));
    check("2 delete cn a", "3 delete cn b", rest, ("", ""));
    check("2 delete cn a", "3 add cn c", &with("cn=b cn=c"), ("", ""));
    // One value: the later word counts.
    check("2 delete cn a", "3 delete cn a; 4 add cn a", &with("cn=a cn=b"), ("", ""));
    check("5 delete cn a", "3 delete cn a; 4 add cn a", &with("cn=b"), ("", "cn=a"));
    // Spelling.
    check("2 delete cn a, add cn A", "3 delete cn b", &with("cn=A"), ("", ""));
    // The whole attribute: what is older goes, what is newer stays.
    check("3 replace cn c", "2 add cn d", &with("cn=c"), ("", "cn=d"));
    check("2 replace cn c", "3 add cn d", &with("cn=c cn=d"), ("", ""));
    check("2 replace cn c", "3 replace cn d", &with("cn=d"), ("cn=c", ""));
    check("2 replace cn c", "3 delete cn", rest, ("cn=c", ""));
    check("3 replace cn c", "2 delete cn", &with("cn=c"), ("", ""));
    check("3 delete cn", "2 add cn d; 4 add cn e", &with("cn=e"), ("", "cn=d"));
    check("2 delete cn, add cn c", "3 delete cn, add cn d", &with("cn=d"), ("cn=c", ""));
    // A single value, and what cannot be compared: the later one, whole.
    check(
        "2 replace displayName y",
        "3 replace displayName z",
        "cn=a cn=b displayName=z jpegPhoto=p",
        ("displayName=y", ""),
    );
    check(
        "2 delete displayName x, add displayName y",
        "3 delete displayName x",
        "cn=a cn=b jpegPhoto=p",
        ("displayName=y", ""),
    );
    check(
        "3 replace jpegPhoto q r",
        "2 replace jpegPhoto s",
        "cn=a cn=b displayName=x jpegPhoto=q jpegPhoto=r",
        ("", "jpegPhoto=s"),
    );
    // Different attributes.
    check("2 replace displayName y", "3 replace cn c", "cn=c displayName=y jpegPhoto=p", ("", ""));
    // One side has all of the other.
    check("2 replace cn c; 3 add cn d", "", &with("cn=c cn=d"), ("", ""));
}

#[test]
fn a_removal_that_is_forgotten_stays_one() {
    let begin = Version::of(csn(1, 1), &["add cn a b"]);
    let (mut one, mut other) = (begin.clone(), begin);
    one.request(csn(2, 1), &[change("delete cn a")]);
    other.request(csn(3, 2), &[change("add cn c")]);
    // As trimming does with the log.
    one.state.attributes.values_mut().for_each(|attribute| attribute.values.clear());
    for merged in [merged(&one, &other), merged(&other, &one)] {
        let cn = &merged.content[&schema().describe("cn").unwrap()];
        let values: BTreeSet<&[u8]> = cn.iter().map(|value| value.value.as_slice()).collect();
        assert_eq!(values, [b"b".as_slice(), b"c"].into());
    }
}
