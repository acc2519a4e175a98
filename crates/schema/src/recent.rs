//! Attribute types by the names that came lately: requests name the same few again and again. Each thread remembers some, in the letter
//! case in which they came.

use std::cell::RefCell;

use crate::model::AttributeTypeId;
use crate::schema::Schema;

/// Names that a thread remembers, each in the place that its length, its first and its last octet give: `cn` and `sn` have two, and so
/// have `uidNumber` and `gidNumber`.
const NAMES: usize = 32;
/// Longer ones are not remembered.
const NAME_BYTES_MAX: usize = 32;

#[derive(Copy, Clone)]
struct RecentName {
    /// The [instance](Schema::instance) of the schema.
    schema: u64,
    /// Length of the name in bytes; `usize::MAX` where no name is.
    length: usize,
    name: [u8; NAME_BYTES_MAX],
    id: AttributeTypeId,
}

thread_local! {
    static RECENT: RefCell<[RecentName; NAMES]> = const {
        const NONE: RecentName =
            RecentName { schema: 0, length: usize::MAX, name: [0; NAME_BYTES_MAX], id: AttributeTypeId(0) };
        RefCell::new([NONE; NAMES])
    };
}

impl Schema {
    /// As [`Self::attribute_type_id_of`], for names that requests have. A schema is not changed once it is built, and no other one has its
    /// instance: what was found stays right.
    pub(crate) fn recent_attribute_type_id(&self, name: &[u8]) -> Option<AttributeTypeId> {
        let (first, last) = (usize::from(*name.first()?), usize::from(*name.last()?));
        RECENT.with_borrow_mut(|all| {
            let place = all.get_mut((name.len() + 11 * first + 31 * last) % NAMES)?;
            if place.schema == self.instance && place.name.get(..place.length) == Some(name) {
                return Some(place.id);
            }
            let id = self.attribute_type_id_of(name)?;
            if let Some(room) = place.name.get_mut(..name.len()) {
                room.copy_from_slice(name);
                (place.schema, place.length, place.id) = (self.instance, name.len(), id);
            }
            Some(id)
        })
    }
}
