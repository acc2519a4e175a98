//! A provider of content synchronisation (RFC 4533) that says what a test has it say, when the test wants it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use larix_proto::control::{EntryState, SyncState};
use larix_proto::encode::{EntryEncoder, bind_result, extended_result, intermediate};
use larix_proto::extended::SyncInfo;
use larix_proto::{ControlValue, Frame, LdapResult, Message, MessageId, Request, ResultCode, frame};
use larix_testkit::accepted;

use crate::raw::PATIENCE;

/// Waits for consumers, one at a time.
#[derive(Debug)]
pub struct ScriptedProvider {
    listener: TcpListener,
    pub address: SocketAddr,
}

/// The search of one consumer.
#[derive(Debug)]
pub struct ConsumerSearch {
    socket: TcpStream,
    id: MessageId,
}

impl ScriptedProvider {
    /// # Panics
    /// When loopback gives no port.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("the address of a bound socket");
        Self { listener, address }
    }

    /// Waits for a consumer, and says nothing to it.
    ///
    /// # Panics
    /// When there is no connection to be had.
    pub fn accept_silently(&self) -> TcpStream {
        accepted(&self.listener)
    }

    /// Waits for a consumer and its search; every bind succeeds, and no extended operation is known.
    ///
    /// # Panics
    /// What comes is something else.
    pub fn accept(&self) -> ConsumerSearch {
        let mut socket = accepted(&self.listener);
        socket.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        let (mut input, mut chunk) = (Vec::new(), [0; 4_096]);
        loop {
            while let Ok(Frame::Complete { len }) = frame(&input, 1 << 20) {
                let pdu: Vec<u8> = input.drain(..len).collect();
                let message = Message::decode(&pdu).expect("a request");
                match message.request {
                    Request::Search(_) => return ConsumerSearch { id: message.id, socket },
                    Request::Bind(_) => {
                        let mut out = Vec::new();
                        bind_result(&mut out, message.id, &LdapResult::success(), None, &[]);
                        socket.write_all(&out).expect("the consumer takes it");
                    }
                    // Any answer is a sign of life.
                    Request::Extended(_) => {
                        let mut out = Vec::new();
                        let result = LdapResult::with(ResultCode::PROTOCOL_ERROR, "");
                        extended_result(&mut out, message.id, &result, None, None, &[]);
                        socket.write_all(&out).expect("the consumer takes it");
                    }
                    other => panic!("{other:?}"),
                }
            }
            let count = socket.read(&mut chunk).expect("a request");
            assert!(count > 0, "the consumer has gone");
            input.extend_from_slice(&chunk[..count]);
        }
    }
}

impl ConsumerSearch {
    /// The consumer's end of the connection.
    ///
    /// # Panics
    /// When it has gone.
    pub fn consumer(&self) -> SocketAddr {
        self.socket.peer_addr().expect("a connection")
    }

    /// Sends an entry as one that came into being, without a cookie.
    pub fn add(&mut self, dn: &str, uuid: [u8; 16], attributes: &[(&str, &str)]) {
        let mut out = Vec::new();
        let mut entry = EntryEncoder::begin(&mut out, self.id, dn);
        for (description, value) in attributes {
            entry.begin_attribute(description);
            entry.value(value.as_bytes());
            entry.end_attribute();
        }
        let state = SyncState { state: EntryState::Add, entry_uuid: uuid, cookie: None };
        entry.finish(&[state.to_control(false)]);
        self.send(&out);
    }

    /// Says something of the synchronisation.
    pub fn inform(&mut self, info: &SyncInfo<'_>) {
        let mut out = Vec::new();
        intermediate(&mut out, self.id, Some(SyncInfo::OID), Some(&info.encode()), &[]);
        self.send(&out);
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the consumer takes it");
    }
}
