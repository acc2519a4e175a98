//! Search filters: checked BER (RFC 4511 section 4.5.1.7) and text (RFC 4515, with RFC 4526's absolute true and
//! false).

mod check;
mod display;
mod text;

use std::fmt;

use crate::ber::{self, DecodeError, Reader, Tag};

pub use text::{FilterFault, FilterSyntaxError, escaped};

pub(crate) const AND: Tag = Tag::context_constructed(0);
pub(crate) const OR: Tag = Tag::context_constructed(1);
pub(crate) const NOT: Tag = Tag::context_constructed(2);
pub(crate) const EQUALITY: Tag = Tag::context_constructed(3);
pub(crate) const SUBSTRINGS: Tag = Tag::context_constructed(4);
pub(crate) const GREATER_OR_EQUAL: Tag = Tag::context_constructed(5);
pub(crate) const LESS_OR_EQUAL: Tag = Tag::context_constructed(6);
pub(crate) const PRESENT: Tag = Tag::context(7);
pub(crate) const APPROX: Tag = Tag::context_constructed(8);
pub(crate) const EXTENSIBLE: Tag = Tag::context_constructed(9);
pub(crate) const INITIAL: Tag = Tag::context(0);
pub(crate) const ANY: Tag = Tag::context(1);
pub(crate) const FINAL: Tag = Tag::context(2);
pub(crate) const MATCHING_RULE: Tag = Tag::context(1);
pub(crate) const TYPE: Tag = Tag::context(2);
pub(crate) const MATCH_VALUE: Tag = Tag::context(3);
pub(crate) const DN_ATTRIBUTES: Tag = Tag::context(4);

/// A filter as checked BER: looking into it neither fails nor allocates.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Filter<'a> {
    ber: &'a [u8],
}

/// One filter's choice.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FilterNode<'a> {
    /// Without members it is the absolute true (RFC 4526).
    And(FilterSet<'a>),
    /// Without members it is the absolute false (RFC 4526).
    Or(FilterSet<'a>),
    Not(Filter<'a>),
    Equality(AttributeValueAssertion<'a>),
    Substrings(SubstringFilter<'a>),
    GreaterOrEqual(AttributeValueAssertion<'a>),
    LessOrEqual(AttributeValueAssertion<'a>),
    Present(&'a str),
    Approx(AttributeValueAssertion<'a>),
    Extensible(MatchingRuleAssertion<'a>),
    /// A choice of a later specification, by its identifier octet: evaluates to Undefined (RFC 4511 section
    /// 4.5.1.7).
    Unknown(u8),
}

/// The members of an AND or OR.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct FilterSet<'a> {
    ber: &'a [u8],
}

/// A value that is compared with those of an attribute (RFC 4511 section 4.1.6).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AttributeValueAssertion<'a> {
    pub attribute: &'a str,
    pub value: &'a [u8],
}

/// Pieces of a value in order: at least one in all.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SubstringFilter<'a> {
    pub attribute: &'a str,
    pub initial: Option<&'a [u8]>,
    pub any: SubstringPieces<'a>,
    pub final_: Option<&'a [u8]>,
}

/// The pieces between the initial and the final one.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct SubstringPieces<'a> {
    ber: &'a [u8],
}

/// RFC 4511 section 4.5.1.7.7; rule or attribute is there, or both are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MatchingRuleAssertion<'a> {
    pub rule: Option<&'a str>,
    pub attribute: Option<&'a str>,
    pub value: &'a [u8],
    /// Whether the attributes of the entry's DN are matched, too.
    pub dn_attributes: bool,
}

impl<'a> Filter<'a> {
    /// Checks the BER of exactly one filter, nested at most `max_depth` deep.
    pub fn decode(ber: &'a [u8], max_depth: usize) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(ber);
        let filter = Self::read(&mut reader, max_depth)?;
        reader.finish("filter")?;
        Ok(filter)
    }

    /// Reads one filter off `reader` and checks it.
    #[inline]
    pub(crate) fn read(reader: &mut Reader<'a>, max_depth: usize) -> Result<Self, DecodeError> {
        let ber = reader.raw("filter")?;
        check::check(ber, max_depth)?;
        Ok(Self { ber })
    }

    /// The filter's BER, header included.
    pub const fn as_ber(&self) -> &'a [u8] {
        self.ber
    }

    pub fn to_owned(&self) -> FilterBuf {
        FilterBuf { ber: self.ber.to_vec() }
    }

    /// The name of an attribute that is to be there, or with the value that it is to equal; `None` of any other choice. The octets of
    /// the name are text: who looks it up need not check that again.
    #[inline]
    pub fn term(&self) -> Option<(&'a [u8], Option<&'a [u8]>)> {
        let (tag, contents) = Reader::new(self.ber).element("filter").ok()?;
        match tag {
            PRESENT => Some((contents, None)),
            EQUALITY => {
                let mut reader = Reader::new(contents);
                let name = reader.octets("attributeDesc").ok()?;
                Some((name, Some(reader.octets("assertionValue").ok()?)))
            }
            _ => None,
        }
    }

    /// The filters of which all have to match; `None` of any other choice.
    #[inline]
    pub fn conjunction(&self) -> Option<FilterSet<'a>> {
        match Reader::new(self.ber).element("filter") {
            Ok((AND, ber)) => Some(FilterSet { ber }),
            _ => None,
        }
    }

    /// The outermost choice.
    #[inline]
    pub fn node(&self) -> FilterNode<'a> {
        // Checked when the filter was made; should that ever be wrong, Unknown evaluates to Undefined.
        node(self.ber).unwrap_or(FilterNode::Unknown(0))
    }
}

fn node(ber: &[u8]) -> Result<FilterNode<'_>, DecodeError> {
    let (tag, contents) = Reader::new(ber).element("filter")?;
    Ok(match tag {
        AND => FilterNode::And(FilterSet { ber: contents }),
        OR => FilterNode::Or(FilterSet { ber: contents }),
        NOT => FilterNode::Not(Filter { ber: contents }),
        EQUALITY => FilterNode::Equality(assertion(contents)?),
        SUBSTRINGS => FilterNode::Substrings(substrings(contents)?),
        GREATER_OR_EQUAL => FilterNode::GreaterOrEqual(assertion(contents)?),
        LESS_OR_EQUAL => FilterNode::LessOrEqual(assertion(contents)?),
        PRESENT => FilterNode::Present(ber::utf8(contents, "present")?),
        APPROX => FilterNode::Approx(assertion(contents)?),
        EXTENSIBLE => FilterNode::Extensible(extensible(contents)?),
        Tag(other) => FilterNode::Unknown(other),
    })
}

pub(crate) fn assertion(contents: &[u8]) -> Result<AttributeValueAssertion<'_>, DecodeError> {
    let mut reader = Reader::new(contents);
    let attribute = reader.string("attributeDesc")?;
    let value = reader.octets("assertionValue")?;
    reader.ignore_rest("assertion")?;
    Ok(AttributeValueAssertion { attribute, value })
}

fn substrings(contents: &[u8]) -> Result<SubstringFilter<'_>, DecodeError> {
    let mut reader = Reader::new(contents);
    let attribute = reader.string("type")?;
    let mut pieces = reader.sequence("substrings")?;
    let initial = pieces.optional(INITIAL, "initial")?;
    let middle = pieces.remaining();
    while pieces.optional(ANY, "any")?.is_some() {}
    let any = middle.get(..middle.len() - pieces.remaining().len()).unwrap_or_default();
    let final_ = pieces.optional(FINAL, "final")?;
    Ok(SubstringFilter { attribute, initial, any: SubstringPieces { ber: any }, final_ })
}

pub(crate) fn extensible(contents: &[u8]) -> Result<MatchingRuleAssertion<'_>, DecodeError> {
    let mut reader = Reader::new(contents);
    let mut text = |tag, field| reader.optional(tag, field)?.map(|text| ber::utf8(text, field)).transpose();
    let rule = text(MATCHING_RULE, "matchingRule")?;
    let attribute = text(TYPE, "type")?;
    let value = reader.expect(MATCH_VALUE, "matchValue")?;
    let dn_attributes = match reader.optional(DN_ATTRIBUTES, "dnAttributes")? {
        Some(contents) => ber::boolean(contents, "dnAttributes")?,
        None => false,
    };
    reader.ignore_rest("extensibleMatch")?;
    Ok(MatchingRuleAssertion { rule, attribute, value, dn_attributes })
}

impl<'a> FilterSet<'a> {
    /// Filters one after another that have been checked.
    pub(crate) const fn from_checked(ber: &'a [u8]) -> Self {
        Self { ber }
    }

    pub fn iter(&self) -> FilterSetIter<'a> {
        FilterSetIter { rest: Reader::new(self.ber) }
    }

    pub const fn is_empty(&self) -> bool {
        self.ber.is_empty()
    }
}

impl<'a> IntoIterator for FilterSet<'a> {
    type Item = Filter<'a>;
    type IntoIter = FilterSetIter<'a>;

    fn into_iter(self) -> FilterSetIter<'a> {
        self.iter()
    }
}

/// The members of a [`FilterSet`], in the order of the request.
#[derive(Clone, Debug)]
pub struct FilterSetIter<'a> {
    rest: Reader<'a>,
}

impl<'a> Iterator for FilterSetIter<'a> {
    type Item = Filter<'a>;

    #[inline]
    fn next(&mut self) -> Option<Filter<'a>> {
        self.rest.raw("filter").ok().map(|ber| Filter { ber })
    }
}

impl<'a> SubstringPieces<'a> {
    pub fn iter(&self) -> SubstringPiecesIter<'a> {
        SubstringPiecesIter { rest: Reader::new(self.ber) }
    }

    pub const fn is_empty(&self) -> bool {
        self.ber.is_empty()
    }
}

impl<'a> IntoIterator for SubstringPieces<'a> {
    type Item = &'a [u8];
    type IntoIter = SubstringPiecesIter<'a>;

    fn into_iter(self) -> SubstringPiecesIter<'a> {
        self.iter()
    }
}

/// The pieces of [`SubstringPieces`], in the order of the request.
#[derive(Clone, Debug)]
pub struct SubstringPiecesIter<'a> {
    rest: Reader<'a>,
}

impl<'a> Iterator for SubstringPiecesIter<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.rest.element("any").ok().map(|(_, piece)| piece)
    }
}

/// A filter of its own: parsed from text, or copied.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FilterBuf {
    ber: Vec<u8>,
}

impl FilterBuf {
    /// `(objectClass=*)`, which every entry matches.
    pub fn every_entry() -> Self {
        Self { ber: b"\x87\x0bobjectClass".to_vec() }
    }

    /// Parses RFC 4515 text, nested at most [`FILTER_DEPTH`](crate::limits::FILTER_DEPTH) deep.
    pub fn parse(text: &str) -> Result<Self, FilterSyntaxError> {
        text::parse(text).map(|ber| Self { ber })
    }

    pub fn as_filter(&self) -> Filter<'_> {
        Filter { ber: &self.ber }
    }

    pub fn as_ber(&self) -> &[u8] {
        &self.ber
    }
}

impl std::str::FromStr for FilterBuf {
    type Err = FilterSyntaxError;

    fn from_str(text: &str) -> Result<Self, FilterSyntaxError> {
        Self::parse(text)
    }
}

impl fmt::Debug for Filter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Filter({self})")
    }
}

impl fmt::Debug for FilterBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilterBuf({self})")
    }
}

impl fmt::Display for FilterBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_filter().fmt(f)
    }
}

impl fmt::Debug for FilterSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for SubstringPieces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
