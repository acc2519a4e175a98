//! Requests of clients.

use std::time::Duration;

use larix_client::NotSent;
use larix_proto::extended::{Cancel, ExtendedValue};
use larix_proto::{
    ExtendedRequest, LdapResult, Message, MessageError, MessageId, Request, ResponseOp, ResultCode, client,
    encode, limits, oid,
};

use super::choice::{Choice, Need};
use super::{Balancer, authorize};
use crate::client::{ContextUse, PendingOperation, Restriction, State};
use crate::envelope::{self, HOPS_MAX};
use crate::upstream::{Kind, Operation, Pool};
use larix_configuration::balancer::{Action, Coherence};

/// An operation that is to be forwarded.
pub(super) struct Forwarded<'a> {
    pub(super) id: u64,
    pub(super) message: MessageId,
    pub(super) op: ResponseOp,
    pub(super) request: envelope::Request<'a>,
    pub(super) is_write: bool,
    /// Its answer alone says whether the server has changed something.
    pub(super) may_change: bool,
    /// It asks for a page of a search, of which the server remembers where it ended.
    pub(super) is_page: bool,
    /// The server is to carry it out as the client. A cancel is about the connection: servers refuse it with the control for that.
    pub(super) is_as_client: bool,
}

/// The type of the answer to a request.
pub(super) const fn response_of(request: &Request<'_>) -> Option<ResponseOp> {
    Some(match request {
        Request::Bind(_) => ResponseOp::Bind,
        Request::Search(_) => ResponseOp::SearchDone,
        Request::Modify(_) => ResponseOp::Modify,
        Request::Add(_) => ResponseOp::Add,
        Request::Delete(_) => ResponseOp::Delete,
        Request::ModifyDn(_) => ResponseOp::ModifyDn,
        Request::Compare(_) => ResponseOp::Compare,
        Request::Extended(_) => ResponseOp::Extended,
        Request::Unbind | Request::Abandon(_) => return None,
    })
}

impl Balancer {
    /// Carries out one request. False: it waits, and is to be looked at again.
    pub(super) fn request(&mut self, id: u64, pdu: &[u8], has_more: bool, now: Duration) -> bool {
        // All of it is checked: a request that a server cannot read would cost the connection, which others share.
        let message = match Message::decode(pdu) {
            Ok(message) => message,
            Err(error) => {
                self.malformed(id, &error);
                return true;
            }
        };
        let is_over = self.carry_out(id, pdu, &message, has_more, now);
        if is_over {
            self.count_received(id, matches!(message.request, Request::Bind(_)));
        }
        is_over
    }

    fn carry_out(
        &mut self,
        id: u64,
        pdu: &[u8],
        message: &Message<'_>,
        has_more: bool,
        now: Duration,
    ) -> bool {
        let Some(client) = self.clients.get(&id) else { return true };
        let Some(op) = response_of(&message.request) else {
            match message.request {
                Request::Abandon(target) => self.abandon(id, target),
                _ => self.end_client(id, None),
            }
            return true;
        };
        if message.id.0 == 0 || client.pending.contains_key(&message.id.0) {
            let text = format!("message id {} is not possible here: it is 0, or under way", message.id.0);
            self.disconnect(id, ResultCode::PROTOCOL_ERROR, &text);
            return true;
        }
        if self.is_stopping || client.is_leaving {
            let text = if self.is_stopping { "the balancer stops" } else { "the connection is closing" };
            self.reject(id, message.id, op, &LdapResult::with(ResultCode::UNAVAILABLE, text));
            return true;
        }
        let request = match envelope::Request::of(pdu, message.controls) {
            Ok(request) if request.hops < HOPS_MAX => request,
            Ok(_) => {
                let text = format!(
                    "the request has come through {HOPS_MAX} balancers and proxies, the most there may be: does one of them point at \
                     itself, or back at another?"
                );
                self.refused(id, message.id, op, ResultCode::LOOP_DETECT, &text);
                return true;
            }
            Err(error) => {
                self.disconnect(id, ResultCode::PROTOCOL_ERROR, &error.to_string());
                return true;
            }
        };
        let sent = Forwarded {
            id,
            message: message.id,
            op,
            request,
            is_write: is_write(&message.request),
            may_change: op.is_of_change() && !is_question(&message.request),
            is_page: false,
            is_as_client: true,
        };
        let is_critical = || message.controls.iter().any(|control| control.critical);
        match message.request {
            Request::Bind(bind) => self.bind(&sent, &bind, now),
            // What the balancer carries out itself has no controls.
            Request::Extended(ExtendedRequest { name: oid::START_TLS | oid::CANCEL, .. })
                if is_critical() =>
            {
                let code = ResultCode::UNAVAILABLE_CRITICAL_EXTENSION;
                self.refused(id, message.id, op, code, "critical extension is unavailable");
                true
            }
            Request::Extended(ExtendedRequest { name: oid::START_TLS, .. }) => {
                self.start_tls(id, message.id, has_more);
                true
            }
            Request::Extended(ExtendedRequest { name: oid::CANCEL, value })
                if self.settings.exop_rules.get(oid::CANCEL) != Some(&Action::Reject) =>
            {
                self.cancel(&sent, value, now);
                true
            }
            _ => self.forward(sent, message, now),
        }
    }

    fn malformed(&mut self, id: u64, error: &MessageError) {
        self.counters.refused += 1;
        let op = error.operation.and_then(ResponseOp::to_request);
        match (error.is_answerable(), error.id, op) {
            (true, Some(message), Some(op)) => {
                if op == ResponseOp::Bind {
                    self.bind_is_malformed(id);
                }
                let result = LdapResult::with(ResultCode::PROTOCOL_ERROR, error.to_string());
                self.reject(id, message, op, &result);
            }
            // Of an abandon nobody waits for an answer.
            (true, ..) => {}
            _ => self.disconnect(id, ResultCode::PROTOCOL_ERROR, &error.to_string()),
        }
    }

    /// Refuses a request with the balancer's own result, and counts it.
    pub(super) fn refused(
        &mut self,
        id: u64,
        message: MessageId,
        op: ResponseOp,
        code: ResultCode,
        text: &str,
    ) {
        self.counters.refused += 1;
        self.reject(id, message, op, &LdapResult::with(code, text));
    }

    /// Forwards an operation over a connection that clients share. False: it waits.
    fn forward(&mut self, mut sent: Forwarded<'_>, message: &Message<'_>, now: Duration) -> bool {
        let (id, op) = (sent.id, sent.op);
        let Some(client) = self.clients.get(&id) else { return true };
        if client.pending.len() >= self.settings.client_operations() {
            let text = "too many operations of this connection are under way";
            self.refused(id, sent.message, op, ResultCode::BUSY, text);
            return true;
        }
        let brings_identity = |control: &larix_proto::Control<'_>| {
            matches!(control.oid, oid::PROXIED_AUTHORIZATION | oid::PROXIED_AUTHORIZATION_V1)
        };
        if !client.is_privileged && message.controls.iter().any(|control| brings_identity(&control)) {
            let text = "the balancer sends the proxied authorization control itself: bind as the identity that is meant";
            self.refused(id, sent.message, op, ResultCode::AUTHORIZATION_DENIED, text);
            return true;
        }
        let is_restricted = client.restriction != Restriction::None || client.context.is_some();
        let added = client.authorization.len();
        if self.refuses_for_size(&sent, added) {
            return true;
        }
        let action = self.action(message);
        if action == Action::Reject {
            let text = "the balancer does not forward this extended operation or control (restrict_exop, restrict_control)";
            self.refused(id, sent.message, op, ResultCode::UNWILLING_TO_PERFORM, text);
            return true;
        }
        sent.is_write |= action == Action::Write;
        let context = self.context_use(message);
        sent.is_page = matches!(context, ContextUse::Page { .. });
        let choice = self.choose_for(id, context, now);
        let upstream = match self.chosen(&sent, (choice, is_restricted), Pool::Shared, now) {
            Ok(upstream) => upstream,
            Err(is_over) => return is_over,
        };
        let is_sent = self.send(upstream, &sent, Kind::Plain(op), now);
        if is_sent {
            self.restrict(id, upstream, action, sent.is_write, now);
            self.enter_context(id, upstream, context);
        }
        is_sent
    }

    /// Whether a request is refused because it is larger, with so many bytes more, than servers take it: they would end the connection,
    /// which others share.
    pub(super) fn refuses_for_size(&mut self, sent: &Forwarded<'_>, more: usize) -> bool {
        let by_default = match self.settings.bind.credentials {
            None => limits::PDU_ANONYMOUS,
            Some(_) => limits::PDU_AUTHENTICATED,
        };
        let limit = self.settings.client_message_bytes.max(by_default);
        let is_too_large = sent.request.bytes_max(more) > limit;
        if is_too_large {
            let text = format!(
                "with what the balancer adds, the request may be larger than {limit} bytes \
                 (sockbuf_max_incoming_client)"
            );
            self.refused(sent.id, sent.message, sent.op, ResultCode::ADMIN_LIMIT_EXCEEDED, &text);
        }
        is_too_large
    }

    /// The connection that was chosen for a request.
    ///
    /// # Errors
    /// There is none: whether the request is over, or waits.
    pub(super) fn chosen(
        &mut self,
        sent: &Forwarded<'_>,
        (choice, is_restricted): (Choice, bool),
        pool: Pool,
        now: Duration,
    ) -> Result<u64, bool> {
        // Those that wait come first.
        let is_behind = self.waking.is_none() && self.is_behind_others(sent.id, pool);
        match choice {
            Choice::Upstream(upstream) if !is_behind => Ok(upstream),
            Choice::Upstream(_) | Choice::Busy => {
                self.wait(sent.id, pool, now);
                Err(false)
            }
            Choice::None => {
                let result = self.none_there(is_restricted);
                self.reject(sent.id, sent.message, sent.op, &result);
                Err(true)
            }
        }
    }

    /// What the rules for its controls and its OID come to.
    fn action(&self, message: &Message<'_>) -> Action {
        let rules = &self.settings.control_rules;
        let of_controls = message.controls.iter().filter_map(|control| rules.get(control.oid)).copied().max();
        let of_operation = match message.request {
            Request::Extended(extended) => {
                self.settings.exop_rules.get(extended.name).copied().unwrap_or(self.settings.exop_default)
            }
            _ => Action::Ignore,
        };
        of_controls.unwrap_or_default().max(of_operation)
    }

    /// A connection for an operation of a client, within its restriction.
    fn choose_for(&mut self, id: u64, context: ContextUse, now: Duration) -> Choice {
        let Some(client) = self.clients.get_mut(&id) else { return Choice::None };
        if let Restriction::Write(_, Some(until)) = client.restriction
            && until <= now
        {
            client.restriction = Restriction::None;
        }
        if let Some(own) = client.context {
            // It is unlike any other: it must not be taken by an operation of this client above its limit.
            return match self.upstreams.get(&own.upstream) {
                Some(found) if found.pending.len() < super::CONNECTION_OPERATIONS => {
                    Choice::Upstream(own.upstream)
                }
                Some(_) => Choice::Busy,
                None => {
                    // What it knew of the client is lost with it; the next operation begins anew.
                    client.context = None;
                    self.contexts = self.contexts.saturating_sub(1);
                    Choice::None
                }
            };
        }
        let need = match context {
            ContextUse::None => Need::Operations(Pool::Shared),
            ContextUse::Page { .. } | ContextUse::Lasting => Need::Context,
        };
        match client.restriction {
            Restriction::None => self.choose(need),
            Restriction::Lost => {
                client.restriction = Restriction::None;
                Choice::None
            }
            Restriction::Write(backend, _) | Restriction::Backend(backend) => {
                match self.choose_of(backend, need) {
                    Choice::None
                        if self.backends.get(backend).is_some_and(|backend| backend.failures == 0) =>
                    {
                        // It was lost, and is made again.
                        Choice::Busy
                    }
                    choice => choice,
                }
            }
        }
    }

    /// Where later operations of the client may go, after this one.
    fn restrict(&mut self, id: u64, upstream: u64, action: Action, is_write: bool, now: Duration) {
        let Some(backend) = self.upstreams.get(&upstream).map(|upstream| upstream.backend) else { return };
        let Some(client) = self.clients.get_mut(&id) else { return };
        match (action, client.restriction) {
            (_, Restriction::Backend(_)) => {}
            (Action::Backend, _) => client.restriction = Restriction::Backend(backend),
            // Its time begins anew with the answer.
            _ if is_write => match self.settings.write_coherence {
                Coherence::Off => {}
                Coherence::For(time) => client.restriction = Restriction::Write(backend, Some(now + time)),
                Coherence::UntilBind => client.restriction = Restriction::Write(backend, None),
            },
            _ => {}
        }
    }

    /// Sends an operation. False: the connection takes nothing now, and the client waits.
    pub(super) fn send(&mut self, number: u64, sent: &Forwarded<'_>, kind: Kind, now: Duration) -> bool {
        let (Some(upstream), Some(client)) =
            (self.upstreams.get_mut(&number), self.clients.get_mut(&sent.id))
        else {
            return true;
        };
        // Credentials are the balancer's to verify.
        let is_of_client =
            upstream.pool == Pool::Shared && matches!(kind, Kind::Plain(_)) && sent.is_as_client;
        let extra: &[u8] = if is_of_client { &client.authorization } else { &[] };
        let deadline = self.settings.bind.timeout.map(|timeout| now + timeout);
        let pool = upstream.pool;
        let given = upstream
            .channel
            .layer()
            .request(deadline, None, |out, message| sent.request.encode(out, message, extra));
        match given {
            Ok(message) => {
                let operation = Operation {
                    is_write: sent.is_write,
                    may_change: sent.may_change,
                    is_page: sent.is_page,
                    ..Operation::new(Some((sent.id, sent.message.0)), kind, now)
                };
                upstream.pending.insert(message.0, operation);
                client
                    .pending
                    .insert(sent.message.0, PendingOperation { upstream: number, message: message.0 });
                self.counters.forwarded += 1;
                self.counters.operations(sent.op == ResponseOp::Bind).forwarded += 1;
                upstream.counts.received += 1;
                if let Some(backend) = self.backends.get_mut(upstream.backend) {
                    backend.counts.received += 1;
                    backend.figures.count_start(sent.op);
                    backend.pending += usize::from(pool == Pool::Shared);
                }
                self.touch_upstream(number);
                // Another client needs it now: the slow one must keep pace.
                self.resume(number, now);
                true
            }
            Err(NotSent::NoRequest) => {
                self.refused(sent.id, sent.message, sent.op, ResultCode::PROTOCOL_ERROR, "no request");
                true
            }
            Err(why) => {
                if why == NotSent::Worn {
                    self.retire(number);
                }
                self.wait(sent.id, pool, now);
                false
            }
        }
    }

    fn abandon(&mut self, id: u64, target: MessageId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if let Some(place) = client.pending.get(&target.0).copied()
            && client.state == State::Open
        {
            client.pending.remove(&target.0);
            self.counters.abandoned += 1;
            self.give_up(place);
        }
    }

    /// Cancel (RFC 3909): under the message id that the operation has at its server, on its connection.
    fn cancel(&mut self, sent: &Forwarded<'_>, value: Option<&[u8]>, now: Duration) {
        let Ok(Cancel { id: target }) = Cancel::decode(value) else {
            let text = "cancel: the value names no operation";
            return self.refused(sent.id, sent.message, sent.op, ResultCode::PROTOCOL_ERROR, text);
        };
        let Some(client) = self.clients.get(&sent.id) else { return };
        let Some(place) = client.pending.get(&target.0).copied() else {
            let result = LdapResult::with(ResultCode::NO_SUCH_OPERATION, "");
            return self.reject(sent.id, sent.message, sent.op, &result);
        };
        // Everything that may be under way can be cancelled, once.
        if client.pending.len() >= self.settings.client_operations().saturating_mul(2) {
            let text = "too many operations of this connection are under way";
            return self.refused(sent.id, sent.message, sent.op, ResultCode::BUSY, text);
        }
        let mut pdu = Vec::new();
        let value = Cancel { id: MessageId(place.message) }.encode();
        client::extended(&mut pdu, sent.message, oid::CANCEL, value.as_deref(), &[]);
        let Ok(request) = Message::decode(&pdu)
            .map_err(|error| error.error)
            .and_then(|message| envelope::Request::of(&pdu, message.controls))
        else {
            return;
        };
        let mapped = Forwarded { request, is_write: false, is_as_client: false, ..*sent };
        if !self.send(place.upstream, &mapped, Kind::Plain(ResponseOp::Extended), now) {
            // It does not wait: what it is to cancel goes on.
            if let Some(client) = self.clients.get_mut(&sent.id) {
                client.state = State::Open;
            }
            let text = "the connection to the server takes nothing now";
            self.refused(sent.id, sent.message, sent.op, ResultCode::BUSY, text);
        }
    }

    fn start_tls(&mut self, id: u64, message: MessageId, has_more: bool) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let refused = match &self.client_tls {
            None => Some((
                ResultCode::PROTOCOL_ERROR,
                "unsupported extended operation: TLSCertificateFile is not set",
            )),
            Some(_) if client.wire.is_secure() => Some((ResultCode::OPERATIONS_ERROR, "TLS already started")),
            Some(_) if !client.pending.is_empty() => {
                Some((ResultCode::OPERATIONS_ERROR, "cannot start TLS when operations are outstanding"))
            }
            Some(_) => None,
        };
        if let Some((code, text)) = refused {
            return self.refused(id, message, ResponseOp::Extended, code, text);
        }
        if has_more {
            // What came in the clear behind it would be taken for protected.
            return self.disconnect(id, ResultCode::PROTOCOL_ERROR, "bytes behind the StartTLS request");
        }
        encode::extended_result(
            client.wire.answers(),
            message,
            &LdapResult::success(),
            Some(oid::START_TLS),
            None,
            &[],
        );
        let Some(tls) = &self.client_tls else { return };
        if client.wire.start_tls(tls).is_err() {
            self.end_client(id, None);
        }
    }

    /// A client's identity is this from here on.
    pub(super) fn identify(&mut self, id: u64, name: &str, identity: &str) {
        if let Some(client) = self.clients.get_mut(&id) {
            authorize(&self.settings, client, name, identity);
        }
    }
}

/// Whether it is an extended operation that changes nothing.
fn is_question(request: &Request<'_>) -> bool {
    matches!(request, Request::Extended(ExtendedRequest { name: oid::WHO_AM_I | oid::CANCEL, .. }))
}

/// Whether it begins `write_coherence`: anything but a search, a compare or a bind. An extended operation does if it is known to change
/// something.
fn is_write(request: &Request<'_>) -> bool {
    match request {
        Request::Modify(_) | Request::Add(_) | Request::Delete(_) | Request::ModifyDn(_) => true,
        Request::Extended(extended) => extended.name == oid::PASSWORD_MODIFY,
        _ => false,
    }
}
