//! Consumers that a provider must not suffer from: one that does not read, and ldapsearch.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use larix_testkit::{Kind, Server, Site, packages};
use larix_tests::client::Client;
use larix_tests::scenario::Step;
use larix_tests::sync::{Consumer, SyncSearch};

const ADMIN: &str = "cn=admin,dc=example,dc=com";
const PEOPLE: usize = 400;
/// Bytes of the value that is changed.
const VALUE: usize = 20_000;
/// How often each of them is changed while nobody reads.
const PASSES: usize = 5;
/// What the server and its data may grow by: much less than what the consumer does not take.
const GROWTH: u64 = 24 << 20;

fn site(kind: Kind, more: &str, people: usize) -> Site {
    let modules = if kind == Kind::Slapd { "moduleload syncprov\n" } else { "" };
    let site = Site::new(
        kind,
        &format!(
            "{modules}database mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@\n\
             index objectClass,entryUUID,entryCSN eq\n{more}overlay syncprov\n"
        ),
    );
    let mut ldif = "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\n\
                    o: Example\n\n"
        .to_owned();
    for number in 0..people {
        ldif += &format!("dn: cn=p{number},dc=example,dc=com\nobjectClass: person\ncn: p{number}\nsn: p\n\n");
    }
    site.load(&ldif);
    site
}

fn admin(address: SocketAddr) -> Client {
    let mut client = Client::connect(address);
    change(&mut client, &format!("as {ADMIN} secret"));
    client
}

fn change(client: &mut Client, request: &str) {
    let answer = client.run(&Step { request: request.to_owned(), ..Step::default() });
    assert!(answer.contains("=> 0"), "{answer}");
}

/// Memory of its own that a process has, in bytes.
fn own_memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process_id())).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}

fn data_size(site: &Site) -> u64 {
    let files = std::fs::read_dir(site.path().join("data")).expect("a folder");
    files.flatten().filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// It holds neither memory nor a snapshot, the log goes on being trimmed, and the provider demands a refresh when it reads again.
#[test]
fn a_consumer_that_does_not_read_costs_the_provider_nothing() {
    let site = site(Kind::Larix, "change-log size=1m\n", PEOPLE);
    let server = site.start().expect("the provider");
    let mut writer = admin(server.address);
    let mut write = |pass: usize| {
        for number in 0..PEOPLE {
            let value = format!("{pass}").repeat(VALUE);
            change(
                &mut writer,
                &format!("modify cn=p{number},dc=example,dc=com\n  replace description: {value}"),
            );
        }
    };
    write(0);
    let mut consumer = Consumer::default();
    consumer.ask(server.address, &SyncSearch::default());
    assert_eq!(consumer.refresh(), None);
    let (memory, data) = (own_memory(&server), data_size(&site));
    (1..=PASSES).for_each(&mut write);
    let grown = (own_memory(&server).saturating_sub(memory), data_size(&site).saturating_sub(data));
    assert!(grown.0 < GROWTH && grown.1 < GROWTH, "memory and data grew by {grown:?} bytes");
    let end = loop {
        if let Some(end) = consumer.step() {
            break end;
        }
    };
    assert_eq!(end.code, 4096, "{end:?}");
    consumer.cookie = None;
    consumer.ask(server.address, &SyncSearch::default());
    assert_eq!(consumer.refresh(), None);
    let last = format!("{PASSES}").repeat(VALUE).into_bytes();
    let described =
        |entry: &(String, std::collections::BTreeMap<String, std::collections::BTreeSet<Vec<u8>>>)| {
            entry.1.get("description").is_some_and(|values| values.contains(&last))
        };
    assert_eq!(consumer.entries.values().filter(|entry| described(entry)).count(), PEOPLE);
}

fn ldapsearch(server: &Server, sync: &str) -> Command {
    let mut command = Command::new("ldapsearch");
    command
        .args(["-x", "-H", &format!("ldap://{}", server.address), "-D", ADMIN, "-w", "secret"])
        .args(["-b", "dc=example,dc=com", "-E", sync, "(objectClass=*)", "cn"])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// What does not depend on times and UUIDs: of controls only which they are. A first refresh ends as a present phase here,
/// and as a delete phase there.
fn masked(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with(' ') && !line.contains("ookie"));
    let masked = lines.map(|line| {
        let line = line.split_once(" false ").map_or(line, |(control, _)| control);
        let words = line.split(' ').map(|word| match word {
            "refreshDeletes=0" | "refreshDeletes=1" => "refreshDeletes",
            "present" | "delete" => "phase",
            uuid if uuid.len() == 36 && uuid.matches('-').count() == 4 => "UUID",
            other => other,
        });
        words.collect::<Vec<_>>().join(" ")
    });
    masked.collect()
}

#[test]
fn ldapsearch_follows_as_it_follows_slapd() {
    if Kind::Slapd.is_lacking() | packages::LDAP_UTILS.is_lacking() {
        return;
    }
    let outcomes = [Kind::Larix, Kind::Slapd].map(|kind| {
        let site = site(kind, "", 3);
        let server = site.start().expect("the provider");
        let once = ldapsearch(&server, "!sync=ro").output().expect("ldapsearch runs");
        assert!(once.status.success(), "{kind:?}: {once:?}");
        let mut command = ldapsearch(&server, "!sync=rp");
        let mut follows = command.stdout(Stdio::piped()).spawn().expect("ldapsearch runs");
        let mut lines = BufReader::new(follows.stdout.take().expect("its output")).lines();
        let mut text = String::new();
        let mut until = |text: &mut String, word: &str| {
            for line in lines.by_ref().map_while(Result::ok) {
                *text += &line;
                *text += "\n";
                if line.contains(word) {
                    return;
                }
            }
            panic!("{kind:?}: it ended before {word:?}: {text}");
        };
        until(&mut text, "cn: p2");
        let mut writer = admin(server.address);
        change(&mut writer, "add cn=new,dc=example,dc=com\n  objectClass: person\n  cn: new\n  sn: n");
        until(&mut text, "cn: new");
        change(&mut writer, "delete cn=p1,dc=example,dc=com");
        until(&mut text, "dn: cn=p1,dc=example,dc=com");
        follows.kill().expect("ldapsearch is there");
        follows.wait().expect("ldapsearch ends");
        (masked(&String::from_utf8_lossy(&once.stdout)), masked(&text))
    });
    let [larix, slapd] = outcomes;
    assert_eq!(larix.0, slapd.0, "refreshOnly");
    assert_eq!(larix.1, slapd.1, "refreshAndPersist");
}
