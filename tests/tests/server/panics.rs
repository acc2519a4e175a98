//! Panics that are asked for in every kind of thread: what each happens in ends with an internal error or a closed connection, the
//! counts are right afterwards, and the service goes on. Needs a server with debug assertions, which alone can be asked.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use larix_proto::{MessageId, client};
use larix_testkit::process::{Signal, signal};
use larix_testkit::{Kind, Running, Site, until, until_some};
use larix_tests::client::{Client, run};

const ADMIN: &str = "cn=admin,dc=example,dc=com";
/// So that a server that does not answer is seen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The answer to a request that ended by a panic.
const INTERNAL: &str = "=> 80 text \"internal error\"\n";

const ENTRIES: &str = "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n\
    dn: uid=ann,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: ann\ncn: Ann\nsn: Example\nuserPassword: annpass\n";

/// A server that can be asked to panic.
struct Fixture {
    child: Running,
    address: SocketAddr,
    http: SocketAddr,
    admin: SocketAddr,
    /// Files whose names are the places of panics.
    panics: PathBuf,
    panic_count: u64,
    site: Site,
}

impl Fixture {
    /// These panics come as soon as the server has started; `overlay`: lines behind the database's.
    fn start(places: &[&str], overlay: &str) -> Self {
        Self::start_with(places, "", overlay, ENTRIES)
    }

    /// With more lines before the databases, and these entries.
    fn start_with(places: &[&str], global: &str, overlay: &str, entries: &str) -> Self {
        let site = Site::new(
            Kind::Larix,
            &format!(
                "{global}admin-listener http://127.0.0.1:0/\nhttp-listener http://127.0.0.1:0/\nlogfile @DATA@/log\nlogfile-only on\n\
                 backup-schedule directory=@DATA@/backups full=7d keep=2\n\
                 database config\nrootdn {ADMIN}\n\
                 database monitor\naccess to * by * read\n\
                 database mdb\nsuffix cn=log\nrootdn {ADMIN}\ndirectory @DATA@/accesses\naccess to * by * read\n\
                 database mdb\nsuffix dc=copy\nrootdn cn=admin,dc=copy\ndirectory @DATA@/copy\n\
                 syncrepl rid=001 provider=ldap://127.0.0.1:1/ searchbase=dc=copy type=refreshOnly bindmethod=simple retry=\"1 +\"\n\
                 database mdb\nsuffix dc=example,dc=com\nrootdn {ADMIN}\nrootpw secret\ndirectory @DATA@/main\n\
                 index description eq,sub\n\
                 access to attrs=userPassword by anonymous auth by * none\naccess to * by * read\n\
                 {overlay}\n"
            ),
        );
        for folder in ["backups", "accesses", "copy", "main"] {
            std::fs::create_dir_all(site.path().join("data").join(folder)).expect("a folder");
        }
        site.load_into(Some("dc=example,dc=com"), entries);
        let panics = site.path().join("panics");
        std::fs::create_dir(&panics).expect("a folder");
        places.iter().for_each(|place| std::fs::write(panics.join(place), "").expect("a file"));
        let (child, [ldap, http, admin]) = spawn(&site, &panics);
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let panic_count = places.len() as u64;
        Self {
            child,
            address: address(ldap),
            http: address(http),
            admin: address(admin),
            panics,
            panic_count,
            site,
        }
    }

    /// Has the next who comes to this place panic.
    fn ask(&mut self, place: &str) {
        std::fs::write(self.panics.join(place), "").expect("a file");
        self.panic_count += 1;
    }

    fn get(&self, address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("an HTTP connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a guard");
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(request.as_bytes());
        let mut bytes = Vec::new();
        // One that was ended by a panic is reset.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn figure(&self, metric: &str) -> u64 {
        let text = self.get(self.http, "/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
        let value = line.and_then(|value| value.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("no {metric} in\n{text}")) as u64
    }

    /// Waits until all that were asked for have come.
    fn until_all_came(&self, place: &str) {
        until(place, || self.figure("larix_panics_total") == self.panic_count);
        assert!(!self.panics.join(place).exists(), "nobody came to {place}");
    }

    /// The service as it is without a bug: everybody is answered, and nobody is counted who is gone.
    fn is_well(&self, behind: &str) {
        let mut client = self.connect();
        assert_eq!(run(&mut client, &format!("as {ADMIN} secret\n")), "=> 0\n", "{behind}");
        let found = run(&mut client, "search \"dc=example,dc=com\" sub (uid=ann) uid\n");
        assert!(found.contains("=> 0\n") && found.contains("uid: ann"), "{behind}: {found}");
        let modify = "modify \"uid=ann,dc=example,dc=com\"\n  replace description: changed\n";
        assert_eq!(run(&mut client, modify), "=> 0\n", "{behind}");
        assert!(self.get(self.http, "/health/live").contains("live"), "{behind}");
        drop(client);
        until(&format!("{behind}: no connection is counted"), || self.figure("larix_connections") == 0);
    }

    fn connect(&self) -> Client {
        Client::connect(self.address)
    }
}

/// With a slapd.d of what the site configures.
fn spawn(site: &Site, panics: &Path) -> (Running, [u16; 3]) {
    let directory = site.path().join("slapd.d");
    if !directory.exists() {
        std::fs::create_dir(&directory).expect("a folder");
        let mut convert = Kind::Larix.tool("test");
        let output = convert.arg("-f").arg(site.configuration()).arg("-F").arg(&directory).output();
        assert!(output.expect("the tool starts").status.success());
    }

    let ports = site.path().join("ports");
    let child = Command::new(Kind::Larix.program().expect("larix is built"))
        .args(["serve", "-d", "0", "-h", "ldap://127.0.0.1:0/", "--port-file"])
        .arg(&ports)
        .arg("-F")
        .arg(directory)
        .env("LARIX_PANICS", panics)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("larix starts");
    let mut child = Running(child);
    let found: [u16; 3] = until_some("the server's ports", || {
        assert!(child.try_wait().expect("its state").is_none(), "it ended");
        let text = std::fs::read_to_string(&ports).unwrap_or_default();
        let found: Vec<u16> = text.lines().filter_map(|line| line.parse().ok()).collect();
        found.try_into().ok()
    });
    (child, found)
}

/// Whether a request on a connection of its own is answered before that is closed.
fn is_answered(address: SocketAddr) -> bool {
    let mut request = Vec::new();
    client::compare(&mut request, MessageId(1), "dc=example,dc=com", "dc", b"example", &[]);
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a guard");
    let _ = stream.write_all(&request);
    stream.read(&mut [0; 64]).is_ok_and(|count| count > 0)
}

#[test]
fn a_panic_ends_what_it_happens_in_and_nothing_else() {
    let mut fixture = Fixture::start(&[], "");
    fixture.is_well("the start");

    // Connections, before they are served, on their way and amid a request.
    for place in ["accept", "accepted", "operation"] {
        fixture.ask(place);
        assert!(!is_answered(fixture.address), "{place}");
        fixture.until_all_came(place);
        fixture.is_well(place);
    }
    // An event loop goes on with the connections that it has.
    let mut kept = fixture.connect();
    assert_eq!(run(&mut kept, "search \"\" base (objectClass=*) 1.1\n").lines().last(), Some("=> 0"));
    fixture.ask("worker");
    fixture.until_all_came("worker");
    assert_eq!(run(&mut kept, "search \"\" base (objectClass=*) 1.1\n").lines().last(), Some("=> 0"));
    drop(kept);
    fixture.is_well("worker");

    // A bind whose hash is not computed is answered all the same, and the next one is computed.
    let mut admin = fixture.connect();
    assert_eq!(run(&mut admin, &format!("as {ADMIN} secret\n")), "=> 0\n");
    let password = "modify \"uid=ann,dc=example,dc=com\"\n  replace userPassword: {ARGON2}$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$Xpj4LZSbIoDgStBGqJ9PfQ\n";
    assert_eq!(run(&mut admin, password), "=> 0\n");
    fixture.ask("password");
    assert_eq!(run(&mut fixture.connect(), "as uid=ann,dc=example,dc=com wrong\n"), INTERNAL);
    assert_eq!(run(&mut fixture.connect(), "as uid=ann,dc=example,dc=com wrong\n"), "=> 49\n");
    fixture.until_all_came("password");

    // The writer: on the worker's own thread, where one client is alone, and on its own; before a commit and behind it.
    let modify = "modify \"uid=ann,dc=example,dc=com\"\n  replace title: boss\n";
    let learns =
        "modify \"uid=ann,dc=example,dc=com\"\n  replace carLicense: 1\n  replace roomNumber;lang-de: 2\n";
    for with_others in [false, true] {
        let others: Vec<Client> = (0..8).filter(|_| with_others).map(|_| fixture.connect()).collect();
        for (place, request) in [("writer", modify), ("writer-committed", learns)] {
            fixture.ask(place);
            assert_eq!(run(&mut admin, request), INTERNAL, "{place}");
            assert_eq!(run(&mut admin, request), "=> 0\n", "{place}");
            fixture.until_all_came(place);
        }
        drop(others);
    }
    // Beside changes, while what is pending is brought into an index.
    fixture.ask("upkeep");
    let text = (0..200).map(|n| format!("  add description: {n} {}\n", "x".repeat(200))).collect::<String>();
    let more = format!("modify \"uid=ann,dc=example,dc=com\"\n{text}");
    assert_eq!(run(&mut admin, &more), "=> 0\n");
    drop(admin);
    fixture.until_all_came("upkeep");
    fixture.is_well("writer");
}

#[test]
fn threads_beside_the_clients_go_on_behind_a_panic() {
    let mut fixture =
        Fixture::start(&["backup", "consumer"], "overlay accesslog\nlogdb cn=log\nlogops writes");
    fixture.until_all_came("backup");
    fixture.until_all_came("consumer");
    until("it is told of", || fixture.figure("larix_backups_failed_total") == 1);
    // What costs a request of HTTP ends that connection.
    for place in ["http-accept", "http"] {
        fixture.ask(place);
        assert_eq!(fixture.get(fixture.http, "/health/live"), "", "{place}");
        fixture.until_all_came(place);
    }
    // The configuration is changed by the next who asks.
    let mut admin = fixture.connect();
    assert_eq!(run(&mut admin, &format!("as {ADMIN} secret\n")), "=> 0\n");
    let change = "modify \"cn=config\"\n  replace olcIdleTimeout: 77\n";
    fixture.ask("configuration");
    assert_eq!(run(&mut admin, change), INTERNAL);
    assert_eq!(run(&mut admin, change), "=> 0\n");
    fixture.until_all_came("configuration");
    // What was changed is recorded when the access log's thread tries again.
    fixture.ask("access-log");
    let modify = "modify \"uid=ann,dc=example,dc=com\"\n  replace title: recorded\n";
    assert_eq!(run(&mut admin, modify), "=> 0\n");
    fixture.until_all_came("access-log");
    let recorded = "search \"cn=log\" sub (reqMod=title:=*recorded*) reqDN\n";
    until("it is in the log", || run(&mut admin, recorded).contains("uid=ann"));
    // What was committed is recorded without a change behind it.
    fixture.ask("writer-committed");
    let modify = "modify \"uid=ann,dc=example,dc=com\"\n  replace title: committed\n";
    assert_eq!(run(&mut admin, modify), INTERNAL);
    fixture.until_all_came("writer-committed");
    let recorded = "search \"cn=log\" sub (reqMod=title:=*committed*) reqDN\n";
    until("it is in the log", || run(&mut admin, recorded).contains("uid=ann"));
    // A tool gets an error, and the next one is served.
    let add = fixture.site.path().join("add.ldif");
    let entry = "dn: uid=eve,dc=example,dc=com\nobjectClass: account\nuid: eve\n";
    std::fs::write(&add, entry).expect("a file");
    let slapadd = || {
        let mut tool = Kind::Larix.tool("add");
        tool.arg("-f").arg(fixture.site.configuration()).args(["-b", "dc=example,dc=com", "-l"]).arg(&add);
        tool.output().expect("the tool starts").status.success()
    };
    std::fs::write(fixture.panics.join("tool"), "").expect("a file");
    assert_eq!((slapadd(), slapadd()), (false, true));
    fixture.panic_count += 1;
    fixture.until_all_came("tool");
    // The log's own thread.
    fixture.ask("log");
    drop(fixture.connect());
    fixture.until_all_came("log");
    drop(admin);
    fixture.is_well("all");
    let log = std::fs::read_to_string(fixture.site.path().join("data/log")).expect("the log");
    assert!(log.contains("a bug: the thread configuration panicked at"), "{log}");
    assert!(signal(fixture.child.id(), Signal::TERM));
    assert!(fixture.child.wait().expect("its end").success());
}

/// A collector that takes whatever comes; its URL.
fn collector() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = vec![0; 1 << 16];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    format!("http://{address}/")
}

#[test]
fn what_is_done_aside_ends_and_its_thread_goes_on() {
    let many =
        (0..3_000).map(|n| format!("\ndn: uid=n{n},dc=example,dc=com\nobjectClass: account\nuid: n{n}\n"));
    let entries = format!("{ENTRIES}{}", many.collect::<String>());
    let mut fixture = Fixture::start_with(&[], &format!("trace-export {}\n", collector()), "", &entries);

    // Searches that have left their worker: within a slice, and in the thread's turn around it.
    let long = "search \"dc=example,dc=com\" sub (uid=*x*) uid\n";
    let mut client = fixture.connect();
    assert_eq!(run(&mut client, &format!("as {ADMIN} secret\n")), "=> 0\n");
    for place in ["slice", "long"] {
        fixture.ask(place);
        assert_eq!(run(&mut client, long), INTERNAL, "{place}");
        assert_eq!(run(&mut client, long), "=> 0\n", "{place}");
        fixture.until_all_came(place);
    }
    // A request that is large when it comes: its connection is where the panic is.
    fixture.ask("long");
    let mut request = Vec::new();
    let value = vec![b'x'; 40_000];
    client::compare(&mut request, MessageId(1), "dc=example,dc=com", "description", &value, &[]);
    let mut stream = TcpStream::connect(fixture.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a guard");
    stream.write_all(&request).expect("a request");
    // One that was ended by a panic may be reset.
    let answered = stream.read_to_end(&mut Vec::new());
    assert!(answered.is_ok_and(|count| count == 0) || stream.write_all(&request).is_err());
    drop(stream);
    fixture.until_all_came("long");
    drop(client);
    fixture.is_well("long");
    let mut client = fixture.connect();
    assert_eq!(run(&mut client, &format!("as {ADMIN} secret\n")), "=> 0\n");

    // Spans: those of one message are lost, the next ones are sent.
    fixture.ask("traces");
    assert!(run(&mut client, "whoami\n").starts_with("=> 0\n"));
    fixture.until_all_came("traces");
    let sent = |fixture: &Fixture| fixture.figure("larix_trace_spans_total{what=\"sent\"}");
    let before = sent(&fixture);
    until("it is sent", || run(&mut client, long) == "=> 0\n" && sent(&fixture) > before);

    // The admin page ends the connection that it happens on.
    fixture.ask("admin");
    assert_eq!(fixture.get(fixture.admin, "/login"), "");
    fixture.until_all_came("admin");
    assert!(fixture.get(fixture.admin, "/login").starts_with("HTTP/1.1 200"));

    // What the configuration asks of a writer.
    let index = |kinds: &str| {
        format!("modify \"olcDatabase={{4}}mdb,cn=config\"\n  replace olcDbIndex: description {kinds}\n")
    };
    fixture.ask("task");
    assert_eq!(run(&mut client, &index("eq")), INTERNAL);
    // Who asked for it panics, too.
    fixture.panic_count += 1;
    fixture.until_all_came("task");
    assert_eq!(run(&mut client, &index("eq")), "=> 0\n");

    // slapd.d is made safe when there is nothing else to do: the journal has what its files lack.
    fixture.ask("settle");
    assert_eq!(run(&mut client, "modify \"cn=config\"\n  replace olcIdleTimeout: 78\n"), "=> 0\n");
    fixture.until_all_came("settle");
    drop(client);
    fixture.is_well("settle");
    let _ = fixture.child.kill();
    let _ = fixture.child.wait();
    let mut cat = Kind::Larix.tool("cat");
    let output = cat.args(["-n0", "-F"]).arg(fixture.site.path().join("slapd.d")).output().expect("the tool");
    assert!(String::from_utf8_lossy(&output.stdout).contains("olcIdleTimeout: 78\n"));
}
