//! What holds for every overlay's descriptor.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use larix_engine::overlay::OverlayDirective;
use larix_engine::overlay::descriptor::Form;
use larix_schema::{SchemaBuilder, is_secret};

use super::all;
use crate::testing::{schema, with_context};

/// The source of an overlay, tests left out.
fn source(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
    let mut text = String::new();
    for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_file() && !path.ends_with("tests.rs") {
            text += &fs::read_to_string(path).expect("a source file");
        }
    }
    text
}

#[test]
fn names_are_unique_and_folders_are_named_after_them() {
    let (mut names, mut attributes) = (BTreeSet::new(), BTreeSet::new());
    for descriptor in all() {
        assert!(names.insert(descriptor.name), "{} twice", descriptor.name);
        assert!(source(descriptor.name).contains("DESCRIPTOR"), "{}", descriptor.name);
        let stands_for_another = |directive: &&OverlayDirective| !directive.pieces.is_empty();
        for directive in descriptor.directives.iter().filter(|directive| !stands_for_another(directive)) {
            assert!(attributes.insert(directive.attribute), "{} twice", directive.attribute);
            assert!(directive.attribute.starts_with("olc"), "{}", directive.attribute);
        }
        assert!(descriptor.class.starts_with("olc"), "{}", descriptor.class);
    }
}

/// Those that the server reads, and what stands in entries of its own below the overlay's.
const READ_ELSEWHERE: [&str; 3] = ["olcAccessLog", "olcPPolicyRule", "olcSssVlvMax"];

#[test]
fn every_setting_is_read() {
    for descriptor in all() {
        let source = source(descriptor.name);
        for directive in descriptor.directives.iter().filter(|directive| directive.note.is_none()) {
            let quoted = format!("\"{}\"", directive.attribute);
            let is_read = source.matches(&quoted).count() > 1
                || READ_ELSEWHERE.iter().any(|head| directive.attribute.starts_with(head));
            assert!(is_read, "done, noted or refused: nobody reads {}", directive.attribute);
        }
    }
}

/// The change log, the access log and the admin page know secrets by that list.
#[test]
fn secrets_are_in_the_list_of_all_secrets() {
    for secret in all().flat_map(|descriptor| descriptor.secrets) {
        assert!(is_secret(secret), "{secret} is missing in SECRET_ATTRIBUTES");
    }
}

#[test]
fn definitions_are_understood() {
    let mut builder = SchemaBuilder::system();
    builder.add_bundled("core").expect("core");
    let schema = builder.clone().build();
    for descriptor in all() {
        // One that is not configured yet can be added to cn=config.
        assert!(schema.object_class(descriptor.class).is_some(), "{}", descriptor.class);
        for directive in descriptor.directives {
            assert!(schema.attribute_type(directive.attribute).is_some(), "{}", directive.attribute);
        }
        let added = builder.clone().add_schema_text(descriptor.schema, descriptor.name);
        added.unwrap_or_else(|error| panic!("{}: {error}", descriptor.name));
    }
}

#[test]
fn an_overlay_is_called_by_the_name_of_its_descriptor() {
    let schema = schema("");
    for descriptor in all() {
        let built = descriptor
            .build
            .map(|build| with_context(&schema, |context| build(&Default::default(), context)));
        if let Some(Ok(overlay)) = built {
            assert_eq!(overlay.name(), descriptor.name);
        }
        let switches = descriptor.directives.iter().filter(|directive| directive.form == Form::Switch);
        switches.for_each(|switch| assert_eq!(switch.arguments, (0, 1), "{}", switch.keyword));
    }
}
