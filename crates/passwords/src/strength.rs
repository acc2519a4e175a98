//! What a stored value tells without a password: whether any can match it, what comparing with it costs, and whether it should be
//! stored anew.

use zeroize::Zeroizing;

use super::cost_limits;
use super::hasher::Hasher;
use super::scheme::{Algorithm, Scheme};
use super::scram_scheme;
use super::totp_scheme::time_based;
use super::verification::{Unusable, Verification};
use super::{argon2id, crypt, pbkdf2_scheme};
use super::{compared, pass_through, verify};

/// The scheme of a value that stands for a key of the account's entry.
const OF_KEY: &[u8] = b"{K5KEY}";

/// Why no password matches a stored value, as far as the value tells; nothing that takes long is computed. What says where the password is
/// (`{SASL}`, `{K5KEY}`) may match.
pub fn unusable(stored: &[u8]) -> Option<Unusable> {
    let (scheme, rest) = Scheme::split(stored)?;
    let is_key = stored.get(..OF_KEY.len()).is_some_and(|name| name.eq_ignore_ascii_case(OF_KEY));
    if is_key || pass_through(stored).is_some() {
        return None;
    }
    let Some(scheme) = scheme else { return Some(Unusable::UnknownScheme) };
    match scheme {
        Scheme::Cleartext => None,
        Scheme::Digest { .. } | Scheme::Apr1 | Scheme::BsdMd5 | Scheme::NsMtaMd5 => {
            match verify(stored, b"") {
                Verification::Unusable(why) => Some(why),
                _ => None,
            }
        }
        Scheme::Pbkdf2(algorithm) => pbkdf2_scheme::unusable(algorithm, rest),
        Scheme::Argon2 => argon2id::unusable(rest),
        Scheme::Crypt => crypt::unusable(rest),
        Scheme::Scram(hash) => scram_scheme::unusable(hash, rest),
        Scheme::Totp { .. } => match time_based(stored) {
            Some(found) => found.password.and_then(unusable),
            None => Some(Unusable::Malformed(scheme)),
        },
    }
}

/// What of a stored value says how it is computed: its scheme and costs, without salt and hash.
///
/// Those of the password behind a value that takes codes; nothing of one that stands alone.
pub fn settings_of(stored: &[u8]) -> &[u8] {
    let stored = costing(stored);
    let Some((scheme, rest)) = Scheme::split(stored) else { return &[] };
    let scheme_len = stored.len() - rest.len();
    if let Some(Scheme::Scram(_)) = scheme {
        let rounds = rest.iter().position(|byte| *byte == b':').map_or(0, |colon| colon + 1);
        return stored.get(..scheme_len + rounds).unwrap_or_default();
    }
    if stored.get(scheme_len) == Some(&b'_') {
        // BSDi's crypt: the count is in four characters.
        return stored.get(..scheme_len + 5).unwrap_or_default();
    }
    let value = stored.get(scheme_len..).unwrap_or_default();
    let dollar_before = |end: usize| value.get(..end)?.iter().rposition(|byte| *byte == b'$');
    let last = dollar_before(value.len());
    // bcrypt writes salt and hash in one piece.
    let end = if is_bcrypt(value) { last } else { last.and_then(dollar_before) };
    stored.get(..end.map_or(scheme_len, |end| scheme_len + end + 1)).unwrap_or_default()
}

/// What of a stored value takes time.
fn costing(stored: &[u8]) -> &[u8] {
    if !Scheme::may_be_time_based(stored) {
        return stored;
    }
    let stored = compared(stored);
    match Scheme::split(stored) {
        Some((Some(scheme), _)) if scheme.is_time_based() => &[],
        _ => stored,
    }
}

fn is_bcrypt(crypt: &[u8]) -> bool {
    crypt.starts_with(b"$2")
}

/// A value that costs as much to compare with as this one, and that no password matches: what is compared with where
/// there is no account, so the time does not disclose this.
pub fn decoy(stored: &[u8]) -> Zeroizing<Vec<u8>> {
    let stored = costing(stored);
    let settings = settings_of(stored);
    if settings.is_empty() {
        return Zeroizing::new(b"{CLEARTEXT}".to_vec());
    }
    // Zero in each one's base 64, so that it stays well formed whatever its length.
    let zero = match Scheme::split(stored) {
        Some((Some(Scheme::Crypt), _)) => b'.',
        _ => b'A',
    };
    let rest = stored.get(settings.len()..).unwrap_or_default();
    let blank = rest.iter().map(|byte| if matches!(byte, b'$' | b'=' | b':' | b',') { *byte } else { zero });
    Zeroizing::new(settings.iter().copied().chain(blank).collect())
}

/// Which of the configured hashers stores the password of this value in a better way, if any does.
///
/// A value of a configured scheme is compared with that scheme's cost alone: it stands beside those of the others on purpose. One of
/// another scheme is compared with the first hasher. SCRAM's values are left alone: a challenge cannot be answered with anything else.
pub fn better<'h>(stored: &[u8], configured: &'h [Hasher]) -> Option<&'h Hasher> {
    let scheme = match Scheme::split(stored) {
        Some((scheme, _)) => scheme?,
        None => Scheme::Cleartext,
    };
    if matches!(scheme, Scheme::Scram(_)) {
        return None;
    }
    let own = configured.iter().find(|hasher| hasher.scheme == scheme);
    own.or_else(|| configured.first()).filter(|hasher| is_weaker(stored, hasher))
}

/// Whether a stored value resists guessing less than one that this hasher makes.
fn is_weaker(stored: &[u8], than: &Hasher) -> bool {
    let scheme = match Scheme::split(stored) {
        Some((Some(scheme), _)) => scheme,
        // Nothing is known of it.
        Some((None, _)) => return false,
        None => Scheme::Cleartext,
    };
    if scheme.is_time_based() || than.scheme.is_time_based() {
        // One is not made of the other.
        return false;
    }
    if scheme != than.scheme {
        return rank(scheme, stored) < rank(than.scheme, b"");
    }
    let number = |name: &str| number_in(settings_of(stored), name);
    match scheme {
        Scheme::Argon2 => {
            let cost = |memory: Option<u64>, passes: Option<u64>| memory.unwrap_or(0) * passes.unwrap_or(0);
            let minimum = cost(Some(than.argon2.memory_kib.into()), Some(than.argon2.passes.into()));
            cost(number("m="), number("t=")) < minimum
        }
        Scheme::Pbkdf2(_) => number("}").unwrap_or(0) < than.pbkdf2_rounds.into(),
        // DES, which is never made anew.
        Scheme::Crypt => rank(scheme, stored) == 1,
        _ => false,
    }
}

/// What comparing with a stored value costs, in rounds of PBKDF2-SHA256: about half a microsecond each. 0 for what is hashed
/// once, and for what cannot be computed.
pub fn rounds(stored: &[u8]) -> u64 {
    let stored = costing(stored);
    let settings = settings_of(stored);
    let number = |name: &str| number_in(settings, name).unwrap_or(0);
    let Some((Some(scheme), rest)) = Scheme::split(stored) else { return 0 };
    match scheme {
        Scheme::Cleartext | Scheme::Digest { .. } | Scheme::NsMtaMd5 | Scheme::Totp { .. } => 0,
        Scheme::Pbkdf2(_) | Scheme::Scram(_) => number("}"),
        // Each KiB in each pass is one block.
        Scheme::Argon2 => number("m=").saturating_mul(number("t=")),
        Scheme::Crypt if is_bcrypt(rest) => {
            let cost = rest.get(4..6).and_then(|cost| std::str::from_utf8(cost).ok()?.parse::<u32>().ok());
            BCRYPT_ROUNDS.saturating_mul(2_u64.saturating_pow(cost.unwrap_or(0)))
        }
        Scheme::Crypt if rest.starts_with(b"$5$") || rest.starts_with(b"$6$") => {
            number_in(settings, "rounds=").unwrap_or(SHA_CRYPT_ROUNDS)
        }
        Scheme::Crypt if rest.starts_with(b"$y$") => yescrypt_rounds(rest),
        // MD5's 1,000, DES's 25, BSDi's within its own limit.
        Scheme::Crypt | Scheme::Apr1 | Scheme::BsdMd5 => 1_000,
    }
}

/// Rounds that one of bcrypt's iterations is reckoned as.
const BCRYPT_ROUNDS: u64 = 120;
/// Of SHA-crypt where the value says nothing.
const SHA_CRYPT_ROUNDS: u64 = 5_000;

/// yescrypt's parameters begin with flags, the logarithm of the number of blocks, and their size, a letter each in the usual
/// case. What is written otherwise is reckoned as the largest that is allowed.
fn yescrypt_rounds(rest: &[u8]) -> u64 {
    let largest = 1 << cost_limits::YESCRYPT_BLOCKS_LOG2_MAX;
    let digit = |at: usize| {
        let alphabet = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let letter = rest.get(at)?;
        alphabet.iter().position(|known| known == letter)
    };
    match (digit(4), digit(5)) {
        (Some(log2), Some(size)) if log2 < 40 && rest.get(3).is_some_and(|flags| *flags == b'j') => {
            (2_u64 << log2).saturating_mul(size as u64 + 1)
        }
        _ => largest,
    }
}

/// The number that follows a mark.
fn number_in(text: &[u8], mark: &str) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.split_once(mark)?.1;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end)?.parse().ok()
}

/// How schemes stand to each other: the clear text, what is hashed once, and what takes long on purpose.
fn rank(scheme: Scheme, stored: &[u8]) -> u8 {
    match scheme {
        Scheme::Cleartext | Scheme::Totp { .. } => 0,
        Scheme::Digest { salted: false, .. } => 1,
        Scheme::Digest { salted: true, algorithm: Algorithm::Md5 | Algorithm::Sha1 } | Scheme::NsMtaMd5 => 2,
        Scheme::Digest { salted: true, .. } | Scheme::Apr1 | Scheme::BsdMd5 => 3,
        Scheme::Crypt if stored.get(7) != Some(&b'$') && !stored.is_empty() => 1,
        Scheme::Crypt if stored.starts_with(b"{CRYPT}$1$") => 3,
        Scheme::Pbkdf2(_) | Scheme::Scram(_) => 4,
        Scheme::Crypt => 5,
        Scheme::Argon2 => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;
    use crate::{Argon2Cost, CryptMethod};

    #[test]
    fn decoys_are_as_good_as_what_they_stand_for() {
        let random = SeededRandom::new(5);
        let small = Argon2Cost { memory_kib: 64, passes: 1, lanes: 1 };
        for name in [
            "{SSHA}",
            "{SSHA512}",
            "{PBKDF2-SHA256}",
            "{ARGON2}",
            "{CRYPT}",
            "{APR1}",
            "{NS-MTA-MD5}",
            "{SCRAM-SHA-256}",
        ] {
            let scheme = Scheme::from_name(name).unwrap();
            for crypt in [CryptMethod::Sha512 { rounds: None }, CryptMethod::Bcrypt { cost: 4 }] {
                let hasher = Hasher { argon2: small, crypt, pbkdf2_rounds: 10, ..Hasher::new(scheme) };
                let stored = hasher.hash(b"secret", &random).unwrap();
                let decoy = decoy(&stored);
                assert_eq!((decoy.len(), settings_of(&decoy)), (stored.len(), settings_of(&stored)));
                // Well formed: it was computed, and differs.
                let text = String::from_utf8_lossy(&decoy).into_owned();
                assert_eq!(verify(&decoy, b"secret"), Verification::Mismatch, "{text}");
            }
        }
        for stored in [&b"{CRYPT}abNANd1rDfiNc"[..], b"{CRYPT}_J9..rasmz0.F/jqjWck"] {
            let decoy = decoy(stored);
            assert_eq!((decoy.len(), settings_of(&decoy)), (stored.len(), settings_of(stored)));
            assert_eq!(verify(&decoy, b"secret"), Verification::Mismatch);
        }
        assert_eq!(verify(&decoy(b"clear"), b"clear"), Verification::Mismatch);
        // The secret of codes is not what time is spent on.
        let hash: &[u8] = b"{PBKDF2-SHA256}10$AAAA$AAAA";
        assert_eq!(decoy(&[b"{TOTP1ANDPW}MZXW6===|", hash].concat()), decoy(hash));
        assert_eq!(*decoy(b"{TOTP1}MZXW6==="), *b"{CLEARTEXT}");
    }

    #[test]
    fn rounds_are_what_a_value_asks_for() {
        for (stored, expected) in [
            ("clear", 0),
            ("{SSHA}AAAA", 0),
            ("{PBKDF2-SHA256}10000000$AAAA$AAAA", 10_000_000),
            ("{ARGON2}$argon2id$v=19$m=65536,t=3,p=1$AAAA$AAAA", 196_608),
            ("{CRYPT}$2b$12$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 491_520),
            ("{CRYPT}$6$rounds=999999$salt$AAAA", 999_999),
            ("{CRYPT}$6$salt$AAAA", 5_000),
            ("{CRYPT}$1$salt$AAAA", 1_000),
            ("{APR1}AAAA", 1_000),
            ("{CRYPT}$y$j9T$salt$AAAA", 4_096 * 32),
            ("{CRYPT}$y$??$salt$AAAA", 1 << 18),
            ("{SCRAM-SHA-256}4096:AAAA$AAAA:AAAA", 4_096),
            ("{UNHEARD}99$A$A", 0),
            ("{TOTP1}MZXW6===", 0),
            ("{TOTP1ANDPW}MZXW6===|{PBKDF2-SHA256}5000$AAAA$AAAA", 5_000),
            ("{TOTP1ANDPW}MZXW6===|{TOTP1ANDPW}MZXW6===|{PBKDF2-SHA256}5000$AAAA$AAAA", 0),
        ] {
            assert_eq!(rounds(stored.as_bytes()), expected, "{stored}");
        }
    }

    #[test]
    fn weaker_is_what_is_cheaper_to_guess() {
        let argon = Hasher::new(Scheme::Argon2);
        let pbkdf2 = Hasher::new(Scheme::from_name("{PBKDF2-SHA256}").unwrap());
        for (stored, hasher, expected) in [
            ("clear", &argon, true),
            ("{SSHA}AAAA", &argon, true),
            ("{SSHA}AAAA", &Hasher::new(Scheme::SSHA), false),
            ("{ARGON2}$argon2id$v=19$m=4096,t=3,p=1$AAAA$AAAA", &argon, true),
            ("{ARGON2}$argon2id$v=19$m=65536,t=2,p=1$AAAA$AAAA", &argon, false),
            ("{ARGON2}$argon2id$v=19$m=4096,t=3,p=1$AAAA$AAAA", &pbkdf2, false),
            ("{PBKDF2-SHA256}5000$AAAA$AAAA", &pbkdf2, true),
            ("{PBKDF2-SHA256}20000$AAAA$AAAA", &pbkdf2, false),
            ("{CRYPT}$1$AAAA$AAAA", &pbkdf2, true),
            ("{APR1}AAAA", &pbkdf2, true),
            ("{NS-MTA-MD5}AAAA", &Hasher::new(Scheme::Apr1), true),
            ("{CRYPT}abNANd1rDfiNc", &argon, true),
            ("{CRYPT}abNANd1rDfiNc", &Hasher::new(Scheme::Crypt), true),
            ("{CRYPT}$1$AAAA$AAAA", &Hasher::new(Scheme::Crypt), false),
            ("{UNHEARD}AAAA", &argon, false),
            ("{TOTP1ANDPW}MZXW6===|clear", &argon, false),
            ("clear", &Hasher::new(Scheme::from_name("{TOTP1}").unwrap()), false),
        ] {
            assert_eq!(is_weaker(stored.as_bytes(), hasher), expected, "{stored}");
        }
    }

    #[test]
    fn values_of_configured_schemes_and_of_scram_stay() {
        let hashers = |names: &[&str]| -> Vec<Hasher> {
            names.iter().map(|name| Hasher::new(Scheme::from_name(name).unwrap())).collect()
        };
        let scram = "{SCRAM-SHA-256}10000:AAAA$AAAA:AAAA";
        for (stored, configured, expected) in [
            (scram, &["{ARGON2}", "{SCRAM-SHA-256}"][..], None),
            (scram, &["{ARGON2}"][..], None),
            ("{SSHA}AAAA", &["{ARGON2}", "{SCRAM-SHA-256}"][..], Some("{ARGON2}")),
            ("{SSHA}AAAA", &["{SCRAM-SHA-256}"][..], Some("{SCRAM-SHA-256}")),
            ("{SSHA}AAAA", &["{ARGON2}", "{SSHA}"][..], None),
            ("{PBKDF2-SHA256}5000$AAAA$AAAA", &["{ARGON2}", "{PBKDF2-SHA256}"][..], Some("{PBKDF2-SHA256}")),
            ("{PBKDF2-SHA256}5000$AAAA$AAAA", &["{ARGON2}"][..], Some("{ARGON2}")),
            ("clear", &["{ARGON2}", "{SCRAM-SHA-256}"][..], Some("{ARGON2}")),
            ("{UNHEARD}AAAA", &["{ARGON2}"][..], None),
        ] {
            let configured = hashers(configured);
            let found = better(stored.as_bytes(), &configured).map(|hasher| hasher.scheme);
            assert_eq!(found, expected.and_then(Scheme::from_name), "{stored} {configured:?}");
        }
        assert_eq!(better(b"clear", &[]), None);
    }
}
