//! What becomes of a replicated change: decided on the writer's thread, on a view of everything before it.

use std::sync::{Arc, Mutex, PoisonError};

use larix_proto::{LdapResult, ResultCode};
use larix_schema::NormalDn;
use larix_store::{Overlay, Snapshot, Store, WriteSet};
use uuid::Uuid;

use super::prepare::{Put, Ready};
use super::steps::{self, Here, Place};
use super::{Applied, ConflictKind, ConflictNote, KeptSide, ReplicaRules, conflicts, state};
use crate::access::Subject;
use crate::controls::RequestControls;
use crate::csn::Csn;
use crate::entry::EntryId;
use crate::fault::Fault;
use crate::log::LoggedChange;
use crate::tables::{META, meta};
use crate::write::AttributeValues;
use crate::write::Failure;
use crate::write::KnownSchema;
use crate::write::group::Group;
use crate::write::operational::Stamp;
use crate::write::operator::{Envelope, Ground, LogMark, Operator};
use crate::{log, tree};

/// Moves and merges that one change may ask for.
const STEPS_MAX: usize = 100_000;

/// A batch that is ready for the writer.
#[derive(Debug, Default)]
pub(crate) struct ReplicatedJob {
    pub(crate) changes: Vec<Ready>,
    pub(crate) context_csns: Vec<Csn>,
    pub(crate) rules: ReplicaRules,
    /// What became of each change, for whoever waits.
    pub(crate) applied: Arc<Mutex<Vec<Applied>>>,
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
        let covered = log::context_csns(&Overlay::new(transaction, &self.set))?;
        let mut applied = Vec::with_capacity(job.changes.len());
        for ready in &job.changes {
            let done = match ready {
                Ready::Refused(result) => Applied::Refused(result.clone()),
                ready => self.replicated(transaction, &covered, job, ready)?,
            };
            applied.push(done);
        }
        if covered.is_empty() && !job.changes.is_empty() {
            self.set.put(META, meta::UNPROVED, []);
        }
        let refused = applied.iter().any(|applied| matches!(applied, Applied::Refused(_)));
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
        if covered.is_empty() {
            self.set.delete(META, meta::UNPROVED);
        }
        for csn in &job.context_csns {
            let known = covered.iter().find(|known| known.server_id == csn.server_id);
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
    ) -> Result<Applied, Fault> {
        let mut applier = Applier::new(self, transaction, covered, job);
        let done = match ready {
            Ready::Put(put) => applier.put_at_place(put),
            Ready::Delete { uuid, csn } => applier.delete(uuid, *csn),
            Ready::Delta(delta) => applier.delta(delta),
            Ready::Refused(result) => Ok(Applied::Refused(result.clone())),
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
        for (id, is_told) in state::new_glue(&Overlay::new(transaction, &self.set))? {
            let mut applier = Applier::new(self, transaction, covered, job);
            let done = applier.settle(id, is_told).map(|()| Applied::Done);
            // What cannot be settled stays as it is.
            applier.end(done)?;
        }
        self.settle_names(transaction, covered, job)?;
        let wanted = state::all_wanted(&Overlay::new(transaction, &self.set))?;
        for (id, wanted) in &wanted {
            let mut applier = Applier::new(self, transaction, covered, job);
            let done = applier.settle_place(*id, wanted).map(|()| Applied::Done);
            applier.end(done)?;
        }
        if wanted.is_empty() { Ok(()) } else { self.settle_names(transaction, covered, job) }
    }

    fn settle_names<T: Snapshot>(
        &mut self,
        transaction: &T,
        covered: &[Csn],
        job: &ReplicatedJob,
    ) -> Result<(), Fault> {
        for (id, name) in state::displaced(&Overlay::new(transaction, &self.set))? {
            let mut applier = Applier::new(self, transaction, covered, job);
            let done = applier.settle_name(id, &name).map(|()| Applied::Done);
            applier.end(done)?;
        }
        Ok(())
    }
}

/// One change while it is carried out.
pub(super) struct Applier<'x, 'g, S: Store, T> {
    group: &'x mut Group<'g, S>,
    transaction: &'x T,
    /// The contextCSN as the batch found it.
    pub(super) covered: &'x [Csn],
    pub(super) rules: &'x ReplicaRules,
    /// The highest CSN that the batch stands for: of a delete that came without one.
    newest: Option<Csn>,
    unit: WriteSet,
    pub(super) stamp: Stamp,
    steps: usize,
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
        Self {
            group,
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
    fn end(mut self, done: Result<Applied, Failure>) -> Result<Applied, Fault> {
        match done {
            Ok(applied) => {
                self.group.follow_memberships(self.transaction, &mut self.unit, Some(self.stamp.csn))?;
                self.group.set.merge(self.unit);
                Ok(applied)
            }
            Err(failure) => {
                tree::forget(self.group.instance);
                match failure {
                    Failure::Refused(result) => Ok(Applied::Refused(result)),
                    Failure::Storage(fault) => Err(fault),
                }
            }
        }
    }

    /// Runs one step on a view of what came before it.
    pub(super) fn step<R>(
        &mut self,
        step: impl FnOnce(&mut Operator<'_, Overlay<'_, Overlay<'_, T>>>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            let text = format!("a replicated change asks for more than {STEPS_MAX} others");
            return Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text).into());
        }
        let group = &mut *self.group;
        let ground = Ground::of(&group.state, &group.known, &group.policy, group.environment);
        let before = Overlay::new(self.transaction, &group.set);
        let view = Overlay::new(&before, &self.unit);
        let (subject, controls) = (Subject::default(), RequestControls::default());
        let now = group.environment.clock.now();
        let envelope = Envelope { subject: &subject, target: "", controls: &controls, now, derived: false };
        let mut operator = Operator {
            ground: &ground,
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

    pub(super) fn schema(&self) -> &larix_schema::Schema {
        &self.group.state.schema
    }

    pub(super) fn is_covered(&self, csn: &Csn) -> bool {
        self.covered.iter().any(|known| known.server_id == csn.server_id && csn <= known)
    }

    /// Writes a note into the conflict log.
    pub(super) fn note(&mut self, note: ConflictNote) -> Result<Applied, Failure> {
        let written = note.clone();
        self.step(|op| {
            let (snapshot, now) = (op.snapshot(), op.envelope.now);
            Ok(conflicts::append(snapshot, &mut op.set, now, &written)?)
        })?;
        Ok(Applied::Conflict(Box::new(note)))
    }

    pub(super) fn put_by_name(&mut self, put: &Put) -> Result<Applied, Failure> {
        if let Some(csn) = &put.csn {
            self.group.follow(csn);
        }
        self.stamp = Stamp { csn: put.csn.unwrap_or(self.stamp.csn), name: put.modifier.clone() };
        let look = self.step(|op| {
            let id = steps::find(op, &put.uuid)?;
            let here = id.map(|id| steps::here(op, id)).transpose()?;
            let absent = here.is_none();
            let dead = if absent { state::tombstone(op.snapshot(), &put.uuid)? } else { None };
            Ok((here, dead))
        })?;
        let (here, dead) = look;
        let version = self.state_of_put(put)?;
        if let Some(dead) = dead {
            let newer = put.csn.is_none_or(|csn| csn > dead.csn);
            let stays_dead = self.rules.multi_provider && !(newer && self.born_after(put, &dead.csn));
            if stays_dead && put.csn.is_some_and(|csn| !self.is_covered(&csn)) {
                // Whoever has the entry still may never hear of the delete: a present phase deletes nothing that the provider
                // has not seen as it is, and its cookie covers the delete.
                self.stamp = self.own_stamp();
                self.bury_absent(&put.uuid)?;
            }
            if !newer {
                return Ok(Applied::Older);
            }
            if stays_dead {
                let note = lost_put(ConflictKind::Delete, put, (put.uuid, Some(dead.csn)), self.shown(put));
                return self.note(note);
            }
            self.step(|op| {
                state::unbury(&mut op.set, &put.uuid);
                Ok(())
            })?;
        }
        match (here, version) {
            (Some(here), None) => self.put_here(put, here),
            (Some(here), Some(version)) => self.put_version(put, version, here),
            (None, None) => {
                let is_covered = put.csn.is_some_and(|csn| self.is_covered(&csn));
                if self.rules.drop_covered && is_covered { Ok(Applied::Older) } else { self.put_new(put) }
            }
            (None, Some(version)) => match self.rules.drop_covered && self.is_all_covered(&version) {
                true => Ok(Applied::Older),
                false => self.put_new_version(put, &version),
            },
        }
    }

    /// Whether the entry was created after the delete: another life under the same entryUUID.
    fn born_after(&self, put: &Put, delete: &Csn) -> bool {
        let id = self.group.known.create_timestamp;
        let created = super::prepare::first_value(&put.attributes, id);
        let created = created.and_then(crate::time::Timestamp::parse_generalized);
        created.is_some_and(|created| created.seconds() > delete.time.seconds())
    }

    fn shown(&self, put: &Put) -> Vec<AttributeValues> {
        let schema = &self.group.state.schema;
        conflicts::cut(put.attributes.iter().map(|change| AttributeValues {
            description: change.description.to_text(schema),
            values: change.values.clone(),
        }))
    }

    pub(super) fn put_new(&mut self, put: &Put) -> Result<Applied, Failure> {
        let (place, occupant) = self.make_place((&put.dn, &put.shown), put.place.is_some())?;
        let rules = self.rules;
        let Some(occupant) = occupant else {
            self.step(|op| steps::add(op, put, rules, &place, None))?;
            return Ok(Applied::Done);
        };
        if occupant.glue {
            self.fill_glue(occupant.id, put.place.is_some(), |applier| {
                applier.step(|op| steps::add(op, put, rules, &place, Some(occupant.id)))
            })?;
            return Ok(Applied::Done);
        }
        if wins((put.named, put.uuid), (occupant.named, occupant.uuid)) {
            let note = self.set_aside(&occupant, (put.uuid, put.csn))?;
            let glue = self.step(|op| Ok(steps::occupant(op, &place)?))?;
            self.step(|op| steps::add(op, put, rules, &place, glue))?;
            return Ok(note);
        }
        let aside = steps::own_place(self.schema(), place.parent, &put.uuid);
        self.step(|op| {
            let glue = steps::occupant(op, &aside)?;
            let id = steps::add(op, put, rules, &aside, glue)?;
            state::displace(&mut op.set, id, &put.dn);
            Ok(())
        })?;
        let lost = self.shown(put);
        self.note(lost_put(ConflictKind::Name, put, (occupant.uuid, occupant.csn), lost))
    }

    /// The place of a name, with glue for superiors that are missing, and who stands there.
    pub(super) fn make_place(
        &mut self,
        (dn, shown): (&NormalDn, &str),
        is_told: bool,
    ) -> Result<(Place, Option<Here>), Failure> {
        for _ in 0..2 {
            let found = self.step(|op| {
                if op.view.settings.suffixes.iter().all(|suffix| !dn.is_within(&suffix.normal)) {
                    let text = format!("\"{shown}\" is not within the database");
                    return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
                }
                let Some(place) = steps::place_of(op, dn, shown)? else { return Ok(None) };
                let occupant = steps::occupant(op, &place)?;
                let occupant = occupant.map(|id| steps::here(op, id)).transpose()?;
                Ok(Some((place, occupant)))
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
            self.step(|op| {
                let superior = dn.parent().unwrap_or_else(NormalDn::root);
                let (_, shown) = crate::write::add::split_rdn(shown);
                steps::add_glue(op, &superior, shown, is_told)
            })?;
        }
        Err(Fault::Damaged { what: "the superiors of a replicated entry" }.into())
    }

    /// An entry whose name another one gets goes under a name of its own beside it. What is below it goes with it where
    /// superiors are told by their entryUUIDs; otherwise it stays.
    pub(super) fn set_aside(
        &mut self,
        loser: &Here,
        (winner, csn): (Uuid, Option<Csn>),
    ) -> Result<Applied, Failure> {
        self.set_aside_below(loser, loser.parent, &loser.dn, (winner, csn))
    }

    fn set_aside_below(
        &mut self,
        loser: &Here,
        parent: EntryId,
        name: &NormalDn,
        (winner_uuid, winner_csn): (Uuid, Option<Csn>),
    ) -> Result<Applied, Failure> {
        let with_subordinates = self.rules.places;
        let aside = self.own_place(loser, parent)?;
        let (dn, lost) = self.step(|op| {
            let lost = steps::values_of(op, loser.id)?;
            steps::set_aside(op, loser, &aside, with_subordinates)?;
            state::displace(&mut op.set, loser.id, name);
            Ok(lost)
        })?;
        self.note(ConflictNote {
            kind: ConflictKind::Name,
            kept: KeptSide::Theirs,
            dn,
            winner_uuid,
            winner_csn,
            loser_uuid: loser.uuid,
            loser_csn: loser.csn,
            lost,
        })
    }

    fn put_here(&mut self, put: &Put, here: Here) -> Result<Applied, Failure> {
        if let (Some(theirs), Some(ours)) = (put.csn, here.csn)
            && theirs <= ours
        {
            let went_back = theirs < ours && self.lost_by_provider(&ours);
            if !went_back && (theirs == ours || self.is_covered(&theirs)) {
                return Ok(Applied::Older);
            }
            let lost = self.step(|op| {
                let held = op.hold(here.id)?;
                let changes = super::difference::changes(op, &held, &put.attributes, &self_share(op))?;
                Ok(changes)
            })?;
            let (csn, entry_csn) = (self.group.known.entry_csn, self.group.known.modify_timestamp);
            let modifier = self.group.known.modifiers_name;
            let own = [csn, entry_csn, modifier];
            let schema = Arc::clone(&self.group.state.schema);
            let lost = conflicts::cut(
                lost.iter().filter(|change| !own.contains(&change.description.attribute)).map(|change| {
                    AttributeValues {
                        description: change.description.to_text(&schema),
                        values: change.values.clone(),
                    }
                }),
            );
            if went_back {
                self.stamp = self.own_stamp();
                self.step(|op| steps::keep_content(op, here.id))?;
            }
            self.keep_name_known(put, &here)?;
            if lost.is_empty() {
                return Ok(Applied::Older);
            }
            return self.note(lost_put(ConflictKind::Modify, put, (here.uuid, here.csn), lost));
        }
        self.put_named(put, here)
    }

    /// Whether this change was made by the provider, which had told of it before.
    fn lost_by_provider(&self, csn: &Csn) -> bool {
        let told = self.rules.provider.filter(|told| told.server_id == csn.server_id);
        self.rules.multi_provider && told.is_some_and(|told| *csn <= told)
    }

    /// Another name of the entry than the one that it has here: entries may come that know it by that.
    pub(super) fn keep_name_known(&mut self, put: &Put, here: &Here) -> Result<(), Failure> {
        if here.dn == put.dn {
            return Ok(());
        }
        self.step(|op| {
            op.left(&put.dn, &put.uuid);
            match op.resolve(&put.dn)?.id {
                Some(id) if steps::here(op, id)?.glue => {
                    state::note_glue(&mut op.set, id, put.place.is_some());
                }
                _ => {}
            }
            Ok(())
        })
    }

    /// Makes the entry what comes, name included.
    pub(super) fn put_named(&mut self, put: &Put, here: Here) -> Result<Applied, Failure> {
        let same_name = self.step(|op| {
            let shown = op.view.dn(&op.hold(here.id)?.view()?)?;
            Ok(here.dn == put.dn
                && crate::write::add::split_rdn(&shown).0 == crate::write::add::split_rdn(&put.shown).0)
        })?;
        if same_name {
            return self.put_in_place(put, &here);
        }
        self.put_elsewhere(put, here)
    }

    /// The entry is here under another name.
    pub(super) fn put_elsewhere(&mut self, put: &Put, here: Here) -> Result<Applied, Failure> {
        let is_suffix = self.step(|op| Ok(op.is_suffix(&put.dn) || op.is_suffix(&here.dn)))?;
        if is_suffix && put.dn != here.dn {
            let text = format!("\"{}\": a suffix cannot be renamed", put.shown);
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text).into());
        }
        let moved = self.was_moved_below(put, &here)?;
        if moved {
            return self.stay(put, &here);
        }
        let (place, occupant) = self.make_place((&put.dn, &put.shown), put.place.is_some())?;
        let is_loop = self.step(|op| Ok(steps::is_within(op, place.parent, here.id)?))?;
        if is_loop {
            return self.stay(put, &here);
        }
        let occupant = occupant.filter(|occupant| occupant.id != here.id);
        let mut applied = Applied::Done;
        if let Some(occupant) = occupant {
            if !occupant.glue && !wins((put.named, put.uuid), (occupant.named, occupant.uuid)) {
                return self.lose_name(put, &here, &place, &occupant);
            }
            if !occupant.glue {
                applied = self.set_aside(&occupant, (put.uuid, put.csn))?;
            }
            let glue = self.step(|op| Ok(steps::occupant(op, &place)?))?;
            if let Some(glue) = glue {
                let is_told = put.place.is_some();
                self.fill_glue(glue, is_told, |applier| applier.through_glue(&here, &place, glue))?;
            }
        }
        self.relocate(put, &here, &place)?;
        Ok(applied)
    }

    /// All of a put but its name, which would make a loop.
    fn stay(&mut self, put: &Put, here: &Here) -> Result<Applied, Failure> {
        let shown = self.step(|op| Ok(op.view.dn(&op.hold(here.id)?.view()?)?))?;
        let stays = Put { dn: here.dn.clone(), shown, ..put.clone() };
        self.put_in_place(&stays, here)?;
        self.note(lost_put(ConflictKind::Loop, put, (here.uuid, here.csn), Vec::new()))
    }

    pub(super) fn put_in_place(&mut self, put: &Put, here: &Here) -> Result<Applied, Failure> {
        let rules = self.rules;
        self.step(|op| steps::change(op, here.id, put, rules, None))?;
        Ok(Applied::Done)
    }

    fn relocate(&mut self, put: &Put, here: &Here, place: &Place) -> Result<(), Failure> {
        let rules = self.rules;
        let superior =
            (here.parent != place.parent).then(|| crate::write::add::split_rdn(&put.shown).1.to_owned());
        self.step(|op| steps::change(op, here.id, put, rules, Some((place, superior))))?;
        self.clear_glue(here.parent)
    }

    /// The name that the entry gets is another's, which is newer.
    fn lose_name(
        &mut self,
        put: &Put,
        here: &Here,
        place: &Place,
        occupant: &Here,
    ) -> Result<Applied, Failure> {
        let lost = self.shown(put);
        let note = lost_put(ConflictKind::Name, put, (occupant.uuid, occupant.csn), lost);
        if !self.rules.places {
            // What is below it goes where it was to go.
            self.merge(here.id, occupant.id)?;
        }
        let aside = self.own_place(here, place.parent)?;
        self.relocate(put, here, &aside)?;
        self.step(|op| {
            state::displace(&mut op.set, here.id, &put.dn);
            Ok(())
        })?;
        self.note(note)
    }

    /// Gives everything below `from` to `to`. Where both have an entry of one name, the newer one stays.
    pub(super) fn merge(&mut self, from: EntryId, to: EntryId) -> Result<(), Failure> {
        let children = self.step(|op| {
            let mut children = Vec::new();
            tree::visit_children(op.snapshot(), from, |id| {
                children.push(id);
                true
            })?;
            Ok(children)
        })?;
        for child in children {
            let (mine, other) = self.step(|op| {
                let mine = steps::here(op, child)?;
                if steps::is_within(op, to, child)? {
                    // It cannot go below itself.
                    return Ok((mine, None));
                }
                let held = op.hold(child)?;
                let other = tree::child(op.snapshot(), to, held.view()?.normal_rdn())?;
                let other = other.map(|id| steps::here(op, id)).transpose()?;
                Ok((mine, other))
            })?;
            match other {
                None => self.step(|op| match steps::is_within(op, to, child)? {
                    true => Ok(()),
                    false => steps::hand_over(op, child, to),
                })?,
                Some(other) if mine.glue => {
                    self.merge(child, other.id)?;
                    self.drop_glue(child)?;
                }
                Some(other) => self.merge_named(&mine, other, to)?,
            }
        }
        Ok(())
    }

    fn merge_named(&mut self, mine: &Here, other: Here, to: EntryId) -> Result<(), Failure> {
        if !other.glue && !wins((mine.named, mine.uuid), (other.named, other.uuid)) {
            self.merge(mine.id, other.id)?;
            self.set_aside_below(mine, to, &other.dn, (other.uuid, other.csn))?;
            return Ok(());
        }
        if !other.glue {
            self.set_aside(&other, (mine.uuid, mine.csn))?;
        }
        let glue = self.step(|op| {
            let held = op.hold(mine.id)?;
            Ok(tree::child(op.snapshot(), to, held.view()?.normal_rdn())?)
        })?;
        if let Some(glue) = glue {
            self.merge(glue, mine.id)?;
            self.drop_glue(glue)?;
        }
        self.step(|op| match steps::is_free(op, mine.id, to)? {
            true => steps::hand_over(op, mine.id, to),
            false => Ok(()),
        })
    }

    /// Removes glue unless something is below it still.
    pub(super) fn drop_glue(&mut self, id: EntryId) -> Result<(), Failure> {
        self.step(|op| match tree::has_children(op.snapshot(), id)? {
            true => Ok(()),
            false => steps::remove_glue(op, id),
        })
    }

    /// Removes glue that has nothing below it any more, and so on upwards.
    pub(super) fn clear_glue(&mut self, from: EntryId) -> Result<(), Failure> {
        let mut at = from;
        while at != EntryId::ROOT {
            let next = self.step(|op| {
                let Some(stored) = op.view.stored(at)? else { return Ok(EntryId::ROOT) };
                drop(stored);
                let here = steps::here(op, at)?;
                if !here.glue || tree::has_children(op.snapshot(), at)? {
                    return Ok(EntryId::ROOT);
                }
                steps::remove_glue(op, at)?;
                Ok(here.parent)
            })?;
            at = next;
        }
        Ok(())
    }

    /// An entry that was set aside: it gets its name if that is free again, otherwise it stays where it is. A server that
    /// takes changes says so to all.
    fn settle_name(&mut self, id: EntryId, name: &NormalDn) -> Result<(), Failure> {
        let own = self.rules.multi_provider;
        let back = self.step(|op| {
            if op.view.stored(id)?.is_none() {
                state::forget_displaced(&mut op.set, id);
                return Ok(None);
            }
            let held = op.hold(id)?;
            let view = held.view()?;
            let here = steps::here(op, id)?;
            let aside = steps::own_place(op.schema(), view.parent(), &here.uuid);
            if view.normal_rdn() != aside.normal_rdn.as_bytes() {
                state::forget_displaced(&mut op.set, id);
                return Ok(None);
            }
            let free = op.resolve(name)?;
            if free.id.is_none() && free.missing == 1 && free.nearest == view.parent() {
                state::forget_displaced(&mut op.set, id);
                return Ok(Some((true, steps::named(op, &here, name)?)));
            }
            if own {
                state::forget_displaced(&mut op.set, id);
            }
            Ok(Some((false, aside)))
        })?;
        match back {
            Some((true, place)) => self.step(|op| steps::move_to(op, id, &place))?,
            Some((false, _)) if own => {}
            _ => return Ok(()),
        }
        if own {
            // Somebody may have asked meanwhile and know it by either name.
            self.stamp = self.own_stamp();
            self.step(|op| steps::keep_name(op, id))?;
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, uuid: &Uuid, csn: Option<Csn>) -> Result<Applied, Failure> {
        if let Some(csn) = &csn {
            self.group.follow(csn);
        }
        let (here, dead) = self.step(|op| {
            let here = steps::find(op, uuid)?.map(|id| steps::here(op, id)).transpose()?;
            let dead = state::tombstone(op.snapshot(), uuid)?;
            Ok((here, dead))
        })?;
        let Some(here) = here else {
            let stamp = match csn.or(self.newest) {
                Some(csn) if dead.is_none_or(|dead| dead.csn < csn) => Stamp { csn, name: String::new() },
                // Nobody said when: it is told on as of now.
                None if dead.is_none() && self.rules.multi_provider => self.own_stamp(),
                _ => return Ok(Applied::Older),
            };
            self.stamp = stamp;
            self.bury_absent(uuid)?;
            return Ok(Applied::Done);
        };
        let csn = csn.or(self.newest).or(here.csn).unwrap_or(Csn::ZERO);
        self.stamp = Stamp { csn, name: String::new() };
        self.delete_here(here, csn)
    }

    /// Logs the delete of an entry that is not here, and remembers it.
    fn bury_absent(&mut self, uuid: &Uuid) -> Result<(), Failure> {
        self.step(|op| {
            let mark = LogMark { local: false, absent: true };
            // An id that no entry has: who reads the log tells entries by their ids.
            let nowhere = (op.next_entry_id(), EntryId::ROOT);
            op.log_marked(nowhere, *uuid, "", mark, |_| LoggedChange::Delete);
            op.bury(uuid);
            Ok(())
        })
    }

    fn delete_here(&mut self, here: Here, csn: Csn) -> Result<Applied, Failure> {
        let newer = here.csn.filter(|ours| *ours > csn);
        if newer.is_some() && (!self.rules.multi_provider && self.is_covered(&csn)) {
            return Ok(Applied::Older);
        }
        let born = self.step(|op| {
            let held = op.hold(here.id)?;
            steps::value_of(op, &held, op.ground.known.create_timestamp).map_err(Failure::from)
        })?;
        let born =
            born.and_then(|text| crate::time::Timestamp::parse_generalized(std::str::from_utf8(&text).ok()?));
        if newer.is_some() && born.is_some_and(|born| born.seconds() > csn.time.seconds()) {
            return Ok(Applied::Older);
        }
        let mut applied = Applied::Done;
        if newer.is_some() && !self.is_covered(&csn) {
            let (dn, lost) = self.step(|op| steps::values_of(op, here.id))?;
            applied = self.note(ConflictNote {
                kind: ConflictKind::Delete,
                kept: KeptSide::Theirs,
                dn,
                winner_uuid: here.uuid,
                winner_csn: Some(csn),
                loser_uuid: here.uuid,
                loser_csn: here.csn,
                lost,
            })?;
        }
        let left = self.step(|op| steps::hollow(op, here.id, true))?;
        if !left {
            self.clear_glue(here.parent)?;
        }
        Ok(applied)
    }
}

/// The share of a comparison that is only for a note: everything.
fn self_share<V: Snapshot>(_: &Operator<'_, V>) -> super::AttributeShare {
    super::AttributeShare::default()
}

/// Of two entries of one name, or two versions: the newer one stays. Of equals the one with the higher entryUUID, so that
/// every server decides alike.
pub(super) fn wins(first: (Option<Csn>, Uuid), second: (Option<Csn>, Uuid)) -> bool {
    first > second
}

fn lost_put(
    kind: ConflictKind,
    put: &Put,
    (winner_uuid, winner_csn): (Uuid, Option<Csn>),
    lost: Vec<AttributeValues>,
) -> ConflictNote {
    ConflictNote {
        kind,
        kept: KeptSide::Ours,
        dn: put.shown.clone(),
        winner_uuid,
        winner_csn,
        loser_uuid: put.uuid,
        loser_csn: put.csn,
        lost,
    }
}
