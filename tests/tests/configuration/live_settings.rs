//! Settings of the server as a whole that are changed while it serves: what was made ready before is what clients meet after.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use larix_testkit::pki::Authority;
use larix_testkit::{Kind, Server, Site, process::free_ports};
use larix_tests::client::{Client, run as ask};

const ADMIN: &str = "cn=admin,dc=example,dc=com";

struct Bench {
    site: Site,
    server: Server,
    configuration: Client,
}

impl Bench {
    fn start() -> Self {
        let site = Site::new(
            Kind::Larix,
            &format!(
                "database config\nrootpw secret\ndatabase mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\n\
                 rootpw secret\ndirectory @DATA@\noverlay syncprov\n"
            ),
        );
        site.load(
            "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n",
        );
        let server = site.start().unwrap_or_else(|error| panic!("{error}"));
        let mut configuration = Client::connect(server.address);
        assert_eq!(ask(&mut configuration, "as cn=config secret\n"), "=> 0\n");
        Self { site, server, configuration }
    }

    /// Changes an entry of the configuration.
    fn change(&mut self, entry: &str, lines: &str) -> String {
        ask(&mut self.configuration, &format!("modify \"{entry}\"\n{lines}\n"))
    }

    fn changed(&mut self, lines: &str) {
        assert_eq!(self.change("cn=config", lines), "=> 0\n", "{lines}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.path().join(name)
    }
}

/// The status of an answer by HTTP; `None` where nobody listens.
fn status(port: u16, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split(' ').nth(1)?.parse().ok()
}

/// A listener that was closed is gone a moment after the answer: its loop has to be told.
fn is_gone(port: u16) -> bool {
    (0..1_000_000).any(|_| {
        std::thread::yield_now();
        TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_err()
    })
}

#[test]
fn a_certificate_of_another_authority_takes_the_place_of_the_first() {
    let mut bench = Bench::start();
    let authorities = [Authority::new("one"), Authority::new("two")];
    for (authority, name) in authorities.iter().zip(["one", "two"]) {
        std::fs::write(bench.path(&format!("{name}-ca.pem")), authority.certificate()).unwrap();
        authority.server().write(bench.site.path(), name);
    }
    let url = format!("ldap://{}", bench.server.address);
    let change = |bench: &mut Bench, name: &str| {
        let folder = bench.site.path().display().to_string();
        let lines = format!(
            "replace olcTLSCertificateFile: {folder}/{name}.pem\nreplace olcTLSCertificateKeyFile: {folder}/{name}.key"
        );
        bench.change("cn=config", &lines)
    };
    let trusted = |bench: &Bench| ["one", "two"].map(|name| trusts(bench, &url, name));
    assert_eq!(trusted(&bench), [false, false], "there is no TLS yet");
    assert_eq!(change(&mut bench, "one"), "=> 0\n");
    assert_eq!(trusted(&bench), [true, false]);
    assert_eq!(change(&mut bench, "two"), "=> 0\n");
    assert_eq!(trusted(&bench), [false, true]);
    assert!(change(&mut bench, "nothing").contains("nothing.pem"), "the file is named");
    assert_eq!(trusted(&bench), [false, true], "what cannot be read changes nothing");
}

/// Whether a client that trusts this authority gets its answer by StartTLS.
fn trusts(bench: &Bench, url: &str, authority: &str) -> bool {
    let output = Command::new(Kind::Larix.program().unwrap())
        .args(["whoami", "-x", "-ZZ", "-H", url, "-o"])
        .arg(format!("tls_cacert={}", bench.path(&format!("{authority}-ca.pem")).display()))
        .output();
    output.unwrap().status.success()
}

#[test]
fn a_directory_that_is_not_there_is_named_with_the_mend() {
    let mut bench = Bench::start();
    let answer = bench.change("olcDatabase={1}mdb,cn=config", "replace olcDbDirectory: /nonexistent/nowhere");
    let mend = "`/nonexistent/nowhere` does not exist; make it: mkdir -p -m 700 /nonexistent/nowhere";
    assert!(answer.contains(mend), "{answer}");
}

/// Entries of a configuration from slapd.conf have stamps from its first change on.
#[test]
fn assertions_see_what_searches_find() {
    let mut bench = Bench::start();
    let mut ask = |request: &str| ask(&mut bench.configuration, request);
    assert_eq!(ask("search \"cn=config\" base (entryUUID=*) 1.1\n"), "=> 0\n");
    let refused = ask("modify \"cn=config\" with !assert=(entryUUID=*)\nreplace olcIdleTimeout: 7\n");
    assert!(refused.starts_with("=> 122"), "{refused}");
    assert_eq!(
        ask("modify \"cn=config\" with !preread=cn,entryUUID,entryCSN\nreplace olcIdleTimeout: 7\n"),
        "=> 0\n   before: cn=config\n   cn: config\n"
    );
    assert_eq!(ask("modify \"cn=config\" with !assert=(entryUUID=*)\nreplace olcIdleTimeout: 8\n"), "=> 0\n");
}

/// What opens a pipe that nobody writes to waits for ever, and changes of the configuration with it.
#[test]
fn a_pipe_is_no_file_of_the_configuration() {
    let mut bench = Bench::start();
    let pipe = bench.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let certificate =
        format!("replace olcTLSCertificateFile: {0}\nreplace olcTLSCertificateKeyFile: {0}", pipe.display());
    let consumer = format!(
        "add olcSyncRepl: rid=1 provider=ldap://127.0.0.1:1 searchbase=dc=example,dc=com attrs=:include:{}",
        pipe.display()
    );
    for (entry, lines) in [
        ("cn=config", &format!("replace olcRootDSE: {}", pipe.display())),
        ("cn=config", &certificate),
        ("olcDatabase={1}mdb,cn=config", &consumer),
    ] {
        let answer = bench.change(entry, lines);
        assert!(answer.contains("it is not a regular file"), "{lines}\n{answer}");
    }
    let answer = bench.change("cn=config", &format!("replace olcLogFile: {}", pipe.display()));
    assert!(answer.contains("cannot open the log file"), "{answer}");
}

#[test]
fn a_directory_is_of_one_database_by_whatever_name() {
    let mut bench = Bench::start();
    let link = bench.path("link");
    std::os::unix::fs::symlink(bench.path("data"), &link).unwrap();
    let link = link.display();
    let answer = bench.change("olcDatabase={1}mdb,cn=config", &format!("replace olcDbDirectory: {link}"));
    assert!(answer.contains("by this path or another, give each database its own"), "{answer}");
    let request = format!(
        "add olcDatabase=mdb,cn=config\nobjectClass: olcDatabaseConfig\nobjectClass: olcMdbConfig\nolcDatabase: mdb\n\
         olcSuffix: dc=two\nolcDbDirectory: {link}\n"
    );
    let answer = ask(&mut bench.configuration, &request);
    assert!(answer.contains("is that of the database at olcDatabase={1}mdb,cn=config"), "{answer}");
}

/// What is written behind it would be gone at the next start.
#[test]
fn a_transaction_leaves_no_database_on_the_store_of_another_kind() {
    let mut bench = Bench::start();
    let data = bench.path("other");
    std::fs::create_dir(&data).unwrap();
    let mut ask = |request: &str| ask(&mut bench.configuration, request);
    let added = |kind: &str, class: &str, with: &str| {
        format!(
            "add olcDatabase={kind},cn=config{with}\nobjectClass: olcDatabaseConfig\nobjectClass: {class}\n\
             olcDatabase: {kind}\nolcSuffix: dc=two\nolcDbDirectory: {}\n",
            data.display()
        )
    };
    let kinds = [("mdb", "olcMdbConfig"), ("ldif", "olcLdifConfig")];
    for ((old, old_class), (new, new_class)) in [(kinds[0], kinds[1]), (kinds[1], kinds[0])] {
        assert_eq!(ask(&added(old, old_class, "")), "=> 0\n");
        let started = ask("extended 1.3.6.1.1.21.1\n");
        assert!(started.starts_with("=> 0"), "{started}");
        assert_eq!(ask(&format!("delete \"olcDatabase={{2}}{old},cn=config\" with !txn\n")), "=> 0\n");
        assert_eq!(ask(&added(new, new_class, " with !txn")), "=> 0\n");
        let refused = ask("extended 1.3.6.1.1.21.3 \"30 02 04 00\"\n");
        let why = format!("the {old} database at olcDatabase={{2}}{old},cn=config");
        assert!(refused.contains(&why) && refused.contains("in a change of its own"), "{refused}");
        // One after the other, it works.
        assert_eq!(ask(&format!("delete olcDatabase={{2}}{old},cn=config\n")), "=> 0\n");
        assert_eq!(ask(&added(new, new_class, "")), "=> 0\n");
        assert_eq!(ask(&format!("delete olcDatabase={{2}}{new},cn=config\n")), "=> 0\n");
    }
}

#[test]
fn listeners_come_and_go() {
    let mut bench = Bench::start();
    for (attribute, path, expected) in
        [("olcLarixHttpListener", "/health/live", 200), ("olcLarixAdminListener", "/login", 200)]
    {
        let [first, second] = free_ports(2)[..] else { panic!("two ports") };
        let value = |port: u16| format!("{attribute}: http://127.0.0.1:{port}/");
        assert_eq!(status(first, path), None);
        bench.changed(&format!("add {}", value(first)));
        assert_eq!(status(first, path), Some(expected), "{attribute}");
        // One that cannot be had changes nothing: this port is the directory's own.
        let port = bench.server.address.port();
        let refused = bench.change("cn=config", &format!("add {}", value(port)));
        assert!(refused.contains(&port.to_string()), "{refused}");
        bench.changed(&format!("replace {}", value(second)));
        assert_eq!(status(second, path), Some(expected), "{attribute}");
        assert!(is_gone(first), "{attribute}");
        bench.changed(&format!("delete {attribute}"));
        assert!(is_gone(second), "{attribute}");
    }
    let refused = bench.change("cn=config", "add olcLarixAdminListener: https://127.0.0.1:0/");
    assert!(refused.starts_with("=> 53") && refused.contains("certificate"), "{refused}");
}

#[test]
fn a_port_that_the_server_has_itself_is_named_as_such() {
    let mut bench = Bench::start();
    for (attribute, path, expected, any) in [
        ("olcLarixHttpListener", "/health/live", 200, "http://0.0.0.0"),
        ("olcLarixAdminListener", "/login", 200, "https://0.0.0.0"),
    ] {
        let [port] = free_ports(1)[..] else { panic!("a port") };
        let mine = format!("{attribute}: http://127.0.0.1:{port}");
        // Two spellings of one address are one listener, which stays while one of them does.
        bench.changed(&format!("add {mine}\nadd {mine}/"));
        assert_eq!(status(port, path), Some(expected), "{attribute}");
        bench.changed(&format!("delete {mine}"));
        assert_eq!(status(port, path), Some(expected), "{attribute}");
        let refused = bench.change("cn=config", &format!("replace {attribute}: {any}:{port}/"));
        let why = format!("this server has the port itself, at 127.0.0.1:{port}: delete that listener");
        assert!(refused.contains(&why), "{refused}");
        assert_eq!(status(port, path), Some(expected), "{attribute}");
        bench.changed(&format!("delete {attribute}"));
        assert!(is_gone(port), "{attribute}");
    }
    let port = bench.server.address.port();
    let refused = bench.change("cn=config", &format!("add olcLarixHttpListener: http://127.0.0.1:{port}/"));
    assert!(refused.contains("by another process or another listener of this server"), "{refused}");
}

/// A client that sends a long value gets its begin and its end back.
#[test]
fn a_refusal_shows_a_part_of_a_long_value() {
    let mut bench = Bench::start();
    let long = "x".repeat(70_000);
    for (entry, attribute) in [
        ("cn=config", "olcLogLevel"),
        ("cn=config", "olcTLSCertificateFile"),
        ("cn=config", "olcLogFile"),
        ("olcDatabase={1}mdb,cn=config", "olcAccess"),
        ("olcDatabase={1}mdb,cn=config", "olcUpdateRef"),
        ("olcDatabase={1}mdb,cn=config", "olcDbDirectory"),
    ] {
        let refused = bench.change(entry, &format!("replace {attribute}: {long}"));
        assert!(refused.contains("x... (") && refused.contains(" bytes)"), "{attribute}: {refused}");
        assert!(refused.len() < 2_200, "{attribute}: {}", refused.len());
    }
    let refused = bench.change("cn=config", &format!("replace {long}: 1"));
    assert!(refused.len() < 2_200 && refused.contains("undefined"), "{}", refused.len());
}

#[test]
fn the_servers_id_is_in_the_next_change() {
    let mut bench = Bench::start();
    let mut client = Client::connect(bench.server.address);
    assert_eq!(ask(&mut client, &format!("as {ADMIN} secret\n")), "=> 0\n");
    let mut written = |bench: &Bench, text: &str| {
        assert_eq!(
            ask(&mut client, &format!("modify dc=example,dc=com\nreplace description: {text}\n")),
            "=> 0\n"
        );
        let output = Command::new(Kind::Larix.program().unwrap())
            .args(["search", "-x", "-LLL", "-D", ADMIN, "-w", "secret", "-b", "dc=example,dc=com", "-H"])
            .args([format!("ldap://{}", bench.server.address).as_str(), "entryCSN", "contextCSN"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(written(&bench, "one").contains("#000#"));
    bench.changed("replace olcServerID: 7");
    let text = written(&bench, "two");
    let csns = |kind: &str| {
        text.lines().filter(|line| line.starts_with(kind)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(csns("entryCSN").len(), 1, "{text}");
    assert!(csns("entryCSN").iter().all(|csn| csn.contains("#007#")), "{text}");
    assert_eq!(csns("contextCSN").len(), 2, "what was written before keeps its own: {text}");
}

#[test]
fn an_option_that_entries_use_stays() {
    let mut bench = Bench::start();
    let mut client = Client::connect(bench.server.address);
    assert_eq!(ask(&mut client, &format!("as {ADMIN} secret\n")), "=> 0\n");
    let mut modify = |line: &str| ask(&mut client, &format!("modify dc=example,dc=com\n{line}\n"));
    bench.changed("add olcAttributeOptions: lang- | x-");
    assert_eq!(modify("add description;x-note: short"), "=> 0\n");
    let refused = bench.change("cn=config", "delete olcAttributeOptions: x-");
    assert!(refused.starts_with("=> 53") && refused.contains("description;x-note"), "{refused}");
    assert_eq!(modify("delete description;x-note"), "=> 0\n");
    bench.changed("delete olcAttributeOptions: x-");
    assert!(modify("add description;x-note: short").starts_with("=> 17"));
}

/// An option is taken out of slapd.conf while entries have it.
#[test]
fn what_the_schema_no_longer_knows_is_kept_and_written() {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "attributeoptions lang- x-\ndatabase mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\nrootpw secret\n\
             directory @DATA@\n"
        ),
    );
    // The long one does not stand in the record.
    let long = "x".repeat(5_000);
    site.load(&format!(
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: x\n\
         description;x-note: short\ndescription;x-note: {long}\n"
    ));
    let with_option = std::fs::read_to_string(site.configuration()).unwrap();
    std::fs::write(site.configuration(), with_option.replace(" x-\n", "\n")).unwrap();
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let mut client = Client::connect(server.address);
    assert_eq!(ask(&mut client, &format!("as {ADMIN} secret\n")), "=> 0\n");
    let mut modify = |line: &str| ask(&mut client, &format!("modify dc=example,dc=com\n{line}\n"));
    assert_eq!(modify("add telephoneNumber: 1"), "=> 0\n");
    assert_eq!(modify(&format!("add description: {long}")), "=> 0\n");
    assert_eq!(modify("delete description"), "=> 0\n");
    assert!(server.stop());
    let output =
        Kind::Larix.tool("cat").arg("-f").arg(site.configuration()).args(["-o", "ldif-wrap=no"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    for value in ["short", long.as_str()] {
        assert!(text.contains(&format!("\ndescription;x-note: {value}\n")), "{text}");
    }
}

#[test]
fn limits_of_clients_hold_from_the_next_connection_on() {
    let mut bench = Bench::start();
    // Addresses are counted from the first such limit on.
    bench.changed("replace olcLarixClientLimits: connections.address=100");
    let open: Vec<Client> = (0..3).map(|_| Client::connect(bench.server.address)).collect();
    bench.changed("replace olcLarixClientLimits: connections.address=3");
    let is_accepted = |bench: &Bench| {
        let mut socket = TcpStream::connect(bench.server.address).unwrap();
        // An anonymous bind: a connection that is not taken ends, or says that it does.
        let _ = socket.write_all(&[0x30, 0x0c, 2, 1, 1, 0x60, 7, 2, 1, 3, 4, 0, 0x80, 0]);
        let mut answer = [0; 64];
        let count = socket.read(&mut answer).unwrap_or(0);
        answer[..count].get(4) == Some(&1) && answer.get(5) == Some(&0x61)
    };
    assert!(!is_accepted(&bench), "three are open");
    bench.changed("delete olcLarixClientLimits");
    assert!(is_accepted(&bench));
    drop(open);
}

#[test]
fn files_get_another_mode_and_what_waits_for_a_start_is_told() {
    let mut bench = Bench::start();
    let mode =
        |bench: &Bench| std::fs::metadata(bench.path("data/data.mdb")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&bench), 0o600);
    let database = "olcDatabase={1}mdb,cn=config";
    assert_eq!(bench.change(database, "replace olcDbMode: 0640"), "=> 0\n");
    assert_eq!(mode(&bench), 0o640);
    assert_eq!(bench.change(database, "delete olcDbMode"), "=> 0\n");
    assert_eq!(mode(&bench), 0o600);
    let (pid, log) = (bench.path("pid").display().to_string(), bench.path("log"));
    bench.changed(&format!("replace olcLogFile: {}", log.display()));
    bench.changed(&format!("replace olcPidFile: {pid}"));
    let Bench { server, site: _site, configuration } = bench;
    drop(configuration);
    assert!(server.stop());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("olcPidFile was changed: that takes effect at the next start"), "{log}");
}
