//! The values of an attribute that is to be a large set, as the table `values` will have them.

use larix_schema::{AttributeType, Schema};
use larix_store::SortedRows;

use super::values::member_key_of_normal_into;

/// The members of a large set, by their keys and ascending. Made from a request before the writer has it: what takes the most time
/// of a large change, the normal form of each value and their order, needs no entry.
#[derive(Clone, Debug)]
pub struct Members(SortedRows);

impl Members {
    /// Of values and their equality keys, in the same order. `None`: they cannot be a large set.
    pub(crate) fn new(kind: &AttributeType, values: &[Vec<u8>], normal: &[Vec<u8>]) -> Option<Self> {
        kind.equality?;
        if values.len() != normal.len() || !may_be_large(kind) {
            return None;
        }
        let bytes: usize = normal.iter().map(|normal| normal.len() + KEY_OVERHEAD).sum();
        let mut keys = Vec::with_capacity(bytes);
        let mut order = Vec::with_capacity(values.len());
        for (normal, value) in normal.iter().zip(values) {
            let start = keys.len();
            member_key_of_normal_into(&mut keys, normal);
            order.push((start..keys.len(), value));
        }
        let key = |range: &std::ops::Range<usize>| keys.get(range.clone()).unwrap_or_default();
        order.sort_unstable_by(|(one, _), (other, _)| key(one).cmp(key(other)));
        let bytes = keys.len() + values.iter().map(Vec::len).sum::<usize>();
        let mut rows = SortedRows::with_capacity(values.len(), bytes);
        order.iter().for_each(|(range, value)| rows.push(&[], key(range), Some(value)));
        // Equal values: what was given is kept as it was given.
        rows.is_sorted().then_some(Self(rows))
    }

    /// Each key and value.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.0.iter().map(|(member, value)| (member, value.unwrap_or_default()))
    }

    /// These members and those of a stored set, which `visit` gives in their order.
    ///
    /// # Errors
    /// Those of `visit`.
    pub(crate) fn joined<E>(
        &self,
        visit: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<(), E>,
    ) -> Result<Joined, E> {
        let mut rows = SortedRows::with_capacity(2 * self.0.len(), 2 * self.0.byte_len());
        let (mut both, mut own) = (Vec::new(), self.iter().peekable());
        visit(&mut |stored, value| {
            while let Some((member, value)) = own.next_if(|(member, _)| *member < stored) {
                rows.push(&[], member, Some(value));
            }
            rows.push(&[], stored, Some(value));
            if own.next_if(|(member, _)| *member == stored).is_some() {
                both.push(stored.to_vec());
            }
        })?;
        own.for_each(|(member, value)| rows.push(&[], member, Some(value)));
        Ok(Joined { members: Self(rows), both })
    }

    /// The members of a stored set, which `visit` gives in their order, but for these; and how many of these it has.
    ///
    /// # Errors
    /// Those of `visit`.
    pub(crate) fn left_of<E>(
        &self,
        visit: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<(), E>,
    ) -> Result<(Self, u64), E> {
        let mut rows = SortedRows::default();
        let (mut found, mut own) = (0, self.iter().peekable());
        visit(&mut |stored, value| {
            while own.next_if(|(member, _)| *member < stored).is_some() {}
            if own.next_if(|(member, _)| *member == stored).is_some() {
                found += 1;
            } else {
                rows.push(&[], stored, Some(value));
            }
        })?;
        Ok((Self(rows), found))
    }

    /// Whether there is a value with this [member key](super::values::member_key).
    pub(crate) fn contains(&self, member: &[u8]) -> bool {
        self.0.get(member).is_some()
    }

    /// How many values.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// A stored set with new members.
#[derive(Debug)]
pub struct Joined {
    pub(crate) members: Members,
    /// The keys of those that were there before, ascending: they are as they are stored.
    pub(crate) both: Vec<Vec<u8>>,
}

/// What a key has beside its normal value, unless something is escaped in it.
const KEY_OVERHEAD: usize = 2;

/// Whether values of this type may be a large set.
pub(crate) fn may_be_large(kind: &AttributeType) -> bool {
    // Superior classes count as values. Modifications in the access log have an order, and the same line may come twice.
    kind.equality.is_some() && !matches!(kind.name(), "objectClass" | "reqMod" | "reqOld")
}

/// The members that `values` would be, where they are not known yet.
pub(crate) fn members_of(schema: &Schema, kind: &AttributeType, values: &[Vec<u8>]) -> Option<Members> {
    let rule = kind.equality?;
    let normal = |value: &Vec<u8>| {
        let mut normal = Vec::with_capacity(value.len());
        rule.normalize_value(schema, value, &mut normal).ok()?;
        Some(normal)
    };
    Members::new(kind, values, &values.iter().map(normal).collect::<Option<Vec<_>>>()?)
}
