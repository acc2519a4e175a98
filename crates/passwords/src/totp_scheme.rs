//! `{TOTP1}<secret>` and `{TOTP1ANDPW}<secret>|<stored password>`, the same for SHA-256 and SHA-512: codes of RFC 6238 as passwords,
//! as OpenLDAP's module pw-totp has them. The secret is in base 32 (RFC 4648 section 6), a code has six digits and holds for 30
//! seconds. Such a value alone says neither what time it is nor which code was used last: [`verify`](super::verify) matches nothing
//! with it, and who judges a login asks [`time_based`].

use std::fmt;

use zeroize::Zeroizing;

use super::one_time::{self, Algorithm};
use super::scheme::{self, Scheme};

/// Digits of a code.
pub const CODE_DIGITS: usize = 6;
/// Seconds for which a code holds.
pub const TIME_STEP: i64 = 30;
/// Between the secret and the password that stands before the codes.
const DELIMITER: u8 = b'|';

/// A stored value that takes codes.
pub struct TimeBased<'v> {
    algorithm: Algorithm,
    secret: Zeroizing<Vec<u8>>,
    /// What the password before the code is compared with; `None`: a code is all that is sent.
    pub password: Option<&'v [u8]>,
}

/// Secrets stay out of logs.
impl fmt::Debug for TimeBased<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeBased").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl TimeBased<'_> {
    /// Whether this is a code that may be used at `now`, in seconds since 1970: that of the present time step or of the one before
    /// it, later than the step in which the last one was used.
    pub fn takes(&self, code: &[u8], now: i64, last_used: Option<i64>) -> bool {
        let step = now.div_euclid(TIME_STEP);
        let first_unused = last_used.map_or(i64::MIN, |last| last.div_euclid(TIME_STEP).saturating_add(1));
        // Both are computed, whichever may be used.
        let steps = step.saturating_sub(1)..=step;
        let found = one_time::find((self.algorithm, &self.secret), steps, CODE_DIGITS as u32, code);
        found.is_some_and(|found| found >= first_unused)
    }
}

/// What a value of these schemes says; `None`: it is of another scheme, or malformed.
pub fn time_based(stored: &[u8]) -> Option<TimeBased<'_>> {
    let (Some(Scheme::Totp { algorithm, with_password }), rest) = Scheme::split(stored)? else { return None };
    let (secret, password) = if with_password {
        let (secret, password) = divide(rest)?;
        (secret, Some(password))
    } else {
        (rest, None)
    };
    let algorithm = match algorithm {
        scheme::Algorithm::Sha1 => Algorithm::Sha1,
        scheme::Algorithm::Sha256 => Algorithm::Sha256,
        scheme::Algorithm::Sha512 => Algorithm::Sha512,
        scheme::Algorithm::Md5 | scheme::Algorithm::Sha384 => return None,
    };
    let secret = from_base32(secret).filter(|secret| !secret.is_empty())?;
    Some(TimeBased { algorithm, secret, password })
}

/// The stored password that stands behind the secret in a value of these schemes.
pub fn password_behind(stored: &[u8]) -> Option<&[u8]> {
    match Scheme::split(stored)? {
        (Some(Scheme::Totp { with_password: true, .. }), rest) => Some(divide(rest)?.1),
        _ => None,
    }
}

/// Divides `secret|password` at the first delimiter: base 32 has none.
pub(super) fn divide(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == DELIMITER)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// The value behind the scheme's name.
pub(super) fn encode(secret: &[u8], stored_password: Option<&[u8]>) -> Vec<u8> {
    let mut value = to_base32(secret);
    if let Some(password) = stored_password {
        value.push(DELIMITER);
        value.extend_from_slice(password);
    }
    value
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Base 32 (RFC 4648 section 6) with padding, as pw-totp writes it.
pub fn to_base32(bytes: &[u8]) -> Vec<u8> {
    // The last place for a block is there: nothing is left behind in a buffer that was too small.
    let mut text = Vec::with_capacity(bytes.len().div_ceil(5) * 8);
    for block in bytes.chunks(5) {
        let mut five = Zeroizing::new([0_u8; 8]);
        for (place, byte) in five.iter_mut().skip(3).zip(block) {
            *place = *byte;
        }
        let bits = u64::from_be_bytes(*five);
        let letters = (block.len() * 8).div_ceil(5);
        for at in 0..8 {
            let letter = BASE32.get((bits >> (35 - 5 * at) & 0x1f) as usize).copied();
            text.push(letter.filter(|_| at < letters).unwrap_or(b'='));
        }
    }
    text
}

/// In either case of letters, with its padding or without; `None` where a letter is none of base 32, the length or padding is wrong,
/// or bits beyond the last byte are set.
fn from_base32(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let letters = text.iter().position(|byte| *byte == b'=').unwrap_or(text.len());
    let padding = text.get(letters..)?;
    let is_padded =
        padding.iter().all(|byte| *byte == b'=') && text.len().is_multiple_of(8) && padding.len() < 8;
    if !padding.is_empty() && !is_padded || matches!(letters % 8, 1 | 3 | 6) {
        return None;
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(letters * 5 / 8));
    let (mut bits, mut bit_count) = (0_u32, 0);
    for letter in text.get(..letters)? {
        let value = BASE32.iter().position(|known| *known == letter.to_ascii_uppercase())?;
        bits = bits << 5 | u32::try_from(value).ok()?;
        bit_count += 5;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push(u8::try_from(bits >> bit_count & 0xff).ok()?);
        }
        bits &= (1 << bit_count) - 1;
    }
    (bits == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648 section 10.
    #[test]
    fn base32_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "MY======"),
            ("fo", "MZXQ===="),
            ("foo", "MZXW6==="),
            ("foob", "MZXW6YQ="),
            ("fooba", "MZXW6YTB"),
            ("foobar", "MZXW6YTBOI======"),
        ] {
            assert_eq!(to_base32(bytes.as_bytes()), text.as_bytes());
            for text in [text, text.trim_end_matches('='), &text.to_lowercase()] {
                assert_eq!(from_base32(text.as_bytes()).unwrap().as_slice(), bytes.as_bytes(), "{text}");
            }
        }
        for wrong in ["M", "MZX", "MZXW6Y", "MZ", "M1======", "MY=====", "MY====M=", "========", "MY======MY"]
        {
            assert_eq!(from_base32(wrong.as_bytes()), None, "{wrong}");
        }
    }

    /// The codes of RFC 6238 appendix B. The codes of six digits are the last six of its eight.
    #[test]
    fn codes_hold_for_their_step_and_the_next_and_once() {
        let sha1 = "{TOTP1}GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
        let sha256 = "{TOTP256}GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZA====";
        let sha512 = "{totp512}GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNA=";
        for (stored, code, now, last, expected) in [
            (sha1, "287082", 59, None, true),
            (sha256, "119246", 59, None, true),
            (sha512, "693936", 59, None, true),
            (sha256, "287082", 59, None, false),
            (sha1, "94287082", 59, None, false),
            (sha1, "28708", 59, None, false),
            (sha1, "", 59, None, false),
            // Until the end of the next step, not before its own.
            (sha1, "287082", 30, None, true),
            (sha1, "287082", 89, None, true),
            (sha1, "287082", 90, None, false),
            (sha1, "287082", 29, None, false),
            // A step later than the last one that was used.
            (sha1, "287082", 59, Some(29), true),
            (sha1, "287082", 59, Some(30), false),
            (sha1, "287082", 60, Some(30), false),
            (sha1, "287082", 60, Some(29), true),
            // The clock was set back.
            (sha1, "287082", 59, Some(1000), false),
        ] {
            let value = time_based(stored.as_bytes()).unwrap();
            assert_eq!(value.takes(code.as_bytes(), now, last), expected, "{stored} {code} {now} {last:?}");
        }
    }

    #[test]
    fn values_are_read_or_not() {
        let password = |stored: &str| {
            time_based(stored.as_bytes())
                .map(|value| value.password.map(|password| String::from_utf8_lossy(password).into_owned()))
        };
        for (stored, expected) in [
            ("{TOTP1}MZXW6===", Some(None)),
            ("{TOTP1ANDPW}MZXW6===|{SSHA}x|y", Some(Some("{SSHA}x|y"))),
            ("{TOTP512ANDPW}MZXW6|", Some(Some(""))),
            ("{TOTP1}", None),
            ("{TOTP1}MZXW6===|x", None),
            ("{TOTP1ANDPW}MZXW6===", None),
            ("{TOTP1ANDPW}|x", None),
            ("{TOTP384}MZXW6===", None),
            ("{SSHA}MZXW6===", None),
            ("MZXW6===", None),
        ] {
            assert_eq!(password(stored), expected.map(|inner| inner.map(str::to_owned)), "{stored}");
        }
    }
}
