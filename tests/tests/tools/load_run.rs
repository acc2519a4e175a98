//! The load generator against real servers: every kind of operation on Larix, TLS and local sockets on Debian's slapd,
//! and the command line's answers to what it cannot do.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use larix_load::drive::{
    self, Address, Identity, Options, Preset, Report, Security, Server as Target, Templates, Trust, Workload,
};
use larix_load::generate;
use larix_testkit::process::free_port;
use larix_testkit::{Kind, Server, Site, packages};

/// More than are renamed in the time of a run: of two renames of one entry at once, one finds nothing.
const ENTRIES: u64 = 3_000;
const ROOT: (&str, &str) = ("cn=admin,dc=example,dc=com", "secret");

fn people() -> String {
    let mut ldif = Vec::new();
    generate::Kind::People.write_ldif(ENTRIES, 1, &mut ldif).expect("generated people");
    String::from_utf8(ldif).expect("UTF-8")
}

fn options(server: Target) -> Options {
    Options {
        identity: Identity::Simple { dn: ROOT.0.into(), password: ROOT.1.into() },
        connections: 3,
        duration: Duration::from_millis(200),
        warm_up: Duration::ZERO,
        ..Options::new(server)
    }
}

fn workload(preset: Preset) -> Workload {
    let mut templates = Templates::of(generate::Kind::People).expect("templates");
    templates.bind = (ROOT.0.into(), ROOT.1.into());
    templates.workload(preset, ENTRIES).expect("a workload")
}

fn drive(options: &Options, workload: &Workload) -> Report {
    let report = drive::run(options, workload).unwrap_or_else(|error| panic!("{error:#}"));
    assert!(report.operations > 0 && report.is_valid(), "{:?} {:?}", report.unexpected, workload.steps);
    report
}

#[test]
fn every_operation_on_larix() {
    let site = Site::example(Kind::Larix);
    site.load(&people());
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let options = Options {
        process: Some(server.process_id()),
        disk: vec![site.path().into()],
        ..options(server.address.into())
    };
    let mut added = 0;
    for preset in Preset::ALL {
        if preset == Preset::Delete {
            continue;
        }
        let report = drive(&options, &Workload { sequence_start: ENTRIES + added, ..workload(preset) });
        added = report.sequence_end.saturating_sub(ENTRIES).max(added);
        assert!(report.server_cpu_seconds.is_some() && report.disk_bytes > Some(0), "{}", preset.name());
        match preset {
            Preset::Search | Preset::Read => assert_eq!(report.entries, report.operations),
            _ => {}
        }
    }
    // Every rename was undone and nothing but what was added went away: each entry is still there.
    let in_flight = Options { in_flight: 5, threads: 2, ..options.clone() };
    drive(&in_flight, &workload(Preset::Read));
    // What is not there to be deleted is found to be a wrong answer.
    let gone = Workload { sequence_start: 1_000_000, ..workload(Preset::Delete) };
    let report = drive::run(&options, &gone).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!((report.unexpected.len(), report.unexpected[0].what.as_str()), (1, "result 32"));
    assert_eq!(drive::listening_process(&Address::Tcp(server.address)), Some(server.process_id()));
    assert!(server.stop(), "the server did not stop cleanly");
}

/// An authority and a certificate for this machine, made by openssl in `folder`.
fn certificates(folder: &Path) {
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(folder).output().expect("openssl");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    let key = ["-newkey", "rsa:2048", "-nodes"];
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").expect("a file");
    let sign =
        ["-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"];
    openssl(
        &[&["req", "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca"], &key[..]].concat(),
    );
    openssl(&[&["req", "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=me"], &key[..]].concat());
    openssl(&[&["x509", "-req", "-out", "certificate.pem"], &sign[..]].concat());
}

#[test]
fn tls_and_local_sockets_on_slapd() {
    if Kind::Slapd.is_lacking() | packages::OPENSSL.is_lacking() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name);
    let body = format!(
        "TLSCertificateFile {}\nTLSCertificateKeyFile {}\ndatabase mdb\nsuffix dc=example,dc=com\n\
         rootdn {}\nrootpw {}\ndirectory @DATA@\nindex uid eq\n",
        path("certificate.pem").display(),
        path("key.pem").display(),
        ROOT.0,
        ROOT.1
    );
    let site = Site::new(Kind::Slapd, &body);
    site.load(&people());
    let socket = path("socket");
    let local = format!("ldapi://{}/", socket.display().to_string().replace('/', "%2F"));
    let urls = ["ldap://127.0.0.1:0/", "ldaps://127.0.0.1:0/", &local];
    let server = Server::start_on(Kind::Slapd, &site.configuration(), &urls, &[], &[])
        .unwrap_or_else(|error| panic!("{error}"));
    let (port, secure) = (server.ports[0], server.ports[1]);
    let trust = |name: &str| Trust { name: name.into(), authorities: Some(path("ca.pem")) };
    let tcp = |port: u16, security| {
        let address = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port)));
        options(Target { address, security })
    };
    for security in
        [Security::Tls(trust("localhost")), Security::Tls(Trust { name: "any".into(), authorities: None })]
    {
        drive(&Options { in_flight: 4, ..tcp(secure, security.clone()) }, &workload(Preset::Search));
        drive(&tcp(secure, security), &workload(Preset::Rebind));
    }
    drive(&tcp(port, Security::StartTls(trust("127.0.0.1"))), &workload(Preset::Read));
    let wrong = tcp(secure, Security::Tls(trust("elsewhere.example")));
    let error = format!("{:#}", drive::run(&wrong, &workload(Preset::Read)).expect_err("another name"));
    assert!(error.contains("the TLS handshake") && error.contains("elsewhere.example"), "{error}");
    let local = || options(Target { address: Address::Unix(socket.clone()), security: Security::None });
    drive(&local(), &workload(Preset::Read));
    drive(&local(), &workload(Preset::Rebind));
    drive(&Options { identity: Identity::External, ..local() }, &workload(Preset::Read));
    // How slapd ends, which it does not always do well, is not the generator's matter.
    let _ = server.stop();
}

#[test]
fn the_command_line_names_what_it_cannot_do() {
    let program = Kind::Larix.program().expect("larix is built");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let workload = folder.path().join("none.toml");
    std::fs::write(&workload, "count = 1\n[[step]]\nweight = 0\nread = { dn = \"dc=x\" }\n").expect("a file");
    let workload = workload.display().to_string();
    let template = folder.path().join("site.template");
    std::fs::write(&template, "branch: o=x\ndescription: <frist>\n").expect("a file");
    let template = template.display().to_string();
    let free = free_port();
    let absent = format!("127.0.0.1:{free}");
    let run = ["load", "run", "read", "--entries", "1", "--server", absent.as_str()];
    let with = |more: &[&'static str]| [&run[..], more].concat();
    let check = |arguments: &[&str], expected: &[&str]| {
        let output = Command::new(&program).args(arguments).output().expect("larix starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        assert!(expected.iter().all(|expected| error.contains(expected)), "{arguments:?}: {error}");
    };
    check(
        &["load", "run", "raed", "--entries", "1", "--server", &absent],
        &["\"raed\"", "search, read, compare"],
    );
    check(&with(&[]), &["cannot connect to ldap://127.0.0.1:", &free.to_string()]);
    check(&with(&["--rate", "0"]), &["a rate of 0 requests per second"]);
    check(&with(&["--in-flight", "101"]), &["101 requests in flight: 1 to 100"]);
    check(&with(&["--connections", "0"]), &["0 connections"]);
    check(&with(&["--seconds=-1"]), &["-1 seconds"]);
    check(&with(&["--dn", "uid={m}"]), &["no placeholder is called {m}"]);
    check(&with(&["--order", "zipf", "--exponent", "0"]), &["exponent 0"]);
    check(&["load", "run", "search", "--entries", "1", "--server", &absent, "--filter", "(a"], &["(a"]);
    check(
        &["load", "run", "read", "--entries", "0", "--server", &absent],
        &["the range of numbers is empty"],
    );
    check(
        &["load", "run", "--workload", &workload, "--server", &absent],
        &["none.toml", "no operation has a weight"],
    );
    check(
        &["load", "run", "read", "--entries", "1", "--server", "nonsense"],
        &["\"nonsense\" is not HOST:PORT"],
    );
    check(&["load", "generate", "template", &template], &["site.template", "line 2", "<frist> is unknown"]);
    check(&["load", "generate", "template"], &["give the template's file"]);
    check(
        &["load", "optimize", "read", "--entries", "1", "--server", &absent, "--from", "0"],
        &["no connection"],
    );
}
