//! A password is replaced (RFC 3062): the old one read on a thread of the node, compared and the new one hashed on the pool.

use larix_backend::{Context, Done, Later, PasswordChange, PasswordChangeOutcome, Reply};
use larix_proto::LdapResult;

use super::{CancelToken, ClusteredBackend, SharedDatabase, too_late};
use crate::backends::password_replacement::PasswordReplacement;
use crate::cluster::{SharedStore, Turn};

impl ClusteredBackend {
    /// # Errors
    /// What is refused at once.
    pub(super) fn change_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Result<Reply<PasswordChangeOutcome>, LdapResult> {
        let handle = self.handle()?;
        if !self.refers_to_provider(context.subject) {
            self.leads(&change.target, change.hops)?;
        }
        if change.old.is_some() {
            (change.proof_begins)()?;
        }
        let permit = self.permit()?;
        let own = (handle.database.clone(), handle.judge());
        let replacement = PasswordReplacement::new(&self.common, own, context, change);
        let cancel_token = CancelToken::default();
        let (pending, done) = (cancel_token.pending(), later());
        permit.take(move |turn| {
            if cancel_token.is_given_up() {
                return;
            }
            if turn == Turn::Late {
                return done(too_late().into());
            }
            replace(&handle, replacement, done);
        });
        Ok(Reply::Later(pending))
    }
}

/// Reads what the old password is compared with, and has the pool do the rest.
fn replace(
    handle: &SharedDatabase,
    mut replacement: PasswordReplacement<SharedStore>,
    done: Done<PasswordChangeOutcome>,
) {
    if replacement.old.is_some() {
        match handle.read(|| replacement.stored_passwords()) {
            Ok(stored) => replacement.compare_with(&handle.common, stored),
            Err(refused) => return done(refused.into()),
        }
    }
    replacement.queue(&handle.common.services, done);
}
