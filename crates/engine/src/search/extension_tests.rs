//! Virtual list views and chains of names: in one slice and in many, and where they end.

use larix_proto::control::{ControlValue, VlvResponse};
use larix_proto::{ResultCode, oid};
use larix_store::memory::MemoryStore;

use super::chain::{CHAIN_DEPTH_MAX, CHAIN_LINKS_MAX};
use crate::controls::{ControlValues, RequestControls, SortKey, SortRequest, ViewTarget, VirtualListView};
use crate::fixture::{Fixture, SUFFIX, SearchSpec};

const IN_CHAIN: &str = "1.2.840.113556.1.4.1941";
const INDEXES: &[(&str, &str)] = &[("cn", "eq"), ("member", "eq")];

/// People p000 to p019; every other one has an order of its own, by sn.
fn people() -> String {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
    for i in 0..20 {
        let sn = (i * 7) % 20;
        ldif.push_str(&format!(
            "\ndn: cn=p{i:03},{SUFFIX}\nobjectClass: person\ncn: p{i:03}\nsn: s{sn:03}\n"
        ));
    }
    ldif
}

fn view(before_count: u32, after_count: u32, target: ViewTarget) -> RequestControls {
    let key = SortKey { attribute: "sn".to_owned(), rule: None, reverse: false };
    RequestControls::from(ControlValues {
        sort: Some(SortRequest { critical: true, keys: vec![key] }),
        vlv: Some(Box::new(VirtualListView {
            critical: true,
            before_count,
            after_count,
            target,
            context: None,
        })),
        ..ControlValues::default()
    })
}

#[test]
fn views_are_the_same_in_one_slice_and_in_many() {
    let fixture = Fixture::memory(INDEXES, &people());
    let offset = |offset, content_count| ViewTarget::Offset { offset, content_count };
    let value = |text: &str| ViewTarget::GreaterOrEqual(text.as_bytes().to_vec());
    let check = |before, after, target: ViewTarget, want: (usize, usize, u32, u32)| {
        for slice in [1_000, 3, 1] {
            let controls = view(before, after, target.clone());
            let answered =
                fixture.search(&SearchSpec { filter: "(cn=p*)", controls, slice, ..SearchSpec::default() });
            assert_eq!(answered.result.code, ResultCode::SUCCESS, "{target:?}");
            let control = answered.controls.iter().find(|control| control.oid == oid::VLV_RESPONSE);
            let response = control.and_then(|control| VlvResponse::decode(control.value.as_deref()).ok());
            let response = response.expect("a response control");
            let wanted: Vec<String> = (want.0..want.1)
                .map(|sn| format!("p{:03}", (0..20).find(|i| i * 7 % 20 == sn).unwrap()))
                .collect();
            assert_eq!(answered.names(), wanted, "{target:?} {slice}");
            let counts = (response.target_position, response.content_count);
            assert_eq!((counts, response.code), ((want.2, want.3), ResultCode::SUCCESS), "{target:?}");
        }
    };
    check(0, 3, offset(1, 0), (0, 4, 1, 20));
    check(2, 2, offset(10, 20), (7, 12, 10, 20));
    check(2, 2, offset(20, 20), (17, 20, 20, 20));
    check(100, 100, offset(50, 100), (0, 20, 10, 20));
    check(0, 1, value("S005"), (5, 7, 6, 20));
    check(1, 0, value("s0050"), (5, 7, 7, 20));
    check(2, 5, value("z"), (18, 20, 21, 20));
    check(0, 5, value("z"), (20, 20, 21, 20));
}

#[test]
fn views_that_cannot_be_had() {
    let fixture = Fixture::memory(INDEXES, &people());
    let check = |controls: RequestControls, code: ResultCode, expected: Option<ResultCode>| {
        let answered = fixture.search(&SearchSpec { controls, ..SearchSpec::default() });
        let control = answered.controls.iter().find(|control| control.oid == oid::VLV_RESPONSE);
        let found =
            control.map(|control| VlvResponse::decode(control.value.as_deref()).expect("a value").code);
        assert_eq!((answered.result.code, found), (code, expected));
        assert_eq!(answered.entries.len(), 0);
    };
    let far = ViewTarget::Offset { offset: 22, content_count: 0 };
    check(view(0, 0, far.clone()), ResultCode::VLV_ERROR, Some(ResultCode::OFFSET_RANGE_ERROR));
    let unsorted = view(0, 0, far.clone()).with(|values| values.sort = None);
    check(unsorted, ResultCode::VLV_ERROR, Some(ResultCode::SORT_CONTROL_MISSING));
    let nonsense = view(0, 0, far).with(|values| {
        let sort = values.sort.as_mut().unwrap();
        sort.critical = false;
        sort.keys[0].attribute = "nonsense".to_owned();
    });
    check(nonsense, ResultCode::VLV_ERROR, Some(ResultCode::INAPPROPRIATE_MATCHING));
}

/// Groups g0000, whose member is p, to g(n-1), each with the one before as its member.
fn ladder(count: usize) -> String {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
    for i in 0..count {
        let member = if i == 0 { "p".to_owned() } else { format!("g{:04}", i - 1) };
        ldif.push_str(&format!(
            "\ndn: cn=g{i:04},{SUFFIX}\nobjectClass: groupOfNames\ncn: g{i:04}\nmember: cn={member},{SUFFIX}\n"
        ));
    }
    ldif
}

fn groups_of(fixture: &Fixture<MemoryStore>, slice: u32) -> (usize, ResultCode) {
    let filter = format!("(member:{IN_CHAIN}:=CN=p,{SUFFIX})");
    let answered = fixture.search(&SearchSpec { filter: &filter, slice, ..SearchSpec::default() });
    (answered.entries.len(), answered.result.code)
}

#[test]
fn chains_are_followed_in_slices() {
    let fixture = Fixture::memory(INDEXES, &ladder(30));
    for slice in [1_000, 4, 1] {
        assert_eq!(groups_of(&fixture, slice), (30, ResultCode::SUCCESS), "{slice}");
    }
}

#[test]
fn chains_end() {
    let deep = CHAIN_DEPTH_MAX as usize;
    assert_eq!(groups_of(&Fixture::memory(INDEXES, &ladder(deep + 1)), 50), (deep + 1, ResultCode::SUCCESS));
    let over = Fixture::memory(INDEXES, &ladder(deep + 2));
    assert_eq!(groups_of(&over, 50), (0, ResultCode::ADMIN_LIMIT_EXCEEDED));
    let bare = Fixture::memory(&[("cn", "eq")], &ladder(2));
    assert_eq!(groups_of(&bare, 50), (0, ResultCode::UNWILLING_TO_PERFORM));
}

#[test]
fn as_many_links_as_the_limit_and_no_more() {
    // Beside the name that is asserted: groups of it, each a member of the last one.
    let fan = |count: usize| {
        let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n");
        let group = |name: &str, member: &str| {
            format!(
                "\ndn: cn={name},{SUFFIX}\nobjectClass: groupOfNames\ncn: {name}\nmember: cn={member},{SUFFIX}\n"
            )
        };
        (0..count).for_each(|i| ldif.push_str(&group(&format!("g{i}"), "p")));
        let all: Vec<String> = (0..count).map(|i| format!("member: cn=g{i},{SUFFIX}\n")).collect();
        format!("{ldif}\ndn: cn=all,{SUFFIX}\nobjectClass: groupOfNames\ncn: all\n{}", all.concat())
    };
    let most = CHAIN_LINKS_MAX - 1;
    let within = Fixture::memory(INDEXES, &fan(most));
    assert_eq!(groups_of(&within, 1_000), (most + 1, ResultCode::SUCCESS));
    let over = Fixture::memory(INDEXES, &fan(most + 1));
    assert_eq!(groups_of(&over, 1_000), (0, ResultCode::ADMIN_LIMIT_EXCEEDED));
}
