//! Connections of clients: what comes of them and goes to them, and the answers that are the balancer's own.

use std::time::Duration;

use larix_proto::proxy_header::{self, HeaderProgress};
use larix_proto::{Frame, LdapResult, MessageId, ResponseOp, ResultCode, encode, frame};

use super::{Balancer, OUTPUT_HIGH, authorize};
use crate::client::{Arrival, Client, State};

impl Balancer {
    /// A client has connected. None: no TLS can be begun, or too many PROXY headers are awaited.
    pub(crate) fn open_client(&mut self, arrival: Arrival, now: Duration) -> Option<u64> {
        let mut client = Client::new(arrival, now);
        authorize(&self.settings, &mut client, "", "");
        if arrival.is_tls {
            client.wire.begin_tls(self.client_tls.as_ref()?).ok()?;
        }
        if arrival.is_proxied {
            if self.awaited >= proxy_header::AWAITED_MAX {
                (self.tell)(&format!(
                    "refused {}: too many connections wait for their PROXY header",
                    client.name()
                ));
                return None;
            }
            self.awaited += 1;
        }
        self.next += 1;
        self.counters.clients += 1;
        self.client_number += 1;
        client.number = self.client_number;
        self.clients.insert(self.next, client);
        Some(self.next)
    }

    /// Whether more is to be read of a client.
    pub(crate) fn client_reads(&self, id: u64) -> bool {
        self.clients
            .get(&id)
            .is_some_and(|client| client.state == State::Open && client.wire.waiting() < OUTPUT_HIGH)
    }

    /// Bytes have come of a client.
    pub(crate) fn client_received(&mut self, id: u64, bytes: &[u8], now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.state == State::Closing {
            return;
        }
        if client.header.is_some() {
            return self.header_received(id, bytes, now);
        }
        client.last_received = now;
        let mut input = std::mem::take(&mut client.input);
        let received = client.wire.receive(bytes, &mut input);
        client.input = input;
        match received {
            Ok(()) => self.advance(id, now),
            // The alert goes out, if there is one.
            Err(_) => self.end_client(id, None),
        }
        self.touch_client(id);
    }

    /// Bytes have come of a client that begins with a PROXY header.
    pub(super) fn header_received(&mut self, id: u64, bytes: &[u8], now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(header) = &mut client.header else { return };
        header.extend_from_slice(bytes);
        match proxy_header::parse(header) {
            Ok(HeaderProgress::Incomplete { .. }) => {}
            Ok(HeaderProgress::Whole { bytes: len, source }) => {
                let behind = header.split_off(len);
                client.header = None;
                client.last_received = now;
                // Without one the proxy in front itself is the client.
                client.address = source.or(client.address);
                self.awaited = self.awaited.saturating_sub(1);
                if !behind.is_empty() {
                    self.client_received(id, &behind, now);
                }
            }
            Err(what) => self.refuse_header(id, &format!("no PROXY header: {what}")),
        }
    }

    /// Closes a client whose PROXY header is not there, without a word: there is nobody who speaks LDAP.
    pub(super) fn refuse_header(&mut self, id: u64, why: &str) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        (self.tell)(&format!("refused {}: {why}", client.name()));
        self.counters.refused += 1;
        self.end_client(id, None);
        if let Some(client) = self.clients.get_mut(&id) {
            client.wire.forget();
        }
    }

    /// Carries out what has come whole, as far as may be now.
    pub(super) fn advance(&mut self, id: u64, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        // Taken out while it is looked at: requests change everything else.
        let mut input = std::mem::take(&mut client.input);
        let mut start = 0;
        while let Some(client) = self.clients.get(&id) {
            if client.state != State::Open || client.wire.waiting() >= OUTPUT_HIGH {
                break;
            }
            let rest = input.get(start..).unwrap_or_default();
            match frame(rest, self.settings.client_message_bytes) {
                Ok(Frame::Complete { len }) => {
                    let has_more = rest.len() > len;
                    if !self.request(id, rest.get(..len).unwrap_or_default(), has_more, now) {
                        // It waits, and is looked at again.
                        break;
                    }
                    start += len;
                }
                Ok(Frame::Incomplete { .. }) => break,
                Err(error) => {
                    self.disconnect(id, ResultCode::PROTOCOL_ERROR, &error.to_string());
                }
            }
        }
        if let Some(client) = self.clients.get_mut(&id)
            && client.state != State::Closing
        {
            input.drain(..start);
            if input.is_empty() {
                input.shrink_to(4096);
            }
            client.input = input;
        }
        self.touch_client(id);
    }

    /// What is to be written to a client now.
    pub(crate) fn client_output(&mut self, id: u64) -> &[u8] {
        let Some(client) = self.clients.get_mut(&id) else { return &[] };
        // Broken TLS has nothing to write; reading ends the connection.
        client.wire.output().unwrap_or_default()
    }

    /// The socket of a client took so many bytes.
    pub(crate) fn client_sent(&mut self, id: u64, count: usize, now: Duration) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let was_full = client.wire.waiting() >= OUTPUT_HIGH;
        client.wire.sent(count);
        client.stalled = None;
        if client.wire.waiting() < OUTPUT_HIGH / 2 && !client.pauses.is_empty() {
            let paused = std::mem::take(&mut client.pauses);
            paused.into_iter().for_each(|upstream| self.resume(upstream, now));
        }
        if was_full && self.clients.get(&id).is_some_and(|client| client.wire.waiting() < OUTPUT_HIGH) {
            self.advance(id, now);
        }
    }

    /// Whether a client's connection ends when what is to be written is written.
    pub(crate) fn client_closes(&self, id: u64) -> bool {
        self.clients.get(&id).is_none_or(Client::closes)
    }

    /// A request of a client is looked at for the last time.
    pub(super) fn count_received(&mut self, id: u64, is_bind: bool) {
        self.counters.operations(is_bind).received += 1;
        if let Some(client) = self.clients.get_mut(&id) {
            client.counts.received += 1;
        }
    }

    /// Answers a request that no server has seen.
    pub(super) fn reject(&mut self, id: u64, message: MessageId, op: ResponseOp, result: &LdapResult) {
        self.counters.operations(op == ResponseOp::Bind).rejected += 1;
        self.refuse(id, message, op, result);
    }

    /// Answers a request with a result of the balancer's own.
    pub(super) fn refuse(&mut self, id: u64, message: MessageId, op: ResponseOp, result: &LdapResult) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.counts.completed += 1;
            encode::result(client.wire.answers(), message, op, result, &[]);
            self.touch_client(id);
        }
    }
}
