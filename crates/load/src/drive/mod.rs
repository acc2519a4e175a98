//! Drives an LDAP server: one thread, many connections, a fixed number of requests in flight on each.
//!
//! The loop is light on purpose: a request is a few copies into a buffer, an answer is framed and only its result code
//! is read, so that one core of the driver outruns a server's core.

mod clock;
mod connection;
mod process;
mod workload;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, poll};

use crate::generate::Random;
use connection::Connection;
pub use process::Usage;
pub use workload::{Operation, Workload};

/// The most connections of one driver.
pub const CONNECTIONS_MAX: usize = 10_000;
/// The most requests in flight on one connection; servers refuse more from a client.
pub const IN_FLIGHT_MAX: usize = 100;

/// Latencies above an hour are counted as an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// What to drive and how hard.
#[derive(Clone, Debug)]
pub struct Options {
    pub server: SocketAddr,
    /// Name and password of the simple bind on each connection; none for anonymous.
    pub bind: Option<(String, String)>,
    pub connections: usize,
    pub in_flight: usize,
    /// How long is measured.
    pub duration: Duration,
    /// How long is driven before the measurement starts.
    pub warm_up: Duration,
    /// The server's process, for its CPU time and resident memory.
    pub process: Option<u32>,
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    pub operations: u64,
    pub seconds: f64,
    /// Answers with a result code other than success (0), compareFalse (5) and compareTrue (6), by code.
    pub failures: Vec<(u32, u64)>,
    pub entries: u64,
    /// Microseconds from the moment the request was buffered to the moment its result was read.
    pub latency_us: Histogram<u64>,
    /// CPU seconds (user and system) of the server in the measured time.
    pub server_cpu_seconds: Option<f64>,
    /// Resident bytes of the server at the end.
    pub server_resident: Option<u64>,
}

impl Report {
    /// Operations per second of wall time.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Operations per second of the server's CPU time.
    pub fn per_cpu_second(&self) -> Option<f64> {
        self.server_cpu_seconds.filter(|cpu| *cpu > 0.0).map(|cpu| self.operations as f64 / cpu)
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "operations": self.operations,
            "seconds": self.seconds,
            "per_second": self.rate(),
            "per_cpu_second": self.per_cpu_second(),
            "entries": self.entries,
            "failures": self.failures,
            "latency_us": {
                "p50": self.latency_us.value_at_quantile(0.5),
                "p90": self.latency_us.value_at_quantile(0.9),
                "p99": self.latency_us.value_at_quantile(0.99),
                "p999": self.latency_us.value_at_quantile(0.999),
                "max": self.latency_us.max(),
            },
            "server_cpu_seconds": self.server_cpu_seconds,
            "server_resident_bytes": self.server_resident,
        })
    }
}

/// Runs `workload` and measures it.
///
/// # Errors
/// A server that cannot be reached, refuses the bind, closes a connection or answers what cannot be decoded.
pub fn run(options: &Options, workload: &Workload) -> anyhow::Result<Report> {
    if options.connections == 0 || options.connections > CONNECTIONS_MAX {
        bail!("{} connections: 1 to {CONNECTIONS_MAX} can be driven", options.connections);
    }
    if options.in_flight == 0 || options.in_flight > IN_FLIGHT_MAX {
        bail!("{} requests in flight: 1 to {IN_FLIGHT_MAX} can be kept", options.in_flight);
    }
    let mut connections = (0..options.connections)
        .map(|_| Connection::open(options.server, options.bind.as_ref()))
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
    Ok(driver.report)
}

fn empty_report() -> Report {
    // From a microsecond to an hour, three digits: both are in the range that the histogram takes.
    let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)
        .unwrap_or_else(|_| unreachable!("the bounds and the precision are in range"));
    Report {
        operations: 0,
        seconds: 0.0,
        failures: Vec::new(),
        entries: 0,
        latency_us,
        server_cpu_seconds: None,
        server_resident: None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_recorded_as_they_are() {
        let mut report = empty_report();
        for micros in [3, 80_000, LATENCY_US_MAX * 2] {
            report.latency_us.saturating_record(micros);
        }
        let at = |quantile| report.latency_us.value_at_quantile(quantile);
        assert!((79_900..80_100).contains(&at(0.5)), "{}", at(0.5));
        assert!(report.latency_us.equivalent(report.latency_us.max(), LATENCY_US_MAX));
    }
}
