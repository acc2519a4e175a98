//! Lists of revoked certificates (RFC 5280 section 5), as far as the TLS library leaves something to do: of several lists that one
//! authority made, it asks the first alone, and about one that it cannot use it says little.

use std::cmp::Reverse;

use larix_proto::DecodeError;
use larix_proto::ber::{Reader, Tag};
use rustls::pki_types::CertificateRevocationListDer;
use rustls::{CertificateError, Error};

use crate::certificate::{extensions, seconds, signing_key};

const UTC_TIME: Tag = Tag(0x17);
const GENERALIZED_TIME: Tag = Tag(0x18);
/// How many keys of one authority are told apart.
const ORDERS_MAX: usize = 8;

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

/// The orders in which lists are to be asked, one after another ([`ask_each`]): at most eight, the first of them by their age
/// ([`newest_first`]). An authority that was renewed with another key has lists of one name, and only one of them has the key that signed
/// a certificate; in each order the lists of another key come first. One that names no key (`openssl ca` without `crl_extensions`) comes
/// first in an order of its own: behind one of another key nothing would be known of it.
#[must_use]
pub fn orders(
    lists: Vec<CertificateRevocationListDer<'static>>,
) -> Vec<Vec<CertificateRevocationListDer<'static>>> {
    let lists = newest_first(lists);
    let mut signers: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut rank = |list: &CertificateRevocationListDer<'static>| {
        let signer =
            List::read(list).map(|list| (list.issuer.to_vec(), list.key.to_vec())).unwrap_or_default();
        let named: Vec<_> = signers.iter().filter(|(issuer, _)| *issuer == signer.0).collect();
        // What names no key may be any key's.
        let known = if signer.1.is_empty() { None } else { named.iter().position(|one| **one == signer) };
        let others = named.len();
        known.unwrap_or_else(|| {
            signers.push(signer);
            others
        })
    };
    let ranked: Vec<_> = lists.into_iter().map(|list| (rank(&list), list)).collect();
    let rounds = ranked.iter().map(|(rank, _)| rank + 1).max().unwrap_or(1).min(ORDERS_MAX);
    let order = |round: usize| {
        let (first, others): (Vec<_>, Vec<_>) = ranked.iter().cloned().partition(|(rank, _)| *rank == round);
        first.into_iter().chain(others).map(|(_, list)| list).collect::<Vec<_>>()
    };
    (0..rounds).map(order).collect()
}

/// Asks verifiers, which have the lists in different orders, as long as a list was of another key.
///
/// # Errors
/// Those of `ask`.
pub fn ask_each<V, T>(verifiers: &[V], ask: impl Fn(&V) -> Result<T, Error>) -> Result<T, Error> {
    let mut answer = Err(CertificateError::UnknownIssuer.into());
    for verifier in verifiers {
        answer = ask(verifier);
        if !answer.as_ref().is_err_and(is_of_another_key) {
            break;
        }
    }
    answer
}

/// The signature of a list, or that of a certificate, as where a path to an authority of the same name was tried last.
fn is_of_another_key(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertRevocationList(_)
            | Error::InvalidCertificate(
                CertificateError::BadSignature
                    | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
            )
    )
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
            Some("a revocation list does not say by when there is a newer one (nextUpdate): the TLS library takes none without that")
        }
        Ok(_) => None,
    })
}

/// What a list says of itself.
struct List<'a> {
    is_version_1: bool,
    /// In DER.
    issuer: &'a [u8],
    /// The identifier of the key that signed it; empty: it does not say.
    key: &'a [u8],
    /// Seconds since 1970. `None`: that cannot be read.
    made: Option<u64>,
    /// By when there is a newer one. `None`: it does not say so.
    next: Option<u64>,
}

impl<'a> List<'a> {
    fn read(der: &'a [u8]) -> Result<Self, DecodeError> {
        let mut list = Reader::new(der).sequence("CertificateList")?;
        let mut body = list.sequence("tbsCertList")?;
        let is_version_1 = body.optional(Tag::INTEGER, "version")?.is_none();
        body.element("signature")?;
        let issuer = body.raw("issuer")?;
        let made = seconds(body.element("thisUpdate")?);
        let next = match body.peek() {
            Some(UTC_TIME | GENERALIZED_TIME) => seconds(body.element("nextUpdate")?),
            _ => None,
        };
        body.optional(Tag::SEQUENCE, "revokedCertificates")?;
        let key = match body.optional(Tag::context_constructed(0), "crlExtensions")? {
            Some(value) => signing_key(&extensions(value)?),
            None => None,
        };
        Ok(Self { is_version_1, issuer, key: key.unwrap_or_default(), made, next })
    }
}

#[cfg(test)]
mod tests {
    use larix_testkit::Authority;
    use rustls::CertRevocationListError;
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

    #[test]
    fn lists_of_other_keys_come_first_in_their_turn() {
        let (old, new, other) = (Authority::new("Root"), Authority::new("Root"), Authority::new("Other"));
        let olds = [2021, 2020].map(|year| list(&old.revocations_of(year, &[&old.server()], 2090)));
        let news = list(&new.revocations_of(2022, &[], 2090));
        let others = list(&other.revocations_of(2023, &[], 2090));
        let given = vec![olds[1].clone(), others.clone(), olds[0].clone(), news.clone()];
        let expected = vec![
            vec![others.clone(), news.clone(), olds[0].clone(), olds[1].clone()],
            vec![olds[0].clone(), olds[1].clone(), others, news],
        ];
        assert_eq!(orders(given), expected);
        assert_eq!(orders(Vec::new()), vec![Vec::new()]);
    }

    /// A list of version 2 as far as it is read here, of an authority without a name, which names no key.
    fn without_key(year: u8) -> CertificateRevocationListDer<'static> {
        let element =
            |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).unwrap()][..], content].concat();
        let made = element(0x17, format!("{year:02}0101000000Z").as_bytes());
        let next = element(0x17, b"490101000000Z");
        let body = [&[2_u8, 1, 1, 0x30, 0, 0x30, 0][..], &made[..], &next[..]].concat();
        element(0x30, &element(0x30, &body)).into()
    }

    #[test]
    fn lists_that_name_no_key_come_first_in_their_turn() {
        let [old, middle, new] = [21, 22, 23].map(without_key);
        let given = vec![middle.clone(), old.clone(), new.clone()];
        let expected = vec![
            vec![new.clone(), middle.clone(), old.clone()],
            vec![middle.clone(), new.clone(), old.clone()],
            vec![old, new, middle],
        ];
        assert_eq!(orders(given), expected);
        assert_eq!(orders((1..=20).map(without_key).collect()).len(), ORDERS_MAX);
    }

    #[test]
    fn verifiers_are_asked_until_one_knows() {
        let of = |error: CertificateError| Err::<(), Error>(error.into());
        let revoked = of(CertificateError::Revoked);
        let unread: Result<(), Error> = Err(CertRevocationListError::BadSignature.into());
        let unsigned = of(CertificateError::BadSignature);
        for (answers, expected) in [
            (vec![], of(CertificateError::UnknownIssuer)),
            (vec![Ok(()), revoked.clone()], Ok(())),
            (vec![revoked.clone(), Ok(())], revoked.clone()),
            (vec![unread.clone(), Ok(())], Ok(())),
            (vec![unsigned.clone(), revoked.clone(), Ok(())], revoked),
            (vec![unsigned, unread.clone()], unread),
        ] {
            assert_eq!(ask_each(&answers, Clone::clone), expected);
        }
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
