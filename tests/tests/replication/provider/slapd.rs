//! Real slapds as consumers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use larix_load::generate::Random;
use larix_proto::Scope;
use larix_testkit::process::{Signal, free_port, signal};
use larix_testkit::{Kind, Running, Site, until};
use larix_tests::client::Client;
use larix_tests::relay::{Passage, Relay};
use larix_tests::scripted::ScriptedProvider;
use larix_tests::sync::{SyncSearch, read};

use super::{ADMIN, DATABASE, admin, change, content, mark, random_change, site};

/// Every slapd there is: Debian's, and the one that `SLAPD_NEWER` names, or that lies in its usual place.
fn slapds() -> Vec<PathBuf> {
    let newer = std::env::var_os("SLAPD_NEWER")
        .map_or_else(|| PathBuf::from("/opt/openldap-2.7/libexec/slapd"), PathBuf::from);
    let found: Vec<PathBuf> =
        [Kind::Slapd.program(), Some(newer).filter(|path| path.exists())].into_iter().flatten().collect();
    let _ = Kind::Slapd.is_lacking();
    found
}

/// A slapd that follows a provider.
struct SlapdConsumer {
    program: PathBuf,
    site: Site,
    port: u16,
}

impl SlapdConsumer {
    fn new(program: PathBuf, provider: u16, more: &str) -> Self {
        let line = format!(
            "{DATABASE}maxsize 1073741824\nsyncrepl rid=001 provider=ldap://127.0.0.1:{provider} \
             type=refreshAndPersist retry=\"1 +\" searchbase=\"dc=example,dc=com\" bindmethod=simple \
             binddn=\"{ADMIN}\" credentials=secret {more}\n"
        );
        let site = Site::new(Kind::Slapd, &line);
        if Some(&program) != Kind::Slapd.program().as_ref() {
            // What it needs is built in.
            let text = std::fs::read_to_string(site.configuration()).expect("a configuration");
            let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("module")).collect();
            std::fs::write(site.configuration(), text.join("\n") + "\n").expect("a configuration");
        }
        Self { program, site, port: free_port() }
    }

    fn start(&self) -> (Running, SocketAddr) {
        let child = Command::new(&self.program)
            .args(["-d", "0", "-h", &format!("ldap://127.0.0.1:{}", self.port), "-f"])
            .arg(self.site.configuration())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("slapd starts");
        (Running(child), SocketAddr::from(([127, 0, 0, 1], self.port)))
    }
}

#[test]
fn a_slapd_follows_whatever_happens_while_it_is_there_or_not() {
    for slapd in slapds() {
        let provider = site("");
        provider.load(&content(1_000));
        let server = provider.start().expect("the provider");
        let consumer = SlapdConsumer::new(slapd, server.address.port(), "");
        let mut writer = admin(server.address);
        let (mut child, address) = consumer.start();
        let mut random = Random::new(3);
        same_on_both(server.address, address, "first fill");
        for round in 0..3 {
            (0..100).for_each(|_| random_change(&mut writer, &mut random));
            let unit =
                |name: &str| format!("add {name},dc=example,dc=com\n  objectClass: organizationalUnit");
            change(&mut writer, &format!("{}\n  ou: t{round}", unit(&format!("ou=t{round}"))));
            let person = "objectClass: person\n  cn: x\n  sn: x";
            change(&mut writer, &format!("add cn=x,ou=t{round},dc=example,dc=com\n  {person}"));
            move_tree(&mut writer, &format!("ou=t{round},dc=example,dc=com"), &format!("ou=u{round}"), "a");
            let dn = format!("cn=x,ou=u{round},ou=a,dc=example,dc=com");
            change(&mut writer, &format!("modify {dn}\n  replace sn: y"));
            same_on_both(server.address, address, "live");
            stop(child);
            (0..100).for_each(|_| random_change(&mut writer, &mut random));
            move_tree(
                &mut writer,
                &format!("ou=u{round},ou=a,dc=example,dc=com"),
                &format!("ou=v{round}"),
                "b",
            );
            (child, _) = consumer.start();
            same_on_both(server.address, address, "after an absence");
        }
        stop(child);
    }
}

/// A slapd that was killed in a refresh has entries above its contextCSN. It deletes none that the cookie beside the delete
/// does not cover.
#[test]
fn a_slapd_that_was_killed_in_a_refresh_deletes_what_it_had_of_it() {
    for slapd in slapds() {
        let provider = site("");
        provider.load(&content(10));
        let server = provider.start().expect("the provider");
        let (relay, other) = (Relay::start(), ScriptedProvider::start());
        relay.lead_to(server.address);
        let consumer = SlapdConsumer::new(slapd, relay.address.port(), "");
        let (mut child, address) = consumer.start();
        same_on_both(server.address, address, "first fill");
        relay.set(Passage::Cut);
        let mut writer = admin(server.address);
        let dn = "uid=late,ou=a,dc=example,dc=com";
        let person = "objectClass: inetOrgPerson\n  uid: late\n  cn: late\n  sn: late";
        change(&mut writer, &format!("add {dn}\n  {person}"));
        let request = SyncSearch { base: dn, scope: Scope::Base, ..SyncSearch::default() };
        let entry = read(server.address, &request).expect("it is there");
        let of = |name: &str| {
            let values = entry.get(dn).and_then(|attributes| attributes.get(name));
            let value = values.and_then(|values| values.first()).expect("a value");
            String::from_utf8(value.clone()).expect("text")
        };
        relay.lead_to(other.address);
        relay.set(Passage::Open);
        let mut refresh = other.accept();
        let attributes = [
            ("objectClass", "inetOrgPerson"),
            ("structuralObjectClass", "inetOrgPerson"),
            ("uid", "late"),
            ("cn", "late"),
            ("sn", "late"),
            ("entryUUID", &of("entryuuid")),
            ("entryCSN", &of("entrycsn")),
        ];
        let uuid = u128::from_str_radix(&of("entryuuid").replace('-', ""), 16).expect("a UUID");
        refresh.add(dn, uuid.to_be_bytes(), &attributes);
        until("slapd has the entry", || read(address, &request).is_some());
        child.kill().expect("slapd is killed");
        child.wait().expect("slapd ends");
        change(&mut writer, &format!("delete {dn}"));
        relay.lead_to(server.address);
        (child, _) = consumer.start();
        same_on_both(server.address, address, "after the kill");
        stop(child);
    }
}

fn move_tree(writer: &mut Client, dn: &str, rdn: &str, unit: &str) {
    change(writer, &format!("modrdn {dn} {rdn} delete ou={unit},dc=example,dc=com"));
}

/// As a signal does.
fn stop(mut child: Running) {
    assert!(signal(child.id(), Signal::TERM));
    child.wait().expect("slapd ends");
}

#[test]
fn a_slapd_follows_a_part_of_the_content() {
    for slapd in slapds().into_iter().take(1) {
        let provider = site("");
        provider.load(&content(60));
        let server = provider.start().expect("the provider");
        let filter = "(|(sn=s0)(objectClass=organization)(objectClass=organizationalUnit))";
        let part = format!("filter=\"{filter}\" attrs=\"*,+\"");
        let consumer = SlapdConsumer::new(slapd, server.address.port(), &part);
        let mut writer = admin(server.address);
        let (mut child, address) = consumer.start();
        let mut random = Random::new(5);
        for round in 0..3 {
            (0..60).for_each(|_| random_change(&mut writer, &mut random));
            mark(&mut writer, &format!("round {round}"));
            let request =
                SyncSearch { filter, attributes: &["*", "entryUUID", "entryCSN"], ..SyncSearch::default() };
            let every = SyncSearch { filter: "(objectClass=*)", ..request.clone() };
            until(&format!("both are the same in round {round}"), || {
                read(server.address, &request) == read(address, &every)
            });
            if round == 1 {
                stop(child);
                (0..60).for_each(|_| random_change(&mut writer, &mut random));
                (child, _) = consumer.start();
            }
        }
        stop(child);
    }
}

/// Waits until both have the same contextCSN, and compares their entries.
fn same_on_both(provider: SocketAddr, consumer: SocketAddr, what: &str) {
    let context = SyncSearch { scope: Scope::Base, attributes: &["contextCSN"], ..SyncSearch::default() };
    for _ in 0..3_600 {
        let expected = read(provider, &context);
        if expected.is_some() && expected == read(consumer, &context) {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let attributes = [
        "*",
        "entryUUID",
        "entryCSN",
        "createTimestamp",
        "creatorsName",
        "modifyTimestamp",
        "modifiersName",
        "structuralObjectClass",
    ];
    let everything = SyncSearch { attributes: &attributes, ..SyncSearch::default() };
    let (ours, theirs) = (read(provider, &everything).expect(what), read(consumer, &everything).expect(what));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{what}");
    assert_eq!(ours, theirs, "{what}");
}
