//! Connections that are given up, by a clock that stands still: a slow machine changes nothing.

#![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

use std::any::Any;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::slice;
use std::sync::mpsc::channel;

use larix_client::Ambient;
use larix_engine::time::ManualClock;
use larix_proto::control::{ControlValue as _, PagedResults};
use larix_proto::url::LdapUrl;
use larix_proto::{ControlBuf, Frame, Message, ResponseOp, client, encode, frame};
use rustix::event::{Timespec, epoll};

use super::*;
use crate::cookie::Page;
use crate::job::{ANY, Binds, Outcome};
use crate::request::encoded;
use crate::settings::{Kind, ProxySettings};
use crate::shared::tests::job;
use crate::shared::{Command, RequestCarrier as _, Shared};
use crate::thread::{READ_BYTES, ThreadContext};

/// Seconds that the test waits at most for what its own sockets bring about.
const PATIENCE_SECONDS: u32 = 120;

/// A proxy's connections to a target that is the test.
struct World {
    exchange: Exchange,
    clock: Arc<ManualClock>,
    listener: TcpListener,
}

impl World {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = LdapUrl::parse(&format!("ldap://{}", listener.local_addr().unwrap())).unwrap();
        let shared = Arc::new(Shared::new(slice::from_ref(&url)).unwrap());
        // As many as a test has at most: they do not come by way of it.
        shared.jobs.store(10, Ordering::Relaxed);
        let clock = Arc::new(ManualClock::default());
        let context = ThreadContext {
            settings: Arc::new(ProxySettings { targets: vec![url], ..ProxySettings::default() }),
            tls: None,
            shared,
            clock: Arc::<ManualClock>::clone(&clock),
            ambient: Ambient { random: |bytes| bytes.fill(7), end_point_binding: |_| None },
            tell: Box::new(|_| {}),
        };
        let poll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let exchange = Exchange::new(context, poll, channel().0, (0, 0));
        Self { exchange, clock, listener }
    }

    fn submit(&mut self, number: u64, job: Job) {
        self.exchange.carry_out(vec![Command::Submit(number, Box::new(job))]);
    }

    fn pass(&self, seconds: u32) {
        self.clock.advance_micros(seconds * 1_000_000);
    }

    /// What the socket of a connection has.
    fn turn(&mut self) {
        let mut events = Vec::with_capacity(8);
        let patience = Timespec { tv_sec: PATIENCE_SECONDS.into(), tv_nsec: 0 };
        epoll::wait(&self.exchange.poll, rustix::buffer::spare_capacity(&mut events), Some(&patience))
            .unwrap();
        assert!(!events.is_empty());
        self.exchange.happened(&events, &mut vec![0; READ_BYTES]);
    }

    /// Request 1, and the connection that is opened for it.
    fn open(&mut self, job: Job) -> TcpStream {
        self.submit(1, job);
        let mut target = self.listener.accept().unwrap().0;
        target.set_read_timeout(Some(Duration::from_secs(PATIENCE_SECONDS.into()))).unwrap();
        self.turn();
        answer(&mut target, ResponseOp::Bind, &[]);
        self.turn();
        target
    }

    /// Whether connections take no more requests.
    fn closing(&self) -> Vec<bool> {
        self.exchange.connections.values().map(|connection| connection.is_closing).collect()
    }
}

/// Reads the next request and answers it.
fn answer(target: &mut TcpStream, op: ResponseOp, controls: &[ControlBuf]) {
    let (mut pdu, mut byte) = (Vec::new(), [0]);
    while !matches!(frame(&pdu, 1 << 20), Ok(Frame::Complete { .. })) {
        target.read_exact(&mut byte).unwrap();
        pdu.extend_from_slice(&byte);
    }
    let id = Message::decode(&pdu).unwrap().id;
    let mut out = Vec::new();
    encode::result(&mut out, id, op, &LdapResult::success(), controls);
    target.write_all(&out).unwrap();
}

fn compare() -> Job {
    let body = encoded(|out| client::compare(out, ANY, "dc=x", "cn", b"x", &[]));
    Job { body: body.into(), ..job() }
}

/// A connection for each client that is bound by a name, as its pages need: nobody can open one for it later. One that is left over closes.
#[test]
fn users_have_a_connection_for_each_client() {
    let mut world = World::new();
    let dn = NormalDn::from_normal("cn=x");
    let owner = Owner::User(dn.clone());
    let [first, second] = [(); 2].map(|()| -> Arc<dyn Any + Send + Sync> { Arc::new(0_u8) });
    let bind = |whose: &Arc<dyn Any + Send + Sync>| {
        let body = encoded(|out| client::simple_bind(out, ANY, "cn=x", b"secret", &[]));
        let binds = Some(Binds { dn: dn.clone(), client: Some(Arc::downgrade(whose)), password: None });
        Job { owner: Owner::Spare, kind: Kind::Bind, body: body.into(), binds, ..job() }
    };
    let mut targets = Vec::new();
    // The third bind is of a client that has one.
    for (number, whose, expected) in [(1, &first, 1), (2, &second, 2), (3, &second, 2)] {
        world.submit(number, bind(whose));
        let mut target = world.listener.accept().unwrap().0;
        target.set_read_timeout(Some(Duration::from_secs(PATIENCE_SECONDS.into()))).unwrap();
        world.turn();
        answer(&mut target, ResponseOp::Bind, &[]);
        world.turn();
        targets.push(target);
        assert_eq!(world.exchange.ready_connections(&owner), expected, "{number}");
    }
    assert_eq!(targets.len(), 3);
    for (gone, expected) in [(second, 1), (first, 0)] {
        drop(gone);
        world.pass(2);
        world.exchange.expire();
        assert_eq!(world.exchange.ready_connections(&owner), expected);
    }
}

/// A connection that has died without a word, as behind a firewall that has forgotten it, costs one request its deadline.
#[test]
fn a_silent_connection_is_replaced() {
    let mut world = World::new();
    let (sender, end) = channel();
    let sink = Sink::Once(Box::new(move |outcome: Outcome| sender.send(outcome.result.code).unwrap()));
    let _target = world.open(Job { patience: Some(NETWORK_TIMEOUT), sink, ..compare() });
    world.pass(9);
    world.exchange.expire();
    assert_eq!(world.closing(), [false]);
    world.pass(1);
    world.exchange.expire();
    assert_eq!(end.try_recv(), Ok(ResultCode::ADMIN_LIMIT_EXCEEDED));
    assert!(world.closing().is_empty());
}

/// What a client gives up at once says nothing about a connection over which another one waits for long.
#[test]
fn a_connection_with_a_long_request_stays() {
    for (seconds_before, seconds_since, expected) in
        [(0, 0, false), (60, 0, false), (60, 9, false), (0, 10, true), (60, 10, true)]
    {
        let mut world = World::new();
        let _target = world.open(compare());
        world.pass(seconds_before);
        world.submit(2, compare());
        world.pass(seconds_since);
        world.exchange.give_up(2, None);
        assert_eq!(world.closing(), [expected], "{seconds_before} {seconds_since}");
    }
}

/// Nor does a request that takes long end an answer that another client reads page by page over the same connection.
#[test]
fn pages_outlive_a_request_that_takes_long() {
    let mut world = World::new();
    let mut target = world.open(Job { page: Some(Page::First), ..compare() });
    let page = PagedResults { size: 0, cookie: b"12345678" }.to_control(false);
    answer(&mut target, ResponseOp::Compare, &[page]);
    world.turn();
    world.submit(2, compare());
    world.pass(10);
    world.exchange.give_up(2, None);
    assert_eq!(world.closing(), [false]);
    // Unless it is the next page that does not come.
    let id = world.exchange.connections.keys().copied().next().unwrap();
    world.submit(3, Job { page: Some(Page::After(id)), ..compare() });
    world.pass(10);
    world.exchange.give_up(3, None);
    assert!(world.closing().is_empty());
}
