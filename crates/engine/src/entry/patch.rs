//! What a usual modify does to a record: a few attributes change, and all else is copied as the bytes that stand there.
//!
//! Whatever does not stand in the record itself is not for this: blobs and large sets go the long way, by an [`Entry`] with
//! all of its attributes.
//!
//! [`Entry`]: super::Entry

use std::ops::Range;

use larix_schema::{AttributeDescription, Schema};
use larix_store::WriteSet;
use smallvec::SmallVec;

use super::{AttributeNumber, EntryAttribute, Record};
use crate::catalog::{Catalog, CatalogEdit, CatalogRow};
use crate::fault::Fault;
use crate::record::{
    EntryView, Form, INLINE_COUNT_LIMIT, INLINE_VALUE_LIMIT, RDN_IN_RECORD, RecordError, RecordFlags,
    RecordWriter, StoredValue, ValuesView,
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

/// Says what becomes of the attributes of a record, while that is read.
pub(crate) trait Touches {
    /// Whether the attribute stays as it is, with so many values, whatever they are. It is passed over then, and
    /// [`touch`](Self::touch) is asked about any other one.
    fn keeps(&mut self, row: &CatalogRow, values: u64) -> bool;

    /// What becomes of an attribute. `None` ends the reading.
    fn touch(&mut self, row: &CatalogRow, stored: &ValuesView<'_>) -> Option<Touch>;
}

/// What stands in the place of the attributes that were loaded or dropped.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each stands alone on the stack of a change, never in a list")]
pub(crate) enum After<'c> {
    /// First what was loaded, in the order of the record, then what is new.
    Edited(Vec<EntryAttribute>),
    /// All changes replace, each another attribute: what they say is what comes, in their order.
    Replaced(SmallVec<[Replacement<'c>; 8]>),
}

/// An attribute, its number if it has one already, and what comes in the place of its values.
type Replacement<'c> = (&'c AttributeDescription, Option<AttributeNumber>, &'c [Vec<u8>]);

/// An attribute of the next record that changed.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ChangedAttribute<'p> {
    pub(crate) description: &'p AttributeDescription,
    /// None: it was not looked up, or has none yet.
    number: Option<AttributeNumber>,
    /// Never empty.
    pub(crate) values: &'p [Vec<u8>],
    /// Where it began in the stored record, if it was loaded.
    place: Option<u32>,
    is_large: bool,
}

impl<'p> ChangedAttribute<'p> {
    fn edited(attribute: &'p EntryAttribute) -> Self {
        let EntryAttribute { description, values, large, place, .. } = attribute;
        Self { description, number: None, values, place: *place, is_large: large.is_some() }
    }

    fn replaced((description, number, values): Replacement<'p>) -> Self {
        Self { description, number, values, place: None, is_large: false }
    }

    /// The same for who reads attributes of an entry.
    pub(crate) fn to_attribute(self) -> EntryAttribute {
        EntryAttribute::new(self.description.clone(), self.values.to_vec())
    }
}

impl Default for After<'_> {
    fn default() -> Self {
        Self::Edited(Vec::new())
    }
}

/// A stored entry in which a few attributes change. It is large: who makes one has it filled where it stands.
#[derive(Debug, Default)]
pub(crate) struct Patch<'r, 'c> {
    pub(crate) after: After<'c>,
    /// The bytes of the attributes that stay, joined where they follow each other.
    unchanged: SmallVec<[Range<usize>; 8]>,
    /// Those that were loaded or dropped, as they were.
    pub(crate) touched: SmallVec<[(AttributeNumber, ValuesView<'r>); 8]>,
}

impl<'r, 'c> Patch<'r, 'c> {
    /// Reads a record, once. Where `touches` ends that, and for a record that has something outside, there is no patch, and the
    /// answer is false.
    ///
    /// # Errors
    /// A damaged record.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        catalog: &Catalog,
        view: &EntryView<'r>,
        touches: &mut impl Touches,
    ) -> Result<bool, RecordError> {
        if view.flags().has(RecordFlags::OUTSIDE) {
            return Ok(false);
        }
        let length = view.attribute_bytes().len();
        let mut loads = Vec::new();
        let mut attributes = view.attributes();
        // Where the run begins of what stays.
        let mut run = 0;
        loop {
            // Nearly all stay, and need not be read for it.
            while let Some(short) = attributes.short()
                && let Some(row) = catalog.row(short.number)
                && touches.keeps(row, short.count)
            {
                attributes.pass(&short);
            }
            let begin = length - attributes.rest();
            let (number, stored) = match attributes.next_short() {
                Some(attribute) => attribute,
                None => match attributes.next() {
                    Some(attribute) => attribute?,
                    None => break,
                },
            };
            let end = length - attributes.rest();
            let row = catalog.row(number).filter(|_| stored.form() == Form::Inline);
            let Some((row, touched)) = row.and_then(|row| Some((row, touches.touch(row, &stored)?))) else {
                return Ok(false);
            };
            if touched != Touch::Keep {
                if touched == Touch::Load {
                    let Some(loaded) = loaded(row, &stored, begin)? else { return Ok(false) };
                    loads.push(loaded);
                }
                self.touched.push((number, stored));
                if run < begin {
                    self.unchanged.push(run..begin);
                }
                run = end;
            }
        }
        if run < length {
            self.unchanged.push(run..length);
        }
        self.after = After::Edited(loads);
        Ok(true)
    }

    /// What changed, but for attributes that have gone.
    pub(crate) fn changed(&self) -> impl Iterator<Item = ChangedAttribute<'_>> {
        let (edited, replaced) = match &self.after {
            After::Edited(attributes) => (attributes.as_slice(), &[][..]),
            After::Replaced(changes) => (&[][..], changes.as_slice()),
        };
        let edited = edited.iter().map(ChangedAttribute::edited);
        let all = edited.chain(replaced.iter().copied().map(ChangedAttribute::replaced));
        all.filter(|changed| !changed.values.is_empty() || changed.is_large)
    }

    /// Whether all that changed still has its place in the record.
    pub(crate) fn fits(&self) -> bool {
        self.changed().all(|attribute| {
            !attribute.is_large
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
        let head = RDN_IN_RECORD..writer.written().len();
        let is_head_alike = record.get(head.clone()) == writer.written().get(head.clone());
        let stored = |piece: &Range<usize>| {
            let damaged = Fault::Damaged { what: "a record that was read before" };
            view.attribute_bytes().get(piece.clone()).ok_or(damaged)
        };
        let mut unchanged = self.unchanged.iter().peekable();
        for attribute in self.changed() {
            let is_before =
                |piece: &&Range<usize>| attribute.place.is_none_or(|place| piece.start < place as usize);
            while let Some(piece) = unchanged.next_if(is_before) {
                writer.unchanged_bytes(stored(piece)?);
            }
            let number = match attribute.number {
                Some(number) => number,
                None => catalog.number(schema, attribute.description),
            };
            // None is long enough for a blob.
            writer.attribute(number, attribute.values.iter().map(Vec::as_slice), |_, _| ());
        }
        for piece in unchanged {
            writer.unchanged_bytes(stored(piece)?);
        }
        let changed = writer.finish();
        let bytes = changed.len() as u64;
        let alike = match self.unchanged.first() {
            Some(piece) if is_head_alike && piece.start == 0 => head.end + piece.end,
            _ => 0,
        };
        let packed = catalog.catalog().dictionaries().packed_over(changed, Some((record, alike)));
        set.put(ENTRIES, &view.id().to_bytes(), packed);
        Ok(bytes)
    }

    /// The new values of an attribute that was touched; none when it has gone.
    pub(crate) fn attribute(&self, row: &CatalogRow) -> Option<EntryAttribute> {
        let description = row.description.as_ref()?;
        self.changed().find(|changed| changed.description == description).map(ChangedAttribute::to_attribute)
    }

    /// Attributes that the record did not have.
    pub(crate) fn new_ones<'p>(
        &'p self,
        catalog: &'p Catalog,
    ) -> impl Iterator<Item = (&'p CatalogRow, ChangedAttribute<'p>)> {
        let numbered = self.changed().filter_map(move |changed| {
            let number = changed.number.or_else(|| catalog.number(changed.description))?;
            Some((catalog.row(number)?, changed))
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
