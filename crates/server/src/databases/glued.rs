//! How far the databases have come that are glued below a provider: their entries belong to its content, and its contextCSN shows it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use larix_configuration::{Config, Database};
use larix_engine::csn::Csn;
use larix_engine::database::GluedContexts;
use larix_engine::{Fault, ServedDatabase, log};
use larix_store::Store as _;
use larix_store::lmdb::LmdbStore;

use super::mounting::OpenedDatabase;
use super::open::key_of;

/// What is glued below one database, across generations: it stays with a database that is left as it is.
#[derive(Debug, Default)]
struct Below(Mutex<Vec<Weak<ServedDatabase<LmdbStore>>>>);

impl GluedContexts for Below {
    fn context_csns(&self) -> Result<Vec<Csn>, Fault> {
        // The list is replaced as a whole.
        let below = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut csns = Vec::new();
        for served in below.iter().filter_map(Weak::upgrade) {
            csns.extend(log::context_csns(&served.database().store().snapshot()?)?);
        }
        Ok(csns)
    }
}

/// By the suffixes of the databases above.
#[derive(Clone, Debug, Default)]
pub(super) struct GluedDatabases(HashMap<String, Arc<Below>>);

impl GluedDatabases {
    /// Of what is glued below this one.
    pub(super) fn below(&mut self, database: &Database) -> Arc<dyn GluedContexts> {
        let below = self.0.entry(key_of(database)).or_default();
        Arc::<Below>::clone(below)
    }

    /// A configuration comes into force.
    pub(super) fn settle(&self, mut found: GluedBelow) {
        for (key, below) in &self.0 {
            *below.0.lock().unwrap_or_else(PoisonError::into_inner) = found.0.remove(key).unwrap_or_default();
        }
    }
}

/// What is glued below each database of a configuration.
#[derive(Debug)]
pub(super) struct GluedBelow(HashMap<String, Vec<Weak<ServedDatabase<LmdbStore>>>>);

impl GluedBelow {
    /// Of the databases that are stored here.
    pub(super) fn among(config: &Config, opened: &[OpenedDatabase<'_>]) -> Self {
        let mut found: HashMap<String, Vec<Weak<ServedDatabase<LmdbStore>>>> = HashMap::new();
        for (database, served, _) in opened.iter().filter(|(database, ..)| !database.hidden) {
            if let Some((above, served)) = config.superior(database).zip(served.as_ref()) {
                found.entry(key_of(above)).or_default().push(Arc::downgrade(served));
            }
        }
        Self(found)
    }
}
