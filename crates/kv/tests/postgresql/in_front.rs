//! What stands between a node and PostgreSQL.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;

use larix_kv::{Address, KvStore, OpenError};
use larix_store::contract::TABLES;
use larix_testkit::postgresql::Engine;

use crate::shared::unhurried;

/// The address of a database with another server in place of the engine.
fn through(engine: &Engine, database: &str, front: &TcpListener) -> Address {
    let text = engine.address(database);
    let (user, _) = text.split_once('@').expect("a user");
    let port = front.local_addr().expect("its address").port();
    Address::parse(&format!("{user}@127.0.0.1:{port}/{database}")).expect("an address")
}

/// Where the socket of the engine is.
fn socket(engine: &Engine) -> String {
    let text = engine.address("d");
    let (_, place) = text.split_once('@').expect("a place");
    let (folder, _) = place.split_once(':').expect("a port");
    format!("{}/.s.PGSQL.{}", folder.replace("%2F", "/"), engine.port())
}

/// A message with its kind and its length.
fn message(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut message = vec![0; 5];
    from.read_exact(&mut message)?;
    let length = u32::from_be_bytes(message[1..].try_into().expect("four bytes"));
    message.resize(usize::try_from(length).expect("a length") + 1, 0);
    from.read_exact(&mut message[5..])?;
    Ok(message)
}

/// Hands messages on until one of these kinds has come.
fn hand_on(from: &mut impl Read, to: &mut impl Write, last: &[u8]) -> io::Result<()> {
    loop {
        let message = message(from)?;
        to.write_all(&message)?;
        if last.contains(&message[0]) {
            return Ok(());
        }
    }
}

/// Begins a session as a client does, up to the engine's first `Z`.
fn session(engine: &Engine, database: &str) -> UnixStream {
    let mut engine = UnixStream::connect(socket(engine)).expect("the engine");
    let words = format!("user\0larix\0database\0{database}\0\0");
    let length = u32::try_from(words.len() + 8).expect("a length");
    let version = 196_608_u32;
    engine
        .write_all(&[&length.to_be_bytes()[..], &version.to_be_bytes(), words.as_bytes()].concat())
        .expect("sent");
    hand_on(&mut engine, &mut io::sink(), b"Z").expect("let in");
    engine
}

/// Lets a client in, and carries out what it asks over a connection that it shares with others.
fn serve_in_turn(mut client: TcpStream, engine: &Mutex<UnixStream>) -> io::Result<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut words = vec![0; usize::try_from(u32::from_be_bytes(length)).expect("a length") - 4];
    client.read_exact(&mut words)?;
    client.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")?;
    loop {
        let mut asked = Vec::new();
        hand_on(&mut client, &mut asked, b"QSX")?;
        if asked.starts_with(b"X") {
            return Ok(());
        }
        let mut engine = engine.lock().expect("the connection");
        engine.write_all(&asked)?;
        hand_on(&mut *engine, &mut client, b"Z")?;
    }
}

/// As PgBouncer does with `pool_mode=transaction`. One of version 1.21 and later makes each prepared statement known on the connection that
/// happens to carry it out, so that nothing but settings and notifications would be lost.
#[test]
fn connections_that_clients_take_turns_on_are_refused() {
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let front = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = through(&engine, &name, &front);
    let shared = Arc::new(Mutex::new(session(&engine, &name)));
    thread::spawn(move || {
        for client in front.incoming().map_while(Result::ok) {
            let shared = Arc::clone(&shared);
            thread::spawn(move || serve_in_turn(client, &shared));
        }
    });
    let Err(OpenError::Refused(error)) = KvStore::open(&address, &TABLES, &unhurried()) else {
        panic!("its connections are not its own")
    };
    assert!(error.contains("pool_mode=session"), "{error}");
}

/// Who wrote last, and how often the client did behind the engine.
#[derive(Default)]
struct Turns {
    engine_wrote: bool,
    taken: u32,
}

fn copy(mut from: impl Read, mut to: impl Write, mut note: impl FnMut()) {
    let mut bytes = vec![0; 65_536];
    while let Ok(some @ 1..) = from.read(&mut bytes) {
        note();
        if to.write_all(&bytes[..some]).is_err() {
            return;
        }
    }
}

fn relay(client: TcpStream, server: UnixStream, turns: Arc<Mutex<Turns>>) {
    let (from, to) = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
    let asked = Arc::clone(&turns);
    thread::spawn(move || {
        copy(from, &to, || {
            let mut turns = asked.lock().expect("turns");
            if std::mem::take(&mut turns.engine_wrote) {
                turns.taken += 1;
            }
        });
        let _ended = to.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        copy(server, &client, || turns.lock().expect("turns").engine_wrote = true);
        let _ended = client.shutdown(Shutdown::Both);
    });
}

/// Each round trip counts where the engine is far away or busy: a node that needs a new connection to keep the right to write has as long as its
/// lease for all of them.
#[test]
fn a_connection_is_made_in_few_round_trips() {
    /// Three of the session's beginning, one for all settings and statements; as much again where the system cuts what is sent.
    const TRIPS_MAX: u32 = 10;
    let Some(engine) = Engine::start() else { return };
    let (name, _) = engine.database();
    let store =
        KvStore::open(&Address::parse(&engine.address(&name)).expect("an address"), &TABLES, &unhurried());
    drop(store.expect("its tables are made"));
    let front = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = through(&engine, &name, &front);
    let (all, socket) = (Arc::<Mutex<Vec<Arc<Mutex<Turns>>>>>::default(), socket(&engine));
    let connections = Arc::clone(&all);
    thread::spawn(move || {
        for client in front.incoming().map_while(Result::ok) {
            let turns = Arc::<Mutex<Turns>>::default();
            all.lock().expect("all").push(Arc::clone(&turns));
            relay(client, UnixStream::connect(&socket).expect("the engine"), turns);
        }
    });
    let _store = KvStore::open(&address, &TABLES, &unhurried()).expect("open");
    // The last one is that of the pool; behind its beginning the store has asked once.
    let taken: Vec<u32> =
        connections.lock().expect("all").iter().map(|turns| turns.lock().expect("turns").taken).collect();
    assert!(taken.last().is_some_and(|taken| *taken <= TRIPS_MAX), "{taken:?}");
}
