//! Filters: attributes get the names that they have behind the mapping, and names of entries in values are rewritten.

use std::borrow::Cow;

use larix_proto::ber::{Tag, write};
use larix_proto::{
    AttributeValueAssertion, Filter, FilterBuf, FilterNode, FilterSet, LdapResult, ResultCode, limits,
};

use super::{Mapping, RewriteContext, Surroundings};

/// One filter on its way.
struct Writer<'a> {
    mapping: &'a Mapping,
    around: &'a Surroundings<'a>,
    place: RewriteContext,
    /// An attribute or a class is not there, or rules do not let a name through, so what asks for it is undefined.
    dropped: bool,
}

impl Mapping {
    /// A filter as it is put to the backend. `place`: what names in its values are rewritten as.
    pub(super) fn filter(
        &self,
        filter: Filter<'_>,
        place: RewriteContext,
        around: &Surroundings<'_>,
    ) -> Result<FilterBuf, LdapResult> {
        let mut writer = Writer { mapping: self, around, place, dropped: false };
        let mut ber = Vec::with_capacity(filter.as_ber().len() + 32);
        writer.write(filter, &mut ber);
        if writer.dropped {
            ber.clear();
            writer.write_when(filter, true, &mut ber);
        }
        decoded(&ber)
    }

    /// The same of a search, with the rules for filters as a whole.
    pub(super) fn search_filter(
        &self,
        filter: Filter<'_>,
        around: &Surroundings<'_>,
    ) -> Result<FilterBuf, LdapResult> {
        let mapped = self.filter(filter, RewriteContext::SearchFilterValue, around)?;
        if !self.has_rules(RewriteContext::SearchFilter) {
            return Ok(mapped);
        }
        match self.text(RewriteContext::SearchFilter, &mapped.to_string(), around)? {
            None => Ok(mapped),
            Some(text) => FilterBuf::parse(&text).map_err(|_| {
                LdapResult::with(ResultCode::OTHER, "what the rules have made of the filter is no filter")
            }),
        }
    }
}

fn decoded(ber: &[u8]) -> Result<FilterBuf, LdapResult> {
    // Each level has become one, or two where a part is not there.
    let filter = Filter::decode(ber, limits::FILTER_DEPTH * 2 + 2);
    filter.map(|filter| filter.to_owned()).map_err(|_| {
        LdapResult::with(ResultCode::OTHER, "what the mapping has made of the filter is no filter")
    })
}

impl Writer<'_> {
    fn write(&mut self, filter: Filter<'_>, out: &mut Vec<u8>) {
        match filter.node() {
            FilterNode::And(set) if set.iter().next().is_none() => self.constant(true, out),
            FilterNode::Or(set) if set.iter().next().is_none() => self.constant(false, out),
            FilterNode::And(set) => self.set(AND, set, None, out),
            FilterNode::Or(set) => self.set(OR, set, None, out),
            FilterNode::Not(part) => write::constructed(out, NOT, |out| self.write(part, out)),
            item => self.item(item, filter, out),
        }
    }

    /// What is true of an entry if the filter is `truth` of it: a part that is not there is neither.
    fn write_when(&mut self, filter: Filter<'_>, truth: bool, out: &mut Vec<u8>) {
        match filter.node() {
            FilterNode::And(set) if set.iter().next().is_none() => self.constant(truth, out),
            FilterNode::Or(set) if set.iter().next().is_none() => self.constant(!truth, out),
            FilterNode::And(set) => self.set(if truth { AND } else { OR }, set, Some(truth), out),
            FilterNode::Or(set) => self.set(if truth { OR } else { AND }, set, Some(truth), out),
            FilterNode::Not(part) => self.write_when(part, !truth, out),
            item => {
                let was_dropped = std::mem::replace(&mut self.dropped, false);
                let start = out.len();
                let mut written = Vec::new();
                self.item(item, filter, &mut written);
                if self.dropped {
                    out.truncate(start);
                    self.constant(false, out);
                } else if truth {
                    out.append(&mut written);
                } else {
                    write::constructed(out, NOT, |out| out.append(&mut written));
                }
                self.dropped = was_dropped;
            }
        }
    }

    fn set(&mut self, tag: Tag, set: FilterSet<'_>, truth: Option<bool>, out: &mut Vec<u8>) {
        write::constructed(out, tag, |out| {
            for part in set.iter() {
                match truth {
                    None => self.write(part, out),
                    Some(truth) => self.write_when(part, truth, out),
                }
            }
        });
    }

    /// What is true of every entry, or of none (RFC 4526).
    fn constant(&self, truth: bool, out: &mut Vec<u8>) {
        match (self.mapping.absolute_filters, truth) {
            (true, true) => write::constructed(out, AND, |_| {}),
            (true, false) => write::constructed(out, OR, |_| {}),
            (false, true) => write::octets(out, PRESENT, b"objectClass"),
            (false, false) => {
                write::constructed(out, NOT, |out| write::octets(out, PRESENT, b"objectClass"));
            }
        }
    }

    fn item(&mut self, item: FilterNode<'_>, whole: Filter<'_>, out: &mut Vec<u8>) {
        match item {
            FilterNode::Equality(ava) => self.assertion(EQUALITY, &ava, out),
            FilterNode::GreaterOrEqual(ava) => self.assertion(GREATER_OR_EQUAL, &ava, out),
            FilterNode::LessOrEqual(ava) => self.assertion(LESS_OR_EQUAL, &ava, out),
            FilterNode::Approx(ava) => self.assertion(APPROX, &ava, out),
            FilterNode::Present(attribute) => {
                if let Some(name) = self.attribute(attribute) {
                    write::octets(out, PRESENT, name.as_bytes());
                }
            }
            FilterNode::Substrings(sub) => {
                let Some(name) = self.attribute(sub.attribute) else { return };
                write::constructed(out, SUBSTRINGS, |out| {
                    write::string(out, &name);
                    write::constructed(out, Tag::SEQUENCE, |out| {
                        sub.initial.iter().for_each(|piece| write::octets(out, Tag::context(0), piece));
                        sub.any.iter().for_each(|piece| write::octets(out, Tag::context(1), piece));
                        sub.final_.iter().for_each(|piece| write::octets(out, Tag::context(2), piece));
                    });
                });
            }
            FilterNode::Extensible(rule) => {
                let name = match rule.attribute {
                    // It would be asked of attributes that are not seen, too.
                    None if self.mapping.attributes.hides() => {
                        self.dropped = true;
                        return;
                    }
                    None => None,
                    Some(attribute) => match self.attribute(attribute) {
                        Some(name) => Some(name),
                        None => return,
                    },
                };
                let value = match rule.attribute {
                    Some(attribute) => self.value(attribute, rule.value),
                    None => Some(Cow::Borrowed(rule.value)),
                };
                let Some(value) = value else { return };
                write::constructed(out, EXTENSIBLE, |out| {
                    rule.rule.iter().for_each(|rule| write::octets(out, Tag::context(1), rule.as_bytes()));
                    name.iter().for_each(|name| write::octets(out, Tag::context(2), name.as_bytes()));
                    write::octets(out, Tag::context(3), &value);
                    if rule.dn_attributes {
                        write::boolean(out, Tag::context(4), true);
                    }
                });
            }
            FilterNode::And(_) | FilterNode::Or(_) | FilterNode::Not(_) | FilterNode::Unknown(_) => {
                out.extend_from_slice(whole.as_ber());
            }
        }
    }

    fn assertion(&mut self, tag: Tag, ava: &AttributeValueAssertion<'_>, out: &mut Vec<u8>) {
        let Some(name) = self.attribute(ava.attribute) else { return };
        let Some(value) = self.value(ava.attribute, ava.value) else { return };
        write::constructed(out, tag, |out| {
            write::string(out, &name);
            write::octets(out, Tag::OCTET_STRING, &value);
        });
    }

    fn attribute<'n>(&mut self, name: &'n str) -> Option<Cow<'n, str>> {
        let mapping = self.mapping;
        let foreign = mapping.attributes.foreign(&mapping.schema, name);
        self.dropped |= foreign.is_none();
        foreign
    }

    fn value<'v>(&mut self, attribute: &str, value: &'v [u8]) -> Option<Cow<'v, [u8]>> {
        let mapped = self.mapping.foreign_value(attribute, value, self.place, self.around).ok().flatten();
        self.dropped |= mapped.is_none();
        mapped
    }
}

const AND: Tag = Tag::context_constructed(0);
const OR: Tag = Tag::context_constructed(1);
const NOT: Tag = Tag::context_constructed(2);
const EQUALITY: Tag = Tag::context_constructed(3);
const SUBSTRINGS: Tag = Tag::context_constructed(4);
const GREATER_OR_EQUAL: Tag = Tag::context_constructed(5);
const LESS_OR_EQUAL: Tag = Tag::context_constructed(6);
const PRESENT: Tag = Tag::context(7);
const APPROX: Tag = Tag::context_constructed(8);
const EXTENSIBLE: Tag = Tag::context_constructed(9);
