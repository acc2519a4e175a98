//! SASL mechanisms and identities whose entries are in a shared engine.

use std::process::Command;

use larix_testkit::packages;
use larix_testkit::postgresql::Engine;
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};

use super::{LEASE, fill, leader, nodes_with, until};

const GLOBAL: &str = "authz-policy to\nsasl-host localhost\nsasl-secprops none\n\
    sasl-mechanisms SCRAM-SHA-256 SCRAM-SHA-1 DIGEST-MD5 CRAM-MD5 PLAIN\n\
    authz-regexp \"^uid=([^,]+),cn=[^,]+,cn=auth$\" \"ldap:///dc=example,dc=com??sub?(cn=$1)\"\n";
const RULES: &str = "access to attrs=userPassword,authzTo by * auth\naccess to * by * read";

fn bob() -> String {
    format!(
        "add cn=bob,{SUFFIX}\n  objectClass: person\n  cn: bob\n  sn: b\n  userPassword: secret\n  \
         authzTo: dn:cn=ann,ou=people,{SUFFIX}"
    )
}

/// Whom the server takes the client for, or the code that it was refused with.
fn whoami(node: &Member, mechanism: &str, (user, password): (&str, &str), more: &[&str]) -> String {
    let output = Command::new("/usr/bin/ldapwhoami")
        .env("LDAPNOINIT", "1")
        .args(["-H", &node.url(), "-Q", "-N", "-O", "none", "-Y", mechanism])
        .args(["-U", user, "-w", password])
        .args(more)
        .output()
        .expect("ldapwhoami");
    match output.status.code() {
        Some(0) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        code => format!("{code:?}"),
    }
}

#[test]
fn identities_are_found_at_every_node() {
    if packages::LDAP_UTILS.is_lacking() | packages::SASL_MODULES.is_lacking() {
        return;
    }
    let Some(mut engine) = Engine::start() else { return };
    let mut nodes = nodes_with(&engine.database().1, 2, LEASE, (GLOBAL, RULES));
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let at = leader(&nodes);
    until("bob is there", || {
        ["=> 0", "=> 68"].iter().any(|code| super::change(&nodes[at], &bob()).starts_with(code))
    });
    let (ann, own) = (format!("dn:cn=ann,ou=people,{SUFFIX}"), format!("dn:cn=bob,{SUFFIX}"));
    for node in &nodes {
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-1", "DIGEST-MD5", "CRAM-MD5", "PLAIN"] {
            assert_eq!(whoami(node, mechanism, ("bob", "secret"), &[]), own, "{mechanism}");
            assert_eq!(whoami(node, mechanism, ("bob", "wrong"), &[]), "Some(49)", "{mechanism}");
            assert_eq!(whoami(node, mechanism, ("nobody", "secret"), &[]), "Some(49)", "{mechanism}");
        }
        // Who binds acts for another one, whom his entry names; nobody else may.
        for mechanism in ["SCRAM-SHA-256", "PLAIN", "DIGEST-MD5"] {
            assert_eq!(whoami(node, mechanism, ("bob", "secret"), &["-X", "u:ann"]), ann, "{mechanism}");
            assert_eq!(whoami(node, mechanism, ("bob", "secret"), &["-X", &ann]), ann, "{mechanism}");
            let denied = whoami(node, mechanism, ("ann", "right"), &["-X", &own]);
            assert_eq!(denied, "Some(50)", "{mechanism}");
        }
        // The same by a control (RFC 4370).
        let by_control = |user: &str, password: &str, whom: &str| {
            let (who, control) = (format!("{user},{SUFFIX}"), format!("!authzid={whom}"));
            let output = Command::new("/usr/bin/ldapwhoami")
                .env("LDAPNOINIT", "1")
                .args(["-x", "-H", &node.url(), "-D", &who, "-w", password, "-e", &control])
                .output()
                .expect("ldapwhoami");
            (output.status.code(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        assert_eq!(by_control("cn=bob", "secret", &ann), (Some(0), ann.clone()));
        assert_ne!(by_control("cn=ann,ou=people", "right", &own).0, Some(0));
    }

    // What cannot be looked up is not said to be wrong, and nobody waits for it.
    engine.crash();
    let mut admin = Client::connect(nodes[0].address());
    assert_eq!(ask(&mut admin, &format!("as {ADMIN} secret")), "=> 0\n");
    for mechanism in ["SCRAM-SHA-256", "PLAIN"] {
        assert_eq!(whoami(&nodes[0], mechanism, ("bob", "secret"), &[]), "Some(52)", "{mechanism}");
    }
    engine.run();
    until("it is found again", || whoami(&nodes[0], "PLAIN", ("bob", "secret"), &[]) == own);
    nodes.iter_mut().for_each(Member::stop);
}

/// A group of another database lets its members write, whether that is stored or in an engine.
#[test]
fn rules_see_groups_of_other_databases() {
    let Some(engine) = Engine::start() else { return };
    let (_, address) = engine.database();
    let more = format!(
        "access to * by group=\"cn=staff,dc=beside\" write by group=\"cn=staff,dc=shared\" read by * auth\n\
         database mdb\nsuffix dc=beside\nrootdn cn=root,dc=beside\nrootpw secret\ndirectory @DATA@\n\
         database kv\nengine {address}\nengine-schema second\nnode ldap://127.0.0.1:1\nsuffix dc=shared\n\
         rootdn cn=root,dc=shared\nrootpw secret"
    );
    let mut nodes = nodes_with(&engine.database().1, 1, LEASE, ("", &more));
    nodes.iter_mut().for_each(Member::start);
    fill(&nodes[0]);
    let ann = format!("cn=ann,ou=people,{SUFFIX}");
    let own = |request: &str| {
        let mut client = Client::connect(nodes[0].address());
        assert_eq!(ask(&mut client, &format!("as {ann} right")), "=> 0\n");
        ask(&mut client, request)
    };
    let read = format!("search {ann} base (objectClass=*) sn");
    let write = format!("modify {ann}\n  replace description: her own");
    assert_eq!(own(&read), "=> 50\n", "she is in no group");
    for (suffix, allowed) in [("dc=shared", "sn: Lee"), ("dc=beside", "=> 0")] {
        let name = suffix.trim_start_matches("dc=");
        let entries = [
            format!("add {suffix}\n  objectClass: domain\n  dc: {name}"),
            format!("add cn=staff,{suffix}\n  objectClass: groupOfNames\n  cn: staff\n  member: {ann}"),
        ];
        for entry in entries {
            until("it is added", || {
                let mut root = Client::connect(nodes[0].address());
                ask(&mut root, &format!("as cn=root,{suffix} secret"));
                ["=> 0", "=> 68"].iter().any(|code| ask(&mut root, &entry).starts_with(code))
            });
        }
        until("the group counts", || {
            let rights = if suffix == "dc=shared" { &read } else { &write };
            own(rights).contains(allowed)
        });
        if suffix == "dc=shared" {
            assert!(own(&write).starts_with("=> 50"), "it may only read");
        }
    }
    nodes.iter_mut().for_each(Member::stop);
}
