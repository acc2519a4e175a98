//! Virtual list views (draft-ietf-ldapext-ldapv3-vlv-09).

use super::{ControlValue, required, write_value};
use crate::ber::{DecodeError, Fault, Reader, Tag, write};
use crate::oid;
use crate::result::ResultCode;

/// A window into a sorted list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct VlvRequest<'a> {
    /// Entries wanted before the target.
    pub before_count: u32,
    /// Entries wanted after the target.
    pub after_count: u32,
    pub target: VlvTarget<'a>,
    /// What the last response gave.
    pub context_id: Option<&'a [u8]>,
}

/// The entry that the window is around.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum VlvTarget<'a> {
    /// The `offset`-th, from 1, of what the client takes for `content_count` entries; 0 is not known.
    Offset { offset: u32, content_count: u32 },
    /// The first entry whose sort key is not less.
    GreaterOrEqual(&'a [u8]),
}

/// On the search's result: where the window is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct VlvResponse<'a> {
    /// The target's position, from 1.
    pub target_position: u32,
    pub content_count: u32,
    pub code: ResultCode,
    pub context_id: Option<&'a [u8]>,
}

const BY_OFFSET: Tag = Tag::context_constructed(0);
const GREATER_OR_EQUAL: Tag = Tag::context(1);

impl<'a> ControlValue<'a> for VlvRequest<'a> {
    const OID: &'static str = oid::VLV_REQUEST;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut request =
            Reader::new(required(value, "VirtualListViewRequest")?).sequence("VirtualListViewRequest")?;
        let before_count = request.unsigned("beforeCount")?;
        let after_count = request.unsigned("afterCount")?;
        let (tag, contents) = request.element("target")?;
        let target = match tag {
            BY_OFFSET => {
                let mut target = Reader::new(contents);
                VlvTarget::Offset {
                    offset: target.unsigned("offset")?,
                    content_count: target.unsigned("contentCount")?,
                }
            }
            GREATER_OR_EQUAL => VlvTarget::GreaterOrEqual(contents),
            Tag(other) => return Err(DecodeError::new("target", Fault::UnknownChoice(i64::from(other)))),
        };
        let context_id = request.optional(Tag::OCTET_STRING, "contextID")?;
        Ok(Self { before_count, after_count, target, context_id })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, i64::from(self.before_count));
            write::integer(out, Tag::INTEGER, i64::from(self.after_count));
            match self.target {
                VlvTarget::Offset { offset, content_count } => write::constructed(out, BY_OFFSET, |out| {
                    write::integer(out, Tag::INTEGER, i64::from(offset));
                    write::integer(out, Tag::INTEGER, i64::from(content_count));
                }),
                VlvTarget::GreaterOrEqual(value) => write::octets(out, GREATER_OR_EQUAL, value),
            }
            if let Some(context_id) = self.context_id {
                write::octets(out, Tag::OCTET_STRING, context_id);
            }
        })
    }
}

impl<'a> ControlValue<'a> for VlvResponse<'a> {
    const OID: &'static str = oid::VLV_RESPONSE;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut response =
            Reader::new(required(value, "VirtualListViewResponse")?).sequence("VirtualListViewResponse")?;
        Ok(Self {
            target_position: response.unsigned("targetPosition")?,
            content_count: response.unsigned("contentCount")?,
            code: super::result_code(&mut response, "virtualListViewResult")?,
            context_id: response.optional(Tag::OCTET_STRING, "contextID")?,
        })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::integer(out, Tag::INTEGER, i64::from(self.target_position));
            write::integer(out, Tag::INTEGER, i64::from(self.content_count));
            write::integer(out, Tag::ENUMERATED, i64::from(self.code.0));
            if let Some(context_id) = self.context_id {
                write::octets(out, Tag::OCTET_STRING, context_id);
            }
        })
    }
}
