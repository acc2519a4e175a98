//! LDAP URLs (RFC 4516), with OpenLDAP's schemes and `ldapi:` sockets.

use std::fmt::{self, Write};

use crate::filter::{FilterBuf, FilterSyntaxError};
use crate::request::Scope;

/// Where `ldapi:///` leads: the socket of OpenLDAP's server.
pub const DEFAULT_SOCKET: &str = "/var/run/slapd/ldapi";

/// A URL, its parts decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LdapUrl {
    pub scheme: UrlScheme,
    /// A name or address, an IPv6 address without brackets; for `ldapi` the socket's path. Empty is the default.
    pub host: String,
    pub port: Option<u16>,
    pub dn: String,
    pub attributes: Vec<String>,
    pub scope: Option<Scope>,
    pub filter: Option<FilterBuf>,
    pub extensions: Vec<UrlExtension>,
}

/// An extension such as `!bindname=cn=x` or `x-mod=0700`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlExtension {
    pub critical: bool,
    pub name: String,
    pub value: Option<String>,
}

/// What is before `://`: the protocol, and what carries it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum UrlScheme {
    Ldap,
    Ldaps,
    /// A Unix socket.
    Ldapi,
    /// LDAP behind a proxy that speaks the PROXY protocol.
    Pldap,
    Pldaps,
    /// Connectionless LDAP.
    Cldap,
}

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// Not one of the schemes of [`UrlScheme`].
    Scheme(String),
    /// All of it, because it has no scheme: `host:port`, or a path.
    NoScheme(String),
    /// No `//` after the scheme.
    MissingSlashes,
    /// A `%` without two hexadecimal digits, or what they mean is not UTF-8.
    Encoding(String),
    Port(String),
    /// `[` without `]`, or something between `]` and the port.
    Brackets,
    /// None of base, one, sub, subordinate and children.
    Scope(String),
    Filter(FilterSyntaxError),
    /// A fifth `?`.
    TooManyParts,
    /// An extension without a name.
    Extension,
}

impl LdapUrl {
    /// A URL that names a server and nothing in it.
    pub fn server(scheme: UrlScheme, host: impl Into<String>, port: Option<u16>) -> Self {
        Self {
            scheme,
            host: host.into(),
            port,
            dn: String::new(),
            attributes: Vec::new(),
            scope: None,
            filter: None,
            extensions: Vec::new(),
        }
    }

    /// Parses a URL, in angle brackets or with a leading `URL:` if need be.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text);
        let text = match text.split_at_checked(4) {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case("url:") => rest,
            _ => text,
        };
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        let scheme = UrlScheme::parse(scheme).ok_or_else(|| {
            if text.is_empty() || text.contains("://") {
                UrlError::Scheme(scheme.into())
            } else {
                UrlError::NoScheme(text.into())
            }
        })?;
        let rest = rest.strip_prefix("//").ok_or(UrlError::MissingSlashes)?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let (host, port) = authority_parts(scheme, authority)?;
        let mut url = Self::server(scheme, host, port);
        url.parts(rest.strip_prefix('/').unwrap_or(rest))?;
        Ok(url)
    }

    /// Everything after the slash: `dn?attributes?scope?filter?extensions`.
    fn parts(&mut self, text: &str) -> Result<(), UrlError> {
        let mut parts = text.split('?');
        self.dn = decode(parts.next().unwrap_or_default())?;
        self.attributes = list(parts.next()).map(decode).collect::<Result<_, _>>()?;
        self.scope = match decode(parts.next().unwrap_or_default())?.to_ascii_lowercase().as_str() {
            "" => None,
            "base" => Some(Scope::Base),
            "one" | "onelevel" => Some(Scope::OneLevel),
            "sub" | "subtree" => Some(Scope::Subtree),
            "subordinate" | "subord" | "children" => Some(Scope::Children),
            other => return Err(UrlError::Scope(other.into())),
        };
        self.filter = match decode(parts.next().unwrap_or_default())?.as_str() {
            "" => None,
            filter => Some(FilterBuf::parse(filter).map_err(UrlError::Filter)?),
        };
        self.extensions = list(parts.next()).map(UrlExtension::parse).collect::<Result<_, _>>()?;
        if parts.next().is_some() { Err(UrlError::TooManyParts) } else { Ok(()) }
    }

    /// The URL of a server that is asked. An empty port is refused: RFC 3986 section 3.2.3 takes it for the usual one, but in
    /// a configuration the port was forgotten, and OpenLDAP refuses it.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse), and a colon without a port.
    pub fn parse_server(text: &str) -> Result<Self, UrlError> {
        let url = Self::parse(text)?;
        let rest = text.split_once("//").map_or(text, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '>']).next().unwrap_or(rest);
        match url.scheme != UrlScheme::Ldapi && authority.ends_with(':') {
            true => Err(UrlError::Port(String::new())),
            false => Ok(url),
        }
    }

    /// The port, given or implied; a socket has none.
    pub fn effective_port(&self) -> Option<u16> {
        self.port.or_else(|| self.scheme.default_port())
    }

    /// The host that the URL names or implies.
    pub fn effective_host(&self) -> &str {
        if self.host.is_empty() { "localhost" } else { &self.host }
    }

    /// The path of the socket that an `ldapi` URL names or implies.
    pub fn socket_path(&self) -> &str {
        if self.host.is_empty() { DEFAULT_SOCKET } else { &self.host }
    }

    /// An extension by its name, case ignored.
    pub fn extension(&self, name: &str) -> Option<&UrlExtension> {
        self.extensions.iter().find(|extension| extension.name.eq_ignore_ascii_case(name))
    }
}

impl std::str::FromStr for LdapUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

impl UrlScheme {
    fn parse(text: &str) -> Option<Self> {
        [Self::Ldap, Self::Ldaps, Self::Ldapi, Self::Pldap, Self::Pldaps, Self::Cldap]
            .into_iter()
            .find(|scheme| scheme.as_str().eq_ignore_ascii_case(text))
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ldap => "ldap",
            Self::Ldaps => "ldaps",
            Self::Ldapi => "ldapi",
            Self::Pldap => "pldap",
            Self::Pldaps => "pldaps",
            Self::Cldap => "cldap",
        }
    }

    pub const fn default_port(self) -> Option<u16> {
        match self {
            Self::Ldap | Self::Pldap | Self::Cldap => Some(389),
            Self::Ldaps | Self::Pldaps => Some(636),
            Self::Ldapi => None,
        }
    }

    /// Whether TLS starts with the connection.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Ldaps | Self::Pldaps)
    }
}

impl UrlExtension {
    fn parse(text: &str) -> Result<Self, UrlError> {
        let (critical, text) = match text.strip_prefix('!') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(decode(value)?)),
            None => (text, None),
        };
        let name = decode(name)?;
        if name.is_empty() { Err(UrlError::Extension) } else { Ok(Self { critical, name, value }) }
    }
}

/// The URL for a host, a port, a host and a port, or the path of a socket; or for a URL whose slashes are mistyped.
pub fn with_scheme(text: &str) -> String {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !text.is_empty() && is_number(text) {
        return with_scheme(&format!(":{text}"));
    }
    for scheme in [UrlScheme::Ldapi, UrlScheme::Ldaps, UrlScheme::Ldap] {
        let name = scheme.as_str();
        let (start, rest) = text.split_at_checked(name.len()).unwrap_or_default();
        let authority = rest.trim_start_matches([':', '/']);
        // A host may have such a name, with a port behind it.
        let is_host = authority.len() == rest.len() || is_number(authority);
        if is_host || !start.eq_ignore_ascii_case(name) {
            continue;
        }
        return match scheme {
            UrlScheme::Ldapi => with_scheme(&format!("/{authority}")),
            _ => format!("{name}://{authority}"),
        };
    }
    let scheme = match text.rsplit_once(':') {
        _ if text.starts_with('/') => return format!("ldapi://{}", text.replace('/', "%2F")),
        Some((_, "636")) => UrlScheme::Ldaps,
        _ => UrlScheme::Ldap,
    };
    format!("{}://{text}", scheme.as_str())
}

fn authority_parts(scheme: UrlScheme, authority: &str) -> Result<(String, Option<u16>), UrlError> {
    if scheme == UrlScheme::Ldapi {
        return Ok((decode(authority)?, None));
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(UrlError::Brackets)?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(UrlError::Brackets),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        None | Some("") => None,
        Some(port) => {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|_| digits);
            Some(number.ok_or_else(|| UrlError::Port(port.into()))?)
        }
    };
    Ok((decode(host)?, port))
}

fn list(part: Option<&str>) -> impl Iterator<Item = &str> {
    part.unwrap_or_default().split(',').filter(|item| !item.is_empty())
}

fn decode(text: &str) -> Result<String, UrlError> {
    percent_decode_text(text).ok_or_else(|| UrlError::Encoding(text.into()))
}

/// The same if the result has to be UTF-8.
pub fn percent_decode_text(text: &str) -> Option<String> {
    String::from_utf8(percent_decode(text)?).ok()
}

/// Resolves `%XX` (RFC 3986 section 2.1); `None` where `%` is followed by anything else.
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => digit(bytes.next())? << 4 | digit(bytes.next())?,
            other => other,
        });
    }
    Some(decoded)
}

impl fmt::Display for LdapUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        if self.scheme != UrlScheme::Ldapi && self.host.contains(':') {
            f.write_char('[')?;
            encode(f, &self.host, "!$&'()*+;=,:")?;
            f.write_char(']')?;
        } else {
            encode(f, &self.host, "!$&'()*+;=,")?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_char('/')?;
        encode(f, &self.dn, IN_PART)?;
        let mut parts = Parts { f, pending: 0 };
        parts.list(self.attributes.iter().map(|name| (name.as_str(), None, "")))?;
        parts.one(self.scope.map(scope_name).unwrap_or_default())?;
        parts.one(&self.filter.as_ref().map(FilterBuf::to_string).unwrap_or_default())?;
        parts.list(self.extensions.iter().map(|extension| {
            let mark = if extension.critical { "!" } else { "" };
            (extension.name.as_str(), extension.value.as_deref(), mark)
        }))
    }
}

/// What needs no encoding in the part of a DN or filter, besides letters, digits and `-._~`.
const IN_PART: &str = "!$&'()*+,;=:@/";

/// What needs no encoding in an item of a list.
const IN_ITEM: &str = "!$&'()*+;=:@/";

/// Writes the `?` parts; empty ones appear only when something follows them.
struct Parts<'f, 'b> {
    f: &'f mut fmt::Formatter<'b>,
    pending: usize,
}

impl Parts<'_, '_> {
    fn one(&mut self, text: &str) -> fmt::Result {
        self.begin(!text.is_empty())?;
        encode(self.f, text, IN_PART)
    }

    fn list<'i>(
        &mut self,
        items: impl Iterator<Item = (&'i str, Option<&'i str>, &'static str)>,
    ) -> fmt::Result {
        let mut items = items.peekable();
        self.begin(items.peek().is_some())?;
        while let Some((name, value, mark)) = items.next() {
            self.f.write_str(mark)?;
            encode(self.f, name, "*+;@")?;
            if let Some(value) = value {
                self.f.write_char('=')?;
                encode(self.f, value, IN_ITEM)?;
            }
            if items.peek().is_some() {
                self.f.write_char(',')?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, present: bool) -> fmt::Result {
        self.pending += 1;
        if present {
            (0..std::mem::take(&mut self.pending)).try_for_each(|_| self.f.write_char('?'))?;
        }
        Ok(())
    }
}

/// Appends text so that it is a part of a DN or filter in a URL, and of nothing else there.
pub fn percent_encode(text: &str, url: &mut String) {
    // A string takes everything.
    let _ = encode(url, text, IN_PART);
}

fn encode(f: &mut impl Write, text: &str, also_plain: &str) -> fmt::Result {
    text.bytes().try_for_each(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => f.write_char(char::from(byte)),
        byte if also_plain.as_bytes().contains(&byte) => f.write_char(char::from(byte)),
        byte => write!(f, "%{byte:02X}"),
    })
}

const fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Base => "base",
        Scope::OneLevel => "one",
        Scope::Subtree => "sub",
        Scope::Children => "subordinate",
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme(scheme) => write!(f, "\"{scheme}\" is not a scheme of LDAP URLs"),
            Self::NoScheme(text) => write!(f, "there is no scheme: did you mean \"{}\"?", with_scheme(text)),
            Self::MissingSlashes => f.write_str("\"//\" expected after the scheme"),
            Self::Encoding(text) => write!(f, "\"{text}\" is not percent-encoded UTF-8"),
            Self::Port(port) if port.is_empty() => f.write_str("no port stands behind the colon"),
            Self::Port(port) if port.contains(':') => {
                write!(
                    f,
                    "\"{port}\" is not a port: an IPv6 address stands in brackets, as in ldap://[::1]:389"
                )
            }
            Self::Port(port) => write!(f, "\"{port}\" is not a port"),
            Self::Brackets => f.write_str("brackets around the address do not match"),
            Self::Scope(scope) => write!(f, "scope \"{scope}\" is not base, one, sub or subordinate"),
            Self::Filter(error) => error.fmt(f),
            Self::TooManyParts => f.write_str("more than five parts"),
            Self::Extension => f.write_str("extension without a name"),
        }
    }
}

impl std::error::Error for UrlError {}

#[cfg(test)]
mod tests;
