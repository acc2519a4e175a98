//! A directory that is written for minutes while readers stay: how its file grows, and what the slowest writes take.
//!
//! `cargo test -p larix-tests --test server churn -- --ignored --nocapture`; `LARIX_CHURN_MINUTES` says how long (default 1). The
//! figures are printed and nothing is asserted of them but that the indexes agree with the entries at the end.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larix_load::generate::Random;
use larix_testkit::{Kind, SetAtEnd, Site};
use larix_tests::client::{Client, run as ask};

const PEOPLE: &str = "ou=people,dc=example,dc=com";
const WRITERS: u64 = 4;
/// Entries of each writer that stand at any time.
const ENTRIES_EACH: u64 = 1_000;

#[test]
#[ignore = "takes minutes, and its figures are for reading"]
fn pages_are_reused_while_readers_stay() {
    let setting = std::env::var("LARIX_CHURN_MINUTES").ok();
    let minutes: u64 = setting.and_then(|text| text.parse().ok()).unwrap_or(1);
    let site = Site::example(Kind::Larix);
    site.load(&format!(
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
         dn: {PEOPLE}\nobjectClass: organizationalUnit\nou: people\n"
    ));
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let is_over = AtomicBool::new(false);
    let latencies = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let _end = SetAtEnd(&is_over);
        for writer in 0..WRITERS {
            let (is_over, latencies) = (&is_over, &latencies);
            let address = server.address;
            scope.spawn(move || write(address, writer, is_over, latencies));
        }
        scope.spawn(|| read_pages(server.address, &is_over));
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                dump(&site);
            }
        });
        for minute in 1..=minutes {
            thread::park_timeout(Duration::from_secs(60));
            let mut sorted = std::mem::take(&mut *latencies.lock().expect("no writer panicked"));
            sorted.sort_unstable();
            let at = |part: usize| sorted.get(sorted.len() * part / 100).map_or(0, Duration::as_micros);
            println!(
                "minute {minute}: {} writes, p50 {} us, p99 {} us, longest {} us, {:.1} MB on disk, {:.1} MB resident",
                sorted.len(),
                at(50),
                at(99),
                sorted.last().map_or(0, Duration::as_micros),
                disk(&site.path().join("data")) as f64 / 1e6,
                resident(server.process_id()) as f64 / 1e6,
            );
        }
    });
    assert!(server.stop(), "the server did not stop cleanly");
    let check = Kind::Larix.tool("check").arg("-f").arg(site.configuration()).output().expect("larix check");
    assert!(check.status.success(), "larix check: {}", String::from_utf8_lossy(&check.stdout));
}

/// Adds, modifies and deletes, so that the number of entries stays.
#[expect(clippy::disallowed_methods, reason = "the figures are what it is about")]
fn write(address: SocketAddr, writer: u64, is_over: &AtomicBool, latencies: &Mutex<Vec<Duration>>) {
    let mut connection = Client::connect(address);
    let mut random = Random::new(writer);
    let mut standing = VecDeque::new();
    assert_eq!(ask(&mut connection, "as cn=admin,dc=example,dc=com secret\n"), "=> 0\n");
    for number in 0_u64.. {
        let dn = format!("uid={writer}.{number},{PEOPLE}");
        let name = random.alphanumeric(24);
        let mut changes = vec![
            format!(
                "add \"{dn}\"\nobjectClass: inetOrgPerson\nuid: {writer}.{number}\ncn: {name}\nsn: {}\n\
                 mail: {name}@example.com\ndescription: {}\n",
                random.alphanumeric(12),
                random.alphanumeric(300)
            ),
            format!("modify \"{dn}\"\nreplace cn: {}\n", random.alphanumeric(24)),
        ];
        standing.push_back(dn);
        if standing.len() as u64 > ENTRIES_EACH {
            let middle = random.below(standing.len() as u64) as usize;
            changes.extend(standing.remove(middle).map(|dn| format!("delete \"{dn}\"\n")));
        }
        for change in changes {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let begin = Instant::now();
            let answer = ask(&mut connection, &change);
            let elapsed = begin.elapsed();
            assert!(answer.ends_with("=> 0\n"), "{change}{answer}");
            latencies.lock().expect("no writer panicked").push(elapsed);
        }
    }
}

/// A search in pages that never ends: each page is asked for a while after the one before.
fn read_pages(address: SocketAddr, is_over: &AtomicBool) {
    let mut connection = Client::connect(address);
    let mut control = "page=5";
    while !is_over.load(Ordering::Relaxed) {
        let page =
            ask(&mut connection, &format!("search \"{PEOPLE}\" one (objectClass=*) cn with {control}\n"));
        control = if page.contains("-> ") { "next=5" } else { "page=5" };
        thread::park_timeout(Duration::from_millis(100));
    }
}

fn dump(site: &Site) {
    let output: Result<_, std::io::Error> =
        Command::output(Kind::Larix.tool("cat").arg("-f").arg(site.configuration()));
    assert!(output.is_ok_and(|output| output.status.success()), "larix cat beside the server");
}

/// Bytes that the files of a folder take.
fn disk(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).expect("the database's folder");
    files.filter_map(|file| file.ok()?.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

/// Resident bytes of a process.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() << 10
}
