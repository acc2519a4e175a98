//! One measurement: threads that drive, and one that watches the server meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::lag::Watcher;
use super::process::{Usage, disk_bytes};
use super::report::{OperationReport, Report, Sample, empty_latency};
use super::requests::Requests;
use super::transport::Dialer;
use super::worker::{Outcome, Stopped, Worker};
use super::{Lag, Operation, Options, Workload, clock};

/// Files that a process has open besides its connections.
const OTHER_FILES: u64 = 64;
/// A thread that had less than this part of the time to spare was the bottleneck.
const BUSY_MAX: f64 = 0.9;
/// An open loop may end this many seconds behind.
const BEHIND_MAX: f64 = 0.01;

/// Runs `workload` and measures it.
///
/// # Errors
/// Options or a workload that cannot be driven; a server that cannot be reached, refuses the bind, closes a
/// connection, is silent for 30 seconds or answers what is not LDAP; too few open files allowed.
pub fn run(options: &Options, workload: &Workload) -> anyhow::Result<Report> {
    options.check()?;
    workload.check()?;
    check_reconnecting(options, workload)?;
    allow_files(options.connections)?;
    let dialer = Dialer::new(&options.server)?;
    let watcher = options.lag.as_ref().map(|lag| Watcher::open(options, lag)).transpose()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tell, reports) = mpsc::channel();
        let mut crew = Crew { go: Vec::new(), handles: Vec::new(), reports, stop: &stop };
        for thread in 0..options.threads {
            let (go, wait) = mpsc::channel();
            let (tell, dialer, stop) = (tell.clone(), &dialer, &stop);
            crew.go.push(go);
            let work = move || {
                let done = work(options, workload, dialer, stop, thread, &tell, &wait);
                if done.is_err() {
                    // A receiver that has gone away has failed before.
                    let _ = tell.send(false);
                }
                done
            };
            // Those that were started end with the crew.
            let begun = Builder::new().spawn_scoped(scope, work).context("no thread for a driver")?;
            crew.handles.push(begun);
        }
        drop(tell);
        if !crew.ready(None)? || !crew.ready(None)? {
            return Err(crew.failure());
        }
        let mut watch = Watch::start(options)?;
        let (finished, lag) = mpsc::channel();
        let start = watch.start;
        let begun =
            watcher.map(|watcher| Builder::new().spawn_scoped(scope, move || watcher.watch(start, &lag)));
        let begun = begun.transpose().inspect_err(|_| crew.stop.store(true, Ordering::Relaxed));
        let lag = begun.context("no thread for the watcher")?.map(|thread| (finished, thread));
        let going = crew.ready(Some(&mut watch))?;
        let (finished, lag) = lag.unzip();
        drop(finished);
        if !going {
            return Err(crew.failure());
        }
        watch.end()?;
        let lag = lag.map(join).transpose()?;
        crew.release();
        let handles = std::mem::take(&mut crew.handles);
        let outcomes = handles.into_iter().map(join).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(report(options, &outcomes, watch, lag))
    })
}

/// What a thread does: connect, warm up, measure, tidy up, each when all the others have done the one before.
fn work(
    options: &Options,
    workload: &Workload,
    dialer: &Dialer,
    stop: &AtomicBool,
    thread: usize,
    tell: &Sender<bool>,
    go: &Receiver<()>,
) -> anyhow::Result<Outcome> {
    let turn = || {
        tell.send(true)?;
        go.recv().map_err(|_| anyhow!(Stopped))
    };
    let requests = Requests::new(workload, thread as u64, options.threads as u64)?;
    let mut worker = Worker::open(options, dialer, requests, stop, thread)?;
    turn()?;
    worker.warm_up()?;
    turn()?;
    let outcome = worker.measure()?;
    turn()?;
    worker.close()?;
    Ok(outcome)
}

/// The threads that drive.
struct Crew<'scope, 'a> {
    go: Vec<Sender<()>>,
    handles: Vec<ScopedJoinHandle<'scope, anyhow::Result<Outcome>>>,
    reports: Receiver<bool>,
    stop: &'a AtomicBool,
}

impl Crew<'_, '_> {
    /// Lets all go on, then waits until they have; with a watch they stay where they are. False if one failed.
    fn ready(&self, mut watch: Option<&mut Watch<'_>>) -> anyhow::Result<bool> {
        for _ in 0..self.go.len() {
            let is_ready = match &mut watch {
                Some(watch) => watch.until(&self.reports)?,
                None => self.reports.recv().unwrap_or(false),
            };
            if !is_ready {
                return Ok(false);
            }
        }
        if watch.is_none() {
            self.release();
        }
        Ok(true)
    }

    fn release(&self) {
        for go in &self.go {
            // A thread that is gone has told of it.
            let _ = go.send(());
        }
    }

    /// Stops all and says why the first one failed.
    fn failure(&mut self) -> anyhow::Error {
        self.stop.store(true, Ordering::Relaxed);
        self.go.clear();
        let handles = std::mem::take(&mut self.handles);
        let failures = handles.into_iter().filter_map(|handle| join(handle).err());
        let real = failures.filter(|error| !error.is::<Stopped>());
        real.last().unwrap_or_else(|| anyhow!("the driver stopped"))
    }
}

impl Drop for Crew<'_, '_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn join<T>(handle: ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    handle.join().unwrap_or_else(|_| bail!("a thread of the driver panicked"))
}

/// What is seen of the server from outside.
struct Watch<'a> {
    options: &'a Options,
    start: Instant,
    before: Option<Usage>,
    samples: Vec<Seen>,
    last: Seen,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    usage: Option<Usage>,
    disk: Option<u64>,
}

impl<'a> Watch<'a> {
    fn start(options: &'a Options) -> anyhow::Result<Self> {
        let before = options.process.map(Usage::of).transpose()?;
        Ok(Self { options, start: clock::now(), before, samples: Vec::new(), last: Seen::default() })
    }

    /// Looks at the server each time a sample is due until a thread tells something.
    fn until(&mut self, reports: &Receiver<bool>) -> anyhow::Result<bool> {
        let every = self.options.sample_every;
        loop {
            let count = u32::try_from(self.samples.len()).unwrap_or(u32::MAX);
            let due = every.saturating_mul(count.saturating_add(1));
            let watched = self.options.process.is_some() || !self.options.disk.is_empty();
            if every.is_zero() || due > self.options.duration || !watched {
                return Ok(reports.recv().unwrap_or(false));
            }
            match reports.recv_timeout(due.saturating_sub(self.start.elapsed())) {
                Ok(is_ready) => return Ok(is_ready),
                Err(RecvTimeoutError::Timeout) => {
                    let seen = self.look()?;
                    self.samples.push(seen);
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
    }

    fn look(&self) -> anyhow::Result<Seen> {
        let usage = self.options.process.map(Usage::of).transpose()?;
        let disk = match self.options.disk.as_slice() {
            [] => None,
            paths => Some(disk_bytes(paths)?),
        };
        Ok(Seen { usage, disk })
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.last = self.look().context("at the end of the measurement")?;
        Ok(())
    }

    /// Seconds of the server's CPU time from one look to another.
    fn cpu_between(from: Option<Usage>, to: Option<Usage>) -> Option<f64> {
        Some(to?.cpu_seconds - from?.cpu_seconds)
    }
}

/// Puts together what the threads and the watch have seen.
fn report(options: &Options, outcomes: &[Outcome], watch: Watch<'_>, lag: Option<Lag>) -> Report {
    let mut report = Report {
        operations: 0,
        seconds: outcomes.iter().map(|outcome| outcome.seconds).fold(0.0, f64::max),
        failures: Vec::new(),
        entries: 0,
        latency_us: empty_latency(),
        by_operation: Vec::new(),
        samples: samples(options, outcomes, &watch),
        unexpected: Vec::new(),
        server_cpu_seconds: Watch::cpu_between(watch.before, watch.last.usage),
        server_resident: watch.last.usage.map(|usage| usage.resident),
        disk_bytes: watch.last.disk,
        generator_cpu_seconds: outcomes.iter().map(|outcome| outcome.usage.cpu_seconds).sum(),
        saturated: saturated(options, outcomes),
        lag,
        sequence_end: outcomes.iter().map(|outcome| outcome.sequence_end).max().unwrap_or(0),
    };
    for outcome in outcomes {
        add_steps(&mut report.by_operation, outcome);
        for (code, count) in &outcome.tally.failures {
            match report.failures.iter_mut().find(|(known, _)| known == code) {
                Some((_, sum)) => *sum += count,
                None => report.failures.push((*code, *count)),
            }
        }
        for wrong in outcome.tally.unexpected() {
            let same = |known: &&mut super::Unexpected| known.step == wrong.step && known.what == wrong.what;
            match report.unexpected.iter_mut().find(same) {
                Some(known) => known.count += wrong.count,
                None => report.unexpected.push(wrong),
            }
        }
    }
    for operation in &report.by_operation {
        report.operations += operation.operations;
        report.entries += operation.entries;
        // All have the same bounds and precision.
        let _ = report.latency_us.add(&operation.latency_us);
    }
    report.failures.sort_unstable();
    report
}

fn add_steps(into: &mut Vec<OperationReport>, outcome: &Outcome) {
    for (index, step) in outcome.tally.steps.iter().enumerate() {
        let Some(sum) = into.get_mut(index) else {
            into.push(step.report.clone());
            continue;
        };
        sum.operations += step.report.operations;
        sum.failures += step.report.failures;
        sum.entries += step.report.entries;
        let _ = sum.latency_us.add(&step.report.latency_us);
    }
}

fn samples(options: &Options, outcomes: &[Outcome], watch: &Watch<'_>) -> Vec<Sample> {
    let count = outcomes.iter().map(|outcome| outcome.tally.samples.len()).min().unwrap_or(0);
    let mut before = watch.before;
    let mut all = Vec::with_capacity(count);
    for index in 0..count {
        let mut operations = 0;
        let mut latency = empty_latency();
        for sample in outcomes.iter().filter_map(|outcome| outcome.tally.samples.get(index)) {
            operations += sample.operations;
            let _ = latency.add(&sample.latency_us);
        }
        // The last one may end with the measurement.
        let seen = watch.samples.get(index).copied().unwrap_or(watch.last);
        all.push(Sample {
            at: options.sample_every.as_secs_f64() * (index + 1) as f64,
            operations,
            p99_us: (operations > 0).then(|| latency.value_at_quantile(0.99)),
            server_cpu_seconds: Watch::cpu_between(before, seen.usage),
            server_resident: seen.usage.map(|usage| usage.resident),
            disk_bytes: seen.disk,
        });
        before = seen.usage;
    }
    all
}

/// Why the figures are the driver's own limits, where they are.
fn saturated(options: &Options, outcomes: &[Outcome]) -> Option<String> {
    let mut reasons = Vec::new();
    let busiest = outcomes.iter().max_by(|a, b| busy(a).total_cmp(&busy(b)));
    if let Some(outcome) = busiest.filter(|outcome| busy(outcome) > BUSY_MAX) {
        let percent = |seconds: f64| 100.0 * seconds / outcome.seconds;
        reasons.push(format!(
            "a thread of the driver ran {:.0} % of the time and waited {:.0} % for a free core: use more --threads, or \
             another machine for the driver",
            percent(outcome.usage.cpu_seconds),
            percent(outcome.usage.waited_seconds)
        ));
    }
    let backlogs: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.backlog).collect();
    let seconds = backlogs.iter().map(|backlog| backlog.seconds).fold(0.0, f64::max);
    if let (Some(rate), true) = (options.rate, seconds > BEHIND_MAX) {
        let sum = |part: fn(&super::worker::Backlog) -> u64| backlogs.iter().map(part).sum::<u64>();
        reasons.push(format!(
            "{rate} requests per second could not be sent: at the end {} of {} were due and not sent, the oldest for \
             {seconds:.3} s; the latency is that of those that were sent",
            sum(|backlog| backlog.unsent),
            sum(|backlog| backlog.due)
        ));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// The part of the time in which a thread ran or wanted to.
fn busy(outcome: &Outcome) -> f64 {
    (outcome.usage.cpu_seconds + outcome.usage.waited_seconds) / outcome.seconds.max(f64::MIN_POSITIVE)
}

fn check_reconnecting(options: &Options, workload: &Workload) -> anyhow::Result<()> {
    let reconnects = |operation: &Operation| matches!(operation, Operation::Bind { reconnect: true, .. });
    let some = workload.steps.iter().any(|step| step.weight > 0 && reconnects(&step.operation));
    if some && options.in_flight > 1 {
        bail!("binds that reconnect need connections with one request in flight, not {}", options.in_flight);
    }
    if some && matches!(options.server.security, super::Security::StartTls(_)) {
        bail!("binds that reconnect cannot use StartTLS: give ldaps://");
    }
    Ok(())
}

/// Raises the limit of open files as far as it is needed.
fn allow_files(connections: usize) -> anyhow::Result<()> {
    let needed = connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        bail!(
            "{connections} connections need {needed} open files and this process may have {maximum}: raise the hard \
             limit (ulimit -Hn)"
        );
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .with_context(|| format!("cannot allow {needed} open files"))
}
