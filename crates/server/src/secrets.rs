//! Attributes whose values are secrets for logging in. No page, no report and no comparison of servers shows them to anyone.
//! A search shows them to an identity that may read them.

use larix_configuration::is_secret_setting;
use larix_schema::Schema;

/// Whether values of this attribute are secret, in entries or in cn=config; `description` may have options.
#[must_use]
pub fn is_secret(description: &str) -> bool {
    larix_schema::is_secret(description) || is_secret_setting(description)
}

/// Stands in the place of a secret value.
pub const WITHHELD: &str = "(withheld)";

/// The same for a description that may name the type by its OID, or by a name of this schema's own.
pub(crate) fn is_secret_in(schema: &Schema, description: &str) -> bool {
    larix_schema::is_secret_in(schema, description) || is_secret(description)
}
