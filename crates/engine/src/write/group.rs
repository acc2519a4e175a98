//! A group of changes before its commit: each change on a view of the ones before it, all in one write set.

mod binds;
mod overlays;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use larix_proto::{LdapResult, ResultCode};
use larix_store::{Durability, Layered, Snapshot, Store, WriteSet};

use super::known::KnownSchema;
use super::operational::Stamp;
use super::operator::{Counters, Effects, Envelope, Operator, WriteContext, insufficient};
use super::prepared_sets::NONE_PREPARED;
use super::replicated;
use super::request::WriteOutcome;
use super::retiring::RetiringDefinitions;
use super::task::{Follow, Task};
use super::{WriterEnvironment, add, back_links as links, delete, disclosure, modify, modify_dn};
use crate::budget::{LimitExceeded, RequestLimit};
use crate::catalog::{Catalog, CatalogEdit};
use crate::change::prepare::PreparedChange;
use crate::csn::Csn;
use crate::database::{Database, DatabaseSettings, DatabaseState, View};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::log;
use crate::overlay::{CONSEQUENCE_LIMIT, DERIVED_LIMIT, FOLLOWING_LIMIT, Interests};
use crate::tables::{META, meta};
use crate::time::Timestamp;
use crate::tree;
use overlays::{OverlayTotal, RefusalDetails, too_many};

/// Why a change is carried out.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Role {
    Requested,
    /// An overlay asked for it.
    Derived,
    /// It follows from another change.
    Consequence,
    /// It follows from another change; each server derives it for itself.
    LocalConsequence,
    /// It follows from another change, and that one fails without it.
    Required,
}

impl Role {
    fn is_local(self) -> bool {
        matches!(self, Self::Derived | Self::LocalConsequence)
    }

    fn may_fail(self) -> bool {
        matches!(self, Self::Consequence | Self::LocalConsequence)
    }
}

/// A group of changes before its commit.
pub(crate) struct Group<'a, S> {
    pub(crate) database: &'a Database<S>,
    pub(crate) retiring: &'a RetiringDefinitions,
    pub(crate) environment: &'a WriterEnvironment,
    pub(crate) instance: u64,
    /// As the group began. Attributes that the group numbers are in `catalog`.
    pub(crate) state: Arc<DatabaseState>,
    pub(crate) known: Arc<KnownSchema>,
    pub(crate) catalog: CatalogEdit,
    pub(crate) counters: Counters,
    pub(crate) set: WriteSet,
    /// What replication raised contextCSNs to.
    pub(crate) raised: Vec<Csn>,
    /// The back links of all entries have to be computed again.
    pub(crate) walks: bool,
    /// The unit under way has a change that may alter links or back links.
    touches_links: bool,
    /// The tree's generation as the group began: known from the last commit, or looked up once.
    generation: Cell<Option<u64>>,
    /// The last record of the log before the group.
    logged_before: u64,
}

impl<'a, S: Store> Group<'a, S> {
    /// Begins with the database and its configuration as they are now. Names are cached under `instance`; `generation` is the tree's, if
    /// it is known.
    pub(crate) fn new(
        database: &'a Database<S>,
        environment: &'a WriterEnvironment,
        retiring: &'a RetiringDefinitions,
        known: Arc<KnownSchema>,
        counters: Counters,
        (instance, generation): (u64, Option<u64>),
    ) -> Self {
        let state = database.state();
        Self {
            database,
            retiring,
            environment,
            instance,
            known,
            catalog: CatalogEdit::new(Arc::clone(&state.catalog)),
            state,
            logged_before: counters.last_log_sequence,
            counters,
            set: WriteSet::new(),
            raised: Vec::new(),
            walks: false,
            touches_links: false,
            generation: Cell::new(generation),
        }
    }

    /// Carries out changes that belong together. The group's set has all of their writes afterwards, or none.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn carry_out<T: Snapshot>(
        &mut self,
        transaction: &T,
        tasks: &[Task],
        follow: Option<&Follow>,
    ) -> Result<WriteOutcome, Fault> {
        let mut unit = WriteSet::new();
        let mut outcome = WriteOutcome::from(LdapResult::success());
        let mut refusal_details = RefusalDetails::default();
        let (csn_before, claimed_before) = (self.counters.csn, self.counters.claimed);
        let logged_before = self.counters.last_log_sequence;
        let bytes_before = self.counters.logged_bytes;
        let done = self
            .unit(transaction, (tasks, follow), &mut unit, &mut outcome, &mut refusal_details)
            .and_then(|()| self.check_values(&unit));
        let no_op = tasks.iter().any(|task| task.controls.no_op);
        if done.is_err() || no_op {
            tree::forget(self.instance);
            (self.counters.csn, self.counters.claimed) = (csn_before, claimed_before);
            // The log's sequences have no gaps, and these changes are not in it.
            self.counters.last_log_sequence = logged_before;
            self.counters.logged_bytes = bytes_before;
        }
        match done {
            Err(Failure::Refused(result)) => {
                let task =
                    outcome.refused.and_then(|at| tasks.get(at)).filter(|_| refusal_details.wrong_password);
                let judged = task.map_or(Ok(false), |task| self.count_wrong_password(transaction, task))?;
                let RefusalDetails { controls, wrong_password } = refusal_details;
                let refused = outcome.refused;
                Ok(WriteOutcome { refused, controls, judged, wrong_password, ..WriteOutcome::from(result) })
            }
            Err(Failure::Storage(fault)) => Err(fault),
            Ok(()) if no_op => {
                Ok(WriteOutcome { result: LdapResult::new(ResultCode::NO_OPERATION), ..outcome })
            }
            Ok(()) => {
                self.set.merge(unit);
                outcome.logged = logged_before + 1..self.counters.last_log_sequence + 1;
                Ok(outcome)
            }
        }
    }

    /// Refuses a value that is too long for the store: the commit would fail, and with it all other changes of the group.
    pub(crate) fn check_values(&self, unit: &WriteSet) -> Result<(), Failure> {
        let store = self.database.store();
        let most = store.value_bytes_max();
        // Usually the whole unit is shorter than that.
        let longest = if unit.byte_len() > most { unit.longest_value() } else { 0 };
        if longest <= most {
            return Ok(());
        }
        let text = format!("a value of {longest} bytes: {}", store.value_limit_text());
        Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text).into())
    }

    fn unit<T: Snapshot>(
        &mut self,
        transaction: &T,
        (tasks, follow): (&[Task], Option<&Follow>),
        unit: &mut WriteSet,
        outcome: &mut WriteOutcome,
        refusal_details: &mut RefusalDetails,
    ) -> Result<(), Failure> {
        self.touches_links = false;
        for (at, task) in tasks.iter().enumerate() {
            outcome.refused = Some(at);
            match &task.operation {
                PreparedChange::Authenticate(attempt) => {
                    self.authenticate(transaction, unit, task, attempt, outcome)?;
                    continue;
                }
                PreparedChange::Record(recording) => {
                    self.record(transaction, unit, task, recording)?;
                    self.touches_links = true;
                    continue;
                }
                _ => {}
            }
            let first = Some((Cow::Borrowed(task), Role::Requested));
            self.chain(transaction, first, VecDeque::new(), unit, outcome, refusal_details)?;
        }
        if let Some(follow) = follow {
            let mut waiting = self.follows(transaction, unit, follow, refusal_details)?;
            let first = waiting.pop_front().map(|(task, role)| (Cow::Owned(task), role));
            self.chain(transaction, first, waiting, unit, outcome, refusal_details)?;
        }
        if !self.touches_links {
            return Ok(());
        }
        let csn = self.counters.csn;
        Ok(self.follow_links(transaction, unit, csn)?)
    }

    /// Carries out a change and its consequences. Changes that overlays add come right after the change that they belong to.
    fn chain<'t, T: Snapshot>(
        &mut self,
        transaction: &T,
        first: Option<(Cow<'t, Task>, Role)>,
        mut waiting: VecDeque<(Task, Role)>,
        unit: &mut WriteSet,
        outcome: &mut WriteOutcome,
        refusal_details: &mut RefusalDetails,
    ) -> Result<(), Failure> {
        let settings = Arc::clone(&self.state.settings);
        let mut count = 0;
        // Breadth first: the consequences of the first change, then theirs, and so on. `in_a_row` is the depth.
        let (mut in_a_row, mut left) = (0, waiting.len() + 1);
        let mut next = first;
        while let Some((mut task, role)) = next {
            if left == 0 {
                (in_a_row, left) = (in_a_row + 1, waiting.len() + 1);
                if in_a_row > FOLLOWING_LIMIT {
                    let text = format!("more than {FOLLOWING_LIMIT} changes follow one from the other");
                    return Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text).into());
                }
            }
            left -= 1;
            let is_as_it_is = task.controls.import.is_some() || task.replicated;
            let asks = !is_as_it_is && settings.overlays.want(Interests::PREPARE);
            let admitted = !asks || role != Role::Requested || self.admits(transaction, unit, &task)?;
            let OverlayTotal { derived, mut follow_ups, idle } = match asks && admitted {
                true => self.ask_all(transaction, unit, &mut task, role, refusal_details)?,
                false => OverlayTotal::default(),
            };
            count += derived.len();
            waiting.extend(derived.into_iter().map(|task| (task, Role::Derived)));
            if count > DERIVED_LIMIT {
                return Err(too_many(DERIVED_LIMIT).into());
            }
            // Consequences pass the overlays in the order of the configuration.
            follow_ups.reverse();
            match self.carry_out_task(transaction, unit, &task, (role, idle)) {
                // No overlay has seen the change, so it must not happen, whatever the rules for the change itself say.
                Ok(_) if !admitted => return Err(insufficient("").into()),
                Ok(effects) => {
                    if !follow_ups.is_empty() {
                        let sides = (&*unit, &effects.set);
                        let follow =
                            self.consequences(follow_ups, transaction, sides, &task, refusal_details)?;
                        waiting.extend(follow);
                        if waiting.len() > CONSEQUENCE_LIMIT {
                            return Err(too_many(CONSEQUENCE_LIMIT).into());
                        }
                    }
                    unit.merge(effects.set);
                    outcome.controls.extend(effects.controls);
                }
                Err(Failure::Refused(_)) if role.may_fail() => tree::forget(self.instance),
                Err(failure) => return Err(failure),
            }
            next = waiting.pop_front().map(|(task, role)| (Cow::Owned(task), role));
        }
        Ok(())
    }

    /// The tree's generation once the group is committed. `None`: it has to be looked up.
    pub(crate) fn generation_behind(&self) -> Option<u64> {
        match self.set.get(META, meta::TREE_GENERATION) {
            Some(_) => None,
            None => self.generation.get(),
        }
    }

    pub(crate) fn view<'s, V: Snapshot>(&self, snapshot: &'s V) -> Result<View<'s, V>, Fault> {
        View::over_changes(snapshot, self.instance, self.catalog.state(&self.state))
    }

    /// As [`Self::view`], if only `unit` lies over the group's changes: the tree's generation may be known.
    fn view_over<'s, V: Snapshot>(&self, snapshot: &'s V, unit: &WriteSet) -> Result<View<'s, V>, Fault> {
        let changes_it = |set: &WriteSet| set.get(META, meta::TREE_GENERATION).is_some();
        if changes_it(unit) || changes_it(&self.set) {
            return self.view(snapshot);
        }
        let generation = match self.generation.get() {
            Some(generation) => generation,
            None => tree::generation(snapshot)?,
        };
        self.generation.set(Some(generation));
        let state = self.catalog.state(&self.state);
        Ok(View::over_changes_of(snapshot, self.instance, state, generation))
    }

    /// Carries out one change over what the unit has written so far. `idle`: an overlay has left nothing of the change itself.
    fn carry_out_task<T: Snapshot>(
        &mut self,
        transaction: &T,
        unit: &WriteSet,
        task: &Task,
        (role, idle): (Role, bool),
    ) -> Result<Effects, Failure> {
        self.retiring.check(&task.operation, &self.state.schema)?;
        let context = WriteContext::of(&self.state, &self.known, self.environment);
        let now = self.environment.clock.now();
        let own_csn = || self.environment.order.next_csn(now);
        let csn = replicated::csn_of(task, &self.known).unwrap_or_else(own_csn);
        let before = Layered::new(transaction, &self.set);
        let view = Layered::new(&before, unit);
        let numbered = Arc::clone(self.catalog.catalog());
        let mut operator = Operator {
            context: &context,
            view: self.view_over(&view, unit)?,
            instance: self.instance,
            catalog: &mut self.catalog,
            counters: &mut self.counters,
            envelope: envelope(task, (role, idle), &self.state.settings, now),
            stamp: Stamp::new(csn, task.subject.shown_dn()),
            set: WriteSet::new(),
            controls: Vec::new(),
            continues: !unit.is_empty(),
            old: Vec::new(),
        };
        match carry_out_operation(&mut operator, &task.operation) {
            Ok(()) => {}
            Err(Failure::Refused(refused)) => {
                return Err(disclosure::disclosed(&operator, &task.operation, refused)?.into());
            }
            // This request alone used up its steps. The others of the group go on.
            Err(Failure::Storage(Fault::StepsSpent)) => {
                let most = context.settings.request_limits.most(RequestLimit::Steps);
                let exceeded = LdapResult::from(LimitExceeded { limit: RequestLimit::Steps, most });
                return Err(disclosure::disclosed(&operator, &task.operation, exceeded)?.into());
            }
            Err(failure) => return Err(failure),
        }
        let effects = operator.finish();
        self.check_descriptions(numbered)?;
        self.touches_links |= links::touches(&self.state.settings, &self.state.schema, &task.operation);
        if task.replicated {
            self.raised.extend(replicated::contexts_of(task, &self.known));
        } else if !(idle || self.state.settings.shadow && (role.is_local() || self.is_by_update_dn(task))) {
            self.counters.csn = Some(effects.csn);
        }
        Ok(effects)
    }

    /// Whether the `updatedn` of a shadow made the change. Counted with a CSN of this server, the contextCSN would be ahead of the
    /// provider's, and the provider would take its latest changes for known here.
    fn is_by_update_dn(&self, task: &Task) -> bool {
        task.controls.import.is_none()
            && task.subject.dn.is_some()
            && task.subject.dn == self.state.settings.update_dn
    }

    /// Refuses a change that brings the attribute descriptions of the database above their limit. Each description stays for good, and
    /// clients can invent options without end.
    fn check_descriptions(&mut self, before: Arc<Catalog>) -> Result<(), Failure> {
        let known = self.catalog.catalog().rows().len();
        if known == before.rows().len() {
            return Ok(());
        }
        let checked = self.state.settings.request_limits.check(RequestLimit::Descriptions, known);
        checked.map_err(|exceeded| {
            self.catalog.forget_since(before);
            LdapResult::from(exceeded).into()
        })
    }

    /// Ends the gathering. `None`: the group wrote nothing.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn ready<T: Snapshot>(mut self, transaction: &T) -> Result<Option<ReadyGroup>, Fault> {
        if self.set.is_empty() {
            return Ok(None);
        }
        let claimed = self.keep_context_csn(transaction)?;
        self.catalog.write_new(&mut self.set);
        // Readers that see the commit must know every attribute number in it. In a shared store another writer may give the
        // same number to something else first: there readers take it from the commit.
        let is_other = !Arc::ptr_eq(self.catalog.catalog(), &self.state.catalog);
        if !S::SHARED && is_other {
            self.database.publish_catalog(Arc::clone(self.catalog.catalog()));
        }
        let (durability, logs) = (self.state.settings.durability(), self.state.settings.log);
        let decided = self.counters.csn.is_some();
        Ok(Some(ReadyGroup { set: self.set, catalog: self.catalog, durability, logs, decided, claimed }))
    }

    /// Writes this server's contextCSN, unless the last record of the log [says it](log::LogHeading::claims). Answers whether it does.
    fn keep_context_csn<T: Snapshot>(&mut self, transaction: &T) -> Result<bool, Fault> {
        let higher =
            |csn: &Csn| self.raised.iter().any(|raised| raised.server_id == csn.server_id && raised > csn);
        if let Some(csn) = self.counters.csn.as_ref().filter(|csn| !higher(csn)) {
            // What the store is an image of has no log, and nodes of a shared store read the row alone.
            let in_log =
                !S::SHARED && self.counters.claimed.as_ref() == Some(csn) && self.database.mirror().is_none();
            if !in_log {
                log::put_context_csn(&mut self.set, csn);
            }
            return Ok(in_log);
        }
        // The new records do not say it, so the earlier claim has to be kept.
        if !S::SHARED && self.counters.last_log_sequence > self.logged_before {
            log::keep_claimed(transaction, &mut self.set)?;
        }
        Ok(false)
    }
}

/// The envelope of a change in this role.
fn envelope<'a>(
    task: &'a Task,
    (role, idle): (Role, bool),
    settings: &DatabaseSettings,
    now: Timestamp,
) -> Envelope<'a> {
    let derived = role.is_local();
    Envelope {
        subject: &task.subject,
        target: &task.target,
        controls: &task.controls,
        now,
        derived,
        trusted: role == Role::Required,
        idle,
        // Databases with states of values need each value by itself.
        prepared: if settings.keeps_states() { &NONE_PREPARED } else { &task.prepared },
        replicated: task.replicated,
        claims: !(task.replicated || derived || idle || settings.shadow),
    }
}

fn carry_out_operation<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    operation: &PreparedChange,
) -> Result<(), Failure> {
    match operation {
        PreparedChange::Add { dn, entry, mods } => {
            let entry = operator.envelope.prepared.entry(entry, mods);
            add::add(operator, dn, entry, mods)
        }
        PreparedChange::Modify { dn, mods } => modify::modify(operator, dn, mods),
        PreparedChange::Delete { dn } => delete::delete(operator, dn),
        PreparedChange::ModifyDn(rename) => modify_dn::modify_dn(operator, rename),
        // The changes of a bind come here as a modify, the entries of an access log one by one as adds.
        PreparedChange::Authenticate(_) | PreparedChange::Record(_) => Ok(()),
    }
}

/// A group that is to be committed.
pub(crate) struct ReadyGroup {
    pub(crate) set: WriteSet,
    pub(crate) catalog: CatalogEdit,
    pub(crate) durability: Durability,
    /// Whether the changes are in the change log.
    pub(crate) logs: bool,
    /// The group has changes with CSNs of this server. Nobody else has these changes, and no CSN may be given twice.
    pub(crate) decided: bool,
    /// The last record of the log says how far this server has come.
    pub(crate) claimed: bool,
}
