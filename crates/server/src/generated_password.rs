//! Passwords that the server makes up (RFC 3062: a request without a new password).

use larix_engine::time::RandomSource;
use zeroize::Zeroizing;

/// Characters of a password that the server makes up.
const GENERATED_LENGTH: usize = 20;
/// Letters and digits that are not taken for one another.
const GENERATED_FROM: &[u8] = b"abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// A password that can be read out over the telephone.
pub fn generate_password(random: &dyn RandomSource) -> Zeroizing<Vec<u8>> {
    let mut password = Zeroizing::new(Vec::with_capacity(GENERATED_LENGTH));
    let limit = u8::try_from(256 - 256 % GENERATED_FROM.len()).unwrap_or(u8::MAX);
    let mut bytes = Zeroizing::new([0; 32]);
    while password.len() < GENERATED_LENGTH {
        random.fill(&mut bytes[..]);
        // Bytes above a multiple of the alphabet's size would favour its first letters.
        let usable = bytes.iter().filter(|byte| **byte < limit);
        let letters = usable.filter_map(|byte| GENERATED_FROM.get(usize::from(*byte) % GENERATED_FROM.len()));
        let missing = GENERATED_LENGTH - password.len();
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
}
