//! `cn=Nodes`: this server's part in databases in shared engines.

use larix_engine::entry::Entry;

use super::Monitor;

impl Monitor<'_> {
    /// This server as a node of databases in shared engines.
    pub(super) fn cluster_nodes(&self, out: &mut Vec<Entry>) {
        if self.nodes.is_empty() {
            return;
        }
        out.push(self.own_container("Nodes", "Databases in engines that several servers share.").build());
        for (n, figures) in self.nodes.iter().enumerate() {
            let store = &figures.store;
            let info = [
                format!("role={}", figures.role.name()),
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
            ];
            let built = self.own_child("Nodes", &format!("Node {n}"));
            out.push(built.one("namingContexts", figures.suffix.clone()).add("monitoredInfo", info).build());
        }
    }
}
