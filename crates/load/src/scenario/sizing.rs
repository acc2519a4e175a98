//! The sizing guide's two figures: operations a core, searches alone and with 20 % modifies.

use super::ask::unique;
use super::{Content, Directory, Figure, Metric, Scenario, Size, Stage, Step, Stream, Work};
use crate::drive::{self, Operation, Workload};
use crate::generate::Kind;
use crate::peer::Database;
use crate::report::{Axis, Chart, ChartKind};

/// The guide's figures, at 10,000,000 entries.
const SEARCHES_A_CORE: f64 = 12_700.0;
const MIXED_A_CORE: f64 = 10_500.0;
const COST: &str = "Operations a core, against requests in flight";

pub(super) fn scenario(size: Size) -> Scenario {
    let kind = Kind::People;
    let suffix = kind.suffix();
    let database = Database {
        suffix: suffix.into(),
        root_dn: kind.root_dn(),
        index_lines: kind.index_lines().iter().map(|line| (*line).to_owned()).collect(),
    };
    let search = || unique(suffix, "(uid=user.{n})");
    let dn = format!("uid=user.{{n}},ou=people,{suffix}");
    let modify = drive::Step::new(1, Operation::replace(dn, "telephoneNumber", "+1 555 {digits:7}"));
    let searches = Workload::new(size.entries).with(search());
    let mixed = Workload::new(size.entries).with(drive::Step { weight: 4, ..search() }).with(modify);
    let mut steps = vec![
        Step::new("load", "offline load", Work::Look)
            .show(Figure::new("Load", "offline load", Metric::LoadSeconds))
            .show(Figure::new("Load", "offline load, CPU", Metric::LoadCpuSeconds))
            .show(Figure::new("Load", "disk after the load", Metric::LoadedDisk)),
    ];
    for (key, what, workload, target, changes) in [
        ("search", "searches alone", &searches, SEARCHES_A_CORE, false),
        ("mixed", "20 % modifies", &mixed, MIXED_A_CORE, true),
    ] {
        for connections in [4, 16, 64] {
            let reads = Stream::reads(workload.clone(), connections, size.seconds);
            let stream =
                if changes { Stream::writes(workload.clone(), connections, size.seconds) } else { reads };
            let title = format!("{what}, {connections} connections");
            let mut step = Step::new(key, title, Work::Drive(vec![stream])).plot(
                COST,
                what,
                connections as f64,
                Metric::PerCpuSecond,
            );
            if connections == 64 {
                step = step
                    .show(Figure::new("Per core", what, Metric::PerCpuSecond).target(target))
                    .show(Figure::new("Per core", format!("{what}, wall time"), Metric::Rate(0)));
            }
            steps.push(step);
        }
    }
    steps.push(
        Step::new("memory", "memory", Work::Look)
            .show(Figure::new("Disk and memory", "resident memory at the end", Metric::Resident))
            .show(Figure::new("Disk and memory", "disk at the end", Metric::Disk)),
    );
    let contents = Content::Generated { kind, entries: size.entries };
    let directory = Directory { databases: vec![(database, contents)], ..Directory::default() };
    Scenario {
        name: "sizing",
        title: "Sizing: operations a core".into(),
        base: suffix.into(),
        stages: vec![Stage { name: "people".into(), directory, cores: None, log_level: None, keeps_data: false, steps }],
        derived: Vec::new(),
        charts: vec![Chart::new(
            COST,
            ChartKind::Lines,
            Axis::linear("connections"),
            Axis::linear("operations per CPU-s"),
        )],
        notes: vec![
            "Published for OpenLDAP in 2013, at 10,000,000 entries and 2.2 GHz: 12,700 searches, or 10,500 operations \
             of which 20 % modify, per core and second. The rows' targets are those figures."
                .into(),
        ],
    }
}
