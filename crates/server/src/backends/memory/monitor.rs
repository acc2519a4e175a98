//! cn=Monitor.

use std::sync::Arc;

use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::LdapResult;

use super::{Content, Tree, not_supported};
use crate::backend::{Announced, Context};
use crate::backends::Stored;
use crate::config::Config;
use crate::memory_tree::Counted;
use crate::services::Services;
use crate::virtual_entries::monitor::change::{self, Wanted};
use crate::virtual_entries::monitor::{self, Monitor};

#[derive(Debug)]
pub(crate) struct MonitorTree {
    pub(crate) config: Arc<Config>,
    pub(crate) services: Arc<Services>,
    pub(crate) subschema_dn: String,
    /// The root DN, in whose name the entries are.
    pub(crate) owner: String,
}

impl MonitorTree {
    fn change(&self, tree: &Tree<Self>, context: &Context<'_>, request: &WriteRequest) -> LdapResult {
        let log = &self.services.log;
        match change::judge(&tree.tree(context), log.configured_levels(), &request.operation) {
            Err(refused) => refused,
            Ok(Wanted::Levels(levels)) => {
                log.set_levels(levels);
                LdapResult::success()
            }
            Ok(Wanted::ReadOnly(number, value)) => match context.router.mounts().get(number) {
                Some(mount) => mount.backend.set_read_only(value),
                None => not_supported(),
            },
        }
    }
}

impl Content for MonitorTree {
    const COUNTED: Option<Counted> = Some(monitor::counted);

    fn entries(&self, context: &Context<'_>) -> Vec<Entry> {
        let services = &self.services;
        let (now, monotonic) = services.both_clocks();
        let mounts = context.router.mounts();
        let stored = mounts.iter().filter_map(|mount| Stored::of(&*mount.backend));
        Monitor {
            schema: context.router.schema(),
            subschema_dn: &self.subschema_dn,
            config: &self.config,
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
            peers: services.sync_peers.figures(stored.map(|stored| &stored.served), now),
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

    fn announce(&self, announced: &mut Announced) {
        announced.monitor_context = Some(monitor::DN.to_owned());
    }
}
