//! Passwords that the server makes up (RFC 3062: a request without a new password).

use std::ops::RangeInclusive;

use larix_engine::time::RandomSource;
use zeroize::Zeroizing;

/// Characters of a password that the server makes up, where no policy says otherwise.
const GENERATED_LENGTH: usize = 20;
/// And where one does: shorter ones are guessed, and a longer one nobody types.
const LENGTHS: RangeInclusive<usize> = 8..=256;
/// Letters and digits that are not taken for one another.
const GENERATED_FROM: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// A password that can be read out over the telephone.
pub fn generate_password(random: &dyn RandomSource) -> Zeroizing<Vec<u8>> {
    generate(random, GENERATED_LENGTH)
}

/// The same in a length, in bytes, that a policy allows: as near to 20 as it can be, and 8 to 256 at any rate.
pub(crate) fn generate_within(
    random: &dyn RandomSource,
    allowed: &RangeInclusive<usize>,
) -> Zeroizing<Vec<u8>> {
    let wanted = GENERATED_LENGTH.max(*allowed.start()).min(*allowed.end());
    generate(random, wanted.clamp(*LENGTHS.start(), *LENGTHS.end()))
}

/// With letters of both cases and a digit, which policies ask for: there are a few per cent without.
fn generate(random: &dyn RandomSource, length: usize) -> Zeroizing<Vec<u8>> {
    loop {
        let password = draw(random, length);
        let classes = [u8::is_ascii_lowercase, u8::is_ascii_uppercase, u8::is_ascii_digit];
        if classes.iter().all(|class| password.iter().any(class)) {
            return password;
        }
    }
}

fn draw(random: &dyn RandomSource, length: usize) -> Zeroizing<Vec<u8>> {
    let mut password = Zeroizing::new(Vec::with_capacity(length));
    let limit = u8::try_from(256 - 256 % GENERATED_FROM.len()).unwrap_or(u8::MAX);
    let mut bytes = Zeroizing::new([0; 32]);
    while password.len() < length {
        random.fill(&mut bytes[..]);
        // Bytes above a multiple of the alphabet's size would favour its first letters.
        let usable = bytes.iter().filter(|byte| **byte < limit);
        let letters = usable.filter_map(|byte| GENERATED_FROM.get(usize::from(*byte) % GENERATED_FROM.len()));
        let missing = length - password.len();
        password.extend(letters.take(missing).copied());
    }
    password
}

#[cfg(test)]
mod tests {
    use larix_engine::time::SeededRandom;

    use super::*;

    #[test]
    fn generated_passwords_are_long_and_readable() {
        let password = generate_password(&SeededRandom::new(1));
        assert_eq!(password.len(), GENERATED_LENGTH);
        assert!(password.iter().all(|byte| GENERATED_FROM.contains(byte)));
        assert_ne!(*password, *generate_password(&SeededRandom::new(2)));
    }

    #[test]
    fn each_has_letters_of_both_cases_and_a_digit() {
        let random = SeededRandom::new(1);
        for _ in 0..500 {
            let password = generate_within(&random, &(1..=8));
            for class in [u8::is_ascii_lowercase, u8::is_ascii_uppercase, u8::is_ascii_digit] {
                assert!(password.iter().any(class), "{password:?}");
            }
        }
    }

    #[test]
    fn a_policy_says_how_long_they_are() {
        for (allowed, expected) in [
            (0..=usize::MAX, 20),
            (5..=12, 12),
            (30..=usize::MAX, 30),
            (10..=30, 20),
            (0..=3, 8),
            (1_000_000..=usize::MAX, 256),
            // Nothing fits.
            (RangeInclusive::new(30, 9), 9),
        ] {
            let password = generate_within(&SeededRandom::new(1), &allowed);
            assert_eq!(password.len(), expected, "{allowed:?}");
        }
    }
}
