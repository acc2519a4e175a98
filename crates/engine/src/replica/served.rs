//! Where a consumer's changes enter a served database.

use std::sync::{Arc, Mutex, PoisonError};

use larix_proto::{LdapResult, ResultCode};
use larix_store::Store;

use super::prepare::prepare;
use super::{ReplicatedBatch, ReplicatedCompletion, ReplicatedJob, ReplicatedOutcome};
use crate::directory::Served;
use crate::overlay::Interests;
use crate::write::KnownSchema;
use crate::write::writer::Job;

impl<S: Store> Served<S> {
    /// Carries out what another server did, in one commit. Success means durable. What takes no entry is checked here, on
    /// the caller's thread.
    ///
    /// Whether the database takes changes of clients (`readonly`, `updateref`) does not matter.
    pub fn replicate(&self, batch: ReplicatedBatch, done: ReplicatedCompletion) {
        let schema = self.database().schema();
        let known = match KnownSchema::of(&schema) {
            Ok(known) => known,
            Err(missing) => {
                let result = LdapResult::with(ResultCode::OTHER, missing.to_string());
                return done(ReplicatedOutcome { changes: Vec::new(), result });
            }
        };
        let ReplicatedBatch { changes, context_csns, mut rules } = batch;
        let settings = self.database().settings();
        let overlays = settings.overlays.at(Interests::MEMBERSHIP);
        let rules_of_groups = overlays.filter_map(|overlay| overlay.membership());
        let own: Vec<_> = rules_of_groups.map(|rule| rule.member_of.attribute).collect();
        if !own.is_empty() {
            // Each server finds out by itself which groups an entry is in.
            rules.attributes = Arc::new(rules.attributes.without(&own));
        }
        let changes = changes.into_iter().map(|change| prepare(&schema, &known, &rules, change)).collect();
        let applied = Arc::new(Mutex::new(Vec::new()));
        let job = ReplicatedJob { changes, context_csns, rules, applied: Arc::clone(&applied) };
        let done = Box::new(move |outcome: crate::write::WriteOutcome| {
            let changes = std::mem::take(&mut *applied.lock().unwrap_or_else(PoisonError::into_inner));
            done(ReplicatedOutcome { changes, result: outcome.result });
        });
        self.writer.submit(Job { tasks: Vec::new(), replicated: Some(Box::new(job)), done });
    }
}
