//! `larix balance` in front of two servers.

mod binds;
mod inside;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use larix_proto::encode::EntryEncoder;
use larix_proto::{
    FilterBuf, Frame, Message, MessageId, ModifyOperation, Response, Scope, client, frame, oid,
};
use larix_testkit::process::{Signal, free_port, signal};
use larix_testkit::{Authority, Kind, Running, Server, SetAtEnd, Site, until};
use larix_tests::client::Client;
use larix_tests::http;
use larix_tests::relay::{Passage, Relay};
use larix_tests::secure::Secure;

const SUFFIX: &str = "dc=example,dc=com";
const PEOPLE: usize = 300;
/// Steps of 10 ms in which something has to come about.
const STEPS: usize = 18_000;

fn step() {
    std::thread::park_timeout(Duration::from_millis(10));
}

/// A server with the same people as the other.
fn site() -> Site {
    let site = Site::new(
        Kind::Larix,
        &format!(
            "moduleload vc\nauthz-policy to\ndatabase mdb\nsuffix {SUFFIX}\nrootdn cn=admin,{SUFFIX}\nrootpw secret\ndirectory @DATA@\n\
             access to attrs=userPassword by self write by anonymous auth by * none\n\
             access to * by self write by users read by * none\n"
        ),
    );
    let mut ldif = format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: cn=balancer,{SUFFIX}\nobjectClass: person\ncn: balancer\nsn: b\nuserPassword: balance\nauthzTo: dn.regex:.*\n\n"
    );
    for number in 0..PEOPLE {
        ldif += &format!(
            "dn: cn=user{number},{SUFFIX}\nobjectClass: person\ncn: user{number}\nsn: {number}\nuserPassword: pw{number}\n\n"
        );
    }
    site.load(&ldif);
    site
}

/// A balancer that runs.
struct Balance {
    process: Running,
    address: SocketAddr,
    ports: Vec<u16>,
    log: std::path::PathBuf,
    folder: tempfile::TempDir,
}

/// Status and body of what is answered over HTTP at a port.
fn page(port: u16, path: &str) -> (u16, String) {
    let (status, _, body) = http::get(("127.0.0.1", port), path);
    (status, body)
}

impl Balance {
    /// In front of these ports.
    fn start(ports: &[u16], more: &str) -> Self {
        let mut text = format!(
            "bindconf bindmethod=simple binddn=cn=balancer,{SUFFIX} credentials=balance timeout=20\n{more}\ntier roundrobin\n"
        );
        for port in ports {
            text += &format!("backend-server uri=ldap://127.0.0.1:{port} numconns=2 bindconns=2 retry=200\n");
        }
        Self::of(&text, "ldap://127.0.0.1:0/")
    }

    /// With this configuration and these URLs.
    fn of(text: &str, urls: &str) -> Self {
        Self::by(Command::new(Kind::Larix.program().unwrap()), text, urls)
    }

    /// The same by a command that begins the program.
    fn by(mut command: Command, text: &str, urls: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("lloadd.conf");
        std::fs::write(&conf, text).unwrap();
        let (port_file, log) = (folder.path().join("port"), folder.path().join("log"));
        let process = command
            .args(["balance", "--http", "http://127.0.0.1:0/", "-h", urls, "-f"])
            .arg(&conf)
            .arg("--port-file")
            .arg(&port_file)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let process = Running(process);
        for _ in 0..STEPS {
            if let Ok(text) = std::fs::read_to_string(&port_file) {
                let ports: Vec<u16> = text.lines().map(|line| line.parse().unwrap()).collect();
                let address = ([127, 0, 0, 1], ports[0]).into();
                return Self { process, address, ports, log, folder };
            }
            step();
        }
        panic!("it does not start: {}", std::fs::read_to_string(&log).unwrap_or_default());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The status and the text of a page.
    fn page(&self, path: &str) -> (u16, String) {
        page(*self.ports.last().unwrap(), path)
    }

    /// Has it read another configuration.
    fn reload(&self, text: &str) {
        std::fs::write(self.folder.path().join("lloadd.conf"), text).unwrap();
        assert!(signal(self.process.id(), Signal::HUP));
    }

    /// Waits for a text in the log.
    fn wait_for(&self, text: &str) {
        for _ in 0..STEPS {
            if self.log().contains(text) {
                return;
            }
            step();
        }
        panic!("no {text:?} in the log: {}", self.log());
    }

    /// Stops it as a service manager does.
    fn stop(mut self) {
        assert!(signal(self.process.id(), Signal::TERM));
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{}", self.log());
    }
}

/// A configuration, and the URL and the path of a Unix socket in a folder.
fn beside_a_socket(folder: &std::path::Path) -> (String, String, std::path::PathBuf) {
    let text = format!(
        "disable proxyauthz\ntier roundrobin\nbackend-server uri=ldap://127.0.0.1:{} numconns=1 bindconns=1 retry=200\n",
        free_port()
    );
    let path = folder.join("socket");
    (text, format!("ldapi://{}", path.display().to_string().replace('/', "%2F")), path)
}

#[test]
fn a_start_that_fails_leaves_no_socket() {
    let folder = tempfile::tempdir().unwrap();
    let (text, url, socket) = beside_a_socket(folder.path());
    let conf = folder.path().join("lloadd.conf");
    std::fs::write(&conf, text).unwrap();
    let mut command = Command::new(Kind::Larix.program().unwrap());
    command
        .args(["balance", "-h", &url, "-f"])
        .arg(&conf)
        .arg("--port-file")
        .arg(folder.path().join("none/port"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("cannot write the port file"), "{text}");
    assert!(!socket.exists());
}

/// One that was put in the place of its own.
#[test]
fn the_socket_of_another_balancer_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (text, url, socket) = beside_a_socket(folder.path());
    let urls = format!("ldap://127.0.0.1:0/ {url}");
    let one = Balance::of(&text, &urls);
    std::fs::rename(&socket, folder.path().join("moved")).unwrap();
    let two = Balance::of(&text, &urls);
    one.stop();
    assert!(socket.exists());
    two.stop();
    assert!(!socket.exists());
}

/// As lloadd, which ends by each of them.
#[test]
fn three_signals_stop_it() {
    for how in [Signal::TERM, Signal::INT, Signal::USR2] {
        let mut balance = Balance::start(&[free_port()], "");
        assert!(signal(balance.process.id(), how));
        assert!(balance.process.wait().unwrap().success(), "{how:?}: {}", balance.log());
    }
}

#[test]
fn called_as_lloadd_it_ends_at_a_hangup() {
    use std::os::unix::process::CommandExt as _;
    let site = site();
    let server = site.start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("lloadd.conf");
    let port = free_port();
    // Without an identity of its own everybody is anonymous.
    let text = format!(
        "disable proxyauthz\ntier roundrobin\nbackend-server uri=ldap://{} numconns=1 bindconns=1\n",
        server.address
    );
    std::fs::write(&conf, text).unwrap();
    let refused = Command::new(Kind::Larix.program().unwrap())
        .arg0("lloadd")
        .args(["-o", "snmp=on", "-t", "-f"])
        .arg(&conf)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && stderr.contains("no option `snmp`"), "{stderr}");
    // Only root can change to another root directory.
    let is_root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0;
    let root = folder.path().canonicalize().unwrap();
    let sandbox = is_root.then_some(["-r".as_ref(), root.as_os_str()]);
    let process = Command::new(Kind::Larix.program().unwrap())
        .arg0("lloadd")
        .args(["-s0", "-d", "256", "-o", "slp=off", "-h", &format!("ldap://127.0.0.1:{port}/"), "-f"])
        .arg(&conf)
        .args(sandbox.into_iter().flatten())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut process = Running(process);
    let address: SocketAddr = ([127, 0, 0, 1], port).into();
    let mut client = (0..STEPS).find_map(|_| {
        step();
        Client::try_connect(address).ok()
    });
    let client = client.as_mut().unwrap();
    let answer = larix_tests::replicas::ask(client, "search \"\" base (objectClass=*) 1.1");
    assert!(answer.ends_with("=> 0\n"), "{answer}");
    if is_root {
        assert_eq!(std::fs::read_link(format!("/proc/{}/root", process.id())).unwrap(), root);
    }
    assert!(signal(process.id(), Signal::HUP));
    assert!(process.wait().unwrap().success());
    assert!(server.stop());
}

/// A client that counts its messages, and checks that every answer has its id.
struct Person {
    client: Client,
    next: u32,
}

impl Person {
    fn connect(balance: &Balance) -> Self {
        Self { client: Client::connect(balance.address), next: 0 }
    }

    /// The result's code and text, the names of entries, and the value of an extended answer.
    fn ask(&mut self, encode: impl FnOnce(&mut Vec<u8>, MessageId)) -> (u32, String, Vec<String>, Vec<u8>) {
        self.next += 1;
        let id = MessageId(self.next);
        let mut request = Vec::new();
        encode(&mut request, id);
        let mut names = Vec::new();
        let answers = self.client.exchange(&request);
        for pdu in &answers {
            let message = Response::decode_message(pdu).unwrap();
            assert_eq!(message.id, id, "an answer to another request");
            if let Response::Entry(entry) = message.response {
                names.push(entry.dn.to_owned());
            }
            if let Some((_, result)) = message.response.result() {
                let value = match message.response {
                    Response::Extended { value, .. } => value.unwrap_or_default().to_vec(),
                    _ => Vec::new(),
                };
                return (result.code.0, result.diagnostic.to_owned(), names, value);
            }
        }
        panic!("the balancer closed the connection after {} answers", answers.len());
    }

    fn bind(&mut self, number: usize, password: &str) -> u32 {
        let dn = format!("cn=user{number},{SUFFIX}");
        self.ask(|out, id| client::simple_bind(out, id, &dn, password.as_bytes(), &[])).0
    }

    fn who(&mut self) -> (u32, String) {
        let (code, _, _, value) = self.ask(|out, id| client::extended(out, id, oid::WHO_AM_I, None, &[]));
        (code, String::from_utf8(value).unwrap())
    }

    fn search(&mut self, filter: &str) -> (u32, Vec<String>) {
        let filter = FilterBuf::parse(filter).unwrap();
        let request = client::Search {
            attributes: &["cn", "sn"],
            ..client::Search::new(SUFFIX, Scope::Subtree, filter.as_filter())
        };
        let (code, _, names, _) = self.ask(|out, id| client::search(out, id, &request, &[]));
        (code, names)
    }

    fn describe(&mut self, number: usize, text: &str) -> u32 {
        let dn = format!("cn=user{number},{SUFFIX}");
        let change = client::ClientChange {
            operation: ModifyOperation::Replace,
            attribute: client::ClientAttribute { description: "description", values: &[text] },
        };
        self.ask(|out, id| client::modify(out, id, &dn, &[change], &[])).0
    }
}

#[test]
fn everybody_is_himself_through_it() {
    let sites = [site(), site()];
    let servers = [sites[0].start().unwrap(), sites[1].start().unwrap()];
    let ports = servers.each_ref().map(|server| server.address.port());
    for feature in ["", "feature vc"] {
        let balance = Balance::start(&ports, feature);
        is_himself(&balance, feature);
        balance.stop();
    }
    for server in servers {
        assert!(server.stop());
    }
}

fn is_himself(balance: &Balance, feature: &str) {
    let mut person = Person::connect(balance);
    // More rounds than there are connections, so that each of them has had everybody.
    for round in 0..6 {
        for number in [1, 2] {
            assert_eq!(person.bind(number, "wrong"), 49, "{feature}: {}", balance.log());
            assert_eq!(person.who(), (0, String::new()), "{feature}, round {round}");
            assert_eq!(person.search("(cn=user3)"), (32, vec![]));
            assert_eq!(person.bind(number, &format!("pw{number}")), 0);
            assert_eq!(person.who(), (0, format!("dn:cn=user{number},{SUFFIX}")), "{feature}, round {round}");
            let found = vec![format!("cn=user3,{SUFFIX}")];
            assert_eq!(person.search("(cn=user3)"), (0, found));
            assert_eq!(person.describe(number, "own"), 0);
            assert_eq!(person.describe(3, "another's"), 50);
        }
    }
    let mut anonymous = Person::connect(balance);
    assert_eq!(anonymous.who(), (0, String::new()));
    // The balancer's own identity goes on behalf of nobody.
    let own = format!("cn=balancer,{SUFFIX}");
    assert_eq!(anonymous.ask(|out, id| client::simple_bind(out, id, &own, b"balance", &[])).0, 0);
    assert_eq!(anonymous.who(), (0, format!("dn:{own}")));
}

#[test]
fn many_clients_and_a_server_that_is_killed() {
    const CLIENTS: usize = 8;
    let sites = [site(), site()];
    // It comes back there: nobody else may get the port meanwhile.
    let port = free_port();
    let first = Server::start_at(Kind::Larix, &sites[0].configuration(), port, &[]).unwrap();
    let second = sites[1].start().unwrap();
    let balance = Balance::start(&[port, second.address.port()], "");
    let (done, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let ends = AtomicBool::new(false);
    let work = |number: usize| {
        let mut person = Person::connect(&balance);
        let own = format!("dn:cn=user{number},{SUFFIX}");
        let mut is_bound = false;
        while !ends.load(Ordering::Relaxed) {
            if !is_bound {
                let code = person.bind(number, &format!("pw{number}"));
                assert!(matches!(code, 0 | 51 | 52), "bind: {code}");
                is_bound = code == 0;
                failed.fetch_add(usize::from(!is_bound), Ordering::Relaxed);
                continue;
            }
            let (code, who) = person.who();
            assert!(code == 52 || (code == 0 && who == own), "{code} {who}, not {own}");
            let (all, names) = person.search("(sn=*)");
            assert!(all == 52 || (all == 0 && names.len() == PEOPLE + 1), "{all}: {} entries", names.len());
            let (one, names) = person.search(&format!("(sn={number})"));
            assert!(
                one == 52 || (one == 0 && names == [format!("cn=user{number},{SUFFIX}")]),
                "{one}: {names:?}"
            );
            let lost = [code, all, one].into_iter().filter(|code| *code == 52).count();
            failed.fetch_add(lost, Ordering::Relaxed);
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let reached = |count: usize| {
        for _ in 0..STEPS {
            if done.load(Ordering::Relaxed) >= count {
                return;
            }
            step();
        }
        panic!("{count} rounds are not reached: {}", balance.log());
    };
    std::thread::scope(|scope| {
        let end = SetAtEnd(&ends);
        let workers: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || work(number))).collect();
        reached(50);
        assert_eq!(failed.load(Ordering::Relaxed), 0, "{}", balance.log());
        first.kill();
        reached(done.load(Ordering::Relaxed) + 100);
        // What was under way on four connections at most is lost, once for each client.
        let lost = failed.load(Ordering::Relaxed);
        assert!(lost <= 3 * CLIENTS, "{lost} operations were lost: {}", balance.log());
        // It comes back, and the other goes.
        let back = Server::start_at(Kind::Larix, &sites[0].configuration(), port, &[]).unwrap();
        for round in 0.. {
            if balance.log().contains("connected again") {
                break;
            }
            assert!(round < STEPS, "it does not connect again: {}", balance.log());
            step();
        }
        second.kill();
        reached(done.load(Ordering::Relaxed) + 100);
        drop(end);
        for worker in workers {
            worker.join().unwrap();
        }
        drop(back);
    });
    let mut person = Person::connect(&balance);
    // Nobody is there any more.
    assert_eq!(person.bind(1, "pw1"), 52, "{}", balance.log());
    balance.stop();
}

#[test]
fn wrong_files_are_refused_with_the_mend() {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("lloadd.conf");
    let run = |text: &str, check: bool| {
        std::fs::write(&conf, text).unwrap();
        let mut command = Command::new(Kind::Larix.program().unwrap());
        command.args(["balance", "-h", "ldap://127.0.0.1:0/", "-f"]).arg(&conf);
        if check {
            command.arg("-t");
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).replace(conf.to_str().unwrap(), "FILE");
        (output.status.code(), text)
    };
    let (code, text) = run("tier roundrobin\nbackend-server uri=ldap://h numcons=1\n", false);
    assert_eq!(code, Some(1));
    assert!(text.contains("FILE:2:29: backend-server: unknown key `numcons`"), "{text}");
    assert!(text.contains("help: one of uri"), "{text}");
    let whole = "bindconf bindmethod=simple\ntier roundrobin\nbackend-server uri=ldap://h\n";
    assert_eq!(run(whole, true).0, Some(0));
    let (code, text) = run(&format!("TLSCertificateFile /no/such\n{whole}"), true);
    assert!(code == Some(1) && text.contains("/no/such"), "{text}");
}

/// Of few descriptors clients leave some for connections to servers: those that are lost are made again.
#[test]
fn clients_leave_room_for_servers() {
    let site = site();
    let server = site.start().unwrap();
    let relay = Relay::start();
    relay.lead_to(server.address);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]).arg(Kind::Larix.program().unwrap());
    let text = format!(
        "bindconf bindmethod=simple binddn=cn=balancer,{SUFFIX} credentials=balance timeout=20\ntier roundrobin\n\
         backend-server uri=ldap://{} numconns=2 bindconns=2 retry=200\n",
        relay.address
    );
    let balance = Balance::by(command, &text, "ldap://127.0.0.1:0/");
    let mut person = Person::connect(&balance);
    assert_eq!(person.bind(1, "pw1"), 0, "{}", balance.log());
    let mut crowd: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(balance.address).unwrap()).collect();
    let last = crowd.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let mut bytes = Vec::new();
    last.read_to_end(&mut bytes).unwrap();
    let notice = String::from_utf8_lossy(&bytes);
    assert!(notice.contains("connections are in use"), "{notice}: {}", balance.log());
    relay.set(Passage::Cut);
    relay.set(Passage::Open);
    until("the server is reached again", || person.search("(sn=2)").0 == 0);
    balance.stop();
    drop(crowd);
}

/// Adds entries to a server that takes passwords under TLS alone.
fn add(secure: &Secure, ldif: &str) {
    let (path, port) = (secure.folder.path().display(), secure.server.address.port());
    let mut command = Command::new(Kind::Larix.program().unwrap());
    command.args(["modify", "-a", "-x", "-D", &format!("cn=admin,{SUFFIX}"), "-w", "secret", "-ZZ"]);
    command.args(["-H", &format!("ldap://127.0.0.1:{port}"), "-o", &format!("tls_cacert={path}/ca.pem")]);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(ldif.as_bytes()).unwrap();
    assert!(process.wait().unwrap().success());
}

#[test]
fn tls_on_both_sides() {
    let secure =
        Secure::start(Kind::Larix, "TLSVerifyClient never\nsecurity simple_bind=128\nauthz-policy to");
    let path = secure.folder.path().display().to_string();
    let people = format!(
        "dn: {SUFFIX}\nobjectClass: organization\nobjectClass: dcObject\no: x\ndc: example\n\n\
         dn: cn=balancer,{SUFFIX}\nobjectClass: person\ncn: balancer\nsn: b\nuserPassword: balance\nauthzTo: dn.regex:.*\n\n"
    );
    add(&secure, &people);
    secure.authority.client("ann").write(secure.folder.path(), "ann");
    let text = |bind: &str| {
        format!(
            "bindconf bindmethod=simple binddn=cn=balancer,{SUFFIX} credentials=balance {bind}\n\
             TLSCertificateFile {path}/server.pem\nTLSCertificateKeyFile {path}/server.key\n\
             TLSCACertificateFile {path}/ca.pem\nTLSVerifyClient try\ntier roundrobin\n\
             backend-server uri=ldap://127.0.0.1:{} starttls=critical numconns=1 bindconns=1 retry=200\n",
            secure.server.address.port()
        )
    };
    let urls = "ldap://127.0.0.1:0/ ldaps://127.0.0.1:0/";
    let balance = Balance::of(&text(""), urls);
    let authority = format!("tls_cacert={path}/ca.pem");
    let whoami = |balance: &Balance, arguments: &[&str]| {
        let clear = format!("ldap://{}", balance.address);
        let protected = format!("ldaps://127.0.0.1:{}", balance.ports[1]);
        let mut command = Command::new(Kind::Larix.program().unwrap());
        command.args(["whoami", "-o", &authority]);
        for argument in arguments {
            command.arg(match *argument {
                "CLEAR" => &clear,
                "PROTECTED" => &protected,
                other => other,
            });
        }
        let output = command.output().unwrap();
        let shown = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&shown).trim().to_owned()
    };
    let admin = format!("cn=admin,{SUFFIX}");
    let simple = ["-x", "-D", admin.as_str(), "-w", "secret"];
    let with =
        |more: &[&'static str]| -> Vec<&str> { simple.iter().copied().chain(more.iter().copied()).collect() };
    for more in [&["-H", "PROTECTED"][..], &["-ZZ", "-H", "CLEAR"], &["-H", "CLEAR"]] {
        let shown = whoami(&balance, &with(more));
        assert_eq!(shown, format!("dn:{admin}"), "{more:?}: {}", balance.log());
    }
    let (certificate, key) = (format!("tls_cert={path}/ann.pem"), format!("tls_key={path}/ann.key"));
    let external = ["-Y", "EXTERNAL", "-o", &certificate, "-o", &key, "-H", "PROTECTED"];
    let shown = whoami(&balance, &external);
    assert_eq!(shown, "dn:cn=ann,o=larix tests", "{}", balance.log());
    balance.stop();
    // A server whose certificate is not believed gets no password.
    let other = secure.folder.path().join("other.pem");
    std::fs::write(&other, Authority::new("Other").certificate()).unwrap();
    let distrustful = Balance::of(&text(&format!("tls_cacert={}", other.display())), urls);
    let shown = whoami(&distrustful, &with(&["-H", "CLEAR"]));
    assert!(shown.contains("(52)"), "{shown}: {}", distrustful.log());
    distrustful.wait_for("no TLS");
    distrustful.stop();
}

#[test]
fn the_proxy_protocol_on_both_sides() {
    let site = site();
    let server =
        Server::start_on(Kind::Larix, &site.configuration(), &["pldap://127.0.0.1:0/"], &[], &[]).unwrap();
    let text = |more: &str| {
        format!(
            "bindconf bindmethod=simple binddn=cn=balancer,{SUFFIX} credentials=balance\ntier roundrobin\n\
             backend-server uri=ldap://{} numconns=1 bindconns=1 retry=200 {more}\n",
            server.address
        )
    };
    let balance = Balance::of(&text("proxyprotocol=local"), "pldap://127.0.0.1:0/");
    let mut person = Person::connect(&balance);
    person.client.send(b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 389\r\n");
    assert_eq!(person.bind(1, "pw1"), 0, "{}", balance.log());
    assert_eq!(person.who(), (0, format!("dn:cn=user1,{SUFFIX}")));
    // What is no LDAP closes the connection; the log names the client of the header, not the proxy.
    person.client.send(b"\x30\x84\x7f\xff\xff\xff");
    balance.wait_for("client IP=192.0.2.1:4711: disconnected: ");
    balance.stop();
    // Without the setting a server that wants a header takes no connection.
    let without = Balance::of(&text(""), "ldap://127.0.0.1:0/");
    assert_eq!(Person::connect(&without).bind(1, "pw1"), 52, "{}", without.log());
    without.stop();
    assert!(server.stop());
}

#[test]
fn metrics_health_and_other_settings_while_clients_are_connected() {
    let sites = [site(), site()];
    let [first, second] = [sites[0].start().unwrap(), sites[1].start().unwrap()];
    let (before, after) = (Authority::new("Before"), Authority::new("After"));
    let folder = tempfile::tempdir().unwrap();
    before.server().write(folder.path(), "server");
    std::fs::write(folder.path().join("after.pem"), after.certificate()).unwrap();
    let path = folder.path().display();
    let text = |port: u16| {
        format!(
            "bindconf bindmethod=simple binddn=cn=balancer,{SUFFIX} credentials=balance timeout=20\n\
             TLSCertificateFile {path}/server.pem\nTLSCertificateKeyFile {path}/server.key\ntier roundrobin\n\
             backend-server uri=ldap://127.0.0.1:{port} numconns=2 bindconns=1 retry=200\n"
        )
    };
    let (old, new) = (first.address.port(), second.address.port());
    let balance = Balance::of(&text(old), "ldap://127.0.0.1:0/ ldaps://127.0.0.1:0/");
    let mut person = Person::connect(&balance);
    assert_eq!(person.bind(1, "pw1"), 0, "{}", balance.log());
    assert_eq!(person.search("(sn=2)"), (0, vec![format!("cn=user2,{SUFFIX}")]));
    assert_eq!(person.describe(2, "another's"), 50);
    let has = |line: &str| {
        // Not all connections need to be there when the first bind is answered.
        until(line, || {
            let (status, text) = balance.page("/metrics");
            assert_eq!(status, 200);
            text.lines().any(|own| own == line)
        });
    };
    let server = format!("tier=\"1\",server=\"ldap://127.0.0.1:{old}/\"");
    has("larix_balance_clients 1.0");
    has(&format!("larix_balance_server_connections{{{server},pool=\"shared\"}} 2.0"));
    has(&format!("larix_balance_operations_started_total{{{server},operation=\"search\"}} 1"));
    has(&format!("larix_balance_operation_seconds_count{{{server},operation=\"bind\"}} 1"));
    has(&format!("larix_balance_results_total{{{server},code=\"50\"}} 1"));
    has(&format!("larix_balance_server_errors_total{{{server},what=\"lost\"}} 0"));
    assert_eq!(balance.page("/health/live"), (200, "live\n".to_owned()));
    assert_eq!(balance.page("/health/ready"), (200, "ready\n".to_owned()));
    assert_eq!(balance.page("/other").0, 404);
    // A configuration that cannot be used changes nothing.
    balance.reload(&format!("{}numcons=2\n", text(new)));
    balance.wait_for("everything stays as it was");
    assert_eq!(person.who(), (0, format!("dn:cn=user1,{SUFFIX}")));
    has("larix_balance_reloads_total{result=\"refused\"} 1");
    // Another server and another certificate: the client stays, and who it is.
    let is_new = || {
        let mut command = Command::new(Kind::Larix.program().unwrap());
        command.args(["whoami", "-x", "-o", &format!("tls_cacert={path}/after.pem"), "-H"]);
        command.arg(format!("ldaps://127.0.0.1:{}", balance.ports[1])).output().unwrap().status.success()
    };
    assert!(!is_new());
    after.server().write(folder.path(), "server");
    balance.reload(&text(new));
    balance.wait_for("the configuration was read again");
    assert!(is_new(), "{}", balance.log());
    assert!(first.stop());
    assert_eq!(person.who(), (0, format!("dn:cn=user1,{SUFFIX}")));
    assert_eq!(person.search("(sn=2)"), (0, vec![format!("cn=user2,{SUFFIX}")]));
    assert_eq!(person.describe(1, "own"), 0);
    has("larix_balance_reloads_total{result=\"done\"} 1");
    let server = format!("tier=\"1\",server=\"ldap://127.0.0.1:{new}/\"");
    has(&format!("larix_balance_operations_started_total{{{server},operation=\"modify\"}} 1"));
    // Without a server there is nobody to send clients to.
    assert!(second.stop());
    balance.wait_for("cannot connect");
    let (status, why) = balance.page("/health/ready");
    assert_eq!((status, why.lines().count()), (503, 2), "{why}");
    assert_eq!(person.who().0, 52);
    balance.stop();
}

/// Answers the first request with entries until nobody has read any for a second, and then breaks off: a socket that is closed with a
/// request that was not read resets the connection.
fn floods_and_breaks_off(mut stream: TcpStream) {
    let mut seen = [0; 4096];
    let id = loop {
        let count = stream.peek(&mut seen).unwrap_or(0);
        let bytes = seen.get(..count).unwrap_or_default();
        match frame(bytes, seen.len()) {
            _ if count == 0 => return,
            Ok(Frame::Complete { len }) => break Message::decode(&bytes[..len]).unwrap().id,
            _ => step(),
        }
    };
    let mut entry = Vec::new();
    let mut encoder = EntryEncoder::begin(&mut entry, id, SUFFIX);
    encoder.begin_attribute("description");
    encoder.value(&[b'x'; 50_000]);
    encoder.end_attribute();
    encoder.finish(&[]);
    stream.set_nonblocking(true).unwrap();
    let (mut written, mut idle) = (0, 0);
    while idle < 100 {
        match stream.write(&entry[written % entry.len()..]) {
            Ok(count) => (written, idle) = (written + count, 0),
            Err(_) => {
                idle += 1;
                step();
            }
        }
    }
}

/// While the one client of a connection does not take its answers, nothing is read there. That it was broken off is noticed all the same.
#[test]
fn a_server_that_breaks_off_while_its_client_does_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || floods_and_breaks_off(stream.unwrap()));
        }
    });
    let text = format!(
        "disable proxyauthz\niotimeout 600000\ntier roundrobin\n\
         backend-server uri=ldap://127.0.0.1:{port} numconns=1 bindconns=1 retry=200\n"
    );
    let balance = Balance::of(&text, "ldap://127.0.0.1:0/");
    let mut client = TcpStream::connect(balance.address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let filter = FilterBuf::parse("(objectClass=*)").unwrap();
    let mut bytes = Vec::new();
    let search = client::Search::new(SUFFIX, Scope::Subtree, filter.as_filter());
    client::search(&mut bytes, MessageId(7), &search, &[]);
    client.write_all(&bytes).unwrap();
    balance.wait_for("shared connection: ");
    // Behind the entries that have come, the client learns of it.
    bytes.clear();
    let mut chunk = vec![0; 1 << 16];
    let code = loop {
        if let Ok(Frame::Complete { len }) = frame(&bytes, 1 << 20) {
            let pdu: Vec<u8> = bytes.drain(..len).collect();
            let message = Response::decode_message(&pdu).unwrap();
            assert_eq!(message.id, MessageId(7));
            if let Some((_, result)) = message.response.result() {
                break result.code.0;
            }
            continue;
        }
        let count = client.read(&mut chunk).unwrap();
        assert!(count > 0, "closed: {}", balance.log());
        bytes.extend_from_slice(&chunk[..count]);
    };
    assert_eq!(code, 52);
    balance.stop();
}
