//! Compare (RFC 4511 section 4.10), with OpenLDAP's result codes and texts.

use std::ops::ControlFlow;

use larix_proto::{CompareRequest, LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, BindError, BoundAssertion, Match, NormalDn, Schema, Scratch};
use larix_store::Snapshot;
use smallvec::SmallVec;

use crate::access::{ItemKind, Privilege, Subject};
use crate::budget::{LimitExceeded, RequestLimit};
use crate::controls::RequestControls;
use crate::database::View;
use crate::entry::record::{RecordFlags, StoredValue};
use crate::entry::{EntryId, EntrySource, EntryView, Target, ValuesView};
use crate::fault::Fault;
use crate::filter::Filter;
use crate::overlay::shown::{ShownEntries, ShownRequest};
use crate::record::{AttributeLookup, AttributesIter};
use crate::search::answer::computed_values;
use crate::search::selection::Computed;
use crate::search::task::storage_failure;
use crate::search::{Gate, GuardedEntry, hidden, referral, shown};
use crate::tree::{self, DnLookup};
use crate::write::read_controls::ASSERTION_STEPS;

/// Who compares, and how.
#[derive(Clone, Debug)]
pub struct CompareContext<'a> {
    pub controls: &'a RequestControls,
    pub subject: &'a Subject,
    /// Where to send a client when not even the suffix is here.
    pub default_referrals: &'a [String],
}

/// Compares a value with an entry of this database; `dn` is the request's, normalized.
pub fn compare<N: Snapshot>(
    view: &View<'_, N>,
    context: &CompareContext<'_>,
    dn: &NormalDn,
    request: &CompareRequest<'_>,
) -> LdapResult {
    let Ok(description) = view.schema.describe(request.attribute) else {
        // As OpenLDAP: the code says it all.
        return LdapResult::new(ResultCode::UNDEFINED_ATTRIBUTE_TYPE);
    };
    let bound = view.schema.bind_equality(&description, request.value);
    let asserted = match assertion(&view.schema, &description, &bound) {
        Ok(asserted) => asserted,
        Err(result) => return result,
    };
    answer(view, context, dn, request, asserted).unwrap_or_else(|fault| match fault {
        Fault::StepsSpent => LimitExceeded { limit: RequestLimit::Steps, most: steps(view) }.into(),
        fault => storage_failure(&fault),
    })
}

/// Steps that a compare may take: it is answered where others wait.
fn steps<N: Snapshot>(view: &View<'_, N>) -> u64 {
    view.settings.request_limits.most(RequestLimit::Steps).min(ASSERTION_STEPS)
}

/// What is compared with.
#[derive(Copy, Clone)]
enum CompareAssertion<'a> {
    Stored(&'a BoundAssertion),
    Computed(Computed, &'a AttributeDescription),
}

fn assertion<'a>(
    schema: &Schema,
    description: &'a AttributeDescription,
    bound: &'a Result<BoundAssertion, BindError>,
) -> Result<CompareAssertion<'a>, LdapResult> {
    let kind = schema.attribute(description.attribute);
    let of_name = |computed: &Computed| computed.name() == kind.name();
    // Every one of these is operational.
    let computed = if kind.is_operational() { Computed::ALL.into_iter().find(of_name) } else { None };
    // What is no value of its syntax is refused as for other attributes.
    let is_valid = !matches!(bound, Err(BindError::InvalidValue));
    match computed.filter(|_| is_valid) {
        Some(computed @ (Computed::EntryDn | Computed::SubschemaSubentry)) => {
            let text = format!("{} compare not supported", computed.name());
            return Err(LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text));
        }
        Some(computed) => return Ok(CompareAssertion::Computed(computed, description)),
        None => {}
    }
    bound.as_ref().map(CompareAssertion::Stored).map_err(|error| {
        let code = match error {
            BindError::InvalidValue => ResultCode::INVALID_ATTRIBUTE_SYNTAX,
            BindError::NoRule => ResultCode::INAPPROPRIATE_MATCHING,
            BindError::UnknownAttribute => ResultCode::UNDEFINED_ATTRIBUTE_TYPE,
        };
        LdapResult::with(code, error.to_string())
    })
}

fn answer<N: Snapshot>(
    view: &View<'_, N>,
    context: &CompareContext<'_>,
    dn: &NormalDn,
    request: &CompareRequest<'_>,
    asserted: CompareAssertion<'_>,
) -> Result<LdapResult, Fault> {
    let located = view.locate(dn)?.filter(|located| located.resolved.nearest != EntryId::ROOT);
    let Some(located) = located else {
        if context.default_referrals.is_empty() {
            return Ok(LdapResult::new(ResultCode::NO_SUCH_OBJECT));
        }
        let urls =
            referral::rewrite(&view.schema, context.default_referrals, None, Some(request.entry), None);
        return Ok(LdapResult { referrals: urls, ..LdapResult::new(ResultCode::REFERRAL) });
    };
    let DnLookup { nearest, missing, .. } = located.resolved;
    let stored = view.located_stored(located)?;
    let head = EntryView::parse(nearest, &stored)?;
    if missing == 0
        && let CompareAssertion::Stored(assertion) = asserted
        && let Some(code) = at_once(view, context, (&head, &stored), assertion)?
    {
        return Ok(LdapResult::new(code));
    }
    let mut gate = Gate::new(&view.policy, context.subject);
    gate.steps = steps(view);
    if !context.controls.manage_dsa_it {
        gate.computed = &view.computed;
    }
    let shown = shown_by(view, context);
    gate.shown = &shown;
    let record = view.unpacked_behind(&head, &stored)?;
    let seen = GuardedEntry::new(view, view.reader_of(head, &stored, &record), gate.clone());
    let found = missing == 0;
    if found {
        seen.name_is(dn);
    }
    let is_referral = seen.reader.view.flags().has(RecordFlags::REFERRAL);
    if is_referral && (!found || !context.controls.manage_dsa_it) {
        return refer(&seen, &gate, (dn, request.entry));
    }
    if !found {
        if !is_disclosed(&seen)? {
            return absent(view, &gate, (nearest, dn));
        }
        let answer = LdapResult::new(ResultCode::NO_SUCH_OBJECT).matched(view.dn(&seen.reader.view)?);
        return unless_hidden_by_name(view, &gate, (nearest, dn), answer);
    }
    let compared = compare_entry(&seen, context, request, asserted);
    // An error tells that there is such an entry, and so does the limit of steps.
    let is_telling = match &compared {
        Ok(code) => !matches!(*code, ResultCode::COMPARE_TRUE | ResultCode::COMPARE_FALSE),
        Err(fault) => matches!(fault, Fault::StepsSpent),
    };
    if is_telling && !is_disclosed(&seen)? {
        return absent(view, &gate, (nearest, dn));
    }
    compared.map(LdapResult::new)
}

/// Whether the client may know of the entry, whatever steps were taken before. Rules that take too much deny.
fn is_disclosed<N: Snapshot>(seen: &GuardedEntry<'_, N>) -> Result<bool, Fault> {
    match seen.with_entry(seen.reader).allows_entry(Privilege::Disclose) {
        Err(Fault::StepsSpent) => Ok(false),
        may => may,
    }
}

/// The answer about an entry that the client may not know of. Rules that take too much deny, here too.
fn absent<N: Snapshot>(
    view: &View<'_, N>,
    gate: &Gate<'_>,
    (id, asked): (EntryId, &NormalDn),
) -> Result<LdapResult, Fault> {
    let answer = hidden::missing_with(view, id, &[], |id| match hidden::disclosed(view, gate, id) {
        Err(Fault::StepsSpent) => Ok(None),
        disclosed => disclosed,
    })?;
    unless_hidden_by_name(view, gate, (id, asked), answer)
}

/// [`hidden::unless_hidden_by_name`], where rules that take too much deny.
fn unless_hidden_by_name<N: Snapshot>(
    view: &View<'_, N>,
    gate: &Gate<'_>,
    name: (EntryId, &NormalDn),
    answer: LdapResult,
) -> Result<LdapResult, Fault> {
    match hidden::unless_hidden_by_name(view, gate, name, answer) {
        Err(Fault::StepsSpent) => Ok(LdapResult::new(ResultCode::NO_SUCH_OBJECT)),
        answer => answer,
    }
}

fn refer<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    gate: &Gate<'_>,
    (asked, target): (&NormalDn, &str),
) -> Result<LdapResult, Fault> {
    if !is_disclosed(seen)? {
        return absent(seen.view, gate, (seen.reader.view.id(), asked));
    }
    let dn = seen.view.dn(&seen.reader.view)?;
    let urls = referral::urls(&seen.reader)?;
    let urls = referral::rewrite(&seen.view.schema, &urls, Some(&dn), Some(target), None::<Scope>);
    Ok(referral::answer(urls, dn))
}

fn compare_entry<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    context: &CompareContext<'_>,
    request: &CompareRequest<'_>,
    asserted: CompareAssertion<'_>,
) -> Result<ResultCode, Fault> {
    let description = match asserted {
        CompareAssertion::Stored(assertion) => &assertion.description,
        CompareAssertion::Computed(_, description) => description,
    };
    if !seen.allows(description, Some(request.value), Privilege::Compare)? {
        return Ok(ResultCode::INSUFFICIENT_ACCESS_RIGHTS);
    }
    if let Some(control) = &context.controls.assertion {
        let bound = seen.view.schema.bind_filter(control.as_filter());
        let filter = Filter::new(&seen.view.schema, &seen.view.catalog, bound);
        if !filter.matches(seen, seen.source())?.is_true() {
            return Ok(ResultCode::ASSERTION_FAILED);
        }
    }
    let truth = |holds: bool| if holds { ResultCode::COMPARE_TRUE } else { ResultCode::COMPARE_FALSE };
    match asserted {
        CompareAssertion::Computed(Computed::HasSubordinates, _) => {
            let holds = tree::has_children(seen.view.snapshot, seen.reader.view.id())?;
            Ok(truth(holds == (request.value == b"TRUE")))
        }
        CompareAssertion::Computed(computed, _) => {
            let values = computed_values(seen, computed, "")?;
            Ok(truth(values.iter().any(|value| value.as_bytes() == request.value)))
        }
        CompareAssertion::Stored(assertion) => {
            let code = stored(seen, assertion, request.value)?;
            if seen.shown().is_empty() || code == ResultCode::COMPARE_TRUE {
                return Ok(code);
            }
            added(seen, assertion, code)
        }
    }
}

/// The overlays that add to what is compared with.
fn shown_by<'v, N>(
    view: &'v View<'_, N>,
    context: &CompareContext<'_>,
) -> SmallVec<[&'v dyn ShownEntries; 2]> {
    if view.shown.is_empty() {
        return SmallVec::new();
    }
    let controls = context.controls;
    let request = ShownRequest { controls, types_only: false, names_none: false, compares: true };
    let shown = view.shown.iter().filter_map(|overlay| overlay.shown());
    shown.filter(|shown| shown.wants(&request)).collect()
}

/// What comes of values that overlays add; `otherwise` is what comes of the others.
fn added<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    assertion: &BoundAssertion,
    otherwise: ResultCode,
) -> Result<ResultCode, Fault> {
    let attributes = shown::compared(seen, assertion)?.unwrap_or_default();
    if attributes.is_empty() {
        return Ok(otherwise);
    }
    let mut scratch = Scratch::default();
    let mut values = attributes.iter().flat_map(|attribute| &attribute.values);
    let holds = values.any(|value| assertion.matches(&seen.view.schema, value, &mut scratch).is_true());
    Ok(if holds { ResultCode::COMPARE_TRUE } else { ResultCode::COMPARE_FALSE })
}

/// The usual case: the subject may compare the attribute whatever the entry, no overlay takes part, and the entry has values of it that
/// stand in the record. `None`: it is another one.
fn at_once<N: Snapshot>(
    view: &View<'_, N>,
    context: &CompareContext<'_>,
    (head, stored): (&EntryView<'_>, &[u8]),
    assertion: &BoundAssertion,
) -> Result<Option<ResultCode>, Fault> {
    let (policy, description) = (&view.policy, &assertion.description);
    let decided = || {
        let decisions = policy.decisions(context.subject)?;
        decisions.general(policy.class_of(ItemKind::Attribute(description))?, Privilege::Compare)
    };
    let is_usual = context.controls.is_none()
        && view.computed.is_empty()
        && view.shown.is_empty()
        && !head.flags().has(RecordFlags::REFERRAL | RecordFlags::OUTSIDE)
        && decided() == Some(true);
    let Some(row) = view.catalog.only(&view.schema, description).filter(|_| is_usual) else {
        return Ok(None);
    };
    // The record is unpacked no further than the attribute.
    let mut passed = 0;
    let mut look = |attributes: &[u8]| {
        let mut unread = AttributesIter::within(head.id(), attributes.get(passed..).unwrap_or_default());
        let sought = unread.seek(row.number);
        passed = attributes.len() - unread.rest();
        match sought {
            AttributeLookup::Found(values) => ControlFlow::Break(inline(&view.schema, assertion, &values)),
            AttributeLookup::Needs(more) => ControlFlow::Continue(more),
            AttributeLookup::Other => ControlFlow::Break(Ok(None)),
        }
    };
    let found = view.catalog.dictionaries().look_into(head.head_length(stored), stored, &mut look);
    found.unwrap_or(Ok(None))
}

/// Compares with values that all stand in the record; `None` if one does not.
fn inline(
    schema: &Schema,
    assertion: &BoundAssertion,
    values: &ValuesView<'_>,
) -> Result<Option<ResultCode>, Fault> {
    let mut scratch = Scratch::default();
    for value in values.iter() {
        let StoredValue::Inline(value) = value? else { return Ok(None) };
        if assertion.matches(schema, value, &mut scratch) == Match::True {
            return Ok(Some(ResultCode::COMPARE_TRUE));
        }
    }
    Ok(Some(ResultCode::COMPARE_FALSE))
}

/// The description covers one attribute of the database, and all of its values stand in the record.
fn stored_inline<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    assertion: &BoundAssertion,
) -> Result<Option<ResultCode>, Fault> {
    let schema = &seen.view.schema;
    let Some(row) = seen.view.catalog.only(schema, &assertion.description) else { return Ok(None) };
    let entry = &seen.reader.view;
    if !seen.computed().is_empty() || entry.flags().has(RecordFlags::OUTSIDE) {
        return Ok(None);
    }
    let Some(values) = entry.get(row.number)? else { return Ok(Some(ResultCode::NO_SUCH_ATTRIBUTE)) };
    inline(schema, assertion, &values)
}

fn stored<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    assertion: &BoundAssertion,
    value: &[u8],
) -> Result<ResultCode, Fault> {
    let schema = &seen.view.schema;
    if let Some(code) = stored_inline(seen, assertion)? {
        return Ok(code);
    }
    let target = Target::new(schema, &seen.view.catalog, assertion.description.clone());
    if !seen.computed().is_empty()
        && seen.source().has_only_itself(&target)
        && seen.source().large_member(&target, assertion.value.key())? == Some(true)
    {
        return Ok(ResultCode::COMPARE_TRUE);
    }
    if let Some(member) = seen.reader.large_member(&target, assertion.value.key())? {
        return Ok(if member { ResultCode::COMPARE_TRUE } else { ResultCode::COMPARE_FALSE });
    }
    let mut scratch = Scratch::default();
    let mut is_present = false;
    for attribute in seen.reader.covered(&target) {
        let (number, stored) = attribute?;
        is_present = true;
        let own = seen.view.catalog.row(number).and_then(|row| row.description.as_ref());
        // A subtype, or one with more options, has access rules of its own.
        if let Some(own) = own
            && *own != assertion.description
            && !seen.allows(own, Some(value), Privilege::Compare)?
        {
            return Ok(ResultCode::INSUFFICIENT_ACCESS_RIGHTS);
        }
        let mut found = false;
        seen.reader.visit_values(number, &stored, &mut |value| {
            found = assertion.matches(schema, value, &mut scratch) == Match::True;
            !found
        })?;
        if found {
            return Ok(ResultCode::COMPARE_TRUE);
        }
    }
    for own in seen.computed() {
        if !own.description.is_subdescription_of(schema, &assertion.description) {
            continue;
        }
        let mut found = false;
        seen.composed().visit_computed(own, &mut |value| {
            is_present = true;
            found = assertion.matches(schema, value, &mut scratch) == Match::True;
            !found
        })?;
        if found && seen.allows(&own.description, Some(value), Privilege::Compare)? {
            return Ok(ResultCode::COMPARE_TRUE);
        }
    }
    Ok(if is_present { ResultCode::COMPARE_FALSE } else { ResultCode::NO_SUCH_ATTRIBUTE })
}
