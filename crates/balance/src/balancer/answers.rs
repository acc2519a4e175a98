//! Answers of servers.

use std::collections::HashMap;
use std::time::Duration;

use larix_client::PeerFault;
use larix_proto::control::{ControlValue, PagedResults};
use larix_proto::{Controls, LdapResult, MessageId, ResponseOp, ResultCode, oid};

use super::binds::BindAnswer;
use super::{Balancer, OUTPUT_HIGH, Touched, touch_client};
use crate::client::{Client, Restriction};
use crate::envelope::{self, behind_id};
use crate::upstream::{Kind, Operation, Pool, Upstream};
use larix_configuration::balancer::Coherence;

/// What is to be done about an answer, beside handing it over.
enum Next {
    /// Nothing more has come.
    Done(Option<PeerFault>),
    /// An operation is over.
    Finished(Operation),
    Bind(Operation, BindAnswer),
    /// The client takes its answers too slowly, and others use the connection.
    TooSlow(u32),
    /// The client takes its answers too slowly, and nobody else uses the connection.
    Pause(u64),
    /// An answer is larger than may be.
    TooLarge(u32),
}

impl Balancer {
    /// Bytes have come of a server.
    pub(crate) fn upstream_received(&mut self, id: u64, bytes: &[u8], now: Duration) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        if let Err(fault) = upstream.channel.receive(bytes) {
            // What came whole before the fault is still true.
            self.take_answers(id, now);
            return self.lost(id, &fault, now);
        }
        self.note_ready(id);
        self.take_answers(id, now);
        self.touch_upstream(id);
    }

    /// Hands out what has come whole.
    pub(super) fn take_answers(&mut self, id: u64, now: Duration) {
        loop {
            match self.next_answer(id, now) {
                Next::Done(None) => break,
                Next::Done(Some(fault)) => return self.lost(id, &fault, now),
                Next::Finished(operation) => self.finished(id, &operation, now),
                Next::Bind(operation, answer) => self.bind_answered(id, operation, answer, now),
                Next::TooSlow(message) => self.too_slow(id, message),
                Next::TooLarge(message) => self.too_large(id, message, now),
                Next::Pause(client) => {
                    if let Some(upstream) = self.upstreams.get_mut(&id) {
                        upstream.is_paused = true;
                    }
                    if let Some(client) = self.clients.get_mut(&client) {
                        client.pauses.insert(id);
                    }
                    break;
                }
            }
        }
        if let Some(upstream) = self.upstreams.get(&id)
            && !upstream.is_retiring
            && upstream.channel.messages().is_noticed()
        {
            // What is under way is still answered.
            let url = self.backends.get(upstream.backend).map(|backend| backend.settings.url.to_string());
            let (url, pool) = (url.unwrap_or_default(), upstream.pool.name());
            (self.tell)(&format!("{url}: {pool} connection: the server gave notice of disconnection"));
            self.retire(id);
        }
        self.close_if_retired(id);
    }

    /// Hands over answers up to one that needs more.
    fn next_answer(&mut self, id: u64, now: Duration) -> Next {
        let Self { upstreams, clients, backends, touched, settings, counters, .. } = self;
        let Some(upstream) = upstreams.get_mut(&id) else { return Next::Done(None) };
        let Upstream { channel, pending, is_paused, last_received, backend, counts, .. } = upstream;
        let limit = settings.client_output();
        loop {
            if *is_paused {
                return Next::Done(None);
            }
            let is_alone = pending.len() == 1;
            let answer = match channel.next_answer() {
                Ok(Some(answer)) => answer,
                Ok(None) => {
                    let too_large = channel.layer().take_too_large();
                    return too_large.map_or(Next::Done(None), |message| Next::TooLarge(message.0));
                }
                Err(fault) => return Next::Done(Some(fault)),
            };
            *last_received = now;
            let (message, is_last) = (answer.message.id.0, answer.is_last);
            let Some(operation) = pending.get_mut(&message) else { continue };
            if !operation.is_answered {
                operation.is_answered = true;
                if let Some(backend) = backends.get_mut(*backend) {
                    backend.measured(now.saturating_sub(operation.sent));
                }
            }
            if is_last && operation.is_page {
                operation.ends_pages = !has_next_page(&answer.message.controls);
            }
            let result = answer.message.response.result();
            if is_last
                && !matches!(operation.kind, Kind::WhoAmI(_) | Kind::Abort)
                && let (Some(backend), Some((_, result))) = (backends.get_mut(*backend), &result)
            {
                let took = now.saturating_sub(operation.sent);
                let op = operation.kind.response();
                backend.figures.count_end(op, result.code, took);
                counts.completed += 1;
                backend.counts.completed += 1;
                counters.operations(op == ResponseOp::Bind).completed += 1;
                if let Some(client) = operation.to.and_then(|(id, _)| clients.get_mut(&id)) {
                    client.counts.completed += 1;
                }
            }
            if !matches!(operation.kind, Kind::Plain(_)) {
                if !is_last {
                    // "Who am I?" has no other answer that means something here.
                    continue;
                }
                let answer = BindAnswer::of(&operation.kind, &answer.message.response, answer.pdu);
                let Some(operation) = pending.remove(&message) else { continue };
                return Next::Bind(operation, answer);
            }
            let (owner, waits) = hand_over(clients, touched, operation.to, answer.pdu);
            if is_last {
                let Some(operation) = pending.remove(&message) else { continue };
                return Next::Finished(operation);
            }
            if let Some(timeout) = settings.bind.timeout {
                // What has had an answer may be silent for as long again.
                channel.layer().set_deadline(MessageId(message), Some(now + timeout));
            }
            if is_alone && waits >= OUTPUT_HIGH {
                return Next::Pause(owner);
            }
            if waits >= limit.max(OUTPUT_HIGH) {
                return Next::TooSlow(message);
            }
        }
    }

    /// An operation over a shared connection has its last answer.
    fn finished(&mut self, id: u64, operation: &Operation, now: Duration) {
        let Some(upstream) = self.upstreams.get(&id) else { return };
        let backend = upstream.backend;
        // Nobody can be kept at a server that the configuration does not name any more.
        let is_gone = self.backends.get(backend).is_none_or(|backend| backend.is_gone);
        if let Some((client, message)) = operation.to
            && let Some(client) = self.clients.get_mut(&client)
        {
            client.pending.remove(&message);
            if operation.is_write && !is_gone {
                prolong(client, backend, self.settings.write_coherence, now);
            }
        }
        if let Some((client, _)) = operation.to.filter(|_| operation.ends_pages) {
            self.pages_ended(client);
        }
        self.one_less(backend);
    }

    /// One operation less is under way over shared connections to a server.
    pub(super) fn one_less(&mut self, backend: usize) {
        if let Some(backend) = self.backends.get_mut(backend) {
            backend.pending = backend.pending.saturating_sub(1);
        }
        self.free(Pool::Shared);
    }

    fn too_slow(&mut self, id: u64, message: u32) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        let backend = upstream.backend;
        let Some(operation) = upstream.abandon(message) else { return };
        self.count_failed(id, false);
        self.counters.slow_clients += 1;
        self.one_less(backend);
        let text = "the client takes its answers too slowly for a connection that others use";
        self.answer_for(&operation, &LdapResult::with(ResultCode::BUSY, text));
        self.touch_upstream(id);
    }

    /// An answer is thrown away, and the connection goes on: others use it.
    fn too_large(&mut self, id: u64, message: u32, now: Duration) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        let backend = upstream.backend;
        let Some(operation) = upstream.abandon(message) else { return };
        self.count_failed(id, operation.kind.response() == ResponseOp::Bind);
        let limit = self.settings.upstream_message_bytes;
        let text = format!("the server's answer has more than {limit} bytes (sockbuf_max_incoming_upstream)");
        let result = LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text);
        self.fail(&operation, backend, &result, now);
        self.free(Pool::Bind);
        self.touch_upstream(id);
    }

    /// An operation that was sent over a connection has no answer of the server's.
    pub(super) fn count_failed(&mut self, upstream: u64, is_bind: bool) {
        self.counters.operations(is_bind).failed += 1;
        let Some(upstream) = self.upstreams.get_mut(&upstream) else { return };
        upstream.counts.failed += 1;
        if let Some(backend) = self.backends.get_mut(upstream.backend) {
            backend.counts.failed += 1;
        }
    }

    /// Ends an operation of a client with the balancer's own result.
    pub(super) fn answer_for(&mut self, operation: &Operation, result: &LdapResult) {
        let Some((id, message)) = operation.to else { return };
        if let Some(client) = self.clients.get_mut(&id) {
            client.pending.remove(&message);
            self.refuse(id, MessageId(message), operation.kind.response(), result);
        }
    }

    /// Reads a connection again.
    pub(super) fn resume(&mut self, id: u64, now: Duration) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        if !upstream.is_paused {
            return;
        }
        upstream.is_paused = false;
        if let Some(timeout) = self.settings.bind.timeout {
            let under_way: Vec<u32> = upstream.pending.keys().copied().collect();
            for message in under_way {
                upstream.channel.layer().set_deadline(MessageId(message), Some(now + timeout));
            }
        }
        let owners: Vec<u64> =
            upstream.pending.values().filter_map(|operation| Some(operation.to?.0)).collect();
        for owner in owners {
            if let Some(client) = self.clients.get_mut(&owner) {
                client.pauses.remove(&id);
            }
        }
        self.take_answers(id, now);
        self.touch_upstream(id);
    }
}

/// Hands an answer to the client `to` under its message id. Which client has it, and how many bytes of output wait there; 0 and 0: none.
fn hand_over(
    clients: &mut HashMap<u64, Client>,
    touched: &mut Touched,
    to: Option<(u64, u32)>,
    pdu: &[u8],
) -> (u64, usize) {
    let Some((id, message)) = to else { return (0, 0) };
    let Some(client) = clients.get_mut(&id) else { return (0, 0) };
    envelope::answer(client.wire.answers(), message, behind_id(pdu));
    let waits = client.wire.waiting();
    touch_client(clients, touched, id);
    (id, waits)
}

/// Whether another page follows one that ended so (RFC 2696 section 3).
fn has_next_page(controls: &Controls<'_>) -> bool {
    let page = controls.iter().find(|control| control.oid == oid::PAGED_RESULTS);
    let page = page.and_then(|control| PagedResults::decode(control.value).ok());
    page.is_some_and(|page| !page.cookie.is_empty())
}

/// The time of `write_coherence` begins with the answer.
fn prolong(client: &mut Client, backend: usize, coherence: Coherence, now: Duration) {
    let Coherence::For(time) = coherence else { return };
    match client.restriction {
        Restriction::Write(other, _) if other != backend => {}
        Restriction::None | Restriction::Write(..) => {
            client.restriction = Restriction::Write(backend, Some(now + time));
        }
        Restriction::Backend(_) | Restriction::Lost => {}
    }
}
