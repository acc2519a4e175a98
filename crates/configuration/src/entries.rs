//! The configuration as entries under cn=config: made from the model, and made into it.

mod apply;
mod below_overlays;
mod names;
mod repeated;
mod reusable_schema;

use std::sync::Arc;

use larix_proto::dn::write_escaped;

use super::balancer::{self, TierSettings};
use super::builder::directive::{Cardinality, Directive, Form, Scope};
use super::directives;
use super::entry::ConfigEntry;
use super::kinds::descriptor_of;
use super::line;
use super::model::{Config, Database, Overlay};
use super::settings::Settings;
use super::value_list::ValueList;

pub(super) use apply::{from_entries, is_plain, is_server_below, is_target};
pub(super) use below_overlays::EntryBelow;
pub(super) use names::{EntryName, Role, split_number};
pub(super) use repeated::repeats;

impl ConfigEntry {
    /// The values of a section, with `{n}` where their order counts.
    fn settings(&mut self, settings: &Settings) {
        let rank = |attribute: &str| {
            directives::all().position(|directive| directive.attribute == attribute).unwrap_or(usize::MAX)
        };
        let kind = kind_of(self);
        let mut all: Vec<_> = settings.iter().collect();
        all.sort_by_key(|setting| rank(setting.attribute));
        for setting in all {
            let own = || directives::all().filter(|directive| directive.attribute == setting.attribute);
            let ordered = own().any(|directive| directive.cardinality == Cardinality::Ordered);
            let is_word = takes_word(kind.as_deref(), setting.attribute);
            // An empty word is read again from no value; as in slapd it has none.
            let may_be_empty = !is_word && own().all(|directive| directive.form != Form::Each);
            let given = setting.values.iter().filter(|value| may_be_empty || !value.is_empty());
            let values: ValueList = given
                .enumerate()
                .map(|(number, value)| {
                    let mut text = if ordered { format!("{{{number}}}").into_bytes() } else { Vec::new() };
                    match std::str::from_utf8(value) {
                        Ok(word) if is_word => text.extend_from_slice(line::quoted(word).as_bytes()),
                        _ => text.extend_from_slice(value),
                    }
                    text
                })
                .collect();
            if !values.is_empty() {
                self.add(setting.attribute, values);
            }
        }
    }
}

/// The kind of the database that an entry is.
pub(super) fn kind_of(entry: &ConfigEntry) -> Option<String> {
    let name = std::str::from_utf8(entry.values("olcDatabase").first()?).ok()?;
    Some(split_number(name).1.to_ascii_lowercase())
}

/// Whether a value of this attribute is one word, which slapd cuts out of it: with blanks it has to be in quotes. Where slapd takes
/// the value whole, as with the directory of another kind of database, quotes would be a part of it.
pub(super) fn takes_word(kind: Option<&str>, attribute: &str) -> bool {
    let all = || directives::all().filter(|directive| directive.attribute.eq_ignore_ascii_case(attribute));
    let is_of_kind = |one: &Directive| matches!(one.scope, Scope::Kind(own) if Some(own) == kind);
    let has_own = all().any(is_of_kind);
    let own = || all().filter(|one| !has_own || is_of_kind(one));
    // A setting of the same name may be several words in databases of another kind.
    let is_words = |one: &Directive| one.form == Form::Words && one.scope != Scope::Foreign;
    own().any(Directive::is_word) && !own().any(is_words)
}

/// All entries of a configuration, parents before children, in the order in which `slapcat -n0` shows them.
///
/// What was read from a slapd.d is given as it was read, operational attributes and all.
pub fn entries(config: &Config) -> Vec<ConfigEntry> {
    match &config.read_entries {
        Some(read) => read.iter().map(|entry| ConfigEntry::clone(entry)).collect(),
        None => from_model(config),
    }
}

/// The same, shared: what a change leaves alone is never copied.
pub(super) fn shared(config: &Config) -> Vec<Arc<ConfigEntry>> {
    match &config.read_entries {
        Some(read) => read.clone(),
        None => from_model(config).into_iter().map(Arc::new).collect(),
    }
}

/// The entries as they are made from the model, whatever it was read from: two configurations that say the same things
/// in the same order have the same.
pub(super) fn from_model(config: &Config) -> Vec<ConfigEntry> {
    let mut all = vec![global(config)];
    for (number, list) in config.modules.iter().enumerate() {
        let mut entry = ConfigEntry::new(format!("cn=module{{{number}}},cn=config"), &["olcModuleList"]);
        entry.text("cn", &format!("module{{{number}}}"));
        entry.settings(&list.settings);
        all.push(entry);
    }
    let mut schema = ConfigEntry::new("cn=schema,cn=config", &["olcSchemaConfig"]);
    schema.text("cn", "schema");
    all.push(schema);
    for (number, section) in config.schema_sections.iter().enumerate() {
        let name = format!("{{{number}}}{}", section.name);
        let mut entry = ConfigEntry::new(format!("cn={name},cn=schema,cn=config"), &["olcSchemaConfig"]);
        entry.text("cn", &name);
        entry.settings(&section.settings);
        all.push(entry);
    }
    for (number, backend) in config.backends.iter().enumerate() {
        let name = format!("{{{number}}}{}", backend.name);
        let mut classes = vec!["olcBackendConfig"];
        classes.extend(match backend.name.as_str() {
            "harness" => Some("olcBkHarnessConfig"),
            balancer::MODULE => Some(balancer::CLASS),
            kind => descriptor_of(kind).and_then(|descriptor| descriptor.backend_class),
        });
        let mut entry = ConfigEntry::new(format!("olcBackend={name},cn=config"), &classes);
        entry.text("olcBackend", &name);
        entry.settings(&backend.settings);
        let balancer = config.global.balancer.as_ref().filter(|_| backend.name == balancer::MODULE);
        for (attribute, value) in balancer.iter().flat_map(|_| balancer::SHOWN_ALWAYS) {
            if entry.values(attribute).is_empty() {
                entry.text(attribute, value);
            }
        }
        let dn = entry.dn.clone();
        all.push(entry);
        balancer.iter().for_each(|balancer| tiers(&dn, &balancer.tiers, &mut all));
    }
    frontend(config, &mut all);
    for (number, database) in config.databases.iter().enumerate() {
        one_database(number, database, &mut all);
    }
    all
}

fn tiers(parent: &str, tiers: &[TierSettings], all: &mut Vec<ConfigEntry>) {
    let numbered = |number: usize, name: &str, above: &str, class: &str, settings: &Settings| {
        let name = format!("{{{number}}}{name}");
        let mut leaf = String::new();
        // Writing to a string does not fail.
        let _ = write_escaped(&mut leaf, name.as_bytes());
        let mut entry = ConfigEntry::new(format!("cn={leaf},{above}"), &[class]);
        entry.text("cn", &name);
        entry.settings(settings);
        entry
    };
    for (number, tier) in tiers.iter().enumerate() {
        let entry = numbered(number, &tier.name, parent, balancer::TIER_CLASS, &tier.config_settings());
        let dn = entry.dn.clone();
        all.push(entry);
        let servers = tier.backends.iter().enumerate();
        all.extend(servers.map(|(number, server)| {
            numbered(number, &server.name, &dn, balancer::BACKEND_CLASS, &server.config_settings())
        }));
    }
}

fn global(config: &Config) -> ConfigEntry {
    let mut entry = ConfigEntry::new("cn=config", &["olcGlobal"]);
    entry.text("cn", "config");
    if let super::model::Source::File(path) = &config.source {
        entry.text("olcConfigFile", &path.to_string_lossy());
    }
    entry.settings(&config.global.settings);
    entry
}

fn frontend(config: &Config, all: &mut Vec<ConfigEntry>) {
    let dn = "olcDatabase={-1}frontend,cn=config";
    let mut entry = ConfigEntry::new(dn, &["olcDatabaseConfig", "olcFrontendConfig"]);
    entry.text("olcDatabase", "{-1}frontend");
    entry.settings(&config.frontend.settings);
    all.push(entry);
    overlays(dn, &config.frontend.overlays, all);
}

fn one_database(number: usize, database: &Database, all: &mut Vec<ConfigEntry>) {
    let name = format!("{{{number}}}{}", database.kind.name());
    let dn = format!("olcDatabase={name},cn=config");
    let mut classes = vec!["olcDatabaseConfig"];
    classes.extend(database.kind.descriptor().class);
    let mut entry = ConfigEntry::new(dn.clone(), &classes);
    entry.text("olcDatabase", &name);
    entry.settings(&database.settings);
    if let Some(root) = database.kind.descriptor().own_root
        && entry.values("olcRootDN").is_empty()
    {
        entry.text("olcRootDN", root);
    }
    all.push(entry);
    for (number, target) in database.kind.targets().into_iter().enumerate() {
        let Some((attribute, class)) = database.kind.descriptor().target else { continue };
        let name = format!("{{{number}}}uri");
        let mut entry = ConfigEntry::new(format!("{attribute}={name},{dn}"), &[class]);
        entry.text(attribute, &name);
        entry.settings(target);
        all.push(entry);
    }
    overlays(&dn, &database.overlays, all);
}

fn overlays(parent: &str, overlays: &[Overlay], all: &mut Vec<ConfigEntry>) {
    for (number, overlay) in overlays.iter().enumerate() {
        let name = format!("{{{number}}}{}", overlay.name);
        let mut classes = vec!["olcOverlayConfig"];
        let own = directives::overlay_kind(&overlay.name).map(|kind| kind.class);
        classes.extend(own.filter(|class| *class != "olcOverlayConfig"));
        let mut entry = ConfigEntry::new(format!("olcOverlay={name},{parent}"), &classes);
        entry.text("olcOverlay", &name);
        if overlay.disabled {
            entry.text("olcDisabled", "TRUE");
        }
        entry.settings(&overlay.settings);
        if overlay.name == super::remote_auth::NAME {
            for (attribute, value) in super::remote_auth::SHOWN_ALWAYS {
                if entry.values(attribute).is_empty() {
                    entry.text(attribute, value);
                }
            }
        }
        let dn = entry.dn.clone();
        all.push(entry);
        for (number, database) in overlay.below.iter().enumerate() {
            let name = format!("{{{number}}}{}", database.kind.name());
            let mut classes: Vec<&str> = database.kind.descriptor().class.into_iter().collect();
            classes.push(match overlay.name == super::translucent::NAME {
                true => super::translucent::SERVER_CLASS,
                false => super::chain::SERVER_CLASS,
            });
            let mut entry = ConfigEntry::new(format!("olcDatabase={name},{dn}"), &classes);
            entry.text("olcDatabase", &name);
            entry.settings(&database.settings);
            all.push(entry);
        }
    }
}
