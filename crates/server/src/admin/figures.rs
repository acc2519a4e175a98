//! The counters of the last minutes, for the charts.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::server::Server;
use crate::statistics::OperationKind;
use crate::statistics::latency::BOUNDS;

/// Samples kept: ten minutes.
const SAMPLES_MAX: usize = 300;

/// Operations whose times are shown together.
const GROUPS: [(&str, &[OperationKind]); 3] = [
    ("search", &[OperationKind::Search, OperationKind::Compare]),
    ("change", &[OperationKind::Add, OperationKind::Modify, OperationKind::ModifyDn, OperationKind::Delete]),
    ("bind", &[OperationKind::Bind]),
];

/// Cumulated counters at moments in even distances; the browser subtracts.
#[derive(Debug, Default)]
pub(super) struct Samples {
    kept: VecDeque<Sample>,
    next: u64,
}

#[derive(Debug)]
struct Sample {
    number: u64,
    /// Milliseconds since 1970.
    at: i64,
    operations: Vec<u64>,
    latencies: Vec<Vec<u64>>,
    connections: usize,
    waiting: u64,
    /// Commits, and the changes that were in them.
    groups: u64,
    changes: u64,
    entries_sent: u64,
    bytes_sent: u64,
}

impl Samples {
    /// Takes one.
    pub(super) fn take(&mut self, server: &Server) {
        let statistics = &server.statistics;
        let group = |kinds: &[OperationKind]| {
            let mut sum = vec![0; BOUNDS.len() + 1];
            for durations in kinds.iter().map(|kind| statistics.latency(*kind)) {
                sum.iter_mut().zip(durations.by_bounds(&BOUNDS)).for_each(|(sum, count)| *sum += count);
            }
            sum
        };
        let databases = server.databases().stored_figures();
        let sample = Sample {
            number: self.next,
            at: server.now().0 / 1000,
            operations: OperationKind::ALL.iter().map(|(kind, _)| statistics.initiated(*kind)).collect(),
            latencies: GROUPS.iter().map(|(_, kinds)| group(kinds)).collect(),
            connections: statistics.current_connections(),
            waiting: databases.iter().map(|database| database.writes_waiting).sum(),
            groups: databases.iter().map(|database| database.writes.groups).sum(),
            changes: databases.iter().map(|database| database.writes.changes).sum(),
            entries_sent: statistics.sum(|counters| &counters.entries_sent),
            bytes_sent: statistics.sum(|counters| &counters.bytes_sent),
        };
        self.next += 1;
        if self.kept.len() == SAMPLES_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(sample);
    }

    /// Those from number `since` on.
    pub(super) fn to_json(&self, since: u64) -> Value {
        let samples = self.kept.iter().filter(|sample| sample.number >= since).map(Sample::to_json);
        json!({
            "next": self.next,
            "operations": OperationKind::ALL.iter().map(|(_, name)| *name).collect::<Vec<_>>(),
            "groups": GROUPS.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            "bounds": BOUNDS.iter().map(|nanoseconds| *nanoseconds as f64 / 1e6).collect::<Vec<_>>(),
            "samples": samples.collect::<Vec<_>>(),
        })
    }
}

impl Sample {
    fn to_json(&self) -> Value {
        json!({
            "at": self.at,
            "operations": self.operations,
            "latencies": self.latencies,
            "connections": self.connections,
            "waiting": self.waiting,
            "groups": self.groups,
            "changes": self.changes,
            "entries": self.entries_sent,
            "bytes": self.bytes_sent,
        })
    }
}
