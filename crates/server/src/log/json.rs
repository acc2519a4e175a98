//! JSON text for log lines (RFC 8259).

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::Severity;
use super::writer::push_time;

/// A whole object: `members`, or a message.
pub(super) fn line(out: &mut String, at: Duration, severity: Severity, is_members: bool, text: &str) {
    out.push_str("{\"time\":\"");
    push_time(out, at);
    let severity = match severity {
        Severity::Warning => "warning",
        Severity::Notice => "notice",
        Severity::Info => "info",
        Severity::Debug => "debug",
    };
    // Writing to a String cannot fail.
    let _ = match is_members {
        true => write!(out, "\",\"severity\":\"{severity}\",{text}}}"),
        false => write!(out, "\",\"severity\":\"{severity}\",\"message\":{}}}", Quoted(text)),
    };
}

/// A string in quotation marks.
#[derive(Copy, Clone, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let mut rest = self.0;
        while let Some(at) = rest.find(|c: char| c.is_control() || matches!(c, '"' | '\\')) {
            let (before, from) = rest.split_at(at);
            f.write_str(before)?;
            let mut characters = from.chars();
            match characters.next() {
                Some(c @ ('"' | '\\')) => write!(f, "\\{c}")?,
                Some(c) => write!(f, "\\u{:04x}", u32::from(c))?,
                None => {}
            }
            rest = characters.as_str();
        }
        f.write_str(rest)?;
        f.write_char('"')
    }
}

/// A list of strings.
#[derive(Copy, Clone, Debug)]
pub struct List<'a>(pub &'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (n, item) in self.0.iter().enumerate() {
            write!(f, "{}{}", if n > 0 { "," } else { "" }, Quoted(item))?;
        }
        f.write_char(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        for (text, expected) in [
            ("", "\"\""),
            ("cn=ann", "\"cn=ann\""),
            ("a\"b\\c", "\"a\\\"b\\\\c\""),
            ("a\nb\u{7f}\u{85}é", "\"a\\u000ab\\u007f\\u0085é\""),
        ] {
            assert_eq!(Quoted(text).to_string(), expected);
        }
        assert_eq!(List(&["a".to_owned(), "b".to_owned()]).to_string(), "[\"a\",\"b\"]");
    }

    #[test]
    fn a_line_is_an_object() {
        let mut out = String::new();
        line(&mut out, Duration::from_micros(1_500_000), Severity::Info, false, "a \"b\"");
        let expected = r#"{"time":"1970-01-01T00:00:01.500000Z","severity":"info","message":"a \"b\""}"#;
        assert_eq!(out, expected);
        out.clear();
        line(&mut out, Duration::ZERO, Severity::Warning, true, "\"a\":1");
        assert_eq!(out, r#"{"time":"1970-01-01T00:00:00.000000Z","severity":"warning","a":1}"#);
    }
}
