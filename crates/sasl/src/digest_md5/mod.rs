//! DIGEST-MD5 (RFC 2831, made historic by RFC 6331): the server's side with its integrity and RC4 layers, the client's without. MD5
//! and RC4 are broken for much of what they are used for elsewhere; SCRAM under TLS is better where it is available.

mod client;
mod layer;
mod response;

use std::borrow::Cow;

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::Fault;
pub use client::{Client, ClientParameters};
pub use layer::{Layer, LayerFault};
pub use response::Response;

/// The mechanism's name.
pub const NAME: &str = "DIGEST-MD5";

/// Protection of what follows the bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// None.
    Auth,
    /// Integrity: strength 1.
    Integrity,
    /// RC4 with 128 bits, and integrity.
    Confidentiality,
}

impl Quality {
    fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Integrity => "auth-int",
            Self::Confidentiality => "auth-conf",
        }
    }

    /// Security strength factor.
    pub const fn strength(self) -> u32 {
        match self {
            Self::Auth => 0,
            Self::Integrity => 1,
            Self::Confidentiality => 128,
        }
    }
}

/// An exchange that waits for the client's response.
#[derive(Debug)]
pub struct Server {
    nonce: String,
    realm: String,
    qualities: Vec<Quality>,
    /// Largest buffer that is read when a layer is in force.
    buffer: usize,
}

/// What came of a right response.
#[derive(Debug)]
pub struct Accepted {
    /// `rspauth=...`, which proves the server to the client.
    pub answer: String,
    /// The layer to put on, if one was agreed.
    pub layer: Option<Layer>,
    pub quality: Quality,
}

impl Server {
    /// Begins an exchange: `nonce` of characters that need no quoting, `realm` of the server. `qualities` are offered.
    pub fn new(nonce: String, realm: String, qualities: Vec<Quality>, buffer: usize) -> Self {
        Self { nonce, realm, qualities, buffer }
    }

    /// The challenge.
    pub fn challenge(&self) -> String {
        let qualities: Vec<&str> = self.qualities.iter().map(|quality| quality.name()).collect();
        let cipher = if self.qualities.contains(&Quality::Confidentiality) { "cipher=\"rc4\"," } else { "" };
        format!(
            "nonce=\"{}\",realm=\"{}\",qop=\"{}\",{cipher}maxbuf={},charset=utf-8,algorithm=md5-sess",
            self.nonce,
            response::quoted(&self.realm),
            qualities.join(","),
            self.buffer
        )
    }

    /// Judges the client's response by the user's password. Works as long for a user without one (`None`).
    ///
    /// # Errors
    /// If the response is of another exchange, or wrong.
    pub fn finish(&self, response: &Response, password: Option<&[u8]>) -> Result<Accepted, Fault> {
        if !bool::from(response.nonce.as_bytes().ct_eq(self.nonce.as_bytes())) || response.count != 1 {
            return Err(Fault::Mismatch("nonce"));
        }
        let quality = match &response.quality {
            None => Quality::Auth,
            Some(name) => {
                let offered = self.qualities.iter().find(|quality| quality.name() == name);
                *offered.ok_or(Fault::Unsupported("the quality of protection is"))?
            }
        };
        if quality == Quality::Confidentiality && response.cipher.as_deref() != Some("rc4") {
            return Err(Fault::Unsupported("the cipher is"));
        }
        if !self.qualities.contains(&quality) {
            return Err(Fault::Unsupported("the quality of protection is"));
        }
        let session = session_hash(response, password.unwrap_or_default());
        let expected = response_value(&session, response, quality, "AUTHENTICATE");
        let right = bool::from(expected.as_bytes().ct_eq(response.digest.as_bytes()));
        if !right || password.is_none() {
            return Err(Fault::Proof);
        }
        let answer = format!("rspauth={}", response_value(&session, response, quality, ""));
        let layer = match quality {
            Quality::Auth => None,
            Quality::Integrity | Quality::Confidentiality => {
                Some(Layer::of_server(&session, quality, self.buffer, response.buffer))
            }
        };
        Ok(Accepted { answer, layer, quality })
    }
}

/// H(A1) of RFC 2831 section 2.1.2.1.
fn session_hash(response: &Response, password: &[u8]) -> Zeroizing<[u8; 16]> {
    let part = |text: &str| -> Vec<u8> {
        match latin_1(text.as_bytes()) {
            Some(bytes) if response.utf_8 => bytes.to_vec(),
            _ => text.as_bytes().to_vec(),
        }
    };
    let password = match latin_1(password) {
        Some(Cow::Owned(bytes)) if response.utf_8 => Zeroizing::new(bytes),
        _ => Zeroizing::new(password.to_vec()),
    };
    let user = Md5::new()
        .chain_update(part(&response.username))
        .chain_update(b":")
        .chain_update(part(&response.realm))
        .chain_update(b":")
        .chain_update(&*password)
        .finalize();
    let mut a1 = Md5::new()
        .chain_update(user)
        .chain_update(b":")
        .chain_update(&response.nonce)
        .chain_update(b":")
        .chain_update(&response.client_nonce);
    if let Some(authzid) = &response.authzid {
        a1 = a1.chain_update(b":").chain_update(authzid);
    }
    Zeroizing::new(a1.finalize().into())
}

/// `response-value`, and with an empty method that of the server's answer.
fn response_value(session: &[u8; 16], response: &Response, quality: Quality, method: &str) -> String {
    let zeroes = if quality == Quality::Auth { "" } else { ":00000000000000000000000000000000" };
    let a2 = Md5::digest(format!("{method}:{}{zeroes}", response.uri).as_bytes());
    let text = Zeroizing::new(format!(
        "{}:{}:{:08x}:{}:{}:{}",
        hex(session),
        response.nonce,
        response.count,
        response.client_nonce,
        quality.name(),
        hex(&a2)
    ));
    hex(&Md5::digest(text.as_bytes()))
}

/// ISO 8859-1, in which a text is hashed if all its characters are of it; `None` otherwise.
fn latin_1(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if text.is_ascii() {
        return Some(Cow::Borrowed(text));
    }
    let text = std::str::from_utf8(text).ok()?;
    text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>().map(Cow::Owned)
}

/// Hexadecimal digits in lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
