//! The address of an engine: `postgresql://user@host1,host2:5433/database?sslmode=disable`, as libpq writes it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::error::OpenError;

/// What the engine keeps of a connection's name.
const APPLICATION_NAME_BYTES_MAX: usize = 63;
/// How long connecting may take, for each host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Where an engine is and who asks. It is never shown with its password.
#[derive(Clone)]
pub struct Address {
    pub(crate) config: Config,
    shown: String,
}

impl Address {
    /// Reads an address of the form `postgresql://` or `postgres://`. `sslmode=disable` has to be said where the way leads
    /// off this machine, since there is no TLS towards the engine so far.
    ///
    /// # Errors
    /// [`OpenError::Address`], which never contains the password.
    pub fn parse(text: &str) -> Result<Self, OpenError> {
        if !text.starts_with("postgresql://") && !text.starts_with("postgres://") {
            return Err(refused(
                "an engine is given as postgresql://USER@HOST/DATABASE?sslmode=disable; no other kind is known",
            ));
        }
        let (text, mode) = take_sslmode(text)?;
        // The parser's error may quote what it could not read, and with it the password.
        let mut config = Config::from_str(&text).map_err(|_| {
            refused("it cannot be read: write postgresql://USER@HOST:PORT/DATABASE?sslmode=disable")
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(refused("it names no host"));
        }
        match mode.as_deref() {
            Some("disable") => {}
            None if is_local(&config) => {}
            None => {
                return Err(refused(
                    "its host is another machine, so sslmode is needed: there is no TLS towards the engine so far, and \
                     sslmode=disable says that the network between is trusted",
                ));
            }
            Some(other) => {
                return Err(refused(&format!(
                    "sslmode={other} is not there so far: use sslmode=disable on a trusted network, or a local tunnel with \
                     TLS (stunnel, say)"
                )));
            }
        }
        config.ssl_mode(SslMode::Disable);
        // Only a primary takes commits, and only what it shows is newest.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.application_name("larix");
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        let shown = shown(&config);
        Ok(Self { config, shown })
    }
}

impl Address {
    /// The same with connections that are named so in the engine: `larix` and this, cut off where that takes 63 bytes.
    pub(crate) fn named(mut self, name: &str) -> Self {
        let mut whole = format!("larix {name}").trim_end().to_owned();
        while whole.len() > APPLICATION_NAME_BYTES_MAX {
            whole.pop();
        }
        self.config.application_name(whole);
        self
    }
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

/// The address without `sslmode`, whose values the parser knows only in part, and its value.
fn take_sslmode(text: &str) -> Result<(String, Option<String>), OpenError> {
    let Some((front, query)) = text.split_once('?') else { return Ok((text.to_owned(), None)) };
    let mut mode = None;
    let mut kept = Vec::new();
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value.to_owned()),
            Some(("sslrootcert" | "sslcert" | "sslkey" | "sslpassword" | "sslcrl", _)) => {
                return Err(refused("there is no TLS towards the engine so far: leave its certificates out"));
            }
            _ => kept.push(parameter),
        }
    }
    let query = kept.join("&");
    let text = if query.is_empty() { front.to_owned() } else { format!("{front}?{query}") };
    Ok((text, mode))
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
            ("postgresql://larix:secret@db1/d", Err("sslmode is needed")),
            ("postgresql://larix:secret@db1/d?sslmode=verify-full", Err("sslmode=verify-full is not there")),
            ("postgresql://larix:secret@localhost/d?sslmode=require", Err("sslmode=require is not there")),
            ("postgresql://larix:secret@localhost/d?sslrootcert=/x", Err("leave its certificates out")),
            ("postgresql://larix:secret@localhost/d?nonsense=secret", Err("cannot be read")),
            ("postgresql:///d", Err("names no host")),
            ("mysql://larix:secret@db1/d", Err("no other kind")),
            ("host=localhost password=secret", Err("no other kind")),
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
}
