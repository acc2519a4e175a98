//! How the server stores passwords.

use larix_engine::password::{Argon2Cost, CryptMethod, Hasher, Scheme};

use super::builder::call::{Call, Fault};
use super::model::Config;
use super::values::PasswordCosts;

impl PasswordCosts {
    /// Reads `m=KIB`, `t=PASSES`, `p=LANES` (Argon2) and `pbkdf2=ROUNDS`, from the argument `first` on.
    pub(super) fn read(&mut self, call: &Call<'_>, first: usize) -> Result<(), Fault> {
        for (number, word) in call.arguments.iter().enumerate().skip(first) {
            let fault = |text: String| Err(Fault::argument(number, text));
            let Some((name, value)) = word.split_once('=') else {
                return fault(format!("`{word}` is no cost")).map_err(|fault| {
                    fault.with_help("m=KIB, t=PASSES and p=LANES for Argon2, pbkdf2=ROUNDS")
                });
            };
            let Some(value) = value.parse::<u32>().ok().filter(|value| *value > 0) else {
                return fault(format!("`{value}` is not a number from 1 up"));
            };
            match name {
                "m" => self.argon2.memory_kib = value,
                "t" => self.argon2.passes = value,
                "p" => self.argon2.lanes = value,
                "pbkdf2" => self.pbkdf2_rounds = value,
                _ => return fault(format!("no cost `{name}`")),
            }
        }
        let Argon2Cost { memory_kib, passes, lanes } = self.argon2;
        let hasher = Hasher { argon2: self.argon2, ..Hasher::new(Scheme::Argon2) };
        if !hasher.is_possible() {
            let text = format!("Argon2 cannot take m={memory_kib} t={passes} p={lanes}");
            return Err(
                Fault::keyword(text).with_help("at least 8 KiB a lane; at most 1 GiB, 64 passes, 64 lanes")
            );
        }
        Ok(())
    }
}

impl Config {
    /// How new passwords are hashed: `password-hash`, one value for each; Argon2id without it.
    pub fn hashers(&self) -> Vec<Hasher> {
        let format = self.global.password_crypt_salt_format.as_deref();
        let hasher = |scheme| {
            let PasswordCosts { argon2, pbkdf2_rounds, .. } = self.frontend.password_costs;
            let plain = Hasher::new(scheme);
            let crypt = format.and_then(CryptMethod::from_salt_format).unwrap_or(plain.crypt);
            Hasher { argon2, pbkdf2_rounds, crypt, ..plain }
        };
        let named = self.frontend.password_hash.iter().filter_map(|name| Scheme::from_name(name));
        let hashers: Vec<Hasher> = named.map(hasher).collect();
        if hashers.is_empty() { vec![hasher(Scheme::Argon2)] } else { hashers }
    }

    /// The first of them.
    pub fn hasher(&self) -> Hasher {
        self.hashers().into_iter().next().unwrap_or_default()
    }
}
