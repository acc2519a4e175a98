//! From an owned entry to a write set: record, blobs, large sets. The tree and the indexes are the caller's.

use larix_schema::Schema;
use larix_store::{Direction, KeyRange, Snapshot, SortedRows, TableId, WriteSet};

use super::members::members_of;
use super::{AttributeNumber, Entry, EntryAttribute, EntryId, LargeValues, Members, values};
use crate::catalog::{Catalog, CatalogEdit};
use crate::fault::Fault;
use crate::record::{
    AttributesIter, DIGEST_LENGTH, EntryView, Form, INLINE_COUNT_LIMIT, RecordFlags, RecordWriter,
    StoredValue, ValuesView,
};
use crate::tables::{BLOBS, ENTRIES, VALUES};

/// Where an entry stands.
#[derive(Copy, Clone, Debug)]
pub struct Placement<'a> {
    pub id: EntryId,
    pub parent: EntryId,
    /// The RDN as it is shown; of a suffix, its whole DN.
    pub rdn: &'a str,
    /// The normalized RDN; of a suffix, its whole normalized DN.
    pub normal_rdn: &'a [u8],
}

/// Stores `entry`. `old` is the record that it replaces; its blobs and large sets that are no longer used go. What the schema
/// does not know any more is not in `entry`, and stays as it is in `old`. Answers how many bytes the entry takes before it is
/// packed; members that a large set has already do not count.
pub fn store<S: Snapshot>(
    set: &mut WriteSet,
    snapshot: &S,
    schema: &Schema,
    catalog: &mut CatalogEdit,
    place: Placement<'_>,
    old: Option<&EntryView<'_>>,
    entry: &Entry,
) -> Result<u64, Fault> {
    let flags = flags(schema, catalog, old, entry);
    let mut writer = RecordWriter::new(place.parent, place.rdn, place.normal_rdn, flags);
    let mut blobs: Vec<([u8; DIGEST_LENGTH], &[u8])> = Vec::new();
    let mut bytes = 0;
    // Only what has something outside has large sets: of most entries no attribute is looked for in the old record.
    let outside = old.filter(|old| old.flags().has(RecordFlags::OUTSIDE));
    let mut stored_ones = old.map(EntryView::attributes);
    for attribute in entry.attributes.iter().filter(|a| a.count() > 0) {
        if let Some(unchanged) = attribute.unchanged {
            let stored = find_stored(old, &mut stored_ones, unchanged.number)?;
            writer.unchanged_attribute(unchanged.number, &stored);
            continue;
        }
        let number = catalog.number(schema, &attribute.description);
        let stored = match outside {
            Some(old) => old.get(number)?.is_some_and(|values| values.form() == Form::Large),
            None => false,
        };
        let as_set = LargeSet { snapshot, entry: place.id, number, is_stored: stored };
        if let Some(changes) = &attribute.large {
            match changes.whole() {
                Some(members) => bytes += as_set.put(set, members, changes.count())?,
                None => change_large(set, place.id, number, changes),
            }
            writer.large_attribute(number, changes.count());
        } else if let Some(members) = large_members(schema, catalog.catalog(), number, attribute) {
            writer.large_attribute(number, members.len());
            bytes += as_set.put(set, members.iter(), members.len())?;
        } else {
            if stored {
                clear_large(set, snapshot, place.id, number)?;
            }
            let inline = attribute.values.iter().map(Vec::as_slice);
            writer.attribute(number, inline, |digest, value| {
                bytes += value.len();
                blobs.push((digest, value));
            });
        }
    }
    if let Some(old) = old {
        keep_unknown(&mut writer, catalog.catalog(), old)?;
    }
    if let Some(old) = outside {
        clear_unused(set, snapshot, catalog.catalog(), old, entry, &mut blobs)?;
    }
    for (digest, value) in blobs {
        set.put(BLOBS, &values::blob_key(place.id, &digest), value);
    }
    let record = writer.finish();
    bytes += record.len();
    let packed = catalog.catalog().dictionaries().packed(record);
    set.put(ENTRIES, &place.id.to_bytes(), packed);
    Ok(bytes as u64)
}

/// Whether the schema no longer has the type of an attribute, or an option of it.
fn is_unknown(catalog: &Catalog, number: AttributeNumber) -> bool {
    catalog.row(number).is_none_or(|row| row.description.is_none())
}

/// Writes the attributes of the old record that no entry in memory can have.
fn keep_unknown(writer: &mut RecordWriter, catalog: &Catalog, old: &EntryView<'_>) -> Result<(), Fault> {
    for attribute in old.attributes() {
        let (number, stored) = attribute?;
        if is_unknown(catalog, number) {
            writer.unchanged_attribute(number, &stored);
        }
    }
    Ok(())
}

/// The stored values of an attribute that is kept. Those come in the order of the old record: `rest` has what follows the
/// last one.
fn find_stored<'o>(
    old: Option<&EntryView<'o>>,
    rest: &mut Option<AttributesIter<'o>>,
    number: AttributeNumber,
) -> Result<ValuesView<'o>, Fault> {
    for attribute in rest.iter_mut().flatten() {
        let (found, values) = attribute?;
        if found == number {
            return Ok(values);
        }
    }
    let values = old.map(|old| old.get(number)).transpose()?.flatten();
    values.ok_or(Fault::Damaged { what: "an attribute that was to stay as it is" })
}

/// Removes the record and all that lives outside of it.
pub fn remove<S: Snapshot>(set: &mut WriteSet, snapshot: &S, old: &EntryView<'_>) -> Result<(), Fault> {
    set.delete(ENTRIES, &old.id().to_bytes());
    if old.flags().has(RecordFlags::OUTSIDE) {
        for table in [VALUES, BLOBS] {
            clear(set, snapshot, table, &old.id().to_bytes())?;
        }
    }
    Ok(())
}

/// What the object classes say about the entry as a whole. As long as they are the same, so is that.
fn flags(
    schema: &Schema,
    catalog: &mut CatalogEdit,
    old: Option<&EntryView<'_>>,
    entry: &Entry,
) -> RecordFlags {
    let object_class = schema.attribute_type("objectClass").map(|object_class| object_class.id);
    let classes = object_class.map_or(&[][..], |object_class| entry.values(object_class));
    // Classes that are left where they are were not read.
    let is_kept = entry.attributes.iter().any(|attribute| {
        attribute.unchanged.is_some() && object_class == Some(attribute.description.attribute)
    });
    if let Some(old) = old
        && let Some(number) = catalog.catalog().object_class()
        && let Ok(Some(stored)) = old.get(number)
        && (is_kept || are_same(&stored, classes))
    {
        return RecordFlags(old.flags().0 & RecordFlags::OF_CLASSES);
    }
    catalog.class_flags(classes, |classes| flags_of(schema, classes))
}

fn flags_of(schema: &Schema, classes: &[Vec<u8>]) -> RecordFlags {
    let mut flags = RecordFlags::default();
    let general = [
        ("alias", RecordFlags::ALIAS),
        ("referral", RecordFlags::REFERRAL),
        ("subentry", RecordFlags::SUBENTRY),
        ("glue", RecordFlags::GLUE),
    ]
    .map(|(name, flag)| (schema.object_class(name).map(|class| class.id), flag));
    for value in classes {
        let Some(class) = std::str::from_utf8(value).ok().and_then(|name| schema.object_class(name)) else {
            continue;
        };
        for (general, flag) in general {
            if general.is_some_and(|general| schema.is_subclass(class.id, general)) {
                flags.set(flag, true);
            }
        }
    }
    flags
}

fn are_same(stored: &ValuesView<'_>, values: &[Vec<u8>]) -> bool {
    let is_inline = |stored: StoredValue<'_>, value: &[u8]| match stored {
        StoredValue::Inline(stored) => stored == value,
        StoredValue::Blob { .. } => false,
    };
    stored.form() == Form::Inline
        && stored.len() == values.len() as u64
        && stored
            .iter()
            .zip(values)
            .all(|(stored, value)| stored.is_ok_and(|stored| is_inline(stored, value)))
}

/// The members of an attribute that has too many values for the record; `None` when it stays there.
fn large_members(
    schema: &Schema,
    catalog: &Catalog,
    number: AttributeNumber,
    attribute: &EntryAttribute,
) -> Option<Members> {
    if attribute.values.len() <= INLINE_COUNT_LIMIT {
        return None;
    }
    let description = catalog.row(number)?.description.as_ref()?;
    members_of(schema, schema.attribute(description.attribute), &attribute.values)
}

/// A large set of an entry, of which all members are known.
struct LargeSet<'s, S> {
    snapshot: &'s S,
    entry: EntryId,
    number: AttributeNumber,
    /// The store has such a set already.
    is_stored: bool,
}

impl<S: Snapshot> LargeSet<'_, S> {
    /// Gives the set these `count` members, which ascend, and no others. Answers how many bytes their values have.
    fn put<'m>(
        &self,
        set: &mut WriteSet,
        members: impl Iterator<Item = (&'m [u8], &'m [u8])>,
        count: u64,
    ) -> Result<usize, Fault> {
        let prefix = values::set_key(self.entry, self.number, &[]);
        let count = usize::try_from(count).unwrap_or_default();
        let mut rows = SortedRows::with_capacity(count, count * USUAL_ROW_BYTES);
        let mut bytes = 0;
        let mut members = members.inspect(|(_, value)| bytes += value.len()).peekable();
        if self.is_stored {
            for row in self.snapshot.scan(VALUES, KeyRange::prefix(&prefix), Direction::Forward)? {
                let (key, stored) = row?;
                let old = key.get(prefix.len()..).unwrap_or_default();
                while let Some((member, value)) = members.next_if(|(member, _)| *member < old) {
                    rows.push(&prefix, member, Some(value));
                }
                match members.next_if(|(member, _)| *member == old) {
                    Some((_, value)) if value == &*stored => {}
                    Some((_, value)) => rows.push(&prefix, old, Some(value)),
                    None => rows.push(&prefix, old, None),
                }
            }
        }
        for (member, value) in members {
            rows.push(&prefix, member, Some(value));
        }
        set.set_rows(VALUES, rows);
        Ok(bytes)
    }
}

/// Room for the key and the value of most members.
const USUAL_ROW_BYTES: usize = 96;

fn change_large(set: &mut WriteSet, entry: EntryId, number: AttributeNumber, changes: &LargeValues) {
    for member in &changes.removed {
        set.delete(VALUES, &values::set_key(entry, number, member));
    }
    for (member, value) in &changes.added {
        set.put(VALUES, &values::set_key(entry, number, member), value.as_slice());
    }
}

fn clear_large<S: Snapshot>(
    set: &mut WriteSet,
    snapshot: &S,
    entry: EntryId,
    number: AttributeNumber,
) -> Result<(), Fault> {
    clear(set, snapshot, VALUES, &values::set_key(entry, number, &[]))
}

/// Removes all records of a table whose keys begin so.
fn clear<S: Snapshot>(set: &mut WriteSet, snapshot: &S, table: TableId, prefix: &[u8]) -> Result<(), Fault> {
    let mut rows = SortedRows::default();
    for row in snapshot.scan(table, KeyRange::prefix(prefix), Direction::Forward)? {
        rows.push(&row?.0, &[], None);
    }
    set.set_rows(table, rows);
    Ok(())
}

/// Removes what `old` had outside and `entry` does not have; keeps blobs that are there already from being rewritten.
fn clear_unused<S: Snapshot>(
    set: &mut WriteSet,
    snapshot: &S,
    catalog: &Catalog,
    old: &EntryView<'_>,
    entry: &Entry,
    blobs: &mut Vec<([u8; DIGEST_LENGTH], &[u8])>,
) -> Result<(), Fault> {
    let (mut before, mut kept) = (Vec::<[u8; DIGEST_LENGTH]>::new(), Vec::new());
    for attribute in old.attributes() {
        let (number, stored) = attribute?;
        let stays = is_unknown(catalog, number);
        match stored.form() {
            Form::Inline => {}
            Form::Large if stays => {}
            Form::Large => {
                let remains = entry
                    .attributes
                    .iter()
                    .any(|a| a.count() > 0 && catalog.number(&a.description) == Some(number));
                if !remains {
                    clear_large(set, snapshot, old.id(), number)?;
                }
            }
            Form::Mixed => {
                let digests = if stays { &mut kept } else { &mut before };
                for value in stored.iter() {
                    if let StoredValue::Blob { digest, .. } = value? {
                        digests.push(*digest);
                    }
                }
            }
        }
    }
    for digest in &before {
        if !kept.contains(digest) && !blobs.iter().any(|(remaining, _)| remaining == digest) {
            set.delete(BLOBS, &values::blob_key(old.id(), digest));
        }
    }
    blobs.retain(|(digest, _)| !before.contains(digest));
    Ok(())
}
