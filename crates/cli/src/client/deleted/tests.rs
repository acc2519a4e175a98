//! Selections as filters, and records as entries.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use clap::Parser;
use larix_engine::time::Timestamp;
use larix_proto::encode::EntryEncoder;
use larix_proto::{MessageId, Response};

use super::record::Deleted;
use super::select::{Selection, folded, latest, moment};

#[derive(Debug, Parser)]
#[command(disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    selection: Selection,
}

fn selection(line: &str) -> Selection {
    Line::try_parse_from(std::iter::once("x").chain(line.split(' ').filter(|word| !word.is_empty())))
        .unwrap()
        .selection
}

fn noon() -> Timestamp {
    Timestamp::parse_generalized("20261126120000Z").unwrap()
}

#[test]
fn times_are_moments_or_ages() {
    for (text, expected) in [
        ("90s", Some("20261126115830Z")),
        ("30m", Some("20261126113000Z")),
        ("2h", Some("20261126100000Z")),
        ("7d", Some("20261119120000Z")),
        ("20260101000000Z", Some("20260101000000Z")),
        ("2w", None),
        ("h", None),
        ("-1h", None),
        ("yesterday", None),
        ("99999999999d", None),
    ] {
        assert_eq!(moment(text, noon()).map(Timestamp::generalized).as_deref(), expected, "{text}");
    }
}

#[test]
fn a_selection_is_a_filter() {
    let base = "(&(objectClass=auditDelete)(reqResult=0)";
    for (line, expected) in [
        ("", ")"),
        ("--since 1h", "(reqStart>=20261126110000.000000Z))"),
        ("--until 20260101000000Z", "(!(reqStart>=20260101000000.000001Z)))"),
        ("--by cn=a(b),dc=x", "(reqAuthzID=cn=a\\28b\\29,dc=x))"),
        ("--below ou=a,dc=x", "(reqDN:dnSubtreeMatch:=ou=a,dc=x))"),
    ] {
        assert_eq!(selection(line).filter(noon(), "").unwrap(), format!("{base}{expected}"), "{line}");
    }
    for (line, expected) in [
        ("--since soon", "--since soon: not a time; write how long ago (30m, 2h, 7d) or 20261126023207Z"),
        ("--below nothing", "--below nothing: DN, column"),
        ("--by nobody", "--by nobody: DN, column"),
    ] {
        let error = selection(line).filter(noon(), "").unwrap_err().to_string();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

/// A record as a server sends it.
fn deleted(start: &str, dn: &str, uuid: &str, old: &[&[u8]]) -> Deleted {
    let mut pdu = Vec::new();
    let mut entry = EntryEncoder::begin(&mut pdu, MessageId(1), "reqStart=x,cn=log");
    let mut put = |description: &str, values: &[&[u8]]| {
        entry.begin_attribute(description);
        values.iter().for_each(|value| entry.value(value));
        entry.end_attribute();
    };
    put("reqStart", &[start.as_bytes()]);
    put("reqDN", &[dn.as_bytes()]);
    put("reqEntryUUID", &[uuid.as_bytes()]);
    put("reqOld", old);
    entry.finish(&[]);
    let message = Response::decode_message(&pdu).unwrap();
    match message.response {
        Response::Entry(entry) => Deleted::of(entry.attributes),
        _ => panic!("no entry"),
    }
}

#[test]
fn records_become_entries() {
    let one = deleted(
        "20261126110000.000000Z",
        "cn=A,dc=x",
        "u1",
        &[b"cn: A", b"sn;lang-en:  B: c", b"cn: \xff", b"description: "],
    );
    assert_eq!((one.by_whom(), one.has_content()), ("anonymous", true));
    let entry: Vec<_> = one.entry().unwrap().into_iter().map(|one| (one.description, one.values)).collect();
    let expected = [
        ("cn", vec![b"A".to_vec(), b"\xff".to_vec()]),
        ("description", vec![Vec::new()]),
        ("sn;lang-en", vec![b" B: c".to_vec()]),
    ];
    assert_eq!(entry, expected.map(|(name, values)| (name.to_owned(), values)));
    for (old, expected) in
        [(&[][..], "has no content (reqOld)"), (&[&b"nothing"[..]][..], "is not `attribute: value`")]
    {
        let error = deleted("x", "cn=a", "u", old).entry().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_last_delete_of_an_entry_counts() {
    let of = |start: &str, dn: &str, uuid: &str| deleted(start, dn, uuid, &[b"cn: a"]);
    let all = vec![
        of("1", "cn=a,dc=x", "u1"),
        of("2", "cn=b,dc=x", "u2"),
        of("3", "CN=A, dc=X", "u3"),
        of("4", "cn=c,dc=x", "U2"),
    ];
    let kept: Vec<_> = latest(all).into_iter().map(|one| one.start).collect();
    assert_eq!(kept, ["3", "4"]);
    assert_eq!(folded("CN=A\\20b, dc=X"), folded("cn=a b,dc=x"));
    assert_ne!(folded("cn=a,dc=x"), folded("cn=b,dc=x"));
}
