//! Empty values that are taken out.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_engine::write::{AttributeValues, Modification, WriteOperation};
use larix_proto::ModifyOperation::{self, Add, Delete, Increment, Replace};

use super::EmptyStrings;
use crate::testing::schema;

fn attribute(name: &str, values: &[&str]) -> AttributeValues {
    let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    AttributeValues { description: name.to_owned(), values }
}

/// A change, and what is left of it.
type Case = (ModifyOperation, &'static str, &'static [&'static str], Option<&'static [&'static str]>);

#[test]
fn empty_directory_strings_are_no_values() {
    let overlay = EmptyStrings(schema(""));
    let cases: [Case; 10] = [
        (Add, "sn", &["", "blah"], Some(&["blah"])),
        (Add, "sn", &["a", "", "b", ""], Some(&["a", "b"])),
        (Add, "sn", &[""], None),
        (Delete, "sn", &["", "blah"], Some(&["blah"])),
        (Delete, "sn", &[""], None),
        (Delete, "sn", &[], Some(&[])),
        (Replace, "sn", &[""], Some(&[])),
        // Not of the syntax, not known, or not a user's.
        (Replace, "userPassword", &[""], Some(&[""])),
        (Add, "nobodyKnows", &[""], Some(&[""])),
        (Increment, "uidNumber", &["1"], Some(&["1"])),
    ];
    for (operation, name, values, left) in cases {
        let changes = vec![
            Modification { operation, attribute: attribute(name, values) },
            Modification { operation: Replace, attribute: attribute("cn", &["x"]) },
        ];
        let mut modify = WriteOperation::Modify { object: "cn=x".to_owned(), changes };
        overlay.strip(&mut modify);
        let WriteOperation::Modify { changes, .. } = modify else { panic!("another operation") };
        let expected: Vec<AttributeValues> =
            left.map(|left| attribute(name, left)).into_iter().chain([attribute("cn", &["x"])]).collect();
        let got: Vec<AttributeValues> = changes.into_iter().map(|change| change.attribute).collect();
        assert_eq!(got, expected, "{operation:?} {name} {values:?}");
    }
    let attributes = vec![attribute("sn", &[""]), attribute("cn", &["", "x"]), attribute("ou", &["y"])];
    let mut add = WriteOperation::Add { entry: "cn=x".to_owned(), attributes };
    overlay.strip(&mut add);
    let WriteOperation::Add { attributes, .. } = add else { panic!("another operation") };
    assert_eq!(attributes, [attribute("cn", &["x"]), attribute("ou", &["y"])]);
}
