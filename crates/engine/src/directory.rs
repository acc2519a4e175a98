//! The directory as a whole: naming contexts and the databases that hold them.
//!
//! A [`Directory`] is immutable. A change of the configuration makes a new one that shares the databases; each database's
//! own settings are published in place (`Database::publish_configuration`).

mod absent;
mod binds;
mod changes;
mod committed;
mod passwords;
mod replicated;
mod served_database;

use std::sync::Arc;

use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::{NearestSuffix, NormalDn, Schema};
use larix_store::Store;

pub use binds::BindLookup;
pub use committed::{CommittedFollower, Writers, begin_followers};
pub use served_database::{DatabaseHandle, ServedDatabase};

use crate::access::{AccessPolicy, OtherEntries};
use crate::neighbours::Neighbours;
use crate::overlay::internal_search::OtherDatabases;
use crate::search::referral;
use crate::write::KnownSchema;
use crate::write::known::MissingElement;

/// What holds for all databases.
#[derive(Clone, Debug)]
pub struct Frontend {
    pub schema: Arc<Schema>,
    /// The subschema subentry, `cn=Subschema`.
    pub subschema: NormalDn,
    /// Where a search of the empty DN with another scope than base looks (`defaultsearchbase`).
    pub default_search_base: Option<(NormalDn, String)>,
    /// URLs of servers for names that no database here holds (`referral`).
    pub referrals: Vec<String>,
}

impl Frontend {
    /// The answer for a DN that no database holds: the default referral, or `otherwise`.
    pub fn elsewhere(&self, target: &str, scope: Option<Scope>, otherwise: LdapResult) -> LdapResult {
        if self.referrals.is_empty() {
            return otherwise;
        }
        let target = Some(target).filter(|target| !target.is_empty());
        let referrals = referral::rewrite(&self.schema, &self.referrals, None, target, scope);
        LdapResult { referrals, ..LdapResult::new(ResultCode::REFERRAL) }
    }
}

/// One database of a directory, with what holds for all of them.
#[derive(Debug)]
pub struct ChosenDatabase<'d, S: Store> {
    frontend: &'d Frontend,
    known: &'d KnownSchema,
    served: &'d Arc<ServedDatabase<S>>,
}

impl<'d, S: Store> ChosenDatabase<'d, S> {
    pub fn served(self) -> &'d Arc<ServedDatabase<S>> {
        self.served
    }
}

impl<S: Store> Copy for ChosenDatabase<'_, S> {}

impl<S: Store> Clone for ChosenDatabase<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

/// Where the database of a DN is, as seen from one database.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DnLocation {
    Here,
    /// In another database.
    Elsewhere,
    Nowhere,
}

/// Naming contexts and their databases.
#[derive(Debug)]
pub struct Directory<S: Store> {
    frontend: Frontend,
    known: KnownSchema,
    databases: Vec<Arc<ServedDatabase<S>>>,
}

/// The entries of these databases, for the access rules of others.
pub fn other_entries<S: Store>(databases: &[Arc<ServedDatabase<S>>]) -> Arc<dyn OtherEntries> {
    Arc::new(neighbours(databases))
}

fn neighbours<S: Store>(databases: &[Arc<ServedDatabase<S>>]) -> Neighbours<S> {
    Neighbours(databases.iter().map(|served| Arc::downgrade(&served.database)).collect())
}

impl<S: Store> Directory<S> {
    /// # Errors
    /// A schema without the system's elements.
    pub fn new(frontend: Frontend, databases: Vec<Arc<ServedDatabase<S>>>) -> Result<Self, MissingElement> {
        let known = KnownSchema::of(&frontend.schema)?;
        let directory = Self { frontend, known, databases };
        let others: Arc<dyn OtherDatabases> = Arc::new(neighbours(&directory.databases));
        for served in &directory.databases {
            directory.let_see(&served.database.policy());
            served.database.see_others(Arc::clone(&others));
        }
        Ok(directory)
    }

    /// Lets a policy see the entries of all databases: groups may be there.
    pub fn let_see(&self, policy: &AccessPolicy) {
        policy.see_others(other_entries(&self.databases));
    }

    pub fn frontend(&self) -> &Frontend {
        &self.frontend
    }

    pub fn schema(&self) -> &Arc<Schema> {
        &self.frontend.schema
    }

    pub fn known(&self) -> &KnownSchema {
        &self.known
    }

    /// In the order of the configuration.
    pub fn databases(&self) -> &[Arc<ServedDatabase<S>>] {
        &self.databases
    }

    /// The suffixes that the root DSE lists, as they were configured: neither hidden nor glued below another.
    pub fn naming_contexts(&self) -> Vec<String> {
        let mut contexts = Vec::new();
        for served in &self.databases {
            let settings = served.database.settings();
            if !settings.hidden && !settings.subordinate {
                contexts.extend(settings.suffixes.iter().map(|suffix| suffix.text.clone()));
            }
        }
        contexts
    }

    /// The database that holds this DN: of those whose suffix is at or above it, the one with the longest. Hidden ones
    /// hold nothing.
    pub fn select(&self, dn: &NormalDn) -> Option<&Arc<ServedDatabase<S>>> {
        let depth = |nearest: &NearestSuffix<'_>, served: &&Arc<ServedDatabase<S>>| {
            served.database.current_settings().depth_of(nearest)
        };
        NearestSuffix::of(dn).among(&self.databases, depth).map(|(_, served)| served)
    }

    /// This database of the directory.
    pub fn at<'d>(&'d self, served: &'d Arc<ServedDatabase<S>>) -> ChosenDatabase<'d, S> {
        ChosenDatabase { frontend: &self.frontend, known: &self.known, served }
    }

    fn chosen(&self, dn: &NormalDn) -> Option<ChosenDatabase<'_, S>> {
        self.select(dn).map(|served| self.at(served))
    }

    /// The databases whose suffixes are below this DN and glued to the naming context that it is in: where a search of
    /// a subtree goes on.
    pub fn glued_below(&self, dn: &NormalDn) -> Vec<&Arc<ServedDatabase<S>>> {
        let is_below = |served: &&Arc<ServedDatabase<S>>| {
            let settings = served.database.current_settings();
            settings.subordinate
                && !settings.hidden
                && settings.suffixes.iter().any(|suffix| suffix.normal.is_descendant_of(dn))
        };
        self.databases.iter().filter(is_below).collect()
    }

    /// As [`Frontend::elsewhere`].
    pub fn elsewhere(&self, target: &str, scope: Option<Scope>, otherwise: LdapResult) -> LdapResult {
        self.frontend.elsewhere(target, scope, otherwise)
    }
}
