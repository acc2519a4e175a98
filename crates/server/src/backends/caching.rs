//! `overlay pcache`: the cache in front of a database on another server, which stays when the configuration changes.

use std::fmt;
use std::sync::Arc;

use larix_configuration::values::LogLevel;
use larix_configuration::{ConfigError, Database};
use larix_engine::access::AccessPolicy;
use larix_proxy::ProxyBackend;
use larix_proxy::pcache::{CachingBackend, Tell};

use super::Common;
use crate::services::Services;

/// The database with its cache in front; none: it has no such overlay. `rules`: lets everything through.
///
/// # Errors
/// A setting that cannot be understood.
pub(crate) fn caching(
    common: &Arc<Common>,
    database: &Database,
    inner: &ProxyBackend,
    open_policy: &Arc<AccessPolicy>,
) -> Result<Option<CachingBackend>, ConfigError> {
    let Some(overlay) = database.caching_overlay() else { return Ok(None) };
    let Some(settings) = overlay.pcache(&common.config.schema)? else { return Ok(None) };
    let settings = Arc::new(settings);
    let name = database.suffixes.first().map(|suffix| suffix.normal.as_str()).unwrap_or_default();
    let inner = ProxyBackend {
        proxy: Arc::clone(&inner.proxy),
        schema: Arc::clone(&inner.schema),
        policy: Arc::clone(&inner.policy),
        entry_policy: Arc::clone(open_policy),
        suffixes: inner.suffixes.clone(),
    };
    let services = &common.services;
    let (cache, message) = services.caches.of(name, &inner, &settings, &*services.clock);
    if let Some(message) = message {
        services.log.notice(format_args!("{message}"));
    }
    Ok(Some(CachingBackend {
        cache,
        inner,
        settings,
        request_limits: common.config.global.request_limits,
        clock: Arc::clone(&services.clock) as _,
        log: Arc::new(ServerLog(Arc::clone(services))),
    }))
}

/// The server's log.
struct ServerLog(Arc<Services>);

impl fmt::Debug for ServerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerLog")
    }
}

impl Tell for ServerLog {
    fn is_heard(&self) -> bool {
        self.0.log.wants(LogLevel::PCACHE)
    }

    fn tell(&self, text: fmt::Arguments<'_>) {
        self.0.log.line(LogLevel::PCACHE, text);
    }
}
