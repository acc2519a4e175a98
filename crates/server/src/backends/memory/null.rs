//! `database null`: it holds nothing, and every change succeeds.

use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::LdapResult;

use super::{Common, Content, Tree};
use larix_backend::Context;

#[derive(Debug)]
pub(crate) struct Null {
    pub(crate) bind_allowed: bool,
}

impl Content for Null {
    fn entries(&self, _: &Common, _: &Context<'_>) -> Vec<Entry> {
        Vec::new()
    }

    fn update(&self, _: &Tree<Self>, _: &Context<'_>, _: Vec<WriteRequest>, done: Completion) {
        done(LdapResult::success().into());
    }

    fn grants_binds(&self) -> bool {
        self.bind_allowed
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        Some(LdapResult::success())
    }
}
