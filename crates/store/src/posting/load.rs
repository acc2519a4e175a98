//! Building the blocks of lists from ids in ascending order.

use super::block::{Header, Run, Sizes, encode_sized};
use super::{HEADER_ID, block_key};
use crate::write_set::Key;

/// Takes the ids of one key after the other and gives finished records in key order.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    key: Option<Key>,
    /// What is not written yet. All but the last one are counted in `sizes`, for that one may still grow.
    runs: Vec<Run>,
    sizes: Sizes,
    header: Header,
}

impl BlockBuilder {
    /// Takes the next pair. False if it is out of order. Finished records go to `emit`.
    pub fn push<E>(
        &mut self,
        key: &[u8],
        id: u64,
        emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        Ok(self.begin(key, emit)? && self.push_run(Run { start: id, length: 1 }, emit)?)
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
            if length > 0 && !self.push_run(Run { start, length }, emit)? {
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
        run: Run,
        emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        match self.runs.last_mut() {
            Some(last) if last.last() == run.start && run.length == 1 => return Ok(true),
            Some(last) if last.last() >= run.start => return Ok(false),
            Some(last) if last.last() + 1 == run.start => last.length += run.length,
            Some(_) => {
                self.count_last(emit)?;
                self.runs.push(run);
            }
            None => self.runs.push(run),
        }
        self.header.ids += run.length;
        Ok(true)
    }

    /// Counts the last run, which grows no more; a block that it does not fit into is written without it.
    fn count_last<E>(&mut self, emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>) -> Result<(), E> {
        let Some(last) = self.runs.last().copied() else { return Ok(()) };
        let more = self.sizes.with(last);
        // One run alone always fits: it takes two varints at most.
        if more.fit() || self.runs.len() == 1 {
            self.sizes = more;
            return Ok(());
        }
        self.runs.pop();
        self.write_block(true, emit)?;
        self.runs.push(last);
        self.sizes = Sizes::default().with(last);
        Ok(())
    }

    fn write_block<E>(
        &mut self,
        listed: bool,
        emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (Some(key), Some(first)) = (&self.key, self.runs.first()) else { return Ok(()) };
        emit(&block_key(key, first.start), &encode_sized(&self.runs, self.sizes, listed))?;
        self.header.blocks += 1;
        self.runs.clear();
        Ok(())
    }

    /// Ends the list being built.
    pub fn finish<E>(&mut self, emit: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>) -> Result<(), E> {
        self.count_last(emit)?;
        self.write_block(self.header.blocks > 0, emit)?;
        if let Some(key) = self.key.take()
            && self.header.blocks > 1
        {
            emit(&block_key(&key, HEADER_ID), &self.header.encode())?;
        }
        self.header = Header::default();
        self.sizes = Sizes::default();
        Ok(())
    }
}
