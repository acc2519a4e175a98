//! Changing a posting list: one read and one write for each block concerned.

use super::block::{
    BlockBytes, Header, JOIN_BELOW_BYTES, JOINED_BYTES_MAX, PAYLOAD_BYTES_MAX, Run, View, encode,
    payload_bytes, pieces,
};
use super::{HEADER_ID, block_key, header, own_block, with_block_key};
use crate::error::{CommitError, ReadError};
use crate::ordered::{NewBlock, OrderedWrite};
use crate::table::{POSTING_ID_MAX, TableId};
use crate::write_set::PostingEdits;

/// Applies `edits` to the ids of `key`.
pub(crate) fn edit<W: OrderedWrite>(
    target: &mut W,
    table: TableId,
    key: &[u8],
    edits: &PostingEdits,
) -> Result<(), CommitError> {
    let all: Vec<(u64, bool)>;
    let edits = match edits.few() {
        Some(few) => few,
        None => {
            all = edits.iter().collect();
            all.as_slice()
        }
    };
    if let Some((id, _)) = edits.last()
        && *id > POSTING_ID_MAX
    {
        return Err(CommitError::PostingId(*id));
    }
    // Nearly always all is in one block, before and behind.
    let mut block = None;
    let is_done = with_block_key(key, 0, |from| {
        target.change_first_block(table, key, from, &mut |found| {
            block = match found {
                Some((found, value)) => own(table, key, found, value)?,
                None => None,
            };
            in_one_block(table, key, block.as_ref(), edits)
        })
    })?;
    if is_done {
        return Ok(());
    }
    let mut list = List { target, table, key };
    match block {
        None => list.create(edits),
        Some(block) if !block.view.listed => list.edit_only_block(block, edits),
        Some(_) => list.edit_listed(edits),
    }
}

struct List<'w, W> {
    target: &'w mut W,
    table: TableId,
    key: &'w [u8],
}

/// A block copied out of the store, since it is about to be overwritten.
struct Block {
    view: View,
    value: BlockBytes,
}

/// The block with this key and value, if it is one of the list `key`.
fn own(table: TableId, key: &[u8], found: &[u8], value: &[u8]) -> Result<Option<Block>, ReadError> {
    match own_block(key, found) {
        Some(first) if first != HEADER_ID => {
            let view = View::parse(table, first, value)?;
            Ok(Some(Block { view, value: BlockBytes::from_slice(value) }))
        }
        _ => Ok(None),
    }
}

/// The only block of a list as the edits leave it, or that of a new list. `None`: it takes more than to write that.
fn in_one_block(
    table: TableId,
    key: &[u8],
    block: Option<&Block>,
    edits: &[(u64, bool)],
) -> Result<Option<NewBlock>, ReadError> {
    let mut runs = Vec::new();
    match block {
        None => change(&[], edits, &mut runs),
        Some(block) if block.view.listed => return Ok(None),
        Some(block) => {
            if let [(id, true)] = edits
                && let Some(value) = block.view.appended(&block.value, *id)
            {
                return Ok(Some(NewBlock { key: block_key(key, block.view.first), value }));
            }
            let mut old = Vec::new();
            block.view.runs(table, &block.value, &mut old)?;
            change(&old, edits, &mut runs);
        }
    }
    let mut cut = pieces(&runs, PAYLOAD_BYTES_MAX as u64);
    let (piece, more) = (cut.next(), cut.next());
    let Some((piece, first)) =
        piece.filter(|_| more.is_none()).and_then(|piece| Some((piece, piece.first()?)))
    else {
        return Ok(None);
    };
    if block.is_some_and(|block| block.view.first != first.start) {
        return Ok(None);
    }
    Ok(Some(NewBlock { key: block_key(key, first.start), value: encode(piece, false) }))
}

impl<W: OrderedWrite> List<'_, W> {
    fn create(&mut self, edits: &[(u64, bool)]) -> Result<(), CommitError> {
        let mut runs = Vec::new();
        change(&[], edits, &mut runs);
        let header = self.write_blocks(&runs, PAYLOAD_BYTES_MAX as u64, false)?;
        self.write_header_of_new_list(header)
    }

    fn edit_only_block(&mut self, block: Block, edits: &[(u64, bool)]) -> Result<(), CommitError> {
        let runs = self.changed_runs(&block, edits)?;
        self.erase_unless_first(&block, &runs)?;
        let limit = split_limit(&block, &runs);
        let header = self.write_blocks(&runs, limit, false)?;
        self.write_header_of_new_list(header)
    }

    fn edit_listed(&mut self, edits: &[(u64, bool)]) -> Result<(), CommitError> {
        let mut header = header(self.target, self.table, self.key)?;
        let mut rest = edits;
        while let Some((id, _)) = rest.first() {
            let block = match self.block_around(*id)? {
                Some(block) => Some(block),
                None => self.block_from(0)?,
            };
            let Some(block) = block else {
                // Everything before was removed: what is left begins the list anew.
                let mut runs = Vec::new();
                change(&[], rest, &mut runs);
                let added = self.write_blocks(&runs, PAYLOAD_BYTES_MAX as u64, true)?;
                header.blocks = header.blocks.saturating_add(added.blocks);
                header.ids = header.ids.saturating_add(added.ids);
                break;
            };
            let own = self.edits_of(&block, rest)?;
            let (now, later) = rest.split_at(own);
            self.edit_one_of_many(block, now, &mut header)?;
            rest = later;
        }
        let key = block_key(self.key, HEADER_ID);
        if header.blocks == 0 {
            self.target.erase(self.table, &key)
        } else {
            self.target.write(self.table, &key, &header.encode())
        }
    }

    /// How many of `edits` concern `block`: those up to the first id of the block behind it.
    fn edits_of(&self, block: &Block, edits: &[(u64, bool)]) -> Result<usize, CommitError> {
        let inside = edits.partition_point(|(id, _)| *id <= block.view.last);
        if inside == edits.len() || edits.len() == 1 {
            return Ok(edits.len());
        }
        match self.first_from(block.view.last + 1)? {
            Some(next) => Ok(edits.partition_point(|(id, _)| *id < next)),
            None => Ok(edits.len()),
        }
    }

    fn edit_one_of_many(
        &mut self,
        block: Block,
        edits: &[(u64, bool)],
        header: &mut Header,
    ) -> Result<(), CommitError> {
        if let [(id, true)] = edits
            && let Some(value) = block.view.appended(&block.value, *id)
        {
            header.ids = header.ids.saturating_add(1);
            return self.write(block.view.first, &value);
        }
        let mut runs = self.changed_runs(&block, edits)?;
        let mut before = Header { blocks: 1, ids: block.view.count };
        self.erase_unless_first(&block, &runs)?;
        let limit = split_limit(&block, &runs);
        let shrunk = edits.iter().any(|(_, present)| !present);
        if shrunk && !runs.is_empty() && payload_bytes(&runs) < JOIN_BELOW_BYTES as u64 {
            self.join_neighbour(&mut runs, &mut before)?;
        }
        let after = self.write_blocks(&runs, limit, true)?;
        header.blocks = header.blocks.saturating_add(after.blocks).saturating_sub(before.blocks);
        header.ids = header.ids.saturating_add(after.ids).saturating_sub(before.ids);
        Ok(())
    }

    /// Takes the ids of a neighbouring block in, if both together are short. The one before comes first: where many
    /// ids are removed in order, it has shrunk already.
    fn join_neighbour(&mut self, runs: &mut Vec<Run>, before: &mut Header) -> Result<(), CommitError> {
        let (Some(first), Some(last)) = (runs.first().copied(), runs.last().copied()) else { return Ok(()) };
        let left = match first.start.checked_sub(1) {
            Some(id) => self.block_around(id)?,
            None => None,
        };
        if let Some(left) = left {
            let mut joined = self.runs_of(&left)?;
            runs.iter().for_each(|run| push_run(&mut joined, *run));
            if payload_bytes(&joined) <= JOINED_BYTES_MAX as u64 {
                // The block being changed may still stand, and the joined one does not begin there.
                self.target.erase(self.table, &block_key(self.key, first.start))?;
                take_in(&left, joined, runs, before);
                return Ok(());
            }
        }
        if let Some(right) = self.block_from(last.last() + 1)? {
            let mut joined = runs.clone();
            self.runs_of(&right)?.iter().for_each(|run| push_run(&mut joined, *run));
            if payload_bytes(&joined) <= JOINED_BYTES_MAX as u64 {
                self.target.erase(self.table, &block_key(self.key, right.view.first))?;
                take_in(&right, joined, runs, before);
                return Ok(());
            }
        }
        Ok(())
    }

    /// A block whose first id is gone, or is no longer the first, has another key now.
    fn erase_unless_first(&mut self, block: &Block, runs: &[Run]) -> Result<(), CommitError> {
        if runs.first().is_some_and(|run| run.start == block.view.first) {
            return Ok(());
        }
        self.target.erase(self.table, &block_key(self.key, block.view.first))
    }

    /// Writes the block that begins with this id.
    fn write(&mut self, first: u64, value: &[u8]) -> Result<(), CommitError> {
        let Self { target, table, key } = self;
        with_block_key(key, first, |block| target.write(*table, block, value))
    }

    /// Writes `runs` as blocks of up to `limit` bytes each, and tells how many blocks and ids that makes.
    fn write_blocks(&mut self, runs: &[Run], limit: u64, in_list: bool) -> Result<Header, CommitError> {
        let mut written = Header::default();
        let mut cut = pieces(runs, limit).peekable();
        while let Some(piece) = cut.next() {
            let listed = in_list || written.blocks > 0 || cut.peek().is_some();
            let Some(first) = piece.first() else { break };
            self.write(first.start, &encode(piece, listed))?;
            written.blocks += 1;
            written.ids += piece.iter().map(|run| run.length).sum::<u64>();
        }
        Ok(written)
    }

    fn write_header_of_new_list(&mut self, header: Header) -> Result<(), CommitError> {
        if header.blocks > 1 {
            self.target.write(self.table, &block_key(self.key, HEADER_ID), &header.encode())?;
        }
        Ok(())
    }

    fn changed_runs(&self, block: &Block, edits: &[(u64, bool)]) -> Result<Vec<Run>, CommitError> {
        let old = self.runs_of(block)?;
        let mut runs = Vec::with_capacity(old.len() + edits.len());
        change(&old, edits, &mut runs);
        Ok(runs)
    }

    fn runs_of(&self, block: &Block) -> Result<Vec<Run>, ReadError> {
        let mut runs = Vec::new();
        block.view.runs(self.table, &block.value, &mut runs)?;
        Ok(runs)
    }

    /// The first block whose first id is `>= first`.
    fn block_from(&self, first: u64) -> Result<Option<Block>, ReadError> {
        let found =
            with_block_key(self.key, first, |block| self.target.first_block(self.table, self.key, block))?;
        match found {
            Some((found, value)) => own(self.table, self.key, &found, &value),
            None => Ok(None),
        }
    }

    /// The last block whose first id is `<= id`.
    fn block_around(&self, id: u64) -> Result<Option<Block>, ReadError> {
        match self.target.last_block(self.table, self.key, &block_key(self.key, id))? {
            Some((found, value)) => own(self.table, self.key, &found, &value),
            None => Ok(None),
        }
    }

    fn first_from(&self, first: u64) -> Result<Option<u64>, ReadError> {
        let found = self.target.first_block(self.table, self.key, &block_key(self.key, first))?;
        Ok(found.and_then(|(found, _)| own_block(self.key, &found)).filter(|first| *first != HEADER_ID))
    }
}

fn take_in(neighbour: &Block, joined: Vec<Run>, runs: &mut Vec<Run>, before: &mut Header) {
    before.blocks += 1;
    before.ids += neighbour.view.count;
    *runs = joined;
}

/// How long the pieces of a changed block may be: full where it grew at its end (ids ascend, so the left piece stays
/// as it is), even halves elsewhere.
fn split_limit(block: &Block, runs: &[Run]) -> u64 {
    let full = PAYLOAD_BYTES_MAX as u64;
    let bytes = payload_bytes(runs);
    let grew_at_end = runs.last().is_some_and(|run| run.last() > block.view.last);
    if grew_at_end || bytes <= full { full } else { (bytes / 2 + bytes / 16).min(full) }
}

/// The runs of `old` with `edits`, which ascend, applied.
fn change(old: &[Run], edits: &[(u64, bool)], out: &mut Vec<Run>) {
    let mut edits = edits.iter().copied().peekable();
    for run in old {
        let mut start = run.start;
        while let Some((id, present)) = edits.next_if(|(id, _)| *id <= run.last()) {
            if id < run.start {
                if present {
                    push_run(out, Run { start: id, length: 1 });
                }
            } else if !present {
                push_run(out, Run { start, length: id - start });
                start = id + 1;
            }
        }
        push_run(out, Run { start, length: run.last() + 1 - start });
    }
    for (id, present) in edits {
        if present {
            push_run(out, Run { start: id, length: 1 });
        }
    }
}

fn push_run(out: &mut Vec<Run>, run: Run) {
    if run.length == 0 {
        return;
    }
    match out.last_mut() {
        Some(before) if before.last() + 1 == run.start => before.length += run.length,
        _ => out.push(run),
    }
}
