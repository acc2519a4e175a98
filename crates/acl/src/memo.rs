//! What was found out once and holds on: for one subject under one policy in one snapshot.

use std::cell::{Cell, RefCell};

use larix_schema::{AttributeDescription, NormalDn, ObjectClassId};

use super::query::GroupQuery;

/// Conditions a [`Memo`] has room for; those beyond are evaluated each time.
pub(super) const MEMO_CONDITIONS: u32 = 64;
/// Groups named by a pattern that are kept.
const GROUPS_MAX: usize = 32;

/// Answers about the subject that do not depend on the entry under protection: groups, sets, patterns.
///
/// Good for one subject, one policy and one snapshot: its holder must see to that.
#[derive(Debug, Default)]
pub struct Memo {
    known: Cell<u64>,
    holds: Cell<u64>,
    groups: RefCell<Vec<(NormalDn, ObjectClassId, AttributeDescription, bool)>>,
}

impl Memo {
    pub(super) fn condition(&self, number: u32) -> Option<bool> {
        let bit = 1u64.checked_shl(number)?;
        (self.known.get() & bit != 0).then(|| self.holds.get() & bit != 0)
    }

    pub(super) fn note_condition(&self, number: u32, holds: bool) {
        let Some(bit) = 1u64.checked_shl(number) else { return };
        self.known.set(self.known.get() | bit);
        if holds {
            self.holds.set(self.holds.get() | bit);
        }
    }

    pub(super) fn group(&self, query: &GroupQuery<'_>) -> Option<bool> {
        let same = |(group, class, attribute, _): &&(NormalDn, ObjectClassId, AttributeDescription, bool)| {
            group == query.group && *class == query.class && attribute == query.attribute
        };
        self.groups.borrow().iter().find(same).map(|(.., member)| *member)
    }

    pub(super) fn note_group(&self, query: &GroupQuery<'_>, member: bool) {
        let mut known = self.groups.borrow_mut();
        // Rules with `expand` may name a group an entry.
        if known.len() >= GROUPS_MAX {
            known.clear();
        }
        known.push((query.group.clone(), query.class, query.attribute.clone(), member));
    }
}
