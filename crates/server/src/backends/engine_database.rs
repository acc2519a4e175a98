//! What all databases of the engine have in common, whichever store holds them: changes with passwords by way of the pool, a password
//! that is replaced, a compare, and what the root DSE says of them.

use std::sync::Arc;

use larix_backend::{Announced, Backend, Changes, Context, Done, PasswordChange, PasswordChanged, Secret};
use larix_engine::access::Subject;
use larix_engine::compare::{self, CompareContext};
use larix_engine::controls::RequestControls;
use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion, Interests, PasswordWork, Purpose};
use larix_engine::password::Hasher;
use larix_engine::write::{Completion, WriteOutcome, WriteRequest};
use larix_engine::{Chosen, Database, DatabaseSettings, Directory, Fault, Held, Served};
use larix_proto::{CompareRequest, LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::Store;
use zeroize::Zeroizing;

use super::Common;
use super::passwords::{Judge, Saslauthd, asks_saslauthd, is_match, matches, new_password, replacement};
use crate::clock::SystemRandom;
use crate::password_pool::{JobSource, PasswordPool};
use crate::services::Services;

/// A database and the directory that it is part of, for jobs on other threads.
#[derive(Debug)]
pub(super) struct EngineDatabase<S: Store> {
    pub(super) directory: Arc<Directory<S>>,
    pub(super) served: Arc<Served<S>>,
}

impl<S: Store> Clone for EngineDatabase<S> {
    fn clone(&self) -> Self {
        Self { directory: Arc::clone(&self.directory), served: Arc::clone(&self.served) }
    }
}

impl<S: Store> EngineDatabase<S> {
    pub(super) fn chosen(&self) -> Chosen<'_, S> {
        self.directory.at(&self.served)
    }

    /// Hands changes to the writer.
    pub(super) fn change(
        &self,
        common: &Common,
        changes: Changes,
        locate: &dyn Fn(&NormalDn) -> Held,
        done: Completion,
    ) {
        match changes {
            Changes::One(request, target) => self.submit(common, request, target, locate, done),
            Changes::Together(requests) => self.chosen().submit_all(requests, locate, done),
        }
    }

    /// Hands a change to the writer; one with passwords by way of the pool, where they are compared and hashed, and by way of
    /// saslauthd where that alone can compare the old one.
    fn submit(
        &self,
        common: &Common,
        mut request: WriteRequest,
        target: Option<NormalDn>,
        locate: &dyn Fn(&NormalDn) -> Held,
        done: Completion,
    ) {
        let chosen = self.chosen();
        let account = target.as_ref().filter(|_| chosen.has_password_work(&request.operation));
        let Some(account) = account else {
            return chosen.submit_at(request, target, locate, done);
        };
        let passwords = &common.services.passwords;
        let source = passwords.source(&request.subject.peer.peer_name, account.as_str());
        let (services, saslauthd) = (Arc::clone(&common.services), common.saslauthd());
        let (database, mut done) = (self.clone(), Some(done));
        let queued = passwords.submit_made(source, || {
            let done = done.take();
            move || {
                database.chosen().work_on_passwords(&mut request);
                let Some(done) = done else { return };
                let unasked = request.passwords.as_ref().map(|work| work.take_unasked()).unwrap_or_default();
                match saslauthd.filter(|_| !unasked.is_empty()) {
                    Some(saslauthd) => {
                        database.ask_and_submit(
                            (&*services, source),
                            (saslauthd, unasked),
                            (request, target),
                            done,
                        );
                    }
                    // What brings passwords names no other entry.
                    None => database.chosen().submit_at(request, target, &|_| Held::Here, done),
                }
            }
        });
        if let (Err(_), Some(done)) = (queued, done) {
            done(too_many_passwords().into());
        }
    }

    /// Asks saslauthd about stored values and old passwords, and hands the change to the writer. That takes no thread from those
    /// that compute.
    fn ask_and_submit(
        self,
        (services, source): (&Services, JobSource),
        (saslauthd, unasked): (Saslauthd, Vec<(Secret, Secret)>),
        (mut request, target): (WriteRequest, Option<NormalDn>),
        done: Completion,
    ) {
        let mut done = Some(done);
        let queued = services.askers.submit_made(source, || {
            let done = done.take();
            move || {
                if let Some(work) = &request.passwords {
                    for (stored, old) in &unasked {
                        work.learn(stored, old, is_match(stored, old, Some(&saslauthd)));
                    }
                }
                self.chosen().work_on_passwords(&mut request);
                if let Some(done) = done {
                    self.chosen().submit_at(request, target, &|_| Held::Here, done);
                }
            }
        });
        if let (Err(_), Some(done)) = (queued, done) {
            done(too_many_passwords().into());
        }
    }
}

/// What is answered where the pool takes no more work.
fn too_many_passwords() -> LdapResult {
    LdapResult::with(ResultCode::BUSY, "too many passwords wait to be hashed")
}

/// What is answered to a wrong old password, and to an identity that may not replace the password.
fn unwilling() -> LdapResult {
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, "unwilling to verify old password")
}

/// What is answered where the store cannot be read; the log says why.
pub(super) fn failure(services: &Services, fault: &Fault) -> LdapResult {
    services.log.notice(format_args!("search failed: {fault}"));
    internal_error()
}

pub(super) fn internal_error() -> LdapResult {
    LdapResult::with(ResultCode::OTHER, "internal error")
}

/// Where a name is, by the router's choice; `is_own` knows the database's own backend.
pub(super) fn locate(
    context: &Context<'_>,
    dn: &NormalDn,
    is_own: impl FnOnce(&dyn Backend) -> bool,
) -> Held {
    match context.router.backend(dn) {
        Some(backend) if is_own(backend) => Held::Here,
        Some(_) => Held::Elsewhere,
        None => Held::Nowhere,
    }
}

/// What came of a compare, as far as the entry alone decides; and whether an overlay may say that the value is a code.
///
/// # Errors
/// A store that cannot be read.
pub(super) fn compare<S: Store>(
    database: &Database<S>,
    (subject, controls): (&Subject, &RequestControls),
    default_referrals: &[String],
    (dn, request): (&NormalDn, &CompareRequest<'_>),
) -> Result<(LdapResult, bool), Fault> {
    let snapshot = database.snapshot_for(&[dn])?;
    let view = database.view(&snapshot)?;
    let has_codes = view.settings.overlays.want(Interests::SECOND_FACTOR);
    let context = CompareContext { controls, subject, default_referrals };
    Ok((compare::compare(&view, &context, dn, request), has_codes))
}

/// Says what the root DSE shows of a database.
pub(super) fn announce(settings: &DatabaseSettings, announced: &mut Announced) {
    let suffixes = || settings.suffixes.iter().map(|suffix| suffix.text.clone());
    if !settings.hidden && !settings.subordinate {
        announced.naming_contexts.extend(suffixes());
    }
    if settings.overlays.want(Interests::DYNAMIC_OBJECTS) {
        announced.dynamic_subtrees.extend(suffixes());
    }
    for control in settings.overlays.iter().flat_map(|overlay| overlay.listed_controls()) {
        if !announced.database_controls.contains(control) {
            announced.database_controls.push(control);
        }
    }
}

/// A password that is replaced (RFC 3062): the old one compared, the new one hashed.
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
    pub(super) fn queue(self, services: &Services, done: Done<PasswordChanged>) {
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
    fn carry_out(self, done: Done<PasswordChanged>) {
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
                done(PasswordChanged { controls, proof: Some(false), ..unwilling().into() });
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
                    return done(PasswordChanged { proof, ..failed.into() });
                }
            }
        }
        let finished = move |outcome: WriteOutcome| {
            done(PasswordChanged { generated, proof, ..PasswordChanged::from(outcome) });
        };
        let chosen = database.chosen();
        let mut request = replacement(target, values, subject, policy_control);
        request.passwords = Some(Arc::new(work));
        if chosen.has_password_work(&request.operation) {
            chosen.work_on_passwords(&mut request);
        }
        chosen.submit_at(request, Some(dn), &|_| Held::Here, Box::new(finished));
    }
}
