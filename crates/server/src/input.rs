//! What a connection has received of requests that cannot start yet.

use std::fmt;
use std::ops::Deref;

/// How many times as many bytes as have come a buffer has room for. Room that nothing was written to takes no memory, but a client
/// that announces more than it sends gets no more of it than this.
const ROOM: usize = 4;
/// Room for the beginning of the next message, which may come with the end of a long one: what one read brings.
const BEHIND: usize = 64 << 10;

/// Overwrites bytes that may be secret, many at a time. `Zeroize` writes single bytes, and a read of the loop brings up to 64 KB.
pub(crate) fn overwrite(bytes: &mut [u8]) {
    bytes.fill(0);
    // Without this the compiler may leave out what nobody reads afterwards.
    zeroize::optimization_barrier(bytes);
}

/// Bytes of requests that cannot start yet. They may be secret, so they are overwritten where they have been.
#[derive(Default)]
pub(crate) struct Input(Vec<u8>);

impl Input {
    /// Adds bytes behind those that are there. `expected`: how many the message at the front has when it is complete, as far as its
    /// header says so.
    pub(crate) fn add(&mut self, bytes: &[u8], expected: usize) {
        let len = self.0.len() + bytes.len();
        if len > self.0.capacity() {
            // A list that grows by itself leaves its old place as it is.
            let mut larger = Self(Vec::with_capacity(self.room_for(len, expected)));
            larger.0.extend_from_slice(&self.0);
            *self = larger;
        }
        self.0.extend_from_slice(bytes);
    }

    /// A long message has a part of its length first, then four times as much, and so on: it is copied a third of a time in all.
    fn room_for(&self, len: usize, expected: usize) -> usize {
        if expected <= len {
            return len.max(self.0.capacity().saturating_mul(2));
        }
        let mut room = expected.saturating_add(expected.min(BEHIND));
        while room / ROOM >= len {
            room /= ROOM;
        }
        room
    }

    /// Removes the first `count` bytes, or all if there are fewer.
    pub(crate) fn remove(&mut self, count: usize) {
        let removed = count.min(self.0.len());
        self.0.copy_within(removed.., 0);
        let rest = self.0.len() - removed;
        overwrite(self.0.get_mut(rest..).unwrap_or(&mut []));
        self.0.truncate(rest);
    }
}

impl Deref for Input {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        overwrite(&mut self.0);
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_copied_a_third_of_a_time() {
        for expected in [16 << 20, 9_000_000, 300_000] {
            grows_to(expected);
        }
    }

    fn grows_to(expected: usize) {
        let piece = [7; 4 << 10];
        let mut input = Input::default();
        let (mut copied, mut place) = (0, std::ptr::null());
        while input.len() < expected {
            let before = input.len();
            input.add(&piece, expected);
            if input.as_ptr() != place {
                copied += before;
                place = input.as_ptr();
            }
            assert!(input.0.capacity() <= expected + BEHIND, "{}", input.0.capacity());
            assert!(input.0.capacity() <= ROOM * input.len(), "{} of {}", input.0.capacity(), input.len());
        }
        assert!(copied <= (expected + BEHIND) / 3 + piece.len(), "{copied}");
        assert!(input.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn short_messages_that_wait_double_the_room() {
        let mut input = Input::default();
        let mut places = std::collections::BTreeSet::new();
        for at in 0..4096_u16 {
            // The message at the front is complete.
            input.add(&at.to_be_bytes(), 2);
            places.insert(input.0.capacity());
        }
        assert!(places.len() <= 13, "{places:?}");
        input.remove(3 * 2);
        assert_eq!(input.get(..4), Some(&[0, 3, 0, 4][..]));
        assert_eq!(input.len(), 2 * 4093);
        input.remove(usize::MAX);
        assert!(input.is_empty());
    }

    #[test]
    fn what_is_overwritten_is_gone() {
        let mut secret = *b"secret";
        overwrite(&mut secret);
        assert_eq!(secret, [0; 6]);
        let mut input = Input::default();
        input.add(b"first second", 0);
        input.remove(6);
        assert_eq!(&*input, b"second");
        assert_eq!(format!("{input:?}"), "Input(6 bytes)");
    }
}
