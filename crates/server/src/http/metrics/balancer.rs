//! What a balancer does, standalone or inside the server (`backend lload`).

use std::fmt;

use larix_balance::{CODES, Figures, OPERATIONS, POOLS, PeerFault, ServerFigures};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{NANOSECONDS, buckets, counter, gauge};

/// Writes the figures of a balancer.
///
/// # Errors
/// A figure that has no text.
pub fn encode_balancer(figures: &Figures, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let balancer = Balancer { figures };
    balancer.clients(out)?;
    balancer.servers(out)?;
    balancer.operations(out)?;
    balancer.errors(out)
}

struct Balancer<'f> {
    figures: &'f Figures,
}

fn labels(server: &ServerFigures) -> [(&'static str, String); 2] {
    [("tier", server.tier.to_string()), ("server", server.url.clone())]
}

/// The labels of a server, and one more.
fn labels_with(server: &ServerFigures, name: &'static str, value: &str) -> [(&'static str, String); 3] {
    let [tier, url] = labels(server);
    [tier, url, (name, value.to_owned())]
}

impl Balancer<'_> {
    fn clients(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counters = &self.figures.counters;
        gauge(out, "balance_clients", "Connections of clients that are open", self.figures.clients as f64)?;
        let help = "Connections of clients since the start";
        counter(out, "balance_clients_accepted", help, counters.clients)?;
        let help = "Clients whose request waits for a connection to a server";
        let mut metric = out.encode_descriptor("balance_clients_waiting", help, None, MetricType::Gauge)?;
        for (pool, waiting) in POOLS.into_iter().zip(self.figures.waiting) {
            ConstGauge::new(waiting as f64).encode(metric.encode_family(&[("pool", pool)])?)?;
        }
        counter(out, "balance_operations_forwarded", "Operations that were forwarded", counters.forwarded)?;
        let help = "Operations that ended without their server's answer";
        let mut metric =
            out.encode_descriptor("balance_operations_ended", help, None, MetricType::Counter)?;
        for (why, count) in [
            ("refused", counters.refused),
            ("unavailable", counters.unavailable),
            ("busy", counters.busy),
            ("late", counters.late),
            ("abandoned", counters.abandoned),
            ("slow-client", counters.slow_clients),
        ] {
            ConstCounter::new(count).encode(metric.encode_family(&[("why", why)])?)?;
        }
        Ok(())
    }

    fn servers(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, figure) in [
            (
                "balance_server_connections",
                "Connections to a server that take operations",
                (|server| server.ready) as fn(&ServerFigures) -> [usize; 2],
            ),
            ("balance_server_connections_wanted", "Connections to a server that there are to be", |server| {
                server.wanted
            }),
        ] {
            let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for server in &self.figures.servers {
                for (pool, count) in POOLS.into_iter().zip(figure(server)) {
                    let labels = labels_with(server, "pool", pool);
                    ConstGauge::new(count as f64).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        for (name, help, figure) in [
            (
                "balance_server_under_way",
                "Operations that a server has not answered yet, binds left out",
                (|server| server.under_way as f64) as fn(&ServerFigures) -> f64,
            ),
            (
                "balance_server_latency_seconds",
                "How long a server takes to its first answer, on average over the last operations",
                |server| server.latency,
            ),
        ] {
            let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for server in &self.figures.servers {
                ConstGauge::new(figure(server)).encode(metric.encode_family(&labels(server))?)?;
            }
        }
        Ok(())
    }

    fn operations(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Operations that were sent to a server";
        let mut metric =
            out.encode_descriptor("balance_operations_started", help, None, MetricType::Counter)?;
        for server in &self.figures.servers {
            for (operation, count) in OPERATIONS.into_iter().zip(server.started) {
                let labels = labels_with(server, "operation", operation);
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
            }
        }
        let help = "From the request to a server's last answer";
        let mut metric =
            out.encode_descriptor("balance_operation_seconds", help, None, MetricType::Histogram)?;
        for server in &self.figures.servers {
            for (operation, durations) in OPERATIONS.into_iter().zip(&server.durations) {
                let labels = labels_with(server, "operation", operation);
                metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                    durations.nanoseconds as f64 / NANOSECONDS,
                    durations.count(),
                    &buckets(durations),
                    None,
                )?;
            }
        }
        Ok(())
    }

    fn errors(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Answers of a server by their result code";
        let mut metric = out.encode_descriptor("balance_results", help, None, MetricType::Counter)?;
        for server in &self.figures.servers {
            for (code, count) in server.results.iter().enumerate().filter(|(_, count)| **count > 0) {
                let code = if code + 1 == CODES { "other".to_owned() } else { code.to_string() };
                let labels = labels_with(server, "code", &code);
                ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
            }
        }
        let help = "What went wrong at a server: operations lost with their connection, operations without an answer in time, \
                    connections that could not be made";
        let mut metric = out.encode_descriptor("balance_server_errors", help, None, MetricType::Counter)?;
        for server in &self.figures.servers {
            for (what, count) in
                [("lost", server.lost), ("late", server.late), ("unreached", server.unreached)]
            {
                let labels = labels_with(server, "what", what);
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
            }
        }
        let help = "Connections to a server that ended with a fault";
        let mut metric = out.encode_descriptor("balance_server_faults", help, None, MetricType::Counter)?;
        for server in &self.figures.servers {
            for (fault, count) in
                PeerFault::NAMES.into_iter().zip(server.faults).filter(|(_, count)| *count > 0)
            {
                let labels = labels_with(server, "fault", fault);
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
