//! `overlay chain`: what follows referrals, with the connections of the server.

use std::sync::Arc;

use larix_backend::Interceptor;
use larix_configuration::{ConfigError, Database, Overlay};
use larix_engine::access::AccessPolicy;
use larix_proxy::ProxySettings;
use larix_proxy::chain::{Chain, Links, Lost};

use super::Common;
use super::proxied::connections_by_name;

/// The overlay in front of a database, or of all; none if it is another one.
///
/// # Errors
/// Settings of TLS that cannot be used; no thread is left.
pub(crate) fn chained(
    common: &Arc<Common>,
    database: Option<&Database>,
    overlay: &Overlay,
) -> Result<Option<Arc<dyn Interceptor>>, ConfigError> {
    let Some(settings) = overlay.chain() else { return Ok(None) };
    let fault = |why: String| ConfigError::new(overlay.origin.clone(), why);
    let suffix = database.and_then(|database| database.suffixes.first());
    let place = suffix.map_or("", |suffix| suffix.normal.as_str()).to_owned();
    let name = move |settings: &ProxySettings| {
        let url = settings.targets.first().map(ToString::to_string).unwrap_or_default();
        format!("chain {url} {place}").trim_end().to_owned()
    };
    let services = &common.services;
    let listed = settings.servers.iter().map(|server| connections_by_name(services, &name(server), server));
    let listed = listed.collect::<Result<_, _>>().map_err(fault)?;
    let schema = Arc::clone(&common.config.schema);
    let open_policy = AccessPolicy::new(Arc::clone(&schema), None, &[], &[]);
    let open_policy = Arc::new(open_policy.map_err(|error| fault(error.to_string()))?);
    let (later, teller) = (Arc::downgrade(services), Arc::downgrade(services));
    let open = move |settings: ProxySettings| {
        let services = later.upgrade().ok_or_else(|| "the server stops".to_owned())?;
        connections_by_name(&services, &name(&settings), &settings)
    };
    Ok(Some(Arc::new(Chain(Arc::new(Links {
        listed,
        unlisted: settings.unlisted,
        open: Box::new(open),
        depth_max: settings.depth_max,
        return_error: settings.return_error,
        behavior: settings.behavior,
        schema,
        open_policy,
        clock: Arc::clone(&services.clock) as _,
        others: Default::default(),
        lost: Lost::new(move |text| {
            if let Some(services) = teller.upgrade() {
                services.log.notice(format_args!("{text}"));
            }
        }),
    })))))
}
