//! Makes the configuration of handshakes from the settings.

use std::path::PathBuf;
use std::sync::Arc;

use larix_client::authorities::{Trusted, issuers};
use larix_client::ciphers::{self, Choice};
use larix_client::proof;
use larix_client::revocation::{newest_first, unusable};
use larix_configuration::values::{TlsSettings, TlsVerify};
use larix_engine::time::Timestamp;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::ServerConfig;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};

use super::certificate::{Certificate, name_to_dn};
use super::context::{TlsState, end_point_binding};
use super::files::{self, Sections, Source, TlsError};
use super::verify::{ClientRules, RevocationCheck};

const CERTIFICATE: &str = "TLSCertificateFile";
const KEY: &str = "TLSCertificateKeyFile";
const AUTHORITIES: &str = "TLSCACertificateFile";
const AUTHORITIES_DIRECTORY: &str = "TLSCACertificatePath";
const REVOCATIONS: &str = "TLSCRLFile";
/// Tickets for a client to resume with: one is enough for one that opens its connections one after another.
const TICKETS: usize = 1;

/// What the settings gave.
#[derive(Debug)]
pub struct Loaded {
    /// `None`: no certificate is configured.
    pub state: Option<Arc<TlsState>>,
    /// What an administrator should know: settings without effect, a certificate that has expired.
    pub notes: Vec<String>,
}

impl TlsState {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// Names the file or value, what is wrong with it, and the remedy.
    pub fn load(settings: &TlsSettings, now: Timestamp) -> Result<Loaded, TlsError> {
        let provider = ring::default_provider();
        let Choice { suites, groups, tls12, tls13, mut notes } = ciphers::choose(
            settings.cipher_suite.as_deref(),
            settings.protocol_min.as_deref(),
            settings.ec_name.as_deref(),
        )
        .map_err(TlsError::Value)?;
        let provider = Arc::new(CryptoProvider { cipher_suites: suites, kx_groups: groups, ..provider });
        let authorities = Authorities::load(settings)?;
        let Some((certificates, certificate_source)) = own_certificates(settings)? else {
            return match settings.certificate_key_file.is_some() || settings.certificate_key.is_some() {
                true => Err(TlsError::Lone { given: KEY, missing: CERTIFICATE }),
                false => Ok(Loaded { state: None, notes }),
            };
        };
        let (key, key_source) = own_key(settings)?;
        let key = certified(certificates, &certificate_source, key, &key_source, &authorities, &provider)?;
        notes.extend(faults(&key.cert, &certificate_source, now));
        if matches!(settings.verify_client, TlsVerify::Try | TlsVerify::Demand) {
            notes.extend(expired(&authorities, now));
        }
        let end_point = key.end_entity_cert().ok().and_then(|own| end_point_binding(own));
        let clients = client_rules(settings, authorities, &provider)?;
        let versions: &[_] = match (tls12, tls13) {
            (true, true) => &[&TLS13, &TLS12],
            (false, _) => &[&TLS13],
            (true, false) => &[&TLS12],
        };
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|error| TlsError::Value(format!("TLSCipherSuite: {error}")))?
            .with_client_cert_verifier(clients.verifier(&provider))
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        // Tickets of another configuration are refused: a client accepted under older rules is judged by the new ones.
        config.ticketer = ring::Ticketer::new().map_err(|error| TlsError::Value(error.to_string()))?;
        config.send_tls13_tickets = TICKETS;
        let state = Self::new(Arc::new(config), end_point, clients);
        Ok(Loaded { state: Some(Arc::new(state)), notes })
    }
}

/// Every file and directory that the settings name: what is looked at for changes.
pub(crate) fn watched(settings: &TlsSettings) -> Vec<PathBuf> {
    let files = [
        &settings.certificate_file,
        &settings.certificate_key_file,
        &settings.ca_certificate_file,
        &settings.crl_file,
    ];
    let mut paths: Vec<PathBuf> = files.into_iter().flatten().cloned().collect();
    if let Some(directory) = &settings.ca_certificate_path {
        paths.push(directory.clone());
        paths.extend(files::directory(AUTHORITIES_DIRECTORY, directory).unwrap_or_default());
    }
    paths
}

/// What to say of a certificate without extensions, as `openssl x509 -req` makes it.
const VERSION_1: &str = "the certificate is of X.509 version 1, which many clients do not take (Larix's own, among them): make it \
                         again with extensions (openssl x509 -req -extfile FILE, with subjectAltName in it)";

type Own<T> = (T, Source);

fn own_certificates(settings: &TlsSettings) -> Result<Option<Own<Vec<CertificateDer<'static>>>>, TlsError> {
    if let Some(der) = &settings.certificate {
        return Ok(Some((vec![der.clone().into()], Source::Value("olcTLSCertificate"))));
    }
    let Some(path) = &settings.certificate_file else { return Ok(None) };
    let certificates = Sections::read(CERTIFICATE, path)?.certificates(CERTIFICATE, path)?;
    Ok(Some((certificates, Source::File(path.clone()))))
}

/// The key; from the certificate's file if no other is named.
fn own_key(settings: &TlsSettings) -> Result<Own<PrivateKeyDer<'static>>, TlsError> {
    if let Some(der) = &settings.certificate_key {
        let source = Source::Value("olcTLSCertificateKey");
        let key = PrivateKeyDer::try_from(der.clone())
            .map_err(|why| TlsError::KeyKind { source: source.clone(), why: why.to_owned() })?;
        return Ok((key, source));
    }
    if let Some(path) = &settings.certificate_key_file {
        let key = Sections::read(KEY, path)?.key(KEY, path)?;
        return Ok((key, Source::File(path.clone())));
    }
    let lone = TlsError::Lone { given: CERTIFICATE, missing: KEY };
    let Some(path) = &settings.certificate_file else { return Err(lone) };
    let sections = Sections::read(CERTIFICATE, path)?;
    if sections.has_key() {
        return Ok((sections.key(CERTIFICATE, path)?, Source::File(path.clone())));
    }
    Err(lone)
}

/// The key with the certificate that it belongs to and the chain above that, whatever their order in the file. What the
/// file lacks is looked for among the authorities, as OpenSSL does.
fn certified(
    certificates: Vec<CertificateDer<'static>>,
    certificate_source: &Source,
    key: PrivateKeyDer<'static>,
    key_source: &Source,
    authorities: &Authorities,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    for certificate in &certificates {
        if Certificate::parse(certificate).is_none() {
            return Err(TlsError::Malformed {
                directive: CERTIFICATE,
                source: certificate_source.clone(),
                why: "what stands there as a certificate is none".to_owned(),
            });
        }
    }
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| TlsError::KeyKind { source: key_source.clone(), why: error.to_string() })?;
    // Whether it is good is for the clients to say.
    let fits = |certificate: &&CertificateDer<'static>| proof::belongs(certificate, key.as_ref()).is_ok();
    let Some(own) = certificates.iter().find(fits) else {
        return Err(TlsError::Mismatch { certificate: certificate_source.clone(), key: key_source.clone() });
    };
    Ok(CertifiedKey::new(chain(own, &certificates, &authorities.certificates), key))
}

/// A certificate and what is above it, each behind one that it may have signed. Of those that others have signed, too, clients take what
/// leads to an authority that they trust.
fn chain(
    own: &CertificateDer<'static>,
    file: &[CertificateDer<'static>],
    authorities: &[CertificateDer<'static>],
) -> Vec<CertificateDer<'static>> {
    let is_root = |certificate: &CertificateDer<'_>| {
        Certificate::parse(certificate).is_some_and(|certificate| certificate.is_self_issued())
    };
    let (mut waiting, mut chain) = (vec![own], Vec::new());
    while let Some(next) = waiting.pop() {
        if chain.contains(next) {
            continue;
        }
        let mut above = issuers(next, file);
        // Clients have their roots themselves: only one that the file itself names is sent.
        if above.is_empty() {
            above = issuers(next, authorities);
            above.retain(|certificate| !is_root(certificate));
        }
        if !is_root(own) {
            waiting.extend(above.into_iter().rev());
        }
        chain.push(next.clone());
    }
    chain
}

/// What clients may have against the server's certificate.
fn faults(chain: &[CertificateDer<'static>], source: &Source, now: Timestamp) -> Vec<String> {
    let Some(own) = chain.first().and_then(|own| Certificate::parse(own)) else { return Vec::new() };
    let mut notes = Vec::new();
    if own.is_version_1 {
        notes.push(format!("{CERTIFICATE} {source}: {VERSION_1}"));
    }
    if now > own.not_after {
        notes.push(format!("{CERTIFICATE} {source}: the certificate expired on {}", day(own.not_after)));
    }
    if now < own.not_before {
        notes.push(format!(
            "{CERTIFICATE} {source}: the certificate is valid from {} on",
            day(own.not_before)
        ));
    }
    notes
}

/// Authorities that no client is believed for any more.
fn expired(authorities: &Authorities, now: Timestamp) -> Vec<String> {
    let all = authorities.certificates.iter().filter_map(|authority| Certificate::parse(authority));
    let note = |authority: Certificate<'_>| {
        let name = name_to_dn(authority.subject).unwrap_or_default();
        format!("{AUTHORITIES}: {name} expired on {}, and signs no clients", day(authority.not_after))
    };
    all.filter(|authority| now > authority.not_after).map(note).collect()
}

fn day(time: Timestamp) -> String {
    let civil = time.civil();
    format!("{:04}-{:02}-{:02}", civil.year, civil.month, civil.day)
}

/// Authorities and their lists.
#[derive(Debug, Default)]
struct Authorities {
    certificates: Vec<CertificateDer<'static>>,
    lists: Vec<CertificateRevocationListDer<'static>>,
}

impl Authorities {
    fn load(settings: &TlsSettings) -> Result<Self, TlsError> {
        let mut all = Self::default();
        if let Some(der) = &settings.ca_certificate {
            all.certificates.push(der.clone().into());
        }
        if let Some(path) = &settings.ca_certificate_file {
            let sections = Sections::read(AUTHORITIES, path)?;
            all.lists.extend(sections.lists.iter().cloned());
            all.certificates.extend(sections.certificates(AUTHORITIES, path)?);
        }
        if let Some(path) = &settings.ca_certificate_path {
            for file in files::directory(AUTHORITIES_DIRECTORY, path)? {
                // Such directories hold other things beside: a README, bundles for Java.
                let Ok(sections) = Sections::read(AUTHORITIES_DIRECTORY, &file) else { continue };
                all.lists.extend(sections.lists);
                all.certificates.extend(sections.certificates);
            }
        }
        Ok(all)
    }
}

fn client_rules(
    settings: &TlsSettings,
    authorities: Authorities,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientRules, TlsError> {
    let trusted = Trusted::of(authorities.certificates);
    let verify = settings.verify_client;
    let level = match verify {
        TlsVerify::Try => Some("try"),
        TlsVerify::Demand => Some("demand"),
        TlsVerify::Never | TlsVerify::Allow => None,
    };
    if let Some(word) = level.filter(|_| trusted.is_empty()) {
        return Err(TlsError::Needs {
            setting: format!("TLSVerifyClient {word}"),
            needs: "authorities to believe: TLSCACertificateFile or TLSCACertificatePath",
        });
    }
    let mut lists = authorities.lists;
    if let Some(path) = &settings.crl_file {
        lists.extend(Sections::read(REVOCATIONS, path)?.lists(REVOCATIONS, path)?);
    }
    let check = match settings.crl_check.as_deref().map(str::to_ascii_lowercase).as_deref() {
        Some("peer") => RevocationCheck::Peer,
        Some("all") => RevocationCheck::All,
        _ if settings.crl_file.is_some() => RevocationCheck::Known,
        _ => RevocationCheck::None,
    };
    if matches!(check, RevocationCheck::Peer | RevocationCheck::All) && lists.is_empty() {
        return Err(TlsError::Needs {
            setting: format!("TLSCRLCheck {}", settings.crl_check.as_deref().unwrap_or_default()),
            needs: "revocation lists: in TLSCRLFile, TLSCACertificateFile or TLSCACertificatePath",
        });
    }
    let lists = newest_first(lists);
    let why = unusable(&lists);
    ClientRules::new(verify, trusted, check, lists, provider).map_err(|error| TlsError::Malformed {
        directive: REVOCATIONS,
        source: settings.crl_file.clone().map_or(Source::Value("the authorities"), Source::File),
        why: why.map_or_else(|| error.to_string(), str::to_owned),
    })
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
