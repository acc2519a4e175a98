//! SASLprep (RFC 4013), applied to names and passwords before they are compared or hashed.

use std::borrow::Cow;

/// The prepared form; what SASLprep prohibits stays as it is, so that an old password can still be used.
pub fn prepare(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Cow::Borrowed(text);
    }
    stringprep::saslprep(text).unwrap_or(Cow::Borrowed(text))
}

/// Bytes of a password, prepared if they are text.
pub(crate) fn prepare_password(password: &[u8]) -> Cow<'_, [u8]> {
    match std::str::from_utf8(password).map(prepare) {
        Ok(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        Ok(Cow::Borrowed(_)) | Err(_) => Cow::Borrowed(password),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_rfc_4013() {
        for (given, prepared) in [
            ("user", "user"),
            ("USER", "USER"),
            ("I\u{ad}X", "IX"),
            ("\u{aa}", "a"),
            ("\u{2168}", "IX"),
            // Prohibited, and a bidirectional fault: as they are.
            ("\u{7}", "\u{7}"),
            ("\u{627}1", "\u{627}1"),
        ] {
            assert_eq!(prepare(given), prepared, "{given:?}");
        }
    }
}
