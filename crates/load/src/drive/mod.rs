//! Drives an LDAP server and measures it: few threads, many connections, requests in flight on each.
//!
//! The loop is light on purpose: a request is a copy of bytes that were encoded before, with its numbers patched in; of
//! an answer only the frame, the message id and the result code are read. So one core of the driver outruns a server's.
//! With a rate the requests are sent when they are due, whatever the server does, and latency counts from then: an
//! answer that comes late delays no later request's clock (no coordinated omission).
//!
//! What one operation costs the driver (`examples/cost.rs` under callgrind, 16 connections, 2-core machine, 2026-11; the
//! start of the run is in it):
//!
//! | operation | in flight | instructions | CPU time with system calls |
//! |---|---|---|---|
//! | read | 1 | 1,620 | 8.8 us |
//! | read | 8 | 1,070 | 1.1 us |
//! | search, 2 KB back | 1 | 1,900 | 8.7 us |
//! | modify | 1 | 1,680 | 8.8 us |
//!
//! At one request in flight nearly all of it is one receive and one send, which the server has, too; with eight a core of
//! the driver makes 900,000 requests per second.

mod answer;
mod any_certificate;
mod clock;
mod connection;
mod file;
mod lag;
mod optimize;
mod options;
mod placeholder;
mod preset;
mod process;
mod report;
mod requests;
mod run;
mod tally;
mod targets;
mod transport;
mod worker;
mod workload;

pub use any_certificate::AnyCertificate;
pub use hdrhistogram::Histogram;
pub use larix_proto::{ModifyOperation, Scope};
pub use optimize::{GAIN_MIN, Growth, Optimum, STEPS_WITHOUT_GAIN, Steps, optimize, optimize_by};
pub use options::{
    Address, CONNECTIONS_MAX, IN_FLIGHT_MAX, Identity, LagOptions, Options, OptionsError, RATE_MAX, Security,
    Server, THREADS_MAX, Trust,
};
pub use preset::{Preset, Templates};
pub use process::{Usage, disk_bytes, listening_process};
pub use report::{Lag, OperationReport, Report, Sample, Unexpected};
pub use run::run;
pub use targets::{Order, Targets};
pub use transport::resolve;
pub use workload::{Change, Expect, Operation, SearchTemplate, Step, Workload};

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
