//! `overlay remoteauth` (slapo-remoteauth(5)): which servers judge the binds of entries without a userPassword.

use larix_client::PeerKeyHash;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proxy::remote_auth::RETRIES_MAX;
use larix_proxy::settings::{TargetTls, TlsBegins};
use larix_schema::{AttributeDescription, Schema};

use super::builder::Builder;
use super::builder::call::{Call, Fault};
use super::builder::directive::{Apply, Directive, Form, Scope};
use super::diagnostic::ConfigError;
use super::line;
use super::model::Overlay;
use super::values::TLS_KEYS;

/// The overlay's name.
pub(super) const NAME: &str = "remoteauth";
/// Attempts after the first, unless `remoteauth_retry_count` says otherwise (OpenLDAP's number).
const RETRIES: u32 = 3;
/// Servers of one realm.
const SERVERS_MAX: usize = 32;

const fn own(keyword: &'static str, attribute: &'static str, form: Form, apply: Apply) -> Directive {
    Directive::new(keyword, attribute, Scope::Overlay(NAME), form, apply)
}

pub(super) static TABLE: &[Directive] = &[
    own("remoteauth_mapping", "olcRemoteAuthMapping", Form::Words, |_, c| check_realm(c, 1))
        .arguments(2, 2)
        .many(),
    own("remoteauth_dn_attribute", "olcRemoteAuthDNAttribute", Form::Whole, nothing),
    own("remoteauth_domain_attribute", "olcRemoteAuthDomainAttribute", Form::Whole, nothing),
    own("remoteauth_default_domain", "olcRemoteAuthDefaultDomain", Form::Whole, nothing),
    own("remoteauth_default_realm", "olcRemoteAuthDefaultRealm", Form::Whole, |_, c| check_realm(c, 0)),
    own("remoteauth_store", "olcRemoteAuthStore", Form::Switch, |_, c| c.switch().map(|_| ()))
        .arguments(0, 1),
    own("remoteauth_retry_count", "olcRemoteAuthRetryCount", Form::Whole, |_, c| {
        let count: u32 = c.number(0)?;
        match count > RETRIES_MAX {
            true => Err(Fault::argument(0, format!("{count} more attempts are too many"))
                .with_help(format!("0 to {RETRIES_MAX}"))),
            false => Ok(()),
        }
    }),
    own("remoteauth_tls", "olcRemoteAuthTLS", Form::Own, |builder, c| {
        let words: Vec<&str> = c.arguments.iter().map(String::as_str).collect();
        tls(&words).map_err(|(number, text)| Fault::argument(number, text).with_help(TLS_HELP))?;
        let shown = shown_tls(&words).into_bytes();
        builder.settings(c.directive).set(c.directive.attribute, shown);
        Ok(())
    }),
    own("remoteauth_tls_peerkey_hash", "olcRemoteAuthTLSPeerkeyHash", Form::Words, |_, c| {
        PeerKeyHash::parse(c.argument(0)?, c.argument(1)?).map(|_| ()).map_err(|text| {
            Fault::keyword(text).with_help("such as ldap.example.com sha256:<Base64 of the hash>")
        })
    })
    .arguments(2, 2)
    .many(),
];

const TLS_HELP: &str = "starttls=yes|critical|no, tls_cert=, tls_key=, tls_cacert=, tls_cacertdir=, tls_reqcert=, tls_reqsan=, \
                        tls_cipher_suite=, tls_ecname=, tls_crlcheck=, tls_protocol_min=";

fn nothing(_: &mut Builder, _: &Call<'_>) -> Result<(), Fault> {
    Ok(())
}

/// The servers of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Realm {
    /// Tried in this order.
    Servers(Vec<LdapUrl>),
    /// A file with one host or URL a line.
    File(String),
}

impl Realm {
    /// `file://<path>`, LDAP URLs, or a host.
    ///
    /// # Errors
    /// Names the server that cannot be asked.
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_at_checked(7) {
            Some((scheme, path)) if scheme.eq_ignore_ascii_case("file://") => match path.starts_with('/') {
                true => Ok(Self::File(path.to_owned())),
                false => Err(format!("`{text}` has no absolute path: write file:///path")),
            },
            _ => Self::servers(text.split([' ', ',']).filter(|word| !word.is_empty())).map(Self::Servers),
        }
    }

    /// Hosts and URLs, as lines of a file have them.
    fn servers<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<LdapUrl>, String> {
        let servers = words.map(server).collect::<Result<Vec<_>, _>>()?;
        match servers.len() {
            0 => Err("no server is named: write a host or an LDAP URL".to_owned()),
            count if count > SERVERS_MAX => {
                Err(format!("{count} servers are too many: up to {SERVERS_MAX} for one domain"))
            }
            _ => Ok(servers),
        }
    }

    /// The servers, those of a file as they are now.
    ///
    /// # Errors
    /// A file that cannot be read, or that names a server that cannot be asked.
    pub fn read(&self) -> Result<Vec<LdapUrl>, String> {
        let path = match self {
            Self::Servers(servers) => return Ok(servers.clone()),
            Self::File(path) => path,
        };
        let text = larix_files::read_to_string(path.as_ref()).map_err(|error| format!("{path}: {error}"))?;
        // As in OpenLDAP a line ends at the first white space.
        let lines = text.lines().filter_map(|line| line.split_whitespace().next());
        Self::servers(lines).map_err(|error| format!("{path}: {error}"))
    }
}

fn server(word: &str) -> Result<LdapUrl, String> {
    let url = if word.contains("://") { word.to_owned() } else { format!("ldap://{word}") };
    let url = LdapUrl::parse_server(&url).map_err(|error| format!("`{word}` is no server: {error}"))?;
    match url.scheme {
        UrlScheme::Ldap | UrlScheme::Ldaps | UrlScheme::Ldapi => {
            Ok(LdapUrl::server(url.scheme, url.host, url.port))
        }
        _ => Err(format!("`{word}` cannot be asked: ldap://, ldaps:// or ldapi://")),
    }
}

fn check_realm(call: &Call<'_>, number: usize) -> Result<(), Fault> {
    Realm::parse(call.argument(number)?).map(|_| ()).map_err(|text| {
        Fault::argument(number, text).with_help("a host, LDAP URLs, or file:///path of a list of them")
    })
}

/// The key whose value cannot be, and why.
fn tls(words: &[&str]) -> Result<TargetTls, (usize, String)> {
    let mut tls = TargetTls::default();
    for (number, word) in words.iter().enumerate() {
        let (key, value) = word.split_once('=').ok_or_else(|| (number, format!("`{word}` has no value")))?;
        let key = key.to_ascii_lowercase();
        match key.as_str() {
            // Without TLS no password goes to a server that is to have it.
            "starttls" => match value.to_ascii_lowercase().as_str() {
                "yes" | "critical" => tls.begins = TlsBegins::Start,
                "no" => tls.begins = TlsBegins::Never,
                _ => return Err((number, format!("starttls={value} cannot be"))),
            },
            key if TLS_KEYS.contains(&key) => tls.options.push((key.to_owned(), value.to_owned())),
            _ => return Err((number, format!("no key `{key}`"))),
        }
    }
    Ok(tls)
}

/// The value of olcRemoteAuthTLS as OpenLDAP writes it: keys in one order, files in quotes, defaults where there is any
/// setting. The last of several values of a key counts.
fn shown_tls(words: &[&str]) -> String {
    /// The key, whether its value stands in quotes, and what holds without it.
    const ORDER: [(&str, bool, Option<&str>); 11] = [
        ("starttls", false, Some("no")),
        ("tls_cert", true, None),
        ("tls_key", true, None),
        ("tls_cacert", true, None),
        ("tls_cacertdir", true, None),
        ("tls_reqcert", false, Some("demand")),
        ("tls_reqsan", false, Some("allow")),
        ("tls_cipher_suite", false, None),
        ("tls_protocol_min", false, None),
        ("tls_ecname", false, None),
        ("tls_crlcheck", false, Some("none")),
    ];
    if words.iter().all(|word| word.eq_ignore_ascii_case("starttls=no")) {
        return "starttls=no".to_owned();
    }
    let value_of = |name: &str| {
        let pairs = words.iter().rev().filter_map(|word| word.split_once('='));
        pairs.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let shown = ORDER.iter().filter_map(|(key, in_quotes, default)| {
        let value = value_of(key).or(*default)?;
        let value = if *key == "starttls" { value.to_ascii_lowercase() } else { value.to_owned() };
        Some(match *in_quotes && !value.contains('"') {
            true => format!("{key}=\"{value}\""),
            false => line::join([format!("{key}={value}").as_str()]),
        })
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// What OpenLDAP's entry under cn=config shows if no line says it: its object class requires olcRemoteAuthTLS.
pub(super) const SHOWN_ALWAYS: [(&str, &str); 3] =
    [("olcRemoteAuthTLS", "starttls=no"), ("olcRemoteAuthRetryCount", "3"), ("olcRemoteAuthStore", "FALSE")];

/// What the overlay does.
#[derive(Debug, Clone)]
pub struct RemoteAuthSettings {
    /// Without it, or without the next one, the overlay does nothing, as in OpenLDAP.
    pub dn_attribute: Option<AttributeDescription>,
    pub domain_attribute: Option<AttributeDescription>,
    pub default_domain: Option<String>,
    pub default_realm: Option<Realm>,
    pub mappings: Vec<(String, Realm)>,
    pub retries: u32,
    pub store: bool,
    pub tls: TargetTls,
}

impl Overlay {
    /// The settings of `overlay remoteauth`; none of another one.
    ///
    /// # Errors
    /// A setting that cannot be used.
    pub fn remote_auth(&self, schema: &Schema) -> Result<Option<RemoteAuthSettings>, ConfigError> {
        if self.name != NAME || self.disabled {
            return Ok(None);
        }
        self.read_remote_auth(schema).map(Some).map_err(|text| self.fault(text))
    }

    fn read_remote_auth(&self, schema: &Schema) -> Result<RemoteAuthSettings, String> {
        let given = self.given();
        let attribute = |keyword: &str, olc: &str| {
            let name = given.text(olc).map(|name| schema.describe(name).map_err(|error| (name, error)));
            name.transpose().map_err(|(name, error)| format!("{keyword} {name}: {error}"))
        };
        let words: Vec<&str> = given.words("olcRemoteAuthTLS").collect();
        let mut tls = tls(&words).map_err(|(_, text)| format!("remoteauth_tls: {text}: {TLS_HELP}"))?;
        for value in given.values("olcRemoteAuthTLSPeerkeyHash") {
            if let [host, hash] = value.words.as_slice() {
                tls.peer_keys.push(PeerKeyHash::parse(host, hash)?);
            }
        }
        let mut mappings = Vec::new();
        for value in given.values("olcRemoteAuthMapping") {
            if let [domain, realm] = value.words.as_slice() {
                mappings.push((domain.clone(), Realm::parse(realm)?));
            }
        }
        let retries = given.text("olcRemoteAuthRetryCount").and_then(|text| text.parse().ok());
        let settings = RemoteAuthSettings {
            dn_attribute: attribute("remoteauth_dn_attribute", "olcRemoteAuthDNAttribute")?,
            domain_attribute: attribute("remoteauth_domain_attribute", "olcRemoteAuthDomainAttribute")?,
            default_domain: given.text("olcRemoteAuthDefaultDomain").map(str::to_owned),
            default_realm: given.text("olcRemoteAuthDefaultRealm").map(Realm::parse).transpose()?,
            mappings,
            retries: retries.unwrap_or(RETRIES),
            store: given.is_on("olcRemoteAuthStore"),
            tls,
        };
        let realms = settings.mappings.iter().map(|(_, realm)| realm).chain(&settings.default_realm);
        for realm in realms {
            if let Realm::Servers(servers) = realm {
                settings.check_servers(servers)?;
            }
        }
        Ok(settings)
    }
}

impl RemoteAuthSettings {
    /// Whether passwords may go to these servers.
    ///
    /// # Errors
    /// A key's hash where there is no TLS.
    pub fn check_servers(&self, servers: &[LdapUrl]) -> Result<(), String> {
        for url in servers {
            let has_tls = match url.scheme {
                UrlScheme::Ldaps => true,
                UrlScheme::Ldap => self.tls.begins != TlsBegins::Never,
                _ => false,
            };
            if !has_tls && !self.tls.peer_keys.is_empty() {
                return Err(format!(
                    "remoteauth_tls_peerkey_hash needs TLS, and {url} has none: write remoteauth_tls starttls=yes, or ldaps://"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
