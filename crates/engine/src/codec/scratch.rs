//! Buffers that a thread uses again and again, so that unpacking allocates nothing once it is warm.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, Range};

use super::lz4::{ROOM_BYTES, Room};

/// Buffers a thread keeps; more than this many records are hardly ever read at once, and a database has hardly ever more
/// dictionaries.
const KEPT: usize = 8;

thread_local! {
    /// The one that was used last stands last.
    static FREE: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// Room that begins with a dictionary, so that a block refers to one stretch of bytes.
struct Buffer {
    /// Which dictionary stands there; 0 is none.
    dictionary: u64,
    room: Box<Room>,
}

impl Buffer {
    fn new() -> Option<Self> {
        // The pages that nothing is written to are never touched.
        let room = vec![0; ROOM_BYTES].into_boxed_slice().try_into().ok()?;
        Some(Self { dictionary: 0, room })
    }
}

/// A buffer lent by the thread. Bytes behind its record are of earlier uses.
pub(super) struct Scratch {
    buffer: Option<Buffer>,
    /// Where the record stands.
    place: Range<usize>,
}

impl Scratch {
    /// A buffer that begins with a dictionary. What its number is stands for the same bytes in the whole process.
    pub(super) fn behind(number: u64, dictionary: &[u8]) -> Option<Self> {
        let reused = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            match free.iter().rposition(|buffer| buffer.dictionary == number) {
                Some(at) => Some(free.swap_remove(at)),
                None if free.len() < KEPT => None,
                None => Some(free.remove(0)),
            }
        });
        let mut buffer = reused.ok().flatten().or_else(Buffer::new)?;
        if buffer.dictionary != number {
            buffer.room.get_mut(..dictionary.len())?.copy_from_slice(dictionary);
            buffer.dictionary = number;
        }
        Some(Self { buffer: Some(buffer), place: 0..0 })
    }

    /// All of it. The dictionary has to stay as it is.
    pub(super) fn room_mut(&mut self) -> Option<&mut Room> {
        Some(&mut *self.buffer.as_mut()?.room)
    }

    /// Says where the record stands.
    pub(super) fn set_place(&mut self, place: Range<usize>) {
        self.place = place;
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_ref().and_then(|buffer| buffer.room.get(self.place.clone())).unwrap_or_default()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        // While a thread ends its buffers are gone already: then this one goes, too.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(buffer);
            }
        });
    }
}
