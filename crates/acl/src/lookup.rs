//! What rules find out from other entries: memberships and the values of sets.

use std::cell::Cell;
use std::collections::HashSet;

use larix_proto::Scope;
use larix_proto::url::{LdapUrl, UrlScheme};
use larix_schema::{AttributeDescription, Match, NormalDn, ObjectClassId, Schema};

use super::compile::is_url_attribute;
use super::facts::{AccessTarget, EntryFacts, LOOK_STEPS, Reach, Unreadable, value_steps};
use super::policy::AccessPolicy;
use super::query::{EntrySearch, GroupQuery};
use super::sets::{Join, SET_BYTES_MAX, SET_LOOKUPS_MAX, SET_VALUES_MAX, Set};

/// Looks at entries on behalf of the rules, without regard to access: the one under protection, others of its database,
/// then those of the server's other databases.
pub(super) struct Lookup<'a> {
    pub(super) policy: &'a AccessPolicy,
    pub(super) target: &'a AccessTarget<'a>,
    /// Whether an answer was not to be had, or a limit was met: the check is then denied.
    pub(super) failed: &'a Cell<bool>,
}

impl Lookup<'_> {
    /// Takes steps for work on behalf of a rule; false: there are none left, and the check is denied.
    pub(super) fn charge(&self, steps: u64) -> bool {
        let is_paid = self.target.entry.charge(steps);
        if !is_paid {
            self.failed.set(true);
        }
        is_paid
    }

    /// Hands the entry of this name to `read`. Answers whether there is one.
    pub(super) fn with_entry(&self, dn: &NormalDn, read: &mut dyn FnMut(&dyn EntryFacts)) -> bool {
        if !self.charge(LOOK_STEPS) {
            return false;
        }
        if dn == self.target.dn {
            read(self.target.entry);
            return true;
        }
        let suffix_depth = match self.target.entry.with_entry(dn, read) {
            Reach::Found => return true,
            Reach::Absent { suffix_depth } => suffix_depth,
            Reach::Elsewhere => 0,
        };
        let found = self.policy.others().map(|others| others.with_entry(dn, suffix_depth, read));
        self.or_failed(found.unwrap_or(Ok(false)), false)
    }

    /// Whether the member is in the group: among the values of its attribute, or found by one of its URLs.
    pub(super) fn is_member(&self, query: &GroupQuery<'_>, member: &NormalDn) -> bool {
        let schema = &self.policy.schema;
        let by_url = is_url_attribute(schema, query.attribute);
        let mut found = false;
        let mut urls = Vec::new();
        self.with_entry(query.group, &mut |group| {
            if !is_of_class(schema, group, query.class) {
                return;
            }
            if by_url {
                group.visit_exact(query.attribute, &mut |value| {
                    urls.extend(std::str::from_utf8(value).ok().map(str::to_owned));
                    self.charge(value_steps(value))
                });
            } else {
                found = group.has_dn(schema, query.attribute, member);
            }
            if group.failed() {
                self.failed.set(true);
            }
        });
        for url in urls {
            match self.is_found_by(&url, member) {
                Some(false) => {}
                Some(true) => return true,
                // As in OpenLDAP, what cannot be evaluated ends the search for a membership.
                None => return false,
            }
        }
        found
    }

    /// Whether a search by the URL, which must name no server, attribute or extension, finds the member. A URL without a
    /// filter finds no entry, as in OpenLDAP. `None`: it is unknown.
    fn is_found_by(&self, url: &str, member: &NormalDn) -> Option<bool> {
        let Some(url) = local_url(url).filter(|url| url.attributes.is_empty()) else { return Some(false) };
        let Ok(base) = self.policy.schema.parse_dn(&url.dn) else { return Some(false) };
        if !member.is_in_scope(&base, url.scope.unwrap_or(Scope::Base)) {
            return Some(false);
        }
        let Some(filter) = &url.filter else { return Some(false) };
        let filter = self.policy.schema.bind_filter(filter.as_filter());
        let mut matches = None;
        self.with_entry(member, &mut |entry| matches = Some(entry.matches(&filter) == Match::True));
        matches
    }

    /// Whether the set has any value.
    pub(super) fn is_set(&self, set: &Set, requester: Option<&NormalDn>) -> bool {
        let mut gathering = Gathering { lookup: self, requester, lookups: 0 };
        match gathering.values(set) {
            Ok(values) => !values.0.is_empty(),
            Err(Unanswered::Nobody) => false,
            Err(Unanswered::TooMuch) => {
                self.failed.set(true);
                false
            }
        }
    }

    fn or_failed<T>(&self, answer: Result<T, Unreadable>, otherwise: T) -> T {
        answer.unwrap_or_else(|_| {
            self.failed.set(true);
            otherwise
        })
    }
}

fn is_of_class(schema: &Schema, entry: &dyn EntryFacts, wanted: ObjectClassId) -> bool {
    let Ok(object_class) = schema.describe("objectClass") else { return false };
    let mut found = false;
    entry.visit(&object_class, &mut |value| {
        let class = std::str::from_utf8(value).ok().and_then(|name| schema.object_class_id(name));
        found = class.is_some_and(|class| class == wanted || schema.is_subclass(class, wanted));
        !found
    });
    found
}

/// An LDAP URL that names neither server nor extension.
fn local_url(text: &str) -> Option<LdapUrl> {
    // The whole of it first: names and filters may have spaces that are not encoded. labeledURI may have a label behind one.
    let url = LdapUrl::parse(text)
        .ok()
        .or_else(|| LdapUrl::parse(text.split(' ').next().unwrap_or_default()).ok())?;
    (url.scheme == UrlScheme::Ldap && url.host.is_empty() && url.extensions.is_empty()).then_some(url)
}

/// Why a set has no answer.
enum Unanswered {
    /// It mentions the requester, and there is none.
    Nobody,
    /// A limit was met.
    TooMuch,
}

/// Values in the order they came up, each once; and their bytes.
#[derive(Default)]
struct Values(Vec<Vec<u8>>, HashSet<Vec<u8>>, usize);

impl Values {
    fn of(value: Vec<u8>) -> Self {
        let mut values = Self::default();
        values.0.push(value);
        values
    }

    fn insert(&mut self, value: Vec<u8>) -> Result<(), Unanswered> {
        // Few are found faster without hashing.
        let known = if self.0.len() < 16 { self.0.contains(&value) } else { self.hashed().contains(&value) };
        if known {
            return Ok(());
        }
        self.2 += value.len();
        if self.0.len() >= SET_VALUES_MAX || self.2 > SET_BYTES_MAX {
            return Err(Unanswered::TooMuch);
        }
        if self.0.len() >= 16 {
            self.1.insert(value.clone());
        }
        self.0.push(value);
        Ok(())
    }

    fn hashed(&mut self) -> &HashSet<Vec<u8>> {
        if self.1.len() < self.0.len() {
            self.1.extend(self.0.iter().cloned());
        }
        &self.1
    }
}

struct Gathering<'a> {
    lookup: &'a Lookup<'a>,
    requester: Option<&'a NormalDn>,
    lookups: u32,
}

impl Gathering<'_> {
    fn values(&mut self, set: &Set) -> Result<Values, Unanswered> {
        match set {
            Set::This => Ok(Values::of(self.lookup.target.dn.as_str().as_bytes().to_vec())),
            Set::User => match self.requester {
                Some(dn) => Ok(Values::of(dn.as_str().as_bytes().to_vec())),
                None => Err(Unanswered::Nobody),
            },
            Set::Literal(text) => Ok(Values::of(text.as_bytes().to_vec())),
            Set::Template(_) => Ok(Values::default()),
            Set::Ancestor(of, level) => {
                let mut found = Values::default();
                for value in self.values(of)?.0 {
                    self.pay(value_steps(&value))?;
                    found.insert(ancestor(&value, *level as usize))?;
                }
                Ok(found)
            }
            Set::Ancestors(of) => {
                let mut found = Values::default();
                for value in self.values(of)?.0 {
                    let text = String::from_utf8_lossy(&value).into_owned();
                    let levels = NormalDn::from_normal(&text).depth();
                    for level in 0..=levels {
                        self.pay(value_steps(&value))?;
                        found.insert(ancestor(&value, level))?;
                    }
                }
                Ok(found)
            }
            Set::Values { of, attribute, closure } => {
                let from = self.values(of)?;
                self.chase(from, attribute, *closure)
            }
            Set::Join(join, left, right) => {
                // Both, even where one is empty: an absent requester is no match, wherever it stands.
                let (left, right) = (self.values(left)?, self.values(right)?);
                let count = match join {
                    Join::Concatenation => left.0.len().saturating_mul(right.0.len()),
                    Join::Union | Join::Intersection => left.0.len() + right.0.len(),
                };
                self.pay(count as u64)?;
                joined(*join, left, right)
            }
        }
    }

    fn pay(&self, steps: u64) -> Result<(), Unanswered> {
        if self.lookup.charge(steps) { Ok(()) } else { Err(Unanswered::TooMuch) }
    }

    fn chase(
        &mut self,
        from: Values,
        attribute: &AttributeDescription,
        closure: bool,
    ) -> Result<Values, Unanswered> {
        let mut found = Values::default();
        for value in &from.0 {
            self.gather(value, attribute, &mut found)?;
        }
        // What is found in turn comes behind; loops end, since each value is there once.
        let mut next = 0;
        while closure && let Some(value) = found.0.get(next).cloned() {
            self.gather(&value, attribute, &mut found)?;
            next += 1;
        }
        Ok(found)
    }

    /// The values of an attribute of the entry that a DN names, or of those that a URL finds.
    fn gather(
        &mut self,
        name: &[u8],
        attribute: &AttributeDescription,
        found: &mut Values,
    ) -> Result<(), Unanswered> {
        self.lookups += 1;
        if self.lookups > SET_LOOKUPS_MAX {
            return Err(Unanswered::TooMuch);
        }
        let Ok(name) = std::str::from_utf8(name) else { return Ok(()) };
        let url = name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("ldap:///"));
        if url {
            return self.gather_by_url(name, attribute, found);
        }
        let schema = &self.lookup.policy.schema;
        let Ok(dn) = schema.parse_dn(name) else { return Ok(()) };
        if schema.attribute(attribute.attribute).name() == "entryDN" {
            return found.insert(dn.as_str().as_bytes().to_vec());
        }
        let mut outcome = Ok(());
        self.lookup.with_entry(&dn, &mut |entry| {
            outcome = self.take_values(entry, attribute, found);
            if entry.failed() {
                self.lookup.failed.set(true);
            }
        });
        outcome
    }

    fn gather_by_url(
        &self,
        url: &str,
        attribute: &AttributeDescription,
        found: &mut Values,
    ) -> Result<(), Unanswered> {
        let lookup = self.lookup;
        let schema = &lookup.policy.schema;
        let Some(url) = local_url(url) else { return Ok(()) };
        let Ok(base) = schema.parse_dn(&url.dn) else { return Ok(()) };
        let mut wanted: Vec<AttributeDescription> =
            url.attributes.iter().filter_map(|name| schema.describe(name).ok()).collect();
        wanted.push(attribute.clone());
        let before = lookup.target.entry.steps_left();
        let steps = Cell::new(before);
        let search = EntrySearch {
            base: &base,
            scope: url.scope.unwrap_or(Scope::Base),
            filter: url.filter.as_ref().map(larix_proto::FilterBuf::as_filter),
            wanted: &wanted,
            limit: SET_VALUES_MAX,
            steps: &steps,
        };
        let mut outcome = Ok(());
        let mut visit = |description: &AttributeDescription, value: &[u8]| {
            outcome = self.take(description, value, found);
            outcome.is_ok()
        };
        let suffix_depth = match lookup.target.entry.search(&search, &mut visit) {
            Reach::Found => return outcome,
            Reach::Absent { suffix_depth } => suffix_depth,
            Reach::Elsewhere => 0,
        };
        if let Some(others) = lookup.policy.others() {
            lookup.or_failed(others.search(&search, suffix_depth, &mut visit), false);
            // What was found has been paid for one by one, and counts once more.
            let left = steps.get();
            self.pay(if left == 0 { u64::MAX } else { before.saturating_sub(left) })?;
        }
        outcome
    }

    fn take_values(
        &self,
        entry: &dyn EntryFacts,
        attribute: &AttributeDescription,
        found: &mut Values,
    ) -> Result<(), Unanswered> {
        let mut outcome = Ok(());
        entry.visit_exact(attribute, &mut |value| {
            outcome = self.take(attribute, value, found);
            outcome.is_ok()
        });
        outcome
    }

    fn take(
        &self,
        attribute: &AttributeDescription,
        value: &[u8],
        found: &mut Values,
    ) -> Result<(), Unanswered> {
        self.pay(value_steps(value))?;
        found.insert(normal_text(&self.lookup.policy.schema, attribute, value))
    }
}

/// The value as the equality rule has it; as it is, where there is none.
pub(super) fn normal_text(schema: &Schema, attribute: &AttributeDescription, value: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(value.len());
    let rule = schema.get_attribute(attribute.attribute).and_then(|attribute| attribute.equality);
    match rule.map(|rule| rule.normalize_text(schema, value, &mut text)) {
        Some(Ok(())) => text,
        _ => value.to_vec(),
    }
}

/// The name without its first RDNs; empty where there are no more.
fn ancestor(name: &[u8], levels: usize) -> Vec<u8> {
    if levels == 0 {
        return name.to_vec();
    }
    let dn = NormalDn::from_normal(&String::from_utf8_lossy(name));
    dn.ancestor(levels).map_or_else(Vec::new, |dn| dn.as_str().as_bytes().to_vec())
}

fn joined(join: Join, mut left: Values, mut right: Values) -> Result<Values, Unanswered> {
    match join {
        Join::Union => {
            for value in right.0 {
                left.insert(value)?;
            }
            Ok(left)
        }
        Join::Intersection => {
            let mut both = Values::default();
            let known = right.hashed();
            for value in left.0.into_iter().filter(|value| known.contains(value)) {
                both.insert(value)?;
            }
            Ok(both)
        }
        Join::Concatenation => {
            let mut pairs = Values::default();
            for first in &left.0 {
                for second in &right.0 {
                    pairs.insert([first.as_slice(), second].concat())?;
                }
            }
            Ok(pairs)
        }
    }
}
