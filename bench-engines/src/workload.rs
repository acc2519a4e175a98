//! The workloads: what one process does with one engine.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::engines::{Durability, Engine, Kind, OpenOptions, Record, Touched};

/// Reads that share a snapshot, as the requests of one turn of an event loop do.
const READS_A_SNAPSHOT: u64 = 1_000;
/// Changes that share a transaction: what a group commit gathers.
const GROUP: u64 = 64;

/// One process's work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) entries: u64,
    pub(crate) value_bytes: u64,
    pub(crate) cache_bytes: u64,
    /// How long one figure is measured at most.
    pub(crate) seconds: f64,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) operations: f64,
    pub(crate) seconds: f64,
    /// User and system time of the whole process, background threads included.
    pub(crate) cpu_seconds: f64,
}

/// The reads and writes that are measured, after the filling.
const STEPS: [(&str, Step); 7] = [
    ("read, in key order", Step::Scan),
    ("read, random, 1,000 a snapshot", Step::Read { a_snapshot: READS_A_SNAPSHOT }),
    ("read, random, 1 a snapshot", Step::Read { a_snapshot: 1 }),
    ("write, random, unsynced, 1 a commit", Step::Write { a_commit: 1, durability: Durability::Unsynced }),
    (
        "write, random, unsynced, 64 a commit",
        Step::Write { a_commit: GROUP, durability: Durability::Unsynced },
    ),
    ("write, random, synced, 1 a commit", Step::Write { a_commit: 1, durability: Durability::Synced }),
    ("write, random, synced, 64 a commit", Step::Write { a_commit: GROUP, durability: Durability::Synced }),
];

#[derive(Clone, Copy, Debug)]
enum Step {
    Scan,
    Read { a_snapshot: u64 },
    Write { a_commit: u64, durability: Durability },
}

/// Fills the engine and runs every step.
pub(crate) fn full(kind: Kind, folder: &Path, work: &Work) -> anyhow::Result<Vec<Figure>> {
    let began = Usage::now();
    let mut driver = Driver::open(kind, folder, work)?;
    let mut figures = vec![driver.fill()?];
    for (name, step) in STEPS {
        figures.push(driver.measure(name, step).with_context(|| format!("{}: {name}", kind.name()))?);
    }
    driver.engine.sync()?;
    drop(driver);
    // With what the engine did in the background and at the end: a merge that is put off is not a merge saved.
    figures.push(began.figure("the whole run, in CPU seconds", 0.0));
    Ok(figures)
}

/// Fills the engine for a later [`reads`], and syncs.
pub(crate) fn fill(kind: Kind, folder: &Path, work: &Work) -> anyhow::Result<Vec<Figure>> {
    let mut driver = Driver::open(kind, folder, work)?;
    let figure = driver.fill()?;
    driver.engine.settle()?;
    Ok(vec![figure])
}

/// Reads what [`fill`] left.
pub(crate) fn reads(kind: Kind, folder: &Path, work: &Work) -> anyhow::Result<Vec<Figure>> {
    let mut driver = Driver::open(kind, folder, work)?;
    let steps = STEPS.iter().filter(|(_, step)| matches!(step, Step::Read { a_snapshot: 1 } | Step::Scan));
    // Random reads first: a scan leaves its end in memory.
    steps.rev().map(|(name, step)| driver.measure(name, *step)).collect()
}

struct Driver {
    engine: Box<dyn Engine>,
    work: Work,
    random: Random,
    noise: Vec<u8>,
}

impl Driver {
    fn open(kind: Kind, folder: &Path, work: &Work) -> anyhow::Result<Self> {
        let options = OpenOptions { cache_bytes: work.cache_bytes, large_values: work.value_bytes > 4096 };
        let engine = kind.open(folder, &options)?;
        let mut random = Random(0x5eed);
        // Values are slices of noise: an engine that compresses finds nothing, as above compressed records.
        let noise = (0..work.value_bytes + 4096).map(|_| random.next() as u8).collect();
        Ok(Self { engine, work: *work, random, noise })
    }

    fn record(&mut self, number: u64) -> Record {
        let start = (self.random.next() % 4096) as usize;
        let value = self.noise.get(start..start + self.work.value_bytes as usize).unwrap_or_default();
        (key(number), value.to_vec())
    }

    /// Writes every record in key order, unsynced, with one sync at the end.
    fn fill(&mut self) -> anyhow::Result<Figure> {
        // 1,000 small records or some 10 MB of large ones.
        let group = (10_000_000 / self.work.value_bytes.max(1)).clamp(1, 1_000);
        let began = Usage::now();
        let mut next = 0;
        while next < self.work.entries {
            let end = (next + group).min(self.work.entries);
            let records = (next..end).map(|number| self.record(number)).collect();
            self.engine.put(records, Durability::Unsynced)?;
            next = end;
        }
        self.engine.sync()?;
        Ok(began.figure("write, in key order, one sync at the end", self.work.entries as f64))
    }

    /// Repeats a step until the time is over or every record was touched once on average.
    fn measure(&mut self, name: &str, step: Step) -> anyhow::Result<Figure> {
        // What the step before left unsynced is not this one's to pay.
        self.engine.sync()?;
        let began = Usage::now();
        let limit = Duration::from_secs_f64(self.work.seconds);
        let mut done = 0;
        while done < self.work.entries && (done == 0 || began.wall.elapsed() < limit) {
            done += self.step(step)?;
        }
        Ok(began.figure(name, done as f64))
    }

    fn step(&mut self, step: Step) -> anyhow::Result<u64> {
        let entries = self.work.entries;
        let mut touched = Touched::default();
        match step {
            Step::Scan => self.engine.scan(entries, &mut touched)?,
            Step::Read { a_snapshot } => {
                let keys: Vec<Vec<u8>> = (0..a_snapshot).map(|_| key(self.random.next() % entries)).collect();
                self.engine.get(&keys, &mut touched)?;
            }
            Step::Write { a_commit, durability } => {
                let numbers: Vec<u64> = (0..a_commit).map(|_| self.random.next() % entries).collect();
                let records = numbers.into_iter().map(|number| self.record(number)).collect();
                self.engine.put(records, durability)?;
                return Ok(a_commit);
            }
        }
        std::hint::black_box(touched.sum);
        Ok(touched.records)
    }
}

/// 16 bytes, in the order of the numbers.
fn key(number: u64) -> Vec<u8> {
    format!("{number:016}").into_bytes()
}

/// Where a measurement began.
struct Usage {
    wall: Instant,
    cpu_seconds: f64,
}

impl Usage {
    #[allow(clippy::disallowed_methods, reason = "a measurement is about this machine's time")]
    fn now() -> Self {
        Self { wall: Instant::now(), cpu_seconds: cpu_seconds() }
    }

    fn figure(&self, name: &str, operations: f64) -> Figure {
        Figure {
            name: name.to_owned(),
            operations,
            seconds: self.wall.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds() - self.cpu_seconds,
        }
    }
}

/// User and system time of this process so far, all threads.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// splitmix64: the same numbers for every engine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_does_all_the_work() {
        let work = Work { entries: 300, value_bytes: 100, cache_bytes: 8 << 20, seconds: 0.02 };
        for kind in Kind::ALL {
            let folder = tempfile::tempdir().unwrap();
            let figures = full(kind, folder.path(), &work).unwrap();
            assert_eq!(figures.len(), STEPS.len() + 2, "{kind:?}");
            assert!(
                figures.iter().take(STEPS.len() + 1).all(|figure| figure.operations > 0.0),
                "{figures:?}"
            );
        }
    }
}
