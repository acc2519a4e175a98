//! Controls (RFC 4511 section 4.1.11): the envelope here, each control's value in a file of its own.

use std::borrow::Cow;

use crate::ber::{self, DecodeError, Reader, Tag, write};

/// A control of a received message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Control<'a> {
    pub oid: &'a str,
    pub critical: bool,
    pub value: Option<&'a [u8]>,
}

/// A control to be sent, or kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlBuf {
    pub oid: Cow<'static, str>,
    pub critical: bool,
    pub value: Option<Vec<u8>>,
}

/// The value of a known control.
pub trait ControlValue<'a>: Sized {
    const OID: &'static str;

    /// Reads the control's value; `None` is a control without one.
    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError>;

    /// The control's value; `None` where the definition has none.
    fn encode(&self) -> Option<Vec<u8>>;

    fn to_control(&self, critical: bool) -> ControlBuf {
        ControlBuf { oid: Cow::Borrowed(Self::OID), critical, value: self.encode() }
    }
}

impl<'a> Control<'a> {
    pub(crate) fn decode(rest: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut control = rest.sequence("control")?;
        let oid = ber::utf8(control.octets("controlType")?, "controlType")?;
        let critical = control.boolean_or_false("criticality")?;
        Ok(Self { oid, critical, value: control.optional(Tag::OCTET_STRING, "controlValue")? })
    }

    pub fn to_owned(&self) -> ControlBuf {
        ControlBuf {
            oid: Cow::Owned(self.oid.into()),
            critical: self.critical,
            value: self.value.map(<[u8]>::to_vec),
        }
    }
}

impl ControlBuf {
    pub fn as_control(&self) -> Control<'_> {
        Control { oid: &self.oid, critical: self.critical, value: self.value.as_deref() }
    }

    /// Appends the control; a criticality of false is left out, being the default.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write::constructed(out, Tag::SEQUENCE, |out| {
            write::string(out, &self.oid);
            if self.critical {
                write::boolean(out, Tag::BOOLEAN, true);
            }
            if let Some(value) = &self.value {
                write::octets(out, Tag::OCTET_STRING, value);
            }
        });
    }
}
