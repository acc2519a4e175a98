//! Attributes whose values are secrets for logging in. No page, no report and no comparison of servers shows them to anyone.
//! A search shows them to an identity that may read them.

use larix_schema::Schema;

/// By any of their names, without options.
const NAMES: [&str; 15] = [
    "authPassword",
    "krbMKey",
    "krbPrincipalKey",
    "olcDbPassphrase",
    "olcLarixKvEngine",
    "olcRootPW",
    "pwdHistory",
    "sambaClearTextPassword",
    "sambaLMPassword",
    "sambaNTPassword",
    "sambaPasswordHistory",
    "sambaPreviousClearTextPassword",
    "sambaTrustPassword",
    "sambaTrustedDomainPassword",
    "userPassword",
];

/// Whether values of this attribute are secret; `description` may have options.
#[must_use]
pub fn is_secret(description: &str) -> bool {
    let kind = description.split(';').next().unwrap_or_default();
    NAMES.iter().any(|name| name.eq_ignore_ascii_case(kind))
}

/// Stands in the place of a secret value.
pub const WITHHELD: &str = "(withheld)";

/// The same for a description that may name the type by its OID, or by a name of this schema's own.
pub(crate) fn is_secret_in(schema: &Schema, description: &str) -> bool {
    let described = schema.describe(description).ok();
    let named = described.is_some_and(|described| is_secret(schema.attribute(described.attribute).name()));
    named || is_secret(description)
}
