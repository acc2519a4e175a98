//! Tiers and servers as cn=config and slapd.conf have them.

use super::super::settings::Settings;
use super::settings::{BackendSettings, ProxyHeader, Strategy, TierSettings};

/// The name after `backend`, and of the module.
pub(crate) const MODULE: &str = "lload";
/// The classes of the entries: of the balancer, of a tier below it, and of a server below that.
pub(crate) const CLASS: &str = "olcBkLloadConfig";
pub(crate) const TIER_CLASS: &str = "olcBkLloadTierConfig";
pub(crate) const BACKEND_CLASS: &str = "olcBkLloadBackendConfig";

/// What the balancer's entry must have, with the values that hold where none are given.
pub(crate) const SHOWN_ALWAYS: [(&str, &str); 6] = [
    ("olcBkLloadBindconf", "bindmethod=none"),
    ("olcBkLloadIOThreads", "1"),
    ("olcBkLloadSockbufMaxClient", "262143"),
    ("olcBkLloadSockbufMaxUpstream", "4194303"),
    ("olcBkLloadMaxPDUPerCycle", "10"),
    ("olcBkLloadIOTimeout", "10000"),
];

impl Strategy {
    /// As after `tier`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "roundrobin",
            Self::Weighted => "weighted",
            Self::BestOf => "bestof",
        }
    }
}

impl TierSettings {
    /// The attributes of its entry.
    pub(crate) fn config_settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.set("olcBkLloadTierType", self.strategy.name().into());
        settings
    }
}

impl BackendSettings {
    /// The attributes of its entry.
    pub(crate) fn config_settings(&self) -> Settings {
        let mut settings = Settings::default();
        let mut number = |attribute, value: u128| settings.set(attribute, value.to_string().into_bytes());
        number("olcBkLloadNumconns", self.connections as u128);
        number("olcBkLloadBindconns", self.bind_connections as u128);
        number("olcBkLloadRetry", self.retry.as_millis());
        number("olcBkLloadMaxPendingOps", self.max_pending as u128);
        number("olcBkLloadMaxPendingConns", self.connection_max_pending as u128);
        if self.weight > 0 {
            number("olcBkLloadWeight", self.weight.into());
        }
        settings.set("olcBkLloadBackendUri", self.uri.clone().into_bytes());
        if let Some(word) = self.start_tls.word() {
            settings.set("olcBkLloadStartTLS", word.into());
        }
        if self.proxy_header == ProxyHeader::Local {
            settings.set("olcLarixBkLloadProxyProtocol", b"local".to_vec());
        }
        settings
    }

    /// The words behind `backend-server`.
    pub(crate) fn words(&self, tier: Strategy) -> Vec<String> {
        let mut words = vec![
            format!("uri={}", self.uri),
            format!("numconns={}", self.connections),
            format!("bindconns={}", self.bind_connections),
            format!("retry={}", self.retry.as_millis()),
            format!("max-pending-ops={}", self.max_pending),
            format!("conn-max-pending={}", self.connection_max_pending),
        ];
        words.extend(self.start_tls.word().map(|word| format!("starttls={word}")));
        if self.proxy_header == ProxyHeader::Local {
            words.push("proxyprotocol=local".to_owned());
        }
        // A tier that takes turns has no weights.
        if self.weight > 0 && tier != Strategy::RoundRobin {
            words.push(format!("weight={}", self.weight));
        }
        words
    }
}
