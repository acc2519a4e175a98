//! What schema definitions mean, whatever words they were written in.

use larix_schema::Extensions;
use larix_schema::definition::{AttributeTypeDefinition, ObjectClassDefinition};

use super::line;

/// A definition without what has no effect: its description, extensions, the case of names and the order of lists.
pub(super) fn meaning(attribute: &str, definition: &str) -> String {
    let name = |name: &String| name.to_ascii_lowercase();
    let one = |text: Option<String>| text.map(|text| text.to_ascii_lowercase());
    let sorted = |names: Vec<String>| {
        let mut names: Vec<String> = names.iter().map(name).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let meaning = match attribute {
        "olcAttributeTypes" => AttributeTypeDefinition::parse(definition).ok().map(|found| {
            let found = AttributeTypeDefinition {
                names: found.names.iter().map(name).collect(),
                description: None,
                superior: one(found.superior),
                equality: one(found.equality),
                ordering: one(found.ordering),
                substring: one(found.substring),
                syntax_length: None,
                extensions: Extensions::default(),
                ..found
            };
            format!("{found:?}")
        }),
        "olcObjectClasses" => ObjectClassDefinition::parse(definition).ok().map(|found| {
            let superiors = if found.superiors.is_empty() { vec!["top".to_owned()] } else { found.superiors };
            let found = ObjectClassDefinition {
                names: found.names.iter().map(name).collect(),
                description: None,
                superiors: sorted(superiors),
                must: sorted(found.must),
                may: sorted(found.may),
                extensions: Extensions::default(),
                ..found
            };
            format!("{found:?}")
        }),
        _ => None,
    };
    meaning.unwrap_or_else(|| format!("{attribute} {}", line::collapse(definition)))
}
