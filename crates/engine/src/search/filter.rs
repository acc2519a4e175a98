//! Filters as they are evaluated: bound to the schema and to the numbers of one database (RFC 4511 section 4.5.1.7).
//!
//! Three-valued: what the subject may not search, and what the schema cannot compare, is Undefined and stays so under
//! NOT. Entries are read in place.

use larix_proto::Dn;
use larix_schema::{
    AttributeDescription, BoundAssertion, BoundExtensible, BoundFilter, BoundSubstrings, Match, MatchingRule, NormalDn,
    Schema,
};

use crate::catalog::Catalog;
use crate::entry::{EntrySource, Target};
use crate::fault::Fault;

/// A filter ready to be evaluated.
#[derive(Clone, Debug)]
pub enum Filter {
    Constant(Match),
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Test(Box<Test>),
}

/// One assertion of a filter.
#[derive(Clone, Debug)]
pub struct Test {
    pub target: Target,
    pub assertion: Assertion,
}

#[derive(Clone, Debug)]
pub enum Assertion {
    Present,
    Equality(BoundAssertion),
    Approx(BoundAssertion),
    GreaterOrEqual(BoundAssertion),
    LessOrEqual(BoundAssertion),
    Substrings(BoundSubstrings),
    Extensible(BoundExtensible),
    /// entryDN is computed.
    EntryDn(NormalDn),
    /// hasSubordinates is computed.
    HasSubordinates(bool),
}

/// What a filter asks besides the values.
pub trait FilterContext {
    fn schema(&self) -> &Schema;
    /// Whether the subject may search for this (privilege `search`).
    fn may_search(&self, description: &AttributeDescription, value: Option<&[u8]>) -> Result<bool, Fault>;
    /// The entry's normalized DN.
    fn normal_dn(&self) -> Result<NormalDn, Fault>;
    fn has_subordinates(&self) -> Result<bool, Fault>;
}

impl Filter {
    pub fn new(schema: &Schema, catalog: &Catalog, filter: BoundFilter) -> Self {
        let all = |list: Vec<BoundFilter>| list.into_iter().map(|f| Self::new(schema, catalog, f)).collect();
        let test = |description: AttributeDescription, assertion: Assertion| {
            Self::Test(Box::new(Test { target: Target::new(schema, catalog, description), assertion }))
        };
        match filter {
            BoundFilter::True => Self::Constant(Match::True),
            BoundFilter::False => Self::Constant(Match::False),
            BoundFilter::Undefined => Self::Constant(Match::Undefined),
            BoundFilter::And(list) => Self::And(all(list)),
            BoundFilter::Or(list) => Self::Or(all(list)),
            BoundFilter::Not(inner) => Self::Not(Box::new(Self::new(schema, catalog, *inner))),
            BoundFilter::Present(description) => test(description, Assertion::Present),
            BoundFilter::Equality(a) => match computed(schema, &a) {
                Some(assertion) => test(a.description, assertion),
                None => test(a.description.clone(), Assertion::Equality(a)),
            },
            BoundFilter::Approx(a) => test(a.description.clone(), Assertion::Approx(a)),
            BoundFilter::GreaterOrEqual(a) => test(a.description.clone(), Assertion::GreaterOrEqual(a)),
            BoundFilter::LessOrEqual(a) => test(a.description.clone(), Assertion::LessOrEqual(a)),
            BoundFilter::Substrings(a) => test(a.description.clone(), Assertion::Substrings(a)),
            BoundFilter::Extensible(a) => {
                let target = match &a.description {
                    Some(description) => Target::new(schema, catalog, description.clone()),
                    None => Target::any(),
                };
                Self::Test(Box::new(Test { target, assertion: Assertion::Extensible(a) }))
            }
        }
    }

    /// The same filter with the numbers of a newer catalog.
    pub fn renumber(&mut self, schema: &Schema, catalog: &Catalog) {
        match self {
            Self::Constant(_) => {}
            Self::And(list) | Self::Or(list) => list.iter_mut().for_each(|f| f.renumber(schema, catalog)),
            Self::Not(inner) => inner.renumber(schema, catalog),
            Self::Test(test) => test.target.renumber(schema, catalog),
        }
    }

    pub fn matches(&self, context: &dyn FilterContext, entry: &dyn EntrySource) -> Result<Match, Fault> {
        match self {
            Self::Constant(constant) => Ok(*constant),
            Self::Not(inner) => Ok(match inner.matches(context, entry)? {
                Match::True => Match::False,
                Match::False => Match::True,
                Match::Undefined => Match::Undefined,
            }),
            Self::And(list) => {
                let mut result = Match::True;
                for filter in list {
                    match filter.matches(context, entry)? {
                        Match::True => {}
                        Match::False => return Ok(Match::False),
                        Match::Undefined => result = Match::Undefined,
                    }
                }
                Ok(result)
            }
            Self::Or(list) => {
                let mut result = Match::False;
                for filter in list {
                    match filter.matches(context, entry)? {
                        Match::True => return Ok(Match::True),
                        Match::False => {}
                        Match::Undefined => result = Match::Undefined,
                    }
                }
                Ok(result)
            }
            Self::Test(test) => test.matches(context, entry),
        }
    }
}

impl Test {
    fn matches(&self, context: &dyn FilterContext, entry: &dyn EntrySource) -> Result<Match, Fault> {
        if let Some(description) = self.target.description()
            && !context.may_search(description, self.raw())?
        {
            return Ok(Match::Undefined);
        }
        let schema = context.schema();
        let found = match &self.assertion {
            Assertion::Present => entry.is_present(&self.target)?,
            Assertion::EntryDn(dn) => context.normal_dn()? == *dn,
            Assertion::HasSubordinates(expected) => context.has_subordinates()? == *expected,
            Assertion::Equality(a) => return equality(schema, a, &self.target, entry),
            Assertion::Approx(a) => return compare(schema, a.rule, &a.key, &self.target, entry),
            Assertion::GreaterOrEqual(a) => any_key(schema, a.rule, &self.target, entry, |key| key >= &*a.key)?,
            Assertion::LessOrEqual(a) => any_key(schema, a.rule, &self.target, entry, |key| key <= &*a.key)?,
            Assertion::Substrings(a) => any_key(schema, a.rule, &self.target, entry, |key| substrings(a, key))?,
            Assertion::Extensible(a) => return extensible(context, a, &self.target, entry),
        };
        Ok(if found { Match::True } else { Match::False })
    }

    /// The assertion value as the client sent it, for rules that look at values.
    fn raw(&self) -> Option<&[u8]> {
        match &self.assertion {
            Assertion::Equality(a)
            | Assertion::Approx(a)
            | Assertion::GreaterOrEqual(a)
            | Assertion::LessOrEqual(a) => Some(&a.raw),
            _ => None,
        }
    }
}

fn computed(schema: &Schema, assertion: &BoundAssertion) -> Option<Assertion> {
    match schema.attribute(assertion.description.attribute).name() {
        "entryDN" => {
            let text = std::str::from_utf8(&assertion.raw).ok()?;
            schema.parse_dn(text).ok().map(Assertion::EntryDn)
        }
        "hasSubordinates" => Some(Assertion::HasSubordinates(assertion.raw.eq_ignore_ascii_case(b"TRUE"))),
        _ => None,
    }
}

fn equality(
    schema: &Schema,
    assertion: &BoundAssertion,
    target: &Target,
    entry: &dyn EntrySource,
) -> Result<Match, Fault> {
    if let Some(member) = entry.large_member(target, &assertion.key)? {
        return Ok(if member { Match::True } else { Match::False });
    }
    compare_raw(schema, assertion.rule, &assertion.key, &assertion.raw, target, entry)
}

fn compare(
    schema: &Schema,
    rule: &MatchingRule,
    key: &[u8],
    target: &Target,
    entry: &dyn EntrySource,
) -> Result<Match, Fault> {
    let mut result = Match::False;
    any_key(schema, rule, target, entry, |value| {
        let found = rule.compare_keys(schema, value, key);
        if found != Match::False {
            result = found;
        }
        found == Match::True
    })?;
    Ok(result)
}

/// As [`compare`], but a value that is the assertion byte by byte needs no normalizing.
fn compare_raw(
    schema: &Schema,
    rule: &MatchingRule,
    key: &[u8],
    raw: &[u8],
    target: &Target,
    entry: &dyn EntrySource,
) -> Result<Match, Fault> {
    let mut result = Match::False;
    let mut scratch = Vec::new();
    entry.visit(target, &mut |value| {
        if value == raw {
            result = Match::True;
            return false;
        }
        scratch.clear();
        if rule.normalize_value(schema, value, &mut scratch).is_ok() {
            let found = rule.compare_keys(schema, &scratch, key);
            if found != Match::False {
                result = found;
            }
        }
        result != Match::True
    })?;
    Ok(result)
}

/// Whether the key of any value satisfies the test.
fn any_key(
    schema: &Schema,
    rule: &MatchingRule,
    target: &Target,
    entry: &dyn EntrySource,
    mut test: impl FnMut(&[u8]) -> bool,
) -> Result<bool, Fault> {
    let mut found = false;
    let mut scratch = Vec::new();
    entry.visit(target, &mut |value| {
        scratch.clear();
        found = rule.normalize_value(schema, value, &mut scratch).is_ok() && test(&scratch);
        !found
    })?;
    Ok(found)
}

/// Whether the pieces stand in the key of a value, in order and without overlap.
pub fn substrings(assertion: &BoundSubstrings, key: &[u8]) -> bool {
    let mut rest = key;
    if let Some(initial) = &assertion.initial {
        match rest.strip_prefix(&**initial) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    if let Some(final_) = &assertion.final_ {
        match rest.strip_suffix(&**final_) {
            Some(before) => rest = before,
            None => return false,
        }
    }
    for piece in &assertion.any {
        match memchr::memmem::find(rest, piece) {
            Some(at) => rest = rest.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

fn extensible(
    context: &dyn FilterContext,
    assertion: &BoundExtensible,
    target: &Target,
    entry: &dyn EntrySource,
) -> Result<Match, Fault> {
    let schema = context.schema();
    let mut result = if target.description().is_some() {
        compare(schema, assertion.rule, &assertion.key, target, entry)?
    } else {
        applicable(context, assertion, entry)?
    };
    if result != Match::True && assertion.dn_attributes {
        let dn = context.normal_dn()?;
        if dn_attribute_matches(schema, assertion, dn.as_str()) {
            result = Match::True;
        }
    }
    Ok(result)
}

/// Without an attribute, all to which the rule applies are asked (RFC 4511 section 4.5.1.7.7).
fn applicable(
    context: &dyn FilterContext,
    assertion: &BoundExtensible,
    entry: &dyn EntrySource,
) -> Result<Match, Fault> {
    let schema = context.schema();
    let mut descriptions = Vec::new();
    entry.descriptions(&mut |description| {
        if assertion.rule.applies_to(&schema.attribute(description.attribute).syntax.oid) {
            descriptions.push(description.clone());
        }
    })?;
    let mut result = Match::False;
    for description in descriptions {
        if !context.may_search(&description, None)? {
            continue;
        }
        let mut scratch = Vec::new();
        entry.visit_exact(&description, &mut |value| {
            scratch.clear();
            if assertion.rule.normalize_value(schema, value, &mut scratch).is_ok() {
                let found = assertion.rule.compare_keys(schema, &scratch, &assertion.key);
                if found != Match::False {
                    result = found;
                }
            }
            result != Match::True
        })?;
        if result == Match::True {
            break;
        }
    }
    Ok(result)
}

fn dn_attribute_matches(schema: &Schema, assertion: &BoundExtensible, dn: &str) -> bool {
    let Ok(dn) = Dn::parse(dn) else { return false };
    let mut key = Vec::new();
    dn.rdns().iter().flat_map(|rdn| rdn.avas()).any(|ava| {
        let Some(attribute) = schema.attribute_type(ava.attribute) else { return false };
        let asked = match &assertion.description {
            Some(description) => schema.is_subtype(attribute.id, description.attribute),
            None => assertion.rule.applies_to(&attribute.syntax.oid),
        };
        key.clear();
        asked
            && assertion.rule.normalize_value(schema, &ava.value, &mut key).is_ok()
            && assertion.rule.compare_keys(schema, &key, &assertion.key) == Match::True
    })
}
