//! Identity mapping and TLS settings.

use std::path::PathBuf;

use larix_rewrite::posix_regex;

/// `authz-policy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuthzPolicy {
    #[default]
    None,
    From,
    To,
    Any,
    All,
}

/// `authz-regexp <match> <replace>`: tried in order, the first that matches maps the name.
#[derive(Debug, Clone)]
pub struct AuthzRegexp {
    /// As written; matched against the whole normalized name, without regard to case.
    pub pattern: String,
    /// A DN or an LDAP URL with `$1`...`$9`.
    pub replacement: String,
    pub regex: regex::Regex,
}

impl AuthzRegexp {
    /// Compiles the pattern.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn new(pattern: &str, replacement: &str) -> Result<Self, String> {
        let regex = posix_regex(pattern, true)?;
        Ok(Self { pattern: pattern.to_owned(), replacement: replacement.to_owned(), regex })
    }

    /// The name this rule makes of another: a DN, with or without `dn:`, or an LDAP URL to search. None: no match.
    pub fn map(&self, name: &str) -> Option<String> {
        let found = self.regex.captures(name)?;
        let mut mapped = String::new();
        let mut rest = self.replacement.chars().peekable();
        while let Some(c) = rest.next() {
            match (c, rest.peek()) {
                ('$', Some('$')) => {
                    rest.next();
                    mapped.push('$');
                }
                ('$', Some(digit)) if digit.is_ascii_digit() => {
                    let group = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
                    rest.next();
                    mapped
                        .push_str(group.and_then(|group| found.get(group)).map_or("", |part| part.as_str()));
                }
                _ => mapped.push(c),
            }
        }
        Some(mapped)
    }
}

/// The `TLS*` directives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    pub ca_certificate_file: Option<PathBuf>,
    pub ca_certificate_path: Option<PathBuf>,
    pub certificate_file: Option<PathBuf>,
    pub certificate_key_file: Option<PathBuf>,
    /// DER.
    pub ca_certificate: Option<Vec<u8>>,
    /// DER.
    pub certificate: Option<Vec<u8>>,
    /// DER.
    pub certificate_key: Option<Vec<u8>>,
    pub cipher_suite: Option<String>,
    /// As `3.3` is TLS 1.2.
    pub protocol_min: Option<String>,
    pub verify_client: TlsVerify,
    pub crl_check: Option<String>,
    pub crl_file: Option<PathBuf>,
    pub dh_param_file: Option<PathBuf>,
    pub ec_name: Option<String>,
}

/// `TLSVerifyClient`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsVerify {
    #[default]
    Never,
    Allow,
    Try,
    Demand,
}
