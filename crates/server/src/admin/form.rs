//! Fields of a query or of a form: `application/x-www-form-urlencoded`.

use std::fmt::Write as _;

use zeroize::Zeroize;

/// Fields read from one request; more are not looked at.
const FIELDS_MAX: usize = 20_000;

/// Names and values in the order in which they came.
#[derive(Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// What is not UTF-8 is replaced: values of bytes go as base64.
    pub(super) fn parse(text: &[u8]) -> Self {
        let pairs = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).take(FIELDS_MAX);
        Self(
            pairs
                .map(|pair| {
                    let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
                    let (name, value) = pair.split_at(at);
                    (decode(name), decode(value.get(1..).unwrap_or(&[])))
                })
                .collect(),
        )
    }

    /// Fields that no browser sent.
    pub(super) fn of(fields: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The first of a name; empty without one.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The same without blanks around it.
    pub(super) fn trimmed(&self, name: &str) -> &str {
        self.get(name).trim()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    pub(super) fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl Drop for Form {
    /// There may be passwords among them.
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|(_, value)| value.zeroize());
    }
}

fn decode(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => match after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok()) {
                Some(hex) if hex.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                    bytes.push(u8::from_str_radix(hex, 16).unwrap_or(b'?'));
                    rest = after.get(2..).unwrap_or(&[]);
                }
                _ => bytes.push(byte),
            },
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// A path with a query: `url("/entry", &[("dn", dn)])`.
pub(super) fn url(path: &str, fields: &[(&str, &str)]) -> String {
    let mut url = path.to_owned();
    for (n, (name, value)) in fields.iter().enumerate() {
        url.push(if n == 0 { '?' } else { '&' });
        encode(&mut url, name);
        url.push('=');
        encode(&mut url, value);
    }
    url
}

/// Percent-encodes all but unreserved characters (RFC 3986 section 2.3).
pub(super) fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_they_were() {
        for value in ["", "ann", "a b+c", "100 % & more = ok?", "Grüße\n<script>", "cn=x,dc=y"] {
            let text = url("", &[("name", value), ("other", "1")]);
            let form = Form::parse(text.trim_start_matches('?').as_bytes());
            assert_eq!((form.get("name"), form.get("other"), form.get("none")), (value, "1", ""), "{text}");
        }
        let form = Form::parse(b"a=1&b=%zz&a=2&c&=x&a=%e4");
        assert_eq!(form.all("a").collect::<Vec<_>>(), ["1", "2", "\u{fffd}"]);
        assert_eq!((form.get("b"), form.has("c"), form.get("")), ("%zz", true, "x"));
    }
}
