//! The key of the authority, and what it signs.

use std::fmt;

use larix_engine::time::Timestamp;
use larix_schema::Schema;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use zeroize::Zeroizing;

use super::certificate::{Contents, Purpose, ReadCertificate, key_identifier, name, signed};

/// The contents of AlgorithmIdentifiers: ecdsa-with-SHA256 and -SHA384 (RFC 5758 section 3.2), sha256WithRSAEncryption with its
/// NULL (RFC 4055 section 5).
const ECDSA_SHA256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ECDSA_SHA384: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const RSA_SHA256: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b, 0x05, 0x00];

/// A certificate and its key (PKCS #8), both in DER.
pub(super) struct Issued {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Zeroizing<Vec<u8>>,
}

/// Keys stay out of logs.
impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").finish_non_exhaustive()
    }
}

/// Whom a certificate is for, and until when it is valid.
#[derive(Debug)]
pub(super) struct CertificateRequest<'a> {
    pub(super) dn: &'a str,
    pub(super) purpose: &'a Purpose,
    pub(super) now: Timestamp,
    pub(super) days: u32,
}

impl CertificateRequest<'_> {
    fn not_after(&self) -> Timestamp {
        Timestamp::from_seconds(self.now.seconds().saturating_add(i64::from(self.days) * 86_400))
    }
}

/// A key that signs.
enum Key {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

impl Key {
    /// Reads a key (PKCS #8): on P-256 or P-384, or RSA of 2,048 to 4,096 bits.
    fn read(der: &[u8], random: &SystemRandom) -> Option<Self> {
        let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der, random).map(Self::P256);
        let p384 = || EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_ASN1_SIGNING, der, random).map(Self::P384);
        p256.or_else(|_| p384()).or_else(|_| RsaKeyPair::from_pkcs8(der).map(Self::Rsa)).ok()
    }

    fn public(&self) -> &[u8] {
        match self {
            Self::P256(pair) | Self::P384(pair) => pair.public_key().as_ref(),
            Self::Rsa(pair) => pair.public_key().as_ref(),
        }
    }

    const fn algorithm(&self) -> &'static [u8] {
        match self {
            Self::P256(_) => ECDSA_SHA256,
            Self::P384(_) => ECDSA_SHA384,
            Self::Rsa(_) => RSA_SHA256,
        }
    }

    fn sign(&self, message: &[u8], random: &SystemRandom) -> Result<Vec<u8>, String> {
        let failed = |_| "the authority's key did not sign".to_owned();
        match self {
            Self::P256(pair) | Self::P384(pair) => {
                pair.sign(random, message).map(|signature| signature.as_ref().to_vec()).map_err(failed)
            }
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
        }
    }
}

/// The authority of a database.
pub(super) struct Authority {
    key: Key,
    /// Its Name in DER.
    subject: Vec<u8>,
    key_identifier: Option<Vec<u8>>,
}

/// Keys stay out of logs.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes one with a certificate of its own.
    ///
    /// # Errors
    /// A DN that cannot stand in a certificate, or no random bytes.
    pub(super) fn make(schema: &Schema, request: &CertificateRequest<'_>) -> Result<(Self, Issued), String> {
        let random = SystemRandom::new();
        let der = new_key(&random)?;
        let key = Key::read(&der, &random).ok_or("the new key cannot be read")?;
        let (subject, identifier) = (name(schema, request.dn)?, key_identifier(key.public()));
        let authority = Self { key, subject, key_identifier: Some(identifier) };
        let certificate = authority.certify(&authority.subject, authority.key.public(), request, &random)?;
        Ok((authority, Issued { certificate, key: der }))
    }

    /// That of a stored certificate and key.
    ///
    /// # Errors
    /// Says which of them cannot be used.
    pub(super) fn read(certificate: &[u8], key: &[u8], now: Timestamp) -> Result<Self, String> {
        let random = SystemRandom::new();
        let key = Key::read(key, &random).ok_or(
            "cAPrivateKey;binary is no key that can sign: PKCS #8 with a key on P-256 or P-384, or RSA of 2048 to 4096 bits",
        )?;
        let read = ReadCertificate::read(certificate).ok_or("cACertificate;binary is no certificate")?;
        if read.public_key != key.public() {
            return Err("cACertificate;binary and cAPrivateKey;binary do not belong together".to_owned());
        }
        if read.not_after < now {
            return Err(format!(
                "the certificate of the authority was valid until {}",
                read.not_after.generalized()
            ));
        }
        Ok(Self { key, subject: read.subject, key_identifier: read.key_identifier })
    }

    /// Makes a key and its certificate.
    ///
    /// # Errors
    /// A DN that cannot stand in a certificate, or no random bytes.
    pub(super) fn issue(&self, schema: &Schema, request: &CertificateRequest<'_>) -> Result<Issued, String> {
        let random = SystemRandom::new();
        let key = new_key(&random)?;
        let pair = Key::read(&key, &random).ok_or("the new key cannot be read")?;
        let subject = name(schema, request.dn)?;
        let certificate = self.certify(&subject, pair.public(), request, &random)?;
        Ok(Issued { certificate, key })
    }

    fn certify(
        &self,
        subject: &[u8],
        public_key: &[u8],
        request: &CertificateRequest<'_>,
        random: &SystemRandom,
    ) -> Result<Vec<u8>, String> {
        let mut serial = [0; 16];
        random.fill(&mut serial).map_err(|_| no_random())?;
        // Positive, and of one length (RFC 5280 section 4.1.2.2).
        serial[0] = serial[0] & 0x3f | 0x40;
        let contents = Contents {
            issuer: &self.subject,
            issuer_key_identifier: self.key_identifier.as_deref(),
            subject,
            serial,
            not_before: request.now,
            not_after: request.not_after(),
            public_key,
            purpose: request.purpose,
            signature_algorithm: self.key.algorithm(),
        };
        let to_be_signed = contents.to_be_signed();
        let signature = self.key.sign(&to_be_signed, random)?;
        Ok(signed(&to_be_signed, self.key.algorithm(), &signature))
    }
}

fn new_key(random: &SystemRandom) -> Result<Zeroizing<Vec<u8>>, String> {
    let key =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, random).map_err(|_| no_random())?;
    Ok(Zeroizing::new(key.as_ref().to_vec()))
}

fn no_random() -> String {
    "the operating system gives no random bytes".to_owned()
}
