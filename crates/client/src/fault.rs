//! What went wrong with TLS, in words, with the setting that corrects it.

use std::io;

use larix_proto::calendar::civil_from_days;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

use crate::authorities::is_authority_as_peer;
use crate::certificate::Certificate;

/// What the settings that correct a fault are called, by those who make the connection.
#[derive(Clone, Copy, Debug)]
pub struct SettingNames<'a> {
    /// The file with trusted certificates.
    pub trust: &'a str,
    /// Where a name may stand, or how another one is accepted.
    pub name: &'a str,
    /// The certificate of this side, and its key.
    pub certificate: &'a str,
    pub key: &'a str,
    /// The server's setting with the authorities of its clients.
    pub client_authorities: &'a str,
    /// What both sides allow.
    pub common: &'a str,
    /// How older versions are allowed.
    pub versions: &'a str,
    /// What to do if the server does not answer with TLS.
    pub no_tls: &'a str,
    /// What to do if the server is silent, or closes the connection.
    pub silent: &'a str,
}

impl SettingNames<'static> {
    /// Those of LDAP's clients.
    pub(crate) const LDAP: Self = Self {
        trust: "tls_cacert (-o tls_cacert=FILE of the tools, TLS_CACERT in ldap.conf)",
        name: "tls_reqsan says where the name may stand",
        certificate: "tls_cert",
        key: "tls_key",
        client_authorities: "TLSCACertificateFile",
        common: "tls_cipher_suite and tls_ecname say what is allowed here",
        versions: "set tls_protocol_min to 3.3 (TLS 1.2), or have the server speak TLS 1.2 or 1.3; nothing older is spoken",
        no_tls: "ldaps:// wants it from the first byte on; where LDAP begins in the clear, ask for StartTLS: ldap:// with \
                 -ZZ, or starttls=critical",
        silent: "Is ldaps:// served at this port? (ldap:// with -ZZ is StartTLS)",
    };
}

/// Why a handshake with `host` failed; `presented` is the server's certificate, if it came so far.
pub(crate) fn handshake(
    error: &io::Error,
    host: &str,
    presented: Option<&CertificateDer<'_>>,
    names: &SettingNames<'_>,
) -> String {
    match tls_error(error) {
        Some(error) => unfinished(error, host, presented, names),
        None => interrupted(error, names),
    }
}

/// The same of an error of TLS itself.
pub(crate) fn unfinished(
    error: &Error,
    host: &str,
    presented: Option<&CertificateDer<'_>>,
    names: &SettingNames<'_>,
) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error, host, presented, names),
        Error::InvalidMessage(_) => format!("what came is no TLS: {}", names.no_tls),
        error => words(error, names),
    }
}

/// What a TLS error says that came once the handshake was done; none for errors of another kind.
pub(crate) fn later(error: &io::Error, names: &SettingNames<'_>) -> Option<String> {
    tls_error(error).map(|error| words(error, names))
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// An error of the network in the middle of a handshake.
fn interrupted(error: &io::Error, names: &SettingNames<'_>) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            format!(
                "the server closed the connection during the handshake: its log says why. {}",
                names.silent
            )
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("the server did not answer the handshake in time. {}", names.silent)
        }
        _ => error.to_string(),
    }
}

/// An error that is not about the server's certificate.
pub(crate) fn words(error: &Error, names: &SettingNames<'_>) -> String {
    match error {
        Error::AlertReceived(alert) => refusal(*alert, names),
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => versions(names),
        Error::PeerIncompatible(what) => {
            format!("the two sides have nothing in common ({what:?}): {}", names.common)
        }
        Error::InvalidCertRevocationList(what) => {
            format!(
                "a revocation list cannot be used ({what:?}): see tls_crlfile, tls_cacert and tls_cacertdir"
            )
        }
        error => error.to_string(),
    }
}

fn versions(names: &SettingNames<'_>) -> String {
    format!("the server speaks none of the TLS versions that are allowed here: {}", names.versions)
}

/// What the server has against us.
fn refusal(alert: AlertDescription, names: &SettingNames<'_>) -> String {
    let SettingNames { certificate, key, common, client_authorities, .. } = names;
    match alert {
        AlertDescription::ProtocolVersion => versions(names),
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            format!(
                "the server finds nothing that both sides allow ({common}), or wants a certificate of the client \
                 ({certificate} and {key})"
            )
        }
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            format!(
                "the server wants a certificate of the client: name yours in {certificate}, and its key in {key}"
            )
        }
        AlertDescription::UnknownCA => {
            format!(
                "the server does not trust the authority of our certificate ({certificate}): its {client_authorities} has to \
                 have that authority, and {certificate} what stands between it and ours (a server that checks revocations says \
                 so, too, if its list of that authority is missing or out of date)"
            )
        }
        AlertDescription::CertificateExpired => {
            format!("the server says that our certificate ({certificate}) has expired, or is not valid yet")
        }
        AlertDescription::CertificateRevoked => {
            format!("the server says that our certificate ({certificate}) is revoked")
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => {
            format!("the server refuses our certificate ({certificate}); its log says why")
        }
        AlertDescription::UnrecognisedName => {
            "the server has no certificate for the name that it was asked for".to_owned()
        }
        other => format!("the server ended it with the alert {other:?}; its log says why"),
    }
}

/// What is wrong with the server's certificate.
fn certificate(
    error: &CertificateError,
    host: &str,
    presented: Option<&CertificateDer<'_>>,
    names: &SettingNames<'_>,
) -> String {
    let trust = names.trust;
    let presented = presented.and_then(|der| Certificate::read(der).ok()).unwrap_or_default();
    match error {
        CertificateError::UnknownIssuer if presented.is_self_issued => format!(
            "the server's certificate is signed by itself ({}) and is none of the trusted ones: if it is the right one, name \
             its file in {trust}",
            presented.issuer
        ),
        CertificateError::UnknownIssuer => format!(
            "the server's certificate is from an authority that is not trusted ({}): name the file with that authority's \
             certificate in {trust}; what stands between them belongs to the server's certificate",
            presented.issuer
        ),
        CertificateError::BadSignature => format!(
            "a signature of the server's certificate is wrong: {} has the name of a trusted authority, and another key. Is its \
             certificate in {trust} an old one?",
            presented.issuer
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => wrong_name(host, &presented, names),
        CertificateError::ExpiredContext { time, not_after } => format!(
            "the server's certificate, or one above it, expired on {}: it has to be renewed there (this machine's clock says {})",
            date(*not_after),
            date(*time)
        ),
        CertificateError::Expired => format!(
            "an authority above the server's certificate has expired, or is not valid yet: name the file with one that is valid in \
             {trust}"
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "the server's certificate, or one above it, is not valid before {}: this machine's clock says {}",
            date(*not_before),
            date(*time)
        ),
        CertificateError::Revoked => {
            "the server's certificate is revoked (by a list in tls_crlfile, tls_cacert or tls_cacertdir)".to_owned()
        }
        CertificateError::UnknownRevocationStatus => {
            "no list says whether the server's certificate is revoked: tls_crlfile or tls_cacertdir has to have one of its \
             authority, or tls_crlcheck be none"
                .to_owned()
        }
        CertificateError::ExpiredRevocationListContext { next_update, .. } => format!(
            "the list of revoked certificates was to be renewed on {}: see tls_crlfile",
            date(*next_update)
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the server's certificate is not for servers: its extended key usage leaves out serverAuth".to_owned()
        }
        CertificateError::BadEncoding => "the server's certificate cannot be read".to_owned(),
        other => unusual(other, &presented, names),
    }
}

fn unusual(
    error: &CertificateError,
    presented: &Certificate,
    SettingNames { trust, .. }: &SettingNames<'_>,
) -> String {
    let whole = Error::InvalidCertificate(error.clone());
    if is_authority_as_peer(&whole) {
        return format!(
            "the server's certificate is an authority's ({}, CA:TRUE), and is not itself among the trusted ones: name its file \
             in {trust}, or give the server a certificate of its own",
            presented.issuer
        );
    }
    format!("the server's certificate cannot be used: {}", unusable(error))
}

/// What the TLS library has against a certificate, whosever it is.
fn unusable(error: &CertificateError) -> String {
    match error {
        // The library's own type is not ours to name.
        CertificateError::Other(what) if what.0.to_string() == "UnsupportedCertVersion" => {
            "it is of X.509 version 1, which the TLS library does not take: make it again with extensions (openssl x509 -req \
             -extfile FILE, with subjectAltName in it)"
                .to_owned()
        }
        CertificateError::Other(what) if what.0.to_string() == "UnsupportedCriticalExtension" => {
            "an extension is marked critical that the TLS library does not know (certificatePolicies, for one)".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it, or one above it, is signed in a way that the TLS library does not take: with a key on P-521, with a key of RSA below 2048 \
             bits, with ECDSA and SHA-512, or with SHA-1"
                .to_owned()
        }
        CertificateError::Other(what) => what.0.to_string(),
        other => format!("{other:?}"),
    }
}

/// What is wrong with the certificate and the key of this side.
pub(crate) fn own_certificate(error: &Error, key_file: &str, names: &SettingNames<'_>) -> String {
    let SettingNames { certificate, key, .. } = names;
    match error {
        Error::InconsistentKeys(_) => {
            format!("the certificate ({certificate}) does not belong to the key in {key_file} ({key})")
        }
        Error::InvalidCertificate(error) => {
            format!("the certificate ({certificate}) cannot be used: {}", unusable(error))
        }
        error => format!("{certificate} and {key} cannot be used: {error}"),
    }
}

fn wrong_name(
    host: &str,
    presented: &Certificate,
    SettingNames { name: rule, .. }: &SettingNames<'_>,
) -> String {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if presented.alternatives.iter().any(|name| name.eq_ignore_ascii_case(bare)) {
        return format!(
            "the server's certificate has {host} among its alternative names, and these do not count here ({rule})"
        );
    }
    let names = if presented.has_alternatives && !presented.alternatives.is_empty() {
        format!("is for {}", presented.alternatives.join(", "))
    } else if let Some(name) = &presented.common_name {
        format!("has no alternative name, only the common name {name}")
    } else {
        "names no host".to_owned()
    };
    format!(
        "the server's certificate {names}, and not for {host}: ask for the server by a name that it has, or give it a \
         certificate with this one ({rule})"
    )
}

/// As `2026-11-23 14:05:46 UTC`.
fn date(time: UnixTime) -> String {
    let seconds = time.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(i64::try_from(days).unwrap_or_default());
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_name_that_does_not_count() {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let presented =
            Certificate { alternatives: names.into(), has_alternatives: true, ..Certificate::default() };
        let text = wrong_name("127.0.0.1", &presented, &SettingNames::LDAP);
        assert!(
            text.contains("has 127.0.0.1 among its alternative names") && text.contains("tls_reqsan"),
            "{text}"
        );
        let text = wrong_name("other.example", &presented, &SettingNames::LDAP);
        assert!(text.contains("is for localhost, 127.0.0.1, and not for other.example"), "{text}");
    }

    #[test]
    fn seconds_since_1970_are_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_442_746, "2026-11-23 14:05:46 UTC"),
            (4_102_444_799, "2099-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(date(UnixTime::since_unix_epoch(Duration::from_secs(seconds))), expected);
        }
    }
}
