//! Consistency: every record, row of the tree and posting against the others.

mod finding;
mod known_keys;

use std::collections::{BTreeMap, BTreeSet};

use larix_store::{Direction, KeyRange, PostingCursor, Snapshot};
use roaring::RoaringTreemap;
use uuid::Uuid;

use crate::audit;
use crate::catalog::Catalog;
use crate::database::View;
use crate::entry::record::{Form, StoredValue};
use crate::entry::{AttributeNumber, EntryId, EntryReader, EntryView, values};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::index::{KeyKind, key, keys, pending};
use crate::log;
use crate::overlay::Violation;
use crate::replica::{self, ReplicaRows};
use crate::search::view_entries::ViewEntries;
use crate::tables::{BLOBS, ENTRIES, INDEX, META, PENDING, TREE, VALUES, meta};
use crate::tree;

pub use finding::Finding;
pub(crate) use known_keys::KnownKeys;

/// Where the member key begins in a key of the table `values`: behind the entry's id and the attribute's number.
const MEMBER_AT: usize = 12;

/// What a check went through.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub entries: u64,
    pub tree_rows: u64,
    pub index_keys: u64,
    pub postings: u64,
    /// Records of the change log.
    pub logged: u64,
    /// What replication remembers of entries that are not there.
    pub replica: ReplicaRows,
    pub findings: u64,
}

/// Goes through all tables of a view and reports what does not fit.
///
/// Memory: the ids of all entries with subordinates, one entry's keys at a time, and up to half a million keys of attributes that have
/// many. The index is looked up for every key of every entry and gone through once.
pub fn check<N: Snapshot>(view: &View<'_, N>, report: &mut dyn FnMut(Finding)) -> Result<CheckReport, Fault> {
    let mut checked = CheckReport::default();
    let mut findings = 0;
    let mut report = |finding| {
        findings += 1;
        report(finding);
    };
    check_entries(view, &mut checked, &mut report)?;
    check_tree(view, &mut checked, &mut report)?;
    check_strays(view, &mut report)?;
    check_index(view, &mut checked, &mut report)?;
    let last = view.snapshot.get(META, meta::LAST_ENTRY_ID)?;
    let last = last.and_then(|bytes| EntryId::from_prefix(&bytes)).unwrap_or(EntryId::ROOT);
    let settings = &view.settings;
    // An access log tells of changes elsewhere as they come, and of the server's own after a restore in any order.
    let is_access_log = view.snapshot.get(META, meta::ACCESS_LOG_LACKS)?.is_some()
        || audit::min_csns(view).ok().flatten().is_some_and(|csns| !csns.is_empty());
    let comes_back = settings.shadow || settings.multi_provider || settings.keeps_states() || is_access_log;
    let first_here = !comes_back;
    let mut of_log = |key, fault| report(Finding::Log { key, fault });
    checked.logged = log::check(view.snapshot, (last, first_here), &mut of_log)?;
    let is_here = &mut |uuid: &Uuid| Ok(replica::entry_of(view, uuid)?.is_some());
    checked.replica = replica::check(view.snapshot, &replica::is_conflict, is_here, &mut |fault| {
        report(Finding::Replica { fault })
    })?;
    checked.findings = findings;
    Ok(checked)
}

/// Reports the entries that break a rule of the database's overlays: what was stored before there was the rule, or came from
/// elsewhere. Answers how many reports there were.
///
/// # Errors
/// A store that cannot be read.
pub fn check_rules<N: Snapshot>(
    view: &View<'_, N>,
    report: &mut dyn FnMut(Violation),
) -> Result<u64, Failure> {
    let entries = ViewEntries::of(view);
    let mut violations = 0;
    for overlay in view.settings.overlays.iter() {
        overlay.violations(&entries, &view.schema, &mut |violation| {
            violations += 1;
            report(violation);
        })?;
    }
    Ok(violations)
}

fn check_entries<N: Snapshot>(
    view: &View<'_, N>,
    checked: &mut CheckReport,
    report: &mut dyn FnMut(Finding),
) -> Result<(), Fault> {
    let last = view.snapshot.get(META, meta::LAST_ENTRY_ID)?;
    let last = last.and_then(|bytes| EntryId::from_prefix(&bytes)).unwrap_or(EntryId::ROOT);
    let mut superiors = Superiors::default();
    for row in view.snapshot.scan(ENTRIES, KeyRange::all(), Direction::Forward)? {
        let (id, record) = row?;
        let Some(id) = EntryId::from_prefix(&id) else { continue };
        checked.entries += 1;
        if id > last {
            report(Finding::IdAboveLast { entry: id });
        }
        let checked = view
            .unpacked(id, record)
            .and_then(|record| check_entry(view, &view.reader(id, &record)?, &mut superiors, report));
        if let Err(fault) = checked {
            report(Finding::Record { entry: id, fault: fault.to_string() });
        }
    }
    Ok(())
}

/// What is known of entries with subordinates.
#[derive(Default)]
struct Superiors {
    /// No ring is above them.
    free: RoaringTreemap,
    /// They are in a ring, or below one.
    lost: RoaringTreemap,
}

impl Superiors {
    /// Whether an entry is below itself, or below one that is. Superiors that are missing or damaged are findings of their own.
    fn has_ring_above<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        entry: EntryView<'_>,
    ) -> Result<bool, Fault> {
        let mut way = BTreeSet::from([entry.id().0]);
        let mut at = entry.parent();
        let is_ring = loop {
            if at == EntryId::ROOT || self.free.contains(at.0) {
                break false;
            }
            if self.lost.contains(at.0) || !way.insert(at.0) {
                break true;
            }
            let Some(record) = view.stored(at)? else { break false };
            let Ok(above) = EntryView::parse(at, &record) else { break false };
            at = above.parent();
        };
        // Of most entries nobody asks again.
        way.remove(&entry.id().0);
        let known = if is_ring { &mut self.lost } else { &mut self.free };
        known.extend(way);
        Ok(is_ring)
    }
}

fn check_entry<N: Snapshot>(
    view: &View<'_, N>,
    reader: &EntryReader<'_, N>,
    superiors: &mut Superiors,
    report: &mut dyn FnMut(Finding),
) -> Result<(), Fault> {
    let entry = reader.view;
    let id = entry.id();
    if tree::child(view.snapshot, entry.parent(), entry.normal_rdn())? != Some(id) {
        report(Finding::NotInTree { entry: id });
    }
    if !reads_as_stored(view, entry) {
        report(Finding::Name { entry: id, rdn: entry.rdn().to_owned() });
    }
    if entry.parent() != EntryId::ROOT && view.stored(entry.parent())?.is_none() {
        report(Finding::Orphan { entry: id, parent: entry.parent() });
    }
    if superiors.has_ring_above(view, entry)? {
        report(Finding::Ring { entry: id });
    }
    let mut members = BTreeMap::new();
    let mut blobs = BTreeSet::new();
    for attribute in entry.attributes() {
        let (number, stored) = attribute?;
        if view.catalog.row(number).is_none() {
            report(Finding::UnknownAttribute { entry: id, number });
        }
        if stored.form() == Form::Large {
            members.insert(number, stored.len());
            continue;
        }
        for value in stored.iter() {
            if let StoredValue::Blob { digest, .. } = value? {
                blobs.insert(*digest);
            }
        }
    }
    check_outside(view, id, members, blobs, report)?;
    let keys = keys::stored_keys(&view.schema, &view.catalog, reader)?;
    let pending = pending::row(view.snapshot, id)?.unwrap_or_default();
    check_pending(view, id, &pending, &keys, report)?;
    for key in keys {
        if pending.says(&key).is_some() {
            continue;
        }
        let built = key::parse_head(&key).is_some_and(|head| is_indexed(&view.catalog, head));
        if built && !view.snapshot.posting_contains(INDEX, &key, id.0)? {
            report(Finding::MissingPosting { entry: id, key: key.into_vec() });
        }
    }
    Ok(())
}

/// What is pending is the truth, whatever the index says.
fn check_pending<N: Snapshot>(
    view: &View<'_, N>,
    id: EntryId,
    pending: &pending::Row,
    keys: &BTreeSet<keys::EntryKey>,
    report: &mut dyn FnMut(Finding),
) -> Result<(), Fault> {
    if pending.keys.is_empty() {
        return Ok(());
    }
    let mut known = KnownKeys::in_view(view)?;
    for (part, present) in &pending.keys {
        let key = pending::whole_key(part);
        let Some(head) = key::parse_head(&key).filter(|head| is_indexed(&view.catalog, *head)) else {
            continue;
        };
        match (present, keys.contains(key.as_slice())) {
            (true, false) if !known.may_be_left(head) && !known.has(view, id, head, &key)? => {
                report(Finding::StrayPosting { entry: id, key });
            }
            (false, true) => report(Finding::MissingPosting { entry: id, key }),
            _ => {}
        }
    }
    Ok(())
}

fn check_outside<N: Snapshot>(
    view: &View<'_, N>,
    id: EntryId,
    mut members: BTreeMap<AttributeNumber, u64>,
    mut blobs: BTreeSet<[u8; crate::entry::record::DIGEST_LENGTH]>,
    report: &mut dyn FnMut(Finding),
) -> Result<(), Fault> {
    let mut misplaced = false;
    for row in view.snapshot.scan(VALUES, KeyRange::prefix(&id.to_bytes()), Direction::Forward)? {
        let (key, value) = row?;
        let number = key.get(8..12).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        let number = number.map(AttributeNumber);
        misplaced = misplaced || number.is_some_and(|number| !has_its_key(view, number, &key, &value));
        match number.and_then(|number| members.get_mut(&number)) {
            Some(count) if *count > 0 => *count -= 1,
            _ => {
                report(Finding::Outside {
                    entry: id,
                    what: "a large set has more members than the record counts",
                });
                break;
            }
        }
    }
    if misplaced {
        let what =
            "a large set has a member under another key than the attribute's equality rule makes of it";
        report(Finding::Outside { entry: id, what });
    }
    if members.values().any(|count| *count > 0) {
        report(Finding::Outside { entry: id, what: "a large set has fewer members than the record counts" });
    }
    for row in view.snapshot.scan(BLOBS, KeyRange::prefix(&id.to_bytes()), Direction::Forward)? {
        let (key, value) = row?;
        let digest = crate::entry::record::digest(&value);
        if key.get(8..) != Some(digest.as_slice()) {
            report(Finding::Outside { entry: id, what: "a long value is not the one that was stored" });
        } else if !blobs.remove(&digest) {
            report(Finding::Outside { entry: id, what: "a long value is left over" });
        }
    }
    if !blobs.is_empty() {
        report(Finding::Outside { entry: id, what: "a long value is missing" });
    }
    Ok(())
}

/// Whether a member of a large set has the key by which it is looked for. The rule may be another one than when it was stored.
/// Whether the name of the entry leads to the row of the tree that it has: the schema may have been edited since.
fn reads_as_stored<N: Snapshot>(view: &View<'_, N>, entry: EntryView<'_>) -> bool {
    let mut normal = Vec::new();
    view.schema.write_normal_dn(entry.rdn(), &mut normal).is_ok() && normal == entry.normal_rdn()
}

fn has_its_key<N: Snapshot>(view: &View<'_, N>, number: AttributeNumber, key: &[u8], value: &[u8]) -> bool {
    // Of an attribute that the schema has lost nothing can be said.
    let Some(rule) = view.catalog.row(number).and_then(|row| row.equality) else { return true };
    values::member_key(&view.schema, rule, value)
        .is_ok_and(|member| key.get(MEMBER_AT..) == Some(member.as_slice()))
}

fn check_tree<N: Snapshot>(
    view: &View<'_, N>,
    checked: &mut CheckReport,
    report: &mut dyn FnMut(Finding),
) -> Result<(), Fault> {
    for row in view.snapshot.scan(TREE, KeyRange::all(), Direction::Forward)? {
        let (key, value) = row?;
        checked.tree_rows += 1;
        let entry = EntryId::from_prefix(&value).ok_or(Fault::Damaged { what: "a row of the tree" })?;
        let fits = match view.stored(entry)? {
            Some(record) => EntryView::parse(entry, &record)
                .is_ok_and(|entry| *tree::key(entry.parent(), entry.normal_rdn()) == *key),
            None => false,
        };
        if !fits {
            report(Finding::StrayTreeRow { key: key.into_owned(), entry });
        }
    }
    Ok(())
}

/// What entries have outside of their records goes with them.
fn check_strays<N: Snapshot>(view: &View<'_, N>, report: &mut dyn FnMut(Finding)) -> Result<(), Fault> {
    let known = KnownKeys::in_view(view)?;
    for (table, what) in
        [(VALUES, "a large set"), (BLOBS, "a long value"), (PENDING, "a row of substring keys to come")]
    {
        let mut from = Vec::new();
        loop {
            let mut rows = view.snapshot.scan(table, KeyRange::at_least(&from), Direction::Forward)?;
            let Some((key, value)) = rows.next().transpose()? else { break };
            let entry =
                EntryId::from_prefix(&key).ok_or(Fault::Damaged { what: "the key of an entry's row" })?;
            // Keys of an entry that was deleted wait to be taken out of the index; those of an index that is being built, or is no longer
            // kept, say nothing.
            let is_harmless = || {
                let brings = |(part, present): (&Vec<u8>, &bool)| {
                    let brings = |head| is_indexed(&view.catalog, head) && !known.may_be_left(head);
                    *present && key::parse_head(part).is_some_and(brings)
                };
                let row = pending::Row::decode(&value);
                table == PENDING && row.is_ok_and(|row| !row.keys.iter().any(brings))
            };
            if view.stored(entry)?.is_none() && !is_harmless() {
                report(Finding::StrayRow { entry, what });
            }
            let Some(next) = entry.0.checked_add(1) else { break };
            from = next.to_be_bytes().to_vec();
        }
    }
    Ok(())
}

fn check_index<N: Snapshot>(
    view: &View<'_, N>,
    checked: &mut CheckReport,
    report: &mut dyn FnMut(Finding),
) -> Result<(), Fault> {
    let mut known = KnownKeys::in_view(view)?;
    let entry_uuid = view.schema.describe("entryUUID").ok();
    let entry_uuid = entry_uuid.and_then(|description| view.catalog.number(&description));
    for row in view.snapshot.posting_keys(INDEX, KeyRange::all(), Direction::Forward)? {
        let (key, recorded) = row?;
        checked.index_keys += 1;
        let head = key::parse_head(&key).ok_or(Fault::Damaged { what: "an index key" })?;
        // Rows left of an index that is no longer kept are not checked.
        let indexed = is_indexed(&view.catalog, head);
        let mut cursor = view.snapshot.postings(INDEX, &key)?;
        let before = checked.postings;
        let is_unique = indexed && entry_uuid.is_some_and(|number| head == (number, KeyKind::Equality));
        let mut first = None;
        while let Some(id) = cursor.next()? {
            checked.postings += 1;
            let id = EntryId(id);
            if let Some(first) = first.replace(id).filter(|_| is_unique)
                && let Some(uuid) = key::parse_value(&key).and_then(|normal| Uuid::from_slice(&normal).ok())
            {
                let dns = [dn_of(view, first)?, dn_of(view, id)?];
                report(Finding::SameUuid { dns, uuid });
            }
            if indexed
                && !known.has(view, id, head, &key)?
                && !known.is_leaving(view, id, head, &key)?
                && !known.may_be_left(head)
            {
                report(Finding::StrayPosting { entry: id, key: key.to_vec() });
            }
        }
        let found = checked.postings - before;
        if found != recorded {
            report(Finding::PostingCount { key: key.to_vec(), recorded, found });
        }
    }
    Ok(())
}

/// The DN for a finding; the id, if the entry does not exist.
fn dn_of<N: Snapshot>(view: &View<'_, N>, id: EntryId) -> Result<String, Fault> {
    let Some(record) = view.record(id)? else { return Ok(id.to_string()) };
    view.dn(&view.reader(id, &record)?.view)
}

fn is_indexed(catalog: &Catalog, (number, kind): (AttributeNumber, KeyKind)) -> bool {
    catalog.row(number).is_some_and(|row| row.usable().has(kind.into()))
}
