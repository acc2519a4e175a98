//! The most that a server gives: clients are added step by step until that brings no more.

use super::{Options, Report, Workload};

/// How many steps without gain in a row end the search.
pub const STEPS_WITHOUT_GAIN: usize = 3;
/// A rate must be higher than the best one by this factor to count as a gain: less is noise.
pub const GAIN_MIN: f64 = 1.01;

/// How the number of connections grows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Growth {
    /// 1, 2, 4, 8 ... times the first.
    Double,
    /// By so many each step.
    Add(usize),
}

/// Where the search starts, how it goes on and where it ends at the latest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Steps {
    /// Connections of the first step, at least 1.
    pub first: usize,
    pub growth: Growth,
    /// The most connections that are tried.
    pub max: usize,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Optimum {
    /// Connections and what was measured with them, in the order in which they were tried; never empty.
    pub steps: Vec<(usize, Report)>,
    /// The index in `steps` of the highest rate.
    pub best: usize,
}

impl Optimum {
    /// Connections and report of the highest rate.
    pub fn best(&self) -> Option<&(usize, Report)> {
        self.steps.get(self.best)
    }
}

impl Default for Steps {
    fn default() -> Self {
        Self { first: 1, growth: Growth::Double, max: 1_024 }
    }
}

impl Steps {
    /// The number after `connections`; none past the last.
    fn after(&self, connections: usize) -> Option<usize> {
        let next = match self.growth {
            Growth::Double => connections.checked_mul(2),
            Growth::Add(count) => connections.checked_add(count),
        };
        next.filter(|next| *next <= self.max && *next > connections)
    }
}

/// Runs `workload` with more and more connections until [`STEPS_WITHOUT_GAIN`] steps in a row bring no gain.
///
/// # Errors
/// Those of [`run`](super::run), with the number of connections.
pub fn optimize(options: &Options, workload: &Workload, steps: Steps) -> anyhow::Result<Optimum> {
    let mut workload = workload.clone();
    optimize_by(steps, |connections| {
        use anyhow::Context;
        let threads = options.threads.min(connections);
        let options = Options { connections, threads, ..options.clone() };
        let report =
            super::run(&options, &workload).with_context(|| format!("with {connections} connections"))?;
        workload.sequence_start = report.sequence_end.max(workload.sequence_start);
        Ok(report)
    })
}

/// The same with what a step does as a parameter, so that callers may show progress.
///
/// # Errors
/// Those of `measure`, and a first step of 0 connections.
pub fn optimize_by(
    steps: Steps,
    mut measure: impl FnMut(usize) -> anyhow::Result<Report>,
) -> anyhow::Result<Optimum> {
    anyhow::ensure!(steps.first > 0, "the first step has no connection");
    anyhow::ensure!(
        steps.first <= steps.max,
        "the first step, {}, is past the last, {}",
        steps.first,
        steps.max
    );
    let mut found = Optimum { steps: Vec::new(), best: 0 };
    let (mut best, mut without_gain) = (0.0, 0);
    let mut next = Some(steps.first);
    while let Some(connections) = next {
        let report = measure(connections)?;
        let rate = report.rate();
        found.steps.push((connections, report));
        if rate > best * GAIN_MIN {
            without_gain = 0;
        } else {
            without_gain += 1;
        }
        if rate > best {
            best = rate;
            found.best = found.steps.len() - 1;
        }
        next = if without_gain < STEPS_WITHOUT_GAIN { steps.after(connections) } else { None };
    }
    Ok(found)
}
