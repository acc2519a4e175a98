//! From the configuration to open databases.

use std::collections::HashMap;
use std::sync::Arc;

use larix_engine::access::AccessPolicy;
use larix_engine::order::CommitOrder;
use larix_engine::tables::TABLES;
use larix_engine::write::WriterEnvironment;
use larix_engine::{Database as EngineDatabase, Directory, Frontend, Served};
use larix_proto::ldif::{self, Body};
use larix_schema::NormalDn;
use larix_store::lmdb::{DATA_FILE, LmdbOptions, LmdbStore};

use super::{Databases, OpenError, Section, SectionKind, memory};
use crate::clock::{SystemClock, SystemRandom};
use crate::config::{Config, Database, DatabaseKind, MdbSettings};
use crate::operation_rules::OperationRules;
use crate::restrictions::Rules;
use crate::virtual_entries::{monitor, subschema};

impl Databases {
    /// Opens every database of the configuration and starts its writer.
    pub fn open(config: &Arc<Config>, clock: &Arc<SystemClock>) -> Result<Self, OpenError> {
        config.check_directories()?;
        let schema = &config.schema;
        let updates = config.global.allow.update_anon;
        let mut orders = Orders { server_id: server_id(config), of_suffix: HashMap::new() };
        let mut sections = Vec::new();
        let mut served = Vec::new();
        for database in config.databases.iter().filter(|database| !database.disabled) {
            let kind = match &database.kind {
                DatabaseKind::Mdb(_) => SectionKind::Stored,
                DatabaseKind::Config => SectionKind::Config,
                DatabaseKind::Monitor => SectionKind::Monitor,
                DatabaseKind::Null { bind_allowed, .. } => SectionKind::Null { bind_allowed: *bind_allowed },
                DatabaseKind::Foreign(foreign) => {
                    let (origin, kind) = (database.origin.clone(), foreign.name.to_owned());
                    return Err(OpenError::Kind { origin, kind });
                }
            };
            let policy = Arc::new(config.access_policy(Some(database))?);
            if let DatabaseKind::Mdb(mdb) = &database.kind {
                let environment = WriterEnvironment {
                    clock: clock.clone(),
                    random: Arc::new(SystemRandom),
                    order: orders.for_database(config, database),
                    default_referrals: config.global.referrals.clone().into(),
                    auxiliary_needs_rule: false,
                };
                let opened = open_stored(config, database, mdb)?;
                let writer = Served::start(Arc::new(opened), environment)
                    .map_err(|source| OpenError::Writer { directory: mdb.directory.clone(), source })?;
                served.push(Arc::new(writer));
            }
            let mut section = section(config, database, kind, policy, updates);
            section.rules = section.rules.with_operations(config.operation_rules(Some(database))?);
            sections.push(section);
        }
        let (subschema_text, subschema) = subschema_dn(config);
        let frontend = Frontend {
            schema: schema.clone(),
            subschema,
            default_search_base: config
                .frontend
                .default_search_base
                .as_ref()
                .map(|dn| (dn.normal.clone(), dn.text.clone())),
            referrals: config.global.referrals.clone(),
        };
        let frontend_rules =
            Rules::new(&config.frontend.shared, None, updates).with_operations(config.operation_rules(None)?);
        let frontend_policy = Arc::new(config.access_policy(None)?);
        let stored = served.iter().map(|served| served.database().policy());
        let virtual_trees = sections.iter().map(|section: &Section| Arc::clone(&section.policy));
        let policies: Vec<Arc<AccessPolicy>> =
            stored.chain(virtual_trees).chain([Arc::clone(&frontend_policy)]).collect();
        let directory = Directory::new(frontend, served).map_err(OpenError::Schema)?;
        let all_rules = sections.iter().map(|section: &Section| &section.rules).chain([&frontend_rules]);
        let requesters: Vec<&AccessPolicy> =
            all_rules.filter_map(Rules::operations).flat_map(OperationRules::policies).collect();
        requesters.iter().for_each(|policy| directory.let_see(policy));
        let (asks_about_request, asks_about_domain) = (
            policies.iter().any(|policy| policy.asks_about_request()),
            policies.iter().map(AsRef::as_ref).chain(requesters).any(AccessPolicy::asks_about_domain),
        );
        Ok(Self {
            config: Arc::clone(config),
            asks_about_domain,
            asks_about_request,
            same_rules: sections.iter().all(|section: &Section| section.rules == frontend_rules),
            directory,
            sections,
            frontend_rules,
            frontend_policy,
            subschema_text,
            default_referrals: config.global.referrals.clone().into(),
            root_dse_extra: root_dse_files(config)?,
        })
    }
}

/// Databases that are glued together share one order of commits; every other one has its own.
struct Orders {
    server_id: u16,
    of_suffix: HashMap<String, Arc<CommitOrder>>,
}

impl Orders {
    fn for_database(&mut self, config: &Config, database: &Database) -> Arc<CommitOrder> {
        let mut top = database;
        while let Some(above) = superior(config, top) {
            top = above;
        }
        let key = top.suffixes.first().map(|suffix| suffix.normal.as_str().to_owned()).unwrap_or_default();
        let server_id = self.server_id;
        self.of_suffix.entry(key).or_insert_with(|| Arc::new(CommitOrder::new(server_id))).clone()
    }
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

/// Our own server ID: the one without a URL. Those with URLs name the peers, too.
fn server_id(config: &Config) -> u16 {
    config.global.server_ids.iter().find(|id| id.url.is_none()).map_or(0, |id| id.number)
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

fn open_stored(
    config: &Config,
    database: &Database,
    mdb: &MdbSettings,
) -> Result<EngineDatabase<LmdbStore>, OpenError> {
    let suffix = database.suffixes.first().map(|suffix| suffix.text.clone()).unwrap_or_default();
    let settings = config.engine_settings(database)?;
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

fn section(
    config: &Config,
    database: &Database,
    kind: SectionKind,
    policy: Arc<AccessPolicy>,
    anonymous_updates: bool,
) -> Section {
    let fixed = match kind {
        SectionKind::Config => Some("cn=config"),
        SectionKind::Monitor => Some(monitor::DN),
        _ => None,
    };
    let suffixes = match fixed {
        Some(dn) => config.schema.parse_dn(dn).into_iter().collect(),
        None => database.suffixes.iter().map(|dn| dn.normal.clone()).collect(),
    };
    Section {
        suffixes,
        root_dn: database.effective_root(),
        root_password: database.root_password.clone(),
        rules: Rules::new(&config.frontend.shared, Some(&database.shared), anonymous_updates),
        limits: database.shared.limits.clone(),
        kind,
        policy,
    }
}

/// Attributes by name.
type NamedValues = Vec<(String, Vec<Vec<u8>>)>;

/// The attributes of the `rootDSE` files.
fn root_dse_files(config: &Config) -> Result<NamedValues, OpenError> {
    let mut extra = Vec::new();
    for path in &config.global.root_dse_files {
        let fail = |message: String| OpenError::RootDse { path: path.clone(), message };
        let file = std::fs::File::open(path).map_err(|error| fail(error.to_string()))?;
        for record in ldif::Reader::new(std::io::BufReader::new(file)) {
            let record = record.map_err(|error| fail(error.to_string()))?;
            if !record.dn.is_empty() {
                return Err(fail(format!(
                    "line {}: the root DSE's DN is empty, not \"{}\"",
                    record.line, record.dn
                )));
            }
            if let Body::Content(attributes) = record.body {
                extra.extend(attributes.into_iter().map(|a| (a.description, a.values)));
            }
        }
    }
    Ok(extra)
}
