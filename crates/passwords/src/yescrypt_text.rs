//! `$y$<parameters>$<salt>$<hash>`: what Debian and others write to /etc/shadow, and so what migrated accounts have.

use subtle::ConstantTimeEq;
use yescrypt::{Mode, Params, yescrypt};
use zeroize::Zeroizing;

use super::scheme::Scheme;
use super::verification::{Unusable, Verification};
use super::{cost_limits, radix64};

/// Bytes.
const HASH_LEN: usize = 32;
/// Bytes.
const SALT_MAX: usize = 64;

pub(super) fn verify(text: &str, password: &[u8]) -> Option<Verification> {
    let mut parts = text.strip_prefix("$y$")?.split('$');
    let parameters = parts.next()?;
    let salt = decode(parts.next()?)?;
    let expected = Zeroizing::new(decode(parts.next()?)?);
    if parts.next().is_some() || expected.len() != HASH_LEN || salt.len() > SALT_MAX {
        return None;
    }
    // The default flavour, the binary logarithm of the number of blocks, and their size: a character each. Written longer,
    // they ask for more than is allowed, or for parallelism, which crypt(3) never writes.
    let &[b'j', blocks, size] = parameters.as_bytes() else {
        return Some(Verification::Unusable(Unusable::UnsupportedCrypt));
    };
    let (blocks_log2, block_size) = (digit(blocks)? + 1, digit(size)? + 1);
    if blocks_log2 > cost_limits::YESCRYPT_BLOCKS_LOG2_MAX
        || block_size > cost_limits::YESCRYPT_BLOCK_SIZE_MAX
    {
        return Some(Verification::too_costly(Scheme::Crypt));
    }
    let params = Params::new(Mode::default(), 1 << blocks_log2, block_size, 1).ok()?;
    let mut computed = Zeroizing::new([0; HASH_LEN]);
    yescrypt(password, &salt, &params, &mut *computed).ok()?;
    Some(Verification::of(computed.ct_eq(&expected)))
}

fn digit(character: u8) -> Option<u32> {
    radix64::ALPHABET.iter().position(|&known| known == character).and_then(|at| u32::try_from(at).ok())
}

/// Four characters are three bytes, least significant first.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    for chunk in text.as_bytes().chunks(4) {
        let mut bits = 0;
        for (place, &character) in chunk.iter().enumerate() {
            bits |= digit(character)? << (6 * place);
        }
        let whole = chunk.len() * 6 / 8;
        bytes.extend_from_slice(bits.to_le_bytes().get(..whole)?);
    }
    Some(bytes)
}
