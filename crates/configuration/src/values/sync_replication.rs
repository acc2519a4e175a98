//! `syncrepl rid=<id> provider=<url> searchbase=<dn> ...`: a line of a consumer.

use std::fmt;
use std::net::IpAddr;

use larix_client::{KeepAlive, ciphers};
use larix_proto::control::SyncMode;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{Dn, FilterBuf, Scope};
use larix_replication::RID_MAX;
use larix_replication::consumer::RetryStep;
use larix_replication::dirsync;
use larix_schema::Schema;
use zeroize::Zeroizing;

use super::{ConfigDn, SecurityProperties};
use crate::line::c_integer;

/// Seconds between the refreshes of a consumer that does not persist: a day.
const DEFAULT_INTERVAL: u32 = 86_400;
/// Seconds between tries when `retry` says nothing: an hour, for ever.
const DEFAULT_RETRY: u32 = 3_600;
/// Sessions are so far apart at least: `interval=0` and `retry="0 +"` must not take all of both servers.
const SECONDS_MIN: u32 = 1;
/// The settings of TLS towards another server that a line may have.
pub(crate) const TLS_KEYS: [&str; 10] = [
    "tls_cert",
    "tls_key",
    "tls_cacert",
    "tls_cacertdir",
    "tls_reqcert",
    "tls_reqsan",
    "tls_cipher_suite",
    "tls_ecname",
    "tls_crlcheck",
    "tls_protocol_min",
];
const KEYS: &str = "rid, provider, searchbase, type, interval, retry, filter, scope, attrs, exattrs, sizelimit, timelimit, \
     schemachecking, network-timeout, timeout, tcp-user-timeout, bindmethod, binddn, credentials, saslmech, \
     authcid, authzid, realm, secprops, keepalive, starttls, tls_*, suffixmassage, logbase, logfilter, syncdata, lazycommit, \
     maxdelete";

/// How one database follows one provider.
#[derive(Clone, PartialEq, Eq)]
pub struct SyncReplication {
    /// 0 to 999.
    pub rid: u16,
    /// The first that answers is taken.
    pub providers: Vec<LdapUrl>,
    /// At the provider.
    pub base: ConfigDn,
    /// Where the base is here, if elsewhere.
    pub suffix_massage: Option<ConfigDn>,
    pub mode: SyncMode,
    /// The provider is an Active Directory (`type=dirsync`), asked with its own control in place of RFC 4533's.
    pub dir_sync: bool,
    /// Seconds from one refresh to the next.
    pub interval: u32,
    pub retry: Vec<RetryStep>,
    pub filter: FilterBuf,
    pub scope: Scope,
    /// Empty: `*` and `+`.
    pub attributes: Vec<String>,
    pub except_attributes: Vec<String>,
    /// 0: none.
    pub size_limit: u32,
    /// Seconds; 0: none.
    pub time_limit: u32,
    pub schema_checking: bool,
    pub lazy_commit: bool,
    /// Seconds; 0: none.
    pub network_timeout: u32,
    /// Seconds that a bind may take; 0: none.
    pub timeout: u32,
    /// Milliseconds; 0: the system's.
    pub user_timeout: u32,
    pub keep_alive: Option<KeepAlive>,
    pub bind: SyncBind,
    pub start_tls: StartTls,
    /// `tls_cert` and the like.
    pub tls: Vec<(String, String)>,
    pub data: SyncData,
    pub log_base: Option<ConfigDn>,
    pub log_filter: Option<FilterBuf>,
    /// Percent of the entries that one refresh may delete; 100: all.
    pub delete_percent: u8,
}

/// Who the consumer is to the provider.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SyncBind {
    pub sasl: bool,
    pub dn: String,
    pub credentials: Zeroizing<Vec<u8>>,
    pub mechanism: Option<String>,
    pub authentication: Option<String>,
    pub authorization: Option<String>,
    /// Of DIGEST-MD5; none: the provider's.
    pub realm: Option<String>,
    /// What the bind must be proof against; none: nothing is asked of it.
    pub properties: Option<SecurityProperties>,
}

/// Passwords stay out of logs.
impl fmt::Debug for SyncBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncBind")
            .field("dn", &self.dn)
            .field("mechanism", &self.mechanism)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SyncReplication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncReplication")
            .field("rid", &self.rid)
            .field("providers", &self.providers)
            .field("base", &self.base.text)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartTls {
    #[default]
    No,
    /// If the server agrees.
    Yes,
    Critical,
}

impl StartTls {
    /// By its word, in any case.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "no" => Self::No,
            "yes" => Self::Yes,
            "critical" => Self::Critical,
            _ => return None,
        })
    }

    /// Its word; none where it is left out.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::Yes => Some("yes"),
            Self::Critical => Some("critical"),
        }
    }
}

/// What the provider sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncData {
    #[default]
    Entries,
    /// Records of an access log (delta-syncrepl).
    AccessLog,
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SyncFault {
    /// The argument, from 0; none: of the line as a whole.
    pub(crate) at: Option<usize>,
    pub(crate) message: String,
    pub(crate) help: Option<&'static str>,
}

/// A value that cannot be, and what could.
type Wrong = (String, Option<&'static str>);

impl SyncReplication {
    /// `schema_comes`: which names there are is not known yet.
    ///
    /// # Errors
    /// Names the key, its value and what could stand there.
    pub(crate) fn parse(
        schema: &Schema,
        arguments: &[String],
        schema_comes: bool,
    ) -> Result<Self, SyncFault> {
        let mut line = Self::empty();
        let mut given: Vec<String> = Vec::new();
        for (number, argument) in arguments.iter().enumerate() {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            let key = key.to_ascii_lowercase();
            line.apply(schema, &key, value).map_err(|(message, help)| SyncFault {
                at: Some(number),
                message,
                help,
            })?;
            given.push(key);
        }
        let missing = |key: &&str| !given.iter().any(|given| given == key);
        if let Some(key) = ["rid", "provider", "searchbase"].iter().find(|key| missing(key)) {
            let help = Some("syncrepl rid=001 provider=ldap://host searchbase=dc=example,dc=com ...");
            return Err(SyncFault { at: None, message: format!("syncrepl needs {key}="), help });
        }
        let known = Some(schema).filter(|_| !schema_comes);
        line.whole(known).map_err(|(message, help)| SyncFault { at: None, message, help })?;
        // Of an Active Directory come attributes that the schema here need not know.
        if let Some(schema) = known.filter(|_| !line.dir_sync) {
            for (key, names) in [("attrs", &mut line.attributes), ("exattrs", &mut line.except_attributes)] {
                *names = known_names(schema, key, names).map_err(|(message, help)| SyncFault {
                    at: given.iter().position(|given| given == key),
                    message,
                    help,
                })?;
            }
        }
        Ok(line)
    }

    fn empty() -> Self {
        Self {
            rid: 0,
            providers: Vec::new(),
            base: ConfigDn { text: String::new(), normal: larix_schema::NormalDn::root() },
            suffix_massage: None,
            mode: SyncMode::RefreshOnly,
            dir_sync: false,
            interval: DEFAULT_INTERVAL,
            retry: vec![RetryStep { seconds: DEFAULT_RETRY, times: None }],
            filter: FilterBuf::every_entry(),
            scope: Scope::Subtree,
            attributes: Vec::new(),
            except_attributes: Vec::new(),
            size_limit: 0,
            time_limit: 0,
            schema_checking: false,
            lazy_commit: false,
            network_timeout: 0,
            timeout: 0,
            user_timeout: 0,
            keep_alive: None,
            bind: SyncBind::default(),
            start_tls: StartTls::No,
            tls: Vec::new(),
            data: SyncData::Entries,
            log_base: None,
            log_filter: None,
            delete_percent: 50,
        }
    }

    fn apply(&mut self, schema: &Schema, key: &str, value: &str) -> Result<(), Wrong> {
        match key {
            "rid" => {
                let rid = value.parse().ok().filter(|rid| *rid <= RID_MAX);
                self.rid = rid.ok_or_else(|| wrong(key, value, "a number from 0 to 999"))?;
            }
            "provider" => self.providers = providers(value)?,
            "searchbase" => self.base = dn(schema, key, value)?,
            "suffixmassage" => self.suffix_massage = Some(dn(schema, key, value)?),
            "logbase" => self.log_base = Some(dn(schema, key, value)?),
            "filter" => self.filter = filter(key, value)?,
            "logfilter" => self.log_filter = Some(filter(key, value)?),
            "scope" => self.scope = scope(value)?,
            "type" => (self.mode, self.dir_sync) = mode(value)?,
            "interval" => self.interval = interval(value)?,
            "retry" => self.retry = retry(value)?,
            "attrs" => self.attributes = names(key, value)?,
            "exattrs" => self.except_attributes = names(key, value)?,
            "attrsonly" => {
                let message = "syncrepl: attrsonly is not supported: a copy has the values of attributes";
                return Err((
                    message.to_owned(),
                    Some("take it out; attrs= and exattrs= say which attributes"),
                ));
            }
            "sizelimit" => self.size_limit = limit(key, value)?,
            "timelimit" => self.time_limit = limit(key, value)?,
            "schemachecking" => self.schema_checking = !value.eq_ignore_ascii_case("off"),
            "lazycommit" => self.lazy_commit = true,
            "network-timeout" => self.network_timeout = c_number(key, value)?,
            "timeout" => self.timeout = c_number(key, value)?,
            "tcp-user-timeout" => self.user_timeout = c_number(key, value)?,
            "keepalive" => self.keep_alive = Some(keep_alive(value)?),
            "starttls" => {
                let start_tls = StartTls::parse(value);
                self.start_tls = start_tls.ok_or_else(|| wrong(key, value, "yes or critical"))?;
            }
            "syncdata" => self.data = data(value)?,
            "maxdelete" => self.delete_percent = percent(value)?,
            // Entries are always asked for as they are, and the log's refresh needs no pause.
            "managedsait" if matches!(value, "0" | "1") => {}
            "managedsait" => return Err(wrong(key, value, "0 or 1")),
            "version" if value == "3" => {}
            "version" => return Err(wrong(key, value, "3, the version of LDAP that has this control")),
            "strictrefresh" => {}
            key if TLS_KEYS.contains(&key) => {
                if let Some(words) = tls_words_without(key, value) {
                    return Err(wrong(key, value, words));
                }
                self.tls.push((key.to_owned(), value.to_owned()));
            }
            _ => self.bind.apply(key, value)?,
        }
        Ok(())
    }

    /// What no single key shows.
    fn whole(&self, schema: Option<&Schema>) -> Result<(), Wrong> {
        if self.dir_sync {
            self.whole_dir_sync(schema)?;
        } else if let Err(error) = Dn::parse(&self.bind.dn) {
            // An Active Directory takes names of its own.
            let message = format!("syncrepl: binddn={} is not a DN: {error}", self.bind.dn);
            return Err((message, Some(dn_form(&self.bind.dn))));
        }
        if self.bind.sasl && self.bind.mechanism.is_none() {
            return Err((
                "syncrepl: bindmethod=sasl needs saslmech=".to_owned(),
                Some("PLAIN, EXTERNAL, SCRAM-SHA-1, SCRAM-SHA-256 or SCRAM-SHA-512"),
            ));
        }
        if self.data == SyncData::AccessLog && self.log_base.is_none() {
            return Err((
                "syncrepl: syncdata=accesslog needs logbase=".to_owned(),
                Some("the suffix of the provider's log database, such as logbase=cn=accesslog"),
            ));
        }
        let secure = self.providers.iter().any(|url| url.scheme == UrlScheme::Ldaps);
        if secure && self.start_tls == StartTls::Critical {
            return Err((
                "syncrepl: starttls=critical is for ldap://, TLS is there already with ldaps://".to_owned(),
                Some("take starttls= out, or write ldap://"),
            ));
        }
        Ok(())
    }

    /// What DirSync takes.
    fn whole_dir_sync(&self, schema: Option<&Schema>) -> Result<(), Wrong> {
        let lacks = |name: &&&str| schema.is_some_and(|schema| schema.attribute_type(name).is_none());
        if let Some(name) = dirsync::NEEDED.iter().find(lacks) {
            let message =
                format!("syncrepl: type=dirsync needs the attribute {name}, which the schema does not know");
            return Err((message, Some("write `schema active-directory` before it, or `schema msuser`")));
        }
        if self.data != SyncData::Entries {
            return Err((
                "syncrepl: type=dirsync follows entries: an Active Directory has no access log".to_owned(),
                Some("take syncdata= and logbase= out"),
            ));
        }
        Ok(())
    }

    /// The base as it is here.
    pub fn local_base(&self) -> &ConfigDn {
        self.suffix_massage.as_ref().unwrap_or(&self.base)
    }
}

impl SyncBind {
    fn apply(&mut self, key: &str, value: &str) -> Result<(), Wrong> {
        match key {
            "bindmethod" => {
                self.sasl = match value.to_ascii_lowercase().as_str() {
                    "simple" | "none" => false,
                    "sasl" => true,
                    _ => return Err(wrong(key, value, "simple or sasl")),
                }
            }
            "binddn" => self.dn = value.to_owned(),
            "credentials" => self.credentials = Zeroizing::new(value.as_bytes().to_vec()),
            "saslmech" => {
                if !value.eq_ignore_ascii_case("EXTERNAL")
                    && larix_client::Mechanism::from_name(value).is_err()
                {
                    return Err(wrong(
                        key,
                        value,
                        "PLAIN, EXTERNAL, DIGEST-MD5, SCRAM-SHA-1, SCRAM-SHA-256 or SCRAM-SHA-512, the last three with -PLUS, \
                         too, or in a build with the feature gssapi GSSAPI",
                    ));
                }
                self.mechanism = Some(value.to_ascii_uppercase());
            }
            "authcid" => self.authentication = Some(value.to_owned()),
            "authzid" => self.authorization = Some(value.to_owned()),
            "realm" => self.realm = Some(value.to_owned()),
            "secprops" => {
                let properties = SecurityProperties::parse(value);
                self.properties = Some(properties.map_err(|(word, help)| wrong(key, &word, help))?);
            }
            _ => return Err((format!("syncrepl: no key `{key}`"), Some(KEYS))),
        }
        Ok(())
    }
}

fn wrong(key: &str, value: &str, help: &'static str) -> Wrong {
    (format!("syncrepl: {key}={value} cannot be"), Some(help))
}

/// The words that a setting of TLS takes, where the value is none of them.
fn tls_words_without(key: &str, value: &str) -> Option<&'static str> {
    let words = match key {
        // libldap takes these for `hard`.
        "tls_reqcert" | "tls_reqsan"
            if ["on", "true", "yes"].iter().any(|word| word.eq_ignore_ascii_case(value)) =>
        {
            return None;
        }
        "tls_reqcert" | "tls_reqsan" => "never, allow, try, demand, hard",
        "tls_crlcheck" => "none, peer, all",
        "tls_protocol_min" => {
            return ciphers::choose(None, Some(value), None).err().map(|_| "3.3 is TLS 1.2, 3.4 is TLS 1.3");
        }
        _ => return None,
    };
    (!words.split(", ").any(|word| word.eq_ignore_ascii_case(value))).then_some(words)
}

fn providers(value: &str) -> Result<Vec<LdapUrl>, Wrong> {
    let mut urls = Vec::new();
    for text in value.split([' ', ',']).filter(|text| !text.is_empty()) {
        let url = LdapUrl::parse_server(text).map_err(|error| {
            (
                format!("syncrepl: provider={text} cannot be: {error}"),
                Some("ldap://host:389, ldaps://host or ldapi://%2Fpath"),
            )
        })?;
        urls.push(url);
    }
    if urls.is_empty() {
        return Err(wrong("provider", value, "ldap://host:389, ldaps://host or ldapi://%2Fpath"));
    }
    Ok(urls)
}

fn dn(schema: &Schema, key: &str, value: &str) -> Result<ConfigDn, Wrong> {
    ConfigDn::parse_relaxed(schema, value)
        .map_err(|error| (format!("syncrepl: {key}={value} is not a DN: {error}"), Some(dn_form(value))))
}

/// What to do about a value that is no DN.
fn dn_form(value: &str) -> &'static str {
    if value.starts_with('\'') { "quote it with \" and not with '" } else { "such as dc=example,dc=com" }
}

fn filter(key: &str, value: &str) -> Result<FilterBuf, Wrong> {
    FilterBuf::parse(value).map_err(|error| {
        (format!("syncrepl: {key}={value} is not a filter: {error}"), Some("such as \"(objectClass=*)\""))
    })
}

fn scope(value: &str) -> Result<Scope, Wrong> {
    Ok(match value.to_ascii_lowercase().as_str() {
        "base" => Scope::Base,
        "one" | "onelevel" => Scope::OneLevel,
        "sub" | "subtree" => Scope::Subtree,
        "subord" | "subordinate" | "children" => Scope::Children,
        _ => return Err(wrong("scope", value, "sub, one, base or subord")),
    })
}

/// How the provider is followed, and whether it is asked with DirSync.
fn mode(value: &str) -> Result<(SyncMode, bool), Wrong> {
    match value.to_ascii_lowercase().as_str() {
        "refreshonly" => Ok((SyncMode::RefreshOnly, false)),
        "refreshandpersist" => Ok((SyncMode::RefreshAndPersist, false)),
        "dirsync" => Ok((SyncMode::RefreshOnly, true)),
        _ => Err(wrong("type", value, "refreshOnly, refreshAndPersist or, for an Active Directory, dirsync")),
    }
}

/// `dd:hh:mm:ss`, seconds, or `1d2h3m4s`.
fn interval(value: &str) -> Result<u32, Wrong> {
    let bad = || wrong("interval", value, "dd:hh:mm:ss, such as 00:00:05:00 for five minutes");
    let mut seconds: u64 = 0;
    if value.contains(':') {
        let parts: Vec<u64> =
            value.split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
        let [days, hours, minutes, rest] = parts.as_slice() else { return Err(bad()) };
        if *hours > 24 || *minutes > 60 || *rest > 60 || *days > 20_000 {
            return Err(bad());
        }
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest;
    } else {
        let mut rest = value;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, tail) = rest.split_at(digits);
            let number: u64 = number.parse::<u32>().map_err(|_| bad())?.into();
            let unit = match tail.chars().next() {
                None | Some('s') => 1,
                Some('m') => 60,
                Some('h') => 3_600,
                Some('d') => 86_400,
                Some(_) => return Err(bad()),
            };
            seconds = seconds.saturating_add(number * unit);
            rest = tail.get(1..).unwrap_or_default();
        }
        if value.is_empty() {
            return Err(bad());
        }
    }
    u32::try_from(seconds).map(|seconds| seconds.max(SECONDS_MIN)).map_err(|_| bad())
}

/// `<seconds> <times> ...`, the last times perhaps `+` for ever.
fn retry(value: &str) -> Result<Vec<RetryStep>, Wrong> {
    let help = "pairs of seconds and times, the last times + for ever, such as retry=\"5 12 60 +\"";
    if value.eq_ignore_ascii_case("undefined") {
        return Ok(vec![RetryStep { seconds: DEFAULT_RETRY, times: None }]);
    }
    let words: Vec<&str> = value.split([' ', ',', '\t']).filter(|word| !word.is_empty()).collect();
    let mut steps = Vec::new();
    for pair in words.chunks(2) {
        let [seconds, times] = pair else { return Err(wrong("retry", value, help)) };
        let seconds: u32 = seconds.parse().map_err(|_| wrong("retry", value, help))?;
        let times = match *times {
            "+" => None,
            times => Some(
                times.parse().ok().filter(|times| *times > 0).ok_or_else(|| wrong("retry", value, help))?,
            ),
        };
        steps.push(RetryStep { seconds: seconds.max(SECONDS_MIN), times });
        if times.is_none() {
            break;
        }
    }
    Ok(steps)
}

/// Names of attributes, or of a file with such names (`:include:<file>`).
fn names(key: &str, value: &str) -> Result<Vec<String>, Wrong> {
    let read;
    let text = match value.strip_prefix(":include:") {
        Some(file) => {
            read = larix_files::read_to_string(file.as_ref()).map_err(|error| {
                (
                    format!("syncrepl: {key}={value}: {file} cannot be read: {error}"),
                    Some("a file with names of attributes"),
                )
            })?;
            &read
        }
        None => value,
    };
    let names = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}

/// The same names, with attributes in the place of classes (`@person`). A name that is not known would leave an attribute out, or
/// not leave it out, without a word.
fn known_names(schema: &Schema, key: &str, names: &[String]) -> Result<Vec<String>, Wrong> {
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        let class = name.strip_prefix('@').and_then(|class| schema.object_class(class));
        if let Some(class) = class {
            let attributes = class.all_must().iter().chain(class.all_may());
            all.extend(attributes.map(|id| schema.attribute(*id).name().to_owned()));
        } else if schema.describe(name).is_ok() || key == "attrs" && matches!(name.as_str(), "*" | "+") {
            all.push(name.clone());
        } else {
            return Err((
                format!("syncrepl: {key}={name}: the schema does not know this name"),
                Some(
                    "attributes, and classes with @ before the name; include their schema before the database",
                ),
            ));
        }
    }
    Ok(all)
}

fn limit(key: &str, value: &str) -> Result<u32, Wrong> {
    if value.eq_ignore_ascii_case("unlimited") { Ok(0) } else { number(key, value) }
}

fn number(key: &str, value: &str) -> Result<u32, Wrong> {
    value.parse().map_err(|_| wrong(key, value, "a number, 0 for no limit"))
}

/// A number that slapd reads as C does, which it does not do with the others of a line.
fn c_number(key: &str, value: &str) -> Result<u32, Wrong> {
    let number = c_integer(value).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| wrong(key, value, "a number, 0 for no limit"))
}

fn keep_alive(value: &str) -> Result<KeepAlive, Wrong> {
    let bad = || wrong("keepalive", value, "idle:probes:interval, such as 240:10:30");
    KeepAlive::parse(value).ok_or_else(bad)
}

fn data(value: &str) -> Result<SyncData, Wrong> {
    Ok(match value.to_ascii_lowercase().as_str() {
        "default" => SyncData::Entries,
        "accesslog" => SyncData::AccessLog,
        "changelog" => {
            return Err((
                "syncrepl: syncdata=changelog (the change log of other vendors' servers) is not supported"
                    .to_owned(),
                Some("default or accesslog"),
            ));
        }
        _ => return Err(wrong("syncdata", value, "default or accesslog")),
    })
}

fn percent(value: &str) -> Result<u8, Wrong> {
    if value.eq_ignore_ascii_case("unlimited") {
        return Ok(100);
    }
    let number = value.strip_suffix('%').unwrap_or(value).parse().ok();
    number
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| wrong("maxdelete", value, "percent of the entries, 0 to 100, or unlimited"))
}

/// Whether a server with this listener is meant by a URL of `serverID`.
pub(crate) fn is_own_url(url: &str, listener: &str, resolve: &dyn Fn(&str) -> Vec<IpAddr>) -> bool {
    let (Ok(url), Ok(listener)) = (LdapUrl::parse(url), LdapUrl::parse(listener)) else {
        return false;
    };
    if url.scheme != listener.scheme {
        return false;
    }
    if url.scheme == UrlScheme::Ldapi {
        return url.host == listener.host;
    }
    if url.effective_port() != listener.effective_port() {
        return false;
    }
    let bare = |host: &str| host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let (url_host, own) = (bare(&url.host), bare(&listener.host));
    if url_host == own {
        return true;
    }
    let url_host = resolve(&url_host);
    let any = own.is_empty() || own.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
    if any {
        // An address that a socket can be bound to is one of this machine.
        return url_host.iter().any(|address| std::net::UdpSocket::bind((*address, 0)).is_ok());
    }
    let own = resolve(&own);
    url_host.iter().any(|address| own.contains(address))
}

#[cfg(test)]
#[path = "sync_replication_tests.rs"]
mod tests;
