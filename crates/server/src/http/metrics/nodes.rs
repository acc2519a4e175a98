//! This server as a node of databases in shared engines.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::cluster::{NodeFigures, Role};
use crate::server::Server;

pub(super) fn encode(server: &Server, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let all: Vec<NodeFigures> = server.nodes.figures();
    if all.is_empty() {
        return Ok(());
    }
    type Figure = fn(&NodeFigures) -> f64;
    let gauges: [(&str, &str, Figure); 10] = [
        ("cluster_leads", "Whether this node writes", |f| f64::from(u8::from(f.role == Role::Leader))),
        ("cluster_cut_off", "Whether the engine is out of reach", |f| {
            f64::from(u8::from(f.role == Role::CutOff))
        }),
        ("cluster_full", "Whether the engine had no room for a change", |f| {
            f64::from(u8::from(f.store.lacks_room))
        }),
        ("cluster_read_only", "Whether nobody may change the database here", |f| {
            f64::from(u8::from(f.read_only))
        }),
        (
            "cluster_configuration_behind",
            "Whether the nodes' newest configuration is not in force here",
            |f| f64::from(u8::from(f.configuration.newest != f.configuration.in_force)),
        ),
        ("cluster_changes_waiting", "Changes that wait for the writer", |f| f.changes_waiting as f64),
        ("cluster_epoch", "The epoch of the newest commit known", |f| f.store.epoch as f64),
        ("cluster_commit", "The newest commit known", |f| f.store.version as f64),
        ("cluster_cache_bytes", "Bytes of the cache", |f| f.store.cache_bytes as f64),
        ("cluster_waiting", "Operations that wait for a thread", |f| f.waiting as f64),
    ];
    for (name, help, figure) in gauges {
        let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for figures in &all {
            let labels = [("suffix", figures.suffix.as_str())];
            ConstGauge::new(figure(figures)).encode(metric.encode_family(&labels)?)?;
        }
    }
    type Count = fn(&NodeFigures) -> u64;
    let counters: [(&str, &str, Count); 4] = [
        ("cluster_round_trips", "Round trips to the engine that somebody waited for", |f| f.store.trips),
        ("cluster_cache_hits", "Reads that the cache answered", |f| f.store.hits),
        ("cluster_cache_misses", "Reads that the engine answered", |f| f.store.misses),
        ("cluster_conflicts", "Commits that another one came before", |f| f.store.conflicts),
    ];
    for (name, help, count) in counters {
        let mut metric = out.encode_descriptor(name, help, None, MetricType::Counter)?;
        for figures in &all {
            let labels = [("suffix", figures.suffix.as_str())];
            ConstCounter::new(count(figures)).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
