//! Applies a replicated change: the writer's thread decides it on a view of everything before it.

use std::sync::{Arc, Mutex, PoisonError};

use larix_proto::{LdapResult, ResultCode};
use larix_schema::AttributeDescription;
use larix_store::{Layered, Snapshot, Store, WriteSet};

use super::prepare::{Put, Ready};
use super::{ApplyOutcome, ConflictNote, ReplicaRules, conflicts, state};
use crate::access::Subject;
use crate::change::prepare::{Change, ChangeKind, RequiredAccess, check_change};
use crate::controls::RequestControls;
use crate::csn::Csn;
use crate::failure::Failure;
use crate::fault::Fault;
use crate::tables::{META, meta};
use crate::write::AttributeValues;
use crate::write::KnownSchema;
use crate::write::group::Group;
use crate::write::operational::Stamp;
use crate::write::operator::{Envelope, Operator, WriteContext};
use crate::{log, tree};

/// Moves and merges that one change may ask for.
const STEPS_MAX: usize = 100_000;
/// How often entries that wait for others to go are looked at; then each opens its own loop.
const SETTLE_ROUNDS: usize = 100;

/// A batch that is ready for the writer.
#[derive(Debug, Default)]
pub(crate) struct ReplicatedJob {
    pub(crate) changes: Vec<Ready>,
    pub(crate) context_csns: Vec<Csn>,
    pub(crate) rules: ReplicaRules,
    /// The outcome of each change, for the waiting consumer.
    pub(crate) applied: Arc<Mutex<Vec<ApplyOutcome>>>,
}

impl<S: Store> Group<'_, S> {
    /// Carries out a batch. What its changes write is in the group's set afterwards; a refused change leaves nothing.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn replicate<T: Snapshot>(
        &mut self,
        transaction: &T,
        job: &ReplicatedJob,
    ) -> Result<LdapResult, Fault> {
        let covered = log::context_csns(&Layered::new(transaction, &self.set))?;
        let mut applied = Vec::with_capacity(job.changes.len());
        for ready in &job.changes {
            let done = match ready {
                Ready::Refused(result) => ApplyOutcome::Refused(result.clone()),
                ready => self.replicated(transaction, &covered, job, ready)?,
            };
            applied.push(done);
        }
        if covered.is_empty() && !job.changes.is_empty() && !job.rules.own_csns {
            self.set.put(META, meta::UNPROVED, []);
        }
        let refused = applied.iter().any(|applied| matches!(applied, ApplyOutcome::Refused(_)));
        if !refused && !job.context_csns.is_empty() {
            self.settle_glue(transaction, &covered, job)?;
            self.raise(transaction, &covered, job)?;
        } else if !job.rules.multi_provider {
            // A shadow decides nothing: a name that is free again is given back. Of records of an access log that come late
            // nothing says that a batch is complete.
            self.settle_names(transaction, &covered, job)?;
        }
        *job.applied.lock().unwrap_or_else(PoisonError::into_inner) = applied;
        Ok(LdapResult::success())
    }

    /// Raises what holds of each server.
    fn raise<T: Snapshot>(
        &mut self,
        transaction: &T,
        covered: &[Csn],
        job: &ReplicatedJob,
    ) -> Result<(), Fault> {
        if Layered::new(transaction, &self.set).get(META, meta::UNPROVED)?.is_some() {
            self.set.delete(META, meta::UNPROVED);
        }
        for csn in &job.context_csns {
            let known = covered.iter().find(|known| known.server_id == csn.server_id);
            if job.rules.doubted {
                log::put_doubted_csn(&mut self.set, csn);
            }
            if known.is_none_or(|known| known < csn) && !log::is_retired(transaction, csn)? {
                self.follow(csn);
                log::put_context_csn(&mut self.set, csn);
                if job.rules.by_content {
                    log::put_content_csn(&mut self.set, csn);
                }
                if job.rules.whole {
                    log::put_whole_csn(&mut self.set, csn);
                }
                self.raised.push(*csn);
            }
        }
        self.raise_part(transaction, job)
    }

    /// Raises how far one of several lines has come.
    fn raise_part<T: Snapshot>(&mut self, transaction: &T, job: &ReplicatedJob) -> Result<(), Fault> {
        let Some(part) = &job.rules.part else { return Ok(()) };
        let known = log::part_csns(&Layered::new(transaction, &self.set), &part.name)?;
        for csn in job.context_csns.iter().filter(|csn| !known.covers(csn)) {
            log::put_part_csn(&mut self.set, &part.name, csn);
        }
        Ok(())
    }

    fn follow(&self, csn: &Csn) {
        self.environment.order.follow(csn, self.environment.clock.now());
    }

    fn replicated<T: Snapshot>(
        &mut self,
        transaction: &T,
        covered: &[Csn],
        job: &ReplicatedJob,
        ready: &Ready,
    ) -> Result<ApplyOutcome, Fault> {
        let mut applier = Applier::new(self, transaction, covered, job);
        let done = match ready {
            Ready::Put(put) if job.rules.own_csns => {
                applier.stamped(put).and_then(|put| applier.put_at_place(&put))
            }
            Ready::Put(put) => applier.put_at_place(put),
            Ready::Delete { uuid, .. } if job.rules.own_csns => {
                let csn = applier.own_stamp().csn;
                applier.delete(uuid, Some(csn))
            }
            Ready::Delete { uuid, csn } => applier.delete(uuid, *csn),
            Ready::Delta(delta) => applier.delta(delta),
            Ready::Nothing => Ok(ApplyOutcome::Older),
            Ready::Refused(result) => Ok(ApplyOutcome::Refused(result.clone())),
        };
        applier.end(done)
    }

    /// Looks for who had the names of glue that nothing filled in.
    fn settle_glue<T: Snapshot>(
        &mut self,
        transaction: &T,
        covered: &[Csn],
        job: &ReplicatedJob,
    ) -> Result<(), Fault> {
        for (id, has_place) in state::new_glue(&Layered::new(transaction, &self.set))? {
            let mut applier = Applier::new(self, transaction, covered, job);
            let done = applier.settle(id, has_place).map(|()| ApplyOutcome::Done);
            // What cannot be settled stays as it is.
            applier.end(done)?;
        }
        self.settle_names(transaction, covered, job)?;
        match self.settle_places(transaction, covered, job)? {
            true => self.settle_names(transaction, covered, job),
            false => Ok(()),
        }
    }

    /// Puts the entries that stand elsewhere than their versions say where these say. Who goes may free the way of another, so a loop is
    /// opened only when nobody else can go. Answers whether there were any.
    fn settle_places<T: Snapshot>(
        &mut self,
        transaction: &T,
        covered: &[Csn],
        job: &ReplicatedJob,
    ) -> Result<bool, Fault> {
        let mut waiting = state::pending_places(&Layered::new(transaction, &self.set))?;
        let has_any = !waiting.is_empty();
        let (mut opens, mut rounds) = (false, 0_usize);
        while !waiting.is_empty() {
            rounds += 1;
            let before = waiting.len();
            let mut blocked = Vec::new();
            for (id, pending) in waiting {
                let mut applier = Applier::new(self, transaction, covered, job);
                let settled = applier.settle_place(id, &pending, opens);
                if matches!(settled, Ok(false)) {
                    blocked.push((id, pending));
                }
                applier.end(settled.map(|_| ApplyOutcome::Done))?;
                opens &= rounds > SETTLE_ROUNDS;
            }
            opens = blocked.len() == before || rounds >= SETTLE_ROUNDS;
            waiting = blocked;
        }
        Ok(has_any)
    }

    fn settle_names<T: Snapshot>(
        &mut self,
        transaction: &T,
        covered: &[Csn],
        job: &ReplicatedJob,
    ) -> Result<(), Fault> {
        for (id, name) in state::displaced(&Layered::new(transaction, &self.set))? {
            let mut applier = Applier::new(self, transaction, covered, job);
            let done = applier.settle_name(id, &name).map(|()| ApplyOutcome::Done);
            applier.end(done)?;
        }
        Ok(())
    }
}

/// One change while it is carried out.
pub(super) struct Applier<'x, 'g, S: Store, T> {
    pub(super) group: &'x mut Group<'g, S>,
    transaction: &'x T,
    /// The contextCSN as the batch found it.
    pub(super) covered: &'x [Csn],
    pub(super) rules: &'x ReplicaRules,
    /// The highest CSN that the batch stands for: of a delete that came without one.
    pub(super) newest: Option<Csn>,
    unit: WriteSet,
    pub(super) stamp: Stamp,
    steps: usize,
    /// The last record of the log, and the bytes of all, before it.
    logged_before: (u64, u64),
}

impl<'x, 'g, S: Store, T: Snapshot> Applier<'x, 'g, S, T> {
    fn new(
        group: &'x mut Group<'g, S>,
        transaction: &'x T,
        covered: &'x [Csn],
        job: &'x ReplicatedJob,
    ) -> Self {
        let newest = job.context_csns.iter().max().copied();
        let csn = newest.unwrap_or(Csn::ZERO);
        let stamp = Stamp { csn, name: String::new() };
        let logged_before = (group.counters.last_log_sequence, group.counters.logged_bytes);
        Self {
            group,
            logged_before,
            transaction,
            covered,
            rules: &job.rules,
            newest,
            unit: WriteSet::new(),
            stamp,
            steps: 0,
        }
    }

    /// Keeps what was written, or nothing.
    fn end(mut self, done: Result<ApplyOutcome, Failure>) -> Result<ApplyOutcome, Fault> {
        let done = done.and_then(|applied| {
            self.group.follow_links(self.transaction, &mut self.unit, Some(self.stamp.csn))?;
            self.group.check_values(&self.unit)?;
            Ok(applied)
        });
        match done {
            Ok(applied) => {
                self.group.set.merge(self.unit);
                Ok(applied)
            }
            Err(failure) => {
                tree::forget(self.group.instance);
                // Nothing of it is in the log, whose sequences have no gaps.
                let counters = &mut self.group.counters;
                (counters.last_log_sequence, counters.logged_bytes) = self.logged_before;
                match failure {
                    Failure::Refused(result) => Ok(ApplyOutcome::Refused(result)),
                    Failure::Storage(fault) => Err(fault),
                }
            }
        }
    }

    /// Runs one step on a view of what came before it.
    pub(super) fn step<R>(
        &mut self,
        step: impl FnOnce(&mut Operator<'_, Layered<'_, Layered<'_, T>>>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            let text = format!("a replicated change asks for more than {STEPS_MAX} others");
            return Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text).into());
        }
        let group = &mut *self.group;
        let context = WriteContext::of(&group.state, &group.known, group.environment);
        let before = Layered::new(self.transaction, &group.set);
        let view = Layered::new(&before, &self.unit);
        let (subject, controls) = (Subject::default(), RequestControls::default());
        let now = group.environment.clock.now();
        let envelope = Envelope::internal(&subject, "", &controls, now);
        let mut operator = Operator {
            context: &context,
            view: crate::View::over_changes(&view, group.instance, group.catalog.state(&group.state))?,
            instance: group.instance,
            catalog: &mut group.catalog,
            counters: &mut group.counters,
            envelope,
            stamp: self.stamp.clone(),
            set: WriteSet::new(),
            controls: Vec::new(),
            continues: !self.unit.is_empty(),
            old: Vec::new(),
        };
        let result = step(&mut operator)?;
        let set = operator.set;
        if self.unit.is_empty() {
            self.unit = set;
        } else {
            self.unit.merge(set);
        }
        Ok(result)
    }

    /// An entry that came without a CSN, under the next one of this server.
    fn stamped(&mut self, put: &Put) -> Result<Put, Failure> {
        let csn = self.own_stamp().csn;
        let entry_csn = self.known().entry_csn;
        let stamp = AttributeValues {
            description: AttributeDescription::plain(entry_csn).to_text(self.schema()),
            values: vec![csn.text().into_bytes()],
        };
        let stamp = check_change(self.schema(), ChangeKind::Add, stamp)?;
        let mut put = Put { csn: Some(csn), named: Some(csn), ..put.clone() };
        put.attributes.retain(|change| change.description.attribute != entry_csn);
        put.attributes.push(Change { access: RequiredAccess::Internal, ..stamp });
        Ok(put)
    }

    /// The next CSN of this server, for what it does on its own.
    pub(super) fn own_stamp(&mut self) -> Stamp {
        let csn = self.group.environment.order.next_csn(self.group.environment.clock.now());
        self.group.counters.csn = Some(csn);
        Stamp { csn, name: self.stamp.name.clone() }
    }

    pub(super) fn follow(&self, csn: &Csn) {
        self.group.follow(csn);
    }

    pub(super) fn known(&self) -> &KnownSchema {
        &self.group.known
    }

    /// Whether conflicts are settled value by value here.
    pub(super) fn settles_values(&self) -> bool {
        self.group.state.settings.value_conflicts
    }

    /// Whether records of access logs are merged by the states of entries.
    pub(super) fn merges_records(&self) -> bool {
        let settings = &self.group.state.settings;
        settings.merges_records && !settings.value_conflicts
    }

    pub(super) fn schema(&self) -> &larix_schema::Schema {
        &self.group.state.schema
    }

    pub(super) fn is_covered(&self, csn: &Csn) -> bool {
        self.covered.iter().any(|known| known.server_id == csn.server_id && csn <= known)
    }

    /// Writes a note into the conflict log.
    pub(super) fn note(&mut self, note: ConflictNote) -> Result<ApplyOutcome, Failure> {
        let written = note.clone();
        self.step(|op| {
            let (snapshot, now) = (op.snapshot(), op.envelope.now);
            Ok(conflicts::append(snapshot, &mut op.set, now, &written)?)
        })?;
        Ok(ApplyOutcome::Conflict(Box::new(note)))
    }
}
