//! What is compared, by name: one scenario for each of the published measurements that a directory server is judged by.
//!
//! A scenario is data: directories, the configuration they are served with, and steps whose outcomes become rows and
//! points of charts. [`crate::compare`] carries it out against each server in turn.

mod ask;
mod content;
mod frontend;
mod grid;
mod mail;
mod sizing;
mod subscribers;

use anyhow::bail;

pub(crate) use content::object_class;
pub use content::{Content, object_classes};

use crate::drive::{Operation, Workload};
use crate::peer::{Database, LogLevel};
use crate::report::{Better, Chart};

/// The goal for searches if every server sends `stats` lines: how many times better.
const STATS_GOAL: f64 = 4.0;

/// A scenario's name, what it is, and the number of entries of a long comparison.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub name: &'static str,
    pub about: &'static str,
    pub entries: u64,
    build: fn(Size) -> Scenario,
}

/// Every scenario, in the order in which help texts list them.
pub const ALL: [Known; 5] = [
    Known {
        name: "mail",
        about: "a mail system's accounts of 2 KB with 29 index lines: load, searches, changes, disk and memory",
        entries: 200_000,
        build: mail::scenario,
    },
    Known {
        name: "frontend",
        about: "the server on one core and on two, with 1 to 64 connections: searches per CPU %",
        entries: 100_000,
        build: frontend::scenario,
    },
    Known {
        name: "grid",
        about: "grid metadata, tests I to VI: reads by DN, cn and entryUUID, mixes, flat lists and trees, schema growth",
        entries: 100_000,
        build: grid::scenario,
    },
    Known {
        name: "subscribers",
        about: "three telephony databases: reads and writes at the rates of a provider, in an open loop",
        entries: 200_000,
        build: subscribers::scenario,
    },
    Known {
        name: "sizing",
        about: "operations a core: searches alone, and with 20 % modifies",
        entries: 200_000,
        build: sizing::scenario,
    },
];

/// How large and how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Leaf entries of the whole scenario.
    pub entries: u64,
    /// Seconds that one figure is measured.
    pub seconds: f64,
}

impl Size {
    /// Hundreds of entries and fractions of a second: it shows that everything runs, and no figure means anything.
    pub const SMOKE: Self = Self { entries: 300, seconds: 0.05 };
    /// Small enough that the mail scenario takes a minute on two processors, beside another server and in two rounds.
    pub const QUICK: Self = Self { entries: 4_000, seconds: 0.5 };
    /// Seconds of a figure in a long comparison, whose entries are the scenario's own.
    pub const LONG_SECONDS: f64 = 5.0;
    /// The fewest entries that every scenario can be made of.
    pub const ENTRIES_MIN: u64 = 100;
}

/// What is done with each server, once a round.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub title: String,
    /// The DN below which all data lies, and which `--base` replaces.
    pub base: String,
    pub stages: Vec<Stage>,
    /// Rows whose figures follow from other rows of the same server and round.
    pub derived: Vec<Derived>,
    /// Charts without series, in the order in which they are shown; points name them by their title.
    pub charts: Vec<Chart>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// One directory, served once, and what it is asked.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Short; stands in the progress.
    pub name: String,
    pub directory: Directory,
    /// The server has this many cores; none for all.
    pub cores: Option<usize>,
    /// What the servers log in this stage; none for what the comparison says.
    pub log_level: Option<LogLevel>,
    /// The data of the stage before is served again instead of a fresh load.
    pub keeps_data: bool,
    pub steps: Vec<Step>,
}

/// What is configured and loaded.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    pub databases: Vec<(Database, Content)>,
    /// Files that are included after the standard schema.
    pub schemas: Vec<(String, String)>,
    /// cn=config has to be writable over LDAP.
    pub online_configuration: bool,
}

/// One thing that is done, and what is shown of it.
#[derive(Clone, Debug)]
pub struct Step {
    /// What `--only` chooses it by.
    pub key: &'static str,
    /// What stands in the progress.
    pub title: String,
    pub work: Work,
    pub figures: Vec<Figure>,
    pub points: Vec<ChartPoint>,
}

/// What is done.
#[derive(Clone, Debug)]
pub enum Work {
    /// Nothing: the figures are those of the load and the start that came before, and of the files and the process as
    /// they are.
    Look,
    /// Drives the server; several streams at the same time.
    Drive(Vec<Stream>),
    /// Drives the server with 1, 2, 4 and more connections, until three steps in a row bring no gain.
    Optimize(Stream),
    /// Adds entries one after the other, and times them by bunches.
    Bunches(Bunches),
    /// Adds object classes to the running server, and times them by bunches.
    Classes { bunches: u64, each: u64 },
    /// So many changes whatever they take, that files can be compared after the same work.
    Rewrite(Rewrite),
}

/// One driver.
#[derive(Clone, Debug)]
pub struct Stream {
    pub workload: Workload,
    pub connections: usize,
    pub in_flight: usize,
    /// Requests per second; none: as fast as answers come.
    pub rate: Option<f64>,
    pub seconds: f64,
    /// Not for changes: every acknowledged one is counted.
    pub warm_up: f64,
    /// Whose rights the requests need.
    pub identity: Identity,
    /// Acknowledged adds are looked for at the end.
    pub adds: Adds,
}

/// Whether a stream's requests add entries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Adds {
    None,
    Some,
    All,
}

/// The identity under which requests are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Identity {
    Anonymous,
    /// The `rootdn` of the database at this position.
    Root(usize),
}

/// Single adds under one parent, or under a new parent for each bunch.
#[derive(Clone, Debug)]
pub struct Bunches {
    /// Position of the database.
    pub database: usize,
    /// The parent's RDN value; each bunch has one of its own when `tree`.
    pub parent: String,
    pub tree: bool,
    pub bunches: u64,
    pub each: u64,
    /// It ends after this many seconds, however far it is.
    pub seconds_max: f64,
}

/// A fixed number of changes, on many connections.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// Position of the database.
    pub database: usize,
    /// The entries numbered from 1 whose `attribute` is replaced; `{n}` in `dn` is the number.
    pub modifies: u64,
    pub dn: String,
    pub attribute: &'static str,
    pub value: &'static str,
    /// How many entries are added.
    pub adds: u64,
    /// What is added: `{s}` is a number that no other entry has.
    pub added: (String, Vec<(String, String)>),
    pub connections: usize,
}

/// A row that takes one number of a step's outcome.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: String,
    pub group: &'static str,
    pub metric: Metric,
    pub goal: Option<f64>,
    pub target: Option<f64>,
    pub note: String,
}

/// Which number of an outcome.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Operations a second of a stream, by its position.
    Rate(usize),
    /// Operations a second of the best step.
    BestRate,
    /// Operations a second of the server's CPU time, all streams together.
    PerCpuSecond,
    /// Microseconds of the server's CPU time an operation, all streams together.
    CpuMicroseconds,
    /// Operations a second for each percent of a core that the server used.
    PerCpuPercent,
    /// Microseconds of a stream at a quantile.
    Latency(usize, f64),
    /// Microseconds of a stream on average.
    MeanLatency(usize),
    /// Bytes of the process, mapped files included.
    Resident,
    /// Bytes that the databases take on the disk.
    Disk,
    /// The same right after the load; absent in a round that went on with the data of the round before.
    LoadedDisk,
    /// Disk now, to disk after the load; absent where the data have the changes of an earlier round.
    DiskGrowth,
    /// Seconds of the load.
    LoadSeconds,
    /// CPU seconds of the load.
    LoadCpuSeconds,
    /// Entries loaded a second.
    LoadRate,
    /// Seconds until the server accepted connections.
    StartSeconds,
    /// Adds a second of all bunches.
    BunchRate,
    /// Time of the last tenth of the bunches, to that of the first.
    BunchGrowth,
    /// Server CPU of the last tenth of the bunches, to that of the first.
    BunchCpuGrowth,
    /// Lines that the server sent to syslog, to operations.
    LinesPerOperation,
}

impl Metric {
    /// The unit and which way it is better.
    pub const fn unit(self) -> (&'static str, Better) {
        match self {
            Self::Rate(_) | Self::BestRate | Self::LoadRate | Self::BunchRate => ("/s", Better::Higher),
            Self::PerCpuSecond => ("per CPU-s", Better::Higher),
            Self::PerCpuPercent => ("per CPU %", Better::Higher),
            Self::Latency(..) | Self::MeanLatency(_) | Self::CpuMicroseconds => ("us", Better::Lower),
            Self::Resident | Self::Disk | Self::LoadedDisk => ("bytes", Better::Lower),
            Self::DiskGrowth | Self::BunchGrowth | Self::BunchCpuGrowth => ("x", Better::Lower),
            Self::LoadSeconds | Self::StartSeconds => ("s", Better::Lower),
            Self::LoadCpuSeconds => ("CPU-s", Better::Lower),
            Self::LinesPerOperation => ("lines", Better::Lower),
        }
    }
}

/// A point that a step adds to a chart.
#[derive(Clone, Debug)]
pub struct ChartPoint {
    /// The chart's title.
    pub chart: &'static str,
    /// What tells this series from others of the same server; empty when each server has one.
    pub series: String,
    pub x: f64,
    pub metric: PointMetric,
}

/// What a chart shows of an outcome.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointMetric {
    One(Metric),
    /// The same, from bytes.
    Mebibytes(Metric),
    /// Operations a second of each step over its connections.
    Steps,
    /// Milliseconds of each bunch over the entries before it.
    Bunches,
    /// Operations a second over the time of the measurement.
    OverTime(usize),
}

/// One row of a server divided by another, round by round.
#[derive(Clone, Debug)]
pub struct Derived {
    pub name: String,
    pub group: &'static str,
    pub above: String,
    pub below: String,
    pub better: Better,
    pub target: Option<f64>,
    pub note: String,
}

impl Scenario {
    /// The scenario called `name` in a size.
    ///
    /// # Errors
    /// No such name (the error lists them), or fewer entries than [`Size::ENTRIES_MIN`].
    pub fn new(name: &str, size: Size) -> anyhow::Result<Self> {
        let known = Known::find(name)?;
        if size.entries < Size::ENTRIES_MIN || size.entries > crate::generate::ENTRIES_MAX {
            let (min, max) = (Size::ENTRIES_MIN, crate::generate::ENTRIES_MAX);
            bail!("{} entries: a scenario can be made of {min} to {max}", size.entries);
        }
        Ok((known.build)(size))
    }

    /// Puts a stage before each that loads: the same data, served with `loglevel stats`, and its reads once more. They
    /// come first, before changes make the servers' data unlike.
    pub(crate) fn add_stats_lines(&mut self) {
        let mut stages = Vec::new();
        for mut stage in std::mem::take(&mut self.stages) {
            let lines: Vec<Step> = stage.steps.iter().filter_map(Step::with_stats_lines).collect();
            if !stage.keeps_data && !lines.is_empty() {
                // The rows of the load belong to the stage that loads.
                let (mut steps, rest) =
                    stage.steps.drain(..).partition::<Vec<Step>, _>(Step::looks_at_the_load);
                steps.extend(lines);
                stage.steps = rest;
                stages.push(Stage {
                    name: format!("{}, stats lines", stage.name),
                    log_level: Some(LogLevel::Stats),
                    steps,
                    ..stage.clone()
                });
                stage.keeps_data = true;
            }
            stages.push(stage);
        }
        self.stages = stages;
    }

    /// Keeps the steps that `only` names; the stages that have none left go.
    ///
    /// # Errors
    /// A key that no step has; the error lists those there are.
    pub fn keep(&mut self, only: &[String]) -> anyhow::Result<()> {
        if only.is_empty() {
            return Ok(());
        }
        let mut keys: Vec<&str> = Vec::new();
        for key in self.stages.iter().flat_map(|stage| &stage.steps).map(|step| step.key) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        if let Some(unknown) = only.iter().find(|wanted| !keys.contains(&wanted.as_str())) {
            bail!("scenario {} has no rows called {unknown:?}: one of {}", self.name, keys.join(", "));
        }
        let mut dropped_load = false;
        for stage in &mut self.stages {
            stage.steps.retain(|step| only.iter().any(|wanted| wanted == step.key));
        }
        self.stages.retain_mut(|stage| {
            if stage.steps.is_empty() {
                dropped_load |= !stage.keeps_data;
                return false;
            }
            // Who loaded for this stage is gone: it loads by itself.
            stage.keeps_data &= !std::mem::take(&mut dropped_load);
            true
        });
        Ok(())
    }
}

impl Known {
    /// # Errors
    /// No such name; the error lists them.
    pub fn find(name: &str) -> anyhow::Result<Self> {
        let Some(known) = ALL.into_iter().find(|known| known.name == name) else {
            let names: Vec<&str> = ALL.iter().map(|known| known.name).collect();
            bail!("no scenario is called {name:?}: one of {}", names.join(", "));
        };
        Ok(known)
    }
}

impl Directory {
    /// Databases as they are configured.
    pub(crate) fn databases(&self) -> Vec<Database> {
        self.databases.iter().map(|(database, _)| database.clone()).collect()
    }
}

impl Figure {
    pub(crate) fn new(group: &'static str, name: impl Into<String>, metric: Metric) -> Self {
        Self { name: name.into(), group, metric, goal: None, target: None, note: String::new() }
    }

    /// At least this many times better than each other server.
    pub(crate) const fn goal(mut self, goal: f64) -> Self {
        self.goal = Some(goal);
        self
    }

    /// At least (or at most) this much by itself.
    pub(crate) const fn target(mut self, target: f64) -> Self {
        self.target = Some(target);
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

impl Step {
    pub(crate) fn new(key: &'static str, title: impl Into<String>, work: Work) -> Self {
        Self { key, title: title.into(), work, figures: Vec::new(), points: Vec::new() }
    }

    pub(crate) fn show(mut self, figure: Figure) -> Self {
        self.figures.push(figure);
        self
    }

    /// Draws one number of the outcome at `x`.
    pub(crate) fn plot(self, chart: &'static str, series: impl Into<String>, x: f64, metric: Metric) -> Self {
        self.draw(chart, series, x, PointMetric::One(metric))
    }

    /// Draws what `metric` says; a whole line has its own `x`.
    pub(crate) fn draw(
        mut self,
        chart: &'static str,
        series: impl Into<String>,
        x: f64,
        metric: PointMetric,
    ) -> Self {
        self.points.push(ChartPoint { chart, series: series.into(), x, metric });
        self
    }

    fn looks_at_the_load(&self) -> bool {
        self.key == "load" && matches!(self.work, Work::Look)
    }

    /// The same reads for servers that send a line for each operation; none for other steps and for those whose figures
    /// hang on the machine's other load.
    fn with_stats_lines(&self) -> Option<Self> {
        const GROUP: &str = "Read, with loglevel stats";
        const LINES: &str =
            "Lines a request, those of connections' begin and end included, with loglevel stats";
        let Work::Drive(streams) = &self.work else { return None };
        let [stream] = streams.as_slice() else { return None };
        let figure = self.figures.iter().find(|figure| figure.metric == Metric::PerCpuSecond)?;
        if stream.identity != Identity::Anonymous || stream.rate.is_some() {
            return None;
        }
        let name = format!("{}, stats lines", figure.name);
        // Requests of a warm-up are not counted, and their lines would be.
        let stream = Stream { warm_up: 0.0, ..stream.clone() };
        let lines =
            Figure::new(LINES, format!("{}, lines a request", figure.name), Metric::LinesPerOperation);
        let mut step = Self::new(self.key, name.clone(), Work::Drive(vec![stream]))
            .show(Figure::new(GROUP, name, Metric::PerCpuSecond))
            .show(lines);
        if self.key == "search"
            && let Some(figure) = step.figures.first_mut()
        {
            figure.goal = Some(STATS_GOAL);
        }
        Some(step)
    }

    /// Changes every name of an entry that the step's requests carry.
    pub(crate) fn move_names(&mut self, moved: &dyn Fn(&str) -> String) {
        let streams = match &mut self.work {
            Work::Drive(streams) => streams.as_mut_slice(),
            Work::Optimize(stream) => std::slice::from_mut(stream),
            _ => return,
        };
        for step in streams.iter_mut().flat_map(|stream| &mut stream.workload.steps) {
            match &mut step.operation {
                Operation::Search(search) => search.base = moved(&search.base),
                Operation::Read { dn, .. }
                | Operation::Compare { dn, .. }
                | Operation::Bind { dn, .. }
                | Operation::Modify { dn, .. }
                | Operation::Add { dn, .. }
                | Operation::Delete { dn }
                | Operation::ModifyDn { dn, .. } => *dn = moved(dn),
            }
        }
    }

    /// Why a server that was not started here cannot do this step.
    pub(crate) fn impossible_when_given(&self, stage: &Stage, may_write: bool) -> Option<&'static str> {
        let unwritable = |streams: &[Stream]| {
            let writes = streams.iter().any(|stream| stream.identity != Identity::Anonymous);
            (writes && !may_write).then_some("nobody was named who may write (--bind-dn)")
        };
        match &self.work {
            _ if stage.log_level.is_some() => Some("what a given server logs is not chosen here"),
            _ if stage.cores.is_some() => Some("a given server cannot be put on fewer cores"),
            Work::Drive(streams) => unwritable(streams),
            Work::Optimize(stream) => unwritable(std::slice::from_ref(stream)),
            Work::Look => Some("the files and the process of a given server are not looked at"),
            Work::Bunches(_) | Work::Classes { .. } | Work::Rewrite(_) => {
                Some("it needs a database that was made for it")
            }
        }
    }

    /// Seconds that it takes at least, as far as it is known beforehand.
    pub(crate) fn seconds(&self) -> f64 {
        match &self.work {
            Work::Look => 0.1,
            Work::Drive(streams) => {
                streams.iter().map(|stream| stream.seconds + stream.warm_up).fold(0.0, f64::max)
            }
            // Some steps of gain, three without.
            Work::Optimize(stream) => (stream.seconds + stream.warm_up) * 8.0,
            Work::Bunches(bunches) => bunches.seconds_max,
            // Guesses for a first round; the second knows.
            Work::Rewrite(rewrite) => rewrite.modifies as f64 / 5_000.0 + rewrite.adds as f64 / 500.0,
            Work::Classes { bunches, .. } => *bunches as f64 * 0.02,
        }
    }
}

#[cfg(test)]
mod tests;
