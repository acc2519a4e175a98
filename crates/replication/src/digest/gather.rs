//! Entries gathered into the ranges that were asked for.

use std::collections::BTreeMap;

use larix_engine::EntryId;
use larix_engine::csn::Csn;
use uuid::Uuid;

use super::{Cell, Content, DigestRequest, DigestResponse, HASH_BITS, LIST_MAX, Range, Row, hash_of};

/// The ranges of a request while entries come, in any order.
#[derive(Debug)]
pub struct DigestBuilder {
    entries: u64,
    ranges: Vec<PendingRange>,
}

#[derive(Debug)]
struct PendingRange {
    range: Range,
    split: u32,
    cells: Vec<Cell>,
    /// Its entries while they are few.
    rows: Option<BTreeMap<Uuid, Row>>,
}

impl DigestBuilder {
    /// For a request that keeps its [limits](DigestRequest::check).
    #[must_use]
    pub fn new(request: &DigestRequest) -> Self {
        let part = |(range, split): &(Range, u32)| PendingRange {
            range: *range,
            split: *split,
            cells: vec![Cell::default(); 1 << split],
            rows: Some(BTreeMap::new()),
        };
        Self { entries: 0, ranges: request.ranges.iter().map(part).collect() }
    }

    pub fn add(&mut self, row: Row) {
        self.entries += 1;
        let hash = hash_of(&row.uuid);
        for part in self.ranges.iter_mut().filter(|part| part.range.holds(hash)) {
            if let Some(cell) = part.cells.get_mut(part.range.part_of(hash, part.split)) {
                cell.add(row.digest);
            }
            if let Some(rows) = &mut part.rows {
                rows.insert(row.uuid, row);
                // What cannot be split any further is listed whatever its size.
                if rows.len() > LIST_MAX && part.range.bits < HASH_BITS {
                    part.rows = None;
                }
            }
        }
    }

    /// As [`Self::add`] for all entries of a database whose digests and hashes of entryUUIDs are known. Answers
    /// those that are to be [listed](Self::list).
    pub(super) fn add_all(&mut self, entries: impl Iterator<Item = (EntryId, u32, u128)>) -> Vec<EntryId> {
        let mut few: Vec<Vec<EntryId>> = vec![Vec::new(); self.ranges.len()];
        for (id, hash, digest) in entries {
            self.entries += 1;
            let parts = self.ranges.iter_mut().zip(&mut few);
            for (part, ids) in parts.filter(|(part, _)| part.range.holds(hash)) {
                if let Some(cell) = part.cells.get_mut(part.range.part_of(hash, part.split)) {
                    cell.add(digest);
                }
                if let Some(rows) = &part.rows {
                    ids.push(id);
                    if rows.len() + ids.len() > LIST_MAX && part.range.bits < HASH_BITS {
                        part.rows = None;
                        *ids = Vec::new();
                    }
                }
            }
        }
        few.concat()
    }

    /// An entry that is counted already, for the list.
    pub(super) fn list(&mut self, row: Row) {
        let hash = hash_of(&row.uuid);
        for part in self.ranges.iter_mut().filter(|part| part.range.holds(hash)) {
            if let Some(rows) = &mut part.rows {
                rows.insert(row.uuid, row);
            }
        }
    }

    /// `context`: contextCSN before the first entry was read and after the last.
    #[must_use]
    pub fn finish(self, context: [Vec<Csn>; 2]) -> DigestResponse {
        let content = |part: PendingRange| match part.rows {
            Some(rows) => Content::Listed(rows.into_values().collect()),
            None => Content::Split(part.cells),
        };
        let ranges = self.ranges.into_iter().map(content).collect();
        DigestResponse { entries: self.entries, context, ranges }
    }
}
