//! Looking the names of a rule up in a schema, once, when a policy is put in force.

use std::fmt;

use larix_proto::FilterBuf;
use larix_schema::{
    AttributeDescription, AttributeTypeId, BoundFilter, MatchingRule, NormalDn, ObjectClassId, Schema,
};
use regex::Regex;

use super::expand::Template;
use super::policy::ItemKind;
use super::posix;
use super::privilege::Grant;
use super::rule::{
    AccessRule, AttributeSelector, DnPattern, DnScope, FlowControl, Identity, PeerPattern, StrengthLayer,
    TargetDn, TextPattern, ValuePattern, ValueStyle, Who,
};

const DN_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.12";
const NAME_AND_UID_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.34";

#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) dn: CompiledTarget,
    pub(super) filter: Option<BoundFilter>,
    pub(super) items: Option<ItemSet>,
    pub(super) value: Option<CompiledValue>,
    pub(super) by: Box<[CompiledClause]>,
    /// Whether a clause uses what the DN or value pattern captured.
    pub(super) captures: bool,
}

#[derive(Debug)]
pub(super) enum CompiledTarget {
    Any,
    Scoped { scope: DnScope, dn: NormalDn },
    Regex(Regex),
}

#[derive(Debug)]
pub(super) enum CompiledValue {
    /// A key of the matching rule.
    Equal {
        rule: &'static MatchingRule,
        key: Vec<u8>,
    },
    Regex(Regex),
    Dn {
        scope: DnScope,
        dn: NormalDn,
    },
}

#[derive(Debug)]
pub(super) struct CompiledClause {
    pub(super) who: Box<[CompiledWho]>,
    pub(super) own_value: Option<Identity>,
    pub(super) grant: Grant,
    pub(super) control: FlowControl,
}

#[derive(Debug)]
pub(super) enum CompiledWho {
    Anyone,
    Anonymous(Identity),
    Users(Identity),
    SelfEntry { identity: Identity, level: i32 },
    Dn { identity: Identity, scope: DnScope, dn: NormalDn },
    DnExpanded { identity: Identity, scope: DnScope, dn: Template },
    DnRegex { identity: Identity, regex: Regex },
    DnRegexExpanded { identity: Identity, regex: Template },
    DnAttribute { identity: Identity, attribute: AttributeDescription },
    Group { group: GroupName, class: ObjectClassId, attribute: AttributeDescription },
    PeerName(CompiledPeer),
    SockName(CompiledText),
    SockUrl(CompiledText),
    StrengthFactor { layer: StrengthLayer, minimum: u32 },
}

#[derive(Debug)]
pub(super) enum GroupName {
    Fixed(NormalDn),
    Expanded(Template),
}

#[derive(Debug)]
pub(super) enum CompiledPeer {
    Text(CompiledText),
    /// One of the address forms or a path.
    Parsed(PeerPattern),
}

#[derive(Debug)]
pub(super) enum CompiledText {
    Any,
    Exact(String),
    Expanded(Template),
    Regex(Regex),
    RegexExpanded(Template),
}

/// The attributes, and pseudo-attributes, that a rule is about.
#[derive(Debug)]
pub(super) struct ItemSet(Vec<Selector>);

#[derive(Debug)]
enum Selector {
    Entry,
    Children,
    Description(AttributeDescription),
    Exactly(AttributeDescription),
    Everything,
    /// Types a class requires or allows; their subtypes count.
    Class(Vec<AttributeTypeId>),
    NotClass(Vec<AttributeTypeId>),
}

impl ItemSet {
    /// Elements are tried in order; one that excludes ends the search.
    pub(super) fn contains(&self, schema: &Schema, item: ItemKind<'_>) -> bool {
        for selector in &self.0 {
            let found = match (selector, item) {
                (Selector::Entry, ItemKind::Entry) | (Selector::Children, ItemKind::Children) => true,
                (Selector::Everything, _) => true,
                (Selector::Description(wanted), ItemKind::Attribute(description)) => {
                    description == wanted || description.is_subdescription_of(schema, wanted)
                }
                (Selector::Exactly(wanted), ItemKind::Attribute(description)) => description == wanted,
                (Selector::Class(types), ItemKind::Attribute(description)) => {
                    covers(schema, types, description)
                }
                (Selector::NotClass(types), ItemKind::Attribute(description)) => {
                    return !covers(schema, types, description);
                }
                (Selector::NotClass(_), _) => return true,
                _ => false,
            };
            if found {
                return true;
            }
        }
        false
    }
}

fn covers(schema: &Schema, types: &[AttributeTypeId], description: &AttributeDescription) -> bool {
    types
        .iter()
        .any(|&wanted| description.attribute == wanted || schema.is_subtype(description.attribute, wanted))
}

/// A rule that cannot be put in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessPolicyError {
    /// The rule, as written.
    pub rule: String,
    pub fault: AccessPolicyFault,
}

impl AccessPolicyError {
    /// Where in the rule's text the fault is, in bytes from 1, if the value at fault stands there as it is.
    pub fn column(&self) -> Option<usize> {
        let value = self.fault.value()?;
        self.rule.find(value).map(|at| at + 1)
    }
}

impl fmt::Display for AccessPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "access rule `{}`: {}", self.rule, self.fault)
    }
}

impl std::error::Error for AccessPolicyError {}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessPolicyFault {
    UnknownAttribute { name: String, why: String },
    UnknownClass(String),
    UnknownMatchingRule(String),
    MatchingRuleNotForAttribute { rule: String, attribute: String },
    BadDn { dn: String, why: String },
    BadFilter { filter: String, why: String },
    BadRegex { pattern: String, why: String },
    BadValue { value: String, attribute: String },
    NotDnSyntax(String),
    ValueOfPseudoAttribute(String),
    NoEqualityRule(String),
    GroupAttributeNotAllowed { class: String, attribute: String },
    Unenforceable(String),
}

impl AccessPolicyFault {
    fn value(&self) -> Option<&str> {
        match self {
            Self::UnknownAttribute { name: value, .. }
            | Self::UnknownClass(value)
            | Self::UnknownMatchingRule(value)
            | Self::MatchingRuleNotForAttribute { rule: value, .. }
            | Self::BadDn { dn: value, .. }
            | Self::BadFilter { filter: value, .. }
            | Self::BadRegex { pattern: value, .. }
            | Self::BadValue { value, .. }
            | Self::NotDnSyntax(value)
            | Self::ValueOfPseudoAttribute(value)
            | Self::NoEqualityRule(value)
            | Self::GroupAttributeNotAllowed { attribute: value, .. } => Some(value),
            Self::Unenforceable(_) => None,
        }
    }
}

impl fmt::Display for AccessPolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAttribute { name, why } => write!(f, "attribute `{name}`: {why}"),
            Self::UnknownClass(name) => write!(f, "object class `{name}` is not defined"),
            Self::UnknownMatchingRule(name) => write!(f, "matching rule `{name}` is not defined"),
            Self::MatchingRuleNotForAttribute { rule, attribute } => {
                write!(f, "matching rule `{rule}` does not apply to `{attribute}`")
            }
            Self::BadDn { dn, why } => write!(f, "bad DN `{dn}`: {why}"),
            Self::BadFilter { filter, why } => write!(f, "bad filter `{filter}`: {why}"),
            Self::BadRegex { pattern, why } => write!(f, "bad regular expression `{pattern}`: {why}"),
            Self::BadValue { value, attribute } => write!(f, "`{value}` is no value of `{attribute}`"),
            Self::NotDnSyntax(name) => write!(f, "the values of `{name}` are not DNs"),
            Self::ValueOfPseudoAttribute(name) => write!(f, "`{name}` has no values"),
            Self::NoEqualityRule(name) => write!(f, "attribute `{name}` has no equality rule"),
            Self::GroupAttributeNotAllowed { class, attribute } => {
                write!(f, "object class `{class}` does not allow `{attribute}`")
            }
            Self::Unenforceable(why) => f.write_str(why),
        }
    }
}

type Outcome<T> = Result<T, AccessPolicyFault>;

pub(super) fn rule(schema: &Schema, rule: &AccessRule) -> Result<CompiledRule, AccessPolicyError> {
    compiled(schema, rule).map_err(|fault| AccessPolicyError { rule: rule.text.clone(), fault })
}

fn compiled(schema: &Schema, rule: &AccessRule) -> Outcome<CompiledRule> {
    if let Some(why) = rule.unenforceable() {
        return Err(AccessPolicyFault::Unenforceable(why));
    }
    let what = &rule.what;
    let selectors = what.attributes.iter().map(|name| selector(schema, name)).collect::<Outcome<Vec<_>>>()?;
    let value = match (&what.value, selectors.as_slice()) {
        (Some(pattern), [selector]) => Some(value(schema, pattern, selector, &what.attributes)?),
        _ => None,
    };
    let by = rule
        .by
        .iter()
        .map(|clause| {
            Ok(CompiledClause {
                who: clause.who.iter().map(|condition| who(schema, condition)).collect::<Outcome<_>>()?,
                own_value: clause.own_value,
                grant: clause.grant,
                control: clause.control,
            })
        })
        .collect::<Outcome<Box<[_]>>>()?;
    Ok(CompiledRule {
        dn: target(schema, &what.dn)?,
        filter: what.filter.as_deref().map(|text| filter(schema, text)).transpose()?,
        items: (!selectors.is_empty()).then_some(ItemSet(selectors)),
        value,
        captures: by.iter().flat_map(|clause| &clause.who).any(CompiledWho::is_expanded),
        by,
    })
}

fn target(schema: &Schema, dn: &TargetDn) -> Outcome<CompiledTarget> {
    Ok(match dn {
        TargetDn::Any => CompiledTarget::Any,
        TargetDn::Scoped { scope, dn } => {
            CompiledTarget::Scoped { scope: *scope, dn: normal_dn(schema, dn)? }
        }
        TargetDn::Regex(pattern) => CompiledTarget::Regex(regex(pattern)?),
    })
}

fn normal_dn(schema: &Schema, text: &str) -> Outcome<NormalDn> {
    schema
        .parse_dn(text)
        .map_err(|error| AccessPolicyFault::BadDn { dn: text.to_owned(), why: error.to_string() })
}

fn regex(pattern: &str) -> Outcome<Regex> {
    posix::compile(pattern).map_err(|why| AccessPolicyFault::BadRegex { pattern: pattern.to_owned(), why })
}

fn filter(schema: &Schema, text: &str) -> Outcome<BoundFilter> {
    let parsed = FilterBuf::parse(text)
        .map_err(|error| AccessPolicyFault::BadFilter { filter: text.to_owned(), why: error.to_string() })?;
    Ok(schema.bind_filter(parsed.as_filter()))
}

fn description(schema: &Schema, name: &str) -> Outcome<AttributeDescription> {
    schema.describe(name).map_err(|error| AccessPolicyFault::UnknownAttribute {
        name: name.to_owned(),
        why: error.to_string(),
    })
}

fn selector(schema: &Schema, selector: &AttributeSelector) -> Outcome<Selector> {
    Ok(match selector {
        AttributeSelector::Named(name) if name.eq_ignore_ascii_case("entry") => Selector::Entry,
        AttributeSelector::Named(name) if name.eq_ignore_ascii_case("children") => Selector::Children,
        AttributeSelector::Named(name) => match description(schema, name) {
            Ok(description) => Selector::Description(description),
            // The old way to name a class.
            Err(fault) => {
                class_types(schema, name).map_err(|_| fault)?.map_or(Selector::Everything, Selector::Class)
            }
        },
        AttributeSelector::Exactly(name) => Selector::Exactly(description(schema, name)?),
        AttributeSelector::Class(name) => {
            class_types(schema, name)?.map_or(Selector::Everything, Selector::Class)
        }
        AttributeSelector::NotClass(name) => match class_types(schema, name)? {
            Some(types) => Selector::NotClass(types),
            // extensibleObject allows everything: nothing is outside of it.
            None => Selector::Class(Vec::new()),
        },
    })
}

/// What a class requires or allows; `None` for extensibleObject, which allows everything.
fn class_types(schema: &Schema, name: &str) -> Outcome<Option<Vec<AttributeTypeId>>> {
    let class = schema.object_class(name).ok_or_else(|| AccessPolicyFault::UnknownClass(name.to_owned()))?;
    if class.name().eq_ignore_ascii_case("extensibleObject") {
        return Ok(None);
    }
    Ok(Some(class.all_must().iter().chain(class.all_may()).copied().collect()))
}

fn value(
    schema: &Schema,
    pattern: &ValuePattern,
    selector: &Selector,
    written: &[AttributeSelector],
) -> Outcome<CompiledValue> {
    let (Selector::Description(description) | Selector::Exactly(description)) = selector else {
        let name = written.first().map(ToString::to_string).unwrap_or_default();
        return Err(AccessPolicyFault::ValueOfPseudoAttribute(name));
    };
    let attribute = schema.attribute(description.attribute);
    let is_dn = attribute.syntax.oid == DN_SYNTAX;
    let rule = match &pattern.matching_rule {
        None => attribute.equality,
        Some(name) => {
            let rule = schema
                .matching_rule(name)
                .ok_or_else(|| AccessPolicyFault::UnknownMatchingRule(name.clone()))?;
            if !rule.applies_to(&attribute.syntax.oid) {
                return Err(AccessPolicyFault::MatchingRuleNotForAttribute {
                    rule: name.clone(),
                    attribute: attribute.name().to_owned(),
                });
            }
            Some(rule)
        }
    };
    match pattern.style {
        ValueStyle::Regex => Ok(CompiledValue::Regex(regex(&pattern.text)?)),
        ValueStyle::Scope(scope) if is_dn => {
            Ok(CompiledValue::Dn { scope, dn: normal_dn(schema, &pattern.text)? })
        }
        ValueStyle::Scope(_) => Err(AccessPolicyFault::NotDnSyntax(attribute.name().to_owned())),
        ValueStyle::Exact if is_dn => {
            Ok(CompiledValue::Dn { scope: DnScope::Base, dn: normal_dn(schema, &pattern.text)? })
        }
        ValueStyle::Exact => {
            let rule = rule.ok_or_else(|| AccessPolicyFault::NoEqualityRule(attribute.name().to_owned()))?;
            let mut key = Vec::new();
            rule.normalize_assertion(schema, pattern.text.as_bytes(), &mut key).map_err(|_| {
                AccessPolicyFault::BadValue {
                    value: pattern.text.clone(),
                    attribute: attribute.name().to_owned(),
                }
            })?;
            Ok(CompiledValue::Equal { rule, key })
        }
    }
}

fn who(schema: &Schema, who: &Who) -> Outcome<CompiledWho> {
    Ok(match who {
        Who::Anyone => CompiledWho::Anyone,
        Who::Anonymous(identity) => CompiledWho::Anonymous(*identity),
        Who::Users(identity) => CompiledWho::Users(*identity),
        Who::SelfEntry { identity, level } => CompiledWho::SelfEntry { identity: *identity, level: *level },
        Who::Dn { identity, pattern } => dn(schema, *identity, pattern)?,
        Who::DnAttribute { identity, attribute } => {
            let attribute = description(schema, attribute)?;
            require_dn_syntax(schema, &attribute)?;
            CompiledWho::DnAttribute { identity: *identity, attribute }
        }
        Who::Group { class, attribute, expand, group } => group_of(schema, class, attribute, *expand, group)?,
        Who::PeerName(PeerPattern::Text(pattern)) => {
            CompiledWho::PeerName(CompiledPeer::Text(text(pattern)?))
        }
        Who::PeerName(pattern) => CompiledWho::PeerName(CompiledPeer::Parsed(pattern.clone())),
        Who::SockName(pattern) => CompiledWho::SockName(text(pattern)?),
        Who::SockUrl(pattern) => CompiledWho::SockUrl(text(pattern)?),
        Who::StrengthFactor { layer, minimum } => {
            CompiledWho::StrengthFactor { layer: *layer, minimum: *minimum }
        }
        Who::Domain(_) | Who::Set { .. } | Who::Dynamic { .. } => {
            return Err(AccessPolicyFault::Unenforceable(format!("`{who}` is not enforced")));
        }
    })
}

fn dn(schema: &Schema, identity: Identity, pattern: &DnPattern) -> Outcome<CompiledWho> {
    Ok(match pattern {
        DnPattern::Scoped { scope, dn, expand: false } => {
            CompiledWho::Dn { identity, scope: *scope, dn: normal_dn(schema, dn)? }
        }
        DnPattern::Scoped { scope, dn, expand: true } => {
            CompiledWho::DnExpanded { identity, scope: *scope, dn: Template::parse(dn) }
        }
        DnPattern::Regex(pattern) => {
            let template = Template::parse(pattern);
            match template.literal() {
                Some(pattern) => CompiledWho::DnRegex { identity, regex: regex(pattern)? },
                None => CompiledWho::DnRegexExpanded { identity, regex: template },
            }
        }
    })
}

fn group_of(
    schema: &Schema,
    class: &str,
    attribute: &str,
    expand: bool,
    group: &str,
) -> Outcome<CompiledWho> {
    let class =
        schema.object_class(class).ok_or_else(|| AccessPolicyFault::UnknownClass(class.to_owned()))?;
    let attribute = description(schema, attribute)?;
    let name = schema.attribute(attribute.attribute).name().to_owned();
    if schema.attribute_type_id("labeledURI").is_some_and(|url| schema.is_subtype(attribute.attribute, url)) {
        return Err(AccessPolicyFault::Unenforceable(format!(
            "groups by URL (`{name}`) are not enforced yet"
        )));
    }
    require_dn_syntax(schema, &attribute)?;
    if !class.allows(attribute.attribute) {
        return Err(AccessPolicyFault::GroupAttributeNotAllowed {
            class: class.name().to_owned(),
            attribute: name,
        });
    }
    let group = if expand {
        GroupName::Expanded(Template::parse(group))
    } else {
        GroupName::Fixed(normal_dn(schema, group)?)
    };
    Ok(CompiledWho::Group { group, class: class.id, attribute })
}

fn require_dn_syntax(schema: &Schema, description: &AttributeDescription) -> Outcome<()> {
    if has_dn_syntax(schema, description) {
        return Ok(());
    }
    Err(AccessPolicyFault::NotDnSyntax(schema.attribute(description.attribute).name().to_owned()))
}

/// Whether the attribute's values are DNs, perhaps with a unique identifier.
pub(super) fn has_dn_syntax(schema: &Schema, description: &AttributeDescription) -> bool {
    schema
        .get_attribute(description.attribute)
        .is_some_and(|attribute| [DN_SYNTAX, NAME_AND_UID_SYNTAX].contains(&attribute.syntax.oid.as_ref()))
}

fn text(pattern: &TextPattern) -> Outcome<CompiledText> {
    Ok(match pattern {
        TextPattern::Any => CompiledText::Any,
        TextPattern::Exact(text) => CompiledText::Exact(text.clone()),
        TextPattern::Expand(text) => CompiledText::Expanded(Template::parse(text)),
        TextPattern::Regex(pattern) => {
            let template = Template::parse(pattern);
            match template.literal() {
                Some(pattern) => CompiledText::Regex(regex(pattern)?),
                None => CompiledText::RegexExpanded(template),
            }
        }
    })
}

impl CompiledWho {
    const fn is_expanded(&self) -> bool {
        matches!(
            self,
            Self::DnExpanded { .. }
                | Self::DnRegexExpanded { .. }
                | Self::Group { group: GroupName::Expanded(_), .. }
                | Self::PeerName(CompiledPeer::Text(
                    CompiledText::Expanded(_) | CompiledText::RegexExpanded(_)
                ))
                | Self::SockName(CompiledText::Expanded(_) | CompiledText::RegexExpanded(_))
                | Self::SockUrl(CompiledText::Expanded(_) | CompiledText::RegexExpanded(_))
        )
    }
}
