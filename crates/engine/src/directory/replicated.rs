//! Where a consumer's changes enter a served database.

use std::sync::{Arc, Mutex, PoisonError};

use larix_proto::{LdapResult, ResultCode};
use larix_store::Store;

use super::{ServedDatabase, absent};
use crate::load::{Fill, FillOptions};
use crate::overlay::Interests;
use crate::replica::{
    DeleteCompletion, DeleteLimit, Ready, ReplicatedBatch, ReplicatedChange, ReplicatedCompletion,
    ReplicatedJob, ReplicatedOutcome, Share, UuidSet, is_elsewhere, prepare,
};
use crate::write::KnownSchema;
use crate::writer::{Job, WriterTask};

impl<S: Store> ServedDatabase<S> {
    /// Carries out what another server did, in one commit. Success means durable. What takes no entry is checked here, on
    /// the caller's thread.
    ///
    /// Whether the database takes changes of clients (`readonly`, `updateref`) does not matter.
    pub fn replicate(&self, batch: ReplicatedBatch, completion: ReplicatedCompletion) {
        let schema = self.database().schema();
        let known = match KnownSchema::of(&schema) {
            Ok(known) => known,
            Err(missing) => {
                let result = LdapResult::with(ResultCode::OTHER, missing.to_string());
                return completion(ReplicatedOutcome { changes: Vec::new(), result });
            }
        };
        let ReplicatedBatch { changes, context_csns, mut rules } = batch;
        let settings = self.database().settings();
        let overlays = settings.overlays.at(Interests::BACK_LINK);
        let links = overlays.filter_map(|overlay| overlay.back_link());
        let own: Vec<_> = links.map(|rule| rule.back.attribute).collect();
        if !own.is_empty() {
            // Each server keeps back links by itself.
            rules.attributes = Arc::new(rules.attributes.without(&own));
        }
        let prepared = |change: ReplicatedChange| match is_elsewhere(&schema, &settings.suffixes, &change) {
            true => Ready::Nothing,
            false => prepare(&schema, &known, &rules, change),
        };
        let changes = changes.into_iter().map(prepared).collect();
        let applied = Arc::new(Mutex::new(Vec::new()));
        let job = ReplicatedJob { changes, context_csns, rules, applied: Arc::clone(&applied) };
        let completion = Box::new(move |outcome: crate::write::WriteOutcome| {
            let changes = std::mem::take(&mut *applied.lock().unwrap_or_else(PoisonError::into_inner));
            completion(ReplicatedOutcome { changes, result: outcome.result });
        });
        self.writer.submit(Job {
            tasks: Vec::new(),
            replicated: Some(Box::new(job)),
            follow: None,
            completion,
        });
    }

    /// Begins to fill a database that never had any content. `None`: it has content, or a follower needs each
    /// change; then use [`Self::replicate`]. Other changes wait until it has ended.
    pub fn fill(&self, options: FillOptions) -> Option<Fill> {
        let (fill, request) = Fill::new(options);
        let begun = self.writer.send(|begun| WriterTask::Fill(Box::new(request), begun))?;
        begun.then_some(fill)
    }

    /// Deletes the entries of the share that were not present, in batches through the writer; none at all when more than
    /// `limit` would go. `completion` is called on a thread of its own, or here when there is none to be had. Entries that were
    /// changed since the provider's contextCSN ([`Share::seen`]) stay.
    pub fn delete_absent(
        &self,
        share: &Share,
        present: &UuidSet,
        limit: DeleteLimit,
        completion: DeleteCompletion,
    ) {
        absent::delete_absent(self.database(), self.writer.submitter(), share, present, limit, completion);
    }
}
