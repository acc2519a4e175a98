//! Matched values (RFC 3876): of the attributes returned, only the values that match.

use super::{ControlValue, required, write_value};
use crate::ber::{DecodeError, Fault, Reader, Tag};
use crate::filter::{Filter, FilterSet};
use crate::limits;
use crate::oid;

/// Filters of single items: a value is returned if one of them matches it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MatchedValues<'a> {
    filters: &'a [u8],
}

impl<'a> MatchedValues<'a> {
    /// At least one; none is an AND, OR or NOT.
    pub fn filters(&self) -> FilterSet<'a> {
        FilterSet::from_checked(self.filters)
    }
}

impl<'a> ControlValue<'a> for MatchedValues<'a> {
    const OID: &'static str = oid::MATCHED_VALUES;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let filters = Reader::new(required(value, "ValuesReturnFilter")?)
            .expect(Tag::SEQUENCE, "ValuesReturnFilter")?;
        if filters.is_empty() {
            return Err(DecodeError::new("ValuesReturnFilter", Fault::Empty));
        }
        let mut rest = Reader::new(filters);
        while let Some(tag) = rest.peek() {
            if matches!(tag.0, 0xa0..=0xa2) {
                return Err(DecodeError::new("SimpleFilterItem", Fault::UnknownChoice(i64::from(tag.0))));
            }
            Filter::decode(rest.raw("SimpleFilterItem")?, limits::FILTER_DEPTH)?;
        }
        Ok(Self { filters })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| out.extend_from_slice(self.filters))
    }
}
