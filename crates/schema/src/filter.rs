//! Filters bound to a schema: every name looked up, every assertion value brought into normal form, once a request.

mod buffer;
mod pieces;

use larix_proto::{
    AttributeValueAssertion, Filter, FilterNode, FilterSet, MatchingRuleAssertion, SubstringFilter,
};

use buffer::Buffer;
use pieces::{Spaced, in_order};

use crate::description::AttributeDescription;
use crate::error::InvalidValue;
use crate::matching_rules::{MatchingRule, Normal, SubstringPosition};
use crate::model::{AttributeType, ObjectClassId};
use crate::schema::Schema;
use crate::truth::Match;

/// A filter whose names and values mean something, or are known to mean nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum BoundFilter {
    True,
    False,
    Undefined,
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Present(AttributeDescription),
    Equality(BoundAssertion),
    Approx(BoundAssertion),
    GreaterOrEqual(BoundAssertion),
    LessOrEqual(BoundAssertion),
    Substrings(BoundSubstrings),
    Extensible(BoundExtensible),
}

/// An attribute description, a rule and the key of an assertion value.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundAssertion {
    /// Selects the attributes whose values are compared: itself and its subdescriptions.
    pub description: AttributeDescription,
    pub rule: &'static MatchingRule,
    pub value: AssertedValue,
    kind: AssertionKind,
    class: Option<ObjectClassId>,
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum AssertionKind {
    Approx,
    Equality,
    GreaterOrEqual,
    LessOrEqual,
}

/// A substring assertion with the keys of its pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundSubstrings {
    pub description: AttributeDescription,
    pub rule: &'static MatchingRule,
    pub initial: Option<Box<[u8]>>,
    pub any: Vec<Box<[u8]>>,
    pub final_: Option<Box<[u8]>>,
    /// The pieces with all their spaces, if text of one of them has a space at an end where other text may go on.
    spaced: Option<Box<Spaced>>,
}

/// An extensible match. Without a description it is asked of every attribute to which the rule applies.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundExtensible {
    pub description: Option<AttributeDescription>,
    pub rule: &'static MatchingRule,
    pub value: AssertedValue,
    /// Whether the attributes of the entry's DN are asked, too.
    pub dn_attributes: bool,
}

/// An assertion value as its rule makes it and as it came, in one piece of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct AssertedValue {
    /// The key, and behind it the value as it came, where that is not the same.
    bytes: Buffer,
    key_length: usize,
    raw_start: usize,
}

impl AssertedValue {
    /// `write_key` appends the key.
    fn new<E>(raw: &[u8], write_key: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<Self, E> {
        let mut bytes = Buffer::with_capacity(raw.len());
        write_key(&mut bytes)?;
        let key_length = bytes.len();
        let is_same = **bytes == *raw;
        let raw_start = if is_same { 0 } else { key_length };
        if !is_same {
            bytes.reserve_exact(raw.len());
            bytes.extend_from_slice(raw);
        }
        Ok(Self { bytes, key_length, raw_start })
    }

    /// The assertion value as [`MatchingRule::normalize_assertion`] makes it.
    pub fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_length).unwrap_or_default()
    }

    /// The assertion value as it came.
    pub fn raw(&self) -> &[u8] {
        self.bytes.get(self.raw_start..).unwrap_or_default()
    }
}

/// Memory that evaluation uses again and again.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    key: Vec<u8>,
}

impl Schema {
    /// Binds a filter. Leaves that cannot be evaluated become [`BoundFilter::Undefined`]: unknown attribute types and
    /// options, invalid assertion values, rules that an attribute type does not have.
    pub fn bind_filter(&self, filter: Filter<'_>) -> BoundFilter {
        match filter.node() {
            FilterNode::And(set) => self.bind_set(set, BoundFilter::True, BoundFilter::And),
            FilterNode::Or(set) => self.bind_set(set, BoundFilter::False, BoundFilter::Or),
            FilterNode::Not(inner) => match self.bind_filter(inner) {
                BoundFilter::True => BoundFilter::False,
                BoundFilter::False => BoundFilter::True,
                BoundFilter::Undefined => BoundFilter::Undefined,
                inner => BoundFilter::Not(Box::new(inner)),
            },
            FilterNode::Present(attribute) => {
                self.describe(attribute).map_or(BoundFilter::Undefined, BoundFilter::Present)
            }
            FilterNode::Equality(ava) => self.bind_ava(ava, AssertionKind::Equality, BoundFilter::Equality),
            FilterNode::Approx(ava) => self.bind_ava(ava, AssertionKind::Approx, BoundFilter::Approx),
            FilterNode::GreaterOrEqual(ava) => {
                self.bind_ava(ava, AssertionKind::GreaterOrEqual, BoundFilter::GreaterOrEqual)
            }
            FilterNode::LessOrEqual(ava) => {
                self.bind_ava(ava, AssertionKind::LessOrEqual, BoundFilter::LessOrEqual)
            }
            FilterNode::Substrings(substrings) => {
                self.bind_substrings(&substrings).map_or(BoundFilter::Undefined, BoundFilter::Substrings)
            }
            FilterNode::Unknown(_) => BoundFilter::Undefined,
            FilterNode::Extensible(assertion) => {
                self.bind_extensible(&assertion).map_or(BoundFilter::Undefined, BoundFilter::Extensible)
            }
        }
    }

    /// Binds an equality assertion, as the compare operation makes one.
    pub fn bind_equality(
        &self,
        description: &AttributeDescription,
        value: &[u8],
    ) -> Result<BoundAssertion, BindError> {
        self.bind_assertion(description.clone(), value, AssertionKind::Equality)
    }

    /// An AND or OR of nothing is absolutely true or false (RFC 4526).
    fn bind_set(
        &self,
        set: FilterSet<'_>,
        empty: BoundFilter,
        build: fn(Vec<BoundFilter>) -> BoundFilter,
    ) -> BoundFilter {
        if set.is_empty() {
            return empty;
        }
        build(set.iter().map(|filter| self.bind_filter(filter)).collect())
    }

    fn bind_ava(
        &self,
        ava: AttributeValueAssertion<'_>,
        kind: AssertionKind,
        build: fn(BoundAssertion) -> BoundFilter,
    ) -> BoundFilter {
        let Ok(description) = self.describe(ava.attribute) else { return BoundFilter::Undefined };
        self.bind_assertion(description, ava.value, kind).map_or(BoundFilter::Undefined, build)
    }

    fn bind_assertion(
        &self,
        description: AttributeDescription,
        value: &[u8],
        kind: AssertionKind,
    ) -> Result<BoundAssertion, BindError> {
        let attribute = self.attribute(description.attribute);
        let rule = match kind {
            AssertionKind::Equality => attribute.equality,
            AssertionKind::Approx => attribute.equality.map(MatchingRule::approximate),
            AssertionKind::GreaterOrEqual | AssertionKind::LessOrEqual => attribute.ordering,
        };
        let rule = rule.ok_or(BindError::NoRule)?;
        self.check_assertion(Some(attribute), rule, value)?;
        let value = AssertedValue::new(value, |key| rule.normalize_assertion(self, value, key))?;
        let class = match rule.normal {
            Normal::ObjectClass => {
                std::str::from_utf8(value.key()).ok().and_then(|oid| self.object_class_id(oid))
            }
            _ => None,
        };
        Ok(BoundAssertion { description, rule, value, kind, class })
    }

    /// Whether the value is of the rule's assertion syntax (RFC 4517 section 4.1), which may be wider than the attribute's own: what a
    /// PrintableString or a Country String is compared with is a Directory String. Only for rules that would normalize other values, too.
    fn check_assertion(
        &self,
        attribute: Option<&AttributeType>,
        rule: &MatchingRule,
        value: &[u8],
    ) -> Result<(), InvalidValue> {
        let is_checked = matches!(
            rule.normal,
            Normal::Boolean
                | Normal::BitAnd
                | Normal::BitOr
                | Normal::CaseExact
                | Normal::CaseIgnore
                | Normal::CaseIgnoreList
                | Normal::Integer
                | Normal::IntegerFirstComponent
                | Normal::NumericString
                | Normal::Telephone
        );
        if !is_checked {
            return Ok(());
        }
        let syntax = match attribute {
            // Most are of one syntax, and searches are many: it is looked up for the others.
            Some(own) if own.is_syntax_of(rule) => Some(&own.syntax),
            Some(own) if !rule.applies_to(&own.syntax.oid) => None,
            _ => self.syntax(rule.syntax_oid),
        };
        syntax.map_or(Ok(()), |syntax| syntax.validate(self, value))
    }

    /// Whether a piece of a substring assertion may stand in a value that the equality rule compares, as slapd asks. The syntax of
    /// whole lists says nothing of pieces. No piece is empty (RFC 4517 section 3.3.30).
    fn check_piece(&self, attribute: &AttributeType, piece: &[u8]) -> Result<(), InvalidValue> {
        match attribute.equality {
            _ if piece.is_empty() => Err(InvalidValue),
            Some(rule) if rule.normal != Normal::CaseIgnoreList => {
                self.check_assertion(Some(attribute), rule, piece)
            }
            _ => Ok(()),
        }
    }

    fn bind_substrings(&self, filter: &SubstringFilter<'_>) -> Result<BoundSubstrings, BindError> {
        let description = self.describe(filter.attribute).map_err(|_| BindError::UnknownAttribute)?;
        let attribute = self.attribute(description.attribute);
        let rule = attribute.substring.ok_or(BindError::NoRule)?;
        let piece = |piece: &[u8], position| {
            self.check_piece(attribute, piece)?;
            let mut key = Vec::with_capacity(piece.len());
            rule.normalize_substring(self, piece, position, &mut key)?;
            Ok::<Box<[u8]>, BindError>(key.into())
        };
        let initial = filter.initial.map(|value| piece(value, SubstringPosition::Initial)).transpose()?;
        let any = filter.any.iter().map(|value| piece(value, SubstringPosition::Any));
        let any = any.collect::<Result<Vec<_>, _>>()?;
        let final_ = filter.final_.map(|value| piece(value, SubstringPosition::Final)).transpose()?;
        let has_spaces = matches!(rule.normal, Normal::CaseExact | Normal::CaseIgnore);
        let spaced = has_spaces.then(|| Spaced::of(initial.as_deref(), &any, final_.as_deref())).flatten();
        Ok(BoundSubstrings { initial, any, final_, description, rule, spaced: spaced.map(Box::new) })
    }

    fn bind_extensible(&self, assertion: &MatchingRuleAssertion<'_>) -> Result<BoundExtensible, BindError> {
        let description = match assertion.attribute {
            Some(attribute) => Some(self.describe(attribute).map_err(|_| BindError::UnknownAttribute)?),
            None => None,
        };
        let attribute = description.as_ref().map(|description| self.attribute(description.attribute));
        let rule = match (assertion.rule, attribute) {
            (Some(name), _) => {
                let rule =
                    self.matching_rule(name).filter(|rule| rule.extensible).ok_or(BindError::NoRule)?;
                match attribute {
                    // Its own rule may do more under the same name, as on objectClass.
                    Some(attribute) if attribute.equality == Some(rule) => attribute.equality,
                    Some(attribute) if !rule.is_usable_with(attribute) => None,
                    _ => Some(rule),
                }
            }
            (None, Some(attribute)) => attribute.equality,
            (None, None) => None,
        };
        let rule = rule.ok_or(BindError::NoRule)?;
        self.check_assertion(attribute, rule, assertion.value)?;
        let value =
            AssertedValue::new(assertion.value, |key| rule.normalize_assertion(self, assertion.value, key))?;
        Ok(BoundExtensible { description, rule, value, dn_attributes: assertion.dn_attributes })
    }
}

/// Why an assertion cannot be bound to an attribute.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum BindError {
    /// The value is invalid (LDAP result invalidAttributeSyntax).
    InvalidValue,
    /// The attribute type has no rule of this kind (inappropriateMatching).
    NoRule,
    /// (undefinedAttributeType)
    UnknownAttribute,
}

impl From<InvalidValue> for BindError {
    fn from(_: InvalidValue) -> Self {
        Self::InvalidValue
    }
}

impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InvalidValue => "value does not conform to assertion syntax",
            Self::NoRule => "inappropriate matching request",
            Self::UnknownAttribute => "attribute type undefined",
        })
    }
}

impl std::error::Error for BindError {}

impl MatchingRule {
    /// Whether extensible filters can ask values of the attribute type with this rule.
    pub fn is_usable_with(&self, attribute: &AttributeType) -> bool {
        let equality = attribute.equality;
        (self.extensible
            && (self.syntax_oid == attribute.syntax.oid
                || equality == Some(self)
                || equality.is_some_and(|rule| rule.approximate() == self)))
            || self.value_syntaxes.contains(&attribute.syntax.oid.as_str())
    }
}

impl BoundAssertion {
    /// Whether one value satisfies the assertion.
    pub fn matches(&self, schema: &Schema, value: &[u8], scratch: &mut Scratch) -> Match {
        if self.kind == AssertionKind::Equality {
            match self.rule.normal {
                Normal::CaseIgnore => {
                    if let Some(equal) = crate::prep::quick_equal(self.value.key(), value, true) {
                        return equal.into();
                    }
                }
                Normal::CaseExact => {
                    if let Some(equal) = crate::prep::quick_equal(self.value.key(), value, false) {
                        return equal.into();
                    }
                }
                Normal::OctetString => return (self.value.key() == value).into(),
                Normal::ObjectClass => return self.matches_class(schema, value),
                // Stored names are often in normal form already, and keys differ only in letters.
                Normal::Dn if self.value.key() == value => return Match::True,
                _ => {}
            }
        }
        scratch.key.clear();
        if self.rule.normalize_value(schema, value, &mut scratch.key).is_err() {
            return Match::Undefined;
        }
        self.matches_key(schema, &scratch.key)
    }

    /// Whether a value with this key satisfies the assertion.
    pub fn matches_key(&self, schema: &Schema, key: &[u8]) -> Match {
        match self.kind {
            AssertionKind::GreaterOrEqual => (key >= self.value.key()).into(),
            AssertionKind::LessOrEqual => (key <= self.value.key()).into(),
            AssertionKind::Equality => self.rule.compare_keys(schema, key, self.value.key()),
            AssertionKind::Approx => self.rule.compare_approximately(schema, key, self.value.key()),
        }
    }

    fn matches_class(&self, schema: &Schema, value: &[u8]) -> Match {
        let Some(asserted) = self.class else { return Match::False };
        match std::str::from_utf8(value).ok().and_then(|name| schema.object_class_id(name)) {
            Some(class) => schema.is_subclass(class, asserted).into(),
            None => Match::Undefined,
        }
    }
}

impl BoundSubstrings {
    /// Whether one value satisfies the assertion.
    pub fn matches(&self, schema: &Schema, value: &[u8], scratch: &mut Scratch) -> Match {
        scratch.key.clear();
        if self.rule.normalize_value(schema, value, &mut scratch.key).is_err() {
            return Match::Undefined;
        }
        self.matches_key(&scratch.key).into()
    }

    /// Whether text of a piece begins behind a space or ends before one, which may be an end of the value.
    pub const fn has_spaces_at_ends(&self) -> bool {
        self.spaced.is_some()
    }

    /// Whether the pieces occur in the key of a value in their order, without overlap.
    pub fn matches_key(&self, key: &[u8]) -> bool {
        match &self.spaced {
            Some(spaced) => spaced.matches(key),
            None => in_order(key, self.initial.as_deref(), &self.any, self.final_.as_deref()),
        }
    }
}

impl BoundExtensible {
    /// Whether one value satisfies the assertion.
    pub fn matches(&self, schema: &Schema, value: &[u8], scratch: &mut Scratch) -> Match {
        scratch.key.clear();
        if self.rule.normalize_value(schema, value, &mut scratch.key).is_err() {
            return Match::Undefined;
        }
        self.matches_key(schema, &scratch.key)
    }

    /// Whether a value with this key satisfies the assertion.
    pub fn matches_key(&self, schema: &Schema, key: &[u8]) -> Match {
        self.rule.compare_keys(schema, key, self.value.key())
    }

    /// Whether values of the attribute type are asked, when the filter names no attribute.
    pub fn asks(&self, attribute: &AttributeType) -> bool {
        self.rule.is_usable_with(attribute)
    }
}

#[cfg(test)]
mod tests;
