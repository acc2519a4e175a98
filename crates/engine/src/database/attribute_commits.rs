//! Which commits have changed the values of an indexed attribute: for who remembers what it computed from some attributes.
//!
//! Nothing is noted before a search asks. The writer notes a commit before it makes it, so that a reader of the commit finds the note.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use larix_store::WriteSet;

use crate::entry::AttributeNumber;
use crate::index::key;
use crate::tables::{INDEX, META, meta};

/// The commits under one schema and one set of settings.
#[derive(Debug, Default)]
pub(crate) struct AttributeCommits {
    is_asked: AtomicBool,
    commits: Mutex<Commits>,
}

#[derive(Debug, Default)]
struct Commits {
    /// All commits after this one up to `last` are noted.
    since: u64,
    last: u64,
    /// The last one that changed values of an attribute.
    values: HashMap<AttributeNumber, u64>,
    /// The last one that added entries.
    added: u64,
    /// The last one that renamed, moved or deleted any.
    tree_changed: u64,
}

impl AttributeCommits {
    /// What a commit is going to change; `before` is the number of the commit before it. One that fails may be noted.
    pub(crate) fn note(&self, before: u64, set: &WriteSet) {
        if !self.is_asked.load(Ordering::Acquire) {
            return;
        }
        let number = before + 1;
        // A panic of another thread leaves at worst a note too few of a commit that was not made.
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        if commits.last != before && commits.last != number {
            // Commits were made that were not noted.
            *commits = Commits { since: before, ..Commits::default() };
        }
        commits.last = number;
        for (key, _) in set.postings(INDEX) {
            if let Some((attribute, _)) = key::parse_head(key) {
                commits.values.insert(attribute, number);
            }
        }
        if set.get(META, meta::LAST_ENTRY_ID).is_some() {
            commits.added = number;
        }
        if set.get(META, meta::TREE_GENERATION).is_some() {
            commits.tree_changed = number;
        }
    }

    /// Whether no commit after `from` up to `until` changed values of the attributes, whose equality indexes are kept; with `names` also:
    /// renamed, moved or deleted an entry; with `added`: added one. False where that is not known.
    pub(crate) fn is_unchanged(
        &self,
        (from, until): (u64, u64),
        (added, names): (bool, bool),
        mut attributes: impl Iterator<Item = AttributeNumber>,
    ) -> bool {
        if !self.is_asked.swap(true, Ordering::AcqRel) {
            return false;
        }
        let commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let is_noted = commits.since <= from && until <= commits.last;
        let is_before = |number: u64| number <= from;
        is_noted
            && (!names || is_before(commits.tree_changed))
            && (!added || is_before(commits.added))
            && attributes.all(|number| commits.values.get(&number).copied().is_none_or(is_before))
    }
}

/// Whether changes that are not committed yet alter what [`AttributeCommits::is_unchanged`] asks about.
pub(crate) fn is_altered(
    set: &WriteSet,
    (added, names): (bool, bool),
    mut attributes: impl Iterator<Item = AttributeNumber>,
) -> bool {
    added && set.get(META, meta::LAST_ENTRY_ID).is_some()
        || names && set.get(META, meta::TREE_GENERATION).is_some()
        || attributes.any(|number| set.edits_postings_below(INDEX, &number.0.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

    use super::*;
    use crate::index::KeyKind;

    fn changing(attribute: u32) -> WriteSet {
        let mut set = WriteSet::new();
        let mut key = attribute.to_be_bytes().to_vec();
        key.push(KeyKind::Equality as u8);
        set.add_posting(INDEX, &key, 1);
        set
    }

    #[test]
    fn commits_are_told_apart_by_what_they_change() {
        let attribute_commits = AttributeCommits::default();
        let unchanged = |range, added, number| {
            attribute_commits.is_unchanged(range, (added, true), std::iter::once(AttributeNumber(number)))
        };
        // Before the first question nothing is noted.
        attribute_commits.note(9, &changing(1));
        assert!(!unchanged((10, 10), false, 2));
        attribute_commits.note(10, &changing(1));
        attribute_commits.note(11, &changing(2));
        let mut other = WriteSet::new();
        other.put(META, meta::LAST_ENTRY_ID, 7_u64.to_be_bytes());
        attribute_commits.note(12, &other);
        for (range, added, number, expected) in [
            ((11, 13), false, 1, true),
            ((10, 13), false, 1, false),
            ((11, 13), false, 2, false),
            ((12, 13), false, 2, true),
            ((12, 13), true, 2, false),
            ((13, 13), true, 2, true),
            ((9, 13), false, 3, false),
            ((12, 14), false, 3, false),
        ] {
            assert_eq!(unchanged(range, added, number), expected, "{range:?} {added} {number}");
        }
        let mut set = WriteSet::new();
        set.put(META, meta::TREE_GENERATION, 7_u64.to_be_bytes());
        attribute_commits.note(13, &set);
        assert!(!unchanged((13, 14), false, 3));
        assert!(attribute_commits.is_unchanged((13, 14), (true, false), std::iter::once(AttributeNumber(3))));
        // A commit by another way: all is forgotten.
        attribute_commits.note(15, &changing(1));
        assert!(!unchanged((14, 16), false, 3));
        assert!(unchanged((15, 16), false, 3));
    }
    #[test]
    fn changes_that_are_laid_over_are_told_apart() {
        let mut names = WriteSet::new();
        names.put(META, meta::TREE_GENERATION, 7_u64.to_be_bytes());
        for (set, scope, number, expected) in [
            (&changing(2), (true, true), 2, true),
            (&changing(2), (true, true), 1, false),
            (&changing(2), (true, true), 3, false),
            (&names, (true, true), 2, true),
            (&names, (true, false), 2, false),
        ] {
            let altered = is_altered(set, scope, std::iter::once(AttributeNumber(number)));
            assert_eq!(altered, expected, "{scope:?} {number}");
        }
    }
}
