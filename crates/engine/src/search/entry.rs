//! An entry as one subject sees it.

use std::cell::{Cell, OnceCell};

use larix_schema::{AttributeDescription, BoundFilter, Match, NormalDn, Schema};
use larix_store::Snapshot;

use super::computed::{ComposedEntry, EntryIdentity, Sight};
use super::gate::Gate;
use super::rule_facts;
use crate::access::{
    AccessPolicy, AccessTarget, Decisions, EntryFacts, EntrySearch, Item, ItemClass, ItemKind, Memo,
    Privilege, Reach, Subject, Verdict,
};
use crate::budget::{Meter, RequestLimit};
use crate::database::View;
use crate::entry::{Entry, EntryId, EntryReader, EntrySource, Target};
use crate::fault::Fault;
use crate::filter::{Filter, FilterContext, unless_overdrawn};
use crate::overlay::computed::ComputedAttribute;
use crate::overlay::shown::ShownEntries;
use crate::tree;

/// What was found out about one entry, by class of attributes: two bits each.
#[derive(Debug, Default)]
struct Verdicts(Cell<u64>);

impl Verdicts {
    #[inline]
    fn shift_of(class: ItemClass) -> Option<u32> {
        (class.number() < 32).then(|| class.number() * 2)
    }

    #[inline]
    fn get(&self, class: ItemClass) -> Option<Verdict> {
        match self.0.get() >> Self::shift_of(class)? & 3 {
            1 => Some(Verdict::Granted),
            2 => Some(Verdict::Denied),
            3 => Some(Verdict::PerValue),
            _ => None,
        }
    }

    fn note(&self, class: ItemClass, verdict: Verdict) {
        let Some(place) = Self::shift_of(class) else { return };
        let bits = match verdict {
            Verdict::Granted => 1,
            Verdict::Denied => 2,
            Verdict::PerEntry | Verdict::PerValue => 3,
        };
        self.0.set(self.0.get() | bits << place);
    }
}

/// A stored entry under access control.
#[derive(Debug)]
pub struct GuardedEntry<'a, N> {
    pub view: &'a View<'a, N>,
    pub reader: EntryReader<'a, N>,
    gate: Gate<'a>,
    dn: OnceCell<NormalDn>,
    failed: Cell<bool>,
    meter: Meter,
    searchable: Verdicts,
    readable: Verdicts,
}

impl<'a, N: Snapshot> GuardedEntry<'a, N> {
    pub fn new(view: &'a View<'a, N>, reader: EntryReader<'a, N>, gate: Gate<'a>) -> Self {
        Self {
            view,
            reader,
            meter: Meter::new(gate.steps),
            gate,
            dn: OnceCell::new(),
            failed: Cell::new(false),
            searchable: Verdicts::default(),
            readable: Verdicts::default(),
        }
    }

    /// Its values, with those that overlays compute.
    #[inline]
    pub fn source(&self) -> &dyn EntrySource {
        if self.gate.computed.is_empty() { &self.reader } else { self }
    }

    /// What overlays compute of entries, as far as it is seen here.
    pub fn computed(&self) -> &'a [ComputedAttribute] {
        self.gate.computed
    }

    /// What access rules say to the subject.
    pub(super) fn gate(&self) -> &Gate<'a> {
        &self.gate
    }

    /// Overlays that look at what is answered.
    pub fn shown(&self) -> &'a [&'a dyn ShownEntries] {
        self.gate.shown
    }

    /// The entry with what overlays compute of it.
    pub(crate) fn composed(&self) -> ComposedEntry<'_, 'a, N> {
        ComposedEntry { view: self.view, sight: self.sight(), entry: self, stored: &self.reader }
    }

    /// How overlays look at other entries for this one: at its cost.
    pub(crate) fn sight(&self) -> Sight<'_> {
        let Gate { policy, computed, requester, .. } = self.gate;
        Sight { policy, computed, requester, meter: Some(&self.meter) }
    }

    /// Asks something of the entry's values for an access rule.
    fn for_rule<T>(&self, ask: impl FnOnce(&dyn EntrySource) -> T) -> T {
        if self.gate.computed.is_empty() {
            return ask(&self.reader);
        }
        ask(&ComposedEntry { sight: self.sight().of_rules(), ..self.composed() })
    }

    /// What the work on the entry is charged to.
    #[inline]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Steps that the work on the entry has taken.
    #[inline]
    pub fn steps(&self) -> u64 {
        self.gate.steps - self.meter.remaining()
    }

    /// Whether the client may learn of the entry at all.
    pub fn is_shown(&self) -> Result<bool, Fault> {
        Ok(self.gate.identity || self.allows_entry(Privilege::Read)?)
    }

    /// Notes the normalized DN, where it is known already.
    pub(crate) fn name_is(&self, dn: &NormalDn) {
        if !self.gate.read_all || !self.gate.search_all {
            // The caller is the first to set it.
            let _ = self.dn.set(dn.clone());
        }
    }

    /// Whether the subject has the privilege on the entry as a whole.
    pub fn allows_entry(&self, privilege: Privilege) -> Result<bool, Fault> {
        // A search that only identifies a user needs no more rights to the base than to what the filter names.
        let privilege = match privilege {
            Privilege::Search | Privilege::Read if self.gate.identity => Privilege::Auth,
            other => other,
        };
        if self.is_open(privilege) {
            return Ok(true);
        }
        match self.verdict(ItemKind::Entry, privilege)? {
            Some(Verdict::Granted) => Ok(true),
            Some(Verdict::Denied) => Ok(false),
            _ => self.judged(self.gate.policy.check(
                self.gate.subject,
                &self.target()?,
                Item::Entry,
                privilege,
            )),
        }
    }

    /// Whether a subject that may not search here may be refused with insufficientAccessRights, which tells that the entry exists.
    ///
    /// As in OpenLDAP, the privileges that the rules have collected count even if the list of rules ends without a decision.
    pub(crate) fn discloses_refusal(&self) -> Result<bool, Fault> {
        let required = Privilege::Search.required();
        let collected =
            self.gate.policy.collected_for(self.gate.subject, &self.target()?, Item::Entry, required);
        self.judged(collected.privileges.contains(Privilege::Disclose.required()) && !self.failed())
    }

    /// Whether the subject may know of an entry of this name at all, as far as rules decide that without what else the entry has.
    pub(crate) fn discloses_name(&self, dn: &NormalDn) -> Result<bool, Fault> {
        if self.is_open(Privilege::Disclose) {
            return Ok(true);
        }
        let target = AccessTarget { dn, entry: &NameAlone(self) };
        self.judged(self.gate.policy.check(self.gate.subject, &target, Item::Entry, Privilege::Disclose))
    }

    /// What the rules grant on an entry of which the client may not know. Rules that take more than a request has deny: the error would
    /// tell that the entry is there. A first try with fewer steps has no answer.
    ///
    /// # Errors
    /// [`Fault::StepsSpent`] from a first try; a store that cannot be read.
    pub fn granted(&self, may: Result<bool, Fault>) -> Result<bool, Fault> {
        let most = self.view.settings.request_limits.most(RequestLimit::Steps);
        match may {
            Err(Fault::StepsSpent) if self.gate.steps >= most => Ok(false),
            may => may,
        }
    }

    /// Whether the subject has the privilege on the entry's place as a superior.
    pub(crate) fn allows_children(&self, privilege: Privilege) -> Result<bool, Fault> {
        self.judged(self.gate.policy.check(self.gate.subject, &self.target()?, Item::Children, privilege))
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
        match self.verdict(ItemKind::Attribute(description), privilege)? {
            Some(Verdict::Granted) => return Ok(true),
            Some(Verdict::Denied) => return Ok(false),
            _ => {}
        }
        let item = Item::Attribute { description, value };
        self.judged(self.gate.policy.check(self.gate.subject, &self.target()?, item, privilege))
    }

    /// Whether the subject may search every entry for all that the filter names: then how many candidates there are tells nothing hidden.
    pub(crate) fn finds_freely(&self, filter: &Filter) -> bool {
        let Gate { policy, subject, search_all, .. } = self.gate;
        let granted =
            |item: ItemKind<'_>| policy.verdict(subject, None, item, Privilege::Search) == Verdict::Granted;
        let of_attribute = |description: &AttributeDescription| {
            // Subtypes, and descriptions with more options, are asked about by themselves.
            let mut subtypes = self.view.schema.subtypes(description.attribute).iter();
            granted(ItemKind::Attribute(description))
                && subtypes
                    .all(|&subtype| granted(ItemKind::Attribute(&AttributeDescription::plain(subtype))))
        };
        search_all
            || (granted(ItemKind::Entry) && policy.treats_options_alike() && filter.asks_only(&of_attribute))
    }

    /// Whether all values of all entries may be read.
    pub fn reads_all(&self) -> bool {
        self.gate.read_all
    }

    /// The verdict on all values of an attribute. The search asks for it with each attribute that it answers. Most attributes can be
    /// read in every entry: that case is decided here, without a call.
    #[inline(always)]
    pub fn readable(&self, description: &AttributeDescription) -> Result<Verdict, Fault> {
        let is_general = |decisions: &Decisions| {
            let class = self.gate.policy.class_of(ItemKind::Attribute(description));
            class.and_then(|class| decisions.general(class, Privilege::Read)) == Some(true)
        };
        if self.gate.read_all || self.gate.decisions.is_some_and(is_general) {
            return Ok(Verdict::Granted);
        }
        self.readable_here(description)
    }

    /// The same for an attribute whose verdict may depend on the entry.
    #[inline(never)]
    fn readable_here(&self, description: &AttributeDescription) -> Result<Verdict, Fault> {
        if let Some(verdict) = self.verdict(ItemKind::Attribute(description), Privilege::Read)? {
            return Ok(verdict);
        }
        let target = self.target()?;
        self.judged(self.gate.policy.attribute_verdict(
            self.gate.subject,
            &target,
            description,
            Privilege::Read,
        ))
    }

    /// Another entry as the same subject sees it.
    pub fn with_entry(&self, reader: EntryReader<'a, N>) -> Self {
        Self::new(self.view, reader, self.gate.clone())
    }

    /// Calls `visit` with each value of what the target covers that may be read.
    pub fn visit_readable(&self, target: &Target, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Fault> {
        let Some(target_description) = target.description().filter(|_| !self.gate.read_all) else {
            return self.source().visit(target, visit);
        };
        let mut covered = Vec::new();
        self.source().descriptions(&mut |description| {
            if description.is_subdescription_of(&self.view.schema, target_description) {
                covered.push(description.clone());
            }
        })?;
        covered.iter().try_for_each(|description| self.visit_readable_exact(description, visit))
    }

    /// Calls `visit` with each value of exactly this description that may be read, until it answers false.
    pub(crate) fn visit_readable_exact(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        let verdict = self.readable(description)?;
        if verdict == Verdict::Denied {
            return Ok(());
        }
        let mut fault = None;
        self.source().visit_exact(description, &mut |value| {
            if verdict == Verdict::Granted {
                return visit(value);
            }
            match self.allows(description, Some(value), Privilege::Read) {
                Ok(allowed) => !allowed || visit(value),
                Err(error) => {
                    fault = Some(error);
                    false
                }
            }
        })?;
        fault.map_or(Ok(()), Err)
    }

    /// What the rules say of all items of a class whatever the entry, or of every entry that is not the subject's own.
    #[inline]
    fn decided(&self, class: ItemClass, privilege: Privilege) -> Option<bool> {
        let decisions = self.gate.decisions?;
        decisions.general(class, privilege).or_else(|| {
            let of_others = decisions.of_others(class, privilege)?;
            (!self.may_be_own()).then_some(of_others)
        })
    }

    /// Whether the entry may be the one that the subject is bound or acts as.
    fn may_be_own(&self) -> bool {
        // A name begins with the RDN that its record has; of a suffix, that is all of it.
        let rdn = self.reader.view.normal_rdn();
        let begins = |dn: &NormalDn| dn.as_str().as_bytes().starts_with(rdn);
        let Subject { dn, real_dn, .. } = self.gate.subject;
        dn.iter().chain(real_dn).any(begins)
    }

    /// What the rules say of all items of the same class in this entry, found out once; `None`: ask for the item itself.
    fn verdict(&self, item: ItemKind<'_>, privilege: Privilege) -> Result<Option<Verdict>, Fault> {
        let found = match privilege {
            Privilege::Read => Some(&self.readable),
            Privilege::Search => Some(&self.searchable),
            // Asked once an entry.
            Privilege::Compare => None,
            _ => return Ok(None),
        };
        let Some(class) = self.gate.policy.class_of(item) else { return Ok(None) };
        if let Some(granted) = self.decided(class, privilege) {
            return Ok(Some(if granted { Verdict::Granted } else { Verdict::Denied }));
        }
        let Some(found) = found else { return Ok(None) };
        if let Some(verdict) = found.get(class) {
            return Ok(Some(verdict));
        }
        let target = self.target()?;
        let verdict =
            self.judged(self.gate.policy.class_verdict(self.gate.subject, &target, class, privilege))?;
        found.note(class, verdict);
        Ok(Some(verdict))
    }

    pub(crate) fn subject(&self) -> &'a Subject {
        self.gate.subject
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

    /// What the rules answer, unless the steps did not last for it.
    fn judged<T>(&self, answer: T) -> Result<T, Fault> {
        unless_overdrawn(Some(&self.meter), answer)
    }

    /// The answer, or `none` with the fault noted.
    fn noting<T>(&self, answer: Result<T, Fault>, none: T) -> T {
        answer.unwrap_or_else(|fault| {
            if matches!(fault, Fault::StepsSpent) {
                self.meter.overdraw();
            }
            self.failed.set(true);
            none
        })
    }
}

impl<N: Snapshot> EntryIdentity for GuardedEntry<'_, N> {
    fn id(&self) -> Option<EntryId> {
        Some(self.reader.view.id())
    }

    fn name(&self) -> Result<&NormalDn, Fault> {
        GuardedEntry::name(self)
    }

    fn copy(&self) -> Result<Entry, Fault> {
        self.reader.to_owned(self.view.dn(&self.reader.view)?, false)
    }

    fn matches(
        &self,
        filter: &Filter,
        values: &dyn EntrySource,
        requester: Option<&Subject>,
    ) -> Result<bool, Fault> {
        match requester {
            Some(_) => Ok(filter.matches(self, values)?.is_true()),
            None => Ok(filter.matches(&UnguardedEntry(self), values)?.is_true()),
        }
    }
}

/// The entry with what overlays compute of it.
impl<N: Snapshot> EntrySource for GuardedEntry<'_, N> {
    fn visit(&self, target: &Target, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), Fault> {
        self.composed().visit(target, visit)
    }

    fn descriptions(&self, visit: &mut dyn FnMut(&AttributeDescription)) -> Result<(), Fault> {
        self.composed().descriptions(visit)
    }

    fn visit_exact(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        self.composed().visit_exact(description, visit)
    }

    fn visit_description(
        &self,
        description: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        self.composed().visit_description(description, visit)
    }

    fn is_present(&self, target: &Target) -> Result<bool, Fault> {
        self.composed().is_present(target)
    }

    fn has_only_itself(&self, target: &Target) -> bool {
        self.composed().has_only_itself(target)
    }

    fn large_member(&self, target: &Target, normal: &[u8]) -> Result<Option<bool>, Fault> {
        self.composed().large_member(target, normal)
    }
}

impl<N: Snapshot> FilterContext for GuardedEntry<'_, N> {
    fn schema(&self) -> &Schema {
        &self.view.schema
    }

    fn may_search(&self, description: &AttributeDescription, value: Option<&[u8]>) -> Result<bool, Fault> {
        let privilege = if self.gate.identity { Privilege::Auth } else { Privilege::Search };
        self.allows(description, value, privilege)
    }

    fn judges_values(&self, description: &AttributeDescription) -> Result<bool, Fault> {
        let privilege = if self.gate.identity { Privilege::Auth } else { Privilege::Search };
        if self.is_open(privilege) {
            return Ok(false);
        }
        Ok(match self.verdict(ItemKind::Attribute(description), privilege)? {
            Some(Verdict::Granted | Verdict::Denied) => false,
            Some(Verdict::PerEntry | Verdict::PerValue) | None => self.gate.policy.asks_about_values(),
        })
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

    fn meter(&self) -> Option<&Meter> {
        Some(&self.meter)
    }

    fn may_search_all(&self) -> bool {
        self.gate.search_all
    }
}

/// The same entry where access does not matter.
#[derive(Debug)]
pub struct UnguardedEntry<'a, 's, N>(pub &'a GuardedEntry<'s, N>);

impl<N: Snapshot> FilterContext for UnguardedEntry<'_, '_, N> {
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

    fn meter(&self) -> Option<&Meter> {
        Some(&self.0.meter)
    }

    fn may_search_all(&self) -> bool {
        true
    }
}

/// An entry of which nothing is known but its name, beside one that there is.
struct NameAlone<'e, E>(&'e E);

impl<E: EntryFacts> EntryFacts for NameAlone<'_, E> {
    fn visit(&self, _: &AttributeDescription, _: &mut dyn FnMut(&[u8]) -> bool) {}

    fn matches(&self, _: &BoundFilter) -> Match {
        Match::Undefined
    }

    fn with_entry(&self, dn: &NormalDn, read: &mut dyn FnMut(&dyn EntryFacts)) -> Reach {
        self.0.with_entry(dn, read)
    }

    fn search(
        &self,
        request: &EntrySearch<'_>,
        visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Reach {
        self.0.search(request, visit)
    }

    fn charge(&self, steps: u64) -> bool {
        self.0.charge(steps)
    }

    fn steps_left(&self) -> u64 {
        self.0.steps_left()
    }

    fn memo(&self) -> Option<&Memo> {
        self.0.memo()
    }

    fn failed(&self) -> bool {
        self.0.failed()
    }
}

impl<N: Snapshot> EntryFacts for GuardedEntry<'_, N> {
    fn visit(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        self.noting(self.for_rule(|entry| entry.visit_description(attribute, visit)), ());
    }

    fn matches(&self, filter: &BoundFilter) -> Match {
        let filter = Filter::new(&self.view.schema, &self.view.catalog, filter.clone());
        self.noting(self.for_rule(|entry| filter.matches(&UnguardedEntry(self), entry)), Match::Undefined)
    }

    fn visit_exact(&self, attribute: &AttributeDescription, visit: &mut dyn FnMut(&[u8]) -> bool) {
        self.noting(self.for_rule(|entry| entry.visit_exact(attribute, visit)), ());
    }

    fn has_dn(&self, schema: &Schema, attribute: &AttributeDescription, dn: &NormalDn) -> bool {
        let found = self.for_rule(|entry| {
            rule_facts::has_dn(self.view, entry, schema, attribute, (dn, Some(&self.meter)))
        });
        self.noting(found, false)
    }

    fn with_entry(&self, dn: &NormalDn, read: &mut dyn FnMut(&dyn EntryFacts)) -> Reach {
        let reach = rule_facts::with_entry(self.view, self.sight().of_rules(), dn, read);
        self.noting(reach, Reach::Elsewhere)
    }

    fn search(
        &self,
        request: &EntrySearch<'_>,
        visit: &mut dyn FnMut(&AttributeDescription, &[u8]) -> bool,
    ) -> Reach {
        let reach = rule_facts::search(self.view, self.sight().of_rules(), request, visit);
        self.noting(reach, Reach::Elsewhere)
    }

    fn charge(&self, steps: u64) -> bool {
        let is_paid = self.meter.take(steps);
        if !is_paid {
            self.failed.set(true);
        }
        is_paid
    }

    fn steps_left(&self) -> u64 {
        self.meter.remaining()
    }

    fn memo(&self) -> Option<&Memo> {
        self.gate.memo.as_deref()
    }

    fn failed(&self) -> bool {
        self.failed.get()
    }
}
