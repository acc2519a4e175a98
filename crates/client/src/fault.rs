//! What went wrong with TLS, in words, with the setting that corrects it.

use std::io;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

use crate::certificate::Certificate;
use crate::trust::is_authority_as_server;

/// Where trusted certificates are named.
const TRUST: &str = "tls_cacert (-o tls_cacert=FILE of the tools, TLS_CACERT in ldap.conf)";
/// What is to be done about versions.
const VERSIONS: &str = "the server speaks none of the TLS versions that are allowed here: set tls_protocol_min to 3.3 \
                        (TLS 1.2), or have the server speak TLS 1.2 or 1.3; nothing older is spoken";
const WANTS_CERTIFICATE: &str =
    "the server wants a certificate of the client: name yours in tls_cert, and its key in tls_key";

/// Why a handshake with `host` failed; `shown` is the server's certificate, if it came so far.
pub(crate) fn handshake(error: &io::Error, host: &str, shown: Option<&CertificateDer<'_>>) -> String {
    match tls_error(error) {
        Some(Error::InvalidCertificate(error)) => certificate(error, host, shown),
        Some(Error::InvalidMessage(_)) => "what came is no TLS: ldaps:// wants it from the first byte on; where LDAP begins \
                                           in the clear, ask for StartTLS: ldap:// with -ZZ, or starttls=critical"
            .to_owned(),
        Some(error) => words(error),
        None => interrupted(error),
    }
}

/// What a TLS error says that came once the handshake was done; none for errors of another kind.
pub(crate) fn later(error: &io::Error) -> Option<String> {
    tls_error(error).map(words)
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// An error of the network in the middle of a handshake.
fn interrupted(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "the server closed the connection during the handshake: its log says why. Is ldaps:// served at this \
             port? (ldap:// with -ZZ is StartTLS)"
                .to_owned()
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            "the server did not answer the handshake in time. Is ldaps:// served at this port? (ldap:// with -ZZ is \
             StartTLS)"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// An error that is not about the server's certificate.
pub(crate) fn words(error: &Error) -> String {
    match error {
        Error::AlertReceived(alert) => refusal(*alert),
        Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => VERSIONS.to_owned(),
        Error::PeerIncompatible(what) => {
            format!(
                "the two sides have nothing in common ({what:?}): tls_cipher_suite and tls_ecname say what is allowed here"
            )
        }
        Error::InvalidCertRevocationList(what) => {
            format!("a revocation list cannot be used ({what:?}): see tls_crlfile and tls_cacert")
        }
        error => error.to_string(),
    }
}

/// What the server has against us.
fn refusal(alert: AlertDescription) -> String {
    let text = match alert {
        AlertDescription::ProtocolVersion => VERSIONS,
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
            "the server finds nothing that both sides allow (here tls_cipher_suite and tls_ecname say what), or wants a \
             certificate of the client (tls_cert and tls_key)"
        }
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => WANTS_CERTIFICATE,
        AlertDescription::UnknownCA => {
            "the server does not trust the authority of our certificate (tls_cert): its TLSCACertificateFile has to have \
             that authority, and tls_cert what stands between it and ours"
        }
        AlertDescription::CertificateExpired => {
            "the server says that our certificate (tls_cert) has expired, or is not valid yet"
        }
        AlertDescription::CertificateRevoked => "the server says that our certificate (tls_cert) is revoked",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "the server refuses our certificate (tls_cert); its log says why",
        AlertDescription::UnrecognisedName => {
            "the server has no certificate for the name that it was asked for"
        }
        other => return format!("the server ended it with the alert {other:?}; its log says why"),
    };
    text.to_owned()
}

/// What is wrong with the server's certificate.
fn certificate(error: &CertificateError, host: &str, shown: Option<&CertificateDer<'_>>) -> String {
    let shown = shown.and_then(|der| Certificate::read(der).ok()).unwrap_or_default();
    match error {
        CertificateError::UnknownIssuer if shown.is_self_issued => format!(
            "the server's certificate is signed by itself ({}) and is none of the trusted ones: if it is the right one, name \
             its file in {TRUST}",
            shown.issuer
        ),
        CertificateError::UnknownIssuer => format!(
            "the server's certificate is from an authority that is not trusted ({}): name the file with that authority's \
             certificate in {TRUST}; what stands between them belongs to the server's certificate",
            shown.issuer
        ),
        CertificateError::BadSignature => format!(
            "a signature of the server's certificate is wrong: {} has the name of a trusted authority, and another key. Is its \
             certificate in {TRUST} an old one?",
            shown.issuer
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => wrong_name(host, &shown),
        CertificateError::ExpiredContext { time, not_after } => format!(
            "the server's certificate, or one above it, expired on {}: it has to be renewed there (this machine's clock says {})",
            date(*not_after),
            date(*time)
        ),
        CertificateError::Expired => "the server's certificate has expired: it has to be renewed there".to_owned(),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "the server's certificate, or one above it, is not valid before {}: this machine's clock says {}",
            date(*not_before),
            date(*time)
        ),
        CertificateError::Revoked => "the server's certificate is revoked (by a list in tls_crlfile or tls_cacert)".to_owned(),
        CertificateError::UnknownRevocationStatus => {
            "no list says whether the server's certificate is revoked: tls_crlfile has to have one of its authority, or \
             tls_crlcheck be none"
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
        other => unusual(other, &shown),
    }
}

fn unusual(error: &CertificateError, shown: &Certificate) -> String {
    let whole = Error::InvalidCertificate(error.clone());
    if is_authority_as_server(&whole) {
        return format!(
            "the server's certificate is an authority's ({}, CA:TRUE), and is not itself among the trusted ones: name its file \
             in {TRUST}, or give the server a certificate of its own",
            shown.issuer
        );
    }
    match error {
        CertificateError::Other(what) => format!("the server's certificate cannot be used: {}", what.0),
        other => format!("the server's certificate cannot be used: {other:?}"),
    }
}

fn wrong_name(host: &str, shown: &Certificate) -> String {
    let names = if shown.has_alternatives && !shown.alternatives.is_empty() {
        format!("is for {}", shown.alternatives.join(", "))
    } else if let Some(name) = &shown.common_name {
        format!("has no alternative name, only the common name {name}")
    } else {
        "names no host".to_owned()
    };
    format!(
        "the server's certificate {names}, and not for {host}: ask for the server by a name that it has, or give it a \
         certificate with this one (tls_reqsan says where the name may stand)"
    )
}

/// As `2026-11-23 14:05:46 UTC`.
fn date(time: UnixTime) -> String {
    let seconds = time.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3_600, rest / 60 % 60, rest % 60)
}

/// Year, month and day of a number of days since 1970, by the Gregorian calendar: years are counted from March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates() {
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
