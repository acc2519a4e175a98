//! What a configuration shares with the one before it: schema that is the same need not be read again, so that a change
//! costs the same however much is defined.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::builder::{Builder, Defined, Section};
use super::super::diagnostic::ConfigError;
use super::super::directives::{defining_module, defining_overlay};
use super::super::entry::{ConfigAttribute, ConfigEntry};
use super::super::kinds::DatabaseKind;
use super::super::model::{Config, SchemaSection};
use super::apply::{PLAIN, apply_attributes};
use super::names::{EntryName, Role, split_number};

/// Attributes that make up the schema.
const DEFINING: [&str; 6] = [
    "olcAttributeOptions",
    "olcObjectIdentifier",
    "olcLdapSyntaxes",
    "olcAttributeTypes",
    "olcObjectClasses",
    "olcDitContentRules",
];

/// The earlier configuration, and how far its schema goes on. Definitions take effect in their order, so what stays has
/// to come before all that is new: sections as they were, and among these one that has more at its end: that more must not use
/// what comes behind it.
pub(super) struct ReusableSchema<'e> {
    earlier: &'e Config,
    /// Of its schema sections, in their order.
    entries: Vec<Arc<ConfigEntry>>,
    /// Sections that are as they were; none if the schema has to be made anew.
    same: Option<usize>,
}

fn defines_same(one: &Arc<ConfigEntry>, other: &Arc<ConfigEntry>) -> bool {
    Arc::ptr_eq(one, other) || DEFINING.iter().all(|name| one.values(name) == other.values(name))
}

/// What brings definitions of its own: overlays, modules by the names of their overlays, and kinds of databases.
fn bringers(named: &[(EntryName, Arc<ConfigEntry>)]) -> BTreeSet<&'static str> {
    let of_module = |value: &Vec<u8>| {
        let text = String::from_utf8_lossy(value);
        defining_module(split_number(text.trim()).1.split_whitespace().next().unwrap_or_default())
    };
    let of_kind = |kind: &str| {
        let descriptor = DatabaseKind::named(kind)?.descriptor();
        (!descriptor.schema.is_empty()).then_some(descriptor.name)
    };
    let mut found = BTreeSet::new();
    for (name, entry) in named {
        match &name.role {
            Role::Overlay(kind) => found.extend(defining_overlay(kind)),
            Role::Database(kind) => found.extend(of_kind(kind)),
            Role::Module => found.extend(entry.values("olcModuleLoad").iter().filter_map(of_module)),
            _ => {}
        }
    }
    found
}

/// Whether the definitions go on with all that were there. One whose OID is written by a name must not find that among the kinds of
/// definitions that are read behind its own.
fn goes_on(now: &ConfigEntry, before: &ConfigEntry) -> bool {
    let is_before_others =
        |kind: usize| DEFINING.iter().skip(kind + 1).any(|other| !before.values(other).is_empty());
    DEFINING.iter().enumerate().all(|(kind, name)| {
        let (now, before) = (now.values(name), before.values(name));
        now.starts_with(before)
            && !(is_before_others(kind) && now.behind(before.len()).any(|value| is_named_oid(name, value)))
    })
}

/// Whether the OID of a definition is written by a name, as `macro:1`.
fn is_named_oid(attribute: &str, value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value);
    let text = split_number(text.trim()).1.trim_start();
    let oid = match attribute {
        "olcObjectIdentifier" => text.split_whitespace().nth(1),
        _ => text.strip_prefix('(').and_then(|rest| rest.split_whitespace().next()),
    };
    oid.is_some_and(|oid| !oid.starts_with(|first: char| first.is_ascii_digit()))
}

impl<'e> ReusableSchema<'e> {
    pub(super) fn find(earlier: &'e Config, named: &[(EntryName, Arc<ConfigEntry>)]) -> Self {
        let named_before = |entry: Arc<ConfigEntry>| Some((EntryName::parse(&entry.dn).ok()?, entry));
        let before: Vec<(EntryName, Arc<ConfigEntry>)> =
            super::shared(earlier).into_iter().filter_map(named_before).collect();
        let sections = |named: &[(EntryName, Arc<ConfigEntry>)]| -> Vec<Arc<ConfigEntry>> {
            let all = named.iter().filter(|(name, _)| matches!(name.role, Role::Schema(_)));
            all.map(|(_, entry)| Arc::clone(entry)).collect()
        };
        let (entries, now) = (sections(&before), sections(named));
        let global = before.iter().find(|(name, _)| name.role == Role::Global);
        let same_global =
            global.zip(named.first()).is_some_and(|((_, before), (_, now))| defines_same(before, now));
        let same = entries.iter().zip(&now).take_while(|(before, now)| defines_same(before, now)).count();
        let tail_is_same = |entries: &[Arc<ConfigEntry>]| {
            let now = now.get(same + 1..).unwrap_or_default();
            entries.len() <= now.len()
                && entries.iter().zip(now).all(|(before, now)| defines_same(before, now))
        };
        let rest = match (entries.get(same..), now.get(same)) {
            (None | Some([]), _) => true,
            (Some([before]), Some(now)) => goes_on(now, before),
            // What comes behind that which grows stays as it is.
            (Some([before, rest @ ..]), Some(now)) => goes_on(now, before) && tail_is_same(rest),
            (Some(_), None) => false,
        };
        let known = [earlier.schema_sections.len(), earlier.schema_steps.len()];
        // What leaves takes its definitions along.
        let stays = bringers(&before).is_subset(&bringers(named));
        let whole = same_global && rest && stays && known == [entries.len(); 2];
        Self { earlier, entries, same: whole.then_some(same) }
    }

    /// To be called before anything is applied.
    pub(super) fn followed_by(&self, builder: &mut Builder) {
        let defined = if self.same.is_some() { Defined::Already } else { Defined::Not };
        builder.follow(&self.earlier.schema, defined);
    }

    /// Applies a schema section as far as it was there before. Answers whether that is all of it.
    pub(super) fn apply(
        &self,
        builder: &mut Builder,
        name: &str,
        entry: &ConfigEntry,
    ) -> Result<bool, ConfigError> {
        let Some(same) = self.same else { return Ok(false) };
        let number = builder.schema_sections.len();
        let Some((before, section)) = self.entries.get(number).zip(self.earlier.schema_sections.get(number))
        else {
            builder.defined = Defined::Not;
            return Ok(false);
        };
        let section = if section.name == name {
            Arc::clone(section)
        } else {
            Arc::new(SchemaSection { name: name.to_owned(), settings: section.settings.clone() })
        };
        builder.schema_sections.push(section);
        builder.section = Section::Global;
        builder.schema_section = Some(number);
        if number >= same {
            builder.defined = Defined::Not;
        }
        let step = self.earlier.schema_steps.get(number);
        if let Some(step) = step.filter(|_| number == same && number + 1 < self.entries.len()) {
            builder.go_in_front(step);
        }
        apply_attributes(builder, &added(entry, before), &Arc::from(entry.dn.as_str()))?;
        // Behind the last one is the whole schema.
        builder.end_section(step.filter(|_| number < same || number + 1 < self.entries.len()));
        Ok(true)
    }
}

/// What an entry says beyond the definitions that were there before.
fn added(now: &ConfigEntry, before: &ConfigEntry) -> Vec<ConfigAttribute> {
    let is_one_of = |names: &[&str], name: &str| names.iter().any(|other| other.eq_ignore_ascii_case(name));
    let extended = now.attributes.iter().filter(|attribute| !is_one_of(&PLAIN, &attribute.description));
    extended
        .map(|attribute| {
            let known = match is_one_of(&DEFINING, &attribute.description) {
                true => before.values(&attribute.description).len(),
                false => 0,
            };
            ConfigAttribute {
                description: attribute.description.clone(),
                values: attribute.values.behind(known).cloned().collect(),
            }
        })
        .collect()
}
