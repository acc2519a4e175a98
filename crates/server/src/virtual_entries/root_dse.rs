//! The root DSE: what the server is and can do (RFC 4512 section 5.1), in OpenLDAP's shape.

use larix_engine::controls;
use larix_engine::entry::Entry;
use larix_proto::oid;
use larix_schema::Schema;

use super::Builder;

/// Extended operations, in the order in which they are listed.
pub(crate) const EXTENSIONS: &[&str] =
    &[oid::PASSWORD_MODIFY, oid::WHO_AM_I, oid::CANCEL, oid::END_TRANSACTION, oid::START_TRANSACTION];

/// Features (RFC 3674): increment, all operational attributes, object classes in attribute lists, absolute filters,
/// language tags and ranges.
pub(crate) const FEATURES: &[&str] = &[
    "1.3.6.1.1.14",
    "1.3.6.1.4.1.4203.1.5.1",
    "1.3.6.1.4.1.4203.1.5.2",
    "1.3.6.1.4.1.4203.1.5.3",
    "1.3.6.1.4.1.4203.1.5.4",
    "1.3.6.1.4.1.4203.1.5.5",
];

/// What the root DSE says beside what is built in.
#[derive(Clone, Debug, Default)]
pub(crate) struct RootDse {
    pub naming_contexts: Vec<String>,
    pub monitor_context: Option<String>,
    /// The name of the change log, and the numbers of its first and its last change.
    pub changelog: Option<(&'static str, u64, u64)>,
    pub config_context: Option<String>,
    pub subschema_dn: String,
    /// StartTLS can be had.
    pub start_tls: bool,
    /// Mechanisms that this connection may use.
    pub sasl_mechanisms: Vec<&'static str>,
    /// URLs of the `referral` directive.
    pub referrals: Vec<String>,
    /// Controls of overlays that are part of databases.
    pub database_controls: Vec<&'static str>,
    /// A database has its content provided (the overlay syncprov).
    pub provides_content: bool,
    /// A database has searches go on with changes (the overlay psearch).
    pub tells_changes: bool,
    /// Suffixes below which entries may be dynamic (RFC 2589).
    pub dynamic_subtrees: Vec<String>,
    /// Controls and extended operations that overlays bring.
    pub overlay_controls: Vec<&'static str>,
    pub overlay_operations: Vec<&'static str>,
    /// Attributes of the `rootDSE` files.
    pub extra: Vec<(String, Vec<Vec<u8>>)>,
}

impl RootDse {
    pub(crate) fn entry(&self, schema: &Schema) -> Entry {
        let listed = controls::SUPPORTED.iter().filter(|control| control.listed).map(|control| control.oid);
        let text = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<String>>();
        let mut built = Builder::new(schema, "")
            .classes(&["top", "OpenLDAProotDSE"])
            .add("configContext", self.config_context.clone())
            .add("namingContexts", self.naming_contexts.clone())
            .add("monitorContext", self.monitor_context.clone())
            .add("changelog", self.changelog.map(|(name, ..)| name))
            .add("firstChangeNumber", self.changelog.map(|(_, first, _)| first.to_string()))
            .add("lastChangeNumber", self.changelog.map(|(.., last)| last.to_string()))
            .add("dynamicSubtrees", self.dynamic_subtrees.clone())
            .add("supportedControl", listed)
            .add("supportedControl", text(&self.database_controls))
            .add("supportedControl", self.provides_content.then(|| oid::SYNC_REQUEST.to_owned()))
            .add("supportedControl", self.tells_changes.then(|| oid::PERSISTENT_SEARCH.to_owned()))
            .add("supportedControl", text(&self.overlay_controls))
            .add("supportedExtension", self.start_tls.then(|| oid::START_TLS.to_owned()))
            .add("supportedExtension", text(EXTENSIONS))
            .add("supportedExtension", text(&self.overlay_operations))
            .add("supportedFeatures", text(FEATURES))
            // `allow bind_v2` lets old clients in; the server still speaks version 3 alone.
            .add("supportedLDAPVersion", text(&["3"]))
            .add("supportedSASLMechanisms", text(&self.sasl_mechanisms))
            .add("ref", self.referrals.clone());
        for (name, values) in &self.extra {
            built = built.add(name, values.clone());
        }
        built.one("entryDN", "").one("subschemaSubentry", self.subschema_dn.clone()).build()
    }
}
