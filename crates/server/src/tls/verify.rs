//! Certificates of clients: `TLSVerifyClient`, `TLSCRLCheck`, `TLSCRLFile`.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoClientAuth, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

use larix_client::authorities::{ByDate, Trusted, is_authority_as_peer, roots};
use larix_client::proof;
use larix_client::revocation::{ask_each, orders};
use larix_configuration::values::TlsVerify;
use larix_engine::time::Timestamp;

use super::lists::ListDates;

/// Which certificates of a chain must be known as not revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RevocationCheck {
    /// None: no list was given.
    None,
    /// The client's own; it must be on no list, and a list of its issuer must be there.
    Peer,
    All,
    /// All for which a list is there (`TLSCRLFile` alone).
    Known,
}

/// Which clients may connect, and whose certificate counts as an identity.
#[derive(Clone, Debug)]
pub(super) struct ClientRules {
    verify: TlsVerify,
    /// `None`: no certificate is asked for.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Of the lists on which certificates must not be.
    lists: ListDates,
}

impl ClientRules {
    /// # Errors
    /// Lists that are no such lists.
    pub(super) fn new(
        verify: TlsVerify,
        trusted: Trusted,
        check: RevocationCheck,
        lists: Vec<CertificateRevocationListDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        if verify == TlsVerify::Never {
            return Ok(Self { verify, verifier: None, lists: ListDates::default() });
        }
        let dates = match check {
            RevocationCheck::Peer | RevocationCheck::All => ListDates::of(&lists),
            RevocationCheck::None | RevocationCheck::Known => ListDates::default(),
        };
        let (signatures, orders) = (provider.clone(), orders(lists));
        let of_roots = move |roots: RootCertStore| {
            if roots.is_empty() {
                return Ok(None);
            }
            let roots = Arc::new(roots);
            let with_lists = |lists: &Vec<CertificateRevocationListDer<'static>>| {
                let mut builder =
                    WebPkiClientVerifier::builder_with_provider(roots.clone(), signatures.clone());
                if verify != TlsVerify::Demand {
                    builder = builder.allow_unauthenticated();
                }
                let lists = lists.clone();
                builder = match check {
                    RevocationCheck::None => builder,
                    RevocationCheck::Peer => builder
                        .with_crls(lists)
                        .only_check_end_entity_revocation()
                        .enforce_revocation_expiration(),
                    RevocationCheck::All => builder.with_crls(lists).enforce_revocation_expiration(),
                    RevocationCheck::Known => builder.with_crls(lists).allow_unknown_revocation_status(),
                };
                builder.build()
            };
            orders.iter().map(with_lists).collect::<Result<Verifiers, _>>().map(Some)
        };
        let shown = of_roots(roots(&trusted.others))?;
        let signed = ByDate::new(&trusted.anchors, of_roots)?;
        let verifier = Verifier {
            hints: [&trusted.anchors, &trusted.links, &trusted.others]
                .iter()
                .flat_map(|those| roots(those).subjects())
                .collect(),
            is_mandatory: verify == TlsVerify::Demand,
            belief: Some(Belief {
                signed,
                shown,
                trusted,
                asks_revocation: matches!(check, RevocationCheck::Peer | RevocationCheck::All),
            }),
            provider: provider.clone(),
        };
        Ok(Self { verify, verifier: Some(Arc::new(verifier)), lists: dates })
    }

    /// What to say of revocation lists whose time is over.
    pub(super) fn lists_over(&self, now: Timestamp) -> Vec<String> {
        self.lists.over(now)
    }

    /// What a handshake goes by.
    pub(super) fn verifier(&self, provider: &Arc<CryptoProvider>) -> Arc<dyn ClientCertVerifier> {
        match (self.verify, &self.verifier) {
            (TlsVerify::Never, _) => Arc::new(NoClientAuth),
            (TlsVerify::Allow, _) => Arc::new(Verifier {
                hints: Vec::new(),
                is_mandatory: false,
                belief: None,
                provider: provider.clone(),
            }),
            (TlsVerify::Try | TlsVerify::Demand, Some(verifier)) => verifier.clone(),
            (TlsVerify::Try | TlsVerify::Demand, None) => Arc::new(NoClientAuth),
        }
    }

    /// Whether a client's chain proves who it is at this time. Asked again when a session is resumed: the certificate may
    /// have expired since.
    pub(super) fn believes(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let (Some(verifier), Some((own, others))) = (&self.verifier, chain.split_first()) else {
            return false;
        };
        verifier.verify_client_cert(own, others, now).is_ok()
    }
}

/// One for each order of the lists of revoked certificates.
type Verifiers = Vec<Arc<dyn ClientCertVerifier>>;

/// Believes certificates that authorities have signed, and some that are known themselves.
#[derive(Debug)]
struct Belief {
    /// Of the former.
    signed: ByDate<Verifiers>,
    /// Of the latter.
    shown: Option<Verifiers>,
    trusted: Trusted,
    /// Certificates must be known as not revoked.
    asks_revocation: bool,
}

impl Belief {
    fn judge(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let chain = self.trusted.chain(others);
        let ask = |verifiers: &Verifiers| {
            ask_each(verifiers, |verifier| verifier.verify_client_cert(own, &chain, now))
        };
        let judged = match (self.trusted.others.contains(own), &self.shown) {
            (false, _) => self.signed.judge(now, ask),
            // Its own dates are those of the anchor.
            (true, Some(verifiers)) => ask(verifiers),
            (true, None) => Err(CertificateError::UnknownIssuer.into()),
        };
        // The usual judgement looks at the validity before it says that an authority's certificate is no client's. Who has its key could
        // sign any other one.
        match judged {
            Err(error) if is_authority_as_peer(&error) && self.trusted.is_client_itself(own) => {
                match self.asks_revocation {
                    true => Err(CertificateError::UnknownRevocationStatus.into()),
                    false => Ok(ClientCertVerified::assertion()),
                }
            }
            judged => judged,
        }
    }
}

/// Asks for a certificate, and has the client prove that it has the key.
#[derive(Debug)]
struct Verifier {
    /// `None` (`TLSVerifyClient allow`): a certificate that is not good is as none.
    belief: Option<Belief>,
    hints: Vec<DistinguishedName>,
    is_mandatory: bool,
    /// Verifies signatures.
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match &self.belief {
            Some(belief) => belief.judge(own, others, now),
            None => Ok(ClientCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        match self.belief {
            Some(_) => rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms),
            None => proof::of_tls12(message, certificate, signature, algorithms),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        match self.belief {
            Some(_) => rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms),
            None => proof::of_tls13(message, certificate, signature, algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
