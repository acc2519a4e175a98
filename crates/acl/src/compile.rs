//! Looking the names of a rule up in a schema, once, when a policy is put in force.

use larix_proto::FilterBuf;
use larix_schema::{AttributeDescription, BoundFilter, MatchingRule, NormalDn, ObjectClassId, Schema};
use regex::Regex;

use super::expand::Template;
use super::fault::{AccessPolicyError, AccessPolicyFault, Outcome};
use super::items::{ItemSet, Selector, description, selector};
use super::memo::MEMO_CONDITIONS;
use super::posix;
use super::privilege::Grant;
use super::rule::{
    AccessRule, AttributeSelector, DnPattern, DnScope, DomainPattern, FlowControl, Identity,
    OperationPattern, PeerPattern, StrengthLayer, TargetDn, TextPattern, ValuePattern, ValueStyle, Who,
};
use super::sets::Set;

const DN_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.12";
const NAME_AND_UID_SYNTAX: &str = "1.3.6.1.4.1.1466.115.121.1.34";
/// The syntax whose values are rights: 1.3.6.1.4.1.4203.666.2.1.
const ACI_SYNTAX: &str = "1.3.6.1.4.1.4203.666.2.1";
/// The attribute that is meant when none is named.
const ACI_ATTRIBUTE: &str = "OpenLDAPaci";

#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) dn: CompiledTarget,
    pub(super) filter: Option<BoundFilter>,
    pub(super) items: Option<ItemSet>,
    pub(super) value: Option<CompiledValue>,
    pub(super) operation: Option<OperationPattern>,
    /// An OID.
    pub(super) control: Option<String>,
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
    pub(super) who: Box<[CompiledCondition]>,
    pub(super) own_value: Option<Identity>,
    pub(super) grant: Grant,
    pub(super) control: FlowControl,
    /// The attribute whose values say what is granted (`aci`); the clause's own access is the most there can be.
    pub(super) aci: Option<AttributeDescription>,
}

impl CompiledClause {
    /// Whether what it says may be another for each attribute.
    pub(super) const fn looks_at_attribute(&self) -> bool {
        self.own_value.is_some() || self.aci.is_some()
    }
}

#[derive(Debug)]
pub(super) struct CompiledCondition {
    pub(super) who: CompiledWho,
    /// Its place in a [`Memo`](super::Memo), if it is worth remembering and does not depend on the entry.
    pub(super) memo: Option<u32>,
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
    Domain(CompiledDomain),
    Set(CompiledSet),
    StrengthFactor { layer: StrengthLayer, minimum: u32 },
    Aci,
}

#[derive(Debug)]
pub(super) enum CompiledDomain {
    Text(CompiledText),
    Subtree(String),
    SubtreeExpanded(Template),
}

#[derive(Debug)]
pub(super) enum CompiledSet {
    Fixed(Set),
    /// Filled in before it is asked.
    Expanded(Set),
    /// It cannot be understood: as in OpenLDAP, it matches no subject.
    Never,
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

/// Compiles a rule; `memos` counts the conditions that a [`Memo`](super::Memo) has places for.
pub(super) fn rule(
    schema: &Schema,
    rule: &AccessRule,
    memos: &mut u32,
) -> Result<CompiledRule, AccessPolicyError> {
    compiled(schema, rule, memos).map_err(|fault| AccessPolicyError { rule: rule.text.clone(), fault })
}

fn compiled(schema: &Schema, rule: &AccessRule, memos: &mut u32) -> Outcome<CompiledRule> {
    let what = &rule.what;
    let selectors = what.attributes.iter().map(|name| selector(schema, name)).collect::<Outcome<Vec<_>>>()?;
    let value = match (&what.value, selectors.as_slice()) {
        (Some(pattern), [selector]) => Some(value(schema, pattern, selector, &what.attributes)?),
        _ => None,
    };
    let mut condition = |condition: &Who| {
        let who = who(schema, condition)?;
        let memo = (who.is_worth_remembering() && *memos < MEMO_CONDITIONS).then(|| {
            *memos += 1;
            *memos - 1
        });
        Ok(CompiledCondition { who, memo })
    };
    let mut by = Vec::with_capacity(rule.by.len());
    for clause in &rule.by {
        by.push(CompiledClause {
            who: clause.who.iter().map(&mut condition).collect::<Outcome<_>>()?,
            own_value: clause.own_value,
            grant: clause.grant,
            control: clause.control,
            aci: clause.who.iter().find_map(|who| aci(schema, who)).transpose()?,
        });
    }
    let is_expanded = |clause: &CompiledClause| {
        clause.aci.is_some() || clause.who.iter().any(|condition| condition.who.is_expanded())
    };
    let oid = |name: &String| {
        schema.resolve_request_oid(name).ok_or_else(|| AccessPolicyFault::UnknownOid(name.clone()))
    };
    let operation = match &what.operation {
        Some(OperationPattern::Extended(name)) => Some(OperationPattern::Extended(oid(name)?)),
        other => other.clone(),
    };
    Ok(CompiledRule {
        dn: target(schema, &what.dn)?,
        filter: what.filter.as_deref().map(|text| filter(schema, text)).transpose()?,
        items: (!selectors.is_empty()).then_some(ItemSet(selectors)),
        value,
        operation,
        control: what.control.as_ref().map(oid).transpose()?,
        captures: by.iter().any(is_expanded),
        by: by.into(),
    })
}

/// The attribute of an `aci` condition.
fn aci(schema: &Schema, who: &Who) -> Option<Outcome<AttributeDescription>> {
    let Who::Dynamic { pattern, .. } = who else { return None };
    let name = pattern.as_deref().filter(|name| !name.is_empty()).unwrap_or(ACI_ATTRIBUTE);
    Some(description(schema, name).and_then(|description| {
        if schema.attribute(description.attribute).syntax.oid == ACI_SYNTAX {
            Ok(description)
        } else {
            Err(AccessPolicyFault::NotAciSyntax(name.to_owned()))
        }
    }))
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

fn value(
    schema: &Schema,
    pattern: &ValuePattern,
    selector: &Selector,
    selectors: &[AttributeSelector],
) -> Outcome<CompiledValue> {
    let (Selector::Description(description) | Selector::Exactly(description)) = selector else {
        let name = selectors.first().map(ToString::to_string).unwrap_or_default();
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
        Who::Domain(pattern) => CompiledWho::Domain(domain(pattern)?),
        Who::Set { expand: true, pattern } => CompiledWho::Set(
            Set::parse_expanding(schema, pattern).map_or(CompiledSet::Never, CompiledSet::Expanded),
        ),
        Who::Set { expand: false, pattern } => {
            CompiledWho::Set(Set::parse(schema, pattern).map_or(CompiledSet::Never, CompiledSet::Fixed))
        }
        Who::Dynamic { name, .. } if name.eq_ignore_ascii_case("aci") => CompiledWho::Aci,
        Who::Dynamic { name, .. } => return Err(AccessPolicyFault::UnknownDynamic(name.clone())),
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
    if !is_url_attribute(schema, &attribute) {
        require_dn_syntax(schema, &attribute)?;
    }
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

/// Whether a group's attribute holds URLs: labeledURI and its subtypes, as memberURL.
pub(super) fn is_url_attribute(schema: &Schema, attribute: &AttributeDescription) -> bool {
    schema
        .attribute_type_id("labeledURI")
        .is_some_and(|url| attribute.attribute == url || schema.is_subtype(attribute.attribute, url))
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

fn domain(pattern: &DomainPattern) -> Outcome<CompiledDomain> {
    Ok(match pattern {
        DomainPattern::Text(pattern) => CompiledDomain::Text(text(pattern)?),
        DomainPattern::Subtree { domain, expand: false } => CompiledDomain::Subtree(domain.clone()),
        DomainPattern::Subtree { domain, expand: true } => {
            CompiledDomain::SubtreeExpanded(Template::parse(domain))
        }
    })
}

impl CompiledWho {
    /// Whether it costs more than a glance and is the same for every entry.
    fn is_worth_remembering(&self) -> bool {
        match self {
            Self::Group { group: GroupName::Fixed(_), .. } | Self::DnRegex { .. } => true,
            Self::Set(CompiledSet::Fixed(set)) => !set.mentions_entry(),
            _ => false,
        }
    }

    const fn is_expanded(&self) -> bool {
        matches!(
            self,
            Self::DnExpanded { .. }
                | Self::DnRegexExpanded { .. }
                | Self::Group { group: GroupName::Expanded(_), .. }
                | Self::Set(CompiledSet::Expanded(_))
                | Self::Domain(
                    CompiledDomain::SubtreeExpanded(_)
                        | CompiledDomain::Text(CompiledText::Expanded(_) | CompiledText::RegexExpanded(_))
                )
                | Self::PeerName(CompiledPeer::Text(
                    CompiledText::Expanded(_) | CompiledText::RegexExpanded(_)
                ))
                | Self::SockName(CompiledText::Expanded(_) | CompiledText::RegexExpanded(_))
                | Self::SockUrl(CompiledText::Expanded(_) | CompiledText::RegexExpanded(_))
        )
    }
}
