//! Many modifications of one entry. Those of one attribute share a set of its values by equality key: each of them costs what
//! it names, not what the attribute holds.

use larix_proto::{LdapResult, ResultCode};
use larix_schema::{AttributeDescription, AttributeType, Schema};

use super::{Apply, LargeSets, apply, integer};
use crate::budget::{LimitExceeded, Meter, RequestLimit, RequestLimits};
use crate::change::prepare::{Change, ChangeKind};
use crate::entry::record::INLINE_COUNT_LIMIT;
use crate::entry::{Entry, EntryAttribute};
use crate::failure::Failure;
use crate::write::values;

/// From so many modifications of an attribute on its values are worth a set.
const REPEATED: usize = 3;

/// From so many modifications on every attribute is looked up, not looked for.
const MANY: usize = 32;

/// Applies modifications in their order.
///
/// # Errors
/// As [`apply`]; adminLimitExceeded where they look at more values than the request may.
pub(crate) fn apply_all(
    schema: &Schema,
    entry: &mut Entry,
    changes: &[&Change],
    permissive: bool,
    sets: &dyn LargeSets,
    limits: &RequestLimits,
) -> Result<(), Failure> {
    apply_in_order(schema, entry, changes, permissive, sets, limits)?;
    if changes.iter().any(|change| change.values.len() > INLINE_COUNT_LIMIT) {
        // What came as a large set may be none any more.
        let is_small = |attribute: &&mut EntryAttribute| attribute.count() <= INLINE_COUNT_LIMIT as u64;
        entry.attributes.iter_mut().filter(is_small).for_each(EntryAttribute::unfold);
    }
    Ok(())
}

fn apply_in_order(
    schema: &Schema,
    entry: &mut Entry,
    changes: &[&Change],
    permissive: bool,
    sets: &dyn LargeSets,
    limits: &RequestLimits,
) -> Result<(), Failure> {
    if changes.len() < MANY && !is_any_repeated(changes) {
        return changes.iter().try_for_each(|change| apply(schema, entry, change, permissive, sets));
    }
    let positions = AttributePositions { looked_up: changes.len() >= MANY, known: None };
    together((schema, sets, limits), entry, changes, permissive, positions)
}

/// For lists that are short enough to be gone through for each.
fn is_any_repeated(changes: &[&Change]) -> bool {
    changes.len() >= REPEATED
        && changes.iter().any(|change| {
            changes.iter().filter(|other| other.description == change.description).count() >= REPEATED
        })
}

fn together(
    (schema, sets, limits): (&Schema, &dyn LargeSets, &RequestLimits),
    entry: &mut Entry,
    changes: &[&Change],
    permissive: bool,
    mut positions: AttributePositions,
) -> Result<(), Failure> {
    let most = limits.most(RequestLimit::Steps);
    let budget = Budget { meter: Meter::new(most), most };
    let mut counts: foldhash::HashMap<&AttributeDescription, usize> = foldhash::HashMap::default();
    for change in changes {
        *counts.entry(&change.description).or_default() += 1;
    }
    let is_repeated = |description| counts.get(description).is_some_and(|count| *count >= REPEATED);
    let mut open = OpenAttributes::default();
    for (number, change) in changes.iter().enumerate() {
        let description = &change.description;
        let at = match open.positions.get(description) {
            Some(at) => *at,
            None => {
                let attribute = positions.attribute(entry, description);
                let is_large = attribute.as_ref().is_some_and(|attribute| attribute.large.is_some());
                let becomes_large = (attribute.is_none() || change.kind == ChangeKind::Replace)
                    && sets.prepared(change).is_some();
                if is_large || becomes_large || !(positions.looked_up || is_repeated(description)) {
                    open.note_created(number, change, attribute.is_some());
                    budget.charge(attribute.map_or(0, |attribute| attribute.values.len()))?;
                    positions.around(entry, |entry| apply(schema, entry, change, permissive, sets))?;
                    continue;
                }
                let stored = attribute.map(|attribute| std::mem::take(&mut attribute.values));
                let stored = stored.unwrap_or_default();
                budget.charge(stored.len())?;
                open.add(description, Values::new(schema, schema.attribute(description.attribute), stored))
            }
        };
        let permissive = permissive || change.kind == ChangeKind::SoftAdd;
        let Some((_, values)) = open.values.get_mut(at) else { continue };
        let was_there = values.live > 0;
        values.apply(&Apply { schema, change, permissive, sets }, &budget)?;
        open.note_created(number, change, was_there);
    }
    open.close(entry);
    Ok(())
}

/// Where the attributes of an entry are.
struct AttributePositions {
    looked_up: bool,
    /// Made when it is needed, and anew when an attribute came or went.
    known: Option<foldhash::HashMap<AttributeDescription, usize>>,
}

impl AttributePositions {
    fn attribute<'e>(
        &mut self,
        entry: &'e mut Entry,
        description: &AttributeDescription,
    ) -> Option<&'e mut EntryAttribute> {
        if !self.looked_up {
            return entry.attribute_mut(description);
        }
        let known = self.known.get_or_insert_with(|| {
            let attributes = entry.attributes.iter().enumerate();
            attributes.map(|(at, attribute)| (attribute.description.clone(), at)).collect()
        });
        let at = *known.get(description)?;
        entry.attributes.get_mut(at)
    }

    /// Does something that may add an attribute or take one away.
    fn around<T>(&mut self, entry: &mut Entry, change: impl FnOnce(&mut Entry) -> T) -> T {
        let before = entry.attributes.len();
        let done = change(entry);
        if entry.attributes.len() != before {
            self.known = None;
        }
        done
    }
}

/// Attributes that are being modified, in the order in which they were first named.
#[derive(Default)]
struct OpenAttributes<'c> {
    positions: foldhash::HashMap<&'c AttributeDescription, usize>,
    values: Vec<(&'c AttributeDescription, Values)>,
    /// The modification that made an attribute, or made it anew: these stand behind all others, in the order of their making.
    created: foldhash::HashMap<&'c AttributeDescription, usize>,
}

impl<'c> OpenAttributes<'c> {
    /// Modification `number` is carried out on an attribute that was there, or was not.
    fn note_created(&mut self, number: usize, change: &'c Change, was_there: bool) {
        let creates = match change.kind {
            ChangeKind::Replace => !change.values.is_empty(),
            ChangeKind::Add | ChangeKind::SoftAdd | ChangeKind::Increment => !was_there,
            ChangeKind::Delete => false,
        };
        if creates {
            self.created.insert(&change.description, number);
        }
    }

    fn add(&mut self, description: &'c AttributeDescription, values: Values) -> usize {
        let at = self.values.len();
        self.positions.insert(description, at);
        self.values.push((description, values));
        at
    }

    /// Gives the entry what came of them. An attribute without values is none.
    fn close(self, entry: &mut Entry) {
        let Self { positions, values, created } = self;
        let mut values: Vec<_> = values.into_iter().map(|(name, values)| (name, Some(values))).collect();
        entry.attributes.retain_mut(|attribute| {
            let at = positions.get(&attribute.description);
            match at.and_then(|at| values.get_mut(*at)).and_then(|(_, values)| values.take()) {
                None => true,
                Some(values) => {
                    attribute.values = values.stored.into_iter().flatten().collect();
                    !attribute.values.is_empty()
                }
            }
        });
        let new = values.into_iter().filter_map(|(name, values)| values.map(|values| (name, values)));
        for (description, values) in new.filter(|(_, values)| values.live > 0) {
            let values = values.stored.into_iter().flatten().collect();
            entry.attributes.push(EntryAttribute::new(description.clone(), values));
        }
        if !created.is_empty() {
            entry.attributes.sort_by_cached_key(|attribute| created.get(&attribute.description).copied());
        }
    }
}

/// Values that may still be looked at.
struct Budget {
    meter: Meter,
    most: u64,
}

impl Budget {
    fn charge(&self, values: usize) -> Result<(), Failure> {
        if self.meter.take(values as u64) {
            return Ok(());
        }
        let exceeded = LimitExceeded { limit: RequestLimit::Steps, most: self.most };
        Err(LdapResult::from(exceeded).into())
    }
}

/// The values of one attribute while it is modified.
struct Values {
    /// In their order; those that were taken away leave their place empty.
    stored: Vec<Option<Vec<u8>>>,
    /// Where the value with this equality key is.
    positions: foldhash::HashMap<Vec<u8>, usize>,
    live: usize,
}

impl Values {
    fn new(schema: &Schema, kind: &AttributeType, values: Vec<Vec<u8>>) -> Self {
        let mut new = Self { stored: Vec::new(), positions: foldhash::HashMap::default(), live: 0 };
        for value in values {
            // A stored value that is invalid has no key: nothing equals it.
            let key = values::key(schema, kind, &value).unwrap_or_default();
            new.push(key, value);
        }
        new
    }

    fn push(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.positions.entry(key).or_insert(self.stored.len());
        self.stored.push(Some(value));
        self.live += 1;
    }

    fn clear(&mut self) {
        self.stored.clear();
        self.positions.clear();
        self.live = 0;
    }

    fn apply(&mut self, apply: &Apply<'_>, budget: &Budget) -> Result<(), Failure> {
        budget.charge(apply.change.values.len().max(1))?;
        match apply.change.kind {
            ChangeKind::Add | ChangeKind::SoftAdd => self.add(apply, "add"),
            ChangeKind::Replace => {
                self.clear();
                self.add(apply, "replace")
            }
            ChangeKind::Delete => self.delete(apply),
            ChangeKind::Increment => {
                budget.charge(self.stored.len())?;
                self.increment(apply)
            }
        }
    }

    fn add(&mut self, apply: &Apply<'_>, operation: &str) -> Result<(), Failure> {
        if self.live > 0 && apply.attribute_type().equality.is_none() {
            let text = "no equality matching rule";
            return Err(apply.refuse(ResultCode::INAPPROPRIATE_MATCHING, operation, text).into());
        }
        for (position, (key, value)) in apply.pairs().enumerate() {
            if !self.positions.contains_key(key) {
                self.push(key.clone(), value.clone());
            } else if !apply.permissive {
                let text = format!("value #{position} already exists");
                return Err(apply.refuse(ResultCode::ATTRIBUTE_OR_VALUE_EXISTS, operation, &text).into());
            }
        }
        Ok(())
    }

    fn delete(&mut self, apply: &Apply<'_>) -> Result<(), Failure> {
        let missing = |what: &str| apply.refuse(ResultCode::NO_SUCH_ATTRIBUTE, "delete", what);
        let keys = &apply.change.keys;
        if !keys.is_empty() && apply.attribute_type().equality.is_none() {
            let text = "no equality matching rule";
            return Err(apply.refuse(ResultCode::INAPPROPRIATE_MATCHING, "delete", text).into());
        }
        if self.live == 0 {
            return if apply.permissive { Ok(()) } else { Err(missing("no such attribute").into()) };
        }
        if keys.is_empty() {
            self.clear();
            return Ok(());
        }
        if !apply.permissive && !keys.iter().all(|key| self.positions.contains_key(key)) {
            return Err(missing("no such value").into());
        }
        for key in keys {
            let place = self.positions.remove(key).and_then(|place| self.stored.get_mut(place));
            self.live -= usize::from(place.is_some_and(|value| value.take().is_some()));
        }
        Ok(())
    }

    fn increment(&mut self, apply: &Apply<'_>) -> Result<(), Failure> {
        let invalid = |what: &str| {
            let text = format!("modify/increment: invalid syntax of {what}");
            Failure::from(LdapResult::with(ResultCode::INVALID_ATTRIBUTE_SYNTAX, text))
        };
        if self.live == 0 {
            if apply.permissive {
                return self.add(apply, "replace");
            }
            let text = "no such attribute";
            return Err(apply.refuse(ResultCode::NO_SUCH_ATTRIBUTE, "increment", text).into());
        }
        let amount =
            apply.change.values.first().and_then(|v| integer(v)).ok_or_else(|| invalid("increment"))?;
        let mut sums = Vec::with_capacity(self.live);
        for value in self.stored.drain(..).flatten() {
            let sum = integer(&value).and_then(|old| old.checked_add(amount));
            sums.push(sum.ok_or_else(|| invalid("original value"))?.to_string().into_bytes());
        }
        *self = Self::new(apply.schema, apply.attribute_type(), sums);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
