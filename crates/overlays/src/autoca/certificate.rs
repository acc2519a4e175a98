//! X.509 certificates in DER (RFC 5280): how they are written, and what is read of the one of an authority.

use std::net::IpAddr;

use larix_engine::time::Timestamp;
use larix_proto::ber::{DecodeError, Reader, Tag, write};
use larix_proto::dn::Dn;
use larix_schema::Schema;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

const OID: Tag = Tag(0x06);
const BIT_STRING: Tag = Tag(0x03);
const UTF8_STRING: Tag = Tag(0x0c);
const PRINTABLE_STRING: Tag = Tag(0x13);
const IA5_STRING: Tag = Tag(0x16);
const UTC_TIME: Tag = Tag(0x17);
const GENERALIZED_TIME: Tag = Tag(0x18);

/// Extensions (RFC 5280 section 4.2).
const SUBJECT_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x0e];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// id-kp (RFC 5280 section 4.2.1.12), without its last number.
const PURPOSES: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03];
const SERVER_AUTH: u8 = 1;
const CLIENT_AUTH: u8 = 2;
const EMAIL_PROTECTION: u8 = 4;
/// An elliptic curve key on P-256 (RFC 5480 section 2.1.1): the contents of its AlgorithmIdentifier.
const P256_KEY: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];

/// Attribute types whose values are no UTF8String in a name (RFC 4519 section 2.4, RFC 2985 section 5.2.1, RFC 5280 appendix A).
const STRING_TYPES: [(&str, Tag); 3] = [
    ("0.9.2342.19200300.100.1.25", IA5_STRING),
    ("1.2.840.113549.1.9.1", IA5_STRING),
    ("2.5.4.6", PRINTABLE_STRING),
];

/// What a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Authority,
    /// With mail addresses.
    User(Vec<String>),
    Server {
        names: Vec<String>,
        addresses: Vec<IpAddr>,
    },
}

/// What stands in a certificate beside its signature.
#[derive(Debug)]
pub(super) struct Contents<'a> {
    /// A Name in DER.
    pub(super) issuer: &'a [u8],
    pub(super) issuer_key_identifier: Option<&'a [u8]>,
    /// A Name in DER.
    pub(super) subject: &'a [u8],
    /// Positive.
    pub(super) serial: [u8; 16],
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
    /// The point of a P-256 key, uncompressed.
    pub(super) public_key: &'a [u8],
    pub(super) purpose: &'a Purpose,
    /// The contents of the AlgorithmIdentifier of the signature.
    pub(super) signature_algorithm: &'a [u8],
}

impl Contents<'_> {
    /// The TBSCertificate, which is signed.
    pub(super) fn to_be_signed(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write::constructed(&mut out, Tag::SEQUENCE, |out| {
            // Version 3.
            write::constructed(out, Tag::context_constructed(0), |out| write::integer(out, Tag::INTEGER, 2));
            write::octets(out, Tag::INTEGER, &self.serial);
            write::octets(out, Tag::SEQUENCE, self.signature_algorithm);
            out.extend_from_slice(self.issuer);
            write::constructed(out, Tag::SEQUENCE, |out| {
                write_time(out, self.not_before);
                write_time(out, self.not_after);
            });
            out.extend_from_slice(self.subject);
            write::constructed(out, Tag::SEQUENCE, |out| {
                write::octets(out, Tag::SEQUENCE, P256_KEY);
                write_bits(out, 0, self.public_key);
            });
            write::constructed(out, Tag::context_constructed(3), |out| {
                write::constructed(out, Tag::SEQUENCE, |out| self.write_extensions(out));
            });
        });
        out
    }

    fn write_extensions(&self, out: &mut Vec<u8>) {
        let own = key_identifier(self.public_key);
        extension(out, SUBJECT_KEY_IDENTIFIER, false, |out| write::octets(out, Tag::OCTET_STRING, &own));
        if let Some(identifier) = self.issuer_key_identifier {
            extension(out, AUTHORITY_KEY_IDENTIFIER, false, |out| {
                write::constructed(out, Tag::SEQUENCE, |out| {
                    write::octets(out, Tag::context(0), identifier);
                });
            });
        }
        let is_authority = *self.purpose == Purpose::Authority;
        extension(out, BASIC_CONSTRAINTS, is_authority, |out| {
            write::constructed(out, Tag::SEQUENCE, |out| {
                // DER leaves out what is the default.
                if is_authority {
                    write::boolean(out, Tag::BOOLEAN, true);
                }
            });
        });
        // digitalSignature is bit 0, nonRepudiation 1, keyCertSign 5, cRLSign 6.
        let (unused, usage) = match self.purpose {
            Purpose::Authority => (1, 0b1000_0110),
            Purpose::User(_) => (6, 0b1100_0000),
            Purpose::Server { .. } => (7, 0b1000_0000),
        };
        extension(out, KEY_USAGE, true, |out| write_bits(out, unused, &[usage]));
        let purposes: &[u8] = match self.purpose {
            Purpose::Authority => &[],
            Purpose::User(_) => &[CLIENT_AUTH, EMAIL_PROTECTION],
            Purpose::Server { .. } => &[SERVER_AUTH, CLIENT_AUTH],
        };
        if !purposes.is_empty() {
            extension(out, EXTENDED_KEY_USAGE, false, |out| {
                write::constructed(out, Tag::SEQUENCE, |out| {
                    for last in purposes {
                        write::octets(out, OID, &[PURPOSES, &[*last]].concat());
                    }
                });
            });
        }
        let names = self.alternative_names();
        if !names.is_empty() {
            extension(out, SUBJECT_ALT_NAME, false, |out| write::octets(out, Tag::SEQUENCE, &names));
        }
    }

    /// The contents of the GeneralNames.
    fn alternative_names(&self) -> Vec<u8> {
        let mut names = Vec::new();
        match self.purpose {
            Purpose::Authority => {}
            Purpose::User(addresses) => {
                for address in addresses {
                    write::octets(&mut names, Tag::context(1), address.as_bytes());
                }
            }
            Purpose::Server { names: hosts, addresses } => {
                for host in hosts {
                    write::octets(&mut names, Tag::context(2), host.as_bytes());
                }
                for address in addresses {
                    match address {
                        IpAddr::V4(address) => {
                            write::octets(&mut names, Tag::context(7), &address.octets());
                        }
                        IpAddr::V6(address) => {
                            write::octets(&mut names, Tag::context(7), &address.octets());
                        }
                    }
                }
            }
        }
        names
    }
}

/// The certificate of what was signed.
pub(super) fn signed(to_be_signed: &[u8], signature_algorithm: &[u8], signature: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write::constructed(&mut out, Tag::SEQUENCE, |out| {
        out.extend_from_slice(to_be_signed);
        write::octets(out, Tag::SEQUENCE, signature_algorithm);
        write_bits(out, 0, signature);
    });
    out
}

/// RFC 5280 section 4.2.1.2, method (1).
pub(super) fn key_identifier(public_key: &[u8]) -> Vec<u8> {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, public_key).as_ref().to_vec()
}

fn extension(out: &mut Vec<u8>, oid: &[u8], critical: bool, value: impl FnOnce(&mut Vec<u8>)) {
    write::constructed(out, Tag::SEQUENCE, |out| {
        write::octets(out, OID, oid);
        if critical {
            write::boolean(out, Tag::BOOLEAN, true);
        }
        write::constructed(out, Tag::OCTET_STRING, value);
    });
}

fn write_bits(out: &mut Vec<u8>, unused: u8, bits: &[u8]) {
    write::constructed(out, BIT_STRING, |out| {
        out.push(unused);
        out.extend_from_slice(bits);
    });
}

/// Until 2049 a UTCTime (RFC 5280 section 4.1.2.5).
fn write_time(out: &mut Vec<u8>, time: Timestamp) {
    let text = time.generalized();
    match text.strip_prefix("19").or_else(|| text.strip_prefix("20").filter(|rest| *rest < "50")) {
        Some(rest) => write::octets(out, UTC_TIME, rest.as_bytes()),
        None => write::octets(out, GENERALIZED_TIME, text.as_bytes()),
    }
}

/// A DN as a Name in DER (RFC 5280 section 4.1.2.4).
///
/// # Errors
/// Names the part that cannot stand in a certificate.
pub(super) fn name(schema: &Schema, dn: &str) -> Result<Vec<u8>, String> {
    let parsed = Dn::parse(dn).map_err(|_| format!("{dn}: not a DN"))?;
    let mut rdns = Vec::new();
    for rdn in parsed.rdns().iter().rev() {
        let mut avas = Vec::new();
        for ava in rdn.avas() {
            let unknown = || format!("{dn}: the attribute type {} has no OID", ava.attribute);
            let oid = &schema.attribute_type(ava.attribute).ok_or_else(unknown)?.oid;
            let is_text = !ava.hex && std::str::from_utf8(&ava.value).is_ok();
            if !is_text {
                return Err(format!("{dn}: the value of {} is no text", ava.attribute));
            }
            let own = STRING_TYPES.iter().find(|(known, _)| *known == &**oid && ava.value.is_ascii());
            let tag = own.map_or(UTF8_STRING, |(_, tag)| *tag);
            let mut bytes = Vec::new();
            write::constructed(&mut bytes, Tag::SEQUENCE, |out| {
                write::octets(out, OID, &encoded_oid(oid).unwrap_or_default());
                write::octets(out, tag, &ava.value);
            });
            if encoded_oid(oid).is_none() {
                return Err(unknown());
            }
            avas.push(bytes);
        }
        // DER orders the elements of a SET.
        avas.sort();
        rdns.push(avas.concat());
    }
    let mut out = Vec::new();
    write::constructed(&mut out, Tag::SEQUENCE, |out| {
        rdns.iter().for_each(|avas| write::octets(out, Tag::SET, avas));
    });
    Ok(out)
}

/// The contents of an OBJECT IDENTIFIER; `None` for what is none.
fn encoded_oid(text: &str) -> Option<Vec<u8>> {
    let mut numbers = text.split('.').map(|number| number.parse::<u64>().ok());
    let (first, second) = (numbers.next()??, numbers.next()??);
    if first > 2 || (first < 2 && second > 39) {
        return None;
    }
    let mut out = Vec::new();
    for number in std::iter::once(Some(second.checked_add(first * 40)?)).chain(numbers) {
        let number = number?;
        let groups = (64 - number.leading_zeros()).div_ceil(7).max(1);
        for group in (0..groups).rev() {
            let more = if group > 0 { 0x80 } else { 0 };
            out.push(more | u8::try_from((number >> (7 * group)) & 0x7f).ok()?);
        }
    }
    Some(out)
}

/// What is read of the certificate of an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadCertificate {
    /// A Name in DER.
    pub(super) subject: Vec<u8>,
    pub(super) not_after: Timestamp,
    /// The bits of its key.
    pub(super) public_key: Vec<u8>,
    pub(super) key_identifier: Option<Vec<u8>>,
}

impl ReadCertificate {
    /// Reads a certificate; `None` for what is none.
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        Self::decode(der).ok().flatten()
    }

    fn decode(der: &[u8]) -> Result<Option<Self>, DecodeError> {
        let mut certificate = Reader::new(der).sequence("certificate")?;
        let mut contents = certificate.sequence("tbsCertificate")?;
        contents.optional(Tag::context_constructed(0), "version")?;
        contents.expect(Tag::INTEGER, "serialNumber")?;
        contents.raw("signature")?;
        contents.raw("issuer")?;
        let mut validity = contents.sequence("validity")?;
        validity.element("notBefore")?;
        let not_after = time(validity.element("notAfter")?);
        let subject = contents.raw("subject")?.to_vec();
        let mut key = contents.sequence("subjectPublicKeyInfo")?;
        key.raw("algorithm")?;
        let public_key = key.expect(BIT_STRING, "subjectPublicKey")?.get(1..).unwrap_or_default().to_vec();
        contents.optional(Tag(0x81), "issuerUniqueID")?;
        contents.optional(Tag(0x82), "subjectUniqueID")?;
        let mut key_identifier = None;
        if let Some(extensions) = contents.optional(Tag::context_constructed(3), "extensions")? {
            let mut extensions = Reader::new(extensions).sequence("extensions")?;
            while !extensions.is_empty() {
                let mut extension = extensions.sequence("extension")?;
                let oid = extension.expect(OID, "extnID")?;
                extension.optional(Tag::BOOLEAN, "critical")?;
                let value = extension.octets("extnValue")?;
                if oid == SUBJECT_KEY_IDENTIFIER {
                    key_identifier = Some(Reader::new(value).octets("keyIdentifier")?.to_vec());
                }
            }
        }
        Ok(not_after.map(|not_after| Self { subject, not_after, public_key, key_identifier }))
    }
}

fn time((tag, contents): (Tag, &[u8])) -> Option<Timestamp> {
    let text = std::str::from_utf8(contents).ok()?;
    match tag {
        UTC_TIME => {
            let century = if *text < *"50" { "20" } else { "19" };
            Timestamp::parse_generalized(&format!("{century}{text}"))
        }
        GENERALIZED_TIME => Timestamp::parse_generalized(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

    use super::*;

    #[test]
    fn oids_are_encoded() {
        for (text, expected) in [
            ("2.5.4.3", Some(&[0x55, 4, 3][..])),
            ("0.9.2342.19200300.100.1.25", Some(&[9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 100, 1, 25])),
            ("2.999", Some(&[0x88, 0x37])),
            ("1.40", None),
            ("3.1", None),
            ("cn", None),
        ] {
            assert_eq!(encoded_oid(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn times_are_written_as_the_standard_has_them() {
        for (time, tag, text) in [
            ("20491231235959Z", 0x17, "491231235959Z"),
            ("20500101000000Z", 0x18, "20500101000000Z"),
            ("19991231235959Z", 0x17, "991231235959Z"),
        ] {
            let stamp = Timestamp::parse_generalized(time).unwrap();
            let mut out = Vec::new();
            write_time(&mut out, stamp);
            assert_eq!(out, [&[tag, u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat());
            let mut reader = Reader::new(&out);
            assert_eq!(super::time(reader.element("time").unwrap()), Some(stamp));
        }
    }
}
