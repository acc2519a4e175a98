//! `kill -9` under write load: nothing that was acknowledged is lost, and the indexes still agree with the entries.
//!
//! `LARIX_CRASH_CYCLES` says how often (default 5; 100 is the long run). The seed is printed.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use larix_load::generate::Random;
use larix_proto::client::{ClientAttribute, ClientChange};
use larix_proto::{MessageId, ModifyOperation, Response, client};
use larix_testkit::{Kind, Site};
use larix_tests::client::Client;
use larix_tests::scenario::Step;

const WRITERS: usize = 4;
/// Acknowledged writes after which a cycle's server may be killed.
const ACKNOWLEDGED_MIN: u64 = 20;
const ACKNOWLEDGED_SPAN: u64 = 200;
const PEOPLE: &str = "ou=people,dc=example,dc=com";

/// A write that the server acknowledged: the entry's name, and the last description that it was given.
#[derive(Clone, Debug)]
struct Acknowledged {
    dn: String,
    description: Option<String>,
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
         dn: {PEOPLE}\nobjectClass: organizationalUnit\nou: people\n"
    ));
    let acknowledged = Mutex::new(Vec::new());
    for cycle in 0..cycles {
        let server = site.start().unwrap_or_else(|error| panic!("cycle {cycle}: {error}"));
        let target = (ACKNOWLEDGED_MIN + random.below(ACKNOWLEDGED_SPAN)) as usize;
        let count = AtomicUsize::new(0);
        let address = server.address;
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (count, acknowledged) = (&count, &acknowledged);
                let main = thread::current();
                scope.spawn(move || {
                    write_until_gone(address, &format!("{cycle}.{writer}"), acknowledged, || {
                        if count.fetch_add(1, Ordering::Relaxed) + 1 >= target {
                            main.unpark();
                        }
                    });
                    main.unpark();
                });
            }
            while count.load(Ordering::Relaxed) < target {
                thread::park();
            }
            server.kill();
        });
        consistent(&site, cycle);
        all_there(&site, &acknowledged.lock().expect("no writer panicked"), cycle);
    }
    println!("{} acknowledged writes survived", acknowledged.lock().expect("no writer panicked").len());
}

/// Adds entries and modifies each, until the connection breaks.
fn write_until_gone(
    address: SocketAddr,
    name: &str,
    acknowledged: &Mutex<Vec<Acknowledged>>,
    mut acknowledge: impl FnMut(),
) {
    let mut connection = Client::connect(address);
    let bind = Step { request: "as cn=admin,dc=example,dc=com secret\n".into(), ..Step::default() };
    if connection.run(&bind) != "=> 0\n" {
        return;
    }
    for number in 0_u64.. {
        let uid = format!("{name}.{number}");
        let dn = format!("uid={uid},{PEOPLE}");
        let mut request = Vec::new();
        let attributes = [
            ClientAttribute { description: "objectClass", values: &["inetOrgPerson"] },
            ClientAttribute { description: "uid", values: &[uid.as_str()] },
            ClientAttribute { description: "cn", values: &["Crash Test"] },
            ClientAttribute { description: "sn", values: &["Test"] },
        ];
        client::add(&mut request, MessageId(2), &dn, &attributes, &[]);
        if !succeeded(&connection.exchange(&request)) {
            return;
        }
        let at = {
            let mut list = acknowledged.lock().expect("no writer panicked");
            list.push(Acknowledged { dn: dn.clone(), description: None });
            list.len() - 1
        };
        acknowledge();
        let text = format!("text {number}");
        request.clear();
        let attribute = ClientAttribute { description: "description", values: &[text.as_str()] };
        let changes = [ClientChange { operation: ModifyOperation::Replace, attribute }];
        client::modify(&mut request, MessageId(3), &dn, &changes, &[]);
        if !succeeded(&connection.exchange(&request)) {
            return;
        }
        acknowledged.lock().expect("no writer panicked")[at].description = Some(text);
        acknowledge();
    }
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
    for write in acknowledged {
        let request = format!("search \"{}\" base (objectClass=*) description\n", write.dn);
        let answer = connection.run(&Step { request, ..Step::default() });
        assert!(answer.ends_with("=> 0\n"), "cycle {cycle}: {} is lost: {answer}", write.dn);
        if let Some(description) = &write.description {
            let line = format!("   description: {description}\n");
            assert!(answer.contains(&line), "cycle {cycle}: {} lost {description:?}: {answer}", write.dn);
        }
    }
    assert!(server.stop(), "cycle {cycle}: the server did not stop cleanly");
}
