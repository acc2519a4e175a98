//! What is left out of answers.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use super::DESCRIPTOR;
use crate::testing::{TREE, build, directory, found, schema};

#[test]
fn attributes_are_left_out_unless_some_are_named() {
    for (lines, attributes, has_sn, has_cn) in [
        ("cloak-attr sn", &[][..], false, true),
        ("cloak-attr surname", &[], false, true),
        ("cloak-attr sn\ncloak-attr cn", &[], false, false),
        ("cloak-attr sn person", &[], false, true),
        ("cloak-attr sn organizationalUnit", &[], true, true),
        ("cloak-attr sn", &["*"], true, true),
        ("cloak-attr sn", &["sn"], true, false),
        ("", &[], true, true),
    ] {
        let fixture = directory(&[(&DESCRIPTOR, lines)]);
        fixture.apply(TREE);
        let answer = found(&fixture, "(&(objectClass=person)(sn=*))", attributes);
        assert_eq!((answer.contains("sn="), answer.contains("cn=")), (has_sn, has_cn), "{lines}: {answer}");
    }
}

#[test]
fn mistakes_are_named() {
    let schema = schema("");
    for (lines, fault) in [
        ("cloak-attr nothing", "cloak-attr \"nothing\": attribute type undefined"),
        ("cloak-attr sn nobody", "object class \"nobody\" is not known"),
    ] {
        let error = build(&DESCRIPTOR, &schema, lines).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(fault), "{lines}: {error}");
    }
}
