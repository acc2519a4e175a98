//! What has no effect is noted.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
use crate::testing::{build, schema};

#[test]
fn what_has_no_effect_is_noted() {
    let schema = schema("");
    for (lines, expected) in [
        ("logdb cn=log\nlogops writes", 0),
        ("logdb cn=log\nlogbase add ou=a,dc=example,dc=com", 0),
        ("logdb cn=log", 1),
        ("logdb cn=log\nlogops writes\nlogoldattr cn", 1),
        ("logdb cn=log\nlogops writes\nlogold (cn=*)\nlogoldattr cn", 0),
    ] {
        let notes = build(&DESCRIPTOR, &schema, lines).unwrap().notes(&schema);
        assert_eq!(notes.len(), expected, "{lines}: {notes:?}");
    }
}
