//! A backend that answers late, fails, streams without end, is cancelled or never answers, behind a real dispatcher: back-pressure,
//! abandon, cancel, time limits and shutdown, for all that stores nothing.

mod brought;
mod interceptors;
mod toy;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use larix_configuration::{Config, QuickStart};
use larix_engine::time::Monotonic;
use larix_proto::ber::{Tag, write};
use larix_proto::client::{self, Search};
use larix_proto::{FilterBuf, Frame, LdapResult, MessageId, Response, ResultCode, Scope, frame, frames, oid};

use crate::connection::{Connection, Turn};
use crate::dispatch::{ConnectionEvent, Dispatcher};
use crate::local::{LocalConnection, LocalServer};
use crate::session::Peer;
use crate::statistics::{ConnectionRecord, ListenerInfo, OperationKind};
use crate::stream::AcceptedStream;
use crate::worker::{AcceptedConnection, Worker};
use larix_backend::*;
use larix_engine::write::Completion;
use toy::{PendingRequest, STREAM, Toy};

const SUFFIX: &str = "dc=example,dc=com";

/// A server with a stored database and the toy below it or beside it.
struct Bench {
    local: LocalServer,
    toy: Arc<Toy>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self::with("o=toy", false)
    }

    fn with(suffix: &str, subordinate: bool) -> Self {
        Self::behind(suffix, subordinate, Stack::default(), Stack::default())
    }

    /// With these in front of the toy, and of all.
    fn behind(suffix: &str, subordinate: bool, database: Stack, all: Stack) -> Self {
        Self::with_router((suffix, subordinate, database), |router| router.put_in_front(all))
    }

    /// With these in front of the stored database and of the toy, which is glued below it.
    fn over_glue(stack: Stack) -> Self {
        Self::with_router(("ou=toy,dc=example,dc=com", true, Stack::default()), |router| {
            let suffix = router.schema().parse_dn(SUFFIX).unwrap();
            let number = router.select(&suffix).unwrap();
            let inner = Arc::clone(&router.mounts()[number].backend);
            router.put_over_glue(vec![(number, OverGlue { stack, inner })]);
        })
    }

    fn with_router(
        (suffix, subordinate, database): (&str, bool, Stack),
        alter: impl FnOnce(&mut Router),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::quick_start(&QuickStart {
            suffix: SUFFIX.to_owned(),
            directory: folder.path().to_owned(),
            root_password: Some(b"secret".to_vec()),
            ..QuickStart::default()
        });
        let toy = Toy::new();
        let backend = InterceptedBackend::with(database, Arc::clone(&toy) as Arc<dyn Backend>);
        let local = LocalServer::open_with(config.unwrap(), |databases| {
            let suffixes = vec![databases.schema().parse_dn(suffix).unwrap()];
            databases.router_mut().add(Mount { suffixes, subordinate, hidden: false, backend });
            alter(databases.router_mut());
        });
        Self { local: local.unwrap(), toy, _folder: folder }
    }

    fn connect(&self) -> Client {
        Client { connection: self.local.connect(), out: Vec::new() }
    }

    /// A connection of the administrator.
    fn bound(&self) -> Client {
        let mut client = self.connect();
        let (mut request, mut out) = (Vec::new(), Vec::new());
        client::simple_bind(&mut request, MessageId(90), &format!("cn=admin,{SUFFIX}"), b"secret", &[]);
        client.connection.request(&request, &mut out);
        assert_eq!(read_answers(&out), ["90 0"]);
        client
    }

    /// Requests of a kind that have begun and not ended.
    fn under_way(&self, kind: OperationKind) -> u64 {
        let statistics = &self.local.server().statistics;
        statistics.initiated(kind) - statistics.completed(kind)
    }
}

/// A client whose connection's turns are made by hand.
struct Client {
    connection: LocalConnection,
    out: Vec<u8>,
}

impl Client {
    /// Hands a request over.
    fn ask(&mut self, bytes: &[u8]) {
        let (connection, _) = self.connection.parts();
        connection.service_mut().bytes_arrived();
        let turn = connection.receive(bytes);
        go_on(connection, turn, &mut self.out);
    }

    /// Waits for the next event and hands it over.
    fn event(&mut self) {
        let (connection, events) = self.connection.parts();
        let turn = match events.blocking_recv().expect("an event") {
            ConnectionEvent::Completed(serial, done) => connection.complete(serial, *done),
            ConnectionEvent::Woken(serial) => connection.wake(serial),
            event => panic!("another event: {event:?}"),
        };
        go_on(connection, turn, &mut self.out);
    }

    fn expire(&mut self, now: Monotonic) {
        let (connection, _) = self.connection.parts();
        let turn = connection.expire(now);
        go_on(connection, turn, &mut self.out);
    }

    fn pending(&mut self) -> usize {
        self.connection.parts().0.pending()
    }

    /// What was answered since the last time.
    fn answers(&mut self) -> Vec<String> {
        read_answers(&std::mem::take(&mut self.out))
    }
}

/// As a worker does whose client takes everything.
fn go_on(connection: &mut Connection<Dispatcher>, mut turn: Turn, out: &mut Vec<u8>) {
    loop {
        out.extend_from_slice(connection.output());
        connection.sent(connection.output().len());
        match turn {
            Turn::Close => return,
            Turn::Idle if !connection.has_work() => return,
            Turn::More | Turn::Idle => turn = connection.resume(),
        }
    }
}

/// Answers: an entry by message and name, a result by message and code.
fn read_answers(mut bytes: &[u8]) -> Vec<String> {
    let mut answers = Vec::new();
    while let Ok(Frame::Complete { len }) = frame(bytes, 1 << 20) {
        let message = Response::decode_message(&bytes[..len]).unwrap();
        let id = message.id.0;
        answers.push(match message.response {
            Response::Entry(entry) => format!("{id} {}", entry.dn),
            response => format!("{id} {}", response.result().unwrap().1.code.0),
        });
        bytes = &bytes[len..];
    }
    assert!(bytes.is_empty(), "half a message: {bytes:02x?}");
    answers
}

fn search(id: u32, base: &str, time_limit: u32) -> Vec<u8> {
    let filter = FilterBuf::parse("(objectClass=*)").unwrap();
    let mut out = Vec::new();
    let request = Search { time_limit, ..Search::new(base, Scope::Subtree, filter.as_filter()) };
    client::search(&mut out, MessageId(id), &request, &[]);
    out
}

fn compare(id: u32, entry: &str) -> Vec<u8> {
    let mut out = Vec::new();
    client::compare(&mut out, MessageId(id), entry, "cn", b"x", &[]);
    out
}

fn delete(id: u32, entry: &str) -> Vec<u8> {
    let mut out = Vec::new();
    client::delete(&mut out, MessageId(id), entry, &[]);
    out
}

fn bind(id: u32, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    client::simple_bind(&mut out, MessageId(id), name, b"secret", &[]);
    out
}

fn abandon(id: u32, other: u32) -> Vec<u8> {
    let mut out = Vec::new();
    client::abandon(&mut out, MessageId(id), MessageId(other), &[]);
    out
}

fn cancel(id: u32, other: i64) -> Vec<u8> {
    let (mut out, mut value) = (Vec::new(), Vec::new());
    write::constructed(&mut value, Tag::SEQUENCE, |out| write::integer(out, Tag::INTEGER, other));
    client::extended(&mut out, MessageId(id), oid::CANCEL, Some(&value), &[]);
    out
}

fn who_am_i(id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    client::extended(&mut out, MessageId(id), oid::WHO_AM_I, None, &[]);
    out
}

/// Does something on another thread, as backends that wait for others do.
fn on_other_thread(work: impl FnOnce() + Send + 'static) {
    thread::spawn(work).join().unwrap();
}

/// Answers what waits with this code, on another thread.
fn answer(toy: &Toy, code: ResultCode) {
    let request = toy.next();
    let result = LdapResult::new(code);
    on_other_thread(move || match request {
        PendingRequest::Compare(done) => done((result, Vec::new())),
        PendingRequest::Update(done) => done(result.into()),
        PendingRequest::Bind(done) => done(result.into()),
        PendingRequest::Search(feed) => feed.end(code),
    });
}

#[test]
fn answers_come_late_from_another_thread() {
    for (what, request, code) in [
        ("a compare", compare(1, "cn=later,o=toy"), ResultCode::COMPARE_TRUE),
        ("a change", delete(1, "cn=later,o=toy"), ResultCode::NOT_ALLOWED_ON_NON_LEAF),
        ("a search", search(1, "cn=later,o=toy", 0), ResultCode::SUCCESS),
    ] {
        let bench = Bench::new();
        let mut client = bench.bound();
        client.ask(&request);
        assert_eq!(client.answers(), [""; 0], "{what}");
        // The connection goes on meanwhile.
        client.ask(&who_am_i(2));
        assert_eq!(client.answers(), ["2 0"], "{what}");
        answer(&bench.toy, code);
        client.event();
        assert_eq!(client.answers(), [format!("1 {}", code.0)], "{what}");
        assert_eq!(client.pending(), 0, "{what}");
    }
}

#[test]
fn a_bind_that_waits_holds_back_what_comes_behind() {
    for (code, then) in [(ResultCode::SUCCESS, "cn=me,o=toy"), (ResultCode::INVALID_CREDENTIALS, "")] {
        let bench = Bench::new();
        let mut client = bench.connect();
        client.ask(&[bind(1, "cn=me,o=toy"), who_am_i(2)].concat());
        assert_eq!(client.answers(), [""; 0]);
        answer(&bench.toy, code);
        client.event();
        assert_eq!(client.answers(), [format!("1 {}", code.0), "2 0".to_owned()]);
        let session = &client.connection.parts().0.service().session;
        assert_eq!(session.subject().shown_dn(), then);
    }
}

#[test]
fn entries_come_as_they_are_made_elsewhere() {
    let bench = Bench::new();
    let mut client = bench.connect();
    client.ask(&search(1, "cn=later,o=toy", 0));
    let PendingRequest::Search(feed) = bench.toy.next() else { panic!("no search") };
    for name in ["cn=a,o=toy", "cn=b,o=toy"] {
        let feed = Arc::clone(&feed);
        on_other_thread(move || feed.entry(name));
        client.event();
        assert_eq!(client.answers(), [format!("1 {name}")]);
    }
    on_other_thread(move || feed.end(ResultCode::SIZE_LIMIT_EXCEEDED));
    client.event();
    assert_eq!(client.answers(), ["1 4"]);
    assert_eq!(bench.toy.counts.ended.load(Ordering::SeqCst), 1);
}

#[test]
fn faults_are_answered() {
    let bench = Bench::new();
    let mut client = bench.connect();
    client.ask(&search(1, "cn=fail,o=toy", 0));
    client.ask(&compare(2, "cn=fail,o=toy"));
    assert_eq!(client.answers(), ["1 52", "2 52"]);
    // The backend dropped the request without an answer.
    client.ask(&compare(3, "cn=lose,o=toy"));
    client.event();
    assert_eq!(client.answers(), ["3 80"]);
    client.ask(&search(4, "cn=later,o=toy", 0));
    answer(&bench.toy, ResultCode::OTHER);
    client.event();
    assert_eq!(client.answers(), ["4 80"]);
    assert_eq!(client.pending(), 0);
}

#[test]
fn a_client_that_does_not_read_holds_a_stream_back() {
    let bench = Bench::new();
    let mut client = bench.connect();
    let made = || bench.toy.counts.made.load(Ordering::SeqCst);
    {
        let (connection, events) = client.connection.parts();
        let mut turn = connection.receive(&search(1, "cn=stream,o=toy", 0));
        while connection.output().len() < OUTPUT_HIGH {
            turn = match turn {
                Turn::More => connection.resume(),
                // It has become long, and its slices are computed on another thread.
                _ => match events.blocking_recv() {
                    Some(ConnectionEvent::Returned(serial, back)) => connection.returned(serial, *back),
                    event => panic!("another event: {event:?}"),
                },
            };
        }
        let (full, first) = (connection.output().len(), made());
        assert!(full < 2 * OUTPUT_HIGH && first < STREAM / 100, "{full} {first}");
        for _ in 0..10 {
            assert_eq!(connection.resume(), Turn::Idle);
        }
        assert_eq!(made(), first);
        // It goes on with what the client takes.
        connection.sent(full);
        connection.resume();
        let Some(ConnectionEvent::Returned(serial, back)) = events.blocking_recv() else {
            panic!("no answers")
        };
        connection.returned(serial, *back);
        assert!(made() > first);
    }
    client.ask(&abandon(2, 1));
    assert_eq!((client.pending(), bench.under_way(OperationKind::Search)), (0, 0));
    // Where it is on another thread it ends there, after the slice that it is at.
    while bench.toy.counts.ended.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    assert!(made() < STREAM / 100, "{}", made());
}

#[test]
fn what_waits_can_be_abandoned() {
    for (what, request, is_search) in [
        ("a search", search(1, "cn=never,o=toy", 0), true),
        ("a compare", compare(1, "cn=never,o=toy"), false),
        ("a change", delete(1, "cn=never,o=toy"), false),
    ] {
        let bench = Bench::new();
        let mut client = bench.bound();
        client.ask(&request);
        assert_eq!(client.pending(), 1, "{what}");
        client.ask(&abandon(2, 1));
        assert_eq!(client.answers(), [""; 0], "{what}");
        assert_eq!(client.pending(), 0, "{what}");
        let counts = &bench.toy.counts;
        let ended = (counts.ended.load(Ordering::SeqCst), counts.given_up.load(Ordering::SeqCst));
        assert_eq!(ended, if is_search { (1, 0) } else { (0, 1) }, "{what}");
        // An answer that comes all the same is nobody's.
        answer(&bench.toy, ResultCode::SUCCESS);
        client.event();
        assert_eq!(client.answers(), [""; 0], "{what}");
        client.ask(&who_am_i(3));
        assert_eq!(client.answers(), ["3 0"], "{what}");
        for kind in [OperationKind::Search, OperationKind::Compare, OperationKind::Delete] {
            assert_eq!(bench.under_way(kind), 0, "{what}");
        }
    }
}

#[test]
fn what_waits_can_be_cancelled() {
    for (what, request) in
        [("a search", search(1, "cn=never,o=toy", 0)), ("a compare", compare(1, "cn=never,o=toy"))]
    {
        let bench = Bench::new();
        let mut client = bench.bound();
        client.ask(&request);
        client.ask(&cancel(2, 1));
        assert_eq!(client.answers(), ["1 118", "2 0"], "{what}");
        client.ask(&cancel(3, 1));
        assert_eq!(client.answers(), ["3 119"], "{what}");
        assert_eq!(client.pending(), 0, "{what}");
    }
}

/// As in slapd: the other server may have made it. The change has its own answer.
#[test]
fn a_change_that_waits_is_too_late_to_be_cancelled() {
    let bench = Bench::new();
    let mut client = bench.bound();
    client.ask(&delete(1, "cn=never,o=toy"));
    client.ask(&[cancel(2, 1), cancel(3, 1)].concat());
    assert_eq!(client.answers(), ["2 120", "3 120"]);
    let deadline = client.connection.parts().0.deadline().expect("a deadline");
    client.expire(deadline);
    assert_eq!(client.answers(), ["1 11"]);
    assert_eq!(client.pending(), 0);
}

#[test]
fn time_limits_end_what_waits() {
    for (what, request, expected) in [
        ("a search", search(1, "cn=never,o=toy", 1), "1 3"),
        ("a compare", compare(1, "cn=never,o=toy"), "1 11"),
        ("a change", delete(1, "cn=never,o=toy"), "1 11"),
        ("a bind", bind(1, "cn=never,o=toy"), "1 11"),
    ] {
        let bench = Bench::new();
        let mut client = bench.bound();
        client.ask(&request);
        let deadline = client.connection.parts().0.deadline().expect("a deadline");
        client.expire(Monotonic(deadline.0 - 1));
        assert_eq!(client.answers(), [""; 0], "{what}");
        client.expire(deadline);
        assert_eq!(client.answers(), [expected], "{what}");
        assert_eq!(client.pending(), 0, "{what}");
        assert_eq!(client.connection.parts().0.deadline(), None, "{what}");
    }
    // Without a limit a search waits as long as its client does.
    let bench = Bench::new();
    let mut client = bench.connect();
    client.ask(&search(1, "cn=never,o=toy", 0));
    client.expire(Monotonic(u64::MAX));
    assert_eq!((client.answers().len(), client.pending()), (0, 1));
}

#[test]
fn the_server_stops_without_answers() {
    for (what, request) in [
        ("a search", search(1, "cn=never,o=toy", 0)),
        ("a compare", compare(1, "cn=never,o=toy")),
        ("a bind", bind(1, "cn=never,o=toy")),
    ] {
        let bench = Bench::new();
        let mut client = bench.bound();
        client.ask(&request);
        let (connection, _) = client.connection.parts();
        let turn = connection.stop(LdapResult::new(ResultCode::UNAVAILABLE));
        assert_eq!(turn, Turn::Close, "{what}");
        assert_eq!(read_answers(connection.output()), ["1 52"], "{what}");
    }
}

#[test]
fn a_client_that_sends_no_more_is_answered() {
    let bench = Bench::new();
    let mut client = bench.connect();
    client.ask(&search(1, "cn=later,o=toy", 0));
    let turn = client.connection.parts().0.input_ended();
    assert_eq!(turn, Turn::Idle);
    answer(&bench.toy, ResultCode::SUCCESS);
    client.event();
    assert_eq!(client.answers(), ["1 0"]);
}

#[test]
fn searches_that_wait_count_as_requests_under_way() {
    let bench = Bench::new();
    let mut client = bench.connect();
    let most = client.connection.parts().0.service().server.config().global.conn_max_pending;
    for id in 0..most + 5 {
        client.ask(&search(id + 1, "cn=never,o=toy", 0));
    }
    assert_eq!(client.pending(), usize::try_from(most).unwrap());
    client.ask(&[]);
    answer(&bench.toy, ResultCode::SUCCESS);
    client.event();
    assert_eq!(client.answers(), ["1 0"]);
    assert_eq!(client.pending(), usize::try_from(most).unwrap());
}

#[test]
fn a_search_goes_on_in_a_backend_that_is_glued_below() {
    let bench = Bench::with("ou=toy,dc=example,dc=com", true);
    let mut client = bench.bound();
    client.ask(&add_top(1));
    client.event();
    assert_eq!(client.answers(), ["1 0"]);
    client.ask(&search(2, SUFFIX, 0));
    assert_eq!(client.answers(), [format!("2 {SUFFIX}")]);
    let PendingRequest::Search(feed) = bench.toy.next() else { panic!("no search") };
    on_other_thread(move || {
        feed.entry("ou=toy,dc=example,dc=com");
        feed.end(ResultCode::SUCCESS);
    });
    client.event();
    assert_eq!(client.answers(), ["2 ou=toy,dc=example,dc=com", "2 0"]);
}

#[test]
fn a_backend_glued_below_that_has_nothing_for_a_search_does_not_end_it() {
    let bench = Bench::with("ou=toy,dc=example,dc=com", true);
    let mut client = bench.bound();
    client.ask(&add_top(1));
    client.event();
    assert_eq!(client.answers(), ["1 0"]);
    for (id, code, expected) in [
        (2, ResultCode::NO_SUCH_OBJECT, "2 0"),
        (3, ResultCode::INSUFFICIENT_ACCESS_RIGHTS, "3 0"),
        (4, ResultCode::REFERRAL, "4 0"),
        (5, ResultCode::UNAVAILABLE, "5 52"),
    ] {
        client.ask(&search(id, SUFFIX, 0));
        assert_eq!(client.answers(), [format!("{id} {SUFFIX}")]);
        let PendingRequest::Search(feed) = bench.toy.next() else { panic!("no search") };
        on_other_thread(move || feed.end(code));
        client.event();
        assert_eq!(client.answers(), [expected]);
    }
}

fn add_top(id: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let attributes = [("objectClass", vec!["domain"]), ("dc", vec!["example"])];
    let attributes: Vec<client::ClientAttribute<'_, &str>> = attributes
        .iter()
        .map(|(description, values)| client::ClientAttribute { description, values })
        .collect();
    client::add(&mut out, MessageId(id), SUFFIX, &attributes, &[]);
    out
}

/// The same on a worker's loop: its clock finds what has waited for too long.
#[test]
fn a_worker_ends_what_has_waited_for_too_long() {
    let bench = Bench::new();
    let server = Arc::clone(bench.local.server());
    let worker = Worker::start(0, Arc::clone(&server)).unwrap();
    let (mut client, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let listener = Arc::new(ListenerInfo { url: "ldapi:///".to_owned(), name: "PATH=x".to_owned() });
    let number = server.statistics.next_connection();
    let record = ConnectionRecord::new(number, 0, listener, "PATH=x".to_owned(), server.both_clocks());
    let accepted = AcceptedConnection {
        stream: AcceptedStream::Unix(theirs),
        record: Arc::new(record),
        peer: Peer { name: "PATH=x".to_owned(), credentials: None },
        secured: None,
    };
    assert!(worker.handle().serve(accepted));
    client.write_all(&[search(1, "cn=never,o=toy", 1), compare(2, "cn=never,o=toy")].concat()).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    while count_answers(&bytes) < 2 {
        let count = client.read(&mut buffer).unwrap();
        assert!(count > 0, "closed");
        bytes.extend_from_slice(&buffer[..count]);
    }
    let mut answers = read_answers(&bytes);
    answers.sort();
    assert_eq!(answers, ["1 3", "2 11"]);
    // A request that is never answered does not keep it from stopping.
    while bench.toy.waiting().is_some() {}
    client.write_all(&search(3, "cn=never,o=toy", 0)).unwrap();
    while !matches!(bench.toy.waiting(), Some(PendingRequest::Search(_))) {
        thread::yield_now();
    }
    worker.stop();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(read_answers(&rest).first().map(String::as_str), Some("3 52"));
    worker.join();
}

/// Whole messages.
fn count_answers(bytes: &[u8]) -> usize {
    frames(bytes, 1 << 20).count()
}
