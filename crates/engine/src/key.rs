//! How an index key is laid out.
//!
//! `attribute number (u32, big-endian) ++ kind ++ escaped value ++ terminator`. The escape keeps the order of the
//! values and makes no key a prefix of another. A value longer than [`VALUE_LIMIT`] is cut and followed by a digest:
//! good for equality, but for order and prefixes it says no more than its head.

use std::borrow::Cow;

use crate::ids::AttributeNumber;
use crate::record::digest;

/// Bytes of a normalized value that stand in a key as they are.
pub(crate) const VALUE_LIMIT: usize = 192;

/// Attribute number and kind.
pub(crate) const HEAD_LENGTH: usize = 5;

/// Ends a key that holds its whole value.
pub(crate) const END: [u8; 2] = [0, 0];
/// Precedes the digest of a value that was cut. Sorts after [`END`], before any continuation that is not cut.
const CUT: [u8; 2] = [0, 1];
/// A zero byte of the value.
const ZERO: [u8; 2] = [0, 0xff];

/// Longest key that can result: the store must take it with its own eight bytes more.
pub(crate) const KEY_LIMIT: usize = 4 + 1 + 2 * VALUE_LIMIT + 2 + crate::record::DIGEST_LENGTH;
const _: () = assert!(KEY_LIMIT + 8 <= 511, "LMDB takes keys of up to 511 bytes");

/// What the rest of a key is.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum KeyKind {
    /// Nothing: the attribute is present.
    Presence = 1,
    /// The value as its equality rule normalizes it.
    Equality = 2,
    /// The head of the value as its substrings rule normalizes it.
    Initial = 3,
    /// Three bytes in a row of that.
    Any = 4,
    /// The tail of that, last byte first.
    Final = 5,
    /// A word by its sound.
    Approx = 6,
}

impl KeyKind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Presence, Self::Equality, Self::Initial, Self::Any, Self::Final, Self::Approx]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// As index lines call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Presence => "pres",
            Self::Equality => "eq",
            Self::Initial => "subinitial",
            Self::Any => "subany",
            Self::Final => "subfinal",
            Self::Approx => "approx",
        }
    }
}

/// Appends the whole key of `value`.
pub(crate) fn put(out: &mut Vec<u8>, number: AttributeNumber, kind: KeyKind, value: &[u8]) {
    put_head(out, number, kind);
    put_value(out, value);
}

/// Appends what a whole key of `value` has behind its head.
pub(crate) fn put_value(out: &mut Vec<u8>, value: &[u8]) {
    put_escaped(out, value);
    if value.len() > VALUE_LIMIT {
        out.extend_from_slice(&CUT);
        out.extend_from_slice(&digest(value));
    } else {
        out.extend_from_slice(&END);
    }
}

/// The whole key of `value`.
pub(crate) fn make(number: AttributeNumber, kind: KeyKind, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + value.len());
    put(&mut out, number, kind, value);
    out
}

/// The whole key of three bytes in a row; `None` where one of them has to be escaped.
pub(crate) fn of_gram(number: AttributeNumber, gram: [u8; 3]) -> Option<[u8; HEAD_LENGTH + 5]> {
    if gram.contains(&0) {
        return None;
    }
    let ([n, u, m, b], [a, c, d]) = (number.0.to_be_bytes(), gram);
    let [end, last] = END;
    Some([n, u, m, b, KeyKind::Any as u8, a, c, d, end, last])
}

/// Appends what all keys of values that begin with `head` begin with. A head longer than [`VALUE_LIMIT`] is cut.
pub(crate) fn put_prefix(out: &mut Vec<u8>, number: AttributeNumber, kind: KeyKind, head: &[u8]) {
    put_head(out, number, kind);
    put_escaped(out, head);
}

fn put_head(out: &mut Vec<u8>, number: AttributeNumber, kind: KeyKind) {
    out.extend_from_slice(&number.0.to_be_bytes());
    out.push(kind as u8);
}

fn put_escaped(out: &mut Vec<u8>, head: &[u8]) {
    let head = head.get(..VALUE_LIMIT).unwrap_or(head);
    // Nearly every value has no zero byte.
    if !has_zero(head) {
        return out.extend_from_slice(head);
    }
    for byte in head {
        match byte {
            0 => out.extend_from_slice(&ZERO),
            byte => out.push(*byte),
        }
    }
}

/// Whether a byte is zero. Eight are looked at at once: most values are too short for anything faster.
fn has_zero(bytes: &[u8]) -> bool {
    const LOWEST: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGHEST: u64 = u64::from_le_bytes([0x80; 8]);
    let (words, rest) = bytes.as_chunks::<8>();
    // Without a zero nothing is borrowed, and a byte less one has its highest bit only if it had it before.
    let zeros = |word: u64| word.wrapping_sub(LOWEST) & !word & HIGHEST;
    let found = words.iter().fold(0, |found, word| found | zeros(u64::from_le_bytes(*word)));
    found != 0 || rest.contains(&0)
}

/// The first key after all that begin with `prefix`; `None` when there is none.
pub(crate) fn after_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if let Some(next) = last.checked_add(1) {
            prefix.push(next);
            return Some(prefix);
        }
    }
    None
}

/// Attribute number and kind of a key.
pub fn parse_head(key: &[u8]) -> Option<(AttributeNumber, KeyKind)> {
    let (number, rest) = key.split_first_chunk::<4>()?;
    Some((AttributeNumber(u32::from_be_bytes(*number)), KeyKind::from_byte(*rest.first()?)?))
}

/// The value that a key holds; `None` when it was cut.
pub(crate) fn parse_value(key: &[u8]) -> Option<Cow<'_, [u8]>> {
    let rest = key.get(5..)?;
    // Nearly every value has no zero byte.
    if let Some(value) = rest.strip_suffix(&END).filter(|value| !value.contains(&0)) {
        return Some(Cow::Borrowed(value));
    }
    unescaped(rest).map(Cow::Owned)
}

fn unescaped(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(rest.len());
    loop {
        match rest {
            [0, 0xff, after @ ..] => {
                value.push(0);
                rest = after;
            }
            [0, 0] => return Some(value),
            [0, ..] | [] => return None,
            [byte, after @ ..] => {
                value.push(*byte);
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: AttributeNumber = AttributeNumber(3);

    #[test]
    fn zeros_are_found_wherever_they_are() {
        for length in 0..20 {
            for other in [1, 0x7f, 0x80, 0xff] {
                let mut bytes = vec![other; length];
                assert!(!has_zero(&bytes), "{bytes:?}");
                for at in 0..length {
                    bytes[at] = 0;
                    assert!(has_zero(&bytes), "{bytes:?}");
                    bytes[at] = other;
                }
            }
        }
    }

    #[test]
    fn keys_keep_the_order_of_values() {
        let long = vec![b'b'; VALUE_LIMIT];
        let cut = [long.as_slice(), b"tail"].concat();
        let values: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\0\x01", b"a", b"a\0", b"ab", &long, &cut];
        for pair in values.windows(2) {
            let (low, high) = (make(N, KeyKind::Equality, pair[0]), make(N, KeyKind::Equality, pair[1]));
            assert!(low < high, "{pair:?}");
            assert!(!high.starts_with(&low), "{pair:?}");
        }
        assert!(make(N, KeyKind::Equality, b"\xff\xff") < make(N, KeyKind::Initial, b""));
        assert!(make(N, KeyKind::Approx, b"\xff\xff") < make(AttributeNumber(4), KeyKind::Presence, b""));
    }

    #[test]
    fn keys_give_their_value_back() {
        for value in [b"".as_slice(), b"abc", b"\0a\0", b"\xff\0\xff", &[b'x'; VALUE_LIMIT]] {
            let key = make(N, KeyKind::Initial, value);
            assert!(key.len() <= KEY_LIMIT);
            assert_eq!(parse_head(&key), Some((N, KeyKind::Initial)));
            assert_eq!(parse_value(&key).as_deref(), Some(value));
        }
        let key = make(N, KeyKind::Equality, &[0; 400]);
        assert_eq!(key.len(), KEY_LIMIT);
        assert_eq!(parse_value(&key), None);
    }

    #[test]
    fn a_prefix_covers_its_keys() {
        for (head, value, covered) in [
            (b"ab".as_slice(), b"ab".as_slice(), true),
            (b"ab", b"abc", true),
            (b"ab", b"ac", false),
            (b"a\0", b"a\0b", true),
            (b"", b"x", true),
            (b"\xff", b"\xff\xff", true),
        ] {
            let mut low = Vec::new();
            put_prefix(&mut low, N, KeyKind::Equality, head);
            let high = after_prefix(low.clone()).unwrap();
            let key = make(N, KeyKind::Equality, value);
            assert_eq!(key >= low && key < high, covered, "{head:?} {value:?}");
        }
    }
}
