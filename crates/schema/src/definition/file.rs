//! Schema files: `.schema` text as slapd.conf includes it becomes a list of directives.

use crate::error::{SchemaError, SchemaErrorKind};

/// What a directive of a schema file defines.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum DirectiveKind {
    AttributeType,
    ContentRule,
    ObjectClass,
    /// An OID macro: a name and an OID.
    ObjectIdentifier,
    Syntax,
}

impl DirectiveKind {
    /// The keyword of slapd.conf or the attribute of cn=schema, in any case; `attribute` and `objectclass` are
    /// OpenLDAP's short forms.
    pub(crate) fn from_keyword(keyword: &str) -> Option<Self> {
        let keyword = keyword.to_ascii_lowercase();
        Some(match keyword.strip_prefix("olc").unwrap_or(&keyword) {
            // OpenLDAP compares the first nine letters, and one of its files has a slip after them.
            attribute if attribute.starts_with("attribute") && attribute != "attributeoptions" => {
                Self::AttributeType
            }
            "ditcontentrule" | "ditcontentrules" => Self::ContentRule,
            "objectclass" | "objectclasses" => Self::ObjectClass,
            "objectidentifier" => Self::ObjectIdentifier,
            "ldapsyntax" | "ldapsyntaxes" => Self::Syntax,
            _ => return None,
        })
    }
}

/// One directive, its continuation lines joined by spaces.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Directive {
    pub kind: DirectiveKind,
    /// Line of the keyword, from 1.
    pub line: u32,
    pub text: String,
}

/// The directives of a `.schema` text: a line that starts with a space continues the one before, `#` starts a comment
/// line, also between continuation lines.
pub fn directives(text: &str, origin: &str) -> Result<Vec<Directive>, SchemaError> {
    let mut logical: Vec<(u32, String)> = Vec::new();
    for (number, line) in (1_u32..).zip(text.lines()) {
        if line.starts_with('#') {
            continue;
        }
        let trimmed = line.trim();
        if line.starts_with([' ', '\t'])
            && let Some((_, last)) = logical.last_mut()
        {
            if !trimmed.is_empty() && !trimmed.starts_with('#') {
                last.push(' ');
                last.push_str(trimmed);
            }
        } else if !trimmed.is_empty() && !trimmed.starts_with('#') {
            logical.push((number, trimmed.to_owned()));
        }
    }
    let mut directives = Vec::with_capacity(logical.len());
    for (line, text) in logical {
        let (keyword, rest) = text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((&text, ""));
        let Some(kind) = DirectiveKind::from_keyword(keyword) else {
            let kind = SchemaErrorKind::UnknownDirective(keyword.to_owned());
            return Err(SchemaError::new(kind).at(origin, line));
        };
        directives.push(Directive { kind, line, text: rest.trim_start().to_owned() });
    }
    Ok(directives)
}

/// The value without the `{n}` that X-ORDERED attributes of cn=config carry.
pub(crate) fn strip_ordering_prefix(value: &str) -> &str {
    let trimmed = value.trim_start();
    if let Some(rest) = trimmed.strip_prefix('{')
        && let Some((digits, rest)) = rest.split_once('}')
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit() || b == b'-')
    {
        return rest.trim_start();
    }
    trimmed
}
