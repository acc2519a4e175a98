//! cn=Monitor.

use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{LdapResult, ResultCode};

use super::{Common, Content, Tree, not_supported};
use crate::backends::StoredBackend;
use crate::virtual_entries::monitor::change::{self, MonitorChange};
use crate::virtual_entries::monitor::{self, Monitor};
use larix_backend::memory_tree::Counted;
use larix_backend::{Announcement, Context};

#[derive(Debug)]
pub(crate) struct MonitorTree {
    /// The root DN, in whose name the entries are.
    pub(crate) owner: String,
}

impl MonitorTree {
    fn change(&self, tree: &Tree<Self>, context: &Context<'_>, request: &WriteRequest) -> LdapResult {
        let log = &tree.common.services.log;
        match change::judge(&tree.tree(context), log.configured_levels(), &request.operation) {
            Err(refused) => refused,
            Ok(MonitorChange::Levels(levels)) => {
                log.set_levels(levels);
                LdapResult::success()
            }
            Ok(MonitorChange::Close(of, number)) => match tree.common.services.balancer.close(of, number) {
                Some(true) => LdapResult::success(),
                Some(false) => LdapResult::new(ResultCode::NO_SUCH_OBJECT),
                None => LdapResult::with(ResultCode::BUSY, "the balancer does not answer"),
            },
            Ok(MonitorChange::ReadOnly(number, value)) => match context.router.mounts().get(number) {
                Some(mount) => mount.backend.set_read_only(value),
                None => not_supported(),
            },
        }
    }
}

impl Content for MonitorTree {
    const COUNTED: Option<Counted> = Some(monitor::counted);

    fn entries(&self, common: &Common, context: &Context<'_>) -> Vec<Entry> {
        let services = &common.services;
        let (now, monotonic) = services.both_clocks();
        let mounts = context.router.mounts();
        let stored = mounts.iter().filter_map(|mount| StoredBackend::of(&*mount.backend));
        Monitor {
            schema: &common.config.schema,
            subschema_dn: &common.subschema_dn,
            config: &common.config,
            statistics: &services.statistics,
            admission: &services.admission,
            tls: &services.tls,
            now,
            monotonic,
            descriptors: services.descriptors,
            log: &services.log,
            backups: services.backups.status(),
            passwords_waiting: services.passwords.waiting(),
            long_searches_waiting: services.long_searches.waiting(),
            stored: mounts.iter().map(|mount| mount.backend.figures()).collect(),
            consumers: services.consumers.statuses(),
            #[cfg(feature = "kv")]
            nodes: services.nodes.figures(),
            proxies: services
                .proxies
                .all()
                .into_iter()
                .map(|(name, proxy)| (name, proxy.figures()))
                .collect(),
            caches: services.caches.contents(&*services.clock),
            balancer: services.balancer.figures(),
            peers: services.sync_peer_figures(stored.map(|stored| &stored.served)),
            owner: &self.owner,
        }
        .entries()
    }

    fn update(
        &self,
        tree: &Tree<Self>,
        context: &Context<'_>,
        requests: Vec<WriteRequest>,
        done: Completion,
    ) {
        let result = match requests.as_slice() {
            [request] => self.change(tree, context, request),
            _ => not_supported(),
        };
        done(result.into());
    }

    fn announce(&self, announced: &mut Announcement) {
        announced.monitor_context = Some(monitor::DN.to_owned());
    }
}
