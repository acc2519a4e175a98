//! `overlay dna`: numbers for new entries out of a range, as by the distributed numeric assignment of 389 Directory Server.
//!
//! The writer hands them out in the transaction of the change: of several adds at once each gets another number, and one that is
//! refused takes none. The next number stands in the entry at the range's base, so that a number is not given twice, even after its
//! entry is gone. Each server has a range of its own.

mod config;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use larix_engine::entry::{Entry, EntryAttribute};
use larix_engine::index::Kinds;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::{
    Additions, AroundChange, Change, ChangeKind, Consequence, Descriptor, FollowUp, Interests, Overlay,
    OverlayDirective, PendingChange, PreparedChange, Refusal, internal_change,
};
use larix_proto::{FilterBuf, LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

/// Operational attribute of a range's base: the range and the number that is given next, `uidNumber 1000-1999 1007`.
const NEXT: &str = "larixNumberNext";

pub static DESCRIPTOR: Descriptor = Descriptor::new("dna", "olcLarixDnaConfig", config::build)
    .once()
    .schema(
        "attributetype ( 2.25.87610412117718157885716886434399491440.1.53 NAME 'larixNumberNext' \
         DESC 'a range of numbers, and the one that is given next' EQUALITY caseIgnoreMatch \
         SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 NO-USER-MODIFICATION USAGE directoryOperation )",
    )
    .directives(&[OverlayDirective::words("dna-range", "olcLarixDnaRange").many().arguments(4, 5)]);

/// Numbers that are looked up one by one for one change. If all of them are in use, the entries with numbers are gone through once.
const LOOKED_UP_MAX: u64 = 1_000;

/// The overlay of one database.
#[derive(Debug)]
struct NumericAssignment {
    ranges: Vec<Range>,
}

/// `dna-range`
#[derive(Clone, Debug)]
struct Range {
    /// They get the same number.
    attributes: Vec<AttributeDescription>,
    first: u64,
    last: u64,
    /// Entries below get numbers; the base itself has the next one.
    base: NormalDn,
    filter: BoundFilter,
    /// The value that asks for a number; `None`: an entry without the attribute gets one.
    magic: Option<Vec<u8>>,
    /// The range in the attribute of the base: `uidNumber 1000-1999`.
    text: String,
}

/// A number that an entry gets.
#[derive(Debug)]
struct AssignedNumber {
    base: NormalDn,
    /// The value that the base has; `None`: no number was given yet.
    before: Option<Vec<u8>>,
    after: Vec<u8>,
}

impl Overlay for NumericAssignment {
    fn name(&self) -> &'static str {
        "dna"
    }

    fn interests(&self) -> Interests {
        if self.ranges.is_empty() { Interests::NONE } else { Interests::PREPARE }
    }

    fn indexes(&self) -> Vec<(AttributeDescription, Kinds)> {
        // Whether a number is in use is looked up with each that is given.
        let attributes = self.ranges.iter().flat_map(|range| &range.attributes);
        attributes.map(|attribute| (attribute.clone(), Kinds::EQUALITY)).collect()
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        if change.derived {
            return Ok(Additions::default());
        }
        let (mut altered, mut assigned) = (None, Vec::new());
        for range in &self.ranges {
            let operation = altered.as_ref().unwrap_or(change.operation);
            if !range.wants_number(change, operation)? {
                continue;
            }
            let number = range.next(change, &mut assigned)?;
            altered = Some(range.with(operation, change.schema, number)?);
        }
        let follow_up: Option<Box<dyn FollowUp>> =
            if assigned.is_empty() { None } else { Some(Box::new(Numbers(assigned))) };
        Ok(Additions { altered, follow_up, ..Additions::default() })
    }
}

impl Range {
    /// Whether the change asks for a number out of the range.
    fn wants_number(&self, change: &PendingChange<'_>, operation: &PreparedChange) -> Result<bool, Refusal> {
        let is_below = |dn: &NormalDn| dn.is_within(&self.base) && *dn != self.base;
        match operation {
            PreparedChange::Add { dn, entry, .. } if is_below(dn) => {
                let asks = |attribute: &AttributeDescription| match (&self.magic, entry.attribute(attribute))
                {
                    (Some(magic), Some(own)) => own.values.contains(magic),
                    (None, own) => own.is_none(),
                    (Some(_), None) => false,
                };
                Ok(self.attributes.iter().any(asks) && change.entries.matches(dn, entry, &self.filter)?)
            }
            PreparedChange::Modify { dn, mods } if is_below(dn) => {
                let Some(magic) = &self.magic else { return Ok(false) };
                let asks = |one: &Change| self.covers(one) && one.values.contains(magic);
                if !mods.iter().any(asks) {
                    return Ok(false);
                }
                let Some(entry) = change.entries.entry(dn)? else { return Ok(false) };
                Ok(change.entries.matches(dn, &entry, &self.filter)?)
            }
            _ => Ok(false),
        }
    }

    /// Whether the values of the change are values of the attribute behind it.
    fn covers(&self, one: &Change) -> bool {
        !matches!(one.kind, ChangeKind::Delete | ChangeKind::Increment)
            && self.attributes.contains(&one.description)
    }

    /// The next number that no entry below the base has.
    fn next(&self, change: &PendingChange<'_>, assigned: &mut Vec<AssignedNumber>) -> Result<u64, Refusal> {
        let before = match change.entries.entry(&self.base)? {
            Some(entry) => self.stored_next(&entry, change.schema),
            None => None,
        };
        let stored_next = before.as_deref().and_then(|value| self.number_of(value));
        let start = stored_next.unwrap_or(self.first);
        let near = self.last.min(start.saturating_add(LOOKED_UP_MAX - 1));
        let mut next = None;
        for number in start..=near {
            if self.is_free(change, number)? {
                next = Some(number);
                break;
            }
        }
        if next.is_none() && near < self.last {
            next = self.first_free(change, near + 1)?;
        }
        let Some(number) = next else {
            let text =
                format!("Allocation of a new value for range \"{}\" failed: no number is free", self.text);
            return Err(LdapResult::with(ResultCode::OPERATIONS_ERROR, text).into());
        };
        let after = format!("{} {}", self.text, number + 1).into_bytes();
        assigned.push(AssignedNumber { base: self.base.clone(), before, after });
        Ok(number)
    }

    /// The first number from this one on that no entry below the base has: of a directory that had its numbers before it had a range.
    fn first_free(&self, change: &PendingChange<'_>, from: u64) -> Result<Option<u64>, Refusal> {
        let mut used = BTreeSet::new();
        let present = self.attributes.iter().map(|attribute| BoundFilter::Present(attribute.clone()));
        let filter = BoundFilter::Or(present.collect());
        let query = InternalSearch::new(&self.base, Scope::Subtree, &filter);
        change.entries.search(&query, &mut |found| {
            for attribute in &self.attributes {
                found.source().visit_description(attribute, &mut |value| {
                    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
                    used.extend(number.filter(|number| (from..=self.last).contains(number)));
                    true
                })?;
            }
            Ok(true)
        })?;
        Ok((from..=self.last).find(|number| !used.contains(number)))
    }

    /// What the base says of this range.
    fn stored_next(&self, base: &Entry, schema: &Schema) -> Option<Vec<u8>> {
        let attribute = base.attribute(&schema.describe(NEXT).ok()?)?;
        attribute.values.iter().find(|value| self.number_of(value).is_some()).cloned()
    }

    /// The number of a value that is about this range.
    fn number_of(&self, value: &[u8]) -> Option<u64> {
        let (range, number) = std::str::from_utf8(value).ok()?.rsplit_once(' ')?;
        if range.eq_ignore_ascii_case(&self.text) { number.parse().ok() } else { None }
    }

    fn is_free(&self, change: &PendingChange<'_>, number: u64) -> Result<bool, Refusal> {
        for attribute in &self.attributes {
            let text = format!("({}={number})", attribute.to_text(change.schema));
            let filter = FilterBuf::parse(&text)
                .map_err(|error| Refusal::from(LdapResult::with(ResultCode::OTHER, error.to_string())))?;
            let filter = change.schema.bind_filter(filter.as_filter());
            let query = InternalSearch::new(&self.base, Scope::Subtree, &filter);
            if change.entries.finds_any(&query)?.entries > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The change with the number.
    fn with(
        &self,
        operation: &PreparedChange,
        schema: &Schema,
        number: u64,
    ) -> Result<PreparedChange, Refusal> {
        let mut altered = operation.clone();
        let change = |attribute: &AttributeDescription| {
            let value = vec![number.to_string().into_bytes()];
            internal_change(schema, ChangeKind::Add, &attribute.to_text(schema), value)
        };
        match &mut altered {
            PreparedChange::Add { entry, .. } => {
                for attribute in &self.attributes {
                    let Change { values, .. } = change(attribute)?;
                    match (entry.attribute_mut(attribute), &self.magic) {
                        (Some(own), Some(magic)) if own.values.contains(magic) => own.values = values,
                        (Some(_), _) => {}
                        (None, None) => entry.attributes.push(EntryAttribute::new(attribute.clone(), values)),
                        (None, Some(_)) => {}
                    }
                }
            }
            PreparedChange::Modify { mods, .. } => {
                let is_magic = |one: &&mut Change| {
                    self.covers(one) && self.magic.as_ref().is_some_and(|magic| one.values.contains(magic))
                };
                for one in mods.iter_mut().filter(is_magic) {
                    let Change { values, keys, .. } = change(&one.description)?;
                    (one.values, one.keys) = (values, keys);
                }
            }
            _ => {}
        }
        Ok(altered)
    }
}

/// What ranges are to say once the change is made.
#[derive(Debug)]
struct Numbers(Vec<AssignedNumber>);

impl FollowUp for Numbers {
    fn consequences(
        self: Box<Self>,
        _: &AroundChange<'_>,
        schema: &Schema,
    ) -> Result<Vec<Consequence>, Refusal> {
        let mut consequences = Vec::new();
        for AssignedNumber { base, before, after } in self.0 {
            let mut mods = Vec::new();
            if let Some(before) = before {
                mods.push(internal_change(schema, ChangeKind::Delete, NEXT, vec![before])?);
            }
            mods.push(internal_change(schema, ChangeKind::Add, NEXT, vec![after])?);
            let operation = PreparedChange::Modify { dn: base, mods };
            consequences.push(Consequence { operation, local: false, permissive: false });
        }
        Ok(consequences)
    }
}
