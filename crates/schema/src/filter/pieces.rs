//! The pieces of a substring assertion, in a value.

use smallvec::SmallVec;

/// Bytes of a value with its spaces that need no memory of their own.
const SPACED_BYTES: usize = 128;

/// Whether the pieces occur in this order, without overlap.
pub(super) fn in_order(key: &[u8], initial: Option<&[u8]>, any: &[Box<[u8]>], final_: Option<&[u8]>) -> bool {
    let mut rest = key;
    if let Some(initial) = initial {
        match rest.strip_prefix(initial) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    if let Some(final_) = final_ {
        match rest.strip_suffix(final_) {
            Some(before) => rest = before,
            None => return false,
        }
    }
    for piece in any {
        match memchr::memmem::find(rest, piece) {
            Some(at) => rest = rest.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

/// Pieces of text with the spaces that RFC 4518 section 2.6.1 gives them: a value begins and ends with one, and has two
/// where it has any inside. So `(cn=foo *)` is true of `foo` and `foo bar`, and `(cn=foo * bar)` of `foo bar`; none is of `foobar`.
/// Keys have none at their ends and single ones inside. That is enough as long as no text of a piece ends where a word does.
///
/// A piece of spaces alone between others is all of the space between two words, as in slapd: `(cn=* *)` finds values of several words.
/// By the RFC it would be true of every value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spaced {
    initial: Option<Box<[u8]>>,
    any: Vec<Box<[u8]>>,
    final_: Option<Box<[u8]>>,
}

impl Spaced {
    /// Those of these keys of pieces; none if the keys alone do.
    pub(super) fn of(initial: Option<&[u8]>, any: &[Box<[u8]>], final_: Option<&[u8]>) -> Option<Self> {
        let has_any = initial.is_some_and(ends)
            || any.iter().any(|piece| begins(piece) || ends(piece))
            || final_.is_some_and(begins);
        has_any.then(|| Self {
            initial: initial.map(|piece| spaced(piece, true, ends(piece))),
            any: any.iter().map(|piece| middle(piece)).collect(),
            final_: final_.map(|piece| spaced(piece, begins(piece), true)),
        })
    }

    /// Whether the value with this key has them.
    pub(super) fn matches(&self, key: &[u8]) -> bool {
        let mut value = SmallVec::<[u8; SPACED_BYTES]>::new();
        value.push(b' ');
        value.extend(doubled(key.trim_ascii()));
        value.push(b' ');
        in_order(&value, self.initial.as_deref(), &self.any, self.final_.as_deref())
    }
}

/// Whether the text of a piece begins behind a space.
fn begins(piece: &[u8]) -> bool {
    matches!(piece, [b' ', _, ..])
}

/// Whether a space follows the text of a piece.
fn ends(piece: &[u8]) -> bool {
    matches!(piece, [.., _, b' '])
}

/// A piece between others.
fn middle(piece: &[u8]) -> Box<[u8]> {
    match piece {
        b" " => Box::from(*b"  "),
        _ => spaced(piece, begins(piece), ends(piece)),
    }
}

/// A piece with one space at these ends; one without text at an end of the value is one space.
fn spaced(piece: &[u8], before: bool, behind: bool) -> Box<[u8]> {
    let text = piece.trim_ascii();
    let end = |has_one: bool| has_one.then_some(b' ');
    let behind = behind && (!text.is_empty() || !before);
    end(before).into_iter().chain(doubled(text)).chain(end(behind)).collect()
}

fn doubled(text: &[u8]) -> impl Iterator<Item = u8> {
    text.iter().flat_map(|byte| std::iter::repeat_n(*byte, if *byte == b' ' { 2 } else { 1 }))
}
