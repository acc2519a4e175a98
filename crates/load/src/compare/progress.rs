//! How far a comparison is, and how long it will go on.

use std::time::Instant;

use super::Options;
use crate::clock;
use crate::scenario::{Scenario, Stage};

/// A guess at how many entries a second are loaded, until the first load is over.
const LOADED_A_SECOND: f64 = 20_000.0;
/// Seconds that starting, counting and stopping take beside the figures.
const AROUND: f64 = 0.5;

/// Where the comparison is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress<'a> {
    /// From 1.
    pub round: u32,
    pub rounds: u32,
    /// Empty when no server is concerned.
    pub server: &'a str,
    pub what: &'a str,
    /// 0 to 1.
    pub done: f64,
    pub seconds_left: f64,
}

/// What is still to be done. A part's cost is a guess at first and the last round's later.
#[derive(Debug)]
pub(super) struct Plan {
    /// By server, stage and part; the first part of a stage is its load and start.
    costs: Vec<Vec<Vec<f64>>>,
    done: Vec<Vec<Vec<bool>>>,
    /// Stages that load.
    loads: usize,
    round: u32,
    rounds: u32,
    began: Instant,
    part_began: Instant,
}

impl Plan {
    pub(super) fn new(scenario: &Scenario, options: &Options) -> Self {
        let stage = |stage: &Stage| {
            let leaves: u64 = stage.directory.databases.iter().map(|(_, content)| content.leaves()).sum();
            let load = if stage.keeps_data { AROUND } else { AROUND + leaves as f64 / LOADED_A_SECOND };
            std::iter::once(load).chain(stage.steps.iter().map(crate::scenario::Step::seconds)).collect()
        };
        let one: Vec<Vec<f64>> = scenario.stages.iter().map(stage).collect();
        let done = one.iter().map(|stage| vec![false; stage.len()]).collect();
        let servers = options.peers.len();
        let now = clock::now();
        Self {
            costs: vec![one; servers],
            done: vec![done; servers],
            loads: scenario.stages.iter().filter(|stage| !stage.keeps_data).count(),
            round: 0,
            rounds: options.rounds,
            began: now,
            part_began: now,
        }
    }

    pub(super) fn begin_round(&mut self, round: u32) {
        self.round = round;
        self.done.iter_mut().flatten().flatten().for_each(|done| *done = false);
    }

    /// How often a round loads.
    pub(super) const fn loads(&self) -> usize {
        self.loads
    }

    pub(super) fn begin_part(&mut self) {
        self.part_began = clock::now();
    }

    /// Notes what a part took.
    pub(super) fn end_part(&mut self, server: usize, stage: usize, part: usize) {
        let cost =
            self.costs.get_mut(server).and_then(|all| all.get_mut(stage)).and_then(|all| all.get_mut(part));
        if let Some(cost) = cost {
            *cost = self.part_began.elapsed().as_secs_f64();
        }
        let done =
            self.done.get_mut(server).and_then(|all| all.get_mut(stage)).and_then(|all| all.get_mut(part));
        if let Some(done) = done {
            *done = true;
        }
    }

    pub(super) fn seconds_left(&self) -> f64 {
        let costs = || self.costs.iter().flatten().flatten();
        let done = self.done.iter().flatten().flatten();
        let this: f64 = costs().zip(done).filter(|(_, done)| !**done).map(|(cost, _)| cost).sum();
        let rounds = self.rounds.saturating_sub(self.round + 1);
        this + f64::from(rounds) * costs().sum::<f64>()
    }

    pub(super) fn show(&self, progress: &mut dyn FnMut(&Progress<'_>), server: &str, what: &str) {
        let (left, gone) = (self.seconds_left(), self.began.elapsed().as_secs_f64());
        progress(&Progress {
            round: self.round + 1,
            rounds: self.rounds,
            server,
            what,
            done: gone / (gone + left).max(f64::MIN_POSITIVE),
            seconds_left: left,
        });
    }
}
