use std::fmt::Debug;

use super::*;
use crate::filter::FilterBuf;
use crate::list::{Attributes, Strings};

/// Decodes to `value`, and encodes to the same bytes again.
fn check<'a, C: ControlValue<'a> + Debug + PartialEq>(ber: &'a [u8], value: &C) {
    assert_eq!(C::decode(Some(ber)).as_ref(), Ok(value), "{ber:02x?}");
    assert_eq!(value.encode().as_deref(), Some(ber), "{value:?}");
}

fn error<'a, C: ControlValue<'a> + Debug>(value: Option<&'a [u8]>) -> String {
    C::decode(value).expect_err("not a value").to_string()
}

#[test]
fn values() {
    check(b"\x30\x06\x02\x02\x01\xf4\x04\x00", &PagedResults { size: 500, cookie: b"" });
    check(b"\x30\x06\x02\x01\x00\x04\x01c", &PagedResults { size: 0, cookie: b"c" });
    let keys = vec![
        SortKey { attribute: "sn", ordering_rule: Some("2.5.13.3"), reverse: true },
        SortKey { attribute: "cn", ordering_rule: None, reverse: false },
    ];
    check(b"\x30\x19\x30\x11\x04\x02sn\x80\x082.5.13.3\x81\x01\xff\x30\x04\x04\x02cn", &SortRequest { keys });
    let code = ResultCode::NO_SUCH_ATTRIBUTE;
    check(b"\x30\x07\x0a\x01\x10\x80\x02cn", &SortResponse { code, attribute: Some("cn") });
    let target = VlvTarget::Offset { offset: 5, content_count: 0 };
    let request = VlvRequest { before_count: 1, after_count: 2, target, context_id: None };
    check(b"\x30\x0e\x02\x01\x01\x02\x01\x02\xa0\x06\x02\x01\x05\x02\x01\x00", &request);
    let request = VlvRequest { target: VlvTarget::GreaterOrEqual(b"k"), context_id: Some(b"i"), ..request };
    check(b"\x30\x0c\x02\x01\x01\x02\x01\x02\x81\x01k\x04\x01i", &request);
    let response =
        VlvResponse { target_position: 1, content_count: 200, code: ResultCode(0), context_id: None };
    check(b"\x30\x0a\x02\x01\x01\x02\x02\x00\xc8\x0a\x01\x00", &response);
    let filter = FilterBuf::parse("(cn=*)").expect("a filter");
    check(b"\x87\x02cn", &Assertion { filter: filter.as_filter() });
    let attributes = Strings::check(b"\x04\x01*", "attributes").expect("a list");
    check(b"\x30\x03\x04\x01*", &PreReadRequest { attributes });
    check(b"\x30\x03\x04\x01*", &PostReadRequest { attributes });
    let attributes = Attributes::check(b"\x30\x09\x04\x02cn\x31\x03\x04\x01a").expect("a list");
    let ber = b"\x64\x13\x04\x04cn=a\x30\x0b\x30\x09\x04\x02cn\x31\x03\x04\x01a";
    check(ber, &PreReadResponse { dn: "cn=a", attributes });
    check(ber, &PostReadResponse { dn: "cn=a", attributes });
    check(b"\x01\x01\xff", &Subentries { visible: true });
    check(b"dn:cn=a", &ProxiedAuthorization { authorization_id: "dn:cn=a" });
    check(b"", &ProxiedAuthorization { authorization_id: "" });
    check(b"\x30\x06\x04\x04cn=a", &ProxiedAuthorizationV1 { dn: "cn=a" });
    check(b"\x30\x02\x04\x00", &ProxiedAuthorizationV1 { dn: "" });
    check(b"u:a", &AuthorizationIdentityResponse { authorization_id: "u:a" });
    let tracking = SessionTracking { source_ip: "::1", source_name: "h", format: "1.2", identifier: "u" };
    check(b"\x30\x10\x04\x03::1\x04\x01h\x04\x031.2\x04\x01u", &tracking);
    check(b"\x30\x03\x02\x01\x01", &SearchOptions { flags: SearchOptions::DOMAIN_SCOPE });
    check(b"txn", &TransactionSpecification { identifier: b"txn" });
}

#[test]
fn directory_synchronization() {
    let incremental = DirSyncRequest::INCREMENTAL_VALUES;
    let request = DirSyncRequest { flags: incremental, max_bytes: 0, cookie: b"c" };
    check(b"\x30\x0c\x02\x04\x80\x00\x00\x00\x02\x01\x00\x04\x01c", &request);
    // Some write the flags as a positive number.
    let positive = b"\x30\x0d\x02\x05\x00\x80\x00\x00\x00\x02\x01\x00\x04\x01c";
    assert_eq!(DirSyncRequest::decode(Some(positive)), Ok(request));
    check(b"\x30\x09\x02\x01\x01\x02\x01\x00\x04\x01c", &DirSyncResponse { more: true, cookie: b"c" });
    check(b"\x30\x08\x02\x01\x00\x02\x01\x00\x04\x00", &DirSyncResponse { more: false, cookie: b"" });
    assert_eq!(error::<DirSyncResponse<'_>>(None), "dirSyncValue: missing");
}

#[test]
fn synchronization() {
    let mode = SyncMode::RefreshAndPersist;
    check(b"\x30\x03\x0a\x01\x03", &SyncRequest { mode, cookie: None, reload_hint: false });
    let request = SyncRequest { mode: SyncMode::RefreshOnly, cookie: Some(b"c"), reload_hint: true };
    check(b"\x30\x09\x0a\x01\x01\x04\x01c\x01\x01\xff", &request);
    let state = SyncState { state: EntryState::Delete, entry_uuid: *b"0123456789abcdef", cookie: None };
    check(b"\x30\x15\x0a\x01\x03\x04\x100123456789abcdef", &state);
    check(b"\x30\x06\x04\x01c\x01\x01\xff", &SyncDone { cookie: Some(b"c"), refresh_deletes: true });
    check(b"\x30\x00", &SyncDone { cookie: None, refresh_deletes: false });
    assert_eq!(error::<SyncRequest<'_>>(Some(b"\x30\x03\x0a\x01\x02")), "mode: unknown choice 2");
    assert_eq!(error::<SyncState<'_>>(Some(b"\x30\x06\x0a\x01\x03\x04\x01x")), "entryUUID: not 16 octets");
}

#[test]
fn persistent_search() {
    let search = PersistentSearch { change_types: 15, changes_only: true, return_ecs: false };
    check(b"\x30\x09\x02\x01\x0f\x01\x01\xff\x01\x01\x00", &search);
    let renamed = EntryChangeNotification { change_type: ChangeType::ModDn, previous_dn: Some("cn=a") };
    check(b"\x30\x09\x0a\x01\x08\x04\x04cn=a", &renamed);
    let added = EntryChangeNotification { change_type: ChangeType::Add, previous_dn: None };
    check(b"\x30\x03\x0a\x01\x01", &added);
    for types in [0, 16] {
        let value = [0x30, 9, 2, 1, types, 1, 1, 0, 1, 1, 0];
        let error_text = error::<PersistentSearch>(Some(&value));
        assert_eq!(error_text, "changeTypes: not a number from 1 to 15", "{types}");
    }
    assert_eq!(
        error::<EntryChangeNotification<'_>>(Some(b"\x30\x03\x0a\x01\x03")),
        "changeType: unknown choice 3"
    );
}

#[test]
fn password_policy() {
    let response = |warning, error| PasswordPolicyResponse { warning, error };
    check(b"\x30\x00", &response(None, None));
    let expiring = PasswordWarning::TimeBeforeExpiration(3600);
    check(b"\x30\x06\xa0\x04\x80\x02\x0e\x10", &response(Some(expiring), None));
    let grace = PasswordWarning::GraceLoginsRemaining(2);
    let error = PasswordError::PasswordExpired;
    check(b"\x30\x08\xa0\x03\x81\x01\x02\x81\x01\x00", &response(Some(grace), Some(error)));
    assert_eq!(
        self::error::<PasswordPolicyResponse>(Some(b"\x30\x03\x81\x01\x0a")),
        "error: unknown choice 10"
    );
}

#[test]
fn dereferenced_attributes_are_there_and_back() {
    let ber = b"\x30\x11\x30\x0f\x04\x06member\x30\x05\x04\x03uid";
    let specs = vec![DerefSpec { attribute: "member", attributes: vec!["uid"] }];
    check(ber, &DerefRequest { specs });
    let attributes = Attributes::check(b"\x30\x0a\x04\x03uid\x31\x03\x04\x01a").expect("a list");
    let found = DerefResult { attribute: "member", value: "uid=a", attributes: Some(attributes) };
    let missing = DerefResult { attribute: "member", value: "uid=b", attributes: None };
    let ber = b"\x30\x30\x30\x1d\x04\x06member\x04\x05uid=a\xa0\x0c\x30\x0a\x04\x03uid\x31\x03\x04\x01a\
        \x30\x0f\x04\x06member\x04\x05uid=b";
    check(ber, &DerefResponse { results: vec![found, missing] });
    assert_eq!(error::<DerefRequest<'_>>(Some(b"\x30\x00")), "DerefControl: empty");
    assert_eq!(error::<DerefRequest<'_>>(Some(b"\x30\x07\x30\x05\x04\x01a\x30\x00")), "attributes: empty");
}

#[test]
fn matched_values() {
    let ber = b"\x30\x0c\x87\x02cn\xa3\x06\x04\x01a\x04\x01b";
    let control = MatchedValues::decode(Some(ber)).expect("a value");
    let filters: Vec<_> = control.filters().iter().map(|filter| filter.to_string()).collect();
    assert_eq!(filters, ["(cn=*)", "(a=b)"]);
    assert_eq!(control.encode().as_deref(), Some(&ber[..]));
    assert_eq!(error::<MatchedValues<'_>>(Some(b"\x30\x00")), "ValuesReturnFilter: empty");
    assert_eq!(error::<MatchedValues<'_>>(Some(b"\x30\x02\xa0\x00")), "SimpleFilterItem: unknown choice 160");
}

#[test]
fn flags_have_no_value() {
    fn check<'a, C: ControlValue<'a> + Debug + PartialEq + Default>(oid: &str) {
        assert_eq!(C::decode(None), Ok(C::default()));
        let control = C::default().to_control(true);
        assert_eq!((control.oid.as_ref(), control.critical, control.value), (oid, true, None));
        assert_eq!(error::<C>(Some(b"")), "controlValue: present where there must be none");
    }
    check::<ManageDsaIt>("2.16.840.1.113730.3.4.2");
    check::<Relax>("1.3.6.1.4.1.4203.666.5.12");
    check::<NoOp>("1.3.6.1.4.1.4203.666.5.2");
    check::<PermissiveModify>("1.2.840.113556.1.4.1413");
    check::<TreeDelete>("1.2.840.113556.1.4.805");
    check::<DontUseCopy>("1.3.6.1.1.22");
    check::<DomainScope>("1.2.840.113556.1.4.1339");
    check::<PasswordPolicyRequest>("1.3.6.1.4.1.42.2.27.8.5.1");
    check::<AuthorizationIdentityRequest>("2.16.840.1.113730.3.4.16");
}

#[test]
fn errors_of_controls_name_the_part() {
    assert_eq!(error::<PagedResults<'_>>(None), "pagedResultsControl: missing");
    assert_eq!(
        error::<PagedResults<'_>>(Some(b"\x30\x05\x02\x01\xff\x04\x00")),
        "size: -1 is not in 0..=2147483647"
    );
    assert_eq!(error::<SortRequest<'_>>(Some(b"\x30\x00")), "SortKeyList: empty");
    assert_eq!(error::<Subentries>(Some(b"\x01\x01\xff\x00")), "visibility: 1 bytes after the end");
    assert_eq!(error::<ProxiedAuthorization<'_>>(Some(b"\xff")), "authzId: not UTF-8 at byte 0");
    assert_eq!(error::<Assertion<'_>>(Some(b"\x87\x05cn")), "filter: 5 bytes announced, 2 left");
}
