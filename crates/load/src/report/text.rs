//! The table on a terminal.

use std::io::IsTerminal;

use super::{Better, Document, Row, number};

/// The narrowest table; on a narrower terminal it is cut by the terminal.
const WIDTH_MIN: usize = 60;
const WIDTH_WHEN_PIPED: usize = 120;

/// How the table is shown.
#[derive(Clone, Copy, Debug)]
pub struct TextOptions {
    /// Columns that a line may take; names are wrapped to keep it.
    pub width: usize,
    pub colour: bool,
}

impl TextOptions {
    /// As standard output is: colours and its width on a terminal (unless `NO_COLOR` is set), neither in a pipe.
    pub fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        if !stdout.is_terminal() {
            return Self { width: WIDTH_WHEN_PIPED, colour: false };
        }
        let width = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_col));
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { width: if width == 0 { WIDTH_WHEN_PIPED } else { width }, colour }
    }
}

/// How a cell stands out, where the terminal can.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tone {
    Plain,
    Strong,
    Good,
    Bad,
    Faint,
}

impl Tone {
    fn paint(self, text: &str, colour: bool) -> String {
        let code = match self {
            _ if !colour || text.trim().is_empty() => return text.to_owned(),
            Self::Plain => return text.to_owned(),
            Self::Strong => "1",
            Self::Good => "32",
            Self::Bad => "1;31",
            Self::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

#[derive(Clone, Debug)]
struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl Document {
    /// The table with its heading, notes and faults; ends with a line feed. Charts are not shown.
    pub fn to_text(&self, options: &TextOptions) -> String {
        let mut out = String::new();
        let paint = |tone: Tone, text: &str| tone.paint(&printable(text), options.colour);
        out += &format!("{}\n", paint(Tone::Strong, &self.title));
        for line in self.heading() {
            out += &format!("{}\n", paint(Tone::Faint, &line));
        }
        out.push('\n');
        out += &self.table(options);
        for row in &self.rows {
            if let Some(reason) = &row.invalid {
                out += &format!("{}\n", paint(Tone::Bad, &format!("INVALID: {}: {reason}", row.name)));
            }
        }
        for note in &self.notes {
            out += &format!("{}\n", paint(Tone::Faint, &format!("note: {note}")));
        }
        if let Some(verdict) = self.verdict() {
            out += &format!("{}\n", paint(Tone::Strong, &verdict));
        }
        out
    }

    fn heading(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut how = Vec::new();
        if self.entries > 0 {
            how.push(format!("{} entries", number::count(self.entries as f64)));
        }
        if self.rounds > 0 {
            how.push(format!("{} {}", self.rounds, if self.rounds == 1 { "round" } else { "rounds" }));
        }
        if self.seconds > 0.0 {
            how.push(format!("{} s a figure", number::plain(self.seconds)));
        }
        if !how.is_empty() {
            lines.push(how.join(", "));
        }
        for server in &self.servers {
            lines.push(format!("{}: {} {}", server.name, server.version, server.flags).trim_end().to_owned());
        }
        lines.extend(self.machine.in_words());
        lines
    }

    /// How many goals were reached, and how many rows are invalid; absent when no row has a goal and none is invalid.
    pub(super) fn verdict(&self) -> Option<String> {
        let (reached, all) = self.goals();
        let invalid = self.rows.iter().filter(|row| row.invalid.is_some()).count();
        let reached = (all > 0).then(|| format!("{reached} of {all} goals reached"));
        let invalid =
            (invalid > 0).then(|| format!("{invalid} {} invalid", if invalid == 1 { "row" } else { "rows" }));
        let parts: Vec<String> = reached.into_iter().chain(invalid).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Reached goals and all of them: a goal counts once for every server that it is set against.
    pub(super) fn goals(&self) -> (usize, usize) {
        let ratios = self.rows.iter().filter(|row| row.goal.is_some());
        let ratios = ratios.flat_map(|row| (1..self.servers.len()).map(|other| row.reached(other)));
        let targets = self.rows.iter().filter(|row| row.target.is_some()).map(Row::target_reached);
        let all: Vec<Option<bool>> = ratios.chain(targets).collect();
        (all.iter().filter(|reached| **reached == Some(true)).count(), all.len())
    }

    fn table(&self, options: &TextOptions) -> String {
        let mut lines = vec![self.head()];
        let mut group = "";
        for row in &self.rows {
            if row.group != group {
                group = &row.group;
                lines.push(vec![Cell::new(format!("[{}]", printable(group)), Tone::Strong)]);
            }
            lines.push(self.line(row));
        }
        let columns = lines.first().map_or(0, Vec::len);
        let mut widths = vec![0; columns];
        for line in lines.iter().filter(|line| line.len() == columns) {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(columns_of(&cell.text));
            }
        }
        let rest: usize = widths.iter().skip(1).map(|width| width + 2).sum();
        let room = options.width.max(WIDTH_MIN).saturating_sub(rest).max(16);
        if let Some(name) = widths.first_mut() {
            *name = (*name).min(room);
        }
        lines.iter().map(|line| lay_out(line, &widths, options.colour)).collect()
    }

    fn head(&self) -> Vec<Cell> {
        let strong = |text: &str| Cell::new(printable(text), Tone::Strong);
        let mut head = vec![strong("work"), strong("unit")];
        head.extend(self.servers.iter().map(|server| strong(&server.name)));
        for (number, server) in self.servers.iter().enumerate().skip(1) {
            let several = self.servers.len() > 2;
            let text = if several { format!("to {}", server.name) } else { "ratio".into() };
            head.push(strong(&text));
            if number == 1 || several {
                head.push(strong("min-max"));
            }
        }
        if self.has_verdicts() {
            head.push(strong("goal"));
        }
        head
    }

    fn line(&self, row: &Row) -> Vec<Cell> {
        let usable = if row.invalid.is_some() { Tone::Faint } else { Tone::Plain };
        let mut line = vec![
            Cell::new(printable(&row.name), usable),
            Cell::new(printable(number::unit(&row.unit)), Tone::Faint),
        ];
        for server in 0..self.servers.len() {
            let figure =
                row.median(server).map_or_else(|| "-".into(), |figure| number::figure(figure, &row.unit));
            line.push(Cell::new(figure, usable));
        }
        for other in 1..self.servers.len() {
            let tone = match row.reached(other) {
                _ if row.invalid.is_some() => Tone::Faint,
                Some(true) => Tone::Good,
                Some(false) => Tone::Bad,
                None => Tone::Plain,
            };
            let ratio = row.ratio(other).filter(|_| row.invalid.is_none());
            line.push(Cell::new(ratio.map_or_else(|| "-".into(), |ratio| number::ratio(ratio.median)), tone));
            let spread = ratio.filter(|ratio| ratio.rounds > 1);
            let spread = spread.map(|ratio| format!("{:.2}-{:.2}", ratio.min, ratio.max));
            line.push(Cell::new(spread.unwrap_or_default(), Tone::Faint));
        }
        if self.has_verdicts() {
            line.push(self.goal_cell(row));
        }
        line
    }

    fn goal_cell(&self, row: &Row) -> Cell {
        if row.invalid.is_some() {
            return Cell::new("INVALID", Tone::Bad);
        }
        let reached: Vec<Option<bool>> = match (row.goal, row.target) {
            (Some(_), _) => (1..self.servers.len()).map(|other| row.reached(other)).collect(),
            (None, Some(_)) => vec![row.target_reached()],
            (None, None) => return Cell::new("", Tone::Plain),
        };
        let aim = match (row.goal, row.target, row.better) {
            (Some(goal), ..) => number::goal(goal),
            (None, Some(target), Better::Higher) => format!(">= {}", number::figure(target, &row.unit)),
            (None, target, _) => format!("<= {}", number::figure(target.unwrap_or(0.0), &row.unit)),
        };
        if reached.contains(&Some(false)) {
            return Cell::new(format!("{aim} short"), Tone::Bad);
        }
        match reached.iter().all(Option::is_some) && !reached.is_empty() {
            true => Cell::new(format!("{aim} ok"), Tone::Good),
            false => Cell::new(format!("{aim} ?"), Tone::Faint),
        }
    }
}

impl super::Machine {
    /// The machine in a line; absent when nothing is known.
    pub(super) fn in_words(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.cpu.is_empty() {
            parts.push(self.cpu.clone());
        }
        if self.cores > 0 {
            parts.push(format!("{} {}", self.cores, if self.cores == 1 { "core" } else { "cores" }));
        }
        if self.memory > 0 {
            parts.push(format!("{} of memory", number::figure(self.memory as f64, "bytes")));
        }
        if !self.kernel.is_empty() {
            parts.push(self.kernel.clone());
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// One line of the table, or several when the first cell is wrapped: names left, figures right.
fn lay_out(line: &[Cell], widths: &[usize], colour: bool) -> String {
    let Some((name, cells)) = line.split_first() else { return String::new() };
    let width = widths.first().copied().unwrap_or(0);
    let mut wrapped = wrap(&name.text, width.max(1)).into_iter();
    let first = wrapped.next().unwrap_or_default();
    let end = cells.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
    let first = if end == 0 { first } else { pad(&first, width, false) };
    let mut out = name.tone.paint(&first, colour);
    for (place, (cell, width)) in cells.iter().zip(widths.iter().skip(1)).enumerate().take(end) {
        let text = match place {
            _ if place + 1 == cells.len() => cell.text.clone(),
            // The unit stands left, figures right.
            0 => pad(&cell.text, *width, false),
            _ => pad(&cell.text, *width, true),
        };
        out += "  ";
        out += &cell.tone.paint(&text, colour);
    }
    out.push('\n');
    for rest in wrapped {
        out += &format!("{}\n", name.tone.paint(&format!("  {rest}"), colour));
    }
    out
}

/// Words in lines of at most `width` columns; a word that is longer is cut. Later lines leave room for an indent of 2.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let room = if lines.is_empty() { width } else { width.saturating_sub(2).max(1) };
            let used = line.chars().count();
            let needed = if used == 0 { word.len() } else { used + 1 + word.len() };
            if needed <= room {
                if used > 0 {
                    line.push(' ');
                }
                line.extend(word);
                break;
            }
            if used == 0 {
                let rest = word.split_off(room.min(word.len()));
                line.extend(std::mem::replace(&mut word, rest));
            }
            lines.push(std::mem::take(&mut line));
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

fn columns_of(text: &str) -> usize {
    text.chars().count()
}

fn pad(text: &str, width: usize, right: bool) -> String {
    if right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

/// Without what would move a terminal's cursor: names and reasons may come from a server or a file.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping() {
        for (text, width, expected) in [
            ("", 5, &[""][..]),
            ("one two", 20, &["one two"]),
            ("one two three", 7, &["one two", "three"]),
            ("abcdefghij", 4, &["abcd", "ef", "gh", "ij"]),
            ("a bcdefgh", 4, &["a", "bc", "de", "fg", "h"]),
        ] {
            assert_eq!(wrap(text, width), expected, "{text:?} in {width}");
        }
    }
}
