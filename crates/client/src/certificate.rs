//! What a server's certificate says of itself, as far as it is looked at here (RFC 5280 section 4.1).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use larix_proto::DecodeError;
use larix_proto::ber::{Reader, Tag};
use larix_proto::calendar::days_from_civil;
use rustls::pki_types::ServerName;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x0e];
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];
/// keyCertSign in the first octet of a key usage.
const KEY_CERT_SIGN: u8 = 0x04;
/// digitalSignature there.
const DIGITAL_SIGNATURE: u8 = 0x80;
const BIT_STRING: Tag = Tag(0x03);
const OBJECT_IDENTIFIER: Tag = Tag(0x06);
const UTC_TIME: Tag = Tag(0x17);
const GENERALIZED_TIME: Tag = Tag(0x18);
/// How many of a certificate's names are kept, for messages.
const NAMES_MAX: usize = 10;

/// The OID of an extension, and its value.
pub(crate) type Extension<'a> = (&'a [u8], &'a [u8]);

/// The parts of a certificate that judgements and messages need.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// The last common name of the subject.
    pub(crate) common_name: Option<String>,
    pub(crate) has_alternatives: bool,
    /// Host names and addresses among the alternative names: ten of them at most.
    pub(crate) alternatives: Vec<String>,
    /// `CN=Root,O=Example`, in the order of RFC 4514.
    pub(crate) issuer: String,
    pub(crate) is_self_issued: bool,
    /// Its extended key usage leaves out servers.
    pub(crate) is_for_others: bool,
}

impl Certificate {
    /// # Errors
    /// These bytes are no certificate.
    pub(crate) fn read(der: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(der)?;
        let mut found = Self {
            common_name: name(fields.subject)?.1,
            issuer: name(fields.issuer)?.0,
            is_self_issued: fields.is_self_issued(),
            ..Self::default()
        };
        for (kind, value) in fields.extensions {
            found.add_extension(kind, value)?;
        }
        Ok(found)
    }

    fn add_extension(&mut self, kind: &[u8], value: &[u8]) -> Result<(), DecodeError> {
        match kind {
            ALTERNATIVE_NAMES => {
                self.has_alternatives = true;
                let mut names = Reader::new(value).sequence("SubjectAltName")?;
                while !names.is_empty() {
                    let (tag, name) = names.element("GeneralName")?;
                    if self.alternatives.len() < NAMES_MAX {
                        self.alternatives.extend(alternative(tag, name));
                    }
                }
            }
            EXTENDED_KEY_USAGE => self.is_for_others = leaves_out(value, SERVER_AUTH)?,
            _ => {}
        }
        Ok(())
    }

    /// Whether the common name, with `*.` for one label perhaps, is that of the server.
    pub(crate) fn is_called(&self, server: &ServerName<'_>) -> bool {
        self.common_name.as_deref().is_some_and(|name| fits(name, server))
    }
}

/// Whether what the key of a certificate signs may be a certificate (RFC 5280 section 6.1.4): it is an authority's by its basic
/// constraints, and its key is for that by its key usage, if it has one. Without basic constraints, as OpenSSL has it: its key usage
/// says so, or it is a root of version 1, which has no extensions.
pub(crate) fn may_sign(der: &[u8]) -> bool {
    Fields::read(der).and_then(|fields| fields.may_sign()).unwrap_or(false)
}

/// Those of the issuer and the subject, in DER.
pub(crate) fn names(der: &[u8]) -> Option<(&[u8], &[u8])> {
    Fields::read(der).ok().map(|fields| (fields.issuer, fields.subject))
}

/// The SubjectPublicKeyInfo, with its tag.
///
/// # Errors
/// These bytes are no certificate.
pub(crate) fn public_key(der: &[u8]) -> Result<&[u8], DecodeError> {
    let mut certificate = Reader::new(der).sequence("Certificate")?;
    let mut body = certificate.sequence("tbsCertificate")?;
    body.optional(Tag::context_constructed(0), "version")?;
    for field in ["serialNumber", "signature", "issuer", "validity", "subject"] {
        body.element(field)?;
    }
    body.raw("subjectPublicKeyInfo")
}

/// The algorithm of a SubjectPublicKeyInfo, without its tag, and the key.
///
/// # Errors
/// These bytes are none.
pub(crate) fn key_parts(key: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let mut parts = Reader::new(key).sequence("subjectPublicKeyInfo")?;
    let algorithm = parts.expect(Tag::SEQUENCE, "algorithm")?;
    let bits = parts.expect(BIT_STRING, "subjectPublicKey")?;
    // The first octet says how many bits of the last one mean nothing: none do.
    Ok((algorithm, bits.split_first().map(|(_, bits)| bits).unwrap_or_default()))
}

/// The identifiers of the key that signed a certificate and of its own (RFC 5280 sections 4.2.1.1 and 4.2.1.2), if it has them.
pub(crate) fn key_identifiers(der: &[u8]) -> (Option<&[u8]>, Option<&[u8]>) {
    let Ok(fields) = Fields::read(der) else { return (None, None) };
    let own = fields.extension(SUBJECT_KEY_IDENTIFIER);
    (
        signing_key(&fields.extensions),
        own.and_then(|value| Reader::new(value).octets("SubjectKeyIdentifier").ok()),
    )
}

/// The identifier of the key that signed what has these extensions.
pub(crate) fn signing_key<'a>(extensions: &[Extension<'a>]) -> Option<&'a [u8]> {
    let (_, value) = extensions.iter().copied().find(|(kind, _)| *kind == AUTHORITY_KEY_IDENTIFIER)?;
    let mut identifier = Reader::new(value).sequence("AuthorityKeyIdentifier").ok()?;
    identifier.optional(Tag::context(0), "keyIdentifier").ok()?
}

/// The value of a field of extensions.
///
/// # Errors
/// It is none.
pub(crate) fn extensions(value: &[u8]) -> Result<Vec<Extension<'_>>, DecodeError> {
    let (mut found, mut extensions) = (Vec::new(), Reader::new(value).sequence("extensions")?);
    while !extensions.is_empty() {
        let mut extension = extensions.sequence("extension")?;
        let kind = extension.expect(OBJECT_IDENTIFIER, "extnID")?;
        if extension.peek() == Some(Tag::BOOLEAN) {
            extension.element("critical")?;
        }
        found.push((kind, extension.octets("extnValue")?));
    }
    Ok(found)
}

/// Whether the key usage or the extended one, where there are such, leaves out clients, which sign the handshake.
pub(crate) fn is_for_no_clients(der: &[u8]) -> bool {
    let Ok(fields) = Fields::read(der) else { return true };
    let Ok(usage) = fields.key_usage() else { return true };
    if usage.is_some_and(|bits| bits & DIGITAL_SIGNATURE == 0) {
        return true;
    }
    let Some(value) = fields.extension(EXTENDED_KEY_USAGE) else { return false };
    leaves_out(value, CLIENT_AUTH).unwrap_or(true)
}

/// Whether an extended key usage leaves out a purpose.
fn leaves_out(value: &[u8], purpose: &[u8]) -> Result<bool, DecodeError> {
    let mut leaves_out = true;
    let mut usages = Reader::new(value).sequence("ExtKeyUsageSyntax")?;
    while !usages.is_empty() {
        let usage = usages.expect(OBJECT_IDENTIFIER, "KeyPurposeId")?;
        leaves_out &= usage != purpose && usage != ANY_USAGE;
    }
    Ok(leaves_out)
}

/// The first and the last second at which a certificate is valid, counted from 1970. `None`: that cannot be read.
pub(crate) fn validity(der: &[u8]) -> Option<RangeInclusive<u64>> {
    let fields = Fields::read(der).ok()?;
    let mut dates = Reader::new(fields.validity).sequence("validity").ok()?;
    let first = seconds(dates.element("notBefore").ok()?)?;
    let last = seconds(dates.element("notAfter").ok()?)?;
    Some(first..=last)
}

/// A time as certificates have it (RFC 5280 section 4.1.2.5), in seconds since 1970; what was before is 0.
pub(crate) fn seconds((tag, text): (Tag, &[u8])) -> Option<u64> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |at: usize, length: usize| -> Option<u64> {
        let digits = digits.get(at..at + length)?;
        digits
            .iter()
            .try_fold(0_u64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
    };
    let (year, at) = if tag == UTC_TIME && digits.len() == 12 {
        let year = number(0, 2)?;
        (if year < 50 { 2000 + year } else { 1900 + year }, 2)
    } else if tag == GENERALIZED_TIME && digits.len() == 14 {
        (number(0, 4)?, 4)
    } else {
        return None;
    };
    let (month, day) = (number(at, 2)?, number(at + 2, 2)?);
    let (hour, minute, second) = (number(at + 4, 2)?, number(at + 6, 2)?, number(at + 8, 2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days =
        days_from_civil(i64::try_from(year).ok()?, u32::try_from(month).ok()?, u32::try_from(day).ok()?);
    Some(u64::try_from(days).unwrap_or(0) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// The fields that are looked at, in DER.
struct Fields<'a> {
    is_version_1: bool,
    issuer: &'a [u8],
    validity: &'a [u8],
    subject: &'a [u8],
    extensions: Vec<Extension<'a>>,
}

impl<'a> Fields<'a> {
    fn read(der: &'a [u8]) -> Result<Self, DecodeError> {
        let mut certificate = Reader::new(der).sequence("Certificate")?;
        let mut body = certificate.sequence("tbsCertificate")?;
        let version = body.optional(Tag::context_constructed(0), "version")?;
        for field in ["serialNumber", "signature"] {
            body.element(field)?;
        }
        let issuer = body.raw("issuer")?;
        let validity = body.raw("validity")?;
        let subject = body.raw("subject")?;
        let is_version_1 = version.is_none();
        let mut found = Self { is_version_1, issuer, validity, subject, extensions: Vec::new() };
        body.element("subjectPublicKeyInfo")?;
        body.optional(Tag::context(1), "issuerUniqueID")?;
        body.optional(Tag::context(2), "subjectUniqueID")?;
        if let Some(value) = body.optional(Tag::context_constructed(3), "extensions")? {
            found.extensions = extensions(value)?;
        }
        Ok(found)
    }

    fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    fn extension(&self, oid: &[u8]) -> Option<&'a [u8]> {
        self.extensions.iter().find(|(kind, _)| *kind == oid).map(|(_, value)| *value)
    }

    /// The first octet of the key usage, if there is one.
    fn key_usage(&self) -> Result<Option<u8>, DecodeError> {
        let Some(usage) = self.extension(KEY_USAGE) else { return Ok(None) };
        // The first octet there says how many bits of the last one mean nothing.
        let bits = Reader::new(usage).expect(BIT_STRING, "KeyUsage")?.get(1).copied();
        Ok(Some(bits.unwrap_or_default()))
    }

    fn may_sign(&self) -> Result<bool, DecodeError> {
        let is_key_for_that = self.key_usage()?.map(|bits| bits & KEY_CERT_SIGN != 0);
        match (self.extension(BASIC_CONSTRAINTS), is_key_for_that) {
            (_, Some(false)) => Ok(false),
            (Some(constraints), _) => {
                Reader::new(constraints).sequence("BasicConstraints")?.boolean_or_false("cA")
            }
            (None, Some(true)) => Ok(true),
            (None, None) => Ok(self.is_version_1 && self.is_self_issued()),
        }
    }
}

/// A name as text, and its last common name.
fn name(der: &[u8]) -> Result<(String, Option<String>), DecodeError> {
    let (mut parts, mut common_name) = (Vec::new(), None);
    let mut rdns = Reader::new(der).sequence("Name")?;
    while !rdns.is_empty() {
        let mut rdn = rdns.set("RelativeDistinguishedName")?;
        while !rdn.is_empty() {
            let mut part = rdn.sequence("AttributeTypeAndValue")?;
            let kind = part.expect(OBJECT_IDENTIFIER, "type")?;
            let (_, value) = part.element("value")?;
            let value = printable(value);
            if let Some(label) = label(kind) {
                parts.push(format!("{label}={value}"));
            }
            if kind == COMMON_NAME {
                common_name = Some(value);
            }
        }
    }
    parts.reverse();
    Ok((parts.join(","), common_name))
}

fn label(kind: &[u8]) -> Option<&'static str> {
    match kind {
        COMMON_NAME => Some("CN"),
        [0x55, 0x04, 0x06] => Some("C"),
        [0x55, 0x04, 0x07] => Some("L"),
        [0x55, 0x04, 0x08] => Some("ST"),
        [0x55, 0x04, 0x0a] => Some("O"),
        [0x55, 0x04, 0x0b] => Some("OU"),
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19] => Some("DC"),
        _ => None,
    }
}

/// A host name or an address among the alternative names.
fn alternative(tag: Tag, value: &[u8]) -> Option<String> {
    if tag == Tag::context(2) {
        return Some(printable(value));
    }
    if tag != Tag::context(7) {
        return None;
    }
    let four = <[u8; 4]>::try_from(value).map(|bytes| Ipv4Addr::from(bytes).to_string());
    four.or_else(|_| <[u8; 16]>::try_from(value).map(|bytes| Ipv6Addr::from(bytes).to_string())).ok()
}

/// For a terminal or a log: another party chose these bytes.
fn printable(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn fits(common_name: &str, server: &ServerName<'_>) -> bool {
    let host = match server {
        ServerName::DnsName(name) => name.as_ref().to_owned(),
        ServerName::IpAddress(address) => std::net::IpAddr::from(*address).to_string(),
        _ => return false,
    };
    if let (Some(rest), ServerName::DnsName(_)) = (common_name.strip_prefix("*."), server) {
        return host.split_once('.').is_some_and(|(_, above)| above.eq_ignore_ascii_case(rest));
    }
    host.eq_ignore_ascii_case(common_name)
}

#[cfg(test)]
mod tests {
    use larix_testkit::Authority;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    #[test]
    fn what_a_certificate_says() {
        let check = |change: fn(&mut rcgen::CertificateParams), alternatives: &[&str], others: bool| {
            let issued =
                Authority::new("Ro\x1bot").issue(&rcgen::PKCS_ECDSA_P256_SHA256, "ldap.example.com", change);
            let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
            let expected = Certificate {
                common_name: Some("ldap.example.com".to_owned()),
                has_alternatives: !alternatives.is_empty(),
                alternatives: alternatives.iter().map(|name| (*name).to_owned()).collect(),
                issuer: "CN=Ro?ot,O=Larix tests".to_owned(),
                is_self_issued: false,
                is_for_others: others,
            };
            assert_eq!(Certificate::read(&der).unwrap(), expected);
        };
        check(|_| {}, &["localhost", "127.0.0.1"], false);
        check(|params| params.subject_alt_names.clear(), &[], false);
        check(
            |params| params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth],
            &["localhost", "127.0.0.1"],
            true,
        );
        check(
            |params| params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth],
            &["localhost", "127.0.0.1"],
            false,
        );
        assert!(Certificate::read(b"\x30\x03\x02\x01\x01").is_err());
    }

    #[test]
    fn whose_key_may_sign() {
        use rcgen::{BasicConstraints, IsCa, KeyUsagePurpose};
        let authority = || IsCa::Ca(BasicConstraints::Constrained(0));
        for (is_ca, usages, expected) in [
            (IsCa::NoCa, vec![], false),
            (IsCa::ExplicitNoCa, vec![], false),
            (IsCa::ExplicitNoCa, vec![KeyUsagePurpose::KeyCertSign], false),
            (IsCa::NoCa, vec![KeyUsagePurpose::KeyCertSign], true),
            (authority(), vec![], true),
            (authority(), vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign], true),
            (authority(), vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign], false),
        ] {
            let what = format!("{is_ca:?}, {usages:?}");
            let own =
                Authority::changed("Root", |params| (params.is_ca, params.key_usages) = (is_ca, usages));
            let der = CertificateDer::from_pem_slice(own.certificate().as_bytes()).unwrap();
            assert_eq!(may_sign(&der), expected, "{what}");
            assert!(!may_sign(&der[..der.len() / 2]), "{what}");
        }
    }

    #[test]
    fn when_a_certificate_is_valid() {
        let own = Authority::changed("Root", |params| {
            params.not_before = rcgen::date_time_ymd(2024, 2, 29);
            params.not_after = rcgen::date_time_ymd(2100, 3, 1);
        });
        let der = CertificateDer::from_pem_slice(own.certificate().as_bytes()).unwrap();
        assert_eq!(validity(&der), Some(1_709_164_800..=4_107_542_400));
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (GENERALIZED_TIME, "20261123140546Z", Some(1_795_442_746)),
            (GENERALIZED_TIME, "00000101000000Z", Some(0)),
            (GENERALIZED_TIME, "700101000000Z", None),
            (UTC_TIME, "20261123140546Z", None),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "700100000000Z", None),
            (UTC_TIME, "700101240000Z", None),
            (UTC_TIME, "700101000000", None),
            (UTC_TIME, "7001010000+0Z", None),
            (UTC_TIME, "Z", None),
        ] {
            assert_eq!(seconds((tag, text.as_bytes())), expected, "{text}");
        }
    }

    #[test]
    fn damaged_certificates_are_read_or_refused() {
        let pem = Authority::new("Root").certificate();
        let whole = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec();
        let look = |der: &[u8]| {
            validity(der);
            (Certificate::read(der).is_ok(), may_sign(der))
        };
        assert_eq!(look(&whole), (true, true));
        (0..whole.len()).for_each(|length| assert_eq!(look(&whole[..length]), (false, false)));
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0x84, 0xff, whole[at] ^ 1, whole[at] ^ 0x20] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                look(&damaged);
            }
        }
    }

    #[test]
    fn common_names_that_fit() {
        for (common_name, server, expected) in [
            ("a.example.com", "a.example.com", true),
            ("A.Example.com", "a.example.com", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "b.a.example.com", false),
            ("*.example.com", "example.com", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("*.0.0.1", "127.0.0.1", false),
            ("b.example.com", "a.example.com", false),
        ] {
            let server = ServerName::try_from(server).unwrap();
            assert_eq!(fits(common_name, &server), expected, "{common_name}");
        }
    }
}
