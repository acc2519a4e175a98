//! A telephony provider's three databases, read and written at the rates that were asked of them.

use super::ask::{leaf, weigh};
use super::{
    Adds, ChartPoint, Content, Directory, Figure, Metric, PointMetric, Scenario, Size, Stage, Step, Stream,
    Work,
};
use crate::drive::{self, Operation, Workload};
use crate::generate::Kind;
use crate::peer::Database;
use crate::report::{Axis, Chart, ChartKind};

/// Millions of entries of each database, which divide the scenario's.
const MILLIONS: [u64; 3] = [22, 35, 40];
/// Reads and writes a second that were asked of each.
const READS: [u32; 3] = [2_500, 3_500, 4_000];
const WRITES: [u32; 3] = [250, 350, 400];
/// The peak of the third alone.
const PEAK_READS: f64 = 4_500.0;
const PEAK_WRITES: f64 = 700.0;
const OVER_TIME: &str = "Reads a second over time, while 1,000 writes a second go on";

pub(super) fn scenario(size: Size) -> Scenario {
    let shares = MILLIONS.map(|millions| (size.entries * millions / MILLIONS.iter().sum::<u64>()).max(1));
    let databases = shares.into_iter().enumerate().map(|(position, entries)| {
        let suffix = suffix(position);
        let database = Database {
            root_dn: format!("cn=admin,{suffix}"),
            index_lines: Kind::Subscribers.index_lines().iter().map(|line| (*line).to_owned()).collect(),
            suffix: suffix.clone(),
        };
        (database, Content::Subscribers { suffix, entries })
    });
    let directory = Directory { databases: databases.collect(), ..Directory::default() };
    Scenario {
        name: "subscribers",
        title: "Subscribers: three databases".into(),
        base: "dc=com".into(),
        stages: vec![Stage {
            name: "three databases".into(),
            directory,
            cores: None,
            log_level: None,
            keeps_data: false,
            steps: steps(size, shares),
        }],
        derived: Vec::new(),
        charts: vec![Chart::new(
            OVER_TIME,
            ChartKind::Lines,
            Axis::linear("seconds"),
            Axis::linear("reads a second"),
        )],
        notes: vec![
            "Published for OpenLDAP in 2011, at 22, 35 and 40 million entries on two servers: 10,000 reads with 1,000 \
             writes a second at 1 ms and 2 ms on average, 17,000 reads a second on one database, 1,500 modifies a \
             second in bulk, 6,872 entries loaded a second. The rows' targets are those figures."
                .into(),
            "Both servers stand alone here, where the published ones sent every change to a second server; \
             `tests/bench/read-cache` has one."
                .into(),
        ],
    }
}

fn suffix(position: usize) -> String {
    format!("dc=db{},dc=com", position + 1)
}

fn read(position: usize) -> drive::Step {
    drive::Step::new(1, Operation::read(format!("uid={{n:9}},{}", suffix(position))))
}

fn modify(position: usize) -> drive::Step {
    let dn = format!("uid={{n:9}},{}", suffix(position));
    drive::Step::new(1, Operation::replace(dn, "roomNumber", "{digits:6}"))
}

fn add(position: usize) -> drive::Step {
    let (dn, attributes) = leaf(Kind::Subscribers, |value| {
        value.replace("000000001", "{s:9}").replace(Kind::Subscribers.suffix(), &suffix(position))
    });
    drive::Step::new(1, Operation::Add { dn, attributes })
}

/// 70 modifies to 30 adds.
fn changes(entries: u64, position: usize) -> Workload {
    Workload::new(entries).with(weigh(70, modify(position))).with(weigh(30, add(position)))
}

fn steps(size: Size, shares: [u64; 3]) -> Vec<Step> {
    let [_, _, third] = shares;
    let one = Stream::reads(Workload::new(third).with(read(2)), 16, size.seconds);
    let mut steps = vec![
        Step::new("load", "offline load", Work::Look)
            .show(Figure::new("Load", "offline load, three databases", Metric::LoadSeconds).goal(6.0))
            .show(Figure::new("Load", "offline load, CPU", Metric::LoadCpuSeconds).goal(6.0))
            .show(Figure::new("Load", "entries loaded", Metric::LoadRate).target(6_872.0))
            .show(Figure::new("Load", "disk after the load", Metric::LoadedDisk).goal(3.0)),
        Step::new("read", "reads of one database", Work::Drive(vec![one]))
            .show(
                Figure::new("Reads", "reads of one database, 16 connections", Metric::Rate(0))
                    .target(17_000.0),
            )
            .show(Figure::new("Reads", "reads of one database, per CPU", Metric::PerCpuSecond).goal(4.0)),
        targets(size, shares),
        peak(size, third),
    ];
    let bulk = (0..3).zip(shares).map(|(position, entries)| {
        let workload = Workload::new(entries).with(modify(position));
        Stream::writes(workload, 3, size.seconds).by_root_of(position)
    });
    let mut step =
        Step::new("bulk", "modifies of all three, 3 connections each", Work::Drive(bulk.collect()));
    for position in 0..3 {
        let name = format!("bulk modifies, database {}, 3 connections", position + 1);
        step = step.show(Figure::new("Bulk changes", name, Metric::Rate(position)).target(500.0));
    }
    steps.push(step.show(Figure::new("Bulk changes", "bulk modifies, per CPU", Metric::PerCpuSecond)));
    steps.push(
        Step::new("memory", "memory", Work::Look)
            .show(Figure::new("Disk and memory", "resident memory at the end", Metric::Resident))
            .show(
                Figure::new("Disk and memory", "disk at the end, to loaded", Metric::DiskGrowth).target(1.5),
            ),
    );
    steps
}

/// All three at their rates: one stream of reads, and one of changes for each database, whose `rootdn` it needs.
fn targets(size: Size, shares: [u64; 3]) -> Step {
    let least = shares.into_iter().min().unwrap_or(1);
    let mut reads = Workload::new(least);
    for (position, weight) in READS.into_iter().enumerate() {
        reads = reads.with(weigh(weight, read(position)));
    }
    let rate = f64::from(READS.iter().sum::<u32>());
    let mut streams = vec![Stream { warm_up: 0.0, ..Stream::reads(reads, 32, size.seconds).rate(rate) }];
    for (position, entries) in shares.into_iter().enumerate() {
        let rate = f64::from(WRITES.get(position).copied().unwrap_or_default());
        let stream = Stream::writes(changes(entries, position), 8, size.seconds).rate(rate);
        streams.push(stream.by_root_of(position).adding(Adds::Some));
    }
    let group = "10,000 reads and 1,000 writes a second";
    let mut step = Step::new("targets", "reads and writes at their rates", Work::Drive(streams))
        .show(Figure::new(group, "reads a second (10,000 asked)", Metric::Rate(0)).target(9_900.0))
        .show(Figure::new(group, "read, average", Metric::MeanLatency(0)).target(1_000.0))
        .show(Figure::new(group, "read, p99", Metric::Latency(0, 0.99)));
    for (position, writes) in WRITES.into_iter().enumerate() {
        let (stream, database) = (position + 1, position + 1);
        let asked = f64::from(writes);
        step = step
            .show(
                Figure::new(
                    group,
                    format!("writes a second, database {database} ({writes} asked)"),
                    Metric::Rate(stream),
                )
                .target(asked * 0.99),
            )
            .show(
                Figure::new(
                    group,
                    format!("write, average, database {database}"),
                    Metric::MeanLatency(stream),
                )
                .target(2_000.0),
            );
    }
    step = step.show(Figure::new(group, "operations per CPU", Metric::PerCpuSecond));
    step.points.push(ChartPoint {
        chart: OVER_TIME,
        series: String::new(),
        x: 0.0,
        metric: PointMetric::OverTime(0),
    });
    step
}

/// The third database alone at its peak.
fn peak(size: Size, entries: u64) -> Step {
    let reads = Stream::reads(Workload::new(entries).with(read(2)), 16, size.seconds).rate(PEAK_READS);
    let writes = Stream::writes(changes(entries, 2), 16, size.seconds).rate(PEAK_WRITES);
    let group = "One database: 4,500 reads and 700 writes a second";
    let streams = vec![Stream { warm_up: 0.0, ..reads }, writes.by_root_of(2).adding(Adds::Some)];
    Step::new("peak", "one database at its peak", Work::Drive(streams))
        .show(Figure::new(group, "reads a second (4,500 asked)", Metric::Rate(0)).target(PEAK_READS * 0.99))
        .show(Figure::new(group, "read at the peak, average", Metric::MeanLatency(0)).target(1_000.0))
        .show(Figure::new(group, "writes a second (700 asked)", Metric::Rate(1)).target(PEAK_WRITES * 0.99))
        .show(Figure::new(group, "write at the peak, average", Metric::MeanLatency(1)).target(2_000.0))
}
