//! cn=Monitor: the server's counters and state as entries, in OpenLDAP's tree.

use std::sync::atomic::Ordering;

use larix_engine::entry::Entry;
use larix_engine::time::{Monotonic, Timestamp};
use larix_schema::Schema;

use super::Builder;
use crate::admission::Admission;
use crate::config::values::LogLevel;
use crate::config::{Config, Database, DatabaseKind};
use crate::statistics::{ConnectionRecord, OperationKind, Statistics};
use crate::tls::TlsContext;

/// The tree's suffix.
pub const DN: &str = "cn=Monitor";

/// What the tree is made from.
#[derive(Debug)]
pub struct Monitor<'a> {
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
    /// For each database in the configuration's order: what its store says, where it has one.
    pub stores: Vec<Option<StoreFigures>>,
}

/// What is known of a database's store.
#[derive(Copy, Clone, Debug, Default)]
pub struct StoreFigures {
    pub pages_max: u64,
    pub pages_used: u64,
    pub pages_free: u64,
    pub readers_max: u64,
    pub readers_used: u64,
    pub entries: u64,
}

impl Monitor<'_> {
    /// All entries, superiors first.
    pub fn entries(&self) -> Vec<Entry> {
        let mut out = Vec::with_capacity(64 + self.statistics.current_connections());
        out.push(self.server());
        self.backends(&mut out);
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
        self.tls(&mut out);
        self.waiters(&mut out);
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
        let names = kinds.iter().map(|name| (*name).to_owned());
        let about = "This subsystem contains information about available backends.";
        out.push(self.container("Backends", about, true).add("monitoredInfo", names).build());
        for (n, kind) in kinds.iter().enumerate() {
            let databases = self.config.databases.iter().enumerate().filter(|(_, d)| d.kind.name() == *kind);
            let see = databases.map(|(i, _)| format!("cn=Database {i},cn=Databases,{DN}"));
            out.push(
                self.child("Backends", &format!("Backend {n}"), "monitoredObject")
                    .one("monitoredInfo", *kind)
                    .one("monitorRuntimeConfig", "FALSE")
                    .add("seeAlso", see)
                    .build(),
            );
        }
    }

    fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for database in &self.config.databases {
            if !kinds.contains(&database.kind.name()) {
                kinds.push(database.kind.name());
            }
        }
        kinds
    }

    fn connections(&self, out: &mut Vec<Entry>) {
        let about = "This subsystem contains information about connections.";
        out.push(self.container("Connections", about, true).build());
        let open = self.statistics.connections();
        out.extend(open.iter().map(|record| self.connection(record)));
        for (name, count) in [
            ("Max File Descriptors", self.descriptors),
            ("Total", self.statistics.total_connections()),
            ("Current", open.len() as u64),
        ] {
            out.push(self.counter("Connections", name, count));
        }
        let refused = self.admission.refused();
        for (name, count) in [
            ("Max", self.admission.connections_max() as u64),
            ("Refused", refused.connections.load(Ordering::Relaxed)),
            ("Refused Operations", refused.operations.load(Ordering::Relaxed)),
            ("Refused Binds", refused.binds.load(Ordering::Relaxed)),
        ] {
            out.push(self.counter("Connections", name, count));
        }
    }

    fn connection(&self, record: &ConnectionRecord) -> Entry {
        let received = record.operations_received.load(Ordering::Relaxed);
        let completed = record.operations_completed.load(Ordering::Relaxed);
        let number = |n: u64| n.to_string();
        let idle = self.monotonic.0.saturating_sub(record.last_activity.load(Ordering::Relaxed)) / 1000;
        let secured = record.secured.get().cloned();
        let activity = Timestamp(self.now.0.saturating_sub_unsigned(idle));
        self.child("Connections", &format!("Connection {}", record.number), "monitorConnection")
            .one("monitorConnectionNumber", number(record.number))
            .one("monitorConnectionProtocol", record.protocol.load(Ordering::Relaxed).to_string())
            .one("monitorConnectionOpsReceived", number(received))
            .one("monitorConnectionOpsExecuting", number(received.saturating_sub(completed)))
            .one("monitorConnectionOpsPending", "0")
            .one("monitorConnectionOpsCompleted", number(completed))
            .one("monitorConnectionGet", number(received))
            .one("monitorConnectionRead", number(record.reads.load(Ordering::Relaxed)))
            .one("monitorConnectionWrite", number(record.writes.load(Ordering::Relaxed)))
            .one("monitorConnectionMask", if secured.is_some() { "rxt" } else { "rx" })
            .add("monitoredInfo", secured)
            .add("monitorConnectionAuthzDN", Some(record.identity()).filter(|dn| !dn.is_empty()))
            .one("monitorConnectionListener", record.listener.url.clone())
            .one("monitorConnectionPeerDomain", "unknown")
            .one("monitorConnectionPeerAddress", record.peer.clone())
            .one("monitorConnectionLocalAddress", record.listener.name.clone())
            .one("monitorConnectionStartTime", record.started.generalized())
            .one("monitorConnectionActivityTime", activity.generalized())
            .build()
    }

    fn tls(&self, out: &mut Vec<Entry>) {
        out.push(self.container("TLS", "This subsystem contains information about TLS.", true).build());
        for (name, count) in [
            ("Established", &self.tls.established),
            ("Resumed", &self.tls.resumed),
            ("Failed", &self.tls.failed),
        ] {
            out.push(self.counter("TLS", name, count.load(Ordering::Relaxed)));
        }
    }

    fn databases(&self, out: &mut Vec<Entry>) {
        let shown = self.config.databases.iter().filter(|d| !matches!(d.kind, DatabaseKind::Monitor));
        let contexts = shown.flat_map(suffixes).collect::<Vec<_>>();
        let about = "This subsystem contains information about configured databases.";
        out.push(
            self.container("Databases", about, true)
                .one("readOnly", "FALSE")
                // The frontend's, which has all names, comes first.
                .add("namingContexts", [String::new()].into_iter().chain(contexts))
                .one("monitorContext", DN)
                .build(),
        );
        out.push(
            self.child("Databases", "Frontend", "monitoredObject")
                .one("monitoredInfo", "frontend")
                .one("monitorIsShadow", "FALSE")
                .one("namingContexts", "")
                .one("readOnly", truth(self.config.frontend.shared.read_only))
                .build(),
        );
        for (n, database) in self.config.databases.iter().enumerate() {
            out.push(self.database(n, database));
        }
    }

    fn database(&self, n: usize, database: &Database) -> Entry {
        let kind = database.kind.name();
        let backend = self.kinds().iter().position(|k| *k == kind).unwrap_or(0);
        let contexts =
            if matches!(database.kind, DatabaseKind::Monitor) { "monitorContext" } else { "namingContexts" };
        let names = match database.kind {
            DatabaseKind::Monitor => vec![DN.to_owned()],
            _ => suffixes(database),
        };
        let mut built = self
            .child("Databases", &format!("Database {n}"), "monitoredObject")
            .one("monitoredInfo", kind)
            .one("monitorIsShadow", truth(database.update_dn.is_some()))
            .add(contexts, names)
            .one("readOnly", truth(database.shared.read_only))
            .one("seeAlso", format!("cn=Backend {backend},cn=Backends,{DN}"))
            .add("monitorOverlay", database.overlays.iter().map(|o| o.name.clone()));
        if let DatabaseKind::Mdb(settings) = &database.kind
            && let Some(store) = self.stores.get(n).copied().flatten()
        {
            built = built
                .one("objectClass", "olmMDBDatabase")
                .one("olmMDBPagesMax", store.pages_max.to_string())
                .one("olmMDBPagesUsed", store.pages_used.to_string())
                .one("olmMDBPagesFree", store.pages_free.to_string())
                .one("olmMDBReadersMax", store.readers_max.to_string())
                .one("olmMDBReadersUsed", store.readers_used.to_string())
                .one("olmMDBEntries", store.entries.to_string())
                .one("olmDbDirectory", settings.directory.display().to_string());
        }
        built.build()
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
        let level = self.config.global.log_level;
        let on = LogLevel::NAMES.iter().filter(|(name, bits)| *name != "Any" && level.0 & bits == *bits);
        self.container("Log", "This subsystem contains information about logging.", false)
            .add("managedInfo", on.map(|(name, _)| *name))
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
        let mut names: Vec<&str> = Vec::new();
        for overlay in
            self.config.databases.iter().flat_map(|d| &d.overlays).chain(&self.config.frontend.overlays)
        {
            if !names.contains(&overlay.name.as_str()) {
                names.push(&overlay.name);
            }
        }
        let about = "This subsystem contains information about available overlays.";
        let listed = names.iter().map(|name| (*name).to_owned());
        out.push(self.container("Overlays", about, !names.is_empty()).add("monitoredInfo", listed).build());
        for (n, name) in names.iter().enumerate() {
            out.push(
                self.child("Overlays", &format!("Overlay {n}"), "monitoredObject")
                    .one("monitoredInfo", *name)
                    .one("monitorRuntimeConfig", "FALSE")
                    .build(),
            );
        }
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

    fn threads(&self, out: &mut Vec<Entry>) {
        let workers = self.statistics.workers().to_string();
        out.push(
            self.container("Threads", "This subsystem contains information about threads.", true).build(),
        );
        for (name, value, about) in [
            ("Max", workers.as_str(), "Maximum number of threads as configured"),
            ("Max Pending", "0", "Maximum number of pending threads"),
            ("Open", workers.as_str(), "Number of open threads"),
            ("Starting", "0", "Number of threads being started"),
            ("Active", "1", "Number of active threads"),
            ("Pending", "0", "Number of pending threads"),
            ("Backload", "1", "Number of active plus pending threads"),
            ("State", "running", "Thread pool state"),
        ] {
            let built = self.child("Threads", name, "monitoredObject").one("monitoredInfo", value);
            out.push(built.one("description", about).build());
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

    fn waiters(&self, out: &mut Vec<Entry>) {
        let about = "This subsystem contains information about read/write waiters.";
        out.push(self.container("Waiters", about, true).build());
        out.push(self.counter("Waiters", "Read", self.statistics.current_connections() as u64));
        out.push(self.counter("Waiters", "Write", 0));
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
            .one("creatorsName", "")
            .one("modifiersName", "")
            .one("createTimestamp", started.clone())
            .one("modifyTimestamp", started)
            .computed("hasSubordinates", truth(subordinates))
            .computed("entryDN", dn)
            .computed("subschemaSubentry", self.subschema_dn)
    }
}

fn suffixes(database: &Database) -> Vec<String> {
    if matches!(database.kind, DatabaseKind::Config) {
        return vec!["cn=config".to_owned()];
    }
    database.suffixes.iter().map(ToString::to_string).collect()
}

fn truth(value: bool) -> &'static str {
    if value { "TRUE" } else { "FALSE" }
}
