//! Side by side: a scenario carried out against each server in turn, on equal configuration and data, for several
//! rounds, with every answer checked.

mod folder;
mod measure;
mod outcome;
mod progress;
mod rows;
mod stage;

use std::path::PathBuf;

use anyhow::Context;

use crate::clock;
use crate::peer::{Guard, LogLevel, Peer, SyslogSink};
use crate::report::{Document, FORMAT, Machine, Server};
use crate::scenario::Scenario;
pub use progress::Progress;

use folder::Folder;
use progress::Plan;
use rows::Rows;
use stage::Bench;

/// The most rounds of one comparison.
pub const ROUNDS_MAX: u32 = 100;

/// What is compared, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who is measured; the first one is compared with each other.
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
    let mut rows = Rows::new(scenario, options.peers.iter().map(|peer| peer.name.clone()).collect());
    let done = run_rounds(options, scenario, guard, progress, &mut rows);
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
        notes: std::iter::once(log_note(options.log_level)).chain(scenario.notes.iter().cloned()).collect(),
        ..Document::default()
    }
}

fn run_rounds(
    options: &Options,
    scenario: &Scenario,
    guard: &Guard,
    progress: &mut dyn FnMut(&Progress<'_>),
    rows: &mut Rows,
) -> anyhow::Result<()> {
    options.check()?;
    let folder = Folder::create(&options.directory, options.keep, guard)?;
    folder.check_room(scenario, options)?;
    rows.notes.extend(folder.note());
    let sink = match options.log_level {
        LogLevel::Nothing => None,
        LogLevel::Stats => Some(SyslogSink::open(guard)?),
    };
    let mut lines = vec![0; options.peers.len()];
    let mut plan = Plan::new(scenario, options);
    plan.show(progress, "", "generating data");
    let contents = folder.write_contents(scenario, options.seed).context("cannot write the data")?;
    let mut benches: Vec<Bench<'_>> = options
        .peers
        .iter()
        .enumerate()
        .map(|(position, peer)| Bench::new(position, peer, options, guard, &folder, &contents))
        .collect();
    for round in 0..options.rounds {
        plan.begin_round(round);
        let forwards = round % 2 == 0;
        for turn in 0..benches.len() {
            let position = if forwards { turn } else { benches.len() - 1 - turn };
            let Some(bench) = benches.get_mut(position) else { continue };
            let before = sink.as_ref().map_or(0, SyslogSink::taken);
            bench
                .run(scenario, round, rows, &mut plan, progress)
                .with_context(|| format!("{}, round {}", bench.name(), round + 1))?;
            if let (Some(sink), Some(lines)) = (&sink, lines.get_mut(position)) {
                *lines += sink.taken() - before;
            }
        }
    }
    if sink.is_some() {
        let sent = options.peers.iter().zip(lines).map(|(peer, lines)| format!("{} {lines}", peer.name));
        rows.notes.push(format!("Lines sent to syslog: {}.", sent.collect::<Vec<_>>().join(", ")));
    }
    Ok(())
}

fn log_note(level: LogLevel) -> String {
    match level {
        LogLevel::Nothing => "`loglevel 0`: no server logs anything.",
        LogLevel::Stats => {
            "`loglevel stats`: every server sends a line for each operation and result to a syslog socket; they are taken and dropped."
        }
    }
    .to_owned()
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
