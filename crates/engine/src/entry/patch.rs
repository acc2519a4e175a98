//! What a usual modify does to a record: a few attributes change, and all else is copied as the bytes that stand there.
//!
//! Whatever does not stand in the record itself is not for this: blobs and large sets go the long way, by an [`Entry`] with
//! all of its attributes.

use std::ops::Range;

use larix_schema::Schema;
use larix_store::WriteSet;
use smallvec::SmallVec;

use super::{AttributeNumber, Entry, EntryAttribute, Record};
use crate::catalog::{Catalog, CatalogEdit, CatalogRow};
use crate::fault::Fault;
use crate::record::{
    EntryView, Form, INLINE_COUNT_LIMIT, INLINE_VALUE_LIMIT, RecordError, RecordFlags, RecordWriter,
    StoredValue, ValuesView,
};
use crate::tables::ENTRIES;

/// What becomes of an attribute of the stored record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// It stays as it is.
    Keep,
    /// It is looked at, and may change.
    Load,
    /// All of its values go.
    Drop,
}

/// A stored entry in which a few attributes change.
#[derive(Debug)]
pub(crate) struct Patch<'r> {
    /// What changes: first what was loaded, in the order of the record, then what is new.
    pub(crate) entry: Entry,
    /// The bytes of the attributes that stay, joined where they follow each other.
    kept: SmallVec<[Range<usize>; 8]>,
    /// Those that were loaded or dropped, as they were.
    pub(crate) touched: SmallVec<[(AttributeNumber, ValuesView<'r>); 8]>,
}

impl<'r> Patch<'r> {
    /// Reads a record. `touch` says of each attribute what becomes of it, and ends the reading with `None`: then, and for a
    /// record that has something outside, there is no patch.
    ///
    /// # Errors
    /// A damaged record.
    pub(crate) fn read(
        catalog: &Catalog,
        view: &EntryView<'r>,
        dn: String,
        mut touch: impl FnMut(&CatalogRow, &ValuesView<'r>) -> Option<Touch>,
    ) -> Result<Option<Self>, RecordError> {
        if view.flags().has(RecordFlags::OUTSIDE) {
            return Ok(None);
        }
        let length = view.attribute_bytes().len();
        let mut patch = Self { entry: Entry::new(dn), kept: SmallVec::new(), touched: SmallVec::new() };
        let mut attributes = view.attributes();
        loop {
            let begin = length - attributes.rest();
            let (number, stored) = match attributes.next_short() {
                Some(attribute) => attribute,
                None => match attributes.next() {
                    Some(attribute) => attribute?,
                    None => return Ok(Some(patch)),
                },
            };
            let end = length - attributes.rest();
            let row = catalog.row(number).filter(|_| stored.form() == Form::Inline);
            let Some((row, touched)) = row.and_then(|row| Some((row, touch(row, &stored)?))) else {
                return Ok(None);
            };
            match (touched, patch.kept.last_mut()) {
                (Touch::Keep, Some(last)) if last.end == begin => last.end = end,
                (Touch::Keep, _) => patch.kept.push(begin..end),
                (Touch::Drop, _) => patch.touched.push((number, stored)),
                (Touch::Load, _) => {
                    let Some(loaded) = loaded(row, &stored, begin)? else { return Ok(None) };
                    patch.entry.attributes.push(loaded);
                    patch.touched.push((number, stored));
                }
            }
        }
    }

    /// Whether all that changed still has its place in the record.
    pub(crate) fn fits(&self) -> bool {
        self.entry.attributes.iter().all(|attribute| {
            attribute.large.is_none()
                && attribute.values.len() <= INLINE_COUNT_LIMIT
                && attribute.values.iter().all(|value| value.len() <= INLINE_VALUE_LIMIT)
        })
    }

    /// Stores the changed entry in the place of `old`, under the same name. Answers how many bytes it takes before it is packed.
    ///
    /// # Errors
    /// A damaged record.
    pub(crate) fn store(
        &self,
        set: &mut WriteSet,
        schema: &Schema,
        catalog: &mut CatalogEdit,
        (view, record): (&EntryView<'r>, &Record<'_>),
    ) -> Result<u64, Fault> {
        // The object classes stay as they are, and with them what they say.
        let flags = RecordFlags(view.flags().0 & RecordFlags::OF_CLASSES);
        let mut writer = RecordWriter::of_octets(view.parent(), view.rdn_octets(), view.normal_rdn(), flags);
        let stored = |piece: &Range<usize>| {
            let damaged = Fault::Damaged { what: "a record that was read before" };
            view.attribute_bytes().get(piece.clone()).ok_or(damaged)
        };
        let mut kept = self.kept.iter().peekable();
        for attribute in self.entry.attributes.iter().filter(|attribute| !attribute.values.is_empty()) {
            let is_before =
                |piece: &&Range<usize>| attribute.place.is_none_or(|place| piece.start < place as usize);
            while let Some(piece) = kept.next_if(is_before) {
                writer.unchanged_bytes(stored(piece)?);
            }
            let number = catalog.number(schema, &attribute.description);
            // None is long enough for a blob.
            writer.attribute(number, attribute.values.iter().map(Vec::as_slice), |_, _| ());
        }
        for piece in kept {
            writer.unchanged_bytes(stored(piece)?);
        }
        let changed = writer.finish();
        let bytes = changed.len() as u64;
        let packed = catalog.catalog().dictionaries().packed_over(changed, Some(record));
        set.put(ENTRIES, &view.id().to_bytes(), packed);
        Ok(bytes)
    }

    /// The new values of an attribute that was touched; none when it has gone.
    pub(crate) fn attribute(&self, row: &CatalogRow) -> Option<&EntryAttribute> {
        self.entry.attribute(row.description.as_ref()?)
    }

    /// Attributes that the record did not have.
    pub(crate) fn new_ones<'p>(
        &'p self,
        catalog: &'p Catalog,
    ) -> impl Iterator<Item = (&'p CatalogRow, &'p EntryAttribute)> {
        let numbered = self.entry.attributes.iter().filter_map(move |attribute| {
            Some((catalog.row(catalog.number(&attribute.description)?)?, attribute))
        });
        numbered.filter(move |(row, _)| !self.touched.iter().any(|(number, _)| *number == row.number))
    }
}

/// An attribute that may change, with its place in the record. `None` for what is not known or not whole.
fn loaded(
    row: &CatalogRow,
    stored: &ValuesView<'_>,
    place: usize,
) -> Result<Option<EntryAttribute>, RecordError> {
    let (Some(description), Ok(place)) = (row.description.clone(), u32::try_from(place)) else {
        return Ok(None);
    };
    let mut attribute = EntryAttribute::new(description, Vec::new());
    attribute.place = Some(place);
    for value in stored.iter() {
        match value? {
            StoredValue::Inline(value) => attribute.values.push(value.to_vec()),
            StoredValue::Blob { .. } => return Ok(None),
        }
    }
    Ok(Some(attribute))
}
