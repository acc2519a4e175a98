//! What a modification does to an entry (RFC 4511 section 4.6, RFC 4525), with OpenLDAP's result codes and diagnostic
//! messages. Works on an owned entry; of a large set it asks for single members and notes what is to change.

use std::sync::Arc;

use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, AttributeType, Schema};

mod together;

use super::values;
use crate::change::prepare::{Change, ChangeKind};
use crate::entry::values::member_key_of_normal;
use crate::entry::{Entry, EntryAttribute, Joined, LargeValues, Members};
use crate::failure::Failure;
use crate::fault::Fault;

/// What was not loaded of the entry: its large sets, and values that it keeps.
pub trait LargeSets {
    /// Whether the set of this attribute has the member.
    fn contains(&self, description: &AttributeDescription, member: &[u8]) -> Result<bool, Fault>;

    /// Whether one of the values that the entry keeps of this attribute has the equality key.
    fn keeps(&self, description: &AttributeDescription, key: &[u8]) -> Result<bool, Fault>;

    /// The values of a change as a large set has them, if they were made so before.
    fn prepared(&self, _: &Change) -> Option<&Arc<Members>> {
        None
    }

    /// The stored large set with the prepared values of a change in it. `None` where it takes less to ask for each value.
    fn joined(&self, _: &Change) -> Result<Option<Joined>, Fault> {
        Ok(None)
    }

    /// The stored large set without the prepared values of a change, and how many of them it has. `None` as for [`Self::joined`].
    fn left(&self, _: &Change) -> Result<Option<(Members, u64)>, Fault> {
        Ok(None)
    }
}

/// An entry that has none.
#[derive(Copy, Clone, Debug)]
pub struct NoLargeSets;

impl LargeSets for NoLargeSets {
    fn contains(&self, _: &AttributeDescription, _: &[u8]) -> Result<bool, Fault> {
        Ok(false)
    }

    fn keeps(&self, _: &AttributeDescription, _: &[u8]) -> Result<bool, Fault> {
        Ok(false)
    }
}

/// Whether the set will have the member once what was noted is done.
pub(crate) fn large_contains(
    sets: &dyn LargeSets,
    description: &AttributeDescription,
    large: &LargeValues,
    member: &[u8],
) -> Result<bool, Fault> {
    if large.added.contains_key(member) {
        return Ok(true);
    }
    if large.removed.contains(member) {
        return Ok(false);
    }
    match &large.fresh {
        Some(members) => Ok(members.contains(member)),
        None => sets.contains(description, member),
    }
}

pub(crate) use together::apply_all;

/// Applies one modification.
///
/// # Errors
/// noSuchAttribute, attributeOrValueExists, inappropriateMatching, constraintViolation, invalidAttributeSyntax; the
/// entry is then in no defined state.
pub fn apply(
    schema: &Schema,
    entry: &mut Entry,
    change: &Change,
    permissive: bool,
    sets: &dyn LargeSets,
) -> Result<(), Failure> {
    let apply = Apply { schema, change, permissive, sets };
    match change.kind {
        ChangeKind::Add => apply.add(entry, "add"),
        ChangeKind::SoftAdd => Apply { permissive: true, ..apply }.add(entry, "add"),
        ChangeKind::Delete => apply.delete(entry),
        ChangeKind::Replace => {
            entry.remove(&change.description);
            if change.values.is_empty() { Ok(()) } else { apply.add(entry, "replace") }
        }
        ChangeKind::Increment => apply.increment(entry),
    }
}

/// Equality keys, to be asked for one by one.
type Keys = foldhash::HashSet<Vec<u8>>;

struct Apply<'a> {
    schema: &'a Schema,
    change: &'a Change,
    /// Adding what is there and deleting what is not is no error.
    permissive: bool,
    sets: &'a dyn LargeSets,
}

impl Apply<'_> {
    fn attribute_type(&self) -> &AttributeType {
        self.schema.attribute(self.change.description.attribute)
    }

    fn refuse(&self, code: ResultCode, operation: &str, text: &str) -> LdapResult {
        let name = self.change.description.to_text(self.schema);
        LdapResult::with(code, format!("modify/{operation}: {name}: {text}"))
    }

    fn pairs(&self) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.change.keys.iter().zip(&self.change.values)
    }

    fn add(&self, entry: &mut Entry, operation: &str) -> Result<(), Failure> {
        let Some(attribute) = entry.attribute_mut(&self.change.description) else {
            let description = self.change.description.clone();
            entry.attributes.push(match self.sets.prepared(self.change) {
                Some(members) => EntryAttribute {
                    large: Some(LargeValues::of(members)),
                    ..EntryAttribute::new(description, Vec::new())
                },
                None => EntryAttribute::new(description, self.change.values.clone()),
            });
            return Ok(());
        };
        if self.attribute_type().equality.is_none() {
            let text = "no equality matching rule";
            return Err(self.refuse(ResultCode::INAPPROPRIATE_MATCHING, operation, text).into());
        }
        let exists = |position: usize| {
            let text = format!("value #{position} already exists");
            self.refuse(ResultCode::ATTRIBUTE_OR_VALUE_EXISTS, operation, &text)
        };
        if let Some(large) = &mut attribute.large {
            if large.is_as_stored()
                && let Some(Joined { members, both }) = self.sets.joined(self.change)?
            {
                let is_there = |key: &Vec<u8>| both.binary_search(&member_key_of_normal(key)).is_ok();
                if !self.permissive
                    && !both.is_empty()
                    && let Some(position) = self.change.keys.iter().position(is_there)
                {
                    return Err(exists(position).into());
                }
                *large = LargeValues::of(&Arc::new(members));
                return Ok(());
            }
            for (position, (key, value)) in self.pairs().enumerate() {
                let member = member_key_of_normal(key);
                if !large_contains(self.sets, &self.change.description, large, &member)? {
                    large.added.insert(member, value.clone());
                } else if !self.permissive {
                    return Err(exists(position).into());
                }
            }
            return Ok(());
        }
        let present: Keys = self.keys_of(attribute).into_iter().collect();
        let mut new = Vec::with_capacity(self.change.values.len());
        for (position, (key, value)) in self.pairs().enumerate() {
            if !present.contains(key) {
                new.push(value.clone());
            } else if !self.permissive {
                return Err(exists(position).into());
            }
        }
        attribute.values.append(&mut new);
        Ok(())
    }

    /// The equality keys of the values that an attribute has. A stored value that is invalid has no key: nothing
    /// equals it.
    fn keys_of(&self, attribute: &EntryAttribute) -> Vec<Vec<u8>> {
        let kind = self.attribute_type();
        attribute.values.iter().map(|v| values::key(self.schema, kind, v).unwrap_or_default()).collect()
    }

    fn delete(&self, entry: &mut Entry) -> Result<(), Failure> {
        let missing = || self.refuse(ResultCode::NO_SUCH_ATTRIBUTE, "delete", "no such attribute");
        if self.change.values.is_empty() {
            return match entry.remove(&self.change.description) {
                None if !self.permissive => Err(missing().into()),
                _ => Ok(()),
            };
        }
        if self.attribute_type().equality.is_none() {
            let text = "no equality matching rule";
            return Err(self.refuse(ResultCode::INAPPROPRIATE_MATCHING, "delete", text).into());
        }
        let Some(attribute) = entry.attribute_mut(&self.change.description) else {
            return if self.permissive { Ok(()) } else { Err(missing().into()) };
        };
        self.delete_values(attribute)?;
        if attribute.count() == 0 {
            entry.remove(&self.change.description);
        }
        Ok(())
    }

    fn delete_values(&self, attribute: &mut EntryAttribute) -> Result<(), Failure> {
        let missing = || self.refuse(ResultCode::NO_SUCH_ATTRIBUTE, "delete", "no such value");
        if let Some(large) = &mut attribute.large {
            if large.is_as_stored()
                && let Some((members, found)) = self.sets.left(self.change)?
            {
                if !self.permissive && found < self.change.keys.len() as u64 {
                    return Err(missing().into());
                }
                *large = LargeValues::of(&Arc::new(members));
                return Ok(());
            }
            let mut doomed = Vec::with_capacity(self.change.keys.len());
            for key in &self.change.keys {
                let member = member_key_of_normal(key);
                if large_contains(self.sets, &self.change.description, large, &member)? {
                    doomed.push(member);
                } else if !self.permissive {
                    return Err(missing().into());
                }
            }
            for member in doomed {
                // What this same request added was never stored, unless it replaced one that was.
                if large.added.remove(&member).is_none() {
                    large.removed.insert(member);
                }
            }
            return Ok(());
        }
        let keys = self.keys_of(attribute);
        let mut doomed: Keys = self.change.keys.iter().cloned().collect();
        if !self.permissive {
            let present: foldhash::HashSet<&Vec<u8>> = keys.iter().collect();
            if !self.change.keys.iter().all(|key| present.contains(key)) {
                return Err(missing().into());
            }
        }
        // Each key takes one value away.
        let mut keys = keys.into_iter();
        attribute.values.retain(|_| keys.next().is_none_or(|key| !doomed.remove(&key)));
        Ok(())
    }

    fn increment(&self, entry: &mut Entry) -> Result<(), Failure> {
        let invalid = |what: &str| {
            let text = format!("modify/increment: invalid syntax of {what}");
            Failure::from(LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text))
        };
        let Some(attribute) = entry.attribute_mut(&self.change.description) else {
            if self.permissive {
                return self.add(entry, "replace");
            }
            let text = "no such attribute";
            return Err(self.refuse(ResultCode::NO_SUCH_ATTRIBUTE, "increment", text).into());
        };
        attribute.unfold();
        if attribute.large.is_some() {
            let text = "too many values to increment";
            return Err(self.refuse(ResultCode::UNWILLING_TO_PERFORM, "increment", text).into());
        }
        let amount =
            self.change.values.first().and_then(|v| integer(v)).ok_or_else(|| invalid("increment"))?;
        for value in &mut attribute.values {
            let sum = integer(value).and_then(|old| old.checked_add(amount));
            *value = sum.ok_or_else(|| invalid("original value"))?.to_string().into_bytes();
        }
        Ok(())
    }
}

/// Whole numbers of up to 38 digits; OpenLDAP takes 18.
fn integer(value: &[u8]) -> Option<i128> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
