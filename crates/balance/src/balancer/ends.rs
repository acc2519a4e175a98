//! Connections that end, and what is late.

use std::time::Duration;

use larix_client::PeerFault;
use larix_proto::{LdapResult, MessageId, ResponseOp, ResultCode, client, encode, proxy_header};

use super::{Balancer, OPENING, SASL_PAUSE, SHORT_LIFE};
use crate::client::{PendingOperation, State};
use crate::upstream::{Kind, Operation, Pool, Upstream};

impl Balancer {
    // --- clients ---

    /// Says why, and closes.
    pub(super) fn disconnect(&mut self, id: u64, code: ResultCode, text: &str) {
        self.counters.refused += 1;
        if let Some(client) = self.clients.get(&id) {
            (self.tell)(&format!("{}: disconnected: {text}", client.name()));
        }
        self.end_client(id, Some(LdapResult::with(code, text)));
    }

    /// A client's connection ends; its operations are abandoned. The socket is closed behind what is to be written.
    pub(super) fn end_client(&mut self, id: u64, notice: Option<LdapResult>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.state == State::Closing {
            return;
        }
        client.state = State::Closing;
        client.input = Vec::new();
        if client.header.take().is_some() {
            self.awaited = self.awaited.saturating_sub(1);
        }
        if let Some(notice) = notice {
            encode::notice_of_disconnection(client.wire.answers(), &notice);
        }
        client.wire.close();
        let sasl = client.sasl.take();
        self.release(sasl, id);
        self.abandon_all(id);
        self.leave_context(id);
        self.touch_client(id);
    }

    /// Tells a client that its connection ends, and closes it behind its last operation. False: there is no client of this number.
    pub(crate) fn close_client(&mut self, number: u64) -> bool {
        let found = self.clients.iter().find(|(_, client)| client.number == number && !client.closes());
        let Some(id) = found.map(|(id, _)| *id) else { return false };
        let notice = LdapResult::with(ResultCode::UNAVAILABLE, "connection closing");
        let Some(client) = self.clients.get_mut(&id).filter(|client| !client.pending.is_empty()) else {
            self.end_client(id, Some(notice));
            return true;
        };
        if !std::mem::replace(&mut client.is_leaving, true) {
            encode::notice_of_disconnection(client.wire.answers(), &notice);
        }
        self.touch_client(id);
        true
    }

    /// A connection to a server takes no new operation, and closes behind its last one; another is made in its place. False: there is none
    /// of this number.
    pub(crate) fn close_upstream(&mut self, number: u64) -> bool {
        let found = self.upstreams.iter().find(|(_, upstream)| upstream.number == number);
        let Some(id) = found.map(|(id, _)| *id) else { return false };
        self.retire(id);
        true
    }

    /// A client's socket is closed.
    pub(crate) fn client_gone(&mut self, id: u64) {
        self.end_client(id, None);
        self.clients.remove(&id);
    }

    /// Abandons what a client has under way. A bind goes on, for nobody.
    pub(super) fn abandon_all(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let places: Vec<PendingOperation> = client.pending.drain().map(|(_, place)| place).collect();
        client.pauses.clear();
        self.counters.abandoned += places.len() as u64;
        places.into_iter().for_each(|place| self.give_up(place));
    }

    /// Nobody waits for an operation any more.
    pub(super) fn give_up(&mut self, place: PendingOperation) {
        let Some(upstream) = self.upstreams.get_mut(&place.upstream) else { return };
        let backend = upstream.backend;
        match upstream.pending.get_mut(&place.message) {
            None => return,
            // It cannot be abandoned (RFC 4511 section 4.11), and the connection is not to be lost for it.
            Some(operation) if !matches!(operation.kind, Kind::Plain(_)) => {
                operation.to = None;
                return;
            }
            Some(_) => {}
        }
        upstream.abandon(place.message);
        upstream.counts.completed += 1;
        self.counters.operations(false).completed += 1;
        if let Some(backend) = self.backends.get_mut(backend) {
            backend.counts.completed += 1;
        }
        // The client that it paused for no longer uses it.
        upstream.is_paused = false;
        self.one_less(backend);
        self.touch_upstream(place.upstream);
        self.close_if_retired(place.upstream);
    }

    // --- connections to servers ---

    /// A connection takes no new operation; another is made in its place.
    pub(super) fn retire(&mut self, id: u64) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        upstream.is_retiring = true;
        let (backend, pool) = (upstream.backend, upstream.pool);
        if let Some(backend) = self.backends.get_mut(backend) {
            backend.connections_mut(pool).retain(|own| *own != id);
        }
        self.free(pool);
        self.close_if_retired(id);
    }

    /// Closes a connection that retires behind its last operation.
    pub(super) fn close_if_retired(&mut self, id: u64) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        if !upstream.is_retiring {
            return;
        }
        let (backend, pool) = (upstream.backend, upstream.pool);
        if let Some(backend) = self.backends.get_mut(backend) {
            backend.connections_mut(pool).retain(|own| *own != id);
        }
        if upstream.pending.is_empty() {
            self.upstreams.remove(&id);
            self.touched.ended_upstreams.push(id);
        }
    }

    /// A connection to a server is lost: what was under way on it ends.
    pub(crate) fn lost(&mut self, id: u64, fault: &PeerFault, now: Duration) {
        let Some(mut upstream) = self.upstreams.remove(&id) else { return };
        self.touched.ended_upstreams.push(id);
        // The first fault is the cause.
        let fault = upstream.channel.layer().end(fault.clone());
        self.counters.fault(&fault);
        let chance = Self::draw(&mut self.chance);
        if let Some(backend) = self.backends.get_mut(upstream.backend) {
            backend.connections_mut(upstream.pool).retain(|own| *own != id);
            let was_short = now.saturating_sub(upstream.opened) < SHORT_LIFE;
            if !upstream.is_ready || fault.is_a_lie() || was_short {
                backend.failed(now, chance);
            }
            backend.figures.fault(&fault);
            let lost = upstream.pending.values().filter(|operation| operation.to.is_some()).count();
            backend.figures.lost += lost as u64;
            let counted =
                upstream.pending.values().filter(|operation| !matches!(operation.kind, Kind::Abort));
            backend.counts.failed += counted.count() as u64;
            let (url, pool) = (&backend.settings.url, upstream.pool.name());
            (self.tell)(&format!("{url}: {pool} connection: {fault} ({})", fault.name()));
        }
        let result = LdapResult::with(ResultCode::UNAVAILABLE, "the connection to the server was lost");
        let mut under_way: Vec<_> = upstream.pending.drain().collect();
        under_way.sort_unstable_by_key(|(message, _)| *message);
        for (_, operation) in under_way {
            if matches!(operation.kind, Kind::Abort) {
                // No client's, and not counted when it was sent.
                continue;
            }
            self.counters.unavailable += u64::from(operation.to.is_some());
            self.counters.operations(operation.kind.response() == ResponseOp::Bind).failed += 1;
            self.fail(&operation, upstream.backend, &result, now);
        }
        // The next operation learns of a connection that it needs; those that wait are looked at again.
        self.freed = [true; 2];
    }

    /// Ends an operation that the server does not answer any more.
    pub(super) fn fail(&mut self, operation: &Operation, backend: usize, result: &LdapResult, now: Duration) {
        if operation.kind.is_shared() {
            self.one_less(backend);
        }
        match operation.kind {
            Kind::Plain(_) if operation.may_change => {
                self.answer_for(operation, &result.clone().with_unknown_outcome());
            }
            Kind::Plain(_) => self.answer_for(operation, result),
            _ => self.fail_bind(operation.to, result, now),
        }
    }

    // --- time ---

    /// Ends what is late. To be called now and then: see [`Self::next_deadline`].
    pub(crate) fn expire(&mut self, now: Duration) {
        self.expire_operations(now);
        self.expire_connections(now);
        self.expire_waiting(now);
        self.expire_clients(now);
    }

    /// Clients whose bind has had no answer for longer than a request waits for a connection. They are not read meanwhile, so the caller
    /// has to look whether they are still there.
    pub(crate) fn unanswered_binds(&self, now: Duration) -> Vec<u64> {
        let limit = self.settings.wait();
        let operations = self.upstreams.values().flat_map(|upstream| upstream.pending.values());
        let late = operations.filter(|operation| is_late_bind(operation, limit, now));
        late.filter_map(|operation| Some(operation.to?.0)).collect()
    }

    /// Without `timeout`, a bind that nobody waits for any more has a deadline all the same: its connection is for others, too.
    fn limit_forgotten_binds(&mut self, now: Duration) {
        let limit = self.settings.wait();
        for upstream in self.upstreams.values_mut() {
            let late = upstream
                .pending
                .iter()
                .filter(|(_, operation)| operation.to.is_none() && is_late_bind(operation, limit, now));
            let late: Vec<u32> = late.map(|(message, _)| *message).collect();
            for message in late {
                upstream.channel.layer().set_deadline(MessageId(message), Some(now));
            }
        }
    }

    fn expire_operations(&mut self, now: Duration) {
        if self.settings.bind.timeout.is_none() {
            self.limit_forgotten_binds(now);
        }
        let running: Vec<u64> =
            self.upstreams.iter().filter(|(_, upstream)| !upstream.is_paused).map(|(id, _)| *id).collect();
        let text = "the server did not answer in time";
        for id in running {
            while let Some(upstream) = self.upstreams.get_mut(&id) {
                let Some(MessageId(message)) = upstream.channel.messages().expired(now) else { break };
                self.counters.late += 1;
                if let Some(backend) = self.backends.get_mut(upstream.backend) {
                    backend.figures.late += 1;
                }
                let is_shared =
                    upstream.pending.get(&message).is_some_and(|operation| operation.kind.is_shared());
                if !is_shared {
                    // Whose the connection is cannot be known without the answer.
                    self.lost(id, &PeerFault::Late("the bind"), now);
                    break;
                }
                let (backend, last_received) = (upstream.backend, upstream.last_received);
                if let Some(operation) = upstream.abandon(message) {
                    self.count_failed(id, operation.kind.response() == ResponseOp::Bind);
                    let result = LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text);
                    self.fail(&operation, backend, &result, now);
                    if last_received < operation.sent {
                        // Nothing has come since: the connection has died without a word, or the server hangs and takes no other.
                        self.retire(id);
                    }
                }
                self.touch_upstream(id);
                self.close_if_retired(id);
            }
        }
    }

    fn expire_connections(&mut self, now: Duration) {
        let opening = self.settings.bind.network_timeout.unwrap_or(OPENING);
        let io = self.settings.io_timeout;
        let mut late: Vec<(u64, &'static str)> = Vec::new();
        for (id, upstream) in &mut self.upstreams {
            let waits = upstream.channel.output().is_ok_and(|output| !output.is_empty());
            let is_stuck = has_stalled(&mut upstream.stalled, waits, io, now);
            if !upstream.is_ready && now.saturating_sub(upstream.opened) > opening {
                late.push((*id, "TLS or the bind"));
            } else if is_stuck {
                late.push((*id, "taking what was sent"));
            }
        }
        late.into_iter().for_each(|(id, what)| self.lost(id, &PeerFault::Late(what), now));
        if self.waiting[1].is_empty() {
            return;
        }
        // Others wait to bind: an exchange that rests makes room.
        let rests = |upstream: &Upstream| {
            upstream.reserved.is_some_and(|(_, since)| now.saturating_sub(since) > SASL_PAUSE)
        };
        let resting: Vec<u64> =
            self.upstreams.iter().filter(|(_, upstream)| rests(upstream)).map(|(id, _)| *id).collect();
        resting.into_iter().for_each(|id| self.abort_exchange(id));
    }

    fn expire_waiting(&mut self, now: Duration) {
        for pool in Pool::ALL {
            for pinned in self.queues(pool) {
                self.expire_queue(pool, pinned, now);
                self.drop_if_empty(pinned);
            }
        }
    }

    fn expire_queue(&mut self, pool: Pool, pinned: Option<usize>, now: Duration) {
        let limit = self.settings.wait();
        let result = LdapResult::with(ResultCode::BUSY, "no connection to a server was free in time");
        let mut late = Vec::new();
        for id in std::mem::take(self.queue(pool, pinned)) {
            match self.clients.get(&id).map(|client| client.state) {
                Some(State::Waiting(own, since)) if own == pool => {
                    if now.saturating_sub(since) > limit {
                        late.push(id);
                    } else {
                        self.queue(pool, pinned).push_back(id);
                    }
                }
                // It waits no more.
                _ => {}
            }
        }
        for id in late {
            self.counters.busy += 1;
            self.refuse_waiting(id, &result, now);
        }
    }

    fn expire_clients(&mut self, now: Duration) {
        let (io, idle) = (self.settings.io_timeout, self.settings.idle_timeout);
        let mut stuck = Vec::new();
        let mut silent = Vec::new();
        let mut headless = Vec::new();
        for (id, client) in &mut self.clients {
            let waits = client.wire.waiting() > 0;
            if client.header.is_some() {
                if now.saturating_sub(client.last_received) > proxy_header::PATIENCE {
                    headless.push(*id);
                }
            } else if has_stalled(&mut client.stalled, waits, io, now) {
                stuck.push(*id);
            } else if client.state == State::Open
                && client.pending.is_empty()
                && idle.is_some_and(|idle| now.saturating_sub(client.last_received) > idle)
            {
                silent.push(*id);
            }
        }
        self.counters.slow_clients += stuck.len() as u64;
        // What waits for such a client is not taken any more.
        for id in stuck {
            if let Some(client) = self.clients.get(&id) {
                (self.tell)(&format!("{}: disconnected: it does not take its answers", client.name()));
            }
            self.end_client(id, None);
            if let Some(client) = self.clients.get_mut(&id) {
                client.wire.forget();
            }
            self.touch_client(id);
        }
        for id in headless {
            self.refuse_header(id, "the PROXY header did not come in time");
        }
        for id in silent {
            let result = LdapResult::with(ResultCode::OTHER, "the connection was idle for too long");
            self.end_client(id, Some(result));
        }
    }

    // --- the end ---

    /// No new client and no new operation from here on; clients with nothing under way are closed.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        self.freed = [true; 2];
        self.close_idle();
    }

    /// While the balancer stops: closes clients that have nothing under way any more; how many are left.
    pub(crate) fn close_idle(&mut self) -> usize {
        let idle = |client: &crate::client::Client| client.pending.is_empty() && client.state == State::Open;
        let done: Vec<u64> =
            self.clients.iter().filter(|(_, client)| idle(client)).map(|(id, _)| *id).collect();
        for id in done {
            self.end_client(id, Some(LdapResult::with(ResultCode::UNAVAILABLE, "the balancer stops")));
        }
        self.clients.len()
    }

    /// An unbind for each server, as the last that is sent.
    pub(crate) fn unbind_all(&mut self) {
        for (id, upstream) in &mut self.upstreams {
            if upstream.is_ready {
                // A connection that takes nothing more is closed without it.
                let _ = upstream.channel.layer().request(None, None, client::unbind);
                self.touched.upstreams.push(*id);
            }
        }
    }
}

/// Whether a bind, or what follows one, was sent longer ago than this.
fn is_late_bind(operation: &Operation, limit: Duration, now: Duration) -> bool {
    !matches!(operation.kind, Kind::Plain(_)) && now.saturating_sub(operation.sent) > limit
}

/// Whether a socket has taken nothing for longer than it may. What waits is looked at now and then; a socket that takes something resets it.
fn has_stalled(stalled: &mut Option<Duration>, waits: bool, limit: Option<Duration>, now: Duration) -> bool {
    if !waits {
        *stalled = None;
        return false;
    }
    let since = *stalled.get_or_insert(now);
    limit.is_some_and(|limit| now.saturating_sub(since) > limit)
}
