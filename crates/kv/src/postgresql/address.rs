//! The address of an engine: `postgresql://user@host1,host2:5433/database?sslmode=verify-full`, as libpq writes it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use larix_proto::url::percent_decode_text;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::tls::{EngineStream, EngineTls, Given};
use crate::error::{Fault, OpenError};
use crate::tls::TlsSettings;

/// What the engine keeps of a connection's name.
const APPLICATION_NAME_BYTES_MAX: usize = 63;
/// How long connecting may take, for each host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Where an engine is and who asks. It is never shown with its password.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    /// None: in the clear.
    tls: Option<Arc<TlsSettings>>,
    shown: String,
}

impl Address {
    /// Reads an address of the form `postgresql://` or `postgres://`, with TLS by libpq's parameters `sslmode` (`disable`,
    /// `require`, `verify-ca`, `verify-full`), `sslrootcert`, `sslcert` and `sslkey`. Without `sslmode` the way to a host on this
    /// machine is in the clear, and to others it is `verify-full`. The files are read for each connection.
    ///
    /// # Errors
    /// [`OpenError::Address`], which never contains the password.
    pub(crate) fn parse(text: &str) -> Result<Self, OpenError> {
        let (text, given) = take_tls(text)?;
        // The parser's error may quote what it could not read, and with it the password.
        let mut config = Config::from_str(&text).map_err(|_| {
            refused("it cannot be read: write postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full")
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(refused("it names no host"));
        }
        let tls = given.settings(is_local(&config)).map_err(|why| refused(&why))?;
        if tls.is_some() {
            let is_socket = |host: &Host| matches!(host, Host::Unix(_));
            if config.get_hosts().iter().any(is_socket) {
                return Err(refused(
                    "there is no TLS over a socket of this machine: leave sslmode and its files out",
                ));
            }
            if config.get_hosts().is_empty() {
                return Err(refused("TLS needs the host's name: give it beside hostaddr"));
            }
        }
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        // Only a primary takes commits, and only what it shows is newest.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.application_name("larix");
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        let shown = shown(&config);
        Ok(Self { config, tls: tls.map(Arc::new), shown })
    }
}

impl Address {
    /// A connection, and what moves its bytes.
    pub(crate) async fn connect(&self) -> Result<(Client, Connection<Socket, EngineStream>), Fault> {
        Ok(self.config.connect(EngineTls(self.tls.clone())).await?)
    }

    /// The same with connections that are named so in the engine.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.config.application_name(connection_name(name));
        self
    }
}

/// What connections are called in the engine: `larix` and the name, cut off where that takes 63 bytes.
pub(crate) fn connection_name(name: &str) -> String {
    let mut whole = format!("larix {name}").trim_end().to_owned();
    while whole.len() > APPLICATION_NAME_BYTES_MAX {
        whole.pop();
    }
    whole
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.shown).finish()
    }
}

fn refused(why: &str) -> OpenError {
    OpenError::Address(why.to_owned())
}

/// The address without what it says of TLS, which the parser knows only in part, and that.
fn take_tls(text: &str) -> Result<(String, Given), OpenError> {
    let mut given = Given::default();
    let Some((front, query)) = text.split_once('?') else { return Ok((text.to_owned(), given)) };
    let mut kept = Vec::new();
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let place = match name {
            "sslmode" => &mut given.mode,
            "sslrootcert" => &mut given.root,
            "sslcert" => &mut given.certificate,
            "sslkey" => &mut given.key,
            _ if name.starts_with("ssl") || name.starts_with("gssenc") || name == "channel_binding" => {
                return Err(refused(&format!(
                    "{name} is not known here: leave it out. TLS has sslmode, sslrootcert, sslcert and sslkey"
                )));
            }
            _ => {
                kept.push(parameter);
                continue;
            }
        };
        let value = percent_decode_text(value).filter(|value| !value.is_empty());
        let why = || refused(&format!("{name} has no value, or one that is not percent-encoded UTF-8"));
        *place = Some(value.ok_or_else(why)?);
    }
    let query = kept.join("&");
    let text = if query.is_empty() { front.to_owned() } else { format!("{front}?{query}") };
    Ok((text, given))
}

fn is_local(config: &Config) -> bool {
    let named = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    });
    named && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let named = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let hosts: Vec<String> = if config.get_hosts().is_empty() {
        config.get_hostaddrs().iter().map(ToString::to_string).collect()
    } else {
        named.collect()
    };
    let hosts: Vec<String> = hosts
        .iter()
        .enumerate()
        .map(|(at, host)| match ports.get(at).or_else(|| ports.first()) {
            Some(port) => format!("{host}:{port}"),
            None => host.clone(),
        })
        .collect();
    format!("postgresql://{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_secrets() {
        for (text, expected) in [
            ("postgresql://larix:secret@localhost/directory", Ok("postgresql://localhost:5432/directory")),
            ("postgresql://larix:secret@[::1]:5433/d", Ok("postgresql://::1:5433/d")),
            (
                "postgres://larix:secret@db1,db2:5433/d?sslmode=disable",
                Ok("postgresql://db1:5432,db2:5433/d"),
            ),
            ("postgresql://larix:secret@%2Frun%2Fpostgresql/d", Ok("postgresql:///run/postgresql:5432/d")),
            ("postgresql://larix:secret@db1/d", Ok("postgresql://db1:5432/d")),
            ("postgresql://larix:secret@db1/d?sslmode=verify-full", Ok("postgresql://db1:5432/d")),
            ("postgresql://larix:secret@db1/d?sslrootcert=system", Ok("postgresql://db1:5432/d")),
            ("postgresql://larix:secret@localhost/d?sslmode=require", Ok("postgresql://localhost:5432/d")),
            (
                "postgresql://larix:secret@db1/d?sslmode=verify-ca&sslrootcert=%2Fx%20y&sslcert=/c&sslkey=/k",
                Ok("postgresql://db1:5432/d"),
            ),
            ("postgresql://larix:secret@db1/d?sslmode=verify-ca", Err("needs sslrootcert=FILE")),
            ("postgresql://larix:secret@db1/d?sslmode=prefer", Err("sslmode=prefer may end in clear text")),
            (
                "postgresql://larix:secret@db1/d?sslmode=verify",
                Err("sslmode=verify is unknown: one of disable"),
            ),
            ("postgresql://larix:secret@db1/d?sslmode=", Err("sslmode has no value")),
            (
                "postgresql://larix:secret@db1/d?sslmode=require&sslrootcert=system",
                Err("a certificate of anybody"),
            ),
            ("postgresql://larix:secret@db1/d?sslmode=disable&sslcert=/c", Err("leave these out")),
            ("postgresql://larix:secret@db1/d?sslkey=/k", Err("sslkey without sslcert")),
            ("postgresql://larix:secret@db1/d?sslpassword=secret", Err("sslpassword is not known here")),
            (
                "postgresql://larix:secret@db1/d?channel_binding=require",
                Err("channel_binding is not known here"),
            ),
            (
                "postgresql://larix:secret@%2Frun%2Fpostgresql/d?sslmode=verify-full",
                Err("no TLS over a socket"),
            ),
            (
                "postgresql://larix:secret@/d?hostaddr=192.0.2.1&sslmode=require",
                Err("TLS needs the host's name"),
            ),
            ("postgresql://larix:secret@localhost/d?nonsense=secret", Err("cannot be read")),
            ("postgresql:///d", Err("names no host")),
        ] {
            let got = Address::parse(text);
            let shown = match &got {
                Ok(address) => format!("{address} {address:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("secret"), "{shown}");
            match expected {
                Ok(want) => assert_eq!(got.expect(text).to_string(), want, "{text}"),
                Err(want) => assert!(got.is_err() && shown.contains(want), "{text}: {shown}"),
            }
        }
    }
    #[test]
    fn clear_text_leaves_this_machine_only_where_that_is_said() {
        for (rest, is_clear) in [
            ("localhost/d", true),
            ("127.0.0.1,[::1]/d", true),
            ("%2Frun/d", true),
            ("db1/d?sslmode=disable", true),
            ("db1/d", false),
            ("localhost,db1/d", false),
            ("localhost/d?hostaddr=192.0.2.1", false),
            ("localhost/d?sslmode=require", false),
            ("localhost/d?sslrootcert=/x", false),
        ] {
            let address = Address::parse(&format!("postgresql://larix@{rest}")).expect(rest);
            assert_eq!(address.config.get_ssl_mode() == SslMode::Disable, is_clear, "{rest}");
            assert_eq!(address.tls.is_none(), is_clear, "{rest}");
        }
    }
}
