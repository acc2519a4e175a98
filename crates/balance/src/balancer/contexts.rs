//! What servers remember of clients by connection: pages (RFC 2696), virtual list views, and what `restrict_control` and
//! `restrict_exop` name.
//!
//! A client stays at its connection as long as something may be remembered there, and has it without others of its kind if there
//! are enough. What it leaves behind would count for those that come later: a slapd has five sorted answers for a connection, and
//! keeps those of views. So the connection ends behind it.

use larix_proto::control::{ControlValue, PagedResults};
use larix_proto::{Message, Request, oid};

use super::Balancer;
use crate::backend::Backend;
use crate::client::{Context, ContextUse};
use crate::upstream::Pool;
use larix_configuration::balancer::Action;

impl Balancer {
    /// What a request has a server remember, by the rules for its controls and its OID.
    pub(super) fn context_use(&self, message: &Message<'_>) -> ContextUse {
        let rules = &self.settings.control_rules;
        let stays = |oid: &str| rules.get(oid) == Some(&Action::Connection);
        let of_operation = match message.request {
            Request::Extended(extended) => self.settings.exop_rules.get(extended.name),
            _ => None,
        };
        let is_lasting = of_operation == Some(&Action::Connection)
            || matches!(message.request, Request::Extended(_))
                && of_operation.is_none()
                && self.settings.exop_default == Action::Connection
            || message.controls.iter().any(|control| control.oid != oid::PAGED_RESULTS && stays(control.oid));
        if is_lasting {
            return ContextUse::Lasting;
        }
        let page =
            message.controls.iter().find(|control| control.oid == oid::PAGED_RESULTS && stays(control.oid));
        page.map_or(ContextUse::None, |page| {
            // One that cannot be read is refused.
            let page = PagedResults::decode(page.value);
            ContextUse::Page { is_first: page.is_ok_and(|page| page.cookie.is_empty()) }
        })
    }

    /// A request of a client was sent that has the server remember this.
    pub(super) fn enter_context(&mut self, id: u64, upstream: u64, used: ContextUse) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if used == ContextUse::None {
            return;
        }
        let is_new = client.context.is_none();
        let context = client.context.get_or_insert(Context { upstream, pages: 0, is_lasting: false });
        match used {
            // The pages that came before it may be of a connection that is gone.
            ContextUse::Page { is_first } if is_first || is_new => context.pages += 1,
            ContextUse::Page { .. } | ContextUse::None => {}
            ContextUse::Lasting => context.is_lasting = true,
        }
        if is_new {
            self.contexts += 1;
            if let Some(upstream) = self.upstreams.get_mut(&upstream) {
                upstream.contexts += 1;
            }
        }
    }

    /// A paged search of a client has ended.
    pub(super) fn pages_ended(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(context) = &mut client.context else { return };
        context.pages = context.pages.saturating_sub(1);
        if context.pages == 0 && !context.is_lasting {
            let upstream = context.upstream;
            client.context = None;
            self.contexts = self.contexts.saturating_sub(1);
            self.free_connection(upstream, false);
        }
    }

    /// A client goes, or is somebody else from now on.
    pub(super) fn leave_context(&mut self, id: u64) {
        let context = self.clients.get_mut(&id).and_then(|client| client.context.take());
        if let Some(context) = context {
            self.contexts = self.contexts.saturating_sub(1);
            self.free_connection(context.upstream, true);
        }
    }

    /// One context less is on a connection. `remains`: the server still remembers it.
    fn free_connection(&mut self, id: u64, remains: bool) {
        let Some(upstream) = self.upstreams.get_mut(&id) else { return };
        upstream.contexts = upstream.contexts.saturating_sub(1);
        upstream.has_remains |= remains;
        if upstream.contexts > 0 || upstream.is_retiring {
            return;
        }
        let (has_remains, backend) = (upstream.has_remains, upstream.backend);
        let Some(backend) = self.backends.get(backend) else { return };
        // One more than is wanted stays: the next paged search takes it.
        let wanted = backend.wanted(self.with_contexts(backend)) + 1;
        if has_remains || backend.connections(Pool::Shared).len() > wanted {
            self.retire(id);
        }
    }

    /// How many shared connections to a server have contexts.
    pub(super) fn with_contexts(&self, backend: &Backend) -> usize {
        if self.contexts == 0 {
            return 0;
        }
        let upstreams = backend.connections(Pool::Shared).iter().filter_map(|id| self.upstreams.get(id));
        upstreams.filter(|upstream| upstream.contexts > 0).count()
    }
}
