//! The listener for operators, asked over HTTP as Prometheus and orchestrators ask it.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use larix_proto::{MessageId, client};
use larix_testkit::{Kind, Site};
use larix_tests::client::Client;
use larix_tests::http::{ask, figure, get};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// How often a figure is looked at until it must be right, with [`LOOK`] between.
const LOOKS: u32 = 18_000;
const LOOK: Duration = Duration::from_millis(10);

#[test]
fn metrics_follow_what_clients_do_and_health_is_told() {
    let site = Site::example(Kind::Larix);
    site.load(
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n",
    );
    let text = std::fs::read_to_string(site.configuration()).expect("the configuration");
    // Backups have metrics only where they are scheduled.
    let backups = site.path().join("backups");
    std::fs::create_dir(&backups).expect("a folder for backups");
    let first = format!(
        "http-listener http://127.0.0.1:0/\nbackup-schedule directory={} full=7d increment=1d keep=2\n",
        backups.display()
    );
    std::fs::write(site.configuration(), first + &text).expect("the same");
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, server.ports[1]));

    let (status, _, before) = get(http, "/metrics");
    assert_eq!(status, 200);
    let mut connection = Client::connect(server.address);
    for id in 1..=5 {
        let mut request = Vec::new();
        client::compare(&mut request, MessageId(id), "dc=example,dc=com", "dc", b"example", &[]);
        assert_eq!(connection.exchange(&request).len(), 1);
    }
    let (_, head, after) = get(http, "/metrics");
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(after.ends_with("# EOF\n"));
    let grown = |metric: &str| figure(&after, metric) - figure(&before, metric);
    assert_eq!(grown("larix_operations_started_total{operation=\"compare\"}"), 5.0);
    assert_eq!(grown("larix_operation_seconds_count{operation=\"compare\"}"), 5.0);
    assert!(grown("larix_operation_seconds_sum{operation=\"compare\"}") > 0.0);
    assert_eq!(figure(&after, "larix_database_entries{suffix=\"dc=example,dc=com\"}"), 1.0);
    // The connection by which the start was awaited is closed, and the server may have yet to see that.
    let connections = || figure(&get(http, "/metrics").2, "larix_connections");
    let is_one = (0..LOOKS).any(|_| {
        std::thread::park_timeout(LOOK);
        connections() == 1.0
    });
    assert!(is_one, "{}", connections());
    // What the worker keeps of its last read it lets go of, though nothing comes.
    let metric = "larix_database_oldest_read_seconds{suffix=\"dc=example,dc=com\"}";
    let oldest = || figure(&get(http, "/metrics").2, metric);
    let is_none = (0..LOOKS).any(|_| {
        std::thread::park_timeout(LOOK);
        oldest() == 0.0
    });
    assert!(is_none, "{}", oldest());
    dashboards_know(&after);

    let check = |request: &str, status: u16, part: &str| {
        let (found, head, body) = ask(http, request);
        assert_eq!(found, status, "{request:?}: {head}\n{body}");
        assert!(head.contains(part) || body.contains(part), "{request:?}: {head}\n{body}");
    };
    let line = |method: &str, path: &str| {
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    };
    check(&line("GET", "/health/live"), 200, "live");
    check(&line("GET", "/health/ready"), 200, "ready");
    check(&line("HEAD", "/health/ready"), 200, "content-length: 6");
    check(&line("POST", "/health/ready"), 405, "allow: get, head");
    check(&line("GET", "/nothing"), 404, "/metrics");
    check(&line("GET", &format!("/{}", "x".repeat(40_000))), 431, "");
    check("\u{0}\u{1}nonsense\r\n\r\n", 400, "");
    assert!(server.stop());
}

/// A limit on the size of files is a full disk.
#[test]
fn a_full_database_is_told_while_larger_changes_find_no_room() {
    let site = Site::example(Kind::Larix);
    site.load(
        "dn: dc=example,dc=com\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n",
    );
    let text = std::fs::read_to_string(site.configuration()).expect("the configuration");
    std::fs::write(site.configuration(), format!("http-listener http://127.0.0.1:0/\n{text}"))
        .expect("the same");
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, server.ports[1]));
    let limit = |bytes: Option<u64>| {
        let process = Pid::from_raw(i32::try_from(server.process_id()).unwrap());
        prlimit(process, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    let file = site.path().join("change.ldif");
    let describe = |length: usize| {
        let text = format!(
            "dn: dc=example,dc=com\nchangetype: modify\nreplace: description\ndescription: {}\n",
            "x".repeat(length)
        );
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(Kind::Larix.program().expect("larix is built"));
        command.args(["modify", "-x", "-D", "cn=admin,dc=example,dc=com", "-w", "secret", "-H"]);
        let output = command.arg(format!("ldap://{}", server.address)).arg("-f").arg(&file).output().unwrap();
        output.status.code()
    };
    let told = || {
        let (status, _, body) = get(http, "/health/ready");
        let metrics = get(http, "/metrics").2;
        (status, body, figure(&metrics, "larix_database_full{suffix=\"dc=example,dc=com\"}") > 0.0)
    };
    let ready = || (200, "ready\n".to_owned(), false);
    // A commit leaves room at the end of the file.
    assert_eq!((describe(3), told()), (Some(0), ready()));
    limit(Some(std::fs::metadata(site.path().join("data/data.mdb")).unwrap().len()));
    // More than the room at the end of the file.
    for (length, code) in [(2 << 20, 80), (1, 0), (2 << 20, 80), (2, 0)] {
        assert_eq!(describe(length), Some(code), "{length} bytes");
        let body = "ready\n\"dc=example,dc=com\": no room for changes, which are refused\n";
        assert_eq!(told(), (200, body.to_owned(), true), "after {length} bytes");
    }
    // Without another change.
    limit(None);
    assert_eq!(told(), ready());
    assert!(server.stop());
}

/// Dashboard and alert rules ask for metrics that there are.
fn dashboards_know(metrics: &str) {
    for file in ["grafana-dashboard.json", "prometheus-alerts.yml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/monitoring").join(file);
        let text = std::fs::read_to_string(path).expect("a file");
        assert!(text.contains("larix_"), "{file} asks for nothing");
        let starts = text.match_indices("larix_").map(|(at, _)| at);
        for rest in starts.filter_map(|at| text.get(at..)) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let name = rest.get(..end).unwrap_or(rest);
            let family =
                ["_bucket", "_count", "_sum", "_total"].iter().find_map(|end| name.strip_suffix(end));
            let family = family.unwrap_or(name);
            assert!(metrics.contains(&format!("# TYPE {family} ")), "{file}: {name}");
        }
    }
}

#[test]
fn an_address_in_use_is_named() {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let site = Site::example(Kind::Larix);
    let text = std::fs::read_to_string(site.configuration()).expect("the configuration");
    let port = listener.local_addr().expect("its address").port();
    let line = format!("http-listener http://127.0.0.1:{port}/\n");
    std::fs::write(site.configuration(), line.clone() + &text).expect("the configuration");
    let Err(error) = site.start() else { panic!("it started on a taken port") };
    assert!(error.log.contains(line.trim()), "{}", error.log);
}

/// More than there are places.
const HELD: usize = 256;

#[test]
fn health_is_answered_whatever_other_clients_hold() {
    let site = Site::example(Kind::Larix);
    let text = std::fs::read_to_string(site.configuration()).expect("the configuration");
    let line = "http-listener http://127.0.0.1:0/\n";
    std::fs::write(site.configuration(), line.to_owned() + &text).expect("the same");
    let server = site.start().unwrap_or_else(|error| panic!("{error}"));
    let http = SocketAddr::from((Ipv4Addr::LOCALHOST, server.ports[1]));

    let mut streams = Vec::new();
    for number in 0..HELD {
        let mut stream = TcpStream::connect(http).expect("a connection");
        match number % 4 {
            // A client that sends nothing, one that never stops sending, and one that promises more than it sends.
            0 => {}
            1 => stream.write_all(b"GET /met").expect("a part of a request"),
            2 => {
                let head = b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\na";
                stream.write_all(head).expect("a part of a request");
            }
            // A client that asks for much and reads nothing of it, until the server takes no more.
            _ => {
                stream.set_nonblocking(true).expect("a socket");
                let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
                (0..2_000).take_while(|_| stream.write(request).is_ok()).for_each(drop);
            }
        }
        streams.push(stream);
        if number % 32 == 31 {
            for path in ["/health/live", "/health/ready"] {
                assert_eq!(get(http, path).0, 200, "{path} beside {number}");
            }
        }
    }
    assert_eq!(get(http, "/metrics").0, 200);
    drop(streams);
    assert!(server.stop());
}
