//! Lists of revoked certificates (RFC 5280 section 5), as far as the TLS library leaves something to do: of several lists that one
//! authority made, it asks the first alone, and about one that it cannot use it says little.

use std::cmp::Reverse;

use larix_proto::DecodeError;
use larix_proto::ber::{Reader, Tag};
use rustls::pki_types::CertificateRevocationListDer;

use crate::certificate::seconds;

const UTC_TIME: Tag = Tag(0x17);
const GENERALIZED_TIME: Tag = Tag(0x18);

/// The lists in the order in which they are to be asked: the one that was made last comes first, of those of the same second the one
/// that holds longer. Files get newer lists appended, and an older one does not have what was revoked since. What cannot be read comes
/// last.
#[must_use]
pub fn newest_first(
    mut lists: Vec<CertificateRevocationListDer<'static>>,
) -> Vec<CertificateRevocationListDer<'static>> {
    lists.sort_by_cached_key(|list| {
        Reverse(List::read(list).map(|list| (list.made, list.next)).unwrap_or_default())
    });
    lists
}

/// Why the TLS library can use none of these lists: what is wrong with the first that it does not take. `None`: nothing that is known
/// here.
#[must_use]
pub fn unusable(lists: &[CertificateRevocationListDer<'_>]) -> Option<&'static str> {
    lists.iter().find_map(|list| match List::read(list) {
        Err(_) => Some("what stands there as a revocation list is none"),
        Ok(list) if list.is_version_1 => Some(
            "a revocation list is of version 1, which the TLS library does not take: make it again with extensions \
             (crl_extensions in openssl.cnf, with authorityKeyIdentifier in it)",
        ),
        Ok(list) if list.next.is_none() => {
            Some("a revocation list does not say by when there is a newer one (nextUpdate), and the TLS library takes none without that")
        }
        Ok(_) => None,
    })
}

/// What a list says of itself.
struct List {
    is_version_1: bool,
    /// Seconds since 1970. `None`: that cannot be read.
    made: Option<u64>,
    /// By when there is a newer one. `None`: it does not say so.
    next: Option<u64>,
}

impl List {
    fn read(der: &[u8]) -> Result<Self, DecodeError> {
        let mut list = Reader::new(der).sequence("CertificateList")?;
        let mut body = list.sequence("tbsCertList")?;
        let is_version_1 = body.optional(Tag::INTEGER, "version")?.is_none();
        for field in ["signature", "issuer"] {
            body.element(field)?;
        }
        let made = seconds(body.element("thisUpdate")?);
        let next = match body.peek() {
            Some(UTC_TIME | GENERALIZED_TIME) => seconds(body.element("nextUpdate")?),
            _ => None,
        };
        Ok(Self { is_version_1, made, next })
    }
}

#[cfg(test)]
mod tests {
    use larix_testkit::Authority;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn list(pem: &str) -> CertificateRevocationListDer<'static> {
        CertificateRevocationListDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn the_newest_list_is_asked() {
        let (root, other) = (Authority::new("Root"), Authority::new("Other"));
        let old = list(&root.revocations_of(2021, &[], 2090));
        let new = list(&root.revocations_of(2022, &[&root.server()], 2023));
        let long = list(&root.revocations_of(2022, &[], 2024));
        let others = list(&other.revocations_of(2020, &[], 2024));
        let damaged = CertificateRevocationListDer::from(vec![0x30]);
        let expected = [&long, &new, &old, &others, &damaged];
        for given in [
            [&damaged, &others, &old, &new, &long],
            [&long, &new, &old, &others, &damaged],
            [&old, &long, &new, &damaged, &others],
        ] {
            let found = newest_first(given.into_iter().cloned().collect());
            assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        }
        assert_eq!(unusable(&[old, new]), None);
        assert!(unusable(&[others, damaged]).is_some_and(|why| why.contains("is none")));
    }

    /// As `openssl ca -gencrl` makes it where its configuration names no extensions of lists.
    const VERSION_1: &str = "-----BEGIN X509 CRL-----
MIHWMH4wCgYIKoZIzj0EAwIwKTELMAkGA1UEBhMCREUxCzAJBgNVBAoMAkV4MQ0w
CwYDVQQDDARSb290Fw0yNjEyMDExNDU4MzdaFw0yNjEyMzExNDU4MzdaMCcwJQIU
bMxwVNTB5yLYqqnZ8mzku+lypu0XDTI2MTEzMDAwMDAwMFowCgYIKoZIzj0EAwID
SAAwRQIgAWkQBWcpNy/t3HX36AIxYyM+8ZKRlYaLFHevGtoT3s8CIQCw9/3kezsf
XC2TTlmFyNEjAFgodYjQY2gXjgYL53W83g==
-----END X509 CRL-----
";

    #[test]
    fn a_list_of_version_1_is_named() {
        assert!(unusable(&[list(VERSION_1)]).is_some_and(|why| why.contains("version 1")));
    }
}
