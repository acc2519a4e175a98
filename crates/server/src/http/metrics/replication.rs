//! Replication: what databases follow, and who follows this server.

use std::fmt;

use larix_engine::time::Timestamp;
use larix_replication::consumer::{ConsumerPhase, ConsumerStatus};
use larix_replication::provider::SyncPeerFigures;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{MICROSECONDS, gauge};
use crate::server::Server;

pub(super) fn encode(server: &Server, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let now = server.both_clocks().0;
    consumers(server, now, out)?;
    peers(server, out)
}

/// What databases follow.
fn consumers(server: &Server, now: Timestamp, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let started = server.statistics.started;
    let consumers = server.consumers.statuses();
    if !consumers.is_empty() {
        type Figure<'f> = &'f dyn Fn(&ConsumerStatus) -> f64;
        let truth = |value: bool| f64::from(u8::from(value));
        let gauges: [(&str, &str, Figure<'_>); 6] = [
            (
                "replication_consumer_persisting",
                "1 while changes of the provider come as they are made",
                &|c| truth(c.phase == ConsumerPhase::Persisting),
            ),
            ("replication_consumer_refreshed", "1 when a refresh was completed since the start", &|c| {
                truth(c.refreshed)
            }),
            ("replication_consumer_failed", "1 when the last session with the provider ended badly", &|c| {
                truth(c.error.is_some())
            }),
            (
                "replication_consumer_silence_seconds",
                "How long nothing was heard of the provider that could be stored; 0 while changes come as they are made",
                &|c| c.silence(now, started) as f64 / MICROSECONDS,
            ),
            (
                "replication_consumer_delay_seconds",
                "How long after it was made the last change was durable here, by both servers' clocks",
                &|c| c.last_delay.unwrap_or(0) as f64 / MICROSECONDS,
            ),
            (
                "replication_consumer_clock_ahead_seconds",
                "How far the last change was ahead of our clock, where that was more than a minute",
                &|c| c.ahead.map_or(0, |(_, ahead)| ahead) as f64 / MICROSECONDS,
            ),
        ];
        for (name, help, figure) in gauges {
            let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for consumer in &consumers {
                let rid = format!("{:03}", consumer.rid);
                let labels = [("suffix", consumer.suffix.as_str()), ("rid", rid.as_str())];
                ConstGauge::new(figure(consumer)).encode(metric.encode_family(&labels)?)?;
            }
        }
        let help = "Changes that came from providers since the start";
        let mut metric = out.encode_descriptor("replication_changes", help, None, MetricType::Counter)?;
        for consumer in &consumers {
            let (rid, counts) = (format!("{:03}", consumer.rid), &consumer.counts);
            for (what, count) in [
                ("applied", counts.applied),
                ("older", counts.older),
                ("conflict", counts.conflicts),
                ("refused", counts.refused),
                ("absent", counts.absent),
                ("ahead", counts.ahead),
            ] {
                let labels = [("suffix", consumer.suffix.as_str()), ("rid", rid.as_str()), ("what", what)];
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

/// The consumers of this server.
fn peers(server: &Server, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let databases = server.databases();
    if !databases.router().provides_content() {
        return Ok(());
    }
    let peers = server.sync_peer_figures(databases.directory().databases().iter());
    let (running, waiting) = server.refreshes.figures();
    gauge(out, "replication_peers", "Consumers that are connected", peers.len() as f64)?;
    gauge(out, "replication_refreshes", "Consumers that are brought up to date now", running as f64)?;
    gauge(out, "replication_refreshes_waiting", "Consumers that wait for their turn", waiting as f64)?;
    type Figure = fn(&SyncPeerFigures) -> f64;
    let gauges: [(&str, &str, Figure); 2] = [
        (
            "replication_peer_behind_changes",
            "Records of the change log that a consumer was not sent yet",
            |p| p.behind as f64,
        ),
        (
            "replication_peer_behind_seconds",
            "How long ago the first change was made that a consumer was not sent yet",
            |p| p.behind_micros as f64 / MICROSECONDS,
        ),
    ];
    for (name, help, figure) in gauges {
        let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for peer in &peers {
            let rid = format!("{:03}", peer.rid);
            let labels =
                [("base", peer.base.as_str()), ("rid", rid.as_str()), ("peer", peer.address.as_str())];
            ConstGauge::new(figure(peer)).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
