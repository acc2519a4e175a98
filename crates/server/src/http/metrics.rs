//! `/metrics`: what cn=Monitor shows and latencies, as OpenMetrics text for Prometheus.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use larix_engine::histogram::Durations;
use larix_engine::time::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

mod balancer;
#[cfg(feature = "kv")]
mod nodes;
mod proxies;
mod replication;

pub use balancer::encode_balancer;

use super::Answer;
use crate::server::Server;
use crate::statistics::latency::BOUNDS;
use crate::statistics::{Counters, LimitReached, OperationKind};
use crate::{overlay_threads, panics};
use larix_backend::DatabaseFigures;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// In a second.
const MICROSECONDS: f64 = 1e6;
const NANOSECONDS: f64 = 1e9;

pub(super) fn answer(server: &Arc<Server>) -> Answer {
    page(Figures(server.clone()))
}

/// The page of some figures, whose names begin with `larix`.
pub fn page(figures: impl Collector) -> Answer {
    let mut registry = Registry::with_prefix("larix");
    registry.register_collector(Box::new(figures));
    let mut out = String::with_capacity(16 * 1024);
    match text::encode(&mut out, &registry) {
        Ok(()) => Answer { status: StatusCode::OK, content_type: CONTENT_TYPE, text: out },
        // Writing into a string fails only where a figure has no text.
        Err(error) => {
            Answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("a figure cannot be written: {error}\n"))
        }
    }
}

#[derive(Debug)]
struct Figures(Arc<Server>);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        self.server(out)?;
        self.connections(out)?;
        self.operations(out)?;
        self.traffic(out)?;
        self.limits(out)?;
        self.queues(out)?;
        self.databases(out)?;
        replication::encode(&self.0, out)?;
        proxies::encode(&self.0, out)?;
        if let Some(figures) = self.0.balancer.totals() {
            encode_balancer(&figures, out)?;
        }
        #[cfg(feature = "kv")]
        nodes::encode(&self.0, out)?;
        self.overlays(out)?;
        self.traces(out)?;
        self.backups(out)
    }
}

impl Figures {
    fn server(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Which Larix this is";
        let mut info = out.encode_descriptor("build", help, None, MetricType::Info)?;
        info.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let started = self.0.statistics.started.0 as f64 / MICROSECONDS;
        gauge(out, "start_time_seconds", "When the server started, in seconds since 1970", started)?;
        counter(out, "panics", "Panics in any thread, which are bugs: the log tells where", panics::count())
    }

    fn connections(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let statistics = &self.0.statistics;
        let open = statistics.current_connections() as f64;
        gauge(out, "connections", "Connections that are open", open)?;
        let most = self.0.admission.connections_max() as f64;
        gauge(out, "connections_limit", "Connections that may be open", most)?;
        counter(out, "connections_accepted", "Connections since the start", statistics.total_connections())?;
        let refused = self.0.admission.refused();
        let help = "Connections, operations and binds refused by client-limits";
        let mut metric = out.encode_descriptor("client_limits_refused", help, None, MetricType::Counter)?;
        for (what, count) in [
            ("connection", &refused.connections),
            ("operation", &refused.operations),
            ("bind", &refused.binds),
        ] {
            let count = ConstCounter::new(count.load(Ordering::Relaxed));
            count.encode(metric.encode_family(&[("what", what)])?)?;
        }
        Ok(())
    }

    fn operations(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let statistics = &self.0.statistics;
        let label = |name: &str| [("operation", name.to_ascii_lowercase())];
        let mut metric =
            out.encode_descriptor("operations_started", "Operations begun", None, MetricType::Counter)?;
        for (kind, name) in OperationKind::ALL {
            let begun = ConstCounter::new(statistics.initiated(kind));
            begun.encode(metric.encode_family(&label(name))?)?;
        }
        let help = "From the arrival of a request to its answer; searches with all their entries";
        let mut metric = out.encode_descriptor("operation_seconds", help, None, MetricType::Histogram)?;
        for (kind, name) in OperationKind::ALL.into_iter().filter(|(kind, _)| kind.is_answered()) {
            let figures = statistics.latency(kind);
            let seconds = figures.nanoseconds as f64 / NANOSECONDS;
            metric.encode_family(&label(name))?.encode_histogram::<NoLabelSet>(
                seconds,
                figures.count(),
                &buckets(&figures),
                None,
            )?;
        }
        Ok(())
    }

    /// Overlays that see committed changes or have ticks.
    fn overlays(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.overlay_threads.figures();
        if all.is_empty() {
            return Ok(());
        }
        type Figure = fn(&overlay_threads::Figures) -> &AtomicU64;
        let figures: [(&str, Figure); 6] = [
            ("taken", |f| &f.taken),
            ("missed", |f| &f.missed),
            ("failed", |f| &f.failed),
            ("panicked", |f| &f.panics),
            ("ticked", |f| &f.ticked),
            ("reported", |f| &f.reported),
        ];
        let help = "What overlays beside operations did: committed changes taken and missed, failures, panics, changes of ticks, warnings";
        let mut metric = out.encode_descriptor("overlay_work", help, None, MetricType::Counter)?;
        for (suffix, overlay, own) in &all {
            for (what, figure) in figures {
                let count = ConstCounter::new(figure(own).load(Ordering::Relaxed));
                let labels = [("suffix", suffix.as_str()), ("overlay", overlay.as_str()), ("what", what)];
                count.encode(metric.encode_family(&labels)?)?;
            }
        }
        let help = "Records of the change log that an overlay has still to see";
        let mut metric = out.encode_descriptor("overlay_behind", help, None, MetricType::Gauge)?;
        for (suffix, overlay, own) in &all {
            let behind = ConstGauge::new(own.behind.load(Ordering::Relaxed) as f64);
            let labels = [("suffix", suffix.as_str()), ("overlay", overlay.as_str())];
            behind.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn traces(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let figures = self.0.traces.figures();
        let help = "Spans that trace-export sent, or lost because too many waited or the collector took none";
        let mut metric = out.encode_descriptor("trace_spans", help, None, MetricType::Counter)?;
        for (what, count) in [("sent", &figures.sent), ("lost", &figures.lost)] {
            let count = ConstCounter::new(count.load(Ordering::Relaxed));
            count.encode(metric.encode_family(&[("what", what)])?)?;
        }
        Ok(())
    }

    fn traffic(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Figure = fn(&Counters) -> &AtomicU64;
        let figures: [(&str, &str, Figure); 4] = [
            ("sent_bytes", "Bytes of LDAP sent", |c| &c.bytes_sent),
            ("sent_messages", "LDAP messages sent", |c| &c.pdus_sent),
            ("sent_entries", "Entries sent", |c| &c.entries_sent),
            ("sent_references", "Continuation references sent", |c| &c.references_sent),
        ];
        figures
            .into_iter()
            .try_for_each(|(name, help, figure)| counter(out, name, help, self.0.statistics.sum(figure)))
    }

    fn limits(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests that a limit ended or refused";
        let mut metric = out.encode_descriptor("limits_reached", help, None, MetricType::Counter)?;
        for (limit, name) in LimitReached::ALL {
            let count = ConstCounter::new(self.0.statistics.limit_reached(limit));
            count.encode(metric.encode_family(&[("limit", name.to_ascii_lowercase())])?)?;
        }
        Ok(())
    }

    fn queues(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (log, passwords) = (&self.0.log, self.0.passwords.waiting() as f64);
        gauge(out, "passwords_waiting", "Passwords that wait to be hashed or compared", passwords)?;
        let searches = self.0.long_searches.waiting() as f64;
        gauge(out, "long_searches_waiting", "Long searches that wait for a turn", searches)?;
        gauge(out, "log_waiting_bytes", "Bytes of log lines that wait to be written", log.waiting() as f64)?;
        counter(out, "log_lines_dropped", "Log lines dropped because too many waited", log.lost())?;
        let help = "Log lines that the log file, syslog or the journal did not take";
        counter(out, "log_lines_not_written", help, log.unwritten())
    }

    /// Nothing where no backups are scheduled.
    fn backups(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let status = self.0.backups.status();
        if !status.scheduled {
            return Ok(());
        }
        let time = |time: Option<Timestamp>| time.map_or(0.0, |t| t.0 as f64 / MICROSECONDS);
        for (name, help, value) in [
            (
                "backup_running",
                "1 while a scheduled backup is being made",
                f64::from(u8::from(status.running)),
            ),
            (
                "backup_last_success_timestamp_seconds",
                "When the last scheduled backup was complete, in seconds since 1970; 0 for never",
                time(status.last_success),
            ),
            (
                "backup_covers_timestamp_seconds",
                "Every change up to this moment is in a scheduled backup, in seconds since 1970",
                time(status.covers),
            ),
            ("backup_bytes", "Of the last full backup and its increments", status.bytes as f64),
            (
                "backup_last_duration_seconds",
                "How long the last scheduled backup took",
                status.last_micros as f64 / MICROSECONDS,
            ),
            (
                "backup_last_failure_timestamp_seconds",
                "When the last try failed, in seconds since 1970; 0 once one has succeeded since, and for never",
                time(status.last_error.as_ref().map(|(time, _)| *time)),
            ),
            (
                "backup_failed",
                "1 when the last try to make a scheduled backup failed",
                f64::from(u8::from(status.last_error.is_some())),
            ),
        ] {
            gauge(out, name, help, value)?;
        }
        counter(out, "backups_made", "Scheduled backups since the start", status.successes)?;
        counter(out, "backups_failed", "Scheduled backups that failed since the start", status.failures)
    }

    fn databases(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Figure = fn(&DatabaseFigures) -> u64;
        let databases = self.0.databases().stored_figures();
        let gauges: [(&str, &str, Figure); 10] = [
            ("database_entries", "Entries", |d| d.store.entries),
            ("database_pages_used", "Pages of the file that hold something or wait to be reused", |d| {
                d.store.pages_used
            }),
            ("database_pages_free", "Of these, pages that wait to be reused", |d| d.store.pages_free),
            ("database_readers", "Read transactions that are open or kept", |d| d.store.readers_used),
            ("database_writes_waiting", "Changes that wait for the writer", |d| d.writes_waiting),
            (
                "database_sync_failed",
                "1 after a sync that failed, or behind a data file that was replaced: no change is taken any more",
                |d| u64::from(d.sync_failed),
            ),
            (
                "database_full",
                "1 while changes find no room on the disk, or in the map; smaller ones may find some",
                |d| u64::from(d.full),
            ),
            ("database_largest_group", "Changes in the largest group committed so far", |d| {
                d.writes.largest_group
            }),
            ("change_log_first", "The oldest record of the change log; 0 for none", |d| d.writes.log_first),
            ("change_log_last", "The newest record of the change log; 0 for none", |d| d.writes.log_last),
        ];
        for (name, help, figure) in gauges {
            let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for database in &databases {
                let value = ConstGauge::new(figure(database) as f64);
                value.encode(metric.encode_family(&[("suffix", database.suffix.as_str())])?)?;
            }
        }
        let counters: [(&str, &str, Figure); 2] = [
            ("database_changes", "Changes in groups that were committed, refused ones included", |d| {
                d.writes.changes
            }),
            ("searches_not_indexed", "Searches that had to look at every entry", |d| d.not_indexed),
        ];
        for (name, help, figure) in counters {
            let mut metric = out.encode_descriptor(name, help, None, MetricType::Counter)?;
            for database in &databases {
                let value = ConstCounter::new(figure(database));
                value.encode(metric.encode_family(&[("suffix", database.suffix.as_str())])?)?;
            }
        }
        log_times(out, &databases)?;
        oldest_reads(out, &databases)?;
        commits(out, &databases)?;
        indexes(out, &databases)
    }
}

fn log_times(out: &mut DescriptorEncoder<'_>, databases: &[DatabaseFigures]) -> fmt::Result {
    type Time = fn(&(Timestamp, Timestamp)) -> Timestamp;
    let times: [(&str, &str, Time); 2] = [
        ("change_log_first_timestamp_seconds", "When the oldest change in the change log was made", |t| t.0),
        ("change_log_last_timestamp_seconds", "When the newest change in the change log was made", |t| t.1),
    ];
    for (name, help, time) in times {
        let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for database in databases {
            let Some(times) = &database.log_times else { continue };
            let value = ConstGauge::new(time(times).0 as f64 / MICROSECONDS);
            value.encode(metric.encode_family(&[("suffix", database.suffix.as_str())])?)?;
        }
    }
    Ok(())
}

/// 0 while nothing is read.
fn oldest_reads(out: &mut DescriptorEncoder<'_>, databases: &[DatabaseFigures]) -> fmt::Result {
    let help = "How long the oldest read transaction has been open: so long pages have not been reused";
    let mut metric = out.encode_descriptor("database_oldest_read_seconds", help, None, MetricType::Gauge)?;
    for database in databases {
        let value = ConstGauge::new(database.store.oldest_read.unwrap_or_default().as_secs_f64());
        value.encode(metric.encode_family(&[("suffix", database.suffix.as_str())])?)?;
    }
    Ok(())
}

/// One commit a group of changes.
fn commits(out: &mut DescriptorEncoder<'_>, databases: &[DatabaseFigures]) -> fmt::Result {
    let help = "How long commits took, the sync to the disk included";
    let mut metric = out.encode_descriptor("commit_seconds", help, None, MetricType::Histogram)?;
    for database in databases {
        let commits = &database.writes.commits;
        let seconds = commits.nanoseconds as f64 / NANOSECONDS;
        metric.encode_family(&[("suffix", database.suffix.as_str())])?.encode_histogram::<NoLabelSet>(
            seconds,
            commits.count(),
            &buckets(commits),
            None,
        )?;
    }
    Ok(())
}

fn indexes(out: &mut DescriptorEncoder<'_>, databases: &[DatabaseFigures]) -> fmt::Result {
    let help = "How often an index was read for a search";
    let mut metric = out.encode_descriptor("index_searches", help, None, MetricType::Counter)?;
    for database in databases {
        for status in &database.indexes {
            for used in &status.uses {
                let (suffix, attribute) = (database.suffix.as_str(), status.attribute.as_str());
                let labels = [("suffix", suffix), ("attribute", attribute), ("kind", used.kind.name())];
                ConstCounter::new(used.searches).encode(metric.encode_family(&labels)?)?;
            }
        }
    }
    let help = "How much of an index that is being built is done, from 0 to 1";
    let mut metric = out.encode_descriptor("index_build_ratio", help, None, MetricType::Gauge)?;
    for database in databases {
        for status in database.indexes.iter().filter(|status| !status.working.is_empty()) {
            let labels = [("suffix", database.suffix.as_str()), ("attribute", status.attribute.as_str())];
            let ratio = status.done as f64 / status.total.max(1) as f64;
            ConstGauge::new(ratio.min(1.0)).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// One figure that goes up and down.
///
/// # Errors
/// It has no text.
pub fn gauge(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    ConstGauge::new(value).encode(out.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

/// One count since the start.
///
/// # Errors
/// It has no text.
pub fn counter(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    ConstCounter::new(count).encode(out.encode_descriptor(name, help, None, MetricType::Counter)?)
}

/// Upper bounds in seconds, each with its own count.
pub fn buckets(figures: &Durations) -> Vec<(f64, u64)> {
    let bounds = BOUNDS.iter().map(|bound| *bound as f64 / NANOSECONDS).chain([f64::INFINITY]);
    bounds.zip(figures.by_bounds(&BOUNDS)).collect()
}
