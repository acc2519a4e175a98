//! The requests that scenarios have in common, and how streams of them are put together.

use larix_proto::Scope;

use super::{Adds, Identity, Stream};
use crate::drive::{Operation, SearchTemplate, Step, Workload};
use crate::generate::Kind;

/// The subtree in which the mail directory's accounts lie.
pub(super) const MAIL_BASE: &str = "dc=com";
const MAIL_PEOPLE: &str = "ou=people,dc=zre-ldap001,dc=eng,dc=vmware,dc=com";
const MAIL_DOMAIN: &str = "zre-ldap001.eng.vmware.com";

impl Stream {
    /// As fast as answers come, anonymously, after a warm-up.
    pub(super) fn reads(workload: Workload, connections: usize, seconds: f64) -> Self {
        Self {
            workload,
            connections,
            in_flight: 1,
            rate: None,
            seconds,
            warm_up: (seconds / 5.0).min(2.0),
            identity: Identity::Anonymous,
            adds: Adds::None,
        }
    }

    /// As fast as answers come, as the `rootdn` of the first database, counted from the first request.
    pub(super) fn writes(workload: Workload, connections: usize, seconds: f64) -> Self {
        Self { warm_up: 0.0, identity: Identity::Root(0), ..Self::reads(workload, connections, seconds) }
    }

    pub(super) const fn in_flight(mut self, in_flight: usize) -> Self {
        self.in_flight = in_flight;
        self
    }

    pub(super) const fn rate(mut self, rate: f64) -> Self {
        self.rate = Some(rate);
        self
    }

    pub(super) const fn adding(mut self, adds: Adds) -> Self {
        self.adds = adds;
        self
    }

    pub(super) const fn by_root_of(mut self, database: usize) -> Self {
        self.identity = Identity::Root(database);
        self
    }
}

/// A search by a unique key: one entry, whole.
pub(super) fn unique(base: &str, filter: impl Into<String>) -> Step {
    Step::new(1, Operation::search(base, filter)).expecting(1)
}

/// The step with another weight.
pub(super) fn weigh(weight: u32, step: Step) -> Step {
    Step { weight, ..step }
}

/// The two filters that a mail server finds its users by, in even split; the whole entry comes back.
pub(super) fn mail_searches(entries: u64) -> Workload {
    let mut workload = Workload::new(entries);
    for attribute in ["zimbraMailDeliveryAddress", "zimbraMailAlias"] {
        let filter = format!("(&({attribute}=user.{{n}}@{MAIL_DOMAIN})(zimbraMailStatus=enabled))");
        workload = workload.with(unique(MAIL_BASE, filter));
    }
    workload
}

pub(super) fn mail_account() -> String {
    format!("uid=user.{{n}},{MAIL_PEOPLE}")
}

pub(super) fn mail_modify() -> Step {
    Step::new(1, Operation::replace(mail_account(), "zimbraLastLogonTimestamp", "20200101000000Z"))
}

/// Two substrings that are both indexed and rare together; the configured size limit of 500 may end it.
pub(super) fn mail_substrings(entries: u64) -> Workload {
    let template = SearchTemplate {
        base: MAIL_BASE.into(),
        scope: Scope::Subtree,
        filter: "(&(cn=*bel*)(sn=*quin*))".into(),
        attributes: Vec::new(),
        size_limit: 500,
    };
    Workload::new(entries).with(Step::new(1, Operation::Search(template)))
}

/// The first leaf that `kind` generates, with its number made a placeholder by `number`.
pub(super) fn leaf(kind: Kind, number: impl Fn(&str) -> String) -> (String, Vec<(String, String)>) {
    let mut ldif = Vec::new();
    // Writing into memory fails for no reason but a number of entries that is too large.
    let _ = kind.write_ldif(1, 1, &mut ldif);
    let text = String::from_utf8_lossy(&ldif);
    let entry = text.split("\n\n").find(|entry| entry.starts_with("dn: uid=")).unwrap_or_default();
    let mut lines = entry.lines().filter_map(|line| line.split_once(": "));
    let dn = number(lines.next().map_or("", |(_, dn)| dn));
    (dn, lines.map(|(name, value)| (name.to_owned(), number(value))).collect())
}

/// An account of the mail directory with the number `{s}`.
pub(super) fn mail_new_account() -> (String, Vec<(String, String)>) {
    leaf(Kind::Mail, |value| {
        let value = value.replace("user.1,", "user.{s},").replace("user.1@", "user.{s}@");
        if value == "user.1" { "user.{s}".to_owned() } else { value }
    })
}

pub(super) fn mail_add(entries: u64) -> Workload {
    let (dn, attributes) = mail_new_account();
    Workload::new(entries).with(Step::new(1, Operation::Add { dn, attributes }))
}
