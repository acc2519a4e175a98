//! Which databases have access logs, and where.

use std::sync::Arc;

use super::Databases;
use crate::access_log::Recorded;

impl Databases {
    /// The access logs that the configuration has.
    pub(crate) fn recorded(&self) -> Vec<Recorded> {
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
}
