//! Which databases there are, open, and which of them a name belongs to: the stored ones in the engine's directory, and the
//! trees that are not stored. [`operations`](crate::operations) carries out requests over them.

mod access;
mod access_logs;
mod changes;
mod figures;
mod glued;
mod index_log;
#[cfg(feature = "kv")]
mod joining;
mod memory;
mod mounting;
mod open;
mod requests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::connection::RemoteLookups;
use larix_configuration::{Config, ConfigError, Origin as ConfigOrigin};
use larix_engine::access::AccessPolicy;
use larix_engine::plan::{Explain, Plan};
use larix_engine::search::Filter;
use larix_engine::time::Monotonic;
use larix_engine::writer::WriterStartError;
use larix_engine::{Directory, ServedDatabase};
use larix_schema::{NormalDn, Schema};
use larix_store::lmdb::LmdbStore;
use larix_store::{OpenError as StoreError, Store};

pub(crate) use access::{About, AccessQuestion};
pub(crate) use open::PreparedDatabases;

use crate::backends::{StoredBackend, figures, refusal, suffix_of};
use crate::cluster::Clusters;
use crate::ldif_tree::LdifTreeError;
use crate::log::Log;
use crate::restrictions::Rules;
use crate::services::ConfigurationInForce;
use larix_backend::{DatabaseFigures, Router, Routing};

/// A database that cannot be opened, and why.
#[derive(Debug)]
pub enum OpenError {
    /// A kind of database that is not served.
    Kind {
        origin: ConfigOrigin,
        kind: String,
    },
    /// An engine that other servers share.
    Engine {
        origin: ConfigOrigin,
        why: String,
    },
    Store {
        origin: ConfigOrigin,
        suffix: String,
        source: StoreError,
    },
    Database {
        directory: PathBuf,
        source: larix_engine::database::DatabaseOpenError,
    },
    Ldif(LdifTreeError),
    /// What the configuration asks and the engine cannot give.
    Config(ConfigError),
    Writer {
        directory: PathBuf,
        source: WriterStartError,
    },
    Schema(larix_engine::write::known::MissingElement),
    /// A `rootDSE` file.
    RootDse {
        path: PathBuf,
        message: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { origin, kind } => {
                write!(f, "{origin}: a database of the type \"{kind}\" is not available in this version")
            }
            Self::Engine { origin, why } => write!(f, "{origin}: {why}"),
            Self::Store { origin, suffix, source } => write!(f, "{origin}: database \"{suffix}\": {source}"),
            Self::Database { directory, source } => {
                write!(f, "database in {}: {source}", directory.display())
            }
            Self::Ldif(source) => source.fmt(f),
            Self::Config(source) => source.fmt(f),
            Self::Writer { directory, source } => write!(f, "database in {}: {source}", directory.display()),
            Self::Schema(source) => source.fmt(f),
            Self::RootDse { path, message } => write!(f, "rootDSE file {}: {message}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<ConfigError> for OpenError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// One `database` section: what is needed to choose it for a request.
#[derive(Debug)]
struct Section {
    root_dn: Option<NormalDn>,
    rules: Rules,
    is_config: bool,
    policy: Arc<AccessPolicy>,
    /// A target says who somebody is that acts for another (`proxy-whoami`).
    asks_target_who: bool,
}

/// All databases of the server.
#[derive(Debug)]
pub(crate) struct Databases {
    /// What they were made from.
    config: Arc<Config>,
    router: Router,
    directory: Arc<Directory<LmdbStore>>,
    /// In the order of the router's mounts.
    sections: Vec<Section>,
    frontend_rules: Rules,
    /// Whether every section is under the frontend's rules.
    same_rules: bool,
    /// Whether a rule anywhere asks about the kind of request or its controls.
    asks_about_request: bool,
    /// Whether a rule anywhere asks for the client's host name.
    asks_about_domain: bool,
    subschema_text: String,
    /// Where the stored databases are, in their order.
    directories: Vec<PathBuf>,
    /// The databases in shared engines.
    clusters: Clusters,
    /// Identities may be in databases of other machines.
    looks_up: RemoteLookups,
    orders: open::Orders,
    glued: glued::GluedDatabases,
}

impl Databases {
    /// The configuration that they were made from.
    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(crate) fn schema(&self) -> &Arc<Schema> {
        self.directory.schema()
    }

    /// The stored database in this directory of files.
    pub(crate) fn served_in(&self, directory: &std::path::Path) -> Option<&Arc<ServedDatabase<LmdbStore>>> {
        let at = self.directories.iter().position(|open| open == directory)?;
        self.directory.databases().get(at)
    }

    /// This server's part in a database that is in a shared engine.
    #[cfg(feature = "kv")]
    pub(crate) fn node_of(
        &self,
        database: &larix_configuration::Database,
    ) -> Option<Arc<crate::cluster::Node>> {
        let suffix = database.suffixes.first().map(|suffix| suffix.normal.as_str());
        self.clusters.of_suffix(suffix.unwrap_or_default()).map(|cluster| Arc::clone(&cluster.node))
    }

    /// This server's parts in databases that are in shared engines.
    #[cfg(feature = "kv")]
    pub(crate) fn nodes(&self) -> Vec<Arc<crate::cluster::Node>> {
        self.clusters.all().map(|cluster| Arc::clone(&cluster.node)).collect()
    }

    /// The [instance](larix_engine::Database::instance) of the database that has entries of this name; none where nothing is stored.
    pub(crate) fn instance_at(&self, dn: &NormalDn) -> Option<u64> {
        #[cfg(feature = "kv")]
        if let Some(instance) = self.router.backend(dn).and_then(crate::backends::instance_of_shared) {
            return instance;
        }
        self.directory.select(dn).map(|served| served.database().instance())
    }

    pub(crate) fn directory(&self) -> &Directory<LmdbStore> {
        &self.directory
    }

    /// Whether access rules ask for more of a request than whom it acts as.
    pub(crate) fn ask_about_request(&self) -> bool {
        self.asks_about_request
    }

    /// Whether access rules ask for clients' host names.
    pub(crate) fn ask_about_domain(&self) -> bool {
        self.asks_about_domain
    }

    /// The rules that a request for this DN is under.
    pub(crate) fn rules_for(&self, dn: &str) -> &Rules {
        // With one set of rules for all, which is the rule, the DN need not be understood.
        if dn.is_empty() || self.same_rules {
            return &self.frontend_rules;
        }
        let section = self.schema().parse_dn(dn).ok().and_then(|dn| self.section(&dn));
        section.map_or(&self.frontend_rules, |section| &section.rules)
    }

    /// Whether this server answers for a name: a database has it, or it is the root DSE or the subschema subentry.
    pub(crate) fn answers_for(&self, dn: &str) -> bool {
        self.schema().parse_dn(dn).is_ok_and(|dn| {
            dn.is_root() || self.section(&dn).is_some() || self.directory.frontend().subschema == dn
        })
    }

    /// Whether a name is below the suffix of a database.
    pub(crate) fn has_database(&self, dn: &str) -> bool {
        self.schema().parse_dn(dn).is_ok_and(|dn| self.section(&dn).is_some())
    }

    /// Whether `who` is the root DN of the database that holds `dn`.
    pub(crate) fn is_root_over(&self, who: &NormalDn, dn: &NormalDn) -> bool {
        self.section(dn).is_some_and(|section| section.root_dn.as_ref() == Some(who))
    }

    /// Whether a target says who somebody is that has bound as `dn` and acts for another.
    pub(crate) fn ask_target_who(&self, dn: &NormalDn) -> bool {
        self.section(dn).is_some_and(|section| section.asks_target_who)
    }

    /// The root DN of the database that holds `dn`.
    pub(crate) fn root_over(&self, dn: &NormalDn) -> Option<&NormalDn> {
        self.section(dn)?.root_dn.as_ref()
    }

    /// A secret of this server that outlives it: the first database's.
    pub(crate) fn secret(&self) -> Option<[u8; 32]> {
        self.directory.databases().first().map(|served| *served.database().cookie_secret())
    }

    /// What the planner makes of a filter now, in the database that holds this name.
    pub(crate) fn explain(&self, base: &str, filter: larix_proto::Filter<'_>) -> Option<Explain> {
        let base = self.schema().parse_dn(base).ok()?;
        let database = self.stored(&base)?.database();
        let snapshot = database.store().snapshot().ok()?;
        let view = database.view(&snapshot).ok()?;
        let filter = Filter::new(&view.schema, &view.catalog, view.schema.bind_filter(filter));
        let plan = Plan::of(view.snapshot, &view.catalog, &filter).ok()?;
        Some(plan.explain(&view.catalog))
    }

    /// The stored database that holds this name.
    pub(crate) fn stored(&self, dn: &NormalDn) -> Option<&Arc<ServedDatabase<LmdbStore>>> {
        self.router.backend(dn).and_then(StoredBackend::of).map(|stored| &stored.served)
    }

    /// Lets the writers finish what waits. To be called when no more changes come.
    pub(crate) fn close(&self) {
        for served in self.directory.databases() {
            // A store whose last sync failed has already reported that to the writer.
            let _ = served.database().store().sync();
        }
        self.clusters.close();
    }

    /// What the databases that store anything say of themselves, in the configuration's order.
    pub(crate) fn stored_figures(&self) -> Vec<DatabaseFigures> {
        self.directory.databases().iter().filter_map(|served| figures(served)).collect()
    }

    /// Frees the places of readers whose process has been killed, as a `larix cat` may have been: pages that they saw can be used
    /// again.
    pub(crate) fn clear_stale_readers(&self, log: &Log) {
        for served in self.directory.databases() {
            match served.database().store().clear_stale_readers() {
                Ok(0) => {}
                Ok(count) => log.notice(format_args!(
                    "{:?}: {count} readers of processes that were killed no longer keep pages",
                    suffix_of(served)
                )),
                Err(error) => log.warning(format_args!("{:?}: {error}", suffix_of(served))),
            }
        }
    }

    /// Gives back the memory of sorted lists that no client has asked for in a while.
    pub(crate) fn drop_old_lists(&self, now: Monotonic) {
        self.directory.databases().iter().for_each(|served| served.database().drop_old_lists(now));
        #[cfg(feature = "kv")]
        self.nodes()
            .iter()
            .filter_map(|node| node.served())
            .for_each(|served| served.database().drop_old_lists(now));
    }

    /// The suffixes of databases that take no changes until the server is started again, each with the reason.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let stored = self.directory.databases().iter();
        stored
            .filter_map(|served| refusal(served).map(|why| format!("{:?}: {why}", suffix_of(served))))
            .collect()
    }

    /// The suffixes of databases for whose changes there is no room.
    pub(crate) fn full(&self) -> Vec<String> {
        let full = self.directory.databases().iter().filter(|served| served.database().store().is_full());
        full.map(|served| suffix_of(served)).chain(self.clusters.without_room()).collect()
    }

    /// The suffixes and directories of databases for whose changes there was no room since this was last asked, or is none; with the size
    /// of the map if that is what came to its end.
    pub(crate) fn without_room(&self) -> Vec<(String, PathBuf, Option<u64>)> {
        let stores = self.directory.databases().iter().map(|served| (served, served.database().store()));
        let full = stores.filter(|(_, store)| store.was_full());
        full.map(|(served, store)| (suffix_of(served), store.path().to_owned(), store.full_map())).collect()
    }

    /// The access rules of cn=config.
    pub(crate) fn configuration_policy(&self) -> Option<Arc<AccessPolicy>> {
        let section = self.sections.iter().find(|section| section.is_config)?;
        Some(section.policy.clone())
    }

    /// cn=config as it is in this generation.
    pub(crate) fn configuration_in_force(&self) -> Option<ConfigurationInForce> {
        Some(ConfigurationInForce {
            config: Arc::clone(&self.config),
            policy: self.configuration_policy()?,
            subschema_dn: self.subschema_text.clone(),
        })
    }

    pub(crate) fn router(&self) -> &Router {
        &self.router
    }

    #[cfg(test)]
    pub(crate) fn router_mut(&mut self) -> &mut Router {
        &mut self.router
    }

    /// The section of the database that holds the DN.
    fn section(&self, dn: &NormalDn) -> Option<&Section> {
        self.router.select(dn).and_then(|number| self.sections.get(number))
    }
}

impl Databases {
    /// The suffix of the database with this number, if it is open.
    pub(crate) fn suffix_of_instance(&self, instance: u64) -> Option<String> {
        let mut all = self.directory.databases().iter();
        all.find(|served| served.database().instance() == instance).map(|served| suffix_of(served))
    }
}
