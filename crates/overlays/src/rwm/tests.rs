//! The settings of the overlay, and requests that pass it.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use larix_engine::overlay::WordFault;
use larix_proto::Scope;

use super::{DESCRIPTOR, build};
use crate::testing::requests::Requests;
use crate::testing::schema;

fn through(lines: &str) -> Requests {
    Requests::through((&DESCRIPTOR, build), lines).unwrap_or_else(|error| panic!("{lines}: {error}"))
}

#[test]
fn settings_that_cannot_be() {
    for (lines, text, help) in [
        ("rwm-rewriteRule a ${>gone(x)}", "no context or map `gone`", "before the rule"),
        ("rwm-rewriteContext a alias b", "no context `b`", "before its other name"),
        ("rwm-rewriteMap ldap x ldap://h/", "kind `ldap`", "slapd"),
        ("rwm-rewriteSomething on", "`rwm-rewriteSomething` is no command", "rewriteEngine"),
        ("rwm-suffixmassage a b c d", "one or two suffixes", "SUFFIX-THERE"),
        ("rwm-suffixmassage dc=a notadn", "\"notadn\" is not a DN", "SUFFIX-THERE"),
        ("rwm-map attribute cn a\nrwm-map attribute cn b", "`cn` is mapped already", "one line"),
        ("rwm-map syntax a", "`syntax` is neither", "attribute|objectclass"),
        ("rwm-t-f-support discover", "not asked of it", ""),
        (
            "rwm-rewriteEngine on\nrwm-rewriteMap slapd m ldap:///dc=x?dn?sub\nrwm-rewriteContext matchedDN\n\
             rwm-rewriteRule (.*) ${m($1)}",
            "the rules of matchedDN search",
            "without maps",
        ),
    ] {
        let error = Requests::through((&DESCRIPTOR, build), lines).unwrap_err();
        assert!(error.message.contains(text), "{lines}: {error}");
        assert!(error.help.unwrap_or_default().contains(help), "{lines}");
    }
}

#[test]
fn words_are_looked_at_where_they_stand() {
    let schema = schema("");
    let check = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        larix_rewrite::lines::check_rewrite(&schema, &words)
            .map_err(|WordFault { argument, message, .. }| (argument, message))
    };
    for line in [
        "rwm-rewriteEngine on",
        "rwm-suffixmassage dc=a",
        "rwm-suffixmassage dc=a dc=b",
        "rwm-rewriteRule a ${>later(x)}",
        "rwm-rewriteRule a ${**who}",
        "rwm-rewriteContext a alias later",
    ] {
        assert_eq!(check(line), Ok(()), "{line}");
    }
    for (line, at, text) in [
        ("rwm-rewriteRule ( x", 1, "not a regular expression"),
        ("rwm-rewriteRule a b Z", 3, "no flags"),
        ("rwm-suffixmassage dc=a x", 2, "not a DN"),
        ("rwm-suffixmassage dc=a dc=", 2, "empty value of \"dc\""),
        ("rwm-rewrite", 0, "no command"),
    ] {
        let (argument, message) = check(line).unwrap_err();
        assert!(argument == at && message.contains(text), "{line}: {argument} {message}");
    }
}

#[test]
fn rules_refuse_each_kind_of_request() {
    let lines = |context: &str| {
        format!("rwm-rewriteEngine on\nrwm-rewriteContext {context}\nrwm-rewriteRule ou=no.* x #")
    };
    let (yes, no) = ("ou=yes,dc=x", "ou=no,dc=x");
    let entry = "objectClass: organizationalUnit\nou: x\n";
    type Ask<'a> = &'a dyn Fn(&Requests, &str) -> String;
    let asks: [(&str, Ask<'_>); 8] = [
        ("searchDN", &|through, dn| through.search(dn, Scope::Subtree)),
        ("compareDN", &|through, dn| through.compare(dn)),
        ("bindDN", &|through, dn| through.bind(dn, false)),
        ("addDN", &|through, dn| through.change(&format!("dn: {dn}\n{entry}"))),
        ("modifyDN", &|through, dn| through.change(&format!("dn: {dn}\nchangetype: modify\nreplace: cn\n"))),
        ("deleteDN", &|through, dn| through.change(&format!("dn: {dn}\nchangetype: delete\n"))),
        ("renameDN", &|through, dn| {
            through.change(&format!("dn: {dn}\nchangetype: modrdn\nnewrdn: ou=z\ndeleteoldrdn: 1\n"))
        }),
        ("exopPasswdDN", &|through, dn| through.modify_password(dn)),
    ];
    for (context, ask) in asks {
        let through = through(&lines(context));
        assert_eq!(ask(&through, yes), "0 reached", "{context}");
        assert_eq!(ask(&through, no), format!("53 {context} massage error"), "{context}");
    }
    // Of several changes the one is told that is refused.
    let through = through(&lines("deleteDN"));
    let two = format!("dn: {yes}\nchangetype: delete\n\ndn: {no}\nchangetype: delete\n");
    assert_eq!(through.change(&two), "53 deleteDN massage error, at 1");
    // A name that is none any more.
    let broken = self::through("rwm-rewriteEngine on\nrwm-rewriteRule ou=no.* x :");
    assert_eq!(broken.search(no, Scope::Base), "34 invalid DN");
    assert_eq!(broken.compare(no), "34 invalid DN");
    assert_eq!(broken.bind(no, false), "34 invalid DN");
}

#[test]
fn extended_operations_are_passed_on_where_nothing_is_mapped() {
    let through = through("rwm-suffixmassage dc=a dc=b");
    assert_eq!(through.extended("1.2.3", "dc=other"), "0 reached");
    assert!(through.extended("1.2.3", "cn=x,dc=a").starts_with("53 names in this extended operation"));
}
