//! The file of a KDC's master keys, MIT's and Heimdal's: a key table (MIT's file format 5.2) with keys of `K/M`.

use std::fs;
use std::path::Path;

use zeroize::Zeroizing;

use super::encryption::EncryptionType;

/// The first octets of a key table.
const FORMAT: [u8; 2] = [5, 2];
/// The principal of a master key, without its realm.
const MASTER: [&[u8]; 2] = [b"K", b"M"];
/// No stash is as large: a key takes some hundred octets.
const SIZE_MAX: u64 = 1 << 20;

/// A key in which the keys of a realm's principals are encrypted.
pub(super) struct MasterKey {
    pub(super) version: u32,
    pub(super) kind: EncryptionType,
    pub(super) key: Zeroizing<Vec<u8>>,
}

/// The master keys of a realm.
pub(in super::super) struct MasterKeys {
    pub(super) realm: Vec<u8>,
    /// The one in which new keys are encrypted.
    pub(super) newest: MasterKey,
    /// Those in which older keys may be.
    pub(super) older: Vec<MasterKey>,
}

impl MasterKeys {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(in super::super) fn read(path: &Path) -> Result<Self, String> {
        let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
        if size > SIZE_MAX {
            return Err(format!("it has {size} octets, so it is no stash"));
        }
        let content = Zeroizing::new(larix_files::read(path).map_err(|error| error.to_string())?);
        Self::parse(&content)
    }

    /// The keys of a stash.
    pub(super) fn parse(content: &[u8]) -> Result<Self, String> {
        let mut rest = content.strip_prefix(&FORMAT).ok_or("it is no key table of the file format 5.2")?;
        let mut newest: Option<Record> = None;
        let mut older = Vec::new();
        while !rest.is_empty() {
            let damaged = || "it is damaged: a record is cut off".to_owned();
            let size = take(&mut rest, 4).and_then(|size| Some(i32::from_be_bytes(size.try_into().ok()?)));
            let size = size.ok_or_else(damaged)?;
            let record = usize::try_from(size.unsigned_abs()).ok().and_then(|size| take(&mut rest, size));
            let record = record.ok_or_else(damaged)?;
            // What was deleted keeps its place.
            if size <= 0 {
                continue;
            }
            let Some(record) = record_of(record).ok_or_else(damaged)? else { continue };
            let is_newest = newest.as_ref().is_none_or(|known| known.version < record.version);
            older.extend(if is_newest { newest.replace(record) } else { Some(record) });
        }
        let Some(Record { realm, key, .. }) = newest else { return Err("it has no key of K/M".to_owned()) };
        // An older key of a type that is unknown here opens nothing.
        let older = older.into_iter().filter_map(|record| record.key.ok()).collect();
        Ok(Self { realm, newest: key?, older })
    }

    /// The keys that may have encrypted what is said to be under this version, the likeliest first.
    pub(super) fn of_version(&self, version: Option<u32>) -> impl Iterator<Item = &MasterKey> {
        let all = || std::iter::once(&self.newest).chain(&self.older);
        let is_it = move |key: &&MasterKey| Some(key.version) == version;
        all().filter(is_it).chain(all().filter(move |key| !is_it(key)))
    }
}

/// A key of `K/M` in a stash.
struct Record {
    realm: Vec<u8>,
    version: u32,
    /// Or why it cannot be used.
    key: Result<MasterKey, String>,
}

/// The key of a record, if it is one of `K/M`. `None`: the record is damaged.
fn record_of(mut rest: &[u8]) -> Option<Option<Record>> {
    let rest = &mut rest;
    let count = number(rest, 2)?;
    let realm = text(rest)?.to_vec();
    let components = (0..count).map(|_| text(rest)).collect::<Option<Vec<_>>>()?;
    // The kind of the name, and when the key was stored.
    take(rest, 8)?;
    let short_version = number(rest, 1)?;
    let kind = number(rest, 2)?;
    let key = Zeroizing::new(text(rest)?.to_vec());
    let version = match number(rest, 4) {
        None | Some(0) => short_version,
        Some(version) => version,
    };
    if components != MASTER {
        return Some(None);
    }
    let kind = u16::try_from(kind).ok().and_then(EncryptionType::numbered).ok_or_else(|| {
        format!("its master key has the encryption type {kind}; those on AES (17 to 20) are known")
    });
    let key = match kind {
        Ok(kind) if kind.key_length() != key.len() => {
            Err(format!("its master key has {} octets, and not {}", key.len(), kind.key_length()))
        }
        kind => kind.map(|kind| MasterKey { version, kind, key }),
    };
    Some(Some(Record { realm, version, key }))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

fn number(rest: &mut &[u8], octets: usize) -> Option<u32> {
    Some(take(rest, octets)?.iter().fold(0, |number, octet| number << 8 | u32::from(*octet)))
}

/// Octets behind a number of them.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(rest, 2)?).ok()?;
    take(rest, length)
}

/// A stash with these keys, for tests.
#[cfg(test)]
pub(in super::super) fn stash(keys: &[(&[&str], u32, u16, &[u8])]) -> Vec<u8> {
    let mut file = FORMAT.to_vec();
    for (name, version, kind, key) in keys {
        let mut record = Vec::new();
        let text = |record: &mut Vec<u8>, text: &[u8]| {
            record.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
            record.extend(text);
        };
        record.extend(u16::try_from(name.len() - 1).unwrap().to_be_bytes());
        text(&mut record, name.last().unwrap().as_bytes());
        name[..name.len() - 1].iter().for_each(|part| text(&mut record, part.as_bytes()));
        record.extend([0; 8]);
        record.push(u8::try_from(version & 0xff).unwrap());
        record.extend(kind.to_be_bytes());
        text(&mut record, key);
        record.extend(version.to_be_bytes());
        file.extend(u32::try_from(record.len()).unwrap().to_be_bytes());
        file.extend(record);
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASTER_NAME: [&str; 3] = ["K", "M", "EXAMPLE.COM"];

    #[test]
    fn the_newest_master_key_counts() {
        let (old, new) = ([1; 16], [2; 32]);
        let mut file = stash(&[(&MASTER_NAME, 300, 18, &new), (&MASTER_NAME, 1, 17, &old)]);
        // A record that was deleted.
        file.extend((-3i32).to_be_bytes());
        file.extend([0; 3]);
        let keys = MasterKeys::parse(&file).ok().unwrap();
        assert_eq!(
            (keys.realm.as_slice(), keys.newest.version, keys.newest.kind),
            (&b"EXAMPLE.COM"[..], 300, EncryptionType::Aes256Sha1)
        );
        assert_eq!(keys.newest.key.as_slice(), new);
        for (version, expected) in
            [(None, [300, 1]), (Some(300), [300, 1]), (Some(1), [1, 300]), (Some(2), [300, 1])]
        {
            assert!(keys.of_version(version).map(|key| key.version).eq(expected), "{version:?}");
        }
        // One of another type does not matter unless it is the newest.
        file = stash(&[(&MASTER_NAME, 1, 16, &[3; 24]), (&MASTER_NAME, 2, 18, &new)]);
        assert!(MasterKeys::parse(&file).ok().unwrap().older.is_empty());
    }

    #[test]
    fn what_is_no_stash_is_refused() {
        let whole = stash(&[(&MASTER_NAME, 1, 18, &[2; 32])]);
        let user = stash(&[(&["ann", "EXAMPLE.COM"], 1, 18, &[2; 32])]);
        for (file, expected) in [
            (&b"plain"[..], "it is no key table of the file format 5.2"),
            (&FORMAT, "it has no key of K/M"),
            (&user, "it has no key of K/M"),
            (&stash(&[(&MASTER_NAME, 1, 23, &[2; 16])]), "its master key has the encryption type 23"),
            (&stash(&[(&MASTER_NAME, 1, 18, &[2; 16])]), "its master key has 16 octets, and not 32"),
        ] {
            let fault = MasterKeys::parse(file).map(|_| ()).unwrap_err();
            assert!(fault.starts_with(expected), "{fault}");
        }
        for length in FORMAT.len() + 1..whole.len() {
            let fault = MasterKeys::parse(&whole[..length]).map(|_| ()).unwrap_err();
            assert_eq!(fault, "it is damaged: a record is cut off", "{length}");
        }
    }
}
