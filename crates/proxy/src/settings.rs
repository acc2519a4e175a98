//! What a proxied database is configured with (slapd-ldap(5)).

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use larix_client::{ClientError, Credentials, GivingUp, KeepAlive, PeerKeyHash, TlsClient, TlsOptions};
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_schema::NormalDn;
use regex::Regex;

/// Connections of one identity to a target, unless `conn-pool-max` says otherwise (OpenLDAP's number).
pub const POOL_MAX: u32 = 16;
/// How long a target may take to be connected, unless `network-timeout` says otherwise.
pub const NETWORK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an operation that is no search may take, unless `timeout` says otherwise.
pub const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Settings of one database.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxySettings {
    /// The first that answers is taken.
    pub targets: Vec<LdapUrl>,
    pub tls: TargetTls,
    /// Who the proxy is where the database's root DN asks.
    pub acl_bind: Option<Identity>,
    pub assertion: Option<Assertion>,
    /// Who may be asserted; empty: everybody.
    pub asserted: Vec<IdentityRule>,
    /// Who is not asserted, and goes as he is.
    pub passed: Vec<IdentityRule>,
    pub rebind_as_user: bool,
    /// The database follows the referrals of its targets.
    pub chase_referrals: bool,
    pub no_references: bool,
    pub no_undefined_filter: bool,
    /// The targets know the filters `(&)` and `(|)` (RFC 4526); else they get `(objectClass=*)` and its negation.
    pub absolute_filters: bool,
    /// Whether answers are read page by page where the client asks for no pages.
    pub paging: Paging,
    pub omit_unknown_schema: bool,
    pub session_tracking: bool,
    /// The target says who a client is that has bound there and acts for another (RFC 4532 with RFC 4370).
    pub proxies_who_am_i: bool,
    pub giving_up: GivingUp,
    pub pool_max: u32,
    /// Requests go to the places of an identity's connections in turn, `pool_max` of them; one that closes keeps its place until then.
    /// Else the connection that has least to do takes a request.
    pub in_turn: bool,
    /// A connection ends so long after it was opened.
    pub connection_ttl: Option<Duration>,
    /// So long passes between two that end by their age.
    pub reset_interval: Option<Duration>,
    /// Behind a notice of disconnection the answers to what is under way are still waited for.
    pub outlives_notice: bool,
    /// And so long after it was last used.
    pub idle_timeout: Option<Duration>,
    pub network_timeout: Option<Duration>,
    pub timeouts: Timeouts,
    pub keep_alive: Option<KeepAlive>,
    pub user_timeout: Option<Duration>,
    /// How often a target that is gone is tried again; empty: soon, at growing intervals.
    pub quarantine: Vec<QuarantineStep>,
    pub health_check: Option<HealthCheck>,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            tls: TargetTls::default(),
            acl_bind: None,
            assertion: None,
            asserted: Vec::new(),
            passed: Vec::new(),
            rebind_as_user: false,
            chase_referrals: false,
            no_references: false,
            no_undefined_filter: false,
            absolute_filters: true,
            paging: Paging::Never,
            omit_unknown_schema: false,
            session_tracking: false,
            proxies_who_am_i: false,
            giving_up: GivingUp::Abandon,
            pool_max: POOL_MAX,
            in_turn: false,
            connection_ttl: None,
            reset_interval: None,
            outlives_notice: false,
            idle_timeout: None,
            network_timeout: None,
            timeouts: Timeouts::default(),
            keep_alive: None,
            user_timeout: None,
            quarantine: Vec::new(),
            health_check: None,
        }
    }
}

impl ProxySettings {
    /// What TLS to the targets needs; none without TLS.
    ///
    /// # Errors
    /// Names the setting, or the file, that cannot be used.
    pub fn tls_client(&self) -> Result<Option<TlsClient>, ClientError> {
        let has_tls = self.tls.begins != TlsBegins::Never
            || self.targets.iter().any(|url| url.scheme == UrlScheme::Ldaps);
        let options = self.tls.options.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        has_tls.then(|| TlsOptions::new(options).prepare_pinned(&self.tls.peer_keys)).transpose()
    }
}

/// Pages of an answer that the client does not see (RFC 2696; `client-pr` of slapd-meta(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paging {
    #[default]
    Never,
    /// If a target sends a cookie that nobody asked for, the next page is asked for.
    Unsolicited,
    /// Each page has so many entries at most.
    Pages(NonZeroU32),
}

/// How connections are protected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetTls {
    pub begins: TlsBegins,
    /// `tls_cert` and the like.
    pub options: Vec<(String, String)>,
    /// If there are any, a target without one is refused.
    pub peer_keys: Vec<PeerKeyHash>,
}

/// When TLS begins with a target of `ldap://`; with `ldaps://` it is there from the first byte on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsBegins {
    #[default]
    Never,
    /// By StartTLS.
    Start,
    /// By StartTLS, and without TLS if the target refuses: for anonymous requests alone.
    TryStart,
}

/// Who the proxy is to a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// None: anonymous.
    pub credentials: Option<Credentials>,
}

/// Identity assertion (`idassert-bind`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assertion {
    pub identity: Identity,
    pub mode: Mode,
    /// Also for those who are bound to the target by their own password.
    pub overrides: bool,
    /// Whom `idassert-authzFrom` leaves out is refused; else his requests are anonymous.
    pub prescriptive: bool,
    pub critical: bool,
}

/// Whom the target is asked to carry requests out as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nobody, as for [`Mode::None`]; an anonymous client is anonymous to the target, too. slapd-ldap(5) says that the client is
    /// asserted; slapd does not.
    #[default]
    Legacy,
    /// Nobody: requests are the proxy's own.
    None,
    /// The client itself.
    Itself,
    Anonymous,
    /// An authorization identity (RFC 4513 section 5.2.1.8).
    Fixed(String),
}

/// A rule about identities.
#[derive(Clone, Debug)]
pub enum IdentityRule {
    /// `*`: also anonymous.
    Everybody,
    /// Everybody but anonymous.
    Users,
    Exact(NormalDn),
    OneLevel(NormalDn),
    Subtree(NormalDn),
    Children(NormalDn),
    Regex(Regex),
}

impl PartialEq for IdentityRule {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Everybody, Self::Everybody) | (Self::Users, Self::Users) => true,
            (Self::Exact(a), Self::Exact(b))
            | (Self::OneLevel(a), Self::OneLevel(b))
            | (Self::Subtree(a), Self::Subtree(b))
            | (Self::Children(a), Self::Children(b)) => a == b,
            (Self::Regex(a), Self::Regex(b)) => a.as_str() == b.as_str(),
            _ => false,
        }
    }
}

impl IdentityRule {
    /// Whether it is about this identity; none is anonymous, whose name is empty. As in OpenLDAP, a style with an empty DN does not
    /// stand for everybody.
    pub fn matches(&self, who: Option<&NormalDn>) -> bool {
        let anonymous = NormalDn::root();
        let who = who.unwrap_or(&anonymous);
        match self {
            Self::Everybody => true,
            Self::Users => !who.is_root(),
            Self::Exact(dn) => who == dn,
            Self::OneLevel(dn) => !dn.is_root() && who.parent().is_some_and(|parent| parent == *dn),
            Self::Subtree(dn) => who == dn || !dn.is_root() && who.is_within(dn),
            Self::Children(dn) => !dn.is_root() && who.is_descendant_of(dn),
            Self::Regex(regex) => regex.is_match(who.as_str()),
        }
    }
}

/// A kind of operation that may have a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bind,
    Add,
    Delete,
    ModifyDn,
    Modify,
    Compare,
    Search,
    Extended,
}

impl Kind {
    /// Whether the target is another one afterwards, or may be.
    pub(crate) const fn is_change(self) -> bool {
        !matches!(self, Self::Bind | Self::Compare | Self::Search)
    }
}

/// How long operations may take; of a search: how long the target may say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts([Option<Duration>; 8]);

impl Timeouts {
    /// As the configuration names them.
    pub const NAMES: [(&'static str, Kind); 7] = [
        ("bind", Kind::Bind),
        ("add", Kind::Add),
        ("delete", Kind::Delete),
        ("modrdn", Kind::ModifyDn),
        ("modify", Kind::Modify),
        ("compare", Kind::Compare),
        ("search", Kind::Search),
    ];

    pub fn set(&mut self, kind: Kind, time: Option<Duration>) {
        if let Some(slot) = self.0.get_mut(kind as usize) {
            *slot = time;
        }
    }

    /// None: of a search, as long as its time limit lets it.
    pub fn of(&self, kind: Kind) -> Option<Duration> {
        let configured = self.0.get(kind as usize).copied().flatten();
        configured.or_else(|| (kind != Kind::Search).then_some(OPERATION_TIMEOUT))
    }
}

/// How targets are asked whether they answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    pub interval: Duration,
    /// The answer is late then.
    pub timeout: Duration,
}

/// So many times after so long; none: for ever.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct QuarantineStep {
    pub interval: Duration,
    pub times: Option<u32>,
}

impl fmt::Debug for QuarantineStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.times {
            Some(times) => write!(f, "{},{times}", self.interval.as_secs()),
            None => write!(f, "{},+", self.interval.as_secs()),
        }
    }
}
