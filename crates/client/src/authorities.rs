//! What certificates that are trusted are trusted for.

use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};

use crate::certificate::{is_for_no_clients, key_identifiers, may_sign, names, validity};

/// The certificates of a file or a directory with authorities. The TLS library asks nothing of an anchor but its name and its key: not
/// whether it is an authority's, nor whether it is revoked. So only what is neither below another authority nor for something else is an
/// anchor.
#[derive(Debug)]
pub struct Trusted {
    /// Authorities: what they have signed is believed.
    pub anchors: Vec<CertificateDer<'static>>,
    /// Authorities below these, which are judged as those that a peer shows: they may have expired, or be revoked.
    pub links: Vec<CertificateDer<'static>>,
    /// What is signed by itself and no authority's: its key signs nothing, but a peer may show it itself.
    pub others: Vec<CertificateDer<'static>>,
}

impl Trusted {
    /// What is none of these is left out: bundles and directories hold servers' certificates, too.
    #[must_use]
    pub fn of(certificates: Vec<CertificateDer<'static>>) -> Self {
        let (authorities, mut others): (Vec<_>, Vec<_>) =
            certificates.into_iter().partition(|one| may_sign(one));
        others.retain(|one| names(one).is_some_and(|(issuer, subject)| issuer == subject));
        let mut flags = are_below(&authorities).into_iter();
        let (links, anchors) = authorities.into_iter().partition(|_| flags.next().unwrap_or(false));
        Self { anchors, links, others }
    }

    /// Whether there is none that the TLS library takes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.anchors, &self.others].iter().all(|those| roots(those).is_empty())
    }

    /// Whether one of them is this, byte for byte.
    #[must_use]
    pub fn has(&self, certificate: &CertificateDer<'_>) -> bool {
        [&self.anchors, &self.links, &self.others].iter().any(|those| those.contains(certificate))
    }

    /// Whether a client that shows this certificate itself is believed, though it is an authority's, as `openssl req -x509` makes them: it
    /// is trusted byte for byte, issued by itself, and for clients by both its key usages. Its dates are not looked at.
    #[must_use]
    pub fn is_client_itself(&self, certificate: &CertificateDer<'_>) -> bool {
        let is_trusted = [&self.anchors, &self.others].iter().any(|those| those.contains(certificate));
        let is_self_issued = names(certificate).is_some_and(|(issuer, subject)| issuer == subject);
        is_trusted && is_self_issued && !is_for_no_clients(certificate)
    }

    /// What a peer shows beside its own certificate, and the links.
    #[must_use]
    pub fn chain<'a>(&'a self, presented: &'a [CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
        presented.iter().chain(&self.links).map(|one| CertificateDer::from(&**one)).collect()
    }
}

/// Verifiers by the anchors that are valid at a time, for the TLS library does not look at the dates of an anchor either.
pub struct ByDate<V> {
    anchors: Vec<Dated>,
    /// Of all anchors, whatever their dates; none: there is no anchor.
    all: Option<V>,
    make: Box<dyn Fn(RootCertStore) -> Option<V> + Send + Sync>,
    valid: Mutex<Option<Valid<V>>>,
}

const NEVER: RangeInclusive<u64> = RangeInclusive::new(1, 0);
/// An anchor, with the seconds since 1970 in which it is valid.
type Dated = (CertificateDer<'static>, RangeInclusive<u64>);
/// The verifier of the anchors that are valid in these seconds, which are the same ones all the time.
type Valid<V> = (RangeInclusive<u64>, Option<V>);

impl<V> fmt::Debug for ByDate<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByDate").field("anchors", &self.anchors.len()).finish_non_exhaustive()
    }
}

impl<V: Clone> ByDate<V> {
    /// `make` answers none where there are no roots.
    ///
    /// # Errors
    /// Those of `make` with all anchors.
    pub fn new<E>(
        anchors: &[CertificateDer<'static>],
        make: impl Fn(RootCertStore) -> Result<Option<V>, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let all = make(roots(anchors))?;
        // As with OpenSSL, one whose dates cannot be read is not valid.
        let dated = |anchor: &CertificateDer<'static>| (anchor.clone(), validity(anchor).unwrap_or(NEVER));
        let anchors = anchors.iter().map(dated).collect();
        let make = Box::new(move |roots| make(roots).ok().flatten());
        Ok(Self { anchors, all, make, valid: Mutex::default() })
    }

    /// Has the verifier of the anchors that are valid now judge a chain.
    ///
    /// # Errors
    /// Those of `judge`; [`CertificateError::UnknownIssuer`] without an anchor; [`CertificateError::Expired`] if nothing is wrong but
    /// the dates of the anchor.
    pub fn judge<T>(&self, now: UnixTime, judge: impl Fn(&V) -> Result<T, Error>) -> Result<T, Error> {
        let ask = |verifier: Option<&V>| match verifier {
            Some(verifier) => judge(verifier),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        let now = now.as_secs();
        if self.anchors.iter().all(|(_, dates)| dates.contains(&now)) {
            return ask(self.all.as_ref());
        }
        match ask(self.valid_at(now).as_ref()) {
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {}
            judged => return judged,
        }
        match ask(self.all.as_ref()) {
            // The name is looked at behind the chain.
            Ok(_)
            | Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Err(CertificateError::Expired.into()),
            Err(error) => Err(error),
        }
    }

    fn valid_at(&self, now: u64) -> Option<V> {
        // What is there is whole after any panic.
        let mut valid = self.valid.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((span, verifier)) = &*valid
            && span.contains(&now)
        {
            return verifier.clone();
        }
        let (mut from, mut until) = (0_u64, u64::MAX);
        for (_, dates) in &self.anchors {
            for change in [*dates.start(), dates.end().saturating_add(1)] {
                match change <= now {
                    true => from = from.max(change),
                    false => until = until.min(change - 1),
                }
            }
        }
        let anchors = self.anchors.iter().filter(|(_, dates)| dates.contains(&now));
        let anchors: Vec<_> = anchors.map(|(anchor, _)| anchor.clone()).collect();
        let verifier = (self.make)(roots(&anchors));
        *valid = Some((from..=until, verifier.clone()));
        verifier
    }
}

/// Those of `among` that may have signed a certificate: they have the issuer's name and, if there are such ones, the key that the
/// certificate names (RFC 5280 section 4.2.1.1). An authority that was renewed with another key has two certificates of one name, and one
/// that two others have signed has two of one key.
#[must_use]
pub fn issuers<'a>(
    certificate: &CertificateDer<'_>,
    among: &'a [CertificateDer<'static>],
) -> Vec<&'a CertificateDer<'static>> {
    let Some((issuer, _)) = names(certificate) else { return Vec::new() };
    let is_called_so =
        |one: &&CertificateDer<'static>| names(one).is_some_and(|(_, subject)| subject == issuer);
    let mut named: Vec<_> = among.iter().filter(is_called_so).collect();
    if let (Some(key), _) = key_identifiers(certificate)
        && named.iter().any(|one| has_key(one, key))
    {
        named.retain(|one| has_key(one, key));
    }
    named
}

fn has_key(certificate: &CertificateDer<'_>, identifier: &[u8]) -> bool {
    key_identifiers(certificate).1 == Some(identifier)
}

/// webpki's `CaUsedAsEndEntity`, which rustls hands on as it is: a peer shows an authority's certificate as its own.
#[must_use]
pub fn is_authority_as_peer(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other))
        if other.0.to_string() == "CaUsedAsEndEntity")
}

/// Of those that can be read: a bundle may hold others.
#[must_use]
pub fn roots(certificates: &[CertificateDer<'static>]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    roots
}

/// For each authority whether it is below another one of them, by their names. One that leads to none that is not, as where two have
/// signed each other, is not.
fn are_below(authorities: &[CertificateDer<'_>]) -> Vec<bool> {
    let pairs: Vec<_> = authorities.iter().map(|one| names(one).unwrap_or_default()).collect();
    let subjects: HashSet<_> = pairs.iter().map(|(_, subject)| *subject).collect();
    let mut reached: HashSet<_> = pairs
        .iter()
        .filter(|(issuer, subject)| issuer == subject || !subjects.contains(issuer))
        .map(|(_, subject)| *subject)
        .collect();
    loop {
        let before = reached.len();
        for (issuer, subject) in &pairs {
            if reached.contains(issuer) {
                reached.insert(*subject);
            }
        }
        if reached.len() == before {
            break;
        }
    }
    pairs.iter().map(|(issuer, subject)| issuer != subject && reached.contains(issuer)).collect()
}

#[cfg(test)]
mod tests {
    use larix_testkit::{Authority, self_signed};
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    #[test]
    fn what_is_trusted_for_what() {
        let root = Authority::new("Root");
        let (upper, server) = (root.intermediate("Upper"), root.server());
        let lower = upper.intermediate("Lower");
        let own = self_signed(|_| {});
        let (root, upper, lower) = (root.certificate(), upper.certificate(), lower.certificate());
        let cases: [(Vec<&String>, [usize; 3]); 10] = [
            (vec![], [0, 0, 0]),
            (vec![&root, &upper, &lower], [1, 2, 0]),
            (vec![&lower, &upper, &root], [1, 2, 0]),
            // What is above is not there.
            (vec![&lower, &upper], [1, 1, 0]),
            (vec![&root, &lower], [2, 0, 0]),
            (vec![&lower], [1, 0, 0]),
            (vec![&own.certificate], [0, 0, 1]),
            (vec![&root, &own.certificate], [1, 0, 1]),
            (vec![&server.certificate], [0, 0, 0]),
            (vec![&root, &server.certificate], [1, 0, 0]),
        ];
        for (given, expected) in cases {
            let read = |pem: &&String| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            let certificates: Vec<_> = given.iter().map(read).collect();
            let trusted = Trusted::of(certificates.clone());
            let found = [trusted.anchors.len(), trusted.links.len(), trusted.others.len()];
            assert_eq!(found, expected, "{given:?}");
            assert_eq!(trusted.is_empty(), expected == [0, 0, 0], "{given:?}");
            let kept = certificates.iter().filter(|certificate| trusted.has(certificate)).count();
            assert_eq!(kept, expected.iter().sum::<usize>(), "{given:?}");
            assert_eq!(trusted.chain(&certificates).len(), certificates.len() + trusted.links.len());
        }
    }

    #[test]
    fn anchors_count_while_they_are_valid() {
        let anchor = |from, until| {
            let root = Authority::changed("Root", |params| {
                params.not_before = rcgen::date_time_ymd(from, 1, 1);
                params.not_after = rcgen::date_time_ymd(until, 1, 1);
            });
            CertificateDer::from_pem_slice(root.certificate().as_bytes()).unwrap()
        };
        let make = |roots: RootCertStore| Ok::<_, ()>((!roots.is_empty()).then(|| roots.len()));
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let anchors = [anchor(2020, 2021), anchor(2020, 2099), anchor(2098, 2100)];
        let by_date = ByDate::new(&anchors, make).unwrap();
        let expired = || Err::<usize, _>(Error::from(CertificateError::Expired));
        // The first of 2020, 2021, 2022, 2098, 2099 and 2100; the same ones back, for what was made is kept.
        let times = [
            (1_577_836_799, expired()),
            (1_577_836_800, Ok(2)),
            (1_609_459_200, Ok(2)),
            (1_609_459_201, Ok(1)),
            (1_640_995_200, Ok(1)),
            (4_039_372_800, Ok(2)),
            (4_070_908_800, Ok(2)),
            (4_070_908_801, Ok(1)),
            (4_102_444_801, expired()),
        ];
        for (seconds, expected) in times.iter().chain(times.iter().rev()) {
            assert_eq!(by_date.judge(at(*seconds), |roots| Ok(*roots)), *expected, "{seconds}");
        }
        // With all of them the name is what is wrong: the chain is good then, but for the dates.
        let named = |roots: &usize| match roots {
            3 => Err::<(), Error>(CertificateError::NotValidForName.into()),
            _ => Err(CertificateError::UnknownIssuer.into()),
        };
        assert_eq!(by_date.judge(at(1_640_995_200), named), Err(Error::from(CertificateError::Expired)));
        let otherwise = |_: &usize| Err::<(), Error>(CertificateError::Revoked.into());
        assert_eq!(by_date.judge(at(1_640_995_200), otherwise), Err(Error::from(CertificateError::Revoked)));
        let none = ByDate::new(&[], make).unwrap();
        assert_eq!(none.judge(at(0), |_| Ok(())), Err(Error::from(CertificateError::UnknownIssuer)));
    }

    #[test]
    fn who_may_have_signed() {
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let naming_key = |authority: &Authority| {
            let naming = |params: &mut rcgen::CertificateParams| {
                params.use_authority_key_identifier_extension = true;
            };
            authority.issue(&rcgen::PKCS_ECDSA_P256_SHA256, "localhost", naming).certificate
        };
        let (root, other) = (Authority::new("Root"), Authority::new("Other"));
        let (old, new) = (root.intermediate("Lower"), root.intermediate("Lower"));
        let crossed = other.crossed("Lower", &new);
        let named = [
            (der(&naming_key(&new)), vec![&new.certificate(), &crossed]),
            (der(&naming_key(&old)), vec![&old.certificate()]),
            // Without the identifier of a key each of them may have.
            (der(&new.server().certificate), vec![&old.certificate(), &new.certificate(), &crossed]),
            (der(&root.certificate()), vec![&root.certificate()]),
            (der(&Authority::new("Third").server().certificate), vec![]),
        ]
        .map(|(certificate, expected)| {
            (certificate, expected.into_iter().map(|pem| der(pem)).collect::<Vec<_>>())
        });
        let among =
            [&root.certificate(), &old.certificate(), &new.certificate(), &crossed].map(|pem| der(pem));
        for (certificate, expected) in &named {
            assert_eq!(issuers(certificate, &among), expected.iter().collect::<Vec<_>>());
        }
        assert_eq!(issuers(&CertificateDer::from(vec![0x30]), &among), Vec::<&CertificateDer<'_>>::new());
    }

    #[test]
    fn authorities_that_signed_each_other_are_anchors() {
        let (one, two) = (Authority::new("One"), Authority::new("Two"));
        let crossed = [two.intermediate("One").certificate(), one.intermediate("Two").certificate()];
        let crossed = crossed.map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap());
        assert_eq!(Trusted::of(crossed.to_vec()).anchors.len(), 2);
        let own = CertificateDer::from_pem_slice(one.certificate().as_bytes()).unwrap();
        let trusted = Trusted::of([&crossed[..], std::slice::from_ref(&own)].concat());
        assert_eq!((trusted.anchors, trusted.links.len()), (vec![own], 2));
    }
}
