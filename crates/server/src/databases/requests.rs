//! Requests over the databases of a generation.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::time::{Clock, Monotonic};
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{CompareRequest, LdapResult, MessageId, Scope, SearchRequest, url::LdapUrl};
use larix_schema::{BoundFilter, NormalDn};

use super::Databases;
use crate::backend::{Context, First, Identities};

impl Databases {
    fn context<'a>(
        &'a self,
        subject: &'a Arc<Subject>,
        clock: &'a dyn Clock,
        began: Monotonic,
    ) -> Context<'a> {
        Context { subject, router: &self.router, clock, began }
    }

    /// Starts a search and runs its first slice. `at` is the message and when it came.
    pub(crate) fn search(
        &self,
        (subject, clock): (&Arc<Subject>, &dyn Clock),
        controls: RequestControls,
        request: &SearchRequest<'_>,
        at: (MessageId, Monotonic),
        out: &mut Vec<u8>,
    ) -> First {
        self.router.search(&self.context(subject, clock, at.1), request, controls, at.0, out)
    }

    pub(crate) fn compare(
        &self,
        (subject, clock): (&Arc<Subject>, &dyn Clock),
        controls: &RequestControls,
        request: &CompareRequest<'_>,
        began: Monotonic,
    ) -> LdapResult {
        self.router.compare(&self.context(subject, clock, began), request, controls)
    }

    /// Has a change carried out. `done` is called once, here or on another thread.
    pub(crate) fn update(
        &self,
        (clock, began): (&dyn Clock, Monotonic),
        request: WriteRequest,
        done: Completion,
    ) {
        let subject = Arc::clone(&request.subject);
        self.router.update(&self.context(&subject, clock, began), request, done);
    }

    /// Has changes carried out together: all or none.
    pub(crate) fn update_together(
        &self,
        (clock, began): (&dyn Clock, Monotonic),
        requests: Vec<WriteRequest>,
        done: Completion,
    ) {
        let subject = requests.first().map(|request| Arc::clone(&request.subject)).unwrap_or_default();
        self.router.update_together(&self.context(&subject, clock, began), requests, done);
    }

    /// Up to `limit` entries that an LDAP URL finds, with the `auth` privilege on what its filter asks for.
    pub(crate) fn identities(
        &self,
        (subject, clock): (&Arc<Subject>, &dyn Clock),
        url: &LdapUrl,
        limit: u32,
    ) -> Vec<NormalDn> {
        let Ok(base) = self.schema().parse_dn(&url.dn) else { return Vec::new() };
        let scope = url.scope.unwrap_or(Scope::Base);
        let filter = url.filter.as_ref();
        let filter = filter.map_or(BoundFilter::True, |filter| self.schema().bind_filter(filter.as_filter()));
        let context = self.context(subject, clock, clock.monotonic());
        let mut found = Vec::new();
        let first = self.router.backend(&base).map(|backend| (backend, &base, scope));
        for (backend, base, scope) in first.into_iter().chain(self.router.glued_below(&base, scope)) {
            let limit = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            let asked = Identities { base, scope, filter: &filter, limit };
            if !backend.identities(&context, &asked, &mut found) {
                break;
            }
        }
        found
    }

    /// Whether this entry is among those that an LDAP URL finds.
    pub(crate) fn identity_among(
        &self,
        (subject, clock): (&Arc<Subject>, &dyn Clock),
        url: &LdapUrl,
        entry: &NormalDn,
    ) -> bool {
        let Ok(base) = self.schema().parse_dn(&url.dn) else { return false };
        let in_scope = entry.is_in_scope(&base, url.scope.unwrap_or(Scope::Base));
        let only = LdapUrl { dn: entry.as_str().to_owned(), scope: Some(Scope::Base), ..url.clone() };
        in_scope && !self.identities((subject, clock), &only, 1).is_empty()
    }
}
