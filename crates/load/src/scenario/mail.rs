//! The mail system's directory: what a delivery asks for, and every figure that this data carries.

use super::ask::{
    MAIL_BASE, mail_account, mail_add, mail_modify, mail_new_account, mail_searches, mail_substrings,
};
use super::{
    Adds, Content, Directory, Figure, Metric, PointMetric, Rewrite, Scenario, Size, Stage, Step, Stream, Work,
};
use crate::drive::{self, Operation, Workload};
use crate::generate::{Kind, ROOT_PASSWORD};
use crate::peer::Database;
use crate::report::{Axis, Chart, ChartKind};

const PERCENTILES: &str = "Latency of a search by percentile, 16 connections";
const CLIENTS: &str = "Searches a second against connections";
const OVER_TIME: &str = "Mixed operations over time";
const COST: &str = "Server CPU an operation";
const COSTS: [&str; 7] = ["search", "read", "compare", "bind", "modify", "add", "mixed"];
const PLACES: &str = "Disk and memory";
const CHANGES: &str = "Durable changes a second against connections";

pub(super) fn scenario(size: Size) -> Scenario {
    let mut steps = vec![load()];
    steps.extend(searches(size));
    steps.extend(other_reads(size));
    // Before the rows that last a time: after them, the faster server has changed more.
    steps.push(rewrite(size));
    steps.extend(changes(size));
    let stage = Stage {
        name: "mail".into(),
        directory: directory(size.entries),
        cores: None,
        log_level: None,
        keeps_data: false,
        steps,
    };
    Scenario {
        name: "mail",
        title: "Mail directory".into(),
        base: MAIL_BASE.into(),
        stages: vec![stage],
        derived: Vec::new(),
        charts: charts(),
        notes: vec![
            "Published for OpenLDAP in 2013, on 16 processors and 5,000,000 accounts: loaded in 59 minutes, 26 GB on \
             disk, 61,433 searches a second from 368 clients."
                .into(),
            "Published for another server in 2014, as ratios to OpenLDAP: add 4.0x, search 1.9x, compare 1.4x, bind \
             1.5x, modify 3.5x, disk 3.5x, memory 3x."
                .into(),
        ],
    }
}

/// Accounts with the index lines that the mail system asks for.
pub(super) fn directory(entries: u64) -> Directory {
    let kind = Kind::Mail;
    let database = Database {
        suffix: kind.suffix().into(),
        root_dn: kind.root_dn(),
        index_lines: kind.index_lines().iter().map(|line| (*line).to_owned()).collect(),
    };
    let schema = kind.schema().map(|text| ("mail".to_owned(), text.to_owned()));
    Directory {
        databases: vec![(database, Content::Generated { kind, entries })],
        schemas: schema.into_iter().collect(),
        online_configuration: false,
    }
}

fn load() -> Step {
    Step::new("load", "offline load", Work::Look)
        .show(Figure::new("Load", "offline load", Metric::LoadSeconds).goal(15.0))
        .show(Figure::new("Load", "offline load, CPU", Metric::LoadCpuSeconds).goal(12.0))
        .show(Figure::new("Load", "entries loaded", Metric::LoadRate))
        .show(Figure::new("Load", "disk after the load", Metric::LoadedDisk).goal(6.5))
        .show(Figure::new("Load", "start until it accepts", Metric::StartSeconds))
        .draw(PLACES, "", 0.0, PointMetric::Mebibytes(Metric::LoadedDisk))
}

/// Connections of the rows of searches, beside those with [`CONNECTIONS`], and how many times better they are to be.
const FEWER_AND_MORE: [(usize, f64); 3] = [(1, 3.0), (64, 3.5), (128, 3.5)];
/// Connections of a row of reads that says nothing else.
const CONNECTIONS: usize = 16;
/// Requests in flight on each connection, in the rows that have more than one.
const IN_FLIGHT: usize = 8;

/// The most that can be had, then the rows with fixed numbers of connections.
fn searches(size: Size) -> Vec<Step> {
    let stream = |seconds| Stream::reads(mail_searches(size.entries), CONNECTIONS, seconds);
    let drive = |in_flight| Work::Drive(vec![stream(size.seconds).in_flight(in_flight)]);
    let mut step = Step::new("search", "search, 16 connections", drive(1))
        .show(Figure::new("Read", "search, 16 connections", Metric::PerCpuSecond).goal(3.5))
        .show(Figure::new("Read", "search, 16 connections, wall time", Metric::Rate(0)))
        .plot(COST, "", 0.0, Metric::CpuMicroseconds)
        .show(Figure::new("Read", "search, 16 connections, p50", Metric::Latency(0, 0.5)))
        .show(Figure::new("Read", "search, 16 connections, p99", Metric::Latency(0, 0.99)).goal(2.0));
    for (position, (_, quantile)) in QUANTILES.into_iter().enumerate() {
        step = step.plot(PERCENTILES, "", position as f64, Metric::Latency(0, quantile));
    }
    let optimize = Work::Optimize(stream(size.seconds / 2.0));
    let best = Step::new("optimize", "search, more and more connections", optimize)
        .show(
            Figure::new("Read", "search, best rate of any number of connections", Metric::BestRate)
                .note("1, 2, 4 ... connections until three steps bring no gain"),
        )
        .draw(CLIENTS, "", 0.0, PointMetric::Steps);
    let mut steps = vec![best, step];
    let pipelined =
        Figure::new("Read", "search, 16 connections, 8 in flight", Metric::PerCpuSecond).goal(5.0);
    steps.push(Step::new("search", "search, 16 connections, 8 in flight", drive(IN_FLIGHT)).show(pipelined));
    for (connections, goal) in FEWER_AND_MORE {
        let name = format!("search, {connections} connection{}", if connections == 1 { "" } else { "s" });
        let work = Work::Drive(vec![Stream { connections, ..stream(size.seconds) }]);
        let mut step = Step::new("search", name.clone(), work)
            .show(Figure::new("Read", name.clone(), Metric::PerCpuSecond).goal(goal));
        if connections == 64 {
            step = step.show(Figure::new("Read", name + ", p99", Metric::Latency(0, 0.99)).goal(3.0));
        }
        steps.push(step);
    }
    let substrings = Stream::reads(mail_substrings(size.entries), 4, size.seconds);
    steps.push(
        Step::new("substrings", "two substrings", Work::Drive(vec![substrings]))
            .show(
                Figure::new("Read", "two indexed substrings, 4 connections", Metric::Rate(0))
                    .goal(10.0)
                    .note("(&(cn=*bel*)(sn=*quin*)), size limit 500"),
            )
            .show(Figure::new("Read", "two indexed substrings, per CPU", Metric::PerCpuSecond)),
    );
    steps
}

const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

fn other_reads(size: Size) -> Vec<Step> {
    let one = |operation: Operation| Workload::new(size.entries).with(drive::Step::new(1, operation));
    let compare = Operation::Compare {
        dn: mail_account(),
        attribute: "zimbraMailStatus".into(),
        value: "enabled".into(),
    };
    let bind = Operation::Bind { dn: Kind::Mail.root_dn(), password: ROOT_PASSWORD.into(), reconnect: false };
    let rows = [
        ("read", "read by DN", Operation::read(mail_account()), 4.5),
        ("compare", "compare", compare, 4.0),
        ("bind", "bind as rootdn", bind, 3.0),
    ];
    let mut steps = Vec::new();
    for (position, (key, name, operation, goal)) in rows.into_iter().enumerate() {
        let stream = Stream::reads(one(operation), CONNECTIONS, size.seconds);
        let pipelined = stream.clone().in_flight(IN_FLIGHT);
        let figure = |name| Figure::new("Read", name, Metric::PerCpuSecond).goal(goal);
        steps.push(
            Step::new(key, name, Work::Drive(vec![stream]))
                .show(figure(format!("{name}, 16 connections")))
                .plot(COST, "", position as f64 + 1.0, Metric::CpuMicroseconds),
        );
        // A client must not send anything behind a bind before it is answered (RFC 4511 section 4.2.1).
        if key != "bind" {
            let name = format!("{name}, 16 connections, 8 in flight");
            steps.push(Step::new(key, name.clone(), Work::Drive(vec![pipelined])).show(figure(name)));
        }
    }
    steps.push(
        Step::new("memory", "memory", Work::Look)
            .show(
                Figure::new("Disk and memory", "resident memory after the reads", Metric::Resident)
                    .goal(5.0)
                    .note("mapped files included"),
            )
            .draw(PLACES, "", 1.0, PointMetric::Mebibytes(Metric::Resident)),
    );
    steps
}

fn changes(size: Size) -> Vec<Step> {
    let modify = |connections| {
        let workload = Workload::new(size.entries).with(mail_modify());
        Work::Drive(vec![Stream::writes(workload, connections, size.seconds)])
    };
    let add = |connections| {
        let stream = Stream::writes(mail_add(size.entries), connections, size.seconds);
        Work::Drive(vec![stream.adding(Adds::All)])
    };
    let mut mixed = mail_searches(size.entries);
    mixed.steps.iter_mut().for_each(|step| step.weight = 2);
    let mixed = Stream::writes(mixed.with(mail_modify()), 16, size.seconds);
    vec![
        Step::new("modify", "modify, 1 connection", modify(1))
            .show(Figure::new("Change", "modify, durable, 1 connection", Metric::Rate(0)).goal(2.0))
            .plot(CHANGES, "modify", 1.0, Metric::Rate(0)),
        Step::new("modify", "modify, 16 connections", modify(16))
            .show(Figure::new("Change", "modify, durable, 16 connections", Metric::Rate(0)).goal(15.0))
            .plot(CHANGES, "modify", 16.0, Metric::Rate(0)),
        Step::new("modify", "modify, 64 connections", modify(64))
            .show(Figure::new("Change", "modify, durable, 64 connections", Metric::Rate(0)).goal(25.0))
            .show(Figure::new("Change", "modify, 64 connections, p50", Metric::Latency(0, 0.5)))
            .show(Figure::new("Change", "modify, 64 connections, p99", Metric::Latency(0, 0.99)).goal(30.0))
            .show(Figure::new("Change", "modify, 64 connections, per CPU", Metric::PerCpuSecond))
            .plot(CHANGES, "modify", 64.0, Metric::Rate(0))
            .plot(COST, "", 4.0, Metric::CpuMicroseconds),
        Step::new("add", "add, 16 connections", add(16))
            .show(
                Figure::new("Change", "add, durable, 29 indexes, 16 connections", Metric::Rate(0)).goal(70.0),
            )
            .plot(CHANGES, "add", 16.0, Metric::Rate(0)),
        Step::new("add", "add, 64 connections", add(64))
            .show(
                Figure::new("Change", "add, durable, 29 indexes, 64 connections", Metric::Rate(0))
                    .goal(120.0),
            )
            .plot(CHANGES, "add", 64.0, Metric::Rate(0))
            .plot(COST, "", 5.0, Metric::CpuMicroseconds),
        Step::new("mixed", "mixed", Work::Drive(vec![mixed]))
            .show(Figure::new("Change", "mixed, 20 % modifies, 16 connections", Metric::Rate(0)).goal(8.0))
            .show(Figure::new("Change", "mixed, 20 % modifies, per CPU", Metric::PerCpuSecond))
            .plot(COST, "", 6.0, Metric::CpuMicroseconds)
            .draw(OVER_TIME, "", 0.0, PointMetric::OverTime(0)),
    ]
}

/// The same number of changes for all: a tenth of the accounts modified, a fiftieth added.
fn rewrite(size: Size) -> Step {
    let work = Work::Rewrite(Rewrite {
        database: 0,
        modifies: size.entries / 10,
        dn: mail_account(),
        attribute: "zimbraLastLogonTimestamp",
        value: "20210101000000Z",
        adds: size.entries / 50,
        added: mail_new_account(),
        connections: 32,
    });
    let what = "after a tenth of the accounts was modified, and a fiftieth added";
    Step::new("rewrite", "a fixed number of changes", work)
        .show(
            Figure::new("Disk and memory", "disk after changes, to loaded", Metric::DiskGrowth)
                .target(1.5)
                .note(what),
        )
        .show(Figure::new("Disk and memory", "disk after changes", Metric::Disk))
        .show(Figure::new("Disk and memory", "resident memory after changes", Metric::Resident))
        .draw(PLACES, "", 2.0, PointMetric::Mebibytes(Metric::Disk))
        .draw(PLACES, "", 3.0, PointMetric::Mebibytes(Metric::Resident))
}

fn charts() -> Vec<Chart> {
    let percentiles = Axis::categories("percentile", QUANTILES.map(|(name, _)| name));
    let places = ["disk, loaded", "memory, read", "disk, changed", "memory, changed"];
    vec![
        Chart::new(
            COST,
            ChartKind::Bars,
            Axis::categories("operation", COSTS),
            // An add takes slapd a thousand times as long as a compare.
            Axis::log("microseconds of CPU"),
        ),
        Chart::new(PLACES, ChartKind::Bars, Axis::categories("", places), Axis::linear("MiB")),
        Chart::new(CLIENTS, ChartKind::Lines, Axis::log("connections"), Axis::linear("searches a second")),
        Chart::new(PERCENTILES, ChartKind::Lines, percentiles, Axis::log("latency, us")),
        Chart::new(CHANGES, ChartKind::Lines, Axis::linear("connections"), Axis::log("changes a second")),
        Chart::new(OVER_TIME, ChartKind::Lines, Axis::linear("seconds"), Axis::linear("operations a second")),
    ]
}
