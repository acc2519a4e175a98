//! An Active Directory that answers searches with the DirSync control as a test has it answer.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use larix_proto::control::{DirSyncRequest, DirSyncResponse};
use larix_proto::encode::{EntryEncoder, bind_result, result};
use larix_proto::{
    ControlBuf, ControlValue, Frame, LdapResult, Message, MessageId, Request, ResponseOp, ResultCode, frame,
    oid,
};
use larix_testkit::accepted;

use crate::raw::PATIENCE;

/// Waits for consumers, one at a time.
#[derive(Debug)]
pub struct ScriptedDirectory {
    listener: TcpListener,
    pub address: SocketAddr,
}

/// The connection of a consumer.
#[derive(Debug)]
pub struct DirectoryConnection {
    socket: TcpStream,
    input: Vec<u8>,
    id: MessageId,
}

/// What a search asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct DirectorySearch {
    pub base: String,
    pub filter: String,
    /// Of the DirSync control, if there is one.
    pub cookie: Option<Vec<u8>>,
    pub shows_deleted: bool,
}

impl ScriptedDirectory {
    /// # Panics
    /// When loopback gives no port.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("the address of a bound socket");
        Self { listener, address }
    }

    /// Waits for a consumer and its first search; every bind succeeds.
    ///
    /// # Panics
    /// What comes is something else.
    pub fn accept(&self) -> (DirectoryConnection, DirectorySearch) {
        let socket = accepted(&self.listener);
        socket.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        let mut connection = DirectoryConnection { socket, input: Vec::new(), id: MessageId(0) };
        let search = connection.next_search().expect("a search");
        (connection, search)
    }
}

impl DirectoryConnection {
    /// The next search. `None`: the consumer has gone.
    ///
    /// # Panics
    /// What comes is something else.
    pub fn next_search(&mut self) -> Option<DirectorySearch> {
        let mut chunk = [0; 4_096];
        loop {
            while let Ok(Frame::Complete { len }) = frame(&self.input, 1 << 20) {
                let pdu: Vec<u8> = self.input.drain(..len).collect();
                let message = Message::decode(&pdu).expect("a request");
                match message.request {
                    Request::Search(search) => {
                        self.id = message.id;
                        let sync = message.controls.iter().find(|control| control.oid == oid::DIR_SYNC);
                        let sync = sync.map(|control| {
                            let sync = DirSyncRequest::decode(control.value).expect("a DirSync control");
                            assert_eq!(
                                (sync.flags, control.critical),
                                (DirSyncRequest::INCREMENTAL_VALUES, true)
                            );
                            sync.cookie.to_vec()
                        });
                        return Some(DirectorySearch {
                            base: search.base.to_owned(),
                            filter: search.filter.to_string(),
                            cookie: sync,
                            shows_deleted: message
                                .controls
                                .iter()
                                .any(|control| control.oid == oid::SHOW_DELETED),
                        });
                    }
                    Request::Bind(_) => {
                        let mut out = Vec::new();
                        bind_result(&mut out, message.id, &LdapResult::success(), None, &[]);
                        self.send(&out);
                    }
                    Request::Unbind => return None,
                    other => panic!("{other:?}"),
                }
            }
            let count = self.socket.read(&mut chunk).expect("a request");
            if count == 0 {
                return None;
            }
            self.input.extend_from_slice(&chunk[..count]);
        }
    }

    /// Sends an entry with this objectGUID: lines of `name: value`, a name alone for an attribute without values.
    pub fn entry(&mut self, dn: &str, guid: u8, lines: &[&str]) {
        let mut out = Vec::new();
        let mut entry = EntryEncoder::begin(&mut out, self.id, dn);
        let named = |line: &&str| line.split(": ").next().unwrap_or_default().to_owned();
        let mut names: Vec<String> = lines.iter().map(named).collect();
        names.dedup();
        for name in names {
            entry.begin_attribute(&name);
            for line in lines {
                if let Some((own, value)) = line.split_once(": ")
                    && own == name
                {
                    entry.value(value.as_bytes());
                }
            }
            entry.end_attribute();
        }
        entry.begin_attribute("objectGUID");
        entry.value(&[guid; 16]);
        entry.end_attribute();
        entry.finish(&[]);
        self.send(&out);
    }

    /// Ends a page.
    pub fn page(&mut self, cookie: &[u8], more: bool) {
        let control = DirSyncResponse { more, cookie }.to_control(false);
        self.done(ResultCode::SUCCESS, &[control]);
    }

    /// Ends a search.
    pub fn done(&mut self, code: ResultCode, controls: &[ControlBuf]) {
        let mut out = Vec::new();
        let text = if code == ResultCode::SUCCESS { "" } else { "not so" };
        result(&mut out, self.id, ResponseOp::SearchDone, &LdapResult::with(code, text), controls);
        self.send(&out);
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the consumer takes it");
    }
}
