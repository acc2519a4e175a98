//! Filters as text.

use std::fmt::{self, Write};

use super::{AttributeValueAssertion, Filter, FilterNode, MatchingRuleAssertion, SubstringFilter};

/// RFC 4515, in the shape that OpenLDAP logs: `*`, `(`, `)`, `\`, NUL and what is not UTF-8 escaped.
impl fmt::Display for Filter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('(')?;
        match self.node() {
            FilterNode::And(set) => {
                f.write_char('&')?;
                set.iter().try_for_each(|member| member.fmt(f))?;
            }
            FilterNode::Or(set) => {
                f.write_char('|')?;
                set.iter().try_for_each(|member| member.fmt(f))?;
            }
            FilterNode::Not(inner) => write!(f, "!{inner}")?,
            FilterNode::Equality(assertion) => ava(f, assertion, "=")?,
            FilterNode::GreaterOrEqual(assertion) => ava(f, assertion, ">=")?,
            FilterNode::LessOrEqual(assertion) => ava(f, assertion, "<=")?,
            FilterNode::Approx(assertion) => ava(f, assertion, "~=")?,
            FilterNode::Present(attribute) => write!(f, "{attribute}=*")?,
            FilterNode::Substrings(filter) => substrings(f, filter)?,
            FilterNode::Extensible(assertion) => extensible(f, assertion)?,
            FilterNode::Unknown(_) => f.write_str("?=unknown")?,
        }
        f.write_char(')')
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

fn value(f: &mut fmt::Formatter<'_>, value: &[u8]) -> fmt::Result {
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '*' | '(' | ')' | '\\' | '\0' => write!(f, "\\{:02x}", u32::from(character))?,
                other => f.write_char(other)?,
            }
        }
        chunk.invalid().iter().try_for_each(|byte| write!(f, "\\{byte:02x}"))?;
    }
    Ok(())
}
