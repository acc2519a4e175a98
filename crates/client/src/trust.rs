//! Whether a server is the one that was meant: the chain of its certificate, and its name.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::ServerCertVerifier as _;
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error};

use crate::authorities::{ByDate, Trusted, is_authority_as_peer};
use crate::certificate::Certificate;
use crate::revocation::ask_each;
use crate::verifier::{Judge, Presented};

/// The certificate that a server has shown last, for messages about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerCertificate(Arc<Mutex<Option<CertificateDer<'static>>>>);

impl PeerCertificate {
    fn note(&self, shown: &CertificateDer<'_>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown.clone().into_owned());
    }

    pub(crate) fn get(&self) -> Option<CertificateDer<'static>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

/// One for each order of the lists of revoked certificates.
pub(crate) type Verifiers = Vec<Arc<WebPkiServerVerifier>>;

/// The usual judgement of the chain, and of the name by a rule.
#[derive(Debug)]
pub(crate) struct Named {
    /// Of what authorities have signed.
    pub(crate) signed: ByDate<Verifiers>,
    /// Of those that are no authorities'.
    pub(crate) shown_itself: Option<Verifiers>,
    pub(crate) trusted: Trusted,
    /// Certificates must be known as not revoked (`TLS_CRLCHECK`).
    pub(crate) asks_revocation: bool,
    pub(crate) peer_certificate: PeerCertificate,
    pub(crate) rule: NameRule,
}

impl Named {
    /// What the usual judgement comes to; a server that shows one of the trusted certificates itself needs no chain. OpenLDAP's
    /// clients take that, too, also where the certificate is an authority's (as `openssl req -x509` makes them).
    fn judged(&self, presented: Presented<'_>) -> Result<(), Error> {
        let Presented { certificate: peer_certificate, intermediates, name, ocsp, now } = presented;
        let chain = self.trusted.chain(intermediates);
        let ask = |verifiers: &Verifiers| {
            ask_each(verifiers, |verifier| {
                verifier.verify_server_cert(peer_certificate, &chain, name, ocsp, now).map(|_| ())
            })
        };
        let judged = match (self.trusted.others.contains(peer_certificate), &self.shown_itself) {
            (false, _) => self.signed.judge(now, ask),
            // Its own dates are those of the anchor.
            (true, Some(verifier)) => ask(verifier),
            (true, None) => Err(CertificateError::UnknownIssuer.into()),
        };
        // The usual judgement looks at the validity before it says that an authority's certificate is no server's.
        let is_authority = judged.as_ref().is_err_and(is_authority_as_peer);
        if !is_authority || !self.trusted.has(peer_certificate) {
            return judged;
        }
        if self.asks_revocation {
            return Err(CertificateError::UnknownRevocationStatus.into());
        }
        let certificate = Certificate::read(peer_certificate);
        if certificate.map_err(|_| CertificateError::BadEncoding)?.is_for_others {
            return Err(CertificateError::InvalidPurpose.into());
        }
        verify_server_name(&ParsedCertificate::try_from(peer_certificate)?, name)
    }
}

impl Judge for Named {
    fn judge(&self, presented: Presented<'_>) -> Result<(), Error> {
        self.peer_certificate.note(presented.certificate);
        let judged = self.judged(presented);
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
        let certificate = Certificate::read(presented.certificate).unwrap_or_default();
        let in_subject = || certificate.is_called(presented.name);
        let named = match self.rule {
            NameRule::Any => true,
            NameRule::Alternative => in_alternatives,
            NameRule::Either => in_alternatives || in_subject(),
            NameRule::AlternativeFirst => in_alternatives || (!certificate.has_alternatives && in_subject()),
            NameRule::Subject => in_subject(),
        };
        if named {
            return Ok(());
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidForName))
    }
}
