//! Whether any entry uses an attribute type, an option or an object class that is to leave the schema.

use std::borrow::Cow;
use std::ops::Bound;

use larix_schema::ObjectClassId;
use larix_store::{Direction, KeyRange, PostingCursor, Snapshot, Store};

use crate::database::{Database, View};
use crate::entry::record::StoredValue;
use crate::entry::{AttributeNumber, EntryId, EntryView};
use crate::fault::Fault;
use crate::index::Kinds;
use crate::index::key::{self, KeyKind};
use crate::tables::{ENTRIES, INDEX};
use crate::write::RetiringDefinitions;

/// Entries looked at under one snapshot.
const SLICE: usize = 1_024;

/// An entry that uses an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaUse {
    /// The attribute type's or object class's name, or the description with the option.
    pub element: String,
    /// The DN of an entry that has it.
    pub dn: String,
}

/// The elements that entries have to be looked at for.
#[derive(Debug, Default)]
struct Elements {
    attributes: Vec<(AttributeNumber, String)>,
    classes: Vec<ObjectClassId>,
}

impl<S: Store> Database<S> {
    /// An entry that uses one of these elements, if there is any. Costs nothing for attributes that no entry ever had;
    /// a look at the index for those that are indexed by presence or, classes, by equality; else all entries are read.
    ///
    /// The writer must know before that they are to go, so that the answer still holds when it is given.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub fn schema_use(&self, retiring: &RetiringDefinitions) -> Result<Option<SchemaUse>, Fault> {
        let mut elements = Elements::default();
        {
            let snapshot = self.store().snapshot()?;
            let view = self.view(&snapshot)?;
            if let Some(found) = by_index(&view, retiring, &mut elements)? {
                return Ok(Some(found));
            }
        }
        if elements.attributes.is_empty() && elements.classes.is_empty() {
            return Ok(None);
        }
        let mut next = Some(EntryId(1));
        while let Some(from) = next {
            let snapshot = self.store().snapshot()?;
            let view = self.view(&snapshot)?;
            match by_reading(&view, from, &elements)? {
                ReadOutcome::Found(found) => return Ok(Some(found)),
                ReadOutcome::On(at) => next = at,
            }
        }
        Ok(None)
    }
}

/// What the catalog and complete indexes know; what they do not goes to `elements`.
fn by_index<N: Snapshot>(
    view: &View<'_, N>,
    retiring: &RetiringDefinitions,
    elements: &mut Elements,
) -> Result<Option<SchemaUse>, Fault> {
    for row in view.catalog.rows() {
        let going = row.description.as_ref().filter(|description| retiring.takes(description));
        let Some(attribute) = going.map(|description| description.attribute) else { continue };
        let name = match retiring.attributes.contains(&attribute) {
            true => view.schema.attribute(attribute).name(),
            false => &*row.text,
        };
        if !row.usable().has(Kinds::PRESENCE) {
            elements.attributes.push((row.number, name.to_owned()));
            continue;
        }
        if let Some(id) = first(view, &key::make(row.number, KeyKind::Presence, b""))? {
            return named(view, id, name).map(Some);
        }
    }
    let row = view.catalog.object_class().and_then(|number| view.catalog.row(number));
    // Without objectClass there is no entry.
    let Some(row) = row else { return Ok(None) };
    for class in &retiring.classes {
        if !row.usable().has(Kinds::EQUALITY) {
            elements.classes.push(*class);
            continue;
        }
        let class = view.schema.class(*class);
        if let Some(id) = first(view, &key::make(row.number, KeyKind::Equality, class.oid.as_bytes()))? {
            return named(view, id, class.name()).map(Some);
        }
    }
    Ok(None)
}

fn first<N: Snapshot>(view: &View<'_, N>, key: &[u8]) -> Result<Option<EntryId>, Fault> {
    if view.snapshot.posting_estimate(INDEX, key)? == 0 {
        return Ok(None);
    }
    let mut cursor = view.snapshot.postings(INDEX, key)?;
    Ok(cursor.next()?.map(EntryId))
}

/// What came of looking at some entries.
enum ReadOutcome {
    Found(SchemaUse),
    /// Where to go on, if there are more.
    On(Option<EntryId>),
}

fn by_reading<N: Snapshot>(
    view: &View<'_, N>,
    from: EntryId,
    elements: &Elements,
) -> Result<ReadOutcome, Fault> {
    let start = from.to_bytes();
    let range = KeyRange { start: Bound::Included(Cow::Borrowed(&start)), ..KeyRange::all() };
    let classes = view.catalog.object_class();
    for (looked, row) in view.snapshot.scan(ENTRIES, range, Direction::Forward)?.enumerate() {
        let (key, stored) = row?;
        let damaged = || Fault::Damaged { what: "an entry id" };
        let id = EntryId(u64::from_be_bytes(key.as_ref().try_into().map_err(|_| damaged())?));
        if looked >= SLICE {
            return Ok(ReadOutcome::On(Some(id)));
        }
        let record = view.unpacked(id, stored)?;
        let entry = EntryView::parse(id, &record)?;
        for (number, name) in &elements.attributes {
            if entry.get(*number)?.is_some() {
                return named(view, id, name).map(ReadOutcome::Found);
            }
        }
        let values = classes.filter(|_| !elements.classes.is_empty()).map(|number| entry.get(number));
        for value in values.transpose()?.flatten().into_iter().flat_map(|values| values.iter()) {
            // Names of classes are never so long that they are stored elsewhere.
            let StoredValue::Inline(name) = value? else { continue };
            let class = std::str::from_utf8(name).ok().and_then(|name| view.schema.object_class(name));
            if let Some(class) = class.filter(|class| elements.classes.contains(&class.id)) {
                return named(view, id, class.name()).map(ReadOutcome::Found);
            }
        }
    }
    Ok(ReadOutcome::On(None))
}

fn named<N: Snapshot>(view: &View<'_, N>, id: EntryId, element: &str) -> Result<SchemaUse, Fault> {
    let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
    let dn = view.dn(&EntryView::parse(id, &record)?)?;
    Ok(SchemaUse { element: element.to_owned(), dn })
}

#[cfg(test)]
mod tests {
    use larix_schema::AttributeOptions;

    use super::*;
    use crate::fixture::{Fixture, schema};

    const LDIF: &str = "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n\n\
        dn: cn=ann,dc=example,dc=com\nobjectClass: person\nobjectClass: uidObject\ncn: ann\nsn: a\nuid: ann\n\
        telephoneNumber;lang-en: 1\n\ndn: cn=bob,dc=example,dc=com\nobjectClass: person\ncn: bob\nsn: b\n";

    #[test]
    fn what_entries_have_is_found_with_indexes_and_without() {
        let check =
            |lines: &[(&str, &str)], attributes: &[&str], classes: &[&str], want: Option<(&str, &str)>| {
                let fixture = Fixture::memory(lines, LDIF);
                let schema = schema();
                let retiring = RetiringDefinitions {
                    attributes: attributes
                        .iter()
                        .map(|name| schema.attribute_type(name).expect(name).id)
                        .collect(),
                    classes: classes.iter().map(|name| schema.object_class(name).expect(name).id).collect(),
                    options: None,
                };
                let found = fixture.database.schema_use(&retiring).expect("no fault");
                let found = found.as_ref().map(|found| (found.element.as_str(), found.dn.as_str()));
                assert_eq!(found, want, "{lines:?} {attributes:?} {classes:?}");
            };
        let ann = "cn=ann,dc=example,dc=com";
        for lines in [&[][..], &[("objectClass", "eq"), ("uid,telephoneNumber,mail", "pres,eq")]] {
            check(lines, &["mail"], &["organization"], None);
            check(lines, &["uid"], &[], Some(("uid", ann)));
            check(lines, &["mail", "telephoneNumber"], &[], Some(("telephoneNumber", ann)));
            check(lines, &[], &["uidObject"], Some(("uidObject", ann)));
            check(lines, &["mail"], &["organization", "domain"], Some(("domain", "dc=example,dc=com")));
        }
    }

    #[test]
    fn an_option_that_an_entry_has_is_found() {
        let fixture = Fixture::memory(&[], LDIF);
        let user = |options: AttributeOptions| {
            let retiring = RetiringDefinitions { options: Some(options), ..RetiringDefinitions::default() };
            fixture.database.schema_use(&retiring).expect("no fault")
        };
        assert_eq!(user(AttributeOptions::default()), None);
        let found = user(AttributeOptions::none()).expect("an entry");
        let expected = ("telephoneNumber;lang-en", "cn=ann,dc=example,dc=com");
        assert_eq!((found.element.as_str(), found.dn.as_str()), expected);
    }

    #[test]
    fn what_was_removed_is_free_again() {
        let fixture = Fixture::memory(&[("objectClass", "eq")], LDIF);
        let attributes = vec![schema().attribute_type("uid").expect("uid").id];
        let retiring = RetiringDefinitions { attributes, ..RetiringDefinitions::default() };
        assert!(fixture.database.schema_use(&retiring).expect("no fault").is_some());
        fixture.delete("cn=ann,dc=example,dc=com");
        assert_eq!(fixture.database.schema_use(&retiring).expect("no fault"), None);
    }
}
