//! crypt(3) as it was before `$`: the traditional one (`<2 salt><11 hash>`), the same in pieces (bigcrypt, `<2 salt>` and
//! `<11 hash>` for each eight bytes: what OpenLDAP makes of a long password where libcrypt knows it), and BSDi's
//! (`_<4 count><4 salt><11 hash>`). All encrypt a block of zeros again and again by DES (FIPS 46-3) with the password as key, whose expansion the salt
//! changes; that change is why a plain DES cannot serve. For old values only: none is made.
//!
//! The traditional one looks at 8 bytes of a password and at 7 bits of each; BSDi's at all bytes, 7 bits of each.

use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use super::scheme::Scheme;
use super::verification::Verification;
use super::{cost_limits, radix64};

const TRADITIONAL_LEN: usize = 13;
const TRADITIONAL_COUNT: u32 = 25;
/// Of bigcrypt; more of a password is not looked at.
const PIECES_MAX: usize = 16;
const EXTENDED_LEN: usize = 20;
/// Characters of a block in crypt(3)'s alphabet.
const HASH_LEN: usize = 11;

/// `None` for what is none of the forms.
pub(super) fn verify(text: &str, password: &[u8]) -> Option<Verification> {
    read_bits(text.strip_prefix('_').unwrap_or(text))?;
    // The key ends in NULs: with one more at its end a password would be equal to itself without.
    let has_nul = password.contains(&0);
    let matches = match text.len() {
        EXTENDED_LEN if text.starts_with('_') => {
            // None are one, as crypt(3) has it.
            let count = read_bits(text.get(1..5)?)?.max(1);
            if count > cost_limits::BSDI_COUNT_MAX {
                return Some(Verification::too_costly(Scheme::Crypt));
            }
            is_hash_of(text.get(9..)?, folded_key(password), text.get(5..9)?, count)?
        }
        TRADITIONAL_LEN => {
            is_hash_of(text.get(2..)?, first_key(password), text.get(..2)?, TRADITIONAL_COUNT)?
        }
        _ => in_pieces(text, password)?,
    };
    Some(if has_nul { Verification::Mismatch } else { Verification::of(matches) })
}

/// Eight bytes of the password after eight, each hashed with the beginning of the hash before as salt.
fn in_pieces(text: &str, password: &[u8]) -> Option<Choice> {
    let pieces = text.len().checked_sub(2)? / HASH_LEN;
    if text.len() != 2 + pieces * HASH_LEN || !(2..=PIECES_MAX).contains(&pieces) {
        return None;
    }
    let given = password.len().div_ceil(8).min(PIECES_MAX);
    let mut matches = Choice::from(u8::from(given == pieces));
    let mut salt = text.get(..2)?;
    let mut keys = password.chunks(8);
    for place in 0..pieces {
        let begin = 2 + place * HASH_LEN;
        let expected = text.get(begin..begin + HASH_LEN)?;
        let key = first_key(keys.next().unwrap_or_default());
        matches &= is_hash_of(expected, key, salt, TRADITIONAL_COUNT)?;
        salt = expected.get(..2)?;
    }
    Some(matches)
}

fn is_hash_of(expected: &str, key: Zeroizing<u64>, salt: &str, count: u32) -> Option<Choice> {
    let block = Schedule::new(*key).encrypt(0, read_bits(salt)?, count);
    Some(Zeroizing::new(hash_text(block)).as_bytes().ct_eq(expected.as_bytes()))
}

/// The first 24 bits of a text, six a character, least significant first; `None` if any character is not of the alphabet.
fn read_bits(text: &str) -> Option<u32> {
    let mut bits = 0;
    for (place, character) in text.bytes().enumerate() {
        let six = radix64::ALPHABET.iter().position(|known| *known == character)? as u32;
        bits |= if place < 4 { six << (6 * place) } else { 0 };
    }
    Some(bits)
}

/// Six bits a character, most significant first; the last one has four.
fn hash_text(block: u64) -> String {
    let mut text = String::with_capacity(HASH_LEN);
    for place in 0..HASH_LEN {
        let six = block.rotate_left(6 * (place as u32 + 1)) & if place == HASH_LEN - 1 { 0x3c } else { 0x3f };
        radix64::push_bits(&mut text, six as u32, 1);
    }
    text
}

/// The first eight bytes, the upper bit of each gone: DES has its parity in the lowest.
fn first_key(password: &[u8]) -> Zeroizing<u64> {
    let mut key = [0; 8];
    for (to, from) in key.iter_mut().zip(password) {
        *to = from << 1;
    }
    Zeroizing::new(u64::from_be_bytes(key))
}

/// Eight bytes after eight: the key is encrypted by itself, and the next ones are added.
fn folded_key(password: &[u8]) -> Zeroizing<u64> {
    let mut chunks = password.chunks(8);
    let mut key = first_key(chunks.next().unwrap_or_default());
    for chunk in chunks {
        *key = Schedule::new(*key).encrypt(*key, 0, 1) ^ *first_key(chunk);
    }
    key
}

/// The sixteen subkeys, 48 bits each.
struct Schedule(Zeroizing<[u64; 16]>);

impl Schedule {
    fn new(key: u64) -> Self {
        let chosen = permute(key, 64, &PERMUTED_CHOICE_1);
        let (mut c, mut d) = (chosen >> 28, chosen & HALF_KEY);
        let rotate = |half: u64, by: u32| (half << by | half >> (28 - by)) & HALF_KEY;
        let mut subkeys = Zeroizing::new([0; 16]);
        for (subkey, by) in subkeys.iter_mut().zip(SHIFTS) {
            (c, d) = (rotate(c, by), rotate(d, by));
            *subkey = permute(c << 28 | d, 56, &PERMUTED_CHOICE_2);
        }
        Self(subkeys)
    }

    /// Encrypts `count` times.
    fn encrypt(&self, block: u64, salt: u32, count: u32) -> u64 {
        // Bit n of the salt, from the lowest, exchanges the bits n and n + 24 of the expansion, from the highest.
        let exchanged = u64::from(salt.reverse_bits() >> 8);
        let block = permute(block, 64, &INITIAL);
        let (mut left, mut right) = ((block >> 32) as u32, block as u32);
        for _ in 0..count {
            for subkey in self.0.iter() {
                (left, right) = (right, left ^ round(right, *subkey, exchanged));
            }
            (left, right) = (right, left);
        }
        permute(u64::from(left) << 32 | u64::from(right), 64, &FINAL)
    }
}

fn round(right: u32, subkey: u64, exchanged: u64) -> u32 {
    // Expansion: six bits around each four.
    let mut expanded = 0;
    for group in 0..8 {
        expanded = expanded << 6 | u64::from(right.rotate_left(4 * group + 5) & 0x3f);
    }
    let differing = (expanded >> 24 ^ expanded) & exchanged;
    let input = expanded ^ differing ^ differing << 24 ^ subkey;
    let mut output = 0;
    for (group, table) in SUBSTITUTED.iter().enumerate() {
        let six = (input >> (42 - 6 * group)) & 0x3f;
        output |= table.get(six as usize).copied().unwrap_or_default();
    }
    output
}

/// Bit 1 of `table` is the highest one of `value`, which has `width` bits.
#[allow(clippy::indexing_slicing)] // at < table.len()
const fn permute(value: u64, width: u32, table: &[u8]) -> u64 {
    let mut out = 0;
    let mut at = 0;
    while at < table.len() {
        out = out << 1 | (value >> (width - table[at] as u32)) & 1;
        at += 1;
    }
    out
}

/// Selection functions and the permutation behind them in one step.
const SUBSTITUTED: [[u32; 64]; 8] = substituted();

#[allow(clippy::indexing_slicing)] // computed by the compiler
const fn substituted() -> [[u32; 64]; 8] {
    let mut tables = [[0; 64]; 8];
    let mut group = 0;
    while group < 8 {
        let mut six = 0;
        while six < 64 {
            // The outer bits are the row, the inner ones the column.
            let (row, column) = ((six >> 4) & 2 | six & 1, (six >> 1) & 0xf);
            let four = SELECTION[group][16 * row + column] as u64;
            tables[group][six] = permute(four << (28 - 4 * group), 32, &PERMUTATION) as u32;
            six += 1;
        }
        group += 1;
    }
    tables
}

const HALF_KEY: u64 = (1 << 28) - 1;
const SHIFTS: [u32; 16] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];

#[rustfmt::skip]
const INITIAL: [u8; 64] = [
    58, 50, 42, 34, 26, 18, 10, 2, 60, 52, 44, 36, 28, 20, 12, 4, 62, 54, 46, 38, 30, 22, 14, 6, 64, 56, 48, 40, 32, 24, 16, 8,
    57, 49, 41, 33, 25, 17, 9, 1, 59, 51, 43, 35, 27, 19, 11, 3, 61, 53, 45, 37, 29, 21, 13, 5, 63, 55, 47, 39, 31, 23, 15, 7,
];
#[rustfmt::skip]
const FINAL: [u8; 64] = [
    40, 8, 48, 16, 56, 24, 64, 32, 39, 7, 47, 15, 55, 23, 63, 31, 38, 6, 46, 14, 54, 22, 62, 30, 37, 5, 45, 13, 53, 21, 61, 29,
    36, 4, 44, 12, 52, 20, 60, 28, 35, 3, 43, 11, 51, 19, 59, 27, 34, 2, 42, 10, 50, 18, 58, 26, 33, 1, 41, 9, 49, 17, 57, 25,
];
#[rustfmt::skip]
const PERMUTED_CHOICE_1: [u8; 56] = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36,
    63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4,
];
#[rustfmt::skip]
const PERMUTED_CHOICE_2: [u8; 48] = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2,
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];
#[rustfmt::skip]
const PERMUTATION: [u8; 32] = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19, 13, 30, 6, 22, 11, 4, 25,
];
/// Four rows of sixteen each.
#[rustfmt::skip]
const SELECTION: [[u8; 64]; 8] = [
    [
        14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12, 11, 9, 5, 3, 8,
        4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9, 1, 7, 5, 11, 3, 14, 10, 0, 6, 13,
    ],
    [
        15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1, 10, 6, 9, 11, 5,
        0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15, 4, 2, 11, 6, 7, 12, 0, 5, 14, 9,
    ],
    [
        10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5, 14, 12, 11, 15, 1,
        13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6, 9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12,
    ],
    [
        7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2, 12, 1, 10, 14, 9,
        10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1, 13, 8, 9, 4, 5, 11, 12, 7, 2, 14,
    ],
    [
        2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15, 10, 3, 9, 8, 6,
        4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14, 2, 13, 6, 15, 0, 9, 10, 4, 5, 3,
    ],
    [
        12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13, 14, 0, 11, 3, 8,
        9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5, 15, 10, 11, 14, 1, 7, 6, 0, 8, 13,
    ],
    [
        4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5, 12, 2, 15, 8, 6,
        1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4, 10, 7, 9, 5, 0, 15, 14, 2, 3, 12,
    ],
    [
        13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6, 11, 0, 14, 9, 2,
        7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10, 8, 13, 15, 12, 9, 0, 3, 5, 6, 11,
    ],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Unusable, verify};

    /// What crypt(3) of Debian's libcrypt makes.
    #[test]
    fn values_of_crypt() {
        for (password, stored) in [
            (&b"x"[..], "abiQ6Ep3EYTHc"),
            (b"secret", "abNANd1rDfiNc"),
            (b"", "xyw1.V0rbu5mQ"),
            (b"U*U*U*U*", "CCNf8Sbh3HDfQ"),
            (b"secretsecretmore", "z/.6IgGvBvqso"),
            (b"secretse", "z/.6IgGvBvqso"),
            (b"p\xc3\xa4ss", "9.owlfA8lbdNw"),
            (b"secret", "_J9..rasmz0.F/jqjWck"),
            (b"", "_J9..abcdoj0PMidvoVc"),
            (b"secretsecretmoreandmore", "_J9..K0AyUxOmqrQp4ME"),
            (b"secret", "_/....abclphgHcJxxhU"),
            (b"p\xc3\xa4ss", "_Q...1234W2AXUHsdbdA"),
            (b"x", "_....rasmj5zfJVs6CBM"),
            (b"secret", "XVZZr4jc1Ojzg"),
            (b"secretsecret", "XVlzmnvRk6J0sODKGqW4N0Cg"),
            (b"secretsesecretse", "XVlzmnvRk6J0s.JXyTGwDPMk"),
        ] {
            let stored = format!("{{CRYPT}}{stored}");
            assert_eq!(verify(stored.as_bytes(), password), Verification::Match, "{stored}");
            for wrong in [&b"other"[..], b"Secret", b"secret\0", b"secretsE"] {
                assert_eq!(verify(stored.as_bytes(), wrong), Verification::Mismatch, "{stored} / {wrong:?}");
            }
        }
    }

    #[test]
    fn what_is_neither_matches_nothing() {
        let unsupported = Verification::Unusable(Unusable::UnsupportedCrypt);
        for (stored, expected) in [
            ("", unsupported),
            ("*", unsupported),
            ("!abNANd1rDfiNc", unsupported),
            ("abNANd1rDfiN", unsupported),
            ("abNANd1rDfiNcc", unsupported),
            ("XVMDWqjNPI0NQ34EZGtr7ND", unsupported),
            ("a!NANd1rDfiNc", unsupported),
            ("abNANd1rDf:Nc", unsupported),
            ("abNANd1rDfi\u{e4}", unsupported),
            ("_J9..rasmz0.F/jqjWc", unsupported),
            ("_J9..ra:mz0.F/jqjWck", unsupported),
            ("_J9..rasmz0.F/jqj:ck", unsupported),
            ("_zzzzrasmz0.F/jqjWck", Verification::Unusable(Unusable::TooCostly(Scheme::Crypt))),
        ] {
            let stored = format!("{{CRYPT}}{stored}");
            assert_eq!(verify(stored.as_bytes(), b"secret"), expected, "{stored}");
        }
    }
}
