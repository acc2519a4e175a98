//! The schemes and their names.

use std::fmt;

use larix_sasl::scram;

/// How a password is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    Cleartext,
    Digest {
        algorithm: Algorithm,
        salted: bool,
    },
    /// Written `{PBKDF2}` for SHA-1.
    Pbkdf2(Algorithm),
    Argon2,
    /// crypt(3), by the prefix of the value.
    Crypt,
    /// MD5-crypt as Apache has it, in base64 (contrib's pw-apr1).
    Apr1,
    /// MD5-crypt in base64 (contrib's pw-apr1).
    BsdMd5,
    /// MD5 with the salt on both sides, in hexadecimal digits (contrib's pw-netscape).
    NsMtaMd5,
    /// What SCRAM needs of a password (RFC 5803), which serves binds with a password as well.
    Scram(scram::Hash),
    /// Codes that hold for a time (RFC 6238), with a password before them or alone.
    Totp {
        algorithm: Algorithm,
        with_password: bool,
    },
}

/// A hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    Md5,
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Algorithm {
    /// Bytes.
    pub const fn output_len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

const fn digest(algorithm: Algorithm, salted: bool) -> Scheme {
    Scheme::Digest { algorithm, salted }
}

const fn totp(algorithm: Algorithm, with_password: bool) -> Scheme {
    Scheme::Totp { algorithm, with_password }
}

/// Every name; the first one of a scheme is the one written.
const NAMES: [(&str, Scheme); 29] = [
    ("{SSHA}", digest(Algorithm::Sha1, true)),
    ("{SHA}", digest(Algorithm::Sha1, false)),
    ("{SMD5}", digest(Algorithm::Md5, true)),
    ("{MD5}", digest(Algorithm::Md5, false)),
    ("{SSHA256}", digest(Algorithm::Sha256, true)),
    ("{SHA256}", digest(Algorithm::Sha256, false)),
    ("{SSHA384}", digest(Algorithm::Sha384, true)),
    ("{SHA384}", digest(Algorithm::Sha384, false)),
    ("{SSHA512}", digest(Algorithm::Sha512, true)),
    ("{SHA512}", digest(Algorithm::Sha512, false)),
    ("{ARGON2}", Scheme::Argon2),
    ("{PBKDF2}", Scheme::Pbkdf2(Algorithm::Sha1)),
    ("{PBKDF2-SHA1}", Scheme::Pbkdf2(Algorithm::Sha1)),
    ("{PBKDF2-SHA256}", Scheme::Pbkdf2(Algorithm::Sha256)),
    ("{PBKDF2-SHA512}", Scheme::Pbkdf2(Algorithm::Sha512)),
    ("{CRYPT}", Scheme::Crypt),
    ("{APR1}", Scheme::Apr1),
    ("{BSDMD5}", Scheme::BsdMd5),
    ("{NS-MTA-MD5}", Scheme::NsMtaMd5),
    ("{SCRAM-SHA-1}", Scheme::Scram(scram::Hash::Sha1)),
    ("{SCRAM-SHA-256}", Scheme::Scram(scram::Hash::Sha256)),
    ("{SCRAM-SHA-512}", Scheme::Scram(scram::Hash::Sha512)),
    ("{TOTP1}", totp(Algorithm::Sha1, false)),
    ("{TOTP256}", totp(Algorithm::Sha256, false)),
    ("{TOTP512}", totp(Algorithm::Sha512, false)),
    ("{TOTP1ANDPW}", totp(Algorithm::Sha1, true)),
    ("{TOTP256ANDPW}", totp(Algorithm::Sha256, true)),
    ("{TOTP512ANDPW}", totp(Algorithm::Sha512, true)),
    ("{CLEARTEXT}", Scheme::Cleartext),
];

impl Scheme {
    /// The default for `{SSHA}`-style names: salted SHA-1, OpenLDAP's default.
    pub const SSHA: Self = digest(Algorithm::Sha1, true);

    /// A scheme by its name in braces, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        // Each bind asks several times: the first letter tells most names apart.
        let letter = name.as_bytes().get(1)?.to_ascii_uppercase();
        let is_named =
            |known: &str| known.as_bytes().get(1) == Some(&letter) && known.eq_ignore_ascii_case(name);
        NAMES.iter().find(|(known, _)| is_named(known)).map(|(_, scheme)| *scheme)
    }

    /// The name, in braces.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, scheme)| *scheme == self).map_or("{CLEARTEXT}", |(name, _)| name)
    }

    /// The names of all schemes, in braces.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// Whether values of it take codes: [`verify`](super::verify) matches nothing with them.
    pub const fn is_time_based(self) -> bool {
        matches!(self, Self::Totp { .. })
    }

    /// Whether a stored value may take codes, by its first letter alone: most values do not.
    #[inline]
    pub(super) fn may_be_time_based(stored: &[u8]) -> bool {
        matches!(stored, [b'{', b'T' | b't', ..])
    }

    /// Splits a stored value at its scheme: `None` if it has none, `Some((None, _))` if the scheme is not known.
    pub fn split(stored: &[u8]) -> Option<(Option<Self>, &[u8])> {
        if stored.first() != Some(&b'{') {
            return None;
        }
        let end = stored.iter().position(|&byte| byte == b'}').filter(|&end| end > 1)?;
        let (name, rest) = stored.split_at(end + 1);
        let scheme = std::str::from_utf8(name).ok().and_then(Self::from_name);
        Some((scheme, rest))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
