//! Entries that the server writes into the database of an access log, and those that it removes there.
//!
//! They come whole, with the change sequence numbers of what they tell of; no access rule, schema rule or overlay has a
//! say. What is recorded and how far it was derived from other databases' change logs is one commit.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn};
use larix_store::{Layered, Snapshot, Store, WriteSet};

use super::add;
use super::change;
use super::delete;
use super::group::Group;
use super::modify;
use super::operational::{self, Stamp};
use super::operator::{Envelope, Operator, StoredSets, WriteContext, logged};
use super::task::Task;
use crate::change::prepare::{Change, ChangeKind, internal_change};
use crate::change::{NewRecord, Recording};
use crate::csn::Csn;
use crate::entry::{Entry, EntryId};
use crate::failure::Failure;
use crate::index::pending::Writing;
use crate::log::{self, LoggedChange};
use crate::tables::{META, meta};
use crate::time::{Timestamp, new_uuid};

/// What is done in one step.
enum Step<'r> {
    Container(&'r Entry),
    Record(&'r NewRecord),
    Remove(EntryId),
    MinCsns(&'r [Csn]),
}

impl<S: Store> Group<'_, S> {
    /// Adds what a recording says to the unit.
    pub(super) fn record<T: Snapshot>(
        &mut self,
        transaction: &T,
        unit: &mut WriteSet,
        task: &Task,
        recording: &Recording,
    ) -> Result<(), Failure> {
        self.check_expected(transaction, unit, recording)?;
        let server_id = self.environment.order.server_id();
        let own = |csns: &[Csn]| csns.iter().filter(|csn| csn.server_id == server_id).min().copied();
        let contexts = {
            let before = Layered::new(transaction, &self.set);
            log::context_csns(&Layered::new(&before, &*unit))?
        };
        // What is not sent moves nothing on: it goes under the last CSN that was. The first entry of all has those of what
        // is recorded from then on.
        let mut last = own(&contexts).or_else(|| own(&recording.context_csns));
        let now = self.environment.clock.now();
        let records = recording.records.iter().map(|record| (Step::Record(record), record.csn));
        let steps = recording
            .container
            .iter()
            .map(|entry| (Step::Container(entry), None))
            .chain(records)
            .chain(recording.removed.iter().map(|id| (Step::Remove(*id), None)))
            .chain(recording.min_csns.iter().map(|csns| (Step::MinCsns(csns), None)));
        for (step, csn) in steps {
            if let Some(csn) = csn {
                self.environment.order.observe(&csn);
                if csn.server_id == server_id {
                    last = last.max(Some(csn));
                }
            }
            // One that nothing is recorded under says of no source how far it has come: no contextCSN rises to it.
            let derived = csn.is_none();
            let csn = csn.or(last).unwrap_or_else(|| self.environment.order.next_csn(now));
            self.step(transaction, unit, task, (&step, recording), (csn, derived))?;
        }
        if contexts.is_empty() {
            // Nothing that is recorded is this server's own content, which gets a contextCSN when it has none.
            unit.put(META, meta::UNPROVED, []);
        }
        self.raise_contexts(transaction, unit, recording.context_csns.iter().chain(&last))?;
        for csn in &recording.retired {
            let before = Layered::new(transaction, &self.set);
            let mut set = WriteSet::new();
            log::put_retired(&Layered::new(&before, &*unit), &mut set, csn)?;
            unit.merge(set);
        }
        recording.marks.iter().for_each(|(key, value)| unit.put(META, key, value.clone()));
        Ok(())
    }

    /// Whether the log is as it was when the recording was made.
    fn check_expected<T: Snapshot>(
        &self,
        transaction: &T,
        unit: &WriteSet,
        recording: &Recording,
    ) -> Result<(), Failure> {
        let Some((key, value)) = &recording.expected else { return Ok(()) };
        let before = Layered::new(transaction, &self.set);
        let found = Layered::new(&before, unit).get(META, key)?.map(|found| found.into_owned());
        if found == *value {
            return Ok(());
        }
        Err(LdapResult::with(ResultCode::BUSY, "another server has recorded meanwhile: nothing was recorded")
            .into())
    }

    fn raise_contexts<'c, T: Snapshot>(
        &self,
        transaction: &T,
        unit: &mut WriteSet,
        csns: impl Iterator<Item = &'c Csn>,
    ) -> Result<(), Failure> {
        let before = Layered::new(transaction, &self.set);
        let mut known = log::context_csns(&Layered::new(&before, &*unit))?;
        for csn in csns {
            if log::is_retired(&before, csn)? {
                continue;
            }
            match known.iter_mut().find(|known| known.server_id == csn.server_id) {
                Some(known) if *known >= *csn => continue,
                Some(known) => *known = *csn,
                None => known.push(*csn),
            }
            log::put_context_csn(unit, csn);
            unit.delete(META, meta::UNPROVED);
        }
        Ok(())
    }

    fn step<T: Snapshot>(
        &mut self,
        transaction: &T,
        unit: &mut WriteSet,
        task: &Task,
        (step, recording): (&Step<'_>, &Recording),
        (csn, derived): (Csn, bool),
    ) -> Result<(), Failure> {
        let context = WriteContext::of(&self.state, &self.known, self.environment);
        let before = Layered::new(transaction, &self.set);
        let view = Layered::new(&before, &*unit);
        let now = self.environment.clock.now();
        let envelope = Envelope::internal(&task.subject, &task.target, &task.controls, now);
        let envelope = Envelope { derived, ..envelope };
        let root = &context.settings.root_dn_text;
        let name = if root.is_empty() { &recording.suffix_text } else { root };
        let mut operator = Operator {
            context: &context,
            view: self.view(&view)?,
            instance: self.instance,
            catalog: &mut self.catalog,
            counters: &mut self.counters,
            envelope,
            stamp: Stamp::new(csn, name),
            set: WriteSet::new(),
            controls: Vec::new(),
            continues: false,
            old: Vec::new(),
        };
        carry_out(&mut operator, step, recording)?;
        let effects = operator.finish();
        unit.merge(effects.set);
        Ok(())
    }
}

fn carry_out<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    step: &Step<'_>,
    recording: &Recording,
) -> Result<(), Failure> {
    match step {
        Step::Container(entry) => {
            if operator.resolve(&recording.suffix)?.id.is_some() {
                return Ok(());
            }
            add::record(operator, &recording.suffix, &completed(operator, (*entry).clone()))
        }
        Step::Record(record) => {
            let (dn, entry) = named(operator, record, recording)?;
            add::record(operator, &dn, &completed(operator, entry))
        }
        Step::Remove(id) => {
            // Another change may have come first.
            if operator.view.record(*id)?.is_none() {
                return Ok(());
            }
            let current = operator.current_entry(*id)?;
            delete::remove(operator, &current, Writing::OneOfMany)
        }
        Step::MinCsns(csns) => set_min_csns(operator, &recording.suffix, csns),
    }
}

fn completed<V: Snapshot>(operator: &Operator<'_, V>, mut entry: Entry) -> Entry {
    let uuid = new_uuid(operator.envelope.now, operator.context.random);
    operational::complete_entry(operator.context.known, &mut entry, &operator.stamp, uuid);
    entry
}

/// The record under the first name that is free.
fn named<V: Snapshot>(
    operator: &Operator<'_, V>,
    record: &NewRecord,
    recording: &Recording,
) -> Result<(NormalDn, Entry), Failure> {
    let schema = operator.schema();
    let mut start = record.start;
    loop {
        let text = start.generalized_micros();
        let pretty_dn = format!("reqStart={text},{}", recording.suffix_text);
        let invalid = || crate::fault::Fault::Damaged { what: "the name of a record of the access log" };
        let dn = schema.parse_dn(&pretty_dn).map_err(|_| invalid())?;
        if operator.resolve(&dn)?.id.is_some() {
            let next = Timestamp(start.0.saturating_add(1));
            // All times behind the year 9999 have one text.
            start = if next.generalized_micros() == text { operator.envelope.now } else { next };
            continue;
        }
        let mut entry = Entry { dn: pretty_dn, attributes: record.attributes.clone() };
        if let Some(attribute) = schema.attribute_type("reqStart") {
            entry.attribute_or_insert(&AttributeDescription::plain(attribute.id)).values =
                vec![text.into_bytes()];
        }
        return Ok((dn, entry));
    }
}

fn set_min_csns<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    suffix: &NormalDn,
    csns: &[Csn],
) -> Result<(), Failure> {
    let Some(id) = operator.resolve(suffix)?.id else { return Ok(()) };
    let current = operator.current_entry(id)?;
    let values = csns.iter().map(|csn| csn.text().into_bytes()).collect();
    let change: Change = internal_change(operator.schema(), ChangeKind::Replace, "minCSN", values)?;
    let pretty_dn = operator.view.dn(&current.view()?)?;
    // The class does not allow every name that a suffix may have.
    let reader = operator.reader(&current)?;
    let mut entry = reader.owned_in_part(pretty_dn, |description| *description == change.description)?;
    change::apply(operator.schema(), &mut entry, &change, false, &StoredSets::new(reader))?;
    modify::store(operator, &current, &entry)?;
    let uuid = operator.entry_uuid(&current)?;
    operator
        .log((id, EntryId::ROOT), uuid, &entry.dn, |schema| LoggedChange::Modify(logged(schema, &[&change])));
    Ok(())
}
