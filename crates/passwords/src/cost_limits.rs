//! Costs a stored value may ask for. Without limits an identity that may write a password value could occupy the server with a
//! bind.

/// KiB
pub(super) const ARGON2_MEMORY_MAX: u32 = 1 << 20;
pub(super) const ARGON2_PASSES_MAX: u32 = 64;
pub(super) const ARGON2_LANES_MAX: u32 = 64;
pub(super) const PBKDF2_ROUNDS_MAX: u32 = 10_000_000;
pub(super) const SHA_CRYPT_ROUNDS_MAX: u32 = 10_000_000;
pub(super) const BCRYPT_COST_MAX: u32 = 17;
/// Encryptions by DES; BSDi's own count is 725. Under a second.
pub(super) const BSDI_COUNT_MAX: u32 = 1 << 20;
/// With the block size, 1 GiB.
pub(super) const YESCRYPT_BLOCKS_LOG2_MAX: u32 = 18;
/// In units of 128 bytes.
pub(super) const YESCRYPT_BLOCK_SIZE_MAX: u32 = 32;
