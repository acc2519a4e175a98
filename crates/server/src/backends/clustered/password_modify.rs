//! A password is replaced (RFC 3062): the old one read on a thread of the node, compared and the new one hashed on the pool.

use std::sync::Arc;

use larix_engine::Held;
use larix_engine::access::Subject;
use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion, PasswordWork, Purpose};
use larix_engine::password::Hasher;
use larix_engine::write::WriteOutcome;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use zeroize::Zeroizing;

use super::{Clustered, SharedDatabase, Wanted, too_late};
use crate::backends::passwords::{Elsewhere, matches, new_password, replacement};
use crate::clock::SystemRandom;
use crate::cluster::Turn;
use larix_backend::{Context, Done, Later, PasswordChange, PasswordChanged, Reply, Secret};

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
        self.leads(&change.target)?;
        if change.old.is_some() {
            (change.proof_begins)()?;
        }
        let place = self.permit()?;
        let (new, generated) = new_password(change.new.as_ref());
        let job = Job {
            part,
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
            job.look(done);
        });
        Ok(Reply::Later(pending))
    }
}

fn unwilling() -> LdapResult {
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "unwilling to verify old password")
}

/// A change of a password on its way.
struct Job {
    part: SharedDatabase,
    hashers: Vec<Hasher>,
    elsewhere: Option<Elsewhere>,
    subject: Arc<Subject>,
    dn: NormalDn,
    target: String,
    policy_control: bool,
    old: Option<Secret>,
    /// The values of which one must match the old password.
    stored: Vec<Secret>,
    new: Secret,
    generated: Option<Secret>,
}

impl Job {
    /// Reads what the old password is compared with. An identity that may not replace the password gets the same answer whatever
    /// there is.
    fn look(mut self, done: Done<PasswordChanged>) {
        if self.old.is_some() {
            let part = &self.part;
            let found = part.read(|| {
                if !part.chosen().may_replace_password(&self.subject, &self.dn) {
                    return Err(unwilling());
                }
                part.chosen().bind_lookup(&self.dn, &self.subject).map_err(|_| unwilling())
            });
            let found = match found {
                Ok(found) => found,
                Err(refused) => return done(refused.into()),
            };
            self.stored = found.secrets.into_iter().map(Zeroizing::new).collect();
            part.common.drop_costly(&mut self.stored, &self.dn);
        }
        let services = Arc::clone(&self.part.common.services);
        let source = services.passwords.source(&self.subject.peer.peer_name, self.dn.as_str());
        let mut work = Some((self, done));
        let queued = services.passwords.submit_made(source, || {
            let work = work.take();
            move || {
                if let Some((job, done)) = work {
                    job.carry_out(done);
                }
            }
        });
        if let (Err(_), Some((_, done))) = (queued, work) {
            done(LdapResult::with(ResultCode::BUSY, "too many passwords wait to be hashed").into());
        }
    }

    fn carry_out(self, done: Done<PasswordChanged>) {
        let Self {
            part,
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
        let work = PasswordWork::of(Purpose::PasswordModify, old, Some(new));
        if let Some(old) = &work.old
            && !stored.iter().any(|value| matches(elsewhere.as_ref(), &work, value, old))
        {
            let attempt = BindAttempt { dn, matched: false, policy_control, code: GivenCode::NotAsked };
            // The account's policy counts it, durably before the answer.
            let counted = move |verdict: BindConclusion| {
                let controls = verdict.controls;
                done(PasswordChanged { controls, proof: Some(false), ..unwilling().into() });
            };
            return part.judge().conclude(attempt, Box::new(counted));
        }
        let mut values = Vec::with_capacity(hashers.len());
        for hasher in &hashers {
            match work.hash(hasher, work.new.as_deref().map_or(&[], Vec::as_slice), &SystemRandom) {
                Ok(hash) => values.push(hash.to_vec()),
                Err(error) => {
                    let failed =
                        LdapResult::with(ResultCode::OTHER, format!("password hash failed: {error}"));
                    return done(PasswordChanged { proof, ..failed.into() });
                }
            }
        }
        let finished = move |outcome: WriteOutcome| {
            done(PasswordChanged { generated, proof, ..PasswordChanged::from(outcome) });
        };
        let chosen = part.chosen();
        let mut request = replacement(target, values, subject, policy_control);
        request.passwords = Some(Arc::new(work));
        if chosen.has_password_work(&request.operation) {
            chosen.work_on_passwords(&mut request);
        }
        chosen.submit_at(request, Some(dn), &|_| Held::Here, Box::new(finished));
    }
}
