//! The client's response: `name=value` pairs, some quoted (RFC 2831 section 2.1.2).

use crate::{Fault, NAME_MAX, TEXT_MESSAGE_MAX};

/// The client's response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    pub username: String,
    pub realm: String,
    /// Whom the client wants to act as.
    pub authzid: Option<String>,
    pub(super) nonce: String,
    pub(super) client_nonce: String,
    pub(super) count: u32,
    pub(super) quality: Option<String>,
    pub(super) cipher: Option<String>,
    pub(super) uri: String,
    pub(super) digest: String,
    /// The largest buffer that the client reads.
    pub(super) buffer: usize,
    pub(super) utf_8: bool,
}

impl Response {
    /// Reads a response.
    ///
    /// # Errors
    /// If it is too long, not of the grammar, says something twice or lacks something.
    pub fn parse(message: &[u8]) -> Result<Self, Fault> {
        if message.len() > TEXT_MESSAGE_MAX {
            return Err(Fault::TooLong { limit: TEXT_MESSAGE_MAX });
        }
        let text = std::str::from_utf8(message).map_err(|_| Fault::Malformed("UTF-8"))?;
        let mut response = Self { buffer: 65536, ..Self::default() };
        let mut seen: Vec<String> = Vec::new();
        let mut rest = text.trim_start_matches([',', ' ']);
        while !rest.is_empty() {
            let (name, value, after) = pair(rest)?;
            rest = after;
            if seen.contains(&name) {
                return Err(Fault::Malformed("a name given once"));
            }
            response.set(&name, value)?;
            seen.push(name);
        }
        let needed = ["username", "nonce", "cnonce", "nc", "digest-uri", "response"];
        if needed.iter().any(|name| !seen.iter().any(|seen| seen == name)) {
            return Err(Fault::Malformed("username, nonce, cnonce, nc, digest-uri and response"));
        }
        if [&response.username, &response.realm].iter().any(|name| name.len() > NAME_MAX) {
            return Err(Fault::TooLong { limit: NAME_MAX });
        }
        if !response.uri.to_ascii_lowercase().starts_with("ldap/") {
            return Err(Fault::Mismatch("digest-uri"));
        }
        Ok(response)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), Fault> {
        match name {
            "username" if value.is_empty() => return Err(Fault::Malformed("a name")),
            "username" => self.username = value,
            "realm" => self.realm = value,
            "authzid" => self.authzid = Some(value),
            "nonce" => self.nonce = value,
            "cnonce" => self.client_nonce = value,
            "nc" => self.count = u32::from_str_radix(&value, 16).map_err(|_| Fault::Malformed("nc"))?,
            "qop" => self.quality = Some(value),
            "cipher" => self.cipher = Some(value),
            "digest-uri" => self.uri = value,
            "response" => self.digest = value,
            "maxbuf" => self.buffer = value.parse().map_err(|_| Fault::Malformed("maxbuf"))?,
            "charset" if value.eq_ignore_ascii_case("utf-8") => self.utf_8 = true,
            "charset" => return Err(Fault::Malformed("charset")),
            _ => {}
        }
        Ok(())
    }
}

/// One pair, with its name in lower case, and what follows.
pub(super) fn pair(text: &str) -> Result<(String, String, &str), Fault> {
    let (name, rest) = text.split_once('=').ok_or(Fault::Malformed("name=value"))?;
    let name = name.trim().to_ascii_lowercase();
    let rest = rest.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => unquoted(quoted)?,
        None => {
            let end = rest.find(',').unwrap_or(rest.len());
            let (value, rest) = rest.split_at(end);
            (value.trim_end().to_owned(), rest)
        }
    };
    let rest = rest.trim_start();
    if !rest.is_empty() && !rest.starts_with(',') {
        return Err(Fault::Malformed("a comma"));
    }
    Ok((name, value, rest.trim_start_matches([',', ' '])))
}

/// A quoted string up to its closing quote, and what follows.
fn unquoted(text: &str) -> Result<(String, &str), Fault> {
    let mut value = String::new();
    let mut rest = text.char_indices();
    while let Some((at, c)) = rest.next() {
        match c {
            '"' => return Ok((value, text.get(at + 1..).unwrap_or_default())),
            '\\' => value.extend(rest.next().map(|(_, escaped)| escaped)),
            _ => value.push(c),
        }
    }
    Err(Fault::Malformed("a closing quote"))
}

/// A value for use between quotes.
pub(super) fn quoted(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"")
}
