//! Building the blocks of lists from ids in ascending order.

use super::block::{BlockBytes, Header, PAYLOAD_BYTES_MAX, Run, encode, pieces};
use super::{HEADER_ID, block_key};
use crate::write_set::Key;

/// Takes the ids of one key after the other and gives finished records in key order.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    key: Option<Key>,
    /// What is not written yet.
    runs: Vec<Run>,
    /// Runs taken since the runs were last cut.
    since_cut: usize,
    header: Header,
}

impl BlockBuilder {
    /// Takes the next pair. False if it is out of order. Finished records go to `emit`.
    pub(crate) fn push<E>(
        &mut self,
        key: &[u8],
        id: u64,
        emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        Ok(self.begin(key, emit)? && self.push_run(id, 1, emit)?)
    }

    /// Takes all ids of a key, as runs: a first id and how many there are from it on.
    pub(crate) fn push_all<E>(
        &mut self,
        key: &[u8],
        runs: &mut dyn Iterator<Item = (u64, u64)>,
        emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        if !self.begin(key, emit)? {
            return Ok(false);
        }
        for (start, length) in runs {
            if length > 0 && !self.push_run(start, length, emit)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn begin<E>(
        &mut self,
        key: &[u8],
        emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        match &self.key {
            Some(current) if current.as_slice() == key => {}
            Some(current) if current.as_slice() > key => return Ok(false),
            _ => {
                self.finish(emit)?;
                self.key = Some(Key::from_slice(key));
            }
        }
        Ok(true)
    }

    fn push_run<E>(
        &mut self,
        start: u64,
        length: u64,
        emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        match self.runs.last_mut() {
            Some(run) if run.last() == start && length == 1 => return Ok(true),
            Some(run) if run.last() >= start => return Ok(false),
            Some(run) if run.last() + 1 == start => run.length += length,
            _ => self.runs.push(Run { start, length }),
        }
        self.header.ids += length;
        // A run takes two varints at least.
        self.since_cut += 1;
        if self.since_cut >= PAYLOAD_BYTES_MAX {
            self.since_cut = 0;
            self.cut(false, emit)?;
        }
        Ok(true)
    }

    /// Ends the list being built.
    pub(crate) fn finish<E>(
        &mut self,
        emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let (Some(key), [Run { start, length: 1 }], 0) =
            (&self.key, self.runs.as_slice(), self.header.blocks)
        {
            // Most keys have one id: no block to encode.
            emit(&block_key(key, *start), &[])?;
            self.header.blocks = 1;
        } else {
            self.cut(true, emit)?;
        }
        if let Some(key) = self.key.take()
            && self.header.blocks > 1
        {
            emit(&block_key(&key, HEADER_ID), &self.header.encode())?;
        }
        self.header = Header::default();
        self.runs.clear();
        self.since_cut = 0;
        Ok(())
    }

    /// Writes the full blocks; with `all`, the last one too.
    fn cut<E>(&mut self, all: bool, emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>) -> Result<(), E> {
        let Some(key) = &self.key else { return Ok(()) };
        let mut written = 0;
        {
            let mut cut = pieces(&self.runs, PAYLOAD_BYTES_MAX as u64).peekable();
            while let Some(piece) = cut.next() {
                let last = cut.peek().is_none();
                if last && !all {
                    break;
                }
                let listed = self.header.blocks > 0 || !last;
                let value: BlockBytes = encode(piece, listed);
                let Some(first) = piece.first() else { break };
                emit(&block_key(key, first.start), &value)?;
                self.header.blocks += 1;
                written += piece.len();
            }
        }
        self.runs.drain(..written);
        Ok(())
    }
}
