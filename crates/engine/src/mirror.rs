//! Databases whose store is an image of something else that is the truth: of files, say.
//!
//! The writer shows a [`Mirror`] what a group of changes comes to before it commits the group to the store. What the
//! mirror refuses did not happen. What it took has happened, even if the commit should fail then: the store is made anew
//! from it when the database is opened the next time.

use std::collections::BTreeMap;
use std::sync::Arc;

use larix_proto::Dn;
use larix_proto::ldif::LdifAttribute;
use larix_schema::NormalDn;
use larix_store::{Direction, KeyRange, Layered, Snapshot, Store, WriteSet};

use crate::database::{Database, DatabaseState, View, next_instance};
use crate::entry::EntryId;
use crate::fault::Fault;
use crate::log;
use crate::tables::ENTRIES;
use crate::tree;

pub use crate::database::{Mirror, Mirrored, MirroredEntry};

/// What a write set comes to over a transaction; `state` has the attribute numbers of the changes.
pub(crate) fn changes<T: Snapshot>(
    transaction: &T,
    set: &WriteSet,
    state: Arc<DatabaseState>,
) -> Result<Vec<Mirrored>, Fault> {
    let overlay = Layered::new(transaction, set);
    let instances = (next_instance(), next_instance());
    let before = View::over_changes(transaction, instances.0, Arc::clone(&state))?;
    let after = View::over_changes(&overlay, instances.1, state)?;
    let done = Changes { before, after, removed: Vec::new(), entries: BTreeMap::new() }.all(set);
    // No request uses these numbers again.
    tree::forget(instances.0);
    tree::forget(instances.1);
    done
}

struct Changes<'s, B, A> {
    before: View<'s, B>,
    after: View<'s, A>,
    removed: Vec<NormalDn>,
    entries: BTreeMap<EntryId, MirroredEntry>,
}

impl<B: Snapshot, A: Snapshot> Changes<'_, B, A> {
    fn all(mut self, set: &WriteSet) -> Result<Vec<Mirrored>, Fault> {
        for (key, _) in set.records(ENTRIES) {
            let id = EntryId::from_prefix(key).ok_or(Fault::Damaged { what: "a key of the entries" })?;
            self.entry(id, true)?;
        }
        if log::sets_context_csn(set) {
            for suffix in self.after.settings.suffixes.clone() {
                if let Some(id) = self.after.resolve(&suffix.normal)?.and_then(|found| found.id) {
                    self.entry(id, false)?;
                }
            }
        }
        let removed = self.removed.into_iter().map(Mirrored::Gone);
        Ok(removed.chain(self.entries.into_values().map(Mirrored::Put)).collect())
    }

    /// Notes an entry that has changed, and with `subtree` all below it if it has another name.
    fn entry(&mut self, id: EntryId, subtree: bool) -> Result<(), Fault> {
        let before = name(&self.before, id)?;
        let after = entry(&self.after, id)?;
        let moved = matches!((&before, &after), (Some(before), Some(after)) if *before != after.name);
        if let Some(before) = before
            && after.as_ref().is_none_or(|after| after.name != before)
        {
            self.removed.push(before);
        }
        if let Some(after) = after {
            self.entries.insert(id, after);
        }
        if subtree && moved {
            for below in tree::subtree(self.after.snapshot, id, usize::MAX)?.into_iter().skip(1) {
                self.entry(below, false)?;
            }
        }
        Ok(())
    }
}

fn name<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Option<NormalDn>, Fault> {
    let Some(record) = view.record(id)? else { return Ok(None) };
    let reader = view.reader(id, &record)?;
    view.names.normal_dn(&reader.view).map(Some)
}

fn entry<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Option<MirroredEntry>, Fault> {
    let Some(record) = view.record(id)? else { return Ok(None) };
    let reader = view.reader(id, &record)?;
    let name = view.names.normal_dn(&reader.view)?;
    let dn = view.dn(&reader.view)?;
    let damaged = Fault::Damaged { what: "the name of an entry" };
    let rdn = Dn::parse(&dn).ok().and_then(|dn| dn.rdns().first().map(ToString::to_string));
    let rdn = rdn.ok_or(damaged)?;
    let owned = reader.to_owned(dn, true)?;
    let attribute = |a: crate::entry::EntryAttribute| LdifAttribute {
        description: a.description.to_text(&view.schema),
        values: a.values,
    };
    let mut attributes: Vec<LdifAttribute> = owned.attributes.into_iter().map(attribute).collect();
    attributes.extend(reader.unknown()?);
    if view.settings.suffixes.iter().any(|suffix| suffix.normal == name) {
        let csns = log::context_csns(view.snapshot)?;
        attributes.retain(|a| !a.description.eq_ignore_ascii_case("contextCSN"));
        if !csns.is_empty() {
            let values = csns.iter().map(|csn| csn.to_string().into_bytes()).collect();
            attributes.push(LdifAttribute { description: "contextCSN".to_owned(), values });
        }
    }
    Ok(Some(MirroredEntry { name, rdn, attributes }))
}

/// Every entry of a database as a mirror would be shown it, in the order of their ids.
///
/// # Errors
/// A store that cannot be read.
pub fn whole<S: Store>(database: &Database<S>) -> Result<Vec<MirroredEntry>, Fault> {
    let snapshot = database.store().snapshot()?;
    let view = database.view(&snapshot)?;
    let mut all = Vec::new();
    for row in snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward)? {
        let id = EntryId::from_prefix(&row?.0).ok_or(Fault::Damaged { what: "a key of the entries" })?;
        all.extend(entry(&view, id)?);
    }
    Ok(all)
}
