//! Rows that set searches beside a GET of as many bytes from Redis: what a request over a socket costs on this machine
//! when next to nothing is done for it.

use anyhow::Context;

use super::Options;
use super::folder::Folder;
use super::rows::Rows;
use crate::peer::{Guard, Redis, Shape};
use crate::report::{Better, Row, count};
use crate::scenario::{Metric, Scenario, Work};

const GROUP: &str = "Searches to GETs of Redis, the least that a request over a socket costs here";
/// Connections, requests in flight on each, and the share of Redis's rate that a search is to reach.
const TARGETS: [(usize, usize, f64); 2] = [(16, 1, 0.6), (16, 8, 0.35)];

/// Redis's figures for the shapes of a scenario's searches.
#[derive(Debug)]
pub(super) struct BesideRedis {
    marks: Vec<Mark>,
    /// Of each value: as many as an entry has.
    bytes: u64,
}

#[derive(Debug)]
struct Mark {
    /// The row of searches that is set beside it.
    row: String,
    shape: Shape,
    seconds: f64,
    /// GETs a second of Redis's CPU time, by round.
    figures: Vec<Option<f64>>,
}

impl BesideRedis {
    /// The rows of searches in the scenario that say how many a CPU second gives.
    pub(super) fn new(scenario: &Scenario) -> Self {
        let mut marks = Vec::new();
        for stage in scenario.stages.iter().filter(|stage| stage.log_level.is_none()) {
            for step in stage.steps.iter().filter(|step| step.key == "search") {
                let Work::Drive(streams) = &step.work else { continue };
                let figure = step.figures.iter().find(|figure| figure.metric == Metric::PerCpuSecond);
                let ([stream], Some(figure)) = (streams.as_slice(), figure) else { continue };
                let shape = Shape { connections: stream.connections, in_flight: stream.in_flight };
                let row = figure.name.clone();
                marks.push(Mark { row, shape, seconds: stream.seconds, figures: Vec::new() });
            }
        }
        let directories = scenario.stages.iter().flat_map(|stage| &stage.directory.databases);
        let bytes = directories.map(|(_, content)| content.bytes_each()).next().unwrap_or(0);
        Self { marks, bytes }
    }

    /// Takes every figure once.
    pub(super) fn take(
        &mut self,
        redis: &Redis,
        options: &Options,
        guard: &Guard,
        folder: &Folder,
    ) -> anyhow::Result<()> {
        if self.marks.is_empty() {
            return Ok(());
        }
        let folder = folder.path().join("redis");
        let filled = redis.fill(guard, &folder, options.entries, self.bytes as usize)?;
        for mark in &mut self.marks {
            let figure =
                filled.gets(mark.shape, mark.seconds).with_context(|| format!("beside {:?}", mark.row))?;
            mark.figures.push(figure);
        }
        Ok(())
    }

    /// Adds a row for each figure: every server's rate divided by Redis's of the same round.
    pub(super) fn show(&self, redis: &Redis, rows: &mut Rows) {
        for mark in &self.marks {
            let Some(searches) = rows.find(&mark.row) else { continue };
            let mut row = Row {
                group: GROUP.into(),
                note: self.note(mark, redis),
                target: TARGETS
                    .into_iter()
                    .find(|(connections, in_flight, _)| {
                        (*connections, *in_flight) == (mark.shape.connections, mark.shape.in_flight)
                    })
                    .map(|(_, _, target)| target),
                invalid: searches.invalid.clone(),
                ..Row::new(format!("{}, to Redis", mark.row), "x", Better::Higher)
            };
            for (server, figures) in searches.figures.iter().enumerate() {
                for (figure, least) in figures.iter().zip(&mark.figures) {
                    row.push(server, figure.zip(*least).map(|(figure, least)| figure / least));
                }
            }
            rows.add(row);
        }
    }

    fn note(&self, mark: &Mark, redis: &Redis) -> String {
        let figures = mark.figures.iter().map(|figure| figure.map_or_else(|| "-".to_owned(), count));
        format!(
            "Redis {}: {} GETs of {} bytes per CPU-s",
            redis.version,
            figures.collect::<Vec<_>>().join(", "),
            count(self.bytes as f64)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Document;
    use crate::scenario::Size;

    #[test]
    fn searches_are_divided_by_the_figure_of_their_shape_and_round() {
        let mut scenario = Scenario::new("mail", Size::SMOKE).unwrap();
        scenario.add_stats_lines();
        let mut beside = BesideRedis::new(&scenario);
        let shapes: Vec<(usize, usize)> =
            beside.marks.iter().map(|mark| (mark.shape.connections, mark.shape.in_flight)).collect();
        assert_eq!(
            shapes,
            [(16, 1), (16, 8), (1, 1), (64, 1), (128, 1)],
            "once each, without those of stats lines"
        );
        let mut rows = Rows::new(&scenario, vec!["one".into(), "two".into()]);
        let searches = rows.find_mut("search, 16 connections").unwrap();
        for (server, figure) in [(0, Some(60.0)), (0, Some(50.0)), (1, Some(20.0)), (1, None)] {
            searches.push(server, figure);
        }
        beside.marks[0].figures = vec![Some(100.0), Some(200.0)];
        let redis = Redis { path: "/redis".into(), version: "7".into() };
        beside.show(&redis, &mut rows);
        let mut document = Document::default();
        rows.fill(&mut document, &[]);
        let row = document.rows.iter().find(|row| row.name == "search, 16 connections, to Redis").unwrap();
        assert_eq!(row.figures, [vec![Some(0.6), Some(0.25)], vec![Some(0.2), None]]);
        assert_eq!((row.target, row.unit.as_str()), (Some(0.6), "x"));
        assert!(row.note.contains("Redis 7: 100, 200 GETs of 2,100 bytes"), "{}", row.note);
    }

    #[test]
    fn a_scenario_without_searches_asks_redis_nothing() {
        let mut scenario = Scenario::new("mail", Size::SMOKE).unwrap();
        scenario.keep(&["modify".to_owned()]).unwrap();
        assert!(BesideRedis::new(&scenario).marks.is_empty());
    }
}
