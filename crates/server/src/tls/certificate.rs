//! What the server needs to know of an X.509 certificate (RFC 5280) beside what verifying it takes: names, dates, how it
//! was signed. Everything here came from outside: nothing is trusted but lengths that were checked.

use std::fmt::Write as _;

use larix_engine::time::{CivilTime, Timestamp};
use larix_proto::dn::write_escaped;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const NUMERIC_STRING: u8 = 0x12;
const PRINTABLE_STRING: u8 = 0x13;
const TELETEX_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VISIBLE_STRING: u8 = 0x1a;
const UNIVERSAL_STRING: u8 = 0x1c;
const BMP_STRING: u8 = 0x1e;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// `[0] EXPLICIT`: the version.
const VERSION: u8 = 0xa0;

/// Names of the attribute types that certificates carry, as the schema knows them; others stay numbers.
const ATTRIBUTE_NAMES: &[(&str, &str)] = &[
    ("2.5.4.3", "cn"),
    ("2.5.4.4", "sn"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "c"),
    ("2.5.4.7", "l"),
    ("2.5.4.8", "st"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "o"),
    ("2.5.4.11", "ou"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "givenName"),
    ("2.5.4.43", "initials"),
    ("0.9.2342.19200300.100.1.1", "uid"),
    ("0.9.2342.19200300.100.1.3", "mail"),
    ("0.9.2342.19200300.100.1.25", "dc"),
    ("1.2.840.113549.1.9.1", "email"),
];

/// A certificate's fields, borrowed from its DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Certificate<'a> {
    /// Issuer and subject as DER, tag included.
    pub(super) issuer: &'a [u8],
    pub(super) subject: &'a [u8],
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
    /// It has no extensions, and webpki does not take it.
    pub(super) is_version_1: bool,
    /// The signature's algorithm: its OID and parameters.
    signature: &'a [u8],
}

/// A hash by which a certificate was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignatureHash {
    Sha256,
    Sha384,
    Sha512,
}

impl<'a> Certificate<'a> {
    /// `None`: not a certificate.
    pub(super) fn parse(der: &'a [u8]) -> Option<Self> {
        let mut outer = Reader(Reader(der).expect(SEQUENCE)?);
        let mut fields = Reader(outer.expect(SEQUENCE)?);
        let signature = outer.expect(SEQUENCE)?;
        let is_version_1 = fields.peek() != Some(VERSION);
        if !is_version_1 {
            fields.expect(VERSION)?;
        }
        fields.expect(INTEGER)?;
        fields.expect(SEQUENCE)?;
        let issuer = fields.whole(SEQUENCE)?;
        let mut validity = Reader(fields.expect(SEQUENCE)?);
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let subject = fields.whole(SEQUENCE)?;
        Some(Self { issuer, subject, not_before, not_after, is_version_1, signature })
    }

    /// Whether it was issued by itself: a root.
    pub(super) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// The hash that `tls-server-end-point` asks for (RFC 5929 section 4.1): the signature's own, SHA-256 in the place of
    /// older ones, none where the signature has no single one (Ed25519).
    pub(super) fn signature_hash(&self) -> Option<SignatureHash> {
        let mut fields = Reader(self.signature);
        match oid_text(fields.expect(OBJECT_IDENTIFIER)?)?.as_str() {
            "1.2.840.113549.1.1.4"
            | "1.2.840.113549.1.1.5"
            | "1.2.840.113549.1.1.11"
            | "1.2.840.10045.4.1"
            | "1.2.840.10045.4.3.2" => Some(SignatureHash::Sha256),
            "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Some(SignatureHash::Sha384),
            "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Some(SignatureHash::Sha512),
            "1.2.840.113549.1.1.10" => pss_hash(fields),
            _ => None,
        }
    }
}

/// What a list of revoked certificates says of itself, borrowed from its DER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RevocationList<'a> {
    /// As DER, tag included.
    pub(super) issuer: &'a [u8],
    /// By when there is a newer one. Lists need not say so.
    pub(super) next_update: Option<Timestamp>,
}

impl<'a> RevocationList<'a> {
    /// `None`: not such a list (RFC 5280 section 5.1).
    pub(super) fn parse(der: &'a [u8]) -> Option<Self> {
        let mut outer = Reader(Reader(der).expect(SEQUENCE)?);
        let mut fields = Reader(outer.expect(SEQUENCE)?);
        if fields.peek() == Some(INTEGER) {
            fields.expect(INTEGER)?;
        }
        fields.expect(SEQUENCE)?;
        let issuer = fields.whole(SEQUENCE)?;
        fields.time()?;
        let next_update = match fields.peek() {
            Some(UTC_TIME | GENERALIZED_TIME) => Some(fields.time()?),
            _ => None,
        };
        Some(Self { issuer, next_update })
    }
}

/// The hash of RSASSA-PSS parameters (RFC 4055 section 3.1): SHA-1, and so SHA-256 here, when they name none.
fn pss_hash(mut fields: Reader<'_>) -> Option<SignatureHash> {
    const HASH_ALGORITHM: u8 = 0xa0;
    let mut parameters = Reader(fields.expect(SEQUENCE)?);
    if parameters.peek() != Some(HASH_ALGORITHM) {
        return Some(SignatureHash::Sha256);
    }
    let mut algorithm = Reader(Reader(parameters.expect(HASH_ALGORITHM)?).expect(SEQUENCE)?);
    match oid_text(algorithm.expect(OBJECT_IDENTIFIER)?)?.as_str() {
        "1.3.14.3.2.26" | "2.16.840.1.101.3.4.2.1" => Some(SignatureHash::Sha256),
        "2.16.840.1.101.3.4.2.2" => Some(SignatureHash::Sha384),
        "2.16.840.1.101.3.4.2.3" => Some(SignatureHash::Sha512),
        _ => None,
    }
}

/// An X.501 name in DER as an LDAP DN (RFC 4514): the most specific RDN first. `None`: not a name.
pub(super) fn name_to_dn(der: &[u8]) -> Option<String> {
    let mut rdns = Vec::new();
    let mut sequence = Reader(Reader(der).expect(SEQUENCE)?);
    while !sequence.is_empty() {
        let mut set = Reader(sequence.expect(SET)?);
        let mut rdn = String::new();
        while !set.is_empty() {
            let mut pair = Reader(set.expect(SEQUENCE)?);
            let oid = oid_text(pair.expect(OBJECT_IDENTIFIER)?)?;
            let name = ATTRIBUTE_NAMES.iter().find(|(number, _)| *number == oid).map(|(_, name)| *name);
            if !rdn.is_empty() {
                rdn.push('+');
            }
            rdn.push_str(name.unwrap_or(&oid));
            rdn.push('=');
            write_value(&mut rdn, pair.any()?)?;
        }
        rdns.push(rdn);
    }
    rdns.reverse();
    Some(rdns.join(","))
}

/// A value as text, if its type is one of text; as `#` and its DER otherwise.
fn write_value(out: &mut String, value: Element<'_>) -> Option<()> {
    let text = match value.tag {
        UTF8_STRING | PRINTABLE_STRING | NUMERIC_STRING | IA5_STRING | VISIBLE_STRING => {
            Some(std::str::from_utf8(value.content).ok()?.to_owned())
        }
        // What certificates call Teletex is Latin-1 in practice.
        TELETEX_STRING => Some(value.content.iter().copied().map(char::from).collect()),
        BMP_STRING => {
            let units = value.content.as_chunks::<2>();
            let text = units.0.iter().map(|unit| char::from_u32(u16::from_be_bytes(*unit).into()));
            Some(text.collect::<Option<String>>().filter(|_| units.1.is_empty())?)
        }
        UNIVERSAL_STRING => {
            let units = value.content.as_chunks::<4>();
            let text = units.0.iter().map(|unit| char::from_u32(u32::from_be_bytes(*unit)));
            Some(text.collect::<Option<String>>().filter(|_| units.1.is_empty())?)
        }
        BIT_STRING => Some(bits(value.content)?),
        _ => None,
    };
    match text {
        Some(text) => write_escaped(out, text.as_bytes()).ok(),
        None => {
            out.push('#');
            value.whole.iter().try_for_each(|byte| write!(out, "{byte:02x}")).ok()
        }
    }
}

/// The content of a BIT STRING, whose first octet says how many bits of the last one mean nothing, as the syntax Bit String has it
/// (RFC 4517 section 3.3.2).
fn bits(content: &[u8]) -> Option<String> {
    let (&unused, octets) = content.split_first()?;
    let count = (octets.len() * 8).checked_sub(usize::from(unused)).filter(|_| unused < 8)?;
    let all = octets.iter().flat_map(|octet| (0..8).rev().map(move |bit| octet >> bit & 1));
    let digits: String = all.take(count).map(|bit| if bit == 1 { '1' } else { '0' }).collect();
    Some(format!("'{digits}'B"))
}

/// The dotted form of an object identifier's content.
fn oid_text(content: &[u8]) -> Option<String> {
    let mut text = String::new();
    let mut arc: u64 = 0;
    for byte in content {
        arc = arc.checked_mul(128)?.checked_add(u64::from(byte & 0x7f))?;
        if byte & 0x80 != 0 {
            continue;
        }
        if text.is_empty() {
            let first = (arc / 40).min(2);
            write!(text, "{first}.{}", arc - first * 40).ok()?;
        } else {
            write!(text, ".{arc}").ok()?;
        }
        arc = 0;
    }
    (!text.is_empty() && content.last()? & 0x80 == 0).then_some(text)
}

#[derive(Clone, Copy, Debug)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
}

/// DER, element by element.
#[derive(Clone, Copy, Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn any(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        let whole = self.0.get(..self.0.len() - rest.len())?;
        self.0 = rest;
        Some(Element { tag, content, whole })
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.any().filter(|element| element.tag == tag).map(|element| element.content)
    }

    fn whole(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.any().filter(|element| element.tag == tag).map(|element| element.whole)
    }

    /// UTCTime or GeneralizedTime, as RFC 5280 section 4.1.2.5 restricts them.
    fn time(&mut self) -> Option<Timestamp> {
        let element = self.any()?;
        let text = std::str::from_utf8(element.content).ok().filter(|text| text.is_ascii())?;
        let (year, rest) = match element.tag {
            UTC_TIME => {
                let year: i64 = text.get(..2)?.parse().ok()?;
                (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
            }
            GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
            _ => return None,
        };
        let two = |at: usize| rest.get(at..at + 2)?.parse::<u32>().ok();
        if rest.len() != 11 || !rest.ends_with('Z') {
            return None;
        }
        Timestamp::from_civil(CivilTime {
            year,
            month: two(0)?,
            day: two(2)?,
            hour: two(4)?,
            minute: two(6)?,
            second: two(8)?,
            micros: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag, 0x81, u8::try_from(content.len()).unwrap()];
        out.extend_from_slice(content);
        out
    }

    fn pair(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        element(SEQUENCE, &[element(OBJECT_IDENTIFIER, oid), element(tag, value)].concat())
    }

    #[test]
    fn names_become_dns() {
        let (cn, o, c, dc) =
            (&[0x55, 4, 3], &[0x55, 4, 10], &[0x55, 4, 6], b"\x09\x92\x26\x89\x93\xf2\x2c\x64\x01\x19");
        let rdn = |pairs: &[Vec<u8>]| element(SET, &pairs.concat());
        for (name, expected) in [
            (vec![], ""),
            (
                vec![
                    rdn(&[pair(c, PRINTABLE_STRING, b"DE")]),
                    rdn(&[pair(o, UTF8_STRING, "Müller, Söhne".as_bytes())]),
                    rdn(&[pair(cn, UTF8_STRING, b"ann")]),
                ],
                "cn=ann,o=Müller\\2C Söhne,c=DE",
            ),
            (
                vec![rdn(&[pair(dc, IA5_STRING, b"example")]), rdn(&[pair(cn, TELETEX_STRING, b"\xe9")])],
                "cn=é,dc=example",
            ),
            (vec![rdn(&[pair(cn, UTF8_STRING, b"a"), pair(o, BMP_STRING, b"\0b")])], "cn=a+o=b"),
            (vec![rdn(&[pair(cn, INTEGER, b"\x07")])], "cn=#02810107"),
            (vec![rdn(&[pair(&[0x2a, 3, 4], UTF8_STRING, b"x")])], "1.2.3.4=x"),
            (vec![rdn(&[pair(cn, UTF8_STRING, b" #a\0")])], "cn=\\20#a\\00"),
            (vec![rdn(&[pair(&[0x55, 4, 45], BIT_STRING, &[4, 0xa5, 0xf0])])], "2.5.4.45='101001011111'B"),
            (vec![rdn(&[pair(&[0x55, 4, 45], BIT_STRING, &[0])])], "2.5.4.45=''B"),
        ] {
            let found = name_to_dn(&element(SEQUENCE, &name.concat()));
            assert_eq!(found.as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for bytes in
            [&b""[..], b"\x30", b"\x30\x05\x31", b"\x30\x84\xff\xff\xff\xff", b"\x31\0", b"\x30\x02\x30\0"]
        {
            assert_eq!(name_to_dn(bytes), None, "{bytes:02x?}");
        }
    }

    #[test]
    fn times_of_certificates_are_read() {
        let time =
            |tag, text: &str| Reader(&element(tag, text.as_bytes())).time().map(Timestamp::generalized);
        for (tag, text, expected) in [
            (UTC_TIME, "261121080000Z", Some("20261121080000Z")),
            (UTC_TIME, "991231235959Z", Some("19991231235959Z")),
            (GENERALIZED_TIME, "20501121080000Z", Some("20501121080000Z")),
            (GENERALIZED_TIME, "20501121080000.5Z", None),
            (UTC_TIME, "2611210800Z", None),
            (INTEGER, "261121080000Z", None),
        ] {
            assert_eq!(time(tag, text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn damaged_certificates_are_read_or_refused() {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject as _;
        let pem = larix_testkit::Authority::new("Root").client("ann").certificate;
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
        let whole = Certificate::parse(&der).unwrap();
        assert_eq!(name_to_dn(whole.subject).as_deref(), Some("cn=ann,o=Larix tests"));
        assert_eq!(whole.signature_hash(), Some(SignatureHash::Sha256));
        assert_eq!(whole.not_before.generalized(), "20200101000000Z");
        let look = |bytes: &[u8]| {
            if let Some(read) = Certificate::parse(bytes) {
                let _ = (name_to_dn(read.subject), name_to_dn(read.issuer), read.signature_hash());
            }
        };
        (0..der.len()).for_each(|length| look(&der[..length]));
        for at in 0..der.len() {
            for value in [0, 1, 0x7f, 0x80, 0x84, 0xff, der[at] ^ 1, der[at] ^ 0x20] {
                let mut damaged = der.clone();
                damaged[at] = value;
                look(&damaged);
            }
        }
    }
}
