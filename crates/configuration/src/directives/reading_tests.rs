//! No setting is read and forgotten: what the table takes without a note is asked for somewhere else.

use std::fs;
use std::path::Path;

use super::overlays::{OverlayHandling, overlay_kind};
use super::*;

/// The source that uses settings, here and in the server: all but the tables that take them, the model that holds them, and tests.
fn users_of_settings() -> Vec<String> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut texts = Vec::new();
    let mut folders = vec![own.clone(), own.join("../../server/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the source") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if is_user(&path, &own) {
                texts.push(fs::read_to_string(&path).expect("a source file"));
            }
        }
    }
    texts
}

fn is_user(path: &Path, own: &Path) -> bool {
    let takes = ["directives", "directives.rs", "kinds", "kinds.rs", "model.rs", "builder.rs", "defaults.rs"];
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".rs")
        && !name.ends_with("tests.rs")
        && !path.components().any(|part| part.as_os_str() == "tests")
        && !takes.iter().any(|taken| path.starts_with(own.join(taken)))
}

/// Whether the overlay or database that the directive belongs to does anything by its settings here.
fn is_served(scope: Scope) -> bool {
    match scope {
        Scope::Foreign => false,
        Scope::Overlay(name) => {
            // What the server has it from says whether its settings are read: a test there looks.
            overlay_kind(name).is_some_and(|kind| {
                matches!(kind.handling, OverlayHandling::BuiltIn) && kind.descriptor.is_none()
            })
        }
        _ => true,
    }
}

#[test]
fn values_that_are_kept_are_asked_for_by_their_attribute() {
    let users = users_of_settings();
    let is_kept = |directive: &Directive| directive.apply.is_none() && directive.handling == Handling::Done;
    // The entry of a rule is read as a whole: names behind this head.
    let read_by_head = |attribute: &str| attribute.starts_with("olcPPolicyRule");
    let mut kept = 0;
    let mut forgotten = Vec::new();
    for directive in all().filter(|directive| is_kept(directive) && is_served(directive.scope)) {
        kept += 1;
        let quoted = format!("\"{}\"", directive.attribute);
        let is_structure = directive.scope == Scope::Structure;
        if !is_structure
            && !read_by_head(directive.attribute)
            && !users.iter().any(|text| text.contains(&quoted))
        {
            forgotten.push(format!("{} ({})", directive.keyword, directive.attribute));
        }
    }
    assert!(kept > 5, "the table has lost its kept directives: {kept}");
    assert!(forgotten.is_empty(), "done, noted or refused: nobody reads {forgotten:#?}");
}

#[test]
fn every_field_of_the_model_is_used() {
    let users = users_of_settings();
    let model = include_str!("../model.rs");
    // Options become part of the schema while they are read.
    let read_at_once = ["attribute_options"];
    let fields = model.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("    pub ")?.split_once(": ")?;
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_').then_some(name)
    });
    let mut counted = 0;
    let mut forgotten = Vec::new();
    for field in fields.filter(|field| !read_at_once.contains(field)) {
        counted += 1;
        let as_field = |text: &String| {
            let dotted = format!(".{field}");
            let mut places = text.match_indices(&dotted).map(|(at, _)| at + dotted.len());
            places.any(|end| {
                let next = text.as_bytes().get(end).copied().unwrap_or(b' ');
                !next.is_ascii_alphanumeric() && !matches!(next, b'_' | b'(')
            })
        };
        let in_pattern = |text: &String| {
            [
                format!("{{ {field} }}"),
                format!("{{ {field},"),
                format!(", {field} }}"),
                format!(", {field},"),
                format!(" {field}: "),
            ]
            .iter()
            .any(|shape| text.contains(shape))
        };
        if !users.iter().any(|text| as_field(text) || in_pattern(text)) {
            forgotten.push(field);
        }
    }
    assert!(counted > 60, "the model has lost its fields: {counted}");
    assert!(forgotten.is_empty(), "read from a configuration and used nowhere: {forgotten:?}");
}
