use super::*;
use crate::client::{self, Search};
use crate::control::ControlBuf;
use crate::filter::FilterBuf;
use crate::limits;
use crate::request::{Authentication, CompareRequest, Scope};

/// A message 5 around an operation and whatever follows it.
fn message(rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    crate::ber::write::constructed(&mut out, Tag::SEQUENCE, |out| {
        out.extend_from_slice(b"\x02\x01\x05");
        out.extend_from_slice(rest);
    });
    out
}

#[test]
fn requests_that_clients_send() {
    let check = |rest: &[u8], expected: &str| {
        let pdu = message(rest);
        let decoded = Message::decode(&pdu).unwrap_or_else(|error| panic!("{error}: {rest:02x?}"));
        assert_eq!(format!("{:?}", decoded.request), expected);
    };
    check(b"\x42\x00", "Unbind");
    check(b"\x4a\x04dc=x", "Delete(\"dc=x\")");
    check(b"\x50\x01\x03", "Abandon(MessageId(3))");
    // Lengths of the long form, as Microsoft's clients write them.
    check(b"\x4a\x84\x00\x00\x00\x04dc=x", "Delete(\"dc=x\")");
    // Any octet but zero is true.
    check(
        b"\x6c\x0f\x04\x04cn=a\x04\x04cn=b\x01\x01\x01",
        "ModifyDn(ModifyDnRequest { entry: \"cn=a\", new_rdn: \"cn=b\", delete_old_rdn: true, new_superior: None })",
    );
    // Elements of a later specification, behind the request's and behind the message's.
    check(
        b"\x6e\x12\x04\x04cn=a\x30\x06\x04\x01b\x04\x01c\x85\x02xy",
        "Compare(CompareRequest { entry: \"cn=a\", attribute: \"b\", value: [99] })",
    );
    check(b"\x42\x00\xa0\x00\x85\x02xy", "Unbind");
    check(b"\x42\x00\x85\x02xy", "Unbind");
}

#[test]
fn the_texts_of_a_compare_are_each_what_was_sent() {
    let long = "n".repeat(200);
    let named = format!("cn={long}");
    for entry in ["", "cn=a", "cn=\u{e9}", "cn=\u{65e5}\u{672c}", named.as_str()] {
        for attribute in ["", "b", "\u{e9}", long.as_str()] {
            for value in [b"".as_slice(), b"\xff", long.as_bytes()] {
                let mut pdu = Vec::new();
                client::compare(&mut pdu, MessageId(5), entry, attribute, value, &[]);
                let expected = Request::Compare(CompareRequest { entry, attribute, value });
                assert_eq!(Message::decode(&pdu).unwrap().request, expected);
            }
        }
    }
    for (rest, field) in [
        (b"\x6e\x0b\x04\x01\xc3\x30\x06\x04\x01b\x04\x01c", "entry"),
        (b"\x6e\x0b\x04\x01a\x30\x06\x04\x01\xc3\x04\x01c", "attributeDesc"),
    ] {
        let error = Message::decode(&message(rest)).unwrap_err();
        assert_eq!(error.to_string(), format!("compare request: {field}: not UTF-8 at byte 0"));
        assert!(error.is_answerable());
    }
}

#[test]
fn binds_are_decoded_by_their_choice() {
    let check = |authentication: &[u8], expected: Authentication<'_>| {
        let mut bind = b"\x02\x01\x03\x04\x00".to_vec();
        bind.extend_from_slice(authentication);
        let mut op = Vec::new();
        crate::ber::write::octets(&mut op, Tag(0x60), &bind);
        let pdu = message(&op);
        let Request::Bind(bind) = Message::decode(&pdu).expect("a bind").request else {
            panic!("{pdu:02x?}")
        };
        assert_eq!(bind.authentication, expected);
    };
    check(b"\x80\x01p", Authentication::Simple(b"p"));
    check(b"\xa3\x03\x04\x01M", Authentication::Sasl { mechanism: "M", credentials: None });
    check(b"\xa3\x05\x04\x01M\x04\x00", Authentication::Sasl { mechanism: "M", credentials: Some(b"") });
    check(b"\x89\x00", Authentication::Other(9));
    check(b"\xaa\x02\x04\x00", Authentication::Other(10));
    assert_eq!(format!("{:?}", Authentication::Simple(b"secret")), "Simple(..)");
}

#[test]
fn errors_say_what_is_known() {
    let check = |pdu: &[u8], id: Option<u32>, answerable: bool, expected: &str| {
        let error = Message::decode(pdu).expect_err("not a message");
        assert_eq!(error.to_string(), expected, "{pdu:02x?}");
        assert_eq!((error.id, error.is_answerable()), (id.map(MessageId), answerable), "{expected}");
    };
    check(b"", None, false, "LDAPMessage: missing");
    check(b"\x30\x00", None, false, "messageID: missing");
    check(b"\x30\x03\x02\x01\xff", None, false, "messageID: -1 is not in 0..=2147483647");
    check(b"\x30\x03\x02\x01\x05", Some(5), false, "protocolOp: missing");
    check(b"\x30\x03\x02\x01\x05\x00", None, false, "LDAPMessage: 1 bytes after the end");
    check(&message(b"\x65\x00"), Some(5), false, "protocolOp: unknown choice 101");
    check(&message(b"\x4a\x02a\xff"), Some(5), true, "delete request: DelRequest: not UTF-8 at byte 1");
    check(&message(b"\x4a\x05a"), Some(5), false, "protocolOp: 5 bytes announced, 1 left");
    check(
        &message(b"\x4a\x80a\0\0"),
        Some(5),
        false,
        "protocolOp: indefinite length, which LDAP does not allow",
    );
    check(&message(b"\x42\x00\xa0\x02\x30\x00"), Some(5), false, "unbind request: controlType: missing");
    check(
        &message(b"\x42\x00\x85\x09"),
        Some(5),
        false,
        "unbind request: LDAPMessage: 9 bytes announced, 0 left",
    );
    let scope = b"\x63\x13\x04\x00\x0a\x01\x04\x0a\x01\x00\x02\x01\x00\x02\x01\x00\x01\x01\x00\x30\x00";
    let error = Message::decode(&message(scope)).expect_err("no such scope").to_string();
    assert_eq!(error, "invalid scope");
    let too_new = b"\x60\x08\x02\x02\x00\x80\x04\x00\x80\x00";
    check(&message(too_new), Some(5), true, "requested protocol version not supported");
}

#[test]
fn limits_hold() {
    let mut depth = b"\x87\x01a".to_vec();
    for _ in 0..20 {
        let mut outer = Vec::new();
        crate::ber::write::octets(&mut outer, Tag(0xa2), &depth);
        depth = outer;
    }
    let mut pdu = Vec::new();
    let filter = crate::Filter::decode(&depth, 100).expect("a filter");
    client::search(&mut pdu, MessageId(5), &Search::new("", Scope::Base, filter), &[]);
    let limited = |filter_depth| Message::decode_with(&pdu, &DecodeLimits { filter_depth });
    assert!(limited(20).is_ok());
    let error = limited(19).expect_err("too deep");
    assert_eq!(error.to_string(), "filter nested too deeply");
    assert!(error.is_answerable());

    let filter = FilterBuf::parse("(a=b)").expect("a filter");
    let control = ControlBuf { oid: "1.2".into(), critical: false, value: None };
    let with_controls = |count: usize| {
        let mut pdu = Vec::new();
        let search = Search::new("", Scope::Base, filter.as_filter());
        client::search(&mut pdu, MessageId(5), &search, &vec![control.clone(); count]);
        Message::decode(&pdu).map(|message| message.controls.len()).map_err(|error| error.error.fault)
    };
    assert_eq!(with_controls(limits::CONTROLS), Ok(limits::CONTROLS));
    assert_eq!(with_controls(limits::CONTROLS + 1), Err(Fault::TooMany { limit: limits::CONTROLS }));
}

/// A message with a delete and what follows it; the OIDs of its controls and whether they are critical.
fn controls_of(rest: &[u8]) -> Result<Vec<(String, bool)>, String> {
    let pdu = message(&[b"\x4a\x04dc=x", rest].concat());
    let decoded = Message::decode(&pdu).map_err(|error| error.to_string())?;
    Ok(decoded.controls.into_iter().map(|control| (control.oid.to_owned(), control.critical)).collect())
}

/// Ruby's net-ldap tags the controls of a delete as a SEQUENCE.
#[test]
fn controls_under_the_tag_of_a_sequence() {
    let one = Ok(vec![("1.2.3".to_owned(), true)]);
    assert_eq!(controls_of(b"\xa0\x0c\x30\x0a\x04\x051.2.3\x01\x01\xff"), one);
    assert_eq!(controls_of(b"\x30\x0c\x30\x0a\x04\x051.2.3\x01\x01\xff"), one);
    // Whatever else a SEQUENCE has is an unknown extension here.
    for other in [
        &b"\x30\x00"[..],
        b"\x30\x03\x02\x01\x05",
        b"\x30\x09\x30\x07\x04\x05hello",
        b"\x30\x09\x30\x07\x04\x051.2..",
        b"\x30\x0c\x30\x07\x04\x051.2.3\x04\x01x",
        b"\x30\x03\x30\x07\x04",
    ] {
        assert_eq!(controls_of(other), Ok(Vec::new()), "{other:02x?}");
    }
    // Under their own tag damaged controls are an error.
    assert!(controls_of(b"\xa0\x03\x02\x01\x05").is_err());
}
