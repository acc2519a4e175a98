//! Owned entries: what writes, LDIF and tests work on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use larix_schema::{AttributeDescription, AttributeTypeId};

use super::{AttributeNumber, Members};

/// An entry with its attributes in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The DN as it is shown.
    pub dn: String,
    pub attributes: Vec<EntryAttribute>,
}

impl Entry {
    pub fn new(dn: impl Into<String>) -> Self {
        Self { dn: dn.into(), attributes: Vec::new() }
    }

    /// The RDN of the DN as it is shown: up to the first comma that is none of a value.
    pub fn rdn(&self) -> &str {
        let mut escaped = false;
        let end = self.dn.bytes().position(|byte| {
            let is_end = byte == b',' && !escaped;
            escaped = byte == b'\\' && !escaped;
            is_end
        });
        end.and_then(|end| self.dn.get(..end)).unwrap_or(&self.dn)
    }

    /// The attribute with exactly this description.
    pub fn attribute(&self, description: &AttributeDescription) -> Option<&EntryAttribute> {
        self.attributes.iter().find(|a| a.description == *description)
    }

    pub fn attribute_mut(&mut self, description: &AttributeDescription) -> Option<&mut EntryAttribute> {
        self.attributes.iter_mut().find(|a| a.description == *description)
    }

    /// The values of the attribute of this type without options; none when it is absent (or [large](LargeValues), or
    /// [kept](UnchangedValues)).
    pub fn values(&self, attribute: AttributeTypeId) -> &[Vec<u8>] {
        self.attributes
            .iter()
            .find(|a| a.description.attribute == attribute && a.description.options().is_empty())
            .map_or(&[], |a| &a.values)
    }

    /// The attribute with this description, appended without values when it is absent.
    pub fn attribute_or_insert(&mut self, description: &AttributeDescription) -> &mut EntryAttribute {
        let at = self.attributes.iter().position(|a| a.description == *description).unwrap_or_else(|| {
            self.attributes.push(EntryAttribute::new(description.clone(), Vec::new()));
            self.attributes.len() - 1
        });
        &mut self.attributes[at]
    }

    pub fn remove(&mut self, description: &AttributeDescription) -> Option<EntryAttribute> {
        let at = self.attributes.iter().position(|a| a.description == *description)?;
        Some(self.attributes.remove(at))
    }
}

/// One attribute of an owned entry.
#[derive(Clone, Debug)]
pub struct EntryAttribute {
    pub description: AttributeDescription,
    /// The values; empty when `large` is set.
    pub values: Vec<Vec<u8>>,
    /// The stored values were too many to load: what is to change about them.
    pub large: Option<LargeValues>,
    /// The stored values stay as they are and were not loaded: `values` is empty.
    pub unchanged: Option<UnchangedValues>,
    /// Where it began in the stored record, for an entry that has only [what changes](super::patch).
    pub(crate) place: Option<u32>,
}

/// Values that stand in the stored record and go into the next one as they are.
#[derive(Copy, Clone, Debug)]
pub struct UnchangedValues {
    pub number: AttributeNumber,
    /// How many values.
    pub count: u64,
}

impl EntryAttribute {
    pub fn new(description: AttributeDescription, values: Vec<Vec<u8>>) -> Self {
        Self { description, values, large: None, unchanged: None, place: None }
    }

    /// How many values the attribute will have.
    pub fn count(&self) -> u64 {
        match (&self.large, self.unchanged) {
            (Some(large), _) => large.count(),
            (None, Some(unchanged)) => unchanged.count,
            (None, None) => self.values.len() as u64,
        }
    }

    /// The values that are at hand: all but what stays in the store.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = &[u8]> {
        let fresh = self.large.as_ref().and_then(LargeValues::whole).into_iter().flatten();
        self.values.iter().map(Vec::as_slice).chain(fresh.map(|(_, value)| value))
    }

    /// Makes values of a large set that the store does not have yet.
    pub(crate) fn unfold(&mut self) {
        if self.large.as_ref().is_some_and(|large| large.fresh.is_some()) {
            self.values = self.loaded().map(<[u8]>::to_vec).collect();
            self.large = None;
        }
    }
}

/// Changes to a set of values that stays in the store. The keys are those of [`values::member_key`].
///
/// A caller that adds or removes a value first asks the store whether it is there (`EntryReader::member`).
///
/// [`values::member_key`]: super::values::member_key
#[derive(Clone, Debug, Default)]
pub struct LargeValues {
    /// How many values the store has.
    pub stored: u64,
    /// Member key -> value, none of them stored (unless also in `removed`).
    pub added: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Member keys, all of them stored; applied before `added`.
    pub removed: BTreeSet<Vec<u8>>,
    /// The set is new: these members, `stored` in number, come in place of what the store has of the attribute.
    pub fresh: Option<Arc<Members>>,
}

impl LargeValues {
    /// A set that is new.
    pub(crate) fn of(members: &Arc<Members>) -> Self {
        Self { stored: members.len(), fresh: Some(Arc::clone(members)), ..Self::default() }
    }

    /// Whether nothing was noted yet about a set that the store has.
    pub(crate) fn is_as_stored(&self) -> bool {
        self.fresh.is_none() && self.added.is_empty() && self.removed.is_empty()
    }

    /// All members of a set that is new, with their keys, ascending.
    pub(crate) fn whole(&self) -> Option<impl Iterator<Item = (&[u8], &[u8])>> {
        let stays = |(member, _): &(&[u8], &[u8])| self.removed.is_empty() || !self.removed.contains(*member);
        let mut fresh = self.fresh.as_ref()?.iter().filter(stays).peekable();
        let mut added = self.added.iter().map(|(member, value)| (&**member, &**value)).peekable();
        Some(std::iter::from_fn(move || match (fresh.peek(), added.peek()) {
            (Some((one, _)), Some((other, _))) if other < one => added.next(),
            (Some(_), _) => fresh.next(),
            (None, _) => added.next(),
        }))
    }

    pub fn count(&self) -> u64 {
        (self.stored + self.added.len() as u64).saturating_sub(self.removed.len() as u64)
    }
}

/// A DN as it is shown, cut after its first RDN. Commas within a value are escaped there.
pub fn split_rdn(dn: &str) -> (&str, &str) {
    let mut escaped = false;
    for (position, byte) in dn.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => return (dn.get(..position).unwrap_or(dn), dn.get(position + 1..).unwrap_or_default()),
            _ => {}
        }
    }
    (dn, "")
}
