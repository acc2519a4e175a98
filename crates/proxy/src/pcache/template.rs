//! What may be cached: templates of filters (`pcacheTemplate`), and sets of attributes (`pcacheAttrset`).

use std::path::PathBuf;
use std::time::Duration;

use larix_proto::{Filter, FilterBuf, FilterNode, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};

/// Parts of one template.
const PARTS_MAX: usize = 64;
/// How deep a template may be nested.
const DEPTH_MAX: usize = 16;
/// Names of a search that the schema does not know.
const UNKNOWN_MAX: usize = 8;
/// Octets of all of them.
const UNKNOWN_BYTES_MAX: usize = 512;

/// What the overlay does.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub sets: Vec<AttributeSet>,
    pub templates: Vec<Template>,
    pub binds: Vec<BindTemplate>,
    /// Entries of all cached answers.
    pub entries_max: usize,
    /// Entries of one cached answer.
    pub answer_entries_max: u32,
    /// Bytes of all cached answers.
    pub bytes_max: usize,
    pub queries_max: usize,
    /// How often expired answers are looked for.
    pub check_period: Duration,
    /// Nothing expires, and nothing is refreshed.
    pub offline: bool,
    /// An answer is for every requester, not only for the one that the remote server has answered.
    pub shared: bool,
    /// Where it is kept from one run of the server to the next.
    pub saved: Option<PathBuf>,
}

impl Settings {
    /// Whether what is cached under the one stays right under the other.
    pub fn fits(&self, other: &Self) -> bool {
        let filters = |settings: &Self| {
            settings.templates.iter().map(|one| (one.shape.clone(), one.set)).collect::<Vec<_>>()
        };
        self.shared == other.shared && self.sets == other.sets && filters(self) == filters(other)
    }
}

/// A filter without its values, and how long its answers are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pub shape: Shape,
    /// The number of its attribute set.
    pub set: usize,
    pub ttl: Duration,
    /// Of answers without entries; zero: these are not kept.
    pub negative_ttl: Duration,
    /// Of the fact that an answer met a size limit; zero: it is not kept.
    pub limit_ttl: Duration,
    /// After so long the next search asks the remote server again.
    pub refresh: Option<Duration>,
}

/// Whose passwords are kept (`pcacheBind`).
#[derive(Clone, Debug, PartialEq)]
pub struct BindTemplate {
    /// What must be true of the entry that is bound.
    pub filter: FilterBuf,
    /// How long the password is kept.
    pub ttl: Duration,
    /// After so long the next bind asks the remote server again.
    pub refresh: Duration,
    pub scope: Scope,
    pub base: NormalDn,
}

/// What an item of a filter asks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Asks {
    /// For a value, or for a part of one.
    Value,
    GreaterOrEqual,
    LessOrEqual,
    Approx,
    Present,
}

/// A filter without its values.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Item(Asks, AttributeDescription),
}

impl Shape {
    /// `(&(sn=)(givenName=))`. `with_values`: values may stand there, and are passed over.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(schema: &Schema, text: &str, with_values: bool) -> Result<Self, String> {
        let mut parts = 0;
        let (shape, rest) = Self::part(schema, text, (with_values, 0, &mut parts))?;
        match rest {
            "" => Ok(shape),
            rest => Err(format!("`{rest}` stands behind the end of the template")),
        }
    }

    fn part<'t>(
        schema: &Schema,
        text: &'t str,
        (with_values, depth, parts): (bool, usize, &mut usize),
    ) -> Result<(Self, &'t str), String> {
        *parts += 1;
        if depth > DEPTH_MAX || *parts > PARTS_MAX {
            return Err(format!("the template has more than {PARTS_MAX} parts, or is too deep"));
        }
        let inner = text.strip_prefix('(').ok_or_else(|| format!("there is no `(` before `{text}`"))?;
        let set = |inner: &'t str, parts: &mut usize| {
            let (mut found, mut rest) = (Vec::new(), inner);
            while rest.starts_with('(') {
                let (one, left) = Self::part(schema, rest, (with_values, depth + 1, &mut *parts))?;
                found.push(one);
                rest = left;
            }
            match rest.strip_prefix(')') {
                Some(rest) if !found.is_empty() => Ok((found, rest)),
                Some(_) => Err("an empty list stands in the template".to_owned()),
                None => Err("a `)` is missing in the template".to_owned()),
            }
        };
        match inner.as_bytes().first() {
            Some(b'&') => set(&inner[1..], parts).map(|(parts, rest)| (Self::And(parts), rest)),
            Some(b'|') => set(&inner[1..], parts).map(|(parts, rest)| (Self::Or(parts), rest)),
            Some(b'!') => {
                let (mut found, rest) = set(&inner[1..], parts)?;
                match (found.pop(), found.is_empty()) {
                    (Some(only), true) => Ok((Self::Not(Box::new(only)), rest)),
                    _ => Err("`!` stands before one part".to_owned()),
                }
            }
            _ => {
                let (item, rest) =
                    inner.split_once(')').ok_or_else(|| "a `)` is missing in the template".to_owned())?;
                Ok((Self::item(schema, item, with_values)?, rest))
            }
        }
    }

    fn item(schema: &Schema, item: &str, with_values: bool) -> Result<Self, String> {
        let (name, value) = item.split_once('=').ok_or_else(|| format!("`({item})` has no `=`"))?;
        let (name, asks) = match name.as_bytes().last() {
            Some(b'>') => (name.trim_end_matches('>'), Asks::GreaterOrEqual),
            Some(b'<') => (name.trim_end_matches('<'), Asks::LessOrEqual),
            Some(b'~') => (name.trim_end_matches('~'), Asks::Approx),
            Some(b':') => return Err(format!("`({item})`: extensible matches are not cached")),
            _ if value == "*" => (name, Asks::Present),
            _ => (name, Asks::Value),
        };
        if !(with_values || value.is_empty() || asks == Asks::Present) {
            return Err(format!("`({item})` has a value: a template has none, such as ({name}=)"));
        }
        let description = schema.describe(name).map_err(|error| format!("`{name}`: {error}"))?;
        Ok(Self::Item(asks, description))
    }

    /// Whether a filter is of this template.
    pub(super) fn fits(&self, filter: &BoundFilter) -> bool {
        let all = |shapes: &[Self], parts: &[BoundFilter]| {
            shapes.len() == parts.len() && shapes.iter().zip(parts).all(|(shape, part)| shape.fits(part))
        };
        match (self, filter) {
            (Self::And(shapes), BoundFilter::And(parts)) | (Self::Or(shapes), BoundFilter::Or(parts)) => {
                all(shapes, parts)
            }
            (Self::Not(shape), BoundFilter::Not(part)) => shape.fits(part),
            (Self::Item(asks, description), item) => {
                let (found, about) = match item {
                    BoundFilter::Equality(item) => (Asks::Value, &item.description),
                    BoundFilter::Substrings(item) => (Asks::Value, &item.description),
                    BoundFilter::GreaterOrEqual(item) => (Asks::GreaterOrEqual, &item.description),
                    BoundFilter::LessOrEqual(item) => (Asks::LessOrEqual, &item.description),
                    BoundFilter::Approx(item) => (Asks::Approx, &item.description),
                    BoundFilter::Present(description) => (Asks::Present, description),
                    _ => return false,
                };
                found == *asks && about == description
            }
            _ => false,
        }
    }

    /// The attributes that it asks about, each once.
    pub(super) fn mentioned<'s>(&'s self, found: &mut Vec<&'s AttributeDescription>) {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|part| part.mentioned(found)),
            Self::Not(part) => part.mentioned(found),
            Self::Item(_, description) if found.contains(&description) => {}
            Self::Item(_, description) => found.push(description),
        }
    }
}

/// The attributes that are read from the remote server and kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttributeSet {
    /// `*`.
    pub user: bool,
    /// `+`.
    pub operational: bool,
    /// `1.1`: none.
    pub none: bool,
    pub listed: Vec<AttributeDescription>,
    /// As configured, those that the schema does not know with them.
    pub names: Vec<String>,
}

impl AttributeSet {
    /// Names, `*`, `+` or `1.1`. `undef:` stands before one that the schema need not know.
    ///
    /// # Errors
    /// A name that the schema does not know; `1.1` with others.
    pub fn parse<'n>(schema: &Schema, names: impl IntoIterator<Item = &'n str>) -> Result<Self, String> {
        let mut set = Self::default();
        for name in names {
            let (name, may_be_unknown) = match name.get(..6) {
                Some(prefix) if prefix.eq_ignore_ascii_case("undef:") => (&name[6..], true),
                _ => (name, false),
            };
            match (name, schema.describe(name)) {
                ("*", _) => set.user = true,
                ("+", _) => set.operational = true,
                ("1.1", _) => set.none = true,
                (_, Ok(description)) => set.listed.push(description),
                (_, Err(_)) if may_be_unknown => {}
                (_, Err(error)) => {
                    return Err(format!(
                        "`{name}`: {error}; write undef:{name} if the remote server knows it"
                    ));
                }
            }
            if name != "1.1" {
                set.names.push(name.to_owned());
            }
        }
        match (set.none, set.names.is_empty()) {
            (true, false) => Err("`1.1` stands alone: it means no attributes".to_owned()),
            (false, true) => Err("the set has no attributes; write 1.1 for none".to_owned()),
            _ => Ok(set),
        }
    }

    /// Whether it has all that is asked for.
    pub(super) fn covers(&self, schema: &Schema, requested: &RequestedAttributes) -> bool {
        if requested.none {
            return self.none;
        }
        let has = |description: &AttributeDescription| {
            let by_kind = match schema.attribute(description.attribute).is_operational() {
                true => self.operational,
                false => self.user,
            };
            by_kind || self.listed.iter().any(|own| description.is_subdescription_of(schema, own))
        };
        (self.user || !requested.user)
            && (self.operational || !requested.operational)
            && !requested.by_class
            && requested.listed.iter().all(has)
    }
}

/// The attributes that a search asks for.
#[derive(Debug, Default)]
pub(super) struct RequestedAttributes {
    user: bool,
    operational: bool,
    none: bool,
    /// Those of an object class (RFC 4529).
    by_class: bool,
    listed: Vec<AttributeDescription>,
    /// What the schema does not know, in small letters and in order.
    pub(super) unknown: Vec<String>,
}

impl RequestedAttributes {
    /// None: so many unknown names are not cached.
    pub(super) fn of<'n>(schema: &Schema, names: impl IntoIterator<Item = &'n str>) -> Option<Self> {
        let (mut requested, mut count) = (Self::default(), 0_usize);
        for name in names {
            count += 1;
            match name {
                "*" => requested.user = true,
                "+" => requested.operational = true,
                "1.1" => {}
                name if name.starts_with('@') => requested.by_class = true,
                name => match schema.describe(name) {
                    Ok(description) => requested.listed.push(description),
                    Err(_) => requested.unknown.push(name.to_ascii_lowercase()),
                },
            }
        }
        requested.user |= count == 0;
        requested.none =
            !(requested.user || requested.operational || requested.by_class) && requested.listed.is_empty();
        requested.unknown.sort_unstable();
        requested.unknown.dedup();
        let bytes: usize = requested.unknown.iter().map(String::len).sum();
        (requested.unknown.len() <= UNKNOWN_MAX && bytes <= UNKNOWN_BYTES_MAX).then_some(requested)
    }
}

/// A filter without its values, as templates are written.
pub(super) fn write_template(filter: Filter<'_>, out: &mut String) {
    let mut set = |sign: char, parts: &mut dyn Iterator<Item = Filter<'_>>| {
        out.push('(');
        out.push(sign);
        parts.for_each(|part| write_template(part, out));
        out.push(')');
    };
    match filter.node() {
        FilterNode::And(parts) => set('&', &mut parts.iter()),
        FilterNode::Or(parts) => set('|', &mut parts.iter()),
        FilterNode::Not(part) => set('!', &mut std::iter::once(part)),
        FilterNode::Equality(item) => out.push_str(&format!("({}=)", item.attribute)),
        FilterNode::Substrings(item) => out.push_str(&format!("({}=)", item.attribute)),
        FilterNode::GreaterOrEqual(item) => out.push_str(&format!("({}>=)", item.attribute)),
        FilterNode::LessOrEqual(item) => out.push_str(&format!("({}<=)", item.attribute)),
        FilterNode::Approx(item) => out.push_str(&format!("({}~=)", item.attribute)),
        FilterNode::Present(attribute) => out.push_str(&format!("({attribute}=*)")),
        FilterNode::Extensible(_) | FilterNode::Unknown(_) => out.push_str("(?=)"),
    }
}

#[cfg(test)]
pub(in crate::pcache) mod tests {
    use super::*;

    pub(in crate::pcache) fn schema() -> Schema {
        let mut builder = larix_schema::SchemaBuilder::system();
        ["core", "cosine", "inetorgperson"].iter().for_each(|name| builder.add_bundled(name).unwrap());
        builder.build()
    }

    #[test]
    fn filters_of_templates() {
        let schema = schema();
        let fits = |template: &str, filter: &str| {
            let shape = Shape::parse(&schema, template, false).unwrap();
            shape.fits(&schema.bind_filter(FilterBuf::parse(filter).unwrap().as_filter()))
        };
        for (template, filter, expected) in [
            ("(sn=)", "(sn=a)", true),
            ("(sn=)", "(surname=a*b)", true),
            ("(sn=)", "(sn=*)", false),
            ("(sn=*)", "(sn=*)", true),
            ("(sn=)", "(cn=a)", false),
            ("(sn=)", "(sn~=a)", false),
            ("(sn~=)", "(sn~=a)", true),
            ("(sn=)", "(sn;lang-en=a)", false),
            ("(createTimestamp>=)", "(createTimestamp>=20200101000000Z)", true),
            ("(createTimestamp>=)", "(createTimestamp<=20200101000000Z)", false),
            ("(&(objectclass=)(uid=))", "(&(objectClass=person)(uid=a))", true),
            ("(&(objectclass=)(uid=))", "(&(uid=a)(objectClass=person))", false),
            ("(&(objectclass=)(uid=))", "(|(objectClass=person)(uid=a))", false),
            ("(&(objectclass=)(uid=))", "(&(objectClass=person)(uid=a)(sn=b))", false),
            ("(!(uid=))", "(!(uid=a))", true),
            ("(|(cn=)(sn=))", "(|(cn=*a*)(sn=b))", true),
        ] {
            assert_eq!(fits(template, filter), expected, "{template} {filter}");
        }
    }

    #[test]
    fn templates_that_cannot_be() {
        let schema = schema();
        let deep = format!("{}(sn=){}", "(!".repeat(20), ")".repeat(20));
        for (text, expected) in [
            ("sn=", "no `(`"),
            ("(sn=", "missing"),
            ("(sn=)x", "behind the end"),
            ("(sn=a)", "has a value"),
            ("(sn)", "no `=`"),
            ("(nobodyKnowsIt=)", "nobodyKnowsIt"),
            ("(sn:caseExactMatch:=)", "extensible"),
            ("(&)", "empty list"),
            ("(!(sn=)(cn=))", "one part"),
            (&*deep, "too deep"),
        ] {
            let error = Shape::parse(&schema, text, false).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(Shape::parse(&schema, "(&(objectclass=person)(uid=))", true).is_ok());
    }

    #[test]
    fn attributes_of_sets() {
        let schema = schema();
        let covers = |set: &[&str], requested: &[&str]| {
            let set = AttributeSet::parse(&schema, set.iter().copied()).unwrap();
            set.covers(&schema, &RequestedAttributes::of(&schema, requested.iter().copied()).unwrap())
        };
        for (set, requested, expected) in [
            (&["sn", "cn"][..], &["cn"][..], true),
            (&["sn", "cn"], &["SN", "CN"], true),
            (&["sn", "cn"], &["sn;lang-en"], true),
            (&["sn;lang-en"], &["sn"], false),
            (&["name"], &["cn"], true),
            (&["cn"], &["name"], false),
            (&["cn"], &["mail"], false),
            (&["cn"], &["cn", "unknownHere"], true),
            (&["cn"], &["unknownHere"], false),
            (&["cn"], &[], false),
            (&["*"], &[], true),
            (&["*"], &["*", "sn"], true),
            (&["*"], &["+"], false),
            (&["*"], &["createTimestamp"], false),
            (&["*", "+"], &["*", "+"], true),
            (&["+"], &["createTimestamp"], true),
            (&["1.1"], &["1.1"], true),
            (&["cn"], &["1.1"], false),
            (&["cn"], &["@person"], false),
        ] {
            assert_eq!(covers(set, requested), expected, "{set:?} {requested:?}");
        }
        assert!(AttributeSet::parse(&schema, ["cn", "nobodyKnowsIt"]).unwrap_err().contains("undef:"));
        assert_eq!(AttributeSet::parse(&schema, ["cn", "undef:nobodyKnowsIt"]).unwrap().names.len(), 2);
        assert!(AttributeSet::parse(&schema, ["cn", "1.1"]).is_err());
        assert!(AttributeSet::parse(&schema, []).is_err());
        let many: Vec<String> = (0..20).map(|number| format!("unknown{number}")).collect();
        assert!(RequestedAttributes::of(&schema, many.iter().map(String::as_str)).is_none());
    }
}
