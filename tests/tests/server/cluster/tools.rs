//! Tools that write into a shared engine, in the place of a node.

use std::fs::File;
use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};

use larix_testkit::postgresql::Engine;
use larix_testkit::process::{Signal, freeze, signal};
use larix_testkit::{Kind, Site, until};
use larix_tests::client::Client;
use larix_tests::replicas::{Member, SUFFIX, ask};

use super::{change, describe, description, fill, nodes, nodes_with};

/// Seconds of a lease: the node that has it looks every ten of them whether it does.
const LEASE: u32 = 30;

/// A tool of Larix with the configuration of a node; `input` is a file of its own.
pub(super) fn run(site: &Site, name: &str, arguments: &[&str], input: &str) -> Output {
    let file = site.configuration().with_file_name("input.ldif");
    std::fs::write(&file, input).expect("a file");
    let mut words = name.split(' ');
    let mut tool = Kind::Larix.tool(words.next().unwrap_or_default());
    tool.args(words).arg("-f").arg(site.configuration()).args(arguments);
    if !input.is_empty() {
        tool.arg("-l").arg(file);
    }
    tool.output().expect("the tool")
}

fn done(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    told
}

fn refused(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{told}");
    told
}

/// The first entries, and so many people.
fn ldif(people: usize) -> String {
    let mut text = format!(
        "dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\ndn: ou=people,{SUFFIX}\nobjectClass: organizationalUnit\nou: people\n\n\
         dn: cn=ann,ou=people,{SUFFIX}\nobjectClass: person\ncn: ann\nsn: Lee\nuserPassword: right\n\n"
    );
    for number in 0..people {
        text +=
            &format!("dn: cn=p{number},ou=people,{SUFFIX}\nobjectClass: person\ncn: p{number}\nsn: x\n\n");
    }
    text
}

fn entries(site: &Site) -> usize {
    let shown = run(site, "cat", &[], "");
    done(&shown);
    String::from_utf8_lossy(&shown.stdout).matches("dn: ").count()
}

#[test]
fn tools_write_where_no_node_does() {
    let Some(engine) = Engine::start() else { return };
    write_with_tools(&engine.database().1);
}

pub(super) fn write_with_tools(address: &str) {
    // Names of SASL are found among the entries.
    let names = format!("authz-regexp uid=([^,]*),.* ldap:///{SUFFIX}??sub?(cn=$1)\n");
    let lines = (names.as_str(), "read-consistency session\nserver-id 7");
    let mut nodes = nodes_with(address, 2, super::LEASE, lines);
    let site = &nodes[0].site;
    // A dry run makes nothing.
    done(&run(site, "add", &["-u"], &ldif(3)));
    let person = |name: &str| format!("cn={name},ou=people,{SUFFIX}");
    assert!(refused(&run(site, "offline-delete", &[&person("p1")], "")).contains("has no entries of it"));
    assert!(refused(&run(site, "cat", &[], "")).contains("the engine holds no store"), "nothing is there");

    // What ends in an error leaves nothing, also of what came before.
    let twice = ldif(500) + &format!("dn: cn=p7,ou=people,{SUFFIX}\nobjectClass: person\ncn: p7\nsn: x\n");
    assert!(refused(&run(site, "add", &[], &twice)).contains("the entry exists already"));
    assert_eq!(entries(site), 0);
    done(&run(site, "add", &[], &ldif(500)));
    assert_eq!(entries(site), 503);
    assert!(refused(&run(site, "add", &[], &ldif(0))).contains("the entry exists already"));

    // Beside the others.
    let more = format!("dn: cn=bob,ou=people,{SUFFIX}\nobjectClass: person\ncn: bob\nsn: B\n");
    done(&run(site, "add", &["-u"], &more));
    done(&run(site, "add", &[], &more));
    let changes = format!(
        "dn: cn=bob,ou=people,{SUFFIX}\nchangetype: modify\nreplace: sn\nsn: Burr\n\n\
         dn: cn=p1,ou=people,{SUFFIX}\nchangetype: delete\n"
    );
    done(&run(site, "offline-modify", &[], &changes));
    done(&run(site, "index", &[], ""));
    // By name, by filter, and what the schema does not allow.
    let looked = run(site, "offline-delete", &["-u", "-a", "(cn=p3)", &person("p4")], "");
    done(&looked);
    let named = format!("{}\n{}\n", person("p4"), person("p3"));
    assert_eq!(String::from_utf8_lossy(&looked.stdout), named);
    done(&run(site, "offline-delete", &["-a", "(cn=p3)", &person("p4")], ""));
    let told = refused(&run(site, "offline-delete", &[&person("p4")], ""));
    assert!(told.contains("No such object"), "{told}");
    let unfit = format!("dn: {}\nchangetype: modify\nadd: mail\nmail: p5@example.com\n", person("p5"));
    done(&run(site, "offline-modify", &["-s"], &unfit));
    let found = run(site, "schema", &[], "");
    let told = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(!found.status.success() && told.contains(&format!("dn: {}\n", person("p5"))), "{told}");
    assert_eq!(told.matches("dn: ").count(), 1, "{told}");
    done(&run(site, "offline-delete", &[&person("p5")], ""));
    let checked = run(site, "cluster check", &[], "");
    assert!(String::from_utf8_lossy(&checked.stdout).contains("500 entries, 0 findings"), "{checked:?}");

    // Behind them nodes write as ever.
    nodes.iter_mut().for_each(Member::start);
    until("a node writes", || change(&nodes[0], &describe("served")) == "=> 0\n");
    assert_eq!(nodes[1].content(SUFFIX).expect("entries").len(), 500);
    assert_eq!(nodes[1].client().value(&format!("cn=bob,ou=people,{SUFFIX}"), "sn").as_deref(), Some("Burr"));
    // Beside nodes others read.
    done(&run(&nodes[1].site, "schema", &["-s", &person("ann")], ""));
    let (ann, questions) = (person("ann"), ["sn/read", "sn/write", "userPassword"]);
    let asked = [&["-b", &*ann, "-D", &*ann][..], &questions[..]].concat();
    let told = done(&run(&nodes[1].site, "acl", &asked, ""));
    let mapped = done(&run(&nodes[1].site, "auth", &["ann"], ""));
    assert!(mapped.contains(&format!("authcID:     <{ann}>")), "{mapped}");
    assert!(told.contains("read access to sn: ALLOWED"), "{told}");
    assert!(told.contains("write access to sn: DENIED"), "{told}");
    // What a tool makes is numbered as what the nodes make: added to what was empty, beside others, and changed.
    for name in ["p2", "bob"] {
        let csn = nodes[1].client().value(&format!("cn={name},ou=people,{SUFFIX}"), "entryCSN");
        assert!(csn.as_ref().is_some_and(|csn| csn.contains("#007#")), "{name}: {csn:?}");
    }
    for (tool, arguments, input) in [
        ("add", &[][..], &*more),
        ("offline-modify", &[], &changes),
        ("index", &[], ""),
        ("offline-delete", &[&*ann], ""),
    ] {
        let told = refused(&run(&nodes[1].site, tool, arguments, input));
        assert!(told.contains(&format!("{} writes: change entries there", nodes[0].url())), "{tool}: {told}");
    }
    nodes.iter_mut().for_each(Member::stop);
}

/// A check names what does not fit in the engine, and leaves no copy of it behind.
#[test]
fn a_check_names_what_does_not_fit() {
    let Some(engine) = Engine::start() else { return };
    let (database, address) = engine.database();
    let nodes = nodes(&address, 1, "");
    let site = &nodes[0].site;
    done(&run(site, "add", &[], &ldif(300)));
    let row =
        "SELECT t, k FROM larix.rows JOIN larix.tables USING (t) WHERE name = 'tree' ORDER BY k DESC LIMIT 1";
    engine
        .sql(&database, &format!("DELETE FROM larix.rows WHERE (t, k) IN ({row})"))
        .expect("a row of the tree");

    let own = tempfile::tempdir().expect("a directory");
    let mut check = Kind::Larix.tool("cluster");
    check.args(["check", "-f"]).arg(site.configuration()).env("TMPDIR", own.path());
    let checked = check.output().expect("the tool");
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(!checked.status.success(), "{told}");
    assert!(told.contains("is not in the tree") && told.contains("303 entries, 1 findings"), "{told}");
    assert_eq!(std::fs::read_dir(own.path()).expect("the directory").count(), 0);

    let nowhere = own.path().join("nowhere");
    let told = refused(&check.env("TMPDIR", &nowhere).output().expect("the tool"));
    assert!(told.contains(&format!("cannot make a directory in {}", nowhere.display())), "{told}");
}

/// Nodes that run, none of which may write for a while, see what a tool has written; one of them writes on behind it.
#[test]
fn nodes_that_run_see_what_a_tool_writes() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let mut nodes = nodes_with(&address, 1, LEASE, ("", "read-consistency session\noverlay syncprov"));
    nodes[0].start();
    until("it writes", || nodes[0].log().contains("this node writes now"));
    let ended = run(&nodes[0].site, "cluster step-down", &[], "");
    done(&ended);
    until("it has noticed", || {
        // It may not write for ten seconds, in which the tool may.
        run(&nodes[0].site, "add", &[], &ldif(200)).status.success()
    });
    until("the entries are seen", || nodes[0].content(SUFFIX).is_some_and(|found| found.len() == 203));
    // Consumers learn by it what comes later.
    until("the content has a contextCSN", || nodes[0].client().value(SUFFIX, "contextCSN").is_some());
    until("the node writes again", || change(&nodes[0], &describe("again")) == "=> 0\n");
    assert_eq!(description(&nodes[0]).as_deref(), Some("again"));
    nodes[0].stop();
    // Consumers go on behind a tool that changes no entry.
    let history = || engine.sql(&name, "SELECT encode(v, 'hex') FROM larix.rows WHERE k = 'log-history'");
    let before = history().filter(|found| !found.is_empty()).expect("a history");
    done(&run(&nodes[0].site, "index", &[], ""));
    assert_eq!(history(), Some(before));
}

/// Other content is loaded while a node serves, and takes the place of what there was in one moment.
#[test]
fn new_content_is_loaded_beside_what_is_served() {
    let Some(engine) = Engine::start() else { return };
    let (_, address) = engine.database();
    let mut nodes = nodes_with(&address, 1, LEASE, ("database config\nrootpw secret\n", ""));
    nodes[0].start();
    fill(&nodes[0]);
    let next = self::nodes(&address, 1, "engine-schema next").remove(0);
    done(&run(&next.site, "add", &[], &ldif(200)));
    assert_eq!(nodes[0].content(SUFFIX).expect("entries").len(), 3);
    let mut client = Client::connect(nodes[0].address());
    assert_eq!(ask(&mut client, "as cn=config secret"), "=> 0\n");
    let switch = "modify olcDatabase={2}kv,cn=config\n  replace olcLarixKvSchema: next";
    assert_eq!(ask(&mut client, switch), "=> 0\n");
    assert_eq!(nodes[0].content(SUFFIX).expect("entries").len(), 203);
    until("it writes there", || change(&nodes[0], &describe("next")) == "=> 0\n");
    nodes[0].stop();
    assert_eq!(entries(&next.site), 203);
}

/// A tool that loads, and the way to hand it LDIF.
fn loading(site: &Site) -> (Child, File) {
    let fifo = site.configuration().with_file_name("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo");
    assert!(made.success());
    let mut tool = Kind::Larix.tool("add");
    tool.arg("-f").arg(site.configuration()).arg("-l").arg(&fifo);
    let tool = tool.stderr(Stdio::piped()).spawn().expect("the tool");
    (tool, File::options().write(true).open(&fifo).expect("it reads"))
}

/// What a killed tool leaves: no entries, and a lease that ends.
#[test]
fn a_killed_tool_leaves_nothing() {
    let Some(engine) = Engine::start() else { return };
    let mut nodes = nodes(&engine.database().1, 1, "");
    let site = &nodes[0].site;
    let (mut tool, mut input) = loading(site);
    input.write_all(ldif(2_000).as_bytes()).expect("it reads");
    let told = refused(&run(site, "add", &[], &ldif(0)));
    assert!(told.contains(&format!("add (process {}) writes", tool.id())), "{told}");
    tool.kill().expect("it runs");
    tool.wait().expect("its end");
    nodes[0].start();
    assert_eq!(nodes[0].content(SUFFIX), None);
    until("the lease of the tool ends", || nodes[0].log().contains("this node writes now"));
    nodes[0].stop();
    assert_eq!(entries(&nodes[0].site), 0);
}

/// A tool that hangs, or whose machine is gone, has rows of the engine locked.
#[test]
fn a_tool_that_hangs_keeps_no_node_from_writing() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let mut nodes = nodes(&address, 1, "");
    let (tool, mut input) = loading(&nodes[0].site);
    input.write_all(ldif(20_000).as_bytes()).expect("it reads");
    let locks =
        "SELECT count(*) FROM pg_locks WHERE relation = 'larix.rows'::regclass AND mode = 'RowExclusiveLock'";
    until("rows are on their way", || engine.sql(&name, locks).is_some_and(|count| count != "0"));
    freeze(tool.id());
    nodes[0].start();
    fill(&nodes[0]);
    drop(input);
    signal(tool.id(), Signal::CONT);
    let told = refused(&tool.wait_with_output().expect("its end"));
    assert!(told.contains(&format!("{} has taken over the right to write", nodes[0].url())), "{told}");
    nodes[0].stop();
    assert_eq!(entries(&nodes[0].site), 3);
}

/// An engine that commits a load and loses the answer knows later that it was made.
#[test]
fn a_load_without_an_answer_is_found() {
    let Some(engine) = Engine::start() else { return };
    let (name, address) = engine.database();
    let nodes = nodes(&address, 1, "");
    let (tool, mut input) = loading(&nodes[0].site);
    input.write_all(ldif(20_000).as_bytes()).expect("it reads");
    let locks =
        "SELECT count(*) FROM pg_locks WHERE relation = 'larix.rows'::regclass AND mode = 'RowExclusiveLock'";
    until("rows are on their way", || engine.sql(&name, locks).is_some_and(|count| count != "0"));
    let set = |change: &str, expected: &str| {
        engine.sql("postgres", &format!("ALTER SYSTEM {change}")).expect("set");
        engine.sql("postgres", "SELECT pg_reload_conf()").expect("reload");
        until("the setting", || {
            engine.sql("postgres", "SHOW synchronous_standby_names").as_deref() == Some(expected)
        });
    };
    // The engine commits, and waits for a standby that never answers.
    set("SET synchronous_standby_names = 'nobody'", "nobody");
    drop(input);
    let those_that_wait = format!(
        "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = '{name}' AND query LIKE '%COMMIT%'"
    );
    until("it waits", || {
        engine
            .sql("postgres", &format!("SELECT count(*) {those_that_wait}"))
            .is_some_and(|count| count != "0")
    });
    engine.sql("postgres", &format!("SELECT pg_terminate_backend(pid) {those_that_wait}")).expect("ended");
    set("RESET synchronous_standby_names", "");
    done(&tool.wait_with_output().expect("its end"));
    assert_eq!(entries(&nodes[0].site), 20_003);
}
