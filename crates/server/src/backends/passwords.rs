//! A bind with what is stored: the password is compared, the outcome judged, and the password stored in a better way.

use std::path::PathBuf;
use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::budget::{LimitExceeded, RequestLimit};
use larix_engine::overlay::password_keys::PasswordKey;
use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion, PasswordWork};
use larix_engine::password::{self, Cost, Hasher, Scheme};
use larix_engine::{ChosenDatabase, DatabaseSettings};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::Store;
use zeroize::Zeroizing;

use super::Common;
use super::bind_judge::Judge;
use crate::clock::SystemRandom;
use crate::log::printable;
use crate::password_pool::JobSource;
use crate::saslauthd;
use crate::services::Services;
use larix_backend::{Bind, Context, Later, PendingAnswer, Proof, Reply, Secret, Verdict};

/// Stored passwords that take codes and are tried in one login: the writer computes two codes for each.
const CODED_MAX: usize = 16;

/// Stored passwords that take microseconds each and are compared where others wait. More of them are left to the pool.
const LIGHT_MAX: usize = 64;

/// What the password of a login is compared with.
pub(super) struct AccountPasswords {
    pub(super) passwords: Vec<Secret>,
    /// The key of the entry that one of them stands for.
    pub(super) key: Option<Arc<dyn PasswordKey>>,
    /// The name as the directory shows it, if it knows better than the client.
    pub(super) shown: Option<String>,
    /// How many bytes at the end of the password are the code of a second factor, fewer than it has.
    pub(super) code_length: Option<usize>,
    /// The limit that keeps the others of the entry's passwords out.
    pub(super) exceeded: Option<LimitExceeded>,
    /// They are a root DN's: its configured password says nothing of what accounts have.
    pub(super) is_root: bool,
}

impl AccountPasswords {
    /// What a database has for the name. `sent` tells how long the code behind the password is.
    ///
    /// # Errors
    /// What is answered where that cannot be looked up.
    pub(super) fn of<S: Store>(
        chosen: ChosenDatabase<'_, S>,
        (dn, subject): (&NormalDn, &Subject),
        sent: &[u8],
    ) -> Result<Self, LdapResult> {
        let found = chosen.bind_lookup(dn, subject)?;
        Ok(Self {
            passwords: found.secrets.into_iter().map(Zeroizing::new).collect(),
            key: found.key,
            shown: Some(found.shown),
            code_length: chosen.code_length(dn, sent)?,
            exceeded: found.exceeded,
            is_root: found.is_root,
        })
    }

    /// The root DN's configured password where it is the right one and quickly compared: what its entry may have beside it decides
    /// nothing then, and the store is not asked.
    pub(super) fn of_root(settings: &DatabaseSettings, bind: &Bind<'_>) -> Option<Self> {
        let Proof::Password(sent) = bind.proof else { return None };
        let secret =
            settings.root_password.as_ref().filter(|_| settings.root_dn.as_ref() == Some(bind.dn))?;
        let is_right = password::cost(secret) == Cost::Light && password::verify(secret, sent).is_match();
        is_right.then(|| Self {
            passwords: vec![Zeroizing::new(secret.clone())],
            shown: Some(settings.root_dn_text.clone()),
            is_root: true,
            ..Self::none()
        })
    }

    /// For a name without an account.
    pub(super) fn none() -> Self {
        let passwords = Vec::new();
        Self { passwords, key: None, shown: None, code_length: None, exceeded: None, is_root: false }
    }
}

impl Common {
    /// Ends a bind: at once where that takes no time and no overlay judges it.
    pub(super) fn bind(
        &self,
        judge: Judge,
        context: &Context<'_>,
        bind: &Bind<'_>,
        stored: AccountPasswords,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        let Proof::Judged(matched) = bind.proof else {
            return self.compare_and_bind(judge, context, bind, stored, later);
        };
        if !judge.judges(bind.dn) {
            return Reply::Now(verdict(BindConclusion::outright(matched), None));
        }
        let (dn, policy_control) = (bind.dn.clone(), bind.policy_control);
        let attempt = BindAttempt { dn, matched, policy_control, code: GivenCode::Missing };
        let done = later();
        judge.conclude(attempt, Box::new(move |conclusion| done(verdict(conclusion, None))));
        Reply::Later(PendingAnswer::default())
    }

    /// Ends a bind of a name that no database stores, by these passwords, which are a root DN's.
    pub(super) fn bind_without_database(
        self: &Arc<Self>,
        context: &Context<'_>,
        bind: &Bind<'_>,
        passwords: Vec<Secret>,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        let stored = AccountPasswords { passwords, is_root: true, ..AccountPasswords::none() };
        self.bind(Judge::without_database(self), context, bind, stored, later)
    }

    fn compare_and_bind(
        &self,
        judge: Judge,
        context: &Context<'_>,
        bind: &Bind<'_>,
        stored: AccountPasswords,
        later: Later<'_, Verdict>,
    ) -> Reply<Verdict> {
        let Self { config, services, .. } = self;
        let AccountPasswords { passwords: mut stored, key, shown, code_length, exceeded, is_root } = stored;
        let (password, code) = match bind.proof {
            Proof::Password(password) => split_code(password, code_length),
            Proof::Judged(_) => (Zeroizing::default(), GivenCode::Missing),
        };
        if let Some(exceeded) = exceeded {
            let dn = printable(bind.dn.as_str());
            services.log.notice(format_args!("not all passwords of \"{dn}\" are compared: {exceeded}"));
        }
        self.drop_costly(&mut stored, bind.dn);
        let like_key = key.as_ref().map(|key| key.like());
        if stored.is_empty() {
            // The time of the answer must not show that there is no such account, or that it has no password.
            stored = services.decoy.values(bind.dn);
        } else if !is_root {
            services.decoy.learn(bind.dn, like_key.iter().chain(&stored));
        }
        let judged = judge.judges(bind.dn);
        let heavy = key.is_some()
            || stored.len() > LIGHT_MAX
            || stored.iter().any(|value| password::cost(value) == Cost::Heavy);
        let source = services.passwords.source(&context.subject.peer.peer_name, bind.dn.as_str());
        let rehashers = if config.frontend.password_costs.rehash { config.hashers() } else { Vec::new() };
        let saslauthd = self.saslauthd();
        // A job that only waits for another program takes no thread from those that compute.
        let asks = saslauthd.is_some() && stored.iter().any(|value| asks_saslauthd(value));
        let check = PasswordCheck { stored, key, password, saslauthd, rehashers };
        let job = JobContext { services: Arc::clone(services), judge, source };
        if !heavy && !judged {
            let (conclusion, rehash) = (check.outright(), check.rehash(None));
            if let Some(rehash) = rehash {
                rehash.submit(job, bind.dn.clone(), ());
            }
            return Reply::Now(verdict(conclusion, shown));
        }
        let (dn, policy_control) = (bind.dn.clone(), bind.policy_control);
        let attempt = BindAttempt { dn, matched: false, policy_control, code };
        let make = || {
            let done = later();
            move || check.conclude(job, (attempt, judged), |conclusion| done(verdict(conclusion, shown)))
        };
        if !heavy {
            make()();
            return Reply::Later(PendingAnswer::default());
        }
        let pool = if asks { &services.askers } else { &services.passwords };
        match pool.submit_made(source, make) {
            Ok(()) => Reply::Later(PendingAnswer::default()),
            Err(_) => {
                let text = "too many binds wait for their password check";
                Reply::Now(LdapResult::with(ResultCode::BUSY, text).into())
            }
        }
    }

    /// Leaves the stored passwords, in their order, that may all be computed together (`request-limits hash.cost`). The
    /// others match nothing: an account must not cost the others theirs.
    pub(super) fn drop_costly(&self, stored: &mut Vec<Secret>, dn: &NormalDn) {
        let most = self.config.global.request_limits.most(RequestLimit::HashCost);
        let (mut sum, before) = (0_u64, stored.len());
        stored.retain(|value| {
            let with = sum.saturating_add(password::rounds(value));
            let fits = with <= most;
            sum = if fits { with } else { sum };
            fits
        });
        let dropped = before - stored.len();
        if dropped > 0 {
            let dn = printable(dn.as_str());
            self.services.log.notice(format_args!(
                "{dropped} of {before} passwords of \"{dn}\" are not compared: they take more than {most} rounds together \
                 (request-limits hash.cost=)"
            ));
        }
    }

    /// The program that checks `{SASL}` values, by the configuration.
    pub(super) fn saslauthd(&self) -> Option<Saslauthd> {
        let socket = self.config.global.sasl.saslauthd.clone()?;
        Some(Saslauthd { socket, services: Arc::clone(&self.services) })
    }
}

/// Whether comparing with a stored value means to ask another program.
pub(super) fn asks_saslauthd(stored: &[u8]) -> bool {
    password::pass_through(password::password_behind(stored).unwrap_or(stored)).is_some()
}

/// A password as it was sent: what is compared, and the code behind it.
fn split_code(sent: &[u8], code_length: Option<usize>) -> (Secret, GivenCode) {
    let split = code_length.and_then(|length| sent.split_at_checked(sent.len().checked_sub(length)?));
    match split {
        Some((password, code)) => {
            (Zeroizing::new(password.to_vec()), GivenCode::Given(Zeroizing::new(code.to_vec())))
        }
        None => (Zeroizing::new(sent.to_vec()), GivenCode::Missing),
    }
}

/// Where a password is worked on, and on whose behalf.
struct JobContext {
    services: Arc<Services>,
    judge: Judge,
    source: JobSource,
}

fn verdict(conclusion: BindConclusion, shown: Option<String>) -> Verdict {
    let BindConclusion { result, controls, must_change_password, forward, .. } = conclusion;
    Verdict { result, controls, must_change_password, shown, identity: None, forward }
}

/// A password and the values that one of must match.
struct PasswordCheck {
    stored: Vec<Secret>,
    /// The key of the entry that one of them stands for.
    key: Option<Arc<dyn PasswordKey>>,
    password: Secret,
    /// The program that checks `{SASL}` values.
    saslauthd: Option<Saslauthd>,
    /// How passwords are stored anew that were stored in a weaker way: by `password-hash`. None where they stay as they are.
    rehashers: Vec<Hasher>,
}

impl PasswordCheck {
    /// The stored value that matches; of several, one that is to be stored anew, or else one that may be. All are compared: the time
    /// does not tell which one it was.
    fn matching(&self) -> Option<&Secret> {
        let mut matching: Option<&Secret> = None;
        for value in &self.stored {
            if is_match(value, &self.password, self.saslauthd.as_ref())
                && matching.is_none_or(|found| {
                    password::better(found, &self.rehashers).is_none() && !is_verifier(value)
                })
            {
                matching = Some(value);
            }
        }
        matching
    }

    /// Whether the key is that of the password.
    fn is_key(&self) -> bool {
        self.password.len() <= password::PASSWORD_MAX
            && self.key.as_ref().is_some_and(|key| key.is_of(&self.password))
    }

    /// The stored values that take a code, where what was sent before the code is right for them, and that code. Whether it is right,
    /// the writer says.
    fn before_code(&self) -> Option<GivenCode> {
        let start = self.password.len().checked_sub(password::CODE_DIGITS)?;
        let (sent, code) = self.password.split_at_checked(start)?;
        let is_right = |value: &Secret| match password::time_based(value) {
            None => false,
            Some(takes_codes) => match takes_codes.password {
                None => sent.is_empty(),
                // It is computed whatever was sent.
                Some(behind) => is_match(behind, sent, self.saslauthd.as_ref()) & !sent.is_empty(),
            },
        };
        let stored: Vec<_> =
            self.stored.iter().filter(|value| is_right(value)).take(CODED_MAX).cloned().collect();
        let code = Zeroizing::new(code.to_vec());
        (!stored.is_empty()).then_some(GivenCode::OfPasswords { stored, code })
    }

    /// What the comparison alone says.
    fn outright(&self) -> BindConclusion {
        BindConclusion::outright(self.matching().is_some())
    }

    /// Compares, lets the overlays that judge binds judge (`judged`), and hands the verdict on, here or on a writer's thread.
    fn conclude(
        self,
        job: JobContext,
        (mut attempt, judged): (BindAttempt, bool),
        answer: impl FnOnce(BindConclusion) + Send + 'static,
    ) {
        let matching = self.matching().cloned();
        // It is derived whatever matches: the time does not tell which one it was.
        let is_key = self.is_key();
        attempt.matched = matching.is_some() || is_key;
        // Nobody judges the codes of the root DN, and a login that has given a code to a second factor has none left.
        if !attempt.matched
            && judged
            && attempt.code == GivenCode::Missing
            && let Some(code) = self.before_code()
        {
            attempt.matched = true;
            attempt.code = code;
        }
        let dn = attempt.dn.clone();
        let judge = job.judge.clone();
        let done = move |verdict: BindConclusion| {
            let (succeeded, by_policy) = (verdict.result.is_success(), verdict.rehash.is_some());
            let rehash = matching.filter(|_| succeeded).and_then(|old| self.rehash_of(&old, verdict.rehash));
            let answer = AtEnd::new(move || answer(verdict));
            match rehash {
                // As in slapd, who binds finds the password stored by the policy's scheme.
                Some(rehash) if by_policy => rehash.submit(job, dn, answer),
                Some(rehash) => {
                    drop(answer);
                    rehash.submit(job, dn, ());
                }
                None => drop(answer),
            }
        };
        if judged {
            judge.conclude(attempt, Box::new(done));
        } else {
            done(BindConclusion::outright(attempt.matched));
        }
    }

    /// The password as it is to be stored from now on: by the policy's scheme, or by the configured one if that is better.
    fn rehash(&self, scheme: Option<Scheme>) -> Option<Rehash> {
        // Without anything to compare by there is no need to compare again.
        if scheme.is_none() && self.rehashers.is_empty() {
            return None;
        }
        self.rehash_of(self.matching()?, scheme)
    }

    fn rehash_of(&self, old: &Secret, scheme: Option<Scheme>) -> Option<Rehash> {
        // What somebody logs in with is no secret of codes.
        let scheme = scheme.filter(|scheme| !scheme.is_time_based());
        let hasher = match scheme {
            Some(_) if is_verifier(old) => return None,
            Some(scheme) => {
                let stored = Scheme::split(old).map_or(Some(Scheme::Cleartext), |(scheme, _)| scheme);
                let hasher = Hasher { scheme, ..self.rehashers.first().cloned().unwrap_or_default() };
                (stored != Some(scheme)).then_some(hasher)?
            }
            None => password::better(old, &self.rehashers)?.clone(),
        };
        Some(Rehash { old: old.clone(), password: self.password.clone(), hasher })
    }
}

/// Whether challenges of SCRAM are answered with the value: it stays as it is.
fn is_verifier(stored: &[u8]) -> bool {
    matches!(Scheme::split(stored), Some((Some(Scheme::Scram(_)), _)))
}

/// The saslauthd that checks `{SASL}` values.
pub(super) struct Saslauthd {
    socket: PathBuf,
    services: Arc<Services>,
}

impl Saslauthd {
    fn knows(&self, name: &[u8], password: &[u8]) -> bool {
        saslauthd::knows(&self.socket, name, password).unwrap_or_else(|error| {
            let socket = self.socket.display();
            self.services.log.notice(format_args!("saslauthd at {socket} was asked in vain: {error}"));
            false
        })
    }
}

/// Whether a password matches a stored value: by itself, or because saslauthd knows it. It may take its time.
pub(super) fn is_match(stored: &[u8], password: &[u8], saslauthd: Option<&Saslauthd>) -> bool {
    match password::pass_through(stored) {
        Some(name) => saslauthd.is_some_and(|saslauthd| saslauthd.knows(name, password)),
        None => password::verify(stored, password).is_match(),
    }
}

/// Whether the old password is the one that is stored, or that saslauthd knows.
pub(super) fn matches(saslauthd: Option<&Saslauthd>, work: &PasswordWork, stored: &[u8], old: &[u8]) -> bool {
    if password::pass_through(stored).is_some() {
        // The overlays ask as well, and cannot ask the program.
        work.learn(stored, old, is_match(stored, old, saslauthd));
    }
    work.matches(stored, old)
}

/// A password that is to be stored anew.
struct Rehash {
    old: Secret,
    password: Secret,
    hasher: Hasher,
}

impl Rehash {
    /// When the pool has time; without a place in its queue another bind will do. `then` is dropped at the end of it.
    fn submit(self, job: JobContext, dn: NormalDn, then: impl Send + 'static) {
        let JobContext { services, judge, source } = job;
        let _ = services.passwords.submit(source, move || {
            if let Ok(new) = self.hasher.hash(&self.password, &SystemRandom) {
                judge.rehash(&dn, &self.old, &new, then);
            }
        });
    }
}

/// Does something when it is dropped, once, whatever became of what it waits for.
pub(super) struct AtEnd<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> AtEnd<F> {
    pub(super) fn new(what: F) -> Self {
        Self(Some(what))
    }
}

impl<F: FnOnce()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        if let Some(what) = self.0.take() {
            what();
        }
    }
}
