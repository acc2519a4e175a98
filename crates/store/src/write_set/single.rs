//! Single changes to the records of one table, in key order. Most commits change one record or two of a table.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::slice;

use smallvec::SmallVec;

use super::Key;
use super::rows::RecordChange;

/// A new value, or none where the record is removed.
pub(super) type Value = Option<Box<[u8]>>;

/// So many are kept in a list; more are kept in a tree, since each would have to find its place in a list.
const FEW: usize = 8;

/// What becomes of each key.
#[derive(Clone, Debug)]
pub(super) enum Single {
    /// Ascending.
    Few(SmallVec<[(Key, Value); 1]>),
    Many(BTreeMap<Key, Value>),
}

impl Default for Single {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl Single {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Few(few) => few.is_empty(),
            Self::Many(many) => many.is_empty(),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Value> {
        match self {
            Self::Few(few) => place(few, key).ok().and_then(|at| few.get(at)).map(|(_, value)| value),
            Self::Many(many) => many.get(key),
        }
    }

    /// Makes a change. Answers the one that it replaces.
    pub(super) fn insert(&mut self, key: Key, value: Value) -> Option<Value> {
        let few = match self {
            Self::Few(few) => few,
            Self::Many(many) => return many.insert(key, value),
        };
        match place(few, &key) {
            Ok(at) => few.get_mut(at).map(|(_, known)| std::mem::replace(known, value)),
            Err(at) if few.len() < FEW => {
                few.insert(at, (key, value));
                None
            }
            Err(_) => {
                let mut many: BTreeMap<Key, Value> = std::mem::take(few).into_iter().collect();
                many.insert(key, value);
                *self = Self::Many(many);
                None
            }
        }
    }

    /// Takes a change back.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Value> {
        match self {
            Self::Few(few) => place(few, key).ok().map(|at| few.remove(at).1),
            Self::Many(many) => many.remove(key),
        }
    }

    pub(super) fn iter(&self) -> Changes<'_> {
        match self {
            Self::Few(few) => Changes::Few(few.iter()),
            Self::Many(many) => Changes::Many(many.range::<[u8], _>(..)),
        }
    }

    /// The changes within these bounds, which are in order.
    pub(super) fn range(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Changes<'_> {
        let few = match self {
            Self::Few(few) => few,
            Self::Many(many) => return Changes::Many(many.range::<[u8], _>(bounds)),
        };
        let below = |key: &[u8], and_equal: bool| {
            few.partition_point(|(known, _)| match known.as_slice().cmp(key) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => and_equal,
                std::cmp::Ordering::Greater => false,
            })
        };
        let start = match bounds.0 {
            Bound::Unbounded => 0,
            Bound::Included(key) => below(key, false),
            Bound::Excluded(key) => below(key, true),
        };
        let end = match bounds.1 {
            Bound::Unbounded => few.len(),
            Bound::Included(key) => below(key, true),
            Bound::Excluded(key) => below(key, false),
        };
        Changes::Few(few.get(start..end).unwrap_or_default().iter())
    }

    /// Gives all changes away, in key order.
    pub(super) fn into_each(self, mut take: impl FnMut(Key, Value)) {
        match self {
            Self::Few(few) => few.into_iter().for_each(|(key, value)| take(key, value)),
            Self::Many(many) => many.into_iter().for_each(|(key, value)| take(key, value)),
        }
    }
}

/// Where a key is, or where it belongs.
fn place(few: &[(Key, Value)], key: &[u8]) -> Result<usize, usize> {
    few.binary_search_by(|(known, _)| known.as_slice().cmp(key))
}

/// Changes in key order.
#[derive(Clone, Debug)]
pub(super) enum Changes<'a> {
    Few(slice::Iter<'a, (Key, Value)>),
    Many(btree_map::Range<'a, Key, Value>),
}

/// None.
impl Default for Changes<'_> {
    fn default() -> Self {
        Self::Few(<&[(Key, Value)]>::default().iter())
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = RecordChange<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(few) => few.next().map(|(key, value)| (key.as_slice(), value.as_deref())),
            Self::Many(many) => many.next().map(|(key, value)| (key.as_slice(), value.as_deref())),
        }
    }
}

impl DoubleEndedIterator for Changes<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(few) => few.next_back().map(|(key, value)| (key.as_slice(), value.as_deref())),
            Self::Many(many) => many.next_back().map(|(key, value)| (key.as_slice(), value.as_deref())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does the same to these changes and to a tree, from few to many, and compares them.
    #[test]
    fn few_and_many_are_alike() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for round in 0..200 {
            let (mut changes, mut tree) = (Single::default(), BTreeMap::<Key, Value>::new());
            for step in 0..40_u8 {
                // Few keys at first, so that some come again.
                let key = [random(u64::from(3 + step)) as u8, 7];
                let value: Value = (random(3) > 0).then(|| Box::from([step]));
                let (own, expected) = match random(4) {
                    0 => (changes.remove(&key), tree.remove(&key[..])),
                    _ => {
                        let key = Key::from_slice(&key);
                        (changes.insert(key.clone(), value.clone()), tree.insert(key, value))
                    }
                };
                assert_eq!(own, expected, "{round} {step}");
                assert_eq!((changes.get(&key), changes.is_empty()), (tree.get(&key[..]), tree.is_empty()));
                let pair = |(key, value): (&Key, &Value)| (key.to_vec(), value.clone());
                let own_pair = |(key, value): RecordChange<'_>| (key.to_vec(), value.map(Box::<[u8]>::from));
                assert!(changes.iter().map(own_pair).eq(tree.iter().map(pair)), "{round} {step}");
                let (low, high) = ([random(20) as u8], [20 + random(30) as u8, 7]);
                for start in [Bound::Unbounded, Bound::Included(&low[..]), Bound::Excluded(&low[..])] {
                    for end in [Bound::Unbounded, Bound::Included(&high[..]), Bound::Excluded(&high[..])] {
                        let expected: Vec<_> = tree.range::<[u8], _>((start, end)).map(pair).collect();
                        let own: Vec<_> = changes.range((start, end)).map(own_pair).collect();
                        assert_eq!(own, expected, "{round} {step}");
                        let backward: Vec<_> = changes.range((start, end)).rev().map(own_pair).collect();
                        assert!(backward.iter().eq(expected.iter().rev()), "{round} {step}");
                    }
                }
            }
            let mut all = BTreeMap::new();
            changes.into_each(|key, value| drop(all.insert(key, value)));
            assert_eq!(all, tree, "{round}");
        }
    }
}
