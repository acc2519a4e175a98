//! The part of a filter that one side is asked: what it says of that side's attributes (`translucent_local`, `translucent_remote`).

use std::collections::HashSet;

use larix_proto::ber::{Tag, write};
use larix_proto::{Filter, FilterBuf, FilterNode, limits};
use larix_schema::{AttributeDescription, AttributeTypeId, Schema};

const AND: Tag = Tag(0xa0);
const OR: Tag = Tag(0xa1);
const NOT: Tag = Tag(0xa2);

/// A part of a filter, with the octets that it takes.
enum Piece<'a> {
    Whole(&'a [u8]),
    Of(Tag, Vec<Self>, usize),
}

impl Piece<'_> {
    fn octets(&self) -> usize {
        match self {
            Self::Whole(ber) => ber.len(),
            Self::Of(_, _, content) => element(*content),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Whole(ber) => out.extend_from_slice(ber),
            Self::Of(tag, parts, content) => {
                write::header(out, *tag, *content);
                parts.iter().for_each(|part| part.write(out));
            }
        }
    }
}

/// The octets of an element with this many octets of content.
fn element(content: usize) -> usize {
    let length = match content {
        0..0x80 => 1,
        _ => 1 + (usize::BITS - content.leading_zeros()).div_ceil(8) as usize,
    };
    1 + length + content
}

/// What of a filter is about these attributes; none: nothing is. A match by a rule alone is about all of them.
pub(super) fn part_about(
    schema: &Schema,
    filter: Filter<'_>,
    attributes: &[AttributeDescription],
) -> Option<FilterBuf> {
    let piece = piece(schema, filter, attributes)?;
    let mut ber = Vec::with_capacity(piece.octets());
    piece.write(&mut ber);
    Filter::decode(&ber, limits::FILTER_DEPTH_CEILING).ok().map(|filter| filter.to_owned())
}

fn piece<'a>(schema: &Schema, filter: Filter<'a>, attributes: &[AttributeDescription]) -> Option<Piece<'a>> {
    let (tag, parts) = match filter.node() {
        FilterNode::And(parts) => (AND, parts.iter().collect()),
        FilterNode::Or(parts) => (OR, parts.iter().collect()),
        FilterNode::Not(part) => (NOT, vec![part]),
        leaf => {
            let is_about = match named(&leaf) {
                Some(name) => schema.describe(name).is_ok_and(|description| {
                    attributes.iter().any(|listed| description.is_subdescription_of(schema, listed))
                }),
                None => matches!(leaf, FilterNode::Extensible(_)),
            };
            return is_about.then_some(Piece::Whole(filter.as_ber()));
        }
    };
    // RFC 4526: the absolute true and false are about no attribute.
    let parts: Vec<Piece<'a>> =
        parts.into_iter().filter_map(|part: Filter<'a>| piece(schema, part, attributes)).collect();
    let content = parts.iter().map(Piece::octets).sum();
    (!parts.is_empty()).then_some(Piece::Of(tag, parts, content))
}

/// The attribute that an item of a filter names.
fn named<'a>(leaf: &FilterNode<'a>) -> Option<&'a str> {
    match leaf {
        FilterNode::Equality(ava)
        | FilterNode::GreaterOrEqual(ava)
        | FilterNode::LessOrEqual(ava)
        | FilterNode::Approx(ava) => Some(ava.attribute),
        FilterNode::Substrings(substrings) => Some(substrings.attribute),
        FilterNode::Present(attribute) => Some(attribute),
        FilterNode::Extensible(rule) => rule.attribute,
        FilterNode::And(_) | FilterNode::Or(_) | FilterNode::Not(_) | FilterNode::Unknown(_) => None,
    }
}

/// The attributes that a filter is about.
#[derive(Debug, Default)]
pub(super) struct Mentioned {
    /// As the filter names them, each once.
    pub(super) names: Vec<String>,
    /// The same in small letters.
    lower: HashSet<String>,
    /// With their subtypes.
    types: HashSet<AttributeTypeId>,
    /// It is about attributes that it does not name.
    others: bool,
}

impl Mentioned {
    pub(super) fn of(schema: &Schema, filter: Filter<'_>) -> Self {
        let mut found = Self::default();
        found.add(schema, filter);
        found
    }

    fn add(&mut self, schema: &Schema, filter: Filter<'_>) {
        match filter.node() {
            FilterNode::And(parts) | FilterNode::Or(parts) => {
                parts.iter().for_each(|part| self.add(schema, part));
            }
            FilterNode::Not(part) => self.add(schema, part),
            leaf => match named(&leaf) {
                Some(name) if self.lower.insert(name.to_ascii_lowercase()) => {
                    self.names.push(name.to_owned());
                    if let Ok(description) = schema.describe(name) {
                        self.types.extend(schema.subtypes(description.attribute));
                        self.types.insert(description.attribute);
                    }
                }
                Some(_) => {}
                None => self.others |= matches!(leaf, FilterNode::Extensible(_)),
            },
        }
    }

    /// Whether it names an attribute, or one that this is a subtype of.
    pub(super) fn names_it(&self, description: Option<&AttributeDescription>, name: &str) -> bool {
        match description {
            Some(description) => self.types.contains(&description.attribute),
            None => self.lower.contains(&name.to_ascii_lowercase()),
        }
    }

    /// Whether values of this attribute can make a difference.
    pub(super) fn has(&self, attribute: &AttributeDescription) -> bool {
        self.others || self.types.contains(&attribute.attribute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let mut builder = larix_schema::SchemaBuilder::system();
        ["core", "cosine", "inetorgperson"].iter().for_each(|name| builder.add_bundled(name).unwrap());
        builder.build()
    }

    #[test]
    fn parts_of_filters() {
        let schema = schema();
        let listed: Vec<_> = ["employeeType", "name"].map(|name| schema.describe(name).unwrap()).into();
        for (filter, expected) in [
            ("(employeeType=a)", Some("(employeeType=a)")),
            ("(cn=a*)", Some("(cn=a*)")),
            ("(cn;lang-en=a)", Some("(cn;lang-en=a)")),
            ("(uid=a)", None),
            ("(nobody-knows-it=a)", None),
            ("(&)", None),
            ("(2.5.4.3:=a)", Some("(2.5.4.3:=a)")),
            ("(:caseExactMatch:=a)", Some("(:caseExactMatch:=a)")),
            ("(&(uid=a)(employeeType=b))", Some("(&(employeeType=b))")),
            ("(|(uid=a)(&(employeeType>=b)(mail=*))(sn=*))", Some("(|(&(employeeType>=b))(sn=*))")),
            ("(!(|(uid=a)(sn=b)))", Some("(!(|(sn=b)))")),
            ("(&(uid=a)(!(mail=b)))", None),
        ] {
            let filter = FilterBuf::parse(filter).unwrap();
            let part = part_about(&schema, filter.as_filter(), &listed);
            assert_eq!(part.map(|part| part.to_string()).as_deref(), expected, "{filter}");
        }
    }

    #[test]
    fn long_parts_are_encoded() {
        let schema = schema();
        let listed = [schema.describe("cn").unwrap()];
        for count in [1, 20, 2_000, 20_000] {
            let text = format!("(|{}(uid=a))", "(!(cn=somebody))".repeat(count));
            let filter = FilterBuf::parse(&text).unwrap();
            let part = part_about(&schema, filter.as_filter(), &listed).unwrap();
            assert_eq!(part.to_string(), text.replace("(uid=a)", ""));
        }
    }

    #[test]
    fn what_is_mentioned() {
        let schema = schema();
        let filter = FilterBuf::parse("(&(name=a)(UID=b)(!(uid=c))(nobody-knows-it=*))").unwrap();
        let mentioned = Mentioned::of(&schema, filter.as_filter());
        assert_eq!(mentioned.names, ["name", "UID", "nobody-knows-it"]);
        let has = |name: &str| mentioned.has(&schema.describe(name).unwrap());
        assert_eq!((has("cn"), has("uid;lang-en"), has("mail")), (true, true, false));
        let filter = FilterBuf::parse("(:caseExactMatch:=a)").unwrap();
        assert!(Mentioned::of(&schema, filter.as_filter()).has(&schema.describe("mail").unwrap()));
    }
}
