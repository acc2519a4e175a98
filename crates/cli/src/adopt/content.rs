//! What an LDIF of whole entries holds, to be compared by values without keeping them.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use larix_proto::ldif::{Body, LdifAttribute, Reader};

/// What a server gives an entry that comes without.
const GIVEN: [&str; 6] =
    ["entryUUID", "entryCSN", "creatorsName", "createTimestamp", "modifiersName", "modifyTimestamp"];

/// Entries without an entryUUID, such as the first one of slapd's access log, by the digest of their names: which of [`GIVEN`] they lack.
type Unidentified = HashMap<u128, [bool; GIVEN.len()]>;

/// Differences that are named.
const NAMED_MAX: usize = 10;

/// Makes 128 bits of an entry, keyed anew in each process: two keyed hashes, so no client can choose entries that collide.
#[derive(Default)]
pub(super) struct Digests(RandomState, RandomState);

/// The entries of a database: some 40 bytes each.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Content {
    entries: HashMap<u128, u128>,
    unidentified: Unidentified,
    /// The state of replication, which stands on the suffix entry.
    pub(super) context_csns: BTreeSet<Vec<u8>>,
}

/// An entry by its digests.
struct Row<'e> {
    dn: &'e str,
    key: u128,
    value: u128,
    /// Of an entry without an entryUUID.
    lacks: Option<[bool; GIVEN.len()]>,
}

impl Digests {
    fn digest<'a>(&self, parts: impl Iterator<Item = &'a [u8]> + Clone) -> u128 {
        let half = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            for part in parts.clone() {
                hasher.write_usize(part.len());
                hasher.write(part);
            }
            u128::from(hasher.finish())
        };
        (half(&self.0) << 64) | half(&self.1)
    }

    /// Name and values of an entry: neither the order of attributes counts nor that of values.
    fn entry(&self, dn: &str, attributes: &mut [LdifAttribute]) -> u128 {
        for attribute in &mut *attributes {
            attribute.description.make_ascii_lowercase();
            attribute.values.sort_unstable();
        }
        attributes.sort_unstable_by(|a, b| a.description.cmp(&b.description));
        let mut parts: Vec<&[u8]> = vec![dn.as_bytes()];
        for attribute in &*attributes {
            parts.extend([attribute.description.as_bytes(), b":"]);
            parts.extend(attribute.values.iter().map(Vec::as_slice));
        }
        self.digest(parts.into_iter())
    }

    /// # Errors
    /// A file that cannot be read, or holds something else than entries.
    pub(super) fn read(&self, ldif: &Path) -> anyhow::Result<Content> {
        self.read_beside(ldif, &Unidentified::new())
    }

    /// The same of a copy: what it has been given in addition does not count.
    fn read_beside(&self, ldif: &Path, original: &Unidentified) -> anyhow::Result<Content> {
        let (mut entries, mut unidentified) = (HashMap::new(), Unidentified::new());
        let context_csns = self.each(ldif, original, |entry| {
            entries.insert(entry.key, entry.value);
            unidentified.extend(entry.lacks.map(|lacks| (entry.key, lacks)));
        })?;
        Ok(Content { entries, unidentified, context_csns })
    }

    /// Hands each entry over; answers the contextCSN.
    fn each(
        &self,
        ldif: &Path,
        original: &Unidentified,
        mut row: impl FnMut(Row<'_>),
    ) -> anyhow::Result<BTreeSet<Vec<u8>>> {
        let file = File::open(ldif).with_context(|| format!("cannot read {}", ldif.display()))?;
        let mut reader = Reader::new(BufReader::with_capacity(1 << 18, file));
        let mut csns = BTreeSet::new();
        while let Some(record) =
            reader.read_record().with_context(|| format!("cannot read {}", ldif.display()))?
        {
            let Body::Content(mut attributes) = record.body else {
                bail!("{}: line {}: no entry", ldif.display(), record.line);
            };
            let is = |attribute: &LdifAttribute, name| attribute.description.eq_ignore_ascii_case(name);
            for at in (0..attributes.len()).rev() {
                if attributes.get(at).is_some_and(|attribute| is(attribute, "contextCSN")) {
                    csns.extend(attributes.remove(at).values);
                }
            }
            let by_name = self.digest(std::iter::once(record.dn.to_ascii_lowercase().as_bytes()));
            if let Some(lacked) = original.get(&by_name) {
                let given = |attribute: &LdifAttribute| {
                    GIVEN.iter().zip(lacked).any(|(name, lacked)| *lacked && is(attribute, name))
                };
                attributes.retain(|attribute| !given(attribute));
            }
            let uuid = attributes.iter().find(|attribute| is(attribute, "entryUUID"));
            let uuid = uuid.and_then(|attribute| attribute.values.first());
            let key = uuid.map_or(by_name, |uuid| self.digest(std::iter::once(uuid.as_slice())));
            let lacks = uuid
                .is_none()
                .then(|| GIVEN.map(|name| !attributes.iter().any(|attribute| is(attribute, name))));
            let value = self.entry(&record.dn, &mut attributes);
            row(Row { dn: &record.dn, key, value, lacks });
        }
        Ok(csns)
    }

    /// Compares the entries of an LDIF with what another held: says which differ, the first of them by name.
    ///
    /// # Errors
    /// As [`Self::read`]; the differences.
    pub(super) fn demand_equal(&self, expected: (&Path, &Content), found: &Path) -> anyhow::Result<()> {
        let original = &expected.1.unidentified;
        let other = self.read_beside(found, original)?;
        // A server without the overlay syncprov has none.
        ensure!(
            expected.1.context_csns.is_empty() || expected.1.context_csns == other.context_csns,
            "the contextCSN is not the same in {} and {}: replicas would miss changes",
            expected.0.display(),
            found.display()
        );
        if expected.1.entries == other.entries {
            return Ok(());
        }
        let mut differences = Vec::new();
        let mut count = 0;
        let mut look = |ldif: &Path, against: &Content, both: bool| -> anyhow::Result<()> {
            self.each(ldif, original, |entry| {
                let found = against.entries.get(&entry.key);
                if found.is_none() || (both && found != Some(&entry.value)) {
                    count += 1;
                    if differences.len() < NAMED_MAX {
                        differences.push(entry.dn.to_owned());
                    }
                }
            })?;
            Ok(())
        };
        look(expected.0, &other, true)?;
        look(found, expected.1, false)?;
        bail!(
            "{count} entries are not the same in {} and {}, such as {}",
            expected.0.display(),
            found.display(),
            differences.join("; ")
        )
    }
}

impl Content {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Entries that are otherwise in the other one, or in one alone.
    pub(super) fn differing(&self, other: &Self) -> usize {
        let missing = other.entries.keys().filter(|key| !self.entries.contains_key(key)).count();
        missing + self.entries.iter().filter(|(key, value)| other.entries.get(key) != Some(value)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn values_count_and_their_order_does_not() {
        let digests = Digests::default();
        let first = written("dn: cn=a\ncn: a\nmail: x\nmail: y\nentryUUID: 1\n");
        let content = digests.read(first.path()).unwrap();
        for (text, equal) in [
            ("dn: cn=a\nentryUUID: 1\nmail: y\nCN: a\nmail: x\ncontextCSN: 7\n", true),
            ("dn: cn=a\ncn: a\nmail: x\nmail: Y\nentryUUID: 1\n", false),
            ("dn: cn=A\ncn: a\nmail: x\nmail: y\nentryUUID: 1\n", false),
            ("dn: cn=a\ncn: a\nmail: x\nentryUUID: 1\n", false),
            ("dn: cn=a\ncn: a\nmail: x\nmail: y\nentryUUID: 2\n", false),
            ("", false),
            // This one has all that it has in the other.
            ("dn: cn=a\ncn: a\nmail: x\nmail: y\nentryUUID: 1\nentryCSN: 3\n", false),
        ] {
            let other = written(text);
            let compared = digests.demand_equal((first.path(), &content), other.path());
            assert_eq!(compared.is_ok(), equal, "{text:?}: {compared:?}");
            assert!(equal || compared.unwrap_err().to_string().contains("such as cn="), "{text:?}");
        }
    }

    #[test]
    fn what_an_entry_lacked_is_given_to_its_copy() {
        let digests = Digests::default();
        let first = written("dn: cn=log\ncn: log\nentryCSN: 3\n\ndn: cn=a,cn=log\ncn: a\nentryUUID: 1\n");
        let content = digests.read(first.path()).unwrap();
        let given = "entryUUID: 7\ncreatorsName: cn=log\nmodifyTimestamp: 20261127121938Z\n";
        for (text, equal) in [
            (
                format!("dn: cn=log\ncn: log\nentryCSN: 3\n{given}\ndn: cn=a,cn=log\ncn: a\nentryUUID: 1\n"),
                true,
            ),
            (
                format!("dn: cn=log\ncn: log\nentryCSN: 4\n{given}\ndn: cn=a,cn=log\ncn: a\nentryUUID: 1\n"),
                false,
            ),
            (format!("dn: cn=log\ncn: log\n{given}\ndn: cn=a,cn=log\ncn: a\nentryUUID: 1\n"), false),
            (
                format!(
                    "dn: cn=log\ncn: log\nentryCSN: 3\ndescription: d\n{given}\ndn: cn=a,cn=log\ncn: a\nentryUUID: 1\n"
                ),
                false,
            ),
            (
                format!(
                    "dn: cn=log\ncn: log\nentryCSN: 3\n{given}\ndn: cn=a,cn=log\ncn: a\nentryUUID: 1\nentryCSN: 3\n"
                ),
                false,
            ),
        ] {
            let other = written(&text);
            let compared = digests.demand_equal((first.path(), &content), other.path());
            assert_eq!(compared.is_ok(), equal, "{text:?}: {compared:?}");
        }
    }
}
