//! Side by side: a scenario carried out against each server in turn, on equal configuration and data, for several
//! rounds, with every answer checked.

mod beside_redis;
mod folder;
mod measure;
mod outcome;
mod progress;
mod rows;
mod stage;

use std::path::PathBuf;

use anyhow::Context;

use crate::clock;
use crate::peer::{Access, Guard, LogLevel, Peer, Redis, SyslogSink};
use crate::report::{Document, FORMAT, Machine, Server};
use crate::scenario::Scenario;
pub use progress::Progress;

use beside_redis::BesideRedis;
use folder::Folder;
use progress::Plan;
use rows::Rows;
use stage::Bench;

/// The most rounds of one comparison.
pub const ROUNDS_MAX: u32 = 100;

/// What is compared, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers that are measured; the first one is compared with each other.
    pub peers: Vec<Peer>,
    /// 1 to [`ROUNDS_MAX`]; odd ones go through the peers forwards, even ones backwards.
    pub rounds: u32,
    /// Seconds that one figure is measured, for the report's head; the scenario was made with it.
    pub seconds: f64,
    pub entries: u64,
    /// Where a folder for LDIF, databases and logs is made.
    pub directory: PathBuf,
    /// That folder stays.
    pub keep: bool,
    /// Where `core.schema` and its kin lie.
    pub schema: PathBuf,
    /// A fixed port for all servers instead of a free one each.
    pub port: Option<u16>,
    /// What every server that is started here logs.
    pub log_level: LogLevel,
    /// Reads are measured a second time, with [`LogLevel::Stats`], where lines can be taken.
    pub also_stats: bool,
    /// Searches are set beside a GET of as many bytes from this Redis.
    pub redis: Option<Redis>,
    /// Loads in the first round alone; later ones go on with the data as they are.
    pub load_once: bool,
    /// The same seed gives the same data and the same requests.
    pub seed: u64,
    /// The command that repeats it, for the report.
    pub command: String,
}

/// A comparison that did not come to its end, with what was measured until then.
#[derive(Debug)]
pub struct Broken {
    pub error: anyhow::Error,
    pub document: Box<Document>,
}

/// Carries out `scenario`. Every server that it starts and the folder that it makes are known to `guard`, and gone when
/// this returns.
///
/// # Errors
/// Too little room, a server that cannot be loaded or started, or that dies: with the rows so far.
pub fn run(
    options: &Options,
    scenario: &Scenario,
    guard: &Guard,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Document, Box<Broken>> {
    let (scenario, sink) = match with_lines(options, scenario, guard) {
        Ok(prepared) => prepared,
        Err(error) => {
            return Err(Box::new(Broken { error, document: Box::new(document(options, scenario)) }));
        }
    };
    let scenario = &scenario;
    let mut rows = Rows::new(scenario, options.peers.iter().map(|peer| peer.name.clone()).collect());
    let done = run_rounds(options, scenario, guard, sink.as_ref(), progress, &mut rows);
    let mut document = document(options, scenario);
    rows.fill(&mut document, &scenario.derived);
    match done {
        Ok(()) => Ok(document),
        Err(error) => {
            document.notes.push(format!("Broken off: {error:#}"));
            Err(Box::new(Broken { error, document: Box::new(document) }))
        }
    }
}

/// The scenario with its rows of `stats` lines, and the receiver of the lines. If those rows come beside others and no
/// receiver is possible, they are left out, and a note says why.
fn with_lines(
    options: &Options,
    scenario: &Scenario,
    guard: &Guard,
) -> anyhow::Result<(Scenario, Option<SyslogSink>)> {
    let mut scenario = scenario.clone();
    if options.log_level == LogLevel::Stats {
        return Ok((scenario, Some(SyslogSink::open(guard)?)));
    }
    if !options.also_stats {
        return Ok((scenario, None));
    }
    match SyslogSink::open(guard) {
        Ok(sink) => {
            scenario.add_stats_lines();
            Ok((scenario, Some(sink)))
        }
        Err(error) => {
            scenario.notes.push(format!("Rows with `loglevel stats` are left out: {error:#}."));
            Ok((scenario, None))
        }
    }
}

fn document(options: &Options, scenario: &Scenario) -> Document {
    let servers = options.peers.iter().map(|peer| Server {
        name: peer.name.clone(),
        version: peer.version.clone(),
        flags: peer.flags(),
    });
    Document {
        format: FORMAT,
        title: scenario.title.clone(),
        scenario: scenario.name.into(),
        entries: options.entries,
        rounds: options.rounds,
        seconds: options.seconds,
        taken: clock::date(),
        command: options.command.clone(),
        machine: Machine::here(),
        servers: servers.collect(),
        notes: log_notes(options, scenario).chain(scenario.notes.iter().cloned()).collect(),
        ..Document::default()
    }
}

fn run_rounds(
    options: &Options,
    scenario: &Scenario,
    guard: &Guard,
    sink: Option<&SyslogSink>,
    progress: &mut dyn FnMut(&Progress<'_>),
    rows: &mut Rows,
) -> anyhow::Result<()> {
    options.check()?;
    let folder = Folder::create(&options.directory, options.keep, guard)?;
    folder.check_room(scenario, options)?;
    rows.notes.extend(folder.note());
    let mut beside_redis = options.redis.as_ref().map(|redis| (redis, BesideRedis::new(scenario)));
    let mut plan = Plan::new(scenario, options);
    plan.show(progress, "", "generating data");
    let contents = folder.write_contents(scenario, options.seed).context("cannot write the data")?;
    let mut benches: Vec<Bench<'_>> = options
        .peers
        .iter()
        .enumerate()
        .map(|(position, peer)| Bench::new(position, peer, options, guard, &folder, &contents, sink))
        .collect();
    for round in 0..options.rounds {
        plan.begin_round(round);
        if let Some((redis, beside)) = &mut beside_redis {
            plan.show(progress, "Redis", "GETs");
            beside
                .take(redis, options, guard, &folder)
                .with_context(|| format!("Redis, round {}", round + 1))?;
        }
        let forwards = round % 2 == 0;
        for turn in 0..benches.len() {
            let position = if forwards { turn } else { benches.len() - 1 - turn };
            let Some(bench) = benches.get_mut(position) else { continue };
            bench
                .run(scenario, round, rows, &mut plan, progress)
                .with_context(|| format!("{}, round {}", bench.name(), round + 1))?;
        }
    }
    if sink.is_some() {
        let levels = [Some(LogLevel::Stats), options.also_stats.then_some(LogLevel::Nothing)];
        for level in levels.into_iter().flatten() {
            let sent = benches.iter().map(|bench| format!("{} {}", bench.name(), bench.lines(level)));
            let sent = sent.collect::<Vec<_>>().join(", ");
            rows.notes.push(format!("Lines sent to syslog with `loglevel {}`: {sent}.", level.word()));
        }
    }
    if let Some((redis, beside)) = &beside_redis {
        beside.show(redis, rows);
    }
    Ok(())
}

/// What the servers log, and where to.
fn log_notes(options: &Options, scenario: &Scenario) -> impl Iterator<Item = String> + use<> {
    let has_lines = scenario.stages.iter().any(|stage| stage.log_level == Some(LogLevel::Stats));
    let more = has_lines.then(|| log_note(LogLevel::Stats, "Rows that name stats lines: "));
    let given = options.peers.iter().any(|peer| matches!(peer.access, Access::Given(_)));
    let given = given.then(|| "What a server that was given by its URL logs is not known.".to_owned());
    std::iter::once(log_note(options.log_level, "")).chain(more).chain(given)
}

fn log_note(level: LogLevel, which: &str) -> String {
    let text = match level {
        LogLevel::Nothing => "`loglevel 0`: no server logs anything.",
        LogLevel::Stats => {
            "`loglevel stats`: every server sends a line for each operation and result to a syslog socket; they are taken and dropped."
        }
    };
    format!("{which}{text}")
}

impl Options {
    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            (1..=ROUNDS_MAX).contains(&self.rounds),
            "{} rounds: 1 to {ROUNDS_MAX} can be run",
            self.rounds
        );
        anyhow::ensure!(
            self.seconds > 0.0 && self.seconds <= 86_400.0,
            "{} seconds a figure: more than 0, at most a day",
            self.seconds
        );
        anyhow::ensure!(!self.peers.is_empty(), "no server is to be measured");
        Ok(())
    }
}
