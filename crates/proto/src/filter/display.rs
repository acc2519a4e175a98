//! Filters as text.

use std::fmt::{self, Write};

use smallvec::SmallVec;

use super::{
    AttributeValueAssertion, Filter, FilterNode, FilterSet, FilterSetIter, MatchingRuleAssertion,
    SubstringFilter,
};

/// Stands in the place of values that are not shown.
const WITHHELD: &[u8] = b"(withheld)";

/// RFC 4515, in the shape that OpenLDAP logs.
impl fmt::Display for Filter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_filter(f, *self, &|_| false)
    }
}

impl Filter<'_> {
    /// The same text with `(withheld)`, escaped, in the place of each value of an attribute that `is_secret` names.
    pub fn withholding(self, is_secret: &dyn Fn(&str) -> bool) -> String {
        let mut text = String::new();
        // Into a string nothing fails.
        let _ = write_filter(&mut text, self, is_secret);
        text
    }
}

/// Iterative: the filter's depth does not take the stack's.
fn write_filter(f: &mut impl Write, filter: Filter<'_>, is_secret: &dyn Fn(&str) -> bool) -> fmt::Result {
    // The members still to be written of each open AND, OR and NOT.
    let mut open: SmallVec<[FilterSetIter<'_>; 8]> = SmallVec::new();
    let mut members = FilterSet::from_checked(filter.as_ber()).iter();
    loop {
        let Some(filter) = members.next() else {
            match open.pop() {
                Some(outer) => members = outer,
                None => return Ok(()),
            }
            f.write_char(')')?;
            continue;
        };
        f.write_char('(')?;
        let (operator, inner) = match filter.node() {
            FilterNode::And(set) => ('&', set),
            FilterNode::Or(set) => ('|', set),
            FilterNode::Not(inner) => ('!', FilterSet::from_checked(inner.as_ber())),
            item => {
                write_item(f, shown(item, is_secret))?;
                f.write_char(')')?;
                continue;
            }
        };
        f.write_char(operator)?;
        open.push(std::mem::replace(&mut members, inner.iter()));
    }
}

/// The item as it may be shown.
fn shown<'a>(item: FilterNode<'a>, is_secret: &dyn Fn(&str) -> bool) -> FilterNode<'a> {
    let assertion = |own: AttributeValueAssertion<'a>| match is_secret(own.attribute) {
        true => AttributeValueAssertion { value: WITHHELD, ..own },
        false => own,
    };
    match item {
        FilterNode::Equality(own) => FilterNode::Equality(assertion(own)),
        FilterNode::GreaterOrEqual(own) => FilterNode::GreaterOrEqual(assertion(own)),
        FilterNode::LessOrEqual(own) => FilterNode::LessOrEqual(assertion(own)),
        FilterNode::Approx(own) => FilterNode::Approx(assertion(own)),
        // No piece says what is behind another.
        FilterNode::Substrings(own) if is_secret(own.attribute) => {
            FilterNode::Equality(AttributeValueAssertion { attribute: own.attribute, value: WITHHELD })
        }
        FilterNode::Extensible(own) if own.attribute.is_some_and(is_secret) => {
            FilterNode::Extensible(MatchingRuleAssertion { value: WITHHELD, ..own })
        }
        other => other,
    }
}

fn write_item(f: &mut impl Write, item: FilterNode<'_>) -> fmt::Result {
    match item {
        FilterNode::Equality(assertion) => ava(f, assertion, "="),
        FilterNode::GreaterOrEqual(assertion) => ava(f, assertion, ">="),
        FilterNode::LessOrEqual(assertion) => ava(f, assertion, "<="),
        FilterNode::Approx(assertion) => ava(f, assertion, "~="),
        FilterNode::Present(attribute) => write!(f, "{attribute}=*"),
        FilterNode::Substrings(filter) => substrings(f, filter),
        FilterNode::Extensible(assertion) => extensible(f, assertion),
        FilterNode::Unknown(_) | FilterNode::And(_) | FilterNode::Or(_) | FilterNode::Not(_) => {
            f.write_str("?=unknown")
        }
    }
}

fn ava(f: &mut impl Write, assertion: AttributeValueAssertion<'_>, operator: &str) -> fmt::Result {
    write!(f, "{}{operator}", assertion.attribute)?;
    value(f, assertion.value)
}

fn substrings(f: &mut impl Write, filter: SubstringFilter<'_>) -> fmt::Result {
    write!(f, "{}=", filter.attribute)?;
    value(f, filter.initial.unwrap_or_default())?;
    f.write_char('*')?;
    for piece in filter.any {
        value(f, piece)?;
        f.write_char('*')?;
    }
    value(f, filter.final_.unwrap_or_default())
}

fn extensible(f: &mut impl Write, assertion: MatchingRuleAssertion<'_>) -> fmt::Result {
    f.write_str(assertion.attribute.unwrap_or_default())?;
    if assertion.dn_attributes {
        f.write_str(":dn")?;
    }
    if let Some(rule) = assertion.rule {
        write!(f, ":{rule}")?;
    }
    f.write_str(":=")?;
    value(f, assertion.value)
}

/// Everything but printable ASCII is escaped, so that the text is one line whatever the value holds.
fn value(f: &mut impl Write, value: &[u8]) -> fmt::Result {
    value.iter().try_for_each(|&byte| match byte {
        b'*' | b'(' | b')' | b'\\' => write!(f, "\\{byte:02X}"),
        b' '..=b'~' => f.write_char(char::from(byte)),
        _ => write!(f, "\\{byte:02X}"),
    })
}
