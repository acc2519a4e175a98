//! Attributes and object classes that have other names behind the mapping.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use larix_schema::{AttributeTypeId, ObjectClassId, Schema};

/// What kind of names a map is of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Attributes,
    Classes,
}

/// A name, by what it means where that is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Attribute(AttributeTypeId),
    Class(ObjectClassId),
    /// In lower case.
    Unknown(String),
}

/// A map of names, in the words of slapo-rwm(5): clients see local names, the backend has foreign ones.
#[derive(Clone, Debug)]
pub(super) struct NameMap {
    of: Of,
    foreign: HashMap<Key, String>,
    /// None: clients do not see what has this foreign name.
    local: HashMap<Key, Option<String>>,
    /// What no line names is not seen.
    pub(super) drops: bool,
}

/// Why a line of a map is not taken. Numbers count its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    Kind(String),
    Missing,
    Extra(String),
    /// `objectClass` itself.
    ObjectClass,
    Twice(String),
    /// It could be the name of no attribute and no class.
    Name(usize, String),
}

impl MapError {
    /// The word that is at fault.
    pub const fn word(&self) -> usize {
        match self {
            Self::Kind(_) | Self::Missing => 0,
            Self::ObjectClass | Self::Twice(_) => 1,
            Self::Extra(_) => 3,
            Self::Name(word, _) => *word,
        }
    }

    /// What to write instead.
    pub const fn help(&self) -> &'static str {
        match self {
            Self::Kind(_) | Self::Missing | Self::Extra(_) => {
                "{attribute|objectclass} [NAME-HERE|*] {NAME-THERE|*}"
            }
            Self::ObjectClass => "map its values: `objectclass NAME-HERE NAME-THERE`",
            Self::Twice(_) => "one line for each name",
            Self::Name(..) => "a letter, then letters, digits and hyphens, or an OID",
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(word) => write!(f, "`{word}` is neither attribute nor objectclass"),
            Self::Missing => f.write_str("needs a kind and a name"),
            Self::Extra(word) => write!(f, "`{word}` is one word too many"),
            Self::ObjectClass => f.write_str("the attribute objectClass cannot have another name"),
            Self::Twice(name) => write!(f, "`{name}` is mapped already"),
            Self::Name(_, name) => write!(f, "`{name}` is no name"),
        }
    }
}

impl std::error::Error for MapError {}

/// The name, and its options with their semicolon.
pub(super) fn parted(description: &str) -> (&str, &str) {
    description.split_at(description.find(';').unwrap_or(description.len()))
}

impl NameMap {
    pub(super) fn new(of: Of) -> Self {
        Self { of, foreign: HashMap::new(), local: HashMap::new(), drops: false }
    }

    fn key(&self, schema: &Schema, name: &str) -> Key {
        let known = match self.of {
            Of::Attributes => schema.attribute_type_id(name).map(Key::Attribute),
            Of::Classes => schema.object_class_id(name).map(Key::Class),
        };
        known.unwrap_or_else(|| Key::Unknown(name.to_ascii_lowercase()))
    }

    /// Takes a line: the words behind its kind.
    pub(super) fn add(&mut self, schema: &Schema, words: &[&str]) -> Result<(), MapError> {
        let (local, foreign) = match words {
            ["*"] => {
                self.drops = true;
                return Ok(());
            }
            ["*", "*"] => {
                self.drops = false;
                return Ok(());
            }
            [foreign] => (None, *foreign),
            ["*", name] | [name, "*"] => (Some(*name), *name),
            [local, foreign] => (Some(*local), *foreign),
            [] => return Err(MapError::Missing),
            [_, _, more, ..] => return Err(MapError::Extra((*more).to_owned())),
        };
        for (word, name) in [(1, local), (words.len(), Some(foreign))] {
            if let Some(name) = name.filter(|name| !is_name(name)) {
                return Err(MapError::Name(word, name.to_owned()));
            }
        }
        let is_object_class =
            |name: &str| schema.attribute_type(name).is_some_and(|known| known.oid == super::OBJECT_CLASS);
        if self.of == Of::Attributes && (local.is_some_and(is_object_class) || is_object_class(foreign)) {
            return Err(MapError::ObjectClass);
        }
        let (key_of_local, key_of_foreign) =
            (local.map(|local| self.key(schema, local)), self.key(schema, foreign));
        if let Some(key) = key_of_local.as_ref().filter(|key| self.foreign.contains_key(key)) {
            let _ = key;
            return Err(MapError::Twice(local.unwrap_or_default().to_owned()));
        }
        if self.local.contains_key(&key_of_foreign) {
            return Err(MapError::Twice(foreign.to_owned()));
        }
        self.local.insert(key_of_foreign, local.map(str::to_owned));
        if let Some(key) = key_of_local {
            self.foreign.insert(key, foreign.to_owned());
        }
        Ok(())
    }

    /// Whether every name stays what it is.
    pub(super) fn is_empty(&self) -> bool {
        !self.drops && self.local.is_empty()
    }

    /// Whether clients do not see some foreign name.
    pub(super) fn hides(&self) -> bool {
        self.drops || self.local.values().any(Option::is_none)
    }

    /// The foreign name of a local one, with options if it has any; none where there is none.
    pub(super) fn foreign<'n>(&self, schema: &Schema, name: &'n str) -> Option<Cow<'n, str>> {
        if self.is_empty() {
            return Some(Cow::Borrowed(name));
        }
        let (base, options) = parted(name);
        let key = self.key(schema, base);
        match self.foreign.get(&key) {
            Some(foreign) => Some(Cow::Owned(format!("{foreign}{options}"))),
            // A client cannot ask by its foreign name for what it does not see, either.
            None if self.local.get(&key).is_some_and(Option::is_none) => None,
            None if self.drops && !self.stays(schema, base) => None,
            None => Some(Cow::Borrowed(name)),
        }
    }

    /// The local name of a foreign one; none where clients do not see it.
    pub(super) fn local<'n>(&self, schema: &Schema, name: &'n str) -> Option<Cow<'n, str>> {
        if self.is_empty() {
            return Some(Cow::Borrowed(name));
        }
        let (base, options) = parted(name);
        match self.local.get(&self.key(schema, base)) {
            Some(Some(local)) => Some(Cow::Owned(format!("{local}{options}"))),
            Some(None) => None,
            None if self.drops && !self.stays(schema, base) => None,
            None => Some(Cow::Borrowed(name)),
        }
    }

    /// Whether it is seen though no line names it.
    fn stays(&self, schema: &Schema, base: &str) -> bool {
        self.of == Of::Attributes
            && schema.attribute_type(base).is_some_and(|known| known.oid == super::OBJECT_CLASS)
    }
}

/// Whether it could be one (RFC 4512 section 1.4).
fn is_name(name: &str) -> bool {
    let starts = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(starts)
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
}
