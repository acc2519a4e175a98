//! From a section of the configuration to an open database, with or without its writer.

use std::sync::Arc;

use anyhow::Context;
use larix_configuration::{Config, Storage};
use larix_engine::order::CommitOrder;
use larix_engine::tables::TABLES;
use larix_engine::write::WriterEnvironment;
use larix_engine::{Database, Directory, Frontend, ServedDatabase};
use larix_server::clock::{SystemClock, SystemRandom};
use larix_server::cluster;
use larix_server::ldif_tree::{self, FileUse};
use larix_store::Store;
use larix_store::lmdb::{LmdbOptions, LmdbStore};

/// Whether a tool only reads, which it may do beside a running server, or writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    Read,
    /// What is there: none is made, which would pass for one that has been emptied.
    Change,
    Write,
}

/// Opens the store and database of a section.
pub(crate) fn open(
    config: &Config,
    database: &larix_configuration::Database,
    access: Access,
) -> anyhow::Result<Database<LmdbStore>> {
    let settings = config.engine_settings(database).map_err(|error| anyhow::anyhow!("{error}"))?;
    let mdb = match (database.kind.storage(), database.kind.directory()) {
        (Storage::LdifFiles, Some(directory)) => {
            let file_use = match access {
                Access::Read => FileUse::Read,
                Access::Change | Access::Write => FileUse::Change,
            };
            let opened = ldif_tree::open(config, settings, directory, file_use)?;
            opened.warnings.iter().for_each(|warning| eprintln!("note: {warning}"));
            return Ok(opened.database);
        }
        _ => database
            .kind
            .mdb()
            .with_context(|| format!("a {} database stores no entries", database.kind.name()))?,
    };
    let options = match access {
        Access::Read => LmdbOptions::for_reading(),
        Access::Change | Access::Write => {
            let defaults = LmdbOptions::default();
            let file_mode = mdb.mode.unwrap_or(defaults.file_mode);
            LmdbOptions { file_mode, create: access == Access::Write, ..defaults }
        }
    };
    if !mdb.directory.try_exists().unwrap_or(true) {
        config.check_directory(database, &mdb.directory).map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    let store = LmdbStore::open(&mdb.directory, &TABLES, &options)?;
    Database::open(store, Arc::clone(&config.schema), settings, &SystemRandom)
        .map_err(|error| anyhow::anyhow!("{}: {error}", mdb.directory.display()))
}

/// A database to be read, beside servers.
pub(crate) enum Opened {
    Stored(Box<Database<LmdbStore>>),
    /// Behind the reading, [`cluster::whole`] says whether everything could be read.
    Shared(Box<Database<cluster::ToolStore>>),
}

impl Opened {
    /// # Errors
    /// It cannot be opened, or its engine cannot be asked.
    pub(crate) fn open(config: &Config, section: &larix_configuration::Database) -> anyhow::Result<Self> {
        if section.kind.is_in_shared_engine() {
            let opened = cluster::open_to_read(config, section).map_err(anyhow::Error::msg);
            return opened.map(|database| Self::Shared(Box::new(database)));
        }
        open(config, section, Access::Read).map(|database| Self::Stored(Box::new(database)))
    }
}

/// Opens the chosen databases with their writers: changes go the way of the server's own. `access` is not [`Access::Read`]; `server_id`
/// takes the place of the configuration's.
pub(crate) fn open_directory(
    config: &Config,
    databases: &[&larix_configuration::Database],
    access: Access,
    server_id: Option<u16>,
) -> anyhow::Result<Directory<LmdbStore>> {
    let order = Arc::new(CommitOrder::new(server_id.unwrap_or_else(|| configured_server_id(config))));
    let opened =
        databases.iter().map(|database| Ok((Arc::new(open(config, database, access)?), order.clone())));
    start_writers(config, opened.collect::<anyhow::Result<_>>()?)
}

/// The server id of a configuration that is one for all listeners; tools have none.
pub(crate) fn configured_server_id(config: &Config) -> u16 {
    config.global.server_ids.iter().find(|id| id.url.is_none()).map_or(0, |id| id.number)
}

/// Opened databases with their writers, and what their changes are numbered by.
pub(crate) fn start_writers<S: Store>(
    config: &Config,
    databases: Vec<(Arc<Database<S>>, Arc<CommitOrder>)>,
) -> anyhow::Result<Directory<S>> {
    let clock = Arc::new(SystemClock);
    let mut served = Vec::new();
    for (database, order) in databases {
        let environment = WriterEnvironment {
            clock: clock.clone(),
            random: Arc::new(SystemRandom),
            order,
            default_referrals: Arc::from([]),
            auxiliary_needs_rule: false,
            index_watch: None,
        };
        let started =
            ServedDatabase::start(database, environment).map_err(|error| anyhow::anyhow!("{error}"))?;
        served.push(Arc::new(started));
    }
    let schema_dn = config.frontend.schema_dn.as_ref().map(|dn| dn.normal.clone());
    let subschema = match schema_dn {
        Some(dn) => dn,
        None => config.schema.parse_dn("cn=Subschema").map_err(|error| anyhow::anyhow!("{error}"))?,
    };
    let frontend = Frontend {
        schema: Arc::clone(&config.schema),
        subschema,
        default_search_base: None,
        referrals: Vec::new(),
    };
    Directory::new(frontend, served).map_err(|error| anyhow::anyhow!("{error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_directory_is_that_of_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        let database = |suffix: &str| format!("database mdb\nsuffix {suffix}\ndirectory /nowhere/{suffix}\n");
        std::fs::write(&file, database("cn=x") + &database("cn=y")).unwrap();
        let config = Config::from_slapd_conf(&file).unwrap();
        let Err(error) = open(&config, &config.databases[2], Access::Read) else { panic!("it opens") };
        let error = error.to_string();
        assert!(error.contains("the database directory `/nowhere/cn=y` does not exist"), "{error}");
    }
}
