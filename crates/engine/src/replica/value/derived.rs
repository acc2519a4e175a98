//! What an entry needs beside what its changes left of it: a function of the merged version, so that every server adds the
//! same.

use larix_proto::LdapResult;
use larix_schema::{AttributeDescription, ObjectClass, Schema, Usage};

use super::registers::{Content, Rule, Value, Version, value_key};
use super::rule_of;
use crate::change::prepare::{ChangeKind, naming_changes};
use crate::write::KnownSchema;
use crate::write::values;

/// Completes a merged version that is called `rdn`: the values of its name, and classes that were removed and that an
/// attribute needs which another server changed meanwhile.
///
/// # Errors
/// A name that is none.
pub(super) fn complete(
    schema: &Schema,
    known: &KnownSchema,
    version: &mut Version,
    rdn: &str,
) -> Result<(), LdapResult> {
    for naming in naming_changes(schema, rdn, ChangeKind::SoftAdd)? {
        let is_single = schema.attribute(naming.description.attribute).single_value;
        let present = version.content.entry(naming.description.clone()).or_default();
        for (value, normal) in naming.values.into_iter().zip(naming.keys) {
            if present.iter().any(|present| present.normal == normal) {
                continue;
            }
            if is_single && rule_of(schema, known, &naming.description) == Rule::Whole {
                present.clear();
            }
            present.push(Value { normal, value });
        }
    }
    let missing = missing_classes(schema, known, version);
    let classes = version.content.entry(AttributeDescription::plain(known.object_class)).or_default();
    classes.extend(missing);
    Ok(())
}

/// Classes that were removed, and without which an attribute would not be allowed.
fn missing_classes(schema: &Schema, known: &KnownSchema, version: &Version) -> Vec<Value> {
    let object_class = AttributeDescription::plain(known.object_class);
    let Some(registers) = version.state.attributes.get(&object_class) else { return Vec::new() };
    let kind = schema.attribute(known.object_class);
    let removed = |class: &&ObjectClass| {
        let key = values::key(schema, kind, class.name().as_bytes()).unwrap_or_default();
        registers.values.get(&value_key(&key)).is_some_and(|register| !register.present)
    };
    if registers.values.values().all(|register| register.present) {
        return Vec::new();
    }
    let mut present: Vec<&ObjectClass> = classes(schema, &version.content, &object_class);
    if known.classes.extensible_object.is_some_and(|id| present.iter().any(|class| class.id == id)) {
        return Vec::new();
    }
    // The order must not be that of this server's schema.
    let mut removed: Vec<&ObjectClass> = schema.object_classes().filter(removed).collect();
    removed.sort_by(|a, b| a.oid.cmp(&b.oid));
    let mut descriptions: Vec<&AttributeDescription> = version.content.keys().collect();
    descriptions.sort_by_cached_key(|description| description.to_text(schema));
    let mut found = Vec::new();
    for description in descriptions {
        let id = description.attribute;
        let allows = |class: &&ObjectClass| class.all_must().contains(&id) || class.all_may().contains(&id);
        if schema.attribute(id).usage != Usage::UserApplications || present.iter().any(allows) {
            continue;
        }
        if let Some(class) = removed.iter().find(|class| allows(class)) {
            present.push(class);
            let value = class.name().as_bytes().to_vec();
            let normal = values::key(schema, kind, &value).unwrap_or_default();
            found.push(Value { normal, value });
        }
    }
    found
}

fn classes<'s>(
    schema: &'s Schema,
    content: &Content,
    object_class: &AttributeDescription,
) -> Vec<&'s ObjectClass> {
    let values = content.get(object_class).into_iter().flatten();
    values.filter_map(|value| schema.object_class(std::str::from_utf8(&value.value).ok()?)).collect()
}
