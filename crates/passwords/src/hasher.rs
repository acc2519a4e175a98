//! Making stored values for new passwords.

use std::fmt;

use zeroize::Zeroizing;

use super::argon2id::Argon2Cost;
use super::scheme::Scheme;
use super::sha_crypt_text::ShaCrypt;
use super::verification::PASSWORD_MAX;
use super::{
    argon2id, contrib_md5, cost_limits, digest, md5_crypt, pbkdf2_scheme, radix64, scram_scheme,
    sha_crypt_text, totp_scheme,
};
use crate::random::RandomSource;

/// Bytes of salt for the digests; OpenLDAP writes as many.
const DIGEST_SALT_LEN: usize = 8;
/// Bytes of salt for PBKDF2 and Argon2.
const KDF_SALT_LEN: usize = 16;

/// The method of crypt(3) for new `{CRYPT}` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CryptMethod {
    Md5,
    /// Two to this power of rounds.
    Bcrypt {
        cost: u32,
    },
    /// 5,000 rounds unless said otherwise.
    Sha256 {
        rounds: Option<u32>,
    },
    Sha512 {
        rounds: Option<u32>,
    },
}

impl CryptMethod {
    /// From a `password-crypt-salt-format` such as `$6$rounds=10000$%.16s`; `None` for a method that is not supported.
    pub fn from_salt_format(format: &str) -> Option<Self> {
        let mut parts = format.strip_prefix('$')?.split('$');
        let method = parts.next()?;
        let rest = parts.next()?;
        let rounds = rest.strip_prefix("rounds=").and_then(|rounds| rounds.parse().ok());
        Some(match method {
            "1" => Self::Md5,
            "2a" | "2b" | "2y" => Self::Bcrypt { cost: rest.parse().ok()? },
            "5" => Self::Sha256 { rounds },
            "6" => Self::Sha512 { rounds },
            _ => return None,
        })
    }
}

/// Hashes passwords by one scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hasher {
    pub scheme: Scheme,
    pub argon2: Argon2Cost,
    pub pbkdf2_rounds: u32,
    pub crypt: CryptMethod,
}

impl Default for Hasher {
    fn default() -> Self {
        Self::new(Scheme::Argon2)
    }
}

impl Hasher {
    pub fn new(scheme: Scheme) -> Self {
        Self {
            scheme,
            argon2: Argon2Cost::default(),
            pbkdf2_rounds: 10_000,
            crypt: CryptMethod::Sha512 { rounds: None },
        }
    }

    /// Whether Argon2 can be computed, and verified here, at this cost.
    pub fn is_possible(&self) -> bool {
        let Argon2Cost { memory_kib, passes, lanes } = self.argon2;
        argon2::Params::new(memory_kib, passes, lanes, None).is_ok()
            && memory_kib <= cost_limits::ARGON2_MEMORY_MAX
            && passes <= cost_limits::ARGON2_PASSES_MAX
            && lanes <= cost_limits::ARGON2_LANES_MAX
    }

    /// The value to store: `{SCHEME}...`, or the password itself for `{CLEARTEXT}`. Of `{TOTP1}` and its kin the password is the secret
    /// that codes are made of, for `{TOTP1ANDPW}` that secret, `|`, and the password before the codes, which `{SSHA}` hashes as pw-totp
    /// does.
    ///
    /// # Errors
    /// If the password is too long, has no secret where it needs one, or the configured costs are outside of what the scheme allows.
    pub fn hash(&self, password: &[u8], random: &dyn RandomSource) -> Result<Zeroizing<Vec<u8>>, HashError> {
        if password.len() > PASSWORD_MAX {
            return Err(HashError::TooLong { len: password.len() });
        }
        let refused = || HashError::Cost(self.scheme);
        let md5 = |magic: &[u8]| contrib_md5::encode(magic, salt_text(8, random).as_bytes(), password);
        let text = match self.scheme {
            Scheme::Cleartext => return Ok(Zeroizing::new(password.to_vec())),
            Scheme::Digest { algorithm, salted } => {
                let mut salt = [0; DIGEST_SALT_LEN];
                random.fill(&mut salt);
                digest::encode(algorithm, if salted { &salt } else { &[] }, password)
            }
            Scheme::Pbkdf2(algorithm) => {
                let salt = kdf_salt(random);
                pbkdf2_scheme::encode(algorithm, &salt, self.pbkdf2_rounds, password).ok_or_else(refused)?
            }
            Scheme::Argon2 => {
                argon2id::encode(&self.argon2, &kdf_salt(random), password).ok_or_else(refused)?
            }
            Scheme::Crypt => self.crypt(password, random).ok_or_else(refused)?,
            Scheme::Apr1 => md5(contrib_md5::APR1),
            Scheme::BsdMd5 => md5(contrib_md5::BSD),
            Scheme::NsMtaMd5 => contrib_md5::encode_netscape(&kdf_salt(random), password),
            Scheme::Scram(hash) => scram_scheme::encode(hash, &kdf_salt(random), password),
            Scheme::Totp { with_password, .. } => return self.time_based(with_password, password, random),
        };
        let text = Zeroizing::new(text);
        let mut stored = Zeroizing::new(Vec::with_capacity(self.scheme.name().len() + text.len()));
        stored.extend_from_slice(self.scheme.name().as_bytes());
        stored.extend_from_slice(text.as_bytes());
        Ok(stored)
    }

    fn time_based(
        &self,
        with_password: bool,
        given: &[u8],
        random: &dyn RandomSource,
    ) -> Result<Zeroizing<Vec<u8>>, HashError> {
        let missing = HashError::Secret { scheme: self.scheme, with_password };
        let (secret, password) = if with_password {
            let (secret, password) = totp_scheme::divide(given).ok_or(missing)?;
            (secret, Some(Self::new(Scheme::SSHA).hash(password, random)?))
        } else {
            (given, None)
        };
        if secret.is_empty() {
            return Err(missing);
        }
        let value =
            Zeroizing::new(totp_scheme::encode(secret, password.as_ref().map(|stored| stored.as_slice())));
        let mut stored = Zeroizing::new(Vec::with_capacity(self.scheme.name().len() + value.len()));
        stored.extend_from_slice(self.scheme.name().as_bytes());
        stored.extend_from_slice(&value);
        Ok(stored)
    }

    fn crypt(&self, password: &[u8], random: &dyn RandomSource) -> Option<String> {
        match self.crypt {
            CryptMethod::Md5 => Some(md5_crypt::encode(&salt_text(8, random), password)),
            CryptMethod::Sha256 { rounds } => {
                sha_crypt_text::encode(ShaCrypt::Sha256, &salt_text(16, random), rounds, password)
            }
            CryptMethod::Sha512 { rounds } => {
                sha_crypt_text::encode(ShaCrypt::Sha512, &salt_text(16, random), rounds, password)
            }
            CryptMethod::Bcrypt { cost } => {
                Some(bcrypt::hash_with_salt(password, cost, kdf_salt(random)).ok()?.to_string())
            }
        }
    }
}

fn kdf_salt(random: &dyn RandomSource) -> [u8; KDF_SALT_LEN] {
    let mut salt = [0; KDF_SALT_LEN];
    random.fill(&mut salt);
    salt
}

fn salt_text(len: usize, random: &dyn RandomSource) -> String {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    let mut text = String::with_capacity(len);
    for byte in bytes {
        radix64::push_bits(&mut text, u32::from(byte), 1);
    }
    text
}

/// Why a password could not be hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashError {
    TooLong {
        len: usize,
    },
    /// The configured costs are outside of what the scheme allows.
    Cost(Scheme),
    /// There is nothing that codes could be made of.
    Secret {
        scheme: Scheme,
        with_password: bool,
    },
}

impl fmt::Display for HashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { len } => {
                write!(f, "the password has {len} bytes; at most {PASSWORD_MAX} are allowed")
            }
            Self::Secret { scheme, with_password: false } => {
                write!(f, "a new password for {scheme} is the secret of the codes, and this one is empty")
            }
            Self::Secret { scheme, with_password: true } => {
                write!(
                    f,
                    "a new password for {scheme} is SECRET|PASSWORD: the secret of the codes, `|`, and what stands before a code"
                )
            }
            Self::Cost(scheme) => write!(f, "the configured cost is not possible for {scheme}"),
        }
    }
}

impl std::error::Error for HashError {}
