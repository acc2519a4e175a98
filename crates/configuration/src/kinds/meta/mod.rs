//! `database meta` and `database asyncmeta`: entries of several other servers as one tree (slapd-meta(5), slapd-asyncmeta(5)). What
//! slapd-ldap(5) has of connections holds for each target (`super::ldap`).

mod directives;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_backend::meta::{NameLifetime, OnError, Subtrees};
use larix_proxy::ProxySettings;
use larix_rewrite::Mapping;
use larix_rewrite::lines::{self, LineFault};
use larix_schema::Schema;
use regex::Regex;

use super::super::builder::call::Fault;
use super::super::builder::{Builder, Section};
use super::super::diagnostic::{ConfigError, Origin};
use super::super::model::{Config, Database};
use super::super::settings::Settings;
use super::super::values::ConfigDn;
use super::{Descriptor, KindSettings, NOTHING, Storage, ldap};

/// The name of the kind.
const NAME: &str = "meta";

pub(super) static DESCRIPTOR: Descriptor = Descriptor {
    name: NAME,
    shares_directives_of: &[ldap::NAME],
    storage: Storage::OtherServers,
    class: Some("olcMetaConfig"),
    target: Some(("olcMetaSub", "olcMetaTargetConfig")),
    settings: || Box::new(MetaSettings::default()),
    directives: directives::TABLE,
    ..NOTHING
};

pub(super) static ASYNCHRONOUS: Descriptor = Descriptor {
    name: "asyncmeta",
    shares_directives_of: &[NAME, ldap::NAME],
    storage: Storage::OtherServers,
    class: Some("olcAsyncMetaConfig"),
    target: Some(("olcAsyncMetaSub", "olcAsyncMetaTargetConfig")),
    settings: || Box::new(MetaSettings::asynchronous()),
    directives: directives::ASYNCHRONOUS,
    ..NOTHING
};

/// Targets of one database.
const TARGETS_MAX: usize = 64;

/// Settings of both kinds.
#[derive(Clone, Debug)]
pub struct MetaSettings {
    /// What stands before the first `uri`: each target begins with it.
    common: ProxySettings,
    pub targets: Vec<MetaTarget>,
    pub on_error: OnError,
    /// The number of a target, from 0.
    pub default_target: Option<usize>,
    /// How long it is remembered which of several targets has an entry; none: not at all.
    pub known_names: Option<NameLifetime>,
    /// Whether this is `database asyncmeta`, which OpenLDAP's monitor shows in another way.
    pub is_asynchronous: bool,
}

impl Default for MetaSettings {
    fn default() -> Self {
        Self {
            // As in slapd.
            common: ProxySettings { absolute_filters: false, ..ProxySettings::default() },
            targets: Vec::new(),
            on_error: OnError::default(),
            default_target: None,
            known_names: None,
            is_asynchronous: false,
        }
    }
}

/// One `uri`, with what belongs to it.
#[derive(Clone, Debug)]
pub struct MetaTarget {
    pub proxy: ProxySettings,
    /// Where its entries are seen.
    pub suffix: ConfigDn,
    pub subtrees: Subtrees,
    /// Patterns of filters that searches in it have; empty: any.
    pub filters: Vec<Regex>,
    /// Lines of rules that rewrite names, and of maps: their words.
    rewrite: Vec<Vec<String>>,
    maps: Vec<Vec<String>>,
    /// The directives by olc attribute.
    pub(in super::super) shown: Settings,
    origin: Origin,
}

impl MetaTarget {
    /// The mapping of names, attributes and classes; none where everything is the same there.
    ///
    /// # Errors
    /// A line that cannot be understood where it stands.
    pub fn mapping(&self, schema: &Arc<Schema>) -> Result<Option<Mapping>, LineFault> {
        if self.rewrite.is_empty() && self.maps.is_empty() {
            return Ok(None);
        }
        let (rewrite, maps) = (self.rewrite.iter(), self.maps.iter());
        let suffix = Some(self.suffix.text.as_str());
        let mapping =
            lines::mapping(schema, (suffix, ""), rewrite.map(Vec::as_slice), maps.map(Vec::as_slice))?;
        Ok(Some(mapping.with_absolute_filters(self.proxy.absolute_filters)))
    }

    /// A line `suffixmassage` whose first name no request to this database has: it would do nothing.
    fn massage_of_elsewhere(&self, schema: &Schema, database: &Database) -> Option<ConfigError> {
        let mut here = self.rewrite.iter().filter_map(|words| match words.as_slice() {
            [keyword, here, _] if keyword.eq_ignore_ascii_case("suffixmassage") => {
                ConfigDn::parse_relaxed(schema, here).ok()
            }
            _ => None,
        });
        let is_here =
            |dn: &ConfigDn| database.suffixes.iter().any(|suffix| dn.normal.is_within(&suffix.normal));
        let elsewhere = here.find(|dn| !is_here(dn))?;
        let message = format!("suffixmassage: \"{elsewhere}\" is not within a suffix of this database");
        let help = format!("the first name is the one that clients use, such as \"{}\"", self.suffix);
        Some(ConfigError::new(self.origin.clone(), message).with_help(help))
    }
}

impl MetaSettings {
    /// Of `database asyncmeta`: a target that is about to close may still answer.
    fn asynchronous() -> Self {
        let mut settings = Self { is_asynchronous: true, ..Self::default() };
        settings.common.outlives_notice = true;
        settings
    }

    /// The places for connections to each target that take requests in turn (`max-target-conns`); none: connections are opened as they
    /// are needed.
    pub fn connection_groups(&self) -> Option<u32> {
        let places =
            self.targets.iter().filter(|target| target.proxy.in_turn).map(|target| target.proxy.pool_max);
        places.max()
    }
}

impl KindSettings for MetaSettings {
    fn targets(&self) -> Vec<&Settings> {
        self.targets.iter().map(|target| &target.shown).collect()
    }

    fn refusals(&self, config: &Config, database: &Database, found: &mut Vec<ConfigError>) {
        for target in &self.targets {
            found.extend(target.massage_of_elsewhere(&config.schema, database));
            if let Err(fault) = target.mapping(&config.schema) {
                found.push(ConfigError::new(target.origin.clone(), fault.message).with_help(fault.help));
            }
        }
    }

    /// Under cn=config targets are added one by one, and a file says what is there.
    fn note(&self) -> Option<&'static str> {
        let text = "this database has no target, and finds nothing: add one, such as uri ldap://ldap.example.com/dc=example,dc=com";
        self.targets.is_empty().then_some(text)
    }

    fn check(&self, database: &Database) -> Result<(), ConfigError> {
        for target in &self.targets {
            let is_above = |suffix: &ConfigDn| target.suffix.normal.is_within(&suffix.normal);
            if !database.suffixes.iter().any(is_above) {
                let message = format!("\"{}\" is not within a suffix of this database", target.suffix);
                let help = "the name in a uri says where the target's entries are seen; `suffixmassage` says what it is there";
                return Err(ConfigError::new(target.origin.clone(), message).with_help(help));
            }
            ldap::check(&target.proxy, &target.origin)?;
        }
        match self.default_target.filter(|number| *number >= self.targets.len()) {
            None => Ok(()),
            Some(number) => {
                let message = format!("default-target {}: there is no such target", number + 1);
                let help = format!("from 1 to {}, in the order of the uri lines", self.targets.len());
                Err(ConfigError::new(database.origin.clone(), message).with_help(help))
            }
        }
    }
}

/// The settings of connections that a directive sets: of the open target, or of all before the first.
pub(super) fn proxy(builder: &mut Builder) -> Result<&mut ProxySettings, Fault> {
    let section = builder.section;
    let settings = builder.settings_of::<MetaSettings>()?;
    match section {
        Section::Target { number, .. } => match settings.targets.get_mut(number) {
            Some(target) => Ok(&mut target.proxy),
            None => Err(Fault::keyword("the target is not there")),
        },
        _ => Ok(&mut settings.common),
    }
}

/// Where the values of a target's directives are kept.
pub(in super::super) fn target_settings(database: &mut Database, number: usize) -> Option<&mut Settings> {
    let settings = database.kind.settings_mut::<MetaSettings>()?;
    settings.targets.get_mut(number).map(|target| &mut target.shown)
}
