//! What a policy means for a change of a password (draft-behera-ldap-password-policy-10 sections 7.4 to 7.6).

use larix_proto::control::PasswordError;
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn};

use super::account::{self, Account, Lock, PASSWORD};
use super::history::{self, Former};
use super::policy::Policy;
use super::ppm::Owner;
use super::quality::{Check, Fault};
use super::{ENDED_BY_PASSWORD, PasswordPolicy, response};
use larix_engine::access::Privilege;
use larix_engine::entry::{Entry, EntryAttribute};
use larix_engine::overlay::{
    Additions, Change, ChangeKind, PendingChange, PreparedChange, Purpose, Refusal, internal_change,
};
use larix_engine::password::is_hashed;

const ONE_VALUE: &str = "Password policy only allows one password value";

/// Looks at an add or a modify before it is carried out.
pub(super) fn before(overlay: &PasswordPolicy, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
    let unchanged = Additions::default();
    // What another overlay derives is no change by a user.
    if change.derived || change.passwords.purpose == Purpose::Rehash {
        return Ok(unchanged);
    }
    match change.operation {
        PreparedChange::Add { dn, entry, mods } => {
            let Some(password) = password_of(change) else { return Ok(unchanged) };
            if entry.attribute(&password).is_none() {
                return Ok(unchanged);
            }
            let entry = add(overlay, change, dn, entry, &password)?;
            let altered = Some(PreparedChange::Add { dn: dn.clone(), entry, mods: mods.clone() });
            Ok(Additions { altered, ..unchanged })
        }
        PreparedChange::Modify { dn, mods } if !overlay.settings.disable_write => {
            let Some(password) = password_of(change) else { return Ok(unchanged) };
            let concerns = |m: &Change| m.description == password || is_lock(change, m);
            if !mods.iter().any(concerns) {
                return Ok(unchanged);
            }
            let Some(entry) = change.entries.entry(dn)? else { return Ok(unchanged) };
            let entry = account::whole(change.schema, dn, &entry, change.entries)?;
            let mods = Modify::new(overlay, change, dn, &entry, password)?.carry_out(mods.clone())?;
            Ok(Additions { altered: Some(PreparedChange::Modify { dn: dn.clone(), mods }), ..unchanged })
        }
        _ => Ok(unchanged),
    }
}

fn password_of(change: &PendingChange<'_>) -> Option<AttributeDescription> {
    change.schema.describe(PASSWORD).ok()
}

fn named(change: &PendingChange<'_>, one: &Change, name: &str) -> bool {
    let attribute = change.schema.attribute_type(name).map(|attribute| attribute.id);
    attribute == Some(one.description.attribute)
}

fn is_lock(change: &PendingChange<'_>, one: &Change) -> bool {
    named(change, one, "pwdAccountLockedTime")
}

/// A refusal, with the control if it was asked for.
fn refuse(change: &PendingChange<'_>, code: ResultCode, text: &str, error: Option<PasswordError>) -> Refusal {
    let controls = match change.controls.password_policy {
        true => vec![response(None, error)],
        false => Vec::new(),
    };
    Refusal { result: LdapResult::with(code, text), controls, wrong_password: false }
}

fn add(
    overlay: &PasswordPolicy,
    change: &PendingChange<'_>,
    dn: &NormalDn,
    entry: &Entry,
    password: &AttributeDescription,
) -> Result<Entry, Refusal> {
    let policy = overlay.policy_of(change.schema, dn, entry, change.entries)?.unwrap_or_default();
    let mut entry = entry.clone();
    let new_password =
        entry.attribute(password).map(|attribute| attribute.values.clone()).unwrap_or_default();
    let [new_password] = new_password.as_slice() else {
        return Err(refuse(change, ResultCode::CONSTRAINT_VIOLATION, ONE_VALUE, None));
    };
    let manages = || change.entries.allows(change.subject, dn, &entry, password, Privilege::Manage);
    if policy.check_quality > 0 && !manages()? {
        check_quality(overlay, change, &policy, (dn, &entry), new_password)?;
    }
    if overlay.settings.hash_cleartext && !is_hashed(new_password) {
        let hash = hash(overlay, change, &policy, new_password)?;
        entry.attribute_or_insert(password).values = vec![hash];
    }
    let ages = policy.max_age > 0 || policy.min_age > 0;
    if ages
        && let Ok(changed) = change.schema.describe("pwdChangedTime")
        && entry.attribute(&changed).is_none()
    {
        let now = change.now.generalized().into_bytes();
        entry.attributes.push(EntryAttribute::new(changed, vec![now]));
    }
    Ok(entry)
}

fn check_quality(
    overlay: &PasswordPolicy,
    change: &PendingChange<'_>,
    policy: &Policy,
    (dn, entry): (&NormalDn, &Entry),
    password: &[u8],
) -> Result<(), Refusal> {
    let owner = Owner { dn: dn.as_str(), entry, schema: change.schema };
    let check = Check { settings: &overlay.settings, policy, owner, work: change.passwords };
    check
        .check(password)
        .map_err(|Fault { error, text }| refuse(change, ResultCode::CONSTRAINT_VIOLATION, &text, Some(error)))
}

fn hash(
    overlay: &PasswordPolicy,
    change: &PendingChange<'_>,
    policy: &Policy,
    password: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let hasher = policy.hasher(&overlay.settings.hasher);
    let hash = change.passwords.hash(&hasher, password, change.random);
    let hash = hash.map_err(|_| refuse(change, ResultCode::OTHER, "Password hashing failed", None))?;
    Ok(hash.to_vec())
}

/// A modify that sets a password or takes one away, or unlocks an account.
struct Modify<'a> {
    overlay: &'a PasswordPolicy,
    change: &'a PendingChange<'a>,
    dn: &'a NormalDn,
    entry: &'a Entry,
    account: Account<'a>,
    policy: Option<Policy>,
    password: AttributeDescription,
    /// The requester manages the password: no rule of the policy holds.
    manages: bool,
    /// Whether it is the requester's own.
    own: bool,
}

/// What a modify does to the password.
struct Plan {
    /// Which of the changes takes the old one away by its value.
    deletes: Option<usize>,
    /// Which of them gives the new one.
    adds: Option<usize>,
    /// The kind of the last.
    last: Option<ChangeKind>,
}

impl<'a> Modify<'a> {
    fn new(
        overlay: &'a PasswordPolicy,
        change: &'a PendingChange<'a>,
        dn: &'a NormalDn,
        entry: &'a Entry,
        password: AttributeDescription,
    ) -> Result<Self, Refusal> {
        let manages = change.entries.allows(change.subject, dn, entry, &password, Privilege::Manage)?;
        Ok(Self {
            overlay,
            change,
            dn,
            entry,
            account: Account::new(change.schema, entry),
            policy: overlay.policy_of(change.schema, dn, entry, change.entries)?,
            password,
            manages,
            own: change.subject.dn.as_ref() == Some(dn),
        })
    }

    fn refuse(&self, code: ResultCode, text: &str, error: PasswordError) -> Refusal {
        refuse(self.change, code, text, Some(error))
    }

    fn carry_out(&self, mut mods: Vec<Change>) -> Result<Vec<Change>, Refusal> {
        let plan = self.plan(&mods)?;
        if plan.last.is_none() {
            self.unlock(&mut mods)?;
            return Ok(mods);
        }
        let policy = self.policy.clone().unwrap_or_default();
        if self.policy.is_some() && !self.manages {
            if !policy.allow_user_change && self.own {
                let text = "User alteration of password is not allowed";
                return Err(self.refuse(
                    ResultCode::INSUFFICIENT_ACCESS_RIGHTS,
                    text,
                    PasswordError::PasswordModNotAllowed,
                ));
            }
            // A user may give up the password.
            if plan.adds.is_none() {
                self.unlock(&mut mods)?;
                self.keep_given_up(&policy, &plan, &mut mods)?;
                return Ok(mods);
            }
            self.check(&policy, &plan, &mut mods)?;
        }
        self.hash_new(&policy, &plan, &mut mods)?;
        self.keep_state(&policy, &plan, &mut mods)?;
        Ok(mods)
    }

    fn plan(&self, mods: &[Change]) -> Result<Plan, Refusal> {
        let mut plan = Plan { deletes: None, adds: None, last: None };
        for (at, one) in mods.iter().enumerate().filter(|(_, one)| one.description == self.password) {
            plan.last = Some(one.kind);
            match one.kind {
                ChangeKind::Delete if plan.deletes.is_none() && !one.values.is_empty() => {
                    plan.deletes = Some(at);
                }
                ChangeKind::Add | ChangeKind::Replace if !one.values.is_empty() => {
                    if plan.adds.is_some() || one.values.len() > 1 && !self.is_one_password() {
                        return Err(refuse(self.change, ResultCode::CONSTRAINT_VIOLATION, ONE_VALUE, None));
                    }
                    plan.adds = Some(at);
                }
                _ => {}
            }
        }
        Ok(plan)
    }

    /// A password modify request stores one password, though perhaps by several schemes.
    fn is_one_password(&self) -> bool {
        self.change.passwords.purpose == Purpose::PasswordModify
    }

    /// The new password as it was given.
    fn new_password<'m>(&'m self, plan: &Plan, mods: &'m [Change]) -> &'m [u8] {
        let added = plan.adds.and_then(|at| mods.get(at)).and_then(|one| one.values.first());
        match &self.change.passwords.new {
            Some(new) => new,
            None => added.map_or(&[], Vec::as_slice),
        }
    }

    fn matches(&self, stored: &[u8], password: &[u8]) -> bool {
        self.change.passwords.matches(stored, password)
    }

    /// The rules that a user's change is under.
    fn check(&self, policy: &Policy, plan: &Plan, mods: &mut [Change]) -> Result<(), Refusal> {
        let old = self.change.passwords.old.as_ref();
        let replaces = plan.deletes.filter(|deletes| plan.adds.is_some_and(|adds| adds > *deletes));
        if policy.safe_modify && old.is_none() && replaces.is_none() {
            let text = "Must supply old password to be changed as well as new one";
            return Err(self.refuse(
                ResultCode::INSUFFICIENT_ACCESS_RIGHTS,
                text,
                PasswordError::MustSupplyOldPassword,
            ));
        }
        self.check_age(policy)?;
        let stored = self.account.values(PASSWORD);
        if !stored.is_empty() {
            self.check_old(plan, mods, stored)?;
        }
        let new_password = self.new_password(plan, mods);
        if policy.check_quality > 0 {
            check_quality(self.overlay, self.change, policy, (self.dn, self.entry), new_password)?;
        }
        if policy.in_history > 0 {
            self.check_history(policy, new_password, stored)?;
        }
        Ok(())
    }

    fn check_age(&self, policy: &Policy) -> Result<(), Refusal> {
        let Some(changed) = self.account.changed() else { return Ok(()) };
        let age = self.change.now.seconds().saturating_sub(changed.seconds());
        if policy.min_age == 0 || self.account.is_reset() || age >= policy.min_age {
            return Ok(());
        }
        let text = "Password is too young to change";
        Err(self.refuse(ResultCode::CONSTRAINT_VIOLATION, text, PasswordError::PasswordTooYoung))
    }

    /// The old password, which comes in the clear, stands for the value that is stored.
    fn check_old(&self, plan: &Plan, mods: &mut [Change], stored: &[Vec<u8>]) -> Result<(), Refusal> {
        let old = self.change.passwords.old.as_ref().map(|old| old.as_slice());
        let deleted = plan.deletes.and_then(|at| mods.get_mut(at));
        let Some(old_password) = old.or_else(|| deleted.as_ref()?.values.first().map(Vec::as_slice)) else {
            return Ok(());
        };
        // A locked account takes no password as proof, right or wrong, here as at a bind.
        let last_bind = self.overlay.settings.last_bind;
        let locked = self
            .policy
            .as_ref()
            .is_some_and(|policy| self.account.lock(policy, self.change.now, last_bind) == Lock::Locked);
        let found = stored.iter().find(|stored| self.matches(stored, old_password)).filter(|_| !locked);
        let Some(found) = found else {
            if !locked {
                stored.iter().for_each(|one| self.change.passwords.leave_to_program(one, old_password));
            }
            self.check_costs()?;
            let text = match self.is_one_password() {
                true => "unwilling to verify old password",
                false => "Must supply correct old password to change to new one",
            };
            let error = PasswordError::MustSupplyOldPassword;
            let refusal = self.refuse(ResultCode::UNWILLING_TO_PERFORM, text, error);
            return Err(Refusal { wrong_password: true, ..refusal });
        };
        if let Some(deleted) = deleted {
            deleted.values = vec![found.clone()];
            deleted.keys = vec![found.clone()];
        }
        Ok(())
    }

    fn check_history(&self, policy: &Policy, new_password: &[u8], stored: &[Vec<u8>]) -> Result<(), Refusal> {
        let used = |text: &str| {
            self.refuse(ResultCode::CONSTRAINT_VIOLATION, text, PasswordError::PasswordInHistory)
        };
        if stored.iter().any(|stored| self.matches(stored, new_password)) {
            return Err(used("Password is not being changed from existing value"));
        }
        let former = history::read(self.account.values("pwdHistory"));
        let history_length = usize::try_from(policy.in_history).unwrap_or(usize::MAX);
        let newest = former.iter().skip(former.len().saturating_sub(history_length));
        match newest.into_iter().any(|former| self.matches(former.password, new_password)) {
            true => Err(used("Password is in history of old passwords")),
            false => self.check_costs(),
        }
    }

    /// Refuses what could not be compared with all stored passwords: users may have stored hashes that take minutes.
    fn check_costs(&self) -> Result<(), Refusal> {
        if !self.change.passwords.has_exceeded() {
            return Ok(());
        }
        let text = "the stored passwords take too long to be compared; send the change by itself, or have an administrator set a new one";
        Err(refuse(self.change, ResultCode::ADMIN_LIMIT_EXCEEDED, text, None))
    }

    fn hash_new(&self, policy: &Policy, plan: &Plan, mods: &mut [Change]) -> Result<(), Refusal> {
        if !self.overlay.settings.hash_cleartext || self.change.passwords.new.is_some() {
            return Ok(());
        }
        let Some(added) = plan.adds.and_then(|at| mods.get_mut(at)) else { return Ok(()) };
        for (value, key) in
            added.values.iter_mut().zip(&mut added.keys).filter(|(value, _)| !is_hashed(value))
        {
            *value = hash(self.overlay, self.change, policy, value)?;
            key.clone_from(value);
        }
        Ok(())
    }

    /// Brings the operational attributes up to date.
    fn keep_state(&self, policy: &Policy, plan: &Plan, mods: &mut Vec<Change>) -> Result<(), Refusal> {
        let sets = |name: &str| mods.iter().any(|one| named(self.change, one, name));
        let deletes = |name: &str| {
            mods.iter().any(|one| one.kind == ChangeKind::Delete && named(self.change, one, name))
        };
        let resets = mods.iter().any(|one| {
            matches!(one.kind, ChangeKind::Add | ChangeKind::Replace) && named(self.change, one, "pwdReset")
        });
        let mut state: Vec<(ChangeKind, &str, Vec<Vec<u8>>)> = Vec::new();
        if !sets("pwdChangedTime") {
            if plan.last != Some(ChangeKind::Delete) {
                let now = self.change.now.generalized().into_bytes();
                state.push((ChangeKind::Replace, "pwdChangedTime", vec![now]));
            } else if self.account.has("pwdChangedTime") {
                state.push((ChangeKind::Delete, "pwdChangedTime", Vec::new()));
            }
        }
        for name in ENDED_BY_PASSWORD {
            if !deletes(name) && self.account.has(name) {
                state.push((ChangeKind::Delete, name, Vec::new()));
            }
        }
        if !resets {
            if policy.must_change && self.manages {
                state.push((ChangeKind::Replace, "pwdReset", vec![b"TRUE".to_vec()]));
            } else if self.account.has("pwdReset") {
                state.push((ChangeKind::Delete, "pwdReset", Vec::new()));
            }
        }
        if !sets("pwdHistory") {
            self.keep_history(policy, plan, &mut state);
        }
        for (kind, name, values) in state {
            mods.push(internal_change(self.change.schema, kind, name, values)?);
        }
        Ok(())
    }

    fn keep_history(&self, policy: &Policy, plan: &Plan, state: &mut Vec<(ChangeKind, &str, Vec<Vec<u8>>)>) {
        const HISTORY: &str = "pwdHistory";
        if policy.in_history == 0 {
            if self.account.has(HISTORY) {
                state.push((ChangeKind::Delete, HISTORY, Vec::new()));
            }
            return;
        }
        let former: Vec<Former<'_>> = match plan.adds {
            Some(_) => history::read(self.account.values(HISTORY)),
            None => Vec::new(),
        };
        let stored = self.account.values(PASSWORD).first();
        let history_length = usize::try_from(policy.in_history).unwrap_or(usize::MAX);
        let surplus = (former.len() + usize::from(stored.is_some())).saturating_sub(history_length);
        let oldest: Vec<_> = former.iter().take(surplus).map(|former| former.value.to_vec()).collect();
        if !oldest.is_empty() {
            state.push((ChangeKind::Delete, HISTORY, oldest));
        }
        if let Some(stored) = stored {
            // The same hash may have been stored before in the same second.
            state.push((ChangeKind::SoftAdd, HISTORY, vec![history::value(self.change.now, stored)]));
        }
    }

    /// What a user gives up without a new password is a former one, too: otherwise it could be set again right away.
    fn keep_given_up(&self, policy: &Policy, plan: &Plan, mods: &mut Vec<Change>) -> Result<(), Refusal> {
        let deleted = plan.deletes.and_then(|at| mods.get(at));
        let is_gone = |one: &&Vec<u8>| deleted.is_none_or(|deleted| deleted.values.contains(one));
        let stored = self.account.values(PASSWORD).iter();
        let given_up: Vec<Vec<u8>> =
            stored.filter(is_gone).map(|one| history::value(self.change.now, one)).collect();
        if policy.in_history > 0 && !given_up.is_empty() {
            mods.push(internal_change(self.change.schema, ChangeKind::SoftAdd, "pwdHistory", given_up)?);
        }
        Ok(())
    }

    /// A change that takes the lock away also takes away what led to it.
    fn unlock(&self, mods: &mut Vec<Change>) -> Result<(), Refusal> {
        let deleted =
            |name: &str| mods.iter().any(|m| m.kind == ChangeKind::Delete && named(self.change, m, name));
        const FAILURES: &str = "pwdFailureTime";
        if deleted("pwdAccountLockedTime") && !deleted(FAILURES) && self.account.has(FAILURES) {
            mods.push(internal_change(self.change.schema, ChangeKind::Delete, FAILURES, Vec::new())?);
        }
        Ok(())
    }
}
