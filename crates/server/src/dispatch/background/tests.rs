//! Searches of a directory that no worker goes through alone, with the connection's turns made by hand.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::mpsc::{Receiver, Sender, channel};

use larix_configuration::{Config, QuickStart};
use larix_engine::load::{self, LoadContext, LoadObserver, LoadOptions, Progress, RecordError};
use larix_proto::ber::{Tag, write};
use larix_proto::client::{self, Search};
use larix_proto::{FilterBuf, Frame, MessageId, Response, Scope, frame, oid};
use larix_store::Store;
use larix_store::lmdb::{self, LmdbOptions};

use super::*;
use crate::clock::SystemRandom;
use crate::connection::{Connection, Turn};
use crate::local::{LocalConnection, LocalServer};
use crate::statistics::OperationKind;

const SUFFIX: &str = "dc=example,dc=com";
/// More than a search looks at before it goes away, and the rest are so many bytes of answers that it comes back several times.
const PEOPLE: usize = 3_840;
const _: () = assert!(PEOPLE * 2 > 128 * SLICES_HERE as usize * 3);
const ANY: &str = "(objectClass=*)";
const NOBODY: &str = "(description=*nobody*)";

struct Quiet;

impl LoadObserver for Quiet {
    fn progress(&mut self, _: &Progress) {}

    fn record_failed(&mut self, error: &RecordError) {
        panic!("{error}");
    }
}

struct Bench {
    local: LocalServer,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let config = Config::quick_start(&QuickStart {
            suffix: SUFFIX.to_owned(),
            directory: data.clone(),
            root_password: Some(b"secret".to_vec()),
            ..QuickStart::default()
        });
        let config = config.unwrap();
        let section = config.databases.iter().find(|d| d.kind.mdb().is_some()).unwrap();
        let settings = config.engine_settings(section).unwrap();
        let (clock, random) = (crate::clock::SystemClock, SystemRandom);
        let context =
            LoadContext { schema: &config.schema, settings: &settings, clock: &clock, random: &random };
        let (ldif, options) = (ldif(), LoadOptions::default());
        load::load_directory(&data, &LmdbOptions::default(), ldif.as_bytes(), context, &options, &mut Quiet)
            .unwrap();
        Self { local: LocalServer::open(config).unwrap(), _folder: folder }
    }

    /// A connection of the administrator, for whom only the limits of the request hold.
    fn connect(&self) -> LocalConnection {
        let mut connection = self.local.connect();
        let (mut request, mut out) = (Vec::new(), Vec::new());
        client::simple_bind(&mut request, MessageId(1), &format!("cn=admin,{SUFFIX}"), b"secret", &[]);
        connection.request(&request, &mut out);
        assert_eq!(ReceivedAnswers::all(&out).results, [(1, 0)]);
        connection
    }

    fn completed(&self) -> u64 {
        self.local.server().statistics.completed(OperationKind::Search)
    }
}

fn ldif() -> String {
    let mut ldif = format!("dn: {SUFFIX}\nobjectClass: domain\ndc: example\n\n");
    let long = "long ".repeat(50);
    for number in 0..PEOPLE {
        write!(
            ldif,
            "dn: cn=p{number},{SUFFIX}\nobjectClass: person\ncn: p{number}\nsn: x\ndescription: {long}\n\n"
        )
        .unwrap();
    }
    ldif
}

/// The answers that a client got.
#[derive(Debug, Default)]
struct ReceivedAnswers {
    names: Vec<String>,
    /// Messages and result codes.
    results: Vec<(u32, u32)>,
}

impl ReceivedAnswers {
    fn all(mut bytes: &[u8]) -> Self {
        let mut answers = Self::default();
        while let Ok(Frame::Complete { len }) = frame(bytes, 1 << 20) {
            let message = Response::decode_message(&bytes[..len]).unwrap();
            match message.response {
                Response::Entry(entry) => answers.names.push(entry.dn.to_owned()),
                response => {
                    let (_, result) = response.result().unwrap();
                    answers.results.push((message.id.0, result.code.0));
                }
            }
            bytes = &bytes[len..];
        }
        assert!(bytes.is_empty(), "half a message: {bytes:02x?}");
        answers
    }
}

fn search(id: u32, filter: &str, (size_limit, time_limit): (u32, u32)) -> Vec<u8> {
    let filter = FilterBuf::parse(filter).unwrap();
    let mut out = Vec::new();
    let request = Search {
        size_limit,
        time_limit,
        attributes: &["description"],
        ..Search::new(SUFFIX, Scope::Subtree, filter.as_filter())
    };
    client::search(&mut out, MessageId(id), &request, &[]);
    out
}

fn cancel(id: u32, other: i64) -> Vec<u8> {
    let (mut out, mut value) = (Vec::new(), Vec::new());
    write::constructed(&mut value, Tag::SEQUENCE, |out| write::integer(out, Tag::INTEGER, other));
    client::extended(&mut out, MessageId(id), oid::CANCEL, Some(&value), &[]);
    out
}

fn abandon(id: u32, other: u32) -> Vec<u8> {
    let mut out = Vec::new();
    client::abandon(&mut out, MessageId(id), MessageId(other), &[]);
    out
}

/// Hands requests over and lets the connection have turns until it has nothing to do.
fn ask(connection: &mut LocalConnection, bytes: &[u8], out: &mut Vec<u8>) -> Turn {
    let (connection, _) = connection.parts();
    let turn = connection.receive(bytes);
    go_on(connection, turn, out)
}

/// Waits for the next event, the return of a search, and hands it over.
fn come_back(connection: &mut LocalConnection, out: &mut Vec<u8>) {
    let (connection, events) = connection.parts();
    let Some(ConnectionEvent::Returned(serial, returned)) = events.blocking_recv() else {
        panic!("another event")
    };
    let turn = connection.returned(serial, *returned);
    go_on(connection, turn, out);
}

/// As a worker does whose client takes everything.
fn go_on(connection: &mut Connection<Dispatcher>, mut turn: Turn, out: &mut Vec<u8>) -> Turn {
    loop {
        out.extend_from_slice(connection.output());
        let count = connection.output().len();
        connection.sent(count);
        match turn {
            Turn::Close => return turn,
            Turn::Idle if !connection.has_work() => return turn,
            Turn::More | Turn::Idle => turn = connection.resume(),
        }
    }
}

/// Keeps the only thread, until it is dropped.
struct Gate(Receiver<()>);

impl Turns for Gate {
    fn turn(self: Box<Self>, _thread: usize) -> Option<Box<dyn Turns>> {
        assert!(self.0.recv().is_err());
        None
    }
}

#[test]
fn a_long_search_answers_all_and_once() {
    let bench = Bench::new();
    let mut connection = bench.connect();
    let (mut out, mut trips) = (Vec::new(), 0);
    ask(&mut connection, &search(2, ANY, (0, 0)), &mut out);
    while connection.parts().0.pending() > 0 {
        // A small search is answered meanwhile.
        let id = 10 + trips;
        ask(&mut connection, &search(id, "(cn=p7)", (0, 0)), &mut out);
        come_back(&mut connection, &mut out);
        trips += 1;
    }
    assert!(trips > 1, "it came back once");
    let answers = ReceivedAnswers::all(&out);
    let small = trips as usize;
    assert_eq!(answers.results.len(), small + 1);
    assert_eq!(answers.results.last(), Some(&(2, 0)));
    assert_eq!(answers.names.len(), PEOPLE + 1 + small);
    assert_eq!(answers.names.iter().collect::<BTreeSet<_>>().len(), PEOPLE + 1);
    assert_eq!(bench.completed(), u64::from(trips) + 1);
    let sent = bench.local.server().statistics.sum(|counters| &counters.entries_sent);
    assert_eq!(sent, answers.names.len() as u64);
}

#[test]
fn several_long_searches_end_each() {
    let bench = Bench::new();
    let mut connections: Vec<_> = (0..3).map(|_| bench.connect()).collect();
    let mut outs = vec![Vec::new(); 3];
    for (connection, out) in connections.iter_mut().zip(&mut outs) {
        ask(connection, &[search(2, ANY, (0, 0)), search(3, NOBODY, (0, 0))].concat(), out);
    }
    for (connection, out) in connections.iter_mut().zip(&mut outs) {
        while connection.parts().0.pending() > 0 {
            come_back(connection, out);
        }
        let mut answers = ReceivedAnswers::all(out);
        answers.results.sort_unstable();
        assert_eq!((answers.names.len(), answers.results.as_slice()), (PEOPLE + 1, &[(2, 0), (3, 0)][..]));
    }
}

#[test]
fn limits_hold_where_a_search_is_away() {
    const SIZE_LIMIT_EXCEEDED: u32 = 4;
    const TIME_LIMIT_EXCEEDED: u32 = 3;
    let bench = Bench::new();
    let mut connection = bench.connect();
    let mut out = Vec::new();
    let most = PEOPLE as u32 - 1;
    ask(&mut connection, &search(2, ANY, (most, 0)), &mut out);
    while connection.parts().0.pending() > 0 {
        come_back(&mut connection, &mut out);
    }
    let answers = ReceivedAnswers::all(&out);
    assert_eq!((answers.names.len() as u32, answers.results), (most, vec![(2, SIZE_LIMIT_EXCEEDED)]));
    out.clear();
    ask(&mut connection, &search(3, ANY, (0, 1)), &mut out);
    // It comes back with a part of its answers, and its client takes them when the time is over.
    let over = bench.local.server().clock.monotonic().0 + 1_000_000_000;
    while bench.local.server().clock.monotonic().0 <= over {
        std::thread::yield_now();
    }
    while connection.parts().0.pending() > 0 {
        come_back(&mut connection, &mut out);
    }
    let answers = ReceivedAnswers::all(&out);
    assert!(answers.names.len() <= PEOPLE);
    assert_eq!(answers.results, [(3, TIME_LIMIT_EXCEEDED)]);
}

#[test]
fn a_search_that_is_away_is_ended_at_once_and_counted() {
    const CANCELED: u32 = 118;
    let bench = Bench::new();
    let mut unbind = Vec::new();
    client::unbind(&mut unbind, MessageId(3));
    let cases = [
        ("abandon", abandon(3, 2), vec![], Turn::Idle),
        ("cancel", cancel(3, 2), vec![(2, CANCELED), (3, 0)], Turn::Idle),
        ("unbind", unbind, vec![], Turn::Close),
    ];
    let pool = &bench.local.server().long_searches;
    for (number, (name, how, results, turn)) in cases.into_iter().enumerate() {
        let mut connection = bench.connect();
        let (open, gate) = channel();
        assert!(pool.has_thread());
        pool.push(Box::new(Gate(gate)));
        let mut out = Vec::new();
        ask(&mut connection, &search(2, ANY, (0, 0)), &mut out);
        assert_eq!(connection.parts().0.pending(), 1, "{name}");
        assert_eq!(ask(&mut connection, &how, &mut out), turn, "{name}");
        assert_eq!(connection.parts().0.pending(), 0, "{name}");
        assert_eq!(bench.completed(), number as u64 + 1, "{name}");
        let answers = ReceivedAnswers::all(&out);
        assert!(answers.names.len() <= PEOPLE, "{name}");
        assert_eq!(answers.results, results, "{name}");
        drop::<Sender<()>>(open);
        while !pool.are_idle() {
            std::thread::yield_now();
        }
        assert!(connection.parts().1.try_recv().is_err(), "{name}: it went on");
    }
}

#[test]
fn a_journey_ends_where_nobody_waits_for_it() {
    let bench = Bench::new();
    let mut connection = bench.connect();
    ask(&mut connection, &search(2, ANY, (0, 0)), &mut Vec::new());
    drop(connection);
    let server = bench.local.server();
    server.long_searches.finish();
    // Only its owner has the server, once the thread that judged the bind has dropped it.
    while Arc::strong_count(server) > 1 {
        std::thread::yield_now();
    }
    // The server stops, or threads are not to be had: searches go on where they are.
    let mut connection = bench.connect();
    let mut out = Vec::new();
    ask(&mut connection, &search(2, NOBODY, (0, 0)), &mut out);
    assert_eq!(ReceivedAnswers::all(&out).results, [(2, 0)]);
}

#[test]
fn nothing_is_read_when_all_long_searches_are_done() {
    let bench = Bench::new();
    let mut connection = bench.connect();
    let mut out = Vec::new();
    ask(&mut connection, &search(2, NOBODY, (0, 0)), &mut out);
    while connection.parts().0.pending() > 0 {
        come_back(&mut connection, &mut out);
    }
    let server = bench.local.server();
    // The thread rests once it has put away what it had.
    while !server.long_searches.are_idle() {
        std::thread::yield_now();
    }
    // What this thread kept, in a worker's place.
    lmdb::release_snapshots();
    let generation = server.generation();
    let served = generation.databases.directory().databases().first().unwrap();
    assert_eq!(served.database().store().statistics().unwrap().oldest_read, None);
}

#[test]
fn what_is_under_way_ends_with_its_connection() {
    let bench = Bench::new();
    let statistics = &bench.local.server().statistics;
    let under_way = || {
        let kinds = [OperationKind::Search, OperationKind::Delete];
        kinds.map(|kind| statistics.initiated(kind) - statistics.completed(kind))
    };
    let mut connection = bench.connect();
    let mut requests = search(2, ANY, (0, 0));
    client::delete(&mut requests, MessageId(3), &format!("cn=p0,{SUFFIX}"), &[]);
    connection.parts().0.receive(&requests);
    assert_eq!(under_way(), [1, 1]);
    // As where the socket fails: the client does not say goodbye.
    drop(connection);
    assert_eq!(under_way(), [0, 0]);
}
