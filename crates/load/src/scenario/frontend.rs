//! The frontend: what a core gives, and what a second one adds.

use super::ask::{MAIL_BASE, mail_searches, mail_substrings};
use super::{Derived, Figure, Metric, Scenario, Size, Stage, Step, Stream, Work, mail};
use crate::report::{Axis, Better, Chart, ChartKind};

const RATE: &str = "Searches a second against connections, by cores";
const EFFICIENCY: &str = "Searches per CPU % against connections, by cores";
const CONNECTIONS: [usize; 4] = [1, 4, 16, 64];
/// Connections are spread evenly over the server's threads.
const SUBSTRING_CONNECTIONS: usize = 16;

pub(super) fn scenario(size: Size) -> Scenario {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let cores: Vec<usize> = [1, 2, 4, 8].into_iter().filter(|cores| *cores <= available.min(8)).collect();
    let stages = cores.iter().enumerate().map(|(position, cores)| Stage {
        name: format!("{cores} core{}", if *cores == 1 { "" } else { "s" }),
        directory: mail::directory(size.entries),
        cores: Some(*cores),
        log_level: None,
        keeps_data: position > 0,
        steps: CONNECTIONS
            .iter()
            .map(|connections| step(*cores, *connections, size))
            .chain([substrings(*cores, size)])
            .collect(),
    });
    let mut notes = vec![
        "Published for OpenLDAP in 2014, network limited: 127,000 searches a second at 1,250 % CPU, which is 101.6 \
         searches per CPU %."
            .into(),
    ];
    if available < 2 * cores.last().copied().unwrap_or(1) {
        notes.push(format!(
            "The client runs on the same {available} processors: where the server has them all, the client takes its \
             share, and the rate in wall time is not the server's alone. The rows per CPU % do not suffer from that, and \
             the searches by two substrings hardly do: next to nothing of them is the client's."
        ));
    }
    if cores.len() < 2 {
        notes.push("One processor: what a second one adds cannot be measured here.".into());
    }
    let axis = || Axis::linear("connections");
    Scenario {
        name: "frontend",
        title: "Frontend: cores and connections".into(),
        base: MAIL_BASE.into(),
        stages: stages.collect(),
        derived: derived(&cores),
        charts: vec![
            Chart::new(RATE, ChartKind::Lines, axis(), Axis::linear("searches a second")),
            Chart::new(EFFICIENCY, ChartKind::Lines, axis(), Axis::linear("searches per CPU %")),
        ],
        notes,
    }
}

fn name(cores: usize, connections: usize, metric: Metric) -> String {
    let per = if matches!(metric, Metric::Rate(_)) { "rate" } else { "per CPU %" };
    format!("search, {cores} core{}, {connections} connections, {per}", if cores == 1 { "" } else { "s" })
}

/// What a search by two substrings is called.
fn substrings_name(cores: usize) -> String {
    format!("two indexed substrings, {cores} core{}, rate", if cores == 1 { "" } else { "s" })
}

/// Searches that take the server long and the client no time: what a core adds shows in wall time.
fn substrings(cores: usize, size: Size) -> Step {
    let stream = Stream::reads(mail_substrings(size.entries), SUBSTRING_CONNECTIONS, size.seconds);
    let figure =
        Figure::new("Searches that are the server's work alone", substrings_name(cores), Metric::Rate(0));
    let title = format!("two substrings, {SUBSTRING_CONNECTIONS} connections");
    Step::new("substrings", title, Work::Drive(vec![stream])).show(figure)
}

fn step(cores: usize, connections: usize, size: Size) -> Step {
    let stream = Stream::reads(mail_searches(size.entries), connections, size.seconds).in_flight(4);
    let series = format!("{cores} core{}", if cores == 1 { "" } else { "s" });
    let title = format!("search, {connections} connections");
    let figure = |metric| {
        Figure::new("Searches, 4 in flight on each connection", name(cores, connections, metric), metric)
    };
    let efficiency = figure(Metric::PerCpuPercent);
    Step::new("search", title, Work::Drive(vec![stream]))
        .show(if connections == 16 { efficiency.goal(4.0) } else { efficiency })
        .show(figure(Metric::Rate(0)))
        .plot(RATE, series.clone(), connections as f64, Metric::Rate(0))
        .plot(EFFICIENCY, series, connections as f64, Metric::PerCpuPercent)
}

/// What each doubling of the cores brings, in rate and in efficiency.
fn derived(cores: &[usize]) -> Vec<Derived> {
    let connections = 64;
    let pairs = cores.iter().zip(cores.iter().skip(1));
    let rows = pairs.flat_map(|(few, many)| {
        let row = |what: &str, target, above, below, note| Derived {
            name: format!("{many} cores to {few}, {what}"),
            group: "Scaling",
            above,
            below,
            better: Better::Higher,
            target: Some(target),
            note,
        };
        let rates = [(Metric::Rate(0), "rate", 1.8), (Metric::PerCpuPercent, "efficiency", 0.9)];
        let searches = rates.map(|(metric, what, target)| {
            let (above, below) = (name(*many, connections, metric), name(*few, connections, metric));
            row(what, target, above, below, format!("{connections} connections"))
        });
        let (above, below) = (substrings_name(*many), substrings_name(*few));
        let note = "two indexed substrings: hardly anything of them is the client's".to_owned();
        searches.into_iter().chain([row("rate of long searches", 1.8, above, below, note)])
    });
    rows.collect()
}
