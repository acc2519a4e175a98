//! Identities looked up in the databases of a running server.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_engine::budget::Meter;
use larix_proto::url::LdapUrl;
use larix_schema::{NormalDn, Schema};

use super::identity::Lookups;
use crate::generation::Generation;
use crate::server::Server;

/// The databases, asked by a connection.
pub(crate) struct Online<'a> {
    pub(crate) server: &'a Server,
    /// What one question is answered by.
    pub(crate) generation: &'a Generation,
    /// The connection without its identity.
    pub(crate) anonymous: &'a Arc<Subject>,
    /// The identity whose privileges count for attributes: the one that binds, or is bound.
    pub(crate) subject: &'a Arc<Subject>,
}

impl Online<'_> {
    /// Up to two entries that a search of the root DN over its base finds.
    pub(crate) fn found_by_root(&self, url: &LdapUrl) -> Vec<NormalDn> {
        let Ok(base) = self.schema().parse_dn(&url.dn) else { return Vec::new() };
        self.generation.databases.identities((&self.root_over(&base), &*self.server.clock), url, 2)
    }

    fn root_over(&self, base: &NormalDn) -> Arc<Subject> {
        self.searcher(self.generation.databases.root_over(base))
    }

    fn searcher(&self, who: Option<&NormalDn>) -> Arc<Subject> {
        match who {
            Some(dn) => Arc::new(self.anonymous.bound_as(dn.clone(), dn.as_str())),
            None => self.anonymous.clone(),
        }
    }
}

impl Lookups for Online<'_> {
    fn schema(&self) -> &Schema {
        self.generation.databases.schema()
    }

    fn find_one(&self, who: Option<&NormalDn>, url: &LdapUrl) -> Option<NormalDn> {
        let mut found =
            self.generation.databases.identities((&self.searcher(who), &*self.server.clock), url, 2);
        if found.len() == 1 { found.pop() } else { None }
    }

    fn finds(&self, who: Option<&NormalDn>, url: &LdapUrl, entry: &NormalDn, meter: &Meter) -> bool {
        // Of all that the search would find, only this one entry is of interest.
        let databases = &self.generation.databases;
        databases.identity_among((&self.searcher(who), &*self.server.clock), url, (entry, meter))
    }

    fn expand(&self, url: &LdapUrl, attribute: Option<&str>) -> Option<String> {
        let databases = &self.generation.databases;
        let base = self.schema().parse_dn(&url.dn).ok()?;
        let root = self.root_over(&base);
        let mut found = databases.identities((&root, &*self.server.clock), url, 2);
        let entry = found.pop().filter(|_| found.is_empty())?;
        match attribute {
            None => Some(entry.as_str().to_owned()),
            Some(attribute) => {
                let values = databases.authentication_values((&root, &*self.server.clock), &entry, attribute);
                String::from_utf8(values.into_iter().next()?).ok()
            }
        }
    }

    fn values(&self, entry: &NormalDn, attribute: &str) -> Vec<Vec<u8>> {
        let databases = &self.generation.databases;
        databases.authentication_values((self.subject, &*self.server.clock), entry, attribute)
    }

    fn is_root_over(&self, who: &NormalDn, entry: &NormalDn) -> bool {
        self.generation.databases.config().is_root_over(who, entry)
    }
}
