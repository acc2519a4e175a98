//! What the configuration says about a database.

use std::fmt;
use std::sync::Arc;

use larix_schema::{AttributeDescription, BoundFilter, NearestSuffix, NormalDn, Schema};
use larix_store::Durability;

use crate::access::AccessPolicy;
use crate::budget::RequestLimits;
use crate::change::GivenCode;
use crate::csn::Csn;
use crate::fault::Fault;
use crate::index::IndexConfig;
use crate::log::LogRetention;
use crate::overlay::Overlays;

pub use crate::overlay::ProviderSettings;

/// A naming context of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suffix {
    pub normal: NormalDn,
    /// The DN as it was configured.
    pub text: String,
}

/// What the configuration says about a database. Replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct DatabaseSettings {
    pub suffixes: Vec<Suffix>,
    pub root_dn: Option<NormalDn>,
    /// The root DN as it was configured.
    pub root_dn_text: String,
    /// Clear or hashed.
    pub root_password: Option<Vec<u8>>,
    pub index: IndexConfig,
    pub read_only: bool,
    /// `subordinate`: glued below the database of a superior suffix.
    pub subordinate: bool,
    pub hidden: bool,
    pub limits: Limits,
    /// What one request may cost, for every identity.
    pub request_limits: RequestLimits,
    /// `maxentrysize`: a client's add or modify that leaves an entry of more bytes is refused. They are counted before it is
    /// packed; members that a large set has already do not count. `None`: no limit.
    pub entry_bytes_max: Option<u64>,
    /// Alias hops allowed in one dereference.
    pub max_deref_depth: u32,
    /// Only what its provider sends changes it: clients are sent elsewhere, and what the server itself keeps of accounts
    /// stays here.
    pub shadow: bool,
    /// The identity that may change a shadow nevertheless (`updatedn`).
    pub update_dn: Option<NormalDn>,
    /// Where a shadow sends clients that change something; none: to the default referrals.
    pub update_referrals: Vec<String>,
    /// Whether a shadow hands on to its provider what logins change: something follows its referral (`overlay chain`).
    pub forwards: bool,
    /// Other servers take changes, too, and each follows the others (`multiprovider`).
    pub multi_provider: bool,
    /// Whether changes keep the operational attributes (`lastmod`); without it an entry has structuralObjectClass alone.
    pub last_modified: bool,
    /// Entries need no object classes and no attributes that these require: they are parts of entries that another server has
    /// (`overlay translucent`). Values obey their syntaxes, and a single-valued attribute has one value.
    pub holds_parts: bool,
    /// Commits do not sync the store's root (`dbnosync`).
    pub durability_relaxed: bool,
    /// Whether and how the content is provided to consumers (RFC 4533); that takes a change log.
    pub provider: Option<ProviderSettings>,
    /// Clients may have searches go on with changes (`overlay psearch`); that takes a change log.
    pub tells_changes: bool,
    /// Databases whose entries belong to the content that is provided: their changes count in the contextCSN that is shown.
    pub glued_contexts: Option<Arc<dyn GluedContexts>>,
    /// The contextCSN is kept but not shown: the database has neither consumers nor a provider.
    pub hide_context: bool,
    /// Whether changes are written to the change log.
    pub log: bool,
    /// Conflicts of replication are settled value by value (`conflict-mode value`), not by entries: states of entries are
    /// kept. It takes a change log and `lastmod`.
    pub value_conflicts: bool,
    /// Changes come one by one from the access logs of several members, and this is one: they are merged by the states of
    /// entries, which are kept. It takes a change log and `lastmod`. Set also where a provider sent states.
    pub merges_records: bool,
    /// How long they stay there.
    pub log_retention: LogRetention,
    /// Whether an add needs access to each attribute (`add_content_acl`).
    pub add_content_acl: bool,
    /// What stands in front of it, in the order of the configuration.
    pub overlays: Overlays,
    /// What of changed entries is logged as it was before (`logold`).
    pub old_values: Option<Arc<OldValues>>,
    /// The suffix of the database that its operations are recorded in: auditContext of its own suffix entry.
    pub audit_context: Option<String>,
    /// The rules of the database and of the frontend; `None`: all clients may read, only the root DN may write.
    pub policy: Option<Arc<AccessPolicy>>,
}

/// How far databases have come that are glued below another one.
pub trait GluedContexts: fmt::Debug + Send + Sync {
    /// All their contextCSNs.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn context_csns(&self) -> Result<Vec<Csn>, Fault>;
}

/// Of which entries the change log has what they were before a change.
#[derive(Clone, Debug)]
pub struct OldValues {
    /// Entries that match it.
    pub filter: BoundFilter,
    /// Beside the attributes that change: these.
    pub attributes: Vec<AttributeDescription>,
}

impl DatabaseSettings {
    /// How many RDNs the nearest suffix at or above the name has. `None`: there is none, or the database is hidden.
    pub fn suffix_depth(&self, dn: &NormalDn) -> Option<usize> {
        self.depth_of(&NearestSuffix::of(dn))
    }

    /// The same for one choice among several databases.
    pub fn depth_of(&self, nearest: &NearestSuffix<'_>) -> Option<usize> {
        if self.hidden { None } else { nearest.depth(self.suffixes.iter().map(|suffix| &suffix.normal)) }
    }

    /// Whether an index is configured for the description, or for one that it covers. That of entryCSN is accepted, and the change log answers
    /// in its place.
    pub fn is_indexed(&self, schema: &Schema, description: &AttributeDescription) -> bool {
        let attribute = description.attribute;
        let subtypes = schema.subtypes(attribute).iter().map(|subtype| AttributeDescription::plain(*subtype));
        schema.attribute(attribute).name() == "entryCSN"
            || subtypes
                .chain([description.clone()])
                .any(|covered| !self.index.kinds(schema, &covered).is_empty())
    }

    /// How commits of changes that are answered are synced.
    pub(crate) fn durability(&self) -> Durability {
        if self.durability_relaxed { Durability::NoMetaSync } else { Durability::Sync }
    }

    /// Whether a code of a second factor can be used up here: only where the change reaches the other servers.
    pub(crate) fn keeps_codes(&self, code: &GivenCode) -> bool {
        !self.read_only && (!self.shadow || self.forwards_login(code))
    }

    /// Whether what this login changes goes to the provider.
    pub(crate) fn forwards_login(&self, code: &GivenCode) -> bool {
        let is_login = !matches!(code, GivenCode::NotAsked | GivenCode::Compared(_));
        self.shadow && self.forwards && is_login
    }

    /// Whether states of entries are kept beside them: who changed what when.
    pub fn keeps_states(&self) -> bool {
        self.value_conflicts || self.merges_records
    }

    /// Whether states of entries can be kept here when a provider sends some: they say who changed what when, and what was removed
    /// is remembered as long as the change log. With `conflict-mode value` they are kept anyway.
    pub fn can_keep_states(&self) -> bool {
        self.last_modified && self.log && !self.value_conflicts
    }

    /// `kept`: a provider sent the states of entries.
    pub(super) fn with_states(mut self, kept: bool) -> Self {
        self.merges_records |= kept && self.can_keep_states();
        self
    }

    pub(super) fn policy_or_open(&self, schema: &Arc<Schema>) -> Arc<AccessPolicy> {
        let open = || Arc::new(AccessPolicy::open(Arc::clone(schema), self.root_dn.clone()));
        self.policy.clone().unwrap_or_else(open)
    }
}

/// Limits of one search, under OpenLDAP's names (`limits`, `sizelimit`, `timelimit`); `None` is no limit.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries when the client asks for no limit.
    pub size_soft: Option<u32>,
    pub size_hard: HardLimit,
    /// Candidates above which a search is refused (adminLimitExceeded).
    pub size_unchecked: Option<u32>,
    /// Entries of one page (`size.pr`).
    pub size_page: Option<u32>,
    /// Entries of all pages together (`size.prtotal`).
    pub size_total: PagedTotal,
    /// Paged results do not tell the number of candidates.
    pub no_estimate: bool,
    /// Seconds when the client asks for no limit.
    pub time_soft: Option<u32>,
    pub time_hard: HardLimit,
}

/// What a client may ask for at most.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum HardLimit {
    /// The soft limit; asking for more gives that.
    #[default]
    Soft,
    Unlimited,
    /// Asking for more is an error.
    Count(u32),
}

/// How many entries paged results may give in all (`size.prtotal`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PagedTotal {
    /// As many as a search without pages.
    Hard,
    Unlimited,
    Disabled,
    Count(u32),
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            size_soft: Some(500),
            size_hard: HardLimit::Soft,
            size_unchecked: None,
            size_page: None,
            size_total: PagedTotal::Hard,
            no_estimate: false,
            time_soft: Some(3600),
            time_hard: HardLimit::Soft,
        }
    }
}

impl Limits {
    pub const UNLIMITED: Self = Self {
        size_soft: None,
        size_hard: HardLimit::Unlimited,
        size_unchecked: None,
        size_page: None,
        size_total: PagedTotal::Unlimited,
        no_estimate: false,
        time_soft: None,
        time_hard: HardLimit::Unlimited,
    };
}
