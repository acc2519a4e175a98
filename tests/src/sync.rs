//! A consumer of content synchronisation (RFC 4533) for tests: it asks, keeps a copy, and can say what came.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use larix_proto::control::{EntryState, SyncDone, SyncMode, SyncRequest, SyncState};
use larix_proto::extended::SyncInfo;
use larix_proto::{
    ControlBuf, ControlValue, FilterBuf, Frame, MessageId, Response, ResponseMessage, Scope, client, frame,
};

use crate::raw::PATIENCE;

/// What a consumer asks for.
#[derive(Clone, Debug)]
pub struct SyncSearch<'a> {
    pub dn: &'a str,
    pub password: &'a str,
    pub base: &'a str,
    pub scope: Scope,
    pub filter: &'a str,
    pub attributes: &'a [&'a str],
    pub persist: bool,
    pub size_limit: u32,
}

impl Default for SyncSearch<'_> {
    fn default() -> Self {
        Self {
            dn: "cn=admin,dc=example,dc=com",
            password: "secret",
            base: "dc=example,dc=com",
            scope: Scope::Subtree,
            filter: "(objectClass=*)",
            attributes: &["*", "+"],
            persist: true,
            size_limit: 0,
        }
    }
}

/// The end of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchEnd {
    pub code: u32,
    pub text: String,
}

/// An entry: its name, and its attributes by their names.
pub type NamedEntry = (String, BTreeMap<String, BTreeSet<Vec<u8>>>);

/// A copy of a provider's content, and the connection that keeps it so.
#[derive(Debug, Default)]
pub struct Consumer {
    connection: Option<(TcpStream, Vec<u8>)>,
    /// By entryUUID.
    pub entries: BTreeMap<[u8; 16], NamedEntry>,
    pub cookie: Option<String>,
    /// The cookie beside the last entry, if there was one.
    pub beside: Option<String>,
    /// Each message in short, as it came.
    pub messages: Vec<String>,
    pub refreshed: bool,
    present: BTreeSet<[u8; 16]>,
}

impl Consumer {
    /// Connects and asks, with the cookie that it has.
    ///
    /// # Panics
    /// The provider is not there.
    pub fn ask(&mut self, address: SocketAddr, request: &SyncSearch<'_>) {
        let mut socket = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        socket.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        let mut out = Vec::new();
        client::simple_bind(&mut out, MessageId(1), request.dn, request.password.as_bytes(), &[]);
        let filter = FilterBuf::parse(request.filter).expect("a filter");
        let mode = if request.persist { SyncMode::RefreshAndPersist } else { SyncMode::RefreshOnly };
        let cookie = self.cookie.as_deref().map(str::as_bytes);
        let control = SyncRequest { mode, cookie, reload_hint: false }.to_control(true);
        let search = client::Search {
            size_limit: request.size_limit,
            attributes: request.attributes,
            ..client::Search::new(request.base, request.scope, filter.as_filter())
        };
        let manage = ControlBuf { oid: larix_proto::oid::MANAGE_DSA_IT.into(), critical: true, value: None };
        client::search(&mut out, MessageId(2), &search, &[control, manage]);
        socket.write_all(&out).expect("the request is sent");
        self.connection = Some((socket, Vec::new()));
        self.refreshed = false;
        self.present.clear();
        self.messages.clear();
    }

    /// Goes on until the refresh is done, or the search.
    pub fn refresh(&mut self) -> Option<SearchEnd> {
        while !self.refreshed {
            if let Some(end) = self.step() {
                return Some(end);
            }
        }
        None
    }

    /// Goes on until the copy is as wanted.
    ///
    /// # Panics
    /// The search ended before.
    pub fn until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            if let Some(end) = self.step() {
                panic!("ended before it was done: {end:?}");
            }
        }
    }

    /// Sends something more on the connection.
    pub fn send(&mut self, bytes: &[u8]) {
        let (socket, _) = self.connection.as_mut().expect("a connection");
        socket.write_all(bytes).expect("the request is sent");
    }

    /// Takes one message; the end of the search, if it is that.
    ///
    /// # Panics
    /// The connection was closed, or something came that does not belong here.
    pub fn step(&mut self) -> Option<SearchEnd> {
        let pdu = self.receive().expect("a message");
        let message = Response::decode_message(&pdu).expect("a response");
        self.take(&message)
    }

    /// Takes messages until the provider closes the connection.
    pub fn drain(&mut self) {
        while let Some(pdu) = self.receive() {
            let message = Response::decode_message(&pdu).expect("a response");
            self.take(&message);
        }
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let (socket, input) = self.connection.as_mut()?;
        loop {
            if let Ok(Frame::Complete { len }) = frame(input, 64 << 20) {
                return Some(input.drain(..len).collect());
            }
            let mut chunk = [0; 65536];
            match socket.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => input.extend_from_slice(&chunk[..count]),
                Err(error) => panic!("nothing came: {error}; so far {:?}", self.messages),
            }
        }
    }

    fn take(&mut self, message: &ResponseMessage<'_>) -> Option<SearchEnd> {
        match message.response {
            Response::Bind { result, .. } => assert_eq!(result.code.0, 0, "bind: {}", result.diagnostic),
            Response::Entry(entry) => {
                let control = message.controls.iter().find(|c| c.oid == SyncState::OID);
                let state = SyncState::decode(control.expect("a state").value).expect("a state's value");
                let attributes = entry.attributes.iter().map(|attribute| {
                    let values = attribute.values.iter().map(<[u8]>::to_vec).collect();
                    (attribute.description.to_lowercase(), values)
                });
                // It follows from other entries, which may change without this one.
                let attributes = attributes.filter(|(name, _)| name != "hassubordinates");
                self.messages.push(format!("{:?} {}", state.state, entry.dn).to_lowercase());
                if state.state == EntryState::Delete {
                    self.entries.remove(&state.entry_uuid);
                } else {
                    self.entries.insert(state.entry_uuid, (entry.dn.to_owned(), attributes.collect()));
                    self.present.insert(state.entry_uuid);
                }
                self.beside = state.cookie.map(|cookie| String::from_utf8_lossy(cookie).into_owned());
                self.learn(state.cookie);
            }
            Response::Intermediate { name, value } => {
                assert_eq!(name, Some(SyncInfo::OID));
                self.inform(&SyncInfo::decode(value).expect("sync info"));
            }
            Response::SearchDone(result) => {
                let done = message.controls.iter().find(|c| c.oid == SyncDone::OID);
                if let Some(done) = done.map(|c| SyncDone::decode(c.value).expect("a done control")) {
                    if !done.refresh_deletes && done.cookie.is_some() {
                        self.drop_absent();
                    }
                    self.learn(done.cookie);
                }
                self.refreshed = true;
                self.messages.push(format!("done {}", result.code.0));
                return Some(SearchEnd { code: result.code.0, text: result.diagnostic.to_owned() });
            }
            Response::Extended { result, .. } => self.messages.push(format!("extended {}", result.code.0)),
            Response::Reference(_) => self.messages.push("reference".to_owned()),
            other => panic!("{other:?}"),
        }
        None
    }

    fn inform(&mut self, info: &SyncInfo<'_>) {
        match info {
            SyncInfo::NewCookie(cookie) => {
                self.messages.push("cookie".to_owned());
                self.learn(Some(cookie));
            }
            SyncInfo::RefreshDelete { cookie, .. } => {
                self.messages.push("refresh delete".to_owned());
                self.refreshed = true;
                self.learn(*cookie);
            }
            SyncInfo::RefreshPresent { cookie, .. } => {
                self.messages.push("refresh present".to_owned());
                self.drop_absent();
                self.refreshed = true;
                self.learn(*cookie);
            }
            SyncInfo::IdSet { deletes, uuids, .. } => {
                self.messages.push(format!("{} {}", if *deletes { "gone" } else { "present" }, uuids.len()));
                for uuid in uuids {
                    if *deletes {
                        self.entries.remove(uuid);
                    } else {
                        self.present.insert(*uuid);
                    }
                }
            }
        }
    }

    fn drop_absent(&mut self) {
        let present = std::mem::take(&mut self.present);
        self.entries.retain(|uuid, _| present.contains(uuid));
    }

    /// A cookie with some CSNs says nothing of other servers'.
    fn learn(&mut self, cookie: Option<&[u8]>) {
        let Some(cookie) = cookie.map(|bytes| String::from_utf8_lossy(bytes).into_owned()) else { return };
        if let Some((_, csns)) = cookie.split_once("csn=")
            && !cookie.contains("delcsn")
        {
            let mut known: BTreeMap<String, String> = BTreeMap::new();
            let before = self.cookie.clone().unwrap_or_default();
            let before = before.split_once("csn=").map(|(_, csns)| csns).unwrap_or_default();
            for csn in before.split(';').chain(csns.split(';')).filter(|csn| !csn.is_empty()) {
                let sid = csn.split('#').nth(2).unwrap_or_default().to_owned();
                let newest = known.entry(sid).or_default();
                if newest.as_str() < csn {
                    csn.clone_into(newest);
                }
            }
            let csns: Vec<String> = known.into_values().collect();
            self.cookie = Some(format!("rid=001,csn={}", csns.join(";")));
        }
    }
}

/// The values of an entry, by the names of their attributes in lower case.
pub type Attributes = BTreeMap<String, BTreeSet<Vec<u8>>>;

/// Entries by their names, as an ordinary search shows them; `None` when there is no server or no such base.
pub fn read(address: SocketAddr, request: &SyncSearch<'_>) -> Option<BTreeMap<String, Attributes>> {
    let mut socket = TcpStream::connect(address).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut out = Vec::new();
    client::simple_bind(&mut out, MessageId(1), request.dn, request.password.as_bytes(), &[]);
    let filter = FilterBuf::parse(request.filter).ok()?;
    let search = client::Search {
        attributes: request.attributes,
        ..client::Search::new(request.base, request.scope, filter.as_filter())
    };
    client::search(&mut out, MessageId(2), &search, &[]);
    socket.write_all(&out).ok()?;
    let (mut input, mut entries) = (Vec::new(), BTreeMap::new());
    loop {
        while let Ok(Frame::Complete { len }) = frame(&input, 64 << 20) {
            let pdu: Vec<u8> = input.drain(..len).collect();
            match Response::decode_message(&pdu).ok()?.response {
                Response::Entry(entry) => {
                    let attributes = entry.attributes.iter().map(|attribute| {
                        let values = attribute.values.iter().map(<[u8]>::to_vec).collect();
                        (attribute.description.to_lowercase(), values)
                    });
                    entries.insert(entry.dn.to_lowercase(), attributes.collect());
                }
                Response::SearchDone(result) => return (result.code.0 == 0).then_some(entries),
                _ => {}
            }
        }
        let mut chunk = [0; 65536];
        match socket.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(count) => input.extend_from_slice(chunk.get(..count)?),
        }
    }
}
