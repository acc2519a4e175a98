//! The address of an etcd: `etcd://user:password@host1:2379,host2:2379/prefix?cacert=FILE`.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use larix_client::{SettingNames, TlsOptions};
use larix_proto::url::percent_decode_text;

use crate::error::OpenError;
use crate::tls::TlsSettings;

const PORT: u16 = 2379;
/// What etcd takes by default.
const TXN_OPS: usize = 128;
const REQUEST_BYTES: usize = 1_572_864;
/// What may be said of it: least and most.
const TXN_OPS_WITHIN: (usize, usize) = (32, 100_000);
const REQUEST_BYTES_WITHIN: (usize, usize) = (262_144, 64 << 20);
const ENDPOINTS_MAX: usize = 16;

const NAMES: SettingNames<'static> = SettingNames {
    trust: "cacert",
    name: "the names are those in etcd's --cert-file",
    certificate: "cert",
    key: "key",
    client_authorities: "--trusted-ca-file of etcd",
    common: "etcd's --cipher-suites have to allow what is usual with TLS 1.2 or 1.3",
    versions: "etcd has to allow TLS 1.2 or 1.3",
    no_tls: "is etcd started with https in --listen-client-urls?",
    silent: "Is an etcd at this port?",
};

/// Where an etcd is and who asks. It is never shown with its password.
#[derive(Clone)]
pub(crate) struct Address {
    pub(super) endpoints: Vec<Endpoint>,
    /// Name and password.
    pub(super) user: Option<(String, String)>,
    /// None: in the clear.
    pub(super) tls: Option<Arc<TlsSettings>>,
    /// What all keys begin with, without a slash at the end.
    pub(super) prefix: String,
    /// Operations of one transaction.
    pub(super) txn_ops: usize,
    pub(super) request_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// An address of version 6 without its brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Endpoint {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                host.parse::<std::net::Ipv6Addr>().ok()?;
                (host, port.strip_prefix(':').or_else(|| port.is_empty().then_some("")))
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, Some("")),
            },
        };
        let port = port?;
        let port = if port.is_empty() { PORT } else { port.parse().ok().filter(|port| *port > 0)? };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
        (!host.is_empty() && host.bytes().all(is_plain)).then(|| Self { host: host.to_owned(), port })
    }

    fn is_local(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

fn refused(why: impl Into<String>) -> OpenError {
    OpenError::Address(why.into())
}

impl Address {
    /// Reads an address. With `cacert`, `cert`, `key` or hosts that are not this machine it is TLS, unless `tls=off` is said.
    ///
    /// # Errors
    /// [`OpenError::Address`], which never contains the password.
    pub(crate) fn parse(text: &str) -> Result<Self, OpenError> {
        const FORM: &str = "write etcd://USER:PASSWORD@HOST:2379,HOST:2379/PREFIX?cacert=FILE";
        let rest = text.strip_prefix("etcd://").ok_or_else(|| refused(FORM))?;
        let (front, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match front.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (front, None),
        };
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let user = login.map(read_login).transpose()?;
        let endpoints: Option<Vec<Endpoint>> = hosts.split(',').map(Endpoint::parse).collect();
        let endpoints = endpoints.ok_or_else(|| refused(format!("its hosts cannot be read: {FORM}")))?;
        if endpoints.len() > ENDPOINTS_MAX {
            return Err(refused(format!("it names more than {ENDPOINTS_MAX} hosts")));
        }
        let parameters = QueryParameters::read(query)?;
        let is_local = endpoints.iter().all(Endpoint::is_local);
        Ok(Self {
            tls: parameters.tls(is_local)?.map(Arc::new),
            txn_ops: parameters.txn_ops.unwrap_or(TXN_OPS),
            request_bytes: parameters.request_bytes.unwrap_or(REQUEST_BYTES),
            prefix: read_prefix(path.unwrap_or_default())?,
            endpoints,
            user,
        })
    }
}

fn read_login(text: &str) -> Result<(String, String), OpenError> {
    let (user, password) = text.split_once(':').ok_or_else(|| {
        refused("a user without a password: write etcd://USER:PASSWORD@HOST, or leave the user out where a certificate says who it is")
    })?;
    let read = |text| percent_decode_text(text).filter(|text| !text.is_empty());
    read(user)
        .zip(read(password))
        .ok_or_else(|| refused("the user or the password is empty, or not percent-encoded UTF-8"))
}

fn read_prefix(path: &str) -> Result<String, OpenError> {
    let path = percent_decode_text(path).ok_or_else(|| refused("its prefix is not percent-encoded UTF-8"))?;
    let path = path.trim_matches('/');
    let path = if path.is_empty() { "larix" } else { path };
    if path.len() > 200 {
        return Err(refused("its prefix has more than 200 bytes"));
    }
    Ok(format!("/{path}"))
}

/// What stands behind the question mark.
#[derive(Default)]
struct QueryParameters {
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    txn_ops: Option<usize>,
    request_bytes: Option<usize>,
}

impl QueryParameters {
    fn read(query: &str) -> Result<Self, OpenError> {
        let mut parameters = Self::default();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let value = percent_decode_text(value).filter(|value| !value.is_empty()).ok_or_else(|| {
                refused(format!("{name} has no value, or one that is not percent-encoded UTF-8"))
            })?;
            match name {
                "tls" => parameters.mode = Some(value),
                "cacert" => parameters.root = Some(value),
                "cert" => parameters.certificate = Some(value),
                "key" => parameters.key = Some(value),
                "max-txn-ops" => parameters.txn_ops = Some(within(name, &value, TXN_OPS_WITHIN)?),
                "max-request-bytes" => {
                    parameters.request_bytes = Some(within(name, &value, REQUEST_BYTES_WITHIN)?);
                }
                _ => {
                    return Err(refused(format!(
                        "{name} is not known here: one of tls, cacert, cert, key, max-txn-ops, max-request-bytes"
                    )));
                }
            }
        }
        Ok(parameters)
    }

    fn tls(&self, is_local: bool) -> Result<Option<TlsSettings>, OpenError> {
        let names_a_file = self.root.is_some() || self.certificate.is_some() || self.key.is_some();
        if self.certificate.is_some() != self.key.is_some() {
            return Err(refused("cert and key belong together: give both"));
        }
        match self.mode.as_deref() {
            None if is_local && !names_a_file => return Ok(None),
            Some("off") if names_a_file => {
                return Err(refused(
                    "tls=off with cacert, cert or key: leave these out, or take tls=off out",
                ));
            }
            Some("off") => return Ok(None),
            None | Some("on") => {}
            Some(other) => return Err(refused(format!("tls={other} is unknown: one of on, off"))),
        }
        let files = [("tls_cacert", &self.root), ("tls_cert", &self.certificate), ("tls_key", &self.key)];
        let files = files.into_iter().filter_map(|(name, file)| Some((name, file.as_deref()?)));
        let options = TlsOptions::new([("tls_reqsan", "try")].into_iter().chain(files));
        Ok(Some(TlsSettings { options, root: self.root.clone(), names: &NAMES }))
    }
}

fn within(name: &str, value: &str, (least, most): (usize, usize)) -> Result<usize, OpenError> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| refused(format!("{name}={value} is not a number from {least} to {most}")))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints: Vec<String> = self.endpoints.iter().map(ToString::to_string).collect();
        write!(f, "etcd://{}{}", endpoints.join(","), self.prefix)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.to_string()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_secrets() {
        for (text, expected) in [
            ("etcd://localhost", Ok("etcd://localhost:2379/larix")),
            ("etcd://e1,e2:2381,[::1]:4/people/", Ok("etcd://e1:2379,e2:2381,[::1]:4/people")),
            ("etcd://u:secret@e1/a/b?cacert=/x&cert=/c&key=/k", Ok("etcd://e1:2379/a/b")),
            ("etcd://u:secret%40x@127.0.0.1:1/", Ok("etcd://127.0.0.1:1/larix")),
            ("etcd://e1?max-txn-ops=512&max-request-bytes=4000000", Ok("etcd://e1:2379/larix")),
            ("etcd://secret@e1", Err("a user without a password")),
            ("etcd://u:secret@", Err("its hosts cannot be read")),
            ("etcd://u:secret@e1,,e2", Err("its hosts cannot be read")),
            ("etcd://u:secret@e1:x", Err("its hosts cannot be read")),
            ("etcd://u:secret@e1?cert=/c", Err("belong together")),
            ("etcd://u:secret@e1?tls=off&cacert=/c", Err("leave these out")),
            ("etcd://u:secret@e1?tls=maybe", Err("one of on, off")),
            ("etcd://u:secret@e1?sslmode=require", Err("sslmode is not known here")),
            ("etcd://u:secret@e1?max-txn-ops=4", Err("a number from 32 to 100000")),
            ("etcd://u:secret@e1?cacert=", Err("cacert has no value")),
        ] {
            let got = Address::parse(text);
            let shown = match &got {
                Ok(address) => address.to_string(),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("secret"), "{shown}");
            match expected {
                Ok(want) => assert_eq!(shown, want, "{text}"),
                Err(want) => assert!(got.is_err() && shown.contains(want), "{text}: {shown}"),
            }
        }
    }

    #[test]
    fn clear_text_leaves_this_machine_only_where_that_is_said() {
        for (rest, is_clear) in [
            ("localhost", true),
            ("127.0.0.1,[::1]:3/d", true),
            ("e1?tls=off", true),
            ("e1", false),
            ("localhost,e1", false),
            ("localhost?tls=on", false),
            ("localhost?cacert=/x", false),
        ] {
            let address = Address::parse(&format!("etcd://{rest}")).expect(rest);
            assert_eq!(address.tls.is_none(), is_clear, "{rest}");
        }
    }
}
