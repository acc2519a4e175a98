//! Whether an entry obeys the schema (RFC 4512 sections 2.4, 2.5 and 4.1.6), with OpenLDAP's result codes and
//! diagnostic messages, and in its order of checks.
//!
//! Pure: works on an owned entry. Values of large sets are not looked at; their number and the one question that
//! naming asks about them suffice.

use larix_proto::{LdapResult, Rdn, ResultCode};
use larix_schema::{
    AttributeDescription, AttributeType, AttributeTypeId, ClassKind, ContentRule, ObjectClass, ObjectClassId,
    Schema,
};

use super::change::{LargeSets, large_contains};
use super::known::{KnownSchema, PermittedIn};
use super::values;
use crate::entry::values::member_key_of_normal;
use crate::entry::{Entry, EntryAttribute};
use crate::failure::Failure;
use crate::fault::Fault;

/// How strictly, and for which operation.
#[derive(Copy, Clone, Debug, Default)]
pub struct CheckMode {
    /// The relax rules control: obsolete elements and a change of the structural class pass.
    pub relax: bool,
    /// An add: the structural class is determined, and missing naming values are added.
    pub add: bool,
    /// Auxiliary classes need a content rule that allows them (`disallow aux_wo_cr`).
    pub auxiliary_needs_rule: bool,
    /// Dynamic objects (RFC 2589) may stand here.
    pub dynamic_objects: bool,
    /// No overlay looks at the entry, which is loaded or stored: what it would say of dynamic objects is said here.
    pub alone: bool,
}

/// Checks `entry` and completes it: on an add `structuralObjectClass` is set and naming values that are missing are
/// added; under relax a changed structural class is recorded.
///
/// # Errors
/// objectClassViolation, namingViolation, constraintViolation, objectClassModsProhibited, and other for entries that
/// were damaged before.
pub fn check_entry(
    schema: &Schema,
    known: &KnownSchema,
    entry: &mut Entry,
    mode: CheckMode,
    sets: &dyn LargeSets,
) -> Result<(), Failure> {
    if let Some(list) = known.checked.find(entry.values(known.object_class), mode)
        && list.covers(known, entry, mode)
    {
        let recorded = AttributeDescription::plain(known.structural_object_class);
        let recorded = entry.attribute_or_insert(&recorded);
        if recorded.values.is_empty() {
            recorded.values.push(list.structural().to_vec());
        }
        let before = entry.attributes.len();
        check_naming((schema, known), entry, mode, sets)?;
        // The name may have brought an attribute that the list has not seen.
        if entry.attributes.len() == before || list.covers(known, entry, mode) {
            return Ok(());
        }
    }
    let classes = class_facts(schema, known, entry);
    check_attributes(schema, known, entry, (&classes, mode))?;
    let class_values = entry.values(known.object_class).to_vec();
    let checked = structural_class(schema, &class_values)?;
    let structural = settle_structural_class(schema, known, entry, &checked, mode)?;
    record_structural_class(schema, known, entry, structural);
    if known.classes.glue != Some(structural.id) {
        check_naming((schema, known), entry, mode, sets)?;
    }
    let rule = schema.content_rule(structural.id);
    if let Some(rule) = rule {
        check_content_rule(schema, entry, rule, mode)?;
    }
    let check = ClassCheck { schema, known, entry, structural, rule, classes: &checked.classes, mode };
    let extensible = check.run()?;
    if !extensible {
        check.attributes_allowed()?;
    }
    if rule.is_none() && known.classes.glue != Some(structural.id) && !classes.dynamic {
        let what = (structural.name(), check.must());
        known.checked.keep(schema, known, (&class_values, mode), what, |id| extensible || check.allows(id));
    }
    Ok(())
}

/// Checks a part of an entry: what can be said of it without the rest.
///
/// # Errors
/// constraintViolation: several values of a single-valued attribute.
pub(crate) fn check_part(schema: &Schema, entry: &Entry) -> Result<(), LdapResult> {
    let is_single =
        |attribute: &&EntryAttribute| schema.attribute(attribute.description.attribute).single_value;
    match entry.attributes.iter().filter(is_single).find(|attribute| attribute.count() > 1) {
        Some(attribute) => Err(several_values(schema, attribute)),
        None => Ok(()),
    }
}

fn several_values(schema: &Schema, attribute: &EntryAttribute) -> LdapResult {
    let text = format!("attribute '{}' cannot have multiple values", attribute.description.to_text(schema));
    LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text)
}

/// Notes the structural class of an entry that is not checked otherwise: the server cannot do without it.
pub(crate) fn name_structural_class(schema: &Schema, known: &KnownSchema, entry: &mut Entry) {
    if entry.values(known.structural_object_class).is_empty() {
        renew_structural_class(schema, known, entry);
    }
}

/// The same after a change, which may have given the entry another one.
pub(crate) fn renew_structural_class(schema: &Schema, known: &KnownSchema, entry: &mut Entry) {
    let classes = entry.values(known.object_class).to_vec();
    if let Ok(checked) = structural_class(schema, &classes) {
        record_structural_class(schema, known, entry, checked.structural);
    }
}

fn class_violation(text: String) -> LdapResult {
    LdapResult::with(ResultCode::OBJECT_CLASS_VIOLATION, text)
}

/// What kind of entry the classes make it, for the checks that come before the classes themselves are checked.
#[derive(Debug, Default)]
struct ClassFacts {
    alias: bool,
    referral: bool,
    subentry: bool,
    collective_subentry: bool,
    dynamic: bool,
}

fn class_facts(schema: &Schema, known: &KnownSchema, entry: &Entry) -> ClassFacts {
    let mut facts = ClassFacts::default();
    for value in entry.values(known.object_class) {
        let Some(class) = class_of(schema, value) else { continue };
        let is = |wanted: Option<ObjectClassId>| {
            wanted.is_some_and(|w| class.id == w || schema.is_subclass(class.id, w))
        };
        facts.alias |= is(known.classes.alias);
        facts.referral |= is(known.classes.referral);
        facts.subentry |= is(known.classes.subentry);
        facts.collective_subentry |= is(known.classes.collective_attribute_subentry);
        facts.dynamic |= is(known.classes.dynamic_object);
    }
    facts
}

fn class_of<'s>(schema: &'s Schema, value: &[u8]) -> Option<&'s ObjectClass> {
    schema.object_class(std::str::from_utf8(value).ok()?)
}

fn check_attributes(
    schema: &Schema,
    known: &KnownSchema,
    entry: &Entry,
    (classes, mode): (&ClassFacts, CheckMode),
) -> Result<(), LdapResult> {
    for attribute in &entry.attributes {
        let kind = schema.attribute(attribute.description.attribute);
        let name = || attribute.description.to_text(schema);
        if let Some(place) = known.place_of(kind.id) {
            check_permitted(place, (classes, mode), &name)?;
        }
        if kind.collective && !classes.collective_subentry {
            return Err(class_violation(format!(
                "'{}' can only appear in collectiveAttributeSubentry",
                name()
            )));
        }
        if kind.single_value && attribute.count() > 1 {
            return Err(several_values(schema, attribute));
        }
    }
    Ok(())
}

fn check_permitted(
    place: PermittedIn,
    (classes, mode): (&ClassFacts, CheckMode),
    name: &dyn Fn() -> String,
) -> Result<(), LdapResult> {
    let text = match place {
        PermittedIn::RootDse => "only allowed in the root DSE",
        PermittedIn::Alias if !classes.alias => "only allowed in the alias",
        PermittedIn::Referral if !classes.referral => "only allowed in the referral",
        PermittedIn::Subentry if !classes.subentry => "only allowed in the subentry",
        PermittedIn::Dynamic if !mode.dynamic_objects => "not supported in context",
        PermittedIn::Dynamic if mode.alone && !classes.dynamic => "only allowed in dynamic object",
        PermittedIn::Nowhere => "not supported!",
        PermittedIn::Alias | PermittedIn::Referral | PermittedIn::Subentry | PermittedIn::Dynamic => {
            return Ok(());
        }
    };
    Err(class_violation(format!("attribute \"{}\" {text}", name())))
}

/// The classes of an entry, resolved.
#[derive(Debug)]
pub struct CheckedClasses<'s, 'v> {
    /// Each class with the value that named it, in the order of the values.
    pub classes: Vec<(&'s ObjectClass, &'v [u8])>,
    /// The most specific structural class.
    pub structural: &'s ObjectClass,
}

/// Resolves the values of `objectClass` and finds the structural class: the one at the end of the only chain.
///
/// # Errors
/// objectClassViolation: no value, an unknown class, no structural class, or more than one chain.
pub fn structural_class<'s, 'v>(
    schema: &'s Schema,
    values: &'v [Vec<u8>],
) -> Result<CheckedClasses<'s, 'v>, LdapResult> {
    if values.is_empty() {
        return Err(class_violation("no objectClass attribute".to_owned()));
    }
    let classes = values
        .iter()
        .map(|value| {
            let unknown = || class_violation(format!("unrecognized objectClass '{}'", lossy(value)));
            Ok((class_of(schema, value).ok_or_else(unknown)?, value.as_slice()))
        })
        .collect::<Result<Vec<_>, LdapResult>>()?;
    let below = |a: &ObjectClass, b: &ObjectClass| a.id == b.id || schema.is_subclass(a.id, b.id);
    let mut chosen: Option<(&ObjectClass, &[u8])> = None;
    for (position, &(class, value)) in classes.iter().enumerate() {
        if class.kind != ClassKind::Structural {
            continue;
        }
        match chosen {
            Some((structural, _)) if !below(class, structural) && !below(structural, class) => {
                // Two branches are in order when a later value joins them.
                let joined = classes.iter().skip(position + 1).any(|(later, _)| {
                    later.kind == ClassKind::Structural && below(later, structural) && below(later, class)
                });
                if !joined {
                    let first = chosen.map_or(&[][..], |(_, value)| value);
                    return Err(class_violation(format!(
                        "invalid structural object class chain ({}/{})",
                        lossy(first),
                        lossy(value)
                    )));
                }
            }
            Some((structural, _)) if below(structural, class) => {}
            _ => chosen = Some((class, value)),
        }
    }
    match chosen {
        Some((structural, _)) => Ok(CheckedClasses { classes, structural }),
        None => Err(class_violation("no structural object class provided".to_owned())),
    }
}

/// Compares the structural class found with the recorded one, and records it where that is allowed.
fn settle_structural_class<'s>(
    schema: &'s Schema,
    known: &KnownSchema,
    entry: &Entry,
    checked: &CheckedClasses<'s, '_>,
    mode: CheckMode,
) -> Result<&'s ObjectClass, LdapResult> {
    let other = |text: String| LdapResult::with(ResultCode::OTHER, text);
    let recorded = match entry.values(known.structural_object_class) {
        [] if mode.add => checked.structural,
        [] => return Err(other("no structuralObjectClass operational attribute".to_owned())),
        [value, ..] => {
            let unknown =
                || class_violation(format!("unrecognized structuralObjectClass '{}'", lossy(value)));
            let class = class_of(schema, value).ok_or_else(unknown)?;
            if class.kind != ClassKind::Structural {
                let text = format!("structuralObjectClass '{}' is not STRUCTURAL", lossy(value));
                return Err(other(text));
            }
            class
        }
    };
    if recorded.obsolete && !mode.relax {
        return Err(class_violation(format!("structuralObjectClass '{}' is OBSOLETE", recorded.name())));
    }
    if recorded.id != checked.structural.id && !mode.relax && known.classes.glue != Some(recorded.id) {
        let text = format!(
            "structural object class modification from '{}' to '{}' not allowed",
            entry.values(known.structural_object_class).first().map_or_else(String::new, |v| lossy(v)),
            checked.structural.name()
        );
        return Err(LdapResult::with(ResultCode::OBJECT_CLASS_MODS_PROHIBITED, text));
    }
    Ok(checked.structural)
}

fn record_structural_class(
    schema: &Schema,
    known: &KnownSchema,
    entry: &mut Entry,
    structural: &ObjectClass,
) {
    let description = AttributeDescription::plain(known.structural_object_class);
    let attribute = entry.attribute_or_insert(&description);
    let same = |value: &Vec<u8>| class_of(schema, value).is_some_and(|class| class.id == structural.id);
    if !matches!(attribute.values.as_slice(), [value] if same(value)) {
        attribute.values = vec![structural.name().as_bytes().to_vec()];
    }
}

/// Every value of the RDN stands in the entry (RFC 4512 section 2.3). An add supplies what is missing, but for classes: the entry's
/// have been looked at by then.
fn check_naming(
    (schema, known): (&Schema, &KnownSchema),
    entry: &mut Entry,
    mode: CheckMode,
    sets: &dyn LargeSets,
) -> Result<(), Failure> {
    if entry.dn.is_empty() {
        return Ok(());
    }
    let rdn = entry.rdn().to_owned();
    let unrecognized = || {
        LdapResult::with(ResultCode::INVALID_DN_SYNTAX, "unrecognized attribute type(s) in RDN".to_owned())
    };
    let rdn = Rdn::parse(&rdn).map_err(|_| unrecognized())?;
    for ava in rdn.avas() {
        let naming = |text: String| LdapResult::with(ResultCode::NAMING_VIOLATION, text);
        if ava.hex {
            let text = format!("value of naming attribute '{}' in unsupported BER form", ava.attribute);
            return Err(naming(text).into());
        }
        let description = schema.describe(ava.attribute).map_err(|error| {
            LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, format!("{error} (in RDN)"))
        })?;
        let kind = schema.attribute(description.attribute);
        if let Some(fault) = unfit_for_naming(kind, mode) {
            return Err(naming(format!("naming attribute '{}' {fault}", ava.attribute)).into());
        }
        let Ok(key) = values::key(schema, kind, &ava.value) else {
            return Err(naming(format!("value of naming attribute '{}' is invalid", ava.attribute)).into());
        };
        let existing = entry.attribute(&description);
        if let Some(attribute) = existing
            && contains(schema, attribute, &key, sets)?
        {
            continue;
        }
        let missing_value = match existing {
            Some(_) if !mode.add || kind.id == known.object_class => {
                Some("value of naming attribute '{}' is not present in entry")
            }
            Some(_) if kind.single_value => {
                Some("value of single-valued naming attribute '{}' conflicts with value present in entry")
            }
            None if !mode.add => Some("naming attribute '{}' is not present in entry"),
            _ => None,
        };
        if let Some(text) = missing_value {
            return Err(naming(text.replace("{}", ava.attribute)).into());
        }
        let attribute = entry.attribute_or_insert(&description);
        match &mut attribute.large {
            Some(large) => drop(large.added.insert(member_key_of_normal(&key), ava.value.to_vec())),
            None => attribute.values.push(ava.value.to_vec()),
        }
    }
    Ok(())
}

/// Why a type may not name entries.
pub(super) fn unfit_for_naming(kind: &AttributeType, mode: CheckMode) -> Option<&'static str> {
    if kind.is_operational() {
        Some("is operational")
    } else if kind.collective {
        Some("is collective")
    } else if kind.obsolete && !mode.relax {
        Some("is obsolete")
    } else if kind.equality.is_none() {
        Some("has no equality matching rule")
    } else {
        None
    }
}

fn contains(
    schema: &Schema,
    attribute: &EntryAttribute,
    key: &[u8],
    sets: &dyn LargeSets,
) -> Result<bool, Fault> {
    if let Some(large) = &attribute.large {
        return large_contains(sets, &attribute.description, large, &member_key_of_normal(key));
    }
    if attribute.unchanged.is_some() {
        return sets.keeps(&attribute.description, key);
    }
    let kind = schema.attribute(attribute.description.attribute);
    Ok(attribute.values.iter().any(|value| values::key(schema, kind, value).is_ok_and(|k| k == key)))
}

fn has_type(entry: &Entry, attribute: AttributeTypeId) -> bool {
    entry.attributes.iter().any(|a| a.description.attribute == attribute)
}

fn check_content_rule(
    schema: &Schema,
    entry: &Entry,
    rule: &ContentRule,
    mode: CheckMode,
) -> Result<(), LdapResult> {
    if rule.obsolete && !mode.relax {
        return Err(class_violation(format!("content rule '{}' is obsolete", rule.name())));
    }
    let name = |id: &AttributeTypeId| schema.attribute(*id).name().to_owned();
    if let Some(missing) = rule.must.iter().find(|id| !has_type(entry, **id)) {
        let text = format!("content rule '{}' requires attribute '{}'", rule.name(), name(missing));
        return Err(class_violation(text));
    }
    if let Some(present) = rule.not.iter().find(|id| has_type(entry, **id)) {
        let text = format!("content rule '{}' precluded attribute '{}'", rule.name(), name(present));
        return Err(class_violation(text));
    }
    Ok(())
}

/// The checks that go class by class.
struct ClassCheck<'a> {
    schema: &'a Schema,
    known: &'a KnownSchema,
    entry: &'a Entry,
    structural: &'a ObjectClass,
    rule: Option<&'a ContentRule>,
    classes: &'a [(&'a ObjectClass, &'a [u8])],
    mode: CheckMode,
}

impl ClassCheck<'_> {
    /// Answers whether the entry is extensible, so that any attribute is allowed.
    fn run(&self) -> Result<bool, LdapResult> {
        let mut extensible = false;
        for &(class, value) in self.classes {
            if class.obsolete && !self.mode.relax {
                return Err(class_violation(format!("objectClass '{}' is OBSOLETE", lossy(value))));
            }
            self.check_class(class)?;
            match class.kind {
                ClassKind::Abstract => self.check_abstract(class, value)?,
                ClassKind::Structural if class.id != self.structural.id => {}
                ClassKind::Structural | ClassKind::Auxiliary => {
                    if class.kind == ClassKind::Auxiliary {
                        self.check_auxiliary(class)?;
                    }
                    if let Some(missing) = self.missing(class) {
                        let name = self.schema.attribute(missing).name();
                        let text = format!("object class '{}' requires attribute '{name}'", lossy(value));
                        return Err(class_violation(text));
                    }
                    extensible |= self.known.classes.extensible_object == Some(class.id);
                }
            }
        }
        Ok(extensible)
    }

    fn check_class(&self, class: &ObjectClass) -> Result<(), LdapResult> {
        let known = &self.known.classes;
        let id = Some(class.id);
        let subentry = || class_facts(self.schema, self.known, self.entry).subentry;
        let text = if id == known.root_dse {
            "only allowed in the root DSE"
        } else if id == known.dynamic_object && !self.mode.dynamic_objects {
            "not supported in context"
        } else if (id == known.subschema || id == known.collective_attribute_subentry) && !subentry() {
            "only allowed in subentries"
        } else {
            return Ok(());
        };
        Err(class_violation(format!("objectClass \"{}\" {text}", class.oid)))
    }

    /// An abstract class stands in an entry only as a superior of one that is not.
    fn check_abstract(&self, class: &ObjectClass, value: &[u8]) -> Result<(), LdapResult> {
        let based = class.id == self.known.top
            || self.schema.is_subclass(self.structural.id, class.id)
            || self
                .classes
                .iter()
                .any(|(c, _)| c.kind == ClassKind::Auxiliary && self.schema.is_subclass(c.id, class.id))
            || self.classes.len() == 1;
        if based {
            return Ok(());
        }
        let text = format!("instantiation of abstract objectClass '{}' not allowed", lossy(value));
        Err(class_violation(text))
    }

    fn check_auxiliary(&self, class: &ObjectClass) -> Result<(), LdapResult> {
        let text = match self.rule {
            Some(rule) if !rule.auxiliary.contains(&class.id) => {
                format!("class '{}' not allowed by content rule '{}'", class.name(), rule.name())
            }
            None if self.mode.auxiliary_needs_rule => {
                format!("class '{}' not allowed by any content rule", class.name())
            }
            _ => return Ok(()),
        };
        Err(class_violation(text))
    }

    /// The first attribute that the class requires and the entry lacks: superiors' requirements come first.
    fn missing(&self, class: &ObjectClass) -> Option<AttributeTypeId> {
        if class.all_must().iter().all(|id| has_type(self.entry, *id)) {
            return None;
        }
        let inherited = class.superiors.iter().find_map(|id| self.missing(self.schema.class(*id)));
        inherited.or_else(|| class.must.iter().copied().find(|id| !has_type(self.entry, *id)))
    }

    /// What the structural class, the auxiliary ones and their superiors require.
    fn must(&self) -> Vec<AttributeTypeId> {
        let counts =
            |class: &ObjectClass| class.id == self.structural.id || class.kind == ClassKind::Auxiliary;
        let classes = self.classes.iter().filter(|(class, _)| counts(class));
        let mut must: Vec<_> = classes.flat_map(|(class, _)| class.all_must()).copied().collect();
        must.sort_unstable();
        must.dedup();
        must
    }

    fn attributes_allowed(&self) -> Result<(), LdapResult> {
        for attribute in &self.entry.attributes {
            let kind = self.schema.attribute(attribute.description.attribute);
            if kind.is_operational() || kind.id == self.known.object_class || self.allows(kind.id) {
                continue;
            }
            let name = attribute.description.to_text(self.schema);
            return Err(class_violation(format!("attribute '{name}' not allowed")));
        }
        Ok(())
    }

    fn allows(&self, attribute: AttributeTypeId) -> bool {
        self.rule.is_some_and(|r| r.must.contains(&attribute) || r.may.contains(&attribute))
            || self.structural.allows(attribute)
            || self
                .classes
                .iter()
                .any(|(class, _)| class.kind == ClassKind::Auxiliary && class.allows(attribute))
    }
}

fn lossy(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}
