//! What a collector on loopback gets.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use larix_engine::time::Timestamp;
use larix_proto::ResultCode;
use serde_json::Value;

use super::*;
use crate::log::{LogCall, LogSettings};

fn span(serial: u64, code: ResultCode) -> Span {
    Span {
        operation: "search",
        arrived: Timestamp(1_700_000_000_000_000),
        waited: 1_000,
        taken: 2_000,
        code,
        entries: Some((3, 5)),
        database: Some("dc=example,dc=com".to_owned()),
        connection: 7,
        serial,
    }
}

fn settings(listener: &TcpListener, more: &str) -> TraceExport {
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let words = [url.as_str()].into_iter().chain(more.split_whitespace());
    TraceExport::parse(words).unwrap()
}

fn log() -> Log {
    Log::start(LogSettings::silent(), LogCall { no_syslog: true, ..LogCall::default() }).unwrap().0
}

/// Takes one request and answers it.
fn taken(listener: &TcpListener, answer: &str) -> (String, Value) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).unwrap();
        text.extend_from_slice(&buffer[..read]);
        let whole = String::from_utf8_lossy(&text).into_owned();
        let Some((head, body)) = whole.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            stream.write_all(answer.as_bytes()).unwrap();
            return (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap());
        }
    }
}

fn spans(body: &Value) -> &Vec<Value> {
    body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap()
}

fn attribute(span: &Value, key: &str) -> Value {
    let all = span["attributes"].as_array().unwrap();
    all.iter().find(|a| a["key"] == key).map(|a| a["value"].clone()).unwrap_or_default()
}

#[test]
fn a_collector_gets_what_was_told() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let traces = Traces::default();
    traces.follow(Some(&settings(&collector, "")), &log());
    assert!(traces.wants_one());
    traces.tell(span(1, ResultCode::SUCCESS));
    traces.tell(span(2, ResultCode::OTHER));
    // What waits is sent though the server ends.
    let ending = std::thread::spawn(move || {
        traces.finish();
        traces
    });
    let (line, body) = taken(&collector, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    let traces = ending.join().unwrap();
    assert_eq!(line, "POST /v1/traces HTTP/1.1");
    let service = &body["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(
        (service["key"].as_str(), service["value"]["stringValue"].as_str()),
        (Some("service.name"), Some("larix"))
    );
    let [first, second] = spans(&body).as_slice() else { panic!("{body}") };
    assert_eq!(first["name"], "search");
    assert_eq!(first["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(first["startTimeUnixNano"], "1700000000000000000");
    assert_eq!(first["endTimeUnixNano"], "1700000000000003000");
    assert_eq!(attribute(first, "db.response.status_code")["stringValue"], "0");
    assert_eq!(attribute(first, "db.response.returned_rows")["intValue"], "3");
    assert_eq!(attribute(first, "db.namespace")["stringValue"], "dc=example,dc=com");
    assert_eq!((first.get("status"), &second["status"]["code"]), (None, &Value::from(2)));
    assert_ne!(first["traceId"], second["traceId"]);
    assert!(!traces.wants_one(), "no operation is reported after the end");
}

#[test]
fn what_a_collector_does_not_take_is_lost_and_delays_nobody() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let traces = Traces::default();
    traces.follow(Some(&settings(&collector, "")), &log());
    // There is no answer yet: what the queue and one batch do not hold is lost at once.
    let count = QUEUE_LIMIT as u64 * 2;
    for serial in 0..count {
        traces.tell(span(serial, ResultCode::SUCCESS));
    }
    let lost = traces.figures().lost.load(Ordering::Relaxed);
    assert!(lost > 0 && lost < count, "{lost}");
    let (_, body) = taken(&collector, "HTTP/1.1 503 Service Unavailable\r\n\r\n");
    let refused = spans(&body).len() as u64;
    let (_, body) = taken(&collector, "HTTP/1.1 200 OK\r\n\r\n");
    assert!(!spans(&body).is_empty());
    // The first batch was refused before the second one came.
    assert!(traces.figures().lost.load(Ordering::Relaxed) >= lost + refused);
    traces.follow(None, &log());
    assert!(!traces.wants_one());
}

#[test]
fn as_many_are_told_of_as_was_asked_for() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    for (words, least, most) in
        [("", 10_000, 10_000), ("sample=1", 10_000, 10_000), ("sample=0.25", 2_000, 3_000)]
    {
        let traces = Traces::default();
        traces.follow(Some(&settings(&collector, words)), &log());
        let chosen = (0..10_000).filter(|_| traces.wants_one()).count();
        assert!((least..=most).contains(&chosen), "{words}: {chosen}");
    }
}
