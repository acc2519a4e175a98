//! `ppolicy_rules` (OpenLDAP 2.7): which policy holds for an account that names none itself.

use std::fmt;

use larix_proto::FilterBuf;
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, ObjectClassId, Schema};
use regex::Regex;

use super::account::PASSWORD;
use larix_engine::access::{GroupQuery, posix_regex};
use larix_engine::entry::Entry;
use larix_engine::overlay::{Entries, Failure};

/// One rule: conditions that must all hold, and the policy if they do.
#[derive(Clone, Debug)]
pub struct PolicyRule {
    pub object: Option<ObjectPattern>,
    /// Only entries with a password.
    pub require_password: bool,
    pub filter: Option<BoundFilter>,
    pub group: Option<GroupCondition>,
    pub policy: PolicyName,
    /// Later rules may say otherwise.
    pub goes_on: bool,
}

/// Which entries a rule is about.
#[derive(Clone, Debug)]
pub enum ObjectPattern {
    Base(NormalDn),
    One(NormalDn),
    Subtree(NormalDn),
    Children(NormalDn),
    Regex(Regex),
}

/// The group that an entry must be a member of.
#[derive(Clone, Debug)]
pub struct GroupCondition {
    pub name: PolicyName,
    pub class: ObjectClassId,
    pub attribute: AttributeDescription,
}

/// A DN, or how to make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyName {
    /// `no_policy`
    None,
    Dn(NormalDn),
    /// `$1`, `${1}`: what the regular expression's submatch was.
    Expand(String),
}

/// What the rules say of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    Policy(NormalDn),
    NoPolicy,
    /// No rule is about it.
    Unsaid,
}

/// A rule that cannot be understood: which of its words, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRuleError {
    pub word: usize,
    pub message: String,
}

impl fmt::Display for PolicyRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PolicyRuleError {}

/// What the rules say; a policy that is not there is passed over.
pub(super) fn choose(
    rules: &[PolicyRule],
    schema: &Schema,
    dn: &NormalDn,
    entry: &Entry,
    entries: &dyn Entries,
) -> Result<Chosen, Failure> {
    let mut chosen = Chosen::Unsaid;
    let password = schema.attribute_type(PASSWORD).map(|attribute| attribute.id);
    let has_password = password.is_some_and(|password| !entry.values(password).is_empty());
    for rule in rules {
        if rule.require_password && !has_password {
            continue;
        }
        let Some(captures) = rule.object_matches(dn) else { continue };
        if !rule.group_matches(schema, dn, &captures, entries)? {
            continue;
        }
        if let Some(filter) = &rule.filter
            && !entries.matches(dn, entry, filter)?
        {
            continue;
        }
        match rule.policy.resolve(schema, &captures) {
            None if rule.policy == PolicyName::None => chosen = Chosen::NoPolicy,
            None => continue,
            Some(policy) => {
                let found = entries.entry(&policy)?;
                let class = schema.attribute_type("objectClass").map(|attribute| attribute.id);
                let is_policy = |found: &Entry| {
                    let classes = class.map_or(&[][..], |class| found.values(class));
                    classes.iter().any(|class| class.eq_ignore_ascii_case(b"pwdPolicy"))
                };
                if !found.is_some_and(|found| is_policy(&found)) {
                    continue;
                }
                chosen = Chosen::Policy(policy);
            }
        }
        if !rule.goes_on {
            break;
        }
    }
    Ok(chosen)
}

impl PolicyRule {
    /// Reads the words of a `ppolicy_rules` line.
    ///
    /// # Errors
    /// The word that is not understood, contradicts another or names something undefined.
    pub fn parse<'w>(schema: &Schema, words: impl Iterator<Item = &'w str>) -> Result<Self, PolicyRuleError> {
        let mut rule = RuleParser::new(schema);
        for (number, word) in words.enumerate() {
            rule.word(word).map_err(|message| PolicyRuleError { word: number, message })?;
        }
        rule.finish().map_err(|message| PolicyRuleError { word: 0, message })
    }

    /// What the submatches are if the rule is about this DN.
    fn object_matches(&self, dn: &NormalDn) -> Option<Vec<String>> {
        let matches = match &self.object {
            None => true,
            Some(ObjectPattern::Base(base)) => dn == base,
            Some(ObjectPattern::One(base)) => dn.parent().as_ref() == Some(base),
            Some(ObjectPattern::Subtree(base)) => dn.is_within(base),
            Some(ObjectPattern::Children(base)) => dn.is_descendant_of(base),
            Some(ObjectPattern::Regex(regex)) => {
                let captures = regex.captures(dn.as_str())?;
                let text = |part: Option<regex::Match<'_>>| part.map_or("", |part| part.as_str()).to_owned();
                return Some(captures.iter().map(text).collect());
            }
        };
        matches.then(Vec::new)
    }

    fn group_matches(
        &self,
        schema: &Schema,
        dn: &NormalDn,
        captures: &[String],
        entries: &dyn Entries,
    ) -> Result<bool, Failure> {
        let Some(group) = &self.group else { return Ok(true) };
        let Some(name) = group.name.resolve(schema, captures) else { return Ok(false) };
        let query = GroupQuery { group: &name, class: group.class, attribute: &group.attribute };
        entries.is_member(&query, dn)
    }
}

impl PolicyName {
    fn resolve(&self, schema: &Schema, captures: &[String]) -> Option<NormalDn> {
        match self {
            Self::None => None,
            Self::Dn(dn) => Some(dn.clone()),
            Self::Expand(pattern) => schema.parse_dn(&expand(pattern, captures)?).ok(),
        }
    }
}

/// Fills in `$1` and `${1}`; `None` for a submatch that there is not.
fn expand(pattern: &str, captures: &[String]) -> Option<String> {
    let mut text = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        let (number, left) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((number, left)) => (number, left),
            None => after.split_at_checked(1)?,
        };
        if number == "$" {
            text.push('$');
        } else {
            text.push_str(captures.get(number.parse::<usize>().ok()?)?);
        }
        rest = left;
    }
    text.push_str(rest);
    Some(text)
}

/// A rule as far as it was read.
struct RuleParser<'s> {
    schema: &'s Schema,
    object: Option<ObjectPattern>,
    require_password: Option<bool>,
    filter: Option<BoundFilter>,
    group: Option<GroupCondition>,
    policy: Option<PolicyName>,
    goes_on: Option<bool>,
}

impl<'s> RuleParser<'s> {
    fn new(schema: &'s Schema) -> Self {
        Self {
            schema,
            object: None,
            require_password: None,
            filter: None,
            group: None,
            policy: None,
            goes_on: None,
        }
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        let Some((name, value)) = word.split_once('=') else { return self.flag(word) };
        let (name, style) = match name.split_once('.') {
            Some((name, style)) => (name, Some(style)),
            None => (name, None),
        };
        let name = name.to_ascii_lowercase();
        match (name.as_str(), style) {
            ("dn", style) => self.object(style.unwrap_or("base"), value),
            ("require_password", None) => set(&mut self.require_password, switch(value)?, word),
            ("filter", None) => {
                let filter = FilterBuf::parse(value).map_err(|error| format!("bad filter: {error}"))?;
                let bound = self.schema.bind_filter(filter.as_filter());
                set(&mut self.filter, bound, word)
            }
            ("policy_dn" | "policydn", style) => {
                let policy = self.name(style, value)?;
                set(&mut self.policy, policy, word)
            }
            (name, style) if name == "group" || name.starts_with("group/") => {
                self.group(name, style, value, word)
            }
            (name, Some(style)) => Err(format!("\"{name}\" takes no style \"{style}\"")),
            (name, None) => Err(format!("unknown keyword \"{name}\"")),
        }
    }

    fn flag(&mut self, word: &str) -> Result<(), String> {
        match word.to_ascii_lowercase().as_str() {
            "no_policy" => set(&mut self.policy, PolicyName::None, word),
            "stop" => set(&mut self.goes_on, false, word),
            "continue" => set(&mut self.goes_on, true, word),
            _ => Err(format!("keyword \"{word}\" unknown or requires argument")),
        }
    }

    fn object(&mut self, style: &str, value: &str) -> Result<(), String> {
        let dn = || self.dn(value);
        let object = match style.to_ascii_lowercase().as_str() {
            "base" | "exact" | "baseobject" => ObjectPattern::Base(dn()?),
            "one" | "onelevel" => ObjectPattern::One(dn()?),
            "sub" | "subtree" => ObjectPattern::Subtree(dn()?),
            "children" => ObjectPattern::Children(dn()?),
            "regex" if value.is_empty() => ObjectPattern::Base(NormalDn::root()),
            "regex" => ObjectPattern::Regex(posix_regex(value, true)?),
            other => return Err(format!("unknown dn style: {other}")),
        };
        set(&mut self.object, object, "dn")
    }

    fn dn(&self, value: &str) -> Result<NormalDn, String> {
        self.schema.parse_dn(value).map_err(|error| format!("\"{value}\" is not a DN: {error}"))
    }

    fn name(&self, style: Option<&str>, value: &str) -> Result<PolicyName, String> {
        match style {
            None => Ok(PolicyName::Dn(self.dn(value)?)),
            Some(style) if !style.eq_ignore_ascii_case("expand") => Err(format!("unknown style \"{style}\"")),
            Some(_) if matches!(self.object, Some(ObjectPattern::Regex(_))) => {
                Ok(PolicyName::Expand(value.to_owned()))
            }
            Some(_) => Err("expansion needs dn.regex before it".to_owned()),
        }
    }

    fn group(&mut self, name: &str, style: Option<&str>, value: &str, word: &str) -> Result<(), String> {
        let mut parts = name.splitn(3, '/').skip(1);
        let mut part = |otherwise| parts.next().filter(|text| !text.is_empty()).unwrap_or(otherwise);
        let (class, attribute) = (part("groupOfNames"), part("member"));
        let class = self
            .schema
            .object_class(class)
            .ok_or_else(|| format!("group object class \"{class}\" unknown"))?
            .id;
        let attribute = self.schema.describe(attribute).map_err(|error| error.to_string())?;
        let name = self.name(style, value)?;
        set(&mut self.group, GroupCondition { name, class, attribute }, word)
    }

    fn finish(self) -> Result<PolicyRule, String> {
        Ok(PolicyRule {
            policy: self.policy.ok_or("need to specify policy_dn or no_policy")?,
            object: self.object,
            require_password: self.require_password.unwrap_or(true),
            filter: self.filter,
            group: self.group,
            goes_on: self.goes_on.unwrap_or(false),
        })
    }
}

fn set<T>(slot: &mut Option<T>, value: T, word: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("\"{word}\": said more than once")),
    }
}

fn switch(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" => Ok(true),
        "no" | "false" | "off" => Ok(false),
        _ => Err(format!("\"{value}\" is neither yes nor no")),
    }
}
