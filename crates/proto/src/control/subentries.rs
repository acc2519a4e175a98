//! Subentries (RFC 3672).

use super::{ControlValue, required};
use crate::ber::{DecodeError, Reader, Tag, write};
use crate::oid;

/// Which of the two kinds of entries a search sees.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Subentries {
    /// Subentries and nothing else; otherwise everything but them.
    pub visible: bool,
}

impl<'a> ControlValue<'a> for Subentries {
    const OID: &'static str = oid::SUBENTRIES;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut value = Reader::new(required(value, "visibility")?);
        let visible = value.boolean("visibility")?;
        value.finish("visibility")?;
        Ok(Self { visible })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(3);
        write::boolean(&mut out, Tag::BOOLEAN, self.visible);
        Some(out)
    }
}
