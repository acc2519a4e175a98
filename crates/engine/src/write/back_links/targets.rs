//! Targets are changed as the links to them say.

use larix_schema::AttributeDescription;
use larix_store::{Layered, Snapshot, Store, WriteSet};

use super::Edits;
use crate::access::Subject;
use crate::change::prepare::Change;
use crate::controls::RequestControls;
use crate::csn::Csn;
use crate::entry::{Entry, EntryId};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::log::LoggedChange;
use crate::write::group::Group;
use crate::write::operational::Stamp;
use crate::write::operator::{Envelope, Operator, StoredSets, WriteContext, logged};
use crate::write::{change, modify};

impl<S: Store> Group<'_, S> {
    /// Carries out changes of targets.
    pub(in crate::write) fn edit_targets<T: Snapshot>(
        &mut self,
        transaction: &T,
        unit: &mut WriteSet,
        edits: Edits,
        csn: Option<Csn>,
    ) -> Result<(), Fault> {
        if edits.is_empty() {
            return Ok(());
        }
        let now = self.environment.clock.now();
        let csn = csn.unwrap_or_else(|| self.environment.order.next_csn(now));
        let context = WriteContext::of(&self.state, &self.known, self.environment);
        let before = Layered::new(transaction, &self.set);
        let view = Layered::new(&before, &*unit);
        let (subject, controls) = (Subject::default(), RequestControls::default());
        let envelope = Envelope { derived: true, ..Envelope::internal(&subject, "", &controls, now) };
        let mut operator = Operator {
            context: &context,
            view: self.view(&view)?,
            instance: self.instance,
            catalog: &mut self.catalog,
            counters: &mut self.counters,
            envelope,
            stamp: Stamp::new(csn, &self.state.settings.root_dn_text),
            set: WriteSet::new(),
            controls: Vec::new(),
            continues: !unit.is_empty(),
            old: Vec::new(),
        };
        // Each changes another entry, so that none has to see the ones before it.
        for (id, changes) in edits {
            match edit_target(&mut operator, id, &changes) {
                Err(Failure::Storage(fault)) => return Err(fault),
                // What cannot be changed stays as it is.
                Err(Failure::Refused(_)) | Ok(()) => {}
            }
        }
        let effects = operator.finish();
        unit.merge(effects.set);
        Ok(())
    }
}

/// Changes one target, without a look at the schema: whatever class it is of, it may have back links.
fn edit_target<V: Snapshot>(
    operator: &mut Operator<'_, V>,
    id: EntryId,
    changes: &[Change],
) -> Result<(), Failure> {
    let current = operator.current_entry(id)?;
    let pretty_dn = operator.view.dn(&current.view()?)?;
    let reader = operator.reader(&current)?;
    let mut entry = reader.owned_in_part(pretty_dn, |description| {
        changes.iter().any(|change| change.description == *description)
    })?;
    let sets = StoredSets::new(reader);
    let places = positions(&entry, changes);
    for change in changes {
        change::apply(operator.schema(), &mut entry, change, true, &sets)?;
    }
    put_back(&mut entry, places);
    modify::store(operator, &current, &entry)?;
    let uuid = operator.entry_uuid(&current)?;
    let changes: Vec<&Change> = changes.iter().collect();
    operator
        .log((id, EntryId::ROOT), uuid, &entry.dn, |schema| LoggedChange::Modify(logged(schema, &changes)));
    Ok(())
}

/// Where the attributes that are to change stand, first ones first.
fn positions<'c>(entry: &Entry, changes: &'c [Change]) -> Vec<(usize, &'c AttributeDescription)> {
    let place = |change: &'c Change| {
        let of = &change.description;
        Some((entry.attributes.iter().position(|attribute| attribute.description == *of)?, of))
    };
    let mut places: Vec<_> = changes.iter().filter_map(place).collect();
    places.sort_unstable_by_key(|(at, _)| *at);
    places.dedup_by_key(|(at, _)| *at);
    places
}

/// Has attributes stand where they stood: one whose last value goes before the next one comes is at the end otherwise, though to a
/// client nothing was replaced.
fn put_back(entry: &mut Entry, places: Vec<(usize, &AttributeDescription)>) {
    let mut gone = 0;
    for (place, description) in places {
        match entry.remove(description) {
            Some(attribute) => entry.attributes.insert(place - gone, attribute),
            None => gone += 1,
        }
    }
}
