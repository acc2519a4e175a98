//! The document's rows and charts, filled as outcomes come in.

use super::outcome::{Outcome, StageFigures};
use crate::report::{Chart, Document, Point, Row};
use crate::scenario::{ChartPoint, Derived, Metric, PointMetric, Scenario, Step};

/// The most points that a line is drawn with; more are put together by their mean.
const POINTS_MAX: usize = 40;

/// Stands behind a server's name in the note of a row whose figure says less than the server can do.
pub(super) const LIMITED: &str = "was limited by the client";
const LIMITED_MEANS: &str = "Where a server was limited by the client, the driver found no free core when it had something to send: the \
    server's own rate is higher, and its latency lower, than the figure. Use a machine with more cores, or drive it from another.";

#[derive(Debug)]
pub(super) struct Rows {
    /// What a reader must know beside the scenario's notes.
    pub(super) notes: Vec<String>,
    servers: Vec<String>,
    rows: Vec<Row>,
    charts: Vec<Chart>,
    lines: Vec<Line>,
}

/// A series with each round's values.
#[derive(Debug)]
struct Line {
    chart: &'static str,
    server: usize,
    series: String,
    points: Vec<(f64, Vec<f64>)>,
}

impl Rows {
    /// Every row of the scenario, without figures: they are shown in its order whatever happens.
    pub(super) fn new(scenario: &Scenario, servers: Vec<String>) -> Self {
        let figures = scenario.stages.iter().flat_map(|stage| &stage.steps).flat_map(|step| &step.figures);
        let rows = figures.map(|figure| {
            let (unit, better) = figure.metric.unit();
            Row {
                group: figure.group.into(),
                goal: figure.goal,
                target: figure.target,
                note: figure.note.clone(),
                ..Row::new(figure.name.clone(), unit, better)
            }
        });
        Self {
            notes: Vec::new(),
            rows: rows.collect(),
            charts: scenario.charts.clone(),
            lines: Vec::new(),
            servers,
        }
    }

    /// Takes the step's figures of one server in one round.
    pub(super) fn take(
        &mut self,
        step: &Step,
        server: usize,
        round: u32,
        outcome: &Outcome,
        served: &StageFigures,
    ) {
        let name = self.servers.get(server).cloned().unwrap_or_default();
        for figure in &step.figures {
            let value = outcome.value(figure.metric, served);
            let Some(row) = self.rows.iter_mut().find(|row| row.name == figure.name) else { continue };
            row.push(server, value);
            if let Some(note) = &outcome.note {
                add_note(&mut row.note, &format!("{name}: {note}"));
            }
            if is_saturated(outcome, figure.metric) {
                add_note(&mut row.note, &format!("{name} {LIMITED}"));
                if self.notes.iter().all(|known| known != LIMITED_MEANS) {
                    self.notes.push(LIMITED_MEANS.to_owned());
                }
            }
            if let Some(wrong) = &outcome.invalid {
                row.invalid.get_or_insert_with(|| format!("{name}, round {}: {wrong}", round + 1));
            }
        }
        // A wrong answer has no place in a chart, where nothing would say that it is one.
        if outcome.invalid.is_none() {
            step.points.iter().for_each(|point| self.plot(point, server, outcome, served));
        }
    }

    /// The row of that name, as far as it is filled.
    pub(super) fn find(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    #[cfg(test)]
    pub(super) fn find_mut(&mut self, name: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.name == name)
    }

    /// One more row, behind those of the scenario.
    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    fn plot(&mut self, point: &ChartPoint, server: usize, outcome: &Outcome, served: &StageFigures) {
        let values: Vec<(f64, f64)> = match point.metric {
            PointMetric::One(metric) => {
                outcome.value(metric, served).map(|value| (point.x, value)).into_iter().collect()
            }
            PointMetric::Mebibytes(metric) => {
                let bytes = outcome.value(metric, served);
                bytes.map(|bytes| (point.x, bytes / f64::from(1 << 20))).into_iter().collect()
            }
            PointMetric::Steps => outcome
                .steps
                .iter()
                .map(|(connections, report)| (*connections as f64, report.rate()))
                .collect(),
            PointMetric::Bunches => {
                thin(outcome.bunches.iter().map(|bunch| (bunch.before as f64, bunch.seconds * 1e3)).collect())
            }
            PointMetric::OverTime(stream) => {
                let samples = outcome.streams.get(stream).map_or(&[][..], |report| report.samples.as_slice());
                let mut last = 0.0;
                let rates = samples.iter().map(|sample| {
                    let seconds = (sample.at - last).max(f64::MIN_POSITIVE);
                    last = sample.at;
                    ((sample.at * 10.0).round() / 10.0, sample.operations as f64 / seconds)
                });
                thin(rates.collect())
            }
        };
        if values.is_empty() {
            return;
        }
        let same =
            |line: &Line| (line.chart, line.server, &line.series) == (point.chart, server, &point.series);
        if !self.lines.iter().any(same) {
            let series = point.series.clone();
            self.lines.push(Line { chart: point.chart, server, series, points: Vec::new() });
        }
        let Some(line) = self.lines.iter_mut().find(|line| same(line)) else { return };
        for (x, y) in values {
            match line.points.iter_mut().find(|(known, _)| *known == x) {
                Some((_, rounds)) => rounds.push(y),
                None => line.points.push((x, vec![y])),
            }
        }
    }

    /// Puts all into the document.
    pub(super) fn fill(self, document: &mut Document, derived: &[Derived]) {
        let Self { notes, servers, mut rows, mut charts, lines } = self;
        for note in notes {
            if !document.notes.contains(&note) {
                document.notes.push(note);
            }
        }
        let derived: Vec<Row> = derived.iter().map(|derived| derive(derived, &rows, servers.len())).collect();
        rows.extend(derived);
        for mut line in lines {
            let Some(chart) = charts.iter_mut().find(|chart| chart.title == line.chart) else { continue };
            let server = servers.get(line.server).map_or("", String::as_str);
            let label =
                if line.series.is_empty() { server.to_owned() } else { format!("{server}, {}", line.series) };
            line.points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            let points = line.points.iter().map(|(x, rounds)| Point::of_rounds(*x, rounds)).collect();
            chart.push(label, line.server, points);
        }
        charts.retain(|chart| !chart.series.is_empty());
        // In the order of the servers, which their colours follow, not in the order of the last round.
        charts.iter_mut().for_each(|chart| chart.series.sort_by_key(|series| series.server));
        // A group's rows stand together: later stages may add to an earlier one's.
        let mut groups: Vec<String> = Vec::new();
        for row in &rows {
            if !groups.contains(&row.group) {
                groups.push(row.group.clone());
            }
        }
        // What comes a second time with lines stands behind all that comes once, though it is measured first.
        groups.sort_by_key(|group| group.ends_with("with loglevel stats"));
        rows.sort_by_key(|row| groups.iter().position(|group| *group == row.group));
        document.rows = rows;
        document.charts = charts;
    }
}

/// A row that another two make.
fn derive(derived: &Derived, rows: &[Row], servers: usize) -> Row {
    let mut row = Row {
        group: derived.group.into(),
        target: derived.target,
        note: derived.note.clone(),
        ..Row::new(derived.name.clone(), "x", derived.better)
    };
    let find = |name: &str| rows.iter().find(|row| row.name == name);
    let (Some(above), Some(below)) = (find(&derived.above), find(&derived.below)) else { return row };
    row.invalid = above.invalid.clone().or_else(|| below.invalid.clone());
    for server in 0..servers {
        let rounds = |row: &Row| row.figures.get(server).cloned().unwrap_or_default();
        for (above, below) in rounds(above).into_iter().zip(rounds(below)) {
            row.push(server, above.zip(below).map(|(above, below)| above / below));
        }
    }
    row
}

fn add_note(notes: &mut String, note: &str) {
    if !notes.contains(note) {
        if !notes.is_empty() {
            notes.push_str("; ");
        }
        notes.push_str(note);
    }
}

/// Whether the client was what was measured, for the numbers that suffer from it.
fn is_saturated(outcome: &Outcome, metric: Metric) -> bool {
    match metric {
        Metric::Rate(stream) | Metric::Latency(stream, _) | Metric::MeanLatency(stream) => {
            outcome.streams.get(stream).is_some_and(|report| report.saturated.is_some())
        }
        _ => false,
    }
}

/// Puts neighbours together until there are few enough.
fn thin(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let each = points.len().div_ceil(POINTS_MAX).max(1);
    let mean = |some: &[(f64, f64)]| some.iter().map(|(_, y)| y).sum::<f64>() / some.len() as f64;
    points.chunks(each).filter_map(|some| Some((some.first()?.0, mean(some)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Better;
    use crate::scenario::Size;

    #[test]
    fn lines_are_thinned_to_what_can_be_seen() {
        let points = |count: usize| (0..count).map(|at| (at as f64, 1.0)).collect::<Vec<_>>();
        for count in [0, 1, POINTS_MAX, POINTS_MAX + 1, 500] {
            let thinned = thin(points(count));
            assert!(thinned.len() <= POINTS_MAX, "{count}");
            assert_eq!(thinned.is_empty(), count == 0);
            assert!(thinned.iter().all(|(_, y)| *y == 1.0));
        }
    }

    #[test]
    fn derived_rows_divide_round_by_round() {
        let mut above = Row::new("a", "/s", Better::Higher);
        let mut below = Row::new("b", "/s", Better::Higher);
        for (one, other) in [(Some(6.0), Some(2.0)), (None, Some(2.0)), (Some(1.0), Some(0.0))] {
            above.push(0, one);
            below.push(0, other);
        }
        let derived = Derived {
            name: "c".into(),
            group: "g",
            above: "a".into(),
            below: "b".into(),
            better: Better::Higher,
            target: None,
            note: String::new(),
        };
        let row = derive(&derived, &[above, below], 1);
        assert_eq!(row.figures, [vec![Some(3.0), None, None]]);
    }

    #[test]
    fn a_wrong_answer_makes_its_rows_invalid_and_says_whose() {
        let scenario = Scenario::new("mail", Size::SMOKE).unwrap();
        let mut rows = Rows::new(&scenario, vec!["one".into(), "two".into()]);
        let step = scenario.stages[0].steps.iter().find(|step| step.key == "read").unwrap();
        let outcome = Outcome { invalid: Some("2 entries".into()), ..Outcome::default() };
        rows.take(step, 1, 2, &outcome, &StageFigures::default());
        let mut document = Document::default();
        rows.fill(&mut document, &[]);
        let invalid: Vec<&String> = document.rows.iter().filter_map(|row| row.invalid.as_ref()).collect();
        assert_eq!(invalid, ["two, round 3: 2 entries"]);
    }
}
