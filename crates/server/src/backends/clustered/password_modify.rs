//! A password is replaced (RFC 3062): the old one read on a thread of the node, compared and the new one hashed on the pool.

use std::sync::Arc;

use larix_backend::{Context, Done, Later, PasswordChange, PasswordChanged, Reply};
use larix_proto::LdapResult;
use zeroize::Zeroizing;

use super::{CancelToken, Clustered, SharedDatabase, too_late};
use crate::backends::engine_database::{PasswordReplacement, too_many_passwords, unwilling};
use crate::cluster::{SharedStore, Turn};

impl Clustered {
    /// # Errors
    /// What is refused at once.
    pub(super) fn change_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Result<Reply<PasswordChanged>, LdapResult> {
        let handle = self.handle()?;
        if !self.refers_to_provider(context.subject) {
            self.leads(&change.target)?;
        }
        if change.old.is_some() {
            (change.proof_begins)()?;
        }
        let permit = self.permit()?;
        let replacement = PasswordReplacement {
            database: handle.database.clone(),
            judge: handle.judge(),
            hashers: self.common.config.hashers(),
            saslauthd: self.common.saslauthd(),
            subject: Arc::clone(context.subject),
            dn: change.dn.clone(),
            target: change.target,
            policy_control: change.policy_control,
            old: change.old,
            stored: Vec::new(),
            new: change.new,
        };
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

/// Reads what the old password is compared with, and has the pool do the rest. An identity that may not replace the password gets the
/// same answer whatever there is.
fn replace(
    handle: &SharedDatabase,
    mut replacement: PasswordReplacement<SharedStore>,
    done: Done<PasswordChanged>,
) {
    let (dn, subject) = (&replacement.dn, &replacement.subject);
    if replacement.old.is_some() {
        let found = handle.read(|| {
            if !handle.chosen().may_replace_password(subject, dn) {
                return Err(unwilling());
            }
            handle.chosen().bind_lookup(dn, subject).map_err(|_| unwilling())
        });
        let found = match found {
            Ok(found) => found,
            Err(refused) => return done(refused.into()),
        };
        replacement.stored = found.secrets.into_iter().map(Zeroizing::new).collect();
        handle.common.drop_costly(&mut replacement.stored, &replacement.dn);
    }
    let services = &handle.common.services;
    let source = services.passwords.source(&replacement.subject.peer.peer_name, replacement.dn.as_str());
    let pool = replacement.pool(services);
    let mut work = Some((replacement, done));
    let queued = pool.submit_made(source, || {
        let work = work.take();
        move || {
            if let Some((replacement, done)) = work {
                replacement.carry_out(done);
            }
        }
    });
    if let (Err(_), Some((_, done))) = (queued, work) {
        done(too_many_passwords().into());
    }
}
