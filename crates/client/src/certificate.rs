//! What a server's certificate says of itself, as far as it is looked at here (RFC 5280 section 4.1).

use std::net::{Ipv4Addr, Ipv6Addr};

use larix_proto::DecodeError;
use larix_proto::ber::{Reader, Tag};
use rustls::pki_types::ServerName;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
const OBJECT_IDENTIFIER: Tag = Tag(0x06);
/// How many of a certificate's names are kept, for messages.
const NAMES_MAX: usize = 10;

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
        let mut certificate = Reader::new(der).sequence("Certificate")?;
        let mut body = certificate.sequence("tbsCertificate")?;
        body.optional(Tag::context_constructed(0), "version")?;
        for field in ["serialNumber", "signature"] {
            body.element(field)?;
        }
        let issuer = body.raw("issuer")?;
        body.element("validity")?;
        let subject = body.raw("subject")?;
        let mut found =
            Self { issuer: name(issuer)?.0, is_self_issued: issuer == subject, ..Self::default() };
        found.common_name = name(subject)?.1;
        body.element("subjectPublicKeyInfo")?;
        body.optional(Tag::context(1), "issuerUniqueID")?;
        body.optional(Tag::context(2), "subjectUniqueID")?;
        if let Some(extensions) = body.optional(Tag::context_constructed(3), "extensions")? {
            let mut extensions = Reader::new(extensions).sequence("extensions")?;
            while !extensions.is_empty() {
                found.add_extension(extensions.sequence("extension")?)?;
            }
        }
        Ok(found)
    }

    fn add_extension(&mut self, mut extension: Reader<'_>) -> Result<(), DecodeError> {
        let kind = extension.expect(OBJECT_IDENTIFIER, "extnID")?;
        if extension.peek() == Some(Tag::BOOLEAN) {
            extension.element("critical")?;
        }
        let value = extension.octets("extnValue")?;
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
            EXTENDED_KEY_USAGE => {
                self.is_for_others = true;
                let mut usages = Reader::new(value).sequence("ExtKeyUsageSyntax")?;
                while !usages.is_empty() {
                    let usage = usages.expect(OBJECT_IDENTIFIER, "KeyPurposeId")?;
                    self.is_for_others &= usage != SERVER_AUTH && usage != ANY_USAGE;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the common name, with `*.` for one label perhaps, is that of the server.
    pub(crate) fn is_called(&self, server: &ServerName<'_>) -> bool {
        self.common_name.as_deref().is_some_and(|name| fits(name, server))
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
    let wanted = match server {
        ServerName::DnsName(name) => name.as_ref().to_owned(),
        ServerName::IpAddress(address) => std::net::IpAddr::from(*address).to_string(),
        _ => return false,
    };
    if let (Some(rest), ServerName::DnsName(_)) = (common_name.strip_prefix("*."), server) {
        return wanted.split_once('.').is_some_and(|(_, above)| above.eq_ignore_ascii_case(rest));
    }
    wanted.eq_ignore_ascii_case(common_name)
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
