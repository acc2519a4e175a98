//! Password modify (RFC 3062).

use std::fmt;

use super::ExtendedValue;
use crate::ber::{DecodeError, Reader, Tag, write};
use crate::control::write_value;
use crate::oid;

/// All parts may be absent: the user is then the one bound, the new password the server's choice.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
pub struct PasswordModify<'a> {
    /// A DN, or what else the server understands.
    pub user: Option<&'a [u8]>,
    pub old: Option<&'a [u8]>,
    pub new: Option<&'a [u8]>,
}

/// The answer.
#[derive(Copy, Clone, PartialEq, Eq, Default)]
pub struct PasswordModifyResponse<'a> {
    /// The password that the server chose.
    pub generated: Option<&'a [u8]>,
}

const USER: Tag = Tag::context(0);
const OLD: Tag = Tag::context(1);
const NEW: Tag = Tag::context(2);
const GENERATED: Tag = Tag::context(0);

impl<'a> ExtendedValue<'a> for PasswordModify<'a> {
    const OID: &'static str = oid::PASSWORD_MODIFY;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let Some(value) = value else { return Ok(Self::default()) };
        let mut reader = Reader::new(value);
        let mut value = reader.sequence("PasswdModifyRequestValue")?;
        reader.finish("PasswdModifyRequestValue")?;
        let user = value.optional(USER, "userIdentity")?;
        let old = value.optional(OLD, "oldPasswd")?;
        let new = value.optional(NEW, "newPasswd")?;
        value.finish("PasswdModifyRequestValue")?;
        Ok(Self { user, old, new })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        if *self == Self::default() {
            return None;
        }
        write_value(Tag::SEQUENCE, |out| {
            write::optional(out, USER, self.user);
            write::optional(out, OLD, self.old);
            write::optional(out, NEW, self.new);
        })
    }
}

impl<'a> PasswordModifyResponse<'a> {
    pub fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let Some(value) = value else { return Ok(Self::default()) };
        let mut value = Reader::new(value).sequence("PasswdModifyResponseValue")?;
        Ok(Self { generated: value.optional(GENERATED, "genPasswd")? })
    }

    /// The response's value: none unless a password was generated.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let generated = self.generated?;
        write_value(Tag::SEQUENCE, |out| write::octets(out, GENERATED, generated))
    }
}

/// Passwords stay out of logs.
impl fmt::Debug for PasswordModify<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.map(String::from_utf8_lossy);
        f.debug_struct("PasswordModify")
            .field("user", &user)
            .field("old", &self.old.is_some())
            .field("new", &self.new.is_some())
            .finish()
    }
}

/// Passwords stay out of logs.
impl fmt::Debug for PasswordModifyResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordModifyResponse").field("generated", &self.generated.is_some()).finish()
    }
}
