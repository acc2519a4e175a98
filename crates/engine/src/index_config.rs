//! Index lines: which attributes have which indexes (`index` in slapd.conf, `olcDbIndex`).

use std::fmt;

use larix_schema::{AttributeDescription, AttributeTypeId, Schema};

use crate::key::KeyKind;

/// A set of index kinds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds(pub u8);

impl Kinds {
    pub const NONE: Self = Self(0);
    pub const PRESENCE: Self = Self(1);
    pub const EQUALITY: Self = Self(2);
    pub const INITIAL: Self = Self(4);
    pub const ANY: Self = Self(8);
    pub const FINAL: Self = Self(16);
    pub const SUBSTRINGS: Self = Self(4 | 8 | 16);
    pub const APPROX: Self = Self(32);

    pub fn has(self, kinds: Self) -> bool {
        self.0 & kinds.0 == kinds.0
    }

    pub fn intersects(self, kinds: Self) -> bool {
        self.0 & kinds.0 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl From<KeyKind> for Kinds {
    fn from(kind: KeyKind) -> Self {
        match kind {
            KeyKind::Presence => Self::PRESENCE,
            KeyKind::Equality => Self::EQUALITY,
            KeyKind::Initial => Self::INITIAL,
            KeyKind::Any => Self::ANY,
            KeyKind::Final => Self::FINAL,
            KeyKind::Approx => Self::APPROX,
        }
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let mut put = |f: &mut fmt::Formatter<'_>, name: &str| {
            let comma = if std::mem::take(&mut first) { "" } else { "," };
            write!(f, "{comma}{name}")
        };
        for (kinds, name) in [(Self::PRESENCE, "pres"), (Self::EQUALITY, "eq"), (Self::APPROX, "approx")] {
            if self.has(kinds) {
                put(f, name)?;
            }
        }
        if self.has(Self::SUBSTRINGS) {
            return put(f, "sub");
        }
        for (kinds, name) in [(Self::INITIAL, "subinitial"), (Self::ANY, "subany"), (Self::FINAL, "subfinal")]
        {
            if self.has(kinds) {
                put(f, name)?;
            }
        }
        Ok(())
    }
}

/// What is wrong with an index line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexConfigError {
    NoAttribute,
    UnknownAttribute(String),
    UnknownKind(String),
    /// The attribute has no matching rule for this kind.
    Inappropriate {
        attribute: String,
        kind: String,
    },
    /// Neither the line nor a `default` before it says which kinds.
    NoKinds(String),
    Duplicate(String),
}

impl fmt::Display for IndexConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAttribute => f.write_str("no attributes specified"),
            Self::UnknownAttribute(name) => write!(f, "index attribute \"{name}\" undefined"),
            Self::UnknownKind(kind) => write!(f, "index type \"{kind}\" undefined"),
            Self::Inappropriate { attribute, kind } => {
                write!(f, "index of attribute \"{attribute}\" disallowed: {kind} is inappropriate matching")
            }
            Self::NoKinds(name) => write!(f, "index type for \"{name}\" undefined: no default specified"),
            Self::Duplicate(name) => write!(f, "duplicate index definition for attr \"{name}\""),
        }
    }
}

impl std::error::Error for IndexConfigError {}

/// The index lines of a database.
///
/// `nolang` and `nosubtypes` are accepted and change nothing: tagged values and subtypes are always indexed, each under
/// its own number, since a search for the general attribute has to find them.
#[derive(Clone, Debug, Default)]
pub struct IndexConfig {
    default: Kinds,
    lines: Vec<(AttributeDescription, Kinds)>,
}

impl IndexConfig {
    /// Adds the arguments of one `index` line: a comma-separated list of attributes or `default`, and optionally one
    /// of kinds.
    pub fn add_line(
        &mut self,
        schema: &Schema,
        attributes: &str,
        kinds: Option<&str>,
    ) -> Result<(), IndexConfigError> {
        let kinds = match kinds {
            Some(list) => Some(parse_kinds(list)?),
            None => None,
        };
        let mut names = attributes.split(',').map(str::trim).filter(|name| !name.is_empty()).peekable();
        names.peek().ok_or(IndexConfigError::NoAttribute)?;
        for name in names {
            let of_line = kinds.unwrap_or(self.default);
            if name.eq_ignore_ascii_case("default") {
                if of_line.is_empty() {
                    return Err(IndexConfigError::NoKinds(name.to_owned()));
                }
                self.default = of_line;
                continue;
            }
            let description =
                schema.describe(name).map_err(|_| IndexConfigError::UnknownAttribute(name.to_owned()))?;
            if of_line.is_empty() {
                return Err(IndexConfigError::NoKinds(name.to_owned()));
            }
            check_appropriate(schema, description.attribute, of_line)?;
            if self.lines.iter().any(|(other, _)| *other == description) {
                return Err(IndexConfigError::Duplicate(name.to_owned()));
            }
            self.lines.push((description, of_line));
        }
        Ok(())
    }

    /// Adds kinds that something else than a line asks for.
    pub fn also(&mut self, description: AttributeDescription, kinds: Kinds) {
        self.lines.push((description, kinds));
    }

    /// The names of those attributes without an equality index, as an `index` line takes them; none: all have one.
    pub fn lacking_equality<'a>(
        &self,
        schema: &Schema,
        attributes: impl IntoIterator<Item = &'a AttributeDescription>,
    ) -> Option<String> {
        let lacking = |attribute: &&AttributeDescription| !self.kinds(schema, attribute).has(Kinds::EQUALITY);
        let names = attributes.into_iter().filter(lacking).map(|attribute| attribute.to_text(schema));
        let names: Vec<String> = names.collect();
        (!names.is_empty()).then(|| names.join(","))
    }

    /// The kinds kept for a description: those of every line for it or a supertype of it, and those that every
    /// database has (equality of objectClass and entryUUID). None for entryCSN: the change log answers for it.
    pub fn kinds(&self, schema: &Schema, description: &AttributeDescription) -> Kinds {
        let attribute = schema.attribute(description.attribute);
        match attribute.name() {
            "entryCSN" => return Kinds::NONE,
            "objectClass" | "entryUUID" => return self.lines_for(schema, description).or(Kinds::EQUALITY),
            _ => {}
        }
        // A subtype may lack the rule that its supertype's line asks for.
        let mut kinds = self.lines_for(schema, description);
        for (rule, needed) in [
            (attribute.equality, Kinds::EQUALITY),
            (attribute.substring, Kinds::SUBSTRINGS),
            (attribute.equality, Kinds::APPROX),
        ] {
            if rule.is_none() {
                kinds = kinds.without(needed);
            }
        }
        kinds
    }

    fn lines_for(&self, schema: &Schema, description: &AttributeDescription) -> Kinds {
        self.lines
            .iter()
            .filter(|(line, _)| description.is_subdescription_of(schema, line))
            .fold(Kinds::NONE, |kinds, (_, more)| kinds.or(*more))
    }
}

fn parse_kinds(list: &str) -> Result<Kinds, IndexConfigError> {
    let mut kinds = Kinds::NONE;
    for kind in list.split(',').map(str::trim).filter(|kind| !kind.is_empty()) {
        kinds = kinds.or(match kind.to_ascii_lowercase().as_str() {
            "pres" => Kinds::PRESENCE,
            "eq" => Kinds::EQUALITY,
            "approx" => Kinds::APPROX,
            "sub" | "substr" => Kinds::SUBSTRINGS,
            "subinitial" => Kinds::INITIAL,
            "subany" => Kinds::ANY,
            "subfinal" => Kinds::FINAL,
            "nolang" | "notags" | "nosubtypes" => Kinds::NONE,
            _ => return Err(IndexConfigError::UnknownKind(kind.to_owned())),
        });
    }
    Ok(kinds)
}

fn check_appropriate(
    schema: &Schema,
    attribute: AttributeTypeId,
    kinds: Kinds,
) -> Result<(), IndexConfigError> {
    let attribute = schema.attribute(attribute);
    let inappropriate = |kind: &str| {
        Err(IndexConfigError::Inappropriate { attribute: attribute.name().to_owned(), kind: kind.to_owned() })
    };
    if kinds.has(Kinds::EQUALITY) && attribute.equality.is_none() {
        return inappropriate("equality");
    }
    if kinds.has(Kinds::APPROX) && attribute.equality.is_none() {
        return inappropriate("approximate");
    }
    if kinds.intersects(Kinds::SUBSTRINGS) && attribute.substring.is_none() {
        return inappropriate("substring");
    }
    Ok(())
}
