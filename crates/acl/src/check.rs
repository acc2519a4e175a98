//! The questions that a policy answers.

use std::cell::Cell;

use larix_schema::{AttributeDescription, AttributeTypeId, NormalDn};

use super::ask::{Among, Answer, Ask};
use super::decisions::{ByPrivilege, CLASSES_MAX, Decisions, Verdicts};
use super::evaluate::Evaluation;
use super::facts::AccessTarget;
use super::item::{Item, ItemClass, ItemKind, Value, Verdict};
use super::lookup::Lookup;
use super::policy::AccessPolicy;
use super::privilege::{AccessLevel, Collected, Privilege, Privileges};
use super::query::GroupQuery;
use super::subject::Subject;

impl AccessPolicy {
    /// Whether the subject has the privilege.
    ///
    /// An add, delete or rename under the relax rules control asks for [`Privilege::Manage`] on [`Item::Entry`]; that is the caller's to
    /// decide.
    pub fn check(
        &self,
        subject: &Subject,
        target: &AccessTarget<'_>,
        item: Item<'_>,
        privilege: Privilege,
    ) -> bool {
        let (item, value) = item.split();
        let ask = Ask { subject, item: Some(item), value, target: Some(target), among: Among::All };
        self.answer(&ask, privilege) == Answer::Granted
    }

    /// As [`Self::check`] of [`Item::Entry`]. `None`: what a rule asks for could not be read.
    pub fn check_known(
        &self,
        subject: &Subject,
        target: &AccessTarget<'_>,
        privilege: Privilege,
    ) -> Option<bool> {
        if self.is_root(subject) || self.rules.is_empty() {
            return Some(self.check(subject, target, Item::Entry, privilege));
        }
        let (item, value) = Item::Entry.split();
        let ask = Ask { subject, item: Some(item), value, target: Some(target), among: Among::All };
        let answer = Evaluation::new(self, &ask, privilege.required()).run_known(&self.every)?;
        Some(answer == Answer::Granted)
    }

    /// Whether the member is in the group, which may be in any database of the server: by name, or found by one of the
    /// group's URLs (OpenLDAP's dynamic groups).
    ///
    /// `None`: unknown.
    pub fn is_member(
        &self,
        asked_by: &AccessTarget<'_>,
        group: &GroupQuery<'_>,
        member: &NormalDn,
    ) -> Option<bool> {
        let failed = Cell::new(false);
        let lookup = Lookup { policy: self, target: asked_by, failed: &failed };
        let found = lookup.is_member(group, member);
        (!failed.get() && !asked_by.entry.failed()).then_some(found)
    }

    /// What can be said of all items of a class in one entry. For privileges that do not write.
    pub fn class_verdict(
        &self,
        subject: &Subject,
        target: &AccessTarget<'_>,
        class: ItemClass,
        privilege: Privilege,
    ) -> Verdict {
        self.verdict_on_class(subject, (Some(target), Among::All), class, privilege)
    }

    fn verdict_on_class(
        &self,
        subject: &Subject,
        (target, among): (Option<&AccessTarget<'_>>, Among<'_>),
        class: ItemClass,
        privilege: Privilege,
    ) -> Verdict {
        if self.is_root(subject) {
            return Verdict::Granted;
        }
        if self.rules.is_empty() {
            let granted = Self::WITHOUT_RULES.privileges().contains(privilege.required());
            return if granted { Verdict::Granted } else { Verdict::Denied };
        }
        let Some(list) = self.classes.list(class) else { return Verdict::PerValue };
        let value = if list.by_value { Value::Unknown } else { Value::Whole };
        let ask = Ask { subject, item: None, value, target, among };
        Evaluation::new(self, &ask, privilege.required()).of_chosen().run(&list.rules).verdict()
    }

    /// What holds for the subject whatever the entry, found out once for it.
    #[inline]
    pub fn decisions<'s>(&self, subject: &'s Subject) -> Option<&'s Decisions> {
        subject.decisions.of(self.instance, subject.strength, || self.decide(subject))
    }

    fn decide(&self, subject: &Subject) -> Decisions {
        let decided = |mut verdicts: Verdicts, among, privilege| {
            for class in (0..CLASSES_MAX).map(ItemClass) {
                let is_decidable = self.classes.list(class).is_some_and(|list| !list.individual);
                if is_decidable && verdicts.get(class).is_none() {
                    verdicts.set(class, self.verdict_on_class(subject, (None, among), class, privilege));
                }
            }
            verdicts
        };
        let by_privilege = |known: ByPrivilege, among| ByPrivilege {
            compare: decided(known.compare, among, Privilege::Compare),
            search: decided(known.search, among, Privilege::Search),
            read: decided(known.read, among, Privilege::Read),
        };
        let general = by_privilege(ByPrivilege::default(), Among::All);
        Decisions {
            policy: self.instance,
            strength: subject.strength,
            is_root: self.is_root(subject),
            search_all: self.grants_all(subject, Privilege::Search),
            read_all: self.grants_all(subject, Privilege::Read),
            general,
            others: by_privilege(general, Among::Others),
        }
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
            return Collected::of_level(Self::WITHOUT_RULES);
        }
        let (item, value) = item.split();
        let ask = Ask { subject, item: Some(item), value, target: Some(target), among: Among::All };
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
        let among = within.map_or(Among::All, Among::Within);
        self.answer(&Ask { subject, item: Some(item), value, target: None, among }, privilege).verdict()
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
        let ask = Ask { subject, item, value: Value::Unknown, target: Some(target), among: Among::All };
        match self.answer(&ask, privilege) {
            Answer::Granted => Verdict::Granted,
            Answer::Denied => Verdict::Denied,
            Answer::Unknown(_) => Verdict::PerValue,
        }
    }

    /// Whether the subject has the privilege for every entry, attribute and value.
    pub fn grants_all(&self, subject: &Subject, privilege: Privilege) -> bool {
        let ask = Ask { subject, item: None, value: Value::Unknown, target: None, among: Among::All };
        self.answer(&ask, privilege) == Answer::Granted
    }

    fn answer(&self, ask: &Ask<'_>, privilege: Privilege) -> Answer {
        if self.is_root(ask.subject) {
            return Answer::Granted;
        }
        // A client never writes these itself: the server does, on its behalf.
        if let Some(ItemKind::Attribute(description)) = ask.item
            && privilege.is_write()
            && self.is_no_user_modification(description.attribute)
        {
            return Answer::Granted;
        }
        let required = privilege.required();
        if self.rules.is_empty() {
            return Answer::of(Self::WITHOUT_RULES.privileges().contains(required));
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
