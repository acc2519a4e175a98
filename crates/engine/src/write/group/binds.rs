//! Binds whose outcome goes through the writer: overlays judge them, and accounts change as the overlays say.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::{Layered, Snapshot, Store, WriteSet};

use super::{Group, Role};
use crate::change::Forward;
use crate::change::prepare::PreparedChange;
use crate::controls::{ControlValues, RequestControls};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::overlay::second_factor::{FactorJudgement, GivenCode};
use crate::overlay::{BindAttempt, Change, Entries as _, Judgement, judge, judge_code};
use crate::search::view_entries::ViewEntries;
use crate::tables::{META, meta};
use crate::tree;
use crate::write::forwarding;
use crate::write::prepared_sets::PreparedSets;
use crate::write::request::WriteOutcome;
use crate::write::task::Task;

impl<S: Store> Group<'_, S> {
    /// Counts a wrong password that came with a refused change as a failed bind of the target. Says whether the refusal has
    /// to wait for the commit.
    pub(super) fn count_wrong_password<T: Snapshot>(
        &mut self,
        transaction: &T,
        task: &Task,
    ) -> Result<bool, Fault> {
        let (mut unit, mut outcome) = (WriteSet::new(), WriteOutcome::from(LdapResult::success()));
        let dn = task.operation.dn().clone();
        let attempt = BindAttempt { dn, matched: false, policy_control: false, code: GivenCode::NotAsked };
        match self.authenticate(transaction, &mut unit, task, &attempt, &mut outcome) {
            Err(Failure::Storage(fault)) => return Err(fault),
            Err(Failure::Refused(_)) => return Ok(false),
            Ok(()) => {}
        }
        self.set.merge(unit);
        Ok(outcome.judged)
    }

    /// Lets the overlays judge a bind, and changes the account's state as they say. That the account is gone, or that the
    /// schema does not let its state be changed, is no reason to answer otherwise.
    pub(super) fn authenticate<T: Snapshot>(
        &mut self,
        transaction: &T,
        unit: &mut WriteSet,
        task: &Task,
        attempt: &BindAttempt,
        outcome: &mut WriteOutcome,
    ) -> Result<(), Failure> {
        let settings = &self.state.settings;
        let mut forward = settings.forwards_login(&attempt.code).then(|| {
            Box::new(Forward { referrals: settings.update_referrals.clone(), ..Forward::default() })
        });
        let code = self.use_code(transaction, unit, task, (attempt, forward.as_deref_mut()), outcome)?;
        let judgement = {
            let before = Layered::new(transaction, &self.set);
            let snapshot = Layered::new(&before, &*unit);
            let view = self.view(&snapshot)?;
            let entries = ViewEntries::of(&view);
            let about = (&*self.state.schema, self.environment.clock.now());
            judge(&self.state.settings.overlays, attempt, &code, &entries, about)?
        };
        let Judgement {
            refused,
            controls,
            changes,
            forwarded,
            forwarded_if,
            must_change_password,
            rehash,
            ordered,
        } = judgement;
        outcome.controls = controls;
        outcome.must_change_password = must_change_password;
        outcome.rehash = rehash;
        let failed = !attempt.matched || refused;
        if failed {
            outcome.result = LdapResult::new(ResultCode::INVALID_CREDENTIALS);
        }
        if let Some(mut forward) = forward {
            let request = |changes: &[Change]| forwarding::request(&self.state.schema, &attempt.dn, changes);
            if !forwarded.is_empty() {
                forward.state.push(request(&forwarded));
            }
            let conditional = forwarded_if.into_iter();
            forward.conditional.extend(conditional.map(|(change, filter)| (request(&[change]), filter)));
            outcome.forward = (!forward.is_empty()).then_some(forward);
        }
        if failed && ordered && changes.is_empty() && !self.state.settings.read_only {
            // The account does not exist or is locked: the answer waits for a sync as one that is counted does.
            unit.put(META, meta::FAILED_BIND, []);
            outcome.judged = true;
        }
        if changes.is_empty() {
            return Ok(());
        }
        outcome.judged = true;
        self.change_for_bind(transaction, unit, task, (attempt.dn.clone(), changes)).map(|_| ())
    }

    /// Lets second factors judge the code of a bind, and uses it up. A code that cannot be used up is refused.
    fn use_code<T: Snapshot>(
        &mut self,
        transaction: &T,
        unit: &mut WriteSet,
        task: &Task,
        (attempt, mut forward): (&BindAttempt, Option<&mut Forward>),
        outcome: &mut WriteOutcome,
    ) -> Result<FactorJudgement, Failure> {
        let settings = &self.state.settings;
        let mut judged = {
            let before = Layered::new(transaction, &self.set);
            let snapshot = Layered::new(&before, &*unit);
            let view = self.view(&snapshot)?;
            let entries = ViewEntries::of(&view);
            let schema = &self.state.schema;
            let now = (self.environment.clock.now(), settings.keeps_codes(&attempt.code));
            let mut judged = judge_code(&settings.overlays, attempt, &entries, schema, now)?;
            if let Some(forward) = &mut forward {
                // The provider uses the code up: what is seen here may be late.
                for (dn, mods) in std::mem::take(&mut judged.changes) {
                    let seen = entries.entry(&dn)?;
                    forward.needed.push(forwarding::exact_request(schema, &dn, &mods, seen.as_ref()));
                }
            }
            judged
        };
        for (dn, mods) in std::mem::take(&mut judged.changes) {
            outcome.judged = true;
            judged.refused |= !self.change_for_bind(transaction, unit, task, (dn, mods))?;
        }
        Ok(judged)
    }

    /// Changes an entry because of a bind. Answers whether the change was made.
    fn change_for_bind<T: Snapshot>(
        &mut self,
        transaction: &T,
        unit: &mut WriteSet,
        task: &Task,
        (dn, mods): (NormalDn, Vec<Change>),
    ) -> Result<bool, Failure> {
        let operation = PreparedChange::Modify { dn, mods };
        // What a shadow keeps of its accounts is its own: with a CSN of its own it would be ahead of its provider.
        let role = if self.state.settings.shadow { Role::Derived } else { Role::Requested };
        let controls =
            RequestControls::from(ControlValues { manage_dsa_it: true, ..ControlValues::default() });
        let prepared = PreparedSets::default();
        let task = Task { operation, controls, prepared, ..task.clone() };
        match self.carry_out_task(transaction, unit, &task, (role, false)) {
            Ok(effects) => {
                unit.merge(effects.set);
                Ok(true)
            }
            Err(Failure::Refused(_)) => {
                tree::forget(self.instance);
                Ok(false)
            }
            Err(storage) => Err(storage),
        }
    }
}
