//! Drives an LDAP server: one thread, many connections, a fixed number of requests in flight on each.
//!
//! The loop is light on purpose: a request is a few copies into a buffer, an answer is framed and only its result code
//! is read, so that one core of the driver outruns a server's core.

mod clock;
mod connection;
mod optimize;
mod options;
mod process;
mod report;
mod targets;
mod workload;

use std::time::Duration;

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};

use crate::generate::Random;
use connection::Connection;
pub use larix_proto::{ModifyOperation, Scope};
pub use optimize::{GAIN_MIN, Growth, Optimum, STEPS_WITHOUT_GAIN, Steps, optimize, optimize_by};
pub use options::{
    Address, CONNECTIONS_MAX, IN_FLIGHT_MAX, Identity, LagOptions, Options, OptionsError, RATE_MAX, Security,
    Server, THREADS_MAX, Trust,
};
pub use process::Usage;
use report::empty_latency;
pub use report::{Lag, OperationReport, Report, Sample, Unexpected};
pub use targets::{Order, Targets};
pub use workload::{Change, Expect, Operation, SearchTemplate, Step, Workload};

/// Runs `workload` and measures it.
///
/// # Errors
/// A server that cannot be reached, refuses the bind, closes a connection or answers what cannot be decoded.
pub fn run(options: &Options, workload: &Workload) -> anyhow::Result<Report> {
    options.check()?;
    workload.check()?;
    let mut connections = (0..options.connections)
        .map(|_| Connection::open(&options.server, &options.identity))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut driver =
        Driver { workload, random: Random::new(options.seed), sequence: 0, report: empty_report() };
    driver.drive(&mut connections, options.in_flight, options.warm_up)?;
    driver.report = empty_report();
    let before = options.process.map(Usage::of).transpose()?;
    let start = clock::now();
    driver.drive(&mut connections, options.in_flight, options.duration)?;
    driver.report.seconds = start.elapsed().as_secs_f64();
    if let (Some(before), Some(process)) = (before, options.process) {
        let after = Usage::of(process)?;
        driver.report.server_cpu_seconds = Some(after.cpu_seconds - before.cpu_seconds);
        driver.report.server_resident = Some(after.resident);
    }
    for connection in &mut connections {
        connection.unbind();
    }
    driver.report.failures.sort_unstable();
    driver.report.sequence_end = workload.sequence_start + driver.sequence;
    Ok(driver.report)
}

fn empty_report() -> Report {
    Report {
        operations: 0,
        seconds: 0.0,
        failures: Vec::new(),
        entries: 0,
        latency_us: empty_latency(),
        by_operation: Vec::new(),
        samples: Vec::new(),
        unexpected: Vec::new(),
        server_cpu_seconds: None,
        server_resident: None,
        disk_bytes: None,
        generator_cpu_seconds: 0.0,
        saturated: None,
        lag: None,
        sequence_end: 0,
    }
}

struct Driver<'a> {
    workload: &'a Workload,
    random: Random,
    sequence: u64,
    report: Report,
}

impl Driver<'_> {
    /// Keeps `in_flight` requests on every connection for `duration`, then waits for the answers still out.
    fn drive(
        &mut self,
        connections: &mut [Connection],
        in_flight: usize,
        duration: Duration,
    ) -> anyhow::Result<()> {
        let end = clock::now() + duration;
        loop {
            let more = clock::now() < end;
            if more {
                for connection in connections.iter_mut() {
                    while connection.in_flight() < in_flight {
                        self.sequence += 1;
                        connection.request(self.workload, self.sequence, &mut self.random);
                    }
                    connection.send()?;
                }
            } else if connections.iter().all(|connection| connection.in_flight() == 0) {
                return Ok(());
            }
            let ready = wait(connections)?;
            for (connection, ready) in connections.iter_mut().zip(ready) {
                if ready {
                    connection.send()?;
                    connection.receive(&mut self.report)?;
                }
            }
        }
    }
}

/// Waits until at least one connection can go on; says which.
fn wait(connections: &[Connection]) -> anyhow::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = connections
        .iter()
        .map(|connection| {
            let write = if connection.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
            PollFd::new(connection.socket(), PollFlags::IN | write)
        })
        .collect();
    let timeout = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
    if poll(&mut polled, Some(&timeout)).context("poll")? == 0 {
        bail!("the server gave no answer for 30 seconds");
    }
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}
