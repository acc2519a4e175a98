//! The address of an engine: `postgresql://user@host1,host2:5433/database?sslmode=verify-full`, as libpq writes it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use larix_proto::url::percent_decode_text;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::tls::{EngineStream, EngineTls, TlsParameters};
use crate::error::{Fault, OpenError, ServerFault};
use crate::runtime::look_up;
use crate::tls::TlsSettings;

/// What the engine keeps of a connection's name.
const APPLICATION_NAME_BYTES_MAX: usize = 63;
/// How long connecting may take, for each server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Said first on each connection. The names in statements are the engine's own, whatever path role and database have: somebody else may
/// have made functions and operators of these names, which would be carried out in the name of this role.
pub(crate) const OWN_PATH: &str = "SET search_path = pg_catalog";

/// Where an engine is and who asks. It is never shown with its password.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    /// None: in the clear.
    tls: Option<Arc<TlsSettings>>,
    shown: String,
    /// The server that is asked first, by its place in the address: the one that took the last connection, unless it hangs since.
    first: Arc<AtomicUsize>,
}

/// A connection, and what moves its bytes.
pub(crate) struct NewConnection {
    pub(crate) client: Client,
    pub(crate) connection: Connection<Socket, EngineStream>,
    /// The server's place in the address.
    pub(crate) server: usize,
}

impl Address {
    /// Reads an address of the form `postgresql://` or `postgres://`, with TLS by libpq's parameters `sslmode` (`disable`,
    /// `require`, `verify-ca`, `verify-full`), `sslrootcert`, `sslcert` and `sslkey`. Without `sslmode` the way to a host on this
    /// machine is in the clear, and to others it is `verify-full`. The files are read for each connection.
    ///
    /// # Errors
    /// [`OpenError::Address`], which never contains the password.
    pub(crate) fn parse(text: &str) -> Result<Self, OpenError> {
        let (text, parameters) = take_tls(text)?;
        // The parser's error may quote what it could not read, and with it the password.
        let mut config = Config::from_str(&text).map_err(|_| {
            refused("it cannot be read: write postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full")
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(refused("it names no host"));
        }
        let tls = parameters.settings(is_local(&config)).map_err(|why| refused(&why))?;
        let (hosts, addresses) = (config.get_hosts().len(), config.get_hostaddrs().len());
        if hosts > 0 && addresses > 0 && hosts != addresses {
            return Err(refused(&format!(
                "hostaddr has {addresses} addresses for {hosts} hosts: give each one"
            )));
        }
        let (ports, servers) = (config.get_ports().len(), hosts.max(addresses));
        if ports > 1 && ports != servers {
            return Err(refused(&format!(
                "there are {ports} ports for {servers} hosts: give each one, or one for all"
            )));
        }
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
        Ok(Self { config, tls: tls.map(Arc::new), shown, first: Arc::default() })
    }
}

impl Address {
    /// Connects to the first server that takes writes. Each has the time of `connect_timeout` for all that it has to answer: the
    /// system of one that hangs still accepts connections.
    pub(crate) async fn connect(&self) -> Result<NewConnection, Fault> {
        let servers = self.servers();
        let first = self.first.load(Ordering::Relaxed);
        let mut faults = Vec::new();
        for step in 0..servers {
            let server = (first + step) % servers;
            match self.connect_to(server).await {
                Ok((client, connection)) => {
                    self.first.store(server, Ordering::Relaxed);
                    return Ok(NewConnection { client, connection, server });
                }
                Err(fault) => {
                    self.doubt(server);
                    faults.push(ServerFault { server: server_shown(&self.config, server), fault });
                }
            }
        }
        Err(Fault::Servers(faults))
    }

    async fn connect_to(&self, server: usize) -> Result<(Client, Connection<Socket, EngineStream>), Fault> {
        let mut config = only(&self.config, server);
        let limit = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        let connecting = async {
            look_up_host(&mut config).await?;
            Ok::<_, Fault>(config.connect(EngineTls(self.tls.clone())).await?)
        };
        tokio::time::timeout(limit, connecting).await.unwrap_or(Err(Fault::Late(limit)))
    }

    /// How many servers it names.
    pub(crate) fn servers(&self) -> usize {
        self.config.get_hosts().len().max(self.config.get_hostaddrs().len()).max(1)
    }

    /// The server does not answer: the next connection begins with the one behind it in the address.
    pub(crate) fn doubt(&self, server: usize) {
        let next = (server + 1) % self.servers();
        // Somebody else may have seen the same, or found one that answers.
        let _moved = self.first.compare_exchange(server, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The same where connecting to one server takes no longer than this.
    pub(crate) fn within(mut self, most: Duration) -> Self {
        let limit = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        self.config.connect_timeout(limit.min(most));
        self
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
fn take_tls(text: &str) -> Result<(String, TlsParameters), OpenError> {
    let mut parameters = TlsParameters::default();
    let Some((front, query)) = text.split_once('?') else { return Ok((text.to_owned(), parameters)) };
    let mut others = Vec::new();
    for parameter in query.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let place = match name {
            "sslmode" => &mut parameters.mode,
            "sslrootcert" => &mut parameters.root,
            "sslcert" => &mut parameters.certificate,
            "sslkey" => &mut parameters.key,
            _ if name.starts_with("ssl") || name.starts_with("gssenc") || name == "channel_binding" => {
                return Err(refused(&format!(
                    "{name} is not known here: leave it out. TLS has sslmode, sslrootcert, sslcert and sslkey"
                )));
            }
            _ => {
                others.push(parameter);
                continue;
            }
        };
        let value = percent_decode_text(value).filter(|value| !value.is_empty());
        let why = || refused(&format!("{name} has no value, or one that is not percent-encoded UTF-8"));
        *place = Some(value.ok_or_else(why)?);
    }
    let query = others.join("&");
    let text = if query.is_empty() { front.to_owned() } else { format!("{front}?{query}") };
    Ok((text, parameters))
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
    let servers = config.get_hosts().len().max(config.get_hostaddrs().len());
    let servers: Vec<String> = (0..servers).map(|server| server_shown(config, server)).collect();
    format!("postgresql://{}/{}", servers.join(","), config.get_dbname().unwrap_or_default())
}

/// Host and port of one server.
fn server_shown(config: &Config, server: usize) -> String {
    let host = match (config.get_hosts().get(server), config.get_hostaddrs().get(server)) {
        (Some(Host::Tcp(name)), _) => name.clone(),
        (Some(Host::Unix(path)), _) => path.display().to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => String::new(),
    };
    let ports = config.get_ports();
    match ports.get(server).or_else(|| ports.first()) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

/// Sets the addresses of a host by name, so that the driver does not look them up itself: on a thread that it would panic without. One
/// that is not found stays as it is, and the driver says so.
async fn look_up_host(config: &mut Config) -> Result<(), Fault> {
    let name = match (config.get_hosts(), config.get_hostaddrs()) {
        ([Host::Tcp(name)], []) => name.clone(),
        _ => return Ok(()),
    };
    let found = look_up(&name, 0).await.map_err(Fault::NoLoop)?;
    // One host for each address: the driver tries them in turn.
    for (at, address) in found.unwrap_or_default().into_iter().enumerate() {
        if at > 0 {
            config.host(&name);
        }
        config.hostaddr(address.ip());
    }
    Ok(())
}

/// The same settings with one server alone.
fn only(all: &Config, server: usize) -> Config {
    let mut one = Config::new();
    match all.get_hosts().get(server) {
        Some(Host::Tcp(name)) => {
            one.host(name);
        }
        Some(Host::Unix(path)) => {
            one.host_path(path);
        }
        None => {}
    }
    if let Some(address) = all.get_hostaddrs().get(server) {
        one.hostaddr(*address);
    }
    if let Some(port) = all.get_ports().get(server).or_else(|| all.get_ports().first()) {
        one.port(*port);
    }
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(database) = all.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = all.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(all.get_keepalives());
    one.keepalives_idle(all.get_keepalives_idle());
    one.ssl_mode(all.get_ssl_mode());
    one.channel_binding(all.get_channel_binding());
    one.target_session_attrs(all.get_target_session_attrs());
    one
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
            (
                "postgresql://larix:secret@db1,db2/d?hostaddr=192.0.2.1&sslmode=disable",
                Err("hostaddr has 1 addresses for 2 hosts"),
            ),
            ("postgresql://larix:secret@db1,db2/d?port=1", Err("there are 3 ports for 2 hosts")),
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
    fn each_server_is_asked_with_the_same_settings() {
        let text = "postgresql://larix:secret@db1:5433,%2Frun/d?sslmode=disable&options=-c%20x%3D1&connect_timeout=2&\
                    tcp_user_timeout=9&keepalives=0&keepalives_idle=7&keepalives_interval=8&keepalives_retries=6";
        let address = Address::parse(text).expect("an address").named("ldap://one larix");
        assert_eq!(address.servers(), 2);
        for (server, shown) in ["postgresql://db1:5433/d", "postgresql:///run:5432/d"].into_iter().enumerate()
        {
            let one = only(&address.config, server);
            assert_eq!(super::shown(&one), shown);
            assert_eq!(one.get_user(), Some("larix"));
            assert_eq!(one.get_password(), Some(&b"secret"[..]));
            assert_eq!(one.get_options(), Some("-c x=1"));
            assert_eq!(one.get_application_name(), Some("larix ldap://one larix"));
            assert_eq!(one.get_connect_timeout(), Some(&Duration::from_secs(2)));
            assert_eq!(one.get_tcp_user_timeout(), Some(&Duration::from_secs(9)));
            assert!(!one.get_keepalives());
            assert_eq!(one.get_keepalives_idle(), Duration::from_secs(7));
            assert_eq!(one.get_keepalives_interval(), Some(Duration::from_secs(8)));
            assert_eq!(one.get_keepalives_retries(), Some(6));
            assert_eq!(one.get_ssl_mode(), SslMode::Disable);
            assert_eq!(one.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        }
    }

    #[test]
    fn a_server_in_doubt_is_asked_last() {
        let address =
            Address::parse("postgresql://larix@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/d").expect("an address");
        let first = || address.first.load(Ordering::Relaxed);
        assert_eq!(first(), 0);
        address.doubt(0);
        // What somebody else has seen of it is no reason to leave the next one.
        address.clone().doubt(0);
        assert_eq!(first(), 1);
        address.doubt(1);
        address.doubt(2);
        assert_eq!(first(), 0);
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
