//! Identity mapping and TLS settings.

use std::path::PathBuf;

use larix_engine::access::posix_regex;

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

/// How the URL of a search begins, in small letters.
const SEARCH: &str = "ldap://";
/// The part of such a URL with the filter; those before it are the DN, the attributes and the scope (RFC 4516 section 2).
const FILTER_PART: usize = 3;

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
    ///
    /// Clients choose names: what is captured of one fills its place in a URL and no more. A `*` is no wildcard in the filter, and no
    /// character ends the filter or another part. Captured text is of a DN, so that what a DN escapes is escaped already.
    pub fn map(&self, name: &str) -> Option<String> {
        let found = self.regex.captures(name)?;
        let mut mapped = String::new();
        // Of a URL: which of its parts is being written.
        let mut part = self.is_search().then_some(0_usize);
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
                    let captured =
                        group.and_then(|group| found.get(group)).map_or("", |found| found.as_str());
                    match part {
                        None => mapped.push_str(captured),
                        Some(part) => push_literal(&mut mapped, captured, part == FILTER_PART),
                    }
                }
                _ => {
                    part = part.map(|part| part + usize::from(c == '?'));
                    mapped.push(c);
                }
            }
        }
        Some(mapped)
    }

    /// Whether it leads to a search, in angle brackets or with a leading `URL:` if need be.
    fn is_search(&self) -> bool {
        let begins = |text: &str, with: &str| {
            text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with))
        };
        let text = self.replacement.strip_prefix('<').unwrap_or(&self.replacement);
        let text = if begins(text, "url:") { text.get(4..).unwrap_or_default() } else { text };
        begins(text, SEARCH)
    }
}

/// Appends a text that stands for itself in a part of an LDAP URL (RFC 4516 section 2.1), and in a filter there (RFC 4515 section 3).
fn push_literal(url: &mut String, text: &str, in_filter: bool) {
    for c in text.chars() {
        match c {
            '%' => url.push_str("%25"),
            '?' => url.push_str("%3F"),
            '*' if in_filter => url.push_str("\\2a"),
            '(' if in_filter => url.push_str("\\28"),
            ')' if in_filter => url.push_str("\\29"),
            other => url.push(other),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_captured_of_a_name_stands_for_itself() {
        const URL: &str = "ldap:///ou=$2,dc=x?uid?sub?(&(uid=$1)(sn=*))";
        let check = |replacement: &str, user: &str, expected: &str| {
            let rule = AuthzRegexp::new("^uid=([^,]*),cn=([^,]*),cn=auth$", replacement).unwrap();
            let mapped = rule.map(&format!("uid={user},cn=plain,cn=auth"));
            assert_eq!(mapped.as_deref(), Some(expected), "{replacement} {user}");
        };
        for (user, filter) in [
            ("ann", "(&(uid=ann)(sn=*))"),
            ("a*", "(&(uid=a\\2a)(sn=*))"),
            ("a%2A", "(&(uid=a%252A)(sn=*))"),
            ("ann))?x", "(&(uid=ann\\29\\29%3Fx)(sn=*))"),
            ("(", "(&(uid=\\28)(sn=*))"),
            // As a DN escapes it, which a filter understands as well.
            ("a\\2Cb", "(&(uid=a\\2Cb)(sn=*))"),
        ] {
            check(URL, user, &format!("ldap:///ou=plain,dc=x?uid?sub?{filter}"));
        }
        // No other part ends with what is captured.
        check("LDAP:///uid=$1,dc=x??base", "a*%2C?b", "LDAP:///uid=a*%252C%3Fb,dc=x??base");
        check("<URL:ldap:///dc=x??sub?(uid=$1)>", "*", "<URL:ldap:///dc=x??sub?(uid=\\2a)>");
        // A DN has no such parts.
        for replacement in ["uid=$1,dc=x", "dn:uid=$1,dc=x"] {
            check(replacement, "a*(%?)", &replacement.replace("$1", "a*(%?)"));
        }
        check("cn=$$1$3", "ann", "cn=$1");
    }
}
