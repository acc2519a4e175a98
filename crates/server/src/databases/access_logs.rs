//! Which databases have access logs, and where.

use std::sync::Arc;

use larix_engine::ServedDatabase;
use larix_store::lmdb::LmdbStore;

use super::Databases;
use crate::access_log::Recorded;

impl Databases {
    /// The access logs that the configuration has, but for those in engines that several servers share.
    pub(crate) fn recorded(&self) -> Vec<Recorded<Arc<ServedDatabase<LmdbStore>>>> {
        let mut recorded = Vec::new();
        for database in self.config.databases.iter().filter(|database| !database.disabled) {
            // What it says was understood when the configuration was read.
            let Ok(Some(settings)) = self.config.access_log(database) else { continue };
            let source = match database.suffixes.first() {
                _ if database.kind.is_config() => None,
                Some(suffix) => match self.stored(&suffix.normal) {
                    Some(served) => Some(Arc::clone(served)),
                    None => continue,
                },
                None => continue,
            };
            let Some(log) = self.stored(&settings.database.normal) else { continue };
            recorded.push((settings, source, Arc::clone(log)));
        }
        recorded
    }

    /// The access logs in engines that several servers share.
    #[cfg(feature = "kv")]
    pub(crate) fn recorded_in_engines(&self) -> Vec<Recorded<Arc<crate::cluster::Node>>> {
        let mut recorded = Vec::new();
        for database in self.config.databases.iter().filter(|database| !database.disabled) {
            let Some(node) = self.node_of(database) else { continue };
            let Ok(Some(settings)) = self.config.access_log(database) else { continue };
            let Some(log) = self.clusters.of_suffix(settings.database.normal.as_str()) else { continue };
            recorded.push((settings, Some(node), Arc::clone(&log.node)));
        }
        recorded
    }
}
