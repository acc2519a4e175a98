//! A request that an overlay lets go on later, from another thread: what of it is borrowed, kept.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::controls::RequestControls;
use larix_engine::time::{Clock, Monotonic};
use larix_proto::limits::{DecodeLimits, FILTER_DEPTH_CEILING};
use larix_proto::{Message, MessageId, Request, Scope, SearchRequest, client};
use larix_schema::NormalDn;

use crate::backend::{
    Announcement, Backend, Below, Client, ClientHandle, Context, KeptClient, Mount, Routing,
};
use crate::operation::Search;

/// What a request is carried out under, until it goes on.
#[derive(Debug)]
pub struct KeptContext {
    subject: Arc<Subject>,
    client: Option<Box<dyn KeptClient>>,
    clock: Arc<dyn Clock>,
    began: Monotonic,
}

impl KeptContext {
    pub fn new(context: &Context<'_>, clock: &Arc<dyn Clock>) -> Self {
        Self {
            subject: Arc::clone(context.subject),
            client: context.client.keep(),
            clock: Arc::clone(clock),
            began: context.began,
        }
    }

    /// The time of what goes on is counted from now.
    pub fn begin_anew(&mut self) {
        self.began = self.clock.monotonic();
    }

    /// Goes on; none: the databases of the request are there no more.
    pub fn with<T>(&self, then: impl FnOnce(&Context<'_>) -> T) -> Option<T> {
        let Some(client) = &self.client else { return Some(then(&self.context(&Alone, &Alone))) };
        let (mut then, mut answer) = (Some(then), None);
        client.with_databases(&mut |router| {
            answer = then.take().map(|then| then(&self.context(router, client.as_client())));
        });
        answer
    }

    fn context<'a>(&'a self, router: &'a dyn Routing, client: &'a dyn Client) -> Context<'a> {
        Context { subject: &self.subject, router, client, clock: &*self.clock, began: self.began }
    }
}

/// A search, until it goes on.
#[derive(Debug)]
pub struct KeptSearch {
    /// The request once more, as a message: what it borrows outlives it.
    encoded: Vec<u8>,
    message: MessageId,
    base: NormalDn,
    controls: RequestControls,
}

impl KeptSearch {
    pub fn new(search: Search<'_>) -> Self {
        let attributes: Vec<&str> = search.request.attributes.iter().collect();
        Self::asking(search, &attributes)
    }

    /// The same with another list of attributes.
    pub fn asking(search: Search<'_>, attributes: &[&str]) -> Self {
        let Search { request, base, controls, message } = search;
        let mut encoded = Vec::new();
        let again = client::Search {
            base: request.base,
            scope: request.scope,
            deref: request.deref,
            size_limit: request.size_limit,
            time_limit: request.time_limit,
            types_only: request.types_only,
            filter: request.filter,
            attributes,
        };
        client::search(&mut encoded, message, &again, &[]);
        Self { encoded, message, base: base.clone(), controls }
    }

    /// The base of the search.
    pub const fn base(&self) -> &NormalDn {
        &self.base
    }

    /// The controls of the search.
    pub const fn controls(&self) -> &RequestControls {
        &self.controls
    }

    /// The request, which was decoded before.
    pub fn request(&self) -> Option<SearchRequest<'_>> {
        let depth = DecodeLimits { filter_depth: FILTER_DEPTH_CEILING };
        match Message::decode_with(&self.encoded, &depth) {
            Ok(Message { request: Request::Search(request), .. }) => Some(request),
            _ => None,
        }
    }

    pub fn search(&self) -> Option<Search<'_>> {
        let (base, controls, message) = (&self.base, self.controls.clone(), self.message);
        Some(Search { request: self.request()?, base, controls, message })
    }
}

/// The router and the client of a request from inside, which has neither: it knows no database and drops all answers.
#[derive(Debug)]
pub struct Alone;

impl Routing for Alone {
    fn mounts(&self) -> &[Mount] {
        &[]
    }

    fn backend(&self, _: &NormalDn) -> Option<&dyn Backend> {
        None
    }

    fn glued_below(&self, _: &NormalDn, _: Scope) -> Vec<Below<'_>> {
        Vec::new()
    }

    fn announced(&self) -> Announcement {
        Announcement::default()
    }
}

impl Client for Alone {
    fn handle(&self) -> Box<dyn ClientHandle> {
        Box::new(Self)
    }
}

impl ClientHandle for Alone {
    fn send(&self, _: Vec<u8>) {}

    fn hang_up(&self) {}
}
