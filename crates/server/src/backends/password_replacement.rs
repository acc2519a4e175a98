//! A password that is replaced (RFC 3062), in whichever database.

use std::ops::RangeInclusive;
use std::sync::Arc;

use larix_backend::{
    Backend, Changes, Context, Done, Later, PasswordChange, PasswordChangeOutcome, Reply, Secret,
};
use larix_engine::DnLocation;
use larix_engine::access::Subject;
use larix_engine::controls::{ControlValues, RequestControls};
use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion, PasswordWork, Purpose};
use larix_engine::password::{Hasher, Scheme};
use larix_engine::write::{
    AttributeValues, Modification, Origin, WriteOperation, WriteOutcome, WriteRequest,
};
use larix_proto::{LdapResult, ModifyOperation, ResultCode};
use larix_schema::NormalDn;
use larix_store::Store;
use zeroize::Zeroizing;

use super::Common;
use super::bind_judge::Judge;
use super::engine_database::{EngineDatabase, too_many_passwords};
use super::passwords::{Saslauthd, asks_saslauthd, matches};
use crate::clock::SystemRandom;
use crate::generated_password::{generate_password, generate_within};
use crate::password_pool::PasswordPool;
use crate::services::Services;

/// A password that is replaced in a database of the engine: the old one compared, the new one hashed.
pub(super) struct PasswordReplacement<S: Store> {
    database: EngineDatabase<S>,
    /// Counts a wrong old password where failed binds count.
    judge: Judge,
    hashers: Vec<Hasher>,
    saslauthd: Option<Saslauthd>,
    subject: Arc<Subject>,
    dn: NormalDn,
    /// The name as the client wrote it.
    target: String,
    policy_control: bool,
    pub(super) old: Option<Secret>,
    /// The values of which one must match the old password, if there is one.
    stored: Vec<Secret>,
    /// `None`: the server makes one up.
    new: Option<Secret>,
}

impl<S: Store> PasswordReplacement<S> {
    /// With an old password that nothing matches yet.
    pub(super) fn new(
        common: &Common,
        (database, judge): (EngineDatabase<S>, Judge),
        context: &Context<'_>,
        change: PasswordChange<'_>,
    ) -> Self {
        Self {
            database,
            judge,
            hashers: common.config.hashers(),
            saslauthd: common.saslauthd(),
            subject: Arc::clone(context.subject),
            dn: change.dn.clone(),
            target: change.target,
            policy_control: change.policy_control,
            old: change.old,
            stored: Vec::new(),
            new: change.new,
        }
    }

    /// The values that the old password may match.
    ///
    /// # Errors
    /// An identity that may not replace the password gets the same answer whatever there is.
    pub(super) fn stored_passwords(&self) -> Result<Vec<Secret>, LdapResult> {
        let chosen = self.database.chosen();
        if !chosen.may_replace_password(&self.subject, &self.dn) {
            return Err(unwilling());
        }
        let found = chosen.bind_lookup(&self.dn, &self.subject).map_err(|_| unwilling())?;
        Ok(found.secrets.into_iter().map(Zeroizing::new).collect())
    }

    /// Compares the old password with these values, as far as they are not too much work.
    pub(super) fn compare_with(&mut self, common: &Common, stored: Vec<Secret>) {
        self.stored = stored;
        common.drop_costly(&mut self.stored, &self.dn);
    }

    /// Has the pool carry it out.
    pub(super) fn queue(self, services: &Services, done: Done<PasswordChangeOutcome>) {
        let source = services.passwords.source(&self.subject.peer.peer_name, self.dn.as_str());
        let pool = self.pool(services);
        let mut work = Some((self, done));
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

    /// The pool that carries it out. One that asks another program takes no thread from those that compute, as a bind.
    fn pool<'s>(&self, services: &'s Services) -> &'s PasswordPool {
        let asks = self.saslauthd.is_some() && self.stored.iter().any(|value| asks_saslauthd(value));
        if asks { &services.askers } else { &services.passwords }
    }

    /// Compares and hashes on the calling thread, one of the pool, and hands the change to the writer.
    fn carry_out(self, done: Done<PasswordChangeOutcome>) {
        let Self {
            database,
            judge,
            hashers,
            saslauthd,
            subject,
            dn,
            target,
            policy_control,
            old,
            stored,
            new,
        } = self;
        let allowed = new.is_none().then(|| database.chosen().password_length(&dn)).flatten();
        let (new, generated) = new_password(new.as_ref(), allowed);
        let proof = old.is_some().then_some(true);
        let work = PasswordWork::of(Purpose::PasswordModify, old, Some(new));
        if let Some(old) = &work.old
            && !stored.iter().any(|value| matches(saslauthd.as_ref(), &work, value, old))
        {
            let attempt = BindAttempt { dn, matched: false, policy_control, code: GivenCode::NotAsked };
            // The account's policy counts it, durably before the answer.
            let counted = move |verdict: BindConclusion| {
                let controls = verdict.controls;
                done(PasswordChangeOutcome { controls, proof: Some(false), ..unwilling().into() });
            };
            return judge.conclude(attempt, Box::new(counted));
        }
        let mut values = Vec::with_capacity(hashers.len());
        for hasher in &hashers {
            match work.hash(hasher, work.new.as_deref().map_or(&[], Vec::as_slice), &SystemRandom) {
                Ok(hash) => values.push(hash.to_vec()),
                Err(error) => {
                    let text = format!("password hash failed: {error}");
                    let failed = LdapResult::with(ResultCode::OTHER, text);
                    return done(PasswordChangeOutcome { proof, ..failed.into() });
                }
            }
        }
        let finished = move |outcome: WriteOutcome| {
            done(PasswordChangeOutcome { generated, proof, ..PasswordChangeOutcome::from(outcome) });
        };
        let chosen = database.chosen();
        let mut request = replacement(target, values, subject, policy_control);
        request.passwords = Some(Arc::new(work));
        if chosen.has_password_work(&request.operation) {
            chosen.work_on_passwords(&mut request);
        }
        chosen.submit_at(request, Some(dn), &|_| DnLocation::Here, Box::new(finished));
    }
}

/// What is answered to a wrong old password, and to an identity that may not replace the password.
fn unwilling() -> LdapResult {
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "unwilling to verify old password")
}

/// The new password of a request, and it once more if it is made up here, with so many bytes as are `allowed`.
fn new_password(given: Option<&Secret>, allowed: Option<RangeInclusive<usize>>) -> (Secret, Option<Secret>) {
    match given {
        Some(new) => (new.clone(), None),
        None => {
            let made = match allowed {
                Some(allowed) => generate_within(&SystemRandom, &allowed),
                None => generate_password(&SystemRandom),
            };
            (made.clone(), Some(made))
        }
    }
}

/// A change that replaces the passwords of an entry.
fn replacement(
    target: String,
    values: Vec<Vec<u8>>,
    subject: Arc<Subject>,
    policy_control: bool,
) -> WriteRequest {
    let change = Modification {
        operation: ModifyOperation::Replace,
        attribute: AttributeValues { description: "userPassword".to_owned(), values },
    };
    WriteRequest {
        operation: WriteOperation::Modify { object: target, changes: vec![change] },
        subject,
        controls: RequestControls::from(ControlValues {
            password_policy: policy_control,
            ..ControlValues::default()
        }),
        origin: Origin::Client,
        passwords: None,
    }
}

/// Where no passwords are stored: the change is asked for all the same, and its answer the one of any change there.
pub(super) fn replace_unstored(
    backend: &dyn Backend,
    context: &Context<'_>,
    change: PasswordChange<'_>,
    later: Later<'_, PasswordChangeOutcome>,
) -> Reply<PasswordChangeOutcome> {
    if change.old.is_some() {
        return Reply::Now(unwilling().into());
    }
    let (new, generated) = new_password(change.new.as_ref(), None);
    // It is not kept: a scheme that takes no time will do.
    let hash = match Hasher::new(Scheme::SSHA).hash(&new, &SystemRandom) {
        Ok(hash) => hash.to_vec(),
        Err(error) => {
            let text = format!("password hash failed: {error}");
            return Reply::Now(LdapResult::with(ResultCode::OTHER, text).into());
        }
    };
    let request = replacement(change.target, vec![hash], Arc::clone(context.subject), change.policy_control);
    let done = later();
    let finished = move |outcome: WriteOutcome| {
        done(PasswordChangeOutcome { generated, ..PasswordChangeOutcome::from(outcome) })
    };
    Reply::Later(backend.update(context, Changes::One(request, Some(change.dn.clone())), Box::new(finished)))
}
