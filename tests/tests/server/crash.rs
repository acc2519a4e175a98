//! `kill -9` under write load: nothing that was acknowledged is lost, nothing deleted comes back, and the indexes still
//! agree with the entries. The group that all writers share grows past the size at which values live apart.
//!
//! `LARIX_CRASH_CYCLES` says how often (default 5; 100 is the long run). The seed is printed.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use larix_load::generate::Random;
use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::{MessageId, ModifyOperation, Response, client};
use larix_testkit::{Kind, Site, until};
use larix_tests::client::Client;
use larix_tests::scenario::Step;

/// In every third cycle one client writes, whose changes its worker's thread carries out itself.
const WRITERS: [u64; 3] = [4, 1, 4];
/// Acknowledged writes after which a cycle's server may be killed.
const ACKNOWLEDGED_MIN: u64 = 20;
const ACKNOWLEDGED_SPAN: u64 = 200;
const ADMIN: &str = "cn=admin,dc=example,dc=com";
const PEOPLE: &str = "ou=people,dc=example,dc=com";

const GROUP: &str = "cn=everyone,dc=example,dc=com";
/// Every so many entries are deleted again.
const DELETE_EVERY: u64 = 4;

/// What the server acknowledged of one entry.
#[derive(Clone, Debug)]
struct Acknowledged {
    dn: String,
    /// The description that it was given.
    description: Option<String>,
    /// Whether it was made a member of the group.
    member: bool,
    deletion: Deletion,
}

/// A deletion that was asked for and not acknowledged may have happened or not.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Deletion {
    None,
    Asked,
    Done,
}

#[test]
fn nothing_acknowledged_is_lost() {
    let cycles: u64 =
        std::env::var("LARIX_CRASH_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let seed: u64 = std::env::var("LARIX_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    println!("seed {seed}, {cycles} cycles");
    let mut random = Random::new(seed);
    let site = Site::example(Kind::Larix);
    site.load(&format!(
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
         dn: {PEOPLE}\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: {GROUP}\nobjectClass: groupOfNames\ncn: everyone\nmember: {ADMIN}\n"
    ));
    let acknowledged = Mutex::new(Vec::new());
    for cycle in 0..cycles {
        let server = site.start().unwrap_or_else(|error| panic!("cycle {cycle}: {error}"));
        let target = (ACKNOWLEDGED_MIN + random.below(ACKNOWLEDGED_SPAN)) as usize;
        let count = AtomicUsize::new(0);
        let address = server.address;
        thread::scope(|scope| {
            for writer in 0..WRITERS[cycle as usize % WRITERS.len()] {
                let (count, acknowledged) = (&count, &acknowledged);
                scope.spawn(move || {
                    write_until_gone(address, &format!("{cycle}.{writer}"), acknowledged, || {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                });
            }
            until("enough is acknowledged", || count.load(Ordering::Relaxed) >= target);
            server.kill();
        });
        consistent(&site, cycle);
        all_there(&site, &acknowledged.lock().expect("no writer panicked"), cycle);
    }
    println!(
        "{} entries and what was acknowledged of them survived",
        acknowledged.lock().expect("no writer panicked").len()
    );
}

/// Adds entries, modifies each, makes it a member of the group and deletes some, until the connection breaks.
fn write_until_gone(
    address: SocketAddr,
    name: &str,
    acknowledged: &Mutex<Vec<Acknowledged>>,
    acknowledge: impl Fn(),
) {
    let mut connection = Client::connect(address);
    if !bind(&mut connection) {
        return;
    }
    for number in 0_u64.. {
        let dn = format!("uid={name}.{number},{PEOPLE}");
        if !succeeded(&connection.exchange(&addition(&dn, &format!("{name}.{number}")))) {
            return;
        }
        let at = {
            let mut list = acknowledged.lock().expect("no writer panicked");
            let (description, member, deletion) = (None, false, Deletion::None);
            list.push(Acknowledged { dn: dn.clone(), description, member, deletion });
            list.len() - 1
        };
        let note = |change: &dyn Fn(&mut Acknowledged)| {
            change(&mut acknowledged.lock().expect("no writer panicked")[at]);
        };
        acknowledge();
        let text = format!("text {number}");
        let change = modification(&dn, ModifyOperation::Replace, "description", &text);
        if !succeeded(&connection.exchange(&change)) {
            return;
        }
        note(&|entry| entry.description = Some(text.clone()));
        acknowledge();
        let change = modification(GROUP, ModifyOperation::Add, "member", &dn);
        if !succeeded(&connection.exchange(&change)) {
            return;
        }
        note(&|entry| entry.member = true);
        acknowledge();
        if number % DELETE_EVERY == 0 {
            note(&|entry| entry.deletion = Deletion::Asked);
            let mut request = Vec::new();
            client::delete(&mut request, MessageId(5), &dn, &[]);
            if !succeeded(&connection.exchange(&request)) {
                return;
            }
            note(&|entry| entry.deletion = Deletion::Done);
            acknowledge();
        }
    }
}

fn bind(connection: &mut Client) -> bool {
    let bind = Step { request: format!("as {ADMIN} secret\n"), ..Step::default() };
    connection.run(&bind) == "=> 0\n"
}

fn addition(dn: &str, uid: &str) -> Vec<u8> {
    let mut request = Vec::new();
    let attributes = [
        ClientAttribute { description: "objectClass", values: &["inetOrgPerson"] },
        ClientAttribute { description: "uid", values: &[uid] },
        ClientAttribute { description: "cn", values: &["Crash Test"] },
        ClientAttribute { description: "sn", values: &["Test"] },
    ];
    client::add(&mut request, MessageId(2), dn, &attributes, &[]);
    request
}

fn modification(dn: &str, operation: ModifyOperation, description: &str, value: &str) -> Vec<u8> {
    let mut request = Vec::new();
    let attribute = ClientAttribute { description, values: &[value] };
    client::modify(&mut request, MessageId(3), dn, &[ClientChange { operation, attribute }], &[]);
    request
}

/// Whether the last answer is a success; a broken connection is none.
fn succeeded(answers: &[Vec<u8>]) -> bool {
    let Some(Ok(message)) = answers.last().map(|pdu| Response::decode_message(pdu)) else { return false };
    let Some((_, result)) = message.response.result() else { return false };
    assert_eq!(result.code.0, 0, "a write was refused: {}", result.diagnostic);
    true
}

fn consistent(site: &Site, cycle: u64) {
    let output = Kind::Larix.tool("check").arg("-f").arg(site.configuration()).output().expect("larix check");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cycle {cycle}: larix check: {text}");
}

fn all_there(site: &Site, acknowledged: &[Acknowledged], cycle: u64) {
    let server = site.start().unwrap_or_else(|error| panic!("cycle {cycle}: {error}"));
    let mut connection = Client::connect(server.address);
    assert!(bind(&mut connection), "cycle {cycle}: the administrator cannot bind");
    let mut ask = |request: String| connection.run(&Step { request, ..Step::default() });
    let people = ask(format!("search \"{PEOPLE}\" one (objectClass=*) description\n"));
    let group = ask(format!("search \"{GROUP}\" base (objectClass=*) member\n"));
    // The description, if any, of each entry; the first piece is what stands before the first entry.
    let entries: HashMap<&str, &str> = people
        .split("-> ")
        .filter_map(|entry| entry.split_once('\n'))
        .map(|(dn, rest)| (dn, rest.lines().next().unwrap_or("")))
        .collect();
    let members: HashSet<&str> = group.lines().filter_map(|line| line.strip_prefix("   member: ")).collect();
    for write in acknowledged {
        let found = entries.get(write.dn.as_str());
        match (write.deletion, found, &write.description) {
            (Deletion::None, None, _) => panic!("cycle {cycle}: {} is lost", write.dn),
            (Deletion::Done, Some(_), _) => panic!("cycle {cycle}: {} is back", write.dn),
            (_, Some(line), Some(text)) => {
                assert_eq!(*line, format!("   description: {text}"), "cycle {cycle}: {}", write.dn);
            }
            _ => {}
        }
        let member = members.contains(write.dn.as_str());
        assert!(member || !write.member, "cycle {cycle}: {} is no member", write.dn);
    }
    assert!(server.stop(), "cycle {cycle}: the server did not stop cleanly");
}
