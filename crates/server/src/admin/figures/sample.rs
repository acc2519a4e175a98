//! What was counted in an interval, and its bytes in a file.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::server::Server;
use crate::statistics::OperationKind;
use crate::statistics::latency::BOUNDS;

/// Bytes of a sample in a file.
pub(super) const SAMPLE_BYTES: usize = 512;
/// The checksum at the end: so many bytes of SHA-256.
const CHECKSUM_BYTES: usize = 8;
const CONTENT_BYTES: usize = SAMPLE_BYTES - CHECKSUM_BYTES;

/// Operations whose figures are shown together.
pub(super) const GROUPS: [(&str, &[OperationKind]); 3] = [
    ("searches", &[OperationKind::Search, OperationKind::Compare]),
    ("changes", &[OperationKind::Add, OperationKind::Modify, OperationKind::ModifyDn, OperationKind::Delete]),
    ("binds", &[OperationKind::Bind]),
];

/// Durations up to each bound, and longer ones.
const BUCKETS: usize = BOUNDS.len() + 1;

/// Counters since the start of the server, and what is so at the moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    operations: [u64; GROUPS.len()],
    latencies: [[u64; BUCKETS]; GROUPS.len()],
    groups: u64,
    changes: u64,
    connections: u64,
    waiting: u64,
}

/// What was counted in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    /// When the interval begins: milliseconds since 1970.
    pub(super) at: i64,
    /// How much of the interval was looked at.
    milliseconds: u64,
    operations: [u64; GROUPS.len()],
    latencies: [[u32; BUCKETS]; GROUPS.len()],
    /// Commits, and the changes that were in them.
    groups: u64,
    changes: u64,
    /// The most at one moment.
    connections: u32,
    waiting: u32,
}

impl Counters {
    pub(super) fn read(server: &Server) -> Self {
        let statistics = &server.statistics;
        let mut counters = Self { connections: statistics.current_connections() as u64, ..Self::default() };
        for (n, (_, kinds)) in GROUPS.iter().enumerate() {
            let sum = kinds.iter().map(|kind| statistics.initiated(*kind)).sum();
            counters.operations.iter_mut().skip(n).take(1).for_each(|counter| *counter = sum);
            for buckets in counters.latencies.iter_mut().skip(n).take(1) {
                for durations in kinds.iter().map(|kind| statistics.latency(*kind)) {
                    buckets.iter_mut().zip(durations.by_bounds(&BOUNDS)).for_each(|(all, one)| *all += one);
                }
            }
        }
        for database in server.databases().stored_figures() {
            counters.groups += database.writes.groups;
            counters.changes += database.writes.changes;
            counters.waiting += database.writes_waiting;
        }
        counters
    }

    /// What was counted since `earlier`. A counter that went back, as that of a database that is gone, counted nothing.
    pub(super) fn since(&self, earlier: &Self, at: i64, milliseconds: u64) -> Sample {
        let mut sample = Sample {
            at,
            milliseconds,
            groups: self.groups.saturating_sub(earlier.groups),
            changes: self.changes.saturating_sub(earlier.changes),
            connections: small(self.connections),
            waiting: small(self.waiting),
            ..Sample::default()
        };
        let operations = self.operations.iter().zip(&earlier.operations);
        for (counted, (now, before)) in sample.operations.iter_mut().zip(operations) {
            *counted = now.saturating_sub(*before);
        }
        let latencies = self.latencies.iter().flatten().zip(earlier.latencies.iter().flatten());
        for (counted, (now, before)) in sample.latencies.iter_mut().flatten().zip(latencies) {
            *counted = small(now.saturating_sub(*before));
        }
        sample
    }
}

impl Sample {
    /// The same in the interval that begins at `at`.
    pub(super) fn beginning(&self, at: i64) -> Self {
        Self { at, ..self.clone() }
    }

    /// Adds what was counted in another part of the same interval.
    pub(super) fn merge(&mut self, other: &Self) {
        self.milliseconds = self.milliseconds.saturating_add(other.milliseconds);
        self.groups = self.groups.saturating_add(other.groups);
        self.changes = self.changes.saturating_add(other.changes);
        self.connections = self.connections.max(other.connections);
        self.waiting = self.waiting.max(other.waiting);
        for (mine, more) in self.operations.iter_mut().zip(&other.operations) {
            *mine = mine.saturating_add(*more);
        }
        let more = other.latencies.iter().flatten();
        for (mine, more) in self.latencies.iter_mut().flatten().zip(more) {
            *mine = mine.saturating_add(*more);
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "at": self.at,
            "seconds": self.milliseconds as f64 / 1e3,
            "operations": self.operations,
            "latencies": self.latencies,
            "groups": self.groups,
            "changes": self.changes,
            "connections": self.connections,
            "waiting": self.waiting,
        })
    }

    /// The bytes in a file: numbers in little-endian order, zeros, a checksum.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SAMPLE_BYTES);
        bytes.extend(self.at.to_le_bytes());
        let numbers = [self.milliseconds, self.groups, self.changes];
        numbers.iter().chain(&self.operations).for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend(self.connections.to_le_bytes());
        bytes.extend(self.waiting.to_le_bytes());
        self.latencies.iter().flatten().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.resize(CONTENT_BYTES, 0);
        bytes.extend(checksum(&bytes));
        bytes
    }

    /// `None`: the bytes are no sample.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, sum) = bytes.split_at_checked(CONTENT_BYTES)?;
        if sum != checksum(content) {
            return None;
        }
        let mut rest = content;
        let mut sample = Self { at: i64::from_le_bytes(take(&mut rest)?), ..Self::default() };
        let numbers = [&mut sample.milliseconds, &mut sample.groups, &mut sample.changes];
        for number in numbers.into_iter().chain(&mut sample.operations) {
            *number = u64::from_le_bytes(take(&mut rest)?);
        }
        let numbers = [&mut sample.connections, &mut sample.waiting];
        for number in numbers.into_iter().chain(sample.latencies.iter_mut().flatten()) {
            *number = u32::from_le_bytes(take(&mut rest)?);
        }
        Some(sample)
    }
}

/// The first bytes of SHA-256: against damage, not against an attacker.
pub(super) fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut sum = [0; CHECKSUM_BYTES];
    sum.iter_mut().zip(Sha256::digest(bytes)).for_each(|(sum, byte)| *sum = byte);
    sum
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
impl Sample {
    /// For tests: so many searches in two seconds.
    pub(super) fn searches(at: i64, count: u64, connections: u32) -> Self {
        let mut sample = Self { at, milliseconds: 2_000, connections, ..Self::default() };
        sample.operations[0] = count;
        sample.latencies[0][3] = small(count);
        sample
    }

    pub(super) fn counted(&self) -> (i64, u64, u64, u32) {
        (self.at, self.milliseconds, self.operations[0], self.connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_comes_back_from_its_bytes() {
        let mut sample = Sample::searches(1_700_000_000_000, 7, 3);
        sample.latencies[2][BUCKETS - 1] = u32::MAX;
        (sample.waiting, sample.groups, sample.changes, sample.operations[2]) = (9, 4, u64::MAX, 5);
        let bytes = sample.encode();
        assert_eq!(bytes.len(), SAMPLE_BYTES);
        assert_eq!(Sample::decode(&bytes), Some(sample));
        for at in [0, 20, CONTENT_BYTES - 1, SAMPLE_BYTES - 1] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(Sample::decode(&other), None, "{at}");
        }
        assert_eq!(Sample::decode(&bytes[..SAMPLE_BYTES - 1]), None);
    }

    #[test]
    fn counters_become_samples() {
        let mut one = Counters { connections: 5, waiting: 2, groups: 10, ..Counters::default() };
        one.operations = [1, 2, 3];
        one.latencies[1][0] = 4;
        let mut two = Counters { connections: 3, groups: 4, changes: 7, ..Counters::default() };
        two.operations = [11, 2, 4];
        two.latencies[1][0] = 6;
        let mut sample = two.since(&one, 1_000, 2_000);
        assert_eq!((sample.operations, sample.latencies[1][0]), ([10, 0, 1], 2));
        // The database whose commits were counted is gone.
        assert_eq!((sample.groups, sample.changes), (0, 7));
        sample.merge(&one.since(&Counters::default(), 1_500, 500));
        assert_eq!((sample.at, sample.milliseconds, sample.operations), (1_000, 2_500, [11, 2, 4]));
        assert_eq!((sample.connections, sample.waiting, sample.groups), (5, 2, 10));
    }
}
