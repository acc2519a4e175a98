//! The members that an entry, or a whole tree of them, makes of groups.

use std::collections::BTreeMap;

use larix_engine::Entry;
use larix_engine::overlay::internal_search::InternalSearch;
use larix_engine::overlay::{Entries, Failure, Refusal};
use larix_proto::{LdapResult, ResultCode, Scope};
use larix_schema::{AttributeDescription, BoundFilter, MatchingRule, NormalDn, Schema};

use super::compiled::{Compiled, Group, Url};
use super::{GroupSet, Settings};

/// Memberships that a change of a whole tree may end and make, together.
pub(super) const MOVED_MAX: usize = 1_000_000;

/// Equality rules of strings that heed case, and others that take such strings for equal, too.
const EXACT_RULES: [&str; 2] = ["2.5.13.5", "1.3.6.1.4.1.1466.109.114.1"];
const IGNORING_RULES: [&str; 2] = ["2.5.13.2", "1.3.6.1.4.1.1466.109.114.2"];
const NUMBER_RULES: [&str; 3] = ["2.5.13.8", "2.5.13.14", "2.5.13.20"];

/// By the equality key of the member attribute, as they are stored.
pub(super) type Members = BTreeMap<Vec<u8>, Vec<u8>>;

/// By the places of the groups.
pub(super) type ByGroup = BTreeMap<usize, Members>;

/// An entry on one side of a change.
#[derive(Copy, Clone)]
pub(super) struct Side<'a> {
    pub(super) entries: &'a dyn Entries,
    pub(super) dn: &'a NormalDn,
    pub(super) entry: &'a Entry,
}

impl Side<'_> {
    /// Whether a URL finds the entry.
    fn is_found(&self, url: &Url) -> Result<bool, Failure> {
        if !self.dn.is_in_scope(&url.base, url.scope) {
            return Ok(false);
        }
        if self.entry.attributes.iter().any(|attribute| attribute.large.is_some()) {
            // Values that are not in the copy count as well.
            return super::follow::matches(self.entries, self.dn, &url.filter);
        }
        self.entries.matches(self.dn, self.entry, &url.filter)
    }

    /// Adds what the entry makes of the groups that pass `wanted`.
    pub(super) fn contribute(
        &self,
        (settings, schema): (&Settings, &Schema),
        compiled: &Compiled,
        wanted: &dyn Fn(&Group) -> bool,
        into: &mut ByGroup,
    ) -> Result<(), Failure> {
        compiled.candidates(schema, (self.dn, self.entry), &mut |at| {
            let Some((group, url)) = compiled.url(at).filter(|(group, _)| wanted(group)) else {
                return Ok(());
            };
            let Some(set) = settings.sets.get(group.set) else { return Ok(()) };
            if !self.is_found(url)? {
                return Ok(());
            }
            let members = into.entry(at.group).or_default();
            match &url.values_of {
                None => add(schema, set, members, self.entry.dn.as_bytes()),
                Some(attribute) => self.visit_values(attribute, &mut |value| {
                    add(schema, set, members, value);
                })?,
            }
            Ok(())
        })
    }

    fn visit_values(
        &self,
        attribute: &AttributeDescription,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Failure> {
        let own = self.entry.attribute(attribute);
        if own.is_none_or(|own| own.large.is_none()) && !self.entries.is_computed(attribute) {
            own.into_iter().flat_map(|own| &own.values).for_each(|value| visit(value));
            return Ok(());
        }
        visit_values_of(self.entries, self.dn, attribute, visit)
    }
}

/// The values of an entry that may be in the store alone.
pub(super) fn visit_values_of(
    entries: &dyn Entries,
    dn: &NormalDn,
    attribute: &AttributeDescription,
    visit: &mut dyn FnMut(&[u8]),
) -> Result<(), Failure> {
    let query = InternalSearch::new(dn, Scope::Base, &BoundFilter::True);
    entries.search(&query, &mut |found| {
        found.source().visit_exact(attribute, &mut |value| {
            visit(value);
            true
        })?;
        Ok(false)
    })?;
    Ok(())
}

/// Adds a member, if the member attribute takes it.
fn add(schema: &Schema, set: &GroupSet, members: &mut Members, value: &[u8]) {
    if let Some(key) = key(schema, set, value) {
        members.entry(key).or_insert_with(|| value.to_vec());
    }
}

/// What equal members have in common; `None`: the member attribute does not take the value.
pub(super) fn key(schema: &Schema, set: &GroupSet, value: &[u8]) -> Option<Vec<u8>> {
    let kind = schema.attribute(set.member.attribute);
    let mut key = Vec::new();
    kind.equality?.normalize_value(schema, value, &mut key).ok()?;
    // Of other syntaxes a rule may take more than they do.
    (kind.syntax.is_dn() || kind.syntax.pretty(schema, value).is_ok()).then_some(key)
}

/// What all entries from `base` downwards make of groups.
pub(super) fn of_tree(
    (settings, schema): (&Settings, &Schema),
    compiled: &Compiled,
    entries: &dyn Entries,
    base: &NormalDn,
) -> Result<ByGroup, Refusal> {
    let (mut all, mut failure) = (ByGroup::new(), None);
    if !compiled.concerns(base) {
        return Ok(all);
    }
    let query = InternalSearch::new(base, Scope::Subtree, &BoundFilter::True);
    entries.search(&query, &mut |found| {
        let (dn, entry) = (found.dn()?, found.owned()?);
        let side = Side { entries, dn, entry: &entry };
        failure = side.contribute((settings, schema), compiled, &|_| true, &mut all).err();
        Ok(failure.is_none() && count(&all) <= MOVED_MAX)
    })?;
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    if count(&all) > MOVED_MAX {
        let text = format!("autogroup: more than {MOVED_MAX} memberships are to be changed at once");
        return Err(LdapResult::with(ResultCode::ADMIN_LIMIT_EXCEEDED, text).into());
    }
    Ok(all)
}

fn count(all: &ByGroup) -> usize {
    all.values().map(Members::len).sum()
}

/// Takes out of `removed` what other entries make of the group, too.
pub(super) fn retain_last(
    (set, schema): (&GroupSet, &Schema),
    group: &Group,
    entries: &dyn Entries,
    removed: &mut Members,
) -> Result<(), Failure> {
    let mut still = Vec::new();
    for (wanted, value) in removed.iter() {
        let mut is_made = false;
        for url in &group.urls {
            is_made = is_made
                || match &url.values_of {
                    Some(attribute) => is_value((set, schema), (url, attribute), entries, (wanted, value))?,
                    None => is_named((url, schema), entries, value)?,
                };
        }
        if is_made {
            still.push(wanted.clone());
        }
    }
    for wanted in still {
        removed.remove(&wanted);
    }
    Ok(())
}

/// Whether values that are equal by the member attribute's rule are equal by that of the attribute that they come from.
fn implies(member: &MatchingRule, source: &MatchingRule) -> bool {
    let is_exact = EXACT_RULES.contains(&member.oid);
    member == source
        || is_exact && (EXACT_RULES.contains(&source.oid) || NUMBER_RULES.contains(&source.oid))
        || (is_exact || IGNORING_RULES.contains(&member.oid)) && IGNORING_RULES.contains(&source.oid)
}

/// Whether a URL finds an entry with this value.
fn is_value(
    (set, schema): (&GroupSet, &Schema),
    (url, attribute): (&Url, &AttributeDescription),
    entries: &dyn Entries,
    (wanted, value): (&[u8], &[u8]),
) -> Result<bool, Failure> {
    let rule = schema.attribute(set.member.attribute).equality;
    let has_value = schema.bind_equality(attribute, value).ok();
    let filter = match has_value.filter(|has_value| rule.is_some_and(|rule| implies(rule, has_value.rule))) {
        Some(has_value) => BoundFilter::And(vec![url.filter.clone(), BoundFilter::Equality(has_value)]),
        // Another entry may have the same member in other letters.
        None => url.filter.clone(),
    };
    let mut found_any = false;
    entries.search(&InternalSearch::new(&url.base, url.scope, &filter), &mut |found| {
        found.source().visit_exact(attribute, &mut |value| {
            found_any = found_any || key(schema, set, value).is_some_and(|own| own == wanted);
            !found_any
        })?;
        Ok(!found_any)
    })?;
    Ok(found_any)
}

/// Whether a URL finds the entry that a value names.
fn is_named((url, schema): (&Url, &Schema), entries: &dyn Entries, value: &[u8]) -> Result<bool, Failure> {
    let dn = std::str::from_utf8(value).ok().and_then(|text| schema.parse_dn(text).ok());
    match dn.filter(|dn| dn.is_in_scope(&url.base, url.scope)) {
        Some(dn) => super::follow::matches(entries, &dn, &url.filter),
        None => Ok(false),
    }
}
