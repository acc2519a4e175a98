//! Candidate sets.

use roaring::RoaringTreemap;

use crate::entry::EntryId;

/// How exactly a candidate set answers the filter: the check that it still needs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exactness {
    /// Every match of the filter is in the set, and nothing else, in the snapshot that it was made from.
    Exact,
    /// Every match is in the set; each candidate has to be verified.
    Partial,
    /// The filter says nothing: everything in scope has to be verified.
    All,
}

/// Entry ids, ascending.
#[derive(Clone, Debug)]
pub enum IdSet {
    /// All entries there are.
    Everything,
    List(Vec<u64>),
    Set(RoaringTreemap),
}

impl Default for IdSet {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// Ids that may match, and the check that they still need.
#[derive(Clone, Debug)]
pub struct Candidates {
    pub ids: IdSet,
    pub exactness: Exactness,
    /// The term of the filter, which is an AND, that holds for every candidate in the snapshot that they were made from.
    pub proved: Option<usize>,
}

impl Candidates {
    pub fn new(ids: IdSet, exactness: Exactness) -> Self {
        Self { ids, exactness, proved: None }
    }

    pub fn everything() -> Self {
        Self::new(IdSet::Everything, Exactness::All)
    }

    pub fn none() -> Self {
        Self::new(IdSet::default(), Exactness::Exact)
    }

    /// How many; `None` when they are not counted.
    pub fn len(&self) -> Option<u64> {
        match &self.ids {
            IdSet::Everything => None,
            IdSet::List(list) => Some(list.len() as u64),
            IdSet::Set(set) => Some(set.len()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl IdSet {
    /// The first id after `last`; of [`IdSet::Everything`] whatever comes next, which may not exist.
    pub fn after(&self, last: EntryId) -> Option<EntryId> {
        match self {
            Self::Everything => last.0.checked_add(1).map(EntryId),
            Self::List(list) => {
                let at = list.partition_point(|id| *id <= last.0);
                list.get(at).copied().map(EntryId)
            }
            Self::Set(set) => {
                let mut rest = set.iter();
                rest.advance_to(last.0.checked_add(1)?);
                rest.next().map(EntryId)
            }
        }
    }

    pub fn contains(&self, id: EntryId) -> bool {
        match self {
            Self::Everything => true,
            Self::List(list) => list.binary_search(&id.0).is_ok(),
            Self::Set(set) => set.contains(id.0),
        }
    }

    /// Appends up to `limit` ids after `last` to `out`, ascending. Not for [`IdSet::Everything`].
    pub(crate) fn read_after(&self, last: EntryId, limit: usize, out: &mut impl Extend<EntryId>) {
        match self {
            Self::Everything => {}
            Self::List(list) => {
                let at = list.partition_point(|id| *id <= last.0);
                out.extend(list.iter().skip(at).take(limit).copied().map(EntryId));
            }
            Self::Set(set) => {
                let Some(from) = last.0.checked_add(1) else { return };
                let mut rest = set.iter();
                rest.advance_to(from);
                out.extend(rest.take(limit).map(EntryId));
            }
        }
    }

    pub(crate) fn into_treemap(self) -> Option<RoaringTreemap> {
        match self {
            Self::Everything => None,
            Self::List(list) => Some(list.into_iter().collect()),
            Self::Set(set) => Some(set),
        }
    }

    /// Both sets together.
    pub fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::Everything, _) | (_, Self::Everything) => Self::Everything,
            (Self::List(list), set) | (set, Self::List(list)) if list.is_empty() => set,
            (Self::List(mut a), Self::List(b)) if a.len() + b.len() <= LIST_LIMIT => {
                a.extend(b);
                a.sort_unstable();
                a.dedup();
                Self::List(a)
            }
            (a, b) => match (a.into_treemap(), b.into_treemap()) {
                (Some(a), Some(b)) => Self::Set(a | b),
                _ => Self::Everything,
            },
        }
    }
}

/// Ids kept as a plain list: more are kept in a compressed set.
pub(crate) const LIST_LIMIT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_in_order() {
        let list = IdSet::List(vec![2, 5, 9]);
        let set = IdSet::Set([2, 5, 9].into_iter().collect());
        for ids in [list, set] {
            for (last, expected) in [(0, Some(2)), (2, Some(5)), (4, Some(5)), (9, None), (u64::MAX, None)] {
                assert_eq!(ids.after(EntryId(last)), expected.map(EntryId), "{ids:?} after {last}");
            }
            let mut out = Vec::new();
            ids.read_after(EntryId(2), 5, &mut out);
            assert_eq!(out, [EntryId(5), EntryId(9)]);
            assert!(ids.contains(EntryId(5)) && !ids.contains(EntryId(6)));
        }
    }

    #[test]
    fn a_union_has_the_ids_of_both() {
        let list = |ids: &[u64]| IdSet::List(ids.to_vec());
        let big = IdSet::Set((0..10_000).collect());
        for (a, b, expected) in [
            (list(&[1, 3]), list(&[2, 3]), Some(3)),
            (list(&[]), big.clone(), Some(10_000)),
            (list(&[5, 20_000]), big, Some(10_001)),
            (list(&[1]), IdSet::Everything, None),
        ] {
            let union = Candidates::new(a.union(b), Exactness::Partial);
            assert_eq!(union.len(), expected);
        }
    }
}
