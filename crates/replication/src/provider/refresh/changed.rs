//! What the log says of entries: each record taken in, and what follows for entries that it does not name.

use std::collections::BTreeMap;

use larix_engine::csn::Csn;
use larix_engine::entry::EntryId;
use larix_engine::log::{CsnVector, LogOutline, OutlineKind};
use larix_engine::search::synchronised::entry_csn;
use larix_engine::{EntryView, View, tree};
use larix_proto::LdapResult;
use larix_store::{Snapshot, Store};
use uuid::Uuid;

use crate::provider::passes::PassProgress;
use crate::provider::session::{DatabaseSearch, failed};

/// Entries that have changed since a consumer was here.
pub(in crate::provider) type Changed = BTreeMap<EntryId, Change>;

/// What the log says of an entry.
#[derive(Clone, Debug)]
pub(in crate::provider) struct Change {
    pub(super) uuid: Uuid,
    /// The latest of its changes.
    pub(in crate::provider) csn: Csn,
    /// The earliest that the consumer may not know.
    pub(super) first: Csn,
    /// What it was called before it was renamed.
    pub(in crate::provider) old_name: Option<String>,
    /// It came into being, or was renamed.
    pub(in crate::provider) named: bool,
    /// It was deleted.
    pub(in crate::provider) deleted: bool,
    /// It has another superior, or one of these has, or another name.
    pub(super) moved: bool,
    /// The consumer has not seen it come into being: it knows it by no name.
    pub(super) born: bool,
}

impl Change {
    /// Nothing is known of it but that it changed under this CSN.
    fn new(uuid: Uuid, csn: Csn) -> Self {
        Self {
            uuid,
            csn,
            first: csn,
            old_name: None,
            named: false,
            deleted: false,
            moved: false,
            born: false,
        }
    }
}

/// Takes a record in. `is_known`: the consumer knows of it, and has the entry under no name that it says.
pub(super) fn note(changed: &mut Changed, outline: &LogOutline, is_known: bool) {
    let change = changed.entry(outline.entry).or_insert_with(|| Change::new(outline.entry_uuid, outline.csn));
    change.deleted |= outline.kind == OutlineKind::Delete;
    change.named |= outline.kind != OutlineKind::Modify;
    change.born |= outline.kind == OutlineKind::Add;
    let leaves = matches!(outline.kind, OutlineKind::ModifyDn { .. } | OutlineKind::Delete);
    if leaves && !change.born && !is_known {
        change.old_name.get_or_insert_with(|| outline.dn.to_lowercase());
    }
    change.csn = change.csn.max(outline.csn);
    change.first = change.first.min(outline.csn);
}

/// An entry that has another name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renamed {
    pub(super) entry: EntryId,
    pub(super) csn: Csn,
    /// It has another superior, too.
    pub(super) is_moved: bool,
}

/// What is below a renamed entry may have come into what a consumer sees, or have left it. False: it is more than is sent one by one.
pub(super) fn note_moved<S: Store, N: Snapshot>(
    part: &mut DatabaseSearch<S>,
    view: &View<'_, N>,
    changed: &mut Changed,
    passes: &PassProgress,
    renamed: &[Renamed],
) -> Result<bool, LdapResult> {
    if renamed.is_empty() {
        return Ok(true);
    }
    let by_names = part.task.goes_by_names(view)?;
    let by_places = renamed.iter().any(|renamed| renamed.is_moved) && !part.task.spans_all(view)?;
    for Renamed { entry, csn, .. } in renamed.iter().filter(|entry| by_names || by_places && entry.is_moved) {
        let Some(below) = moved_with(part, view, *entry)? else { return Ok(false) };
        for id in below.into_iter().filter(|id| !(passes.is_done(*id) || passes.is_deferred(*id))) {
            changed.entry(id).or_insert_with(|| Change::new(Uuid::nil(), *csn)).moved = true;
        }
    }
    Ok(true)
}

/// What this server put below another superior by itself is sent under the CSN that it had before.
pub(super) fn note_settled(changed: &mut Changed, passes: &PassProgress, settled: &[(EntryId, Csn)]) {
    for (id, csn) in settled.iter().filter(|(id, _)| !(passes.is_done(*id) || passes.is_deferred(*id))) {
        changed.entry(*id).or_insert_with(|| Change::new(Uuid::nil(), *csn)).moved = true;
    }
}

/// A moved entry, and what is below it. `None`: it is more than is sent one by one.
///
/// # Errors
/// A store that cannot be read.
pub(in crate::provider) fn moved_with<S: Store, N: Snapshot>(
    part: &DatabaseSearch<S>,
    view: &View<'_, N>,
    top: EntryId,
) -> Result<Option<Vec<EntryId>>, LdapResult> {
    let moved = tree::subtree(view.snapshot, top, part.moved_max).map_err(|fault| failed(&fault))?;
    Ok(Some(moved).filter(|moved| moved.len() < part.moved_max))
}

/// What has come into being above moved entries while a refresh was under way (`start`: how far the server had come before) goes before
/// what is below it.
///
/// # Errors
/// A store that cannot be read.
pub(super) fn note_above<N: Snapshot>(
    view: &View<'_, N>,
    changed: &mut Changed,
    (start, passes): (&CsnVector, &PassProgress),
    moved: &[EntryId],
) -> Result<(), LdapResult> {
    for id in moved {
        for above in path_of(view, *id)? {
            if changed.contains_key(&above) || passes.is_done(above) {
                continue;
            }
            let csn = entry_csn(view, above).map_err(|fault| failed(&fault))?;
            if let Some(csn) = csn.filter(|csn| !start.covers(csn)) {
                changed.insert(above, Change { named: true, ..Change::new(Uuid::nil(), csn) });
            }
        }
    }
    Ok(())
}

/// An entry that is there, and those above it.
///
/// # Errors
/// A store that cannot be read.
pub(super) fn path_of<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Vec<EntryId>, LdapResult> {
    let (mut path, mut at) = (Vec::new(), id);
    while at != EntryId::ROOT {
        let Some(stored) = view.stored(at).map_err(|fault| failed(&fault))? else { break };
        let entry = EntryView::parse(at, &stored).map_err(|error| failed(&error.into()))?;
        path.push(at);
        at = entry.parent();
    }
    Ok(path)
}

/// What an entry is called now, in small letters; none if it is not there.
///
/// # Errors
/// A store that cannot be read.
pub(super) fn name_of<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<Option<String>, LdapResult> {
    let Some(stored) = view.stored(id).map_err(|fault| failed(&fault))? else { return Ok(None) };
    let entry = EntryView::parse(id, &stored).map_err(|error| failed(&error.into()))?;
    let name = view.dn(&entry).map_err(|fault| failed(&fault))?;
    Ok(Some(name.to_lowercase()))
}

/// The highest of an entry and its superiors that has another name than before, and is not under way.
pub(super) fn topmost<N: Snapshot>(
    view: &View<'_, N>,
    changed: &Changed,
    passes: &PassProgress,
    under_way: &[EntryId],
    id: EntryId,
) -> Result<EntryId, LdapResult> {
    let mut top = id;
    let mut at = id;
    while at != EntryId::ROOT {
        let Some(stored) = view.stored(at).map_err(|fault| failed(&fault))? else { break };
        let parsed = EntryView::parse(at, &stored).map_err(|error| failed(&error.into()))?;
        at = parsed.parent();
        let is_named = passes.is_named(at) || changed.get(&at).is_some_and(|change| change.named);
        if is_named && !under_way.contains(&at) {
            top = at;
        }
    }
    Ok(top)
}

#[cfg(test)]
mod tests {
    use larix_engine::time::Timestamp;

    use super::*;

    fn csn(time: i64) -> Csn {
        Csn { time: Timestamp(time), count: 0, server_id: 1, modification: 0 }
    }

    const ADD: OutlineKind = OutlineKind::Add;
    const MODIFY: OutlineKind = OutlineKind::Modify;
    const RENAME: OutlineKind = OutlineKind::ModifyDn { new_rdn: String::new(), new_superior: None };
    const DELETE: OutlineKind = OutlineKind::Delete;

    fn outline(kind: OutlineKind, dn: &str, csn: Csn) -> LogOutline {
        let (entry, entry_uuid) = (EntryId(7), Uuid::from_u128(7));
        LogOutline { csn, entry, entry_uuid, dn: dn.to_owned(), local: false, absent: false, kind }
    }

    #[test]
    fn what_records_come_to() {
        let check =
            |records: &[(OutlineKind, &str, i64, bool)], old_name: Option<&str>, flags: (bool, bool)| {
                let mut changed = Changed::new();
                for (kind, dn, time, is_known) in records {
                    note(&mut changed, &outline(kind.clone(), dn, csn(*time)), *is_known);
                }
                let change = changed.remove(&EntryId(7)).unwrap();
                assert_eq!(change.old_name.as_deref(), old_name, "{records:?}");
                assert_eq!((change.named, change.deleted), flags, "named and deleted: {records:?}");
                let times = records.iter().map(|(_, _, time, _)| *time);
                let extent = (times.clone().min().map(csn), times.max().map(csn));
                assert_eq!((Some(change.first), Some(change.csn)), extent, "{records:?}");
            };
        check(&[(MODIFY, "cn=A", 1, false)], None, (false, false));
        check(&[(RENAME, "cn=A", 1, false)], Some("cn=a"), (true, false));
        // The consumer knows the first of the names.
        check(&[(RENAME, "cn=A", 1, false), (RENAME, "cn=B", 2, false)], Some("cn=a"), (true, false));
        check(&[(RENAME, "cn=A", 1, true), (RENAME, "cn=B", 2, false)], Some("cn=b"), (true, false));
        check(&[(ADD, "cn=A", 1, false), (RENAME, "cn=A", 2, false)], None, (true, false));
        check(&[(DELETE, "cn=A", 1, false)], Some("cn=a"), (true, true));
        check(&[(ADD, "cn=A", 1, false), (DELETE, "cn=A", 2, false)], None, (true, true));
        // Records come in the order in which they were stored, CSNs in any.
        check(&[(MODIFY, "cn=A", 5, false), (MODIFY, "cn=A", 3, false)], None, (false, false));
    }
}
