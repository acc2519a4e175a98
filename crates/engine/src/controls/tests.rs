use super::*;
use crate::budget::RequestLimit;

fn control(oid: &'static str, critical: bool, value: Option<&[u8]>) -> ControlBuf {
    ControlBuf { oid: oid.into(), critical, value: value.map(<[u8]>::to_vec) }
}

fn parse(controls: &[ControlBuf], operation: OperationKind<'_>) -> Result<RequestControls, LdapResult> {
    let mut ber = Vec::new();
    controls.iter().for_each(|control| control.encode(&mut ber));
    RequestControls::parse(Controls::check(&ber).unwrap(), operation)
}

#[test]
fn a_critical_control_out_of_place_is_refused() {
    use OperationKind::{Add, Bind, Delete, Extended, Modify, Search};
    let check = |oid: &'static str, critical: bool, operation: OperationKind<'_>, expected: Option<&str>| {
        let answer = parse(&[control(oid, critical, None)], operation);
        let text = answer.err().map(|result| {
            assert_eq!(result.code, ResultCode::UNAVAILABLE_CRITICAL_EXTENSION);
            result.diagnostic
        });
        assert_eq!(text.as_deref(), expected, "{oid} {operation:?}");
    };
    check("1.1.1", true, Search, Some("critical extension is not recognized"));
    check("1.1.1", false, Search, None);
    check(oid::TREE_DELETE, true, Delete, None);
    check(oid::TREE_DELETE, true, Modify, Some("critical extension is unavailable"));
    check(oid::TREE_DELETE, false, Modify, None);
    check(oid::RELAX, true, Add, None);
    check(oid::MANAGE_DSA_IT, true, Bind, None);
    check(oid::MANAGE_DSA_IT, true, Extended(oid::WHO_AM_I), Some("critical extension is unavailable"));
    // What is passed on in a circle ends.
    for operation in
        [Bind, Search, Extended(oid::REFRESH), Extended(oid::VERIFY_CREDENTIALS), Extended("1.1.1")]
    {
        let parsed = parse(&[control(oid::PROXY_HOPS, false, Some(b"\x03"))], operation);
        assert_eq!(parsed.unwrap().hops, 3, "{operation:?}");
    }
}

#[test]
fn values_of_controls_are_read() {
    use OperationKind::{Modify, Search};
    let paged = parse(&[control(oid::PAGED_RESULTS, true, Some(b"\x30\x06\x02\x01\x0a\x04\x01x"))], Search);
    let expected = PagedResults { critical: true, size: 10, cookie: b"x".to_vec() };
    assert_eq!(paged.unwrap().paged, Some(expected));
    let sort = parse(
        &[control(oid::SORT_REQUEST, false, Some(b"\x30\x0b\x30\x09\x04\x02cn\x81\x03\x00\x00\xff"))],
        Search,
    );
    let key = SortKey { attribute: "cn".to_owned(), rule: None, reverse: true };
    assert_eq!(sort.unwrap().sort, Some(SortRequest { critical: false, keys: vec![key] }));
    let read = parse(&[control(oid::PRE_READ, true, Some(b"\x30\x04\x04\x02cn"))], Modify);
    assert_eq!(read.unwrap().pre_read.as_ref().unwrap().attributes, ["cn"]);
    let subentries = parse(&[control(oid::SUBENTRIES, true, Some(b"\x01\x01\xff"))], Search);
    assert_eq!(subentries.unwrap().subentries, Some(true));
    let assertion = parse(&[control(oid::ASSERTION, true, Some(b"\x87\x02cn"))], Modify);
    assert_eq!(assertion.unwrap().assertion.as_ref().unwrap().as_ber(), b"\x87\x02cn");
    let tracking = |identifier| {
        let value = [0x30, 12, 4, 1, b'a', 4, 1, b'b', 4, 1, b'1', 4, 1, identifier];
        control(oid::SESSION_TRACKING, false, Some(&value))
    };
    let several = parse(&[tracking(b'x'), tracking(b'y')], Search).unwrap();
    assert_eq!(several.session_tracking.as_ref().map(|last| last.identifier.as_str()), Some("y"));
}

#[test]
fn faults_of_controls_are_named() {
    let check = |controls: &[ControlBuf], text: &str| {
        let refused = parse(controls, OperationKind::Search).unwrap_err();
        assert_eq!((refused.code, refused.diagnostic.as_str()), (ResultCode::PROTOCOL_ERROR, text));
    };
    let dsa = control(oid::MANAGE_DSA_IT, false, None);
    check(&[dsa.clone(), dsa], "manageDSAit control specified multiple times");
    check(&[control(oid::MANAGE_DSA_IT, true, Some(b""))], "manageDSAit control value not absent");
    check(&[control(oid::NO_OP, true, Some(b"x"))], "noop control value not empty");
    check(&[control(oid::PAGED_RESULTS, true, None)], "paged results control value is absent");
    check(
        &[control(oid::PAGED_RESULTS, true, Some(b"\x30\x01"))],
        "paged results control could not be decoded",
    );
    check(
        &[control(oid::PAGED_RESULTS, true, Some(b"\x30\x05\x02\x01\xff\x04\x00"))],
        "paged results control size invalid",
    );
    check(
        &[control(oid::PAGED_RESULTS, true, Some(b"\x30\x09\x02\x05\x00\x80\x00\x00\x00\x04\x00"))],
        "paged results control size invalid",
    );
    check(&[control(oid::SUBENTRIES, true, Some(b"\x01"))], "subentries control value encoding is bogus");
    check(&[control(oid::PROXIED_AUTHORIZATION, true, None)], "proxy authorization control value absent");
    let first = |value| control(oid::PROXIED_AUTHORIZATION_V1, true, value);
    check(&[first(None)], "proxy authorization control value is absent");
    check(&[first(Some(b"dn:cn=a"))], "proxy authorization control could not be decoded");
    let both = [control(oid::PROXIED_AUTHORIZATION, true, Some(b"")), first(Some(b"\x30\x02\x04\x00"))];
    check(&both, "proxy authorization control specified multiple times");
    check(&[control(oid::ASSERTION, true, Some(b""))], "assert control value is empty");
}

#[test]
fn the_root_dse_lists_what_openldap_lists() {
    for oid in
        ["2.16.840.1.113730.3.4.18", "2.16.840.1.113730.3.4.2", "1.2.840.113556.1.4.319", "1.3.6.1.1.12"]
    {
        assert!(listed().any(|known| known == oid), "{oid}");
    }
    assert!(!listed().any(|known| known == oid::RELAX));
}

#[test]
fn search_options_are_the_domain_scope_or_nothing() {
    let options = |flags: u8, critical| control(oid::SEARCH_OPTIONS, critical, Some(&[0x30, 3, 2, 1, flags]));
    let domain_scope = || control(oid::DOMAIN_SCOPE, true, None);
    let check = |controls: &[ControlBuf], expected: Result<bool, ResultCode>| {
        let parsed = parse(controls, OperationKind::Search);
        let seen = parsed.map(|controls| controls.domain_scope).map_err(|refused| refused.code);
        assert_eq!(seen, expected, "{controls:?}");
    };
    check(&[options(0, true)], Ok(false));
    check(&[options(1, true)], Ok(true));
    check(&[options(2, true)], Err(ResultCode::UNWILLING_TO_PERFORM));
    check(&[options(3, false)], Ok(false));
    check(&[domain_scope()], Ok(true));
    check(&[domain_scope(), options(0, true)], Ok(true));
    check(&[domain_scope(), options(1, true)], Err(ResultCode::PROTOCOL_ERROR));
    check(&[domain_scope(), options(2, false)], Ok(true));
}

#[test]
fn a_transaction_is_named_by_a_critical_control() {
    for (critical, value, expected) in [
        (true, Some(&b"t"[..]), Some(&b"t"[..])),
        (true, Some(b""), Some(b"")),
        (false, Some(b"t"), None),
        (true, None, None),
    ] {
        let sent = control(oid::TRANSACTION_SPECIFICATION, critical, value);
        let parsed = parse(&[sent], OperationKind::Add).map(|controls| controls.transaction.clone());
        match expected {
            Some(name) => assert_eq!(parsed.unwrap().as_deref(), Some(name)),
            None => assert_eq!(parsed.unwrap_err().code, ResultCode::PROTOCOL_ERROR),
        }
    }
}

/// Not to an overlay behind, and not to another server.
#[test]
fn a_control_that_an_overlay_has_carried_out_goes_no_further() {
    static COUNT: OverlayControl =
        OverlayControl { oid: "1.2.3", name: "count", listed: false, goes_with: |_| true, fault: |_| None };
    let sent = |oids: &[&'static str]| {
        let mut ber = Vec::new();
        oids.iter().for_each(|oid| control(oid, true, Some(b"v")).encode(&mut ber));
        ber
    };
    let overlays = vec![SentControl { control: &COUNT, critical: true, value: None }];
    let values = ControlValues { overlays, sent: sent(&["1.2.3", "1.2.4"]), ..ControlValues::default() };
    let left = RequestControls::from(values.clone()).without("1.2.3");
    assert!(left.of_overlay("1.2.3").is_none());
    assert_eq!(left.sent, sent(&["1.2.4"]));
    let optional = RequestControls::from(values).optional("1.2.3");
    assert!(optional.of_overlay("1.2.3").is_some_and(|sent| sent.critical));
    let criticalities = Controls::parse(&optional.sent).unwrap().into_iter().map(|control| control.critical);
    assert_eq!(criticalities.collect::<Vec<_>>(), [false, true]);
}

/// They are refused before room is made for them.
#[test]
fn lists_in_controls_are_no_longer_than_the_limits() {
    use OperationKind::{Modify, Search};
    let limits = RequestLimits::default().with(RequestLimit::Selectors, 2).with(RequestLimit::FilterTerms, 2);
    let list = |element: &[u8], count: usize| {
        let contents = element.repeat(count);
        [&[0x30, contents.len() as u8][..], &contents].concat()
    };
    let rights = |count: usize| {
        let contents = [&b"\x04\x00"[..], &list(b"\x04\x01+", count)].concat();
        [&[0x30, contents.len() as u8][..], &contents].concat()
    };
    let names = |count: usize| list(b"\x04\x01+", count);
    let keys = |count: usize| list(b"\x30\x03\x04\x01a", count);
    let filters = |count: usize| list(b"\x87\x01a", count);
    let cases: [(_, _, &dyn Fn(usize) -> Vec<u8>); 5] = [
        (oid::PRE_READ, Modify, &names),
        (oid::POST_READ, Modify, &names),
        (oid::SORT_REQUEST, Search, &keys),
        (oid::MATCHED_VALUES, Search, &filters),
        (oid::EFFECTIVE_RIGHTS, Search, &rights),
    ];
    for (oid, operation, value) in cases {
        for (count, expected) in [(2, None), (3, Some(ResultCode::ADMIN_LIMIT_EXCEEDED))] {
            let mut ber = Vec::new();
            control(oid, true, Some(&value(count))).encode(&mut ber);
            let controls = Controls::check(&ber).unwrap();
            let parsed = RequestControls::parse_with(controls, operation, &limits, &|_| None);
            assert_eq!(parsed.err().map(|refused| refused.code), expected, "{oid}: {count}");
        }
    }
}
