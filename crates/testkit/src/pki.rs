//! Certificates for tests: authorities, what they issue, and what they revoke.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    RevokedCertParams, SerialNumber, SignatureAlgorithm, date_time_ymd,
};

/// An authority with a root certificate of its own.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    serial: Vec<u8>,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    pub certificate: String,
    pub key: String,
    serial: Vec<u8>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

fn params(organization: &str, name: &str, alternatives: &[&str]) -> CertificateParams {
    let alternatives: Vec<String> = alternatives.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(alternatives).expect("names of a certificate");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2099, 1, 1));
    params
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = params("Larix tests", name, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Gives it a number of its own, by its key.
fn numbered(params: &mut CertificateParams, key: &KeyPair) -> Vec<u8> {
    let serial = key.public_key_raw().iter().rev().take(8).copied().collect::<Vec<u8>>();
    // The first bit is the sign.
    let serial = [&[1], serial.as_slice()].concat();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    serial
}

fn new_key(algorithm: &'static SignatureAlgorithm) -> KeyPair {
    KeyPair::generate_for(algorithm).expect("a key")
}

impl Authority {
    /// A root.
    ///
    /// # Panics
    /// When the machine has no randomness.
    pub fn new(name: &str) -> Self {
        Self::changed(name, |_| {})
    }

    /// A root whose certificate says something else of itself: that it is no authority's, perhaps.
    ///
    /// # Panics
    /// When the parameters make no certificate.
    pub fn changed(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let (mut params, key) = (authority_params(name), new_key(&PKCS_ECDSA_P256_SHA256));
        let serial = numbered(&mut params, &key);
        change(&mut params);
        let issuer = CertifiedIssuer::self_signed(params, key);
        Self { issuer: issuer.expect("a root certificate"), serial }
    }

    /// An authority below this one.
    ///
    /// # Panics
    /// As [`Authority::new`].
    pub fn intermediate(&self, name: &str) -> Self {
        let (mut params, key) = (authority_params(name), new_key(&PKCS_ECDSA_P256_SHA256));
        let serial = numbered(&mut params, &key);
        let issuer = CertifiedIssuer::signed_by(params, key, &self.issuer);
        Self { issuer: issuer.expect("an authority's certificate"), serial }
    }

    /// A certificate for the key of another authority, which is called `name`, in PEM: two authorities vouch for it.
    ///
    /// # Panics
    /// As [`Authority::issue`].
    pub fn crossed(&self, name: &str, other: &Self) -> String {
        let mut params = authority_params(name);
        numbered(&mut params, other.issuer.key());
        params.signed_by(other.issuer.key(), &self.issuer).expect("an authority's certificate").pem()
    }

    /// Its certificate, in PEM.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Its certificate and its key, for a peer that shows them itself, or a list that revokes it.
    pub fn own(&self) -> Issued {
        let (certificate, key) = (self.certificate(), self.issuer.key().serialize_pem());
        Issued { certificate, key, serial: self.serial.clone() }
    }

    /// For a server on loopback.
    pub fn server(&self) -> Issued {
        self.issue(&PKCS_ECDSA_P256_SHA256, "localhost", |_| {})
    }

    /// For a client called `cn=NAME,o=Larix tests`.
    pub fn client(&self, name: &str) -> Issued {
        self.issue(&PKCS_ECDSA_P256_SHA256, name, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    /// With a key of this kind, and other changes.
    ///
    /// # Panics
    /// When the parameters make no certificate.
    pub fn issue(
        &self,
        algorithm: &'static SignatureAlgorithm,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let mut params = params("Larix tests", name, &["localhost", "127.0.0.1"]);
        let key = new_key(algorithm);
        let serial = numbered(&mut params, &key);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Issued { certificate: certificate.pem(), key: key.serialize_pem(), serial }
    }

    /// A list of what it revoked, in PEM; `year` is when the next one is due.
    ///
    /// # Panics
    /// As [`Authority::issue`].
    pub fn revocations(&self, revoked: &[&Issued], year: i32) -> String {
        self.revocations_of(2021, revoked, year)
    }

    /// The same, made at the begin of a year.
    ///
    /// # Panics
    /// As [`Authority::issue`].
    pub fn revocations_of(&self, made: i32, revoked: &[&Issued], year: i32) -> String {
        let revoked = revoked.iter().map(|issued| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&issued.serial),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(made, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).and_then(|list| list.pem()).expect("a revocation list")
    }
}

/// For a server on loopback, signed by its own key, with changes.
///
/// # Panics
/// When the parameters make no certificate.
pub fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> Issued {
    let mut params = params("Larix tests", "localhost", &["localhost", "127.0.0.1"]);
    let key = new_key(&PKCS_ECDSA_P256_SHA256);
    params.serial_number = Some(SerialNumber::from(1));
    change(&mut params);
    let certificate = params.self_signed(&key).expect("a certificate");
    Issued { certificate: certificate.pem(), key: key.serialize_pem(), serial: vec![1] }
}

/// For `localhost`, of X.509 version 1, as `openssl x509 -req` makes it: without extensions, signed by its own key, from December 2026 to
/// September 2081.
pub fn version_1() -> Issued {
    Issued { certificate: VERSION_1.to_owned(), key: VERSION_1_KEY.to_owned(), serial: vec![1] }
}

const VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBIzCBywIUOYQJcuIYhAajuoyFLJ8taIRiwScwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTIwMTE1MDcyOFoYDzIwODEwOTAzMTUwNzI4
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AAR9AQnNN/vnKLRYQTeSAYK6mpLkXCx6obuvmoXNw48NfzLD/nsiDzg4vCH/6WA9
oIsfHvsQIu5cBuPau0cygOySMAoGCCqGSM49BAMCA0cAMEQCIDA8b9OFpPpnND3d
DFcpeWEGM6wQv6sqShTb52ujc0eeAiAMdu0aVd1oGGgzH/k5jT9m8fmTgNlWgr9k
65Z0IKEYtA==
-----END CERTIFICATE-----
";
const VERSION_1_KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgucs5hxitvpxQ7Uj1
zEX0LWsgdLVoqIDhe9Uq2b28Ix+hRANCAAR9AQnNN/vnKLRYQTeSAYK6mpLkXCx6
obuvmoXNw48NfzLD/nsiDzg4vCH/6WA9oIsfHvsQIu5cBuPau0cygOyS
-----END PRIVATE KEY-----
";

impl Issued {
    /// Writes `NAME.pem` and `NAME.key`.
    ///
    /// # Panics
    /// When the folder cannot be written.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
        std::fs::write(&certificate, &self.certificate).expect("a certificate's file");
        std::fs::write(&key, &self.key).expect("a key's file");
        (certificate, key)
    }
}
