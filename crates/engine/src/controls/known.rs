//! The controls that are understood, and what they go with: one table.

use larix_proto::oid;

/// The kind of an operation, as far as controls care.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OperationKind<'a> {
    Bind,
    Search,
    Compare,
    Add,
    Modify,
    Delete,
    ModifyDn,
    /// With the operation's OID.
    Extended(&'a str),
}

/// A control that this server knows.
#[derive(Copy, Clone, Debug)]
pub struct SupportedControl {
    pub oid: &'static str,
    /// In diagnostic messages.
    pub(super) name: &'static str,
    /// Whether the root DSE lists it in `supportedControl`.
    pub listed: bool,
    operations: u8,
    extended: &'static [&'static str],
}

const BIND: u8 = 1;
const SEARCH: u8 = 2;
const COMPARE: u8 = 4;
const ADD: u8 = 8;
const MODIFY: u8 = 16;
const DELETE: u8 = 32;
const MODIFY_DN: u8 = 64;
const UPDATE: u8 = ADD | MODIFY | DELETE | MODIFY_DN;
const ACCESS: u8 = UPDATE | COMPARE | SEARCH;

const IDENTITY_EXTENSIONS: &[&str] = &[oid::PASSWORD_MODIFY, oid::WHO_AM_I, oid::REFRESH];
/// Every extended operation: any of them may be passed on to another server.
const ANY_EXTENSION: &[&str] = &["*"];

/// Every control that is understood. Those that OpenLDAP supports without listing them are not listed here either;
/// sorting, virtual list views and dereferencing (there overlays'), tree delete and effective rights, which its embedded database
/// lacks, are.
pub const SUPPORTED: &[SupportedControl] = &[
    supported(oid::PROXIED_AUTHORIZATION, "proxy authorization", true, ACCESS, IDENTITY_EXTENSIONS),
    supported(oid::PROXIED_AUTHORIZATION_V1, "proxy authorization", false, ACCESS, IDENTITY_EXTENSIONS),
    supported(oid::MANAGE_DSA_IT, "manageDSAit", true, ACCESS | BIND, &[oid::REFRESH]),
    supported(oid::SUBENTRIES, "subentries", true, SEARCH, &[]),
    supported(oid::DONT_USE_COPY, "dontUseCopy", true, SEARCH | COMPARE, &[]),
    supported(oid::PAGED_RESULTS, "paged results", true, SEARCH, &[]),
    supported(oid::SORT_REQUEST, "sorted results", true, SEARCH, &[]),
    supported(oid::VLV_REQUEST, "vlv", true, SEARCH, &[]),
    supported(oid::DEREF, "Dereference", true, SEARCH, &[]),
    supported(oid::MATCHED_VALUES, "valuesReturnFilter", true, SEARCH, &[]),
    supported(oid::POST_READ, "postread", true, ADD | MODIFY | MODIFY_DN, &[]),
    supported(oid::PRE_READ, "preread", true, DELETE | MODIFY | MODIFY_DN, &[]),
    supported(oid::ASSERTION, "assert", true, UPDATE | COMPARE | SEARCH, &[]),
    supported(oid::TREE_DELETE, "treeDelete", true, DELETE, &[]),
    supported(oid::DOMAIN_SCOPE, "domainScope", false, SEARCH, &[]),
    supported(oid::SEARCH_OPTIONS, "searchOptions", false, SEARCH, &[]),
    supported(oid::PERMISSIVE_MODIFY, "permissiveModify", false, MODIFY, &[]),
    supported(oid::NO_OP, "noop", false, ACCESS, &[]),
    supported(oid::RELAX, "relax", false, UPDATE, &[]),
    supported(oid::SESSION_TRACKING, "sessionTracking", false, ACCESS | BIND, IDENTITY_EXTENSIONS),
    supported(oid::LAZY_COMMIT, "lazy commit", false, ACCESS, &[]),
    supported(oid::TRANSACTION_SPECIFICATION, "transaction specification", false, UPDATE, &[]),
    supported(oid::PASSWORD_POLICY, "passwordPolicyRequest", false, BIND | ACCESS, &[oid::PASSWORD_MODIFY]),
    supported(oid::ACCOUNT_USABILITY, "account usability", false, SEARCH, &[]),
    supported(oid::VALUE_SORT, "valSort", false, SEARCH, &[]),
    supported(oid::EFFECTIVE_RIGHTS, "effective rights", true, SEARCH, &[]),
    // Listed where a database has the syncprov overlay.
    supported(oid::SYNC_REQUEST, "Sync", false, SEARCH, &[]),
    // Listed where a database has the psearch overlay.
    supported(oid::PERSISTENT_SEARCH, "persistent search", false, SEARCH, &[]),
    // Among members of one replicated content: nothing that clients would look for.
    supported(oid::VALUE_CONFLICTS, "conflicts by value", false, SEARCH, &[]),
    supported(oid::SYNC_PEER, "Sync peer", false, SEARCH, &[]),
    // Among proxies.
    supported(oid::PROXY_HOPS, "proxy hops", false, ACCESS | BIND, ANY_EXTENSION),
];

const fn supported(
    oid: &'static str,
    name: &'static str,
    listed: bool,
    operations: u8,
    extended: &'static [&'static str],
) -> SupportedControl {
    SupportedControl { oid, name, listed, operations, extended }
}

impl SupportedControl {
    pub(super) fn goes_with(&self, operation: OperationKind<'_>) -> bool {
        let bit = match operation {
            OperationKind::Bind => BIND,
            OperationKind::Search => SEARCH,
            OperationKind::Compare => COMPARE,
            OperationKind::Add => ADD,
            OperationKind::Modify => MODIFY,
            OperationKind::Delete => DELETE,
            OperationKind::ModifyDn => MODIFY_DN,
            OperationKind::Extended(name) => {
                return self.extended == ANY_EXTENSION || self.extended.contains(&name);
            }
        };
        self.operations & bit != 0
    }
}

/// The control with this OID.
pub(super) fn find(oid: &str) -> Option<&'static SupportedControl> {
    SUPPORTED.iter().find(|known| known.oid == oid)
}

/// The OIDs that the root DSE lists in `supportedControl`.
pub fn listed() -> impl Iterator<Item = &'static str> {
    SUPPORTED.iter().filter(|control| control.listed).map(|control| control.oid)
}

/// Whether there is a control with this OID, for some operation.
pub fn is_known(oid: &str) -> bool {
    find(oid).is_some()
}

/// Whether a control with this OID means something to this kind of operation.
pub fn applies(oid: &str, operation: OperationKind<'_>) -> bool {
    find(oid).is_some_and(|known| known.goes_with(operation))
}
