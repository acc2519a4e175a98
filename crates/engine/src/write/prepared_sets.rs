//! Large sets made before the writer has the request.

use std::sync::Arc;

use larix_schema::Schema;

use crate::change::prepare::{Change, ChangeKind, PreparedChange};
use crate::entry::record::INLINE_COUNT_LIMIT;
use crate::entry::{Entry, EntryAttribute, LargeValues, Members};

/// Attributes that a new entry usually gets from the server: structuralObjectClass, entryUUID, entryCSN, and who made and changed
/// it when.
const OPERATIONAL_ATTRIBUTES: usize = 7;

/// The modifications of an operation that have too many values for a record: the place of each in the operation's list, and its
/// values as the table `values` will hold them. It is valid for this operation only.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreparedSets(Vec<(usize, Arc<Members>)>);

/// For operations that were not prepared so.
pub(crate) static NONE_PREPARED: PreparedSets = PreparedSets(Vec::new());

impl PreparedSets {
    /// The caller makes it on its own thread, before the writer has the request.
    pub(crate) fn new(schema: &Schema, operation: &PreparedChange) -> Self {
        let (PreparedChange::Add { mods, .. } | PreparedChange::Modify { mods, .. }) = operation else {
            return Self::default();
        };
        let large = mods.iter().enumerate().filter(|(_, change)| {
            change.values.len() > INLINE_COUNT_LIMIT
                && matches!(change.kind, ChangeKind::Add | ChangeKind::Replace | ChangeKind::Delete)
        });
        let members = large.filter_map(|(at, change)| {
            let kind = schema.attribute(change.description.attribute);
            Some((at, Arc::new(Members::new(kind, &change.values, &change.keys)?)))
        });
        Self(members.collect())
    }

    /// The set of one of the operation's modifications.
    pub(crate) fn of(&self, all: &[Change], change: &Change) -> Option<&Arc<Members>> {
        let found = self.0.iter().find(|(at, _)| all.get(*at).is_some_and(|one| std::ptr::eq(one, change)));
        found.map(|(_, members)| members)
    }

    /// A copy of the entry that `mods` add, with the prepared sets in place of their values and room for operational attributes.
    pub(crate) fn entry(&self, entry: &Entry, mods: &[Change]) -> Entry {
        let mut attributes = Vec::with_capacity(entry.attributes.len() + OPERATIONAL_ATTRIBUTES);
        if self.0.is_empty() {
            attributes.extend_from_slice(&entry.attributes);
            return Entry { dn: entry.dn.clone(), attributes };
        }
        let sets: foldhash::HashMap<_, _> =
            self.0.iter().filter_map(|(at, members)| Some((&mods.get(*at)?.description, members))).collect();
        let copied = |attribute: &EntryAttribute| match sets.get(&attribute.description) {
            Some(members) if members.len() == attribute.values.len() as u64 => EntryAttribute {
                large: Some(LargeValues::of(members)),
                ..EntryAttribute::new(attribute.description.clone(), Vec::new())
            },
            _ => attribute.clone(),
        };
        attributes.extend(entry.attributes.iter().map(copied));
        Entry { dn: entry.dn.clone(), attributes }
    }
}
