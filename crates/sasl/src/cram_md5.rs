//! CRAM-MD5 (RFC 2195): obsolete, without protection against a false server; here for those who still have to.

use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use subtle::ConstantTimeEq;

use crate::{Fault, NAME_MAX, TEXT_MESSAGE_MAX};

/// The mechanism's name.
pub const NAME: &str = "CRAM-MD5";

/// The client's answer to a challenge: a name and a keyed digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    pub authcid: &'a str,
    /// 32 hexadecimal digits in lower case.
    digest: &'a str,
}

/// A new challenge, never used before: `nonce` from a source of random bytes.
pub fn challenge(nonce: &str, host: &str) -> String {
    format!("<{nonce}@{host}>")
}

impl<'a> Answer<'a> {
    /// Reads `name digest`.
    ///
    /// # Errors
    /// If it is too long or not of this form.
    pub fn parse(message: &'a [u8]) -> Result<Self, Fault> {
        if message.len() > TEXT_MESSAGE_MAX {
            return Err(Fault::TooLong { limit: TEXT_MESSAGE_MAX });
        }
        let text = std::str::from_utf8(message).map_err(|_| Fault::Malformed("UTF-8"))?;
        let (authcid, digest) = text.rsplit_once(' ').ok_or(Fault::Malformed("a name and a digest"))?;
        if authcid.is_empty() || authcid.contains('\0') {
            return Err(Fault::Malformed("a name"));
        }
        if authcid.len() > NAME_MAX {
            return Err(Fault::TooLong { limit: NAME_MAX });
        }
        if digest.len() != 32 || !digest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(Fault::Malformed("a digest"));
        }
        Ok(Self { authcid, digest })
    }

    /// Whether the digest is the one of this password for this challenge; takes the same time either way.
    pub fn is_of(&self, password: &[u8], challenge: &str) -> bool {
        bool::from(digest(password, challenge).as_bytes().ct_eq(self.digest.as_bytes()))
    }
}

/// The client's message.
pub fn respond(authcid: &str, password: &[u8], challenge: &str) -> String {
    format!("{authcid} {}", digest(password, challenge))
}

fn digest(password: &[u8], challenge: &str) -> String {
    // HMAC takes keys of every length; this cannot fail.
    let Ok(mut mac) = Hmac::<Md5>::new_from_slice(password) else { return String::new() };
    mac.update(challenge.as_bytes());
    crate::digest_md5::hex(&mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_2195() {
        let challenge = "<1896.697170952@postoffice.reston.mci.net>";
        let message = respond("tim", b"tanstaaftanstaaf", challenge);
        assert_eq!(message, "tim b913a602c7eda7a495b4e6e7334d3890");
        let answer = Answer::parse(message.as_bytes()).unwrap();
        assert_eq!(answer.authcid, "tim");
        assert!(answer.is_of(b"tanstaaftanstaaf", challenge));
        assert!(!answer.is_of(b"tanstaaf", challenge));
        assert!(!answer.is_of(b"tanstaaftanstaaf", "<other@host>"));
        assert_eq!(super::challenge("1.2", "host"), "<1.2@host>");
    }

    #[test]
    fn bad_messages() {
        for message in
            ["", "tim", "tim ", " b913a602c7eda7a495b4e6e7334d3890", "tim B913A602C7EDA7A495B4E6E7334D3890"]
        {
            assert!(matches!(Answer::parse(message.as_bytes()), Err(Fault::Malformed(_))), "{message:?}");
        }
        assert!(Answer::parse(&[b'a'; TEXT_MESSAGE_MAX + 1]).is_err());
    }
}
