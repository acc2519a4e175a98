//! Attributes whose values let somebody in. No page, no report and no comparison of servers shows them, whoever asks: a
//! search by who may read them does.

/// By any of their names, without options.
const NAMES: [&str; 14] = [
    "authPassword",
    "krbMKey",
    "krbPrincipalKey",
    "olcDbPassphrase",
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

/// Whether values of this attribute are nobody's to see; `description` may have options.
#[must_use]
pub fn is_secret(description: &str) -> bool {
    let kind = description.split(';').next().unwrap_or_default();
    NAMES.iter().any(|name| name.eq_ignore_ascii_case(kind))
}
