//! The connection to a provider, as a `syncrepl` line wants it.

use std::path::Path;
use std::time::Duration;

use larix_client::{
    Ambient, ClientError, ConnectionOptions, Credentials, KeepAlive, Mechanism, SaslPassword, Session, Stop,
    TlsOptions,
};
use larix_configuration::values::{SecurityProperties, StartTls, SyncReplication, TlsSettings};
use larix_engine::time::RandomSource as _;
use larix_proto::url::LdapUrl;
use larix_proto::{client, oid};

use crate::clock::SystemRandom;
use crate::tls::end_point_binding;

/// Where a line says nothing of it: a provider whose machine or network is gone is noticed after two minutes. The system's
/// own times are hours, in which a consumer that only listens would take silence for peace.
pub(super) const KEEP_ALIVE: KeepAlive = KeepAlive { idle: 60, probes: 4, interval: 15 };

/// How long a provider may say nothing, in the refresh and behind it, until it is asked for a sign of life, or how long it may take
/// to answer (`is_asked`). The kernel's probes find a machine that is gone, this a process that stands still.
pub(super) fn silence(keep_alive: Option<KeepAlive>, is_asked: bool) -> Option<Duration> {
    let keep_alive = keep_alive.unwrap_or(KEEP_ALIVE);
    let or = |seconds: u32, usual: u32| if seconds == 0 { usual } else { seconds };
    let answers =
        or(keep_alive.probes, KEEP_ALIVE.probes).saturating_mul(or(keep_alive.interval, KEEP_ALIVE.interval));
    let seconds = if is_asked { answers } else { keep_alive.idle };
    (keep_alive.idle > 0).then(|| Duration::from_secs(seconds.into()))
}

/// Connects to the first of the line's providers that lets us in, and binds. Also: what StartTLS was refused with, where the line lets
/// that be. The provider has so much time for each answer from then on as it had for that of the bind, unless another time is set.
///
/// # Errors
/// Why the last of them did not.
pub(super) fn connect(
    line: &SyncReplication,
    server: &TlsSettings,
    stop: &Stop,
) -> Result<(Session, Option<String>), ClientError> {
    let tls = tls_options(line, server);
    let mut last = ClientError::Usage("no provider is given".to_owned());
    for provider in &line.providers {
        last = match connect_to(provider, line, &tls, stop) {
            Ok(connected) => return Ok(connected),
            // It says which one it is, and one alone needs no name.
            Err(error) if matches!(error, ClientError::Connect { .. }) || line.providers.len() == 1 => error,
            Err(error) => ClientError::At { url: provider.to_string(), error: Box::new(error) },
        };
    }
    Err(last)
}

fn connect_to(
    provider: &LdapUrl,
    line: &SyncReplication,
    tls: &TlsOptions,
    stop: &Stop,
) -> Result<(Session, Option<String>), ClientError> {
    let seconds = |seconds: u32| (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    let connects_within = seconds(line.network_timeout).or_else(|| silence(line.keep_alive, true));
    let options = ConnectionOptions {
        connect_timeout: connects_within,
        keep_alive: line.keep_alive.or(Some(KEEP_ALIVE)),
        user_timeout: (line.user_timeout > 0).then(|| Duration::from_millis(line.user_timeout.into())),
        stop: stop.clone(),
    };
    let ambient = Ambient { random: |bytes| SystemRandom.fill(bytes), end_point_binding };
    let mut session = Session::connect(std::slice::from_ref(provider), &options, tls, ambient)?;
    session.set_patience(seconds(line.timeout).or(connects_within))?;
    let mut note = None;
    if line.start_tls != StartTls::No
        && !session.connection.is_secure()
        && let Some(result) = session.start_tls(tls)?
    {
        if line.start_tls == StartTls::Critical {
            return Err(ClientError::Refused { step: "StartTLS", result });
        }
        note = Some(format!("goes on without TLS: StartTLS was answered {result}"));
    }
    match credentials(line)? {
        Some(credentials) => {
            if let (Some(properties), true) = (&line.bind.properties, line.bind.sasl)
                && let Some(why) = forbidden(properties, &credentials, session.connection.is_private())
            {
                return Err(ClientError::Usage(format!("secprops: {why}")));
            }
            session.bind(&credentials)?;
        }
        // A bind would have been answered. Whatever the provider says now, it does not stand still: else the next one is asked.
        None if line.providers.len() > 1 => {
            session.call(|out, id, _| client::extended(out, id, oid::WHO_AM_I, None, &[]))?;
        }
        None => {}
    }
    Ok((session, note))
}

fn credentials(line: &SyncReplication) -> Result<Option<Credentials>, ClientError> {
    let bind = &line.bind;
    if !bind.sasl {
        let simple = Credentials::Simple { dn: bind.dn.clone(), password: bind.credentials.clone() };
        return Ok((!bind.dn.is_empty()).then_some(simple));
    }
    let authorization = bind.authorization.clone().unwrap_or_default();
    let name = bind.mechanism.as_deref().unwrap_or_default();
    if name.eq_ignore_ascii_case("EXTERNAL") {
        return Ok(Some(Credentials::External { authorization }));
    }
    Ok(Some(Credentials::Sasl(SaslPassword {
        mechanism: Mechanism::from_name(name)?,
        user: bind.authentication.clone().unwrap_or_default(),
        authorization,
        realm: bind.realm.clone().unwrap_or_default(),
        password: bind.credentials.clone(),
    })))
}

/// Why these properties (`secprops`) do not let the bind be, if they do not. A transport that no third party can listen to is as good
/// as a layer; none of our own is put on.
fn forbidden(
    properties: &SecurityProperties,
    credentials: &Credentials,
    private: bool,
) -> Option<&'static str> {
    // As Cyrus SASL has it of its mechanisms.
    let (plain, passive, active, passes_on) = match credentials {
        Credentials::External { .. } => (false, false, true, false),
        Credentials::Sasl(sasl) => match sasl.mechanism {
            Mechanism::Plain => (true, true, true, true),
            Mechanism::Scram { .. } => (false, true, false, false),
            Mechanism::DigestMd5 => (false, true, true, false),
            #[cfg(feature = "gssapi")]
            Mechanism::Gssapi => (false, true, false, true),
        },
        Credentials::Simple { .. } => return None,
    };
    [
        (properties.no_plain && plain && !private, "noplain: the password would be shown"),
        (properties.no_dictionary && passive, "nodict: who listens could try passwords"),
        (properties.no_active && active, "noactive: it falls to an active attacker"),
        (properties.pass_credentials && !passes_on, "passcred: the mechanism hands no credentials over"),
        (properties.forward_secrecy, "forwardsec: no mechanism has that of its own"),
        (properties.min_ssf > 0 && !private, "minssf: there is no layer but TLS"),
    ]
    .into_iter()
    .find_map(|(is_so, why)| is_so.then_some(why))
}

/// What the line says, and beside it what holds for the server itself. Only whether the provider's certificate is checked
/// is not inherited: it is, unless the line says otherwise.
pub(crate) fn tls_options(line: &SyncReplication, server: &TlsSettings) -> TlsOptions {
    let path =
        |path: &Option<std::path::PathBuf>| path.as_deref().map(Path::to_string_lossy).map(String::from);
    let has_own = |name: &str| line.tls.iter().any(|(key, _)| key == name);
    let authorities = has_own("tls_cacert") || has_own("tls_cacertdir");
    let inherited = [
        ("tls_cacert", path(&server.ca_certificate_file).filter(|_| !authorities)),
        ("tls_cacertdir", path(&server.ca_certificate_path).filter(|_| !authorities)),
        ("tls_cert", path(&server.certificate_file).filter(|_| !has_own("tls_cert"))),
        ("tls_key", path(&server.certificate_key_file).filter(|_| !has_own("tls_cert"))),
        ("tls_cipher_suite", server.cipher_suite.clone()),
        ("tls_protocol_min", server.protocol_min.clone()),
        ("tls_ecname", server.ec_name.clone()),
        ("tls_crlcheck", server.crl_check.clone()),
        ("tls_crlfile", path(&server.crl_file)),
    ];
    let inherited: Vec<(&str, String)> = inherited
        .into_iter()
        .filter(|(name, _)| !has_own(name))
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    let own = line.tls.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    TlsOptions::new(own.chain(inherited.iter().map(|(name, value)| (*name, value.as_str()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_silence_may_last() {
        let keep_alive = |idle, probes, interval| Some(KeepAlive { idle, probes, interval });
        for (line, until_asked, until_answered) in [
            (None, Some(60), Some(60)),
            (keep_alive(10, 3, 5), Some(10), Some(15)),
            (keep_alive(10, 0, 5), Some(10), Some(20)),
            (keep_alive(10, 3, 0), Some(10), Some(45)),
            // 0: no probes, and nothing is asked.
            (keep_alive(0, 3, 5), None, None),
        ] {
            let seconds = |is_asked| silence(line, is_asked).map(|silence| silence.as_secs());
            assert_eq!((seconds(false), seconds(true)), (until_asked, until_answered), "{line:?}");
        }
    }

    #[test]
    fn properties_forbid_binds() {
        let sasl = |mechanism: &str| {
            Credentials::Sasl(SaslPassword {
                mechanism: Mechanism::from_name(mechanism).unwrap(),
                user: "u".to_owned(),
                authorization: String::new(),
                realm: String::new(),
                password: b"p".to_vec().into(),
            })
        };
        for (properties, mechanism, private, expected) in [
            ("noplain", "PLAIN", false, Some("noplain")),
            ("noplain", "PLAIN", true, None),
            ("noplain", "DIGEST-MD5", false, None),
            ("noactive", "DIGEST-MD5", false, Some("noactive")),
            ("noactive", "SCRAM-SHA-256", false, None),
            ("nodict", "SCRAM-SHA-256", true, Some("nodict")),
            ("passcred", "SCRAM-SHA-1", true, Some("passcred")),
            ("none,minssf=1", "SCRAM-SHA-1", false, Some("minssf")),
            ("none,minssf=1", "SCRAM-SHA-1", true, None),
            ("none", "PLAIN", false, None),
        ] {
            let parsed = SecurityProperties::parse(properties).unwrap();
            let found = forbidden(&parsed, &sasl(mechanism), private);
            let word = found.and_then(|why| why.split(':').next());
            assert_eq!(word, expected, "{properties} {mechanism} {private}");
        }
    }
}
