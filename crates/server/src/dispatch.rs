//! From a decoded request to the directory and back: the session's state, and where each kind of request goes.
//!
//! [`request`] has the life that all requests share, [`limits`] what is refused before they are looked at, [`reads`] searches and
//! compares, [`background`] searches that take long, [`changes`] what goes to the writer, [`bind`](mod@bind) and [`sasl`] binds,
//! [`extended`] the extended operations. [`identities`] says whom a request acts as.

mod access_log;
mod background;
mod bind;
mod changes;
mod database_operation;
mod detached_client;
mod extended;
mod identities;
mod limits;
mod password_change;
mod password_modify;
mod persistent;
mod reads;
mod request;
mod request_facts;
mod sasl;
mod transaction;
mod verify_credentials;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use larix_engine::access::Subject;
use larix_engine::budget::RequestLimit;
use larix_engine::controls::{self, RequestControls};
use larix_engine::injected;
use larix_engine::time::{Clock, Monotonic};
use larix_engine::write::{WriteOperation, WriteOutcome};
use larix_proto::{Controls, LdapResult, Message, MessageId, Request, ResponseOp, encode};
use tokio::sync::mpsc::UnboundedSender;

use crate::access_log::RecordedRequest;
use crate::admission::PaidToken;
use crate::connection::{Event, Limits, Operation, SearchLocation, Service, SliceOutcome, StartOutcome};
use crate::databases::Databases;
use crate::layers::LayersError;
use crate::log::{LogLevel, printable};
use crate::operation_log::RequestSummary;
use crate::operation_rules::RestrictedOperation;
use crate::restrictions::SessionState;
use crate::security_layer::SecurityLayer;
use crate::server::Server;
use crate::session::{Peer, Session};
use crate::statistics::{ConnectionRecord, Counters, LimitReached, OperationKind, add, latency};
use crate::tls::TlsFacts;
use larix_backend::{Client, ClientHandle, Cursor, ExtendedAnswer, KeptClient, PendingAnswer};

pub(crate) use background::{BackgroundSearch, ReturnedSearch};
use bind::BindOutcome;
use detached_client::DetachedClient;
use password_modify::PasswordOutcome;
use persistent::{PersistentGuard, PersistentSearches};
pub(crate) use request::RequestInFlight;
use sasl::SaslOutcome;
use sasl::exchange::Exchange;
use transaction::{Transaction, TransactionOutcome};
use verify_credentials::VerifiedOutcome;

/// The outcome of work on another thread, on its way back to its connection.
#[derive(Debug)]
pub(crate) enum Completion {
    Write(WriteOutcome),
    Bind(Box<BindOutcome>),
    Sasl(Box<SaslOutcome>),
    Password(Box<PasswordOutcome>),
    Verified(Box<VerifiedOutcome>),
    Extended(Box<ExtendedAnswer>),
    Transaction(Box<TransactionOutcome>),
    /// The thread ended without an outcome.
    Lost,
}

/// What the rest of the server tells a connection.
#[derive(Debug)]
pub(crate) enum ConnectionEvent {
    /// A request that waited is done. Boxed because every connection's queue has room for a few dozen events.
    Completed(u64, Box<Completion>),
    /// A search is back from another thread, with its answers.
    Returned(u64, Box<ReturnedSearch>),
    /// A search that waits, for changes or for an answer from elsewhere, may go on.
    Woken(u64),
    /// The time of a request is over.
    Expired,
    /// `idletimeout` or `writetimeout` has passed.
    TimedOut(&'static str),
    /// A message that answers no request.
    Message(Vec<u8>),
    /// An overlay closes the connection.
    HangUp,
    /// The server stops.
    Stop,
}

/// A search under way.
#[derive(Debug)]
pub(crate) struct RunningSearch {
    in_flight: RequestInFlight,
    search: Box<dyn Cursor>,
    /// Entries that are counted already.
    counted: u64,
    /// Slices that the event loop has run.
    slices: u32,
    /// The buffer for answers of another thread; empty on the event loop.
    spare: Vec<u8>,
    #[expect(dead_code, reason = "counted until it is dropped")]
    persistent_guard: Option<PersistentGuard>,
}

/// The layer that begins behind the last answer.
#[derive(Debug)]
pub(crate) enum LayerChange {
    /// TLS, from the client's first message on.
    Tls,
    /// A SASL security layer, above TLS if there is one, in the place of an older one.
    Sasl(Box<dyn SecurityLayer>),
}

/// The [`Service`] of one connection.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    pub(crate) server: Arc<Server>,
    pub(crate) session: Session,
    pub(crate) record: Arc<ConnectionRecord>,
    counters: Arc<Counters>,
    events: UnboundedSender<ConnectionEvent>,
    waiting: Vec<RequestInFlight>,
    /// How those of them that can be given up are given up, by serial number.
    pending: Vec<(u64, PendingAnswer)>,
    persistent: PersistentSearches,
    pub(crate) transaction: Option<Transaction>,
    /// The serial number of the request that changes a password that must be changed.
    pub(crate) password_change: Option<u64>,
    pub(crate) layer_change: Option<LayerChange>,
    /// The SASL exchange that the client's next bind continues.
    pub(crate) sasl: Option<Box<Exchange>>,
    arrived: Monotonic,
    /// The message id of the request that is being carried out.
    message: Cell<MessageId>,
    close_reason: &'static str,
    /// The token of a bind under way, which counts as failed until it is judged.
    bind_paid: Cell<Option<PaidToken>>,
    /// The controls of the bind under way.
    bind_controls: RequestControls,
    /// Summaries of unanswered requests for the log, by serial number, if the log may need them.
    summaries: RefCell<Vec<(u64, RequestSummary)>>,
    /// Requests that the access log records at their end, by serial number.
    recorded: RefCell<Vec<(u64, RecordedRequest)>>,
    /// The cached limits, with the generation and the authentication that they are for.
    limits: Cell<Option<((u64, bool), Limits)>>,
}

/// Sends the outcome of one request to the worker that has its connection.
#[derive(Debug)]
pub(crate) struct Completer {
    serial: u64,
    /// Until there is an outcome.
    events: Option<UnboundedSender<ConnectionEvent>>,
}

impl Completer {
    /// Hands the outcome over. A connection that is gone meanwhile needs no answer.
    pub(crate) fn complete(mut self, completion: Completion) {
        self.send(completion);
    }

    fn send(&mut self, completion: Completion) {
        let Some(events) = self.events.take() else { return };
        let _ = events.send(ConnectionEvent::Completed(self.serial, Box::new(completion)));
    }
}

impl Drop for Completer {
    /// The thread that held it panicked or has ended: the request is answered all the same.
    fn drop(&mut self) {
        self.send(Completion::Lost);
    }
}

impl Client for Dispatcher {
    fn handle(&self) -> Box<dyn ClientHandle> {
        Box::new(ConnectionHandle(self.events.clone()))
    }

    fn request(&self) -> Option<(u64, MessageId)> {
        Some((self.record.number, self.message.get()))
    }

    fn lifetime(&self) -> Option<Weak<dyn Any + Send + Sync>> {
        let record: Arc<dyn Any + Send + Sync> = Arc::clone(&self.record) as _;
        Some(Arc::downgrade(&record))
    }

    fn keep(&self) -> Option<Box<dyn KeptClient>> {
        Some(Box::new(DetachedClient {
            request: self.request(),
            lifetime: self.lifetime(),
            events: self.events.clone(),
            generation: Arc::downgrade(&self.server.generation()),
        }))
    }
}

/// A connection by its queue.
struct ConnectionHandle(UnboundedSender<ConnectionEvent>);

impl ClientHandle for ConnectionHandle {
    fn send(&self, message: Vec<u8>) {
        // A connection that is gone has no use for it.
        let _ = self.0.send(ConnectionEvent::Message(message));
    }

    fn hang_up(&self) {
        let _ = self.0.send(ConnectionEvent::HangUp);
    }
}

impl Dispatcher {
    pub(crate) fn new(
        server: Arc<Server>,
        counters: Arc<Counters>,
        record: Arc<ConnectionRecord>,
        peer: Peer,
        events: UnboundedSender<ConnectionEvent>,
    ) -> Self {
        let local_ssf = server.config().global.local_ssf;
        let session = Session::new(peer, &record.listener.name, &record.listener.url, local_ssf);
        let arrived = server.clock.monotonic();
        Self {
            server,
            session,
            record,
            counters,
            events,
            waiting: Vec::new(),
            pending: Vec::new(),
            persistent: PersistentSearches::default(),
            transaction: None,
            password_change: None,
            layer_change: None,
            sasl: None,
            arrived,
            message: Cell::new(MessageId(0)),
            close_reason: "",
            bind_paid: Cell::default(),
            bind_controls: RequestControls::default(),
            summaries: RefCell::default(),
            recorded: RefCell::default(),
            limits: Cell::default(),
        }
    }

    /// Replaces the counters, and answers the earlier ones.
    pub(crate) fn count_with(&mut self, counters: Arc<Counters>) -> Arc<Counters> {
        std::mem::replace(&mut self.counters, counters)
    }

    /// Installs the layer of a successful SASL bind, which begins behind the next answer. The session has its strength from now on.
    pub(crate) fn install_layer(&mut self, layer: Box<dyn SecurityLayer>) {
        self.session.set_sasl_strength(layer.ssf());
        self.layer_change = Some(LayerChange::Sasl(layer));
    }

    /// Logs input that TLS or a SASL layer refused.
    pub(crate) fn log_broken_layer(&self, error: &LayersError) {
        let (number, fd) = (self.record.number, self.record.descriptor);
        self.server.log.line(LogLevel::CONNS, format_args!("conn={number} fd={fd} {error}"));
    }

    /// The handshake is done.
    pub(crate) fn tls_established(&mut self, facts: TlsFacts) {
        let (number, fd) = (self.record.number, self.record.descriptor);
        let (protocol, cipher, tls) = (facts.protocol, facts.cipher, facts.ssf);
        // Set once: a connection that has TLS gets no other.
        let _ = self.record.secured.set(format!("{protocol} {cipher}"));
        self.session.secured(Arc::new(facts));
        let ssf = self.session.state().ssf;
        self.server.log.line(
            LogLevel::STATS,
            format_args!(
                "conn={number} fd={fd} TLS established tls_ssf={tls} ssf={ssf} tls_proto={protocol} tls_cipher={cipher}"
            ),
        );
    }

    /// Bytes were read, now: the requests in them wait since then.
    pub(crate) fn bytes_arrived(&mut self) {
        self.arrived = self.server.clock.monotonic();
        self.record.last_activity.store(self.arrived.0, Ordering::Relaxed);
        add(&self.record.reads, 1);
    }

    /// When bytes were read last.
    pub(crate) fn last_activity(&self) -> Monotonic {
        self.arrived
    }

    /// Notes for the log why the connection ends. The first reason stays.
    pub(crate) fn close_because(&mut self, reason: &'static str) {
        if self.close_reason.is_empty() {
            self.close_reason = reason;
        }
    }

    pub(crate) fn close_reason(&self) -> &'static str {
        match self.close_reason {
            // slapd shows no reason after an unbind.
            "unbind" => "",
            reason => reason,
        }
    }

    pub(crate) fn completer(&self, in_flight: &RequestInFlight) -> Completer {
        Completer { serial: in_flight.operation.serial, events: Some(self.events.clone()) }
    }

    /// Parses the controls of a request, those of overlays included.
    ///
    /// # Errors
    /// unavailableCriticalExtension and protocolError.
    pub(crate) fn controls(
        &self,
        sent: Controls<'_>,
        operation: controls::OperationKind<'_>,
    ) -> Result<RequestControls, LdapResult> {
        if sent.is_empty() {
            return Ok(RequestControls::default());
        }
        let generation = self.server.generation();
        let brought = |oid: &str| generation.databases.router().overlay_control(oid);
        let limits = &generation.config.global.request_limits;
        RequestControls::parse_with(sent, operation, limits, &brought)
    }

    /// Checks whether the configuration lets this session carry out the operation on `dn`. Answers the OIDs of the controls to ignore.
    pub(crate) fn permitted(
        &self,
        dn: &str,
        operation: RestrictedOperation<'_>,
        sent: Controls<'_>,
    ) -> Result<Vec<String>, LdapResult> {
        // A client that binds is anonymous until the bind is done.
        let subject = match operation {
            RestrictedOperation::SimpleBind
            | RestrictedOperation::AnonymousBind
            | RestrictedOperation::SaslBind => self.session.anonymous(),
            _ => self.session.subject(),
        };
        let databases = self.server.databases();
        databases.rules_for(dn).check_request(&self.session.state(), subject, operation, sent)
    }

    /// As [`Self::permitted`], for the identity that a request acts as.
    pub(crate) fn permitted_as(
        &self,
        subject: &Subject,
        dn: &str,
        operation: RestrictedOperation<'_>,
        sent: Controls<'_>,
    ) -> Result<Vec<String>, LdapResult> {
        self.permitted_in(&self.server.databases(), subject, dn, operation, sent)
    }

    fn permitted_in(
        &self,
        databases: &Databases,
        subject: &Subject,
        dn: &str,
        operation: RestrictedOperation<'_>,
        sent: Controls<'_>,
    ) -> Result<Vec<String>, LdapResult> {
        let rules = databases.rules_for(dn);
        if rules.let_pass(operation) {
            return Ok(Vec::new());
        }
        let state = SessionState { authenticated: !subject.is_anonymous(), ..self.session.state() };
        rules.check_request(&state, subject, operation, sent)
    }
}

/// Nobody waits any more for the requests that could not be given up.
impl Drop for Dispatcher {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::mem::take(&mut self.waiting).iter().for_each(|in_flight| self.forget(in_flight, None));
        }
    }
}

impl Dispatcher {
    /// Answers a request whose outcome a panic has lost.
    fn lost(&mut self, in_flight: &RequestInFlight, out: &mut Vec<u8>) {
        let result = LdapResult::internal_error();
        self.end_otherwise(in_flight, &result, out);
    }

    /// Answers a request that was not carried out to its end, as far as the server knows.
    fn end_otherwise(&mut self, in_flight: &RequestInFlight, result: &LdapResult, out: &mut Vec<u8>) {
        self.sasl = None;
        self.password_change.take_if(|serial| *serial == in_flight.operation.serial);
        match in_flight.response {
            ResponseOp::Extended => self.answer_extended(in_flight, result, None, out),
            _ => self.answer(in_flight, result, &[], out),
        }
    }
}

impl Service for Dispatcher {
    type Search = RunningSearch;
    type BackgroundSearch = BackgroundSearch;
    type Returned = ReturnedSearch;
    type Completion = Completion;

    fn start(
        &mut self,
        operation: Operation,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> StartOutcome<RunningSearch> {
        injected::panic_at("operation");
        latency::in_database(0);
        self.note_request(operation, message);
        if self.server.access_logs.any()
            && let Some(recorded) = self.note_for_log(message)
        {
            self.recorded.borrow_mut().push((operation.serial, recorded));
        }
        if let Some(refused) = self.over_client_limits(operation, message, out) {
            if matches!(message.request, Request::Bind(_)) {
                self.bind_failed_unread();
            }
            return refused;
        }
        if self.sasl.is_some()
            && let Some(refused) = self.amid_sasl(operation, message, out)
        {
            return refused;
        }
        match message.request {
            Request::Search(request) => {
                let in_flight = self.begin(operation, OperationKind::Search, ResponseOp::SearchDone);
                self.search(in_flight, &request, message, out)
            }
            Request::Bind(request) => {
                let in_flight = self.begin(operation, OperationKind::Bind, ResponseOp::Bind);
                self.bind(in_flight, &request, message, out)
            }
            Request::Compare(request) => {
                let in_flight = self.begin(operation, OperationKind::Compare, ResponseOp::Compare);
                self.compare(&in_flight, &request, message, out)
            }
            Request::Modify(request) => {
                let in_flight = self.begin(operation, OperationKind::Modify, ResponseOp::Modify);
                self.write(in_flight, request.into(), RestrictedOperation::Modify, message, out)
            }
            Request::Add(request) => {
                let in_flight = self.begin(operation, OperationKind::Add, ResponseOp::Add);
                self.write(in_flight, request.into(), RestrictedOperation::Add, message, out)
            }
            Request::Delete(dn) => {
                let in_flight = self.begin(operation, OperationKind::Delete, ResponseOp::Delete);
                let delete = WriteOperation::Delete { entry: dn.to_owned() };
                self.write(in_flight, delete, RestrictedOperation::Delete, message, out)
            }
            Request::ModifyDn(request) => {
                let in_flight = self.begin(operation, OperationKind::ModifyDn, ResponseOp::ModifyDn);
                self.write(in_flight, request.into(), RestrictedOperation::Rename, message, out)
            }
            Request::Extended(request) => {
                let in_flight = self.begin(operation, OperationKind::Extended, ResponseOp::Extended);
                self.extended(in_flight, &request, message, out)
            }
            // The connection carries these out itself.
            Request::Unbind | Request::Abandon(_) => StartOutcome::Answered,
        }
    }

    fn step(&mut self, _: Operation, running: &mut RunningSearch, out: &mut Vec<u8>) -> SliceOutcome {
        self.search_step(running.in_flight.operation, running, out)
    }

    fn pause(&mut self, running: &mut RunningSearch) {
        running.search.pause();
    }

    fn is_long(&self, running: &RunningSearch) -> bool {
        running.is_long()
    }

    fn send_to_background(
        &mut self,
        _: Operation,
        running: RunningSearch,
    ) -> SearchLocation<RunningSearch, BackgroundSearch> {
        self.send_search_to_background(running)
    }

    fn returned(
        &mut self,
        operation: Operation,
        returned: ReturnedSearch,
        out: &mut Vec<u8>,
    ) -> Option<RunningSearch> {
        self.search_returned(operation, returned, out)
    }

    fn complete(&mut self, operation: Operation, completion: Completion, out: &mut Vec<u8>) {
        let Some(in_flight) = self.take_waiting(operation) else { return };
        match completion {
            Completion::Write(outcome) => {
                let changed = self.password_change.take_if(|serial| *serial == in_flight.operation.serial);
                if changed.is_some() && outcome.result.is_success() {
                    self.session.must_change_password = false;
                }
                self.answer(&in_flight, &outcome.result, &outcome.controls, out);
            }
            Completion::Bind(outcome) => self.bind_verified(&in_flight, *outcome, out),
            Completion::Sasl(outcome) => {
                let step = self.sasl_prepared(&in_flight, *outcome);
                self.answer_step(&in_flight, step, out);
            }
            Completion::Password(outcome) => self.password_modified(&in_flight, *outcome, out),
            Completion::Verified(outcome) => self.verified(&in_flight, *outcome, out),
            Completion::Extended(outcome) => {
                let ExtendedAnswer { result, value, controls } = *outcome;
                self.answer_extended_with(&in_flight, &result, value.as_deref(), &controls, out);
            }
            Completion::Transaction(outcome) => self.transaction_ended(&in_flight, *outcome, out),
            Completion::Lost => self.lost(&in_flight, out),
        }
    }

    fn end(
        &mut self,
        operation: Operation,
        search: SearchLocation<RunningSearch, BackgroundSearch>,
        result: Option<LdapResult>,
        out: &mut Vec<u8>,
    ) {
        let (in_flight, effort) = match &search {
            SearchLocation::OnLoop(running) => (running.in_flight, running.search.effort()),
            SearchLocation::InBackground(background_search) => {
                (background_search.in_flight(), background_search.effort())
            }
        };
        match result {
            Some(result) => {
                encode::result(out, operation.id, ResponseOp::SearchDone, &result, &[]);
                self.finish(&in_flight, &result, Some(effort));
            }
            None => self.forget(&in_flight, Some(effort)),
        }
    }

    fn give_up(&mut self, operation: Operation, result: Option<LdapResult>, out: &mut Vec<u8>) -> bool {
        self.give_up_waiting(operation, result, out)
    }

    fn may_take_effect(&self, operation: Operation) -> bool {
        self.waiting.iter().any(|in_flight| in_flight.operation == operation && in_flight.kind.is_change())
    }

    fn deadline(&self, operation: Operation) -> Option<Monotonic> {
        self.pending_deadline(operation)
    }

    fn search_deadline(&self, running: &RunningSearch) -> Option<Monotonic> {
        running.search.deadline()
    }

    fn cancelled(&mut self, operation: Operation, result: LdapResult, out: &mut Vec<u8>) {
        encode::extended_result(out, operation.id, &result, None, None, &[]);
        if let Some(in_flight) = self.take_waiting(operation) {
            self.finish(&in_flight, &result, None);
        }
    }

    fn event(&mut self, event: Event<'_>) {
        let number = self.record.number;
        let log = &self.server.log;
        match event {
            Event::Unbind(operation) => {
                self.record_unbind();
                self.counters.initiate(OperationKind::Unbind);
                self.counters.complete(OperationKind::Unbind);
                log.line(LogLevel::STATS, format_args!("conn={number} op={} UNBIND", operation.serial));
                self.close_because("unbind");
            }
            Event::Abandon(operation, MessageId(id)) => {
                self.record_abandon(id);
                self.counters.initiate(OperationKind::Abandon);
                self.counters.complete(OperationKind::Abandon);
                log.line(
                    LogLevel::STATS,
                    format_args!("conn={number} op={} ABANDON msg={id}", operation.serial),
                );
            }
            Event::Refused(why) => {
                self.counters.reached(LimitReached::Message);
                log.line(LogLevel::STATS, format_args!("conn={number} refused: {}", printable(why)));
                self.close_because("protocol error");
            }
            Event::BadBind => self.bind_failed_unread(),
        }
    }

    fn start_tls(&mut self, operation: Operation, outstanding: bool, out: &mut Vec<u8>) {
        if let Some(in_flight) = self.take_waiting(operation) {
            self.answer_start_tls(&in_flight, outstanding, out);
        }
    }

    fn changes_layers(&self) -> bool {
        self.layer_change.is_some()
    }

    fn limits(&self) -> Limits {
        let key = (self.server.generation_number(), self.session.is_authenticated());
        if let Some((known, limits)) = self.limits.get()
            && known == key
        {
            return limits;
        }
        let limits = self.limits_in_force();
        self.limits.set(Some((key, limits)));
        limits
    }

    fn now(&self) -> Monotonic {
        self.server.clock.monotonic()
    }

    fn kept_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, Transaction::bytes)
    }
}

impl Dispatcher {
    fn limits_in_force(&self) -> Limits {
        let generation = self.server.generation();
        let global = &generation.config.global;
        let (pdu, pending) = if self.session.is_authenticated() {
            (global.sockbuf_max_incoming_auth, global.conn_max_pending_auth)
        } else {
            (global.sockbuf_max_incoming, global.conn_max_pending)
        };
        let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        // 0 is no limit, as in liblber.
        let pdu = if pdu == 0 { u64::MAX } else { pdu };
        Limits {
            pdu: usize::try_from(pdu).unwrap_or(usize::MAX).min(larix_proto::limits::PDU_CEILING),
            pending: size(pending).max(1),
            pending_bytes: global
                .request_limits
                .most(RequestLimit::PendingBytes)
                .try_into()
                .unwrap_or(usize::MAX),
            filter_depth: size(global.max_filter_depth),
            looks_up: generation.databases.looks_up(),
        }
    }
}

/// Appends names of attributes as log lines have them, with blanks between them.
fn put_names<'n>(texts: &mut Vec<u8>, names: impl Iterator<Item = &'n str>) {
    for (at, name) in names.enumerate() {
        if at > 0 {
            texts.push(b' ');
        }
        texts.extend_from_slice(name.as_bytes());
    }
}
