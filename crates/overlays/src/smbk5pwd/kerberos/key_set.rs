//! Keys as MIT's kldap stores them in krbPrincipalKey: a KrbKeySet in DER (the schema of MIT's says what is in it).

use larix_engine::time::RandomSource;
use larix_proto::ber::{DecodeError, Reader, Tag, write};

use super::encryption::EncryptionType;
use super::stash::MasterKey;

/// Of what stands in attribute-major-vno and attribute-minor-vno.
const FORMAT: i64 = 1;
/// A salt that is stored, whatever the name (KRB5_KDB_SALTTYPE_SPECIAL).
const STORED_SALT: i64 = 4;
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
    let mut out = Vec::new();
    write::constructed(&mut out, Tag::SEQUENCE, |out| {
        for (field, number) in [(0, FORMAT), (1, FORMAT), (2, version.into()), (3, master.version.into())] {
            integer(out, field, number);
        }
        write::constructed(out, Tag::context_constructed(4), |out| {
            write::constructed(out, Tag::SEQUENCE, |out| {
                for (kind, key) in keys {
                    let mut confounder = [0; 16];
                    random.fill(&mut confounder);
                    write_key(out, salt, *kind, &sealed(master, confounder, key.as_ref()));
                }
            });
        });
    });
    out
}

/// A key as it is stored: its length, the low octet first, and the key encrypted.
fn sealed(master: &MasterKey, confounder: [u8; 16], key: &[u8]) -> Vec<u8> {
    let length = u16::try_from(key.len()).unwrap_or(u16::MAX);
    let encrypted = master.kind.encrypt(&master.key, USAGE, confounder, key);
    [&length.to_le_bytes()[..], &encrypted].concat()
}

fn write_key(out: &mut Vec<u8>, salt: &[u8], kind: EncryptionType, sealed: &[u8]) {
    write::constructed(out, Tag::SEQUENCE, |out| {
        for (field, number, octets) in [(0, STORED_SALT, salt), (1, kind.number().into(), sealed)] {
            write::constructed(out, Tag::context_constructed(field), |out| {
                write::constructed(out, Tag::SEQUENCE, |out| {
                    integer(out, 0, number);
                    write::constructed(out, Tag::context_constructed(1), |out| {
                        write::octets(out, Tag::OCTET_STRING, octets);
                    });
                });
            });
        }
    });
}

fn integer(out: &mut Vec<u8>, field: u8, number: i64) {
    write::constructed(out, Tag::context_constructed(field), |out| write::integer(out, Tag::INTEGER, number));
}

/// The version of a set of keys; `None`: it is none.
pub(in super::super) fn version(stored: &[u8]) -> Option<u32> {
    let read = || -> Result<u32, DecodeError> {
        let mut set = Reader::new(stored).sequence("KrbKeySet")?;
        set.expect(Tag::context_constructed(0), "attribute-major-vno")?;
        set.expect(Tag::context_constructed(1), "attribute-minor-vno")?;
        Reader::new(set.expect(Tag::context_constructed(2), "kvno")?).unsigned("kvno")
    };
    read().ok()
}

#[cfg(test)]
mod tests {
    use larix_engine::time::SeededRandom;
    use zeroize::Zeroizing;

    use super::*;

    #[test]
    fn sets_are_der_with_a_version() {
        let master = MasterKey {
            realm: b"EXAMPLE.COM".to_vec(),
            version: 1,
            kind: EncryptionType::Aes256Sha1,
            key: Zeroizing::new(vec![7; 32]),
        };
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
}
