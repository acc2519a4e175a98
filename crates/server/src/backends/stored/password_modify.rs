//! A password is replaced (RFC 3062): the old one compared, the new one hashed, both on the pool.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, PasswordWork, Purpose};
use larix_engine::password::Hasher;
use larix_engine::write::WriteOutcome;
use larix_engine::{Directory, Held, Served};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::lmdb::LmdbStore;

use super::Stored;
use crate::backends::passwords::{Elsewhere, matches, new_password, replacement};
use crate::clock::SystemRandom;
use larix_backend::{Context, Done, Later, PasswordChange, PasswordChanged, Pending, Reply, Secret};

impl Stored {
    pub(super) fn change_password(
        &self,
        context: &Context<'_>,
        change: PasswordChange<'_>,
        later: Later<'_, PasswordChanged>,
    ) -> Result<Reply<PasswordChanged>, LdapResult> {
        let stored = match change.old {
            None => None,
            Some(_) => Some(self.old_passwords(context, &change)?),
        };
        let services = &self.common.services;
        let (new, generated) = new_password(change.new.as_ref());
        let source = services.passwords.source(&context.subject.peer.peer_name, change.dn.as_str());
        let job = Job {
            directory: Arc::clone(&self.common.directory),
            served: Arc::clone(&self.served),
            hashers: self.common.config.hashers(),
            elsewhere: self.common.elsewhere(),
            subject: Arc::clone(context.subject),
            dn: change.dn.clone(),
            target: change.target,
            policy_control: change.policy_control,
            old: change.old,
            stored,
            new,
            generated,
        };
        let queued = services.passwords.submit_made(source, || {
            let done = later();
            move || job.carry_out(done)
        });
        queued
            .map_err(|_| LdapResult::with(ResultCode::BUSY, "too many passwords wait to be hashed"))
            .map(|()| Reply::Later(Pending::default()))
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

fn unwilling() -> LdapResult {
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "unwilling to verify old password")
}

/// A change of a password on its way.
struct Job {
    directory: Arc<Directory<LmdbStore>>,
    served: Arc<Served<LmdbStore>>,
    hashers: Vec<Hasher>,
    elsewhere: Option<Elsewhere>,
    subject: Arc<Subject>,
    dn: NormalDn,
    target: String,
    policy_control: bool,
    old: Option<Secret>,
    /// The values of which one must match the old password.
    stored: Option<Vec<Secret>>,
    new: Secret,
    generated: Option<Secret>,
}

impl Job {
    fn carry_out(self, done: Done<PasswordChanged>) {
        let Self {
            directory,
            served,
            hashers,
            elsewhere,
            subject,
            dn,
            target,
            policy_control,
            old,
            stored,
            new,
            generated,
        } = self;
        let proof = old.is_some().then_some(true);
        let chosen = directory.at(&served);
        let work = PasswordWork::of(Purpose::PasswordModify, old, Some(new));
        if let (Some(old), Some(stored)) = (&work.old, stored)
            && !stored.iter().any(|value| matches(elsewhere.as_ref(), &work, value, old))
        {
            let attempt = BindAttempt { dn, matched: false, policy_control, code: GivenCode::NotAsked };
            // The account's policy counts it, durably before the answer.
            let counted = move |verdict: larix_engine::overlay::BindConclusion| {
                let controls = verdict.controls;
                done(PasswordChanged { controls, proof: Some(false), ..unwilling().into() });
            };
            return chosen.conclude_bind(attempt, Box::new(counted));
        }
        let mut values = Vec::with_capacity(hashers.len());
        for hasher in &hashers {
            match work.hash(hasher, work.new.as_deref().map_or(&[], Vec::as_slice), &SystemRandom) {
                Ok(hash) => values.push(hash.to_vec()),
                Err(error) => {
                    let text = format!("password hash failed: {error}");
                    let failed = LdapResult::with(ResultCode::OTHER, text);
                    return done(PasswordChanged { proof, ..failed.into() });
                }
            }
        }
        let finished = move |outcome: WriteOutcome| {
            done(PasswordChanged { generated, proof, ..PasswordChanged::from(outcome) });
        };
        let mut request = replacement(target, values, subject, policy_control);
        request.passwords = Some(Arc::new(work));
        if chosen.has_password_work(&request.operation) {
            chosen.work_on_passwords(&mut request);
        }
        chosen.submit_at(request, Some(dn), &|_| Held::Here, Box::new(finished));
    }
}
