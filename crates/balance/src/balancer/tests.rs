//! The core with clients and servers that are bytes: no socket and no clock.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test says where it failed by panicking")]

mod closing;
mod faults;
mod headers;
mod random;
mod reload;
mod routes;
mod verified;

use std::sync::Mutex;

use larix_client::PeerFault;
use larix_proto::{
    Frame, LdapResult, Message, MessageId, Request, Response, ResponseOp, ResultCode, client, encode, frame,
    proxy_header,
};

use super::*;
use crate::client::Arrival;

const BALANCER: &str = "cn=balancer,dc=example,dc=com";

/// A balancer whose sockets are the test.
struct World {
    balancer: Balancer,
    now: Duration,
    log_lines: Arc<Mutex<Vec<String>>>,
}

/// A request as a server sees it.
#[derive(Debug, PartialEq, Eq)]
struct ReceivedRequest {
    id: u32,
    /// `delete dc=x`, `bind cn=x`, `abandon 3`.
    what: String,
    /// The identity of the proxied authorization control.
    identity: Option<String>,
}

impl World {
    fn new(conf: &str) -> Self {
        let mut world = Self::unconnected(conf);
        world.connect_all();
        world
    }

    fn unconnected(conf: &str) -> Self {
        let settings = read(conf);
        let log_lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&log_lines);
        let ambient = Ambient { random: |bytes| bytes.fill(7), end_point_binding: |_| None };
        let tell = Box::new(move |line: &str| log.lock().unwrap().push(line.to_owned()));
        let balancer = Balancer::new(Arc::new(settings), None, None, ambient, tell);
        Self { balancer, now: Duration::from_secs(100), log_lines }
    }

    /// Makes every connection that is wanted, and answers its bind.
    fn connect_all(&mut self) {
        while let Some(planned) = self.balancer.next_connection(self.now) {
            let id = self.balancer.opened(planned, self.now).unwrap();
            self.settle();
            if planned.pool == Pool::Bind {
                // What it has is a client's already.
                continue;
            }
            for request in self.requests(id) {
                assert_eq!(request.what, format!("bind {BALANCER}"));
                self.answer(id, request.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
            }
        }
        self.settle();
    }

    /// Closes what is to be closed; connections that ended.
    fn settle(&mut self) -> Vec<u64> {
        let touched = self.balancer.take_touched(self.now);
        touched.ended_upstreams
    }

    fn client(&mut self) -> u64 {
        self.balancer.open_client(Arrival::default(), self.now).unwrap()
    }

    fn send(&mut self, client: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        self.balancer.client_received(client, &bytes, self.now);
        self.settle();
    }

    fn delete(&mut self, client: u64, id: u32, dn: &str) {
        self.send(client, |out| client::delete(out, MessageId(id), dn, &[]));
    }

    fn search(&mut self, client: u64, id: u32, base: &str) {
        let filter = larix_proto::FilterBuf::parse("(objectClass=*)").unwrap();
        let search = client::Search::new(base, larix_proto::Scope::Subtree, filter.as_filter());
        self.send(client, |out| client::search(out, MessageId(id), &search, &[]));
    }

    fn bind(&mut self, client: u64, id: u32, name: &str, password: &str) {
        self.send(client, |out| client::simple_bind(out, MessageId(id), name, password.as_bytes(), &[]));
    }

    /// Connections of a kind, in the order in which they were made.
    fn upstreams(&self, pool: Pool) -> Vec<u64> {
        let mut ids: Vec<u64> = self
            .balancer
            .upstreams
            .iter()
            .filter(|(_, upstream)| upstream.pool == pool)
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// What a server has been sent since it was last looked at.
    fn requests(&mut self, upstream: u64) -> Vec<ReceivedRequest> {
        let mut bytes = self.balancer.upstream_output(upstream).to_vec();
        self.balancer.upstream_sent(upstream, bytes.len());
        let mut requests = Vec::new();
        while let Ok(Frame::Complete { len }) = frame(&bytes, usize::MAX - 64) {
            let pdu: Vec<u8> = bytes.drain(..len).collect();
            let message = Message::decode(&pdu).unwrap();
            let what = match message.request {
                Request::Bind(bind) => format!("bind {}", bind.name),
                Request::Search(search) => format!("search {}", search.base),
                Request::Delete(dn) => format!("delete {dn}"),
                Request::Abandon(id) => format!("abandon {id}"),
                Request::Extended(extended) => format!("extended {}", extended.name),
                Request::Unbind => "unbind".to_owned(),
                other => format!("{other:?}"),
            };
            let identity = message
                .controls
                .iter()
                .find(|control| control.oid == larix_proto::oid::PROXIED_AUTHORIZATION);
            let identity = identity.map(|control| {
                assert!(control.critical);
                String::from_utf8(control.value.unwrap().to_vec()).unwrap()
            });
            requests.push(ReceivedRequest { id: message.id.0, what, identity });
        }
        assert!(bytes.is_empty());
        requests
    }

    /// The one request that one of the shared connections has, and which.
    fn one_request(&mut self) -> (u64, ReceivedRequest) {
        let mut found = Vec::new();
        for pool in Pool::ALL {
            for upstream in self.upstreams(pool) {
                let requests = self
                    .requests(upstream)
                    .into_iter()
                    .filter(|request| !request.what.starts_with("abandon"));
                found.extend(requests.map(|request| (upstream, request)));
            }
        }
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn answer(&mut self, upstream: u64, id: u32, op: ResponseOp, code: ResultCode, text: &str) {
        let mut bytes = Vec::new();
        encode::result(&mut bytes, MessageId(id), op, &LdapResult::with(code, text), &[]);
        self.receive(upstream, &bytes);
    }

    fn entry(&mut self, upstream: u64, id: u32, dn: &str) {
        let mut bytes = Vec::new();
        encode::EntryEncoder::begin(&mut bytes, MessageId(id), dn).finish(&[]);
        self.receive(upstream, &bytes);
    }

    fn receive(&mut self, upstream: u64, bytes: &[u8]) {
        self.balancer.upstream_received(upstream, bytes, self.now);
        self.settle();
    }

    /// What a client has been sent: `3 SearchDone 0 text`, `3 entry dc=x`.
    fn answers(&mut self, client: u64) -> Vec<String> {
        let mut bytes = self.balancer.client_output(client).to_vec();
        self.balancer.client_sent(client, bytes.len(), self.now);
        self.settle();
        let mut found = Vec::new();
        while let Ok(Frame::Complete { len }) = frame(&bytes, usize::MAX - 64) {
            let pdu: Vec<u8> = bytes.drain(..len).collect();
            let message = Response::decode_message(&pdu).unwrap();
            let id = message.id;
            found.push(match (message.response.result(), message.response) {
                (Some((op, result)), _) => {
                    format!("{id} {op:?} {} {}", result.code.0, result.diagnostic).trim_end().to_owned()
                }
                (None, Response::Entry(entry)) => format!("{id} entry {}", entry.dn),
                (None, other) => format!("{id} {other:?}"),
            });
        }
        assert!(bytes.is_empty());
        found
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.balancer.expire(self.now);
        self.settle();
    }

    /// Binds a client with success.
    fn bound(&mut self, client: u64, name: &str) {
        self.bind(client, 1000, name, "secret");
        let (upstream, request) = self.one_request();
        assert_eq!(request.what, format!("bind {name}"));
        self.answer(upstream, request.id, ResponseOp::Bind, ResultCode::SUCCESS, "");
        assert_eq!(self.answers(client), ["1000 Bind 0"]);
    }
}

fn read(conf: &str) -> BalanceSettings {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lloadd.conf");
    std::fs::write(&path, conf).unwrap();
    larix_configuration::balancer::read(&path).unwrap_or_else(|error| panic!("{error}"))
}

/// A configuration with servers of one tier, so many connections of each kind.
fn conf(servers: usize, connections: usize, more: &str) -> String {
    let mut text = format!(
        "bindconf bindmethod=simple binddn={BALANCER} credentials=secret timeout=30\n{more}\ntier roundrobin\n"
    );
    for server in 0..servers {
        text += &format!(
            "backend-server uri=ldap://192.0.2.{server}:389 numconns={connections} bindconns={connections} retry=1000\n"
        );
    }
    text
}

#[test]
fn who_the_balancer_is_by_its_authorization_identity() {
    for (authorization, name, expected) in [
        ("dn:cn=a", "cn=a", true),
        ("DN:cn=a", "cn=a", true),
        ("dn:cn=a", "cn=b", false),
        ("dn:", "", false),
        ("u:a", "a", false),
        ("", "cn=a", false),
    ] {
        assert_eq!(is_named(authorization, name), expected, "{authorization} {name}");
    }
}
