//! `password-cost` and `password-rehash`.

use larix_engine::password::{Argon2Cost, Hasher};

/// What new passwords cost (`password-cost`, `moduleload argon2 m=... t=... p=...`), and whether old ones follow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PasswordCosts {
    pub argon2: Argon2Cost,
    pub pbkdf2_rounds: u32,
    /// `password-rehash`: after a bind a password is stored anew if it was stored in a weaker way.
    pub rehash: bool,
}

impl Default for PasswordCosts {
    fn default() -> Self {
        let Hasher { argon2, pbkdf2_rounds, .. } = Hasher::default();
        Self { argon2, pbkdf2_rounds, rehash: false }
    }
}
