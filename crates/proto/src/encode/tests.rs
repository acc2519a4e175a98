use super::*;
use crate::result::ResultCode;

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    // What is in the buffer before stays.
    let mut out = vec![0xee];
    encode(&mut out);
    assert_eq!(out.remove(0), 0xee);
    out
}

#[test]
fn results_are_encoded_as_published() {
    let success = LdapResult::success();
    let id = MessageId(1);
    let done = encoded(|out| result(out, id, ResponseOp::SearchDone, &success, &[]));
    assert_eq!(done, b"\x30\x0c\x02\x01\x01\x65\x07\x0a\x01\x00\x04\x00\x04\x00");
    let missing = LdapResult::with(ResultCode::NO_SUCH_OBJECT, "gone").matched("dc=x");
    let delete = encoded(|out| result(out, id, ResponseOp::Delete, &missing, &[]));
    assert_eq!(delete, b"\x30\x14\x02\x01\x01\x6b\x0f\x0a\x01\x20\x04\x04dc=x\x04\x04gone");
    let mut referral = LdapResult::new(ResultCode::REFERRAL);
    referral.referrals = vec!["ldap://h".into()];
    let compare = encoded(|out| result(out, id, ResponseOp::Compare, &referral, &[]));
    assert_eq!(compare, b"\x30\x18\x02\x01\x01\x6f\x13\x0a\x01\x0a\x04\x00\x04\x00\xa3\x0a\x04\x08ldap://h");
    let control = ControlBuf { oid: "1.2".into(), critical: true, value: Some(vec![]) };
    let with_control = encoded(|out| result(out, id, ResponseOp::Add, &success, &[control]));
    let expected =
        b"\x30\x1a\x02\x01\x01\x69\x07\x0a\x01\x00\x04\x00\x04\x00\xa0\x0c\x30\x0a\x04\x031.2\x01\x01\xff\x04\x00";
    assert_eq!(with_control, expected);
    let bind = encoded(|out| bind_result(out, id, &success, Some(b"s"), &[]));
    assert_eq!(bind, b"\x30\x0f\x02\x01\x01\x61\x0a\x0a\x01\x00\x04\x00\x04\x00\x87\x01s");
    let notice = encoded(|out| notice_of_disconnection(out, &LdapResult::new(ResultCode::UNAVAILABLE)));
    assert_eq!(
        notice,
        b"\x30\x24\x02\x01\x00\x78\x1f\x0a\x01\x34\x04\x00\x04\x00\x8a\x161.3.6.1.4.1.1466.20036"
    );
    let info = encoded(|out| intermediate(out, id, None, Some(b"v"), &[]));
    assert_eq!(info, b"\x30\x08\x02\x01\x01\x79\x03\x81\x01v");
    let reference = encoded(|out| search_reference(out, id, &["ldap://h".into()], &[]));
    assert_eq!(reference, b"\x30\x0f\x02\x01\x01\x73\x0a\x04\x08ldap://h");
}

#[test]
fn entries_are_encoded_with_room_for_lengths() {
    let entry = encoded(|out| {
        let mut entry = EntryEncoder::begin(out, MessageId(2), "dc=x");
        entry.attribute("dc", b"\x04\x01x");
        entry.begin_attribute("cn");
        entry.value(b"a");
        entry.values_ber(b"\x04\x01b");
        entry.attribute("sn", b"");
        entry.finish(&[]);
    });
    // The outer lengths have room for 64 KB, so that nothing is moved.
    let expected: &[u8] = b"\x30\x82\x00\x36\x02\x01\x02\x64\x82\x00\x2f\x04\x04dc=x\x30\x82\x00\x25\
        \x30\x09\x04\x02dc\x31\x03\x04\x01x\x30\x0c\x04\x02cn\x31\x06\x04\x01a\x04\x01b\x30\x06\x04\x02sn\x31\x00";
    let message = crate::Response::decode_message(&entry).expect("an entry");
    let crate::Response::Entry(decoded) = message.response else { panic!("{message:?}") };
    let attributes: Vec<_> = decoded
        .attributes
        .iter()
        .map(|attribute| (attribute.description, attribute.values.iter().collect::<Vec<_>>()))
        .collect();
    assert_eq!(attributes, [("dc", vec![&b"x"[..]]), ("cn", vec![b"a", b"b"]), ("sn", vec![])]);
    assert_eq!(entry.len(), expected.len());
    assert_eq!(crate::Response::entry_name(&entry), Some("dc=x"));
    let done = b"\x30\x0c\x02\x01\x02\x65\x07\x0a\x01\x00\x04\x00\x04\x00";
    assert_eq!(crate::Response::entry_name(done), None);
}

#[test]
fn a_head_made_before_writes_the_same() {
    for (name, values) in
        (0..140).flat_map(|name| [0, 1, 2, 60, 117, 122, 125, 127, 128, 300].map(|values| (name, values)))
    {
        let (description, values) = ("d".repeat(name), vec![7; values]);
        let head = AttributeHead::new(&description);
        let write = |by_head: bool| {
            encoded(|out| {
                let mut entry = EntryEncoder::begin(out, MessageId(1), "cn=x");
                entry.begin_attribute("cn");
                entry.value(b"a");
                if by_head {
                    entry.attribute_under(&head, &description, &values);
                } else {
                    entry.attribute(&description, &values);
                }
                entry.finish(&[]);
            })
        };
        assert_eq!(write(true), write(false), "{name} {}", values.len());
    }
}

#[test]
fn attributes_in_a_run_are_the_same_as_one_by_one() {
    let names = ["cn", "objectClass", "aDescriptionThatIsLongerThanAnyOthers", "x"];
    let long = "d".repeat(80);
    let names: Vec<&str> = names.into_iter().chain([long.as_str()]).collect();
    let heads: Vec<AttributeHead> = names.iter().map(|name| AttributeHead::new(name)).collect();
    let octets: Vec<u8> = (0..=255).cycle().take(400).collect();
    // What stands behind the values is not taken over, whatever it is.
    for behind in [0, 9] {
        let write = |in_run: bool| {
            encoded(|out| {
                let mut entry = EntryEncoder::begin(out, MessageId(1), "cn=x");
                for round in 0..3 {
                    let mut one_by_one = Vec::new();
                    for length in (0..135).chain([200, 300]).chain(0..128) {
                        let at = (length + round) % names.len();
                        let (head, name) = (&heads[at], names[at]);
                        one_by_one.push((head, name, length));
                    }
                    if in_run {
                        entry.run(|run| {
                            for (head, name, length) in one_by_one {
                                let mut values = octets.clone();
                                values.iter_mut().skip(length).for_each(|octet| *octet = behind);
                                let room = values
                                    .first_chunk()
                                    .filter(|room: &&[u8; VALUES_ROOM]| length <= room.len());
                                if !room.is_some_and(|room| run.short(head, length, room)) {
                                    run.long(name, &values[..length]);
                                }
                            }
                        });
                    } else {
                        for (_, name, length) in one_by_one {
                            entry.attribute(name, &octets[..length]);
                        }
                    }
                    // Something else between two runs.
                    entry.begin_attribute("sn");
                    entry.value(b"x");
                }
                entry.finish(&[]);
            })
        };
        assert_eq!(write(true), write(false), "{behind}");
    }
}

#[test]
fn bare_results_are_written_as_others() {
    for id in [0, 1, 127, 128, 255, 256, 0x7fff, 0x8000, 0xffff, 0x7f_ffff, 0x80_0000, 0x7fff_ffff, u32::MAX]
    {
        for code in [0, 5, 6, 32, 127, 128, 4096] {
            let (id, result) = (MessageId(id), LdapResult::new(ResultCode(code)));
            for op in [ResponseOp::SearchDone, ResponseOp::Compare, ResponseOp::Modify, ResponseOp::Bind] {
                let whole = encoded(|out| {
                    message(out, id, &[], |out| {
                        write::constructed(out, tag(op), |out| components(out, &result));
                    });
                });
                let is_bare = result.code != ResultCode::UNANSWERED;
                let want = if is_bare { whole } else { Vec::new() };
                assert_eq!(encoded(|out| super::result(out, id, op, &result, &[])), want, "{id:?} {code}");
                if op == ResponseOp::Bind {
                    assert_eq!(
                        encoded(|out| bind_result(out, id, &result, None, &[])),
                        want,
                        "{id:?} {code}"
                    );
                }
            }
        }
    }
}

#[test]
fn entries_of_any_size() {
    for size in [0usize, 100, 127, 128, 255, 256, 60_000, 65_535, 65_536, 200_000, 17_000_000] {
        let value = vec![b'v'; size];
        let entry = encoded(|out| {
            let mut entry = EntryEncoder::begin(out, MessageId(0x7fff_ffff), "cn=x");
            entry.begin_attribute("a");
            entry.value(&value);
            entry.finish(&[]);
        });
        let message = crate::Response::decode_message(&entry).expect("an entry");
        let crate::Response::Entry(decoded) = message.response else { panic!("not an entry") };
        let attribute = decoded.attributes.iter().next().expect("an attribute");
        assert!(attribute.values.iter().eq([&value[..]]), "{size}");
    }
}

#[test]
fn an_entry_can_be_taken_back() {
    let mut out = b"before".to_vec();
    let mut entry = EntryEncoder::begin(&mut out, MessageId(2), "dc=x");
    entry.begin_attribute("cn");
    entry.value(b"a");
    entry.cancel();
    assert_eq!(out, b"before");
    drop(EntryEncoder::begin(&mut out, MessageId(2), "dc=x"));
    assert_eq!(out, b"before");
}

#[test]
fn an_entry_can_be_a_controls_value() {
    let mut value = Vec::new();
    let mut entry = EntryEncoder::begin_value(&mut value, "dc=x");
    entry.attribute("dc", b"\x04\x01x");
    entry.finish(&[]);
    use crate::control::{ControlValue, PreReadResponse};
    let response = PreReadResponse::decode(Some(&value)).expect("a value");
    assert_eq!((response.dn, response.attributes.len()), ("dc=x", 1));
}
