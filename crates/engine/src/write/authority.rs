//! Whether the requester may: the questions that changes put to the access rules.

use std::cell::Cell;

use larix_schema::{AttributeDescription, BoundFilter, Match, NormalDn, Schema};
use larix_store::Snapshot;

use super::operator::{Held, Operator};
use super::prepare::{Change, ChangeKind, Standing};
use crate::access::{AccessTarget, EntryFacts, GroupQuery, Item, Privilege};
use crate::database::View;
use crate::entry::reader::OwnedSource;
use crate::entry::{Entry, EntrySource, Target};
use crate::fault::Fault;
use crate::search::filter::{Filter, FilterContext};
use crate::tree;

/// What access rules may ask of an entry, stored or not, in a view.
pub(crate) struct Facts<'a, V> {
    view: &'a View<'a, V>,
    dn: &'a NormalDn,
    entry: &'a dyn EntrySource,
    failed: Cell<bool>,
}

impl<'a, V: Snapshot> Facts<'a, V> {
    pub(crate) fn new(view: &'a View<'a, V>, dn: &'a NormalDn, entry: &'a dyn EntrySource) -> Self {
        Self { view, dn, entry, failed: Cell::new(false) }
    }

    fn or_failed<T>(&self, answer: Result<T, Fault>, otherwise: T) -> T {
        answer.unwrap_or_else(|_| {
            self.failed.set(true);
            otherwise
        })
    }

    fn find_member(&self, group: &GroupQuery<'_>, member: &NormalDn) -> Result<bool, Fault> {
        let Some(id) = self.view.resolve(group.group)?.and_then(|resolved| resolved.id) else {
            return Ok(false);
        };
        let Some(record) = self.view.record(id)? else { return Ok(false) };
        let reader = self.view.reader(id, &record)?;
        let schema = &self.view.schema;
        let mut of_class = false;
        if let Ok(object_class) = schema.describe("objectClass") {
            reader.visit_description(&object_class, &mut |value| {
                let class = std::str::from_utf8(value).ok().and_then(|name| schema.object_class(name));
                of_class |=
                    class.is_some_and(|c| c.id == group.class || schema.is_subclass(c.id, group.class));
                !of_class
            })?;
        }
        if !of_class {
            return Ok(false);
        }
        let target = Target::new(schema, &self.view.catalog, group.attribute.clone());
        if let Some(found) = reader.large_member(&target, member.as_str().as_bytes())? {
            return Ok(found);
        }
        let mut found = false;
        reader.visit(&target, &mut |value| {
            let value = std::str::from_utf8(value).ok().and_then(|value| schema.parse_dn(value).ok());
            found = value.as_ref() == Some(member);
            !found
        })?;
        Ok(found)
    }
}

impl<V: Snapshot> EntryFacts for Facts<'_, V> {
    fn visit(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        self.or_failed(self.entry.visit_description(attribute, visit), ());
    }

    fn matches(&self, filter: &BoundFilter) -> Match {
        let filter = Filter::new(&self.view.schema, &self.view.catalog, filter.clone());
        self.or_failed(filter.matches(self, self.entry), Match::Undefined)
    }

    fn is_member(&self, group: &GroupQuery<'_>, member: &NormalDn) -> bool {
        self.or_failed(self.find_member(group, member), false)
    }

    fn failed(&self) -> bool {
        self.failed.get()
    }
}

/// Filters of access rules are evaluated without regard to access.
impl<V: Snapshot> FilterContext for Facts<'_, V> {
    fn schema(&self) -> &Schema {
        &self.view.schema
    }

    fn may_search(&self, _: &AttributeDescription, _: Option<&[u8]>) -> Result<bool, Fault> {
        Ok(true)
    }

    fn normal_dn(&self) -> Result<NormalDn, Fault> {
        Ok(self.dn.clone())
    }

    fn has_subordinates(&self) -> Result<bool, Fault> {
        match self.view.resolve(self.dn)?.and_then(|resolved| resolved.id) {
            Some(id) => tree::has_children(self.view.snapshot, id),
            None => Ok(false),
        }
    }

    fn may_search_all(&self) -> bool {
        true
    }
}

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

    /// Whether all of the changes may be made: the values that come and go, each, and the whole attribute where all of
    /// it goes.
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
        Ok(changes.iter().all(|change| self.may_make(&target, change)))
    }

    fn may_make(&self, target: &AccessTarget<'_>, change: &Change) -> bool {
        let managing = match change.standing {
            Standing::Internal => return true,
            Standing::Managing => true,
            Standing::User => false,
        };
        let check = |value: Option<&[u8]>, privilege: Privilege| {
            let privilege = if managing { Privilege::Manage } else { privilege };
            let item = Item::Attribute { description: &change.description, value };
            self.ground.policy.check(self.envelope.subject, target, item, privilege)
        };
        let each = |privilege: Privilege| change.values.iter().all(|value| check(Some(value), privilege));
        match change.kind {
            ChangeKind::SoftAdd => true,
            ChangeKind::Add => each(Privilege::Add),
            ChangeKind::Delete if change.values.is_empty() => check(None, Privilege::Delete),
            ChangeKind::Delete => each(Privilege::Delete),
            ChangeKind::Replace | ChangeKind::Increment => {
                check(None, Privilege::Delete) && each(Privilege::Add)
            }
        }
    }
}
