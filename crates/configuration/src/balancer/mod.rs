//! Settings of the balancer, and the one reader of their keywords: for a file of `larix balance` (lloadd.conf(5)), for `backend lload` in a
//! slapd.conf, and for cn=config.

mod config_settings;
mod settings;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{limits, oid};

use self::values::{action, backend_server, bind_conf, milliseconds, object_identifier, seconds, size};
use super::conf_file::{ConfLine, conf_lines};
use super::diagnostic::{ConfigError, Origin};
use super::line::c_integer;
use super::values::TlsVerify;

pub(crate) use self::config_settings::{BACKEND_CLASS, CLASS, MODULE, SHOWN_ALWAYS, TIER_CLASS};
pub use self::settings::{
    Action, BackendSettings, BalanceSettings, BindSettings, Coherence, ProxyHeader, Strategy, TierSettings,
};
pub(crate) use self::values::{Wrong, WrongAt, check_server, server_key, strategy};
pub use super::values::StartTls;

/// Accepted, and without effect: why.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("threads", "one thread forwards everything"),
    ("threadqueues", "one thread forwards everything"),
    ("io-threads", "one thread forwards everything"),
    ("concurrency", "one thread forwards everything"),
    ("max_pdus_per_cycle", "every connection has its turn after one read"),
    ("loglevel", "connections to servers and faults are always logged, to standard error"),
    ("logfile", "messages go to standard error"),
    ("logfile-format", "messages go to standard error"),
    ("logfile-only", "messages go to standard error"),
    ("logfile-rotate", "messages go to standard error"),
    ("tlsrandfile", "random bytes come from the system"),
    ("tlsdhparamfile", "key exchange is by elliptic curves"),
    ("modulepath", "everything is built in"),
    ("moduleload", "everything is built in"),
];

const KNOWN: &[&str] = &[
    "argsfile",
    "backend",
    "backend-server",
    "bindconf",
    "client_max_pending",
    "disable",
    "enable",
    "feature",
    "idletimeout",
    "include",
    "iotimeout",
    "listen",
    "pidfile",
    "restrict_control",
    "restrict_exop",
    "sockbuf_max_incoming_client",
    "sockbuf_max_incoming_upstream",
    "sockbuf_max_pending_client",
    "tier",
    "TLSCACertificateFile",
    "TLSCACertificatePath",
    "TLSCertificateFile",
    "TLSCertificateKeyFile",
    "TLSCipherSuite",
    "TLSCRLCheck",
    "TLSCRLFile",
    "TLSECName",
    "TLSProtocolMin",
    "TLSShareSlapdCTX",
    "TLSVerifyClient",
    "write_coherence",
];

/// Reads a configuration.
///
/// # Errors
/// Names the line, the word and the mend.
pub fn read(path: &Path) -> Result<BalanceSettings, ConfigError> {
    let mut settings = BalanceSettings::default();
    conf_lines(path, &mut |line| {
        let wrong = |(at, wrong): WrongAt| line.error(at, wrong.message, &wrong.help);
        check_keyword(line)?;
        take(&mut settings, line.keyword(), line.arguments()).map_err(wrong)
    })?;
    let fail = |wrong: Wrong| {
        let message = format!("`{}` {}", path.display(), wrong.message);
        ConfigError::new(Origin::BuiltIn, message).with_help(wrong.help)
    };
    if settings.backends().next().is_none() {
        let help = "tier roundrobin, and below it backend-server uri=ldap://ldap1.example.com";
        return Err(fail(Wrong::new("names no server", help)));
    }
    if std::mem::take(&mut settings.shares_tls) {
        settings
            .notes
            .push("TLSShareSlapdCTX: accepted, without effect: there is one TLS context".to_owned());
    }
    let notes = check(&settings).map_err(fail)?;
    settings.notes.extend(notes);
    Ok(settings)
}

/// Whether the settings go together, and what is to be known of them. The message of a fault goes on behind what it is about.
pub(crate) fn check(settings: &BalanceSettings) -> Result<Vec<String>, Wrong> {
    if !settings.is_bind_given && settings.proxy_authorization {
        let help = "bindconf bindmethod=simple binddn=cn=balancer,dc=example,dc=com credentials=SECRET: an identity that may use \
                    the proxied authorization control at the servers. Without one write `disable proxyauthz`: all clients have \
                    the rights of anonymous ones";
        return Err(Wrong::new("has no bindconf", help));
    }
    let mut notes = Vec::new();
    let in_clear = |backend: &BackendSettings| {
        backend.url.scheme == UrlScheme::Ldap && backend.start_tls == StartTls::Yes
    };
    if settings.backends().any(in_clear) {
        notes.push(
            "starttls=yes: a server that refuses StartTLS is not used, since credentials do not go in the clear".to_owned(),
        );
    }
    if settings.bind.credentials.is_none() && settings.proxy_authorization {
        notes.push(
            "bindconf has no credentials: servers will refuse the operations of clients that are bound; give the balancer \
             an identity, or write `disable proxyauthz`"
                .to_owned(),
        );
    }
    Ok(notes)
}

/// Whether the keyword of a line is one.
fn check_keyword(line: &ConfLine<'_>) -> Result<(), ConfigError> {
    let names = || KNOWN.iter().copied().chain(WITHOUT_EFFECT.iter().map(|(name, _)| *name));
    if names().any(|known| known.eq_ignore_ascii_case(line.keyword())) {
        return Ok(());
    }
    let help = match nearest(&line.keyword().to_ascii_lowercase(), &names().collect::<Vec<_>>()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("one of {}", KNOWN.join(", ")),
    };
    Err(line.error(None, format!("unknown keyword `{}`", line.keyword()), &help))
}

/// Takes a keyword with its arguments.
pub(crate) fn take(
    settings: &mut BalanceSettings,
    keyword: &str,
    arguments: &[String],
) -> Result<(), WrongAt> {
    let lower = keyword.to_ascii_lowercase();
    if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(known, _)| *known == lower) {
        settings.notes.push(format!("{keyword}: accepted, without effect: {why}"));
        return Ok(());
    }
    match lower.as_str() {
        "backend-server" => return server(settings, arguments),
        "bindconf" => {
            settings.bind = bind_conf(arguments)?;
            settings.is_bind_given = true;
            return Ok(());
        }
        "listen" => {
            for (number, word) in arguments.iter().enumerate() {
                for url in word.split_ascii_whitespace() {
                    check_listener(url).map_err(|wrong| (Some(number), wrong))?;
                    settings.listen.push(url.to_owned());
                }
            }
            return Ok(());
        }
        "restrict_exop" | "restrict_control" => return restriction(settings, arguments, &lower),
        "enable" | "disable" | "feature" => return feature(settings, arguments, &lower),
        _ => {}
    }
    let [value] = arguments else {
        return Err((None, Wrong::new(format!("`{keyword}` takes one value"), "")));
    };
    single(settings, &lower, value).map_err(|wrong| (Some(0), wrong))
}

/// Keywords with one value.
fn single(settings: &mut BalanceSettings, keyword: &str, value: &str) -> Result<(), Wrong> {
    // An empty one takes back an earlier line, as in lloadd.
    let file = || (!value.is_empty()).then(|| PathBuf::from(value));
    let chosen = || (!value.is_empty()).then(|| value.to_owned());
    let text = || Some(value.to_owned());
    let tls = &mut settings.tls;
    match keyword {
        "backend" if value.eq_ignore_ascii_case("lload") => {}
        "backend" => {
            return Err(Wrong::new(format!("`backend {value}` is not possible here"), "backend lload"));
        }
        "tier" => {
            let name = format!("tier {}", settings.tiers.len() + 1);
            settings.tiers.push(TierSettings { name, strategy: strategy(value)?, backends: Vec::new() });
        }
        "iotimeout" => settings.io_timeout = milliseconds(keyword, value)?,
        "idletimeout" => settings.idle_timeout = seconds(keyword, value)?,
        "client_max_pending" => settings.client_max_pending = size(keyword, value)?,
        "write_coherence" => {
            settings.write_coherence = match c_integer(value) {
                Some(0) => Coherence::Off,
                Some(seconds) if seconds < 0 => Coherence::UntilBind,
                Some(seconds) => Coherence::For(Duration::from_secs(seconds.unsigned_abs())),
                None => {
                    return Err(Wrong::of(keyword, value, "seconds, 0 for off, -1 for until the next bind"));
                }
            };
        }
        "sockbuf_max_incoming_client" => settings.client_message_bytes = message_bytes(keyword, value)?,
        "sockbuf_max_incoming_upstream" => settings.upstream_message_bytes = message_bytes(keyword, value)?,
        "sockbuf_max_pending_client" => settings.client_output_bytes = size(keyword, value)?,
        "tlsshareslapdctx" => {
            settings.shares_tls = match value.to_ascii_lowercase().as_str() {
                "on" | "true" | "yes" => true,
                "off" | "false" | "no" => false,
                _ => return Err(Wrong::of(keyword, value, "on or off")),
            };
        }
        "pidfile" => settings.pid_file = file(),
        "argsfile" => settings.args_file = file(),
        "tlscacertificatefile" => tls.ca_certificate_file = file(),
        "tlscacertificatepath" => tls.ca_certificate_path = file(),
        "tlscertificatefile" => tls.certificate_file = file(),
        "tlscertificatekeyfile" => tls.certificate_key_file = file(),
        "tlsciphersuite" => tls.cipher_suite = chosen(),
        "tlscrlcheck" => tls.crl_check = text(),
        "tlscrlfile" => tls.crl_file = file(),
        "tlsecname" => tls.ec_name = chosen(),
        "tlsprotocolmin" => tls.protocol_min = text(),
        "tlsverifyclient" => {
            tls.verify_client = match value.to_ascii_lowercase().as_str() {
                "never" => TlsVerify::Never,
                "allow" => TlsVerify::Allow,
                "try" => TlsVerify::Try,
                "demand" | "hard" | "on" | "true" | "yes" => TlsVerify::Demand,
                _ => return Err(Wrong::of(keyword, value, "never, allow, try or demand")),
            };
        }
        _ => return Err(Wrong::new(format!("unknown keyword `{keyword}`"), "")),
    }
    Ok(())
}

fn message_bytes(keyword: &str, value: &str) -> Result<usize, Wrong> {
    let bytes = size(keyword, value)?;
    if bytes == 0 || bytes > limits::PDU_CEILING {
        return Err(Wrong::of(keyword, value, "bytes, from 1 to 1073741824"));
    }
    Ok(bytes)
}

fn server(settings: &mut BalanceSettings, arguments: &[String]) -> Result<(), WrongAt> {
    let Some(tier) = settings.tiers.last_mut() else {
        let help = "write `tier roundrobin` above it: servers of one tier are tried together";
        return Err((None, Wrong::new("`backend-server` stands below no `tier`", help)));
    };
    let name = format!("server {}", tier.backends.len() + 1);
    let (backend, weight_at) = backend_server(name, arguments)?;
    if let (Some(at), Strategy::RoundRobin) = (weight_at, tier.strategy) {
        let help = "take weight= out, or write `tier weighted` or `tier bestof`";
        return Err((Some(at), Wrong::new("`tier roundrobin` has no weights", help)));
    }
    tier.backends.push(backend);
    Ok(())
}

fn restriction(settings: &mut BalanceSettings, arguments: &[String], keyword: &str) -> Result<(), WrongAt> {
    let [name, word] = arguments else {
        let help = format!("{keyword} 1.2.840.113556.1.4.319 connection");
        return Err((None, Wrong::new(format!("`{keyword}` takes an OID and an action"), help)));
    };
    let name = object_identifier(name).map_err(|wrong| (Some(0), wrong))?;
    let action = action(word).map_err(|wrong| (Some(1), wrong))?;
    match keyword {
        "restrict_exop" if name == "1.1" => settings.exop_default = action,
        "restrict_exop" => {
            if name == oid::START_TRANSACTION && action != Action::Reject {
                // What may begin may end; a line of its own says otherwise.
                settings.exop_rules.remove(oid::END_TRANSACTION);
            }
            settings.exop_rules.insert(name, action);
        }
        _ => {
            settings.control_rules.insert(name, action);
        }
    }
    Ok(())
}

fn feature(settings: &mut BalanceSettings, arguments: &[String], keyword: &str) -> Result<(), WrongAt> {
    if arguments.is_empty() {
        return Err((None, Wrong::new(format!("`{keyword}` names no feature"), "proxyauthz, vc")));
    }
    for (at, name) in arguments.iter().enumerate() {
        match name.to_ascii_lowercase().as_str() {
            "proxyauthz" => settings.proxy_authorization = keyword != "disable",
            // With the word or without.
            "read_pause" => {
                settings.notes.push(format!(
                    "{keyword} read_pause: without effect: connections to servers always pause for clients that do not read"
                ));
            }
            "vc" => settings.verifies_credentials = keyword != "disable",
            _ => return Err((Some(at), Wrong::new(format!("unknown feature `{name}`"), "proxyauthz, vc"))),
        }
    }
    Ok(())
}

/// The name with the fewest differences, if there are at most two.
fn nearest<'n>(word: &str, names: &[&'n str]) -> Option<&'n str> {
    // A keyword is short, and longer words are near to none.
    let word: Vec<u8> = word.bytes().take(64).collect();
    let best =
        names.iter().map(|name| (distance(&word, name.to_ascii_lowercase().as_bytes()), *name)).min()?;
    (best.0 <= 2).then_some(best.1)
}

/// Letters to insert, delete or replace.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut last = i + 1;
        for (cell, right) in row.iter_mut().skip(1).zip(b) {
            let replaced = diagonal + usize::from(left != right);
            diagonal = *cell;
            *cell = replaced.min(diagonal + 1).min(last + 1);
            last = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

/// A URL to listen on: `pldap` and `pldaps` are for clients behind the PROXY protocol.
fn check_listener(url: &str) -> Result<(), Wrong> {
    let plain = match url.get(..4) {
        Some(scheme) if scheme.eq_ignore_ascii_case("plda") => url.get(1..).unwrap_or_default(),
        _ => url,
    };
    match LdapUrl::parse(plain) {
        Ok(_) => Ok(()),
        Err(error) => Err(Wrong::new(
            format!("listen: `{url}` is no URL to listen on: {error}"),
            "such as ldap://0.0.0.0:3890, ldaps://, ldapi://%2Frun%2Fldapi or pldap://127.0.0.1:3890",
        )),
    }
}

#[cfg(test)]
mod tests;
