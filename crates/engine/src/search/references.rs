//! References between entries: finds entries that have the names of others as values.
//!
//! It finds values, not entries: a name without an entry is a value like any other. With an equality index it looks up one name by
//! its key. For all names within another one it walks along all keys of the attribute: a key begins with the deepest RDN, so the
//! names below another one have no beginning in common.

use std::collections::BTreeMap;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, NormalDn};
use larix_store::{Direction, KeyRange, Snapshot};

use crate::database::View;
use crate::entry::record::{Form, ValuesView};
use crate::entry::{AttributeNumber, EntryId, EntryReader, values};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::index::{KeyKind, Kinds, key};
use crate::overlay::{Name, Reference, ReferenceTarget, Referrer};
use crate::plan::Plan;
use crate::tables::{ENTRIES, INDEX};

/// Values that are found at once.
pub const REFERENCES_LIMIT: usize = 1_000_000;

/// Records that are asked for together.
const RECORDS_AT_ONCE: usize = 64;

/// One of the attributes that are looked through.
struct Column<'a> {
    attribute: &'a AttributeDescription,
    number: AttributeNumber,
}

/// What is known of the values of one attribute of an entry.
enum Hit {
    /// These names may be among them.
    Of(Vec<NormalDn>),
    /// Any of those that are looked for may be.
    Any,
}

/// By entry and the attribute's place in the list that was given.
type Hits = BTreeMap<(EntryId, usize), Hit>;

/// The entries that have any of the names in any of the attributes, by the equality index, or where there is none by
/// looking through all entries once.
pub(super) fn referrers<V: Snapshot>(
    view: &View<'_, V>,
    attributes: &[AttributeDescription],
    sought: ReferenceTarget<'_>,
) -> Result<Vec<Referrer>, Failure> {
    let mut columns = Vec::with_capacity(attributes.len());
    for attribute in attributes {
        // No entry has an attribute without a number.
        let Some(number) = view.catalog.number(attribute) else { continue };
        if columns.iter().all(|column: &Column<'_>| column.number != number) {
            columns.push(Column { attribute, number });
        }
    }
    let mut search = Search { view, sought, columns, hits: Hits::new(), remaining: REFERENCES_LIMIT };
    let mut unindexed = Vec::new();
    for at in 0..search.columns.len() {
        if !search.look_up(at)? {
            unindexed.push(at);
        }
    }
    if !unindexed.is_empty() {
        search.scan(&unindexed)?;
    }
    search.referrers()
}

struct Search<'s, 'v, 'b, V> {
    view: &'v View<'b, V>,
    sought: ReferenceTarget<'s>,
    columns: Vec<Column<'s>>,
    hits: Hits,
    /// How many more names the index may give.
    remaining: usize,
}

impl<V: Snapshot> Search<'_, '_, '_, V> {
    /// Finds by the index who has what is sought in one of the attributes. Answers false where there is none.
    fn look_up(&mut self, at: usize) -> Result<bool, Failure> {
        let (view, snapshot) = (self.view, self.view.snapshot);
        let Some(number) = self.columns.get(at).map(|column| column.number) else { return Ok(true) };
        let row = view.catalog.row(number);
        if !row.is_some_and(|row| row.usable().has(Kinds::EQUALITY) && row.equality.is_some()) {
            return Ok(false);
        }
        match self.sought {
            ReferenceTarget::Name(name) => {
                let key = key::make(number, KeyKind::Equality, name.as_str().as_bytes());
                self.found(at, &key, Some(name.clone()))?;
            }
            ReferenceTarget::Within(top) => {
                let mut head = Vec::new();
                key::put_prefix(&mut head, number, KeyKind::Equality, &[]);
                for row in snapshot.posting_keys(INDEX, KeyRange::prefix(&head), Direction::Forward)? {
                    let (key, _) = row?;
                    let Some(value) = key::parse_value(&key) else {
                        // The end of a value that was cut is not in the key.
                        self.found(at, &key, None)?;
                        continue;
                    };
                    if ends_with(&value, top)
                        && let Ok(name) = std::str::from_utf8(&value)
                    {
                        self.found(at, &key, Some(NormalDn::from_normal(name)))?;
                    }
                }
            }
        }
        Ok(true)
    }

    /// Notes all entries of a key; `name`: its value, if that is known.
    fn found(&mut self, at: usize, key: &[u8], name: Option<NormalDn>) -> Result<(), Failure> {
        let snapshot = self.view.snapshot;
        let found = Plan::of_key(snapshot, key.to_vec())?.into_candidates(snapshot)?.ids;
        let mut ids: Vec<EntryId> = Vec::new();
        found.read_after(EntryId::ROOT, usize::MAX, &mut ids);
        if name.is_some() {
            self.remaining = self.remaining.checked_sub(ids.len()).ok_or_else(too_many)?;
        }
        for id in ids {
            let hit = self.hits.entry((id, at)).or_insert_with(|| Hit::Of(Vec::new()));
            match (hit, &name) {
                (Hit::Of(names), Some(name)) => names.push(name.clone()),
                (hit, None) => *hit = Hit::Any,
                (Hit::Any, Some(_)) => {}
            }
        }
        Ok(())
    }

    /// Looks through all entries.
    fn scan(&mut self, unindexed: &[usize]) -> Result<(), Fault> {
        let view = self.view;
        for row in view.snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward)? {
            let (id, stored) = row?;
            let id = EntryId::from_prefix(&id).ok_or(Fault::Damaged { what: "an entry id" })?;
            let record = view.unpacked(id, stored)?;
            let reader = view.reader(id, &record)?;
            for at in unindexed {
                let Some(column) = self.columns.get(*at) else { continue };
                let Some(stored) = reader.view.get(column.number)? else { continue };
                let mut is_there = false;
                match self.sought {
                    ReferenceTarget::Name(name) if stored.form() == Form::Large => {
                        let member = values::member_key_of_normal(name.as_str().as_bytes());
                        is_there = reader.member(column.number, &member)?;
                    }
                    _ => visit_names(&reader, column, &stored, &mut |name, _| {
                        is_there = self.sought.includes(&name);
                        !is_there
                    })?,
                }
                if is_there {
                    self.hits.insert((id, *at), Hit::Any);
                }
            }
        }
        Ok(())
    }

    fn referrers(self) -> Result<Vec<Referrer>, Failure> {
        let hits: Vec<_> = self.hits.iter().map(|((id, at), hit)| (*id, *at, hit)).collect();
        let mut referrers: Vec<Referrer> = Vec::new();
        let (mut last, mut remaining) = (None, REFERENCES_LIMIT);
        for hits in hits.chunks(RECORDS_AT_ONCE) {
            let ids: Vec<EntryId> = hits.iter().map(|(id, ..)| *id).collect();
            for ((id, at, hit), stored) in hits.iter().copied().zip(self.view.stored_many(&ids)?) {
                let Some(stored) = stored? else { continue };
                let record = self.view.unpacked(id, stored)?;
                let reader = self.view.reader(id, &record)?;
                let Some(reference) = self.reference(&reader, at, hit)? else { continue };
                remaining = remaining.checked_sub(reference.names.len()).ok_or_else(too_many)?;
                match referrers.last_mut().filter(|_| last == Some(id)) {
                    Some(referrer) => referrer.references.push(reference),
                    None => {
                        let dn = self.view.names.normal_dn(&reader.view)?;
                        referrers.push(Referrer { dn, references: vec![reference] });
                        last = Some(id);
                    }
                }
            }
        }
        Ok(referrers)
    }

    /// What of a hit stands in the entry.
    fn reference(
        &self,
        reader: &EntryReader<'_, V>,
        at: usize,
        hit: &Hit,
    ) -> Result<Option<Reference>, Failure> {
        let Some(column) = self.columns.get(at) else { return Ok(None) };
        let Some(stored) = reader.view.get(column.number)? else { return Ok(None) };
        let names = self.names(reader, column, &stored, hit)?;
        let values = stored.len();
        let attribute = column.attribute;
        Ok((!names.is_empty()).then(|| Reference { attribute: attribute.clone(), names, values }))
    }

    /// What is sought among the values of one attribute, in their order.
    fn names(
        &self,
        reader: &EntryReader<'_, V>,
        column: &Column<'_>,
        stored: &ValuesView<'_>,
        hit: &Hit,
    ) -> Result<Vec<Name>, Fault> {
        let mut names = Vec::new();
        match (hit, self.sought) {
            (Hit::Of(found), ReferenceTarget::Name(_)) => {
                let name =
                    |normal: &NormalDn| Name { normal: normal.clone(), text: normal.as_str().to_owned() };
                names.extend(found.iter().map(name));
            }
            (Hit::Of(found), ReferenceTarget::Within(_)) if stored.form() == Form::Large => {
                for normal in found {
                    let member = values::member_key_of_normal(normal.as_str().as_bytes());
                    let value = values::get(reader.snapshot, reader.view.id(), column.number, &member)?;
                    let text = value.and_then(|value| String::from_utf8(value).ok());
                    names.extend(text.map(|text| Name { normal: normal.clone(), text }));
                }
            }
            _ => visit_names(reader, column, stored, &mut |normal, text| {
                if self.sought.includes(&normal) {
                    names.push(Name { normal, text: text.to_owned() });
                }
                // One more than is taken is enough to be refused.
                names.len() <= REFERENCES_LIMIT
            })?,
        }
        Ok(names)
    }
}

fn too_many() -> Failure {
    let text = format!("more than {REFERENCES_LIMIT} references at once");
    LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text).into()
}

/// Whether a name in normal form is `top` or lies below it.
fn ends_with(name: &[u8], top: &NormalDn) -> bool {
    let Some(below) = name.strip_suffix(top.as_str().as_bytes()) else { return false };
    below.is_empty() || top.is_root() || below.ends_with(b",")
}

/// Calls `visit` with each value that is a name and with its text, until it answers false.
fn visit_names<V: Snapshot>(
    reader: &EntryReader<'_, V>,
    column: &Column<'_>,
    stored: &ValuesView<'_>,
    visit: &mut dyn FnMut(NormalDn, &str) -> bool,
) -> Result<(), Fault> {
    let Some(rule) = reader.schema.attribute(column.attribute.attribute).equality else { return Ok(()) };
    let mut normal = Vec::new();
    reader.visit_values(column.number, stored, &mut |value| {
        normal.clear();
        let is_valid = rule.normalize_value(reader.schema, value, &mut normal).is_ok();
        match (std::str::from_utf8(&normal), std::str::from_utf8(value)) {
            (Ok(name), Ok(text)) if is_valid => visit(NormalDn::from_normal(name), text),
            _ => true,
        }
    })?;
    Ok(())
}
