use std::fmt::Debug;

use super::*;
use crate::control::{ControlBuf, Controls};
use crate::message_id::MessageId;
use crate::request::Authentication;
use crate::result::ResultCode;

fn check<'a, E: ExtendedValue<'a> + Debug + PartialEq>(ber: Option<&'a [u8]>, value: &E) {
    assert_eq!(E::decode(ber).as_ref(), Ok(value), "{ber:02x?}");
    assert_eq!(value.encode().as_deref(), ber, "{value:?}");
    let request = ExtendedRequest { name: E::OID, value: ber };
    assert_eq!(E::from_request(&request).expect("the operation").as_ref(), Ok(value));
    assert!(E::from_request(&ExtendedRequest { name: "1.2.3", value: ber }).is_none());
}

#[test]
fn extended_requests_are_there_and_back() {
    check(None, &StartTls);
    check(None, &WhoAmI);
    check(None, &StartTransaction);
    check(Some(b"\x30\x03\x02\x01\x07"), &Cancel { id: MessageId(7) });
    check(None, &PasswordModify::default());
    let user = Some(&b"u"[..]);
    check(Some(b"\x30\x03\x80\x01u"), &PasswordModify { user, ..PasswordModify::default() });
    let all = PasswordModify { user, old: Some(b"o"), new: Some(b"n") };
    check(Some(b"\x30\x09\x80\x01u\x81\x01o\x82\x01n"), &all);
    check(Some(b"\x30\x03\x04\x01t"), &EndTransaction { commit: true, identifier: b"t" });
    check(Some(b"\x30\x06\x01\x01\x00\x04\x01t"), &EndTransaction { commit: false, identifier: b"t" });
    let other_tag = EndTransaction::decode(Some(b"\x30\x06\x01\x01\x00\x80\x01t"));
    assert_eq!(other_tag, Ok(EndTransaction { commit: false, identifier: b"t" }));
    let none = Controls::check(b"").unwrap();
    let verify = VerifyCredentials {
        cookie: None,
        name: "cn=a",
        authentication: Authentication::Simple(b"pw"),
        controls: none,
    };
    check(Some(b"\x30\x0a\x04\x04cn=a\x80\x02pw"), &verify);
    assert!(!format!("{verify:?}").contains("pw"));
    let controls = Controls::check(b"\x30\x05\x04\x031.2").unwrap();
    let sasl = Authentication::Sasl { mechanism: "X", credentials: Some(b"y") };
    let verify = VerifyCredentials { cookie: Some(b"c"), name: "", authentication: sasl, controls };
    check(Some(b"\x30\x16\x80\x01c\x04\x00\xa3\x06\x04\x01X\x04\x01y\xa2\x07\x30\x05\x04\x031.2"), &verify);
    let refused = |error: DecodeError| error.to_string();
    assert!(VerifyCredentials::decode(None).is_err());
    assert!(VerifyCredentials::decode(Some(b"\x30\x06\x04\x04cn=a")).is_err());
    let present = "requestValue: present where there must be none";
    assert_eq!(WhoAmI::decode(Some(b"")).map_err(refused), Err(present.into()));
    let trailing = PasswordModify::decode(Some(b"\x30\x03\x85\x01u")).map_err(refused);
    assert_eq!(trailing, Err("PasswdModifyRequestValue: 3 bytes after the end".into()));
    assert_eq!(Cancel::decode(None).map_err(refused), Err("cancelRequestValue: missing".into()));
}

#[test]
fn extended_responses_are_there_and_back() {
    let generated = PasswordModifyResponse { generated: Some(b"secret") };
    assert_eq!(generated.encode().as_deref(), Some(&b"\x30\x08\x80\x06secret"[..]));
    assert_eq!(PasswordModifyResponse::decode(Some(b"\x30\x08\x80\x06secret")), Ok(generated));
    assert_eq!(PasswordModifyResponse::default().encode(), None);
    let code = ResultCode::INVALID_CREDENTIALS;
    let verified = VerifyCredentialsResponse { code, diagnostic: "no".to_owned(), controls: Vec::new() };
    assert_eq!(verified.encode().as_deref(), Some(&b"\x30\x07\x02\x01\x31\x04\x02no"[..]));
    assert_eq!(VerifyCredentialsResponse::decode(verified.encode().as_deref()), Ok(verified));
    assert_eq!(WhoAmIResponse::decode(Some(b"dn:cn=a")), Ok(WhoAmIResponse { authorization_id: "dn:cn=a" }));
    assert_eq!(WhoAmIResponse::decode(None), Ok(WhoAmIResponse { authorization_id: "" }));
    assert!(!format!("{generated:?}").contains("secret"));
    let control = ControlBuf { oid: "1.2".into(), critical: false, value: Some(vec![7]) };
    let update = UpdateControls { id: MessageId(2), controls: vec![control] };
    let response = EndTransactionResponse { failed: Some(MessageId(3)), controls: vec![update] };
    let ber = b"\x30\x16\x02\x01\x03\x30\x11\x30\x0f\x02\x01\x02\x30\x0a\x30\x08\x04\x031.2\x04\x01\x07";
    assert_eq!(response.encode().as_deref(), Some(&ber[..]));
    assert_eq!(EndTransactionResponse::decode(Some(ber)), Ok(response));
    assert_eq!(EndTransactionResponse::default().encode(), None);
}

#[test]
fn sync_info() {
    let check = |ber: &[u8], info: SyncInfo<'_>| {
        assert_eq!(SyncInfo::decode(Some(ber)).as_ref(), Ok(&info), "{ber:02x?}");
        assert_eq!(info.encode(), ber, "{info:?}");
    };
    check(b"\x80\x01c", SyncInfo::NewCookie(b"c"));
    check(b"\xa1\x03\x01\x01\x00", SyncInfo::RefreshDelete { cookie: None, done: false });
    check(b"\xa2\x03\x04\x01c", SyncInfo::RefreshPresent { cookie: Some(b"c"), done: true });
    let uuids = vec![*b"0123456789abcdef"];
    check(
        b"\xa3\x17\x01\x01\xff\x31\x12\x04\x100123456789abcdef",
        SyncInfo::IdSet { cookie: None, deletes: true, uuids },
    );
    assert!(SyncInfo::decode(Some(b"\x84\x00")).is_err());
}
