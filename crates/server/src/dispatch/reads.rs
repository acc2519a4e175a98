//! Searches, slice by slice, and compares.

use larix_configuration::Config;
use larix_engine::access::{self, Subject};
use larix_engine::budget::LimitExceeded;
use larix_engine::controls::{self, RequestControls};
use larix_engine::log::Follower;
use larix_engine::write::WriteOutcome;
use larix_proto::{
    CompareRequest, Controls, Filter, LdapResult, Message, ResponseOp, ResultCode, SearchRequest, encode, oid,
};

use super::persistent::PersistentGuard;
use super::{Completion, ConnectionEvent, Dispatcher, RequestInFlight, RunningSearch, put_names};
use crate::connection::{Operation, SliceOutcome, StartOutcome};
use crate::databases::Databases;
use crate::log::What;
use crate::operation_rules::RestrictedOperation;
use crate::statistics::{add, latency};
use larix_backend::{Cursor, Done, End, First, Reply, StepOutcome, slice};

impl Dispatcher {
    pub(super) fn search(
        &mut self,
        in_flight: RequestInFlight,
        request: &SearchRequest<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> StartOutcome<RunningSearch> {
        let mut controls = match self.controls(message.controls, controls::OperationKind::Search) {
            Ok(controls) => controls,
            Err(result) => return self.refuse(&in_flight, &result, out),
        };
        if self.logs_stats() {
            self.log_search(&in_flight, request);
        }
        if self.session.must_change_password {
            return self.refuse_until_changed(&in_flight, &controls, out);
        }
        let generation = self.server.generation();
        let databases = &generation.databases;
        let allowed = self
            .check_criticality(&generation.config, message, &controls)
            .and_then(|()| self.subject_for(&in_flight, &controls))
            .and_then(|subject| {
                let (base, sent) = (request.base, message.controls);
                let dropped = self.may_read(databases, &subject, base, RestrictedOperation::Search, sent)?;
                controls.forget(&dropped, message.controls, controls::OperationKind::Search)?;
                Ok(subject)
            });
        let subject = match allowed {
            Ok(subject) => subject,
            Err(result) => return self.refuse(&in_flight, &result, out),
        };
        let size = (in_flight.operation, request.filter);
        let persistent_guard = match self.count_persistent(&generation.config, &controls, size) {
            Ok(persistent_guard) => persistent_guard,
            Err(exceeded) => return self.refuse(&in_flight, &exceeded.into(), out),
        };
        let subject = self.in_request(databases, subject, || access::Operation::Search, message.controls);
        let context = databases.context(&subject, (self, &*self.server.clock), in_flight.started);
        match databases.router().search(&context, request, controls, in_flight.operation.id, out) {
            First::Done { result, controls, effort } => {
                self.count_entries(effort.entries);
                encode::result(out, in_flight.operation.id, ResponseOp::SearchDone, &result, &controls);
                self.finish(&in_flight, &result, Some(effort));
                StartOutcome::Answered
            }
            First::Running(search) => {
                StartOutcome::Searching(self.running_search(in_flight, search, persistent_guard))
            }
        }
    }

    /// A search that its first slice did not end.
    fn running_search(
        &self,
        in_flight: RequestInFlight,
        mut search: Box<dyn Cursor>,
        persistent_guard: Option<PersistentGuard>,
    ) -> RunningSearch {
        if search.waits() {
            let (serial, events) = (in_flight.operation.serial, self.events.clone());
            search.follow(Follower::new(Box::new(move || {
                // A connection that is gone has no use for it.
                let _ = events.send(ConnectionEvent::Woken(serial));
            })));
        }
        let counted = search.effort().entries;
        self.count_entries(counted);
        let in_flight = RequestInFlight { database: latency::take_database(), ..in_flight };
        RunningSearch { in_flight, search, counted, slices: 1, spare: Vec::new(), persistent_guard }
    }

    /// Counts a search that is to go on with changes.
    fn count_persistent(
        &mut self,
        config: &Config,
        controls: &RequestControls,
        (operation, filter): (Operation, Filter<'_>),
    ) -> Result<Option<PersistentGuard>, LimitExceeded> {
        let goes_on =
            controls.sync.as_ref().is_some_and(|sync| sync.persist) || controls.persistent.is_some();
        if !goes_on {
            return Ok(None);
        }
        let limits = &config.global.request_limits;
        let terms = limits.terms_of(filter)?;
        self.persistent.one_more(limits, (operation.bytes, terms)).map(Some)
    }

    /// One slice of a search.
    pub(super) fn search_step(
        &self,
        operation: Operation,
        running: &mut RunningSearch,
        out: &mut Vec<u8>,
    ) -> SliceOutcome {
        let stepped = running.search.step(slice(&*self.server.clock), out);
        running.slices = running.slices.saturating_add(1);
        self.count_new_entries(running);
        let (result, controls) = match stepped {
            StepOutcome::More => return SliceOutcome::More,
            StepOutcome::Waiting if running.search.waits_for_changes() => return SliceOutcome::Sleeping,
            StepOutcome::Waiting => return SliceOutcome::Waiting,
            StepOutcome::Done(result, controls) => (result, controls),
        };
        encode::result(out, operation.id, ResponseOp::SearchDone, &result, &controls);
        self.finish(&running.in_flight, &result, Some(running.search.effort()));
        SliceOutcome::Done
    }

    /// Counts what was answered since the last time.
    pub(super) fn count_new_entries(&self, running: &mut RunningSearch) {
        let sent = running.search.effort().entries.saturating_sub(running.counted);
        running.counted += sent;
        self.count_entries(sent);
    }

    fn count_entries(&self, sent: u64) {
        add(&self.counters.entries_sent, sent);
        add(&self.counters.pdus_sent, sent);
    }

    fn log_search(&self, in_flight: &RequestInFlight, request: &SearchRequest<'_>) {
        let (scope, deref, base) = (request.scope as u8, request.deref as u8, request.base.len());
        self.log_later(in_flight, What::Search { scope, deref, base }, |texts| {
            texts.extend_from_slice(request.base.as_bytes());
            texts.extend_from_slice(request.filter.as_ber());
        });
        if !request.attributes.is_empty() {
            self.log_later(in_flight, What::Attributes { word: "SRCH" }, |texts| {
                put_names(texts, request.attributes.iter());
            });
        }
    }

    pub(super) fn compare(
        &mut self,
        in_flight: &RequestInFlight,
        request: &CompareRequest<'_>,
        message: &Message<'_>,
        out: &mut Vec<u8>,
    ) -> StartOutcome<RunningSearch> {
        if self.logs_stats() {
            self.log_later(in_flight, What::Compare { entry: request.entry.len() }, |texts| {
                texts.extend_from_slice(request.entry.as_bytes());
                texts.extend_from_slice(request.attribute.as_bytes());
            });
        }
        let mut controls = match self.controls(message.controls, controls::OperationKind::Compare) {
            Ok(controls) => controls,
            Err(refused) => return self.refuse(in_flight, &refused, out),
        };
        if self.session.must_change_password {
            return self.refuse_until_changed(in_flight, &controls, out);
        }
        let generation = self.server.generation();
        let databases = &generation.databases;
        let allowed = self.check_criticality(&generation.config, message, &controls).and_then(|()| {
            generation.config.global.request_limits.check_controls(&controls)?;
            let subject = self.subject_for(in_flight, &controls)?;
            let (entry, sent) = (request.entry, message.controls);
            let dropped = self.may_read(databases, &subject, entry, RestrictedOperation::Compare, sent)?;
            controls.forget(&dropped, message.controls, controls::OperationKind::Compare)?;
            Ok(self.in_request(databases, subject, || access::Operation::Compare, message.controls))
        });
        let subject = match allowed {
            Ok(subject) => subject,
            Err(refused) => return self.refuse(in_flight, &refused, out),
        };
        let context = databases.context(&subject, (self, &*self.server.clock), in_flight.started);
        let mut later = || -> Done<End> {
            let completer = self.completer(in_flight);
            Box::new(move |(result, controls)| {
                let outcome = WriteOutcome { controls, ..WriteOutcome::from(result) };
                completer.complete(Completion::Write(outcome));
            })
        };
        match databases.router().compare(&context, request, &controls, &mut later) {
            Reply::Now((result, controls)) => {
                self.answer(in_flight, &result, &controls, out);
                StartOutcome::Answered
            }
            Reply::Later(pending) => {
                self.wait_for_pending(*in_flight, pending);
                StartOutcome::Waiting
            }
        }
    }

    /// Whether the configuration lets this identity read there. A name outside every database gets that answer, for every identity.
    fn may_read(
        &self,
        databases: &Databases,
        subject: &Subject,
        dn: &str,
        operation: RestrictedOperation<'_>,
        sent: Controls<'_>,
    ) -> Result<Vec<String>, LdapResult> {
        self.permitted_in(databases, subject, dn, operation, sent)
            .or_else(|refused| if databases.answers_for(dn) { Err(refused) } else { Ok(Vec::new()) })
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
}
