//! The rules that hold for a database, and the questions they answer.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use larix_schema::{
    AttributeDescription, AttributeTypeId, BoundFilter, Match, NormalDn, ObjectClassId, Schema,
};

use super::compile::{self, CompiledRule};
use super::decisions::Decisions;
use super::evaluate::{Answer, Ask, Evaluation, Value};
use super::fault::AccessPolicyError;
use super::items::{ItemClass, ItemClasses};
use super::lookup::{EntrySearch, Lookup};
use super::memo::Memo;
use super::privilege::{AccessLevel, Collected, Privilege, Privileges};
use super::rule::AccessRule;
use super::subject::Subject;

/// What rules may ask about the entry they protect, and about others of its database.
///
/// A fault while reading is answered as if nothing was found there, with [`EntryFacts::failed`] true afterwards.
pub trait EntryFacts {
    /// Calls `visit` with each value of the attribute and its subtypes until it answers false.
    fn visit(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool);

    /// As [`Self::visit`], without subtypes.
    fn visit_exact(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        self.visit(attribute, visit);
    }

    /// Whether a filter matches the entry; without regard to access.
    fn matches(&self, filter: &BoundFilter) -> Match;

    /// Whether the DN is a value of the attribute, without subtypes.
    fn has_dn(&self, schema: &Schema, attribute: &AttributeDescription, dn: &NormalDn) -> bool {
        let mut found = false;
        self.visit_exact(attribute, &mut |value| {
            let value = std::str::from_utf8(value).unwrap_or_default();
            found = value == dn.as_str() || schema.parse_dn(value).is_ok_and(|value| value == *dn);
            !found
        });
        found
    }

    /// Hands another entry of the same database, as it is in the same state, to `read`.
    fn with_entry(&self, _dn: &NormalDn, _read: &mut dyn FnMut(&dyn EntryFacts)) -> Reach {
        Reach::Elsewhere
    }

    /// Calls `visit` with the wanted values of what a search of the same database finds, until it answers false.
    fn search(
        &self,
        _search: &EntrySearch<'_>,
        _visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Reach {
        Reach::Elsewhere
    }

    /// Where answers that hold for all entries are kept.
    fn memo(&self) -> Option<&Memo> {
        None
    }

    /// Whether an answer was not to be had. The check is then denied.
    fn failed(&self) -> bool {
        false
    }
}

/// Whether a database has an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Found,
    /// The name is below a suffix of this database, of so many RDNs, but there is no such entry.
    Absent {
        suffix_depth: usize,
    },
    /// No suffix of this database is at or above the name.
    Elsewhere,
}

/// A database could not be read. The rules need no more than that: the check is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// The entries of all databases of a server.
pub trait OtherEntries: fmt::Debug + Send + Sync {
    /// Hands an entry to `read`, if it is in a database whose suffix has more RDNs than `beyond`. Answers whether there
    /// is one.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn with_entry(
        &self,
        dn: &NormalDn,
        beyond: usize,
        read: &mut dyn FnMut(&dyn EntryFacts),
    ) -> Result<bool, Unreadable>;

    /// As [`EntryFacts::search`], under the same condition.
    ///
    /// # Errors
    /// A store that cannot be read.
    fn search(
        &self,
        search: &EntrySearch<'_>,
        beyond: usize,
        visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Result<bool, Unreadable>;
}

/// A group a rule names.
#[derive(Debug, Clone, Copy)]
pub struct GroupQuery<'a> {
    pub group: &'a NormalDn,
    pub class: ObjectClassId,
    pub attribute: &'a AttributeDescription,
}

/// An entry under access control.
#[derive(Clone, Copy)]
pub struct AccessTarget<'a> {
    pub dn: &'a NormalDn,
    pub entry: &'a dyn EntryFacts,
}

impl fmt::Debug for AccessTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessTarget").field("dn", &self.dn).finish_non_exhaustive()
    }
}

/// What of an entry is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    /// The entry itself, the pseudo-attribute `entry`.
    Entry,
    /// Its place as a superior, the pseudo-attribute `children`.
    Children,
    /// An attribute: one value of it, or (`None`) the attribute as a whole; rules about values do not apply then.
    Attribute { description: &'a AttributeDescription, value: Option<&'a [u8]> },
}

impl<'a> Item<'a> {
    pub(super) fn split(self) -> (ItemKind<'a>, Value<'a>) {
        match self {
            Item::Entry => (ItemKind::Entry, Value::Whole),
            Item::Children => (ItemKind::Children, Value::Whole),
            Item::Attribute { description, value } => {
                (ItemKind::Attribute(description), value.map_or(Value::Whole, Value::Is))
            }
        }
    }
}

/// An [`Item`] without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind<'a> {
    Entry,
    Children,
    Attribute(&'a AttributeDescription),
}

/// What can be said before an entry or a value is at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Granted,
    Denied,
    /// It depends on the entry, but not on the values: check each entry with `value: None`.
    PerEntry,
    /// It depends on the value: check each.
    PerValue,
}

/// A database's rules followed by the frontend's, looked up in a schema. Immutable.
#[derive(Debug, Clone)]
pub struct AccessPolicy {
    pub(super) rules: Arc<[CompiledRule]>,
    /// As they were written, in the same order; those of the frontend from `frontend_from` on.
    pub(super) written: Arc<[AccessRule]>,
    pub(super) frontend_from: usize,
    root_dn: Option<NormalDn>,
    /// What holds where there are no rules at all.
    pub(super) default_level: AccessLevel,
    pub(super) schema: Arc<Schema>,
    pub(super) classes: Arc<ItemClasses>,
    /// The numbers of all rules.
    every: Arc<[u32]>,
    /// Tells policies of this process apart.
    pub(super) instance: u64,
    others: Arc<OnceLock<Arc<dyn OtherEntries>>>,
}

impl AccessPolicy {
    /// Puts rules in force: those of the database, then those of the frontend. Whoever is bound as `root_dn` may do
    /// everything.
    ///
    /// # Errors
    /// A name that is not defined, a DN, value or filter that is not valid, or a rule that cannot be enforced.
    pub fn new(
        schema: Arc<Schema>,
        root_dn: Option<NormalDn>,
        database: &[AccessRule],
        frontend: &[AccessRule],
    ) -> Result<Self, AccessPolicyError> {
        let written: Vec<AccessRule> = database.iter().chain(frontend).cloned().collect();
        let mut memos = 0;
        let rules = written
            .iter()
            .map(|rule| compile::rule(&schema, rule, &mut memos))
            .collect::<Result<Vec<_>, _>>()?;
        let classes = ItemClasses::of(&schema, &rules);
        Ok(Self {
            every: (0u32..).take(rules.len()).collect(),
            rules: rules.into(),
            written: written.into(),
            frontend_from: database.len(),
            classes: Arc::new(classes),
            ..Self::open(schema, root_dn)
        })
    }

    /// No rules: everybody may read, nobody but the root may write.
    pub fn open(schema: Arc<Schema>, root_dn: Option<NormalDn>) -> Self {
        Self {
            rules: Arc::new([]),
            written: Arc::new([]),
            frontend_from: 0,
            root_dn,
            default_level: AccessLevel::Read,
            schema,
            classes: Arc::default(),
            every: Arc::new([]),
            instance: next_instance(),
            others: Arc::default(),
        }
    }

    /// Lets the rules see the entries of the server's other databases: groups and sets may be there. Once; what comes
    /// later is passed over.
    pub fn see_others(&self, others: Arc<dyn OtherEntries>) {
        let _ = self.others.set(others);
    }

    pub(crate) fn others(&self) -> Option<&Arc<dyn OtherEntries>> {
        self.others.get()
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Whether a rule speaks about the kind of request or its controls (`op=`, `control=`): then subjects are to carry
    /// them.
    pub fn asks_about_request(&self) -> bool {
        self.rules.iter().any(|rule| rule.operation.is_some() || rule.control.is_some())
    }

    /// Whether a rule asks for the client's host name (`domain=`), which is then to be looked up.
    pub fn asks_about_domain(&self) -> bool {
        let mut clauses = self.rules.iter().flat_map(|rule| &rule.by);
        clauses.any(|clause| {
            clause.who.iter().any(|condition| matches!(condition.who, compile::CompiledWho::Domain(_)))
        })
    }

    /// The same with another level for where there are no rules at all (`defaultaccess`).
    #[must_use]
    pub fn with_default_level(self, default_level: AccessLevel) -> Self {
        Self { default_level, instance: next_instance(), ..self }
    }

    /// Whether the subject is this database's root, to whom no rule applies.
    #[inline]
    pub fn is_root(&self, subject: &Subject) -> bool {
        self.root_dn.is_some() && self.root_dn == subject.dn
    }

    /// Whether the subject has the privilege.
    ///
    /// An add under the relax rules control asks for [`Privilege::Manage`] on [`Item::Entry`] where it would ask for
    /// [`Privilege::Write`] otherwise; that is the caller's to decide.
    pub fn check(
        &self,
        subject: &Subject,
        target: &AccessTarget<'_>,
        item: Item<'_>,
        privilege: Privilege,
    ) -> bool {
        let (item, value) = item.split();
        let ask = Ask { subject, item: Some(item), value, target: Some(target), within: None };
        self.answer(&ask, privilege) == Answer::Granted
    }

    /// Whether the member is in the group, which may be in any database of the server: by name, or found by one of the
    /// group's URLs (OpenLDAP's dynamic groups).
    ///
    /// `None`: it could not be told.
    pub fn is_member(
        &self,
        asked_by: &AccessTarget<'_>,
        group: &GroupQuery<'_>,
        member: &NormalDn,
    ) -> Option<bool> {
        let failed = std::cell::Cell::new(false);
        let lookup = Lookup { policy: self, target: asked_by, failed: &failed };
        let found = lookup.is_member(group, member);
        (!failed.get() && !asked_by.entry.failed()).then_some(found)
    }

    /// What every item of a class has in common; `None` if nothing can be said of its class.
    #[inline]
    pub fn class_of(&self, item: ItemKind<'_>) -> Option<ItemClass> {
        if let ItemKind::Attribute(description) = item {
            return self.classes.decidable(description);
        }
        let class = self.classes.class(item)?;
        self.classes.list(class).is_some_and(|list| !list.individual).then_some(class)
    }

    /// Whether no rule tells an attribute with options from the same without.
    #[inline]
    pub fn treats_options_alike(&self) -> bool {
        self.classes.treats_options_alike()
    }

    /// What can be said of all items of a class: of every entry (`None`), or of one. For privileges that do not write.
    pub fn class_verdict(
        &self,
        subject: &Subject,
        target: Option<&AccessTarget<'_>>,
        class: ItemClass,
        privilege: Privilege,
    ) -> Verdict {
        if self.is_root(subject) {
            return Verdict::Granted;
        }
        if self.rules.is_empty() {
            let granted = self.default_level.privileges().contains(privilege.required());
            return if granted { Verdict::Granted } else { Verdict::Denied };
        }
        let Some(list) = self.classes.list(class) else { return Verdict::PerValue };
        let value = if list.by_value { Value::Unknown } else { Value::Whole };
        let ask = Ask { subject, item: None, value, target, within: None };
        Evaluation::new(self, &ask, privilege.required()).of_chosen().run(&list.rules).verdict()
    }

    /// What holds for the subject whatever the entry, found out once for it.
    #[inline]
    pub fn decisions<'s>(&self, subject: &'s Subject) -> Option<&'s Decisions> {
        subject.decisions.of(self, subject)
    }

    /// What the rules grant the subject, to be shown; [`Self::check`] decides.
    pub fn collected(&self, subject: &Subject, target: &AccessTarget<'_>, item: Item<'_>) -> Collected {
        self.collected_for(subject, target, item, Privileges::NONE)
    }

    /// The same when `required` is asked for: `aci` clauses that cannot give it are passed over.
    pub fn collected_for(
        &self,
        subject: &Subject,
        target: &AccessTarget<'_>,
        item: Item<'_>,
        required: Privileges,
    ) -> Collected {
        if self.is_root(subject) {
            return Collected::of_level(AccessLevel::Manage);
        }
        if self.rules.is_empty() {
            return Collected::of_level(self.default_level);
        }
        let (item, value) = item.split();
        let ask = Ask { subject, item: Some(item), value, target: Some(target), within: None };
        Evaluation::new(self, &ask, required).collect()
    }

    /// What can be said of an item of all entries at or below `within` (or, with `None`, of the database).
    pub fn verdict(
        &self,
        subject: &Subject,
        within: Option<&NormalDn>,
        item: ItemKind<'_>,
        privilege: Privilege,
    ) -> Verdict {
        let value = if matches!(item, ItemKind::Attribute(_)) { Value::Unknown } else { Value::Whole };
        self.answer(&Ask { subject, item: Some(item), value, target: None, within }, privilege).verdict()
    }

    /// What can be said of all values of an attribute of one entry: never [`Verdict::PerEntry`].
    pub fn attribute_verdict(
        &self,
        subject: &Subject,
        target: &AccessTarget<'_>,
        description: &AttributeDescription,
        privilege: Privilege,
    ) -> Verdict {
        let item = Some(ItemKind::Attribute(description));
        let ask = Ask { subject, item, value: Value::Unknown, target: Some(target), within: None };
        match self.answer(&ask, privilege) {
            Answer::Granted => Verdict::Granted,
            Answer::Denied => Verdict::Denied,
            Answer::Unknown(_) => Verdict::PerValue,
        }
    }

    /// Whether the subject has the privilege for every entry, attribute and value.
    pub fn grants_all(&self, subject: &Subject, privilege: Privilege) -> bool {
        let ask = Ask { subject, item: None, value: Value::Unknown, target: None, within: None };
        self.answer(&ask, privilege) == Answer::Granted
    }

    fn answer(&self, ask: &Ask<'_>, privilege: Privilege) -> Answer {
        if self.is_root(ask.subject) {
            return Answer::Granted;
        }
        // Whoever may write at all cannot provide these: the server does, on his behalf.
        if let Some(ItemKind::Attribute(description)) = ask.item
            && privilege.is_write()
            && self.is_no_user_modification(description.attribute)
        {
            return Answer::Granted;
        }
        let required = privilege.required();
        if self.rules.is_empty() {
            return Answer::of(self.default_level.privileges().contains(required));
        }
        let evaluation = Evaluation::new(self, ask, required);
        match ask.item.and_then(|item| self.classes.class(item)).and_then(|class| self.classes.list(class)) {
            Some(list) => evaluation.of_chosen().run(&list.rules),
            None => evaluation.run(&self.every),
        }
    }

    pub(super) fn is_no_user_modification(&self, attribute: AttributeTypeId) -> bool {
        self.schema.get_attribute(attribute).is_some_and(|attribute| attribute.no_user_modification)
    }
}

fn next_instance() -> u64 {
    static INSTANCES: AtomicU64 = AtomicU64::new(1);
    INSTANCES.fetch_add(1, Ordering::Relaxed)
}
