//! The values of an overlay's directives, and what is wrong with one.

use std::fmt;

use larix_proto::dn::Dn;
use larix_schema::{AttributeDescription, DnError, NormalDn, Schema};

/// The values that are configured for one overlay, by their attributes under cn=config.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(&'static str, Value)>);

/// One value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// As cn=config shows it, without `{n}`.
    pub text: String,
    /// Its words, quotes taken off.
    pub words: Vec<String>,
}

impl Settings {
    pub fn add(&mut self, attribute: &'static str, value: Value) {
        self.0.push((attribute, value));
    }

    /// The values of an attribute, in order.
    pub fn values(&self, attribute: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(attribute)).map(|(_, value)| value)
    }

    /// The first value of an attribute.
    pub fn text(&self, attribute: &str) -> Option<&str> {
        self.values(attribute).next().map(|value| value.text.as_str())
    }

    /// The words of all values of an attribute.
    pub fn words(&self, attribute: &str) -> impl Iterator<Item = &str> {
        self.values(attribute).flat_map(|value| value.words.iter().map(String::as_str))
    }

    /// Whether a switch is on; `None`: it is not set.
    pub fn switch(&self, attribute: &str) -> Option<bool> {
        self.text(attribute).map(|text| text.eq_ignore_ascii_case("TRUE"))
    }

    /// Whether a switch is set and on.
    pub fn is_on(&self, attribute: &str) -> bool {
        self.switch(attribute).unwrap_or(false)
    }

    /// A number.
    ///
    /// # Errors
    /// Something else.
    pub fn number<N: std::str::FromStr>(
        &self,
        keyword: &str,
        attribute: &str,
    ) -> Result<Option<N>, SettingError> {
        let Some(text) = self.text(attribute) else { return Ok(None) };
        let number = text.trim().parse().map(Some);
        number.map_err(|_| SettingError::new(format!("{keyword} \"{text}\": not a number")))
    }

    /// A DN. Attribute types in it need not be defined yet: until they are, the DN stands for itself, without regard to case.
    ///
    /// # Errors
    /// Something that is no DN.
    pub fn dn(
        &self,
        schema: &Schema,
        keyword: &str,
        attribute: &str,
    ) -> Result<Option<ShownDn>, SettingError> {
        let Some(text) = self.text(attribute) else { return Ok(None) };
        let dn = ShownDn::parse(schema, text.trim().trim_matches('"'));
        dn.map(Some).map_err(|error| SettingError::new(format!("{keyword} \"{text}\" is not a DN: {error}")))
    }

    /// The attribute descriptions that the words of all values name.
    ///
    /// # Errors
    /// A name that the schema does not have.
    pub fn attributes(
        &self,
        schema: &Schema,
        keyword: &str,
        attribute: &str,
    ) -> Result<Vec<AttributeDescription>, SettingError> {
        self.words(attribute).map(|name| described(schema, keyword, name)).collect()
    }
}

/// A DN of the configuration: for comparing, and as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownDn {
    pub normal: NormalDn,
    pub text: String,
}

impl ShownDn {
    fn parse(schema: &Schema, text: &str) -> Result<Self, DnError> {
        let dn = Dn::parse(text)?;
        match (schema.pretty_dn(&dn), schema.normalize_dn(&dn)) {
            (Ok(text), Ok(normal)) => Ok(Self { normal, text }),
            (Err(DnError::UnknownAttribute(_)), _) => {
                let rdns: Vec<String> = dn.rdns().iter().map(ToString::to_string).collect();
                let text = rdns.join(",");
                Ok(Self { normal: NormalDn::from_normal(&text.to_lowercase()), text })
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }
}

/// A number as strtol(3) reads it: decimal, hexadecimal behind `0x`, or octal behind `0`.
pub fn c_integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if digits.len() > 1 && digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let is_plain = digits.chars().all(|digit| digit.is_digit(radix));
    i64::from_str_radix(digits, radix).ok().filter(|_| is_plain).map(|number| sign * number)
}

/// The attribute description that a setting names.
///
/// # Errors
/// A name that the schema does not have.
pub fn described(schema: &Schema, keyword: &str, name: &str) -> Result<AttributeDescription, SettingError> {
    let described = schema.describe(name);
    described.map_err(|error| SettingError::new(format!("{keyword} <{name}>: {error}")).awaiting_schema())
}

/// What is wrong with a setting: names the directive, the value, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// As `unique_uri "ldap:x": not an LDAP URL`.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// A name is unknown: a schema that is still to come may have it.
    pub awaits_schema: bool,
}

impl SettingError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None, awaits_schema: false }
    }

    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// A name is unknown that a schema may have which is read later.
    #[must_use]
    pub fn awaiting_schema(mut self) -> Self {
        self.awaits_schema = true;
        self
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.help {
            Some(help) => write!(f, "{}; {help}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for SettingError {}
