//! The databases as requests see them: the rules in force, and lookups of identities.

use std::sync::Arc;

use larix_engine::Fault;
use larix_engine::access::Subject;
use larix_engine::budget::Meter;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::time::{Clock, Monotonic};
use larix_proto::{Scope, url::LdapUrl};
use larix_schema::{BoundFilter, NormalDn};

use super::Databases;
use crate::connection::RemoteLookups;
use larix_backend::{Alone, Client, Context, Identities, Routing};

impl Databases {
    /// Which requests may have to ask databases on other machines before they reach one.
    pub(crate) fn looks_up(&self) -> RemoteLookups {
        self.looks_up
    }

    /// What a request of this subject is carried out under, which began then.
    pub(crate) fn context<'a>(
        &'a self,
        subject: &'a Arc<Subject>,
        (client, clock): (&'a dyn Client, &'a dyn Clock),
        began: Monotonic,
    ) -> Context<'a> {
        Context { subject, router: &self.router, client, clock, began }
    }

    /// Values of an attribute that this subject may use to authenticate.
    pub(crate) fn authentication_values(
        &self,
        (subject, clock): (&Arc<Subject>, &dyn Clock),
        dn: &NormalDn,
        attribute: &str,
    ) -> Vec<Vec<u8>> {
        let context = self.context(subject, (&Alone, clock), clock.monotonic());
        let backend = self.router.backend(dn);
        backend.map(|backend| backend.authentication_values(&context, dn, attribute)).unwrap_or_default()
    }

    /// Values of an attribute as they are stored, without a look at rights; `None` where no stored entry of this server has the name.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn stored_values(
        &self,
        clock: &dyn Clock,
        dn: &NormalDn,
        attribute: &str,
    ) -> Result<Option<Vec<Vec<u8>>>, Fault> {
        let (Some(backend), Ok(description)) = (self.router.backend(dn), self.schema().describe(attribute))
        else {
            return Ok(None);
        };
        let anonymous = Arc::default();
        let context = self.context(&anonymous, (&Alone, clock), clock.monotonic());
        let query = InternalSearch::new(dn, Scope::Base, &BoundFilter::True).of_what_is_stored();
        let mut values = None;
        backend.find(&context, &query, &mut |found| {
            let own = values.get_or_insert_with(Vec::new);
            found.source().visit_exact(&description, &mut |value| {
                own.push(value.to_vec());
                true
            })?;
            Ok(false)
        })?;
        Ok(values)
    }

    /// Up to `limit` entries that an LDAP URL finds, with the `auth` privilege on what its filter asks for.
    pub(crate) fn identities(
        &self,
        asked_by: (&Arc<Subject>, &dyn Clock),
        url: &LdapUrl,
        limit: u32,
    ) -> Vec<NormalDn> {
        self.identities_found(asked_by, url, limit, None)
    }

    /// The same at the cost of a request.
    fn identities_found(
        &self,
        (subject, clock): (&Arc<Subject>, &dyn Clock),
        url: &LdapUrl,
        limit: u32,
        meter: Option<&Meter>,
    ) -> Vec<NormalDn> {
        let Ok(base) = self.schema().parse_dn(&url.dn) else { return Vec::new() };
        let scope = url.scope.unwrap_or(Scope::Base);
        let filter = url.filter.as_ref();
        let filter = filter.map_or(BoundFilter::True, |filter| self.schema().bind_filter(filter.as_filter()));
        let context = self.context(subject, (&Alone, clock), clock.monotonic());
        let mut found = Vec::new();
        let first = self.router.backend(&base).map(|backend| (backend, &base, scope));
        for (backend, base, scope) in first.into_iter().chain(self.router.glued_below(&base, scope)) {
            let limit = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
            let asked = Identities { base, scope, filter: &filter, limit, meter };
            if !backend.identities(&context, &asked, &mut found) {
                break;
            }
        }
        found
    }

    /// Whether this entry is among those that an LDAP URL finds, as far as the steps of the meter tell. Of these only this one is of interest,
    /// and the base, where a search begins.
    pub(crate) fn identity_among(
        &self,
        (subject, clock): (&Arc<Subject>, &dyn Clock),
        url: &LdapUrl,
        (entry, meter): (&NormalDn, &Meter),
    ) -> bool {
        let Ok(base) = self.schema().parse_dn(&url.dn) else { return false };
        let in_scope = entry.is_in_scope(&base, url.scope.unwrap_or(Scope::Base));
        let begin = LdapUrl { scope: Some(Scope::Base), filter: None, ..url.clone() };
        let only = LdapUrl { dn: entry.as_str().to_owned(), scope: Some(Scope::Base), ..url.clone() };
        let is_found =
            |url: &LdapUrl| !self.identities_found((subject, clock), url, 1, Some(meter)).is_empty();
        in_scope && (*entry == base || is_found(&begin)) && is_found(&only)
    }
}

#[cfg(test)]
mod tests {
    use larix_configuration::Config;
    use larix_proto::MessageId;
    use larix_proto::client::{self, ClientAttribute};

    use crate::local::LocalServer;

    #[test]
    fn what_is_stored_is_seen_without_rights_and_without_a_root_dn() {
        let folder = tempfile::tempdir().unwrap();
        let (file, data) = (folder.path().join("slapd.conf"), folder.path().join("data"));
        std::fs::create_dir(&data).unwrap();
        let text = format!(
            "objectclass ( 1.2.3.4 NAME 'thing' SUP top STRUCTURAL MUST cn MAY ( description $ seeAlso ) )\n\
             allow update_anon\ndatabase mdb\nsuffix cn=x\ndirectory {}\n\
             access to attrs=description by * none\naccess to * by * write\n",
            data.display()
        );
        std::fs::write(&file, text).unwrap();
        let local = LocalServer::open(Config::from_slapd_conf(&file).unwrap()).unwrap();
        let (mut connection, mut request, mut out) = (local.connect(), Vec::new(), Vec::new());
        let attributes = [
            ClientAttribute { description: "objectClass", values: &["thing"] },
            ClientAttribute { description: "cn", values: &["x"] },
            ClientAttribute { description: "description", values: &["hidden"] },
        ];
        client::add(&mut request, MessageId(1), "cn=x", &attributes, &[]);
        connection.request(&request, &mut out);
        // SEQUENCE, messageID, the answer, and in it the result's code: success.
        assert_eq!(out.get(7..10), Some(&[10, 1, 0][..]), "{out:02x?}");
        let server = local.server();
        let generation = server.generation_in_force();
        let databases = &generation.databases;
        let values = |dn: &str, attribute: &str| {
            let dn = databases.schema().parse_dn(dn).unwrap();
            databases.stored_values(&*server.clock, &dn, attribute).unwrap()
        };
        assert_eq!(values("cn=x", "description"), Some(vec![b"hidden".to_vec()]));
        assert_eq!(values("cn=x", "seeAlso"), Some(Vec::new()));
        assert_eq!(values("cn=y,cn=x", "description"), None);
        assert_eq!(values("cn=elsewhere", "description"), None);
    }
}
