//! What requests below the parent are answered with, and when.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::sync::Arc;
use std::time::Duration;

use larix_backend::Delays;
use larix_proto::Scope;

use super::DESCRIPTOR;
use super::config::build_with;
use crate::testing::SUFFIX;
use crate::testing::requests::Requests;

const PARENT: &str = "ou=RetCodes,dc=example,dc=com";

fn requests(lines: &str) -> (Requests, Arc<Delays>) {
    let delays = Delays::standing_still();
    let lines = format!("retcode-parent {PARENT}\n{lines}");
    let built = Requests::through(
        (&DESCRIPTOR, |settings, context| build_with(settings, context, Arc::clone(&delays))),
        &lines,
    );
    (built.unwrap(), delays)
}

#[test]
fn entries_say_what_is_answered() {
    let (requests, _) = requests(
        "retcode-item cn=busy 0x33 \"text=come back\" matched=dc=example,dc=com\n\
         retcode-item cn=octal 012 \"ref=ldap://a ldap://b\"\n\
         retcode-item cn=read 80 op=read\n\
         retcode-item cn=write 81 op=write,auth,extended\n",
    );
    let dn = |name: &str| format!("cn={name},{PARENT}");
    let delete = |name: &str| requests.change(&format!("dn: {}\nchangetype: delete\n", dn(name)));
    let search = |name: &str| requests.search(&dn(name), Scope::Base);
    for (answer, expected) in [
        (requests.compare(&dn("busy")), "51 come back, matched dc=example,dc=com"),
        (search("BUSY"), "51 come back, matched dc=example,dc=com"),
        (delete("busy"), "51 come back, matched dc=example,dc=com, at 0"),
        (requests.bind(&dn("busy"), false), "51 come back, matched dc=example,dc=com"),
        (requests.modify_password(&dn("busy")), "51 come back, matched dc=example,dc=com"),
        (requests.extended("1.2.3", &dn("busy")), "51 come back, matched dc=example,dc=com"),
        // Who was found by a mechanism is judged as everybody is.
        (requests.bind(&dn("busy"), true), "0 reached"),
        (search("read"), "80 "),
        (requests.compare(&dn("read")), "80 "),
        (delete("read"), "0 reached"),
        (search("write"), "0 reached"),
        (delete("write"), "81 , at 0"),
        (requests.bind(&dn("write"), false), "81 "),
        (requests.extended("1.2.3", &dn("write")), "81 "),
        (search("nothing"), "32 retcode not found, matched ou=RetCodes,dc=example,dc=com"),
        (search("x,cn=busy"), "32 , matched ou=RetCodes,dc=example,dc=com"),
        (requests.search(PARENT, Scope::Base), "32 , matched ou=RetCodes,dc=example,dc=com"),
        (requests.search(SUFFIX, Scope::Subtree), "0 reached"),
        (requests.compare(SUFFIX), "0 reached"),
    ] {
        assert_eq!(answer, expected);
    }
    let referred = requests.compare(&dn("octal"));
    assert!(referred.starts_with("10 , see ldap://a/") && referred.contains("see ldap://b/"), "{referred}");
}

#[test]
fn an_entry_lets_nobody_in() {
    let (requests, _) = requests("retcode-item cn=success 0\n");
    let dn = format!("cn=success,{PARENT}");
    assert_eq!(requests.compare(&dn), "0 ");
    // The database answers, which knows no such entry.
    assert_eq!(requests.bind(&dn, false), "0 reached");
}

#[test]
fn answers_are_late() {
    let (requests, delays) = requests("retcode-item cn=late 80 sleeptime=2\n");
    let dn = format!("cn=late,{PARENT}");
    let second = Duration::from_secs(1);
    for ask in ["compare", "search", "change", "bind"] {
        let (answer, expected) = match ask {
            "compare" => (requests.compare(&dn), "80 "),
            "search" => (requests.search(&dn, Scope::Base), "80 "),
            "change" => (requests.change(&format!("dn: {dn}\nchangetype: delete\n")), "80 , at 0"),
            _ => (requests.bind(&dn, false), "80 "),
        };
        assert_eq!(answer, "later", "{ask}");
        delays.pass(second);
        assert_eq!(requests.late(), None, "{ask}");
        delays.pass(second);
        assert_eq!(requests.late().as_deref(), Some(expected), "{ask}");
    }
}

#[test]
fn every_request_takes_its_time() {
    let (requests, delays) = requests("retcode-sleep 3\nretcode-item cn=late 80 sleeptime=2\n");
    for (ask, seconds, expected) in [
        ("compare", 3, "0 reached"),
        ("search", 3, "0 reached"),
        ("change", 3, "0 reached"),
        ("item", 5, "80 "),
    ] {
        let answer = match ask {
            "compare" => requests.compare(SUFFIX),
            "search" => requests.search(SUFFIX, Scope::Subtree),
            "change" => requests.change(&format!("dn: {SUFFIX}\nchangetype: delete\n")),
            _ => requests.compare(&format!("cn=late,{PARENT}")),
        };
        assert_eq!(answer, "later", "{ask}");
        delays.pass(Duration::from_secs(seconds - 1));
        assert_eq!(requests.late(), None, "{ask}");
        delays.pass(Duration::from_secs(1));
        assert_eq!(requests.late().as_deref(), Some(expected), "{ask}");
    }
    // A time below the one that is given.
    let (requests, delays) = self::requests("retcode-sleep -2\n");
    requests.compare(SUFFIX);
    delays.pass(Duration::from_secs(2));
    assert!(requests.late().is_none_or(|answer| answer == "0 reached"));
}

#[test]
fn connections_are_told_and_closed() {
    const UNANSWERED: &str = "4294967295 ";
    for (item, answer, events) in [
        ("0x34 flags=pre-disconnect", UNANSWERED, &["closed"][..]),
        ("0x34 flags=disconnect", UNANSWERED, &["closed"]),
        ("0x34 flags=post-disconnect", "52 ", &["closed"]),
        ("0x34 unsolicited=0", UNANSWERED, &["message 0: 52"]),
        ("0 unsolicited=1.3.6.1.4.1.1466.20036", UNANSWERED, &["message 0: 0 1.3.6.1.4.1.1466.20036 "]),
        ("2 \"unsolicited=1.2.3: a b\"", UNANSWERED, &["message 0: 2 1.2.3 a b"]),
        ("2 unsolicited=1.2.3::YWI=", UNANSWERED, &["message 0: 2 1.2.3 ab"]),
        ("2 unsolicited=0 flags=post-disconnect", UNANSWERED, &["message 0: 2", "closed"]),
    ] {
        let (requests, _) = requests(&format!("retcode-item cn=x {item}\n"));
        let dn = format!("cn=x,{PARENT}");
        let answers = [requests.compare(&dn), requests.search(&dn, Scope::Base)].map(|told| match &*told {
            "later" => requests.late().unwrap_or_default(),
            _ => told,
        });
        assert_eq!(answers, [answer, answer], "{item}");
        assert_eq!(requests.events(), [events, events].concat(), "{item}");
    }
}

#[test]
fn mistakes_are_told() {
    for (lines, fault) in [
        ("retcode-item cn=a,cn=b 1", "\"cn=a,cn=b\" is not a single RDN"),
        ("retcode-item nosuch=a 1", "nosuch"),
        ("retcode-item cn=a 1x", "\"1x\" is not a result code"),
        ("retcode-item cn=a -1", "\"-1\" is not a result code"),
        ("retcode-item cn=a 08", "\"08\" is not a result code"),
        ("retcode-item cn=a", "an RDN and a result code are needed"),
        ("retcode-item cn=a 1 op=reed", "unknown operation \"reed\""),
        ("retcode-item cn=a 1 sleeptime=x", "not a number of seconds"),
        ("retcode-item cn=a 1 text=a text=b", "text=b: given twice"),
        ("retcode-item cn=a 1 ref=ldap://a", "only a referral (0x0a) has URLs"),
        ("retcode-item cn=a 1 matched=a", "matched=a: not a DN"),
        ("retcode-item cn=a 1 flags=x", "write disconnect, pre-disconnect or post-disconnect"),
        ("retcode-item cn=a 1 colour=x", "colour=x: unknown"),
        ("retcode-item cn=a 1 alone", "unknown option \"alone\""),
        ("retcode-sleep soon", "retcode-sleep \"soon\": not a number"),
    ] {
        let delays = Delays::standing_still();
        let built = Requests::through(
            (&DESCRIPTOR, |settings, context| build_with(settings, context, delays)),
            lines,
        );
        let error = built.unwrap_err();
        assert!(error.message.contains(fault), "{lines}: {}", error.message);
    }
}
