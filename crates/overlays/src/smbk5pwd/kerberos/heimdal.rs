//! Principals of Heimdal's KDC (hdb-ldap): krb5KDCEntry, with a `Key` of hdb.asn1 in each value of krb5Key.

use std::sync::Arc;

use larix_engine::Entry;
use larix_engine::overlay::PendingChange;
use larix_engine::overlay::password_keys::{PasswordKey, PasswordKeys};
use larix_engine::time::{RandomSource, Timestamp};
use larix_proto::ber::{DecodeError, Reader, Tag, write};
use larix_schema::{ObjectClassId, Schema};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::super::{Account, Settled};
use super::encryption::EncryptionType;
use super::heimdal_names::{EXPIRATION, FLAGS, KEYS, PRINCIPAL, VALID_END, VERSION};
use super::principal::Principal;
use super::stash::{MasterKey, MasterKeys};
use super::{Secret, keys_of, number};

/// The bit of krb5KDCFlags that asks for another password (require-pwchange of HDBFlags).
const MUST_CHANGE: i64 = 1 << 18;
/// A salt for passwords (hdb-pw-salt).
const PASSWORD_SALT: i64 = 3;
/// The usage of keys that encrypt other keys (HDB_KU_MKEY).
const USAGE: u32 = 0x48_4442;

/// What userPassword has if the principal's key is the password.
const SCHEME: &[u8] = b"{K5KEY}";

/// Keys of Heimdal's principals.
pub(in super::super) struct Heimdal {
    /// krb5KDCEntry.
    pub(in super::super) class: ObjectClassId,
    /// `None`: keys are stored as they are, as the KDC stores them if it has no master key.
    pub(in super::super) masters: Option<MasterKeys>,
    pub(in super::super) kinds: Vec<EncryptionType>,
}

/// Keys stay out of logs.
impl std::fmt::Debug for Heimdal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heimdal").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

impl Heimdal {
    /// What a principal's entry has with a new password: values of attributes, none for those that go. Nothing if it is no principal.
    pub(in super::super) fn settled(
        &self,
        change: &PendingChange<'_>,
        account: &Account<'_>,
        password: &[u8],
    ) -> Settled {
        let Some(principal) = account.values(PRINCIPAL).first().and_then(|name| Principal::parse(name))
        else {
            return Vec::new();
        };
        let master = self.masters.as_ref().map(|masters| &masters.newest);
        let keys = keys_of(change, &self.kinds, &principal.salt, password);
        let keys = keys.iter().map(|(kind, key)| encode(master, *kind, key, &principal.salt, change.random));
        let value = |name| account.values(name).first().and_then(|value| number(value));
        let version = value(VERSION).unwrap_or(0).saturating_add(1);
        let mut settled = vec![(KEYS, keys.collect()), (VERSION, vec![version.to_string().into_bytes()])];
        // How long a password is good for is in the KDC's configuration: nothing says until when this one is.
        let end = account
            .values(EXPIRATION)
            .first()
            .and_then(|end| Timestamp::parse_generalized(std::str::from_utf8(end).ok()?));
        if end.is_some_and(|end| end.seconds() <= change.now.seconds()) {
            settled.push((EXPIRATION, Vec::new()));
        }
        if let Some(flags) = value(FLAGS).filter(|flags| flags & MUST_CHANGE != 0) {
            settled.push((FLAGS, vec![(flags & !MUST_CHANGE).to_string().into_bytes()]));
        }
        settled
    }
}

impl PasswordKeys for Heimdal {
    fn is_meant_by(&self, value: &[u8]) -> bool {
        // As in slapd, what stands behind the scheme does not matter.
        value.get(..SCHEME.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(SCHEME))
    }

    fn key(&self, entry: &Entry, schema: &Schema, now: Timestamp) -> Option<Arc<dyn PasswordKey>> {
        let principal = Principal::parse(values_of(entry, schema, PRINCIPAL).first()?)?;
        let goes_on = |end: &Vec<u8>| {
            let end = std::str::from_utf8(end).ok().and_then(Timestamp::parse_generalized);
            end.is_some_and(|end| end.seconds() >= now.seconds())
        };
        let is_valid = values_of(entry, schema, VALID_END).first().is_none_or(goes_on);
        // All are of one password.
        let keys = values_of(entry, schema, KEYS);
        let key = keys.iter().find_map(|value| self.opened(&StoredKey::parse(value)?, &principal))?;
        Some(Arc::new(DerivedKey { is_valid, ..key }))
    }
}

fn values_of<'e>(entry: &'e Entry, schema: &Schema, name: &str) -> &'e [Vec<u8>] {
    match schema.describe(name) {
        Ok(description) => entry.values(description.attribute),
        Err(_) => &[],
    }
}

impl Heimdal {
    /// A key as it is compared; `None`: of another type, of another salt than passwords have, or encrypted in another master key.
    fn opened(&self, stored: &StoredKey<'_>, principal: &Principal) -> Option<DerivedKey> {
        let kind = EncryptionType::numbered(u16::try_from(stored.kind).ok()?)?;
        let key = match (stored.master_version, &self.masters) {
            (None, _) => Zeroizing::new(stored.key.to_vec()),
            (version, Some(masters)) => masters
                .of_version(version)
                .find_map(|master| master.kind.decrypt(&master.key, USAGE, stored.key))?,
            (Some(_), None) => return None,
        };
        let salt = match stored.salt {
            None => principal.salt.clone(),
            Some((PASSWORD_SALT, salt)) => salt.to_vec(),
            Some(_) => return None,
        };
        (key.len() == kind.key_length()).then_some(DerivedKey { kind, salt, key, is_valid: true })
    }
}

/// A key of a principal's password.
struct DerivedKey {
    kind: EncryptionType,
    salt: Vec<u8>,
    key: Secret,
    /// Whether the principal has not expired. The time of an answer must not tell.
    is_valid: bool,
}

impl PasswordKey for DerivedKey {
    fn is_of(&self, password: &[u8]) -> bool {
        let derived = self.kind.key_of(password, &self.salt, self.kind.iterations());
        bool::from(derived.as_slice().ct_eq(self.key.as_slice())) && self.is_valid
    }

    fn like(&self) -> Secret {
        let rounds = self.kind.iterations();
        // A key of 32 octets is two of SHA-1. The salt has 16 octets, and the hash as many as its scheme makes, all of them zero.
        let (scheme, rounds, digits) = match self.kind {
            EncryptionType::Aes128Sha1 => ("{PBKDF2-SHA1}", rounds, 27),
            EncryptionType::Aes256Sha1 => ("{PBKDF2-SHA1}", rounds * 2, 27),
            EncryptionType::Aes128Sha256 => ("{PBKDF2-SHA256}", rounds, 43),
            EncryptionType::Aes256Sha384 => ("{PBKDF2-SHA512}", rounds, 86),
        };
        let zeros = |digits| "A".repeat(digits);
        Zeroizing::new(format!("{scheme}{rounds}${}${}", zeros(22), zeros(digits)).into_bytes())
    }
}

/// A `Key`, taken apart.
struct StoredKey<'a> {
    /// `None`: the key is stored as it is.
    master_version: Option<u32>,
    kind: i64,
    key: &'a [u8],
    /// Its type, and the salt.
    salt: Option<(i64, &'a [u8])>,
}

impl<'a> StoredKey<'a> {
    fn parse(stored: &'a [u8]) -> Option<Self> {
        let read = || -> Result<Self, DecodeError> {
            let mut whole = Reader::new(stored).sequence("Key")?;
            let master_version = whole.optional(Tag::context_constructed(0), "mkvno")?;
            let master_version = master_version.map(|own| Reader::new(own).unsigned("mkvno")).transpose()?;
            let (kind, key) = read_typed(whole.expect(Tag::context_constructed(1), "key")?)?;
            let salt = whole.optional(Tag::context_constructed(2), "salt")?.map(read_typed).transpose()?;
            Ok(Self { master_version, kind, key, salt })
        };
        read().ok()
    }
}

/// The reverse of [`typed`].
fn read_typed(stored: &[u8]) -> Result<(i64, &[u8]), DecodeError> {
    let mut pair = Reader::new(stored).sequence("EncryptionKey or Salt")?;
    let kind = Reader::new(pair.expect(Tag::context_constructed(0), "type")?).integer("type")?;
    let octets = Reader::new(pair.expect(Tag::context_constructed(1), "value")?).octets("value")?;
    Ok((kind, octets))
}

/// A `Key`.
fn encode(
    master: Option<&MasterKey>,
    kind: EncryptionType,
    key: &[u8],
    salt: &[u8],
    random: &dyn RandomSource,
) -> Vec<u8> {
    let mut out = Vec::new();
    write::constructed(&mut out, Tag::SEQUENCE, |out| {
        if let Some(master) = master {
            integer(out, 0, master.version.into());
        }
        write::constructed(out, Tag::context_constructed(1), |out| match master {
            Some(master) => {
                let mut confounder = [0; 16];
                random.fill(&mut confounder);
                let sealed = master.kind.encrypt(&master.key, USAGE, confounder, key);
                typed(out, kind.number().into(), &sealed);
            }
            None => typed(out, kind.number().into(), key),
        });
        write::constructed(out, Tag::context_constructed(2), |out| typed(out, PASSWORD_SALT, salt));
    });
    out
}

/// An EncryptionKey or a Salt: a type, and octets.
fn typed(out: &mut Vec<u8>, kind: i64, octets: &[u8]) {
    write::constructed(out, Tag::SEQUENCE, |out| {
        integer(out, 0, kind);
        write::constructed(out, Tag::context_constructed(1), |out| {
            write::octets(out, Tag::OCTET_STRING, octets);
        });
    });
}

fn integer(out: &mut Vec<u8>, field: u8, number: i64) {
    write::constructed(out, Tag::context_constructed(field), |out| write::integer(out, Tag::INTEGER, number));
}

#[cfg(test)]
mod tests {
    use larix_engine::password::{Verification, verify};
    use larix_engine::time::SeededRandom;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
        let digits: Vec<u8> = hex.bytes().filter_map(digit).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// What `kstash -e aes256-cts-hmac-sha1-96` of Heimdal 7.8 wrote.
    const MASTER: &str = "0502000000490002000a4c415249582e5445535400014b00014d000000016b09709e0100120020f2f2f43ad7e2870973e625be53\
                          8eaa02a59daafa2ac345e801b29742cb4a0aec0000000100000000";
    /// The value of krb5Key that its kadmin made of `kpw1` for ann@LARIX.TEST.
    const KEY: &str = "3068a003020101a1473045a003020112a13e043c5416ce4b95689db51ac5355ff3ddec4e9b7e50730647aee7f2b0b1c42f1cfb89\
                       04076010dff006638b4d3cde3e6dbf470a90fa457d4f737c4f0cf562a2183016a003020103a10f040d4c415249582e54455354616e6e";

    #[test]
    fn keys_are_as_kadmin_writes_them() {
        let (master, stored) = (MasterKeys::parse(&bytes(MASTER)).ok().unwrap().newest, bytes(KEY));
        let (kind, salt) = (EncryptionType::Aes256Sha1, b"LARIX.TESTann");
        let key = kind.key_of(b"kpw1", salt, kind.iterations());
        let sealed = 20..80;
        assert_eq!(master.kind.decrypt(&master.key, USAGE, &stored[sealed.clone()]).unwrap(), key);
        let own = encode(Some(&master), kind, &key, salt, &SeededRandom::new(1));
        assert_eq!(master.kind.decrypt(&master.key, USAGE, &own[sealed.clone()]).unwrap(), key);
        // All but what is encrypted is the same.
        let without = |value: &[u8]| [&value[..sealed.start], &value[sealed.end..]].concat();
        assert_eq!(without(&own), without(&stored));
        let open = encode(None, kind, &key, salt, &SeededRandom::new(1));
        let (before, behind) = (bytes("3047a12b3029a003020112a1220420"), bytes("a2183016a003020103a10f040d"));
        assert_eq!(open, [&before[..], &key, &behind, salt].concat());
    }

    #[test]
    fn keys_of_kadmin_are_compared_with_passwords() {
        let principal = Principal::parse(b"ann@LARIX.TEST").unwrap();
        let with =
            |masters: Option<MasterKeys>| Heimdal { class: ObjectClassId(0), masters, kinds: Vec::new() };
        let masters = || MasterKeys::parse(&bytes(MASTER)).ok();
        let value = bytes(KEY);
        let opened = |heimdal: &Heimdal, value: &[u8]| heimdal.opened(&StoredKey::parse(value)?, &principal);
        let sealed = opened(&with(masters()), &value).unwrap();
        for (password, expected) in [("kpw1", true), ("kpw2", false), ("", false), ("{K5KEY}", false)] {
            assert_eq!(sealed.is_of(password.as_bytes()), expected, "{password}");
        }
        // Without the master key, with another one, and of a damaged value there is none.
        assert!(opened(&with(None), &value).is_none());
        let mut other = bytes(MASTER);
        *other.iter_mut().rev().nth(8).unwrap() ^= 1;
        assert!(opened(&with(MasterKeys::parse(&other).ok()), &value).is_none());
        assert!(opened(&with(masters()), &value[..value.len() - 1]).is_none());
        // A key that is stored as it is needs none, of any type, and with the salt of the name.
        for kind in ["aes256-sha1", "aes128-sha1", "aes256-sha2", "aes128-sha2"] {
            let kind = EncryptionType::named(kind).unwrap();
            let key = kind.key_of(b"x", &principal.salt, kind.iterations());
            let salted = encode(None, kind, &key, &principal.salt, &SeededRandom::new(1));
            // The element of the salt has 13 octets before it, and the length of all one.
            let mut bare = salted[..salted.len() - 13 - principal.salt.len()].to_vec();
            bare[1] = u8::try_from(bare.len() - 2).unwrap();
            for value in [&salted, &bare] {
                let key = opened(&with(None), value).unwrap();
                assert!(key.is_of(b"x") && !key.is_of(b"y"));
                assert_eq!(verify(&key.like(), b"x"), Verification::Mismatch);
            }
        }
    }
}
