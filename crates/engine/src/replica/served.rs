//! Where a consumer's changes enter a served database.

use larix_proto::{LdapResult, ResultCode};
use larix_store::Store;

use super::{
    DeleteCompletion, DeleteLimit, DeleteOutcome, ReplicatedBatch, ReplicatedCompletion, ReplicatedOutcome,
    Share, UuidSet,
};
use crate::directory::Served;

impl<S: Store> Served<S> {
    /// Carries out what another server did, in one commit. Success means durable.
    pub fn replicate(&self, batch: ReplicatedBatch, done: ReplicatedCompletion) {
        let _ = batch;
        let result = LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "not done yet");
        done(ReplicatedOutcome { changes: Vec::new(), result });
    }

    /// Deletes the entries of the share that were not present, in slices through the writer; none at all when more than
    /// `limit` would go.
    pub fn delete_absent(
        &self,
        share: &Share,
        present: &UuidSet,
        limit: DeleteLimit,
        done: DeleteCompletion,
    ) {
        let _ = (share, present, limit);
        let result = LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "not done yet");
        done(DeleteOutcome::Failed { deleted: 0, result });
    }
}
