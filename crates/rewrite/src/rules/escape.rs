//! `rewriteMap escape NAME STEP...`: parts of names made fit for filters, and the other way about.

use std::fmt::Write as _;

use larix_proto::Dn;
use larix_proto::dn::write_escaped;

use super::Failed;

/// What a map does, one after another. Between two steps there may be bytes that are no text.
#[derive(Debug, Clone)]
pub(super) struct Escapes(Vec<Step>);

#[derive(Debug, Clone, Copy)]
enum Step {
    EscapeForDn,
    EscapeForFilter,
    UnescapeDn,
    UnescapeFilter,
}

const STEPS: [(&str, Step); 4] = [
    ("escape2dn", Step::EscapeForDn),
    ("escape2filter", Step::EscapeForFilter),
    ("unescapedn", Step::UnescapeDn),
    ("unescapefilter", Step::UnescapeFilter),
];

impl Escapes {
    /// # Errors
    /// The number of the word that is no step; 0: there is none.
    pub(super) fn parse(words: &[&str]) -> Result<Self, usize> {
        let step = |(number, word): (usize, &&str)| {
            let found = STEPS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
            found.map(|(_, step)| *step).ok_or(number)
        };
        let steps = words.iter().enumerate().map(step).collect::<Result<Vec<_>, _>>()?;
        if steps.is_empty() { Err(0) } else { Ok(Self(steps)) }
    }

    pub(super) fn apply(&self, text: &str) -> Result<String, Failed> {
        let mut bytes = text.as_bytes().to_vec();
        for step in &self.0 {
            bytes = step.apply(&bytes)?;
        }
        String::from_utf8(bytes).map_err(|_| Failed)
    }
}

impl Step {
    fn apply(self, bytes: &[u8]) -> Result<Vec<u8>, Failed> {
        match self {
            Self::EscapeForDn => {
                let mut out = String::new();
                write_escaped(&mut out, bytes).map_err(|_| Failed)?;
                Ok(out.into_bytes())
            }
            Self::EscapeForFilter => Ok(escaped_for_filter(bytes).into_bytes()),
            Self::UnescapeDn => {
                let text = std::str::from_utf8(bytes).map_err(|_| Failed)?;
                // Any attribute would do.
                let name = format!("uid={text}");
                let dn = Dn::parse(&name).map_err(|_| Failed)?;
                let first = dn.rdns().first().and_then(|rdn| rdn.avas().first());
                first.map(|ava| ava.value.to_vec()).ok_or(Failed)
            }
            Self::UnescapeFilter => without_filter_escapes(bytes).ok_or(Failed),
        }
    }
}

/// What is not printable ASCII, and `( ) * \`, as `\XX` (RFC 4515 section 3).
fn escaped_for_filter(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        if matches!(byte, b'(' | b')' | b'*' | b'\\') || !matches!(byte, 0x20..=0x7e) {
            // A String takes everything.
            let _ = write!(out, "\\{byte:02X}");
        } else {
            out.push(char::from(*byte));
        }
    }
    out
}

/// None: a character that has a meaning stands there alone, or a `\` without two hexadecimal digits behind it.
fn without_filter_escapes(bytes: &[u8]) -> Option<Vec<u8>> {
    let digit =
        |byte: Option<&u8>| char::from(*byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'(' | b')' | b'*' => return None,
            b'\\' => out.push(digit(rest.next())? << 4 | digit(rest.next())?),
            other => out.push(*other),
        }
    }
    Some(out)
}
