//! What a configuration of the balancer says.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use larix_client::{Credentials, KeepAlive};
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_proto::{limits, oid};

use super::super::values::{StartTls, TlsSettings};

/// Settings of a balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceSettings {
    /// URLs to listen on, as `listen` gives them.
    pub listen: Vec<String>,
    pub bind: BindSettings,
    /// There is a `bindconf`, whatever it says.
    pub is_bind_given: bool,
    /// Operations carry the proxied authorization control (RFC 4370) with the identity of their client.
    pub proxy_authorization: bool,
    /// Simple binds are judged by the extended operation Verify Credentials, over connections that clients share.
    pub verifies_credentials: bool,
    /// In the order in which they are tried.
    pub tiers: Vec<TierSettings>,
    /// How long a connection may take nothing of what waits to be written, and how long a request may wait for a connection.
    /// None: no limit for the first, ten seconds for the second.
    pub io_timeout: Option<Duration>,
    /// How long a client may be silent with nothing under way; none: for ever.
    pub idle_timeout: Option<Duration>,
    /// Operations of one client under way; more are answered `busy`. 0: 4,096.
    pub client_max_pending: usize,
    pub write_coherence: Coherence,
    pub exop_rules: HashMap<String, Action>,
    /// For extended operations without a rule.
    pub exop_default: Action,
    pub control_rules: HashMap<String, Action>,
    /// Content of a client's message, bytes.
    pub client_message_bytes: usize,
    /// Content of a server's message, bytes.
    pub upstream_message_bytes: usize,
    /// Answers that wait for one client, bytes. 0: 4 MB.
    pub client_output_bytes: usize,
    /// The listeners' side.
    pub tls: TlsSettings,
    /// `TLSShareSlapdCTX`: the listeners have the TLS of the server that the balancer is in, instead of their own.
    pub shares_tls: bool,
    pub pid_file: Option<PathBuf>,
    pub args_file: Option<PathBuf>,
    /// What the file says that has no effect.
    pub notes: Vec<String>,
}

/// Without `iotimeout`, how long a request waits for a connection before it is answered `busy`.
const WAIT: Duration = Duration::from_secs(10);
/// Operations of one client under way.
const CLIENT_OPERATIONS_MAX: usize = 4096;
/// Answers that wait for one client, bytes.
const CLIENT_OUTPUT_MAX: usize = 4 << 20;

/// `bindconf`: how connections to all servers are made, and who they belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindSettings {
    /// None: anonymous. A client that is bound as the DN of a simple bind needs no proxied authorization.
    pub credentials: Option<Credentials>,
    /// How long an operation may be without an answer; none: for ever.
    pub timeout: Option<Duration>,
    /// How long connecting may take.
    pub network_timeout: Option<Duration>,
    pub keep_alive: Option<KeepAlive>,
    pub user_timeout: Option<Duration>,
    /// `tls_cacert` and the like.
    pub tls: Vec<(String, String)>,
}

/// Servers that are tried together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierSettings {
    /// What cn=config and cn=Monitor call it.
    pub name: String,
    pub strategy: Strategy,
    pub backends: Vec<BackendSettings>,
}

/// How a tier chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    RoundRobin,
    /// By chance in proportion to the weights (RFC 2782).
    Weighted,
    /// The better of two taken by chance: latency times weight.
    BestOf,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSettings {
    /// What cn=config and cn=Monitor call it.
    pub name: String,
    /// The URL as it was given; empty: none was.
    pub uri: String,
    pub url: LdapUrl,
    pub start_tls: StartTls,
    pub proxy_header: ProxyHeader,
    /// Connections that clients share.
    pub connections: usize,
    /// Connections for binds.
    pub bind_connections: usize,
    /// The longest pause between tries to connect.
    pub retry: Duration,
    /// Operations under way on all connections; 0: no limit of its own.
    pub max_pending: usize,
    /// Operations under way on one connection; 0: no limit of its own.
    pub connection_max_pending: usize,
    pub weight: u32,
}

/// Connections of a kind to one server, as lloadd has them.
const CONNECTIONS: usize = 10;
const RETRY: Duration = Duration::from_secs(5);

impl BackendSettings {
    /// A server of which nothing is said yet.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            uri: String::new(),
            url: LdapUrl::server(UrlScheme::Ldap, "", None),
            start_tls: StartTls::No,
            proxy_header: ProxyHeader::None,
            connections: CONNECTIONS,
            bind_connections: CONNECTIONS,
            retry: RETRY,
            max_pending: 0,
            connection_max_pending: 0,
            weight: 0,
        }
    }

    /// Whether connections made with one of two settings are as the other has them.
    pub fn is_same_server(&self, other: &Self) -> bool {
        let alike = (self.start_tls, self.proxy_header) == (other.start_tls, other.proxy_header);
        alike && self.url.to_string() == other.url.to_string()
    }
}

/// `proxyprotocol`: what each connection to a server begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyHeader {
    #[default]
    None,
    /// A header of version 2 that names no client: all clients share the connections.
    Local,
}

/// `write_coherence`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coherence {
    #[default]
    Off,
    /// So long after a write is answered.
    For(Duration),
    UntilBind,
}

/// What an extended operation or control does to the choice of connections, in ascending order of priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    #[default]
    Ignore,
    /// As after a write.
    Write,
    /// This server from here on, until the next bind.
    Backend,
    /// This connection from here on, until the next bind.
    Connection,
    Reject,
}

impl Default for BalanceSettings {
    fn default() -> Self {
        // What these leave behind on a connection would be seen by the other clients that share it, or not be found again.
        let reject = [oid::START_TRANSACTION, oid::END_TRANSACTION, oid::TURN];
        let connection = [oid::PAGED_RESULTS, oid::VLV_REQUEST];
        Self {
            listen: Vec::new(),
            bind: BindSettings::default(),
            is_bind_given: false,
            proxy_authorization: true,
            verifies_credentials: false,
            tiers: Vec::new(),
            io_timeout: Some(WAIT),
            idle_timeout: None,
            client_max_pending: 0,
            write_coherence: Coherence::Off,
            exop_rules: reject.map(|oid| (oid.to_owned(), Action::Reject)).into(),
            exop_default: Action::Ignore,
            control_rules: connection.map(|oid| (oid.to_owned(), Action::Connection)).into(),
            client_message_bytes: limits::PDU_ANONYMOUS,
            upstream_message_bytes: limits::PDU_AUTHENTICATED,
            client_output_bytes: 0,
            tls: TlsSettings::default(),
            shares_tls: false,
            pid_file: None,
            args_file: None,
            notes: Vec::new(),
        }
    }
}

impl BalanceSettings {
    /// All servers, in the order of their tiers.
    pub fn backends(&self) -> impl Iterator<Item = &BackendSettings> {
        self.tiers.iter().flat_map(|tier| &tier.backends)
    }

    /// Operations of one client under way.
    pub fn client_operations(&self) -> usize {
        match self.client_max_pending {
            0 => CLIENT_OPERATIONS_MAX,
            limit => limit.min(CLIENT_OPERATIONS_MAX),
        }
    }

    /// Answers that wait for one client, bytes.
    pub fn client_output(&self) -> usize {
        if self.client_output_bytes == 0 { CLIENT_OUTPUT_MAX } else { self.client_output_bytes }
    }

    /// How long a request waits for a connection before it is answered `busy`.
    pub fn wait(&self) -> Duration {
        self.io_timeout.unwrap_or(WAIT)
    }
}
