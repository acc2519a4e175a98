//! The trees that nobody stores: root DSE, subschema subentry, cn=Monitor, cn=config.

use std::collections::HashSet;
use std::sync::Arc;

use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::entry::Entry;
use larix_schema::{BoundFilter, NormalDn, Schema};

use crate::config::{self, Config};
use crate::databases::{Databases, SectionKind};
use crate::memory_tree::{Counted, MemoryTree};
use crate::sasl_mechanisms::{self, MechanismContext};
use crate::server::Server;
use crate::virtual_entries::monitor::{self, Monitor};
use crate::virtual_entries::root_dse::RootDse;
use crate::virtual_entries::{Builder, subschema};

impl Databases {
    /// The tree that the DN is in, if it is one of these. The root DSE and the subschema subentry are there for those
    /// who ask for the `entry` itself: under another scope the empty DN is the base of all naming contexts.
    pub(crate) fn tree<'a>(
        &'a self,
        server: &Server,
        subject: &'a Arc<Subject>,
        dn: &NormalDn,
        entry: bool,
    ) -> Option<MemoryTree<'a>> {
        let tree =
            |entries, policy| MemoryTree { schema: self.schema(), policy, subject, entries, counted: None };
        if dn.is_root() && entry {
            return Some(tree(vec![self.root_dse(server, subject)], &*self.frontend_policy));
        }
        if entry && *dn == self.directory().frontend().subschema {
            let shown: &[&str] = if self.config().has_memberships() { &["memberOf"] } else { &[] };
            let subentry =
                subschema::entry(self.schema(), self.subschema_dn(), server.statistics.started, shown);
            return Some(tree(vec![subentry], &*self.frontend_policy));
        }
        let section = self.section(dn)?;
        let entries = match section.kind {
            SectionKind::Monitor => self.monitor(server),
            SectionKind::Config => config_entries(self.config(), self.schema(), self.subschema_dn()),
            SectionKind::Null { .. } => Vec::new(),
            SectionKind::Stored => return None,
        };
        let counted = (section.kind == SectionKind::Monitor).then_some(monitor::counted as Counted);
        Some(MemoryTree { counted, ..tree(entries, &*section.policy) })
    }

    fn root_dse(&self, server: &Server, subject: &Subject) -> Entry {
        let config = self.config();
        let sasl = &config.global.sasl;
        let has = |kind| self.sections.iter().any(|section| section.kind == kind);
        RootDse {
            naming_contexts: self.directory().naming_contexts(),
            monitor_context: has(SectionKind::Monitor).then(|| monitor::DN.to_owned()),
            config_context: has(SectionKind::Config).then(|| "cn=config".to_owned()),
            subschema_dn: self.subschema_dn().to_owned(),
            start_tls: server.tls.is_available(),
            sasl_mechanisms: sasl_mechanisms::offered(sasl, MechanismContext::of_subject(subject, sasl)),
            referrals: config.global.referrals.clone(),
            provides_content: self.provide(),
            password_policy: self.directory().databases().iter().any(|served| {
                let settings = served.database().settings();
                settings.plugins.iter().any(|plugin| plugin.name() == "ppolicy")
            }),
            extra: self.root_dse_extra.clone(),
        }
        .entry(self.schema())
    }

    fn monitor(&self, server: &Server) -> Vec<Entry> {
        let config = self.config();
        let (now, monotonic) = server.both_clocks();
        Monitor {
            schema: self.schema(),
            subschema_dn: self.subschema_dn(),
            config,
            statistics: &server.statistics,
            admission: &server.admission,
            tls: &server.tls,
            now,
            monotonic,
            descriptors: server.descriptors,
            log: &server.log,
            backups: server.backups.status(),
            passwords_waiting: server.passwords.waiting(),
            long_searches_waiting: server.long_searches.waiting(),
            stored: self.monitored(),
            consumers: server.consumers.statuses(),
            peers: server.sync_peers.figures(self.directory(), now),
            owner: &self.monitor_owner(),
        }
        .entries()
    }
}

impl Config {
    /// The DNs of the entries of cn=config that a filter is true of, whatever the access rules say: what tools write.
    pub fn matching(&self, filter: &BoundFilter) -> HashSet<String> {
        let policy = AccessPolicy::open(Arc::clone(&self.schema), None);
        let tree = MemoryTree {
            schema: &self.schema,
            policy: &policy,
            subject: &Subject::default(),
            entries: config_entries(self, &self.schema, "cn=Subschema"),
            counted: None,
        };
        tree.matching_unguarded(filter).map(str::to_owned).collect()
    }
}

fn config_entries(config: &Config, schema: &Schema, subschema_dn: &str) -> Vec<Entry> {
    let convert = |entry: config::ConfigEntry| {
        let mut built = Builder::new(schema, entry.dn.clone());
        for attribute in entry.attributes {
            built = built.add(&attribute.description, attribute.values.to_vec());
        }
        if let Some(class) = built.first("objectClass")
            && built.first("structuralObjectClass").is_none()
        {
            built = built.add("structuralObjectClass", [class]);
        }
        built.one("entryDN", entry.dn).one("subschemaSubentry", subschema_dn).build()
    };
    config::entries(config).into_iter().map(convert).collect()
}
