//! The addresses a server listens on: `-h "ldap://:389 ldapi://%2Frun%2Fldapi/????x-mod=0777"`.
//!
//! A URL is parsed into a [`ListenUrl`] first, without touching the network; [`ListenUrl::bind`] turns it into one
//! bound socket or, for a name with several addresses, into one an address.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use larix_configuration::values::TcpBuffer;
use larix_proto::url::{DEFAULT_SOCKET, percent_decode_text, with_scheme};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// The registered port of `ldap://`.
pub const LDAP_PORT: u16 = 389;
/// The registered port of `ldaps://`.
pub const LDAPS_PORT: u16 = 636;
/// Connections the kernel holds that were not accepted yet, when the configuration does not say (`listener-backlog`).
pub const DEFAULT_BACKLOG: i32 = 1024;

/// Which address families a TCP listener may use (`-4`, `-6`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4 and IPv6.
    #[default]
    Any,
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
}

/// One URL of `-h`, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenUrl {
    /// The URL as it was given: monitoring and the log show it.
    pub text: String,
    /// What it names.
    pub endpoint: Endpoint,
    /// `ldaps://`, `pldaps://`: TLS from the first byte on.
    pub tls: bool,
    /// `pldap://`, `pldaps://`: each connection begins with a PROXY protocol header.
    pub proxied: bool,
}

/// What a listener's URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `ldap://host:port`; no host is every address. Port 0 lets the kernel choose.
    Tcp { host: Option<String>, port: u16 },
    /// `ldapi://path`, with the socket's mode if `x-mod` gives one.
    Unix { path: PathBuf, mode: Option<u32> },
}

const SEPARATED: &str = ": several URLs are separated by spaces";

/// A listener URL that cannot be used, or a socket that cannot be bound.
#[derive(Debug)]
pub enum ListenError {
    /// Not `scheme://...`.
    NotAUrl(String),
    /// A scheme that no LDAP server has.
    UnknownScheme { url: String, scheme: String },
    /// The port is no number of 0 to 65535.
    Port { url: String, port: String },
    /// A `%` not followed by two hexadecimal digits, or bytes that are no path.
    Escape(String),
    /// The path of a socket stands where a URL has its DN: it would be the default socket.
    Path { url: String, meant: String },
    /// A name of an entry stands behind the address, or another URL.
    Behind { url: String, text: String },
    /// There is no URL at all.
    Nothing,
    /// An extension that is unknown, or `x-mod` that is no octal mode.
    Extension { url: String, extension: String },
    /// The host's name has no address (in the families allowed).
    Resolve { url: String, host: String, source: Option<io::Error> },
    /// The kernel refused the address.
    Bind { url: String, address: String, source: io::Error },
    /// Another process answers on the socket's path.
    SocketInUse { url: String, path: PathBuf },
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAUrl(url) if !url.contains("://") => {
                write!(f, "\"{url}\" is not a listener URL: did you mean \"{}\"?", with_scheme(url))
            }
            Self::NotAUrl(url) => {
                write!(f, "\"{url}\" is not a listener URL: expected ldap://host:port/ or ldapi://%2Fpath/")
            }
            Self::UnknownScheme { url, scheme } => {
                write!(
                    f,
                    "listener URL \"{url}\": unknown scheme \"{scheme}\", expected ldap, ldaps, ldapi, pldap or pldaps"
                )
            }
            Self::Port { url, port } => {
                write!(f, "listener URL \"{url}\": \"{port}\" is not a port (0 to 65535)")
            }
            Self::Escape(url) => {
                write!(f, "listener URL \"{url}\": a % needs two hexadecimal digits after it")
            }
            Self::Path { url, meant } => {
                write!(
                    f,
                    "listener URL \"{url}\": in the path of a socket / is written %2F: did you mean \"{meant}\"?"
                )
            }
            Self::Behind { url, text } => {
                let mend = if url.matches("://").count() > 1 { SEPARATED } else { ": take it out" };
                write!(f, "listener URL \"{url}\": \"{text}\" behind the address has no meaning{mend}")
            }
            Self::Nothing => f.write_str("no listener URL: name one, such as ldap:///"),
            Self::Extension { url, extension } => {
                write!(
                    f,
                    "listener URL \"{url}\": bad extension \"{extension}\", known is x-mod=<octal mode>"
                )
            }
            Self::Resolve { url, host, source } => {
                write!(f, "listener URL \"{url}\": no address for host \"{host}\"")?;
                if host.contains(',') {
                    return f.write_str(SEPARATED);
                }
                match source {
                    Some(source) => write!(f, ": {source}"),
                    None => f.write_str(" of the family that -4 or -6 asks for"),
                }
            }
            Self::Bind { url, address, source } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "listener URL \"{url}\": {address} is in use by another process: end that, or name another with -h"
                )
            }
            Self::Bind { url, address, source } => {
                write!(f, "listener URL \"{url}\": cannot bind {address}: {source}")?;
                if source.kind() == io::ErrorKind::AddrNotAvailable {
                    f.write_str("\n    = help: no network interface of this machine has this address")?;
                }
                let port = address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
                if source.kind() == io::ErrorKind::PermissionDenied && port.is_some_and(|port| port < 1024) {
                    f.write_str(
                        "\n    = help: ports below 1024 are root's: start as root with `-u USER`, and the server goes on as that user; \
                         or name a higher port with -h",
                    )?;
                }
                Ok(())
            }
            Self::SocketInUse { url, path } => {
                write!(
                    f,
                    "listener URL \"{url}\": another process answers on {}: end that, or name another with -h",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for ListenError {}

/// A bound socket, not yet accepting.
#[derive(Debug)]
pub struct Listener {
    /// The URL it came from.
    pub url: String,
    pub socket: ListenSocket,
    /// How the log and cn=Monitor name it: `IP=127.0.0.1:389`, `IP=[::]:389`, `PATH=/run/ldapi`.
    pub name: String,
    /// As in its [`ListenUrl`].
    pub tls: bool,
    pub proxied: bool,
}

/// The two kinds of listening sockets.
#[derive(Debug)]
pub enum ListenSocket {
    /// `ldap://`
    Tcp(TcpListener),
    /// `ldapi://`; the path is removed at the end.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// The TCP port really bound (`ldap://:0` asks for any), `None` for a path.
    pub fn port(&self) -> Option<u16> {
        match &self.socket {
            ListenSocket::Tcp(socket) => socket.local_addr().ok().map(|a| a.port()),
            ListenSocket::Unix(..) => None,
        }
    }

    /// Gives the connections that it will accept buffers of these sizes in the kernel: bytes, of which the kernel doubles the
    /// number and bounds it (`net.core.rmem_max`). The last line that speaks of a direction holds. Unix sockets have none.
    pub(crate) fn set_buffers(&self, buffers: &[TcpBuffer]) -> io::Result<()> {
        let ListenSocket::Tcp(socket) = &self.socket else { return Ok(()) };
        let socket = SockRef::from(socket);
        let own = |buffer: &&TcpBuffer| {
            buffer.listener.as_deref().is_none_or(|url| ListenUrl::is_alike(url, &self.url))
        };
        for buffer in buffers.iter().filter(own) {
            buffer.read.map_or(Ok(()), |bytes| socket.set_recv_buffer_size(bytes as usize))?;
            buffer.write.map_or(Ok(()), |bytes| socket.set_send_buffer_size(bytes as usize))?;
        }
        Ok(())
    }
}

/// A Unix socket's file: dropped, it is removed if it still is ours, at the end as well as when a start fails.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    inode: u64,
}

impl SocketPath {
    /// That of a listener; none where it is not a Unix socket.
    pub fn of(listener: &Listener) -> Option<Self> {
        let ListenSocket::Unix(_, path) = &listener.socket else { return None };
        let inode = std::fs::symlink_metadata(path).ok()?.ino();
        Some(Self { path: path.clone(), inode })
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if ours {
            // Gone already, or a directory that the dropped user may not write: the next start replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Parses the argument of `-h`: URLs separated by white space.
///
/// # Errors
/// A URL that cannot be used, or none at all.
pub fn parse_urls(list: &str) -> Result<Vec<ListenUrl>, ListenError> {
    let urls: Vec<ListenUrl> =
        list.split_ascii_whitespace().map(ListenUrl::parse).collect::<Result<_, _>>()?;
    if urls.is_empty() { Err(ListenError::Nothing) } else { Ok(urls) }
}

impl ListenUrl {
    /// Whether two texts are the same URL but for letter case and slashes at the end.
    fn is_alike(a: &str, b: &str) -> bool {
        a.trim_end_matches('/').eq_ignore_ascii_case(b.trim_end_matches('/'))
    }

    /// Parses one listener URL.
    pub fn parse(text: &str) -> Result<Self, ListenError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| ListenError::NotAUrl(text.to_owned()))?;
        let lower = scheme.to_ascii_lowercase();
        let (authority, extensions) = split_extensions(rest);
        let tls = matches!(lower.as_str(), "ldaps" | "pldaps");
        let proxied = matches!(lower.as_str(), "pldap" | "pldaps");
        let endpoint = match lower.as_str() {
            "ldap" | "pldap" => parse_tcp(text, rest, LDAP_PORT)?,
            "ldaps" | "pldaps" => parse_tcp(text, rest, LDAPS_PORT)?,
            "ldapi" => {
                demand_escaped_path(text, rest)?;
                parse_unix(text, authority, extensions)?
            }
            _ => return Err(ListenError::UnknownScheme { url: text.to_owned(), scheme: scheme.to_owned() }),
        };
        Ok(Self { text: text.to_owned(), endpoint, tls, proxied })
    }

    /// Binds it: one listener an address. `ldap:///` gives one dual-stack socket where the machine has IPv6.
    pub fn bind(&self, family: AddressFamily, backlog: i32) -> Result<Vec<Listener>, ListenError> {
        match &self.endpoint {
            Endpoint::Tcp { host, port } => self.bind_tcp(host.as_deref(), *port, family, backlog),
            Endpoint::Unix { path, mode } => Ok(vec![self.bind_unix(path, *mode)?]),
        }
    }

    fn bind_tcp(
        &self,
        host: Option<&str>,
        port: u16,
        family: AddressFamily,
        backlog: i32,
    ) -> Result<Vec<Listener>, ListenError> {
        let Some(host) = host else { return self.bind_every_address(port, family, backlog) };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let resolved = (bare, port).to_socket_addrs().map_err(|source| ListenError::Resolve {
            url: self.text.clone(),
            host: host.to_owned(),
            source: Some(source),
        })?;
        let mut addresses: Vec<SocketAddr> = resolved.filter(|a| family.allows(a)).collect();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(ListenError::Resolve { url: self.text.clone(), host: host.to_owned(), source: None });
        }
        // A name such as "localhost" may resolve to a family that this machine does not have: one address that binds
        // is enough, as long as no other process holds the others.
        let mut bound = Vec::new();
        let mut refused = None;
        let mut port = port;
        for mut address in addresses {
            address.set_port(port);
            match self.bind_address(address, true, backlog) {
                Ok(listener) => {
                    // With port 0, all addresses of a name share the port the kernel chose for the first.
                    port = listener.port().unwrap_or(port);
                    bound.push(listener);
                }
                Err(ListenError::Bind { source, .. }) if source.kind() == io::ErrorKind::AddrNotAvailable => {
                    refused = Some(ListenError::Bind {
                        url: self.text.clone(),
                        address: address.to_string(),
                        source,
                    });
                }
                Err(error) => return Err(error),
            }
        }
        match (bound.is_empty(), refused) {
            (true, Some(error)) => Err(error),
            _ => Ok(bound),
        }
    }

    fn bind_every_address(
        &self,
        port: u16,
        family: AddressFamily,
        backlog: i32,
    ) -> Result<Vec<Listener>, ListenError> {
        let v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        match family {
            AddressFamily::V4 => Ok(vec![self.bind_address(v4, true, backlog)?]),
            AddressFamily::V6 => Ok(vec![self.bind_address(v6, true, backlog)?]),
            AddressFamily::Any => match self.bind_address(v6, false, backlog) {
                Ok(listener) => Ok(vec![listener]),
                Err(ListenError::Bind { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {
                    Err(ListenError::Bind { url: self.text.clone(), address: v6.to_string(), source })
                }
                Err(_) => Ok(vec![self.bind_address(v4, true, backlog)?]),
            },
        }
    }

    fn bind_address(
        &self,
        address: SocketAddr,
        only_v6: bool,
        backlog: i32,
    ) -> Result<Listener, ListenError> {
        let bind = || -> io::Result<TcpListener> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            socket.set_cloexec(true)?;
            if address.is_ipv6() {
                socket.set_only_v6(only_v6)?;
            }
            socket.bind(&address.into())?;
            socket.listen(backlog)?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        };
        let failed =
            |source| ListenError::Bind { url: self.text.clone(), address: address.to_string(), source };
        let socket = bind().map_err(failed)?;
        let local = socket.local_addr().map_err(failed)?;
        Ok(Listener {
            url: self.text.clone(),
            name: format!("IP={local}"),
            socket: ListenSocket::Tcp(socket),
            tls: self.tls,
            proxied: self.proxied,
        })
    }

    fn bind_unix(&self, path: &Path, mode: Option<u32>) -> Result<Listener, ListenError> {
        let failed = |source| ListenError::Bind {
            url: self.text.clone(),
            address: path.display().to_string(),
            source,
        };
        self.remove_dead_socket(path)?;
        let socket = UnixListener::bind(path).map_err(failed)?;
        // As OpenLDAP: without x-mod every local user may connect; who may do what is the access rules' business.
        let permissions = std::fs::Permissions::from_mode(mode.unwrap_or(0o777));
        std::fs::set_permissions(path, permissions).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let name = format!("PATH={}", path.display());
        let socket = ListenSocket::Unix(socket, path.to_owned());
        Ok(Listener { url: self.text.clone(), name, socket, tls: false, proxied: false })
    }

    /// A socket that a dead server left is removed; one with a running server is not.
    fn remove_dead_socket(&self, path: &Path) -> Result<(), ListenError> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {}
            _ => return Ok(()),
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)
                .map_err(|source| ListenError::Bind {
                    url: self.text.clone(),
                    address: path.display().to_string(),
                    source,
                }),
            _ => Err(ListenError::SocketInUse { url: self.text.clone(), path: path.to_owned() }),
        }
    }
}

impl AddressFamily {
    fn allows(self, address: &SocketAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }
}

/// `authority/dn?attributes?scope?filter?extensions` -> (authority, extensions).
fn split_extensions(rest: &str) -> (&str, &str) {
    let mut parts = rest.splitn(5, '?');
    let authority = parts.next().unwrap_or("");
    let authority = authority.split('/').next().unwrap_or("");
    (authority, parts.nth(3).unwrap_or(""))
}

fn parse_tcp(url: &str, rest: &str, default: u16) -> Result<Endpoint, ListenError> {
    let address = rest.split('?').next().unwrap_or("");
    let (authority, behind) = address.split_once('/').unwrap_or((address, ""));
    if !behind.trim_matches('/').is_empty() {
        return Err(ListenError::Behind { url: url.to_owned(), text: behind.to_owned() });
    }
    let bad_port = |port: &str| ListenError::Port { url: url.to_owned(), port: port.to_owned() };
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(|| ListenError::NotAUrl(url.to_owned()))?;
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return Err(bad_port(after)),
        }
    } else {
        match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let port = match port {
        None | Some("") => default,
        Some(text) => text.parse().map_err(|_| bad_port(text))?,
    };
    let host = percent_decode_text(host).ok_or_else(|| ListenError::Escape(url.to_owned()))?;
    let host = if host.is_empty() || host == "*" { None } else { Some(host) };
    Ok(Endpoint::Tcp { host, port })
}

/// OpenLDAP listens at the default socket for `ldapi:///run/other`, and at `run` for `ldapi://run/other`, which is nobody's wish.
fn demand_escaped_path(url: &str, rest: &str) -> Result<(), ListenError> {
    let (path, behind) = rest.find('?').map_or((rest, ""), |at| rest.split_at(at));
    let path = path.trim_end_matches('/');
    let own = usize::from(path.starts_with('/'));
    let is_path = path.matches('/').count() > own && !path.contains('=');
    if !is_path || [DEFAULT_SOCKET, "/run/slapd/ldapi"].contains(&path) {
        return Ok(());
    }
    let end = if behind.is_empty() { "" } else { "/" };
    let meant = format!("ldapi://{}{end}{behind}", path.replace('/', "%2F"));
    Err(ListenError::Path { url: url.to_owned(), meant })
}

fn parse_unix(url: &str, authority: &str, extensions: &str) -> Result<Endpoint, ListenError> {
    let path = percent_decode_text(authority).ok_or_else(|| ListenError::Escape(url.to_owned()))?;
    let path = if path.is_empty() { DEFAULT_SOCKET.to_owned() } else { path };
    let mut mode = None;
    for extension in extensions.split(',').filter(|e| !e.is_empty()) {
        let bad = || ListenError::Extension { url: url.to_owned(), extension: extension.to_owned() };
        let (critical, body) = extension.strip_prefix('!').map_or((false, extension), |body| (true, body));
        match body.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("x-mod") => {
                mode = Some(parse_mode(value).ok_or_else(bad)?);
            }
            _ if critical => return Err(bad()),
            _ => {}
        }
    }
    Ok(Endpoint::Unix { path: PathBuf::from(path), mode })
}

/// `0777` or, as OpenLDAP also takes it, `-rwxrwxrwx`.
fn parse_mode(text: &str) -> Option<u32> {
    if text.bytes().all(|b| (b'0'..=b'7').contains(&b)) {
        return u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    }
    let letters = text.strip_prefix('-')?.as_bytes();
    if letters.len() != 9 {
        return None;
    }
    letters.iter().zip("rwxrwxrwx".bytes()).try_fold(0, |mode, (letter, expected)| match *letter {
        b'-' => Some(mode << 1),
        l if l == expected => Some(mode << 1 | 1),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: Option<&str>, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.map(str::to_owned), port }
    }

    fn unix(path: &str, mode: Option<u32>) -> Endpoint {
        Endpoint::Unix { path: path.into(), mode }
    }

    #[test]
    fn buffers_are_those_of_the_listener() {
        let url = ListenUrl::parse("ldap://127.0.0.1:0/").unwrap();
        let listener = url.bind(AddressFamily::V4, DEFAULT_BACKLOG).unwrap().remove(0);
        let ListenSocket::Tcp(socket) = &listener.socket else { panic!("{listener:?}") };
        socket.set_nonblocking(false).unwrap();
        let sizes = || {
            let _client = std::net::TcpStream::connect(socket.local_addr().unwrap()).unwrap();
            let (accepted, _) = socket.accept().unwrap();
            let accepted = SockRef::from(&accepted);
            (accepted.recv_buffer_size().unwrap(), accepted.send_buffer_size().unwrap())
        };
        let usual = sizes();
        let buffer = |listener: Option<&str>, read, write| TcpBuffer {
            listener: listener.map(str::to_owned),
            read,
            write,
        };
        listener.set_buffers(&[buffer(Some("ldap://127.0.0.1:389/"), Some(8192), Some(8192))]).unwrap();
        assert_eq!(sizes(), usual, "another listener's");
        let all = buffer(None, Some(8192), Some(16384));
        listener.set_buffers(&[all, buffer(Some("LDAP://127.0.0.1:0"), None, Some(32768))]).unwrap();
        // The kernel doubles what it is asked for.
        assert_eq!(sizes(), (2 * 8192, 2 * 32768));
    }

    #[test]
    fn urls_that_listen() {
        for (text, expected) in [
            ("ldap:///", tcp(None, 389)),
            ("ldap://", tcp(None, 389)),
            ("LDAP://:0", tcp(None, 0)),
            ("ldap://*:3890", tcp(None, 3890)),
            ("ldap://127.0.0.1:3899/", tcp(Some("127.0.0.1"), 3899)),
            ("ldaps:///", tcp(None, 636)),
            ("pldaps://*", tcp(None, 636)),
            ("pldap://127.0.0.1", tcp(Some("127.0.0.1"), 389)),
            ("ldap://[::1]:3899", tcp(Some("::1"), 3899)),
            ("ldap://[::1]", tcp(Some("::1"), 389)),
            ("ldap://host.example.com", tcp(Some("host.example.com"), 389)),
            ("ldapi:///", unix(DEFAULT_SOCKET, None)),
            ("ldapi:///var/run/slapd/ldapi", unix(DEFAULT_SOCKET, None)),
            ("ldapi:///dc=example,dc=com", unix(DEFAULT_SOCKET, None)),
            ("ldapi://%2Ftmp%2Fa%20b/", unix("/tmp/a b", None)),
            ("ldapi://%2Ftmp%2Fs/????x-mod=0700", unix("/tmp/s", Some(0o700))),
            ("ldapi://%2Ftmp%2Fs????!x-mod=-rwxr-x---", unix("/tmp/s", Some(0o750))),
        ] {
            assert_eq!(ListenUrl::parse(text).unwrap().endpoint, expected, "{text}");
        }
    }

    #[test]
    fn urls_that_do_not() {
        for (text, expected) in [
            ("localhost:389", "not a listener URL"),
            ("ldap:127.0.0.1:389", "did you mean \"ldap://127.0.0.1:389\"?"),
            ("3890", "did you mean \"ldap://:3890\"?"),
            ("http://localhost", "unknown scheme \"http\""),
            ("ldap://:99999", "\"99999\" is not a port"),
            ("ldap://[::1", "not a listener URL"),
            ("ldapi:///tmp/ldapi", "did you mean \"ldapi://%2Ftmp%2Fldapi\"?"),
            ("ldapi://data/ldapi", "did you mean \"ldapi://data%2Fldapi\"?"),
            ("ldapi://%2Ftmp/s", "did you mean \"ldapi://%2Ftmp%2Fs\"?"),
            ("ldapi:///tmp/s/????x-mod=0700", "did you mean \"ldapi://%2Ftmp%2Fs/????x-mod=0700\"?"),
            ("ldap://localhost/dc=example", "\"dc=example\" behind the address has no meaning: take it out"),
            ("ldap://localhost/,ldaps://localhost/", "has no meaning: several URLs are separated by spaces"),
            ("ldapi://%2", "two hexadecimal digits"),
            ("ldapi://%2Ftmp/????x-mod=999", "bad extension \"x-mod=999\""),
            ("ldapi://%2Ftmp/????!x-other=1", "bad extension \"!x-other=1\""),
        ] {
            let error = ListenUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_server_listens_somewhere() {
        let error = parse_urls(" ").unwrap_err().to_string();
        assert_eq!(error, "no listener URL: name one, such as ldap:///");
    }

    #[test]
    fn urls_with_commas_between_them() {
        for list in ["ldap://127.0.0.1:0,ldap://127.0.0.1:0", "ldap:///,ldaps:///"] {
            let error = ListenUrl::parse(list).unwrap_err().to_string();
            assert!(error.contains("has no meaning") && error.ends_with("separated by spaces"), "{error}");
        }
        let both = ListenUrl::parse("ldap://127.0.0.1,127.0.0.2").unwrap();
        let error = both.bind(AddressFamily::Any, 8).unwrap_err().to_string();
        assert!(error.contains("no address for host") && error.ends_with("separated by spaces"), "{error}");
    }

    #[test]
    fn an_address_of_the_other_family_is_reported_as_that() {
        for (url, family) in
            [("ldap://127.0.0.1:0", AddressFamily::V6), ("ldap://[::1]:0", AddressFamily::V4)]
        {
            let error = ListenUrl::parse(url).unwrap().bind(family, 8).unwrap_err().to_string();
            assert!(error.ends_with("of the family that -4 or -6 asks for"), "{error}");
        }
    }

    #[test]
    fn port_zero_reports_the_real_port_and_a_taken_port_is_named() {
        let first = ListenUrl::parse("ldap://127.0.0.1:0").unwrap().bind(AddressFamily::Any, 8).unwrap();
        let port = first[0].port().unwrap();
        assert_ne!(port, 0);
        assert_eq!(first[0].name, format!("IP=127.0.0.1:{port}"));
        let again = ListenUrl::parse(&format!("ldap://127.0.0.1:{port}")).unwrap();
        let error = again.bind(AddressFamily::Any, 8).unwrap_err().to_string();
        assert!(error.contains("is in use"), "{error}");
        // An address of documents, which no machine has (RFC 5737).
        let elsewhere = ListenUrl::parse("ldap://192.0.2.1:0").unwrap();
        let error = elsewhere.bind(AddressFamily::Any, 8).unwrap_err().to_string();
        assert!(error.ends_with("no network interface of this machine has this address"), "{error}");
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ldapi");
        let url = format!("ldapi://{}/????x-mod=0700", path.display().to_string().replace('/', "%2F"));
        let url = ListenUrl::parse(&url).unwrap();
        let live = url.bind(AddressFamily::Any, 8).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(matches!(url.bind(AddressFamily::Any, 8), Err(ListenError::SocketInUse { .. })));
        drop(live);
        assert!(url.bind(AddressFamily::Any, 8).is_ok());
    }
}
