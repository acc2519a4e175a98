//! A server's side: digests of what a database holds, by reading it once in slices, or what of it has changed since the
//! last question.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, MutexGuard};

use larix_engine::csn::Csn;
use larix_engine::entry::record::{self, RecordFlags};
use larix_engine::log::{LogOutline, NumberedRows};
use larix_engine::tables::ENTRIES;
use larix_engine::{AttributeNumber, Database, EntryId, Fault, View, log};
use larix_schema::{NormalDn, Usage};
use larix_store::{Direction, KeyRange, Snapshot, Store};
use uuid::Uuid;

use super::cache::{DigestBasis, DigestCache, Table};
use super::{DigestBuilder, DigestRequest, DigestResponse, EntryDigest, Row, hash_of, is_local};

/// Entries read in one snapshot.
const SLICE_ENTRIES: usize = 1_000;
/// Superiors whose entryUUIDs are remembered.
const SUPERIORS_MAX: usize = 65_536;

/// Why no digests could be made.
#[derive(Debug)]
pub enum ScanError {
    Fault(Fault),
    /// The caller did not want to go on.
    Stopped,
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Stopped => f.write_str("the digests were not finished"),
        }
    }
}

impl std::error::Error for ScanError {}

impl From<Fault> for ScanError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Digests while they are made, over one database or several that are glued together.
#[derive(Debug)]
pub struct Scanner<'r> {
    request: &'r DigestRequest,
    base: NormalDn,
    /// Attributes that overlays of this server derive or keep for themselves.
    local: &'r [&'r str],
    /// contextCSN before anything was read.
    before: Vec<Csn>,
    after: Vec<Csn>,
    builder: DigestBuilder,
    /// An id is never given to another entry, nor an entry another entryUUID.
    superiors: HashMap<EntryId, Uuid>,
    /// Of the view that they were seen in: behind a break in the commits of a shared store an id may be another entry's.
    unbroken_since: u64,
    /// Attributes by number: their names in lower case, none for those that do not count.
    names: HashMap<AttributeNumber, Option<String>>,
    /// What was kept did not lead on.
    began_anew: bool,
}

impl<'r> Scanner<'r> {
    /// `base`: the request's, normalised. `local`: attributes that overlays of each server derive or keep by themselves; for one
    /// database always the same.
    #[must_use]
    pub fn new(request: &'r DigestRequest, base: NormalDn, local: &'r [&'r str]) -> Self {
        Self {
            request,
            base,
            local,
            before: Vec::new(),
            after: Vec::new(),
            builder: DigestBuilder::new(request),
            superiors: HashMap::new(),
            unbroken_since: 0,
            names: HashMap::new(),
            began_anew: false,
        }
    }

    /// Reads a database: where that can be known, only what has changed since the last question. `between` is called
    /// between two slices, when no snapshot is held.
    ///
    /// # Errors
    /// A store that cannot be read, or [`ScanError::Stopped`] by `between`.
    pub fn read<S: Store>(
        &mut self,
        database: &Database<S>,
        between: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), ScanError> {
        if self.request.without.is_empty()
            && self.is_whole(database)
            && let Some(cache) = database.attached::<DigestCache>()
            && self.read_cached(database, cache, between)?
        {
            return Ok(());
        }
        self.scan(database, between)
    }

    /// Whether all of the database is asked for.
    fn is_whole<S: Store>(&self, database: &Database<S>) -> bool {
        let suffixes = &database.current_settings().suffixes;
        let mut within = suffixes.iter().map(|suffix| suffix.normal.is_within(&self.base));
        suffixes.iter().any(|suffix| suffix.normal == self.base) || within.all(|within| within)
    }

    /// Brings what was kept up to date and takes it. False when nothing can be kept of this database: its changes are not
    /// logged, or it is too large.
    fn read_cached<S: Store>(
        &mut self,
        database: &Database<S>,
        cache: &DigestCache,
        between: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<bool, ScanError> {
        let mut table_guard = cache.lock();
        self.superiors.clear();
        let snapshot = database.store().snapshot().map_err(Fault::from)?;
        let before = log::context_csns(&snapshot)?;
        let view = database.view(&snapshot)?;
        let Some((basis, last)) = basis(database, &view)? else { return Ok(false) };
        drop(view);
        drop(snapshot);
        let cached = table_guard.take().filter(|table| table.basis == basis);
        // Where to go on with the entries; none when all were read.
        let mut next = if cached.is_none() { Some(EntryId(1)) } else { None };
        let mut table = cached.unwrap_or_else(|| Table::new(basis, last));
        loop {
            let snapshot = database.store().snapshot().map_err(Fault::from)?;
            let view = database.view(&snapshot)?;
            let log_ends = match next {
                Some(from) => {
                    next = match self.entries_from(&view, from, &mut table)? {
                        Some(next) => next,
                        None => return Ok(false),
                    };
                    false
                }
                None => match self.changes(database, &view, &mut table)? {
                    Some(ended) => ended,
                    // Another history, or records that have gone: from the beginning.
                    None => return self.anew(database, cache, table_guard, between),
                },
            };
            if log_ends {
                for id in self.builder.add_all(table.entries()) {
                    let Some(stored) = view.stored(id)? else { continue };
                    self.entry(&view, id, &stored)?.into_iter().for_each(|row| self.builder.list(row));
                }
                merge(&mut self.before, &before);
                merge(&mut self.after, &log::context_csns(&snapshot)?);
                *table_guard = Some(table);
                return Ok(true);
            }
            drop(view);
            drop(snapshot);
            if between().is_break() {
                return Err(ScanError::Stopped);
            }
        }
    }

    /// After what was kept was of no use any more: as the first time; what changes so fast is scanned.
    fn anew<S: Store>(
        &mut self,
        database: &Database<S>,
        cache: &DigestCache,
        table_guard: MutexGuard<'_, Option<Table>>,
        between: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<bool, ScanError> {
        drop(table_guard);
        if self.began_anew {
            return Ok(false);
        }
        self.began_anew = true;
        self.read_cached(database, cache, between)
    }

    /// Takes a slice of the entries in. Answers where to go on, if there are more; none when there are too many to keep.
    fn entries_from<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        from: EntryId,
        table: &mut Table,
    ) -> Result<Option<Option<EntryId>>, ScanError> {
        self.names.clear();
        let (first, mut last, mut read) = (from.to_bytes(), from, 0);
        let rows = view.snapshot.scan(ENTRIES, KeyRange::at_least(&first), Direction::Forward);
        for row in rows.map_err(Fault::from)?.take(SLICE_ENTRIES) {
            let (key, stored) = row.map_err(Fault::from)?;
            last = EntryId::from_prefix(&key).ok_or(Fault::Damaged { what: "a key of the entries" })?;
            read += 1;
            let row = self.entry(view, last, &stored)?.map(|row| (hash_of(&row.uuid), row.digest));
            if !table.set(last, row) {
                return Ok(None);
            }
        }
        Ok(Some((read == SLICE_ENTRIES).then(|| EntryId(last.0 + 1))))
    }

    /// Takes in what a slice of the change log says has changed. Answers whether it ended; none when it does not lead on
    /// from what is known.
    fn changes<S: Store, N: Snapshot>(
        &mut self,
        database: &Database<S>,
        view: &View<'_, N>,
        table: &mut Table,
    ) -> Result<Option<bool>, ScanError> {
        self.names.clear();
        let same = basis(database, view)?.is_some_and(|(basis, _)| basis == table.basis);
        if !same || !Arc::ptr_eq(&view.schema, &table.basis.schema) {
            return Ok(None);
        }
        let (mut changed, mut read) = (BTreeSet::new(), 0);
        for row in NumberedRows::after(view.snapshot, table.position, Direction::Forward)?.take(SLICE_ENTRIES)
        {
            let (key, stored) = row?;
            if key.sequence != table.position + 1 {
                return Ok(None);
            }
            let damaged = Fault::Damaged { what: "a record of the change log" };
            changed.insert(LogOutline::decode(&stored).map_err(|_| damaged)?.entry);
            (read, table.position) = (read + 1, key.sequence);
        }
        for id in changed.into_iter().filter(|id| *id != EntryId::ROOT) {
            let row = match view.stored(id)? {
                Some(stored) => self.entry(view, id, &stored)?.map(|row| (hash_of(&row.uuid), row.digest)),
                None => None,
            };
            if !table.set(id, row) {
                return Ok(None);
            }
        }
        Ok(Some(read < SLICE_ENTRIES))
    }

    /// Reads everything.
    fn scan<S: Store>(
        &mut self,
        database: &Database<S>,
        between: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), ScanError> {
        self.superiors.clear();
        let snapshot = database.store().snapshot().map_err(Fault::from)?;
        merge(&mut self.before, &log::context_csns(&snapshot)?);
        drop(snapshot);
        let mut next = EntryId(1);
        loop {
            let snapshot = database.store().snapshot().map_err(Fault::from)?;
            let view = database.view(&snapshot)?;
            // Another schema or catalog may have other names under these numbers.
            self.names.clear();
            let from = next.to_bytes();
            let mut read = 0;
            let rows = snapshot.scan(ENTRIES, KeyRange::at_least(&from), Direction::Forward);
            for row in rows.map_err(Fault::from)?.take(SLICE_ENTRIES) {
                let (key, stored) = row.map_err(Fault::from)?;
                let id = EntryId::from_prefix(&key).ok_or(Fault::Damaged { what: "a key of the entries" })?;
                next = EntryId(id.0.saturating_add(1));
                read += 1;
                let found = self.entry(&view, id, &stored)?;
                found.into_iter().for_each(|row| self.builder.add(row));
            }
            if read < SLICE_ENTRIES {
                merge(&mut self.after, &log::context_csns(&snapshot)?);
                return Ok(());
            }
            drop(view);
            drop(snapshot);
            if between().is_break() {
                return Err(ScanError::Stopped);
            }
        }
    }

    #[must_use]
    pub fn finish(self) -> DigestResponse {
        self.builder.finish([self.before, self.after])
    }

    /// `None`: the entry is not below the base.
    fn entry<N: Snapshot>(
        &mut self,
        view: &View<'_, N>,
        id: EntryId,
        stored: &[u8],
    ) -> Result<Option<Row>, Fault> {
        let record = view.unpacked(id, stored)?;
        let reader = view.reader(id, &record)?;
        let is_whole = view.settings.suffixes.iter().any(|suffix| suffix.normal == self.base);
        if !is_whole && !view.names.normal_dn(&reader.view)?.is_within(&self.base) {
            return Ok(None);
        }
        if reader.view.flags().has(RecordFlags::GLUE) {
            // It has no state of its own: its RDN is in the digests of what stands on it.
            return Ok(None);
        }
        let (uuid, csn) = identity(view, id, &record)?;
        let superior = self.superior(view, reader.view.parent())?;
        let mut digest = EntryDigest::new(&uuid, superior.as_ref(), reader.view.normal_rdn(), csn.as_ref());
        for attribute in reader.view.attributes() {
            let (number, values) = attribute?;
            let (local, without) = (self.local, &self.request.without);
            let name = self.names.entry(number).or_insert_with(|| counted_name(view, number, local, without));
            let Some(name) = name else { continue };
            reader.visit_values(number, &values, &mut |value| {
                digest.value(name, value);
                true
            })?;
        }
        Ok(Some(Row { uuid, csn, digest: digest.finish() }))
    }

    fn superior<N: Snapshot>(&mut self, view: &View<'_, N>, id: EntryId) -> Result<Option<Uuid>, Fault> {
        if id == EntryId::ROOT {
            return Ok(None);
        }
        if self.unbroken_since != view.unbroken_since() {
            self.unbroken_since = view.unbroken_since();
            self.superiors.clear();
        }
        if let Some(known) = self.superiors.get(&id) {
            return Ok(Some(*known));
        }
        let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        let reader = view.reader(id, &record)?;
        let uuid = match reader.view.flags().has(RecordFlags::GLUE) {
            // Its RDN is all that it has, and it keeps that.
            true => Uuid::from_bytes(record::digest(reader.view.normal_rdn())),
            false => identity(view, id, &record)?.0,
        };
        if self.superiors.len() >= SUPERIORS_MAX {
            self.superiors.clear();
        }
        self.superiors.insert(id, uuid);
        Ok(Some(uuid))
    }
}

/// What digests of a database stand on, and the last record of its change log; none where changes are not logged.
fn basis<S: Store, N: Snapshot>(
    database: &Database<S>,
    view: &View<'_, N>,
) -> Result<Option<(DigestBasis, u64)>, Fault> {
    let Some(history) = log::history(view.snapshot)? else { return Ok(None) };
    let basis = DigestBasis { schema: database.schema(), history, unbroken_since: view.unbroken_since() };
    Ok(Some((basis, log::last_number(view.snapshot)?)))
}

/// entryUUID and entryCSN; nil and none where an entry has none.
fn identity<N: Snapshot>(
    view: &View<'_, N>,
    id: EntryId,
    record: &[u8],
) -> Result<(Uuid, Option<Csn>), Fault> {
    let reader = view.reader(id, record)?;
    let first = |name: &str| -> Result<Option<String>, Fault> {
        let mut text = None;
        let number = view.schema.describe(name).ok().and_then(|d| view.catalog.number(&d));
        let Some(number) = number else { return Ok(None) };
        if let Some(values) = reader.view.get(number)? {
            reader.visit_values(number, &values, &mut |value| {
                text = std::str::from_utf8(value).ok().map(str::to_owned);
                false
            })?;
        }
        Ok(text)
    };
    let uuid = first("entryUUID")?.and_then(|text| Uuid::parse_str(&text).ok()).unwrap_or_default();
    let csn = first("entryCSN")?.and_then(|text| text.parse().ok());
    Ok((uuid, csn))
}

/// The description of an attribute that counts, in lower case.
fn counted_name<N: Snapshot>(
    view: &View<'_, N>,
    number: AttributeNumber,
    local: &[&str],
    without: &[String],
) -> Option<String> {
    let description = view.catalog.row(number)?.description.clone()?;
    let attribute = view.schema.attribute(description.attribute);
    let left_out = |name: &str| without.iter().any(|left_out| left_out.eq_ignore_ascii_case(name));
    let of_overlays = |name: &str| local.iter().any(|local| local.eq_ignore_ascii_case(name));
    if attribute.usage == Usage::DsaOperation
        || is_local(attribute.name())
        || of_overlays(attribute.name())
        || attribute.names.iter().any(|name| left_out(name))
    {
        return None;
    }
    Some(description.to_text(&view.schema).to_ascii_lowercase())
}

/// The highest CSN of each server.
fn merge(known: &mut Vec<Csn>, more: &[Csn]) {
    for csn in more {
        match known.iter_mut().find(|known| known.server_id == csn.server_id) {
            Some(known) => *known = (*known).max(*csn),
            None => known.push(*csn),
        }
    }
}
