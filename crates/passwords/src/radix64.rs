//! How crypt(3) writes bits.

/// The 64 characters of crypt(3), six bits each.
pub(super) const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Appends the lowest `6 * characters` bits of `bits`, least significant first.
pub(super) fn push_bits(out: &mut String, bits: u32, characters: usize) {
    for place in 0..characters {
        let six = (bits >> (6 * place)) & 0x3f;
        out.push(ALPHABET.get(six as usize).copied().map_or('.', char::from));
    }
}
