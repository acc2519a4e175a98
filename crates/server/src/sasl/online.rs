//! Identities looked up in the databases of a running server.

use std::sync::Arc;

use larix_engine::access::Subject;
use larix_proto::url::LdapUrl;
use larix_schema::{NormalDn, Schema};

use super::identity::Lookups;
use crate::server::{Generation, Server};

/// The databases, asked by a connection.
pub(crate) struct Online<'a> {
    pub(crate) server: &'a Server,
    /// What one question is answered by.
    pub(crate) generation: &'a Generation,
    /// The connection without its identity.
    pub(crate) anonymous: &'a Arc<Subject>,
    /// Whose privileges count for attributes: whoever binds, or is bound.
    pub(crate) subject: &'a Arc<Subject>,
}

impl Online<'_> {
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
        let mut found = self.generation.databases.identities(self.server, &self.searcher(who), url, 2);
        if found.len() == 1 { found.pop() } else { None }
    }

    fn finds(&self, who: Option<&NormalDn>, url: &LdapUrl, entry: &NormalDn) -> bool {
        // Of all that the search would find, only this one entry is of interest.
        self.generation.databases.identity_among(self.server, &self.searcher(who), url, entry)
    }

    fn values(&self, entry: &NormalDn, attribute: &str) -> Vec<Vec<u8>> {
        self.generation.databases.authentication_values(entry, attribute, self.subject)
    }

    fn is_root_over(&self, who: &NormalDn, entry: &NormalDn) -> bool {
        self.generation.databases.is_root_over(who, entry)
    }
}
