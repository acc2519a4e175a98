//! Filters for targets that do not know those which all entries match, or none (RFC 4526).

use larix_proto::ber::{Tag, write};
use larix_proto::{Filter, FilterBuf, FilterNode, FilterSet, limits};

/// The filter with `(objectClass=*)` in place of `(&)`, and its negation in place of `(|)`; `None` if it has neither.
pub(crate) fn written_out(filter: Filter<'_>) -> Option<FilterBuf> {
    if !has_constant(filter) {
        return None;
    }
    let mut ber = Vec::with_capacity(filter.as_ber().len() + 32);
    write_filter(filter, &mut ber);
    // The negation takes one level more.
    Filter::decode(&ber, limits::FILTER_DEPTH + 1).ok().map(|filter| filter.to_owned())
}

fn has_constant(filter: Filter<'_>) -> bool {
    match filter.node() {
        FilterNode::And(set) | FilterNode::Or(set) => is_empty(set) || set.iter().any(has_constant),
        FilterNode::Not(inner) => has_constant(inner),
        _ => false,
    }
}

fn is_empty(set: FilterSet<'_>) -> bool {
    set.iter().next().is_none()
}

fn write_filter(filter: Filter<'_>, out: &mut Vec<u8>) {
    match filter.node() {
        FilterNode::And(set) if is_empty(set) => every_entry(out),
        FilterNode::Or(set) if is_empty(set) => write::constructed(out, NOT, every_entry),
        FilterNode::And(set) => write_set(AND, set, out),
        FilterNode::Or(set) => write_set(OR, set, out),
        FilterNode::Not(inner) => write::constructed(out, NOT, |out| write_filter(inner, out)),
        _ => out.extend_from_slice(filter.as_ber()),
    }
}

fn write_set(tag: Tag, set: FilterSet<'_>, out: &mut Vec<u8>) {
    write::constructed(out, tag, |out| set.iter().for_each(|inner| write_filter(inner, out)));
}

fn every_entry(out: &mut Vec<u8>) {
    write::octets(out, PRESENT, b"objectClass");
}

const AND: Tag = Tag::context_constructed(0);
const OR: Tag = Tag::context_constructed(1);
const NOT: Tag = Tag::context_constructed(2);
const PRESENT: Tag = Tag::context(7);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_written_out_wherever_they_stand() {
        for (given, expected) in [
            ("(&)", "(objectClass=*)"),
            ("(|)", "(!(objectClass=*))"),
            ("(!(|))", "(!(!(objectClass=*)))"),
            ("(&(uid=a)(|(&)(cn=b*))(!(&)))", "(&(uid=a)(|(objectClass=*)(cn=b*))(!(objectClass=*)))"),
        ] {
            let filter = FilterBuf::parse(given).unwrap();
            let written = written_out(filter.as_filter()).unwrap();
            assert_eq!(written.to_string(), expected, "{given}");
        }
    }

    #[test]
    fn other_filters_stay() {
        for given in ["(uid=a)", "(&(uid=a)(!(cn=b)))", "(|(objectClass=*)(sn>=x))"] {
            assert_eq!(written_out(FilterBuf::parse(given).unwrap().as_filter()), None, "{given}");
        }
    }

    #[test]
    fn the_deepest_filter_has_room_for_a_negation() {
        let levels = limits::FILTER_DEPTH - 1;
        let text = format!("{}(|){}", "(!".repeat(levels), ")".repeat(levels));
        let filter = FilterBuf::parse(&text).unwrap();
        let written = written_out(filter.as_filter()).unwrap().to_string();
        assert!(written.ends_with(&format!("(!(objectClass=*)){}", ")".repeat(levels))), "{written}");
    }
}
