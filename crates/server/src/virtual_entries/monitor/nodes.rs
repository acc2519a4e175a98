//! `cn=Nodes`: this server's part in databases in shared engines.

use larix_configuration::Database;
use larix_engine::entry::Entry;

use super::{Monitor, truth};
use crate::cluster::NodeFigures;

impl Monitor<'_> {
    /// Whether a database is read-only that is in a shared engine; none of another kind.
    pub(super) fn node_is_read_only(&self, database: &Database) -> Option<bool> {
        let suffix = database.suffixes.first()?.normal.as_str();
        let is_it = |figures: &&NodeFigures| database.kind.is_in_shared_engine() && figures.suffix == suffix;
        self.nodes.iter().find(is_it).map(|figures| figures.read_only)
    }

    /// This server as a node of databases in shared engines.
    pub(super) fn cluster_nodes(&self, out: &mut Vec<Entry>) {
        if self.nodes.is_empty() {
            return;
        }
        out.push(self.own_container("Nodes", "Databases in engines that several servers share.").build());
        for (n, figures) in self.nodes.iter().enumerate() {
            let (store, configuration) = (&figures.store, &figures.configuration);
            let mut info = vec![
                format!("role={}", figures.role.name()),
                format!("readOnly={}", truth(figures.read_only)),
                format!("node={}", figures.node),
                format!("leader={}", figures.leader.as_deref().unwrap_or("none")),
                format!("epoch={}", store.epoch),
                format!("commit={}", store.version),
                format!("roundTrips={}", store.trips),
                format!("cacheHits={}", store.hits),
                format!("cacheMisses={}", store.misses),
                format!("cacheBytes={}", store.cache_bytes),
                format!("conflicts={}", store.conflicts),
                format!("operationsWaiting={}", figures.waiting),
                format!("changesWaiting={}", figures.changes_waiting),
                format!("configuration={}", if configuration.is_shared { "shared" } else { "own" }),
                format!("configurationGeneration={}", configuration.in_force),
                format!("configurationNewest={}", configuration.newest),
            ];
            info.extend(configuration.refused.as_ref().map(|why| format!("configurationRefused={why}")));
            let built = self.own_child("Nodes", &format!("Node {n}"));
            out.push(built.one("namingContexts", figures.suffix.clone()).add("monitoredInfo", info).build());
        }
    }
}
