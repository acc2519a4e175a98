//! Lists inside a message: views over BER that has been walked and checked once, iterated without errors.

use std::fmt;

use crate::ber::{DecodeError, Fault, Reader, Tag};

/// Declares a list view: `$item` is what [`Iterator::next`] reads off the checked elements.
macro_rules! list {
    ($(#[$doc:meta])* $list:ident, $iter:ident, $item:ty, $next:expr) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, Default)]
        pub struct $list<'a> {
            ber: &'a [u8],
        }

        impl<'a> $list<'a> {
            pub fn iter(&self) -> $iter<'a> {
                $iter { rest: Reader::new(self.ber) }
            }

            pub const fn is_empty(&self) -> bool {
                self.ber.is_empty()
            }

            /// How many; walks the list.
            pub fn len(&self) -> usize {
                self.iter().count()
            }

            /// The elements' BER, one after another.
            pub const fn as_ber(&self) -> &'a [u8] {
                self.ber
            }
        }

        impl<'a> IntoIterator for $list<'a> {
            type Item = $item;
            type IntoIter = $iter<'a>;

            fn into_iter(self) -> $iter<'a> {
                self.iter()
            }
        }

        impl<'a> IntoIterator for &$list<'a> {
            type Item = $item;
            type IntoIter = $iter<'a>;

            fn into_iter(self) -> $iter<'a> {
                self.iter()
            }
        }

        impl fmt::Debug for $list<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_list().entries(self.iter()).finish()
            }
        }

        #[derive(Clone, Debug)]
        pub struct $iter<'a> {
            rest: Reader<'a>,
        }

        impl<'a> Iterator for $iter<'a> {
            type Item = $item;

            /// The list was checked when it was made, so an element that cannot be read is the end.
            #[inline]
            fn next(&mut self) -> Option<$item> {
                if self.rest.is_empty() {
                    return None;
                }
                let next: fn(&mut Reader<'a>) -> Result<$item, DecodeError> = $next;
                next(&mut self.rest).ok()
            }
        }
    };
}

pub(crate) use list;

list!(
    /// `SEQUENCE OF LDAPString`: attribute selections, referral URLs.
    Strings, StringsIter, &'a str, |rest| rest.string("string")
);
list!(
    /// The values of an attribute (`SET OF OCTET STRING`).
    Values, ValuesIter, &'a [u8], |rest| rest.octets("value")
);
list!(
    /// `SEQUENCE OF PartialAttribute`: an entry's attributes.
    Attributes, AttributesIter, Attribute<'a>, Attribute::decode
);
list!(
    /// The changes of a modify request.
    Changes, ChangesIter, Change<'a>, Change::decode
);
/// An attribute description with values, possibly none (RFC 4511 section 4.1.7).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    pub description: &'a str,
    pub values: Values<'a>,
}

/// One change of a modify request (RFC 4511 section 4.6).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    pub operation: ModifyOperation,
    pub attribute: Attribute<'a>,
}

/// What a change does; increment is of RFC 4525.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ModifyOperation {
    Add = 0,
    Delete = 1,
    Replace = 2,
    Increment = 3,
}

impl<'a> Strings<'a> {
    /// Checks the contents of a `SEQUENCE OF LDAPString`.
    pub fn check(contents: &'a [u8], field: &'static str) -> Result<Self, DecodeError> {
        let mut rest = Reader::new(contents);
        while !rest.is_empty() {
            rest.text(field)?;
        }
        Ok(Self { ber: contents })
    }

    /// The most that there can be: each takes a tag and a length at least.
    pub fn count_at_most(&self) -> usize {
        self.ber.len() / 2
    }
}

impl<'a> Values<'a> {
    /// Checks the contents of a `SET OF OCTET STRING`.
    pub fn check(contents: &'a [u8]) -> Result<Self, DecodeError> {
        let mut rest = Reader::new(contents);
        while !rest.is_empty() {
            rest.octets("vals")?;
        }
        Ok(Self { ber: contents })
    }
}

impl<'a> Attributes<'a> {
    /// Checks the contents of an attribute list.
    pub fn check(contents: &'a [u8]) -> Result<Self, DecodeError> {
        let mut rest = Reader::new(contents);
        while !rest.is_empty() {
            Attribute::decode_checked(&mut rest)?;
        }
        Ok(Self { ber: contents })
    }
}

impl<'a> Changes<'a> {
    /// Checks the contents of a modify request's changes.
    pub fn check(contents: &'a [u8]) -> Result<Self, DecodeError> {
        let mut rest = Reader::new(contents);
        while !rest.is_empty() {
            let mut change = rest.sequence("change")?;
            ModifyOperation::decode(&mut change)?;
            Attribute::decode_checked(&mut change)?;
            change.ignore_rest("change")?;
        }
        Ok(Self { ber: contents })
    }
}

impl<'a> Attribute<'a> {
    fn decode(rest: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut attribute = rest.sequence("attribute")?;
        let description = attribute.string("type")?;
        let values = Values { ber: attribute.expect(Tag::SET, "vals")? };
        attribute.ignore_rest("attribute")?;
        Ok(Self { description, values })
    }

    fn decode_checked(rest: &mut Reader<'a>) -> Result<(), DecodeError> {
        let mut attribute = rest.sequence("attribute")?;
        attribute.text("type")?;
        let values = attribute.expect(Tag::SET, "vals")?;
        attribute.ignore_rest("attribute")?;
        Values::check(values)?;
        Ok(())
    }
}

impl<'a> Change<'a> {
    fn decode(rest: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut change = rest.sequence("change")?;
        let operation = ModifyOperation::decode(&mut change)?;
        Ok(Self { operation, attribute: Attribute::decode(&mut change)? })
    }
}

impl ModifyOperation {
    fn decode(change: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match change.enumerated("operation")? {
            0 => Ok(Self::Add),
            1 => Ok(Self::Delete),
            2 => Ok(Self::Replace),
            3 => Ok(Self::Increment),
            other => Err(DecodeError::new("operation", Fault::UnknownChoice(other))),
        }
    }
}
