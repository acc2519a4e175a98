//! Operations that are denied, and lists that are none.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_proto::Scope;

use super::{DESCRIPTOR, build};
use crate::testing::SUFFIX;
use crate::testing::requests::Requests;

#[test]
fn what_is_denied_does_not_reach_the_database() {
    const KINDS: [&str; 10] = [
        "search",
        "compare",
        "bind",
        "mechanism",
        "add",
        "modify",
        "delete",
        "modrdn",
        "password",
        "extended",
    ];
    // Each with what it denies.
    for (list, denied) in [
        ("search", &["search"][..]),
        ("compare", &["compare"]),
        ("bind", &["bind"]),
        ("add", &["add"]),
        ("modify", &["modify", "password"]),
        ("delete", &["delete"]),
        ("modrdn", &["modrdn"]),
        ("extended", &["password", "extended"]),
        ("unbind", &[]),
        ("add,delete,search", &["search", "add", "delete"]),
    ] {
        let requests = Requests::through((&DESCRIPTOR, build), &format!("denyop {list}")).unwrap();
        for kind in KINDS {
            let change = |lines: &str| requests.change(&format!("dn: cn=a,{SUFFIX}\nchangetype: {lines}\n"));
            let answer = match kind {
                "search" => requests.search(SUFFIX, Scope::Subtree),
                "compare" => requests.compare(SUFFIX),
                "bind" => requests.bind(SUFFIX, false),
                "mechanism" => requests.bind(SUFFIX, true),
                "add" => change("add\nobjectClass: device\ncn: a"),
                "modify" => change("modify\nreplace: cn\ncn: b"),
                "delete" => change("delete"),
                "modrdn" => change("modrdn\nnewrdn: cn=b\ndeleteoldrdn: 0"),
                "password" => requests.modify_password(SUFFIX),
                _ => requests.extended("1.2.3", SUFFIX),
            };
            let refused = answer.starts_with("53 operation not allowed within namingContext");
            assert_eq!(refused, denied.contains(&kind), "{list} {kind}: {answer}");
            assert_eq!(answer == "0 reached", !refused, "{list} {kind}: {answer}");
        }
    }
}

#[test]
fn a_transaction_is_refused_at_the_change_that_is_denied() {
    let requests = Requests::through((&DESCRIPTOR, build), "denyop delete").unwrap();
    let changes = format!(
        "dn: cn=a,{SUFFIX}\nchangetype: modify\nreplace: cn\ncn: b\n\ndn: cn=a,{SUFFIX}\nchangetype: delete\n"
    );
    assert_eq!(requests.change(&changes), "53 operation not allowed within namingContext, at 1");
}

#[test]
fn unknown_operations_are_refused() {
    for (list, fault) in [
        ("rename", "denyop rename: unknown operation \"rename\""),
        ("add,,bind", "denyop add,,bind: unknown operation \"\""),
        ("Add", "denyop Add: unknown operation \"Add\""),
    ] {
        let error = Requests::through((&DESCRIPTOR, build), &format!("denyop {list}")).unwrap_err();
        assert_eq!(error.message, fault);
        assert!(error.help.unwrap().contains("with commas between"));
    }
}
