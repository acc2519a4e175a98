//! A password is replaced (RFC 3062): the old one compared, the new one hashed, both on the pool.

use larix_backend::{Context, Later, PasswordChange, PasswordChangeOutcome, PendingAnswer, Reply};
use larix_proto::LdapResult;

use super::StoredBackend;
use crate::backends::bind_judge::Judge;
use crate::backends::password_replacement::PasswordReplacement;

impl StoredBackend {
    /// # Errors
    /// What is refused at once. A wrong old password counts where failed binds do.
    pub(super) fn change_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChangeOutcome>,
    ) -> Result<Reply<PasswordChangeOutcome>, LdapResult> {
        let proof_begins = change.proof_begins;
        let own = (self.database(), Judge::of(&self.common, &self.served));
        let mut replacement = PasswordReplacement::new(&self.common, own, context, change);
        if replacement.old.is_some() {
            replacement.compare_with(&self.common, replacement.stored_passwords()?);
            proof_begins()?;
        }
        replacement.queue(&self.common.services, later());
        Ok(Reply::Later(PendingAnswer::default()))
    }
}
