//! The schema elements that the write path itself has to know.

use std::fmt;

use larix_schema::{AttributeTypeId, ObjectClassId, Schema};

use super::checked_classes::CheckedLists;

/// Numbers of well-known attribute types and object classes, looked up once per schema.
#[derive(Clone, Debug)]
pub struct KnownSchema {
    pub object_class: AttributeTypeId,
    pub structural_object_class: AttributeTypeId,
    pub entry_uuid: AttributeTypeId,
    pub entry_csn: AttributeTypeId,
    pub context_csn: AttributeTypeId,
    pub creators_name: AttributeTypeId,
    pub create_timestamp: AttributeTypeId,
    pub modifiers_name: AttributeTypeId,
    pub modify_timestamp: AttributeTypeId,
    pub user_password: AttributeTypeId,
    pub aliased_object_name: AttributeTypeId,
    pub referral: AttributeTypeId,
    pub top: ObjectClassId,
    pub classes: KnownClasses,
    /// Attributes that only make sense in one kind of entry.
    pub(crate) placed: Vec<(AttributeTypeId, PermittedIn)>,
    /// Lists of classes that passed the check of entries by this schema.
    pub(super) checked: CheckedLists,
}

/// Object classes with rules of their own. Absent from a schema that does not define them.
#[derive(Clone, Debug)]
pub struct KnownClasses {
    pub alias: Option<ObjectClassId>,
    pub referral: Option<ObjectClassId>,
    pub glue: Option<ObjectClassId>,
    pub subentry: Option<ObjectClassId>,
    pub subschema: Option<ObjectClassId>,
    pub collective_attribute_subentry: Option<ObjectClassId>,
    pub extensible_object: Option<ObjectClassId>,
    pub dynamic_object: Option<ObjectClassId>,
    pub root_dse: Option<ObjectClassId>,
}

/// The kind of entry in which alone an attribute may appear.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum PermittedIn {
    RootDse,
    Alias,
    Referral,
    Subentry,
    Dynamic,
    Nowhere,
}

/// A schema without an attribute type or object class that no directory can do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingElement(pub &'static str);

impl fmt::Display for MissingElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the schema does not define {}", self.0)
    }
}

impl std::error::Error for MissingElement {}

const PLACED: [(&str, PermittedIn); 24] = [
    ("altServer", PermittedIn::RootDse),
    ("namingContexts", PermittedIn::RootDse),
    ("supportedControl", PermittedIn::RootDse),
    ("supportedExtension", PermittedIn::RootDse),
    ("supportedLDAPVersion", PermittedIn::RootDse),
    ("supportedSASLMechanisms", PermittedIn::RootDse),
    ("supportedFeatures", PermittedIn::RootDse),
    ("monitorContext", PermittedIn::RootDse),
    ("configContext", PermittedIn::RootDse),
    ("vendorName", PermittedIn::RootDse),
    ("vendorVersion", PermittedIn::RootDse),
    ("administrativeRole", PermittedIn::Nowhere),
    ("subtreeSpecification", PermittedIn::Subentry),
    ("dITStructureRules", PermittedIn::Subentry),
    ("dITContentRules", PermittedIn::Subentry),
    ("matchingRules", PermittedIn::Subentry),
    ("attributeTypes", PermittedIn::Subentry),
    ("objectClasses", PermittedIn::Subentry),
    ("nameForms", PermittedIn::Subentry),
    ("matchingRuleUse", PermittedIn::Subentry),
    ("ldapSyntaxes", PermittedIn::Subentry),
    ("aliasedObjectName", PermittedIn::Alias),
    ("ref", PermittedIn::Referral),
    ("entryTtl", PermittedIn::Dynamic),
];

impl KnownSchema {
    /// # Errors
    /// The first element that the schema lacks; none of one built on the system schema.
    pub fn of(schema: &Schema) -> Result<Self, MissingElement> {
        let attribute = |name| schema.attribute_type(name).map(|a| a.id).ok_or(MissingElement(name));
        let class = |name| schema.object_class(name).map(|c| c.id);
        Ok(Self {
            object_class: attribute("objectClass")?,
            structural_object_class: attribute("structuralObjectClass")?,
            entry_uuid: attribute("entryUUID")?,
            entry_csn: attribute("entryCSN")?,
            context_csn: attribute("contextCSN")?,
            creators_name: attribute("creatorsName")?,
            create_timestamp: attribute("createTimestamp")?,
            modifiers_name: attribute("modifiersName")?,
            modify_timestamp: attribute("modifyTimestamp")?,
            user_password: attribute("userPassword")?,
            aliased_object_name: attribute("aliasedObjectName")?,
            referral: attribute("ref")?,
            top: class("top").ok_or(MissingElement("top"))?,
            classes: KnownClasses {
                alias: class("alias"),
                referral: class("referral"),
                glue: class("glue"),
                subentry: class("subentry"),
                subschema: class("subschema"),
                collective_attribute_subentry: class("collectiveAttributeSubentry"),
                extensible_object: class("extensibleObject"),
                dynamic_object: class("dynamicObject"),
                root_dse: class("LDAProotDSE"),
            },
            placed: PLACED
                .iter()
                .filter_map(|(name, place)| Some((schema.attribute_type(name)?.id, *place)))
                .collect(),
            checked: CheckedLists::default(),
        })
    }

    /// Where alone an attribute may appear; `None` for one that may appear anywhere.
    pub(crate) fn place_of(&self, attribute: AttributeTypeId) -> Option<PermittedIn> {
        self.placed.iter().find(|(id, _)| *id == attribute).map(|(_, place)| *place)
    }
}
