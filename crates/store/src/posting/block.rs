//! The bytes of one block: deltas, runs or a bitmap, whichever is shortest.

use smallvec::SmallVec;

use crate::error::ReadError;
use crate::table::{POSTING_ID_MAX, TableId};

/// Largest value of a block in bytes. Four blocks with keys of some 40 bytes fit into a page of 4 KiB.
pub(super) const BLOCK_BYTES_MAX: usize = 960;
/// What the form, the count and the span take at most.
const PREFACE_BYTES_MAX: usize = 21;
/// Largest part of a block after the preface.
pub(super) const PAYLOAD_BYTES_MAX: usize = BLOCK_BYTES_MAX - PREFACE_BYTES_MAX;
/// A block shorter than this is joined with a neighbour when something is removed from it.
pub(super) const JOIN_BELOW_BYTES: usize = PAYLOAD_BYTES_MAX / 4;
/// Joined blocks are no longer than this, so that the next addition does not split them again.
pub(super) const JOINED_BYTES_MAX: usize = PAYLOAD_BYTES_MAX * 3 / 4;

const _: () = assert!(BLOCK_BYTES_MAX <= 1024);
const _: () = assert!(PREFACE_BYTES_MAX == 1 + 2 * VARINT_BYTES_MAX);
const _: () = assert!(JOIN_BELOW_BYTES * 2 < JOINED_BYTES_MAX);

const VARINT_BYTES_MAX: usize = 10;

/// Set in the first byte of a block whose list has a header.
const LISTED: u8 = 0x80;

pub(super) type BlockBytes = SmallVec<[u8; 64]>;

/// How a block holds its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// For each id after the first: a varint of its distance to the one before, minus 1.
    Deltas = 1,
    /// For the first run a varint of its length minus 1; for each further one a varint of the number of ids missing
    /// before it, minus 1, and one of its length minus 1.
    Runs = 2,
    /// Bit `n` (the lowest of a byte first) stands for the id `first + n`.
    Bitmap = 3,
}

/// `length` ids from `start` on. Runs in a list do not touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) length: u64,
}

impl Run {
    pub(super) fn last(self) -> u64 {
        self.start + (self.length - 1)
    }
}

/// The preface of a block, read.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) count: u64,
    pub(super) form: Form,
    pub(super) listed: bool,
    /// Where the payload begins in the value.
    pub(super) payload: usize,
}

impl View {
    pub(super) fn parse(table: TableId, first: u64, value: &[u8]) -> Result<Self, ReadError> {
        let Some((&tag, rest)) = value.split_first() else {
            return Ok(Self { first, last: first, count: 1, form: Form::Deltas, listed: false, payload: 0 });
        };
        let corrupt = |what| ReadError::Corrupt { table, what };
        let form = match tag & !LISTED {
            1 => Form::Deltas,
            2 => Form::Runs,
            3 => Form::Bitmap,
            _ => return Err(corrupt("a posting block of unknown form")),
        };
        let mut position = 0;
        let count =
            varint(rest, &mut position).ok_or_else(|| corrupt("a posting block ends in its count"))?;
        let span = varint(rest, &mut position).ok_or_else(|| corrupt("a posting block ends in its span"))?;
        let last = first
            .checked_add(span)
            .filter(|last| *last <= POSTING_ID_MAX)
            .ok_or_else(|| corrupt("a posting block spans too far"))?;
        Ok(Self { first, last, count, form, listed: tag & LISTED != 0, payload: position + 1 })
    }

    /// Appends the block's runs.
    pub(super) fn runs(&self, table: TableId, value: &[u8], out: &mut Vec<Run>) -> Result<(), ReadError> {
        let mut ids = Ids::new(*self);
        let corrupt =
            ReadError::Corrupt { table, what: "a posting block does not hold what its preface says" };
        let mut left = self.count;
        while let Some(run) = ids.next_run(value) {
            let Some(rest) = left.checked_sub(run.length) else { return Err(corrupt) };
            left = rest;
            match out.last_mut() {
                Some(before) if before.last().checked_add(1) == Some(run.start) => {
                    before.length += run.length
                }
                _ => out.push(run),
            }
        }
        if left != 0 || out.last().is_none_or(|run| run.last() != self.last) {
            return Err(corrupt);
        }
        Ok(())
    }

    /// The value of the block with `id`, above all of its ids, appended; none where that needs a new encoding.
    pub(super) fn appended(&self, value: &[u8], id: u64) -> Option<BlockBytes> {
        if self.form != Form::Deltas || id <= self.last {
            return None;
        }
        let gap = id - self.last - 1;
        let payload = value.get(self.payload..)?;
        if payload.len() + varint_len(gap) > PAYLOAD_BYTES_MAX {
            return None;
        }
        let mut out = BlockBytes::new();
        preface(Form::Deltas, self.listed, self.count.checked_add(1)?, id - self.first, &mut out);
        out.extend_from_slice(payload);
        push_varint(gap, &mut out);
        Some(out)
    }
}

/// A walk over the ids of a block, which is passed anew to each call so that the walker borrows nothing.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    view: View,
    /// Where to read on: a byte, or in a bitmap a bit.
    position: usize,
    /// The run being walked, from the next id on; empty at the start and between runs.
    run: Option<Run>,
    /// The last id of the run read last; none before the first.
    before: Option<u64>,
}

impl Ids {
    pub(super) fn new(view: View) -> Self {
        let position = if view.form == Form::Bitmap { 0 } else { view.payload };
        Self { view, position, run: None, before: None }
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// The next id.
    pub(super) fn next(&mut self, value: &[u8]) -> Option<u64> {
        let run = match self.run.take() {
            Some(run) => run,
            None => self.next_run(value)?,
        };
        if run.length > 1 {
            self.run = Some(Run { start: run.start + 1, length: run.length - 1 });
        }
        Some(run.start)
    }

    /// The next id that is `>= min`.
    pub(super) fn seek(&mut self, value: &[u8], min: u64) -> Option<u64> {
        if self.view.last < min {
            self.run = None;
            return None;
        }
        if let Some(run) = self.run.take()
            && run.last() >= min
        {
            return self.enter(run, min, value);
        }
        if self.view.form == Form::Bitmap {
            let bit = usize::try_from(min.saturating_sub(self.view.first)).ok()?;
            self.position = self.position.max(bit);
            return self.next(value);
        }
        loop {
            let run = self.next_run(value)?;
            if run.last() >= min {
                return self.enter(run, min, value);
            }
        }
    }

    fn enter(&mut self, run: Run, min: u64, value: &[u8]) -> Option<u64> {
        let skipped = min.saturating_sub(run.start);
        self.run = Some(Run { start: run.start + skipped, length: run.length - skipped });
        self.next(value)
    }

    /// The next run as it is encoded: in deltas each id is one, in a bitmap the bits of a byte may be cut.
    fn next_run(&mut self, value: &[u8]) -> Option<Run> {
        let run = match self.view.form {
            Form::Deltas => {
                let start = match self.before {
                    None => self.view.first,
                    Some(before) => before.checked_add(varint(value, &mut self.position)?)?.checked_add(1)?,
                };
                Run { start, length: 1 }
            }
            Form::Runs => {
                let start = match self.before {
                    None => self.view.first,
                    Some(before) => before.checked_add(varint(value, &mut self.position)?)?.checked_add(2)?,
                };
                let length = varint(value, &mut self.position)?.checked_add(1)?;
                start.checked_add(length - 1)?;
                Run { start, length }
            }
            Form::Bitmap => return self.next_bits(value),
        };
        self.before = Some(run.last());
        Some(run)
    }

    fn next_bits(&mut self, value: &[u8]) -> Option<Run> {
        loop {
            let byte = *value.get(self.view.payload + self.position / 8)?;
            let shift = self.position % 8;
            let bits = byte >> shift;
            if bits == 0 {
                self.position += 8 - shift;
                continue;
            }
            self.position += bits.trailing_zeros() as usize;
            let start = self.view.first.checked_add(self.position as u64)?;
            // The bits above the byte's end read as zeros: a run ends with its byte, and `runs` joins the pieces.
            let length = (bits >> bits.trailing_zeros()).trailing_ones();
            self.position += length as usize;
            return Some(Run { start, length: u64::from(length) });
        }
    }
}

/// The sizes of the three payloads for runs that are added one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    first: u64,
    last: Option<u64>,
    count: u64,
    deltas: u64,
    runs: u64,
}

impl Sizes {
    pub(super) fn with(mut self, run: Run) -> Self {
        match self.last {
            None => self.first = run.start,
            Some(last) => {
                self.deltas += varint_len(run.start - last - 1) as u64;
                self.runs += varint_len(run.start - last - 2) as u64;
            }
        }
        self.last = Some(run.last());
        self.count += run.length;
        self.deltas = self.deltas.saturating_add(run.length - 1);
        self.runs += varint_len(run.length - 1) as u64;
        self
    }

    fn span(&self) -> u64 {
        self.last.map_or(0, |last| last - self.first)
    }

    /// Whether they are those of one block.
    pub(super) fn fit(&self) -> bool {
        self.shortest().1 <= PAYLOAD_BYTES_MAX as u64
    }

    fn shortest(&self) -> (Form, u64) {
        let bitmap = self.span() / 8 + 1;
        if self.deltas <= self.runs && self.deltas <= bitmap {
            (Form::Deltas, self.deltas)
        } else if self.runs <= bitmap {
            (Form::Runs, self.runs)
        } else {
            (Form::Bitmap, bitmap)
        }
    }
}

/// The shortest payload for `runs` in bytes, without a limit.
pub(super) fn payload_bytes(runs: &[Run]) -> u64 {
    runs.iter().fold(Sizes::default(), |sizes, run| sizes.with(*run)).shortest().1
}

/// Cuts `runs` into pieces whose payloads are no longer than `limit`, which is at most [`PAYLOAD_BYTES_MAX`].
pub(super) fn pieces(runs: &[Run], limit: u64) -> impl Iterator<Item = &[Run]> {
    let limit = limit.min(PAYLOAD_BYTES_MAX as u64);
    let mut rest = runs;
    std::iter::from_fn(move || {
        let mut sizes = Sizes::default();
        let mut taken = 0;
        for run in rest {
            let more = sizes.with(*run);
            // One run alone always fits: it takes two varints at most.
            if taken > 0 && more.shortest().1 > limit {
                break;
            }
            sizes = more;
            taken += 1;
        }
        let (piece, tail) = rest.split_at(taken);
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The value of the block that holds `runs`, which are not empty and fit.
pub(super) fn encode(runs: &[Run], listed: bool) -> BlockBytes {
    encode_sized(runs, runs.iter().fold(Sizes::default(), |sizes, run| sizes.with(*run)), listed)
}

/// The same when the sizes of `runs` are known.
pub(super) fn encode_sized(runs: &[Run], sizes: Sizes, listed: bool) -> BlockBytes {
    let mut out = BlockBytes::new();
    if sizes.count == 1 && !listed {
        return out;
    }
    let (form, payload) = sizes.shortest();
    assert!(payload <= PAYLOAD_BYTES_MAX as u64, "a posting block of {payload} bytes was not cut");
    out.reserve_exact(PREFACE_BYTES_MAX + payload as usize);
    preface(form, listed, sizes.count, sizes.span(), &mut out);
    let start = out.len();
    match form {
        Form::Deltas => encode_deltas(runs, &mut out),
        Form::Runs => encode_runs(runs, &mut out),
        Form::Bitmap => encode_bitmap(runs, sizes.first, &mut out, payload as usize),
    }
    debug_assert_eq!(out.len() - start, payload as usize);
    out
}

fn encode_deltas(runs: &[Run], out: &mut BlockBytes) {
    let mut before: Option<u64> = None;
    for run in runs {
        if let Some(before) = before {
            push_varint(run.start - before - 1, out);
        }
        if run.length > 1 {
            out.resize(out.len() + (run.length - 1) as usize, 0);
        }
        before = Some(run.last());
    }
}

fn encode_runs(runs: &[Run], out: &mut BlockBytes) {
    let mut before: Option<u64> = None;
    for run in runs {
        if let Some(before) = before {
            push_varint(run.start - before - 2, out);
        }
        push_varint(run.length - 1, out);
        before = Some(run.last());
    }
}

fn encode_bitmap(runs: &[Run], first: u64, out: &mut BlockBytes, bytes: usize) {
    let start = out.len();
    out.resize(start + bytes, 0);
    for run in runs {
        for id in run.start..=run.last() {
            let bit = (id - first) as usize;
            if let Some(byte) = out.get_mut(start + bit / 8) {
                *byte |= 1 << (bit % 8);
            }
        }
    }
}

fn preface(form: Form, listed: bool, count: u64, span: u64, out: &mut BlockBytes) {
    out.push(form as u8 | if listed { LISTED } else { 0 });
    push_varint(count, out);
    push_varint(span, out);
}

/// The header record of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) blocks: u64,
    pub(super) ids: u64,
}

impl Header {
    pub(super) fn parse(table: TableId, value: &[u8]) -> Result<Self, ReadError> {
        let corrupt = ReadError::Corrupt { table, what: "the header of a posting list is cut" };
        let mut position = 0;
        let (Some(blocks), Some(ids)) = (varint(value, &mut position), varint(value, &mut position)) else {
            return Err(corrupt);
        };
        Ok(Self { blocks, ids })
    }

    pub(super) fn encode(self) -> BlockBytes {
        let mut out = BlockBytes::new();
        push_varint(self.blocks, &mut out);
        push_varint(self.ids, &mut out);
        out
    }
}

/// Unsigned LEB128.
fn push_varint(mut value: u64, out: &mut BlockBytes) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_len(value: u64) -> usize {
    // Nearly all are: the ids of a list that is worth counting lie close.
    if value < 0x80 {
        return 1;
    }
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Reads a varint and moves `position` behind it; none if it is cut or longer than 64 bits.
fn varint(bytes: &[u8], position: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    let mut shift = 0;
    loop {
        let byte = *bytes.get(*position)?;
        *position += 1;
        let low = u64::from(byte & 0x7f);
        if shift == 63 && low > 1 || shift > 63 {
            return None;
        }
        value |= low << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const T: TableId = TableId(3);

    fn runs_of(ids: &[u64]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for id in ids {
            match runs.last_mut() {
                Some(run) if run.last() + 1 == *id => run.length += 1,
                _ => runs.push(Run { start: *id, length: 1 }),
            }
        }
        runs
    }

    fn check(ids: &[u64], form: Option<Form>, bytes: usize) {
        let runs = runs_of(ids);
        let value = encode(&runs, false);
        assert_eq!(value.len(), bytes, "{ids:?}");
        let first = ids.first().copied().expect("an id");
        let view = View::parse(T, first, &value).expect("a block");
        if let Some(form) = form {
            assert_eq!(view.form, form);
        }
        let mut back = Vec::new();
        view.runs(T, &value, &mut back).expect("runs");
        assert_eq!(back, runs);
        let mut walk = Ids::new(view);
        let walked: Vec<u64> = std::iter::from_fn(|| walk.next(&value)).collect();
        assert_eq!(walked, ids);
    }

    #[test]
    fn the_shortest_form_is_taken() {
        check(&[7], None, 0);
        check(&[7, 8], Some(Form::Deltas), 4);
        check(&[7, 1000], Some(Form::Deltas), 6);
        check(&(100..1_000_000).collect::<Vec<_>>(), Some(Form::Runs), 10);
        check(
            &(0..1000).filter(|id| id % 8 < 2 || id % 16 == 5).collect::<Vec<_>>(),
            Some(Form::Bitmap),
            130,
        );
        check(&(0..400).map(|id| id * 100).collect::<Vec<_>>(), Some(Form::Deltas), 405);
        check(&[0, POSTING_ID_MAX], Some(Form::Deltas), 22);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn damaged_blocks_are_errors(first: u64, mut value in prop::collection::vec(any::<u8>(), 0..40), min: u64) {
            // Most bytes of a block are small.
            if let Some(tag) = value.first_mut() {
                *tag = (*tag % 4) | (*tag & LISTED);
            }
            let Ok(view) = View::parse(T, first, &value) else { return Ok(()) };
            let mut runs = Vec::new();
            if view.runs(T, &value, &mut runs).is_ok() {
                prop_assert!(runs.windows(2).all(|pair| pair[0].last() < pair[1].start));
            }
            let mut walk = Ids::new(view);
            let mut before = None;
            for _ in 0..1000 {
                let Some(id) = walk.next(&value) else { break };
                prop_assert!(before.is_none_or(|before| before < id));
                before = Some(id);
            }
            prop_assert!(Ids::new(view).seek(&value, min).is_none_or(|id| id >= min));
            prop_assert!(view.appended(&value, min).is_none_or(|block| block.len() <= BLOCK_BYTES_MAX));
        }
    }
}
