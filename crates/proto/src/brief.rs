//! Long texts in messages.

/// Bytes of a text for people that quotes what a client or a file has: such a value may be as long as a request.
pub const MESSAGE_MAX: usize = 2048;

/// The text, or if it has more than `limit` bytes its begin and its end, with `... (N bytes) ...` between them. What a message says of
/// a value stands before or behind it, and so stays. The result has at most some 30 bytes more than `limit`.
pub fn shortened(text: String, limit: usize) -> String {
    let length = text.len();
    if length <= limit {
        return text;
    }
    let tail = limit / 3;
    let head = text.get(..boundary(&text, limit - tail)).unwrap_or_default();
    let tail = text.get(boundary(&text, length - tail)..).unwrap_or_default();
    format!("{head}... ({length} bytes) ...{tail}")
}

/// The begin of the character at this byte.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn the_begin_and_the_end_of_a_long_text_stay() {
        let check = |text: &str, limit, expected: &str| {
            assert_eq!(shortened(text.to_owned(), limit), expected, "{text}");
        };
        check("", 0, "");
        check("abcdef", 6, "abcdef");
        check("abcdefg", 6, "abcd... (7 bytes) ...fg");
        check("\u{e9}\u{e9}\u{e9}\u{e9}", 6, "\u{e9}\u{e9}... (8 bytes) ...\u{e9}");
        // The character at a cut is left out in front, and stays behind.
        check("a\u{e9}\u{e9}\u{e9}", 4, "a\u{e9}... (7 bytes) ...\u{e9}");
        check("abc", 0, "... (3 bytes) ...");
    }
}
