//! The subschema subentry.

use std::sync::Arc;

use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};

use super::{Content, Tree, not_supported};
use crate::backend::Context;
use crate::config::Config;
use crate::services::Services;
use crate::virtual_entries::subschema;

#[derive(Debug)]
pub(crate) struct SubschemaTree {
    pub(crate) config: Arc<Config>,
    pub(crate) services: Arc<Services>,
    /// As it is shown.
    pub(crate) dn: String,
}

impl Content for SubschemaTree {
    fn entries(&self, context: &Context<'_>) -> Vec<Entry> {
        let shown: &[&str] = if self.config.has_memberships() { &["memberOf"] } else { &[] };
        let started = self.services.statistics.started;
        vec![subschema::entry(context.router.schema(), &self.dn, started, shown)]
    }

    fn update(&self, _: &Tree<Self>, _: &Context<'_>, _: Vec<WriteRequest>, done: Completion) {
        done(not_supported().into());
    }
}
