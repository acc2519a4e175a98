//! What is known of the targets of proxied databases.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larix_client::PeerFault;
use larix_proxy::Proxy;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::server::Server;

pub(super) fn encode(server: &Server, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let all = server.proxies.all();
    if all.is_empty() {
        return Ok(());
    }
    let help = "Requests to the targets of a proxied database, and connections opened to them";
    let mut metric = out.encode_descriptor("proxy_work", help, None, MetricType::Counter)?;
    for (suffix, proxy) in &all {
        let counts = proxy.counts();
        for (what, count) in [("requests", &counts.requests), ("connections", &counts.connections_opened)] {
            let labels = [("suffix", suffix.as_str()), ("what", what)];
            ConstCounter::new(count.load(Ordering::Relaxed)).encode(metric.encode_family(&labels)?)?;
        }
    }
    let help = "Requests to targets that are not answered yet";
    let mut metric = out.encode_descriptor("proxy_under_way", help, None, MetricType::Gauge)?;
    for (suffix, proxy) in &all {
        let labels = [("suffix", suffix.as_str())];
        ConstGauge::new(proxy.under_way() as f64).encode(metric.encode_family(&labels)?)?;
    }
    targets(&all, out)?;
    let help = "Connections to targets that ended for a fault of theirs";
    let mut metric = out.encode_descriptor("proxy_faults", help, None, MetricType::Counter)?;
    for (suffix, proxy) in &all {
        let counts = proxy.counts();
        let named = PeerFault::NAMES.iter().copied().zip(&counts.faults);
        for (fault, count) in named.chain([("stray-entry", &counts.strays)]) {
            let labels = [("suffix", suffix.as_str()), ("fault", fault)];
            ConstCounter::new(count.load(Ordering::Relaxed)).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// By target: whether it is used, and its health checks.
fn targets(all: &[(String, Arc<Proxy>)], out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let states: Vec<_> = all.iter().map(|(suffix, proxy)| (suffix, proxy.targets())).collect();
    let each =
        || states.iter().flat_map(|(suffix, own)| own.iter().map(move |state| (suffix.as_str(), state)));
    let help = "1 for a target that has not failed since it last answered";
    let mut metric = out.encode_descriptor("proxy_target_up", help, None, MetricType::Gauge)?;
    for (suffix, state) in each() {
        let labels = [("suffix", suffix), ("target", state.url.as_str())];
        ConstGauge::new(f64::from(u8::from(state.is_up))).encode(metric.encode_family(&labels)?)?;
    }
    let help = "Health checks of a target, by what came of them";
    let mut metric = out.encode_descriptor("proxy_target_checks", help, None, MetricType::Counter)?;
    for (suffix, state) in each() {
        for (result, count) in [("answered", state.answered), ("missed", state.missed)] {
            let labels = [("suffix", suffix), ("target", state.url.as_str()), ("result", result)];
            ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
        }
    }
    let help = "How long a target took to answer the last health check";
    let mut metric = out.encode_descriptor("proxy_target_check_seconds", help, None, MetricType::Gauge)?;
    for (suffix, state) in each().filter(|(_, state)| state.answered > 0) {
        let labels = [("suffix", suffix), ("target", state.url.as_str())];
        ConstGauge::new(state.took.as_secs_f64()).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}
