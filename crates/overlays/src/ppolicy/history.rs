//! The passwords that an account had: pwdHistory (draft-behera-ldap-password-policy-10 section 5.3.5).

use super::account::parse_time;
use larix_engine::time::Timestamp;

/// The syntax of userPassword, octet string.
const OCTET_STRING: &str = "1.3.6.1.4.1.1466.115.121.1.40";

/// A former password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Former<'a> {
    pub(super) time: Timestamp,
    /// As it was stored.
    pub(super) password: &'a [u8],
    /// The whole value.
    pub(super) value: &'a [u8],
}

impl<'a> Former<'a> {
    /// Reads `time#syntax#length#password`.
    fn parse(value: &'a [u8]) -> Option<Self> {
        let mut parts = value.splitn(4, |byte| *byte == b'#');
        let time = parse_time(parts.next()?)?;
        let _syntax = parts.next()?;
        let length: usize = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let password = parts.next().filter(|password| password.len() == length)?;
        Some(Self { time, password, value })
    }
}

/// The former passwords, oldest first; what is malformed is left out.
pub(super) fn read(values: &[Vec<u8>]) -> Vec<Former<'_>> {
    let mut former: Vec<_> = values.iter().filter_map(|value| Former::parse(value)).collect();
    former.sort_by_key(|former| former.time);
    former
}

/// The value for a password that is being replaced.
pub(super) fn value(now: Timestamp, stored: &[u8]) -> Vec<u8> {
    let mut value = format!("{}#{OCTET_STRING}#{}#", now.generalized(), stored.len()).into_bytes();
    value.extend_from_slice(stored);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_written() {
        let now = Timestamp::from_seconds(1_000_000);
        let newer = value(now, b"{SSHA}a#b");
        let older = value(Timestamp::from_seconds(999_999), b"");
        let values = [newer.clone(), b"20200101000000Z#1.2#9#short".to_vec(), b"rubbish".to_vec(), older];
        let former = read(&values);
        let passwords: Vec<_> = former.iter().map(|former| former.password).collect();
        assert_eq!(passwords, [&b""[..], b"{SSHA}a#b"]);
        assert_eq!(former[1], Former { time: now, password: b"{SSHA}a#b", value: &newer });
    }
}
