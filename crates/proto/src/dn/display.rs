//! DNs as text, in the one form that OpenLDAP writes.

use std::fmt::{self, Write};

use super::parse::is_space;
use super::{Dn, Rdn, RdnAva};

/// RFC 4514 with every escape as a hexadecimal pair: `cn=a\2Cb,dc=x`.
impl fmt::Display for Dn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        separated(f, &self.rdns, ',')
    }
}

impl fmt::Display for Rdn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        separated(f, &self.avas, '+')
    }
}

impl fmt::Display for RdnAva<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.attribute)?;
        if self.hex {
            f.write_char('#')?;
            self.value.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
        } else {
            write_escaped(f, &self.value)
        }
    }
}

/// Writes an attribute value as it stands in a DN: `"`, `+`, `,`, `;`, `<`, `=`, `>`, `\`, NUL and what is not
/// UTF-8 as `\XX`; `#` and spaces at the start and spaces at the end likewise.
pub fn write_escaped(out: &mut impl Write, value: &[u8]) -> fmt::Result {
    let mut at = 0;
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            let escape = match u8::try_from(character) {
                Ok(b'"' | b'+' | b',' | b';' | b'<' | b'=' | b'>' | b'\\' | 0) => true,
                Ok(b'#') => at == 0,
                Ok(byte) if is_space(byte) => at == 0 || at + 1 == value.len(),
                _ => false,
            };
            if escape {
                write!(out, "\\{:02X}", u32::from(character))?;
            } else {
                out.write_char(character)?;
            }
            at += character.len_utf8();
        }
        for byte in chunk.invalid() {
            write!(out, "\\{byte:02X}")?;
            at += 1;
        }
    }
    Ok(())
}

fn separated(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display], separator: char) -> fmt::Result {
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            f.write_char(separator)?;
        }
        item.fmt(f)?;
    }
    Ok(())
}
