//! Comparing values: what counts, what still differs when it is read again, and how it is reported.

use std::collections::BTreeMap;

use clap::Parser as _;
use larix_engine::csn::Csn;
use larix_proto::encode::EntryEncoder;
use larix_proto::{Attributes, MessageId, Response};
use larix_replication::digest::DifferentEntry;
use serde_json::json;
use uuid::Uuid;

use super::check::still_different;
use super::entries::{self, Shown};
use super::{CommonArgs, servers, values, with_entries};

const UUID: &str = "01900000-0000-7000-8000-000000000001";
const CSN: &str = "20260101000000.000000Z#000000#001#000000";
const LATER: &str = "20260101000001.000000Z#000000#001#000000";

type Content<'a> = &'a [(&'a str, &'a [&'a str])];

/// Calls `look` with an entry as a server sends it.
fn sent<T>(content: Content<'_>, look: impl FnOnce(&str, Attributes<'_>) -> T) -> T {
    let identity: Content<'_> = &[("entryUUID", &[UUID]), ("entryCSN", &[CSN])];
    bare("cn=Ann,o=u", &[identity, content].concat(), look)
}

/// The same of an entry that has nothing else.
fn bare<T>(dn: &str, content: Content<'_>, look: impl FnOnce(&str, Attributes<'_>) -> T) -> T {
    let mut out = Vec::new();
    let mut encoder = EntryEncoder::begin(&mut out, MessageId(2), dn);
    for (name, values) in content {
        encoder.begin_attribute(name);
        values.iter().for_each(|value| encoder.value(value.as_bytes()));
        encoder.end_attribute();
    }
    encoder.finish(&[]);
    match Response::decode_message(&out).expect("decodes").response {
        Response::Entry(entry) => look(entry.dn, entry.attributes),
        other => panic!("{other:?}"),
    }
}

fn shown(csn: &str, content: Content<'_>) -> Shown {
    let mut shown = Shown { dn: "cn=Ann,o=u".to_owned(), csn: csn.parse().ok(), ..Shown::default() };
    for (name, values) in content {
        let values = values.iter().map(|value| value.as_bytes().to_vec());
        shown.attributes.insert((*name).to_owned(), values.collect());
    }
    shown
}

/// The options that all commands have, as a command line.
#[derive(clap::Parser)]
#[command(disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    common: CommonArgs,
}

/// Servers with `--replica` have a second database, for the account that the others bind as.
#[test]
fn the_suffix_of_the_replicas_account_is_no_choice() {
    let named = |suffixes: &[&str]| -> Vec<String> {
        let suffixes: Vec<String> = suffixes.iter().map(|suffix| (*suffix).to_owned()).collect();
        with_entries(&suffixes).into_iter().map(str::to_owned).collect()
    };
    assert_eq!(named(&["dc=example,dc=com", "cn=replication"]), ["dc=example,dc=com"]);
    assert_eq!(named(&["o=a", "cn=log"]), ["o=a", "cn=log"]);
}

#[test]
fn servers_are_named_once() {
    let named = |options: &[&str], urls: &[&str], environment, number| {
        let line = Line::parse_from(std::iter::once(&"larix").chain(options));
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        servers(&line.common, &urls, environment, number).map_err(|error| error.to_string())
    };
    let two = Ok(vec!["ldap://a".to_owned(), "ldap://b".to_owned()]);
    assert_eq!(named(&[], &["ldap://a", "ldap://b"], Some("ldap://c"), 2..=2), two);
    assert_eq!(named(&["-H", "ldap://a,ldap://b"], &[], Some("ldap://c"), 2..=2), two);
    assert_eq!(named(&[], &[], Some("ldap://a ldap://b"), 1..=usize::MAX), two);
    for (options, urls, number, fault) in [
        (&["-H", "ldap://a"][..], &["ldap://b"][..], 1..=usize::MAX, "name the servers once"),
        (&[], &[], 1..=usize::MAX, "name the servers as URLs, or with -H; 0 given"),
        (&["-H", "ldap://a"], &[], 2..=2, "name two servers as URLs, or with -H; 1 given"),
        (&[], &["ldap://a", "ldap://b"], 1..=1, "name one server as URLs, or with -H; 2 given"),
    ] {
        let error = named(options, urls, None, number).unwrap_err();
        assert!(error.contains(fault), "{error}");
    }
}

#[test]
fn what_of_an_entry_is_compared() {
    let plain: Content<'_> = &[("cn", &["Ann"]), ("sn", &["Smith", "Smyth"]), ("modifyTimestamp", &["1"])];
    let without = vec!["Description".to_owned()];
    let row = |content, values| sent(content, |dn, attributes| entries::row(dn, attributes, values));
    let same = |content| [None, Some(&without)].map(|values| row(content, values) == row(plain, values));
    for (what, content, expected) in [
        (
            "order and case of names",
            &[("SN", &["Smyth", "Smith"][..]), ("modifytimestamp", &["1"]), ("cn", &["Ann"])][..],
            true,
        ),
        (
            "a server's own",
            &[
                ("cn", &["Ann"]),
                ("sn", &["Smith", "Smyth"]),
                ("modifyTimestamp", &["1"]),
                ("memberOf", &["cn=g"]),
                ("pwdFailureTime", &["1"]),
                ("auditContext", &["cn=log"]),
                ("description;lang-de", &["left out"]),
            ],
            true,
        ),
        ("a value", &[("cn", &["Ann"]), ("sn", &["Smith", "Smithe"]), ("modifyTimestamp", &["1"])], false),
        ("case", &[("cn", &["Ann"]), ("sn", &["smith", "Smyth"]), ("modifyTimestamp", &["1"])], false),
        ("one less", &[("cn", &["Ann"]), ("sn", &["Smith"]), ("modifyTimestamp", &["1"])], false),
        ("operational", &[("cn", &["Ann"]), ("sn", &["Smith", "Smyth"]), ("modifyTimestamp", &["2"])], false),
        (
            "an option",
            &[("cn;lang-en", &["Ann"]), ("sn", &["Smith", "Smyth"]), ("modifyTimestamp", &["1"])],
            false,
        ),
    ] {
        assert_eq!(same(content), [true, expected], "{what}");
    }
}

#[test]
fn what_still_differs() {
    let ann: Content<'_> = &[("sn", &["Smith"])];
    let smyth: Content<'_> = &[("sn", &["Smyth"])];
    let csn = |text: &str| text.parse::<Csn>().ok();
    let uuid = Uuid::parse_str(UUID).expect("a UUID");
    let before = DifferentEntry { uuid, here: Some(csn(CSN)), there: Some(csn(LATER)) };
    let seen = |here, there| DifferentEntry { here, there, ..before };
    for (what, here, there, expected) in [
        ("arrived", Some(shown(LATER, ann)), Some(shown(LATER, ann)), None),
        ("deleted on both", None, None, None),
        ("deleted on one", None, Some(shown(LATER, ann)), Some(seen(None, Some(csn(LATER))))),
        (
            "values",
            Some(shown(LATER, ann)),
            Some(shown(LATER, smyth)),
            Some(seen(Some(csn(LATER)), Some(csn(LATER)))),
        ),
        ("entryCSN", Some(shown(CSN, ann)), Some(shown(LATER, ann)), Some(before)),
        (
            "DN",
            Some(shown(CSN, ann)),
            Some(Shown { dn: "cn=Ann,ou=x,o=u".to_owned(), ..shown(CSN, ann) }),
            Some(seen(Some(csn(CSN)), Some(csn(CSN)))),
        ),
        ("case", Some(shown(CSN, ann)), Some(Shown { dn: "CN=ann,o=u".to_owned(), ..shown(CSN, ann) }), None),
    ] {
        let found = [here, there].map(|shown| shown.map(|shown| (before.uuid, shown)).into_iter().collect());
        assert_eq!(still_different(&[before], &found), Vec::from_iter(expected), "{what}");
    }
    // Without an entryUUID, and not found again: that proves nothing.
    let nameless = DifferentEntry { uuid: Uuid::nil(), ..before };
    assert!(entries::is_made_up(&nameless.uuid) && !entries::is_made_up(&before.uuid));
    assert_eq!(still_different(&[nameless], &[BTreeMap::new(), BTreeMap::new()]), [nameless]);
}

/// Where entryUUIDs are missing or hidden, names identify entries.
#[test]
fn entries_without_an_entry_uuid() {
    let row = |dn: &str, content| {
        bare(dn, content, |dn, attributes| entries::row(dn, attributes, Some(&Vec::new())))
    };
    let (one, two) = (row("cn=One,o=u", &[("sn", &["a"])]), row("cn=two,o=u", &[("sn", &["a"])]));
    assert!(entries::is_made_up(&one.uuid) && entries::is_made_up(&two.uuid) && one.uuid != two.uuid);
    let other = row("CN=one,o=u", &[("sn", &["b"])]);
    assert!(one.uuid == other.uuid && one.digest != other.digest);
}

#[test]
fn how_values_that_differ_are_told() {
    let long = "x".repeat(65);
    let here = shown(
        CSN,
        &[
            ("cn", &["Ann"]),
            ("description", &[&long, "a\nb", "turned \u{202e} round", "Jürgen \"J\""]),
            ("member", &["1", "2", "3", "4", "5", "6", "7"]),
            ("olcsyncrepl", &["credentials=x"]),
            ("userpassword", &["geheim"]),
            ("userpassword;x-old", &["geheim"]),
        ],
    );
    let there = shown(CSN, &[("cn", &["Ann"]), ("member", &["7", "8"]), ("sn", &["Smith"])]);
    let differing = values::differing(&here, &there);
    let text: String = differing.iter().map(|attribute| attribute.text(["A", "B"])).collect();
    assert_eq!(
        text,
        r#"    description: 4 values only at A: "Jürgen \"J\"", ...
    member: 6 values only at A: "1", "2", "3", "4", "5", ...
    member: 1 value only at B: "8"
    olcsyncrepl: 1 value only at A
    sn: 1 value only at B: "Smith"
    userpassword: 1 value only at A
    userpassword;x-old: 1 value only at A
"#
    );
    let json = values::json(&differing);
    assert_eq!(
        json["member"],
        json!([{ "only": 6, "shown": ["1", "2", "3", "4", "5"] }, { "only": 1, "shown": ["8"] }])
    );
    assert_eq!(json["userpassword"], json!([{ "only": 1, "shown": [] }, { "only": 0, "shown": [] }]));
    assert_eq!(values::differing(&here, &here), []);
}
