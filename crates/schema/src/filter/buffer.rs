//! Memory of assertion values, which a thread uses again and again: a filter of a few short values allocates nothing.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Buffers that a thread keeps.
const KEPT: usize = 8;
/// Bytes of a buffer that is kept.
const KEPT_BYTES: usize = 128;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that goes back to the thread.
#[derive(Debug, PartialEq)]
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    /// An empty one with room for so many bytes.
    #[inline]
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut buffer = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default();
        buffer.reserve_exact(bytes);
        Self(buffer)
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut other = Self::with_capacity(self.len());
        other.extend_from_slice(self);
        other
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if self.0.capacity() == 0 || self.0.capacity() > KEPT_BYTES {
            return;
        }
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        // While a thread ends its buffers are gone already: then this one goes, too.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT {
                spare.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty() {
        let mut first = Buffer::with_capacity(10);
        first.extend_from_slice(b"0123456789");
        let (place, copy) = (first.as_ptr(), first.clone());
        drop(first);
        assert_eq!(**copy, *b"0123456789");
        let again = Buffer::with_capacity(5);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn no_more_is_kept_than_a_few_short_ones() {
        let capacities = |bytes: usize| -> usize {
            drop((0..2 * KEPT).map(|_| Buffer::with_capacity(bytes)).collect::<Vec<_>>());
            SPARE.with_borrow_mut(|spare| spare.drain(..).map(|buffer| buffer.capacity()).sum())
        };
        assert_eq!(capacities(KEPT_BYTES), KEPT * KEPT_BYTES);
        assert_eq!(capacities(KEPT_BYTES + 1), 0);
        assert_eq!(capacities(0), 0);
    }
}
