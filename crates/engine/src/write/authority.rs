//! Whether the requester may: the questions that changes put to the access rules.
//!
//! [`Authority::admits`] is asked first. Overlays see a request only once its requester may make it: what they say of the
//! target (its password, its history, that it exists) is for those alone who may change it.

use std::cell::Cell;

use larix_schema::NormalDn;
use larix_store::Snapshot;

use super::operator::{CurrentEntry, Operator};
use crate::access::{AccessTarget, Item, Privilege, Subject, Verdict};
use crate::budget::{Meter, RequestLimit};
use crate::change::prepare::{Change, PreparedChange, PreparedModifyDn};
use crate::database::View;
use crate::entry::reader::OwnedSource;
use crate::entry::{Entry, EntrySource};
use crate::fault::Fault;
use crate::filter::unless_overdrawn;
use crate::search::computed::Sight;
use crate::search::rule_facts::RuleFacts;

/// Values for which it pays to ask first whether the rules say the same of all of them, as most rules do.
const MANY_VALUES: usize = 8;

/// What the access rules grant a requester in one state of the database.
pub(crate) struct Authority<'a, 's, V> {
    pub(crate) view: &'a View<'s, V>,
    pub(crate) subject: &'a Subject,
}

impl<V: Snapshot> Authority<'_, '_, V> {
    /// Whether the requester may make this change, as far as the target, its superiors and the access rules tell. If not, the group
    /// carries the change out without overlays: that refuses it with the right result.
    ///
    /// # Errors
    /// A store that cannot be read; [`Fault::StepsSpent`] where the rules take more than a request may.
    pub(crate) fn admits(&self, operation: &PreparedChange) -> Result<bool, Fault> {
        if self.view.policy.is_root(self.subject) {
            return Ok(true);
        }
        match operation {
            PreparedChange::Add { dn, entry, mods } => self.admits_add(dn, entry, mods),
            PreparedChange::Modify { dn, mods } => {
                self.of(dn, |source| self.may_modify(dn, source, mods))?.unwrap_or(Ok(false))
            }
            PreparedChange::Delete { dn } => Ok(self.may_take_from_parent(dn, Privilege::Delete)?
                && self.may_with_entry(dn, Item::Entry, Privilege::Delete)?),
            PreparedChange::ModifyDn(rename) => self.admits_rename(rename),
            // The server's own.
            PreparedChange::Authenticate(_) | PreparedChange::Record(_) => Ok(true),
        }
    }

    fn admits_add(&self, dn: &NormalDn, entry: &Entry, mods: &[Change]) -> Result<bool, Fault> {
        let source = OwnedSource { schema: &self.view.schema, entry };
        Ok(self.may_take_from_parent(dn, Privilege::Add)?
            && self.may(dn, &source, Item::Entry, Privilege::Add)?
            && (!self.view.settings.add_content_acl || self.may_modify(dn, &source, mods)?))
    }

    fn admits_rename(&self, rename: &PreparedModifyDn) -> Result<bool, Fault> {
        let from = if rename.new_superior.is_none() { Privilege::Write } else { Privilege::Delete };
        let may_leave = self.may_take_from_parent(&rename.dn, from)?
            && self.may_with_entry(&rename.dn, Item::Entry, Privilege::Write)?;
        let may_arrive = || match &rename.new_superior {
            Some(superior) if Some(superior) != rename.dn.parent().as_ref() => {
                self.may_with_entry(superior, Item::Children, Privilege::Add)
            }
            _ => Ok(true),
        };
        let may_name = || {
            let target = rename.target();
            self.of(&rename.dn, |source| self.may_modify(&target, source, &rename.mods))?.unwrap_or(Ok(false))
        };
        Ok(may_leave && may_arrive()? && may_name()?)
    }

    /// Whether entries may be added below, or taken from, the superior of `dn`.
    fn may_take_from_parent(&self, dn: &NormalDn, privilege: Privilege) -> Result<bool, Fault> {
        let is_suffix = self.view.settings.suffixes.iter().any(|suffix| suffix.normal == *dn);
        let parent = match dn.parent() {
            Some(parent) if !is_suffix => parent,
            _ => NormalDn::root(),
        };
        self.may_with_entry(&parent, Item::Children, privilege)
    }

    /// Whether the stored entry grants this; a missing one does not, but for the root above the suffixes.
    fn may_with_entry(&self, dn: &NormalDn, item: Item<'_>, privilege: Privilege) -> Result<bool, Fault> {
        match self.of(dn, |source| self.may(dn, source, item, privilege))? {
            Some(may) => may,
            None if dn.is_root() => {
                let nothing = Entry::default();
                let source = OwnedSource { schema: &self.view.schema, entry: &nothing };
                self.may(dn, &source, item, privilege)
            }
            None => Ok(false),
        }
    }

    /// Asks something of the stored entry, if there is one.
    fn of<T>(&self, dn: &NormalDn, ask: impl FnOnce(&dyn EntrySource) -> T) -> Result<Option<T>, Fault> {
        let Some(id) = self.view.resolve(dn)?.and_then(|resolved| resolved.id) else { return Ok(None) };
        let Some(record) = self.view.record(id)? else { return Ok(None) };
        Ok(Some(ask(&self.view.reader(id, &record)?)))
    }

    fn may(
        &self,
        dn: &NormalDn,
        entry: &dyn EntrySource,
        item: Item<'_>,
        privilege: Privilege,
    ) -> Result<bool, Fault> {
        self.judged(dn, entry, |target| self.view.policy.check(self.subject, target, item, privilege))
    }

    /// Whether all of the changes may be made.
    fn may_modify(&self, dn: &NormalDn, entry: &dyn EntrySource, changes: &[Change]) -> Result<bool, Fault> {
        self.judged(dn, entry, |target| changes.iter().all(|change| self.grants(target, change)))
    }

    fn grants(&self, target: &AccessTarget<'_>, change: &Change) -> bool {
        let (policy, description) = (&self.view.policy, &change.description);
        let of_all: Cell<Option<(Privilege, Verdict)>> = Cell::new(None);
        change.is_granted(|value, privilege| {
            if value.is_some() && change.values.len() >= MANY_VALUES {
                let known = of_all.get().filter(|(asked, _)| *asked == privilege);
                let (_, verdict) = known.unwrap_or_else(|| {
                    let verdict = policy.attribute_verdict(self.subject, target, description, privilege);
                    (privilege, verdict)
                });
                of_all.set(Some((privilege, verdict)));
                match verdict {
                    Verdict::Granted => return true,
                    Verdict::Denied => return false,
                    Verdict::PerEntry | Verdict::PerValue => {}
                }
            }
            policy.check(self.subject, target, Item::Attribute { description, value }, privilege)
        })
    }

    /// Asks the rules about one entry.
    ///
    /// # Errors
    /// [`Fault::StepsSpent`] where they take more than a request may.
    fn judged(
        &self,
        dn: &NormalDn,
        entry: &dyn EntrySource,
        ask: impl FnOnce(&AccessTarget<'_>) -> bool,
    ) -> Result<bool, Fault> {
        let meter = Meter::new(self.view.settings.request_limits.most(RequestLimit::Steps));
        let sight = Sight { meter: Some(&meter), ..Sight::of(self.view) };
        let facts = RuleFacts::new(self.view, sight, dn, entry);
        let may = ask(&AccessTarget { dn, entry: &facts });
        unless_overdrawn(Some(&meter), may)
    }
}

impl<V: Snapshot> Operator<'_, V> {
    /// Whether no rule applies to the requester.
    pub(crate) fn is_root(&self) -> bool {
        self.envelope.derived
            || self.envelope.trusted
            || self.envelope.controls.import.is_some()
            || self.view.policy.is_root(self.envelope.subject)
    }

    /// A new entry as a source of values.
    pub(crate) fn new_source<'e>(&'e self, entry: &'e Entry) -> OwnedSource<'e> {
        OwnedSource { schema: self.context.schema, entry }
    }

    fn authority(&self) -> Authority<'_, '_, V> {
        Authority { view: &self.view, subject: self.envelope.subject }
    }

    /// Whether entries may be added below or taken from this one; without an entry, the root above the suffixes.
    pub(crate) fn may_change_children(
        &self,
        dn: &NormalDn,
        parent: Option<&CurrentEntry<'_>>,
        privilege: Privilege,
    ) -> Result<bool, Fault> {
        if self.is_root() {
            return Ok(true);
        }
        let authority = self.authority();
        match parent {
            Some(parent) => authority.may(dn, &self.reader(parent)?, Item::Children, privilege),
            None => authority.may(dn, &self.new_source(&Entry::default()), Item::Children, privilege),
        }
    }

    /// Whether the entry itself may be added, deleted or renamed. [`Authority::admits`] does not ask what the relax rules control takes
    /// in addition: overlays see what would be theirs to see without it.
    pub(crate) fn may_change_entry(
        &self,
        dn: &NormalDn,
        entry: &dyn EntrySource,
        privilege: Privilege,
    ) -> Result<bool, Fault> {
        let privilege = self.envelope.controls.on_entry(privilege);
        Ok(self.is_root() || self.authority().may(dn, entry, Item::Entry, privilege)?)
    }

    /// Whether all of the changes may be made.
    pub(crate) fn may_modify(
        &self,
        dn: &NormalDn,
        entry: &dyn EntrySource,
        changes: &[Change],
    ) -> Result<bool, Fault> {
        Ok(self.is_root() || self.authority().may_modify(dn, entry, changes)?)
    }
}
