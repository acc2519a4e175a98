//! Keys for substrings: the head, the tail reversed, and every three bytes in a row.
//!
//! One key holds the head of a value and one its tail; a filter scans the keys that begin with its piece, whatever the
//! piece's length. Pieces in the middle are found by the intersection of their three-byte grams, which has to be
//! verified. They come into the index late ([`super::pending`]).

/// Bytes of a value that its head and tail keys hold.
pub(crate) const EDGE_LENGTH: usize = 16;
/// Length of a gram in bytes: a shorter piece cannot use the index.
pub const GRAM_LENGTH: usize = 3;

/// The head of a normalized value, or of an initial piece.
pub fn head(value: &[u8]) -> &[u8] {
    value.get(..EDGE_LENGTH).unwrap_or(value)
}

/// The tail of a normalized value, or of a final piece, last byte first.
pub fn tail(value: &[u8]) -> ([u8; EDGE_LENGTH], usize) {
    let mut out = [0; EDGE_LENGTH];
    let mut length = 0;
    for (to, from) in out.iter_mut().zip(value.iter().rev()) {
        *to = *from;
        length += 1;
    }
    (out, length)
}

/// The grams of a normalized value or piece, repeated ones included.
pub fn grams(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.windows(GRAM_LENGTH)
}

/// The grams that together cover a piece, and no more: a step of [`GRAM_LENGTH`], and the last.
pub(crate) fn covering_grams(piece: &[u8]) -> impl Iterator<Item = &[u8]> {
    let last = piece.len().checked_sub(GRAM_LENGTH);
    let chunks = piece.chunks_exact(GRAM_LENGTH);
    let rest = last.filter(|_| !chunks.remainder().is_empty()).and_then(|at| piece.get(at..));
    chunks.chain(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grams_cover_pieces() {
        for (piece, all, covering) in [
            ("ab", vec![], vec![]),
            ("abc", vec!["abc"], vec!["abc"]),
            ("abcd", vec!["abc", "bcd"], vec!["abc", "bcd"]),
            ("abcdef", vec!["abc", "bcd", "cde", "def"], vec!["abc", "def"]),
            ("abcdefg", vec!["abc", "bcd", "cde", "def", "efg"], vec!["abc", "def", "efg"]),
        ] {
            let text = |gram: &[u8]| String::from_utf8(gram.to_vec()).unwrap();
            assert_eq!(grams(piece.as_bytes()).map(text).collect::<Vec<_>>(), all);
            assert_eq!(covering_grams(piece.as_bytes()).map(text).collect::<Vec<_>>(), covering);
        }
    }

    #[test]
    fn both_edges_of_a_value_are_cut_at_their_length() {
        for (value, first, last) in [
            ("", "", ""),
            ("abc", "abc", "cba"),
            ("0123456789abcdefgh", "0123456789abcdef", "hgfedcba98765432"),
        ] {
            assert_eq!(head(value.as_bytes()), first.as_bytes());
            let (bytes, length) = tail(value.as_bytes());
            assert_eq!(&bytes[..length], last.as_bytes());
        }
    }
}
