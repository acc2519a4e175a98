//! Tagging options of attribute descriptions (RFC 4512 §2.5.2).

/// The tagging options that a server knows: whole names, and prefixes that end in `-` (slapd.conf
/// `attributeoptions`). `lang-` is there from the start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AttributeOptions {
    names: Vec<Box<str>>,
}

impl Default for AttributeOptions {
    fn default() -> Self {
        Self { names: vec!["lang-".into()] }
    }
}

impl AttributeOptions {
    /// No option at all, as the directive `attributeoptions` starts before its arguments.
    pub fn none() -> Self {
        Self { names: Vec::new() }
    }

    /// Adds an option name, or a prefix when it ends in `-`. Answers false for a name with other characters than
    /// letters, digits and hyphens, or one that does not start with a letter.
    pub fn add(&mut self, name: &str) -> bool {
        let valid = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let name = name.to_ascii_lowercase();
        if valid && !self.names.iter().any(|known| **known == name) {
            self.names.push(name.into());
        }
        valid
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Whether `option`, lower case, may stand in a description.
    pub(crate) fn knows(&self, option: &str) -> bool {
        self.names.iter().any(|name| match name.strip_suffix('-') {
            // A bare prefix, `lang-`, is a range over all tags.
            Some(_) => option.starts_with(&**name),
            None => option == &**name,
        })
    }
}
