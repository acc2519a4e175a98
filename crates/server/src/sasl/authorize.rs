//! Who may act for whom (RFC 4513 section 5.2.1.8, RFC 4370): one judgement for authorization identities in SASL binds
//! and for the proxied authorization control, by `authz-policy` and the rules in `authzTo` and `authzFrom`.

use larix_configuration::values::{AuthzPolicy, AuthzRegexp};
use larix_engine::access::{posix_regex, regex_steps};
use larix_engine::budget::Meter;
use larix_proto::FilterBuf;
use larix_proto::filter::escaped;
use larix_proto::url::LdapUrl;
use larix_schema::NormalDn;

use super::identity::{Lookups, Mapper, is_plain_search, user_name};
use larix_rewrite::Rewrite;

/// What decides.
pub struct Authorizer<'a> {
    pub lookups: &'a dyn Lookups,
    pub policy: AuthzPolicy,
    pub rules: &'a [AuthzRegexp],
    pub rewrite: &'a Rewrite,
    /// What the rules take: they are looked at where others wait. Those that it does not last for match nothing.
    pub meter: &'a Meter,
}

/// Steps that the rules of one judgement may take at most.
pub const RULE_STEPS: u64 = 100_000;
/// What it costs to find what a name of a user stands for.
const USER_STEPS: u64 = 1_000;
/// What it costs to read a name and compare it.
const NAME_STEPS: u64 = 4;
/// What it costs to begin a search.
const SEARCH_STEPS: u64 = 100;
/// Bytes of a rule that it costs a step to read.
const RULE_BYTES: usize = 32;

impl std::fmt::Debug for Authorizer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorizer").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Authorizer<'_> {
    /// Whether `who` may act as `whom`. Every identity may become anonymous, or stay the same.
    pub fn allows(&self, who: Option<&NormalDn>, whom: &NormalDn) -> bool {
        if whom.is_root() {
            return true;
        }
        let Some(who) = who else { return false };
        if who == whom || self.lookups.is_root_over(who, whom) {
            return true;
        }
        let to = || self.says(who, "authzTo", whom, who);
        let from = || self.says(whom, "authzFrom", who, who);
        match self.policy {
            AuthzPolicy::None => false,
            AuthzPolicy::To => to(),
            AuthzPolicy::From => from(),
            AuthzPolicy::Any => to() || from(),
            AuthzPolicy::All => to() && from(),
        }
    }

    /// Whether a rule in `holder`'s attribute matches `other`. `who` authenticated, and searches.
    fn says(&self, holder: &NormalDn, attribute: &str, other: &NormalDn, who: &NormalDn) -> bool {
        let values = self.lookups.values(holder, attribute);
        values.iter().filter_map(|value| std::str::from_utf8(value).ok()).any(|value| {
            let text = without_number(value);
            let is_read = self.meter.take(1 + (text.len() / RULE_BYTES) as u64);
            let rule = if is_read { Rule::parse(text) } else { None };
            rule.is_some_and(|rule| self.meter.take(rule.steps()) && self.matches(&rule, other, who))
        })
    }

    fn matches(&self, rule: &Rule<'_>, other: &NormalDn, who: &NormalDn) -> bool {
        let parse = |dn: &str| self.lookups.schema().parse_dn(dn).ok();
        match rule {
            Rule::Anybody => true,
            Rule::Exact(dn) => parse(dn).is_some_and(|dn| dn == *other),
            Rule::Children(dn) => parse(dn).is_some_and(|dn| other.is_descendant_of(&dn)),
            Rule::Subtree(dn) => parse(dn).is_some_and(|dn| other.is_within(&dn)),
            Rule::OneLevel(dn) => {
                parse(dn).is_some_and(|dn| other.parent().is_some_and(|parent| parent == dn))
            }
            Rule::Regex(pattern) => {
                posix_regex(pattern, true).is_ok_and(|regex| regex.is_match(other.as_str()))
            }
            Rule::User { name, realm, mechanism } => {
                let (rules, rewrite) = (self.rules, self.rewrite);
                let mapper = Mapper { lookups: self.lookups, rules, rewrite, who: Some(who) };
                mapper.name(&user_name(name, realm, mechanism)).is_some_and(|dn| dn == *other)
            }
            Rule::Group { dn, class, attribute } => {
                let filter = format!("(&(objectClass={class})({attribute}={}))", escaped(other.as_str()));
                let (Some(group), Ok(filter)) = (parse(dn), FilterBuf::parse(&filter)) else { return false };
                let url = LdapUrl {
                    dn: (*dn).to_owned(),
                    filter: Some(filter),
                    ..LdapUrl::server(larix_proto::url::UrlScheme::Ldap, "", None)
                };
                self.lookups.finds(Some(who), &url, &group, self.meter)
            }
            Rule::Search(url) => {
                url.filter.is_some() && self.lookups.finds(Some(who), url, other, self.meter)
            }
        }
    }
}

/// One value of authzTo or authzFrom.
#[derive(Debug, Clone, PartialEq)]
enum Rule<'a> {
    /// `dn:*`
    Anybody,
    /// A DN, `dn:` or `dn.exact:`
    Exact(&'a str),
    Children(&'a str),
    Subtree(&'a str),
    OneLevel(&'a str),
    Regex(&'a str),
    /// `u[.mechanism[/realm]]:name`
    User {
        name: &'a str,
        realm: &'a str,
        mechanism: &'a str,
    },
    /// `group[/class[/attribute]]:DN`
    Group {
        dn: &'a str,
        class: &'a str,
        attribute: &'a str,
    },
    Search(Box<LdapUrl>),
}

impl<'a> Rule<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Anybody);
        }
        let (keyword, rest) = match text.find([':', '.', '/']) {
            Some(at) => text.split_at_checked(at)?,
            None => return Some(Self::Exact(text)),
        };
        match keyword.to_ascii_lowercase().as_str() {
            "dn" => Self::parse_dn(rest),
            "u" => Self::parse_user(rest),
            "group" => Self::parse_group(rest),
            "ldap" => {
                let url = LdapUrl::parse(text).ok().filter(is_plain_search)?;
                Some(Self::Search(Box::new(url)))
            }
            // Other URLs are refused; what is none is a DN.
            _ if rest.starts_with("://") => None,
            _ => Some(Self::Exact(text)),
        }
    }

    /// What it costs to see whether it matches, beside the search itself.
    fn steps(&self) -> u64 {
        match self {
            Self::Regex(pattern) => regex_steps(pattern),
            Self::User { .. } => USER_STEPS,
            Self::Group { .. } | Self::Search(_) => SEARCH_STEPS,
            Self::Anybody | Self::Exact(_) | Self::Children(_) | Self::Subtree(_) | Self::OneLevel(_) => {
                NAME_STEPS
            }
        }
    }

    fn parse_dn(rest: &'a str) -> Option<Self> {
        let (style, dn) = rest.split_once(':')?;
        let dn = dn.trim_start_matches(' ');
        if dn == "*" {
            return Some(Self::Anybody);
        }
        Some(match style.to_ascii_lowercase().as_str() {
            "" | ".exact" => Self::Exact(dn),
            ".regex" => Self::Regex(dn),
            // As in OpenLDAP: the empty name does not stand for everybody.
            ".children" | ".subtree" | ".onelevel" if dn.is_empty() => return None,
            ".children" => Self::Children(dn),
            ".subtree" => Self::Subtree(dn),
            ".onelevel" => Self::OneLevel(dn),
            _ => return None,
        })
    }

    fn parse_user(rest: &'a str) -> Option<Self> {
        // An empty name is nobody's, whatever a rewriting makes of it.
        let (way, name) = rest.split_once(':').filter(|(_, name)| !name.is_empty())?;
        let (mechanism, realm) = match way.strip_prefix('.') {
            Some(way) => way.split_once('/').unwrap_or((way, "")),
            None if way.is_empty() => ("AUTHZ", ""),
            None => return None,
        };
        Some(Self::User { name, realm, mechanism })
    }

    fn parse_group(rest: &'a str) -> Option<Self> {
        let (way, dn) = rest.split_once(':')?;
        let (class, attribute) = match way.strip_prefix('/') {
            Some(way) => way.split_once('/').unwrap_or((way, "member")),
            // Also `group.exact:`, as in OpenLDAP.
            None => ("groupOfNames", "member"),
        };
        Some(Self::Group { dn, class, attribute })
    }
}

/// A value without the `{n}` that orders it.
fn without_number(value: &str) -> &str {
    let number = value.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    match number {
        Some((digits, rest)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => value,
    }
}

#[cfg(test)]
#[path = "authorize_tests.rs"]
mod tests;
