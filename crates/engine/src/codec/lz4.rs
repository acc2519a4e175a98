//! The LZ4 block format with a dictionary.
//!
//! A match may reach back into the bytes of the record that stand before the block (its head), and further into the
//! dictionary, which stands before them. So any LZ4 library reads a block that is given the dictionary and the head as
//! its dictionary. What is our own is the search for matches: the places in the dictionary are hashed once, not for each
//! record, and the longest of several candidates is taken.

use std::ops::{ControlFlow, Range};

/// Longest dictionary.
pub(crate) const DICTIONARY_BYTES_MAX: usize = 32 << 10;
/// Longest record that is packed, before packing.
pub(crate) const RECORD_BYTES_MAX: usize = (32 << 10) - 1;
/// Bytes that room to unpack into has behind what counts, so that copies need not be exact.
const SLACK: usize = 64;
/// What a record is unpacked in: the dictionary, the record behind it, and some bytes more. A place in it is a number of 16 bits,
/// so that steps of fixed length from there on are within.
pub(super) const ROOM_BYTES: usize = OFFSET_MAX + 1 + SLACK;
pub(super) type Room = [u8; ROOM_BYTES];

/// Shortest match of the format.
const MATCH_MIN: usize = 4;
/// So many bytes at the end of a block are literals, and no match starts in so many: demanded by the format.
const LITERALS_AT_END: usize = 5;
const NO_MATCH_AT_END: usize = 12;
/// Farthest that a match reaches back.
const OFFSET_MAX: usize = u16::MAX as usize;
/// Bytes that are copied at once of literals, of a match, and of a longer one.
const LITERALS: usize = 16;
const STEP: usize = 32;
const LONG_STEP: usize = SLACK;
/// A length of this or more is continued in further bytes.
const LONG: usize = 15;
/// Candidates of one hash that are looked at.
const DEPTH: usize = 2;
/// After 2^this bytes without a match one byte more is passed over at each step. A match that begins in between is found
/// from its middle, and grown.
const PATIENCE_BITS: u32 = 2;
/// A match of this length is not held back for a better one at the next byte.
const GOOD: usize = 12;

const SHORT_BITS: u32 = 15;
const LONG_BITS: u32 = 14;
const OWN_BITS: u32 = 10;

// Everything can be reached from everywhere: no match has to be checked for its distance.
const _: () =
    assert!(DICTIONARY_BYTES_MAX + RECORD_BYTES_MAX <= OFFSET_MAX && LITERALS <= STEP && STEP <= SLACK);

/// Where a dictionary has which bytes. Offsets are counted from 1; 0 is none.
#[derive(Debug)]
pub(super) struct DictionaryIndex {
    /// The last place of each hash of four bytes.
    short: Box<[u16; 1 << SHORT_BITS]>,
    /// The place of the same hash before each place.
    before: Box<[u16]>,
    /// The last place of each hash of eight bytes.
    long: Box<[u16; 1 << LONG_BITS]>,
}

impl DictionaryIndex {
    pub(super) fn new(dictionary: &[u8]) -> Self {
        let mut short = Box::new([0; 1 << SHORT_BITS]);
        let mut before = vec![0; dictionary.len() + 1].into_boxed_slice();
        let mut long = Box::new([0; 1 << LONG_BITS]);
        for at in 0..dictionary.len() {
            let place = at as u16 + 1;
            if let Some(last) = four(dictionary, at).and_then(|word| short.get_mut(hash4(word, SHORT_BITS)))
                && let Some(before) = before.get_mut(at + 1)
            {
                *before = std::mem::replace(last, place);
            }
            if let Some(last) = eight(dictionary, at).and_then(|word| long.get_mut(hash8(word))) {
                *last = place;
            }
        }
        Self { short, before, long }
    }
}

/// A block of the same dictionary for a record that begins as another one does.
pub(super) struct Earlier<'a> {
    pub(super) block: &'a [u8],
    /// How many bytes of the records are alike; of those before the head's place none is looked at.
    pub(super) alike: usize,
}

/// Appends to `out` the block for what stands behind the head in `record`. Of what stands before `head` nothing is
/// referred to: it may change. Records of more than [`RECORD_BYTES_MAX`] bytes are not for this.
///
/// From an `earlier` block the sequences are taken over that end within what is alike. A search would find the same ones
/// there, so that a record does not grow by being changed again and again.
pub(super) fn pack(
    dictionary: &[u8],
    index: &DictionaryIndex,
    record: &[u8],
    head: Range<usize>,
    earlier: Option<Earlier<'_>>,
    out: &mut Vec<u8>,
) {
    let matches_start = record.len().saturating_sub(NO_MATCH_AT_END);
    let mut finder = Finder::new(dictionary, index, record, head.start);
    (head.start..head.end.min(matches_start)).for_each(|at| finder.note(at));
    let begin = match earlier {
        Some(earlier) => finder.take_over(&earlier, head.end, matches_start, out),
        None => head.end,
    };
    let (mut at, mut anchor) = (begin, begin);
    while at < matches_start {
        let found = finder.find(at);
        finder.note(at);
        let Some(mut found) = found else {
            at += 1 + ((at - anchor) >> PATIENCE_BITS);
            continue;
        };
        while found.length < GOOD && at + 1 < matches_start {
            let Some(next) = finder.find(at + 1).filter(|next| next.length > found.length + 1) else { break };
            at += 1;
            finder.note(at);
            found = next;
        }
        let grown = finder.grown(at, anchor, found.offset);
        put_sequence(out, record.get(anchor..at - grown), Some((found.offset, found.length + grown)));
        let end = at + found.length;
        // What is alike was noted where it stood before: a place near each end is enough.
        [at + 2, end - 2].into_iter().filter(|at| *at < matches_start).for_each(|at| finder.note(at));
        (at, anchor) = (end, end);
    }
    put_sequence(out, record.get(anchor..), None);
}

#[derive(Copy, Clone)]
struct Match {
    length: usize,
    offset: usize,
}

struct Finder<'a> {
    dictionary: &'a [u8],
    index: &'a DictionaryIndex,
    record: &'a [u8],
    /// Where matches are found first, and where they end at the latest.
    start: usize,
    end: usize,
    /// The last place in the record of each hash of four bytes.
    own: [u16; 1 << OWN_BITS],
}

impl<'a> Finder<'a> {
    fn new(dictionary: &'a [u8], index: &'a DictionaryIndex, record: &'a [u8], start: usize) -> Self {
        let end = record.len().saturating_sub(LITERALS_AT_END);
        Self { dictionary, index, record, start, end, own: [0; 1 << OWN_BITS] }
    }

    fn note(&mut self, at: usize) {
        if let Some(place) = four(self.record, at).and_then(|word| self.own.get_mut(hash4(word, OWN_BITS))) {
            *place = at as u16 + 1;
        }
    }

    /// Takes over the sequences of a block that describe what is alike, from the place `at` on. Answers the place behind them.
    fn take_over(
        &mut self,
        earlier: &Earlier<'_>,
        at: usize,
        matches_start: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut at = at;
        let mut input = earlier.block;
        // A match that ends where the records begin to differ might be longer now.
        let (alike, far) = ((earlier.alike.max(1) - 1).min(self.end), self.dictionary.len());
        while let Some(Sequence { literals, length, offset, rest }) =
            Sequence::read_short(input).or_else(|| Sequence::read(input))
        {
            let (begin, end) = (at + literals, at + literals + length);
            let is_alike = end <= alike && begin < matches_start;
            // What is referred to has to be alike, too.
            let is_within = match begin.checked_sub(offset) {
                Some(place) => place >= self.start && offset > 0,
                None => (length..=far).contains(&(offset - begin)),
            };
            if !(is_alike && is_within) {
                break;
            }
            // What the dictionary has is found there: only what is the record's own has to be noted.
            if begin > at {
                self.note(at);
            }
            (at, input) = (end, rest);
        }
        out.extend_from_slice(earlier.block.get(..earlier.block.len() - input.len()).unwrap_or_default());
        at
    }

    /// The longest match found for what stands at a place of the record, before [`NO_MATCH_AT_END`].
    #[inline(always)]
    fn find(&self, at: usize) -> Option<Match> {
        let rest = self.record.get(at..self.end)?;
        let word = eight(self.record, at)?;
        let mut best = Match { length: MATCH_MIN - 1, offset: 0 };
        if let Some(place) = usize::from(self.own[hash4(word as u32, OWN_BITS)]).checked_sub(1) {
            best.take(self.record, place, rest, at - place);
        }
        let length = at + self.dictionary.len();
        if let Some(place) = usize::from(self.index.long[hash8(word)]).checked_sub(1) {
            best.take(self.dictionary, place, rest, length - place);
        }
        let mut next = self.index.short[hash4(word as u32, SHORT_BITS)];
        for _ in 0..DEPTH {
            let Some(place) = usize::from(next).checked_sub(1) else { break };
            best.take(self.dictionary, place, rest, length - place);
            next = self.index.before.get(place + 1).copied().unwrap_or_default();
        }
        (best.length >= MATCH_MIN).then_some(best)
    }

    /// By how many bytes a match can begin earlier, down to `anchor`.
    fn grown(&self, at: usize, anchor: usize, offset: usize) -> usize {
        let own = self.record.get(anchor..at).unwrap_or_default();
        let before = match at.checked_sub(offset) {
            Some(place) => self.record.get(self.start..place),
            None => (self.dictionary.len() + at)
                .checked_sub(offset)
                .and_then(|place| self.dictionary.get(..place)),
        };
        own.iter().rev().zip(before.unwrap_or_default().iter().rev()).take_while(|(a, b)| a == b).count()
    }
}

impl Match {
    /// Becomes the match with what stands at `place`, if that is longer.
    fn take(&mut self, bytes: &[u8], place: usize, rest: &[u8], offset: usize) {
        let Some(there) = bytes.get(place..) else { return };
        // Only what is equal at the first byte behind the best so far can be longer.
        if let (Some(a), Some(b)) = (there.get(self.length), rest.get(self.length))
            && a == b
        {
            let length = equal_bytes(there, rest);
            if length > self.length {
                *self = Self { length, offset };
            }
        }
    }
}

/// A sequence that ends with a match, as it stands in a block.
struct Sequence<'a> {
    literals: usize,
    length: usize,
    offset: usize,
    rest: &'a [u8],
}

impl<'a> Sequence<'a> {
    /// One of few literals and a match that is not long, as nearly all are. `None`: it is another one, or the block ends soon.
    #[inline(always)]
    fn read_short(block: &'a [u8]) -> Option<Self> {
        let [token, behind @ ..] = block.first_chunk::<SHORT_SEQUENCE>()?;
        let (literals, mut length) = (usize::from(token >> 4), usize::from(token & 15));
        if literals == LONG {
            return None;
        }
        let offset = behind.get(literals..)?.first_chunk()?;
        let mut read = 1 + literals + offset.len();
        if length == LONG {
            let more = *behind.get(literals + 2).filter(|more| **more < u8::MAX)?;
            (length, read) = (length + usize::from(more), read + 1);
        }
        let offset = usize::from(u16::from_le_bytes(*offset));
        Some(Self { literals, length: length + MATCH_MIN, offset, rest: block.get(read..)? })
    }

    /// `None`: there is no match any more.
    fn read(block: &'a [u8]) -> Option<Self> {
        let (&token, mut rest) = block.split_first()?;
        let mut literals = usize::from(token >> 4);
        if literals == LONG {
            literals = literals.checked_add(take_length(&mut rest)?)?;
        }
        let (offset, mut rest) = rest.get(literals..)?.split_first_chunk()?;
        let mut length = usize::from(token & 15);
        if length == LONG {
            length = length.checked_add(take_length(&mut rest)?)?;
        }
        Some(Self { literals, length: length + MATCH_MIN, offset: u16::from_le_bytes(*offset).into(), rest })
    }
}

/// How many bytes two slices begin with alike.
fn equal_bytes(a: &[u8], b: &[u8]) -> usize {
    let ((words_a, _), (words_b, _)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut length = 0;
    for (a, b) in words_a.iter().zip(words_b) {
        let different = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if different != 0 {
            return length + different.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let (a, b) = (a.get(length..).unwrap_or_default(), b.get(length..).unwrap_or_default());
    length + a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// As [`equal_bytes`], of slices that are alike for long.
pub(super) fn equal_start(a: &[u8], b: &[u8]) -> usize {
    let ((chunks_a, _), (chunks_b, _)) = (a.as_chunks::<32>(), b.as_chunks::<32>());
    let begin = 32 * chunks_a.iter().zip(chunks_b).take_while(|(a, b)| a == b).count();
    let rest = |bytes| <[u8]>::get(bytes, begin..).unwrap_or_default();
    begin + equal_bytes(rest(a), rest(b))
}

fn four(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn hash4(word: u32, bits: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (32 - bits)) as usize
}

fn hash8(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b1_85eb_ca87) >> (64 - LONG_BITS)) as usize
}

/// Literals, and how far back the match behind them begins and how long it is.
fn put_sequence(out: &mut Vec<u8>, literals: Option<&[u8]>, found: Option<(usize, usize)>) {
    let literals = literals.unwrap_or_default();
    let length = found.map_or(0, |(_, length)| length - MATCH_MIN);
    out.push((literals.len().min(LONG) << 4) as u8 | length.min(LONG) as u8);
    put_length(out, literals.len());
    out.extend_from_slice(literals);
    if let Some((offset, _)) = found {
        out.extend_from_slice(&(offset as u16).to_le_bytes());
        put_length(out, length);
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    if let Some(rest) = length.checked_sub(LONG) {
        out.extend(std::iter::repeat_n(u8::MAX, rest / 255));
        out.push((rest % 255) as u8);
    }
}

/// Unpacks a block into `room[place]`; before it stand the dictionary, from the beginning on, and the head of the record, which stay as
/// they are. `None` when the block is damaged or does not fill the place exactly.
pub(super) fn unpack(block: &[u8], room: &mut Room, place: Range<usize>) -> Option<()> {
    let (mut at, end) = (u16::try_from(place.start).ok()?, u16::try_from(place.end).ok()?);
    let mut input = block;
    loop {
        while let Some((rest, next)) = unpack_short(input, room, at, end) {
            (input, at) = (rest, next);
        }
        match unpack_any(input, room, at.into(), end.into())? {
            Unpacked::Sequence(rest, next) => (input, at) = (rest, next as u16),
            Unpacked::End => return Some(()),
        }
    }
}

/// Bytes that are unpacked before they are looked at for the first time, and bytes beyond those that are needed to go on.
const FIRST_LOOK: usize = 512;
const NEXT_LOOK: usize = 64;

/// As [`unpack`], as far as `look` wants: it gets what stands in the place so far, and answers, or says how many bytes more it needs at
/// least. `None`: the block is damaged, or it wants more than there is.
pub(super) fn unpack_until<T>(
    block: &[u8],
    room: &mut Room,
    place: Range<usize>,
    look: &mut impl FnMut(&[u8]) -> ControlFlow<T, usize>,
) -> Option<T> {
    let (mut at, end) = (u16::try_from(place.start).ok()?, u16::try_from(place.end).ok()?);
    let (mut input, mut goal) = (block, place.start + FIRST_LOOK);
    loop {
        (input, at) = unpack_shorts(input, room, at, goal, end);
        if usize::from(at) >= goal {
            match look(room.get(place.start..usize::from(at))?) {
                ControlFlow::Break(found) => return Some(found),
                ControlFlow::Continue(more) => {
                    goal = usize::from(at).saturating_add(more).saturating_add(NEXT_LOOK);
                }
            }
            continue;
        }
        match unpack_any(input, room, at.into(), end.into())? {
            Unpacked::Sequence(rest, next) => (input, at) = (rest, next as u16),
            Unpacked::End => return look(room.get(place)?).break_value(),
        }
    }
}

/// Unpacks sequences of the usual kind up to the first that ends at `goal` or behind it, or up to one of another kind. Answers what follows
/// them in the block and in the room.
///
/// It is no part of [`unpack_until`], which is compiled for each caller: the loop is short, and what it needs stays in registers.
#[inline(never)]
fn unpack_shorts<'b>(
    mut input: &'b [u8],
    room: &mut Room,
    mut at: u16,
    goal: usize,
    end: u16,
) -> (&'b [u8], u16) {
    while usize::from(at) < goal
        && let Some((rest, next)) = unpack_short(input, room, at, end)
    {
        (input, at) = (rest, next);
    }
    (input, at)
}

/// Bytes of a sequence with few literals, and at most two bytes beside the token for the length of its match.
const SHORT_SEQUENCE: usize = 1 + LONG + 2 + 2;

/// Unpacks the next sequence in steps of fixed length, which need not be exact: one of few literals, as nearly all are. Answers what
/// follows it in the block and in the room. `None`: it is another one, or damaged, and nothing up to `at` has changed.
#[inline(always)]
fn unpack_short<'b>(input: &'b [u8], room: &mut Room, at: u16, end: u16) -> Option<(&'b [u8], u16)> {
    let sequence = input.first_chunk::<SHORT_SEQUENCE>()?;
    let [token, literals @ ..] = sequence;
    let count = usize::from(token >> 4);
    if count == LONG {
        return None;
    }
    *piece_mut::<LITERALS>(room, at)? = *literals.first_chunk()?;
    let behind = literals.get(count..)?;
    let offset = usize::from(u16::from_le_bytes(*behind.first_chunk()?));
    let (mut length, mut read) = (usize::from(token & 15) + MATCH_MIN, 1 + count + 2);
    if length == LONG + MATCH_MIN {
        let more = *behind.get(2)?;
        length += usize::from(more);
        read += 1;
        if more == u8::MAX {
            let more = *behind.get(3).filter(|more| **more < u8::MAX)?;
            length += usize::from(more);
            read += 1;
        }
    }
    let at = usize::from(at) + count;
    let next = at + length;
    let from = at.checked_sub(offset)?;
    // One that repeats itself has to be copied piece by piece.
    if next > usize::from(end) || length > offset {
        return None;
    }
    let step: [u8; STEP] = *piece(room, from as u16)?;
    *piece_mut(room, at as u16)? = step;
    let mut done = STEP;
    while done < length {
        let step: [u8; LONG_STEP] = *piece(room, (from + done) as u16)?;
        *piece_mut(room, (at + done) as u16)? = step;
        done += LONG_STEP;
    }
    Some((input.get(read..)?, next as u16))
}

enum Unpacked<'b> {
    /// A sequence with a match: what follows it in the block and in the room.
    Sequence(&'b [u8], usize),
    /// The last one.
    End,
}

/// Unpacks the next sequence, whatever it is like. `None`: it is damaged, or not the last one at the end.
#[inline(never)]
fn unpack_any<'b>(input: &'b [u8], room: &mut Room, at: usize, end: usize) -> Option<Unpacked<'b>> {
    let (&token, mut input) = input.split_first()?;
    let mut length = usize::from(token >> 4);
    if length == LONG {
        length = length.checked_add(take_length(&mut input)?)?;
    }
    let (literals, rest) = input.split_at_checked(length)?;
    room.get_mut(at..end)?.get_mut(..length)?.copy_from_slice(literals);
    let at = at + length;
    if rest.is_empty() {
        return (at == end).then_some(Unpacked::End);
    }
    let (offset, mut input) = rest.split_first_chunk()?;
    let offset = usize::from(u16::from_le_bytes(*offset));
    let mut length = usize::from(token & 15);
    if length == LONG {
        length = length.checked_add(take_length(&mut input)?)?;
    }
    let length = length.checked_add(MATCH_MIN)?;
    if length > end - at {
        return None;
    }
    let from = at.checked_sub(offset)?;
    let (before, after) = room.split_at_mut_checked(at)?;
    let (before, after) = (before.get(from..)?, after.get_mut(..length)?);
    match before.get(..length) {
        Some(whole) => after.copy_from_slice(whole),
        None => repeat(before, after)?,
    }
    Some(Unpacked::Sequence(input, at + length))
}

/// Fills `after` with what stands before it, again and again; nothing is no match.
fn repeat(before: &[u8], after: &mut [u8]) -> Option<()> {
    let (start, mut rest) = after.split_at_mut_checked(before.len()).filter(|_| !before.is_empty())?;
    start.copy_from_slice(before);
    while !rest.is_empty() {
        let (step, behind) = rest.split_at_mut(before.len().min(rest.len()));
        step.copy_from_slice(before.get(..step.len())?);
        rest = behind;
    }
    Some(())
}

#[inline(always)]
fn piece<const N: usize>(room: &Room, at: u16) -> Option<&[u8; N]> {
    room.get(usize::from(at)..)?.first_chunk()
}

#[inline(always)]
fn piece_mut<const N: usize>(room: &mut Room, at: u16) -> Option<&mut [u8; N]> {
    room.get_mut(usize::from(at)..)?.first_chunk_mut()
}

fn take_length(input: &mut &[u8]) -> Option<usize> {
    let mut length = 0_usize;
    loop {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        length = length.checked_add(usize::from(byte))?;
        if byte < u8::MAX {
            return Some(length);
        }
    }
}
