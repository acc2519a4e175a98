//! A consumer that writes what it receives to another server (`database ldap`).

use std::sync::Arc;

use larix_client::Stop;
use larix_engine::write::{AttributeValues, WriteOperation};
use larix_proto::{LdapResult, SearchResultEntry};
use larix_proxy::blocking::{BlockingTarget, TargetSearch as Asked};
use larix_replication::push::{Push, Target, TargetEntry, TargetSearch};
use larix_schema::Schema;

use crate::consumers::Task;
use crate::server::Server;

/// The requests of a consumer.
struct Requests(BlockingTarget);

impl Target for Requests {
    fn search(
        &mut self,
        search: &TargetSearch<'_>,
        found: &mut dyn FnMut(TargetEntry),
    ) -> Result<(), LdapResult> {
        let request = Asked {
            base: search.base,
            scope: search.scope,
            filter: search.filter.as_filter(),
            attributes: search.attributes,
        };
        self.0.search(&request, &mut |entry| found(owned(entry)))
    }

    fn write(&mut self, operation: &WriteOperation) -> Result<(), LdapResult> {
        self.0.write(operation)
    }
}

fn owned(entry: &SearchResultEntry<'_>) -> TargetEntry {
    let attributes = entry.attributes.iter().map(|attribute| AttributeValues {
        description: attribute.description.to_owned(),
        values: attribute.values.iter().map(<[u8]>::to_vec).collect(),
    });
    TargetEntry { dn: entry.dn.to_owned(), attributes: attributes.collect() }
}

/// Does something in the directory that a consumer writes to. `None`: it writes to a database of this server.
pub(super) fn with_push<R>(
    server: &Arc<Server>,
    (task, stop): (&Task, &Stop),
    schema: &Arc<Schema>,
    act: impl FnOnce(&mut Push<'_>) -> R,
) -> Option<R> {
    let proxy = task.target.as_ref()?;
    let stop = stop.clone();
    let mut requests = Requests(BlockingTarget {
        proxy: Arc::clone(proxy),
        schema: Arc::clone(schema),
        clock: Arc::clone(&server.clock) as _,
        is_stopped: Arc::new(move || stop.is_stopped()),
    });
    Some(act(&mut Push { target: &mut requests, schema, suffix: &task.suffix }))
}
