//! The last lines of the log, for the admin page.

use std::collections::VecDeque;
use std::time::Duration;

use super::writer::push_time;

/// Lines kept.
const LINES_MAX: usize = 1_000;
/// Bytes kept of one.
const LINE_BYTES_MAX: usize = 2 * 1024;

#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The oldest first, each with its time of day, which is formatted only on request.
    lines: VecDeque<(Duration, String)>,
}

impl Recent {
    pub(super) fn add(&mut self, at: Duration, line: &str) {
        // The oldest line's room is taken over.
        let mut kept = match self.lines.len() < LINES_MAX {
            true => String::new(),
            false => self.lines.pop_front().map(|(_, line)| line).unwrap_or_default(),
        };
        kept.clear();
        let cut = line.floor_char_boundary(LINE_BYTES_MAX);
        kept.push_str(line.get(..cut).unwrap_or_default());
        if cut < line.len() {
            kept.push('\u{2026}');
        }
        self.lines.push_back((at, kept));
    }

    /// The lines with their times, the newest last.
    pub(super) fn shown(&self) -> Vec<String> {
        let show = |(at, line): &(Duration, String)| {
            let mut shown = String::with_capacity(line.len() + 32);
            push_time(&mut shown, *at);
            shown.push(' ');
            shown.push_str(line);
            shown
        };
        self.lines.iter().map(show).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_cut() {
        let mut recent = Recent::default();
        (0..LINES_MAX + 5).for_each(|number| recent.add(Duration::from_micros(1), &number.to_string()));
        let shown = recent.shown();
        assert_eq!((shown.len(), shown[0].as_str()), (LINES_MAX, "1970-01-01T00:00:00.000001Z 5"));
        recent.add(Duration::ZERO, &"\u{e4}".repeat(LINE_BYTES_MAX));
        let (_, last) = recent.lines.back().unwrap();
        assert!(last.ends_with('\u{2026}') && last.len() <= LINE_BYTES_MAX + 3, "{}", last.len());
    }
}
