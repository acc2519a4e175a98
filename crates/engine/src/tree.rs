//! The tree: parent and RDN to id, and back from an id to its DN.
//!
//! The suffixes stand under the virtual root with their whole DN as RDN. An entry's own record knows its parent and its
//! RDN, so that a subtree moves by changing one record and one row here.

mod children;

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use foldhash::HashMap;
use larix_schema::{MAX_DN_LENGTH, NormalDn, NormalRdn};
use larix_store::{Direction, KeyRange, Snapshot, Wanted, WriteSet};
use smallvec::SmallVec;

use crate::entry::record::digest;
use crate::entry::{EntryId, EntryView};
use crate::fault::Fault;
use crate::record::is_child;
use crate::tables::{ENTRIES, META, TREE, meta};

pub use children::FoundChildren;

/// Bytes of a normalized RDN that stand in a key as they are; a longer one is cut and followed by its digest.
pub(crate) const RDN_LIMIT: usize = 400;

/// Superiors remembered by each thread and database, and the bytes of their names.
const CACHE_LIMIT: usize = 65_536;
const CACHE_BYTES: usize = 32 << 20;
/// The longest name that is made. One that is longer than clients can send comes from a rename above the entry, which earlier versions
/// did not refuse; one without an end, of entries that are in a ring.
const NAME_BYTES_MAX: usize = 2 * MAX_DN_LENGTH;
/// Databases of which a thread remembers superiors; more than one process serves.
const DATABASES_MAX: usize = 64;

/// Room for most keys.
pub type Key = SmallVec<[u8; 64]>;

/// The key of a child; with an empty RDN, what the keys of all children begin with.
pub fn key(parent: EntryId, normal_rdn: &[u8]) -> Key {
    let mut out = Key::with_capacity(8 + normal_rdn.len());
    out.extend_from_slice(&parent.to_bytes());
    match normal_rdn.get(..RDN_LIMIT).filter(|_| normal_rdn.len() > RDN_LIMIT) {
        None => out.extend_from_slice(normal_rdn),
        Some(head) => {
            out.extend_from_slice(head);
            out.push(0);
            out.extend_from_slice(&digest(normal_rdn));
        }
    }
    out
}

/// Adds a child.
pub fn put(set: &mut WriteSet, parent: EntryId, normal_rdn: &[u8], id: EntryId) {
    set.put(TREE, &key(parent, normal_rdn), id.to_bytes());
}

/// Removes a child. Bump the [generation](bump_generation) with it.
pub fn delete(set: &mut WriteSet, parent: EntryId, normal_rdn: &[u8]) {
    set.delete(TREE, &key(parent, normal_rdn));
}

/// Tells caches that an entry was renamed, moved or deleted.
pub fn bump_generation<S: Snapshot>(set: &mut WriteSet, snapshot: &S) -> Result<(), Fault> {
    let next = generation(snapshot)? + 1;
    set.put(META, meta::TREE_GENERATION, next.to_be_bytes());
    Ok(())
}

/// Grows whenever an entry is renamed, moved or deleted.
pub fn generation<S: Snapshot>(snapshot: &S) -> Result<u64, Fault> {
    match snapshot.get(META, meta::TREE_GENERATION)? {
        None => Ok(0),
        Some(bytes) => {
            EntryId::from_prefix(&bytes).map(|id| id.0).ok_or(Fault::Damaged { what: "the tree generation" })
        }
    }
}

/// The child of this RDN.
pub fn child<S: Snapshot>(
    snapshot: &S,
    parent: EntryId,
    normal_rdn: &[u8],
) -> Result<Option<EntryId>, Fault> {
    match snapshot.get(TREE, &key(parent, normal_rdn))? {
        None => Ok(None),
        Some(bytes) => {
            EntryId::from_prefix(&bytes).map(Some).ok_or(Fault::Damaged { what: "a row of the tree" })
        }
    }
}

/// The child of this RDN, from what was found before; none if there is none.
pub(crate) fn found_child<'s, S: Snapshot>(
    snapshot: &'s S,
    parent: EntryId,
    normal_rdn: &[u8],
    found: &FoundChildren,
) -> Result<Option<LocatedEntry<'s>>, Fault> {
    let located =
        |id, stored| LocatedEntry { resolved: DnLookup { id: Some(id), nearest: id, missing: 0 }, stored };
    let slot = found.slot(parent, normal_rdn);
    if let Some(id) = slot.id()
        && let Some(stored) = snapshot.get(ENTRIES, &id.to_bytes())?
        && is_child(&stored, parent, normal_rdn)
    {
        return Ok(Some(located(id, Some(stored))));
    }
    let id = child(snapshot, parent, normal_rdn)?;
    Ok(id.map(|id| {
        slot.note(id);
        located(id, None)
    }))
}

/// What became of a look-up by DN.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DnLookup {
    /// The entry, if there is one of this DN.
    pub id: Option<EntryId>,
    /// The entry itself or the nearest superior that exists; [`EntryId::ROOT`] when not even the suffix does.
    pub nearest: EntryId,
    /// RDNs of the DN below `nearest`.
    pub missing: usize,
}

/// What became of it, with the record of the nearest entry as it is stored, where it was read on the way.
#[derive(Clone, Debug)]
pub struct LocatedEntry<'s> {
    pub resolved: DnLookup,
    pub stored: Option<Cow<'s, [u8]>>,
}

impl From<DnLookup> for LocatedEntry<'_> {
    fn from(resolved: DnLookup) -> Self {
        Self { resolved, stored: None }
    }
}

/// Looks up a DN within the suffix: RDN by RDN from the suffix down.
pub fn resolve<S: Snapshot>(snapshot: &S, suffix: &NormalDn, dn: &NormalDn) -> Result<DnLookup, Fault> {
    let below = dn.depth().saturating_sub(suffix.depth());
    let absent =
        DnLookup { id: None, nearest: EntryId::ROOT, missing: below + usize::from(suffix.depth() > 0) };
    if !(dn == suffix || dn.is_descendant_of(suffix)) {
        return Ok(absent);
    }
    let mut at = EntryId::ROOT;
    if suffix.depth() > 0 || below == 0 {
        match child(snapshot, EntryId::ROOT, suffix.as_str().as_bytes())? {
            Some(id) => at = id,
            None => return Ok(absent),
        }
    }
    let rdns: SmallVec<[&[u8]; 16]> = dn.rdns().take(below).collect();
    for (done, rdn) in rdns.iter().rev().enumerate() {
        match child(snapshot, at, rdn)? {
            Some(id) => at = id,
            None => return Ok(DnLookup { id: None, nearest: at, missing: below - done }),
        }
    }
    Ok(DnLookup { id: Some(at), nearest: at, missing: 0 })
}

/// Calls `visit` with the id of each child in the order of their RDNs, until it answers false.
pub fn visit_children<S: Snapshot>(
    snapshot: &S,
    parent: EntryId,
    mut visit: impl FnMut(EntryId) -> bool,
) -> Result<(), Fault> {
    let prefix = parent.to_bytes();
    for row in snapshot.scan(TREE, KeyRange::prefix(&prefix), Direction::Forward)? {
        let (key, value) = row?;
        // The entry of the empty DN is no child of the root.
        if key.len() == prefix.len() {
            continue;
        }
        let id = EntryId::from_prefix(&value).ok_or(Fault::Damaged { what: "a row of the tree" })?;
        if !visit(id) {
            break;
        }
    }
    Ok(())
}

pub fn has_children<S: Snapshot>(snapshot: &S, parent: EntryId) -> Result<bool, Fault> {
    Ok(count_children(snapshot, parent, 1)? > 0)
}

/// Whether there are children beside this one.
pub(crate) fn has_other_children<S: Snapshot>(
    snapshot: &S,
    parent: EntryId,
    child: EntryId,
) -> Result<bool, Fault> {
    let mut found = false;
    visit_children(snapshot, parent, |id| {
        found = id != child;
        !found
    })?;
    Ok(found)
}

/// The number of children, counted up to `limit`.
pub(crate) fn count_children<S: Snapshot>(snapshot: &S, parent: EntryId, limit: u64) -> Result<u64, Fault> {
    let mut count = 0;
    visit_children(snapshot, parent, |_| {
        count += 1;
        count < limit
    })?;
    Ok(count)
}

/// The ids of an entry and all below it, superiors first, at most `limit` of them.
pub fn subtree<S: Snapshot>(snapshot: &S, top: EntryId, limit: usize) -> Result<Vec<EntryId>, Fault> {
    let mut ids = vec![top];
    let mut next = 0;
    while let Some(parent) = ids.get(next).copied() {
        next += 1;
        visit_children(snapshot, parent, |id| {
            ids.push(id);
            ids.len() < limit
        })?;
        if ids.len() >= limit {
            break;
        }
    }
    Ok(ids)
}

/// An entry that has subordinates, as the cache knows it.
#[derive(Debug)]
pub struct Superior {
    pub id: EntryId,
    pub parent: EntryId,
    /// The DN as it is shown.
    pub dn: String,
    /// The normalized DN.
    pub normal: NormalDn,
}

/// Names of entries by id, as of one snapshot. Superiors come from a cache that each thread keeps for each database.
#[derive(Debug)]
pub struct Names<'s, S> {
    snapshot: &'s S,
    database: u64,
    generation: u64,
}

impl<S> Clone for Names<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Names<'_, S> {}

#[derive(Debug, Default)]
struct Cache {
    /// The number of the database.
    database: u64,
    generation: u64,
    superiors: HashMap<EntryId, Arc<Superior>>,
    /// Of the names of superiors.
    bytes: usize,
    /// The superior that was asked for last.
    last_superior: Option<Arc<Superior>>,
    /// Superiors by DN, with the commit in which they were found: an older view may not have them yet.
    by_name: HashMap<NormalDn, (EntryId, u64)>,
    /// The one of them that was asked for last: entries that are asked for in turn mostly lie below the same one.
    last: Option<(NormalDn, (EntryId, u64))>,
}

impl Cache {
    /// Makes room, and forgets names of another generation.
    fn prepare(&mut self, generation: u64) {
        let is_full = self.superiors.len() + self.by_name.len() >= CACHE_LIMIT || self.bytes >= CACHE_BYTES;
        if self.generation != generation || is_full {
            self.superiors.clear();
            self.bytes = 0;
            self.last_superior = None;
            self.by_name.clear();
            self.last = None;
            self.generation = generation;
        }
    }

    /// A superior by its id.
    fn superior(&mut self, id: EntryId) -> Option<Arc<Superior>> {
        if let Some(last) = self.last_superior.as_ref().filter(|last| last.id == id) {
            return Some(Arc::clone(last));
        }
        let found = self.superiors.get(&id)?;
        self.last_superior = Some(Arc::clone(found));
        Some(Arc::clone(found))
    }

    /// A superior by its DN, with the commit in which it was found.
    fn named(&mut self, name: &NormalDn) -> Option<(EntryId, u64)> {
        if let Some((last, found)) = &self.last
            && last == name
        {
            return Some(*found);
        }
        let (name, found) = self.by_name.get_key_value(name)?;
        self.last = Some((name.clone(), *found));
        Some(*found)
    }

    fn put_name(&mut self, name: NormalDn, found: (EntryId, u64)) {
        self.last = None;
        self.bytes += name.as_str().len();
        self.by_name.insert(name, found);
    }
}

thread_local! {
    /// The database that was asked for last stands first.
    static CACHES: RefCell<Vec<Cache>> = const { RefCell::new(Vec::new()) };
}

/// What is remembered of a database. It moves to the front: the next look-up is mostly for the same database.
fn cache_of(caches: &mut [Cache], database: u64) -> Option<&mut Cache> {
    if caches.first().is_none_or(|first| first.database != database) {
        let at = caches.iter().position(|cache| cache.database == database)?;
        caches.swap(0, at);
    }
    caches.first_mut()
}

/// Forgets what this thread remembers of a database: after changes that it saw were not committed.
pub fn forget(database: u64) {
    CACHES.with_borrow_mut(|caches| caches.retain(|cache| cache.database != database));
}

impl<'s, S: Snapshot> Names<'s, S> {
    /// `database` tells databases of this process apart; `generation` is the [snapshot's](generation).
    pub(crate) fn of_generation(snapshot: &'s S, database: u64, generation: u64) -> Self {
        Self { snapshot, database, generation }
    }

    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// As [`resolve`] of a name within the suffix, with the superior of the name from the cache if it is there, and the entry from what was
    /// found before.
    pub fn locate(
        &self,
        suffix: &NormalDn,
        dn: &NormalDn,
        found: &FoundChildren,
    ) -> Result<LocatedEntry<'s>, Fault> {
        let is_below = dn.depth() > suffix.depth();
        let Some(parent) = dn.parent().filter(|parent| is_below && !parent.is_root()) else {
            return Ok(resolve(self.snapshot, suffix, dn)?.into());
        };
        let commit = self.snapshot.commit_counter();
        let known = CACHES.with_borrow_mut(|caches| {
            let cache = self.cache_among(caches)?;
            cache.named(&parent).filter(|(_, found)| *found <= commit).map(|(id, _)| id)
        });
        let (Some(nearest), Some(rdn)) = (known, dn.rdns().next()) else {
            let resolved = resolve(self.snapshot, suffix, dn)?;
            if let DnLookup { id: Some(id), .. } = resolved {
                self.remember_parent(id, parent, commit)?;
            }
            return Ok(resolved.into());
        };
        let absent = DnLookup { id: None, nearest, missing: 1 };
        Ok(found_child(self.snapshot, nearest, rdn, found)?.unwrap_or_else(|| absent.into()))
    }

    fn remember_parent(&self, child: EntryId, name: NormalDn, commit: u64) -> Result<(), Fault> {
        let Some(record) = self.snapshot.get(ENTRIES, &child.to_bytes())? else { return Ok(()) };
        let parent = EntryView::parse(child, &record)?.parent();
        if parent != EntryId::ROOT {
            self.note(|cache| cache.put_name(name, (parent, commit)));
        }
        Ok(())
    }

    /// An entry that is a superior of another; `None` for the root.
    pub fn superior(&self, id: EntryId) -> Result<Option<Arc<Superior>>, Fault> {
        if id == EntryId::ROOT {
            return Ok(None);
        }
        if let Some(known) = self.cached(id) {
            return Ok(Some(known));
        }
        // Upwards to one that is remembered, then down again: nothing here takes more stack for a deeper tree.
        let mut unknown = Vec::new();
        let (mut at, mut bytes) = (id, 0);
        let mut above = loop {
            let record = self
                .snapshot
                .get(ENTRIES, &at.to_bytes())?
                .ok_or(Fault::Missing { entry: at, what: "the record" })?;
            let view = EntryView::parse(at, &record)?;
            let parent = view.parent();
            bytes += 1 + view.rdn_octets().len().max(view.normal_rdn().len());
            check_name_length(bytes)?;
            unknown.push((at, record));
            if parent == EntryId::ROOT {
                break None;
            }
            if let Some(known) = self.cached(parent) {
                break Some(known);
            }
            at = parent;
        };
        for (id, record) in unknown.into_iter().rev() {
            let view = EntryView::parse(id, &record)?;
            let mut dn = view.rdn().to_owned();
            if let Some(above) = &above {
                dn.push(',');
                dn.push_str(&above.dn);
            }
            check_name_length(dn.len())?;
            let normal = normal_name(&view, above.as_deref())?;
            let superior = Arc::new(Superior { id, parent: view.parent(), dn, normal });
            self.remember(&superior);
            above = Some(superior);
        }
        Ok(above)
    }

    /// Fetches the superiors of records that are about to be named, of a store that is a round trip away.
    pub(crate) fn fetch_superiors<'r>(
        &self,
        records: impl Iterator<Item = (EntryId, &'r Option<Cow<'s, [u8]>>)>,
    ) -> Result<(), Fault>
    where
        's: 'r,
    {
        let mut wanted: Vec<EntryId> = Vec::new();
        for (id, record) in records {
            let Some(record) = record else { continue };
            let parent = EntryView::parse(id, record)?.parent();
            if parent != EntryId::ROOT && !wanted.contains(&parent) && self.cached(parent).is_none() {
                wanted.push(parent);
            }
        }
        let record = |id: EntryId| Wanted::Record { table: ENTRIES, key: id.to_bytes().to_vec() };
        self.snapshot.fetch_ahead(&wanted.into_iter().map(record).collect::<Vec<_>>());
        Ok(())
    }

    /// Appends the DN as it is shown.
    pub(crate) fn append_dn(&self, entry: &EntryView<'_>, out: &mut String) -> Result<(), Fault> {
        let superior = self.superior(entry.parent())?;
        out.reserve(entry.rdn_octets().len() + superior.as_ref().map_or(0, |superior| 1 + superior.dn.len()));
        out.push_str(entry.rdn());
        if let Some(superior) = superior {
            out.push(',');
            out.push_str(&superior.dn);
        }
        Ok(())
    }

    /// The same as octets. `superior` is what is known of the [superior](Self::superior) that the entry has.
    pub(crate) fn append_octets(
        &self,
        entry: &EntryView<'_>,
        superior: Option<&Superior>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let found = if superior.is_some() { None } else { self.superior(entry.parent())? };
        out.extend_from_slice(entry.rdn_octets());
        if let Some(superior) = superior.or(found.as_deref()) {
            out.push(b',');
            out.extend_from_slice(superior.dn.as_bytes());
        }
        Ok(())
    }

    /// The normalized DN.
    pub fn normal_dn(&self, entry: &EntryView<'_>) -> Result<NormalDn, Fault> {
        normal_name(entry, self.superior(entry.parent())?.as_deref())
    }

    /// Notes where the entry is, for who asks for it by its name.
    pub(crate) fn note_found(&self, entry: &EntryView<'_>, found: &FoundChildren) {
        found.slot(entry.parent(), entry.normal_rdn()).note(entry.id());
    }

    /// Whether the entry is below `base` (at any depth, itself excluded). Everything is below the root.
    pub fn is_below(&self, entry: &EntryView<'_>, base: EntryId) -> Result<bool, Fault> {
        if base == EntryId::ROOT {
            return Ok(true);
        }
        let mut at = entry.parent();
        while at != base {
            match self.superior(at)? {
                None => return Ok(false),
                Some(superior) => at = superior.parent,
            }
        }
        Ok(true)
    }

    /// What this thread remembers of the database as of this generation.
    fn cache_among<'c>(&self, caches: &'c mut [Cache]) -> Option<&'c mut Cache> {
        cache_of(caches, self.database).filter(|cache| cache.generation == self.generation)
    }

    fn cached(&self, id: EntryId) -> Option<Arc<Superior>> {
        CACHES.with_borrow_mut(|caches| self.cache_among(caches)?.superior(id))
    }

    fn remember(&self, superior: &Arc<Superior>) {
        self.note(|cache| {
            cache.bytes += superior.dn.len() + superior.normal.as_str().len();
            cache.superiors.insert(superior.id, Arc::clone(superior));
        });
    }

    /// Adds to what is remembered of the database.
    fn note(&self, add: impl FnOnce(&mut Cache)) {
        CACHES.with_borrow_mut(|caches| {
            if cache_of(caches, self.database).is_none() {
                if caches.len() >= DATABASES_MAX {
                    caches.clear();
                }
                caches.push(Cache { database: self.database, ..Cache::default() });
            }
            if let Some(cache) = cache_of(caches, self.database) {
                cache.prepare(self.generation);
                add(cache);
            }
        });
    }
}

fn check_name_length(bytes: usize) -> Result<(), Fault> {
    if bytes > NAME_BYTES_MAX {
        return Err(Fault::Damaged {
            what: "the tree above an entry, whose name is too long or has no end,",
        });
    }
    Ok(())
}

/// The normalized DN of an entry below `superior`.
fn normal_name(entry: &EntryView<'_>, superior: Option<&Superior>) -> Result<NormalDn, Fault> {
    let rdn =
        std::str::from_utf8(entry.normal_rdn()).map_err(|_| Fault::Damaged { what: "a normalized RDN" })?;
    Ok(match superior {
        None => NormalDn::from_normal(rdn),
        Some(superior) => NormalDn::join(&NormalRdn::from_normal(rdn), &superior.normal),
    })
}

#[cfg(test)]
mod tests;
