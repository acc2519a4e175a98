//! Whether a replica may be sent clients: its content is complete, and not older than is allowed.

use std::collections::BTreeMap;

use larix_engine::log;
use larix_replication::consumer::ConsumerStatus;
use larix_store::Store;

use crate::databases::Databases;
use crate::server::Server;

/// Why databases that follow a provider should not be asked, one line each. Of several providers one is enough.
pub(crate) fn unready(server: &Server) -> Vec<String> {
    let (databases, now) = (server.databases(), server.both_clocks().0);
    let limit = server.config().global.replica_max_lag;
    let mut by_suffix: BTreeMap<String, Vec<ConsumerStatus>> = BTreeMap::new();
    for consumer in server.consumers.statuses() {
        by_suffix.entry(consumer.suffix.clone()).or_default().push(consumer);
    }
    let mut reasons = Vec::new();
    for (suffix, consumers) in by_suffix {
        let refreshed = consumers.iter().any(|consumer| consumer.refreshed);
        if !refreshed && !has_content(&databases, &suffix) {
            reasons.push(format!("{suffix:?}: the first refresh from its provider is not complete\n"));
            continue;
        }
        let silences = consumers.iter().map(|c| c.silence(now, server.statistics.started));
        let micros = silences.min().unwrap_or(0);
        if let Some(limit) = limit
            && u128::from(micros) > limit.as_micros()
        {
            let seconds = micros / 1_000_000;
            let is_heard = |consumer: &ConsumerStatus| consumer.last_contact > consumer.last_in_step;
            reasons.push(match consumers.iter().any(is_heard) {
                true => format!("{suffix:?}: it has not caught up with its provider for {seconds} s\n"),
                false => format!("{suffix:?}: nothing was heard of its provider for {seconds} s\n"),
            });
        }
    }
    reasons
}

/// A refresh that is complete leaves a contextCSN.
fn has_content(databases: &Databases, suffix: &str) -> bool {
    let served = databases.schema().parse_dn(suffix).ok().and_then(|dn| databases.stored(&dn));
    let Some(served) = served else { return true };
    let Ok(snapshot) = served.database().store().snapshot() else { return false };
    log::context_csns(&snapshot).is_ok_and(|csns| !csns.is_empty())
}
