//! A server's side: digests of what a database holds, by reading it once in slices.

use std::collections::HashMap;
use std::fmt;
use std::ops::ControlFlow;

use larix_engine::csn::Csn;
use larix_engine::tables::ENTRIES;
use larix_engine::{AttributeNumber, Database, EntryId, Fault, View, log};
use larix_schema::{NormalDn, Usage};
use larix_store::{Direction, KeyRange, Snapshot, Store};
use uuid::Uuid;

use super::{DigestRequest, DigestResponse, EntryDigest, Gathered, Row, is_local};

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
    /// contextCSN before anything was read.
    before: Vec<Csn>,
    after: Vec<Csn>,
    gathered: Gathered,
    /// An id is never given to another entry, nor an entry another entryUUID.
    superiors: HashMap<EntryId, Uuid>,
    /// Attributes by number: their names in lower case, none for those that do not count.
    names: HashMap<AttributeNumber, Option<String>>,
}

impl<'r> Scanner<'r> {
    /// `base`: the request's, normalised.
    #[must_use]
    pub fn new(request: &'r DigestRequest, base: NormalDn) -> Self {
        Self {
            request,
            base,
            before: Vec::new(),
            after: Vec::new(),
            gathered: Gathered::new(request),
            superiors: HashMap::new(),
            names: HashMap::new(),
        }
    }

    /// Reads a database. `between` is called between two slices, when no snapshot is held.
    ///
    /// # Errors
    /// A store that cannot be read, or [`ScanError::Stopped`] by `between`.
    pub fn read<S: Store>(
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
                found.into_iter().for_each(|row| self.gathered.add(row));
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
        self.gathered.finish([self.before, self.after])
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
        let (uuid, csn) = identity(view, id, &record)?;
        let superior = self.superior(view, reader.view.parent())?;
        let mut digest = EntryDigest::new(&uuid, superior.as_ref(), reader.view.normal_rdn(), csn.as_ref());
        for attribute in reader.view.attributes() {
            let (number, values) = attribute?;
            let without = &self.request.without;
            let name = self.names.entry(number).or_insert_with(|| counted_name(view, number, without));
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
        if let Some(known) = self.superiors.get(&id) {
            return Ok(Some(*known));
        }
        let record = view.record(id)?.ok_or(Fault::Missing { entry: id, what: "the record" })?;
        let (uuid, _) = identity(view, id, &record)?;
        if self.superiors.len() >= SUPERIORS_MAX {
            self.superiors.clear();
        }
        self.superiors.insert(id, uuid);
        Ok(Some(uuid))
    }
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
    without: &[String],
) -> Option<String> {
    let description = view.catalog.row(number)?.description.clone()?;
    let attribute = view.schema.attribute(description.attribute);
    let left_out = |name: &str| without.iter().any(|left_out| left_out.eq_ignore_ascii_case(name));
    if attribute.usage == Usage::DsaOperation
        || is_local(attribute.name())
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
