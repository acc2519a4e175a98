//! Entries made into a model.

use std::sync::Arc;

use larix_engine::access::Quoting;

use super::super::balancer;
use super::super::builder::call::{At, Call, Fault, switch_word};
use super::super::builder::directive::{BalancerPart, Cardinality, Directive, Form, Scope};
use super::super::builder::{Builder, Section};
use super::super::defaults::is_default;
use super::super::diagnostic::{ConfigError, Excerpt, Origin};
use super::super::directives::{self};
use super::super::entry::{ConfigAttribute, ConfigEntry};
use super::super::kinds::{DatabaseKind, SERVER_KIND, target_attributes};
use super::super::line;
use super::super::model::{Config, Earlier, ModuleList, SchemaSection, Source};
use super::super::settings::Settings;
use super::super::value_list::ValueList;
use super::super::{chain, translucent};
use super::below_overlays::EntryBelow;
use super::names::{EntryName, Role, split_number};
use super::reusable_schema::ReusableSchema;

/// Of a database or of an overlay: it is not in force.
const DISABLED: &str = "olcDisabled";

/// Attributes that say nothing to a directive.
pub(super) const PLAIN: [&str; 15] = [
    "objectClass",
    "cn",
    "olcDatabase",
    "olcOverlay",
    "olcBackend",
    "olcConfigFile",
    "olcConfigDir",
    "structuralObjectClass",
    "entryUUID",
    "creatorsName",
    "createTimestamp",
    "entryCSN",
    "modifiersName",
    "modifyTimestamp",
    "contextCSN",
];

/// Whether an attribute says nothing to a directive.
pub(crate) fn is_plain(description: &str) -> bool {
    PLAIN.into_iter().chain(target_attributes()).any(|plain| plain.eq_ignore_ascii_case(description))
}

/// Builds and validates a configuration. The entries are kept as they are, in their order of effect.
///
/// # Errors
/// Names the entry, the attribute and the value.
pub(crate) fn from_entries(
    mut all: Vec<Arc<ConfigEntry>>,
    source: Source,
    earlier: Earlier<'_>,
) -> Result<Config, ConfigError> {
    let mut named = Vec::with_capacity(all.len());
    for mut entry in all.drain(..) {
        let name = EntryName::parse(&entry.dn).map_err(|message| fault_of_entry(&entry.dn, message))?;
        ConfigEntry::name_itself(&mut entry);
        named.push((name, entry));
    }
    named.sort_by_cached_key(|(name, _)| name.order());
    if named.first().is_none_or(|(name, _)| name.role != Role::Global) {
        let origin = Origin::Value { dn: Arc::from("cn=config"), attribute: "objectClass".to_owned() };
        return Err(
            ConfigError::new(origin, "the entry cn=config is missing").with_help("it must come first")
        );
    }
    let mut builder = Builder::new(true);
    let reusable = match earlier {
        Earlier::Before(config) => Some(ReusableSchema::find(config, &named)),
        Earlier::Nothing | Earlier::Kept => None,
    };
    if let Some(reusable) = &reusable {
        reusable.followed_by(&mut builder);
    }
    let mut faults = Faults::default();
    for (name, entry) in &named {
        if faults.hide(name) {
            continue;
        }
        if !matches!(name.role, Role::Global | Role::Module | Role::SchemaRoot | Role::Schema(_))
            && let Err(fault) = builder.define_awaited()
        {
            faults.found.push(fault);
            ConfigError::together(std::mem::take(&mut faults.found))?;
        }
        let applied = match (&reusable, &name.role) {
            (Some(reusable), Role::Schema(section)) => reusable.apply(&mut builder, section, entry)?,
            _ => false,
        };
        if !applied {
            let databases = builder.databases.len();
            if let Err(fault) = apply_entry(&mut builder, name, entry) {
                let is_opened = builder.databases.len() > databases;
                faults.take(fault, name, is_opened)?;
            }
            if matches!(name.role, Role::Schema(_)) {
                builder.end_section(None);
            }
        }
    }
    ConfigError::together(faults.found)?;
    let mut config = builder.finish(source);
    config.read_entries = Some(named.into_iter().map(|(_, entry)| entry).collect());
    super::super::validate::complete_after(config, earlier)
}

/// So many faults are shown.
const FAULTS_MAX: usize = 20;

/// What is wrong with entries, as far as it does not follow from another fault.
#[derive(Debug, Default)]
struct Faults {
    found: Vec<ConfigError>,
    /// Entries that opened no section, so that those below them have none.
    closed: Vec<Vec<(String, String)>>,
}

impl Faults {
    /// Whether the entry stands below one of those.
    fn hide(&self, name: &EntryName) -> bool {
        self.closed.iter().any(|path| name.path.starts_with(path))
    }

    /// # Errors
    /// All faults, if what follows would have other ones by this one.
    fn take(&mut self, fault: ConfigError, name: &EntryName, is_opened: bool) -> Result<(), ConfigError> {
        let is_definition = std::iter::once(&fault).chain(&fault.others).any(is_of_definition);
        self.found.push(fault);
        match name.role {
            Role::Database(_) if is_opened => {}
            Role::Global | Role::Module => {}
            _ => self.closed.push(name.path.clone()),
        }
        // What the schema lacks is missing everywhere.
        let is_of_schema = is_definition || matches!(name.role, Role::Schema(_));
        if is_of_schema || self.found.len() >= FAULTS_MAX {
            return ConfigError::together(std::mem::take(&mut self.found));
        }
        Ok(())
    }
}

/// Whether a fault is one of a definition, which cn=config itself may have, too.
fn is_of_definition(fault: &ConfigError) -> bool {
    let Origin::Value { attribute, .. } = &fault.origin else { return false };
    directives::all().any(|directive| {
        (directive.scope == Scope::Schema || directive.keyword == "attributeoptions")
            && directive.attribute.eq_ignore_ascii_case(attribute)
    })
}

fn fault_of_entry(dn: &str, message: String) -> ConfigError {
    ConfigError::new(Origin::Value { dn: Arc::from(dn), attribute: "dn".to_owned() }, message)
}

fn apply_entry(builder: &mut Builder, name: &EntryName, entry: &ConfigEntry) -> Result<(), ConfigError> {
    let dn: Arc<str> = Arc::from(entry.dn.as_str());
    builder.schema_section = None;
    match &name.role {
        Role::Global => builder.section = Section::Global,
        Role::Module => {
            builder.section = Section::Global;
            builder.modules.push(ModuleList::default());
        }
        // What is built in is built in; OpenLDAP, too, does not read it again.
        Role::SchemaRoot => return Ok(()),
        Role::Schema(section) => {
            builder.section = Section::Global;
            builder
                .schema_sections
                .push(Arc::new(SchemaSection { name: section.clone(), settings: Settings::default() }));
            builder.schema_section = Some(builder.schema_sections.len() - 1);
        }
        Role::Backend(kind) => builder.open_backend(kind),
        Role::BalancerTier(tier) => {
            let strategy = balancer::Strategy::RoundRobin;
            let tier = balancer::TierSettings { name: tier.clone(), strategy, backends: Vec::new() };
            builder.global.balancer.get_or_insert_default().tiers.push(tier);
            builder.section = Section::BalancerPart(BalancerPart::Tier);
        }
        Role::BalancerBackend(server) => return balanced_server(builder, server, entry, &dn),
        Role::Database(kind) => {
            structure(builder, "database", kind, &dn)?;
            if builder.section == Section::Frontend {
                warn_of_overridden(builder, entry);
            }
        }
        Role::Overlay(kind) => {
            structure(builder, "overlay", kind, &dn)?;
            return apply_overlay(builder, entry, &dn);
        }
        Role::Detail if is_server_below(name) => {
            let origin = Origin::Value { dn: Arc::clone(&dn), attribute: "olcDatabase".to_owned() };
            let has_uri = !entry.values("olcDbURI").is_empty();
            let outer = builder.section;
            let opened = match is_below(name, translucent::NAME) {
                true => translucent::open_entry(builder, &origin),
                false => chain::open_entry(builder, has_uri, &origin),
            };
            opened.map_err(|fault| error_of(fault, &origin, None, 0))?;
            let applied = apply_attributes(builder, &entry.attributes, &dn);
            builder.section = outer;
            return applied;
        }
        Role::Detail if is_target(name) => {
            if entry.values("olcDbURI").is_empty() {
                let origin = Origin::Value { dn, attribute: "olcDbURI".to_owned() };
                return Err(ConfigError::new(origin, "a target needs a URI")
                    .with_help("such as ldap://ldap.example.com/dc=example,dc=com"));
            }
            // It belongs to the database above it: what opens it is its olcDbURI, which comes first.
            let outer = builder.section;
            let applied = apply_attributes(builder, &entry.attributes, &dn);
            builder.section = outer;
            return applied;
        }
        Role::Detail => {
            if let Some(below) = EntryBelow::of(name, entry) {
                return below.apply(builder, entry, &dn);
            }
            let origin = Origin::Value { dn, attribute: "dn".to_owned() };
            builder.notes.push(origin, "has no effect: it belongs to something that is not supported");
            return Ok(());
        }
    }
    apply_attributes(builder, &entry.attributes, &dn)
}

/// Warns of what cn=config sets for all databases and the frontend sets otherwise: the frontend comes later, and holds.
fn warn_of_overridden(builder: &mut Builder, frontend: &ConfigEntry) {
    let is_of_all = |directive: &&Directive| {
        matches!(directive.scope, Scope::Shared | Scope::Frontend)
            && directive.cardinality == Cardinality::One
            && matches!(directive.form, Form::Whole | Form::Switch | Form::Dn)
    };
    for directive in directives::all().filter(is_of_all) {
        let attribute = directive.attribute;
        let earlier = builder.global.settings.get(attribute).first();
        let (Some(earlier), Some(later)) = (earlier, frontend.values(attribute).first()) else { continue };
        if earlier.eq_ignore_ascii_case(later) || is_default(attribute, earlier) {
            continue;
        }
        let value = String::from_utf8_lossy(later);
        let text = format!("has no effect: {} says {value}; change it there", frontend.dn);
        let origin = Origin::Value { dn: Arc::from("cn=config"), attribute: attribute.to_owned() };
        builder.notes.warn(origin, &text);
    }
}

/// Applies the entry of an overlay that was opened. Its olcDisabled is about itself: the directive is one of databases.
fn apply_overlay(builder: &mut Builder, entry: &ConfigEntry, dn: &Arc<str>) -> Result<(), ConfigError> {
    let Some(value) = entry.values(DISABLED).first() else {
        return apply_attributes(builder, &entry.attributes, dn);
    };
    let Some(is_disabled) = std::str::from_utf8(value).ok().and_then(switch_word) else {
        let origin = Origin::Value { dn: Arc::clone(dn), attribute: DISABLED.to_owned() };
        return Err(ConfigError::new(origin, "neither TRUE nor FALSE"));
    };
    let database = match builder.section {
        Section::Database(number) => Some(number),
        _ => None,
    };
    if let Some(overlay) = builder.overlays_mut(database).and_then(|overlays| overlays.last_mut()) {
        overlay.disabled = is_disabled;
    }
    let is_other = |attribute: &&ConfigAttribute| !attribute.description.eq_ignore_ascii_case(DISABLED);
    let others: Vec<ConfigAttribute> = entry.attributes.iter().filter(is_other).cloned().collect();
    apply_attributes(builder, &others, dn)
}

/// A server of the balancer: of the tier above it, which was applied last.
fn balanced_server(
    builder: &mut Builder,
    name: &str,
    entry: &ConfigEntry,
    dn: &Arc<str>,
) -> Result<(), ConfigError> {
    fn tiers(builder: &mut Builder) -> Option<&mut balancer::TierSettings> {
        builder.global.balancer.as_mut()?.tiers.last_mut()
    }
    let origin = Origin::Value { dn: Arc::clone(dn), attribute: "olcBkLloadBackendUri".to_owned() };
    let Some(tier) = tiers(builder) else {
        return Err(ConfigError::new(origin, "the entry of its tier is missing").with_help("add it first"));
    };
    tier.backends.push(balancer::BackendSettings::new(name));
    builder.section = Section::BalancerPart(BalancerPart::Backend);
    apply_attributes(builder, &entry.attributes, dn)?;
    let server = tiers(builder).and_then(|tier| tier.backends.last());
    server
        .map_or(Ok(()), balancer::check_server)
        .map_err(|wrong| ConfigError::new(origin, wrong.message).with_help(wrong.help))
}

/// Whether an entry is that of a server that an overlay asks.
pub(crate) fn is_server_below(name: &EntryName) -> bool {
    is_below(name, chain::NAME) || is_below(name, translucent::NAME)
}

fn is_below(name: &EntryName, asking: &str) -> bool {
    let [.., (above, overlay), (attribute, kind)] = name.path.as_slice() else { return false };
    above == "olcoverlay"
        && split_number(overlay).1 == asking
        && attribute == "olcdatabase"
        && split_number(kind).1 == SERVER_KIND
}

/// Whether an entry is that of a target of a database.
pub(crate) fn is_target(name: &EntryName) -> bool {
    let [_, (above, kind), (attribute, _)] = name.path.as_slice() else { return false };
    let kind = DatabaseKind::named(split_number(kind).1).filter(|_| above == "olcdatabase");
    let target = kind.and_then(|kind| kind.descriptor().target);
    target.is_some_and(|(naming, _)| naming.eq_ignore_ascii_case(attribute))
}

/// Applies attributes to the section that is open.
///
/// # Errors
/// All faults of the attributes; of definitions the first one, by which others may lack a name.
pub(super) fn apply_attributes(
    builder: &mut Builder,
    given: &[ConfigAttribute],
    dn: &Arc<str>,
) -> Result<(), ConfigError> {
    let mut attributes: Vec<(usize, &'static Directive, &ConfigAttribute)> = Vec::new();
    let mut faults = Vec::new();
    for attribute in given {
        let description = attribute.description.as_str();
        if is_plain(description) {
            continue;
        }
        let Some(directive) = directives::by_attribute(description, &builder.context()) else {
            faults.push(unknown(dn, description));
            continue;
        };
        let rank = directives::all().position(|other| std::ptr::eq(other, directive)).unwrap_or(usize::MAX);
        attributes.push((rank, directive, attribute));
    }
    attributes.sort_by_key(|(rank, _, _)| *rank);
    for (_, directive, attribute) in attributes {
        if let Err(fault) = apply_attribute(builder, directive, attribute, dn) {
            faults.push(fault);
            if directive.scope == Scope::Schema {
                break;
            }
        }
    }
    ConfigError::together(faults)
}

/// Opens a database or an overlay as its slapd.conf line would.
fn structure(builder: &mut Builder, keyword: &str, kind: &str, dn: &Arc<str>) -> Result<(), ConfigError> {
    let attribute = if keyword == "database" { "olcDatabase" } else { "olcOverlay" };
    let origin = Origin::Value { dn: Arc::clone(dn), attribute: attribute.to_owned() };
    let Some(directive) = directives::all().find(|directive| directive.keyword == keyword) else {
        return Err(ConfigError::new(origin, "not known"));
    };
    let arguments = [kind.to_owned()];
    let call = Call {
        directive,
        arguments: &arguments,
        text: kind,
        quoting: Quoting::Ldif,
        bytes: kind.as_bytes(),
        origin: &origin,
    };
    builder.apply(&call).map_err(|fault| error_of(fault, &origin, None, 0))
}

fn apply_attribute(
    builder: &mut Builder,
    directive: &'static Directive,
    attribute: &ConfigAttribute,
    dn: &Arc<str>,
) -> Result<(), ConfigError> {
    let origin = Origin::Value { dn: Arc::clone(dn), attribute: directive.attribute.to_owned() };
    if directive.cardinality == Cardinality::One && attribute.values.len() > 1 {
        return Err(ConfigError::new(origin, "has more than one value, but only one is possible"));
    }
    let ordered = directive.cardinality == Cardinality::Ordered;
    for value in in_order(&attribute.values, ordered) {
        if matches!(directive.form, Form::Bytes | Form::Secret) {
            let call = Call {
                directive,
                arguments: &[String::new()],
                text: "",
                quoting: Quoting::Ldif,
                bytes: value,
                origin: &origin,
            };
            builder.apply(&call).map_err(|fault| error_of(fault, &origin, None, 0))?;
            continue;
        }
        let Ok(text) = std::str::from_utf8(value) else {
            return Err(ConfigError::new(origin, "a value is not UTF-8 text"));
        };
        let text = text.trim();
        if directive.is_word() && !text.starts_with('"') && text.contains(line::is_space) {
            let fault = Fault::keyword("one word is wanted here: blanks have to be in quotes");
            return Err(error_of(fault.with_help(format!("\"{text}\"")), &origin, Some(text), 0));
        }
        let words = match directive.form {
            // A DN or a path may hold blanks; quotes around the whole are taken off.
            Form::Whole | Form::Dn | Form::Switch if !text.starts_with('"') => {
                vec![line::Word { text: text.to_owned(), start: 0, end: text.len() }]
            }
            _ => line::value_words(text),
        };
        let arguments: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
        let call = Call {
            directive,
            arguments: &arguments,
            text,
            quoting: Quoting::Ldif,
            bytes: value,
            origin: &origin,
        };
        builder.apply(&call).map_err(|fault| {
            let at = match fault.at {
                At::Keyword => 0,
                At::Argument(number) => words.get(number).map_or(0, |word| word.start),
                At::Text(offset) => offset,
            };
            error_of(fault, &origin, Some(text), at)
        })?;
    }
    Ok(())
}

/// Values by their `{n}`, which is taken off; those without one keep their place at the end.
fn in_order(values: &ValueList, ordered: bool) -> Vec<&[u8]> {
    if !ordered {
        return values.iter().map(Vec::as_slice).collect();
    }
    let mut numbered: Vec<(i32, &[u8])> = values
        .iter()
        .map(|value| {
            let end = value.iter().position(|byte| *byte == b'}').map_or(0, |at| at + 1);
            let prefix = std::str::from_utf8(value.get(..end).unwrap_or_default()).unwrap_or_default();
            match split_number(prefix) {
                (Some(number), "") => (number, value.get(end..).unwrap_or_default()),
                _ => (i32::MAX, value.as_slice()),
            }
        })
        .collect();
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, value)| value).collect()
}

pub(super) fn error_of(fault: Fault, origin: &Origin, text: Option<&str>, at: usize) -> ConfigError {
    let mut error = ConfigError::new(origin.clone(), fault.message);
    if let Some(text) = text {
        let text = text.replace(['\n', '\r'], " ");
        let column = text.get(..at).map_or(1, |before| before.chars().count() + 1);
        let width =
            text.get(at..).map_or(1, |rest| rest.split(' ').next().map_or(1, |word| word.chars().count()));
        error = error.with_excerpt(Excerpt { text, column, width });
    }
    match fault.help {
        Some(help) => error.with_help(help),
        None => error,
    }
}

fn unknown(dn: &Arc<str>, description: &str) -> ConfigError {
    let origin = Origin::Value { dn: Arc::clone(dn), attribute: description.to_owned() };
    let known = directives::all().find(|directive| directive.attribute.eq_ignore_ascii_case(description));
    match known {
        Some(directive) => {
            let error = ConfigError::new(origin, "is not possible in this entry");
            match directive.scope {
                Scope::Overlay(name) => {
                    error.with_help(format!("it belongs into an entry of the overlay {name}"))
                }
                Scope::Balancer(_) => {
                    error.with_help("it belongs into the entry of `backend lload`, or below it")
                }
                Scope::Kind(kind) => {
                    error.with_help(format!("it belongs into an entry of a {kind} database"))
                }
                _ => error,
            }
        }
        None => {
            let error = ConfigError::new(origin, "no such attribute is known");
            match directives::suggestion(description, true) {
                Some(known) => error.with_help(format!("did you mean `{known}`?")),
                None => error,
            }
        }
    }
}
