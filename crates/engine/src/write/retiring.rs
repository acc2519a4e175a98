//! Schema elements that are about to be removed: no change may use them any more.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, AttributeOptions, AttributeTypeId, ObjectClassId, Schema};

use crate::change::prepare::PreparedChange;

/// Types, classes and options that are about to leave the schema. From the moment the writer knows of them no change brings them
/// into an entry, so that what is looked up behind that holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetiringDefinitions {
    pub attributes: Vec<AttributeTypeId>,
    pub classes: Vec<ObjectClassId>,
    /// The options that there will be, if they become others.
    pub options: Option<AttributeOptions>,
}

impl RetiringDefinitions {
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty() && self.classes.is_empty() && self.options.is_none()
    }

    /// Whether the type goes, or one of the options.
    pub(crate) fn takes(&self, description: &AttributeDescription) -> bool {
        self.attributes.contains(&description.attribute)
            || self.options.as_ref().is_some_and(|options| !description.has_only(options))
    }

    /// The first of these elements that a change uses, by its name.
    fn used_by(&self, operation: &PreparedChange, schema: &Schema) -> Option<String> {
        let object_class = schema.attribute_type_id("objectClass");
        let find = |description: &AttributeDescription, values: &[Vec<u8>]| {
            if self.takes(description) {
                return Some(description.to_text(schema));
            }
            if self.classes.is_empty() || Some(description.attribute) != object_class {
                return None;
            }
            let mut classes = values.iter().filter_map(|value| {
                let class = schema.object_class(std::str::from_utf8(value).ok()?)?;
                self.classes.contains(&class.id).then(|| class.name().to_owned())
            });
            classes.next()
        };
        let (attributes, mods) = match operation {
            PreparedChange::Add { entry, mods, .. } => (entry.attributes.as_slice(), mods.as_slice()),
            PreparedChange::Modify { mods, .. } => (&[][..], mods.as_slice()),
            PreparedChange::ModifyDn(rename) => (&[][..], rename.mods.as_slice()),
            PreparedChange::Delete { .. } | PreparedChange::Authenticate(_) | PreparedChange::Record(_) => {
                return None;
            }
        };
        let added = attributes.iter().find_map(|a| find(&a.description, &a.values));
        added.or_else(|| mods.iter().find_map(|change| find(&change.description, &change.values)))
    }

    /// # Errors
    /// Refuses a change that uses any of these elements.
    pub(crate) fn check(&self, operation: &PreparedChange, schema: &Schema) -> Result<(), LdapResult> {
        if self.is_empty() {
            return Ok(());
        }
        self.used_by(operation, schema).map_or(Ok(()), |name| {
            let text = format!("{name}: is being removed from the schema");
            Err(LdapResult::with(ResultCode::UNDEFINED_ATTRIBUTE_TYPE, text))
        })
    }
}
