//! Server-side sorting of search results (RFC 2891).

use super::{ControlValue, required, write_value};
use crate::ber::{self, DecodeError, Fault, Reader, Tag, write};
use crate::oid;
use crate::result::ResultCode;

/// What to sort by, the most significant key first; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortRequest<'a> {
    pub keys: Vec<SortKey<'a>>,
}

/// One sort key: RFC 2891 section 1.1.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SortKey<'a> {
    pub attribute: &'a str,
    /// The attribute's own ordering rule if there is none.
    pub ordering_rule: Option<&'a str>,
    pub reverse: bool,
}

/// How sorting went.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SortResponse<'a> {
    pub code: ResultCode,
    /// The first attribute at fault.
    pub attribute: Option<&'a str>,
}

impl<'a> ControlValue<'a> for SortRequest<'a> {
    const OID: &'static str = oid::SORT_REQUEST;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut list = Reader::new(required(value, "SortKeyList")?).sequence("SortKeyList")?;
        let mut keys = Vec::new();
        while !list.is_empty() {
            if keys.len() >= MAX_KEYS {
                return Err(DecodeError::new("SortKeyList", Fault::TooMany { limit: MAX_KEYS }));
            }
            let mut key = list.sequence("SortKey")?;
            let attribute = key.string("attributeType")?;
            let rule = key.optional(Tag::context(0), "orderingRule")?;
            let ordering_rule = rule.map(|rule| ber::utf8(rule, "orderingRule")).transpose()?;
            let reverse = key.optional(Tag::context(1), "reverseOrder")?;
            let reverse = reverse.map_or(Ok(false), |reverse| ber::boolean(reverse, "reverseOrder"))?;
            keys.push(SortKey { attribute, ordering_rule, reverse });
        }
        if keys.is_empty() {
            return Err(DecodeError::new("SortKeyList", Fault::Empty));
        }
        Ok(Self { keys })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            for key in &self.keys {
                write::constructed(out, Tag::SEQUENCE, |out| {
                    write::string(out, key.attribute);
                    if let Some(rule) = key.ordering_rule {
                        write::octets(out, Tag::context(0), rule.as_bytes());
                    }
                    if key.reverse {
                        write::boolean(out, Tag::context(1), true);
                    }
                });
            }
        })
    }
}

/// More sort keys than anyone needs.
const MAX_KEYS: usize = 32;

impl<'a> ControlValue<'a> for SortResponse<'a> {
    const OID: &'static str = oid::SORT_RESPONSE;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut result = Reader::new(required(value, "SortResult")?).sequence("SortResult")?;
        let code = super::result_code(&mut result, "sortResult")?;
        let attribute = result.optional(Tag::context(0), "attributeType")?;
        Ok(Self { code, attribute: attribute.map(|text| ber::utf8(text, "attributeType")).transpose()? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            write::integer(out, Tag::ENUMERATED, i64::from(self.code.0));
            if let Some(attribute) = self.attribute {
                write::octets(out, Tag::context(0), attribute.as_bytes());
            }
        })
    }
}
