//! Who refers to whom: entries that have the names of others as values.

use std::collections::BTreeMap;

use larix_schema::{AttributeDescription, NormalDn};
use larix_store::{Direction, KeyRange, Snapshot};

use super::failure::Failure;
use super::prepare::refuse;
use crate::database::View;
use crate::entry::record::{Form, ValuesView};
use crate::entry::{AttributeNumber, EntryId, EntryReader, EntryView, values};
use crate::fault::Fault;
use crate::index::{KeyKind, Kinds, key};
use crate::plan::Plan;
use crate::plugins::{Name, Reference, Referrer};
use crate::tables::ENTRIES;
use crate::tree;

/// Entries whose references are looked for at once: those of a subtree that is renamed or deleted.
pub const NAMES_LIMIT: usize = 1_000_000;

/// The names of an entry and of all below it, superiors first; of none where there is no entry.
pub(super) fn names_within<V: Snapshot>(view: &View<'_, V>, dn: &NormalDn) -> Result<Vec<Name>, Failure> {
    let Some(top) = view.resolve(dn)?.and_then(|resolved| resolved.id) else { return Ok(Vec::new()) };
    let ids = tree::subtree(view.snapshot, top, NAMES_LIMIT + 1)?;
    if ids.len() > NAMES_LIMIT {
        let text = format!("references to more than {NAMES_LIMIT} entries at once");
        return Err(refuse(larix_proto::ResultCode::ADMIN_LIMIT_EXCEEDED, text).into());
    }
    let mut names = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(stored) = view.stored(id)? else { continue };
        let entry = EntryView::parse(id, &stored)?;
        names.push(Name { normal: view.names.normal_dn(&entry)?, shown: view.dn(&entry)? });
    }
    Ok(names)
}

/// One of the attributes that are looked through.
struct Column<'a> {
    attribute: &'a AttributeDescription,
    number: AttributeNumber,
}

/// Attribute and name, both by their place in the lists that were given.
type Hits = BTreeMap<EntryId, Vec<(usize, usize)>>;

/// The entries that have any of the names in any of the attributes, by the equality index, or where there is none by
/// looking through all entries once.
pub(super) fn referrers<V: Snapshot>(
    view: &View<'_, V>,
    attributes: &[AttributeDescription],
    names: &[Name],
) -> Result<Vec<Referrer>, Failure> {
    let mut columns = Vec::with_capacity(attributes.len());
    for attribute in attributes {
        // What has no number no entry has.
        let Some(number) = view.catalog.number(attribute) else { continue };
        if columns.iter().all(|column: &Column<'_>| column.number != number) {
            columns.push(Column { attribute, number });
        }
    }
    let mut hits = Hits::new();
    let mut unindexed = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let row = view.catalog.row(column.number);
        if !row.is_some_and(|row| row.usable().has(Kinds::EQUALITY) && row.equality.is_some()) {
            unindexed.push(at);
            continue;
        }
        for (place, name) in names.iter().enumerate() {
            let key = key::make(column.number, KeyKind::Equality, name.normal.as_str().as_bytes());
            let found = Plan::of_key(view.snapshot, key)?.into_candidates(view.snapshot)?.ids;
            let mut ids: Vec<EntryId> = Vec::new();
            found.read_after(EntryId::ROOT, usize::MAX, &mut ids);
            ids.into_iter().for_each(|id| hits.entry(id).or_default().push((at, place)));
        }
    }
    if !unindexed.is_empty() {
        scan(view, &columns, &unindexed, names, &mut hits)?;
    }
    let mut referrers = Vec::with_capacity(hits.len());
    for (id, mut found) in hits {
        found.sort_unstable();
        referrers.extend(referrer(view, &columns, (id, &found), names)?);
    }
    Ok(referrers)
}

/// Looks through all entries.
fn scan<V: Snapshot>(
    view: &View<'_, V>,
    columns: &[Column<'_>],
    unindexed: &[usize],
    names: &[Name],
    hits: &mut Hits,
) -> Result<(), Fault> {
    let wanted: foldhash::HashMap<&[u8], usize> =
        names.iter().enumerate().map(|(at, name)| (name.normal.as_str().as_bytes(), at)).collect();
    let mut normal = Vec::new();
    for row in view.snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward)? {
        let (id, stored) = row?;
        let id = EntryId::from_prefix(&id).ok_or(Fault::Damaged { what: "an entry id" })?;
        let record = view.unpacked(id, stored)?;
        let reader = view.reader(id, &record)?;
        for at in unindexed {
            let Some(column) = columns.get(*at) else { continue };
            let Some(stored) = reader.view.get(column.number)? else { continue };
            let rule = view.schema.attribute(column.attribute.attribute).equality;
            if stored.form() == Form::Large && wanted.len() as u64 <= stored.len() {
                for (name, place) in &wanted {
                    if reader.member(column.number, &values::member_key_of_normal(name))? {
                        hits.entry(id).or_default().push((*at, *place));
                    }
                }
                continue;
            }
            reader.visit_values(column.number, &stored, &mut |value| {
                normal.clear();
                let is_valid =
                    rule.is_some_and(|rule| rule.normalize_value(&view.schema, value, &mut normal).is_ok());
                if let Some(place) = wanted.get(normal.as_slice()).filter(|_| is_valid) {
                    hits.entry(id).or_default().push((*at, *place));
                }
                true
            })?;
        }
    }
    Ok(())
}

fn referrer<V: Snapshot>(
    view: &View<'_, V>,
    columns: &[Column<'_>],
    (id, found): (EntryId, &[(usize, usize)]),
    all: &[Name],
) -> Result<Option<Referrer>, Fault> {
    let Some(record) = view.record(id)? else { return Ok(None) };
    let reader = view.reader(id, &record)?;
    let mut references = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let mut names: Vec<usize> =
            found.iter().filter(|(of, _)| *of == at).map(|(_, place)| *place).collect();
        if let (false, Some(stored)) = (names.is_empty(), reader.view.get(column.number)?) {
            if names.len() > 1 && stored.form() != Form::Large {
                names = in_order(&reader, column, &stored, &names, all)?;
            }
            references.push(Reference { attribute: column.attribute.clone(), names, values: stored.len() });
        }
    }
    Ok(Some(Referrer { dn: view.names.normal_dn(&reader.view)?, references }))
}

/// The names in the order of the values: that in which the new ones will stand.
fn in_order<V: Snapshot>(
    reader: &EntryReader<'_, V>,
    column: &Column<'_>,
    stored: &ValuesView<'_>,
    names: &[usize],
    all: &[Name],
) -> Result<Vec<usize>, Fault> {
    let Some(rule) = reader.schema.attribute(column.attribute.attribute).equality else {
        return Ok(names.to_vec());
    };
    let wanted: foldhash::HashMap<&[u8], usize> =
        names.iter().filter_map(|at| Some((all.get(*at)?.normal.as_str().as_bytes(), *at))).collect();
    let (mut ordered, mut normal) = (Vec::with_capacity(names.len()), Vec::new());
    reader.visit_values(column.number, stored, &mut |value| {
        normal.clear();
        if rule.normalize_value(reader.schema, value, &mut normal).is_ok() {
            ordered.extend(wanted.get(normal.as_slice()).copied());
        }
        true
    })?;
    Ok(ordered)
}
