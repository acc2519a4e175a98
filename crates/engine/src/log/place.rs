//! The place of an entry as a record of the change log holds it.

use larix_schema::Schema;
use uuid::Uuid;

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPlace {
    /// The entryUUID of the nearest superior that is no glue.
    pub superior: Uuid,
    /// The DN below that: the RDN, then those of glue between.
    pub name: String,
}

impl EntryPlace {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.superior.as_bytes().to_vec();
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    /// `None`: it is none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (superior, name) = bytes.split_first_chunk::<16>()?;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        Some(Self { superior: Uuid::from_bytes(*superior), name })
    }

    /// Whether both mean the same place, however they are spelt.
    pub(crate) fn is(&self, schema: &Schema, other: &Self) -> bool {
        let same_name = || {
            let normal = schema.parse_dn(&self.name).ok();
            normal.is_some() && normal == schema.parse_dn(&other.name).ok()
        };
        self.superior == other.superior && (self.name == other.name || same_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let place = EntryPlace { superior: Uuid::from_u128(7), name: "cn=a,ou=b".to_owned() };
        assert_eq!(EntryPlace::decode(&place.encode()), Some(place));
        let long = [b'x'; 17];
        for (bytes, is_place) in
            [(&long[..15], false), (&long[..16], true), (&long, true), (&[0xff; 17], false)]
        {
            assert_eq!(EntryPlace::decode(bytes).is_some(), is_place, "{bytes:?}");
        }
    }
}
