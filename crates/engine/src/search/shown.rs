//! What overlays make of an entry before it is answered.

use larix_schema::{AttributeDescription, BoundAssertion, Schema};
use larix_store::Snapshot;
use smallvec::SmallVec;

use super::answer::Answer;
use super::computed::Before;
use super::entry::GuardedEntry;
use super::view_entries::ViewEntries;
use crate::access::{Privilege, Verdict};
use crate::catalog::CatalogRow;
use crate::controls::RequestControls;
use crate::database::View;
use crate::entry::ValuesView;
use crate::failure::Failure;
use crate::fault::Fault;
use crate::overlay::shown::{AttributeGate, ShownAttribute, ShownEntries, ShownEntry, ShownRequest};
use crate::time::Timestamp;

/// The overlays that look at what a search answers.
pub(super) fn by<'v, N>(
    view: &'v View<'_, N>,
    answer: &Answer,
    controls: &RequestControls,
) -> SmallVec<[&'v dyn ShownEntries; 2]> {
    if view.shown.is_empty() {
        return SmallVec::new();
    }
    let (types_only, names_none) = (answer.types_only, answer.selection.names_none());
    let request = ShownRequest { controls, types_only, names_none, compares: false };
    view.shown.iter().filter_map(|overlay| overlay.shown()).filter(|shown| shown.wants(&request)).collect()
}

/// What is answered of an entry that concerns overlays; `None`: it concerns none.
pub(super) fn altered<N: Snapshot>(
    answer: &Answer,
    seen: &GuardedEntry<'_, N>,
) -> Result<Option<Vec<ShownAttribute>>, Fault> {
    let attributes = || gathered(answer, seen);
    shown(
        seen,
        ShowOptions { types_only: answer.types_only, now: Some(answer.now), asserted: None },
        &attributes,
        &AnswerGate { answer, seen },
    )
}

/// Values that overlays add to what an attribute is compared with; `None`: the entry concerns none.
pub(crate) fn compared<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    assertion: &BoundAssertion,
) -> Result<Option<Vec<ShownAttribute>>, Fault> {
    let gate = CompareGate { schema: &seen.view.schema, description: &assertion.description };
    let options = ShowOptions { types_only: false, now: None, asserted: Some(assertion.value.key()) };
    shown(seen, options, &|| Ok(Vec::new()), &gate)
}

/// As in [`ShownEntry`].
struct ShowOptions<'a> {
    types_only: bool,
    now: Option<Timestamp>,
    asserted: Option<&'a [u8]>,
}

fn shown<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    options: ShowOptions<'_>,
    attributes: &dyn Fn() -> Result<Vec<ShownAttribute>, Fault>,
    gate: &dyn AttributeGate,
) -> Result<Option<Vec<ShownAttribute>>, Fault> {
    let entry = Before(seen.composed());
    let schema = &seen.view.schema;
    let mut concerned: SmallVec<[&dyn ShownEntries; 2]> = SmallVec::new();
    for overlay in seen.shown().iter().copied() {
        match overlay.concerns(&entry, schema) {
            Ok(true) => concerned.push(overlay),
            Ok(false) | Err(Failure::Refused(_)) => {}
            Err(Failure::Storage(fault)) => return Err(fault),
        }
    }
    if concerned.is_empty() {
        return Ok(None);
    }
    let sight = seen.sight();
    let mut shown = ShownEntry {
        entry: &entry,
        schema,
        requester: sight.requester,
        entries: &ViewEntries { view: seen.view, sight },
        types_only: options.types_only,
        now: options.now,
        asserted: options.asserted,
        attributes: attributes()?,
        gate,
    };
    for overlay in concerned {
        match overlay.show(&mut shown) {
            Ok(()) | Err(Failure::Refused(_)) => {}
            Err(Failure::Storage(fault)) => return Err(fault),
        }
    }
    Ok(Some(shown.attributes))
}

/// What is asked for and may be read.
fn gathered<N: Snapshot>(answer: &Answer, seen: &GuardedEntry<'_, N>) -> Result<Vec<ShownAttribute>, Fault> {
    let mut all = Vec::new();
    let mut beside = answer.computed_by_overlays(seen)?;
    for attribute in seen.reader.view.attributes() {
        let (number, stored) = attribute?;
        let Some(row) = seen.view.catalog.row(number) else { continue };
        let Some(description) = &row.description else { continue };
        if !answer.selection.has(number, row.operational) {
            continue;
        }
        let computed = beside.iter().position(|own| own.description == description);
        let computed = computed.map(|at| beside.swap_remove(at));
        all.extend(chosen(answer, seen, description, &mut |visit| {
            Ok(stored_values(seen, row, &stored, visit)?
                && computed.as_ref().is_none_or(|computed| computed.each(visit)))
        })?);
    }
    for own in beside {
        all.extend(chosen(answer, seen, own.description, &mut |visit| Ok(own.each(visit)))?);
    }
    Ok(all)
}

fn stored_values<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    row: &CatalogRow,
    stored: &ValuesView<'_>,
    visit: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<bool, Fault> {
    seen.reader.visit_values(row.number, stored, visit)
}

/// Hands values to what it is given, until that answers false.
type Each<'e> = dyn FnMut(&mut dyn FnMut(&[u8]) -> bool) -> Result<bool, Fault> + 'e;

fn chosen<N: Snapshot>(
    answer: &Answer,
    seen: &GuardedEntry<'_, N>,
    description: &AttributeDescription,
    each: &mut Each<'_>,
) -> Result<Option<ShownAttribute>, Fault> {
    let verdict = answer.verdict(seen, description)?;
    if verdict == Verdict::Denied {
        return Ok(None);
    }
    let (mut any, mut values, mut fault) = (false, Vec::new(), None);
    each(&mut |value| match answer.admits(seen, description, verdict, value) {
        Ok(true) => {
            any = true;
            if !answer.types_only {
                values.push(value.into());
            }
            !answer.types_only
        }
        Ok(false) => true,
        Err(error) => {
            fault = Some(error);
            false
        }
    })?;
    fault.map_or(Ok(()), Err)?;
    Ok(any.then(|| ShownAttribute { description: description.clone(), values }))
}

/// A compare: the requester may compare with the attribute.
struct CompareGate<'r> {
    schema: &'r Schema,
    description: &'r AttributeDescription,
}

impl AttributeGate for CompareGate<'_> {
    fn asks_for(&self, description: &AttributeDescription) -> bool {
        description.is_subdescription_of(self.schema, self.description)
    }

    fn admits(&self, _: &AttributeDescription, _: &[u8]) -> Result<bool, Fault> {
        Ok(true)
    }

    fn may_read(&self, _: &AttributeDescription) -> Result<bool, Fault> {
        Ok(true)
    }
}

/// The request, as far as attributes that overlays add are concerned.
struct AnswerGate<'r, 's, N> {
    answer: &'r Answer,
    seen: &'r GuardedEntry<'s, N>,
}

impl<N: Snapshot> AttributeGate for AnswerGate<'_, '_, N> {
    fn asks_for(&self, description: &AttributeDescription) -> bool {
        let schema = &self.seen.view.schema;
        let operational = schema.attribute(description.attribute).is_operational();
        self.answer.selection.has_described(schema, description, operational)
    }

    fn admits(&self, description: &AttributeDescription, value: &[u8]) -> Result<bool, Fault> {
        let verdict = self.answer.verdict(self.seen, description)?;
        Ok(verdict != Verdict::Denied && self.answer.admits(self.seen, description, verdict, value)?)
    }

    fn may_read(&self, description: &AttributeDescription) -> Result<bool, Fault> {
        self.seen.allows(description, None, Privilege::Read)
    }
}
