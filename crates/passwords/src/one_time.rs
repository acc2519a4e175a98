//! Codes of HOTP (RFC 4226 section 5.3). TOTP (RFC 6238) makes the same of a number of time steps.

use std::ops::RangeInclusive;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The most digits that a code has.
pub const DIGITS_MAX: u32 = 8;

/// The hash function of the HMAC.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl Algorithm {
    /// By the OID of the HMAC (RFC 8018 appendix B.1).
    pub fn of_oid(oid: &[u8]) -> Option<Self> {
        Some(match oid {
            b"1.2.840.113549.2.7" => Self::Sha1,
            b"1.2.840.113549.2.8" => Self::Sha224,
            b"1.2.840.113549.2.9" => Self::Sha256,
            b"1.2.840.113549.2.10" => Self::Sha384,
            b"1.2.840.113549.2.11" => Self::Sha512,
            _ => return None,
        })
    }

    fn mac(self, secret: &[u8], moving: &[u8]) -> Zeroizing<Vec<u8>> {
        macro_rules! mac {
            ($hash:ty) => {
                // HMAC takes a key of any length.
                Hmac::<$hash>::new_from_slice(secret).map_or_else(
                    |_| Vec::new(),
                    |mut mac| {
                        mac.update(moving);
                        mac.finalize().into_bytes().to_vec()
                    },
                )
            };
        }
        Zeroizing::new(match self {
            Self::Sha1 => mac!(Sha1),
            Self::Sha224 => mac!(Sha224),
            Self::Sha256 => mac!(Sha256),
            Self::Sha384 => mac!(Sha384),
            Self::Sha512 => mac!(Sha512),
        })
    }
}

/// The code of a moving factor, with leading zeros: at most [`DIGITS_MAX`] digits.
pub fn code(algorithm: Algorithm, secret: &[u8], moving: u64, digits: u32) -> Zeroizing<String> {
    let mac = algorithm.mac(secret, &moving.to_be_bytes());
    let offset = mac.last().map_or(0, |last| usize::from(last & 0xf));
    let four =
        mac.get(offset..offset + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes);
    let number = (four & 0x7fff_ffff) % 10_u32.pow(digits.min(DIGITS_MAX));
    Zeroizing::new(format!("{number:0width$}", width = digits.min(DIGITS_MAX) as usize))
}

/// Which of these moving factors gives the code that was sent. All of them are computed: the time does not tell which it was.
pub fn find(
    (algorithm, secret): (Algorithm, &[u8]),
    steps: RangeInclusive<i64>,
    digits: u32,
    sent: &[u8],
) -> Option<i64> {
    let mut found = None;
    for step in steps {
        let Ok(moving) = u64::try_from(step) else { continue };
        if bool::from(code(algorithm, secret, moving, digits).as_bytes().ct_eq(sent)) {
            found = Some(step);
        }
    }
    found
}

/// The first of these moving factors that gives the second of two codes, if the one before it gives the first. As in [`find`], all are
/// computed.
pub fn find_two(
    (algorithm, secret): (Algorithm, &[u8]),
    steps: RangeInclusive<i64>,
    digits: u32,
    (first, second): (&[u8], &[u8]),
) -> Option<i64> {
    let (mut found, mut follows) = (None, false);
    for step in steps {
        let Ok(moving) = u64::try_from(step) else { continue };
        let shown = code(algorithm, secret, moving, digits);
        let (is_first, is_second) = (shown.as_bytes().ct_eq(first), shown.as_bytes().ct_eq(second));
        if follows && bool::from(is_second) && found.is_none() {
            found = Some(step);
        }
        follows = is_first.into();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4226 appendix D.
    #[test]
    fn codes_of_counters() {
        let expected = [
            "755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871",
            "520489",
        ];
        for (counter, expected) in (0..).zip(expected) {
            assert_eq!(*code(Algorithm::Sha1, b"12345678901234567890", counter, 6), expected, "{counter}");
        }
    }

    #[test]
    fn two_codes_that_follow_each_other_are_found() {
        let key: (_, &[u8]) = (Algorithm::Sha1, b"12345678901234567890");
        for (steps, first, second, expected) in [
            (0..=9, "755224", "287082", Some(1)),
            (0..=9, "399871", "520489", Some(9)),
            // Not in this order, not one behind the other, and not both within.
            (0..=9, "287082", "755224", None),
            (0..=9, "755224", "359152", None),
            (1..=9, "755224", "287082", None),
            (0..=8, "399871", "520489", None),
            (-5..=1, "755224", "287082", Some(1)),
            (0..=9, "755224", "", None),
        ] {
            let codes = (first.as_bytes(), second.as_bytes());
            assert_eq!(find_two(key, steps, 6, codes), expected, "{first} {second}");
        }
    }

    /// The examples of RFC 6238 appendix B.
    #[test]
    fn codes_of_times() {
        let digits = b"1234567890".repeat(7);
        let secret = |length: usize| digits.get(..length).unwrap_or_default();
        for (time, sha1, sha256, sha512) in [
            (59, "94287082", "46119246", "90693936"),
            (1_111_111_109, "07081804", "68084774", "25091201"),
            (1_111_111_111, "14050471", "67062674", "99943326"),
            (1_234_567_890, "89005924", "91819424", "93441116"),
            (2_000_000_000, "69279037", "90698825", "38618901"),
            (20_000_000_000, "65353130", "77737706", "47863826"),
        ] {
            let of = |algorithm, length| code(algorithm, secret(length), time / 30, 8).to_string();
            let found = (of(Algorithm::Sha1, 20), of(Algorithm::Sha256, 32), of(Algorithm::Sha512, 64));
            assert_eq!(found, (sha1.to_owned(), sha256.to_owned(), sha512.to_owned()), "{time}");
        }
    }
}
