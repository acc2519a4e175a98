//! Identities looked up in the databases of a configuration, beside a server or without one.

use std::sync::Arc;

use larix_configuration::Config;
use larix_engine::access::{PeerNames, Strength, Subject};
use larix_engine::budget::Meter;
use larix_engine::overlay::internal_search::{InternalLimits, InternalSearch};
use larix_engine::search::{Gate, GuardedEntry, internal};
use larix_engine::{Database, EntrySource};
use larix_proto::Scope;
use larix_proto::url::LdapUrl;
use larix_schema::{BoundFilter, NearestSuffix, NormalDn, Schema};
use larix_server::sasl::identity::Lookups;
use larix_store::Store;

use super::choice::section_of;
use super::opening::Opened;

/// Two are as good as many: the answer does not name them.
const FOUND_MAX: u64 = 2;

/// The databases of a configuration, read beside a server or without one.
pub(super) struct Offline<'c> {
    config: &'c Config,
    opened: Vec<(&'c larix_configuration::Database, Opened)>,
}

impl<'c> Offline<'c> {
    /// A database that cannot be opened has no entries here.
    pub(super) fn open(config: &'c Config) -> Self {
        let stored = config.databases.iter().filter(|database| database.kind.keeps_entries());
        let opened = stored.filter_map(|section| match Opened::open(config, section) {
            Ok(database) => Some((section, database)),
            Err(error) => {
                eprintln!("note: not searched: {error:#}");
                None
            }
        });
        Self { config, opened: opened.collect() }
    }

    /// For rules that need no database.
    pub(super) fn closed(config: &'c Config) -> Self {
        Self { config, opened: Vec::new() }
    }

    fn holder(&self, dn: &NormalDn) -> Option<&Opened> {
        let found =
            NearestSuffix::of(dn).among(&self.opened, |nearest, (section, _)| section.depth_of(nearest));
        found.map(|(_, (_, database))| database)
    }

    fn subject(who: Option<&NormalDn>) -> Arc<Subject> {
        let anonymous = Subject::anonymous(Arc::new(PeerNames::default()), Strength::default());
        Arc::new(match who {
            Some(dn) => anonymous.bound_as(dn.clone(), dn.as_str()),
            None => anonymous,
        })
    }

    fn search(&self, who: Option<&NormalDn>, url: &LdapUrl) -> Option<Vec<NormalDn>> {
        let base = self.config.schema.parse_dn(&url.dn).ok()?;
        match self.holder(&base)? {
            Opened::Stored(database) => self.search_in(database, who, (&base, url)),
            Opened::Shared(database) => self.search_in(database, who, (&base, url)),
        }
    }

    fn search_in<S: Store>(
        &self,
        database: &Database<S>,
        who: Option<&NormalDn>,
        (base, url): (&NormalDn, &LdapUrl),
    ) -> Option<Vec<NormalDn>> {
        let filter = url.filter.as_ref();
        let filter =
            filter.map_or(BoundFilter::True, |filter| self.config.schema.bind_filter(filter.as_filter()));
        let snapshot = database.store().snapshot().ok()?;
        let view = database.view(&snapshot).ok()?;
        let subject = Self::subject(who);
        let query = InternalSearch::for_identity(base, url.scope.unwrap_or(Scope::Base), &filter, &subject)
            .within(InternalLimits { entries: FOUND_MAX, ..InternalLimits::default() });
        let mut found = Vec::new();
        let searched = internal::search(&view, &query, &mut |entry| {
            found.push(entry.dn()?.clone());
            Ok(true)
        });
        searched.ok()?;
        Some(found)
    }

    fn attribute(&self, who: Option<&NormalDn>, entry: &NormalDn, attribute: &str) -> Option<Vec<Vec<u8>>> {
        match self.holder(entry)? {
            Opened::Stored(database) => self.attribute_in(database, who, (entry, attribute)),
            Opened::Shared(database) => self.attribute_in(database, who, (entry, attribute)),
        }
    }

    fn attribute_in<S: Store>(
        &self,
        database: &Database<S>,
        who: Option<&NormalDn>,
        (entry, attribute): (&NormalDn, &str),
    ) -> Option<Vec<Vec<u8>>> {
        let description = self.config.schema.describe(attribute).ok()?;
        let snapshot = database.store().snapshot().ok()?;
        let view = database.view(&snapshot).ok()?;
        let id = view.resolve(entry).ok()?.and_then(|resolved| resolved.id)?;
        let record = view.record(id).ok()??;
        let subject = Self::subject(who);
        let seen =
            GuardedEntry::new(&view, view.reader(id, &record).ok()?, Gate::new(&view.policy, &subject));
        let mut values = Vec::new();
        let visited = seen.reader.visit_description(&description, &mut |value| {
            values.push(value.to_vec());
            true
        });
        visited.ok().map(|_| values)
    }
}

impl Lookups for Offline<'_> {
    fn schema(&self) -> &Schema {
        &self.config.schema
    }

    fn find_one(&self, who: Option<&NormalDn>, url: &LdapUrl) -> Option<NormalDn> {
        self.search(who, url).filter(|found| found.len() == 1).and_then(|mut found| found.pop())
    }

    fn finds(&self, who: Option<&NormalDn>, url: &LdapUrl, entry: &NormalDn, _: &Meter) -> bool {
        let Ok(base) = self.config.schema.parse_dn(&url.dn) else { return false };
        let in_scope = entry.is_in_scope(&base, url.scope.unwrap_or(Scope::Base));
        let only = LdapUrl { dn: entry.as_str().to_owned(), scope: Some(Scope::Base), ..url.clone() };
        in_scope && self.search(who, &only).is_some_and(|found| !found.is_empty())
    }

    fn expand(&self, url: &LdapUrl, attribute: Option<&str>) -> Option<String> {
        let base = self.config.schema.parse_dn(&url.dn).ok()?;
        let root = section_of(self.config, &base).and_then(larix_configuration::Database::effective_root);
        let entry = self.find_one(root.as_ref(), url)?;
        match attribute {
            None => Some(entry.as_str().to_owned()),
            Some(attribute) => {
                let values = self.attribute(root.as_ref(), &entry, attribute)?;
                String::from_utf8(values.into_iter().next()?).ok()
            }
        }
    }

    fn values(&self, entry: &NormalDn, attribute: &str) -> Vec<Vec<u8>> {
        self.attribute(None, entry, attribute).unwrap_or_default()
    }

    fn is_root_over(&self, who: &NormalDn, entry: &NormalDn) -> bool {
        self.config.is_root_over(who, entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As for the server: the nearest database counts, whatever is behind it in the configuration, and of glued ones the uppermost.
    #[test]
    fn the_root_of_a_database_within_another() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("slapd.conf");
        let text = |glue: &str| {
            format!(
                "database null\nsuffix cn=b,cn=x\n{glue}rootdn cn=inner\ndatabase null\nsuffix cn=x\nrootdn cn=outer\n"
            )
        };
        for (glue, who, entry, expected) in [
            ("", "cn=inner", "cn=a,cn=b,cn=x", true),
            ("", "cn=outer", "cn=a,cn=b,cn=x", false),
            ("", "cn=outer", "cn=a,cn=x", true),
            ("", "cn=inner", "cn=a,cn=x", false),
            ("", "cn=outer", "cn=y", false),
            ("", "cn=config", "cn=schema,cn=config", true),
            ("subordinate\n", "cn=inner", "cn=a,cn=b,cn=x", false),
            ("subordinate\n", "cn=outer", "cn=a,cn=b,cn=x", true),
            ("subordinate\n", "cn=outer", "cn=a,cn=x", true),
            ("subordinate\n", "cn=inner", "cn=a,cn=x", false),
        ] {
            std::fs::write(&file, text(glue)).unwrap();
            let config = Config::from_slapd_conf(&file).unwrap();
            let dn = |text: &str| config.schema.parse_dn(text).unwrap();
            let lookups = Offline::closed(&config);
            assert_eq!(lookups.is_root_over(&dn(who), &dn(entry)), expected, "{glue:?} {who} {entry}");
        }
    }
}
