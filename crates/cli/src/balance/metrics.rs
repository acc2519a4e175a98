//! `/metrics` of a balancer.

use std::fmt;

use larix_balance::Figures;
use larix_server::http::metrics::{encode_balancer, gauge};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// A balancer at one moment, and since when it runs, in seconds since 1970.
#[derive(Debug)]
pub(super) struct BalancePage {
    pub(super) figures: Figures,
    pub(super) started: f64,
    /// Times that the configuration was read again, and that it could not be used.
    pub(super) reloads: [u64; 2],
}

impl Collector for BalancePage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        self.process(out)?;
        encode_balancer(&self.figures, out)
    }
}

impl BalancePage {
    fn process(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Which Larix this is";
        let mut info = out.encode_descriptor("build", help, None, MetricType::Info)?;
        info.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let help = "When the balancer started, in seconds since 1970";
        gauge(out, "start_time_seconds", help, self.started)?;
        let help = "Times that the configuration was read again";
        let mut metric = out.encode_descriptor("balance_reloads", help, None, MetricType::Counter)?;
        for (result, count) in ["done", "refused"].into_iter().zip(self.reloads) {
            ConstCounter::new(count).encode(metric.encode_family(&[("result", result)])?)?;
        }
        Ok(())
    }
}
