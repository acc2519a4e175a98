//! What one step came to, and the numbers that rows take from it.

use crate::drive::Report;
use crate::scenario::Metric;

/// The share of bunches that is "the first" and "the last".
const ENDS: usize = 10;

/// What one step came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) streams: Vec<Report>,
    /// Connections and what was reached with them.
    pub(super) steps: Vec<(usize, Report)>,
    pub(super) bunches: Vec<Bunch>,
    /// Bytes of the server's process at the end of the step.
    pub(super) resident: Option<u64>,
    /// Bytes of the databases at the end of the step.
    pub(super) disk: Option<u64>,
    /// Lines that the server sent to syslog meanwhile; absent if no program received them.
    pub(super) lines: Option<u64>,
    /// Why the figures are wrong.
    pub(super) invalid: Option<String>,
    /// Why there are no figures, or how to read them.
    pub(super) note: Option<String>,
}

/// The timing of a bunch of changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bunch {
    /// How many there were before it.
    pub(super) before: u64,
    pub(super) changes: u64,
    pub(super) seconds: f64,
    /// Of the server.
    pub(super) cpu_seconds: Option<f64>,
}

/// What is known of the database before the steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadFigures {
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) entries: u64,
}

/// What a stage's steps have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StageFigures {
    /// Absent when nothing was loaded in this round.
    pub(super) loaded: Option<LoadFigures>,
    /// Bytes of the databases after the last load.
    pub(super) loaded_disk: Option<u64>,
    pub(super) start_seconds: Option<f64>,
}

impl Outcome {
    /// The number that `metric` names; absent when it was not measured.
    pub(super) fn value(&self, metric: Metric, served: &StageFigures) -> Option<f64> {
        let stream = |position: usize| self.streams.get(position).filter(|report| report.operations > 0);
        let loaded = served.loaded;
        match metric {
            Metric::Rate(position) => Some(stream(position)?.rate()),
            Metric::BestRate => self.steps.iter().map(|(_, report)| report.rate()).reduce(f64::max),
            Metric::PerCpuSecond => self.per_cpu_second(),
            Metric::CpuMicroseconds => Some(1e6 / self.per_cpu_second()?),
            Metric::PerCpuPercent => Some(self.per_cpu_second()? / 100.0),
            Metric::Latency(position, quantile) => {
                Some(stream(position)?.latency_us.value_at_quantile(quantile) as f64)
            }
            Metric::MeanLatency(position) => Some(stream(position)?.latency_us.mean()),
            Metric::Resident => self.resident.map(|bytes| bytes as f64),
            Metric::Disk => self.disk.map(|bytes| bytes as f64),
            Metric::LoadedDisk => loaded.and(served.loaded_disk).map(|bytes| bytes as f64),
            Metric::DiskGrowth => Some(self.disk? as f64 / positive(loaded.and(served.loaded_disk)? as f64)?),
            Metric::LoadSeconds => Some(loaded?.seconds),
            Metric::LoadCpuSeconds => positive(loaded?.cpu_seconds),
            Metric::LoadRate => Some(loaded?.entries as f64 / positive(loaded?.seconds)?),
            Metric::StartSeconds => served.start_seconds,
            Metric::BunchRate => {
                let changes: u64 = self.bunches.iter().map(|bunch| bunch.changes).sum();
                let seconds = positive(self.bunches.iter().map(|bunch| bunch.seconds).sum())?;
                (changes > 0).then_some(changes as f64 / seconds)
            }
            Metric::LinesPerOperation => {
                let operations: u64 = self.streams.iter().map(|report| report.operations).sum();
                Some(self.lines? as f64 / positive(operations as f64)?)
            }
            Metric::BunchGrowth => self.growth(|bunch| Some(bunch.seconds)),
            Metric::BunchCpuGrowth => self.growth(|bunch| bunch.cpu_seconds),
        }
    }

    fn per_cpu_second(&self) -> Option<f64> {
        let operations: u64 = self.streams.iter().map(|report| report.operations).sum();
        // Streams at the same time see the same process: its use is not their sum.
        let cpu = self.streams.iter().filter_map(|report| report.server_cpu_seconds).fold(0.0, f64::max);
        Some(operations as f64 / positive(cpu)?)
    }

    fn growth(&self, cost: impl Fn(&Bunch) -> Option<f64>) -> Option<f64> {
        let count = self.bunches.len().div_ceil(ENDS);
        if self.bunches.len() < 2 * count {
            return None;
        }
        let sum = |bunches: &[Bunch]| bunches.iter().map(&cost).sum::<Option<f64>>();
        let first = sum(self.bunches.get(..count)?)?;
        let last = sum(self.bunches.get(self.bunches.len() - count..)?)?;
        Some(last / positive(first)?)
    }
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bunches_compare_their_ends() {
        let bunch = |seconds| Bunch { changes: 100, seconds, ..Bunch::default() };
        let bunches: Vec<Bunch> = (0..20).map(|at| bunch(if at < 10 { 1.0 } else { 3.0 })).collect();
        let outcome = Outcome { bunches, ..Outcome::default() };
        let value = |metric| outcome.value(metric, &StageFigures::default());
        assert_eq!(value(Metric::BunchGrowth), Some(3.0));
        assert_eq!(value(Metric::BunchRate), Some(50.0));
        assert_eq!(value(Metric::BunchCpuGrowth), None, "no process was watched");
        assert_eq!(Outcome::default().value(Metric::BunchRate, &StageFigures::default()), None);
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let outcome = Outcome { disk: Some(30), ..Outcome::default() };
        let loaded = LoadFigures { seconds: 2.0, cpu_seconds: 0.0, entries: 10 };
        let served = StageFigures { loaded: Some(loaded), loaded_disk: Some(20), start_seconds: None };
        for (metric, expected) in [
            (Metric::DiskGrowth, Some(1.5)),
            (Metric::Disk, Some(30.0)),
            (Metric::LoadRate, Some(5.0)),
            (Metric::LoadCpuSeconds, None),
            (Metric::Rate(0), None),
            (Metric::PerCpuSecond, None),
            (Metric::Latency(0, 0.5), None),
            (Metric::Resident, None),
            (Metric::LoadedDisk, Some(20.0)),
        ] {
            assert_eq!(outcome.value(metric, &served), expected, "{metric:?}");
        }
    }

    #[test]
    fn a_round_without_a_load_says_nothing_of_the_loaded_size() {
        let outcome = Outcome { disk: Some(30), ..Outcome::default() };
        let served = StageFigures { loaded: None, loaded_disk: Some(20), start_seconds: None };
        assert_eq!(outcome.value(Metric::LoadedDisk, &served), None);
        assert_eq!(outcome.value(Metric::DiskGrowth, &served), None);
        assert_eq!(outcome.value(Metric::Disk, &served), Some(30.0));
    }
}
