//! Whether a server is the one that was meant: the chain of its certificate, and its name.

use std::sync::Arc;

use larix_proto::DecodeError;
use larix_proto::ber::{Reader, Tag};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// Takes every certificate (`TLS_REQCERT never`). That the other side has its key is still proven, but not whose it is.
#[derive(Debug)]
pub(crate) struct AnyCertificate(Arc<CryptoProvider>);

impl AnyCertificate {
    /// Signatures are verified with this provider.
    pub(crate) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self(provider)
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Where in a certificate the server's name may stand (`TLS_REQSAN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// In the subject's common name alone.
    Subject,
    /// Among the alternative names, or in the common name.
    Either,
    /// Among the alternative names; in the common name if there are none.
    AlternativeFirst,
    /// Among the alternative names.
    Alternative,
}

/// The usual judgement of the chain, and of the name by a rule.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) inner: Arc<WebPkiServerVerifier>,
    pub(crate) rule: NameRule,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judged =
            self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        // The name is looked at last: an error about it says that the chain is good.
        let wrong_name = matches!(
            judged,
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            ))
        );
        let (in_alternatives, chain_is_good) = (judged.is_ok(), judged.is_ok() || wrong_name);
        let certificate = names(end_entity).unwrap_or_default();
        let in_subject = || certificate.common_name.as_deref().is_some_and(|name| fits(name, server_name));
        let named = match self.rule {
            NameRule::Alternative => in_alternatives,
            NameRule::Either => in_alternatives || in_subject(),
            NameRule::AlternativeFirst => in_alternatives || (!certificate.has_alternatives && in_subject()),
            NameRule::Subject => in_subject(),
        };
        match (chain_is_good, named) {
            (true, true) => Ok(ServerCertVerified::assertion()),
            (true, false) => Err(Error::InvalidCertificate(CertificateError::NotValidForName)),
            (false, _) => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// The names of a certificate that are not looked at elsewhere.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    /// The last one of the subject.
    common_name: Option<String>,
    has_alternatives: bool,
}

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
const OBJECT_IDENTIFIER: Tag = Tag(0x06);

/// Walks as much of a certificate (RFC 5280 section 4.1) as is needed.
fn names(der: &[u8]) -> Result<Names, DecodeError> {
    let mut certificate = Reader::new(der).sequence("Certificate")?;
    let mut body = certificate.sequence("tbsCertificate")?;
    body.optional(Tag::context_constructed(0), "version")?;
    for field in ["serialNumber", "signature", "issuer", "validity"] {
        body.element(field)?;
    }
    let mut found = Names::default();
    let mut subject = body.sequence("subject")?;
    while !subject.is_empty() {
        let mut rdn = subject.set("RelativeDistinguishedName")?;
        while !rdn.is_empty() {
            let mut part = rdn.sequence("AttributeTypeAndValue")?;
            let kind = part.expect(OBJECT_IDENTIFIER, "type")?;
            let (_, value) = part.element("value")?;
            if kind == COMMON_NAME {
                found.common_name = Some(String::from_utf8_lossy(value).into_owned());
            }
        }
    }
    body.element("subjectPublicKeyInfo")?;
    body.optional(Tag::context(1), "issuerUniqueID")?;
    body.optional(Tag::context(2), "subjectUniqueID")?;
    if let Some(extensions) = body.optional(Tag::context_constructed(3), "extensions")? {
        let mut extensions = Reader::new(extensions).sequence("extensions")?;
        while !extensions.is_empty() {
            let mut extension = extensions.sequence("extension")?;
            found.has_alternatives |= extension.expect(OBJECT_IDENTIFIER, "extnID")? == ALTERNATIVE_NAMES;
        }
    }
    Ok(found)
}

/// Whether a common name, with `*.` for one label perhaps, is that of the server.
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
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    #[test]
    fn names_of_a_certificate() {
        let check = |alternatives: bool, expected: Names| {
            let issued =
                Authority::new("Root").issue(&rcgen::PKCS_ECDSA_P256_SHA256, "ldap.example.com", |params| {
                    if !alternatives {
                        params.subject_alt_names.clear();
                    }
                });
            let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
            assert_eq!(names(&der).unwrap(), expected);
        };
        let common_name = Some("ldap.example.com".to_owned());
        check(true, Names { common_name: common_name.clone(), has_alternatives: true });
        check(false, Names { common_name, has_alternatives: false });
        assert!(names(b"\x30\x03\x02\x01\x01").is_err());
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
