//! The last lines of the log, for the admin page.

use std::collections::VecDeque;

/// Lines kept.
const LINES_MAX: usize = 1_000;
/// Bytes kept of one.
const LINE_BYTES_MAX: usize = 2 * 1024;

#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The oldest first.
    pub(super) lines: VecDeque<String>,
}

impl Recent {
    pub(super) fn add(&mut self, line: &str) {
        // The oldest line's room is taken over.
        let mut kept = match self.lines.len() < LINES_MAX {
            true => String::new(),
            false => self.lines.pop_front().unwrap_or_default(),
        };
        kept.clear();
        let cut = line.floor_char_boundary(LINE_BYTES_MAX);
        kept.push_str(line.get(..cut).unwrap_or_default());
        if cut < line.len() {
            kept.push('\u{2026}');
        }
        self.lines.push_back(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_cut() {
        let mut recent = Recent::default();
        (0..LINES_MAX + 5).for_each(|number| recent.add(&number.to_string()));
        assert_eq!((recent.lines.len(), recent.lines[0].as_str()), (LINES_MAX, "5"));
        recent.add(&"\u{e4}".repeat(LINE_BYTES_MAX));
        let last = recent.lines.back().unwrap();
        assert!(last.ends_with('\u{2026}') && last.len() <= LINE_BYTES_MAX + 3, "{}", last.len());
    }
}
