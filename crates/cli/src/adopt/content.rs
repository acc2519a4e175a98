//! What an LDIF of whole entries holds, to be compared by values without keeping them.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use larix_proto::ldif::{Body, LdifAttribute, Reader};

/// Differences that are named.
const NAMED_MAX: usize = 10;

/// Makes 128 bits of an entry, keyed anew in each process: two keyed hashes, so no client can choose entries that collide.
#[derive(Default)]
pub(super) struct Digests(RandomState, RandomState);

/// The entries of a database: some 40 bytes each.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Content {
    entries: HashMap<u128, u128>,
    /// The state of replication, which stands on the suffix entry.
    pub(super) context_csns: BTreeSet<Vec<u8>>,
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
        let mut entries = HashMap::new();
        let context_csns = self.each(ldif, |_, key, value| {
            entries.insert(key, value);
        })?;
        Ok(Content { entries, context_csns })
    }

    /// Hands each entry's DN, key and digest over; answers the contextCSN.
    fn each(&self, ldif: &Path, mut row: impl FnMut(&str, u128, u128)) -> anyhow::Result<BTreeSet<Vec<u8>>> {
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
            let uuid = attributes.iter().find(|attribute| is(attribute, "entryUUID"));
            let uuid = uuid.and_then(|attribute| attribute.values.first()).cloned();
            let name = uuid.unwrap_or_else(|| record.dn.to_ascii_lowercase().into_bytes());
            let key = self.digest(std::iter::once(name.as_slice()));
            let value = self.entry(&record.dn, &mut attributes);
            row(&record.dn, key, value);
        }
        Ok(csns)
    }

    /// Compares the entries of an LDIF with what another held: says which differ, the first of them by name.
    ///
    /// # Errors
    /// As [`Self::read`]; the differences.
    pub(super) fn demand_equal(&self, wanted: (&Path, &Content), found: &Path) -> anyhow::Result<()> {
        let other = self.read(found)?;
        // A server without the overlay syncprov has none.
        ensure!(
            wanted.1.context_csns.is_empty() || wanted.1.context_csns == other.context_csns,
            "the contextCSN is not the same in {} and {}: replicas would miss changes",
            wanted.0.display(),
            found.display()
        );
        if wanted.1.entries == other.entries {
            return Ok(());
        }
        let mut differences = Vec::new();
        let mut count = 0;
        let mut look = |ldif: &Path, against: &Content, both: bool| -> anyhow::Result<()> {
            self.each(ldif, |dn, key, value| {
                let found = against.entries.get(&key);
                if found.is_none() || (both && found != Some(&value)) {
                    count += 1;
                    if differences.len() < NAMED_MAX {
                        differences.push(dn.to_owned());
                    }
                }
            })?;
            Ok(())
        };
        look(wanted.0, &other, true)?;
        look(found, wanted.1, false)?;
        bail!(
            "{count} entries are not the same in {} and {}, such as {}",
            wanted.0.display(),
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
        ] {
            let other = written(text);
            let compared = digests.demand_equal((first.path(), &content), other.path());
            assert_eq!(compared.is_ok(), equal, "{text:?}: {compared:?}");
            assert!(equal || compared.unwrap_err().to_string().contains("such as cn="), "{text:?}");
        }
    }
}
