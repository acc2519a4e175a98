//! A change as it comes: owned, so that it can wait in a queue.

use larix_proto::ldif::{Body, Change, LdifAttribute, Record};
use larix_proto::{AddRequest, Attribute, ModifyDnRequest, ModifyOperation, ModifyRequest};

/// A change of the directory, as requested: nothing of it has been checked.
#[derive(Clone, Debug)]
pub enum WriteOperation {
    Add { entry: String, attributes: Vec<AttributeValues> },
    Modify { object: String, changes: Vec<Modification> },
    Delete { entry: String },
    ModifyDn { entry: String, new_rdn: String, delete_old_rdn: bool, new_superior: Option<String> },
}

/// What an LDIF record asks for; a record without `changetype:` is an entry to add. Its controls are not looked at.
impl From<Record> for WriteOperation {
    fn from(record: Record) -> Self {
        let values = |a: LdifAttribute| AttributeValues { description: a.description, values: a.values };
        let entry = record.dn;
        match record.body {
            Body::Content(attributes) | Body::Change { change: Change::Add(attributes), .. } => {
                Self::Add { entry, attributes: attributes.into_iter().map(values).collect() }
            }
            Body::Change { change: Change::Delete, .. } => Self::Delete { entry },
            Body::Change { change: Change::Modify(changes), .. } => Self::Modify {
                object: entry,
                changes: changes
                    .into_iter()
                    .map(|change| Modification {
                        operation: change.operation,
                        attribute: AttributeValues { description: change.description, values: change.values },
                    })
                    .collect(),
            },
            Body::Change { change: Change::ModifyDn { new_rdn, delete_old_rdn, new_superior }, .. } => {
                Self::ModifyDn { entry, new_rdn, delete_old_rdn, new_superior }
            }
        }
    }
}

/// An attribute description and values, as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeValues {
    pub description: String,
    pub values: Vec<Vec<u8>>,
}

/// One change of a modify request, as sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modification {
    pub operation: ModifyOperation,
    pub attribute: AttributeValues,
}

impl WriteOperation {
    /// Bytes that it holds: names, values, and what it takes to keep each.
    pub fn bytes(&self) -> usize {
        let attribute = |attribute: &AttributeValues| {
            let values: usize = attribute.values.iter().map(|value| value.len() + PIECE_BYTES).sum();
            attribute.description.len() + PIECE_BYTES + values
        };
        let content_bytes = match self {
            Self::Add { attributes, .. } => attributes.iter().map(attribute).sum(),
            Self::Modify { changes, .. } => changes.iter().map(|change| attribute(&change.attribute)).sum(),
            Self::Delete { .. } => 0,
            Self::ModifyDn { new_rdn, new_superior, .. } => {
                new_rdn.len() + new_superior.as_ref().map_or(0, String::len)
            }
        };
        self.target().len() + PIECE_BYTES + content_bytes
    }

    /// How many parts it has.
    pub(crate) fn counts(&self) -> Counts {
        match self {
            Self::Add { attributes, .. } => {
                let values = attributes.iter().map(|a| a.values.len()).sum();
                Counts { attributes: attributes.len(), values, ..Counts::default() }
            }
            Self::Modify { changes, .. } => {
                let values = changes.iter().map(|change| change.attribute.values.len()).sum();
                Counts { modifications: changes.len(), values, ..Counts::default() }
            }
            Self::Delete { .. } | Self::ModifyDn { .. } => Counts::default(),
        }
    }
}

/// How many parts an operation has.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) modifications: usize,
    /// In all.
    pub(crate) values: usize,
    /// Of an entry to be added, each with a description of its own.
    pub(crate) attributes: usize,
}

/// What a name or a value takes beside its bytes: where it is, how long, and the allocator's share.
const PIECE_BYTES: usize = 40;

impl From<Attribute<'_>> for AttributeValues {
    fn from(attribute: Attribute<'_>) -> Self {
        Self {
            description: attribute.description.to_owned(),
            values: attribute.values.iter().map(<[u8]>::to_vec).collect(),
        }
    }
}

impl From<AddRequest<'_>> for WriteOperation {
    fn from(request: AddRequest<'_>) -> Self {
        let attributes = request.attributes.iter().map(AttributeValues::from).collect();
        Self::Add { entry: request.entry.to_owned(), attributes }
    }
}

impl From<ModifyRequest<'_>> for WriteOperation {
    fn from(request: ModifyRequest<'_>) -> Self {
        let change = |change: larix_proto::Change<'_>| Modification {
            operation: change.operation,
            attribute: change.attribute.into(),
        };
        Self::Modify {
            object: request.object.to_owned(),
            changes: request.changes.iter().map(change).collect(),
        }
    }
}

impl From<ModifyDnRequest<'_>> for WriteOperation {
    fn from(request: ModifyDnRequest<'_>) -> Self {
        Self::ModifyDn {
            entry: request.entry.to_owned(),
            new_rdn: request.new_rdn.to_owned(),
            delete_old_rdn: request.delete_old_rdn,
            new_superior: request.new_superior.map(str::to_owned),
        }
    }
}

impl WriteOperation {
    /// The DN that the change is about, as sent.
    pub fn target(&self) -> &str {
        match self {
            Self::Add { entry, .. } | Self::Delete { entry } | Self::ModifyDn { entry, .. } => entry,
            Self::Modify { object, .. } => object,
        }
    }
}
