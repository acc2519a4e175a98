//! Filters as they are evaluated: bound to the schema and to the numbers of one database (RFC 4511 section 4.5.1.7).
//!
//! Three-valued: what the subject may not search, and what the schema cannot compare, is Undefined and stays so under
//! NOT. Entries are read in place.

use larix_proto::Dn;
use larix_schema::{
    AttributeDescription, BoundAssertion, BoundExtensible, BoundFilter, BoundSubstrings, Match, NormalDn,
    Schema, Scratch,
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
    /// The entry's DN as it is shown: rules that tell case apart need it. Where only the normalized one is at hand, that.
    fn shown_dn(&self) -> Result<String, Fault> {
        Ok(self.normal_dn()?.as_str().to_owned())
    }
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
            BoundFilter::Present(description) => match schema.attribute(description.attribute).name() {
                "entryDN" | "subschemaSubentry" | "hasSubordinates" => Self::Constant(Match::True),
                _ => test(description, Assertion::Present),
            },
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
            Self::Not(inner) => Ok(!inner.matches(context, entry)?),
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
        let mut scratch = Scratch::default();
        match &self.assertion {
            Assertion::Present => entry.is_present(&self.target).map(Match::from),
            Assertion::EntryDn(dn) => Ok((context.normal_dn()? == *dn).into()),
            Assertion::HasSubordinates(expected) => Ok((context.has_subordinates()? == *expected).into()),
            Assertion::Equality(a) => {
                if let Some(member) = entry.large_member(&self.target, &a.key)? {
                    return Ok(member.into());
                }
                any(entry, &self.target, |value| a.matches(schema, value, &mut scratch))
            }
            Assertion::Approx(a) | Assertion::GreaterOrEqual(a) | Assertion::LessOrEqual(a) => {
                any(entry, &self.target, |value| a.matches(schema, value, &mut scratch))
            }
            Assertion::Substrings(a) => {
                any(entry, &self.target, |value| a.matches(schema, value, &mut scratch))
            }
            Assertion::Extensible(a) => extensible(context, a, &self.target, entry),
        }
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

/// True of an attribute whose test is true of any value; Undefined if it is of none, but undefined of one.
fn any(
    entry: &dyn EntrySource,
    target: &Target,
    mut test: impl FnMut(&[u8]) -> Match,
) -> Result<Match, Fault> {
    let mut result = Match::False;
    entry.visit(target, &mut |value| {
        result = result.or(test(value));
        !result.is_true()
    })?;
    Ok(result)
}

fn extensible(
    context: &dyn FilterContext,
    assertion: &BoundExtensible,
    target: &Target,
    entry: &dyn EntrySource,
) -> Result<Match, Fault> {
    let schema = context.schema();
    let mut result = match target.description() {
        Some(description) if schema.attribute(description.attribute).name() == "entryDN" => {
            assertion.matches(schema, context.shown_dn()?.as_bytes(), &mut Scratch::default())
        }
        Some(_) => {
            let mut scratch = Scratch::default();
            any(entry, target, |value| assertion.matches(schema, value, &mut scratch))?
        }
        None => applicable(context, assertion, entry)?,
    };
    if result != Match::True
        && assertion.dn_attributes
        && dn_attribute_matches(schema, assertion, &context.shown_dn()?)
    {
        result = Match::True;
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
        if assertion.asks(schema.attribute(description.attribute)) {
            descriptions.push(description.clone());
        }
    })?;
    let mut result = Match::False;
    for description in descriptions {
        if !context.may_search(&description, None)? {
            continue;
        }
        let mut scratch = Scratch::default();
        entry.visit_exact(&description, &mut |value| {
            result = result.or(assertion.matches(schema, value, &mut scratch));
            !result.is_true()
        })?;
        if result == Match::True {
            break;
        }
    }
    Ok(result)
}

fn dn_attribute_matches(schema: &Schema, assertion: &BoundExtensible, dn: &str) -> bool {
    let Ok(dn) = Dn::parse(dn) else { return false };
    let mut scratch = Scratch::default();
    dn.rdns().iter().flat_map(|rdn| rdn.avas()).any(|ava| {
        let Some(attribute) = schema.attribute_type(ava.attribute) else { return false };
        let asked = match &assertion.description {
            Some(description) => schema.is_subtype(attribute.id, description.attribute),
            None => assertion.asks(attribute),
        };
        asked && assertion.matches(schema, &ava.value, &mut scratch).is_true()
    })
}
