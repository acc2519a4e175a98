//! Search options (MS-ADTS section 3.1.1.3.4.1.12).

use super::{ControlValue, required, write_value};
use crate::ber::{DecodeError, Reader, Tag, write};
use crate::oid;

/// On a search: how far it reaches.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SearchOptions {
    /// A set of [`Self::DOMAIN_SCOPE`] and [`Self::PHANTOM_ROOT`].
    pub flags: u32,
}

impl SearchOptions {
    /// No continuation references.
    pub const DOMAIN_SCOPE: u32 = 1;
    /// Search all naming contexts below the base. Larix does not do that.
    pub const PHANTOM_ROOT: u32 = 2;
}

impl<'a> ControlValue<'a> for SearchOptions {
    const OID: &'static str = oid::SEARCH_OPTIONS;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut value =
            Reader::new(required(value, "SearchHintRequestValue")?).sequence("SearchHintRequestValue")?;
        Ok(Self { flags: value.unsigned("flags")? })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| write::integer(out, Tag::INTEGER, i64::from(self.flags)))
    }
}
