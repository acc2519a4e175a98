//! Password policy (draft-behera-ldap-password-policy-10).

use super::{ControlValue, required, write_value};
use crate::ber::{self, DecodeError, Fault, Reader, Tag, write};
use crate::oid;

super::flag_control!(
    /// Asks for the state of the account's password.
    PasswordPolicyRequest,
    oid::PASSWORD_POLICY
);

/// The state of the account's password.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct PasswordPolicyResponse {
    pub warning: Option<PasswordWarning>,
    pub error: Option<PasswordError>,
}

/// What will happen to the password: draft-behera-ldap-password-policy-10 section 6.2.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PasswordWarning {
    /// Seconds.
    TimeBeforeExpiration(u32),
    GraceLoginsRemaining(u32),
}

/// Why a bind or a new password was refused: draft-behera-ldap-password-policy-10 section 6.2.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum PasswordError {
    PasswordExpired = 0,
    AccountLocked = 1,
    ChangeAfterReset = 2,
    PasswordModNotAllowed = 3,
    MustSupplyOldPassword = 4,
    InsufficientPasswordQuality = 5,
    PasswordTooShort = 6,
    PasswordTooYoung = 7,
    PasswordInHistory = 8,
    PasswordTooLong = 9,
}

const WARNING: Tag = Tag::context_constructed(0);
const ERROR: Tag = Tag::context(1);
const TIME_BEFORE_EXPIRATION: Tag = Tag::context(0);
const GRACE_LOGINS_REMAINING: Tag = Tag::context(1);

impl<'a> ControlValue<'a> for PasswordPolicyResponse {
    const OID: &'static str = oid::PASSWORD_POLICY;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut value = Reader::new(required(value, "PasswordPolicyResponseValue")?)
            .sequence("PasswordPolicyResponseValue")?;
        let warning = match value.optional(WARNING, "warning")? {
            None => None,
            Some(contents) => Some(PasswordWarning::decode(contents)?),
        };
        let error = match value.optional(ERROR, "error")? {
            None => None,
            Some(contents) => Some(PasswordError::from_number(ber::integer(contents, "error")?)?),
        };
        Ok(Self { warning, error })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            if let Some(warning) = self.warning {
                let (tag, number) = match warning {
                    PasswordWarning::TimeBeforeExpiration(seconds) => (TIME_BEFORE_EXPIRATION, seconds),
                    PasswordWarning::GraceLoginsRemaining(logins) => (GRACE_LOGINS_REMAINING, logins),
                };
                write::constructed(out, WARNING, |out| write::integer(out, tag, i64::from(number)));
            }
            if let Some(error) = self.error {
                write::integer(out, ERROR, error as i64);
            }
        })
    }
}

impl PasswordWarning {
    fn decode(contents: &[u8]) -> Result<Self, DecodeError> {
        let (tag, number) = Reader::new(contents).element("warning")?;
        let number = ber::unsigned(number, "warning")?;
        match tag {
            TIME_BEFORE_EXPIRATION => Ok(Self::TimeBeforeExpiration(number)),
            GRACE_LOGINS_REMAINING => Ok(Self::GraceLoginsRemaining(number)),
            Tag(other) => Err(DecodeError::new("warning", Fault::UnknownChoice(i64::from(other)))),
        }
    }
}

impl PasswordError {
    const ALL: [Self; 10] = [
        Self::PasswordExpired,
        Self::AccountLocked,
        Self::ChangeAfterReset,
        Self::PasswordModNotAllowed,
        Self::MustSupplyOldPassword,
        Self::InsufficientPasswordQuality,
        Self::PasswordTooShort,
        Self::PasswordTooYoung,
        Self::PasswordInHistory,
        Self::PasswordTooLong,
    ];

    fn from_number(number: i64) -> Result<Self, DecodeError> {
        Self::ALL
            .into_iter()
            .find(|&error| error as i64 == number)
            .ok_or_else(|| DecodeError::new("error", Fault::UnknownChoice(number)))
    }

    /// The text that OpenLDAP's tools show.
    pub const fn text(self) -> &'static str {
        match self {
            Self::PasswordExpired => "Password expired",
            Self::AccountLocked => "Account locked",
            Self::ChangeAfterReset => "Password must be changed",
            Self::PasswordModNotAllowed => "Policy prevents password modification",
            Self::MustSupplyOldPassword => "Policy requires old password in order to change password",
            Self::InsufficientPasswordQuality => "Password fails quality checks",
            Self::PasswordTooShort => "Password is too short for policy",
            Self::PasswordTooYoung => "Password has been changed too recently",
            Self::PasswordInHistory => "New password is in list of old passwords",
            Self::PasswordTooLong => "Password is too long for policy",
        }
    }
}
