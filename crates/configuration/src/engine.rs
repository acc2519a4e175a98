//! What the engine is given of the configuration.

use std::sync::Arc;

use larix_engine::access::{AccessPolicy, AccessPolicyError, AccessRule};
use larix_engine::database::{DatabaseSettings, HardLimit, Limits, PagedTotal, Suffix};
use larix_engine::log::LogRetention;
use larix_engine::overlay::{Descriptor, Interests};
use larix_schema::{NearestSuffix, NormalDn};

use super::diagnostic::{ConfigError, Origin};
use super::kinds::StoredSettings;
use super::model::{AccessLine, Config, Database, Overlay};
use super::values::{self, ChangeLog, ConfigDn, Hard, SearchLimits, Soft, SyncData, Unchecked};

impl From<SearchLimits> for Limits {
    fn from(limits: SearchLimits) -> Self {
        let soft = |limit| match limit {
            Soft::Unlimited => None,
            Soft::At(limit) => Some(limit),
        };
        let hard = |limit| match limit {
            Hard::AsSoft => HardLimit::Soft,
            Hard::Unlimited => HardLimit::Unlimited,
            Hard::At(limit) => HardLimit::Count(limit),
        };
        Self {
            size_soft: soft(limits.size.soft),
            size_hard: hard(limits.size.hard),
            size_unchecked: match limits.size.unchecked {
                Unchecked::Unlimited => None,
                Unchecked::Disabled => Some(0),
                Unchecked::At(limit) => Some(limit),
            },
            size_page: limits.size.page,
            size_total: match limits.size.paged_total {
                values::PagedTotal::AsHard => PagedTotal::Hard,
                values::PagedTotal::Unlimited => PagedTotal::Unlimited,
                values::PagedTotal::Disabled => PagedTotal::Disabled,
                values::PagedTotal::At(limit) => PagedTotal::Count(limit),
            },
            no_estimate: limits.size.hide_estimate,
            time_soft: soft(limits.time.soft),
            time_hard: hard(limits.time.hard),
        }
    }
}

impl Config {
    /// The settings of a database as the engine takes them, access rules and all.
    ///
    /// # Errors
    /// As [`Config::access_policy`].
    pub fn engine_settings(&self, database: &Database) -> Result<DatabaseSettings, ConfigError> {
        let suffix = |dn: &ConfigDn| Suffix { normal: dn.normal.clone(), text: dn.text.clone() };
        let StoredSettings { change_log, index, relaxed, entry_bytes_max, value_conflicts } =
            database.kind.stored();
        let overlays = self.build_overlays(database)?;
        let (provider, stack, tells_changes) =
            (overlays.provider(), overlays.stack(), overlays.tells_changes());
        let access_log = self.access_log(database)?;
        let merges_records = self.merges_records(database);
        Ok(DatabaseSettings {
            suffixes: database.suffixes.iter().map(suffix).collect(),
            root_dn: database.effective_root(),
            root_dn_text: database.root_dn.as_ref().map(|root| root.text.clone()).unwrap_or_default(),
            root_password: database.root_password.clone(),
            index: overlays.index(index),
            read_only: database.shared.read_only,
            subordinate: database.subordinate.is_some(),
            hidden: database.hidden,
            limits: database.shared.search_limits.into(),
            request_limits: overlays.request_limits(self.global.request_limits),
            entry_bytes_max,
            max_deref_depth: database.shared.max_deref_depth,
            shadow: self.is_shadow(database),
            update_dn: database.update_dn.as_ref().map(|dn| dn.normal.clone()),
            update_referrals: database.update_refs.clone(),
            forwards: self.forwards_logins(database),
            multi_provider: database.multi_provider,
            last_modified: database.last_mod && !database.is_translucent(),
            holds_parts: database.is_translucent(),
            durability_relaxed: relaxed,
            // The access log is made from it.
            // Consumers are served from the change log, and an access log is made from it.
            // What was removed is remembered as long as it.
            log: change_log != ChangeLog::Off
                || provider.is_some()
                || tells_changes
                || value_conflicts
                || merges_records
                || access_log.is_some()
                || stack.want(Interests::COMMITTED),
            hide_context: provider.is_none()
                && database.sync_replication.is_empty()
                && database.update_dn.is_none(),
            provider,
            glued_contexts: None,
            tells_changes,
            value_conflicts,
            merges_records,
            log_retention: match change_log {
                ChangeLog::Kept(retention) => retention,
                ChangeLog::Off => LogRetention::default(),
            },
            add_content_acl: database.shared.add_content_acl,
            audit_context: access_log.as_ref().map(|access_log| access_log.database.text.clone()),
            old_values: access_log.and_then(|access_log| access_log.old).map(Arc::new),
            overlays: stack,
            policy: Some(Arc::new(self.access_policy(Some(database))?)),
        })
    }

    /// The access rules in force in a database: its own, then the frontend's. For the root DSE and cn=Subschema, and
    /// where no database serves, `None` gives those of the frontend alone.
    ///
    /// # Errors
    /// A rule that names something undefined or that cannot be enforced. A configuration that was read and whose
    /// [`Config::refusals`] are empty has none.
    pub fn access_policy(&self, database: Option<&Database>) -> Result<AccessPolicy, ConfigError> {
        let rules =
            |lines: &[AccessLine]| lines.iter().map(|line| line.rule.clone()).collect::<Vec<AccessRule>>();
        let mut own = database.map(|database| rules(&database.access)).unwrap_or_default();
        if own.is_empty() && database.is_some_and(|database| database.kind.descriptor().closed) {
            // No identity may read the configuration unless a rule says so.
            own.extend(AccessRule::parse("to * by * none").ok());
        }
        let root = database.and_then(Database::effective_root);
        AccessPolicy::new(self.schema.clone(), root, &own, &rules(&self.frontend.access))
            .map_err(|error| self.access_error(database, &error))
    }

    fn access_error(&self, database: Option<&Database>, error: &AccessPolicyError) -> ConfigError {
        let own = database.map(|database| database.access.as_slice()).unwrap_or_default();
        let line = own.iter().chain(&self.frontend.access).find(|line| line.rule.text == error.rule);
        let origin = line.map_or(Origin::BuiltIn, |line| line.origin.clone());
        ConfigError::new(origin, format!("access rule `{}`: {}", error.rule, error.fault))
    }
}

impl Config {
    /// Whether changes are merged one by one by the states of entries. Servers that follow access logs do this. A member that has
    /// no provider for a while goes on noting when what was changed: others change the same entries meanwhile, and it will receive
    /// that.
    fn merges_records(&self, database: &Database) -> bool {
        if !database.kind.is_in_lmdb() && !database.kind.is_in_shared_engine() {
            return false;
        }
        let mut lines = database.sync_replication.iter().filter(|line| !self.names_itself(line)).peekable();
        let follows = match lines.peek() {
            Some(_) => lines.any(|line| line.data == SyncData::AccessLog),
            None => database.multi_provider && database.records_operations(),
        };
        let settles_values = database.kind.mdb().is_some_and(|mdb| mdb.value_conflicts);
        database.last_mod && !settles_values && follows
    }

    /// Whether what logins change in a shadow can be handed on to its provider: it has a referral, and what follows it.
    pub(crate) fn forwards_logins(&self, database: &Database) -> bool {
        let mut overlays = database.overlays.iter().chain(&self.frontend.overlays);
        !database.update_refs.is_empty() && overlays.any(|overlay| overlay.chain().is_some())
    }

    /// The database whose suffix is the longest at or above a name, of those that are meant, also where it stores no entries.
    pub fn nearest_database(
        &self,
        name: &NormalDn,
        is_meant: impl Fn(&Database) -> bool,
    ) -> Option<&Database> {
        let meant = self.databases.iter().filter(|database| is_meant(database));
        let found = NearestSuffix::of(name).among(meant, |nearest, database| {
            match database.kind.own_suffix_normal() {
                Some(own) => nearest.depth([&own]),
                None => database.depth_of(nearest),
            }
        });
        found.map(|(_, database)| database)
    }

    /// Whether `who` may act as the identity of this name (RFC 4370) without a rule: as the root DN of the database that holds it. Of
    /// databases that are glued together that is the uppermost one's, as in slapd.
    pub fn is_root_over(&self, who: &NormalDn, name: &NormalDn) -> bool {
        let is_uppermost =
            |database: &Database| !database.disabled && !database.hidden && database.subordinate.is_none();
        let found = self.nearest_database(name, is_uppermost);
        found.is_some_and(|database| database.effective_root().as_ref() == Some(who))
    }

    /// Whether a database takes changes from a provider alone. A server that is named as its own provider follows no other.
    pub fn is_shadow(&self, database: &Database) -> bool {
        let lines = &database.sync_replication;
        let follows = match lines.is_empty() {
            true => database.update_dn.is_some() || !database.update_refs.is_empty(),
            false => lines.iter().any(|line| !self.names_itself(line)),
        };
        follows && !database.multi_provider
    }
}

impl Database {
    /// Whether an overlay of its own records operations in an access log.
    pub(super) fn records_operations(&self) -> bool {
        self.has_overlay(|descriptor| descriptor.records_operations)
    }

    /// Whether an overlay of its own provides its content to consumers (RFC 4533).
    pub fn provides_content(&self) -> bool {
        self.has_overlay(|descriptor| descriptor.provides_content)
    }

    fn has_overlay(&self, is_it: impl Fn(&Descriptor) -> bool) -> bool {
        let enabled = self.overlays.iter().filter(|overlay| !overlay.disabled);
        enabled.filter_map(Overlay::descriptor).any(is_it)
    }

    /// The rootdn; that of cn=config is cn=config unless it has another.
    pub fn effective_root(&self) -> Option<NormalDn> {
        let own = || self.kind.descriptor().own_root.map(NormalDn::from_normal);
        self.root_dn.as_ref().map(|root| root.normal.clone()).or_else(own)
    }
}
