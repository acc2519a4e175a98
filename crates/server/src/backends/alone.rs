//! A request without its router and its client: on threads that know neither, or when it has waited.

use larix_backend::{Announced, Backend, Below, Client, ClientHandle, Mount, Routing};
use larix_proto::Scope;
use larix_schema::NormalDn;

/// Stands for both. A database that is asked in this way needs neither.
#[derive(Debug)]
pub(super) struct Alone;

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

    fn announced(&self) -> Announced {
        Announced::default()
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
