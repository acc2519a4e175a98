//! From the configuration to open databases.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larix_configuration::{Config, ConfigError, Database, LdapSettings, MdbSettings, Overlay, Storage};
use larix_engine::access::AccessPolicy;
use larix_engine::order::CommitOrder;
use larix_engine::tables::TABLES;
use larix_engine::write::{IndexWatch, WriterEnvironment};
use larix_engine::writer::Reconfiguration;
use larix_engine::{
    Database as EngineDatabase, DatabaseSettings, Directory, Fault, Frontend, ServedDatabase, log,
    other_entries,
};
use larix_schema::NormalDn;
use larix_store::Store as _;
use larix_store::lmdb::{DATA_FILE, LmdbOptions, LmdbStore};

use super::glued::{GluedBelow, GluedDatabases};
use super::index_log::IndexLog;
use super::mounting::{router, special};
use super::{Databases, OpenError, Section, memory};
use crate::backends::Common;
use crate::clock::{SystemClock, SystemRandom};
use crate::cluster::{Clusters, Joining, Turnover};
use crate::connection::RemoteLookups;
use crate::ldif_tree::{self, FileUse};
use crate::log::Log;
use crate::operation_rules::OperationRules;
use crate::restrictions::Rules;
use crate::services::Services;
use crate::virtual_entries::subschema;

impl Databases {
    /// Opens every database of the configuration and starts its writer.
    pub(crate) fn open(config: &Arc<Config>, services: &Arc<Services>) -> Result<Self, OpenError> {
        Self::prepare(config, services, None, &[]).map(|prepared| prepared.publish().0)
    }

    /// Makes the databases of a configuration ready. Those that `earlier` has open are kept open and go on as they are
    /// until they are [published](PreparedDatabases::publish). Those in directories that are `out_of_service` are not open then.
    ///
    /// # Errors
    /// What cannot be opened; what was opened is closed again.
    pub(crate) fn prepare(
        config: &Arc<Config>,
        services: &Arc<Services>,
        earlier: Option<&Self>,
        out_of_service: &[PathBuf],
    ) -> Result<PreparedDatabases, OpenError> {
        config.check_directories()?;
        let updates = config.global.allow.update_anon;
        let mut builder = DatabaseBuilder::new(config, (&services.clock, &services.log), earlier);
        let mut sections = Vec::new();
        let mut opened = Vec::new();
        for database in config.databases.iter().filter(|database| !database.disabled) {
            let policy = Arc::new(config.access_policy(Some(database))?);
            let served = match database.kind.directory() {
                Some(directory) if out_of_service.iter().any(|one| one == directory) => None,
                Some(directory) => Some(builder.stored(database, directory)?),
                None => None,
            };
            #[cfg(feature = "kv")]
            builder.join(database, services)?;
            opened.push((database, served, Arc::clone(&policy)));
            let mut section = section(config, database, policy, updates);
            section.rules = section.rules.with_operations(OperationRules::in_force(config, Some(database))?);
            sections.push(section);
        }
        let glued = std::mem::take(&mut builder.glued);
        let below = GluedBelow::among(config, &opened);
        let DatabaseBuilder {
            orders, served, directories, policies: stored, reused, joining, created, ..
        } = builder;
        let (subschema_text, frontend) = frontend(config);
        let (clusters, turnover) = joining
            .complete(&frontend, earlier.map(|earlier| &earlier.clusters))
            .map_err(OpenError::Schema)?;
        let frontend_rules = Rules::new(&config.frontend.shared, None, updates)
            .with_operations(OperationRules::in_force(config, None)?);
        let frontend_policy = Arc::new(config.access_policy(None)?);
        let directory = Arc::new(Directory::new(frontend, served).map_err(OpenError::Schema)?);
        stored.iter().for_each(|policy| directory.let_see(policy));
        clusters.see_stored(other_entries(directory.databases()));
        let of_frontend = (&frontend_policy, &frontend_rules);
        let Asking { about_request, about_domain, about_entries } =
            connect_rules((&directory, &clusters), &stored, &sections, of_frontend);
        let left = earlier.map_or_else(Vec::new, |earlier| earlier.not_in(&directory));
        let alike = left.is_empty() && earlier.is_some_and(|earlier| earlier.is_alike(&directory, config));
        let common = Arc::new(Common {
            config: Arc::clone(config),
            services: Arc::clone(services),
            #[cfg(feature = "kv")]
            clusters: clusters.clone(),
            directory: Arc::clone(&directory),
            default_referrals: config.global.referrals.clone().into(),
            subschema_dn: subschema_text.clone(),
        });
        let special = special(&common, &frontend_policy)?;
        let router = router(&common, opened, (directory.frontend().clone(), special))?;
        let databases = Self {
            router,
            config: Arc::clone(config),
            asks_about_domain: about_domain,
            asks_about_request: about_request,
            same_rules: sections.iter().all(|section: &Section| section.rules == frontend_rules),
            directory,
            sections,
            frontend_rules,
            subschema_text,
            directories,
            clusters,
            orders,
            glued,
            looks_up: remote_lookups(config, about_entries),
        };
        // What is the same in all respects is not disturbed.
        let reused = reused.into_iter().filter(|one| !(alike && one.alike)).map(|one| (one.served, one.next));
        Ok(PreparedDatabases { reused: reused.collect(), left, turnover, databases, below, created })
    }

    /// Whether there are as many databases in `next`, and the same holds for all of them.
    fn is_alike(&self, next: &Directory<LmdbStore>, config: &Config) -> bool {
        self.directory.databases().len() == next.databases().len() && alike_for_all(&self.config, config)
    }

    /// The databases that `next` does not have.
    fn not_in(&self, next: &Directory<LmdbStore>) -> Vec<Arc<ServedDatabase<LmdbStore>>> {
        let stays = |served: &&Arc<ServedDatabase<LmdbStore>>| {
            next.databases().iter().any(|n| Arc::ptr_eq(n, served))
        };
        self.directory.databases().iter().filter(|served| !stays(served)).cloned().collect()
    }
}

/// What rules ask about.
struct Asking {
    /// Some access rule: the kind of request or its controls.
    about_request: bool,
    /// Some rule: the client's host name.
    about_domain: bool,
    /// Some rule for operations: what entries have.
    about_entries: bool,
}

/// Lets rules for operations see the entries of all databases.
fn connect_rules(
    (directory, clusters): (&Directory<LmdbStore>, &Clusters),
    stored: &[Arc<AccessPolicy>],
    sections: &[Section],
    (frontend_policy, frontend_rules): (&Arc<AccessPolicy>, &Rules),
) -> Asking {
    let all_rules = sections.iter().map(|section| &section.rules).chain([frontend_rules]);
    let requesters: Vec<&AccessPolicy> =
        all_rules.filter_map(Rules::operations).flat_map(OperationRules::policies).collect();
    for policy in &requesters {
        if !clusters.let_see(policy) {
            directory.let_see(policy);
        }
    }
    let about_entries = requesters.iter().any(|policy| policy.asks_about_entries());
    let of_sections = sections.iter().map(|section| &section.policy);
    let policies = stored.iter().chain(of_sections).chain([frontend_policy]);
    let policies: Vec<&AccessPolicy> = policies.map(|policy| &**policy).collect();
    Asking {
        about_request: policies.iter().any(|policy| policy.asks_about_request()),
        about_domain: policies.into_iter().chain(requesters).any(AccessPolicy::asks_about_domain),
        about_entries,
    }
}

/// The databases of a configuration, ready. Dropping it closes those that were opened for it.
#[derive(Debug)]
pub(crate) struct PreparedDatabases {
    databases: Databases,
    /// Databases that stay open, and what becomes of them.
    reused: Vec<(Arc<ServedDatabase<LmdbStore>>, Reconfiguration)>,
    left: Vec<Arc<ServedDatabase<LmdbStore>>>,
    /// The same for databases in shared engines.
    turnover: Turnover,
    below: GluedBelow,
    /// Behind the databases: closed first, removed then.
    created: Created,
}

impl PreparedDatabases {
    /// Databases that stay open, and what this configuration says of them.
    pub(crate) fn staying(
        &self,
    ) -> impl Iterator<Item = (&Arc<ServedDatabase<LmdbStore>>, &Reconfiguration)> {
        self.reused.iter().map(|(served, next)| (served, next))
    }

    /// Has the databases that stay follow the configuration. Gives all of them, and those that are no longer among them.
    pub(crate) fn publish(self) -> (Databases, Vec<Arc<ServedDatabase<LmdbStore>>>) {
        let Self { databases, reused, left, turnover, below, mut created } = self;
        turnover.settle();
        databases.glued.settle(below);
        reused.into_iter().for_each(|(served, next)| served.reconfigure(next));
        created.0.clear();
        (databases, left)
    }
}

/// Files of databases that did not exist before; removed unless the databases are published.
#[derive(Debug, Default)]
struct Created(Vec<PathBuf>);

impl Drop for Created {
    fn drop(&mut self) {
        for file in &self.0 {
            // An empty database that stays behind does no harm.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// A database that stays open.
struct ReusedDatabase {
    served: Arc<ServedDatabase<LmdbStore>>,
    next: Reconfiguration,
    /// Nothing in its own section has changed.
    alike: bool,
}

/// Stored databases while they are made ready.
pub(super) struct DatabaseBuilder<'a> {
    pub(super) config: &'a Arc<Config>,
    pub(super) clock: &'a Arc<SystemClock>,
    pub(super) log: &'a Log,
    pub(super) earlier: Option<&'a Databases>,
    orders: Orders,
    glued: GluedDatabases,
    served: Vec<Arc<ServedDatabase<LmdbStore>>>,
    directories: Vec<PathBuf>,
    policies: Vec<Arc<AccessPolicy>>,
    reused: Vec<ReusedDatabase>,
    pub(super) joining: Joining,
    created: Created,
}

impl<'a> DatabaseBuilder<'a> {
    fn new(
        config: &'a Arc<Config>,
        (clock, log): (&'a Arc<SystemClock>, &'a Log),
        earlier: Option<&'a Databases>,
    ) -> Self {
        let known = earlier.map(|earlier| earlier.orders.of_suffix.clone()).unwrap_or_default();
        Self {
            orders: Orders::new(config, known),
            glued: earlier.map(|earlier| earlier.glued.clone()).unwrap_or_default(),
            config,
            clock,
            log,
            earlier,
            served: Vec::new(),
            directories: Vec::new(),
            policies: Vec::new(),
            reused: Vec::new(),
            joining: Joining::default(),
            created: Created::default(),
        }
    }

    /// What the writer of a database needs of its surroundings.
    pub(super) fn environment(&mut self, database: &Database) -> WriterEnvironment {
        WriterEnvironment {
            clock: self.clock.clone(),
            random: Arc::new(SystemRandom),
            order: self.orders.for_database(self.config, database),
            default_referrals: self.config.global.referrals.clone().into(),
            auxiliary_needs_rule: false,
            index_watch: Some(index_watch(database, self.log)),
        }
    }

    /// One change may take a database away and put one of another kind into its directory. The first holds the files until the change
    /// is made, and its store is not what the second one reads at the next start.
    fn check_kind(&self, database: &Database, directory: &Path) -> Result<(), OpenError> {
        let mut before = self.earlier.into_iter().flat_map(|earlier| &earlier.config.databases);
        let here = before.find(|other| !other.disabled && other.kind.directory() == Some(directory));
        match here.filter(|other| other.kind.storage() != database.kind.storage()) {
            None => Ok(()),
            Some(other) => {
                let message = format!(
                    "the {} database at {} has the directory `{}` until this change is made",
                    other.kind.name(),
                    other.origin,
                    directory.display()
                );
                let refused = ConfigError::new(database.origin.clone(), message);
                Err(refused.with_help("take that one away in a change of its own, then add this one").into())
            }
        }
    }

    fn stored(
        &mut self,
        database: &Database,
        directory: &Path,
    ) -> Result<Arc<ServedDatabase<LmdbStore>>, OpenError> {
        let environment = self.environment(database);
        let mut settings = self.config.engine_settings(database)?;
        settings.glued_contexts = settings.provider.map(|_| self.glued.below(database));
        self.policies.extend(settings.policy.clone());
        self.check_kind(database, directory)?;
        let served = match self.earlier.and_then(|earlier| earlier.served_in(directory)) {
            Some(served) => {
                let (schema, served) = (self.config.schema.clone(), served.clone());
                let next = Reconfiguration { schema, settings, environment };
                let alike = self.earlier.is_some_and(|earlier| {
                    let order = earlier.orders.of(&earlier.config, database);
                    order.is_some_and(|order| Arc::ptr_eq(order, &next.environment.order))
                        && is_alike(&earlier.config, self.config, database)
                });
                self.reused.push(ReusedDatabase { served: served.clone(), next, alike });
                served
            }
            None => {
                let file = directory.join(DATA_FILE);
                if self.earlier.is_some() && database.kind.is_in_lmdb() && !file.exists() {
                    self.created.0.push(file);
                }
                let opened = open_stored(self.config, database, settings, self.log)?;
                let served = ServedDatabase::start(Arc::new(opened), environment)
                    .map_err(|source| OpenError::Writer { directory: directory.to_owned(), source })?;
                Arc::new(served)
            }
        };
        if let Some(order) = self.orders.recorded_in(self.config, database)
            && let Err(fault) = rise_above(&order, served.database())
        {
            // Recording will fail, too, and be reported.
            self.log.warning(format_args!("{}: {fault}", directory.display()));
        }
        self.served.push(Arc::clone(&served));
        self.directories.push(directory.to_owned());
        Ok(served)
    }
}

/// Whether a database's own section is as it was, and what the one has that it is glued to.
fn is_alike(earlier: &Config, config: &Config, database: &Database) -> bool {
    let directory = database.kind.directory();
    let is_it = |other: &&Database| directory.is_some() && other.kind.directory() == directory;
    let above = |config: &Config, database: &Database| {
        let superior = config.superior(database);
        superior.map_or_else(Vec::new, |superior| config.over_glue(superior).to_vec())
    };
    earlier.databases.iter().find(is_it).is_some_and(|other| {
        (&other.suffixes, &other.settings) == (&database.suffixes, &database.settings)
            && overlays_alike(&other.overlays, &database.overlays)
            && overlays_alike(&above(earlier, other), &above(config, database))
            && earlier.over_glue(other).len() == config.over_glue(database).len()
    })
}

pub(super) fn overlays_alike(a: &[Overlay], b: &[Overlay]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| (&a.name, a.disabled, &a.settings) == (&b.name, b.disabled, &b.settings))
}

/// Whether two configurations say the same of what concerns every database.
pub(super) fn alike_for_all(a: &Config, b: &Config) -> bool {
    Arc::ptr_eq(&a.schema, &b.schema)
        && (&a.global.settings, &a.frontend.settings) == (&b.global.settings, &b.frontend.settings)
        && overlays_alike(&a.frontend.overlays, &b.frontend.overlays)
}

/// Databases that are glued together share one order of commits, and so do those that are recorded in one log that consumers follow: one
/// cookie speaks for all of them. Every other one has its own.
#[derive(Debug)]
pub(super) struct Orders {
    /// Those of the configuration before.
    known: HashMap<String, Arc<CommitOrder>>,
    of_suffix: HashMap<String, Arc<CommitOrder>>,
    recorded: RecordedTogether,
}

/// Databases that are recorded in logs that consumers follow.
#[derive(Debug, Default)]
struct RecordedTogether {
    /// By the suffix of a database, or of the one that it is glued to: whose order it has.
    databases: HashMap<String, String>,
    /// By the suffix of a log: whose order the databases have that are recorded there.
    logs: HashMap<String, String>,
}

impl Orders {
    fn new(config: &Config, known: HashMap<String, Arc<CommitOrder>>) -> Self {
        Self { known, of_suffix: HashMap::new(), recorded: RecordedTogether::of(config) }
    }

    fn for_database(&mut self, config: &Config, database: &Database) -> Arc<CommitOrder> {
        let (first, key) = (ordered_with(config, database), self.key(config, database));
        self.order(key, config.server_id_of(first))
    }

    /// The order of what is recorded in this database, if consumers may follow it.
    fn recorded_in(&mut self, config: &Config, log: &Database) -> Option<Arc<CommitOrder>> {
        let logs = &self.recorded.logs;
        let key = log.suffixes.iter().find_map(|suffix| logs.get(suffix.normal.as_str()))?.clone();
        Some(self.order(key, config.server_id()))
    }

    fn order(&mut self, key: String, server_id: u16) -> Arc<CommitOrder> {
        // Under another id it is another order.
        let known = self.known.get(&key).filter(|order| order.server_id() == server_id).cloned();
        let new = || known.unwrap_or_else(|| Arc::new(CommitOrder::new(server_id)));
        self.of_suffix.entry(key).or_insert_with(new).clone()
    }

    /// What this database has in the configuration that these orders were made for.
    fn of(&self, config: &Config, database: &Database) -> Option<&Arc<CommitOrder>> {
        self.of_suffix.get(&self.key(config, database))
    }

    fn key(&self, config: &Config, database: &Database) -> String {
        let own = key_of(ordered_with(config, database));
        self.recorded.databases.get(&own).cloned().unwrap_or(own)
    }
}

impl RecordedTogether {
    /// All have the order of the first one that is recorded together with them.
    fn of(config: &Config) -> Self {
        let Self { mut databases, mut logs } = Self::default();
        for database in config.databases.iter().filter(|database| !database.disabled) {
            let Some(log) = followed_log(config, database) else { continue };
            let own = key_of(ordered_with(config, database));
            let first = databases.entry(own.clone()).or_insert(own).clone();
            let of_log = logs.entry(log).or_insert_with(|| first.clone()).clone();
            // What is glued together may be recorded in several logs.
            let all = databases.values_mut().chain(logs.values_mut());
            all.filter(|key| **key == first).for_each(|key| key.clone_from(&of_log));
        }
        Self { databases, logs }
    }
}

/// Has CSNs be given out above those that a log tells of already, as of a database that is no longer recorded and was ahead of the clock:
/// consumers take what is below for known.
fn rise_above(order: &CommitOrder, log: &EngineDatabase<LmdbStore>) -> Result<(), Fault> {
    log::context_csns(&log.store().snapshot()?)?.iter().for_each(|csn| order.observe(csn));
    Ok(())
}

/// The log in which a database of this server alone is recorded, if consumers may follow it.
fn followed_log(config: &Config, database: &Database) -> Option<String> {
    // What was wrong was refused when the configuration was read.
    let log = config.access_log(database).ok().flatten()?.database.normal;
    let holds = |other: &&Database| other.suffixes.iter().any(|suffix| suffix.normal == log);
    let holder = config.databases.iter().filter(|other| !other.disabled).find(holds)?;
    let is_followed =
        !database.kind.is_in_shared_engine() && config.overlays_of(holder).any(Overlay::provides_content);
    is_followed.then(|| log.as_str().to_owned())
}

/// Whose order of commits a database has: that of what it is glued to in the end. One in a shared engine has its own, since its changes
/// have one server id at all nodes, and so has one that is glued below such a database.
fn ordered_with<'c>(config: &'c Config, database: &'c Database) -> &'c Database {
    let top = uppermost(config, database);
    let is_apart = [database, top].iter().any(|one| one.kind.is_in_shared_engine());
    if is_apart { database } else { top }
}

/// What a database is glued to in the end, or the database itself.
fn uppermost<'c>(config: &'c Config, database: &'c Database) -> &'c Database {
    let mut top = database;
    while let Some(above) = superior(config, top) {
        top = above;
    }
    top
}

pub(super) fn key_of(database: &Database) -> String {
    database.suffixes.first().map(|suffix| suffix.normal.as_str().to_owned()).unwrap_or_default()
}

/// The database that a subordinate one is glued to.
fn superior<'c>(config: &'c Config, database: &Database) -> Option<&'c Database> {
    database.subordinate.as_ref()?;
    let own = &database.suffixes.first()?.normal;
    let depth = |other: &Database| {
        let above = other.suffixes.iter().filter(|suffix| own.is_descendant_of(&suffix.normal));
        above.map(|suffix| suffix.normal.depth()).max()
    };
    config
        .databases
        .iter()
        .filter_map(|other| Some((depth(other)?, other)))
        .max_by_key(|(d, _)| *d)
        .map(|(_, o)| o)
}

/// Work on indexes is done by the server, and told in its log.
fn index_watch(database: &Database, log: &Log) -> Arc<dyn IndexWatch> {
    let suffix = database.suffixes.first().map(|suffix| suffix.text.clone()).unwrap_or_default();
    Arc::new(IndexLog { log: log.clone(), suffix })
}

/// What holds for all databases, and the subschema subentry's DN as it is shown.
fn frontend(config: &Config) -> (String, Frontend) {
    let (subschema_text, subschema) = subschema_dn(config);
    let base = config.frontend.default_search_base.as_ref();
    let frontend = Frontend {
        schema: config.schema.clone(),
        subschema,
        default_search_base: base.map(|dn| (dn.normal.clone(), dn.text.clone())),
        referrals: config.global.referrals.clone(),
    };
    (subschema_text, frontend)
}

fn subschema_dn(config: &Config) -> (String, NormalDn) {
    match &config.frontend.schema_dn {
        Some(dn) => (dn.text.clone(), dn.normal.clone()),
        None => {
            let normal = config.schema.parse_dn(subschema::DEFAULT_DN).unwrap_or_else(|_| NormalDn::root());
            (subschema::DEFAULT_DN.to_owned(), normal)
        }
    }
}

fn not_served(database: &Database) -> OpenError {
    OpenError::Kind { origin: database.origin.clone(), kind: database.kind.name().to_owned() }
}

fn open_stored(
    config: &Config,
    database: &Database,
    settings: DatabaseSettings,
    log: &Log,
) -> Result<EngineDatabase<LmdbStore>, OpenError> {
    let mdb = match (database.kind.storage(), database.kind.directory()) {
        (Storage::LdifFiles, Some(directory)) => {
            let opened = ldif_tree::open(config, settings, directory, FileUse::Change);
            let opened = opened.map_err(OpenError::Ldif)?;
            opened.warnings.iter().for_each(|warning| log.warning(format_args!("{warning}")));
            // Entries written by hand lack operational attributes, which are to be the same after the next start.
            if let Err(why) = ldif_tree::write_back(&opened.database) {
                log.warning(format_args!("{why}"));
            }
            return Ok(opened.database);
        }
        _ => database.kind.mdb().ok_or_else(|| not_served(database))?,
    };
    let suffix = database.suffixes.first().map(|suffix| suffix.text.clone()).unwrap_or_default();
    let store = open_store(mdb).map_err(|source| OpenError::Store {
        origin: database.origin.clone(),
        suffix,
        source,
    })?;
    EngineDatabase::open(store, config.schema.clone(), settings, &SystemRandom)
        .map_err(|source| OpenError::Database { directory: mdb.directory.clone(), source })
}

fn open_store(mdb: &MdbSettings) -> Result<LmdbStore, larix_store::OpenError> {
    let defaults = LmdbOptions::default();
    let size = std::fs::metadata(mdb.directory.join(DATA_FILE)).map_or(0, |file| file.len());
    let options = LmdbOptions {
        file_mode: mdb.mode.unwrap_or(defaults.file_mode),
        read_ahead: !mdb.env_flags.no_read_ahead && memory::reads_ahead(size, memory::available()),
        ..defaults
    };
    LmdbStore::open(&mdb.directory, &TABLES, &options)
}

/// What requests look up in databases of other machines. `about_entries`: rules ask for entries.
fn remote_lookups(config: &Config, about_entries: bool) -> RemoteLookups {
    let mut open = config.databases.iter().filter(|database| !database.disabled);
    match open.any(|database| database.kind.is_in_shared_engine()) {
        true if about_entries => RemoteLookups::Rules,
        true => RemoteLookups::Identities,
        false => RemoteLookups::None,
    }
}

fn section(
    config: &Config,
    database: &Database,
    policy: Arc<AccessPolicy>,
    anonymous_updates: bool,
) -> Section {
    Section {
        root_dn: database.effective_root(),
        rules: Rules::new(&config.frontend.shared, Some(&database.shared), anonymous_updates),
        is_config: database.kind.is_config(),
        policy,
        asks_target_who: database
            .kind
            .settings::<LdapSettings>()
            .is_some_and(|settings| settings.proxy.proxies_who_am_i),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters: databases of one order.
    #[test]
    fn databases_of_one_cookie_have_one_order() {
        let database = |name: &str, more: &str| {
            format!("database mdb\nsuffix {name}\nrootdn {name}\ndirectory /{name}\n{more}\n")
        };
        let log = |name: &str| format!("overlay accesslog\nlogdb {name}\nlogops writes\n");
        let provided = "overlay syncprov";
        let logs =
            [database("cn=log", provided), database("cn=second", provided), database("cn=private", "")];
        let check = |databases: &[String], expected: &str| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("slapd.conf");
            let schema = folder.path().join("core.schema");
            std::fs::write(&schema, larix_schema::bundled("core").unwrap()).unwrap();
            let include = format!("include {}\n", schema.display());
            std::fs::write(&file, [include, databases.concat(), logs.concat()].concat()).unwrap();
            let config = Config::from_slapd_conf(&file).unwrap_or_else(|error| panic!("{error}"));
            let mut orders = Orders::new(&config, HashMap::new());
            let named = |name: &&Database| name.suffixes.iter().any(|suffix| suffix.text.starts_with("dc="));
            let mut seen: Vec<Arc<CommitOrder>> = Vec::new();
            let mut letter = |database: &Database| {
                let order = orders.for_database(&config, database);
                let at = seen.iter().position(|known| Arc::ptr_eq(known, &order)).unwrap_or_else(|| {
                    seen.push(order);
                    seen.len() - 1
                });
                char::from(b'a' + u8::try_from(at).unwrap())
            };
            let found: String = config.databases.iter().filter(named).map(&mut letter).collect();
            assert_eq!(found, expected, "{databases:?}");
        };
        check(&[database("dc=a", ""), database("dc=b", "")], "ab");
        check(&[database("dc=a", &log("cn=log")), database("dc=b", &log("cn=log"))], "aa");
        check(&[database("dc=a", &log("cn=log")), database("dc=b", &log("cn=second"))], "ab");
        check(&[database("dc=a", &log("cn=log")), database("dc=b", "")], "ab");
        // No consumer follows it.
        check(&[database("dc=a", &log("cn=private")), database("dc=b", &log("cn=private"))], "ab");
        let glued = |more: &str| database("dc=c,dc=a", &format!("subordinate\n{more}"));
        check(&[glued(""), database("dc=a", &log("cn=log")), database("dc=b", &log("cn=log"))], "aaa");
        // Two logs meet in what is glued.
        let both = [glued(&log("cn=second")), database("dc=a", &log("cn=log"))];
        let others = [database("dc=b", &log("cn=log")), database("dc=d", &log("cn=second"))];
        check(&[&both[..], &others[..]].concat(), "aaaa");
        check(&[&others[..], &both[..]].concat(), "aaaa");
    }
}
