//! A request on its way to the access log.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::audit::{AuditFacts, Request};
use larix_engine::time::Clock;
use larix_engine::write::WriteOutcome;
use larix_proto::LdapResult;

use super::{OperationRecorder, Records, WithResult};
use crate::clock::SystemClock;

/// A request to record at its end.
#[derive(Debug)]
pub(crate) struct RecordedRequest {
    records: Records,
    request: Request,
    facts: AuditFacts,
    clock: Arc<SystemClock>,
}

impl RecordedRequest {
    pub(crate) fn new(
        recorder: &OperationRecorder,
        request: Request,
        facts: AuditFacts,
        clock: &Arc<SystemClock>,
    ) -> Self {
        Self { records: recorder.records(), request, facts, clock: Arc::clone(clock) }
    }

    /// Takes away the name of the entry: the request is about several.
    pub(crate) fn without_name(mut self) -> Self {
        self.facts.dn = None;
        self
    }

    /// Whether its log takes nothing that fails.
    pub(crate) fn is_success_only(&self) -> bool {
        self.records.success_only
    }

    /// In whose name it is carried out.
    pub(crate) fn acts_as(&mut self, subject: &Subject) {
        subject.shown_dn().clone_into(&mut self.facts.authorization);
    }

    /// What was answered, and how many entries before it.
    pub(crate) fn ended(mut self, result: &LdapResult, entries: u64) {
        if let Request::Search(search) = &mut self.request {
            search.entries = entries;
        }
        self.facts.end = self.clock.now();
        self.records.ended(self.request, self.facts.with_result(result));
    }

    /// The writer is done with the change.
    pub(crate) fn changed(mut self, outcome: &WriteOutcome) {
        self.facts.end = self.clock.now();
        self.records.changed(self.request, self.facts, outcome);
    }
}
