//! The asking side: from two servers' answers to the entries that differ.

use std::collections::{BTreeMap, VecDeque};

use larix_engine::csn::Csn;
use uuid::Uuid;

use super::{CELLS_MAX, Cell, Content, DigestRequest, HASH_BITS, RANGES_MAX, Range, Row, hash_of};

/// By how many bits the whole is split: a million entries are some 250 in each part.
const FIRST_SPLIT: u32 = 12;
/// By how many bits a part is split that is still large.
const SPLIT: u32 = 8;

/// An entry that is not the same on both servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferentEntry {
    pub uuid: Uuid,
    /// On each server: its entryCSN if the entry is there (none for one without).
    pub here: Option<Option<Csn>>,
    pub there: Option<Option<Csn>>,
}

/// What to ask both servers next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Ranges and by how many bits to split them.
    pub ranges: Vec<(Range, u32)>,
}

impl Question {
    #[must_use]
    pub fn request(&self, base: &str, without: &[String]) -> DigestRequest {
        DigestRequest { base: base.to_owned(), without: without.to_vec(), ranges: self.ranges.clone() }
    }
}

/// A comparison under way. Ask both servers what [`Self::question`] says and hand their answers to [`Self::answers`],
/// until there is no question left.
#[derive(Debug)]
pub struct Difference {
    /// Ranges that are not known to be equal.
    open: VecDeque<(Range, u32)>,
    requested: Vec<(Range, u32)>,
    /// What differs, as far as it is known.
    different: Vec<DifferentEntry>,
    /// No more of them than so are wanted.
    limit: usize,
}

impl Difference {
    /// Stops looking when `limit` entries were found that differ.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            open: VecDeque::from([(Range::ALL, FIRST_SPLIT)]),
            requested: Vec::new(),
            different: Vec::new(),
            limit,
        }
    }

    /// What to ask next; none when all is known, or as much as is wanted.
    pub fn question(&mut self) -> Option<Question> {
        if self.different.len() >= self.limit {
            return None;
        }
        let mut cells = 0;
        self.requested.clear();
        while let Some((range, split)) = self.open.front().copied() {
            cells += 1usize << split;
            if self.requested.len() == RANGES_MAX || cells > CELLS_MAX {
                break;
            }
            self.requested.push((range, split));
            self.open.pop_front();
        }
        (!self.requested.is_empty()).then(|| Question { ranges: self.requested.clone() })
    }

    /// What the servers answered.
    ///
    /// # Errors
    /// An answer that does not fit the question.
    pub fn answers(&mut self, here: &[Content], there: &[Content]) -> Result<(), &'static str> {
        if here.len() != self.requested.len() || there.len() != self.requested.len() {
            return Err("an answer has another number of ranges than were asked for");
        }
        for ((range, split), (here, there)) in
            std::mem::take(&mut self.requested).into_iter().zip(here.iter().zip(there))
        {
            match (here, there) {
                (Content::Listed(here), Content::Listed(there)) => self.rows(here, there),
                _ => {
                    let (here, there) = (cells(here, range, split)?, cells(there, range, split)?);
                    for (number, _) in here.iter().zip(&there).enumerate().filter(|(_, (a, b))| a != b) {
                        let part = range.part(number, split);
                        self.open.push_back((part, SPLIT.min(HASH_BITS - part.bits)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Entries that differ, as far as is known.
    #[must_use]
    pub fn different(&self) -> &[DifferentEntry] {
        &self.different
    }

    /// Whether there may be more that differ than were found.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.different.len() >= self.limit && !(self.open.is_empty() && self.requested.is_empty())
    }

    fn rows(&mut self, here: &[Row], there: &[Row]) {
        let mut both: BTreeMap<Uuid, (Option<&Row>, Option<&Row>)> = BTreeMap::new();
        here.iter().for_each(|row| both.entry(row.uuid).or_default().0 = Some(row));
        there.iter().for_each(|row| both.entry(row.uuid).or_default().1 = Some(row));
        for (uuid, (here, there)) in both {
            if here.map(|row| row.digest) != there.map(|row| row.digest) {
                let (here, there) = (here.map(|row| row.csn), there.map(|row| row.csn));
                self.different.push(DifferentEntry { uuid, here, there });
            }
        }
    }
}

/// The cells of a range, made of its rows where it was listed.
fn cells(content: &Content, range: Range, split: u32) -> Result<Vec<Cell>, &'static str> {
    match content {
        Content::Split(cells) if cells.len() == 1 << split => Ok(cells.clone()),
        Content::Split(_) => Err("a range is split into another number of parts than was asked for"),
        Content::Listed(rows) => {
            let mut cells = vec![Cell::default(); 1 << split];
            for row in rows {
                let hash = hash_of(&row.uuid);
                if !range.holds(hash) {
                    return Err("an entry is listed in a range that it is not in");
                }
                if let Some(cell) = cells.get_mut(range.part_of(hash, split)) {
                    cell.add(row.digest);
                }
            }
            Ok(cells)
        }
    }
}
