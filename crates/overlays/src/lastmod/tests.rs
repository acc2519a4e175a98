//! What is told while lastmodEnabled changes, requests that do not reach the database, and settings that are none.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_engine::EntryId;
use larix_engine::csn::Csn;
use larix_engine::log::{LastChange, LogOutline, OutlineKind};
use larix_proto::Scope;

use super::{DESCRIPTOR, ShownChange, build};
use crate::testing::requests::Requests;
use crate::testing::{SUFFIX, schema, settings_of, with_context};

fn change(number: u64) -> LastChange {
    let outline = LogOutline {
        csn: Csn::ZERO,
        entry: EntryId(1),
        entry_uuid: uuid::Uuid::nil(),
        dn: format!("cn={number},{SUFFIX}"),
        local: false,
        absent: false,
        kind: OutlineKind::Delete,
    };
    LastChange { number, outline, requester: String::new() }
}

#[test]
fn what_was_told_stays_until_a_change_comes_while_it_is_enabled() {
    // Each: what is shown, the newest change, and the one that is told.
    for (shown, newest, told) in [
        (ShownChange::Newest, None, None),
        (ShownChange::Newest, Some(7), Some(7)),
        (ShownChange::Frozen(None), Some(7), None),
        (ShownChange::Frozen(Some(change(5))), Some(7), Some(5)),
        (ShownChange::NewestAbove(7, Some(change(5))), Some(7), Some(5)),
        (ShownChange::NewestAbove(7, Some(change(5))), Some(8), Some(8)),
        // The log is trimmed to nothing.
        (ShownChange::NewestAbove(7, Some(change(5))), None, Some(5)),
        (ShownChange::NewestAbove(7, None), Some(7), None),
    ] {
        let found = shown.change(newest.map(change)).map(|change| change.number);
        assert_eq!(found, told, "{shown:?} {newest:?}");
    }
}

#[test]
fn nothing_about_the_entry_reaches_the_database() {
    let requests = Requests::through((&DESCRIPTOR, build), "lastmod-rdnvalue \"Last Modification\"").unwrap();
    let own = &format!("cn=last modification,{SUFFIX}");
    let below = &format!("cn=a,{own}");
    let change = |dn: &str, lines: &str| requests.change(&format!("dn: {dn}\nchangetype: {lines}\n"));
    let add = "add\nobjectClass: device\ncn: a";
    let rename = |to: &str| format!("modrdn\nnewrdn: {to}\ndeleteoldrdn: 0");
    for (answer, expected) in [
        (requests.search(own, Scope::Subtree), "32"),
        (requests.search(below, Scope::Base), "32"),
        (requests.search(SUFFIX, Scope::Subtree), "0 reached"),
        (requests.compare(own), "32"),
        (requests.compare(SUFFIX), "0 reached"),
        (requests.modify_password(own), "53 \"cn=Last Modification,"),
        (requests.extended("1.2.3", own), "53 \"cn=Last Modification,"),
        (change(own, add), "53 \"cn=Last Modification,"),
        (change(below, add), "53"),
        (change(own, "delete"), "53"),
        (change(own, &rename("cn=b")), "53"),
        (change(&format!("cn=c,{SUFFIX}"), &rename("cn=Last  Modification")), "53"),
        (change(&format!("cn=c,{SUFFIX}"), &rename("cn=d")), "0 reached"),
        (change(&format!("cn=c,{SUFFIX}"), add), "0 reached"),
    ] {
        assert!(answer.starts_with(expected), "{answer}: {expected}");
    }
    let both = format!("dn: cn=c,{SUFFIX}\nchangetype: delete\n\ndn: {own}\nchangetype: delete\n");
    assert!(requests.change(&both).ends_with(", at 1"));
}

#[test]
fn what_cannot_be_configured() {
    let schema = schema(DESCRIPTOR.schema);
    for (lines, last_modified, has_suffix, fault) in [
        ("", true, true, None),
        ("lastmod-enabled no", true, true, None),
        ("lastmod-rdnvalue \"a, b\"", true, true, None),
        ("lastmod-rdnvalue \" \"", true, true, Some("lastmod-rdnvalue \" \": it is empty")),
        ("", false, true, Some("overlay lastmod: this database has `lastmod off`")),
        ("", true, false, Some("overlay lastmod: it tells the last change of one database")),
    ] {
        let built = with_context(&schema, |context| {
            let mut context = crate::testing::copied(context);
            context.last_modified = last_modified;
            if !has_suffix {
                context.suffixes = &[];
            }
            build(&settings_of(&DESCRIPTOR, lines), &context)
        });
        assert_eq!(built.err().map(|error| error.message).as_deref(), fault, "{lines}");
    }
}
