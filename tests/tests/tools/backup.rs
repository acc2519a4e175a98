//! Backups: what they copy, how databases are restored from them, and what is refused.

mod copies;
mod faults;
mod mass_delete;
mod moments;
mod restores;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use larix_testkit::{Kind, Server, Site};
use larix_tests::client::{Client, run as ask};

const SUFFIX: &str =
    "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n";

/// Runs one of Larix's tools with a site's configuration; status and both outputs.
fn tool(name: &str, site: &Site, arguments: &[&str]) -> (bool, String) {
    let mut command: Command = Kind::Larix.tool(name);
    let output =
        command.arg("-f").arg(site.configuration()).args(arguments).output().expect("the tool starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn passes(name: &str, site: &Site, arguments: &[&str]) -> String {
    let (success, text) = tool(name, site, arguments);
    assert!(success, "{name} {arguments:?}: {text}");
    text
}

fn fails_with(name: &str, site: &Site, arguments: &[&str], part: &str) {
    let (success, text) = tool(name, site, arguments);
    assert!(!success && text.contains(part), "{name} {arguments:?}, {part:?} expected: {text}");
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn administrator(server: &Server) -> Client {
    let mut connection = Client::connect(server.address);
    assert_eq!(ask(&mut connection, "as cn=admin,dc=example,dc=com secret\n"), "=> 0\n");
    connection
}

fn add(number: u64) -> String {
    format!("add \"uid={number},dc=example,dc=com\"\nobjectClass: account\nuid: {number}\n")
}

/// Adds, deletes, changes and renames entries, others in each round.
fn churn(connection: &mut Client, round: u64) {
    let first = round * 1_000;
    for number in first..first + 30 {
        assert_eq!(ask(connection, &add(number)), "=> 0\n");
    }
    for number in first + 20..first + 25 {
        assert_eq!(ask(connection, &format!("delete \"uid={number},dc=example,dc=com\"\n")), "=> 0\n");
    }
    for number in first..first + 10 {
        let request = format!("modify \"uid={number},dc=example,dc=com\"\nadd description: {round}\n");
        assert_eq!(ask(connection, &request), "=> 0\n");
    }
    for number in first + 10..first + 15 {
        let request = format!("modrdn \"uid={number},dc=example,dc=com\" uid=r{number} delete\n");
        assert_eq!(ask(connection, &request), "=> 0\n");
    }
}

/// Entries as `larix cat` writes them, by name.
fn entries(site: &Site) -> BTreeMap<String, String> {
    let text = passes("cat", site, &[]);
    let blocks = text.split("\n\n").filter(|block| block.contains("dn: "));
    blocks.map(|block| (block.lines().next().unwrap_or("").to_owned(), block.trim().to_owned())).collect()
}
