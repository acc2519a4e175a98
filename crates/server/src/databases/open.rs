//! From the configuration to open databases.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use larix_engine::access::{AccessPolicy, AccessRule};
use larix_engine::database::{HardLimit, PagedTotal};
use larix_engine::index::IndexConfig;
use larix_engine::order::CommitOrder;
use larix_engine::tables::TABLES;
use larix_engine::write::WriterEnvironment;
use larix_engine::{
    Database as EngineDatabase, DatabaseSettings, Directory, Frontend, Limits, Served, Suffix,
};
use larix_proto::ldif::{self, Body};
use larix_schema::{NormalDn, Schema};
use larix_store::lmdb::{LmdbOptions, LmdbStore};

use super::{Databases, OpenError, Section, SectionKind};
use crate::clock::{SystemClock, SystemRandom};
use crate::config::values::{self, SearchLimits};
use crate::config::{AccessLine, Config, Database, DatabaseKind, MdbSettings};
use crate::restrictions::Rules;
use crate::virtual_entries::{monitor, subschema};

impl Databases {
    /// Opens every database of the configuration and starts its writer.
    pub fn open(config: &Config, clock: &Arc<SystemClock>) -> Result<Self, OpenError> {
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
            let policy = Arc::new(policy(config, database)?);
            if let DatabaseKind::Mdb(mdb) = &database.kind {
                let environment = WriterEnvironment {
                    clock: clock.clone(),
                    random: Arc::new(SystemRandom),
                    order: orders.for_database(config, database),
                    default_referrals: config.global.referrals.clone().into(),
                    auxiliary_needs_rule: false,
                };
                let opened = open_stored(config, database, mdb, policy.clone())?;
                let writer = Served::start(Arc::new(opened), environment)
                    .map_err(|source| OpenError::Writer { directory: mdb.directory.clone(), source })?;
                served.push(Arc::new(writer));
            }
            sections.push(section(config, database, kind, policy, updates));
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
        let frontend_rules = access_rules(&config.frontend.access);
        let frontend_policy = AccessPolicy::new(schema.clone(), None, &frontend_rules, &[])
            .map_err(|source| access_error(&config.frontend.access, source))?;
        Ok(Self {
            directory: Directory::new(frontend, served).map_err(OpenError::Schema)?,
            sections,
            frontend_rules: Rules::new(&config.frontend.shared, None, updates),
            frontend_policy: Arc::new(frontend_policy),
            subschema_text,
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
    policy: Arc<AccessPolicy>,
) -> Result<EngineDatabase<LmdbStore>, OpenError> {
    let schema = &config.schema;
    let mut index = IndexConfig::default();
    for line in &mdb.index {
        let kinds = Some(line.kinds.join(",")).filter(|kinds| !kinds.is_empty());
        index
            .add_line(schema, &line.attributes.join(","), kinds.as_deref())
            .map_err(|source| OpenError::Index { origin: database.origin.clone(), source })?;
    }
    let suffix = database.suffixes.first().map(|suffix| suffix.text.clone()).unwrap_or_default();
    let store = open_store(&mdb.directory, mdb.mode).map_err(|source| OpenError::Store {
        origin: database.origin.clone(),
        suffix,
        source,
    })?;
    let settings = settings(database, mdb, index, policy);
    EngineDatabase::open(store, schema.clone(), settings, &SystemRandom)
        .map_err(|source| OpenError::Database { directory: mdb.directory.clone(), source })
}

fn open_store(directory: &Path, mode: Option<u32>) -> Result<LmdbStore, larix_store::OpenError> {
    let defaults = LmdbOptions::default();
    let options = LmdbOptions { file_mode: mode.unwrap_or(defaults.file_mode), ..defaults };
    LmdbStore::open(directory, &TABLES, &options)
}

fn settings(
    database: &Database,
    mdb: &MdbSettings,
    index: IndexConfig,
    policy: Arc<AccessPolicy>,
) -> DatabaseSettings {
    let suffixes = database.suffixes.iter();
    DatabaseSettings {
        suffixes: suffixes.map(|dn| Suffix { normal: dn.normal.clone(), text: dn.text.clone() }).collect(),
        root_dn: database.root_dn.as_ref().map(|dn| dn.normal.clone()),
        root_dn_text: database.root_dn.as_ref().map(|dn| dn.text.clone()).unwrap_or_default(),
        root_password: database.root_password.clone(),
        index,
        read_only: database.shared.read_only,
        subordinate: database.subordinate.is_some(),
        hidden: database.hidden,
        limits: limits(&database.shared.search_limits),
        max_deref_depth: database.shared.max_deref_depth,
        update_referrals: if database.update_dn.is_some() {
            database.update_refs.clone()
        } else {
            Vec::new()
        },
        last_modified: database.last_mod,
        durability_relaxed: mdb.no_sync,
        log: true,
        add_content_acl: database.shared.add_content_acl,
        policy: Some(policy),
    }
}

/// The configuration's limits in the engine's form.
pub(super) fn limits(configured: &SearchLimits) -> Limits {
    let soft = |soft: values::Soft| match soft {
        values::Soft::Unlimited => None,
        values::Soft::At(most) => Some(most),
    };
    let hard = |hard: values::Hard| match hard {
        values::Hard::AsSoft => HardLimit::Soft,
        values::Hard::Unlimited => HardLimit::Unlimited,
        values::Hard::At(most) => HardLimit::Count(most),
    };
    let size = &configured.size;
    Limits {
        size_soft: soft(size.soft),
        size_hard: hard(size.hard),
        size_unchecked: match size.unchecked {
            values::Unchecked::Unlimited => None,
            values::Unchecked::Disabled => Some(0),
            values::Unchecked::At(most) => Some(most),
        },
        size_page: size.page,
        size_total: match size.paged_total {
            values::PagedTotal::AsHard => PagedTotal::Hard,
            values::PagedTotal::Unlimited => PagedTotal::Unlimited,
            values::PagedTotal::Disabled => PagedTotal::Disabled,
            values::PagedTotal::At(most) => PagedTotal::Count(most),
        },
        no_estimate: size.hide_estimate,
        time_soft: soft(configured.time.soft),
        time_hard: hard(configured.time.hard),
    }
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
    let root_dn = database.root_dn.as_ref().map(|dn| dn.normal.clone());
    Section {
        suffixes,
        root_dn: root_dn.or_else(|| default_root(&config.schema, kind)),
        root_password: database.root_password.clone(),
        rules: Rules::new(&config.frontend.shared, Some(&database.shared), anonymous_updates),
        limits: database.shared.limits.clone(),
        kind,
        policy,
    }
}

/// `database config` has a root DN even when none is configured.
fn default_root(schema: &Schema, kind: SectionKind) -> Option<NormalDn> {
    if kind == SectionKind::Config { schema.parse_dn("cn=config").ok() } else { None }
}

fn policy(config: &Config, database: &Database) -> Result<AccessPolicy, OpenError> {
    let mut rules = access_rules(&database.access);
    let frontend = access_rules(&config.frontend.access);
    let mut root = database.root_dn.as_ref().map(|dn| dn.normal.clone());
    if matches!(database.kind, DatabaseKind::Config) {
        // Whatever the frontend grants, the configuration is for its root alone unless its own rules say more.
        root = root.or_else(|| default_root(&config.schema, SectionKind::Config));
        rules.extend(AccessRule::parse("to * by * none").ok());
    }
    AccessPolicy::new(config.schema.clone(), root, &rules, &frontend).map_err(|source| {
        let lines: Vec<AccessLine> = database.access.iter().chain(&config.frontend.access).cloned().collect();
        access_error(&lines, source)
    })
}

fn access_rules(lines: &[AccessLine]) -> Vec<AccessRule> {
    lines.iter().map(|line| line.rule.clone()).collect()
}

fn access_error(lines: &[AccessLine], source: larix_engine::access::AccessPolicyError) -> OpenError {
    let line = lines.iter().find(|line| line.rule.to_string() == source.rule);
    let origin = line.map_or(crate::config::Origin::BuiltIn, |line| line.origin.clone());
    OpenError::Access { origin, source }
}

/// The attributes of the `rootDSE` files.
fn root_dse_files(config: &Config) -> Result<Vec<(String, Vec<Vec<u8>>)>, OpenError> {
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
