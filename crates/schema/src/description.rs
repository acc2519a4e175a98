//! Attribute descriptions: a type and its options (RFC 4512 §2.5).

use std::fmt;
use std::sync::Arc;

use crate::model::AttributeTypeId;
use crate::options::AttributeOptions;
use crate::schema::Schema;

/// As many tagging options as one description may carry; OpenLDAP's number.
pub(crate) const MAX_OPTIONS: usize = 128;
/// Their text, all together, in bytes; OpenLDAP's number.
pub(crate) const MAX_OPTIONS_LENGTH: usize = 1024;

/// An attribute type and its options. Options are lower case, sorted, each once.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AttributeDescription {
    pub attribute: AttributeTypeId,
    options: Option<Arc<[Box<str>]>>,
}

/// Why a text is not an attribute description (LDAP result undefinedAttributeType).
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum DescriptionError {
    BinaryNotSupported,
    BinaryTwice,
    Characters,
    Empty,
    EmptyOption,
    OperationalWithOptions,
    TooLong,
    TooManyOptions,
    UnknownOption,
    UnknownType,
}

impl fmt::Display for DescriptionError {
    /// The diagnostic message as OpenLDAP words it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BinaryNotSupported => "option \"binary\" not supported with type",
            Self::BinaryTwice => "option \"binary\" specified multiple times",
            Self::Characters => "AttributeDescription contains inappropriate characters",
            Self::Empty => "empty AttributeDescription",
            Self::EmptyOption => "zero length option is invalid",
            Self::OperationalWithOptions => "operational attribute with options undefined",
            Self::TooLong => "tagging options too long",
            Self::TooManyOptions => "too many tagging options",
            Self::UnknownOption => "unrecognized option",
            Self::UnknownType => "attribute type undefined",
        })
    }
}

impl std::error::Error for DescriptionError {}

impl AttributeDescription {
    /// The description of a type without options.
    pub fn plain(attribute: AttributeTypeId) -> Self {
        Self { attribute, options: None }
    }

    /// Options, lower case and sorted. One that ends in `-` is a range of language tags, for requests only.
    pub fn options(&self) -> &[Box<str>] {
        self.options.as_deref().unwrap_or_default()
    }

    /// Whether it would be one if the schema had these options. `binary` is none of them.
    pub fn has_only(&self, known: &AttributeOptions) -> bool {
        self.options().iter().all(|option| &**option == "binary" || known.knows(option))
    }

    pub fn has_binary_option(&self) -> bool {
        self.options().iter().any(|option| &**option == "binary")
    }

    /// Whether an option is a range (`lang-en-`): such a description selects others, it cannot be stored.
    pub fn has_range_option(&self) -> bool {
        self.options().iter().any(|option| option.ends_with('-'))
    }

    /// The description as text: the type's first name and the options.
    pub fn to_text(&self, schema: &Schema) -> String {
        let mut text = schema.attribute(self.attribute).name().to_owned();
        for option in self.options() {
            text.push(';');
            text.push_str(option);
        }
        text
    }

    /// Whether `self` is `other` or a subtype of it (RFC 4512 §2.5.2): same type or a subtype of it, and all of the
    /// other's options. An option range of `other` (`lang-en-`) takes the tag itself and all below it.
    pub fn is_subdescription_of(&self, schema: &Schema, other: &Self) -> bool {
        if self.attribute != other.attribute && !schema.is_subtype(self.attribute, other.attribute) {
            return false;
        }
        let own = self.options();
        other.options().iter().all(|wanted| match wanted.strip_suffix('-') {
            Some(tag) => {
                own.iter().any(|option| &**option == tag || option == wanted || option.starts_with(&**wanted))
            }
            None => own.iter().any(|option| option == wanted),
        })
    }
}

impl Schema {
    /// Resolves `cn`, `2.5.4.3` or `cn;lang-en`.
    pub fn describe(&self, text: &str) -> Result<AttributeDescription, DescriptionError> {
        // No name of a type has a semicolon.
        if let Some(id) = self.recent_attribute_type_id(text.as_bytes()) {
            return Ok(AttributeDescription::plain(id));
        }
        let (name, options) = match text.split_once(';') {
            Some((name, options)) => (name, Some(options)),
            None => (text, None),
        };
        check_characters(text)?;
        let id = self.attribute_type_id(name).ok_or(DescriptionError::UnknownType)?;
        let Some(options) = options else { return Ok(AttributeDescription::plain(id)) };
        let attribute = self.attribute(id);
        if attribute.is_operational() {
            return Err(DescriptionError::OperationalWithOptions);
        }
        let options = self.parse_options(options, attribute.syntax.binary_transfer)?;
        Ok(AttributeDescription { attribute: id, options: Some(options.into()) })
    }

    /// The same of octets that need not be text.
    pub fn describe_octets(&self, text: &[u8]) -> Result<AttributeDescription, DescriptionError> {
        if let Some(id) = self.recent_attribute_type_id(text) {
            return Ok(AttributeDescription::plain(id));
        }
        let text = std::str::from_utf8(text).map_err(|_| DescriptionError::Characters)?;
        self.describe(text)
    }

    /// Whether `is_one` holds for the description as it is written, or for one of the names that its type has.
    #[must_use]
    pub fn is_by_any_name(&self, description: &str, is_one: impl Fn(&str) -> bool) -> bool {
        let described = self.describe(description).ok();
        let names = described.map(|described| &self.attribute(described.attribute).names);
        is_one(description) || names.is_some_and(|names| names.iter().any(|name| is_one(name)))
    }

    fn parse_options(&self, text: &str, binary_allowed: bool) -> Result<Vec<Box<str>>, DescriptionError> {
        let mut options: Vec<Box<str>> = Vec::new();
        let mut length = 0;
        let mut binary = false;
        for option in text.split(';') {
            let option = option.to_ascii_lowercase();
            if option.is_empty() {
                return Err(DescriptionError::EmptyOption);
            }
            if option == "binary" {
                if binary {
                    return Err(DescriptionError::BinaryTwice);
                }
                if !binary_allowed {
                    return Err(DescriptionError::BinaryNotSupported);
                }
                binary = true;
            } else if !self.options().knows(&option) {
                return Err(DescriptionError::UnknownOption);
            }
            if let Err(place) = options.binary_search_by(|known| (**known).cmp(option.as_str())) {
                length += option.len() + 1;
                options.insert(place, option.into());
            }
            if options.len() > MAX_OPTIONS {
                return Err(DescriptionError::TooManyOptions);
            }
        }
        if length > MAX_OPTIONS_LENGTH { Err(DescriptionError::TooLong) } else { Ok(options) }
    }
}

/// A description starts with a letter or digit and goes on with letters, digits, `-`, `.` and `;`.
fn check_characters(text: &str) -> Result<(), DescriptionError> {
    let mut bytes = text.bytes();
    let Some(first) = bytes.next() else { return Err(DescriptionError::Empty) };
    if first.is_ascii_alphanumeric() && bytes.all(|b| b.is_ascii_alphanumeric() || b"-.;".contains(&b)) {
        Ok(())
    } else {
        Err(DescriptionError::Characters)
    }
}
