//! The subschema subentry.

use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};

use super::{Common, Content, Tree, not_supported};
use crate::virtual_entries::subschema;
use larix_backend::Context;
use larix_backend::memory_tree::Bases;

#[derive(Debug)]
pub(crate) struct SubschemaTree;

impl Content for SubschemaTree {
    const BASES: Bases = Bases::Known;

    fn entries(&self, common: &Common, _: &Context<'_>) -> Vec<Entry> {
        let shown = common.config.attributes_shown_for_overlays();
        let started = common.services.statistics.started;
        vec![subschema::entry(&common.config.schema, &common.subschema_dn, started, &shown)]
    }

    fn update(&self, _: &Tree<Self>, _: &Context<'_>, _: Vec<WriteRequest>, done: Completion) {
        done(not_supported().into());
    }
}
