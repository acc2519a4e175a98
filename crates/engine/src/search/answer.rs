//! An entry into the output buffer.

use larix_proto::encode::{AttributeRun, EntryEncoder, VALUES_ROOM};
use larix_proto::{ControlBuf, MessageId};
use larix_schema::{AttributeDescription, BoundFilter, Match, Schema, Scratch};
use larix_store::Snapshot;
use smallvec::{SmallVec, smallvec};

use super::entry::GuardedEntry;
use super::rights::Rights;
use super::selection::{Computed, Selection};
use super::shown;
use crate::access::{Privilege, Verdict};
use crate::catalog::CatalogRow;
use crate::csn::CsnVector;
use crate::entry::{AttributeNumber, EntryId, ValuesView};
use crate::fault::Fault;
use crate::filter::{charge, value_steps};
use crate::log;
use crate::record::AttributesIter;
use crate::time::Timestamp;
use crate::tree;

/// The name of the subschema subentry, the same for every entry.
pub(crate) const SUBSCHEMA_DN: &str = "cn=Subschema";

/// What it costs to ask the access rules about one value.
const RIGHTS_STEPS: u64 = 8;

/// What of an entry is answered.
#[derive(Clone, Debug)]
pub struct Answer {
    pub message: MessageId,
    pub types_only: bool,
    pub selection: Selection,
    /// RFC 3876: values that match none of these are left out.
    pub matched_values: Option<Vec<BoundFilter>>,
    /// The identity whose rights are sent with each entry.
    pub rights: Option<Box<Rights>>,
    /// For a consumer's copy: what says how far this database has come is no part of the content.
    pub for_consumer: bool,
    /// For a consumer that settles conflicts value by value: the states of entries go beside them.
    pub states: bool,
    /// When the slice of the search began.
    pub now: Timestamp,
}

impl Answer {
    /// Appends the entry under its name, or another one. Attributes that the subject may not see are left out, be it all of them.
    /// Answers false if the subject may not read the entry at all.
    pub fn append<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        dn: &[u8],
        out: &mut Vec<u8>,
        controls: &[ControlBuf],
    ) -> Result<bool, Fault> {
        if !seen.is_shown()? {
            return Ok(false);
        }
        if !seen.shown().is_empty()
            && let Some(attributes) = shown::altered(self, seen)?
        {
            let mut encoder = EntryEncoder::begin_octets(out, self.message, dn);
            for attribute in &attributes {
                encoder.begin_attribute(&attribute.description.to_text(&seen.view.schema));
                attribute.values.iter().for_each(|value| encoder.value(value));
                encoder.end_attribute();
            }
            return self.end(seen, dn, encoder, controls);
        }
        let mut encoder = EntryEncoder::begin_octets(out, self.message, dn);
        let mut computed = self.computed_by_overlays(seen)?;
        let mut attributes = seen.reader.view.attributes();
        // No filter looks at single values: attributes that may be read as a whole are copied.
        let is_plain = computed.is_empty() && !self.types_only && self.matched_values.is_none();
        loop {
            if is_plain {
                self.plain_attributes(seen, &mut attributes, &mut encoder)?;
            }
            let Some(attribute) = attributes.next() else { break };
            let (number, stored) = attribute?;
            let Some(row) = seen.view.catalog.row(number) else { continue };
            if self.selection.has(number, row.operational) {
                match computed.iter().position(|own| row.description.as_ref() == Some(own.description)) {
                    None => self.attribute(seen, row, &stored, &mut encoder)?,
                    Some(at) => self.both(seen, (row, &stored), computed.swap_remove(at), &mut encoder)?,
                }
            }
        }
        for own in &computed {
            let verdict = self.verdict(seen, own.description)?;
            self.chosen_values(seen, (own.description, own.text), verdict, &mut encoder, &mut |visit| {
                Ok(own.each(visit))
            })?;
        }
        self.end(seen, dn, encoder, controls)
    }

    /// Copies attributes up to the first that takes more than that.
    fn plain_attributes<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        attributes: &mut AttributesIter<'_>,
        encoder: &mut EntryEncoder<'_>,
    ) -> Result<(), Fault> {
        let (rows, selection) = (seen.view.catalog.rows(), &self.selection);
        if seen.reads_all() {
            return copy_plain((rows, selection), attributes, encoder, |_| Ok(Verdict::Granted));
        }
        copy_plain((rows, selection), attributes, encoder, |description| seen.readable(description))
    }

    /// What comes behind the attributes that are stored or that overlays compute.
    fn end<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        dn: &[u8],
        mut encoder: EntryEncoder<'_>,
        controls: &[ControlBuf],
    ) -> Result<bool, Fault> {
        for computed in self.selection.computed() {
            self.computed(seen, *computed, dn, &mut encoder)?;
        }
        if let Some(rights) = &self.rights {
            rights.append(seen, &self.selection, &mut encoder)?;
        }
        encoder.finish(controls);
        Ok(true)
    }

    fn attribute<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        row: &CatalogRow,
        stored: &ValuesView<'_>,
        encoder: &mut EntryEncoder<'_>,
    ) -> Result<(), Fault> {
        // What the schema no longer knows is shown to those who may see everything.
        let verdict = match &row.description {
            Some(description) => self.verdict(seen, description)?,
            None if seen.allows_entry(Privilege::Manage)? => Verdict::Granted,
            None => Verdict::Denied,
        };
        match verdict {
            Verdict::Denied => return Ok(()),
            Verdict::Granted if self.types_only || self.matched_values.is_none() => {
                if self.types_only {
                    encoder.attribute_under(&row.head, &row.text, &[]);
                } else if let Some(ber) = stored.as_ber() {
                    encoder.attribute_under(&row.head, &row.text, ber);
                } else {
                    encoder.begin_attribute(&row.text);
                    seen.reader.visit_values(row.number, stored, &mut |value| {
                        encoder.value(value);
                        true
                    })?;
                    encoder.end_attribute();
                }
                return Ok(());
            }
            _ => {}
        }
        let Some(description) = &row.description else { return Ok(()) };
        self.chosen_values(seen, (description, &row.text), verdict, encoder, &mut |visit| {
            seen.reader.visit_values(row.number, stored, visit)
        })
    }

    /// A stored attribute for which overlays compute more values.
    fn both<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        (row, stored): (&CatalogRow, &ValuesView<'_>),
        computed: OverlayValues<'_>,
        encoder: &mut EntryEncoder<'_>,
    ) -> Result<(), Fault> {
        let verdict = self.verdict(seen, computed.description)?;
        self.chosen_values(seen, (computed.description, &row.text), verdict, encoder, &mut |visit| {
            Ok(seen.reader.visit_values(row.number, stored, visit)? && computed.each(visit))
        })
    }

    /// What may be read of an attribute. A type without its values is asked for as a whole: rules about values do not hide it,
    /// as in OpenLDAP.
    pub(super) fn verdict<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        description: &AttributeDescription,
    ) -> Result<Verdict, Fault> {
        if self.types_only && self.matched_values.is_none() {
            let allowed = seen.allows(description, None, Privilege::Read)?;
            return Ok(if allowed { Verdict::Granted } else { Verdict::Denied });
        }
        seen.readable(description)
    }

    /// Some of the values: those that may be read, and those that match the control's filters.
    fn chosen_values<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        (description, text): (&AttributeDescription, &str),
        verdict: Verdict,
        encoder: &mut EntryEncoder<'_>,
        each: &mut EachValue<'_>,
    ) -> Result<(), Fault> {
        if verdict == Verdict::Denied {
            return Ok(());
        }
        let mut begun = false;
        let mut fault = None;
        each(&mut |value| {
            match self.admits(seen, description, verdict, value) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(error) => {
                    fault = Some(error);
                    return false;
                }
            }
            if !begun {
                begun = true;
                encoder.begin_attribute(text);
            }
            if self.types_only {
                return false;
            }
            encoder.value(value);
            true
        })?;
        encoder.end_attribute();
        fault.map_or(Ok(()), Err)
    }

    /// Whether a value matches the control's filters and may be read.
    #[inline]
    pub(super) fn admits<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        description: &AttributeDescription,
        verdict: Verdict,
        value: &[u8],
    ) -> Result<bool, Fault> {
        let filters = self.matched_values.as_ref().filter(|_| !self.types_only);
        let tests = filters.map_or(0, Vec::len) as u64;
        let rights = if verdict == Verdict::Granted { 0 } else { RIGHTS_STEPS };
        charge(Some(seen.meter()), value_steps(value) * tests.max(1) + rights)?;
        if filters.is_some_and(|f| !is_matched(&seen.view.schema, description, f, value)) {
            return Ok(false);
        }
        Ok(verdict == Verdict::Granted || seen.allows(description, Some(value), Privilege::Read)?)
    }

    /// The values that overlays compute of what is asked for, by attribute.
    #[inline]
    pub(super) fn computed_by_overlays<'a, N: Snapshot>(
        &self,
        seen: &GuardedEntry<'a, N>,
    ) -> Result<SmallVec<[OverlayValues<'a>; 1]>, Fault> {
        let mut all = SmallVec::new();
        if !seen.computed().is_empty() {
            self.add_computed(seen, &mut all)?;
        }
        Ok(all)
    }

    fn add_computed<'a, N: Snapshot>(
        &self,
        seen: &GuardedEntry<'a, N>,
        all: &mut SmallVec<[OverlayValues<'a>; 1]>,
    ) -> Result<(), Fault> {
        let schema = &seen.view.schema;
        for own in seen.computed().iter().filter(|own| self.selection.has_computed(schema, own)) {
            if !own.computed_by().is_some_and(|overlay| overlay.is_answered(&own.description)) {
                continue;
            }
            if !seen.allows(&own.description, None, Privilege::Read)? {
                continue;
            }
            let mut values = Vec::new();
            seen.composed().visit_computed(own, &mut |value| {
                values.push(value.into());
                !self.types_only
            })?;
            if values.is_empty() {
                continue;
            }
            match all.iter_mut().find(|other| *other.description == own.description) {
                Some(other) => other.values.extend(values),
                None => all.push(OverlayValues { description: &own.description, text: &own.text, values }),
            }
        }
        Ok(())
    }

    fn computed<N: Snapshot>(
        &self,
        seen: &GuardedEntry<'_, N>,
        computed: Computed,
        dn: &[u8],
        encoder: &mut EntryEncoder<'_>,
    ) -> Result<(), Fault> {
        let Ok(description) = seen.view.schema.describe(computed.name()) else { return Ok(()) };
        if self.for_consumer && matches!(computed, Computed::ContextCsn | Computed::AuditContext) {
            return Ok(());
        }
        if !seen.allows(&description, None, Privilege::Read)? {
            return Ok(());
        }
        // Rules written for a server that has no counts speak of subordinates by the other name.
        if computed == Computed::NumSubordinates {
            let other = seen.view.schema.describe(Computed::HasSubordinates.name());
            if !other.is_ok_and(|other| seen.allows(&other, None, Privilege::Read).unwrap_or(false)) {
                return Ok(());
            }
        }
        let dn = std::str::from_utf8(dn).map_err(|_| Fault::Damaged { what: "the name of an entry" })?;
        let values = computed_values(seen, computed, dn)?;
        if values.is_empty() {
            return Ok(());
        }
        encoder.begin_attribute(computed.name());
        let schema = &seen.view.schema;
        // One's own name is a value, too: rules about values hold for what is computed.
        let wanted = |value: &[u8]| {
            let matched = |filters: &Vec<BoundFilter>| is_matched(schema, &description, filters, value);
            self.matched_values.as_ref().is_none_or(matched)
                && seen.allows(&description, Some(value), Privilege::Read).unwrap_or(false)
        };
        if !self.types_only {
            values.iter().filter(|v| wanted(v.as_bytes())).for_each(|v| encoder.value(v.as_bytes()));
        }
        encoder.end_attribute();
        Ok(())
    }
}

/// Copies attributes, up to the first that cannot be copied as it stands or of which the subject may read only a part. This is a
/// function of its own so that all its variables stay in registers.
#[inline(never)]
fn copy_plain(
    (rows, selection): (&[CatalogRow], &Selection),
    attributes: &mut AttributesIter<'_>,
    encoder: &mut EntryEncoder<'_>,
    readable: impl Fn(&AttributeDescription) -> Result<Verdict, Fault>,
) -> Result<(), Fault> {
    let mut rest = attributes.clone();
    let copied = encoder.run(|run| {
        loop {
            while let Some(attribute) = rest.short() {
                match Plain::of((rows, selection), attribute.number, &readable)? {
                    Plain::Copy(row) if run.short(&row.head, attribute.length, attribute.values) => {}
                    Plain::Pass => {}
                    Plain::Copy(row) => {
                        run.long(&row.text, attribute.values.get(..attribute.length).unwrap_or_default());
                    }
                    Plain::Stop => return Ok(()),
                }
                rest.pass(&attribute);
            }
            // The same near the end of the record.
            let mut next = rest.clone();
            while let Some((number, values)) = next.next_short() {
                match (Plain::of((rows, selection), number, &readable)?, values.as_ber()) {
                    (Plain::Pass, _) => {}
                    (Plain::Copy(row), Some(values)) => copy_at_end(row, values, run),
                    _ => return Ok(()),
                }
                rest.clone_from(&next);
            }
            // A long one.
            let mut next = rest.clone();
            let Some(Ok((number, values))) = next.next() else { return Ok(()) };
            match (Plain::of((rows, selection), number, &readable)?, values.as_ber()) {
                (Plain::Copy(row), Some(values)) => run.long(&row.text, values),
                (Plain::Pass, _) => {}
                _ => return Ok(()),
            }
            rest = next;
        }
    });
    *attributes = rest;
    copied
}

/// Copies an attribute behind whose values there is not much in the record.
#[inline(always)]
fn copy_at_end(row: &CatalogRow, values: &[u8], run: &mut AttributeRun<'_>) {
    let mut room = [0; VALUES_ROOM];
    let start = room.get_mut(..values.len());
    let is_short = start.map(|start| start.copy_from_slice(values)).is_some();
    if !(is_short && run.short(&row.head, values.len(), &room)) {
        run.long(&row.text, values);
    }
}

/// What becomes of an attribute.
enum Plain<'r> {
    Copy(&'r CatalogRow),
    /// It is not asked for, or not to be seen.
    Pass,
    /// It takes more.
    Stop,
}

impl<'r> Plain<'r> {
    #[inline(always)]
    fn of(
        (rows, selection): (&'r [CatalogRow], &Selection),
        number: AttributeNumber,
        readable: &impl Fn(&AttributeDescription) -> Result<Verdict, Fault>,
    ) -> Result<Self, Fault> {
        let Some(row) = rows.get(number.0 as usize).filter(|row| selection.has(number, row.operational))
        else {
            return Ok(Self::Pass);
        };
        // Not every subject may see attributes that the schema has lost, or all values of some others.
        let Some(description) = &row.description else { return Ok(Self::Stop) };
        Ok(match readable(description)? {
            Verdict::Granted => Self::Copy(row),
            Verdict::Denied => Self::Pass,
            Verdict::PerEntry | Verdict::PerValue => Self::Stop,
        })
    }
}

/// Calls its argument with each value until that answers false; answers false then.
type EachValue<'f> = dyn FnMut(&mut dyn FnMut(&[u8]) -> bool) -> Result<bool, Fault> + 'f;

/// Values that overlays compute, beside those that are stored.
pub(super) struct OverlayValues<'a> {
    pub(super) description: &'a AttributeDescription,
    text: &'a str,
    pub(super) values: Vec<Box<[u8]>>,
}

impl OverlayValues<'_> {
    /// Calls `visit` with each value until it answers false; answers false then.
    pub(super) fn each(&self, visit: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.values.iter().all(|value| visit(value))
    }
}

/// The values of a computed attribute.
pub(crate) fn computed_values<N: Snapshot>(
    seen: &GuardedEntry<'_, N>,
    computed: Computed,
    dn: &str,
) -> Result<SmallVec<[String; 1]>, Fault> {
    let (snapshot, id) = (seen.view.snapshot, seen.reader.view.id());
    let value = match computed {
        Computed::EntryDn => dn.to_owned(),
        Computed::SubschemaSubentry => SUBSCHEMA_DN.to_owned(),
        Computed::HasSubordinates => {
            if tree::has_children(snapshot, id)? { "TRUE" } else { "FALSE" }.to_owned()
        }
        Computed::NumSubordinates => tree::count_children(snapshot, id, u64::MAX)?.to_string(),
        Computed::ContextCsn => return context_csns(seen),
        Computed::AuditContext => return audit_context(seen),
    };
    Ok(smallvec![value])
}

/// Where operations on the database are recorded, shown on the entry of its first suffix.
fn audit_context<N: Snapshot>(seen: &GuardedEntry<'_, N>) -> Result<SmallVec<[String; 1]>, Fault> {
    let (Some(log), Some(suffix)) = (&seen.view.settings.audit_context, seen.view.settings.suffixes.first())
    else {
        return Ok(SmallVec::new());
    };
    let is_it = seen.reader.view.parent() == EntryId::ROOT && suffix.normal == *seen.name()?;
    Ok(is_it.then(|| log.clone()).into_iter().collect())
}

/// How far the database has come with what is glued below it, shown on its suffix entry.
fn context_csns<N: Snapshot>(seen: &GuardedEntry<'_, N>) -> Result<SmallVec<[String; 1]>, Fault> {
    if seen.reader.view.parent() != EntryId::ROOT || seen.view.settings.hide_context {
        return Ok(SmallVec::new());
    }
    let name = seen.name()?;
    if !seen.view.settings.suffixes.iter().any(|suffix| suffix.normal == *name) {
        return Ok(SmallVec::new());
    }
    let mut csns: CsnVector = log::context_csns(seen.view.snapshot)?.into_iter().collect();
    if let Some(glued) = &seen.view.settings.glued_contexts {
        csns.extend(glued.context_csns()?);
    }
    Ok(csns.as_slice().iter().map(ToString::to_string).collect())
}

/// Whether a value of the attribute `own` matches any of the control's filters (RFC 3876): simple assertions about its
/// attribute.
pub fn is_matched(
    schema: &Schema,
    own: &AttributeDescription,
    filters: &[BoundFilter],
    value: &[u8],
) -> bool {
    let mut scratch = Scratch::default();
    filters.iter().any(|filter| {
        let about = |description| own.is_subdescription_of(schema, description);
        let found = match filter {
            BoundFilter::Present(description) => about(description).into(),
            BoundFilter::Equality(a)
            | BoundFilter::Approx(a)
            | BoundFilter::GreaterOrEqual(a)
            | BoundFilter::LessOrEqual(a)
                if about(&a.description) =>
            {
                a.matches(schema, value, &mut scratch)
            }
            BoundFilter::Substrings(a) if about(&a.description) => a.matches(schema, value, &mut scratch),
            BoundFilter::Extensible(a)
                if a.description.as_ref().map_or_else(|| a.asks(schema.attribute(own.attribute)), about) =>
            {
                a.matches(schema, value, &mut scratch)
            }
            _ => Match::False,
        };
        found.is_true()
    })
}
