//! cn=config.

use std::collections::HashSet;
use std::sync::Arc;

use larix_configuration::{Config, ConfigEntry};
use larix_engine::access::{AccessPolicy, Subject};
use larix_engine::entry::Entry;
use larix_engine::write::{Completion, WriteRequest};
use larix_proto::{LdapResult, ResultCode};
use larix_schema::{BoundFilter, Schema};

use super::config_sync::{self, ConfigSearch};
use super::{Common, Content, Tree};
use crate::virtual_entries::Builder;
use larix_backend::memory_tree::MemoryTree;
use larix_backend::{Announcement, Context, Cursor, Search};

#[derive(Debug)]
pub(crate) struct Configuration;

impl Content for Configuration {
    fn entries(&self, common: &Common, _: &Context<'_>) -> Vec<Entry> {
        entries(&common.config, &common.config.schema, &common.subschema_dn)
    }

    fn synchronise(
        &self,
        common: &Common,
        context: &Context<'_>,
        search: Search<'_>,
    ) -> Option<Box<dyn Cursor>> {
        Some(Box::new(ConfigSearch::new(&common.services, context.subject, search)?))
    }

    fn update(&self, tree: &Tree<Self>, _: &Context<'_>, requests: Vec<WriteRequest>, done: Completion) {
        tree.common.services.configuration.submit(requests, done);
    }

    fn stands_apart(&self) -> Option<LdapResult> {
        let text = "a transaction changes cn=config or a database, not both";
        Some(LdapResult::with(ResultCode::AFFECTS_MULTIPLE_DSAS, text))
    }

    fn provides_content(&self, common: &Common) -> bool {
        config_sync::is_provided(&common.config)
    }

    fn announce(&self, announced: &mut Announcement) {
        announced.config_context = Some("cn=config".to_owned());
    }
}

/// The DNs of the entries of cn=config that a filter is true of, whatever the access rules say: what tools write.
pub fn config_entries_matching(config: &Config, filter: &BoundFilter) -> HashSet<String> {
    let policy = AccessPolicy::open(Arc::clone(&config.schema), None);
    let tree = MemoryTree {
        schema: &config.schema,
        policy: &policy,
        subject: &Subject::default(),
        entries: entries(config, &config.schema, "cn=Subschema"),
        counted: None,
    };
    tree.matching_unguarded(filter).map(str::to_owned).collect()
}

/// The entries of a configuration, superiors first.
pub(super) fn entries(config: &Config, schema: &Schema, subschema_dn: &str) -> Vec<Entry> {
    let convert = |entry: ConfigEntry| {
        let mut built = Builder::new(schema, entry.dn.clone());
        for attribute in entry.attributes {
            built = built.add(&attribute.description, attribute.values.to_vec());
        }
        if let Some(class) = built.first("objectClass")
            && built.first("structuralObjectClass").is_none()
        {
            built = built.add("structuralObjectClass", [class]);
        }
        built.one("entryDN", entry.dn).one("subschemaSubentry", subschema_dn).build()
    };
    larix_configuration::entries(config).into_iter().map(convert).collect()
}
