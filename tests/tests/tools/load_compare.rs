//! `larix load compare`: every scenario runs in its smoke size, alone and beside slapd; faults are named; nothing is
//! left behind. What the figures are is no matter here.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use larix_load::generate::{self, Kind as Directory};
use larix_testkit::process::{Signal, signal};
use larix_testkit::{Kind, Server, packages, until};
use serde_json::Value;

fn larix() -> PathBuf {
    Kind::Larix.program().expect("larix is built")
}

fn compare(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(larix());
    command.args(["load", "compare"]).args(arguments).arg("--directory").arg(directory);
    command.stdin(Stdio::null());
    command
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).expect("the directory").next().is_none()
}

/// Runs a scenario in its smoke size and gives its document; the page for people has the same rows.
fn smoke(scenario: &str, more: &[&str]) -> Value {
    let (folder, made) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let file = made.path().join("document.json").display().to_string();
    let arguments = [&[scenario, "--smoke", "--json", &file], more].concat();
    let output = compare(&arguments, folder.path()).output().expect("larix starts");
    assert!(output.status.success(), "{scenario} {more:?}: {}", errors(&output));
    assert!(is_empty(folder.path()), "{scenario} left something behind");
    let document: Value = serde_json::from_slice(&fs::read(&file).expect("the document")).expect("JSON");
    let page = String::from_utf8_lossy(&output.stdout);
    let rows = document["rows"].as_array().into_iter().flatten();
    let words = rows.filter_map(|row| row["name"].as_str()?.split(' ').next());
    for word in words.chain(document["title"].as_str()) {
        assert!(page.contains(word), "{scenario}: {word:?} is not in\n{page}");
    }
    document
}

fn check_smoke(scenario: &str) {
    let with_slapd = if Kind::Slapd.is_lacking() { None } else { Kind::Slapd.program() };
    let path = with_slapd.as_ref().map(|path| path.display().to_string());
    let more: Vec<&str> = path.iter().flat_map(|path| ["--with", "slapd", "--slapd", path]).collect();
    let document = smoke(scenario, &more);
    let servers = document["servers"].as_array().expect("servers").len();
    assert_eq!(servers, 1 + usize::from(with_slapd.is_some()));
    let rows = document["rows"].as_array().expect("rows");
    assert!(rows.len() > 5, "{document:#}");
    for row in rows {
        assert_eq!(row["invalid"], Value::Null, "{row:#}");
    }
    // A short run sees no CPU time, a row in wall time is always there.
    let measured = rows.iter().filter(|row| row["figures"][servers - 1][0].is_f64()).count();
    assert!(measured * 3 > rows.len(), "{document:#}");
    assert!(!document["charts"].as_array().expect("charts").is_empty());
}

#[test]
fn the_mail_scenario() {
    check_smoke("mail");
}

#[test]
fn the_frontend_scenario() {
    check_smoke("frontend");
}

#[test]
fn the_grid_scenario() {
    check_smoke("grid");
}

#[test]
fn the_subscribers_scenario() {
    check_smoke("subscribers");
}

#[test]
fn the_sizing_scenario() {
    check_smoke("sizing");
}

#[test]
fn larix_alone_in_rounds_with_chosen_rows() {
    let document = smoke("mail", &["--rounds", "2", "--only", "read,add", "--load-once"]);
    assert_eq!(document["servers"].as_array().map(Vec::len), Some(1));
    let rows = document["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(names.iter().all(|name| name.starts_with("read") || name.starts_with("add")), "{names:?}");
    let add = rows.iter().find(|row| row["name"].as_str().is_some_and(|name| name.starts_with("add")));
    assert_eq!(add.expect("an add")["figures"][0].as_array().map(Vec::len), Some(2));
}

/// Where a syslog daemon listens, or nobody may make its socket, the rows with lines are left out and a note says so.
#[test]
fn both_log_levels_and_redis() {
    let redis = packages::REDIS.is_lacking();
    let mut more = vec!["--only", "search,read", "--log-level", "both"];
    if !redis {
        more.push("--with-redis");
    }
    let document = smoke("mail", &more);
    let rows = document["rows"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["name"] == name);
    let notes = document["notes"].as_array().expect("notes");
    let note =
        |start: &str| notes.iter().any(|note| note.as_str().is_some_and(|note| note.starts_with(start)));
    match row("read by DN, 16 connections, lines a request") {
        Some(lines) => {
            let lines = lines["figures"][0][0].as_f64().expect("lines");
            // An operation, its result, and those of the connections. A machine that is very busy may lose some, and makes few requests
            // a connection: with one on each there are seven.
            assert!((1.5..8.0).contains(&lines), "{lines}");
            assert!(note("Lines sent to syslog with `loglevel stats`: larix "), "{notes:?}");
            assert!(note("Lines sent to syslog with `loglevel 0`: larix "), "{notes:?}");
        }
        None => assert!(note("Rows with `loglevel stats` are left out"), "{notes:?}"),
    }
    if !redis {
        let beside = row("search, 16 connections, 8 in flight, to Redis").expect("a row beside Redis");
        assert!(
            beside["note"].as_str().is_some_and(|note| note.contains("GETs of 2,100 bytes")),
            "{beside:#}"
        );
    }
}

#[test]
fn faults_are_named_before_anything_is_measured() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port().to_string();
    for (arguments, expected) in [
        (&["male"][..], &["\"male\"", "mail, frontend, grid, subscribers, sizing"][..]),
        (&["mail", "--only", "serach"], &["\"serach\"", "search, substrings, read"]),
        (&["mail", "--entries", "7"], &["7 entries"]),
        (&["mail", "--entries", "900000000"], &["GiB free", "--directory"]),
        (&["mail", "--smoke", "--rounds", "0"], &["0 rounds: 1 to 100"]),
        (&["mail", "--smoke", "--seconds", "0"], &["0 seconds a figure"]),
        (&["mail", "--smoke", "--port", &port], &[&port, "--port"]),
        (&["mail", "--smoke", "--with", "slapdd"], &["\"slapdd\"", "ldap://HOST:PORT"]),
        (&["mail", "--smoke", "--with", "ldaps://host"], &["ldaps://host"]),
        (&["mail", "--smoke", "--with", "ldap://127.0.0.1:1"], &["ldap://127.0.0.1:1: cannot connect"]),
        (&["mail", "--smoke", "--with", "/nowhere/slapd"], &["/nowhere/slapd", "package slapd"]),
        (&["mail", "--smoke", "--slapd", "/nowhere/slapd"], &["--with slapd"]),
        (&["mail", "--smoke", "--with-redis", "--redis", "/nowhere/redis-server"], &["package redis-server"]),
        (&["mail", "--smoke", "--redis", "/usr/bin/redis-server"], &["--with-redis"]),
        (&["mail", "--smoke", "--log-level", "all"], &["'all'", "0, stats, both"]),
        (&["mail", "--smoke", "--with", "/bin/true"], &["/bin/true", "no version of slapd"]),
        (&["grid", "--smoke", "--load-once"], &["--load-once"]),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = compare(arguments, folder.path()).output().expect("larix starts");
        let errors = errors(&output);
        assert!(!output.status.success(), "{arguments:?}");
        for part in expected {
            assert!(errors.contains(part), "{arguments:?}: {errors}");
        }
        assert!(is_empty(folder.path()), "{arguments:?} left something behind");
    }
}

/// A program that looks like slapd and is Larix; `load` is what it does in the place of `-Tadd`.
fn peer(folder: &Path, load: &str) -> String {
    let script = format!(
        "#!/bin/sh\nlarix={}\ncase $1 in\n\
         -VV) echo '@(#) $OpenLDAP: slapd 0.0.7 (today) $' >&2 ;;\n\
         -Ttest) exit 0 ;;\n\
         -Tadd) shift; {load} ;;\n\
         *) echo 'the peer serves now' >&2; exec \"$larix\" serve \"$@\" ;;\nesac\n",
        larix().display()
    );
    let path = folder.join("slapd");
    fs::write(&path, script).expect("the script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its rights");
    // Another test's child may hold it open for writing until that has become another program.
    until("the script starts", || Command::new(&path).arg("-VV").output().is_ok());
    path.display().to_string()
}

/// Starts a long comparison and waits until the progress says that `server` is searched; gives the server's process.
fn start_and_wait(
    arguments: &[&str],
    directory: &Path,
    server: &str,
) -> (Child, BufReader<std::process::ChildStderr>, u32) {
    let mut command = compare(arguments, directory);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("larix starts");
    let mut progress = BufReader::new(child.stderr.take().expect("its progress"));
    let mut line = String::new();
    while !line.contains(&format!("{server}: mail, read")) {
        line.clear();
        assert!(progress.read_line(&mut line).expect("a line") > 0, "it ended before {server} was asked");
    }
    let id = child.id();
    let threads = fs::read_dir(format!("/proc/{id}/task")).expect("its threads");
    let children = threads.filter_map(|thread| {
        fs::read_to_string(thread.ok()?.path().join("children")).ok()?.split_whitespace().next()?.parse().ok()
    });
    let server: Vec<u32> = children.collect();
    assert_eq!(server.len(), 1, "one server at a time");
    (child, progress, server[0])
}

/// One that has ended and that its new parent has yet to reap does not run.
fn is_running(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.is_ok_and(|status| !status.lines().any(|line| line.starts_with("State:\tZ")))
}

#[test]
fn a_peer_that_dies_is_named_with_the_end_of_its_log() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("a folder");
    let peer = peer(folder.path(), "exec \"$larix\" add \"$@\"");
    let arguments = ["mail", "--smoke", "--only", "read", "--seconds", "1", "--rounds", "2", "--with", &peer];
    let (mut child, mut progress, server) = start_and_wait(&arguments, &data, "slapd 0.0.7");
    assert!(signal(server, Signal::KILL));
    let mut errors = String::new();
    std::io::Read::read_to_string(&mut progress, &mut errors).expect("its errors");
    assert!(!child.wait().expect("its end").success());
    for part in ["slapd 0.0.7, round 1", "read by DN", "ended by itself: signal: 9", "the peer serves now"] {
        assert!(errors.contains(part), "{errors}");
    }
    assert!(is_empty(&data), "something was left behind");
}

#[test]
fn a_signal_stops_the_server_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let arguments = ["mail", "--smoke", "--only", "read", "--seconds", "60"];
    for (name, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let (mut child, _progress, server) = start_and_wait(&arguments, folder.path(), "larix");
        assert!(signal(child.id(), name));
        assert_eq!(child.wait().expect("its end").code(), Some(status));
        assert!(!is_running(server), "the server still runs");
        assert!(is_empty(folder.path()), "something was left behind");
    }
}

#[test]
fn a_peer_that_loses_entries_is_not_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("a folder");
    // Larix was loaded before; the peer keeps the first twenty entries.
    let load = "for last in \"$@\"; do :; done; \
                awk 'BEGIN { RS = \"\"; ORS = \"\\n\\n\" } NR <= 20' \"$last\" >\"$last.cut\"; \
                mv \"$last.cut\" \"$last\"; exec \"$larix\" add \"$@\"";
    let peer = peer(folder.path(), load);
    let output =
        compare(&["mail", "--smoke", "--only", "read", "--with", &peer], &data).output().expect("starts");
    let errors = errors(&output);
    assert!(!output.status.success());
    assert!(errors.contains("slapd 0.0.7") && errors.contains("were loaded or acknowledged"), "{errors}");
    assert!(is_empty(&data), "something was left behind");
}

/// A server that is given by URL and holds fewer entries than it is asked for: its answers are right, and not what was
/// expected.
#[test]
fn a_given_server_with_other_data_makes_its_rows_invalid() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (server_folder, data) = (folder.path().join("server"), folder.path().join("data"));
    fs::create_dir(&data).expect("a folder");
    let schema = larix_testkit::site::schema_directory();
    let made =
        generate::write_directory(Directory::Mail, 100, 1, &server_folder, &schema).expect("a directory");
    let load = Kind::Larix.tool("add").arg("-f").arg(&made.configuration).arg("-l").arg(&made.ldif).output();
    assert!(load.expect("the tool starts").status.success());
    let server = Server::start(Kind::Larix, &made.configuration).unwrap_or_else(|e| panic!("{e}"));
    let url = format!("ldap://{}/", server.address);
    let compare_rows = |entries: &str, only: &str| {
        let arguments =
            ["mail", "--smoke", "--entries", entries, "--only", only, "--with", &url, "--json", "-"];
        compare(&arguments, &data).output().expect("larix starts")
    };
    let right = compare_rows("100", "search,read,modify");
    assert!(right.status.success(), "{}", errors(&right));
    let document: Value = serde_json::from_slice(&right.stdout).expect("JSON");
    let row = |name: &str| {
        let rows = document["rows"].as_array().expect("rows");
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {document:#}")).clone()
    };
    assert!(row("search, 16 connections, wall time")["figures"][1][0].is_f64());
    let unwritten = row("modify, durable, 64 connections");
    assert!(unwritten["note"].as_str().is_some_and(|note| note.contains("--bind-dn")), "{unwritten:#}");
    let wrong = compare_rows("300", "search,read");
    assert!(!wrong.status.success());
    let errors = errors(&wrong);
    assert!(errors.contains("rows are invalid") && errors.contains("0 entries instead of 1"), "{errors}");
    assert!(is_empty(&data), "something was left behind");
    assert!(server.stop());
}
