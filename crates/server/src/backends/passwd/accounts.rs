//! The accounts of a file in the form of passwd(5), as entries.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use larix_engine::entry::Entry;
use larix_schema::{NormalDn, Schema, escape_value};

use crate::virtual_entries::Builder;

/// Bytes of a file that is read: some 50,000 accounts. The machine's own file is read on the thread of the request.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Bytes of a value that a full name with `&` in it may grow to.
const FULL_NAME_BYTES_MAX: usize = 1_024;

/// The accounts as they were when the file was read.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    all: Vec<(NormalDn, Entry)>,
    places: HashMap<NormalDn, usize>,
}

impl Accounts {
    /// The account at this place, in the order of the file.
    pub(super) fn at(&self, place: usize) -> Option<&(NormalDn, Entry)> {
        self.all.get(place)
    }

    pub(super) fn named(&self, dn: &NormalDn) -> Option<&Entry> {
        self.places.get(dn).and_then(|place| self.all.get(*place)).map(|(_, entry)| entry)
    }

    /// Reads the lines of a file. Those that name no account are passed over, and so are later ones with the same name.
    fn of(lines: &[u8], names: &Names<'_>) -> Self {
        let mut accounts = Self::default();
        for line in lines.split(|byte| *byte == b'\n') {
            let Some(account) = Account::of(line) else { continue };
            let Some((dn, entry)) = names.entry(&account) else { continue };
            if !accounts.places.contains_key(&dn) {
                accounts.places.insert(dn.clone(), accounts.all.len());
                accounts.all.push((dn, entry));
            }
        }
        accounts
    }
}

/// What is read of a line.
#[derive(Debug, PartialEq, Eq)]
struct Account<'a> {
    name: &'a str,
    /// The field for the full name and what stands behind it; empty where it is no text.
    gecos: &'a str,
}

impl<'a> Account<'a> {
    /// None of a line that is a comment, belongs to NIS (`+`, `-`), or has too few fields.
    fn of(line: &'a [u8]) -> Option<Self> {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let [name, _, _, _, gecos, _, ..] = fields.as_slice() else { return None };
        let name = std::str::from_utf8(name).ok()?;
        let is_account = !name.is_empty() && !name.starts_with(['#', '+', '-']);
        is_account.then(|| Self { name, gecos: std::str::from_utf8(gecos).unwrap_or_default() })
    }

    /// What stands before the first comma, with the name in the place of `&`.
    fn full_name(&self) -> String {
        let text = self.gecos.split(',').next().unwrap_or_default();
        let mut first = self.name.chars();
        let capital = first.next().map(|letter| letter.to_ascii_uppercase());
        let name: String = capital.into_iter().chain(first).collect();
        let mut full = String::new();
        for (number, part) in text.split('&').enumerate() {
            if number > 0 {
                match full.len() + name.len() <= FULL_NAME_BYTES_MAX {
                    true => full.push_str(&name),
                    false => full.push('&'),
                }
            }
            full.push_str(part);
        }
        full.trim().to_owned()
    }
}

/// What entries are made with.
#[derive(Debug)]
pub(super) struct Names<'a> {
    pub(super) schema: &'a Schema,
    pub(super) suffix: &'a str,
    pub(super) subschema_dn: &'a str,
}

impl Names<'_> {
    /// The entry of an account; none of a name that makes no DN.
    fn entry(&self, account: &Account<'_>) -> Option<(NormalDn, Entry)> {
        let mut dn = "uid=".to_owned();
        escape_value(account.name.as_bytes(), &mut dn);
        if !self.suffix.is_empty() {
            dn.push(',');
            dn.push_str(self.suffix);
        }
        let normal = self.schema.parse_dn(&dn).ok()?;
        let (mut names, mut surnames) = (vec![account.name.to_owned()], vec![account.name.to_owned()]);
        let full = account.full_name();
        let is_new = |known: &str, name: &str| !known.eq_ignore_ascii_case(name) && !name.is_empty();
        if let Some((_, last)) = full.rsplit_once(' ').filter(|(_, last)| is_new(account.name, last)) {
            surnames.push(last.to_owned());
        }
        if is_new(account.name, &full) {
            names.push(full);
        }
        let gecos = Some(account.gecos.trim()).filter(|gecos| !gecos.is_empty());
        let built = Builder::new(self.schema, dn.clone())
            .classes(&["uidObject", "person"])
            .one("uid", account.name)
            .add("cn", names)
            .add("sn", surnames)
            .add("description", gecos.map(str::to_owned))
            .computed("entryDN", dn)
            .computed("subschemaSubentry", self.subschema_dn);
        Some((normal, built.build()))
    }
}

/// Tells one state of a file from another.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(found: &Metadata) -> Stamp {
    (found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec())
}

/// A file of accounts, read again when it has changed.
#[derive(Debug)]
pub(super) struct AccountFile {
    path: PathBuf,
    read: Mutex<Option<(Stamp, Arc<Accounts>)>>,
}

impl AccountFile {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), read: Mutex::new(None) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The accounts that the file has now.
    ///
    /// # Errors
    /// A file that cannot be read, is none, or is larger than one may be.
    pub(super) fn accounts(&self, names: &Names<'_>) -> io::Result<Arc<Accounts>> {
        let mut file = larix_files::open(&self.path)?;
        let found = file.metadata()?;
        let stamp = stamp(&found);
        // What is kept is whole.
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, accounts)) = read.as_ref().filter(|(known, _)| *known == stamp) {
            return Ok(Arc::clone(accounts));
        }
        let mut lines = Vec::new();
        file.by_ref().take(FILE_BYTES_MAX + 1).read_to_end(&mut lines)?;
        if lines.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        let accounts = Arc::new(Accounts::of(&lines, names));
        *read = Some((stamp, Arc::clone(&accounts)));
        Ok(accounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_accounts() {
        for (line, name, full) in [
            ("ann:x:1000:1000:Ann Archer,Room 1,,:/home/ann:/bin/sh", Some("ann"), "Ann Archer"),
            ("bob:x:1:1:& Brewer:/:", Some("bob"), "Bob Brewer"),
            ("root:x:0:0::/root:/bin/sh", Some("root"), ""),
            ("short:x:1:1:", None, ""),
            ("+::::::", None, ""),
            ("# ann:x:1:1:Ann:/:", None, ""),
            (":x:1:1:Ann:/:", None, ""),
            ("", None, ""),
        ] {
            let account = Account::of(line.as_bytes());
            assert_eq!(account.as_ref().map(|account| account.name), name, "{line}");
            assert_eq!(account.map_or(String::new(), |account| account.full_name()), full, "{line}");
        }
        // A full name in Latin-1 is none.
        let account = Account::of(b"eve:x:1:1:\xe9ve:/:").unwrap();
        assert_eq!(account, Account { name: "eve", gecos: "" });
        // Names do not grow without end.
        let long = format!("{}:x:1:1:{}:/:", "n".repeat(200), "&".repeat(5_000));
        assert!(Account::of(long.as_bytes()).unwrap().full_name().len() < 7_000);
    }
}
