//! A password is replaced (RFC 3062): the old one compared, the new one hashed, both on the pool.

use std::sync::Arc;

use larix_backend::{Context, Later, PasswordChange, PasswordChanged, Pending, Reply, Secret};
use larix_proto::LdapResult;

use super::Stored;
use crate::backends::engine_database::{PasswordReplacement, too_many_passwords, unwilling};
use crate::backends::passwords::Judge;

impl Stored {
    pub(super) fn change_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Result<Reply<PasswordChanged>, LdapResult> {
        let stored = match change.old {
            None => Vec::new(),
            Some(_) => self.old_passwords(context, &change)?,
        };
        let services = &self.common.services;
        let source = services.passwords.source(&context.subject.peer.peer_name, change.dn.as_str());
        let job = PasswordReplacement {
            database: self.database(),
            judge: Judge::of(&self.common, &self.served),
            hashers: self.common.config.hashers(),
            saslauthd: self.common.saslauthd(),
            subject: Arc::clone(context.subject),
            dn: change.dn.clone(),
            target: change.target,
            policy_control: change.policy_control,
            old: change.old,
            stored,
            new: change.new,
        };
        let queued = job.pool(services).submit_made(source, || {
            let done = later();
            move || job.carry_out(done)
        });
        queued.map_err(|_| too_many_passwords()).map(|()| Reply::Later(Pending::default()))
    }

    /// What an old password is compared with. An identity that may not replace the password gets the same answer whatever there is,
    /// and a wrong one counts where failed binds do.
    fn old_passwords(
        &self,
        context: &Context<'_>,
        change: &PasswordChange<'_>,
    ) -> Result<Vec<Secret>, LdapResult> {
        if !self.chosen().may_replace_password(context.subject, change.dn) {
            return Err(unwilling());
        }
        let mut passwords = self.lookup(context, change.dn).map_err(|_| unwilling())?.passwords;
        self.common.drop_costly(&mut passwords, change.dn);
        (change.proof_begins)()?;
        Ok(passwords)
    }
}
