//! A password is replaced (RFC 3062): the old one read on a thread of the node, compared and the new one hashed on the pool.

use std::sync::Arc;

use larix_backend::{Context, Done, Later, PasswordChange, PasswordChanged, Reply};
use larix_proto::LdapResult;
use zeroize::Zeroizing;

use super::{Clustered, SharedDatabase, Wanted, too_late};
use crate::backends::engine_database::{PasswordReplacement, too_many_passwords, unwilling};
use crate::backends::passwords::new_password;
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
        let part = self.part()?;
        if !self.refers_to_provider(context.subject) {
            self.leads(&change.target)?;
        }
        if change.old.is_some() {
            (change.proof_begins)()?;
        }
        let place = self.permit()?;
        let (new, generated) = new_password(change.new.as_ref());
        let replacement = PasswordReplacement {
            database: part.database.clone(),
            judge: part.judge(),
            hashers: self.common.config.hashers(),
            elsewhere: self.common.elsewhere(),
            subject: Arc::clone(context.subject),
            dn: change.dn.clone(),
            target: change.target,
            policy_control: change.policy_control,
            old: change.old,
            stored: Vec::new(),
            new,
            generated,
        };
        let wanted = Wanted::default();
        let (pending, done) = (wanted.pending(), later());
        place.take(move |turn| {
            if wanted.is_given_up() {
                return;
            }
            if turn == Turn::Late {
                return done(too_late().into());
            }
            replace(&part, replacement, done);
        });
        Ok(Reply::Later(pending))
    }
}

/// Reads what the old password is compared with, and has the pool do the rest. An identity that may not replace the password gets the
/// same answer whatever there is.
fn replace(
    part: &SharedDatabase,
    mut replacement: PasswordReplacement<SharedStore>,
    done: Done<PasswordChanged>,
) {
    let (dn, subject) = (&replacement.dn, &replacement.subject);
    if replacement.old.is_some() {
        let found = part.read(|| {
            if !part.chosen().may_replace_password(subject, dn) {
                return Err(unwilling());
            }
            part.chosen().bind_lookup(dn, subject).map_err(|_| unwilling())
        });
        let found = match found {
            Ok(found) => found,
            Err(refused) => return done(refused.into()),
        };
        replacement.stored = found.secrets.into_iter().map(Zeroizing::new).collect();
        part.common.drop_costly(&mut replacement.stored, &replacement.dn);
    }
    let passwords = &part.common.services.passwords;
    let source = passwords.source(&replacement.subject.peer.peer_name, replacement.dn.as_str());
    let mut work = Some((replacement, done));
    let queued = passwords.submit_made(source, || {
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
