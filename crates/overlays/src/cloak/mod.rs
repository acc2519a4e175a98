//! `overlay cloak`: attributes that are not answered unless somebody asks for attributes by name (slapo-cloak(5)).

#[cfg(test)]
mod tests;

use std::sync::Arc;

use larix_engine::overlay::computed::StoredEntry;
use larix_engine::overlay::settings::{SettingError, Settings};
use larix_engine::overlay::shown::{ShownEntries, ShownEntry, ShownRequest};
use larix_engine::overlay::{
    BuildContext, Descriptor, Failure, InGluedDatabases, Interests, Overlay, OverlayDirective, WordFault,
};
use larix_schema::{AttributeDescription, ObjectClassId, Schema};

pub static DESCRIPTOR: Descriptor =
    Descriptor::new("cloak", "olcCloakConfig", build).over_glue(InGluedDatabases::Each).directives(&[
        OverlayDirective::words("cloak-attr", "olcCloakAttribute").ordered().arguments(1, 2).checked(check),
    ]);

/// The overlay on one database.
#[derive(Debug)]
struct Cloak {
    object_class: AttributeDescription,
    cloaked: Vec<Cloaked>,
}

/// `cloak-attr`
#[derive(Debug)]
struct Cloaked {
    attribute: AttributeDescription,
    /// In entries of this class alone.
    class: Option<ObjectClassId>,
}

fn build(settings: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let schema = context.schema;
    let cloaked = settings.values("olcCloakAttribute").map(|value| {
        cloaked(schema, &value.words).map_err(|fault| fault.of_setting("cloak-attr", &value.words))
    });
    let object_class = schema
        .describe("objectClass")
        .map_err(|error| SettingError::new(format!("overlay cloak: {error}")))?;
    Ok(Arc::new(Cloak { object_class, cloaked: cloaked.collect::<Result<_, _>>()? }))
}

fn check(schema: &Schema, words: &[String]) -> Result<(), WordFault> {
    cloaked(schema, words).map(|_| ())
}

fn cloaked(schema: &Schema, words: &[String]) -> Result<Cloaked, WordFault> {
    let (name, class) = match words {
        [name] => (name, None),
        [name, class] => (name, Some(class)),
        _ => return Err(WordFault::new(0, "write an attribute, and a class if not all entries are meant")),
    };
    let attribute = schema.describe(name).map_err(|error| WordFault::new(0, error.to_string()))?;
    let unknown = |class: &String| WordFault::new(1, format!("object class \"{class}\" is not known"));
    let class = class.map(|class| schema.object_class_id(class).ok_or_else(|| unknown(class)));
    Ok(Cloaked { attribute, class: class.transpose()? })
}

impl Overlay for Cloak {
    fn name(&self) -> &'static str {
        "cloak"
    }

    fn interests(&self) -> Interests {
        if self.cloaked.is_empty() { Interests::NONE } else { Interests::SHOW }
    }

    fn shown(&self) -> Option<&dyn ShownEntries> {
        Some(self)
    }
}

impl Cloak {
    /// What is cloaked in this entry.
    fn of<'a>(
        &'a self,
        entry: &dyn StoredEntry,
        schema: &Schema,
    ) -> Result<Vec<&'a AttributeDescription>, Failure> {
        let mut of = Vec::new();
        for cloaked in &self.cloaked {
            let mut has = cloaked.class.is_none();
            if let Some(wanted) = cloaked.class {
                entry.source().visit_exact(&self.object_class, &mut |value| {
                    let class = std::str::from_utf8(value).ok().and_then(|name| schema.object_class_id(name));
                    has = class.is_some_and(|class| class == wanted || schema.is_subclass(class, wanted));
                    !has
                })?;
            }
            if has {
                entry.source().visit_exact(&cloaked.attribute, &mut |_| {
                    of.push(&cloaked.attribute);
                    false
                })?;
            }
        }
        Ok(of)
    }
}

impl ShownEntries for Cloak {
    fn wants(&self, request: &ShownRequest<'_>) -> bool {
        request.names_none && !request.types_only && !request.compares && !request.controls.manage_dsa_it
    }

    fn concerns(&self, entry: &dyn StoredEntry, schema: &Schema) -> Result<bool, Failure> {
        Ok(!self.of(entry, schema)?.is_empty())
    }

    fn show(&self, shown: &mut ShownEntry<'_>) -> Result<(), Failure> {
        let cloaked = self.of(shown.entry, shown.schema)?;
        shown.attributes.retain(|attribute| !cloaked.contains(&&attribute.description));
        Ok(())
    }
}
