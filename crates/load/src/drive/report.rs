//! What was measured.

use hdrhistogram::Histogram;

/// Latencies above an hour are counted as an hour.
pub(super) const LATENCY_US_MAX: u64 = 3_600_000_000;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    pub operations: u64,
    pub seconds: f64,
    /// Answers with a result code other than success (0), compareFalse (5) and compareTrue (6), by code.
    pub failures: Vec<(u32, u64)>,
    pub entries: u64,
    /// Microseconds from the moment the request was made, or was due with a rate, to the moment its result was read.
    pub latency_us: Histogram<u64>,
    /// One for each step of the workload that has a weight, in its order.
    pub by_operation: Vec<OperationReport>,
    /// One for each full [`Options::sample_every`](super::Options::sample_every).
    pub samples: Vec<Sample>,
    /// Results that are not what their step expects: a wrong measurement, whatever its rate.
    pub unexpected: Vec<Unexpected>,
    /// CPU seconds (user and system) of the server in the measured time.
    pub server_cpu_seconds: Option<f64>,
    /// Resident bytes of the server at the end.
    pub server_resident: Option<u64>,
    /// Bytes that the watched files take on the disk at the end.
    pub disk_bytes: Option<u64>,
    /// CPU seconds (user and system) of the driver's threads in the measured time.
    pub generator_cpu_seconds: f64,
    /// Why these are the driver's limits rather than the server's, where they are: its threads had no CPU time left,
    /// or requests could not be sent at the demanded rate.
    pub saturated: Option<String>,
    pub lag: Option<Lag>,
    /// The highest number that `{s}` took: a further run on the same data starts after it.
    pub sequence_end: u64,
}

/// One step of the workload.
#[derive(Clone, Debug)]
pub struct OperationReport {
    /// The step's name: `search`, `modify` or what the workload calls it.
    pub name: String,
    pub operations: u64,
    /// Those whose result code was other than success (0), compareFalse (5) and compareTrue (6).
    pub failures: u64,
    pub entries: u64,
    pub latency_us: Histogram<u64>,
}

/// What happened in one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds from the start of the measurement to the end of this interval.
    pub at: f64,
    /// Answered within this interval.
    pub operations: u64,
    /// Of the answers within this interval; none without answers.
    pub p99_us: Option<u64>,
    /// CPU seconds of the server within this interval.
    pub server_cpu_seconds: Option<f64>,
    /// At the end of this interval.
    pub server_resident: Option<u64>,
    /// At the end of this interval.
    pub disk_bytes: Option<u64>,
}

/// Answers of one kind that a step does not expect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unexpected {
    /// The step's name.
    pub step: String,
    /// What came: `2 entries instead of 1`, `result 32`.
    pub what: String,
    pub count: u64,
}

/// How far a replica was behind, by contextCSN.
#[derive(Clone, Debug, PartialEq)]
pub struct Lag {
    /// (seconds from the start, seconds behind).
    pub samples: Vec<(f64, f64)>,
    pub max_seconds: f64,
    /// Seconds after the end of the load until both had the same contextCSN; none if they did not within the time that
    /// the watcher waits.
    pub caught_up_after: Option<f64>,
}

impl Report {
    /// Operations per second of wall time.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Operations per second of the server's CPU time.
    pub fn per_cpu_second(&self) -> Option<f64> {
        self.server_cpu_seconds.filter(|cpu| *cpu > 0.0).map(|cpu| self.operations as f64 / cpu)
    }

    /// Whether every answer was what its step expects.
    pub const fn is_valid(&self) -> bool {
        self.unexpected.is_empty()
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "operations": self.operations,
            "seconds": self.seconds,
            "per_second": self.rate(),
            "per_cpu_second": self.per_cpu_second(),
            "entries": self.entries,
            "failures": self.failures,
            "unexpected": self.unexpected.iter().map(|unexpected| serde_json::json!({
                "step": unexpected.step, "what": unexpected.what, "count": unexpected.count,
            })).collect::<Vec<_>>(),
            "saturated": self.saturated,
            "latency_us": latency_json(&self.latency_us),
            "by_operation": self.by_operation.iter().map(|operation| serde_json::json!({
                "name": operation.name,
                "operations": operation.operations,
                "failures": operation.failures,
                "entries": operation.entries,
                "latency_us": latency_json(&operation.latency_us),
            })).collect::<Vec<_>>(),
            "samples": self.samples.iter().map(Sample::to_json).collect::<Vec<_>>(),
            "server_cpu_seconds": self.server_cpu_seconds,
            "server_resident_bytes": self.server_resident,
            "disk_bytes": self.disk_bytes,
            "generator_cpu_seconds": self.generator_cpu_seconds,
            "lag": self.lag.as_ref().map(|lag| serde_json::json!({
                "max_seconds": lag.max_seconds,
                "caught_up_after_seconds": lag.caught_up_after,
                "samples": lag.samples,
            })),
            "sequence_end": self.sequence_end,
        })
    }
}

impl Sample {
    fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "at_seconds": self.at,
            "operations": self.operations,
            "p99_us": self.p99_us,
            "server_cpu_seconds": self.server_cpu_seconds,
            "server_resident_bytes": self.server_resident,
            "disk_bytes": self.disk_bytes,
        })
    }
}

fn latency_json(latency: &Histogram<u64>) -> serde_json::Value {
    serde_json::json!({
        "p50": latency.value_at_quantile(0.5),
        "p90": latency.value_at_quantile(0.9),
        "p99": latency.value_at_quantile(0.99),
        "p999": latency.value_at_quantile(0.999),
        "max": latency.max(),
        "mean": latency.mean(),
    })
}

/// An empty histogram of microseconds.
pub(super) fn empty_latency() -> Histogram<u64> {
    // From a microsecond to an hour, three digits: both are in the range that the histogram takes.
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)
        .unwrap_or_else(|_| unreachable!("the bounds and the precision are in range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_recorded_as_they_are() {
        let mut latency = empty_latency();
        for micros in [3, 80_000, LATENCY_US_MAX * 2] {
            latency.saturating_record(micros);
        }
        let at = |quantile| latency.value_at_quantile(quantile);
        assert!((79_900..80_100).contains(&at(0.5)), "{}", at(0.5));
        assert!(latency.equivalent(latency.max(), LATENCY_US_MAX));
    }
}
