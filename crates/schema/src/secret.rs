//! Attributes whose values are secrets for logging in: passwords, hashes of them, and secret keys.

use crate::schema::Schema;

/// By name, the usual ones first. An entry of cn=config has others.
pub const SECRET_ATTRIBUTES: [&str; 18] = [
    "userPassword",
    "authPassword",
    "pwdHistory",
    "sambaNTPassword",
    "sambaLMPassword",
    "sambaClearTextPassword",
    "sambaPasswordHistory",
    "sambaPreviousClearTextPassword",
    "sambaTrustPassword",
    "sambaTrustedDomainPassword",
    "krbPrincipalKey",
    "krbPwdHistory",
    "krbMKey",
    "krb5Key",
    "oathSecret",
    "nisSecretKey",
    "cAPrivateKey",
    "userPrivateKey",
];

/// Whether values of an attribute are secret. The description may have options; it is compared as a name, without regard to case.
#[must_use]
pub fn is_secret(description: &str) -> bool {
    let kind = description.split(';').next().unwrap_or_default();
    SECRET_ATTRIBUTES.iter().any(|name| name.eq_ignore_ascii_case(kind))
}

/// The same for a description that may name the type by its OID, or by another name that this schema has for it.
#[must_use]
pub fn is_secret_in(schema: &Schema, description: &str) -> bool {
    schema.is_by_any_name(description, is_secret)
}
