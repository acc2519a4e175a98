//! Preparation of strings for comparison (RFC 4518).
//!
//! Follows the RFC's steps map, normalise (NFKC) and insignificant space handling; the steps prohibit and check bidi
//! are left out: like OpenLDAP, Larix takes any text, with the Unicode of today. Insignificant spaces are taken away
//! rather than doubled: a prepared value has no space at either end and single spaces inside. `filter/pieces.rs` gives them back
//! where a piece of a substring assertion needs them.

use std::cmp::Ordering;

use smallvec::SmallVec;
use stringprep::tables::{case_fold_for_nfkc, commonly_mapped_to_nothing};
use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfkc_quick};

/// Which part of a substring assertion a piece is; it decides where a space at its ends counts.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Position {
    /// A whole value or assertion value: no space at either end.
    Whole,
    /// One space may stay at the end.
    Initial,
    /// One space may stay at each end.
    Any,
    /// One space may stay at the start.
    Final,
}

/// Prepares `text` and appends the result to `out`. A text of spaces alone, or of characters that do not count,
/// becomes one space.
pub(crate) fn prepare(text: &str, fold_case: bool, position: Position, out: &mut Vec<u8>) {
    if text.is_empty() {
        return;
    }
    let start = out.len();
    if prepare_tidy(text.as_bytes(), fold_case, out) {
        return;
    }
    let mut spaces = Spaces::new(position);
    if text.is_ascii() {
        for byte in text.bytes() {
            match byte {
                b' ' | b'\t'..=b'\r' => spaces.space(),
                0..=0x1f | 0x7f => {}
                byte => {
                    spaces.before_character(out);
                    out.push(if fold_case { byte.to_ascii_lowercase() } else { byte });
                }
            }
        }
    } else {
        prepare_unicode(text, fold_case, &mut spaces, out);
    }
    spaces.end(out);
    if out.len() == start {
        out.push(b' ');
    }
}

/// As [`prepare`], of bytes that are text if this answers true; else nothing is done.
///
/// Tidy is a text of ASCII that has nothing which preparation takes away or changes, but for case. Nearly every text is.
/// All bytes are looked at, eight at once; of the last eight some may have been looked at before.
pub(crate) fn prepare_tidy(text: &[u8], fold_case: bool, out: &mut Vec<u8>) -> bool {
    let ([first, ..], [.., last]) = (text, text) else { return false };
    if *first == b' ' || *last == b' ' {
        return false;
    }
    let start = out.len();
    out.reserve(text.len());
    let (chunks, rest) = text.as_chunks();
    let (mut untidy, mut space_before) = (0, 0);
    for chunk in chunks {
        let eight = Eight(u64::from_le_bytes(*chunk));
        let spaces = eight.spaces();
        untidy |= eight.odd() | spaces & (spaces >> 8 | space_before);
        space_before = spaces >> 56;
        out.extend_from_slice(&eight.folded(fold_case));
    }
    if !rest.is_empty() {
        // A byte that is not of the text stands before it.
        let mut end = [b'-'; 8];
        match text.last_chunk() {
            Some(last) => end = *last,
            None => end.iter_mut().rev().zip(rest.iter().rev()).for_each(|(to, from)| *to = *from),
        }
        let eight = Eight(u64::from_le_bytes(end));
        let spaces = eight.spaces();
        untidy |= eight.odd() | spaces & (spaces >> 8);
        out.extend_from_slice(eight.folded(fold_case).get(8 - rest.len()..).unwrap_or_default());
    }
    if untidy != 0 {
        out.truncate(start);
    }
    untidy == 0
}

/// Eight bytes of a text, the first one lowest. The result of a test of each byte stands in its highest bit, and holds when all are
/// of ASCII.
#[derive(Clone, Copy)]
struct Eight(u64);

impl Eight {
    const HIGHEST: u64 = u64::from_le_bytes([0x80; 8]);

    /// Adds the same to each byte.
    fn plus(self, each: u8) -> u64 {
        self.0.wrapping_add(u64::from_le_bytes([each; 8]))
    }

    /// Which bytes are none of the characters from the space to the tilde; not zero also when any is not of ASCII.
    fn odd(self) -> u64 {
        (self.0 | self.plus(0x80 - 0x7f) | !self.plus(0x80 - b' ')) & Self::HIGHEST
    }

    fn spaces(self) -> u64 {
        self.plus(0x80 - b' ') & !self.plus(0x80 - b' ' - 1) & Self::HIGHEST
    }

    fn folded(self, fold_case: bool) -> [u8; 8] {
        let capitals = self.plus(0x80 - b'A') & !self.plus(0x80 - b'Z' - 1) & Self::HIGHEST;
        (if fold_case { self.0 | capitals >> 2 } else { self.0 }).to_le_bytes()
    }
}

/// Compares a prepared `key` with an unprepared value, without memory. `None` when only [`prepare`] can tell.
pub(crate) fn quick_equal(key: &[u8], value: &[u8], fold_case: bool) -> Option<bool> {
    // Nearly all that is equal is written alike. Preparation does not change a prepared text.
    if key == value {
        return Some(true);
    }
    let fold = |byte: u8| if fold_case { byte.to_ascii_lowercase() } else { byte };
    let mut places = key.iter().zip(value);
    let Some(place) = places.position(|(&key, &value)| key != fold(value)) else {
        // One is the start of the other.
        return match value.len().cmp(&key.len()) {
            Ordering::Equal => Some(true),
            Ordering::Less if key.is_ascii() => Some(false),
            Ordering::Less => None,
            Ordering::Greater => differs_at(value, key.len()),
        };
    };
    differs_at(value, place)
}

/// What it means that a value begins to differ from a prepared text at `place`: no way to be equal when preparation
/// leaves the character there as it is, which spaces, controls and what is not ASCII prevent.
fn differs_at(value: &[u8], place: usize) -> Option<bool> {
    let stays = value.get(place).is_some_and(u8::is_ascii_graphic)
        && value.get(place + 1).is_none_or(u8::is_ascii)
        && value.get(..place).is_some_and(<[u8]>::is_ascii);
    stays.then_some(false)
}

fn prepare_unicode(text: &str, fold_case: bool, spaces: &mut Spaces, out: &mut Vec<u8>) {
    let mapped = text.chars().filter_map(map);
    let characters: SmallVec<[char; 64]> =
        if fold_case { mapped.flat_map(fold).collect() } else { mapped.collect() };
    let characters = characters.iter().copied();
    if is_nfkc_quick(characters.clone()) == IsNormalized::Yes {
        emit(characters, spaces, out);
    } else if fold_case {
        // Compatibility decomposition can bring capital letters to light that had no folding of their own.
        emit(characters.nfkc().flat_map(fold).nfkc(), spaces, out);
    } else {
        emit(characters.nfkc(), spaces, out);
    }
}

fn emit(characters: impl Iterator<Item = char>, spaces: &mut Spaces, out: &mut Vec<u8>) {
    let mut characters = characters.peekable();
    let mut utf8 = [0; 4];
    while let Some(character) = characters.next() {
        // A space that carries a combining mark is a character (RFC 4518 §2.6.1).
        if character == ' ' && !characters.peek().is_some_and(|&next| is_combining_mark(next)) {
            spaces.space();
        } else {
            spaces.before_character(out);
            out.extend_from_slice(character.encode_utf8(&mut utf8).as_bytes());
        }
    }
}

/// RFC 4518 §2.2, but for case folding.
fn map(character: char) -> Option<char> {
    match character {
        ' '..='~' => Some(character),
        '\t'..='\r' | '\u{85}' => Some(' '),
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffc}' | '\u{200b}' => None,
        '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' => None,
        '\u{2060}'..='\u{2063}' | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' => None,
        '\u{1d173}'..='\u{1d17a}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}' => None,
        '\u{a0}'
        | '\u{1680}'
        | '\u{2000}'..='\u{200a}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{202f}'
        | '\u{205f}'
        | '\u{3000}' => Some(' '),
        character if commonly_mapped_to_nothing(character) => None,
        character => Some(character),
    }
}

/// Table B.2 of RFC 3454; letters that came to Unicode after it fold to lower case.
fn fold(character: char) -> SmallVec<[char; 4]> {
    // Latin letters without a folding of more than one letter, and the scripts without case, need no table.
    match character {
        '\0'..='\u{7f}' => SmallVec::from_elem(character.to_ascii_lowercase(), 1),
        // Its lower case folds on, to what Unicode folds both to.
        '\u{1e9e}' => SmallVec::from_slice(&['s', 's']),
        '\u{df}' | '\u{b5}' => case_fold_for_nfkc(character).collect(),
        '\u{80}'..='\u{12f}'
        | '\u{3041}'..='\u{30ff}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}' => character.to_lowercase().collect(),
        _ => case_fold_for_nfkc(character).flat_map(char::to_lowercase).collect(),
    }
}

/// Keeps the spaces that count.
struct Spaces {
    position: Position,
    pending: bool,
    started: bool,
}

impl Spaces {
    fn new(position: Position) -> Self {
        Self { position, pending: false, started: false }
    }

    fn space(&mut self) {
        self.pending = true;
    }

    fn before_character(&mut self, out: &mut Vec<u8>) {
        if self.pending && (self.started || matches!(self.position, Position::Any | Position::Final)) {
            out.push(b' ');
        }
        self.pending = false;
        self.started = true;
    }

    fn end(&self, out: &mut Vec<u8>) {
        if self.pending && self.started && matches!(self.position, Position::Initial | Position::Any) {
            out.push(b' ');
        }
    }
}

#[cfg(test)]
mod tests;
