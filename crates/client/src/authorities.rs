//! What certificates that are trusted are trusted for.

use std::collections::HashSet;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use crate::certificate::{may_sign, names};

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

    /// What a peer shows beside its own certificate, and the links.
    #[must_use]
    pub fn chain<'a>(&'a self, shown: &'a [CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
        shown.iter().chain(&self.links).map(|one| CertificateDer::from(&**one)).collect()
    }
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
