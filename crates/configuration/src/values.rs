//! The typed values of directives, each with the parser of its text.

mod admin_address;
mod backup_schedule;
mod change_log;
mod client_limits;
mod features;
mod http_address;
mod limits;
mod log;
pub mod operation_rule;
mod password_costs;
mod password_reset;
pub mod quantity;
pub(crate) mod request_words;
mod sasl;
mod security;
mod sync_replication;
mod tcp_buffer;
mod trace_export;

pub use admin_address::AdminAddress;
pub use backup_schedule::{BackupSchedule, Throttle};
pub use change_log::ChangeLog;
pub use client_limits::{ClientLimits, Network, Rate};
pub use features::{Allowed, Disallowed, Requirements, Restrictions, SecurityFactors};
pub use http_address::http_address;
pub use limits::{
    DnStyle, Hard, LimitRule, LimitSubject, PagedTotal, SearchLimits, SizeLimit, Soft, TimeLimit, Unchecked,
};
pub use log::{LinePrefix, LogDirectives, LogFormat, LogLevel, LogRotation};
pub use operation_rule::{OperationAction, OperationClause, OperationRule};
pub use password_costs::PasswordCosts;
pub use password_reset::{MailSecurity, MailServer, PasswordReset, ResetMail};
pub use sasl::{ChannelBinding, Mechanism, SaslSettings, SecurityProperties};
pub use security::{AuthzPolicy, AuthzRegexp, TlsSettings, TlsVerify};
pub use sync_replication::{StartTls, SyncBind, SyncData, SyncReplication};
pub(crate) use sync_replication::{SyncFault, TLS_KEYS, is_own_url};
pub use tcp_buffer::TcpBuffer;
pub use trace_export::TraceExport;

use std::fmt;

use larix_proto::dn::Dn;
use larix_schema::{DnError, NormalDn, Schema};

/// A DN of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigDn {
    /// As the server shows it.
    pub text: String,
    pub normal: NormalDn,
}

impl ConfigDn {
    /// Reads a DN under a schema.
    ///
    /// # Errors
    /// Says what is wrong with the text, or which attribute type is not defined.
    pub fn parse(schema: &Schema, text: &str) -> Result<Self, DnError> {
        let dn = Dn::parse(text)?;
        Ok(Self { text: schema.pretty_dn(&dn)?, normal: schema.normalize_dn(&dn)? })
    }
}

impl ConfigDn {
    /// Reads a DN whose attribute types may not be defined yet, as OpenLDAP does in cn=config: schema is often added
    /// after the database that needs it. Until then the DN stands for itself, without regard to case.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse_relaxed(schema: &Schema, text: &str) -> Result<Self, DnError> {
        match Self::parse(schema, text) {
            Err(DnError::UnknownAttribute(_)) => {
                let rdns: Vec<String> = Dn::parse(text)?.rdns().iter().map(ToString::to_string).collect();
                let pretty = rdns.join(",");
                Ok(Self { normal: NormalDn::from_normal(&pretty.to_lowercase()), text: pretty })
            }
            strict => strict,
        }
    }
}

impl fmt::Display for ConfigDn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `serverID <number> [<url>]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerId {
    /// 0..=4095.
    pub number: u16,
    /// Of the listener that makes this number ours.
    pub url: Option<String>,
}

impl ServerId {
    /// The largest server ID: three hexadecimal digits of a CSN.
    pub const MAX: u16 = 0xfff;
}

/// `subordinate [advertise]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subordinate {
    Glued,
    /// Also listed in namingContexts.
    Advertised,
}

/// One `index` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexLine {
    /// Attribute descriptions as written; `default` is spelled [`IndexLine::DEFAULT`].
    pub attributes: Vec<String>,
    /// `pres`, `eq`, `sub`... lower case; empty: those of the default line.
    pub kinds: Vec<String>,
}

impl IndexLine {
    /// The attribute name that sets the kinds of lines without any.
    pub const DEFAULT: &'static str = "default";
}

/// LMDB's environment flags; all but `nosync` and `nometasync` are accepted without effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EnvFlags {
    pub no_sync: bool,
    pub no_meta_sync: bool,
    pub write_map: bool,
    pub map_async: bool,
    pub no_read_ahead: bool,
}
