//! Attributes whose values are secrets for logging in. No page, no report and no comparison of servers shows them to anyone.
//! A search shows them to an identity that may read them.

use larix_configuration::is_secret_setting;
use larix_schema::Schema;

/// Stands in the place of a secret value.
pub const WITHHELD: &str = "(withheld)";

/// Whether values of this attribute are secret, in entries or in cn=config; `description` may have options.
#[must_use]
pub fn is_secret(description: &str) -> bool {
    larix_schema::is_secret(description) || is_secret_setting(description)
}

/// The same for a description that may name the type by its OID, or by a name of this schema's own.
pub(crate) fn is_secret_in(schema: &Schema, description: &str) -> bool {
    schema.is_by_any_name(description, is_secret)
}

/// Whether a request may mean userPassword by this name (RFC 4519 section 2.41).
pub(crate) fn is_password_name(name: &str) -> bool {
    ["userPassword", "2.5.4.35"].iter().any(|own| name.eq_ignore_ascii_case(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_configuration_are_known_by_their_oids() {
        let schema = Schema::system();
        for secret in [
            "olcRootPW",
            "1.3.6.1.4.1.4203.1.12.2.3.2.0.9",
            "1.3.6.1.4.1.4203.1.12.2.3.0.99;binary",
            "2.5.4.35",
            "userPassword;x-a",
        ] {
            assert!(is_secret_in(schema, secret), "{secret}");
        }
        for shown in ["1.3.6.1.4.1.4203.1.12.2.3.2.0.8", "2.5.4.3", "nobody"] {
            assert!(!is_secret_in(schema, shown), "{shown}");
        }
    }
}
