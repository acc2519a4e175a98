//! The kinds of databases: one [`Descriptor`] each, and the settings that only that kind has.
//!
//! No other code tells kinds apart by name. It asks a kind what can be done with its databases; most answers follow from the [`Storage`].
//! A new kind is a file beside these with its settings, its directives and its descriptor, one line in [`DESCRIPTORS`], and one in the
//! server's table of backends. CONTRIBUTING.md has the steps.

mod changelog;
mod dnssrv;
mod foreign;
#[cfg(feature = "kv")]
mod kv;
mod ldap;
mod ldif;
mod mdb;
mod meta;
mod null;
mod passwd;
pub(super) mod relay;
mod sock;

use std::any::Any;
use std::fmt::Debug;
use std::path::Path;

use larix_engine::index::IndexConfig;
use larix_schema::NormalDn;

use super::builder::directive::Directive;
use super::diagnostic::ConfigError;
use super::model::{Config, Database};
use super::settings::Settings;
use super::values::ChangeLog;

pub use changelog::ChangelogSettings;
pub use dnssrv::DnssrvSettings;
#[cfg(feature = "kv")]
pub use kv::{Consistency, KvSettings, check_node};
pub use ldap::LdapSettings;
pub(super) use ldap::{
    quarantine_of as ldap_quarantine, targets as ldap_targets, time as ldap_time, tls_of as ldap_tls,
};
pub use mdb::{DEFAULT_DATABASE_DIRECTORY, MdbSettings};
pub(super) use meta::target_settings;
pub use meta::{MetaSettings, MetaTarget};
pub use null::NullSettings;
pub use passwd::PasswdSettings;
pub use relay::RelaySettings;
pub use sock::SockSettings;
pub(super) use sock::{extension as sock_extension, path as sock_path};

/// What is known of a kind of database.
#[derive(Debug)]
pub struct Descriptor {
    /// OpenLDAP's name of the kind, as after `database` and in `olcDatabase`.
    pub name: &'static str,
    /// Kinds of old that are served as this one.
    pub(super) formerly: &'static [&'static str],
    /// Where its entries are.
    pub(super) storage: Storage,
    /// The structural class of its entry under cn=config beside `olcDatabaseConfig`.
    pub(super) class: Option<&'static str>,
    /// The class that the entry of its `backend` section has beside `olcBackendConfig`.
    pub(super) backend_class: Option<&'static str>,
    /// Attributes under cn=config whose default is not that of most kinds, with the default.
    pub(super) defaults: &'static [(&'static str, &'static str)],
    /// The naming attribute and the class of the entries that its targets are.
    pub(super) target: Option<(&'static str, &'static str)>,
    /// Kinds whose directives it takes, too, the nearest one first.
    pub(super) shares_directives_of: &'static [&'static str],
    /// The suffix of a kind that has a single database: as shown, and normal.
    pub(super) own_suffix: Option<(&'static str, &'static str)>,
    /// The root DN where none is configured.
    pub(super) own_root: Option<&'static str>,
    /// Whether only what a rule grants is granted, in a database without rules.
    pub(super) closed: bool,
    /// Whether an access log can record what is done in it.
    pub(super) is_recorded: bool,
    /// Whether it can follow a provider.
    pub(super) follows: bool,
    /// Whether this server serves it: others can be read and shown, and the server does not start with them.
    pub(super) is_served: bool,
    pub(super) settings: fn() -> Box<dyn KindSettings>,
    pub(super) directives: &'static [Directive],
    /// Definitions that come with it, one a line.
    pub(super) schema: &'static str,
}

impl Descriptor {
    /// How near the directives of a kind are to a database of this one: 0 if they are its own, 1 or more if it shares them; none if it does
    /// not take them.
    pub(super) fn distance_of_directives(&self, kind: &str) -> Option<usize> {
        let mut kinds = [&self.name].into_iter().chain(self.shares_directives_of);
        kinds.position(|known| *known == kind)
    }

    /// Whether an administrator chooses the indexes of such a database.
    fn has_index_lines(&self) -> bool {
        self.directives.iter().any(|directive| directive.attribute == "olcDbIndex")
    }
}

/// Where the entries of a kind of database are. It decides what tools, overlays, backups and other databases can do with the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// The server computes them when a client asks, or there are none.
    Computed,
    /// In LMDB files in a directory of this server. Tools open them without the server, and backups contain them.
    Lmdb,
    /// In LDIF files in a directory of this server; its store is an image of them.
    LdifFiles,
    /// In an engine that several servers share.
    SharedEngine,
    /// On another LDAP server.
    OtherServer,
    /// On several other LDAP servers.
    OtherServers,
    /// In another database of this server, or with a program.
    Elsewhere,
}

const NOTHING: Descriptor = Descriptor {
    name: "",
    formerly: &[],
    storage: Storage::Computed,
    class: None,
    backend_class: None,
    defaults: &[],
    target: None,
    shares_directives_of: &[],
    own_suffix: None,
    own_root: None,
    closed: false,
    is_recorded: false,
    follows: false,
    is_served: true,
    settings: || Box::new(NoSettings),
    directives: &[],
    schema: "",
};

/// `database config`: cn=config itself.
static CONFIG: Descriptor = Descriptor {
    name: "config",
    own_suffix: Some(("cn=config", "cn=config")),
    own_root: Some("cn=config"),
    defaults: &[("olcRootDN", "cn=config"), ("olcAddContentAcl", "TRUE"), ("olcAccess", "to * by * none")],
    closed: true,
    is_recorded: true,
    follows: true,
    ..NOTHING
};

static MONITOR: Descriptor = Descriptor {
    name: "monitor",
    class: Some("olcMonitorConfig"),
    own_suffix: Some(("cn=Monitor", "cn=monitor")),
    ..NOTHING
};

/// Every kind.
static DESCRIPTORS: &[&Descriptor] = &[
    &mdb::DESCRIPTOR,
    &ldif::DESCRIPTOR,
    #[cfg(feature = "kv")]
    &kv::DESCRIPTOR,
    // Before ldap, whose directives its targets have, too: what opens a target comes first.
    &meta::DESCRIPTOR,
    &meta::ASYNCHRONOUS,
    &ldap::DESCRIPTOR,
    &relay::DESCRIPTOR,
    &null::DESCRIPTOR,
    &passwd::DESCRIPTOR,
    &sock::DESCRIPTOR,
    &dnssrv::DESCRIPTOR,
    &changelog::DESCRIPTOR,
    &MONITOR,
    &CONFIG,
];

/// The descriptors of all kinds, those that are not served last.
fn descriptors() -> impl Iterator<Item = &'static Descriptor> {
    DESCRIPTORS.iter().copied().chain(foreign::DESCRIPTORS)
}

/// The descriptor of the kind that has this name now.
pub(super) fn descriptor_of(name: &str) -> Option<&'static Descriptor> {
    descriptors().find(|descriptor| descriptor.name == name)
}

/// The names of the kinds that this server serves.
pub fn served_kinds() -> Vec<&'static str> {
    DESCRIPTORS.iter().map(|descriptor| descriptor.name).collect()
}

/// The classes under cn=config of databases whose indexes an administrator chooses, with `olcDbIndex`.
pub fn indexed_classes() -> impl Iterator<Item = &'static str> {
    let indexed = DESCRIPTORS.iter().filter(|descriptor| descriptor.has_index_lines());
    indexed.filter_map(|descriptor| descriptor.class)
}

/// The naming attributes of the entries under cn=config that stand for targets of databases.
pub(super) fn target_attributes() -> impl Iterator<Item = &'static str> {
    descriptors().filter_map(|descriptor| descriptor.target).map(|(attribute, _)| attribute)
}

/// The kind whose directives configure the servers that overlays ask (`overlay chain`, `overlay translucent`).
pub(super) const SERVER_KIND: &str = ldap::NAME;
/// The kind whose directives may follow `overlay pcache`: they configure its cache.
pub(super) const CACHE_KIND: &str = mdb::NAME;

/// The directives of the kinds that are served, in the order of their kinds.
pub(super) fn directives() -> impl Iterator<Item = &'static Directive> {
    DESCRIPTORS.iter().flat_map(|descriptor| descriptor.directives)
}

/// The directives of the kinds that are not.
pub(super) const FOREIGN_DIRECTIVES: &[Directive] = foreign::TABLE;

/// Settings that only one kind of database has.
pub trait KindSettings: Any + Debug + Send + Sync + Duplicate {
    /// Where the entries are kept; none of a database that keeps none.
    fn directory(&self) -> Option<&Path> {
        None
    }

    /// What the engine is given of a database that keeps entries.
    fn stored(&self) -> StoredSettings {
        StoredSettings::default()
    }

    /// The server id in the CSNs of the database's changes, the same at all nodes; none: each server's own.
    fn server_id(&self) -> Option<u16> {
        None
    }

    /// What is shown of its targets, each an entry below its own under cn=config.
    fn targets(&self) -> Vec<&Settings> {
        Vec::new()
    }

    /// Completes what a slapd.conf may leave out.
    fn complete(&mut self, _shown: &mut Settings) {}

    /// Adds what this kind cannot do beside the rest of the configuration: the server does not start with it.
    fn refusals(&self, _config: &Config, _database: &Database, _found: &mut Vec<ConfigError>) {}

    /// What an administrator should know of the section as a whole.
    fn note(&self) -> Option<&'static str> {
        None
    }

    /// Checks the section as a whole.
    ///
    /// # Errors
    /// What this kind cannot be.
    fn check(&self, _database: &Database) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// Clones settings whose type is not known.
pub trait Duplicate {
    /// The same once more.
    fn duplicate(&self) -> Box<dyn KindSettings>;
}

impl<T: KindSettings + Clone> Duplicate for T {
    fn duplicate(&self) -> Box<dyn KindSettings> {
        Box::new(self.clone())
    }
}

/// What a kind that keeps entries wants of the engine.
#[derive(Debug)]
pub struct StoredSettings {
    pub change_log: ChangeLog,
    pub index: IndexConfig,
    /// Whether commits do not wait for the disk.
    pub relaxed: bool,
    pub entry_bytes_max: Option<u64>,
    pub value_conflicts: bool,
}

impl Default for StoredSettings {
    /// Of a kind that keeps none.
    fn default() -> Self {
        Self {
            change_log: ChangeLog::Off,
            index: IndexConfig::default(),
            relaxed: false,
            entry_bytes_max: None,
            value_conflicts: false,
        }
    }
}

#[derive(Clone, Debug)]
struct NoSettings;

impl KindSettings for NoSettings {}

/// The kind of a database and what only that kind has.
#[derive(Debug)]
pub struct DatabaseKind {
    descriptor: &'static Descriptor,
    settings: Box<dyn KindSettings>,
}

impl Clone for DatabaseKind {
    fn clone(&self) -> Self {
        Self { descriptor: self.descriptor, settings: self.settings.duplicate() }
    }
}

impl DatabaseKind {
    /// The kind that a name after `database` means, with the settings that it has before any directive.
    pub(super) fn named(name: &str) -> Option<Self> {
        let is_it = |known: &&str| known.eq_ignore_ascii_case(name);
        descriptors()
            .find(|descriptor| is_it(&descriptor.name) || descriptor.formerly.iter().any(&is_it))
            .map(Self::of)
    }

    fn of(descriptor: &'static Descriptor) -> Self {
        Self { descriptor, settings: (descriptor.settings)() }
    }

    /// cn=config.
    pub(super) fn config() -> Self {
        Self::of(&CONFIG)
    }

    /// A server that an overlay asks.
    pub(super) fn server() -> Self {
        Self::of(&ldap::DESCRIPTOR)
    }

    pub fn descriptor(&self) -> &'static Descriptor {
        self.descriptor
    }

    /// OpenLDAP's name of the kind, as after `database` and in `olcDatabase`.
    pub fn name(&self) -> &'static str {
        self.descriptor.name
    }

    /// The settings, if they are of this type.
    pub fn settings<T: KindSettings>(&self) -> Option<&T> {
        let settings: &dyn Any = &*self.settings;
        settings.downcast_ref()
    }

    pub(super) fn settings_mut<T: KindSettings>(&mut self) -> Option<&mut T> {
        let settings: &mut dyn Any = &mut *self.settings;
        settings.downcast_mut()
    }

    /// The settings of `database mdb`: of the databases that the tools for stored entries work on.
    pub fn mdb(&self) -> Option<&MdbSettings> {
        self.settings()
    }

    /// Whether an administrator chooses the indexes.
    pub(super) fn has_index_lines(&self) -> bool {
        self.descriptor.has_index_lines()
    }

    /// Where the entries are.
    pub fn storage(&self) -> Storage {
        self.descriptor.storage
    }

    /// Whether the entries are in a directory of this server: the engine serves them, and tools read them without the server.
    pub fn is_stored(&self) -> bool {
        matches!(self.storage(), Storage::Lmdb | Storage::LdifFiles)
    }

    /// Whether the entries are in LMDB files. [`Self::mdb`] has their settings.
    pub fn is_in_lmdb(&self) -> bool {
        self.storage() == Storage::Lmdb
    }

    /// Whether the entries are in an engine that several servers share.
    pub fn is_in_shared_engine(&self) -> bool {
        self.storage() == Storage::SharedEngine
    }

    /// Whether the database has entries of its own, in a directory of this server or in a shared engine: they are read and changed with all
    /// controls and in transactions.
    pub fn keeps_entries(&self) -> bool {
        self.is_stored() || self.is_in_shared_engine()
    }

    /// Whether one other LDAP server has the entries.
    pub(crate) fn is_on_another_server(&self) -> bool {
        self.storage() == Storage::OtherServer
    }

    /// Whether other LDAP servers have the entries, one or several: the database has connections to them.
    pub fn is_proxied(&self) -> bool {
        matches!(self.storage(), Storage::OtherServer | Storage::OtherServers)
    }

    /// Whether a server, a program or another database has the entries, and so may know names outside of the suffixes of this one, too.
    pub fn is_kept_elsewhere(&self) -> bool {
        self.is_proxied() || self.storage() == Storage::Elsewhere
    }

    /// Whether the database can take the records of an access log.
    pub(crate) fn holds_access_logs(&self) -> bool {
        matches!(self.storage(), Storage::Lmdb | Storage::SharedEngine)
    }

    /// Where the entries are kept; none of a database that keeps none.
    pub fn directory(&self) -> Option<&Path> {
        self.settings.directory()
    }

    /// Whether this is cn=config.
    pub fn is_config(&self) -> bool {
        std::ptr::eq(self.descriptor, &raw const CONFIG)
    }

    /// Whether this is cn=Monitor.
    pub fn is_monitor(&self) -> bool {
        std::ptr::eq(self.descriptor, &raw const MONITOR)
    }

    /// Whether this server serves it.
    pub fn is_served(&self) -> bool {
        self.descriptor.is_served
    }

    /// Whether an access log can record what is done in it.
    pub fn is_recorded(&self) -> bool {
        self.descriptor.is_recorded
    }

    /// Whether it can follow a provider.
    pub fn follows(&self) -> bool {
        self.descriptor.follows
    }

    /// The suffix of a kind that has a single database, as shown.
    pub fn own_suffix(&self) -> Option<&'static str> {
        self.descriptor.own_suffix.map(|(shown, _)| shown)
    }

    /// The same in its normal form.
    pub(super) fn own_suffix_normal(&self) -> Option<NormalDn> {
        self.descriptor.own_suffix.map(|(_, normal)| NormalDn::from_normal(normal))
    }

    pub(super) fn server_id(&self) -> Option<u16> {
        self.settings.server_id()
    }

    pub(super) fn targets(&self) -> Vec<&Settings> {
        self.settings.targets()
    }

    pub(super) fn stored(&self) -> StoredSettings {
        self.settings.stored()
    }

    pub(super) fn complete(&mut self, settings: &mut Settings) {
        self.settings.complete(settings);
    }

    pub(super) fn refusals(&self, config: &Config, database: &Database, found: &mut Vec<ConfigError>) {
        self.settings.refusals(config, database, found);
    }

    pub(super) fn note(&self) -> Option<&'static str> {
        self.settings.note()
    }

    pub(super) fn check(&self, database: &Database) -> Result<(), ConfigError> {
        self.settings.check(database)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::builder::directive::Scope;
    use super::*;

    /// The settings that a kind has follow from where its entries are, and the other way round.
    #[test]
    fn every_kind_has_the_settings_of_its_storage() {
        for descriptor in descriptors() {
            let kind = DatabaseKind::of(descriptor);
            let found = (
                kind.directory().is_some(),
                kind.mdb().is_some(),
                kind.settings::<LdapSettings>().is_some(),
                kind.settings::<MetaSettings>().is_some(),
            );
            let expected = match kind.storage() {
                Storage::Computed | Storage::SharedEngine | Storage::Elsewhere => {
                    (false, false, false, false)
                }
                Storage::Lmdb => (true, true, false, false),
                Storage::LdifFiles => (true, false, false, false),
                Storage::OtherServer => (false, false, true, false),
                Storage::OtherServers => (false, false, false, true),
            };
            assert_eq!(found, expected, "{}", kind.name());
            assert_eq!(kind.is_stored(), kind.directory().is_some(), "{}", kind.name());
            assert!(kind.is_served() || kind.storage() == Storage::Computed, "{}", kind.name());
            #[cfg(feature = "kv")]
            assert_eq!(
                kind.is_in_shared_engine(),
                kind.settings::<KvSettings>().is_some(),
                "{}",
                kind.name()
            );
        }
    }

    /// The other kinds, the directives and the attributes that a descriptor names are there.
    #[test]
    fn every_descriptor_names_what_there_is() {
        for descriptor in descriptors() {
            let name = descriptor.name;
            assert!(!descriptor.shares_directives_of.contains(&name), "{name} shares its own directives");
            for other in descriptor.shares_directives_of {
                let other = descriptor_of(other).unwrap_or_else(|| panic!("{name}: {other} is no kind"));
                assert!(!other.directives.is_empty(), "{name}: {} has no directives", other.name);
            }
            for directive in descriptor.directives {
                let is_own = matches!(directive.scope, Scope::Kind(kind) if kind == name);
                assert!(is_own || directive.scope == Scope::Backend, "{name}: {}", directive.keyword);
            }
            for (attribute, _) in descriptor.defaults {
                let is_known = super::super::directives::all().any(|known| known.attribute == *attribute);
                assert!(is_known, "{name}: {attribute} is no directive");
            }
            assert!(descriptor.own_root.is_none() || descriptor.own_suffix.is_some(), "{name}");
        }
        for kind in [SERVER_KIND, CACHE_KIND] {
            assert!(served_kinds().contains(&kind), "{kind}");
        }
    }

    #[test]
    fn an_unknown_kind_is_refused_with_the_served_ones() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        std::fs::write(&file, "database mbd\n").unwrap();
        let error = Config::from_slapd_conf(&file).unwrap_err().to_string();
        let (_, help) = error.split_once("help: ").unwrap();
        let offered: Vec<&str> = help.split([',', ' ']).filter(|word| !["", "or"].contains(word)).collect();
        assert_eq!(offered, [served_kinds(), vec!["frontend"]].concat());
        assert_eq!(offered.contains(&"kv"), cfg!(feature = "kv"));
    }

    #[test]
    fn some_kinds_have_index_lines() {
        let expected: &[&str] =
            if cfg!(feature = "kv") { &["olcMdbConfig", "olcLarixKvConfig"] } else { &["olcMdbConfig"] };
        assert_eq!(indexed_classes().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_kind_has_names_of_its_own() {
        let mut names = HashSet::new();
        for descriptor in descriptors() {
            for name in descriptor.formerly.iter().chain([&descriptor.name]) {
                assert!(names.insert(*name), "{name} twice");
                let kind = DatabaseKind::named(&name.to_ascii_uppercase()).expect("a kind");
                assert_eq!(kind.name(), descriptor.name);
                assert_eq!(kind.clone().name(), descriptor.name);
            }
        }
        assert!(DatabaseKind::named("frontend").is_none());
    }
}
