//! Binds: the stored passwords that a bind's password is checked against, and the outcome of a bind.

use std::sync::Arc;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn};
use larix_store::Store;

use super::{ChosenDatabase, Directory, ServedDatabase};
use crate::access::{AccessTarget, Item, Privilege, Subject, Verdict};
use crate::budget::{LimitExceeded, RequestLimit};
use crate::change::prepare::PreparedChange;
use crate::entry::EntrySource;
use crate::entry::record::RecordFlags;
use crate::failure::Failure;
use crate::fault::Fault;
use crate::filter::value_steps;
use crate::overlay::password_keys::PasswordKey;
use crate::overlay::second_factor::LoginPassword;
use crate::overlay::{BindAttempt, BindConclusion, Entries as _, Interests, judge, judge_code};
use crate::search::view_entries::ViewEntries;
use crate::search::{Gate, GuardedEntry};
use crate::write::WriteOutcome;
use crate::write::read_controls::ASSERTION_STEPS;

/// Steps that a stored password costs: it is copied, and compared with the one that was sent.
const PASSWORD_STEPS: u64 = 16;

/// Whose password a simple bind is about, and what to check it against.
#[derive(Clone)]
pub struct BindLookup {
    pub dn: NormalDn,
    /// The DN as it is shown: of the root DN as it is configured, of an entry as it is stored.
    pub shown: String,
    /// Hashed or clear; any that matches will do. None: the bind fails (invalidCredentials).
    pub secrets: Vec<Vec<u8>>,
    /// What one of the secrets stands for, and will do as well.
    pub key: Option<Arc<dyn PasswordKey>>,
    /// The limit that does not allow for the entry's other passwords: they match nothing.
    pub exceeded: Option<LimitExceeded>,
    /// It is the database's root DN.
    pub is_root: bool,
}

/// Passwords stay out of logs.
impl std::fmt::Debug for BindLookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BindLookup")
            .field("dn", &self.dn)
            .field("secrets", &self.secrets.len())
            .finish_non_exhaustive()
    }
}

impl<S: Store> Directory<S> {
    /// As [`ChosenDatabase::bind_lookup`], in the database that holds the DN.
    ///
    /// # Errors
    /// invalidCredentials where none holds it, and those of [`ChosenDatabase::bind_lookup`].
    pub fn bind_lookup(&self, dn: &NormalDn, subject: &Subject) -> Result<BindLookup, LdapResult> {
        let nowhere = || LdapResult::new(ResultCode::INVALID_CREDENTIALS);
        self.chosen(dn).ok_or_else(nowhere)?.bind_lookup(dn, subject)
    }

    /// As [`ChosenDatabase::conclude_bind`], in the database that has a say in the bind, if any has.
    pub fn conclude_bind(&self, attempt: BindAttempt, completion: Box<dyn FnOnce(BindConclusion) + Send>) {
        match self.chosen(&attempt.dn).or_else(|| self.counting()) {
            Some(chosen) => chosen.conclude_bind(attempt, completion),
            None => completion(BindConclusion::outright(attempt.matched)),
        }
    }

    /// Where wrong passwords are counted. A name that leads to no database, as names of SASL may, is judged there: it must not be
    /// told from the name of an account by the time that its answer takes.
    pub fn counting(&self) -> Option<ChosenDatabase<'_, S>> {
        let counts = |served: &ServedDatabase<S>| {
            let settings = served.database.current_settings();
            let overlays = settings.overlays.at(Interests::BIND);
            let mut authentications = overlays.filter_map(|overlay| overlay.authentication());
            authentications.any(|authentication| authentication.counts_failures())
        };
        self.databases().iter().find(|served| counts(served)).map(|served| self.at(served))
    }
}

impl<S: Store> ChosenDatabase<'_, S> {
    /// Finds the values to check a simple bind's password against. The check itself, which takes time by design, is
    /// the caller's, off the event loop. Where the entry has more of them than the bind has steps for ([`RequestLimit::Steps`], 100,000 at most),
    /// those beyond are left out.
    ///
    /// # Errors
    /// other when the store cannot be read. An entry that does not exist, has no password
    /// or may not be used for it gives a look-up without secrets: nothing tells these apart.
    pub fn bind_lookup(self, dn: &NormalDn, subject: &Subject) -> Result<BindLookup, LdapResult> {
        let name = dn.as_str();
        let settings = self.served.database.current_settings();
        let is_root = settings.root_dn.as_ref() == Some(dn);
        let mut lookup = BindLookup {
            dn: dn.clone(),
            shown: name.to_owned(),
            secrets: Vec::new(),
            key: None,
            exceeded: None,
            is_root,
        };
        if is_root {
            lookup.shown.clone_from(&settings.root_dn_text);
            lookup.secrets.extend(settings.root_password.clone());
        }
        self.add_entry_secrets(subject, is_root, &mut lookup).map_err(|fault| fault.to_result())?;
        if settings.overlays.want(Interests::PASSWORD_KEY) {
            lookup.key = self.key_behind(&lookup).map_err(Failure::into_result)?;
        }
        Ok(lookup)
    }

    /// The key that one of the secrets stands for.
    fn key_behind(self, lookup: &BindLookup) -> Result<Option<Arc<dyn PasswordKey>>, Failure> {
        let database = &self.served.database;
        let snapshot = database.snapshot_for(&[&lookup.dn])?;
        let view = database.view(&snapshot)?;
        for overlay in view.settings.overlays.at(Interests::PASSWORD_KEY) {
            let Some(keys) = overlay.password_keys() else { continue };
            if !lookup.secrets.iter().any(|secret| keys.is_meant_by(secret)) {
                continue;
            }
            let Some(entry) = ViewEntries::of(&view).entry(&lookup.dn)? else { return Ok(None) };
            if let Some(key) = keys.key(&entry, &self.frontend.schema, self.served.clock.now()) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    fn add_entry_secrets(
        self,
        subject: &Subject,
        is_root: bool,
        lookup: &mut BindLookup,
    ) -> Result<(), Fault> {
        let database = &self.served.database;
        let snapshot = database.snapshot_for(&[&lookup.dn])?;
        let view = database.view(&snapshot)?;
        let Some(located) = view.locate(&lookup.dn)? else { return Ok(()) };
        let Some(id) = located.resolved.id else { return Ok(()) };
        let record = view.located_record(located)?;
        let reader = view.reader(id, &record)?;
        let flags = reader.view.flags();
        if [RecordFlags::ALIAS, RecordFlags::REFERRAL, RecordFlags::SUBENTRY]
            .into_iter()
            .any(|f| flags.has(f))
        {
            return Ok(());
        }
        let mut gate = Gate::new(&view.policy, subject);
        let most = view.settings.request_limits.most(RequestLimit::Steps).min(ASSERTION_STEPS);
        gate.steps = most;
        let seen = GuardedEntry::new(&view, reader, gate);
        let meter = seen.meter();
        let description = AttributeDescription::plain(self.known.user_password);
        let target = AccessTarget { dn: &lookup.dn, entry: &seen };
        let of_all = view.policy.attribute_verdict(subject, &target, &description, Privilege::Auth);
        // Rules may tell one password from another.
        let may_use = |value: &[u8]| {
            let item = Item::Attribute { description: &description, value: Some(value) };
            of_all == Verdict::Granted || view.policy.check(subject, &target, item, Privilege::Auth)
        };
        // Values with options are no passwords: nothing that is said of passwords holds for them.
        let secrets = &mut lookup.secrets;
        if of_all != Verdict::Denied {
            seen.reader.visit_exact(&description, &mut |value| {
                let usable = meter.take(PASSWORD_STEPS + value_steps(value)) && may_use(value);
                if usable {
                    secrets.push(value.to_vec());
                }
                !meter.is_overdrawn()
            })?;
        }
        if meter.is_overdrawn() {
            lookup.exceeded = Some(LimitExceeded { limit: RequestLimit::Steps, most });
        }
        if !is_root && !secrets.is_empty() {
            lookup.shown = view.dn(&seen.reader.view)?;
        }
        Ok(())
    }

    /// Values of an attribute of an entry that the subject may use to authenticate, without those that have options or are of subtypes; none
    /// of an entry that is not here. The first of them, where they are more than the request has steps for.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn authentication_values(
        self,
        dn: &NormalDn,
        attribute: &str,
        subject: &Subject,
    ) -> Result<Vec<Vec<u8>>, Fault> {
        let mut values = Vec::new();
        let Ok(description) = self.frontend.schema.describe(attribute) else { return Ok(values) };
        let served = self.served;
        let snapshot = served.database.snapshot_for(&[dn])?;
        let view = served.database.view(&snapshot)?;
        let Some(located) = view.locate(dn)? else { return Ok(values) };
        let Some(id) = located.resolved.id else { return Ok(values) };
        let record = view.located_record(located)?;
        let mut gate = Gate::new(&view.policy, subject);
        gate.steps = view.settings.request_limits.most(RequestLimit::Steps).min(ASSERTION_STEPS);
        let seen = GuardedEntry::new(&view, view.reader(id, &record)?, gate);
        if !seen.allows(&description, None, Privilege::Auth)? {
            return Ok(values);
        }
        seen.reader.visit_exact(&description, &mut |value| {
            let is_paid = seen.meter().take(value_steps(value));
            if is_paid {
                values.push(value.to_vec());
            }
            is_paid
        })?;
        Ok(values)
    }

    /// How many bytes at the end of a password that was sent are the code of a second factor, fewer than it has; `None`: no code is
    /// asked for, or none is there. The root DN is never asked for one.
    ///
    /// # Errors
    /// other when the store cannot be read.
    pub fn code_length(self, dn: &NormalDn, password: &[u8]) -> Result<Option<usize>, LdapResult> {
        let settings = self.served.database.current_settings();
        if !settings.overlays.want(Interests::SECOND_FACTOR) || settings.root_dn.as_ref() == Some(dn) {
            return Ok(None);
        }
        self.length_of_code(dn, password).map_err(Failure::into_result)
    }

    fn length_of_code(self, dn: &NormalDn, password: &[u8]) -> Result<Option<usize>, Failure> {
        let database = &self.served.database;
        let snapshot = database.snapshot_for(&[dn])?;
        let view = database.view(&snapshot)?;
        let entries = ViewEntries::of(&view);
        let Some(entry) = entries.entry(dn)? else { return Ok(None) };
        let (schema, now) = (&*self.frontend.schema, self.served.clock.now());
        let login = LoginPassword { dn, password, entry: &entry, schema, entries: &entries, now };
        for overlay in view.settings.overlays.at(Interests::SECOND_FACTOR) {
            let Some(factor) = overlay.second_factor() else { continue };
            if let Some(length) = factor.code_length(&login)?.filter(|length| *length < password.len()) {
                return Ok(Some(length));
            }
        }
        Ok(None)
    }

    /// Whether a compare of an attribute of this entry asks a second factor for a code. [`Self::conclude_bind`] then answers it, by
    /// an attempt with [`GivenCode::Compared`](crate::overlay::second_factor::GivenCode).
    pub fn compares_code(self, dn: &NormalDn, attribute: &str) -> bool {
        let settings = self.served.database.current_settings();
        settings.overlays.want(Interests::SECOND_FACTOR)
            && self.is_code_compared(dn, attribute).unwrap_or(false)
    }

    fn is_code_compared(self, dn: &NormalDn, attribute: &str) -> Result<bool, Failure> {
        let schema = &*self.frontend.schema;
        let Ok(attribute) = schema.describe(attribute) else { return Ok(false) };
        let database = &self.served.database;
        let snapshot = database.snapshot_for(&[dn])?;
        let view = database.view(&snapshot)?;
        let Some(entry) = ViewEntries::of(&view).entry(dn)? else { return Ok(false) };
        let overlays = view.settings.overlays.at(Interests::SECOND_FACTOR);
        let mut factors = overlays.filter_map(|overlay| overlay.second_factor());
        Ok(factors.any(|factor| factor.is_compared(schema, &entry, &attribute)))
    }

    /// Whether overlays judge a bind to this DN: then [`Self::conclude_bind`] answers it.
    pub fn judges_binds(self, dn: &NormalDn) -> bool {
        let settings = self.served.database.current_settings();
        settings.root_dn.as_ref() != Some(dn) && settings.overlays.want(Interests::BIND)
    }

    /// Ends a bind whose password was compared: by the password policy and whatever else hangs on binds. `completion` is called
    /// once, here or on the writer's thread. A judgement that other attempts might change, or that changes the account's
    /// state, is made by the writer and is durable before `completion`: of any number of guesses at the same time no more
    /// are judged than the policy allows.
    pub fn conclude_bind(self, attempt: BindAttempt, completion: Box<dyn FnOnce(BindConclusion) + Send>) {
        match self.judge_bind_at_once(&attempt) {
            Err(result) => completion(BindConclusion { result, ..BindConclusion::outright(false) }),
            Ok(Some(conclusion)) => completion(conclusion),
            Ok(None) => self.served.judge_bind(attempt, completion),
        }
    }

    /// As [`Self::conclude_bind`] as far as that takes no change: `None` where only the [writer](ServedDatabase::judge_bind) may judge.
    ///
    /// # Errors
    /// other when the store cannot be read.
    pub fn judge_bind_at_once(self, attempt: &BindAttempt) -> Result<Option<BindConclusion>, LdapResult> {
        self.judge_at_once(attempt).map_err(Failure::into_result)
    }

    /// The judgement by the committed state, if that is enough.
    fn judge_at_once(self, attempt: &BindAttempt) -> Result<Option<BindConclusion>, Failure> {
        let served = self.served;
        let database = &served.database;
        let snapshot = database.snapshot_for(&[&attempt.dn])?;
        let view = database.view(&snapshot)?;
        let (settings, entries) = (&view.settings, ViewEntries::of(&view));
        let schema = &self.frontend.schema;
        let now = served.clock.now();
        let code = judge_code(
            &settings.overlays,
            attempt,
            &entries,
            schema,
            (now, settings.keeps_codes(&attempt.code)),
        )?;
        if !code.changes.is_empty() {
            return Ok(None);
        }
        let judged = judge(&settings.overlays, attempt, &code, &entries, (schema, now))?;
        if judged.ordered || !judged.changes.is_empty() && !settings.read_only {
            return Ok(None);
        }
        let succeeds = attempt.matched && !judged.refused;
        let code = if succeeds { ResultCode::SUCCESS } else { ResultCode::INVALID_CREDENTIALS };
        Ok(Some(BindConclusion {
            result: LdapResult::new(code),
            controls: judged.controls,
            must_change_password: judged.must_change_password && succeeds,
            rehash: judged.rehash.filter(|_| succeeds),
            forward: None,
        }))
    }
}

impl<S: Store> ServedDatabase<S> {
    /// Has the writer judge a bind whose password was compared: by what is committed before it, and durably before `completion`.
    pub fn judge_bind(&self, attempt: BindAttempt, completion: Box<dyn FnOnce(BindConclusion) + Send>) {
        let completion = |outcome: WriteOutcome| {
            let WriteOutcome { result, controls, must_change_password, rehash, forward, .. } = outcome;
            completion(BindConclusion { result, controls, must_change_password, rehash, forward });
        };
        let target = attempt.dn.as_str().to_owned();
        self.submit_own(target, PreparedChange::Authenticate(Box::new(attempt)), None, Box::new(completion));
    }
}
