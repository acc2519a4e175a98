//! The rules that hold for a database, and the questions they answer.

use std::sync::Arc;

use larix_schema::{
    AttributeDescription, AttributeTypeId, BoundFilter, Match, NormalDn, ObjectClassId, Schema,
};

use super::compile::{self, AccessPolicyError, CompiledRule};
use super::evaluate::{Answer, Ask, Evaluation, Value};
use super::privilege::{AccessLevel, Collected, Privilege, Privileges};
use super::rule::AccessRule;
use super::subject::Subject;

/// What rules may ask about the entry they protect, and about others.
///
/// A fault while reading is answered as if nothing was found there, with [`EntryFacts::failed`] true afterwards.
pub trait EntryFacts {
    /// Calls `visit` with each value of the attribute and its subtypes until it answers false.
    fn visit(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool);

    /// Whether a filter matches the entry; without regard to access.
    fn matches(&self, filter: &BoundFilter) -> Match;

    /// Whether another entry, of the class, has the member among the values of the attribute.
    fn is_member(&self, group: &GroupQuery<'_>, member: &NormalDn) -> bool;

    /// Whether an answer was not to be had. The check is then denied.
    fn failed(&self) -> bool {
        false
    }
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

impl std::fmt::Debug for AccessTarget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
        let rules = written.iter().map(|rule| compile::rule(&schema, rule)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            rules: rules.into(),
            written: written.into(),
            frontend_from: database.len(),
            root_dn,
            default_level: AccessLevel::Read,
            schema,
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
        }
    }

    /// The same with another level for where there are no rules at all (`defaultaccess`).
    #[must_use]
    pub fn with_default_level(self, default_level: AccessLevel) -> Self {
        Self { default_level, ..self }
    }

    /// Whether the subject is this database's root, to whom no rule applies.
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
        self.answer(&ask, privilege) == Answer::Granted && !target.entry.failed()
    }

    /// What the rules grant the subject, to be shown; [`Self::check`] decides.
    pub fn collected(&self, subject: &Subject, target: &AccessTarget<'_>, item: Item<'_>) -> Collected {
        if self.is_root(subject) {
            return Collected::of_level(AccessLevel::Manage);
        }
        if self.rules.is_empty() {
            return Collected::of_level(self.default_level);
        }
        let (item, value) = item.split();
        let ask = Ask { subject, item: Some(item), value, target: Some(target), within: None };
        Evaluation::new(&self.schema, &ask, Privileges::NONE).collect(&self.rules)
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
            _ if target.entry.failed() => Verdict::Denied,
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
        Evaluation::new(&self.schema, ask, required).run(&self.rules)
    }

    pub(super) fn is_no_user_modification(&self, attribute: AttributeTypeId) -> bool {
        self.schema.get_attribute(attribute).is_some_and(|attribute| attribute.no_user_modification)
    }
}
