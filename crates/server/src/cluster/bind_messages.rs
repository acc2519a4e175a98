//! What nodes say to each other about binds: an attempt whose password was compared, and how it ended.

use larix_engine::overlay::second_factor::GivenCode;
use larix_engine::overlay::{BindAttempt, BindConclusion};
use larix_engine::password::Scheme;
use larix_proto::{ControlBuf, LdapResult, ResultCode};
use larix_schema::NormalDn;
use zeroize::Zeroizing;

/// The first byte of each message: nodes of another version that say something else are not understood.
const ATTEMPT: u8 = 1;
const CONCLUSION: u8 = 2;

const MATCHED: u8 = 1;
const POLICY_CONTROL: u8 = 2;
const MUST_CHANGE: u8 = 4;

/// A message that is being written.
struct Writing(Vec<u8>);

impl Writing {
    fn bytes(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.0.extend(length.to_be_bytes());
        self.0.extend(bytes);
    }
}

/// A message that is being read.
struct Reading<'m>(&'m [u8]);

impl<'m> Reading<'m> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn bytes(&mut self) -> Option<&'m [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<&'m str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn secret(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        self.bytes().map(|bytes| Zeroizing::new(bytes.to_vec()))
    }

    fn end<T>(&self, read: T) -> Option<T> {
        self.0.is_empty().then_some(read)
    }
}

const fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

pub(super) fn write_attempt(attempt: &BindAttempt) -> Vec<u8> {
    let BindAttempt { dn, matched, policy_control, code } = attempt;
    let mut out = Writing(vec![ATTEMPT, flag(*matched, MATCHED) | flag(*policy_control, POLICY_CONTROL)]);
    out.bytes(dn.as_str().as_bytes());
    match code {
        GivenCode::NotAsked => out.0.push(0),
        GivenCode::Missing => out.0.push(1),
        GivenCode::Given(code) => {
            out.0.push(2);
            out.bytes(code);
        }
        GivenCode::OfPasswords { stored, code } => {
            out.0.push(3);
            out.bytes(code);
            stored.iter().for_each(|value| out.bytes(value));
        }
        GivenCode::Compared(code) => {
            out.0.push(4);
            out.bytes(code);
        }
    }
    out.0
}

/// None where it is not one.
pub(super) fn read_attempt(message: &[u8]) -> Option<BindAttempt> {
    let mut message = Reading(message);
    if message.byte()? != ATTEMPT {
        return None;
    }
    let flags = message.byte()?;
    let dn = NormalDn::from_normal(message.text()?);
    let code = match message.byte()? {
        0 => GivenCode::NotAsked,
        1 => GivenCode::Missing,
        2 => GivenCode::Given(message.secret()?),
        3 => {
            let (code, mut stored) = (message.secret()?, Vec::new());
            while !message.0.is_empty() {
                stored.push(message.secret()?);
            }
            GivenCode::OfPasswords { stored, code }
        }
        4 => GivenCode::Compared(message.secret()?),
        _ => return None,
    };
    let (matched, policy_control) = (flags & MATCHED != 0, flags & POLICY_CONTROL != 0);
    message.end(BindAttempt { dn, matched, policy_control, code })
}

/// What a shadow would hand on is not part of it: nodes share their entries.
pub(super) fn write_conclusion(conclusion: &BindConclusion) -> Vec<u8> {
    let BindConclusion { result, controls, must_change_password, rehash, .. } = conclusion;
    let mut out = Writing(vec![CONCLUSION, flag(*must_change_password, MUST_CHANGE)]);
    out.0.extend(result.code.0.to_be_bytes());
    out.bytes(result.diagnostic.as_bytes());
    out.bytes(rehash.map_or("", Scheme::name).as_bytes());
    for control in controls {
        out.bytes(control.oid.as_bytes());
        out.0.push(u8::from(control.critical));
        match &control.value {
            Some(value) => {
                out.0.push(1);
                out.bytes(value);
            }
            None => out.0.push(0),
        }
    }
    out.0
}

/// None where it is not one.
pub(super) fn read_conclusion(message: &[u8]) -> Option<BindConclusion> {
    let mut message = Reading(message);
    if message.byte()? != CONCLUSION {
        return None;
    }
    let must_change_password = message.byte()? & MUST_CHANGE != 0;
    let (code, rest) = message.0.split_first_chunk()?;
    message.0 = rest;
    let code = ResultCode(u32::from_be_bytes(*code));
    let result = LdapResult::with(code, message.text()?);
    let rehash = Scheme::from_name(message.text()?);
    let mut controls = Vec::new();
    while !message.0.is_empty() {
        let oid = message.text()?.to_owned().into();
        let critical = message.byte()? != 0;
        let value = if message.byte()? == 0 { None } else { Some(message.bytes()?.to_vec()) };
        controls.push(ControlBuf { oid, critical, value });
    }
    let mut conclusion = BindConclusion::outright(false);
    conclusion.result = result;
    conclusion.controls = controls;
    conclusion.must_change_password = must_change_password;
    conclusion.rehash = rehash;
    Some(conclusion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_and_conclusions_are_read_as_they_were_written() {
        let secret = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
        let stored = vec![secret("{TOTP1}a"), secret("")];
        for code in [
            GivenCode::NotAsked,
            GivenCode::Missing,
            GivenCode::Given(secret("123456")),
            GivenCode::OfPasswords { stored, code: secret("654321") },
            GivenCode::Compared(secret("")),
        ] {
            for (matched, policy_control) in [(true, false), (false, true)] {
                let dn = NormalDn::from_normal("cn=ann,dc=example");
                let attempt = BindAttempt { dn, matched, policy_control, code: code.clone() };
                let written = write_attempt(&attempt);
                let read = read_attempt(&written).expect("it can be read");
                assert_eq!(
                    (&read.dn, read.matched, read.policy_control),
                    (&attempt.dn, matched, policy_control)
                );
                assert!(read.code == code, "{code:?}");
                let whole = |end: usize| read_attempt(&written[..end]).is_some_and(|read| read.code == code);
                assert!((0..written.len()).all(|end| !whole(end)), "{code:?} is read from a part");
            }
        }
        let mut conclusion = BindConclusion::outright(false);
        conclusion.result = LdapResult::with(ResultCode::INVALID_CREDENTIALS, "locked");
        conclusion.must_change_password = true;
        conclusion.rehash = Scheme::from_name("{SSHA}");
        conclusion.controls = vec![
            ControlBuf { oid: "1.2.3".into(), critical: false, value: Some(vec![1, 2]) },
            ControlBuf { oid: "1.2.4".into(), critical: true, value: None },
        ];
        let read = read_conclusion(&write_conclusion(&conclusion)).expect("it can be read");
        assert_eq!(format!("{read:?}"), format!("{conclusion:?}"));
        assert!(read_attempt(&write_conclusion(&conclusion)).is_none());
        assert!(read_conclusion(&[]).is_none());
    }
}
