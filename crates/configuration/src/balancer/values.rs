//! The values of keywords: `bindconf` and `backend-server` with their settings, times, sizes and actions.

use std::time::Duration;

use larix_client::{Credentials, KeepAlive, Mechanism, SaslPassword};
use larix_proto::url::{LdapUrl, UrlScheme};
use zeroize::Zeroizing;

use super::super::line::c_integer;
use super::super::values::{StartTls, TLS_KEYS};
use super::settings::{Action, BackendSettings, BindSettings, ProxyHeader, Strategy};

const BIND_KEYS: &str = "bindmethod, binddn, saslmech, authcid, authzid, credentials, realm, timeout, network-timeout, keepalive, \
     tcp-user-timeout, tls_cert, tls_key, tls_cacert, tls_cacertdir, tls_reqcert, tls_reqsan, tls_cipher_suite, tls_ecname, \
     tls_crlcheck, tls_protocol_min";
const SERVER_KEYS: &str =
    "uri, retry, starttls, proxyprotocol, numconns, bindconns, max-pending-ops, conn-max-pending, weight";
/// Connections of one kind to one server.
const CONNECTIONS_MAX: usize = 1000;
const URI: &str = "uri=ldap://ldap1.example.com:389, ldaps:// or ldapi://%2Fpath";

/// What is wrong, and how to mend it.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) message: String,
    pub(crate) help: String,
}

/// An argument, from 0, and what is wrong with it.
pub(crate) type WrongAt = (Option<usize>, Wrong);

impl Wrong {
    pub(crate) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }

    pub(super) fn of(key: &str, value: &str, help: &str) -> Self {
        Self::new(format!("`{value}` is not possible for {key}"), help)
    }
}

/// `key=value` and its position.
fn pairs(arguments: &[String]) -> impl Iterator<Item = (usize, String, &str)> {
    arguments.iter().enumerate().map(|(at, argument)| {
        let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
        (at, key.to_ascii_lowercase(), value)
    })
}

/// Of `bindconf` about the identity.
#[derive(Default)]
struct Identity {
    is_sasl: bool,
    dn: String,
    password: Zeroizing<Vec<u8>>,
    mechanism: Option<String>,
    authentication: String,
    authorization: String,
    realm: String,
}

pub(super) fn bind_conf(arguments: &[String]) -> Result<BindSettings, WrongAt> {
    let mut bind = BindSettings::default();
    let mut identity = Identity::default();
    for (at, key, value) in pairs(arguments) {
        bind_key(&mut bind, &mut identity, &key, value).map_err(|wrong| (Some(at), wrong))?;
    }
    bind.credentials = identity.credentials().map_err(|wrong| (None, wrong))?;
    Ok(bind)
}

fn bind_key(bind: &mut BindSettings, identity: &mut Identity, key: &str, value: &str) -> Result<(), Wrong> {
    match key {
        "bindmethod" => {
            identity.is_sasl = match value.to_ascii_lowercase().as_str() {
                "simple" | "none" => false,
                "sasl" => true,
                _ => return Err(Wrong::of(key, value, "simple or sasl")),
            };
        }
        "binddn" => identity.dn = value.to_owned(),
        "credentials" => identity.password = Zeroizing::new(value.as_bytes().to_vec()),
        "saslmech" => identity.mechanism = Some(value.to_owned()),
        "authcid" => identity.authentication = value.to_owned(),
        "authzid" => identity.authorization = value.to_owned(),
        "realm" => identity.realm = value.to_owned(),
        "secprops" => {
            return Err(Wrong::new(
                "secprops= is not supported",
                "take it out, and use ldaps:// or starttls=critical",
            ));
        }
        "timeout" => bind.timeout = seconds(key, value)?,
        "network-timeout" => bind.network_timeout = seconds(key, value)?,
        "tcp-user-timeout" => bind.user_timeout = milliseconds(key, value)?,
        "keepalive" => bind.keep_alive = Some(keep_alive(value)?),
        _ if TLS_KEYS.contains(&key) => bind.tls.push((key.to_owned(), value.to_owned())),
        _ => return Err(Wrong::new(format!("bindconf: unknown key `{key}`"), format!("one of {BIND_KEYS}"))),
    }
    Ok(())
}

impl Identity {
    fn credentials(&self) -> Result<Option<Credentials>, Wrong> {
        if self.is_sasl {
            let help = "saslmech=PLAIN, EXTERNAL, SCRAM-SHA-256 or SCRAM-SHA-512";
            let Some(name) = &self.mechanism else {
                return Err(Wrong::new("bindconf: bindmethod=sasl needs saslmech=", help));
            };
            if name.eq_ignore_ascii_case("EXTERNAL") {
                return Ok(Some(Credentials::External { authorization: self.authorization.clone() }));
            }
            let mechanism = Mechanism::from_name(name).map_err(|_| Wrong::of("saslmech", name, help))?;
            return Ok(Some(Credentials::Sasl(SaslPassword {
                mechanism,
                user: self.authentication.clone(),
                authorization: self.authorization.clone(),
                realm: self.realm.clone(),
                password: self.password.clone(),
            })));
        }
        match (self.dn.is_empty(), self.password.is_empty()) {
            (true, true) => Ok(None),
            (false, true) => {
                // A bind with a name and no password succeeds as anonymous at some servers (RFC 4513 section 5.1.2).
                Err(Wrong::new(
                    "bindconf: binddn= needs credentials=",
                    "credentials=PASSWORD, or take binddn= out",
                ))
            }
            (true, false) => Err(Wrong::new(
                "bindconf: credentials= needs binddn=",
                "binddn=cn=balancer,dc=example,dc=com",
            )),
            (false, false) => {
                Ok(Some(Credentials::Simple { dn: self.dn.clone(), password: self.password.clone() }))
            }
        }
    }
}

/// A server, and which argument is its weight.
pub(super) fn backend_server(
    name: String,
    arguments: &[String],
) -> Result<(BackendSettings, Option<usize>), WrongAt> {
    let mut weight_at = None;
    let mut server = BackendSettings::new(name);
    for (at, key, value) in pairs(arguments) {
        server_key(&mut server, &key, value).map_err(|wrong| (Some(at), wrong))?;
        if key == "weight" {
            weight_at = Some(at);
        }
    }
    check_server(&server).map_err(|wrong| (None, wrong))?;
    Ok((server, weight_at))
}

/// One setting of a server: `backend-server` has it as `key=value`, cn=config as an attribute.
pub(crate) fn server_key(server: &mut BackendSettings, key: &str, value: &str) -> Result<(), Wrong> {
    match key {
        "uri" => {
            server.url = server_url(value)?;
            server.uri = value.to_owned();
        }
        "retry" => {
            let retry = milliseconds(key, value)?;
            server.retry = retry.ok_or_else(|| Wrong::of(key, value, "milliseconds, 1 or more"))?;
        }
        "starttls" => {
            let start_tls = StartTls::parse(value);
            server.start_tls = start_tls.ok_or_else(|| Wrong::of(key, value, "yes or critical"))?;
        }
        "proxyprotocol" => server.proxy_header = proxy_header(value)?,
        "numconns" => server.connections = connections(key, value)?,
        "bindconns" => server.bind_connections = connections(key, value)?,
        "max-pending-ops" => server.max_pending = size(key, value)?,
        "conn-max-pending" => server.connection_max_pending = size(key, value)?,
        "weight" => server.weight = number(key, value)?,
        _ => {
            let message = format!("backend-server: unknown key `{key}`");
            return Err(Wrong::new(message, format!("one of {SERVER_KEYS}")));
        }
    }
    Ok(())
}

/// Whether the settings of a server go together.
pub(crate) fn check_server(server: &BackendSettings) -> Result<(), Wrong> {
    if server.uri.is_empty() {
        return Err(Wrong::new("backend-server needs uri=", URI));
    }
    if server.start_tls != StartTls::No && server.url.scheme != UrlScheme::Ldap {
        let message = "backend-server: starttls= is for ldap://";
        return Err(Wrong::new(message, "take starttls= out, or write ldap://"));
    }
    if server.proxy_header != ProxyHeader::None && server.url.scheme == UrlScheme::Ldapi {
        let message = "backend-server: proxyprotocol= is for ldap:// and ldaps://";
        return Err(Wrong::new(message, "take proxyprotocol= out"));
    }
    Ok(())
}

fn proxy_header(value: &str) -> Result<ProxyHeader, Wrong> {
    match value.to_ascii_lowercase().as_str() {
        "no" => Ok(ProxyHeader::None),
        "local" => Ok(ProxyHeader::Local),
        "client" | "yes" | "v1" | "v2" => Err(Wrong::new(
            format!(
                "proxyprotocol={value}: a header names one client, and all clients share the connections to a server"
            ),
            "proxyprotocol=local: the header of version 2 that names no client, for servers that want one (pldap://)",
        )),
        _ => Err(Wrong::of("proxyprotocol", value, "no or local")),
    }
}

fn server_url(value: &str) -> Result<LdapUrl, Wrong> {
    let url =
        LdapUrl::parse_server(value).map_err(|error| Wrong::new(format!("uri={value}: {error}"), URI))?;
    match url.scheme {
        UrlScheme::Ldap | UrlScheme::Ldaps | UrlScheme::Ldapi => Ok(url),
        _ => Err(Wrong::of("uri", value, URI)),
    }
}

fn connections(key: &str, value: &str) -> Result<usize, Wrong> {
    let count = size(key, value)?;
    if count == 0 || count > CONNECTIONS_MAX {
        return Err(Wrong::of(key, value, "connections, from 1 to 1000"));
    }
    Ok(count)
}

pub(crate) fn strategy(value: &str) -> Result<Strategy, Wrong> {
    match value.to_ascii_lowercase().as_str() {
        "roundrobin" => Ok(Strategy::RoundRobin),
        "weighted" => Ok(Strategy::Weighted),
        "bestof" => Ok(Strategy::BestOf),
        _ => Err(Wrong::of("tier", value, "roundrobin, weighted or bestof")),
    }
}

pub(super) fn action(value: &str) -> Result<Action, Wrong> {
    match value.to_ascii_lowercase().as_str() {
        "ignore" => Ok(Action::Ignore),
        "write" => Ok(Action::Write),
        "backend" => Ok(Action::Backend),
        "connection" => Ok(Action::Connection),
        "reject" => Ok(Action::Reject),
        _ => {
            Err(Wrong::new(format!("`{value}` is no action"), "ignore, write, backend, connection or reject"))
        }
    }
}

/// Numbers with dots between them.
pub(super) fn object_identifier(value: &str) -> Result<String, Wrong> {
    let is_arc = |arc: &str| !arc.is_empty() && arc.bytes().all(|byte| byte.is_ascii_digit());
    if value.contains('.') && value.split('.').all(is_arc) {
        return Ok(value.to_owned());
    }
    Err(Wrong::new(format!("`{value}` is no OID"), "numbers with dots, such as 1.2.840.113556.1.4.319"))
}

/// A number as C writes it, from 0 up.
fn whole(value: &str) -> Option<u32> {
    c_integer(value).and_then(|number| u32::try_from(number).ok())
}

pub(super) fn number(key: &str, value: &str) -> Result<u32, Wrong> {
    whole(value).ok_or_else(|| Wrong::of(key, value, "a number"))
}

pub(super) fn size(key: &str, value: &str) -> Result<usize, Wrong> {
    let number = whole(value).and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| Wrong::of(key, value, "a number, 0 for no limit"))
}

/// 0: none.
pub(super) fn seconds(key: &str, value: &str) -> Result<Option<Duration>, Wrong> {
    let seconds = whole(value).ok_or_else(|| Wrong::of(key, value, "seconds, 0 for no limit"))?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds.into())))
}

/// 0: none.
pub(super) fn milliseconds(key: &str, value: &str) -> Result<Option<Duration>, Wrong> {
    let time = whole(value).ok_or_else(|| Wrong::of(key, value, "milliseconds, 0 for no limit"))?;
    Ok((time > 0).then(|| Duration::from_millis(time.into())))
}

fn keep_alive(value: &str) -> Result<KeepAlive, Wrong> {
    let bad = || Wrong::of("keepalive", value, "idle:probes:interval, such as 240:10:30");
    KeepAlive::parse(value).ok_or_else(bad)
}
