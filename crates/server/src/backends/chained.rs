//! `overlay chain` and `chase-referrals`: what follows referrals, with the connections of the server.

use std::sync::Arc;

use larix_backend::Interceptor;
use larix_configuration::{ConfigError, Database, Overlay};
use larix_engine::access::AccessPolicy;
use larix_proxy::chain::{Chain, Chase, Counted, Links, OpenProxy, Waiting};
use larix_proxy::{Proxy, ProxySettings};

use super::Common;
use super::proxied::connections_by_name;
use crate::services::Services;

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
    let name = move |settings: &ProxySettings| named("chain", settings, &place);
    let services = &common.services;
    let listed = settings.servers.iter().map(|server| connections_by_name(services, &name(server), server));
    let listed = listed.collect::<Result<_, _>>().map_err(fault)?;
    let schema = Arc::clone(&common.config.schema);
    let open_policy = AccessPolicy::new(Arc::clone(&schema), None, &[], &[]);
    let open_policy = Arc::new(open_policy.map_err(|error| fault(error.to_string()))?);
    let notice = || {
        let services = Arc::downgrade(services);
        move |text: &str| {
            if let Some(services) = services.upgrade() {
                services.log.notice(format_args!("{text}"));
            }
        }
    };
    let waiting =
        settings.wait_replicated.map(|time| Waiting::new(time, Arc::clone(&services.clock) as _, notice()));
    Ok(Some(Arc::new(Chain(Arc::new(Links {
        listed,
        unlisted: settings.unlisted,
        open: opening(services, name),
        depth_max: settings.depth_max,
        return_error: settings.return_error,
        behavior: settings.behavior,
        schema,
        entry_policy: None,
        open_policy,
        clock: Arc::clone(&services.clock) as _,
        others: Default::default(),
        lost: Counted::new(notice()),
        waiting,
    })))))
}

/// What follows the referrals of the targets of `proxy`; none: its settings do not say so. `place` is part of the names of connections,
/// and `entry_policy` the rules for entries of other servers.
pub(crate) fn chasing(
    common: &Common,
    proxy: &Arc<Proxy>,
    place: &str,
    entry_policy: &Arc<AccessPolicy>,
) -> Option<Arc<dyn Interceptor>> {
    proxy.settings().chase_referrals.then(|| {
        let place = place.to_owned();
        let services = &common.services;
        let chase = Chase {
            open: opening(services, move |settings| named("referral", settings, &place)),
            schema: Arc::clone(&common.config.schema),
            entry_policy: Arc::clone(entry_policy),
            clock: Arc::clone(&services.clock) as _,
        };
        Arc::new(Chain(Arc::new(Links::chasing(proxy, chase)))) as _
    })
}

/// The name of the connections to one server.
fn named(what: &str, settings: &ProxySettings, place: &str) -> String {
    let url = settings.targets.first().map(ToString::to_string).unwrap_or_default();
    format!("{what} {url} {place}").trim_end().to_owned()
}

/// Opens connections to servers that are known once a referral names them, until the server stops.
fn opening(
    services: &Arc<Services>,
    name: impl Fn(&ProxySettings) -> String + Send + Sync + 'static,
) -> OpenProxy {
    let later = Arc::downgrade(services);
    Box::new(move |settings| {
        let services = later.upgrade().ok_or_else(|| "the server stops".to_owned())?;
        connections_by_name(&services, &name(&settings), &settings)
    })
}
