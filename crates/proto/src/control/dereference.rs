//! Dereference (draft-masarati-ldap-deref): attributes of the entries that an entry names, along with it.

use super::{ControlValue, required, write_value};
use crate::ber::{DecodeError, Fault, Reader, Tag, write};
use crate::list::Attributes;
use crate::oid;

/// What is wanted of whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerefRequest<'a> {
    pub specs: Vec<DerefSpec<'a>>,
}

/// The attributes wanted of the entries that one attribute names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerefSpec<'a> {
    /// The attribute that names other entries.
    pub attribute: &'a str,
    /// What is wanted of these; at least one.
    pub attributes: Vec<&'a str>,
}

/// What came of it, beside one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerefResponse<'a> {
    pub results: Vec<DerefResult<'a>>,
}

/// One of these entries.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DerefResult<'a> {
    pub attribute: &'a str,
    /// The value, whether there is such an entry or not.
    pub value: &'a str,
    /// What may be read of the entry; `None` where that is nothing.
    pub attributes: Option<Attributes<'a>>,
}

/// More attributes to go by than anyone needs.
const MAX_SPECS: usize = 32;
/// More attributes of one entry than anyone needs.
const MAX_ATTRIBUTES: usize = 256;
const ATTRIBUTES: Tag = Tag::context_constructed(0);

impl<'a> ControlValue<'a> for DerefRequest<'a> {
    const OID: &'static str = oid::DEREF;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut list = Reader::new(required(value, "DerefControl")?).sequence("DerefControl")?;
        let mut specs = Vec::new();
        while !list.is_empty() {
            if specs.len() >= MAX_SPECS {
                return Err(DecodeError::new("DerefControl", Fault::TooMany { limit: MAX_SPECS }));
            }
            let mut spec = list.sequence("derefSpec")?;
            let attribute = spec.string("derefAttr")?;
            let mut names = spec.sequence("attributes")?;
            let mut attributes = Vec::new();
            while !names.is_empty() {
                if attributes.len() >= MAX_ATTRIBUTES {
                    return Err(DecodeError::new("attributes", Fault::TooMany { limit: MAX_ATTRIBUTES }));
                }
                attributes.push(names.string("attribute")?);
            }
            if attributes.is_empty() {
                return Err(DecodeError::new("attributes", Fault::Empty));
            }
            specs.push(DerefSpec { attribute, attributes });
        }
        if specs.is_empty() {
            return Err(DecodeError::new("DerefControl", Fault::Empty));
        }
        Ok(Self { specs })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            for spec in &self.specs {
                write::constructed(out, Tag::SEQUENCE, |out| {
                    write::string(out, spec.attribute);
                    write::constructed(out, Tag::SEQUENCE, |out| {
                        spec.attributes.iter().for_each(|attribute| write::string(out, attribute));
                    });
                });
            }
        })
    }
}

impl<'a> ControlValue<'a> for DerefResponse<'a> {
    const OID: &'static str = oid::DEREF;

    fn decode(value: Option<&'a [u8]>) -> Result<Self, DecodeError> {
        let mut list = Reader::new(required(value, "DerefResult")?).sequence("DerefResult")?;
        let mut results = Vec::new();
        while !list.is_empty() {
            let mut result = list.sequence("derefRes")?;
            let attribute = result.string("derefAttr")?;
            let value = result.string("derefVal")?;
            let attributes = result.optional(ATTRIBUTES, "attrVals")?.map(Attributes::check).transpose()?;
            results.push(DerefResult { attribute, value, attributes });
        }
        Ok(Self { results })
    }

    fn encode(&self) -> Option<Vec<u8>> {
        write_value(Tag::SEQUENCE, |out| {
            for result in &self.results {
                write::constructed(out, Tag::SEQUENCE, |out| {
                    write::string(out, result.attribute);
                    write::string(out, result.value);
                    if let Some(attributes) = &result.attributes {
                        write::octets(out, ATTRIBUTES, attributes.as_ber());
                    }
                });
            }
        })
    }
}
