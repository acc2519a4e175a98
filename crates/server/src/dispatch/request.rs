//! What every request has in common: it begins, waits, is answered, counted, logged and traced.

use larix_engine::time::{Clock, Monotonic, Timestamp};
use larix_proto::{ControlBuf, LdapResult, Message, ResponseOp, ResultCode, encode};

use super::{Dispatcher, RunningSearch};
use crate::access_log::RecordedRequest;
use crate::connection::{Operation, StartOutcome};
use crate::log::{LogLevel, OperationLine, Response, What};
use crate::operation_log::{self, RequestEnd, RequestSummary};
use crate::statistics::{OperationKind, add, latency};
use crate::traces::Span;
use larix_backend::{Effort, PendingAnswer};

/// A request that was started: what its answer and its log line need.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RequestInFlight {
    pub(crate) operation: Operation,
    pub(crate) kind: OperationKind,
    pub(crate) response: ResponseOp,
    /// When its bytes were read, and when it was started.
    pub(super) arrived: Monotonic,
    pub(super) started: Monotonic,
    /// The instance of the database that it is in, once it waits; 0: none, or not known yet.
    pub(super) database: u64,
}

impl Dispatcher {
    pub(super) fn begin(
        &self,
        operation: Operation,
        kind: OperationKind,
        response: ResponseOp,
    ) -> RequestInFlight {
        self.counters.initiate(kind);
        self.message.set(operation.id);
        add(&self.record.operations_received, 1);
        // Only the log separates a request's wait behind others of its turn from its work.
        let log = &self.server.log;
        let is_told = log.wants_stats_lines() || log.keeps_requests();
        let started = if is_told { self.server.clock.monotonic() } else { self.arrived };
        RequestInFlight { operation, kind, response, arrived: self.arrived, started, database: 0 }
    }

    /// Keeps what a request asks, if that may be needed at its end.
    pub(super) fn note_request(&self, operation: Operation, message: &Message<'_>) {
        if self.server.log.keeps_requests()
            && let Some(summary) = RequestSummary::of(message)
        {
            self.summaries.borrow_mut().push((operation.serial, summary));
        }
    }

    /// Notes a request that is answered later.
    pub(crate) fn wait_for(&mut self, in_flight: RequestInFlight) {
        self.waiting.push(RequestInFlight { database: latency::take_database(), ..in_flight });
    }

    /// The same, with what gives it up.
    pub(super) fn wait_for_pending(&mut self, in_flight: RequestInFlight, pending: PendingAnswer) {
        if pending.give_up.is_some() {
            self.pending.push((in_flight.operation.serial, pending));
        }
        self.wait_for(in_flight);
    }

    /// When to give up a waiting request.
    pub(super) fn pending_deadline(&self, operation: Operation) -> Option<Monotonic> {
        self.pending.iter().find(|(serial, _)| *serial == operation.serial)?.1.deadline
    }

    /// What gives a request up that waits, if anything can.
    fn take_pending(&mut self, serial: u64) -> Option<PendingAnswer> {
        let at = self.pending.iter().position(|(other, _)| *other == serial)?;
        Some(self.pending.swap_remove(at).1)
    }

    /// Gives a request up: with an answer, or without one.
    pub(super) fn give_up_waiting(
        &mut self,
        operation: Operation,
        result: Option<LdapResult>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(give_up) = self.take_pending(operation.serial).and_then(|pending| pending.give_up) else {
            return false;
        };
        give_up();
        let Some(in_flight) = self.take_waiting(operation) else { return true };
        match result {
            Some(result) => self.end_otherwise(&in_flight, &result, out),
            None => self.forget(&in_flight, None),
        }
        true
    }

    /// Ends a request that is not answered.
    pub(super) fn forget(&self, in_flight: &RequestInFlight, effort: Option<Effort>) {
        let serial = in_flight.operation.serial;
        if let Some(summary) = self.take_summary(serial) {
            let waited = in_flight.started.0.saturating_sub(in_flight.arrived.0);
            let taken = self.server.clock.monotonic().0.saturating_sub(in_flight.started.0);
            let ended = RequestEnd { serial, result: None, waited, taken, effort };
            operation_log::tell(&self.server.log, &self.server.databases(), &self.record, &summary, &ended);
        }
        self.take_recorded_request(serial);
        self.counters.complete(in_flight.kind);
        add(&self.record.operations_completed, 1);
    }

    /// Takes the record of a request that waited.
    pub(super) fn take_waiting(&mut self, operation: Operation) -> Option<RequestInFlight> {
        self.take_pending(operation.serial);
        let at = self.waiting.iter().position(|in_flight| in_flight.operation == operation)?;
        Some(self.waiting.swap_remove(at))
    }

    /// Answers with a result and nothing else.
    pub(crate) fn answer(
        &self,
        in_flight: &RequestInFlight,
        result: &LdapResult,
        controls: &[ControlBuf],
        out: &mut Vec<u8>,
    ) {
        encode::result(out, in_flight.operation.id, in_flight.response, result, controls);
        self.finish(in_flight, result, None);
    }

    /// Counts and logs the end of an operation.
    pub(crate) fn finish(&self, in_flight: &RequestInFlight, result: &LdapResult, effort: Option<Effort>) {
        if in_flight.response == ResponseOp::Bind {
            self.bind_judged(result.code);
        }
        self.counters.complete(in_flight.kind);
        add(&self.counters.pdus_sent, 1);
        add(&self.record.operations_completed, 1);
        let now = self.server.clock.monotonic();
        let here = latency::take_database();
        let database = if in_flight.database == 0 { here } else { in_flight.database };
        self.counters.took(in_flight.kind, database, now.0.saturating_sub(in_flight.arrived.0));
        if !result.is_success() {
            self.counters.ended_with(result.code);
        }
        let waited = in_flight.started.0.saturating_sub(in_flight.arrived.0);
        let taken = now.0.saturating_sub(in_flight.started.0);
        if self.server.traces.wants_one() {
            self.report_span(in_flight, result.code, (waited, taken), database, effort);
        }
        if let Some(summary) = self.take_summary(in_flight.operation.serial) {
            let serial = in_flight.operation.serial;
            let ended = RequestEnd { serial, result: Some(result), waited, taken, effort };
            operation_log::tell(&self.server.log, &self.server.databases(), &self.record, &summary, &ended);
        }
        if let Some(record) = self.take_recorded_request(in_flight.operation.serial) {
            record.ended(result, effort.map_or(0, |effort| effort.entries));
        }
        if !self.logs_stats() {
            return;
        }
        let response = match in_flight.response {
            ResponseOp::SearchDone => Response::Search { entries: effort.unwrap_or_default().entries },
            ResponseOp::Extended => Response::Extended,
            response => Response::Tagged(response_tag(response)),
        };
        self.log_later(in_flight, What::Result { response, code: result.code.0, waited, taken }, |texts| {
            texts.extend_from_slice(result.diagnostic.as_bytes());
        });
    }

    pub(super) fn refuse(
        &self,
        in_flight: &RequestInFlight,
        result: &LdapResult,
        out: &mut Vec<u8>,
    ) -> StartOutcome<RunningSearch> {
        self.answer(in_flight, result, &[], out);
        StartOutcome::Answered
    }

    fn report_span(
        &self,
        in_flight: &RequestInFlight,
        code: ResultCode,
        (waited, taken): (u64, u64),
        database: u64,
        effort: Option<Effort>,
    ) {
        let mut kinds = OperationKind::ALL.iter();
        let operation = kinds.find(|(kind, _)| *kind == in_flight.kind).map_or("", |(_, name)| *name);
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
            serial: in_flight.operation.serial,
        });
    }

    /// What the access log gets about a request at its end, if anything.
    pub(crate) fn take_recorded_request(&self, serial: u64) -> Option<RecordedRequest> {
        let mut recorded = self.recorded.borrow_mut();
        let at = recorded.iter().position(|(other, _)| *other == serial)?;
        Some(recorded.swap_remove(at).1)
    }

    pub(super) fn take_summary(&self, serial: u64) -> Option<RequestSummary> {
        let mut summaries = self.summaries.borrow_mut();
        let at = summaries.iter().position(|(other, _)| *other == serial)?;
        Some(summaries.swap_remove(at).1)
    }

    pub(crate) fn log_operation(&self, in_flight: &RequestInFlight, text: std::fmt::Arguments<'_>) {
        if self.logs_stats() {
            let (number, serial) = (self.record.number, in_flight.operation.serial);
            self.server.log.line(LogLevel::STATS, format_args!("conn={number} op={serial} {text}"));
        }
    }

    /// The same for a line that the log's thread makes: what belongs to it is only copied here.
    pub(super) fn log_later(
        &self,
        in_flight: &RequestInFlight,
        what: What,
        texts: impl FnOnce(&mut Vec<u8>),
    ) {
        let line = OperationLine { connection: self.record.number, serial: in_flight.operation.serial, what };
        match what {
            What::Attributes { .. } | What::Result { .. } => self.server.log.operation(line, None, texts),
            _ => self.server.log.operation(line, Some(self.server.databases().schema()), texts),
        }
    }

    /// Whether OpenLDAP's lines are wanted.
    pub(crate) fn logs_stats(&self) -> bool {
        self.server.log.wants_stats_lines()
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
