//! Whether a server is the one that was meant: the chain of its certificate, and its name.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use crate::certificate::Certificate;

/// The certificate that a server has shown, for messages about it.
pub(crate) type Shown = Arc<OnceLock<CertificateDer<'static>>>;

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
    /// It may have any name.
    Any,
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
    /// Each of these is believed when a server shows it, byte for byte.
    pub(crate) trusted: Vec<CertificateDer<'static>>,
    /// Certificates must be known as not revoked (`TLS_CRLCHECK`).
    pub(crate) asks_revocation: bool,
    pub(crate) shown: Shown,
}

impl Named {
    /// What the usual judgement comes to; a server that shows one of the trusted certificates itself needs no chain. OpenLDAP's
    /// clients take that, too, also where the certificate is an authority's (as `openssl req -x509` makes them).
    fn judged(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<(), Error> {
        let judged =
            self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        // The usual judgement looks at the validity before it says that an authority's certificate is no server's.
        let is_authority = judged.as_ref().is_err_and(is_authority_as_server);
        if !is_authority || !self.trusted.contains(end_entity) {
            return judged.map(|_| ());
        }
        if self.asks_revocation {
            return Err(CertificateError::UnknownRevocationStatus.into());
        }
        let certificate = Certificate::read(end_entity);
        if certificate.map_err(|_| CertificateError::BadEncoding)?.is_for_others {
            return Err(CertificateError::InvalidPurpose.into());
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)
    }
}

/// webpki's `CaUsedAsEndEntity`, which rustls hands on as it is.
pub(crate) fn is_authority_as_server(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other))
        if other.0.to_string() == "CaUsedAsEndEntity")
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
        self.shown.get_or_init(|| end_entity.clone().into_owned());
        let judged = self.judged(end_entity, intermediates, server_name, ocsp_response, now);
        // The name is looked at last: an error about it says that the chain is good.
        let wrong_name = matches!(
            judged,
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            ))
        );
        let in_alternatives = judged.is_ok();
        if !wrong_name {
            judged?;
        }
        let certificate = Certificate::read(end_entity).unwrap_or_default();
        let in_subject = || certificate.is_called(server_name);
        let named = match self.rule {
            NameRule::Any => true,
            NameRule::Alternative => in_alternatives,
            NameRule::Either => in_alternatives || in_subject(),
            NameRule::AlternativeFirst => in_alternatives || (!certificate.has_alternatives && in_subject()),
            NameRule::Subject => in_subject(),
        };
        if named {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidForName))
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
