//! The proof that a peer has the key of the certificate that it shows.
//!
//! The TLS library reads the whole certificate for that: it takes none of X.509 version 1, and none with a critical extension that it
//! does not know. Where nobody judges the certificate (`TLS_REQCERT never`, `TLSVerifyClient allow`), its key alone counts.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use rustls::sign::SigningKey;
use rustls::{CertificateError, DigitallySignedStruct, Error, InconsistentKeys, PeerMisbehaved};

use crate::certificate::{self as fields, key_parts};

/// Whether a certificate is that of a key, whatever else it says: whether it is good is for the peer to say.
///
/// # Errors
/// [`CertificateError::BadEncoding`]: no key can be read in it. [`InconsistentKeys`]: it is another key's.
pub fn belongs(certificate: &CertificateDer<'_>, key: &dyn SigningKey) -> Result<(), Error> {
    let own = fields::public_key(certificate).map_err(|_| CertificateError::BadEncoding)?;
    match key.public_key() {
        Some(public) if *public != *own => Err(InconsistentKeys::KeyMismatch.into()),
        Some(_) | None => Ok(()),
    }
}

/// Verifies the signature over a handshake of TLS 1.2 with the key of a certificate, whatever else the certificate says.
///
/// # Errors
/// [`CertificateError::BadEncoding`]: no key can be read. [`CertificateError::BadSignature`]: it is another key's, or the scheme is not for
/// such a key. [`PeerMisbehaved`]: the scheme was not offered.
pub fn of_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let key = fields::public_key(certificate).and_then(key_parts);
    let (algorithm, key) = key.map_err(|_| CertificateError::BadEncoding)?;
    let mut offered = algorithms.mapping.iter();
    let Some((_, candidates)) = offered.find(|(scheme, _)| *scheme == signed.scheme) else {
        return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
    };
    // A scheme of TLS 1.2 does not say on which curve its key is.
    let fitting = candidates.iter().find(|candidate| *candidate.public_key_alg_id() == *algorithm);
    match fitting.map(|fitting| fitting.verify_signature(key, message, signed.signature())) {
        Some(Ok(())) => Ok(HandshakeSignatureValid::assertion()),
        Some(Err(_)) | None => Err(CertificateError::BadSignature.into()),
    }
}

/// The same of TLS 1.3.
///
/// # Errors
/// As [`of_tls12`].
pub fn of_tls13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let key = fields::public_key(certificate).map_err(|_| CertificateError::BadEncoding)?;
    verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(key), signed, algorithms)
}
