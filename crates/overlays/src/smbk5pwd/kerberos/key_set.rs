//! Keys as MIT's kldap stores them in krbPrincipalKey: a KrbKeySet in DER (the schema of MIT's says what is in it).

use larix_engine::time::RandomSource;
use larix_proto::ber::{DecodeError, Reader, Tag, write};
use zeroize::Zeroizing;

use super::encryption::EncryptionType;
use super::stash::{MasterKey, MasterKeys};

/// Of what stands in attribute-major-vno and attribute-minor-vno.
const FORMAT: i64 = 1;
/// A salt that is stored, whatever the name (KRB5_KDB_SALTTYPE_SPECIAL).
const STORED_SALT: i64 = 4;
/// The salt that the name makes (KRB5_KDB_SALTTYPE_NORMAL).
const USUAL_SALT: i64 = 0;
/// The usage of keys that encrypt other keys.
const USAGE: u32 = 0;

/// A set of keys of one version.
pub(super) fn encode(
    master: &MasterKey,
    version: u32,
    salt: &[u8],
    keys: &[(EncryptionType, impl AsRef<[u8]>)],
    random: &dyn RandomSource,
) -> Vec<u8> {
    let mut stored_salt = Vec::new();
    write_salt(&mut stored_salt, STORED_SALT, Some(salt));
    write_set(version, master.version, |out| {
        for (kind, key) in keys {
            let sealed = sealed(master, key.as_ref(), random);
            write_key(out, &stored_salt, kind.number().into(), &sealed);
        }
    })
}

fn write_set(version: u32, master_version: u32, keys: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write::constructed(&mut out, Tag::SEQUENCE, |out| {
        for (field, number) in [(0, FORMAT), (1, FORMAT), (2, version.into()), (3, master_version.into())] {
            integer(out, field, number);
        }
        write::constructed(out, Tag::context_constructed(4), |out| {
            write::constructed(out, Tag::SEQUENCE, keys);
        });
    });
    out
}

/// A key as it is stored: its length, the low octet first, and the key encrypted.
fn sealed(master: &MasterKey, key: &[u8], random: &dyn RandomSource) -> Vec<u8> {
    let mut confounder = [0; 16];
    random.fill(&mut confounder);
    let length = u16::try_from(key.len()).unwrap_or(u16::MAX);
    let encrypted = master.kind.encrypt(&master.key, USAGE, confounder, key);
    [&length.to_le_bytes()[..], &encrypted].concat()
}

/// A key that is stored; `None`: it is not encrypted in this master key.
fn unsealed(master: &MasterKey, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (length, encrypted) = sealed.split_first_chunk()?;
    let mut key = master.kind.decrypt(&master.key, USAGE, encrypted)?;
    // What stands behind it fills the last block.
    key.truncate(usize::from(u16::from_le_bytes(*length)));
    Some(key)
}

fn write_salt(out: &mut Vec<u8>, kind: i64, salt: Option<&[u8]>) {
    write::constructed(out, Tag::SEQUENCE, |out| {
        integer(out, 0, kind);
        if let Some(salt) = salt {
            write::constructed(out, Tag::context_constructed(1), |out| {
                write::octets(out, Tag::OCTET_STRING, salt);
            });
        }
    });
}

fn write_key(out: &mut Vec<u8>, salt: &[u8], kind: i64, sealed: &[u8]) {
    write::constructed(out, Tag::SEQUENCE, |out| {
        write::constructed(out, Tag::context_constructed(0), |out| out.extend_from_slice(salt));
        write::constructed(out, Tag::context_constructed(1), |out| {
            write::constructed(out, Tag::SEQUENCE, |out| {
                integer(out, 0, kind);
                write::constructed(out, Tag::context_constructed(1), |out| {
                    write::octets(out, Tag::OCTET_STRING, sealed);
                });
            });
        });
    });
}

fn integer(out: &mut Vec<u8>, field: u8, number: i64) {
    write::constructed(out, Tag::context_constructed(field), |out| write::integer(out, Tag::INTEGER, number));
}

/// The version of a set of keys, whether they can be read or not; `None`: it is no such set.
pub(in super::super) fn version(stored: &[u8]) -> Option<u32> {
    let read = || -> Result<u32, DecodeError> {
        let mut set = Reader::new(stored).sequence("KrbKeySet")?;
        read_version(&mut set)
    };
    read().ok()
}

fn read_version(set: &mut Reader<'_>) -> Result<u32, DecodeError> {
    set.expect(Tag::context_constructed(0), "attribute-major-vno")?;
    set.expect(Tag::context_constructed(1), "attribute-minor-vno")?;
    Reader::new(set.expect(Tag::context_constructed(2), "kvno")?).unsigned("kvno")
}

/// A set of keys that is stored.
#[derive(Debug)]
pub(super) struct KeySet<'a> {
    pub(super) version: u32,
    /// The version of the key that its keys are encrypted in.
    pub(super) master_version: Option<u32>,
    keys: Vec<StoredKey<'a>>,
}

#[derive(Debug)]
struct StoredKey<'a> {
    /// A KrbSalt.
    salt: Option<&'a [u8]>,
    kind: i64,
    sealed: &'a [u8],
}

impl<'a> KeySet<'a> {
    pub(super) fn parse(stored: &'a [u8]) -> Option<Self> {
        let read = || -> Result<Self, DecodeError> {
            let mut set = Reader::new(stored).sequence("KrbKeySet")?;
            let version = read_version(&mut set)?;
            let master_version = set.optional(Tag::context_constructed(3), "mkvno")?;
            let master_version = master_version.map(|own| Reader::new(own).unsigned("mkvno")).transpose()?;
            let mut list = Reader::new(set.expect(Tag::context_constructed(4), "keys")?).sequence("keys")?;
            let mut keys = Vec::new();
            while list.peek().is_some() {
                keys.push(StoredKey::read(&mut list)?);
            }
            Ok(Self { version, master_version: master_version.filter(|own| *own != 0), keys })
        };
        read().ok()
    }

    /// The first of its keys, opened.
    pub(super) fn first(&self, masters: &MasterKeys) -> Option<(EncryptionType, Zeroizing<Vec<u8>>)> {
        let first = self.keys.first()?;
        let kind = u16::try_from(first.kind).ok().and_then(EncryptionType::numbered)?;
        let mut masters = masters.of_version(self.master_version);
        let key = masters.find_map(|master| unsealed(master, first.sealed))?;
        (key.len() == kind.key_length()).then_some((kind, key))
    }

    /// The same keys, encrypted in another one. `None`: a key cannot be opened, or there is none.
    pub(super) fn resealed(
        &self,
        masters: &MasterKeys,
        to: &MasterKey,
        random: &dyn RandomSource,
    ) -> Option<Vec<u8>> {
        let again = |key: &StoredKey<'a>| {
            let mut masters = masters.of_version(self.master_version);
            let opened = masters.find_map(|master| unsealed(master, key.sealed))?;
            Some(sealed(to, &opened, random))
        };
        let sealed: Vec<Vec<u8>> = self.keys.iter().map(again).collect::<Option<_>>()?;
        let mut no_salt = Vec::new();
        write_salt(&mut no_salt, USUAL_SALT, None);
        (!sealed.is_empty()).then(|| {
            write_set(self.version, to.version, |out| {
                for (key, sealed) in self.keys.iter().zip(&sealed) {
                    // KDCs of some versions read no key without a salt.
                    write_key(out, key.salt.unwrap_or(&no_salt), key.kind, sealed);
                }
            })
        })
    }
}

impl<'a> StoredKey<'a> {
    fn read(list: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut key = list.sequence("KrbKey")?;
        let salt = key.optional(Tag::context_constructed(0), "salt")?;
        let mut encrypted = Reader::new(key.expect(Tag::context_constructed(1), "key")?).sequence("key")?;
        let kind =
            Reader::new(encrypted.expect(Tag::context_constructed(0), "keytype")?).integer("keytype")?;
        let sealed = encrypted.expect(Tag::context_constructed(1), "keyvalue")?;
        Ok(Self { salt, kind, sealed: Reader::new(sealed).octets("keyvalue")? })
    }
}

#[cfg(test)]
mod tests {
    use larix_engine::time::SeededRandom;

    use super::*;

    fn master(version: u32, octet: u8) -> MasterKey {
        MasterKey { version, kind: EncryptionType::Aes256Sha1, key: Zeroizing::new(vec![octet; 32]) }
    }

    fn masters(newest: MasterKey) -> MasterKeys {
        MasterKeys { realm: b"EXAMPLE.COM".to_vec(), newest, older: Vec::new() }
    }

    #[test]
    fn sets_are_der_with_a_version() {
        let master = master(1, 7);
        let keys = [(EncryptionType::Aes256Sha1, vec![1; 32]), (EncryptionType::Aes128Sha1, vec![2; 16])];
        for number in [1, 127, 128, 70_000] {
            let set = encode(&master, number, b"EXAMPLE.COMann", &keys, &SeededRandom::new(1));
            assert_eq!(version(&set), Some(number));
            // The outer SEQUENCE has all of it, with a length of one octet behind 0x81.
            assert_eq!((set[0], set[1], usize::from(set[2])), (0x30, 0x81, set.len() - 3));
        }
        for other in [&b""[..], b"x", &[0x30, 0], &[0x30, 5, 0xa0, 3, 2, 1, 1]] {
            assert_eq!(version(other), None);
        }
    }

    #[test]
    fn sets_are_encrypted_anew() {
        let (random, history) = (SeededRandom::new(1), master(2, 8));
        let keys = [(EncryptionType::Aes256Sha1, vec![1; 32]), (EncryptionType::Aes128Sha1, vec![2; 16])];
        let set = encode(&master(1, 7), 5, b"EXAMPLE.COMann", &keys, &random);
        let parsed = KeySet::parse(&set).unwrap();
        assert_eq!((parsed.version, parsed.master_version), (5, Some(1)));
        let anew = parsed.resealed(&masters(master(1, 7)), &history, &random).unwrap();
        let again = KeySet::parse(&anew).unwrap();
        assert_eq!((again.version, again.master_version), (5, Some(2)));
        let (kind, key) = again.first(&masters(master(2, 8))).unwrap();
        assert_eq!((kind, key.as_slice()), (EncryptionType::Aes256Sha1, &[1; 32][..]));
        assert_eq!(again.keys[1].salt, parsed.keys[1].salt);
        assert_eq!(unsealed(&history, again.keys[1].sealed).unwrap().as_slice(), [2; 16]);
        // With another key nothing opens.
        assert!(parsed.resealed(&masters(master(1, 9)), &history, &random).is_none());
        assert!(again.first(&masters(master(1, 7))).is_none());
        // A key without a salt gets one, and a set without keys has no past.
        let bare = StoredKey { salt: None, ..parsed.keys.into_iter().next().unwrap() };
        let bare = KeySet { keys: vec![bare], version: 5, master_version: None };
        let anew = bare.resealed(&masters(master(1, 7)), &history, &random).unwrap();
        assert_eq!(KeySet::parse(&anew).unwrap().keys[0].salt.unwrap(), [0x30, 5, 0xa0, 3, 2, 1, 0]);
        let none = KeySet { keys: Vec::new(), version: 5, master_version: None };
        assert!(none.resealed(&masters(master(1, 7)), &history, &random).is_none());
    }
}
