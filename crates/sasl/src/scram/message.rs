//! The messages' grammar (RFC 5802 section 7).

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::ITERATIONS_MAX;
use crate::{Fault, NAME_MAX, TEXT_MESSAGE_MAX};

/// Longest nonce of the client, in bytes.
const NONCE_MAX: usize = 512;

/// What the client says about channel bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindingFlag {
    /// `n`: it cannot bind.
    Unsupported,
    /// `y`: it could, and believes that the server cannot.
    NotOffered,
    /// `p=`: it binds, to a channel of this type.
    Used(String),
}

/// The client's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFirst {
    pub binding: BindingFlag,
    /// Whom the client wants to act as; empty: himself.
    pub authzid: String,
    pub authcid: String,
    pub(super) nonce: String,
    /// With the commas: what `c=` repeats.
    pub(super) gs2_header: String,
    /// Everything behind the header.
    pub(super) bare: String,
}

impl ClientFirst {
    /// Reads the message.
    ///
    /// # Errors
    /// If it is too long, not of the grammar, or demands an extension (`m=`).
    pub fn parse(message: &[u8]) -> Result<Self, Fault> {
        let text = text(message)?;
        let mut parts = text.splitn(3, ',');
        let flag = parts.next().unwrap_or_default();
        let binding = match flag.split_once('=') {
            Some(("p", name)) if is_binding_name(name) => BindingFlag::Used(name.to_owned()),
            None if flag == "n" => BindingFlag::Unsupported,
            None if flag == "y" => BindingFlag::NotOffered,
            _ => return Err(Fault::Malformed("channel binding flag")),
        };
        let authzid = match parts.next().ok_or(Fault::Malformed("authorization identity"))? {
            "" => String::new(),
            part => {
                let name = part.strip_prefix("a=").ok_or(Fault::Malformed("authorization identity"))?;
                unescape(name)?.into_owned()
            }
        };
        let bare = parts.next().ok_or(Fault::Malformed("user name"))?;
        let mut attributes = bare.split(',');
        let name = attributes.next().unwrap_or_default();
        if name.starts_with("m=") {
            return Err(Fault::Unsupported("the demanded extension"));
        }
        let name = name.strip_prefix("n=").ok_or(Fault::Malformed("user name"))?;
        let authcid = unescape(name)?.into_owned();
        if authcid.is_empty() {
            return Err(Fault::Malformed("user name"));
        }
        let nonce = attributes.next().and_then(|part| part.strip_prefix("r="));
        let nonce = nonce.filter(|nonce| is_nonce(nonce)).ok_or(Fault::Malformed("nonce"))?;
        let header_length = text.len().saturating_sub(bare.len());
        Ok(Self {
            binding,
            authzid,
            authcid,
            nonce: nonce.to_owned(),
            gs2_header: text.get(..header_length).unwrap_or_default().to_owned(),
            bare: bare.to_owned(),
        })
    }
}

/// The client's final message.
#[derive(Debug)]
pub(super) struct ClientFinal<'a> {
    pub(super) binding: Vec<u8>,
    pub(super) nonce: &'a str,
    pub(super) proof: Vec<u8>,
    pub(super) without_proof: &'a str,
}

impl<'a> ClientFinal<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, Fault> {
        let text = text(message)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(Fault::Malformed("proof"))?;
        let proof = STANDARD.decode(proof).map_err(|_| Fault::Malformed("proof"))?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|part| part.strip_prefix("c="));
        let binding = binding.and_then(|part| STANDARD.decode(part).ok());
        let nonce = attributes.next().and_then(|part| part.strip_prefix("r="));
        Ok(Self {
            binding: binding.ok_or(Fault::Malformed("channel binding"))?,
            nonce: nonce.ok_or(Fault::Malformed("nonce"))?,
            proof,
            without_proof,
        })
    }
}

/// The server's first message.
#[derive(Debug)]
pub(super) struct ServerFirst<'a> {
    pub(super) nonce: &'a str,
    pub(super) salt: Vec<u8>,
    pub(super) iterations: u32,
}

impl<'a> ServerFirst<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, Fault> {
        let text = text(message)?;
        if text.starts_with("m=") {
            return Err(Fault::Unsupported("the demanded extension"));
        }
        let mut attributes = text.split(',');
        let mut next = |name, what| {
            let found: Option<&'a str> = attributes.next().and_then(|part| part.strip_prefix(name));
            found.ok_or(Fault::Malformed(what))
        };
        let nonce = next("r=", "nonce")?;
        let salt = STANDARD.decode(next("s=", "salt")?).map_err(|_| Fault::Malformed("salt"))?;
        let iterations = next("i=", "iteration count")?.parse().ok();
        let iterations = iterations.filter(|count| (1..=ITERATIONS_MAX).contains(count));
        Ok(Self { nonce, salt, iterations: iterations.ok_or(Fault::Malformed("iteration count"))? })
    }
}

/// A message as text, of a length that is acceptable.
pub(super) fn text(message: &[u8]) -> Result<&str, Fault> {
    if message.len() > TEXT_MESSAGE_MAX {
        return Err(Fault::TooLong { limit: TEXT_MESSAGE_MAX });
    }
    std::str::from_utf8(message).map_err(|_| Fault::Malformed("UTF-8"))
}

/// A name with `,` and `=` written as `=2C` and `=3D`.
pub(super) fn escape(name: &str) -> Cow<'_, str> {
    if name.contains([',', '=']) {
        return Cow::Owned(name.replace('=', "=3D").replace(',', "=2C"));
    }
    Cow::Borrowed(name)
}

fn unescape(name: &str) -> Result<Cow<'_, str>, Fault> {
    if name.len() > NAME_MAX {
        return Err(Fault::TooLong { limit: NAME_MAX });
    }
    if name.contains('\0') {
        return Err(Fault::Malformed("name"));
    }
    if !name.contains('=') {
        return Ok(Cow::Borrowed(name));
    }
    let mut plain = String::with_capacity(name.len());
    let mut parts = name.split('=');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (escaped, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(Fault::Malformed("name")),
        };
        plain.push(escaped);
        plain.push_str(rest);
    }
    Ok(Cow::Owned(plain))
}

fn is_nonce(nonce: &str) -> bool {
    (1..=NONCE_MAX).contains(&nonce.len())
        && nonce.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}

fn is_binding_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}
