//! The servers that referrals lead to, and what their connections are made with.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use larix_engine::access::AccessPolicy;
use larix_engine::time::Clock;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_schema::Schema;

use super::Behavior;
use super::counted::Counted;
use super::waiting::Waiting;
use crate::proxy::Proxy;
use crate::settings::ProxySettings;

/// Servers beside the configured ones that are connected at a time.
const UNLISTED_MAX: usize = 32;
/// How long one of them keeps its place without a request.
const UNLISTED_IDLE: Duration = Duration::from_secs(60);

/// Opens the connections of one server.
pub type OpenProxy = Box<dyn Fn(ProxySettings) -> Result<Arc<Proxy>, String> + Send + Sync>;

/// How many referrals in a row `chase-referrals` follows: as many as OpenLDAP's library.
const CHASE_DEPTH_MAX: u32 = 5;

/// What `overlay chain` or `chase-referrals` is configured with, and its connections.
pub struct Links {
    /// Those with settings of their own (`chain-uri`): one target each.
    pub listed: Vec<Arc<Proxy>>,
    /// The settings of all others.
    pub unlisted: ProxySettings,
    pub open: OpenProxy,
    /// How many referrals may follow one another (`chain-max-depth`).
    pub depth_max: u32,
    /// What went wrong is answered, and not the referral (`chain-return-error`).
    pub return_error: bool,
    /// Of requests without the control.
    pub behavior: Option<Behavior>,
    pub schema: Arc<Schema>,
    /// The rules for entries of other servers; none: those of the database that the base belongs to.
    pub entry_policy: Option<Arc<AccessPolicy>>,
    /// For entries where no rules are in force.
    pub open_policy: Arc<AccessPolicy>,
    pub clock: Arc<dyn Clock>,
    pub others: Others,
    /// What was to be handed on to providers and was not.
    pub lost: Counted,
    /// Answers that wait for replication (`chain-wait-replicated`); none: no answer does.
    pub waiting: Option<Waiting>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("listed", &self.listed).finish_non_exhaustive()
    }
}

/// Servers beside the configured ones.
#[derive(Debug, Default)]
pub struct Others(Mutex<Vec<Other>>);

#[derive(Debug)]
struct Other {
    proxy: Arc<Proxy>,
    used: Duration,
}

/// What it takes to follow the referrals of a database's own targets.
pub struct Chase {
    pub open: OpenProxy,
    pub schema: Arc<Schema>,
    /// The rules for entries of other servers.
    pub entry_policy: Arc<AccessPolicy>,
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Chase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chase")
    }
}

impl Links {
    /// Follows the referrals of the targets of `proxy` (`chase-referrals`). A referral to one of its targets is asked there as everything
    /// else is. All others are asked anonymously, with the settings of its connections: no password goes to a server that a target names.
    pub fn chasing(proxy: &Arc<Proxy>, Chase { open, schema, entry_policy, clock }: Chase) -> Self {
        let unlisted = ProxySettings {
            targets: Vec::new(),
            acl_bind: None,
            assertion: None,
            asserted: Vec::new(),
            passed: Vec::new(),
            chase_referrals: false,
            health_check: None,
            ..proxy.settings().clone()
        };
        Self {
            listed: vec![Arc::clone(proxy)],
            unlisted,
            open,
            depth_max: CHASE_DEPTH_MAX,
            return_error: false,
            behavior: None,
            schema,
            open_policy: Arc::clone(&entry_policy),
            entry_policy: Some(entry_policy),
            clock,
            others: Others::default(),
            lost: Counted::new(|_| {}),
            waiting: None,
        }
    }

    /// Whether the configuration names the server of a URL, and not a referral alone.
    pub(super) fn lists(&self, url: &LdapUrl) -> bool {
        self.listed.iter().any(|proxy| is_of(proxy, url))
    }

    /// The connections of the server that a URL names.
    ///
    /// # Errors
    /// A server that cannot be asked, and why.
    pub(super) fn to(&self, url: &LdapUrl) -> Result<Arc<Proxy>, String> {
        if !matches!(url.scheme, UrlScheme::Ldap | UrlScheme::Ldaps | UrlScheme::Ldapi) {
            return Err(format!("{url} is no server that can be asked"));
        }
        let is_it = |proxy: &Arc<Proxy>| is_of(proxy, url);
        if let Some(listed) = self.listed.iter().find(|proxy| is_it(proxy)) {
            return Ok(Arc::clone(listed));
        }
        let now = Duration::from_nanos(self.clock.monotonic().0);
        let mut others = self.others.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = others.iter_mut().find(|other| is_it(&other.proxy)) {
            other.used = now;
            return Ok(Arc::clone(&other.proxy));
        }
        others.retain(|other| other.proxy.under_way() > 0 || now < other.used + UNLISTED_IDLE);
        if others.len() >= UNLISTED_MAX {
            return Err(format!("referrals lead to more than {UNLISTED_MAX} servers at once"));
        }
        let server = LdapUrl::server(url.scheme, url.host.clone(), url.port);
        let proxy = (self.open)(ProxySettings { targets: vec![server], ..self.unlisted.clone() })?;
        others.push(Other { proxy: Arc::clone(&proxy), used: now });
        Ok(proxy)
    }
}

fn is_of(proxy: &Proxy, url: &LdapUrl) -> bool {
    proxy.settings.targets.iter().any(|own| is_same_server(own, url))
}

fn is_same_server(one: &LdapUrl, other: &LdapUrl) -> bool {
    let port = |url: &LdapUrl| match url.scheme {
        UrlScheme::Ldapi => None,
        _ => url.effective_port(),
    };
    let host = |url: &LdapUrl| match (url.scheme, url.host.as_str()) {
        (UrlScheme::Ldap | UrlScheme::Ldaps, "") => "localhost".to_owned(),
        (UrlScheme::Ldap | UrlScheme::Ldaps, host) => host.to_ascii_lowercase(),
        (_, path) => path.to_owned(),
    };
    (one.scheme, port(one), host(one)) == (other.scheme, port(other), host(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_scheme_host_and_port() {
        for (one, other, same) in [
            ("ldap://a.example", "ldap://A.example:389/dc=example??sub", true),
            ("ldap://a.example", "ldaps://a.example", false),
            ("ldaps://a.example", "ldaps://a.example:636", true),
            ("ldap://a.example:1389", "ldap://a.example", false),
            ("ldap://", "ldap://localhost/", true),
            ("ldapi://%2Frun%2Fa", "ldapi://%2Frun%2FA", false),
        ] {
            let parse = |url| LdapUrl::parse(url).expect("a URL");
            assert_eq!(is_same_server(&parse(one), &parse(other)), same, "{one} {other}");
        }
    }
}
