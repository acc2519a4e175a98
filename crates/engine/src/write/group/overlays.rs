//! What overlays have to say to a change: refuse it, alter it, add changes, and follow it up.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use larix_proto::{ControlBuf, LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::{Layered, Snapshot, Store, WriteSet};

use super::{Group, Role};
use crate::access::Subject;
use crate::change::WriteOperation;
use crate::change::prepare::{self, Latitude, PreparedChange};
use crate::controls::{ControlValues, RequestControls};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::overlay::{
    AroundChange, CONSEQUENCE_LIMIT, Consequence, FollowUp, Interests, Overlay, PasswordWork, PendingChange,
    Refusal,
};
use crate::search::view_entries::ViewEntries;
use crate::write::authority::Authority;
use crate::write::operational;
use crate::write::prepared_sets::PreparedSets;
use crate::write::task::{Follow, Task};

/// What an overlay's refusal has beside its result.
#[derive(Debug, Default)]
pub(super) struct RefusalDetails {
    pub(super) controls: Vec<ControlBuf>,
    /// A wrong password was given for the target.
    pub(super) wrong_password: bool,
}

impl RefusalDetails {
    /// Keeps the details of a refusal, and returns its result.
    fn take(&mut self, refusal: Refusal) -> LdapResult {
        let Refusal { result, controls, wrong_password } = refusal;
        *self = Self { controls, wrong_password };
        result
    }
}

/// What one overlay wants done with a change, prepared.
struct OverlayWork {
    altered: Option<PreparedChange>,
    ends: bool,
    derived: Vec<Task>,
    follow_up: Option<Box<dyn FollowUp>>,
}

/// What all overlays together want done with a change.
#[derive(Default)]
pub(super) struct OverlayTotal {
    /// Changes that come right after the change.
    pub(super) derived: Vec<Task>,
    /// In the order in which the overlays were asked.
    pub(super) follow_ups: Vec<Box<dyn FollowUp>>,
    /// Nothing is left of the change itself.
    pub(super) idle: bool,
}

impl<S: Store> Group<'_, S> {
    /// The consequences here of a change in another database.
    pub(super) fn follows<T: Snapshot>(
        &self,
        transaction: &T,
        unit: &WriteSet,
        follow: &Follow,
        refusal_details: &mut RefusalDetails,
    ) -> Result<VecDeque<(Task, Role)>, Failure> {
        let before = Layered::new(transaction, &self.set);
        let snapshot = Layered::new(&before, unit);
        let view = self.view(&snapshot)?;
        let entries = ViewEntries::of(&view);
        let consequences = follow.follow_up.consequences(&entries, &self.state.schema);
        let consequences = consequences.map_err(|refusal| refusal_details.take(refusal))?;
        if consequences.len() > CONSEQUENCE_LIMIT {
            return Err(too_many(CONSEQUENCE_LIMIT).into());
        }
        Ok(consequences.into_iter().map(|one| consequence(one, &follow.subject)).collect())
    }

    /// Whether the requester may make the change, so that overlays may look at it.
    pub(super) fn admits<T: Snapshot>(
        &self,
        transaction: &T,
        unit: &WriteSet,
        task: &Task,
    ) -> Result<bool, Fault> {
        let before = Layered::new(transaction, &self.set);
        let snapshot = Layered::new(&before, unit);
        let view = self.view_over(&snapshot, unit)?;
        let authority = Authority { view: &view, subject: &task.subject };
        let admitted = match &task.operation {
            PreparedChange::Add { dn, entry, mods } if view.settings.last_modified => {
                // Rules may ask who made an entry.
                let (mut entry, mods) = (entry.clone(), mods.clone());
                operational::name_creator(&self.known, &mut entry, task.subject.shown_dn());
                authority.admits(&PreparedChange::Add { dn: dn.clone(), entry, mods })
            }
            operation => authority.admits(operation),
        };
        // Rules that use up the steps admit nothing.
        if matches!(admitted, Err(Fault::StepsSpent)) { Ok(false) } else { admitted }
    }

    /// Shows a change to the overlays. The last one of the configuration is asked first: it is the outermost, as in slapd
    /// (slapd.overlays(5)).
    pub(super) fn ask_all<T: Snapshot>(
        &self,
        transaction: &T,
        unit: &WriteSet,
        task: &mut Cow<'_, Task>,
        role: Role,
        refusal_details: &mut RefusalDetails,
    ) -> Result<OverlayTotal, Failure> {
        let mut total = OverlayTotal::default();
        // What one overlay computes of a password, the next ones know.
        let own_work = PasswordWork::late();
        let mut overlays = self.state.settings.overlays.at(Interests::PREPARE).rev().peekable();
        while let Some(overlay) = overlays.next() {
            let asked = (&**task, &own_work, overlays.peek().is_none());
            let work = self.ask(&**overlay, transaction, unit, asked, role, refusal_details)?;
            total.derived.extend(work.derived);
            total.follow_ups.extend(work.follow_up);
            if let Some(operation) = work.altered {
                total.idle = matches!(&operation, PreparedChange::Modify { mods, .. } if mods.is_empty());
                let altered = task.to_mut();
                // What was made of the values before is of others.
                (altered.operation, altered.prepared) = (operation, PreparedSets::default());
            }
            if work.ends {
                break;
            }
        }
        Ok(total)
    }

    /// Shows a change to an overlay, the last one or not, and prepares the changes that it adds.
    fn ask<T: Snapshot>(
        &self,
        overlay: &dyn Overlay,
        transaction: &T,
        unit: &WriteSet,
        (task, own_work, is_final): (&Task, &PasswordWork, bool),
        role: Role,
        refusal_details: &mut RefusalDetails,
    ) -> Result<OverlayWork, Failure> {
        let before = Layered::new(transaction, &self.set);
        let snapshot = Layered::new(&before, unit);
        let view = self.view(&snapshot)?;
        let entries = ViewEntries::of(&view);
        let prepared = overlay.prepare(&PendingChange {
            operation: &task.operation,
            subject: &task.subject,
            controls: &task.controls,
            schema: &self.state.schema,
            derived: role != Role::Requested,
            required_by: task.required_by.as_ref(),
            is_final,
            entries: &entries,
            now: self.environment.clock.now(),
            random: &*self.environment.random,
            passwords: task.passwords.as_deref().unwrap_or(own_work),
        });
        let added = prepared.map_err(|refusal| refusal_details.take(refusal))?;
        let prepare = |operation| self.internal(operation, &task.subject, false);
        let derived = added.derived.into_iter().map(prepare).collect::<Result<_, Failure>>()?;
        Ok(OverlayWork { altered: added.altered, ends: added.ends, derived, follow_up: added.follow_up })
    }

    /// Prepares a change that an overlay asks for in the name of a requester. `relax`: under the relax rules control.
    fn internal(
        &self,
        operation: WriteOperation,
        subject: &Arc<Subject>,
        relax: bool,
    ) -> Result<Task, Failure> {
        let latitude = Latitude { internal: true, ..Latitude::default() };
        let target = operation.target().to_owned();
        // The subschema subentry is in no database: the root stands in for it.
        let operation = prepare::prepare(&self.state.schema, operation, &NormalDn::root(), latitude)?;
        let controls =
            RequestControls::from(ControlValues { manage_dsa_it: true, relax, ..ControlValues::default() });
        Ok(Task::new(operation, target, Arc::clone(subject), controls))
    }

    /// The consequences of a change, `task`, that was carried out. `done` is what it wrote.
    pub(super) fn consequences<T: Snapshot>(
        &self,
        follow_ups: Vec<Box<dyn FollowUp>>,
        transaction: &T,
        (unit, done): (&WriteSet, &WriteSet),
        task: &Task,
        refusal_details: &mut RefusalDetails,
    ) -> Result<Vec<(Task, Role)>, Failure> {
        let group = Layered::new(transaction, &self.set);
        let before = Layered::new(&group, unit);
        let after = Layered::new(&before, done);
        let (old, new) = (self.view(&before)?, self.view(&after)?);
        let around = AroundChange { before: &ViewEntries::of(&old), after: &ViewEntries::of(&new) };
        let mut tasks = Vec::new();
        for follow_up in follow_ups {
            let required = follow_up.required(&around, &self.state.schema);
            for operation in required.map_err(|refusal| refusal_details.take(refusal))? {
                let prepared = self.internal(operation, &task.subject, task.controls.relax)?;
                let required_by = Some(task.operation.dn_behind());
                tasks.push((Task { required_by, ..prepared }, Role::Required));
            }
            let consequences = follow_up
                .consequences(&around, &self.state.schema)
                .map_err(|refusal| refusal_details.take(refusal))?;
            tasks.extend(consequences.into_iter().map(|one| consequence(one, &task.subject)));
        }
        Ok(tasks)
    }
}

fn consequence(consequence: Consequence, subject: &Arc<Subject>) -> (Task, Role) {
    let Consequence { operation, local, permissive } = consequence;
    let target = operation.dn().as_str().to_owned();
    let controls = RequestControls::from(ControlValues {
        manage_dsa_it: true,
        permissive_modify: permissive,
        ..ControlValues::default()
    });
    let role = if local { Role::LocalConsequence } else { Role::Consequence };
    (Task::new(operation, target, Arc::clone(subject), controls), role)
}

pub(super) fn too_many(limit: usize) -> LdapResult {
    let text = format!("more than {limit} changes derived from one");
    LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text)
}
