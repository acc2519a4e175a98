//! What every request has in common: it begins, waits, is answered, counted, logged and traced.

use larix_engine::time::{Clock, Monotonic, Timestamp};
use larix_proto::{ControlBuf, LdapResult, Message, ResponseOp, ResultCode, encode};

use super::{Dispatcher, Running};
use crate::access_log::RecordedRequest;
use crate::connection::{Operation, Started};
use crate::log::{LogLevel, OperationLine, Response, What};
use crate::operation_log::{self, Ended, RequestSummary};
use crate::statistics::{OperationKind, add, latency};
use crate::traces::Span;
use larix_backend::Effort;
use larix_backend::Pending;

/// A request that was started: what its answer and its log line need.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Begun {
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
    pub(super) fn begin(&self, operation: Operation, kind: OperationKind, response: ResponseOp) -> Begun {
        self.counters.initiate(kind);
        self.message.set(operation.id);
        add(&self.record.operations_received, 1);
        // Only the log separates a request's wait behind others of its turn from its work.
        let log = &self.server.log;
        let is_told = log.wants_stats_lines() || log.keeps_requests();
        let started = if is_told { self.server.clock.monotonic() } else { self.arrived };
        Begun { operation, kind, response, arrived: self.arrived, started, database: 0 }
    }

    /// Keeps what a request asks, if that may be needed at its end.
    pub(super) fn note_request(&self, operation: Operation, message: &Message<'_>) {
        if self.server.log.keeps_requests()
            && let Some(asked) = RequestSummary::of(message)
        {
            self.asked.borrow_mut().push((operation.serial, asked));
        }
    }

    /// Notes a request that is answered later.
    pub(crate) fn wait_for(&mut self, begun: Begun) {
        self.waiting.push(Begun { database: latency::take_database(), ..begun });
    }

    /// The same, with what gives it up.
    pub(super) fn wait_for_pending(&mut self, begun: Begun, pending: Pending) {
        if pending.give_up.is_some() {
            self.pending.push((begun.operation.serial, pending));
        }
        self.wait_for(begun);
    }

    /// When to give up a waiting request.
    pub(super) fn pending_deadline(&self, operation: Operation) -> Option<Monotonic> {
        self.pending.iter().find(|(serial, _)| *serial == operation.serial)?.1.deadline
    }

    /// What gives a request up that waits, if anything can.
    fn take_pending(&mut self, serial: u64) -> Option<Pending> {
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
        let Some(begun) = self.take_waiting(operation) else { return true };
        match result {
            Some(result) => self.end_otherwise(&begun, &result, out),
            None => self.forget(&begun),
        }
        true
    }

    /// Ends a request that is not answered.
    pub(super) fn forget(&self, begun: &Begun) {
        self.take_request(begun.operation.serial);
        self.take_noted(begun.operation.serial);
        self.counters.complete(begun.kind);
        add(&self.record.operations_completed, 1);
    }

    /// Takes the record of a request that waited.
    pub(super) fn take_waiting(&mut self, operation: Operation) -> Option<Begun> {
        self.take_pending(operation.serial);
        let at = self.waiting.iter().position(|begun| begun.operation == operation)?;
        Some(self.waiting.swap_remove(at))
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
            self.report_span(begun, result.code, (waited, taken), database, effort);
        }
        if let Some(asked) = self.take_request(begun.operation.serial) {
            let ended = Ended { serial: begun.operation.serial, result, waited, taken, effort };
            operation_log::tell(&self.server.log, &self.server.databases(), &self.record, &asked, &ended);
        }
        if let Some(noted) = self.take_noted(begun.operation.serial) {
            noted.ended(result, effort.map_or(0, |effort| effort.entries));
        }
        if !self.logs_stats() {
            return;
        }
        let response = match begun.response {
            ResponseOp::SearchDone => Response::Search { entries: effort.unwrap_or_default().entries },
            ResponseOp::Extended => Response::Extended,
            response => Response::Tagged(response_tag(response)),
        };
        self.log_later(begun, What::Result { response, code: result.code.0, waited, taken }, |texts| {
            texts.extend_from_slice(result.diagnostic.as_bytes());
        });
    }

    pub(super) fn refuse(&self, begun: &Begun, result: &LdapResult, out: &mut Vec<u8>) -> Started<Running> {
        self.answer(begun, result, &[], out);
        Started::Answered
    }

    fn report_span(
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

    /// What the access log gets about a request at its end, if anything.
    pub(crate) fn take_noted(&self, serial: u64) -> Option<RecordedRequest> {
        let mut kept = self.noted.borrow_mut();
        let at = kept.iter().position(|(other, _)| *other == serial)?;
        Some(kept.swap_remove(at).1)
    }

    pub(super) fn take_request(&self, serial: u64) -> Option<RequestSummary> {
        let mut kept = self.asked.borrow_mut();
        let at = kept.iter().position(|(other, _)| *other == serial)?;
        Some(kept.swap_remove(at).1)
    }

    pub(crate) fn log_operation(&self, begun: &Begun, text: std::fmt::Arguments<'_>) {
        if self.logs_stats() {
            let (number, serial) = (self.record.number, begun.operation.serial);
            self.server.log.line(LogLevel::STATS, format_args!("conn={number} op={serial} {text}"));
        }
    }

    /// The same for a line that the log's thread makes: what belongs to it is only copied here.
    pub(super) fn log_later(&self, begun: &Begun, what: What, texts: impl FnOnce(&mut Vec<u8>)) {
        let line = OperationLine { connection: self.record.number, serial: begun.operation.serial, what };
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
