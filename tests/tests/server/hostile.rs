//! Bad input against the real binary: each is answered clearly, and the server serves on.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::time::Duration;

use larix_proto::client::ClientAttribute;
use larix_proto::{ControlBuf, FilterBuf, MessageId, Response, Scope, client, oid};
use larix_testkit::process::{Signal, signal};
use larix_testkit::{Kind, Server, Site};
use larix_tests::raw::{PATIENCE, read_to_end};

fn serving() -> (Site, Server) {
    let site = Site::example(Kind::Larix);
    let server = site.start().unwrap();
    (site, server)
}

fn connect(server: &Server) -> TcpStream {
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends bytes, closes the sending side, and reads to the end. The server may close first.
fn exchange(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut socket = connect(server);
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    read_to_end(&socket)
}

/// Each answer as `id:code`, a notice of disconnection as `notice:code`.
fn codes(mut bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let Ok(larix_proto::Frame::Complete { len }) = larix_proto::frame(bytes, 1 << 20) else {
            panic!("not a message: {bytes:02x?}")
        };
        let message = Response::decode_message(&bytes[..len]).unwrap();
        let result = match message.response {
            Response::Bind { result, .. } | Response::Extended { result, .. } => Some(result),
            Response::SearchDone(result)
            | Response::Modify(result)
            | Response::Add(result)
            | Response::Delete(result)
            | Response::ModifyDn(result)
            | Response::Compare(result) => Some(result),
            _ => None,
        };
        if let Some(result) = result {
            let id = if message.id == MessageId(0) { "notice".to_owned() } else { message.id.to_string() };
            found.push(format!("{id}:{}", result.code.0));
        }
        bytes = &bytes[len..];
    }
    found
}

fn search(id: u32, base: &str, filter: &str, controls: &[ControlBuf]) -> Vec<u8> {
    let filter = FilterBuf::parse(filter).unwrap();
    search_with(id, base, filter.as_filter().as_ber(), controls)
}

fn search_with(id: u32, base: &str, filter: &[u8], controls: &[ControlBuf]) -> Vec<u8> {
    let mut out = Vec::new();
    let placeholder = FilterBuf::parse("(objectClass=*)").unwrap();
    let request = client::Search::new(base, Scope::Base, placeholder.as_filter());
    client::search(&mut out, MessageId(id), &request, controls);
    // The filter's bytes are put in place of the placeholder's, so that filters no parser makes can be sent.
    replace(&out, placeholder.as_filter().as_ber(), filter)
}

/// Replaces the one occurrence of `old`, with the lengths around it written anew.
fn replace(message: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let at = message.windows(old.len()).position(|window| window == old).unwrap();
    // LDAPMessage { id, SearchRequest { ... filter ... } }: the two headers are the only lengths that change.
    let (header, body_at) = header_length(message);
    let operation_at = body_at + 2 + usize::from(message[body_at + 1]);
    let (operation_header, fields_at) = header_length(&message[operation_at..]);
    let fields_at = operation_at + fields_at;
    let operation_end = fields_at + operation_header;
    let fields = [&message[fields_at..at], new, &message[at + old.len()..operation_end]].concat();
    let operation = tlv(message[operation_at], &fields);
    let rest = &message[operation_end..body_at + header];
    tlv(0x30, &[&message[body_at..operation_at], &operation, rest].concat())
}

/// (content length, header length) of the element at the front.
fn header_length(bytes: &[u8]) -> (usize, usize) {
    match bytes[1] {
        short @ 0..0x80 => (usize::from(short), 2),
        long => {
            let octets = usize::from(long & 0x7f);
            (bytes[2..2 + octets].iter().fold(0, |n, byte| n << 8 | usize::from(*byte)), 2 + octets)
        }
    }
}

fn tlv(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = u32::try_from(contents.len()).unwrap().to_be_bytes();
    [&[tag, 0x84], &length[..], contents].concat()
}

/// The server answers a whole, ordinary exchange.
fn assert_unharmed(server: &Server, after: &str) {
    assert_eq!(codes(&exchange(server, &search(1, "", "(objectClass=*)", &[]))), ["1:0"], "after {after}");
}

#[test]
fn bad_bytes() {
    let (_site, server) = serving();
    let check = |name: &str, bytes: &[u8], expected: &[&str]| {
        assert_eq!(codes(&exchange(&server, bytes)), expected, "{name}");
        assert_unharmed(&server, name);
    };
    let unknown = ControlBuf { oid: "1.2.3.4.5".into(), critical: true, value: None };
    let mut deep = tlv(0x87, b"cn");
    for _ in 0..10_000 {
        deep = tlv(0xa2, &deep);
    }
    let not_utf8 = replace(
        &search(1, "dc=example", "(objectClass=*)", &[]),
        FilterBuf::parse("(objectClass=*)").unwrap().as_filter().as_ber(),
        &tlv(0x87, b"c\xff"),
    );
    let bytes = |name: &[u8]| {
        // A bind whose name is given as bytes: LDAPMessage { 1, BindRequest { 3, name, simple "x" } }.
        let bind = [&tlv(2, &[3])[..], &tlv(4, name), &tlv(0x80, b"x")].concat();
        tlv(0x30, &[&[2, 1, 1][..], &tlv(0x60, &bind)].concat())
    };
    check("a name that is not UTF-8", &bytes(b"cn=\xff\xfe"), &["1:2"]);
    check("a name that holds a NUL", &bytes(b"cn=\0"), &["1:34"]);
    check("a name of a megabyte's depth", &bytes("a=b,".repeat(50_000).as_bytes()), &["1:34"]);
    check("garbage", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", &["notice:2"]);
    check("a TLS hello", &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3], &["notice:2"]);
    check("zeros", &[0; 64], &["notice:2"]);
    check("two gigabytes announced", &[0x30, 0x84, 0x7f, 0xff, 0xff, 0xff, 2, 1, 1], &["notice:2"]);
    check(
        "more bytes than there are numbers",
        &[0x30, 0x88, 255, 255, 255, 255, 255, 255, 255, 255],
        &["notice:2"],
    );
    check("indefinite length", &[0x30, 0x80, 2, 1, 1, 0x42, 0, 0, 0], &["notice:2"]);
    check("an empty message", &[0x30, 0], &["notice:2"]);
    check("half a message", &search(1, "", "(cn=x)", &[])[..20], &[]);
    check("message id 0", &search(0, "", "(cn=x)", &[]), &["notice:2"]);
    check("a filter 10,000 deep", &search_with(1, "", &deep, &[]), &["1:2"]);
    check("a description that is not UTF-8", &not_utf8, &["1:2"]);
    check("an unknown critical control", &search(1, "", "(cn=x)", &[unknown]), &["1:12"]);
    check("wrong DN syntax", &search(1, "not a dn", "(cn=x)", &[]), &["1:34"]);
    check("an undefined attribute type", &search(1, "", "(nosuchtype=x)", &[]), &["1:0"]);
    check("an unknown operation", &[0x30, 5, 2, 1, 1, 0x7d, 0], &["notice:2"]);
    check("a response as a request", &[0x30, 12, 2, 1, 1, 0x61, 7, 10, 1, 0, 4, 0, 4, 0], &["notice:2"]);
}

#[test]
fn more_than_an_anonymous_client_may_send() {
    let (_site, server) = serving();
    let mut out = Vec::new();
    let value = vec![b'x'; 300_000];
    let attribute = ClientAttribute { description: "description", values: &[&value] };
    client::add(&mut out, MessageId(1), "cn=x,dc=example,dc=com", &[attribute], &[]);
    assert_eq!(codes(&exchange(&server, &out)), ["notice:2"]);
    assert_unharmed(&server, "a large message");
}

#[test]
fn a_flood_of_requests_is_answered_whole() {
    let (_site, server) = serving();
    let many: Vec<u8> = (1..=2_000).flat_map(|id| search(id, "", "(objectClass=*)", &[])).collect();
    let answered = codes(&exchange(&server, &many));
    assert_eq!(answered.len(), 2_000);
    assert!(answered.iter().enumerate().all(|(n, code)| *code == format!("{}:0", n + 1)));
}

#[test]
fn clients_that_never_read_or_never_finish_do_not_hold_others_up() {
    let (_site, server) = serving();
    let subschema: Vec<u8> =
        (1..=500).flat_map(|id| search(id, "cn=Subschema", "(objectClass=*)", &[])).collect();
    let mut deaf = connect(&server);
    // The server stops reading when its answers are not taken: writing everything may block, so only some is sent.
    deaf.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let _ = deaf.write_all(&subschema);
    let mut slow: Vec<TcpStream> = (0..200).map(|_| connect(&server)).collect();
    for socket in &mut slow {
        socket.write_all(&[0x30, 0x84, 0, 0]).unwrap();
    }
    assert_unharmed(&server, "deaf and slow clients");
    drop(deaf);
    drop(slow);
    assert_unharmed(&server, "their end");
}

#[test]
fn abandon_and_cancel_of_nothing() {
    let (_site, server) = serving();
    let mut out = Vec::new();
    client::abandon(&mut out, MessageId(1), MessageId(77), &[]);
    client::extended(&mut out, MessageId(2), oid::CANCEL, Some(&[0x30, 3, 2, 1, 77]), &[]);
    client::extended(&mut out, MessageId(3), oid::CANCEL, None, &[]);
    client::extended(&mut out, MessageId(4), "1.2.3.4", None, &[]);
    client::extended(&mut out, MessageId(5), oid::START_TLS, None, &[]);
    assert_eq!(codes(&exchange(&server, &out)), ["2:119", "3:2", "4:2", "5:2"]);
}

fn slapd(arguments: &[&str]) -> Output {
    let program = Kind::Larix.program().expect("larix is built");
    Command::new(program).arg("serve").args(arguments).output().unwrap()
}

#[test]
fn servers_that_cannot_start_say_why() {
    let (site, server) = serving();
    let configuration = site.configuration();
    let configuration = configuration.to_str().unwrap();
    let taken = format!("ldap://{}", server.address);
    let free = "ldap://127.0.0.1:0";
    let folder = site.path();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let missing_include = write("include.conf", "include /no/such/file.schema\n");
    let missing_directory =
        write("directory.conf", "database mdb\nsuffix cn=x\ndirectory /no/such/directory\n");
    write("data-file", "");
    let no_directory = write(
        "file.conf",
        &format!("database mdb\nsuffix cn=x\ndirectory {}\n", folder.join("data-file").display()),
    );
    std::fs::create_dir_all(folder.join("garbage")).unwrap();
    write("garbage/data.mdb", &"not a database ".repeat(1_000));
    let garbage = write(
        "garbage.conf",
        &format!("database mdb\nsuffix cn=x\ndirectory {}\n", folder.join("garbage").display()),
    );
    let binary = write("binary.conf", "include /bin/true\n");
    let circular = write("circular.conf", &format!("include {}\n", folder.join("circular.conf").display()));
    let unknown = write("unknown.conf", "database mdb\nsufix cn=x\n");
    let certificate =
        write("tls.conf", "TLSCertificateFile /no/such/cert.pem\nTLSCertificateKeyFile /no/such/key.pem\n");
    let others_id = write("ids.conf", "serverID 1 ldap://127.0.0.1:1/\ndatabase null\nsuffix cn=x\n");
    let bad_rule = write("rule.conf", "access to * by nobody read\n");
    for (name, arguments, expected) in [
        ("a port in use", ["-f", configuration, "-h", &taken], "in use"),
        ("a second server on the same database", ["-f", configuration, "-h", free], "in use by process"),
        ("a missing include", ["-f", &missing_include, "-h", free], "/no/such/file.schema"),
        ("a missing database directory", ["-f", &missing_directory, "-h", free], "/no/such/directory"),
        ("a database directory that is a file", ["-f", &no_directory, "-h", free], "data-file"),
        ("a database that is garbage", ["-f", &garbage, "-h", free], "garbage"),
        ("a configuration that is no text", ["-f", &binary, "-h", free], "/bin/true"),
        ("an include of itself", ["-f", &circular, "-h", free], "circular.conf"),
        ("an unknown directive", ["-f", &unknown, "-h", free], "did you mean `suffix`"),
        (
            "server IDs of others",
            ["-f", &others_id, "-h", free],
            "no serverID line is for this server: the lines have ldap://127.0.0.1:1/",
        ),
        ("an access rule of nobody", ["-f", &bad_rule, "-h", free], "rule.conf:1"),
        ("a missing configuration", ["-f", "/no/such/slapd.conf", "-h", free], "/no/such/slapd.conf"),
        ("a certificate that is not there", ["-f", &certificate, "-h", free], "/no/such/cert.pem"),
    ] {
        let output = slapd(&[&arguments[..], &["-d", "0"]].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{name} started");
        assert!(text.contains(expected), "{name}: {text}");
    }
    assert_unharmed(&server, "all of them");
}

#[test]
fn a_detached_server_tells_its_parent_when_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let (pid, ports) = (folder.path().join("pid"), folder.path().join("ports"));
    let configuration = folder.path().join("slapd.conf");
    let text =
        format!("pidfile {}\ndatabase mdb\nsuffix cn=x\ndirectory {}\n", pid.display(), data.display());
    std::fs::write(&configuration, text).unwrap();
    let output = slapd(&[
        "-f",
        configuration.to_str().unwrap(),
        "-h",
        "ldap://127.0.0.1:0",
        "--port-file",
        ports.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The parent has returned: pid file, port file and socket are all there, without waiting.
    let process: u32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let port: u16 = std::fs::read_to_string(&ports).unwrap().trim().parse().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(&search(1, "", "(objectClass=*)", &[])).unwrap();
    let mut first = [0; 1];
    socket.read_exact(&mut first).unwrap();
    assert_eq!(first, [0x30]);
    assert!(signal(process, Signal::TERM));
    // The server closes its connections before it removes the pid file and ends.
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).unwrap();
}
