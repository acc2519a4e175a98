//! Servers that are known by the hash of their public key, beside or instead of their certificate's chain and name
//! (`remoteauth_tls_peerkey_hash` of slapo-remoteauth(5)).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::crypto::ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};
use rustls::pki_types::ServerName;
use rustls::{Error, SupportedCipherSuite};

use crate::certificate::public_key;
use crate::verifier::{Judge, Presented};

/// A host, and the hash of the public key that its certificate must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerKeyHash {
    /// In lower case; an address without brackets.
    host: String,
    algorithm: Algorithm,
    digest: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Sha256,
    Sha384,
}

impl Algorithm {
    fn of(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let suite = match self {
            Self::Sha256 => TLS13_AES_128_GCM_SHA256,
            Self::Sha384 => TLS13_AES_256_GCM_SHA384,
        };
        let SupportedCipherSuite::Tls13(suite) = suite else { return None };
        Some(suite.common.hash_provider.hash(bytes).as_ref().to_vec())
    }
}

impl PeerKeyHash {
    /// `hash` is `<hash name>:<Base64>`; what is hashed is the certificate's SubjectPublicKeyInfo (RFC 5280 section 4.1) in DER.
    ///
    /// # Errors
    /// Says which part cannot be used, and what can.
    pub fn parse(host: &str, hash: &str) -> Result<Self, String> {
        let Some((name, digest)) = hash.split_once(':') else {
            return Err(format!("`{hash}` names no hash: write sha256:<Base64> or sha384:<Base64>"));
        };
        let (algorithm, length) = match name.to_ascii_lowercase().as_str() {
            "sha256" => (Algorithm::Sha256, 32),
            "sha384" => (Algorithm::Sha384, 48),
            _ => return Err(format!("no hash `{name}`: sha256 or sha384")),
        };
        let digest = BASE64.decode(digest).map_err(|error| format!("`{digest}` is no Base64: {error}"))?;
        if digest.len() != length {
            return Err(format!("a {name} hash has {length} bytes, and this one {}", digest.len()));
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match ServerName::try_from(bare.to_owned()) {
            Ok(name) => Ok(Self { host: spelled(&name), algorithm, digest }),
            Err(_) => Err(format!("`{host}` is no host: write its name or its address, without a port")),
        }
    }
}

/// How a name is compared.
fn spelled(name: &ServerName<'_>) -> String {
    name.to_str().to_ascii_lowercase()
}

/// The public keys that hosts must have.
#[derive(Debug)]
pub(crate) struct Pinned(pub(crate) Vec<PeerKeyHash>);

impl Judge for Pinned {
    /// # Errors
    /// A host without a hash, or one with another key.
    fn judge(&self, presented: Presented<'_>) -> Result<(), Error> {
        let Presented { certificate, name, .. } = presented;
        let host = spelled(name);
        let Some(pin) = self.0.iter().find(|pin| pin.host == host) else {
            return Err(Error::General(format!("no hash of the public key of {host} is configured")));
        };
        let key = public_key(certificate).map_err(|_| Error::General("no public key in it".to_owned()))?;
        match pin.algorithm.of(key) {
            Some(digest) if digest == pin.digest => Ok(()),
            _ => Err(Error::General(format!(
                "the public key of {host} has another hash than the configured one"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read() {
        let hash = BASE64.encode([7; 32]);
        let pin = PeerKeyHash::parse("LDAP.Example.com", &format!("SHA256:{hash}")).unwrap();
        assert_eq!((pin.host.as_str(), pin.digest.len()), ("ldap.example.com", 32));
        assert_eq!(PeerKeyHash::parse("[::1]", &format!("sha256:{hash}")).unwrap().host, "::1");
        for (host, hash, expected) in [
            ("a", hash.clone(), "names no hash"),
            ("a", format!("md5:{hash}"), "no hash `md5`"),
            ("a", "sha256:????".to_owned(), "is no Base64"),
            ("a", format!("sha384:{hash}"), "has 48 bytes"),
            ("a b", format!("sha256:{hash}"), "is no host"),
        ] {
            let error = PeerKeyHash::parse(host, &hash).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    /// The hash is the one that `openssl x509 -pubkey | openssl pkey -pubin -outform der | openssl dgst` makes.
    #[test]
    fn a_key_is_hashed_with_its_algorithm() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let certificate = params.self_signed(&key).unwrap();
        let spki = rcgen::PublicKeyData::subject_public_key_info(&key);
        assert_eq!(public_key(certificate.der()).unwrap(), spki);
        assert_eq!(Algorithm::Sha256.of(b"").map(|digest| digest.len()), Some(32));
    }
}
