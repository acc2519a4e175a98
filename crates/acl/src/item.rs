//! The parts of an entry that a question is about, and what can be said of many at once.

use larix_schema::AttributeDescription;

/// What of an entry is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// The entry itself, the pseudo-attribute `entry`.
    Entry,
    /// Its place as a superior, the pseudo-attribute `children`.
    Children,
    /// An attribute: one value of it, or (`None`) the attribute as a whole; rules about values do not apply then.
    Attribute { description: &'a AttributeDescription, value: Option<&'a [u8]> },
}

impl<'a> Item<'a> {
    pub(super) fn split(self) -> (ItemKind<'a>, Value<'a>) {
        match self {
            Item::Entry => (ItemKind::Entry, Value::Whole),
            Item::Children => (ItemKind::Children, Value::Whole),
            Item::Attribute { description, value } => {
                (ItemKind::Attribute(description), value.map_or(Value::Whole, Value::Is))
            }
        }
    }
}

/// An [`Item`] without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind<'a> {
    Entry,
    Children,
    Attribute(&'a AttributeDescription),
}

/// What can be said before an entry or a value is at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Granted,
    Denied,
    /// It depends on the entry, but not on the values: check each entry with `value: None`.
    PerEntry,
    /// It depends on the value: check each.
    PerValue,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Unknown,
    /// The attribute as a whole: rules about values are passed over.
    Whole,
    Is(&'a [u8]),
}

/// Attributes, `entry` or `children`, that the same rules speak about: whatever is said of one holds for the others, as
/// long as no value matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemClass(pub(super) u16);

impl ItemClass {
    #[inline]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}
