//! Whether the requester may: the questions that changes put to the access rules.

use larix_schema::NormalDn;
use larix_store::Snapshot;

use super::operator::{Held, Operator};
use super::prepare::Change;
use crate::access::{AccessTarget, Item, Privilege};
use crate::entry::reader::OwnedSource;
use crate::entry::{Entry, EntrySource};
use crate::fault::Fault;
use crate::neighbours::Facts;

impl<V: Snapshot> Operator<'_, V> {
    /// Whether no rule applies to the requester.
    pub(crate) fn is_root(&self) -> bool {
        self.envelope.derived || self.ground.policy.is_root(self.envelope.subject)
    }

    /// A new entry as a source of values.
    pub(crate) fn new_source<'e>(&'e self, entry: &'e Entry) -> OwnedSource<'e> {
        OwnedSource { schema: self.ground.schema, entry }
    }

    fn may(&self, dn: &NormalDn, entry: &dyn EntrySource, item: Item<'_>, privilege: Privilege) -> bool {
        let facts = Facts::new(&self.view, dn, entry);
        let target = AccessTarget { dn, entry: &facts };
        self.ground.policy.check(self.envelope.subject, &target, item, privilege)
    }

    /// Whether entries may be added below or taken from this one; without an entry, the root above the suffixes.
    pub(crate) fn may_change_children(
        &self,
        dn: &NormalDn,
        parent: Option<&Held<'_>>,
        privilege: Privilege,
    ) -> Result<bool, Fault> {
        if self.is_root() {
            return Ok(true);
        }
        Ok(match parent {
            Some(held) => self.may(dn, &self.reader(held)?, Item::Children, privilege),
            None => self.may(dn, &self.new_source(&Entry::default()), Item::Children, privilege),
        })
    }

    /// Whether the entry itself may be added, deleted or renamed.
    pub(crate) fn may_change_entry(
        &self,
        dn: &NormalDn,
        entry: &dyn EntrySource,
        privilege: Privilege,
    ) -> Result<bool, Fault> {
        Ok(self.is_root() || self.may(dn, entry, Item::Entry, privilege))
    }

    /// Whether all of the changes may be made.
    pub(crate) fn may_modify(
        &self,
        dn: &NormalDn,
        entry: &dyn EntrySource,
        changes: &[Change],
    ) -> Result<bool, Fault> {
        if self.is_root() {
            return Ok(true);
        }
        let facts = Facts::new(&self.view, dn, entry);
        let target = AccessTarget { dn, entry: &facts };
        let granted = |change: &Change, value: Option<&[u8]>, privilege| {
            let item = Item::Attribute { description: &change.description, value };
            self.ground.policy.check(self.envelope.subject, &target, item, privilege)
        };
        Ok(changes
            .iter()
            .all(|change| change.is_granted(|value, privilege| granted(change, value, privilege))))
    }
}
