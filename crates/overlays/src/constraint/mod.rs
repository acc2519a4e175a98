//! `overlay constraint`: what values of attributes must look like (slapo-constraint(5)).
//!
//! The writer judges a change before it carries it out, as slapd does, so that a broken rule is answered before a broken schema.
//! Counts and sets are judged by an estimate of what the change leaves.

mod config;
mod estimate;
mod stored;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use larix_engine::access::{EntrySet, Privilege};
use larix_engine::entry::{Entry, EntryAttribute};
use larix_engine::overlay::internal_search::{InternalSearch, SearchEnd, Whose};
use larix_engine::overlay::{
    Additions, Change, ChangeKind, Descriptor, Entries, Failure, InGluedDatabases, Interests, Overlay,
    OverlayDirective, PendingChange, PreparedChange, Refusal, Violation,
};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, BoundFilter, NormalDn, Schema};
use regex::Regex;

pub static DESCRIPTOR: Descriptor = Descriptor::new("constraint", "olcConstraintConfig", config::build)
    .over_glue(InGluedDatabases::Each)
    .once()
    .directives(&[
        OverlayDirective::words("constraint_attribute", "olcConstraintAttribute").many(),
        OverlayDirective::switch("constraint_allowempty", "olcConstraintAllowEmpty"),
    ]);

/// All `constraint_attribute` of a database.
#[derive(Clone, Debug, Default)]
pub struct ConstraintSettings {
    pub constraints: Vec<Constraint>,
    /// `constraint_allowempty`: a modify without modifications passes.
    pub allow_empty: bool,
}

/// One `constraint_attribute`.
#[derive(Clone, Debug)]
pub struct Constraint {
    /// Exactly these, without options and subtypes.
    pub attributes: Vec<AttributeDescription>,
    pub rule: Rule,
    /// The entries that it is about; `None`: all.
    pub restriction: Option<Restriction>,
    /// As it stands in the configuration.
    pub text: String,
}

/// What is asked of values.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Each value matches, or, negated, none does. The time is linear in the value.
    Regex { regex: Regex, negated: bool },
    /// Bytes of a value, at most.
    Size(u64),
    /// Values of an attribute, at most.
    Count(u64),
    /// Each value is one of another entry, or, negated, none is.
    Uri { uri_search: UriSearch, negated: bool },
    /// The set has a value, or, negated, has none.
    Set { set: EntrySet, negated: bool },
}

/// Where values are looked for.
#[derive(Clone, Debug)]
pub struct UriSearch {
    /// `None`: the database's first suffix.
    pub base: Option<NormalDn>,
    pub scope: Scope,
    pub attributes: Vec<AttributeDescription>,
    pub filter: Option<BoundFilter>,
}

/// The entries that a constraint is about.
#[derive(Clone, Debug)]
pub struct Restriction {
    pub base: Option<(NormalDn, Scope)>,
    pub filter: Option<BoundFilter>,
}

impl Restriction {
    fn includes(&self, dn: &NormalDn, entry: &Entry, entries: &dyn Entries) -> Result<bool, Failure> {
        if self.base.as_ref().is_some_and(|(base, scope)| !dn.is_in_scope(base, *scope)) {
            return Ok(false);
        }
        Ok(match &self.filter {
            Some(filter) => entries.matches(dn, entry, filter)?,
            None => true,
        })
    }
}

/// Holds values to constraints.
#[derive(Debug)]
pub struct Constraints {
    settings: ConstraintSettings,
    suffix: NormalDn,
}

impl Constraints {
    /// `suffix`: the database's first.
    pub fn new(settings: ConstraintSettings, suffix: NormalDn) -> Self {
        Self { settings, suffix }
    }
}

impl Overlay for Constraints {
    fn name(&self) -> &'static str {
        "constraint"
    }

    fn interests(&self) -> Interests {
        Interests::PREPARE
    }

    fn violations(
        &self,
        entries: &dyn Entries,
        schema: &Schema,
        report: &mut dyn FnMut(Violation),
    ) -> Result<(), Failure> {
        self.report_broken(entries, schema, report)
    }

    fn prepare(&self, change: &PendingChange<'_>) -> Result<Additions, Refusal> {
        if !change.is_judged() {
            return Ok(Additions::default());
        }
        let spent = Spent::default();
        match change.operation {
            PreparedChange::Add { dn, entry, .. } => self.judge_add(change, dn, entry, &spent)?,
            PreparedChange::Modify { mods, .. } if mods.is_empty() => {
                if !self.settings.allow_empty {
                    let text = "constraint_update() got null modlist";
                    return Err(LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text).into());
                }
            }
            PreparedChange::Modify { dn, mods } => self.judge_changes(change, (dn, dn), mods, &spent)?,
            PreparedChange::ModifyDn(rename) => {
                self.judge_changes(change, (&rename.dn, &rename.target()), &rename.mods, &spent)?;
            }
            PreparedChange::Delete { .. } | PreparedChange::Authenticate(_) | PreparedChange::Record(_) => {}
        }
        Ok(Additions::default())
    }
}

impl Constraints {
    fn judge_add(
        &self,
        change: &PendingChange<'_>,
        dn: &NormalDn,
        entry: &Entry,
        spent: &Spent,
    ) -> Result<(), Refusal> {
        let entries = change.entries;
        for attribute in &entry.attributes {
            let description = &attribute.description;
            if change.schema.attribute(description.attribute).is_operational()
                || is_own_class(change, description)
            {
                continue;
            }
            for constraint in self.about(description) {
                if !applies(constraint, dn, entry, entries)? || is_lifted(change, dn, entry, description)? {
                    continue;
                }
                let holds = match &constraint.rule {
                    Rule::Count(most) => attribute.values.len() as u64 <= *most,
                    Rule::Set { set, negated } => {
                        // What cannot be told does not hold, negated or not.
                        entries.has_any(set, change.subject, dn, entry)? == Some(!*negated)
                    }
                    rule => self.hold(rule, &attribute.values, change, spent)?,
                };
                if !holds {
                    return Err(refusal("add", change.schema, description));
                }
            }
        }
        Ok(())
    }

    /// What a modify or a rename brings, and what it leaves of the entry.
    fn judge_changes(
        &self,
        change: &PendingChange<'_>,
        (dn, target): (&NormalDn, &NormalDn),
        mods: &[Change],
        spent: &Spent,
    ) -> Result<(), Refusal> {
        if !mods.iter().any(|change| self.about(&change.description).next().is_some()) {
            return Ok(());
        }
        // The engine answers for an entry that is not there.
        let Some(mut entry) = change.entries.entry(dn)? else { return Ok(()) };
        let is_soft = |one: &Change| change.controls.permissive_modify || one.kind == ChangeKind::SoftAdd;
        let is_counted = |description: &AttributeDescription| {
            mods.iter().any(|one| one.description == *description && is_soft(one))
        };
        self.load((change.entries, change.schema), dn, &is_counted, &mut entry)?;
        let mut left = None;
        for Change { kind, description, values, .. } in mods {
            let is_operational = change.schema.attribute(description.attribute).is_operational();
            if *kind == ChangeKind::Delete
                || values.is_empty()
                || is_operational
                || is_own_class(change, description)
            {
                continue;
            }
            for constraint in self.about(description) {
                if !applies(constraint, dn, &entry, change.entries)?
                    || is_lifted(change, dn, &entry, description)?
                {
                    continue;
                }
                let estimated = || estimate::after(change.schema, &entry, mods);
                let holds = match &constraint.rule {
                    Rule::Count(most) => {
                        left.get_or_insert_with(estimated)
                            .attribute(description)
                            .map_or(0, EntryAttribute::count)
                            <= *most
                    }
                    Rule::Set { set, negated } => {
                        change.entries.has_any(
                            set,
                            change.subject,
                            target,
                            left.get_or_insert_with(estimated),
                        )? == Some(!*negated)
                    }
                    // What an increment leads to, only the entry tells.
                    rule if *kind == ChangeKind::Increment => {
                        let left = left.get_or_insert_with(estimated).attribute(description);
                        self.hold(rule, left.map_or(&[][..], |own| &own.values), change, spent)?
                    }
                    rule => self.hold(rule, values, change, spent)?,
                };
                if !holds {
                    return Err(refusal("modify", change.schema, description));
                }
            }
        }
        Ok(())
    }

    /// Brings values that rules need and that the entry has left in the store: those that sets may ask for, and those of attributes that
    /// are counted one by one, because a value that comes may be there already, or one that goes may not be.
    fn load(
        &self,
        (entries, schema): (&dyn Entries, &Schema),
        dn: &NormalDn,
        is_counted: &dyn Fn(&AttributeDescription) -> bool,
        entry: &mut Entry,
    ) -> Result<(), Failure> {
        for attribute in entry.attributes.iter_mut().filter(|attribute| attribute.large.is_some()) {
            let description = &attribute.description;
            let asks = |constraint: &Constraint| match &constraint.rule {
                Rule::Set { set, .. } => set.mentions(schema, description),
                Rule::Count(_) => constraint.attributes.contains(description) && is_counted(description),
                _ => false,
            };
            if self.settings.constraints.iter().any(asks) {
                entries.bring(dn, attribute)?;
            }
        }
        Ok(())
    }

    fn about<'c>(
        &'c self,
        description: &'c AttributeDescription,
    ) -> impl Iterator<Item = &'c Constraint> + 'c {
        self.settings.constraints.iter().filter(|constraint| constraint.attributes.contains(description))
    }

    /// Whether all of these values obey a rule about single values. The requester must find those of a URI, as in slapd.
    fn hold(
        &self,
        rule: &Rule,
        values: &[Vec<u8>],
        change: &PendingChange<'_>,
        spent: &Spent,
    ) -> Result<bool, Failure> {
        let place = (change.entries, change.schema, Whose::Requester(change.subject), Some(spent));
        for value in values {
            if !self.value_holds(rule, value, place)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a value obeys a rule about single values; those of a URI are looked for there by `whose` rights.
    fn value_holds(&self, rule: &Rule, value: &[u8], place: ValueScope<'_>) -> Result<bool, Failure> {
        Ok(match rule {
            Rule::Regex { regex, negated } => regex.is_match(&String::from_utf8_lossy(value)) != *negated,
            Rule::Size(most) => value.len() as u64 <= *most,
            Rule::Uri { uri_search, negated } => self.is_found(uri_search, value, place)? != *negated,
            Rule::Count(_) | Rule::Set { .. } => true,
        })
    }

    /// Whether the value is found in another entry.
    fn is_found(
        &self,
        uri_search: &UriSearch,
        value: &[u8],
        (entries, schema, whose, spent): ValueScope<'_>,
    ) -> Result<bool, Failure> {
        spent.map_or(Ok(()), Spent::check)?;
        let equals = uri_search.attributes.iter().map(|description| {
            let bound = schema.bind_equality(description, value);
            bound.map_or(BoundFilter::Undefined, BoundFilter::Equality)
        });
        let any = BoundFilter::Or(equals.collect());
        let filter = match &uri_search.filter {
            Some(filter) => BoundFilter::And(vec![filter.clone(), any]),
            None => any,
        };
        let base = uri_search.base.as_ref().unwrap_or(&self.suffix);
        let query = InternalSearch {
            manage_dsa_it: false,
            subentries: false,
            ..InternalSearch::new(base, uri_search.scope, &filter).of(whose)
        };
        let searched = entries.finds_any(&query)?;
        if let Some(spent) = spent {
            spent.add(searched.looked);
        }
        match searched.ended {
            // What was not looked at may have the value.
            SearchEnd::TooMuchWork => Err(too_much_work().into()),
            _ => Ok(searched.entries > 0),
        }
    }
}

/// Where a value is looked for, by whose rights, and what that has taken; `None`: it may take what it takes.
type ValueScope<'p> = (&'p dyn Entries, &'p Schema, Whose<'p>, Option<&'p Spent>);

/// Values that one change may have looked for, whatever that takes.
const SEARCHES_FREE: u32 = 16;

/// Entries that one change may have looked at for values beyond these.
const LOOKED_MAX: u64 = 500_000;

/// What a change has had looked at, in the writer's time.
#[derive(Debug, Default)]
struct Spent {
    searches: Cell<u32>,
    looked: Cell<u64>,
}

impl Spent {
    fn add(&self, looked: u64) {
        self.searches.set(self.searches.get().saturating_add(1));
        self.looked.set(self.looked.get().saturating_add(looked));
    }

    /// Refuses one more search where the change has had its share.
    fn check(&self) -> Result<(), Failure> {
        match self.searches.get() >= SEARCHES_FREE && self.looked.get() > LOOKED_MAX {
            true => Err(too_much_work().into()),
            false => Ok(()),
        }
    }
}

fn too_much_work() -> LdapResult {
    let text = "constraint: too many entries are looked at for the values of this change; send fewer values at once, or have an \
                equality index made of the attributes in the constraint's URI";
    LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text)
}

fn applies(
    constraint: &Constraint,
    dn: &NormalDn,
    entry: &Entry,
    entries: &dyn Entries,
) -> Result<bool, Failure> {
    constraint.restriction.as_ref().map_or(Ok(true), |restriction| restriction.includes(dn, entry, entries))
}

/// Whether another overlay gives an entry classes: those are its own.
fn is_own_class(change: &PendingChange<'_>, description: &AttributeDescription) -> bool {
    change.derived && change.schema.attribute(description.attribute).name() == "objectClass"
}

/// The relax rules control lifts constraints of attributes that the requester may manage.
fn is_lifted(
    change: &PendingChange<'_>,
    dn: &NormalDn,
    entry: &Entry,
    description: &AttributeDescription,
) -> Result<bool, Refusal> {
    let manage = Privilege::Manage;
    Ok(change.controls.relax && change.entries.allows(change.subject, dn, entry, description, manage)?)
}

fn refusal(what: &str, schema: &Schema, description: &AttributeDescription) -> Refusal {
    let text = format!("{what} breaks constraint on {}", description.to_text(schema));
    LdapResult::with(ResultCode::CONSTRAINT_VIOLATION, text).into()
}
