//! The document: who was measured, on which machine, and every figure of every round.

use serde::{Deserialize, Serialize};

/// The version of the JSON form; see `docs/guide/report.md`. A reader refuses a higher one.
pub const FORMAT: u32 = 1;

/// Everything that a report shows.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Document {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    pub title: String,
    /// The scenario's name, as it stands on the command line.
    pub scenario: String,
    /// How many leaf entries the directory has.
    pub entries: u64,
    /// How often each figure was taken from each server.
    pub rounds: u32,
    /// Seconds that one figure was measured.
    pub seconds: f64,
    /// When the measurement began, as RFC 3339 in UTC; empty when unknown.
    pub taken: String,
    /// The command that repeats it; empty when unknown.
    pub command: String,
    pub machine: Machine,
    /// The servers that were measured. The first one is compared with each other.
    pub servers: Vec<Server>,
    pub rows: Vec<Row>,
    pub charts: Vec<Chart>,
    /// What a reader must know to read the figures rightly.
    pub notes: Vec<String>,
}

/// The machine on which servers and client ran. An empty text or 0 is "unknown".
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Machine {
    /// The processor's model as the kernel names it.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Name and release of the kernel.
    pub kernel: String,
}

/// A measured server.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Server {
    /// Short and unlike the others': it stands in column heads and legends.
    pub name: String,
    pub version: String,
    /// How it was started, or its URL.
    pub flags: String,
}

/// Which way a figure is better.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    #[default]
    Higher,
    Lower,
}

/// One kind of work, and what every server reached in every round.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Row {
    pub name: String,
    /// Rows of one group stand together under its name; empty for none.
    pub group: String,
    /// The figures' unit: `/s`, `per CPU-s`, `us`, `s`, `bytes`. Bytes are shown in KiB, MiB and so on.
    pub unit: String,
    pub better: Better,
    /// How many times better the first server is to be than each other: 4.0 for "four times as many per second", 2.0
    /// for "half the latency".
    pub goal: Option<f64>,
    /// The figure that the first server is to reach by itself, in the row's unit.
    pub target: Option<f64>,
    /// By server (in the order of [`Document::servers`]), then by round; absent when it was not measured.
    pub figures: Vec<Vec<Option<f64>>>,
    /// What a reader has to know about this row.
    pub note: String,
    /// Why these figures must not be used: a wrong answer, a client that was the bottleneck.
    pub invalid: Option<String>,
}

/// How many times better the first server is than another, over the rounds that both have.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub min: f64,
    pub median: f64,
    pub max: f64,
    pub rounds: usize,
}

impl Document {
    /// The same without what Larix aims at: figures and ratios alone, as a reader wants them who compares servers.
    #[must_use]
    pub fn without_goals(&self) -> Self {
        let mut document = self.clone();
        for row in &mut document.rows {
            (row.goal, row.target) = (None, None);
        }
        document
    }

    /// Whether a row has a goal or a target, or must not be used: the last column of the results says so.
    pub(super) fn has_verdicts(&self) -> bool {
        self.rows.iter().any(|row| row.goal.is_some() || row.target.is_some() || row.invalid.is_some())
    }
}

impl Row {
    /// A row without figures.
    pub fn new(name: impl Into<String>, unit: impl Into<String>, better: Better) -> Self {
        Self { name: name.into(), unit: unit.into(), better, ..Self::default() }
    }

    /// Adds the next round's figure of the server numbered `server`; absent when it could not be taken.
    pub fn push(&mut self, server: usize, figure: Option<f64>) {
        if self.figures.len() <= server {
            self.figures.resize(server + 1, Vec::new());
        }
        if let Some(rounds) = self.figures.get_mut(server) {
            rounds.push(figure.filter(|figure| figure.is_finite()));
        }
    }

    /// The median of a server's rounds.
    pub fn median(&self, server: usize) -> Option<f64> {
        median(&self.finite_figures(server))
    }

    /// The least and the greatest of a server's rounds.
    pub fn spread(&self, server: usize) -> Option<(f64, f64)> {
        let finite_figures = self.finite_figures(server);
        let least = finite_figures.iter().copied().reduce(f64::min)?;
        Some((least, finite_figures.iter().copied().reduce(f64::max)?))
    }

    fn finite_figures(&self, server: usize) -> Vec<f64> {
        let rounds = self.figures.get(server).map_or(&[][..], Vec::as_slice);
        rounds.iter().flatten().copied().filter(|figure| figure.is_finite()).collect()
    }

    /// How many times better the first server is than the one numbered `other`: above 1 is better, whatever the unit.
    /// Round is set against round, so that what slows the machine for a while slows both.
    ///
    /// Absent when no round has a figure above zero for both.
    pub fn ratio(&self, other: usize) -> Option<Ratio> {
        let (first, second) = (self.figures.first()?, self.figures.get(other)?);
        let ratios: Vec<f64> = first
            .iter()
            .zip(second)
            .filter_map(|(first, second)| match (self.better, (*first)?, (*second)?) {
                (_, first, second) if first <= 0.0 || second <= 0.0 => None,
                (Better::Higher, first, second) => Some(first / second),
                (Better::Lower, first, second) => Some(second / first),
            })
            .filter(|ratio| ratio.is_finite())
            .collect();
        Some(Ratio {
            min: ratios.iter().copied().reduce(f64::min)?,
            median: median(&ratios)?,
            max: ratios.iter().copied().reduce(f64::max)?,
            rounds: ratios.len(),
        })
    }

    /// Whether the goal is reached against the server numbered `other`, by the median; absent without a goal, without
    /// figures or when the row is invalid.
    pub fn reached(&self, other: usize) -> Option<bool> {
        if self.invalid.is_some() {
            return None;
        }
        Some(self.ratio(other)?.median >= self.goal?)
    }

    /// Whether the first server's median reaches [`Row::target`].
    pub fn target_reached(&self) -> Option<bool> {
        if self.invalid.is_some() {
            return None;
        }
        let (figure, target) = (self.median(0)?, self.target?);
        Some(match self.better {
            Better::Higher => figure >= target,
            Better::Lower => figure <= target,
        })
    }
}

/// The middle of the values; of two middle ones their mean.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(lower, upper))
}

/// How a chart draws its series.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChartKind {
    #[default]
    Lines,
    /// One group of bars for each category of the x axis; the y axis starts at zero.
    Bars,
}

/// How values are placed on an axis.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    #[default]
    Linear,
    /// By powers of ten; values of zero and less have no place on it and are left out.
    Log,
}

/// An axis of a chart.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Axis {
    /// What is shown, with its unit: "searches a second", "latency, us".
    pub label: String,
    pub scale: Scale,
    /// Names in the place of numbers (x axis only): a point's `x` is then the name's position, from 0.
    pub categories: Vec<String>,
}

impl Axis {
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log, ..Self::default() }
    }

    pub fn categories<T: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = T>) -> Self {
        let categories = names.into_iter().map(Into::into).collect();
        Self { label: label.into(), categories, ..Self::default() }
    }
}

/// One picture, with the numbers it is drawn from.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Chart {
    pub title: String,
    pub kind: ChartKind,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    /// What a reader has to know about it.
    pub note: String,
}

impl Chart {
    pub fn new(title: impl Into<String>, kind: ChartKind, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), kind, x, y, ..Self::default() }
    }

    /// Adds a series of the server numbered `server`.
    pub fn push(&mut self, label: impl Into<String>, server: usize, points: Vec<Point>) {
        self.series.push(Series { label: label.into(), server: Some(server), points });
    }
}

/// What one server reached over the x axis.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Series {
    pub label: String,
    /// Position in [`Document::servers`]: a server keeps its colour and mark through all charts.
    pub server: Option<usize>,
    pub points: Vec<Point>,
}

/// A point of a series, with the spread over the rounds where there is one.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Point {
    pub x: f64,
    /// Absent when it was not measured: a line has a gap there, a bar is missing.
    pub y: Option<f64>,
    #[serde(default)]
    pub low: Option<f64>,
    #[serde(default)]
    pub high: Option<f64>,
}

impl Point {
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y: Some(y).filter(|y| y.is_finite()), low: None, high: None }
    }

    /// The median of `rounds` with their least and greatest.
    pub fn of_rounds(x: f64, rounds: &[f64]) -> Self {
        let finite: Vec<f64> = rounds.iter().copied().filter(|y| y.is_finite()).collect();
        let spread = (finite.len() > 1).then_some(&finite);
        Self {
            x,
            y: median(&finite),
            low: spread.and_then(|all| all.iter().copied().reduce(f64::min)),
            high: spread.and_then(|all| all.iter().copied().reduce(f64::max)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(better: Better, first: &[f64], second: &[f64]) -> Row {
        let figures = [first, second].map(|rounds| rounds.iter().map(|figure| Some(*figure)).collect());
        Row { better, figures: figures.into(), ..Row::default() }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        for (better, first, second, expected) in [
            (Better::Higher, &[4.0, 8.0][..], &[2.0, 2.0][..], Some((2.0, 3.0, 4.0, 2))),
            (Better::Lower, &[2.0], &[8.0], Some((4.0, 4.0, 4.0, 1))),
            (Better::Higher, &[1.0, 9.0, 3.0], &[1.0, 1.0, 1.0], Some((1.0, 3.0, 9.0, 3))),
            (Better::Higher, &[4.0, 8.0], &[2.0], Some((2.0, 2.0, 2.0, 1))),
            (Better::Higher, &[0.0], &[2.0], None),
            (Better::Lower, &[2.0], &[0.0], None),
            (Better::Higher, &[], &[2.0], None),
        ] {
            let ratio = row(better, first, second).ratio(1);
            let found = ratio.map(|ratio| (ratio.min, ratio.median, ratio.max, ratio.rounds));
            assert_eq!(found, expected, "{better:?} {first:?} {second:?}");
        }
    }

    #[test]
    fn a_goal_is_reached_by_the_median_of_a_valid_row() {
        let mut row = row(Better::Higher, &[8.0, 8.0, 1.0], &[2.0, 2.0, 2.0]);
        assert_eq!(row.reached(1), None, "no goal");
        row.goal = Some(4.0);
        assert_eq!(row.reached(1), Some(true));
        row.goal = Some(4.1);
        assert_eq!(row.reached(1), Some(false));
        assert_eq!(row.reached(2), None, "no such server");
        row.invalid = Some("two entries instead of one".into());
        assert_eq!(row.reached(1), None);
    }

    #[test]
    fn a_target_is_met_from_its_better_side() {
        for (better, target, expected) in [
            (Better::Higher, 5.0, true),
            (Better::Higher, 6.0, false),
            (Better::Lower, 5.0, true),
            (Better::Lower, 4.0, false),
        ] {
            let row = Row { target: Some(target), ..row(better, &[5.0], &[]) };
            assert_eq!(row.target_reached(), Some(expected), "{better:?} {target}");
        }
    }

    #[test]
    fn what_is_no_number_is_absent() {
        let mut row = Row::new("a", "/s", Better::Higher);
        for figure in [Some(1.0), Some(f64::NAN), None, Some(f64::INFINITY), Some(3.0)] {
            row.push(1, figure);
        }
        assert_eq!(row.figures, [vec![], vec![Some(1.0), None, None, None, Some(3.0)]]);
        assert_eq!((row.median(1), row.spread(1)), (Some(2.0), Some((1.0, 3.0))));
        assert_eq!((row.median(0), row.spread(7)), (None, None));
    }

    #[test]
    fn points_of_rounds_carry_their_spread() {
        let of = |rounds: &[f64]| Point::of_rounds(1.0, rounds);
        assert_eq!(of(&[2.0, 6.0]), Point { x: 1.0, y: Some(4.0), low: Some(2.0), high: Some(6.0) });
        assert_eq!(of(&[2.0]), Point::new(1.0, 2.0));
        assert_eq!(of(&[]).y, None);
    }
}
