//! From a decoded request to the directory and back: what every request has in common, and where each kind goes.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larix_engine::access::{self, Subject};
use larix_engine::controls::{self, RequestControls};
use larix_engine::log::Follower;
use larix_engine::time::{Clock, Monotonic, Timestamp};
use larix_engine::write::{Origin, WriteOperation, WriteOutcome, WriteRequest};
use larix_proto::{
    CompareRequest, ControlBuf, Controls, Dn, LdapResult, Message, MessageId, Request, ResponseOp,
    ResultCode, SearchRequest, encode, oid,
};
use tokio::sync::mpsc::UnboundedSender;

use crate::access_log::Noted;
use crate::bind::BindOutcome;
use crate::config::Config;
use crate::config::values::LogLevel;
use crate::connection::{Event, Limits, Operation, Service, Started, Stepped};
use crate::databases::{Databases, Effort, First, Search, Slice};
use crate::layers::LayersError;
use crate::log::printable;
use crate::operation_log::{self, Asked, Ended, Seconds};
use crate::password_change::password_first;
use crate::password_modify::PasswordOutcome;
use crate::replica_digest::ExtendedOutcome;
use crate::restrictions::{Restricted, Standing};
use crate::sasl::SaslOutcome;
use crate::sasl::exchange::Exchange;
use crate::security_layer::SecurityLayer;
use crate::server::Server;
use crate::session::{Peer, Session};
use crate::statistics::{ConnectionRecord, Counters, LimitReached, OperationKind, add, latency};
use crate::tls::TlsFacts;
use crate::traces::Span;
use crate::transaction::{Transaction, TransactionOutcome};
use crate::worker::ConnectionEvent;

/// What was done elsewhere, on its way back to its connection.
#[derive(Debug)]
pub enum Completion {
    Write(WriteOutcome),
    Bind(Box<BindOutcome>),
    Sasl(Box<SaslOutcome>),
    Password(Box<PasswordOutcome>),
    Extended(Box<ExtendedOutcome>),
    Transaction(Box<TransactionOutcome>),
}

/// A request that was started: what its answer and its log line need.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Begun {
    pub(crate) operation: Operation,
    pub(crate) kind: OperationKind,
    pub(crate) response: ResponseOp,
    /// When its bytes were read, and when it was started.
    arrived: Monotonic,
    started: Monotonic,
    /// The instance of the database that it is in, once it waits; 0: none, or not known yet.
    database: u64,
}

/// A search under way.
#[derive(Debug)]
pub struct Running {
    begun: Begun,
    search: Search,
    /// Entries that the counters know of.
    counted: u64,
}

/// What carries the bytes behind the answer that was just given.
#[derive(Debug)]
pub(crate) enum LayerChange {
    /// TLS, from the client's first message on.
    Tls,
    /// A SASL security layer, above TLS if there is one, in the place of an older one.
    Sasl(Box<dyn SecurityLayer>),
}

/// The [`Service`] of one connection.
#[derive(Debug)]
pub struct Dispatcher {
    pub(crate) server: Arc<Server>,
    pub(crate) session: Session,
    pub(crate) record: Arc<ConnectionRecord>,
    counters: Arc<Counters>,
    events: UnboundedSender<ConnectionEvent>,
    waiting: Vec<Begun>,
    pub(crate) transaction: Option<Transaction>,
    /// The request that changes the password which has to be changed.
    pub(crate) password_change: Option<u64>,
    pub(crate) layer_change: Option<LayerChange>,
    /// A SASL bind that waits for its next request.
    pub(crate) sasl: Option<Box<Exchange>>,
    arrived: Monotonic,
    close_reason: &'static str,
    /// A bind under way counts as failed until it is judged.
    bind_counted: Cell<bool>,
    /// What requests asked that are not answered, by their numbers, when that may be needed at their end.
    asked: RefCell<Vec<(u64, Asked)>>,
    /// Requests that the access log records at their end, by their numbers.
    noted: RefCell<Vec<(u64, Noted)>>,
}

/// Sends the outcome of one request to the worker that has its connection.
#[derive(Debug)]
pub(crate) struct Completer {
    serial: u64,
    events: UnboundedSender<ConnectionEvent>,
}

impl Completer {
    /// Hands the outcome over. A connection that is gone meanwhile needs no answer.
    pub(crate) fn complete(self, completion: Completion) {
        let _ = self.events.send(ConnectionEvent::Completed(self.serial, Box::new(completion)));
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
            transaction: None,
            password_change: None,
            layer_change: None,
            sasl: None,
            arrived,
            close_reason: "",
            bind_counted: Cell::new(false),
            asked: RefCell::default(),
            noted: RefCell::default(),
        }
    }

    /// Has everything behind the answer that is given next go through this layer: for a SASL bind that succeeds. The
    /// session's strength is the layer's from now on.
    pub fn install_layer(&mut self, layer: Box<dyn SecurityLayer>) {
        self.session.set_sasl_strength(layer.ssf());
        self.layer_change = Some(LayerChange::Sasl(layer));
    }

    /// What came through TLS or a SASL layer cannot be trusted.
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
        let ssf = self.session.standing().ssf;
        self.server.log.line(
            LogLevel::STATS,
            format_args!(
                "conn={number} fd={fd} TLS established tls_ssf={tls} ssf={ssf} tls_proto={protocol} tls_cipher={cipher}"
            ),
        );
    }

    /// Bytes were read: requests found in them have waited since now.
    pub(crate) fn bytes_arrived(&mut self) {
        self.arrived = self.server.clock.monotonic();
        self.record.last_activity.store(self.arrived.0, Ordering::Relaxed);
        add(&self.record.reads, 1);
    }

    /// When bytes were read last.
    pub(crate) fn last_activity(&self) -> Monotonic {
        self.arrived
    }

    /// Why the connection ends, for the log; the first reason given stays.
    pub(crate) fn close_because(&mut self, reason: &'static str) {
        if self.close_reason.is_empty() {
            self.close_reason = reason;
        }
    }

    pub(crate) fn close_reason(&self) -> &'static str {
        match self.close_reason {
            // The client said goodbye as it should: no reason is shown.
            "unbind" => "",
            reason => reason,
        }
    }

    pub(crate) fn completer(&self, begun: &Begun) -> Completer {
        Completer { serial: begun.operation.serial, events: self.events.clone() }
    }

    /// Notes a request that is answered later.
    pub(crate) fn wait_for(&mut self, begun: Begun) {
        self.waiting.push(Begun { database: latency::take_database(), ..begun });
    }

    pub(crate) fn log_operation(&self, begun: &Begun, text: std::fmt::Arguments<'_>) {
        if self.logs_stats() {
            let (number, serial) = (self.record.number, begun.operation.serial);
            self.server.log.line(LogLevel::STATS, format_args!("conn={number} op={serial} {text}"));
        }
    }

    /// Whether OpenLDAP's lines are wanted.
    pub(crate) fn logs_stats(&self) -> bool {
        self.server.log.wants_stats_lines()
    }

    /// Answers with a result and nothing else.
    pub(crate) fn answer(
        &self,
        begun: &Begun,
        result: &LdapResult,
        controls: &[ControlBuf],
        out: &mut Vec<u8>,
    ) {
        encode::result(out, begun.operation.id, begun.response, result, controls);
        self.finish(begun, result, None);
    }

    /// Counts and logs the end of an operation.
    pub(crate) fn finish(&self, begun: &Begun, result: &LdapResult, effort: Option<Effort>) {
        if begun.response == ResponseOp::Bind {
            self.bind_judged(result.code);
        }
        self.counters.complete(begun.kind);
        add(&self.counters.pdus_sent, 1);
        add(&self.record.operations_completed, 1);
        let now = self.server.clock.monotonic();
        let here = latency::take_database();
        let database = if begun.database == 0 { here } else { begun.database };
        self.counters.took(begun.kind, database, now.0.saturating_sub(begun.arrived.0));
        if !result.is_success() {
            self.counters.ended_with(result.code);
        }
        let waited = begun.started.0.saturating_sub(begun.arrived.0);
        let taken = now.0.saturating_sub(begun.started.0);
        if self.server.traces.wants_one() {
            self.tell_span(begun, result.code, (waited, taken), database, effort);
        }
        if let Some(asked) = self.take_asked(begun.operation.serial) {
            let ended = Ended { serial: begun.operation.serial, result, waited, taken, effort };
            operation_log::tell(&self.server.log, &self.server.databases(), &self.record, &asked, &ended);
        }
        if let Some(noted) = self.take_noted(begun.operation.serial) {
            noted.ended(result, effort.map_or(0, |effort| effort.entries));
        }
        if !self.logs_stats() {
            return;
        }
        let (waited, taken) = (Seconds(waited), Seconds(taken));
        let code = result.code.0;
        let text = printable(&result.diagnostic);
        let times = format_args!("qtime={waited} etime={taken}");
        match (begun.response, effort) {
            (ResponseOp::SearchDone, effort) => {
                let entries = effort.unwrap_or_default().entries;
                self.log_operation(
                    begun,
                    format_args!("SEARCH RESULT tag=101 err={code} {times} nentries={entries} text={text}"),
                );
            }
            (ResponseOp::Extended, _) => {
                self.log_operation(begun, format_args!("RESULT oid= err={code} {times} text={text}"));
            }
            (response, _) => {
                let tag = response_tag(response);
                self.log_operation(begun, format_args!("RESULT tag={tag} err={code} {times} text={text}"));
            }
        }
    }

    /// Whether the configuration lets this identity read there. What no database holds is answered as that, whoever asks.
    fn may_read(
        &self,
        databases: &Databases,
        subject: &Subject,
        dn: &str,
        operation: Restricted<'_>,
        sent: Controls<'_>,
    ) -> Result<Vec<String>, LdapResult> {
        self.permitted_in(databases, subject, dn, operation, sent)
            .or_else(|refused| if databases.serve(dn) { Err(refused) } else { Ok(Vec::new()) })
    }

    /// A control that the configuration wants marked critical (`disallow dontusecopy_non_critical`).
    fn check_criticality(
        &self,
        config: &Config,
        message: &Message<'_>,
        controls: &RequestControls,
    ) -> Result<(), LdapResult> {
        if controls.dont_use_copy
            && config.global.disallow.dont_use_copy_non_critical
            && message.controls.iter().any(|control| control.oid == oid::DONT_USE_COPY && !control.critical)
        {
            let text = "dontUseCopy criticality of FALSE not allowed";
            return Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, text));
        }
        Ok(())
    }

    /// Whether the configuration lets this session do this to that DN. Answers the OIDs of the controls that are to be
    /// passed over.
    pub(crate) fn permitted(
        &self,
        dn: &str,
        operation: Restricted<'_>,
        sent: Controls<'_>,
    ) -> Result<Vec<String>, LdapResult> {
        // Whoever binds is nobody until that is done.
        let subject = match operation {
            Restricted::SimpleBind | Restricted::SaslBind => self.session.anonymous(),
            _ => self.session.subject(),
        };
        let databases = self.server.databases();
        databases.rules_for(dn).check_request(&self.session.standing(), subject, operation, sent)
    }

    /// As [`Self::permitted`], for the identity that a request acts as.
    pub(crate) fn permitted_as(
        &self,
        subject: &Subject,
        dn: &str,
        operation: Restricted<'_>,
        sent: Controls<'_>,
    ) -> Result<Vec<String>, LdapResult> {
        self.permitted_in(&self.server.databases(), subject, dn, operation, sent)
    }

    fn permitted_in(
        &self,
        databases: &Databases,
        subject: &Subject,
        dn: &str,
        operation: Restricted<'_>,
        sent: Controls<'_>,
    ) -> Result<Vec<String>, LdapResult> {
        let standing = Standing { authenticated: !subject.is_anonymous(), ..self.session.standing() };
        databases.rules_for(dn).check_request(&standing, subject, operation, sent)
    }

    fn begin(&self, operation: Operation, kind: OperationKind, response: ResponseOp) -> Begun {
        self.counters.initiate(kind);
        add(&self.record.operations_received, 1);
        // Nobody but the log tells a request's waiting behind others of its turn from its work.
        let log = &self.server.log;
        let is_told = log.wants_stats_lines() || log.keeps_requests();
        let started = if is_told { self.server.clock.monotonic() } else { self.arrived };
        Begun { operation, kind, response, arrived: self.arrived, started, database: 0 }
    }

    /// Keeps what a request asks, if that may be needed at its end.
    fn note_asked(&self, operation: Operation, message: &Message<'_>) {
        if self.server.log.keeps_requests()
            && let Some(asked) = Asked::of(message)
        {
            self.asked.borrow_mut().push((operation.serial, asked));
        }
    }

    fn tell_span(
        &self,
        begun: &Begun,
        code: ResultCode,
        (waited, taken): (u64, u64),
        database: u64,
        effort: Option<Effort>,
    ) {
        let mut kinds = OperationKind::ALL.iter();
        let operation = kinds.find(|(kind, _)| *kind == begun.kind).map_or("", |(_, name)| *name);
        let micros = i64::try_from(waited.saturating_add(taken) / 1_000).unwrap_or(i64::MAX);
        self.server.traces.tell(Span {
            operation,
            arrived: Timestamp(self.server.now().0.saturating_sub(micros)),
            waited,
            taken,
            code,
            entries: effort.map(|effort| (effort.entries, effort.candidates)),
            database: self.server.databases().suffix_of_instance(database),
            connection: self.record.number,
            serial: begun.operation.serial,
        });
    }

    /// What the access log is to be told of a request at its end, if anything.
    pub(crate) fn take_noted(&self, serial: u64) -> Option<Noted> {
        let mut kept = self.noted.borrow_mut();
        let at = kept.iter().position(|(other, _)| *other == serial)?;
        Some(kept.swap_remove(at).1)
    }

    fn take_asked(&self, serial: u64) -> Option<Asked> {
        let mut kept = self.asked.borrow_mut();
        let at = kept.iter().position(|(other, _)| *other == serial)?;
        Some(kept.swap_remove(at).1)
    }

    fn refuse(&self, begun: &Begun, result: &LdapResult, out: &mut Vec<u8>) -> Started<Running> {
        self.answer(begun, result, &[], out);
        Started::Answered
    }

    fn search(
        &self,
        begun: Begun,
        request: &SearchRequest<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Started<Running> {
        let mut controls = match RequestControls::parse(message.controls, controls::OperationKind::Search) {
            Ok(controls) => controls,
            Err(result) => return self.refuse(&begun, &result, out),
        };
        if self.logs_stats() {
            self.log_search(&begun, request);
        }
        if self.session.must_change_password {
            return self.refuse_until_changed(&begun, &controls, out);
        }
        let generation = self.server.generation();
        let databases = &generation.databases;
        let allowed = self
            .check_criticality(&generation.config, message, &controls)
            .and_then(|()| self.subject_for(&controls))
            .and_then(|subject| {
                let (base, sent) = (request.base, message.controls);
                let dropped = self.may_read(databases, &subject, base, Restricted::Search, sent)?;
                controls.forget(&dropped, message.controls, controls::OperationKind::Search)?;
                Ok(subject)
            });
        let subject = match allowed {
            Ok(subject) => subject,
            Err(result) => return self.refuse(&begun, &result, out),
        };
        let subject = self.in_request(databases, subject, || access::Operation::Search, message.controls);
        let at = (begun.operation.id, begun.started);
        match databases.search(&self.server, &subject, controls, request, at, out) {
            First::Done { result, controls, effort } => {
                self.count_entries(effort.entries);
                encode::result(out, begun.operation.id, ResponseOp::SearchDone, &result, &controls);
                self.finish(&begun, &result, Some(effort));
                Started::Answered
            }
            First::Running(mut search) => {
                if search.follows() {
                    let (serial, events) = (begun.operation.serial, self.events.clone());
                    search.follow(Follower::new(Box::new(move || {
                        // A connection that is gone has no use for it.
                        let _ = events.send(ConnectionEvent::Changed(serial));
                    })));
                }
                let counted = search.effort().entries;
                self.count_entries(counted);
                let begun = Begun { database: latency::take_database(), ..begun };
                Started::Searching(Running { begun, search, counted })
            }
        }
    }

    fn count_entries(&self, sent: u64) {
        add(&self.counters.entries_sent, sent);
        add(&self.counters.pdus_sent, sent);
    }

    fn log_search(&self, begun: &Begun, request: &SearchRequest<'_>) {
        let base = shown_dn(&self.server, request.base);
        let (scope, deref) = (request.scope as u8, request.deref as u8);
        let filter = request.filter.to_string();
        let filter = printable(&filter);
        self.log_operation(
            begun,
            format_args!("SRCH base=\"{base}\" scope={scope} deref={deref} filter=\"{filter}\""),
        );
        if !request.attributes.is_empty() {
            let names: Vec<&str> = request.attributes.iter().collect();
            self.log_operation(begun, format_args!("SRCH attr={}", printable(&names.join(" "))));
        }
    }

    fn compare(
        &mut self,
        begun: &Begun,
        request: &CompareRequest<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Started<Running> {
        if self.logs_stats() {
            let dn = shown_dn(&self.server, request.entry);
            let attribute = printable(request.attribute);
            self.log_operation(begun, format_args!("CMP dn=\"{dn}\" attr=\"{attribute}\""));
        }
        let generation = self.server.generation();
        let databases = &generation.databases;
        let mut asks_policy = false;
        let result = RequestControls::parse(message.controls, controls::OperationKind::Compare)
            .and_then(|mut controls| {
                self.check_criticality(&generation.config, message, &controls)?;
                if self.session.must_change_password {
                    return Err(password_first());
                }
                let subject = self.subject_for(&controls)?;
                let (entry, sent) = (request.entry, message.controls);
                let dropped = self.may_read(databases, &subject, entry, Restricted::Compare, sent)?;
                controls.forget(&dropped, message.controls, controls::OperationKind::Compare)?;
                asks_policy = controls.password_policy;
                let subject =
                    self.in_request(databases, subject, || access::Operation::Compare, message.controls);
                Ok(databases.compare(&self.server, &subject, &controls, request))
            })
            .unwrap_or_else(|refused| refused);
        if asks_policy && self.judge_compare(begun, databases, request, result.code) {
            return Started::Waiting;
        }
        self.refuse(begun, &result, out)
    }

    fn write(
        &mut self,
        begun: Begun,
        operation: WriteOperation,
        restricted: Restricted<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Started<Running> {
        if self.logs_stats() {
            self.log_write(&begun, &operation);
        }
        let kind = match restricted {
            Restricted::Add => controls::OperationKind::Add,
            Restricted::Delete => controls::OperationKind::Delete,
            Restricted::Rename => controls::OperationKind::ModifyDn,
            _ => controls::OperationKind::Modify,
        };
        let generation = self.server.generation();
        let databases = &generation.databases;
        let prepared = RequestControls::parse(message.controls, kind).and_then(|mut controls| {
            let subject = self.subject_for(&controls)?;
            // What no database holds is refused or referred elsewhere whoever asks.
            let (target, sent) = (operation.target(), message.controls);
            let dropped = self
                .permitted_in(databases, &subject, target, restricted, sent)
                .or_else(|refused| if databases.hold(target) { Err(refused) } else { Ok(Vec::new()) })?;
            controls.forget(&dropped, sent, kind)?;
            let kind = || match restricted {
                Restricted::Add => access::Operation::Add,
                Restricted::Delete => access::Operation::Delete,
                Restricted::Rename => access::Operation::Rename,
                _ => access::Operation::Modify,
            };
            Ok((controls, self.in_request(databases, subject, kind, message.controls)))
        });
        drop(generation);
        match prepared {
            Ok((mut controls, subject)) => {
                if let Some(identifier) = controls.transaction.take() {
                    let request = WriteRequest {
                        operation,
                        subject,
                        controls,
                        origin: Origin::Client,
                        passwords: None,
                    };
                    let result = self.keep_update(&begun, request, &identifier);
                    return self.refuse(&begun, &result, out);
                }
                if self.session.must_change_password && !self.changes_password_alone(&operation) {
                    return self.refuse_until_changed(&begun, &controls, out);
                }
                let origin = Origin::Client;
                let request = WriteRequest { operation, subject, controls, origin, passwords: None };
                match self.submit_change(&begun, request) {
                    Ok(()) => {
                        self.wait_for(begun);
                        Started::Waiting
                    }
                    Err(result) => self.refuse(&begun, &result, out),
                }
            }
            Err(result) => self.refuse(&begun, &result, out),
        }
    }

    fn log_write(&self, begun: &Begun, operation: &WriteOperation) {
        let dn = shown_dn(&self.server, operation.target());
        match operation {
            WriteOperation::Add { .. } => self.log_operation(begun, format_args!("ADD dn=\"{dn}\"")),
            WriteOperation::Delete { .. } => self.log_operation(begun, format_args!("DEL dn=\"{dn}\"")),
            WriteOperation::ModifyDn { .. } => self.log_operation(begun, format_args!("MODRDN dn=\"{dn}\"")),
            WriteOperation::Modify { changes, .. } => {
                self.log_operation(begun, format_args!("MOD dn=\"{dn}\""));
                let names: Vec<&str> = changes.iter().map(|c| c.attribute.description.as_str()).collect();
                self.log_operation(begun, format_args!("MOD attr={}", printable(&names.join(" "))));
            }
        }
    }

    /// Takes the record of a request that waited.
    fn take_waiting(&mut self, operation: Operation) -> Option<Begun> {
        let at = self.waiting.iter().position(|begun| begun.operation == operation)?;
        Some(self.waiting.swap_remove(at))
    }
}

impl Service for Dispatcher {
    type Search = Running;
    type Completion = Completion;

    fn start(&mut self, operation: Operation, message: &Message<'_>, out: &mut Vec<u8>) -> Started<Running> {
        latency::in_database(0);
        self.note_asked(operation, message);
        if self.server.access_logs.any()
            && let Some(noted) = self.note_for_log(message)
        {
            self.noted.borrow_mut().push((operation.serial, noted));
        }
        if let Some(refused) = self.over_client_limits(operation, message, out) {
            return refused;
        }
        if self.sasl.is_some()
            && let Some(refused) = self.amid_sasl(operation, message, out)
        {
            return refused;
        }
        match message.request {
            Request::Search(request) => {
                let begun = self.begin(operation, OperationKind::Search, ResponseOp::SearchDone);
                self.search(begun, &request, message, out)
            }
            Request::Bind(request) => {
                let begun = self.begin(operation, OperationKind::Bind, ResponseOp::Bind);
                self.bind(begun, &request, message, out)
            }
            Request::Compare(request) => {
                let begun = self.begin(operation, OperationKind::Compare, ResponseOp::Compare);
                self.compare(&begun, &request, message, out)
            }
            Request::Modify(request) => {
                let begun = self.begin(operation, OperationKind::Modify, ResponseOp::Modify);
                self.write(begun, request.into(), Restricted::Modify, message, out)
            }
            Request::Add(request) => {
                let begun = self.begin(operation, OperationKind::Add, ResponseOp::Add);
                self.write(begun, request.into(), Restricted::Add, message, out)
            }
            Request::Delete(dn) => {
                let begun = self.begin(operation, OperationKind::Delete, ResponseOp::Delete);
                let delete = WriteOperation::Delete { entry: dn.to_owned() };
                self.write(begun, delete, Restricted::Delete, message, out)
            }
            Request::ModifyDn(request) => {
                let begun = self.begin(operation, OperationKind::ModifyDn, ResponseOp::ModifyDn);
                self.write(begun, request.into(), Restricted::Rename, message, out)
            }
            Request::Extended(request) => {
                let begun = self.begin(operation, OperationKind::Extended, ResponseOp::Extended);
                self.extended(begun, &request, message, out)
            }
            // The connection keeps these for itself.
            Request::Unbind | Request::Abandon(_) => Started::Answered,
        }
    }

    fn step(&mut self, _: Operation, running: &mut Running, out: &mut Vec<u8>) -> Stepped {
        Self::step(self, running.begun.operation, running, out)
    }

    fn complete(&mut self, operation: Operation, completion: Completion, out: &mut Vec<u8>) {
        let Some(begun) = self.take_waiting(operation) else { return };
        match completion {
            Completion::Write(outcome) => {
                let changed = self.password_change.take_if(|serial| *serial == begun.operation.serial);
                if changed.is_some() && outcome.result.is_success() {
                    self.session.must_change_password = false;
                }
                self.answer(&begun, &outcome.result, &outcome.controls, out);
            }
            Completion::Bind(outcome) => self.bind_verified(&begun, *outcome, out),
            Completion::Sasl(outcome) => {
                let step = self.sasl_prepared(&begun, *outcome);
                self.answer_step(&begun, step, out);
            }
            Completion::Password(outcome) => self.password_modified(&begun, *outcome, out),
            Completion::Extended(outcome) => {
                self.answer_extended(&begun, &outcome.result, outcome.value.as_deref(), out);
            }
            Completion::Transaction(outcome) => self.transaction_ended(&begun, *outcome, out),
        }
    }

    fn end(&mut self, _: Operation, running: Running, result: Option<LdapResult>, out: &mut Vec<u8>) {
        let result = result.inspect(|result| {
            encode::result(out, running.begun.operation.id, ResponseOp::SearchDone, result, &[]);
        });
        let effort = running.search.effort();
        match result {
            Some(result) => self.finish(&running.begun, &result, Some(effort)),
            None => {
                self.take_asked(running.begun.operation.serial);
                self.take_noted(running.begun.operation.serial);
                self.counters.complete(OperationKind::Search);
                add(&self.record.operations_completed, 1);
            }
        }
    }

    fn cancelled(&mut self, operation: Operation, result: LdapResult, out: &mut Vec<u8>) {
        encode::extended_result(out, operation.id, &result, None, None, &[]);
        if let Some(begun) = self.take_waiting(operation) {
            self.finish(&begun, &result, None);
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
        }
    }

    fn start_tls(&mut self, operation: Operation, outstanding: bool, out: &mut Vec<u8>) {
        if let Some(begun) = self.take_waiting(operation) {
            self.answer_start_tls(&begun, outstanding, out);
        }
    }

    fn changes_layers(&self) -> bool {
        self.layer_change.is_some()
    }

    fn limits(&self) -> Limits {
        let config = self.server.config();
        let global = &config.global;
        let (pdu, pending) = if self.session.is_authenticated() {
            (global.sockbuf_max_incoming_auth, global.conn_max_pending_auth)
        } else {
            (global.sockbuf_max_incoming, global.conn_max_pending)
        };
        let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        Limits {
            pdu: usize::try_from(pdu).unwrap_or(usize::MAX).min(larix_proto::limits::PDU_CEILING),
            pending: size(pending).max(1),
            filter_depth: size(global.max_filter_depth),
        }
    }
}

impl Dispatcher {
    /// One slice of a search.
    fn step(&self, operation: Operation, running: &mut Running, out: &mut Vec<u8>) -> Stepped {
        let stepped = running.search.step(&self.server, out);
        let sent = running.search.effort().entries.saturating_sub(running.counted);
        running.counted += sent;
        self.count_entries(sent);
        let (result, controls) = match stepped {
            Slice::More => return Stepped::More,
            Slice::Waiting => return Stepped::Sleeping,
            Slice::Done(result, controls) => (result, controls),
        };
        encode::result(out, operation.id, ResponseOp::SearchDone, &result, &controls);
        self.finish(&running.begun, &result, Some(running.search.effort()));
        Stepped::Done
    }
}

/// `client-limits`.
impl Dispatcher {
    /// Answers a request that is more than this client's address may ask for.
    fn over_client_limits(
        &self,
        operation: Operation,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Started<Running>> {
        let admitted = self.record.admitted.as_ref()?;
        let admission = &self.server.admission;
        let (kind, response) = match message.request {
            Request::Bind(_) => (OperationKind::Bind, ResponseOp::Bind),
            _ if self.session.is_authenticated() || !admission.counts_operations() => return None,
            Request::Extended(request) if request.name == oid::START_TLS => return None,
            _ => answered_by(&message.request)?,
        };
        let refused = if kind == OperationKind::Bind {
            let begins = admission.bind_begins(admitted, self.arrived);
            self.bind_counted.set(begins.is_ok());
            begins
        } else {
            admission.anonymous_operation(admitted, self.arrived)
        };
        let result = refused.err()?;
        let begun = self.begin(operation, kind, response);
        Some(self.refuse(&begun, &result, out))
    }

    /// Anything but a bind ends a SASL bind of several steps (RFC 4511 section 4.2.1), and is refused.
    fn amid_sasl(
        &mut self,
        operation: Operation,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Started<Running>> {
        let (kind, response) =
            answered_by(&message.request).filter(|(kind, _)| *kind != OperationKind::Bind)?;
        self.sasl = None;
        let begun = self.begin(operation, kind, response);
        let result = LdapResult::with(ResultCode::OPERATIONS_ERROR, "SASL bind in progress");
        Some(self.refuse(&begun, &result, out))
    }

    /// Only binds that fail for their credentials stay counted.
    fn bind_judged(&self, code: ResultCode) {
        if self.bind_counted.replace(false)
            && code != ResultCode::INVALID_CREDENTIALS
            && let Some(admitted) = &self.record.admitted
        {
            self.server.admission.bind_did_not_fail(admitted);
        }
    }
}

/// How a request is counted and answered; none for those without an answer.
fn answered_by(request: &Request<'_>) -> Option<(OperationKind, ResponseOp)> {
    Some(match request {
        Request::Bind(_) => (OperationKind::Bind, ResponseOp::Bind),
        Request::Search(_) => (OperationKind::Search, ResponseOp::SearchDone),
        Request::Compare(_) => (OperationKind::Compare, ResponseOp::Compare),
        Request::Modify(_) => (OperationKind::Modify, ResponseOp::Modify),
        Request::Add(_) => (OperationKind::Add, ResponseOp::Add),
        Request::Delete(_) => (OperationKind::Delete, ResponseOp::Delete),
        Request::ModifyDn(_) => (OperationKind::ModifyDn, ResponseOp::ModifyDn),
        Request::Extended(_) => (OperationKind::Extended, ResponseOp::Extended),
        Request::Unbind | Request::Abandon(_) => return None,
    })
}

/// A DN as the log shows it: in its pretty form if it is one, as it came otherwise.
pub(crate) fn shown_dn(server: &Server, dn: &str) -> String {
    let databases = server.databases();
    let pretty = Dn::parse(dn).ok().and_then(|parsed| databases.schema().pretty_dn(&parsed).ok());
    match pretty {
        Some(pretty) => pretty,
        None => printable(dn).into_owned(),
    }
}

fn response_tag(response: ResponseOp) -> u32 {
    match response {
        ResponseOp::Bind => 97,
        ResponseOp::SearchDone => 101,
        ResponseOp::Modify => 103,
        ResponseOp::Add => 105,
        ResponseOp::Delete => 107,
        ResponseOp::ModifyDn => 109,
        ResponseOp::Compare => 111,
        ResponseOp::Extended => 120,
    }
}
