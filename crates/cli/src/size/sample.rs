//! The sample: how many entries it has, half of it, and some entries to ask for.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{BufRead, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use larix_configuration::local_attributes;
use larix_proto::ldif::{Body, LdifAttribute, Reader, Record};

/// Fewer entries say nothing about many: pages are mostly empty.
pub(super) const ENTRIES_MIN: u64 = 100;
/// Entries that are asked for and changed by name, when their numbers are not known.
const TARGETS_MAX: usize = 128;

/// What the server keeps by itself, or what no client replaces by the way.
const NOT_TO_CHANGE: [&str; 13] = [
    "objectclass",
    "structuralobjectclass",
    "entryuuid",
    "entrycsn",
    "contextcsn",
    "creatorsname",
    "createtimestamp",
    "modifiersname",
    "modifytimestamp",
    "entrydn",
    "subschemasubentry",
    "hassubordinates",
    "userpassword",
];

#[derive(Debug)]
pub(super) struct Sample {
    pub(super) entries: u64,
    pub(super) targets: Vec<Target>,
}

/// An entry, and one of its attributes with the one value it has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Target {
    pub(super) dn: String,
    pub(super) change: Option<(String, String)>,
}

impl Sample {
    /// Reads the sample and writes a half of it to `half`: every second entry that has none below it is left out. A cut
    /// through the middle would leave out what a dump has at its end: groups, say.
    pub(super) fn read(ldif: &Path, half: &Path) -> anyhow::Result<Self> {
        let mut records = Vec::new();
        let mut parents = HashSet::new();
        let mut targets = Vec::new();
        for record in Reader::new(super::open(ldif)?) {
            let record = record.map_err(|error| anyhow::anyhow!("{}: {error}", ldif.display()))?;
            records.push((record.line, digest(&record.dn)));
            parents.insert(digest(parent(&record.dn)));
            // Ever more of the file are between two targets, so that they are spread over all of it.
            if records.len() % (1 + records.len() / TARGETS_MAX) == 0 {
                targets.extend(target(record));
            }
        }
        let entries = records.len() as u64;
        match entries {
            0 => bail!("{} has no entries", ldif.display()),
            1..ENTRIES_MIN => {
                bail!("{} has {entries} entries: a sample needs at least {ENTRIES_MIN}", ldif.display())
            }
            _ => {}
        }
        let step = targets.len().div_ceil(TARGETS_MAX).max(1);
        let targets = targets.into_iter().step_by(step).collect();
        let mut leaves = 0_u64;
        let parts: Vec<(u64, bool)> = records
            .into_iter()
            .map(|(line, name)| {
                leaves += u64::from(!parents.contains(&name));
                (line, parents.contains(&name) || leaves % 2 == 1)
            })
            .collect();
        write_kept(ldif, &parts, half)?;
        Ok(Self { entries, targets })
    }
}

/// The DN without its first RDN.
fn parent(dn: &str) -> &str {
    let mut escaped = false;
    let comma = dn.char_indices().find(|(_, c)| {
        let ends = *c == ',' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    comma.and_then(|(at, _)| dn.get(at + 1..)).unwrap_or("")
}

/// Names that are written alike but for case and spaces have one digest; a parent that is spelled otherwise is taken
/// for a leaf, and the load of the half will name its child.
fn digest(dn: &str) -> u64 {
    let plain: String = dn.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect();
    BuildHasherDefault::<DefaultHasher>::default().hash_one(plain)
}

/// Copies the records that are kept; each is given by its first line, from 1.
fn write_kept(ldif: &Path, parts: &[(u64, bool)], half: &Path) -> anyhow::Result<()> {
    let mut input = super::open(ldif)?;
    let file = File::create(half).with_context(|| format!("cannot create {}", half.display()))?;
    let mut out = BufWriter::new(file);
    let mut parts = parts.iter().peekable();
    let mut keeps = true;
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.with_context(|| format!("cannot read {}", ldif.display()))? == 0 {
            break;
        }
        if let Some((_, keep)) = parts.next_if(|(first, _)| *first == number) {
            keeps = *keep;
        }
        if keeps {
            out.write_all(&line).with_context(|| format!("cannot write {}", half.display()))?;
        }
    }
    out.flush().with_context(|| format!("cannot write {}", half.display()))
}

/// What can be asked of a record; absent for one whose name would need to be escaped in a template.
fn target(record: Record) -> Option<Target> {
    let Body::Content(attributes) = record.body else { return None };
    if record.dn.contains(['{', '}']) || record.dn.is_empty() {
        return None;
    }
    let rdn = record.dn.split('=').next().unwrap_or("").to_ascii_lowercase();
    let change = attributes.iter().rev().find_map(|attribute| replaceable(attribute, &rdn));
    Some(Target { dn: record.dn, change })
}

fn replaceable(attribute: &LdifAttribute, rdn: &str) -> Option<(String, String)> {
    let name = attribute.description.to_ascii_lowercase();
    let [value] = attribute.values.as_slice() else { return None };
    let text =
        std::str::from_utf8(value).ok().filter(|text| !text.is_empty() && !text.contains(['{', '}']))?;
    let of_overlays = || local_attributes().iter().any(|local| local.eq_ignore_ascii_case(&name));
    let is_kept = NOT_TO_CHANGE.contains(&name.as_str()) || of_overlays();
    let plain = name != rdn && !is_kept && !name.contains(';');
    plain.then(|| (attribute.description.clone(), text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> anyhow::Result<(Sample, String)> {
        let folder = tempfile::tempdir().unwrap();
        let (ldif, half) = (folder.path().join("s.ldif"), folder.path().join("half.ldif"));
        std::fs::write(&ldif, text).unwrap();
        let sample = Sample::read(&ldif, &half)?;
        Ok((sample, std::fs::read_to_string(half).unwrap()))
    }

    fn entry(number: u32) -> String {
        format!(
            "dn: uid=u{number},dc=x\nobjectClass: account\nuid: u{number}\ndescription: some\n  text {number}\nentryCSN: 1\n\n"
        )
    }

    fn entries(count: u32) -> String {
        (0..count).map(entry).collect()
    }

    #[test]
    fn a_half_has_all_parents_and_every_second_leaf() {
        let top = "dn: dc=X\nobjectClass: domain\n\n";
        let (sample, half) = read(&format!("# a dump\n{top}{}", entries(1_000))).unwrap();
        assert_eq!(sample.entries, 1_001);
        let kept: String = (0..1_000).step_by(2).map(entry).collect();
        assert_eq!(half, format!("# a dump\n{top}{kept}"));
        let targets = sample.targets.len();
        assert!((TARGETS_MAX / 2..=TARGETS_MAX).contains(&targets), "{targets}");
        let target = sample.targets.last().unwrap();
        let number = target.dn.trim_start_matches("uid=u").trim_end_matches(",dc=x");
        let expected = Some(("description".to_owned(), format!("some text {number}")));
        assert_eq!(target.change, expected, "{}", target.dn);
    }

    #[test]
    fn the_parent_is_behind_the_first_comma_that_separates() {
        for (dn, expected) in
            [("cn=a,dc=x", "dc=x"), (r"cn=a\,b,dc=x", "dc=x"), (r"cn=a\\,dc=x", "dc=x"), ("dc=x", "")]
        {
            assert_eq!(parent(dn), expected, "{dn}");
        }
    }

    #[test]
    fn what_is_no_sample_is_named() {
        for (text, expected) in [
            (String::new(), "has no entries"),
            ("# only a comment\n".into(), "has no entries"),
            (entries(7), "has 7 entries: a sample needs at least 100"),
            ("dn: cn=a\nnonsense\n".into(), "s.ldif: "),
        ] {
            let error = format!("{:#}", read(&text).unwrap_err());
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
