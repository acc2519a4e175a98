//! Metadata of grid storage: the six tests of a project that chose a directory for its types, its tree and its growth.

use super::ask::{unique, weigh};
use super::content::object_classes;
use super::{
    Adds, Bunches, ChartPoint, Content, Derived, Directory, Figure, Metric, PointMetric, Scenario, Size,
    Stage, Step, Stream, Work,
};
use crate::drive::{self, Operation, Workload};
use crate::peer::Database;
use crate::report::{Axis, Better, Chart, ChartKind};

const SUFFIX: &str = "dc=grid";
/// The published tests' clients.
const CLIENTS: [usize; 5] = [1, 2, 5, 10, 20];
const INDEXES: [&str; 3] = ["objectClass eq", "cn eq", "entryUUID eq"];
/// Object classes of test VI.
const CLASSES: u64 = 10_000;

const READING: &str = "Test I: reads a second against clients";
const MIXING: &str = "Test II: operations a second against clients, by share of reads";
const INDEXED: &str = "Test III: time of a bunch of 100 adds, with indexes";
const PLAIN: &str = "Test IV: time of a bunch of 100 adds, without indexes";
const MANY: &str = "Test V: time of a bunch of 1,000 adds under parents of their own";
const SCHEMA: &str = "Test VI: time of a bunch of 100 object classes";

pub(super) fn scenario(size: Size) -> Scenario {
    let smoke = size.entries < 1_000;
    let classes = if smoke { 200 } else { CLASSES };
    let stages = vec![
        Stage {
            name: "flat list".into(),
            directory: directory(&INDEXES, Content::Files { suffix: SUFFIX.into(), entries: size.entries }),
            cores: None,
            log_level: None,
            keeps_data: false,
            steps: reading(size).chain(mixing(size)).collect(),
        },
        writing("empty, indexed", INDEXED, true, size),
        writing("empty, not indexed", PLAIN, false, size),
        many(true, size),
        many(false, size),
        schema_growth(classes / 100),
        many_classes(classes),
    ];
    let (entries, clients) = (Axis::linear("entries before it"), || Axis::linear("clients"));
    let bunches =
        |title| Chart::new(title, ChartKind::Lines, entries.clone(), Axis::linear("milliseconds a bunch"));
    Scenario {
        name: "grid",
        title: "Grid metadata: tests I to VI".into(),
        base: SUFFIX.into(),
        stages,
        derived: derived(),
        charts: vec![
            Chart::new(READING, ChartKind::Lines, clients(), Axis::linear("reads a second")),
            Chart::new(MIXING, ChartKind::Lines, clients(), Axis::linear("operations a second")),
            bunches(INDEXED),
            bunches(PLAIN),
            bunches(MANY),
            Chart::new(
                SCHEMA,
                ChartKind::Lines,
                Axis::linear("object classes before it"),
                Axis::linear("milliseconds a bunch"),
            ),
        ],
        notes: vec![
            "Published for OpenLDAP 2.4.16 with back-hdb in 2009 as curves without figures: reads by DN are much \
             cheaper than by cn or entryUUID, a flat list grows slower with its length, the schema grows slower with \
             its size."
                .into(),
        ],
    }
}

fn directory(indexes: &[&str], content: Content) -> Directory {
    let database = Database {
        suffix: SUFFIX.into(),
        root_dn: format!("cn=admin,{SUFFIX}"),
        index_lines: indexes.iter().map(|line| (*line).to_owned()).collect(),
    };
    Directory { databases: vec![(database, content)], ..Directory::default() }
}

fn empty(indexes: &[&str]) -> Directory {
    directory(indexes, Content::Suffix { suffix: SUFFIX.into() })
}

fn by_dn() -> drive::Step {
    drive::Step::new(1, Operation::read(format!("cn=file.{{n}},{SUFFIX}")))
}

fn reading_name(by: &str) -> String {
    format!("read by {by}, 20 clients")
}

/// Test I.
fn reading(size: Size) -> impl Iterator<Item = Step> {
    let ways = [
        ("DN", by_dn()),
        ("cn", unique(SUFFIX, "(cn=file.{n})")),
        ("entryUUID", unique(SUFFIX, "(entryUUID=5e1ec7ed-0000-4000-8000-{n:12})")),
    ];
    CLIENTS.into_iter().flat_map(move |clients| {
        ways.clone().map(|(by, ask)| {
            let workload = Workload::new(size.entries).with(ask);
            let stream = Stream::reads(workload, clients, size.seconds / 2.0);
            let step = Step::new("read", format!("by {by}, {clients} clients"), Work::Drive(vec![stream]))
                .plot(READING, format!("by {by}"), clients as f64, Metric::Rate(0));
            if clients == 20 {
                step.show(Figure::new("Test I", reading_name(by), Metric::PerCpuSecond).goal(4.0))
                    .show(Figure::new("Test I", format!("{}, wall time", reading_name(by)), Metric::Rate(0)))
            } else {
                step
            }
        })
    })
}

/// Test II.
fn mixing(size: Size) -> impl Iterator<Item = Step> {
    let mixes = [("99.9 %", 999, 1), ("99 %", 99, 1), ("90 %", 9, 1)];
    CLIENTS.into_iter().flat_map(move |clients| {
        mixes.map(|(share, reads, writes)| {
            let workload =
                Workload::new(size.entries).with(weigh(reads, by_dn())).with(weigh(writes, new_file()));
            let stream = Stream::writes(workload, clients, size.seconds / 2.0).adding(Adds::Some);
            let title = format!("{share} reads, {clients} clients");
            let step = Step::new("mixed", title, Work::Drive(vec![stream])).plot(
                MIXING,
                format!("{share} reads"),
                clients as f64,
                Metric::Rate(0),
            );
            if clients == 20 {
                step.show(Figure::new("Test II", format!("{share} reads, 20 clients"), Metric::Rate(0)))
            } else {
                step
            }
        })
    })
}

fn new_file() -> drive::Step {
    let attributes = [
        ("objectClass", "top"),
        ("objectClass", "device"),
        ("cn", "file.{s}"),
        ("serialNumber", "{s:12}"),
        ("l", "storage 01"),
        ("description", "size={digits:6} checksum={hex:16}"),
    ];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
    drive::Step::new(
        1,
        Operation::Add { dn: format!("cn=file.{{s}},{SUFFIX}"), attributes: attributes.into() },
    )
}

/// Tests III and IV: under a first parent, under a second, and under a parent for each bunch.
fn writing(name: &str, chart: &'static str, indexed: bool, size: Size) -> Stage {
    let (test, indexes) = if indexed { ("Test III", &INDEXES[..2]) } else { ("Test IV", &[][..]) };
    let bunches = (size.entries / 200).clamp(10, 500);
    let parents: &[(&str, bool)] = if indexed {
        &[("first parent", false), ("second parent", false), ("a parent each bunch", true)]
    } else {
        &[("first parent", false), ("second parent", false)]
    };
    let how = if indexed { "indexed" } else { "not indexed" };
    let steps = parents.iter().map(|(parent, tree)| {
        let work = Bunches {
            database: 0,
            parent: (*parent).to_owned(),
            tree: *tree,
            bunches,
            each: if size.entries < 1_000 { 3 } else { 100 },
            seconds_max: size.seconds * 10.0,
        };
        let mut step = Step::new("write", format!("{how}, {parent}"), Work::Bunches(work))
            .show(Figure::new(test, format!("adds, 1 client, {how}, {parent}"), Metric::BunchRate).goal(1.0));
        if !tree {
            step = step
                .show(
                    Figure::new(
                        test,
                        format!("last children's cost to the first's, {how}, {parent}"),
                        Metric::BunchCpuGrowth,
                    )
                    .target(1.2)
                    .note("server CPU of the last tenth of the bunches, to that of the first"),
                )
                .show(Figure::new(
                    test,
                    format!("last children's time to the first's, {how}, {parent}"),
                    Metric::BunchGrowth,
                ));
        }
        step.points.push(bunch_points(chart, parent));
        step
    });
    Stage {
        name: name.into(),
        directory: empty(indexes),
        cores: None,
        log_level: None,
        keeps_data: false,
        steps: steps.collect(),
    }
}

fn bunch_points(chart: &'static str, series: &str) -> ChartPoint {
    ChartPoint { chart, series: series.to_owned(), x: 0.0, metric: PointMetric::Bunches }
}

/// Test V: many entries under different parents.
fn many(indexed: bool, size: Size) -> Stage {
    let (how, indexes) = if indexed { ("with indexes", &INDEXES[..2]) } else { ("without indexes", &[][..]) };
    let smoke = size.entries < 1_000;
    let work = Bunches {
        database: 0,
        parent: "many".into(),
        tree: true,
        bunches: if smoke { 10 } else { (size.entries / 200).clamp(10, 500) },
        each: if smoke { 5 } else { 1_000 },
        seconds_max: size.seconds * 6.0,
    };
    let mut step = Step::new("many", how, Work::Bunches(work))
        .show(Figure::new("Test V", format!("adds, 1 client, {how}"), Metric::BunchRate).goal(1.0));
    step.points.push(bunch_points(MANY, how));
    Stage {
        name: format!("empty, {how}"),
        directory: empty(indexes),
        cores: None,
        log_level: None,
        keeps_data: false,
        steps: vec![step],
    }
}

/// Test VI, on a server without the classes.
fn schema_growth(bunches: u64) -> Stage {
    let work = Work::Classes { bunches, each: 100 };
    let mut step = Step::new("schema", "object classes over LDAP", work)
        .show(
            Figure::new("Test VI", "last 100 object classes' time to the first's", Metric::BunchGrowth)
                .target(1.5),
        )
        .show(Figure::new("Test VI", "object classes added", Metric::BunchRate));
    step.points.push(bunch_points(SCHEMA, ""));
    let directory = Directory { online_configuration: true, ..empty(&[]) };
    Stage {
        name: "schema".into(),
        directory,
        cores: None,
        log_level: None,
        keeps_data: false,
        steps: vec![step],
    }
}

/// Its end: a start with all of them.
fn many_classes(classes: u64) -> Stage {
    let name = format!("start with {classes} object classes");
    let figure = Figure::new("Test VI", name, Metric::StartSeconds).target(0.1);
    let schemas = vec![("grid".to_owned(), object_classes(classes))];
    Stage {
        name: "start".into(),
        directory: Directory { schemas, ..empty(&[]) },
        cores: None,
        log_level: None,
        keeps_data: false,
        steps: vec![Step::new("start", "start", Work::Look).show(figure)],
    }
}

fn derived() -> Vec<Derived> {
    // The cost is the reverse of what a CPU second gives.
    vec![Derived {
        name: "cost of a look-up by entryUUID to one by DN".into(),
        group: "Test I",
        above: reading_name("DN"),
        below: reading_name("entryUUID"),
        better: Better::Lower,
        target: Some(1.2),
        note: "server CPU".into(),
    }]
}
