//! The schema: everything that is defined, by name and by number.

use std::collections::HashMap;
use std::sync::Arc;

use crate::lexical::is_numeric_oid;
use crate::matching_rules::{self, MatchingRule};
use crate::model::{AttributeType, AttributeTypeId, ContentRule, ObjectClass, ObjectClassId};
use crate::options::AttributeOptions;
use crate::syntaxes::Syntax;
use crate::table::{Chunks, NameTable};

/// An immutable schema, to be shared as `Arc<Schema>`. Cloning is cheap, too.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    pub(crate) attributes: Chunks<AttributeType>,
    pub(crate) attribute_names: NameTable<AttributeTypeId>,
    pub(crate) classes: Chunks<ObjectClass>,
    pub(crate) class_names: NameTable<ObjectClassId>,
    pub(crate) syntaxes: Chunks<Syntax>,
    pub(crate) syntax_oids: NameTable<Arc<Syntax>>,
    /// In the order of definition, and by the OID of the structural class.
    pub(crate) content_rules: Chunks<ContentRule>,
    pub(crate) content_rule_names: NameTable<Arc<ContentRule>>,
    pub(crate) oid_macros: NameTable<Arc<str>>,
    pub(crate) options: Arc<AttributeOptions>,
    pub(crate) fingerprint: u64,
    /// Tells this schema from all others of the process; 0 for the system schema.
    pub(crate) instance: u64,
    /// Numbers of what an earlier schema had and this one has not.
    pub(crate) removed: Arc<RemovedElements>,
}

/// Elements of earlier schemas, by OID. They keep their numbers: a holder of a number may look at what it was.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemovedElements {
    pub(crate) attributes: HashMap<String, AttributeTypeId>,
    pub(crate) classes: HashMap<String, ObjectClassId>,
}

impl Schema {
    /// The attribute type of this name or OID.
    pub fn attribute_type(&self, name_or_oid: &str) -> Option<&AttributeType> {
        self.attribute_type_id(name_or_oid).map(|id| self.attribute(id))
    }

    pub fn attribute_type_id(&self, name_or_oid: &str) -> Option<AttributeTypeId> {
        self.attribute_names.get(name_or_oid).copied()
    }

    pub(crate) fn attribute_type_id_of(&self, name_or_oid: &[u8]) -> Option<AttributeTypeId> {
        self.attribute_names.get_octets(name_or_oid).copied()
    }

    /// The attribute type of this number, which must come from this schema or one that it extends.
    #[allow(clippy::expect_used)] // A number from elsewhere is a bug of the caller.
    pub fn attribute(&self, id: AttributeTypeId) -> &AttributeType {
        self.attributes.get(id.0 as usize).expect("an attribute type of this schema")
    }

    /// The attribute type of this number, if there is one: for numbers of unknown origin.
    pub fn get_attribute(&self, id: AttributeTypeId) -> Option<&AttributeType> {
        self.attributes.get(id.0 as usize).map(|attribute| &**attribute)
    }

    /// The object class of this name or OID.
    pub fn object_class(&self, name_or_oid: &str) -> Option<&ObjectClass> {
        self.object_class_id(name_or_oid).map(|id| self.class(id))
    }

    pub fn object_class_id(&self, name_or_oid: &str) -> Option<ObjectClassId> {
        self.class_names.get(name_or_oid).copied()
    }

    /// The object class of this number, which must come from this schema or one that it extends.
    #[allow(clippy::expect_used)] // A number from elsewhere is a bug of the caller.
    pub fn class(&self, id: ObjectClassId) -> &ObjectClass {
        self.classes.get(id.0 as usize).expect("an object class of this schema")
    }

    /// The matching rule of this name or OID.
    pub fn matching_rule(&self, name_or_oid: &str) -> Option<&'static MatchingRule> {
        matching_rules::find(name_or_oid)
    }

    pub fn syntax(&self, oid: &str) -> Option<&Arc<Syntax>> {
        self.syntax_oids.get(oid)
    }

    /// The content rule that governs entries of the structural class.
    pub fn content_rule(&self, class: ObjectClassId) -> Option<&ContentRule> {
        self.content_rule_names.get(&self.classes.get(class.0 as usize)?.oid).map(|rule| &**rule)
    }

    /// All attribute types by number, which is the order of definition but for those that came later.
    pub fn attribute_types(&self) -> impl Iterator<Item = &AttributeType> {
        let removed = &self.removed.attributes;
        let is_defined =
            move |attribute: &&AttributeType| removed.is_empty() || !removed.contains_key(&attribute.oid);
        self.attributes.iter().map(|attribute| &**attribute).filter(is_defined)
    }

    pub fn object_classes(&self) -> impl Iterator<Item = &ObjectClass> {
        let removed = &self.removed.classes;
        let is_defined = move |class: &&ObjectClass| removed.is_empty() || !removed.contains_key(&class.oid);
        self.classes.iter().map(|class| &**class).filter(is_defined)
    }

    /// Attribute types and object classes of `earlier` that are not here any more, or that mean something else: to
    /// entries that have them, this schema does not do. Both have the same numbers for what both have.
    ///
    /// A class that requires no more and allows no less than it did means the same to entries.
    pub fn broken_since(&self, earlier: &Self) -> (Vec<AttributeTypeId>, Vec<ObjectClassId>) {
        let keeps_names = |now: &[String], then: &[String]| {
            // Entries are stored under the first name, and DNs with any.
            now.first() == then.first()
                && then.iter().all(|name| now.iter().any(|other| other.eq_ignore_ascii_case(name)))
        };
        let attributes = earlier.attributes.unshared_items(&self.attributes).filter(|then| {
            let is_defined = !earlier.removed.attributes.contains_key(&then.oid);
            let now = self.attribute_type(&then.oid).filter(|now| now.id == then.id);
            is_defined
                && now.is_none_or(|now| {
                    !keeps_names(&now.names, &then.names)
                        || now.syntax.oid != then.syntax.oid
                        || (now.superior, now.equality, now.ordering, now.substring)
                            != (then.superior, then.equality, then.ordering, then.substring)
                        || now.single_value && !then.single_value
                        || (now.collective, now.no_user_modification, now.usage)
                            != (then.collective, then.no_user_modification, then.usage)
                })
        });
        let classes = earlier.classes.unshared_items(&self.classes).filter(|then| {
            let is_defined = !earlier.removed.classes.contains_key(&then.oid);
            let now = self.object_class(&then.oid).filter(|now| now.id == then.id);
            is_defined
                && now.is_none_or(|now| {
                    !keeps_names(&now.names, &then.names)
                        || (now.kind, &now.superiors) != (then.kind, &then.superiors)
                        || now.all_must.iter().any(|id| !then.all_must.contains(id))
                        || then.all_must.iter().chain(&then.all_may).any(|id| !now.allows(*id))
                })
        });
        let mut attributes: Vec<_> = attributes.map(|then| then.id).collect();
        let mut classes: Vec<_> = classes.map(|then| then.id).collect();
        let (now, then) = (&self.removed, &earlier.removed);
        attributes.extend(
            now.attributes.iter().filter(|(oid, _)| !then.attributes.contains_key(*oid)).map(|(_, id)| *id),
        );
        classes.extend(
            now.classes.iter().filter(|(oid, _)| !then.classes.contains_key(*oid)).map(|(_, id)| *id),
        );
        attributes.sort_unstable();
        attributes.dedup();
        classes.sort_unstable();
        classes.dedup();
        (attributes, classes)
    }

    pub fn syntaxes(&self) -> impl Iterator<Item = &Syntax> {
        self.syntaxes.iter().map(|syntax| &**syntax)
    }

    pub fn content_rules(&self) -> impl Iterator<Item = &ContentRule> {
        self.content_rules.iter().map(|rule| &**rule)
    }

    /// Whether `sub` is `sup` or one of its direct and indirect subtypes.
    pub fn is_subtype(&self, sub: AttributeTypeId, sup: AttributeTypeId) -> bool {
        sub == sup || self.get_attribute(sub).is_some_and(|sub| sub.superiors.contains(&sup))
    }

    /// The type itself and all its direct and indirect subtypes, ascending.
    pub fn subtypes(&self, id: AttributeTypeId) -> &[AttributeTypeId] {
        &self.attribute(id).subtypes
    }

    /// Whether `sub` is `sup` or one of its direct and indirect subclasses.
    pub fn is_subclass(&self, sub: ObjectClassId, sup: ObjectClassId) -> bool {
        sub == sup || self.class(sub).ancestry.binary_search(&sup).is_ok()
    }

    /// The tagging options that attribute descriptions may carry.
    pub fn options(&self) -> &AttributeOptions {
        &self.options
    }

    /// A number that changes when the keys of values may: names, OIDs, superiors, rules and syntaxes of the attribute
    /// types, OIDs and superiors of the object classes. The same on every machine.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The OID that a text stands for: itself, that of an OID macro (`Macro`, `Macro:1.2`), or of what has the name.
    pub fn resolve_oid(&self, text: &str) -> Option<String> {
        let (name, suffix) = match text.split_once(':') {
            Some((name, suffix)) => (name, Some(suffix)),
            None => (text, None),
        };
        if suffix.is_none() && is_numeric_oid(text.as_bytes()) {
            return Some(text.to_owned());
        }
        let base = self.oid_macros.get(name).map(|oid| &**oid).or_else(|| self.oid_of_name(name))?;
        Some(suffix.map_or_else(|| base.to_owned(), |suffix| format!("{base}.{suffix}")))
    }

    /// The OID of a control or an extended operation: as [`Self::resolve_oid`], and by the names that OpenLDAP 2.7's core schema
    /// has, whether or not this one has them.
    pub fn resolve_request_oid(&self, text: &str) -> Option<String> {
        self.resolve_oid(text).or_else(|| larix_proto::oid::of_request(text).map(str::to_owned))
    }

    /// The OID behind a name of any kind of element.
    pub(crate) fn oid_of_name(&self, name: &str) -> Option<&str> {
        self.object_class(name)
            .map(|class| class.oid.as_str())
            .or_else(|| self.attribute_type(name).map(|attribute| attribute.oid.as_str()))
            .or_else(|| self.matching_rule(name).map(|rule| rule.oid))
    }
}

#[cfg(test)]
mod tests;
