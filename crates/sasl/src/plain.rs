//! PLAIN (RFC 4616): `[authzid] NUL authcid NUL password`.

use zeroize::Zeroizing;

use crate::{Fault, NAME_MAX, TEXT_MESSAGE_MAX};

/// The mechanism's name.
pub const NAME: &str = "PLAIN";

/// The client's only message, read in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Plain<'a> {
    /// Whom the client wants to act as; empty: himself.
    pub authzid: &'a str,
    pub authcid: &'a str,
    pub password: &'a str,
}

/// Passwords stay out of logs.
impl std::fmt::Debug for Plain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plain")
            .field("authzid", &self.authzid)
            .field("authcid", &self.authcid)
            .finish_non_exhaustive()
    }
}

impl<'a> Plain<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// If it is too long, is not UTF-8, has not exactly two NUL characters, or lacks a name or a password.
    pub fn parse(message: &'a [u8]) -> Result<Self, Fault> {
        if message.len() > TEXT_MESSAGE_MAX {
            return Err(Fault::TooLong { limit: TEXT_MESSAGE_MAX });
        }
        let text = std::str::from_utf8(message).map_err(|_| Fault::Malformed("UTF-8"))?;
        let mut parts = text.split('\0');
        let (Some(authzid), Some(authcid), Some(password), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Fault::Malformed("two NUL characters"));
        };
        if authcid.is_empty() || password.is_empty() {
            return Err(Fault::Malformed("a name and a password"));
        }
        if [authzid, authcid, password].iter().any(|part| part.len() > NAME_MAX) {
            return Err(Fault::TooLong { limit: NAME_MAX });
        }
        Ok(Self { authzid, authcid, password })
    }

    /// The message to send.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let length = self.authzid.len() + self.authcid.len() + self.password.len() + 2;
        let mut message = Zeroizing::new(Vec::with_capacity(length));
        message.extend_from_slice(self.authzid.as_bytes());
        message.push(0);
        message.extend_from_slice(self.authcid.as_bytes());
        message.push(0);
        message.extend_from_slice(self.password.as_bytes());
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_plain_are_read_or_refused() {
        let long = "a".repeat(NAME_MAX + 1);
        let huge = "a".repeat(TEXT_MESSAGE_MAX + 1);
        let too_long = format!("\0{long}\0x");
        for (message, expected) in [
            // RFC 4616 section 4
            ("\0tim\0tanstaaftanstaaf", Ok(("", "tim", "tanstaaftanstaaf"))),
            ("Ursel\0Kurt\0xipj3plmq", Ok(("Ursel", "Kurt", "xipj3plmq"))),
            ("", Err(Fault::Malformed("two NUL characters"))),
            ("tim", Err(Fault::Malformed("two NUL characters"))),
            ("\0tim", Err(Fault::Malformed("two NUL characters"))),
            ("\0tim\0a\0b", Err(Fault::Malformed("two NUL characters"))),
            ("\0\0x", Err(Fault::Malformed("a name and a password"))),
            ("\0tim\0", Err(Fault::Malformed("a name and a password"))),
            (&too_long, Err(Fault::TooLong { limit: NAME_MAX })),
            (&huge, Err(Fault::TooLong { limit: TEXT_MESSAGE_MAX })),
        ] {
            let found = Plain::parse(message.as_bytes());
            let parts = found.map(|plain| (plain.authzid, plain.authcid, plain.password));
            assert_eq!(parts, expected, "{message:?}");
            if let Ok(plain) = found {
                assert_eq!(*plain.encode(), message.as_bytes());
            }
        }
        assert_eq!(Plain::parse(b"\0\xff\0x"), Err(Fault::Malformed("UTF-8")));
    }
}
