//! The index keys that entries have, as far as a check remembers them.

use std::collections::{BTreeMap, BTreeSet};

use larix_store::Snapshot;

use crate::database::View;
use crate::entry::record::Form;
use crate::entry::{AttributeNumber, EntryId, values};
use crate::fault::Fault;
use crate::index::{KeyKind, keys, pending};

/// Attributes of an entry with fewer keys are not remembered: to make them again costs little.
const MANY_KEYS: usize = 64;
/// How many keys are remembered at once: some 20 MB.
const REMEMBERED_KEYS: usize = 1 << 19;

/// Which keys entries have. Where an attribute has many, they are not made again for each of them.
#[derive(Debug, Default)]
pub(crate) struct KnownKeys {
    /// Ascending.
    pub(crate) of: BTreeMap<(EntryId, AttributeNumber, KeyKind), Vec<keys::EntryKey>>,
    count: usize,
    /// The entry whose row was read last.
    pending: Option<(EntryId, Option<pending::Row>)>,
    /// Attributes of whose large sets keys stayed, also when the set or the entry went.
    left: BTreeSet<AttributeNumber>,
}

impl KnownKeys {
    pub(super) fn in_view<N: Snapshot>(view: &View<'_, N>) -> Result<Self, Fault> {
        Ok(Self { left: keys::with_left_keys(view.snapshot)?, ..Self::default() })
    }

    /// Whether a key that no value has is nothing to report: searches look at the entries that it leads to.
    pub(super) fn may_be_left(&self, (number, kind): (AttributeNumber, KeyKind)) -> bool {
        !matches!(kind, KeyKind::Presence | KeyKind::Equality) && self.left.contains(&number)
    }

    pub(crate) fn has<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        id: EntryId,
        (number, kind): (AttributeNumber, KeyKind),
        key: &[u8],
    ) -> Result<bool, Fault> {
        let is_among =
            |keys: &[keys::EntryKey]| keys.binary_search_by(|known| known.as_slice().cmp(key)).is_ok();
        if let Some(known) = self.of.get(&(id, number, kind)) {
            return Ok(is_among(known));
        }
        let (Some(record), Some(row)) = (view.record(id)?, view.catalog.row(number)) else {
            return Ok(false);
        };
        let Ok(reader) = view.reader(id, &record) else { return Ok(false) };
        let Some(stored) = reader.view.get(number)? else { return Ok(false) };
        if stored.form() == Form::Large {
            // Members that are gone leave what their substrings and sounds had (see `index::keys::changes`).
            return match key.get(5..).filter(|_| kind == KeyKind::Equality) {
                Some(member) => values::contains(view.snapshot, id, number, member),
                None => Ok(true),
            };
        }
        let keys = keys::stored_attribute_keys(&view.schema, row, kind.into(), &reader, &stored)?;
        let found = is_among(&keys);
        if keys.len() >= MANY_KEYS {
            if self.count + keys.len() > REMEMBERED_KEYS {
                self.of.clear();
                self.count = 0;
            }
            self.count += keys.len();
            self.of.insert((id, number, kind), keys);
        }
        Ok(found)
    }

    /// Whether the key is gone from the entry, and what is pending will take it from the index.
    pub(super) fn is_leaving<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        id: EntryId,
        (_, kind): (AttributeNumber, KeyKind),
        key: &[u8],
    ) -> Result<bool, Fault> {
        if !pending::is_late(kind) {
            return Ok(false);
        }
        if self.pending.as_ref().is_none_or(|(last, _)| *last != id) {
            self.pending = Some((id, pending::row(view.snapshot, id)?));
        }
        let row = self.pending.as_ref().and_then(|(_, row)| row.as_ref());
        Ok(row.is_some_and(|row| row.says(key) == Some(false)))
    }
}
