//! What a bind tells.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_backend::{BoundSession, Interceptor};
use larix_engine::access::Subject;
use larix_engine::controls::{ControlValues, RequestControls, SentControl};

use super::{AuthorizationIdentity, CONTROLS, DESCRIPTOR, build};
use crate::testing::requests::Requests;
use crate::testing::{ROOT, schema};

#[test]
fn who_asks_is_told_the_identity() {
    let root = schema("").parse_dn(ROOT).unwrap();
    let [control] = &CONTROLS;
    let asked = SentControl { control, critical: true, value: None };
    let asking =
        || RequestControls::from(ControlValues { overlays: vec![asked.clone()], ..Default::default() });
    for (subject, controls, told) in [
        (Subject::default(), asking(), Some(String::new())),
        (Subject::default().bound_as(root.clone(), ROOT), asking(), Some(format!("dn:{ROOT}"))),
        (Subject::default().bound_as(root, ROOT), RequestControls::default(), None),
    ] {
        let added = AuthorizationIdentity.bound(&BoundSession { controls: &controls, subject: &subject });
        let values = added.into_iter().map(|control| {
            assert_eq!(control.oid, "2.16.840.1.113730.3.4.15");
            String::from_utf8(control.value.unwrap()).unwrap()
        });
        assert_eq!(values.collect::<Vec<_>>(), told.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_database_does_not_have_it() {
    let error = Requests::through((&DESCRIPTOR, build), "").unwrap_err();
    assert!(error.help.unwrap().contains("before the first `database` line"));
}
