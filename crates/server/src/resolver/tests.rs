//! Lookups at name servers that answer, lie, or say nothing.

use std::sync::mpsc::{Receiver, channel};

use larix_engine::time::{ManualClock, SeededRandom, Timestamp};
use larix_testkit::dns::{CUT_OFF, DnsQuestion, FOUND, NO_SUCH_NAME, NameServer, REFUSED, srv_record};

use super::*;
use crate::clock::SystemClock;

/// How long a server has that is to answer: the machine may have much else to do.
const LONG: u32 = 120;

/// One server, which has so many seconds, once.
fn asked_once(server: &NameServer, timeout: u32) -> NameServers {
    NameServers { addresses: vec![server.address], timeout, attempts: 1 }
}

fn hosts(servers: &NameServers, seconds: u32) -> Result<Vec<String>, String> {
    let clock = SystemClock;
    let until = clock.monotonic().plus_seconds(seconds);
    let found = servers.hosts("_ldap._tcp.example.com", until, (&clock, &SeededRandom::new(1)));
    found.map(|(hosts, _)| hosts.into_iter().map(|host| format!("{}:{}", host.name, host.port)).collect())
}

fn good(question: &DnsQuestion) -> Vec<u8> {
    question.answer(FOUND, &[srv_record(0, 0, 389, "a.example.com")])
}

#[test]
fn servers_that_lie() {
    let with_id = |mut answer: Vec<u8>| {
        answer[0] ^= 1;
        answer
    };
    let another = |question: &DnsQuestion| {
        let mut answer = good(question);
        // Another name of the same length.
        answer[14] ^= 1;
        answer
    };
    let many = vec![srv_record(0, 0, 389, "a-host-with-a-long-name.example.com"); 300];
    type Answers = Box<dyn Fn(&DnsQuestion) -> Vec<Vec<u8>> + Send + Sync>;
    let cases: Vec<(&str, Answers, Result<usize, &str>)> = vec![
        ("honest", Box::new(|question| vec![good(question)]), Ok(1)),
        (
            "strays first",
            Box::new(move |question| {
                vec![with_id(good(question)), another(question), vec![1], good(question)]
            }),
            Ok(1),
        ),
        ("strays alone", Box::new(move |question| vec![with_id(good(question))]), Err("no answer in time")),
        (
            "a flood",
            Box::new(move |question| vec![with_id(good(question)); 200]),
            Err("answers to other questions"),
        ),
        ("nothing", Box::new(|_| vec![]), Err("no answer in time")),
        ("refused", Box::new(|question| vec![question.answer(REFUSED, &[])]), Err("response code 5")),
        ("no such name", Box::new(|question| vec![question.answer(NO_SUCH_NAME, &[])]), Ok(0)),
        (
            "garbage with the id",
            Box::new(|question| vec![[&question.bytes[..2], &[0x81, 0x80, 0, 1, 0, 9, 0, 0, 0, 0]].concat()]),
            Err("not well-formed"),
        ),
        (
            "more than a datagram",
            Box::new(move |question| match question.over_tcp {
                true => vec![question.answer(FOUND, &many)],
                false => vec![question.answer(CUT_OFF, &[])],
            }),
            Ok(100),
        ),
        (
            "cut off over TCP",
            Box::new(|question| vec![question.answer(CUT_OFF, &[])]),
            Err("cut off over TCP"),
        ),
        (
            "nothing over TCP",
            Box::new(|question| match question.over_tcp {
                true => vec![],
                false => vec![question.answer(CUT_OFF, &[])],
            }),
            Err("unexpected end of file"),
        ),
    ];
    for (what, answers, expected) in cases {
        let server = NameServer::start(answers);
        // One that says nothing is waited for.
        let timeout = if expected == Err("no answer in time") { 1 } else { LONG };
        let found = hosts(&asked_once(&server, timeout), LONG);
        match (&found, expected) {
            (Ok(hosts), Ok(count)) => assert_eq!(hosts.len(), count, "{what}"),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{what}: {why}"),
            _ => panic!("{what}: {found:?}"),
        }
    }
}

/// The next server is asked if one does not answer, and no longer than there is time.
#[test]
fn several_servers() {
    let (silent, honest) =
        (NameServer::start(|_| vec![]), NameServer::start(|question| vec![good(question)]));
    let refusing = NameServer::start(|question| vec![question.answer(REFUSED, &[])]);
    let servers = |all: &[&NameServer], attempts| NameServers {
        addresses: all.iter().map(|server| server.address).collect(),
        timeout: 1,
        attempts,
    };
    // The time for the silent one is the same as for the honest one, which may wait for a processor.
    let patient = NameServers { timeout: 5, ..servers(&[&refusing, &silent, &honest], 1) };
    assert_eq!(hosts(&patient, LONG), Ok(vec!["a.example.com:389".to_owned()]));
    assert_eq!(honest.asked(), 1);
    assert!(hosts(&servers(&[&silent], 3), 2).is_err());
    assert!(silent.asked() <= 3, "two seconds are two questions: {}", silent.asked());
    assert!(hosts(&servers(&[&refusing], 2), 10).is_err());
    assert_eq!(refusing.asked(), 3);
    assert!(hosts(&servers(&[], 2), 10).unwrap_err().contains("no name server is known"));
}

struct World {
    resolver: Resolver,
    clock: Arc<ManualClock>,
    servers: Arc<[SocketAddr]>,
}

fn world(server: &NameServer) -> World {
    // Time stands still, so no lookup is late.
    let clock = Arc::new(ManualClock::new(Timestamp::from_seconds(0)));
    let resolver = Resolver::new(Arc::clone(&clock) as _);
    World { resolver, clock, servers: vec![server.address].into() }
}

impl World {
    fn begin(&self, domain: &str) -> (LookupReply, Receiver<Resolution>) {
        let (sender, receiver) = channel();
        let reply = self.resolver.find(&self.servers, (domain, "IP=192.0.2.1:1"), &mut || {
            let sender = sender.clone();
            Box::new(move |resolution: Resolution| sender.send(resolution).unwrap_or_default())
        });
        (reply, receiver)
    }

    /// The URLs; none: no server has answered.
    fn urls(&self, domain: &str) -> Option<Vec<String>> {
        let resolution = match self.begin(domain) {
            (LookupReply::Now(resolution), _) => resolution,
            (LookupReply::Later(_), receiver) => receiver.recv().unwrap(),
            (LookupReply::Busy, _) => panic!("busy"),
        };
        resolution.ok().map(|hosts| hosts.urls(&SeededRandom::new(3)))
    }

    fn advance(&self, seconds: u32) {
        self.clock.advance_micros(seconds * 1_000_000);
    }
}

/// Both services are asked for, and what is known is not asked for again as long as it holds.
#[test]
fn what_is_known_is_not_asked_for() {
    let server = NameServer::start(|question| {
        let records: &[Vec<u8>] = match &*question.name {
            "_ldaps._tcp.example.com" => {
                &[srv_record(2, 0, 636, "b.example.com"), srv_record(1, 0, 1636, "a.example.com")]
            }
            "_ldap._tcp.example.com" => &[srv_record(0, 0, 389, "c.example.com"), srv_record(0, 0, 0, "")],
            "_ldap._tcp.plain.example" => &[srv_record(0, 0, 389, "c.example.com")],
            name if name.ends_with("broken.example") => return vec![question.answer(REFUSED, &[])],
            _ => return vec![question.answer(NO_SUCH_NAME, &[])],
        };
        vec![question.answer(FOUND, records)]
    });
    let world = world(&server);
    let all = ["ldaps://a.example.com:1636", "ldaps://b.example.com:636", "ldap://c.example.com:389"];
    for (domain, advance, urls, questions) in [
        ("example.com", 0, Some(&all[..]), 2),
        ("example.com", 59, Some(&all[..]), 0),
        ("example.com", 1, Some(&all[..]), 2),
        ("plain.example", 0, Some(&all[2..]), 2),
        ("nothing.example", 0, Some(&[]), 2),
        ("nothing.example", 30, Some(&[]), 0),
        ("nothing.example", 30, Some(&[]), 2),
        // Each of two attempts.
        ("broken.example", 0, None, 2),
        ("broken.example", 4, None, 0),
        ("broken.example", 1, None, 2),
    ] {
        world.advance(advance);
        let before = server.asked();
        let expected = urls.map(|urls| urls.iter().map(|url| (*url).to_owned()).collect());
        assert_eq!(world.urls(domain), expected, "{domain} {advance}");
        assert_eq!(server.asked() - before, questions, "{domain} {advance}");
    }
}

/// Who asks for the same at once waits for one lookup; who gives up is not called.
#[test]
fn one_asks_for_all() {
    let (open, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let server = NameServer::start(move |question| {
        // Until the test lets it.
        gate.lock().unwrap().recv().unwrap();
        vec![good(question)]
    });
    let world = world(&server);
    let waiting: Vec<_> = (0..5).map(|_| world.begin("example.com")).collect();
    let (reply, given_up) = world.begin("example.com");
    let LookupReply::Later(ticket) = reply else { panic!("it is not known yet") };
    ticket.give_up();
    open.send(()).unwrap();
    open.send(()).unwrap();
    for (reply, receiver) in waiting {
        assert!(matches!(reply, LookupReply::Later(_)));
        assert!(receiver.recv().unwrap().is_ok());
    }
    assert!(given_up.recv().is_err(), "nobody is called who has given up");
    assert_eq!(server.asked(), 2);
    let state = world.resolver.shared.state();
    assert_eq!((state.waiting, state.lookups.len(), state.cache.len()), (0, 0, 1));
}

/// However many domains are asked for, so many are known.
#[test]
fn what_is_known_is_bounded() {
    let mut state = State::default();
    let servers: Arc<[SocketAddr]> = Vec::new().into();
    let at = |seconds: usize| Monotonic::default().plus_seconds(u32::try_from(seconds).unwrap());
    for number in 0..3 * CACHE_MAX {
        let key = (Arc::clone(&servers), format!("{number}.example"));
        state.remember(key, Ok(Arc::default()), (at(number), at(number + 2 * CACHE_MAX)));
        assert!(state.cache.len() <= CACHE_MAX);
    }
    assert!(state.cache.contains_key(&(servers, format!("{}.example", 3 * CACHE_MAX - 1))));
}
