//! The verifier that a TLS client is given: judges of the server's certificate, and the proof that the server has its key.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::proof;

/// What a server shows of itself, and how the client called it.
#[derive(Clone, Copy)]
pub(crate) struct Presented<'a> {
    pub(crate) certificate: &'a CertificateDer<'a>,
    pub(crate) intermediates: &'a [CertificateDer<'a>],
    pub(crate) name: &'a ServerName<'a>,
    pub(crate) ocsp: &'a [u8],
    pub(crate) now: UnixTime,
}

/// Says whether the server is the one that was meant.
pub(crate) trait Judge: fmt::Debug + Send + Sync {
    /// # Errors
    /// The certificate is not accepted.
    fn judge(&self, presented: Presented<'_>) -> Result<(), Error>;
}

/// Asks all judges. Without any it takes every certificate (`TLS_REQCERT never`): that the other side has its key is still proven,
/// but not whose it is.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// Verifies signatures.
    provider: Arc<CryptoProvider>,
    judges: Vec<Box<dyn Judge>>,
}

impl Verifier {
    pub(crate) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider, judges: Vec::new() }
    }

    /// The first judge that refuses decides.
    pub(crate) fn add(&mut self, judge: impl Judge + 'static) {
        self.judges.push(Box::new(judge));
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let presented = Presented { certificate, intermediates, name, ocsp, now };
        self.judges.iter().try_for_each(|judge| judge.judge(presented))?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        proof::of_tls12(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        proof::of_tls13(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
