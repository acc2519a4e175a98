//! `overlay collective` has no directives.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use larix_engine::overlay::settings::{SettingError, Settings, described};
use larix_engine::overlay::{BuildContext, Overlay};
use larix_schema::{AttributeDescription, ObjectClassId, Schema};

use super::{Collective, Names};

pub(super) fn build(_: &Settings, context: &BuildContext<'_>) -> Result<Arc<dyn Overlay>, SettingError> {
    let schema = context.schema;
    let attribute = |name| described(schema, "collective", name);
    let names = Names {
        object_class: attribute("objectClass")?,
        specification: attribute("subtreeSpecification")?,
        subentries: attribute("collectiveAttributeSubentries")?,
        exclusions: attribute("collectiveExclusions")?,
        subentry: class(schema, "subentry")?,
        collective_subentry: class(schema, "collectiveAttributeSubentry")?,
    };
    let collective = schema.attribute_types().filter(|attribute| attribute.collective);
    let attributes = collective.map(|attribute| AttributeDescription::plain(attribute.id)).collect();
    Ok(Arc::new(Collective { names, attributes, cached: ArcSwapOption::empty() }))
}

fn class(schema: &Schema, name: &str) -> Result<ObjectClassId, SettingError> {
    let unknown =
        || SettingError::new(format!("collective: the object class {name} is unknown")).awaiting_schema();
    schema.object_class_id(name).ok_or_else(unknown)
}
