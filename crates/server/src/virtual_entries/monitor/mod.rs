//! cn=Monitor: the server's counters and state as entries, in OpenLDAP's tree.

mod balancer;
pub(crate) mod change;
mod connection_groups;
mod connections;
mod databases;
#[cfg(feature = "kv")]
mod nodes;
mod own;
mod proxies;
mod replication;
mod threads;

use larix_balance::Figures;
use larix_configuration::{Config, Database, DatabaseKind};
use larix_engine::entry::Entry;
use larix_engine::time::{Monotonic, Timestamp};
use larix_proto::oid;
use larix_proxy::ProxyFigures;
use larix_replication::consumer::ConsumerStatus;
use larix_replication::provider::SyncPeerFigures;

#[cfg(feature = "kv")]
use crate::cluster::NodeFigures;
use larix_schema::Schema;

use super::Builder;
use crate::admission::Admission;
use crate::backup::BackupStatus;
use crate::log::Log;
use crate::log::LogLevel;
use crate::proxies::CacheContent;
use crate::statistics::{OperationKind, Statistics};
use crate::tls::TlsContext;

use larix_backend::DatabaseFigures;

/// The tree's suffix.
pub(crate) const DN: &str = "cn=Monitor";

/// What the tree is made from.
#[derive(Debug)]
pub(crate) struct Monitor<'a> {
    pub schema: &'a Schema,
    pub subschema_dn: &'a str,
    pub config: &'a Config,
    pub statistics: &'a Statistics,
    pub admission: &'a Admission,
    pub tls: &'a TlsContext,
    pub now: Timestamp,
    /// The same moment.
    pub monotonic: Monotonic,
    /// The limit of open files, which bounds the connections.
    pub descriptors: u64,
    pub log: &'a Log,
    pub backups: BackupStatus,
    /// Passwords that wait to be hashed or compared.
    pub passwords_waiting: usize,
    /// Long searches that wait for a turn.
    pub long_searches_waiting: usize,
    /// For each database in the configuration's order: what it says itself, where it stores anything.
    pub stored: Vec<Option<DatabaseFigures>>,
    /// The databases that follow a provider.
    pub consumers: Vec<ConsumerStatus>,
    /// Of databases in engines that several servers share.
    #[cfg(feature = "kv")]
    pub nodes: Vec<NodeFigures>,
    /// The connections and targets of proxied databases: by the suffix of the database and, of several targets, their number.
    pub proxies: Vec<(String, ProxyFigures)>,
    /// Queries, entries and bytes that `overlay pcache` keeps, by the suffix of its database.
    pub caches: Vec<(String, CacheContent)>,
    /// `backend lload`; none: there is no balancer, or it does not answer.
    pub balancer: Option<Figures>,
    /// The consumers of this server.
    pub peers: Vec<SyncPeerFigures>,
    /// The DN in whose name the tree is: the monitor database's root DN.
    pub owner: &'a str,
}

impl Monitor<'_> {
    /// All entries, superiors first.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut out = Vec::with_capacity(64 + self.statistics.current_connections());
        out.push(self.server());
        self.backends(&mut out);
        self.balancer(&mut out);
        self.connections(&mut out);
        self.databases(&mut out);
        self.listeners(&mut out);
        out.push(self.log());
        self.operations(&mut out);
        self.overlays(&mut out);
        out.push(self.container("SASL", "This subsystem contains information about SASL.", false).build());
        self.traffic(&mut out);
        self.threads(&mut out);
        self.time(&mut out);
        out.push(self.container("TLS", "This subsystem contains information about TLS.", false).build());
        self.waiters(&mut out);
        self.own(&mut out);
        out
    }

    fn server(&self) -> Entry {
        self.object(DN, "Monitor", "monitorServer", true)
            .add(
                "description",
                [
                    "This subtree contains monitoring/managing objects.",
                    "This object contains information about this server.",
                    "Most of the information is held in operational attributes, which must be explicitly requested.",
                ],
            )
            .one("monitoredInfo", crate::version())
            .build()
    }

    fn backends(&self, out: &mut Vec<Entry>) {
        let kinds = self.kinds();
        let names = kinds.iter().map(|kind| kind.name().to_owned());
        let about = "This subsystem contains information about available backends.";
        out.push(self.container("Backends", about, true).add("monitoredInfo", names).build());
        for (n, kind) in kinds.iter().enumerate() {
            let databases =
                self.config.databases.iter().enumerate().filter(|(_, d)| d.kind.name() == kind.name());
            let see = databases.map(|(i, _)| format!("cn=Database {i},cn=Databases,{DN}"));
            out.push(
                self.child("Backends", &format!("Backend {n}"), "monitoredObject")
                    .one("monitoredInfo", kind.name())
                    .one("monitorRuntimeConfig", "TRUE")
                    .add("supportedControl", controls(kind).iter().copied())
                    .add("seeAlso", see)
                    .build(),
            );
        }
    }

    /// The kinds of the databases, each once.
    fn kinds(&self) -> Vec<&DatabaseKind> {
        let mut kinds: Vec<&DatabaseKind> = Vec::new();
        for database in &self.config.databases {
            if !kinds.iter().any(|known| known.name() == database.kind.name()) {
                kinds.push(&database.kind);
            }
        }
        kinds
    }

    fn listeners(&self, out: &mut Vec<Entry>) {
        let about = "This subsystem contains information about active listeners.";
        out.push(self.container("Listeners", about, true).build());
        for (n, listener) in self.statistics.listeners.iter().enumerate() {
            out.push(
                self.child("Listeners", &format!("Listener {n}"), "monitoredObject")
                    .one("monitorConnectionLocalAddress", listener.name.clone())
                    .one("labeledURI", listener.url.clone())
                    .build(),
            );
        }
    }

    fn log(&self) -> Entry {
        let level = self.log.configured_levels();
        self.container("Log", "This subsystem contains information about logging.", false)
            .one("description", "Set the attribute \"managedInfo\" to the desired log levels.")
            .add("managedInfo", level_names(level))
            .build()
    }

    fn operations(&self, out: &mut Vec<Entry>) {
        let sum = |f: fn(&Statistics, OperationKind) -> u64| -> u64 {
            OperationKind::ALL.iter().map(|(kind, _)| f(self.statistics, *kind)).sum()
        };
        let about = "This subsystem contains information about performed operations.";
        out.push(
            self.container("Operations", about, true)
                .one("monitorOpInitiated", sum(Statistics::initiated).to_string())
                .one("monitorOpCompleted", sum(Statistics::completed).to_string())
                .build(),
        );
        for (kind, name) in OperationKind::ALL {
            out.push(
                self.child("Operations", name, "monitorOperation")
                    .one("monitorOpInitiated", self.statistics.initiated(kind).to_string())
                    .one("monitorOpCompleted", self.statistics.completed(kind).to_string())
                    .build(),
            );
        }
    }

    fn overlays(&self, out: &mut Vec<Entry>) {
        let names = self.overlay_names();
        let about = "This subsystem contains information about available overlays.";
        let listed = names.iter().map(|name| (*name).to_owned());
        out.push(self.container("Overlays", about, !names.is_empty()).add("monitoredInfo", listed).build());
        for (n, name) in names.iter().enumerate() {
            let uses = |d: &&Database| d.overlays.iter().any(|overlay| overlay.name == *name);
            let see = self.config.databases.iter().enumerate().filter(|(_, d)| uses(d));
            let see = see.map(|(i, _)| format!("cn=Database {i},cn=Databases,{DN}"));
            out.push(
                self.child("Overlays", &format!("Overlay {n}"), "monitoredObject")
                    .one("monitoredInfo", *name)
                    .one("monitorRuntimeConfig", "TRUE")
                    .add("seeAlso", see)
                    .build(),
            );
        }
    }

    /// Each overlay that is used, once.
    fn overlay_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let everywhere = self.config.databases.iter().flat_map(|d| &d.overlays);
        for overlay in everywhere.chain(&self.config.frontend.overlays) {
            if !names.contains(&overlay.name.as_str()) {
                names.push(&overlay.name);
            }
        }
        names
    }

    fn traffic(&self, out: &mut Vec<Entry>) {
        out.push(self.container("Statistics", "This subsystem contains statistics.", true).build());
        for (name, count) in [
            ("Bytes", self.statistics.sum(|c| &c.bytes_sent)),
            ("PDU", self.statistics.sum(|c| &c.pdus_sent)),
            ("Entries", self.statistics.sum(|c| &c.entries_sent)),
            ("Referrals", self.statistics.sum(|c| &c.references_sent)),
        ] {
            out.push(self.counter("Statistics", name, count));
        }
    }

    fn time(&self, out: &mut Vec<Entry>) {
        let started = self.statistics.started;
        let uptime = (self.now.seconds() - started.seconds()).max(0).to_string();
        out.push(self.container("Time", "This subsystem contains information about time.", true).build());
        let child = |name: &str| self.child("Time", name, "monitoredObject");
        out.push(child("Start").one("monitorTimestamp", started.generalized()).build());
        out.push(child("Current").one("monitorTimestamp", self.now.generalized()).build());
        out.push(child("Uptime").one("monitoredInfo", uptime).build());
    }

    fn counter(&self, parent: &str, name: &str, count: u64) -> Entry {
        self.child(parent, name, "monitorCounterObject").one("monitorCounter", count.to_string()).build()
    }

    fn container(&self, name: &str, about: &str, subordinates: bool) -> Builder<'_> {
        let dn = format!("cn={name},{DN}");
        self.object(&dn, name, "monitorContainer", subordinates).one("description", about)
    }

    fn child(&self, parent: &str, name: &str, class: &str) -> Builder<'_> {
        self.object(&format!("cn={name},cn={parent},{DN}"), name, class, false)
    }

    fn object(&self, dn: &str, name: &str, class: &str, subordinates: bool) -> Builder<'_> {
        let started = self.statistics.started.generalized();
        Builder::new(self.schema, dn)
            .classes(&[class])
            .one("cn", name)
            .one("creatorsName", self.owner)
            .one("modifiersName", self.owner)
            .one("createTimestamp", started.clone())
            .one("modifyTimestamp", started)
            .computed("entryDN", dn)
            .computed("subschemaSubentry", self.subschema_dn)
            .computed("hasSubordinates", truth(subordinates))
    }
}

/// The names of the levels that are on, as OpenLDAP spells them.
fn level_names(levels: u32) -> impl Iterator<Item = &'static str> {
    LogLevel::NAMES
        .iter()
        .filter(move |(_, bits)| match *bits {
            LogLevel::ANY => levels == LogLevel::ANY,
            bits => levels != LogLevel::ANY && levels & bits == bits,
        })
        .map(|(name, _)| *name)
}

/// Controls that the databases of a kind take beside those that are everywhere. The engine serves all databases that keep entries; slapd's
/// `database ldif` takes and lists fewer than its `database mdb`.
fn controls(kind: &DatabaseKind) -> &'static [&'static str] {
    const OF_ENTRIES: [&str; 9] = [
        oid::ASSERTION,
        oid::MANAGE_DSA_IT,
        oid::NO_OP,
        oid::PAGED_RESULTS,
        oid::PRE_READ,
        oid::POST_READ,
        oid::SUBENTRIES,
        oid::PERMISSIVE_MODIFY,
        oid::TRANSACTION_SPECIFICATION,
    ];
    match kind.keeps_entries() {
        true => &OF_ENTRIES,
        false => &[oid::MANAGE_DSA_IT],
    }
}

/// The entry with what this very search has sent so far, where it counts that: OpenLDAP's counters are those of the
/// moment in which an entry is sent.
pub(crate) fn counted(entry: &Entry, entries: u64, bytes: u64) -> Option<Entry> {
    let name = entry.dn.strip_suffix(",cn=Statistics,cn=Monitor")?;
    let more = match name {
        "cn=Bytes" => bytes,
        "cn=PDU" | "cn=Entries" => entries,
        _ => return None,
    };
    let mut entry = entry.clone();
    let counter = entry.attributes.iter_mut().flat_map(|attribute| &mut attribute.values);
    let value =
        counter.into_iter().find(|value| value.iter().all(u8::is_ascii_digit) && !value.is_empty())?;
    let count: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    *value = count.wrapping_add(more).to_string().into_bytes();
    Some(entry)
}

fn truth(value: bool) -> &'static str {
    if value { "TRUE" } else { "FALSE" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_that_keep_entries_list_the_same_controls() {
        let folder = tempfile::tempdir().unwrap();
        let (file, data) = (folder.path().join("slapd.conf"), folder.path().display());
        for (kind, lines, keeps_entries) in [
            ("mdb", format!("directory {data}"), true),
            ("ldif", format!("directory {data}"), true),
            #[cfg(feature = "kv")]
            ("kv", "engine postgresql://larix:x@127.0.0.1/directory\nnode ldap://a.example".to_owned(), true),
            ("ldap", "uri ldap://127.0.0.1".to_owned(), false),
            ("null", String::new(), false),
        ] {
            std::fs::write(&file, format!("database {kind}\nsuffix cn=a\n{lines}\n")).unwrap();
            let config = Config::from_slapd_conf(&file).unwrap();
            let database = config.databases.iter().find(|database| database.kind.name() == kind).unwrap();
            let listed = controls(&database.kind);
            assert!(listed.contains(&oid::MANAGE_DSA_IT), "{kind}");
            for control in [oid::ASSERTION, oid::PAGED_RESULTS, oid::TRANSACTION_SPECIFICATION] {
                assert_eq!(listed.contains(&control), keeps_entries, "{kind}: {control}");
            }
        }
    }
}
