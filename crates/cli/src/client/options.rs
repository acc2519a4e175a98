//! The flags all clients share, under OpenLDAP's letters.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use larix_proto::ldif::Writer;
use larix_proto::url::{LdapUrl, UrlError, UrlScheme};

use larix_client::{ClientError, LdapConf, Setting, TlsOptions};

/// The settings of `-o` that are not of TLS.
const SETTINGS: &[&str] = &["ldif_wrap", "ldif-wrap", "nettimeout", "network_timeout"];

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CommonArgs {
    /// Server, as URL: ldap://host:port, ldaps://host or ldapi://%2Fpath; several are tried in turn [LDAPURI or URI of
    /// ldap.conf, else ldap://localhost]
    #[arg(short = 'H', long = "uri", value_name = "URI")]
    pub(super) uri: Option<String>,
    /// Server's name; an old way to write -H ldap://HOST
    #[arg(short = 'h', value_name = "HOST", hide = true, conflicts_with = "uri")]
    pub(super) host: Option<String>,
    #[arg(short = 'p', value_name = "PORT", hide = true, conflicts_with = "uri")]
    pub(super) port: Option<u16>,
    /// Simple authentication
    #[arg(short = 'x')]
    pub(super) simple: bool,
    /// DN to bind as [with a password: LDAPBINDDN, or BINDDN of ldaprc]
    #[arg(short = 'D', value_name = "DN")]
    pub(super) bind_dn: Option<String>,
    /// Password; visible to others in the list of processes
    #[arg(short = 'w', value_name = "PASSWORD", allow_hyphen_values = true, conflicts_with_all = ["prompt", "password_file"])]
    pub(super) password: Option<String>,
    /// Ask for the password
    #[arg(short = 'W', conflicts_with = "password_file")]
    pub(super) prompt: bool,
    /// Read the password from a file; all of it, a final line end included
    #[arg(short = 'y', value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
    /// SASL mechanism: EXTERNAL (ldapi, or a certificate), SCRAM-SHA-512, SCRAM-SHA-256, SCRAM-SHA-1 or PLAIN, which
    /// take -U and a password
    #[arg(short = 'Y', value_name = "MECHANISM", conflicts_with = "simple")]
    pub(super) mechanism: Option<String>,
    /// SASL authorization identity: dn:<DN> or u:<user>
    #[arg(short = 'X', value_name = "AUTHZID")]
    pub(super) authorization: Option<String>,
    /// SASL user
    #[arg(short = 'U', value_name = "AUTHCID")]
    pub(super) user: Option<String>,
    /// SASL realm; no mechanism here has one
    #[arg(short = 'R', value_name = "REALM", hide = true)]
    pub(super) realm: Option<String>,
    /// SASL security properties; accepted and ignored, as this client puts on no layer
    #[arg(short = 'O', value_name = "PROPERTIES", hide = true)]
    pub(super) security_properties: Option<String>,
    /// Ask for what is needed; accepted: nothing else is ever asked
    #[arg(short = 'I', hide = true)]
    pub(super) interactive: bool,
    /// Take the server's name as it is; accepted: it always is
    #[arg(short = 'N', hide = true)]
    pub(super) no_canonical_name: bool,
    /// Say nothing about SASL
    #[arg(short = 'Q')]
    pub(super) quiet: bool,
    /// StartTLS; twice: the server must agree
    #[arg(short = 'Z', action = ArgAction::Count)]
    pub(super) start_tls: u8,
    /// A control, critical with !: assert=<filter>, authzid=<id>, manageDSAit, noop, postread[=<attributes>],
    /// preread[=<attributes>], relax, ppolicy, bauthzid, sessiontracking[=<user>], <oid>[=:<value>|::<base64>]
    #[arg(short = 'e', value_name = "[!]CONTROL")]
    pub(super) controls: Vec<String>,
    /// ManageDsaIT control: treat referrals as entries; twice: critical
    #[arg(short = 'M', action = ArgAction::Count)]
    pub(super) manage_dsa_it: u8,
    /// Show what would be done, and do not do it
    #[arg(short = 'n')]
    pub(super) dry_run: bool,
    /// ldif_wrap=<columns>|no, nettimeout=<seconds>, tls_cacert=<file>, tls_cacertdir=<directory>, tls_cert=<file>,
    /// tls_key=<file>, tls_reqcert=never|demand, tls_protocol_min=3.3|3.4
    #[arg(short = 'o', value_name = "OPTION=VALUE", value_parser = known_setting)]
    pub(super) settings: Vec<String>,
    /// Say more, to standard error
    #[arg(short = 'v')]
    pub(super) verbose: bool,
    /// Protocol version: 3
    #[arg(short = 'P', value_name = "VERSION", hide = true, value_parser = clap::value_parser!(u8).range(3..=3))]
    pub(super) version: Option<u8>,
    /// Debugging level; accepted and ignored
    #[arg(short = 'd', value_name = "LEVEL", hide = true)]
    pub(super) debug: Option<String>,
    /// Write JSON, one object a line
    #[arg(long)]
    pub(super) json: bool,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
}

/// A setting whose meaning the clients know.
fn known_setting(setting: &str) -> Result<String, String> {
    let name = setting.split_once('=').map_or(setting, |(name, _)| name);
    let names = || SETTINGS.iter().chain(TlsOptions::NAMES);
    if names().any(|known| known.eq_ignore_ascii_case(name)) {
        return Ok(setting.to_owned());
    }
    let names: Vec<String> = names().map(|known| known.to_ascii_lowercase()).collect();
    Err(format!("there is no option `{name}`; some of {}", names.join(", ")))
}

impl CommonArgs {
    /// Whether the command line says which server to ask.
    pub(super) fn names_server(&self) -> bool {
        self.uri.is_some() || self.host.is_some() || self.port.is_some()
    }

    /// The servers to try. Those of `conf` where the command line names none.
    pub(super) fn urls(&self, conf: &LdapConf) -> Result<Vec<LdapUrl>, ClientError> {
        if let Some(text) = &self.uri {
            return listed(text, &|url| format!("-H {url}"));
        }
        if self.names_server() {
            let host = self.host.clone().unwrap_or_default();
            return Ok(vec![LdapUrl::server(UrlScheme::Ldap, host, self.port)]);
        }
        match named_server(conf) {
            Some(setting) if setting.name == HOST => hosts(setting, conf),
            Some(setting) => listed(&setting.value, &|url| setting.with(url)),
            None => Ok(vec![LdapUrl::server(UrlScheme::Ldap, "localhost".to_owned(), port(conf)?)]),
        }
    }

    /// Whether a password goes with the bind.
    pub(super) fn gives_password(&self) -> bool {
        self.prompt || self.password.is_some() || self.password_file.is_some()
    }

    /// The same with what `conf` says of the identity, where the command line does not. As with OpenLDAP's tools, the DN counts for binds
    /// with a password.
    pub(super) fn with_defaults(&self, conf: &LdapConf) -> Self {
        let default = |given: Option<&str>, name: &str| given.or_else(|| conf.value(name)).map(str::to_owned);
        let mut args = self.clone();
        if !self.simple && self.bind_dn.is_none() {
            args.mechanism = default(self.mechanism.as_deref(), "SASL_MECH");
        }
        if args.mechanism.is_none() && self.gives_password() {
            args.bind_dn = default(self.bind_dn.as_deref(), "BINDDN");
        }
        args.user = default(self.user.as_deref(), "SASL_AUTHCID");
        args.authorization = default(self.authorization.as_deref(), "SASL_AUTHZID");
        args
    }

    pub(super) fn ldif_writer(&self) -> Result<Writer, ClientError> {
        let Some(wrap) = self.setting(&["ldif_wrap", "ldif-wrap"]) else { return Ok(Writer::default()) };
        if wrap.eq_ignore_ascii_case("no") {
            return Ok(Writer::new(None));
        }
        match wrap.parse() {
            // OpenLDAP counts the columns from 0 here.
            Ok(columns) if columns > 0 => Ok(Writer::new(Some(columns))),
            _ => Err(ClientError::Usage(format!("-o ldif_wrap={wrap}: a number of columns, or no"))),
        }
    }

    pub(super) fn connect_timeout(&self, conf: &LdapConf) -> Result<Option<Duration>, ClientError> {
        let seconds = match self.setting(&["nettimeout", "network_timeout"]) {
            None => return default_timeout(conf),
            Some("none" | "max") => return Ok(None),
            Some(seconds) => seconds,
        };
        match seconds.parse() {
            Ok(seconds) if seconds > 0 => Ok(Some(Duration::from_secs(seconds))),
            _ => Err(ClientError::Usage(format!("-o nettimeout={seconds}: a number of seconds, or none"))),
        }
    }

    fn setting(&self, names: &[&str]) -> Option<&str> {
        self.settings.iter().rev().find_map(|setting| {
            let (name, value) = setting.split_once('=')?;
            names.iter().any(|known| known.eq_ignore_ascii_case(name)).then_some(value)
        })
    }
}

const HOST: &str = "HOST";
/// What stands between servers.
const BETWEEN: [char; 3] = [' ', '\t', ','];

/// The setting that names the servers to ask where the command line names none.
pub(super) fn named_server(conf: &LdapConf) -> Option<&Setting> {
    conf.get("URI").or_else(|| conf.get(HOST))
}

/// URLs with blanks or commas between them. `place` shows where one stands.
fn listed(text: &str, place: &dyn Fn(&str) -> String) -> Result<Vec<LdapUrl>, ClientError> {
    let fault = |url: &str, error: UrlError| ClientError::Usage(format!("{}: {error}", place(url)));
    let urls = text
        .split(BETWEEN)
        .filter(|url| !url.is_empty())
        .map(|url| LdapUrl::parse(url).map_err(|error| fault(url, error)))
        .collect::<Result<Vec<_>, _>>()?;
    if urls.is_empty() {
        return Err(no_server(&place(text)));
    }
    Ok(urls)
}

fn no_server(place: &str) -> ClientError {
    ClientError::Usage(format!("{} names no server", place.trim_end()))
}

/// `HOST NAME[:PORT] ...`, which is older than URI.
fn hosts(setting: &Setting, conf: &LdapConf) -> Result<Vec<LdapUrl>, ClientError> {
    let default = port(conf)?;
    let mut urls = Vec::new();
    for host in setting.value.split(BETWEEN).filter(|host| !host.is_empty()) {
        let text = format!("ldap://{host}");
        let url = LdapUrl::parse(&text)
            .map_err(|error| ClientError::Usage(format!("{}: {error}", setting.with(host))))?;
        urls.push(LdapUrl { port: url.port.or(default), ..url });
    }
    if urls.is_empty() { Err(no_server(&setting.to_string())) } else { Ok(urls) }
}

/// The port of servers that are named by HOST, or not at all.
fn port(conf: &LdapConf) -> Result<Option<u16>, ClientError> {
    let Some(setting) = conf.get("PORT") else { return Ok(None) };
    match setting.value.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(ClientError::Usage(format!("{setting}: a port is a number from 1 to 65535"))),
    }
}

/// How long a server may take to answer a connection; 0 is no limit, as in OpenLDAP.
fn default_timeout(conf: &LdapConf) -> Result<Option<Duration>, ClientError> {
    let Some(setting) = conf.get("NETWORK_TIMEOUT") else { return Ok(None) };
    let seconds =
        setting.value.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match seconds {
        Some(seconds) => Ok(Some(seconds).filter(|seconds| !seconds.is_zero())),
        None => Err(ClientError::Usage(format!("{setting}: a number of seconds; 0 is no limit"))),
    }
}
