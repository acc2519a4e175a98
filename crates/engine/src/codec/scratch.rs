//! Buffers that a thread uses again and again, so that unpacking allocates nothing once it is warm.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;

/// Buffers a thread keeps; more than this many records are hardly ever read at once.
const KEPT: usize = 8;
/// Bytes of a buffer that is kept.
const KEPT_BYTES: usize = 256 << 10;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer lent by the thread. Bytes behind its length are of earlier uses.
#[derive(Default)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
    length: usize,
}

impl Scratch {
    /// A buffer of at least `capacity` bytes, of whatever content.
    pub(super) fn take(capacity: usize) -> Self {
        let mut bytes = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten().unwrap_or_default();
        if bytes.len() < capacity {
            bytes.resize(capacity, 0);
        }
        Self { bytes, length: 0 }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Says how many bytes count.
    pub(super) fn set_length(&mut self, length: usize) {
        self.length = length.min(self.bytes.len());
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.bytes.is_empty() || self.bytes.len() > KEPT_BYTES {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        // While a thread ends its buffers are gone already: then this one goes, too.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(bytes);
            }
        });
    }
}
