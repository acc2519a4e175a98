//! This server's part in the databases in shared engines (`database kv`).

use std::sync::Arc;

use larix_configuration::{Config, Database, KvSettings};

use super::OpenError;
use super::open::{DatabaseBuilder, alike_for_all, overlays_alike};
use crate::cluster;
use crate::services::Services;

impl DatabaseBuilder<'_> {
    /// Takes part in the database, if it is one in a shared engine.
    ///
    /// # Errors
    /// The engine cannot be reached, refuses, or holds something else.
    pub(super) fn join(&mut self, database: &Database, services: &Services) -> Result<(), OpenError> {
        let Some(settings) = database.kind.settings::<KvSettings>() else { return Ok(()) };
        let suffix = database.suffixes.first().map(|suffix| suffix.normal.as_str().to_owned());
        let parameters = cluster::NodeParameters {
            suffix: suffix.unwrap_or_default(),
            settings,
            schema: self.config.schema.clone(),
            database: self.config.engine_settings(database)?,
            environment: self.environment(database),
            shared: cluster::NodeConfiguration {
                lines: self.config.shared_lines(database),
                is_shared: settings.shares_configuration,
            },
            configuration: Arc::clone(&services.configuration),
            sync_peers: Arc::clone(&services.sync_peers),
            clock: Arc::clone(self.clock),
            log: self.log.clone(),
            // A change of the configuration is refused instead: who makes it sees that.
            may_be_away: self.earlier.is_none(),
        };
        let alike = self.earlier.is_some_and(|earlier| is_alike(&earlier.config, self.config, database));
        self.joining
            .join(&services.nodes, parameters, alike)
            .map_err(|why| OpenError::Engine { origin: database.origin.clone(), why })
    }
}

/// Whether what is configured of the database is as it was before.
fn is_alike(earlier: &Config, config: &Config, database: &Database) -> bool {
    let is_it = |other: &&Database| other.kind.is_in_shared_engine() && other.suffixes == database.suffixes;
    alike_for_all(earlier, config)
        && earlier.databases.iter().find(is_it).is_some_and(|other| {
            other.settings == database.settings && overlays_alike(&other.overlays, &database.overlays)
        })
}
