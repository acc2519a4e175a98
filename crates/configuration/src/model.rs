//! The typed configuration: what slapd.conf, slapd.d and the flags of `larix serve` all become.
//!
//! A [`Config`] is complete and validated when it exists: nothing in it needs parsing again. Beside the typed
//! fields each section keeps its [`Settings`], the values as an administrator reads them under `cn=config`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use larix_engine::access::AccessRule;
use larix_engine::budget::RequestLimits;
use larix_rewrite::Rewrite;
use larix_schema::Schema;

use super::balancer::BalanceSettings;
use super::diagnostic::{Notes, Origin};
use super::entry::ConfigEntry;
use super::kinds::DatabaseKind;
use super::settings::Settings;
use super::values::{
    AdminAddress, Allowed, AuthzPolicy, AuthzRegexp, BackupSchedule, ClientLimits, ConfigDn, Disallowed,
    LimitRule, LinePrefix, LogDirectives, LogFormat, LogLevel, LogRotation, OperationRule, Requirements,
    Restrictions, SaslSettings, SearchLimits, SecurityFactors, ServerId, Subordinate, SyncReplication,
    TcpBuffer, TlsSettings, TraceExport,
};
use super::values::{PasswordCosts, PasswordReset};

/// What stands in a configuration already. An earlier version took some of it that is refused now where it is new.
#[derive(Debug, Clone, Copy)]
pub(super) enum Earlier<'c> {
    Nothing,
    /// All of it, where the configuration is kept.
    Kept,
    /// This configuration, before a change.
    Before(&'c Config),
}

/// The whole configuration of one server. Immutable once published.
#[derive(Debug, Clone)]
pub struct Config {
    pub source: Source,
    pub schema: Arc<Schema>,
    pub global: Global,
    pub frontend: Frontend,
    /// In configuration order. `database config` is always there and always first, as `{0}config`.
    pub databases: Vec<Database>,
    pub backends: Vec<Backend>,
    pub modules: Vec<ModuleList>,
    /// Schema definitions by the file or entry they came from.
    pub schema_sections: Vec<Arc<SchemaSection>>,
    /// The schema behind each section; none where it was not read from entries.
    pub(super) schema_steps: Vec<Arc<Schema>>,
    /// What was accepted and has no effect, and why.
    pub notes: Notes,
    /// The entries it was made from, if it was made from entries.
    pub(super) read_entries: Option<Vec<Arc<ConfigEntry>>>,
}

/// Where a configuration came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A slapd.conf; absolute or as it was given.
    File(PathBuf),
    /// A slapd.d directory.
    Directory(PathBuf),
    /// Flags alone.
    QuickStart,
}

/// Settings of the server as a whole: `cn=config`.
#[derive(Debug, Clone)]
pub struct Global {
    pub pid_file: Option<PathBuf>,
    pub args_file: Option<PathBuf>,
    pub log_level: LogLevel,
    pub log_file: Option<PathBuf>,
    /// `logfile-only`: nothing goes to standard error or syslog once the log file is open.
    pub log_file_only: bool,
    /// When the log file is put aside.
    pub log_rotation: Option<LogRotation>,
    /// What stands before a line in the log file.
    pub log_prefix: LinePrefix,
    /// OpenLDAP's lines, or JSON.
    pub log_format: LogFormat,
    /// journald's own protocol instead of syslog's.
    pub log_journal: bool,
    /// Operations that take so long are logged with what made them slow.
    pub slow_operation: Option<Duration>,
    /// `trace-export`: where spans of operations go.
    pub trace_export: Option<TraceExport>,
    /// `replica-max-lag`: a replica that has heard nothing of its provider for longer is not ready.
    pub replica_max_lag: Option<Duration>,
    /// One without a URL, or one per peer: the own one is found by the listener's URL.
    pub server_ids: Vec<ServerId>,
    /// Where this server listens: which of the server IDs with URLs is its own.
    pub listener_urls: Vec<String>,
    /// Seconds without a request after which a connection is closed; 0 = never.
    pub idle_timeout: u32,
    /// Seconds a blocked write may wait; 0 = for ever.
    pub write_timeout: u32,
    /// Requests that may wait on an anonymous connection.
    pub conn_max_pending: u32,
    /// Requests that may wait on an authenticated connection.
    pub conn_max_pending_auth: u32,
    /// `core-dumps`: the process may be dumped, passwords and keys with it.
    pub core_dumps: bool,
    /// Bounds on clients together and by address.
    pub client_limits: ClientLimits,
    /// Bounds on what one request may cost.
    pub request_limits: RequestLimits,
    /// `backup-schedule`: backups that the server makes by itself.
    pub backup_schedule: Option<BackupSchedule>,
    /// `http-listener`: where metrics and health are answered.
    pub http_listeners: Vec<SocketAddr>,
    /// `admin-listener`: where the admin page is served.
    pub admin_listeners: Vec<AdminAddress>,
    /// `admin-password-reset`: whether users may set a forgotten password on the admin page; `None`: they may not.
    pub admin_password_reset: Option<PasswordReset>,
    /// Bytes in one message from an anonymous connection.
    pub sockbuf_max_incoming: u64,
    /// Bytes in one message from an authenticated connection.
    pub sockbuf_max_incoming_auth: u64,
    /// Nesting of filters in a search request.
    pub max_filter_depth: u32,
    /// URLs answered when no database holds a name.
    pub referrals: Vec<String>,
    /// LDIF files whose attributes are added to the root DSE.
    pub root_dse_files: Vec<PathBuf>,
    pub allow: Allowed,
    pub disallow: Disallowed,
    /// `moduleload vc`: clients may have credentials verified without binding.
    pub verify_credentials: bool,
    pub authz_policy: AuthzPolicy,
    pub authz_regexps: Vec<AuthzRegexp>,
    pub authid_rewrite: Rewrite,
    /// Tagging options (`lang-` is a prefix, `x-hidden` a whole option). Default: `lang-`.
    pub attribute_options: Vec<String>,
    /// printf format of a crypt(3) salt.
    pub password_crypt_salt_format: Option<String>,
    pub tls: TlsSettings,
    pub sasl: SaslSettings,
    /// Security strength given to connections over ldapi://.
    pub local_ssf: u32,
    pub reverse_lookup: bool,
    pub tcp_buffers: Vec<TcpBuffer>,
    /// `backend harness`: whom to tell that the server runs.
    pub harness: Option<HarnessSettings>,
    /// `backend lload`: the balancer in this server.
    pub balancer: Option<BalanceSettings>,
    pub settings: Settings,
}

impl Global {
    /// The directives about the log.
    pub fn log_directives(&self) -> LogDirectives<'_> {
        LogDirectives {
            level: self.log_level,
            format: self.log_format,
            prefix: self.log_prefix,
            file: self.log_file.as_deref(),
            rotation: self.log_rotation,
            file_only: self.log_file_only,
            journal: self.log_journal,
            slow_operation: self.slow_operation,
        }
    }
}

impl Default for Global {
    fn default() -> Self {
        Self {
            pid_file: None,
            args_file: None,
            log_level: LogLevel::default(),
            log_file: None,
            log_file_only: false,
            log_rotation: None,
            log_prefix: LinePrefix::default(),
            log_format: LogFormat::default(),
            log_journal: false,
            slow_operation: None,
            trace_export: None,
            replica_max_lag: None,
            server_ids: Vec::new(),
            listener_urls: Vec::new(),
            idle_timeout: 0,
            write_timeout: 0,
            conn_max_pending: 100,
            conn_max_pending_auth: 1000,
            core_dumps: false,
            client_limits: ClientLimits::default(),
            request_limits: RequestLimits::default(),
            backup_schedule: None,
            http_listeners: Vec::new(),
            admin_listeners: Vec::new(),
            admin_password_reset: None,
            sockbuf_max_incoming: 262_143,
            sockbuf_max_incoming_auth: 16_777_215,
            max_filter_depth: 1000,
            referrals: Vec::new(),
            root_dse_files: Vec::new(),
            allow: Allowed::default(),
            disallow: Disallowed::default(),
            verify_credentials: false,
            authz_policy: AuthzPolicy::None,
            authz_regexps: Vec::new(),
            authid_rewrite: Rewrite::default(),
            attribute_options: vec!["lang-".to_owned()],
            password_crypt_salt_format: None,
            tls: TlsSettings::default(),
            sasl: SaslSettings::default(),
            local_ssf: 71,
            reverse_lookup: false,
            tcp_buffers: Vec::new(),
            harness: None,
            balancer: None,
            settings: Settings::default(),
        }
    }
}

/// Whom a server that is started for a test tells about itself (OpenLDAP's `mod_harness`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HarnessSettings {
    pub host: String,
    pub port: u16,
    /// What the server calls itself there.
    pub identifier: String,
}

/// What holds for every database unless it says otherwise: `olcDatabase={-1}frontend,cn=config`.
#[derive(Debug, Clone, Default)]
pub struct Frontend {
    pub default_search_base: Option<ConfigDn>,
    /// Schemes for new passwords, with braces, as given (`{SSHA}`). Empty: the server's own default.
    pub password_hash: Vec<String>,
    pub password_costs: PasswordCosts,
    /// Default `cn=Subschema`.
    pub schema_dn: Option<ConfigDn>,
    /// Access rules evaluated after those of the database, and for the root DSE and cn=Subschema.
    pub access: Vec<AccessLine>,
    pub shared: CommonSettings,
    pub overlays: Vec<Overlay>,
    pub settings: Settings,
}

/// What the frontend and every database have alike. A database starts from a copy of the frontend's.
#[derive(Debug, Clone)]
pub struct CommonSettings {
    pub search_limits: SearchLimits,
    /// First match wins; without one `search_limits` hold.
    pub limits: Vec<LimitRule>,
    pub read_only: bool,
    pub requirements: Requirements,
    pub restrictions: Restrictions,
    /// First match decides; without one of its own, a database is under the frontend's.
    pub operation_rules: Vec<OperationRule>,
    pub security: SecurityFactors,
    pub add_content_acl: bool,
    /// Aliases followed one after another.
    pub max_deref_depth: u32,
}

impl Default for CommonSettings {
    fn default() -> Self {
        Self {
            search_limits: SearchLimits::default(),
            limits: Vec::new(),
            read_only: false,
            requirements: Requirements::default(),
            restrictions: Restrictions::default(),
            operation_rules: Vec::new(),
            security: SecurityFactors::default(),
            add_content_acl: false,
            max_deref_depth: 15,
        }
    }
}

/// One line of `access to ...`, in order.
#[derive(Debug, Clone)]
pub struct AccessLine {
    pub rule: AccessRule,
    pub origin: Origin,
}

/// One `database` section.
#[derive(Debug, Clone)]
pub struct Database {
    pub kind: DatabaseKind,
    pub suffixes: Vec<ConfigDn>,
    pub root_dn: Option<ConfigDn>,
    /// Clear text or `{SCHEME}...`.
    pub root_password: Option<Vec<u8>>,
    pub access: Vec<AccessLine>,
    pub shared: CommonSettings,
    /// Maintain creatorsName, modifyTimestamp and the like. Default on.
    pub last_mod: bool,
    /// Maintain pwdLastSuccess.
    pub last_bind: bool,
    pub last_bind_precision: u32,
    pub last_bind_asserts: bool,
    /// Glued below the database whose suffix is above.
    pub subordinate: Option<Subordinate>,
    pub hidden: bool,
    pub disabled: bool,
    pub multi_provider: bool,
    /// `syncrepl`: the providers that it follows.
    pub sync_replication: Vec<SyncReplication>,
    pub update_dn: Option<ConfigDn>,
    pub update_refs: Vec<String>,
    pub overlays: Vec<Overlay>,
    /// Where the section starts.
    pub origin: Origin,
    pub settings: Settings,
}

impl Database {
    pub(super) fn new(kind: DatabaseKind, shared: CommonSettings, origin: Origin) -> Self {
        Self {
            kind,
            suffixes: Vec::new(),
            root_dn: None,
            root_password: None,
            access: Vec::new(),
            shared,
            last_mod: true,
            last_bind: false,
            last_bind_precision: 0,
            last_bind_asserts: false,
            subordinate: None,
            hidden: false,
            disabled: false,
            multi_provider: false,
            sync_replication: Vec::new(),
            update_dn: None,
            update_refs: Vec::new(),
            overlays: Vec::new(),
            origin,
            settings: Settings::default(),
        }
    }
}

/// One `overlay` below the frontend or a database.
#[derive(Debug, Clone)]
pub struct Overlay {
    /// OpenLDAP's name: `syncprov`, `memberof`...
    pub name: String,
    pub disabled: bool,
    pub origin: Origin,
    /// Its directives by olc attribute, in order.
    pub settings: Settings,
    /// Where its directives stand in a slapd.conf.
    pub(super) lines: Vec<OverlayLine>,
    /// Sections of databases that it has below its own: the servers that chain knows.
    pub below: Vec<Database>,
}

/// A directive of an overlay in a slapd.conf.
#[derive(Debug, Clone)]
pub(super) struct OverlayLine {
    pub(super) keyword: &'static str,
    /// Its arguments; empty if there may be a password among them.
    pub(super) words: String,
    pub(super) origin: Origin,
}

/// `backend <type>`: settings shared by all databases of a kind.
#[derive(Debug, Clone)]
pub struct Backend {
    pub name: String,
    pub settings: Settings,
}

/// One `cn=module{n}` entry.
#[derive(Debug, Clone, Default)]
pub struct ModuleList {
    pub settings: Settings,
}

/// One `cn={n}name,cn=schema` entry.
#[derive(Debug, Clone)]
pub struct SchemaSection {
    pub name: String,
    pub settings: Settings,
}

/// What `larix serve` asks for when there is no file.
#[derive(Debug, Clone, Default)]
pub struct QuickStart {
    pub suffix: String,
    pub directory: PathBuf,
    /// Default `cn=admin,<suffix>`.
    pub root_dn: Option<String>,
    /// A hashed password (`{ARGON2}...`); without one no client can bind as root.
    pub root_password: Option<Vec<u8>>,
    /// The certificate's file, and the key's; the key may be in the certificate's file.
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    /// This server is one of several that all take changes.
    pub replicas: Option<QuickReplicas>,
    /// Files with lines of slapd.conf for the database, read before the access rules: theirs come first.
    pub includes: Vec<PathBuf>,
}

/// Servers that all take changes, each with the same entries.
#[derive(Debug, Clone)]
pub struct QuickReplicas {
    /// This server's ID: 1 to 4095.
    pub number: u16,
    /// The words of a `syncrepl` line for each other server.
    pub lines: Vec<Vec<String>>,
    /// The hashed password (`{ARGON2}...`) of [`QuickReplicas::ACCOUNT`].
    pub password: Vec<u8>,
}

impl QuickReplicas {
    /// The account that the other servers bind as. It may read everything and change nothing.
    pub const ACCOUNT: &'static str = "cn=replicator,cn=replication";
    /// The suffix of the database that has this account alone.
    pub const SUFFIX: &'static str = "cn=replication";
}
