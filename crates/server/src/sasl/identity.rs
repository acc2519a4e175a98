//! From an authentication identity to the directory's name for it.

use larix_proto::{LdapResult, ResultCode};

use crate::config::values::AuthzRegexp;

/// Where `authz-regexp` leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// This DN.
    Dn(String),
    /// The one entry that this search finds.
    Search(String),
}

/// Maps an authentication identity by the first rule that matches; without one it stays what it is.
pub fn map(identity: &str, rules: &[AuthzRegexp]) -> Mapped {
    for rule in rules {
        let Some(captures) = rule.regex.captures(identity) else { continue };
        let mut mapped = String::new();
        let mut rest = rule.replacement.chars().peekable();
        while let Some(c) = rest.next() {
            match (c, rest.peek().and_then(|next| next.to_digit(10))) {
                ('$', Some(group)) => {
                    rest.next();
                    let group = usize::try_from(group).unwrap_or(0);
                    mapped.push_str(captures.get(group).map_or("", |m| m.as_str()));
                }
                _ => mapped.push(c),
            }
        }
        let scheme = mapped.get(..5).unwrap_or("").to_ascii_lowercase();
        return if scheme.starts_with("ldap:") || scheme.starts_with("ldapi") {
            Mapped::Search(mapped)
        } else {
            Mapped::Dn(mapped.strip_prefix("dn:").map(str::to_owned).unwrap_or(mapped))
        };
    }
    Mapped::Dn(identity.to_owned())
}

/// Whether the authorization identity asked for (`credentials` of the bind) is the authentication identity's own.
/// Another one is refused: no rule that would grant it is in force yet.
pub fn check_authorization(credentials: Option<&[u8]>, identity: &str) -> Result<(), LdapResult> {
    let asked = match credentials {
        None => return Ok(()),
        Some(bytes) => std::str::from_utf8(bytes).unwrap_or("?"),
    };
    let own =
        asked.is_empty() || asked.strip_prefix("dn:").is_some_and(|dn| dn.eq_ignore_ascii_case(identity));
    if own {
        return Ok(());
    }
    let text = "SASL(-14): authorization failure: not authorized";
    Err(LdapResult::with(ResultCode::INSUFFICIENT_ACCESS_RIGHTS, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sasl::external;
    use crate::session::PeerCredentials;

    fn rule(pattern: &str, replacement: &str) -> AuthzRegexp {
        let regex = regex::RegexBuilder::new(pattern).case_insensitive(true).build().unwrap();
        AuthzRegexp { pattern: pattern.to_owned(), replacement: replacement.to_owned(), regex }
    }

    #[test]
    fn identities_are_mapped_by_the_first_rule() {
        let rules = [
            rule(r"^gidNumber=0\+uidNumber=0,cn=peercred,cn=external,cn=auth$", "cn=root,dc=x"),
            rule(r"uidNumber=(\d+),cn=peercred", "ldap:///dc=x??sub?(uidNumber=$1)"),
            rule(r"uid=([^,]*),cn=digest-md5", "dn:uid=$1,ou=people,dc=$9x"),
        ];
        let root = external::identity(PeerCredentials { uid: 0, gid: 0 });
        for (name, expected) in [
            (root.as_str(), Mapped::Dn("cn=root,dc=x".to_owned())),
            (
                "gidNumber=5+uidNumber=7,cn=peercred,cn=external,cn=auth",
                Mapped::Search("ldap:///dc=x??sub?(uidNumber=7)".to_owned()),
            ),
            ("uid=joe,cn=digest-md5,cn=auth", Mapped::Dn("uid=joe,ou=people,dc=x".to_owned())),
            ("cn=other", Mapped::Dn("cn=other".to_owned())),
        ] {
            assert_eq!(map(name, &rules), expected, "{name}");
        }
    }

    #[test]
    fn nobody_acts_for_another() {
        for (asked, allowed) in
            [(None, true), (Some(""), true), (Some("dn:CN=me"), true), (Some("dn:cn=you"), false)]
        {
            assert_eq!(check_authorization(asked.map(str::as_bytes), "cn=me").is_ok(), allowed, "{asked:?}");
        }
    }
}
