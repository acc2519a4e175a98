//! How a consumer's search (RFC 4533) begins, wherever the store is.

use std::sync::Arc;

use larix_engine::controls::ContentSync;
use larix_proto::{DerefAliases, LdapResult, ResultCode};
use larix_replication::provider::{ConsumerRequest, RefreshQueue, SyncPeer};

use crate::services::Services;
use larix_backend::{Context, Search};

/// What a consumer's search has beside the search itself.
pub(super) struct ConsumerSearch {
    pub(super) request: ConsumerRequest,
    /// Its filter takes every entry.
    pub(super) any_entry: bool,
    pub(super) queue: RefreshQueue,
    /// Where it is shown how the search stands.
    pub(super) peer: Arc<SyncPeer>,
}

impl ConsumerSearch {
    pub(super) fn new(
        services: &Services,
        context: &Context<'_>,
        search: &Search<'_>,
        control: &ContentSync,
    ) -> Self {
        let (request, asked) = (ConsumerRequest::new(control), &search.request);
        Self {
            peer: services.sync_peers.add(context.subject, asked.base, services.now(), request.rid),
            any_entry: asked.filter.to_string().eq_ignore_ascii_case("(objectClass=*)"),
            queue: services.refreshes.clone(),
            request,
        }
    }
}

/// The search without controls that have no place in it: the provider sets the order, and there are no pages.
///
/// # Errors
/// It would dereference aliases.
pub(super) fn prepared(search: Search<'_>) -> Result<Search<'_>, LdapResult> {
    if matches!(search.request.deref, DerefAliases::InSearching | DerefAliases::Always) {
        return Err(LdapResult::with(ResultCode::PROTOCOL_ERROR, "illegal value for derefAliases"));
    }
    let controls =
        search.controls.with(|values| (values.sort, values.vlv, values.paged) = (None, None, None));
    Ok(Search { controls, ..search })
}

/// The refusal for a consumer whose `conflict-mode` differs from that of the content.
pub(super) fn another_mode(consumer: bool) -> LdapResult {
    let text = match consumer {
        true => {
            "the conflict mode of the content is `entry`, that of the consumer `value`: it has to be the same on all"
        }
        false => {
            "the conflict mode of the content is `value`: only Larix servers in that mode can be members or follow it"
        }
    };
    LdapResult::with(ResultCode::UNWILLING_TO_PERFORM, text)
}
