//! Active Directory's DirSync ([MS-ADTS] 3.1.1.3.4.1.3): a search for what changed since a cookie. The value has the same form in a
//! request and in a response.

use super::{ControlValue, required, write_value};
use crate::ber::{DecodeError, Reader, Tag, write};
use crate::oid;

/// On a search request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DirSyncRequest<'a> {
    /// Of the constants of this type.
    pub flags: i32,
    /// Bytes of one answer; 0: as many as the server likes.
    pub max_bytes: i32,
    /// Empty: everything.
    pub cookie: &'a [u8],
}

impl DirSyncRequest<'_> {
    /// Of an attribute with many values, those that came and those that went, in place of all.
    pub const INCREMENTAL_VALUES: i32 = i32::MIN;
}

/// On the result of the search.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DirSyncResponse<'a> {
    /// There is more: to be asked for with this cookie at once.
    pub more: bool,
    pub cookie: &'a [u8],
}

fn decode(value: Option<&[u8]>) -> Result<(i32, i32, &[u8]), DecodeError> {
    let mut value = Reader::new(required(value, "dirSyncValue")?).sequence("dirSyncValue")?;
    let mut number = |field| -> Result<i32, DecodeError> {
        let number = value.integer(field)?;
        // Flags are 32 bits, which some write as a positive number.
        Ok(u32::try_from(number).map_or_else(|_| i32::try_from(number).unwrap_or(-1), u32::cast_signed))
    };
    let (first, second) = (number("flags")?, number("maxBytes")?);
    Ok((first, second, value.octets("cookie")?))
}

fn encode((first, second): (i32, i32), cookie: &[u8]) -> Option<Vec<u8>> {
    write_value(Tag::SEQUENCE, |out| {
        write::integer(out, Tag::INTEGER, i64::from(first));
        write::integer(out, Tag::INTEGER, i64::from(second));
        write::octets(out, Tag::OCTET_STRING, cookie);
    })
}

impl<'a> ControlValue<'a> for DirSyncRequest<'a> {
    const OID: &'static str = oid::DIR_SYNC;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let (flags, max_bytes, cookie) = decode(value)?;
        Ok(Self { flags, max_bytes, cookie })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        encode((self.flags, self.max_bytes), self.cookie)
    }
}

impl<'a> ControlValue<'a> for DirSyncResponse<'a> {
    const OID: &'static str = oid::DIR_SYNC;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let (more, _, cookie) = decode(value)?;
        Ok(Self { more: more != 0, cookie })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        encode((i32::from(self.more), 0), self.cookie)
    }
}
