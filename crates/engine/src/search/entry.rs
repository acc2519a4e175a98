//! An entry as one subject sees it.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use larix_schema::{AttributeDescription, BoundFilter, Match, NormalDn, ObjectClassId, Schema};
use larix_store::Snapshot;

use super::filter::{Filter, FilterContext};
use crate::access::{AccessPolicy, AccessTarget, EntryFacts, GroupQuery, Item, Privilege, Subject, Verdict};
use crate::database::View;
use crate::entry::{EntryReader, EntrySource, Target};
use crate::fault::Fault;
use crate::tree;

/// What access rules say, with what can be said once for all entries. For one snapshot.
#[derive(Clone, Debug)]
pub struct Gate<'a> {
    pub policy: &'a AccessPolicy,
    pub subject: &'a Subject,
    pub search_all: bool,
    pub read_all: bool,
    /// The search finds out who somebody is: filters ask for `auth`, and nothing is read.
    pub identity: bool,
    /// None where rules are hardly asked, since everything is granted anyway.
    groups: Option<Rc<Groups>>,
}

/// The groups rules asked about in one snapshot, and whether the subject is a member: the same for every entry.
#[derive(Debug, Default)]
struct Groups(RefCell<Vec<(NormalDn, ObjectClassId, AttributeDescription, bool)>>);

impl Groups {
    fn known(&self, query: &GroupQuery<'_>) -> Option<bool> {
        let same = |(group, class, attribute, _): &&(NormalDn, ObjectClassId, AttributeDescription, bool)| {
            group == query.group && *class == query.class && attribute == query.attribute
        };
        self.0.borrow().iter().find(same).map(|(.., member)| *member)
    }

    fn note(&self, query: &GroupQuery<'_>, member: bool) {
        let mut known = self.0.borrow_mut();
        // Rules with `expand` may name a group an entry.
        if known.len() >= GROUPS_KNOWN_MAX {
            known.clear();
        }
        known.push((query.group.clone(), query.class, query.attribute.clone(), member));
    }
}

const GROUPS_KNOWN_MAX: usize = 32;

impl<'a> Gate<'a> {
    pub fn new(policy: &'a AccessPolicy, subject: &'a Subject) -> Self {
        let all = |privilege| policy.grants_all(subject, privilege);
        Self::again(policy, subject, all(Privilege::Search), all(Privilege::Read))
    }

    /// For another snapshot, with what was found before.
    pub fn again(policy: &'a AccessPolicy, subject: &'a Subject, search_all: bool, read_all: bool) -> Self {
        let groups = (!search_all || !read_all).then(Rc::default);
        Self { policy, subject, search_all, read_all, identity: false, groups }
    }
}

/// A stored entry under access control.
#[derive(Debug)]
pub struct Seen<'a, N> {
    pub view: &'a View<'a, N>,
    pub reader: EntryReader<'a, N>,
    gate: Gate<'a>,
    dn: OnceCell<NormalDn>,
    failed: Cell<bool>,
}

impl<'a, N: Snapshot> Seen<'a, N> {
    pub fn new(view: &'a View<'a, N>, reader: EntryReader<'a, N>, gate: Gate<'a>) -> Self {
        Self { view, reader, gate, dn: OnceCell::new(), failed: Cell::new(false) }
    }

    /// Whether the entry may be told of at all.
    pub fn is_shown(&self) -> Result<bool, Fault> {
        Ok(self.gate.identity || self.allows_entry(Privilege::Read)?)
    }

    /// Whether the subject has the privilege on the entry as a whole.
    pub fn allows_entry(&self, privilege: Privilege) -> Result<bool, Fault> {
        if self.is_open(privilege) {
            return Ok(true);
        }
        Ok(self.gate.policy.check(self.gate.subject, &self.target()?, Item::Entry, privilege))
    }

    /// Whether one who may not search here may know it: insufficientAccessRights tells that there is an entry.
    ///
    /// As in OpenLDAP, what the rules collected counts, also where their list ends without a decision.
    pub fn discloses_refusal(&self) -> Result<bool, Fault> {
        let collected = self.gate.policy.collected(self.gate.subject, &self.target()?, Item::Entry);
        Ok(collected.privileges.contains(Privilege::Disclose.required()) && !self.failed())
    }

    /// Whether the subject has the privilege on the entry's place as a superior.
    pub fn allows_children(&self, privilege: Privilege) -> Result<bool, Fault> {
        Ok(self.gate.policy.check(self.gate.subject, &self.target()?, Item::Children, privilege))
    }

    /// The rules that it is seen under.
    pub fn policy(&self) -> &'a AccessPolicy {
        self.gate.policy
    }

    /// Whether the subject has the privilege on an attribute or a value.
    pub fn allows(
        &self,
        description: &AttributeDescription,
        value: Option<&[u8]>,
        privilege: Privilege,
    ) -> Result<bool, Fault> {
        if self.is_open(privilege) {
            return Ok(true);
        }
        let item = Item::Attribute { description, value };
        Ok(self.gate.policy.check(self.gate.subject, &self.target()?, item, privilege))
    }

    /// What can be said of all values of an attribute.
    pub fn readable(&self, description: &AttributeDescription) -> Result<Verdict, Fault> {
        if self.gate.read_all {
            return Ok(Verdict::Granted);
        }
        let target = self.target()?;
        Ok(self.gate.policy.attribute_verdict(self.gate.subject, &target, description, Privilege::Read))
    }

    /// Calls `visit` with each value of what the target covers that may be read.
    pub fn visit_readable(&self, target: &Target, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Fault> {
        let Some(asked) = target.description().filter(|_| !self.gate.read_all) else {
            return self.reader.visit(target, visit);
        };
        let mut covered = Vec::new();
        self.reader.descriptions(&mut |description| {
            if description.is_subdescription_of(&self.view.schema, asked) {
                covered.push(description.clone());
            }
        })?;
        for description in covered {
            let verdict = self.readable(&description)?;
            if verdict == Verdict::Denied {
                continue;
            }
            let mut fault = None;
            self.reader.visit_exact(&description, &mut |value| {
                if verdict == Verdict::Granted {
                    return visit(value);
                }
                match self.allows(&description, Some(value), Privilege::Read) {
                    Ok(allowed) => !allowed || visit(value),
                    Err(error) => {
                        fault = Some(error);
                        false
                    }
                }
            })?;
            if let Some(fault) = fault {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// The normalized DN.
    pub fn name(&self) -> Result<&NormalDn, Fault> {
        if let Some(dn) = self.dn.get() {
            return Ok(dn);
        }
        let dn = self.view.names.normal_dn(&self.reader.view)?;
        Ok(self.dn.get_or_init(|| dn))
    }

    fn is_open(&self, privilege: Privilege) -> bool {
        match privilege {
            Privilege::Read => self.gate.read_all,
            Privilege::Search => self.gate.search_all,
            // Single privileges can be granted without those that a level would imply.
            _ => false,
        }
    }

    fn target(&self) -> Result<AccessTarget<'_>, Fault> {
        Ok(AccessTarget { dn: self.name()?, entry: self })
    }

    /// The answer, or `none` with the fault noted.
    fn noting<T>(&self, answer: Result<T, Fault>, none: T) -> T {
        answer.unwrap_or_else(|_| {
            self.failed.set(true);
            none
        })
    }

    fn has_member(&self, query: &GroupQuery<'_>, member: &NormalDn) -> Result<bool, Fault> {
        let Some(id) = self.view.resolve(query.group)?.and_then(|resolved| resolved.id) else {
            return Ok(false);
        };
        let Some(record) = self.view.record(id)? else { return Ok(false) };
        let group = self.view.reader(id, &record)?;
        Ok(is_of_class(&group, query)? && has_dn(&group, query.attribute, member)?)
    }
}

fn is_of_class<N: Snapshot>(entry: &EntryReader<'_, N>, query: &GroupQuery<'_>) -> Result<bool, Fault> {
    let Ok(object_class) = entry.schema.describe("objectClass") else { return Ok(false) };
    let mut found = false;
    entry.visit_exact(&object_class, &mut |value| {
        let class = std::str::from_utf8(value).ok().and_then(|name| entry.schema.object_class_id(name));
        found = class.is_some_and(|class| entry.schema.is_subclass(class, query.class));
        !found
    })?;
    Ok(found)
}

fn has_dn<N: Snapshot>(
    entry: &EntryReader<'_, N>,
    attribute: &AttributeDescription,
    dn: &NormalDn,
) -> Result<bool, Fault> {
    let target = Target::new(entry.schema, entry.catalog, attribute.clone());
    if let Some(member) = entry.large_member(&target, dn.as_str().as_bytes())? {
        return Ok(member);
    }
    let mut found = false;
    entry.visit(&target, &mut |value| {
        let value = std::str::from_utf8(value).unwrap_or_default();
        found = value == dn.as_str() || entry.schema.parse_dn(value).is_ok_and(|value| value == *dn);
        !found
    })?;
    Ok(found)
}

impl<N: Snapshot> FilterContext for Seen<'_, N> {
    fn schema(&self) -> &Schema {
        &self.view.schema
    }

    fn may_search(&self, description: &AttributeDescription, value: Option<&[u8]>) -> Result<bool, Fault> {
        let privilege = if self.gate.identity { Privilege::Auth } else { Privilege::Search };
        self.allows(description, value, privilege)
    }

    fn normal_dn(&self) -> Result<NormalDn, Fault> {
        self.name().cloned()
    }

    fn shown_dn(&self) -> Result<String, Fault> {
        self.view.dn(&self.reader.view)
    }

    fn has_subordinates(&self) -> Result<bool, Fault> {
        tree::has_children(self.view.snapshot, self.reader.view.id())
    }

    fn may_search_all(&self) -> bool {
        self.gate.search_all
    }
}

/// The same entry where access does not matter.
#[derive(Debug)]
pub struct Unguarded<'a, 's, N>(pub &'a Seen<'s, N>);

impl<N: Snapshot> FilterContext for Unguarded<'_, '_, N> {
    fn schema(&self) -> &Schema {
        self.0.schema()
    }

    fn may_search(&self, _: &AttributeDescription, _: Option<&[u8]>) -> Result<bool, Fault> {
        Ok(true)
    }

    fn normal_dn(&self) -> Result<NormalDn, Fault> {
        self.0.normal_dn()
    }

    fn shown_dn(&self) -> Result<String, Fault> {
        self.0.shown_dn()
    }

    fn has_subordinates(&self) -> Result<bool, Fault> {
        self.0.has_subordinates()
    }

    fn may_search_all(&self) -> bool {
        true
    }
}

impl<N: Snapshot> EntryFacts for Seen<'_, N> {
    fn visit(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        self.noting(self.reader.visit_description(attribute, visit), ());
    }

    fn matches(&self, filter: &BoundFilter) -> Match {
        let filter = Filter::new(&self.view.schema, &self.view.catalog, filter.clone());
        self.noting(filter.matches(&Unguarded(self), &self.reader), Match::Undefined)
    }

    fn is_member(&self, group: &GroupQuery<'_>, member: &NormalDn) -> bool {
        let groups = self.gate.groups.as_deref();
        if let Some(known) = groups.and_then(|groups| groups.known(group)) {
            return known;
        }
        let answer = self.has_member(group, member);
        if let (Ok(member), Some(groups)) = (&answer, groups) {
            groups.note(group, *member);
        }
        self.noting(answer, false)
    }

    fn failed(&self) -> bool {
        self.failed.get()
    }
}
