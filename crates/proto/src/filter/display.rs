//! Filters as text.

use std::fmt::{self, Write};

use smallvec::SmallVec;

use super::{
    AttributeValueAssertion, Filter, FilterNode, FilterSet, FilterSetIter, MatchingRuleAssertion,
    SubstringFilter,
};

/// RFC 4515, in the shape that OpenLDAP logs. Iterative: the filter's depth does not take the stack's.
impl fmt::Display for Filter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The members still to be written of each open AND, OR and NOT.
        let mut open: SmallVec<[FilterSetIter<'_>; 8]> = SmallVec::new();
        let mut members = FilterSet::from_checked(self.as_ber()).iter();
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
                    write_item(f, item)?;
                    f.write_char(')')?;
                    continue;
                }
            };
            f.write_char(operator)?;
            open.push(std::mem::replace(&mut members, inner.iter()));
        }
    }
}

fn write_item(f: &mut fmt::Formatter<'_>, item: FilterNode<'_>) -> fmt::Result {
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

fn ava(f: &mut fmt::Formatter<'_>, assertion: AttributeValueAssertion<'_>, operator: &str) -> fmt::Result {
    write!(f, "{}{operator}", assertion.attribute)?;
    value(f, assertion.value)
}

fn substrings(f: &mut fmt::Formatter<'_>, filter: SubstringFilter<'_>) -> fmt::Result {
    write!(f, "{}=", filter.attribute)?;
    value(f, filter.initial.unwrap_or_default())?;
    f.write_char('*')?;
    for piece in filter.any {
        value(f, piece)?;
        f.write_char('*')?;
    }
    value(f, filter.final_.unwrap_or_default())
}

fn extensible(f: &mut fmt::Formatter<'_>, assertion: MatchingRuleAssertion<'_>) -> fmt::Result {
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
fn value(f: &mut fmt::Formatter<'_>, value: &[u8]) -> fmt::Result {
    value.iter().try_for_each(|&byte| match byte {
        b'*' | b'(' | b')' | b'\\' => write!(f, "\\{byte:02X}"),
        b' '..=b'~' => f.write_char(char::from(byte)),
        _ => write!(f, "\\{byte:02X}"),
    })
}
