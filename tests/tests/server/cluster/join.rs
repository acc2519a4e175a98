//! `larix serve --join`: a node whose configuration comes from the engine.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};

use larix_testkit::Kind;
use larix_testkit::etcd::Etcd;
use larix_testkit::pki::Authority;
use larix_testkit::postgresql::Engine;
use larix_testkit::process::free_port;
use larix_tests::client::Client;
use larix_tests::replicas::{ADMIN, Member, SUFFIX, ask};

use super::tools::run;
use super::{LEASE, change, describe, fill, larix, nodes_with, until};

/// A server that joins, ended with its test.
struct Joined {
    child: Child,
    port: u16,
    log: std::path::PathBuf,
}

impl Drop for Joined {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

fn words(engine: &str, node: &str, data: &Path) -> Vec<String> {
    let data = data.display().to_string();
    ["--join", engine, "--node", node, "--data", &data].map(str::to_owned).to_vec()
}

impl Joined {
    fn start(engine: &str, data: &Path, port: u16, more: &[&str]) -> Self {
        let url = format!("ldap://127.0.0.1:{port}");
        let log = data.with_extension("log");
        let mut command = Kind::Larix.tool("serve");
        command.args(words(engine, &url, data)).args(["-h", &url, "-d", "256"]).args(more);
        let log_file = File::options().create(true).append(true).open(&log).expect("a log");
        let child = command.stdout(Stdio::null()).stderr(log_file).spawn().expect("larix");
        let joined = Self { child, port, log };
        until("it listens", || Client::try_connect(joined.address()).is_ok());
        joined
    }

    fn address(&self) -> std::net::SocketAddr {
        std::net::SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    fn ask(&self, requests: &[&str]) -> String {
        let mut client = Client::connect(self.address());
        requests.iter().map(|request| ask(&mut client, request)).last().unwrap_or_default()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("its log")
    }
}

/// What a server that cannot join says.
fn refusal(engine: &str, node: &str, data: &Path, more: &[&str]) -> String {
    let mut command = Kind::Larix.tool("serve");
    command.args(words(engine, node, data)).args(["-h", "ldap://127.0.0.1:0"]).args(more);
    let output = command.output().expect("larix");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!text.contains("never-shown"), "{text}");
    text
}

/// Lines before the databases of the first node, and in its `database kv`.
fn lines() -> (String, &'static str) {
    let global = "attributetype ( 1.2.3.4.5 NAME 'ownThing' SUP name )\n";
    let own = "access to attrs=sn by * none\naccess to * by * read\noverlay memberof\n";
    (format!("{global}database config\nrootdn {ADMIN}\n"), own)
}

/// The one that is published.
fn generation(node: &Member) -> u64 {
    let (_, text) = larix(&["cluster", "status"], node);
    let number = text.split_once("configuration: generation ").and_then(|(_, rest)| rest.split_once(','));
    number.and_then(|(number, _)| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

const PUBLISHED: &str = "nodes that join get this node's configuration (generation 1)";

#[test]
fn a_node_joins_with_what_the_engine_holds() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let folder = tempfile::TempDir::new().expect("a directory");
    let data = folder.path().join("data");
    let port = free_port();
    let url = format!("ldap://127.0.0.1:{port}");
    let text = refusal(&address, &url, &data, &[]);
    assert!(text.contains("holds no store") && text.contains("before others join"), "{text}");

    let (global, own) = lines();
    let mut nodes = nodes_with(&address, 1, LEASE, (&global, own));
    nodes[0].start();
    fill(&nodes[0]);
    until("it is published", || nodes[0].log().contains(PUBLISHED));
    for (engine, node, more, expected) in [
        (
            address.as_str(),
            nodes[0].url(),
            &[][..],
            "is a node of this directory already: give this server a --node",
        ),
        (&address.replace(&format!("/{name}"), "/nowhere"), url.clone(), &[], "\"nowhere\" does not exist"),
        (&address.replace("larix:", "stranger:"), url.clone(), &[], "role \"stranger\" does not exist"),
        ("ldap://127.0.0.1", url.clone(), &[], "it begins with \"ldap\", and an engine is given as"),
        (&address, "http://n2".to_owned(), &[], "--node http://n2: "),
        (&address, url.clone(), &["--engine-schema", "people"], "no store in the schema \"people\""),
        (&address, url.clone(), &["--tls-cert", "/nowhere.pem"], "/nowhere.pem"),
    ] {
        let text = refusal(engine, &node, &data, more);
        assert!(text.contains(expected), "{expected:?} is not in {text}");
    }
    let replaced = |from: &str, to: &str| {
        let change = format!(
            "UPDATE larix.rows SET v = convert_to(replace(convert_from(v, 'UTF8'), '{from}', '{to}'), 'UTF8') \
             WHERE k = 'node-configuration'"
        );
        engine.sql(&name, &change).expect("a change");
    };
    replaced("configuration 1", "configuration 9");
    let text = refusal(&address, &url, &data, &[]);
    assert!(text.contains("of form 9") && text.contains("install that version"), "{text}");
    replaced("configuration 9", "configuration 1");
    // A later version may say what this one does not know.
    replaced("overlay memberof", "overlay membersof");
    let text = refusal(&address, &url, &data, &[]);
    assert!(
        text.contains("membersof") && text.contains(&format!("the configuration of {}", nodes[0].url())),
        "{text}"
    );
    replaced("overlay membersof", "overlay memberof");

    let joined = Joined::start(&address, &data, port, &[]);
    let search = format!("search {SUFFIX} sub (cn=ann) *");
    let found = joined.ask(&[&search]);
    assert!(found.contains("cn: ann") && !found.contains("sn: Lee"), "the same access rules: {found}");
    let (admin, schema) =
        (format!("as {ADMIN} secret"), "search cn=Subschema base (attributeTypes=1.2.3.4.5) 1.1");
    assert!(joined.ask(&[&admin, &search]).contains("sn: Lee"), "the same administrator");
    let found = joined.ask(&[schema]);
    assert!(found.contains("cn=Subschema"), "the same schema: {found}");
    // On a busy machine the lease may have ended: for a moment nobody takes changes then.
    until("it refers to the node that writes", || {
        let referred = joined.ask(&[&admin, &describe("in vain")]);
        assert!(["=> 10", "=> 52"].iter().any(|code| referred.starts_with(code)), "{referred}");
        referred.contains(&nodes[0].url())
    });
    until("it writes", || change(&nodes[0], &describe("written")) == "=> 0\n");
    assert!(joined.ask(&[&search]).contains("description: written"));

    // What changes later is taken over without a restart: the schema, rules, indexes and limits.
    let changed = |node: &Member, requests: &[&str]| {
        for request in requests {
            until("it is configured", || {
                let answer = change(node, request);
                assert!(
                    ["=> 0", "=> 20", "=> 52", "=> 53"].iter().any(|code| answer.starts_with(code)),
                    "{answer}"
                );
                ["=> 0", "=> 20"].iter().any(|code| answer.starts_with(code))
            });
        }
    };
    changed(
        &nodes[0],
        &[
            "modify cn=config\n  add olcAttributeTypes: ( 1.2.3.4.6 NAME 'laterThing' SUP name )\n  add olcMaxFilterDepth: 77",
            "modify olcDatabase={2}kv,cn=config\n  add olcDbIndex: sn eq\n  replace olcAccess: to * by * read",
        ],
    );
    until("the joined node follows", || joined.ask(&[&search]).contains("sn: Lee"));
    until("the schema is in force, too", || {
        joined.ask(&["search cn=Subschema base (attributeTypes=1.2.3.4.6) 1.1"]).contains("cn=Subschema")
    });
    let shown = joined.ask(&[&admin, "search cn=config base (objectClass=*) olcMaxFilterDepth olcPidFile"]);
    assert!(shown.contains("olcMaxFilterDepth: 77"), "{shown}");
    let nodes_shown = "search cn=Nodes,cn=Larix,cn=Monitor sub (objectClass=*) monitoredInfo";
    let shown = joined.ask(&[&admin, nodes_shown]);
    assert!(shown.contains("configuration=shared") && !shown.contains("configurationRefused"), "{shown}");
    assert!(shown.contains(&format!("configurationGeneration={}\n", generation(&nodes[0]))), "{shown}");

    // What all have in common is changed where changes are taken; the rest is the node's own.
    let limit = "modify cn=config\n  replace olcMaxFilterDepth: 78";
    let refused = joined.ask(&[&admin, limit]);
    assert!(
        refused.starts_with("=> 53") && refused.contains(&format!("change it at {}", nodes[0].url())),
        "{refused}"
    );
    // Also where the engine was opened otherwise for it: the node stays the one that it was.
    let otherwise = "modify olcDatabase={1}kv,cn=config\n  replace olcLarixKvLease: 9";
    let refused = joined.ask(&[&admin, otherwise]);
    assert!(refused.starts_with("=> 53"), "{refused}");
    let shown = joined.ask(&[&admin, nodes_shown]);
    assert!(shown.contains("configuration=shared"), "{shown}");
    assert_eq!(joined.ask(&[&admin, "modify cn=config\n  replace olcIdleTimeout: 900"]), "=> 0\n");

    // What it cannot take leaves it as it is, and the next generation is tried. Meanwhile it was stopped.
    drop(joined);
    let before = generation(&nodes[0]);
    changed(&nodes[0], &["modify olcDatabase={2}kv,cn=config\n  replace olcAccess: to attrs=sn by * none"]);
    until("it is published", || generation(&nodes[0]) > before);
    let newest = generation(&nodes[0]);
    replaced("overlay memberof", "overlay membersof");
    let joined = Joined::start(&address, &data, port, &[]);
    until("it is refused", || joined.log().contains(&format!("generation {newest}, cannot be taken over")));
    assert!(
        joined.log().contains("membersof") && joined.log().contains("the one before stays"),
        "{}",
        joined.log()
    );
    let shown = joined.ask(&[&admin, nodes_shown]);
    assert!(
        shown.contains("configurationRefused=") && shown.contains(&format!("configurationNewest={newest}\n")),
        "{shown}"
    );
    assert!(joined.ask(&[&search]).contains("sn: Lee"), "the rules of before");
    until("the engine knows it", || {
        let (_, status) = larix(&["cluster", "status"], &nodes[0]);
        let expected = format!("an earlier one in force, generation {newest} refused: ");
        status.lines().any(|line| {
            line.starts_with(&format!("node:          {url}, "))
                && line.contains(&expected)
                && line.contains("membersof")
        })
    });
    // It does not write either: the others' changes were made under rules that it does not have.
    nodes[0].kill();
    until("it says why", || joined.log().contains("this node does not take its turn"));
    // Until the lease of the one that is gone ends, it is still the one that changes are referred to.
    until("it is unavailable", || {
        let refused = joined.ask(&[&admin, &describe("in vain")]);
        assert!(["=> 10", "=> 52"].iter().any(|code| refused.starts_with(code)), "{refused}");
        refused.starts_with("=> 52")
    });
    until("it says what to do", || joined.log().contains("start a node that has it"));
    nodes[0].start();
    replaced("overlay membersof", "overlay memberof");
    changed(&nodes[0], &["modify cn=config\n  replace olcMaxFilterDepth: 79"]);
    until("the next ones are taken", || {
        let shown = joined.ask(&[&admin, nodes_shown]);
        shown.contains(&format!("configurationGeneration={}\n", generation(&nodes[0])))
            && !shown.contains("configurationRefused")
    });
    assert!(!joined.ask(&[&search]).contains("sn: Lee"), "the rules of now");
    drop(joined);
    changed(&nodes[0], &["modify olcDatabase={2}kv,cn=config\n  replace olcAccess: to * by * read"]);
    let joined = Joined::start(&address, &data, port, &[]);
    until("it has it when it starts", || joined.ask(&[&search]).contains("sn: Lee"));
    let shown = joined.ask(&[&admin, "search cn=config base (objectClass=*) olcIdleTimeout"]);
    assert!(shown.contains("olcIdleTimeout: 900"), "its own stays: {shown}");

    nodes[0].kill();
    until("it writes", || joined.ask(&[&admin, &describe("its own")]) == "=> 0\n");
    // Changes are published from whichever node writes. One that has a configuration of its own keeps it until it shares.
    until("the configuration is changed", || joined.ask(&[&admin, limit]) == "=> 0\n");
    // One that opens the engine otherwise, too.
    let lease = "modify olcDatabase={1}kv,cn=config\n  replace olcLarixKvLease: 2";
    until("the lease is changed", || joined.ask(&[&admin, lease]) == "=> 0\n");
    until("it still writes", || joined.ask(&[&admin, &describe("its own")]) == "=> 0\n");
    nodes[0].start();
    until("it says so", || {
        nodes[0].log().contains(&format!("another than that of {url}, which nodes that join get"))
    });
    let shares = "modify olcDatabase={2}kv,cn=config\n  add olcLarixKvConfiguration: shared";
    assert_eq!(change(&nodes[0], shares), "=> 0\n");
    until("it follows", || {
        change(&nodes[0], "search cn=config base (objectClass=*) olcMaxFilterDepth")
            .contains("olcMaxFilterDepth: 78")
    });
    drop(joined);
    // It keeps what it was given.
    let text = refusal(&address, "ldap://elsewhere", &data, &[]);
    assert!(text.contains(&format!("that of {url}, not of --node ldap://elsewhere")), "{text}");
    let text = refusal(&address.replace("never-shown", "never-shown-either"), &url, &data, &[]);
    assert!(text.contains("another password or other parameters"), "{text}");
    let joined = Joined::start(&address, &data, port, &[]);
    assert!(joined.ask(&[&search]).contains("description: its own"));
    drop(joined);
    nodes.iter_mut().for_each(Member::stop);
}

/// From an etcd.
#[test]
fn a_node_joins_with_a_certificate() {
    let Some(etcd) = Etcd::start() else { return };
    let address = etcd.prefix();
    let (global, own) = lines();
    let mut nodes = nodes_with(&address, 1, 2, (&global, own));
    nodes[0].start();
    fill(&nodes[0]);
    until("it is published", || nodes[0].log().contains(PUBLISHED));
    let folder = tempfile::TempDir::new().expect("a directory");
    let data = folder.path().join("data");
    let text = refusal(&address.replace("etcd://", "etcd://larix:never-shown@"), "ldap://n2", &data, &[]);
    assert!(text.contains("take user and password out of the address"), "{text}");
    let (certificate, key) = Authority::new("tests").server().write(folder.path(), "node");
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    let joined =
        Joined::start(&address, &data, free_port(), &["--tls-cert", &certificate, "--tls-key", &key]);
    let found = joined.ask(&[&format!("as {ADMIN} secret"), &format!("search {SUFFIX} sub (cn=ann) sn")]);
    assert!(found.contains("sn: Lee"), "{found}");
    let secure = joined.ask(&["search \"\" base (objectClass=*) supportedExtension"]);
    assert!(secure.contains("1.3.6.1.4.1.1466.20037"), "StartTLS is offered: {secure}");
    drop(joined);
    nodes.iter_mut().for_each(Member::stop);
}

/// What starts a node says how it joined. The nodes may have gone on to other content since.
#[test]
fn a_node_that_joined_starts_again_behind_another_schema() {
    let Some(engine) = Engine::start() else { return };
    let (_, address) = engine.database();
    let mut first = nodes_with(&address, 1, LEASE, ("", "")).remove(0);
    first.start();
    fill(&first);
    let folder = tempfile::tempdir().expect("a folder");
    let (data, port) = (folder.path().join("joined"), free_port());
    let joined = Joined::start(&address, &data, port, &[]);
    first.stop();
    let next = nodes_with(&address, 1, LEASE, ("", "engine-schema next")).remove(0);
    let ldif = format!(
        "dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\ndn: cn=next,{SUFFIX}\nobjectClass: person\ncn: next\nsn: x\n"
    );
    let loaded = run(&next.site, "add", &[], &ldif);
    assert!(loaded.status.success(), "{loaded:?}");
    let (admin, search) =
        (format!("as {ADMIN} secret"), format!("search {SUFFIX} sub (objectClass=person) cn"));
    let switch = "modify olcDatabase={1}kv,cn=config\n  replace olcLarixKvSchema: next";
    until("it writes and goes on", || joined.ask(&[&admin, switch]) == "=> 0\n");
    let is_next = |found: &str| found.contains("cn: next") && !found.contains("cn: ann");
    assert!(is_next(&joined.ask(&[&admin, &search])));
    drop(joined);
    let joined = Joined::start(&address, &data, port, &[]);
    assert!(is_next(&joined.ask(&[&admin, &search])));
}
