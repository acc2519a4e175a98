//! The connection of a request that goes on later, from another thread.

use std::any::Any;
use std::sync::Weak;

use larix_backend::{Client, ClientHandle, KeptClient, Routing};
use larix_proto::MessageId;
use tokio::sync::mpsc::UnboundedSender;

use super::{ConnectionEvent, ConnectionHandle};
use crate::generation::Generation;

/// It holds neither its connection nor the generation of its request.
#[derive(Debug)]
pub(super) struct DetachedClient {
    pub(super) request: Option<(u64, MessageId)>,
    pub(super) lifetime: Option<Weak<dyn Any + Send + Sync>>,
    pub(super) events: UnboundedSender<ConnectionEvent>,
    pub(super) generation: Weak<Generation>,
}

impl Client for DetachedClient {
    fn handle(&self) -> Box<dyn ClientHandle> {
        Box::new(ConnectionHandle(self.events.clone()))
    }

    fn request(&self) -> Option<(u64, MessageId)> {
        self.request
    }

    fn lifetime(&self) -> Option<Weak<dyn Any + Send + Sync>> {
        self.lifetime.clone()
    }
}

impl KeptClient for DetachedClient {
    fn as_client(&self) -> &dyn Client {
        self
    }

    fn with_databases(&self, then: &mut dyn FnMut(&dyn Routing)) {
        if let Some(generation) = self.generation.upgrade() {
            then(generation.databases.router());
        }
    }
}
