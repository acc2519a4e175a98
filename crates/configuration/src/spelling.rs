//! Words that were meant where another one is written.

/// The known word nearest to an unknown one, if it is near enough to be a slip.
pub(super) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.to_ascii_lowercase();
    known
        .filter(|known| !known.is_empty())
        // So many edits there are at least: a word of megabytes is compared with none.
        .filter(|known| known.len().abs_diff(word.len()) <= slips(known))
        .map(|known| (distance(&word, &known.to_ascii_lowercase()), known))
        .filter(|(distance, known)| *distance <= slips(known))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// So many edits may be between a known word and what was meant for it.
fn slips(known: &str) -> usize {
    1 + known.len() / 4
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut best =
                (at(&last, j) + usize::from(x != y)).min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            if i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x) {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let known = ["memberOf", "member", "mail", ""];
        for (word, expected) in [
            ("memberof", Some("memberOf")),
            ("membr", Some("member")),
            ("amil", Some("mail")),
            ("mailbox", None),
            ("m", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known.into_iter()), expected, "{word}");
        }
    }

    /// Each of them would take a second: the test does not end.
    #[test]
    fn a_word_of_megabytes_is_compared_with_none() {
        let word = "x".repeat(4 << 20);
        let known = std::iter::repeat_n("memberOf", 100_000);
        assert_eq!(nearest(&word, known), None);
    }
}
